//! Other VCIs of the same process, which a thread that waits in one of them polls now and then.
//!
//! Operations that threads wait for in the other VCIs, or have left pending there, are served there. Other messages
//! stop at a peer when it has no more room for them. A thread that sleeps, or tests without success, receives them so
//! that the peer can go on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use crate::wait::Progress;

/// The other VCIs of the process, once they are known.
#[derive(Default)]
pub(crate) struct Siblings {
    others: OnceLock<Vec<Weak<Progress>>>,
    /// Time between two polls by a sleeping thread: [`REST`] times two to this power.
    doublings: AtomicU32,
}

impl Siblings {
    /// Returns the time for which a thread sleeps that would sleep for `limit`.
    pub fn rest(&self, limit: Duration) -> Duration {
        match self.others.get() {
            Some(_) => limit.min(REST * (1 << self.doublings.load(Ordering::Relaxed))),
            None => limit,
        }
    }

    /// Adapts the time to the next poll: short after an event, twice as long after none.
    fn learn(&self, has_moved: bool) {
        let doublings = self.doublings.load(Ordering::Relaxed);
        let doublings = if has_moved { 0 } else { (doublings + 1).min(DOUBLINGS_MAX) };
        self.doublings.store(doublings, Ordering::Relaxed);
    }
}

impl Progress {
    /// Makes these VCIs siblings, so that threads that wait in one also poll the others. Called once.
    pub fn set_siblings(all: &[&Self]) {
        for one in all {
            let others = all.iter().filter(|other| !std::ptr::eq(**other, *one));
            // Cannot fail: the siblings are set only once.
            let _ = one.siblings.others.set(others.map(|other| other.myself.clone()).collect());
        }
    }

    /// Polls the siblings that no other thread polls.
    pub(crate) fn poll_siblings(&self) {
        let Some(others) = self.siblings.others.get() else { return };
        let others = others.iter().filter_map(Weak::upgrade);
        let has_moved = others.fold(false, |has_moved, other| other.poll_if_unpolled() | has_moved);
        self.siblings.learn(has_moved);
    }

    /// Polls once, if nobody else does. True if an event was received.
    fn poll_if_unpolled(&self) -> bool {
        let Some(mut worker) = self.worker().try_lock() else { return false };
        if worker.poll_state.is_polled() || worker.poll_state.is_thread_asleep() {
            return false;
        }
        let before = worker.engine.event_count();
        let moved = worker.advance();
        self.report(&mut worker, before);
        self.leave(&mut worker);
        moved
    }
}

/// Shortest time between two polls of the siblings.
const REST: Duration = Duration::from_millis(1);

/// Longest time between two polls, as the number of doublings.
const DOUBLINGS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_without_events_become_rarer_up_to_a_bound() {
        let limit = Duration::from_millis(500);
        let siblings = Siblings::default();
        assert_eq!(siblings.rest(limit), limit, "there are no others");
        siblings.others.set(Vec::new()).unwrap();
        assert_eq!(siblings.rest(limit), REST);
        siblings.learn(false);
        assert_eq!(siblings.rest(limit), 2 * REST);
        (0..20).for_each(|_| siblings.learn(false));
        assert_eq!(siblings.rest(limit), Duration::from_millis(64));
        assert_eq!(siblings.rest(3 * REST), 3 * REST);
        siblings.learn(true);
        assert_eq!(siblings.rest(limit), REST);
    }
}
