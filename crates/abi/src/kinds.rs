//! Predefined datatypes found by what they should hold: Fortran's kinds, sizes, pairs
//! (MPI-5.0 §19.1.5, §6.9.4).

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex};

use datatype::{Builtin, Combiner, Datatype};
use mpi::objects::DATATYPES;

use crate::arguments::datatype;
use crate::convention::*;
use crate::types::DATATYPE_NULL;

pub(crate) fn type_match_size(
    typeclass: c_int,
    size: c_int,
    datatype: Out<RawHandle>,
) -> Result<()> {
    let found = match (typeclass, size) {
        (TYPECLASS_INTEGER, 1) => Builtin::Integer1,
        (TYPECLASS_INTEGER, 2) => Builtin::Integer2,
        (TYPECLASS_INTEGER, 4) => Builtin::Integer4,
        (TYPECLASS_INTEGER, 8) => Builtin::Integer8,
        (TYPECLASS_INTEGER, 16) => Builtin::Integer16,
        (TYPECLASS_REAL, 2) => Builtin::Real2,
        (TYPECLASS_REAL, 4) => Builtin::Real4,
        (TYPECLASS_REAL, 8) => Builtin::Real8,
        (TYPECLASS_REAL, 16) => Builtin::Real16,
        (TYPECLASS_COMPLEX, 4) => Builtin::Complex4,
        (TYPECLASS_COMPLEX, 8) => Builtin::Complex8,
        (TYPECLASS_COMPLEX, 16) => Builtin::Complex16,
        (TYPECLASS_COMPLEX, 32) => Builtin::Complex32,
        (TYPECLASS_INTEGER | TYPECLASS_REAL | TYPECLASS_COMPLEX, _) => {
            let text = format!("size = {size} is the size of no datatype of the typeclass");
            return Err(Error::argument(text));
        }
        _ => return Err(Error::argument(format!("typeclass = {typeclass} is no typeclass"))),
    };
    datatype.put(usize::from(found.abi()))
}

pub(crate) fn type_get_value_index(
    value: RawHandle,
    index: RawHandle,
    pair: Out<RawHandle>,
) -> Result<()> {
    let value = datatype("value_type", value)?.as_builtin();
    let index = datatype("index_type", index)?.as_builtin();
    let found = match (value, index) {
        (Some(Builtin::Float), Some(Builtin::Int)) => Some(Builtin::FloatInt),
        (Some(Builtin::Double), Some(Builtin::Int)) => Some(Builtin::DoubleInt),
        (Some(Builtin::Long), Some(Builtin::Int)) => Some(Builtin::LongInt),
        (Some(Builtin::Int), Some(Builtin::Int)) => Some(Builtin::TwoInt),
        (Some(Builtin::Short), Some(Builtin::Int)) => Some(Builtin::ShortInt),
        (Some(Builtin::LongDouble), Some(Builtin::Int)) => Some(Builtin::LongDoubleInt),
        (Some(Builtin::Real), Some(Builtin::Real)) => Some(Builtin::TwoReal),
        (Some(Builtin::DoublePrecision), Some(Builtin::DoublePrecision)) => {
            Some(Builtin::TwoDoublePrecision)
        }
        (Some(Builtin::Integer), Some(Builtin::Integer)) => Some(Builtin::TwoInteger),
        _ => None,
    };
    pair.put(found.map_or(DATATYPE_NULL, |found| usize::from(found.abi())))
}

pub(crate) fn type_create_f90_real(p: c_int, r: c_int, new: Out<RawHandle>) -> Result<()> {
    let kinds = [
        (Builtin::Real4, 6, 37),
        (Builtin::Real8, 15, 307),
        (Builtin::LongDouble, LONG_DOUBLE_DIGITS, 4931),
        (Builtin::Real16, 33, 4931),
    ];
    give(Combiner::F90Real, real_kind(&kinds, p, r)?, &[p, r], new)
}

pub(crate) fn type_create_f90_complex(p: c_int, r: c_int, new: Out<RawHandle>) -> Result<()> {
    let kinds = [
        (Builtin::Complex8, 6, 37),
        (Builtin::Complex16, 15, 307),
        (Builtin::CLongDoubleComplex, LONG_DOUBLE_DIGITS, 4931),
        (Builtin::Complex32, 33, 4931),
    ];
    give(Combiner::F90Complex, real_kind(&kinds, p, r)?, &[p, r], new)
}

pub(crate) fn type_create_f90_integer(r: c_int, new: Out<RawHandle>) -> Result<()> {
    let found = match r {
        ..=2 => Builtin::Integer1,
        3..=4 => Builtin::Integer2,
        5..=9 => Builtin::Integer4,
        10..=18 => Builtin::Integer8,
        19..=38 => Builtin::Integer16,
        _ => return Err(Error::argument(format!("r = {r}: no integer has so many digits"))),
    };
    give(Combiner::F90Integer, found, &[r], new)
}

/// The first kind with this many digits and this decimal exponent, as `selected_real_kind` chooses.
fn real_kind(kinds: &[(Builtin, c_int, c_int)], p: c_int, r: c_int) -> Result<Builtin> {
    if p == UNDEFINED && r == UNDEFINED {
        return Err(Error::argument("p and r are both MPI_UNDEFINED"));
    }
    let found = kinds.iter().find(|(_, digits, exponent)| p <= *digits && r <= *exponent);
    let none = || Error::argument(format!("p = {p}, r = {r}: there is no such kind"));
    found.map(|(kind, ..)| *kind).ok_or_else(none)
}

/// The same arguments give the same handle, which is never freed.
fn give(combiner: Combiner, kind: Builtin, arguments: &[c_int], new: Out<RawHandle>) -> Result<()> {
    let arguments = arguments.iter().copied().map(i64::from).collect();
    let made = Datatype::builtin(kind).remembering(combiner, arguments);
    new.put(handle_of(&made)?)
}

/// The handle of a Fortran kind.
pub(crate) fn handle_of(kind: &Datatype) -> Result<RawHandle> {
    type Handles = BTreeMap<(c_int, Vec<i64>), RawHandle>;
    static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);
    let contents = kind.contents();
    let mut handles = HANDLES.lock().unwrap_or_else(|poison| poison.into_inner());
    let key = (contents.combiner as c_int, contents.integers.clone());
    if let Some(known) = handles.get(&key) {
        return Ok(*known);
    }
    let made = raw(DATATYPES.insert(kind.clone())?);
    handles.insert(key, made);
    Ok(made)
}

/// Decimal digits of a `long double`: x87's, or binary128's.
const LONG_DOUBLE_DIGITS: c_int = if cfg!(target_arch = "x86_64") { 18 } else { 33 };

const TYPECLASS_INTEGER: c_int = 192;
const TYPECLASS_REAL: c_int = 193;
const TYPECLASS_COMPLEX: c_int = 194;
