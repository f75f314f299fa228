//! Elements in the memory of a target.

use std::sync::Arc;

use memory::Layout;

use crate::fault::{AccessFault, Result};

/// Elements in the memory of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetPlace<'a> {
    /// Rank of the target in the window.
    rank: u32,
    /// Distance of the first element from the beginning of the target's window, in bytes. In a window whose memory is
    /// attached it is the address.
    displacement: i64,
    /// Length of the elements in bytes.
    len: usize,
    /// Number and layout of the elements if they have gaps.
    scattered: Option<(usize, &'a Arc<Layout>)>,
}

/// Adjacent bytes in the memory of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRun {
    pub offset: u64,
    pub len: usize,
}

impl<'a> TargetPlace<'a> {
    /// `len` adjacent bytes, at a distance from the beginning of a target's window. In a window whose memory is attached
    /// it is the address.
    #[inline]
    pub fn bytes(rank: u32, displacement: i64, len: usize) -> Self {
        Self { rank, displacement, len, scattered: None }
    }

    /// `count` elements of a layout, the first one at a distance as in [`TargetPlace::bytes`].
    #[inline]
    pub fn elements(rank: u32, displacement: i64, count: usize, layout: &'a Arc<Layout>) -> Self {
        let len = layout.size().saturating_mul(count);
        let scattered = (!layout.is_contiguous()).then_some((count, layout));
        Self { rank, displacement, len, scattered }
    }

    /// Rank of the target in the window.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Distance of the first element from the beginning of the target's window in bytes, or its address.
    #[inline]
    pub fn displacement(&self) -> i64 {
        self.displacement
    }

    /// Length of the elements in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "places of no bytes are rare")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number and layout of the elements if they have gaps.
    #[inline]
    pub fn scattered(&self) -> Option<(usize, &'a Arc<Layout>)> {
        self.scattered
    }

    /// Offset of the first byte, if the elements have no gaps. The place was checked.
    #[inline]
    pub(crate) fn contiguous(&self) -> Option<usize> {
        if self.scattered.is_none() { Some(self.displacement as usize) } else { None }
    }

    /// Fails if any byte lies outside a window of `len` bytes.
    #[inline(always)]
    pub fn check(&self, len: u64) -> Result<()> {
        // A negative distance is beyond all memory.
        let (first, bytes) = (self.displacement as u64, self.len as u64);
        let is_inside = bytes <= len && first <= len - bytes;
        // The cold call gets a value, so that this one stays in registers.
        if self.scattered.is_none() && is_inside { Ok(()) } else { (*self).check_ends(len) }
    }

    /// Checks the first and the last element, whose bytes lie farthest apart.
    #[cold]
    #[inline(never)]
    fn check_ends(self, len: u64) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        let first = i128::from(self.displacement);
        let (mut lowest, mut highest) = (first, first + self.len as i128);
        if let Some((count, layout)) = self.scattered {
            (lowest, highest) = (i128::MAX, i128::MIN);
            for index in [0, count as i128 - 1] {
                let origin = first + index * layout.extent() as i128;
                for segment in layout.outermost() {
                    let first = origin + segment.offset as i128;
                    lowest = lowest.min(first);
                    highest = highest.max(first + segment.len as i128);
                }
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
        if let Some((count, layout)) = self.scattered {
            for index in 0..count {
                let origin = self.displacement + index as i64 * layout.extent() as i64;
                layout.segments().iter().for_each(|segment| {
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
        } else {
            run.len = self.len;
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
            let place = TargetPlace::elements(0, displacement, count, layout);
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
        let check =
            |displacement, count| TargetPlace::elements(3, displacement, count, &layout).check(40);
        assert_eq!((check(4, 2), check(20, 2), check(1000, 0)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(check(3, 1), Err(AccessFault::Range { rank: 3, first: -1, end: 7, len: 40 }));
        assert_eq!(check(21, 2), Err(AccessFault::Range { rank: 3, first: 17, end: 41, len: 40 }));
        assert!(check(i64::MAX, usize::MAX >> 1).is_err());
        let bytes = |displacement, len| TargetPlace::bytes(3, displacement, len).check(40);
        assert_eq!((bytes(0, 40), bytes(40, 0), bytes(1000, 0)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(bytes(1, 40), Err(AccessFault::Range { rank: 3, first: 1, end: 41, len: 40 }));
        assert_eq!(bytes(-1, 1), Err(AccessFault::Range { rank: 3, first: -1, end: 0, len: 40 }));
        assert!(bytes(i64::MAX, usize::MAX).is_err() && bytes(i64::MIN, 8).is_err());
    }
}
