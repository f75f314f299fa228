//! The tool information interface (MPI-5.0 §15.3). The library has no variables, categories and events
//! to show yet: it says so as the standard wants it, and sessions can be made and freed.
//!
//! These functions answer with a code and never call an error handler; they work before `MPI_Init` and
//! after `MPI_Finalize`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpi::table::{Kind, Table};

use crate::convention::{RawHandle, handle, raw};
use crate::init::MULTIPLE;

/// How many calls of `MPI_T_init_thread` wait for their `MPI_T_finalize`.
static USERS: AtomicUsize = AtomicUsize::new(0);

static SESSIONS: Table<()> = Table::new(Kind::ToolSession, mpi::ErrorClass::Session);

pub(crate) unsafe fn t_init_thread(_required: c_int, provided: *mut c_int) -> c_int {
    USERS.fetch_add(1, Ordering::Relaxed);
    if provided.is_null() {
        return SUCCESS;
    }
    // SAFETY: as the body's.
    unsafe { answer(provided, MULTIPLE) }
}

pub(crate) unsafe fn t_finalize() -> c_int {
    let left =
        USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| users.checked_sub(1));
    left.map_or(NOT_INITIALIZED, |_| SUCCESS)
}

macro_rules! zeros {
    ($($name:ident)*) => {$(
        pub(crate) unsafe fn $name(number: *mut c_int) -> c_int {
            // SAFETY: as the body's.
            unsafe { answer(number, 0) }
        }
    )*};
}

zeros! {
    t_cvar_get_num t_pvar_get_num t_category_get_num t_category_changed t_event_get_num
    t_source_get_num
}

/// The answer of functions that are given an index.
pub(crate) fn no_such_index() -> c_int {
    refused(INVALID_INDEX)
}

/// The answer of functions that are given a name.
pub(crate) fn no_such_name() -> c_int {
    refused(INVALID_NAME)
}

/// The answer of functions that are given a handle.
pub(crate) fn no_such_handle() -> c_int {
    refused(INVALID_HANDLE)
}

pub(crate) unsafe fn t_pvar_session_create(session: *mut RawHandle) -> c_int {
    match SESSIONS.insert(()) {
        // SAFETY: as the body's.
        Ok(made) => unsafe { answer(session, raw(made)) },
        Err(_) => refused(OUT_OF_SESSIONS),
    }
}

pub(crate) unsafe fn t_pvar_session_free(session: *mut RawHandle) -> c_int {
    if session.is_null() {
        return refused(INVALID);
    }
    // SAFETY: as the body's.
    match SESSIONS.remove(handle(unsafe { *session })) {
        // SAFETY: as the body's.
        Ok(()) => unsafe { answer(session, SESSION_NULL) },
        Err(_) => refused(INVALID_SESSION),
    }
}

pub(crate) unsafe fn t_pvar_handle_alloc(
    session: RawHandle,
    _index: c_int,
    _object: *mut std::ffi::c_void,
    _handle: *mut RawHandle,
    _count: *mut c_int,
) -> c_int {
    in_session(session, INVALID_INDEX)
}

pub(crate) unsafe fn t_pvar_handle_free(session: RawHandle, _handle: *mut RawHandle) -> c_int {
    in_session(session, INVALID_HANDLE)
}

macro_rules! for_all_handles {
    ($($name:ident)*) => {$(
        pub(crate) unsafe fn $name(session: RawHandle, variable: RawHandle) -> c_int {
            in_session(session, if variable == ALL_HANDLES { SUCCESS } else { INVALID_HANDLE })
        }
    )*};
}

for_all_handles! { t_pvar_start t_pvar_stop t_pvar_reset }

macro_rules! for_one_handle {
    ($($name:ident $buffer:ty;)*) => {$(
        pub(crate) unsafe fn $name(
            session: RawHandle,
            _variable: RawHandle,
            _buffer: $buffer,
        ) -> c_int {
            in_session(session, INVALID_HANDLE)
        }
    )*};
}

for_one_handle! {
    t_pvar_read *mut std::ffi::c_void;
    t_pvar_readreset *mut std::ffi::c_void;
    t_pvar_write *const std::ffi::c_void;
}

/// Name and meaning of a code of this interface.
pub(crate) fn name_of(code: c_int) -> Option<(&'static str, &'static str)> {
    CODES.iter().find(|(known, ..)| *known == code).map(|(_, name, meaning)| (*name, *meaning))
}

unsafe fn answer<T>(place: *mut T, value: T) -> c_int {
    if place.is_null() {
        return refused(INVALID);
    }
    // SAFETY: the caller passes a place for the answer.
    unsafe { place.write(value) };
    refused(SUCCESS)
}

fn in_session(session: RawHandle, code: c_int) -> c_int {
    refused(if SESSIONS.find(handle(session)).is_ok() { code } else { INVALID_SESSION })
}

/// The code, unless the interface is not in use.
fn refused(code: c_int) -> c_int {
    if USERS.load(Ordering::Relaxed) == 0 { NOT_INITIALIZED } else { code }
}

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1003;
const INVALID: c_int = 1006;
const INVALID_INDEX: c_int = 1007;
const INVALID_SESSION: c_int = 1009;
const INVALID_HANDLE: c_int = 1010;
const INVALID_NAME: c_int = 1011;
const OUT_OF_SESSIONS: c_int = 1013;

/// MPI-5.0 §15.3.10, table 15.6.
const CODES: [(c_int, &str, &str); 18] = [
    (1001, "MPI_T_ERR_CANNOT_INIT", "the interface cannot be initialised now"),
    (1002, "MPI_T_ERR_NOT_ACCESSIBLE", "not accessible now"),
    (NOT_INITIALIZED, "MPI_T_ERR_NOT_INITIALIZED", "the interface is not initialised"),
    (1004, "MPI_T_ERR_NOT_SUPPORTED", "not supported"),
    (1005, "MPI_T_ERR_MEMORY", "out of memory"),
    (INVALID, "MPI_T_ERR_INVALID", "invalid argument"),
    (INVALID_INDEX, "MPI_T_ERR_INVALID_INDEX", "no such index"),
    (1008, "MPI_T_ERR_INVALID_ITEM", "no such item"),
    (INVALID_SESSION, "MPI_T_ERR_INVALID_SESSION", "invalid session"),
    (INVALID_HANDLE, "MPI_T_ERR_INVALID_HANDLE", "invalid handle"),
    (INVALID_NAME, "MPI_T_ERR_INVALID_NAME", "no such name"),
    (1012, "MPI_T_ERR_OUT_OF_HANDLES", "no more handles"),
    (OUT_OF_SESSIONS, "MPI_T_ERR_OUT_OF_SESSIONS", "no more sessions"),
    (1014, "MPI_T_ERR_CVAR_SET_NOT_NOW", "the variable cannot be set now"),
    (1015, "MPI_T_ERR_CVAR_SET_NEVER", "the variable cannot be set"),
    (1016, "MPI_T_ERR_PVAR_NO_WRITE", "the variable cannot be written"),
    (1017, "MPI_T_ERR_PVAR_NO_STARTSTOP", "the variable cannot be started or stopped"),
    (1018, "MPI_T_ERR_PVAR_NO_ATOMIC", "the variable cannot be read and reset in one"),
];

const ALL_HANDLES: RawHandle = 1;
const SESSION_NULL: RawHandle = 0;
