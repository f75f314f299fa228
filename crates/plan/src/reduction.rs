//! Operations that combine data. Units are elements.
//!
//! Operands are combined in the order of ranks (MPI-5.0 §6.9.1) unless the operation commutes; the
//! order depends on nothing but the arguments, so results repeat bit for bit.

use crate::across::prefix::{Prefix, prefix as prefix_across};
use crate::across::reduction as across;
use crate::crowd;
use crate::schedule::{Buffer, Schedule, Span, part, starts};
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
    /// Whether contributions lie in the output, of the root or of all.
    pub in_place: bool,
}

impl Operands {
    fn are_long(&self) -> bool {
        self.len * self.element >= LONG
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
    let size = topology.size();
    let Operands { len, commutes, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    if let Some(sites) = topology.across() {
        across::reduce(&mut schedule, sites, rank, root, operands);
        return schedule;
    }
    let own = match (rank == root, in_place) {
        (true, true) => Buffer::Output.span(0, len),
        _ => Buffer::Input.span(0, len),
    };
    if topology.is_crowded() {
        if operands.are_long() {
            let part = crowd::reduce_scatter(&mut schedule, rank, own, &parts(len, size));
            gather_parts(&mut schedule, rank, size, root, len, part);
        } else {
            crowd::reduce(&mut schedule, rank, size, root, own, Buffer::Output.span(0, len));
        }
        return schedule;
    }
    if commutes && operands.are_long() && size > 4 && len >= u64::from(size) {
        let sum = schedule.room(len);
        schedule.copy(own, sum);
        ring_reduce_scatter(&mut schedule, rank, size, sum.buffer, &parts(len, size));
        let (start, own) = part(len, size, rank);
        gather_parts(&mut schedule, rank, size, root, len, sum.part(start, own));
        return schedule;
    }
    let top = if commutes { root } else { 0 };
    let is_top = rank == top;
    let sum = if is_top && rank == root { Buffer::Output } else { schedule.temporary(len) };
    let sum = sum.span(0, len);
    if own != sum {
        schedule.copy(own, sum);
    }
    binomial_reduce(&mut schedule, rank, size, top, sum);
    if top != root {
        if is_top {
            schedule.send(root, sum);
        }
        if rank == root {
            schedule.receive(top, Buffer::Output.span(0, len));
        }
        schedule.wait();
    }
    schedule
}

/// Up a binomial tree; `sum` holds the own contribution and, at the top, the result.
fn binomial_reduce(schedule: &mut Schedule, rank: u32, size: u32, top: u32, sum: Span) {
    let relative = (rank + size - top) % size;
    let absolute = |relative: u32| (relative + top) % size;
    let received = schedule.temporary(sum.len).span(0, sum.len);
    let mut bit = 1;
    while bit < size {
        if relative & bit != 0 {
            schedule.send(absolute(relative - bit), sum);
            schedule.wait();
            return;
        }
        if relative + bit < size {
            schedule.receive(absolute(relative + bit), received);
            schedule.wait();
            // The child's ranks come after ours.
            schedule.reduce(sum, received);
            schedule.copy(received, sum);
        }
        bit *= 2;
    }
}

/// Everyone's operands, combined, to everyone's output.
///
/// Short: recursive doubling, after the ranks beyond a power of two have joined a neighbour; what is very
/// short is gathered by 5, 6 and 7 ranks, which takes three rounds (the aim of Torres and Kofuji). Long:
/// a ring that scatters the reduction, and a ring that gathers it; 2n(p−1)/p elements per rank. In a
/// crowd rank 0 combines what is short, and each rank a part of what is long.
pub fn allreduce(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let size = topology.size();
    let Operands { len, commutes, in_place, .. } = operands;
    let mut schedule = Schedule::default();
    if let Some(sites) = topology.across() {
        across::allreduce(&mut schedule, sites, rank, operands);
        return schedule;
    }
    let whole = Buffer::Output.span(0, len);
    if topology.is_crowded() && operands.are_long() {
        let own = if in_place { whole } else { Buffer::Input.span(0, len) };
        let blocks = parts(len, size);
        let part = crowd::reduce_scatter(&mut schedule, rank, own, &blocks);
        let blocks: Vec<Span> = blocks.iter().map(|&(start, len)| whole.part(start, len)).collect();
        schedule.copy(part, blocks[rank as usize]);
        crowd::allgather(&mut schedule, rank, part, &blocks);
        return schedule;
    }
    if !in_place {
        schedule.copy(Buffer::Input.span(0, len), whole);
    }
    if size == 1 || len == 0 {
        return schedule;
    }
    if commutes && operands.are_long() && len >= u64::from(size) {
        let blocks = parts(len, size);
        ring_reduce_scatter(&mut schedule, rank, size, Buffer::Output, &blocks);
        ring_allgather(&mut schedule, rank, size, &blocks);
    } else if topology.is_crowded() {
        crowd::reduce(&mut schedule, rank, size, 0, whole, whole);
        crowd::broadcast(&mut schedule, rank, size, 0, whole);
    } else if [5, 6, 7].contains(&size) && len * operands.element <= GATHERED_MAX {
        gather_and_combine(&mut schedule, rank, size, whole);
    } else {
        recursive_doubling(&mut schedule, rank, size, whole);
    }
    schedule
}

/// Pairs exchange partial results over distances 1, 2, 4…; neighbours in the first rounds hold
/// neighbouring ranks' operands, so the order of ranks is kept.
fn recursive_doubling(schedule: &mut Schedule, rank: u32, size: u32, whole: Span) {
    let received = schedule.temporary(whole.len).span(0, whole.len);
    let power = 1 << size.ilog2();
    let extra = size - power;
    // The first 2·extra ranks pair up; the odd ones stand for both.
    let position = if rank < 2 * extra {
        if rank.is_multiple_of(2) {
            schedule.send(rank + 1, whole);
            schedule.wait();
            schedule.receive(rank + 1, whole);
            schedule.wait();
            return;
        }
        schedule.receive(rank - 1, received);
        schedule.wait();
        schedule.reduce(received, whole);
        rank / 2
    } else {
        rank - extra
    };
    let rank_at = |position: u32| {
        if position < extra { 2 * position + 1 } else { position + extra }
    };
    let mut distance = 1;
    while distance < power {
        let partner = position ^ distance;
        schedule.receive(rank_at(partner), received);
        schedule.send(rank_at(partner), whole);
        schedule.wait();
        if partner < position {
            schedule.reduce(received, whole);
        } else {
            schedule.reduce(whole, received);
            schedule.copy(received, whole);
        }
        distance *= 2;
    }
    if rank < 2 * extra {
        schedule.send(rank - 1, whole);
        schedule.wait();
    }
}

/// Every rank gets all operands, each round twice as many (Bruck 1997), and combines them in order. Each
/// operand has a buffer of its own: a datatype's elements may lie between each other's parts.
fn gather_and_combine(schedule: &mut Schedule, rank: u32, size: u32, whole: Span) {
    // The operand of the rank so many below.
    let operands: Vec<Span> = (0..size).map(|_| schedule.room(whole.len)).collect();
    schedule.copy(whole, operands[0]);
    let mut have = 1;
    while have < size {
        let passed = have.min(size - have);
        for below in 0..passed {
            let place = operands[(have + below) as usize];
            schedule.receive((rank + size - have) % size, place);
            schedule.send((rank + have) % size, operands[below as usize]);
        }
        schedule.wait();
        have += passed;
    }
    let of = |other: u32| operands[((rank + size - other) % size) as usize];
    (1..size).for_each(|other| schedule.reduce(of(other - 1), of(other)));
    schedule.copy(of(size - 1), whole);
}

/// Afterwards block `rank` of `buffer` is complete: each block travels once around, every rank adding
/// its own. Needs an operation that commutes.
fn ring_reduce_scatter(
    schedule: &mut Schedule,
    rank: u32,
    size: u32,
    buffer: Buffer,
    blocks: &[(u64, u64)],
) {
    let longest = blocks.iter().map(|&(_, len)| len).max().unwrap_or(0);
    let received = schedule.temporary(longest);
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let block = |index: u32| {
        let (start, len) = blocks[(index % size) as usize];
        buffer.span(start, len)
    };
    for round in 0..size - 1 {
        let out = block(rank + 2 * size - round - 1);
        let into = block(rank + 2 * size - round - 2);
        schedule.receive(previous, received.span(0, into.len));
        schedule.send(next, out);
        schedule.wait();
        schedule.reduce(received.span(0, into.len), into);
    }
}

fn ring_allgather(schedule: &mut Schedule, rank: u32, size: u32, blocks: &[(u64, u64)]) {
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let block = |index: u32| {
        let (start, len) = blocks[(index % size) as usize];
        Buffer::Output.span(start, len)
    };
    for round in 0..size - 1 {
        schedule.receive(previous, block(rank + size - round - 1));
        schedule.send(next, block(rank + size - round));
        schedule.wait();
    }
}

/// Everyone's part of `len` elements, which lies at `own`, to the root's output.
fn gather_parts(schedule: &mut Schedule, rank: u32, size: u32, root: u32, len: u64, own: Span) {
    if rank != root {
        schedule.send(root, own);
        schedule.wait();
        return;
    }
    for from in (0..size).filter(|&from| from != root) {
        let (start, len) = part(len, size, from);
        schedule.receive(from, Buffer::Output.span(start, len));
    }
    schedule.copy(own, Buffer::Output.span(part(len, size, rank).0, own.len));
    schedule.wait();
}

/// Everyone's input, combined; block `i` of the result, `counts(i)` elements, to rank `i`'s output. In
/// place, the caller has copied the output to the input.
pub fn reduce_scatter(
    rank: u32,
    topology: &Topology,
    counts: &dyn Fn(u32) -> u64,
    element: u64,
    commutes: bool,
) -> Schedule {
    let size = topology.size();
    let mut schedule = Schedule::default();
    let starts = starts((0..size).map(counts));
    let len = starts[size as usize];
    if let Some(sites) = topology.across() {
        let lies = |rank: u32| (starts[rank as usize], counts(rank));
        across::reduce_scatter(&mut schedule, sites, rank, &lies, element, commutes);
        return schedule;
    }
    if topology.is_crowded() {
        let blocks: Vec<(u64, u64)> =
            (0..size).map(|index| (starts[index as usize], counts(index))).collect();
        let input = Buffer::Input.span(0, len);
        let part = crowd::reduce_scatter(&mut schedule, rank, input, &blocks);
        schedule.copy(part, Buffer::Output.span(0, part.len));
        return schedule;
    }
    let sum = schedule.temporary(len);
    schedule.copy(Buffer::Input.span(0, len), sum.span(0, len));
    let own = sum.span(starts[rank as usize], counts(rank));
    if size == 1 || len == 0 {
        schedule.copy(own, Buffer::Output.span(0, own.len));
        return schedule;
    }
    if commutes && len * element >= LONG {
        let blocks: Vec<(u64, u64)> =
            (0..size).map(|index| (starts[index as usize], counts(index))).collect();
        ring_reduce_scatter(&mut schedule, rank, size, sum, &blocks);
        schedule.copy(own, Buffer::Output.span(0, own.len));
        return schedule;
    }
    binomial_reduce(&mut schedule, rank, size, 0, sum.span(0, len));
    if rank == 0 {
        for to in 1..size {
            schedule.send(to, sum.span(starts[to as usize], counts(to)));
        }
        schedule.copy(own, Buffer::Output.span(0, own.len));
    } else {
        schedule.receive(0, Buffer::Output.span(0, own.len));
    }
    schedule.wait();
    schedule
}

/// The combination of the inputs of ranks up to and with this one.
pub fn scan(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, in_place, .. } = operands;
    let size = topology.size();
    let mut schedule = Schedule::default();
    if let Some(sites) = topology.across() {
        let own = operands.outside_output(&mut schedule, in_place);
        prefix_across(&mut schedule, sites, rank, Prefix::Scan, own, operands.element);
        return schedule;
    }
    let result = Buffer::Output.span(0, len);
    if !in_place {
        schedule.copy(Buffer::Input.span(0, len), result);
    }
    let passed = schedule.temporary(len).span(0, len);
    let received = schedule.temporary(len).span(0, len);
    schedule.copy(result, passed);
    prefix(&mut schedule, rank, size, passed, received, |schedule, _| {
        schedule.reduce(received, result);
    });
    schedule
}

/// The combination of the inputs of ranks below this one; rank 0's output is left as it is.
pub fn exscan(rank: u32, topology: &Topology, operands: Operands) -> Schedule {
    let Operands { len, in_place, .. } = operands;
    let size = topology.size();
    let mut schedule = Schedule::default();
    if let Some(sites) = topology.across() {
        let own = operands.outside_output(&mut schedule, in_place);
        prefix_across(&mut schedule, sites, rank, Prefix::Exscan, own, operands.element);
        return schedule;
    }
    let result = Buffer::Output.span(0, len);
    let passed = schedule.temporary(len).span(0, len);
    let received = schedule.temporary(len).span(0, len);
    let own = if in_place { result } else { Buffer::Input.span(0, len) };
    schedule.copy(own, passed);
    prefix(&mut schedule, rank, size, passed, received, |schedule, first| {
        if first {
            schedule.copy(received, result);
        } else {
            schedule.reduce(received, result);
        }
    });
    schedule
}

/// Rounds over distances 1, 2, 4…: `passed` is the combination of the ranks from `rank − distance + 1`
/// on; `add` takes what came from below, the first time with `true`.
fn prefix(
    schedule: &mut Schedule,
    rank: u32,
    size: u32,
    passed: Span,
    received: Span,
    mut add: impl FnMut(&mut Schedule, bool),
) {
    let mut distance = 1;
    while distance < size {
        if rank >= distance {
            schedule.receive(rank - distance, received);
        }
        if rank + distance < size {
            schedule.send(rank + distance, passed);
        }
        schedule.wait();
        if rank >= distance {
            add(schedule, distance == 1);
            schedule.reduce(received, passed);
        }
        distance *= 2;
    }
}

fn parts(len: u64, size: u32) -> Vec<(u64, u64)> {
    (0..size).map(|index| part(len, size, index)).collect()
}

/// From here on bandwidth counts more than rounds, in bytes.
const LONG: u64 = 64 << 10;

/// Up to so many bytes some messages more cost less than two rounds.
const GATHERED_MAX: u64 = 128;
