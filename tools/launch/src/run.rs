//! A job as `mpiexec` runs it: one loop over the reports of the agents.

mod report;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use boot::Secret;
use signal_hook::consts::signal::*;
use signal_hook::iterator::Signals;

use crate::channel::{BODY_MAX, Ended, Exit, Lost, Message, MessageKind, Serving};
use crate::collected::Collected;
use crate::job_report::Reporting;
use crate::jobs::{self, Question};
use crate::label::OutputStream;
use crate::launch_context::{LaunchContext, random};
use crate::node::{Node, Report};
use crate::options::Options;
use crate::output::{Outputs, Places};
use crate::output_files::OutputFiles;
use crate::pmi::{PmiAction, REFUSED, Server};
use crate::profile::Profile;
use crate::rank_map::{joined, mapping, rank_map};
use crate::recording::Recording;
use crate::trace::{ClockReading, Trace};
use crate::tree::{self, StartedGateway, Tree};
use crate::{input, signals, system};

/// An event that the loop handles.
enum RunEvent {
    /// A report of an agent.
    From(usize, Report),
    /// A piece of our own standard input; empty at its end.
    Input(Vec<u8>),
    /// A question of another process.
    Asked(Question, UnixStream),
}

/// A job that runs.
pub(crate) struct Run {
    nodes: Vec<Node>,
    /// Index of the node that leads to each rank.
    node_of_rank: Vec<usize>,
    /// Name of each rank's host in messages.
    hosts: Vec<String>,
    /// Hosts with their ranks.
    map: Vec<(String, Vec<usize>)>,
    server: Server,
    events: Receiver<RunEvent>,
    outputs: Outputs,
    left: usize,
    ended: Vec<bool>,
    /// Ranks that have requested the job's end.
    aborting: Vec<bool>,
    code: u8,
    /// True if `code` is that of the first failure, and not of a rank that missed a peer.
    explained: bool,
    /// Time since which ranks miss a peer whose own end is not known yet.
    missing: Option<Instant>,
    /// Time since which the job is being ended.
    ending: Option<Instant>,
    /// Time since which all ranks should be dead.
    killed: Option<Instant>,
    /// Gateways and their addresses, empty before they serve.
    gateways: Vec<(StartedGateway, Vec<SocketAddr>)>,
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
    pub fn start(options: &Options) -> Result<Self, String> {
        let connect_timeout = settings::CONNECT_TIMEOUT.number();
        let connect_timeout = connect_timeout.map_err(|error| error.to_string())?;
        let secret = Secret::random().map_err(|error| format!("random numbers: {error}"))?;
        let name = format!("canele_{}", &hex::encode(random()?)[..16]);
        let job = boot::job_number(&secret, &name);
        let tree = Tree::of(options, &LaunchContext::new(options, connect_timeout)?, job);
        let recording = Recording::of(options)?;
        let trace = Trace::of(options, &tree.nodes, &tree.hosts)?;
        let profile = Profile::of(options, &tree.nodes, &tree.hosts);
        if let Some(placing) = options.placing.as_ref().filter(|_| options.verbose) {
            placing.summary.iter().for_each(|line| tell!("mpiexec: {line}"));
        }
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let mut nodes: Vec<Node> = Vec::new();
        for (index, branch) in tree.branches.iter().enumerate() {
            let events = sender.clone();
            // The loop may have ended already.
            let report = move |report| events.send(RunEvent::From(index, report)).is_ok();
            nodes.push(Node::start(branch, Some(&secret), report)?);
        }
        let Tree { branch_of_rank: node_of_rank, hosts, nodes: homes, gateways, .. } = tree;
        let questions = sender.clone();
        jobs::listen(move |question, asker| {
            questions.send(RunEvent::Asked(question, asker)).is_ok()
        });
        let readers: Vec<u32> =
            (0..homes.len() as u32).filter(|rank| options.input.has(*rank)).collect();
        let permits = match readers.is_empty() {
            true => mpsc::channel().0,
            false => input::read(move |piece| sender.send(RunEvent::Input(piece)).is_ok())?,
        };
        let map = rank_map(&hosts, &homes);
        if options.prints_map {
            system::print(
                &map.iter()
                    .map(|(host, ranks)| format!("({host}:{})\n", joined(ranks)))
                    .collect::<String>(),
            );
        }
        let places = Places { hosts: hosts.clone(), nodes: homes.clone() };
        let mut values = HashMap::new();
        values.insert("PMI_process_mapping".to_owned(), mapping(&homes));
        let programs = (0u32..).zip(&options.programs);
        let programs =
            programs.flat_map(|(number, one)| vec![number; one.ranks as usize]).collect();
        let started = Instant::now();
        let mut run = Self {
            nodes,
            node_of_rank,
            hosts,
            map,
            server: Server::new(name, programs, options.universe_size(), values),
            events,
            outputs: Outputs::new(
                options.label.clone(),
                places,
                OutputFiles::new(options.files.clone()),
            ),
            left: homes.len(),
            ended: vec![false; homes.len()],
            aborting: vec![false; homes.len()],
            code: 0,
            explained: false,
            missing: None,
            ending: None,
            killed: None,
            gateways: gateways.into_iter().map(|gateway| (gateway, Vec::new())).collect(),
            permits,
            readers,
            untaken: 0,
            started,
            connect_timeout_s: connect_timeout,
            deadline: options.timeout_s.map(|seconds| started + Duration::from_secs(seconds)),
            recovers: options.recovers,
            codes: options.prints_codes.then(|| vec![0; homes.len()]),
            recording,
            trace,
            profile,
            reporting: Reporting::new(options.command()),
        };
        run.share_values();
        run.compare_clocks();
        Ok(run)
    }

    /// Runs until the last rank has ended. Returns the job's exit code.
    pub fn finish(mut self, signals: &mut Signals) -> u8 {
        let mut checked = Instant::now();
        while self.left > 0 {
            match self.events.recv_timeout(TICK) {
                Ok(RunEvent::From(node, Report::Message(message))) => self.handle(node, message),
                Ok(RunEvent::From(node, Report::Closed)) => self.handle_lost_agent(node),
                Ok(RunEvent::From(node, Report::Foreign(said))) => {
                    let text = self.nodes[node].stranger_text(&said);
                    self.give_up(&self.nodes[node].ranks.clone(), &text);
                }
                Ok(RunEvent::Input(piece)) => {
                    self.untaken = self.readers.len();
                    let readers = self.readers.iter();
                    readers.for_each(|&rank| self.send(rank, MessageKind::Input, piece.clone()));
                }
                Ok(RunEvent::Asked(question, asker)) => self.answer(question, asker),
                Err(RecvTimeoutError::Timeout) => self.outputs.flush_prompts(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            signals.pending().for_each(|signal| self.pass_signal(signal));
            if self.outputs.is_unread() && self.ending.is_none() {
                tell!("mpiexec: nobody reads the output of the ranks any more; ending the job");
                self.end(UNREAD, Cause::First);
            }
            if checked.elapsed() >= TICK {
                checked = Instant::now();
                self.check_time_limits(checked);
            }
        }
        self.outputs.flush_all();
        self.print_codes();
        self.collect_recordings(signals);
        // All agents end at the same time.
        self.nodes.iter_mut().for_each(Node::hang_up);
        self.nodes.iter_mut().for_each(Node::close);
        let has_failed = self.code != 0;
        let recorded = self.recording.take().map(|it| it.finish(&self.server, has_failed));
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
            MessageKind::PmiRequest => self.serve(rank, &String::from_utf8_lossy(&body)),
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
            | MessageKind::Allocation => {}
        }
    }

    /// Prints the exit codes of all ranks by their hosts, as Hydra does.
    fn print_codes(&self) {
        let Some(codes) = &self.codes else { return };
        for (host, ranks) in &self.map {
            let codes: Vec<u8> = ranks.iter().map(|rank| codes[*rank]).collect();
            system::print(&format!("Exit codes: [{host}] {}\n", joined(&codes)));
        }
    }

    fn handle_hello(&mut self, node: usize, version: &[u8]) {
        if let Err(text) = self.nodes[node].handle_hello(version) {
            self.give_up(&self.nodes[node].ranks.clone(), &text);
        }
    }

    fn serve(&mut self, rank: u32, line: &str) {
        let action = self.server.handle(rank, line);
        self.perform(rank, action);
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
                    | RunEvent::Asked(..),
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
        match action {
            PmiAction::Line(line) => {
                self.send(rank, MessageKind::PmiAnswer, format!("{line}\n").into())
            }
            PmiAction::Everyone(line) => {
                // Agents can now answer for all values published before the barrier.
                self.share_values();
                self.send_to_all(&Message::new(MessageKind::PmiForAll, 0, format!("{line}\n")));
            }
            PmiAction::Wait => self.end_if_waiting_for_ended(),
            PmiAction::Share => self.share_values(),
            PmiAction::Abort(code) => {
                self.aborting[rank as usize] = true;
                let cause = match code {
                    boot::PEER_IS_GONE => Cause::Consequence,
                    _ => Cause::First,
                };
                self.end(exit_code(code), cause);
            }
        }
    }

    /// Notes that a gateway serves. Once all do, the ranks that call them may start.
    fn note_serving(&mut self, serving: Serving) {
        let Some((_, addresses)) = self.gateways.get_mut(serving.number) else { return };
        *addresses = serving.addresses;
        if self.missing_gateway().is_none() {
            let body = serde_json::to_vec(&tree::gateway_lists(&self.gateways)).unwrap_or_default();
            self.send_to_all(&Message::new(MessageKind::Gateways, 0, body));
        }
    }

    /// Returns the name of a gateway that does not serve yet.
    fn missing_gateway(&self) -> Option<&str> {
        let missing_gateway = self.gateways.iter().find(|(_, addresses)| addresses.is_empty());
        missing_gateway.map(|(gateway, _)| &*gateway.name)
    }

    /// Handles a request that an agent has answered already.
    fn handle_notice(&mut self, rank: u32, line: &str) {
        let answer = self.server.handle(rank, line);
        if answer == PmiAction::Share {
            self.share_values();
        }
        if answer == PmiAction::Line(REFUSED.into()) && !self.explained {
            let host = &self.hosts[rank as usize];
            tell!(
                "mpiexec: rank {rank} on {host}: has published more than a job may; ending the job"
            );
            self.end(1, Cause::First);
        }
    }

    /// Sends the agents new values that they may answer themselves. Values too long for a message are
    /// requested by them.
    fn share_values(&mut self) {
        let body = serde_json::to_vec(&self.server.take_new()).unwrap_or_default();
        if body.len() <= BODY_MAX {
            self.send_to_all(&Message::new(MessageKind::PmiShared, 0, body));
        }
    }

    fn handle_end(&mut self, rank: u32, ended: Ended) {
        if std::mem::replace(&mut self.ended[rank as usize], true) {
            return;
        }
        self.left -= 1;
        if let Some(codes) = &mut self.codes {
            codes[rank as usize] = match ended.exit {
                Exit::Code(code) | Exit::NotStarted(code, _) => code as u8,
                Exit::Signal { signal, .. } => exit_code(128 + signal),
            };
        }
        self.outputs.flush(rank, OutputStream::Output);
        self.outputs.flush(rank, OutputStream::Error);
        let was_started = !matches!(ended.exit, Exit::NotStarted(..));
        if was_started {
            self.recordings().for_each(|recordings| recordings.expect(rank));
        }
        if ended.was_signalled || self.aborting[rank as usize] {
            return;
        }
        let (code, text) = match ended.exit {
            Exit::Code(0) if self.server.is_open(rank) => {
                (1, "ended without MPI_Finalize".to_owned())
            }
            Exit::Code(0) if self.recovers => {
                let action = self.server.count_out(rank);
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
        let host = &self.hosts[rank as usize];
        if self.recovers && was_started && self.ending.is_none() {
            tell!(
                "mpiexec: rank {rank} on {host}: {text}; the job goes on (-disable-auto-cleanup)"
            );
            if self.code == 0 {
                self.code = code;
            }
            let action = self.server.count_out(rank);
            return self.perform(rank, action);
        }
        if !self.explained {
            let more = if self.left > 0 { "; ending the job" } else { "" };
            tell!("mpiexec: rank {rank} on {host}: {text}{more}");
        }
        self.end(code, Cause::First);
    }

    /// Ends the job if ranks wait in a barrier that an ended rank cannot reach.
    fn end_if_waiting_for_ended(&mut self) {
        let ended = self.ended.iter().position(|ended| *ended && !self.recovers);
        if let (Some(rank), Some(other), None) = (ended, self.server.waiting(), self.ending) {
            let host = &self.hosts[rank];
            let (how, what) = match self.server.has_left(rank as u32) {
                true => ("ended after it had left the job, which", "joins again"),
                false => ("ended without MPI_Init, in which", "waits for all"),
            };
            tell!("mpiexec: rank {rank} on {host}: {how} rank {other} {what}; ending the job");
            self.end(1, Cause::First);
        }
    }

    /// Ends the job; the first failure gives the exit code. If ranks only miss a peer, the peer's end has a
    /// moment to become known, because a rank's connections break before its parent learns of its end.
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
            self.signal_end(SIGTERM);
        }
    }

    /// Sends a signal that is to end the job. Ranks that do not end in time are killed.
    fn signal_end(&mut self, signal: i32) {
        self.ending = Some(Instant::now());
        self.signal_all(signal);
        // Stopped ranks take the signal once they continue.
        self.signal_all(SIGCONT);
    }

    fn signal_all(&self, signal: i32) {
        self.send_to_all(&Message::new(MessageKind::Signal, 0, [signal as u8]));
    }

    fn send_to_all(&self, message: &Message) {
        self.nodes.iter().for_each(|node| node.send(message.clone()));
    }

    fn pass_signal(&mut self, signal: i32) {
        match signal {
            SIGUSR1 => {
                self.print_report();
                self.send_to_all(&Message::new(MessageKind::SignalTaken, 0, [signal as u8]));
            }
            SIGUSR2 | SIGCONT | SIGWINCH => self.signal_all(signal),
            SIGTSTP => {
                self.signal_all(signal);
                // Lets the writers send the signal before this process stops.
                thread::sleep(TICK);
                system::stop();
            }
            _ if self.ending.is_some() => self.kill(),
            _ => {
                self.signal_end(signal);
                self.code = exit_code(128 + signal);
                self.explained = true;
            }
        }
    }

    /// Checks time limits: an ending job is killed, and silent agents are given up.
    fn check_time_limits(&mut self, now: Instant) {
        if self.missing.is_some_and(|since| now - since > MISSING_GRACE) {
            self.begin_to_end();
        }
        if let Some(since) = self.ending
            && (now - since > GRACE || !self.has_running())
            && self.killed.is_none()
        {
            self.kill();
        }
        self.end_report();
        if self.deadline.is_some_and(|deadline| now > deadline) && self.ending.is_none() {
            self.deadline = None;
            self.report_and_end();
        }
        let patience = Duration::from_secs(self.connect_timeout_s);
        if now - self.started > patience && self.ending.is_none() {
            let silent = self.nodes.iter().find(|node| !node.has_answered());
            let silent =
                silent.map(|node| node.silence_text(self.connect_timeout_s)).or_else(|| {
                    let seconds = self.connect_timeout_s;
                    let name = self.missing_gateway()?;
                    Some(format!("{name} does not serve within {seconds} s"))
                });
            if let Some(text) = silent {
                tell!("mpiexec: {text}; ending the job");
                self.end(1, Cause::First);
            }
        }
        if let Some(since) = self.killed {
            // Ranks of a silent node were never started.
            let silent = self.nodes.iter().filter(|node| !node.has_answered());
            let ranks: Vec<u32> = silent.flat_map(|node| node.ranks.clone()).collect();
            self.count_as_ended(&ranks);
            if now - since > END_TIMEOUT && self.left > 0 {
                self.give_up_unreported();
            }
        }
    }

    fn kill(&mut self) {
        self.killed.get_or_insert_with(Instant::now);
        self.signal_all(SIGKILL);
    }

    /// Gives up agents that do not report their ranks' end. They may be unreachable; their ranks end with the
    /// channels.
    fn give_up_unreported(&mut self) {
        let left: Vec<u32> =
            (0u32..).zip(&self.ended).filter(|(_, ended)| !**ended).map(|(rank, _)| rank).collect();
        let mut hosts: Vec<&str> = left.iter().map(|&rank| &*self.hosts[rank as usize]).collect();
        hosts.dedup();
        let hosts = hosts.join(", ");
        tell!("mpiexec: nothing is heard of the end of {} ranks on {hosts}", left.len());
        self.expect_no_events(&left);
        self.count_as_ended(&left);
    }

    /// Handles the loss of an agent, with all its ranks.
    fn handle_lost_agent(&mut self, node: usize) {
        let ranks = self.nodes[node].ranks.clone();
        if self.has_any(&ranks) || self.missing_gateway().is_some() {
            let text = self.nodes[node].loss_text();
            self.give_up(&ranks, &text);
        }
        self.expect_no_events(&ranks);
    }

    /// True if ranks of an agent that has answered may run. Those of others were never started.
    fn has_running(&self) -> bool {
        self.nodes.iter().any(|node| node.has_answered() && self.has_any(&node.ranks))
    }

    fn has_any(&self, ranks: &[u32]) -> bool {
        ranks.iter().any(|&rank| self.ended.get(rank as usize) == Some(&false))
    }

    /// Ends the job because these ranks are lost, unless all have ended. While gateways are awaited, the loss
    /// of any agent or gateway ends the job.
    fn give_up(&mut self, ranks: &[u32], text: &str) {
        self.expect_no_events(ranks);
        if !self.has_any(ranks) && self.missing_gateway().is_none() {
            return;
        }
        if !self.explained {
            tell!("mpiexec: {text}");
        }
        self.count_as_ended(ranks);
        self.end(1, Cause::First);
    }

    /// Counts ranks as ended that cannot report their end.
    fn count_as_ended(&mut self, ranks: &[u32]) {
        for &rank in ranks {
            if self.ended.get(rank as usize) == Some(&false) {
                self.ended[rank as usize] = true;
                self.left -= 1;
            }
        }
    }

    fn send(&self, rank: u32, kind: MessageKind, body: Vec<u8>) {
        self.nodes[self.node_of_rank[rank as usize]].send(Message::new(kind, rank, body));
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
/// Time that ranks have to end themselves before they are killed: enough to save a small state.
const GRACE: Duration = Duration::from_secs(3);
/// Time within which the end of killed ranks must be reported.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which the end of a missed rank must become known.
const MISSING_GRACE: Duration = Duration::from_millis(250);
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
