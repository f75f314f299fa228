//! A ring: in each round every rank passes a block on to the next and gets one from the previous.

use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Gathers the blocks of all positions everywhere; each rank begins with its own.
pub(crate) fn allgather(schedule: &mut Schedule, team: Team, block: &dyn Fn(u32) -> Span) {
    let (me, size) = (team.me, team.size());
    for round in 0..size - 1 {
        schedule.receive(team.before(1), block((me + size - round - 1) % size));
        schedule.send(team.after(1), block((me + size - round) % size));
        schedule.wait();
    }
}

/// Combines, at each rank, the block of its position. Each block travels once around the ring, and
/// every rank adds its own. The operation has to commute. Blocks lie in one buffer.
pub(crate) fn reduce_scatter(schedule: &mut Schedule, team: Team, block: &dyn Fn(u32) -> Span) {
    let (me, size) = (team.me, team.size());
    let longest = (0..size).map(|position| block(position).len).max().unwrap_or(0);
    let received = schedule.room(longest);
    for round in 0..size - 1 {
        let out = block((me + 2 * size - round - 1) % size);
        let into = block((me + 2 * size - round - 2) % size);
        let arrives = received.part(0, into.len);
        schedule.receive(team.before(1), arrives);
        schedule.send(team.after(1), out);
        schedule.wait();
        schedule.reduce(arrives, into);
    }
}
