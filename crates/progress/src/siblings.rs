//! Sibling communications of the same process, polled from time to time by a thread that waits in one of them.
//!
//! Pending work and waiting threads of a sibling are served in that sibling. Unexpected messages are the exception:
//! without polls, a peer may run out of room for more. To keep this peer going, a thread that sleeps or tests without
//! success receives them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use crate::wait::Progress;

/// The sibling communications, once they are known.
#[derive(Default)]
pub(crate) struct Beside {
    others: OnceLock<Vec<Weak<Progress>>>,
    /// Exponent of the longest sleep between two polls of the siblings, which is [`REST`] times 2 to this power.
    doublings: AtomicU32,
}

impl Beside {
    /// Returns the sleep time of a thread that would sleep for `limit`.
    pub fn rest(&self, limit: Duration) -> Duration {
        match self.others.get() {
            Some(_) => limit.min(REST * (1 << self.doublings.load(Ordering::Relaxed))),
            None => limit,
        }
    }

    /// Adapts the sleep time: short if a sibling had events, otherwise twice as long.
    fn learn(&self, has_come: bool) {
        let doublings = self.doublings.load(Ordering::Relaxed);
        let doublings = if has_come { 0 } else { (doublings + 1).min(DOUBLINGS_MAX) };
        self.doublings.store(doublings, Ordering::Relaxed);
    }
}

impl Progress {
    /// Lets threads that wait in one of these poll the others; effective once.
    pub fn put_beside(all: &[&Self]) {
        for one in all {
            let others = all.iter().filter(|other| !std::ptr::eq(**other, *one));
            // This is the first call, or the siblings are set already.
            let _ = one.beside.others.set(others.map(|other| other.myself.clone()).collect());
        }
    }

    /// Polls the siblings that no other thread polls.
    pub(crate) fn look_beside(&self) {
        let Some(others) = self.beside.others.get() else { return };
        let others = others.iter().filter_map(Weak::upgrade);
        let has_come = others.fold(false, |has_come, other| other.take_in_unasked() | has_come);
        self.beside.learn(has_come);
    }

    /// Polls once if nobody else does; true if there was an event.
    fn take_in_unasked(&self) -> bool {
        let Some(mut worker) = self.worker().try_lock() else { return false };
        if worker.watch.is_polled() || worker.watch.is_guarded() {
            return false;
        }
        let before = worker.engine.event_count();
        let moved = worker.advance();
        self.report(&mut worker, before);
        self.leave(&mut worker);
        moved
    }
}

/// Shortest sleep between two polls.
const REST: Duration = Duration::from_millis(1);

/// Largest number of doublings of the sleep.
const DOUBLINGS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_nothing_rests_longer_up_to_a_bound() {
        let limit = Duration::from_millis(500);
        let beside = Beside::default();
        assert_eq!(beside.rest(limit), limit, "there are no others");
        beside.others.set(Vec::new()).unwrap();
        assert_eq!(beside.rest(limit), REST);
        beside.learn(false);
        assert_eq!(beside.rest(limit), 2 * REST);
        (0..20).for_each(|_| beside.learn(false));
        assert_eq!(beside.rest(limit), Duration::from_millis(64));
        assert_eq!(beside.rest(3 * REST), 3 * REST);
        beside.learn(true);
        assert_eq!(beside.rest(limit), REST);
    }
}
