//! Callbacks in Fortran: functions with C's prototype that call them.
//!
//! C passes no state to operations and error handlers. Each procedure that a program makes one of gets a function of
//! its own from a table, found again by its address. Other callbacks get a state: the procedures and the program's.

use std::ffi::{c_int, c_void};
use std::io::{Write, stderr};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::argument::{Argument, alias};
use crate::handle::{Comm, Datatype, File, HandleKind, Session, Win};

/// A procedure of the program.
pub(crate) type Procedure = *const c_void;

/// A function that C calls, as a word.
pub(crate) struct Callback(Procedure);

impl Callback {
    /// A function that calls a procedure through a state.
    pub(crate) fn of(function: Procedure) -> Self {
        Self(function)
    }
}

impl Argument for Callback {
    type C = Procedure;

    fn c(&mut self) -> Procedure {
        self.0
    }
}

/// Number of procedures that can be operations, and error handlers of each kind.
const SLOTS: usize = 64;

/// Procedures without a state, by the number of the function that calls them.
pub(crate) struct Table {
    what: &'static str,
    procedures: [AtomicUsize; SLOTS],
}

impl Table {
    const fn new(what: &'static str) -> Self {
        Self { what, procedures: [const { AtomicUsize::new(0) }; SLOTS] }
    }

    /// The number of a procedure, which it keeps.
    fn slot(&self, procedure: Procedure) -> Option<usize> {
        let address = procedure as usize;
        let slot = self.procedures.iter().position(|place| {
            let found = place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
            found.is_ok() || found == Err(address)
        });
        if slot.is_none() {
            let _ = writeln!(
                stderr(),
                "canele: more than {SLOTS} procedures of Fortran as {}",
                self.what
            );
        }
        slot
    }

    fn procedure(&self, slot: usize) -> usize {
        self.procedures[slot].load(Ordering::Acquire)
    }
}

/// Functions of a generic parameter that counts from 0, as an array.
macro_rules! numbered {
    ([$($kind:ty)?] $function:ident) => {
        numbered!(@ $function [$($kind)?]
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    (@ $function:ident [] $($number:literal)*) => { [$($function::<$number> as Procedure),*] };
    (@ $function:ident [$kind:ty] $($number:literal)*) => { [$($function::<$kind, $number> as Procedure),*] };
}

static OPERATIONS: Table = Table::new("operations");

/// A user-defined operation. Its number of elements is an int or an MPI_Count, whose address is passed on.
unsafe extern "C" fn operation<const SLOT: usize>(
    invec: *mut c_void,
    inoutvec: *mut c_void,
    len: *mut c_void,
    datatype: *mut usize,
) {
    type Operation = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_int);
    // SAFETY: C passes the address of a handle, and the program gave the procedure as an operation.
    unsafe {
        let mut datatype = Datatype::to_int(*datatype);
        let procedure: Operation = transmute(OPERATIONS.procedure(SLOT));
        procedure(invec, inoutvec, len, &mut datatype);
    }
}

/// The function of an operation.
pub(crate) fn operation_for(procedure: Procedure) -> Callback {
    Callback(OPERATIONS.slot(procedure).map_or(ptr::null(), |slot| numbered!([] operation)[slot]))
}

/// HandleKind of object with error handlers.
pub(crate) trait Handled: HandleKind {
    /// The procedures for it.
    fn table() -> &'static Table;
}

macro_rules! handled {
    ($($kind:ident $what:literal)*) => { $(
        impl Handled for $kind {
            fn table() -> &'static Table {
                static TABLE: Table = Table::new($what);
                &TABLE
            }
        }
    )* };
}

handled! {
    Comm "error handlers of communicators"
    File "error handlers of files"
    Session "error handlers of sessions"
    Win "error handlers of windows"
}

unsafe extern "C" fn error_handler<K: Handled, const SLOT: usize>(
    object: *mut usize,
    code: *mut c_int,
) {
    type Handler = unsafe extern "C" fn(*mut c_int, *mut c_int);
    // SAFETY: C passes the addresses of a handle and a code, and the program gave the procedure for these.
    unsafe {
        let mut object = K::to_int(*object);
        let procedure: Handler = transmute(K::table().procedure(SLOT));
        procedure(&mut object, code);
    }
}

/// The function of an error handler. C passes it further arguments, which it ignores.
pub(crate) fn error_handler_for<K: Handled>(procedure: Procedure) -> Callback {
    let slot = K::table().slot(procedure);
    Callback(slot.map_or(ptr::null(), |slot| numbered!([K] error_handler)[slot]))
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
        Callback(if is_none { ptr::null() } else { function })
    }
}

/// A state that C keeps and passes to callbacks. It is never freed if C takes no notice of it.
pub(crate) struct CallbackState<T> {
    state: *mut T,
    kind: PhantomData<T>,
}

impl<T> CallbackState<T> {
    fn new(state: T) -> Self {
        Self { state: Box::into_raw(Box::new(state)), kind: PhantomData }
    }
}

impl<T> Argument for CallbackState<T> {
    type C = *mut c_void;

    fn c(&mut self) -> *mut c_void {
        self.state.cast()
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
        procedure(&Datatype::to_int(datatype), extent, &raw const (*state).extra_state, &mut code);
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
        let (datatype, extra_state) = (Datatype::to_int(datatype), &raw const (*state).extra_state);
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
