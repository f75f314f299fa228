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

    /// In this round a page is written up to there.
    pub(super) fn take(&mut self, page: usize, end: usize, round: u64, reader: Option<(u32, u32)>) {
        (self.last[page], self.readers[page]) = (round, reader);
        (self.current, self.end) = (page, end);
    }
}
