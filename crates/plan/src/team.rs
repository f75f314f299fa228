//! Ranks that work together.

/// Ranks in an order, as one of them sees it. Algorithms name them by their *positions* in that
/// order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Team<'a> {
    /// Ranks in the given order; none for all ranks in their own order.
    ranks: Option<&'a [u32]>,
    size: u32,
    /// Unrotated index of position 0.
    first: u32,
    /// Position of the planning rank.
    pub me: u32,
}

impl<'a> Team<'a> {
    /// Returns the team of the ranks below `size`, in their own order.
    pub(crate) fn all(size: u32, me: u32) -> Self {
        Self { ranks: None, size, first: 0, me }
    }

    /// Returns the team of listed ranks, of which `me` is a position.
    pub(crate) fn of(ranks: &'a [u32], me: u32) -> Self {
        Self { ranks: Some(ranks), size: ranks.len() as u32, first: 0, me }
    }

    /// Rotates the order so that `position` becomes the first.
    pub(crate) fn led_by(self, position: u32) -> Self {
        let first = (self.first + position) % self.size;
        Self { first, me: (self.me + self.size - position) % self.size, ..self }
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Returns the rank at a position.
    pub(crate) fn rank(&self, position: u32) -> u32 {
        let index = self.index(position);
        self.ranks.map_or(index, |ranks| ranks[index as usize])
    }

    /// Returns the rank so many positions after this one, around the end.
    pub(crate) fn after(&self, distance: u32) -> u32 {
        self.rank((self.me + distance) % self.size)
    }

    /// Returns the rank so many positions before this one, around the end.
    pub(crate) fn before(&self, distance: u32) -> u32 {
        self.rank((self.me + self.size - distance % self.size) % self.size)
    }

    /// Returns the positions of the others, from the next one on.
    pub(crate) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (me, size) = (self.me, self.size);
        (1..size).map(move |distance| (me + distance) % size)
    }

    /// Returns the unrotated position, which indexes data that the rotation does not move.
    pub(crate) fn index(&self, position: u32) -> u32 {
        let index = self.first + position;
        if index >= self.size { index - self.size } else { index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_team_has_the_same_ranks() {
        let ranks = [4, 7, 1, 9];
        let team = Team::of(&ranks, 2).led_by(3);
        assert_eq!((0..4).map(|at| team.rank(at)).collect::<Vec<_>>(), [9, 4, 7, 1]);
        assert_eq!((team.me, team.rank(team.me), team.after(1), team.before(3)), (3, 1, 9, 9));
        assert_eq!(team.others().collect::<Vec<_>>(), [0, 1, 2]);
        let again = team.led_by(1);
        assert_eq!((again.rank(0), again.rank(again.me), again.index(0)), (4, 1, 0));
        assert_eq!(Team::all(5, 3).led_by(3).rank(4), 2);
    }
}
