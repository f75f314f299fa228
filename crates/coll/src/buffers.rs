//! Memory of a schedule's spans, and reductions on it.

use std::borrow::Cow;

use datatype::{Datatype, Op, Reducer};
use memory::Region;
use plan::{Buffer, Span};

/// Memory layout of a schedule's spans.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Units are as they travel, one behind the other.
    Packed(Packed),
    /// Units are elements of any other kind.
    Elements(Elements),
}

/// Two packed streams: of bytes, or of elements that an operation of the standard's combines.
#[derive(Debug)]
pub(crate) struct Packed {
    input: Region,
    output: Region,
    /// Bytes of a unit.
    unit: usize,
    reducer: Option<Reducer>,
}

/// The memory of a schedule whose units are elements. The regions are contiguous, from the lowest byte
/// of the elements' data to the highest ([`Datatype::reach`]); the elements' extent may be less than
/// what each takes, or negative.
#[derive(Debug)]
pub struct Elements {
    /// The caller's send buffer; empty in place.
    pub input: Region,
    /// The caller's receive buffer.
    pub output: Region,
    /// The elements' type.
    pub datatype: Cow<'static, Datatype>,
    /// Its handle, for functions of the application.
    pub handle: u64,
    /// The reduction operation.
    pub op: Op,
}

impl Memory {
    /// Units are bytes of packed streams.
    #[inline]
    pub fn bytes(input: Region, output: Region) -> Self {
        Self::Packed(Packed { input, output, unit: 1, reducer: None })
    }

    /// Units are elements.
    #[inline]
    pub fn elements(elements: Elements) -> Self {
        let Some(reducer) = elements.reducer() else { return Self::Elements(elements) };
        let Elements { input, output, datatype, .. } = elements;
        Self::Packed(Packed { input, output, unit: datatype.size(), reducer: Some(reducer) })
    }

    /// The memory of a temporary of `units` units; none if there is no memory.
    pub fn temporary(&self, units: u64) -> Option<Region> {
        match self {
            Self::Packed(packed) => packed.temporary(units),
            Self::Elements(elements) => elements.temporary(units),
        }
    }

    /// The stream of a span's bytes.
    #[inline]
    pub fn stream(&self, span: Span, temporaries: &[Region]) -> Region {
        match self {
            Self::Packed(packed) => packed.stream(span, temporaries),
            Self::Elements(elements) => elements.stream(span, temporaries),
        }
    }

    /// Bytes of a unit.
    #[inline]
    pub fn unit(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.unit,
            Self::Elements(elements) => elements.datatype.size(),
        }
    }

    /// Combines two spans.
    pub fn reduce(&self, input: Span, inout: Span, temporaries: &[Region]) {
        match self {
            Self::Packed(packed) => {
                packed.combine(&packed.stream(input, temporaries), inout, temporaries);
            }
            Self::Elements(elements) => elements.reduce(input, inout, temporaries),
        }
    }

    /// Reduction of packed units.
    #[inline]
    pub fn reducer(&self) -> Option<Reducer> {
        match self {
            Self::Packed(packed) => packed.reducer,
            Self::Elements(_) => None,
        }
    }

    /// Combines the stream of elements of another process with a span.
    pub fn combine(&self, stream: &Region, inout: Span, temporaries: &[Region]) {
        match self {
            Self::Packed(packed) => packed.combine(stream, inout, temporaries),
            Self::Elements(elements) => elements.combine(stream, inout, temporaries),
        }
    }

    /// True if a step on `units` units is short enough to run under the worker's lock. A reduction function of the
    /// application may take any time.
    #[inline]
    pub fn is_brief(&self, units: u64) -> bool {
        let is_foreign = matches!(self, Self::Elements(Elements { op: Op::User { .. }, .. }));
        !is_foreign && units * self.unit() as u64 <= BRIEF_BYTES
    }
}

impl Packed {
    #[inline]
    fn stream(&self, span: Span, temporaries: &[Region]) -> Region {
        let buffer = match span.buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Temporary(index) => &temporaries[index as usize],
        };
        buffer.slice(span.start as usize * self.unit, span.len as usize * self.unit)
    }

    fn temporary(&self, units: u64) -> Option<Region> {
        let len = (units as usize).checked_mul(self.unit)?;
        match self.reducer {
            Some(_) => aligned(len, [&self.input, &self.output]),
            None => Region::scratch(len),
        }
    }

    fn combine(&self, stream: &Region, inout: Span, temporaries: &[Region]) {
        let Some(reducer) = self.reducer else {
            unreachable!("schedules that move bytes reduce nothing")
        };
        reducer.combine_regions(stream, &self.stream(inout, temporaries));
    }
}

/// Memory for so many bytes that is aligned as the first address is that the application has chosen; none if there is
/// none.
fn aligned(len: usize, [input, output]: [&Region; 2]) -> Option<Region> {
    let address = |region: &Region| region.as_span().map_or(0, |span| span.address as usize);
    let chosen = address(if input.is_empty() { output } else { input });
    let memory = Region::scratch(len.checked_add(ALIGNMENT)?)?;
    let start = chosen.wrapping_sub(address(&memory)) % ALIGNMENT;
    Some(memory.slice(start, len))
}

impl Elements {
    /// Gives the input `units` elements of its own; none if there is no memory.
    #[must_use]
    pub fn with_own_input(self, units: u64) -> Option<Self> {
        Some(Self { input: self.temporary(units)?, ..self })
    }

    fn buffer<'a>(&'a self, buffer: Buffer, temporaries: &'a [Region]) -> &'a Region {
        match buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Temporary(index) => &temporaries[index as usize],
        }
    }

    /// Offset of element `index` in bytes from the beginning of a buffer of `len` bytes.
    fn place(&self, len: usize, index: u64) -> isize {
        let (lower, true_extent) = self.datatype.true_extent();
        let extent = self.datatype.extent().1;
        // With a negative extent the last element is the lowest.
        let first = if extent < 0 { len as isize - true_extent - lower } else { -lower };
        first + index as isize * extent
    }

    fn reach(&self, count: u64) -> (isize, usize) {
        let reach = self.datatype.reach(count as usize);
        reach.unwrap_or_else(|| unreachable!("the caller's buffer of as many elements was checked"))
    }

    /// The memory of a span, gaps included: what reduction functions are given.
    fn whole(&self, span: Span, temporaries: &[Region]) -> Region {
        let buffer = self.buffer(span.buffer, temporaries);
        let (lowest, len) = self.reach(span.len);
        buffer.slice((self.place(buffer.len(), span.start) + lowest) as usize, len)
    }

    fn temporary(&self, units: u64) -> Option<Region> {
        aligned(self.reach(units).1, [&self.input, &self.output])
    }

    fn stream(&self, span: Span, temporaries: &[Region]) -> Region {
        let buffer = self.buffer(span.buffer, temporaries);
        let start = self.place(buffer.len(), span.start);
        let elements = buffer.typed(start, span.len as usize, self.datatype.layout());
        elements.unwrap_or_else(|| unreachable!("{span:?} of a schedule lies outside its buffer"))
    }

    fn reduce(&self, input: Span, inout: Span, temporaries: &[Region]) {
        if input.len == 0 || self.datatype.size() == 0 {
            return;
        }
        let (from, to) = (self.whole(input, temporaries), self.whole(inout, temporaries));
        self.op.apply(&from, &to, input.len as usize, &self.datatype, self.handle);
    }

    /// Returns the reduction kernel, if the operation is predefined and the elements are contiguous.
    fn reducer(&self) -> Option<Reducer> {
        let Op::Predefined(op) = self.op else { return None };
        let is_dense = self.datatype.extent() == (0, self.datatype.size() as isize);
        let builtin = self.datatype.as_builtin().filter(|_| is_dense);
        builtin.map(|builtin| op.reducer(builtin))
    }

    /// `inout = stream op inout`. Elements that are not as their stream is are unpacked first, piece by piece, and so is
    /// what functions of the application get: it is not theirs to write on.
    fn combine(&self, stream: &Region, inout: Span, temporaries: &[Region]) {
        let (size, extent) = (self.datatype.size(), self.datatype.extent().1.unsigned_abs());
        let piece = (UNPACKED_BYTES / extent.max(1) as u64).clamp(1, inout.len.max(1));
        let mut all = temporaries.to_vec();
        all.push(self.temporary(piece).expect("memory for one piece"));
        for start in (0..inout.len).step_by(piece as usize) {
            let part = inout.part(start, piece.min(inout.len - start));
            let (buffer, at) = (Buffer::Temporary(temporaries.len() as u32), start as usize * size);
            let input = Span { buffer, start: 0, len: part.len };
            self.stream(input, &all).copy_from(&stream.slice(at, part.len as usize * size));
            self.reduce(input, part, &all);
        }
    }
}

/// Maximum bytes copied or reduced under the worker's lock: about 1 µs of work.
const BRIEF_BYTES: u64 = 4 << 10;

/// Memory of the elements that are unpacked at a time, in bytes.
const UNPACKED_BYTES: u64 = 64 << 10;

/// Temporaries are aligned as the application's memory is, as far as vector instructions care.
const ALIGNMENT: usize = 64;
