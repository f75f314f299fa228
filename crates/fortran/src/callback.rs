//! Callbacks in Fortran: what their states hold, and functions with C's prototype that call them.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;

use binding::callback::{Callback, CallbackState, Procedure};
use binding::translation::Translation;
use binding::{alias, handled};

use crate::handle::{Code, Comm, Datatype, File, Session, Win};

handled! { Code;
    Comm "error handlers of communicators"
    File "error handlers of files"
    Session "error handlers of sessions"
    Win "error handlers of windows"
}

/// The state of a generalized request: its procedures, and the program's variable. As with MPICH and Open MPI, procedures
/// may change the variable.
pub(crate) struct Grequest {
    query: Procedure,
    free: Procedure,
    cancel: Procedure,
    extra_state: *const isize,
}

impl Grequest {
    pub(crate) fn take(
        query: Procedure,
        free: Procedure,
        cancel: Procedure,
        extra_state: *const isize,
    ) -> CallbackState<Self> {
        CallbackState::new(Self { query, free, cancel, extra_state })
    }
}

/// The state of a data representation, which lasts as long as the process.
pub(crate) struct Datarep {
    read: Procedure,
    write: Procedure,
    extent: Procedure,
    extra_state: isize,
}

impl Datarep {
    /// Reads the program's state.
    pub(crate) unsafe fn take(
        read: Procedure,
        write: Procedure,
        extent: Procedure,
        extra_state: *const isize,
    ) -> CallbackState<Self> {
        // SAFETY: Fortran passes the address of an integer.
        let extra_state = unsafe { *extra_state };
        CallbackState::new(Self { read, write, extent, extra_state })
    }

    /// The function of a conversion, if there is one.
    pub(crate) fn conversion(procedure: Procedure, function: Procedure) -> Callback {
        let is_none = procedure == mpi_conversion_fn_null_ as Procedure;
        Callback::of(if is_none { ptr::null() } else { function })
    }
}

/// The conversion that a data representation does not have. Only its address counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn mpi_conversion_fn_null_() {}
alias! { mpi_conversion_fn_null_: mpi_conversion_fn_null mpi_conversion_fn_null__ MPI_CONVERSION_FN_NULL }

pub(crate) unsafe extern "C" fn grequest_query(state: *mut Grequest, status: *mut c_void) -> c_int {
    type Query = unsafe extern "C" fn(*const isize, *mut c_void, *mut c_int);
    let mut code = 0;
    // SAFETY: the state is that of a request that lives, and the program gave the procedure for queries.
    unsafe {
        let procedure: Query = transmute((*state).query);
        procedure((*state).extra_state, status, &mut code);
    }
    code
}

pub(crate) unsafe extern "C" fn grequest_free(state: *mut Grequest) -> c_int {
    type Free = unsafe extern "C" fn(*const isize, *mut c_int);
    let mut code = 0;
    // SAFETY: the state is that of a request, whose last callback this is.
    unsafe {
        let state = Box::from_raw(state);
        let procedure: Free = transmute(state.free);
        procedure(state.extra_state, &mut code);
    }
    code
}

pub(crate) unsafe extern "C" fn grequest_cancel(state: *mut Grequest, complete: c_int) -> c_int {
    type Cancel = unsafe extern "C" fn(*const isize, *const c_int, *mut c_int);
    let mut code = 0;
    // SAFETY: the state is that of a request that lives, and the program gave the procedure for cancelling.
    unsafe {
        let procedure: Cancel = transmute((*state).cancel);
        procedure((*state).extra_state, &complete, &mut code);
    }
    code
}

pub(crate) unsafe extern "C" fn datarep_extent(
    datatype: usize,
    extent: *mut isize,
    state: *mut Datarep,
) -> c_int {
    type Extent = unsafe extern "C" fn(*const c_int, *mut isize, *const isize, *mut c_int);
    let mut code = 0;
    // SAFETY: the state lasts as long as the process, and the program gave the procedure for extents.
    unsafe {
        let procedure: Extent = transmute((*state).extent);
        procedure(
            &Datatype::to_program(datatype),
            extent,
            &raw const (*state).extra_state,
            &mut code,
        );
    }
    code
}

/// Calls a procedure that converts data, whose number of elements is an int or an MPI_Count.
unsafe fn convert<N>(
    procedure: Procedure,
    (userbuf, datatype, count, filebuf, position): (*mut c_void, usize, N, *mut c_void, i64),
    state: *mut Datarep,
) -> c_int {
    type Conversion<N> = unsafe extern "C" fn(
        *mut c_void,
        *const c_int,
        *const N,
        *mut c_void,
        *const i64,
        *const isize,
        *mut c_int,
    );
    let mut code = 0;
    // SAFETY: the state lasts as long as the process, and the program gave the procedure for conversions.
    unsafe {
        let procedure: Conversion<N> = transmute(procedure);
        let (datatype, extra_state) =
            (Datatype::to_program(datatype), &raw const (*state).extra_state);
        procedure(userbuf, &datatype, &count, filebuf, &position, extra_state, &mut code);
    }
    code
}

macro_rules! conversions {
    ($($name:ident $procedure:ident $count:ty)*) => { $(
        pub(crate) unsafe extern "C" fn $name(
            userbuf: *mut c_void,
            datatype: usize,
            count: $count,
            filebuf: *mut c_void,
            position: i64,
            state: *mut Datarep,
        ) -> c_int {
            // SAFETY: the state lasts as long as the process, and C passes what the standard says.
            unsafe {
                convert((*state).$procedure, (userbuf, datatype, count, filebuf, position), state)
            }
        }
    )* };
}

conversions! {
    datarep_read read c_int
    datarep_write write c_int
    datarep_read_c read i64
    datarep_write_c write i64
}
