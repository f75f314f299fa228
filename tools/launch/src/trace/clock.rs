//! Clocks of the hosts, compared with that of `mpiexec` (Cristian, "Probabilistic clock synchronization", 1989).
//!
//! `mpiexec` asks an agent for its `CLOCK_MONOTONIC` and takes the middle of the round trip for the time of the answer. The
//! error is at most half of the round trip, so the shortest of several counts. The comparison is repeated at the end of
//! the job: between the two, the clocks are taken to drift evenly. A host with the clock of `mpiexec` needs none of this.

use std::fs;

use serde::{Deserialize, Serialize};

/// The clock of a host at some time, as its agent reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockReading {
    /// Its `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// Identity of the clock: the kernel's, and that of its time namespace.
    pub clock: String,
}

impl ClockReading {
    /// Reads the clock of this host.
    pub fn now() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // Kernels before Linux 5.6 have no time namespaces.
        let space = fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let clock = format!("{} {}", boot.trim(), space.display());
        Self { ns: recorder::now_ns(), clock }
    }
}

/// A host's clock, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostClock {
    /// True if it is the clock of `mpiexec`.
    is_own: bool,
    /// Time of the last question, by the clock of `mpiexec`.
    asked_ns: u64,
    /// Number of questions left in this round.
    left: u32,
    /// Best comparisons of all rounds.
    rounds: Vec<ClockSample>,
}

/// One comparison of a host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockSample {
    /// Time by the host's clock.
    at_ns: u64,
    /// Its lead over the clock of `mpiexec`.
    lead_ns: i64,
    /// Most by which the lead is wrong.
    error_ns: u64,
}

impl HostClock {
    /// Begins a round of questions.
    pub fn begin(&mut self, now_ns: u64) {
        (self.asked_ns, self.left) = (now_ns, QUESTIONS);
        self.rounds.push(ClockSample { at_ns: 0, lead_ns: 0, error_ns: u64::MAX });
    }

    /// Takes an answer that came at `now_ns`. Returns true if another question is to be sent at that time.
    pub fn take(&mut self, reading: &ClockReading, (now_ns, own): (u64, &str)) -> bool {
        if self.left == 0 {
            return false;
        }
        let error_ns = now_ns.saturating_sub(self.asked_ns).div_ceil(2);
        let middle_ns = self.asked_ns + error_ns;
        let lead_ns = reading.ns.wrapping_sub(middle_ns) as i64;
        let best = self.rounds.last_mut().filter(|best| error_ns < best.error_ns);
        if let Some(best) = best {
            *best = ClockSample { at_ns: reading.ns, lead_ns, error_ns };
        }
        self.is_own = !reading.clock.trim().is_empty() && reading.clock == own;
        self.left = if self.is_own { 0 } else { self.left - 1 };
        self.asked_ns = now_ns;
        self.left > 0
    }

    /// True while an answer is awaited.
    pub fn is_asking(&self) -> bool {
        self.left > 0
    }

    /// Returns a time of this host by the clock of `mpiexec`.
    pub fn convert(&self, host_ns: u64) -> u64 {
        let (Some(first), Some(last)) = (self.answered().next(), self.answered().last()) else {
            return host_ns;
        };
        let span = last.at_ns.saturating_sub(first.at_ns);
        let past = host_ns.saturating_sub(first.at_ns).min(span);
        let drift = i128::from(last.lead_ns) - i128::from(first.lead_ns);
        let drift = drift * i128::from(past) / i128::from(span.max(1));
        let own = i128::from(host_ns) - i128::from(first.lead_ns) - drift;
        u64::try_from(own).unwrap_or_default()
    }

    /// Returns the most by which converted times are wrong, if the clocks drift evenly. None if the host has not
    /// answered.
    pub fn error_ns(&self) -> Option<u64> {
        if self.is_own { Some(0) } else { self.answered().map(|one| one.error_ns).max() }
    }

    /// Comparisons of rounds that were answered; none for our own clock.
    fn answered(&self) -> impl Iterator<Item = &ClockSample> {
        self.rounds.iter().filter(|round| !self.is_own && round.error_ns < u64::MAX)
    }
}

/// Number of questions of a round.
const QUESTIONS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of a host whose clock leads by `lead` and that is `there` and `back` away.
    fn round(clock: &mut HostClock, begin: u64, lead: i64, trips: &[(u64, u64)]) {
        let mut now = begin;
        clock.begin(now);
        for (there, back) in trips {
            let ns = now.wrapping_add(*there).wrapping_add(lead as u64);
            now += there + back;
            clock.take(&ClockReading { ns, clock: "far".into() }, (now, "own"));
        }
    }

    #[test]
    fn the_shortest_round_trip_gives_the_lead_and_its_error() {
        let mut clock = HostClock::default();
        round(&mut clock, 1000, 5_000_000, &[(9000, 100), (300, 500), (100, 8000)]);
        assert_eq!(clock.error_ns(), Some(400));
        let own = clock.convert(5_000_000 + 7000);
        assert!(own.abs_diff(7000) <= 400, "{own}");
        assert!(clock.is_asking());
    }

    #[test]
    fn a_clock_that_is_behind_is_converted_too() {
        let mut clock = HostClock::default();
        round(&mut clock, 1_000_000, -900_000, &[(10, 10)]);
        assert_eq!(clock.convert(100_000), 1_000_000);
        assert_eq!(clock.convert(0), 900_000);
    }

    #[test]
    fn drift_is_spread_over_the_job() {
        let mut clock = HostClock::default();
        round(&mut clock, 0, 1000, &[(0, 0)]);
        round(&mut clock, 1_000_000, 2000, &[(0, 0)]);
        let host = |own: u64| own + 1000 + own / 1000;
        for own in [0, 250_000, 500_000, 1_000_000] {
            assert!(clock.convert(host(own)).abs_diff(own) <= 1, "{own}");
        }
        // Beyond both comparisons the nearer one counts.
        assert_eq!(clock.convert(5_002_000), 5_000_000);
        assert_eq!(clock.convert(500), 0);
    }

    #[test]
    fn our_own_clock_needs_no_conversion_and_no_second_question() {
        let mut clock = HostClock::default();
        clock.begin(100);
        let own = ClockReading::now().clock;
        assert!(!clock.take(&ClockReading { ns: 7, clock: own.clone() }, (900, &own)));
        assert_eq!((clock.error_ns(), clock.convert(12)), (Some(0), 12));
    }

    #[test]
    fn a_host_that_never_answers_has_no_error_bound() {
        let mut clock = HostClock::default();
        clock.begin(100);
        assert_eq!((clock.error_ns(), clock.convert(12)), (None, 12));
        assert!(clock.is_asking());
    }
}
