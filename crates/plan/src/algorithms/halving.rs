//! Long reductions by recursive halving (Rabenseifner 2004). Over distances 1, 2, 4… pairs exchange
//! halves of what they still combine, until every rank has one part. Then the parts are gathered in
//! the reverse order.
//!
//! Neighbours exchange the longest halves, and distant ranks the shortest. Operands are combined
//! with those of neighbours first, so the order is preserved.

use crate::algorithms::doubling::{Fold, combine};
use crate::schedule::{Schedule, Span, part};
use crate::team::Team;

/// Combines everyone's `whole` in order, at everyone.
pub(crate) fn allreduce(schedule: &mut Schedule, team: Team, whole: Span) {
    let received = schedule.room(whole.len);
    let fold = Fold::of(team);
    let Some(position) = fold.enter(schedule, whole, received) else { return };
    let mut mine_so_far = whole;
    let mut given = Vec::new();
    let mut distance = 1;
    while distance < fold.power() {
        let partner = position ^ distance;
        let (low, high) = halves(mine_so_far);
        let (mine, theirs) = if partner > position { (low, high) } else { (high, low) };
        let received_part = received.part(0, mine.len);
        schedule.receive(fold.rank(partner), received_part);
        schedule.send(fold.rank(partner), theirs);
        schedule.wait();
        combine(schedule, partner < position, received_part, mine);
        given.push((partner, mine, theirs));
        mine_so_far = mine;
        distance *= 2;
    }
    for (partner, mine, theirs) in given.into_iter().rev() {
        schedule.receive(fold.rank(partner), theirs);
        schedule.send(fold.rank(partner), mine);
        schedule.wait();
    }
    fold.leave(schedule, whole);
}

fn halves(span: Span) -> (Span, Span) {
    let (middle, rest) = part(span.len, 2, 1);
    (span.part(0, middle), span.part(middle, rest))
}
