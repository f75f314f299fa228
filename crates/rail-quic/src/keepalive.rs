//! Keepalive probes on connections from which no acknowledgement arrives.
//!
//! QUIC doubles its probe timeout (PTO) with every probe: after an outage of 20 s, recovery may take another 20 s.
//! Here an ack-eliciting packet leaves at constant intervals, and the first acknowledgement triggers the
//! retransmission of all lost packets. A link is lost after some silence in which a few probes were not answered: a
//! process that was stopped has not waited.

use std::time::{Duration, Instant};

/// Keepalive state of one connection.
#[derive(Debug)]
pub(super) struct Keepalive {
    /// Number of acknowledged packets at the last check.
    arrived: u64,
    /// Number of consecutive probes without an acknowledgement.
    unanswered: u32,
    /// Time of the next check while an acknowledgement is awaited.
    due: Option<Instant>,
    /// Time of the last sign of life.
    sign: Instant,
}

/// Connection state that a check needs.
pub(super) struct Signs {
    /// Number of packets that the peer has acknowledged.
    pub arrived: u64,
    /// Time of the last datagram that has arrived.
    pub heard: Instant,
    pub round_trip: Duration,
}

impl Keepalive {
    /// State of a connection that begins now.
    pub fn new(now: Instant) -> Self {
        Self { arrived: 0, unanswered: 0, due: None, sign: now }
    }

    /// Checks the connection if a check is due, and returns true if a probe is to be sent. `awaits` is true while
    /// sent data is unacknowledged.
    pub fn look(&mut self, now: Instant, awaits: bool, signs: impl FnOnce() -> Signs) -> bool {
        if self.due.map_or(!awaits, |due| now < due) {
            return false;
        }
        let was_awaiting = self.due.take().is_some();
        let Signs { arrived, heard, round_trip } = signs();
        let is_silent = was_awaiting && arrived == self.arrived;
        if !was_awaiting {
            self.sign = heard;
        } else if !is_silent {
            self.sign = now;
        }
        self.arrived = arrived;
        if awaits {
            self.due = Some(now + probe_interval(round_trip));
        }
        self.unanswered = if awaits && is_silent { self.unanswered + 1 } else { 0 };
        awaits && is_silent
    }

    /// Returns the time of the next check.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the time without a sign of life if that is at least `silence`, and a few probes have shown it. Time in
    /// which this process was stopped does not count.
    pub fn verdict(
        &self,
        now: Instant,
        silence: Duration,
        round_trip: Duration,
    ) -> Option<Duration> {
        if self.unanswered < UNANSWERED_MIN {
            return None;
        }
        let lasted = now.saturating_duration_since(self.sign);
        let shown = UNHEARD_MAX.max(silence) + probe_interval(round_trip) * (UNANSWERED_MIN + 1);
        (lasted >= silence).then_some(lasted.min(shown))
    }
}

/// Interval of probes.
fn probe_interval(round_trip: Duration) -> Duration {
    PROBE_EVERY.max(2 * round_trip)
}

/// Interval of PINGs on idle connections.
pub(super) const PING_EVERY: Duration = Duration::from_secs(3);
/// Time without a datagram after which an idle connection is probed: a PING, and a second for its answer on the
/// longest path.
pub(super) const UNHEARD_MAX: Duration = PING_EVERY.saturating_add(Duration::from_secs(1));
/// Interval of probes, unless two round trips are longer.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Number of unanswered probes without which no connection counts as lost.
const UNANSWERED_MIN: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A connection that was heard last at its begin.
    struct Trial {
        keepalive: Keepalive,
        begin: Instant,
        heard: Instant,
    }

    impl Trial {
        fn new() -> Self {
            let begin = Instant::now();
            Self { keepalive: Keepalive::new(begin), begin, heard: begin }
        }

        fn looks(&mut self, at: Duration, awaits: bool, arrived: u64) -> bool {
            let signs = Signs { arrived, heard: self.heard, round_trip: ROUND_TRIP };
            self.keepalive.look(self.begin + at, awaits, || signs)
        }

        /// Looks each millisecond; returns the number of probes.
        fn probes(&mut self, from: u64, to: u64, arrived: u64) -> usize {
            (from..to).filter(|&at| self.looks(ms(at), true, arrived)).count()
        }

        fn verdict(&self, at: Duration, silence: Duration) -> Option<Duration> {
            self.keepalive.verdict(self.begin + at, silence, ROUND_TRIP)
        }
    }

    #[test]
    fn probes_are_evenly_spaced_and_any_acknowledgement_resets_them() {
        let mut trial = Trial::new();
        assert!(!trial.looks(ms(0), false, 5), "nothing is awaited");
        assert_eq!(trial.keepalive.due(), None);
        assert_eq!(trial.probes(0, 4999, 5), 19);
        assert_eq!(trial.verdict(ms(4999), ms(5000)), None);
        assert_eq!(trial.probes(4999, 5001, 5), 1);
        assert_eq!(trial.verdict(ms(5000), ms(5000)), Some(ms(5000)));
        assert_eq!(trial.probes(5001, 5251, 6), 0);
        assert_eq!(trial.verdict(ms(9000), ms(5000)), None);
        assert!(!trial.looks(ms(9000), false, 6), "all has arrived");
        assert_eq!(trial.keepalive.due(), None);
    }

    /// A peer that vanishes is noticed after the silence asked for, or a few probes after data or a PING was sent.
    #[test]
    fn silence_counts_from_the_last_datagram() {
        for silence in [1500, 2500, 5000].map(ms) {
            for awaits_from in [ms(0), ms(700), ms(2990), UNHEARD_MAX] {
                let mut trial = Trial::new();
                let lost = (0..20_000).map(ms).find(|&at| {
                    trial.looks(at, at >= awaits_from, 1);
                    trial.verdict(at, silence).is_some()
                });
                let lost = lost.expect("it is noticed");
                let due = silence.max(awaits_from + (UNANSWERED_MIN + 1) * PROBE_EVERY);
                assert!(lost >= silence && lost <= due, "{silence:?}, {awaits_from:?}: {lost:?}");
                assert_eq!(trial.verdict(lost, silence), Some(lost));
            }
        }
    }

    #[test]
    fn a_connection_of_which_one_direction_is_cut_is_lost() {
        let mut trial = Trial::new();
        let lost = (0..20_000).map(ms).find(|&at| {
            trial.heard = trial.begin + at;
            trial.looks(at, at >= ms(3000), 1);
            trial.verdict(at, ms(1500)).is_some()
        });
        assert_eq!(lost, Some(ms(4500)));
    }

    #[test]
    fn a_stopped_process_has_not_waited() {
        let mut trial = Trial::new();
        let hour = Duration::from_secs(3600);
        trial.looks(ms(0), true, 1);
        assert!(trial.looks(hour, true, 1));
        assert_eq!(trial.verdict(hour, ms(5000)), None);
        for probe in 1..UNANSWERED_MIN {
            trial.looks(hour + probe * PROBE_EVERY, true, 1);
        }
        let lost = hour + (UNANSWERED_MIN - 1) * PROBE_EVERY;
        assert!(trial.verdict(lost, ms(5000)).is_some_and(|silence| silence < ms(7000)));
    }
}
