//! The tool information interface (MPI-5.0 §15.3): settings as control variables, counters as performance
//! variables, and their categories. There are no events, and no enumerations.
//!
//! These functions answer with a code and never call an error handler; they work before `MPI_Init` and
//! after `MPI_Finalize`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpi::tool::{self, Class, Counter, Refusal, Result, Watch};
use settings::{Kind, Setting};

use crate::caller::{Chars, InOut, Out, Slots};
use crate::convention::{RawHandle, handle, raw};
use crate::init::MULTIPLE;
use crate::world;

/// Number of calls of `MPI_T_init_thread` without their `MPI_T_finalize`.
static USERS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn t_init_thread(_required: c_int, provided: Option<Out<c_int>>) -> c_int {
    USERS.fetch_add(1, Ordering::Relaxed);
    put_if_given(provided, MULTIPLE);
    SUCCESS
}

pub(crate) fn t_finalize() -> c_int {
    let left =
        USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| users.checked_sub(1));
    left.map_or(NOT_INITIALIZED, |_| SUCCESS)
}

pub(crate) fn t_cvar_get_num(number: Out<c_int>) -> Result<()> {
    put(number, tool::settings().len() as c_int)
}

pub(crate) fn t_cvar_get_info(
    index: c_int,
    name: Label,
    verbosity: Option<Out<c_int>>,
    datatype: Option<Out<RawHandle>>,
    enumtype: Option<Out<RawHandle>>,
    desc: Label,
    bind: Option<Out<c_int>>,
    scope: Option<Out<c_int>>,
) -> Result<()> {
    let setting = at(tool::settings(), index)?;
    let (meaning, values) = (setting.meaning(), setting.values());
    name.write(setting.variable());
    put_if_given(verbosity, USER_BASIC);
    put_if_given(datatype, datatype_of_setting(setting));
    put_if_given(enumtype, NULL);
    desc.write(&format!("{meaning} Values: {values}; default: {}", setting.kind()));
    put_if_given(bind, NO_OBJECT);
    put_if_given(scope, SCOPE_CONSTANT);
    Ok(())
}

pub(crate) fn t_cvar_get_index(name: &str, index: Out<c_int>) -> Result<()> {
    put(index, position(tool::settings(), |setting| setting.variable() == name)?)
}

pub(crate) fn t_cvar_handle_alloc(
    index: c_int,
    _object: *mut c_void,
    place: Out<RawHandle>,
    count: Option<Out<c_int>>,
) -> Result<()> {
    let setting = at(tool::settings(), index)?;
    let elements = match setting.kind() {
        Kind::Text(_) | Kind::Found(_) => setting.text().len() + 1,
        Kind::Bytes(_) | Kind::Seconds(_) => 1,
    };
    put_if_given(count, elements as c_int);
    put(place, raw(tool::open_setting(index as usize)?))
}

pub(crate) fn t_cvar_handle_free(place: InOut<RawHandle>) -> Result<()> {
    tool::close_setting(handle(place.get()))?;
    set(place, NULL)
}

pub(crate) fn t_cvar_read(variable: RawHandle, value: Value) -> Result<()> {
    let setting = tool::setting(handle(variable))?;
    match setting.kind() {
        Kind::Text(_) | Kind::Found(_) => value.put_text(&setting.text()),
        Kind::Bytes(_) | Kind::Seconds(_) => {
            value.put(setting.number().map_err(|_| Refusal::NotAccessible)?);
        }
    }
    Ok(())
}

pub(crate) fn t_cvar_write(variable: RawHandle, _value: Value) -> Result<()> {
    tool::setting(handle(variable)).and(Err(Refusal::SetNever))
}

pub(crate) fn t_pvar_get_num(number: Out<c_int>) -> Result<()> {
    put(number, tool::counters().len() as c_int)
}

pub(crate) fn t_pvar_get_info(
    index: c_int,
    name: Label,
    verbosity: Option<Out<c_int>>,
    var_class: Option<Out<c_int>>,
    datatype: Option<Out<RawHandle>>,
    enumtype: Option<Out<RawHandle>>,
    desc: Label,
    bind: Option<Out<c_int>>,
    readonly: Option<Out<c_int>>,
    continuous: Option<Out<c_int>>,
    atomic: Option<Out<c_int>>,
) -> Result<()> {
    let counter = at(tool::counters(), index)?;
    name.write(counter.name);
    put_if_given(verbosity, TUNER_BASIC);
    put_if_given(var_class, class_of(counter));
    put_if_given(datatype, datatype_of_counter(counter));
    put_if_given(enumtype, NULL);
    desc.write(counter.meaning);
    put_if_given(bind, NO_OBJECT);
    put_if_given(readonly, c_int::from(counter.is_continuous()));
    put_if_given(continuous, c_int::from(counter.is_continuous()));
    put_if_given(atomic, c_int::from(!counter.is_continuous()));
    Ok(())
}

pub(crate) fn t_pvar_get_index(name: &str, var_class: c_int, index: Out<c_int>) -> Result<()> {
    let is_it = |counter: &Counter| counter.name == name && class_of(counter) == var_class;
    put(index, position(tool::counters(), is_it)?)
}

pub(crate) fn t_pvar_session_create(session: Out<RawHandle>) -> Result<()> {
    put(session, raw(tool::begin_session()?))
}

pub(crate) fn t_pvar_session_free(session: InOut<RawHandle>) -> Result<()> {
    tool::end_session(handle(session.get()))?;
    set(session, NULL)
}

pub(crate) fn t_pvar_handle_alloc(
    session: RawHandle,
    index: c_int,
    _object: *mut c_void,
    place: Out<RawHandle>,
    count: Option<Out<c_int>>,
) -> Result<()> {
    let index = usize::try_from(index).map_err(|_| Refusal::InvalidIndex)?;
    let made = tool::watch(handle(session), index)?;
    put_if_given(count, 1);
    put(place, raw(made))
}

pub(crate) fn t_pvar_handle_free(session: RawHandle, place: InOut<RawHandle>) -> Result<()> {
    tool::unwatch(handle(session), handle(place.get()))?;
    set(place, NULL)
}

pub(crate) fn t_pvar_start(session: RawHandle, variable: RawHandle) -> Result<()> {
    with(session, variable, Watch::start)
}

pub(crate) fn t_pvar_stop(session: RawHandle, variable: RawHandle) -> Result<()> {
    with(session, variable, Watch::stop)
}

pub(crate) fn t_pvar_reset(session: RawHandle, variable: RawHandle) -> Result<()> {
    with(session, variable, |watch, counts| watch.write(0, counts))
}

pub(crate) fn t_pvar_read(session: RawHandle, variable: RawHandle, place: Value) -> Result<()> {
    let read = |watch: &mut Watch, counts: &_| Ok((watch.counter(), watch.read(counts)));
    let (counter, value) = tool::with_one(&counts(), handle(session), handle(variable), read)?;
    put_value(place, counter, value);
    Ok(())
}

pub(crate) fn t_pvar_readreset(
    session: RawHandle,
    variable: RawHandle,
    place: Value,
) -> Result<()> {
    let (counter, value) =
        tool::with_one(&counts(), handle(session), handle(variable), |watch, counts| {
            let value = watch.read(counts);
            watch.write(0, counts)?;
            Ok((watch.counter(), value))
        })?;
    put_value(place, counter, value);
    Ok(())
}

pub(crate) fn t_pvar_write(session: RawHandle, variable: RawHandle, place: Value) -> Result<()> {
    tool::with_one(&counts(), handle(session), handle(variable), |watch, counts| {
        let value = match watch.counter().class {
            Class::Timer => (place.get::<f64>() * NS_PER_S) as u64,
            Class::Counter | Class::HighWatermark => place.get::<u64>(),
        };
        watch.write(value, counts)
    })
}

pub(crate) fn t_category_get_num(number: Out<c_int>) -> Result<()> {
    put(number, tool::categories().len() as c_int)
}

pub(crate) fn t_category_get_info(
    index: c_int,
    name: Label,
    desc: Label,
    num_cvars: Option<Out<c_int>>,
    num_pvars: Option<Out<c_int>>,
    num_categories: Option<Out<c_int>>,
) -> Result<()> {
    let category = at(tool::categories(), index)?;
    name.write(category.name);
    desc.write(category.meaning);
    put_if_given(num_cvars, category.settings.len() as c_int);
    put_if_given(num_pvars, category.counters.len() as c_int);
    put_if_given(num_categories, 0);
    Ok(())
}

pub(crate) fn t_category_get_index(name: &str, index: Out<c_int>) -> Result<()> {
    put(index, position(tool::categories(), |category| category.name == name)?)
}

pub(crate) fn t_category_get_cvars(index: c_int, indices: Slots<c_int>) -> Result<()> {
    put_indices(at(tool::categories(), index)?.settings.clone(), indices)
}

pub(crate) fn t_category_get_pvars(index: c_int, indices: Slots<c_int>) -> Result<()> {
    put_indices(at(tool::categories(), index)?.counters.clone(), indices)
}

/// No category has others in it.
pub(crate) fn t_category_get_categories(index: c_int, _indices: Slots<c_int>) -> Result<()> {
    at(tool::categories(), index).map(drop)
}

/// No category has events in it.
pub(crate) fn t_category_get_events(index: c_int, _indices: Slots<c_int>) -> Result<()> {
    at(tool::categories(), index).map(drop)
}

pub(crate) fn t_category_get_num_events(index: c_int, number: Out<c_int>) -> Result<()> {
    at(tool::categories(), index).and_then(|_| put(number, 0))
}

macro_rules! zeros {
    ($($name:ident)*) => {$(
        pub(crate) fn $name(number: Out<c_int>) -> Result<()> {
            put(number, 0)
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
pub(crate) fn finish(body: impl FnOnce() -> Result<()>) -> c_int {
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
) -> Result<()> {
    match variable {
        ALL_HANDLES => tool::with_all(&counts(), handle(session), act),
        _ => tool::with_one(&counts(), handle(session), handle(variable), act),
    }
}

/// The values of all counters, read before the table of handles is locked.
fn counts() -> tool::Counts {
    tool::Counts::of(world::known().map(|process| &**process))
}

fn at<T>(all: &[T], index: c_int) -> Result<&T> {
    usize::try_from(index).ok().and_then(|index| all.get(index)).ok_or(Refusal::InvalidIndex)
}

fn position<T>(all: &[T], is_it: impl Fn(&T) -> bool) -> Result<c_int> {
    all.iter().position(is_it).map(|at| at as c_int).ok_or(Refusal::InvalidName)
}

/// A place that the call cannot do without.
pub(crate) fn given<T>(place: Option<T>) -> Result<T> {
    place.ok_or(Refusal::InvalidArgument)
}

/// The length of an array.
pub(crate) fn len(len: c_int) -> Result<usize> {
    usize::try_from(len).map_err(|_| Refusal::InvalidArgument)
}

/// A name that the caller passes.
///
/// # Safety
/// The address leads to a text that ends in a zero byte, or is NULL.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    given(NonNull::new(text.cast_mut()))?;
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Refusal::InvalidName)
}

/// Writes what the call is for.
fn put<T>(place: Out<T>, value: T) -> Result<()> {
    put_if_given(Some(place), value);
    Ok(())
}

/// Changes what the caller passes.
fn set<T: Copy>(place: InOut<T>, value: T) -> Result<()> {
    place.put(value).map_err(|_| Refusal::InvalidArgument)
}

/// Writes what the caller may not want to know (MPI-5.0 §15.3.6: OUT arguments may be NULL).
fn put_if_given<T>(place: Option<Out<T>>, value: T) {
    if let Some(place) = place {
        // Writing to a place that is there cannot fail.
        let _ = place.put(value);
    }
}

/// Room for a text, and its length, which the caller gives and gets. Both may be left out.
pub(crate) struct Label {
    place: *mut c_char,
    len: Option<InOut<c_int>>,
}

impl Label {
    /// # Safety
    /// `len` leads to the number of bytes at `place`. Either may be NULL.
    pub unsafe fn new(place: *mut c_char, len: *mut c_int) -> Self {
        // SAFETY: the caller's promise.
        Self { place, len: unsafe { InOut::optional(len) } }
    }

    /// Writes as much of a text as there is room for, and how much room all of it takes (MPI-5.0 §15.3.3).
    fn write(self, text: &str) {
        let Some(len) = self.len else { return };
        let room = usize::try_from(len.get()).unwrap_or(0);
        // SAFETY: the maker vouched for as many bytes as the length says.
        let place = unsafe { Chars::new("name", self.place) };
        // No text is wanted where there is no place.
        let _ = place.write(text, room);
        let _ = len.put(text.len() as c_int + 1);
    }
}

/// Place of the value of a variable, of the type and length that belong to the variable.
#[derive(Clone, Copy)]
pub(crate) struct Value(NonNull<u8>);

impl Value {
    /// # Safety
    /// The address leads to a value of the variable that the call names, or is NULL.
    pub unsafe fn new(place: *const c_void) -> Option<Self> {
        NonNull::new(place.cast_mut()).map(|place| Self(place.cast()))
    }

    fn get<T: Number>(self) -> T {
        // SAFETY: the maker vouched for a value of the variable's type.
        unsafe { self.0.cast::<T>().read() }
    }

    fn put<T: Number>(self, value: T) {
        // SAFETY: the maker vouched for room for a value of the variable's type.
        unsafe { self.0.cast::<T>().write(value) };
    }

    fn put_text(self, text: &str) {
        // SAFETY: the maker vouched for room for the characters of the text and the final zero byte.
        unsafe {
            self.0.copy_from_nonoverlapping(NonNull::from(text.as_bytes()).cast(), text.len());
            self.0.add(text.len()).write(0);
        }
    }
}

/// The types of variables that are numbers.
trait Number: Copy {}

impl Number for u64 {}
impl Number for f64 {}

/// Writes the first indices of a category, as many as there is room for.
fn put_indices(range: std::ops::Range<usize>, indices: Slots<c_int>) -> Result<()> {
    let found = range.take(indices.len()).map(|index| index as c_int);
    indices.write(found).map_err(|_| Refusal::InvalidArgument)
}

/// Writes a counter's value as the type that belongs to it.
fn put_value(place: Value, counter: &Counter, value: u64) {
    match counter.class {
        Class::Timer => place.put(value as f64 / NS_PER_S),
        Class::Counter | Class::HighWatermark => place.put(value),
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
