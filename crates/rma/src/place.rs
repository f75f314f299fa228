//! Elements in the memory of a target.

use std::sync::Arc;

use memory::Layout;

use crate::fault::{AccessFault, Result};

/// Elements in the memory of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetPlace<'a> {
    /// Rank of the target in the window.
    pub rank: u32,
    /// Distance of the first element from the beginning of the target's window, in bytes. In a window whose memory is
    /// attached it is the address.
    pub displacement: i64,
    /// Number of elements.
    pub count: usize,
    /// Layout of an element.
    pub layout: &'a Arc<Layout>,
}

/// Adjacent bytes in the memory of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRun {
    pub offset: u64,
    pub len: usize,
}

impl TargetPlace<'_> {
    /// Length of the elements in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.layout.size() * self.count
    }

    /// Offset of the first byte, if the elements have no gaps.
    #[inline]
    pub(crate) fn contiguous(&self) -> Option<u64> {
        u64::try_from(self.displacement).ok().filter(|_| self.layout.is_contiguous())
    }

    /// Fails if any byte lies outside a window of `len` bytes.
    #[inline]
    pub fn check(&self, len: u64) -> Result<()> {
        let end = |first: u64| {
            let bytes = (self.layout.size() as u64).checked_mul(self.count as u64)?;
            first.checked_add(bytes)
        };
        match self.contiguous().and_then(end) {
            Some(end) if end <= len => Ok(()),
            _ => self.check_ends(len),
        }
    }

    /// Checks the first and the last element, whose bytes lie farthest apart.
    #[inline(never)]
    fn check_ends(&self, len: u64) -> Result<()> {
        if self.count == 0 || self.layout.size() == 0 {
            return Ok(());
        }
        let (mut lowest, mut highest) = (i128::MAX, i128::MIN);
        for index in [0, self.count as i128 - 1] {
            let origin = i128::from(self.displacement) + index * self.layout.extent() as i128;
            for segment in self.layout.outermost() {
                let first = origin + segment.offset as i128;
                lowest = lowest.min(first);
                highest = highest.max(first + segment.len as i128);
            }
        }
        if lowest >= 0 && highest <= i128::from(len) {
            return Ok(());
        }
        let clipped = |byte: i128| byte.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let (first, end) = (clipped(lowest), clipped(highest));
        Err(AccessFault::Range { rank: self.rank, first, end, len })
    }

    /// Passes adjacent bytes of the elements to `act`, in the order of the stream. The place was checked.
    pub(crate) fn each_run(&self, mut act: impl FnMut(ByteRun)) {
        let mut run = ByteRun { offset: self.displacement as u64, len: 0 };
        if self.layout.is_contiguous() {
            run.len = self.len();
        } else {
            for index in 0..self.count {
                let origin = self.displacement + index as i64 * self.layout.extent() as i64;
                self.layout.segments().iter().for_each(|segment| {
                    let offset = (origin + segment.offset as i64) as u64;
                    if run.len > 0 && offset == run.offset + run.len as u64 {
                        run.len += segment.len;
                        return;
                    }
                    let former = std::mem::replace(&mut run, ByteRun { offset, len: segment.len });
                    if former.len > 0 {
                        act(former);
                    }
                });
            }
        }
        if run.len > 0 {
            act(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use memory::Segment;

    use super::*;

    #[test]
    fn runs_are_the_bytes_of_the_elements_in_order() {
        let layout = |segments: &[(isize, usize)], extent| {
            let segments = segments.iter().map(|&(offset, len)| Segment { offset, len });
            Arc::new(Layout::new(segments, extent))
        };
        let runs = |displacement, count, layout: &Arc<Layout>| -> Vec<(u64, usize)> {
            let place = TargetPlace { rank: 0, displacement, count, layout };
            let mut runs = Vec::new();
            place.each_run(|run| runs.push((run.offset, run.len)));
            runs
        };
        assert_eq!(runs(8, 3, &layout(&[(0, 4)], 4)), [(8, 12)]);
        assert_eq!(runs(8, 2, &layout(&[(0, 4), (8, 4)], 12)), [(8, 4), (16, 8), (28, 4)]);
        assert_eq!(runs(8, 2, &layout(&[(8, 4), (0, 4)], 16)), [(16, 4), (8, 4), (32, 4), (24, 4)]);
        assert_eq!(runs(20, 2, &layout(&[(0, 4)], -8)), [(20, 4), (12, 4)]);
        assert_eq!(runs(8, 0, &layout(&[(0, 4)], 4)), []);
    }

    #[test]
    fn bytes_outside_the_window_are_found_on_both_sides() {
        let layout = Arc::new(Layout::new([Segment { offset: -4, len: 8 }], 16));
        let check = |displacement, count| {
            TargetPlace { rank: 3, displacement, count, layout: &layout }.check(40)
        };
        assert_eq!((check(4, 2), check(20, 2), check(1000, 0)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(check(3, 1), Err(AccessFault::Range { rank: 3, first: -1, end: 7, len: 40 }));
        assert_eq!(check(21, 2), Err(AccessFault::Range { rank: 3, first: 17, end: 41, len: 40 }));
        assert!(check(i64::MAX, usize::MAX >> 1).is_err());
    }
}
