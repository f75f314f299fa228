//! `canele bench`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Subcommand};

use crate::instrument::{Description, Instrument, Workload};
use crate::library::{LibraryKind, Variant};
use crate::planned::Plan;
use crate::programs::Programs;
use crate::record::Clock;
use crate::report::By;
use crate::run::{Interruption, run as run_command, say, tell};
use crate::scenario::{Crossing, Place, Surroundings};
use crate::series::{self, SeriesOptions};
use crate::{page, paths, sweep};

/// Measure Canele, other MPIs and raw TCP
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    word: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Print overhead and resolution of the clock, and a known sleep
    Clock(ClockOptions),
    #[command(flatten)]
    Instrument(Box<InstrumentOptions>),
    /// Runs one side of `overhead`
    #[command(hide = true)]
    OverheadPair(paths::PairOptions),
    /// Runs one side of `addressed`
    #[command(hide = true)]
    AddressedPair(paths::PairOptions),
    /// Run several benchmarks on Canele and the installed peers, in turn
    Compare(Box<CompareOptions>),
    /// Write one HTML file with all figures of some results
    Report(page::PageOptions),
}

#[derive(Debug, Args)]
struct ClockOptions {
    /// Length of the known sleep in seconds, from 0.001 to 60
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    sleep: f64,
    /// Folder of the compiled program
    #[arg(long, default_value = "build/bench")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct Common {
    /// Seconds per size or operation in each round, from 0.001 to 60 [default: 0.2]
    #[arg(long, help_heading = WORK, value_parser = seconds)]
    seconds: Option<f64>,
    /// Measure few cases, of 0.02 s each, in 2 rounds; the time that this takes is printed first
    #[arg(long, help_heading = WORK)]
    quick: bool,
    /// Share of packets lost between sites, below 100%, such as 0.1%
    #[arg(long, help_heading = LOAD, default_value = "0", value_parser = lab::share)]
    loss: f64,
    /// Competing TCP flow between sites, by cubic, bbr or reno; its goodput is printed per turn
    #[arg(long, help_heading = LOAD, value_name = "CONGESTION", hide_possible_values = true)]
    flow: Option<lab::Congestion>,
    /// Number of computing programs on the machine, from 0 to 1024
    #[arg(long, help_heading = LOAD, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    beside: u32,
    /// Canele with settings, as NAME:KEY=VALUE,KEY=VALUE; gateways=1 or 2 adds gateways; may be repeated
    #[arg(long = "variant", help_heading = LIBRARIES, value_name = "VARIANT")]
    variants: Vec<Variant>,
    /// Canele with and without its strategy: --variant on --variant off:CANELE_STRATEGY=fifo
    #[arg(long, help_heading = LIBRARIES, conflicts_with = "variants")]
    on_off: bool,
    /// Peers also with larger eager messages and socket buffers
    #[arg(long, help_heading = LIBRARIES)]
    tuned: bool,
    /// Number of turns of each library, from 1 to 100 [default: 1; 5 for several libraries]
    #[arg(long, help_heading = WORK, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Number of nodes per site of the lab, from 1 to 64 [default: 8 for torres, otherwise 2]
    #[arg(long, help_heading = LAB, value_parser = clap::value_parser!(u32).range(1..=64), conflicts_with = "lab")]
    nodes: Option<u32>,
    /// Round trips between sites, at most 10s, such as 1ms,300ms, each in a new lab [default: 11.6ms]
    #[arg(long, help_heading = LAB, value_name = "LIST", value_delimiter = ',', value_parser = lab::duration, conflicts_with = "lab")]
    rtt: Vec<Duration>,
    /// Rates of links between sites, from 100kbit to 10Gbit, such as 100Mbit,1Gbit [default: 1Gbit]
    #[arg(long, help_heading = LAB, value_name = "LIST", value_delimiter = ',', value_parser = lab::rate, conflicts_with = "lab")]
    rate: Vec<u64>,
    /// Buffers of links between sites, such as 500kB,2MB [default: 2MB]
    #[arg(long, help_heading = LAB, value_name = "LIST", value_delimiter = ',', value_parser = lab::bytes, conflicts_with = "lab")]
    buffer: Vec<u64>,
    /// Largest TCP socket buffers (tcp_rmem, tcp_wmem), such as 64kB,4MB [default: the kernel's]
    #[arg(long, help_heading = LAB, value_name = "LIST", value_delimiter = ',', value_parser = lab::bytes, conflicts_with = "lab")]
    socket_max: Vec<u64>,
    /// Number of sites of the lab, from 2 to 8 [default: 2]
    #[arg(long, help_heading = LAB, value_parser = clap::value_parser!(u32).range(2..=8), conflicts_with = "lab")]
    sites: Option<u32>,
    /// Round trip between two sites, at most 10s, such as 0-2=40ms; may be repeated
    #[arg(long = "pair", help_heading = LAB, value_name = "SITE-SITE=RTT", value_parser = lab::pair, conflicts_with = "lab")]
    pairs: Vec<lab::Pair>,
    /// Use this lab, and raise none
    #[arg(long, help_heading = LAB)]
    lab: Option<String>,
    /// Statistic over rounds in plots
    #[arg(long, help_heading = OUTPUT, default_value = "median")]
    by: By,
    /// Folder of the installed Canele [default: that of this command]
    #[arg(long, help_heading = LIBRARIES)]
    prefix: Option<PathBuf>,
    /// Folder of results, tables and plots
    #[arg(long, help_heading = OUTPUT, default_value = "build/bench")]
    output: PathBuf,
    /// Take up an interrupted run of the same command after its last turn
    #[arg(long = "continue", help_heading = OUTPUT)]
    continues: bool,
}

/// Options of every benchmark.
#[derive(Debug, Args)]
struct Options {
    /// Place of the ranks: shm, lan or wan [default: depends on the benchmark]
    #[arg(long, help_heading = WORK)]
    place: Option<Place>,
    /// Measure the peers in this folder too
    #[arg(long, help_heading = LIBRARIES)]
    peers: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// An instrument as it was asked for: its own command, made from its description.
#[derive(Debug)]
struct InstrumentOptions {
    workload: Workload,
    options: Options,
}

/// Headings of the help.
const WORK: &str = "Measurement";
const LIBRARIES: &str = "Libraries";
const LOAD: &str = "Load";
const LAB: &str = "Lab";
const OUTPUT: &str = "Output";

impl Common {
    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { QUICK_SECONDS } else { WHOLE_SECONDS })
    }

    /// The links that were asked for.
    fn crossings(&self) -> Vec<Crossing> {
        let (rtts, rates, buffers) = (self.rtt.clone(), self.rate.clone(), self.buffer.clone());
        let socket_maxima = self.socket_max.clone();
        sweep::RequestedLinks { rtts, rates, buffers, socket_maxima }.crossings()
    }

    /// Canele's settings, beside one another.
    fn variants(&self) -> Vec<Variant> {
        if self.on_off { Variant::on_and_off() } else { self.variants.clone() }
    }

    /// The instrument if nothing else is asked.
    fn workload(&self, instrument: Instrument) -> Workload {
        if self.quick { Workload::quick(instrument) } else { Workload::new(instrument) }
    }
}

impl InstrumentOptions {
    fn command(instrument: Instrument) -> clap::Command {
        let description = instrument.description();
        let lists = [description.sizes, description.counts, description.ranks];
        let lists = lists.into_iter().flatten();
        let command = clap::Command::new(description.name);
        let command = lists.fold(command, |command, numbers| {
            let parser = move |text: &str| numbers.parse(text).map(List);
            command.arg(
                Arg::new(numbers.option)
                    .long(numbers.option)
                    .value_name("LIST")
                    .help_heading(WORK)
                    .help(format!(
                        "{}, {} [default: {}]",
                        numbers.help,
                        numbers.bounds(),
                        numbers.default
                    ))
                    .value_parser(parser),
            )
        });
        let command = Options::augment_args(command).about(description.about);
        let command = command.after_help(description.details);
        if description.long_sizes.is_none() {
            return command;
        }
        let flag = Arg::new(THOROUGH).long("long").help("Add long sizes").help_heading(WORK);
        let flag = flag.action(ArgAction::SetTrue);
        command.arg(flag.conflicts_with("quick"))
    }
}

impl FromArgMatches for InstrumentOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let instrument: Instrument = name.parse().map_err(|_| missing())?;
        let options = Options::from_arg_matches(matches)?;
        let description: &Description = instrument.description();
        let mut workload = match description.long_sizes {
            Some(_) if matches.get_flag(THOROUGH) => Workload::long(instrument),
            Some(_) | None => options.common.workload(instrument),
        };
        let Description { sizes, counts, ranks, .. } = description;
        for (list, numbers) in [(&mut workload.sizes, sizes), (&mut workload.counts, counts)] {
            if let Some(List(asked)) = numbers.and_then(|numbers| matches.get_one(numbers.option)) {
                list.clone_from(asked);
            }
        }
        if let Some(List(asked)) = ranks.and_then(|ranks| matches.get_one(ranks.option)) {
            workload.run_on(asked);
        }
        Ok(Self { workload, options })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for InstrumentOptions {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        command.subcommands(Instrument::ALL.map(Self::command))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name.parse::<Instrument>().is_ok()
    }
}

#[derive(Debug, Args)]
struct CompareOptions {
    /// Benchmarks, each with a place if not its own: pingpong@wan, burst; a place alone is a ping-pong
    #[arg(default_values = ["shm", "lan", "wan", "oversubscribed"])]
    what: Vec<Subject>,
    /// Sizes in bytes, such as 1,16,64k,4M [default and limits: those of each benchmark]
    #[arg(long, help_heading = WORK)]
    sizes: Option<String>,
    /// Numbers of ranks, such as 2,8,32 [default and limits: those of each benchmark]
    #[arg(long, help_heading = WORK)]
    ranks: Option<String>,
    /// Folder of the peers
    #[arg(long, help_heading = LIBRARIES, default_value = "build/peers")]
    peers: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// An instrument at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject {
    instrument: Instrument,
    place: Place,
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(place) = text.parse() {
            return Ok(Self { instrument: Instrument::Pingpong, place });
        }
        let (name, place) = match text.split_once('@') {
            Some((name, place)) => (name, Some(place.parse()?)),
            None => (text, None),
        };
        let instrument: Instrument = name.parse()?;
        Ok(Self { instrument, place: place.unwrap_or(instrument.description().place) })
    }
}

/// Numbers, one option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List(Vec<u64>);

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=60.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is no time between 0.001 and 60 s"))
}

/// Runs `canele bench`.
pub fn run(arguments: BenchArguments) -> ExitCode {
    let result = match arguments.word {
        BenchCommand::Clock(options) => clock(&options),
        BenchCommand::Instrument(asked) => alone(*asked),
        BenchCommand::OverheadPair(options) => paths::run(&paths::OVERHEAD, &options),
        BenchCommand::AddressedPair(options) => paths::run(&paths::ADDRESSED, &options),
        BenchCommand::Compare(options) => compare(*options),
        BenchCommand::Report(options) => page::write(&options).and_then(|text| say(&text)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            tell(&format!("canele bench: {text}"));
            ExitCode::FAILURE
        }
    }
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

/// One instrument, on Canele alone unless peers are asked for.
fn alone(asked: InstrumentOptions) -> Result<(), String> {
    let InstrumentOptions { workload, options } = asked;
    let description = workload.description();
    let place = options.place.unwrap_or(description.place);
    // Over many links only what was asked for.
    let then = description.then.filter(|_| options.common.crossings().len() < 2);
    let then = then.map(|instrument| options.common.workload(instrument));
    let workloads = [workload].into_iter().chain(then);
    let plan = |workload| plan(workload, place, options.peers.is_some(), &options.common);
    let plans = workloads.map(plan).collect::<Result<Vec<Plan>, String>>()?;
    measure_all(&plans, options.common, options.peers.unwrap_or_default())
}

/// Canele beside its peers.
fn compare(options: CompareOptions) -> Result<(), String> {
    let plan = |subject: &Subject| {
        let Subject { instrument, place } = *subject;
        let mut workload = options.common.workload(instrument);
        let description = instrument.description();
        if let (Some(asked), Some(numbers)) = (&options.sizes, description.sizes) {
            workload.sizes = numbers
                .parse(asked)
                .map_err(|error| format!("--sizes {asked}: {}: {error}", description.name))?;
        }
        if let (Some(asked), Some(numbers)) = (&options.ranks, description.ranks) {
            let ranks = numbers.parse(asked);
            workload.run_on(&ranks.map_err(|error| format!("--ranks {asked}: {error}"))?);
        }
        plan(workload, place, true, &options.common)
    };
    let plans = options.what.iter().map(plan).collect::<Result<Vec<Plan>, String>>()?;
    measure_all(&plans, options.common, options.peers)
}

fn plan(
    workload: Workload,
    place: Place,
    has_peers: bool,
    common: &Common,
) -> Result<Plan, String> {
    let Description { name, bare, least_variants, is_own, nodes, .. } = workload.description();
    if *is_own && place != Place::Shm {
        return Err(format!("{name}: runs on this machine only, not at {}", place.name()));
    }
    if common.loss > 0.0 && place != Place::Wan {
        let place = place.name();
        return Err(format!("{name}: --loss is of links between sites, not at {place}"));
    }
    if common.flow.is_some() && place != Place::Wan {
        let place = place.name();
        return Err(format!("{name}: --flow is over links between sites, not at {place}"));
    }
    if !common.crossings().is_empty() && place != Place::Wan {
        let place = place.name();
        return Err(format!(
            "{name}: --rtt, --rate, --buffer and --socket-max are of links between sites, not at {place}"
        ));
    }
    if (common.sites.is_some() || !common.pairs.is_empty()) && place != Place::Wan {
        let place = place.name();
        return Err(format!("{name}: --sites and --pair are of several sites, not at {place}"));
    }
    let variants = common.variants();
    if place != Place::Wan && variants.iter().any(|variant| variant.gateways() > 0) {
        let place = place.name();
        return Err(format!("{name}: gateways are between sites, not at {place}"));
    }
    if variants.len() < *least_variants {
        return Err(format!(
            "{name}: needs {least_variants} settings of Canele at least: --variant one:KEY=VALUE --variant two:KEY=VALUE, or --on-off"
        ));
    }
    if let Some(twice) = (1..variants.len())
        .map(|index| &variants[index].name)
        .find(|name| variants.iter().filter(|variant| variant.name == **name).count() > 1)
    {
        return Err(format!("--variant {twice}: there are two of this name"));
    }
    if workload.measurements() == 0 {
        return Err(format!("{name}: nothing to measure with these numbers"));
    }
    let has_peers = has_peers && !is_own;
    let mut kinds = if has_peers { LibraryKind::MPI.to_vec() } else { vec![LibraryKind::Canele] };
    kinds.extend_from_slice(bare(place));
    // An own program compares paths whose times differ little.
    let compares = has_peers || variants.len() > 1 || *is_own;
    let rounds = match (compares, common.quick) {
        (false, _) => 1,
        (true, false) => COMPARING_ROUNDS,
        (true, true) => QUICK_ROUNDS,
    };
    let rounds = common.rounds.unwrap_or(rounds);
    let runs = (kinds.len() + variants.len() - 1) as u32 * rounds;
    let least_s = (workload.least() * runs).as_secs();
    if common.quick && least_s > QUICK_MOST_S {
        let option = workload.description().counts.map_or("sizes", |counts| counts.option);
        return Err(format!(
            "{name}: no --quick trial: the times asked for with --{option}, in µs, sum up to {least_s} s in {runs} runs: ask for less, or leave --quick out"
        ));
    }
    let Common { loss, beside, flow, sites, tuned, ref pairs, .. } = *common;
    let surroundings = Surroundings { loss, beside, flow, sites, crossing: None };
    let (seconds, nodes) = (common.seconds(), common.nodes.unwrap_or(*nodes));
    let pairs = pairs.clone();
    let plan = Plan {
        workload,
        place,
        surroundings,
        kinds,
        variants,
        tuned,
        rounds,
        seconds,
        nodes,
        pairs,
    };
    plan.needs().spec("").check().map_err(|error| format!("--pair: {error}"))?;
    Ok(plan)
}

/// Measures these plans over the links that were asked for.
fn measure_all(plans: &[Plan], common: Common, peers: PathBuf) -> Result<(), String> {
    let crossings = common.crossings();
    let Common { prefix, lab, by, output, continues, .. } = common;
    let words = std::env::args().skip(1).filter(|word| word != CONTINUE).collect();
    let options = SeriesOptions { prefix, peers, lab, crossings, by, output, words, continues };
    series::measure(plans, options)
}

/// The flag of a thorough run; some instruments have lists of long messages.
const THOROUGH: &str = "thorough";
/// The option that takes up an interrupted run.
const CONTINUE: &str = "--continue";
/// Rounds of a comparison if nothing is asked.
const COMPARING_ROUNDS: u32 = 5;
/// And of a quick one.
const QUICK_ROUNDS: u32 = 2;
/// For each size if nothing is asked.
const WHOLE_SECONDS: f64 = 0.2;
/// And in a quick trial.
const QUICK_SECONDS: f64 = 0.02;
/// Longest computation or silence of a quick trial.
const QUICK_MOST_S: u64 = 40;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::runner::Places;
    use crate::series::asked;

    #[derive(Debug, Parser)]
    struct Wrapped {
        #[command(flatten)]
        arguments: BenchArguments,
    }

    fn parse(line: &str) -> Result<BenchArguments, String> {
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
            "oversubscribed --ranks 4,32",
            "compare oversubscribed --ranks 8",
            "progress --sizes 0,1M --computing 1000 --ranks 4",
            "compare",
            "compare wan oversubscribed burst@lan oversubscribed@wan --rounds 2",
            "burst --variant auto --variant fifo:CANELE_STRATEGY=fifo",
            "cut --sizes 64 --packets 1,8",
            "behind --long 0,64k",
            "queues --depths 0,10000 --place lan",
            "modules --unready 0,1M",
            "overhead",
            "addressed --sizes 8,4k",
            "express --packets 1,64 --quick",
            "compare express pingpong --quick",
            "compare onesided onesided@wan gups --quick",
            "onesided --sizes 8,64k --place lan",
            "gups --ranks 2,16 --sizes 1M",
            "nas --kernel CG,ft --class S,a --ranks 1,16",
            "compare nas nas@lan nas@wan --sites 4 --tuned",
            "ray2mesh --masters 0,4 --sizes 1M --place wan",
            "simri --masters 0,1 --sizes 512 --place lan",
            "io --ranks 4 --sizes 4M --files 0",
            "overlap --sizes 64k,1M --computing 1000 --place wan",
            "rails --variant one:CANELE_RAILS=tcp --variant two",
            "burst --peers build/peers --place lan --by least",
            "express --on-off",
            "compare cut behind --on-off",
            "wan --long --loss 0.1%",
            "wan --sizes 4M --flow cubic",
            "slowstart --messages 20 --place lan",
            "coll --ranks 4,8 --sizes 0,64k --place shm",
            "compare coll coll@lan wan@wan",
            "coll --sizes 4 --ranks 5,6,7,8 --place lan --nodes 4",
            "torres --ranks 5,8 --peers build/peers",
            "oversubscribed --ranks 8,16 --beside 4",
            "wan --rtt 1ms,11.6ms,300ms --rate 100Mbit,1Gbit --buffer 500kB,2MB",
            "compare wan slowstart --rtt 50ms",
            "wan --socket-max 64kB,4MB",
            "pairs --ranks 4,16 --variant sealed --variant clear:CANELE_ENCRYPT=none",
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
            ("burst --ranks 2", "--ranks"),
            ("oversubscribed --sizes 8", "--sizes"),
            ("burst --variant x:y", "KEY=VALUE"),
            ("burst --variant x --on-off", "--on-off"),
            ("wan --variant x:gateways=3", "0, 1 or 2"),
            ("oversubscribed --ranks 1", "1"),
            ("compare mars", "mars"),
            ("wan --long --quick", "--quick"),
            ("wan --loss 2", "2"),
            ("nas --kernel CG,UA", "UA"),
            ("nas --class E", "S, W, A, B"),
            ("wan --flow vegas", "vegas"),
            ("coll --beside -1", "-1"),
            ("coll --lab there --nodes 4", "--nodes"),
            ("wan --rtt 50", "50"),
            ("wan --rtt 1ms,x", "x"),
            ("wan --rate 1bit", "1bit"),
            ("wan --buffer much", "much"),
            ("wan --rtt 50ms --lab far", "--lab"),
            ("compare oversubscribed@mars", "mars"),
            ("compare --by luck", "luck"),
            ("compare --rounds 0", "0"),
            ("pingpong --seconds -1", "-1"),
        ] {
            let text = parse(line).unwrap_err();
            assert!(text.lines().next().unwrap().contains(word), "{text}");
        }
    }

    #[test]
    fn a_quick_trial_that_would_be_silent_for_long_is_refused() {
        let plan_of = |line: &str| {
            let BenchCommand::Instrument(asked) = parse(line).unwrap().word else {
                panic!("{line}")
            };
            plan(asked.workload, Place::Wan, true, &asked.options.common)
        };
        let silences = "wan --sizes 64k --silence 64k,1M,4M --rounds 1 --peers p";
        assert!(plan_of(silences).is_ok());
        let text = plan_of(&format!("{silences} --quick")).unwrap_err();
        assert!(text.contains("--silence, in µs, sum up to"), "{text}");
        assert!(plan_of("wan --quick --peers p").is_ok());
        assert!(plan_of("overlap --quick --peers p").is_ok());
    }

    #[test]
    fn several_links_are_measured_in_turn_and_only_between_sites() {
        let asked_of = |line: &str| {
            let BenchCommand::Instrument(asked) = parse(line).unwrap().word else {
                panic!("{line}")
            };
            *asked
        };
        let InstrumentOptions { workload, options } =
            asked_of("wan --rtt 1ms,300ms --rate 1Gbit,10Gbit");
        let text = plan(workload.clone(), Place::Lan, false, &options.common).unwrap_err();
        assert!(text.contains("--rtt") && text.contains("not at lan"), "{text}");
        let planned = plan(workload, Place::Wan, false, &options.common).unwrap();
        let crossings = options.common.crossings();
        let all = asked(&[planned], &crossings);
        assert_eq!((all.len(), all[0].len()), (1, 4));
        let places = Places { prefix: PathBuf::new(), peers: PathBuf::new() };
        let estimates: Vec<Duration> = all[0].iter().map(|plan| plan.estimate(&places)).collect();
        assert!(estimates[1] > estimates[0], "{estimates:?}");
        let InstrumentOptions { workload, options } = asked_of("wan --quick");
        let planned = plan(workload, Place::Wan, false, &options.common).unwrap();
        let usual = asked(&[planned], &options.common.crossings());
        assert_eq!(usual[0][0].surroundings, Surroundings::default());
    }

    #[test]
    fn without_an_installation_nothing_is_measured_and_it_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let (prefix, output) = (folder.path().join("nowhere"), folder.path().join("out"));
        let line = format!(
            "pingpong --sizes 8 --prefix {} --output {}",
            prefix.display(),
            output.display()
        );
        let BenchCommand::Instrument(asked) = parse(&line).unwrap().word else { panic!("{line}") };
        assert_eq!(asked.workload.sizes, [8]);
        let text = alone(*asked).unwrap_err();
        assert!(text.contains("nowhere/bin/mpiexec") && text.contains("--prefix"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
