//! Access modes (MPI-5.0 §14.2.1).

use crate::{Error, ErrorClass, Result};

/// An access mode: bits of the ABI that fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessMode(i32);

impl AccessMode {
    /// Checks the bits.
    ///
    /// # Errors
    /// `MPI_ERR_AMODE` for unknown bits, or such that contradict each other.
    pub fn new(bits: i32) -> Result<Self> {
        let mode = Self(bits);
        let has = |bit| bits & bit != 0;
        let reason = if bits & !ALL != 0 {
            "has bits that are no mode"
        } else if (bits & (RDONLY | RDWR | WRONLY)).count_ones() != 1 {
            "needs one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR"
        } else if has(RDONLY) && (has(CREATE) || has(EXCL)) {
            "has MPI_MODE_RDONLY with MPI_MODE_CREATE or MPI_MODE_EXCL"
        } else if has(RDWR) && has(SEQUENTIAL) {
            "has MPI_MODE_RDWR with MPI_MODE_SEQUENTIAL"
        } else {
            return Ok(mode);
        };
        Err(Error::new(ErrorClass::Amode, format!("amode = {bits} {reason}")))
    }

    /// The ABI's number.
    pub fn bits(self) -> i32 {
        self.0
    }

    pub(super) fn reads(self) -> bool {
        self.0 & WRONLY == 0
    }

    pub(super) fn writes(self) -> bool {
        self.0 & RDONLY == 0
    }

    pub(super) fn creates(self) -> bool {
        self.0 & CREATE != 0
    }

    pub(super) fn is_exclusive(self) -> bool {
        self.0 & EXCL != 0
    }

    pub(super) fn appends(self) -> bool {
        self.0 & APPEND != 0
    }

    pub(super) fn is_sequential(self) -> bool {
        self.0 & SEQUENTIAL != 0
    }

    pub(super) fn deletes_on_close(self) -> bool {
        self.0 & DELETE_ON_CLOSE != 0
    }
}

const APPEND: i32 = 1;
const CREATE: i32 = 2;
const DELETE_ON_CLOSE: i32 = 4;
const EXCL: i32 = 8;
const RDONLY: i32 = 16;
const RDWR: i32 = 32;
const SEQUENTIAL: i32 = 64;
const UNIQUE_OPEN: i32 = 128;
const WRONLY: i32 = 256;
const ALL: i32 =
    APPEND | CREATE | DELETE_ON_CLOSE | EXCL | RDONLY | RDWR | SEQUENTIAL | UNIQUE_OPEN | WRONLY;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_contradict_each_other_are_refused() {
        for bits in
            [RDONLY, RDWR | CREATE | EXCL, WRONLY | SEQUENTIAL, RDONLY | APPEND | UNIQUE_OPEN]
        {
            assert_eq!(AccessMode::new(bits).unwrap().bits(), bits);
        }
        let wrong =
            [0, RDONLY | RDWR, RDONLY | CREATE, RDONLY | EXCL, RDWR | SEQUENTIAL, RDWR | 512, -1];
        for bits in wrong {
            assert_eq!(AccessMode::new(bits).unwrap_err().class, ErrorClass::Amode, "{bits}");
        }
    }
}
