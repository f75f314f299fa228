//! Rates of a job: the differences of two answers of its ranks.

use boot::{RankLoad, RankWait, Reach, SentTo};
use launch::RankView;
use launch::jobs::{JobFacts, JobLoad, RankEntry};

/// A job in an interval.
#[derive(Clone, Debug)]
pub(super) struct JobRates {
    pub facts: JobFacts,
    pub ranks: Vec<RankRates>,
}

/// A rank in an interval.
#[derive(Clone, Debug)]
pub(super) struct RankRates {
    /// Number of its world: those that are spawned follow the first.
    pub world: u32,
    pub rank: u32,
    pub host: String,
    pub site: Option<String>,
    pub state: RankActivity,
    /// Its queues at the end of the interval; none if it does not answer.
    pub queues: Option<RankLoad>,
    /// Its traffic in the interval; none in the first in which it is counted.
    pub traffic: Option<Traffic>,
}

/// Activity of a rank at the end of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RankActivity {
    HasEnded,
    NotInMpi,
    IsStopped,
    /// Threads wait in these calls.
    Waits(Vec<RankWait>),
    /// It is in the library for most of the time, in calls too short to be named.
    InMpi,
    Computes,
}

/// Traffic of a rank in an interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traffic {
    pub seconds: f64,
    /// Share of the time in which a thread was in the library, if it is known.
    pub mpi_share: Option<f64>,
    /// Messages by place.
    pub sent: Vec<SentTo>,
}

impl JobRates {
    /// Rates between two answers.
    pub fn between(before: &JobLoad, now: &JobLoad) -> Self {
        let ranks = now.ranks.iter().enumerate();
        let ranks = ranks.map(|(at, entry)| {
            let before = before.ranks.get(at).and_then(load);
            RankRates::of(entry, before)
        });
        Self { facts: now.facts.clone(), ranks: ranks.collect() }
    }
}

impl RankRates {
    fn of(entry: &RankEntry, before: Option<&RankLoad>) -> Self {
        let now = load(entry);
        let traffic = before.zip(now).and_then(|(before, now)| Traffic::between(before, now));
        let is_busy = traffic.as_ref().and_then(|it| it.mpi_share).is_some_and(|it| it >= BUSY);
        let state = match &entry.view {
            RankView::Ended => RankActivity::HasEnded,
            RankView::Silent => RankActivity::NotInMpi,
            RankView::Stopped => RankActivity::IsStopped,
            RankView::Reported(report) if !report.waits.is_empty() => {
                RankActivity::Waits(report.waits.clone())
            }
            RankView::Reported(_) if is_busy => RankActivity::InMpi,
            RankView::Reported(_) => RankActivity::Computes,
        };
        let (host, site) = (entry.host.clone(), entry.site.clone());
        let (world, rank) = (entry.world, entry.rank);
        Self { world, rank, host, site, state, queues: now.cloned(), traffic }
    }

    /// Messages and bytes per second to a distance, or to all.
    pub fn sent_per_s(&self, reach: Option<Reach>) -> Option<(f64, f64)> {
        let traffic = self.traffic.as_ref()?;
        let is_there = |sent: &&SentTo| reach.is_none_or(|reach| sent.reach == reach);
        let sum = |of: fn(&SentTo) -> u64| -> f64 {
            let sum: u64 = traffic.sent.iter().filter(is_there).map(of).sum();
            sum as f64 / traffic.seconds
        };
        Some((sum(|sent| sent.messages), sum(|sent| sent.bytes)))
    }

    /// Packets retransmitted in the interval; none if no connection has a transport of its own.
    pub fn retransmitted(&self) -> Option<u64> {
        let is_connected = |sent: &SentTo| sent.round_trip_us > 0;
        let has_connections = self.queues.as_ref()?.sent.iter().any(is_connected);
        let traffic = self.traffic.as_ref().filter(|_| has_connections)?;
        Some(traffic.sent.iter().map(|sent| sent.retransmitted).sum())
    }

    /// Order of busy ranks: bytes, then messages, then time in the library.
    pub fn business(&self) -> (u64, u64, u64) {
        let (messages, bytes) = self.sent_per_s(None).unwrap_or_default();
        let share = self.traffic.as_ref().and_then(|traffic| traffic.mpi_share).unwrap_or(0.0);
        (bytes as u64, messages as u64, (share * 1e3) as u64)
    }
}

impl Traffic {
    /// None if the rank has begun to count anew.
    fn between(before: &RankLoad, now: &RankLoad) -> Option<Self> {
        let took_us = now.at_us.checked_sub(before.at_us).filter(|took_us| *took_us > 0)?;
        let samples = now.samples.saturating_sub(before.samples);
        let in_mpi = now.samples_in_mpi.saturating_sub(before.samples_in_mpi);
        let sent = now.sent.iter().map(|now| {
            let same = |one: &&SentTo| (one.reach, one.rank) == (now.reach, now.rank);
            let before = before.sent.iter().find(same).copied().unwrap_or_default();
            SentTo {
                messages: now.messages.saturating_sub(before.messages),
                bytes: now.bytes.saturating_sub(before.bytes),
                // A connection that was opened again counts anew.
                retransmitted: now.retransmitted.saturating_sub(before.retransmitted),
                ..*now
            }
        });
        Some(Self {
            seconds: took_us as f64 / 1e6,
            mpi_share: (samples > 0).then(|| in_mpi as f64 / samples as f64),
            sent: sent.collect(),
        })
    }
}

/// Returns the latest answers of ranks: those of `now`, and of `before` for a rank that has not answered in time. Its next
/// answer then covers both intervals.
pub(super) fn filled(mut now: JobLoad, before: JobLoad) -> JobLoad {
    for (entry, before) in now.ranks.iter_mut().zip(before.ranks) {
        if load(entry).is_none() {
            *entry = before;
        }
    }
    now
}

fn load(entry: &RankEntry) -> Option<&RankLoad> {
    match &entry.view {
        RankView::Reported(report) => report.load.as_ref(),
        RankView::Ended | RankView::Silent | RankView::Stopped => None,
    }
}

/// Share of the time in the library from which on a rank without a long wait counts as being there.
const BUSY: f64 = 0.5;

#[cfg(test)]
pub(super) mod tests {
    use boot::RankReport;

    use super::*;

    pub(in super::super) fn sent(
        (reach, rank): (Reach, u32),
        messages: u64,
        bytes: u64,
        retransmitted: u64,
    ) -> SentTo {
        let round_trip_us = if reach == Reach::Node { 0 } else { 150 };
        SentTo { reach, rank, messages, bytes, retransmitted, round_trip_us }
    }

    pub(in super::super) fn entry(load: Option<RankLoad>, waits: Vec<RankWait>) -> RankEntry {
        let report = RankReport { waits, load, ..RankReport::default() };
        let site = Some("here".to_owned());
        let (world, rank) = (0, 0);
        RankEntry { world, rank, host: "one".into(), site, view: RankView::Reported(report) }
    }

    pub(in super::super) fn job(mut ranks: Vec<RankEntry>) -> JobLoad {
        (0..).zip(&mut ranks).for_each(|(rank, entry)| entry.rank = rank);
        let facts = JobFacts {
            job: 7,
            ranks: ranks.len(),
            hosts: 1,
            seconds: 62,
            command: "./ring 5".into(),
        };
        JobLoad { facts, ranks }
    }

    fn counts(at_us: u64, factor: u64) -> RankLoad {
        RankLoad {
            at_us,
            samples: 200 * factor,
            samples_in_mpi: 50 * factor,
            posted: 3,
            sent: vec![
                sent((Reach::Node, 0), 10 * factor, 1000 * factor, 0),
                sent((Reach::Far, 4), 5 * factor, 70 * factor, factor),
            ],
            ..RankLoad::default()
        }
    }

    #[test]
    fn rates_are_differences_over_the_ranks_own_time() {
        let before = job(vec![entry(Some(counts(500_000, 1)), Vec::new())]);
        let now = job(vec![entry(Some(counts(2_500_000, 3)), Vec::new())]);
        let rates = JobRates::between(&before, &now);
        let rank = &rates.ranks[0];
        assert_eq!(rank.sent_per_s(None), Some((15.0, 1070.0)));
        assert_eq!(rank.sent_per_s(Some(Reach::Far)), Some((5.0, 70.0)));
        assert_eq!(rank.sent_per_s(Some(Reach::Site)), Some((0.0, 0.0)));
        assert_eq!(rank.retransmitted(), Some(2));
        assert_eq!(rank.traffic.as_ref().and_then(|it| it.mpi_share), Some(0.25));
        assert_eq!(rank.state, RankActivity::Computes);
    }

    #[test]
    fn a_rank_that_counts_anew_has_no_rates() {
        let of = |at_us| job(vec![entry(Some(counts(at_us, 1)), Vec::new())]);
        for (before, now) in [(5, 4), (5, 5)] {
            let rates = JobRates::between(&of(before), &of(now));
            assert_eq!(rates.ranks[0].traffic, None);
            assert_eq!(rates.ranks[0].queues.as_ref().map(|queues| queues.posted), Some(3));
        }
        let silent = RankEntry { view: RankView::Silent, ..entry(None, Vec::new()) };
        let rates = JobRates::between(&job(vec![silent.clone()]), &of(1));
        assert_eq!(rates.ranks[0].traffic, None);
        let rates = JobRates::between(&of(1), &job(vec![silent]));
        assert_eq!(rates.ranks[0].state, RankActivity::NotInMpi);
        assert_eq!(rates.ranks[0].sent_per_s(None), None);
    }

    #[test]
    fn a_rank_that_has_been_late_loses_no_traffic() {
        let of = |at_us, factor| job(vec![entry(Some(counts(at_us, factor)), Vec::new())]);
        let silent = job(vec![RankEntry { view: RankView::Silent, ..entry(None, Vec::new()) }]);
        let before = filled(silent, of(1_000_000, 1));
        let rates = JobRates::between(&before, &of(3_000_000, 3));
        assert_eq!(rates.ranks[0].sent_per_s(None), Some((15.0, 1070.0)));
    }

    #[test]
    fn a_wait_that_is_known_is_named() {
        let wait = RankWait { call: "MPI_Recv".into(), ..RankWait::default() };
        let before = job(vec![entry(Some(counts(1, 0)), vec![wait.clone()])]);
        let rates = JobRates::between(&before, &before);
        assert_eq!(rates.ranks[0].state, RankActivity::Waits(vec![wait]));
        let busy = RankLoad { samples_in_mpi: 180, samples: 200, ..counts(9, 0) };
        let now = job(vec![entry(Some(busy), Vec::new())]);
        assert_eq!(JobRates::between(&before, &now).ranks[0].state, RankActivity::InMpi);
    }
}
