//! Tracing of a job (`-trace`): recordings of all ranks, collected through the agents and written on one clock.

mod clock;
mod timeline;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use recorder::Recording;

pub(crate) use clock::ClockReading;
use clock::HostClock;
use timeline::{RankTimeline, Timeline};

use crate::options::Options;
use crate::result_file::ResultFile;

/// The trace of a job that runs.
pub(crate) struct Trace {
    file: ResultFile,
    ranks: Vec<TracedPart>,
    hosts: Vec<TracedHost>,
    /// Identity of our own clock.
    own_clock: String,
}

/// The recording of a rank, as far as it has come.
#[derive(Default)]
struct TracedPart {
    /// Number of its host.
    host: usize,
    /// Name of its host in messages.
    name: String,
    bytes: Vec<u8>,
    state: PartState,
}

/// State of a rank's recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PartState {
    /// Its rank runs, or was never started.
    #[default]
    Unknown,
    /// Its rank has ended.
    Awaited,
    /// All of it has come.
    Whole,
    /// Its agent is lost.
    Lost,
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
        let part = |(&host, name): (&usize, &String)| TracedPart {
            host,
            name: name.clone(),
            ..TracedPart::default()
        };
        let ranks = homes.iter().zip(names).map(part).collect();
        Ok(Some(Self { file, ranks, hosts, own_clock: ClockReading::now().clock }))
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

    /// Notes that a rank has ended, after which its recording comes.
    pub fn expect(&mut self, rank: u32) {
        if let Some(part) = self.ranks.get_mut(rank as usize)
            && part.state == PartState::Unknown
        {
            part.state = PartState::Awaited;
        }
    }

    /// Takes a piece of a rank's recording; an empty one ends it.
    pub fn take_piece(&mut self, rank: u32, piece: &[u8]) {
        let room = room(self.ranks.len()) as usize;
        let Some(part) = self.ranks.get_mut(rank as usize) else { return };
        if piece.is_empty() {
            part.state = PartState::Whole;
        } else if part.bytes.len() + piece.len() <= room {
            part.bytes.extend_from_slice(piece);
        }
    }

    /// Expects nothing more of ranks whose agent is lost.
    pub fn give_up(&mut self, ranks: &[u32]) {
        for &rank in ranks {
            if let Some(part) = self.ranks.get_mut(rank as usize)
                && part.state != PartState::Whole
            {
                part.state = PartState::Lost;
            }
        }
    }

    /// True while a recording of an ended rank is to come.
    pub fn awaits_recordings(&self) -> bool {
        self.ranks.iter().any(|part| part.state == PartState::Awaited)
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
        let Self { file, ranks, hosts, .. } = self;
        let name = file.name();
        let missing: Vec<String> = (0u32..)
            .zip(&ranks)
            .filter(|(_, part)| matches!(part.state, PartState::Awaited | PartState::Lost))
            .map(|(rank, part)| format!("{rank} on {}", part.name))
            .collect();
        if !missing.is_empty() {
            tell!("mpiexec: -trace {name}: the events are missing of rank {}", some(&missing));
        }
        let room = room(ranks.len());
        let timelines: Vec<RankTimeline> = (0u32..)
            .zip(ranks)
            .map(|(rank, part)| RankTimeline {
                rank,
                host: part.name,
                recording: Recording::parse(&part.bytes, room),
                clock: hosts.get(part.host).map(|host| host.clock.clone()).unwrap_or_default(),
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

/// Returns the first of these in one line.
fn some(all: &[String]) -> String {
    let shown = all[..all.len().min(SHOWN)].join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} others"),
    }
}

/// Room for the recordings of all ranks: four million events, in a file of about 1 GB.
const ROOM_OF_ALL: u64 = 256 << 20;
/// Room of a rank: between sixteen thousand and a million events.
const ROOM_MIN: u64 = 1 << 20;
const ROOM_MAX: u64 = 64 << 20;
/// Number of ranks that a message names.
const SHOWN: usize = 4;

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
    fn a_recording_is_awaited_from_the_end_of_its_rank_until_it_is_whole_or_lost() {
        let mut trace = trace(4);
        assert!(!trace.awaits_recordings());
        trace.expect(1);
        trace.expect(2);
        trace.take_piece(1, b"some");
        trace.take_piece(1, b"");
        assert!(trace.awaits_recordings());
        trace.expect(1);
        trace.give_up(&[1, 2, 3, 99]);
        assert!(!trace.awaits_recordings());
        assert_eq!(trace.ranks[1].bytes, b"some");
        let states: Vec<_> = trace.ranks.iter().map(|part| part.state).collect();
        assert_eq!(states[..2], [PartState::Unknown, PartState::Whole]);
        assert_eq!(states[2..], [PartState::Lost, PartState::Lost]);
    }

    #[test]
    fn recordings_are_bounded_whatever_an_agent_sends() {
        let mut trace = trace(2);
        let piece = vec![0; 1 << 20];
        (0..100).for_each(|_| trace.take_piece(0, &piece));
        assert_eq!(trace.ranks[0].bytes.len() as u64, room(2));
        trace.take_piece(77, &piece);
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

    #[test]
    fn many_ranks_are_named_in_one_line() {
        let all: Vec<String> = (0..9).map(|rank| rank.to_string()).collect();
        assert_eq!(some(&all), "0, 1, 2, 3 and 5 others");
        assert_eq!(some(&all[..2]), "0, 1");
    }
}
