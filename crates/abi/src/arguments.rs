//! Arguments that many functions take: checked, and turned into the `mpi` crate's terms.

use std::ffi::{CStr, c_char, c_int, c_void};

use datatype::Datatype;
use memory::Region;
use mpi::comm::{self, CommRef};
use mpi::objects;
use mpi::point_to_point::From;

use crate::convention::*;

/// The communicator.
#[inline]
pub(crate) fn comm(raw: RawHandle) -> Result<CommRef> {
    comm::find(handle(raw))
}

/// The destination of a send; none is `MPI_PROC_NULL`.
#[inline]
pub(crate) fn destination(comm: &CommRef, rank: c_int) -> Result<Option<u32>> {
    match u32::try_from(rank) {
        Ok(rank) if rank < comm.size() => Ok(Some(rank)),
        _ if rank == PROC_NULL => Ok(None),
        _ => Err(bad_rank("dest", rank, comm.size())),
    }
}

/// The source of a receive.
#[inline]
pub(crate) fn source(comm: &CommRef, rank: c_int) -> Result<From> {
    match u32::try_from(rank) {
        Ok(rank) if rank < comm.size() => Ok(From::Rank(rank)),
        _ => match rank {
            ANY_SOURCE => Ok(From::Any),
            PROC_NULL => Ok(From::Null),
            _ => Err(bad_rank("source", rank, comm.size())),
        },
    }
}

/// The root of a collective.
pub(crate) fn root(comm: &CommRef, rank: c_int) -> Result<u32> {
    match u32::try_from(rank) {
        Ok(rank) if rank < comm.size() => Ok(rank),
        _ => {
            let text = format!("root = {rank} is outside a communicator of {}", comm.size());
            Err(class(ErrorClass::Root, text))
        }
    }
}

/// The tag of a send.
#[inline]
pub(crate) fn tag(tag: c_int) -> Result<c_int> {
    match tag {
        0.. => Ok(tag),
        _ => Err(class(ErrorClass::Tag, format!("tag = {tag} is negative"))),
    }
}

/// The tag of a receive.
#[inline]
pub(crate) fn tag_or_any(value: c_int) -> Result<Option<c_int>> {
    match value {
        ANY_TAG => Ok(None),
        _ => tag(value).map(Some),
    }
}

/// A count of elements.
#[inline]
pub(crate) fn count(count: i64) -> Result<usize> {
    usize::try_from(count)
        .map_err(|_| class(ErrorClass::Count, format!("count = {count} is negative")))
}

/// A datatype to communicate with.
#[inline]
pub(crate) fn committed(raw: RawHandle) -> Result<Datatype> {
    let datatype = objects::datatype(handle(raw))?;
    if !datatype.is_committed() {
        return Err(class(ErrorClass::Type, "the datatype is not committed".into()));
    }
    Ok(datatype)
}

/// The memory of a buffer argument.
///
/// # Safety
/// The memory belongs to the operation until it completes, as the standard says of buffers.
#[inline]
pub(crate) unsafe fn buffer(
    address: *const c_void,
    elements: i64,
    datatype: RawHandle,
) -> Result<Region> {
    let elements = count(elements)?;
    if handle(datatype).is_predefined() {
        // Without a reference count: predefined types are always there, and always committed.
        // SAFETY: the caller's promise.
        return unsafe { region(address, elements, objects::predefined(handle(datatype))?) };
    }
    let datatype = committed(datatype)?;
    // SAFETY: the caller's promise.
    unsafe { region(address, elements, &datatype) }
}

/// `elements` elements of a datatype at an address.
///
/// # Safety
/// As [`buffer`].
#[inline]
pub(crate) unsafe fn region(
    address: *const c_void,
    elements: usize,
    datatype: &Datatype,
) -> Result<Region> {
    if datatype.size().checked_mul(elements).is_none_or(|bytes| bytes > isize::MAX as usize) {
        let text = format!("{elements} elements of {} bytes exceed memory", datatype.size());
        return Err(class(ErrorClass::Count, text));
    }
    let is_special = (address as usize) < 16 && !address.is_null();
    let is_null = address.is_null() && datatype.as_builtin().is_some();
    if elements > 0 && datatype.size() > 0 && (is_null || is_special) {
        let text = format!("the buffer is {address:?} but count is {elements}");
        return Err(class(ErrorClass::Buffer, text));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Region::elements(address.cast_mut().cast(), elements, datatype.layout()) })
}

/// A C string.
///
/// # Safety
/// The pointer leads to a string that ends in a zero byte, or is null.
pub(crate) unsafe fn string(text: *const c_char) -> Result<String> {
    if text.is_null() {
        return Err(Error::argument("a string is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

fn bad_rank(name: &str, rank: c_int, size: u32) -> Error {
    class(ErrorClass::Rank, format!("{name} = {rank} is outside a communicator of {size}"))
}

pub(crate) const ANY_SOURCE: c_int = -1;
pub(crate) const ANY_TAG: c_int = -2;
pub(crate) const PROC_NULL: c_int = -3;
