//! Copies between the stream of a pattern and a window of the file in memory.

use std::ops::Range;
use std::sync::Arc;

use memory::{Layout, Region, Segment, Segments};

use crate::pattern::Pattern;

impl Pattern {
    /// Copies bytes `stream` of the stream, which `data` holds, to their places in a window: the contiguous bytes of the
    /// file from offset `start` on.
    ///
    /// # Panics
    /// If a byte lies outside the window: an error of the library.
    pub fn scatter(&self, stream: Range<u64>, data: &Region, window: &Region, start: u64) {
        self.visit_parts(stream, window, start, &mut |place, done| {
            place.copy_piece(0, data, done, place.len());
        });
    }

    /// Copies bytes `stream` of the stream from their places in a window to `into`, as [`Pattern::scatter`] does the
    /// other way round.
    ///
    /// # Panics
    /// As [`Pattern::scatter`].
    pub fn gather(&self, stream: Range<u64>, window: &Region, start: u64, into: &Region) {
        self.visit_parts(stream, window, start, &mut |place, done| {
            into.copy_piece(done, place, 0, place.len());
        });
    }

    /// Calls `each` with parts of the window that hold bytes `stream` one after the other, and the number of bytes before
    /// each.
    fn visit_parts(
        &self,
        stream: Range<u64>,
        window: &Region,
        start: u64,
        each: &mut dyn FnMut(&Region, usize),
    ) {
        let layout = self.layout();
        let len = (stream.end - stream.start) as usize;
        let origin = self.displacement().wrapping_sub(start as i64) as isize;
        let mut done = 0;
        while done < len {
            let at = stream.start as usize + done;
            let (element, inside) = (at / layout.size(), at % layout.size());
            let first = origin.wrapping_add(layout.extent().wrapping_mul(element as isize));
            let left = (len - done).min(layout.size() - inside);
            let whole = match inside {
                0 => (len - done) / layout.size(),
                _ => 0,
            };
            let place = match whole {
                0 => segments_in(layout, inside, left)
                    .and_then(|part| window.typed(first, 1, &Arc::new(part))),
                _ => window.typed(first, whole, layout),
            };
            if let Some(place) = place {
                each(&place, done);
                done += place.len();
                continue;
            }
            for run in layout.runs(at, left) {
                each(&window.slice(origin.wrapping_add(run.offset) as usize, run.len), done);
                done += run.len;
            }
        }
    }
}

/// Returns the whole segments of an element that begin at byte `inside` of its stream and end within `len` bytes. None if these
/// are few, or the segments are irregular.
fn segments_in(layout: &Layout, inside: usize, len: usize) -> Option<Layout> {
    let (first, stride, _) = layout.segments().regular()?;
    let (index, skip) = (inside.checked_div(first.len)?, inside % first.len);
    let count = len / first.len;
    if skip > 0 || count < 2 {
        return None;
    }
    let offset = first.offset.checked_add(stride.checked_mul(index as isize)?)?;
    let mut made = Segments::new();
    made.push_run(Segment { offset, ..first }, stride, count, 0)?;
    Layout::of(made, layout.extent())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ascending segments: of one length at one distance, or of any.
    fn layouts() -> impl Strategy<Value = Layout> {
        let regular = (0..5isize, 1..9usize, 1..9usize, 1..9isize, 0..9isize).prop_map(
            |(offset, len, count, gap, rest)| {
                let stride = len as isize + gap;
                let segments = (0..count as isize)
                    .map(|index| Segment { offset: offset + index * stride, len });
                Layout::new(segments, offset + count as isize * stride + rest)
            },
        );
        let any = proptest::collection::vec((0..9isize, 1..9usize), 1..9).prop_map(|parts| {
            let mut end = 0;
            let segments: Vec<Segment> = parts
                .into_iter()
                .map(|(gap, len)| {
                    let offset = end + gap;
                    end = offset + len as isize;
                    Segment { offset, len }
                })
                .collect();
            Layout::new(segments, end)
        });
        prop_oneof![regular, any]
    }

    proptest! {
        #[test]
        fn bytes_come_to_their_places_and_back(
            layout in layouts(), displacement in 0..50i64, from in 0..200u64, len in 1..200u64,
        ) {
            let pattern = Pattern::new(displacement, &Arc::new(layout)).unwrap();
            let stream = from..from + len;
            let offset = |at: u64| pattern.byte_offset(at).unwrap() as u64;
            // The window begins and ends with the bytes.
            let start = offset(from);
            let window = Region::owned((offset(from + len - 1) - start + 1) as usize);
            let data: Vec<u8> = (1..=len).map(|byte| byte as u8).collect();
            let mut expected = vec![0; window.len()];
            for (at, byte) in stream.clone().zip(&data) {
                expected[(offset(at) - start) as usize] = *byte;
            }
            pattern.scatter(stream.clone(), &Region::from_box(data.clone().into()), &window, start);
            prop_assert_eq!(window.to_vec(), expected);
            let back = Region::owned(len as usize);
            pattern.gather(stream, &window, start, &back);
            prop_assert_eq!(back.to_vec(), data);
        }
    }

    #[test]
    fn parts_of_long_columns_need_no_list() {
        let mut column = Segments::new();
        column.push_run(Segment { offset: 0, len: 8 }, 1 << 20, 1 << 30, 0).unwrap();
        let column = Layout::of(column, 8).unwrap();
        let part = segments_in(&column, 8 * 1000, 8 * 50 + 3).unwrap();
        let first = Segment { offset: 1000 << 20, len: 8 };
        assert_eq!(part.segments().regular(), Some((first, 1 << 20, 50)));
    }
}
