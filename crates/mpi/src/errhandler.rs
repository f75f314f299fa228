//! Error handlers (MPI-5.0 §9.3).

use crate::table::{Handle, Kind, Table};
use crate::{Error, ErrorClass, Result};

/// Who decides what an error leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errhandler {
    /// `MPI_ERRORS_ARE_FATAL`: the job ends.
    Fatal,
    /// `MPI_ERRORS_ABORT`: the processes of the communicator end.
    Abort,
    /// `MPI_ERRORS_RETURN`: the call returns the code.
    Return,
    /// A function of the application.
    User {
        /// Its handle.
        handle: Handle,
        /// Its address, which the `abi` crate calls.
        function: usize,
    },
}

impl Errhandler {
    /// The handler communicators begin with.
    pub const FATAL: Self = Self::Fatal;

    /// The handler's handle.
    pub fn handle(self) -> Handle {
        match self {
            Self::Fatal => Handle(0x141),
            Self::Abort => Handle(0x142),
            Self::Return => Handle(0x143),
            Self::User { handle, .. } => handle,
        }
    }

    /// A handler that calls the function at `function`.
    ///
    /// # Errors
    /// When no more handlers fit.
    pub fn create(function: usize) -> Result<Handle> {
        HANDLERS.insert(function)
    }

    /// The handler behind a handle.
    ///
    /// # Errors
    /// `MPI_ERR_ERRHANDLER` for the null, a stale or a foreign handle.
    pub fn find(handle: Handle) -> Result<Self> {
        match handle.0 {
            0x141 => Ok(Self::Fatal),
            0x142 => Ok(Self::Abort),
            0x143 => Ok(Self::Return),
            0x140 => Err(Error::new(ErrorClass::Errhandler, "the handler is MPI_ERRHANDLER_NULL")),
            _ => HANDLERS.find(handle).map(|function| Self::User { handle, function }),
        }
    }

    /// Gives a handle back; objects that use the handler keep it.
    ///
    /// # Errors
    /// As [`Errhandler::find`].
    pub fn free(handle: Handle) -> Result<()> {
        if handle.is_predefined() {
            return Self::find(handle).map(drop);
        }
        HANDLERS.remove(handle).map(drop)
    }

    /// The handle whose Fortran integer is `value`.
    pub fn from_int(value: i32) -> Handle {
        HANDLERS.from_int(value)
    }
}

static HANDLERS: Table<usize> = Table::new(Kind::Errhandler, ErrorClass::Errhandler);
