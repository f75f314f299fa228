//! `canele grid`: finds sites by measuring round trips between hosts. The word `status` asks the hosts of a grid file.

mod status;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use launch::{Discovery, Options};

use crate::print::print;
use crate::units::time;

/// Options of `canele grid`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    word: Option<GridCommand>,
    /// Hosts, such as a,b:2,c; numbers of ranks are written to the file
    #[arg(long, value_name = "A,B:2,…", required = true)]
    hosts: Option<String>,
    /// Start agents by the command CMD HOST AGENT [default: ssh]
    #[arg(long, value_name = "CMD")]
    launcher_exec: Option<String>,
    /// Write the grid file, for mpiexec -grid
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum GridCommand {
    /// Ask the hosts of a grid file what they have, and print which do not answer
    Status(status::StatusArguments),
}

pub fn run(arguments: &Arguments) -> ExitCode {
    if let Some(GridCommand::Status(arguments)) = &arguments.word {
        return status::run(arguments);
    }
    match find(arguments) {
        Ok(text) => print(&text),
        Err(reason) => {
            let _ = writeln!(io::stderr(), "canele grid: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn find(arguments: &Arguments) -> Result<String, String> {
    let hosts = arguments.hosts.as_deref().unwrap_or_default();
    let options = Options::of_hosts(hosts, arguments.launcher_exec.as_deref());
    let discovery = Discovery::between(&options.map_err(|error| error.to_string())?)?;
    let mut text = report(&discovery);
    if let Some(path) = &arguments.save {
        let written = std::fs::write(path, discovery.grid.text());
        written.map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
        text += &format!("\nwritten to {}\n", path.display());
    }
    Ok(text)
}

/// Formats the sites with their hosts, and the round trips within and between them.
fn report(discovery: &Discovery) -> String {
    let near = time(discovery.near_us.saturating_mul(1000));
    let mut text = format!("round trips up to {near} are within a site\n\n");
    let sites = &discovery.grid.sites;
    for site in sites {
        let hosts: Vec<&str> = site.hosts.iter().map(|host| host.name.as_str()).collect();
        text += &format!("{}  {}\n", site.name, hosts.join("  "));
    }
    text.push('\n');
    for (at, one) in sites.iter().enumerate() {
        for other in &sites[at..] {
            let times = discovery.between_sites(one, other);
            let names = match one.name == other.name {
                true => one.name.clone(),
                false => format!("{} – {}", one.name, other.name),
            };
            if !times.is_empty() {
                text += &format!("{names:<16}  {}\n", span(&times));
            }
        }
    }
    text
}

/// Formats the range of the round trips in microseconds.
fn span(times: &[Option<u64>]) -> String {
    let known = times.iter().flatten().map(|us| us.saturating_mul(1000));
    let text = match (known.clone().min(), known.clone().max()) {
        (Some(least), Some(most)) if least == most => time(least),
        (Some(least), Some(most)) => format!("{} … {}", time(least), time(most)),
        (None, _) | (_, None) => return "no way from host to host".into(),
    };
    match times.len() - known.count() {
        0 => text,
        missed => format!("{text}, {missed} of {} pairs without a way", times.len()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use lab::Spec;

    use super::*;

    /// Values of each option of `canele lab up`.
    fn values(option: &str) -> &'static [&'static str] {
        match option {
            "name" => &["x"],
            "sites" => &["1", "2", "8"],
            "nodes" => &["1", "32"],
            "nics" => &["1", "4"],
            "rtt" => &["0.1ms", "300ms"],
            "wan_rate" | "lan_rate" => &["1Mbit", "1Gbit"],
            "wan_buffer" | "socket_max" => &["64kB"],
            "wan_loss" => &["1%"],
            "pairs" => &["0-1=40ms"],
            "private_sites" => &["0", "1"],
            "speeds" => &["0.1"],
            "seed" => &["7"],
            _ => panic!("--{option} of `canele lab up` has no values here"),
        }
    }

    /// Returns the lab that a command line describes, if there is one.
    fn lab_of(words: &[String]) -> Option<Spec> {
        let up = Spec::augment_args(clap::Command::new("up"));
        let matches = up.try_get_matches_from(words).expect("the values are sound");
        let spec = Spec::from_arg_matches(&matches).expect("the values are sound");
        spec.check().is_ok().then_some(spec)
    }

    #[test]
    fn grid_files_of_all_labs_are_read() {
        let up = Spec::augment_args(clap::Command::new("up"));
        let ids = up.get_arguments().map(|option| option.get_id().to_string());
        let names = up.get_arguments().filter_map(clap::Arg::get_long);
        let options: Vec<_> = names.zip(ids).collect();
        let settings = || {
            let all = options
                .iter()
                .flat_map(|(long, id)| values(id).iter().map(move |value| (long, value)));
            all.map(|(long, value)| vec![format!("--{long}"), (*value).to_owned()])
        };
        let mut count = 0;
        // Every option with every other one, twice where it may be repeated.
        for (one, other) in
            settings().flat_map(|one| settings().map(move |other| (one.clone(), other)))
        {
            if one[0] == other[0] && !["--pair", "--private"].contains(&one[0].as_str()) {
                continue;
            }
            let words = [vec!["up".to_owned()], one, other].concat();
            let Some(spec) = lab_of(&words) else { continue };
            let text = lab::grid_file(&spec, "canele lab run --name x");
            let grid = launch::Grid::parse(&text, "lab")
                .unwrap_or_else(|error| panic!("{words:?}: {error}\n{text}"));
            let hosts: usize = grid.sites.iter().map(|site| site.hosts.len()).sum();
            assert_eq!(hosts as u32, spec.sites * spec.nodes, "{words:?}");
            let gateways = grid.sites.iter().filter(|site| !site.gateways.is_empty()).count();
            let mut private = spec.private_sites.clone();
            private.dedup();
            assert_eq!(gateways, if spec.sites > 1 { private.len() } else { 0 }, "{words:?}");
            count += 1;
        }
        assert!(count > 100, "{count} labs");
    }

    #[test]
    fn missing_measurements_are_printed() {
        assert_eq!(span(&[Some(60), Some(1_500)]), "60.0 µs … 1.5 ms");
        assert_eq!(span(&[Some(60), None]), "60.0 µs, 1 of 2 pairs without a way");
        assert_eq!(span(&[None]), "no way from host to host");
    }
}
