//! What the engine hands to a rail, and what a rail says of itself.

use memory::Region;

/// A peer process: its rank in the job. The peer is everything known about the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// One of the rails of this process, by the order in which they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RailId(pub u8);

/// Names a posted frame in the report that its memory may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameToken(pub u64);

/// A frame on its way out: packet headers and short payloads in `head`, and at most one long payload,
/// taken from where it lies, behind it.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Bytes built by the engine; never longer than the rail's `head_max`.
    pub head: Vec<u8>,
    /// The payload of the last packet in `head`, if it was not copied there.
    pub body: Option<Body>,
    /// Given back by the rail (`Event::Sent`) once `body`'s memory is no longer needed.
    pub token: Option<FrameToken>,
}

/// Bytes `0..region.len()` of the application's memory that end a frame.
#[derive(Clone, Debug)]
pub struct Body {
    /// Where the bytes lie.
    pub region: Region,
}

impl Frame {
    /// Total length on the rail, in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.region.len())
    }

    /// Whether there is nothing in the frame.
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

/// What a rail can do on one link, stated when the link comes up. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The longest frame (head and body) it takes.
    pub frame_max: usize,
    /// Payloads up to this length are copied into the head; longer ones travel as body.
    pub inline_max: usize,
    /// Messages up to this length go without asking first (eager), as far as credits allow.
    pub eager_max: usize,
    /// How many bytes of a longer message go with its request, before the receiver has cleared it, as
    /// far as credits allow; 0 where asking costs little.
    pub rts_data_max: usize,
    /// So much of short messages is copied into one frame.
    pub aggregate_max: usize,
    /// The shortest piece of a long message that is worth a frame of its own.
    pub piece_min: usize,
    /// The longest that others should have to wait behind.
    pub piece_max: usize,
    /// How many unmatched bytes each side accepts of the other from the beginning: the same for both.
    pub credit_bytes: usize,
    /// How many this side would accept for the link's sake; the rest is granted when the link is up.
    pub credit_wanted: usize,
    /// Whether the receiver can fetch the sender's contiguous memory by itself (single copy).
    pub remote_read: bool,
    /// Whether the sizes above follow what the link costs; else they are those of the rail's mechanism.
    pub adapts: bool,
    /// Whether frames are to be kept until they have arrived, because other links can carry them if this one
    /// dies. They are kept where either end wants it, if the link reopens; else both ends have to say the same.
    pub replay: bool,
    /// Whether the rail can open the link again when the network has failed it. Both ends say the same; frames
    /// are kept for that where either end finds the peer far.
    pub reopens: bool,
    /// Whether a frame it takes is always copied in the call, body and all: nothing of it is ever held.
    pub copies: bool,
    /// Whether the link is there for what is short, to pass what another to the same peer is busy with: while there
    /// is another it carries no pieces of long messages, and only while that is busy the rest.
    pub passes: bool,
}

/// How many unmatched bytes processes accept of each other from the beginning, whichever of their links
/// opens first on either side.
pub const FIRST_CREDIT_BYTES: usize = 64 << 10;

/// Contiguous memory of a peer process on this node, for a single-copy transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Address in the peer's own address space.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}
