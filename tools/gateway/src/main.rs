//! The gateway's command.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cpu::Thread;
use gateway::{Config, Gateway, Options, Pass};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use zeroize::Zeroizing;

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "canele-gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let pass = read_pass()?;
    // The gateway computes next to nothing. Busy ranks on this host would delay the connections it relays, so
    // its thread is given precedence. Without the permission it runs as any other.
    let _ = Thread::current().map(Thread::precede);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let gateway = Gateway::open(Config {
            listen: options.listen.clone(),
            hosts: options.allow.clone(),
            gateways: options.gateways.clone(),
            is_transit: options.transit,
            pass,
            between: options.between,
        });
        let gateway = gateway.await?;
        let account = gateway.account();
        for address in gateway.addresses() {
            // The address is for a person, who may have closed the terminal.
            let _ = writeln!(std::io::stdout(), "{address}");
        }
        serve(account, gateway, &options).await?;
        Ok(())
    })
}

/// Serves until a signal or the end of standard input. Prints an account if a signal asks for one or ends the
/// process.
async fn serve(
    account: impl Fn() -> String,
    gateway: Gateway,
    options: &Options,
) -> io::Result<()> {
    let name = gateway.addresses().first().map_or_else(String::new, SocketAddr::to_string);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut account_requested = signal(SignalKind::user_defined1())?;
    let mut end_of_input = if options.until_eof { watch_input() } else { None };
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = account_requested.recv() => drop(write!(io::stderr(), "{}", account())),
                // A closed standard output is no error: nobody reads it any more.
                _ = heartbeat.tick(), if options.beat => drop(writeln!(io::stdout())),
                () = ended(&mut end_of_input) => {
                    if options.account {
                        let _ = write!(io::stderr(), "canele-gateway at {name}:\n{}", account());
                    }
                    return;
                }
            }
        }
        let _ = write!(io::stderr(), "{}", account());
    };
    gateway.serve(end).await;
    Ok(())
}

/// Returns a receiver that completes at the end of standard input.
fn watch_input() -> Option<oneshot::Receiver<()>> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut sink = [0; 64];
        while matches!(io::stdin().lock().read(&mut sink), Ok(1..)) {}
        // The receiver is gone if the gateway has ended for another reason.
        let _ = sender.send(());
    });
    Some(receiver)
}

async fn ended(input: &mut Option<oneshot::Receiver<()>>) {
    match input {
        Some(receiver) => drop(receiver.await),
        None => std::future::pending().await,
    }
}

/// Reads the pass from the first line of standard input. What follows has no meaning.
fn read_pass() -> Result<Pass, Box<dyn std::error::Error>> {
    // The buffer of `io::stdin` would keep what it has read.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mut line, mut filled) = (Zeroizing::new([0; LINE_MAX]), 0);
    while filled < LINE_MAX && !line[..filled].contains(&b'\n') {
        match input.read(&mut line[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    let line = line[..filled].split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(Pass::parse(str::from_utf8(line).unwrap_or_default())?)
}

/// Interval between the empty lines of `--beat`.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Length of a line: a pass has 81 bytes, and the line end up to 2.
const LINE_MAX: usize = 83;
