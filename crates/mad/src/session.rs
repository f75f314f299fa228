//! Initialisation and finalisation, beside MPI or without it.

use std::sync::{Arc, Mutex, MutexGuard};

use runtime::{Needs, shared};

use crate::{Error, Fault, Node, Result};

/// Begins to use the interface, once more if that was done before, and also after its end. Where MPI is initialised,
/// before or after, both share the process's communication.
///
/// # Errors
/// When the process cannot join its job; the text says what to do.
pub fn initialize() -> Result<()> {
    let mut session = session();
    if session.users == 0 {
        let needs = Needs { is_multithreaded: true, ..Needs::default() };
        let instance = shared::join(&needs).map_err(system)?;
        let progress = Arc::clone(instance.progress());
        session.node = Some(Arc::new(Node::new(progress, instance.rank(), instance.size())));
    }
    session.users += 1;
    Ok(())
}

/// Ends one use of the interface. The last closes the channels, calls `free` for what belongs to them, and leaves the job
/// unless MPI is still initialised.
///
/// # Errors
/// When not initialised; when messages are open, and then it stays initialised; when the launcher has failed.
pub fn finalize(free: impl FnOnce()) -> Result<()> {
    let mut session = session();
    if session.users == 1 {
        session.node.as_deref().map_or(Ok(()), Node::close)?;
        free();
        shared::leave().map_err(system)?;
        session.node = None;
    }
    session.users = session.users.checked_sub(1).ok_or_else(not_initialized)?;
    Ok(())
}

/// This process.
///
/// # Errors
/// When not initialised.
pub fn node() -> Result<Arc<Node>> {
    session().node.clone().ok_or_else(not_initialized)
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

/// Uses of the interface, and this process while there are any.
struct Session {
    users: u32,
    node: Option<Arc<Node>>,
}

fn session() -> MutexGuard<'static, Session> {
    static SESSION: Mutex<Session> = Mutex::new(Session { users: 0, node: None });
    SESSION.lock().unwrap_or_else(|poison| poison.into_inner())
}
