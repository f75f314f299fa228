//! Failures of system calls on files.

use rustix::io::Errno;

/// Result of a system call.
pub type Result<T> = std::result::Result<T, FileFault>;

/// A failed system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Kind of the failure.
    pub kind: FaultKind,
    /// The system's reason.
    pub reason: String,
    /// Offset in the file where it failed, if it concerns one.
    pub offset: Option<u64>,
}

/// Kinds of failures that users tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The file or its directory does not exist.
    NoSuchFile,
    /// The file exists, and was to be created.
    FileExists,
    /// Permission is denied.
    Access,
    /// The file or the file system is read-only.
    ReadOnly,
    /// The file system is full, or the file would be too long for it.
    NoSpace,
    /// The quota is exceeded.
    Quota,
    /// The name is no file's: a directory, too long, or through something that is no directory.
    BadFile,
    /// Another process uses the file.
    InUse,
    /// There is not enough memory.
    NoMemory,
    /// Any other failure.
    Io,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::NoSuchFile,
        Self::FileExists,
        Self::Access,
        Self::ReadOnly,
        Self::NoSpace,
        Self::Quota,
        Self::BadFile,
        Self::InUse,
        Self::NoMemory,
        Self::Io,
    ];

    /// True if a process with this failure may just not see the file that another one has: the file or its folder is not
    /// there, or not for this process.
    pub fn may_be_unseen(self) -> bool {
        match self {
            Self::NoSuchFile | Self::Access | Self::ReadOnly | Self::BadFile => true,
            Self::FileExists
            | Self::NoSpace
            | Self::Quota
            | Self::InUse
            | Self::NoMemory
            | Self::Io => false,
        }
    }
}

impl FileFault {
    pub(crate) fn new(errno: Errno, offset: Option<u64>) -> Self {
        let kind = match errno {
            Errno::NOENT => FaultKind::NoSuchFile,
            Errno::EXIST => FaultKind::FileExists,
            Errno::ACCESS | Errno::PERM => FaultKind::Access,
            Errno::ROFS => FaultKind::ReadOnly,
            Errno::NOSPC | Errno::FBIG => FaultKind::NoSpace,
            Errno::DQUOT => FaultKind::Quota,
            Errno::ISDIR | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP => FaultKind::BadFile,
            Errno::TXTBSY | Errno::BUSY => FaultKind::InUse,
            Errno::NOMEM => FaultKind::NoMemory,
            _ => FaultKind::Io,
        };
        Self { kind, reason: std::io::Error::from(errno).to_string(), offset }
    }
}
