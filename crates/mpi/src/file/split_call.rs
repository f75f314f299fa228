//! A split collective under way.

use super::pending::PendingTransfer;
use super::place::{AccessKind, At};
use crate::{Error, ErrorClass, Result};

/// A split collective under way.
#[derive(Debug)]
pub(super) struct Split {
    pub call: SplitCall,
    /// The access, or the error at its beginning.
    pub begun: Result<PendingTransfer>,
}

/// Function that has begun a split collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitCall {
    kind: AccessKind,
    place: SplitPlace,
}

/// Kind of place of a split collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitPlace {
    Offset,
    Own,
    Ordered,
}

impl Split {
    /// The error of a call that must wait for the end of this one.
    pub fn is_under_way(&self) -> Error {
        let message = format!("{} was not ended", self.call.name());
        Error::new(ErrorClass::Io, message)
    }
}

impl SplitCall {
    pub fn new(kind: AccessKind, at: At) -> Self {
        let place = match at {
            At::Offset(_) => SplitPlace::Offset,
            At::Own | At::Shared => SplitPlace::Own,
            At::Ordered => SplitPlace::Ordered,
        };
        Self { kind, place }
    }

    pub fn name(self) -> String {
        let kind = match self.kind {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
        };
        let place = match self.place {
            SplitPlace::Offset => "at_all",
            SplitPlace::Own => "all",
            SplitPlace::Ordered => "ordered",
        };
        format!("MPI_File_{kind}_{place}_begin")
    }
}
