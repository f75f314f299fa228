//! Future events, in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Queue of events; events of one instant come in the order of their random lots.
pub struct Agenda<E> {
    entries: BinaryHeap<Reverse<Scheduled<E>>>,
    added: u64,
}

struct Scheduled<E> {
    at_ns: u64,
    lot: u64,
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub fn new() -> Self {
        Self { entries: BinaryHeap::new(), added: 0 }
    }

    pub fn add(&mut self, at_ns: u64, lot: u64, event: E) {
        self.added += 1;
        assert!(self.added < EVENTS_MAX, "the network does not come to rest");
        self.entries.push(Reverse(Scheduled { at_ns, lot, number: self.added, event }));
    }

    /// Next event and its time in nanoseconds.
    pub fn next(&mut self) -> Option<(u64, E)> {
        let Reverse(Scheduled { at_ns, event, .. }) = self.entries.pop()?;
        Some((at_ns, event))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.lot, self.number).cmp(&(other.at_ns, other.lot, other.number))
    }
}

/// Upper bound of the number of events in any scenario.
const EVENTS_MAX: u64 = 20_000_000;
