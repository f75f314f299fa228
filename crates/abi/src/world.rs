//! MPI in this process, from initialisation to finalisation (MPI-5.0 §11.2). The C interface has one World Model per
//! process.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

use lock::Uncancelled;
use mpi::process::{Process, ThreadLevel};
use mpi::world::WorldModel;
use runtime::{Needs, shared};

use crate::call_finder;
use crate::convention::*;

/// The initialised process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, after finalisation, and in processes forked from one that is
/// initialised.
#[inline]
pub(crate) fn current() -> Result<&'static WorldModel> {
    match (STATE.load(Ordering::Acquire), WORLD.get()) {
        (ACTIVE, Some(world)) => shared::refuse_forked().map(|()| world).map_err(other),
        (FINALIZED, _) => Err(Error::new(ErrorClass::Other, "called after MPI_Finalize")),
        _ => Err(Error::new(ErrorClass::Other, "called before MPI_Init")),
    }
}

/// The process, if it has ever been initialised.
pub(crate) fn known() -> Option<&'static WorldModel> {
    WORLD.get()
}

/// True once initialisation has completed.
pub(crate) fn is_initialized() -> bool {
    STATE.load(Ordering::Acquire) != NEW
}

/// True once finalisation has completed. True in forked processes, so that they do not finalise.
pub(crate) fn is_finalized() -> bool {
    let state = STATE.load(Ordering::Acquire);
    state == FINALIZED || (state == ACTIVE && shared::refuse_forked().is_err())
}

/// Initialises MPI in this process.
///
/// # Errors
/// A second call, a malformed setting, and those of [`shared::join`].
pub(crate) fn initialize(level: ThreadLevel) -> Result<&'static WorldModel> {
    shared::refuse_forked().map_err(other)?;
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(|poison| poison.into_inner());
    match STATE.load(Ordering::Acquire) {
        NEW => {}
        FINALIZED => return Err(Error::new(ErrorClass::Other, "MPI_Init after MPI_Finalize")),
        _ => return Err(Error::new(ErrorClass::Other, "MPI_Init called twice")),
    }
    let _uncancelled = Uncancelled::begin();
    mpi::collective::check_settings()?;
    let is_multithreaded = level == ThreadLevel::Multiple;
    let needs = Needs {
        is_multithreaded,
        members: Some(mpi::comm::members),
        name_context: Some(mpi::comm::context_name),
        find_call: Some(call_finder::find),
    };
    let instance = shared::join(&needs).map_err(other)?;
    let world = WORLD.get_or_init(|| WorldModel::new(Process::new(instance, level)));
    STATE.store(ACTIVE, Ordering::Release);
    Ok(world)
}

/// Ends MPI in this process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, and those of [`shared::leave`].
pub(crate) fn finalize() -> Result<()> {
    let world = current()?;
    world.end_file_threads();
    world.ports().end();
    shared::leave().map_err(other)?;
    STATE.store(FINALIZED, Ordering::Release);
    world.drop_objects();
    Ok(())
}

/// Ends the job with `code`, without returning; a forked process ends only itself.
pub(crate) fn abort(code: c_int) -> ! {
    let _uncancelled = Uncancelled::begin();
    if let Some(world) = known()
        && shared::refuse_forked().is_ok()
    {
        world.abort(code);
    }
    std::process::exit(if code == 0 { 1 } else { code })
}

fn other(error: runtime::Error) -> Error {
    Error::new(ErrorClass::Other, error.0)
}

/// States of MPI in this process, whatever other interfaces do.
const NEW: u8 = 0;
const ACTIVE: u8 = 1;
const FINALIZED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NEW);
static WORLD: OnceLock<WorldModel> = OnceLock::new();
