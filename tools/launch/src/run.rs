//! A job as `mpiexec` runs it: one loop over the reports of the agents.

mod ended_allocation;
mod ending;
mod report;
mod worlds;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use signal_hook::consts::signal::*;
use signal_hook::iterator::Signals;

use crate::channel::{BODY_MAX, Ended, Exit, Lost, Message, MessageKind, Serving};
use crate::co_allocation::{CoAllocation, Unexplained};
use crate::collected::Collected;
use crate::connections::Connections;
use crate::input::InputRanks;
use crate::job_report::Reporting;
use crate::jobs::{self, Question};
use crate::label::OutputStream;
use crate::launch_context::LaunchContext;
use crate::names::Names;
use crate::node::{Node, Report};
use crate::options::Options;
use crate::output::Outputs;
use crate::output_files::OutputFiles;
use crate::pmi::{self, PmiAction, REFUSED, Server, Values};
use crate::profile::Profile;
use crate::rank_map::{joined, rank_map};
use crate::recording::Recording;
use crate::singleton::Singleton;
use crate::spawn_request::SpawnRequest;
use crate::trace::{ClockReading, Trace};
use crate::tree::{self, StartedGateway, Tree, TreeWorld};
use crate::world::{self, Birth, World, WorldName};
use crate::{input, signals, system};

/// An event that the loop handles.
enum RunEvent {
    /// A report of an agent.
    From(usize, Report),
    /// A piece of our own standard input; empty at its end.
    Input(Vec<u8>),
    /// A question of another process.
    Asked(Question, UnixStream),
    /// A request of the process that was started without `mpiexec`, or its end.
    Singleton(Option<Vec<u8>>),
}

/// A job that runs.
pub(crate) struct Run {
    options: Options,
    here: LaunchContext,
    nodes: Vec<Node>,
    /// Index of the node that leads to each rank.
    node_of_rank: Vec<Option<usize>>,
    /// The first process, if it was started without `mpiexec`.
    singleton: Option<Singleton>,
    /// Name of each rank's host in messages.
    hosts: Vec<String>,
    /// Index of each rank's host among those of the options.
    homes: Vec<usize>,
    /// Worlds, in order of their first processes.
    worlds: Vec<World>,
    /// Worlds that have communicators with each other.
    connections: Connections,
    names: Names,
    /// Requests to spawn that are not whole yet, by the rank that makes them.
    requests: HashMap<u32, SpawnRequest>,
    sender: SyncSender<RunEvent>,
    events: Receiver<RunEvent>,
    outputs: Outputs,
    left: usize,
    ended: Vec<bool>,
    /// Ranks that have requested the job's end.
    aborting: Vec<bool>,
    code: u8,
    /// True if `code` is that of the first failure, and not of a rank that missed a peer.
    is_explained: bool,
    /// Gateways, the first process of the world of each, and their addresses, empty before they serve.
    gateways: Vec<(StartedGateway, u32, Vec<SocketAddr>)>,
    /// Permits to the thread that reads our input.
    permits: Sender<()>,
    /// Ranks that get our input.
    readers: Vec<u32>,
    /// Number of those that have not taken the last piece.
    untaken: usize,
    started: Instant,
    /// Time within which agents must answer.
    connect_timeout_s: u64,
    deadline: Option<Instant>,
    /// True if the job continues when a rank fails.
    recovers: bool,
    /// Exit code of each rank, if all are printed.
    codes: Option<Vec<u8>>,
    recording: Option<Recording>,
    trace: Option<Trace>,
    profile: Option<Profile>,
    reporting: Reporting,
    /// Hosts that the job has from Slurm.
    allocation: CoAllocation,
    /// A failure that the end of an allocation may explain.
    unexplained: Option<Unexplained>,
}

/// Cause of a job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The first failure.
    First,
    /// A rank misses another one, whose own end is not known yet.
    Consequence,
}

impl Run {
    /// Starts the job.
    ///
    /// # Errors
    /// Fails if an agent cannot be started, or a file of the user cannot be opened, with one line.
    pub fn start(options: &Options, allocation: CoAllocation) -> Result<Self, String> {
        let mut run = Self::empty(options.clone())?;
        run.allocation = allocation;
        let name = WorldName::draw()?;
        let job = name.job();
        let tree = Tree::of(options, &run.here, &TreeWorld { job, ..TreeWorld::default() });
        run.recording = Recording::of(options)?;
        run.trace = Trace::of(options, &tree.nodes, &tree.hosts)?;
        run.profile = Profile::of(options, &tree.nodes, &tree.hosts);
        if let Some(placing) = options.placing.as_ref().filter(|_| options.verbose) {
            placing.summary.iter().for_each(|line| tell!("mpiexec: {line}"));
        }
        let universe_size = options.universe_size();
        let server = world::server(&name, options, &tree, Values::new(), universe_size);
        let nodes = tree.nodes.clone();
        run.homes = options.placement();
        run.add_world(job, server, Birth::Done, &tree.hosts);
        run.start_world(tree, &name.secret)?;
        run.listen();
        if !run.readers.is_empty() {
            let pieces = run.sender.clone();
            run.permits = input::read(move |piece| pieces.send(RunEvent::Input(piece)).is_ok())?;
        }
        if options.prints_map {
            let map = rank_map(&run.hosts, &nodes);
            let lines = map.iter().map(|(host, ranks)| format!("({host}:{})\n", joined(ranks)));
            system::print(&lines.collect::<String>());
        }
        run.compare_clocks();
        Ok(run)
    }

    /// Serves a process that was started without `mpiexec`, on our standard input: it is the first world, and starts
    /// others.
    ///
    /// # Errors
    /// This installation is incomplete, or the system lacks a resource, with one line.
    pub fn serve_singleton(mut options: Options) -> Result<Self, String> {
        options.input = InputRanks::Listed(Vec::new());
        let mut run = Self::empty(options)?;
        let name = WorldName::draw()?.name;
        let server = Server::new(name, vec![0], run.options.universe_size(), Values::new());
        let host = run.here.host.clone();
        // It takes the first slot.
        run.homes = vec![0];
        // It tells us the number of its job before it spawns.
        run.add_world(0, server, Birth::Done, &[host]);
        let requests = run.sender.clone();
        run.singleton =
            Some(Singleton::serve(move |event| requests.send(RunEvent::Singleton(event)).is_ok())?);
        run.listen();
        Ok(run)
    }

    /// Returns a run without ranks.
    fn empty(options: Options) -> Result<Self, String> {
        let connect_timeout = settings::CONNECT_TIMEOUT.number();
        let connect_timeout = connect_timeout.map_err(|error| error.to_string())?;
        let here = LaunchContext::new(&options, connect_timeout)?;
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let started = Instant::now();
        Ok(Self {
            here,
            nodes: Vec::new(),
            node_of_rank: Vec::new(),
            singleton: None,
            hosts: Vec::new(),
            homes: Vec::new(),
            worlds: Vec::new(),
            connections: Connections::default(),
            names: Names::default(),
            requests: HashMap::new(),
            sender,
            events,
            outputs: Outputs::new(options.label.clone(), OutputFiles::new(options.files.clone())),
            left: 0,
            ended: Vec::new(),
            aborting: Vec::new(),
            code: 0,
            is_explained: false,
            gateways: Vec::new(),
            permits: mpsc::channel().0,
            readers: (0..options.size()).filter(|rank| options.input.has(*rank)).collect(),
            untaken: 0,
            started,
            connect_timeout_s: connect_timeout,
            deadline: options.timeout_s.map(|seconds| started + Duration::from_secs(seconds)),
            recovers: options.recovers,
            codes: options.prints_codes.then(Vec::new),
            recording: None,
            trace: None,
            profile: None,
            reporting: Reporting::new(options.command()),
            allocation: CoAllocation::default(),
            unexplained: None,
            options,
        })
    }

    /// Begins to answer questions of other processes.
    fn listen(&self) {
        let questions = self.sender.clone();
        jobs::listen(move |question, asker| {
            questions.send(RunEvent::Asked(question, asker)).is_ok()
        });
    }

    /// Runs until the last rank has ended. Returns the job's exit code.
    pub fn finish(mut self, signals: &mut Signals) -> u8 {
        let mut checked = Instant::now();
        while self.left > 0 || self.unexplained.is_some() {
            match self.events.recv_timeout(TICK) {
                Ok(RunEvent::From(node, Report::Message(message))) => self.handle(node, message),
                Ok(RunEvent::From(node, Report::Closed)) => self.handle_lost_agent(node),
                Ok(RunEvent::From(node, Report::Foreign(said))) => {
                    let text = self.nodes[node].stranger_text(&said);
                    self.give_up(&self.nodes[node].ranks(), &text);
                }
                Ok(RunEvent::Input(piece)) => {
                    self.untaken = self.readers.len();
                    let readers = self.readers.iter();
                    readers.for_each(|&rank| self.send(rank, MessageKind::Input, piece.clone()));
                }
                Ok(RunEvent::Asked(question, asker)) => self.answer(question, asker),
                Ok(RunEvent::Singleton(Some(request))) => self.handle_request(0, &request),
                Ok(RunEvent::Singleton(None)) => self.handle_end(0, Singleton::ended()),
                Err(RecvTimeoutError::Timeout) => self.outputs.flush_prompts(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            signals.pending().for_each(|signal| self.pass_signal(signal));
            if self.outputs.is_unread() && !self.is_ending() {
                tell!("mpiexec: nobody reads the output of the ranks any more; ending the job");
                self.end_all(UNREAD);
            }
            if checked.elapsed() >= TICK {
                checked = Instant::now();
                self.check_time_limits(checked);
                self.check_allocation();
            }
        }
        self.tell_unexplained();
        self.outputs.flush_all();
        self.print_codes();
        self.collect_recordings(signals);
        // All agents end at the same time.
        self.nodes.iter_mut().for_each(Node::hang_up);
        self.nodes.iter_mut().for_each(Node::close);
        let has_failed = self.code != 0;
        let server = &self.worlds[0].server;
        let recorded = self.recording.take().map(|it| it.finish(server, has_failed));
        let traced = self.trace.take().map(Trace::finish);
        let profiled = self.profile.take().map(Profile::finish);
        let written = recorded.into_iter().chain(traced).chain(profiled);
        for text in written.filter_map(Result::err) {
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
        if rank as usize >= self.node_of_rank.len() {
            return;
        }
        match kind {
            MessageKind::Hello => self.handle_hello(node, &body),
            MessageKind::Output => self.outputs.print(rank, OutputStream::Output, &body),
            MessageKind::Error => self.outputs.print(rank, OutputStream::Error, &body),
            MessageKind::PmiRequest => self.handle_request(rank, &body),
            MessageKind::Started => self.note_started(rank),
            MessageKind::PmiNotice => self.handle_notice(rank, &String::from_utf8_lossy(&body)),
            MessageKind::Exit => {
                if let Ok(ended) = serde_json::from_slice(&body) {
                    self.handle_end(rank, ended);
                }
            }
            MessageKind::Input => {
                self.untaken = self.untaken.saturating_sub(1);
                if self.untaken == 0 {
                    // The reader has ended with the input.
                    let _ = self.permits.send(());
                }
            }
            MessageKind::Report => self.take_answer(rank, &body),
            MessageKind::Bound => {
                let (host, list) = (&self.hosts[rank as usize], String::from_utf8_lossy(&body));
                tell!("mpiexec: rank {rank} on {host}: may use processors {list}");
            }
            MessageKind::Serving => {
                if let Ok(serving) = serde_json::from_slice(&body) {
                    self.note_serving(serving);
                }
            }
            MessageKind::Lost => {
                if let Ok(Lost { ranks, text }) = serde_json::from_slice(&body) {
                    self.give_up(&ranks, &text);
                }
            }
            MessageKind::Trace => {
                if let Some(trace) = &mut self.trace {
                    trace.collected.take_piece(rank, &body);
                }
            }
            MessageKind::Profile => {
                if let Some(profile) = &mut self.profile {
                    profile.collected.take_piece(rank, &body);
                }
            }
            MessageKind::Clock => {
                if let Ok(reading) = serde_json::from_slice(&body) {
                    self.take_reading(rank, &reading);
                }
            }
            MessageKind::Start
            | MessageKind::Secret
            | MessageKind::Signal
            | MessageKind::SignalTaken
            | MessageKind::PmiAnswer
            | MessageKind::PmiForAll
            | MessageKind::PmiShared
            | MessageKind::Gateways
            | MessageKind::Listen
            | MessageKind::Listening
            | MessageKind::Probe
            | MessageKind::Probed
            | MessageKind::HostState
            | MessageKind::Allocation
            | MessageKind::WorldEnded => {}
        }
    }

    /// Prints the exit codes of all ranks by their hosts, as Hydra does.
    fn print_codes(&self) {
        let Some(codes) = &self.codes else { return };
        let mut numbers = HashMap::new();
        let mut number = |host| {
            let next = numbers.len();
            *numbers.entry(host).or_insert(next)
        };
        let nodes: Vec<usize> = self.hosts.iter().map(&mut number).collect();
        for (host, ranks) in rank_map(&self.hosts, &nodes) {
            let codes: Vec<u8> = ranks.iter().map(|rank| codes[*rank]).collect();
            system::print(&format!("Exit codes: [{host}] {}\n", joined(&codes)));
        }
    }

    fn handle_hello(&mut self, node: usize, version: &[u8]) {
        if let Err(text) = self.nodes[node].handle_hello(version) {
            self.give_up(&self.nodes[node].ranks(), &text);
        }
    }

    fn handle_request(&mut self, process: u32, request: &[u8]) {
        if pmi::has_many_lines(request) {
            return self.handle_spawn(process, request);
        }
        let (world, rank) = self.world_of(process);
        let server = &mut self.worlds[world].server;
        let action = server.handle(rank, &String::from_utf8_lossy(request));
        if server.has_left(rank) {
            self.names.forget(process);
        }
        self.perform(process, action);
    }

    /// Asks an agent on each host for its clock, if the job is traced.
    fn compare_clocks(&mut self) {
        let ranks = self.trace.as_mut().map(Trace::begin_comparison).unwrap_or_default();
        ranks.into_iter().for_each(|rank| self.send(rank, MessageKind::Clock, Vec::new()));
    }

    fn take_reading(&mut self, rank: u32, reading: &ClockReading) {
        if self.trace.as_mut().is_some_and(|trace| trace.take_reading(rank, reading)) {
            self.send(rank, MessageKind::Clock, Vec::new());
        }
    }

    /// Waits for the recordings of all ranks that have ended, and compares the clocks once more.
    fn collect_recordings(&mut self, signals: &mut Signals) {
        self.receive_while(signals, TRACE_TIMEOUT, |run| {
            run.recordings().any(|recordings| recordings.is_awaiting())
        });
        self.compare_clocks();
        self.receive_while(signals, CLOCK_TIMEOUT, |run| {
            run.trace.as_ref().is_some_and(Trace::awaits_readings)
        });
    }

    /// Returns the recordings of the ranks: of the trace, and of the profile.
    fn recordings(&mut self) -> impl Iterator<Item = &mut Collected> {
        let traced = self.trace.as_mut().map(|trace| &mut trace.collected);
        let profiled = self.profile.as_mut().map(|profile| &mut profile.collected);
        traced.into_iter().chain(profiled)
    }

    /// Handles events until no more of them are needed, nothing has come for a time, or a signal comes.
    fn receive_while(
        &mut self,
        signals: &mut Signals,
        patience: Duration,
        needs_more: fn(&mut Self) -> bool,
    ) {
        let mut heard = Instant::now();
        while needs_more(self) && heard.elapsed() < patience && signals.pending().next().is_none() {
            match self.events.recv_timeout(TICK) {
                Ok(RunEvent::From(node, Report::Message(message))) => {
                    heard = Instant::now();
                    self.handle(node, message);
                }
                Ok(RunEvent::From(node, Report::Closed)) => self.handle_lost_agent(node),
                Ok(
                    RunEvent::From(_, Report::Foreign(_))
                    | RunEvent::Input(_)
                    | RunEvent::Asked(..)
                    | RunEvent::Singleton(_),
                )
                | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Notes that the events of these ranks will not come, because nothing comes from their agent.
    fn expect_no_events(&mut self, ranks: &[u32]) {
        self.recordings().for_each(|recordings| recordings.give_up(ranks));
    }

    /// Does what a request of a rank requires, or its end.
    fn perform(&mut self, rank: u32, action: PmiAction) {
        let (world, _) = self.world_of(rank);
        let first = self.worlds[world].first;
        match action {
            PmiAction::Line(line) => {
                self.send(rank, MessageKind::PmiAnswer, format!("{line}\n").into())
            }
            PmiAction::Everyone(line) => {
                // Agents can now answer for all values published before the barrier.
                self.share_values(first);
                let line = format!("{line}\n");
                if let Some(singleton) = self.singleton.as_ref().filter(|_| first == 0) {
                    singleton.answer(line.as_bytes());
                }
                self.send_to_all(&Message::new(MessageKind::PmiForAll, first, line));
            }
            PmiAction::AskName(line) => {
                let answer = self.names.handle(rank, &line);
                self.send(rank, MessageKind::PmiAnswer, format!("{}\n", *answer).into());
            }
            PmiAction::Wait => self.end_if_waiting_for_ended(),
            PmiAction::Share => self.share_values(first),
            PmiAction::Abort(code) => {
                self.aborting[rank as usize] = true;
                let cause = match code {
                    boot::PEER_IS_GONE => Cause::Consequence,
                    _ => Cause::First,
                };
                self.end(world, exit_code(code), cause);
            }
            PmiAction::Connection { from, job, is_connected } => {
                let line = self.note_connection(rank, from, (job, is_connected));
                self.send(rank, MessageKind::PmiAnswer, format!("{line}\n").into());
            }
        }
    }

    /// Notes that a gateway serves. Once all of its world do, the ranks that call them may start.
    fn note_serving(&mut self, serving: Serving) {
        let Some((_, first, addresses)) = self.gateways.get_mut(serving.number) else { return };
        *addresses = serving.addresses;
        let first = *first;
        let own = self.gateways.iter().filter(|(_, of, _)| *of == first);
        if own.clone().all(|(_, _, addresses)| !addresses.is_empty()) {
            let served = own.map(|(gateway, _, addresses)| (gateway.clone(), addresses.clone()));
            let served = served.collect::<Vec<_>>();
            let lists = self.options.grid.as_ref().map(|grid| tree::gateway_lists(grid, &served));
            let body = serde_json::to_vec(&lists).unwrap_or_default();
            self.send_to_all(&Message::new(MessageKind::Gateways, first, body));
        }
    }

    /// Returns the name of a gateway that does not serve yet, and the first process of its world.
    fn missing_gateway(&self) -> Option<(&str, u32)> {
        let is_needed = |first: u32| self.worlds[self.world_of(first).0].birth != Birth::Failed;
        let mut gateways = self.gateways.iter();
        let missing_gateway =
            gateways.find(|(_, first, addresses)| addresses.is_empty() && is_needed(*first));
        missing_gateway.map(|(gateway, first, _)| (&*gateway.name, *first))
    }

    /// Handles a request that an agent has answered already.
    fn handle_notice(&mut self, process: u32, line: &str) {
        let (world, rank) = self.world_of(process);
        let answer = self.worlds[world].server.handle(rank, line);
        if answer == PmiAction::Share {
            self.share_values(self.worlds[world].first);
        }
        if answer == PmiAction::Line(REFUSED.into()) && !self.worlds[world].end.explained {
            let (name, ending) = (self.name(process), self.ending_text(world));
            tell!("mpiexec: {name}: has published more than a job may{ending}");
            self.end(world, 1, Cause::First);
        }
    }

    /// Sends the agents new values of the world with this first process, which they may answer themselves. Values too
    /// long for a message are requested by them.
    fn share_values(&mut self, first: u32) {
        let (world, _) = self.world_of(first);
        let body = serde_json::to_vec(&self.worlds[world].server.take_new()).unwrap_or_default();
        if body.len() <= BODY_MAX {
            self.send_to_all(&Message::new(MessageKind::PmiShared, first, body));
        }
    }

    fn handle_end(&mut self, rank: u32, ended: Ended) {
        if std::mem::replace(&mut self.ended[rank as usize], true) {
            return;
        }
        self.judge_end(rank, ended);
        self.connections.forget(rank);
        self.names.forget(rank);
    }

    /// Handles the end of a rank, which may be a failure of all that are connected with it.
    fn judge_end(&mut self, rank: u32, ended: Ended) {
        self.left -= 1;
        let (world, rank_there) = self.world_of(rank);
        if let Some(codes) = &mut self.codes {
            codes[rank as usize] = match ended.exit {
                Exit::Code(code) | Exit::NotStarted(code, _) => code as u8,
                Exit::Signal { signal, .. } => exit_code(128 + signal),
            };
        }
        self.outputs.flush(rank, OutputStream::Output);
        self.outputs.flush(rank, OutputStream::Error);
        let was_started = !matches!(ended.exit, Exit::NotStarted(..));
        if was_started && world == 0 {
            self.recordings().for_each(|recordings| recordings.expect(rank));
        }
        let server = &mut self.worlds[world].server;
        let (is_open, has_joined) = (server.is_open(rank_there), server.has_joined(rank_there));
        // The ranks that have spawned it wait for it. Those of other libraries meet in ways of their own.
        let is_missed = (world > 0 && !has_joined) || self.worlds[world].unmet.contains(&rank);
        self.note_ended(rank);
        match (&ended.exit, self.worlds[world].birth) {
            (_, Birth::Failed) => return,
            (Exit::NotStarted(_, reason), Birth::Awaited { .. }) => {
                let text = format!("{}: {reason}", self.name(rank));
                return self.fail_spawn(world, &text);
            }
            (_, Birth::Awaited { .. } | Birth::Done) => {}
        }
        if ended.was_signalled || self.aborting[rank as usize] {
            return;
        }
        let may_be_slurms =
            matches!(ended.exit, Exit::Signal { signal: SIGTERM | SIGKILL | SIGHUP, .. });
        let (code, text) = match ended.exit {
            Exit::Code(0) if is_open => {
                (1, "ended without MPI_Finalize or MPI_Session_finalize".to_owned())
            }
            Exit::Code(0) if is_missed => {
                let text = "ended without MPI_Init, in which the spawning ranks meet it";
                let has = if has_joined { " (sessions do not meet them)" } else { "" };
                (1, format!("{text}{has}"))
            }
            Exit::Code(0) if self.recovers => {
                let action = self.worlds[world].server.count_out(rank_there);
                return self.perform(rank, action);
            }
            Exit::Code(0) => return self.end_if_waiting_for_ended(),
            Exit::Code(code) => {
                let reason = ended.reason.map_or(String::new(), |reason| format!(": {reason}"));
                (exit_code(code), format!("exited with code {code}{reason}"))
            }
            Exit::Signal { signal, process } => {
                let meaning = signals::description(signal);
                let text =
                    format!("was ended by signal {signal} ({meaning}), as process {process}");
                (exit_code(128 + signal), text)
            }
            Exit::NotStarted(code, reason) => (exit_code(code), reason),
        };
        let name = self.name(rank);
        if self.recovers && was_started && !is_missed && !self.worlds[world].is_ending() {
            tell!("mpiexec: {name}: {text}; the job goes on (-disable-auto-cleanup)");
            if self.code == 0 {
                self.code = code;
            }
            let action = self.worlds[world].server.count_out(rank_there);
            return self.perform(rank, action);
        }
        if !self.worlds[world].end.explained {
            let text = format!("{name}: {text}{}", self.ending_text(world));
            match may_be_slurms {
                true => self.explain(&[rank], text),
                false => tell!("mpiexec: {text}"),
            }
        }
        self.end(world, code, Cause::First);
    }

    /// Ends a world, and those connected with it, if ranks wait in a barrier that an ended rank cannot reach.
    fn end_if_waiting_for_ended(&mut self) {
        let stuck = self.worlds.iter().find_map(|world| {
            let is_alive = !self.recovers && !world.is_ending();
            let other = world.server.waiting().filter(|_| is_alive)?;
            let own = self.ended.iter().skip(world.first as usize).take(world.server.size());
            let rank = (0u32..).zip(own).find(|(_, ended)| **ended)?.0;
            Some((world.first + rank, world.server.has_left(rank), world.first + other as u32))
        });
        if let Some((rank, has_left, other)) = stuck {
            let (how, what) = match has_left {
                true => ("ended after it had left the job, which", "joins again"),
                false => ("ended without MPI_Init, in which", "waits for all"),
            };
            let (name, (world, other)) = (self.name(rank), self.world_of(other));
            tell!("mpiexec: {name}: {how} rank {other} {what}{}", self.ending_text(world));
            self.end(world, 1, Cause::First);
        }
    }

    fn send(&self, rank: u32, kind: MessageKind, body: Vec<u8>) {
        match (self.node_of_rank[rank as usize], &self.singleton) {
            (Some(node), _) => self.nodes[node].send(Message::new(kind, rank, body)),
            (None, Some(singleton)) if rank == 0 => singleton.answer(&body),
            (None, _) => {}
        }
    }
}

fn exit_code(code: i32) -> u8 {
    match u8::try_from(code & 0xff) {
        Ok(0) | Err(_) => 1,
        Ok(code) => code,
    }
}

/// Exit code for output that nobody reads, as a shell reports SIGPIPE.
const UNREAD: u8 = 128 + SIGPIPE as u8;
/// Time in which nothing may come of the recordings of ended ranks before they are given up.
const TRACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which agents must answer how late it is.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of the checks of time limits.
const TICK: Duration = Duration::from_millis(50);
/// Maximum number of events that wait for the loop; agents block beyond it.
const EVENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_never_success() {
        assert_eq!((exit_code(0), exit_code(256), exit_code(139)), (1, 1, 139));
    }
}
