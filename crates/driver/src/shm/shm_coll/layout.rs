//! What lies where on a shared segment.

use crate::shm::pool::LINE;
use crate::shm::shared::Shared;

/// What lies where on a shared segment.
#[derive(Clone, Copy, Debug)]
pub(in crate::shm) struct Layout {
    /// A word with a bit for each member that sleeps.
    pub(super) sleepers: usize,
    /// Counts, and what is brief.
    pub(super) lines: Places,
    pub(super) short: Places,
    /// What combinations of one member are for all.
    pub(super) combined: Places,
    /// Where the first member's pages begin.
    pub(super) first_page: usize,
    pub(super) page_len: usize,
    /// What it takes.
    pub(in crate::shm) len_bytes: usize,
}

/// Where contributions lie that are about as long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// The first.
    first: usize,
    /// Bytes from one to the next.
    stride: usize,
    /// How many a member has, a power of two.
    pub(super) count: u64,
}

impl Layout {
    pub(in crate::shm) fn of<S: Shared>(size: u32, page_len: usize) -> Self {
        // What all go through in turn stays in a cache.
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

    /// Where a page of a member begins.
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

/// What is brief lies behind other words.
#[inline]
pub(super) fn before<S: Shared>(len: usize) -> usize {
    if len <= S::BRIEF_LEN { BRIEF_AT } else { 0 }
}

/// One is read while the other is written.
pub(super) const PAGES: usize = 2;

/// How many lines all members have together at most, if each has as many as it needs.
const LINES: u64 = 512;

/// On a member's line of a round: its number, the contribution's length, where that begins on the pages, and what is brief.
pub(super) const LEN_AT: usize = 8;
pub(super) const PAGE_AT: usize = 12;
pub(super) const BRIEF_AT: usize = 16;

/// Of what goes to a page: how long it is with all that follows it.
pub(super) const TOTAL_AT: usize = BRIEF_AT;

/// Before what is combined for all: the round of the member that is at it, the length, and the round once it is there.
pub(super) const READY_AT: usize = 16;

/// On a member's line of its own: what it sleeps for, its process, one more than the number of its core, once it has
/// looked, and the last of its further pieces that it has posted, and of others' that it has taken.
pub(super) const PID_AT: usize = 8;
pub(super) const CORE_AT: usize = 12;
pub(super) const POSTED_AT: usize = 16;
pub(super) const TAKEN_AT: usize = 24;

/// Besides: the round of its latest post when it did not know where an operation begins, and that one's number.
pub(super) const BEHIND_AT: usize = 32;
