//! The other side of a partitioned message.

use wire::PeerId;

/// The other side of a partitioned message, and what both sides match it by.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Peer of the other side.
    pub peer: PeerId,
    /// Context of offers. The two contexts that differ in bit 1, or in bits 0 and 1, belong to partitioned messages, too.
    pub context: u64,
    /// Rank of the sender in the communicator.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// Note of the operations; see [`engine::Engine::note`].
    pub note: u64,
}

impl Route {
    /// Context of messages that tell a sender to go on.
    pub(crate) fn go_context(&self) -> u64 {
        self.context | 2
    }

    /// Context of long partitions.
    pub(crate) fn data_context(&self) -> u64 {
        self.context | 3
    }
}
