//! Conventions between the generated shims and the function bodies, including error handling.

use std::ffi::c_int;

use handles::Handle;

pub(crate) use crate::caller::*;
pub(crate) use mpi::{Error, ErrorClass, Result};

/// A handle as C passes it: a pointer to nothing.
pub(crate) type RawHandle = usize;

/// A callback as C passes it.
pub(crate) type Function = *const std::ffi::c_void;

/// `MPI_Status` (MPI-5.0 §20.3): three named integers, five of the library's own. The first two of
/// these are the number of bytes, low word first; the third tells of cancellation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) error: c_int,
    pub(crate) internal: [c_int; 5],
}

/// `MPI_FILE_NULL`, whose error handler gets failures that concern no open file (MPI-5.0 §14.7).
pub(crate) const FILE_NULL: RawHandle = mpi::file::NULL.0 as RawHandle;

/// Object whose error handler gets a call's failure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    Comm(RawHandle),
    Win(RawHandle),
    File(RawHandle),
    Session(RawHandle),
    /// None of them: `MPI_COMM_SELF`'s (MPI-5.0 §9.3).
    Process,
    /// No communicator yet, but what will be its error handler (MPI-5.0 §7.4.2).
    Handler(RawHandle),
    /// No session yet, but what will be its error handler (MPI-5.0 §11.3.1).
    NewSession(RawHandle),
}

/// Runs a body and ends its call: success, or whatever the error handler makes of the failure.
#[inline]
pub(crate) fn finish(function: &'static str, on: On, body: impl FnOnce() -> Result<()>) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(error) => crate::error::raise(function, on, error),
    }
}

/// [`finish`] for a call that gives handles: a failed one sets them to null.
#[inline]
pub(crate) fn finish_or(
    function: &'static str,
    on: On,
    body: impl FnOnce() -> Result<()>,
    unset: impl FnOnce(),
) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(error) => {
            unset();
            crate::error::raise(function, on, error)
        }
    }
}

/// An argument that leads nowhere.
#[cold]
pub(crate) fn null(name: &str) -> Error {
    Error::argument(format!("{name} is NULL"))
}

/// Names the argument at fault. No argument is at fault when the library is not initialised.
#[inline]
pub(crate) fn named<T>(name: &str, result: Result<T, impl Into<Error>>) -> Result<T> {
    result.map_err(|error| {
        let error: Error = error.into();
        match error.class {
            ErrorClass::Other => error,
            _ => error.about(name),
        }
    })
}

/// The handle's raw form.
pub(crate) fn raw(handle: Handle) -> RawHandle {
    handle.0 as RawHandle
}

/// The handle in a raw form.
pub(crate) fn handle(raw: RawHandle) -> Handle {
    Handle(raw as u64)
}

pub(crate) fn class(class: ErrorClass, text: String) -> Error {
    Error::new(class, text)
}

/// `MPI_UNDEFINED`.
pub(crate) const UNDEFINED: c_int = -32766;
