//! Protocol errors of a peer.

use wire::FrameError;

/// Violation of the protocol by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The bytes are not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A packet refers to an operation that does not expect it.
    #[error("a {what} packet names operation {op}, which does not expect one")]
    Operation {
        /// Kind of the packet.
        what: &'static str,
        /// Number in the packet.
        op: u32,
    },
    /// A message is duplicated, or too far ahead of the previous one.
    #[error("message {got} arrived where {expected} was due")]
    Sequence {
        /// Sequence expected.
        expected: u32,
        /// Sequence received.
        got: u32,
    },
    /// Unmatched data exceed the granted credit.
    #[error("{charged} bytes of unmatched messages, where {granted} were granted")]
    Credit {
        /// Bytes the peer has sent.
        charged: usize,
        /// Bytes the peer may send.
        granted: usize,
    },
    /// Data lie outside the requested range.
    #[error("data at {offset}..+{len} of a message of which {wanted} bytes were asked for")]
    Range {
        /// Offset of the data.
        offset: u64,
        /// Length of the data.
        len: usize,
        /// Number of bytes requested.
        wanted: u64,
    },
    /// Addressed traffic names memory that is not exposed, or bytes outside it.
    #[error("{len} bytes at {offset} of exposed memory {index}, which has no such bytes")]
    Key {
        /// Index of the memory's key.
        index: u32,
        /// Offset of the bytes.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A call names a handler that does not exist.
    #[error("a call of handler {0}, which does not exist")]
    Handler(u16),
    /// A handler has refused a call.
    #[error("a call of handler {handler} is refused: {reason}")]
    Call {
        /// Number of the handler.
        handler: u16,
        /// Error of the handler.
        reason: &'static str,
    },
    /// Addressed traffic asks for more at the same time than a peer may.
    #[error("too many {0} at the same time")]
    Addressed(&'static str),
    /// Data before the CTS belong to no pending message, or are duplicated.
    #[error("unexpected data before the CTS of message {sequence}")]
    RtsData {
        /// Sequence of the message.
        sequence: u32,
    },
    /// A compressed piece does not decompress as declared.
    #[error("a compressed piece of {len} bytes does not decompress to {bytes}")]
    Compressed {
        /// Compressed length.
        len: usize,
        /// Declared length in the message.
        bytes: usize,
    },
    /// More contexts are revoked than a job can have.
    #[error("more than {0} contexts are revoked")]
    Revoked(usize),
    /// A packet about the link is inside a frame.
    #[error("a packet about the link is inside a frame")]
    Misplaced,
    /// A frame came before the peer's `Resume`.
    #[error("a frame came before the Resume packet")]
    NoResume,
    /// More frames are acknowledged than were sent.
    #[error("{got} frames are acknowledged of {sent} sent")]
    Confirmation {
        /// Number of frames sent.
        sent: u32,
        /// Number of frames acknowledged.
        got: u32,
    },
    /// The peer is not in the job.
    #[error("peer {0} is not in the job")]
    Unknown(u32),
    /// The peer has no open link: it was closed, or never opened.
    #[error("a frame over a link that is not open")]
    NotConnected,
}
