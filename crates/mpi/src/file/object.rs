//! The file as an object: its properties, its handle, its error handler.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use coll::Routine;
use datatype::Datatype;
use handles::{Handle, Kind, Table};
use io::{FaultKind, FileFault, OpenFile, Pattern, View, Visibility};
use memory::Region;

use super::agreement::{agree, agree_on};
use super::hints::{Buffering, Hints};
use super::mode::AccessMode;
use super::node_buffers::NodeBuffers;
use super::place::AccessKind;
use super::representation::Representation;
use super::served::StoreFault;
use super::serving::FileService;
use super::shared_pointer::SharedPointer;
use super::split_call::Split;
use super::store::Store;
use crate::comm::Comm;
use crate::errhandler::Errhandler;
use crate::group::Group;
use crate::info::Info;
use crate::{Error, ErrorClass, Result};

/// A file. Clones are the same file.
#[derive(Clone, Debug)]
pub struct File(pub(super) Arc<FileObject>);

#[derive(Debug)]
pub struct FileObject {
    /// A duplicate of the communicator that the file was opened on.
    pub(super) comm: Comm,
    pub(super) store: Store,
    pub(super) visibility: Visibility,
    /// Of a process that accesses the file for others.
    pub(super) _service: Option<FileService>,
    pub(super) path: PathBuf,
    pub(super) mode: AccessMode,
    pub(super) shared: SharedPointer,
    pub(super) handle: OnceLock<Handle>,
    pub(super) state: Mutex<FileState>,
    pub(super) details: Mutex<Details>,
}

/// State that calls of this process change.
#[derive(Debug)]
pub(super) struct FileState {
    pub view: View,
    /// Etype and filetype as the application has given them; those of the view are of bytes in the file.
    pub types: (Datatype, Datatype),
    pub representation: Representation,
    /// The own file pointer, in etypes of the view.
    pub position: u64,
    pub is_atomic: bool,
    /// The split collective under way.
    pub split: Option<Split>,
    /// The patterns of all processes, once they have told each other.
    pub patterns: Option<Arc<[Pattern]>>,
    /// Shared memory of collective accesses with windows of so many bytes, once it was asked for.
    pub node_buffers: Option<(u64, Option<NodeBuffers>)>,
}

/// Rarely used properties.
#[derive(Debug)]
pub(super) struct Details {
    pub errhandler: Errhandler,
    pub hints: Hints,
}

impl File {
    /// The file's handle.
    pub fn handle(&self) -> Handle {
        self.0.handle.get().copied().unwrap_or(NULL)
    }

    /// The processes that have opened the file.
    pub fn group(&self) -> Group {
        self.0.comm.derived_group()
    }

    /// The access mode.
    pub fn mode(&self) -> AccessMode {
        self.0.mode
    }

    /// The error handler of this file.
    pub fn errhandler(&self) -> Errhandler {
        self.details().errhandler.clone()
    }

    /// Sets the error handler of this file.
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.details().errhandler = errhandler;
    }

    /// The hints of this file.
    ///
    /// # Errors
    /// Those of [`Info::set`].
    pub fn info(&self) -> Result<Info> {
        self.details().hints.info()
    }

    /// Sets hints (collective).
    ///
    /// # Errors
    /// A peer failed, or has wrong arguments.
    pub fn set_info(&self, info: Result<Info>) -> Result<()> {
        let info = agree(&self.0.comm, Routine::FileSetInfo, info)?;
        self.set_hints(&info);
        Ok(())
    }

    /// Returns the rules for collective accesses of a kind.
    pub(super) fn buffering(&self, kind: AccessKind) -> Buffering {
        self.details().hints.buffering(kind)
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn size(&self) -> Result<u64> {
        self.0.store.size().map_err(|fault| self.fault("tell the size of", fault))
    }

    /// Cuts or extends the file (collective).
    ///
    /// # Errors
    /// The system's, and sizes that differ between processes; on all processes alike.
    pub fn set_size(&self, size: i64) -> Result<()> {
        self.resize(Routine::FileSetSize, size, OpenFile::set_size)
    }

    /// Reserves room for the first `size` bytes (collective).
    ///
    /// # Errors
    /// Those of [`File::set_size`].
    pub fn preallocate(&self, size: i64) -> Result<()> {
        self.resize(Routine::FilePreallocate, size, OpenFile::reserve)
    }

    fn resize(
        &self,
        routine: Routine,
        size: i64,
        act: impl FnOnce(&OpenFile, u64) -> io::Result<()>,
    ) -> Result<()> {
        let negative = || Error::argument(format!("size = {size} is negative"));
        let checked = self.check_writable().and_then(|()| self.check_collective());
        let checked = checked.and_then(|()| u64::try_from(size).map_err(|_| negative()));
        let bytes = agree_on(&self.0.comm, routine, size as u64, checked)?;
        let owned = self.0.store.seen().filter(|_| self.is_owner());
        let done = owned.map_or(Ok(()), |file| act(file, bytes));
        let done = done.map_err(|fault| self.fault("change the size of", fault));
        agree(&self.0.comm, routine, done)
    }

    /// Transfers written data to the storage (collective).
    ///
    /// # Errors
    /// The system's, on all processes alike.
    pub fn sync(&self) -> Result<()> {
        let done = self.check_collective().and_then(|()| match self.0.mode.writes() {
            true => self.0.store.sync().map_err(|fault| self.fault("synchronize", fault)),
            false => Ok(()),
        });
        agree(&self.0.comm, Routine::FileSync, done)
    }

    /// True if accesses are atomic.
    pub fn is_atomic(&self) -> bool {
        self.state().is_atomic
    }

    /// Makes accesses atomic, or not (collective).
    ///
    /// # Errors
    /// Flags that differ between processes.
    pub fn set_atomic(&self, is_atomic: bool) -> Result<()> {
        let checked = self.check_collective();
        agree_on(&self.0.comm, Routine::FileSetAtomicity, u64::from(is_atomic), checked)?;
        self.state().is_atomic = is_atomic;
        Ok(())
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match self.0.mode.writes() {
            true => Ok(()),
            false => {
                let message = format!("{} is open for reading only", self.0.path.display());
                Err(Error::new(ErrorClass::ReadOnly, message))
            }
        }
    }

    /// Checks that a collective call may begin.
    pub(super) fn check_collective(&self) -> Result<()> {
        match &self.state().split {
            None => Ok(()),
            Some(split) => Err(split.is_under_way()),
        }
    }

    /// True if this process creates, resizes and deletes the file.
    pub(super) fn is_owner(&self) -> bool {
        self.0.visibility.owner() == self.0.comm.rank()
    }

    /// Reads from offset `at` of the file into bytes `from..from + len` of a region.
    pub(super) fn read_bytes(
        &self,
        at: u64,
        into: &Region,
        from: usize,
        len: usize,
    ) -> Result<usize> {
        let read = self.0.store.read_bytes(at, into, from, len);
        read.map_err(|fault| self.fault("read", fault))
    }

    /// Writes bytes `from..from + len` of a region at offset `at` of the file.
    pub(super) fn write_bytes(
        &self,
        at: u64,
        data: &Region,
        from: usize,
        len: usize,
    ) -> Result<()> {
        let written = self.0.store.write_bytes(at, data, from, len);
        written.map_err(|fault| self.fault("write", fault))
    }

    /// Describes a failed access.
    pub(super) fn fault(&self, act: &str, fault: impl Into<StoreFault>) -> Error {
        let (rank, path) = (self.0.comm.rank(), &self.0.path);
        match fault.into() {
            StoreFault::System(fault) => {
                fault_of(&format!("rank {rank} cannot {act}"), path, fault)
            }
            StoreFault::Lost(server) => {
                let message = format!(
                    "rank {rank} cannot {act} {}: rank {server}, which accesses it for rank {rank}, is gone",
                    path.display()
                );
                Error::new(ErrorClass::ProcAborted, message)
            }
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FileState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the hints in `given`.
    pub(super) fn set_hints(&self, given: &Info) {
        self.details().hints.set(given);
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.0.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes a failed system call on a file.
pub(super) fn fault_of(what: &str, path: &std::path::Path, fault: FileFault) -> Error {
    let class = match fault.kind {
        FaultKind::NoSuchFile => ErrorClass::NoSuchFile,
        FaultKind::FileExists => ErrorClass::FileExists,
        FaultKind::Access => ErrorClass::Access,
        FaultKind::ReadOnly => ErrorClass::ReadOnly,
        FaultKind::NoSpace => ErrorClass::NoSpace,
        FaultKind::Quota => ErrorClass::Quota,
        FaultKind::BadFile => ErrorClass::BadFile,
        FaultKind::InUse => ErrorClass::FileInUse,
        FaultKind::NoMemory => ErrorClass::NoMem,
        FaultKind::Io => ErrorClass::Io,
    };
    let place = fault.offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
    Error::new(class, format!("{what} {}{place}: {}", path.display(), fault.reason))
}

/// The file behind a handle.
///
/// # Errors
/// `MPI_ERR_FILE` for the null, a stale or a foreign handle.
pub fn find(handle: Handle) -> Result<File> {
    match handle {
        NULL => Err(Error::new(ErrorClass::File, "the file is MPI_FILE_NULL")),
        _ => Ok(FILES.find(handle)?),
    }
}

/// The file behind a handle, or the null where there is none, and the error handler of that.
pub fn errhandler_of(handle: Handle) -> (Handle, Errhandler) {
    match FILES.find(handle) {
        Ok(file) => (handle, file.errhandler()),
        Err(_) => (NULL, null_errhandler().clone()),
    }
}

/// Sets the error handler of `MPI_FILE_NULL`, which files get when they are opened (MPI-5.0 §14.7).
pub fn set_null_errhandler(errhandler: Errhandler) {
    *null_errhandler() = errhandler;
}

fn null_errhandler() -> MutexGuard<'static, Errhandler> {
    static HANDLER: Mutex<Errhandler> = Mutex::new(Errhandler::Return);
    HANDLER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    FILES.from_int(value)
}

/// `MPI_FILE_NULL`.
pub const NULL: Handle = Handle(0x118);

/// Drops all files; their handles are stale.
pub(crate) fn clear() {
    FILES.clear();
}

pub(super) static FILES: Table<File> = Table::new(Kind::File);
