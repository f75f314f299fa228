//! Conditions that members of a shared segment wait for, as encoded for other members.

use std::ops::Range;

/// A condition that some members must fulfil in a round.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    pub round: u64,
    pub members: Range<u32>,
    pub what: Condition,
}

/// An action of a member. Pieces count from 0, the first post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Has posted.
    Post,
    /// Has posted this piece.
    More(u32),
    /// Has released this piece.
    Taken(u32),
}

impl Awaited {
    /// Condition that the only reader of a piece releases it.
    pub(super) fn taking(round: u64, (reader, piece): (u32, u32)) -> Self {
        Self { round, members: reader..reader + 1, what: Condition::Taken(piece) }
    }

    /// Encodes the condition; never zero, because the range of members is not empty.
    pub(super) fn encode(&self) -> u64 {
        let (kind, piece): (u64, u32) = match self.what {
            Condition::Post => (0, 0),
            Condition::More(piece) => (1, piece),
            Condition::Taken(piece) => (2, piece),
        };
        let what = kind << PIECE_BITS | u64::from(piece);
        let members = u64::from(self.members.start) << 8 | u64::from(self.members.end);
        self.round << ROUND_SHIFT | what << 16 | members
    }

    /// Decodes the condition of a member whose round is close to `near`.
    pub(super) fn decode(wanted: u64, near: u64) -> Self {
        let members = (wanted >> 8) as u32 & 0xff..wanted as u32 & 0xff;
        let piece = (wanted >> 16) as u32 & ((1 << PIECE_BITS) - 1);
        let what = match (wanted >> 16 >> PIECE_BITS) & 3 {
            0 => Condition::Post,
            1 => Condition::More(piece),
            _ => Condition::Taken(piece),
        };
        let later = (wanted >> ROUND_SHIFT << ROUND_SHIFT).wrapping_sub(near << ROUND_SHIFT);
        let round = near.wrapping_add_signed(later.cast_signed() >> ROUND_SHIFT);
        Self { round, members, what }
    }
}

/// Combines round and piece; later ones compare greater.
pub(super) fn place_of(round: u64, piece: u32) -> u64 {
    round << PIECE_BITS | u64::from(piece)
}

/// Bits of a piece number.
pub(super) const PIECE_BITS: u32 = 10;

/// Position of the low bits of the round, above condition and members.
const ROUND_SHIFT: u32 = 16 + 2 + PIECE_BITS;
