//! Why an unauthenticated peer is refused.

/// The reason for which a peer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// It speaks another protocol, or another version of it.
    #[error("it does not speak this version of the protocol")]
    Protocol,
    /// It belongs to another job.
    #[error("it belongs to another job, or looks for another rank")]
    Job,
    /// It does not know the secret.
    #[error("it does not know the job's secret")]
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
