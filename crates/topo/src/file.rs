//! One small file of the cache. Reads check owner, mode, type and length; writes replace the whole
//! file.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Reason for not using a file or directory of the cache. It is left unchanged; a file is replaced
/// by the next newer value.
#[derive(Debug, thiserror::Error)]
pub enum Ignored {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// A directory, link, pipe or device in place of a file, or no directory in place of one.
    #[error("is not a {0}")]
    Kind(&'static str),
    /// Its owner is another user.
    #[error("belongs to user {owner}, not to {own}; remove it")]
    Foreign {
        /// Its owner's user id.
        owner: u32,
        /// User id of this process.
        own: u32,
    },
    /// Others may write to it.
    #[error("can be written by others (mode {mode:04o}); run chmod go-w on it, or remove it")]
    Writable {
        /// Its permissions.
        mode: u32,
    },
    /// It is longer than any entry.
    #[error("is longer than {LEN_MAX} bytes")]
    Oversized,
    /// It was written by another version.
    #[error("was written by another version")]
    Version,
    /// Its content is no entry.
    #[error("is damaged: {0}")]
    Damaged(String),
    /// It is too old to be relied on.
    #[error("is out of date")]
    Stale,
}

/// Returns the text of a file; none if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Ignored> {
    // A pipe would block the reader, and a link could lead anywhere.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(Ignored::Kind("file")),
        Err(error) => return Err(Ignored::Unreadable(error.into())),
    };
    let metadata = file.metadata().map_err(Ignored::Unreadable)?;
    if !metadata.is_file() {
        return Err(Ignored::Kind("file"));
    }
    check_owner(&metadata)?;
    let mut text = String::new();
    let mut limited = file.take(LEN_MAX + 1);
    match limited.read_to_string(&mut text) {
        Ok(_) if text.len() as u64 > LEN_MAX => Err(Ignored::Oversized),
        Ok(_) => Ok(Some(text)),
        // A character cut at the limit is not the reason.
        Err(_) if metadata.len() > LEN_MAX => Err(Ignored::Oversized),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Ignored::Damaged("it is no text".into()))
        }
        Err(error) => Err(Ignored::Unreadable(error)),
    }
}

/// Checks that a directory may be trusted. False if it does not exist.
pub(crate) fn check_directory(path: &Path) -> Result<bool, Ignored> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err(Ignored::Kind("directory")),
        Ok(metadata) => check_owner(&metadata).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(Ignored::Kind("directory"))
        }
        Err(error) => Err(Ignored::Unreadable(error)),
    }
}

fn check_owner(metadata: &std::fs::Metadata) -> Result<(), Ignored> {
    let own = rustix::process::geteuid().as_raw();
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != own {
        return Err(Ignored::Foreign { owner, own });
    }
    if mode & 0o022 != 0 { Err(Ignored::Writable { mode }) } else { Ok(()) }
}

/// Makes a directory that only this user may enter, with its parents.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces a file atomically: readers see all of the old or the new content.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Prefix of files that are being written.
pub(crate) const UNFINISHED: &str = ".new-";

/// Maximum length of an entry in bytes.
pub(crate) const LEN_MAX: u64 = 2048;
