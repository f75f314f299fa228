//! Binomial trees: the rank at position 0 is the root, and each level halves the rest.

use crate::algorithms::doubling::Folded;
use crate::schedule::{Schedule, Span};
use crate::team::Team;

/// Sends the first one's `span` to all.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span) {
    scatter(schedule, team, &|_, _| span);
}

/// Sends each position the span that `below` gives for it and its subtree: the units of so many
/// positions from the first on.
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

/// Gathers, at the first one, the span that `below` gives for each position and its subtree.
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

/// Combines everyone's `sum` in pairs in order, at the first one; the others' are overwritten.
pub(crate) fn reduce(schedule: &mut Schedule, team: Team, sum: Span) {
    let (parent, nearest_first) = folded(team.me, team.size());
    let received = if !nearest_first.is_empty() { schedule.room(sum.len) } else { sum };
    for child in nearest_first {
        schedule.receive(team.rank(child), received);
        schedule.wait();
        // The child's operands come after this rank's.
        schedule.reduce(sum, received);
        schedule.copy(received, sum);
    }
    if let Some(parent) = parent {
        schedule.send(team.rank(parent), sum);
        schedule.wait();
    }
}

/// Returns a position's parent, and its children, nearest first, in the tree after folding. Folding
/// pairs up the excess over a power of two, and the first of a pair stands for both.
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

/// Returns the parent of a position.
pub(crate) fn parent(position: u32) -> Option<u32> {
    (position > 0).then(|| position & (position - 1))
}

/// Returns the children of a position, farthest first.
pub(crate) fn children(position: u32, size: u32) -> impl DoubleEndedIterator<Item = u32> {
    let reach = if position == 0 { size.next_power_of_two() } else { lowest_bit(position) };
    let children = (0..reach.trailing_zeros()).rev().map(move |bit| position + (1 << bit));
    children.filter(move |&child| child < size)
}

/// Number of positions in the subtree of a position, itself included.
pub(crate) fn subtree(position: u32, size: u32) -> u32 {
    if position == 0 { size } else { lowest_bit(position).min(size - position) }
}

fn lowest_bit(number: u32) -> u32 {
    number & number.wrapping_neg()
}
