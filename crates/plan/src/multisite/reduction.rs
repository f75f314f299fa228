//! Reductions over sites: each combines what its ranks have, sites exchange their combinations, and all
//! combine those in the same order.
//!
//! Operands of an operation that does not commute are combined only with those of neighbouring ranks:
//! what goes up is a combination for each *run* of consecutive ranks. Where every site's ranks are
//! consecutive, that is one; where ranks were dealt to the sites in turns, it is as many as there are ranks.
//!
//! What is not cut goes by the shmem of its node, if a rank has a `seat` there: all of a node have.

use crate::algorithms::shmem::Seat;
use crate::crossings::{Crossings, Hearers, Load, Relays};
use crate::multisite::{Cuts, Pace, Pin, Way, lane, timetable};
use crate::reduction::Operands;
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::{Across, Levels};

/// Everyone's `own`, combined, to everyone's output.
pub(crate) fn allreduce(
    schedule: &mut Schedule,
    sites: &Across,
    me: u32,
    operands: Operands,
    seat: Option<Seat>,
) {
    let own = operands.outside_output(schedule, operands.in_place);
    let (cuts, routes) = Cuts::routed(operands.len, operands.element, sites, None, Load::One);
    let levels = cuts.levels(sites);
    let course = |index| {
        let (start, len) = cuts.segment(index);
        let way = Way { levels, lane: lane(index, sites), pin: Pin::None };
        let relays = routes.relays(index);
        let goal = relays.by().map_or(Goal::Everyone, Goal::Past);
        Course::new(way, relays, goal, own.part(start, len), Buffer::Output.span(start, len))
    };
    let courses = (0..cuts.count).map(course).collect();
    let pace = cuts.pace(operands.element, sites);
    let rounds = routes.turns().map(|sites| Rounds { sites, crossing: pace.crossing });
    let begins: Vec<u32> =
        (0..cuts.count).map(|index| rounds.map_or(index, |rounds| rounds.begin(index))).collect();
    let reduction = Reduction::new(sites, levels, Load::Each, me, operands.commutes);
    let seat = seat.filter(|_| cuts.count == 1);
    Reduction { seat, rounds, ..reduction }.run(schedule, courses, &begins, pace);
}

/// Everyone's operands, combined, to the root's output.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    sites: &Across,
    me: u32,
    root: u32,
    operands: Operands,
    seat: Option<Seat>,
) {
    let own = operands.outside_output(schedule, operands.in_place && me == root);
    // Sites that one of them passes on for are no neighbours in the order in which all are combined, and which one that
    // is follows from what messages cost.
    let (home, load) = (sites.long.site(root), Load::of_operands(operands.is_exact));
    let (cuts, routes) = Cuts::routed(operands.len, operands.element, sites, Some(home), load);
    let levels = cuts.levels(sites);
    let others = match (routes.turns(), load) {
        (Some(_), Load::One) => 1,
        (Some(_), Load::Each) => 2,
        (None, _) => u64::from(levels.sites()) - 1,
    };
    let is_beside = heard(levels.nodes_of(home).len() as u64, others).1;
    let pin = match cuts.count {
        1 => Pin::Site(root),
        _ if is_beside => Pin::Beside(root),
        _ => Pin::None,
    };
    let course = |index| {
        let (start, len) = cuts.segment(index);
        let way = Way { levels, lane: lane(index, sites), pin };
        let (own, result) = (own.part(start, len), Buffer::Output.span(start, len));
        let relays = routes.relays(index);
        let goal = match relays {
            Relays::Through { by, .. } if load == Load::Each => Goal::RootPast(root, *by),
            Relays::Straight | Relays::Table { .. } | Relays::Through { .. } => Goal::Root(root),
        };
        Course::new(way, relays, goal, own, result)
    };
    let courses = (0..cuts.count).map(course).collect();
    let begins: Vec<u32> = (0..cuts.count).collect();
    let pace = cuts.pace(operands.element, sites);
    let reduction = Reduction::new(sites, levels, load, me, operands.commutes);
    let seat = seat.filter(|_| cuts.count == 1);
    Reduction { seat, ..reduction }.run(schedule, courses, &begins, pace);
}

/// Everyone's input, combined; block `i` of the result to rank `i`'s output. Each block takes a way of its
/// own, from the shmem of the node, if the rank has a `seat` there: each shows all of its input there once.
pub(crate) fn reduce_scatter(
    schedule: &mut Schedule,
    sites: &Across,
    me: u32,
    blocks: &dyn Fn(u32) -> (u64, u64),
    operands: Operands,
    seat: Option<Seat>,
) {
    let Operands { element, commutes, .. } = operands;
    let ranks = sites.long.ranks().len() as u32;
    let cut = |len| Cuts::among(ranks, len, element, &sites.costs);
    let longest = sites.long.ranks().iter().map(|&rank| blocks(rank).1).max().unwrap_or(0);
    let longest = cut(longest);
    let levels = longest.levels(sites);
    let load = Load::of_operands(operands.is_exact);
    let of_site = |its: u64| operands.bytes().saturating_mul(its) / u64::from(ranks);
    let relays = sites.crossings.relays_among(of_site, load, Hearers::All);
    // What is passed on later does not hold up what comes before it, not even one segment the next.
    let heard_on_ns = |site| sites.crossings.heard_on_ns(&relays, site);
    let mut roots = levels.ranks().to_vec();
    roots.sort_by_key(|&root| heard_on_ns(levels.site(root)));
    let mut distances: Vec<u64> = (0..levels.sites()).map(heard_on_ns).collect();
    distances.sort_unstable();
    distances.dedup();
    let sooner = |site| distances.partition_point(|&ns| ns < heard_on_ns(site)) as u32;
    let waits = (0..levels.sites()).map(|site| sooner(site) * longest.count).collect();
    let (mut courses, mut begins) = (Vec::new(), Vec::new());
    for root in roots {
        let (first, len) = blocks(root);
        let cuts = cut(len);
        let way = Way { levels, lane: levels.place(root), pin: Pin::Site(root) };
        for index in 0..cuts.count {
            let (start, len) = cuts.segment(index);
            let own = Buffer::Input.span(first + start, len);
            let result = Buffer::Output.span(start, len);
            courses.push(Course::new(way, &relays, Goal::Root(root), own, result));
            begins.push(index);
        }
    }
    let pace = longest.pace(element, sites);
    let reduction = Reduction::new(sites, levels, load, me, commutes);
    let takes_turns = relays == Relays::Straight;
    let shows = seat.map(|_| Buffer::Input.span(0, operands.len));
    let reduction = Reduction { takes_turns, waits, seat, shows, ..reduction };
    reduction.run(schedule, courses, &begins, pace);
}

/// How many hundredths of what all have the busiest node of a root's site takes in, of so many nodes, where so many others
/// tell it all they have: of all of them each is head of a part, and the root's node hears of the others' results
/// besides, or the others are, and it hears of the results only. The less, and whether it is the latter.
pub(crate) fn heard(nodes: u64, sites: u64) -> (u64, bool) {
    let others = (nodes - 1).max(1);
    let (with, beside) =
        (100 * (2 * (nodes - 1) + sites) / nodes, 100 * (nodes - 1 + sites) / others);
    (with.min(beside), beside < with)
}

/// Consecutive ranks, from the first to before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: u32,
    pub end: u32,
}

/// The runs of ascending ranks.
fn runs(ranks: impl Iterator<Item = u32>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some(run) if run.end == rank => run.end += 1,
            _ => runs.push(Run { first: rank, end: rank + 1 }),
        }
    }
    runs
}

/// In what order a site tells others its operands and what they come to, where each combines one segment of each round for
/// all: in the first half of a round a segment to each other site, from the next on, so that not all tell the same one at
/// a time; in the other what it has combined, of an earlier round, so that it has been told of that by all.
#[derive(Clone, Copy)]
struct Rounds {
    sites: u32,
    /// How many segments are under way meanwhile.
    crossing: u32,
}

impl Rounds {
    /// When the round of a segment begins.
    fn begin(self, index: u32) -> u32 {
        index / self.sites * self.len()
    }

    /// By how much later a stage of the segment that site `by` combines is due at a site.
    fn turn(self, stage: usize, by: u32, site: u32) -> u32 {
        match stage {
            RANKS | NODES | CROSSING => (by + self.sites - site) % self.sites,
            // Stages are later by `crossing` and one than the last of these; nobody waits in the round of its own.
            _ => {
                let rounds = (self.crossing + self.sites).div_ceil(self.len()).max(1);
                let passed = rounds * self.len() + self.sites - 1 - self.crossing;
                let told = if stage < TO_NODES { 0 } else { self.len() };
                passed + told + by
            }
        }
    }

    fn len(self) -> u32 {
        2 * self.sites
    }
}

/// The combination of the operands of a run. Each lies in a buffer of its own and travels by itself: a
/// datatype's elements may lie between each other's parts as far as the caller's count goes, and beyond
/// that on each other.
#[derive(Clone, Copy, Debug)]
struct Piece {
    run: Run,
    /// Whose it is.
    site: u32,
    /// The first place, in the order of the grid, of a rank that has part in it.
    place: u32,
    span: Span,
    /// Whether nobody else needs what is there.
    is_free: bool,
    arrived: Ticket,
}

/// Who gets the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Everyone,
    /// The same, of a site that combines it for the others.
    Past(u32),
    Root(u32),
    /// The same, of such a site.
    RootPast(u32, u32),
}

impl Goal {
    fn is_all(self) -> bool {
        match self {
            Self::Everyone | Self::Past(_) => true,
            Self::Root(_) | Self::RootPast(..) => false,
        }
    }

    fn root(self) -> Option<u32> {
        match self {
            Self::Everyone | Self::Past(_) => None,
            Self::Root(root) | Self::RootPast(root, _) => Some(root),
        }
    }

    /// The site that combines what all have for others.
    fn past(self) -> Option<u32> {
        match self {
            Self::Past(by) | Self::RootPast(_, by) => Some(by),
            Self::Everyone | Self::Root(_) => None,
        }
    }
}

/// The way of one segment, as one rank sees it.
struct Course<'a> {
    way: Way<'a>,
    relays: &'a Relays,
    goal: Goal,
    own: Span,
    /// Where the result goes, at those who get it.
    result: Span,
    /// What comes from the node, from other nodes, from other sites.
    arriving: [Vec<Piece>; 3],
    /// What is combined so far, the lowest run first.
    combined: Vec<Piece>,
    /// The result, where it comes from elsewhere.
    finished: Ticket,
}

impl<'a> Course<'a> {
    fn new(way: Way<'a>, relays: &'a Relays, goal: Goal, own: Span, result: Span) -> Self {
        let arriving = [Vec::new(), Vec::new(), Vec::new()];
        let (combined, finished) = (Vec::new(), Ticket::default());
        Self { way, relays, goal, own, result, arriving, combined, finished }
    }
}

/// From ranks to the head of their node; from there to that of the site; to other sites; the first two in the root's
/// site, from which nothing crosses: meanwhile what others have does; past bad links; from the head of the site to
/// nodes, or to the root; to ranks.
const RANKS: usize = 0;
const NODES: usize = 1;
const CROSSING: usize = 2;
const ROOT_RANKS: usize = 3;
const ROOT_NODES: usize = 4;
const PASSING: usize = 5;
const TO_NODES: usize = 6;
const TO_RANKS: usize = 7;

struct Reduction<'a> {
    levels: &'a Levels,
    /// All ranks by their nodes, whatever goes through their heads.
    nodes: &'a Levels,
    crossings: &'a Crossings,
    /// What sites pass on to a root: what they come to with what they have heard, or that as it came.
    load: Load,
    me: u32,
    commutes: bool,
    /// Where each site combines segments for the others.
    rounds: Option<Rounds>,
    /// Whether there are roots in all sites, and all tell them what they have.
    takes_turns: bool,
    /// By how many segments what is passed on to the roots of each site is due later, for what comes sooner to be
    /// passed on before; none where that is all one.
    waits: Vec<u32>,
    /// At the shmem of the node, if what goes within it goes by that. Then a node is one run.
    seat: Option<Seat>,
    /// What each rank shows there at once, of which courses take parts.
    shows: Option<Span>,
    /// The runs of each node and of each site, unless the operation commutes.
    runs: [Vec<Vec<Run>>; 2],
}

impl<'a> Reduction<'a> {
    fn new(sites: &'a Across, levels: &'a Levels, load: Load, me: u32, commutes: bool) -> Self {
        let mut runs_of = [Vec::new(), Vec::new()];
        if !commutes {
            for site in 0..levels.sites() {
                let of_node = |node| runs(levels.ranks_of_node(node).iter().copied());
                runs_of[0].extend(levels.nodes_of(site).map(of_node));
                let mut ranks = levels.ranks_of_site(site).to_vec();
                ranks.sort_unstable();
                runs_of[1].push(runs(ranks.into_iter()));
            }
        }
        let (nodes, crossings) = (&sites.long, &*sites.crossings);
        let (rounds, takes_turns, waits) = (None, false, Vec::new());
        let (seat, shows) = (None, None);
        Self {
            levels,
            nodes,
            crossings,
            load,
            me,
            commutes,
            rounds,
            takes_turns,
            waits,
            seat,
            shows,
            runs: runs_of,
        }
    }

    fn run(&self, schedule: &mut Schedule, mut courses: Vec<Course>, begins: &[u32], pace: Pace) {
        let (combined, arrived) = (1 + pace.nodes, 2 + pace.nodes + pace.crossing);
        let is_straight = courses.iter().all(|course| *course.relays == Relays::Straight);
        let passed = arrived + if is_straight { 0 } else { 1 + pace.crossing };
        let delays = [0, 1, combined, combined, 1 + combined, arrived, passed, passed + pace.nodes];
        let order =
            timetable(begins, &delays, |stage, course| self.turn(courses[course].goal, stage));
        for &(stage, course) in &order {
            self.expect(schedule, &mut courses[course], stage);
        }
        if let (Some(seat), Some(all)) = (self.seat, self.shows) {
            seat.show(schedule, all);
        }
        for &(stage, course) in &order {
            self.send(schedule, &mut courses[course], stage);
        }
        schedule.wait();
    }

    /// By how much later a stage is due at this rank's site, so that not all sites send to the same one at a time: from
    /// each the next ones are told first, where nothing is passed on. Where something is, what takes long to whoever does
    /// that waits for the rest. What a site hears of all others is finished after that.
    fn turn(&self, goal: Goal, stage: usize) -> u32 {
        let (own, sites) = (self.levels.site(self.me), self.levels.sites());
        if let (Goal::Past(by), Some(rounds)) = (goal, self.rounds) {
            return rounds.turn(stage, by, own);
        }
        let Goal::Root(root) = goal else { return 0 };
        let root = self.levels.site(root);
        match stage {
            PASSING if !self.takes_turns => self.waits.get(root as usize).copied().unwrap_or(0),
            TO_NODES | TO_RANKS if !self.takes_turns => {
                self.waits.iter().copied().max().unwrap_or(0)
            }
            _ if !self.takes_turns => 0,
            RANKS | NODES | CROSSING => (root + sites - own) % sites,
            _ => sites,
        }
    }

    /// The stages in which this rank's site combines what it has.
    fn gathering(&self, goal: Goal) -> (usize, usize) {
        match goal {
            Goal::Root(root) if self.levels.site(root) == self.levels.site(self.me) => {
                (ROOT_RANKS, ROOT_NODES)
            }
            Goal::Everyone | Goal::Past(_) | Goal::Root(_) | Goal::RootPast(..) => (RANKS, NODES),
        }
    }

    /// The receives of a stage.
    fn expect(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let (way, me) = (course.way, self.me);
        let (is_head, is_site_head) = (me == way.head_of(me), me == way.site_head_of(me));
        let arriving = &mut course.arriving;
        let (relays, goal) = (course.relays, course.goal);
        let len = course.own.len;
        let own = self.levels.site(me);
        let (ranks, nodes) = self.gathering(course.goal);
        let mut expect = |from: u32, run: Run, site: u32, place: u32| {
            let span = schedule.room(len);
            Piece { run, site, place, span, is_free: true, arrived: schedule.expect(from, span) }
        };
        let places = self.nodes;
        match stage {
            _ if stage == ranks && is_head && self.seat.is_none() => {
                let neighbours = way.neighbours(me);
                arriving[0].extend(
                    neighbours.map(|rank| expect(rank, run_of(rank), own, places.place(rank))),
                );
            }
            _ if stage == nodes && is_site_head => {
                for node in way.other_nodes(me) {
                    let head = way.node_head(node);
                    let runs = self.runs(0, node).iter();
                    let place = places.places_of_node(node).0;
                    arriving[1].extend(runs.map(|&run| expect(head, run, own, place)));
                }
            }
            PASSING if is_site_head && self.hears_result(goal).is_some() => {
                let by = self.hears_result(goal).unwrap_or(own);
                if goal.root().is_some_and(|root| root != me) {
                    course.result = schedule.room(len);
                }
                course.finished = schedule.expect(way.site_head(by), course.result);
            }
            CROSSING | PASSING if is_site_head && self.hears(relays, goal) => {
                let source = |site| Some((self.source(relays, goal, site, stage)?, site));
                let mut sources: Vec<(u32, u32)> = way.other_sites(me).filter_map(source).collect();
                sources.sort_by_key(|&(by, site)| self.crossings.cost(site, by).latency_ns);
                for (by, site) in sources {
                    let (head, runs) = (way.site_head(by), self.runs(1, site).iter());
                    let place = places.places_of_site(site).0;
                    arriving[2].extend(runs.map(|&run| expect(head, run, site, place)));
                }
            }
            TO_NODES if goal.root() == Some(me) && !is_site_head => {
                course.finished = schedule.expect(way.site_head_of(me), course.result);
            }
            TO_NODES if goal.is_all() && is_head && !is_site_head => {
                course.finished = schedule.expect(way.site_head_of(me), course.result);
            }
            TO_RANKS if goal.is_all() && !is_head && self.seat.is_none() => {
                course.finished = schedule.expect(way.head_of(me), course.result);
            }
            _ => {}
        }
    }

    /// What is combined and sent in a stage.
    fn send(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let (way, me) = (course.way, self.me);
        let (head, site_head) = (way.head_of(me), way.site_head_of(me));
        let (ranks, nodes) = self.gathering(course.goal);
        match stage {
            _ if stage == ranks && self.seat.is_some() => self.fold(schedule, course),
            _ if stage == ranks && me != head => schedule.send(head, course.own),
            _ if stage == ranks => {
                course.combined = vec![Piece {
                    run: run_of(me),
                    site: self.levels.site(me),
                    place: self.nodes.place(me),
                    span: course.own,
                    is_free: false,
                    arrived: Ticket::default(),
                }];
            }
            _ if stage == nodes && me == head => {
                self.combine(schedule, course, 0);
                self.pass_up(schedule, course, (me != site_head).then_some(site_head).into_iter());
            }
            CROSSING if me == site_head && nodes == NODES => {
                self.combine(schedule, course, 1);
                self.cross(schedule, course, stage);
            }
            PASSING if me == site_head && nodes == ROOT_NODES => self.combine(schedule, course, 1),
            PASSING if me == site_head && course.goal.past() == Some(self.levels.site(me)) => {
                let all = self.conclude(schedule, course);
                let root = course.goal.root().map(|root| self.levels.site(root));
                let told = way.next_sites(me).filter(|site| root.is_none_or(|root| root == *site));
                told.for_each(|site| schedule.send(way.site_head(site), all));
            }
            PASSING if me == site_head => match self.load {
                Load::Each => self.pass_on(schedule, course),
                Load::One => self.cross(schedule, course, stage),
            },
            TO_NODES if me == site_head && self.hears_all(course.goal) => {
                self.finish(schedule, course);
            }
            TO_RANKS
                if let Some(seat) = self.seat
                    && course.goal.is_all() =>
            {
                schedule.settle(std::mem::take(&mut course.finished));
                seat.broadcast(schedule, way.head_position(me), course.result);
            }
            TO_RANKS if me == head && course.goal.is_all() => {
                schedule.settle(std::mem::take(&mut course.finished));
                way.neighbours(me).for_each(|rank| schedule.send(rank, course.result));
            }
            _ => {}
        }
    }

    /// Combines what the ranks of the node have, at its head.
    fn fold(&self, schedule: &mut Schedule, course: &mut Course) {
        let (me, node) = (self.me, self.levels.node(self.me));
        let (head, own) = (course.way.head_position(me), course.own);
        let sum = self.seat.map(|seat| match self.shows {
            Some(_) if seat.me != head => None,
            Some(all) => seat.fold_posted(schedule, own, own.start - all.start),
            None => seat.fold(schedule, head, own),
        });
        course.combined.extend(sum.flatten().map(|span| Piece {
            run: self.runs(0, node)[0],
            site: self.levels.site(me),
            place: self.levels.places_of_node(node).0,
            span,
            is_free: true,
            arrived: Ticket::default(),
        }));
    }

    /// Combines what is there with what has come in a stage: what each node has, and then that of all, whether nodes
    /// have heads or not.
    fn combine(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let mut pieces = std::mem::take(&mut course.combined);
        pieces.append(&mut course.arriving[stage]);
        pieces.sort_by_key(|piece| piece.place);
        let node = |piece: &Piece| self.nodes.node(self.nodes.ranks()[piece.place as usize]);
        let len = course.own.len;
        let of_nodes: Vec<Piece> = pieces
            .chunk_by(|one, next| node(one) == node(next))
            .flat_map(|pieces| self.merge(schedule, pieces.to_vec(), len))
            .collect();
        course.combined = self.merge(schedule, of_nodes, len);
    }

    /// From which site what a site has comes in a stage, if it comes then.
    fn source(&self, relays: &Relays, goal: Goal, site: u32, stage: usize) -> Option<u32> {
        let own = self.levels.site(self.me);
        let (by, is_late) = match goal {
            Goal::Everyone => {
                let by = relays.teller(site, own);
                (by, by != site)
            }
            Goal::Past(by) | Goal::RootPast(_, by) if by == own => (site, false),
            Goal::Past(_) | Goal::RootPast(..) => return None,
            Goal::Root(root) => {
                let root = self.levels.site(root);
                let by = relays.teller(root, site);
                if site == root {
                    return None;
                } else if by == own {
                    (site, self.delays(relays, site, root))
                } else if own == root && self.load == Load::Each {
                    (by, true)
                } else {
                    return None;
                }
            }
        };
        (stage == if is_late { PASSING } else { CROSSING }).then_some(by)
    }

    /// Sends what its site has to those who hear it of it, where this is the stage for it.
    fn cross(&self, schedule: &mut Schedule, course: &mut Course, stage: usize) {
        let (way, relays, own) = (course.way, course.relays, self.levels.site(self.me));
        let heads: Vec<u32> = match course.goal {
            Goal::Everyone => {
                let told = way.next_sites(self.me).filter(|&site| relays.teller(own, site) == own);
                told.map(|site| way.site_head(site)).collect()
            }
            Goal::Past(by) | Goal::RootPast(_, by) => {
                (own != by).then(|| way.site_head(by)).into_iter().collect()
            }
            Goal::Root(root) => {
                let root = self.levels.site(root);
                let due = if self.delays(relays, own, root) { PASSING } else { CROSSING };
                let is_due = stage == due && own != root;
                is_due.then(|| way.site_head(relays.teller(root, own))).into_iter().collect()
            }
        };
        if stage == PASSING && !heads.is_empty() {
            self.combine(schedule, course, 2);
        }
        self.pass_up(schedule, course, heads.into_iter());
    }

    /// Sends on what other sites have, as it came, so that all combine the same, and in the order in which it comes.
    fn pass_on(&self, schedule: &mut Schedule, course: &mut Course) {
        let (relays, own) = (course.relays, self.levels.site(self.me));
        let hears = |site: u32, of: u32| match course.goal {
            Goal::Everyone => relays.teller(of, site) == own,
            Goal::Past(_) | Goal::RootPast(..) => false,
            Goal::Root(root) => self.levels.site(root) == site,
        };
        let arriving = &mut course.arriving[2];
        arriving.sort_by_key(|piece| self.crossings.cost(piece.site, own).latency_ns);
        for piece in arriving {
            for site in course.way.other_sites(self.me).filter(|&site| hears(site, piece.site)) {
                schedule.settle(std::mem::take(&mut piece.arrived));
                schedule.send(course.way.site_head(site), piece.span);
                piece.is_free = false;
            }
        }
    }

    /// Whether what a site has for a root waits for what it passes on with it.
    fn delays(&self, relays: &Relays, site: u32, root: u32) -> bool {
        self.load == Load::One && relays.told_by(site, root).next().is_some()
    }

    fn pass_up(&self, schedule: &mut Schedule, course: &mut Course, to: impl Iterator<Item = u32>) {
        for head in to {
            for piece in &mut course.combined {
                schedule.send(head, piece.span);
                piece.is_free = false;
            }
        }
    }

    /// Combines what all sites have, in the order of the sites, so that all find the same.
    fn conclude(&self, schedule: &mut Schedule, course: &mut Course) -> Span {
        let mut pieces = std::mem::take(&mut course.arriving[2]);
        pieces.append(&mut course.combined);
        pieces.sort_by_key(|piece| piece.place);
        course.combined = self.merge(schedule, pieces, course.own.len);
        course.combined.first().map_or(course.own, |piece| piece.span)
    }

    /// Passes on what that comes to.
    fn finish(&self, schedule: &mut Schedule, course: &mut Course) {
        let (way, me) = (course.way, self.me);
        let all = match self.hears_result(course.goal) {
            Some(_) => {
                schedule.settle(std::mem::take(&mut course.finished));
                course.result
            }
            None => self.conclude(schedule, course),
        };
        match course.goal {
            Goal::Everyone | Goal::Past(_) => {
                way.other_nodes(me).for_each(|node| schedule.send(way.node_head(node), all));
                if all != course.result {
                    schedule.copy(all, course.result);
                }
            }
            Goal::Root(root) | Goal::RootPast(root, _) if root != me => schedule.send(root, all),
            Goal::Root(_) | Goal::RootPast(..) if all != course.result => {
                schedule.copy(all, course.result);
            }
            Goal::Root(_) | Goal::RootPast(..) => {}
        }
    }

    /// Combinations of neighbouring runs, or of all, in place where nobody needs the parts.
    fn merge(&self, schedule: &mut Schedule, mut pieces: Vec<Piece>, len: u64) -> Vec<Piece> {
        if !self.commutes {
            pieces.sort_by_key(|piece| piece.run.first);
        }
        let mut merged: Vec<Piece> = Vec::new();
        for piece in pieces {
            schedule.settle(piece.arrived);
            match merged.last_mut() {
                Some(last) if self.commutes || last.run.end == piece.run.first => {
                    let into = if piece.is_free { piece.span } else { schedule.room(len) };
                    if into != piece.span {
                        schedule.copy(piece.span, into);
                    }
                    schedule.reduce(last.span, into);
                    let run = Run { first: last.run.first, end: piece.run.end };
                    let arrived = Ticket::default();
                    *last = Piece { run, span: into, is_free: true, arrived, ..*last };
                }
                _ => merged.push(Piece { arrived: Ticket::default(), ..piece }),
            }
        }
        merged
    }

    /// Of which site this rank's hears what all have comes to.
    fn hears_result(&self, goal: Goal) -> Option<u32> {
        let own = self.levels.site(self.me);
        match goal {
            Goal::Past(by) => Some(by).filter(|by| *by != own),
            Goal::RootPast(root, by) => {
                Some(by).filter(|by| *by != own && self.levels.site(root) == own)
            }
            Goal::Everyone | Goal::Root(_) => None,
        }
    }

    /// Whether this rank's site hears what any other has.
    fn hears(&self, relays: &Relays, goal: Goal) -> bool {
        let own = self.levels.site(self.me);
        match goal {
            Goal::Everyone => true,
            Goal::Past(by) | Goal::RootPast(_, by) => own == by,
            Goal::Root(root) => {
                let root = self.levels.site(root);
                own == root || relays.told_by(own, root).next().is_some()
            }
        }
    }

    /// Whether this rank's site combines what all have, or hears of the result.
    fn hears_all(&self, goal: Goal) -> bool {
        match goal {
            Goal::Everyone | Goal::Past(_) => true,
            Goal::Root(root) | Goal::RootPast(root, _) => {
                self.levels.site(root) == self.levels.site(self.me)
            }
        }
    }

    /// The runs of a node or a site; all are one where order does not matter.
    fn runs(&self, level: usize, index: u32) -> &[Run] {
        if self.commutes { &ANY } else { &self.runs[level][index as usize] }
    }
}

fn run_of(rank: u32) -> Run {
    Run { first: rank, end: rank + 1 }
}

/// What stands for any ranks.
const ANY: [Run; 1] = [Run { first: 0, end: 0 }];

#[cfg(test)]
mod tests {
    use super::*;

    /// What site `from` tells site `to` of so many segments, in the order in which `site` has it.
    fn told(rounds: Rounds, segments: u32, [from, to, site]: [u32; 3]) -> Vec<(usize, u32)> {
        let by = |index: u32| (index + index / rounds.sites) % rounds.sites;
        let delay = |stage| if stage == CROSSING { 0 } else { 1 + rounds.crossing };
        let due =
            |stage, index| rounds.begin(index) + delay(stage) + rounds.turn(stage, by(index), site);
        let of = |stage, teller| {
            let its = (0..segments).filter(move |&index| by(index) == teller);
            its.map(move |index| (due(stage, index), stage, index))
        };
        let mut all: Vec<_> = of(CROSSING, to).chain(of(PASSING, from)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, stage, index)| (stage, index)).collect()
    }

    #[test]
    fn both_ends_have_operands_and_results_in_the_same_order_and_none_waits_in_its_own_round() {
        for (sites, crossing) in (2..12).flat_map(|sites| [0, 1, 5, 64].map(|far| (sites, far))) {
            let rounds = Rounds { sites, crossing };
            for (from, to) in (0..sites).flat_map(|from| (0..from).map(move |to| (from, to))) {
                for [from, to] in [[from, to], [to, from]] {
                    let at = |site| told(rounds, 5 * sites, [from, to, site]);
                    assert_eq!(at(from), at(to), "{from} to {to} of {sites}, {crossing} under way");
                }
            }
            for (by, site) in (0..sites).flat_map(|by| (0..sites).map(move |site| (by, site))) {
                let passes = 1 + crossing + rounds.turn(PASSING, by, by);
                assert!(passes >= rounds.turn(CROSSING, by, site) + rounds.len());
            }
        }
    }
}
