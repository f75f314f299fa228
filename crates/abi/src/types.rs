//! Datatypes (MPI-5.0 §5.1).

use std::ffi::{c_char, c_int};

use datatype::{ArrayOrder, Cut, Datatype, Distribution, TypeError};
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
unsafe fn give(made: Result<Datatype, TypeError>, new: NewType) -> Result<()> {
    let made = made.map_err(|error| Error::argument(error.to_string()))?;
    if new.is_large {
        made.set_large();
    }
    // SAFETY: `new.place` points to a variable of the caller.
    unsafe { put(new.place, raw(DATATYPES.insert(made)?)) }
}

pub(crate) unsafe fn type_commit(datatype: *mut RawHandle) -> Result<()> {
    // SAFETY: `datatype` points to a handle of the caller.
    find(unsafe { *datatype })?.commit();
    Ok(())
}

pub(crate) unsafe fn type_free(datatype: *mut RawHandle) -> Result<()> {
    // SAFETY: `datatype` points to a variable of the caller; the callbacks have the types that the
    // standard requires.
    unsafe {
        let found = find(*datatype)?;
        if found.as_builtin().is_some() {
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
    // SAFETY: `new` points to a variable of the caller; the callbacks have the types that the
    // standard requires.
    unsafe {
        give(Ok(find_old(old)?.duplicate()), NewType::small(new))?;
        attribute::copy_type(old, *new)
    }
}

pub(crate) unsafe fn type_contiguous(n: i64, old: RawHandle, new: NewType) -> Result<()> {
    count("count", n)?;
    // SAFETY: `new` points to a variable of the caller.
    unsafe { give(Datatype::contiguous(n, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_vector(
    n: i64,
    block: i64,
    stride: i64,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    count("count", n)?;
    // SAFETY: `new` points to a variable of the caller.
    unsafe { give(Datatype::vector(n, block, stride, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_create_hvector(
    n: i64,
    block: i64,
    stride: i64,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    count("count", n)?;
    // SAFETY: `new` points to a variable of the caller.
    unsafe { give(Datatype::hvector(n, block, stride, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_indexed(
    n: i64,
    lengths: Ints,
    displacements: Ints,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: `displacements` and `lengths` have an entry for each of the `n` blocks; `new` points
    // to a variable of the caller.
    unsafe {
        give(Datatype::indexed(&lengths.read(n)?, &displacements.read(n)?, &find_old(old)?), new)
    }
}

pub(crate) unsafe fn type_create_hindexed(
    n: i64,
    lengths: Ints,
    displacements: Ints,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: `displacements` and `lengths` have an entry for each of the `n` blocks; `new` points
    // to a variable of the caller.
    unsafe {
        give(Datatype::hindexed(&lengths.read(n)?, &displacements.read(n)?, &find_old(old)?), new)
    }
}

pub(crate) unsafe fn type_create_indexed_block(
    n: i64,
    length: i64,
    displacements: Ints,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: `displacements` has an entry for each of the `n` blocks; `new` points to a variable
    // of the caller.
    unsafe { give(Datatype::indexed_block(length, &displacements.read(n)?, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_create_hindexed_block(
    n: i64,
    length: i64,
    displacements: Ints,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: `displacements` has an entry for each of the `n` blocks; `new` points to a variable
    // of the caller.
    unsafe { give(Datatype::hindexed_block(length, &displacements.read(n)?, &find_old(old)?), new) }
}

pub(crate) unsafe fn type_create_struct(
    n: i64,
    lengths: Ints,
    displacements: Ints,
    types: *const RawHandle,
    new: NewType,
) -> Result<()> {
    let n = count("count", n)?;
    // SAFETY: the three arrays have `n` entries each; `new` points to a variable of the caller.
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
    new: NewType,
) -> Result<()> {
    // SAFETY: `new` points to a variable of the caller.
    unsafe { give(find_old(old)?.resized(lower, extent), new) }
}

pub(crate) unsafe fn type_create_subarray(
    dimensions: c_int,
    sizes: Ints,
    subsizes: Ints,
    starts: Ints,
    order: c_int,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let n = length("ndims", dimensions)?;
    let order = array_order(order)?;
    // SAFETY: `sizes`, `subsizes` and `starts` have `n` entries; `new` points to a variable of the
    // caller.
    unsafe {
        let (sizes, subsizes, starts) = (sizes.read(n)?, subsizes.read(n)?, starts.read(n)?);
        give(Datatype::subarray(&sizes, &subsizes, &starts, order, &find_old(old)?), new)
    }
}

fn array_order(order: c_int) -> Result<ArrayOrder> {
    match order {
        0xc => Ok(ArrayOrder::C),
        0xf => Ok(ArrayOrder::Fortran),
        _ => Err(Error::argument(format!("order = {order} is no order of arrays"))),
    }
}

pub(crate) unsafe fn type_create_darray(
    size: c_int,
    rank: c_int,
    dimensions: c_int,
    sizes: Ints,
    distributions: *const c_int,
    blocks: *const c_int,
    processes: *const c_int,
    order: c_int,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let n = length("ndims", dimensions)?;
    let order = array_order(order)?;
    // SAFETY: `sizes`, `distributions`, `blocks` and `processes` have `n` entries; `new` points to
    // a variable of the caller.
    unsafe {
        let sizes = sizes.read(n)?;
        let distributions = array("array_of_distribs", distributions, n)?;
        let blocks = array("array_of_dargs", blocks, n)?;
        let processes = array("array_of_psizes", processes, n)?;
        let cut = |axis: usize| {
            Ok(Cut {
                size: sizes[axis],
                distribution: distribution(distributions[axis])?,
                block: (blocks[axis] != DISTRIBUTE_DEFAULT).then_some(i64::from(blocks[axis])),
                processes: i64::from(processes[axis]),
            })
        };
        let cuts = (0..n).map(cut).collect::<Result<Vec<_>>>()?;
        let (size, rank) = (i64::from(size), i64::from(rank));
        give(Datatype::distributed(size, rank, &cuts, order, &find_old(old)?), new)
    }
}

fn distribution(value: c_int) -> Result<Distribution> {
    match value {
        16 => Ok(Distribution::None),
        17 => Ok(Distribution::Block),
        18 => Ok(Distribution::Cyclic),
        _ => Err(Error::argument(format!("array_of_distribs: {value} is no distribution"))),
    }
}

pub(crate) unsafe fn type_size(datatype: RawHandle, size: OutInt) -> Result<()> {
    // SAFETY: `size` points to a variable of the caller.
    unsafe { size.write(find(datatype)?.size() as i64) };
    Ok(())
}

pub(crate) unsafe fn type_size_x(datatype: RawHandle, size: *mut i64) -> Result<()> {
    // SAFETY: `size` points to a variable of the caller.
    unsafe { put(size, find(datatype)?.size() as i64) }
}

pub(crate) unsafe fn type_get_extent(
    datatype: RawHandle,
    lower: OutInt,
    extent: OutInt,
) -> Result<()> {
    let (lb, bytes) = find(datatype)?.extent();
    // SAFETY: `lower` and `extent` point to variables of the caller.
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
    // SAFETY: the caller's pointers go to `type_get_extent`, which has the same conditions.
    unsafe { type_get_extent(datatype, OutInt::Count(lower), OutInt::Count(extent)) }
}

pub(crate) unsafe fn type_get_true_extent(
    datatype: RawHandle,
    lower: OutInt,
    extent: OutInt,
) -> Result<()> {
    let (lb, bytes) = find(datatype)?.true_extent();
    // SAFETY: `lower` and `extent` point to variables of the caller.
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
    // SAFETY: the caller's pointers go to `type_get_true_extent`, which has the same conditions.
    unsafe { type_get_true_extent(datatype, OutInt::Count(lower), OutInt::Count(extent)) }
}

pub(crate) unsafe fn type_set_name(datatype: RawHandle, name: *const c_char) -> Result<()> {
    // SAFETY: `type_name` is a C string or NULL.
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
    // SAFETY: `name` has room for MPI_MAX_OBJECT_NAME bytes; `len` points to an `int`.
    unsafe { write_string(&known, NAME_MAX, name, len) }
}

pub(crate) const DATATYPE_NULL: RawHandle = 0x200;
/// `MPI_DISTRIBUTE_DFLT_DARG`.
const DISTRIBUTE_DEFAULT: c_int = 19;
