//! Initialisation and finalisation, beside MPI or without it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use runtime::{Needs, shared};

use crate::{Error, Fault, Node, Result};

/// Begins to use the interface, once more if that was done before. Where MPI is initialised, before or
/// after, both share the process's communication.
///
/// # Errors
/// When the process cannot join its job, or has left it; the text says what to do.
pub fn initialize() -> Result<()> {
    let mut users = users();
    if *users == 0 {
        let needs = Needs { is_multithreaded: true, ..Needs::default() };
        let instance = shared::join(&needs).map_err(system)?;
        let progress = Arc::clone(instance.progress());
        NODE.get_or_init(|| Node::new(progress, instance.rank(), instance.size()));
    }
    *users += 1;
    Ok(())
}

/// Ends one use of the interface. The last closes the channels, and leaves the job unless MPI is still
/// initialised.
///
/// # Errors
/// When not initialised; when messages are open, and then it stays initialised; when the launcher has failed.
pub fn finalize() -> Result<()> {
    let mut users = users();
    if *users == 1 {
        NODE.get().map_or(Ok(()), Node::close)?;
        shared::leave().map_err(system)?;
    }
    *users = users.checked_sub(1).ok_or_else(not_initialized)?;
    Ok(())
}

/// This process.
///
/// # Errors
/// When not initialised.
pub fn node() -> Result<&'static Node> {
    let is_initialized = *users() > 0;
    NODE.get().filter(|_| is_initialized).ok_or_else(not_initialized)
}

/// Fails in a process forked from one that is in its job.
///
/// # Errors
/// As said.
#[inline]
pub fn refuse_forked() -> Result<()> {
    shared::refuse_forked().map_err(|error| Error::new(Fault::State, error.0))
}

#[cold]
fn not_initialized() -> Error {
    Error::new(Fault::State, "mad_init comes first, and mad_finalize last")
}

fn system(error: runtime::Error) -> Error {
    Error::new(Fault::System, error.0)
}

fn users() -> MutexGuard<'static, u32> {
    static USERS: Mutex<u32> = Mutex::new(0);
    USERS.lock().unwrap_or_else(|poison| poison.into_inner())
}

static NODE: OnceLock<Node> = OnceLock::new();
