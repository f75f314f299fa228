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
            Source::None | Source::Inactive => ANY_SOURCE,
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

pub(crate) fn get_count(status: &Status, datatype: RawHandle, count: OutInt) -> Result<()> {
    let bytes = status.bytes();
    let datatype = crate::arguments::datatype("datatype", datatype)?;
    let found = datatype.count_in(bytes).map_or(i64::from(UNDEFINED), |count| count as i64);
    count.put(found)
}

pub(crate) fn get_elements(status: &Status, datatype: RawHandle, count: OutInt) -> Result<()> {
    let bytes = status.bytes();
    let datatype = crate::arguments::datatype("datatype", datatype)?;
    let found = datatype.elements_in(bytes).map_or(i64::from(UNDEFINED), |count| count as i64);
    count.put(found)
}

pub(crate) fn get_elements_x(status: &Status, datatype: RawHandle, count: Out<i64>) -> Result<()> {
    get_elements(status, datatype, OutInt::Count(count))
}

pub(crate) fn status_set_elements(
    status: &mut Status,
    datatype: RawHandle,
    count: i64,
) -> Result<()> {
    let datatype = crate::arguments::datatype("datatype", datatype)?;
    let elements = crate::arguments::count("count", count)?;
    let too_many = || class(ErrorClass::Count, format!("count = {elements} elements are too many"));
    let bytes = datatype.bytes_of(elements as u64).ok_or_else(too_many)?;
    status.set_bytes(bytes);
    Ok(())
}

pub(crate) fn status_set_elements_x(
    status: &mut Status,
    datatype: RawHandle,
    count: i64,
) -> Result<()> {
    status_set_elements(status, datatype, count)
}

pub(crate) fn status_set_cancelled(status: &mut Status, flag: c_int) -> Result<()> {
    status.internal[2] = c_int::from(flag != 0);
    Ok(())
}

pub(crate) fn test_cancelled(status: &Status, flag: Out<c_int>) -> Result<()> {
    flag.put(status.internal[2])
}

macro_rules! fields {
    ($($get:ident $set:ident $field:ident;)*) => {$(
        pub(crate) fn $get(status: &Status, value: Out<c_int>) -> Result<()> {
            value.put(status.$field)
        }

        pub(crate) fn $set(status: &mut Status, value: c_int) -> Result<()> {
            status.$field = value;
            Ok(())
        }
    )*};
}

fields! {
    status_get_source status_set_source source;
    status_get_tag status_set_tag tag;
    status_get_error status_set_error error;
}
