//! Opening, closing and deleting files (MPI-5.0 §14.2).

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use coll::Routine;
use io::View;

use super::agreement::{agree, agree_on};
use super::hints::Hints;
use super::mode::AccessMode;
use super::object::{Details, FILES, File, FileObject, FileState, NULL, errhandler_of, fault_of};
use super::representation::Representation;
use super::shared_pointer::SharedPointer;
use super::sight::Sight;
use crate::comm::Comm;
use crate::info::Info;
use crate::{Result, collective};

impl File {
    /// Opens a file (collective). Rank 0 alone creates it, or the first rank that can where rank 0 does not see the folder.
    ///
    /// # Errors
    /// Those of [`AccessMode::new`], modes that differ between processes, and the system's; on all processes alike.
    pub fn open(comm: &Comm, path: &Path, bits: i32, info: &Info) -> Result<Self> {
        let mode = agree_on(comm, Routine::FileOpen, bits as u32 as u64, AccessMode::new(bits))?;
        let own = comm.duplicate_plain()?;
        let made = Self::open_on(&own, path, mode, info);
        if made.is_err() {
            own.free()?;
        }
        made
    }

    fn open_on(comm: &Comm, path: &Path, mode: AccessMode, info: &Info) -> Result<Self> {
        let sight = Sight::find(comm, path, mode)?;
        let (store, service) = sight.store(comm)?;
        let size = if mode.appends() { store.size().unwrap_or(0) } else { 0 };
        let shared = SharedPointer::open(comm, size)?;
        let view = View::default();
        let state = FileState {
            types: (view.etype().clone(), view.filetype().clone()),
            view,
            representation: Representation::find("native")?,
            position: size,
            is_atomic: false,
            split: None,
            patterns: None,
            node_buffers: None,
        };
        let details = Details { errhandler: errhandler_of(NULL).1, hints: Hints::new(info) };
        let file = Self(Arc::new(FileObject {
            comm: comm.clone(),
            store,
            visibility: sight.visibility,
            _service: service,
            path: path.to_owned(),
            mode,
            shared,
            handle: OnceLock::new(),
            state: Mutex::new(state),
            details: Mutex::new(details),
        }));
        let handle = FILES.insert(file.clone())?;
        // A new file has no handle yet.
        let _ = file.0.handle.set(handle);
        Ok(file)
    }

    /// Closes the file (collective).
    ///
    /// # Errors
    /// A split collective is under way, or the system's where the file is to be deleted.
    pub fn close(&self) -> Result<()> {
        let comm = &self.0.comm;
        // Released locks are on their way, and arrive before the pointer is withdrawn.
        let flushed = self.0.shared.flush();
        agree(comm, Routine::FileClose, self.check_collective())?;
        let deletes = self.0.mode.deletes_on_close() && self.is_owner();
        let done = if deletes { delete(&self.0.path) } else { Ok(()) };
        let done = agree(comm, Routine::FileClose, done);
        let met = collective::barrier(comm);
        self.0.shared.close();
        FILES.remove(self.handle())?;
        comm.free()?;
        done.and(flushed).and(met)
    }
}

/// Deletes a file.
///
/// # Errors
/// The system's.
pub fn delete(path: &Path) -> Result<()> {
    io::delete(path).map_err(|fault| fault_of("cannot delete filename =", path, fault))
}
