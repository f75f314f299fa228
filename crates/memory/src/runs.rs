//! Runs of bytes in the stream of a layout's elements, without memory behind them.

use crate::{Layout, Segment};

/// Runs of contiguous bytes of consecutive elements, in stream order. Runs that touch are merged.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    layout: &'a Layout,
    /// Element, its segment, and the bytes of that before the next run.
    element: usize,
    index: usize,
    skip: usize,
    /// Bytes of the stream that are left.
    left: usize,
    /// A run that was found behind the last one.
    found: Option<Segment>,
}

impl Layout {
    /// Returns the runs of bytes `offset..offset + len` of the stream of elements, an extent apart. Offsets
    /// of the runs count from the first element.
    ///
    /// # Panics
    /// If the layout has no data although `len` is not zero: an error of the library.
    pub fn runs(&self, offset: usize, len: usize) -> Runs<'_> {
        let (mut element, mut index, mut skip) = (0, 0, 0);
        if len > 0 {
            element = offset / self.size();
            (index, skip) = self.find(offset % self.size());
        }
        Runs { layout: self, element, index, skip, left: len, found: None }
    }
}

impl Runs<'_> {
    /// Returns the rest of a segment, whether or not the next one touches it.
    fn step(&mut self) -> Option<Segment> {
        if self.left == 0 {
            return None;
        }
        let layout = self.layout;
        let origin = (self.element as isize).wrapping_mul(layout.extent());
        let segment = layout.segment(self.index);
        let is_endless = layout.segments().len() == 1 && segment.len as isize == layout.extent();
        let room = if is_endless { self.left } else { segment.len - self.skip };
        let len = room.min(self.left);
        let offset = origin.wrapping_add(segment.offset).wrapping_add(self.skip as isize);
        self.left -= len;
        self.skip = 0;
        self.index += 1;
        if self.index == layout.segments().len() {
            self.index = 0;
            self.element += 1;
        }
        Some(Segment { offset, len })
    }
}

impl Iterator for Runs<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let mut run = self.found.take().or_else(|| self.step())?;
        while let Some(more) = self.step() {
            if run.offset.wrapping_add(run.len as isize) != more.offset {
                self.found = Some(more);
                break;
            }
            run.len += more.len;
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_bytes_of_the_elements() {
        let at = |offset, len| Segment { offset, len };
        let layouts = [
            Layout::new([at(0, 4)], 4),
            Layout::new([at(2, 4)], 4),
            Layout::new([at(0, 3), at(5, 3)], 8),
            Layout::new([at(0, 3), at(5, 3)], 9),
            Layout::new([at(1, 2), at(4, 2), at(9, 1)], 10),
            Layout::new([at(8, 2), at(0, 2)], 16),
            Layout::new([at(0, 2), at(3, 2), at(6, 2)], 9),
        ];
        for layout in &layouts {
            let bytes = |element: isize| {
                let each = layout.segments().iter();
                each.flat_map(|one| (0..one.len as isize).map(move |at| one.offset + at))
                    .map(move |offset| element * layout.extent() + offset)
            };
            let all: Vec<isize> = (0..5).flat_map(bytes).collect();
            for offset in 0..all.len() {
                for len in 0..all.len() - offset {
                    let runs: Vec<Segment> = layout.runs(offset, len).collect();
                    let found: Vec<isize> = runs
                        .iter()
                        .flat_map(|run| (0..run.len as isize).map(|at| run.offset + at))
                        .collect();
                    assert_eq!(found, all[offset..][..len], "{layout:?} {offset} {len}");
                    let touches =
                        |pair: &[Segment]| pair[0].offset + pair[0].len as isize == pair[1].offset;
                    assert!(!runs.windows(2).any(touches));
                }
            }
        }
    }

    #[test]
    fn long_streams_without_gaps_are_one_run() {
        let layout = Layout::new([Segment { offset: 3, len: 8 }], 8);
        let runs: Vec<Segment> = layout.runs(5, 1 << 50).collect();
        assert_eq!(runs, [Segment { offset: 8, len: 1 << 50 }]);
    }
}
