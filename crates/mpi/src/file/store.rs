//! The bytes of a file: on a file system that this process sees, or behind another process.

use std::sync::Arc;

use io::{OpenFile, Pattern, View};
use memory::Region;

use super::served::{Result, ServedFile};

/// The bytes of a file.
#[derive(Debug)]
pub(super) enum Store {
    /// This process sees the file.
    Seen(Arc<OpenFile>),
    /// Another process accesses it.
    Served(ServedFile),
}

impl Store {
    /// The file, if this process sees it.
    pub fn seen(&self) -> Option<&Arc<OpenFile>> {
        match self {
            Self::Seen(file) => Some(file),
            Self::Served(_) => None,
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> Result<u64> {
        match self {
            Self::Seen(file) => Ok(file.size()?),
            Self::Served(file) => file.size(),
        }
    }

    /// Transfers written data to the storage.
    pub fn sync(&self) -> Result<()> {
        match self {
            Self::Seen(file) => Ok(file.sync()?),
            Self::Served(file) => file.sync(),
        }
    }

    /// Reads from byte `stream` of a pattern on. Returns the bytes read, which are fewer at the end of the file.
    pub fn read(&self, pattern: &Pattern, stream: u64, into: &Region) -> Result<usize> {
        match self {
            Self::Seen(file) => Ok(io::read_pattern(file, pattern, stream, into)?),
            Self::Served(file) => file.read(pattern, stream, into),
        }
    }

    /// Writes to a pattern from byte `stream` on.
    pub fn write(&self, pattern: &Pattern, stream: u64, data: &Region) -> Result<()> {
        match self {
            Self::Seen(file) => Ok(io::write_pattern(file, pattern, stream, data)?),
            Self::Served(file) => file.write(pattern, stream, data),
        }
    }

    /// Reads from offset `at` of the file into bytes `from..from + len` of a region, like [`Store::read`].
    pub fn read_bytes(&self, at: u64, into: &Region, from: usize, len: usize) -> Result<usize> {
        match self {
            Self::Seen(file) => Ok(file.read(at, into, from, len)?),
            Self::Served(file) => file.read(View::default().pattern(), at, &into.slice(from, len)),
        }
    }

    /// Writes bytes `from..from + len` of a region at offset `at` of the file.
    pub fn write_bytes(&self, at: u64, data: &Region, from: usize, len: usize) -> Result<()> {
        match self {
            Self::Seen(file) => Ok(file.write(at, data, from, len)?),
            Self::Served(file) => file.write(View::default().pattern(), at, &data.slice(from, len)),
        }
    }
}
