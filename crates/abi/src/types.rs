//! Datatypes (MPI-5.0 §5.1).

use std::ffi::c_int;

use datatype::{ArrayOrder, Cut, Datatype, Distribution, TypeError};
use mpi::objects::{self, DATATYPES};

use crate::arguments::count;
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
fn give(made: Result<Datatype, TypeError>, new: NewType) -> Result<()> {
    let made = made.map_err(|error| {
        let kind = if error.is_out_of_memory { ErrorClass::NoMem } else { ErrorClass::Arg };
        class(kind, error.to_string())
    })?;
    if new.is_large {
        made.set_large();
    }
    new.place.put(raw(DATATYPES.insert(made)?))
}

pub(crate) fn type_commit(datatype: InOut<RawHandle>) -> Result<()> {
    find(datatype.get())?.commit();
    Ok(())
}

pub(crate) fn type_free(datatype: InOut<RawHandle>) -> Result<()> {
    let found = find(datatype.get())?;
    if found.as_builtin().is_some() {
        return Err(class(
            ErrorClass::Type,
            "datatype: a predefined datatype cannot be freed".into(),
        ));
    }
    attribute::delete_type(datatype.get())?;
    DATATYPES.remove(handle(datatype.get()))?;
    datatype.put(DATATYPE_NULL)
}

pub(crate) fn type_dup(old: RawHandle, new: Out<RawHandle>) -> Result<()> {
    let made = raw(DATATYPES.insert(find_old(old)?.duplicate())?);
    if let Err(error) = attribute::copy_type(old, made) {
        DATATYPES.remove(handle(made))?;
        return Err(error);
    }
    new.put(made)
}

pub(crate) fn type_contiguous(n: i64, old: RawHandle, new: NewType) -> Result<()> {
    count("count", n)?;
    give(Datatype::contiguous(n, &find_old(old)?), new)
}

pub(crate) fn type_vector(
    n: i64,
    block: i64,
    stride: i64,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    count("count", n)?;
    give(Datatype::vector(n, block, stride, &find_old(old)?), new)
}

pub(crate) fn type_create_hvector(
    n: i64,
    block: i64,
    stride: i64,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    count("count", n)?;
    give(Datatype::hvector(n, block, stride, &find_old(old)?), new)
}

pub(crate) fn type_indexed(
    lengths: IntSlice<'_>,
    displacements: IntSlice<'_>,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    give(Datatype::indexed(&lengths.to_vec()?, &displacements.to_vec()?, &find_old(old)?), new)
}

pub(crate) fn type_create_hindexed(
    lengths: IntSlice<'_>,
    displacements: IntSlice<'_>,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    give(Datatype::hindexed(&lengths.to_vec()?, &displacements.to_vec()?, &find_old(old)?), new)
}

pub(crate) fn type_create_indexed_block(
    length: i64,
    displacements: IntSlice<'_>,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    give(Datatype::indexed_block(length, &displacements.to_vec()?, &find_old(old)?), new)
}

pub(crate) fn type_create_hindexed_block(
    length: i64,
    displacements: IntSlice<'_>,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    give(Datatype::hindexed_block(length, &displacements.to_vec()?, &find_old(old)?), new)
}

pub(crate) fn type_create_struct(
    lengths: IntSlice<'_>,
    displacements: IntSlice<'_>,
    types: &[RawHandle],
    new: NewType,
) -> Result<()> {
    let mut found = room("array_of_types", types.len())?;
    for (index, &raw) in types.iter().enumerate() {
        let one = objects::datatype(handle(raw));
        found.push(one.map_err(|error| error.about(format!("array_of_types[{index}]")))?);
    }
    give(Datatype::structure(&lengths.to_vec()?, &displacements.to_vec()?, &found), new)
}

pub(crate) fn type_create_resized(
    old: RawHandle,
    lower: i64,
    extent: i64,
    new: NewType,
) -> Result<()> {
    give(find_old(old)?.resized(lower, extent), new)
}

pub(crate) fn type_create_subarray(
    sizes: IntSlice<'_>,
    subsizes: IntSlice<'_>,
    starts: IntSlice<'_>,
    order: c_int,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let order = array_order(order)?;
    let (sizes, subsizes, starts) = (sizes.to_vec()?, subsizes.to_vec()?, starts.to_vec()?);
    give(Datatype::subarray(&sizes, &subsizes, &starts, order, &find_old(old)?), new)
}

fn array_order(order: c_int) -> Result<ArrayOrder> {
    match order {
        0xc => Ok(ArrayOrder::C),
        0xf => Ok(ArrayOrder::Fortran),
        _ => Err(Error::argument(format!("order = {order} is no order of arrays"))),
    }
}

pub(crate) fn type_create_darray(
    size: c_int,
    rank: c_int,
    sizes: IntSlice<'_>,
    distributions: &[c_int],
    blocks: &[c_int],
    processes: &[c_int],
    order: c_int,
    old: RawHandle,
    new: NewType,
) -> Result<()> {
    let order = array_order(order)?;
    let sizes = sizes.to_vec()?;
    let cut = |axis: usize| -> Result<Cut> {
        Ok(Cut {
            size: sizes[axis],
            distribution: distribution(distributions[axis])?,
            block: (blocks[axis] != DISTRIBUTE_DEFAULT).then_some(i64::from(blocks[axis])),
            processes: i64::from(processes[axis]),
        })
    };
    let mut cuts = room("array_of_gsizes", sizes.len())?;
    for axis in 0..sizes.len() {
        cuts.push(cut(axis)?);
    }
    let (size, rank) = (i64::from(size), i64::from(rank));
    give(Datatype::distributed(size, rank, &cuts, order, &find_old(old)?), new)
}

fn distribution(value: c_int) -> Result<Distribution> {
    match value {
        16 => Ok(Distribution::None),
        17 => Ok(Distribution::Block),
        18 => Ok(Distribution::Cyclic),
        _ => Err(Error::argument(format!("array_of_distribs: {value} is no distribution"))),
    }
}

pub(crate) fn type_size(datatype: RawHandle, size: OutInt) -> Result<()> {
    size.put(find(datatype)?.size() as i64)
}

pub(crate) fn type_size_x(datatype: RawHandle, size: Out<i64>) -> Result<()> {
    size.put(find(datatype)?.size() as i64)
}

pub(crate) fn type_get_extent(datatype: RawHandle, lower: OutInt, extent: OutInt) -> Result<()> {
    let (lb, bytes) = find(datatype)?.extent();
    lower.put(lb as i64)?;
    extent.put(bytes as i64)
}

pub(crate) fn type_get_extent_x(
    datatype: RawHandle,
    lower: Out<i64>,
    extent: Out<i64>,
) -> Result<()> {
    type_get_extent(datatype, OutInt::Count(lower), OutInt::Count(extent))
}

pub(crate) fn type_get_true_extent(
    datatype: RawHandle,
    lower: OutInt,
    extent: OutInt,
) -> Result<()> {
    let (lb, bytes) = find(datatype)?.true_extent();
    lower.put(lb as i64)?;
    extent.put(bytes as i64)
}

pub(crate) fn type_get_true_extent_x(
    datatype: RawHandle,
    lower: Out<i64>,
    extent: Out<i64>,
) -> Result<()> {
    type_get_true_extent(datatype, OutInt::Count(lower), OutInt::Count(extent))
}

pub(crate) fn type_set_name(datatype: RawHandle, name: String) -> Result<()> {
    find(datatype)?.set_name(name.as_bytes());
    Ok(())
}

pub(crate) fn type_get_name(datatype: RawHandle, name: Chars, len: Out<c_int>) -> Result<()> {
    let known = match datatype {
        DATATYPE_NULL => "MPI_DATATYPE_NULL".into(),
        _ => String::from_utf8_lossy(&find(datatype)?.name()).into_owned(),
    };
    write_string(&known, NAME_MAX, name, len)
}

pub(crate) const DATATYPE_NULL: RawHandle = 0x200;
/// `MPI_DISTRIBUTE_DFLT_DARG`.
const DISTRIBUTE_DEFAULT: c_int = 19;
