//! Cost of the engine and of progress for a single message: half a round trip over three paths. They are a
//! bare rail, an equal rail below the engine, and one below engine and progress. One pair of processes
//! measures them in turn.
//!
//! Each path has a rail of its own, behind the same trait object. Over the bare rail, each message is copied
//! into a frame and out of it, and the receiver polls. So the first difference is the cost of ordering and
//! matching, and the second that of the lock, of threads and of waiting.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use engine::strategy::{self, Strategy};
use engine::{Config, Engine, Envelope, OpId, Outcome, Posted, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{Event, Neighbours, Post, Rail};
use rail_shm::{ShmConfig, ShmRail};
use rail_tcp::{TcpConfig, TcpRail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::{Capabilities, Frame, PeerId, RailId};

use crate::instrument::Case;
use crate::record::{Clock, Description, Measurement};

/// Options of the command, which runs in a process of its own and starts the other.
#[derive(Debug, Args)]
pub struct OverheadOptions {
    /// Answer the process that started this one
    #[arg(long)]
    answers: bool,
    /// The time for each rail and size
    seconds: f64,
    /// Sizes of messages in bytes
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    sizes: Vec<u32>,
}

/// Measures and prints lines of JSON like the programs, or answers.
///
/// # Errors
/// One line for people.
pub fn run(options: &OverheadOptions) -> Result<(), String> {
    if options.answers {
        let cores = take_core(1)?;
        let mut other = PeerPipes { from: std::io::stdin().lock(), to: std::io::stdout() };
        let secret = other.hear()?;
        return RAILS.iter().try_for_each(|rail| {
            let mut paths = Paths::open(rail, 1, cores, secret, &mut other)?;
            options.sizes.iter().try_for_each(|size| paths.answer(*size as usize))?;
            // The links stay until the last answer has come.
            other.hear()
        });
    }
    let mut child = AnsweringProcess::start(options)?;
    // Binding comes after the start of the child, which inherits the affinity.
    let cores = take_core(0)?;
    let mut secret = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    read.map_err(|error| format!("/dev/urandom: {error}"))?;
    child.other.tell(&secret)?;
    print(&description())?;
    for rail in RAILS {
        let mut paths = Paths::open(rail, 0, cores, secret, &mut child.other)?;
        for size in &options.sizes {
            for measurement in paths.measure(rail, *size as usize, options.seconds)? {
                print(&measurement)?;
            }
        }
        child.other.tell(&())?;
    }
    child.end()
}

/// Binds this process to a core of its own, if there are two, and returns their number. Two processes on one
/// core would measure context switches.
fn take_core(rank: usize) -> Result<usize, String> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let failed = |error: rustix::io::Errno| format!("affinity: {error}");
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if let (Some(core), 2..) = (cores.get(rank), cores.len()) {
        let mut own = CpuSet::new();
        own.set(*core);
        sched_setaffinity(None, &own).map_err(failed)?;
    }
    Ok(cores.len())
}

/// Names of the compared rails.
const RAILS: [&str; 2] = ["shm", "tcp"];

/// Pipes to the other process.
struct PeerPipes<R, W> {
    from: R,
    to: W,
}

impl<R: BufRead, W: Write> PeerPipes<R, W> {
    fn tell(&mut self, what: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_string(what).map_err(|error| error.to_string())?;
        let told = writeln!(self.to, "{text}").and_then(|()| self.to.flush());
        told.map_err(|error| format!("the other process: {error}"))
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(|error| format!("the other process: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("the other process: {error}"))
    }
}

/// The answering process, ended on drop.
struct AnsweringProcess {
    child: Child,
    other: PeerPipes<BufReader<std::process::ChildStdout>, std::process::ChildStdin>,
}

impl AnsweringProcess {
    fn start(options: &OverheadOptions) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", own.display());
        let mut child = Command::new(&own)
            .args(["bench", "overhead-pair", "--answers", &options.seconds.to_string()])
            .args(options.sizes.iter().map(u32::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        match (child.stdout.take(), child.stdin.take()) {
            (Some(from), Some(to)) => {
                Ok(Self { child, other: PeerPipes { from: BufReader::new(from), to } })
            }
            _ => unreachable!("both were asked for"),
        }
    }

    fn end(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the other process: {status}")) }
    }
}

impl Drop for AnsweringProcess {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Paths to the other process over one kind of rail.
struct Paths {
    bare: BareRail,
    scheduled: RailBelowEngine,
    progressed: RailBelowProgress,
}

impl Paths {
    /// Opens all paths; the process of rank 0 connects, the other accepts.
    fn open(
        name: &str,
        rank: u32,
        cores: usize,
        secret: [u8; 32],
        other: &mut PeerPipes<impl BufRead, impl Write>,
    ) -> Result<Self, String> {
        let bare = open_rail(name, rank, 0, secret)?;
        let scheduled = open_rail(name, rank, 1, secret)?;
        let progressed = open_rail(name, rank, 2, secret)?;
        other.tell(&[bare.address(), scheduled.address(), progressed.address()])?;
        let addresses: [Vec<u8>; PATHS] = other.hear()?;
        let [bare_address, scheduled_address, progressed_address] = addresses;
        let bare = BareRail::open(bare, rank, &bare_address)?;
        let scheduled = RailBelowEngine::open(scheduled, rank, &scheduled_address)?;
        let progressed = RailBelowProgress::open(progressed, rank, cores, progressed_address)?;
        // Nothing is sent before both links are up.
        other.tell(&())?;
        other.hear::<()>()?;
        Ok(Self { bare, scheduled, progressed })
    }

    fn all(&mut self) -> [&mut dyn MessagePath; PATHS] {
        [&mut self.bare, &mut self.scheduled, &mut self.progressed]
    }

    /// Alternates between all paths until the time is over; a sample is the mean of a batch.
    fn measure(
        &mut self,
        rail: &str,
        size: usize,
        seconds: f64,
    ) -> Result<[Measurement; PATHS], String> {
        let mut firsts_us = [None; PATHS];
        let mut samples_us = [const { Vec::new() }; PATHS];
        self.all().into_iter().for_each(|path| path.prepare(size));
        let start = Instant::now();
        let mut ends = false;
        while !ends {
            let (spent, count) = (start.elapsed().as_secs_f64(), samples_us[PATHS - 1].len());
            ends = count == SAMPLES_MAX || (count >= SAMPLES_LEAST && spent >= seconds);
            let is_warm = spent >= seconds / 4.0;
            for (index, path) in self.all().into_iter().enumerate() {
                path.set_word(if ends { ENDS } else { GOES_ON });
                let begin = Instant::now();
                path.ask(BATCH)?;
                let each_us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(2 * BATCH);
                if !path.is_echo() {
                    return Err(format!("{rail}: {size} bytes came back changed"));
                }
                if firsts_us[index].replace(each_us).is_some() && is_warm {
                    samples_us[index].push(each_us);
                }
            }
        }
        let of = |index: usize| {
            let case = Case { bytes: size as u64, count: index as u64, ranks: 2 };
            let first_us = firsts_us[index].unwrap_or_default();
            Measurement::of(rail, case, first_us, &samples_us[index])
        };
        Ok([of(0), of(1), of(2)])
    }

    fn answer(&mut self, size: usize) -> Result<(), String> {
        self.all().into_iter().for_each(|path| path.prepare(size));
        let mut ended = false;
        while !ended {
            for path in self.all() {
                path.answer(BATCH)?;
                ended = path.word() == ENDS;
            }
        }
        Ok(())
    }
}

fn open_rail(name: &str, rank: u32, job: u8, secret: [u8; 32]) -> Result<Box<dyn Rail>, String> {
    let failed = |error: rail::RailError| format!("rail {name}: {error}");
    let rank = PeerId(rank);
    if name == "shm" {
        let rail =
            ShmRail::new(ShmConfig { rank, job: [job; 16], host: cost::HostCost::default() });
        return Ok(Box::new(rail.map_err(failed)?));
    }
    let interface = Some(LOOPBACK.into());
    let usual = TcpConfig::new(rank, job.into(), secret);
    let config = TcpConfig { interface, connect_timeout: PATIENCE, ..usual };
    Ok(Box::new(TcpRail::new(config).map_err(failed)?))
}

/// Returns the strategy of the setting, as for programs.
fn strategy() -> Result<Box<dyn Strategy>, String> {
    let (name, variable) = (settings::STRATEGY.text(), settings::STRATEGY.variable());
    strategy::named(&name).ok_or_else(|| format!("{variable}={name}: no such strategy"))
}

/// A path for messages of one size. Their first byte tells the other process to continue or stop.
trait MessagePath {
    /// Sets the size of messages.
    fn prepare(&mut self, size: usize);
    fn set_word(&mut self, word: u8);
    /// Returns the first byte of the last message received.
    fn word(&self) -> u8;
    /// True if the last message received is the one sent.
    fn is_echo(&self) -> bool;
    /// Sends a message, or returns the last one received.
    fn send(&mut self, returns: bool) -> Result<(), String>;
    /// Waits for a message.
    fn receive(&mut self) -> Result<(), String>;

    /// Sends and receives `times` messages.
    fn ask(&mut self, times: u32) -> Result<(), String> {
        (0..times).try_for_each(|_| {
            self.send(false)?;
            self.receive()
        })
    }

    /// Receives and returns `times` messages.
    fn answer(&mut self, times: u32) -> Result<(), String> {
        (0..times).try_for_each(|_| {
            self.receive()?;
            self.send(true)
        })
    }
}

/// Waits between two polls without result, as progress does: a peer on the same core can only answer once it
/// runs.
fn pause(rail: &mut dyn Rail, polls: u32) {
    if polls.is_multiple_of(POLLS_PER_LOOK)
        && (rail.neighbours().is_some_and(Neighbours::shares_core) || polls >= POLLS_MAX)
    {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Opens the only link of a rail; rank 0 connects. Returns its capabilities.
fn open_link(rail: &mut dyn Rail, rank: u32, address: &[u8]) -> Result<Capabilities, String> {
    if rank == 0 {
        rail.connect(PeerId(1), address).map_err(|error| error.to_string())?;
    }
    let since = Instant::now();
    let mut link = None;
    loop {
        rail.poll(&mut |event| {
            if let Event::Up { capabilities, .. } = event {
                link = Some(capabilities);
            }
        });
        if let Some(capabilities) = link {
            return Ok(capabilities);
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("rail {}: no link", rail.name()));
        }
        std::thread::yield_now();
    }
}

/// A rail and nothing else.
struct BareRail {
    rail: Box<dyn Rail>,
    peer: PeerId,
    frame: Frame,
    out: Vec<u8>,
    into: Vec<u8>,
    /// Bytes received of a cut-through message.
    come: usize,
}

impl BareRail {
    fn open(mut rail: Box<dyn Rail>, rank: u32, address: &[u8]) -> Result<Self, String> {
        open_link(&mut *rail, rank, address)?;
        let peer = PeerId(1 - rank);
        Ok(Self { rail, peer, frame: Frame::default(), out: Vec::new(), into: Vec::new(), come: 0 })
    }

    /// Takes a message, if one has arrived.
    fn take(&mut self) -> Option<Result<(), String>> {
        let Self { rail, into, come, .. } = self;
        let mut outcome = None;
        rail.poll(&mut |event| match event {
            Event::Begun { bytes, len, taken, .. } if len == into.len() => {
                into[..bytes.len()].copy_from_slice(bytes);
                (*come, *taken) = (bytes.len(), true);
            }
            Event::Rest { bytes, .. } => {
                into[*come..][..bytes.len()].copy_from_slice(bytes);
                *come += bytes.len();
                if *come == into.len() {
                    outcome = Some(Ok(()));
                }
            }
            Event::Frame { bytes, .. } if bytes.len() == into.len() => {
                into.copy_from_slice(bytes);
                outcome = Some(Ok(()));
            }
            Event::Frame { bytes, .. } => {
                outcome = Some(Err(format!("{} bytes came", bytes.len())));
            }
            Event::Down { fault, .. } => outcome = Some(Err(format!("link down: {fault:?}"))),
            Event::Begun { .. }
            | Event::Up { .. }
            | Event::Sent { .. }
            | Event::Room { .. }
            | Event::Cost { .. }
            | Event::Refused { .. }
            | Event::Hampered { .. } => {}
        });
        outcome
    }
}

impl MessagePath for BareRail {
    fn prepare(&mut self, size: usize) {
        self.out = pattern(size);
        self.into = vec![0; size];
    }

    fn set_word(&mut self, word: u8) {
        self.out[0] = word;
    }

    fn word(&self) -> u8 {
        self.into[0]
    }

    fn is_echo(&self) -> bool {
        self.into == self.out
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        self.frame.clear();
        self.frame.head.extend_from_slice(if returns { &self.into } else { &self.out });
        match self.rail.post(self.peer, &self.frame) {
            Post::Done | Post::Held => Ok(()),
            Post::Full => Err("the bare rail has no room for one message".into()),
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut polls: u32 = 0;
        loop {
            if let Some(outcome) = self.take() {
                return outcome;
            }
            polls += 1;
            pause(&mut *self.rail, polls);
        }
    }
}

/// Messages of the engine, in both directions.
struct Messages {
    peer: PeerId,
    envelope: Envelope,
    selector: Selector,
    out: Region,
    into: Region,
}

impl Messages {
    fn of(rank: u32) -> Self {
        let peer = 1 - rank;
        Self {
            peer: PeerId(peer),
            envelope: Envelope { context: 0, source: rank, tag: 1, is_urgent: false },
            selector: Selector { context: 0, source: Some(peer), tag: Some(1) },
            out: Region::empty(),
            into: Region::empty(),
        }
    }

    fn prepare(&mut self, size: usize) {
        self.out = Region::from_box(pattern(size).into());
        self.into = Region::owned(size);
    }

    fn word(&self) -> u8 {
        let mut word = [0];
        self.into.read(0, &mut word);
        word[0]
    }

    fn is_echo(&self) -> bool {
        self.into.to_vec() == self.out.to_vec()
    }

    fn data(&self, returns: bool) -> &Region {
        if returns { &self.into } else { &self.out }
    }
}

/// A rail below the engine, without a lock, other threads, or sleep.
struct RailBelowEngine {
    engine: Engine,
    rail: Box<dyn Rail>,
    frame: Frame,
    messages: Messages,
}

impl RailBelowEngine {
    fn open(mut rail: Box<dyn Rail>, rank: u32, address: &[u8]) -> Result<Self, String> {
        let mut engine = Engine::new(Config { strategy: strategy()?, ..Config::new(2) });
        let capabilities = open_link(&mut *rail, rank, address)?;
        engine.handle_up(PeerId(1 - rank), ONLY, capabilities);
        Ok(Self { engine, rail, frame: Frame::default(), messages: Messages::of(rank) })
    }

    /// Polls the rail and sends the resulting frames.
    fn advance(&mut self) -> Result<(), String> {
        let Self { engine, rail, .. } = self;
        let mut failure = None;
        rail.poll(&mut |event| match event {
            Event::Frame { peer, bytes } => {
                if let Err(error) = engine.handle_frame(peer, ONLY, bytes) {
                    failure = Some(error.to_string());
                }
            }
            Event::Begun { peer, bytes, len, taken } => {
                match engine.handle_beginning(peer, ONLY, bytes, len) {
                    Ok(is_taken) => *taken = is_taken,
                    Err(error) => failure = Some(error.to_string()),
                }
            }
            Event::Rest { peer, bytes } => engine.handle_rest(peer, bytes),
            Event::Sent { peer, token } => engine.handle_sent(peer, ONLY, token),
            Event::Room { peer } => engine.handle_room(peer, ONLY),
            Event::Cost { peer, cost } => engine.handle_cost(peer, ONLY, cost),
            Event::Down { fault, .. } => failure = Some(format!("link down: {fault:?}")),
            Event::Up { .. } | Event::Refused { .. } | Event::Hampered { .. } => {}
        });
        self.flush();
        failure.map_or(Ok(()), Err)
    }

    fn flush(&mut self) {
        while let Some((peer, rail)) = self.engine.poll_peer() {
            while self.engine.poll_frame(peer, rail, &mut self.frame) && self.post(peer) {}
        }
    }

    /// Posts the frame; false when the rail has no room.
    fn post(&mut self, peer: PeerId) -> bool {
        let posted = match self.rail.post(peer, &self.frame) {
            Post::Done => Posted::Done,
            Post::Held => Posted::Held,
            Post::Full => Posted::Full,
        };
        self.engine.handle_posted(peer, ONLY, &mut self.frame, posted);
        posted != Posted::Full
    }

    fn wait(&mut self, op: OpId) -> Result<(), String> {
        let mut polls: u32 = 0;
        loop {
            if let Some(ended) = self.engine.take(op) {
                return outcome(ended.outcome);
            }
            self.advance()?;
            polls += 1;
            pause(&mut *self.rail, polls);
        }
    }
}

impl MessagePath for RailBelowEngine {
    fn prepare(&mut self, size: usize) {
        self.messages.prepare(size);
    }

    fn set_word(&mut self, word: u8) {
        self.messages.out.write(0, &[word]);
    }

    fn word(&self) -> u8 {
        self.messages.word()
    }

    fn is_echo(&self) -> bool {
        self.messages.is_echo()
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        let Self { engine, frame, messages, .. } = self;
        let Messages { peer, envelope, .. } = *messages;
        if engine.submit_short(peer, envelope, messages.data(returns), frame).is_some() {
            self.post(peer);
            return Ok(());
        }
        let data = messages.data(returns);
        let op = engine.submit_send(peer, envelope, data, SendMode::Standard);
        self.flush();
        self.wait(op)
    }

    fn receive(&mut self) -> Result<(), String> {
        let Messages { peer, selector, ref into, .. } = self.messages;
        let op = self.engine.submit_receive(Some(peer), selector, into);
        self.wait(op)
    }
}

/// A rail below the engine and its progress, called as the MPI layer calls them.
struct RailBelowProgress {
    progress: Arc<Progress>,
    messages: Messages,
}

impl RailBelowProgress {
    fn open(
        rail: Box<dyn Rail>,
        rank: u32,
        cores: usize,
        address: Vec<u8>,
    ) -> Result<Self, String> {
        let directory = Box::new(AddressStore { rail: rail.name(), address });
        let engine = Engine::new(Config { strategy: strategy()?, ..Config::new(2) });
        let core = Worker::new(engine, PeerId(rank), 2, vec![rail], directory);
        let progress = Progress::new(core, Policy::for_node(2, cores));
        let progress = progress.map_err(|error| error.to_string())?;
        Ok(Self { progress, messages: Messages::of(rank) })
    }
}

impl MessagePath for RailBelowProgress {
    fn prepare(&mut self, size: usize) {
        self.messages.prepare(size);
    }

    fn set_word(&mut self, word: u8) {
        self.messages.out.write(0, &[word]);
    }

    fn word(&self) -> u8 {
        self.messages.word()
    }

    fn is_echo(&self) -> bool {
        self.messages.is_echo()
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        let Self { progress, messages } = self;
        let Messages { peer, envelope, .. } = *messages;
        let data = messages.data(returns);
        if progress.send_short(peer, envelope, data) {
            return Ok(());
        }
        let sent = progress.submit_and_wait(
            |core| core.engine.submit_send(peer, envelope, data, SendMode::Standard),
            |core, &op| core.engine.take(op),
        );
        outcome(sent.outcome)
    }

    fn receive(&mut self) -> Result<(), String> {
        let Messages { peer, selector, ref into, .. } = self.messages;
        let received = self.progress.submit_and_wait(
            |core| core.engine.submit_receive(Some(peer), selector, into),
            |core, &op| core.engine.take(op),
        );
        outcome(received.outcome)
    }
}

/// Store that knows only the address of the other process.
struct AddressStore {
    rail: &'static str,
    address: Vec<u8>,
}

impl Directory for AddressStore {
    fn addresses(&mut self, _peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![(self.rail.into(), self.address.clone())])
    }
}

fn outcome(outcome: Outcome) -> Result<(), String> {
    if outcome == Outcome::Ok { Ok(()) } else { Err(format!("scheduled: {outcome:?}")) }
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7) as u8).collect()
}

fn print(line: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(line).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

fn description() -> Description {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Description {
        program: "overhead".into(),
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

/// Number of paths over each rail.
const PATHS: usize = 3;
/// Identifier of the only rail of an engine.
const ONLY: RailId = RailId(0);
const LOOPBACK: &str = "127.0.0.1";
/// Round trips between two readings of the clock, whose own time is then about 0.3 ns per message.
const BATCH: u32 = 50;
const SAMPLES_LEAST: usize = 3;
const SAMPLES_MAX: usize = 50_000;
const GOES_ON: u8 = 1;
const ENDS: u8 = 2;
/// Polls between yields: more than an answer takes from a peer with a core of its own.
const POLLS_PER_LOOK: u32 = 64;
/// Polls until the core is yielded in any case, about 100 µs.
const POLLS_MAX: u32 = 4096;
/// Time limit for links to come up.
const PATIENCE: Duration = Duration::from_secs(10);
const KNOWN_SLEEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_of_each_rail_are_measured_and_echo() {
        for rail in RAILS {
            let [mut asking, mut answering] = pair();
            let answerer = std::thread::spawn(move || {
                let mut paths = Paths::open(rail, 1, 2, [7; 32], &mut answering)?;
                [8, 64].iter().try_for_each(|size| paths.answer(*size))?;
                answering.hear::<()>()
            });
            let mut paths = Paths::open(rail, 0, 2, [7; 32], &mut asking).unwrap();
            for size in [8, 64] {
                for (count, path) in (0..).zip(paths.measure(rail, size, 0.001).unwrap()) {
                    assert_eq!(path.case(), Case { bytes: size as u64, count, ranks: 2 });
                    assert!(path.samples >= 3 && path.min_us > 0.0, "{path:?}");
                }
            }
            asking.tell(&()).unwrap();
            assert_eq!(answerer.join().unwrap(), Ok(()));
        }
    }

    type End = PeerPipes<BufReader<std::io::PipeReader>, std::io::PipeWriter>;

    fn pair() -> [End; 2] {
        let [there, back] = [0, 1].map(|_| std::io::pipe().unwrap());
        let end = |from, to| PeerPipes { from: BufReader::new(from), to };
        [end(back.0, there.1), end(there.0, back.1)]
    }
}
