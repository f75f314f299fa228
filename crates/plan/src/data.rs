//! Operations that move data: barrier, broadcast, gather, scatter, allgather, alltoall.
//!
//! Units are bytes. Short operations take ⌈log2 p⌉ rounds, long ones move no byte more often than
//! they must; thresholds are named at the end.

use crate::across::{self, bundle, exchange};
use crate::crowd;
use crate::schedule::{Buffer, Schedule, Span, part, starts};
use crate::topology::Topology;

/// Dissemination (Hensgen, Finkel, Manber 1988): after round `k` a rank has heard of `2^(k+1)` ranks.
/// In a crowd rank 0 hears and tells all.
pub fn barrier(rank: u32, topology: &Topology) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    if let Some(sites) = topology.across() {
        across::barrier::barrier(&mut schedule, &sites.short, rank);
        return schedule;
    }
    if topology.is_crowded() {
        crowd::barrier(&mut schedule, rank, size);
        return schedule;
    }
    let mut distance = 1;
    while distance < size {
        schedule.receive_signal((rank + size - distance) % size);
        schedule.send_signal((rank + distance) % size);
        schedule.wait();
        distance *= 2;
    }
    schedule
}

/// `len` bytes of the root's output to everyone's.
pub fn broadcast(rank: u32, topology: &Topology, root: u32, len: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    if let Some(sites) = topology.across() {
        across::broadcast::broadcast(&mut schedule, sites, rank, root, len);
    } else if len >= LONG && size > 4 && !topology.is_crowded() {
        scatter_for_broadcast(&mut schedule, rank, size, root, len);
        let blocks: Vec<Span> = (0..size)
            .map(|index| {
                let (start, len) = part(len, size, index);
                Buffer::Output.span(start, len)
            })
            .collect();
        let relative = (rank + size - root) % size;
        ring(&mut schedule, relative, size, root, &blocks);
    } else if topology.is_crowded() {
        crowd::broadcast(&mut schedule, rank, size, root, Buffer::Output.span(0, len));
    } else {
        binomial_broadcast(&mut schedule, rank, size, root, Buffer::Output.span(0, len));
    }
    schedule
}

/// From the root down a binomial tree.
pub(crate) fn binomial_broadcast(
    schedule: &mut Schedule,
    rank: u32,
    size: u32,
    root: u32,
    span: Span,
) {
    let relative = (rank + size - root) % size;
    let absolute = |relative: u32| (relative + root) % size;
    if relative != 0 {
        schedule.receive(absolute(relative & (relative - 1)), span);
        schedule.wait();
    }
    for bit in children(relative, size) {
        schedule.send(absolute(relative + bit), span);
    }
    schedule.wait();
}

/// The distances from a rank of a binomial tree to its children, the farthest first.
fn children(relative: u32, size: u32) -> impl Iterator<Item = u32> {
    let reach = if relative == 0 { size.next_power_of_two() } else { lowest_bit(relative) };
    let bits = (0..reach.trailing_zeros()).rev().map(|bit| 1 << bit);
    bits.filter(move |bit| relative + bit < size)
}

/// How many ranks of a binomial tree hang below a rank, itself included.
fn subtree(relative: u32, size: u32) -> u32 {
    if relative == 0 { size } else { lowest_bit(relative).min(size - relative) }
}

fn lowest_bit(number: u32) -> u32 {
    number & number.wrapping_neg()
}

/// Part `i` of the root's data to relative rank `i`, down a binomial tree (van de Geijn's first half).
fn scatter_for_broadcast(schedule: &mut Schedule, rank: u32, size: u32, root: u32, len: u64) {
    let relative = (rank + size - root) % size;
    let absolute = |relative: u32| (relative + root) % size;
    let span = |first: u32, count: u32| {
        let (start, _) = part(len, size, first);
        let end = if first + count == size { len } else { part(len, size, first + count).0 };
        Buffer::Output.span(start, end - start)
    };
    if relative != 0 {
        let parent = relative & (relative - 1);
        schedule.receive(absolute(parent), span(relative, subtree(relative, size)));
        schedule.wait();
    }
    for bit in children(relative, size) {
        let child = relative + bit;
        schedule.send(absolute(child), span(child, subtree(child, size)));
    }
    schedule.wait();
}

/// Everyone has block `relative` and gets the others, each passed on to the next neighbour.
fn ring(schedule: &mut Schedule, relative: u32, size: u32, root: u32, blocks: &[Span]) {
    let absolute = |relative: u32| (relative + root) % size;
    let (next, previous) =
        (absolute((relative + 1) % size), absolute((relative + size - 1) % size));
    for round in 0..size - 1 {
        schedule.receive(previous, blocks[((relative + size - round - 1) % size) as usize]);
        schedule.send(next, blocks[((relative + size - round) % size) as usize]);
        schedule.wait();
    }
}

/// Every rank's block to the root's output. `sizes` are the blocks' lengths, known at the root; other
/// ranks know only their own, and `uniform` that all are equal.
pub fn gather(
    rank: u32,
    topology: &Topology,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    uniform: bool,
    in_place: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    let own = Buffer::Input.span(0, sizes(rank));
    if let Some(sites) = topology.across() {
        if uniform && bundle::is_shorter_for_one(sites, sizes(rank)) {
            bundle::gather(&mut schedule, &sites.short, rank, root, sizes(rank), in_place);
            return schedule;
        }
    } else if uniform && sizes(rank) < LONG && size > 2 {
        binomial_gather(&mut schedule, rank, size, root, sizes(rank), in_place);
        return schedule;
    }
    if rank != root {
        schedule.send(root, own);
        schedule.wait();
        return schedule;
    }
    let starts = starts((0..size).map(sizes));
    for from in (0..size).filter(|&from| from != root) {
        schedule.receive(from, Buffer::Output.span(starts[from as usize], sizes(from)));
    }
    if !in_place {
        schedule.copy(own, Buffer::Output.span(starts[root as usize], sizes(root)));
    }
    schedule.wait();
    schedule
}

fn binomial_gather(
    schedule: &mut Schedule,
    rank: u32,
    size: u32,
    root: u32,
    len: u64,
    in_place: bool,
) {
    let relative = (rank + size - root) % size;
    let absolute = |relative: u32| (relative + root) % size;
    let below = subtree(relative, size);
    let place = |relative: u32| u64::from(relative) * len;
    let collected = schedule.temporary(place(below));
    let own = match (rank == root, in_place) {
        (true, true) => Buffer::Output.span(place(root), len),
        _ => Buffer::Input.span(0, len),
    };
    schedule.copy(own, collected.span(0, len));
    for bit in children(relative, size) {
        let blocks = u64::from(subtree(relative + bit, size));
        schedule.receive(absolute(relative + bit), collected.span(place(bit), blocks * len));
    }
    schedule.wait();
    if relative == 0 {
        let before = place(size - root);
        schedule.copy(collected.span(0, before), Buffer::Output.span(place(root), before));
        schedule.copy(collected.span(before, place(root)), Buffer::Output.span(0, place(root)));
    } else {
        schedule.send(absolute(relative & (relative - 1)), collected.span(0, place(below)));
        schedule.wait();
    }
}

/// Blocks of the root's input to everyone's output; arguments as for [`gather`].
pub fn scatter(
    rank: u32,
    topology: &Topology,
    root: u32,
    sizes: &dyn Fn(u32) -> u64,
    uniform: bool,
    in_place: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    let own = Buffer::Output.span(0, sizes(rank));
    if let Some(sites) = topology.across() {
        if uniform && bundle::is_shorter_for_one(sites, sizes(rank)) {
            bundle::scatter(&mut schedule, &sites.short, rank, root, sizes(rank), in_place);
            return schedule;
        }
    } else if uniform && sizes(rank) < LONG && size > 2 {
        binomial_scatter(&mut schedule, rank, size, root, sizes(rank), in_place);
        return schedule;
    }
    if rank != root {
        schedule.receive(root, own);
        schedule.wait();
        return schedule;
    }
    let starts = starts((0..size).map(sizes));
    for to in (0..size).filter(|&to| to != root) {
        schedule.send(to, Buffer::Input.span(starts[to as usize], sizes(to)));
    }
    if !in_place {
        schedule.copy(Buffer::Input.span(starts[root as usize], sizes(root)), own);
    }
    schedule.wait();
    schedule
}

fn binomial_scatter(
    schedule: &mut Schedule,
    rank: u32,
    size: u32,
    root: u32,
    len: u64,
    in_place: bool,
) {
    let relative = (rank + size - root) % size;
    let absolute = |relative: u32| (relative + root) % size;
    let below = subtree(relative, size);
    let place = |relative: u32| u64::from(relative) * len;
    let passed = schedule.temporary(place(below));
    if relative == 0 {
        let before = place(size - root);
        schedule.copy(Buffer::Input.span(place(root), before), passed.span(0, before));
        schedule.copy(Buffer::Input.span(0, place(root)), passed.span(before, place(root)));
    } else {
        schedule.receive(absolute(relative & (relative - 1)), passed.span(0, place(below)));
        schedule.wait();
    }
    for bit in children(relative, size) {
        let blocks = u64::from(subtree(relative + bit, size));
        schedule.send(absolute(relative + bit), passed.span(place(bit), blocks * len));
    }
    if !(in_place && rank == root) {
        schedule.copy(passed.span(0, len), Buffer::Output.span(0, len));
    }
    schedule.wait();
}

/// Every rank's block to everyone's output; `sizes` are the blocks' lengths.
///
/// Short: each round doubles the run of blocks that end with a rank's own (Bruck 1997, without its
/// rotation, since spans may lie anywhere). Long: a ring; in a crowd, all to all at once.
pub fn allgather(
    rank: u32,
    topology: &Topology,
    sizes: &dyn Fn(u32) -> u64,
    in_place: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    let starts = starts((0..size).map(sizes));
    let block = |index: u32| Buffer::Output.span(starts[index as usize], sizes(index));
    if let Some(sites) = topology.across()
        && bundle::is_shorter_for_all(sites, starts[size as usize])
    {
        bundle::allgather(&mut schedule, &sites.short, rank, sizes, in_place);
        return schedule;
    }
    if !in_place {
        schedule.copy(Buffer::Input.span(0, sizes(rank)), block(rank));
    }
    if let Some(sites) = topology.across() {
        let lies = |rank: u32| (starts[rank as usize], sizes(rank));
        across::broadcast::allgather(&mut schedule, sites, rank, &lies);
        return schedule;
    }
    if starts[size as usize] >= LONG * 2 {
        let blocks: Vec<Span> = (0..size).map(block).collect();
        if topology.is_crowded() {
            crowd::allgather(&mut schedule, rank, block(rank), &blocks);
            return schedule;
        }
        ring(&mut schedule, rank, size, 0, &blocks);
        return schedule;
    }
    let mut have = 1;
    while have < size {
        let passed = have.min(size - have);
        let (to, from) = ((rank + have) % size, (rank + size - have) % size);
        for span in run(&starts, size, from, passed) {
            schedule.receive(from, span);
        }
        for span in run(&starts, size, rank, passed) {
            schedule.send(to, span);
        }
        schedule.wait();
        have += passed;
    }
    schedule
}

/// The `count` blocks that end with block `last`, around the end of the buffer: one span or two.
fn run(starts: &[u64], size: u32, last: u32, count: u32) -> impl Iterator<Item = Span> {
    let span = |first: u32, end: u32| {
        let (start, end) = (starts[first as usize], starts[end as usize]);
        Buffer::Output.span(start, end - start)
    };
    let spans = if count <= last + 1 {
        [Some(span(last + 1 - count, last + 1)), None]
    } else {
        [Some(span(size + last + 1 - count, size)), Some(span(0, last + 1))]
    };
    spans.into_iter().flatten()
}

/// Block `i` of everyone's input to rank `i`'s output. `sends` and `receives` are the blocks' lengths;
/// `uniform` says that all of all ranks are equal. In place, the input is a copy of the output that
/// the caller made.
pub fn alltoall(
    rank: u32,
    topology: &Topology,
    sends: &dyn Fn(u32) -> u64,
    receives: &dyn Fn(u32) -> u64,
    uniform: bool,
) -> Schedule {
    let mut schedule = Schedule::default();
    let size = topology.size();
    if let Some(sites) = topology.across() {
        if uniform && exchange::is_shorter(sites, sends(0)) {
            exchange::alltoall(&mut schedule, &sites.short, rank, sends(0));
            return schedule;
        }
    } else if !topology.is_crowded() && uniform && sends(0) <= BRUCK_MAX && size >= 8 {
        bruck_alltoall(&mut schedule, rank, size, sends(0));
        return schedule;
    }
    let (outs, ins) = (starts((0..size).map(sends)), starts((0..size).map(receives)));
    for distance in 1..size {
        let from = (rank + size - distance) % size;
        schedule.receive(from, Buffer::Output.span(ins[from as usize], receives(from)));
    }
    for distance in 1..size {
        let to = (rank + distance) % size;
        schedule.send(to, Buffer::Input.span(outs[to as usize], sends(to)));
    }
    let own = Buffer::Input.span(outs[rank as usize], sends(rank).min(receives(rank)));
    schedule.copy(own, Buffer::Output.span(ins[rank as usize], own.len));
    schedule.wait();
    schedule
}

/// Blocks travel by the bits of their distance, all with the same bit together (Bruck 1997).
fn bruck_alltoall(schedule: &mut Schedule, rank: u32, size: u32, len: u64) {
    let place = |index: u32| u64::from(index) * len;
    let moving = schedule.temporary(place(size));
    let packed = schedule.temporary(place(size));
    let arrived = schedule.temporary(place(size));
    for distance in 0..size {
        let to = (rank + distance) % size;
        schedule.copy(Buffer::Input.span(place(to), len), moving.span(place(distance), len));
    }
    let mut bit = 1;
    while bit < size {
        let marked: Vec<u32> = (0..size).filter(|distance| distance & bit != 0).collect();
        for (index, &distance) in (0u32..).zip(&marked) {
            schedule.copy(moving.span(place(distance), len), packed.span(place(index), len));
        }
        let bytes = len * marked.len() as u64;
        schedule.receive((rank + size - bit) % size, arrived.span(0, bytes));
        schedule.send((rank + bit) % size, packed.span(0, bytes));
        schedule.wait();
        for (index, &distance) in (0u32..).zip(&marked) {
            schedule.copy(arrived.span(place(index), len), moving.span(place(distance), len));
        }
        bit *= 2;
    }
    for distance in 0..size {
        let from = (rank + size - distance) % size;
        schedule.copy(moving.span(place(distance), len), Buffer::Output.span(place(from), len));
    }
}

/// From here on bandwidth counts more than rounds: some ten latencies of shared memory or of a LAN.
const LONG: u64 = 64 << 10;

/// Blocks up to here are worth copying ⌈log2 p⌉ times to save messages.
const BRUCK_MAX: u64 = 256;
