//! Tracing of a job (`-trace`): recordings of all ranks, collected through the agents and written on one clock.

mod clock;
mod timeline;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use recorder::Recording;

pub(crate) use clock::ClockReading;
use clock::HostClock;
use timeline::{RankTimeline, Timeline};

use crate::collected::{Collected, some};
use crate::options::Options;
use crate::result_file::ResultFile;

/// The trace of a job that runs.
pub(crate) struct Trace {
    file: ResultFile,
    /// The recordings of the ranks.
    pub collected: Collected,
    /// Number of each rank's host.
    homes: Vec<usize>,
    hosts: Vec<TracedHost>,
    /// Identity of our own clock.
    own_clock: String,
}

/// A host with ranks.
struct TracedHost {
    /// A rank there.
    rank: u32,
    clock: HostClock,
}

impl Trace {
    /// Returns the requested trace. Makes sure that the file can be written; an existing file stays as it is until then.
    ///
    /// # Errors
    /// Fails if the file cannot be written; one line names it.
    pub fn of(
        options: &Options,
        homes: &[usize],
        names: &[String],
    ) -> Result<Option<Self>, String> {
        let Some(path) = options.trace.clone() else { return Ok(None) };
        let file = ResultFile::open("-trace", path)?;
        let count = homes.iter().max().map_or(0, |last| last + 1);
        let first = |host: usize| homes.iter().position(|home| *home == host).unwrap_or_default();
        let host = |number| TracedHost { rank: first(number) as u32, clock: HostClock::default() };
        let hosts = (0..count).map(host).collect();
        let collected = Collected::new(names, room(names.len()));
        let own_clock = ClockReading::now().clock;
        Ok(Some(Self { file, collected, homes: homes.to_vec(), hosts, own_clock }))
    }

    /// Begins to compare the clocks of all hosts. Returns a rank on each, whose agent is to be asked.
    pub fn begin_comparison(&mut self) -> Vec<u32> {
        let ask = |host: &mut TracedHost| {
            host.clock.begin(recorder::now_ns());
            host.rank
        };
        self.hosts.iter_mut().map(ask).collect()
    }

    /// Takes the answer of the agent of a rank. Returns true if it is to be asked again.
    pub fn take_reading(&mut self, rank: u32, reading: &ClockReading) -> bool {
        let now_ns = recorder::now_ns();
        let host = self.hosts.iter_mut().find(|host| host.rank == rank);
        host.is_some_and(|host| host.clock.take(reading, (now_ns, &self.own_clock)))
    }

    /// True while an answer about a clock is to come.
    pub fn awaits_readings(&self) -> bool {
        self.hosts.iter().any(|host| host.clock.is_asking())
    }

    /// Writes the file, and says what is missing from it.
    ///
    /// # Errors
    /// Fails if the file cannot be written, with one line.
    pub fn finish(self) -> Result<(), String> {
        let Self { file, collected, homes, hosts, .. } = self;
        let name = file.name();
        let missing = collected.missing();
        if !missing.is_empty() {
            tell!("mpiexec: -trace {name}: the events are missing of rank {}", some(&missing));
        }
        let room = room(homes.len());
        let timelines: Vec<RankTimeline> = (0u32..)
            .zip(homes.iter().zip(collected.into_parts()))
            .map(|(rank, (home, (host, bytes)))| RankTimeline {
                rank,
                host,
                recording: Recording::parse(&bytes, room),
                clock: hosts.get(*home).map(|host| host.clock.clone()).unwrap_or_default(),
            })
            .collect();
        let full: Vec<String> = timelines
            .iter()
            .filter(|one| one.recording.dropped > 0)
            .map(|one| format!("{} ({} events)", one.rank, one.recording.dropped))
            .collect();
        if !full.is_empty() {
            let events = room / recorder::EVENT_LEN - 1;
            let full = some(&full);
            let text = "the last ones are missing of rank";
            tell!("mpiexec: -trace {name}: a rank has room for {events} events; {text} {full}");
        }
        let since_boot = Duration::from_nanos(recorder::now_ns());
        let boot = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let boot = boot.saturating_sub(since_boot);
        file.write(|out| Timeline::of(&timelines).write(boot, out))
    }
}

/// Returns the room for the recording of each of `ranks` ranks, in bytes. It bounds the memory of a rank, and that of
/// `mpiexec` for all together.
pub(crate) fn room(ranks: usize) -> u64 {
    (ROOM_OF_ALL / ranks.max(1) as u64).clamp(ROOM_MIN, ROOM_MAX)
}

/// Room for the recordings of all ranks: four million events, in a file of about 1 GB.
const ROOM_OF_ALL: u64 = 256 << 20;
/// Room of a rank: between sixteen thousand and a million events.
const ROOM_MIN: u64 = 1 << 20;
const ROOM_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(ranks: usize) -> Trace {
        let options = Options { trace: Some("/dev/null".into()), ..Options::default() };
        let homes: Vec<usize> = (0..ranks).map(|rank| rank / 2).collect();
        let names: Vec<String> = homes.iter().map(|home| format!("host{home}")).collect();
        Trace::of(&options, &homes, &names).expect("writable").expect("wanted")
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused() {
        let options = Options { trace: Some("/nowhere/run.json".into()), ..Options::default() };
        let error = Trace::of(&options, &[0], &["here".into()]).map(drop).expect_err("refused");
        assert!(error.starts_with("-trace /nowhere/run.json: cannot be written: "), "{error}");
        assert!(Trace::of(&Options::default(), &[], &[]).is_ok_and(|trace| trace.is_none()));
    }

    #[test]
    fn the_room_of_a_rank_shrinks_with_their_number() {
        assert_eq!([room(1), room(64), room(100_000)], [ROOM_MAX, 4 << 20, ROOM_MIN]);
    }

    #[test]
    fn one_rank_of_each_host_is_asked_for_the_clock() {
        let mut trace = trace(5);
        assert_eq!(trace.begin_comparison(), [0, 2, 4]);
        assert!(trace.awaits_readings());
        let far = ClockReading { ns: 1, clock: "far".into() };
        assert!(trace.take_reading(2, &far));
        assert!(!trace.take_reading(3, &far));
        assert!(!trace.take_reading(0, &ClockReading::now()));
        assert!(!trace.take_reading(4, &ClockReading::now()));
        while trace.take_reading(2, &far) {}
        assert!(!trace.awaits_readings());
    }
}
