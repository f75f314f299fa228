//! State of a member's own pages.

use crate::pool::LINE;
use crate::shm_coll::layout::PAGES;

/// State of a member's two pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages {
    /// Round of the latest contribution on each page; 0 if none.
    pub last: [u64; PAGES],
    /// Page written last.
    pub current: usize,
    /// End of the last contribution there.
    end: usize,
    /// Only reader of each page, and the piece of its round.
    pub readers: [Option<(u32, u32)>; PAGES],
    /// Allocated length of each page.
    reserved: [usize; PAGES],
}

impl Pages {
    /// Returns a page and offset with room for `len` bytes: the start of the other page if that was read, so that few
    /// pages stay in a cache.
    pub(super) fn place(
        &self,
        is_other_read: bool,
        len: usize,
        page_len: usize,
    ) -> Option<(usize, usize)> {
        let start = self.end.next_multiple_of(LINE);
        match is_other_read {
            true => Some((1 - self.current, 0)),
            false => (start + len <= page_len).then_some((self.current, start)),
        }
    }

    /// Returns offset and length of the part to allocate before the page is written up to `end`.
    pub(super) fn unreserved(
        &self,
        page: usize,
        end: usize,
        page_len: usize,
    ) -> Option<(usize, usize)> {
        let start = self.reserved[page];
        let end = end.next_multiple_of(RESERVED_AT_ONCE).min(page_len);
        (start < end).then(|| (start, end - start))
    }

    /// Records `len` more allocated bytes.
    pub(super) fn reserve(&mut self, page: usize, len: usize) {
        self.reserved[page] += len;
    }

    /// Records that a page is written up to `end` in this round.
    pub(super) fn take(&mut self, page: usize, end: usize, round: u64, reader: Option<(u32, u32)>) {
        (self.last[page], self.readers[page]) = (round, reader);
        (self.current, self.end) = (page, end);
    }
}

/// Bytes allocated at once: the system call takes as long as zeroing some of its pages.
const RESERVED_AT_ONCE: usize = 64 << 10;
