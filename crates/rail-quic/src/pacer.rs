//! Pacer: the times at which bytes may leave at a given rate.
//!
//! Sent bytes occupy a virtual line of that rate. Bytes may leave slightly ahead of the line, so that they form a
//! batch. A process that came late catches up; an idle line accumulates no credit.

use std::time::{Duration, Instant};

/// A virtual line of varying rate.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Time at which the line has carried all bytes given to it.
    free: Instant,
    /// True if data was waiting for the line at the last call.
    backlogged: bool,
    /// Time by which bytes may leave ahead of the line.
    ahead: Duration,
}

impl Pacer {
    pub fn new(now: Instant) -> Self {
        Self { free: now, backlogged: false, ahead: AHEAD }
    }

    /// Returns the number of bytes that may leave now.
    pub fn allowance(&mut self, now: Instant, bytes_per_s: f64) -> usize {
        let late_max = if self.backlogged { LATE_MAX } else { Duration::ZERO };
        if let Some(earliest) = now.checked_sub(late_max) {
            self.free = self.free.max(earliest);
        }
        let least = if self.backlogged {
            BATCH_MIN_BYTES
        } else {
            (bytes_per_s * FIRST_MAX.as_secs_f64()).clamp(BATCH_MIN_BYTES, FIRST_BYTES)
        };
        let of_batch = Duration::from_secs_f64(least / bytes_per_s.max(RATE_MIN));
        self.ahead = AHEAD.max(of_batch);
        let ahead = (now + self.ahead).saturating_duration_since(self.free);
        (ahead.as_secs_f64() * bytes_per_s).max(0.0) as usize
    }

    /// Records that `bytes` have left.
    pub fn sent(&mut self, bytes: usize, bytes_per_s: f64) {
        self.free += Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(RATE_MIN));
    }

    /// Records if data is waiting for the line.
    pub fn set_backlogged(&mut self, backlogged: bool) {
        self.backlogged = backlogged;
    }

    /// Returns the time at which the next batch may leave.
    pub fn next(&self) -> Instant {
        self.free.checked_sub(self.ahead / 2).unwrap_or(self.free)
    }
}

/// Lead of sent bytes over the line: 64 KB at 1 Gb/s, one batch for the kernel.
const AHEAD: Duration = Duration::from_micros(520);
/// Smallest batch on slow lines.
const BATCH_MIN_BYTES: f64 = 16_384.0;
/// Limits of the burst that leaves at once after an idle period, in bytes and in time on the line.
const FIRST_BYTES: f64 = 81_920.0;
const FIRST_MAX: Duration = Duration::from_millis(2);
/// Maximum delay that is caught up: a thread is woken late, or finds its CPU core busy.
const LATE_MAX: Duration = Duration::from_millis(3);
/// Lower bound of the rate, in bytes per second.
const RATE_MIN: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 125e6;

    fn after(start: Instant, us: u64) -> Instant {
        start + Duration::from_micros(us)
    }

    #[test]
    fn a_steady_sender_gets_the_rate_in_batches() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.set_backlogged(true);
        let mut sent = 0;
        for us in (0..100_000).step_by(100) {
            let allowance = pacer.allowance(after(start, us), RATE);
            assert!(allowance <= 66_000, "{allowance}");
            pacer.sent(allowance, RATE);
            sent += allowance;
        }
        assert!((12_400_000..12_700_000).contains(&sent), "{sent}");
    }

    #[test]
    fn a_late_sender_catches_up_and_an_idle_one_does_not() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.set_backlogged(true);
        let first = pacer.allowance(start, RATE);
        pacer.sent(first, RATE);
        let late = pacer.allowance(after(start, 2000), RATE);
        assert!((249_000..251_000).contains(&late), "{late}");
        let very_late = pacer.allowance(after(start, 90_000), RATE);
        assert!(very_late <= 441_000, "{very_late}");
        pacer.set_backlogged(false);
        let idle = pacer.allowance(after(start, 900_000), RATE);
        assert!((64_000..=83_000).contains(&idle), "{idle}");
        let idle = pacer.allowance(after(start, 900_000), RATE / 100.0);
        assert!((16_000..=17_000).contains(&idle), "{idle} on a slow line");
    }

    #[test]
    fn the_next_batch_is_worth_waking_for() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        pacer.set_backlogged(true);
        let first = pacer.allowance(start, RATE);
        pacer.sent(first, RATE);
        assert!(pacer.allowance(start, RATE) <= 1);
        let next = pacer.next();
        assert!(next > start);
        assert!(pacer.allowance(next, RATE) >= 30_000);
    }
}
