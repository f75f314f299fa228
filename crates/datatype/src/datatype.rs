//! A datatype: its type map's bounds, its flattened layout, and how it was built.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memory::{Layout, Segment, Segments};

use crate::builtin::{Builtin, Element};

/// Error in a constructor's argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} = {value}: {reason}")]
pub struct TypeError {
    /// Name of the argument in the standard.
    pub argument: &'static str,
    /// Value of the argument.
    pub value: String,
    /// Requirement that it violates.
    pub reason: &'static str,
    /// True if there is no memory to describe the type.
    pub is_out_of_memory: bool,
}

impl TypeError {
    pub(crate) fn new(argument: &'static str, value: impl ToString, reason: &'static str) -> Self {
        Self { argument, value: value.to_string(), reason, is_out_of_memory: false }
    }

    #[cold]
    pub(crate) fn no_memory(entries: usize) -> Self {
        let reason = "entries need more memory than there is";
        Self { is_out_of_memory: true, ..Self::new("datatype", entries, reason) }
    }
}

/// Constructor of a type (MPI-5.0 §5.1.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the standard's constructors")]
pub enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    F90Real,
    F90Complex,
    F90Integer,
    Resized,
}

/// Arguments of a type's constructor.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The constructor.
    pub combiner: Combiner,
    /// Integer arguments, in the standard's order, including the counts of large-count forms.
    pub integers: Vec<i64>,
    /// Displacements in bytes.
    pub addresses: Vec<i64>,
    /// Datatype arguments.
    pub datatypes: Vec<Datatype>,
}

/// Arguments of a type's constructor, by their C types.
#[derive(Clone, Debug)]
pub struct ListedContents {
    /// The constructor.
    pub combiner: Combiner,
    /// `int` arguments.
    pub integers: Vec<i64>,
    /// `MPI_Aint` arguments.
    pub addresses: Vec<i64>,
    /// `MPI_Count` arguments.
    pub counts: Vec<i64>,
    /// Datatype arguments.
    pub datatypes: Vec<Datatype>,
}

/// An MPI datatype. Clones are the same type.
#[derive(Clone, Debug)]
pub struct Datatype(Arc<DatatypeInner>);

#[derive(Debug)]
struct DatatypeInner {
    layout: Arc<Layout>,
    bounds: Bounds,
    /// Runs of equal basic elements in type-map order, with their numbers.
    elements: Arc<[(Element, u64)]>,
    builtin: Option<Builtin>,
    contents: Contents,
    committed: AtomicBool,
    /// True if a large-count constructor made it.
    large: AtomicBool,
    name: Mutex<Vec<u8>>,
}

/// Bounds of an element, in bytes from its address (MPI-5.0 §5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub lower: isize,
    pub upper: isize,
    /// True if the bounds are explicit markers; if not, the extent is a multiple of the alignment.
    pub marked: bool,
    /// Bounds of the data, if there is any.
    pub data: Option<Edges>,
    pub alignment: usize,
}

/// First byte, and the byte behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edges {
    pub lower: isize,
    pub upper: isize,
}

impl Edges {
    pub fn union(self, other: Self) -> Self {
        Self { lower: self.lower.min(other.lower), upper: self.upper.max(other.upper) }
    }
}

impl Bounds {
    /// Makes explicit bounds; `None` if they lie outside the address space.
    pub fn marked(data: Option<Edges>, markers: Edges, alignment: usize) -> Option<Self> {
        let Edges { lower, upper } = markers;
        upper.checked_sub(lower)?;
        Some(Self { lower, upper, marked: true, data, alignment })
    }

    /// Makes the bounds of elements with such a reach, rounded up to the alignment; `None` if they
    /// lie outside the address space.
    ///
    /// The reach includes the elements' own padding. MPI-5.0 §5.1.6 pads the data alone, which
    /// gives less if elements are not aligned. An array of them would then not hold the last one.
    pub fn padded(data: Option<Edges>, reach: Option<Edges>, alignment: usize) -> Option<Self> {
        let Edges { lower, upper } = reach.unwrap_or(Edges { lower: 0, upper: 0 });
        let rounded = (upper.checked_sub(lower)? as usize).checked_next_multiple_of(alignment)?;
        let upper = lower.checked_add_unsigned(rounded)?;
        upper.checked_sub(lower)?;
        Some(Self { lower, upper, marked: false, data, alignment })
    }

    /// Returns the start and end of an element; none for an element without data.
    pub fn edges(self) -> Option<Edges> {
        self.data.map(|_| Edges { lower: self.lower, upper: self.upper })
    }

    pub fn markers(self) -> Option<Edges> {
        self.marked.then_some(Edges { lower: self.lower, upper: self.upper })
    }
}

impl Datatype {
    /// Returns a predefined type.
    pub fn builtin(builtin: Builtin) -> Self {
        let shape = builtin.element().shape();
        let segments = shape.parts().map(|(offset, part)| Segment { offset, len: part.size() });
        let layout = Layout::new(segments, shape.extent);
        let upper = shape.parts().map(|(offset, part)| offset + part.size() as isize).max();
        let data = upper.map(|upper| Edges { lower: 0, upper });
        let bounds = Bounds {
            lower: 0,
            upper: shape.extent,
            marked: false,
            data,
            alignment: shape.alignment,
        };
        let mut elements = Vec::new();
        for (_, part) in shape.parts() {
            push_elements(&mut elements, part, 1);
        }
        let contents = Contents {
            combiner: Combiner::Named,
            integers: Vec::new(),
            addresses: Vec::new(),
            datatypes: Vec::new(),
        };
        let inner = DatatypeInner {
            layout: Arc::new(layout),
            bounds,
            elements: elements.into(),
            builtin: Some(builtin),
            contents,
            committed: AtomicBool::new(true),
            large: AtomicBool::new(false),
            name: Mutex::new(builtin.name().into()),
        };
        Self(Arc::new(inner))
    }

    /// Returns a committed copy that records its constructor as a Fortran kind.
    #[must_use]
    pub fn remembering(&self, combiner: Combiner, integers: Vec<i64>) -> Self {
        let contents =
            Contents { combiner, integers, addresses: Vec::new(), datatypes: Vec::new() };
        let inner = DatatypeInner {
            layout: Arc::clone(self.layout()),
            bounds: self.bounds(),
            elements: Arc::clone(&self.0.elements),
            builtin: self.0.builtin,
            contents,
            committed: AtomicBool::new(true),
            large: AtomicBool::new(false),
            name: Mutex::new(Vec::new()),
        };
        Self(Arc::new(inner))
    }

    /// Makes a type of the same data.
    pub(crate) fn alike(&self, contents: Contents) -> Self {
        let inner = DatatypeInner {
            layout: Arc::clone(self.layout()),
            bounds: self.bounds(),
            elements: Arc::clone(&self.0.elements),
            builtin: None,
            contents,
            committed: AtomicBool::new(false),
            large: AtomicBool::new(false),
            name: Mutex::new(Vec::new()),
        };
        Self(Arc::new(inner))
    }

    pub(crate) fn derived(
        layout: Arc<Layout>,
        bounds: Bounds,
        elements: Vec<(Element, u64)>,
        contents: Contents,
    ) -> Self {
        let inner = DatatypeInner {
            layout,
            bounds,
            elements: elements.into(),
            builtin: None,
            contents,
            committed: AtomicBool::new(false),
            large: AtomicBool::new(false),
            name: Mutex::new(Vec::new()),
        };
        Self(Arc::new(inner))
    }

    /// Bytes of data in one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.layout.size()
    }

    /// Returns the lower bound and extent in bytes.
    pub fn extent(&self) -> (isize, isize) {
        (self.0.bounds.lower, self.0.layout.extent())
    }

    /// Returns the lower bound and extent of the data itself, in bytes.
    pub fn true_extent(&self) -> (isize, isize) {
        let Edges { lower, upper } = self.0.bounds.data.unwrap_or(Edges { lower: 0, upper: 0 });
        (lower, upper - lower)
    }

    /// Returns the span of the data of `count` elements. It consists of the offset of the lowest
    /// byte from the first element's address, and the length to the end of the highest. None if it
    /// exceeds the address space.
    pub fn reach(&self, count: usize) -> Option<(isize, usize)> {
        let Some(Edges { lower, upper }) = self.0.bounds.data.filter(|_| count > 0) else {
            return Some((0, 0));
        };
        let last = self.extent().1.checked_mul(isize::try_from(count - 1).ok()?)?;
        let lowest = lower.checked_add(last.min(0))?;
        let highest = upper.checked_add(last.max(0))?;
        Some((lowest, usize::try_from(highest.checked_sub(lowest)?).ok()?))
    }

    /// Returns the layout of one element.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.0.layout
    }

    /// Returns the predefined type, if this is one.
    #[inline]
    pub fn as_builtin(&self) -> Option<Builtin> {
        self.0.builtin
    }

    /// Returns the predefined type that all elements of this type are of, if there is only one.
    #[inline]
    pub fn only_builtin(&self) -> Option<Builtin> {
        self.0.builtin.or_else(|| self.only_builtin_of_parts())
    }

    #[inline(never)]
    fn only_builtin_of_parts(&self) -> Option<Builtin> {
        let (first, rest) = self.0.contents.datatypes.split_first()?;
        let builtin = first.only_builtin()?;
        rest.iter().all(|part| part.only_builtin() == Some(builtin)).then_some(builtin)
    }

    /// Returns the constructor's arguments.
    pub fn contents(&self) -> &Contents {
        &self.0.contents
    }

    /// Returns the arguments in the form of `MPI_Type_get_contents_c` (MPI-5.0 §5.1.13), which
    /// separates `MPI_Count` arguments of large-count constructors from `int`s.
    pub fn listed_contents(&self) -> ListedContents {
        let Contents { combiner, integers, addresses, datatypes } = self.contents().clone();
        let mut listed =
            ListedContents { integers, addresses, counts: Vec::new(), datatypes, combiner };
        if !self.0.large.load(Ordering::Relaxed) {
            return listed;
        }
        let ListedContents { integers, addresses, counts, .. } = &mut listed;
        match combiner {
            Combiner::Named
            | Combiner::Dup
            | Combiner::F90Real
            | Combiner::F90Complex
            | Combiner::F90Integer => {}
            Combiner::Contiguous
            | Combiner::Vector
            | Combiner::Hvector
            | Combiner::Indexed
            | Combiner::Hindexed
            | Combiner::IndexedBlock
            | Combiner::HindexedBlock
            | Combiner::Struct
            | Combiner::Resized => {
                counts.append(integers);
                counts.append(addresses);
            }
            // Number of dimensions, sizes, subsizes, starts, order.
            Combiner::Subarray => *counts = integers.drain(1..integers.len() - 1).collect(),
            // Size, rank, number of dimensions, global sizes, all else.
            Combiner::Darray => {
                let dimensions = integers[2] as usize;
                *counts = integers.drain(3..3 + dimensions).collect();
            }
        }
        listed
    }

    /// Records that a large-count constructor made the type.
    pub fn set_large(&self) {
        self.0.large.store(true, Ordering::Relaxed);
    }

    /// True if the type may be communicated with.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.0.committed.load(Ordering::Relaxed)
    }

    /// Permits communication with the type.
    pub fn commit(&self) {
        self.0.committed.store(true, Ordering::Relaxed);
    }

    /// Returns the name; that of a derived type is empty until set.
    pub fn name(&self) -> Vec<u8> {
        self.0.name.lock().unwrap_or_else(|poison| poison.into_inner()).clone()
    }

    /// Sets the name.
    pub fn set_name(&self, name: &[u8]) {
        *self.0.name.lock().unwrap_or_else(|poison| poison.into_inner()) = name.to_vec();
    }

    /// Returns the number of elements in `bytes` bytes; none if they are no whole number of them.
    pub fn count_in(&self, bytes: u64) -> Option<u64> {
        match self.size() as u64 {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then(|| bytes / size),
        }
    }

    /// Returns the number of basic elements in `bytes` bytes; none if the last one is cut.
    pub fn elements_in(&self, bytes: u64) -> Option<u64> {
        let size = self.size() as u64;
        if size == 0 {
            return (bytes == 0).then_some(0);
        }
        let each: u64 = self.0.elements.iter().map(|&(_, count)| count).sum();
        let mut total = bytes / size * each;
        let mut rest = bytes % size;
        for &(element, count) in self.elements() {
            let len = element.size() as u64;
            let whole = (rest / len).min(count);
            total += whole;
            rest -= whole * len;
            if whole < count {
                break;
            }
        }
        (rest == 0).then_some(total)
    }

    /// Returns the length in bytes of the first `count` basic elements of an array. None if this
    /// type has no basic elements, or the length overflows.
    pub fn bytes_of(&self, count: u64) -> Option<u64> {
        let each: u64 = self.0.elements.iter().map(|&(_, count)| count).sum();
        if each == 0 {
            return (count == 0).then_some(0);
        }
        let mut bytes = (count / each).checked_mul(self.size() as u64)?;
        let mut rest = count % each;
        for &(element, count) in self.elements() {
            let taken = rest.min(count);
            bytes = bytes.checked_add(taken * element.size() as u64)?;
            rest -= taken;
        }
        Some(bytes)
    }

    /// The layout of these segments in these bounds.
    pub(crate) fn layout_of(segments: Segments, bounds: Bounds) -> Result<Arc<Layout>, TypeError> {
        let pieces = segments.len();
        let layout = Layout::of(segments, bounds.upper - bounds.lower);
        layout.map(Arc::new).ok_or_else(|| TypeError::no_memory(pieces))
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.0.bounds
    }

    pub(crate) fn elements(&self) -> &[(Element, u64)] {
        &self.0.elements
    }

    /// True if both are the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Adds `count` equal basic elements to runs of them.
pub(crate) fn push_elements(elements: &mut Vec<(Element, u64)>, element: Element, count: u64) {
    match elements.last_mut() {
        Some((last, known)) if *last == element => *known += count,
        _ => elements.push((element, count)),
    }
}
