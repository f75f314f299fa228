//! What a member knows of its own pages.

use super::layout::PAGES;
use crate::shm::pool::LINE;

/// What a member knows of its pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages {
    /// The round of the latest contribution on each; 0 if there was none.
    pub last: [u64; PAGES],
    /// The one that was written last.
    pub current: usize,
    /// Where the last contribution there ends.
    end: usize,
    /// Who alone reads what lies on each, and which of the pieces of its round that is.
    pub readers: [Option<(u32, u32)>; PAGES],
    /// How much of each is there.
    reserved: [usize; PAGES],
}

impl Pages {
    /// On which page so many bytes have room, and where there: the other's beginning where that has been read, so that few
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

    /// The part of a page that is to be reserved before it is written up to `end`: where it begins, and its length.
    pub(super) fn unreserved(
        &self,
        page: usize,
        end: usize,
        page_len: usize,
    ) -> Option<(usize, usize)> {
        let start = self.reserved[page];
        let end = end.next_multiple_of(RESERVED_AT_ONCE).min(page_len);
        (start < end).then_some((start, end - start))
    }

    /// So much more of it is there.
    pub(super) fn reserve(&mut self, page: usize, len: usize) {
        self.reserved[page] += len;
    }

    /// In this round a page is written up to there.
    pub(super) fn take(&mut self, page: usize, end: usize, round: u64, reader: Option<(u32, u32)>) {
        (self.last[page], self.readers[page]) = (round, reader);
        (self.current, self.end) = (page, end);
    }
}

/// So much is reserved together: to ask the kernel for it takes as long as to fill some of its pages with zeros.
const RESERVED_AT_ONCE: usize = 64 << 10;
