//! Runs of contiguous memory.

/// A run of contiguous memory that belongs to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub address: *mut u8,
    /// Length in bytes.
    pub len: usize,
}
