//! Initialisation and finalisation (MPI-5.0 §11.2–11.4).

use std::ffi::{c_char, c_int};

use lock::Uncancelled;
use mpi::process::{self, ThreadLevel};

use crate::convention::*;

pub(crate) fn init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result<()> {
    process::initialize(ThreadLevel::Single).map(drop)
}

pub(crate) fn init_thread(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: c_int,
    provided: Out<c_int>,
) -> Result<()> {
    let level = match required {
        SINGLE => ThreadLevel::Single,
        FUNNELED => ThreadLevel::Funneled,
        SERIALIZED => ThreadLevel::Serialized,
        MULTIPLE => ThreadLevel::Multiple,
        _ => return Err(Error::argument(format!("required = {required} is no level of threads"))),
    };
    let process = process::initialize(level)?;
    provided.put(code_of(process.level()))
}

pub(crate) fn finalize() -> Result<()> {
    crate::attribute::delete_all_of_self()?;
    process::finalize()
}

pub(crate) fn initialized(flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(process::is_initialized()))
}

pub(crate) fn finalized(flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(process::is_finalized()))
}

pub(crate) fn query_thread(provided: Out<c_int>) -> Result<()> {
    provided.put(code_of(process::current()?.level()))
}

pub(crate) fn is_thread_main(flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(process::current()?.is_main_thread()))
}

pub(crate) fn abort(_comm: RawHandle, code: c_int) -> Result<()> {
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
