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

impl Programs {
    /// Writes the sources into a folder.
    ///
    /// # Errors
    /// Fails if it cannot be written to.
    pub fn new(folder: &Path, prefix: &Path) -> Result<Self, ProgramError> {
        let programs = Self { folder: folder.to_path_buf(), mpicc: prefix.join("bin/mpicc") };
        fs::create_dir_all(folder).map_err(|source| write_error(folder, source))?;
        for (name, text) in SOURCES {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|source| write_error(&path, source))?;
        }
        Ok(programs)
    }

    /// Compiles a program for a library.
    ///
    /// # Errors
    /// Fails if it does not compile.
    pub fn mpi(&self, name: &str, library: &Library) -> Result<PathBuf, ProgramError> {
        if library.kind.has_standard_abi() {
            // A search path that LD_LIBRARY_PATH overrides, so that the library can be replaced.
            return self.compile(&self.mpicc, name, name, &["-Wl,--enable-new-dtags"]);
        }
        let own = format!("{name}-{}", library.kind.name().to_lowercase().replace(' ', "-"));
        self.compile(&library.root.join("bin/mpicc"), name, &own, &[])
    }

    /// Compiles a program without MPI: `clock`, `tcp`, `memory` or `busy`.
    ///
    /// # Errors
    /// Fails if it does not compile.
    pub fn plain(&self, name: &str) -> Result<PathBuf, ProgramError> {
        self.compile(Path::new("cc"), name, name, &[])
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

    fn compile(
        &self,
        compiler: &Path,
        source: &str,
        output: &str,
        options: &[&str],
    ) -> Result<PathBuf, ProgramError> {
        let path = self.folder.join(output);
        let result = Command::new(compiler)
            .args(["-O2", "-Wall", "-o"])
            .arg(&path)
            .arg(self.folder.join(format!("{source}.c")))
            .args(options)
            .args(["-lm", "-pthread"])
            .output();
        let compiler = compiler.display().to_string();
        let result =
            result.map_err(|source| ProgramError::Start { compiler: compiler.clone(), source })?;
        if result.status.success() {
            return Ok(path);
        }
        let text = String::from_utf8_lossy(&result.stderr);
        let text = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Err(ProgramError::Compile { compiler, program: source.into(), text: text.into() })
    }
}

fn write_error(path: &Path, source: io::Error) -> ProgramError {
    ProgramError::Write { path: path.display().to_string(), source }
}

const SOURCES: [(&str, &str); 33] = [
    ("clock.h", include_str!("../../../bench/clock.h")),
    ("samples.h", include_str!("../../../bench/samples.h")),
    ("program.h", include_str!("../../../bench/program.h")),
    ("clock.c", include_str!("../../../bench/clock.c")),
    ("exchange.h", include_str!("../../../bench/exchange.h")),
    ("pingpong.h", include_str!("../../../bench/pingpong.h")),
    ("pingpong.c", include_str!("../../../bench/pingpong.c")),
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
    ("threads.c", include_str!("../../../bench/threads.c")),
    ("offload.c", include_str!("../../../bench/offload.c")),
    ("idle.c", include_str!("../../../bench/idle.c")),
    ("express.c", include_str!("../../../bench/express.c")),
    ("onesided.h", include_str!("../../../bench/onesided.h")),
    ("onesided.c", include_str!("../../../bench/onesided.c")),
    ("gups.c", include_str!("../../../bench/gups.c")),
    ("memory.c", include_str!("../../../bench/memory.c")),
    ("tcp.c", include_str!("../../../bench/tcp.c")),
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
