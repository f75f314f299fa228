//! Communicators by their contexts, for layers below.

use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime::context;
use wire::PeerId;

use crate::comm::{Comm, find_where};

/// The processes of the communicator of a context, as a ring that begins with `own`.
pub fn members(context: u64, own: PeerId) -> Option<Vec<PeerId>> {
    let comm = of(context)?;
    let comm = comm.merged().unwrap_or(&comm);
    let (size, rank) = (comm.size(), comm.group().rank_of(own)?);
    Some((0..size).map(|step| comm.group().peer((rank + step) % size)).collect())
}

/// Returns the name of the communicator that a context belongs to, if it has one.
pub fn context_name(context: u64) -> Option<String> {
    let name = of(context).map(|comm| String::from_utf8_lossy(&comm.name()).into_owned());
    name.filter(|name| !name.is_empty())
}

/// Notes that the communicator of a context is revoked.
pub fn note_revoked(context: u64) {
    if let Some(comm) = of(context) {
        comm.note_revoked();
    }
}

/// Sets or drops the communicator of all processes, which is in no table.
pub(crate) fn set_world(comm: Option<Comm>) {
    *world() = comm;
}

fn of(context: u64) -> Option<Comm> {
    match context & !context::MARKS {
        context::WORLD => world().clone(),
        base => find_where(|comm: &Comm| comm.context() == base),
    }
}

fn world() -> MutexGuard<'static, Option<Comm>> {
    /// Locked after the worker.
    static WORLD: Mutex<Option<Comm>> = Mutex::new(None);
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}
