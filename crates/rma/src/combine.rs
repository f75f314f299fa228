//! Combination of elements in the memory of a target: each element is replaced atomically, whoever combines.

use std::sync::Arc;

use datatype::{Builtin, Datatype, Op, Predefined, Reducer};
use memory::{Layout, Region, Segment};

use crate::control::Control;

/// Combination of the elements of one predefined type.
#[derive(Clone, Debug)]
pub(crate) struct Combination {
    pub op: Predefined,
    pub builtin: Builtin,
    reducer: Reducer,
    layout: Arc<Layout>,
    /// True if the processor replaces an element atomically where it is aligned.
    is_plain: bool,
}

impl Combination {
    pub fn new(builtin: Builtin, op: Predefined) -> Self {
        let datatype = Datatype::builtin(builtin);
        let layout = Arc::clone(datatype.layout());
        let is_plain = layout.is_contiguous() && [1, 2, 4, 8].contains(&layout.size());
        Self { op, builtin, reducer: op.reducer(builtin), layout, is_plain }
    }

    /// Returns a combination from its numbers on the wire; `None` if it is not defined.
    pub fn numbered(number: u64) -> Option<Self> {
        let builtin = Builtin::ALL.iter().find(|one| u64::from(one.abi()) == number & 0xffff)?;
        let op = *Predefined::ALL.get((number >> 16) as usize)?;
        let is_moved = matches!(op, Predefined::Replace | Predefined::NoOp);
        let is_valid = is_moved || Op::Predefined(op).is_valid_for(&Datatype::builtin(*builtin));
        is_valid.then(|| Self::new(*builtin, op))
    }

    /// Number of the combination on the wire.
    pub fn number(&self) -> u64 {
        let op = Predefined::ALL.iter().position(|op| *op == self.op).unwrap_or(0) as u64;
        op << 16 | u64::from(self.builtin.abi())
    }

    /// Data of an element, in bytes.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Distance of elements, in bytes.
    pub fn extent(&self) -> usize {
        self.layout.extent() as usize
    }

    /// Combines `data` with as many elements that begin at `offset` in `memory`. Appends those that were there to `old`.
    /// The memory covers the last element's data.
    pub fn apply(
        &self,
        memory: &Region,
        offset: usize,
        data: &[u8],
        control: &Control,
        mut old: Option<&mut Vec<u8>>,
    ) {
        for (index, element) in data.chunks_exact(self.size()).enumerate() {
            let at = offset + index * self.extent();
            let former = self.replace(memory, at, element, control);
            if let Some(old) = &mut old {
                old.extend_from_slice(&former[..self.size()]);
            }
        }
    }

    /// Replaces an element by `new` if it equals `compare`. Returns the one that was there.
    pub fn compare_and_swap(
        &self,
        memory: &Region,
        offset: usize,
        (compare, new): (&[u8], &[u8]),
        control: &Control,
    ) -> Vec<u8> {
        let size = self.size();
        let mut swap = |bytes: [u8; 8]| {
            let mut wanted = bytes;
            if bytes[..size] == *compare {
                wanted[..size].copy_from_slice(new);
            }
            wanted
        };
        if self.is_plain
            && let Some(old) = memory.replace(offset, size, &mut swap)
        {
            return old[..size].to_vec();
        }
        control.combine(|| {
            let element = self.element(memory, offset);
            let old = element.to_vec();
            if old == compare {
                element.write(0, new);
            }
            old
        })
    }

    /// Combines one element and returns the one that was there.
    fn replace(&self, memory: &Region, at: usize, data: &[u8], control: &Control) -> [u8; 32] {
        let mut former = [0; 32];
        if self.is_plain {
            let size = self.size();
            let combined = |mut bytes: [u8; 8]| {
                self.combined(data, &mut bytes[..size]);
                bytes
            };
            if let Some(old) = memory.replace(at, size, &mut { combined }) {
                former[..8].copy_from_slice(&old);
                return former;
            }
        }
        control.combine(|| {
            let element = self.element(memory, at);
            element.read(0, &mut former[..self.size()]);
            if self.is_plain {
                let mut bytes = [0; 8];
                bytes[..self.size()].copy_from_slice(&former[..self.size()]);
                self.combined(data, &mut bytes[..self.size()]);
                element.write(0, &bytes[..self.size()]);
            } else {
                element.copy_from(&self.combined_in_memory(data, &former[..self.size()]));
            }
        });
        former
    }

    /// Combines `data` with one element in its place.
    fn combined(&self, data: &[u8], element: &mut [u8]) {
        match self.op {
            Predefined::Replace => element.copy_from_slice(data),
            Predefined::NoOp => {}
            _ => self.reducer.combine_onto(data, element),
        }
    }

    /// Combines elements whose parts have gaps in memory; they are given as streams, and so is the result.
    fn combined_in_memory(&self, data: &[u8], former: &[u8]) -> Region {
        let spread = |stream: &[u8]| {
            let memory = Region::owned(self.extent());
            self.element(&memory, 0).write(0, stream);
            memory
        };
        let (left, right) = (spread(data), spread(former));
        match self.op {
            Predefined::Replace => return Region::from_box(data.into()),
            Predefined::NoOp => {}
            _ => self.reducer.combine_regions(&left, &right),
        }
        Region::from_box(self.element(&right, 0).to_vec().into())
    }

    /// An element in memory, as its stream.
    fn element(&self, memory: &Region, at: usize) -> Region {
        let segments = self.layout.segments().iter();
        Region::chain(
            segments.map(|Segment { offset, len }| memory.slice(at + offset as usize, len)),
        )
    }
}

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
                let is_moved = matches!(op, Predefined::Replace | Predefined::NoOp);
                if !is_moved && !Op::Predefined(op).is_valid_for(&datatype) {
                    continue;
                }
                let combination = Combination::new(builtin, op);
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
                let mut old = Vec::new();
                combination.apply(&target, 0, &stream(&operand), &control(), Some(&mut old));
                assert_eq!(old, before, "{builtin:?} {op:?}");
                assert_eq!(stream(&target), stream(&expected), "{builtin:?} {op:?}");
                assert_eq!(old.len(), 3 * size);
            }
        }
    }

    #[test]
    fn an_element_that_differs_is_not_swapped() {
        for builtin in [Builtin::Int, Builtin::Double, Builtin::Integer16, Builtin::Byte] {
            let combination = Combination::new(builtin, Predefined::NoOp);
            let size = combination.size();
            let (one, two) = (vec![1; size], vec![2; size]);
            let memory = Region::from_box(one.clone().into());
            let swap = |compare: &[u8], new: &[u8]| {
                combination.compare_and_swap(&memory, 0, (compare, new), &control())
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
