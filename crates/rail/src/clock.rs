//! The clock of connections.

use std::time::{Duration, Instant};

/// A clock that advances only while it is read regularly.
#[derive(Debug)]
pub struct Clock {
    looked: Duration,
    last: Instant,
}

impl Clock {
    /// Starts the clock at zero.
    #[expect(clippy::new_without_default, reason = "the clock starts now")]
    pub fn new() -> Self {
        Self { looked: Duration::ZERO, last: Instant::now() }
    }

    /// Advances the clock to `now` and returns its time.
    pub fn look(&mut self, now: Instant) -> Duration {
        self.looked += now.saturating_duration_since(self.last).min(GAP_MAX);
        self.last = now;
        self.looked
    }

    /// Returns the time of the last look.
    pub fn now(&self) -> Duration {
        self.looked
    }
}

/// Longest step of the clock; a waiting process polls more often.
const GAP_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_while_nobody_looks() {
        let mut clock = Clock::new();
        let start = clock.last;
        clock.look(start + Duration::from_millis(300));
        clock.look(start + Duration::from_secs(90));
        assert_eq!(clock.now(), Duration::from_millis(1300));
    }
}
