//! Facts about the Fortran compiler, which a library for Fortran gives to this one (MPI-5.0 §20.4).

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi::info::Info;

use crate::convention::*;

/// Sizes of types in bytes that this library takes for granted.
const SIZES: [(&str, &str); 4] = [
    ("mpi_logical_size", "4"),
    ("mpi_integer_size", "4"),
    ("mpi_real_size", "4"),
    ("mpi_double_precision_size", "8"),
];

/// The facts, once they are given.
static INFO: Mutex<Option<Info>> = Mutex::new(None);
/// The values of `.TRUE.` and `.FALSE.`, once they are given.
static BOOLEANS: Mutex<Option<[Vec<u8>; 2]>> = Mutex::new(None);

fn known<T>(facts: &'static Mutex<T>) -> MutexGuard<'static, T> {
    facts.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn abi_set_fortran_info(info: RawHandle) -> Result<()> {
    let given = crate::info::find(info)?.duplicate();
    for (key, size) in SIZES {
        if let Some(value) = given.value(key)?.filter(|value| value.trim() != size) {
            return Err(mismatch(format!(
                "{key} = {value}: this library's Fortran types need {size}"
            )));
        }
    }
    match &mut *known(&INFO) {
        Some(_) => Err(mismatch("the facts about Fortran have been set before".into())),
        facts => {
            *facts = Some(given);
            Ok(())
        }
    }
}

pub(crate) fn abi_get_fortran_info(info: Out<RawHandle>) -> Result<()> {
    let facts = known(&INFO).as_ref().map(Info::duplicate);
    info.put(match facts {
        Some(facts) => raw(facts.register()?),
        None => INFO_NULL,
    })
}

pub(crate) fn abi_set_fortran_booleans(
    logical_size: c_int,
    logical_true: Address,
    logical_false: Address,
) -> Result<()> {
    let size = bytes_of(logical_size)?;
    let values = [given("logical_true", logical_true)?, given("logical_false", logical_false)?];
    let values = values.map(|value| value.bytes(0, size).to_vec());
    match &mut *known(&BOOLEANS) {
        Some(_) => Err(mismatch("the values of Fortran's logicals have been set before".into())),
        booleans => {
            *booleans = Some(values);
            Ok(())
        }
    }
}

pub(crate) fn abi_get_fortran_booleans(
    logical_size: c_int,
    logical_true: Address,
    logical_false: Address,
    is_set: Out<c_int>,
) -> Result<()> {
    let size = bytes_of(logical_size)?;
    let places = [given("logical_true", logical_true)?, given("logical_false", logical_false)?];
    let booleans = known(&BOOLEANS);
    is_set.put(c_int::from(booleans.is_some()))?;
    for (place, value) in places.into_iter().zip(booleans.iter().flatten()) {
        if value.len() != size {
            let text = format!(
                "logical_size = {size}: the logicals that were set have {} bytes",
                value.len()
            );
            return Err(Error::argument(text));
        }
        place.bytes(0, size).write(0, value);
    }
    Ok(())
}

/// The size of a logical: at most that of `LOGICAL(KIND=16)`.
fn bytes_of(logical_size: c_int) -> Result<usize> {
    match logical_size {
        1 | 2 | 4 | 8 | 16 => Ok(logical_size as usize),
        _ => Err(Error::argument(format!(
            "logical_size = {logical_size}: 1, 2, 4, 8 or 16 is needed"
        ))),
    }
}

fn given(name: &str, place: Address) -> Result<Address> {
    if place.get().is_null() {
        return Err(Error::argument(format!("{name}: NULL is no address of a logical")));
    }
    Ok(place)
}

fn mismatch(text: String) -> Error {
    class(ErrorClass::Abi, text)
}

/// `MPI_INFO_NULL`.
const INFO_NULL: RawHandle = 0x130;
