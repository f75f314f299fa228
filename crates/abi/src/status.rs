//! `MPI_Status` (MPI-5.0 §3.2.5).

use std::ffi::c_int;

use mpi::request::{self, Source};

use crate::arguments::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use crate::convention::*;

impl Status {
    /// The C form of a status.
    pub fn of(status: &request::Status) -> Self {
        let source = match status.source {
            Source::Rank(rank) => rank as c_int,
            Source::ProcNull => PROC_NULL,
            Source::None => ANY_SOURCE,
        };
        let bytes = status.bytes;
        let internal =
            [bytes as c_int, (bytes >> 32) as c_int, c_int::from(status.cancelled), 0, 0];
        Self { source, tag: status.tag.unwrap_or(ANY_TAG), error: 0, internal }
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        u64::from(self.internal[0] as u32) | u64::from(self.internal[1] as u32) << 32
    }

    fn set_bytes(&mut self, bytes: u64) {
        self.internal[0] = bytes as c_int;
        self.internal[1] = (bytes >> 32) as c_int;
    }
}

/// Writes a status unless it is ignored; the error field stays as it is (MPI-5.0 §3.2.5).
pub(crate) unsafe fn fill(place: *mut Status, status: &request::Status) {
    if !place.is_null() {
        // SAFETY: the caller passes a status.
        unsafe {
            let error = (*place).error;
            *place = Status { error, ..Status::of(status) };
        }
    }
}

unsafe fn read(status: *const Status) -> Result<Status> {
    // SAFETY: the caller passes a status.
    unsafe { place(status.cast_mut()) }.map(|status| *status)
}

unsafe fn place<'a>(status: *mut Status) -> Result<&'a mut Status> {
    // SAFETY: the caller passes a status.
    unsafe { status.as_mut() }.ok_or_else(|| Error::argument("status is MPI_STATUS_IGNORE"))
}

pub(crate) unsafe fn get_count(
    status: *const Status,
    datatype: RawHandle,
    count: OutInt,
) -> Result<()> {
    // SAFETY: `status` points to a status of the caller.
    let bytes = unsafe { read(status) }?.bytes();
    let datatype = crate::arguments::datatype("datatype", datatype)?;
    let found = datatype.count_in(bytes).map_or(i64::from(UNDEFINED), |count| count as i64);
    // SAFETY: `count` points to a variable of the caller.
    unsafe { count.write(found) };
    Ok(())
}

pub(crate) unsafe fn get_elements(
    status: *const Status,
    datatype: RawHandle,
    count: OutInt,
) -> Result<()> {
    // SAFETY: `status` points to a status of the caller.
    let bytes = unsafe { read(status) }?.bytes();
    let datatype = crate::arguments::datatype("datatype", datatype)?;
    let found = datatype.elements_in(bytes).map_or(i64::from(UNDEFINED), |count| count as i64);
    // SAFETY: `count` points to a variable of the caller.
    unsafe { count.write(found) };
    Ok(())
}

pub(crate) unsafe fn get_elements_x(
    status: *const Status,
    datatype: RawHandle,
    count: *mut i64,
) -> Result<()> {
    // SAFETY: the caller's pointers go to `get_elements`, which has the same conditions.
    unsafe { get_elements(status, datatype, OutInt::Count(count)) }
}

pub(crate) unsafe fn status_set_elements(
    status: *mut Status,
    datatype: RawHandle,
    count: i64,
) -> Result<()> {
    let datatype = crate::arguments::datatype("datatype", datatype)?;
    let elements = crate::arguments::count("count", count)?;
    let too_many = || class(ErrorClass::Count, format!("count = {elements} elements are too many"));
    let bytes = datatype.bytes_of(elements as u64).ok_or_else(too_many)?;
    // SAFETY: `status` points to a status of the caller.
    unsafe { place(status) }?.set_bytes(bytes);
    Ok(())
}

pub(crate) unsafe fn status_set_elements_x(
    status: *mut Status,
    datatype: RawHandle,
    count: i64,
) -> Result<()> {
    // SAFETY: the caller's pointers go to `status_set_elements`, which has the same conditions.
    unsafe { status_set_elements(status, datatype, count) }
}

pub(crate) unsafe fn status_set_cancelled(status: *mut Status, flag: c_int) -> Result<()> {
    // SAFETY: `status` points to a status of the caller.
    unsafe { place(status) }?.internal[2] = c_int::from(flag != 0);
    Ok(())
}

pub(crate) unsafe fn test_cancelled(status: *const Status, flag: *mut c_int) -> Result<()> {
    // SAFETY: `status` points to a status of the caller; `flag` points to a variable of the caller.
    unsafe { put(flag, read(status)?.internal[2]) }
}

macro_rules! fields {
    ($($get:ident $set:ident $field:ident;)*) => {$(
        pub(crate) unsafe fn $get(status: *const Status, value: *mut c_int) -> Result<()> {
            // SAFETY: `status` points to a status of the caller; `value` points to a variable of
            // the caller.
            unsafe { put(value, read(status)?.$field) }
        }

        pub(crate) unsafe fn $set(status: *mut Status, value: c_int) -> Result<()> {
            // SAFETY: `status` points to a status of the caller.
            unsafe { place(status) }?.$field = value;
            Ok(())
        }
    )*};
}

fields! {
    status_get_source status_set_source source;
    status_get_tag status_set_tag tag;
    status_get_error status_set_error error;
}
