//! The gateways beside an agent: started for the job, and again when they end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::agent::{Out, tell};
use crate::channel::{GatewayStart, Kind, Lost, Message, Serving};
use crate::system;

/// Starts a gateway, and looks after it for as long as this agent lives.
pub(crate) fn start(gateway: &GatewayStart, out: &Out) {
    let (theirs, out_of_thread) = (gateway.clone(), out.clone());
    if let Err(error) = system::start_thread(move || tend(&theirs, &out_of_thread)) {
        lose(gateway, &format!("cannot have a thread: {error}"), out);
    }
}

fn tend(gateway: &GatewayStart, out: &Out) {
    // What it has got once it listens at again.
    let mut got = Vec::new();
    for _ in 0..STARTS_MAX {
        let reason = match serve(gateway, &mut got, out) {
            Ok(how) => how,
            Err(error) => format!("cannot be started: {error}"),
        };
        if got.is_empty() {
            return lose(gateway, &reason, out);
        }
        tell!("canele-agent: {} {reason}; starting it again", gateway.name);
        thread::sleep(PAUSE);
    }
    tell!("canele-agent: {} ended {STARTS_MAX} times, and is left alone", gateway.name);
}

/// A gateway's life; how it ended. Where it listens is told when it first does.
fn serve(gateway: &GatewayStart, got: &mut Vec<SocketAddr>, out: &Out) -> io::Result<String> {
    let program = std::env::current_exe()?.with_file_name("canele-gateway");
    let mut command = Command::new(&program);
    let again: Vec<String> = got.iter().map(SocketAddr::to_string).collect();
    let listen = if got.is_empty() { &gateway.listen } else { &again };
    command.arg("--until-eof").args(&gateway.arguments);
    command.args(listen.iter().flat_map(|door| ["--listen", door]));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    system::own_group(&mut command);
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
    let mut process = command.spawn().map_err(named)?;
    // It ends when this does, however this agent ends.
    let mut input = process.stdin.take();
    let addresses = greet(input.as_mut(), process.stdout.take(), gateway);
    if got.is_empty() && !addresses.is_empty() {
        got.clone_from(&addresses);
        let body = serde_json::to_vec(&Serving { number: gateway.number, addresses });
        tell(out, &Message::new(Kind::Serving, 0, body.unwrap_or_default()));
    }
    let status = process.wait()?;
    Ok(format!("has ended ({status})"))
}

/// Gives a gateway its pass, which stands on no command line; where it says that it listens, nothing unless
/// that is all it was told to.
fn greet(
    input: Option<&mut ChildStdin>,
    output: Option<ChildStdout>,
    gateway: &GatewayStart,
) -> Vec<SocketAddr> {
    let (Some(input), Some(output)) = (input, output) else { return Vec::new() };
    // One that has ended at once says why, and how is told by its end.
    let _ = writeln!(input, "{}", gateway.pass.0);
    let lines = BufReader::new(output.take(LINES_MAX)).lines().take(gateway.listen.len());
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
/// What is read of where it listens, in bytes.
const LINES_MAX: u64 = 4096;
