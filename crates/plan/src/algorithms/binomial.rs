//! Binomial trees: the rank at position 0 is at the top, and each level halves what is below.

use crate::algorithms::doubling::Folded;
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

/// Everyone's `sum`, combined in pairs in order, to the first one's; the others' are left changed.
pub(crate) fn reduce(schedule: &mut Schedule, team: Team, sum: Span) {
    let (parent, nearest_first) = folded(team.me, team.size());
    let received = if !nearest_first.is_empty() { schedule.room(sum.len) } else { sum };
    for child in nearest_first {
        schedule.receive(team.rank(child), received);
        schedule.wait();
        // The child's come after ours.
        schedule.reduce(sum, received);
        schedule.copy(received, sum);
    }
    if let Some(parent) = parent {
        schedule.send(team.rank(parent), sum);
        schedule.wait();
    }
}

/// Who is above a position, and who below it, the nearest first, in the tree of those that are left of `size` where as
/// many as there are too many pair up, and the first of a pair stands for both.
fn folded(position: u32, size: u32) -> (Option<u32>, Vec<u32>) {
    let Folded { power, pairs } = Folded::of(size);
    let first = |folded: u32| if folded < pairs { 2 * folded } else { folded + pairs };
    let is_of_pair = position < 2 * pairs;
    if is_of_pair && !position.is_multiple_of(2) {
        return (Some(position - 1), Vec::new());
    }
    let folded = if is_of_pair { position / 2 } else { position - pairs };
    let partner = is_of_pair.then_some(position + 1);
    let below = partner.into_iter().chain(children(folded, power).rev().map(first));
    (parent(folded).map(first), below.collect())
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
