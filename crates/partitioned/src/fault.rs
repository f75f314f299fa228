//! Errors of partitioned messages.

/// Reason why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionedFault {
    /// The peer has failed.
    PeerFailed,
    /// The sender has more bytes than the receiver; those that fit are there.
    Truncated {
        /// Length of the message.
        message_bytes: u64,
    },
    /// There is no memory to receive so many partitions.
    NoMemory {
        /// Number of partitions of the sender.
        partitions: u32,
    },
    /// The peer's offer makes no sense.
    Malformed,
}

/// Misuse of a partition by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The request is not active.
    Inactive,
    /// There is no such partition.
    NoPartition(u32),
    /// The partition is ready already.
    ReadyTwice(u32),
}
