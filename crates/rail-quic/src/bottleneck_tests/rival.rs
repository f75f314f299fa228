//! A competing CUBIC flow.

use std::time::{Duration, Instant};

/// A bulk flow of CUBIC (RFC 9438, without its slow start and fast convergence), in packets.
pub(super) struct Rival {
    pub window: f64,
    pub greatest: f64,
    pub reduced: Instant,
    pub in_flight: u64,
    pub next: u64,
    pub arrived: u64,
    /// Losses before this packet belong to the same congestion event.
    pub recovers_until: u64,
}

impl Rival {
    pub fn hear(&mut self, now: Instant, number: u64, arrived: bool, round_trip: Duration) {
        self.in_flight -= 1;
        if !arrived {
            if number >= self.recovers_until {
                self.greatest = self.window;
                self.window = (self.window * 0.7).max(2.0);
                self.reduced = now;
                self.recovers_until = self.next;
            }
            return;
        }
        self.arrived += 1;
        let since = (now - self.reduced + round_trip).as_secs_f64();
        let inflection = (self.greatest * 0.3 / 0.4).cbrt();
        let target = 0.4 * (since - inflection).powi(3) + self.greatest;
        // Never slower than a flow of Reno with the same reductions.
        let reno = 0.53 * since / round_trip.as_secs_f64() + self.greatest * 0.7;
        let grown = target.max(reno).min(1.5 * self.window);
        self.window += ((grown - self.window) / self.window).max(0.01 / self.window);
    }
}
