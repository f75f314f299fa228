//! `canele grid status`: the hosts of a grid file, which of them answer, and what they have.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use launch::{Grid, GridHost, HostState, TransitRoute};
use serde_json::{Value, json};

use crate::print::print;

/// Arguments of `canele grid status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    /// The grid file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Seconds after which a host counts as unreachable, from 1 to 3600
    #[arg(long, value_name = "S", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

pub(super) fn run(arguments: &StatusArguments) -> ExitCode {
    let grid = Grid::read(&arguments.file).map_err(|error| error.to_string());
    let asked = grid.and_then(|grid| {
        let hosts = launch::grid_status(&grid, arguments.timeout)?;
        Ok((grid, hosts))
    });
    match asked {
        Ok((grid, hosts)) => {
            let routes = grid.transit_routes();
            let text = match arguments.json {
                true => json_text(&hosts, &routes),
                false => format!("{}{}", table(&hosts), lines(&routes)),
            };
            let printed = print(&text);
            match hosts.iter().all(|host| host.state.is_ok()) {
                true => printed,
                false => ExitCode::FAILURE,
            }
        }
        Err(reason) => {
            let _ = writeln!(io::stderr(), "canele grid status: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Returns a line for each host. Lines with reasons follow.
fn table(hosts: &[GridHost]) -> String {
    let head = ["host", "site", "load", "cores", "memory free", "Canele", "gateway or Slurm"];
    let head = head.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(hosts.iter().map(row)).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let mut line = cells.collect::<Vec<_>>().join("  ");
        if let Some(Err(reason)) = number.checked_sub(1).map(|at| &hosts[at].state) {
            line = format!("{line}  no answer: {reason}");
        }
        text += line.trim_end();
        text.push('\n');
    }
    let missing = hosts.iter().filter(|host| host.state.is_err()).count();
    if missing > 0 {
        let verb = if missing == 1 { "does" } else { "do" };
        text += &format!("{missing} of {} hosts {verb} not answer\n", hosts.len());
    }
    text
}

fn row(host: &GridHost) -> Vec<String> {
    let names = [host.name.clone(), host.site.clone()];
    let Ok(state) = &host.state else { return names.to_vec() };
    let gateway = |(address, fault): (&String, &Option<String>)| match fault {
        None => format!("can listen at {address}"),
        Some(fault) => format!("cannot run at {address}: {fault}"),
    };
    let gateways = host.gateways.iter().zip(&state.gateways).map(gateway);
    let slurm = state.slurm.iter().map(|slurm| match slurm {
        Ok(version) => format!("requests hosts from {version}"),
        Err(reason) => format!("cannot request hosts: {reason}"),
    });
    let gateways: Vec<String> = gateways.chain(slurm).collect();
    let rest = [
        state.load.map_or_else(|| "-".into(), |load| format!("{load:.2}")),
        state.cores.to_string(),
        memory(state),
        state.version.clone(),
        gateways.join("; "),
    ];
    names.into_iter().chain(rest).collect()
}

fn memory(state: &HostState) -> String {
    let gibibytes = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    match state.memory_bytes {
        0 => "-".into(),
        all => format!("{:.1} of {:.1} GiB", gibibytes(state.available_bytes), gibibytes(all)),
    }
}

/// Returns a line for each pair of sites that meet only through the gateways of others.
fn lines(routes: &[TransitRoute<'_>]) -> String {
    let line = |route: &TransitRoute<'_>| {
        let between = names_between(route).join(" and ");
        format!("{} to {}: through the gateways of {between}\n", route.from.name, route.to.name)
    };
    routes.iter().map(line).collect()
}

fn names_between<'a>(route: &TransitRoute<'a>) -> Vec<&'a str> {
    route.between.iter().map(|site| site.name.as_str()).collect()
}

fn json_text(hosts: &[GridHost], routes: &[TransitRoute<'_>]) -> String {
    let hosts: Vec<Value> = hosts.iter().map(host_object).collect();
    let route = |route: &TransitRoute<'_>| json!({ "from": route.from.name, "to": route.to.name, "through": names_between(route) });
    let routes: Vec<Value> = routes.iter().map(route).collect();
    format!("{}\n", json!({ "hosts": hosts, "routes": routes }))
}

fn host_object(host: &GridHost) -> Value {
    let mut object = json!({ "host": host.name, "site": host.site, "answers": host.state.is_ok() });
    match &host.state {
        Err(reason) => object["reason"] = json!(reason),
        Ok(state) => {
            object["version"] = json!(state.version);
            object["load"] = json!(state.load);
            object["cores"] = json!(state.cores);
            object["memory_bytes"] = json!(state.memory_bytes);
            object["available_bytes"] = json!(state.available_bytes);
            let gateways = host.gateways.iter().zip(&state.gateways);
            let gateways = gateways.map(|(at, fault)| json!({ "address": at, "fault": fault }));
            object["gateways"] = gateways.collect();
            if let Some(slurm) = &state.slurm {
                object["slurm"] =
                    json!({ "version": slurm.as_ref().ok(), "fault": slurm.as_ref().err() });
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> [GridHost; 2] {
        let state = HostState {
            version: "0.1.0".into(),
            load: Some(0.5),
            cores: 16,
            memory_bytes: 64 << 30,
            available_bytes: 3 << 29,
            slurm: None,
            gateways: vec![None, Some("in use".into())],
        };
        let host = |name: &str, gateways: &[&str], state| GridHost {
            name: name.into(),
            site: "rennes".into(),
            gateways: gateways.iter().map(|it| (*it).to_owned()).collect(),
            state,
        };
        [host("one", &["10.0.0.1", "10.0.0.2"], Ok(state)), host("two", &[], Err("silence".into()))]
    }

    #[test]
    fn a_table_has_a_line_for_each_host() {
        let text = table(&hosts());
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let gateways = "can listen at 10.0.0.1; cannot run at 10.0.0.2: in use";
        let expected = [
            "host site load cores memory free Canele gateway or Slurm".to_owned(),
            format!("one rennes 0.50 16 1.5 of 64.0 GiB 0.1.0 {gateways}"),
            "two rennes no answer: silence".into(),
            "1 of 2 hosts does not answer".into(),
        ];
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn an_object_has_all_that_is_known() {
        let object: Value = serde_json::from_str(&json_text(&hosts(), &[])).unwrap();
        let [one, two] = [&object["hosts"][0], &object["hosts"][1]];
        assert_eq!((&one["answers"], &one["cores"]), (&json!(true), &json!(16)));
        assert_eq!(one["gateways"][1], json!({ "address": "10.0.0.2", "fault": "in use" }));
        assert_eq!((&two["answers"], &two["reason"]), (&json!(false), &json!("silence")));
        assert_eq!(two["cores"], Value::Null);
    }
}
