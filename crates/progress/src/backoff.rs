//! Backoff for an attempt that may not pay, by how the last ones went.

use std::sync::atomic::{AtomicU32, Ordering};

/// Allows attempts while they pay, and for some time after they cease to. Then only one in `interval` is a probe, and
/// the interval doubles with every probe that fails. Guarded by the worker's lock.
#[derive(Debug)]
pub(crate) struct Backoff {
    level: AtomicU32,
    /// Attempts skipped since the last probe.
    skipped: AtomicU32,
    /// Number of attempts per probe.
    interval: AtomicU32,
}

/// Decision about one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Attempts pay lately.
    Try,
    /// Attempts have not paid, but this one tests if they do now.
    Probe,
    /// Attempts do not pay.
    Skip,
}

impl Backoff {
    /// Creates a backoff as if attempts had always paid.
    pub fn new() -> Self {
        let [level, skipped, interval] = [LEVEL_MAX, 0, PROBE_INTERVAL].map(AtomicU32::new);
        Self { level, skipped, interval }
    }

    /// Forgets all failures.
    pub fn reset(&self) {
        self.level.store(LEVEL_MAX, Ordering::Relaxed);
        self.interval.store(PROBE_INTERVAL, Ordering::Relaxed);
    }

    /// Decides about an attempt. If it is made, [`Backoff::learn`] follows.
    pub fn decide(&self) -> Decision {
        if self.level.load(Ordering::Relaxed) > 0 {
            return Decision::Try;
        }
        let skipped = self.skipped.load(Ordering::Relaxed) + 1;
        let is_time = skipped >= self.interval.load(Ordering::Relaxed);
        self.skipped.store(if is_time { 0 } else { skipped }, Ordering::Relaxed);
        if is_time { Decision::Probe } else { Decision::Skip }
    }

    /// Records the result of an attempt.
    pub fn learn(&self, paid: bool) {
        let level = self.level.load(Ordering::Relaxed);
        let interval = match (paid, level) {
            (true, _) => PROBE_INTERVAL,
            (false, 0) => (2 * self.interval.load(Ordering::Relaxed)).min(PROBE_INTERVAL_MAX),
            (false, _) => self.interval.load(Ordering::Relaxed),
        };
        self.interval.store(interval, Ordering::Relaxed);
        let level = if paid { (level + GAIN).min(LEVEL_MAX) } else { level.saturating_sub(1) };
        self.level.store(level, Ordering::Relaxed);
    }
}

/// Failures that are tolerated: at most, and for each success.
const LEVEL_MAX: u32 = 64;
const GAIN: u32 = 4;

/// Attempts per probe: at first…
const PROBE_INTERVAL: u32 = 16;
/// …and at most.
const PROBE_INTERVAL_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_attempts_are_probed_ever_less_often() {
        let backoff = Backoff::new();
        let decided =
            |times: u32, answer| (0..times).filter(|_| backoff.decide() == answer).count();
        for _ in 0..LEVEL_MAX {
            assert_eq!(backoff.decide(), Decision::Try);
            backoff.learn(false);
        }
        assert_eq!(decided(3 * PROBE_INTERVAL, Decision::Probe), 3);
        for interval in [PROBE_INTERVAL, 2 * PROBE_INTERVAL, 4 * PROBE_INTERVAL] {
            assert_eq!(decided(3 * interval, Decision::Probe), 3);
            backoff.learn(false);
        }
        (0..10).for_each(|_| backoff.learn(false));
        assert_eq!(decided(3 * PROBE_INTERVAL_MAX, Decision::Probe), 3);
        backoff.learn(true);
        for _ in 0..GAIN {
            assert_eq!(backoff.decide(), Decision::Try);
            backoff.learn(false);
        }
        assert_eq!(decided(PROBE_INTERVAL - 1, Decision::Skip), PROBE_INTERVAL as usize - 1);
        backoff.reset();
        assert_eq!(backoff.decide(), Decision::Try);
    }
}
