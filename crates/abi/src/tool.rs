//! The tool information interface (MPI-5.0 §15.3): settings as control variables, counters as performance
//! variables, and their categories. There are no events, and no enumerations.
//!
//! These functions answer with a code and never call an error handler; they work before `MPI_Init` and
//! after `MPI_Finalize`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use mpi::tool::{self, Class, Counter, Refusal, Result, Watch};
use settings::{Kind, Setting};

use crate::convention::{RawHandle, handle, raw};
use crate::init::MULTIPLE;

/// Number of calls of `MPI_T_init_thread` without their `MPI_T_finalize`.
static USERS: AtomicUsize = AtomicUsize::new(0);

pub(crate) unsafe fn t_init_thread(_required: c_int, provided: *mut c_int) -> c_int {
    USERS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `provided` points to a variable of the caller.
    unsafe { put_if_given(provided, MULTIPLE) };
    SUCCESS
}

pub(crate) unsafe fn t_finalize() -> c_int {
    let left =
        USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| users.checked_sub(1));
    left.map_or(NOT_INITIALIZED, |_| SUCCESS)
}

pub(crate) unsafe fn t_cvar_get_num(number: *mut c_int) -> c_int {
    // SAFETY: `number` points to a variable of the caller.
    finish(|| unsafe { put(number, tool::settings().len() as c_int) })
}

pub(crate) unsafe fn t_cvar_get_info(
    index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    datatype: *mut RawHandle,
    enumtype: *mut RawHandle,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    scope: *mut c_int,
) -> c_int {
    finish(|| {
        let setting = at(tool::settings(), index)?;
        let (meaning, values) = (setting.meaning(), setting.values());
        let meaning = format!("{meaning} Values: {values}; default: {}", setting.kind());
        // SAFETY: every place for text or a number has the room that its argument says, or is NULL.
        unsafe {
            put_text_if_given(setting.variable(), name, name_len);
            put_if_given(verbosity, USER_BASIC);
            put_if_given(datatype, datatype_of_setting(setting));
            put_if_given(enumtype, NULL);
            put_text_if_given(&meaning, desc, desc_len);
            put_if_given(bind, NO_OBJECT);
            put_if_given(scope, SCOPE_CONSTANT);
        }
        Ok(())
    })
}

pub(crate) unsafe fn t_cvar_get_index(name: *const c_char, index: *mut c_int) -> c_int {
    // SAFETY: `name` is a C string or NULL; `index` points to a variable of the caller.
    finish(|| unsafe {
        let name = string(name)?;
        put(index, position(tool::settings(), |setting| setting.variable() == name)?)
    })
}

pub(crate) unsafe fn t_cvar_handle_alloc(
    index: c_int,
    _object: *mut c_void,
    place: *mut RawHandle,
    count: *mut c_int,
) -> c_int {
    finish(|| {
        let setting = at(tool::settings(), index)?;
        let elements = match setting.kind() {
            Kind::Text(_) | Kind::Found(_) => setting.text().len() + 1,
            Kind::Bytes(_) | Kind::Seconds(_) => 1,
        };
        leads_somewhere(place)?;
        // SAFETY: `place` and `count` point to variables of the caller.
        unsafe {
            put_if_given(count, elements as c_int);
            put(place, raw(tool::open_setting(index as usize)?))
        }
    })
}

pub(crate) unsafe fn t_cvar_handle_free(place: *mut RawHandle) -> c_int {
    finish(|| {
        leads_somewhere(place)?;
        // SAFETY: `place` points to a handle of the caller.
        tool::close_setting(handle(unsafe { *place }))?;
        // SAFETY: `place` points to a variable of the caller.
        unsafe { put(place, NULL) }
    })
}

pub(crate) unsafe fn t_cvar_read(variable: RawHandle, buffer: *mut c_void) -> c_int {
    finish(|| {
        let setting = tool::setting(handle(variable))?;
        leads_somewhere(buffer)?;
        match setting.kind() {
            Kind::Text(_) | Kind::Found(_) => {
                let text = setting.text();
                // SAFETY: the caller's buffer holds the characters of the text and the final zero
                // byte.
                unsafe {
                    buffer.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
                    buffer.cast::<u8>().add(text.len()).write(0);
                }
                Ok(())
            }
            Kind::Bytes(_) | Kind::Seconds(_) => {
                let number = setting.number().map_err(|_| Refusal::NotAccessible)?;
                // SAFETY: the caller's buffer holds an unsigned long long, the type of this
                // variable.
                unsafe { put(buffer.cast(), number) }
            }
        }
    })
}

pub(crate) unsafe fn t_cvar_write(variable: RawHandle, _buffer: *const c_void) -> c_int {
    finish(|| tool::setting(handle(variable)).and(Err(Refusal::SetNever)))
}

pub(crate) unsafe fn t_pvar_get_num(number: *mut c_int) -> c_int {
    // SAFETY: `number` points to a variable of the caller.
    finish(|| unsafe { put(number, tool::counters().len() as c_int) })
}

pub(crate) unsafe fn t_pvar_get_info(
    index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    var_class: *mut c_int,
    datatype: *mut RawHandle,
    enumtype: *mut RawHandle,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    readonly: *mut c_int,
    continuous: *mut c_int,
    atomic: *mut c_int,
) -> c_int {
    finish(|| {
        let counter = at(tool::counters(), index)?;
        // SAFETY: every place for text or a number has the room that its argument says, or is NULL.
        unsafe {
            put_text_if_given(counter.name, name, name_len);
            put_if_given(verbosity, TUNER_BASIC);
            put_if_given(var_class, class_of(counter));
            put_if_given(datatype, datatype_of_counter(counter));
            put_if_given(enumtype, NULL);
            put_text_if_given(counter.meaning, desc, desc_len);
            put_if_given(bind, NO_OBJECT);
            put_if_given(readonly, c_int::from(counter.is_continuous()));
            put_if_given(continuous, c_int::from(counter.is_continuous()));
            put_if_given(atomic, c_int::from(!counter.is_continuous()));
        }
        Ok(())
    })
}

pub(crate) unsafe fn t_pvar_get_index(
    name: *const c_char,
    var_class: c_int,
    index: *mut c_int,
) -> c_int {
    // SAFETY: `name` is a C string or NULL; `index` points to a variable of the caller.
    finish(|| unsafe {
        let name = string(name)?;
        let is_it = |counter: &Counter| counter.name == name && class_of(counter) == var_class;
        put(index, position(tool::counters(), is_it)?)
    })
}

pub(crate) unsafe fn t_pvar_session_create(session: *mut RawHandle) -> c_int {
    finish(|| {
        leads_somewhere(session)?;
        // SAFETY: `session` points to a variable of the caller.
        unsafe { put(session, raw(tool::begin_session()?)) }
    })
}

pub(crate) unsafe fn t_pvar_session_free(session: *mut RawHandle) -> c_int {
    finish(|| {
        leads_somewhere(session)?;
        // SAFETY: `session` points to a handle of the caller.
        tool::end_session(handle(unsafe { *session }))?;
        // SAFETY: `session` points to a variable of the caller.
        unsafe { put(session, NULL) }
    })
}

pub(crate) unsafe fn t_pvar_handle_alloc(
    session: RawHandle,
    index: c_int,
    _object: *mut c_void,
    place: *mut RawHandle,
    count: *mut c_int,
) -> c_int {
    finish(|| {
        leads_somewhere(place)?;
        let index = usize::try_from(index).map_err(|_| Refusal::InvalidIndex)?;
        let made = tool::watch(handle(session), index)?;
        // SAFETY: `place` and `count` point to variables of the caller.
        unsafe {
            put_if_given(count, 1);
            put(place, raw(made))
        }
    })
}

pub(crate) unsafe fn t_pvar_handle_free(session: RawHandle, place: *mut RawHandle) -> c_int {
    finish(|| {
        leads_somewhere(place)?;
        // SAFETY: `place` points to a handle of the caller.
        tool::unwatch(handle(session), handle(unsafe { *place }))?;
        // SAFETY: `place` points to a variable of the caller.
        unsafe { put(place, NULL) }
    })
}

pub(crate) unsafe fn t_pvar_start(session: RawHandle, variable: RawHandle) -> c_int {
    with(session, variable, Watch::start)
}

pub(crate) unsafe fn t_pvar_stop(session: RawHandle, variable: RawHandle) -> c_int {
    with(session, variable, Watch::stop)
}

pub(crate) unsafe fn t_pvar_reset(session: RawHandle, variable: RawHandle) -> c_int {
    with(session, variable, |watch, counts| watch.write(0, counts))
}

pub(crate) unsafe fn t_pvar_read(
    session: RawHandle,
    variable: RawHandle,
    buffer: *mut c_void,
) -> c_int {
    finish(|| {
        leads_somewhere(buffer)?;
        let read = |watch: &mut Watch, counts: &_| Ok((watch.counter(), watch.read(counts)));
        let (counter, value) = tool::with_one(handle(session), handle(variable), read)?;
        // SAFETY: `buffer` has room for a value of the counter's type.
        unsafe { put_value(buffer, counter, value) }
    })
}

pub(crate) unsafe fn t_pvar_readreset(
    session: RawHandle,
    variable: RawHandle,
    buffer: *mut c_void,
) -> c_int {
    finish(|| {
        leads_somewhere(buffer)?;
        let (counter, value) =
            tool::with_one(handle(session), handle(variable), |watch, counts| {
                let value = watch.read(counts);
                watch.write(0, counts)?;
                Ok((watch.counter(), value))
            })?;
        // SAFETY: `buffer` has room for a value of the counter's type.
        unsafe { put_value(buffer, counter, value) }
    })
}

pub(crate) unsafe fn t_pvar_write(
    session: RawHandle,
    variable: RawHandle,
    buffer: *const c_void,
) -> c_int {
    finish(|| {
        leads_somewhere(buffer.cast_mut())?;
        tool::with_one(handle(session), handle(variable), |watch, counts| {
            let value = match watch.counter().class {
                // SAFETY: the buffer holds a double, the type of a timer.
                Class::Timer => (unsafe { buffer.cast::<f64>().read() } * NS_PER_S) as u64,
                // SAFETY: the buffer holds an unsigned long long, the type of this class of
                // variable.
                Class::Counter | Class::HighWatermark => unsafe { buffer.cast::<u64>().read() },
            };
            watch.write(value, counts)
        })
    })
}

pub(crate) unsafe fn t_category_get_num(number: *mut c_int) -> c_int {
    // SAFETY: `number` points to a variable of the caller.
    finish(|| unsafe { put(number, tool::categories().len() as c_int) })
}

pub(crate) unsafe fn t_category_get_info(
    index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    num_cvars: *mut c_int,
    num_pvars: *mut c_int,
    num_categories: *mut c_int,
) -> c_int {
    finish(|| {
        let category = at(tool::categories(), index)?;
        // SAFETY: every place for text or a number has the room that its argument says, or is NULL.
        unsafe {
            put_text_if_given(category.name, name, name_len);
            put_text_if_given(category.meaning, desc, desc_len);
            put_if_given(num_cvars, category.settings.len() as c_int);
            put_if_given(num_pvars, category.counters.len() as c_int);
            put_if_given(num_categories, 0);
        }
        Ok(())
    })
}

pub(crate) unsafe fn t_category_get_index(name: *const c_char, index: *mut c_int) -> c_int {
    // SAFETY: `name` is a C string or NULL; `index` points to a variable of the caller.
    finish(|| unsafe {
        let name = string(name)?;
        put(index, position(tool::categories(), |category| category.name == name)?)
    })
}

pub(crate) unsafe fn t_category_get_cvars(index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    finish(|| {
        let category = at(tool::categories(), index)?;
        // SAFETY: `indices` has room for `len` entries.
        unsafe { put_indices(category.settings.clone(), len, indices) }
    })
}

pub(crate) unsafe fn t_category_get_pvars(index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    finish(|| {
        let category = at(tool::categories(), index)?;
        // SAFETY: `indices` has room for `len` entries.
        unsafe { put_indices(category.counters.clone(), len, indices) }
    })
}

/// No category has others in it.
pub(crate) unsafe fn t_category_get_categories(
    index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> c_int {
    finish(|| {
        at(tool::categories(), index)?;
        // SAFETY: `indices` has room for `len` entries.
        unsafe { put_indices(0..0, len, indices) }
    })
}

/// No category has events in it.
pub(crate) unsafe fn t_category_get_events(index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    finish(|| {
        at(tool::categories(), index)?;
        // SAFETY: `indices` has room for `len` entries.
        unsafe { put_indices(0..0, len, indices) }
    })
}

pub(crate) unsafe fn t_category_get_num_events(index: c_int, number: *mut c_int) -> c_int {
    // SAFETY: `number` points to a variable of the caller.
    finish(|| at(tool::categories(), index).and_then(|_| unsafe { put(number, 0) }))
}

macro_rules! zeros {
    ($($name:ident)*) => {$(
        pub(crate) unsafe fn $name(number: *mut c_int) -> c_int {
            // SAFETY: `number` points to a variable of the caller.
            finish(|| unsafe { put(number, 0) })
        }
    )*};
}

zeros! { t_category_changed t_event_get_num t_source_get_num }

/// The answer of functions that are given an index.
pub(crate) fn no_such_index() -> c_int {
    finish(|| Err(Refusal::InvalidIndex))
}

/// The answer of functions that are given a name.
pub(crate) fn no_such_name() -> c_int {
    finish(|| Err(Refusal::InvalidName))
}

/// The answer of functions that are given a handle.
pub(crate) fn no_such_handle() -> c_int {
    finish(|| Err(Refusal::InvalidHandle))
}

/// Name and meaning of a code of this interface.
pub(crate) fn name_of(code: c_int) -> Option<(&'static str, &'static str)> {
    CODES.iter().find(|(known, ..)| *known == code).map(|(_, name, meaning)| (*name, *meaning))
}

/// The code of a call, which does nothing while the interface is not in use.
fn finish(body: impl FnOnce() -> Result<()>) -> c_int {
    if USERS.load(Ordering::Relaxed) == 0 {
        return NOT_INITIALIZED;
    }
    match body() {
        Ok(()) => SUCCESS,
        Err(refusal) => code_of(refusal),
    }
}

/// Does something with a counter, or with all of a session.
fn with(
    session: RawHandle,
    variable: RawHandle,
    act: impl Fn(&mut Watch, &tool::Counts) -> Result<()>,
) -> c_int {
    finish(|| match variable {
        ALL_HANDLES => tool::with_all(handle(session), act),
        _ => tool::with_one(handle(session), handle(variable), act),
    })
}

fn at<T>(all: &[T], index: c_int) -> Result<&T> {
    usize::try_from(index).ok().and_then(|index| all.get(index)).ok_or(Refusal::InvalidIndex)
}

fn position<T>(all: &[T], is_it: impl Fn(&T) -> bool) -> Result<c_int> {
    all.iter().position(is_it).map(|at| at as c_int).ok_or(Refusal::InvalidName)
}

fn leads_somewhere<T>(place: *mut T) -> Result<()> {
    if place.is_null() { Err(Refusal::InvalidArgument) } else { Ok(()) }
}

/// Writes what the call is for.
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    leads_somewhere(place)?;
    // SAFETY: the caller passes a place for the answer.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes what the caller may not want to know (MPI-5.0 §15.3.6: OUT arguments may be NULL).
unsafe fn put_if_given<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller passes a place for the answer.
        unsafe { place.write(value) };
    }
}

/// Writes as much of a text as there is room for, and how much room all of it takes (MPI-5.0 §15.3.3).
unsafe fn put_text_if_given(text: &str, place: *mut c_char, len: *mut c_int) {
    if len.is_null() {
        return;
    }
    // SAFETY: the caller passes the length of the buffer.
    let room = usize::try_from(unsafe { *len }).unwrap_or(0);
    if !place.is_null() && room > 0 {
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        // SAFETY: the caller passes a buffer of that length.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len());
            place.add(bytes.len()).write(0);
        }
    }
    // SAFETY: `len` is not NULL here and points to an `int` of the caller.
    unsafe { len.write(text.len() as c_int + 1) };
}

/// A name that the caller passes.
unsafe fn string<'a>(text: *const c_char) -> Result<&'a str> {
    leads_somewhere(text.cast_mut())?;
    // SAFETY: the caller passes a string.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Refusal::InvalidName)
}

/// Writes the first indices of a category, as many as there is room for.
unsafe fn put_indices(
    range: std::ops::Range<usize>,
    len: c_int,
    indices: *mut c_int,
) -> Result<()> {
    let room = usize::try_from(len).map_err(|_| Refusal::InvalidArgument)?;
    for (at, index) in range.take(room).enumerate() {
        leads_somewhere(indices)?;
        // SAFETY: the caller passes an array of `len` places.
        unsafe { indices.add(at).write(index as c_int) };
    }
    Ok(())
}

/// Writes a counter's value as the type that belongs to it.
unsafe fn put_value(buffer: *mut c_void, counter: &Counter, value: u64) -> Result<()> {
    // SAFETY: the caller passes a place for a value of that type.
    unsafe {
        match counter.class {
            Class::Timer => put(buffer.cast(), value as f64 / NS_PER_S),
            Class::Counter | Class::HighWatermark => put(buffer.cast(), value),
        }
    }
}

fn class_of(counter: &Counter) -> c_int {
    match counter.class {
        Class::HighWatermark => 5,
        Class::Counter => 7,
        Class::Timer => 9,
    }
}

fn datatype_of_counter(counter: &Counter) -> RawHandle {
    match counter.class {
        // MPI-5.0 §15.3.7: in the units of MPI_Wtime.
        Class::Timer => DOUBLE,
        Class::Counter | Class::HighWatermark => UNSIGNED_LONG_LONG,
    }
}

fn datatype_of_setting(setting: &Setting) -> RawHandle {
    match setting.kind() {
        Kind::Text(_) | Kind::Found(_) => CHAR,
        Kind::Bytes(_) | Kind::Seconds(_) => UNSIGNED_LONG_LONG,
    }
}

fn code_of(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::NotAccessible => 1002,
        Refusal::InvalidArgument => 1006,
        Refusal::InvalidIndex => 1007,
        Refusal::InvalidSession => 1009,
        Refusal::InvalidHandle => 1010,
        Refusal::InvalidName => 1011,
        Refusal::OutOfHandles => 1012,
        Refusal::OutOfSessions => 1013,
        Refusal::SetNever => 1015,
        Refusal::NoWrite => 1016,
        Refusal::NoStartStop => 1017,
    }
}

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1003;

/// MPI-5.0 §15.3.10, table 15.6.
const CODES: [(c_int, &str, &str); 18] = [
    (1001, "MPI_T_ERR_CANNOT_INIT", "the interface cannot be initialised now"),
    (1002, "MPI_T_ERR_NOT_ACCESSIBLE", "not accessible now"),
    (NOT_INITIALIZED, "MPI_T_ERR_NOT_INITIALIZED", "the interface is not initialised"),
    (1004, "MPI_T_ERR_NOT_SUPPORTED", "not supported"),
    (1005, "MPI_T_ERR_MEMORY", "out of memory"),
    (1006, "MPI_T_ERR_INVALID", "invalid argument"),
    (1007, "MPI_T_ERR_INVALID_INDEX", "no such index"),
    (1008, "MPI_T_ERR_INVALID_ITEM", "no such item"),
    (1009, "MPI_T_ERR_INVALID_SESSION", "invalid session"),
    (1010, "MPI_T_ERR_INVALID_HANDLE", "invalid handle"),
    (1011, "MPI_T_ERR_INVALID_NAME", "no such name"),
    (1012, "MPI_T_ERR_OUT_OF_HANDLES", "no more handles"),
    (1013, "MPI_T_ERR_OUT_OF_SESSIONS", "no more sessions"),
    (1014, "MPI_T_ERR_CVAR_SET_NOT_NOW", "the variable cannot be set now"),
    (1015, "MPI_T_ERR_CVAR_SET_NEVER", "the variable cannot be set"),
    (1016, "MPI_T_ERR_PVAR_NO_WRITE", "the variable cannot be written"),
    (1017, "MPI_T_ERR_PVAR_NO_STARTSTOP", "the variable cannot be started or stopped"),
    (1018, "MPI_T_ERR_PVAR_NO_ATOMIC", "the variable cannot be read and reset in one"),
];

const ALL_HANDLES: RawHandle = 1;
/// Of sessions, handles and enumerations.
const NULL: RawHandle = 0;

const CHAR: RawHandle = 0x243;
const UNSIGNED_LONG_LONG: RawHandle = 0x20f;
const DOUBLE: RawHandle = 0x214;

const USER_BASIC: c_int = 0x09;
const TUNER_BASIC: c_int = 0x11;
const NO_OBJECT: c_int = 1;
const SCOPE_CONSTANT: c_int = 1;

const NS_PER_S: f64 = 1e9;
