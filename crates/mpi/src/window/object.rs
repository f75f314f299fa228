//! The window as an object: its properties, its handle, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use handles::{Handle, Kind, Table};
use memory::Region;

use super::flavor::Flavor;
use super::hints::Hints;
use super::put_record::PutRecord;
use super::shared_epochs::SharedEpochs;
use crate::attribute::Attributes;
use crate::collective;
use crate::comm::Comm;
use crate::errhandler::Errhandler;
use crate::group::Group;
use crate::info::Info;
use crate::{Error, ErrorClass, Result};

/// A window. Clones are the same window.
#[derive(Clone, Debug)]
pub struct Window(pub(super) Arc<WindowObject>);

#[derive(Debug)]
pub struct WindowObject {
    /// A duplicate of the communicator that the window was made of, for messages and barriers of the window.
    pub(super) comm: Comm,
    pub(super) rma: rma::Window,
    pub(super) flavor: Flavor,
    pub(super) values: Values,
    pub(super) handle: OnceLock<Handle>,
    pub(super) is_freed: AtomicBool,
    pub(super) epochs: SharedEpochs,
    /// Puts that are compared with later ones, if the application wants its calls checked.
    pub(super) puts: Option<PutRecord>,
    /// Held while the epoch of `MPI_Win_lock_all` takes a lock that it did not take at its beginning.
    pub(super) locking: Mutex<()>,
    pub(super) details: Mutex<Details>,
}

/// Values of the predefined attributes, whose addresses the application gets (MPI-5.0 §12.2.6).
#[derive(Debug)]
pub struct Values {
    /// Address of the window's memory.
    pub base: usize,
    /// Length in bytes.
    pub size: isize,
    /// Displacement unit in bytes.
    pub unit: i32,
    /// The ABI's number of the flavour.
    pub flavor: i32,
    /// The ABI's number of the memory model.
    pub model: i32,
}

/// Rarely used properties.
#[derive(Debug)]
pub(super) struct Details {
    pub(super) name: Vec<u8>,
    pub(super) errhandler: Errhandler,
    pub(super) attributes: Attributes,
    pub(super) hints: Hints,
}

impl Window {
    /// The window's handle.
    pub fn handle(&self) -> Handle {
        self.0.handle.get().copied().unwrap_or(NULL)
    }

    /// True until the window is freed.
    #[inline]
    pub fn is_live(&self) -> bool {
        !self.0.is_freed.load(Ordering::Relaxed)
    }

    /// The processes of the window.
    pub fn group(&self) -> Group {
        self.0.comm.derived_group()
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.0.comm.size()
    }

    /// The kind of the window.
    pub fn flavor(&self) -> Flavor {
        self.0.flavor
    }

    /// Values of the predefined attributes. They stay in place until the window is freed.
    pub fn values(&self) -> &Values {
        &self.0.values
    }

    /// The name; empty until one is set.
    pub fn name(&self) -> Vec<u8> {
        self.details().name.clone()
    }

    /// Names the window for debuggers and messages.
    pub fn set_name(&self, name: &[u8]) {
        self.details().name = name.to_vec();
    }

    /// The error handler of this window.
    pub fn errhandler(&self) -> Errhandler {
        self.details().errhandler.clone()
    }

    /// Sets the error handler of this window.
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.details().errhandler = errhandler;
    }

    /// Runs `access` on the attributes. Callbacks must not run inside it.
    pub fn with_attributes<T>(&self, access: impl FnOnce(&mut Attributes) -> T) -> T {
        access(&mut self.details().attributes)
    }

    /// The hints of this window: every hint the library knows, with its default if none was given.
    ///
    /// # Errors
    /// Those of [`Info::set`].
    pub fn info(&self) -> Result<Info> {
        self.details().hints.info(self.0.flavor)
    }

    /// Sets the hints that may change after creation.
    pub fn set_info(&self, info: &Info) {
        self.details().hints.set(info);
    }

    /// Attaches memory to a dynamic window.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_FLAVOR` for other windows, `MPI_ERR_RMA_ATTACH` for memory that overlaps attached memory.
    pub fn attach(&self, memory: Region) -> Result<()> {
        self.check_dynamic()?;
        if memory.is_empty() {
            return Ok(());
        }
        Ok(self.0.rma.attach(memory)?)
    }

    /// Detaches memory that begins at this address from a dynamic window.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_FLAVOR` for other windows, `MPI_ERR_RMA_ATTACH` for memory that is not attached.
    pub fn detach(&self, address: usize) -> Result<()> {
        self.check_dynamic()?;
        Ok(self.0.rma.detach(address as u64)?)
    }

    fn check_dynamic(&self) -> Result<()> {
        match self.0.flavor {
            Flavor::Dynamic => Ok(()),
            Flavor::Create | Flavor::Allocate | Flavor::Shared => {
                let message = "memory is attached only to windows of MPI_Win_create_dynamic";
                Err(Error::new(ErrorClass::RmaFlavor, message))
            }
        }
    }

    /// Checks that the window may be freed.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC` while an epoch is open.
    pub fn check_free(&self) -> Result<()> {
        self.0.epochs.look().check_free()
    }

    /// Frees the window (collective).
    ///
    /// # Errors
    /// Those of [`Window::check_free`], and a peer failed.
    pub fn free(&self) -> Result<()> {
        self.check_free()?;
        // Released locks are on their way, and arrive before the memory is withdrawn.
        let flushed = self.0.rma.flush_all();
        let met = collective::barrier(&self.0.comm);
        self.0.rma.close();
        self.0.is_freed.store(true, Ordering::Relaxed);
        WINDOWS.remove(self.handle())?;
        self.0.comm.free()?;
        flushed?;
        met
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.0.details.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// The window behind a handle.
///
/// # Errors
/// `MPI_ERR_WIN` for the null, a stale or a foreign handle.
pub fn find(handle: Handle) -> Result<Window> {
    match handle {
        NULL => Err(Error::new(ErrorClass::Win, "the window is MPI_WIN_NULL")),
        _ => Ok(WINDOWS.find(handle)?),
    }
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    WINDOWS.from_int(value)
}

/// `MPI_WIN_NULL`.
pub const NULL: Handle = Handle(0x110);

/// Drops all windows; their handles are stale.
pub(crate) fn clear() {
    WINDOWS.clear();
}

pub(super) static WINDOWS: Table<Window> = Table::new(Kind::Window);
