//! Yielding in rounds among the ranks of a job that share a machine with fewer cores.
//!
//! A waiting rank yields its core and soon has it back if the other ranks wait as well: they poll, and yield in turn.
//! So nobody has to sleep and be woken, which costs both sides more. But threads that compute keep the core for
//! milliseconds. After one such yield nobody yields for a hold time, which doubles if the same happens again soon
//! after.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backoff::{Backoff, Decision};

/// Recent yield rounds of a process. Guarded by the worker's lock. Times are in µs from a common origin.
#[derive(Debug)]
pub(crate) struct YieldRounds {
    /// End of the hold time, in which nobody yields.
    until_us: AtomicU64,
    /// Length of the last hold time.
    hold_us: AtomicU64,
    /// Backoff for waits that do not complete within [`YIELD_ROUNDS`].
    backoff: Backoff,
}

impl YieldRounds {
    pub fn new() -> Self {
        Self { until_us: 0.into(), hold_us: HOLD_US.into(), backoff: Backoff::new() }
    }

    /// True if a thread that begins to wait should yield in rounds. If so, [`YieldRounds::learn`] follows.
    pub fn pays(&self, now_us: u64) -> bool {
        now_us >= self.until_us.load(Ordering::Relaxed) && self.backoff.decide() != Decision::Skip
    }

    /// Records if the event arrived during the rounds.
    pub fn learn(&self, came: bool) {
        self.backoff.learn(came);
    }

    /// Records the time until the core was back. True if the rounds may go on.
    pub fn note(&self, took: Duration, now_us: u64) -> bool {
        let is_long = took >= LONG;
        if is_long {
            self.hold(now_us);
        }
        !is_long
    }

    /// Starts a hold time because others compute. It is twice as long if the last one ended recently.
    #[cold]
    pub fn hold(&self, now_us: u64) {
        let (last_us, until_us) =
            (self.hold_us.load(Ordering::Relaxed), self.until_us.load(Ordering::Relaxed));
        let is_again = until_us > 0 && now_us.saturating_sub(until_us) < AGAIN * last_us;
        let hold_us = if is_again { (2 * last_us).min(HOLD_MAX_US) } else { HOLD_US };
        self.hold_us.store(hold_us, Ordering::Relaxed);
        self.until_us.store(now_us + hold_us, Ordering::Relaxed);
    }
}

/// Ranks that wait return the core before this; threads that compute do not, as their time slice is some
/// milliseconds.
const LONG: Duration = Duration::from_micros(1000);

/// Length of the hold time after a long yield: at least…
const HOLD_US: u64 = 160_000;
/// …and at most. A time slice of a computing thread is a thousandth of this.
const HOLD_MAX_US: u64 = 2_560_000;
/// A hold time doubles if it begins within this many times the last one's length after the last one's end.
const AGAIN: u64 = 4;

/// Rounds before a thread sleeps: the time that a peer needs to be preempted, run again, and answer.
pub(crate) const YIELD_ROUNDS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_times_grow_while_others_keep_the_core() {
        let rounds = YieldRounds::new();
        let mut now_us = 1_000_000;
        assert!(rounds.pays(now_us) && rounds.note(LONG / 2, now_us) && rounds.pays(now_us));
        let mut hold_us = HOLD_US;
        for _ in 0..10 {
            assert!(!rounds.note(LONG, now_us));
            assert!(!rounds.pays(now_us + hold_us - 1), "{hold_us}");
            now_us += hold_us;
            assert!(rounds.pays(now_us), "{hold_us}");
            hold_us = (2 * hold_us).min(HOLD_MAX_US);
        }
        now_us += AGAIN * HOLD_MAX_US;
        rounds.note(LONG, now_us);
        assert!(rounds.pays(now_us + HOLD_US), "it was long ago");
    }

    #[test]
    fn failing_rounds_are_probed_now_and_then() {
        let rounds = YieldRounds::new();
        while rounds.pays(0) {
            rounds.learn(false);
        }
        let tries = (0..100).filter(|_| rounds.pays(0)).count();
        assert!((1..20).contains(&tries), "{tries}");
        rounds.learn(true);
        assert!(rounds.pays(0));
    }
}
