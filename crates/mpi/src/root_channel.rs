//! Channels between the roots of two groups that meet.

use wire::PeerId;

use crate::Result;

/// A channel to the root of another group.
pub trait RootChannel {
    /// The other root, if it is a known peer.
    fn leads_to(&self) -> Option<PeerId>;

    /// Exchanges messages with the other root, which sends at most `room` bytes.
    ///
    /// # Errors
    /// The other root is gone.
    fn swap(&mut self, mine: &[u8], room: usize) -> Result<Vec<u8>>;

    /// Exchanges the first messages with the other root. Repeated, it turns to another root in place of one that has gone.
    ///
    /// # Errors
    /// Nobody comes, or the other root is gone.
    fn begin(&mut self, mine: &[u8], room: usize) -> Result<Vec<u8>> {
        self.swap(mine, room)
    }

    /// True if a root has come, and another one may come in its place if it goes.
    fn has_begun(&self) -> bool {
        false
    }
}
