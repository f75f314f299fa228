//! Measuring programs: C sources within this command, compiled when needed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::library::Library;

/// Folder and compiler of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    /// Canele's `mpicc`: programs compiled by it run on every library of the standard ABI.
    mpicc: PathBuf,
}

/// Errors of making a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// File.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The compiler could not be started.
    #[error("cannot start the compiler {compiler}: {source}")]
    Start {
        /// Compiler.
        compiler: String,
        /// The system's error.
        source: io::Error,
    },
    /// The compiler refused.
    #[error("{compiler} cannot compile {program}: {text}")]
    Compile {
        /// Compiler.
        compiler: String,
        /// Compiled program.
        program: String,
        /// First line of its output.
        text: String,
    },
}

/// True if a program has parts in Fortran, which take long to compile.
pub fn has_fortran(name: &str) -> bool {
    FORTRAN.iter().any(|program| program.name == name)
}

impl Programs {
    /// Writes the sources into a folder.
    ///
    /// # Errors
    /// Fails if it cannot be written to.
    pub fn new(folder: &Path, prefix: &Path) -> Result<Self, ProgramError> {
        // Compilers run in the folder.
        let folder = &std::path::absolute(folder).map_err(|source| write_error(folder, source))?;
        let programs = Self { folder: folder.clone(), mpicc: prefix.join("bin/mpicc") };
        for (name, text) in SOURCES {
            let path = folder.join(name);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).map_err(|source| write_error(parent, source))?;
            fs::write(&path, text).map_err(|source| write_error(&path, source))?;
        }
        Ok(programs)
    }

    /// Compiles a program for a library.
    ///
    /// # Errors
    /// Fails if it does not compile.
    pub fn mpi(&self, name: &str, library: &Library) -> Result<PathBuf, ProgramError> {
        let fortran = FORTRAN.iter().find(|program| program.name == name);
        // The folder of its parts has its name.
        let (output, mut words) = match fortran {
            Some(program) => (format!("{name}-program"), self.fortran(program)?),
            None => (name.to_owned(), vec![format!("{name}.c")]),
        };
        if library.kind.has_standard_abi() {
            // A search path that LD_LIBRARY_PATH overrides, so that the library can be replaced.
            words.push("-Wl,--enable-new-dtags".into());
            return self.compile(&self.mpicc, name, &output, &words);
        }
        let own = format!("{output}-{}", library.kind.name().to_lowercase().replace(' ', "-"));
        self.compile(&library.root.join("bin/mpicc"), name, &own, &words)
    }

    /// Compiles the Fortran part of a program, which is the same for every library. Returns what the C
    /// compiler gets: C sources, objects, libraries.
    fn fortran(&self, program: &FortranProgram) -> Result<Vec<String>, ProgramError> {
        let mut command = Command::new(GFORTRAN);
        command.current_dir(&self.folder).args(["-std=f2018", "-O3", "-march=native", "-J"]);
        command.args([program.name, "-c"]);
        let sources = program.fortran.iter().map(|part| format!("{}/{part}.f90", program.name));
        command.args(sources);
        run_compiler(&mut command, GFORTRAN, program.name)?;
        let sources = program.c.iter().map(|part| format!("{}/{part}.c", program.name));
        let objects = program.fortran.iter().map(|part| format!("{part}.o"));
        let rest = ["-O3", "-march=native", "-lgfortran"].map(str::to_owned);
        Ok(sources.chain(objects).chain(rest).collect())
    }

    /// Compiles a program without MPI: `clock`, `tcp`, `memory` or `busy`.
    ///
    /// # Errors
    /// Fails if it does not compile.
    pub fn plain(&self, name: &str) -> Result<PathBuf, ProgramError> {
        self.compile(Path::new("cc"), name, name, &[format!("{name}.c")])
    }

    /// Writes a command that peers' launchers use as `ssh`: it drops options, and enters the lab's node.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn enter(&self, canele: &Path, lab: &str) -> Result<PathBuf, ProgramError> {
        let path = self.folder.join("enter");
        let text = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\nCANELE_LAB='{lab}' exec '{}' lab run \"$host\" sh -c \"$*\"\n",
            canele.display()
        );
        fs::write(&path, text).map_err(|source| write_error(&path, source))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(|source| write_error(&path, source))?;
        Ok(path)
    }

    /// Writes the description of a grid.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn grid(&self, name: &str, text: &str) -> Result<PathBuf, ProgramError> {
        let path = self.folder.join(format!("grid-{name}.toml"));
        fs::write(&path, text).map_err(|source| write_error(&path, source))?;
        Ok(path)
    }

    /// Compiles and links sources, by the words after the usual options.
    fn compile(
        &self,
        compiler: &Path,
        name: &str,
        output: &str,
        words: &[String],
    ) -> Result<PathBuf, ProgramError> {
        let path = self.folder.join(output);
        let mut command = Command::new(compiler);
        command.current_dir(&self.folder).args(["-O2", "-Wall", "-o"]).arg(&path);
        command.args(words).args(["-lm", "-pthread"]);
        run_compiler(&mut command, &compiler.display().to_string(), name)?;
        Ok(path)
    }
}

/// Folders of programs where the environment names none.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn run_compiler(command: &mut Command, compiler: &str, program: &str) -> Result<(), ProgramError> {
    let compiler = compiler.to_owned();
    // Compilers find their parts by it.
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", USUAL_PATH);
    }
    let result = match command.output() {
        Ok(result) => result,
        Err(source) => return Err(ProgramError::Start { compiler, source }),
    };
    if result.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&result.stderr);
    let text = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(ProgramError::Compile { compiler, program: program.into(), text: text.into() })
}

fn write_error(path: &Path, source: io::Error) -> ProgramError {
    ProgramError::Write { path: path.display().to_string(), source }
}

/// A program whose parts are partly in Fortran, in a folder of its name.
struct FortranProgram {
    name: &'static str,
    c: &'static [&'static str],
    /// Each after those whose modules it uses.
    fortran: &'static [&'static str],
}

const FORTRAN: [FortranProgram; 1] = [FortranProgram {
    name: "nas",
    c: &["nas", "is", "net"],
    fortran: &[
        "net",
        "random",
        "ep",
        "cg",
        "mg",
        "ft_known",
        "ft",
        "flow",
        "lu",
        "cells",
        "directions",
        "bt",
        "sp",
    ],
}];
/// The compiler whose library the linker gets.
const GFORTRAN: &str = "gfortran";

const SOURCES: [(&str, &str); 56] = [
    ("clock.h", include_str!("../../../bench/clock.h")),
    ("samples.h", include_str!("../../../bench/samples.h")),
    ("program.h", include_str!("../../../bench/program.h")),
    ("clock.c", include_str!("../../../bench/clock.c")),
    ("exchange.h", include_str!("../../../bench/exchange.h")),
    ("pingpong.h", include_str!("../../../bench/pingpong.h")),
    ("pingpong.c", include_str!("../../../bench/pingpong.c")),
    ("first.c", include_str!("../../../bench/first.c")),
    ("slowstart.c", include_str!("../../../bench/slowstart.c")),
    ("torres.h", include_str!("../../../bench/torres.h")),
    ("torres.c", include_str!("../../../bench/torres.c")),
    ("pairs.c", include_str!("../../../bench/pairs.c")),
    ("tune.c", include_str!("../../../bench/tune.c")),
    ("coll.c", include_str!("../../../bench/coll.c")),
    ("busy.c", include_str!("../../../bench/busy.c")),
    ("burst.c", include_str!("../../../bench/burst.c")),
    ("oversubscribed.c", include_str!("../../../bench/oversubscribed.c")),
    ("cut.c", include_str!("../../../bench/cut.c")),
    ("behind.c", include_str!("../../../bench/behind.c")),
    ("queues.c", include_str!("../../../bench/queues.c")),
    ("modules.c", include_str!("../../../bench/modules.c")),
    ("compute.h", include_str!("../../../bench/compute.h")),
    ("overlap.c", include_str!("../../../bench/overlap.c")),
    ("progress.c", include_str!("../../../bench/progress.c")),
    ("reactivity.c", include_str!("../../../bench/reactivity.c")),
    ("partitioned.c", include_str!("../../../bench/partitioned.c")),
    ("threads.c", include_str!("../../../bench/threads.c")),
    ("offload.c", include_str!("../../../bench/offload.c")),
    ("idle.c", include_str!("../../../bench/idle.c")),
    ("express.c", include_str!("../../../bench/express.c")),
    ("onesided.h", include_str!("../../../bench/onesided.h")),
    ("onesided.c", include_str!("../../../bench/onesided.c")),
    ("io.c", include_str!("../../../bench/io.c")),
    ("gups.c", include_str!("../../../bench/gups.c")),
    ("memory.c", include_str!("../../../bench/memory.c")),
    ("workers.h", include_str!("../../../bench/workers.h")),
    ("simri.c", include_str!("../../../bench/simri.c")),
    ("ray2mesh.c", include_str!("../../../bench/ray2mesh.c")),
    ("tcp.c", include_str!("../../../bench/tcp.c")),
    ("nas/nas.h", include_str!("../../../bench/nas/nas.h")),
    ("nas/nas.c", include_str!("../../../bench/nas/nas.c")),
    ("nas/is.c", include_str!("../../../bench/nas/is.c")),
    ("nas/net.c", include_str!("../../../bench/nas/net.c")),
    ("nas/net.f90", include_str!("../../../bench/nas/net.f90")),
    ("nas/random.f90", include_str!("../../../bench/nas/random.f90")),
    ("nas/ep.f90", include_str!("../../../bench/nas/ep.f90")),
    ("nas/cg.f90", include_str!("../../../bench/nas/cg.f90")),
    ("nas/mg.f90", include_str!("../../../bench/nas/mg.f90")),
    ("nas/ft_known.f90", include_str!("../../../bench/nas/ft_known.f90")),
    ("nas/ft.f90", include_str!("../../../bench/nas/ft.f90")),
    ("nas/flow.f90", include_str!("../../../bench/nas/flow.f90")),
    ("nas/lu.f90", include_str!("../../../bench/nas/lu.f90")),
    ("nas/cells.f90", include_str!("../../../bench/nas/cells.f90")),
    ("nas/directions.f90", include_str!("../../../bench/nas/directions.f90")),
    ("nas/bt.f90", include_str!("../../../bench/nas/bt.f90")),
    ("nas/sp.f90", include_str!("../../../bench/nas/sp.f90")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::LibraryKind;
    use crate::record::{Clock, RecordLine};

    #[test]
    fn the_clock_compiles_and_agrees_with_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path(), Path::new("/none")).unwrap();
        let output = Command::new(programs.plain("clock").unwrap()).arg("0.05").output().unwrap();
        let clock: Clock = serde_json::from_slice(&output.stdout).unwrap();
        assert!(clock.overhead_ns > 0.0 && clock.resolution_ns > 0.0, "{clock:?}");
        assert!(clock.sleep_system_ms >= 50.0, "{clock:?}");
        assert!(clock.error() < 0.01, "{clock:?}");
    }

    #[test]
    fn the_programs_statistics_are_those_of_the_definition() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path(), Path::new("/none")).unwrap();
        let source = r#"#include "samples.h"
            int main(void) {
                static struct samples samples;
                samples_clear(&samples);
                samples.first_us = 7;
                for (int i = 0; i < 100; i++) samples.us[samples.count++] = 100 - i;
                struct summary summary = samples_summary(&samples);
                summary_print("known", 3, 7, &summary);
                return 0;
            }"#;
        fs::write(folder.path().join("known.c"), source).unwrap();
        let output = Command::new(programs.plain("known").unwrap()).output().unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        let RecordLine::Measurement(read) = RecordLine::parse(&line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!((read.operation.as_str(), read.samples), ("known", 100));
        assert_eq!((read.bytes, read.count), (3, 7));
        assert_eq!((read.first_us, read.min_us, read.max_us), (7.0, 1.0, 100.0));
        assert_eq!((read.p25_us, read.median_us, read.p75_us), (25.0, 50.5, 75.0));
        assert_eq!((read.mean_us, read.p99_us), (50.5, 99.0));
    }

    #[test]
    fn a_compiler_that_is_missing_is_named_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path(), Path::new("/none")).unwrap();
        let library = Library { kind: LibraryKind::Canele, root: "/none".into() };
        let text = programs.mpi("pingpong", &library).unwrap_err().to_string();
        assert!(text.contains("/none/bin/mpicc"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn an_argument_that_is_no_number_is_refused_by_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path(), Path::new("/none")).unwrap();
        let clock = programs.plain("clock").unwrap();
        for word in ["x", "-1", "0", "1e9"] {
            let output = Command::new(&clock).arg(word).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{word}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(word));
        }
    }

    #[test]
    fn the_way_into_a_node_drops_options() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path(), Path::new("/none")).unwrap();
        let echo = folder.path().join("echo");
        fs::write(&echo, "#!/bin/sh\necho \"$CANELE_LAB\" \"$@\"\n").unwrap();
        fs::set_permissions(&echo, fs::Permissions::from_mode(0o755)).unwrap();
        let enter = programs.enter(&echo, "bench").unwrap();
        let output =
            Command::new(enter).args(["-q", "-x", "node", "proxy", "--id", "1"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), "bench lab run node sh -c proxy --id 1");
    }
}
