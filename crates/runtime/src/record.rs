//! Traffic from this process to each rank, counted for `mpiexec -record`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use boot::Job;
use cost::CostStore;
use engine::{Engine, Envelope, SendObserver};
use lock::{Guard, Lock};
use place::traffic::{Counted, Sent, TrafficKind};
use topo::StoredCosts;
use wire::PeerId;

use crate::context;

/// Counts so far.
#[derive(Debug, Default)]
struct TrafficRecord {
    rank: u32,
    /// Number of processes in the job.
    size: u32,
    /// Last argument of `MPI_Pcontrol`.
    level: i32,
    /// All levels that there were.
    levels: BTreeSet<i32>,
    /// Contexts of communicators that all processes are in.
    of_all: BTreeSet<u64>,
    /// Messages and their bytes.
    sent: BTreeMap<(i32, TrafficKind, u32), (u64, u64)>,
}

/// Counts from now on, if the launcher wants to know.
pub(crate) fn begin(engine: &mut Engine, job: &Job) {
    if !is_wanted() {
        return;
    }
    let (rank, size) = (job.rank(), job.size());
    let (levels, of_all) = (BTreeSet::from([FIRST_LEVEL]), BTreeSet::from([context::WORLD]));
    let record = TrafficRecord {
        rank,
        size,
        level: FIRST_LEVEL,
        levels,
        of_all,
        ..TrafficRecord::default()
    };
    if RECORD.set(Lock::new(record)).is_ok() {
        engine.set_send_observer(Box::new(Counter));
    }
}

/// True if the launcher asked for a record.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(boot::RECORD_VARIABLE).is_some()
}

/// True while traffic is counted.
pub fn is_on() -> bool {
    RECORD.get().is_some()
}

/// Notes that a communicator of `size` processes has this context.
pub fn note_context(context: u64, size: u32) {
    if let Some(mut record) = record()
        && size == record.size
        && record.of_all.len() < CONTEXTS_MAX
    {
        record.of_all.insert(context);
    }
}

/// A phase of the application begins (MPI-5.0 §15.2.4). At level 0 nothing is counted.
pub fn set_level(level: i32) {
    if let Some(mut record) = record() {
        if record.levels.len() < LEVELS_MAX {
            record.levels.insert(level);
        }
        if record.levels.contains(&level) {
            record.level = level;
        }
    }
}

/// Returns the counts in the launcher's format, if it asked for them. `site` is this process's site.
pub(crate) fn counted(site: u32) -> Option<Vec<u8>> {
    let record = record()?;
    let one = |(&(level, kind, to), &(messages, bytes))| Sent { level, kind, to, messages, bytes };
    // By now the cache knows this host.
    let host = StoredCosts::of_environment().host();
    let speed_percent = topo::sample::speed_percent(&host);
    let sent = record.sent.iter().map(one).collect();
    Some(Counted { site, speed_percent, sent }.emit())
}

fn record() -> Option<Guard<'static, TrafficRecord>> {
    RECORD.get().map(Lock::lock)
}

/// Stands with the engine for the record.
#[derive(Debug)]
struct Counter;

impl SendObserver for Counter {
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, bytes: u64) {
        if let Some(mut record) = record() {
            let kind = record.kind(envelope.context);
            record.count(peer.0, kind, bytes);
        }
    }

    fn note_access(&mut self, peer: PeerId, bytes: u64) {
        if let Some(mut record) = record() {
            record.count(peer.0, TrafficKind::PointToPoint, bytes);
        }
    }
}

impl TrafficRecord {
    fn count(&mut self, to: u32, kind: TrafficKind, bytes: u64) {
        // Peers of other jobs have no rank in this one.
        if to == self.rank || to >= self.size || self.level == 0 {
            return;
        }
        let sent = self.sent.entry((self.level, kind, to)).or_default();
        sent.0 += 1;
        sent.1 += bytes;
    }

    fn kind(&self, context: u64) -> TrafficKind {
        match context::if_collective(context) {
            None => TrafficKind::PointToPoint,
            Some(own) if self.of_all.contains(&own) => TrafficKind::CollectiveOfAll,
            Some(_) => TrafficKind::Collective,
        }
    }
}

static RECORD: OnceLock<Lock<TrafficRecord>> = OnceLock::new();

/// The level before the application sets one: profiling is enabled.
const FIRST_LEVEL: i32 = 1;

/// Number of levels with counts of their own. Deeper levels count as the last.
const LEVELS_MAX: usize = 64;

/// Communicators of all processes that are known as such.
const CONTEXTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_count_by_what_they_are_for() {
        let mut record = TrafficRecord { rank: 1, size: 4, level: 1, ..TrafficRecord::default() };
        record.of_all.extend([0, 32]);
        for (to, context, bytes) in [
            (0, 0, 10),
            (0, 0, 20),
            (1, 0, 99),
            (2, 1, 5),
            (2, 33, 5),
            (3, 65, 7),
            (3, 66, 7),
            (0, 1 << 63 | 5, 1),
            (4, 0, 1),
        ] {
            let kind = record.kind(context);
            record.count(to, kind, bytes);
        }
        record.level = 0;
        record.count(0, TrafficKind::PointToPoint, 1000);
        let sent: Vec<_> = record.sent.into_iter().collect();
        assert_eq!(
            sent,
            [
                ((1, TrafficKind::PointToPoint, 0), (3, 31)),
                ((1, TrafficKind::Collective, 3), (2, 14)),
                ((1, TrafficKind::CollectiveOfAll, 2), (2, 10)),
            ]
        );
    }
}
