//! The agent of a node: starts its ranks, and the agents below it, and stands between them and `mpiexec`.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crate::channel::{Ended, Exit, Kind, Message, RankStart, Start};
use crate::child_agents::Below;
use crate::discovery::Probe;
use crate::gateway::{self, Tended};
use crate::pmi::{self, Given, Reply};
use crate::probe::{self, Token};
use crate::system;

/// The way to `mpiexec`, shared by the threads that have something to say.
pub(crate) type Out = Arc<Mutex<std::io::Stdout>>;

/// The signals that `mpiexec` has sent to the ranks, a bit for each number.
pub(crate) type Sent = Arc<AtomicU64>;

/// What is answered here.
type Known = Arc<RwLock<Given>>;

/// Runs an agent on its standard streams until `mpiexec` closes them.
pub fn agent_main() -> ExitCode {
    system::adopt_orphans();
    // Every rank takes seven.
    let descriptors = system::raise_descriptors();
    let out: Out = Arc::new(Mutex::new(std::io::stdout()));
    tell(&out, &Message::new(Kind::Hello, 0, VERSION));
    let (ranks, below, sent) = (HashMap::new(), Below::default(), Sent::default());
    let (held, gateways, given) = (None, Vec::new(), Known::default());
    let mut agent = Agent { ranks, below, gateways, held, given, sent, descriptors, out };
    let mut input = std::io::stdin().lock();
    // The channel's end, in good order or not, ends the job here.
    while let Ok(Some(message)) = Message::read(&mut input) {
        agent.handle(message);
    }
    for rank in agent.ranks.values() {
        system::signal_group(rank.group, libc::SIGKILL);
    }
    agent.below.close();
    gateway::end(&agent.gateways);
    system::end_descendants();
    ExitCode::SUCCESS
}

struct Agent {
    ranks: HashMap<u32, Rank>,
    below: Below,
    gateways: Vec<Arc<Tended>>,
    /// Ranks that start when the gateways serve.
    held: Option<Held>,
    given: Known,
    sent: Sent,
    /// The limit that ranks get back.
    descriptors: Option<libc::rlimit>,
    out: Out,
}

/// Ranks that have to know gateways, and what came for them meanwhile: a piece of input, and its end.
struct Held {
    start: Start,
    messages: Vec<Message>,
}

/// A rank that was started.
struct Rank {
    group: u32,
    input: Option<SyncSender<Vec<u8>>>,
    pmi: UnixStream,
}

impl Agent {
    fn handle(&mut self, message: Message) {
        let is_elsewhere = !self.ranks.contains_key(&message.rank);
        if is_elsewhere && self.hold(&message) {
            return;
        }
        match message.kind {
            Kind::Start => match serde_json::from_slice::<Start>(&message.body) {
                Ok(start) => self.start(start),
                Err(error) => tell!("canele-agent: a start that cannot be read: {error}"),
            },
            Kind::Input | Kind::PmiAnswer if is_elsewhere => self.below.send(message),
            Kind::Input => self.feed(message),
            Kind::PmiAnswer => {
                if let Some(rank) = self.ranks.get_mut(&message.rank) {
                    // A rank that has gone needs no answer.
                    let _ = rank.pmi.write_all(&message.body);
                }
            }
            Kind::PmiForAll => {
                self.below.send_to_all(&message);
                for rank in self.ranks.values_mut() {
                    let _ = rank.pmi.write_all(&message.body);
                }
            }
            Kind::PmiGiven => {
                self.below.send_to_all(&message);
                let more = serde_json::from_slice::<Given>(&message.body).unwrap_or_default();
                self.given.write().unwrap_or_else(PoisonError::into_inner).extend(more);
            }
            Kind::Gateways => {
                self.below.send_to_all(&message);
                let lists = serde_json::from_slice(&message.body).unwrap_or_default();
                self.release(&lists);
            }
            Kind::Signal => {
                self.below.send_to_all(&message);
                let signal = message.body.first().copied().map_or(libc::SIGTERM, i32::from);
                self.sent.fetch_or(bit(signal), Ordering::Relaxed);
                self.end_held(signal);
                for rank in self.ranks.values() {
                    system::signal_group(rank.group, signal);
                }
            }
            Kind::Listen => {
                let token = Token::try_from(&message.body[..]);
                let addresses = token.map_err(|_| "a token that is none".to_owned());
                let addresses = addresses
                    .and_then(|token| probe::listen(token).map_err(|error| error.to_string()));
                let body = serde_json::to_vec(&addresses).unwrap_or_default();
                tell(&self.out, &Message::new(Kind::Listening, 0, body));
            }
            Kind::Probe => measure(message.body, &self.out),
            Kind::Output
            | Kind::Error
            | Kind::PmiRequest
            | Kind::PmiNotice
            | Kind::Serving
            | Kind::Exit
            | Kind::Hello
            | Kind::Lost
            | Kind::Listening
            | Kind::Probed => {}
        }
    }

    /// Gives a rank of this agent's a piece of its input.
    fn feed(&mut self, message: Message) {
        let Some(rank) = self.ranks.get_mut(&message.rank) else { return };
        match (&rank.input, message.body.is_empty()) {
            (_, true) => rank.input = None,
            // The thread that feeds the rank lives as long as this end.
            (Some(input), false) => drop(input.send(message.body)),
            (None, false) => {}
        }
    }

    fn start(&mut self, start: Start) {
        // They take longer than ranks.
        self.below.start(&start, &self.sent, &self.out);
        self.gateways.extend(start.gateways.iter().map(|one| gateway::start(one, &self.out)));
        match start.awaits {
            Some(_) => self.held = Some(Held { start, messages: Vec::new() }),
            None => self.start_ranks(&start, None),
        }
    }

    fn start_ranks(&mut self, start: &Start, gateways: Option<&str>) {
        for one in &start.ranks {
            match self.start_rank(one, start.size, gateways) {
                Ok(started) => {
                    self.ranks.insert(one.rank, started);
                }
                Err((code, reason)) => {
                    let how = Exit::NotStarted(code, reason);
                    report_end(&self.out, one.rank, &Ended { how, told: false });
                }
            }
        }
    }

    /// Keeps what is for a rank that has not started; whether it is for one.
    fn hold(&mut self, message: &Message) -> bool {
        let Some(held) = &mut self.held else { return false };
        let is_theirs = matches!(message.kind, Kind::Input)
            && held.start.ranks.iter().any(|one| one.rank == message.rank);
        if is_theirs {
            held.messages.push(message.clone());
        }
        is_theirs
    }

    /// Starts the ranks that have waited for gateways, by these lists of the sites'.
    fn release(&mut self, lists: &HashMap<String, String>) {
        let Some(Held { start, messages }) = self.held.take() else { return };
        let list = start.awaits.as_ref().and_then(|site| lists.get(site));
        self.start_ranks(&start, list.map(String::as_str));
        messages.into_iter().for_each(|message| self.handle(message));
    }

    /// Ranks that are ended before they have started will not start.
    fn end_held(&mut self, signal: i32) {
        if !ENDING.contains(&signal) {
            return;
        }
        for one in self.held.take().into_iter().flat_map(|held| held.start.ranks) {
            let ended = Ended { how: Exit::Signal(signal), told: true };
            report_end(&self.out, one.rank, &ended);
        }
    }

    fn start_rank(
        &self,
        start: &RankStart,
        size: u32,
        gateways: Option<&str>,
    ) -> Result<Rank, (i32, String)> {
        let refused =
            |what: &'static str| move |error: io::Error| (126, format!("{what}: {error}"));
        let (ours, theirs) = UnixStream::pair().map_err(refused("socketpair"))?;
        let pmi = ours.try_clone().map_err(refused("dup"))?;
        let mut command = self.command(start, size, &theirs);
        command.envs(gateways.map(|list| (settings::GATEWAYS.variable(), list)));
        let mut child = command.spawn().map_err(|error| refusal(start, &error))?;
        drop(theirs);
        let group = child.id();
        let threads = || {
            let input =
                child.stdin.take().map(|stdin| feed(start.rank, stdin, &self.out)).transpose()?;
            serve(start.rank, ours, &self.given, &self.out)?;
            watch(start.rank, child, &self.sent, &self.out)?;
            Ok(input)
        };
        match threads() {
            Ok(input) => Ok(Rank { group, input, pmi }),
            Err(error) => {
                system::signal_group(group, libc::SIGKILL);
                Err(refused("threads for a rank")(error))
            }
        }
    }

    fn command(&self, start: &RankStart, size: u32, pmi: &UnixStream) -> Command {
        let mut command = Command::new(program(start));
        command.args(&start.command[1..]);
        // Standard input goes to rank 0, as everywhere.
        command.stdin(if start.rank == 0 { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if !start.inherit {
            command.env_clear();
        }
        command.envs(start.environment.iter().map(|(name, value)| (name, value)));
        command.env("PMI_FD", pmi.as_raw_fd().to_string());
        command.env("PMI_RANK", start.rank.to_string());
        command.env("PMI_SIZE", size.to_string());
        command.env("PMI_SPAWNED", "0");
        command.env(boot::NODE_CORES_VARIABLE, boot::own_cores().to_string());
        if let Some(directory) = &start.directory {
            command.current_dir(directory);
        }
        if let Some(bound) = start.bound {
            system::bind(&mut command, &bound.processors());
        }
        system::own_group(&mut command);
        system::inherit(&mut command, pmi.as_raw_fd());
        if let Some(limit) = self.descriptors {
            system::limit_descriptors(&mut command, limit);
        }
        command
    }
}

/// Measures in a thread of its own, for connecting may take long.
fn measure(probe: Vec<u8>, out: &Out) {
    let theirs = Arc::clone(out);
    let started = system::start_thread(move || {
        let probe = serde_json::from_slice::<Probe>(&probe).ok();
        let time = probe.and_then(|one| probe::round_trip_us(&one.addresses, &one.token));
        let body = serde_json::to_vec(&time).unwrap_or_default();
        tell(&theirs, &Message::new(Kind::Probed, 0, body));
    });
    if started.is_err() {
        tell(out, &Message::new(Kind::Probed, 0, "null"));
    }
}

/// The program of a rank: where programs are looked for first, if it is there.
fn program(start: &RankStart) -> PathBuf {
    let given = Path::new(&start.command[0]);
    let there = start.binaries.as_ref().filter(|_| given.is_relative()).and_then(|place| {
        // The rank may run in another directory.
        std::path::absolute(Path::new(place).join(given)).ok()
    });
    there.filter(|path| path.is_file()).unwrap_or_else(|| given.into())
}

fn refusal(start: &RankStart, error: &std::io::Error) -> (i32, String) {
    let program = start.command[0].display();
    if let Some(directory) = &start.directory
        && !std::path::Path::new(directory).is_dir()
    {
        return (127, format!("no directory {directory}"));
    }
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            let also = start.binaries.as_ref().map(|place| format!(", nor in {place}"));
            (127, format!("program {program} not found{}", also.unwrap_or_default()))
        }
        std::io::ErrorKind::PermissionDenied => {
            (126, format!("program {program} cannot be executed"))
        }
        _ => (126, format!("program {program} cannot be started: {error}")),
    }
}

/// A thread that answers a rank's requests, or passes them on.
fn serve(rank: u32, stream: UnixStream, known: &Known, out: &Out) -> io::Result<()> {
    let (known, out) = (Arc::clone(known), Arc::clone(out));
    system::start_thread(move || {
        let mut lines = BufReader::new(&stream);
        let mut line = Vec::new();
        while matches!((&mut lines).take(LINE_MAX).read_until(b'\n', &mut line), Ok(1..)) {
            let request = std::mem::take(&mut line);
            let text = String::from_utf8_lossy(&request);
            if let Some(process) = pmi::process(&text)
                && watch_process(rank, process, &out).is_ok()
            {
                // A rank that has gone needs no answer.
                let _ = (&stream).write_all(format!("{}\n", pmi::WATCHED).as_bytes());
                continue;
            }
            let reply = known.read().unwrap_or_else(PoisonError::into_inner).reply(&text);
            // A rank that has gone needs no answer.
            let answer = |text: String| drop((&stream).write_all(format!("{text}\n").as_bytes()));
            match reply {
                Reply::Known(text) => answer(text),
                Reply::Noted(text) => {
                    // What the rank does next, its end included, is told later.
                    tell(&out, &Message::new(Kind::PmiNotice, rank, request));
                    answer(text);
                }
                Reply::Above => tell(&out, &Message::new(Kind::PmiRequest, rank, request)),
            }
        }
    })
}

/// A thread that tells the end of the process that is the rank: what was started for it may be another, and live on.
fn watch_process(rank: u32, process: u32, out: &Out) -> io::Result<()> {
    let (ended, out) = (system::process(process)?, Arc::clone(out));
    system::start_thread(move || {
        if system::await_end(&ended).is_ok() {
            tell(&out, &Message::new(Kind::PmiNotice, rank, pmi::ENDED_NOTICE));
        }
    })
}

/// Threads that pass on what the rank says, and its end after the last of it.
fn watch(rank: u32, mut child: Child, sent: &Sent, out: &Out) -> io::Result<()> {
    let output = child.stdout.take().map(|stream| pass_on(Kind::Output, rank, stream, out));
    let error = child.stderr.take().map(|stream| pass_on(Kind::Error, rank, stream, out));
    let (output, error) = (output.transpose()?, error.transpose()?);
    let (sent, out) = (Arc::clone(sent), Arc::clone(out));
    system::start_thread(move || {
        let status = child.wait();
        let ended = ended(status, sent.load(Ordering::Relaxed));
        for passage in output.into_iter().chain(error) {
            passage.finish();
        }
        report_end(&out, rank, &ended);
    })
}

/// A stream that is passed on.
struct Passage {
    /// Counts readings begun and pieces read: even while the stream is waited for.
    steps: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl Passage {
    /// Waits for the last of an ended rank's words. Grandchildren may hold the stream open: it counts
    /// as ended when it was empty for a while.
    fn finish(self) {
        let mut before = self.steps.load(Ordering::Relaxed);
        while self.ended.recv_timeout(LAST_WORDS) == Err(RecvTimeoutError::Timeout) {
            let steps = self.steps.load(Ordering::Relaxed);
            if steps == before && steps.is_multiple_of(2) {
                return;
            }
            before = steps;
        }
    }
}

/// The end of a rank by which these signals had been sent.
fn ended(status: io::Result<ExitStatus>, sent: u64) -> Ended {
    let ending = ENDING.iter().fold(0, |bits, signal| bits | bit(*signal)) & sent;
    let how = match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        },
        Err(_) => Exit::Code(1),
    };
    let told = match how {
        Exit::Signal(signal) => ending & bit(signal) != 0,
        Exit::Code(_) => ending != 0,
        Exit::NotStarted(..) => false,
    };
    Ended { how, told }
}

pub(crate) fn bit(signal: i32) -> u64 {
    1u64.checked_shl(signal as u32).unwrap_or(0)
}

fn pass_on(
    kind: Kind,
    rank: u32,
    mut stream: impl Read + Send + 'static,
    out: &Out,
) -> io::Result<Passage> {
    let out = Arc::clone(out);
    let steps = Arc::new(AtomicU64::new(0));
    let (done, ended) = mpsc::channel();
    let counted = Arc::clone(&steps);
    system::start_thread(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            counted.fetch_add(1, Ordering::Relaxed);
            tell(&out, &Message::new(kind, rank, &buffer[..count]));
            counted.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody waits for it once the rank has been reported.
        let _ = done.send(());
    })?;
    Ok(Passage { steps, ended })
}

/// A thread that writes the rank's input and asks for the next piece when one is written.
fn feed(rank: u32, mut stdin: ChildStdin, out: &Out) -> io::Result<SyncSender<Vec<u8>>> {
    let out = Arc::clone(out);
    let (input, pieces) = mpsc::sync_channel::<Vec<u8>>(INPUT_DEPTH);
    system::start_thread(move || {
        while let Ok(piece) = pieces.recv() {
            // What a rank does not want to read is not kept for it.
            let _ = stdin.write_all(&piece);
            tell(&out, &Message::new(Kind::Input, rank, ""));
        }
    })?;
    Ok(input)
}

fn report_end(out: &Out, rank: u32, ended: &Ended) {
    let body = serde_json::to_vec(ended).unwrap_or_default();
    tell(out, &Message::new(Kind::Exit, rank, body));
}

pub(crate) fn tell(out: &Out, message: &Message) {
    let mut out: MutexGuard<'_, _> = out.lock().unwrap_or_else(|poison| poison.into_inner());
    // A closed channel is seen by the reading side, which ends everything.
    let _ = message.write(&mut *out);
}

/// What `Hello` carries.
pub(crate) const VERSION: &str = "canele-agent 6";

/// The signals by which `mpiexec` ends a job.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGKILL];
/// A piece of a stream.
const PIECE: usize = 32 << 10;
/// `mpiexec` sends a piece of input when the last one was taken, so that the channel never fills.
const INPUT_DEPTH: usize = 2;
/// The longest PMI line.
const LINE_MAX: u64 = 64 << 10;
/// How long an ended rank's streams may stay open and empty before its end is reported.
const LAST_WORDS: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_by_a_signal_that_was_sent_explains_nothing() {
        let by_term = || Ok(ExitStatus::from_raw(libc::SIGTERM));
        let by_kill = || Ok(ExitStatus::from_raw(libc::SIGKILL));
        assert!(ended(by_term(), bit(libc::SIGTERM)).told);
        assert!(!ended(by_term(), 0).told);
        assert!(!ended(by_kill(), bit(libc::SIGTERM)).told);
        assert!(!ended(Ok(ExitStatus::from_raw(libc::SIGUSR1)), bit(libc::SIGUSR1)).told);
        let by_exit = Ok(ExitStatus::from_raw(3 << 8));
        assert_eq!(ended(by_exit, 0), Ended { how: Exit::Code(3), told: false });
    }
}
