//! Facts about the Fortran compiler, which a library for Fortran gives to this one (MPI-5.0 §20.4).

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpi::info::Info;
use mpi::request;

use crate::convention::*;
use crate::world;

/// Sizes of types in bytes that this library takes for granted.
const SIZES: [(&str, &str); 4] = [
    ("mpi_logical_size", "4"),
    ("mpi_integer_size", "4"),
    ("mpi_real_size", "4"),
    ("mpi_double_precision_size", "8"),
];

/// Function of the library for Fortran that hears of the runs of a collective.
type Tell = unsafe extern "C" fn(state: *mut c_void, event: c_int);

/// Events of a collective: a persistent one is about to begin; a run has ended well, or with an error; no run can come.
const BEGINS: c_int = 0;
const SUCCEEDED: c_int = 1;
const FAILED: c_int = 2;
const FREED: c_int = 3;

/// Sections of Fortran that a collective has got copies of.
#[derive(Debug)]
struct Sections {
    tell: Tell,
    state: *mut c_void,
}

// SAFETY: any thread may call the function with this state, as the caller of `canele_follow_collective` says.
unsafe impl Send for Sections {}
// SAFETY: one run follows the other, and so do the calls.
unsafe impl Sync for Sections {}

impl Sections {
    fn tell(&self, event: c_int) {
        // SAFETY: as the caller of `canele_follow_collective` says.
        unsafe { (self.tell)(self.state, event) }
    }
}

impl request::Follower for Sections {
    fn begin(&self) {
        self.tell(BEGINS);
    }

    fn end(&self, is_ok: bool) {
        self.tell(if is_ok { SUCCEEDED } else { FAILED });
    }
}

impl Drop for Sections {
    fn drop(&mut self) {
        self.tell(FREED);
    }
}

/// Calls `tell` before each run of a persistent collective, and when a collective in the background has ended, before its
/// request completes. The last call frees the state, even after an error. For `libmpifort_abi` alone, which has just got
/// the request. Returns 0, or an error code if the request is another.
///
/// # Safety
/// Any thread may call `tell` with this state, one at a time.
#[unsafe(no_mangle)]
unsafe extern "C" fn canele_follow_collective(
    request: RawHandle,
    tell: Tell,
    state: *mut c_void,
) -> c_int {
    let sections = Arc::new(Sections { tell, state });
    finish("canele_follow_collective", On::Process, || {
        let process = world::current()?;
        named("request", request::follow_collective(process, handle(request), sections))
    })
}

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
