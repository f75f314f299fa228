//! The hot socket: the only link with traffic lately, read without epoll.
//!
//! Asking epoll costs half of reading an empty socket, however many sockets there are, but its findings must be read
//! as well. So a link is read without epoll only if all of the last frames came from it, as when two ranks exchange
//! messages in turn.

/// The link that received last, and its recent reads.
#[derive(Debug, Default)]
pub(super) struct HotSocket {
    key: u64,
    /// Consecutive reads with data from this link.
    times: u32,
    /// Empty reads since.
    empty_reads: u32,
}

impl HotSocket {
    /// Records that a link had data.
    pub fn note_read(&mut self, key: u64) {
        self.times = if self.key == key { self.times.saturating_add(1) } else { 0 };
        self.key = key;
        self.empty_reads = 0;
    }

    /// Returns the link to read without epoll, if any.
    pub fn alone(&self) -> Option<u64> {
        (self.times >= TIMES).then_some(self.key)
    }

    /// Records an empty read.
    pub fn note_empty_read(&mut self) {
        self.empty_reads += 1;
        if self.empty_reads >= EMPTY_READS_MAX {
            self.times = 0;
        }
    }
}

/// Consecutive reads after which a link is likely to be the next.
const TIMES: u32 = 8;
/// Empty reads, some milliseconds' worth, after which a link is no longer expected.
const EMPTY_READS_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_socket_is_polled_until_another_has_data_or_it_falls_silent() {
        let mut hot_socket = HotSocket::default();
        let alone = |hot_socket: &mut HotSocket, key| {
            (0..=TIMES).for_each(|_| hot_socket.note_read(key));
            assert_eq!(hot_socket.alone(), Some(key));
        };
        assert_eq!(hot_socket.alone(), None);
        alone(&mut hot_socket, 7);
        hot_socket.note_read(8);
        assert_eq!(hot_socket.alone(), None);
        alone(&mut hot_socket, 7);
        (1..EMPTY_READS_MAX).for_each(|_| hot_socket.note_empty_read());
        assert_eq!(hot_socket.alone(), Some(7));
        hot_socket.note_empty_read();
        assert_eq!(hot_socket.alone(), None);
    }
}
