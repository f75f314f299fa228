//! Reductions over sites. Each site combines its ranks' operands, sites exchange their
//! combinations, and all combine those in the same order.
//!
//! Operands of an operation that does not commute are combined only with those of neighbouring
//! ranks. A site then sends one combination for each *run* of consecutive ranks. That is one if
//! every site's ranks are consecutive, and one per rank if ranks alternate between sites.
//!
//! Uncut data go by the shared segment of a node if `shm` is given; all ranks of a node have it, or
//! none.

mod rounds;

use self::rounds::Rounds;
use crate::algorithms::shmem::ShmAccess;
use crate::crossings::{Crossings, Load, Receivers, Relays};
use crate::multisite::{Cuts, InFlight, RootRole, Route, leader_index, timetable};
use crate::reduction::Operands;
use crate::schedule::{Buffer, Schedule, Span, Ticket};
use crate::topology::{Grid, Levels};

/// Combines everyone's `own` to everyone's output.
pub(crate) fn allreduce(
    schedule: &mut Schedule,
    sites: &Grid,
    me: u32,
    operands: Operands,
    shm: Option<ShmAccess>,
) {
    let own = operands.outside_output(schedule, operands.in_place);
    let (cuts, routes) = Cuts::routed(operands.len, operands.element, sites, None, Load::One);
    let levels = cuts.levels(sites);
    let transfer = |index| {
        let (start, len) = cuts.segment(index);
        let route =
            Route { levels, leader_index: leader_index(index, sites), root_role: RootRole::None };
        let relays = routes.relays(index);
        let goal = relays.by().map_or(Goal::Everyone, Goal::Past);
        Transfer::new(route, relays, goal, own.part(start, len), Buffer::Output.span(start, len))
    };
    let transfers = (0..cuts.count).map(transfer).collect();
    let in_flight = cuts.in_flight(operands.element, sites);
    let rounds = routes.rotation().map(|sites| Rounds { sites, crossing: in_flight.crossing });
    let begins: Vec<u32> =
        (0..cuts.count).map(|index| rounds.map_or(index, |rounds| rounds.begin(index))).collect();
    let reduction = Reduction::new(sites, levels, Load::Each, me, operands.commutes);
    let shm = shm.filter(|_| cuts.count == 1);
    Reduction { shm, rounds, ..reduction }.run(schedule, transfers, &begins, in_flight);
}

/// Combines everyone's operands to the root's output.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    sites: &Grid,
    me: u32,
    root: u32,
    operands: Operands,
    shm: Option<ShmAccess>,
) {
    let own = operands.outside_output(schedule, operands.in_place && me == root);
    // A relay combines only if the result is exact. Its sites need not be neighbours in the order of
    // combining, and the choice of relay depends on message costs.
    let (root_site, load) = (sites.long.site(root), Load::of_operands(operands.is_exact));
    let (cuts, routes) = Cuts::routed(operands.len, operands.element, sites, Some(root_site), load);
    let levels = cuts.levels(sites);
    let others = match (routes.rotation(), load) {
        (Some(_), Load::One) => 1,
        (Some(_), Load::Each) => 2,
        (None, _) => u64::from(levels.sites()) - 1,
    };
    let is_beside = root_intake(levels.nodes_of(root_site).len() as u64, others).1;
    let root_role = match cuts.count {
        1 => RootRole::Site(root),
        _ if is_beside => RootRole::Beside(root),
        _ => RootRole::None,
    };
    let transfer = |index| {
        let (start, len) = cuts.segment(index);
        let route = Route { levels, leader_index: leader_index(index, sites), root_role };
        let (own, result) = (own.part(start, len), Buffer::Output.span(start, len));
        let relays = routes.relays(index);
        let goal = match relays {
            Relays::Through { by, .. } if load == Load::Each => Goal::RootPast(root, *by),
            Relays::Straight | Relays::Table { .. } | Relays::Through { .. } => Goal::Root(root),
        };
        Transfer::new(route, relays, goal, own, result)
    };
    let transfers = (0..cuts.count).map(transfer).collect();
    let begins: Vec<u32> = (0..cuts.count).collect();
    let in_flight = cuts.in_flight(operands.element, sites);
    let reduction = Reduction::new(sites, levels, load, me, operands.commutes);
    let shm = shm.filter(|_| cuts.count == 1);
    Reduction { shm, ..reduction }.run(schedule, transfers, &begins, in_flight);
}

/// Combines everyone's input and sends block `i` of the result to rank `i`'s output. Each block
/// takes its own path. If `shm` is given, each rank posts all its input in the shared segment once.
pub(crate) fn reduce_scatter(
    schedule: &mut Schedule,
    sites: &Grid,
    me: u32,
    blocks: &dyn Fn(u32) -> (u64, u64),
    operands: Operands,
    shm: Option<ShmAccess>,
) {
    let Operands { element, commutes, .. } = operands;
    let ranks = sites.long.ranks().len() as u32;
    let cut = |len| Cuts::among(ranks, len, element, &sites.costs);
    let longest = sites.long.ranks().iter().map(|&rank| blocks(rank).1).max().unwrap_or(0);
    let longest = cut(longest);
    let levels = longest.levels(sites);
    let load = Load::of_operands(operands.is_exact);
    let of_site = |its: u64| operands.bytes().saturating_mul(its) / u64::from(ranks);
    let relays = sites.crossings.relays_among(of_site, load, Receivers::All);
    // Data that are relayed later do not delay earlier data, not even by one segment.
    let inward_relay_ns = |site| sites.crossings.inward_relay_ns(&relays, site);
    let mut roots = levels.ranks().to_vec();
    roots.sort_by_key(|&root| inward_relay_ns(levels.site(root)));
    let mut distances: Vec<u64> = (0..levels.sites()).map(inward_relay_ns).collect();
    distances.sort_unstable();
    distances.dedup();
    let sooner = |site| distances.partition_point(|&ns| ns < inward_relay_ns(site)) as u32;
    let waits = (0..levels.sites()).map(|site| sooner(site) * longest.count).collect();
    let (mut transfers, mut begins) = (Vec::new(), Vec::new());
    for root in roots {
        let (first, len) = blocks(root);
        let cuts = cut(len);
        let route =
            Route { levels, leader_index: levels.place(root), root_role: RootRole::Site(root) };
        for index in 0..cuts.count {
            let (start, len) = cuts.segment(index);
            let own = Buffer::Input.span(first + start, len);
            let result = Buffer::Output.span(start, len);
            transfers.push(Transfer::new(route, &relays, Goal::Root(root), own, result));
            begins.push(index);
        }
    }
    let in_flight = longest.in_flight(element, sites);
    let reduction = Reduction::new(sites, levels, load, me, commutes);
    let rotates = relays == Relays::Straight;
    let posted = shm.map(|_| Buffer::Input.span(0, operands.len));
    let reduction = Reduction { rotates, waits, shm, posted, ..reduction };
    reduction.run(schedule, transfers, &begins, in_flight);
}

/// Returns the intake of the busiest node in a root's site of `nodes` nodes, in percent of the
/// data, if `sites` other sites send all theirs. Either each node leads a part, and the root's node
/// also receives the others' results. Or only the other nodes lead, and the root's node receives
/// results only. The flag is true if the second is less.
pub(crate) fn root_intake(nodes: u64, sites: u64) -> (u64, bool) {
    let others = (nodes - 1).max(1);
    let (with, beside) =
        (100 * (2 * (nodes - 1) + sites) / nodes, 100 * (nodes - 1 + sites) / others);
    (with.min(beside), beside < with)
}

/// Consecutive ranks from `first` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: u32,
    pub end: u32,
}

/// Returns the runs of ascending ranks.
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

/// Combination of the operands of a run. Each has its own buffer and message: elements of a
/// datatype may lie between each other's parts as far as the caller's count goes, and overlap
/// beyond that.
#[derive(Clone, Copy, Debug)]
struct Operand {
    run: Run,
    /// Site of the run.
    site: u32,
    /// First place, in the order of the grid, of a rank whose operand is included.
    place: u32,
    span: Span,
    /// True if no other step needs the data there.
    is_free: bool,
    arrived: Ticket,
}

/// Receivers of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Everyone,
    /// All ranks, by a site that combines for the others.
    Past(u32),
    Root(u32),
    /// The root, by a site that combines for the others.
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

    /// Returns the site that combines all data for others.
    fn past(self) -> Option<u32> {
        match self {
            Self::Past(by) | Self::RootPast(_, by) => Some(by),
            Self::Everyone | Self::Root(_) => None,
        }
    }
}

/// Transfer of one segment, as one rank sees it.
struct Transfer<'a> {
    route: Route<'a>,
    relays: &'a Relays,
    goal: Goal,
    own: Span,
    /// Span of the result, at its receivers.
    result: Span,
    /// Data arriving from the node, from other nodes, and from other sites.
    arriving: [Vec<Operand>; 3],
    /// Combinations so far, lowest run first.
    combined: Vec<Operand>,
    /// Receive of the result, if it arrives from elsewhere.
    finished: Ticket,
}

impl<'a> Transfer<'a> {
    fn new(route: Route<'a>, relays: &'a Relays, goal: Goal, own: Span, result: Span) -> Self {
        let arriving = [Vec::new(), Vec::new(), Vec::new()];
        let (combined, finished) = (Vec::new(), Ticket::default());
        Self { route, relays, goal, own, result, arriving, combined, finished }
    }
}

/// Stage: from ranks to the leader of their node.
const RANKS: usize = 0;
/// Stage: from leaders of nodes to the leader of the site.
const NODES: usize = 1;
/// Stage: to other sites.
const CROSSING: usize = 2;
/// Stage: as [`RANKS`] in the root's site, from which nothing crosses; it runs during the crossing.
const ROOT_RANKS: usize = 3;
/// Stage: as [`NODES`] in the root's site.
const ROOT_NODES: usize = 4;
/// Stage: by relays.
const PASSING: usize = 5;
/// Stage: from the leader of the site to nodes, or to the root.
const TO_NODES: usize = 6;
/// Stage: to ranks.
const TO_RANKS: usize = 7;

struct Reduction<'a> {
    levels: &'a Levels,
    /// All ranks by their nodes, also if data skip the nodes' leaders.
    nodes: &'a Levels,
    crossings: &'a Crossings,
    /// Form of the data that sites relay to a root: combined with their own, or unchanged.
    load: Load,
    me: u32,
    commutes: bool,
    /// Order of rounds, if each site combines segments for the others.
    rounds: Option<Rounds>,
    /// True if there are roots in all sites, and all send directly to them.
    rotates: bool,
    /// Delay in segments of data relayed to the roots of each site, so that earlier data are
    /// relayed first; empty if irrelevant.
    waits: Vec<u32>,
    /// Shared segment of the node, if the call uses it. A node is then one run.
    shm: Option<ShmAccess>,
    /// Data that each rank posts there at once, of which transfers take parts.
    posted: Option<Span>,
    /// Runs of each node and of each site, unless the operation commutes.
    runs: [Vec<Vec<Run>>; 2],
}

impl<'a> Reduction<'a> {
    fn new(sites: &'a Grid, levels: &'a Levels, load: Load, me: u32, commutes: bool) -> Self {
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
        let (rounds, rotates, waits) = (None, false, Vec::new());
        let (shm, posted) = (None, None);
        Self {
            levels,
            nodes,
            crossings,
            load,
            me,
            commutes,
            rounds,
            rotates,
            waits,
            shm,
            posted,
            runs: runs_of,
        }
    }

    fn run(
        &self,
        schedule: &mut Schedule,
        mut transfers: Vec<Transfer>,
        begins: &[u32],
        in_flight: InFlight,
    ) {
        let (combined, arrived) = (1 + in_flight.nodes, 2 + in_flight.nodes + in_flight.crossing);
        let is_straight = transfers.iter().all(|transfer| *transfer.relays == Relays::Straight);
        let passed = arrived + if is_straight { 0 } else { 1 + in_flight.crossing };
        let delays =
            [0, 1, combined, combined, 1 + combined, arrived, passed, passed + in_flight.nodes];
        let order = timetable(begins, &delays, |stage, transfer| {
            self.stagger(transfers[transfer].goal, stage)
        });
        for &(stage, transfer) in &order {
            self.expect(schedule, &mut transfers[transfer], stage);
        }
        if let (Some(shm), Some(all)) = (self.shm, self.posted) {
            shm.show(schedule, all);
        }
        for &(stage, transfer) in &order {
            self.send(schedule, &mut transfers[transfer], stage);
        }
        schedule.wait();
    }

    /// Returns the additional delay of a stage at this rank's site, so that not all sites send to
    /// the same one at a time. Without relays each site sends to the next ones first. With relays,
    /// data that reach their relay late wait for the rest. Data received from all others are
    /// finished after that.
    fn stagger(&self, goal: Goal, stage: usize) -> u32 {
        let (own, sites) = (self.levels.site(self.me), self.levels.sites());
        if let (Goal::Past(by), Some(rounds)) = (goal, self.rounds) {
            return rounds.stagger(stage, by, own);
        }
        let Goal::Root(root) = goal else { return 0 };
        let root = self.levels.site(root);
        match stage {
            PASSING if !self.rotates => self.waits.get(root as usize).copied().unwrap_or(0),
            TO_NODES | TO_RANKS if !self.rotates => self.waits.iter().copied().max().unwrap_or(0),
            _ if !self.rotates => 0,
            RANKS | NODES | CROSSING => (root + sites - own) % sites,
            _ => sites,
        }
    }

    /// Returns the stages in which this rank's site combines its data.
    fn gathering(&self, goal: Goal) -> (usize, usize) {
        match goal {
            Goal::Root(root) if self.levels.site(root) == self.levels.site(self.me) => {
                (ROOT_RANKS, ROOT_NODES)
            }
            Goal::Everyone | Goal::Past(_) | Goal::Root(_) | Goal::RootPast(..) => (RANKS, NODES),
        }
    }

    /// Begins the receives of a stage.
    fn expect(&self, schedule: &mut Schedule, transfer: &mut Transfer, stage: usize) {
        let (route, me) = (transfer.route, self.me);
        let (is_leader, is_site_leader) =
            (me == route.leader_of(me), me == route.site_leader_of(me));
        let arriving = &mut transfer.arriving;
        let (relays, goal) = (transfer.relays, transfer.goal);
        let len = transfer.own.len;
        let own = self.levels.site(me);
        let (ranks, nodes) = self.gathering(transfer.goal);
        let mut expect = |from: u32, run: Run, site: u32, place: u32| {
            let span = schedule.room(len);
            Operand { run, site, place, span, is_free: true, arrived: schedule.expect(from, span) }
        };
        let places = self.nodes;
        match stage {
            _ if stage == ranks && is_leader && self.shm.is_none() => {
                let neighbours = route.neighbours(me);
                arriving[0].extend(
                    neighbours.map(|rank| expect(rank, run_of(rank), own, places.place(rank))),
                );
            }
            _ if stage == nodes && is_site_leader => {
                for node in route.other_nodes(me) {
                    let leader = route.node_leader(node);
                    let runs = self.runs(0, node).iter();
                    let place = places.places_of_node(node).0;
                    arriving[1].extend(runs.map(|&run| expect(leader, run, own, place)));
                }
            }
            PASSING if is_site_leader && self.result_source(goal).is_some() => {
                let by = self.result_source(goal).unwrap_or(own);
                if goal.root().is_some_and(|root| root != me) {
                    transfer.result = schedule.room(len);
                }
                transfer.finished = schedule.expect(route.site_leader(by), transfer.result);
            }
            CROSSING | PASSING if is_site_leader && self.receives(relays, goal) => {
                let source = |site| Some((self.source(relays, goal, site, stage)?, site));
                let mut sources: Vec<(u32, u32)> =
                    route.other_sites(me).filter_map(source).collect();
                sources.sort_by_key(|&(by, site)| self.crossings.cost(site, by).latency_ns);
                for (by, site) in sources {
                    let (leader, runs) = (route.site_leader(by), self.runs(1, site).iter());
                    let place = places.places_of_site(site).0;
                    arriving[2].extend(runs.map(|&run| expect(leader, run, site, place)));
                }
            }
            TO_NODES if goal.root() == Some(me) && !is_site_leader => {
                transfer.finished = schedule.expect(route.site_leader_of(me), transfer.result);
            }
            TO_NODES if goal.is_all() && is_leader && !is_site_leader => {
                transfer.finished = schedule.expect(route.site_leader_of(me), transfer.result);
            }
            TO_RANKS if goal.is_all() && !is_leader && self.shm.is_none() => {
                transfer.finished = schedule.expect(route.leader_of(me), transfer.result);
            }
            _ => {}
        }
    }

    /// Combines and sends the data of a stage.
    fn send(&self, schedule: &mut Schedule, transfer: &mut Transfer, stage: usize) {
        let (route, me) = (transfer.route, self.me);
        let (leader, site_leader) = (route.leader_of(me), route.site_leader_of(me));
        let (ranks, nodes) = self.gathering(transfer.goal);
        match stage {
            _ if stage == ranks && self.shm.is_some() => self.fold(schedule, transfer),
            _ if stage == ranks && me != leader => schedule.send(leader, transfer.own),
            _ if stage == ranks => {
                transfer.combined = vec![Operand {
                    run: run_of(me),
                    site: self.levels.site(me),
                    place: self.nodes.place(me),
                    span: transfer.own,
                    is_free: false,
                    arrived: Ticket::default(),
                }];
            }
            _ if stage == nodes && me == leader => {
                self.combine(schedule, transfer, 0);
                self.pass_up(
                    schedule,
                    transfer,
                    (me != site_leader).then_some(site_leader).into_iter(),
                );
            }
            CROSSING if me == site_leader && nodes == NODES => {
                self.combine(schedule, transfer, 1);
                self.cross(schedule, transfer, stage);
            }
            PASSING if me == site_leader && nodes == ROOT_NODES => {
                self.combine(schedule, transfer, 1)
            }
            PASSING if me == site_leader && transfer.goal.past() == Some(self.levels.site(me)) => {
                let all = self.conclude(schedule, transfer);
                let root = transfer.goal.root().map(|root| self.levels.site(root));
                let messages =
                    route.next_sites(me).filter(|site| root.is_none_or(|root| root == *site));
                messages.for_each(|site| schedule.send(route.site_leader(site), all));
            }
            PASSING if me == site_leader => match self.load {
                Load::Each => self.relay(schedule, transfer),
                Load::One => self.cross(schedule, transfer, stage),
            },
            TO_NODES if me == site_leader && self.has_result(transfer.goal) => {
                self.finish(schedule, transfer);
            }
            TO_RANKS
                if let Some(shm) = self.shm
                    && transfer.goal.is_all() =>
            {
                schedule.settle(std::mem::take(&mut transfer.finished));
                shm.broadcast(schedule, route.leader_position(me), transfer.result);
            }
            TO_RANKS if me == leader && transfer.goal.is_all() => {
                schedule.settle(std::mem::take(&mut transfer.finished));
                route.neighbours(me).for_each(|rank| schedule.send(rank, transfer.result));
            }
            _ => {}
        }
    }

    /// Combines the operands of the node's ranks, at its leader.
    fn fold(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        let (me, node) = (self.me, self.levels.node(self.me));
        let (leader, own) = (transfer.route.leader_position(me), transfer.own);
        let sum = self.shm.map(|shm| match self.posted {
            Some(_) if shm.me != leader => None,
            Some(all) => shm.fold_posted(schedule, own, own.start - all.start),
            None => shm.fold(schedule, leader, own),
        });
        transfer.combined.extend(sum.flatten().map(|span| Operand {
            run: self.runs(0, node)[0],
            site: self.levels.site(me),
            place: self.levels.places_of_node(node).0,
            span,
            is_free: true,
            arrived: Ticket::default(),
        }));
    }

    /// Combines present and arrived data of a stage: first of each node, then of all, with or
    /// without node leaders.
    fn combine(&self, schedule: &mut Schedule, transfer: &mut Transfer, stage: usize) {
        let mut pieces = std::mem::take(&mut transfer.combined);
        pieces.append(&mut transfer.arriving[stage]);
        pieces.sort_by_key(|piece| piece.place);
        let node = |piece: &Operand| self.nodes.node(self.nodes.ranks()[piece.place as usize]);
        let len = transfer.own.len;
        let of_nodes: Vec<Operand> = pieces
            .chunk_by(|one, next| node(one) == node(next))
            .flat_map(|pieces| self.merge(schedule, pieces.to_vec(), len))
            .collect();
        transfer.combined = self.merge(schedule, of_nodes, len);
    }

    /// Returns the site from which another site's data arrive in a stage, if they do.
    fn source(&self, relays: &Relays, goal: Goal, site: u32, stage: usize) -> Option<u32> {
        let own = self.levels.site(self.me);
        let (by, is_late) = match goal {
            Goal::Everyone => {
                let by = relays.sender(site, own);
                (by, by != site)
            }
            Goal::Past(by) | Goal::RootPast(_, by) if by == own => (site, false),
            Goal::Past(_) | Goal::RootPast(..) => return None,
            Goal::Root(root) => {
                let root = self.levels.site(root);
                let by = relays.sender(root, site);
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

    /// Sends the site's data to their receivers, if this is the stage for it.
    fn cross(&self, schedule: &mut Schedule, transfer: &mut Transfer, stage: usize) {
        let (route, relays, own) = (transfer.route, transfer.relays, self.levels.site(self.me));
        let leaders: Vec<u32> = match transfer.goal {
            Goal::Everyone => {
                let messages =
                    route.next_sites(self.me).filter(|&site| relays.sender(own, site) == own);
                messages.map(|site| route.site_leader(site)).collect()
            }
            Goal::Past(by) | Goal::RootPast(_, by) => {
                (own != by).then(|| route.site_leader(by)).into_iter().collect()
            }
            Goal::Root(root) => {
                let root = self.levels.site(root);
                let due = if self.delays(relays, own, root) { PASSING } else { CROSSING };
                let is_due = stage == due && own != root;
                is_due.then(|| route.site_leader(relays.sender(root, own))).into_iter().collect()
            }
        };
        if stage == PASSING && !leaders.is_empty() {
            self.combine(schedule, transfer, 2);
        }
        self.pass_up(schedule, transfer, leaders.into_iter());
    }

    /// Relays other sites' data unchanged, so that all combine the same, and in the order of
    /// arrival.
    fn relay(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        let (relays, own) = (transfer.relays, self.levels.site(self.me));
        let receives = |site: u32, of: u32| match transfer.goal {
            Goal::Everyone => relays.sender(of, site) == own,
            Goal::Past(_) | Goal::RootPast(..) => false,
            Goal::Root(root) => self.levels.site(root) == site,
        };
        let arriving = &mut transfer.arriving[2];
        arriving.sort_by_key(|piece| self.crossings.cost(piece.site, own).latency_ns);
        for piece in arriving {
            for site in
                transfer.route.other_sites(self.me).filter(|&site| receives(site, piece.site))
            {
                schedule.settle(std::mem::take(&mut piece.arrived));
                schedule.send(transfer.route.site_leader(site), piece.span);
                piece.is_free = false;
            }
        }
    }

    /// True if a site's data for a root wait for the data that it relays with them.
    fn delays(&self, relays: &Relays, site: u32, root: u32) -> bool {
        self.load == Load::One && relays.forwarded_by(site, root).next().is_some()
    }

    fn pass_up(
        &self,
        schedule: &mut Schedule,
        transfer: &mut Transfer,
        to: impl Iterator<Item = u32>,
    ) {
        for leader in to {
            for piece in &mut transfer.combined {
                schedule.send(leader, piece.span);
                piece.is_free = false;
            }
        }
    }

    /// Combines the data of all sites in the order of the sites, so that all get the same.
    fn conclude(&self, schedule: &mut Schedule, transfer: &mut Transfer) -> Span {
        let mut pieces = std::mem::take(&mut transfer.arriving[2]);
        pieces.append(&mut transfer.combined);
        pieces.sort_by_key(|piece| piece.place);
        transfer.combined = self.merge(schedule, pieces, transfer.own.len);
        transfer.combined.first().map_or(transfer.own, |piece| piece.span)
    }

    /// Sends on the result.
    fn finish(&self, schedule: &mut Schedule, transfer: &mut Transfer) {
        let (route, me) = (transfer.route, self.me);
        let all = match self.result_source(transfer.goal) {
            Some(_) => {
                schedule.settle(std::mem::take(&mut transfer.finished));
                transfer.result
            }
            None => self.conclude(schedule, transfer),
        };
        match transfer.goal {
            Goal::Everyone | Goal::Past(_) => {
                route.other_nodes(me).for_each(|node| schedule.send(route.node_leader(node), all));
                if all != transfer.result {
                    schedule.copy(all, transfer.result);
                }
            }
            Goal::Root(root) | Goal::RootPast(root, _) if root != me => schedule.send(root, all),
            Goal::Root(_) | Goal::RootPast(..) if all != transfer.result => {
                schedule.copy(all, transfer.result);
            }
            Goal::Root(_) | Goal::RootPast(..) => {}
        }
    }

    /// Combines neighbouring runs, or all of them, in place if no other step needs the parts.
    fn merge(&self, schedule: &mut Schedule, mut pieces: Vec<Operand>, len: u64) -> Vec<Operand> {
        if !self.commutes {
            pieces.sort_by_key(|piece| piece.run.first);
        }
        let mut merged: Vec<Operand> = Vec::new();
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
                    *last = Operand { run, span: into, is_free: true, arrived, ..*last };
                }
                _ => merged.push(Operand { arrived: Ticket::default(), ..piece }),
            }
        }
        merged
    }

    /// Returns the site from which this rank's site receives the result.
    fn result_source(&self, goal: Goal) -> Option<u32> {
        let own = self.levels.site(self.me);
        match goal {
            Goal::Past(by) => Some(by).filter(|by| *by != own),
            Goal::RootPast(root, by) => {
                Some(by).filter(|by| *by != own && self.levels.site(root) == own)
            }
            Goal::Everyone | Goal::Root(_) => None,
        }
    }

    /// True if this rank's site receives data of any other.
    fn receives(&self, relays: &Relays, goal: Goal) -> bool {
        let own = self.levels.site(self.me);
        match goal {
            Goal::Everyone => true,
            Goal::Past(by) | Goal::RootPast(_, by) => own == by,
            Goal::Root(root) => {
                let root = self.levels.site(root);
                own == root || relays.forwarded_by(own, root).next().is_some()
            }
        }
    }

    /// True if this rank's site combines all data, or receives the result.
    fn has_result(&self, goal: Goal) -> bool {
        match goal {
            Goal::Everyone | Goal::Past(_) => true,
            Goal::Root(root) | Goal::RootPast(root, _) => {
                self.levels.site(root) == self.levels.site(self.me)
            }
        }
    }

    /// Returns the runs of a node or a site; one run for all if order does not matter.
    fn runs(&self, level: usize, index: u32) -> &[Run] {
        if self.commutes { &ANY } else { &self.runs[level][index as usize] }
    }
}

fn run_of(rank: u32) -> Run {
    Run { first: rank, end: rank + 1 }
}

/// Stands for any ranks.
const ANY: [Run; 1] = [Run { first: 0, end: 0 }];
