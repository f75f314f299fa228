//! Keepalive probes on connections from which no acknowledgement arrives.
//!
//! QUIC doubles its probe timeout (PTO) with every probe: after an outage of 20 s, recovery may take another 20 s.
//! Here an ack-eliciting packet leaves at constant intervals, and the first acknowledgement triggers the
//! retransmission of all lost packets. The limit is a number of probes, not a time: a process that was stopped has
//! not waited.

use std::time::{Duration, Instant};

/// Keepalive state of one connection.
#[derive(Debug, Default)]
pub(super) struct Keepalive {
    /// Number of acknowledged packets at the last check.
    arrived: u64,
    /// Number of consecutive probes without an acknowledgement.
    unanswered: u32,
    /// Time of the next check while an acknowledgement is awaited.
    due: Option<Instant>,
}

/// Connection state that a check needs.
pub(super) struct Signs {
    /// Number of packets that the peer has acknowledged.
    pub arrived: u64,
    pub round_trip: Duration,
}

impl Keepalive {
    /// Checks the connection if a check is due, and returns true if a probe is to be sent. `awaits` is true while
    /// sent data is unacknowledged.
    pub fn look(&mut self, now: Instant, awaits: bool, signs: impl FnOnce() -> Signs) -> bool {
        if self.due.map_or(!awaits, |due| now < due) {
            return false;
        }
        let was_awaiting = self.due.take().is_some();
        let Signs { arrived, round_trip } = signs();
        let is_silent = was_awaiting && arrived == self.arrived;
        self.arrived = arrived;
        if awaits {
            self.due = Some(now + PROBE_EVERY.max(2 * round_trip));
        }
        self.unanswered = if awaits && is_silent { self.unanswered + 1 } else { 0 };
        awaits && is_silent
    }

    /// Returns the time of the next check.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the number of unanswered probes once it reaches [`UNANSWERED_MAX`].
    pub fn verdict(&self) -> Option<u32> {
        (self.unanswered >= UNANSWERED_MAX).then_some(self.unanswered)
    }
}

/// Interval of probes, unless two round trips are longer.
pub(super) const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Number of unanswered probes after which the connection counts as lost: 5 s or more.
pub(super) const UNANSWERED_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(keepalive: &mut Keepalive, at: Instant, awaits: bool, arrived: u64) -> bool {
        keepalive.look(at, awaits, || Signs { arrived, round_trip: Duration::from_millis(10) })
    }

    #[test]
    fn probes_are_evenly_spaced_and_any_acknowledgement_resets_them() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::default();
        assert!(!looks(&mut keepalive, begin, false, 5), "nothing is awaited");
        assert_eq!(keepalive.due(), None);
        let probes = |keepalive: &mut Keepalive, from: u64, to: u64, arrived| {
            (from..to)
                .filter(|&ms| looks(keepalive, begin + Duration::from_millis(ms), true, arrived))
                .count()
        };
        assert_eq!(probes(&mut keepalive, 0, 4999, 5), 19);
        assert_eq!(keepalive.verdict(), None);
        assert_eq!(probes(&mut keepalive, 4999, 5001, 5), 1);
        assert_eq!(keepalive.verdict(), Some(UNANSWERED_MAX));
        assert_eq!(probes(&mut keepalive, 5001, 5251, 6), 0);
        assert_eq!(keepalive.verdict(), None);
        assert!(
            !looks(&mut keepalive, begin + Duration::from_secs(9), false, 6),
            "all has arrived"
        );
        assert_eq!(keepalive.due(), None);
    }

    #[test]
    fn a_stopped_process_does_not_count_probes() {
        let begin = Instant::now();
        let mut keepalive = Keepalive::default();
        looks(&mut keepalive, begin, true, 1);
        assert!(looks(&mut keepalive, begin + Duration::from_secs(3600), true, 1));
        assert_eq!(keepalive.verdict(), None);
    }
}
