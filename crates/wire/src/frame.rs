//! Frames that the engine gives to a rail, and the capabilities a rail declares.

use std::fmt;

use memory::Region;

/// A peer process, by its number in an instance of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// A process of any job, as all processes that know it name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// Number of its job.
    pub job: u64,
    /// Its rank there.
    pub rank: u32,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of job {:016x}", self.rank, self.job)
    }
}

/// A rail of this process, numbered in the order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RailId(pub u8);

/// Identifies a posted frame when the rail reports that its memory may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameToken(pub u64);

/// An outgoing frame: packet headers and short payloads in `head`, then at most one long payload,
/// sent without a copy.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Bytes built by the engine; never longer than the rail's `head_max`.
    pub head: Vec<u8>,
    /// Payload of the last packet in `head`, if it was not copied there.
    pub body: Option<Body>,
    /// Returned by the rail (`Event::Sent`) once `body`'s memory is no longer needed.
    pub token: Option<FrameToken>,
}

/// Bytes `0..region.len()` of the application's memory, at the end of a frame.
#[derive(Clone, Debug)]
pub struct Body {
    /// Memory that holds the bytes.
    pub region: Region,
}

impl Frame {
    /// Total length on the rail, in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.region.len())
    }

    /// True if the frame holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties the frame, keeping its allocation.
    pub fn clear(&mut self) {
        self.head.clear();
        self.body = None;
        self.token = None;
    }
}

/// Properties of a rail on one link, declared when the link comes up. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest frame (head and body) that the rail accepts.
    pub frame_max: usize,
    /// Longest payload that is copied into the head; longer ones are sent as the body.
    pub inline_max: usize,
    /// Longest message that is sent eagerly, as far as credits allow.
    pub eager_max: usize,
    /// Bytes of a longer message that follow its RTS before the CTS, as far as credits allow; 0 if
    /// a round trip costs little.
    pub rts_data_max: usize,
    /// Bytes of short messages that are copied into one frame.
    pub aggregate_max: usize,
    /// Shortest piece of a long message that is worth a frame of its own.
    pub piece_min: usize,
    /// Longest piece that other messages should have to wait behind.
    pub piece_max: usize,
    /// Unmatched bytes that each side accepts from the other at the start; the same on both sides.
    pub credit_bytes: usize,
    /// Unmatched bytes that this side would accept for this link; the difference is granted when
    /// the link is up.
    pub credit_wanted: usize,
    /// True if the receiver can read the sender's contiguous memory itself (single copy).
    pub remote_read: bool,
    /// True if the sizes above are derived from the link's cost, false if the rail's mechanism
    /// fixes them.
    pub adapts: bool,
    /// True if this end wants frames stored until they are acknowledged, so that other links can
    /// resend them. If the link reopens, one end's wish is enough; otherwise both must agree.
    pub replay: bool,
    /// True if the rail can reopen the link after a network failure; both ends declare the same.
    /// Frames are then stored if either end finds a long round trip.
    pub reopens: bool,
    /// True if the rail always copies a frame within the call, body included, and never holds its
    /// memory.
    pub copies: bool,
    /// True if the link exists for short messages that overtake a busy link to the same peer. While
    /// another link is open, it carries no pieces of long messages. It carries short messages only
    /// while the other link is busy.
    pub passes: bool,
}

/// Unmatched bytes that processes accept from each other at the start, whichever link opens first
/// on either side.
pub const FIRST_CREDIT_BYTES: usize = 64 << 10;

/// Contiguous memory of a peer process on this node, for a single-copy transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Address in the peer's address space.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}
