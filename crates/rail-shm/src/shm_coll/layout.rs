//! Layout of a shared segment.

use crate::pool::LINE;
use crate::shared::Shared;

/// Offsets in a shared segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Word with a bit for each sleeping member.
    pub(super) sleepers: usize,
    /// Lines with round numbers and brief contributions.
    pub(super) lines: Places,
    pub(super) short: Places,
    /// Results that one member combines for all.
    pub(super) combined: Places,
    /// Offset of the pages of member 0.
    pub(super) first_page: usize,
    pub(super) page_len: usize,
    /// Total length.
    pub(crate) len_bytes: usize,
}

/// Slots for contributions of similar length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Offset of the first slot.
    first: usize,
    /// Distance of slots in bytes.
    stride: usize,
    /// Number of slots per member, a power of two.
    pub(super) count: u64,
}

impl Layout {
    pub(crate) fn of<S: Shared>(size: u32, page_len: usize) -> Self {
        // The slots of all members together should stay in a cache.
        let rounds = 1 << (LINES / u64::from(size.max(1))).max(1).ilog2();
        let rounds = rounds.clamp(S::SHORT_ROUNDS, S::ROUNDS);
        let sleepers = size as usize * LINE;
        let first = sleepers + LINE;
        let lines = Places { first, stride: BRIEF_AT + S::BRIEF_LEN, count: rounds };
        let first = lines.end(size);
        let short = Places { first, stride: S::SHORT_LEN, count: S::SHORT_ROUNDS };
        let first = short.end(size);
        let combined = Places { first, stride: LINE + S::SHORT_LEN, count: S::SHORT_ROUNDS };
        let first_page = combined.end(1);
        let len_bytes = first_page + size as usize * PAGES * page_len;
        Self { sleepers, lines, short, combined, first_page, page_len, len_bytes }
    }

    /// Returns the offset of a page of a member.
    #[inline]
    pub(super) fn page(&self, member: u32, page: usize) -> usize {
        self.first_page + (member as usize * PAGES + page) * self.page_len
    }
}

impl Places {
    #[inline]
    pub(super) fn at(self, member: u32, round: u64) -> usize {
        let place = u64::from(member) * self.count + (round & (self.count - 1));
        self.first + place as usize * self.stride
    }

    fn end(self, size: u32) -> usize {
        self.first + size as usize * self.count as usize * self.stride
    }
}

/// Returns the bytes before a contribution in its slot: a brief one follows other words.
#[inline]
pub(super) fn before<S: Shared>(len: usize) -> usize {
    if len <= S::BRIEF_LEN { BRIEF_AT } else { 0 }
}

/// One page is read while the other is written.
pub(super) const PAGES: usize = 2;

/// Maximum number of lines of all members together, unless each needs more.
const LINES: u64 = 512;

/// Words of a member's line in a round: round number, length, offset on the pages, brief contribution.
pub(super) const LEN_AT: usize = 8;
pub(super) const PAGE_AT: usize = 12;
pub(super) const BRIEF_AT: usize = 16;

/// Total length of a contribution on a page, with its further pieces.
pub(super) const TOTAL_AT: usize = BRIEF_AT;

/// Words before a combined result: round of the member that writes it, length, round once it is complete.
pub(super) const READY_AT: usize = 16;

/// Words of a member's control line: awaited condition, pid, CPU core plus one, last posted piece, last released
/// piece.
pub(super) const PID_AT: usize = 8;
pub(super) const CORE_AT: usize = 12;
pub(super) const POSTED_AT: usize = 16;
pub(super) const TAKEN_AT: usize = 24;

/// Further word of that line: round of the latest post while the member was behind, and its operation number.
pub(super) const BEHIND_AT: usize = 32;
