//! The `mpiexec` that a process starts for its children if it was started without one, and what hinders other launchers.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::error::BootError;
use crate::launcher::Launcher;
use crate::pmi::Pmi;

/// Starts an `mpiexec` that serves this process, which was started without one.
///
/// # Errors
/// There is none, or it cannot be started.
pub(crate) fn start() -> Result<Box<dyn Launcher>, BootError> {
    let program = mpiexec().ok_or(BootError::NoMpiexec)?;
    let failed =
        |error: io::Error| BootError::Mpiexec { program: program.display().to_string(), error };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let name = std::env::args_os().next().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args([FOR_SINGLETON, "--"]).arg(name).stdin(Stdio::from(OwnedFd::from(theirs)));
    // It ends after this process, if children are left.
    let mut mpiexec = command.spawn().map_err(failed)?;
    drop(command);
    let wait = move || drop(mpiexec.wait());
    let waits = || thread::Builder::new().name("canele-mpiexec".into()).spawn(wait);
    cpu::without_signals(waits).map_err(failed)?;
    let (pmi, _) = Pmi::open(ours, None)?;
    Ok(Box::new(pmi))
}

/// Returns the `mpiexec` of this installation: beside the library, or else in `PATH`.
fn mpiexec() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_library =
        |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with(LIBRARY));
    let library = maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).find(is_library);
    let prefix = library.and_then(|library| Path::new(library).parent()?.parent());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders =
        prefix.map(|prefix| prefix.join("bin")).into_iter().chain(std::env::split_paths(&path));
    // The agent tells Canele's `mpiexec` from another one.
    let folder = folders
        .find(|folder| folder.join("canele-agent").is_file() && folder.join("mpiexec").is_file())?;
    Some(folder.join("mpiexec"))
}

/// Returns what hinders a launcher that is not ours from starting programs, if it is known to.
pub(crate) fn hindrance(variable: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    // Hydra's proxy serves spawn also where Slurm has started it.
    let is_slurm = variable("SLURM_STEP_ID").is_some() && variable("HYDI_CONTROL_FD").is_none();
    is_slurm.then_some("Slurm's srun")
}

/// Option of `mpiexec` that has it serve the process which is connected to its standard input. `--` and the
/// name of the program follow.
pub const FOR_SINGLETON: &str = "--canele-singleton";
/// Begin of the library's file name.
const LIBRARY: &str = "libmpi_abi.so";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_that_cannot_spawn_are_known() {
        let hindered = |variables: &[(&str, &str)]| {
            hindrance(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).into())
            })
        };
        assert_eq!(hindered(&[]), None);
        assert_eq!(hindered(&[("SLURM_JOB_ID", "7")]), None, "an allocation alone starts nothing");
        assert!(hindered(&[("SLURM_STEP_ID", "0")]).is_some());
        assert_eq!(hindered(&[("SLURM_STEP_ID", "0"), ("HYDI_CONTROL_FD", "9")]), None);
    }
}
