//! Callbacks of generalized requests and data representations.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;

use binding::callback::{Callback, CallbackState, Procedure};
use binding::translation::Translation;

use crate::code::Code;
use crate::handle::Datatype;
use crate::status::{MpichStatus, StandardStatus, queried};

/// A function that C calls in place of one of the program, if there is one.
fn in_place_of(function: Procedure, standing: Procedure) -> Callback {
    Callback::of(if function.is_null() { ptr::null() } else { standing })
}

/// The state of a generalized request.
pub(crate) struct Grequest {
    query: Procedure,
    free: Procedure,
    cancel: Procedure,
    extra_state: *mut c_void,
}

impl Grequest {
    pub(crate) fn state(
        query: Procedure,
        free: Procedure,
        cancel: Procedure,
        extra_state: *mut c_void,
    ) -> CallbackState<Self> {
        CallbackState::new(Self { query, free, cancel, extra_state })
    }

    pub(crate) fn query_of(function: Procedure) -> Callback {
        in_place_of(function, grequest_query as Procedure)
    }

    pub(crate) fn free_of(function: Procedure) -> Callback {
        in_place_of(function, grequest_free as Procedure)
    }

    pub(crate) fn cancel_of(function: Procedure) -> Callback {
        in_place_of(function, grequest_cancel as Procedure)
    }
}

unsafe extern "C" fn grequest_query(state: *mut Grequest, status: *mut StandardStatus) -> c_int {
    type Query = unsafe extern "C" fn(*mut c_void, *mut MpichStatus) -> c_int;
    // SAFETY: the state is that of a request that lives, C passes a status, and the program gave the function for queries.
    Code::to_c(unsafe {
        let function: Query = transmute((*state).query);
        queried(&mut *status, |status| function((*state).extra_state, status))
    })
}

unsafe extern "C" fn grequest_free(state: *mut Grequest) -> c_int {
    type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: the state is that of a request, whose last callback this is; the program gave the function for freeing.
    unsafe {
        let state = Box::from_raw(state);
        let function: Free = transmute(state.free);
        Code::to_c(function(state.extra_state))
    }
}

unsafe extern "C" fn grequest_cancel(state: *mut Grequest, complete: c_int) -> c_int {
    type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    // SAFETY: the state is that of a request that lives, and the program gave the function for cancelling.
    Code::to_c(unsafe {
        let function: Cancel = transmute((*state).cancel);
        function((*state).extra_state, complete)
    })
}

/// The state of a data representation, which lasts as long as the process.
pub(crate) struct Datarep {
    read: Procedure,
    write: Procedure,
    extent: Procedure,
    extra_state: *mut c_void,
}

impl Datarep {
    pub(crate) fn state(
        read: Procedure,
        write: Procedure,
        extent: Procedure,
        extra_state: *mut c_void,
    ) -> CallbackState<Self> {
        CallbackState::new(Self { read, write, extent, extra_state })
    }

    pub(crate) fn extent_of(function: Procedure) -> Callback {
        in_place_of(function, datarep_extent as Procedure)
    }
}

unsafe extern "C" fn datarep_extent(
    datatype: usize,
    extent: *mut isize,
    state: *mut Datarep,
) -> c_int {
    type Extent = unsafe extern "C" fn(c_int, *mut isize, *mut c_void) -> c_int;
    // SAFETY: the state lasts as long as the process, and the program gave the function for extents.
    Code::to_c(unsafe {
        let function: Extent = transmute((*state).extent);
        function(Datatype::to_program(datatype), extent, (*state).extra_state)
    })
}

/// Functions that convert data, whose number of elements is an int or an MPI_Count.
macro_rules! conversions {
    ($($of:ident $name:ident $function:ident $count:ty)*) => { $(
        impl Datarep {
            pub(crate) fn $of(function: Procedure) -> Callback {
                in_place_of(function, $name as Procedure)
            }
        }

        unsafe extern "C" fn $name(
            userbuf: *mut c_void,
            datatype: usize,
            count: $count,
            filebuf: *mut c_void,
            position: i64,
            state: *mut Datarep,
        ) -> c_int {
            type Conversion = unsafe extern "C" fn(
                *mut c_void,
                c_int,
                $count,
                *mut c_void,
                i64,
                *mut c_void,
            ) -> c_int;
            // SAFETY: the state lasts as long as the process, and the program gave the function for conversions.
            Code::to_c(unsafe {
                let function: Conversion = transmute((*state).$function);
                let datatype = Datatype::to_program(datatype);
                function(userbuf, datatype, count, filebuf, position, (*state).extra_state)
            })
        }
    )* };
}

conversions! {
    read_of datarep_read read c_int
    write_of datarep_write write c_int
    read_c_of datarep_read_c read i64
    write_c_of datarep_write_c write i64
}
