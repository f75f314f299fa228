//! Programs and libraries of other MPIs: ranks that would each run alone, and a library in the place of Canele's.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::options::{Options, Program};

/// Returns a line about each program that was linked with an MPI that does not speak PMI-1, and about the library.
pub(crate) fn warnings(options: &Options) -> Vec<String> {
    let mut warnings: Vec<String> = replaced_library().into_iter().collect();
    for program in options.programs.iter().filter(|_| options.size() > 1) {
        // A program that is not here may be on another host.
        let Some((library, mpi)) = path(program).and_then(|path| library(&path)) else { continue };
        let name = program.command[0].display();
        let text = format!(
            "{name} is a program of {mpi} ({library}), whose ranks each run alone here: \
             compile it with Canele's mpicc, or start it with the mpiexec of {mpi}"
        );
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
    warnings
}

/// Returns the path of a program on this machine.
fn path(program: &Program) -> Option<PathBuf> {
    let name = Path::new(program.command.first()?);
    let directory = program.directory.as_ref().map_or(Path::new(""), Path::new);
    if name.components().count() > 1 {
        return Some(directory.join(name));
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| folder.join(name));
    paths.find(|path| path.is_file())
}

/// Returns a line if the library beside this command is another MPI's. Packages of pip replace each other's files without a
/// word, and programs of this installation would load it.
pub fn replaced_library() -> Option<String> {
    let command = env::current_exe().ok()?;
    let path = command.parent()?.parent()?.join("lib/libmpi_abi.so.1");
    let name = OWN.as_bytes();
    let is_own = beginning(&path)?.windows(name.len()).any(|window| window == name);
    let text = "is the library of another MPI, which programs load in the place of Canele's: \
                give each MPI an environment of its own";
    (!is_own).then(|| format!("{} {text}", path.display()))
}

/// Returns the library of another MPI that an executable needs, and the name of that MPI.
fn library(path: &Path) -> Option<(&'static str, &'static str)> {
    let beginning = beginning(path)?;
    // Names of needed libraries are strings of the section .dynstr.
    let mut strings = beginning.split(|byte| *byte == 0);
    strings
        .find_map(|string| LIBRARIES.into_iter().find(|(library, _)| library.as_bytes() == string))
}

/// Returns the beginning of an executable or a library.
fn beginning(path: &Path) -> Option<Vec<u8>> {
    // Opening a FIFO would block.
    let file = path.is_file().then(|| File::open(path).ok()).flatten()?;
    let mut beginning = Vec::new();
    file.take(BEGINNING_LEN).read_to_end(&mut beginning).ok()?;
    beginning.starts_with(b"\x7fELF").then_some(beginning)
}

/// Beginning of the names of symbols that only Canele's library has.
const OWN: &str = "canele_";

/// Libraries of MPIs that find their launcher by other means than PMI-1. Those of MPICH and its relatives join.
const LIBRARIES: [(&str, &str); 3] = [
    ("libmpi.so.20", "Open MPI"),
    ("libmpi.so.40", "Open MPI"),
    ("libmpi_mpifh.so.40", "Open MPI"),
];

/// Length of the beginning of an executable that is read: linkers place .dynstr there.
const BEGINNING_LEN: u64 = 1 << 20;
