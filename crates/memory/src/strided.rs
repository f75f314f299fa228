//! Elements of a datatype, an extent apart.

use crate::layout::Form;
use crate::span::Span;
use crate::{Layout, Segment};

/// Bytes `offset..offset + len` of the stream of elements whose first lies at `base`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub base: *mut u8,
    pub layout: &'a Layout,
    pub offset: usize,
    pub len: usize,
}

impl Strided<'_> {
    /// Calls `visitor` with each span, in stream order, until it returns `false`. The loop is
    /// compiled for each visitor, since spans are often only a few bytes.
    #[inline(always)]
    pub fn visit(self, visitor: impl FnMut(Span) -> bool) -> bool {
        match self.layout.form() {
            Form::Regular(regular) => self.visit_each(|index| regular.from(index), visitor),
            Form::Listed(listed) => {
                self.visit_each(|index| listed[index..].iter().copied(), visitor)
            }
        }
    }

    /// Visits the segments of elements, which `from(0)` iterates for one element.
    #[inline(always)]
    fn visit_each<I: Iterator<Item = Segment>>(
        self,
        from: impl Fn(usize) -> I,
        mut visitor: impl FnMut(Span) -> bool,
    ) -> bool {
        let Self { base, layout, offset, len: mut left } = self;
        if left == 0 {
            return true;
        }
        let mut element = offset / layout.size();
        let (mut index, mut skip) = layout.find(offset % layout.size());
        loop {
            let origin = base.wrapping_offset(element as isize * layout.extent());
            for segment in from(index) {
                let take = (segment.len - skip).min(left);
                let address = origin.wrapping_offset(segment.offset + skip as isize);
                if !visitor(Span { address, len: take }) {
                    return false;
                }
                left -= take;
                if left == 0 {
                    return true;
                }
                skip = 0;
            }
            element += 1;
            index = 0;
        }
    }

    /// Copies the bytes to `memory`, or from it if `CHANGE`. It does so only for whole elements whose
    /// segments all have 4, 8 or 16 bytes: one number, or two. True if it did.
    ///
    /// # Safety
    /// The elements are readable and `memory` is writable for so many bytes, or the other way round
    /// for `CHANGE`. They do not overlap.
    pub unsafe fn copy<const CHANGE: bool>(self, memory: *mut u8) -> bool {
        // SAFETY: the caller guarantees the memory of the elements and of `memory`.
        unsafe {
            match self.segments_of_whole() {
                Some(4) => self.copy_each::<4, CHANGE>(memory.cast()),
                Some(8) => self.copy_each::<8, CHANGE>(memory.cast()),
                Some(16) => self.copy_each::<16, CHANGE>(memory.cast()),
                Some(_) | None => return false,
            }
        }
        true
    }

    /// Returns the length of each segment, if all are equal and none is cut.
    fn segments_of_whole(self) -> Option<usize> {
        let size = self.layout.size();
        let is_whole =
            size > 0 && self.offset.is_multiple_of(size) && self.len.is_multiple_of(size);
        self.layout.segment_len().filter(|_| is_whole)
    }

    /// Copies segments of `N` bytes of whole elements.
    ///
    /// # Safety
    /// The conditions of [`Strided::copy`].
    #[inline(always)]
    unsafe fn copy_each<const N: usize, const CHANGE: bool>(self, memory: *mut [u8; N]) {
        // SAFETY: the caller guarantees the memory of the elements and of `memory`.
        unsafe {
            match self.layout.form() {
                Form::Regular(regular) => self.copy_of::<N, CHANGE>(regular.from(0), memory),
                Form::Listed(listed) => {
                    self.copy_of::<N, CHANGE>(listed.iter().copied(), memory);
                }
            }
        }
    }

    /// # Safety
    /// The conditions of [`Strided::copy`]; `segments` are the element's.
    #[inline(always)]
    unsafe fn copy_of<const N: usize, const CHANGE: bool>(
        self,
        segments: impl Iterator<Item = Segment> + Clone,
        mut memory: *mut [u8; N],
    ) {
        let Self { base, layout, offset, len } = self;
        let first = offset / layout.size();
        for element in first..first + len / layout.size() {
            let origin = base.wrapping_offset(element as isize * layout.extent());
            for segment in segments.clone() {
                let at = origin.wrapping_offset(segment.offset).cast::<[u8; N]>();
                // SAFETY: the caller guarantees both sides of each copy; byte arrays have no
                // alignment.
                unsafe {
                    match CHANGE {
                        true => *at = *memory,
                        false => *memory = *at,
                    }
                    memory = memory.add(1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Layout, Region, Segment};

    /// Elements of five segments each, of one length, in an irregular order and at irregular
    /// distances, in numbered memory.
    fn elements(len: usize, is_even: bool) -> (Vec<u8>, Arc<Layout>) {
        let offsets = [40, 0, 100, 60, 20].map(|offset| offset as isize);
        let segment = |(at, offset): (usize, isize)| {
            let len = if is_even || at != 2 { len } else { len - 1 };
            Segment { offset, len }
        };
        let layout = Layout::new(offsets.into_iter().enumerate().map(segment), 130);
        let memory = (0..1000).map(|at: u32| (at * 7 + at / 256) as u8).collect();
        (memory, Arc::new(layout))
    }

    /// Offsets of the stream's bytes, one by one.
    fn stream(memory: &[u8], layout: &Layout, count: usize) -> Vec<usize> {
        let place = |element: usize, offset: isize| (130 * element as isize + offset) as usize;
        let of = |element| {
            let segments = layout.segments().iter();
            segments
                .flat_map(move |one| (0..one.len).map(move |at| place(element, one.offset) + at))
        };
        let places: Vec<usize> = (0..count).flat_map(of).collect();
        assert!(places.iter().all(|place| *place < memory.len()));
        places
    }

    #[test]
    fn elements_are_read_and_written_whole_and_in_part() {
        let count = 6;
        let cases = (2..=17).flat_map(|len| [(len, true), (len, false)]);
        for (len, is_even) in cases {
            let (mut memory, layout) = elements(len, is_even);
            let places = stream(&memory, &layout, count);
            let expected: Vec<u8> = places.iter().map(|&place| memory[place]).collect();
            // SAFETY: the memory outlives the region, and has all elements.
            let region = unsafe { Region::elements(memory.as_mut_ptr(), count, &layout) };
            let (all, one) = (expected.len(), layout.size());
            let cuts =
                [(0, all), (0, one), (one, 2 * one), (1, all - 1), (one - 1, one + 2), (3, 0)];
            for (offset, part) in cuts {
                let mut found = vec![0; part];
                region.read(offset, &mut found);
                assert_eq!(found, expected[offset..][..part], "{len} {is_even} {offset} {part}");
            }
            let (mut appended, mut packed) = (Vec::new(), vec![0_u8; all]);
            region.append_to(&mut appended);
            // SAFETY: the memory outlives the region, and has `all` bytes.
            let flat = unsafe { Region::new(packed.as_mut_ptr(), all) };
            flat.copy_from(&region);
            assert_eq!((appended, flat.to_vec()), (expected.clone(), expected.clone()));
            for (offset, part) in cuts {
                let before = region.to_vec();
                let new: Vec<u8> = (0..part).map(|at| 255 - before[offset + at]).collect();
                region.write(offset, &new);
                let mut after = before;
                after[offset..][..part].copy_from_slice(&new);
                assert_eq!(region.to_vec(), after, "{len} {is_even} {offset} {part}");
            }
            region.copy_from(&flat);
            assert_eq!(region.to_vec(), expected);
        }
    }
}
