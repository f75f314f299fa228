//! Runner: measures each library once per round, in a rotating order, so that other load on the machine
//! affects all of them alike.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Lab, Stream};

use crate::environment::Environment;
use crate::kept::Kept;
use crate::launch::{Launch, Testbed};
use crate::library::{Absence, Library, LibraryKind, Variant};
use crate::planned::Plan;
use crate::programs::{ProgramError, Programs};
use crate::record::{Description, Measurement, Missing, RecordLine};
use crate::report::{CROSSING_BYTES, CROSSING_PACKETS, Entry, Report};
use crate::run::{Guarded, Interruption, RunError, about, run, tell};
use crate::scenario::{Place, Surroundings};
use crate::testbed::{Prepared, TestbedError, Testbeds, Weather};

/// Folders of the libraries.
#[derive(Clone, Debug)]
pub struct Places {
    /// Our installation.
    pub prefix: PathBuf,
    /// Folder of the peers.
    pub peers: PathBuf,
}

/// Errors that prevent a report.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Canele is not installed.
    #[error(transparent)]
    Absent(#[from] Absence),
    /// No testbed.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A program of ours does not compile.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A busy program could not be started.
    #[error("--beside: {0}")]
    Busy(RunError),
    /// Interruption by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// Checks what all measurements need, before anything is printed.
///
/// # Errors
/// Fails if Canele, or the lab that was named, is missing.
pub fn check(plans: &[Plan], places: &Places, testbeds: &Testbeds) -> Result<(), RunnerError> {
    Library::find(LibraryKind::Canele, &places.prefix, &places.peers)?;
    let needs_lab = plans.iter().any(|plan| plan.place != Place::Shm);
    if needs_lab { Ok(testbeds.check()?) } else { Ok(()) }
}

/// A plan's place among those of a command.
pub struct Turns<'a> {
    /// Reports that an interruption leaves.
    pub kept: &'a mut Kept,
    /// Number of the plan.
    pub number: usize,
    /// Estimate for the plans behind it.
    pub later: Duration,
}

/// Measures as planned, without the turns that are kept already. The report names the reason for each library that
/// cannot be measured here.
///
/// # Errors
/// Fails if the testbed is missing, or on interruption.
pub fn measure(
    plan: &Plan,
    places: &Places,
    programs: &Programs,
    testbeds: &mut Testbeds,
    interruption: &Interruption,
    turns: Turns<'_>,
) -> Result<Report, RunnerError> {
    let Turns { kept, number, later } = turns;
    let prepared = testbeds.prepare(plan.place, plan.needs(), programs, interruption)?;
    let Surroundings { loss, beside, .. } = plan.surroundings;
    let weather = prepared.lab.as_ref().filter(|_| loss > 0.0);
    let weather = weather.map(|lab| Weather::bad(lab, loss)).transpose();
    let _weather = weather.map_err(TestbedError::Weather)?;
    let _busy = busy(beside, programs)?;
    let (mut report, done) = match kept.begun(number) {
        Some((mut report, done)) => {
            report.environment.go_on();
            (report, done)
        }
        None => (empty(plan, &prepared), 0),
    };
    let mut stations = Vec::new();
    // A library that has failed is not tried again.
    for entry in &mut report.entries {
        let station =
            entry.failure.is_none().then(|| Station::new(entry, plan, places, programs, &prepared));
        stations.push(match station.transpose() {
            Ok(station) => station,
            Err(reason) => {
                tell(&format!("{}: {reason}", entry.name()));
                entry.failure = Some(reason);
                None
            }
        });
        if let Some(Some(station)) = stations.last() {
            entry.command = station.line();
        }
    }
    let (begun, libraries) = (Instant::now(), stations.len());
    for turn in done as usize..plan.turns() as usize {
        let (round, place) = (turn / libraries, turn % libraries);
        let index = (place + round) % libraries;
        let entry = &mut report.entries[index];
        if let (Some(station), None) = (&stations[index], &entry.failure) {
            let printed = format!("round {} of {}", round + 1, plan.rounds);
            take_turn(entry, station, plan, &printed, interruption)?;
        }
        report.environment.end();
        kept.keep(number, &report, turn as u32 + 1);
        let (now, left) = (turn as u32 + 1 - done, plan.turns() - turn as u32 - 1);
        if place + 1 == libraries && left > 0 {
            let left = about(begun.elapsed() / now * left + later);
            let (round, rounds) = (round + 1, plan.rounds);
            tell(&format!("canele bench: round {round} of {rounds} is over; some {left} are left"));
        }
    }
    Ok(report)
}

/// The report of a plan before its first turn.
fn empty(plan: &Plan, prepared: &Prepared) -> Report {
    Report {
        environment: Environment::now(),
        workload: plan.workload.clone(),
        place: plan.place,
        surroundings: plan.surroundings,
        rounds: plan.rounds,
        seconds_per_size: plan.seconds,
        link: prepared.link,
        lab: prepared.check.clone(),
        entries: plan.entries(),
    }
}

/// Starts programs that only compute.
fn busy(count: u32, programs: &Programs) -> Result<Vec<Guarded>, RunnerError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let program = programs.plain("busy")?;
    let start = |_| Guarded::start(Command::new(&program).stdin(Stdio::null()));
    (0..count).map(start).collect::<Result<_, _>>().map_err(RunnerError::Busy)
}

/// Runs one library once. A failure is noted with the measurements before it, and the library is not tried
/// again.
fn take_turn(
    entry: &mut Entry,
    station: &Station,
    plan: &Plan,
    printed: &str,
    interruption: &Interruption,
) -> Result<(), RunnerError> {
    for index in 0..plan.workload.ranks.len() {
        run_on(entry, station, plan, index, printed, interruption)?;
        if entry.failure.is_some() {
            break;
        }
    }
    Ok(())
}

/// Runs a turn on one number of ranks.
fn run_on(
    entry: &mut Entry,
    station: &Station,
    plan: &Plan,
    index: usize,
    printed: &str,
    interruption: &Interruption,
) -> Result<(), RunnerError> {
    let name = entry.name();
    let mut reading = Reading::new(plan, entry.library, station.hosts(index), index);
    let mut counter = station.counter(plan);
    let mut on_line = |line: &str| {
        let line = &counter.take(line)?;
        if let Some(read) = reading.take(line)? {
            tell(&format!(
                "{} {} {name:9} {printed}  {:9} {:>7}  {:>12.3} µs",
                plan.workload.description().name,
                plan.place.name(),
                read.operation,
                plan.workload.case_text(read.case()),
                read.median_us,
            ));
        }
        Ok(())
    };
    let rival = match station.rival(plan) {
        Ok(rival) => rival,
        Err(reason) => {
            entry.failure = Some(format!("--flow: {reason}"));
            return Ok(());
        }
    };
    let result = station.run(plan, index, interruption, &mut on_line);
    match rival.map(Stream::end).transpose() {
        Ok(kept) => entry.kept.extend(kept),
        Err(reason) => tell(&format!("--flow: {reason}")),
    }
    reading.settle(&result);
    match result.and_then(|()| reading.check_end().map_err(RunError::Line)) {
        Ok(()) => {}
        Err(RunError::Interrupted) => return Err(RunnerError::Interrupted),
        Err(error) => {
            let has_ranks = plan.workload.ranks.len() > 1;
            let on = if has_ranks { format!(", {} ranks", reading.ranks) } else { String::new() };
            let reason = format!("{printed}{on}: {error}");
            tell(&format!("{name}: {reason}"));
            entry.failure = Some(reason);
        }
    }
    reading.end(entry, index == 0);
    Ok(())
}

/// Lines of one run, checked as they arrive.
struct Reading {
    kind: LibraryKind,
    expected: usize,
    hosts: Option<[String; 2]>,
    ranks: u32,
    description: Option<Description>,
    round: Vec<Measurement>,
    missing: Vec<Missing>,
}

impl Reading {
    fn new(plan: &Plan, kind: LibraryKind, hosts: Option<[String; 2]>, index: usize) -> Self {
        Self {
            kind,
            expected: plan.workload.measurements(),
            hosts,
            ranks: plan.workload.ranks[index],
            description: None,
            round: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Takes a line; returns the measurement it holds.
    fn take(&mut self, line: &str) -> Result<Option<&Measurement>, String> {
        match RecordLine::parse(line).map_err(|error| error.to_string())? {
            RecordLine::Foreign | RecordLine::Mark => Ok(None),
            RecordLine::Description(description) => {
                self.check(&description)?;
                self.description = Some(description);
                Ok(None)
            }
            // Measurements count only after the description.
            RecordLine::Missing(_) | RecordLine::Measurement(_) if self.description.is_none() => {
                Err("the program measured before it described itself".into())
            }
            RecordLine::Missing(Missing { operation, bytes, missing, .. })
                if self.kind == LibraryKind::Canele && missing == WRONG =>
            {
                Err(format!("{operation} of {bytes} bytes: {missing}"))
            }
            RecordLine::Missing(missing) => {
                self.missing.push(Missing { ranks: self.ranks, ..missing });
                Ok(None)
            }
            RecordLine::Measurement(read) => {
                self.round.push(Measurement { ranks: self.ranks, ..read });
                Ok(self.round.last())
            }
        }
    }

    /// Checks that the library, the ranks and the hosts are the expected ones, and that the clock is right.
    fn check(&self, description: &Description) -> Result<(), String> {
        if self.description.is_some() {
            return Err("the ranks ran as jobs of their own".into());
        }
        if !description.library.contains(self.kind.signature()) {
            return Err(format!("the program ran on `{}` instead", description.library));
        }
        if description.ranks != self.ranks {
            return Err(format!("{} ranks ran instead of {}", description.ranks, self.ranks));
        }
        if let Some(hosts) = &self.hosts
            && description.hosts != *hosts
        {
            return Err(format!("the ranks ran on {} instead", description.hosts.join(" and ")));
        }
        if description.clock.error() > CLOCK_TOLERANCE {
            let percent = description.clock.error() * 100.0;
            return Err(format!("the clock differs from the system's by {percent:.2} %"));
        }
        Ok(())
    }

    /// Drops all measurements of a run that was refused, or that failed after the last of them. An
    /// interrupted run keeps its measurements.
    fn settle(&mut self, result: &Result<(), RunError>) {
        let is_refused = matches!(result, Err(RunError::Line(_)));
        let is_whole = self.round.len() + self.missing.len() >= self.expected;
        if is_refused || (result.is_err() && is_whole) {
            self.round.clear();
            self.missing.clear();
        }
    }

    /// Checks that all measurements arrived.
    fn check_end(&self) -> Result<(), String> {
        if self.description.is_none() {
            return Err("the program printed nothing".into());
        }
        let (count, expected) = (self.round.len() + self.missing.len(), self.expected);
        if count != expected {
            return Err(format!("{count} measurements came instead of {expected}"));
        }
        Ok(())
    }

    /// Adds the measurements to the library's entry.
    fn end(self, entry: &mut Entry, is_first: bool) {
        if let Some(description) = self.description {
            entry.version = description.library;
            entry.clock = Some(description.clock);
        }
        match entry.rounds.last_mut() {
            Some(round) if !is_first => round.extend(self.round),
            Some(_) | None => entry.rounds.push(self.round),
        }
        entry.rounds.pop_if(|round| round.is_empty());
        for missing in self.missing {
            if !entry.missing.contains(&missing) {
                entry.missing.push(missing);
            }
        }
    }
}

/// Counts traffic on links from a mark to the next measurement, and adds it to that.
#[derive(Default)]
struct Counter<'a> {
    /// None if nothing is counted.
    lab: Option<&'a Lab>,
    marked: Option<[u64; 2]>,
}

impl Counter<'_> {
    /// Takes a line; returns it with the counts.
    fn take(&mut self, line: &str) -> Result<String, String> {
        let Some(lab) = self.lab else { return Ok(line.into()) };
        match RecordLine::parse(line).map_err(|error| error.to_string())? {
            RecordLine::Mark => self.marked = Some(carried(lab)?),
            RecordLine::Measurement(mut read) => {
                let calls = read.parts.get("crossing_calls").copied();
                if let (Some(before), Some(calls)) = (self.marked.take(), calls) {
                    let names = [CROSSING_BYTES, CROSSING_PACKETS];
                    for ((name, now), before) in names.into_iter().zip(carried(lab)?).zip(before) {
                        read.parts.insert(name.into(), now.saturating_sub(before) as f64 / calls);
                    }
                }
                return serde_json::to_string(&read).map_err(|error| error.to_string());
            }
            RecordLine::Description(_) | RecordLine::Missing(_) | RecordLine::Foreign => {}
        }
        Ok(line.into())
    }
}

/// Returns the bytes and packets that all links between sites have carried so far.
fn carried(lab: &Lab) -> Result<[u64; 2], String> {
    let links = lab.links().map_err(|error| error.to_string())?;
    let sum = |of: fn(&lab::Counts) -> u64| links.iter().map(|link| of(&link.counts)).sum();
    Ok([sum(|counts| counts.bytes), sum(|counts| counts.packets)])
}

/// A library that is ready to run the program at the place.
enum Station {
    /// An MPI: its launcher, or a command that starts both ranks or processes itself.
    Mpi { launches: Vec<Launch>, lab: Option<Lab>, hosts: Vec<Option<[String; 2]>> },
    /// Plain TCP: a server and a client, and the nodes of relays between them.
    Tcp {
        program: PathBuf,
        streams: u32,
        lab: Option<Lab>,
        nodes: Option<[String; 2]>,
        relays: Vec<String>,
    },
}

impl Station {
    fn new(
        entry: &Entry,
        plan: &Plan,
        places: &Places,
        programs: &Programs,
        prepared: &Prepared,
    ) -> Result<Self, String> {
        let (kind, lab) = (entry.library, prepared.lab.clone());
        let ends = ends(&prepared.testbed);
        let gateways = entry.variant.as_ref().map_or(0, Variant::gateways);
        if let Some(streams) = kind.streams() {
            let program = programs.plain("tcp").map_err(|error| error.to_string())?;
            let relays = match spread(&prepared.testbed, 2) {
                Testbed::Grid(grid) => grid.gateways(2, gateways),
                Testbed::Machine => Vec::new(),
            };
            return Ok(Self::Tcp { program, streams, lab, nodes: ends, relays });
        }
        let description = plan.workload.description();
        let mut arguments = plan.workload.arguments(plan.seconds);
        if counts_crossing(plan, lab.as_ref()) {
            arguments.insert(0, "crossing".into());
        }
        let settings = entry.variant.iter().flat_map(Variant::environment);
        if description.is_own || kind == LibraryKind::Memory {
            let first = if description.is_own {
                let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
                vec![text(&own), "bench".into(), description.program.into()]
            } else {
                vec![text(&programs.plain("memory").map_err(|error| error.to_string())?)]
            };
            let words = first.into_iter().chain(arguments).collect();
            let launch = Launch { node: None, words, environment: settings.collect() };
            return Ok(Self::Mpi { launches: vec![launch], lab, hosts: vec![ends] });
        }
        let library = Library::find(kind, &places.prefix, &places.peers);
        let library = library.map_err(|error| error.to_string())?;
        let program = programs.mpi(description.program, &library);
        let program = program.map_err(|error| error.to_string())?;
        let settings: Vec<_> = settings.collect();
        let launch = |ranks: &u32| {
            let mut testbed = spread(&prepared.testbed, *ranks);
            if let (1.., Testbed::Grid(grid)) = (gateways, &mut testbed) {
                let text = grid.description(*ranks, gateways);
                let file = programs.grid(&format!("{gateways}-{ranks}"), &text);
                grid.file = Some(file.map_err(|error| error.to_string())?);
            }
            let mut launch = Launch::new(&library, &testbed, *ranks, &program, &arguments);
            launch.environment.extend(settings.iter().cloned());
            Ok(launch)
        };
        let launches = plan.workload.ranks.iter().map(launch).collect::<Result<_, String>>()?;
        let hosts = |ranks: &u32| self::ends(&spread(&prepared.testbed, *ranks));
        let hosts = plan.workload.ranks.iter().map(hosts).collect();
        Ok(Self::Mpi { launches, lab, hosts })
    }

    /// Starts the competing flow, if one is requested.
    fn rival(&self, plan: &Plan) -> Result<Option<Stream>, String> {
        let (Self::Mpi { lab, .. } | Self::Tcp { lab, .. }) = self;
        let wanted = lab.as_ref().zip(plan.surroundings.flow);
        wanted.map(|(lab, flow)| Stream::start(lab, flow)).transpose()
    }

    /// Returns a counter of the lab's links, if it is needed.
    fn counter(&self, plan: &Plan) -> Counter<'_> {
        match self {
            Self::Mpi { lab, .. } => {
                let lab = lab.as_ref().filter(|lab| counts_crossing(plan, Some(lab)));
                Counter { lab, marked: None }
            }
            Self::Tcp { .. } => Counter::default(),
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Mpi { launches, .. } => {
                launches.iter().map(Launch::line).collect::<Vec<_>>().join("\n")
            }
            Self::Tcp { program, streams, relays, .. } => {
                let through = relays.iter().map(|node| format!(" through {node}"));
                format!("{} in {streams} streams{}", program.display(), through.collect::<String>())
            }
        }
    }

    /// Returns the hosts of the first and the last rank, if they and the program's view of them are known.
    fn hosts(&self, index: usize) -> Option<[String; 2]> {
        match self {
            Self::Mpi { hosts, .. } => hosts[index].clone(),
            Self::Tcp { .. } => None,
        }
    }

    fn run(
        &self,
        plan: &Plan,
        index: usize,
        interruption: &Interruption,
        on_line: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Result<(), RunError> {
        let limit = plan.workload.limit(plan.seconds, plan.link().as_ref());
        match self {
            Self::Mpi { launches, lab, .. } => {
                let launch = &launches[index];
                let mut command = enter(lab.as_ref(), launch.node.as_deref(), &launch.words)?;
                let variables = launch.environment.iter().map(|(name, value)| (name, value));
                run(command.envs(variables), limit, interruption, on_line)
            }
            Self::Tcp { program, streams, lab, nodes, relays } => {
                let [from, to] =
                    nodes.as_ref().map_or([None, None], |[from, to]| [Some(from), Some(to)]);
                let streams = streams.to_string();
                let words = [text(program), "serve".into(), streams.clone()];
                let mut servers = vec![serve(&words, lab.as_ref(), to)?];
                for node in relays.iter().rev() {
                    let Server { address, port, .. } = &servers[servers.len() - 1];
                    let (address, port) = (address.clone(), port.clone());
                    let words = [text(program), "relay".into(), streams.clone(), address, port];
                    servers.push(serve(&words, lab.as_ref(), Some(node))?);
                }
                let Server { address, port, .. } = &servers[servers.len() - 1];
                let what = plan.workload.description().program;
                let mut words = vec![text(program), what.to_owned()];
                words.extend([address.clone(), port.clone(), streams]);
                words.extend(plan.workload.arguments(plan.seconds));
                let mut command = enter(lab.as_ref(), from.map(String::as_str), &words)?;
                run(&mut command, limit, interruption, on_line)
            }
        }
    }
}

/// A server that listens, or a relay.
struct Server {
    address: String,
    port: String,
    _child: Guarded,
}

/// Starts a server on a node.
fn serve(words: &[String], lab: Option<&Lab>, node: Option<&String>) -> Result<Server, RunError> {
    let mut command = enter(lab, node.map(String::as_str), words)?;
    let mut child = Guarded::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let mut port = String::new();
    if let Some(stdout) = child.stdout() {
        // It prints its port or ends; both end the line.
        let _ = BufReader::new(stdout).read_line(&mut port);
    }
    if port.trim().is_empty() {
        return Err(RunError::Line("the TCP server did not start".into()));
    }
    let known = lab.and_then(|lab| lab.nodes.iter().find(|known| Some(&known.host) == node));
    let address = known.map_or("127.0.0.1", |node| &node.address).to_owned();
    Ok(Server { address, port: port.trim().into(), _child: child })
}

/// True if traffic on links is counted: between sites, if the lab's links have counters.
fn counts_crossing(plan: &Plan, lab: Option<&Lab>) -> bool {
    let is_wanted = plan.workload.description().has_crossing && plan.place == Place::Wan;
    is_wanted && lab.is_some_and(|lab| lab.links().is_ok_and(|links| !links.is_empty()))
}

/// Returns a command in a node of the lab, or on the machine.
fn enter(lab: Option<&Lab>, node: Option<&str>, words: &[String]) -> Result<Command, RunError> {
    match (lab, node) {
        (Some(lab), Some(node)) => {
            lab.command(node, words).map_err(|error| RunError::Line(error.to_string()))
        }
        _ => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            Ok(command)
        }
    }
}

/// Returns the testbed with the nodes that the workload needs: two for two ranks, the ends of the link;
/// otherwise at most one per rank, of all sites.
fn spread(testbed: &Testbed, ranks: u32) -> Testbed {
    match (testbed, ends(testbed)) {
        (Testbed::Grid(grid), Some(ends)) if ranks == 2 => {
            Testbed::Grid(crate::launch::LabNodes { nodes: ends.into(), ..grid.clone() })
        }
        (Testbed::Grid(grid), _) => {
            let nodes = grid.places(ranks).into_iter().map(|(node, _)| node).collect();
            Testbed::Grid(crate::launch::LabNodes { nodes, ..grid.clone() })
        }
        (Testbed::Machine, _) => Testbed::Machine,
    }
}

/// Returns the hosts of the first and of the last rank.
fn ends(testbed: &Testbed) -> Option<[String; 2]> {
    match testbed {
        Testbed::Machine => None,
        Testbed::Grid(grid) => Some([grid.nodes.first()?.clone(), grid.nodes.last()?.clone()]),
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Reason for a missing time: the program found a wrong result.
const WRONG: &str = "the result came out wrong";
/// Largest relative error of a clock.
const CLOCK_TOLERANCE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::{Instrument, Workload};

    #[test]
    fn ranks_are_spread_over_the_ends_or_over_no_more_nodes_than_there_are_ranks() {
        let grid = crate::launch::LabNodes {
            lab: Box::default(),
            file: None,
            nodes: ["a", "b", "c", "d"].map(str::to_owned).into(),
            canele: PathBuf::new(),
            enter: PathBuf::new(),
        };
        let of = |ranks| ends(&spread(&Testbed::Grid(grid.clone()), ranks)).unwrap().join("");
        assert_eq!([2, 3, 4, 9].map(of), ["ad", "ac", "ad", "ad"]);
        assert_eq!(spread(&Testbed::Machine, 3), Testbed::Machine);
    }

    #[test]
    fn raw_tcp_is_measured_through_relays_too_where_ours_goes_through_gateways() {
        let variant = |text: &str| text.parse::<Variant>().unwrap();
        let plan = Plan {
            kinds: vec![LibraryKind::Canele, LibraryKind::RawTcp],
            variants: vec![
                variant("direct"),
                variant("two:gateways=2"),
                variant("plain:gateways=2,CANELE_ENCRYPT=none"),
            ],
            ..plan()
        };
        let names: Vec<String> = plan.entries().iter().map(Entry::name).collect();
        let ours = ["Canele direct", "Canele two", "Canele plain"];
        assert_eq!(names, [&ours[..], &["raw TCP", "raw TCP two"]].concat());
    }

    fn plan() -> Plan {
        Plan {
            workload: Workload { sizes: vec![8], ..Workload::new(Instrument::Pingpong) },
            place: Place::Shm,
            surroundings: Surroundings::default(),
            kinds: vec![LibraryKind::Mpich],
            variants: Vec::new(),
            tuned: false,
            rounds: 1,
            seconds: 0.1,
            nodes: 2,
            pairs: Vec::new(),
        }
    }

    fn reading(hosts: Option<[String; 2]>) -> Reading {
        Reading::new(&plan(), LibraryKind::Mpich, hosts, 0)
    }

    fn description(library: &str, ranks: u32, clock_ms: f64) -> String {
        format!(
            r#"{{"program": "pingpong", "ranks": {ranks}, "library": "{library}", "hosts": ["a", "b"], "clock": {{"source": "x", "ticks_per_us": 1, "overhead_ns": 1, "resolution_ns": 1, "sleep_asked_ms": 20, "sleep_system_ms": 20, "sleep_clock_ms": {clock_ms}}}}}"#
        )
    }

    #[test]
    fn a_run_on_another_library_or_elsewhere_does_not_count() {
        let here = Some(["a", "b"].map(str::to_owned));
        let there = Some(["a", "c"].map(str::to_owned));
        assert!(reading(here).take(&description("MPICH 5", 2, 20.0)).is_ok());
        for (hosts, line, word) in [
            (None, description("Canele 0.1", 2, 20.0), "Canele 0.1"),
            (None, description("MPICH 5", 1, 20.0), "1 ranks"),
            (None, description("MPICH 5", 2, 21.0), "clock"),
            (there, description("MPICH 5", 2, 20.0), "a and b"),
        ] {
            let error = reading(hosts).take(&line).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_run_that_breaks_off_is_told() {
        assert!(reading(None).check_end().is_err());
        let mut reading = reading(None);
        let measurement = serde_json::to_string(&crate::record::measurement(
            "pingpong",
            crate::record::Case { bytes: 8, count: 0, ranks: 2 },
            1.0,
        ))
        .unwrap();
        assert!(reading.take(&measurement).is_err(), "nobody has said who measures");
        reading.take(&description("MPICH 5", 2, 20.0)).unwrap();
        assert!(reading.take(&description("MPICH 5", 2, 20.0)).is_err());
        assert!(reading.check_end().unwrap_err().contains("0 measurements"));
        reading.take(&measurement).unwrap();
        assert_eq!(reading.check_end(), Ok(()));
    }

    #[test]
    fn wrong_results_have_no_time_and_are_refused_for_canele() {
        let line =
            format!(r#"{{"operation": "bcast", "bytes": 16, "count": 0, "missing": "{WRONG}"}}"#);
        for (kind, version, is_taken) in
            [(LibraryKind::Mpich, "MPICH 5", true), (LibraryKind::Canele, "Canele 1", false)]
        {
            let mut reading = Reading { kind, ..reading(None) };
            reading.take(&description(version, 2, 20.0)).unwrap();
            let taken = reading.take(&line);
            assert_eq!(taken.is_ok(), is_taken, "{taken:?}");
        }
    }

    #[test]
    fn an_interrupted_run_keeps_its_measurements() {
        let lines = [8, 16].map(|bytes| {
            let case = crate::record::Case { bytes, count: 0, ranks: 2 };
            serde_json::to_string(&crate::record::measurement("pingpong", case, 1.0)).unwrap()
        });
        let missing = r#"{"operation": "pingpong", "bytes": 16, "count": 0, "missing": "why"}"#;
        let too_long = || Err(RunError::TooLong { seconds: 1.0, text: String::new() });
        let refused = || Err(RunError::Line("no".into()));
        for (lines, result, rounds) in [
            (&lines[..1], too_long(), 1),
            (&lines[..1], refused(), 0),
            (&lines[..], too_long(), 0),
            (&[lines[0].clone(), missing.into()], Ok(()), 1),
        ] {
            let mut reading = reading(None);
            reading.expected = 2;
            reading.take(&description("MPICH 5", 2, 20.0)).unwrap();
            for line in lines {
                reading.take(line).unwrap();
            }
            reading.settle(&result);
            let mut entry = Entry::new(LibraryKind::Mpich, None);
            reading.end(&mut entry, true);
            assert_eq!(entry.rounds.len(), rounds, "{lines:?} {result:?}");
            assert_eq!(entry.missing.len(), usize::from(result.is_ok()));
            assert_eq!(entry.version, "MPICH 5");
        }
    }
}
