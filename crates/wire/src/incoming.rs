//! Bytes of a frame that is received in pieces.

use std::fmt;

use memory::Region;

/// The next bytes of a frame, which the receiver stores at once or discards.
pub enum Incoming<'a> {
    /// Bytes in the memory of the rail.
    Here(&'a [u8]),
    /// Bytes that are still with the kernel, if any have come: a function that reads them into a region, from its
    /// beginning, and returns their count. It discards those for which the region has no room.
    Unread(&'a mut dyn FnMut(&Region) -> usize),
}

impl Incoming<'_> {
    /// Stores the bytes at the beginning of `target`, and returns their count. Those for which it has no room are
    /// discarded and counted.
    #[inline]
    pub fn store(self, target: &Region) -> usize {
        match self {
            Self::Here(bytes) => {
                target.begin_write(0, &bytes[..bytes.len().min(target.len())]);
                bytes.len()
            }
            Self::Unread(read) => read(target),
        }
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(bytes) => f.debug_tuple("Here").field(&bytes.len()).finish(),
            Self::Unread(_) => f.debug_tuple("Unread").finish_non_exhaustive(),
        }
    }
}
