//! Packing into contiguous memory (MPI-5.0 §5.2).

use std::ffi::c_void;

use memory::Region;

use crate::arguments::{Names, buffer, comm, committed, count, length};
use crate::convention::*;

pub(crate) unsafe fn pack(
    inbuf: *const c_void,
    incount: i64,
    datatype: RawHandle,
    outbuf: *mut c_void,
    outsize: i64,
    position: OutInt,
    on: RawHandle,
) -> Result<()> {
    comm(on)?;
    // SAFETY: as the body's.
    unsafe {
        let source = buffer(&IN, inbuf, incount, datatype)?;
        let at = place(position, source.len(), outsize, "outsize")?;
        packed("outbuf", outbuf, outsize)?;
        Region::new(outbuf.cast::<u8>().add(at), source.len()).copy_from(&source);
        position.write((at + source.len()) as i64);
    }
    Ok(())
}

pub(crate) unsafe fn unpack(
    inbuf: *const c_void,
    insize: i64,
    position: OutInt,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: RawHandle,
    on: RawHandle,
) -> Result<()> {
    comm(on)?;
    // SAFETY: as the body's.
    unsafe {
        let target = buffer(&OUT, outbuf, outcount, datatype)?;
        let at = place(position, target.len(), insize, "insize")?;
        packed("inbuf", inbuf, insize)?;
        let source = inbuf.cast::<u8>().add(at).cast_mut();
        target.copy_from(&Region::new(source, target.len()));
        position.write((at + target.len()) as i64);
    }
    Ok(())
}

pub(crate) unsafe fn pack_size(
    incount: i64,
    datatype: RawHandle,
    on: RawHandle,
    size: OutInt,
) -> Result<()> {
    comm(on)?;
    let bytes = committed("datatype", datatype)?.size().checked_mul(count("incount", incount)?);
    let too_large =
        || class(ErrorClass::Count, format!("incount = {incount} elements exceed memory"));
    // SAFETY: as the body's.
    unsafe { size.write(bytes.ok_or_else(too_large)? as i64) };
    Ok(())
}

/// The position, with room for `len` bytes before `size`.
unsafe fn place(position: OutInt, len: usize, size: i64, name: &str) -> Result<usize> {
    let room = length(name, size)?;
    // SAFETY: as the body's.
    let at = unsafe { position.read() };
    match usize::try_from(at) {
        Ok(start) if start.checked_add(len).is_some_and(|end| end <= room) => Ok(start),
        _ => Err(Error::argument(format!("{len} bytes at position = {at} exceed {name} = {size}"))),
    }
}

/// Checks the address of packed data.
fn packed(name: &str, address: *const c_void, size: i64) -> Result<()> {
    if (address as usize) < 16 && size > 0 {
        return Err(class(ErrorClass::Buffer, format!("{name} = {address:?} for {size} bytes")));
    }
    Ok(())
}

const IN: Names = Names::new("inbuf", "incount", "datatype");
const OUT: Names = Names::new("outbuf", "outcount", "datatype");
