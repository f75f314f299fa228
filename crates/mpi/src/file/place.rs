//! The places where accesses begin, and their kinds.

use coll::Routine;

/// Place where an access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At an offset in the view, in etypes.
    Offset(i64),
    /// At the own file pointer.
    Own,
    /// At the shared file pointer.
    Shared,
    /// At the shared file pointer, in the order of ranks (collective).
    Ordered,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

impl AccessKind {
    pub(super) fn routine(self) -> Routine {
        match self {
            Self::Read => Routine::FileRead,
            Self::Write => Routine::FileWrite,
        }
    }
}
