//! Loops of tests that find nothing, and between them do nothing.
//!
//! Such a loop waits, though it does not say so. Seldom, it looks at the clock and, as a wait that takes long, at how
//! many threads want the cores; where they are wanted it is a wait for a while, which ends with any news.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The tests in vain of a process. Threads that test at once make it seem that each does more between its tests.
#[derive(Debug)]
pub(crate) struct Vain {
    tests: AtomicU32,
    began: Instant,
    /// When the clock was read last, in µs since `began`.
    read_us: AtomicU64,
    /// Since when nothing was done between tests, in µs since `began`.
    since_us: AtomicU64,
}

impl Vain {
    pub fn new() -> Self {
        let [read_us, since_us] = [0, 0].map(AtomicU64::new);
        Self { tests: AtomicU32::new(0), began: Instant::now(), read_us, since_us }
    }

    /// A test has found nothing; whether the clock is to be read.
    #[inline]
    pub fn count(&self) -> bool {
        let tests = self.tests.load(Ordering::Relaxed).wrapping_add(1);
        self.tests.store(tests, Ordering::Relaxed);
        tests.is_multiple_of(TESTS_PER_CLOCK)
    }

    /// It is so late: for how long nothing else was done than testing, if so.
    pub fn look(&self, now: Instant) -> Option<Duration> {
        let now_us = self.us(now);
        let took_us = now_us.saturating_sub(self.read_us.swap(now_us, Ordering::Relaxed));
        if took_us > LOOP_US {
            self.since_us.store(now_us, Ordering::Relaxed);
            return None;
        }
        let since_us = self.since_us.load(Ordering::Relaxed);
        Some(Duration::from_micros(now_us.saturating_sub(since_us)))
    }

    /// The loop has waited until now.
    pub fn have_waited(&self, now: Instant) {
        self.read_us.store(self.us(now), Ordering::Relaxed);
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The clock is read once in so many tests…
const TESTS_PER_CLOCK: u32 = 64;

/// …which take no longer where nothing else is done.
const LOOP_US: u64 = 256;

/// How long a loop waits at a time where others want the cores: as long as it may look at something else late.
pub(crate) const NAP: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_computes_between_tests_is_in_no_loop() {
        let vain = Vain::new();
        let at = |us| vain.began + Duration::from_micros(us);
        let mut now_us = 1_000_000;
        assert_eq!(vain.look(at(now_us)), None);
        for looks in 1..10 {
            now_us += LOOP_US;
            assert_eq!(vain.look(at(now_us)), Some(Duration::from_micros(looks * LOOP_US)));
        }
        now_us += LOOP_US + 1;
        assert_eq!(vain.look(at(now_us)), None, "it was put aside, or computed");
        assert_eq!(vain.look(at(now_us + 1)), Some(Duration::from_micros(1)));
        vain.have_waited(at(now_us + 10 * LOOP_US));
        let waited = Some(Duration::from_micros(11 * LOOP_US));
        assert_eq!(vain.look(at(now_us + 11 * LOOP_US)), waited);
    }

    #[test]
    fn the_clock_is_read_seldom() {
        let vain = Vain::new();
        let reads = (0..10 * TESTS_PER_CLOCK).filter(|_| vain.count()).count();
        assert_eq!(reads, 10);
    }
}
