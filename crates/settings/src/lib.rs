//! What users may set, in one table: each setting is an environment variable.
//!
//! A process reads a variable once, when it first needs it; what the setting does is said here, what
//! values mean is checked where they are used. The table is README's, `canele info --progress` shows it, and
//! tools see it as the control variables of MPI-5.0 §15.3.6.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::OnceLock;

/// Which rails may be used.
pub static RAILS: Setting = setting(
    "CANELE_RAILS",
    Kind::Found("shm,tcp, and between named sites quic"),
    "which rails may be used (shm, tcp, quic); the first that reaches a peer is taken, tcp over all networks \
     in common; shm+tcp: both together",
);

/// What chooses the contents of frames.
pub static STRATEGY: Setting = setting(
    "CANELE_STRATEGY",
    Kind::Text("auto"),
    "what chooses the contents of frames: fifo, aggregate, reorder, piggyback, split, compress, auto; \
     up to split nothing is compressed",
);

/// Memory for messages without a receive.
pub static UNMATCHED_BYTES: Setting = setting(
    "CANELE_UNMATCHED_BYTES",
    Kind::Bytes(256 << 20),
    "memory for messages without a receive, beyond what every link accepts from the beginning",
);

/// Where costs are remembered.
pub static CACHE_DIR: Setting = setting(
    "CANELE_CACHE_DIR",
    Kind::Found("~/.cache/canele"),
    "where costs of machine and links are remembered; canele info --link shows them and what follows",
);

/// What TCP and QUIC use.
pub static IFACE: Setting = setting(
    "CANELE_IFACE",
    Kind::Found("all networks and the loopback, not bridges to guests"),
    "interfaces, addresses or beginnings of addresses that TCP and QUIC use, such as eth0,10.2.; one of them \
     makes one rail",
);

/// Where this process is.
pub static SITE: Setting = setting(
    "CANELE_SITE",
    Kind::Found("found by the networks that hosts have in common"),
    "the name of the site that a rank is on, the same for all ranks there; mpiexec -grid sets it",
);

/// Which links are encrypted.
pub static ENCRYPT: Setting = setting(
    "CANELE_ENCRYPT",
    Kind::Text("sites"),
    "which links over TCP are encrypted: between sites, all, none; the same for all ranks",
);

/// How fast TCP sends.
pub static CONGESTION: Setting = setting(
    "CANELE_CONGESTION",
    Kind::Text("auto"),
    "the congestion control of TCP by its name; auto: over 1 ms and more bbr, where the system has it",
);

/// By whom hosts of other sites are reached.
pub static GATEWAYS: Setting = setting(
    "CANELE_GATEWAYS",
    Kind::Found("none: hosts are reached directly"),
    "the gateways of a rank's site: INSIDE, where its ranks call one, or INSIDE=OUTSIDE, where others call \
     it to reach them",
);

/// How long a peer is waited for whose links are lost.
pub static LINK_PATIENCE: Setting = setting(
    "CANELE_LINK_PATIENCE",
    Kind::Seconds(60),
    "seconds for which a peer at another site may be without a link before it has failed; 0: lost links \
     are not opened again",
);

/// How collectives are carried out.
pub static PLANS: Setting = setting(
    "CANELE_PLANS",
    Kind::Found("what is predicted to end first"),
    "a file of rank 0's that says how collectives are carried out: operation, bytes (*, 8, 0..4096) and algorithm \
     on each line; canele info --plan names them, canele tune measures which are fastest",
);

/// Whether processes compare their collectives.
pub static CHECK: Setting = setting(
    "CANELE_CHECK",
    Kind::Text("no"),
    "yes: processes compare each collective's operation, root, length and op before they take part, and what each \
     two exchange where lengths may differ, the same for all ranks; mpiexec -check sets it",
);

/// Whether threads look on from cores that nobody wants.
pub static IDLE_CORES: Setting = setting(
    "CANELE_IDLE_CORES",
    Kind::Text("auto"),
    "auto: where a node has three cores and more for each rank, threads of the lowest standing look for messages \
     while the application computes; leave: they are left alone",
);

/// How many communications a process has side by side.
pub static LANES: Setting = setting(
    "CANELE_LANES",
    Kind::Text("auto"),
    "in how many lanes (1, 2, 4, 8), each with links and a lock of its own, communicators within a site lie, the newest in the \
     next; auto: as many of these as a rank has cores, where MPI_THREAD_MULTIPLE is asked for; rank 0's number is that of all",
);

/// How long `mpiexec` waits for agents.
pub static CONNECT_TIMEOUT: Setting =
    setting("CANELE_CONNECT_TIMEOUT", Kind::Seconds(30), "seconds until mpiexec gives an agent up");

/// All settings, in the order of README's table.
pub static ALL: [&Setting; 15] = [
    &RAILS,
    &STRATEGY,
    &UNMATCHED_BYTES,
    &CACHE_DIR,
    &IFACE,
    &SITE,
    &ENCRYPT,
    &CONGESTION,
    &GATEWAYS,
    &LINK_PATIENCE,
    &PLANS,
    &CHECK,
    &IDLE_CORES,
    &LANES,
    &CONNECT_TIMEOUT,
];

/// One setting.
#[derive(Debug)]
pub struct Setting {
    variable: &'static str,
    kind: Kind,
    meaning: &'static str,
    given: OnceLock<Option<OsString>>,
}

/// What kind of value a setting has, and which if it is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text(&'static str),
    /// Text; where it is not given, what the system has to offer is taken: these words say what.
    Found(&'static str),
    /// A number of bytes.
    Bytes(u64),
    /// A number of seconds.
    Seconds(u64),
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody has set it.
    Default,
    /// The environment.
    Environment,
}

/// A value that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    variable: &'static str,
    value: String,
    wanted: &'static str,
}

impl Setting {
    /// The environment variable.
    pub fn variable(&self) -> &'static str {
        self.variable
    }

    /// What kind of value it has.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it does, in a line.
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// What the environment says, if anything; the same for as long as the process lives.
    pub fn given(&self) -> Option<&OsStr> {
        self.given.get_or_init(|| std::env::var_os(self.variable)).as_deref()
    }

    /// Where the value comes from.
    pub fn origin(&self) -> Origin {
        if self.given().is_some() { Origin::Environment } else { Origin::Default }
    }

    /// The value as text.
    pub fn text(&self) -> Cow<'_, str> {
        match (self.given(), self.kind) {
            (Some(given), _) => given.to_string_lossy(),
            (None, Kind::Text(text) | Kind::Found(text)) => text.into(),
            (None, Kind::Bytes(number) | Kind::Seconds(number)) => number.to_string().into(),
        }
    }

    /// The value as a number.
    ///
    /// # Errors
    /// Where it is none; the text says what is needed.
    pub fn number(&self) -> Result<u64, Invalid> {
        let text = self.text();
        text.parse().map_err(|_| Invalid {
            variable: self.variable,
            value: text.into_owned(),
            wanted: self.kind.name(),
        })
    }
}

impl Kind {
    /// What is needed, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text(_) | Self::Found(_) => "text",
            Self::Bytes(_) => "a number of bytes",
            Self::Seconds(_) => "a number of seconds",
        }
    }
}

/// The value where none is given.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Found(text) => f.write_str(text),
            Self::Bytes(bytes) if bytes.is_multiple_of(1 << 20) => write!(f, "{} MiB", bytes >> 20),
            Self::Bytes(number) | Self::Seconds(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, value, wanted } = self;
        write!(f, "{variable}={value}: {wanted} is needed")
    }
}

impl std::error::Error for Invalid {}

const fn setting(variable: &'static str, kind: Kind, meaning: &'static str) -> Setting {
    Setting { variable, kind, meaning, given: OnceLock::new() }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    #[test]
    fn the_table_is_that_of_readme() {
        let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
        let told: Vec<_> =
            readme.lines().filter(|line| line.starts_with("| `CANELE_")).map(plain).collect();
        let known: Vec<_> = ALL
            .iter()
            .map(|one| format!("| {} | {} | {} |", one.variable, one.kind, one.meaning))
            .collect();
        assert_eq!(told, known);
    }

    #[test]
    fn settings_are_named_here_only() {
        let mut named = Vec::new();
        for file in sources(&Path::new(ROOT).join("crates")) {
            let text = std::fs::read_to_string(&file).unwrap();
            if ALL.iter().any(|one| text.contains(&format!("\"{}\"", one.variable))) {
                named.push(file.strip_prefix(ROOT).unwrap().display().to_string());
            }
        }
        named.sort();
        // The instruments set variables for libraries that they measure.
        assert_eq!(named, ["crates/bench/src/library.rs", "crates/settings/src/lib.rs"]);
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        static ABSENT: Setting = setting("CANELE_OF_NO_MEANING", Kind::Bytes(1536 << 10), "");
        assert_eq!((ABSENT.given(), ABSENT.origin()), (None, Origin::Default));
        assert_eq!((ABSENT.text().as_ref(), ABSENT.number()), ("1572864", Ok(1536 << 10)));
        assert_eq!(ABSENT.kind().to_string(), "1572864");
        assert_eq!(Kind::Bytes(256 << 20).to_string(), "256 MiB");
    }

    #[test]
    fn what_is_given_is_taken_and_named_where_it_is_wrong() {
        static GIVEN: Setting = setting("PATH", Kind::Seconds(30), "");
        assert_eq!(GIVEN.origin(), Origin::Environment);
        assert_eq!(Some(GIVEN.text().as_ref()), std::env::var("PATH").ok().as_deref());
        let reason = GIVEN.number().unwrap_err().to_string();
        assert!(reason.starts_with("PATH=") && reason.ends_with(": a number of seconds is needed"));
    }

    fn plain(line: &str) -> String {
        line.replace('`', "")
    }

    /// The sources of all crates, without their tests.
    fn sources(place: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let files = files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "rs"));
        let directories = directories.iter().filter(|path| !path.ends_with("tests"));
        directories.flat_map(|path| sources(path)).chain(files).collect()
    }
}
