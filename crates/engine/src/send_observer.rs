//! Observer of submitted sends.

use std::fmt::Debug;

use wire::PeerId;

use crate::op::Envelope;

/// A hook that is called for every submitted message and one-sided operation.
pub trait SendObserver: Send + Debug {
    /// Called for a message of `bytes` bytes to `peer`.
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, bytes: u64);

    /// Called for a put, a get or a call that moves `bytes` bytes to or from `peer`.
    fn note_access(&mut self, peer: PeerId, bytes: u64);

    /// Ends the observer; returns the one that it has stood before, if there is one.
    fn into_former(self: Box<Self>) -> Option<Box<dyn SendObserver>> {
        None
    }
}
