//! Work that a call leaves for the progress thread.

use super::Worker;

impl Worker {
    /// True if an operation would not complete without polling.
    #[inline]
    pub(crate) fn is_left_behind(&self) -> bool {
        self.engine.has_pending() || self.is_urgent()
    }

    /// True if something is left that waits for no peer: coalesced messages, work, bytes without room, due threads.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.has_loose_ends || !self.waiters.is_empty()
    }

    /// True if a rail has lacked room, as far as known.
    pub(crate) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    pub(crate) fn look_at_ends(&mut self) {
        self.has_loose_ends = self.has_backlog
            || self.is_coalescing()
            || self.has_work()
            || !self.copies.is_empty()
            || self.peers.is_reopening()
            || self.is_reporting();
    }
}
