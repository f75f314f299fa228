//! Operations that combine data. Units are elements.
//!
//! Operands are combined in the order of ranks (MPI-5.0 §6.9.1) unless the operation commutes. Unless the result is the
//! same in any order, that depends on nothing but the arguments and where the ranks run ([`crate::order`]), so that
//! results repeat bit for bit.

use crate::algorithms::{
    binomial, butterfly, chain, doubling, halving, linear, pairwise, prefix, ring, two_tree,
};
use crate::catalogue::{Allreduce, Prefix, Reduce, ReduceScatter, Ways};
use crate::choice::{Algorithm, Call, Operation};
use crate::levels;
use crate::multisite::prefix as sites;
use crate::multisite::reduction as multisite;
use crate::schedule::{Buffer, Schedule, Span, part, starts};
use crate::team::Team;
use crate::topology::Topology;

/// What is combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// Elements of each rank.
    pub len: u64,
    /// An element's size in bytes.
    pub element: u64,
    /// Whether the operation commutes.
    pub commutes: bool,
    /// Whether the result is the same to the last bit in whatever order they are combined.
    pub is_exact: bool,
    /// Whether contributions lie in the output, of the root or of all.
    pub in_place: bool,
}

impl Operands {
    /// So many bytes of each rank.
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(self.element)
    }

    /// The call that an operation on them is.
    pub fn call(&self, operation: Operation) -> Call {
        let bytes = self.bytes();
        let Self { len: units, commutes, is_exact, .. } = *self;
        Call { units, commutes, is_exact, ..Call::of(operation, bytes) }
    }

    /// In how many segments they go along a chain.
    fn chain_segments(&self, topology: &Topology) -> u32 {
        let segments = topology.model().chain_segments(self.bytes());
        segments.min(self.len).max(1) as u32
    }

    /// In how many segments a half of them goes up each of two trees, of the ranks of a node, and of nodes.
    fn tree_segments(&self, topology: &Topology) -> [u32; 2] {
        let segments = topology.model().tree_segments(self.bytes());
        segments.map(|segments| segments.min(self.len / 2).max(1) as u32)
    }

    /// Where this rank's operand is: not in the output, to which results come while it is on its way.
    pub(crate) fn outside_output(&self, schedule: &mut Schedule, in_place: bool) -> Span {
        if !in_place {
            return Buffer::Input.span(0, self.len);
        }
        let aside = schedule.room(self.len);
        schedule.copy(Buffer::Output.span(0, self.len), aside);
        aside
    }
}

/// Everyone's operands, combined, to the root's output.
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
    let route = Route { root, team, own, result };
    let call = operands.call(Operation::Reduce).with_root(root);
    let near_seat = |algorithm| topology.near_seat(rank, operands.element, &call, algorithm);
    match Reduce::of(topology, &call) {
        Reduce::Leaders | Reduce::Multisite => {
            let (across, seat) = (topology.across(), near_seat(topology.heads()));
            multisite::reduce(&mut schedule, across, rank, root, operands, seat);
        }
        Reduce::Shmem => {
            let first = if commutes { root } else { 0 };
            let is_shared = topology.shares_in_shmem(&call);
            let seat = topology.seat(rank, operands.element);
            seat.reduce(&mut schedule, (root, first), (own, output), is_shared);
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
            route.reduce(&mut schedule, (commutes, root_at), |schedule, team, result| {
                let own = apart(schedule, own, result);
                chain::reduce(schedule, team, own, result, segments);
            });
        }
        Reduce::TwoTree => {
            let segments = operands.tree_segments(topology);
            route.reduce(&mut schedule, (commutes, root_at), |schedule, team, result| {
                let own = apart(schedule, own, result);
                if topology.nodes() > 1 {
                    let (root, ends) = (commutes.then_some(root), (own, result));
                    levels::reduce_by_trees(schedule, topology, rank, root, ends, segments);
                } else {
                    two_tree::reduce(schedule, team, own, result, segments[0]);
                }
            });
        }
        Reduce::Hierarchical => {
            route.reduce(&mut schedule, (commutes, root_at), |schedule, _, result| {
                let root = commutes.then_some(root);
                let seat = near_seat(Algorithm::Hierarchical);
                levels::reduce(schedule, topology, rank, root, (own, result), seat);
            });
        }
        Reduce::Binomial => {
            route.reduce(&mut schedule, (commutes, root_at), |schedule, team, result| {
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

/// An operand, not where the result goes: what comes is put to it, not on it.
fn apart(schedule: &mut Schedule, own: Span, result: Option<Span>) -> Span {
    if result != Some(own) {
        return own;
    }
    let aside = schedule.room(own.len);
    schedule.copy(own, aside);
    aside
}

/// Ways on which the first of a team gets the result.
struct Route<'a> {
    root: u32,
    team: Team<'a>,
    own: Span,
    /// Where the result goes, at the root.
    result: Option<Span>,
}

impl Route<'_> {
    /// To the root, at whose position the team is turned where order does not matter; else to the first
    /// rank, which sends the root what it has. `go` reduces to the first of the team, which has where to.
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

    /// The result from the top to the root, if it is another.
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

/// All ranks in the order of the grid, or in their own where operands have to be combined in it.
fn arranged(topology: &Topology, rank: u32, commutes: bool) -> Team<'_> {
    if commutes { topology.by_place(rank) } else { topology.by_rank(rank) }
}

/// Everyone's operands, combined, to everyone's output.
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
    let near_seat = |algorithm| topology.near_seat(rank, operands.element, &call, algorithm);
    let way = Allreduce::of(topology, &call);
    match way {
        Allreduce::Leaders | Allreduce::Multisite | Allreduce::Pairwise | Allreduce::Shmem => {}
        Allreduce::Linear
        | Allreduce::Doubling
        | Allreduce::Butterfly
        | Allreduce::Halving
        | Allreduce::Ring
        | Allreduce::Hierarchical => {
            if !in_place {
                schedule.copy(own, whole);
            }
            if topology.size() == 1 || len == 0 {
                return schedule;
            }
        }
    }
    match way {
        Allreduce::Leaders | Allreduce::Multisite => {
            let (across, seat) = (topology.across(), near_seat(topology.heads()));
            multisite::allreduce(&mut schedule, across, rank, operands, seat);
        }
        Allreduce::Pairwise => {
            let team = topology.by_rank(rank);
            let mine = pairwise::reduce_scatter(&mut schedule, team, &|of| block(own, of));
            schedule.copy(mine, block(whole, rank));
            pairwise::allgather(&mut schedule, team, mine, &|of| block(whole, of));
        }
        Allreduce::Shmem => {
            let is_shared = topology.shares_in_shmem(&call);
            let seat = topology.seat(rank, operands.element);
            seat.allreduce(&mut schedule, own, whole, is_shared);
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
        Allreduce::Halving => halving::allreduce(&mut schedule, team, whole),
        Allreduce::Hierarchical => {
            let seat = near_seat(Algorithm::Hierarchical);
            levels::allreduce(&mut schedule, topology, rank, whole, seat);
        }
        Allreduce::Doubling => doubling::allreduce(&mut schedule, team, whole),
    }
    schedule
}

/// Everyone's input, combined; block `i` of the result, `counts(i)` elements, to rank `i`'s output. Of
/// the operands all but their number counts. In place, the caller has copied the output to the input.
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
            let (across, lies) =
                (topology.across(), |rank: u32| (starts[rank as usize], counts(rank)));
            let seat = topology.near_seat(rank, operands.element, &call, topology.heads());
            multisite::reduce_scatter(&mut schedule, across, rank, &lies, operands, seat);
        }
        ReduceScatter::Shmem => {
            let lies = |rank: u32| (starts[rank as usize], counts(rank));
            let seat = topology.seat(rank, operands.element);
            seat.reduce_scatter(&mut schedule, all, &lies, own);
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

/// The combination of the inputs of ranks up to and with this one.
pub fn scan(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, element, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    let result = Buffer::Output.span(0, len);
    let team = topology.by_rank(rank);
    let call = operands.call(Operation::Scan);
    match Prefix::of(topology, &call) {
        Prefix::Leaders | Prefix::Multisite => {
            let own = operands.outside_output(&mut schedule, in_place);
            let (across, prefix) = (topology.across(), sites::Prefix::Scan);
            sites::prefix(&mut schedule, across, rank, prefix, own, element);
        }
        Prefix::Shmem => {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            topology.seat(rank, element).prefix(&mut schedule, own, true, result);
        }
        Prefix::Chain
            if let Some(seat) = topology.near_seat(rank, element, &call, Algorithm::Chain) =>
        {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            seat.pass_prefix(&mut schedule, own, None, result);
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

/// The combination of the inputs of ranks below this one; rank 0's output is left as it is.
pub fn exscan(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, element, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    let result = Buffer::Output.span(0, len);
    let team = topology.by_rank(rank);
    let call = operands.call(Operation::Exscan);
    match Prefix::of(topology, &call) {
        Prefix::Leaders | Prefix::Multisite => {
            let own = operands.outside_output(&mut schedule, in_place);
            let (across, prefix) = (topology.across(), sites::Prefix::Exscan);
            sites::prefix(&mut schedule, across, rank, prefix, own, element);
        }
        Prefix::Shmem => {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            topology.seat(rank, element).prefix(&mut schedule, own, false, result);
        }
        Prefix::Chain
            if let Some(seat) = topology.near_seat(rank, element, &call, Algorithm::Chain) =>
        {
            let own = if in_place { result } else { Buffer::Input.span(0, len) };
            let through = schedule.room(len);
            seat.pass_prefix(&mut schedule, own, Some(result), through);
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
