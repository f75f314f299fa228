//! Turns of ranks of a job that share a machine with fewer cores than they are, and wait for each other.
//!
//! Who waits leaves the core to whoever wants it, and has it back soon where those wait as well: they poll, and
//! leave it in turn. So nobody sleeps, or is woken, which costs both sides more. But threads that compute keep the core
//! for milliseconds, and where they had it for so long nobody leaves it for a while, which is longer when it happens
//! again soon after.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backoff::{Trust, Try};

/// What a process has seen of turns lately; guarded as the core is. Times are µs from one beginning.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Until when nobody leaves the core.
    until_us: AtomicU64,
    /// For how long that was when it began.
    hold_us: AtomicU64,
    /// In what is waited for coming within so many turns.
    trust: Trust,
}

impl Turns {
    pub fn new() -> Self {
        Self { until_us: 0.into(), hold_us: HOLD_US.into(), trust: Trust::new() }
    }

    /// Whether a thread that begins to wait leaves the core to others; to be followed by [`Turns::learn`] if so.
    pub fn pay(&self, now_us: u64) -> bool {
        now_us >= self.until_us.load(Ordering::Relaxed) && self.trust.ask() != Try::No
    }

    /// Whether what was waited for came meanwhile.
    pub fn learn(&self, came: bool) {
        self.trust.learn(came);
    }

    /// The core is back after so long; whether to go on.
    pub fn note(&self, took: Duration, now_us: u64) -> bool {
        let is_long = took >= LONG;
        if is_long {
            self.hold(now_us);
        }
        !is_long
    }

    /// Others compute: nobody leaves the core for a while, for twice as long if that was so not long ago.
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

/// Who waits has had its turn by then, and who computes has not: the kernel gives it some milliseconds.
const LONG: Duration = Duration::from_micros(1000);

/// How long nobody leaves the core after a turn that took long: at least…
const HOLD_US: u64 = 160_000;
/// …and at most, of which a turn of a thread that computes is a thousandth.
const HOLD_MAX_US: u64 = 2_560_000;
/// So many times as long after it had ended, it is one of the same row.
const AGAIN: u64 = 4;

/// How many turns a thread takes before it sleeps: as long as others take to be put aside, run, and answer.
pub(crate) const TURNS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_others_keep_the_core_it_is_left_to_them_ever_more_seldom() {
        let turns = Turns::new();
        let mut now_us = 1_000_000;
        assert!(turns.pay(now_us) && turns.note(LONG / 2, now_us) && turns.pay(now_us));
        let mut hold_us = HOLD_US;
        for _ in 0..10 {
            assert!(!turns.note(LONG, now_us));
            assert!(!turns.pay(now_us + hold_us - 1), "{hold_us}");
            now_us += hold_us;
            assert!(turns.pay(now_us), "{hold_us}");
            hold_us = (2 * hold_us).min(HOLD_MAX_US);
        }
        now_us += AGAIN * HOLD_MAX_US;
        turns.note(LONG, now_us);
        assert!(turns.pay(now_us + HOLD_US), "it was long ago");
    }

    #[test]
    fn turns_in_vain_are_tried_now_and_then_only() {
        let turns = Turns::new();
        while turns.pay(0) {
            turns.learn(false);
        }
        let tries = (0..100).filter(|_| turns.pay(0)).count();
        assert!((1..20).contains(&tries), "{tries}");
        turns.learn(true);
        assert!(turns.pay(0));
    }
}
