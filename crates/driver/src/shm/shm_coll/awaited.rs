//! What a member of a shared segment waits for, also as others read it while the member sleeps.

use std::ops::Range;

/// What members have to do in a round until another goes on.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    pub round: u64,
    pub members: Range<u32>,
    pub what: What,
}

/// Pieces count from 0, which is what a member posts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// To post.
    Post,
    /// To post this piece.
    More(u32),
    /// To have taken this piece.
    Taken(u32),
}

impl Awaited {
    /// That the only reader of a piece takes it.
    pub(super) fn taking(round: u64, (reader, piece): (u32, u32)) -> Self {
        Self { round, members: reader..reader + 1, what: What::Taken(piece) }
    }

    /// Never zero: somebody is waited for.
    pub(super) fn pack(&self) -> u64 {
        let (kind, piece): (u64, u32) = match self.what {
            What::Post => (0, 0),
            What::More(piece) => (1, piece),
            What::Taken(piece) => (2, piece),
        };
        let what = kind << PIECE_BITS | u64::from(piece);
        let members = u64::from(self.members.start) << 8 | u64::from(self.members.end);
        self.round << ROUND_SHIFT | what << 16 | members
    }

    /// What a member that is in a round near this one waits for.
    pub(super) fn unpack(wanted: u64, near: u64) -> Self {
        let members = (wanted >> 8) as u32 & 0xff..wanted as u32 & 0xff;
        let piece = (wanted >> 16) as u32 & ((1 << PIECE_BITS) - 1);
        let what = match (wanted >> 16 >> PIECE_BITS) & 3 {
            0 => What::Post,
            1 => What::More(piece),
            _ => What::Taken(piece),
        };
        let later = (wanted >> ROUND_SHIFT << ROUND_SHIFT).wrapping_sub(near << ROUND_SHIFT);
        let round = near.wrapping_add_signed(later.cast_signed() >> ROUND_SHIFT);
        Self { round, members, what }
    }
}

/// A piece of a round, later ones being greater.
pub(super) fn place_of(round: u64, piece: u32) -> u64 {
    round << PIECE_BITS | u64::from(piece)
}

/// Bits of the number of a piece.
pub(super) const PIECE_BITS: u32 = 10;

/// Of the round for which a member sleeps the low bits are told, behind what it is and who.
const ROUND_SHIFT: u32 = 16 + 2 + PIECE_BITS;
