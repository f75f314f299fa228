//! The table of all settings. Each is an environment variable.
//!
//! A process reads a variable once, when it first needs it. The code that uses a value also checks it.
//! `docs/user/settings.md` is generated from the table, `canele info --settings` prints it, and tools see it as the
//! control variables of MPI-5.0 §15.3.6. `CANELE_` variables outside the table are reported by [`unknown`].
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::OnceLock;

/// Rails that may be used.
pub static RAILS: Setting = setting(
    "CANELE_RAILS",
    Kind::Found("shm,tcp, on fast networks ofi, and between named sites quic"),
    "list of shm, ofi, tcp, quic; shm+tcp",
    "Rails that may be used; the first that reaches a peer carries its messages. shm+tcp uses both together.",
);

/// Strategy that selects the contents of frames.
pub static STRATEGY: Setting = setting(
    "CANELE_STRATEGY",
    Kind::Text("auto"),
    "fifo, aggregate, reorder, piggyback, split, compress, auto",
    "Strategy that selects the contents of frames. Only compress and auto compress data.",
);

/// Memory for messages without a matching receive.
pub static UNMATCHED_BYTES: Setting = setting(
    "CANELE_UNMATCHED_BYTES",
    Kind::Bytes(256 << 20),
    "bytes, such as 64k, 256 MiB",
    "Memory for messages without a matching receive, in addition to the initial credit of every link.",
);

/// Folder of measured costs.
pub static CACHE_DIR: Setting = setting(
    "CANELE_CACHE_DIR",
    Kind::Found("~/.cache/canele"),
    "path",
    "Folder that keeps measured costs of this machine and its links between jobs. canele info --link prints them.",
);

/// Interfaces of TCP and QUIC.
pub static IFACE: Setting = setting(
    "CANELE_IFACE",
    Kind::Found("all networks and the loopback, without bridges to guests"),
    "list such as eth0,10.2.",
    "Interfaces, addresses or address prefixes that TCP and QUIC use. A single one gives a single TCP rail.",
);

/// Provider of libfabric.
pub static OFI_PROVIDER: Setting = setting(
    "CANELE_OFI_PROVIDER",
    Kind::Found("the first fast one: cxi, psm2, psm3, opx, efa, verbs"),
    "name of a provider, as fi_info -l lists them",
    "Provider of libfabric for the rail ofi, such as tcp for trials. All ranks of a site need the same value.",
);

/// Name of the rank's site.
pub static SITE: Setting = setting(
    "CANELE_SITE",
    Kind::Found("found by common networks"),
    "name",
    "Name of the rank's site, the same for all ranks of the site. mpiexec -grid sets it.",
);

/// TCP links that are encrypted.
pub static ENCRYPT: Setting = setting(
    "CANELE_ENCRYPT",
    Kind::Text("sites"),
    "sites, all, none",
    "TCP links that are encrypted: those between sites, all, or none. All ranks need the same value.",
);

/// Congestion control of TCP.
pub static CONGESTION: Setting = setting(
    "CANELE_CONGESTION",
    Kind::Text("auto"),
    "auto, bbr, cubic and others of the kernel",
    "Congestion control of TCP. auto selects BBR for round trips over 1 ms, where the system has it.",
);

/// Gateways of the rank's site.
pub static GATEWAYS: Setting = setting(
    "CANELE_GATEWAYS",
    Kind::Found("none: hosts are reached directly"),
    "list of INSIDE, INSIDE=OUTSIDE or HOP>FAR",
    "Gateways of the rank's site, where its ranks connect (INSIDE) and other sites (OUTSIDE), and paths to those that \
         they cannot call (HOP>FAR). mpiexec -grid sets it.",
);

/// Time that a peer may be without a link.
pub static LINK_PATIENCE: Setting = setting(
    "CANELE_LINK_PATIENCE",
    Kind::Seconds(60),
    "seconds, such as 90, 2min",
    "Time that a peer at another site may be without a link before it has failed. 0: lost links are not reopened.",
);

/// Table of collective algorithms.
pub static PLANS: Setting = setting(
    "CANELE_PLANS",
    Kind::Found("predicted fastest"),
    "path on rank 0's host",
    "File of rules that select collective algorithms: operation, bytes, algorithm. canele tune writes one.",
);

/// Comparison of collective arguments among processes.
pub static CHECK: Setting = setting(
    "CANELE_CHECK",
    Kind::Text("no"),
    "yes, no",
    "Compares the arguments of every collective among processes, and puts of an epoch with each other. All ranks need the \
         same value; mpiexec -check sets it.",
);

/// Threads that poll from free cores.
pub static IDLE_CORES: Setting = setting(
    "CANELE_IDLE_CORES",
    Kind::Text("auto"),
    "auto, leave",
    "auto: threads of idle priority poll from free cores, where a node has three cores or more per rank. \
         leave: no such threads.",
);

/// Number of VCIs per process.
pub static VCIS: Setting = setting(
    "CANELE_VCIS",
    Kind::Text("auto"),
    "auto, 1, 2, 4, 8",
    "Number of VCIs per process. Each has its own connections and lock; communicators within a site are assigned \
         round-robin.",
);

/// Devices whose memory buffers may be in.
pub static DEVICES: Setting = setting(
    "CANELE_DEVICES",
    Kind::Text("auto"),
    "auto, cuda, none",
    "Devices whose memory buffers may be in. auto: CUDA's where the host has them.",
);

/// Lines about links, for users who look for a cause.
pub static LOG: Setting = setting(
    "CANELE_LOG",
    Kind::Text("off"),
    "off, error, warn, info, debug",
    "Log on standard error. debug shows how each link is chosen, tried, opened and lost.",
);

/// Time that `mpiexec` waits for agents.
pub static CONNECT_TIMEOUT: Setting = setting(
    "CANELE_CONNECT_TIMEOUT",
    Kind::Seconds(30),
    "seconds, such as 90, 2min",
    "Time after which mpiexec gives up an agent that does not answer.",
);

/// All settings, in the order of the manual.
pub static ALL: [&Setting; 18] = [
    &RAILS,
    &STRATEGY,
    &UNMATCHED_BYTES,
    &CACHE_DIR,
    &IFACE,
    &OFI_PROVIDER,
    &SITE,
    &ENCRYPT,
    &CONGESTION,
    &GATEWAYS,
    &LINK_PATIENCE,
    &PLANS,
    &CHECK,
    &IDLE_CORES,
    &VCIS,
    &DEVICES,
    &LOG,
    &CONNECT_TIMEOUT,
];

/// Variables that are not settings, but known: of the launcher, the lab, the compiler wrappers, and the tests.
const INTERNAL: [&str; 15] = [
    OF_AGENTS,
    "CANELE_RECORD",
    "CANELE_TRACE_FD",
    "CANELE_PMI_SOCKET",
    "CANELE_PROFILE_FD",
    "CANELE_REPORT_SOCKET",
    "CANELE_LAB",
    "CANELE_LAB_FOLDER",
    "CANELE_LAB_MARK",
    "CANELE_CC",
    "CANELE_CXX",
    "CANELE_FC",
    "CANELE_SEED",
    "CANELE_SKIP_LOG",
    "CANELE_TEST_BUDGET",
];

/// A variable that agents of `mpiexec` set for every rank.
const OF_AGENTS: &str = "CANELE_NODE_CORES";

/// The manual's page of settings, in Markdown.
pub fn manual() -> String {
    let mut text = String::from(INTRODUCTION);
    for Setting { variable, kind, values, meaning, .. } in ALL {
        text += &format!("| `{variable}` | {values} | {kind} | {meaning} |\n");
    }
    text + NOTES
}

/// The `CANELE_` variables among these names that do not exist.
pub fn unknown(names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<Unknown> {
    let mut found: Vec<Unknown> =
        names.into_iter().filter_map(|name| of_name(name.as_ref())).collect();
    found.sort();
    found.dedup();
    found
}

/// The unknown variables of this process's environment; none below `mpiexec`, which has reported them.
pub fn unknown_here() -> Vec<Unknown> {
    match std::env::var_os(OF_AGENTS) {
        Some(_) => Vec::new(),
        None => unknown(std::env::vars_os().map(|(name, _)| name)),
    }
}

/// An environment variable that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    variable: String,
    nearest: Option<&'static str>,
}

/// The candidate most similar to `word`, if its edit distance is at most a third of the word's length.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = word.chars().count().max(3) / 3;
    let distances = candidates.into_iter().map(|one| (strsim::osa_distance(word, one), one));
    let near = distances.filter(|(distance, _)| *distance <= distance_max);
    near.min_by_key(|(distance, _)| *distance).map(|(_, one)| one)
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    variable: &'static str,
    kind: Kind,
    values: &'static str,
    meaning: &'static str,
    given: OnceLock<Option<OsString>>,
}

/// Type and default of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text(&'static str),
    /// Text. The default depends on the system; these words describe it.
    Found(&'static str),
    /// A number of bytes.
    Bytes(u64),
    /// A number of seconds.
    Seconds(u64),
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// The environment.
    Environment,
}

/// A value of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    variable: &'static str,
    value: String,
    wanted: &'static str,
}

impl Setting {
    /// Name of the environment variable.
    pub fn variable(&self) -> &'static str {
        self.variable
    }

    /// Type and default of its value.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Values that it may have, in words.
    pub fn values(&self) -> &'static str {
        self.values
    }

    /// Effect of the setting, in one or two sentences.
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// Value in the environment at its first use, if any.
    pub fn given(&self) -> Option<&OsStr> {
        self.given.get_or_init(|| std::env::var_os(self.variable)).as_deref()
    }

    /// Origin of the value.
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
    /// If it is not a number; the text names what is needed.
    pub fn number(&self) -> Result<u64, Invalid> {
        let text = self.text();
        let number = match self.kind {
            Kind::Bytes(_) => with_unit(&text, &BYTE_UNITS),
            Kind::Seconds(_) => with_unit(&text, &TIME_UNITS),
            Kind::Text(_) | Kind::Found(_) => text.parse().ok(),
        };
        let (variable, wanted) = (self.variable, self.kind.name());
        number.ok_or_else(|| Invalid { variable, value: text.into_owned(), wanted })
    }
}

impl Kind {
    /// Name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text(_) | Self::Found(_) => "text",
            Self::Bytes(_) => "a number of bytes, such as 65536, 64k or 64 KiB,",
            Self::Seconds(_) => "a number of seconds, such as 90, 90s or 2min,",
        }
    }
}

/// Parses a whole number with or without a unit, in any case of letters, as the default is printed.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let known = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))?;
    number.parse::<u64>().ok()?.checked_mul(known.1)
}

/// Units of bytes. All are powers of 1024.
const BYTE_UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("k", 1 << 10),
    ("kB", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MB", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GB", 1 << 30),
    ("GiB", 1 << 30),
];

/// Units of time, in seconds.
const TIME_UNITS: [(&str, u64); 5] = [("", 1), ("s", 1), ("m", 60), ("min", 60), ("h", 3600)];

/// The default.
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

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a setting", self.variable)?;
        if let Some(nearest) = self.nearest {
            write!(f, "; did you mean {nearest}?")?;
        }
        f.write_str(" (canele info --settings lists them)")
    }
}

const fn setting(
    variable: &'static str,
    kind: Kind,
    values: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { variable, kind, values, meaning, given: OnceLock::new() }
}

fn of_name(name: &OsStr) -> Option<Unknown> {
    let variable = name.to_string_lossy();
    let own = variable.strip_prefix(PREFIX)?;
    let is_known = INTERNAL.contains(&&*variable) || ALL.iter().any(|one| one.variable == variable);
    if is_known {
        return None;
    }
    let candidates = ALL.iter().filter_map(|one| one.variable.strip_prefix(PREFIX));
    let nearest = nearest(&own.to_ascii_uppercase(), candidates);
    let setting = nearest.and_then(|near| ALL.iter().find(|one| one.variable.ends_with(near)));
    Some(Unknown { nearest: setting.map(|one| one.variable), variable: variable.into_owned() })
}

const PREFIX: &str = "CANELE_";

const INTRODUCTION: &str = "\
# Settings

Each setting is an environment variable. `mpiexec` passes its own environment to all ranks, and `-genv NAME VALUE` sets a variable for
all of them. A process reads a setting once. `canele info` prints the values in effect. Tools read them as control
variables of `MPI_T`.

`canele info --settings` prints this page, which is generated from `crates/settings/src/lib.rs`.

| variable | values | default | meaning |
|---|---|---|---|
";

const NOTES: &str = "
`CANELE_PLANS` and `CANELE_VCIS` are read by rank 0, and apply to the whole job. `CANELE_VCIS=auto` gives a process one VCI per core of
its rank under `MPI_THREAD_MULTIPLE`, rounded down to 1, 2, 4 or 8, and otherwise one.

A value outside its range is an error that names the variable. A `CANELE_` variable that is not in this table is reported
once per job, with the nearest name.
";

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use expect_test::expect_file;

    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    /// `UPDATE_EXPECT=1 cargo test -p settings` writes the page.
    #[test]
    fn the_page_of_the_manual_is_the_table() {
        expect_file!["../../../docs/user/settings.md"].assert_eq(&manual());
    }

    #[test]
    fn meanings_are_one_or_two_short_sentences() {
        for setting in ALL {
            let sentences: Vec<&str> = setting.meaning.split(". ").collect();
            assert!(sentences.len() <= 2 && setting.meaning.ends_with('.'), "{}", setting.variable);
            let words = sentences.iter().map(|one| one.split_whitespace().count()).max();
            assert!(words.is_some_and(|words| words <= 28), "{}", setting.variable);
        }
    }

    #[test]
    fn variables_that_do_not_exist_are_named_with_the_nearest_that_does() {
        let told = |names: &[&str]| -> Vec<String> {
            unknown(names).iter().map(ToString::to_string).collect()
        };
        let advice = "(canele info --settings lists them)";
        assert_eq!(
            told(&["PATH", "CANELE_STRATGY", "CANELE_RAILS", "CANELE_STRATGY", "CANELE_PONY"]),
            [
                format!("CANELE_PONY is not a setting {advice}"),
                format!("CANELE_STRATGY is not a setting; did you mean CANELE_STRATEGY? {advice}"),
            ]
        );
        let near = |name: &str| unknown([name]).remove(0).nearest;
        assert_eq!(near("CANELE_RAIL"), Some("CANELE_RAILS"));
        assert_eq!(near("CANELE_rails"), Some("CANELE_RAILS"));
        assert_eq!(near("CANELE_LINKPATIENCE"), Some("CANELE_LINK_PATIENCE"));
        assert_eq!(near("CANELE_"), None);
    }

    /// Names in quotes, in the sources of all crates and their tests, are settings or internal.
    #[test]
    fn no_variable_of_the_sources_is_unknown() {
        for file in all_sources(&[]) {
            if file.ends_with("settings/src/lib.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let names = text.split("\"CANELE_").skip(1).map(|rest| {
                let is_of_name = |byte: char| byte.is_ascii_uppercase() || byte == '_';
                format!("{PREFIX}{}", rest.split(|byte| !is_of_name(byte)).next().unwrap_or(""))
            });
            assert_eq!(unknown(names), [], "{}", file.display());
        }
    }

    #[test]
    fn settings_are_named_here_only() {
        let mut named = Vec::new();
        for file in all_sources(&["tests"]) {
            let text = std::fs::read_to_string(&file).unwrap();
            if ALL.iter().any(|one| text.contains(&format!("\"{}\"", one.variable))) {
                named.push(file.strip_prefix(ROOT).unwrap().display().to_string());
            }
        }
        named.sort();
        // Benchmarks set variables for the libraries that they measure.
        assert_eq!(named, ["crates/settings/src/lib.rs", "tools/bench/src/library.rs"]);
    }

    #[test]
    fn a_setting_that_is_not_given_has_its_default() {
        static ABSENT: Setting = setting("CANELE_ABSENT", Kind::Bytes(1536 << 10), "", "");
        assert_eq!((ABSENT.given(), ABSENT.origin()), (None, Origin::Default));
        assert_eq!((ABSENT.text().as_ref(), ABSENT.number()), ("1572864", Ok(1536 << 10)));
        assert_eq!(ABSENT.kind().to_string(), "1572864");
        assert_eq!(Kind::Bytes(256 << 20).to_string(), "256 MiB");
    }

    #[test]
    fn a_given_value_is_taken_and_named_where_it_is_wrong() {
        static GIVEN: Setting = setting("PATH", Kind::Seconds(30), "", "");
        assert_eq!(GIVEN.origin(), Origin::Environment);
        assert_eq!(Some(GIVEN.text().as_ref()), std::env::var("PATH").ok().as_deref());
        let reason = GIVEN.number().unwrap_err().to_string();
        assert!(
            reason.starts_with("PATH=") && reason.contains(": a number of seconds, such as 90")
        );
    }

    #[test]
    fn numbers_have_units_and_defaults_are_values() {
        let bytes = |text| with_unit(text, &BYTE_UNITS);
        for text in ["268435456", "256 MiB", "256M", "256m", "262144 kB", " 256mb ", "268435456 B"]
        {
            assert_eq!(bytes(text), Some(256 << 20), "{text}");
        }
        for text in ["", "k", "1.5M", "-1", "256 Mbit", "1k2", "0x10", "20000000000G", "M 1"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        let seconds = |text| with_unit(text, &TIME_UNITS);
        let texts = ["90", "90s", "2min", "1 h", "0"];
        assert_eq!(texts.map(seconds), [Some(90), Some(90), Some(120), Some(3600), Some(0)]);
        assert_eq!(seconds("1d"), None);
        for setting in ALL.iter().filter(|it| matches!(it.kind, Kind::Bytes(_) | Kind::Seconds(_)))
        {
            let units: &[_] =
                if let Kind::Bytes(_) = setting.kind { &BYTE_UNITS } else { &TIME_UNITS };
            let (Kind::Bytes(number) | Kind::Seconds(number)) = setting.kind else { continue };
            assert_eq!(with_unit(&setting.kind.to_string(), units), Some(number));
        }
    }

    /// The Rust sources below a folder, without those in folders of these names.
    fn all_sources(without: &[&str]) -> Vec<PathBuf> {
        let folders = ["crates", "tools"].map(|folder| Path::new(ROOT).join(folder));
        folders.iter().flat_map(|folder| sources(folder, without)).collect()
    }

    fn sources(place: &Path, without: &[&str]) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let files = files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "rs"));
        let folders = folders.iter().filter(|path| !without.iter().any(|one| path.ends_with(one)));
        folders.flat_map(|path| sources(path, without)).chain(files).collect()
    }
}
