//! Entry of a send queue.

use crate::op::OpId;

/// A send whose envelope has not left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub id: OpId,
    /// Length in bytes, beyond the header of an eager packet.
    pub bytes: usize,
    /// Credit that it takes if it leaves whole.
    pub cost: usize,
    /// Data of one context leave in order. Addressed traffic has [`ADDRESSED`], but for revocations.
    pub context: u64,
    /// True for addressed traffic.
    pub is_addressed: bool,
    /// True if its receiver may be blocked on this message.
    pub is_urgent: bool,
    /// Number of later messages that have left before it.
    pub overtaken: u16,
}

/// Context of addressed traffic in the send queue; no message has it.
pub(crate) const ADDRESSED: u64 = u64::MAX;
