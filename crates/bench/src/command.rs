//! `canele bench`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::campaign::{Places, Plan, measure};
use crate::ground::Grounds;
use crate::library::Kind;
use crate::plot;
use crate::programs::Programs;
use crate::record::Clock;
use crate::report::{By, Document, Report};
use crate::run::{Interruption, run as run_command, tell};
use crate::scenario::{Place, Workload, sizes};
use crate::table;

/// Measures Canele, its peers and raw TCP.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Show the clock: its overhead and resolution, and a known sleep by it
    Clock(ClockOptions),
    /// Half a round trip between two ranks, and raw TCP beside it
    Pingpong(PingpongOptions),
    /// Many short messages at once between two ranks
    Burst(BurstOptions),
    /// Barrier and 8-byte allreduce on many ranks
    Crowd(CrowdOptions),
    /// Canele beside the peers that are installed, in turn, with plots
    Compare(CompareOptions),
}

#[derive(Debug, Args)]
struct ClockOptions {
    /// How long the known sleep is, in seconds
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    sleep: f64,
    /// Where the program is compiled
    #[arg(long, default_value = "build/bench")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct Common {
    /// The time for each size (or operation) in each round, in seconds
    #[arg(long, default_value = "0.2", value_parser = seconds)]
    seconds: f64,
    /// How often each library has its turn
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Use this lab instead of raising one
    #[arg(long)]
    lab: Option<String>,
    /// Where Canele is installed [default: where this command is]
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Where the JSON, the tables and the plots go
    #[arg(long, default_value = "build/bench")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct PingpongOptions {
    /// shm, lan or wan
    #[arg(long, default_value = "shm")]
    place: Place,
    /// Sizes such as 1,16,64k,4M [default: the powers of two from 1 to 64M]
    #[arg(long, value_parser = size_list)]
    sizes: Option<Sizes>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct BurstOptions {
    /// shm, lan or wan
    #[arg(long, default_value = "shm")]
    place: Place,
    /// How many messages
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// Sizes up to 64k
    #[arg(long, default_value = "8,1k", value_parser = short_size_list)]
    sizes: Sizes,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct CrowdOptions {
    /// shm, lan or wan
    #[arg(long, default_value = "shm")]
    place: Place,
    /// How many ranks
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct CompareOptions {
    /// Any of shm, lan, wan (ping-pongs there), burst and crowd (on this machine, or burst@wan, crowd@lan…)
    #[arg(default_values = ["shm", "lan", "wan", "crowd"])]
    what: Vec<Subject>,
    /// Sizes such as 1,16,64k,4M
    #[arg(long, default_value = "1,8,16,64,256,1k,4k,16k,64k,256k,1M,4M,16M,64M", value_parser = size_list)]
    sizes: Sizes,
    /// Ranks of the crowd
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: u32,
    /// What the plots show of several rounds: the median, or the least (disturbed)
    #[arg(long, default_value = "median")]
    by: By,
    /// Where the peers are
    #[arg(long, default_value = "build/peers")]
    peers: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pingpong(Place),
    Burst(Place),
    Crowd(Place),
}

impl std::str::FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = |text: &str| text.parse().map_err(|error| format!("{error}, burst, crowd"));
        match text.split_once('@').unwrap_or((text, "shm")) {
            ("burst", at) => place(at).map(Self::Burst),
            ("crowd", at) => place(at).map(Self::Crowd),
            _ => place(text).map(Self::Pingpong),
        }
    }
}

/// Sizes in bytes, one option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sizes(Vec<u64>);

fn size_list(text: &str) -> Result<Sizes, String> {
    sizes(text).map(Sizes)
}

fn short_size_list(text: &str) -> Result<Sizes, String> {
    let list = sizes(text)?;
    match list.iter().find(|size| **size > 65536) {
        Some(size) => Err(format!("{size} is more than 64k")),
        None => Ok(Sizes(list)),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=60.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is no time between 0.001 and 60 s"))
}

/// Runs `canele bench`.
pub fn run(arguments: Arguments) -> ExitCode {
    let result = match arguments.word {
        Word::Clock(options) => clock(&options),
        Word::Pingpong(options) => {
            let sizes = options.sizes.map_or_else(all_sizes, |sizes| sizes.0);
            let kinds = [Kind::Canele, Kind::RawTcp];
            let workload = Workload::Pingpong { sizes };
            alone(workload, options.place, &kinds, &options.common)
        }
        Word::Burst(options) => {
            let BurstOptions { place, messages, sizes, common } = options;
            alone(Workload::Burst { messages, sizes: sizes.0 }, place, &[Kind::Canele], &common)
        }
        Word::Crowd(options) => {
            let workload = Workload::Crowd { ranks: options.ranks };
            alone(workload, options.place, &[Kind::Canele], &options.common)
        }
        Word::Compare(options) => compare(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            tell(&format!("canele bench: {text}"));
            ExitCode::FAILURE
        }
    }
}

/// The powers of two from 1 byte to 64 MiB.
fn all_sizes() -> Vec<u64> {
    (0..=26).map(|power| 1 << power).collect()
}

fn clock(options: &ClockOptions) -> Result<(), String> {
    let folder = options.output.join("programs");
    let programs = Programs::new(&folder, Path::new("")).map_err(|error| error.to_string())?;
    let program = programs.plain("clock").map_err(|error| error.to_string())?;
    let interruption = Interruption::watch().map_err(|error| error.to_string())?;
    let mut clock: Option<Clock> = None;
    let mut command = Command::new(program);
    command.arg(options.sleep.to_string());
    let limit = Duration::from_secs_f64(options.sleep + 30.0);
    run_command(&mut command, limit, &interruption, &mut |line| {
        clock = Some(serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?);
        Ok(())
    })
    .map_err(|error| format!("clock: {error}"))?;
    let clock = clock.ok_or("clock: it printed nothing")?;
    say(&format!(
        "source       {}, {:.3} ticks a µs\n\
         overhead     {:.1} ns a reading (taken off each sample)\n\
         resolution   {:.1} ns\n\
         known sleep  asked {:.3} ms; system {:.6} ms, this clock {:.6} ms: {:.1} ppm apart",
        clock.source,
        clock.ticks_per_us,
        clock.overhead_ns,
        clock.resolution_ns,
        clock.sleep_asked_ms,
        clock.sleep_system_ms,
        clock.sleep_clock_ms,
        clock.error() * 1e6
    ))
}

/// Canele alone (and raw TCP).
fn alone(workload: Workload, place: Place, kinds: &[Kind], common: &Common) -> Result<(), String> {
    let rounds = common.rounds.unwrap_or(1);
    let kinds = kinds.to_vec();
    let plan = Plan { workload, place, kinds, rounds, seconds: common.seconds };
    measure_all(&[plan], common, By::Median, Path::new(""))
}

/// Canele beside its peers.
fn compare(options: &CompareOptions) -> Result<(), String> {
    let plan = |subject: &Subject| {
        let mut kinds = Kind::MPI.to_vec();
        let (workload, place) = match subject {
            Subject::Pingpong(place) => {
                kinds.push(Kind::RawTcp);
                (Workload::Pingpong { sizes: options.sizes.0.clone() }, *place)
            }
            Subject::Burst(place) => {
                (Workload::Burst { messages: 1000, sizes: vec![8, 1024] }, *place)
            }
            Subject::Crowd(place) => (Workload::Crowd { ranks: options.ranks }, *place),
        };
        let rounds = options.common.rounds.unwrap_or(5);
        Plan { workload, place, kinds, rounds, seconds: options.common.seconds }
    };
    let plans: Vec<Plan> = options.what.iter().map(plan).collect();
    measure_all(&plans, &options.common, options.by, &options.peers)
}

/// Measures plan by plan; each is printed and written as soon as it is there.
fn measure_all(plans: &[Plan], common: &Common, by: By, peers: &Path) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let prefix = match &common.prefix {
        Some(prefix) => absolute(prefix)?,
        None => own.ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf(),
    };
    let places = Places { prefix, peers: absolute(peers)? };
    let folder = absolute(&common.output.join("programs"))?;
    let programs = Programs::new(&folder, &places.prefix).map_err(|error| error.to_string())?;
    let interruption = Interruption::watch().map_err(|error| error.to_string())?;
    let mut grounds = Grounds::new(&own, common.lab.clone());
    let mut failures = Vec::new();
    for plan in plans {
        let report = measure(plan, &places, &programs, &mut grounds, &interruption)
            .map_err(|error| error.to_string())?;
        let paths = write(&report, by, &common.output)?;
        let paths: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
        say(&format!("\n{}\n{paths}", table::render(&report)))?;
        let ours = report.entries.iter().find(|entry| entry.library == Kind::Canele);
        failures.extend(ours.and_then(|entry| entry.failure.clone()));
    }
    match failures.first() {
        Some(reason) => Err(format!("Canele failed: {reason}")),
        None => Ok(()),
    }
}

/// Prints to the standard output, which may be closed or full.
fn say(text: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

/// Writes the document, the table and, for a comparison, the plots.
fn write(report: &Report, by: By, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let stem = report.stem();
    let document = Document { report, rows: report.rows() };
    let json = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    let mut paths = Vec::new();
    for (ending, text) in [("json", json), ("txt", table::render(report))] {
        let path = folder.join(format!("{stem}.{ending}"));
        fs::write(&path, text).map_err(|error| format!("write {}: {error}", path.display()))?;
        paths.push(path);
    }
    if report.is_comparison() {
        paths.extend(plot::draw(report, by, folder).map_err(|error| error.to_string())?);
    }
    Ok(paths)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().is_empty() {
        return Ok(PathBuf::new());
    }
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::report::tests::sample;

    #[derive(Debug, Parser)]
    struct Wrapped {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let parsed = Wrapped::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.arguments)
    }

    #[test]
    fn the_command_line_is_sound() {
        Wrapped::command().debug_assert();
        for line in [
            "clock",
            "pingpong --place lan --sizes 1,64k",
            "burst --messages 10",
            "crowd --ranks 4",
            "compare",
            "compare wan crowd burst@lan crowd@wan --rounds 2",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn mistakes_are_named_in_the_first_line() {
        for (line, word) in [
            ("pingpong --place moon", "moon"),
            ("pingpong --sizes 5x", "5x"),
            ("burst --sizes 1M", "64k"),
            ("burst --messages 0", "0"),
            ("crowd --ranks 1", "1"),
            ("compare mars", "mars"),
            ("compare crowd@mars", "mars"),
            ("compare --by luck", "luck"),
            ("compare --rounds 0", "0"),
            ("pingpong --seconds -1", "-1"),
        ] {
            let text = parse(line).unwrap_err();
            assert!(text.lines().next().unwrap().contains(word), "{text}");
        }
    }

    #[test]
    fn a_report_is_written_with_its_table_and_plots() {
        let folder = tempfile::tempdir().unwrap();
        let paths = write(&sample(), By::Median, folder.path()).unwrap();
        let endings: Vec<_> =
            paths.iter().map(|path| path.extension().unwrap().to_str().unwrap()).collect();
        assert_eq!(endings, ["json", "txt", "svg", "png"]);
        assert!(paths.iter().all(|path| path.metadata().unwrap().len() > 0));
    }

    #[test]
    fn without_an_installation_nothing_is_measured_and_it_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let common = Common {
            seconds: 0.01,
            rounds: None,
            lab: None,
            prefix: Some(folder.path().join("nowhere")),
            output: folder.path().join("out"),
        };
        let workload = Workload::Pingpong { sizes: vec![8] };
        let text = alone(workload, Place::Shm, &[Kind::Canele], &common).unwrap_err();
        assert!(text.contains("nowhere/bin/mpiexec") && text.contains("--prefix"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
