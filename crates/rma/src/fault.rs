//! Failures of operations.

/// Failure of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFault {
    /// Bytes outside the target's window.
    Range {
        /// Rank of the target.
        rank: u32,
        /// Lowest byte, from the beginning of the window.
        first: i64,
        /// End of the highest byte.
        end: i64,
        /// Length of the window in bytes.
        len: u64,
    },
    /// The process of this rank has failed.
    PeerFailed(u32),
    /// A process that holds the lock of this rank's window has failed.
    HolderFailed(u32),
    /// Bytes that the process of this rank has not attached to its window.
    NotAttached(u32),
    /// Memory overlaps attached memory, or is not attached.
    Attach,
}

/// Result of an operation.
pub type Result<T> = std::result::Result<T, AccessFault>;
