//! How the shims call the bodies, and what becomes of failures.

use std::ffi::c_int;

pub(crate) use crate::error::unsupported;
use mpi::table::Handle;
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

/// Whose error handler gets a call's failure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    Comm(RawHandle),
    /// No communicator: `MPI_COMM_SELF`'s (MPI-5.0 §9.3).
    Process,
}

/// Ends a call: success, or whatever the error handler makes of the failure.
#[inline]
pub(crate) fn finish(function: &'static str, on: On, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => crate::error::raise(function, on, error),
    }
}

/// An array of integers of either width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ints {
    Int(*const c_int),
    Count(*const i64),
}

impl Ints {
    /// The first `len` values.
    pub unsafe fn read(self, len: usize) -> Vec<i64> {
        // SAFETY: the caller passes an array of `len` values.
        (0..len).map(|index| unsafe { self.at(index) }).collect()
    }

    /// Value `index`.
    pub unsafe fn at(self, index: usize) -> i64 {
        match self {
            // SAFETY: as for `read`.
            Self::Int(values) => i64::from(unsafe { *values.add(index) }),
            // SAFETY: as for `read`.
            Self::Count(values) => unsafe { *values.add(index) },
        }
    }
}

/// Where an integer result of either width goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutInt {
    Int(*mut c_int),
    Count(*mut i64),
}

impl OutInt {
    /// Writes a result; one that does not fit an `int` becomes `MPI_UNDEFINED`.
    pub unsafe fn write(self, value: i64) {
        // SAFETY: the caller passes a place for the result.
        unsafe {
            match self {
                Self::Int(place) => *place = c_int::try_from(value).unwrap_or(UNDEFINED),
                Self::Count(place) => *place = value,
            }
        }
    }

    /// The value that is there.
    pub unsafe fn read(self) -> i64 {
        // SAFETY: the caller passes a place with a value.
        unsafe {
            match self {
                Self::Int(place) => i64::from(*place),
                Self::Count(place) => *place,
            }
        }
    }
}

/// Writes a result.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Error::argument("a place for a result is NULL"));
    }
    // SAFETY: the caller passes a place for the result, and it is not null.
    unsafe { place.write(value) };
    Ok(())
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
