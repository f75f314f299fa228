//! Recursive doubling: pairs exchange their data over distances 1, 2, 4…. Neighbours' operands are
//! combined first, so the order is preserved.

use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Combines everyone's `whole` in order, at everyone.
pub(crate) fn allreduce(schedule: &mut Schedule, team: Team, whole: Span) {
    let received = schedule.room(whole.len);
    let fold = Fold::of(team);
    let Some(position) = fold.enter(schedule, whole, received) else { return };
    let mut distance = 1;
    while distance < fold.power() {
        let partner = position ^ distance;
        schedule.receive(fold.rank(partner), received);
        schedule.send(fold.rank(partner), whole);
        schedule.wait();
        combine(schedule, partner < position, received, whole);
        distance *= 2;
    }
    fold.leave(schedule, whole);
}

/// Combines the received operand with the present one, on its left or right.
pub(crate) fn combine(schedule: &mut Schedule, comes_before: bool, received: Span, whole: Span) {
    if comes_before {
        schedule.reduce(received, whole);
    } else {
        schedule.reduce(whole, received);
        schedule.copy(received, whole);
    }
}

/// A power of two of positions: neighbours pair up for the excess.
#[derive(Clone, Copy)]
pub(crate) struct Folded {
    /// Number of positions left.
    pub power: u32,
    /// Number of pairs; they are the first positions.
    pub pairs: u32,
}

impl Folded {
    /// Folds `size` positions; `size` is not 0.
    pub(crate) fn of(size: u32) -> Self {
        let power = 1 << size.ilog2();
        Self { power, pairs: size - power }
    }

    /// Returns the original position of a folded one; of a pair the second.
    pub(crate) fn position(&self, folded: u32) -> u32 {
        if folded < self.pairs { 2 * folded + 1 } else { folded + self.pairs }
    }
}

/// A team folded to a power of two, where the second of a pair stands for both.
#[derive(Clone, Copy)]
pub(crate) struct Fold<'a> {
    team: Team<'a>,
    folded: Folded,
}

impl<'a> Fold<'a> {
    pub(crate) fn of(team: Team<'a>) -> Self {
        Self { team, folded: Folded::of(team.size()) }
    }

    /// Number of positions left.
    pub(crate) fn power(&self) -> u32 {
        self.folded.power
    }

    /// Returns the rank that stands at a position of the folded team.
    pub(crate) fn rank(&self, position: u32) -> u32 {
        self.team.rank(self.folded.position(position))
    }

    /// Lets pairs combine their `whole`. Returns the position in the folded team; none for the
    /// first of a pair, which gets the result in [`Fold::leave`].
    pub(crate) fn enter(
        &self,
        schedule: &mut Schedule,
        whole: Span,
        received: Span,
    ) -> Option<u32> {
        let me = self.team.me;
        if me >= 2 * self.folded.pairs {
            return Some(me - self.folded.pairs);
        }
        let partner = self.team.rank(me ^ 1);
        if me.is_multiple_of(2) {
            schedule.send(partner, whole);
            schedule.wait();
            schedule.receive(partner, whole);
            schedule.wait();
            return None;
        }
        schedule.receive(partner, received);
        schedule.wait();
        schedule.reduce(received, whole);
        Some(me / 2)
    }

    /// Sends the result from the second of a pair to the first.
    pub(crate) fn leave(&self, schedule: &mut Schedule, whole: Span) {
        if self.team.me < 2 * self.folded.pairs {
            schedule.send(self.team.rank(self.team.me ^ 1), whole);
            schedule.wait();
        }
    }
}
