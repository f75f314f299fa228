//! Observer of submitted sends.

use std::fmt::Debug;

use wire::PeerId;

use crate::op::Envelope;

/// A hook that is called for every submitted message of `bytes` bytes to `peer`.
pub trait SendObserver: Send + Debug {
    /// Called for a message of `bytes` bytes to `peer`.
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, bytes: u64);
}
