//! Combination of elements in the memory of a target. All who combine hold the locks of the elements meanwhile, whichever
//! way they come, so that each element is combined as a whole.

use std::sync::{Arc, LazyLock};

use datatype::{Builtin, Datatype, Predefined, Reducer};
use memory::{Layout, Region, Segment};

use crate::control::Control;

/// Combination of the elements of one predefined type.
#[derive(Clone, Copy, Debug)]
pub struct Combination {
    reducer: Reducer,
    builtin: Builtin,
    op: Predefined,
    /// Length of an element without gaps in bytes, if it is at most [`ELEMENT_MAX`]; else 0.
    simple_size: u8,
}

impl Combination {
    /// The combination of elements of a type by an operation, if it is defined.
    #[inline]
    pub fn find(builtin: Builtin, op: Predefined) -> Option<&'static Self> {
        static ALL: LazyLock<Vec<Option<Combination>>> = LazyLock::new(|| {
            let mut all = vec![None; Predefined::ALL.len() * TYPES];
            for &builtin in Builtin::ALL {
                let size = Builtin::gapless_size(builtin.abi().into());
                let simple_size = if size <= ELEMENT_MAX { size as u8 } else { 0 };
                for &op in Predefined::ALL.iter().filter(|op| op.combines(builtin)) {
                    let reducer = op.reducer(builtin);
                    let combination = Combination { reducer, builtin, op, simple_size };
                    all[place_of(builtin, op)] = Some(combination);
                }
            }
            all
        });
        ALL[place_of(builtin, op)].as_ref()
    }

    /// Returns a combination from its numbers on the wire; `None` if it is not defined.
    pub(crate) fn numbered(number: u64) -> Option<&'static Self> {
        let builtin = Builtin::numbered(number & 0xffff)?;
        let op = *Predefined::ALL.get((number >> 16) as usize)?;
        Self::find(builtin, op)
    }

    /// Number of the combination on the wire.
    pub(crate) fn number(&self) -> u64 {
        let op = Predefined::ALL.iter().position(|op| *op == self.op).unwrap_or(0) as u64;
        op << 16 | u64::from(self.builtin.abi())
    }

    fn layout(&self) -> &'static Layout {
        static LAYOUTS: LazyLock<Vec<Arc<Layout>>> = LazyLock::new(|| {
            let none = Arc::new(Layout::new([], 0));
            let mut layouts: Vec<_> = (0..TYPES).map(|_| Arc::clone(&none)).collect();
            for &builtin in Builtin::ALL {
                let layout = Arc::clone(Datatype::builtin(builtin).layout());
                layouts[usize::from(builtin.abi()) % TYPES] = layout;
            }
            layouts
        });
        &LAYOUTS[usize::from(self.builtin.abi()) % TYPES]
    }

    /// Data of an element, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.layout().size()
    }

    /// Distance of elements, in bytes.
    pub(crate) fn extent(&self) -> usize {
        self.layout().extent() as usize
    }

    /// Length of an element in bytes, if it has no gaps and is no longer than [`ELEMENT_MAX`].
    #[inline]
    pub(crate) fn simple_size(&self) -> Option<usize> {
        if self.simple_size > 0 { Some(usize::from(self.simple_size)) } else { None }
    }

    /// Combines one simple element in `memory` with that of `data`, if there is one. Writes the one that was there to
    /// `result`.
    #[inline(always)]
    pub(crate) fn apply_to_one(
        &self,
        memory: &Region,
        offset: usize,
        data: Option<&Region>,
        result: Option<&Region>,
        control: &Control,
    ) {
        match usize::from(self.simple_size) {
            8 => self.combine_one::<8>(8, (memory, offset), data, result, control),
            4 => self.combine_one::<4>(4, (memory, offset), data, result, control),
            _ => self.combine_any(memory, offset, data.cloned(), result.cloned(), control),
        }
    }

    /// Combines like [`Combination::apply_to_one`] an element of an unusual length.
    #[inline(never)]
    fn combine_any(
        &self,
        memory: &Region,
        offset: usize,
        data: Option<Region>,
        result: Option<Region>,
        control: &Control,
    ) {
        let (data, result, len) = (data.as_ref(), result.as_ref(), usize::from(self.simple_size));
        self.combine_one::<ELEMENT_MAX>(len, (memory, offset), data, result, control);
    }

    /// Combines an element of `len` bytes in buffers of `ROOM`.
    #[inline(always)]
    fn combine_one<const ROOM: usize>(
        &self,
        len: usize,
        (memory, offset): (&Region, usize),
        data: Option<&Region>,
        result: Option<&Region>,
        control: &Control,
    ) {
        let (mut operand, mut old) = ([0; ROOM], [0; ROOM]);
        let (operand, old) = (&mut operand[..len], &mut old[..len]);
        if let Some(data) = data {
            data.read(0, operand);
        }
        self.combine_operand::<ROOM>(operand, (memory, offset), old, control);
        if let Some(result) = result {
            result.write(0, old);
        }
    }

    /// Combines an element with `operand`. The one that was there is then in `old`.
    #[inline(always)]
    pub(crate) fn combine_operand<const ROOM: usize>(
        &self,
        operand: &[u8],
        (memory, offset): (&Region, usize),
        old: &mut [u8],
        control: &Control,
    ) {
        let len = operand.len();
        control.combine((memory, offset, len), || {
            memory.read(offset, old);
            match self.op {
                Predefined::NoOp => {}
                Predefined::Replace => memory.write(offset, operand),
                _ => {
                    let mut new = [0; ROOM];
                    self.reducer.combine(operand, old, &mut new[..len]);
                    memory.write(offset, &new[..len]);
                }
            }
        });
    }

    /// Combines `data` with as many elements that begin at `offset` in `memory`. Passes those that were there to `old`, in
    /// order. The memory covers the last element's data.
    pub(crate) fn apply(
        &self,
        memory: &Region,
        offset: usize,
        data: &[u8],
        control: &Control,
        old: &mut dyn FnMut(&[u8]),
    ) {
        let len = data.len() / self.size().max(1) * self.extent();
        control.combine((memory, offset, len), || match (!self.has_gaps(), data.len()) {
            (true, ..=SHORT_LEN) => self.combine_in::<SHORT_LEN>(memory, offset, data, old),
            (true, _) => self.combine_in::<LONG_LEN>(memory, offset, data, old),
            (false, _) => self.combine_spread(memory, offset, data, old),
        });
    }

    /// True if elements have gaps.
    #[inline]
    pub(crate) fn has_gaps(&self) -> bool {
        !self.layout().is_contiguous()
    }

    /// Combines `data` with as many elements without gaps, whose locks the caller holds. Writes those that were there to
    /// `result`.
    pub(crate) fn apply_to_stream(
        &self,
        elements: &Region,
        data: &Region,
        result: Option<&Region>,
    ) {
        if let Some(result) = result {
            result.copy_from(elements);
        }
        match self.op {
            Predefined::NoOp => {}
            Predefined::Replace => elements.copy_from(data),
            _ if elements.as_span().is_some() && data.as_span().is_some() => {
                self.reducer.combine_regions(data, elements);
            }
            _ => {
                let mut combined = elements.to_vec();
                self.reducer.combine_onto(&data.to_vec(), &mut combined);
                elements.write(0, &combined);
            }
        }
    }

    /// Combines elements without gaps, in a buffer of `LEN` bytes.
    fn combine_in<const LEN: usize>(
        &self,
        memory: &Region,
        mut offset: usize,
        data: &[u8],
        old: &mut dyn FnMut(&[u8]),
    ) {
        let mut buffer = [0; LEN];
        for data in data.chunks(LEN) {
            let elements = &mut buffer[..data.len()];
            memory.read(offset, elements);
            old(elements);
            match self.op {
                Predefined::Replace => memory.write(offset, data),
                Predefined::NoOp => {}
                _ => {
                    self.reducer.combine_onto(data, elements);
                    memory.write(offset, elements);
                }
            }
            offset += data.len();
        }
    }

    /// Combines elements whose parts have gaps in memory.
    fn combine_spread(
        &self,
        memory: &Region,
        offset: usize,
        data: &[u8],
        old: &mut dyn FnMut(&[u8]),
    ) {
        let spread = |stream: &[u8]| {
            let memory = Region::owned(self.extent());
            self.element(&memory, 0).write(0, stream);
            memory
        };
        for (index, data) in data.chunks_exact(self.size()).enumerate() {
            let element = self.element(memory, offset + index * self.extent());
            let former = element.to_vec();
            old(&former);
            match self.op {
                Predefined::Replace => element.write(0, data),
                Predefined::NoOp => {}
                _ => {
                    let (left, right) = (spread(data), spread(&former));
                    self.reducer.combine_regions(&left, &right);
                    element.copy_from(&self.element(&right, 0));
                }
            }
        }
    }

    /// Replaces a simple element by `new` if it equals `compare`. Passes the one that was there to `old`.
    #[inline]
    pub(crate) fn compare_and_swap(
        &self,
        memory: &Region,
        offset: usize,
        (compare, new): (&[u8], &[u8]),
        control: &Control,
        old: impl FnOnce(&[u8]),
    ) {
        let mut former = [0; ELEMENT_MAX];
        let former = &mut former[..compare.len()];
        control.combine((memory, offset, former.len()), || {
            memory.read(offset, former);
            if former == compare {
                memory.write(offset, new);
            }
        });
        old(former);
    }

    /// An element in memory, as its stream.
    fn element(&self, memory: &Region, at: usize) -> Region {
        let segments = self.layout().segments().iter();
        Region::chain(
            segments.map(|Segment { offset, len }| memory.slice(at + offset as usize, len)),
        )
    }
}

/// Number of the types that [`place_of`] tells apart: by the last eight bits of their constants.
const TYPES: usize = 0x100;

#[inline]
fn place_of(builtin: Builtin, op: Predefined) -> usize {
    op as usize * TYPES + usize::from(builtin.abi()) % TYPES
}

/// Lengths of the buffers in which elements are combined: multiples of every element without gaps.
const SHORT_LEN: usize = 64;
const LONG_LEN: usize = 4096;

/// Longest simple element in bytes.
pub(crate) const ELEMENT_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control::Own(Arc::default())
    }

    #[test]
    fn elements_of_any_type_are_combined_where_they_lie() {
        for &builtin in Builtin::ALL {
            for &op in Predefined::ALL {
                let datatype = Datatype::builtin(builtin);
                if !op.combines(builtin) {
                    assert!(Combination::find(builtin, op).is_none());
                    continue;
                }
                let combination = Combination::find(builtin, op).unwrap();
                assert_eq!(Combination::numbered(combination.number()).map(|one| one.op), Some(op));
                let (extent, size) = (combination.extent(), combination.size());
                let memory = |first: u8| {
                    let bytes = (0..3 * extent)
                        .map(|at| (at as u8).wrapping_mul(3).wrapping_add(first) & 0x3f);
                    Region::from_box(bytes.collect())
                };
                let stream = |memory: &Region| -> Vec<u8> {
                    memory.typed(0, 3, datatype.layout()).unwrap().to_vec()
                };
                let (target, expected, operand) = (memory(1), memory(1), memory(7));
                let before = stream(&target);
                if op == Predefined::Replace {
                    expected.typed(0, 3, datatype.layout()).unwrap().write(0, &stream(&operand));
                } else {
                    op.reducer(builtin).combine_regions(&operand, &expected);
                }
                let mut old: Vec<u8> = Vec::new();
                let operand = stream(&operand);
                combination.apply(&target, 0, &operand, &control(), &mut |one| old.extend(one));
                assert_eq!(old, before, "{builtin:?} {op:?}");
                assert_eq!(stream(&target), stream(&expected), "{builtin:?} {op:?}");
                assert_eq!(old.len(), 3 * size);
                if combination.simple_size().is_some() {
                    let (target, result) = (memory(1), Region::owned(size));
                    let one = Region::from_box(operand[size..2 * size].into());
                    let data = Some(&one).filter(|_| op != Predefined::NoOp);
                    combination.apply_to_one(&target, extent, data, Some(&result), &control());
                    assert_eq!(result.to_vec(), before[size..2 * size], "{builtin:?} {op:?}");
                    let [model, all] = [expected.slice(extent, size), target.slice(extent, size)];
                    assert_eq!(all.to_vec(), model.to_vec(), "{builtin:?} {op:?}");
                }
            }
        }
    }

    #[test]
    fn an_element_that_differs_is_not_swapped() {
        for builtin in [Builtin::Int, Builtin::Double, Builtin::Integer16, Builtin::Byte] {
            let combination = Combination::find(builtin, Predefined::NoOp).unwrap();
            let size = combination.size();
            let (one, two) = (vec![1; size], vec![2; size]);
            let memory = Region::from_box(one.clone().into());
            let swap = |compare: &[u8], new: &[u8]| {
                let mut old = Vec::new();
                let keep = |former: &[u8]| old.extend_from_slice(former);
                combination.compare_and_swap(&memory, 0, (compare, new), &control(), keep);
                old
            };
            assert_eq!(swap(&two, &two), one);
            assert_eq!(memory.to_vec(), one);
            assert_eq!(swap(&one, &two), one);
            assert_eq!(memory.to_vec(), two);
        }
    }

    #[test]
    fn unknown_combinations_are_refused() {
        for number in [0, 0x214, 0xffff, 200 << 16 | 0x209] {
            let is_known = Combination::numbered(number).is_some();
            assert_eq!(is_known, number == 0x214, "{number:#x}");
        }
        let of = |op: Predefined, builtin| {
            let at = Predefined::ALL.iter().position(|one| *one == op).unwrap() as u64;
            Combination::numbered(at << 16 | u64::from(Builtin::abi(builtin)))
        };
        assert!(of(Predefined::Band, Builtin::Double).is_none());
        assert!(of(Predefined::Band, Builtin::Int).is_some());
    }
}
