//! The table of requests. Engine operations and requests complete at once need no entry: their handles contain all.

use engine::EndMarks;

use super::Request;
use crate::vci::{VCIS_MAX, Vci};
use handles::{Kind, Table};

/// A request in the table.
#[derive(Debug)]
pub(super) struct StoredRequest {
    pub request: Request,
    /// It stands in a list that is being made, with its vci's lock.
    pub is_listed: bool,
    /// Queues in which a persistent request stays registered.
    pub marks: Option<Box<EndMarks>>,
}

/// Those of each vci, on cache lines of their own.
pub(super) struct Requests([Part; VCIS_MAX]);

#[repr(align(128))]
struct Part(Table<StoredRequest>);

impl Requests {
    /// Drops all; their handles are stale.
    pub fn clear(&self) {
        self.0.iter().for_each(|part| part.0.clear());
    }

    #[inline]
    pub fn of(&self, vci: Vci) -> &Table<StoredRequest> {
        &self.0[vci.number()].0
    }
}

/// Locked after the worker.
pub(super) static REQUESTS: Requests = {
    const fn part(vci: usize) -> Part {
        Part(Table::part(Kind::Request, vci))
    }
    const { assert!(VCIS_MAX == 8) };
    Requests([part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)])
};
