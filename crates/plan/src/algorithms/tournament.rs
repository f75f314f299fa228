//! The tournament (Hensgen, Finkel, Manber 1988): in each round half of the remaining ranks signal
//! the other half. The last one releases all.
//!
//! With data the halves give what they have gathered or combined, and the last one sends the whole to
//! all. Half of the messages of doubling distances are sent, so it pays where all share a medium: Torres
//! and Kofuji use it on a hub, for allgather from 8 to 512 bytes and for allreduce above 40.

use crate::algorithms::binomial::{self, children, parent};
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Waits until all ranks have arrived.
pub(crate) fn barrier(schedule: &mut Schedule, team: Team) {
    let (me, size) = (team.me, team.size());
    children(me, size).for_each(|child| schedule.receive_signal(team.rank(child)));
    schedule.wait();
    if let Some(parent) = parent(me) {
        schedule.send_signal(team.rank(parent));
        schedule.receive_signal(team.rank(parent));
        schedule.wait();
    }
    children(me, size).for_each(|child| schedule.send_signal(team.rank(child)));
    schedule.wait();
}

/// Gathers the blocks of all positions everywhere; each has its own in place. `run` gives the span of so
/// many blocks from a position on.
pub(crate) fn allgather(schedule: &mut Schedule, team: Team, run: &dyn Fn(u32, u32) -> Span) {
    binomial::gather(schedule, team, run);
    binomial::broadcast(schedule, team, run(0, team.size()));
}

/// Combines everyone's `whole` in pairs in the order of positions, at everyone.
pub(crate) fn allreduce(schedule: &mut Schedule, team: Team, whole: Span) {
    binomial::reduce(schedule, team, whole);
    binomial::broadcast(schedule, team, whole);
}
