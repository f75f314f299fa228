//! Why an unauthenticated peer is refused.

/// The reason for which a peer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// It speaks another protocol.
    #[error("it does not speak the protocol of these processes")]
    Protocol,
    /// It speaks another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol, this process version {own}: all hosts need the same build"
    )]
    Version {
        /// Version of the peer.
        theirs: u8,
        /// Version of this process.
        own: u8,
    },
    /// It belongs to another job.
    #[error("it belongs to another job, or looks for another rank")]
    Job,
    /// It does not know the secret of the job, or the key of the two jobs.
    #[error("it does not know the secret that the two must share")]
    Secret,
    /// It was silent for too long.
    #[error("it did not finish the handshake in time")]
    Slow,
    /// It closed the connection in the middle.
    #[error("it closed the connection in the middle of the handshake")]
    Closed,
    /// Bytes were changed, by the peer or by somebody between.
    #[error("what came is not what was sent: somebody changes the bytes between the two")]
    Altered,
    /// It does not encrypt, and has to.
    #[error("it does not encrypt, as it must between the two (has it another CANELE_ENCRYPT?)")]
    Clear,
    /// It encrypts, and must not.
    #[error("it encrypts, as it must not between the two (has it another CANELE_ENCRYPT?)")]
    Encrypted,
    /// Too many others are in the middle of a handshake.
    #[error("too many unauthenticated connections are open")]
    TooMany,
}
