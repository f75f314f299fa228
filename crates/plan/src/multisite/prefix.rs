//! Prefixes over sites. A rank's operand goes to its node's leader. The combinations of the node's
//! *runs* of consecutive ranks go to the site's leader, which sends those of the site's runs to
//! other sites. The combination of everything below a run returns the same way. A site receives
//! only runs below its last one.
//!
//! Operands are combined within runs of a node, those within runs of a site, and those over all.
//! That order does not depend on the leaders or on how the data are cut.

use std::ops::Range;

use crate::crossings::{Crossings, Load, Receivers, Relays};
use crate::multisite::reduction::Run;
use crate::multisite::{Cuts, InFlight, RootRole, Route, leader_index, timetable};
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::{Grid, Levels};

/// Kinds of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Of the ranks up to and with this one.
    Scan,
    /// Of the ranks below this one.
    Exscan,
}

/// Computes the prefix of everyone's `own` in everyone's output. `own` lies outside the output.
pub(crate) fn prefix(
    schedule: &mut Schedule,
    grid: &Grid,
    me: u32,
    prefix: Prefix,
    own: Span,
    element: u64,
) {
    let cuts = Cuts::new(own.len, element, grid);
    let levels = cuts.levels(grid);
    let bytes = own.len.saturating_mul(element);
    let prefixes = Prefixes::new(grid, levels, me, prefix, bytes);
    let transfer = |index| {
        let (start, len) = cuts.segment(index);
        let route =
            Route { levels, leader_index: leader_index(index, grid), root_role: RootRole::None };
        Transfer::new(route, own.part(start, len), Buffer::Output.span(start, len))
    };
    let transfers = (0..cuts.count).map(transfer).collect();
    prefixes.run(schedule, transfers, cuts.in_flight(element, grid));
}

/// Stage: from ranks to the leader of their node.
const RANKS: usize = 0;
/// Stage: from leaders of nodes to the leader of the site.
const NODES: usize = 1;
/// Stage: to other sites.
const CROSSING: usize = 2;
/// Stage: by relays.
const PASSING: usize = 3;
/// Stage: back to nodes.
const TO_NODES: usize = 4;
/// Stage: back to ranks.
const TO_RANKS: usize = 5;

/// A combination that is here, or arrives here.
#[derive(Clone, Copy)]
struct PrefixPart {
    span: Span,
    arrived: Ticket,
}

/// A run of a node, at the node's leader.
struct NodeRun {
    /// Index among the runs of the site's nodes.
    index: usize,
    /// Operand of each rank, lowest first.
    operands: Vec<PrefixPart>,
    /// Combination of all ranks below the run.
    below: Option<PrefixPart>,
}

/// Transfer of one segment, as one rank sees it.
struct Transfer<'a> {
    route: Route<'a>,
    own: Span,
    result: Span,
    /// Runs of this node, at its leader.
    parts: Vec<NodeRun>,
    /// Combinations of the runs of the site's nodes, at the site's leader: each includes those
    /// below it in the site's run.
    nodes: Vec<PrefixPart>,
    /// Combinations of the runs of all sites, as far as this site's leader receives them.
    sites: Vec<Option<PrefixPart>>,
}

impl<'a> Transfer<'a> {
    fn new(route: Route<'a>, own: Span, result: Span) -> Self {
        Self { route, own, result, parts: Vec::new(), nodes: Vec::new(), sites: Vec::new() }
    }
}

struct Prefixes<'a> {
    me: u32,
    prefix: Prefix,
    crossings: &'a Crossings,
    relays: Relays,
    /// Own site, and the node that this rank may lead.
    site: u32,
    node: u32,
    /// Runs of all sites with their sites, lowest first.
    sites: Vec<(Run, u32)>,
    /// Runs of the own site's nodes with the nodes whose leaders handle them, lowest first.
    nodes: Vec<(Run, u32)>,
    /// Start of each site's last run.
    last: Vec<u32>,
}

impl<'a> Prefixes<'a> {
    fn new(grid: &'a Grid, levels: &Levels, me: u32, prefix: Prefix, bytes: u64) -> Self {
        let size = levels.ranks().len() as u32;
        let (site, node) = (levels.site(me), levels.node(me));
        let sites = runs(size, |rank| levels.site(rank));
        let nodes = runs(size, |rank| grid.long.node(rank));
        let mut last = vec![0; levels.sites() as usize];
        let mut counts = vec![0; last.len()];
        for &(run, site) in &sites {
            last[site as usize] = run.first;
            counts[site as usize] += 1;
        }
        let site_runs = counts.into_iter().max().unwrap_or(1);
        let bytes = bytes.saturating_mul(site_runs);
        let receivers = Receivers::of_runs(site_runs);
        let relays = grid.crossings.relays_among(|_| bytes, Load::One, receivers);
        let in_site = nodes.into_iter().filter(|(run, _)| levels.site(run.first) == site);
        let nodes = in_site.map(|(run, _)| (run, levels.node(run.first))).collect();
        let crossings = &*grid.crossings;
        Self { me, prefix, crossings, relays, site, node, sites, nodes, last }
    }

    fn run(&self, schedule: &mut Schedule, mut transfers: Vec<Transfer>, in_flight: InFlight) {
        let begins: Vec<u32> = (0..transfers.len() as u32).collect();
        let (combined, arrived) = (1 + in_flight.nodes, 2 + in_flight.nodes + in_flight.crossing);
        let passed =
            arrived + if self.relays == Relays::Straight { 0 } else { 1 + in_flight.crossing };
        let delays = [0, 1, combined, arrived, passed, passed + in_flight.nodes];
        let order = timetable(&begins, &delays, |_, _| 0);
        for &(stage, transfer) in &order {
            self.expect(schedule, &mut transfers[transfer], stage);
        }
        for &(stage, transfer) in &order {
            self.send(schedule, &mut transfers[transfer], stage);
        }
        schedule.wait();
    }

    /// Begins the receives of a stage.
    fn expect(&self, schedule: &mut Schedule, transfer: &mut Transfer, stage: usize) {
        let (route, me, len) = (transfer.route, self.me, transfer.own.len);
        let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
        let mut expect = |from: u32| {
            let span = schedule.room(len);
            let arrived = if from == me { Ticket::default() } else { schedule.expect(from, span) };
            PrefixPart { span, arrived }
        };
        match stage {
            RANKS if me == leader => {
                for (index, &(run, node)) in self.nodes.iter().enumerate() {
                    if node == self.node {
                        let operands = (run.first..run.end).map(&mut expect).collect();
                        transfer.parts.push(NodeRun { index, operands, below: None });
                    }
                }
            }
            NODES if me == site_leader => {
                let leaders = self.nodes.iter().map(|&(_, node)| route.node_leader(node));
                // The combinations of its own node's runs are elsewhere.
                let mine = PrefixPart { span: transfer.own, arrived: Ticket::default() };
                let piece = |leader| if leader == me { mine } else { expect(leader) };
                transfer.nodes = leaders.map(piece).collect();
            }
            CROSSING | PASSING if me == site_leader => {
                transfer.sites.resize(self.sites.len(), None);
                let source = |(index, &(run, site))| {
                    let by = self.source(run, site, stage)?;
                    Some((self.crossings.cost(site, by).latency_ns, index, by))
                };
                let mut sources: Vec<_> =
                    self.sites.iter().enumerate().filter_map(source).collect();
                sources.sort_unstable();
                for (_, index, by) in sources {
                    transfer.sites[index] = Some(expect(route.site_leader(by)));
                }
            }
            TO_NODES if me == leader && me != site_leader => {
                for part in &mut transfer.parts {
                    let is_lowest = self.nodes[part.index].0.first == 0;
                    part.below = (!is_lowest).then(|| expect(site_leader));
                }
            }
            TO_RANKS if me != leader && self.has_result(me) => {
                schedule.receive(leader, transfer.result)
            }
            _ => {}
        }
    }

    /// Combines and sends the data of a stage.
    fn send(&self, schedule: &mut Schedule, transfer: &mut Transfer, stage: usize) {
        let (route, me) = (transfer.route, self.me);
        let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
        match stage {
            RANKS if me != leader => schedule.send(leader, transfer.own),
            NODES if me == leader => self.combine_ranks(schedule, transfer, site_leader),
            CROSSING if me == site_leader => self.combine_nodes(schedule, transfer),
            PASSING if me == site_leader => self.relay(schedule, transfer),
            TO_NODES if me == site_leader => self.combine_sites(schedule, transfer),
            TO_RANKS if me == leader => self.finish(schedule, transfer),
            _ => {}
        }
    }

    /// Turns each operand into the prefix within its run of the node, and sends the run's
    /// combination to the leader of the site.
    fn combine_ranks(&self, schedule: &mut Schedule, transfer: &mut Transfer, site_leader: u32) {
        for part in &transfer.parts {
            let run = self.nodes[part.index].0;
            let mut below = None;
            for (rank, &PrefixPart { span, arrived }) in (run.first..).zip(&part.operands) {
                schedule.settle(arrived);
                if rank == self.me {
                    schedule.copy(transfer.own, span);
                }
                extend(schedule, below, span);
                below = Some(span);
            }
            let Some(all) = below else { continue };
            // A copy of it is sent while the prefixes are extended.
            let all = if run.first == 0 { all } else { aside(schedule, all) };
            match self.me == site_leader {
                true => transfer.nodes[part.index].span = all,
                false => schedule.send(site_leader, all),
            }
        }
    }

    /// Combines the runs of nodes with those below them in the site's run, and sends the result to
    /// other sites.
    fn combine_nodes(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        let own = self.sites.iter().filter(|(_, site)| *site == self.site);
        for &(run, _) in own {
            let mut below = None;
            for &PrefixPart { span, arrived } in &transfer.nodes[self.nodes_of(run)] {
                schedule.settle(arrived);
                extend(schedule, below, span);
                below = Some(span);
            }
            let route = transfer.route;
            let receives = |&site: &u32| {
                self.relays.sender(self.site, site) == self.site
                    && self.receives(site, run, self.site)
            };
            let leaders =
                route.next_sites(self.me).filter(receives).map(|site| route.site_leader(site));
            let is_extended = run.first > 0 && run.first < self.last[self.site as usize];
            send_copy(schedule, below, leaders.collect(), is_extended);
        }
    }

    /// Relays the runs of other sites, in the order of arrival.
    fn relay(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        let route = transfer.route;
        let pieces = self.sites.iter().zip(&mut transfer.sites);
        let mut pieces: Vec<_> =
            pieces.filter_map(|(&(run, of), piece)| Some((run, of, piece.as_mut()?))).collect();
        pieces.sort_by_key(|&(_, of, _)| self.crossings.cost(of, self.site).latency_ns);
        for (run, of, piece) in pieces {
            let receives =
                |&site: &u32| self.relays.sender(of, site) == self.site && self.needs(site, run);
            let leaders = route.other_sites(self.me).filter(|&site| site != of).filter(receives);
            let leaders: Vec<u32> = leaders.map(|site| route.site_leader(site)).collect();
            if !leaders.is_empty() {
                schedule.settle(std::mem::take(&mut piece.arrived));
                send_copy(schedule, Some(piece.span), leaders, true);
            }
        }
    }

    /// Goes through the runs of all sites in order, and sends each node the combination below its
    /// runs.
    fn combine_sites(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        let last = self.last[self.site as usize];
        let mut below: Option<Span> = None;
        for (index, &(run, site)) in self.sites.iter().enumerate() {
            if run.first > last {
                break;
            } else if site != self.site {
                if let Some(PrefixPart { span, arrived }) = transfer.sites[index] {
                    schedule.settle(arrived);
                    extend(schedule, below, span);
                    below = Some(span);
                }
                continue;
            }
            let mut lower = below;
            for node in self.nodes_of(run) {
                self.send_below(schedule, transfer, node, lower);
                let all = transfer.nodes[node].span;
                if node + 1 < self.nodes_of(run).end || run.first < last {
                    extend(schedule, below, all);
                }
                lower = Some(all);
            }
            below = lower;
        }
    }

    /// Sends the leader of a node the combination below one of its runs.
    fn send_below(
        &self,
        schedule: &mut Schedule,
        transfer: &mut Transfer,
        node: usize,
        below: Option<Span>,
    ) {
        let Some(span) = below else { return };
        let leader = transfer.route.node_leader(self.nodes[node].1);
        if leader != self.me {
            return schedule.send(leader, span);
        }
        if let Ok(at) = transfer.parts.binary_search_by_key(&node, |part| part.index) {
            transfer.parts[at].below = Some(PrefixPart { span, arrived: Ticket::default() });
        }
    }

    /// Combines each run's prefixes with everything below the run, and sends them to the ranks.
    fn finish(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        for part in &transfer.parts {
            let run = self.nodes[part.index].0;
            if let Some(below) = part.below {
                schedule.settle(below.arrived);
            }
            let below = part.below.map(|below| below.span);
            let mut lower = below;
            for (rank, piece) in (run.first..).zip(&part.operands) {
                if self.prefix == Prefix::Scan || rank + 1 < run.end {
                    extend(schedule, below, piece.span);
                }
                let prefix = match self.prefix {
                    Prefix::Scan => Some(piece.span),
                    Prefix::Exscan => lower,
                };
                match prefix {
                    Some(prefix) if rank == self.me => schedule.copy(prefix, transfer.result),
                    Some(prefix) => schedule.send(rank, prefix),
                    None => {}
                }
                lower = Some(piece.span);
            }
        }
    }

    /// Returns the site from which the combination of a site's run arrives in a stage, if it does.
    fn source(&self, run: Run, site: u32, stage: usize) -> Option<u32> {
        if site == self.site || !self.receives(self.site, run, site) {
            return None;
        }
        let by = self.relays.sender(site, self.site);
        (stage == if by == site { CROSSING } else { PASSING }).then_some(by)
    }

    /// True if a site receives a run's combination of another, for itself or to relay it.
    fn receives(&self, site: u32, run: Run, of: u32) -> bool {
        self.needs(site, run)
            || self.relays.forwarded_by(site, of).any(|other| self.needs(other, run))
    }

    /// True if a site has ranks above a run of another.
    fn needs(&self, site: u32, run: Run) -> bool {
        run.first < self.last[site as usize]
    }

    /// Returns the indices of the nodes' runs within a run of the own site.
    fn nodes_of(&self, run: Run) -> Range<usize> {
        let at = |rank: u32| self.nodes.partition_point(|(node, _)| node.first < rank);
        at(run.first)..at(run.end)
    }

    /// False for the lowest rank of an exclusive prefix, which has no rank below it.
    fn has_result(&self, rank: u32) -> bool {
        self.prefix == Prefix::Scan || rank > 0
    }
}

/// Returns the runs of ranks that are in the same place, with that place.
fn runs(size: u32, place: impl Fn(u32) -> u32) -> Vec<(Run, u32)> {
    let mut runs: Vec<(Run, u32)> = Vec::new();
    for rank in 0..size {
        match runs.last_mut() {
            Some((run, last)) if *last == place(rank) => run.end += 1,
            _ => runs.push((Run { first: rank, end: rank + 1 }, place(rank))),
        }
    }
    runs
}

/// Sends a combination that may be extended in the meantime.
fn send_copy(schedule: &mut Schedule, all: Option<Span>, leaders: Vec<u32>, is_extended: bool) {
    if let Some(all) = all.filter(|_| !leaders.is_empty()) {
        let sent = if is_extended { aside(schedule, all) } else { all };
        leaders.into_iter().for_each(|leader| schedule.send(leader, sent));
    }
}

fn aside(schedule: &mut Schedule, span: Span) -> Span {
    let aside = schedule.room(span.len);
    schedule.copy(span, aside);
    aside
}

/// Combines `place` with the operands below it.
fn extend(schedule: &mut Schedule, below: Option<Span>, place: Span) {
    if let Some(below) = below {
        schedule.reduce(below, place);
    }
}
