//! How a peer breaks the protocol.

use wire::packet::FrameError;

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A packet refers to an operation that does not expect it.
    #[error("a {what} packet names operation {op}, which does not expect one")]
    Operation {
        /// The packet's kind.
        what: &'static str,
        /// The number it gave.
        op: u32,
    },
    /// A message comes twice, or too far ahead of the one before.
    #[error("message {got} arrived where {expected} was due")]
    Sequence {
        /// The number due.
        expected: u32,
        /// The number found.
        got: u32,
    },
    /// More unmatched data than was granted.
    #[error("{charged} bytes of unmatched messages, where {granted} were granted")]
    Credit {
        /// What the peer has sent.
        charged: usize,
        /// What it may send.
        granted: usize,
    },
    /// Data outside the memory that was cleared for it.
    #[error("data at {offset}..+{len} of a message of which {wanted} bytes were asked for")]
    Range {
        /// Where it should go.
        offset: u64,
        /// How long it is.
        len: usize,
        /// How much was asked for.
        wanted: u64,
    },
    /// A piece sent ahead of a clear belongs to no message under way, or comes twice.
    #[error("data rts_data of message {sequence}, of which none is due")]
    Ahead {
        /// The message's sequence.
        sequence: u32,
    },
    /// A packed piece is not what it says.
    #[error("a packed piece of {len} bytes does not unpack to {bytes}")]
    Packed {
        /// Its length as it came.
        len: usize,
        /// Its length in the message, as it says.
        bytes: usize,
    },
    /// More contexts are closed than there are in a job.
    #[error("more than {0} contexts are closed")]
    Closed(usize),
    /// A word about the link inside a frame.
    #[error("a word about the link stands inside a frame")]
    Word,
    /// A frame over a link that the peer has not greeted over.
    #[error("a frame came before the greeting")]
    Greeting,
    /// More frames are said to have arrived than were sent.
    #[error("{got} frames are said to have arrived of {sent}")]
    Confirmation {
        /// How many were sent.
        sent: u32,
        /// How many have arrived, as the peer says.
        got: u32,
    },
    /// A peer that is not in the job.
    #[error("peer {0} is not in the job")]
    Unknown(u32),
    /// A peer without a link: it is gone, or was never there.
    #[error("a frame over a link that is not open")]
    NotConnected,
}
