//! Every pair exchanges what it has for each other, each beginning with who comes after it.

use crate::schedule::{Schedule, Span};
use crate::team::Team;

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
