//! Who wants to know what is sent.

use std::fmt::Debug;

use wire::GateId;

use crate::op::Envelope;

/// Is told of every message when it is submitted.
pub trait Witness: Send + Debug {
    /// A message of so many bytes is for `gate`.
    fn note_send(&mut self, gate: GateId, envelope: Envelope, bytes: u64);
}
