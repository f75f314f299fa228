//! `canele lab`.

use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use crate::check;
use crate::grid::{Lab, LabError};
use crate::link::{self, Wire};
use crate::spec::Spec;

/// What `canele lab` is.
pub const HELP: &str = "\
canele lab up [--sites 2] [--nodes 2] [--rtt 11.6ms] [--wan-rate 1Gbit] [--lan-rate 1Gbit]
              [--wan-buffer 2MB] [--wan-loss 0] [--name lab]     raise a grid and measure it
canele lab run NODE command...                                   run a command on a node
canele lab status                                                what is up
canele lab down                                                  take it down, and all that runs there
    CANELE_LAB names the lab for run, status and down (lab);
    mpiexec -launcher-exec \"canele lab run\" -hosts NODE,NODE... runs ranks on its nodes
";

/// Runs `canele lab` with these arguments.
pub fn run(arguments: &[String]) -> ExitCode {
    let result = match arguments.split_first() {
        Some((word, rest)) => match word.as_str() {
            "up" => up(rest),
            "run" => enter(rest),
            "status" => status(),
            "down" => down(),
            "link" => carry(rest),
            "serve" => check::serve().map_err(|error| error.to_string()),
            "measure" => measure(rest),
            _ => Err(format!("no command `{word}`\n{HELP}")),
        },
        None => Err(HELP.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("canele lab: {text}");
            ExitCode::FAILURE
        }
    }
}

fn up(arguments: &[String]) -> Result<(), String> {
    let spec = Spec::parse(arguments).map_err(|error| error.to_string())?;
    let lab = Lab::up(&spec).map_err(|error| error.to_string())?;
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

fn enter(arguments: &[String]) -> Result<(), String> {
    let (host, words) = arguments.split_first().ok_or("run needs a node and a command")?;
    let words = match words.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => words,
    };
    if words.is_empty() {
        return Err("run needs a command".into());
    }
    let lab = Lab::find(&name()).map_err(|error| error.to_string())?;
    let error = lab.command(host, words).map_err(|error| error.to_string())?.exec();
    Err(format!("nsenter: {error}"))
}

fn status() -> Result<(), String> {
    let lab = Lab::find(&name()).map_err(|error| error.to_string())?;
    let state = if lab.is_whole() { "up" } else { "broken: take it down and up again" };
    println!("lab `{}` is {state}", lab.spec.name);
    for node in &lab.nodes {
        println!("  {}  {}", node.host, node.address);
    }
    Ok(())
}

fn down() -> Result<(), String> {
    match Lab::find(&name()) {
        Ok(lab) => lab.down().map_err(|error| error.to_string()),
        Err(LabError::Missing(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The process of the links, one thread each: number, rate, delay, buffer, loss.
fn carry(arguments: &[String]) -> Result<(), String> {
    let number = |index: usize| -> Result<f64, String> {
        let text = arguments.get(index).ok_or("link needs five numbers")?;
        text.parse().map_err(|_| format!("link: `{text}` is no number"))
    };
    let (rate, delay) = (number(1)? as u64, Duration::from_nanos(number(2)? as u64));
    let (buffer, loss) = (number(3)? as u64, number(4)?);
    let threads: Vec<_> = (0..number(0)? as u16)
        .map(|queue| {
            let wire = Wire::new(rate, delay, buffer, loss, 0x9e37_79b9 + u64::from(queue));
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

fn measure(arguments: &[String]) -> Result<(), String> {
    let address = arguments.first().ok_or("measure needs an address")?;
    let (rtt, goodput) = check::measure(address).map_err(|error| error.to_string())?;
    println!("{} {goodput}", rtt.as_secs_f64());
    Ok(())
}

fn name() -> String {
    std::env::var("CANELE_LAB").unwrap_or_else(|_| "lab".into())
}

/// Of a rate on Ethernet with packets of 1500 bytes, what TCP can carry.
const GOODPUT: f64 = 0.941;
/// How far off a link may be.
const TOLERANCE: f64 = 0.05;
/// What a round trip may take without any delay asked for.
const RTT_FLOOR: Duration = Duration::from_micros(200);
/// A link that is off is measured so many times.
const PROBES: usize = 3;
