//! Every pair exchanges its data directly, each rank beginning with the next one. That moves as
//! many bytes as a ring, but a rank waits once instead of p − 1 times.

use crate::algorithms::pairs;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Sends everyone's block, by position, to all; each rank has its own already.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    team: Team,
    own: Span,
    block: &dyn Fn(u32) -> Span,
) {
    alltoall(schedule, team, &|_| own, block);
}

/// Combines all blocks, in pairs in the order of positions, and returns the span with the block of
/// this position.
pub(crate) fn reduce_scatter(
    schedule: &mut Schedule,
    team: Team,
    block: &dyn Fn(u32) -> Span,
) -> Span {
    // In separate buffers: elements may lie between each other's parts.
    let operands: Vec<Span> = (0..team.size()).map(|_| schedule.room(block(team.me).len)).collect();
    schedule.copy(block(team.me), operands[team.me as usize]);
    alltoall(schedule, team, block, &|from| operands[from as usize]);
    pairs::combine(schedule, &operands)
}

/// Exchanges `outgoing` and `incoming`, given by position; the own block is not moved.
pub(crate) fn alltoall(
    schedule: &mut Schedule,
    team: Team,
    outgoing: &dyn Fn(u32) -> Span,
    incoming: &dyn Fn(u32) -> Span,
) {
    let mut others: Vec<u32> = team.others().collect();
    others.reverse();
    others.iter().for_each(|&from| schedule.receive(team.rank(from), incoming(from)));
    others.reverse();
    others.iter().for_each(|&to| schedule.send(team.rank(to), outgoing(to)));
    schedule.wait();
}
