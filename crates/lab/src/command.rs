//! `canele lab`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::check;
use crate::grid::{Lab, LabError};
use crate::link::{self, Wire};
use crate::spec::Spec;

/// `canele lab` and its words.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Raise a grid, in place of one of the same name, and measure it
    Up(Spec),
    /// Run a command on a node
    #[command(
        after_help = "mpiexec -launcher-exec \"canele lab run\" -hosts NODE,NODE... runs ranks on nodes"
    )]
    Run {
        #[command(flatten)]
        which: Which,
        /// The node, such as site0-node1
        node: String,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Say what is up
    Status(Which),
    /// Take the grid down, and all that runs there
    Down(Which),
    #[command(hide = true)]
    Link { links: u16, rate: u64, delay_ns: u64, buffer: u64, loss: f64 },
    #[command(hide = true)]
    Serve,
    #[command(hide = true)]
    Measure { address: String },
}

#[derive(Debug, Args)]
struct Which {
    /// The lab's name
    #[arg(long, env = "CANELE_LAB", default_value = "lab", value_parser = crate::spec::name)]
    name: String,
}

/// Runs `canele lab` with these arguments.
pub fn run(arguments: Arguments) -> ExitCode {
    let result = match arguments.word {
        Word::Up(spec) => up(&spec),
        Word::Run { which, node, command } => enter(&which.name, &node, &command),
        Word::Status(which) => status(&which.name),
        Word::Down(which) => down(&which.name),
        Word::Link { links, rate, delay_ns, buffer, loss } => {
            let delay = Duration::from_nanos(delay_ns);
            carry(links, |seed| Wire::new(rate, delay, buffer, loss, seed))
        }
        Word::Serve => check::serve().map_err(|error| error.to_string()),
        Word::Measure { address } => measure(&address),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("canele lab: {text}");
            ExitCode::FAILURE
        }
    }
}

fn up(spec: &Spec) -> Result<(), String> {
    let lab = Lab::up(spec).map_err(|error| error.to_string())?;
    println!(
        "lab `{}`: {} sites of {} nodes; delay by {}",
        spec.name, spec.sites, spec.nodes, lab.delay_by
    );
    for node in &lab.nodes {
        println!("  {}  {}", node.host, node.address);
    }
    match check_links(&lab) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the lab is up, but not as asked: see above".into()),
        Err(error) => Err(format!("the lab is up, but could not be measured: {error}")),
    }
}

/// Measures and prints; whether all lies within five per cent.
fn check_links(lab: &Lab) -> Result<bool, String> {
    println!("  link       round trip asked / measured      goodput possible / measured");
    let spec = &lab.spec;
    let mut good = true;
    let mut pairs = Vec::new();
    if spec.nodes > 1 {
        pairs.push(("in a site", spec.host(0, 0), spec.host(0, 1), Duration::ZERO, spec.lan_rate));
    }
    if spec.sites > 1 {
        let rate = spec.wan_rate.min(spec.lan_rate);
        pairs.push(("wide area", spec.host(0, 0), spec.host(1, 0), spec.rtt, rate));
    }
    for (name, from, to, rtt, rate) in pairs {
        let possible = rate as f64 * GOODPUT;
        let (mut found, mut goodput) = probe(lab, &from, &to)?;
        // A machine with other work delays packets: what counts is what the link can do.
        for _ in 1..PROBES {
            if is_rtt_good(found, rtt) && is_rate_good(goodput, possible) {
                break;
            }
            let (again, rate) = probe(lab, &from, &to)?;
            found = found.min(again);
            goodput = goodput.max(rate);
        }
        let (rtt_good, rate_good) = (is_rtt_good(found, rtt), is_rate_good(goodput, possible));
        good &= rtt_good && rate_good;
        println!(
            "  {name:9}  {:9.3} ms / {:.3} ms {}     {:.0} Mb/s / {:.0} Mb/s {}",
            rtt.as_secs_f64() * 1e3,
            found.as_secs_f64() * 1e3,
            if rtt_good { "ok" } else { "OFF" },
            possible / 1e6,
            goodput / 1e6,
            if rate_good { "ok" } else { "OFF" },
        );
    }
    Ok(good)
}

fn is_rtt_good(found: Duration, asked: Duration) -> bool {
    found.abs_diff(asked) <= asked.mul_f64(TOLERANCE).max(RTT_FLOOR)
}

fn is_rate_good(found: f64, possible: f64) -> bool {
    (found - possible).abs() <= possible * TOLERANCE
}

fn probe(lab: &Lab, from: &str, to: &str) -> Result<(Duration, f64), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?.display().to_string();
    let words = |what: &[&str]| -> Vec<String> {
        [own.as_str(), "lab"].iter().chain(what).map(|word| (*word).to_owned()).collect()
    };
    let text = |error: LabError| error.to_string();
    let mut server = lab.command(to, &words(&["serve"])).map_err(text)?;
    let mut server = server.stdin(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let node = lab.nodes.iter().find(|node| node.host == to);
    let address = node.map_or("", |node| node.address.as_str());
    let output = lab.command(from, &words(&["measure", address])).map_err(text)?.output();
    // It has answered its only client, or never will.
    let _ = server.kill();
    let _ = server.wait();
    let output = output.map_err(|error| error.to_string())?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(seconds), Some(rate)) => Ok((Duration::from_secs_f64(seconds), rate)),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn enter(lab: &str, node: &str, command: &[OsString]) -> Result<(), String> {
    let lab = Lab::find(lab).map_err(|error| error.to_string())?;
    let error = lab.command(node, command).map_err(|error| error.to_string())?.exec();
    Err(format!("nsenter: {error}"))
}

fn status(lab: &str) -> Result<(), String> {
    let lab = Lab::find(lab).map_err(|error| error.to_string())?;
    let state = if lab.is_whole() { "up" } else { "broken: take it down and up again" };
    println!("lab `{}` is {state}", lab.spec.name);
    for node in &lab.nodes {
        println!("  {}  {}", node.host, node.address);
    }
    Ok(())
}

fn down(lab: &str) -> Result<(), String> {
    match Lab::find(lab) {
        Ok(lab) => lab.down().map_err(|error| error.to_string()),
        Err(LabError::Missing(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The process of the links, one thread each.
fn carry(links: u16, wire: impl Fn(u64) -> Wire) -> Result<(), String> {
    let threads: Vec<_> = (0..links)
        .map(|queue| {
            let wire = wire(SEED + u64::from(queue));
            std::thread::spawn(move || link::carry(queue, wire))
        })
        .collect();
    for thread in threads {
        if let Ok(Err(error)) = thread.join() {
            return Err(format!("packets cannot be queued to user space: {error}"));
        }
    }
    Ok(())
}

fn measure(address: &str) -> Result<(), String> {
    let (rtt, goodput) = check::measure(address).map_err(|error| error.to_string())?;
    println!("{} {goodput}", rtt.as_secs_f64());
    Ok(())
}

/// Where the numbers that decide of losses begin.
const SEED: u64 = 0x9e37_79b9;
/// Of a rate on Ethernet with packets of 1500 bytes, what TCP can carry.
const GOODPUT: f64 = 0.941;
/// How far off a link may be.
const TOLERANCE: f64 = 0.05;
/// What a round trip may take without any delay asked for.
const RTT_FLOOR: Duration = Duration::from_micros(200);
/// A link that is off is measured so many times.
const PROBES: usize = 3;
