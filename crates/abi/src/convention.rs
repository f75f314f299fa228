//! Conventions between the generated shims and the function bodies, including error handling.

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

/// Object whose error handler gets a call's failure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    Comm(RawHandle),
    /// No communicator: `MPI_COMM_SELF`'s (MPI-5.0 §9.3).
    Process,
    /// No communicator yet, but what will be its error handler (MPI-5.0 §7.4.2).
    Handler(RawHandle),
}

/// Runs a body and ends its call: success, or whatever the error handler makes of the failure.
#[inline]
pub(crate) fn finish(function: &'static str, on: On, body: impl FnOnce() -> Result<()>) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(error) => crate::error::raise(function, on, error),
    }
}

/// Checks that a place for a result, or with a handle, is not NULL.
#[inline]
pub(crate) fn leads_somewhere<T>(name: &'static str, place: *mut T) -> Result<()> {
    if place.is_null() { Err(null(name)) } else { Ok(()) }
}

/// An array of integers of either width, with the name the standard gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ints {
    pub name: &'static str,
    values: Values,
}

#[derive(Clone, Copy, Debug)]
enum Values {
    Int(*const c_int),
    Count(*const i64),
}

impl Ints {
    /// An array of `int`.
    pub fn int(name: &'static str, values: *const c_int) -> Self {
        Self { name, values: Values::Int(values) }
    }

    /// An array of 64-bit integers.
    pub fn count(name: &'static str, values: *const i64) -> Self {
        Self { name, values: Values::Count(values) }
    }

    /// Checks that there is an array, if it has any values.
    pub fn check(self, len: usize) -> Result<()> {
        match self.values {
            Values::Int(values) => exists(self.name, values, len),
            Values::Count(values) => exists(self.name, values, len),
        }
    }

    /// The first `len` values.
    pub unsafe fn read(self, len: usize) -> Result<Vec<i64>> {
        self.check(len)?;
        // SAFETY: the caller passes an array of `len` values.
        Ok((0..len).map(|index| unsafe { self.at(index) }).collect())
    }

    /// The first `len` values, which are counts.
    pub unsafe fn read_counts(self, len: usize) -> Result<Vec<usize>> {
        self.check(len)?;
        // SAFETY: the array has `len` values, and `index` is below `len`.
        (0..len).map(|index| unsafe { self.count_at(index) }).collect()
    }

    /// Value `index` of an array that has been checked.
    pub unsafe fn at(self, index: usize) -> i64 {
        match self.values {
            // SAFETY: the caller passes an `index` inside the array of `int`.
            Values::Int(values) => i64::from(unsafe { *values.add(index) }),
            // SAFETY: the caller passes an `index` inside the array of 64-bit integers.
            Values::Count(values) => unsafe { *values.add(index) },
        }
    }

    /// Value `index`, which is a count.
    pub unsafe fn count_at(self, index: usize) -> Result<usize> {
        // SAFETY: the caller passes an `index` inside the array.
        let value = unsafe { self.at(index) };
        usize::try_from(value).map_err(|_| {
            class(ErrorClass::Count, format!("{}[{index}] = {value} is negative", self.name))
        })
    }
}

/// Place for an integer result of either width.
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

/// Place for the handle of a new datatype, with the form of the call (`int` or large count).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewType {
    pub place: *mut RawHandle,
    pub is_large: bool,
}

impl NewType {
    /// Asked for by the form with `int`s, or by the only one.
    pub fn small(place: *mut RawHandle) -> Self {
        Self { place, is_large: false }
    }

    /// Asked for by the form with `MPI_Count`s.
    pub fn large(place: *mut RawHandle) -> Self {
        Self { place, is_large: true }
    }
}

/// Checks that there is an array of `len` entries, if it has any, and that memory can hold so many.
fn exists<T>(name: &str, entries: *const T, len: usize) -> Result<()> {
    let is_too_long = len.checked_mul(size_of::<T>()).is_none_or(|n| n > isize::MAX as usize);
    match len {
        0 => Ok(()),
        _ if entries.is_null() => Err(null(name)),
        _ if is_too_long => Err(Error::argument(format!("{name}: {len} entries exceed memory"))),
        _ => Ok(()),
    }
}

/// The first `len` entries of an array.
pub(crate) unsafe fn array<'a, T>(
    name: &'static str,
    entries: *const T,
    len: usize,
) -> Result<&'a [T]> {
    exists(name, entries, len)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: the caller passes an array of `len` entries.
        _ => Ok(unsafe { std::slice::from_raw_parts(entries, len) }),
    }
}

/// An argument that leads nowhere.
#[cold]
pub(crate) fn null(name: &str) -> Error {
    Error::argument(format!("{name} is NULL"))
}

/// Names the argument at fault. No argument is at fault when the library is not initialised.
#[inline]
pub(crate) fn named<T>(name: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error.class {
        ErrorClass::Other => error,
        _ => error.about(name),
    })
}

/// Writes a result, to a place that is not NULL.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller passes a place for the result.
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
