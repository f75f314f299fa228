//! Text of a report on a job: the calls that ranks are in, who waits for whom, and deadlocks among them.

use std::collections::{BTreeMap, BTreeSet};

use boot::{RankReport, RankWait};

use crate::reports::RankState;

/// A rank in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankView {
    /// It has ended.
    Ended,
    /// It does not answer: it has not called MPI_Init, or has left MPI.
    Silent,
    /// It is stopped by a signal.
    Stopped,
    /// Its own report.
    Reported(RankReport),
}

impl RankView {
    /// The view of a rank, from what its agent has learnt.
    pub(crate) fn of(has_ended: bool, state: Option<&RankState>) -> Self {
        match state {
            _ if has_ended => Self::Ended,
            Some(state) if state.is_stopped => Self::Stopped,
            Some(RankState { answer: Some(text), .. }) => Self::Reported(RankReport::parse(text)),
            Some(_) | None => Self::Silent,
        }
    }
}

/// Returns the text of a report on all ranks, with the names of their hosts.
pub(crate) fn text(views: &[RankView], hosts: &[String]) -> String {
    let mut lines = lines_of_ranks(views, hosts);
    let waits = WaitGraph::of(views);
    let stuck = waits.stuck();
    let cycle = waits.cycle(&stuck);
    if let Some(cycle) = cycle {
        let names = cycle.iter().take(CYCLE_MAX).map(u32::to_string).collect::<Vec<_>>();
        let more = if cycle.len() > CYCLE_MAX { " -> ..." } else { "" };
        let names = format!("{}{more} -> {}", names.join(" -> "), cycle[0]);
        lines.push(format!("deadlock: ranks {names} wait for each other"));
    } else if !stuck.is_empty() {
        let stuck: Vec<u32> = stuck.into_iter().collect();
        lines.push(format!("deadlock: ranks {} wait only for each other", ranges(&stuck)));
    }
    for (rank, waiting) in waits.awaited_free() {
        let why = match views.get(rank as usize) {
            Some(RankView::Ended) => "has ended".to_owned(),
            Some(RankView::Silent) => "is not in MPI".into(),
            Some(RankView::Stopped) => "is stopped".into(),
            Some(RankView::Reported(RankReport { waits, .. })) if !waits.is_empty() => {
                let calls: Vec<&str> = waits.iter().map(call).collect();
                format!("waits in {}", calls.join(" and "))
            }
            Some(RankView::Reported(_)) | None => "waits for nobody".into(),
        };
        let (ranks, verb) = match waiting.len() {
            1 => ("rank", "waits"),
            _ => ("ranks", "wait"),
        };
        lines.push(format!("{ranks} {} {verb} for rank {rank}, which {why}", ranges(&waiting)));
    }
    lines.join("\n") + "\n"
}

/// Returns lines about ranks. Ranks in the same state share a line.
fn lines_of_ranks(views: &[RankView], hosts: &[String]) -> Vec<String> {
    let mut groups: BTreeMap<Vec<String>, Vec<u32>> = BTreeMap::new();
    for (rank, view) in (0u32..).zip(views) {
        groups.entry(state(view)).or_default().push(rank);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, ranks)| ranks[0]);
    let mut lines = Vec::new();
    let count = groups.len();
    for (state, ranks) in groups.into_iter().take(GROUPS_MAX) {
        let name = match ranks[..] {
            [rank] => format!("rank {rank} on {}", hosts.get(rank as usize).map_or("", |it| it)),
            _ => format!("ranks {}", ranges(&ranks)),
        };
        let mut state = state.into_iter();
        lines.push(format!("{name}: {}", state.next().unwrap_or_default()));
        lines.extend(state.map(|more| format!("    {more}")));
    }
    if count > GROUPS_MAX {
        lines.push(format!("and {} more states of ranks", count - GROUPS_MAX));
    }
    lines
}

/// Returns the state of a rank in words, in one line or several.
fn state(view: &RankView) -> Vec<String> {
    let report = match view {
        RankView::Ended => return vec!["has ended".into()],
        RankView::Silent => {
            return vec!["does not answer: it is not between MPI_Init and MPI_Finalize".into()];
        }
        RankView::Stopped => return vec!["is stopped by a signal".into()],
        RankView::Reported(report) => report,
    };
    let wait = |wait: &RankWait| {
        let call = call(wait);
        let place = if wait.place.is_empty() {
            String::new()
        } else {
            format!(", called by {}", wait.place)
        };
        let what = if wait.what.is_empty() { String::new() } else { format!(" for {}", wait.what) };
        format!("waits in {call}{what}; nothing completed for {}{place}", time(wait.quiet_ms))
    };
    let mut lines: Vec<String> = report.waits.iter().map(wait).collect();
    if lines.is_empty() {
        lines.push("waits in no call: it computes, or polls".into());
    }
    lines.extend(report.notes.iter().cloned());
    lines
}

fn call(wait: &RankWait) -> &str {
    if wait.call.is_empty() { "a call" } else { &wait.call }
}

/// Rounded time, so that ranks in the same state have the same text.
fn time(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => "less than 1 s".into(),
        _ => format!("{} s", milliseconds / 1000),
    }
}

/// Returns sorted ranks as ranges: `0-3, 7`.
fn ranges(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|one, next| one + 1 == *next);
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect(),
    };
    let mut names: Vec<String> = runs.map(run).collect();
    if names.len() > RANGES_MAX {
        names.truncate(RANGES_MAX);
        names.push("...".into());
    }
    names.join(", ")
}

/// Ranks that wait for others. A rank waits if all that is known of it waits; those with several threads wait in each.
struct WaitGraph {
    /// Awaited ranks of each waiting rank, and true if one of them suffices.
    waits: BTreeMap<u32, (BTreeSet<u32>, bool)>,
}

impl WaitGraph {
    fn of(views: &[RankView]) -> Self {
        let awaited = |view: &RankView| {
            let RankView::Reported(report) = view else { return None };
            // Of several threads any may help another rank, so only a single wait is certain.
            let [wait] = &report.waits[..] else { return None };
            let ranks: BTreeSet<u32> = wait.ranks.iter().copied().collect();
            (!ranks.is_empty() && wait.quiet_ms >= SETTLED_MS).then_some((ranks, wait.is_any))
        };
        let views = (0u32..).zip(views);
        Self { waits: views.filter_map(|(rank, view)| Some((rank, awaited(view)?))).collect() }
    }

    /// Ranks that wait for each rank.
    fn waiters(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut waiters: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, (awaited, _)) in &self.waits {
            awaited.iter().for_each(|one| waiters.entry(*one).or_default().push(*rank));
        }
        waiters
    }

    /// Ranks that can never go on: each waits only for others of these.
    fn stuck(&self) -> BTreeSet<u32> {
        let waiters = self.waiters();
        let mut stuck: BTreeSet<u32> = self.waits.keys().copied().collect();
        // Awaited ranks of each that may still be stuck.
        let mut left: BTreeMap<u32, usize> =
            self.waits.iter().map(|(rank, (awaited, _))| (*rank, awaited.len())).collect();
        let mut going: Vec<u32> =
            waiters.keys().copied().filter(|rank| !stuck.contains(rank)).collect();
        while let Some(free) = going.pop() {
            for &rank in waiters.get(&free).into_iter().flatten() {
                let Some(count) = left.get_mut(&rank) else { continue };
                *count -= 1;
                let goes_on = *count == 0 || self.waits[&rank].1;
                if goes_on && stuck.remove(&rank) {
                    going.push(rank);
                }
            }
        }
        stuck
    }

    /// Returns ranks that wait for each other in a circle, each for the next one, from the least on.
    fn cycle(&self, stuck: &BTreeSet<u32>) -> Option<Vec<u32>> {
        let next = |rank: u32| {
            let (awaited, is_any) = self.waits.get(&rank)?;
            let first = awaited.iter().copied().find(|one| stuck.contains(one));
            first.filter(|_| !is_any || awaited.len() == 1)
        };
        // Each rank that was passed, with its place on the way that passed it.
        let mut passed: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
        for &start in stuck {
            let mut way = Vec::new();
            let mut at = Some(start);
            while let Some(rank) = at {
                match passed.get(&rank) {
                    Some(&(way_of, place)) if way_of == start => {
                        let mut cycle = way.split_off(place);
                        let least = cycle.iter().enumerate().min_by_key(|(_, rank)| **rank)?.0;
                        cycle.rotate_left(least);
                        return Some(cycle);
                    }
                    // An earlier way led from here to no circle.
                    Some(_) => break,
                    None => {}
                }
                passed.insert(rank, (start, way.len()));
                way.push(rank);
                at = next(rank);
            }
        }
        None
    }

    /// Ranks that wait for nobody, each with those that wait for it alone, at last. None if there are many: then no rank
    /// keeps the others.
    fn awaited_free(&self) -> Vec<(u32, Vec<u32>)> {
        let waiters = self.waiters();
        let free: Vec<u32> =
            waiters.keys().copied().filter(|rank| !self.waits.contains_key(rank)).collect();
        if free.len() > FREE_MAX {
            return Vec::new();
        }
        let mut reached: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &rank in &free {
            let mut known = BTreeSet::new();
            let mut at = vec![rank];
            while let Some(one) = at.pop() {
                let more = waiters.get(&one).into_iter().flatten().copied();
                at.extend(more.filter(|waiter| known.insert(*waiter)));
            }
            known.into_iter().for_each(|waiter| reached.entry(waiter).or_default().push(rank));
        }
        let mut waiting: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, of) in reached {
            if let [only] = of[..] {
                waiting.entry(only).or_default().push(rank);
            }
        }
        waiting.into_iter().collect()
    }
}

/// Maximum number of states of ranks in a report.
const GROUPS_MAX: usize = 64;
/// Maximum number of ranges of ranks in a list.
const RANGES_MAX: usize = 32;
/// Maximum number of ranks of a circle that are named.
const CYCLE_MAX: usize = 64;
/// Maximum number of ranks that keep others.
const FREE_MAX: usize = 64;
/// Time in which nothing has completed before a wait counts: a message may be under way.
const SETTLED_MS: u64 = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(ranks: &[u32], is_any: bool) -> RankView {
        let wait = RankWait {
            call: "MPI_Recv".into(),
            what: format!("ranks {ranks:?}"),
            quiet_ms: 5000,
            ranks: ranks.to_vec(),
            is_any,
            ..RankWait::default()
        };
        RankView::Reported(RankReport { waits: vec![wait], ..RankReport::default() })
    }

    fn free() -> RankView {
        RankView::Reported(RankReport::default())
    }

    fn said(views: &[RankView]) -> String {
        text(views, &vec!["host".to_owned(); views.len()])
    }

    #[test]
    fn a_cycle_of_waits_is_a_deadlock() {
        let ring: Vec<RankView> = (0..4).map(|rank| waits(&[(rank + 1) % 4], false)).collect();
        assert!(said(&ring).contains("deadlock: ranks 0 -> 1 -> 2 -> 3 -> 0 wait for each other"));
        let pair = [free(), waits(&[2], false), waits(&[1], false), waits(&[0], false)];
        let text = said(&pair);
        assert!(text.contains("deadlock: ranks 1 -> 2 -> 1 wait"), "{text}");
        assert!(text.contains("rank 3 waits for rank 0, which waits for nobody"), "{text}");
    }

    #[test]
    fn any_source_is_a_deadlock_only_if_no_other_rank_can_send() {
        let all = [waits(&[1, 2], true), waits(&[0], false), waits(&[0], false)];
        let text = said(&all);
        assert!(text.contains("deadlock: "), "{text}");
        let one = [waits(&[1, 2], true), waits(&[0], false), free()];
        assert!(!said(&one).contains("deadlock"), "{}", said(&one));
    }

    #[test]
    fn the_rank_that_all_wait_for_is_named() {
        let mut views: Vec<RankView> = (0..3).map(|_| waits(&[3], false)).collect();
        for (view, why) in [
            (free(), "waits for nobody"),
            (RankView::Ended, "has ended"),
            (RankView::Silent, "is not in MPI"),
            (RankView::Stopped, "is stopped"),
        ] {
            views.push(view);
            let text = said(&views);
            assert!(text.contains(&format!("ranks 0-2 wait for rank 3, which {why}")), "{text}");
            assert!(text.contains("ranks 0-2: waits in MPI_Recv for ranks [3]; nothing"), "{text}");
            views.pop();
        }
    }

    #[test]
    fn a_wait_for_nobody_who_is_known_is_no_deadlock() {
        let text = said(&[waits(&[1], false), waits(&[], false)]);
        assert!(text.contains("rank 0 waits for rank 1, which waits in MPI_Recv"), "{text}");
        assert!(!text.contains("deadlock"), "{text}");
    }

    #[test]
    fn a_wait_that_has_just_begun_is_no_deadlock() {
        let fresh = |rank: u32| {
            let RankView::Reported(mut report) = waits(&[rank], false) else { panic!() };
            report.waits[0].quiet_ms = 3;
            RankView::Reported(report)
        };
        assert!(!said(&[fresh(1), fresh(0)]).contains("deadlock"));
    }

    #[test]
    fn reports_are_bounded() {
        let views: Vec<RankView> = (0..5000).map(|rank| waits(&[rank + 1], false)).collect();
        let text = said(&views);
        assert!(text.lines().count() < 2 * GROUPS_MAX, "{}", text.lines().count());
        assert!(text.contains("and 4936 more states of ranks"));
    }
}
