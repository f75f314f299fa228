//! Initialisation and finalisation (MPI-5.0 §11.2–11.4).

use std::ffi::{c_char, c_int};

use lock::Uncancelled;
use mpi::process::{self, ThreadLevel};

use crate::convention::*;

pub(crate) unsafe fn init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result<()> {
    process::initialize(ThreadLevel::Single).map(drop)
}

pub(crate) unsafe fn init_thread(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> Result<()> {
    let level = match required {
        SINGLE => ThreadLevel::Single,
        FUNNELED => ThreadLevel::Funneled,
        SERIALIZED => ThreadLevel::Serialized,
        MULTIPLE => ThreadLevel::Multiple,
        _ => return Err(Error::argument(format!("required = {required} is no level of threads"))),
    };
    let process = process::initialize(level)?;
    // SAFETY: `provided` points to a variable of the caller.
    unsafe { put(provided, code_of(process.level())) }
}

pub(crate) unsafe fn finalize() -> Result<()> {
    // SAFETY: the callbacks of these attributes have the types that the standard requires.
    unsafe { crate::attribute::delete_all_of_self() }?;
    process::finalize()
}

pub(crate) unsafe fn initialized(flag: *mut c_int) -> Result<()> {
    // SAFETY: `flag` points to a variable of the caller.
    unsafe { put(flag, c_int::from(process::is_initialized())) }
}

pub(crate) unsafe fn finalized(flag: *mut c_int) -> Result<()> {
    // SAFETY: `flag` points to a variable of the caller.
    unsafe { put(flag, c_int::from(process::is_finalized())) }
}

pub(crate) unsafe fn query_thread(provided: *mut c_int) -> Result<()> {
    // SAFETY: `provided` points to a variable of the caller.
    unsafe { put(provided, code_of(process::current()?.level())) }
}

pub(crate) unsafe fn is_thread_main(flag: *mut c_int) -> Result<()> {
    // SAFETY: `flag` points to a variable of the caller.
    unsafe { put(flag, c_int::from(process::current()?.is_main_thread())) }
}

pub(crate) unsafe fn abort(_comm: RawHandle, code: c_int) -> Result<()> {
    let rank = process::current().map_or(0, |process| process.rank());
    let _uncancelled = Uncancelled::begin();
    eprintln!("canele: rank {rank}: MPI_Abort with code {code}; ending the job");
    process::abort(code)
}

fn code_of(level: ThreadLevel) -> c_int {
    match level {
        ThreadLevel::Single => SINGLE,
        ThreadLevel::Funneled => FUNNELED,
        ThreadLevel::Serialized => SERIALIZED,
        ThreadLevel::Multiple => MULTIPLE,
    }
}

const SINGLE: c_int = 0;
const FUNNELED: c_int = 1024;
const SERIALIZED: c_int = 2048;
pub(crate) const MULTIPLE: c_int = 4096;
