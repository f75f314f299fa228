//! When the next bytes may leave, at a given rate.
//!
//! What leaves takes its time on a virtual line of that rate; bytes may leave a little ahead of the line,
//! so that they make a batch, and catch up when the process came late. A line that had nothing to carry
//! does not save that time up.

use std::time::{Duration, Instant};

/// A line of varying rate.
#[derive(Debug)]
pub(super) struct Pacer {
    /// When the line has carried what was given to it.
    free: Instant,
    /// Something waited for the line when it was last asked.
    backlogged: bool,
    /// How far bytes leave ahead of the line.
    ahead: Duration,
}

impl Pacer {
    pub fn new(now: Instant) -> Self {
        Self { free: now, backlogged: false, ahead: AHEAD }
    }

    /// How many bytes may leave now.
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

    /// So many bytes have left.
    pub fn sent(&mut self, bytes: usize, bytes_per_s: f64) {
        self.free += Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(RATE_MIN));
    }

    /// Whether anything waits for the line.
    pub fn set_backlogged(&mut self, backlogged: bool) {
        self.backlogged = backlogged;
    }

    /// When a batch may leave again.
    pub fn next(&self) -> Instant {
        self.free.checked_sub(self.ahead / 2).unwrap_or(self.free)
    }
}

/// Bytes leave so much ahead of the line: 64 KB at 1 Gb/s, a batch for the kernel.
const AHEAD: Duration = Duration::from_micros(520);
/// On slow lines, bytes leave ahead for a batch of so many.
const BATCH_MIN_BYTES: f64 = 16_384.0;
/// What comes first after silence leaves at once, if it is so short, and so soon carried.
const FIRST_BYTES: f64 = 81_920.0;
const FIRST_MAX: Duration = Duration::from_millis(2);
/// A sleeper is woken late, or finds its core taken; what it was late is made up for.
const LATE_MAX: Duration = Duration::from_millis(3);
/// Slower is no line.
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
    fn who_comes_late_catches_up_and_who_had_nothing_to_send_does_not() {
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
