//! The bytes of one element of a datatype.

/// A run of contiguous bytes inside one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset from the element's address, in bytes; may be negative.
    pub offset: isize,
    /// Length in bytes, never zero.
    pub len: usize,
}

/// The type map of one element, flattened to byte segments in packed-stream order.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    segments: Box<[Segment]>,
    /// `starts[i]` = sum of the lengths of the segments before `i`.
    starts: Box<[usize]>,
    size: usize,
    extent: isize,
    /// How long each segment is, if all are alike.
    segment_len: Option<usize>,
}

impl Layout {
    /// A layout from segments in type-map order; adjacent ones are merged, empty ones dropped.
    /// `extent` is the distance in bytes between consecutive elements.
    pub fn new(segments: impl IntoIterator<Item = Segment>, extent: isize) -> Self {
        let mut merged: Vec<Segment> = Vec::new();
        for segment in segments.into_iter().filter(|segment| segment.len > 0) {
            match merged.last_mut() {
                Some(last) if last.offset + last.len as isize == segment.offset => {
                    last.len += segment.len;
                }
                _ => merged.push(segment),
            }
        }
        let mut size = 0;
        let mut starts = Vec::with_capacity(merged.len());
        for segment in &merged {
            starts.push(size);
            size += segment.len;
        }
        let first = merged.first().map(|segment| segment.len);
        let segment_len = first.filter(|&len| merged.iter().all(|segment| segment.len == len));
        Self { segments: merged.into(), starts: starts.into(), size, extent, segment_len }
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

    /// The segments of one element, in packed-stream order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// How long each segment is, if all are alike.
    #[inline]
    pub(crate) fn segment_len(&self) -> Option<usize> {
        self.segment_len
    }

    /// Whether consecutive elements form one run of bytes beginning at the first one's address.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        match &*self.segments {
            [] => true,
            [only] => only.offset == 0 && only.len as isize == self.extent,
            _ => false,
        }
    }

    /// The segment that holds byte `offset` of the element's stream (`offset < size`).
    pub(crate) fn find(&self, offset: usize) -> (usize, usize) {
        debug_assert!(offset < self.size);
        let index = self.starts.partition_point(|&start| start <= offset) - 1;
        (index, offset - self.starts[index])
    }
}
