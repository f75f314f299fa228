//! The layout of an inbox: where its words are.

/// Offsets in an inbox, besides those of `sleep` on the line at 128.
pub const TOKEN_AT: usize = 0;
pub const JOB_AT: usize = 16;
pub const OWN_ADDRESS_AT: usize = 32;
pub const COUNT_AT: usize = 64;
pub const ATTENTIVE_AT: usize = 192;
pub const CORE_AT: usize = 196;
pub const CORES_AT: usize = 200;
pub const SLOTS_AT: usize = 256;
pub const INBOX_LEN: usize = SLOTS_AT + 8 * PEERS_MAX as usize;

/// Maximum number of neighbours on a node.
pub const PEERS_MAX: u32 = 1024;
