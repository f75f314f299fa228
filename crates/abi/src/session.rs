//! Sessions (MPI-5.0 §11.3).

use std::ffi::c_int;

use mpi::errhandler::{Errhandler, Owner};
use mpi::group::Group;
use mpi::info::Info;
use mpi::request::Request;
use mpi::session::{self, Session, Wishes};
use mpi::vci::Vci;

use crate::arguments::length;
use crate::convention::*;
use crate::p2p::{give, give_back, lent};
use crate::world;

fn find(session: RawHandle) -> Result<Session> {
    named("session", session::find(handle(session)))
}

pub(crate) fn session_init(
    info: RawHandle,
    errhandler: RawHandle,
    session: Out<RawHandle>,
) -> Result<()> {
    let wishes = Wishes::of(&crate::info::optional(info)?)?;
    let errhandler = find_errhandler(errhandler)?;
    let begun = world::begin_session(wishes, errhandler)?;
    session.put(raw(begun.handle()))
}

pub(crate) fn session_finalize(session: InOut<RawHandle>) -> Result<()> {
    let found = find(session.get())?;
    world::end_session(&found).map_err(|error| error.about("session").on(found.handle()))?;
    session.put(raw(session::NULL))
}

pub(crate) fn session_get_info(session: RawHandle, info: Out<RawHandle>) -> Result<()> {
    info.put(raw(find(session)?.info()?.register()?))
}

pub(crate) fn session_get_num_psets(
    session: RawHandle,
    info: RawHandle,
    count: Out<c_int>,
) -> Result<()> {
    let session = find(session)?;
    crate::info::optional(info)?;
    count.put(session.process_sets().len() as c_int)
}

/// The length counts the zero byte at the end, also the one that is given back (MPI-5.0 §11.3.2).
pub(crate) fn session_get_nth_pset(
    session: RawHandle,
    info: RawHandle,
    n: c_int,
    len: InOut<c_int>,
    name: Chars,
) -> Result<()> {
    let session = find(session)?;
    crate::info::optional(info)?;
    let names = session.process_sets();
    let missing =
        || Error::argument(format!("n = {n}, but there are {} process sets", names.len()));
    let found = usize::try_from(n).ok().and_then(|n| names.get(n)).ok_or_else(missing)?;
    name.write(found, length("pset_len", i64::from(len.get()))?)?;
    len.put(found.len() as c_int + 1)
}

pub(crate) fn session_get_pset_info(
    session: RawHandle,
    name: String,
    info: Out<RawHandle>,
) -> Result<()> {
    let session = find(session)?;
    let set = set_of(&session, &name)?;
    let made = Info::default();
    made.set("mpi_size", &set.size().to_string())?;
    info.put(raw(made.register()?))
}

/// For a name that no process set has, gives `MPI_GROUP_NULL` (MPI-5.0 §7.3.2), and fails.
pub(crate) fn group_from_session_pset(
    session: RawHandle,
    name: String,
    group: Out<RawHandle>,
) -> Result<()> {
    crate::group::give(set_of(&find(session)?, &name)?, group)
}

/// The group of a process set.
fn set_of(session: &Session, name: &str) -> Result<Group> {
    session.process_set(name)?.ok_or_else(|| {
        let known = session.process_sets().join(", ");
        Error::argument(format!("pset_name = {name}: this process is in {known}"))
    })
}

pub(crate) fn session_set_errhandler(session: RawHandle, errhandler: RawHandle) -> Result<()> {
    let session = find(session)?;
    session.set_errhandler(find_errhandler(errhandler)?);
    Ok(())
}

pub(crate) fn session_get_errhandler(session: RawHandle, errhandler: Out<RawHandle>) -> Result<()> {
    errhandler.put(raw(find(session)?.errhandler().hold()?))
}

pub(crate) fn session_call_errhandler(session: RawHandle, code: c_int) -> Result<()> {
    find(session)?;
    crate::errhandler::report("MPI_Session_call_errhandler", On::Session(session), code);
    Ok(())
}

fn find_errhandler(errhandler: RawHandle) -> Result<Errhandler> {
    named("errhandler", Errhandler::find(handle(errhandler), Owner::Session))
}

pub(crate) fn session_attach_buffer(session: RawHandle, address: Address, size: i64) -> Result<()> {
    find(session)?.buffer().attach(lent(address, size)?)
}

pub(crate) fn session_detach_buffer(
    session: RawHandle,
    address: Out<usize>,
    size: OutInt,
) -> Result<()> {
    let session = find(session)?;
    let buffer = match session.known_process() {
        Some(process) => session.buffer().detach(process)?,
        None => session.buffer().take()?,
    };
    give_back(buffer, address, size)
}

pub(crate) fn session_flush_buffer(session: RawHandle) -> Result<()> {
    let session = find(session)?;
    if let Some(process) = session.known_process() {
        session.buffer().flush(process);
    }
    Ok(())
}

pub(crate) fn session_iflush_buffer(session: RawHandle, request: Out<RawHandle>) -> Result<()> {
    let flush = find(session)?.buffer().begin_flush();
    give(Request::Flush(flush), Vci::FIRST, request)
}
