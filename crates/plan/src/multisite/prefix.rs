//! Prefixes over sites: what the ranks of a node have goes to its head, and what its *runs* of consecutive ranks come to
//! from there to the head of the site, which tells other sites what the runs of its site come to. What is below a run
//! goes the same way back. A site hears only of runs below its last one.
//!
//! Operands are combined within runs of a node, those within runs of a site, and those within all, whoever is head and
//! however the data are cut.

use std::ops::Range;

use crate::crossings::{Crossings, Hearers, Load, Relays};
use crate::multisite::reduction::Run;
use crate::multisite::{Cuts, Pace, Pin, Way, lane, timetable};
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::{Across, Levels};

/// Which prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Of the ranks up to and with this one.
    Scan,
    /// Of the ranks below this one.
    Exscan,
}

/// The prefix of everyone's `own` to everyone's output. `own` lies outside the output.
pub(crate) fn prefix(
    schedule: &mut Schedule,
    across: &Across,
    me: u32,
    prefix: Prefix,
    own: Span,
    element: u64,
) {
    let cuts = Cuts::new(own.len, element, across);
    let levels = cuts.levels(across);
    let bytes = own.len.saturating_mul(element);
    let prefixes = Prefixes::new(across, levels, me, prefix, bytes);
    let course = |index| {
        let (start, len) = cuts.segment(index);
        let way = Way { levels, lane: lane(index, across), pin: Pin::None };
        Course::new(way, own.part(start, len), Buffer::Output.span(start, len))
    };
    let courses = (0..cuts.count).map(course).collect();
    prefixes.run(schedule, courses, cuts.pace(element, across));
}

/// From ranks to the head of their node; from there to that of the site; to other sites; past bad links; back to nodes;
/// to ranks.
const RANKS: usize = 0;
const NODES: usize = 1;
const CROSSING: usize = 2;
const PASSING: usize = 3;
const TO_NODES: usize = 4;
const TO_RANKS: usize = 5;

/// What is somewhere, or comes there.
#[derive(Clone, Copy)]
struct Piece {
    span: Span,
    arrived: Ticket,
}

/// A run of a node, at the node's head.
struct Part {
    /// Which of the runs of the site's nodes.
    index: usize,
    /// What each rank has, the lowest first.
    operands: Vec<Piece>,
    /// What all below the run have.
    below: Option<Piece>,
}

/// One segment, as one rank sees it.
struct Course<'a> {
    way: Way<'a>,
    own: Span,
    result: Span,
    /// At the head of a node.
    parts: Vec<Part>,
    /// What the runs of the site's nodes come to, at its head: each with those below it in the site's run.
    nodes: Vec<Piece>,
    /// What the runs of all sites come to, as far as the head of this one hears of them.
    sites: Vec<Option<Piece>>,
}

impl<'a> Course<'a> {
    fn new(way: Way<'a>, own: Span, result: Span) -> Self {
        Self { way, own, result, parts: Vec::new(), nodes: Vec::new(), sites: Vec::new() }
    }
}

struct Prefixes<'a> {
    me: u32,
    prefix: Prefix,
    crossings: &'a Crossings,
    relays: Relays,
    /// The own site, and the node of which this rank may be head.
    site: u32,
    node: u32,
    /// The runs of all sites with their sites, the lowest first.
    sites: Vec<(Run, u32)>,
    /// The runs of the own site's nodes with those through whose heads they go, the lowest first.
    nodes: Vec<(Run, u32)>,
    /// Where each site's last run begins.
    last: Vec<u32>,
}

impl<'a> Prefixes<'a> {
    fn new(across: &'a Across, levels: &Levels, me: u32, prefix: Prefix, bytes: u64) -> Self {
        let size = levels.ranks().len() as u32;
        let (site, node) = (levels.site(me), levels.node(me));
        let sites = runs(size, |rank| levels.site(rank));
        let nodes = runs(size, |rank| across.long.node(rank));
        let mut last = vec![0; levels.sites() as usize];
        let mut counts = vec![0; last.len()];
        for &(run, site) in &sites {
            last[site as usize] = run.first;
            counts[site as usize] += 1;
        }
        let site_runs = counts.into_iter().max().unwrap_or(1);
        let bytes = bytes.saturating_mul(site_runs);
        let hearers = Hearers::of_runs(site_runs);
        let relays = across.crossings.relays_among(|_| bytes, Load::One, hearers);
        let in_site = nodes.into_iter().filter(|(run, _)| levels.site(run.first) == site);
        let nodes = in_site.map(|(run, _)| (run, levels.node(run.first))).collect();
        let crossings = &*across.crossings;
        Self { me, prefix, crossings, relays, site, node, sites, nodes, last }
    }

    fn run(&self, schedule: &mut Schedule, mut courses: Vec<Course>, pace: Pace) {
        let begins: Vec<u32> = (0..courses.len() as u32).collect();
        let (combined, arrived) = (1 + pace.nodes, 2 + pace.nodes + pace.crossing);
        let passed = arrived + if self.relays == Relays::Straight { 0 } else { 1 + pace.crossing };
        let delays = [0, 1, combined, arrived, passed, passed + pace.nodes];
        let order = timetable(&begins, &delays, |_, _| 0);
        for &(stage, course) in &order {
            self.expect(schedule, &mut courses[course], stage);
        }
        for &(stage, course) in &order {
            self.send(schedule, &mut courses[course], stage);
        }
        schedule.wait();
    }

    /// The receives of a stage.
    fn expect(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let (way, me, len) = (course.way, self.me, course.own.len);
        let (head, site_head) = (way.head_of(me), way.site_head_of(me));
        let mut expect = |from: u32| {
            let span = schedule.room(len);
            let arrived = if from == me { Ticket::default() } else { schedule.expect(from, span) };
            Piece { span, arrived }
        };
        match stage {
            RANKS if me == head => {
                for (index, &(run, node)) in self.nodes.iter().enumerate() {
                    if node == self.node {
                        let operands = (run.first..run.end).map(&mut expect).collect();
                        course.parts.push(Part { index, operands, below: None });
                    }
                }
            }
            NODES if me == site_head => {
                let heads = self.nodes.iter().map(|&(_, node)| way.node_head(node));
                // What its own node's runs come to lies elsewhere.
                let mine = Piece { span: course.own, arrived: Ticket::default() };
                let piece = |head| if head == me { mine } else { expect(head) };
                course.nodes = heads.map(piece).collect();
            }
            CROSSING | PASSING if me == site_head => {
                course.sites.resize(self.sites.len(), None);
                let source = |(index, &(run, site))| {
                    let by = self.source(run, site, stage)?;
                    Some((self.crossings.cost(site, by).latency_ns, index, by))
                };
                let mut sources: Vec<_> =
                    self.sites.iter().enumerate().filter_map(source).collect();
                sources.sort_unstable();
                for (_, index, by) in sources {
                    course.sites[index] = Some(expect(way.site_head(by)));
                }
            }
            TO_NODES if me == head && me != site_head => {
                for part in &mut course.parts {
                    let is_lowest = self.nodes[part.index].0.first == 0;
                    part.below = (!is_lowest).then(|| expect(site_head));
                }
            }
            TO_RANKS if me != head && self.has_result(me) => schedule.receive(head, course.result),
            _ => {}
        }
    }

    /// What is combined and sent in a stage.
    fn send(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let (way, me) = (course.way, self.me);
        let (head, site_head) = (way.head_of(me), way.site_head_of(me));
        match stage {
            RANKS if me != head => schedule.send(head, course.own),
            NODES if me == head => self.combine_ranks(schedule, course, site_head),
            CROSSING if me == site_head => self.combine_nodes(schedule, course),
            PASSING if me == site_head => self.pass_on(schedule, course),
            TO_NODES if me == site_head => self.combine_sites(schedule, course),
            TO_RANKS if me == head => self.finish(schedule, course),
            _ => {}
        }
    }

    /// Makes each operand the prefix within its run of the node, and tells the head of the site what the runs come to.
    fn combine_ranks(&self, schedule: &mut Schedule, course: &mut Course, site_head: u32) {
        for part in &course.parts {
            let run = self.nodes[part.index].0;
            let mut below = None;
            for (rank, &Piece { span, arrived }) in (run.first..).zip(&part.operands) {
                schedule.settle(arrived);
                if rank == self.me {
                    schedule.copy(course.own, span);
                }
                extend(schedule, below, span);
                below = Some(span);
            }
            let Some(all) = below else { continue };
            // What it comes to is on its way while the prefixes are extended.
            let all = if run.first == 0 { all } else { aside(schedule, all) };
            match self.me == site_head {
                true => course.nodes[part.index].span = all,
                false => schedule.send(site_head, all),
            }
        }
    }

    /// Puts what runs of nodes come to to those above them in the site's run, and tells other sites what that comes to.
    fn combine_nodes(&self, schedule: &mut Schedule, course: &mut Course) {
        let own = self.sites.iter().filter(|(_, site)| *site == self.site);
        for &(run, _) in own {
            let mut below = None;
            for &Piece { span, arrived } in &course.nodes[self.nodes_of(run)] {
                schedule.settle(arrived);
                extend(schedule, below, span);
                below = Some(span);
            }
            let way = course.way;
            let hears = |&site: &u32| {
                self.relays.teller(self.site, site) == self.site && self.hears(site, run, self.site)
            };
            let heads = way.next_sites(self.me).filter(hears).map(|site| way.site_head(site));
            let is_extended = run.first > 0 && run.first < self.last[self.site as usize];
            tell(schedule, below, heads.collect(), is_extended);
        }
    }

    /// Sends on what runs of other sites come to, in the order in which that comes.
    fn pass_on(&self, schedule: &mut Schedule, course: &mut Course) {
        let way = course.way;
        let pieces = self.sites.iter().zip(&mut course.sites);
        let mut pieces: Vec<_> =
            pieces.filter_map(|(&(run, of), piece)| Some((run, of, piece.as_mut()?))).collect();
        pieces.sort_by_key(|&(_, of, _)| self.crossings.cost(of, self.site).latency_ns);
        for (run, of, piece) in pieces {
            let hears =
                |&site: &u32| self.relays.teller(of, site) == self.site && self.needs(site, run);
            let heads = way.other_sites(self.me).filter(|&site| site != of).filter(hears);
            let heads: Vec<u32> = heads.map(|site| way.site_head(site)).collect();
            if !heads.is_empty() {
                schedule.settle(std::mem::take(&mut piece.arrived));
                tell(schedule, Some(piece.span), heads, true);
            }
        }
    }

    /// Goes through the runs of all sites in order, and tells each node what is below its runs.
    fn combine_sites(&self, schedule: &mut Schedule, course: &mut Course) {
        let last = self.last[self.site as usize];
        let mut below: Option<Span> = None;
        for (index, &(run, site)) in self.sites.iter().enumerate() {
            if run.first > last {
                break;
            } else if site != self.site {
                if let Some(Piece { span, arrived }) = course.sites[index] {
                    schedule.settle(arrived);
                    extend(schedule, below, span);
                    below = Some(span);
                }
                continue;
            }
            let mut lower = below;
            for node in self.nodes_of(run) {
                self.give(schedule, course, node, lower);
                let all = course.nodes[node].span;
                if node + 1 < self.nodes_of(run).end || run.first < last {
                    extend(schedule, below, all);
                }
                lower = Some(all);
            }
            below = lower;
        }
    }

    /// Tells the head of a node what is below one of its runs.
    fn give(&self, schedule: &mut Schedule, course: &mut Course, node: usize, below: Option<Span>) {
        let Some(span) = below else { return };
        let head = course.way.node_head(self.nodes[node].1);
        if head != self.me {
            return schedule.send(head, span);
        }
        if let Ok(at) = course.parts.binary_search_by_key(&node, |part| part.index) {
            course.parts[at].below = Some(Piece { span, arrived: Ticket::default() });
        }
    }

    /// Puts what is below each run to its prefixes, and gives them to the ranks.
    fn finish(&self, schedule: &mut Schedule, course: &mut Course) {
        for part in &course.parts {
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
                    Some(prefix) if rank == self.me => schedule.copy(prefix, course.result),
                    Some(prefix) => schedule.send(rank, prefix),
                    None => {}
                }
                lower = Some(piece.span);
            }
        }
    }

    /// From which site what a run of a site comes to comes in a stage, if it comes then.
    fn source(&self, run: Run, site: u32, stage: usize) -> Option<u32> {
        if site == self.site || !self.hears(self.site, run, site) {
            return None;
        }
        let by = self.relays.teller(site, self.site);
        (stage == if by == site { CROSSING } else { PASSING }).then_some(by)
    }

    /// Whether a site hears what a run of another comes to: for itself, or to pass it on.
    fn hears(&self, site: u32, run: Run, of: u32) -> bool {
        self.needs(site, run) || self.relays.told_by(site, of).any(|other| self.needs(other, run))
    }

    /// Whether a site has ranks above a run of another.
    fn needs(&self, site: u32, run: Run) -> bool {
        run.first < self.last[site as usize]
    }

    /// Which runs of nodes are in a run of the own site.
    fn nodes_of(&self, run: Run) -> Range<usize> {
        let at = |rank: u32| self.nodes.partition_point(|(node, _)| node.first < rank);
        at(run.first)..at(run.end)
    }

    /// The lowest rank has nothing below it.
    fn has_result(&self, rank: u32) -> bool {
        self.prefix == Prefix::Scan || rank > 0
    }
}

/// The runs of ranks that are in the same place, and where that is.
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

/// Sends what may be extended meanwhile.
fn tell(schedule: &mut Schedule, all: Option<Span>, heads: Vec<u32>, is_extended: bool) {
    if let Some(all) = all.filter(|_| !heads.is_empty()) {
        let sent = if is_extended { aside(schedule, all) } else { all };
        heads.into_iter().for_each(|head| schedule.send(head, sent));
    }
}

fn aside(schedule: &mut Schedule, span: Span) -> Span {
    let aside = schedule.room(span.len);
    schedule.copy(span, aside);
    aside
}

/// Puts what is below to a combination.
fn extend(schedule: &mut Schedule, below: Option<Span>, place: Span) {
    if let Some(below) = below {
        schedule.reduce(below, place);
    }
}
