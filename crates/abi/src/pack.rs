//! Packing into contiguous memory (MPI-5.0 §5.2).

use datatype::Datatype;

use crate::arguments::{Names, buffer, comm, committed_for, count, length};
use crate::convention::*;

pub(crate) fn pack(
    inbuf: Address,
    incount: i64,
    datatype: RawHandle,
    outbuf: Address,
    outsize: i64,
    position: InOutInt,
    on: RawHandle,
) -> Result<()> {
    comm(on)?;
    let source = buffer(&IN, inbuf, incount, datatype)?;
    let at = place(position, source.len(), outsize, "outsize")?;
    packed("outbuf", outbuf, outsize)?;
    outbuf.bytes(at as isize, source.len()).copy_from(&source);
    position.put((at + source.len()) as i64)
}

pub(crate) fn unpack(
    inbuf: Address,
    insize: i64,
    position: InOutInt,
    outbuf: Address,
    outcount: i64,
    datatype: RawHandle,
    on: RawHandle,
) -> Result<()> {
    comm(on)?;
    let target = buffer(&OUT, outbuf, outcount, datatype)?;
    let at = place(position, target.len(), insize, "insize")?;
    packed("inbuf", inbuf, insize)?;
    target.copy_from(&inbuf.bytes(at as isize, target.len()));
    position.put((at + target.len()) as i64)
}

pub(crate) fn pack_size(
    incount: i64,
    datatype: RawHandle,
    on: RawHandle,
    size: OutInt,
) -> Result<()> {
    comm(on)?;
    let elements = count("incount", incount)?;
    let bytes = committed_for("datatype", datatype, elements)?.size().checked_mul(elements);
    let too_large =
        || class(ErrorClass::Count, format!("incount = {incount} elements exceed memory"));
    size.put(bytes.ok_or_else(too_large)? as i64)
}

pub(crate) fn pack_external(
    datarep: String,
    inbuf: Address,
    incount: i64,
    datatype: RawHandle,
    outbuf: Address,
    outsize: i64,
    position: InOutInt,
) -> Result<()> {
    check_representation(&datarep)?;
    let source = buffer(&IN, inbuf, incount, datatype)?;
    let elements = count("incount", incount)?;
    let kind = committed_for("datatype", datatype, elements)?;
    let len = external_size("incount", &kind, elements)?;
    let at = place(position, len, outsize, "outsize")?;
    packed("outbuf", outbuf, outsize)?;
    let converted = kind.to_external(&source.to_vec());
    let converted =
        converted.map_err(|error| class(ErrorClass::Conversion, format!("inbuf: {error}")))?;
    outbuf.bytes(at as isize, converted.len()).write(0, &converted);
    position.put((at + converted.len()) as i64)
}

pub(crate) fn unpack_external(
    datarep: String,
    inbuf: Address,
    insize: i64,
    position: InOutInt,
    outbuf: Address,
    outcount: i64,
    datatype: RawHandle,
) -> Result<()> {
    check_representation(&datarep)?;
    let target = buffer(&OUT, outbuf, outcount, datatype)?;
    let count = count("outcount", outcount)?;
    let kind = committed_for("datatype", datatype, count)?;
    let len = external_size("outcount", &kind, count)?;
    let at = place(position, len, insize, "insize")?;
    packed("inbuf", inbuf, insize)?;
    target.write(0, &kind.from_external(&inbuf.bytes(at as isize, len).to_vec()));
    position.put((at + len) as i64)
}

pub(crate) fn pack_external_size(
    datarep: String,
    incount: i64,
    datatype: RawHandle,
    size: OutInt,
) -> Result<()> {
    check_representation(&datarep)?;
    let elements = count("incount", incount)?;
    let datatype = committed_for("datatype", datatype, elements)?;
    let bytes = external_size("incount", &datatype, elements)?;
    size.put(bytes as i64)
}

fn external_size(name: &str, datatype: &Datatype, count: usize) -> Result<usize> {
    let bytes = datatype.external_size().and_then(|each| each.checked_mul(count));
    let too_many = || format!("{name} = {count} elements exceed memory");
    bytes.ok_or_else(|| class(ErrorClass::Count, too_many()))
}

fn check_representation(name: &str) -> Result<()> {
    match name {
        "external32" => Ok(()),
        _ => Err(Error::argument(format!("datarep = {name} is not external32"))),
    }
}

/// The position, with room for `len` bytes before `size`.
fn place(position: InOutInt, len: usize, size: i64, name: &str) -> Result<usize> {
    let room = length(name, size)?;
    let at = position.get();
    match usize::try_from(at) {
        Ok(start) if start.checked_add(len).is_some_and(|end| end <= room) => Ok(start),
        _ => Err(Error::argument(format!("{len} bytes at position = {at} exceed {name} = {size}"))),
    }
}

/// Checks the address of packed data.
fn packed(name: &str, address: Address, size: i64) -> Result<()> {
    if (address.get() as usize) < 16 && size > 0 {
        return Err(class(
            ErrorClass::Buffer,
            format!("{name} = {:?} for {size} bytes", address.get()),
        ));
    }
    Ok(())
}

const IN: Names = Names::new("inbuf", "incount", "datatype");
const OUT: Names = Names::new("outbuf", "outcount", "datatype");
