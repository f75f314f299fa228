//! Initialisation and finalisation (MPI-5.0 §11.2–11.4).

use std::ffi::{c_char, c_int};
use std::io::{self, Write as _};

use lock::Uncancelled;
use mpi::thread_level::ThreadLevel;

use crate::convention::*;
use crate::world;

pub(crate) fn init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result<()> {
    world::initialize(ThreadLevel::Single).map(drop)
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
    let world = world::initialize(level)?;
    provided.put(code_of(world.level()))
}

pub(crate) fn finalize() -> Result<()> {
    crate::attribute::delete_all_of_self()?;
    world::finalize()
}

pub(crate) fn initialized(flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(world::is_initialized()))
}

pub(crate) fn finalized(flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(world::is_finalized()))
}

pub(crate) fn query_thread(provided: Out<c_int>) -> Result<()> {
    provided.put(code_of(world::world_model()?.level()))
}

pub(crate) fn is_thread_main(flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(world::world_model()?.is_main_thread()))
}

pub(crate) fn abort(_comm: RawHandle, code: c_int) -> Result<()> {
    let rank = world::known_rank().unwrap_or(0);
    let _uncancelled = Uncancelled::begin();
    let _ =
        writeln!(io::stderr(), "canele: rank {rank}: MPI_Abort with code {code}; ending the job");
    world::abort(code)
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
