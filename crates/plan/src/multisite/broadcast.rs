//! Broadcast and allgather over several sites.

use crate::algorithms::shmem::ShmAccess;
use crate::crossings::{Load, Receivers, Relays};
use crate::multisite::{Cuts, InFlight, RootRole, Route, leader_index, timetable};
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::Grid;

/// Sends `len` bytes of the root's output to all. Uncut data go by the shared segment of a node if
/// `shm` is given.
pub(crate) fn broadcast(
    schedule: &mut Schedule,
    sites: &Grid,
    me: u32,
    root: u32,
    len: u64,
    shm: Option<ShmAccess>,
) {
    let (cuts, routes) = Cuts::routed(len, 1, sites, Some(sites.long.site(root)), Load::One);
    // Short data leave from the root itself; of long data the nodes of its site send parts.
    let root_role = if cuts.count == 1 { RootRole::Site(root) } else { RootRole::Node(root) };
    let levels = cuts.levels(sites);
    let shm = shm.filter(|_| cuts.count == 1);
    let transfer = |index| {
        let (start, len) = cuts.segment(index);
        let route = Route { levels, leader_index: leader_index(index, sites), root_role };
        let span = Buffer::Output.span(start, len);
        Transfer { shm, ..Transfer::new(route, routes.relays(index), root, me, span) }
    };
    let transfers: Vec<Transfer> = (0..cuts.count).map(transfer).collect();
    let begins: Vec<u32> = (0..cuts.count).collect();
    run(schedule, me, transfers, &begins, cuts.in_flight(1, sites));
}

/// Gathers every rank's block everywhere, directly from each rank. `blocks` gives their places in
/// the output, where each rank has its own already.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    sites: &Grid,
    me: u32,
    blocks: &dyn Fn(u32) -> (u64, u64),
) {
    let levels = &sites.long;
    let ranks = levels.ranks().len() as u32;
    let cut = |len| Cuts::among(ranks, len, 1, &sites.costs);
    let longest = levels.ranks().iter().map(|&rank| blocks(rank).1).max().unwrap_or(0);
    let (mut transfers, mut begins) = (Vec::new(), Vec::new());
    let relays = sites.crossings.relays_among(
        |ranks| ranks.saturating_mul(longest),
        Load::One,
        Receivers::All,
    );
    // In the order of the grid, each rank first, so that not all send to the same one at a time.
    // Data that are relayed later do not delay earlier data.
    let mut roots = levels.ranks().to_vec();
    roots.sort_by_key(|&root| sites.crossings.outward_relay_ns(&relays, levels.site(root)));
    for root in roots {
        let (first, len) = blocks(root);
        let cuts = cut(len);
        let route =
            Route { levels, leader_index: levels.place(root), root_role: RootRole::Site(root) };
        for index in 0..cuts.count {
            let (start, len) = cuts.segment(index);
            transfers.push(Transfer::new(
                route,
                &relays,
                root,
                me,
                Buffer::Output.span(first + start, len),
            ));
            begins.push(index);
        }
    }
    let in_flight = cut(longest).in_flight(1, sites);
    run(schedule, me, transfers, &begins, in_flight);
}

/// Transfer of a span from a root to all, as one rank sees it.
struct Transfer<'a> {
    route: Route<'a>,
    relays: &'a Relays,
    root: u32,
    span: Span,
    /// Stage in which the span arrives, and its sender.
    source: Option<(usize, u32)>,
    /// True if the span reaches the rank's site by a relay.
    is_passed_on: bool,
    /// The shared segment that the node's leader uses, if not messages.
    shm: Option<ShmAccess>,
    arrived: Ticket,
}

/// Stage: from the root to the leader of its site.
const ENTRY: usize = 0;
/// Stage: to other sites.
const CROSSING: usize = 1;
/// Stage: to the nodes of the root's site, for which nothing has to cross first.
const ROOT_NODES: usize = 2;
/// Stage: to the ranks of the root's site.
const ROOT_RANKS: usize = 3;
/// Stage: by relays.
const PASSING: usize = 4;
/// Stage: to nodes elsewhere.
const NODES: usize = 5;
/// Stage: to ranks elsewhere.
const RANKS: usize = 6;

fn run(
    schedule: &mut Schedule,
    me: u32,
    mut transfers: Vec<Transfer>,
    begins: &[u32],
    in_flight: InFlight,
) {
    let arrived = 2 + in_flight.crossing;
    let root_site = 1 + in_flight.nodes;
    let delays = [0, 1, 1, root_site, arrived, arrived, arrived + in_flight.nodes];
    let order = timetable(begins, &delays, |stage, transfer| {
        let is_given = stage == NODES || stage == RANKS;
        if is_given && transfers[transfer].is_passed_on { 1 + in_flight.crossing } else { 0 }
    });
    for &(stage, index) in &order {
        let Transfer { source, span, shm, ref mut arrived, .. } = transfers[index];
        let by_shmem = shm.is_some() && (stage == ROOT_RANKS || stage == RANKS);
        if let Some((_, from)) = source.filter(|source| source.0 == stage && !by_shmem) {
            *arrived = schedule.expect(from, span);
        }
    }
    for &(stage, index) in &order {
        transfers[index].send(schedule, me, stage);
    }
    schedule.wait();
}

impl<'a> Transfer<'a> {
    fn new(route: Route<'a>, relays: &'a Relays, root: u32, me: u32, span: Span) -> Self {
        let levels = route.levels;
        let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
        let root_site = levels.site(root);
        let in_root_site = levels.site(me) == root_site;
        let sender = relays.sender(root_site, levels.site(me));
        let source = if me == root {
            None
        } else if me == site_leader {
            let crossing = if sender == root_site { CROSSING } else { PASSING };
            Some(if in_root_site { (ENTRY, root) } else { (crossing, route.site_leader(sender)) })
        } else if me == leader {
            Some((if in_root_site { ROOT_NODES } else { NODES }, site_leader))
        } else {
            Some((if in_root_site { ROOT_RANKS } else { RANKS }, leader))
        };
        let is_passed_on = !in_root_site && sender != root_site;
        let (shm, arrived) = (None, Ticket::default());
        Self { route, relays, root, span, source, is_passed_on, shm, arrived }
    }

    /// Sends this rank's messages of a stage, after the span has arrived.
    fn send(&mut self, schedule: &mut Schedule, me: u32, stage: usize) {
        let Self { route, relays, root, span, shm, .. } = *self;
        let is_site_leader = me == route.site_leader_of(me);
        let (own, root_site) = (route.levels.site(me), route.levels.site(root));
        let in_root_site = own == root_site;
        let mut pass = |to: u32| {
            if to != root && to != me {
                schedule.settle(std::mem::take(&mut self.arrived));
                schedule.send(to, span);
            }
        };
        match stage {
            ENTRY if me == root => pass(route.site_leader_of(root)),
            CROSSING if is_site_leader && in_root_site => {
                let straight = route
                    .next_sites(me)
                    .filter(|&site| relays.sender(root_site, site) == root_site);
                straight.for_each(|site| pass(route.site_leader(site)));
            }
            PASSING if is_site_leader && !in_root_site => {
                relays.forwarded_by(own, root_site).for_each(|site| pass(route.site_leader(site)));
            }
            ROOT_NODES | NODES if is_site_leader && in_root_site == (stage == ROOT_NODES) => {
                route.other_nodes(me).for_each(|node| pass(route.node_leader(node)));
            }
            ROOT_RANKS | RANKS if in_root_site == (stage == ROOT_RANKS) => match shm {
                Some(shm) => {
                    schedule.settle(std::mem::take(&mut self.arrived));
                    shm.broadcast(schedule, route.leader_position(me), span);
                }
                None if me == route.leader_of(me) => route.neighbours(me).for_each(pass),
                None => {}
            },
            _ => {}
        }
    }
}
