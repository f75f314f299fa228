//! Packing into contiguous memory (MPI-5.0 §5.2).

use std::ffi::{c_char, c_void};

use datatype::Datatype;
use memory::Region;

use crate::arguments::{Names, buffer, comm, committed, count, length, string};
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
    // SAFETY: `inbuf` holds `incount` elements of `datatype`; `outbuf` has `outsize` bytes;
    // `position` points to an integer.
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
    // SAFETY: `inbuf` holds `insize` bytes; `outbuf` has room for `outcount` elements of
    // `datatype`; `position` points to an integer.
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
    // SAFETY: `size` points to a variable of the caller.
    unsafe { size.write(bytes.ok_or_else(too_large)? as i64) };
    Ok(())
}

pub(crate) unsafe fn pack_external(
    datarep: *const c_char,
    inbuf: *const c_void,
    incount: i64,
    datatype: RawHandle,
    outbuf: *mut c_void,
    outsize: i64,
    position: OutInt,
) -> Result<()> {
    // SAFETY: `inbuf` holds `incount` elements of `datatype`; `outbuf` has `outsize`
    // bytes; `position` points to an integer; `datarep` is a C string.
    unsafe {
        check_representation(datarep)?;
        let source = buffer(&IN, inbuf, incount, datatype)?;
        let kind = committed("datatype", datatype)?;
        let len = external_size("incount", &kind, count("incount", incount)?)?;
        let at = place(position, len, outsize, "outsize")?;
        packed("outbuf", outbuf, outsize)?;
        let converted = kind.to_external(&source.to_vec());
        let converted =
            converted.map_err(|error| class(ErrorClass::Conversion, format!("inbuf: {error}")))?;
        outbuf.cast::<u8>().add(at).copy_from(converted.as_ptr(), converted.len());
        position.write((at + converted.len()) as i64);
    }
    Ok(())
}

pub(crate) unsafe fn unpack_external(
    datarep: *const c_char,
    inbuf: *const c_void,
    insize: i64,
    position: OutInt,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: RawHandle,
) -> Result<()> {
    // SAFETY: `outbuf` has room for `outcount` elements of `datatype`; `inbuf` holds `insize`
    // bytes; `position` points to an integer; `datarep` is a C string.
    unsafe {
        check_representation(datarep)?;
        let target = buffer(&OUT, outbuf, outcount, datatype)?;
        let kind = committed("datatype", datatype)?;
        let count = count("outcount", outcount)?;
        let len = external_size("outcount", &kind, count)?;
        let at = place(position, len, insize, "insize")?;
        packed("inbuf", inbuf, insize)?;
        let external = array("inbuf", inbuf.cast::<u8>().wrapping_add(at), len)?;
        target.write(0, &kind.from_external(external));
        position.write((at + len) as i64);
    }
    Ok(())
}

pub(crate) unsafe fn pack_external_size(
    datarep: *const c_char,
    incount: i64,
    datatype: RawHandle,
    size: OutInt,
) -> Result<()> {
    // SAFETY: `size` points to a variable of the caller; `datarep` is a C string.
    unsafe {
        check_representation(datarep)?;
        let datatype = committed("datatype", datatype)?;
        let bytes = external_size("incount", &datatype, count("incount", incount)?)?;
        size.write(bytes as i64);
    }
    Ok(())
}

fn external_size(name: &str, datatype: &Datatype, count: usize) -> Result<usize> {
    let bytes = datatype.external_size().and_then(|each| each.checked_mul(count));
    let too_many = || format!("{name} = {count} elements exceed memory");
    bytes.ok_or_else(|| class(ErrorClass::Count, too_many()))
}

unsafe fn check_representation(datarep: *const c_char) -> Result<()> {
    // SAFETY: `datarep` is a C string or NULL.
    let name = unsafe { string("datarep", datarep) }?;
    match &*name {
        "external32" => Ok(()),
        _ => Err(Error::argument(format!("datarep = {name} is not external32"))),
    }
}

/// The position, with room for `len` bytes before `size`.
unsafe fn place(position: OutInt, len: usize, size: i64, name: &str) -> Result<usize> {
    let room = length(name, size)?;
    // SAFETY: `position` points to an initialised integer of the caller.
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
