//! Recursive doubling: pairs exchange what they have over distances 1, 2, 4…, so that neighbours' operands
//! are combined first and their order is kept.

use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Everyone's `whole`, combined in order, to everyone's.
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

/// Puts what has come before or after what is there.
pub(crate) fn combine(schedule: &mut Schedule, comes_before: bool, received: Span, whole: Span) {
    if comes_before {
        schedule.reduce(received, whole);
    } else {
        schedule.reduce(whole, received);
        schedule.copy(received, whole);
    }
}

/// So many as a power of two: as many neighbours as there are too many pair up.
#[derive(Clone, Copy)]
pub(crate) struct Folded {
    /// How many positions are left.
    pub power: u32,
    /// How many pairs there are; they are the first.
    pub pairs: u32,
}

impl Folded {
    /// Of more than none.
    pub(crate) fn of(size: u32) -> Self {
        let power = 1 << size.ilog2();
        Self { power, pairs: size - power }
    }

    /// The position of who is at a position of those that are left, of a pair the second.
    pub(crate) fn position(&self, folded: u32) -> u32 {
        if folded < self.pairs { 2 * folded + 1 } else { folded + self.pairs }
    }
}

/// A team as a power of two, where the second of a pair stands for both.
#[derive(Clone, Copy)]
pub(crate) struct Fold<'a> {
    team: Team<'a>,
    folded: Folded,
}

impl<'a> Fold<'a> {
    pub(crate) fn of(team: Team<'a>) -> Self {
        Self { team, folded: Folded::of(team.size()) }
    }

    /// How many positions are left.
    pub(crate) fn power(&self) -> u32 {
        self.folded.power
    }

    /// Who stands at a position of the folded team.
    pub(crate) fn rank(&self, position: u32) -> u32 {
        self.team.rank(self.folded.position(position))
    }

    /// Pairs combine their `whole`. The position in the folded team; none for who is stood for, and has
    /// the result already.
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

    /// Who stands for two tells the other.
    pub(crate) fn leave(&self, schedule: &mut Schedule, whole: Span) {
        if self.team.me < 2 * self.folded.pairs {
            schedule.send(self.team.rank(self.team.me ^ 1), whole);
            schedule.wait();
        }
    }
}
