//! Datatypes (MPI-5.0 §5.1).

use std::ffi::{c_char, c_int};

use datatype::{ArrayOrder, Builtin, Combiner, Contents, Datatype, TypeError};
use mpi::objects::{self, DATATYPES};

use crate::arguments::{count, length, string};
use crate::attribute;
use crate::comm::NAME_MAX;
use crate::convention::*;
use crate::error::write_string;

fn find(datatype: RawHandle) -> Result<Datatype> {
    crate::arguments::datatype("datatype", datatype)
}

fn find_old(oldtype: RawHandle) -> Result<Datatype> {
    crate::arguments::datatype("oldtype", oldtype)
}

/// Gives a new type a handle.
unsafe fn give(made: Result<Datatype, TypeError>, place: *mut RawHandle) -> Result<()> {
    let made = made.map_err(|error| Error::argument(error.to_string()))?;
    // SAFETY: as the body's.
    unsafe { put(place, raw(DATATYPES.insert(made)?)) }
}

pub(crate) unsafe fn type_commit(datatype: *mut RawHandle) -> Result<()> {
    // SAFETY: as the body's.
    find(unsafe { *datatype })?.commit();
    Ok(())
}

pub(crate) unsafe fn type_free(datatype: *mut RawHandle) -> Result<()> {
    // SAFETY: as the body's.
    unsafe {
        find(*datatype)?;
        if handle(*datatype).is_predefined() {
            return Err(class(
                ErrorClass::Type,
                "datatype: a predefined datatype cannot be freed".into(),
            ));
        }
        attribute::delete_type(*datatype)?;
        DATATYPES.remove(handle(*datatype))?;
        put(datatype, DATATYPE_NULL)
    }
}

pub(crate) unsafe fn type_dup(old: RawHandle, new: *mut RawHandle) -> Result<()> {
    // SAFETY: as the body's.
    unsafe {
        give(Ok(find_old(old)?.duplicate()), new)?;
        attribute::copy_type(old, *new)
    }
}

pub(crate) unsafe fn type_contiguous(n: i64, old: RawHandle, new: *mut RawHandle) -> Result<()> {
    count("count", n)?;
    // SAFETY: as the body's.
    unsafe { give(Datatype::contiguous(n, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_vector(
    n: i64,
    block: i64,
    stride: i64,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    count("count", n)?;
    // SAFETY: as the body's.
    unsafe { give(Datatype::vector(n, block, stride, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_create_hvector(
    n: i64,
    block: i64,
    stride: i64,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    count("count", n)?;
    // SAFETY: as the body's.
    unsafe { give(Datatype::hvector(n, block, stride, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_indexed(
    n: i64,
    lengths: Ints,
    displacements: Ints,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: as the body's.
    unsafe {
        give(Datatype::indexed(&lengths.read(n)?, &displacements.read(n)?, &find_old(old)?), new)
    }
}

pub(crate) unsafe fn type_create_hindexed(
    n: i64,
    lengths: Ints,
    displacements: Ints,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: as the body's.
    unsafe {
        give(Datatype::hindexed(&lengths.read(n)?, &displacements.read(n)?, &find_old(old)?), new)
    }
}

pub(crate) unsafe fn type_create_indexed_block(
    n: i64,
    length: i64,
    displacements: Ints,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: as the body's.
    unsafe { give(Datatype::indexed_block(length, &displacements.read(n)?, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_create_hindexed_block(
    n: i64,
    length: i64,
    displacements: Ints,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: as the body's.
    unsafe { give(Datatype::hindexed_block(length, &displacements.read(n)?, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_create_struct(
    n: i64,
    lengths: Ints,
    displacements: Ints,
    types: *const RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: as the body's.
    unsafe {
        let types = array("array_of_types", types, n)?.iter().enumerate().map(|(index, &raw)| {
            let found = objects::datatype(handle(raw));
            found.map_err(|error| error.about(format!("array_of_types[{index}]")))
        });
        let types: Result<Vec<_>> = types.collect();
        give(Datatype::structure(&lengths.read(n)?, &displacements.read(n)?, &types?), new)
    }
}

pub(crate) unsafe fn type_create_resized(
    old: RawHandle,
    lower: i64,
    extent: i64,
    new: *mut RawHandle,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { give(find_old(old)?.resized(lower, extent), new) }
}

pub(crate) unsafe fn type_create_subarray(
    dimensions: c_int,
    sizes: Ints,
    subsizes: Ints,
    starts: Ints,
    order: c_int,
    old: RawHandle,
    new: *mut RawHandle,
) -> Result<()> {
    let n = length("ndims", dimensions)?;
    let order = match order {
        0xc => ArrayOrder::C,
        0xf => ArrayOrder::Fortran,
        _ => return Err(Error::argument(format!("order = {order} is no order of arrays"))),
    };
    // SAFETY: as the body's.
    unsafe {
        let (sizes, subsizes, starts) = (sizes.read(n)?, subsizes.read(n)?, starts.read(n)?);
        give(Datatype::subarray(&sizes, &subsizes, &starts, order, &find_old(old)?), new)
    }
}

pub(crate) unsafe fn type_size(datatype: RawHandle, size: OutInt) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { size.write(find(datatype)?.size() as i64) };
    Ok(())
}

pub(crate) unsafe fn type_size_x(datatype: RawHandle, size: *mut i64) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { put(size, find(datatype)?.size() as i64) }
}

pub(crate) unsafe fn type_get_extent(
    datatype: RawHandle,
    lower: OutInt,
    extent: OutInt,
) -> Result<()> {
    let (lb, bytes) = find(datatype)?.extent();
    // SAFETY: as the body's.
    unsafe {
        lower.write(lb as i64);
        extent.write(bytes as i64);
    }
    Ok(())
}

pub(crate) unsafe fn type_get_extent_x(
    datatype: RawHandle,
    lower: *mut i64,
    extent: *mut i64,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { type_get_extent(datatype, OutInt::Count(lower), OutInt::Count(extent)) }
}

pub(crate) unsafe fn type_get_true_extent(
    datatype: RawHandle,
    lower: OutInt,
    extent: OutInt,
) -> Result<()> {
    let (lb, bytes) = find(datatype)?.true_extent();
    // SAFETY: as the body's.
    unsafe {
        lower.write(lb as i64);
        extent.write(bytes as i64);
    }
    Ok(())
}

pub(crate) unsafe fn type_get_true_extent_x(
    datatype: RawHandle,
    lower: *mut i64,
    extent: *mut i64,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { type_get_true_extent(datatype, OutInt::Count(lower), OutInt::Count(extent)) }
}

pub(crate) unsafe fn type_set_name(datatype: RawHandle, name: *const c_char) -> Result<()> {
    // SAFETY: as the body's.
    find(datatype)?.set_name(unsafe { string("type_name", name) }?.as_bytes());
    Ok(())
}

pub(crate) unsafe fn type_get_name(
    datatype: RawHandle,
    name: *mut c_char,
    len: *mut c_int,
) -> Result<()> {
    let known = match datatype {
        DATATYPE_NULL => "MPI_DATATYPE_NULL".into(),
        _ => String::from_utf8_lossy(&find(datatype)?.name()).into_owned(),
    };
    // SAFETY: as the body's: a place for MPI_MAX_OBJECT_NAME bytes.
    unsafe { write_string(&known, NAME_MAX, name, len) }
}

pub(crate) unsafe fn type_match_size(
    typeclass: c_int,
    size: c_int,
    datatype: *mut RawHandle,
) -> Result<()> {
    let found = match (typeclass, size) {
        (TYPECLASS_INTEGER, 1) => Builtin::Integer1,
        (TYPECLASS_INTEGER, 2) => Builtin::Integer2,
        (TYPECLASS_INTEGER, 4) => Builtin::Integer4,
        (TYPECLASS_INTEGER, 8) => Builtin::Integer8,
        (TYPECLASS_REAL, 4) => Builtin::Real4,
        (TYPECLASS_REAL, 8) => Builtin::Real8,
        (TYPECLASS_COMPLEX, 8) => Builtin::Complex8,
        (TYPECLASS_COMPLEX, 16) => Builtin::Complex16,
        _ => {
            let text = format!("no datatype of typeclass = {typeclass} has size = {size}");
            return Err(Error::argument(text));
        }
    };
    // SAFETY: as the body's.
    unsafe { put(datatype, usize::from(found.abi())) }
}

pub(crate) unsafe fn type_get_envelope(
    datatype: RawHandle,
    integers: *mut c_int,
    addresses: *mut c_int,
    datatypes: *mut c_int,
    combiner: *mut c_int,
) -> Result<()> {
    let datatype = find(datatype)?;
    let contents = datatype.contents();
    // SAFETY: as the body's.
    unsafe {
        put(integers, contents.integers.len() as c_int)?;
        put(addresses, contents.addresses.len() as c_int)?;
        put(datatypes, contents.datatypes.len() as c_int)?;
        put(combiner, code_of(contents.combiner))
    }
}

pub(crate) unsafe fn type_get_contents(
    datatype: RawHandle,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    integers: *mut c_int,
    addresses: *mut isize,
    datatypes: *mut RawHandle,
) -> Result<()> {
    let datatype = find(datatype)?;
    let contents = datatype.contents();
    check_room(contents, max_integers, max_addresses, max_datatypes)?;
    // SAFETY: as the body's.
    unsafe {
        array("array_of_integers", integers, contents.integers.len())?;
        array("array_of_addresses", addresses, contents.addresses.len())?;
        array("array_of_datatypes", datatypes, contents.datatypes.len())?;
    }
    // SAFETY: as the body's: the arrays have the room just checked.
    unsafe {
        for (index, value) in contents.integers.iter().enumerate() {
            let value = c_int::try_from(*value).map_err(|_| {
                class(ErrorClass::Type, "the type was built with counts beyond int".into())
            })?;
            *integers.add(index) = value;
        }
        for (index, value) in contents.addresses.iter().enumerate() {
            *addresses.add(index) = *value as isize;
        }
        for (index, inner) in contents.datatypes.iter().enumerate() {
            let handle = match inner.as_builtin() {
                Some(builtin) => usize::from(builtin.abi()),
                None => raw(DATATYPES.insert(inner.clone())?),
            };
            *datatypes.add(index) = handle;
        }
    }
    Ok(())
}

fn check_room(contents: &Contents, integers: c_int, addresses: c_int, types: c_int) -> Result<()> {
    if contents.combiner == Combiner::Named {
        let text = "datatype: a predefined datatype has no contents".into();
        return Err(class(ErrorClass::Type, text));
    }
    let needed = [
        ("max_integers", integers, contents.integers.len()),
        ("max_addresses", addresses, contents.addresses.len()),
        ("max_datatypes", types, contents.datatypes.len()),
    ];
    for (name, given, needed) in needed {
        if i64::from(given) < needed as i64 {
            return Err(Error::argument(format!("{name} = {given} where {needed} are needed")));
        }
    }
    Ok(())
}

fn code_of(combiner: Combiner) -> c_int {
    match combiner {
        Combiner::Named => 101,
        Combiner::Dup => 102,
        Combiner::Contiguous => 103,
        Combiner::Vector => 104,
        Combiner::Hvector => 105,
        Combiner::Indexed => 106,
        Combiner::Hindexed => 107,
        Combiner::IndexedBlock => 108,
        Combiner::HindexedBlock => 109,
        Combiner::Struct => 110,
        Combiner::Subarray => 111,
        Combiner::Darray => 112,
        Combiner::F90Real => 113,
        Combiner::F90Complex => 114,
        Combiner::F90Integer => 115,
        Combiner::Resized => 116,
    }
}

const DATATYPE_NULL: RawHandle = 0x200;
const TYPECLASS_INTEGER: c_int = 192;
const TYPECLASS_REAL: c_int = 193;
const TYPECLASS_COMPLEX: c_int = 194;
