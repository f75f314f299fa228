//! A long broadcast (Barnett, van de Geijn and others, 1994): parts are scattered down a tree and
//! then gathered by all. So no rank sends all of it twice.

use crate::algorithms::{binomial, ring};
use crate::schedule::{Schedule, Span, part};
use crate::team::Team;

/// The first one's `span` to everyone's.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span) {
    let size = team.size();
    let begin = |position: u32| match position < size {
        true => part(span.len, size, position).0,
        false => span.len,
    };
    let parts = |first: u32, count: u32| {
        let start = begin(first);
        span.part(start, begin(first + count) - start)
    };
    binomial::scatter(schedule, team, &parts);
    ring::allgather(schedule, team, &|position| parts(position, 1));
}
