//! `canele tune`: measures the algorithms of collectives on a job. It writes the table of those that are
//! clearly faster than the model's choice, as `CANELE_PLANS` reads it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use plan::{Algorithm, Call, Operands, Operation, Topology};
use serde::Deserialize;

use crate::library::{Library, LibraryKind};
use crate::programs::Programs;
use crate::run::{Interruption, run as run_command, say, tell};
use crate::scenario::{size, size_text};
use crate::statistics::Across;

/// Measure the algorithms of collectives on a job, and write a table of the fastest for CANELE_PLANS
#[derive(Debug, Args)]
pub struct TuneArguments {
    /// Operations, such as bcast,allreduce [default: all]
    #[arg(long, value_delimiter = ',', value_parser = operation)]
    operations: Vec<Operation>,
    /// Sizes in bytes, multiples of 4 from 4 to 1024M, such as 8,64k,1M; of a block or of the whole, as in the table
    #[arg(long, default_value = "8,1k,16k,256k,1M")]
    sizes: Sizes,
    /// Seconds per case in each round, from 0.001 to 60
    #[arg(long, default_value = "0.05", value_parser = crate::command::seconds)]
    seconds: f64,
    /// Number of turns of each algorithm, from 3 to 100
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100))]
    rounds: u32,
    /// File of the table, in a folder that rank 0's host sees
    #[arg(long, default_value = "plans.txt")]
    table: PathBuf,
    /// Folder of the installed Canele [default: that of this command]
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Options of mpiexec [default: -n 4]
    #[arg(last = true, value_name = "MPIEXEC OPTION")]
    mpiexec: Vec<String>,
}

#[derive(Clone, Debug)]
struct Sizes(Vec<u64>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = text.split(',').map(size).collect::<Result<Vec<u64>, String>>()?;
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.iter().find(|bytes| **bytes == 0 || !bytes.is_multiple_of(LEAST_ELEMENT)) {
            Some(odd) => Err(format!("{odd} is no multiple of {LEAST_ELEMENT}")),
            None => Ok(Self(sizes)),
        }
    }
}

fn operation(name: &str) -> Result<Operation, String> {
    let known = Operation::ALL.into_iter().find(|operation| operation.name() == name);
    let names = || Operation::ALL.map(Operation::name).join(", ");
    let near = settings::nearest(name, Operation::ALL.map(Operation::name));
    let advice = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
    known.ok_or_else(|| format!("no operation `{name}`{advice}: there are {}", names()))
}

/// Runs `canele tune`.
pub fn run(arguments: &TuneArguments) -> ExitCode {
    match tune(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            tell(&format!("canele tune: {text}"));
            ExitCode::FAILURE
        }
    }
}

fn tune(arguments: &TuneArguments) -> Result<(), String> {
    let job = Job::new(arguments)?;
    let places = job.places()?;
    let (mut cases, mut meetings_us) = (cases(arguments, &places), Vec::new());
    let turns = cases.iter().map(|case| case.contenders.len()).max().unwrap_or(0);
    for round in 0..arguments.rounds as usize {
        for turn in 0..turns {
            tell(&format!(
                "round {} of {}, {} of {turns} algorithms",
                round + 1,
                arguments.rounds,
                turn + 1
            ));
            // The order rotates from round to round.
            job.take_turn(&mut cases, (turn + round) % turns, &mut meetings_us)?;
        }
    }
    let found: Vec<TuneResult> = cases.iter().filter_map(TuneResult::of).collect();
    say(&shown(&places, &found, Across::of(&meetings_us)))?;
    let text = format!("# by canele tune, for {places}\n{}", table(&found));
    text.parse::<plan::Plans>().map_err(|reason| format!("the table: {reason}"))?;
    fs::write(&arguments.table, text).map_err(|error| wrong(&arguments.table, &error))?;
    say(&format!("{}: use it as {}", arguments.table.display(), settings::PLANS.variable()))
}

fn wrong(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// An operation and a size, and the algorithms for it.
#[derive(Debug)]
struct TuneCase {
    call: Call,
    /// Selection of the model.
    choice: Algorithm,
    contenders: Vec<Contender>,
}

#[derive(Debug)]
struct Contender {
    algorithm: Algorithm,
    predicted_us: f64,
    /// Time in each round.
    times_us: Vec<f64>,
}

fn cases(arguments: &TuneArguments, places: &Topology) -> Vec<TuneCase> {
    let asked = &arguments.operations;
    let operations = Operation::ALL.into_iter();
    let operations = operations.filter(|one| asked.is_empty() || asked.contains(one));
    let case = |call: Call| {
        let contender = |(algorithm, predicted_ns): (Algorithm, u64)| Contender {
            algorithm,
            predicted_us: predicted_ns as f64 * 1e-3,
            times_us: Vec::new(),
        };
        let contenders = places.candidates(&call).into_iter().map(contender).collect();
        TuneCase { call, choice: places.choice(&call), contenders }
    };
    let of = |operation: Operation| -> Vec<TuneCase> {
        match operation {
            Operation::Barrier => vec![case(Call::of(operation, 0))],
            Operation::Broadcast
            | Operation::Gather
            | Operation::Scatter
            | Operation::Allgather
            | Operation::Alltoall => {
                arguments.sizes.0.iter().map(|&bytes| case(Call::of(operation, bytes))).collect()
            }
            Operation::Reduce
            | Operation::Allreduce
            | Operation::ReduceScatter
            | Operation::Scan
            | Operation::Exscan => {
                let operands = |bytes: u64| Operands {
                    len: bytes / element(bytes),
                    element: element(bytes),
                    commutes: true,
                    is_exact: true,
                    in_place: false,
                };
                let sizes = arguments.sizes.0.iter();
                sizes.map(|&bytes| case(operands(bytes).call(operation))).collect()
            }
        }
    };
    operations.flat_map(of).collect()
}

/// The command that runs the program.
struct Job {
    mpiexec: PathBuf,
    program: PathBuf,
    options: Vec<String>,
    seconds: f64,
    /// The table of one turn.
    plans: PathBuf,
    interruption: Interruption,
}

/// A line of the program.
#[derive(Deserialize)]
#[serde(untagged)]
enum TuneLine {
    Places { places: String },
    Meeting { meeting_us: f64 },
    Time { operation: String, bytes: u64, time_us: f64 },
    Start { library: String },
}

impl Job {
    fn new(arguments: &TuneArguments) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
        let prefix = match &arguments.prefix {
            Some(prefix) => absolute(prefix)?,
            None => own.ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf(),
        };
        let library = Library::find(LibraryKind::Canele, &prefix, Path::new(""));
        let library = library.map_err(|error| error.to_string())?;
        let table = absolute(&arguments.table)?;
        let folder = table.with_extension("tuning");
        let programs = Programs::new(&folder, &prefix).map_err(|error| error.to_string())?;
        let options = match arguments.mpiexec.is_empty() {
            true => vec!["-n".into(), "4".into()],
            false => arguments.mpiexec.clone(),
        };
        Ok(Self {
            mpiexec: prefix.join("bin/mpiexec"),
            program: programs.mpi("tune", &library).map_err(|error| error.to_string())?,
            options,
            seconds: arguments.seconds,
            plans: folder.join("plans.txt"),
            interruption: Interruption::watch().map_err(|error| error.to_string())?,
        })
    }

    /// Places of the job's ranks, and the cost of messages there.
    fn places(&self) -> Result<Topology, String> {
        let mut told = None;
        self.start("", &[], &mut |line| {
            if let TuneLine::Places { places } = line {
                told = Some(places);
            }
        })?;
        match told.as_deref() {
            Some("") => Err("the job is too scattered for its places to be told".into()),
            Some(places) => places.parse(),
            None => Err("the program did not say where the ranks run".into()),
        }
    }

    /// Measures each case by its contender of this number, if it has one, and the time of a barrier.
    fn take_turn(
        &self,
        cases: &mut [TuneCase],
        turn: usize,
        meetings_us: &mut Vec<f64>,
    ) -> Result<(), String> {
        let (mut plans, mut words) = (String::new(), Vec::new());
        for case in cases.iter().filter(|case| turn < case.contenders.len()) {
            let Call { operation, bytes, .. } = case.call;
            let _ = writeln!(plans, "{operation} {bytes} {}", case.contenders[turn].algorithm);
            words.push(format!("{operation}/{bytes}"));
        }
        self.start(&plans, &words, &mut |line| {
            if let TuneLine::Meeting { meeting_us } = line {
                meetings_us.push(meeting_us);
            }
            let TuneLine::Time { operation, bytes, time_us } = line else { return };
            let is_it = |case: &&mut TuneCase| {
                case.call.operation.name() == operation && case.call.bytes == bytes
            };
            if let Some(case) = cases.iter_mut().find(is_it) {
                case.contenders[turn].times_us.push(time_us);
            }
        })
    }

    fn start(
        &self,
        plans: &str,
        words: &[String],
        on_line: &mut dyn FnMut(TuneLine),
    ) -> Result<(), String> {
        fs::write(&self.plans, plans).map_err(|error| wrong(&self.plans, &error))?;
        let mut command = Command::new(&self.mpiexec);
        command.args(&self.options).arg(&self.program).arg(self.seconds.to_string()).args(words);
        command.env(settings::PLANS.variable(), &self.plans);
        // Slow links and oversubscription take longer than requested.
        let limit =
            Duration::from_secs_f64(60.0 + words.len() as f64 * (5.0 + 10.0 * self.seconds));
        run_command(
            &mut command,
            limit,
            &self.interruption,
            &mut |line| match serde_json::from_str(line)
                .map_err(|error| format!("{error}: {line}"))?
            {
                TuneLine::Start { library }
                    if !library.contains(LibraryKind::Canele.signature()) =>
                {
                    Err(format!("the program ran on {library}"))
                }
                line => {
                    on_line(line);
                    Ok(())
                }
            },
        )
        .map_err(|error| error.to_string())
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| wrong(path, &error))
}

/// The result of a case.
#[derive(Debug)]
struct TuneResult {
    operation: Operation,
    bytes: u64,
    choice: Algorithm,
    predicted_us: f64,
    /// Times of the model's selection.
    took: Across,
    /// Algorithm with the least median.
    fastest: Algorithm,
    fastest_took: Across,
    is_clear: bool,
}

impl TuneResult {
    /// Computes the result; none if nothing was measured.
    fn of(case: &TuneCase) -> Option<Self> {
        let chosen = case.contenders.iter().find(|one| one.algorithm == case.choice)?;
        let measured = |one: &Contender| Some((one.algorithm, Across::of(&one.times_us)?));
        let took = Across::of(&chosen.times_us)?;
        let all = case.contenders.iter().filter_map(measured);
        let (fastest, fastest_took) =
            all.min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))?;
        let contender = case.contenders.iter().find(|one| one.algorithm == fastest)?;
        Some(Self {
            operation: case.call.operation,
            bytes: case.call.bytes,
            choice: case.choice,
            predicted_us: chosen.predicted_us,
            took,
            fastest,
            fastest_took,
            is_clear: is_clear(&contender.times_us, &chosen.times_us),
        })
    }

    /// Algorithm for the table; none where the model's selection stays.
    fn wanted(&self) -> Option<Algorithm> {
        self.is_clear.then_some(self.fastest)
    }
}

/// True if one is faster than the other beyond the noise: by its median, by its minimum, and in four of five rounds.
fn is_clear(one: &[f64], other: &[f64]) -> bool {
    let (Some(across), Some(against)) = (Across::of(one), Across::of(other)) else { return false };
    let won = one.iter().zip(other).filter(|(one, other)| one < other).count();
    let rounds = one.len().min(other.len());
    across.median < CLEARLY * against.median
        && across.least < against.least
        && won >= rounds - rounds / 5
}

/// Formats the results, beside those of the model.
fn shown(places: &Topology, found: &[TuneResult], meeting_us: Option<Across>) -> String {
    let mut text = format!(
        "on {} ranks, {} nodes, {} sites{}\n\n{:14} {:>9}  {:13} {:>12} {:>12}  {:13} {:>12} {:>6}\n",
        places.size(),
        places.nodes(),
        places.sites(),
        if places.outnumbers_cores() { ", more than cores" } else { "" },
        "operation",
        "bytes",
        "by the model",
        "predicted µs",
        "measured µs",
        "fastest",
        "measured µs",
        "/"
    );
    for one in found {
        let mark = if one.is_clear { "  taken" } else { "" };
        let _ = writeln!(
            text,
            "{:14} {:>9}  {:13} {:>12.1} {:>12.1}  {:13} {:>12.1} {:>6.2}{mark}",
            one.operation,
            size_text(one.bytes),
            one.choice,
            one.predicted_us,
            one.took.median,
            one.fastest,
            one.fastest_took.median,
            one.fastest_took.median / one.took.median,
        );
    }
    let taken = found.iter().filter(|one| one.is_clear).count();
    let _ = write!(
        text,
        "\n/: the fastest over the model's choice; {taken} of {} are clearly better (by {:.0} % in the median)\n",
        found.len(),
        (1.0 - CLEARLY) * 100.0
    );
    if let Some(Across { median, .. }) = meeting_us {
        let _ = writeln!(
            text,
            "Measured until all ranks had met again, which alone takes {median:.1} µs."
        );
    }
    text
}

/// Returns the rules, each for the sizes nearer to its measurement than to the next.
fn table(found: &[TuneResult]) -> String {
    let mut rules: Vec<(Operation, u64, u64, Algorithm)> = Vec::new();
    for (at, one) in found.iter().enumerate() {
        let Some(algorithm) = one.wanted() else { continue };
        let of_same = |other: &&TuneResult| other.operation == one.operation;
        let before = at.checked_sub(1).and_then(|at| found.get(at)).filter(of_same);
        let after = found.get(at + 1).filter(of_same);
        let from = before.map_or(one.bytes / 2, |before| between(before.bytes, one.bytes) + 1);
        let to = after.map_or(one.bytes * 2, |after| between(one.bytes, after.bytes));
        match rules.last_mut() {
            Some((operation, _, end, known))
                if (*operation, *known, *end + 1) == (one.operation, algorithm, from) =>
            {
                *end = to;
            }
            Some(_) | None => rules.push((one.operation, from, to, algorithm)),
        }
    }
    rules.iter().fold(String::new(), |mut text, (operation, from, to, algorithm)| {
        let _ = writeln!(text, "{operation} {from}..{to} {algorithm}");
        text
    })
}

/// Returns the geometric mean.
fn between(one: u64, other: u64) -> u64 {
    (u128::from(one) * u128::from(other)).isqrt() as u64
}

/// Size of an element in reductions, in bytes.
const LEAST_ELEMENT: u64 = 4;

/// Returns the length of the elements that `bench/tune.c` adds: doubles, or floats.
fn element(bytes: u64) -> u64 {
    if bytes.is_multiple_of(8) { 8 } else { LEAST_ELEMENT }
}

/// Factor below which a difference is clear; smaller ones may be noise.
const CLEARLY: f64 = 0.93;

#[cfg(test)]
mod tests {
    use super::*;

    fn case(bytes: u64, times_us: [[f64; 5]; 2]) -> TuneCase {
        let call = Call::of(Operation::Broadcast, bytes);
        let contenders = [Algorithm::Linear, Algorithm::Chain].into_iter().zip(times_us);
        let contender = |(algorithm, times_us): (Algorithm, [f64; 5])| Contender {
            algorithm,
            predicted_us: 2.0,
            times_us: times_us.into(),
        };
        TuneCase {
            call,
            choice: Algorithm::Linear,
            contenders: contenders.map(contender).collect(),
        }
    }

    #[test]
    fn only_what_is_clearly_faster_is_taken() {
        let of = |times_us| TuneResult::of(&case(8, times_us)).unwrap();
        let slow = [10.0, 11.0, 10.5, 10.0, 12.0];
        let better = of([slow, [5.0, 5.5, 30.0, 5.0, 5.1]]);
        assert_eq!(better.wanted(), Some(Algorithm::Chain));
        let hardly = of([slow, [9.8, 10.2, 10.1, 9.9, 10.2]]);
        assert_eq!((hardly.fastest, hardly.wanted()), (Algorithm::Chain, None));
        let luck = of([slow, [5.0, 12.0, 11.0, 5.0, 5.0]]);
        assert_eq!((luck.fastest, luck.wanted()), (Algorithm::Chain, None));
        assert!(
            TuneResult::of(&TuneCase { contenders: Vec::new(), ..case(8, [slow; 2]) }).is_none()
        );
    }

    #[test]
    fn rules_meet_between_sizes_and_are_read_again() {
        let (slow, fast) = ([10.0; 5], [5.0; 5]);
        let found: Vec<TuneResult> = [(8, fast), (32, fast), (512, slow), (4096, fast)]
            .map(|(bytes, times_us)| TuneResult::of(&case(bytes, [slow, times_us])).unwrap())
            .into();
        let text = table(&found);
        assert_eq!(text, "bcast 4..128 chain\nbcast 1449..8192 chain\n");
        assert!(text.parse::<plan::Plans>().is_ok());
        let places = Topology::flat(4, true, plan::Costs::default());
        let shown = shown(&places, &found, Across::of(&[7.0]));
        assert!(shown.contains("on 4 ranks, 1 nodes, 1 sites, more than cores"), "{shown}");
        assert!(shown.contains("3 of 4 are clearly"), "{shown}");
        assert!(shown.contains("which alone takes 7.0 µs"), "{shown}");
    }
}
