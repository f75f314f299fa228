//! Connections on which no answer comes: whether the path is back is asked often, for the protocol itself asks
//! ever more rarely.
//!
//! The protocol doubles its timeout with every probe: a path that was gone for 20 s may be found whole another 20 s
//! later. Here something that has to be acknowledged leaves in even intervals, and the first answer has
//! everything that was lost sent again. Knocks are counted, not seconds: a process that was stopped has not
//! waited.

use std::time::{Duration, Instant};

/// Watches one connection.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    /// Packets that had arrived at the last look.
    arrived: u64,
    /// Knocks in a row since one came.
    unanswered: u32,
    /// When to look again, once something is awaited.
    due: Option<Instant>,
}

/// What a look needs to know of the connection.
pub(super) struct Signs {
    /// Packets that have arrived there, as far as is known here.
    pub arrived: u64,
    pub round_trip: Duration,
}

impl Vigil {
    /// Looks, if it is time to; whether to knock. `awaits` says whether something that has left is to be
    /// acknowledged.
    pub fn look(&mut self, now: Instant, awaits: bool, signs: impl FnOnce() -> Signs) -> bool {
        if self.due.map_or(!awaits, |due| now < due) {
            return false;
        }
        let was_watching = self.due.take().is_some();
        let Signs { arrived, round_trip } = signs();
        let is_silent = was_watching && arrived == self.arrived;
        self.arrived = arrived;
        if awaits {
            self.due = Some(now + KNOCK_EVERY.max(2 * round_trip));
        }
        self.unanswered = if awaits && is_silent { self.unanswered + 1 } else { 0 };
        awaits && is_silent
    }

    /// When to look next.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// How often nobody has answered, if that is too often.
    pub fn verdict(&self) -> Option<u32> {
        (self.unanswered >= UNANSWERED_MAX).then_some(self.unanswered)
    }
}

/// From one knock to the next, or two round trips if those are longer.
const KNOCK_EVERY: Duration = Duration::from_millis(250);
/// A host that answers none of so many, in five seconds or more, cannot be reached, or not by this connection.
pub(super) const UNANSWERED_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(vigil: &mut Vigil, at: Instant, awaits: bool, arrived: u64) -> bool {
        vigil.look(at, awaits, || Signs { arrived, round_trip: Duration::from_millis(10) })
    }

    #[test]
    fn knocks_are_even_and_any_acknowledgement_is_an_answer() {
        let begin = Instant::now();
        let mut vigil = Vigil::default();
        assert!(!looks(&mut vigil, begin, false, 5), "nothing is awaited");
        assert_eq!(vigil.due(), None);
        let knocks = |vigil: &mut Vigil, from: u64, to: u64, arrived| {
            (from..to)
                .filter(|&ms| looks(vigil, begin + Duration::from_millis(ms), true, arrived))
                .count()
        };
        assert_eq!(knocks(&mut vigil, 0, 4999, 5), 19);
        assert_eq!(vigil.verdict(), None);
        assert_eq!(knocks(&mut vigil, 4999, 5001, 5), 1);
        assert_eq!(vigil.verdict(), Some(UNANSWERED_MAX));
        assert_eq!(knocks(&mut vigil, 5001, 5251, 6), 0);
        assert_eq!(vigil.verdict(), None);
        assert!(!looks(&mut vigil, begin + Duration::from_secs(9), false, 6), "all has arrived");
        assert_eq!(vigil.due(), None);
    }

    #[test]
    fn a_process_that_was_stopped_has_not_waited() {
        let begin = Instant::now();
        let mut vigil = Vigil::default();
        looks(&mut vigil, begin, true, 1);
        assert!(looks(&mut vigil, begin + Duration::from_secs(3600), true, 1));
        assert_eq!(vigil.verdict(), None);
    }
}
