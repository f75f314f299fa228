//! Every pair exchanges what it has for each other, each beginning with who comes after it: as many bytes as
//! around a ring, and everyone waits once instead of p − 1 times.

use crate::algorithms::pairs;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Everyone's block, by position, to everyone; each has its own.
pub(crate) fn allgather(
    schedule: &mut Schedule,
    team: Team,
    own: Span,
    block: &dyn Fn(u32) -> Span,
) {
    alltoall(schedule, team, &|_| own, block);
}

/// Everyone has all blocks; answers where that of its position lies, combined in pairs in the order of
/// positions.
pub(crate) fn reduce_scatter(
    schedule: &mut Schedule,
    team: Team,
    block: &dyn Fn(u32) -> Span,
) -> Span {
    // Apart from one another: elements may lie between each other's parts.
    let operands: Vec<Span> = (0..team.size()).map(|_| schedule.room(block(team.me).len)).collect();
    schedule.copy(block(team.me), operands[team.me as usize]);
    alltoall(schedule, team, block, &|from| operands[from as usize]);
    pairs::combine(schedule, &operands)
}

/// `outgoing` and `incoming` say, by position, what goes to whom and comes from whom; the own is left.
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
