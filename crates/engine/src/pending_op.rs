//! Pending operations, as reports on jobs that hang name them.

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
