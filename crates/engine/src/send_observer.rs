//! Who wants to know what is sent.

use std::fmt::Debug;

use wire::PeerId;

use crate::op::Envelope;

/// Is told of every message when it is submitted.
pub trait SendObserver: Send + Debug {
    /// A message of so many bytes is for `peer`.
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, bytes: u64);
}
