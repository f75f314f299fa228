//! Rails as the connection manager sees them.

use wire::RailId;

/// Traits of a rail that decide when it is asked for a link.
#[derive(Clone, Copy, Debug)]
pub struct RailTraits {
    /// Name of the rail, for messages.
    pub name: &'static str,
    /// First rail of its team. Rails of a team carry for a peer together.
    pub team: RailId,
    /// True if its links only bypass those of another rail; it leads to no peer by itself.
    pub passes: bool,
}

/// A set of rails, the one that opened first before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailSet {
    first: RailId,
    members: u32,
}

impl RailSet {
    /// The empty set.
    pub const EMPTY: Self = Self { first: RailId(0), members: 0 };

    /// The set of one rail.
    pub fn of(rail: RailId) -> Self {
        Self { first: rail, members: 1 << rail.0 }
    }

    /// Rail that opened first, of those in the set.
    pub fn first(self) -> RailId {
        self.first
    }

    /// True if no rail is in the set.
    pub fn is_empty(self) -> bool {
        self.members == 0
    }

    /// Adds a rail.
    pub fn insert(&mut self, rail: RailId) {
        if self.members == 0 {
            self.first = rail;
        }
        self.members |= 1 << rail.0;
    }

    /// True if a rail is in the set.
    pub fn contains(self, rail: RailId) -> bool {
        self.members & 1 << rail.0 != 0
    }

    /// Removes a rail; true if it was in the set.
    pub fn remove(&mut self, rail: RailId) -> bool {
        let was_in = self.contains(rail);
        self.members &= !(1 << rail.0);
        if self.first == rail && self.members != 0 {
            self.first = RailId(self.members.trailing_zeros() as u8);
        }
        was_in
    }

    /// The rails, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = RailId> {
        (0..u32::BITS as u8).map(RailId).filter(move |rail| self.contains(*rail))
    }
}
