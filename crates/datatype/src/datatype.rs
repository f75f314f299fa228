//! A datatype: its type map's bounds, its flattened layout, and how it was built.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memory::{Layout, Segment};

use crate::builtin::Builtin;

/// What is wrong with a constructor's argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} = {value}: {reason}")]
pub struct TypeError {
    /// The argument's name in the standard.
    pub argument: &'static str,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub reason: &'static str,
}

impl TypeError {
    pub(crate) fn new(argument: &'static str, value: impl ToString, reason: &'static str) -> Self {
        Self { argument, value: value.to_string(), reason }
    }
}

/// Which constructor made a type (MPI-5.0 §5.1.13).
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

/// The arguments a type was built with.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The constructor.
    pub combiner: Combiner,
    /// Its integer arguments, in the standard's order; counts that large-count forms hand in are
    /// kept here too.
    pub integers: Vec<i64>,
    /// Its displacements, in bytes.
    pub addresses: Vec<i64>,
    /// Its datatypes.
    pub datatypes: Vec<Datatype>,
}

/// An MPI datatype. Clones are the same type.
#[derive(Clone, Debug)]
pub struct Datatype(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Arc<Layout>,
    bounds: Bounds,
    /// Runs of basic elements of equal size in type-map order: (size in bytes, how many).
    elements: Box<[(u32, u64)]>,
    builtin: Option<Builtin>,
    contents: Contents,
    committed: AtomicBool,
    name: Mutex<Vec<u8>>,
}

/// The edges of a type map, in bytes from the element's address (MPI-5.0 §5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub lower: isize,
    pub upper: isize,
    /// Whether the edges are explicit markers; if not, they are the data's, the upper one such that
    /// the extent is a multiple of the alignment.
    pub marked: bool,
    /// The edges of the data, if there is any.
    pub data: Option<Edges>,
    pub alignment: usize,
}

/// First byte, and the one behind the last.
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
    /// The bounds of data and markers; `None` if they lie outside the address space.
    pub fn new(data: Option<Edges>, markers: Option<Edges>, alignment: usize) -> Option<Self> {
        let marked = markers.is_some();
        let Edges { lower, upper } = match (markers, data) {
            (Some(markers), _) => markers,
            (None, Some(data)) => {
                let extent = data.upper.checked_sub(data.lower)?;
                let rounded = (extent as usize).next_multiple_of(alignment);
                Edges { lower: data.lower, upper: data.lower.checked_add_unsigned(rounded)? }
            }
            (None, None) => Edges { lower: 0, upper: 0 },
        };
        upper.checked_sub(lower)?;
        Some(Self { lower, upper, marked, data, alignment })
    }

    pub fn markers(self) -> Option<Edges> {
        self.marked.then_some(Edges { lower: self.lower, upper: self.upper })
    }
}

impl Datatype {
    /// A predefined type.
    pub fn builtin(builtin: Builtin) -> Self {
        let (parts, extent, alignment) = builtin.element().shape();
        let segments = parts.iter().map(|&(offset, len)| Segment { offset, len: len as usize });
        let layout = Layout::new(segments, extent);
        let upper = parts.iter().map(|&(offset, len)| offset + len as isize).max();
        let data = upper.map(|upper| Edges { lower: 0, upper });
        let bounds = Bounds { lower: 0, upper: extent, marked: false, data, alignment };
        let mut elements = Vec::new();
        for &(_, len) in parts {
            push_elements(&mut elements, len, 1);
        }
        let contents = Contents {
            combiner: Combiner::Named,
            integers: Vec::new(),
            addresses: Vec::new(),
            datatypes: Vec::new(),
        };
        let inner = Inner {
            layout: Arc::new(layout),
            bounds,
            elements: elements.into(),
            builtin: Some(builtin),
            contents,
            committed: AtomicBool::new(true),
            name: Mutex::new(builtin.name().into()),
        };
        Self(Arc::new(inner))
    }

    pub(crate) fn derived(
        segments: Vec<Segment>,
        bounds: Bounds,
        elements: Vec<(u32, u64)>,
        contents: Contents,
    ) -> Self {
        let inner = Inner {
            layout: Arc::new(Layout::new(segments, bounds.upper - bounds.lower)),
            bounds,
            elements: elements.into(),
            builtin: None,
            contents,
            committed: AtomicBool::new(false),
            name: Mutex::new(Vec::new()),
        };
        Self(Arc::new(inner))
    }

    /// Bytes of data in one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.layout.size()
    }

    /// Lower bound and extent in bytes.
    pub fn extent(&self) -> (isize, isize) {
        (self.0.bounds.lower, self.0.layout.extent())
    }

    /// Lower bound and extent of the data itself, in bytes.
    pub fn true_extent(&self) -> (isize, isize) {
        let Edges { lower, upper } = self.0.bounds.data.unwrap_or(Edges { lower: 0, upper: 0 });
        (lower, upper - lower)
    }

    /// The bytes of one element.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.0.layout
    }

    /// Which predefined type this is, if it is one.
    #[inline]
    pub fn as_builtin(&self) -> Option<Builtin> {
        self.0.builtin
    }

    /// How the type was built.
    pub fn contents(&self) -> &Contents {
        &self.0.contents
    }

    /// Whether the type may be communicated with.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.0.committed.load(Ordering::Relaxed)
    }

    /// Permits communication with the type.
    pub fn commit(&self) {
        self.0.committed.store(true, Ordering::Relaxed);
    }

    /// The name; that of a derived type is empty until set.
    pub fn name(&self) -> Vec<u8> {
        self.0.name.lock().unwrap_or_else(|poison| poison.into_inner()).clone()
    }

    /// Names the type.
    pub fn set_name(&self, name: &[u8]) {
        *self.0.name.lock().unwrap_or_else(|poison| poison.into_inner()) = name.to_vec();
    }

    /// How many elements `bytes` bytes are; none if they are no whole number of them.
    pub fn count_in(&self, bytes: u64) -> Option<u64> {
        match self.size() as u64 {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then(|| bytes / size),
        }
    }

    /// How many basic elements `bytes` bytes are; none if the last one is cut.
    pub fn elements_in(&self, bytes: u64) -> Option<u64> {
        let size = self.size() as u64;
        if size == 0 {
            return (bytes == 0).then_some(0);
        }
        let each: u64 = self.0.elements.iter().map(|&(_, count)| count).sum();
        let mut total = bytes / size * each;
        let mut rest = bytes % size;
        for &(len, count) in &self.0.elements {
            let len = u64::from(len);
            let whole = (rest / len).min(count);
            total += whole;
            rest -= whole * len;
            if whole < count {
                break;
            }
        }
        (rest == 0).then_some(total)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.0.bounds
    }

    pub(crate) fn elements(&self) -> &[(u32, u64)] {
        &self.0.elements
    }

    /// Whether both are the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Adds `count` basic elements of `size` bytes to runs of them.
pub(crate) fn push_elements(elements: &mut Vec<(u32, u64)>, size: u32, count: u64) {
    match elements.last_mut() {
        Some((last, known)) if *last == size => *known += count,
        _ => elements.push((size, count)),
    }
}
