//! Bytes of one element of a datatype.

/// A run of contiguous bytes inside one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset from the element's address, in bytes; may be negative.
    pub offset: isize,
    /// Length in bytes, never zero.
    pub len: usize,
}

/// Runs of contiguous bytes, in packed-stream order; adjacent ones are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments(Form);

/// Representation of segments. Those of vectors and of columns are many, and need no list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All of one length at one distance.
    Regular(Regular),
    Listed(Vec<Segment>),
}

/// Equal segments, each of which begins `stride` bytes after the one before; 0 for fewer than two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Regular {
    pub first: Segment,
    pub stride: isize,
    pub count: usize,
}

impl Regular {
    const EMPTY: Self = Self { first: Segment { offset: 0, len: 0 }, stride: 0, count: 0 };

    /// Returns the segments from `index` on.
    #[inline(always)]
    pub fn from(self, index: usize) -> impl Iterator<Item = Segment> + Clone {
        let Self { first: Segment { offset, len }, stride, count } = self;
        let at = move |index: usize| offset.wrapping_add(stride.wrapping_mul(index as isize));
        (index..count).map(move |index| Segment { offset: at(index), len })
    }

    fn last(self) -> Option<Segment> {
        self.from(self.count.checked_sub(1)?).next()
    }

    /// Appends one more segment, if it continues at the same distance.
    fn and(self, segment: Segment) -> Option<Self> {
        let Self { first, stride, count } = self;
        let Some(last) = self.last() else {
            return Some(Self { first: segment, stride: 0, count: 1 });
        };
        let distance = segment.offset.checked_sub(last.offset)?;
        let goes_on = segment.len == first.len && (count == 1 || distance == stride);
        goes_on.then_some(Self { first, stride: distance, count: count + 1 })
    }
}

impl Segment {
    /// True if `next` begins where this one ends.
    fn touches(self, next: Self) -> bool {
        self.offset.wrapping_add(self.len as isize) == next.offset
    }
}

impl Segments {
    /// Makes an empty sequence.
    pub const fn new() -> Self {
        Self(Form::Regular(Regular::EMPTY))
    }

    /// Number of segments.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Regular(regular) => regular.count,
            Form::Listed(listed) => listed.len(),
        }
    }

    /// True if there are no segments.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the segments in packed-stream order.
    pub fn iter(&self) -> impl Iterator<Item = Segment> + Clone + '_ {
        let (regular, listed) = match &self.0 {
            Form::Regular(regular) => (*regular, &[][..]),
            Form::Listed(listed) => (Regular::EMPTY, &listed[..]),
        };
        regular.from(0).chain(listed.iter().copied())
    }

    /// Copies the segments; none if there is no memory.
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self(match &self.0 {
            Form::Regular(regular) => Form::Regular(*regular),
            Form::Listed(listed) => Form::Listed(collected(listed.iter().copied(), listed.len())?),
        }))
    }

    /// Returns the first segment, the distance between segments and their number, if that is equal for all.
    pub fn regular(&self) -> Option<(Segment, isize, usize)> {
        match &self.0 {
            Form::Regular(Regular { first, stride, count }) => Some((*first, *stride, *count)),
            Form::Listed(_) => None,
        }
    }

    /// Appends a segment, which may be empty; none if that took a list of more than `limit`, or more memory than there is.
    #[inline]
    pub fn push(&mut self, segment: Segment, limit: usize) -> Option<()> {
        if segment.len == 0 {
            return Some(());
        }
        match &mut self.0 {
            Form::Regular(_) => return self.push_to_regular(segment, limit),
            Form::Listed(listed) => {
                let has_room = listed.len() < limit;
                match listed.last_mut() {
                    Some(last) if last.touches(segment) => last.len += segment.len,
                    _ if has_room => {
                        listed.try_reserve(1).ok()?;
                        listed.push(segment);
                    }
                    _ => return None,
                }
            }
        }
        Some(())
    }

    fn push_to_regular(&mut self, segment: Segment, limit: usize) -> Option<()> {
        let Form::Regular(regular) = &mut self.0 else { return None };
        let is_apart = !regular.last().is_some_and(|last| last.touches(segment));
        if let Some(more) = regular.and(segment).filter(|_| is_apart) {
            *regular = more;
        } else if regular.count == 1 && !is_apart {
            regular.first.len += segment.len;
        } else if regular.count < limit {
            self.0 = Form::Listed(collected(regular.from(0), regular.count)?);
            return self.push(segment, limit);
        } else {
            return None;
        }
        Some(())
    }

    /// Appends equal segments, each `stride` bytes after the one before; all must lie within the
    /// address space. None in the cases of [`Segments::push`].
    pub fn push_run(
        &mut self,
        first: Segment,
        stride: isize,
        count: usize,
        limit: usize,
    ) -> Option<()> {
        if first.len == 0 || count == 0 {
            return Some(());
        }
        if stride == first.len as isize {
            return self.push(Segment { len: first.len.checked_mul(count)?, ..first }, limit);
        }
        let run = Regular { first, stride: if count > 1 { stride } else { 0 }, count };
        match &mut self.0 {
            Form::Regular(known) if known.count == 0 => *known = run,
            Form::Regular(known)
                if count > 1 && known.and(first).is_some_and(|more| more.stride == stride) =>
            {
                *known = Regular { stride, count: known.count + count, ..*known };
            }
            _ => {
                if self.len().checked_add(count)? > limit {
                    return None;
                }
                return run.from(0).try_for_each(|one| self.push(one, limit));
            }
        }
        Some(())
    }

    /// Appends the segments of elements of a type. The first element lies at `origin`, and each
    /// `extent` bytes after the one before. None in the cases of [`Segments::push`].
    pub fn push_elements(
        &mut self,
        of: &Self,
        origin: isize,
        extent: isize,
        count: usize,
        limit: usize,
    ) -> Option<()> {
        let moved =
            |one: Segment, by: isize| Segment { offset: one.offset.wrapping_add(by), ..one };
        if let Form::Regular(regular) = of.0 {
            let Regular { first, stride, count: each } = regular;
            let first = moved(first, origin);
            if each <= 1 {
                return self.push_run(first, extent, each * count, limit);
            }
            let whole = stride.checked_mul(isize::try_from(each).ok()?);
            if count == 1 || whole == Some(extent) {
                return self.push_run(first, stride, each.checked_mul(count)?, limit);
            }
        }
        if self.len().checked_add(of.len().checked_mul(count)?)? > limit {
            return None;
        }
        (0..count as isize).try_for_each(|index| {
            let origin = origin.wrapping_add(extent.wrapping_mul(index));
            of.iter().try_for_each(|one| self.push(moved(one, origin), limit))
        })
    }

    /// Drops the list if the segments are regular.
    fn settle(&mut self) {
        let Form::Listed(listed) = &self.0 else { return };
        let add = |regular: Regular, one: &Segment| regular.and(*one);
        if let Some(regular) = listed.iter().try_fold(Regular::EMPTY, add) {
            self.0 = Form::Regular(regular);
        }
    }
}

/// Collects so many values; none if there is no memory for them.
fn collected<T>(values: impl Iterator<Item = T>, count: usize) -> Option<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.extend(values);
    Some(all)
}

impl Default for Segments {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Segment> for Segments {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        let mut made = Self::new();
        for segment in segments {
            made.push(segment, usize::MAX).expect("no limit");
        }
        made
    }
}

/// The type map of one element, flattened to byte segments in packed-stream order.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    segments: Segments,
    /// Sums of lengths, if segments are listed: `starts[i]` = sum of the lengths of the segments
    /// before `i`.
    starts: Box<[usize]>,
    size: usize,
    extent: isize,
    /// Length of each segment, if all are equal.
    segment_len: Option<usize>,
    is_contiguous: bool,
}

impl Layout {
    /// Makes a layout from segments in type-map order; adjacent ones are merged, empty ones
    /// dropped. `extent` is the distance in bytes between consecutive elements.
    pub fn new(segments: impl IntoIterator<Item = Segment>, extent: isize) -> Self {
        Self::of(segments.into_iter().collect(), extent).expect("memory for few segments")
    }

    /// Makes a layout from merged segments; none if there is no memory for it.
    pub fn of(mut segments: Segments, extent: isize) -> Option<Self> {
        segments.settle();
        let (starts, size, segment_len) = match &segments.0 {
            Form::Regular(Regular { first, count, .. }) => {
                (Box::default(), first.len * count, (*count > 0).then_some(first.len))
            }
            Form::Listed(listed) => {
                let mut size = 0;
                let start = |one: &Segment| {
                    size += one.len;
                    size - one.len
                };
                let starts = collected(listed.iter().map(start), listed.len())?.into();
                let first = listed.first().map(|one| one.len);
                let is_alike = |len: &usize| listed.iter().all(|one| one.len == *len);
                (starts, size, first.filter(is_alike))
            }
        };
        let is_contiguous = match segments.0 {
            Form::Regular(Regular { count: 0, .. }) => true,
            Form::Regular(Regular { first, count: 1, .. }) => {
                first.offset == 0 && first.len as isize == extent
            }
            Form::Regular(_) | Form::Listed(_) => false,
        };
        Some(Self { segments, starts, size, extent, segment_len, is_contiguous })
    }

    /// Bytes of data in one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Distance in bytes between consecutive elements.
    pub fn extent(&self) -> isize {
        self.extent
    }

    /// Returns the offset of byte `offset` of the stream of elements, an extent apart. None if that
    /// overflows, or the elements have no data.
    pub fn place_of(&self, offset: usize) -> Option<isize> {
        let element = isize::try_from(offset.checked_div(self.size)?).ok()?;
        let (index, skip) = self.find(offset % self.size);
        let inside = self.segment(index).offset.checked_add_unsigned(skip)?;
        self.extent.checked_mul(element)?.checked_add(inside)
    }

    /// True if each byte of the stream of elements lies behind the one before.
    pub fn is_ascending(&self) -> bool {
        self.follows(|before, after| {
            before.offset.checked_add_unsigned(before.len) <= Some(after.offset)
        })
    }

    /// True if this is so for each segment and the one after it, also in the next element.
    fn follows(&self, is_so: impl Fn(Segment, Segment) -> bool) -> bool {
        let count = self.segments.len();
        if count == 0 {
            return true;
        }
        let again =
            Segment { offset: self.segment(0).offset.wrapping_add(self.extent), ..self.segment(0) };
        let inside = match &self.segments.0 {
            Form::Regular(_) if count == 1 => true,
            Form::Regular(_) => is_so(self.segment(0), self.segment(1)),
            Form::Listed(listed) => listed.windows(2).all(|pair| is_so(pair[0], pair[1])),
        };
        inside && is_so(self.segment(count - 1), again)
    }

    /// Segments of one element.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Returns segments between which all others lie.
    pub fn outermost(&self) -> impl Iterator<Item = Segment> + '_ {
        let (ends, listed) = match &self.segments.0 {
            Form::Regular(regular) => ([regular.from(0).next(), regular.last()], &[][..]),
            Form::Listed(listed) => ([None, None], &listed[..]),
        };
        ends.into_iter().flatten().chain(listed.iter().copied())
    }

    #[inline]
    pub(crate) fn form(&self) -> &Form {
        &self.segments.0
    }

    /// Returns the only segment, if there is just one.
    #[inline]
    pub(crate) fn only(&self) -> Option<Segment> {
        match self.segments.0 {
            Form::Regular(Regular { first, count: 1, .. }) => Some(first),
            Form::Regular(_) | Form::Listed(_) => None,
        }
    }

    /// Returns the length of each segment, if all are equal.
    #[inline]
    pub(crate) fn segment_len(&self) -> Option<usize> {
        self.segment_len
    }

    /// True if consecutive elements form one run of bytes beginning at the first one's address.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Returns one of the segments.
    pub(crate) fn segment(&self, index: usize) -> Segment {
        match &self.segments.0 {
            Form::Regular(regular) => {
                let origin = regular.stride.wrapping_mul(index as isize);
                let offset = regular.first.offset.wrapping_add(origin);
                Segment { offset, ..regular.first }
            }
            Form::Listed(listed) => listed[index],
        }
    }

    /// Returns the segment that holds byte `offset` of the element's stream (`offset < size`).
    pub(crate) fn find(&self, offset: usize) -> (usize, usize) {
        debug_assert!(offset < self.size);
        match &self.segments.0 {
            Form::Regular(Regular { first, .. }) => (offset / first.len, offset % first.len),
            Form::Listed(_) => {
                let index = self.starts.partition_point(|&start| start <= offset) - 1;
                (index, offset - self.starts[index])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: isize, len: usize) -> Segment {
        Segment { offset, len }
    }

    fn is_listed(segments: &Segments) -> bool {
        matches!(segments.0, Form::Listed(_))
    }

    #[test]
    fn runs_equal_their_segments_pushed_one_by_one() {
        for (first, stride, count) in [
            (at(3, 2), 5, 4),
            (at(0, 4), 4, 3),
            (at(8, 1), -2, 3),
            (at(0, 2), 0, 3),
            (at(1, 1), 9, 1),
        ] {
            let mut run = Segments::new();
            assert!(run.push_run(first, stride, count, 0).is_some(), "it needs no list");
            let offsets = (0..count as isize).map(|index| first.offset + stride * index);
            let each: Segments = offsets.map(|offset| at(offset, first.len)).collect();
            assert_eq!(run, each);
            assert!(!is_listed(&run));
        }
    }

    #[test]
    fn regular_segments_need_no_list_and_others_one_within_the_limit() {
        let mut segments = Segments::from_iter([at(0, 2), at(10, 2)]);
        assert!(segments.push_run(at(20, 2), 10, 1 << 40, 0).is_some());
        assert_eq!(segments.len(), 2 + (1 << 40));
        assert!(segments.push_run(at(1, 2), 10, 1, 100).is_none(), "too long a list");
        assert!(segments.push(at(1, 2), 100).is_none(), "that as well");
        assert!(segments.push(at(20, 2), 100).is_none() && segments.len() == 2 + (1 << 40));
        let twice = {
            let mut twice = Segments::new();
            let columns = Segments::from_iter([at(0, 1), at(4, 1)]);
            assert!(twice.push_elements(&columns, 0, 8, 1 << 40, 0).is_some());
            twice
        };
        assert_eq!((twice.len(), twice.iter().nth(3)), (2 << 40, Some(at(12, 1))));
    }

    #[test]
    fn adjacent_segments_are_merged_and_regular_results_need_no_list() {
        let pairs = [at(0, 4), at(4, 4), at(16, 4), at(20, 4), at(32, 4), at(36, 4)];
        let layout = Layout::new(pairs, 48);
        assert_eq!(layout, Layout::new([at(0, 8), at(16, 8), at(32, 8)], 48));
        assert!(!is_listed(layout.segments()));
        assert_eq!((layout.size(), layout.segment_len(), layout.find(17)), (24, Some(8), (2, 1)));
        let uneven = Layout::new([at(0, 4), at(8, 4), at(16, 4), at(20, 1)], 24);
        assert!(is_listed(uneven.segments()));
        assert_eq!(uneven.segments().iter().last(), Some(at(16, 5)));
        assert_eq!((uneven.size(), uneven.segment_len(), uneven.find(9)), (13, None, (2, 1)));
        assert!(Layout::new([], 8).is_contiguous() && Layout::new([at(0, 8)], 8).is_contiguous());
        assert!(!Layout::new([at(0, 8)], 16).is_contiguous());
    }
}
