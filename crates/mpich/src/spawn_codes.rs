//! The error codes of a start of processes: one for each process that the root has asked for.

use std::ffi::c_int;
use std::mem;

use binding::argument::Argument;
use binding::library;
use binding::translation::Translation;

use crate::code::Code;

/// Room for the codes, or `MPI_ERRCODES_IGNORE`, which is NULL in both forms.
pub(crate) struct SpawnCodes(*mut c_int);

impl SpawnCodes {
    pub(crate) fn take(codes: *mut c_int) -> Self {
        Self(codes)
    }
}

impl Argument for SpawnCodes {
    type C = *mut c_int;

    fn c(&mut self) -> Self::C {
        self.0
    }

    fn give(self) {
        let counts = library::standard().find(c"canele_spawn_codes");
        if counts.is_null() {
            return;
        }
        // SAFETY: the function of this name has no arguments, and returns an integer.
        let counts: extern "C" fn() -> c_int = unsafe { mem::transmute(counts) };
        let count = usize::try_from(counts()).unwrap_or(0);
        for index in 0..if self.0.is_null() { 0 } else { count } {
            // SAFETY: the library has written so many codes to this array.
            let code = unsafe { &mut *self.0.add(index) };
            *code = Code::to_program(*code);
        }
    }
}
