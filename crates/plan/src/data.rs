//! Operations that move data: barrier, broadcast, gather, scatter, allgather, alltoall. Units are bytes.

use crate::algorithms::{
    binomial, bruck, chain, dissemination, linear, pairwise, ring, tournament, two_tree,
    van_de_geijn,
};
use crate::catalogue::{Allgather, Alltoall, Barrier, Broadcast, Catalogue, Gather};
use crate::choice::{Algorithm, Call, Operation};
use crate::hierarchical;
use crate::multisite::{self, aggregated, exchange};
use crate::schedule::{Buffer, Schedule, Span, starts};
use crate::team::Team;
use crate::topology::Topology;

/// Waits until all ranks have arrived.
pub fn barrier(rank: u32, topology: &Topology) -> Schedule {
    let mut schedule = Schedule::default();
    let team = topology.by_place(rank);
    let call = Call::of(Operation::Barrier, 0);
    let shm = |algorithm| topology.node_shm(rank, 1, &call, algorithm);
    match Barrier::of(topology, &call) {
        Barrier::Leaders | Barrier::Multisite => {
            let shm = shm(topology.leaders());
            multisite::barrier::barrier(&mut schedule, &topology.grid().short, rank, shm);
        }
        Barrier::Hierarchical => {
            hierarchical::barrier(&mut schedule, topology, rank, shm(Algorithm::Hierarchical));
        }
        Barrier::Tournament => tournament::barrier(&mut schedule, team),
        Barrier::Shmem => topology.shm(rank, 1).barrier(&mut schedule),
        Barrier::Linear => linear::barrier(&mut schedule, team),
        Barrier::Dissemination => dissemination::barrier(&mut schedule, team),
    }
    schedule
}

/// Sends `len` bytes of the root's output to everyone's.
pub fn broadcast(rank: u32, topology: &Topology, root: u32, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let span = Buffer::Output.span(0, len);
    let team = topology.by_place(rank).led_by(topology.place(root));
    let call = Call::of(Operation::Broadcast, len).with_root(root);
    let shm = |algorithm| topology.node_shm(rank, 1, &call, algorithm);
    match Broadcast::of(topology, &call) {
        Broadcast::Leaders | Broadcast::Multisite => {
            let (grid, shm) = (topology.grid(), shm(topology.leaders()));
            multisite::broadcast::broadcast(&mut schedule, grid, rank, root, len, shm);
        }
        Broadcast::Hierarchical => {
            let shm = shm(Algorithm::Hierarchical);
            hierarchical::broadcast(&mut schedule, topology, rank, root, span, shm);
        }
        Broadcast::Shmem => topology.shm(rank, 1).broadcast(&mut schedule, root, span),
        Broadcast::Linear => linear::broadcast(&mut schedule, team, span),
        Broadcast::VanDeGeijn => van_de_geijn::broadcast(&mut schedule, team, span),
        Broadcast::Chain => {
            let segments = topology.model().chain_segments(len) as u32;
            chain::broadcast(&mut schedule, team, span, segments);
        }
        Broadcast::TwoTree if topology.nodes() > 1 => {
            hierarchical::broadcast_by_trees(&mut schedule, topology, rank, root, span);
        }
        Broadcast::TwoTree => {
            let [segments, _] = topology.model().tree_segments(len);
            two_tree::broadcast(&mut schedule, team, span, segments as u32);
        }
        Broadcast::Binomial => binomial::broadcast(&mut schedule, team, span),
    }
    schedule
}

/// Gathers every rank's block in the root's output. `sizes` are the blocks' lengths, known at the
/// root. Other ranks know only their own, and that all are equal if `uniform`.
pub fn gather(
    rank: u32,
    topology: &Topology,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    uniform: bool,
    in_place: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let is_aside = in_place && rank == root;
    let len = if uniform { sizes(rank) } else { aggregated::SLOT };
    let call = blocks(Operation::Gather, len, uniform).with_root(root);
    let shm = || topology.node_shm(rank, 1, &call, topology.aggregated());
    match Gather::of(topology, &call) {
        Gather::Aggregated if !uniform => {
            let levels = &topology.grid().short;
            aggregated::gather_slots(&mut schedule, levels, rank, root, sizes, in_place, shm());
        }
        Gather::Leaders | Gather::Aggregated => {
            let levels = &topology.grid().short;
            aggregated::gather(&mut schedule, levels, rank, root, sizes(rank), in_place, shm());
        }
        Gather::Binomial => {
            let tree = Tree::new(&mut schedule, topology, rank, root, sizes(rank));
            tree.gather(&mut schedule, is_aside);
        }
        Gather::Shmem => {
            let starts = if rank == root { all_starts(topology, sizes) } else { Vec::new() };
            let own = Buffer::Input.span(0, sizes(rank));
            let place = |from: u32| Buffer::Output.span(starts[from as usize], sizes(from));
            let shm = topology.shm(rank, 1);
            shm.gather(&mut schedule, root, own, &place);
            if rank == root && !in_place {
                schedule.copy(own, place(root));
            }
        }
        Gather::Linear => {
            let starts = if rank == root { all_starts(topology, sizes) } else { Vec::new() };
            let team = topology.by_rank(rank).led_by(root);
            let own = Buffer::Input.span(0, sizes(rank));
            let place = |from: u32| Buffer::Output.span(starts[from as usize], sizes(from));
            if rank == root && !in_place {
                schedule.copy(own, place(root));
            }
            linear::gather(&mut schedule, team, &|position| {
                if rank == root { place(team.rank(position)) } else { own }
            });
        }
    }
    schedule
}

/// Sends blocks of the root's input to everyone's output. The arguments are those of [`gather`].
pub fn scatter(
    rank: u32,
    topology: &Topology,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    uniform: bool,
    in_place: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let is_aside = in_place && rank == root;
    let len = if uniform { sizes(rank) } else { aggregated::SLOT };
    let call = blocks(Operation::Scatter, len, uniform).with_root(root);
    let shm = || topology.node_shm(rank, 1, &call, topology.aggregated());
    match Gather::of(topology, &call) {
        Gather::Aggregated if !uniform => {
            let levels = &topology.grid().short;
            aggregated::scatter_slots(&mut schedule, levels, rank, root, sizes, in_place, shm());
        }
        Gather::Leaders | Gather::Aggregated => {
            let levels = &topology.grid().short;
            aggregated::scatter(&mut schedule, levels, rank, root, sizes(rank), in_place, shm());
        }
        Gather::Binomial => {
            let tree = Tree::new(&mut schedule, topology, rank, root, sizes(rank));
            tree.scatter(&mut schedule, is_aside);
        }
        Gather::Shmem if !uniform => {
            let starts = if rank == root { all_starts(topology, sizes) } else { Vec::new() };
            let place = |to: u32| Buffer::Input.span(starts[to as usize], sizes(to));
            let own = Buffer::Output.span(0, sizes(rank));
            topology.shm(rank, 1).scatter_blocks(&mut schedule, root, &place, own);
            if rank == root && !in_place {
                schedule.copy(place(root), own);
            }
        }
        Gather::Shmem => {
            let len = sizes(rank);
            let whole = Buffer::Input.span(0, u64::from(topology.size()) * len);
            let own = Buffer::Output.span(0, len);
            topology.shm(rank, 1).scatter(&mut schedule, root, whole, own);
            if rank == root && !in_place {
                schedule.copy(whole.part(u64::from(rank) * len, len), own);
            }
        }
        Gather::Linear => scatter_straight(&mut schedule, rank, topology, root, sizes, in_place),
    }
    schedule
}

/// Scatters each block directly from the root, in any units.
pub(crate) fn scatter_straight(
    schedule: &mut Schedule,
    rank: u32,
    topology: &Topology,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
) {
    let own = Buffer::Output.span(0, sizes(rank));
    if rank != root {
        schedule.receive(root, own);
        return schedule.wait();
    }
    let starts = all_starts(topology, sizes);
    let place = |to: u32| Buffer::Input.span(starts[to as usize], sizes(to));
    // The longest transfer leaves first.
    let team = topology.farthest_first(root, sizes);
    let team = Team::of(&team, 0);
    linear::scatter(schedule, team, &|position| place(team.rank(position)));
    if !in_place {
        schedule.copy(place(root), own);
    }
}

/// Gathers every rank's block in everyone's output; `sizes` are the blocks' lengths.
pub fn allgather(
    rank: u32,
    topology: &Topology,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    let starts = all_starts(topology, sizes);
    let total = starts[size as usize];
    let block = |rank: u32| Buffer::Output.span(starts[rank as usize], sizes(rank));
    let average = total.div_ceil(u64::from(size.max(1)));
    let longest = (0..size).map(sizes).max().unwrap_or(0);
    let call = Call { longest, ..blocks(Operation::Allgather, average, true) };
    let shm = |algorithm| topology.node_shm(rank, 1, &call, algorithm);
    let algorithm = Allgather::of(topology, &call);
    let own = Buffer::Input.span(0, sizes(rank));
    if !in_place && !matches!(algorithm, Allgather::Leaders | Allgather::Aggregated) {
        schedule.copy(own, block(rank));
    }
    match algorithm {
        Allgather::Leaders | Allgather::Aggregated => {
            let (levels, shm) = (&topology.grid().short, shm(topology.aggregated()));
            aggregated::allgather(&mut schedule, levels, rank, sizes, in_place, shm);
        }
        Allgather::Linear => {
            let team = topology.by_rank(rank);
            linear::gather(&mut schedule, team, &block);
            linear::broadcast(&mut schedule, team, Buffer::Output.span(0, total));
        }
        Allgather::Shmem => {
            topology.shm(rank, 1).allgather(&mut schedule, (block(rank), longest), &block);
        }
        Allgather::Pairwise => {
            let own = if in_place { block(rank) } else { own };
            pairwise::allgather(&mut schedule, topology.by_rank(rank), own, &block);
        }
        Allgather::Tournament => {
            let run = |first: u32, count: u32| {
                let (start, end) = (starts[first as usize], starts[(first + count) as usize]);
                Buffer::Output.span(start, end - start)
            };
            tournament::allgather(&mut schedule, topology.by_rank(rank), &run);
        }
        Allgather::Multisite => {
            let lies = |rank: u32| (starts[rank as usize], sizes(rank));
            multisite::broadcast::allgather(&mut schedule, topology.grid(), rank, &lies);
        }
        Allgather::Hierarchical => {
            let shm = shm(Algorithm::Hierarchical);
            hierarchical::allgather(&mut schedule, topology, rank, &starts, shm);
        }
        Allgather::Ring => {
            let team = topology.by_place(rank);
            ring::allgather(&mut schedule, team, &|position| block(team.rank(position)));
        }
        Allgather::Bruck => {
            let run = |last, count| run(&starts, last, count);
            bruck::allgather(&mut schedule, topology.by_rank(rank), &run);
        }
    }
    schedule
}

/// Returns the `count` blocks that end with block `last`, around the end of the buffer: one span or
/// two.
fn run(starts: &[u64], last: u32, count: u32) -> [Option<Span>; 2] {
    let size = starts.len() as u32 - 1;
    let span = |first: u32, end: u32| {
        let (start, end) = (starts[first as usize], starts[end as usize]);
        Buffer::Output.span(start, end - start)
    };
    if count <= last + 1 {
        [Some(span(last + 1 - count, last + 1)), None]
    } else {
        [Some(span(size + last + 1 - count, size)), Some(span(0, last + 1))]
    }
}

/// Sends block `i` of everyone's input to rank `i`'s output. `sends` and `receives` are the blocks'
/// lengths. `uniform` is true if all blocks of all ranks are equal. Otherwise they go pairwise or
/// by the shared segment: no rank knows the others' lengths, and usually most are empty. In place,
/// the input is the caller's copy of the output.
pub fn alltoall(
    rank: u32,
    topology: &Topology,
    sends: &dyn Fn(u32) -> u64,
    receives: &dyn Fn(u32) -> u64,
    uniform: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let len = if uniform { sends(rank) } else { 0 };
    let even = |buffer: Buffer, index: u32| buffer.span(u64::from(index) * len, len);
    match Alltoall::of(topology, &blocks(Operation::Alltoall, len, uniform)) {
        Alltoall::Leaders | Alltoall::Aggregated => {
            exchange::alltoall(&mut schedule, &topology.grid().short, rank, len);
        }
        Alltoall::Shmem if uniform => {
            let whole = Buffer::Input.span(0, u64::from(topology.size()) * len);
            let place = |from: u32| even(Buffer::Output, from);
            schedule.copy(even(Buffer::Input, rank), place(rank));
            topology.shm(rank, 1).alltoall(&mut schedule, whole, &place);
        }
        Alltoall::Bruck => {
            let team = topology.by_place(rank);
            let input = |to: u32| even(Buffer::Input, team.rank(to));
            let output = |from: u32| even(Buffer::Output, team.rank(from));
            bruck::alltoall(&mut schedule, team, len, &input, &output);
        }
        algorithm @ (Alltoall::Shmem | Alltoall::Pairwise) => {
            let (outs, ins) = (all_starts(topology, sends), all_starts(topology, receives));
            let input = |to: u32| Buffer::Input.span(outs[to as usize], sends(to));
            let output = |from: u32| Buffer::Output.span(ins[from as usize], receives(from));
            let own = input(rank);
            schedule.copy(own, output(rank).part(0, own.len));
            match algorithm {
                Alltoall::Shmem => {
                    topology.shm(rank, 1).alltoall_blocks(&mut schedule, &input, &output);
                }
                _ => pairwise::alltoall(&mut schedule, topology.by_rank(rank), &input, &output),
            }
        }
    }
    schedule
}

/// Makes the call on blocks of `bytes` bytes, a number that all ranks know.
fn blocks(operation: Operation, bytes: u64, is_uniform: bool) -> Call {
    Call { is_uniform, ..Call::of(operation, bytes) }
}

fn all_starts(topology: &Topology, sizes: &dyn Fn(u32) -> u64) -> Vec<u64> {
    starts((0..topology.size()).map(sizes))
}

/// Equal blocks on a binomial tree in the order of the grid, with the root first. A rank holds the
/// blocks of its subtree adjacent to each other.
struct Tree<'a> {
    team: Team<'a>,
    len: u64,
    held: Span,
}

impl<'a> Tree<'a> {
    fn new(
        schedule: &mut Schedule,
        topology: &'a Topology,
        rank: u32,
        root: u32,
        len: u64,
    ) -> Self {
        let team = topology.by_place(rank).led_by(topology.place(root));
        let below = binomial::subtree(team.me, team.size());
        let held = schedule.room(u64::from(below) * len);
        Self { team, len, held }
    }

    fn gather(&self, schedule: &mut Schedule, in_place: bool) {
        let rank = self.team.rank(self.team.me);
        let own = match in_place {
            true => Buffer::Output.span(u64::from(rank) * self.len, self.len),
            false => Buffer::Input.span(0, self.len),
        };
        schedule.copy(own, self.held.part(0, self.len));
        binomial::gather(schedule, self.team, &|first, count| self.below(first, count));
        if self.team.me == 0 {
            for (start, span) in self.runs() {
                schedule.copy(span, Buffer::Output.span(start, span.len));
            }
        }
    }

    fn scatter(&self, schedule: &mut Schedule, in_place: bool) {
        if self.team.me == 0 {
            for (start, span) in self.runs() {
                schedule.copy(Buffer::Input.span(start, span.len), span);
            }
        }
        binomial::scatter(schedule, self.team, &|first, count| self.below(first, count));
        if !in_place {
            schedule.copy(self.held.part(0, self.len), Buffer::Output.span(0, self.len));
        }
    }

    fn below(&self, first: u32, count: u32) -> Span {
        let start = u64::from(first - self.team.me) * self.len;
        self.held.part(start, u64::from(count) * self.len)
    }

    /// Returns the start of each run of consecutive ranks in the order of ranks, and its span at
    /// the root.
    fn runs(&self) -> Vec<(u64, Span)> {
        let mut runs: Vec<(u64, Span)> = Vec::new();
        for position in 0..self.team.size() {
            let start = u64::from(self.team.rank(position)) * self.len;
            match runs.last_mut() {
                Some((first, span)) if *first + span.len == start => span.len += self.len,
                _ => runs.push((start, self.below(position, 1))),
            }
        }
        runs
    }
}
