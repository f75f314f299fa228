//! Operations that combine data. Units are elements.
//!
//! Operands are combined in the order of ranks (MPI-5.0 §6.9.1) unless the operation commutes.
//! Unless the result is the same in any order, the order depends only on the arguments and the
//! placement of the ranks ([`crate::order`]). So results repeat bit for bit.

use crate::algorithms::{
    binomial, butterfly, chain, doubling, halving, linear, pairwise, prefix, ring, tournament,
    two_tree,
};
use crate::catalogue::{Allreduce, Catalogue, Prefix, Reduce, ReduceScatter};
use crate::choice::{Algorithm, Call, Operation};
use crate::hierarchical;
use crate::multisite::prefix as multisite_prefix;
use crate::multisite::reduction as multisite;
use crate::schedule::{Buffer, Schedule, Span, part, starts};
use crate::team::Team;
use crate::topology::Topology;

/// Operands of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// Elements of each rank.
    pub len: u64,
    /// An element's size in bytes.
    pub element: u64,
    /// True if the operation commutes.
    pub commutes: bool,
    /// True if the result is the same to the last bit in any order.
    pub is_exact: bool,
    /// True if contributions lie in the output, of the root or of all.
    pub in_place: bool,
}

impl Operands {
    /// Bytes of each rank.
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(self.element)
    }

    /// Returns the call of an operation on them.
    pub fn call(&self, operation: Operation) -> Call {
        let bytes = self.bytes();
        let Self { len: units, commutes, is_exact, .. } = *self;
        Call { units, commutes, is_exact, ..Call::of(operation, bytes) }
    }

    /// Returns the number of segments along a chain.
    fn chain_segments(&self, topology: &Topology) -> u32 {
        let segments = topology.model().chain_segments(self.bytes());
        segments.min(self.len).max(1) as u32
    }

    /// Returns the number of segments for a half of them up each of two trees, of the ranks of a
    /// node and of nodes.
    fn tree_segments(&self, topology: &Topology) -> [u32; 2] {
        let segments = topology.model().tree_segments(self.bytes());
        segments.map(|segments| segments.min(self.len / 2).max(1) as u32)
    }

    /// Returns this rank's operand outside the output, which receives results while the operand is
    /// being sent.
    pub(crate) fn outside_output(&self, schedule: &mut Schedule, in_place: bool) -> Span {
        if !in_place {
            return Buffer::Input.span(0, self.len);
        }
        let aside = schedule.room(self.len);
        schedule.copy(Buffer::Output.span(0, self.len), aside);
        aside
    }
}

/// Combines everyone's operands to the root's output.
pub fn reduce(rank: u32, topology: &Topology, root: u32, operands: Operands) -> Schedule {
    let Operands { len, commutes, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    let output = Buffer::Output.span(0, len);
    let (own, result) = match (rank == root, in_place) {
        (true, true) => (output, Some(output)),
        (true, false) => (Buffer::Input.span(0, len), Some(output)),
        (false, _) => (Buffer::Input.span(0, len), None),
    };
    let team = arranged(topology, rank, commutes);
    let root_at = if commutes { topology.place(root) } else { root };
    let to_first = ToFirst { root, team, own, result };
    let call = operands.call(Operation::Reduce).with_root(root);
    let node_shm = |algorithm| topology.node_shm(rank, operands.element, &call, algorithm);
    match Reduce::of(topology, &call) {
        Reduce::Leaders | Reduce::Multisite => {
            let (grid, shm) = (topology.grid(), node_shm(topology.leaders()));
            multisite::reduce(&mut schedule, grid, rank, root, operands, shm);
        }
        Reduce::Shmem => {
            let first = if commutes { root } else { 0 };
            let is_shared = topology.shares_in_shmem(&call);
            let shm = topology.shm(rank, operands.element);
            shm.reduce(&mut schedule, (root, first), (own, output), is_shared);
        }
        Reduce::Linear => {
            let (team, root_at) =
                if commutes { (team.led_by(root_at), 0) } else { (team, root_at) };
            linear::reduce(&mut schedule, team, root_at, own, output);
        }
        Reduce::Pairwise => {
            let team = topology.by_rank(rank);
            let at = |buffer: Span, rank: u32| {
                let (start, len) = part(len, team.size(), rank);
                buffer.part(start, len)
            };
            let ordered = if commutes { team.led_by(root) } else { team };
            let block = |position: u32| at(own, ordered.rank(position));
            let mine = pairwise::reduce_scatter(&mut schedule, ordered, &block);
            let team = team.led_by(root);
            if rank == root {
                schedule.copy(mine, at(output, rank));
            }
            linear::gather(&mut schedule, team, &|position| {
                if rank == root { at(output, team.rank(position)) } else { mine }
            });
        }
        Reduce::Ring => {
            let team = team.led_by(root_at);
            let sum = schedule.room(len);
            schedule.copy(own, sum);
            let at = |buffer: Span, position: u32| {
                let (start, len) = part(len, team.size(), position);
                buffer.part(start, len)
            };
            ring::reduce_scatter(&mut schedule, team, &|position| at(sum, position));
            let into = if rank == root { output } else { sum };
            linear::gather(&mut schedule, team, &|position| at(into, position));
            if rank == root {
                schedule.copy(at(sum, 0), at(output, 0));
            }
        }
        Reduce::Chain => {
            let segments = operands.chain_segments(topology);
            to_first.reduce(&mut schedule, (commutes, root_at), |schedule, team, result| {
                let own = apart(schedule, own, result);
                chain::reduce(schedule, team, own, result, segments);
            });
        }
        Reduce::TwoTree => {
            let segments = operands.tree_segments(topology);
            to_first.reduce(&mut schedule, (commutes, root_at), |schedule, team, result| {
                let own = apart(schedule, own, result);
                if topology.nodes() > 1 {
                    let (root, ends) = (commutes.then_some(root), (own, result));
                    hierarchical::reduce_by_trees(schedule, topology, rank, root, ends, segments);
                } else {
                    two_tree::reduce(schedule, team, own, result, segments[0]);
                }
            });
        }
        Reduce::Hierarchical => {
            to_first.reduce(&mut schedule, (commutes, root_at), |schedule, _, result| {
                let root = commutes.then_some(root);
                let shm = node_shm(Algorithm::Hierarchical);
                hierarchical::reduce(schedule, topology, rank, root, (own, result), shm);
            });
        }
        Reduce::Binomial => {
            to_first.reduce(&mut schedule, (commutes, root_at), |schedule, team, result| {
                let sum = result.unwrap_or_else(|| schedule.room(len));
                if own != sum {
                    schedule.copy(own, sum);
                }
                binomial::reduce(schedule, team, sum);
            });
        }
    }
    schedule
}

/// Returns the operand in a span other than the result's, so that received data can be combined
/// with it there.
fn apart(schedule: &mut Schedule, own: Span, result: Option<Span>) -> Span {
    if result != Some(own) {
        return own;
    }
    let aside = schedule.room(own.len);
    schedule.copy(own, aside);
    aside
}

/// Data of a reduction whose result arises at the first of a team.
struct ToFirst<'a> {
    root: u32,
    team: Team<'a>,
    own: Span,
    /// Span of the result, at the root.
    result: Option<Span>,
}

impl ToFirst<'_> {
    /// Reduces to the root. If order does not matter, the team is rotated to begin with the root.
    /// Else the first rank gets the result and sends it to the root. `go` reduces to the first of
    /// the team, which has a span for it.
    fn reduce(
        &self,
        schedule: &mut Schedule,
        (commutes, root_at): (bool, u32),
        go: impl FnOnce(&mut Schedule, Team<'_>, Option<Span>),
    ) {
        let team = if commutes { self.team.led_by(root_at) } else { self.team };
        let (top, is_top) = (team.rank(0), team.me == 0);
        let result = match self.result {
            Some(result) if is_top => Some(result),
            _ => is_top.then(|| schedule.room(self.own.len)),
        };
        go(schedule, team, result);
        self.hand_over(schedule, top, result);
    }

    /// Sends the result from the top to the root, if they differ.
    fn hand_over(&self, schedule: &mut Schedule, top: u32, result: Option<Span>) {
        if top != self.root {
            if let Some(result) = result {
                schedule.send(self.root, result);
            }
            if let Some(result) = self.result {
                schedule.receive(top, result);
            }
            schedule.wait();
        }
    }
}

/// Returns all ranks in the order of the grid, or in their own order if operands have to be
/// combined in that.
fn arranged(topology: &Topology, rank: u32, commutes: bool) -> Team<'_> {
    if commutes { topology.by_place(rank) } else { topology.by_rank(rank) }
}

/// Combines everyone's operands to everyone's output.
pub fn allreduce(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, commutes, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    let whole = Buffer::Output.span(0, len);
    let own = if in_place { whole } else { Buffer::Input.span(0, len) };
    let team = arranged(topology, rank, commutes);
    let block = |of: Span, position: u32| {
        let (start, len) = part(len, topology.size(), position);
        of.part(start, len)
    };
    let call = operands.call(Operation::Allreduce);
    let node_shm = |algorithm| topology.node_shm(rank, operands.element, &call, algorithm);
    let algorithm = Allreduce::of(topology, &call);
    match algorithm {
        Allreduce::Leaders | Allreduce::Multisite | Allreduce::Pairwise | Allreduce::Shmem => {}
        Allreduce::Linear
        | Allreduce::Doubling
        | Allreduce::Butterfly
        | Allreduce::Halving
        | Allreduce::Ring
        | Allreduce::Tournament
        | Allreduce::Hierarchical => {
            if !in_place {
                schedule.copy(own, whole);
            }
            if topology.size() == 1 || len == 0 {
                return schedule;
            }
        }
    }
    match algorithm {
        Allreduce::Leaders | Allreduce::Multisite => {
            let (grid, shm) = (topology.grid(), node_shm(topology.leaders()));
            multisite::allreduce(&mut schedule, grid, rank, operands, shm);
        }
        Allreduce::Pairwise => {
            let team = topology.by_rank(rank);
            let mine = pairwise::reduce_scatter(&mut schedule, team, &|of| block(own, of));
            schedule.copy(mine, block(whole, rank));
            pairwise::allgather(&mut schedule, team, mine, &|of| block(whole, of));
        }
        Allreduce::Shmem => {
            let is_shared = topology.shares_in_shmem(&call);
            let shm = topology.shm(rank, operands.element);
            shm.allreduce(&mut schedule, own, whole, is_shared);
        }
        Allreduce::Ring => {
            ring::reduce_scatter(&mut schedule, team, &|position| block(whole, position));
            ring::allgather(&mut schedule, team, &|position| block(whole, position));
        }
        Allreduce::Linear => {
            linear::reduce(&mut schedule, team, 0, whole, whole);
            linear::broadcast(&mut schedule, team, whole);
        }
        Allreduce::Butterfly => butterfly::allreduce(&mut schedule, team, whole),
        Allreduce::Tournament => tournament::allreduce(&mut schedule, team, whole),
        Allreduce::Halving => halving::allreduce(&mut schedule, team, whole),
        Allreduce::Hierarchical => {
            let shm = node_shm(Algorithm::Hierarchical);
            hierarchical::allreduce(&mut schedule, topology, rank, whole, shm);
        }
        Allreduce::Doubling => doubling::allreduce(&mut schedule, team, whole),
    }
    schedule
}

/// Combines everyone's input and sends block `i` of the result, `counts(i)` elements, to rank `i`'s
/// output. `operands.len` is not used. In place, the caller has copied the output to the input.
pub fn reduce_scatter(
    rank: u32,
    topology: &Topology,
    counts: &dyn Fn(u32) -> u64,
    operands: Operands,
) -> Schedule {
    let size = topology.size();
    let mut schedule = Schedule::default();
    let starts = starts((0..size).map(counts));
    let len = starts[size as usize];
    let operands = Operands { len, in_place: false, ..operands };
    let own = Buffer::Output.span(0, counts(rank));
    let all = Buffer::Input.span(0, len);
    let block = |of: Span, rank: u32| of.part(starts[rank as usize], counts(rank));
    let call = operands.call(Operation::ReduceScatter);
    match ReduceScatter::of(topology, &call) {
        ReduceScatter::Leaders | ReduceScatter::Multisite => {
            let (grid, lies) = (topology.grid(), |rank: u32| (starts[rank as usize], counts(rank)));
            let shm = topology.node_shm(rank, operands.element, &call, topology.leaders());
            multisite::reduce_scatter(&mut schedule, grid, rank, &lies, operands, shm);
        }
        ReduceScatter::Shmem => {
            let lies = |rank: u32| (starts[rank as usize], counts(rank));
            let shm = topology.shm(rank, operands.element);
            shm.reduce_scatter(&mut schedule, all, &lies, own);
        }
        ReduceScatter::Pairwise => {
            let team = topology.by_rank(rank);
            let mine = pairwise::reduce_scatter(&mut schedule, team, &|of| block(all, of));
            schedule.copy(mine, own);
        }
        ReduceScatter::Ring => {
            let sum = schedule.room(len);
            schedule.copy(all, sum);
            let team = topology.by_place(rank);
            let at = |position: u32| block(sum, team.rank(position));
            ring::reduce_scatter(&mut schedule, team, &at);
            schedule.copy(block(sum, rank), own);
        }
        ReduceScatter::Binomial => {
            let sum = schedule.room(len);
            schedule.copy(all, sum);
            let team = topology.by_rank(rank);
            binomial::reduce(&mut schedule, team, sum);
            if rank == 0 {
                schedule.copy(block(sum, 0), own);
            }
            let given = |position: u32| if rank == 0 { block(sum, position) } else { own };
            linear::scatter(&mut schedule, team, &given);
        }
    }
    schedule
}

/// Combines the inputs of ranks up to and with this one.
pub fn scan(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, element, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    let result = Buffer::Output.span(0, len);
    let team = topology.by_rank(rank);
    let call = operands.call(Operation::Scan);
    match Prefix::of(topology, &call) {
        Prefix::Leaders | Prefix::Multisite => {
            let own = operands.outside_output(&mut schedule, in_place);
            let (grid, prefix) = (topology.grid(), multisite_prefix::Prefix::Scan);
            multisite_prefix::prefix(&mut schedule, grid, rank, prefix, own, element);
        }
        Prefix::Shmem => {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            topology.shm(rank, element).prefix(&mut schedule, own, true, result);
        }
        Prefix::Chain
            if let Some(shm) = topology.node_shm(rank, element, &call, Algorithm::Chain) =>
        {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            shm.pass_prefix(&mut schedule, own, None, result);
        }
        Prefix::Chain => {
            let own = operands.outside_output(&mut schedule, in_place);
            let segments = operands.chain_segments(topology);
            let before = schedule.room(len);
            chain::prefix(&mut schedule, team, own, (before, result), segments);
        }
        Prefix::Doubling => {
            if !in_place {
                schedule.copy(Buffer::Input.span(0, len), result);
            }
            let passed = schedule.room(len);
            let received = schedule.room(len);
            schedule.copy(result, passed);
            prefix::prefix(&mut schedule, team, passed, received, |schedule, _| {
                schedule.reduce(received, result);
            });
        }
    }
    schedule
}

/// Combines the inputs of ranks below this one; rank 0's output is left unchanged.
pub fn exscan(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, element, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    let result = Buffer::Output.span(0, len);
    let team = topology.by_rank(rank);
    let call = operands.call(Operation::Exscan);
    match Prefix::of(topology, &call) {
        Prefix::Leaders | Prefix::Multisite => {
            let own = operands.outside_output(&mut schedule, in_place);
            let (grid, prefix) = (topology.grid(), multisite_prefix::Prefix::Exscan);
            multisite_prefix::prefix(&mut schedule, grid, rank, prefix, own, element);
        }
        Prefix::Shmem => {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            topology.shm(rank, element).prefix(&mut schedule, own, false, result);
        }
        Prefix::Chain
            if let Some(shm) = topology.node_shm(rank, element, &call, Algorithm::Chain) =>
        {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            let through = schedule.room(len);
            shm.pass_prefix(&mut schedule, own, Some(result), through);
        }
        Prefix::Chain => {
            let own = operands.outside_output(&mut schedule, in_place);
            let segments = operands.chain_segments(topology);
            let through = schedule.room(len);
            chain::prefix(&mut schedule, team, own, (result, through), segments);
        }
        Prefix::Doubling => {
            let passed = schedule.room(len);
            let received = schedule.room(len);
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            schedule.copy(own, passed);
            prefix::prefix(&mut schedule, team, passed, received, |schedule, first| {
                if first {
                    schedule.copy(received, result);
                } else {
                    schedule.reduce(received, result);
                }
            });
        }
    }
    schedule
}
