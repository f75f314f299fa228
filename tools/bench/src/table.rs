//! Tables of reports, for people.

use std::fmt::Write;

use crate::instrument::{Base, Column, Description, Quantity, Relation, Share, Statistic};
use crate::library::{LibraryKind, Variant};
use crate::record::{Measurement, Missing};
use crate::report::{By, Cell, Entry, Report, Row};
use crate::scenario::bytes_text;
use crate::statistics::Across;
use crate::sweep::{Knob, Sweep};

/// Formats a report: its title, the table, and the failures with their reasons.
pub fn render(report: &Report) -> String {
    let mut text = heading(report, &report.title());
    let table = if report.is_comparison() { comparison(report) } else { single(report) };
    text.push_str(&layout(&table));
    text.push_str(&shares(report));
    text.push_str(&gaps(report));
    text
}

/// Formats a sweep: for each row of each link, the time of each library and its ratio to the limit. Links
/// where TCP misses the limit by far are named.
pub fn render_sweep(sweep: &Sweep) -> String {
    let mut text = heading(&sweep.whole(), &sweep.title());
    let mut table = Vec::new();
    let differ = sweep.knobs().contains(&Knob::Sockets);
    for (crossing, report) in sweep.links() {
        let knobs = || Knob::ALL.into_iter().filter(|knob| *knob != Knob::Sockets || differ);
        if table.is_empty() {
            let head = knobs().map(|knob| knob.head().to_owned());
            table.push(head.chain(of_link_head(report)).collect());
        }
        table.extend(report.rows().iter().map(|row| {
            let link = knobs().map(|knob| knob.text(crossing));
            link.chain(of_link(report, row)).collect()
        }));
    }
    text.push_str(&layout(&table));
    for (crossing, why) in sweep.beyond() {
        let _ = writeln!(text, "{}: not ours alone: {why}", crossing.title());
    }
    for (crossing, report) in sweep.links() {
        for line in report.lab.iter().filter(|line| line.contains(WIDE_AREA)) {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ =
                writeln!(text, "{}: the lab's check, asked / measured: {line}", crossing.title());
        }
        for line in shares(report).lines().chain(gaps(report).lines()) {
            let _ = writeln!(text, "{}: {line}", crossing.title());
        }
    }
    text
}

/// Returns the columns of a sweep after those that name the link.
fn of_link_head(report: &Report) -> Vec<String> {
    let mut head = keys(report);
    head.extend(report.has_limit().then(|| "limit".into()));
    for entry in &report.entries {
        head.push(entry.name());
        head.extend(report.has_limit().then(|| "/ limit".into()));
    }
    head
}

/// Returns the line of a row, in the columns of [`of_link_head`].
fn of_link(report: &Report, row: &Row) -> Vec<String> {
    let text = |column: Column| column.text(&row.operation, row.case, row.statistic);
    let mut line: Vec<String> = named(report).map(text).collect();
    line.extend(report.has_limit().then(|| row.limit_us.map_or_else(dash, time)));
    for (index, cell) in row.cells.iter().enumerate() {
        line.push(cell.time_us.map_or_else(dash, |across| time(across.median)));
        let of_limit = || ratio(row.value(index, Quantity::OfLimit, By::Median));
        line.extend(report.has_limit().then(of_limit));
    }
    line
}

/// Formats the goodput of a competing flow beside each library.
fn shares(report: &Report) -> String {
    let mut text = String::new();
    for entry in &report.entries {
        let Some(kept) = entry.kept_mbit_per_s() else { continue };
        let of_link = report.link.map_or_else(String::new, |link| {
            format!(", {:.0} % of what the link carries", 100.0 * kept / link.goodput_mbit_per_s)
        });
        let _ = writeln!(text, "{}: the flow beside it kept {kept:.0} Mb/s{of_link}", entry.name());
    }
    text
}

/// Formats the failures with their reasons.
fn gaps(report: &Report) -> String {
    let mut text = String::new();
    for entry in &report.entries {
        let name = entry.name();
        for (reason, first, count) in reasons(report, &entry.missing) {
            let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let _ = writeln!(text, "{name}: not measured: {first}{more}: {reason}");
        }
        if let Some(failure) = &entry.failure {
            let measured =
                if entry.rounds.is_empty() { "not measured here" } else { "ended early" };
            let _ = writeln!(text, "{name}: {measured}: {failure}");
        }
    }
    text
}

/// Groups missing measurements by reason: the reason, the first, and their number.
fn reasons<'a>(report: &Report, missing: &'a [Missing]) -> Vec<(&'a str, String, usize)> {
    let mut reasons: Vec<(&str, String, usize)> = Vec::new();
    let columns = || named(report).filter(|column| *column != Column::Statistic);
    for one in missing {
        let words = columns().map(|column| match column {
            Column::Operation => one.operation.clone(),
            _ => {
                let text = column.text(&one.operation, one.case(), Statistic::Median);
                format!("{} {text}", column.head())
            }
        });
        let words = words.collect::<Vec<_>>().join(", ");
        match reasons.iter_mut().find(|(reason, ..)| *reason == one.missing) {
            Some((_, _, count)) => *count += 1,
            None => reasons.push((&one.missing, words, 1)),
        }
    }
    reasons
}

fn heading(report: &Report, title: &str) -> String {
    let environment = &report.environment;
    let turns = if report.rounds == 1 {
        "one round".to_owned()
    } else {
        format!("{} rounds, the libraries in turn", report.rounds)
    };
    let mut text = format!(
        "{title}; {turns}\n{}; {} cores, {}, {}; load {:.1} to {:.1}\n",
        environment.when(),
        environment.cores,
        environment.processor,
        environment.kernel,
        environment.load_before,
        environment.load_after,
    );
    if report.is_comparison() {
        text.push_str(
            "median over the rounds in µs (in brackets: greatest less least, as a share of it)",
        );
        text.push_str(if report.has_peers() {
            "; (least): the\n\
             ratio of the least disturbed rounds, which is the one to read when other work ran beside\n\
             ratios below 1 mean: faster than that\n"
        } else {
            "\n"
        });
    }
    let samples = || report.entries.iter().flat_map(|entry| entry.rounds.iter().flatten());
    let samples = || samples().map(|measurement| measurement.samples);
    if let (Some(fewest), Some(most)) = (samples().min(), samples().max()) {
        let _ =
            writeln!(text, "each time is of {fewest} to {most} samples, or batches, in a round");
    }
    for entry in report.entries.iter().filter(|entry| LibraryKind::MPI.contains(&entry.library)) {
        if let Some(Variant { settings, .. }) = &entry.variant {
            let words: Vec<_> =
                settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let words = if words.is_empty() { "as it is".into() } else { words.join(" ") };
            let _ = writeln!(text, "{}: {words}", entry.name());
        }
    }
    for entry in report.entries.iter().filter(|entry| entry.library == LibraryKind::RawTcp) {
        if let Some(variant) = &entry.variant {
            let (name, relays) = (entry.name(), variant.gateways());
            let _ = writeln!(text, "{name}: through {relays} relays that do nothing else");
        }
    }
    text
}

/// Returns the table of all libraries beside each other.
fn comparison(report: &Report) -> Vec<Vec<String>> {
    let Description { figure, base, .. } = report.workload.description();
    let mut head = keys(report);
    head.extend(report.has_limit().then(|| "limit".into()));
    for entry in &report.entries {
        head.push(entry.name());
        head.extend(share(figure).map(|share| share.head.to_owned()));
        head.extend(beside(figure).map(|(head, _)| head.to_owned()));
        head.extend(report.has_crossing().then(|| "on the WAN (packets)".into()));
        head.extend(base.map(|base| base.head.to_owned()));
    }
    if share(figure).is_none() {
        for entry in ours(report) {
            head.extend(figure.map(|figure| format!("{} {}", entry.name(), figure.unit())));
        }
    }
    head.extend(ours(report).skip(1).map(|entry| format!("/ {}", entry.name())));
    if report.has_peers() {
        head.extend(["/ best peer", "(least)"].map(str::to_owned));
    }
    head.extend(report.reference().map(|kind| format!("/ {}", kind.name())));
    head.extend(report.has_limit().then(|| "/ limit".into()));
    std::iter::once(head).chain(report.rows().iter().map(|row| compared(report, row))).collect()
}

fn ours(report: &Report) -> impl Iterator<Item = &Entry> {
    report.entries.iter().filter(|entry| entry.library == LibraryKind::Canele)
}

/// Returns the line of a row, in the columns of [`comparison`].
fn compared(report: &Report, row: &Row) -> Vec<String> {
    let Description { figure, base, .. } = report.workload.description();
    let columns = named(report);
    let mut line: Vec<String> =
        columns.map(|column| column.text(&row.operation, row.case, row.statistic)).collect();
    line.extend(report.has_limit().then(|| row.limit_us.map_or_else(dash, time)));
    for cell in &row.cells {
        line.push(cell.time_us.map_or_else(dash, with_spread));
        line.extend(share(figure).map(|_| cell.figure.map_or_else(dash, percent)));
        line.extend(
            beside(figure)
                .map(|(_, share)| cell.beside.map_or_else(dash, |part| percent(share.shown(part)))),
        );
        line.extend(report.has_crossing().then(|| crossing(Some(cell))));
        line.extend(base.map(|base| cell.against_base.map_or_else(dash, |at| against(base, at))));
    }
    let ours = || row.cells.iter().filter(|cell| cell.library == LibraryKind::Canele);
    if figure.is_some() && share(figure).is_none() {
        line.extend(ours().map(|cell| cell.figure.map_or_else(dash, quantity)));
    }
    line.extend(ours().skip(1).map(|cell| ratio(cell.ratio)));
    if report.has_peers() {
        line.extend([row.ratio_to_best_peer, row.ratio_of_least].map(ratio));
    }
    line.extend(report.reference().map(|_| ratio(row.ratio_to_reference)));
    line.extend(report.has_limit().then(|| ratio(row.ratio_to_limit)));
    line
}

/// Returns the table of one round of one library in detail, with raw TCP.
fn single(report: &Report) -> Vec<Vec<String>> {
    let Description { figure, base, .. } = report.workload.description();
    let columns = || named(report).filter(|column| *column != Column::Statistic);
    let mut head: Vec<String> = columns().map(|column| column.head().to_owned()).collect();
    head.extend(["min µs", "median µs", "mean µs", "p99 µs"].map(str::to_owned));
    head.extend(figure.map(|figure| figure.unit().to_owned()));
    head.extend(beside(figure).map(|(head, _)| head.to_owned()));
    head.extend(base.map(|base| base.head.to_owned()));
    head.extend(report.has_crossing().then(|| "on the WAN (packets)".into()));
    if let Some(name) = report.reference().and_then(LibraryKind::reference) {
        head.extend([format!("{name} µs"), format!("MPI / {name}")]);
    }
    head.extend(report.has_limit().then(|| "/ limit".into()));
    let rows = report.rows();
    let measured = report.entries.first().and_then(|entry| entry.rounds.first());
    let line = |read: &Measurement| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.operation == read.operation && row.case == read.case());
        let text = |column: Column| column.text(&read.operation, read.case(), Statistic::Median);
        let mut line: Vec<String> = columns().map(text).collect();
        line.extend([read.min_us, read.median_us, read.mean_us, read.p99_us].map(time));
        let cell = row.and_then(|row| row.cells.first());
        let of_cell = cell.and_then(|cell| cell.figure);
        line.extend(figure.map(|figure| match figure {
            Quantity::Share(_) => of_cell.map_or_else(dash, percent),
            Quantity::Time | Quantity::Bandwidth | Quantity::Rate | Quantity::OfLimit => {
                of_cell.map_or_else(dash, quantity)
            }
        }));
        line.extend(beside(figure).map(|(_, share)| {
            let part = cell.and_then(|cell| cell.beside);
            part.map_or_else(dash, |part| percent(share.shown(part)))
        }));
        let against_base = cell.and_then(|cell| cell.against_base);
        line.extend(base.map(|base| against_base.map_or_else(dash, |at| against(base, at))));
        line.extend(report.has_crossing().then(|| crossing(cell)));
        if report.reference().is_some() {
            let to_reference = row.and_then(|row| row.ratio_to_reference);
            line.push(to_reference.map_or_else(dash, |ratio| time(read.median_us / ratio)));
            line.push(ratio(to_reference));
        }
        let to_limit = row.and_then(|row| row.limit_us).filter(|limit_us| *limit_us > 0.0);
        let to_limit = to_limit.map(|limit_us| read.median_us / limit_us);
        line.extend(report.has_limit().then(|| ratio(to_limit)));
        line
    };
    std::iter::once(head).chain(measured.into_iter().flatten().map(line)).collect()
}

/// Formats bytes and packets on links.
fn crossing(cell: Option<&Cell>) -> String {
    let counted = cell.and_then(|cell| cell.crossing_bytes.zip(cell.crossing_packets));
    counted.map_or_else(dash, |(bytes, packets)| format!("{} ({packets:.0})", bytes_text(bytes)))
}

/// Formats a ratio, or a difference in ns with its spread over rounds.
fn against(base: Base, across: Across) -> String {
    match base.relation {
        Relation::Ratio => ratio(Some(across.median)),
        Relation::Difference if across.rounds == 1 => format!("{:.0} ns", across.median * 1e3),
        Relation::Difference => {
            let (least, greatest) = (across.least * 1e3, across.greatest * 1e3);
            format!("{:.0} ns ({least:.0} to {greatest:.0})", across.median * 1e3)
        }
    }
}

/// Returns the columns that name a row.
fn named(report: &Report) -> impl Iterator<Item = Column> {
    report.workload.description().columns()
}

/// Names a row of a report in one line.
pub fn label(report: &Report, row: &Row) -> String {
    let text = |column: Column| {
        let text = column.text(&row.operation, row.case, row.statistic);
        let is_number = text.bytes().all(|letter| letter.is_ascii_digit());
        if is_number { format!("{} {text}", column.head()) } else { text }
    };
    named(report).map(text).collect::<Vec<_>>().join(", ")
}

fn keys(report: &Report) -> Vec<String> {
    named(report).map(|column| column.head().to_owned()).collect()
}

/// Returns the share of a figure, if it is one.
fn share(figure: &Option<Quantity>) -> Option<Share> {
    match figure {
        Some(Quantity::Share(share)) => Some(*share),
        Some(Quantity::Time | Quantity::Bandwidth | Quantity::Rate | Quantity::OfLimit) | None => {
            None
        }
    }
}

/// Formats microseconds with three significant digits, or all before the point.
/// Formats a time with as many decimals as are significant.
pub fn time(time_us: f64) -> String {
    let decimals = match time_us {
        ..0.1 => 4,
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

/// Returns the head of the part beside a share, and the share.
fn beside(figure: &Option<Quantity>) -> Option<(&'static str, Share)> {
    let share = share(figure)?;
    share.beside.map(|(head, _)| (head, share))
}

/// Formats a share, more finely if it is small.
fn percent(share: f64) -> String {
    let decimals = if share.abs() < 0.05 { 2 } else { 1 };
    format!("{:.decimals$} %", share * 100.0)
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(dash, |ratio| format!("{ratio:.2}"))
}

/// Formats Mb/s with one decimal; small values with significant digits.
fn quantity(value: f64) -> String {
    match value {
        ..0.1 => format!("{value:.5}"),
        ..10.0 => time(value),
        _ => format!("{value:.1}"),
    }
}

fn dash() -> String {
    "–".into()
}

/// Name of the link between two sites in the lab's check.
const WIDE_AREA: &str = "wide area";

/// Formats columns as wide as their widest cell, aligned to the right, two spaces between.
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
    use crate::instrument::{Instrument, Workload};
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
            [0.01234, 0.1714, 12.345, 123.45, 12345.6].map(time),
            ["0.0123", "0.171", "12.35", "123.5", "12346"]
        );
        assert_eq!([0.00025, 3.7, 940.04].map(quantity), ["0.00025", "3.700", "940.0"]);
    }

    #[test]
    fn a_spread_beyond_measure_is_not_spelt_out() {
        let across = |spread| Across { median: 1.5, least: 1.0, greatest: 1.5, spread, rounds: 3 };
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
        assert!(text.contains("ratios below 1 mean: faster than that"), "{text}");
        assert!(text.contains("each time is of"), "{text}");
        assert!(row.contains('–'), "{text}");
    }

    #[test]
    fn a_sweep_has_every_link_beside_its_limit() {
        let text = render_sweep(&crate::sweep::tests::sweep());
        assert!(text.lines().next().unwrap().contains("over 6 links"), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("1 MiB")).collect();
        assert!(rows[0].contains("1 ms  100 Mb/s    2 MB") && rows[0].contains("1.05"), "{text}");
        assert!(rows[5].contains("300 ms   10 Gb/s") && rows[5].contains("2.00"), "{text}");
        assert!(rows[6].contains("not ours alone"), "{text}");
        assert!(text.contains("asked / measured: wide area ok"), "{text}");
        assert_eq!(text.matches("Open MPI: not measured here").count(), 6, "{text}");
    }

    #[test]
    fn shares_stand_beside_times_and_what_is_missing_is_told_once() {
        let mut report = sample();
        report.workload = Workload::new(Instrument::Overlap);
        report.entries.truncate(2);
        for (entry, share) in report.entries.iter_mut().zip([1.2, 0.034]) {
            let reads = entry.rounds.iter_mut().flatten();
            reads.for_each(|read| read.share = Some(share));
        }
        let missing = |bytes| Missing {
            operation: "both compute".into(),
            bytes,
            count: 1000,
            ranks: 2,
            missing: "no such call".into(),
        };
        report.entries[1].missing = vec![missing(64), missing(128)];
        let text = render(&report);
        let row = text.lines().find(|line| line.contains("1 MiB")).unwrap();
        assert!(row.contains("100.0 %") && row.contains("3.40 %"), "{text}");
        let row = text.lines().find(|line| line.contains("64 B")).unwrap();
        assert!(row.contains("both compute") && row.contains('–'), "{text}");
        let told =
            "MPICH: not measured: both compute, size 64 B, computing 1 ms and 1 more: no such call";
        assert!(text.contains(told), "{text}");
    }

    #[test]
    fn bare_memory_is_a_reference_as_raw_tcp_is() {
        let mut report = sample();
        report.entries[3].library = LibraryKind::Memory;
        let text = render(&report);
        assert!(text.contains("/ bare memory") && !text.contains("raw TCP"), "{text}");
        report.entries.retain(|entry| !entry.library.is_peer());
        report.rounds = 1;
        let text = render(&report);
        assert!(text.contains("memory µs") && text.contains("MPI / memory"), "{text}");
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
        // Before the ratio to the limit, 5800.1 µs.
        let last: Vec<&str> = row.split_whitespace().rev().take(2).collect();
        assert_eq!(last, ["1.00", "1.25"], "{text}");
    }
}
