//! Chart of a plan: a line for each rank, time from left to right.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;

use plan::{Deed, Distance, Doing, Topology};

/// Draws the actions of the ranks until the last one ends. Of many ranks some are drawn: those on the critical path,
/// from its end, and those that send farthest.
pub fn chart(deeds: &[Deed], topology: &Topology, time_ns: u64) -> String {
    let size = topology.size();
    let longest = longest_way(deeds, size);
    let drawn = drawn(deeds, &longest, size);
    let mut text = format!("chart, a column is {:.1} us; ", time_ns as f64 * 1e-3 / COLUMNS as f64);
    text += match drawn.len() as u32 == size {
        true => "> marks those on the way that takes longest\n",
        false => "of those on the way that takes longest (>), and those that send farthest\n",
    };
    text += LEGEND;
    let mut site = None;
    for rank in drawn {
        let here = topology.location(rank).site;
        if topology.sites() > 1 && site.replace(here) != Some(here) {
            let _ = writeln!(text, "  site {here}");
        }
        let mark = if longest.contains(&rank) { '>' } else { ' ' };
        let line = line(deeds.iter().filter(|deed| deed.rank == rank), time_ns);
        let _ = writeln!(text, "{mark} {rank:>5} |{line}|");
    }
    text
}

/// Returns the ranks on the critical path, from its end: the rank that ends last, the one it waited for last,
/// and so on.
fn longest_way(deeds: &[Deed], size: u32) -> Vec<u32> {
    let mut of_ranks: Vec<Vec<&Deed>> = vec![Vec::new(); size as usize];
    deeds.iter().for_each(|deed| of_ranks[deed.rank as usize].push(deed));
    let ends = of_ranks.iter().map(|deeds| deeds.last().map_or(0, |deed| deed.to_ns));
    let Some((mut until_ns, Reverse(mut rank))) = ends.zip((0..).map(Reverse)).max() else {
        return Vec::new();
    };
    let mut way = vec![rank];
    // The awaited rank was ready before, or at the same time if messages cost nothing.
    for _ in 0..deeds.len() {
        let before = of_ranks[rank as usize].iter().rev().filter(|deed| deed.to_ns <= until_ns);
        let waits = before.filter_map(|deed| match deed.doing {
            Doing::Waits { other, since_ns } => Some((other, since_ns)),
            Doing::Sends(_) | Doing::Receives | Doing::Computes => None,
        });
        let Some((other, since_ns)) = { waits }.next() else { break };
        (rank, until_ns) = (other, since_ns);
        if !way.contains(&rank) {
            way.push(rank);
        }
    }
    way
}

/// Returns the ranks that are drawn.
fn drawn(deeds: &[Deed], longest: &[u32], size: u32) -> BTreeSet<u32> {
    if size as usize <= LINES {
        return (0..size).collect();
    }
    let mut sends_ns = vec![[0u64; 2]; size as usize];
    for deed in deeds {
        let place = match deed.doing {
            Doing::Sends(Distance::Wide) => 0,
            Doing::Sends(Distance::Site) => 1,
            Doing::Sends(Distance::Node) => continue,
            Doing::Receives | Doing::Computes | Doing::Waits { .. } => continue,
        };
        sends_ns[deed.rank as usize][place] += deed.to_ns - deed.from_ns;
    }
    let mut farthest: Vec<u32> = (0..size).collect();
    farthest.sort_by_key(|&rank| Reverse(sends_ns[rank as usize]));
    let mut drawn: BTreeSet<u32> = longest.iter().copied().take(LINES / 2).collect();
    for rank in farthest {
        if drawn.len() < LINES {
            drawn.insert(rank);
        }
    }
    drawn
}

/// Returns the letter of each column: the action that takes most of it. Waiting counts only if there is
/// nothing else, and a message to another site hides other actions.
fn line<'a>(deeds: impl Iterator<Item = &'a Deed>, time_ns: u64) -> String {
    let mut columns = [[0u64; LETTERS.len()]; COLUMNS];
    let time_ns = time_ns.max(1);
    let border = |column: usize| (u128::from(time_ns) * column as u128 / COLUMNS as u128) as u64;
    let column = |ns: u64| (u128::from(ns) * COLUMNS as u128 / u128::from(time_ns)) as usize;
    for deed in deeds {
        let (first, last) = (column(deed.from_ns), column(deed.to_ns));
        for (at, took) in columns.iter_mut().enumerate().take(last + 1).skip(first) {
            let from_ns = deed.from_ns.max(border(at));
            took[letter(deed.doing)] += deed.to_ns.min(border(at + 1)).saturating_sub(from_ns);
        }
    }
    let drawn = |took: [u64; LETTERS.len()]| {
        let [far, .., waits] = took;
        let busiest = (0..LETTERS.len() - 1).max_by_key(|&at| (took[at], Reverse(at)));
        match busiest {
            _ if far > 0 => LETTERS[0],
            Some(at) if took[at] > 0 => LETTERS[at],
            _ if waits > 0 => LETTERS[LETTERS.len() - 1],
            _ => ' ',
        }
    };
    columns.map(drawn).into_iter().collect()
}

/// Returns the index of an action's letter.
fn letter(doing: Doing) -> usize {
    match doing {
        Doing::Sends(Distance::Wide) => 0,
        Doing::Sends(Distance::Site) => 1,
        Doing::Sends(Distance::Node) => 2,
        Doing::Receives => 3,
        Doing::Computes => 4,
        Doing::Waits { .. } => 5,
    }
}

const LETTERS: [char; 6] = ['F', 's', 'n', 'r', 'c', '.'];

const LEGEND: &str = "  F sends to another site, s within its site, n within its node; r takes in what came;\n  \
                      c copies or combines; . waits\n";

/// Width of a terminal of 80 columns, without labels.
const COLUMNS: usize = 68;

/// Maximum number of ranks that are drawn.
const LINES: usize = 16;

#[cfg(test)]
mod tests {
    use plan::{Costs, Location, Operands, watch};

    use super::*;

    /// Returns the actions of an allreduce, or of a broadcast by rank 0, of so many bytes.
    fn charted(grid: [u32; 3], bytes: u64, is_reduced: bool) -> (String, Vec<Deed>) {
        let [sites, nodes, ranks] = grid;
        let location = |rank: u32| Location { node: rank / ranks, site: rank / ranks / nodes };
        let locations: Vec<Location> = (0..sites * nodes * ranks).map(location).collect();
        let topology = Topology::new(&locations, false, Costs::default());
        let operands = Operands {
            len: bytes / 8,
            element: 8,
            commutes: true,
            is_exact: true,
            in_place: false,
        };
        let make = |rank| match is_reduced {
            true => plan::allreduce(rank, &topology, operands),
            false => plan::broadcast(rank, &topology, 0, bytes),
        };
        let schedules: Vec<_> = (0..topology.size()).map(make).collect();
        let mut deeds = Vec::new();
        let unit = if is_reduced { 8 } else { 1 };
        let found = watch(&schedules, &topology, unit, &mut |deed| deeds.push(deed));
        (chart(&deeds, &topology, found.time_ns), deeds)
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| line.ends_with('|')).collect()
    }

    #[test]
    fn every_rank_of_a_few_has_a_line_of_the_same_length() {
        let (text, _) = charted([2, 2, 2], 1 << 20, true);
        let lines = lines(&text);
        assert_eq!(lines.len(), 8, "{text}");
        assert!(
            lines.iter().all(|line| line.len() == 10 + COLUMNS && line.contains('F')),
            "{text}"
        );
        assert!(text.contains("\n  site 0\n") && text.contains("\n  site 1\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 96), "{text}");
    }

    #[test]
    fn receivers_from_another_site_wait_for_it() {
        let (text, _) = charted([2, 1, 2], 8, false);
        let lines = lines(&text);
        assert!(lines[0].starts_with(">     0 |") && lines[0].contains('F'), "{text}");
        assert!(lines[2].contains(&".".repeat(COLUMNS - 4)), "{text}");
        assert!(!lines[1].contains('F') && lines[1].ends_with("   |"), "{text}");
        let ends = lines.iter().filter(|line| line.starts_with('>'));
        assert_eq!(ends.count(), 3, "root, head, and who hears last: {text}");
    }

    #[test]
    fn only_ranks_that_send_far_or_end_last_are_drawn_of_many() {
        let (text, deeds) = charted([3, 4, 8], 8, false);
        assert_eq!(lines(&text).len(), LINES, "{text}");
        let last = deeds.iter().max_by_key(|deed| deed.to_ns).unwrap();
        assert!(text.contains(&format!("\n> {:>5} |", last.rank)), "{last:?}: {text}");
        let far = |deed: &&Deed| deed.doing == Doing::Sends(Distance::Wide);
        for deed in deeds.iter().filter(far) {
            assert!(text.contains(&format!(" {:>5} |", deed.rank)), "{deed:?}: {text}");
        }
    }

    #[test]
    fn deeds_of_a_rank_follow_each_other_and_end_with_the_plan() {
        let (_, deeds) = charted([1, 4, 4], 256 << 10, true);
        for rank in 0..16 {
            let of_rank: Vec<_> = deeds.iter().filter(|deed| deed.rank == rank).collect();
            assert!(of_rank.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
            assert!(of_rank.iter().all(|deed| deed.from_ns < deed.to_ns));
        }
    }

    #[test]
    fn an_empty_plan_is_drawn_empty() {
        let text = chart(&[], &Topology::flat(1, false, Costs::default()), 0);
        assert!(text.contains(&format!("|{}|", " ".repeat(COLUMNS))), "{text}");
    }
}
