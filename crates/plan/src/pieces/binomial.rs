//! Binomial trees: the rank at position 0 is at the top, and each level halves what is below.

use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// The first one's `span` to everyone's.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span) {
    scatter(schedule, team, &|_, _| span);
}

/// To each what `below` says is for it and those below it: the units of as many positions from the first on.
pub(crate) fn scatter(schedule: &mut Schedule, team: Team, below: &dyn Fn(u32, u32) -> Span) {
    let (me, size) = (team.me, team.size());
    if let Some(parent) = parent(me) {
        schedule.receive(team.rank(parent), below(me, subtree(me, size)));
        schedule.wait();
    }
    for child in children(me, size) {
        schedule.send(team.rank(child), below(child, subtree(child, size)));
    }
    schedule.wait();
}

/// From each what `below` says is its own and of those below it, to the first one.
pub(crate) fn gather(schedule: &mut Schedule, team: Team, below: &dyn Fn(u32, u32) -> Span) {
    let (me, size) = (team.me, team.size());
    for child in children(me, size) {
        schedule.receive(team.rank(child), below(child, subtree(child, size)));
    }
    schedule.wait();
    if let Some(parent) = parent(me) {
        schedule.send(team.rank(parent), below(me, subtree(me, size)));
        schedule.wait();
    }
}

/// Everyone's `sum`, combined in order, to the first one's; the others' are left changed.
pub(crate) fn reduce(schedule: &mut Schedule, team: Team, sum: Span) {
    let (me, size) = (team.me, team.size());
    let nearest_first = children(me, size).collect::<Vec<u32>>().into_iter().rev();
    let received = if nearest_first.len() > 0 { schedule.room(sum.len) } else { sum };
    for child in nearest_first {
        schedule.receive(team.rank(child), received);
        schedule.wait();
        // The child's come after ours.
        schedule.reduce(sum, received);
        schedule.copy(received, sum);
    }
    if let Some(parent) = parent(me) {
        schedule.send(team.rank(parent), sum);
        schedule.wait();
    }
}

/// Who is above a position.
pub(crate) fn parent(position: u32) -> Option<u32> {
    (position > 0).then(|| position & (position - 1))
}

/// Who is below a position, the farthest first.
pub(crate) fn children(position: u32, size: u32) -> impl DoubleEndedIterator<Item = u32> {
    let reach = if position == 0 { size.next_power_of_two() } else { lowest_bit(position) };
    let children = (0..reach.trailing_zeros()).rev().map(move |bit| position + (1 << bit));
    children.filter(move |&child| child < size)
}

/// How many are at and below a position.
pub(crate) fn subtree(position: u32, size: u32) -> u32 {
    if position == 0 { size } else { lowest_bit(position).min(size - position) }
}

fn lowest_bit(number: u32) -> u32 {
    number & number.wrapping_neg()
}
