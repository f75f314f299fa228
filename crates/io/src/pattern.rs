//! A pattern of bytes in a file, repeated from a displacement on.

use std::ops::Range;
use std::sync::Arc;

use memory::{Layout, Segment, Segments};

/// Bytes of a file as a stream: those of a layout, repeated from a displacement on. The segments of an element never lie before
/// those that precede them; elements may overlap.
#[derive(Clone, Debug)]
pub struct Pattern {
    displacement: i64,
    layout: Arc<Layout>,
    /// True if each byte of an element lies behind the one before.
    is_ascending: bool,
}

impl Pattern {
    /// Makes a pattern. None if bytes lie before the displacement, segments before those that precede them, or elements
    /// before the last one.
    pub fn new(displacement: i64, layout: &Arc<Layout>) -> Option<Self> {
        let first = layout.place_of(0).unwrap_or(0);
        let is_one = displacement >= 0 && first >= 0 && is_nondecreasing(layout);
        let is_ascending = is_ascending(layout);
        is_one.then(|| Self { displacement, layout: Arc::clone(layout), is_ascending })
    }

    /// Offset of the first element in bytes.
    pub fn displacement(&self) -> i64 {
        self.displacement
    }

    /// The bytes of an element.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// True if both are the same pattern of the same layout in memory.
    pub fn is_identical(&self, other: &Self) -> bool {
        self.displacement == other.displacement && Arc::ptr_eq(&self.layout, &other.layout)
    }

    /// True if each byte of a part of the stream lies behind the one before.
    pub fn ascends(&self, stream: &Range<u64>) -> bool {
        let element = |at: u64| at.checked_div(self.layout.size() as u64);
        match stream.is_empty() || self.layout.is_ascending() {
            true => true,
            false => element(stream.start) == element(stream.end - 1) && self.is_ascending,
        }
    }

    /// Returns the offset in the file of byte `stream`. None if it exceeds the range of offsets. A pattern without bytes
    /// lies at its displacement.
    pub fn byte_offset(&self, stream: u64) -> Option<i64> {
        if self.layout.size() == 0 {
            return Some(self.displacement);
        }
        let inside = self.layout.place_of(usize::try_from(stream).ok()?)?;
        self.displacement.checked_add(i64::try_from(inside).ok()?)
    }

    /// True if there are bytes `stream..stream + len`, all within the range of offsets.
    pub fn reaches(&self, stream: u64, len: usize) -> bool {
        let size = self.layout.size() as u64;
        let has_place = |at: u64| self.byte_offset(at).is_some_and(|place| place < i64::MAX);
        match (len as u64, size) {
            (0, _) => true,
            (_, 0) => false,
            (len, _) => stream.checked_add(len - 1).is_some_and(|last| {
                // The element before may end behind the last byte.
                let before = (last / size * size).checked_sub(1);
                has_place(last) && before.is_none_or(has_place)
            }),
        }
    }

    /// Returns the runs of bytes `stream..stream + len`, with their offsets in the file. The pattern reaches so far.
    pub fn runs(&self, stream: u64, len: usize) -> impl Iterator<Item = Segment> + '_ {
        let displacement = self.displacement as isize;
        let runs = self.layout.runs(stream as usize, len);
        runs.map(move |run| Segment { offset: run.offset + displacement, ..run })
    }

    /// Mean length of the runs of an element in bytes.
    pub fn run_len(&self) -> usize {
        self.layout.size().checked_div(self.layout.segments().len()).unwrap_or(0)
    }

    /// Returns the first of the positions `from..to` whose byte lies at or behind `offset`; `to` if there is none. A position
    /// is `unit` bytes of the stream.
    pub fn find(&self, offset: u64, from: u64, to: u64, unit: u64) -> u64 {
        let lies_before = |position: u64| {
            let place = position.checked_mul(unit).and_then(|stream| self.byte_offset(stream));
            place.is_some_and(|place| (place as u64) < offset)
        };
        let (mut known, mut end) = (from, to);
        while known < end {
            let middle = known + (end - known) / 2;
            if lies_before(middle) { known = middle + 1 } else { end = middle }
        }
        known
    }

    /// Length of [`Pattern::encode`] in bytes.
    pub fn encoded_len(&self) -> usize {
        let segments = self.layout.segments();
        8 * segments.regular().map_or(3 + 2 * segments.len(), |_| 7)
    }

    /// Describes the pattern for another process.
    pub fn encode(&self) -> Vec<u8> {
        let segments = self.layout.segments();
        let mut words = vec![self.displacement, self.layout.extent() as i64];
        match segments.regular() {
            Some((first, stride, count)) => {
                words.extend([REGULAR, first.offset as i64, first.len as i64]);
                words.extend([stride as i64, count as i64]);
            }
            None => {
                words.push(LISTED);
                words.extend(segments.iter().flat_map(|one| [one.offset as i64, one.len as i64]));
            }
        }
        words.into_iter().flat_map(i64::to_le_bytes).collect()
    }

    /// Returns the pattern that another process has described; none if it is no pattern.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<i64> = words.iter().map(|word| i64::from_le_bytes(*word)).collect();
        let [displacement, extent, form, segments @ ..] = words.as_slice() else { return None };
        let segment = |offset: i64, len: i64| {
            let (offset, len) = (isize::try_from(offset).ok()?, usize::try_from(len).ok()?);
            (len > 0).then_some(Segment { offset, len })
        };
        let mut made = Segments::new();
        match (*form, segments) {
            (REGULAR, [_, _, _, 0]) => {}
            (REGULAR, &[offset, len, stride, count]) => {
                let (stride, count) = (isize::try_from(stride).ok()?, usize::try_from(count).ok()?);
                let first = segment(offset, len)?;
                let span = stride.checked_mul(isize::try_from(count).ok()?)?;
                first.offset.checked_add(span)?.checked_add_unsigned(first.len)?;
                first.len.checked_mul(count)?;
                made.push_run(first, stride, count, 0)?;
            }
            (LISTED, listed) => {
                let (pairs, []) = listed.as_chunks::<2>() else { return None };
                let mut bytes: usize = 0;
                for &[offset, len] in pairs {
                    let one = segment(offset, len)?;
                    bytes = bytes.checked_add(one.len)?;
                    one.offset.checked_add_unsigned(one.len)?;
                    made.push(one, usize::MAX)?;
                }
            }
            _ => return None,
        }
        let layout = Arc::new(Layout::of(made, isize::try_from(*extent).ok()?)?);
        Self::new(*displacement, &layout).filter(|_| rest.is_empty())
    }
}

/// True if no segment of an element lies before the one before, and no element before the last one.
pub(crate) fn is_nondecreasing(layout: &Layout) -> bool {
    let goes_on = layout.extent() >= 0 || layout.size() == 0;
    goes_on && follows(layout, |before, after| before.offset <= after.offset)
}

/// True if each byte of an element lies behind the one before.
pub(crate) fn is_ascending(layout: &Layout) -> bool {
    follows(layout, |before, after| {
        before.offset.checked_add_unsigned(before.len) <= Some(after.offset)
    })
}

/// True if this is so for each segment of an element and the one after it.
fn follows(layout: &Layout, is_so: impl Fn(Segment, Segment) -> bool) -> bool {
    let segments = layout.segments();
    // Where all distances are equal, the first one tells.
    let count = segments.regular().map_or(segments.len(), |(_, _, count)| count.min(2));
    let each = segments.iter().take(count);
    each.clone().zip(each.skip(1)).all(|(before, after)| is_so(before, after))
}

/// Form of a description with an equal distance between segments.
const REGULAR: i64 = 0;
/// Form of a description that lists segments.
const LISTED: i64 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: isize, len: usize) -> Segment {
        Segment { offset, len }
    }

    #[test]
    fn a_pattern_comes_back_from_its_description() {
        let layouts = [
            Layout::new([], 0),
            Layout::new([at(0, 4)], 4),
            Layout::new([at(2, 4)], 40),
            Layout::new([at(0, 3), at(5, 3), at(10, 3)], 30),
            Layout::new([at(0, 3), at(5, 3), at(11, 3)], 30),
        ];
        for layout in layouts {
            let pattern = Pattern::new(7, &Arc::new(layout)).unwrap();
            let again = Pattern::decode(&pattern.encode()).unwrap();
            assert_eq!((again.displacement, &again.layout), (7, &pattern.layout));
            assert_eq!(pattern.encode().len(), pattern.encoded_len());
        }
    }

    #[test]
    fn a_byte_is_found_by_its_offset() {
        let layout = Layout::new([at(0, 3), at(5, 3)], 10);
        let pattern = Pattern::new(100, &Arc::new(layout)).unwrap();
        for (offset, expected) in
            [(0, 2), (100, 2), (103, 3), (105, 3), (106, 4), (110, 6), (900, 9)]
        {
            assert_eq!(pattern.find(offset, 2, 9, 1), expected, "{offset}");
        }
    }

    proptest! {
        #[test]
        fn descriptions_of_strangers_cause_no_panic(
            words in proptest::collection::vec(
                prop_oneof![Just(0), Just(1), Just(i64::MAX), Just(i64::MIN), -9..9i64, any::<i64>()], 0..12,
            ),
        ) {
            let bytes: Vec<u8> = words.into_iter().flat_map(i64::to_le_bytes).collect();
            if let Some(pattern) = Pattern::decode(&bytes) {
                let found = pattern.find(50, 0, 1000, 1);
                prop_assert!(found <= 1000);
                if pattern.reaches(0, 100) {
                    let runs: Vec<Segment> = pattern.runs(0, 100).collect();
                    prop_assert_eq!(runs.iter().map(|run| run.len).sum::<usize>(), 100);
                    prop_assert!(runs.iter().all(|run| run.offset >= 0));
                }
            }
        }
    }
}
