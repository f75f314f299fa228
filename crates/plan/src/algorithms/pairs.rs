//! The order in which most algorithms combine: the operands of neighbouring positions in pairs,
//! their combinations in pairs, and so on. If their number is no power of two, the first ones are
//! paired before that. Recursive doubling has this order, and a rank that has all operands follows
//! it alone. The result is then the same to the last bit, whichever rank combines.

use crate::algorithms::doubling::Folded;
use crate::schedule::{Schedule, Span};

/// Combination of the operands of consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// The operand of a position.
    Operand(u32),
    /// The combination of two, the lower positions first.
    Both(Box<[Tree; 2]>),
}

impl Tree {
    /// Returns the tree of the positions below `size`.
    pub(crate) fn of(size: u32) -> Self {
        let folded = Folded::of(size);
        let pair = |position: u32| match folded.position(position) {
            last if position < folded.pairs => {
                Self::both(Self::Operand(last - 1), Self::Operand(last))
            }
            position => Self::Operand(position),
        };
        let mut level: Vec<Self> = (0..folded.power).map(pair).collect();
        while level.len() > 1 {
            let mut below = level.into_iter();
            level = Vec::new();
            while let (Some(left), Some(right)) = (below.next(), below.next()) {
                level.push(Self::both(left, right));
            }
        }
        level.remove(0)
    }

    /// Returns the tree of the `reach` positions up to and with `last`, or of as many as there are.
    /// The order is that of doubling distances: operands arrive nearest first and are put before
    /// the present ones.
    pub(crate) fn prefix(last: u32, reach: u32) -> Self {
        Self::before(Self::Operand(last), last, 1, reach)
    }

    /// Returns the same for the positions below `me`; none for the first.
    pub(crate) fn prefix_below(me: u32) -> Option<Self> {
        let nearest = Self::Operand(me.checked_sub(1)?);
        Some(Self::before(nearest, me, 2, u32::MAX))
    }

    /// Puts before `tree` what `me` receives from `distance` and farther, up to `reach`.
    fn before(tree: Self, me: u32, distance: u32, reach: u32) -> Self {
        let distances = std::iter::successors(Some(distance), |last| last.checked_mul(2));
        distances
            .take_while(|&distance| distance < reach && distance <= me)
            .fold(tree, |right, distance| Self::both(Self::prefix(me - distance, distance), right))
    }

    fn both(left: Self, right: Self) -> Self {
        Self::Both(Box::new([left, right]))
    }
}

/// Combines the operands of all positions in place and returns the span of the result.
pub(crate) fn combine(schedule: &mut Schedule, operands: &[Span]) -> Span {
    combine_tree(schedule, &Tree::of(operands.len() as u32), operands)
}

fn combine_tree(schedule: &mut Schedule, tree: &Tree, operands: &[Span]) -> Span {
    match tree {
        Tree::Operand(position) => operands[*position as usize],
        Tree::Both(both) => {
            let [left, right] = both.each_ref().map(|tree| combine_tree(schedule, tree, operands));
            schedule.reduce(left, right);
            right
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tree: &Tree) -> String {
        match tree {
            Tree::Operand(position) => position.to_string(),
            Tree::Both(both) => format!("({} {})", shown(&both[0]), shown(&both[1])),
        }
    }

    #[test]
    fn neighbours_are_combined_first() {
        let shown_of = |size| shown(&Tree::of(size));
        assert_eq!([1, 2, 3].map(shown_of), ["0", "(0 1)", "((0 1) 2)"]);
        assert_eq!(shown_of(5), "(((0 1) 2) (3 4))");
        assert_eq!(shown_of(8), "(((0 1) (2 3)) ((4 5) (6 7)))");
    }

    #[test]
    fn prefixes_follow_the_order_of_arrival() {
        assert_eq!(shown(&Tree::prefix(0, u32::MAX)), "0");
        assert_eq!(shown(&Tree::prefix(5, u32::MAX)), "((0 1) ((2 3) (4 5)))");
        assert_eq!(Tree::prefix_below(0), None);
        assert_eq!(shown(&Tree::prefix_below(1).unwrap()), "0");
        assert_eq!(shown(&Tree::prefix_below(6).unwrap()), "((0 (1 2)) ((3 4) 5))");
    }
}
