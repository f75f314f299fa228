//! The gateways beside an agent: started for the job, and again when they end, or are not heard of any more.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::{Out, tell};
use crate::channel::{GatewayStart, Kind, Lost, Message, Serving};
use crate::system;

/// A gateway that a thread of this agent looks after.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// While this is open, the gateway serves.
    input: Option<ChildStdin>,
    is_running: bool,
    /// The job is over.
    is_over: bool,
}

/// Starts a gateway, and looks after it for as long as this agent lives.
pub(crate) fn start(gateway: &GatewayStart, out: &Out) -> Arc<Tended> {
    let tended = Arc::new(Tended::default());
    let (theirs, out_of_thread, own) = (gateway.clone(), out.clone(), Arc::clone(&tended));
    if let Err(error) = system::start_thread(move || tend(&theirs, &own, &out_of_thread)) {
        lose(gateway, &format!("cannot have a thread: {error}"), out);
    }
    tended
}

/// Has gateways end, which keep what they have learned, and waits for that, but not for long.
pub(crate) fn end(all: &[Arc<Tended>]) {
    for one in all {
        let mut state = one.state();
        (state.is_over, state.input) = (true, None);
    }
    let until = Instant::now() + FAREWELL;
    for one in all {
        let left = until.saturating_duration_since(Instant::now());
        let ended = one.changed.wait_timeout_while(one.state(), left, |state| state.is_running);
        // One that has not ended by now is ended.
        drop(ended);
    }
}

impl Tended {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It serves as long as its input is open, which ends with the job.
    fn note_serving(&self, input: Option<ChildStdin>) {
        let mut state = self.state();
        state.input = input.filter(|_| !state.is_over);
    }

    fn note_running(&self, is_running: bool) {
        self.state().is_running = is_running;
        self.changed.notify_all();
    }
}

fn tend(gateway: &GatewayStart, tended: &Tended, out: &Out) {
    // What it has got once it listens at again.
    let mut got = Vec::new();
    for _ in 0..STARTS_MAX {
        tended.note_running(true);
        let served = serve(gateway, tended, &mut got, out);
        tended.note_running(false);
        if tended.state().is_over {
            return;
        }
        let reason = served.unwrap_or_else(|error| format!("cannot be started: {error}"));
        if got.is_empty() {
            return lose(gateway, &reason, out);
        }
        tell!("canele-agent: {} {reason}; starting it again", gateway.name);
        thread::sleep(PAUSE);
    }
    tell!("canele-agent: {} ended {STARTS_MAX} times, and is left alone", gateway.name);
}

/// A gateway's life; how it ended. Where it listens is told when it first does.
fn serve(
    gateway: &GatewayStart,
    tended: &Tended,
    got: &mut Vec<SocketAddr>,
    out: &Out,
) -> io::Result<String> {
    let program = std::env::current_exe()?.with_file_name("canele-gateway");
    let mut command = Command::new(&program);
    let again: Vec<String> = got.iter().map(SocketAddr::to_string).collect();
    let listen = if got.is_empty() { &gateway.listen } else { &again };
    command.args(["--until-eof", "--beat"]).args(&gateway.arguments);
    command.args(listen.iter().flat_map(|door| ["--listen", door]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    system::own_group(&mut command);
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
    let mut process = command.spawn().map_err(named)?;
    // It ends when this does, however this agent ends.
    let mut input = process.stdin.take();
    let mut output = process.stdout.take().map(BufReader::new);
    let addresses = greet(input.as_mut(), output.as_mut(), gateway);
    tended.note_serving(input);
    if got.is_empty() && !addresses.is_empty() {
        got.clone_from(&addresses);
        let body = serde_json::to_vec(&Serving { number: gateway.number, addresses });
        tell(out, &Message::new(Kind::Serving, 0, body.unwrap_or_default()));
    }
    let is_silent = output.is_some_and(|mut output| attend(&mut output));
    if is_silent {
        // One that was stopped, or hangs, would keep what comes to it. That it has ended meanwhile is no error.
        let _ = process.kill();
    }
    let status = process.wait()?;
    let reason = if is_silent { "has given no sign of life for some seconds" } else { "has ended" };
    Ok(format!("{reason} ({status})"))
}

/// Listens to a gateway until it ends, or gives no sign of life any more; whether that is so. Where the whole machine
/// stands still all waits end at once, and only one of them counts.
fn attend(output: &mut BufReader<ChildStdout>) -> bool {
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

/// Gives a gateway its pass, which stands on no command line; where it says that it listens, nothing unless
/// that is all it was told to.
fn greet(
    input: Option<&mut ChildStdin>,
    output: Option<&mut BufReader<ChildStdout>>,
    gateway: &GatewayStart,
) -> Vec<SocketAddr> {
    let (Some(input), Some(output)) = (input, output) else { return Vec::new() };
    // One that has ended at once says why, and how is told by its end.
    let _ = writeln!(input, "{}", gateway.pass.0);
    let lines = output.take(LINES_MAX).lines().take(gateway.listen.len());
    let addresses = lines.map(|line| line.ok()?.parse().ok()).collect::<Option<Vec<_>>>();
    addresses.filter(|all| all.len() == gateway.listen.len()).unwrap_or_default()
}

fn lose(gateway: &GatewayStart, reason: &str, out: &Out) {
    let lost = Lost { ranks: Vec::new(), text: format!("{} {reason}", gateway.name) };
    let body = serde_json::to_vec(&lost).unwrap_or_default();
    tell(out, &Message::new(Kind::Lost, 0, body));
}

/// How often a gateway is started in a job.
const STARTS_MAX: u32 = 100;
/// Between its end and the next start.
const PAUSE: Duration = Duration::from_millis(500);
/// How long gateways may take to end.
const FAREWELL: Duration = Duration::from_millis(300);
/// A gateway gives a sign of life as often, and has hung when so many have not come.
const BEAT: Duration = Duration::from_secs(1);
const SILENT_MAX: u32 = 5;
/// What is read of where it listens, in bytes.
const LINES_MAX: u64 = 4096;
