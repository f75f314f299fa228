//! Operations of ranks that share cores.
//!
//! With more ranks than cores a message costs little and a wait much: the rank gives up its core, and
//! gets it back when the others have had their turn. So rank 0 (or the root) hears all and tells all,
//! and everybody waits at most once on the way up and once on the way down, where trees and
//! dissemination wait in each of ⌈log2 p⌉ rounds. What is long goes from everyone to everyone at once,
//! as many bytes as go round a ring, in one turn instead of p − 1.

use crate::schedule::{Schedule, Span};

/// All tell rank 0, which tells all.
pub(crate) fn barrier(schedule: &mut Schedule, rank: u32, size: u32) {
    if rank == 0 {
        (1..size).for_each(|from| schedule.receive_signal(from));
        schedule.wait();
        (1..size).for_each(|to| schedule.send_signal(to));
    } else {
        schedule.send_signal(0);
        schedule.receive_signal(0);
    }
    schedule.wait();
}

/// The root's `span` to everyone's.
pub(crate) fn broadcast(schedule: &mut Schedule, rank: u32, size: u32, root: u32, span: Span) {
    if rank == root {
        others(size, root).for_each(|to| schedule.send(to, span));
    } else {
        schedule.receive(root, span);
    }
    schedule.wait();
}

/// Everyone's `own`, combined in the order of ranks, to `result` at the root.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    rank: u32,
    size: u32,
    root: u32,
    own: Span,
    result: Span,
) {
    if rank != root {
        schedule.send(root, own);
        return schedule.wait();
    }
    // Apart from one another: elements may lie between each other's parts.
    let all: Vec<Span> = (0..size).map(|_| schedule.temporary(own.len).span(0, own.len)).collect();
    let place = |from: u32| all[from as usize];
    others(size, root).for_each(|from| schedule.receive(from, place(from)));
    schedule.copy(own, place(root));
    schedule.wait();
    // Each place becomes the combination of all ranks up to its own.
    (1..size).for_each(|from| schedule.reduce(place(from - 1), place(from)));
    schedule.copy(place(size - 1), result);
}

/// Everyone's `own`, of which each rank combines one of the `blocks`, in the order of ranks: where this rank's lies.
pub(crate) fn reduce_scatter(
    schedule: &mut Schedule,
    rank: u32,
    own: Span,
    blocks: &[(u64, u64)],
) -> Span {
    let size = blocks.len() as u32;
    let block = |of: u32| own.part(blocks[of as usize].0, blocks[of as usize].1);
    let operands: Vec<Span> = (0..size).map(|_| schedule.room(block(rank).len)).collect();
    for distance in 1..size {
        let from = (rank + size - distance) % size;
        schedule.receive(from, operands[from as usize]);
    }
    for distance in 1..size {
        let to = (rank + distance) % size;
        schedule.send(to, block(to));
    }
    schedule.copy(block(rank), operands[rank as usize]);
    schedule.wait();
    for (left, right) in operands.iter().zip(&operands[1..]) {
        schedule.reduce(*left, *right);
    }
    operands[size as usize - 1]
}

/// Everyone's `own` to everyone: block `i` of `blocks` is of rank `i`.
pub(crate) fn allgather(schedule: &mut Schedule, rank: u32, own: Span, blocks: &[Span]) {
    let size = blocks.len() as u32;
    for distance in 1..size {
        let from = (rank + size - distance) % size;
        schedule.receive(from, blocks[from as usize]);
    }
    (1..size).for_each(|distance| schedule.send((rank + distance) % size, own));
    schedule.wait();
}

fn others(size: u32, root: u32) -> impl Iterator<Item = u32> {
    (0..size).filter(move |&rank| rank != root)
}
