//! Error codes.
//!
//! A code of Canele is a class, the code of one failure (`1 << 30 | number << 7 | class`), or one that the program has added
//! (above `MPI_ERR_LASTCODE`, 0x3fff). In MPICH's ABI added codes must be above its `MPI_ERR_LASTCODE`, 0x3fffffff, so
//! codes of failures lose the highest bit.

use std::ffi::c_int;

use binding::translation::Translation;

use crate::constants::ErrorClass;

/// An error code or class.
pub(crate) struct Code;

impl Translation for Code {
    type Program = c_int;
    type C = c_int;
    const UNWRITTEN: c_int = c_int::MIN;

    fn to_c(value: c_int) -> c_int {
        match value {
            LASTCODE.. => value - LASTCODE + STANDARD_LASTCODE,
            CLASSES.. => FAILURE | (value & !CLASS_MASK) | ErrorClass::to_c(value & CLASS_MASK),
            _ => ErrorClass::to_c(value),
        }
    }

    fn to_program(value: c_int) -> c_int {
        match value {
            FAILURE.. => {
                value & !FAILURE & !CLASS_MASK | ErrorClass::to_program(value & CLASS_MASK)
            }
            STANDARD_LASTCODE.. => value - STANDARD_LASTCODE + LASTCODE,
            _ => ErrorClass::to_program(value),
        }
    }
}

/// `MPI_ERR_LASTCODE` of MPICH.
const LASTCODE: c_int = 0x3fff_ffff;
/// `MPI_ERR_LASTCODE` of the standard ABI.
const STANDARD_LASTCODE: c_int = 0x3fff;
/// The bit of codes made for a failure.
const FAILURE: c_int = 1 << 30;
/// The class in such a code.
const CLASS_MASK: c_int = 0x7f;
/// Number of possible classes in such a code.
const CLASSES: c_int = 0x80;
