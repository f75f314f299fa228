//! Start of processes (MPI-5.0 §11.8).

use std::cell::Cell;
use std::ffi::c_int;

use mpi::comm::NULL;
use mpi::spawn::{Program, Spawned};

use crate::arguments::{find_comm, intra};
use crate::convention::*;
use crate::world;

pub(crate) fn comm_spawn(
    command: RootText,
    argv: RootTexts<'_>,
    most: c_int,
    info: RawHandle,
    root: c_int,
    on: RawHandle,
    intercomm: Out<RawHandle>,
    codes: ErrorCodes,
) -> Result<()> {
    let program =
        || Ok(vec![program(command.bytes()?, argv.read_all(), ("maxprocs", most), info)?]);
    spawn(program, root, on, intercomm, codes)
}

#[expect(clippy::too_many_arguments, reason = "those of the standard")]
pub(crate) fn comm_spawn_multiple(
    count: c_int,
    commands: RootTexts<'_>,
    arguments: RootRows<'_>,
    most: Array<'_, c_int>,
    infos: Array<'_, RawHandle>,
    root: c_int,
    on: RawHandle,
    intercomm: Out<RawHandle>,
    codes: ErrorCodes,
) -> Result<()> {
    let programs = || {
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| Error::argument("count: no program is named"))?;
        let (most, infos) = (most.all(count)?, infos.all(count)?);
        let commands = commands.read(count)?.into_iter().enumerate();
        let named = |(index, command)| {
            let name = format!("array_of_maxprocs[{index}]");
            program(command, arguments.row(index), (&name, most[index]), infos[index])
        };
        commands.map(named).collect()
    };
    spawn(programs, root, on, intercomm, codes)
}

fn program(
    command: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    (name, most): (&str, c_int),
    info: RawHandle,
) -> Result<Program> {
    if command.is_empty() {
        return Err(Error::argument("command: no program is named"));
    }
    let wrong = |_| Error::argument(format!("{name} = {most} is no number of processes"));
    let most = u32::try_from(most).map_err(wrong)?;
    let command = std::iter::once(command).chain(arguments).collect();
    Ok(Program { command, most, info: crate::info::optional(info)? })
}

fn spawn(
    programs: impl FnOnce() -> Result<Vec<Program>>,
    root: c_int,
    on: RawHandle,
    intercomm: Out<RawHandle>,
    codes: ErrorCodes,
) -> Result<()> {
    CODES.set(0);
    let comm = intra(on)?;
    let root = crate::arguments::root(&comm, root)?;
    let programs = (comm.rank() == root).then(programs);
    let Spawned { asked, comm } = comm.spawn(root, programs)?;
    let started = comm.as_ref().map_or(0, |comm| comm.peer_count());
    let failed = crate::error::code_of(ErrorClass::Spawn);
    codes.put((0..asked).map(|rank| if rank < started { 0 } else { failed }));
    CODES.set(asked);
    intercomm.put(raw(comm?.handle()))
}

thread_local! {
    /// Number of error codes that the last spawn of this thread has written.
    static CODES: Cell<u32> = const { Cell::new(0) };
}

/// Returns the number of error codes that the calling thread's last spawn has written, and forgets it. For `libmpi` alone,
/// which translates them: only the root knows the number before.
#[unsafe(no_mangle)]
extern "C" fn canele_spawn_codes() -> c_int {
    c_int::try_from(CODES.take()).unwrap_or(0)
}

/// The intercommunicator with the processes that have spawned this job. None after it was freed or disconnected (MPI-5.0
/// §11.8.2).
pub(crate) fn comm_get_parent(parent: Out<RawHandle>) -> Result<()> {
    let known = world::world_model()?.parent().filter(|handle| find_comm(raw(*handle)).is_ok());
    parent.put(raw(known.unwrap_or(NULL)))
}
