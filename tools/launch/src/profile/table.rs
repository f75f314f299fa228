//! The table of a profile, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::model::{Calls, Profiled, RankSummary, add_sizes};

/// Formats a profile: ranks and time, then the calls of each phase with their sizes, then who sends to whom.
pub(super) fn render(profiled: &Profiled) -> String {
    let mut text = heading(profiled);
    let phases: BTreeSet<i32> = profiled.calls.iter().map(|calls| calls.phase).collect();
    for phase in &phases {
        let lines = lines(profiled, *phase);
        if phases.len() > 1 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "\nphase {phase}");
        }
        text.push_str(&layout(&calls_table(&lines)));
        text.push_str(&sizes(&lines));
    }
    text.push_str(&peers(profiled));
    text
}

/// Calls of all ranks with function and communicator in common.
#[derive(Default)]
struct CallsLine {
    name: String,
    communicator: String,
    calls: u64,
    seconds: f64,
    bytes: u64,
    /// Bytes within a node, within a site, between sites.
    reached: [u64; 3],
    sizes: Vec<(u64, u64)>,
}

fn heading(profiled: &Profiled) -> String {
    let count = |of: fn(&RankSummary) -> usize| {
        profiled.ranks.iter().map(of).collect::<BTreeSet<_>>().len()
    };
    let (ranks, hosts, sites) =
        (profiled.ranks.len(), count(|rank| rank.place.node), count(|rank| rank.place.site));
    let longest = profiled.ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
    let all: f64 = profiled.ranks.iter().map(|rank| rank.seconds).sum();
    let inside: f64 = profiled.calls.iter().map(|calls| calls.seconds).sum();
    let mut text = format!(
        "profile of {ranks} ranks (hosts: {hosts}, sites: {sites}): {longest:.3} s, {} in MPI\n",
        percent(inside, all)
    );
    let lost: u64 = profiled.ranks.iter().map(|rank| rank.lost).sum();
    if lost > 0 {
        let _ = writeln!(text, "{lost} calls are missing: a rank has room for 16383 rows");
    }
    text
}

fn lines(profiled: &Profiled, phase: i32) -> Vec<CallsLine> {
    let mut lines: BTreeMap<(&str, &str), CallsLine> = BTreeMap::new();
    for calls in profiled.calls.iter().filter(|calls| calls.phase == phase) {
        let communicator = calls.communicator.as_deref().unwrap_or("");
        let line = lines.entry((&calls.function, communicator)).or_default();
        line.name.clone_from(&calls.function);
        communicator.clone_into(&mut line.communicator);
        line.calls += calls.calls;
        line.seconds += calls.seconds;
        line.bytes += calls.bytes;
        if let Some(reach) = calls.reach {
            line.reached[reach as usize] += calls.bytes;
        }
        add_sizes(&mut line.sizes, calls.sizes.iter().copied());
    }
    let mut lines: Vec<CallsLine> = lines.into_values().collect();
    lines.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    lines
}

fn calls_table(lines: &[CallsLine]) -> Vec<Vec<String>> {
    let all: f64 = lines.iter().map(|line| line.seconds).sum();
    let head = ["function", "communicator", "calls", "time s", "of MPI", "bytes", "within nodes"];
    let head = head.into_iter().chain(["within sites", "between sites"]).map(str::to_owned);
    let row = |line: &CallsLine| {
        let [node, site, wan] = line.reached.map(bytes_text);
        vec![
            line.name.clone(),
            line.communicator.clone(),
            line.calls.to_string(),
            format!("{:.3}", line.seconds),
            percent(line.seconds, all),
            bytes_text(line.bytes),
            node,
            site,
            wan,
        ]
    };
    std::iter::once(head.collect()).chain(lines.iter().map(row)).collect()
}

/// Formats the numbers of calls by size.
fn sizes(lines: &[CallsLine]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| line.bytes > 0) {
        let classes = line.sizes.iter().map(|(bound, calls)| match *bound {
            0 => format!("0 B: {calls}"),
            u64::MAX => format!("more: {calls}"),
            bound => format!("≤ {}: {calls}", bytes_text(bound)),
        });
        let classes = classes.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{} by size: {classes}", line.name);
    }
    text
}

/// Formats how many others a rank sends to, and the pairs that exchange most.
fn peers(profiled: &Profiled) -> String {
    let mut pairs: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    let is_sent =
        |calls: &&Calls| calls.bytes > 0 || calls.sizes.iter().any(|(_, calls)| *calls > 0);
    for calls in profiled.calls.iter().filter(is_sent) {
        let Some(peer) = calls.peer else { continue };
        let pair = pairs.entry((calls.rank, peer)).or_default();
        pair.0 += calls.calls;
        pair.1 += calls.bytes;
    }
    let mut counts = vec![0; profiled.ranks.len()];
    for (rank, _) in pairs.keys() {
        if let Some(count) = counts.get_mut(*rank as usize) {
            *count += 1;
        }
    }
    let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
        return String::new();
    };
    if *most == 0 {
        return String::new();
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
    let shown = pairs.iter().take(PAIRS).map(|((from, to), (messages, bytes))| {
        format!("{from} to {to} ({messages} messages, {})", bytes_text(*bytes))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    format!("a rank sends to {least} to {most} others; most: {shown}\n")
}

fn percent(part: f64, all: f64) -> String {
    if all > 0.0 { format!("{:.1} %", 100.0 * part / all) } else { "-".into() }
}

fn bytes_text(bytes: u64) -> String {
    match bytes {
        0 => "-".into(),
        1..1024 => format!("{bytes} B"),
        _ => {
            let power = bytes.ilog2() / 10;
            let value = bytes as f64 / (1u64 << (10 * power)) as f64;
            let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][power as usize];
            let decimals = usize::from(value.fract() > 0.0 && value < 100.0);
            format!("{value:.decimals$} {unit}")
        }
    }
}

/// Aligns the columns: the first two to the left.
fn layout(table: &[Vec<String>]) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let width =
        |column: usize| table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in table {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 | 1 => write!(text, "{cell:width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Number of pairs that are named.
const PAIRS: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::model::tests::{places, read};
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_function() {
        let text = render(&Profiled::of(&places(), &[read()]));
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "profile of 1 ranks (hosts: 1, sites: 1): 4.000 s, 50.0 % in MPI",
                "function communicator calls time s of MPI bytes within nodes within sites between sites",
                "MPI_Send MPI_COMM_WORLD 16 1.500 75.0 % 588 B 88 B - 500 B",
                "MPI_Allreduce MPI_COMM_WORLD 2 0.500 25.0 % - - - -",
                "MPI_Send by size: ≤ 8 B: 11, ≤ 128 B: 5",
                "a rank sends to 2 to 2 others; most: 0 to 3 (5 messages, 500 B), 0 to 1 (11 messages, 88 B)",
            ]
        );
    }

    #[test]
    fn sizes_are_in_the_unit_that_fits() {
        let texts = [0, 8, 1024, 1536, 160 << 10, 3 << 40].map(bytes_text);
        assert_eq!(texts, ["-", "8 B", "1 KiB", "1.5 KiB", "160 KiB", "3 TiB"]);
    }
}
