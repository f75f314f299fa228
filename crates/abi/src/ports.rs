//! Jobs that meet: ports, their published names, and communicators between jobs (MPI-5.0 §11.9).

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use mpi::comm::Comm;
use mpi::info::Info;

use crate::arguments::intra;
use crate::convention::*;
use crate::world;

pub(crate) fn open_port(info: RawHandle, name: Chars) -> Result<()> {
    // No hint is known.
    crate::info::optional(info)?;
    let opened = world::current()?.open_port()?;
    name.write(&opened, PORT_NAME_MAX).map(drop)
}

pub(crate) fn close_port(name: String) -> Result<()> {
    named("port_name", world::current()?.ports().close(&name))
}

pub(crate) fn comm_accept(
    name: RootText,
    info: RawHandle,
    root: c_int,
    on: RawHandle,
    made: Out<RawHandle>,
) -> Result<()> {
    let (comm, root) = rooted(on, root)?;
    let (mut port, mut patience) = (None, None);
    if comm.rank() == root {
        let wanted = hints(info).and_then(|info| patience_in(&info));
        let found = wanted.and_then(|wanted| {
            patience = wanted;
            let name = name.read()?;
            named("port_name", world::current()?.ports().find(&name))
        });
        port = Some(found);
    }
    give(&comm.accept(root, port, patience)?, made)
}

pub(crate) fn comm_connect(
    name: RootText,
    info: RawHandle,
    root: c_int,
    on: RawHandle,
    made: Out<RawHandle>,
) -> Result<()> {
    let (comm, root) = rooted(on, root)?;
    let (mut port, mut patience) = (None, None);
    if comm.rank() == root {
        let wanted = hints(info).and_then(|info| patience_in(&info));
        port = Some(wanted.and_then(|wanted| {
            patience = wanted;
            name.read()
        }));
    }
    give(&comm.connect_to(root, port, patience)?, made)
}

pub(crate) fn comm_join(socket: c_int, made: Out<RawHandle>) -> Result<()> {
    let bad = |reason: &str| Error::argument(format!("fd = {socket}: {reason}"));
    if socket < 0 {
        return Err(bad("no file descriptor"));
    }
    // SAFETY: the caller passes an open socket; the kernel refuses another number.
    let given = unsafe { BorrowedFd::borrow_raw(socket) };
    let own: OwnedFd = given.try_clone_to_owned().map_err(|error| bad(&error.to_string()))?;
    give(&world::world_model()?.myself().join(own)?, made)
}

pub(crate) fn publish_name(service: String, info: RawHandle, port: String) -> Result<()> {
    let info = crate::info::optional(info)?;
    // Open MPI's name for whether other jobs see it.
    let scope = info.value("ompi_global_scope")?;
    let is_of_job = scope.is_some_and(|scope| scope.trim().eq_ignore_ascii_case("false"));
    let process = world::current()?;
    named("service_name", process.ports().publish(process.job(), &service, &port, is_of_job))
}

pub(crate) fn lookup_name(service: String, info: RawHandle, port: Chars) -> Result<()> {
    crate::info::optional(info)?;
    let process = world::current()?;
    let found = named("service_name", process.ports().look_up(process.job(), &service))?;
    port.write(&found, PORT_NAME_MAX).map(drop)
}

pub(crate) fn unpublish_name(service: String, info: RawHandle, port: String) -> Result<()> {
    crate::info::optional(info)?;
    let process = world::current()?;
    named("service_name", process.ports().withdraw(process.job(), &service, &port))
}

/// The communicator of a call, and its root.
fn rooted(on: RawHandle, root: c_int) -> Result<(Comm, u32)> {
    let comm = Comm::clone(&*intra(on)?);
    let found = u32::try_from(root).ok().filter(|&root| root < comm.size());
    let bad = || {
        let text = format!("root = {root} is outside a communicator of {}", comm.size());
        Error::new(ErrorClass::Root, text)
    };
    Ok((comm.clone(), found.ok_or_else(bad)?))
}

fn hints(info: RawHandle) -> Result<Info> {
    crate::info::optional(info)
}

/// Seconds that the info key `timeout` gives, as in MPICH.
fn patience_in(info: &Info) -> Result<Option<Duration>> {
    let Some(text) = info.value(TIMEOUT)? else { return Ok(None) };
    let bad = |_| {
        let text = format!("info key {TIMEOUT} = {text} is no number of seconds");
        Error::new(ErrorClass::InfoValue, text)
    };
    text.trim().parse().map(|seconds| Some(Duration::from_secs(seconds))).map_err(bad)
}

fn give(made: &Comm, place: Out<RawHandle>) -> Result<()> {
    place.put(raw(made.handle()))
}

const TIMEOUT: &str = "timeout";
/// `MPI_MAX_PORT_NAME`. Names are shorter than MPICH's limit, too.
const PORT_NAME_MAX: usize = 1024;
