//! Hierarchical operations within one site: the ranks of a node work with their leader, and the
//! leaders of all nodes form a team of their own.

use crate::algorithms::shmem::ShmAccess;
use crate::algorithms::{binomial, dissemination, doubling, linear, ring, two_tree};
use crate::schedule::{Buffer, Schedule, Span};
use crate::team::Team;
use crate::topology::{Levels, Topology};

/// Teams of one rank.
struct Nodes<'a> {
    levels: &'a Levels,
    me: u32,
    /// Ranks of its node, the leader first.
    near: Team<'a>,
    /// Leader of each node.
    leaders: Vec<u32>,
}

/// Sends `len` bytes of the output of each node's first rank to all of that node. Shared segments
/// are set up by this.
pub fn broadcast_in_node(rank: u32, topology: &Topology, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let ranks = topology.neighbours(rank);
    let me = ranks.iter().position(|neighbour| *neighbour == rank).unwrap_or(0);
    let near = Team::of(&ranks, me as u32);
    linear::broadcast(&mut schedule, near, Buffer::Output.span(0, len));
    schedule
}

/// Waits until all ranks have arrived. Within a node the shared segment is used if `shm` is given;
/// all ranks of a node have it, or none.
pub(crate) fn barrier(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    shm: Option<ShmAccess>,
) {
    let Some(nodes) = Nodes::new(topology, me, None) else { return };
    match shm {
        Some(shm) => shm.collect(schedule, nodes.leader_position()),
        None => linear::collect(schedule, nodes.near),
    }
    if let Some(far) = nodes.far() {
        dissemination::barrier(schedule, far);
    }
    match shm {
        Some(shm) => shm.release(schedule, nodes.leader_position()),
        None => linear::release(schedule, nodes.near),
    }
}

/// Sends the root's `span` to all.
pub(crate) fn broadcast(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: u32,
    span: Span,
    shm: Option<ShmAccess>,
) {
    let Some(nodes) = Nodes::new(topology, me, Some(root)) else { return };
    if let Some(far) = nodes.far() {
        binomial::broadcast(schedule, far.led_by(nodes.levels.node(root)), span);
    }
    nodes.broadcast_near(schedule, span, shm);
}

/// Does the same along two trees of the leaders and then two trees of each node's ranks, in
/// segments.
pub(crate) fn broadcast_by_trees(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: u32,
    span: Span,
) {
    let Some(nodes) = Nodes::new(topology, me, Some(root)) else { return };
    let [near, far] = topology.model().tree_segments(span.len);
    if let Some(leaders) = nodes.far() {
        let leaders = leaders.led_by(nodes.levels.node(root));
        two_tree::broadcast(schedule, leaders, span, far as u32);
    }
    two_tree::broadcast(schedule, nodes.near, span, near as u32);
}

/// Combines every rank's `own` to `result` at the root: up two trees of each node's ranks, then up
/// two trees of the leaders, in segments. Without a `root` the order is that of the grid and the
/// result goes to its first rank. `own` is left unchanged, and is not `result`.
pub(crate) fn reduce_by_trees(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: Option<u32>,
    (own, result): (Span, Option<Span>),
    [near, far]: [u32; 2],
) {
    let Some(nodes) = Nodes::new(topology, me, root) else { return };
    let leaders = nodes.far();
    let sum = match (&leaders, nodes.near.size()) {
        (_, 1) => own,
        (Some(_), _) => schedule.room(own.len),
        (None, _) => own,
    };
    if nodes.near.size() > 1 {
        two_tree::reduce(schedule, nodes.near, own, leaders.map(|_| sum), near);
    }
    if let Some(leaders) = leaders {
        let leaders = leaders.led_by(root.map_or(0, |root| nodes.levels.node(root)));
        two_tree::reduce(schedule, leaders, sum, result, far);
    }
}

/// Combines every rank's `own` to `result` at the root. Without a `root` the order is that of the
/// grid and the result goes to its first rank.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: Option<u32>,
    (own, result): (Span, Option<Span>),
    shm: Option<ShmAccess>,
) {
    let Some(nodes) = Nodes::new(topology, me, root) else { return };
    let sum = match (nodes.far(), result) {
        (Some(_), None) => schedule.room(own.len),
        (Some(_), Some(result)) => result,
        (None, _) => own,
    };
    nodes.reduce_near(schedule, own, sum, shm);
    if let Some(far) = nodes.far() {
        let first = root.map_or(0, |root| nodes.levels.node(root));
        binomial::reduce(schedule, far.led_by(first), sum);
    }
}

/// Combines every rank's `whole` to everyone's.
pub(crate) fn allreduce(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    whole: Span,
    shm: Option<ShmAccess>,
) {
    let Some(nodes) = Nodes::new(topology, me, None) else { return };
    nodes.reduce_near(schedule, whole, whole, shm);
    if let Some(far) = nodes.far() {
        doubling::allreduce(schedule, far, whole);
    }
    nodes.broadcast_near(schedule, whole, shm);
}

/// Sends every rank's block of the output to all, where the blocks of a node are adjacent. `starts`
/// holds the start of each block, and the end.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    starts: &[u64],
    shm: Option<ShmAccess>,
) {
    let Some(nodes) = Nodes::new(topology, me, None) else { return };
    let span = |first: u32, end: u32| {
        let (start, end) = (starts[first as usize], starts[end as usize]);
        Buffer::Output.span(start, end - start)
    };
    let near = nodes.near;
    let block = |position| {
        let rank = near.rank(position);
        span(rank, rank + 1)
    };
    match shm {
        // The leader is the first of its node.
        Some(shm) if near.me == 0 => shm.take_in(schedule, &block),
        Some(shm) => shm.hand_in(schedule, block(near.me)),
        None => linear::gather(schedule, near, &block),
    }
    if let Some(far) = nodes.far() {
        ring::allgather(schedule, far, &|node| {
            let (first, end) = nodes.levels.places_of_node(node);
            span(first, end)
        });
    }
    nodes.broadcast_near(schedule, span(0, topology.size()), shm);
}

impl<'a> Nodes<'a> {
    /// Makes the root the leader of its node; on other nodes the first rank leads.
    fn new(topology: &'a Topology, me: u32, root: Option<u32>) -> Option<Self> {
        let levels = topology.levels()?;
        let leader = |node: u32| match root {
            Some(root) if levels.node(root) == node => root,
            _ => levels.ranks_of_node(node)[0],
        };
        let leaders: Vec<u32> = (0..levels.nodes()).map(leader).collect();
        let node = levels.node(me);
        let first = levels.places_of_node(node).0;
        let place = |rank: u32| levels.place(rank) - first;
        let near = Team::of(levels.ranks_of_node(node), place(me));
        let near = near.led_by(place(leaders[node as usize]));
        Some(Self { levels, me, near, leaders })
    }

    /// Returns the team of all nodes' leaders, if this rank is one.
    fn far(&self) -> Option<Team<'_>> {
        let node = self.levels.node(self.me);
        (self.near.me == 0).then(|| Team::of(&self.leaders, node))
    }

    /// Position of the node's leader within the node.
    fn leader_position(&self) -> u32 {
        self.near.index(0)
    }

    /// Sends the leader's data to the ranks of its node.
    fn broadcast_near(&self, schedule: &mut Schedule, span: Span, shm: Option<ShmAccess>) {
        match shm {
            Some(shm) => shm.broadcast(schedule, self.leader_position(), span),
            None => linear::broadcast(schedule, self.near, span),
        }
    }

    /// Combines the data of the node's ranks, in the node's order, at its leader.
    fn reduce_near(&self, schedule: &mut Schedule, own: Span, sum: Span, shm: Option<ShmAccess>) {
        if let Some(shm) = shm {
            shm.reduce(schedule, (self.leader_position(), 0), (own, sum), false);
        } else if self.near.size() > 1 {
            // Not rotated, so that the order is the node's.
            let team = Team::of(
                self.levels.ranks_of_node(self.levels.node(self.me)),
                self.near.index(self.near.me),
            );
            linear::reduce(schedule, team, self.leader_position(), own, sum);
        } else if own != sum {
            schedule.copy(own, sum);
        }
    }
}
