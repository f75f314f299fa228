//! `canele lab`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::check::check_links;
use crate::daemon::{self, Change, Cut, Link, Way, Which};
use crate::error::LabError;
use crate::flow;
use crate::grid::Lab;
use crate::grid_file::grid_file;
use crate::probe;
use crate::spec::{self, Spec};

/// Command line of `canele lab`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Raise a lab, in place of one of the same name, and measure its links
    Up(Spec),
    /// Run a command on a node
    #[command(
        after_help = "mpiexec -launcher-exec \"canele lab run\" -hosts NODE,NODE... runs ranks on nodes"
    )]
    Run {
        #[command(flatten)]
        named: Named,
        /// Node, such as site0-node1
        node: String,
        /// Command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Print the lab as a grid file, for mpiexec -grid
    Grid(Named),
    /// Print nodes, links, and what each link has carried, lost or dropped
    Status {
        #[command(flatten)]
        named: Named,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change links between sites while they carry traffic
    Set {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        change: Change,
    },
    /// Cut off a site from all others, or a node from all others
    Cut {
        #[command(flatten)]
        named: Named,
        /// Site, such as 1, or node of a site, such as 1:0
        #[arg(value_name = "SITE[:NODE]", value_parser = target)]
        target: (u32, Option<u32>),
        /// Length of the cut, at most 3600s, such as 2s [default: until heal]
        #[arg(long = "for", value_parser = spec::span)]
        duration: Option<Duration>,
        /// Direction of the lost packets: in, out or both
        #[arg(long, default_value = "both", hide_possible_values = true)]
        direction: Way,
    },
    /// End all cuts
    Heal(Named),
    /// Run a competing TCP flow, and print its goodput
    Flow {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        flow: flow::Flow,
    },
    /// Take the lab down, with all its processes
    Down(Named),
    #[command(hide = true)]
    Daemon {
        #[arg(action = clap::ArgAction::Set)]
        carries: bool,
        spec: String,
        socket: PathBuf,
    },
    #[command(hide = true)]
    Sink,
    #[command(hide = true)]
    Source(flow::Source),
    #[command(hide = true)]
    Serve { address: String },
    #[command(hide = true)]
    Measure { address: String, rate: u64 },
}

#[derive(Debug, Args)]
struct Named {
    /// Name of the lab
    #[arg(long, env = "CANELE_LAB", default_value = "lab", value_parser = crate::spec::name)]
    name: String,
}

/// Runs `canele lab` with these arguments.
pub fn run(arguments: Arguments) -> ExitCode {
    let result = match arguments.word {
        Word::Up(spec) => up(&spec),
        Word::Run { named, node, command } => enter(&named.name, &node, &command),
        Word::Grid(named) => describe_grid(&named.name),
        Word::Status { named, json } => status(&named.name, json),
        Word::Set { named, which, change } => set(&named.name, which, change),
        Word::Cut { named, target, duration, direction } => {
            let cut = Cut { site: target.0, node: target.1, way: direction };
            with(&named.name, |lab| lab.cut(cut, duration).map(|_| ()))
        }
        Word::Heal(named) => with(&named.name, |lab| lab.heal().map(|_| ())),
        Word::Flow { named, flow } => find(&named.name).and_then(|lab| flow.run(&lab)),
        Word::Down(named) => down(&named.name),
        Word::Daemon { carries, spec, socket } => keep(carries, &spec, &socket),
        Word::Sink => flow::sink().map_err(text),
        Word::Source(source) => source.run().map_err(text),
        Word::Serve { address } => probe::serve(&address).map_err(text),
        Word::Measure { address, rate } => measure(&address, rate),
    };
    let unwritten = || UNWRITTEN.get().map_or(Ok(()), |text| Err(text.clone()));
    match result.and_then(|()| unwritten()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            let _ = writeln!(io::stderr(), "canele lab: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Notes a line that could not be written. A reader that has gone, such as `head`, is no error.
pub(crate) fn note_written(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // The first one is told.
        let _ = UNWRITTEN.set(format!("standard output cannot be written: {error}"));
    }
}

/// Text about the first line that could not be written.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

fn up(spec: &Spec) -> Result<(), String> {
    let lab = Lab::up(spec).map_err(text)?;
    write_line!(
        "lab `{}`: {} sites of {} nodes; delay by {}",
        spec.name,
        spec.sites,
        spec.nodes,
        lab.delay_by
    );
    list(&lab);
    match check_links(&lab) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the lab is up, but not as asked: see above".into()),
        Err(error) => Err(format!("the lab is up, but could not be measured: {error}")),
    }
}

/// Prints the nodes and their addresses.
fn list(lab: &Lab) {
    for node in &lab.nodes {
        let addresses: Vec<&str> = node.addresses().collect();
        write_line!("  {}  {}", node.host, addresses.join("  "));
    }
}

fn find(name: &str) -> Result<Lab, String> {
    Lab::find(name).map_err(text)
}

fn with(name: &str, act: impl FnOnce(&Lab) -> Result<(), LabError>) -> Result<(), String> {
    act(&find(name)?).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn enter(lab: &str, node: &str, command: &[OsString]) -> Result<(), String> {
    let error = find(lab)?.command(node, command).map_err(text)?.exec();
    Err(format!("nsenter: {error}"))
}

/// Prints the file that `mpiexec -grid` reads.
fn describe_grid(name: &str) -> Result<(), String> {
    let lab = find(name)?;
    let own = std::env::current_exe().map_err(text)?;
    let command = format!("{} lab run --name {name}", own.display());
    write_line!("{}", grid_file(&lab.spec, &command).trim_end());
    Ok(())
}

/// Output of `status --json`.
#[derive(serde::Serialize)]
struct Status<'a> {
    name: &'a str,
    is_up: bool,
    delay_by: &'a str,
    spec: &'a Spec,
    nodes: Vec<Host<'a>>,
    /// Links; empty if the kernel makes them.
    links: Vec<Link>,
}

#[derive(serde::Serialize)]
struct Host<'a> {
    host: &'a str,
    site: u32,
    addresses: Vec<&'a str>,
}

fn status(lab: &str, json: bool) -> Result<(), String> {
    let lab = find(lab)?;
    let is_up = lab.is_whole();
    let links = if is_up { lab.links().map_err(text)? } else { Vec::new() };
    if json {
        let of = |node: &crate::grid::Node| node.site;
        let nodes = lab.nodes.iter().map(|node| Host {
            host: &node.host,
            site: of(node),
            addresses: node.addresses().collect(),
        });
        let (name, spec, delay_by) = (&lab.spec.name, &lab.spec, &lab.delay_by);
        let status = Status { name, is_up, delay_by, spec, nodes: nodes.collect(), links };
        write_line!("{}", serde_json::to_string_pretty(&status).map_err(text)?);
        return Ok(());
    }
    let state = if is_up { "up" } else { "broken: take it down and up again" };
    write_line!("lab `{}` is {state}", lab.spec.name);
    list(&lab);
    links.iter().for_each(|link| write_line!("  {}", describe(link)));
    Ok(())
}

/// Formats a link in a line: its conditions, and its counters.
fn describe(link: &Link) -> String {
    let (conditions, counts) = (link.conditions, link.counts);
    let mut words = vec![
        format!("site{} to site{}:", link.from, link.to),
        format!("{:.3} ms,", conditions.delay.as_secs_f64() * 1e3),
        format!("{} Mb/s,", conditions.rate_bits_per_s as f64 / 1e6),
    ];
    let mut add = |is_so: bool, text: String| words.extend(is_so.then_some(text));
    let percent = |share: f64| format!("{:.4}", share * 100.0);
    let percent = |share| percent(share).trim_end_matches('0').trim_end_matches('.').to_owned();
    add(conditions.loss > 0.0, format!("loses {} %,", percent(conditions.loss)));
    add(conditions.duplicate > 0.0, format!("doubles {} %,", percent(conditions.duplicate)));
    add(conditions.reorder > 0.0, format!("holds back {} %,", percent(conditions.reorder)));
    add(conditions.mtu_bytes != 1500, format!("MTU {},", conditions.mtu_bytes));
    add(conditions.is_udp_forbidden, "no UDP,".into());
    add(conditions.is_tcp_forbidden, "no TCP,".into());
    add(link.is_cut, "cut,".into());
    add(true, format!("carried {} packets, {} bytes", counts.packets, counts.bytes));
    for (count, what) in [
        (counts.lost, "lost"),
        (counts.overflowed, "dropped by the buffer"),
        (counts.cut_off, "cut off"),
        (counts.forbidden, "forbidden"),
        (counts.duplicated, "doubled"),
        (counts.reordered, "held back"),
    ] {
        add(count > 0, format!("; {count} {what}"));
    }
    words.join(" ").replace(" ;", ";")
}

fn set(lab: &str, which: Which, change: Change) -> Result<(), String> {
    if change == Change::default() {
        return Err("nothing to change: name a condition, such as --loss 0.1%".into());
    }
    let links = find(lab)?.set(which, change).map_err(text)?;
    links.iter().for_each(|link| write_line!("{}", describe(link)));
    Ok(())
}

/// Reads `1` or `1:0`.
fn target(word: &str) -> Result<(u32, Option<u32>), String> {
    let (site, node) = match word.split_once(':') {
        Some((site, node)) => (site, Some(node)),
        None => (word, None),
    };
    let number = |digits: &str| digits.parse().map_err(|_| "not like 1 or 1:0".to_owned());
    Ok((number(site)?, node.map(number).transpose()?))
}

fn keep(carries: bool, spec: &str, socket: &std::path::Path) -> Result<(), String> {
    let spec = serde_json::from_str(spec).map_err(text)?;
    daemon::serve(&spec, carries, socket).map_err(text)
}

fn down(lab: &str) -> Result<(), String> {
    match Lab::find(lab) {
        Ok(lab) => lab.down().map_err(|error| error.to_string()),
        Err(LabError::Missing(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn measure(address: &str, rate: u64) -> Result<(), String> {
    let (rtt, goodput) = probe::measure(address, rate).map_err(|error| error.to_string())?;
    write_line!("{} {goodput}", rtt.as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Wrapped {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_command_line_is_sound() {
        Wrapped::command().debug_assert();
        for line in [
            "up --sites 3 --pair 0-2=40ms --private 1",
            "set --loss 0.1% --udp-forbidden --from 0",
            "set --udp-forbidden=false --mtu 1280",
            "cut 1 --for 2s",
            "cut 1:0 --direction in",
            "heal",
            "flow --for 30s --congestion bbr",
            "status --json",
            "daemon true {} /tmp/socket",
            "source 10.0.0.1:7 2.5 cubic",
        ] {
            let words = std::iter::once("lab").chain(line.split_whitespace());
            assert!(Wrapped::try_parse_from(words).is_ok(), "{line}");
        }
        for line in
            ["cut x", "cut 1:y", "cut 1 --for ever", "set --mtu 9000", "flow --congestion z"]
        {
            let words = std::iter::once("lab").chain(line.split_whitespace());
            let text = Wrapped::try_parse_from(words).unwrap_err().to_string();
            let word = line.split_whitespace().last().unwrap();
            assert!(text.lines().next().unwrap().contains(word), "{text}");
        }
    }

    #[test]
    fn a_link_is_described_by_what_is_not_as_usual() {
        let conditions = Spec::default().conditions(0, 1);
        let counts = crate::wire::Counts { packets: 3, bytes: 4500, lost: 2, ..Default::default() };
        let link = Link { from: 0, to: 1, conditions, is_cut: false, counts };
        let good = "site0 to site1: 5.800 ms, 1000 Mb/s, carried 3 packets, 4500 bytes; 2 lost";
        assert_eq!(describe(&link), good);
        let conditions = crate::wire::Conditions { loss: 0.001, mtu_bytes: 1280, ..conditions };
        let bad = describe(&Link { conditions, is_cut: true, ..link });
        assert!(bad.contains("loses 0.1 %, MTU 1280, cut, carried"), "{bad}");
    }
}
