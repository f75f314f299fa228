//! The agent of a node: starts its ranks and stands between them and `mpiexec`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use crate::channel::{Exit, Kind, Message, RankStart, Start};
use crate::system;

/// The way to `mpiexec`, shared by the threads that have something to say.
type Out = Arc<Mutex<std::io::Stdout>>;

/// Runs an agent on its standard streams until `mpiexec` closes them.
pub fn agent_main() -> ExitCode {
    system::adopt_orphans();
    let out: Out = Arc::new(Mutex::new(std::io::stdout()));
    tell(&out, &Message::new(Kind::Hello, 0, VERSION));
    let mut ranks = HashMap::new();
    let mut input = std::io::stdin().lock();
    // The channel's end, in good order or not, ends the job here.
    while let Ok(Some(message)) = Message::read(&mut input) {
        handle(message, &mut ranks, &out);
    }
    for rank in ranks.values() {
        system::signal_group(rank.group, libc::SIGKILL);
    }
    system::end_descendants();
    ExitCode::SUCCESS
}

/// A rank that was started.
struct Rank {
    group: u32,
    input: Option<SyncSender<Vec<u8>>>,
    pmi: UnixStream,
}

fn handle(message: Message, ranks: &mut HashMap<u32, Rank>, out: &Out) {
    let Message { kind, rank, body } = message;
    match kind {
        Kind::Start => match serde_json::from_slice::<Start>(&body) {
            Ok(start) => {
                for one in &start.ranks {
                    match start_rank(one, start.size, out) {
                        Ok(started) => {
                            ranks.insert(one.rank, started);
                        }
                        Err((code, reason)) => {
                            report_exit(out, one.rank, &Exit::NotStarted(code, reason));
                        }
                    }
                }
            }
            Err(error) => eprintln!("canele-agent: a start that cannot be read: {error}"),
        },
        Kind::Input => {
            if let Some(rank) = ranks.get_mut(&rank) {
                match (&rank.input, body.is_empty()) {
                    (_, true) => rank.input = None,
                    // The thread that feeds the rank lives as long as this end.
                    (Some(input), false) => drop(input.send(body)),
                    (None, false) => {}
                }
            }
        }
        Kind::Signal => {
            let signal = body.first().copied().map_or(libc::SIGTERM, i32::from);
            for rank in ranks.values() {
                system::signal_group(rank.group, signal);
            }
        }
        Kind::PmiAnswer => {
            if let Some(rank) = ranks.get_mut(&rank) {
                // A rank that has gone needs no answer.
                let _ = rank.pmi.write_all(&body);
            }
        }
        Kind::Output | Kind::Error | Kind::PmiRequest | Kind::Exit | Kind::Hello => {}
    }
}

fn start_rank(start: &RankStart, size: u32, out: &Out) -> Result<Rank, (i32, String)> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| (1, format!("socketpair: {error}")))?;
    let mut command = Command::new(&start.command[0]);
    command.args(&start.command[1..]);
    // Standard input goes to rank 0, as everywhere.
    command.stdin(if start.rank == 0 { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if !start.inherit {
        command.env_clear();
    }
    command.envs(start.environment.iter().map(|(name, value)| (name, value)));
    command.env("PMI_FD", theirs.as_raw_fd().to_string());
    command.env("PMI_RANK", start.rank.to_string());
    command.env("PMI_SIZE", size.to_string());
    command.env("PMI_SPAWNED", "0");
    if let Some(directory) = &start.directory {
        command.current_dir(directory);
    }
    system::own_group(&mut command);
    system::inherit(&mut command, theirs.as_raw_fd());
    let mut child = command.spawn().map_err(|error| refusal(start, &error))?;
    drop(theirs);
    let input = child.stdin.take().map(|stdin| feed(start.rank, stdin, out));
    let pmi = ours.try_clone().map_err(|error| (1, format!("dup: {error}")))?;
    let group = child.id();
    watch(start.rank, child, ours, out);
    Ok(Rank { group, input, pmi })
}

fn refusal(start: &RankStart, error: &std::io::Error) -> (i32, String) {
    let program = &start.command[0];
    if let Some(directory) = &start.directory
        && !std::path::Path::new(directory).is_dir()
    {
        return (127, format!("no directory {directory}"));
    }
    match error.kind() {
        std::io::ErrorKind::NotFound => (127, format!("program {program} not found")),
        std::io::ErrorKind::PermissionDenied => {
            (126, format!("program {program} cannot be executed"))
        }
        _ => (126, format!("program {program} cannot be started: {error}")),
    }
}

/// Threads that pass on what the rank says, and its end after the last of it.
fn watch(rank: u32, mut child: Child, pmi: UnixStream, out: &Out) {
    let (done, all_done) = mpsc::channel();
    if let Some(stream) = child.stdout.take() {
        pass_on(Kind::Output, rank, stream, out, done.clone());
    }
    if let Some(stream) = child.stderr.take() {
        pass_on(Kind::Error, rank, stream, out, done);
    }
    let requests = Arc::clone(out);
    thread::spawn(move || {
        let mut lines = BufReader::new(pmi);
        let mut line = Vec::new();
        while matches!((&mut lines).take(LINE_MAX).read_until(b'\n', &mut line), Ok(1..)) {
            tell(&requests, &Message::new(Kind::PmiRequest, rank, std::mem::take(&mut line)));
        }
    });
    let out = Arc::clone(out);
    thread::spawn(move || {
        let status = child.wait();
        // Grandchildren may hold the streams open; what the rank itself said is passed on first.
        for _ in 0..2 {
            let _ = all_done.recv_timeout(LAST_WORDS);
        }
        let exit = match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, signal) => Exit::Signal(signal.unwrap_or(0)),
            },
            Err(_) => Exit::Code(1),
        };
        report_exit(&out, rank, &exit);
    });
}

fn pass_on(
    kind: Kind,
    rank: u32,
    mut stream: impl Read + Send + 'static,
    out: &Out,
    done: Sender<()>,
) {
    let out = Arc::clone(out);
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            tell(&out, &Message::new(kind, rank, &buffer[..count]));
        }
        // Nobody waits for it once the rank has been reported.
        let _ = done.send(());
    });
}

/// A thread that writes the rank's input and asks for the next piece when one is written.
fn feed(rank: u32, mut stdin: ChildStdin, out: &Out) -> SyncSender<Vec<u8>> {
    let out = Arc::clone(out);
    let (input, pieces) = mpsc::sync_channel::<Vec<u8>>(INPUT_DEPTH);
    thread::spawn(move || {
        while let Ok(piece) = pieces.recv() {
            // What a rank does not want to read is not kept for it.
            let _ = stdin.write_all(&piece);
            tell(&out, &Message::new(Kind::Input, rank, ""));
        }
    });
    input
}

fn report_exit(out: &Out, rank: u32, exit: &Exit) {
    let body = serde_json::to_vec(exit).unwrap_or_default();
    tell(out, &Message::new(Kind::Exit, rank, body));
}

fn tell(out: &Out, message: &Message) {
    let mut out: MutexGuard<'_, _> = out.lock().unwrap_or_else(|poison| poison.into_inner());
    // A closed channel is seen by the reading side, which ends everything.
    let _ = message.write(&mut *out);
}

/// What `Hello` carries.
pub(crate) const VERSION: &str = "canele-agent 1";

/// A piece of a stream.
const PIECE: usize = 32 << 10;
/// `mpiexec` sends a piece of input when the last one was taken, so that the channel never fills.
const INPUT_DEPTH: usize = 2;
/// The longest PMI line.
const LINE_MAX: u64 = 64 << 10;
/// How long an ended rank's streams may stay open before its end is reported.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(200);
