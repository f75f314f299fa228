//! A job in an interval as a table.

use std::collections::BTreeMap;

use boot::{RankWait, Reach, SentTo};

use super::rates::{JobRates, RankActivity, RankRates};

/// Returns the table, limited to a number of rows and columns if it is drawn on a terminal.
pub(super) fn text(rates: &JobRates, size: Option<(usize, usize)>) -> String {
    let facts = &rates.facts;
    let (minutes, seconds) = (facts.seconds / 60, facts.seconds % 60);
    let mut lines = vec![
        format!(
            "job {}: {} on {}, {minutes}:{seconds:02}, {}",
            facts.job,
            number(facts.ranks, "rank"),
            number(facts.hosts, "host"),
            facts.command
        ),
        String::new(),
    ];
    let places = places(rates);
    // The title, an empty line, the head of the table and the line about ranks that are left out.
    let above = lines.len() + 2 + places.len() + usize::from(!places.is_empty());
    let room = size.map_or(usize::MAX, |(rows, _)| rows.saturating_sub(above).max(1));
    let shown = shown(&rates.ranks, room);
    lines.extend(aligned(&shown));
    let missing = rates.ranks.len() - shown.len();
    if missing > 0 {
        let verb = if missing == 1 { "is" } else { "are" };
        lines.push(format!(
            "{} {verb} not shown: those above are the busiest",
            number(missing, "rank")
        ));
    }
    if !places.is_empty() {
        lines.push(String::new());
        lines.extend(places);
    }
    let (rows, columns) = size.unwrap_or((usize::MAX, usize::MAX));
    let cut = |line: &String| line.chars().take(columns).collect::<String>();
    let lines: Vec<String> = lines.iter().take(rows).map(cut).collect();
    lines.join("\n") + "\n"
}

/// The ranks that fit, the busiest, in order of their numbers.
fn shown(ranks: &[RankRates], room: usize) -> Vec<&RankRates> {
    let mut shown: Vec<&RankRates> = ranks.iter().collect();
    shown.sort_by_key(|rank| std::cmp::Reverse(rank.business()));
    shown.truncate(room);
    shown.sort_by_key(|rank| (rank.world, rank.rank));
    shown
}

/// A column: its head, true if it is aligned to the left, and its cell for a rank.
type Column = (&'static str, bool, fn(&RankRates) -> String);

/// All columns. Those without any cell are left out.
const COLUMNS: [Column; 13] = [
    ("rank", false, name),
    ("host", true, |rank| rank.host.clone()),
    ("does", true, activity),
    ("in MPI", false, share),
    ("msg/s", false, |rank| {
        rank.sent_per_s(None).map_or_else(none, |(messages, _)| short(messages))
    }),
    ("node B/s", false, |rank| bytes(rank, Reach::Node)),
    ("site B/s", false, |rank| bytes(rank, Reach::Site)),
    ("WAN B/s", false, |rank| bytes(rank, Reach::Far)),
    ("resent", false, |rank| rank.retransmitted().map_or_else(String::new, |it| it.to_string())),
    ("unexp.", false, |rank| count(rank.queues.as_ref().map(|queues| queues.unexpected))),
    ("posted", false, |rank| count(rank.queues.as_ref().map(|queues| queues.posted))),
    ("unsent", false, |rank| count(rank.queues.as_ref().map(|queues| queues.queued))),
    ("down", false, |rank| count(rank.queues.as_ref().map(|queues| queues.down))),
];

fn aligned(ranks: &[&RankRates]) -> Vec<String> {
    let mut lines = vec![String::new(); ranks.len() + 1];
    for (head, is_left, cell) in COLUMNS {
        let cells: Vec<String> = ranks.iter().map(|rank| cell(rank)).collect();
        if cells.iter().all(String::is_empty) {
            continue;
        }
        let cells: Vec<&str> = std::iter::once(head).chain(cells.iter().map(|it| &**it)).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(cells) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&match is_left {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Name of a rank: its number, behind that of its world if it was spawned.
fn name(rank: &RankRates) -> String {
    match rank.world {
        0 => rank.rank.to_string(),
        world => format!("{world}.{}", rank.rank),
    }
}

fn none() -> String {
    "-".into()
}

fn activity(rank: &RankRates) -> String {
    match &rank.state {
        RankActivity::HasEnded => "has ended".into(),
        RankActivity::NotInMpi => "not in MPI".into(),
        RankActivity::IsStopped => "stopped".into(),
        RankActivity::InMpi => "in MPI".into(),
        RankActivity::Computes => "computes".into(),
        RankActivity::Waits(waits) => {
            let more = waits.len().saturating_sub(1);
            let more = if more > 0 { format!(" +{more}") } else { String::new() };
            waits.first().map(wait).unwrap_or_default() + &more
        }
    }
}

fn wait(wait: &RankWait) -> String {
    let call = if wait.call.is_empty() { "waits" } else { &wait.call };
    match wait.quiet_ms {
        0..1000 => call.into(),
        ms => format!("{call} {} s", ms / 1000),
    }
}

fn share(rank: &RankRates) -> String {
    let share = rank.traffic.as_ref().and_then(|traffic| traffic.mpi_share);
    share.map_or_else(none, |share| format!("{:.0}%", share * 100.0))
}

/// Bytes per second to a distance; empty if the rank has nobody there that it has sent to.
fn bytes(rank: &RankRates, reach: Reach) -> String {
    let is_used = |sent: &SentTo| sent.reach == reach;
    match rank.traffic.as_ref().is_some_and(|traffic| traffic.sent.iter().any(is_used)) {
        true => rank.sent_per_s(Some(reach)).map_or_else(none, |(_, bytes)| short(bytes)),
        false => String::new(),
    }
}

fn count(count: Option<u64>) -> String {
    count.map_or_else(none, |count| short(count as f64))
}

/// Traffic between sites, one line for each direction.
fn places(rates: &JobRates) -> Vec<String> {
    let mut places: BTreeMap<(String, String), (f64, f64, u64, u64)> = BTreeMap::new();
    let sites = rates.ranks.iter().map(|it| ((it.world, it.rank), &it.site));
    let sites: BTreeMap<(u32, u32), &Option<String>> = sites.collect();
    for rank in &rates.ranks {
        let Some(traffic) = &rank.traffic else { continue };
        for sent in traffic.sent.iter().filter(|sent| sent.reach == Reach::Far) {
            let from = rank.site.clone().unwrap_or_else(|| rank.host.clone());
            let to = sites.get(&(rank.world, sent.rank)).and_then(|site| (*site).clone());
            let to = to.unwrap_or_else(|| format!("the site of rank {}", sent.rank));
            let sum = places.entry((from, to)).or_default();
            sum.0 += sent.messages as f64 / traffic.seconds;
            sum.1 += sent.bytes as f64 / traffic.seconds;
            sum.2 += sent.retransmitted;
            sum.3 = sum.3.max(sent.round_trip_us);
        }
    }
    let line = |((from, to), (messages, bytes, resent, round_trip_us))| {
        let round_trip = crate::units::time(1000 * round_trip_us);
        format!(
            "{from} -> {to}: {} B/s, {} msg/s, {resent} packets resent, round trip {round_trip}",
            short(bytes),
            short(messages)
        )
    };
    places.into_iter().map(line).collect()
}

/// Formats a figure in four characters, with a decimal prefix.
fn short(figure: f64) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let mut figure = figure;
    let mut at = 0;
    while figure >= 999.5 && at + 1 < prefixes.len() {
        figure /= 1000.0;
        at += 1;
    }
    let digits = if at > 0 && figure < 9.95 { 1 } else { 0 };
    format!("{figure:.digits$}{}", prefixes[at])
}

fn number(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use boot::RankLoad;
    use launch::RankView;
    use launch::jobs::RankEntry;

    use super::super::rates::tests::{entry, job, sent};
    use super::*;

    fn counts(rank: u64, at_us: u64) -> RankLoad {
        let factor = at_us / 1_000_000 * rank;
        RankLoad {
            at_us,
            samples: at_us,
            samples_in_mpi: at_us / 4,
            posted: rank,
            sent: vec![
                sent((Reach::Node, 0), factor, 1000 * factor, 0),
                sent((Reach::Far, 0), 2 * factor, 3_000_000 * factor, factor),
            ],
            ..RankLoad::default()
        }
    }

    fn rates(ranks: u64, waits: &[RankWait]) -> JobRates {
        let at = |at_us| {
            let entry = |rank| entry(Some(counts(rank, at_us)), waits.to_vec());
            job((0..ranks).map(entry).collect())
        };
        JobRates::between(&at(1_000_000), &at(2_000_000))
    }

    #[test]
    fn a_row_has_the_figures_of_its_rank() {
        let wait = RankWait { call: "MPI_Recv".into(), quiet_ms: 41_900, ..RankWait::default() };
        let text = text(&rates(4, &[wait.clone(), wait]), None);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with("job 7: 4 ranks on 1 host, 1:02, ./ring 5\n\n"), "{text}");
        let expected = "3 one MPI_Recv 41 s +1 25% 9 3.0k 9.0M 3 0 3 0 0";
        assert_eq!(rows[6].join(" "), expected, "{text}");
        assert!(!text.contains("site B/s") && text.contains("WAN B/s"), "{text}");
        let between = "here -> here: 18M B/s, 12 msg/s, 6 packets resent, round trip 150.0 µs";
        assert_eq!(text.lines().last(), Some(between), "{text}");
    }

    #[test]
    fn a_small_terminal_shows_the_busiest_ranks() {
        let all = rates(40, &[]);
        let small = text(&all, Some((10, 30)));
        assert_eq!(small.lines().count(), 10, "{small}");
        assert!(small.lines().all(|line| line.chars().count() <= 30), "{small}");
        let ranks: Vec<&str> =
            small.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(ranks[1..6], ["rank", "36", "37", "38", "39"], "{small}");
        assert!(small.contains("36 ranks are not shown"), "{small}");
        for size in [(1, 1), (2, 200), (4, 0)] {
            let text = text(&all, Some(size));
            assert!(text.lines().count() <= size.0, "{text}");
        }
    }

    #[test]
    fn ranks_without_figures_have_rows() {
        let of = |view| RankEntry { view, ..entry(None, Vec::new()) };
        let views = [RankView::Ended, RankView::Silent, RankView::Stopped];
        let job = job(views.map(of).to_vec());
        let text = text(&JobRates::between(&job, &job), None);
        for part in ["has ended", "not in MPI", "stopped"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn figures_are_short() {
        let figures = [0.0, 1.4, 999.4, 999.6, 1234.0, 9_949.0, 9_951.0, 123_456.0, 5e6, 1e18];
        let texts = figures.map(short);
        assert_eq!(
            texts,
            ["0", "1", "999", "1.0k", "1.2k", "9.9k", "10k", "123k", "5.0M", "1000P"]
        );
    }
}
