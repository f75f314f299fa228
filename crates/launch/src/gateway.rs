//! The gateways beside an agent: started for the job, and again when they end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::agent::{Out, tell};
use crate::channel::{GatewayStart, Kind, Lost, Message};
use crate::system;

/// Starts a gateway, and looks after it for as long as this agent lives.
pub(crate) fn start(gateway: &GatewayStart, out: &Out) {
    let (theirs, out_of_thread) = (gateway.clone(), out.clone());
    if let Err(error) = system::start_thread(move || tend(&theirs, &out_of_thread)) {
        lose(gateway, &format!("cannot have a thread: {error}"), out);
    }
}

fn tend(gateway: &GatewayStart, out: &Out) {
    let mut has_served = false;
    for _ in 0..STARTS_MAX {
        let reason = match serve(gateway, has_served, out) {
            Ok((serves, how)) => {
                has_served |= serves;
                how
            }
            Err(error) => format!("cannot be started: {error}"),
        };
        if !has_served {
            return lose(gateway, &reason, out);
        }
        eprintln!("canele-agent: {} {reason}; starting it again", gateway.name);
        thread::sleep(PAUSE);
    }
    eprintln!("canele-agent: {} ended {STARTS_MAX} times, and is left alone", gateway.name);
}

/// A gateway's life: whether it has served, and how it ended.
fn serve(gateway: &GatewayStart, has_served: bool, out: &Out) -> io::Result<(bool, String)> {
    let program = std::env::current_exe()?.with_file_name("canele-gateway");
    let mut command = Command::new(&program);
    command.args(&gateway.arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    system::own_group(&mut command);
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
    let mut process = command.spawn().map_err(named)?;
    let serves = greet(&mut process, gateway)?;
    if serves && !has_served {
        tell(out, &Message::new(Kind::Serving, 0, gateway.name.as_bytes()));
    }
    let status = process.wait()?;
    Ok((serves, format!("has ended ({status})")))
}

/// Gives a gateway its pass, which stands on no command line; whether it says where it listens.
fn greet(process: &mut Child, gateway: &GatewayStart) -> io::Result<bool> {
    let (Some(mut input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
        return Ok(false);
    };
    // One that has ended at once says why, and how is told by its end.
    let _ = writeln!(input, "{}", gateway.pass.0);
    let mut lines = BufReader::new(output).take(LINE_MAX);
    let mut line = String::new();
    Ok(lines.read_line(&mut line)? > 0)
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
/// What is read of where it listens.
const LINE_MAX: u64 = 4096;
