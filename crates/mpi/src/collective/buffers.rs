//! Where the spans of schedules lie in memory, and how what lies there is combined.

use datatype::{Builtin, Datatype, Op, Predefined};
use memory::Region;
use plan::{Buffer, Span};

/// How a schedule's spans lie in memory.
#[derive(Debug)]
pub(super) enum Memory {
    /// Units are bytes of packed streams.
    Bytes { input: Region, output: Region },
    /// Units are elements.
    Elements(Elements),
}

/// The memory of a schedule whose units are elements. The regions are contiguous, from the lowest byte
/// of the elements' data to the highest ([`Datatype::reach`]); the elements' extent may be less than
/// what each takes, or negative.
#[derive(Debug)]
pub struct Elements {
    /// What the caller hands in; empty in place.
    pub input: Region,
    /// What the caller gets.
    pub output: Region,
    /// The elements' type.
    pub datatype: Datatype,
    /// Its handle, for functions of the application.
    pub handle: u64,
    /// How elements combine.
    pub op: Op,
}

impl Memory {
    /// The memory of a temporary of `units` units.
    pub fn temporary(&self, units: u64) -> Region {
        match self {
            Self::Bytes { .. } => Region::scratch(units as usize),
            Self::Elements(elements) => elements.temporary(units),
        }
    }

    /// The stream of a span's bytes.
    #[inline]
    pub fn stream(&self, span: Span, temporaries: &[Region]) -> Region {
        match self {
            Self::Bytes { input, output } => {
                let buffer = match span.buffer {
                    Buffer::Input => input,
                    Buffer::Output => output,
                    Buffer::Temporary(index) => &temporaries[index as usize],
                };
                buffer.slice(span.start as usize, span.len as usize)
            }
            Self::Elements(elements) => elements.stream(span, temporaries),
        }
    }

    /// Bytes of a unit.
    #[inline]
    pub fn unit(&self) -> usize {
        match self {
            Self::Bytes { .. } => 1,
            Self::Elements(elements) => elements.datatype.size(),
        }
    }

    /// Combines two spans.
    pub fn reduce(&self, input: Span, inout: Span, temporaries: &[Region]) {
        match self {
            Self::Bytes { .. } => unreachable!("schedules that move bytes reduce nothing"),
            Self::Elements(elements) => elements.reduce(input, inout, temporaries),
        }
    }

    /// Operation and type of elements whose stream is as they lie in memory, if the operation is the standard's.
    pub fn packed(&self) -> Option<(Predefined, Builtin)> {
        match self {
            Self::Bytes { .. } => None,
            Self::Elements(elements) => elements.packed(),
        }
    }

    /// Combines the stream of elements of another process with a span.
    pub fn combine(&self, stream: &Region, inout: Span, temporaries: &[Region]) {
        match self {
            Self::Bytes { .. } => unreachable!("schedules that move bytes reduce nothing"),
            Self::Elements(elements) => elements.combine(stream, inout, temporaries),
        }
    }

    /// Whether a step on so many units takes so short a time that others may wait for the core meanwhile. A
    /// function of the application may take any.
    #[inline]
    pub fn is_brief(&self, units: u64) -> bool {
        let is_foreign = matches!(self, Self::Elements(Elements { op: Op::User { .. }, .. }));
        !is_foreign && units * self.unit() as u64 <= BRIEF_BYTES
    }
}

impl Elements {
    /// Gives the input `units` elements of its own.
    #[must_use]
    pub fn with_own_input(self, units: u64) -> Self {
        Self { input: self.temporary(units), ..self }
    }

    fn buffer<'a>(&'a self, buffer: Buffer, temporaries: &'a [Region]) -> &'a Region {
        match buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Temporary(index) => &temporaries[index as usize],
        }
    }

    /// Where element `index` has its address, in bytes from the beginning of a buffer of `len` bytes.
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

    /// The first address the application chose, whose alignment suits its datatype.
    fn model(&self) -> usize {
        let chosen = if self.input.is_empty() { &self.output } else { &self.input };
        chosen.as_span().map_or(0, |span| span.address as usize)
    }

    fn temporary(&self, units: u64) -> Region {
        let (_, len) = self.reach(units);
        let memory = Region::scratch(len + ALIGNMENT);
        let address = memory.as_span().map_or(0, |span| span.address as usize);
        memory.slice(self.model().wrapping_sub(address) % ALIGNMENT, len)
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

    fn packed(&self) -> Option<(Predefined, Builtin)> {
        let Op::Predefined(op) = self.op else { return None };
        let is_dense = self.datatype.extent() == (0, self.datatype.size() as isize);
        self.datatype.as_builtin().filter(|_| is_dense).map(|builtin| (op, builtin))
    }

    /// `inout = stream op inout`. Elements that are not as their stream is are unpacked first, and so is what
    /// functions of the application get: it is not theirs to write on.
    fn combine(&self, stream: &Region, inout: Span, temporaries: &[Region]) {
        if self.packed().is_none() {
            let input = Buffer::Temporary(temporaries.len() as u32);
            let input = Span { buffer: input, start: 0, len: inout.len };
            let mut all = temporaries.to_vec();
            all.push(self.temporary(inout.len));
            self.stream(input, &all).copy_from(stream);
            self.reduce(input, inout, &all);
        } else if inout.len > 0 {
            let to = self.whole(inout, temporaries);
            self.op.apply(stream, &to, inout.len as usize, &self.datatype, self.handle);
        }
    }
}

/// What is copied or combined under the core's lock at most: a microsecond's work.
const BRIEF_BYTES: u64 = 4 << 10;

/// Temporaries are aligned as the application's memory is, as far as vector instructions care.
const ALIGNMENT: usize = 64;
