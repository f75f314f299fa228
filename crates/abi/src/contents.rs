//! Envelope and contents of a datatype (MPI-5.0 §5.1.13).

use std::ffi::c_int;

use datatype::{Combiner, Datatype, ListedContents};
use mpi::objects::DATATYPES;

use crate::arguments::datatype;
use crate::convention::*;

pub(crate) fn type_get_envelope(
    on: RawHandle,
    integers: Out<c_int>,
    addresses: Out<c_int>,
    datatypes: Out<c_int>,
    combiner: Out<c_int>,
) -> Result<()> {
    let contents = without_counts(&datatype("datatype", on)?)?;
    integers.put(contents.integers.len() as c_int)?;
    addresses.put(contents.addresses.len() as c_int)?;
    datatypes.put(contents.datatypes.len() as c_int)?;
    combiner.put(code_of(contents.combiner))
}

pub(crate) fn type_get_envelope_c(
    on: RawHandle,
    integers: Out<i64>,
    addresses: Out<i64>,
    counts: Out<i64>,
    datatypes: Out<i64>,
    combiner: Out<c_int>,
) -> Result<()> {
    let contents = datatype("datatype", on)?.listed_contents();
    integers.put(contents.integers.len() as i64)?;
    addresses.put(contents.addresses.len() as i64)?;
    counts.put(contents.counts.len() as i64)?;
    datatypes.put(contents.datatypes.len() as i64)?;
    combiner.put(code_of(contents.combiner))
}

pub(crate) fn type_get_contents(
    on: RawHandle,
    integers: Slots<c_int>,
    addresses: Slots<isize>,
    datatypes: Slots<RawHandle>,
) -> Result<()> {
    let contents = without_counts(&datatype("datatype", on)?)?;
    write(&contents, integers, addresses, None, datatypes)
}

pub(crate) fn type_get_contents_c(
    on: RawHandle,
    integers: Slots<c_int>,
    addresses: Slots<isize>,
    counts: Slots<i64>,
    datatypes: Slots<RawHandle>,
) -> Result<()> {
    let contents = datatype("datatype", on)?.listed_contents();
    write(&contents, integers, addresses, Some(counts), datatypes)
}

/// The contents of a type that can be described without `MPI_Count`s.
fn without_counts(datatype: &Datatype) -> Result<ListedContents> {
    let contents = datatype.listed_contents();
    if contents.counts.is_empty() {
        return Ok(contents);
    }
    let text = "datatype: it was made with MPI_Counts, which only the large-count function tells";
    Err(class(ErrorClass::Type, text.into()))
}

/// Checks that an array is there, with room for so many values.
fn check<T: Copy>(max_name: &str, room: Slots<T>, needed: usize) -> Result<()> {
    if room.len() < needed {
        let text = format!("{max_name} = {} where {needed} are needed", room.len());
        return Err(Error::argument(text));
    }
    room.check(needed)
}

/// Writes contents. A derived datatype among them gets a handle of its own, which the caller frees.
fn write(
    contents: &ListedContents,
    integers: Slots<c_int>,
    addresses: Slots<isize>,
    counts: Option<Slots<i64>>,
    datatypes: Slots<RawHandle>,
) -> Result<()> {
    if contents.combiner == Combiner::Named {
        let text = "datatype: a predefined datatype has no contents".into();
        return Err(class(ErrorClass::Type, text));
    }
    check("max_integers", integers, contents.integers.len())?;
    check("max_addresses", addresses, contents.addresses.len())?;
    if let Some(counts) = counts {
        check("max_large_counts", counts, contents.counts.len())?;
    }
    check("max_datatypes", datatypes, contents.datatypes.len())?;
    // What an `int` argument brought fits an `int`.
    integers.write(contents.integers.iter().map(|value| *value as c_int))?;
    addresses.write(contents.addresses.iter().map(|value| *value as isize))?;
    if let Some(counts) = counts {
        counts.write(contents.counts.iter().copied())?;
    }
    for (index, inner) in contents.datatypes.iter().enumerate() {
        datatypes.put(index, handle_for(inner)?)?;
    }
    Ok(())
}

/// A handle for a datatype that the library has stored; one of a derived type is the caller's to free.
pub(crate) fn handle_for(datatype: &Datatype) -> Result<RawHandle> {
    match (datatype.as_builtin(), datatype.contents().combiner) {
        (Some(builtin), Combiner::Named) => Ok(usize::from(builtin.abi())),
        (Some(_), _) => crate::kinds::handle_of(datatype),
        (None, _) => Ok(raw(DATATYPES.insert(datatype.clone())?)),
    }
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
