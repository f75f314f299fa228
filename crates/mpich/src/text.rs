//! Texts for which MPICH's programs have less room than the standard ABI gives.

use std::ffi::{c_char, c_int};
use std::ptr;

use binding::argument::Argument;

/// Room for a text of C, of which the program gets `LEN` bytes with the last zero byte.
pub(crate) struct Shortened<const LEN: usize> {
    text: *mut c_char,
    /// The text of C, which ends in a zero byte.
    given: [c_char; STANDARD_LEN],
}

impl<const LEN: usize> Shortened<LEN> {
    pub(crate) fn take(text: *mut c_char) -> Self {
        Self { text, given: [0; STANDARD_LEN] }
    }
}

impl<const LEN: usize> Argument for Shortened<LEN> {
    type C = *mut c_char;

    fn c(&mut self) -> Self::C {
        if self.text.is_null() { ptr::null_mut() } else { self.given.as_mut_ptr() }
    }

    fn give(self) {
        let len = self.given.iter().position(|byte| *byte == 0).unwrap_or(0).min(LEN - 1);
        if len > 0 {
            // SAFETY: the program has room for LEN bytes, and C has got an address to write to.
            unsafe {
                ptr::copy_nonoverlapping(self.given.as_ptr(), self.text, len);
                *self.text.add(len) = 0;
            }
        }
    }
}

/// Room for the length of such a text, without the zero byte.
pub(crate) struct ShortenedLength<const LEN: usize> {
    variable: *mut c_int,
}

impl<const LEN: usize> ShortenedLength<LEN> {
    pub(crate) fn take(variable: *mut c_int) -> Self {
        Self { variable }
    }
}

impl<const LEN: usize> Argument for ShortenedLength<LEN> {
    type C = *mut c_int;

    fn c(&mut self) -> Self::C {
        self.variable
    }

    fn give(self) {
        // SAFETY: the program passes NULL or the address of an integer.
        if let Some(length) = unsafe { self.variable.as_mut() } {
            *length = (*length).min(LEN as c_int - 1);
        }
    }
}

/// The standard's `MPI_MAX_PROCESSOR_NAME` and `MPI_MAX_INFO_KEY`.
const STANDARD_LEN: usize = 256;
