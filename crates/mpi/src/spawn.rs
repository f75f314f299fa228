//! Start of processes (MPI-5.0 §11.8): the root has the launcher start them, and both groups meet at a port of the root.

use std::path::Path;
use std::sync::Arc;

use runtime::{PARENT_KEY, Port, SpawnProgram, SpawnRequest};
use zeroize::Zeroizing;

use crate::collective::{self, Form};
use crate::comm::{Comm, CommRef};
use crate::errhandler::Errhandler;
use crate::exchange::Span;
use crate::group::Group;
use crate::info::Info;
use crate::open_ports::not_met;
use crate::{Error, ErrorClass, Result};

/// A program to start, and its hints.
#[derive(Debug)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<Vec<u8>>,
    /// Largest number of its processes.
    pub most: u32,
    /// Hints about its start.
    pub info: Info,
}

/// Result of a spawn.
pub struct Spawned {
    /// Number of processes that the root has asked for.
    pub asked: u32,
    /// The intercommunicator with those that were started.
    pub comm: Result<Comm>,
}

impl Comm {
    /// Starts programs as a job of their own, and meets its processes (collective). The root alone names the programs, or
    /// why there are none.
    ///
    /// # Errors
    /// A process of the communicator cannot be reached. That nothing was started is part of the result.
    pub fn spawn(&self, root: u32, programs: Option<Result<Vec<Program>>>) -> Result<Spawned> {
        let asked = programs.as_ref().map(|programs| programs.as_ref().map_or(0, |it| total(it)));
        let asked = self.tell_asked(root, asked.unwrap_or(0))?;
        let port = programs.map(|programs| self.start(&programs?));
        Ok(Spawned { asked, comm: self.accept(root, port, None) })
    }

    /// Tells all how many processes the root has asked for: as many error codes are wanted.
    fn tell_asked(&self, root: u32, asked: u32) -> Result<u32> {
        let tag = collective::call(CommRef::Derived(self.clone()), Form::Blocking).number();
        let size = self.size();
        let turned = (0..size).map(|rank| self.group().peer((rank + root) % size));
        let (group, rank) = (&Group::of(turned.collect()), (self.rank() + size - root) % size);
        let (process, vci, context) = (self.process(), self.vci(), self.collective_context());
        let told =
            Span { process, vci, context, tag, group, rank }.broadcast(&asked.to_le_bytes())?;
        let told = told.try_into().map_err(|_| malformed())?;
        Ok(u32::from_le_bytes(told))
    }

    /// Has the launcher start the programs. Returns the port at which their processes meet this group.
    fn start(&self, programs: &[Program]) -> Result<Arc<Port>> {
        if total(programs) == 0 {
            return Err(spawn_error("no process is asked for".into()));
        }
        let process = self.process();
        let port = Port::open(process).map_err(|error| not_met(&error))?;
        let mut values = vec![(PARENT_KEY, port.name().emit())];
        let mut request = Vec::new();
        for program in programs {
            let info = hints(&program.info)?;
            if let Some((_, handler)) = info.iter().find(|(key, _)| key == INITIAL_HANDLER)
                && values.len() == 1
            {
                values.push((HANDLER, Zeroizing::new(handler.clone())));
            }
            request.push(SpawnProgram {
                ranks: program.most,
                command: program.command.clone(),
                info,
            });
        }
        let request = SpawnRequest { programs: request, values };
        process.job().spawn(&request).map_err(failed)?;
        Ok(Arc::new(port))
    }
}

/// Meets the processes that have spawned this job, if there are some (collective over the world).
///
/// # Errors
/// They cannot be reached.
pub(crate) fn meet_parents(world: &Comm, myself: &Comm) -> Result<Option<Comm>> {
    let job = world.process().job();
    let given = |key| job.given(key).map_err(failed);
    let Some(port) = given(PARENT_KEY)? else { return Ok(None) };
    if let Some(handler) = given(HANDLER)?.as_deref().and_then(|name| handler_of(name)) {
        world.set_errhandler(handler.clone());
        myself.set_errhandler(handler);
    }
    let port = (world.rank() == 0).then(|| Ok(port.to_string()));
    world.connect_to(0, port, None).map(Some)
}

/// Returns the hints for the launcher: those of the file that the info object names, and its own.
fn hints(info: &Info) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    if let Some(file) = info.value("file")? {
        let text = std::fs::read_to_string(Path::new(&file))
            .map_err(|error| spawn_error(format!("info key file: {file}: {error}")))?;
        for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
            match line.split_once('=') {
                Some((key, value)) => all.push((key.trim().to_owned(), value.trim().to_owned())),
                None if line.is_empty() => {}
                None => {
                    let text = format!("info key file: {file}: `{line}` is not KEY = VALUE");
                    return Err(spawn_error(text));
                }
            }
        }
    }
    for index in 0..info.len() {
        let Some(key) = info.key(index) else { break };
        let value = info.value(&key)?.unwrap_or_default();
        all.retain(|(known, _)| *known != key);
        all.push((key, value));
    }
    if let Ok(directory) = std::env::current_dir()
        && let Some(directory) = directory.to_str()
    {
        all.push((DIRECTORY.to_owned(), directory.to_owned()));
    }
    Ok(all)
}

/// The error handler with a name of the standard (MPI-5.0 §11.8.4).
fn handler_of(name: &str) -> Option<Errhandler> {
    match name {
        "mpi_errors_abort" => Some(Errhandler::Abort),
        "mpi_errors_are_fatal" => Some(Errhandler::Fatal),
        "mpi_errors_return" => Some(Errhandler::Return),
        _ => None,
    }
}

fn total(programs: &[Program]) -> u32 {
    programs.iter().map(|program| program.most).fold(0, u32::saturating_add)
}

fn failed(error: impl ToString) -> Error {
    spawn_error(error.to_string())
}

fn spawn_error(text: String) -> Error {
    Error::new(ErrorClass::Spawn, text)
}

fn malformed() -> Error {
    Error::new(ErrorClass::Intern, "an exchange of the library met a foreign message")
}

/// Key of the name of the first error handler, and the info key that it comes from.
const HANDLER: &str = "canele-errhandler";
const INITIAL_HANDLER: &str = "mpi_initial_errhandler";
/// Key by which our launcher learns the root's directory.
const DIRECTORY: &str = "canele_directory";
