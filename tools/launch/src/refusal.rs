//! Programs of ranks that cannot be started, and the reasons.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::channel::RankStart;

/// Returns the program of a rank: in one of the directories of programs if it is there.
pub(crate) fn program(start: &RankStart) -> PathBuf {
    let shared = Path::new(&start.command[0]);
    let folders = start.binaries.iter().filter(|_| shared.is_relative());
    // The rank may run in another directory, so the path is made absolute.
    let there = |place: &String| std::path::absolute(Path::new(place).join(shared)).ok();
    folders.filter_map(there).find(|path| path.is_file()).unwrap_or_else(|| shared.into())
}

/// Returns exit code and reason of a rank that could not be started.
pub(crate) fn refusal(start: &RankStart, error: &io::Error) -> (i32, String) {
    let name = start.command[0].display();
    if let Some(directory) = &start.directory
        && !Path::new(directory).is_dir()
    {
        return (127, format!("no directory {directory}"));
    }
    match error.kind() {
        io::ErrorKind::NotFound => match missing_interpreter(start) {
            Some(interpreter) => {
                (127, format!("program {name} needs {interpreter}, which is missing on this host"))
            }
            None => {
                let also = start.binaries.iter().map(|place| format!(", nor in {place}"));
                (127, format!("program {name} not found{}", also.collect::<String>()))
            }
        },
        io::ErrorKind::PermissionDenied => (126, format!("program {name} cannot be executed")),
        _ => (126, limited(&format!("program {name} cannot be started"), error)),
    }
}

/// Returns the text of an error. If a limit of the system was reached, it names the limit and the remedy.
pub(crate) fn limited(what: &str, error: &io::Error) -> String {
    match (boot::shortage(error), Errno::from_io_error(error)) {
        (Some(shortage), _) => {
            format!("no more ranks can be started here: {shortage}, or use more hosts")
        }
        (None, Some(Errno::TOOBIG)) => {
            format!("{what}: its arguments and environment are too long; pass on less (-genvnone)")
        }
        (None, _) => format!("{what}: {error}"),
    }
}

/// A library that Canele installs, and that programs may not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLibrary {
    name: &'static str,
    /// Its folder below the prefix.
    folder: &'static str,
}

impl OwnLibrary {
    /// Returns the library that a loader has not found, by what it says in a piece of a rank's standard error.
    pub(crate) fn missed_in(said: &[u8]) -> Option<Self> {
        // glibc: "error while loading shared libraries: libmpi.so.12: …"; musl: "Error loading shared library libmpi.so.12: …".
        let words = b"loading shared librar";
        let at = said.windows(words.len()).position(|window| window == words)?;
        let line = said[at..].split(|byte| *byte == b'\n').next()?;
        let mut names = line.split(|byte| b" :".contains(byte));
        names.find_map(|name| OWN.into_iter().find(|own| own.name.as_bytes() == name))
    }
}

/// Returns what helps a program that does not find a library of this installation.
pub(crate) fn missing_library(library: OwnLibrary) -> String {
    let OwnLibrary { name, folder } = library;
    let agent = std::env::current_exe().ok();
    let prefix = agent.as_deref().and_then(|agent| agent.parent()?.parent());
    match prefix.map(|prefix| prefix.join(folder)).filter(|folder| folder.join(name).exists()) {
        Some(folder) => {
            format!("{name} was not found; export LD_LIBRARY_PATH={}", folder.display())
        }
        None => format!("{name} was not found, and is not installed on this host"),
    }
}

/// Returns the interpreter that a script names or the loader that an executable needs, if it is missing.
fn missing_interpreter(start: &RankStart) -> Option<String> {
    let path = program(start);
    let path = match &start.directory {
        Some(directory) if path.components().count() > 1 => Path::new(directory).join(path),
        Some(_) | None => path,
    };
    let file = path.is_file().then(|| File::open(&path).ok()).flatten()?;
    let mut line = Vec::new();
    BufReader::new(file.take(LINE_MAX)).read_until(b'\n', &mut line).ok()?;
    if line.starts_with(b"\x7fELF") {
        return Some("a loader (ld.so) of another system or CPU".to_owned());
    }
    let words = line.strip_prefix(b"#!")?;
    let word = words.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    let interpreter = Path::new(std::ffi::OsStr::from_bytes(word));
    (!interpreter.exists()).then(|| format!("the interpreter {}", interpreter.display()))
}

/// Exit code of a loader that lacks a library, and of a shell that lacks a program.
pub(crate) const NOT_LOADED: i32 = 127;
/// Libraries that programs of this installation need.
const OWN: [OwnLibrary; 3] = [
    OwnLibrary { name: "libmpi.so.12", folder: "lib/canele/mpich" },
    OwnLibrary { name: "libmpi_abi.so.1", folder: "lib" },
    OwnLibrary { name: "libmpifort_abi.so.1", folder: "lib" },
];
/// Longest first line of a script that the kernel reads.
const LINE_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn start(program: &Path) -> RankStart {
        RankStart {
            rank: 0,
            command: vec![program.into()],
            binaries: Vec::new(),
            directory: None,
            environment: Vec::new(),
            inherit: true,
            without: Vec::new(),
            has_input: false,
            bound: None,
            reports_binding: false,
        }
    }

    #[test]
    fn a_missing_interpreter_is_not_a_missing_program() {
        let folder = tempfile::tempdir().unwrap();
        let text = |name: &str, contents: Option<&[u8]>| {
            let path = folder.path().join(name);
            if let Some(contents) = contents {
                std::fs::write(&path, contents).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            }
            let error = Command::new(&path).spawn().unwrap_err();
            refusal(&start(&path), &error).1
        };
        assert!(text("none", None).ends_with("none not found"));
        let script = text("script", Some(b"#!  /no/such -x\necho\n"));
        assert!(script.contains("needs the interpreter /no/such, which is missing"), "{script}");
    }

    #[test]
    fn a_loader_that_lacks_a_library_is_understood() {
        let lacks = |said: &str| OwnLibrary::missed_in(said.as_bytes()).map(|own| own.name);
        let glibc =
            "x\n./a: error while loading shared libraries: NAME: cannot open shared object file\n";
        let musl = "Error loading shared library NAME: No such file or directory (needed by ./a)\n";
        for said in [glibc, musl] {
            for name in ["libmpi.so.12", "libmpi_abi.so.1"] {
                assert_eq!(lacks(&said.replace("NAME", name)), Some(name));
            }
            assert_eq!(lacks(&said.replace("NAME", "libmpi.so.120")), None);
        }
        assert_eq!(lacks("libmpi.so.12: not found\n"), None);
    }

    #[test]
    fn limits_are_named_with_their_remedy() {
        for (code, words) in [
            (Errno::MFILE, "ulimit -Hn"),
            (Errno::TOOBIG, "-genvnone"),
            (Errno::NOEXEC, "program x cannot be started"),
        ] {
            let text = limited("program x cannot be started", &io::Error::from(code));
            assert!(text.contains(words), "{text}");
        }
    }
}
