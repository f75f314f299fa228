//! `mpiexec` itself: one loop over what the agents report.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::{BODY_MAX, Ended, Exit, Kind, Lost, Message, Pass, Serving};
use crate::command_line::help;
use crate::node::{Node, Report};
use crate::options::{Options, Parsed};
use crate::output::{Outputs, Stream};
use crate::pmi::{Answer, REFUSED, Server};
use crate::recording::Recording;
use crate::system;
use crate::tree::{self, Posted, Surroundings, Tree};

/// Runs `mpiexec` with these arguments, without its own name.
pub fn mpiexec_main(arguments: &[OsString]) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Help) => {
            return tell(&help());
        }
        Ok(Parsed::Version) => {
            return tell(concat!("mpiexec (Canele) ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Err(error) => {
            tell!("mpiexec: {error}");
            return ExitCode::from(2);
        }
    };
    let own = std::env::vars_os().map(|(name, _)| name);
    for variable in settings::unknown(own.chain(options.variables().map(OsString::from))) {
        tell!("mpiexec: {variable}");
    }
    system::note_signals(&[
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTSTP,
        libc::SIGCONT,
    ]);
    match Run::start(&options) {
        Ok(run) => ExitCode::from(run.finish()),
        Err(text) => {
            tell!("mpiexec: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Says what was asked for; who asks may not listen to the end.
fn tell(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// An event that the loop handles.
enum RunEvent {
    /// From one of the agents.
    From(usize, Report),
    /// A piece of our own standard input; empty at its end.
    Input(Vec<u8>),
}

struct Run {
    nodes: Vec<Node>,
    /// Which of the nodes leads to each rank.
    ways: Vec<usize>,
    /// What messages call each rank's host.
    hosts: Vec<String>,
    server: Server,
    events: Receiver<RunEvent>,
    outputs: Outputs,
    left: usize,
    ended: Vec<bool>,
    /// Ranks that have asked for the job's end.
    aborting: Vec<bool>,
    code: u8,
    /// Whether `code` is the first failure's, and not that of a rank which missed a peer.
    explained: bool,
    /// Since when ranks miss a peer whose own end is still to be heard of.
    missing: Option<Instant>,
    /// Since when the job is being ended.
    ending: Option<Instant>,
    /// Since when all ranks should be dead.
    killed: Option<Instant>,
    /// The gateways, and what addresses they have got: none before they serve.
    gateways: Vec<(Posted, Vec<SocketAddr>)>,
    /// Lets the reader of our input go on.
    permits: Sender<()>,
    started: Instant,
    /// How long agents may take to answer.
    connect_timeout_s: u64,
    deadline: Option<Instant>,
    recording: Option<Recording>,
}

/// What ends a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// What failed first.
    First,
    /// A rank misses another one, whose own end is still to be heard of.
    Consequence,
}

impl Run {
    fn start(options: &Options) -> Result<Self, String> {
        let connect_timeout = settings::CONNECT_TIMEOUT.number();
        let connect_timeout = connect_timeout.map_err(|error| error.to_string())?;
        let (secret, number) = (hexadecimal(random()?), hexadecimal(random()?));
        let name = format!("canele_{}", &number[..16]);
        let pass = boot::pass(&secret, &name).ok_or("a secret that is none")?;
        let tree = Tree::of(options, &surroundings(options, connect_timeout)?, &Pass(pass));
        let recording = Recording::of(options)?;
        if let Some(placing) = options.placing.as_ref().filter(|_| options.verbose) {
            tell!("mpiexec: {}", placing.summary);
        }
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let mut nodes: Vec<Node> = Vec::new();
        for (index, branch) in tree.branches.iter().enumerate() {
            let events = sender.clone();
            // The loop may have ended before: then nobody wants to know.
            let report = move |report| events.send(RunEvent::From(index, report)).is_ok();
            nodes.push(Node::start(branch, report)?);
        }
        let Tree { ways, hosts, nodes: homes, gateways, .. } = tree;
        let permits = read_input(sender)?;
        let mut values = HashMap::new();
        values.insert(boot::SECRET_KEY.to_owned(), secret);
        values.insert("PMI_process_mapping".to_owned(), mapping(&homes));
        let programs = (0u32..).zip(&options.programs);
        let programs =
            programs.flat_map(|(number, one)| vec![number; one.ranks as usize]).collect();
        let started = Instant::now();
        let mut run = Self {
            nodes,
            ways,
            hosts,
            server: Server::new(name, programs, values),
            events,
            outputs: Outputs::new(options.label),
            left: homes.len(),
            ended: vec![false; homes.len()],
            aborting: vec![false; homes.len()],
            code: 0,
            explained: false,
            missing: None,
            ending: None,
            killed: None,
            gateways: gateways.into_iter().map(|posted| (posted, Vec::new())).collect(),
            permits,
            started,
            connect_timeout_s: connect_timeout,
            deadline: options.timeout_s.map(|seconds| started + Duration::from_secs(seconds)),
            recording,
        };
        run.give();
        Ok(run)
    }

    /// Until the last rank has ended; the job's exit code.
    fn finish(mut self) -> u8 {
        let mut looked = Instant::now();
        while self.left > 0 {
            match self.events.recv_timeout(TICK) {
                Ok(RunEvent::From(node, Report::Message(message))) => self.handle(node, message),
                Ok(RunEvent::From(node, Report::Closed)) => self.lose(node),
                Ok(RunEvent::From(node, Report::Strange(said))) => {
                    let text = self.nodes[node].stranger(&said);
                    self.give_up(&self.nodes[node].ranks.clone(), &text);
                }
                Ok(RunEvent::Input(piece)) => self.send(0, Kind::Input, piece),
                Err(RecvTimeoutError::Timeout) => self.outputs.flush_prompts(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Some(signal) = system::taken_signal() {
                self.pass_signal(signal);
            }
            if self.outputs.is_unread() && self.ending.is_none() {
                tell!("mpiexec: nobody reads the output of the ranks any more; ending the job");
                self.end(UNREAD, Cause::First);
            }
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                self.look_after(looked);
            }
        }
        self.outputs.flush_all();
        // All agents end at the same time.
        self.nodes.iter_mut().for_each(Node::hang_up);
        self.nodes.iter_mut().for_each(Node::close);
        if let Some(recording) = self.recording.take()
            && let Err(text) = recording.finish(&self.server, self.code != 0)
        {
            tell!("mpiexec: {text}");
            self.code = self.code.max(1);
        }
        if self.code == 0 && self.outputs.has_lost() {
            self.code = 1;
        }
        if self.code == 0 && self.outputs.is_unread() {
            self.code = UNREAD;
        }
        self.code
    }

    fn handle(&mut self, node: usize, message: Message) {
        let Message { kind, rank, body } = message;
        if rank as usize >= self.ways.len() {
            return;
        }
        match kind {
            Kind::Hello => self.greet(node, &body),
            Kind::Output => self.outputs.print(rank, Stream::Output, &body),
            Kind::Error => self.outputs.print(rank, Stream::Error, &body),
            Kind::PmiRequest => self.serve(rank, &String::from_utf8_lossy(&body)),
            Kind::PmiNotice => self.note(rank, &String::from_utf8_lossy(&body)),
            Kind::Exit => {
                if let Ok(ended) = serde_json::from_slice(&body) {
                    self.handle_end(rank, ended);
                }
            }
            // The reader has gone when the input has ended.
            Kind::Input => drop(self.permits.send(())),
            Kind::Serving => {
                if let Ok(serving) = serde_json::from_slice(&body) {
                    self.meet(serving);
                }
            }
            Kind::Lost => {
                if let Ok(Lost { ranks, text }) = serde_json::from_slice(&body) {
                    self.give_up(&ranks, &text);
                }
            }
            Kind::Start
            | Kind::Signal
            | Kind::PmiAnswer
            | Kind::PmiForAll
            | Kind::PmiGiven
            | Kind::Gateways
            | Kind::Listen
            | Kind::Listening
            | Kind::Probe
            | Kind::Probed => {}
        }
    }

    fn greet(&mut self, node: usize, version: &[u8]) {
        if let Err(text) = self.nodes[node].greet(version) {
            self.give_up(&self.nodes[node].ranks.clone(), &text);
        }
    }

    fn serve(&mut self, rank: u32, line: &str) {
        match self.server.handle(rank, line) {
            Answer::Line(line) => self.send(rank, Kind::PmiAnswer, format!("{line}\n").into()),
            Answer::Everyone(line) => {
                // What was published before they met can be read on the spot now.
                self.give();
                self.send_to_all(&Message::new(Kind::PmiForAll, 0, format!("{line}\n")));
            }
            Answer::Later => self.end_if_waiting_in_vain(),
            Answer::Given => self.give(),
            Answer::Abort(code) => {
                self.aborting[rank as usize] = true;
                let cause = match code {
                    boot::PEER_IS_GONE => Cause::Consequence,
                    _ => Cause::First,
                };
                self.end(exit_code(code), cause);
            }
        }
    }

    /// A gateway serves. When all do the ranks that call them may start.
    fn meet(&mut self, serving: Serving) {
        let Some((_, addresses)) = self.gateways.get_mut(serving.number) else { return };
        *addresses = serving.addresses;
        if self.awaited().is_none() {
            let body = serde_json::to_vec(&tree::gateways_of(&self.gateways)).unwrap_or_default();
            self.send_to_all(&Message::new(Kind::Gateways, 0, body));
        }
    }

    /// What messages call a gateway that does not serve yet.
    fn awaited(&self) -> Option<&str> {
        let awaited = self.gateways.iter().find(|(_, addresses)| addresses.is_empty());
        awaited.map(|(posted, _)| &*posted.name)
    }

    /// A request that an agent has answered.
    fn note(&mut self, rank: u32, line: &str) {
        let answer = self.server.handle(rank, line);
        if answer == Answer::Given {
            self.give();
        }
        if answer == Answer::Line(REFUSED.into()) && !self.explained {
            let host = &self.hosts[rank as usize];
            tell!(
                "mpiexec: rank {rank} on {host}: has published more than a job may; ending the job"
            );
            self.end(1, Cause::First);
        }
    }

    /// Lets the agents answer what they could not before. They ask for what is too long for a message.
    fn give(&mut self) {
        let body = serde_json::to_vec(&self.server.take_fresh()).unwrap_or_default();
        if body.len() <= BODY_MAX {
            self.send_to_all(&Message::new(Kind::PmiGiven, 0, body));
        }
    }

    fn handle_end(&mut self, rank: u32, ended: Ended) {
        if std::mem::replace(&mut self.ended[rank as usize], true) {
            return;
        }
        self.left -= 1;
        self.outputs.flush(rank, Stream::Output);
        self.outputs.flush(rank, Stream::Error);
        if ended.told || self.aborting[rank as usize] {
            return;
        }
        let (code, text) = match ended.how {
            Exit::Code(0) if self.server.is_open(rank) => {
                (1, "ended without MPI_Finalize".to_owned())
            }
            Exit::Code(0) => return self.end_if_waiting_in_vain(),
            Exit::Code(code) => (exit_code(code), format!("exited with code {code}")),
            Exit::Signal(signal) => {
                let code = exit_code(128 + signal);
                (code, format!("was ended by signal {signal} ({})", signal_name(signal)))
            }
            Exit::NotStarted(code, reason) => (exit_code(code), reason),
        };
        if !self.explained {
            let host = &self.hosts[rank as usize];
            let more = if self.left > 0 { "; ending the job" } else { "" };
            tell!("mpiexec: rank {rank} on {host}: {text}{more}");
        }
        self.end(code, Cause::First);
    }

    /// Ranks that wait for others wait for ever when one of them has ended.
    fn end_if_waiting_in_vain(&mut self) {
        let ended = self.ended.iter().position(|ended| *ended);
        if let (Some(rank), Some(other), None) = (ended, self.server.waiting(), self.ending) {
            let host = &self.hosts[rank];
            tell!(
                "mpiexec: rank {rank} on {host}: ended without MPI_Init, in which rank {other} waits for all; ending the job"
            );
            self.end(1, Cause::First);
        }
    }

    /// Ends the job; the first failure gives the exit code. Where ranks only miss a peer, it is given a
    /// moment to become known: a rank's connections break before its parent hears of its end.
    fn end(&mut self, code: u8, cause: Cause) {
        match cause {
            Cause::First => {
                if !std::mem::replace(&mut self.explained, true) {
                    self.code = code;
                }
                self.begin_to_end();
            }
            Cause::Consequence => {
                if !self.explained && self.missing.is_none() {
                    self.code = code;
                    self.missing = Some(Instant::now());
                }
            }
        }
    }

    fn begin_to_end(&mut self) {
        if self.ending.is_none() {
            self.ending = Some(Instant::now());
            self.signal_all(libc::SIGTERM);
        }
    }

    fn signal_all(&self, signal: i32) {
        self.send_to_all(&Message::new(Kind::Signal, 0, [signal as u8]));
    }

    fn send_to_all(&self, message: &Message) {
        self.nodes.iter().for_each(|node| node.send(message.clone()));
    }

    fn pass_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGCONT => self.signal_all(signal),
            libc::SIGTSTP => {
                self.signal_all(signal);
                // The writers of the channels are stopped with us.
                thread::sleep(TICK);
                system::stop();
            }
            _ if self.ending.is_some() => self.kill(),
            _ => {
                self.signal_all(signal);
                self.ending = Some(Instant::now());
                self.code = exit_code(128 + signal);
                self.explained = true;
            }
        }
    }

    /// Time passes: an ending job is killed, silent agents are given up.
    fn look_after(&mut self, now: Instant) {
        if self.missing.is_some_and(|since| now - since > REVELATION) {
            self.begin_to_end();
        }
        if let Some(since) = self.ending
            && now - since > GRACE
            && self.killed.is_none()
        {
            self.kill();
        }
        if self.deadline.is_some_and(|deadline| now > deadline) && self.ending.is_none() {
            tell!("mpiexec: the time given by -timeout is over; ending the job");
            self.end(124, Cause::First);
        }
        let patience = Duration::from_secs(self.connect_timeout_s);
        if now - self.started > patience && self.ending.is_none() {
            let silent = self.nodes.iter().find(|node| !node.is_greeted());
            let silent = silent.map(|node| node.silence(self.connect_timeout_s)).or_else(|| {
                let seconds = self.connect_timeout_s;
                let name = self.awaited()?;
                Some(format!("{name} does not serve within {seconds} s"))
            });
            if let Some(text) = silent {
                tell!("mpiexec: {text}; ending the job");
                self.end(1, Cause::First);
            }
        }
        if let Some(since) = self.killed {
            // Ranks of a silent node were never started.
            let silent = self.nodes.iter().filter(|node| !node.is_greeted());
            let ranks: Vec<u32> = silent.flat_map(|node| node.ranks.clone()).collect();
            self.count_out(&ranks);
            if now - since > UNHEARD && self.left > 0 {
                self.give_up_the_unheard();
            }
        }
    }

    fn kill(&mut self) {
        self.killed.get_or_insert_with(Instant::now);
        self.signal_all(libc::SIGKILL);
    }

    /// Agents that do not tell of their ranks' end may be out of reach; theirs end with their channels.
    fn give_up_the_unheard(&mut self) {
        let left: Vec<u32> =
            (0u32..).zip(&self.ended).filter(|(_, ended)| !**ended).map(|(rank, _)| rank).collect();
        let mut hosts: Vec<&str> = left.iter().map(|&rank| &*self.hosts[rank as usize]).collect();
        hosts.dedup();
        let hosts = hosts.join(", ");
        tell!("mpiexec: nothing is heard of the end of {} ranks on {hosts}", left.len());
        self.count_out(&left);
    }

    /// An agent is gone, with all ranks it had.
    fn lose(&mut self, node: usize) {
        let ranks = self.nodes[node].ranks.clone();
        if self.has_any(&ranks) || self.awaited().is_some() {
            let text = self.nodes[node].obituary();
            self.give_up(&ranks, &text);
        }
    }

    fn has_any(&self, ranks: &[u32]) -> bool {
        ranks.iter().any(|&rank| self.ended.get(rank as usize) == Some(&false))
    }

    /// Ends the job because these ranks are lost, if they have not ended before. As long as gateways are awaited,
    /// an agent or a gateway is missed in any case.
    fn give_up(&mut self, ranks: &[u32], text: &str) {
        if !self.has_any(ranks) && self.awaited().is_none() {
            return;
        }
        if !self.explained {
            tell!("mpiexec: {text}");
        }
        self.count_out(ranks);
        self.end(1, Cause::First);
    }

    /// These ranks will not tell of their end.
    fn count_out(&mut self, ranks: &[u32]) {
        for &rank in ranks {
            if self.ended.get(rank as usize) == Some(&false) {
                self.ended[rank as usize] = true;
                self.left -= 1;
            }
        }
    }

    fn send(&self, rank: u32, kind: Kind, body: Vec<u8>) {
        self.nodes[self.ways[rank as usize]].send(Message::new(kind, rank, body));
    }
}

/// What is around us.
pub(crate) fn surroundings(options: &Options, patience_s: u64) -> Result<Surroundings, String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let directory = std::env::current_dir().ok();
    Ok(Surroundings {
        agent: agent_path()?,
        host: host.trim().to_owned(),
        directory: directory.map(|path| path.to_string_lossy().into_owned()),
        environment: shared_environment(options),
        patience_s,
    })
}

/// The environment that goes to all ranks: ours, but for what belongs to this host or this session,
/// or to another launcher.
fn shared_environment(options: &Options) -> Vec<(String, String)> {
    let foreign = ["PMI_", "PMIX_", "HYDRA_", "HYDI_", "OMPI_", "PRTE_"];
    let own = ["HOSTNAME", "DISPLAY", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SHLVL", "_"];
    let own = |name: &str| {
        own.contains(&name) || [settings::SITE.variable(), boot::RECORD_VARIABLE].contains(&name)
    };
    let mut environment: Vec<(String, String)> = Vec::new();
    if !options.no_environment {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let kept = ours.filter(|(name, _)| {
            !foreign.iter().any(|prefix| name.starts_with(prefix)) && !own(name)
        });
        environment.extend(kept);
    }
    environment
}

/// The agent lies beside `mpiexec`.
fn agent_path() -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let beside = own.with_file_name("canele-agent");
    match beside.is_file() {
        true => Ok(beside.to_string_lossy().into_owned()),
        false => Err(format!("{} is missing: install Canele again", beside.display())),
    }
}

/// Reads our standard input, a piece at a time: the next one when the rank has taken the last.
fn read_input(sender: SyncSender<RunEvent>) -> Result<Sender<()>, String> {
    let (permits, taken) = mpsc::channel();
    system::start_thread(move || {
        let mut input = std::io::stdin().lock();
        let mut piece = vec![0; INPUT_PIECE];
        loop {
            let count = input.read(&mut piece).unwrap_or(0);
            let sent = sender.send(RunEvent::Input(piece[..count].to_vec()));
            if sent.is_err() || count == 0 || taken.recv().is_err() {
                return;
            }
        }
    })
    .map_err(|error| format!("a thread for the input: {error}"))?;
    Ok(permits)
}

/// 256 random bits.
pub(crate) fn random() -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("random numbers: {error}"))?;
    Ok(bytes)
}

fn hexadecimal(bytes: [u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Which ranks share a node, as PMI says it: blocks of (first node, nodes, ranks on each).
fn mapping(homes: &[usize]) -> String {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for &home in homes {
        match blocks.last_mut() {
            Some((last, ranks)) if *last == home => *ranks += 1,
            _ => blocks.push((home, 1)),
        }
    }
    let blocks: Vec<String> =
        blocks.iter().map(|(home, ranks)| format!("({home},1,{ranks})")).collect();
    format!("(vector,{})", blocks.join(","))
}

fn exit_code(code: i32) -> u8 {
    match u8::try_from(code & 0xff) {
        Ok(0) | Err(_) => 1,
        Ok(code) => code,
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "Hangup",
        libc::SIGINT => "Interrupt",
        libc::SIGILL => "Illegal instruction",
        libc::SIGABRT => "Aborted",
        libc::SIGBUS => "Bus error",
        libc::SIGFPE => "Arithmetic exception",
        libc::SIGKILL => "Killed",
        libc::SIGSEGV => "Segmentation fault",
        libc::SIGPIPE => "Broken pipe",
        libc::SIGTERM => "Terminated",
        libc::SIGQUIT => "Quit",
        libc::SIGTRAP => "Trace trap",
        libc::SIGUSR1 => "User defined signal 1",
        libc::SIGUSR2 => "User defined signal 2",
        libc::SIGALRM => "Alarm clock",
        libc::SIGXCPU => "CPU time limit exceeded",
        libc::SIGXFSZ => "File size limit exceeded",
        libc::SIGSYS => "Bad system call",
        _ => "see signal(7)",
    }
}

/// The exit code of a program that writes where nobody reads, as a shell tells it.
const UNREAD: u8 = 128 + libc::SIGPIPE as u8;
/// How long ranks may take to end themselves before they are killed.
const GRACE: Duration = Duration::from_millis(300);
/// How long the end of ranks that were killed may take to be heard of.
const UNHEARD: Duration = Duration::from_secs(5);
/// How long the end of a rank that others miss may take to become known.
const REVELATION: Duration = Duration::from_millis(250);
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(50);
/// Events that wait for the loop; agents wait with theirs beyond.
const EVENTS_MAX: usize = 256;
const INPUT_PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_names_blocks_of_ranks() {
        assert_eq!(mapping(&[0, 0, 1, 1, 1]), "(vector,(0,1,2),(1,1,3))");
    }

    #[test]
    fn exit_codes_are_never_success() {
        assert_eq!((exit_code(0), exit_code(256), exit_code(139)), (1, 1, 139));
    }
}
