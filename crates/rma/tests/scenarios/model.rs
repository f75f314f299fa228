//! Sequential reference of one-sided communication.

use std::ops::Range;
use std::sync::Arc;

use datatype::{Builtin, Datatype, Predefined};
use memory::{Layout, Region, Segment};

/// Part of a target's window that one origin alone accesses: its bytes, as the standard demands them.
pub struct Zone {
    pub offset: usize,
    bytes: Region,
    /// Accesses of each byte that are not complete at the target.
    pending: Vec<PendingKind>,
}

/// Incomplete accesses of a byte. Accesses of other kinds have to wait for their completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingKind {
    None,
    Put,
    Get,
    /// Accumulating operations on elements of this type. They are in order (MPI-5.0 §12.7.2).
    Combine(Builtin),
}

/// Elements in a zone.
#[derive(Clone, Debug)]
pub struct ZonePlace {
    pub displacement: usize,
    pub count: usize,
    pub layout: Arc<Layout>,
}

impl Zone {
    pub fn new(offset: usize, len: usize) -> Self {
        Self { offset, bytes: Region::owned(len), pending: vec![PendingKind::None; len] }
    }

    fn len(&self) -> usize {
        self.pending.len()
    }

    /// True if an access may be submitted while earlier ones are incomplete.
    pub fn admits(&self, place: &ZonePlace, access: PendingKind) -> bool {
        place.ranges().all(|range| {
            let mut pending = self.pending[range].iter();
            match access {
                PendingKind::Get | PendingKind::Combine(_) => {
                    pending.all(|one| *one == PendingKind::None || *one == access)
                }
                PendingKind::None | PendingKind::Put => {
                    pending.all(|one| *one == PendingKind::None)
                }
            }
        })
    }

    pub fn note(&mut self, place: &ZonePlace, access: PendingKind) {
        place.ranges().for_each(|range| self.pending[range].fill(access));
    }

    /// Notes that all accesses are complete at the target.
    pub fn complete(&mut self) {
        self.pending.fill(PendingKind::None);
    }

    /// Elements of a place as a stream.
    pub fn stream(&self, place: &ZonePlace) -> Region {
        let ZonePlace { displacement, count, layout } = place;
        self.bytes.typed(*displacement as isize, *count, layout).expect("a place in the zone")
    }

    /// Combines data with the elements of a place.
    pub fn combine(&self, place: &ZonePlace, data: &[u8], builtin: Builtin, op: Predefined) {
        let stream = self.stream(place);
        match op {
            Predefined::NoOp => {}
            Predefined::Replace => stream.write(0, data),
            _ => {
                let datatype = Datatype::builtin(builtin);
                let count = data.len() / datatype.size();
                let spread = |bytes: &[u8]| {
                    let memory = Region::owned(count * datatype.layout().extent() as usize);
                    memory.typed(0, count, datatype.layout()).expect("room").write(0, bytes);
                    memory
                };
                let (left, right) = (spread(data), spread(&stream.to_vec()));
                op.reducer(builtin).combine_regions(&left, &right);
                let combined = right.typed(0, count, datatype.layout()).expect("room").to_vec();
                stream.write(0, &combined);
            }
        }
    }

    /// Fails if the target's memory differs from the reference.
    pub fn check(&self, window: &Region, what: &str) {
        let (found, expected) =
            (window.slice(self.offset, self.len()).to_vec(), self.bytes.to_vec());
        if found == expected {
            return;
        }
        let differs = found.iter().zip(&expected).position(|(one, other)| one != other);
        panic!("{what}: byte {differs:?} differs");
    }
}

impl ZonePlace {
    /// Its bytes in the zone.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let is_dense = self.layout.is_contiguous();
        let whole = is_dense.then(|| self.displacement..self.displacement + self.len());
        let count = if is_dense { 0 } else { self.count };
        let ranges = move |index: usize| {
            let origin = self.displacement + index * self.layout.extent() as usize;
            let of = move |segment: Segment| {
                let first = origin + segment.offset as usize;
                first..first + segment.len
            };
            self.layout.segments().iter().map(of)
        };
        whole.into_iter().chain((0..count).flat_map(ranges))
    }

    /// Length of its elements in bytes.
    pub fn len(&self) -> usize {
        self.count * self.layout.size()
    }
}

/// Operations of all origins on one cell, each with the value that it found.
#[derive(Debug, Default)]
pub struct Ledger(Vec<LedgerEntry>);

/// One operation on a cell.
#[derive(Clone, Copy, Debug)]
pub struct LedgerEntry {
    pub origin: usize,
    /// ZonePlace among the operations of its origin.
    pub number: usize,
    pub change: Change,
    /// Value that was there.
    pub found: u64,
}

/// Effect of an operation on a cell.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Combined(Predefined, u64),
    Swapped { compare: u64, new: u64 },
}

impl Change {
    /// The value after the operation, if it differs.
    fn apply(self, value: u64) -> Option<u64> {
        match self {
            Self::Combined(Predefined::Sum, operand) => Some(value.wrapping_add(operand)),
            Self::Combined(Predefined::Bxor, operand) => Some(value ^ operand),
            Self::Combined(Predefined::Replace, operand) => Some(operand),
            Self::Combined(Predefined::NoOp, _) => None,
            Self::Combined(op, _) => unreachable!("{op:?} on a ledger"),
            Self::Swapped { compare, new } => (value == compare).then_some(new),
        }
    }
}

impl Ledger {
    pub fn add(&mut self, entry: LedgerEntry) {
        self.0.push(entry);
    }

    /// Fails unless the operations happened one after another, each once, and those of each origin in order. Operands
    /// are random, so that no value occurs twice.
    pub fn check(&self, last: u64) {
        let mut values = vec![0_u64];
        let changes = |entry: &&LedgerEntry| entry.change.apply(entry.found).is_some();
        let mut left: Vec<&LedgerEntry> = self.0.iter().filter(changes).collect();
        while let Some(at) = left.iter().position(|entry| Some(&entry.found) == values.last()) {
            let entry = left.swap_remove(at);
            values.extend(entry.change.apply(entry.found));
        }
        assert!(left.is_empty(), "{left:x?} found what others had changed, after {values:x?}");
        assert_eq!(values.last(), Some(&last), "an operation was lost or applied twice");
        let mut entries = self.0.clone();
        entries.sort_by_key(|entry| (entry.origin, entry.number));
        for of_origin in entries.chunk_by(|one, other| one.origin == other.origin) {
            let mut earliest = 0;
            for entry in of_origin {
                let at = values.iter().position(|value| *value == entry.found);
                let at = at.unwrap_or_else(|| panic!("{entry:x?} found no value of {values:x?}"));
                assert!(at >= earliest, "{entry:x?} overtook an earlier one: {values:x?}");
                earliest = at + usize::from(entry.change.apply(entry.found).is_some());
            }
        }
    }
}
