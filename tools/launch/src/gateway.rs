//! Gateways of an agent's host: started for the job, and restarted if they end or hang.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use boot::Secret;

use crate::agent::{Out, send};
use crate::channel::{GatewayStart, Lost, Message, MessageKind, Serving};
use crate::system;

/// A gateway process that a thread of this agent supervises.
#[derive(Debug, Default)]
pub(crate) struct GatewayProcess {
    state: Mutex<ProcessState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ProcessState {
    /// Standard input of the gateway, which serves while it is open.
    input: Option<ChildStdin>,
    is_running: bool,
    /// True if the job is over.
    is_over: bool,
}

/// Starts a gateway, and supervises it for as long as this agent lives.
pub(crate) fn start(gateway: &GatewayStart, secret: &Secret, out: &Out) -> Arc<GatewayProcess> {
    let process = Arc::new(GatewayProcess::default());
    let (theirs, out_of_thread, own) = (gateway.clone(), out.clone(), Arc::clone(&process));
    let secret = secret.clone();
    let supervised = move || supervise(&theirs, &secret, &own, &out_of_thread);
    if let Err(error) = system::start_thread(supervised) {
        lose(gateway, &format!("cannot have a thread: {error}"), out);
    }
    process
}

/// Ends gateways, which store what they have learned, and waits for them briefly.
pub(crate) fn end(all: &[Arc<GatewayProcess>]) {
    for one in all {
        let mut state = one.state();
        (state.is_over, state.input) = (true, None);
    }
    let until = Instant::now() + END_TIMEOUT;
    for one in all {
        let left = until.saturating_duration_since(Instant::now());
        let ended = one.changed.wait_timeout_while(one.state(), left, |state| state.is_running);
        // A gateway that has not ended by now is killed later.
        drop(ended);
    }
}

impl GatewayProcess {
    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the gateway's input open until the job ends.
    fn note_serving(&self, input: Option<ChildStdin>) {
        let mut state = self.state();
        state.input = input.filter(|_| !state.is_over);
    }

    fn note_running(&self, is_running: bool) {
        self.state().is_running = is_running;
        self.changed.notify_all();
    }
}

fn supervise(gateway: &GatewayStart, secret: &Secret, process: &GatewayProcess, out: &Out) {
    // Actual addresses, which a restarted gateway listens at again.
    let mut addresses = Vec::new();
    for _ in 0..STARTS_MAX {
        process.note_running(true);
        let served = serve(gateway, secret, process, &mut addresses, out);
        process.note_running(false);
        if process.state().is_over {
            return;
        }
        let reason = served.unwrap_or_else(|error| format!("cannot be started: {error}"));
        if addresses.is_empty() {
            return lose(gateway, &reason, out);
        }
        tell!("canele-agent: {} {reason}; starting it again", gateway.name);
        thread::sleep(PAUSE);
    }
    tell!("canele-agent: {} ended {STARTS_MAX} times, and is left alone", gateway.name);
}

/// Runs a gateway and returns how it ended. Reports its addresses when it first listens.
fn serve(
    gateway: &GatewayStart,
    secret: &Secret,
    process: &GatewayProcess,
    addresses: &mut Vec<SocketAddr>,
    out: &Out,
) -> io::Result<String> {
    let program = std::env::current_exe()?.with_file_name("canele-gateway");
    let mut command = Command::new(&program);
    let again: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let listen = if addresses.is_empty() { &gateway.listen } else { &again };
    command.args(["--until-eof", "--beat"]).args(&gateway.arguments);
    command.args(listen.iter().flat_map(|address| ["--listen", address]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    system::own_group(&mut command);
    let with_program =
        |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
    let mut child = command.spawn().map_err(with_program)?;
    // The gateway ends with its input, however this agent ends.
    let mut input = child.stdin.take();
    let mut output = child.stdout.take().map(BufReader::new);
    let reported = exchange_hello(input.as_mut(), output.as_mut(), gateway, secret);
    process.note_serving(input);
    if addresses.is_empty() && !reported.is_empty() {
        addresses.clone_from(&reported);
        let body = serde_json::to_vec(&Serving { number: gateway.number, addresses: reported });
        send(out, &Message::new(MessageKind::Serving, 0, body.unwrap_or_default()));
    }
    let is_silent = output.is_some_and(|mut output| is_silent_until_end(&mut output));
    if is_silent {
        // A gateway that was stopped or hangs would keep its connections. It may have ended meanwhile, which
        // is no error.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let reason = if is_silent { "has given no sign of life for some seconds" } else { "has ended" };
    Ok(format!("{reason} ({status})"))
}

/// Reads a gateway's output until it ends or falls silent; true if it is silent. Intervals are counted one by
/// one, because after a suspension of the whole machine all waits expire at once.
fn is_silent_until_end(output: &mut BufReader<ChildStdout>) -> bool {
    let mut silent = 0;
    while silent < SILENT_MAX {
        match system::await_input(output.get_ref(), Some(BEAT)) {
            Ok(false) => silent += 1,
            Ok(true) => match output.fill_buf().map(<[u8]>::len) {
                Ok(len @ 1..) => {
                    output.consume(len);
                    silent = 0;
                }
                Ok(0) | Err(_) => return false,
            },
            Err(_) => return false,
        }
    }
    true
}

/// Sends a gateway its pass, which must not be on a command line. Returns its addresses, or nothing unless it
/// listens at all of them.
fn exchange_hello(
    input: Option<&mut ChildStdin>,
    output: Option<&mut BufReader<ChildStdout>>,
    gateway: &GatewayStart,
    secret: &Secret,
) -> Vec<SocketAddr> {
    let (Some(input), Some(output)) = (input, output) else { return Vec::new() };
    // A gateway that has ended at once reports why itself, and its end is noticed later.
    let pass = secret.line(&format!("{:016x} ", gateway.job), "\n");
    let _ = input.write_all(pass.as_bytes());
    let lines = output.take(LINES_MAX).lines().take(gateway.listen.len());
    let addresses = lines.map(|line| line.ok()?.parse().ok()).collect::<Option<Vec<_>>>();
    addresses.filter(|all| all.len() == gateway.listen.len()).unwrap_or_default()
}

pub(crate) fn lose(gateway: &GatewayStart, reason: &str, out: &Out) {
    let lost = Lost { ranks: Vec::new(), text: format!("{} {reason}", gateway.name) };
    let body = serde_json::to_vec(&lost).unwrap_or_default();
    send(out, &Message::new(MessageKind::Lost, 0, body));
}

/// Maximum number of starts of a gateway in a job.
const STARTS_MAX: u32 = 100;
/// Pause between its end and the next start.
const PAUSE: Duration = Duration::from_millis(500);
/// Time in which gateways must end.
const END_TIMEOUT: Duration = Duration::from_millis(300);
/// Interval of a gateway's signs of life, and the number of missing ones after which it has hung.
const BEAT: Duration = Duration::from_secs(1);
const SILENT_MAX: u32 = 5;
/// Maximum number of bytes read for its addresses.
const LINES_MAX: u64 = 4096;
