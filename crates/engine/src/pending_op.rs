//! Pending operations and their numbers, as reports name them.

use wire::PeerId;

use crate::matching::Selector;

/// A pending operation, as a report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingOp {
    /// A receive without a message.
    Receive {
        /// The peer that the receive names.
        peer: Option<PeerId>,
        /// Messages that it accepts.
        selector: Selector,
    },
    /// A message that has matched and not arrived as a whole.
    Arriving {
        /// Its sender, if the receive names it.
        peer: Option<PeerId>,
        /// Tag of the message.
        tag: i32,
        /// Length of the message in bytes.
        bytes: u64,
    },
    /// A message to be sent.
    Send {
        /// Its receiver.
        peer: Option<PeerId>,
        /// Context of the communicator.
        context: u64,
        /// Tag of the message.
        tag: i32,
        /// True if the receiver knows of it, and has not taken it.
        is_offered: bool,
    },
    /// An access to memory of a peer, or a call of its handler, that it has not answered.
    Access {
        /// The peer.
        peer: Option<PeerId>,
    },
}

/// Lengths of the queues of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// Number of receives without a message.
    pub receives: usize,
    /// Number of messages without a receive.
    pub messages: usize,
    /// Their bytes in the memory of this process.
    pub message_bytes: usize,
    /// Number of sends that have not left as a whole.
    pub sends: usize,
}
