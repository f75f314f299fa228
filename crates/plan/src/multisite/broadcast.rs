//! Data that go from one rank to all, and from all ranks to all.

use crate::algorithms::shmem::Seat;
use crate::crossings::{Hearers, Load, Relays};
use crate::multisite::{Cuts, Pace, Pin, Way, lane, timetable};
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::Across;

/// `len` bytes of the root's output to everyone's; at the shmem of its node, if the rank has a `seat` there, what is
/// not cut.
pub(crate) fn broadcast(
    schedule: &mut Schedule,
    sites: &Across,
    me: u32,
    root: u32,
    len: u64,
    seat: Option<Seat>,
) {
    let (cuts, routes) = Cuts::routed(len, 1, sites, Some(sites.long.site(root)), Load::One);
    // What is short leaves from the root itself; else the nodes of its site send parts.
    let pin = if cuts.count == 1 { Pin::Site(root) } else { Pin::Node(root) };
    let levels = cuts.levels(sites);
    let seat = seat.filter(|_| cuts.count == 1);
    let course = |index| {
        let (start, len) = cuts.segment(index);
        let way = Way { levels, lane: lane(index, sites), pin };
        let span = Buffer::Output.span(start, len);
        Course { seat, ..Course::new(way, routes.relays(index), root, me, span) }
    };
    let courses: Vec<Course> = (0..cuts.count).map(course).collect();
    let begins: Vec<u32> = (0..cuts.count).collect();
    run(schedule, me, courses, &begins, cuts.pace(1, sites));
}

/// Every rank's block to everyone, straight from whoever has it. `blocks` says where they lie in the
/// output, where each rank has its own already.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    sites: &Across,
    me: u32,
    blocks: &dyn Fn(u32) -> (u64, u64),
) {
    let levels = &sites.long;
    let ranks = levels.ranks().len() as u32;
    let cut = |len| Cuts::among(ranks, len, 1, &sites.costs);
    let longest = levels.ranks().iter().map(|&rank| blocks(rank).1).max().unwrap_or(0);
    let (mut courses, mut begins) = (Vec::new(), Vec::new());
    let relays = sites.crossings.relays_among(
        |ranks| ranks.saturating_mul(longest),
        Load::One,
        Hearers::All,
    );
    // In the order of the grid, each rank first: else all would send to the same one at a time. And what is passed on
    // later does not hold up what comes before it.
    let mut roots = levels.ranks().to_vec();
    roots.sort_by_key(|&root| sites.crossings.told_on_ns(&relays, levels.site(root)));
    for root in roots {
        let (first, len) = blocks(root);
        let cuts = cut(len);
        let way = Way { levels, lane: levels.place(root), pin: Pin::Site(root) };
        for index in 0..cuts.count {
            let (start, len) = cuts.segment(index);
            courses.push(Course::new(
                way,
                &relays,
                root,
                me,
                Buffer::Output.span(first + start, len),
            ));
            begins.push(index);
        }
    }
    let pace = cut(longest).pace(1, sites);
    run(schedule, me, courses, &begins, pace);
}

/// A span's way from a root to all, as one rank sees it.
struct Course<'a> {
    way: Way<'a>,
    relays: &'a Relays,
    root: u32,
    span: Span,
    /// From whom it comes, and in which stage.
    source: Option<(usize, u32)>,
    /// Whether it comes to the rank's site past a third one.
    is_passed_on: bool,
    /// Where it goes from the head of the node to its ranks, if not by messages.
    seat: Option<Seat>,
    arrived: Ticket,
}

/// From the root to the head of its site; to other sites; to the nodes and ranks of the root's site, for whom
/// nothing has to cross first; past bad links; to nodes and ranks elsewhere.
const ENTRY: usize = 0;
const CROSSING: usize = 1;
const HOME_NODES: usize = 2;
const HOME_RANKS: usize = 3;
const PASSING: usize = 4;
const NODES: usize = 5;
const RANKS: usize = 6;

fn run(schedule: &mut Schedule, me: u32, mut courses: Vec<Course>, begins: &[u32], pace: Pace) {
    let arrived = 2 + pace.crossing;
    let home = 1 + pace.nodes;
    let delays = [0, 1, 1, home, arrived, arrived, arrived + pace.nodes];
    let order = timetable(begins, &delays, |stage, course| {
        let is_given = stage == NODES || stage == RANKS;
        if is_given && courses[course].is_passed_on { 1 + pace.crossing } else { 0 }
    });
    for &(stage, index) in &order {
        let Course { source, span, seat, ref mut arrived, .. } = courses[index];
        let by_shmem = seat.is_some() && (stage == HOME_RANKS || stage == RANKS);
        if let Some((_, from)) = source.filter(|source| source.0 == stage && !by_shmem) {
            *arrived = schedule.expect(from, span);
        }
    }
    for &(stage, index) in &order {
        courses[index].send(schedule, me, stage);
    }
    schedule.wait();
}

impl<'a> Course<'a> {
    fn new(way: Way<'a>, relays: &'a Relays, root: u32, me: u32, span: Span) -> Self {
        let levels = way.levels;
        let (head, site_head) = (way.head_of(me), way.site_head_of(me));
        let home = levels.site(root);
        let is_home = levels.site(me) == home;
        let teller = relays.teller(home, levels.site(me));
        let source = if me == root {
            None
        } else if me == site_head {
            let crossing = if teller == home { CROSSING } else { PASSING };
            Some(if is_home { (ENTRY, root) } else { (crossing, way.site_head(teller)) })
        } else if me == head {
            Some((if is_home { HOME_NODES } else { NODES }, site_head))
        } else {
            Some((if is_home { HOME_RANKS } else { RANKS }, head))
        };
        let is_passed_on = !is_home && teller != home;
        let (seat, arrived) = (None, Ticket::default());
        Self { way, relays, root, span, source, is_passed_on, seat, arrived }
    }

    /// What this rank sends in a stage, once it has it.
    fn send(&mut self, schedule: &mut Schedule, me: u32, stage: usize) {
        let Self { way, relays, root, span, seat, .. } = *self;
        let is_site_head = me == way.site_head_of(me);
        let (own, home) = (way.levels.site(me), way.levels.site(root));
        let is_home = own == home;
        let mut pass = |to: u32| {
            if to != root && to != me {
                schedule.settle(std::mem::take(&mut self.arrived));
                schedule.send(to, span);
            }
        };
        match stage {
            ENTRY if me == root => pass(way.site_head_of(root)),
            CROSSING if is_site_head && is_home => {
                let straight = way.next_sites(me).filter(|&site| relays.teller(home, site) == home);
                straight.for_each(|site| pass(way.site_head(site)));
            }
            PASSING if is_site_head && !is_home => {
                relays.told_by(own, home).for_each(|site| pass(way.site_head(site)));
            }
            HOME_NODES | NODES if is_site_head && is_home == (stage == HOME_NODES) => {
                way.other_nodes(me).for_each(|node| pass(way.node_head(node)));
            }
            HOME_RANKS | RANKS if is_home == (stage == HOME_RANKS) => match seat {
                Some(seat) => {
                    schedule.settle(std::mem::take(&mut self.arrived));
                    seat.broadcast(schedule, way.head_position(me), span);
                }
                None if me == way.head_of(me) => way.neighbours(me).for_each(pass),
                None => {}
            },
            _ => {}
        }
    }
}
