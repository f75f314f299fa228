//! A chain: each rank passes the data of the previous one to the next, in segments that follow each
//! other.

use crate::schedule::{Schedule, Span, Ticket, part};
use crate::team::Team;

/// Sends the first one's `span` to all, in `segments` segments.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span, segments: u32) {
    let cut = |index| segment(span, segments, index);
    let mut arrived = vec![Ticket::default(); segments as usize];
    if team.me > 0 {
        for (index, ticket) in (0..).zip(&mut arrived) {
            *ticket = schedule.expect(team.rank(team.me - 1), cut(index));
        }
    }
    if team.me + 1 < team.size() {
        for (index, ticket) in (0..).zip(arrived) {
            schedule.settle(ticket);
            schedule.send(team.rank(team.me + 1), cut(index));
        }
    }
    schedule.wait();
}

/// Combines everyone's `own` in order, to `result` at the first one. `own` is left unchanged.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    team: Team,
    own: Span,
    result: Option<Span>,
    segments: u32,
) {
    let is_last = team.me + 1 == team.size();
    let combined = match (is_last, result) {
        (false, None) => schedule.room(own.len),
        (false, Some(result)) => result,
        (true, _) => own,
    };
    let mut arrived = vec![Ticket::default(); segments as usize];
    if !is_last {
        for (index, ticket) in (0..).zip(&mut arrived) {
            let into = segment(combined, segments, index);
            *ticket = schedule.expect(team.rank(team.me + 1), into);
        }
    }
    for (index, ticket) in (0..).zip(arrived) {
        let into = segment(combined, segments, index);
        if !is_last {
            schedule.settle(ticket);
            schedule.reduce(segment(own, segments, index), into);
        }
        if team.me > 0 {
            schedule.send(team.rank(team.me - 1), into);
        }
    }
    schedule.wait();
    if let Some(result) = result.filter(|&result| result != combined) {
        schedule.copy(combined, result);
    }
}

/// Passes prefixes along the chain. All but the first get the combination of the operands before in
/// `before`. Combined with `own`, which is left unchanged, it goes to `through` and on to the next.
pub(crate) fn prefix(
    schedule: &mut Schedule,
    team: Team,
    own: Span,
    (before, through): (Span, Span),
    segments: u32,
) {
    let (is_first, is_last) = (team.me == 0, team.me + 1 == team.size());
    let cut = |span, index| segment(span, segments, index);
    let mut arrived = vec![Ticket::default(); segments as usize];
    if !is_first {
        for (index, ticket) in (0..).zip(&mut arrived) {
            *ticket = schedule.expect(team.rank(team.me - 1), cut(before, index));
        }
    }
    for (index, ticket) in (0..).zip(arrived) {
        schedule.settle(ticket);
        schedule.copy(cut(own, index), cut(through, index));
        if !is_first {
            schedule.reduce(cut(before, index), cut(through, index));
        }
        if !is_last {
            schedule.send(team.rank(team.me + 1), cut(through, index));
        }
    }
    schedule.wait();
}

fn segment(span: Span, segments: u32, index: u32) -> Span {
    let (start, len) = part(span.len, segments, index);
    span.part(start, len)
}
