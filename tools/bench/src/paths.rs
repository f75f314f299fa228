//! Half a round trip to another process over several paths, which one pair of processes measures in turn.
//!
//! `overhead` compares a bare rail with an equal rail below the engine, and with one below engine and progress.
//! Each path has a rail of its own, behind the same trait object. Over the bare rail, each message is copied
//! into a frame and out of it, and the receiver polls. So the first difference is the cost of ordering and
//! matching, and the second that of the lock, of threads and of waiting.
//!
//! `addressed` compares a bare rail, a message through engine and progress, and a put through both into memory
//! that the receiver polls. A put is not matched, and the receiver posts nothing.

mod bare;
mod below_engine;
mod below_progress;
mod link;
mod message;
mod pair;
mod put;

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant, SystemTime};

use bare::BareRail;
use below_engine::RailBelowEngine;
use below_progress::RailBelowProgress;
use clap::Args;
use link::open_rail;
use message::{MessagePath, SIZE_MAX};
use pair::{AnsweringProcess, PeerPipes, take_core};
use put::PutPath;
use serde::Serialize;

use crate::record::{Case, Clock, Description, Measurement};

/// Paths that an instrument compares.
#[derive(Debug)]
pub struct PathComparison {
    /// Name of the command that measures them.
    program: &'static str,
    paths: &'static [PathKind],
}

/// `overhead`: what engine and progress cost.
pub static OVERHEAD: PathComparison = PathComparison {
    program: "overhead-pair",
    paths: &[PathKind::BareRail, PathKind::Engine, PathKind::Progress],
};

/// `addressed`: a put beside a message.
pub static ADDRESSED: PathComparison = PathComparison {
    program: "addressed-pair",
    paths: &[PathKind::BareRail, PathKind::Progress, PathKind::Put],
};

#[derive(Clone, Copy, Debug)]
enum PathKind {
    BareRail,
    /// A message through the engine.
    Engine,
    /// A message through engine and progress.
    Progress,
    /// A put through engine and progress.
    Put,
}

/// Options of the command, which runs in a process of its own and starts the other.
#[derive(Debug, Args)]
pub struct PairOptions {
    /// Answer the process that started this one
    #[arg(long)]
    answers: bool,
    /// The time for each rail and size
    seconds: f64,
    /// Sizes of messages in bytes
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SIZE_MAX)))]
    sizes: Vec<u32>,
}

/// Measures and prints lines of JSON like the programs, or answers.
///
/// # Errors
/// One line for people.
pub fn run(comparison: &PathComparison, options: &PairOptions) -> Result<(), String> {
    if options.answers {
        let cores = take_core(1)?;
        let mut other = PeerPipes { from: std::io::stdin().lock(), to: std::io::stdout() };
        let secret = other.hear()?;
        return RAILS.iter().try_for_each(|rail| {
            let mut paths = Paths::open(comparison, rail, (1, cores), secret, &mut other)?;
            options.sizes.iter().try_for_each(|size| paths.answer(*size as usize))?;
            // The links stay until the last answer has come.
            other.hear()
        });
    }
    let words = [comparison.program, "--answers", &options.seconds.to_string()].map(str::to_owned);
    let words = words.into_iter().chain(options.sizes.iter().map(u32::to_string));
    let mut child = AnsweringProcess::start(words)?;
    // Binding comes after the start of the child, which inherits the affinity.
    let cores = take_core(0)?;
    let mut secret = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    read.map_err(|error| format!("/dev/urandom: {error}"))?;
    child.other.tell(&secret)?;
    print(&description(comparison))?;
    for rail in RAILS {
        let mut paths = Paths::open(comparison, rail, (0, cores), secret, &mut child.other)?;
        for size in &options.sizes {
            for measurement in paths.measure(rail, *size as usize, options.seconds)? {
                print(&measurement)?;
            }
        }
        child.other.tell(&())?;
    }
    child.end()
}

/// Names of the compared rails.
const RAILS: [&str; 2] = ["shm", "tcp"];

/// Paths to the other process over one kind of rail.
struct Paths(Vec<Box<dyn MessagePath>>);

impl Paths {
    /// Opens all paths. The process of rank 0 connects, the other accepts; each has so many cores.
    fn open(
        comparison: &PathComparison,
        name: &str,
        (rank, cores): (u32, usize),
        secret: [u8; 32],
        other: &mut PeerPipes<impl BufRead, impl Write>,
    ) -> Result<Self, String> {
        let rails = (0..).zip(comparison.paths).map(|(job, _)| open_rail(name, rank, job, secret));
        let rails = rails.collect::<Result<Vec<_>, String>>()?;
        other.tell(&rails.iter().map(|rail| rail.address()).collect::<Vec<_>>())?;
        let addresses: Vec<Vec<u8>> = other.hear()?;
        let mut paths: Vec<Box<dyn MessagePath>> = Vec::new();
        for ((kind, rail), address) in comparison.paths.iter().zip(rails).zip(addresses) {
            paths.push(match kind {
                PathKind::BareRail => Box::new(BareRail::open(rail, rank, &address)?),
                PathKind::Engine => Box::new(RailBelowEngine::open(rail, rank, &address)?),
                PathKind::Progress => {
                    Box::new(RailBelowProgress::open(rail, rank, cores, address)?)
                }
                PathKind::Put => Box::new(PutPath::open(rail, rank, cores, address, other)?),
            });
        }
        // Nothing is sent before the links are up.
        other.tell(&())?;
        other.hear::<()>()?;
        Ok(Self(paths))
    }

    /// Alternates between all paths until the time is over; a sample is the mean of a batch.
    fn measure(
        &mut self,
        rail: &str,
        size: usize,
        seconds: f64,
    ) -> Result<Vec<Measurement>, String> {
        let Self(paths) = self;
        paths.iter_mut().for_each(|path| path.prepare(size));
        let mut times: Vec<PathTimes> = paths.iter().map(|_| PathTimes::default()).collect();
        let start = Instant::now();
        let mut ends = false;
        while !ends {
            let spent = start.elapsed().as_secs_f64();
            let count = times.last().map_or(0, |times| times.samples_us.len());
            ends = count == SAMPLES_MAX || (count >= SAMPLES_LEAST && spent >= seconds);
            let is_warm = spent >= seconds / 4.0;
            for (path, times) in paths.iter_mut().zip(&mut times) {
                path.set_final(ends);
                path.ask(WARM_UP)?;
                let begin = Instant::now();
                path.ask(BATCH)?;
                let each_us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(2 * BATCH);
                if !path.is_echo() {
                    return Err(format!("{rail}: {size} bytes came back changed"));
                }
                times.add(each_us, is_warm);
            }
        }
        let measurement = |(count, times): (u64, PathTimes)| {
            let case = Case { bytes: size as u64, count, ranks: 2 };
            Measurement::of(rail, case, times.first_us.unwrap_or_default(), &times.samples_us)
        };
        Ok((0..).zip(times).map(measurement).collect())
    }

    fn answer(&mut self, size: usize) -> Result<(), String> {
        let Self(paths) = self;
        paths.iter_mut().for_each(|path| path.prepare(size));
        let mut ended = false;
        while !ended {
            for path in paths.iter_mut() {
                path.answer(WARM_UP + BATCH)?;
                ended = path.is_final();
            }
        }
        Ok(())
    }
}

/// Times of a message of one size over a path, in µs.
#[derive(Default)]
struct PathTimes {
    first_us: Option<f64>,
    samples_us: Vec<f64>,
}

impl PathTimes {
    /// Adds the mean time of a batch; it is a sample if it is neither the first nor warms up.
    fn add(&mut self, each_us: f64, is_warm: bool) {
        if self.first_us.is_none() {
            self.first_us = Some(each_us);
        } else if is_warm {
            self.samples_us.push(each_us);
        }
    }
}

fn print(line: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(line).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

fn description(comparison: &PathComparison) -> Description {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Description {
        program: comparison.program.into(),
        ranks: 2,
        library: format!("Canele {}: its rails, and its scheduler", env!("CARGO_PKG_VERSION")),
        hosts: vec![host.clone(), host],
        clock: clock(),
    }
}

/// Describes the clock used here: the system's monotonic one, by its wall clock.
fn clock() -> Clock {
    let readings: Vec<Instant> = (0..1000).map(|_| Instant::now()).collect();
    let steps = readings.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e9);
    let resolution_ns = steps.filter(|step| *step > 0.0).fold(f64::INFINITY, f64::min);
    let overhead_ns = (readings[999] - readings[0]).as_secs_f64() * 1e9 / 999.0;
    let (begin, system) = (Instant::now(), SystemTime::now());
    std::thread::sleep(KNOWN_SLEEP);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let sleep_clock_ms = ms(begin.elapsed());
    Clock {
        source: "clock_gettime".into(),
        ticks_per_us: 1000.0,
        overhead_ns,
        resolution_ns,
        sleep_asked_ms: ms(KNOWN_SLEEP),
        sleep_system_ms: system.elapsed().map_or(0.0, ms),
        sleep_clock_ms,
    }
}

/// Round trips at the start of a turn that do not count: a progress thread that has slept since the last one
/// wakes meanwhile.
const WARM_UP: u32 = 20;
/// Round trips between two readings of the clock, whose own time is then about 0.3 ns per message.
const BATCH: u32 = 50;
const SAMPLES_LEAST: usize = 3;
const SAMPLES_MAX: usize = 50_000;
const KNOWN_SLEEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn all_paths_of_each_rail_are_measured_and_echo_until_the_other_process_ends() {
        for comparison in [&OVERHEAD, &ADDRESSED] {
            for rail in RAILS {
                // In a thread of its own, which stays on its core.
                let asker = std::thread::spawn(move || measure_all_sizes(comparison, rail));
                assert!(asker.join().is_ok(), "{comparison:?} over {rail}");
            }
        }
    }

    fn measure_all_sizes(comparison: &'static PathComparison, rail: &'static str) {
        let [mut asking, mut answering] = pair();
        let answerer = std::thread::spawn(move || {
            let end = (1, take_core(1)?);
            let mut paths = Paths::open(comparison, rail, end, [7; 32], &mut answering)?;
            SIZES.iter().try_for_each(|size| paths.answer(*size))?;
            answering.hear::<()>()
        });
        let end = (0, take_core(0).unwrap());
        let mut paths = Paths::open(comparison, rail, end, [7; 32], &mut asking).unwrap();
        for size in SIZES {
            let measured = paths.measure(rail, size, 0.001).unwrap();
            assert_eq!(measured.len(), comparison.paths.len());
            for (count, path) in (0..).zip(measured) {
                assert_eq!(path.case(), Case { bytes: size as u64, count, ranks: 2 });
                assert!(path.samples >= 3 && path.min_us > 0.0, "{path:?}");
            }
        }
        asking.tell(&()).unwrap();
        assert_eq!(answerer.join().unwrap(), Ok(()));
        assert!(paths.0.iter_mut().all(|path| path.receive().is_err()));
    }

    #[test]
    fn the_first_time_is_that_of_the_first_batch_and_no_sample() {
        let mut times = PathTimes::default();
        for (each_us, is_warm) in [(7.0, true), (3.0, false), (2.0, true), (1.0, true)] {
            times.add(each_us, is_warm);
        }
        assert_eq!((times.first_us, &times.samples_us[..]), (Some(7.0), &[2.0, 1.0][..]));
    }

    /// Sizes before and after that of long puts, in no order.
    const SIZES: [usize; 3] = [8, 4096, 1];

    type End = PeerPipes<BufReader<std::io::PipeReader>, std::io::PipeWriter>;

    fn pair() -> [End; 2] {
        let [there, back] = [0, 1].map(|_| std::io::pipe().unwrap());
        let end = |from, to| PeerPipes { from: BufReader::new(from), to };
        [end(back.0, there.1), end(there.0, back.1)]
    }
}
