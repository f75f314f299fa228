//! Long reductions by halves (Rabenseifner 2004): over distances 1, 2, 4… pairs give each other half of what
//! they still combine, until everyone has one part; then the parts are gathered the same way back.
//!
//! Neighbours exchange the longest halves, so that the farther, the shorter; and operands are combined with
//! those of neighbours first, so that their order is kept.

use crate::algorithms::doubling::{Fold, combine};
use crate::schedule::{Schedule, Span, part};
use crate::team::Team;

/// Everyone's `whole`, combined in order, to everyone's.
pub(crate) fn allreduce(schedule: &mut Schedule, team: Team, whole: Span) {
    let received = schedule.room(whole.len);
    let fold = Fold::of(team);
    let Some(position) = fold.enter(schedule, whole, received) else { return };
    let mut kept = whole;
    let mut given = Vec::new();
    let mut distance = 1;
    while distance < fold.power() {
        let partner = position ^ distance;
        let (low, high) = halves(kept);
        let (mine, theirs) = if partner > position { (low, high) } else { (high, low) };
        let arrives = received.part(0, mine.len);
        schedule.receive(fold.rank(partner), arrives);
        schedule.send(fold.rank(partner), theirs);
        schedule.wait();
        combine(schedule, partner < position, arrives, mine);
        given.push((partner, mine, theirs));
        kept = mine;
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
