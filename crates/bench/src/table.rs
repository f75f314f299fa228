//! Reports as tables for people.

use std::fmt::Write;

use crate::record::Measurement;
use crate::report::{Report, Row};
use crate::scenario::{Workload, size_text};
use crate::statistics::{Across, bandwidth_mbit_per_s};

/// A report as text: what and where, the table, and what could not be measured and why.
pub fn render(report: &Report) -> String {
    let mut text = heading(report);
    let table = if report.is_comparison() { comparison(report) } else { single(report) };
    text.push_str(&layout(&table));
    for entry in &report.entries {
        if let Some(failure) = &entry.failure {
            let name = entry.library.name();
            let _ = writeln!(text, "{name}: not measured here: {failure}");
        }
    }
    text
}

fn heading(report: &Report) -> String {
    let environment = &report.environment;
    let turns = if report.rounds == 1 {
        "one round".to_owned()
    } else {
        format!("{} rounds, the libraries in turn", report.rounds)
    };
    let mut text = format!(
        "{}, {}; {turns}\n{}; {} cores, {}, {}; load {:.1} to {:.1}\n",
        report.workload.title(),
        report.place.title(),
        environment.date,
        environment.cores,
        environment.processor,
        environment.kernel,
        environment.load_before,
        environment.load_after,
    );
    if report.is_comparison() {
        text.push_str(
            "median over the rounds in µs (in brackets: greatest less least, as a share of it); (least): the\n\
             ratio of the least disturbed rounds, which is the one to read when other work ran beside\n",
        );
    }
    text
}

/// All libraries beside each other.
fn comparison(report: &Report) -> Vec<Vec<String>> {
    let mut head = keys(&report.workload);
    let has_limit = report.link.is_some() && is_pingpong(report);
    let has_tcp = report.entries.iter().any(|entry| entry.library == crate::library::Kind::RawTcp);
    if has_limit {
        head.push("limit".into());
    }
    head.extend(report.entries.iter().map(|entry| entry.library.name().to_owned()));
    if is_pingpong(report) {
        head.push("Canele Mb/s".into());
    }
    head.extend(["/ best peer", "(least)"].map(str::to_owned));
    if has_tcp {
        head.push("/ raw TCP".into());
    }
    let line = |row: &Row| {
        let mut line = key(&report.workload, &row.operation, row.bytes);
        if has_limit {
            line.push(row.limit_us.map_or_else(dash, time));
        }
        line.extend(row.median_us.iter().map(|(_, across)| across.map_or_else(dash, with_spread)));
        if is_pingpong(report) {
            line.push(row.bandwidth_mbit_per_s.map_or_else(dash, |rate| format!("{rate:.1}")));
        }
        line.push(row.ratio_to_best_peer.map_or_else(dash, ratio));
        line.push(row.ratio_of_least.map_or_else(dash, ratio));
        if has_tcp {
            line.push(row.ratio_to_raw_tcp.map_or_else(dash, ratio));
        }
        line
    };
    std::iter::once(head).chain(report.rows().iter().map(line)).collect()
}

/// One library in detail, and raw TCP beside it.
fn single(report: &Report) -> Vec<Vec<String>> {
    let mut head = keys(&report.workload);
    let columns = ["min µs", "median µs", "mean µs", "p99 µs"];
    head.extend(columns.map(str::to_owned));
    if is_pingpong(report) {
        head.extend(["Mb/s", "TCP µs", "TCP Mb/s", "MPI / TCP"].map(str::to_owned));
    }
    let tcp = report.rows();
    let ours = report.entries.first().and_then(|entry| entry.rounds.first());
    let line = |read: &Measurement| {
        let mut line = key(&report.workload, &read.operation, read.bytes);
        line.extend([read.min_us, read.median_us, read.mean_us, read.p99_us].map(time));
        if is_pingpong(report) {
            let rate = |time_us: f64| format!("{:.1}", bandwidth_mbit_per_s(read.bytes, time_us));
            let row = tcp.iter().find(|row| row.bytes == read.bytes);
            let ratio_to_tcp = row.and_then(|row| row.ratio_to_raw_tcp);
            let tcp_us = ratio_to_tcp.map(|ratio| read.median_us / ratio);
            line.push(rate(read.median_us));
            line.push(tcp_us.map_or_else(dash, time));
            line.push(tcp_us.map_or_else(dash, rate));
            line.push(ratio_to_tcp.map_or_else(dash, ratio));
        }
        line
    };
    std::iter::once(head).chain(ours.into_iter().flatten().map(line)).collect()
}

fn is_pingpong(report: &Report) -> bool {
    matches!(report.workload, Workload::Pingpong { .. })
}

fn keys(workload: &Workload) -> Vec<String> {
    match workload {
        Workload::Pingpong { .. } | Workload::Burst { .. } => vec!["size".into()],
        Workload::Crowd { .. } => vec!["operation".into(), "size".into()],
    }
}

fn key(workload: &Workload, operation: &str, bytes: u64) -> Vec<String> {
    match workload {
        Workload::Pingpong { .. } | Workload::Burst { .. } => vec![size_text(bytes)],
        Workload::Crowd { .. } => vec![operation.into(), size_text(bytes)],
    }
}

/// Microseconds with three digits that matter, or all before the point.
fn time(time_us: f64) -> String {
    let decimals = match time_us {
        ..10.0 => 3,
        ..100.0 => 2,
        ..10_000.0 => 1,
        _ => 0,
    };
    format!("{time_us:.decimals$}")
}

fn with_spread(across: Across) -> String {
    let percent = across.spread * 100.0;
    let spread = if percent < 1000.0 { format!("{percent:.0}%") } else { ">999%".to_owned() };
    format!("{} ({spread})", time(across.median))
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}

fn dash() -> String {
    "–".into()
}

/// Columns as wide as their widest cell, set to the right, two spaces between.
fn layout(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn columns_are_set_to_the_right() {
        let rows = [["size", "µs"], ["1 B", "0.171"], ["64 KiB", "9.4"]];
        let rows: Vec<Vec<String>> =
            rows.map(|row| row.map(str::to_owned).to_vec()).into_iter().collect();
        assert_eq!(layout(&rows), "  size     µs\n   1 B  0.171\n64 KiB    9.4\n");
    }

    #[test]
    fn times_have_the_digits_that_matter() {
        assert_eq!(
            [0.1714, 12.345, 123.45, 12345.6].map(time),
            ["0.171", "12.35", "123.5", "12346"]
        );
    }

    #[test]
    fn a_spread_beyond_measure_is_not_spelt_out() {
        let across = |spread| Across { median: 1.5, least: 1.0, spread, rounds: 3 };
        assert_eq!(with_spread(across(0.25)), "1.500 (25%)");
        assert_eq!(with_spread(across(2500.0)), "1.500 (>999%)");
    }

    #[test]
    fn a_comparison_shows_every_library_and_why_one_is_missing() {
        let text = render(&sample());
        let head = text.lines().find(|line| line.contains("Canele")).unwrap();
        for name in ["limit", "MPICH", "Open MPI", "raw TCP", "/ best peer", "/ raw TCP"] {
            assert!(head.contains(name), "{text}");
        }
        let row = text.lines().find(|line| line.contains("1 MiB")).unwrap();
        assert!(row.contains("14715") && row.contains("0.50") && row.contains("1.25"), "{text}");
        assert!(text.contains("Open MPI: not measured here: not installed"), "{text}");
        assert!(row.contains('–'), "{text}");
    }

    #[test]
    fn one_library_is_shown_in_detail() {
        let mut report = sample();
        report.entries.retain(|entry| !entry.library.is_peer());
        report.rounds = 1;
        for entry in &mut report.entries {
            entry.rounds.truncate(1);
        }
        let text = render(&report);
        assert!(text.contains("p99 µs") && text.contains("MPI / TCP"), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with("16 B")).unwrap();
        assert_eq!(row.split_whitespace().last(), Some("1.25"), "{text}");
    }
}
