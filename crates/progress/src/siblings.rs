//! Communications of the same process beside one, which who waits in that one looks after now and then.
//!
//! What threads wait for in the others, or have left behind there, is seen to there. What nobody has asked for yet comes
//! to an end at a peer that has no more room for it; so that this peer goes on, a thread that sleeps, or tests in vain,
//! takes it in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use crate::wait::Progress;

/// The others, once they are known.
#[derive(Default)]
pub(crate) struct Beside {
    others: OnceLock<Vec<Weak<Progress>>>,
    /// How long who sleeps rests until the next look, in units of [`REST`] doubled so often.
    doublings: AtomicU32,
}

impl Beside {
    /// How long a thread sleeps that would sleep for `limit`.
    pub fn rest(&self, limit: Duration) -> Duration {
        match self.others.get() {
            Some(_) => limit.min(REST * (1 << self.doublings.load(Ordering::Relaxed))),
            None => limit,
        }
    }

    /// Something has come to one of the others, or nothing: who is asked again soon, and who not.
    fn learn(&self, has_come: bool) {
        let doublings = self.doublings.load(Ordering::Relaxed);
        let doublings = if has_come { 0 } else { (doublings + 1).min(DOUBLINGS_MAX) };
        self.doublings.store(doublings, Ordering::Relaxed);
    }
}

impl Progress {
    /// Has threads that wait in one of these look after the others; once.
    pub fn put_beside(all: &[&Self]) {
        for one in all {
            let others = all.iter().filter(|other| !std::ptr::eq(**other, *one));
            // They are not known yet.
            let _ = one.beside.others.set(others.map(|other| other.myself.clone()).collect());
        }
    }

    /// Takes in what has come to the others, as far as nobody else is at it.
    pub(crate) fn look_beside(&self) {
        let Some(others) = self.beside.others.get() else { return };
        let others = others.iter().filter_map(Weak::upgrade);
        let has_come = others.fold(false, |has_come, other| other.take_in_unasked() | has_come);
        self.beside.learn(has_come);
    }

    /// Polls once, if nobody does; whether something has come.
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

/// The shortest rest.
const REST: Duration = Duration::from_millis(1);

/// The longest one is so often twice as long.
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
