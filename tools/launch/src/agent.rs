//! Agent of a node: starts its ranks and child agents, and relays between them and `mpiexec`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use boot::{ReportRequest, Secret};
use rustix::process::Rlimit;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};

use crate::channel::{ALL_WORLDS, Ended, Exit, Message, MessageKind, RankStart, Start, secret_in};
use crate::child_agents::ChildAgents;
use crate::discovery::Probe;
use crate::gateway::{self, GatewayProcess};
use crate::host_status::HostState;
use crate::pmi::{self, AgentReply, SharedValues};
use crate::probe::{self, Token};
use crate::refusal::{NOT_LOADED, OwnLibrary, limited, missing_library, program, refusal};
use crate::reports;
use crate::signals::bit;
use crate::slurm_holder::SlurmHolder;
use crate::system;
use crate::trace::ClockReading;
use crate::traced_rank::TracedRank;

/// Channel to `mpiexec`, shared by the threads that send messages.
pub(crate) type Out = Arc<Mutex<std::io::Stdout>>;

/// Signals that `mpiexec` has sent to the ranks, one bit per number.
pub(crate) type Sent = Arc<AtomicU64>;

/// Values that this agent answers itself.
type Shared = Arc<RwLock<SharedValues>>;

/// Runs an agent on its standard streams until `mpiexec` closes them.
pub fn agent_main() -> ExitCode {
    if std::env::args().len() > 1 || std::io::stdin().is_terminal() {
        let text =
            "canele-agent: mpiexec starts it on each host; it has no options (see mpiexec -help)";
        let _ = writeln!(std::io::stderr(), "{text}");
        return ExitCode::FAILURE;
    }
    system::adopt_orphans();
    // Every rank takes seven descriptors.
    let descriptors = system::raise_descriptors();
    let out: Out = Arc::new(Mutex::new(std::io::stdout()));
    send(&out, &Message::new(MessageKind::Hello, 0, VERSION));
    let (ranks, child_agents, sent) = (HashMap::new(), ChildAgents::default(), Sent::default());
    let (worlds, gateways, holder) = (HashMap::new(), Vec::new(), None);
    let mut agent = Agent { ranks, child_agents, gateways, holder, worlds, sent, descriptors, out };
    let mut input = match std::io::stdin().as_fd().try_clone_to_owned() {
        // The buffer of `io::stdin` would keep the secret.
        Ok(input) => File::from(input),
        Err(error) => {
            tell!("canele-agent: the channel to mpiexec: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The end of the channel, orderly or not, ends the job here.
    loop {
        match Message::read(&mut input) {
            Ok(Some(message)) => agent.handle(message),
            Ok(None) => break,
            Err(error) => {
                tell!("canele-agent: the channel to mpiexec: {error}");
                break;
            }
        }
    }
    for rank in agent.ranks.values() {
        system::signal_group(rank.group, SIGKILL);
    }
    agent.child_agents.close();
    gateway::end(&agent.gateways);
    if let Some(holder) = agent.holder.take() {
        holder.give_back();
    }
    system::end_descendants();
    ExitCode::SUCCESS
}

struct Agent {
    ranks: HashMap<u32, Rank>,
    child_agents: ChildAgents,
    gateways: Vec<Arc<GatewayProcess>>,
    /// Hosts that it holds for the job.
    holder: Option<SlurmHolder>,
    /// Worlds of the job, by their first processes.
    worlds: HashMap<u32, AgentWorld>,
    /// Signals to all worlds.
    sent: Sent,
    /// Original limit of descriptors, which ranks get back.
    descriptors: Option<Rlimit>,
    out: Out,
}

/// A world of the job: ranks that were started together, as its agents know it.
#[derive(Default)]
struct AgentWorld {
    /// Its secret, which comes before the start of ranks.
    secret: Option<Secret>,
    shared: Shared,
    sent: Sent,
    /// Ranks that start once the gateways serve.
    waiting: Option<WaitingRanks>,
}

/// Ranks that wait for gateways, and messages for them: a piece of input, and its end.
struct WaitingRanks {
    start: Start,
    messages: Vec<Message>,
}

impl AgentWorld {
    /// Ends ranks that are signalled before they have started.
    fn end_waiting(&mut self, signal: i32, out: &Out) {
        if !ENDING.contains(&signal) {
            return;
        }
        for one in self.waiting.take().into_iter().flat_map(|waiting| waiting.start.ranks) {
            let exit = Exit::Signal { signal, process: 0 };
            let ended = Ended { exit, was_signalled: true, reason: None };
            report_end(out, one.rank, &ended);
        }
    }
}

/// A rank that was started.
struct Rank {
    /// First process of its world.
    world: u32,
    group: u32,
    input: Option<SyncSender<Vec<u8>>>,
    pmi: UnixStream,
    /// Socket on which the rank answers requests for reports.
    reports: Arc<UnixStream>,
}

impl Agent {
    fn handle(&mut self, message: Message) {
        let is_elsewhere = !self.ranks.contains_key(&message.rank);
        if is_elsewhere && self.keep_for_waiting(&message) {
            return;
        }
        match message.kind {
            MessageKind::Secret => {
                self.worlds.entry(message.rank).or_default().secret = secret_in(message.body);
            }
            MessageKind::Start => {
                // An `mpiexec` of another version says so, by our first message.
                serde_json::from_slice(&message.body).into_iter().for_each(|one| self.start(one));
            }
            MessageKind::Input | MessageKind::PmiAnswer if is_elsewhere => {
                self.child_agents.send(message)
            }
            MessageKind::Input => self.feed(message),
            MessageKind::PmiAnswer => {
                if let Some(rank) = self.ranks.get_mut(&message.rank) {
                    // A rank that has ended needs no answer.
                    let _ = rank.pmi.write_all(&message.body);
                }
            }
            MessageKind::PmiForAll => {
                self.child_agents.send_to_all(&message);
                for rank in self.ranks.values_mut().filter(|rank| rank.world == message.rank) {
                    let _ = rank.pmi.write_all(&message.body);
                }
            }
            MessageKind::PmiShared => {
                self.child_agents.send_to_all(&message);
                let more =
                    serde_json::from_slice::<SharedValues>(&message.body).unwrap_or_default();
                let world = self.worlds.entry(message.rank).or_default();
                world.shared.write().unwrap_or_else(PoisonError::into_inner).extend(more);
            }
            MessageKind::Gateways => {
                self.child_agents.send_to_all(&message);
                let lists = serde_json::from_slice(&message.body).unwrap_or_default();
                self.start_waiting(message.rank, &lists);
            }
            MessageKind::Signal => {
                self.child_agents.send_to_all(&message);
                let signal = message.body.first().copied().map_or(SIGTERM, i32::from);
                self.signal(message.rank, signal);
            }
            MessageKind::SignalTaken => {
                self.child_agents.send_to_all(&message);
                let signal = message.body.first().copied().map_or(0, i32::from);
                for rank in self.ranks.values().filter(|rank| system::takes(rank.group, signal)) {
                    system::signal_group(rank.group, signal);
                }
            }
            MessageKind::Report => {
                self.child_agents.send_to_all(&message);
                let request = ReportRequest::parse(&String::from_utf8_lossy(&message.body));
                let Some(request) = request else { return };
                let ranks = self.ranks.iter();
                let sockets = ranks.map(|(rank, one)| (*rank, one.group, Arc::clone(&one.reports)));
                let out = Arc::clone(&self.out);
                reports::collect(sockets.collect(), request, move |message| send(&out, message));
            }
            MessageKind::WorldEnded => {
                self.child_agents.send_to_all(&message);
                self.forget(message.rank);
            }
            MessageKind::Listen => {
                let token = Token::try_from(&message.body[..]);
                let addresses = token.map_err(|_| "a token that is none".to_owned());
                let addresses = addresses
                    .and_then(|token| probe::listen(token).map_err(|error| error.to_string()));
                let body = serde_json::to_vec(&addresses).unwrap_or_default();
                send(&self.out, &Message::new(MessageKind::Listening, 0, body));
            }
            MessageKind::Probe => measure(message.body, &self.out),
            MessageKind::Clock if self.child_agents.has(message.rank) => {
                self.child_agents.send(message)
            }
            MessageKind::Clock => {
                let body = serde_json::to_vec(&ClockReading::now()).unwrap_or_default();
                send(&self.out, &Message::new(MessageKind::Clock, message.rank, body));
            }
            MessageKind::Output
            | MessageKind::Error
            | MessageKind::PmiRequest
            | MessageKind::PmiNotice
            | MessageKind::Serving
            | MessageKind::Exit
            | MessageKind::Hello
            | MessageKind::Lost
            | MessageKind::Listening
            | MessageKind::Probed
            | MessageKind::Trace
            | MessageKind::Profile
            | MessageKind::Bound
            | MessageKind::HostState
            | MessageKind::Allocation
            | MessageKind::Started => {}
        }
    }

    /// Forgets a world whose ranks have ended.
    fn forget(&mut self, world: u32) {
        self.ranks.retain(|_, rank| rank.world != world);
        self.worlds.remove(&world);
    }

    /// Passes a piece of input to a rank of this agent.
    fn feed(&mut self, message: Message) {
        let Some(rank) = self.ranks.get_mut(&message.rank) else { return };
        match (&rank.input, message.body.is_empty()) {
            (_, true) => rank.input = None,
            // The thread that writes the input lives as long as this sender.
            (Some(input), false) => drop(input.send(message.body)),
            (None, false) => {}
        }
    }

    fn start(&mut self, start: Start) {
        // Child agents take longer to start than ranks.
        let secret = self.worlds.entry(start.first).or_default().secret.clone();
        self.child_agents.start(&start, secret.as_ref(), &self.sent, &self.out);
        if let Some(request) = &start.status {
            let state = serde_json::to_vec(&HostState::here(request)).unwrap_or_default();
            send(&self.out, &Message::new(MessageKind::HostState, request.number, state));
        }
        if let Some(request) = &start.allocation {
            let out = Arc::clone(&self.out);
            self.holder = SlurmHolder::start(request, move |event| {
                let event = serde_json::to_vec(&event).unwrap_or_default();
                send(&out, &Message::new(MessageKind::Allocation, 0, event));
            });
        }
        for one in &start.gateways {
            match &secret {
                Some(secret) => self.gateways.push(gateway::start(one, secret, &self.out)),
                None => gateway::lose(one, "would have no secret", &self.out),
            }
        }
        match start.awaits {
            Some(_) => {
                let world = self.worlds.entry(start.first).or_default();
                world.waiting = Some(WaitingRanks { start, messages: Vec::new() });
            }
            None => self.start_ranks(&start, None),
        }
    }

    /// Sends a signal to the ranks of a world, or of all.
    fn signal(&mut self, world: u32, signal: i32) {
        let is_meant = |first: u32| world == ALL_WORLDS || world == first;
        if world == ALL_WORLDS {
            self.sent.fetch_or(bit(signal), Ordering::Relaxed);
        }
        for (first, world) in self.worlds.iter_mut().filter(|(first, _)| is_meant(**first)) {
            world.sent.fetch_or(bit(signal), Ordering::Relaxed);
            world.end_waiting(signal, &self.out);
            for rank in self.ranks.values().filter(|rank| rank.world == *first) {
                system::signal_group(rank.group, signal);
            }
        }
    }

    fn start_ranks(&mut self, start: &Start, gateways: Option<&str>) {
        for one in &start.ranks {
            match self.start_rank(one, start, gateways) {
                Ok(started) => {
                    self.ranks.insert(one.rank, started);
                    if start.is_spawned {
                        send(&self.out, &Message::new(MessageKind::Started, one.rank, ""));
                    }
                }
                Err((code, reason)) => {
                    let exit = Exit::NotStarted(code, reason);
                    report_end(
                        &self.out,
                        one.rank,
                        &Ended { exit, was_signalled: false, reason: None },
                    );
                }
            }
        }
    }

    /// Keeps a message for a rank that has not started. True if it is for one.
    fn keep_for_waiting(&mut self, message: &Message) -> bool {
        if !matches!(message.kind, MessageKind::Input) {
            return false;
        }
        let mut waiting = self.worlds.values_mut().filter_map(|world| world.waiting.as_mut());
        let theirs = waiting.find(|it| it.start.ranks.iter().any(|one| one.rank == message.rank));
        let Some(theirs) = theirs else { return false };
        theirs.messages.push(message.clone());
        true
    }

    /// Starts the ranks of a world that have waited for gateways, with these settings per site.
    fn start_waiting(&mut self, world: u32, lists: &HashMap<String, String>) {
        let waiting = self.worlds.get_mut(&world).and_then(|world| world.waiting.take());
        let Some(WaitingRanks { start, messages }) = waiting else { return };
        let list = start.awaits.as_ref().and_then(|site| lists.get(site));
        self.start_ranks(&start, list.map(String::as_str));
        messages.into_iter().for_each(|message| self.handle(message));
    }

    fn start_rank(
        &self,
        start: &RankStart,
        all: &Start,
        gateways: Option<&str>,
    ) -> Result<Rank, (i32, String)> {
        let refused = |what: &'static str| move |error: io::Error| (126, limited(what, &error));
        let world = self.worlds.get(&all.first).ok_or((126, "an unknown world".to_owned()))?;
        let (ours, theirs) = UnixStream::pair().map_err(refused("socketpair"))?;
        let pmi = ours.try_clone().map_err(refused("dup"))?;
        let processors = start.bound.as_ref().map(|bound| bound.processors()).transpose();
        let processors = processors.map_err(|text| (126, text))?;
        if start.reports_binding {
            let all = || topo::domains::allowed(None).unwrap_or_default();
            let list = topo::core_list::text(&processors.clone().unwrap_or_else(all));
            send(&self.out, &Message::new(MessageKind::Bound, start.rank, list));
        }
        let (reports, their_reports) = UnixStream::pair().map_err(refused("socketpair"))?;
        let mut command = self.command(start, all, &theirs);
        reports::pass(&mut command, &their_reports);
        if let Some(processors) = &processors {
            system::bind(&mut command, processors);
        }
        command.envs(gateways.map(|list| (settings::GATEWAYS.variable(), list)));
        let traced = TracedRank::of(all, start, &mut command).map_err(|text| (126, text))?;
        let mut child = command.spawn().map_err(|error| refusal(start, &error))?;
        drop((theirs, their_reports));
        let group = child.id();
        let threads = || {
            let input =
                child.stdin.take().map(|stdin| feed(start.rank, stdin, &self.out)).transpose()?;
            serve(start.rank, ours, (&world.shared, &world.secret), &self.out)?;
            watch(start.rank, (child, traced), &world.sent, &self.out)?;
            Ok(input)
        };
        match threads() {
            Ok(input) => {
                Ok(Rank { world: all.first, group, input, pmi, reports: Arc::new(reports) })
            }
            Err(error) => {
                system::signal_group(group, SIGKILL);
                Err(refused("threads for a rank")(error))
            }
        }
    }

    fn command(&self, start: &RankStart, all: &Start, pmi: &UnixStream) -> Command {
        let mut command = Command::new(program(start));
        command.args(&start.command[1..]);
        command.stdin(if start.has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if !start.inherit {
            command.env_clear();
        }
        for name in &start.without {
            command.env_remove(name);
        }
        command.envs(start.environment.iter().map(|(name, value)| (name, value)));
        // `mpiexec` may itself run in a traced rank.
        command.env_remove(recorder::VARIABLE).env_remove(recorder::PROFILE_VARIABLE);
        command.env("PMI_FD", pmi.as_raw_fd().to_string());
        let inode = boot::socket_inode(pmi.as_raw_fd()).map(|inode| inode.to_string());
        command.envs(inode.map(|inode| (boot::SOCKET_VARIABLE, inode)));
        command.env("PMI_RANK", (start.rank - all.first).to_string());
        command.env("PMI_SIZE", all.size.to_string());
        command.env("PMI_SPAWNED", u8::from(all.is_spawned).to_string());
        command.env(boot::NODE_CORES_VARIABLE, boot::own_cores().to_string());
        if let Some(directory) = &start.directory {
            command.current_dir(directory);
        }
        system::own_group(&mut command);
        system::inherit(&mut command, pmi.as_raw_fd());
        if let Some(limit) = self.descriptors {
            system::limit_descriptors(&mut command, limit);
        }
        command
    }
}

/// Measures in a thread of its own, because connecting may take long.
fn measure(probe: Vec<u8>, out: &Out) {
    let theirs = Arc::clone(out);
    let started = system::start_thread(move || {
        let probe = serde_json::from_slice::<Probe>(&probe).ok();
        let time = probe.and_then(|one| probe::round_trip_us(&one.addresses, &one.token));
        let body = serde_json::to_vec(&time).unwrap_or_default();
        send(&theirs, &Message::new(MessageKind::Probed, 0, body));
    });
    if started.is_err() {
        send(out, &Message::new(MessageKind::Probed, 0, "null"));
    }
}

/// Starts a thread that answers a rank's requests or forwards them.
fn serve(
    rank: u32,
    stream: UnixStream,
    (known, secret): (&Shared, &Option<Secret>),
    out: &Out,
) -> io::Result<()> {
    let (known, secret, out) = (Arc::clone(known), secret.clone(), Arc::clone(out));
    system::start_thread(move || {
        let mut lines = BufReader::new(&stream);
        while let Ok(Some(request)) = pmi::read_request(&mut lines) {
            let text = String::from_utf8_lossy(&request);
            if let Some(process) = pmi::process(&text)
                && watch_process(rank, process, &out).is_ok()
            {
                // A rank that has ended needs no answer.
                let _ = (&stream).write_all(format!("{}\n", pmi::WATCHED).as_bytes());
                continue;
            }
            let reply = known.read().unwrap_or_else(PoisonError::into_inner).reply(&text);
            // A rank that has ended needs no answer.
            let answer = |text: String| drop((&stream).write_all(format!("{text}\n").as_bytes()));
            match reply {
                AgentReply::Secret => match &secret {
                    Some(secret) => {
                        let line = secret.line(pmi::FOUND, "\n");
                        drop((&stream).write_all(line.as_bytes()));
                    }
                    None => answer(pmi::NOT_FOUND.to_owned()),
                },
                AgentReply::Known(text) => answer(text),
                AgentReply::Noted(text) => {
                    // The notice comes before messages about the rank's later actions, its end included.
                    send(&out, &Message::new(MessageKind::PmiNotice, rank, request));
                    answer(text);
                }
                AgentReply::AskServer => {
                    send(&out, &Message::new(MessageKind::PmiRequest, rank, request))
                }
            }
        }
    })
}

/// Starts a thread that reports the end of the rank's process. The started process may be another one, such
/// as a wrapper, and live on.
fn watch_process(rank: u32, process: u32, out: &Out) -> io::Result<()> {
    let (ended, out) = (system::process(process)?, Arc::clone(out));
    system::start_thread(move || {
        if system::await_end(&ended).is_ok() {
            send(&out, &Message::new(MessageKind::PmiNotice, rank, pmi::ENDED_NOTICE));
        }
    })
}

/// Starts threads that forward the rank's output, its end after all output, and its recording after its end.
fn watch(
    rank: u32,
    (mut child, traced): (Child, Option<TracedRank>),
    sent: &Sent,
    out: &Out,
) -> io::Result<()> {
    let output = child.stdout.take().map(|stream| forward(MessageKind::Output, rank, stream, out));
    let error = child.stderr.take().map(|stream| forward(MessageKind::Error, rank, stream, out));
    let (output, error) = (output.transpose()?, error.transpose()?);
    let (sent, out) = (Arc::clone(sent), Arc::clone(out));
    system::start_thread(move || {
        let status = child.wait();
        let mut ended = ended(child.id(), status, sent.load(Ordering::Relaxed));
        for stream in output.into_iter().chain(error) {
            let lacks = stream.finish();
            if ended.exit == Exit::Code(NOT_LOADED) {
                ended.reason = ended.reason.or_else(|| lacks.map(missing_library));
            }
        }
        report_end(&out, rank, &ended);
        if let Some(traced) = traced {
            traced.read(|kind, piece| send(&out, &Message::new(kind, rank, piece)));
        }
    })
}

/// A stream that is forwarded.
struct ForwardedStream {
    /// Count of reads begun and pieces forwarded: even while the thread waits for the stream.
    steps: Arc<AtomicU64>,
    /// Library of this installation that a program on this stream has not found.
    lacks: Arc<OnceLock<OwnLibrary>>,
    ended: Receiver<()>,
}

impl ForwardedStream {
    /// Waits for the last output of an ended rank. Grandchildren may keep the stream open, so it counts as
    /// ended after a silence. Returns the library that a program has not found.
    fn finish(self) -> Option<OwnLibrary> {
        let mut before = self.steps.load(Ordering::Relaxed);
        while self.ended.recv_timeout(LAST_OUTPUT) == Err(RecvTimeoutError::Timeout) {
            let steps = self.steps.load(Ordering::Relaxed);
            if steps == before && steps.is_multiple_of(2) {
                break;
            }
            before = steps;
        }
        self.lacks.get().copied()
    }
}

/// Returns a rank's end, given the signals sent before.
fn ended(process: u32, status: io::Result<ExitStatus>, sent: u64) -> Ended {
    let ending = ENDING.iter().fold(0, |bits, signal| bits | bit(*signal)) & sent;
    let exit = match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal { signal: signal.unwrap_or(0), process },
        },
        Err(_) => Exit::Code(1),
    };
    let was_signalled = match exit {
        Exit::Signal { signal, .. } => ending & bit(signal) != 0,
        Exit::Code(_) => ending != 0,
        Exit::NotStarted(..) => false,
    };
    Ended { exit, was_signalled, reason: None }
}

fn forward(
    kind: MessageKind,
    rank: u32,
    mut stream: impl Read + Send + 'static,
    out: &Out,
) -> io::Result<ForwardedStream> {
    let out = Arc::clone(out);
    let steps = Arc::new(AtomicU64::new(0));
    let (done, ended) = mpsc::channel();
    let counted = Arc::clone(&steps);
    let lacks = Arc::new(OnceLock::new());
    let found = Arc::clone(&lacks);
    system::start_thread(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            counted.fetch_add(1, Ordering::Relaxed);
            if kind == MessageKind::Error
                && let Some(library) = OwnLibrary::missed_in(&buffer[..count])
            {
                // The first one is told of.
                let _ = found.set(library);
            }
            send(&out, &Message::new(kind, rank, &buffer[..count]));
            counted.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody waits for the stream once the rank's end was reported.
        let _ = done.send(());
    })?;
    Ok(ForwardedStream { steps, lacks, ended })
}

/// Starts a thread that writes the rank's input and requests the next piece after each.
fn feed(rank: u32, mut stdin: ChildStdin, out: &Out) -> io::Result<SyncSender<Vec<u8>>> {
    let out = Arc::clone(out);
    let (input, pieces) = mpsc::sync_channel::<Vec<u8>>(INPUT_DEPTH);
    system::start_thread(move || {
        while let Ok(piece) = pieces.recv() {
            // Input that a rank does not read is dropped.
            let _ = stdin.write_all(&piece);
            send(&out, &Message::new(MessageKind::Input, rank, ""));
        }
    })?;
    Ok(input)
}

fn report_end(out: &Out, rank: u32, ended: &Ended) {
    let body = serde_json::to_vec(ended).unwrap_or_default();
    send(out, &Message::new(MessageKind::Exit, rank, body));
}

pub(crate) fn send(out: &Out, message: &Message) {
    let mut out: MutexGuard<'_, _> = out.lock().unwrap_or_else(|poison| poison.into_inner());
    // The reading side notices a closed channel and ends everything.
    let _ = message.write(&mut *out);
}

/// Version in the `Hello` message.
pub(crate) const VERSION: &str = "canele-agent 14";

/// Signals by which `mpiexec` ends a job.
const ENDING: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGKILL];
/// Length of a piece of a stream.
const PIECE: usize = 32 << 10;
/// Pieces of input that may wait. `mpiexec` sends the next piece once the last was taken, so the channel
/// never fills.
const INPUT_DEPTH: usize = 2;
/// Time that an ended rank's streams may stay open and silent before its end is reported.
const LAST_OUTPUT: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGUSR1;

    use super::*;

    #[test]
    fn an_end_by_a_signal_that_was_sent_explains_nothing() {
        let ended = |status, sent| ended(1, status, sent);
        let by_term = || Ok(ExitStatus::from_raw(SIGTERM));
        let by_kill = || Ok(ExitStatus::from_raw(SIGKILL));
        assert!(ended(by_term(), bit(SIGTERM)).was_signalled);
        assert!(!ended(by_term(), 0).was_signalled);
        assert!(!ended(by_kill(), bit(SIGTERM)).was_signalled);
        assert!(!ended(Ok(ExitStatus::from_raw(SIGUSR1)), bit(SIGUSR1)).was_signalled);
        let by_exit = Ok(ExitStatus::from_raw(3 << 8));
        let by_itself = Ended { exit: Exit::Code(3), was_signalled: false, reason: None };
        assert_eq!(ended(by_exit, 0), by_itself);
    }
}
