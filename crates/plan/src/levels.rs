//! Operations by levels within one site: ranks of a node work with their head, and the heads of all nodes are
//! a team of their own.

use crate::algorithms::shmem::Seat;
use crate::algorithms::{binomial, dissemination, doubling, linear, ring, two_tree};
use crate::schedule::{Buffer, Schedule, Span};
use crate::team::Team;
use crate::topology::{Levels, Topology};

/// The teams of one rank.
struct Nodes<'a> {
    levels: &'a Levels,
    me: u32,
    /// The ranks of its node, the head first.
    near: Team<'a>,
    /// The head of each node.
    heads: Vec<u32>,
}

/// `len` bytes of the output of each node's first rank to all of that node: what founds their shared segments.
pub fn tell_neighbours(rank: u32, topology: &Topology, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let ranks = topology.neighbours(rank);
    let me = ranks.iter().position(|neighbour| *neighbour == rank).unwrap_or(0);
    let near = Team::of(&ranks, me as u32);
    linear::broadcast(&mut schedule, near, Buffer::Output.span(0, len));
    schedule
}

/// Nobody leaves before all have come. At the shmem of its node, if the rank has a `seat` there: all of a node have.
pub(crate) fn barrier(schedule: &mut Schedule, topology: &Topology, me: u32, seat: Option<Seat>) {
    let Some(nodes) = Nodes::new(topology, me, None) else { return };
    match seat {
        Some(seat) => seat.collect(schedule, nodes.head_position()),
        None => linear::collect(schedule, nodes.near),
    }
    if let Some(far) = nodes.far() {
        dissemination::barrier(schedule, far);
    }
    match seat {
        Some(seat) => seat.release(schedule, nodes.head_position()),
        None => linear::release(schedule, nodes.near),
    }
}

/// The root's `span` to everyone's.
pub(crate) fn broadcast(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: u32,
    span: Span,
    seat: Option<Seat>,
) {
    let Some(nodes) = Nodes::new(topology, me, Some(root)) else { return };
    if let Some(far) = nodes.far() {
        binomial::broadcast(schedule, far.led_by(nodes.levels.node(root)), span);
    }
    nodes.broadcast_near(schedule, span, seat);
}

/// The same down two trees of the heads, and then down two of each node's ranks, in so many segments each.
pub(crate) fn broadcast_by_trees(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: u32,
    span: Span,
) {
    let Some(nodes) = Nodes::new(topology, me, Some(root)) else { return };
    let [near, far] = topology.model().tree_segments(span.len);
    if let Some(heads) = nodes.far() {
        let heads = heads.led_by(nodes.levels.node(root));
        two_tree::broadcast(schedule, heads, span, far as u32);
    }
    two_tree::broadcast(schedule, nodes.near, span, near as u32);
}

/// Everyone's `own`, combined, to `result` at the root up two trees of each node's ranks, and then up two of the heads,
/// in so many segments each; in the order of the grid if `root` is none: then to its first rank. `own` is left as it
/// is, and is not `result`.
pub(crate) fn reduce_by_trees(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: Option<u32>,
    (own, result): (Span, Option<Span>),
    [near, far]: [u32; 2],
) {
    let Some(nodes) = Nodes::new(topology, me, root) else { return };
    let heads = nodes.far();
    let sum = match (&heads, nodes.near.size()) {
        (_, 1) => own,
        (Some(_), _) => schedule.room(own.len),
        (None, _) => own,
    };
    if nodes.near.size() > 1 {
        two_tree::reduce(schedule, nodes.near, own, heads.map(|_| sum), near);
    }
    if let Some(heads) = heads {
        let heads = heads.led_by(root.map_or(0, |root| nodes.levels.node(root)));
        two_tree::reduce(schedule, heads, sum, result, far);
    }
}

/// Everyone's `own`, combined, to `result` at the root, in the order of the grid if `root` is none: then to
/// its first rank.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    root: Option<u32>,
    (own, result): (Span, Option<Span>),
    seat: Option<Seat>,
) {
    let Some(nodes) = Nodes::new(topology, me, root) else { return };
    let sum = match (nodes.far(), result) {
        (Some(_), None) => schedule.room(own.len),
        (Some(_), Some(result)) => result,
        (None, _) => own,
    };
    nodes.reduce_near(schedule, own, sum, seat);
    if let Some(far) = nodes.far() {
        let first = root.map_or(0, |root| nodes.levels.node(root));
        binomial::reduce(schedule, far.led_by(first), sum);
    }
}

/// Everyone's `whole`, combined, to everyone's.
pub(crate) fn allreduce(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    whole: Span,
    seat: Option<Seat>,
) {
    let Some(nodes) = Nodes::new(topology, me, None) else { return };
    nodes.reduce_near(schedule, whole, whole, seat);
    if let Some(far) = nodes.far() {
        doubling::allreduce(schedule, far, whole);
    }
    nodes.broadcast_near(schedule, whole, seat);
}

/// Every rank's block of the output to everyone, where those of a node lie beside each other; `starts` says
/// where they begin, and the end.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    topology: &Topology,
    me: u32,
    starts: &[u64],
    seat: Option<Seat>,
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
    match seat {
        // The head is the first of its node.
        Some(seat) if near.me == 0 => seat.take_in(schedule, &block),
        Some(seat) => seat.hand_in(schedule, block(near.me)),
        None => linear::gather(schedule, near, &block),
    }
    if let Some(far) = nodes.far() {
        ring::allgather(schedule, far, &|node| {
            let (first, end) = nodes.levels.places_of_node(node);
            span(first, end)
        });
    }
    nodes.broadcast_near(schedule, span(0, topology.size()), seat);
}

impl<'a> Nodes<'a> {
    /// A root is the head of its node; else its first rank is.
    fn new(topology: &'a Topology, me: u32, root: Option<u32>) -> Option<Self> {
        let levels = topology.levels()?;
        let head = |node: u32| match root {
            Some(root) if levels.node(root) == node => root,
            _ => levels.ranks_of_node(node)[0],
        };
        let heads: Vec<u32> = (0..levels.nodes()).map(head).collect();
        let node = levels.node(me);
        let first = levels.places_of_node(node).0;
        let place = |rank: u32| levels.place(rank) - first;
        let near = Team::of(levels.ranks_of_node(node), place(me));
        let near = near.led_by(place(heads[node as usize]));
        Some(Self { levels, me, near, heads })
    }

    /// The heads of all nodes, for one of them.
    fn far(&self) -> Option<Team<'_>> {
        let node = self.levels.node(self.me);
        (self.near.me == 0).then(|| Team::of(&self.heads, node))
    }

    /// Where the head of the node is in its order.
    fn head_position(&self) -> u32 {
        self.near.index(0)
    }

    /// What the head of the node has to its ranks.
    fn broadcast_near(&self, schedule: &mut Schedule, span: Span, seat: Option<Seat>) {
        match seat {
            Some(seat) => seat.broadcast(schedule, self.head_position(), span),
            None => linear::broadcast(schedule, self.near, span),
        }
    }

    /// What the ranks of the node have, in the order of the node, to its head.
    fn reduce_near(&self, schedule: &mut Schedule, own: Span, sum: Span, seat: Option<Seat>) {
        if let Some(seat) = seat {
            seat.reduce(schedule, (self.head_position(), 0), (own, sum), false);
        } else if self.near.size() > 1 {
            // Without the turn, so that the order is the node's.
            let team = Team::of(
                self.levels.ranks_of_node(self.levels.node(self.me)),
                self.near.index(self.near.me),
            );
            linear::reduce(schedule, team, self.head_position(), own, sum);
        } else if own != sum {
            schedule.copy(own, sum);
        }
    }
}
