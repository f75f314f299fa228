//! The requests of a process behind their handles.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Request;
use crate::ErrorClass;
use crate::lanes::{LANES_MAX, Lane};
use crate::table::{Handle, Kind, MAX_OBJECTS, Table};

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    REQUESTS.with(Handle(u64::from(value as u32))).from_int(value)
}

/// The process, which has no requests yet, has so many lanes: a power of two.
pub(crate) fn spread(lanes: usize) {
    REQUESTS.shift.store((MAX_OBJECTS / lanes).trailing_zeros(), Ordering::Relaxed);
    for (number, part) in REQUESTS.parts.iter().take(lanes).enumerate() {
        part.table.be_part(number, lanes);
    }
}

/// A request in the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub request: Request,
    /// The last call that listed it among others.
    pub listed: u64,
}

/// The requests of a process, in a table for each lane; the highest bits of their numbers say in which.
pub(super) struct Requests {
    pub parts: [Part; LANES_MAX],
    /// How many bits there are in a request's number below those that tell its lane.
    shift: AtomicU32,
}

/// Those of a lane, on cache lines of their own.
#[repr(align(128))]
pub(super) struct Part {
    pub table: Table<Entry>,
    /// How many calls have listed some; guarded by the table's lock.
    pub calls: AtomicU64,
}

impl Requests {
    /// How many lanes there are.
    pub fn count(&self) -> usize {
        MAX_OBJECTS >> self.shift.load(Ordering::Relaxed)
    }

    /// The lane of a request, by its handle.
    #[inline]
    pub fn lane(&self, handle: Handle) -> Lane {
        // Who names no request may name any number.
        let number = handle.index() & (MAX_OBJECTS - 1);
        Lane::numbered(number >> self.shift.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn of(&self, lane: Lane) -> &Table<Entry> {
        &self.parts[lane.number()].table
    }

    /// Those that a request is among.
    #[inline]
    pub fn with(&self, handle: Handle) -> &Table<Entry> {
        self.of(self.lane(handle))
    }
}

/// Locked after the core.
pub(super) static REQUESTS: Requests = Requests {
    parts: [const {
        let table = Table::new(Kind::Request, ErrorClass::Request);
        Part { table, calls: AtomicU64::new(0) }
    }; LANES_MAX],
    shift: AtomicU32::new(MAX_OBJECTS.trailing_zeros()),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_names_no_request_is_in_the_one_lane_there_is() {
        for handle in [0, 0x180, 0x4000_0005, u64::MAX] {
            assert_eq!(REQUESTS.lane(Handle(handle)), Lane::FIRST);
        }
    }
}
