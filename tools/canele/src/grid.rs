//! `canele grid`: finds sites by measuring round trips between hosts.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use launch::{Discovery, Options};

use crate::units::time;

/// Options of `canele grid`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Hosts, such as a,b:2,c; numbers of ranks are written to the file
    #[arg(long, value_name = "A,B:2,…")]
    hosts: String,
    /// Start agents by the command CMD HOST AGENT [default: ssh]
    #[arg(long, value_name = "CMD")]
    launcher_exec: Option<String>,
    /// Write the grid file, for mpiexec -grid
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match find(arguments) {
        Ok(text) => {
            // A reader may close the pipe early.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let _ = writeln!(io::stderr(), "canele grid: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn find(arguments: &Arguments) -> Result<String, String> {
    let options = Options::of_hosts(&arguments.hosts, arguments.launcher_exec.as_deref());
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
    use super::*;

    #[test]
    fn missing_measurements_are_printed() {
        assert_eq!(span(&[Some(60), Some(1_500)]), "60.0 µs … 1.5 ms");
        assert_eq!(span(&[Some(60), None]), "60.0 µs, 1 of 2 pairs without a way");
        assert_eq!(span(&[None]), "no way from host to host");
    }
}
