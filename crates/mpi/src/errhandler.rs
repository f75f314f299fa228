//! Error handlers (MPI-5.0 §9.3).

use std::sync::{Arc, Mutex, MutexGuard};

use handles::{Handle, Kind, Table};

use crate::{Error, ErrorClass, Result};

/// Reaction to an error.
#[derive(Clone, Debug)]
pub enum Errhandler {
    /// `MPI_ERRORS_ARE_FATAL`: the job ends.
    Fatal,
    /// `MPI_ERRORS_ABORT`: the processes of the communicator end.
    Abort,
    /// `MPI_ERRORS_RETURN`: the call returns the code.
    Return,
    /// A function of the application.
    User(Arc<Function>),
}

/// A function of the application, which lives as long as a handle or an object refers to it.
#[derive(Debug)]
pub struct Function {
    /// Kind of object whose errors it handles.
    pub owner: Owner,
    /// Its address, which the `abi` crate calls.
    pub address: usize,
    held: Mutex<Held>,
}

/// References of the application to the handle, which is freed with the last one.
#[derive(Debug)]
struct Held {
    times: usize,
    handle: Handle,
}

/// Kind of object that has an error handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Communicators.
    Comm,
    /// Windows.
    Win,
    /// Files.
    File,
    /// Sessions.
    Session,
}

impl Errhandler {
    /// A handler that calls the function at `address`.
    ///
    /// # Errors
    /// When no more handlers fit.
    pub fn create(owner: Owner, address: usize) -> Result<Handle> {
        let held = Mutex::new(Held { times: 0, handle: NULL });
        Self::User(Arc::new(Function { owner, address, held })).hold()
    }

    /// A handle of the handler for the application, which frees it (MPI-5.0 §9.3.4).
    ///
    /// # Errors
    /// As [`Errhandler::create`].
    pub fn hold(&self) -> Result<Handle> {
        match self {
            Self::Fatal => Ok(FATAL),
            Self::Abort => Ok(ABORT),
            Self::Return => Ok(RETURN),
            Self::User(function) => {
                let mut held = function.held();
                if held.times == 0 {
                    held.handle = HANDLERS.insert(Arc::clone(function))?;
                }
                held.times += 1;
                Ok(held.handle)
            }
        }
    }

    /// The handler behind a handle, to be set on an object.
    ///
    /// # Errors
    /// `MPI_ERR_ERRHANDLER` for the null, a stale or a foreign handle, or a handler of other objects.
    pub fn find(handle: Handle, owner: Owner) -> Result<Self> {
        match handle {
            FATAL => Ok(Self::Fatal),
            ABORT => Ok(Self::Abort),
            RETURN => Ok(Self::Return),
            NULL => Err(Error::new(ErrorClass::Errhandler, "the handler is MPI_ERRHANDLER_NULL")),
            _ => {
                let function = HANDLERS.find(handle)?;
                if function.owner != owner {
                    let made = function.owner;
                    let message = format!("the handler is one of {made:?}, not of {owner:?}");
                    return Err(Error::new(ErrorClass::Errhandler, message));
                }
                Ok(Self::User(function))
            }
        }
    }

    /// Gives a handle back; objects that use the handler keep it.
    ///
    /// # Errors
    /// `MPI_ERR_ERRHANDLER` for the null, a stale or a foreign handle.
    pub fn free(handle: Handle) -> Result<()> {
        if handle.is_predefined() {
            return Self::find(handle, Owner::Comm).map(drop);
        }
        let function = HANDLERS.find(handle)?;
        let mut held = function.held();
        held.times -= 1;
        if held.times == 0 {
            HANDLERS.remove(handle)?;
        }
        Ok(())
    }

    /// The handle whose Fortran integer is `value`.
    pub fn from_int(value: i32) -> Handle {
        HANDLERS.from_int(value)
    }
}

impl Function {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// `MPI_ERRHANDLER_NULL`.
pub const NULL: Handle = Handle(0x140);
const FATAL: Handle = Handle(0x141);
const ABORT: Handle = Handle(0x142);
const RETURN: Handle = Handle(0x143);

static HANDLERS: Table<Arc<Function>> = Table::new(Kind::Errhandler);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_outlives_its_handle_and_gets_another() {
        let handle = Errhandler::create(Owner::Comm, 1).unwrap();
        assert!(Errhandler::find(handle, Owner::Win).is_err());
        let handler = Errhandler::find(handle, Owner::Comm).unwrap();
        assert_eq!(handler.hold().unwrap(), handle);
        Errhandler::free(handle).unwrap();
        assert!(Errhandler::find(handle, Owner::Comm).is_ok());
        Errhandler::free(handle).unwrap();
        assert!(Errhandler::free(handle).is_err());
        let again = handler.hold().unwrap();
        assert_ne!(again, handle);
        assert!(Errhandler::find(again, Owner::Comm).is_ok());
        Errhandler::free(again).unwrap();
    }
}
