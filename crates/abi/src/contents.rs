//! Envelope and contents of a datatype (MPI-5.0 §5.1.13).

use std::ffi::c_int;

use datatype::{Combiner, Datatype, ListedContents};
use mpi::objects::DATATYPES;

use crate::arguments::datatype;
use crate::convention::*;

pub(crate) unsafe fn type_get_envelope(
    on: RawHandle,
    integers: *mut c_int,
    addresses: *mut c_int,
    datatypes: *mut c_int,
    combiner: *mut c_int,
) -> Result<()> {
    let contents = without_counts(&datatype("datatype", on)?)?;
    // SAFETY: `integers`, `addresses`, `datatypes` and `combiner` point to variables of the caller.
    unsafe {
        put(integers, contents.integers.len() as c_int)?;
        put(addresses, contents.addresses.len() as c_int)?;
        put(datatypes, contents.datatypes.len() as c_int)?;
        put(combiner, code_of(contents.combiner))
    }
}

pub(crate) unsafe fn type_get_envelope_c(
    on: RawHandle,
    integers: *mut i64,
    addresses: *mut i64,
    counts: *mut i64,
    datatypes: *mut i64,
    combiner: *mut c_int,
) -> Result<()> {
    let contents = datatype("datatype", on)?.listed_contents();
    // SAFETY: every place for a result points to a variable of the caller or is NULL.
    unsafe {
        put(integers, contents.integers.len() as i64)?;
        put(addresses, contents.addresses.len() as i64)?;
        put(counts, contents.counts.len() as i64)?;
        put(datatypes, contents.datatypes.len() as i64)?;
        put(combiner, code_of(contents.combiner))
    }
}

pub(crate) unsafe fn type_get_contents(
    on: RawHandle,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    integers: *mut c_int,
    addresses: *mut isize,
    datatypes: *mut RawHandle,
) -> Result<()> {
    let contents = without_counts(&datatype("datatype", on)?)?;
    let rooms = [
        Room::new("max_integers", i64::from(max_integers), "array_of_integers", integers),
        Room::new("max_addresses", i64::from(max_addresses), "array_of_addresses", addresses),
        Room::new("max_datatypes", i64::from(max_datatypes), "array_of_datatypes", datatypes),
    ];
    let [one, two, three] = rooms;
    check(&contents, [one, two, Room::NONE, three])?;
    // SAFETY: each array has as many entries as its `max_` argument says; the check above compared
    // them.
    unsafe { write(&contents, integers, addresses, std::ptr::null_mut(), datatypes) }
}

pub(crate) unsafe fn type_get_contents_c(
    on: RawHandle,
    max_integers: i64,
    max_addresses: i64,
    max_counts: i64,
    max_datatypes: i64,
    integers: *mut c_int,
    addresses: *mut isize,
    counts: *mut i64,
    datatypes: *mut RawHandle,
) -> Result<()> {
    let contents = datatype("datatype", on)?.listed_contents();
    let rooms = [
        Room::new("max_integers", max_integers, "array_of_integers", integers),
        Room::new("max_addresses", max_addresses, "array_of_addresses", addresses),
        Room::new("max_large_counts", max_counts, "array_of_large_counts", counts),
        Room::new("max_datatypes", max_datatypes, "array_of_datatypes", datatypes),
    ];
    check(&contents, rooms)?;
    // SAFETY: each array has as many entries as its `max_` argument says; the check above compared
    // them.
    unsafe { write(&contents, integers, addresses, counts, datatypes) }
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

/// An array of the caller's.
struct Room {
    max_name: &'static str,
    max: i64,
    name: &'static str,
    is_null: bool,
}

impl Room {
    const NONE: Self = Self { max_name: "", max: 0, name: "", is_null: true };

    fn new<T>(max_name: &'static str, max: i64, name: &'static str, entries: *mut T) -> Self {
        Self { max_name, max, name, is_null: entries.is_null() }
    }
}

fn check(contents: &ListedContents, rooms: [Room; 4]) -> Result<()> {
    if contents.combiner == Combiner::Named {
        let text = "datatype: a predefined datatype has no contents".into();
        return Err(class(ErrorClass::Type, text));
    }
    let ListedContents { integers, addresses, counts, datatypes, .. } = contents;
    let needed = [integers.len(), addresses.len(), counts.len(), datatypes.len()];
    for (Room { max_name, max, name, is_null }, needed) in rooms.into_iter().zip(needed) {
        if max < needed as i64 {
            return Err(Error::argument(format!("{max_name} = {max} where {needed} are needed")));
        }
        if needed > 0 && is_null {
            return Err(null(name));
        }
    }
    Ok(())
}

/// Hands out the contents; derived datatypes get a handle of their own, which the caller frees.
unsafe fn write(
    contents: &ListedContents,
    integers: *mut c_int,
    addresses: *mut isize,
    counts: *mut i64,
    datatypes: *mut RawHandle,
) -> Result<()> {
    // SAFETY: each array has room for all values of its kind: the caller checked the lengths.
    unsafe {
        for (index, value) in contents.integers.iter().enumerate() {
            // What an `int` argument brought fits an `int`.
            *integers.add(index) = *value as c_int;
        }
        for (index, value) in contents.addresses.iter().enumerate() {
            *addresses.add(index) = *value as isize;
        }
        for (index, value) in contents.counts.iter().enumerate() {
            *counts.add(index) = *value;
        }
        for (index, inner) in contents.datatypes.iter().enumerate() {
            *datatypes.add(index) = match (inner.as_builtin(), inner.contents().combiner) {
                (Some(builtin), Combiner::Named) => usize::from(builtin.abi()),
                (Some(_), _) => crate::kinds::handle_of(inner)?,
                (None, _) => raw(DATATYPES.insert(inner.clone())?),
            };
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
