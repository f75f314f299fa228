//! Two binary trees at once (Sanders, Speck and Träff, 2009). Each carries half of the data, in
//! segments that follow each other. An inner node of one tree is a leaf of the other. So every rank
//! sends as much as it receives, as along a chain, over a path as long as the height of a tree.
//!
//! The first of the team is above both roots. In either tree the left branch holds positions
//! before, and the right branch positions behind: operands are combined in order.

use crate::schedule::{Schedule, Span, Ticket, part};
use crate::team::Team;

/// Sends the first one's `span` to all, in `segments` segments down each tree.
pub(crate) fn broadcast(schedule: &mut Schedule, team: Team, span: Span, segments: u32) {
    let halves = halves(span);
    if team.me == 0 {
        let tops = [0, 1].map(|tree| top(tree, team.size() - 1).map(|top| team.rank(top)));
        for index in 0..segments {
            for (half, top) in halves.into_iter().zip(tops) {
                if let Some(top) = top {
                    schedule.send(top, segment(half, segments, index));
                }
            }
        }
        return schedule.wait();
    }
    let places = [0, 1].map(|tree| TreeNode::of(tree, team.me, team.size() - 1));
    let mut arrived = vec![[Ticket::default(); 2]; segments as usize];
    for (index, arrived) in (0..).zip(&mut arrived) {
        for ((half, place), ticket) in halves.into_iter().zip(&places).zip(arrived) {
            *ticket = schedule.expect(team.rank(place.parent), segment(half, segments, index));
        }
    }
    for (index, arrived) in (0..).zip(arrived) {
        for ((half, place), ticket) in halves.into_iter().zip(&places).zip(arrived) {
            // Nothing depends on data that end at a leaf.
            if place.children().next().is_some() {
                schedule.settle(ticket);
            }
            for child in place.children() {
                schedule.send(team.rank(child), segment(half, segments, index));
            }
        }
    }
    schedule.wait();
}

/// Combines everyone's `own` in order, to `result` at the first one, in `segments` segments up each
/// tree. `own` is left unchanged, and is not `result`.
pub(crate) fn reduce(
    schedule: &mut Schedule,
    team: Team,
    own: Span,
    result: Option<Span>,
    segments: u32,
) {
    let halves = halves(own);
    let branches = [0, 1].map(|tree| match result {
        Some(result) => Branches::of_first(top(tree, team.size() - 1), self::halves(result)[tree]),
        None => Branches::new(schedule, TreeNode::of(tree, team.me, team.size() - 1), halves[tree]),
    });
    let mut arrived = vec![[[Ticket::default(); 2]; 2]; segments as usize];
    for (index, arrived) in (0..).zip(&mut arrived) {
        for (branches, tickets) in branches.iter().zip(arrived) {
            *tickets = branches.expect(schedule, team, segments, index);
        }
    }
    // By the time a rank waits for one tree it has sent enough in the other that nobody there waits
    // for it.
    let lead = height(team.size() - 1);
    for step in 0..segments + lead {
        for (tree, branches) in branches.iter().enumerate() {
            let late = if branches.is_end() { 0 } else { lead };
            let Some(index) = step.checked_sub(late).filter(|&index| index < segments) else {
                continue;
            };
            arrived[index as usize][tree].into_iter().for_each(|ticket| schedule.settle(ticket));
            let own = segment(halves[tree], segments, index);
            branches.combine(schedule, team, own, segments, index);
        }
    }
    schedule.wait();
}

/// Branches of one rank in a tree, and the spans for their data.
struct Branches {
    parent: Option<u32>,
    left: Option<(u32, Span)>,
    right: Option<(u32, Span)>,
    /// Span for the own operand if no right branch follows it and it has to be copied.
    aside: Option<Span>,
}

impl Branches {
    fn new(schedule: &mut Schedule, place: TreeNode, half: Span) -> Self {
        let mut room = |child| (child, schedule.room(half.len));
        let (left, right) = (place.left.map(&mut room), place.right.map(room));
        let is_last = left.is_some() && right.is_none();
        let aside = is_last.then(|| schedule.room(half.len));
        Self { parent: Some(place.parent), left, right, aside }
    }

    /// True for a leaf: nothing is received.
    fn is_end(&self) -> bool {
        self.left.is_none() && self.right.is_none()
    }

    /// Branches of the first rank, behind which all others come.
    fn of_first(top: Option<u32>, result: Span) -> Self {
        let right = top.map(|top| (top, result));
        let aside = right.is_none().then_some(result);
        Self { parent: None, left: None, right, aside }
    }

    fn expect(
        &self,
        schedule: &mut Schedule,
        team: Team,
        segments: u32,
        index: u32,
    ) -> [Ticket; 2] {
        [self.left, self.right].map(|branch| match branch {
            Some((child, into)) => {
                schedule.expect(team.rank(child), segment(into, segments, index))
            }
            None => Ticket::default(),
        })
    }

    /// Combines the received segments with the own one and passes the result on.
    fn combine(&self, schedule: &mut Schedule, team: Team, own: Span, segments: u32, index: u32) {
        let cut = |span| segment(span, segments, index);
        let mut sum = own;
        if let Some((_, right)) = self.right {
            schedule.reduce(own, cut(right));
            sum = cut(right);
        } else if let Some(aside) = self.aside {
            schedule.copy(own, cut(aside));
            sum = cut(aside);
        }
        if let Some((_, left)) = self.left {
            schedule.reduce(cut(left), sum);
        }
        if let Some(parent) = self.parent {
            schedule.send(team.rank(parent), sum);
        }
    }
}

/// Neighbours of a position in one of the trees; position 0 is above the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TreeNode {
    parent: u32,
    left: Option<u32>,
    right: Option<u32>,
}

impl TreeNode {
    /// Returns the node of a position in `1..=others`. In the first tree odd positions are leaves,
    /// in the second even ones. The second tree is the mirror of the first if that turns odd into
    /// even. Else it is the first tree beginning at 2, under 1.
    fn of(tree: usize, position: u32, others: u32) -> Self {
        match tree {
            0 => Self::in_order(position, others),
            _ if others.is_multiple_of(2) => {
                let mirrored = |position: u32| (others + 1 - position) % (others + 1);
                let Self { parent, left, right } = Self::in_order(mirrored(position), others);
                let (left, right) = (right.map(mirrored), left.map(mirrored));
                Self { parent: mirrored(parent), left, right }
            }
            _ if position == 1 => {
                Self { parent: 0, left: None, right: below(others - 1).map(|top| top + 1) }
            }
            _ => {
                let Self { parent, left, right } = Self::in_order(position - 1, others - 1);
                let shifted = |position: u32| position + 1;
                Self { parent: shifted(parent), left: left.map(shifted), right: right.map(shifted) }
            }
        }
    }

    /// Returns the node in the tree of `1..=count` whose root is the greatest power of two, with
    /// such trees on both sides.
    fn in_order(position: u32, count: u32) -> Self {
        let (mut before, mut count, mut parent) = (0, count, 0);
        loop {
            let height = below(count).unwrap_or(1);
            let top = before + height;
            if position == top {
                let left = below(height - 1).map(|left| before + left);
                let right = below(count - height).map(|right| top + right);
                return Self { parent, left, right };
            }
            parent = top;
            if position < top {
                count = height - 1;
            } else {
                (before, count) = (top, count - height);
            }
        }
    }

    fn children(&self) -> impl Iterator<Item = u32> + use<> {
        self.left.into_iter().chain(self.right)
    }
}

/// Returns the root of a tree of so many positions, if there are any.
fn top(tree: usize, others: u32) -> Option<u32> {
    let first = below(others)?;
    Some(match tree {
        0 => first,
        _ if others.is_multiple_of(2) => others + 1 - first,
        _ => 1,
    })
}

/// Height of the tree: an upper bound.
fn height(others: u32) -> u32 {
    others.checked_ilog2().map_or(0, |highest| highest + 2)
}

/// Returns the greatest power of two up to `count`; none for 0.
fn below(count: u32) -> Option<u32> {
    (count > 0).then(|| 1 << count.ilog2())
}

fn halves(span: Span) -> [Span; 2] {
    [0, 1].map(|tree| {
        let (start, len) = part(span.len, 2, tree);
        span.part(start, len)
    })
}

fn segment(span: Span, segments: u32, index: u32) -> Span {
    let (start, len) = part(span.len, segments, index);
    span.part(start, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_trees_are_in_order_and_no_position_is_inner_in_both() {
        for others in 1..200 {
            let mut passes_on = vec![0; others as usize + 1];
            for tree in [0, 1] {
                let place = |position| TreeNode::of(tree, position, others);
                let top = top(tree, others).unwrap();
                assert_eq!(place(top).parent, 0);
                let order = in_order(&place, top);
                assert_eq!(order, (1..=others).collect::<Vec<_>>());
                for position in 1..=others {
                    let children: Vec<u32> = place(position).children().collect();
                    assert!(children.iter().all(|&child| place(child).parent == position));
                    passes_on[position as usize] += u32::from(!children.is_empty());
                }
            }
            assert!(passes_on.iter().all(|trees| *trees <= 1), "{others}: {passes_on:?}");
        }
    }

    fn in_order(place: &dyn Fn(u32) -> TreeNode, position: u32) -> Vec<u32> {
        let TreeNode { left, right, .. } = place(position);
        let branch = |child: Option<u32>| child.map_or(Vec::new(), |child| in_order(place, child));
        [branch(left), vec![position], branch(right)].concat()
    }

    #[test]
    fn trees_are_no_higher_than_the_bound() {
        for others in 1..200 {
            for tree in [0, 1] {
                let above = |position: &u32| match TreeNode::of(tree, *position, others).parent {
                    0 => None,
                    parent => Some(parent),
                };
                let depth = |position| std::iter::successors(Some(position), above).count();
                let most = (1..=others).map(depth).max().unwrap();
                assert!(most as u32 <= height(others), "{others}");
            }
        }
    }
}
