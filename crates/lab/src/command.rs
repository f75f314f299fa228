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
    Serve { address: String },
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
        Word::Serve { address } => check::serve(&address).map_err(|error| error.to_string()),
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
    list(&lab);
    match check_links(&lab) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the lab is up, but not as asked: see above".into()),
        Err(error) => Err(format!("the lab is up, but could not be measured: {error}")),
    }
}

/// What is measured together, and what it should be.
struct Measurement {
    name: String,
    from: String,
    to: String,
    /// Where the server listens; several are sent to at once.
    addresses: Vec<String>,
    /// None where links disturb one another.
    rtt: Option<Duration>,
    rate: u64,
}

/// What a lab's check measures: each LAN of a site, all of them at once, and the way to another site.
fn measurements(lab: &Lab) -> Vec<Measurement> {
    let spec = &lab.spec;
    let mut all = Vec::new();
    let (from, neighbour) = (spec.host(0, 0), spec.host(0, 1));
    let mut add = |name: String, to: &str, addresses, rtt, rate| {
        all.push(Measurement { name, from: from.clone(), to: to.into(), addresses, rtt, rate });
    };
    if spec.nodes > 1 {
        let addresses: Vec<String> = (0..spec.nics).map(|nic| spec.address(0, 1, nic)).collect();
        for (nic, address) in addresses.iter().enumerate() {
            let name = if nic == 0 { "in a site".into() } else { format!("by eth{nic}") };
            add(name, &neighbour, vec![address.clone()], Some(Duration::ZERO), spec.lan_rate);
        }
        if spec.nics > 1 {
            let rate = spec.lan_rate * u64::from(spec.nics);
            add("by all".into(), &neighbour, addresses, None, rate);
        }
    }
    if spec.sites > 1 {
        let rate = spec.wan_rate.min(spec.lan_rate);
        let addresses = vec![spec.address(1, 0, 0)];
        add("wide area".into(), &spec.host(1, 0), addresses, Some(spec.rtt), rate);
    }
    all
}

/// Measures and prints; whether all lies within five per cent.
fn check_links(lab: &Lab) -> Result<bool, String> {
    println!("  link       round trip asked / measured      goodput possible / measured");
    let mut good = true;
    for one in measurements(lab) {
        let possible = one.rate as f64 * GOODPUT;
        let is_rtt_good = |found| one.rtt.is_none_or(|asked| is_rtt_good(found, asked));
        let (mut found, mut goodput) = probe(lab, &one)?;
        // A machine with other work delays packets: what counts is what the link can do.
        for _ in 1..PROBES {
            if is_rtt_good(found) && is_rate_good(goodput, possible) {
                break;
            }
            let (again, rate) = probe(lab, &one)?;
            found = found.min(again);
            goodput = goodput.max(rate);
        }
        let rate_good = is_rate_good(goodput, possible);
        good &= is_rtt_good(found) && rate_good;
        let verdict = |good| if good { "ok" } else { "OFF" };
        let round_trip = one.rtt.map_or_else(String::new, |asked| {
            let (asked_ms, found_ms) = (asked.as_secs_f64() * 1e3, found.as_secs_f64() * 1e3);
            format!("{asked_ms:9.3} ms / {found_ms:.3} ms {}", verdict(is_rtt_good(found)))
        });
        println!(
            "  {:9}  {round_trip:27}     {:.0} Mb/s / {:.0} Mb/s {}",
            one.name,
            possible / 1e6,
            goodput / 1e6,
            verdict(rate_good),
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

/// The longest round trip and the sum of the goodputs, over all of the server's addresses at once.
fn probe(lab: &Lab, one: &Measurement) -> Result<(Duration, f64), String> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = |address| scope.spawn(move || probe_one(lab, &one.from, &one.to, address));
        let probes: Vec<_> = one.addresses.iter().map(String::as_str).map(start).collect();
        let failed = |_| Err("the measurement has panicked".into());
        probes.into_iter().map(|probe| probe.join().unwrap_or_else(failed)).collect()
    });
    results.into_iter().try_fold((Duration::ZERO, 0.0), |(rtt, goodput), result| {
        let (this_rtt, this_goodput) = result?;
        Ok((this_rtt.max(rtt), goodput + this_goodput))
    })
}

fn probe_one(lab: &Lab, from: &str, to: &str, address: &str) -> Result<(Duration, f64), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?.display().to_string();
    let words = |what: &str| [&own, "lab", what, address].map(str::to_owned);
    let text = |error: LabError| error.to_string();
    let mut server = lab.command(to, &words("serve")).map_err(text)?;
    let mut server = server.stdin(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let output = lab.command(from, &words("measure")).map_err(text)?.output();
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

/// Prints the nodes and their addresses.
fn list(lab: &Lab) {
    for node in &lab.nodes {
        let addresses: Vec<&str> = node.addresses().collect();
        println!("  {}  {}", node.host, addresses.join("  "));
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
    list(&lab);
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
