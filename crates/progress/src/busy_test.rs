//! Detection of loops that only test.
//!
//! A loop of `MPI_Test` calls that finds nothing is a wait in disguise. Such a loop reads the clock once in many
//! tests. As a long wait does, it then checks how many threads want the cores. Where they are contended it sleeps for
//! a while, until any event.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tests of a process that found nothing. If several threads test at once, each seems to do more between its tests.
#[derive(Debug)]
pub(crate) struct BusyTests {
    tests: AtomicU32,
    began: Instant,
    /// Time of the last clock reading, in µs since `began`.
    read_us: AtomicU64,
    /// Time since which nothing but tests was done, in µs since `began`.
    since_us: AtomicU64,
}

impl BusyTests {
    pub fn new() -> Self {
        let [read_us, since_us] = [0, 0].map(AtomicU64::new);
        Self { tests: AtomicU32::new(0), began: Instant::now(), read_us, since_us }
    }

    /// Counts a test that found nothing. True if the clock is to be read.
    #[inline]
    pub fn count(&self) -> bool {
        let tests = self.tests.load(Ordering::Relaxed).wrapping_add(1);
        self.tests.store(tests, Ordering::Relaxed);
        tests.is_multiple_of(TESTS_PER_CLOCK)
    }

    /// Evaluates a clock reading: the time for which nothing but tests was done, or none if something else was.
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

    /// Records that the loop has slept until now.
    pub fn have_waited(&self, now: Instant) {
        self.read_us.store(self.us(now), Ordering::Relaxed);
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Tests per clock reading…
const TESTS_PER_CLOCK: u32 = 64;

/// …and the longest time in µs that they take if nothing else is done between them.
const LOOP_US: u64 = 256;

/// Time for which a loop sleeps where others want the cores: the delay that its other work may suffer.
pub(crate) const NAP: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computation_between_tests_ends_a_loop() {
        let busy_tests = BusyTests::new();
        let at = |us| busy_tests.began + Duration::from_micros(us);
        let mut now_us = 1_000_000;
        assert_eq!(busy_tests.look(at(now_us)), None);
        for looks in 1..10 {
            now_us += LOOP_US;
            assert_eq!(busy_tests.look(at(now_us)), Some(Duration::from_micros(looks * LOOP_US)));
        }
        now_us += LOOP_US + 1;
        assert_eq!(busy_tests.look(at(now_us)), None, "it was preempted, or computed");
        assert_eq!(busy_tests.look(at(now_us + 1)), Some(Duration::from_micros(1)));
        busy_tests.have_waited(at(now_us + 10 * LOOP_US));
        let waited = Some(Duration::from_micros(11 * LOOP_US));
        assert_eq!(busy_tests.look(at(now_us + 11 * LOOP_US)), waited);
    }

    #[test]
    fn the_clock_is_read_seldom() {
        let busy_tests = BusyTests::new();
        let reads = (0..10 * TESTS_PER_CLOCK).filter(|_| busy_tests.count()).count();
        assert_eq!(reads, 10);
    }
}
