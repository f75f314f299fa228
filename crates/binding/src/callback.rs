//! Callbacks of the program: functions with C's prototype that call them.
//!
//! C passes no state to operations and error handlers. Each function that a program makes one of gets a function of
//! its own from a table, found again by its address. Other callbacks get a state: the functions and the program's.

use std::ffi::{c_int, c_void};
use std::io::{Write, stderr};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::argument::Argument;
use crate::translation::Translation;

/// A function of the program.
pub type Procedure = *const c_void;

/// A function that C calls, as a word.
#[derive(Debug)]
pub struct Callback(Procedure);

impl Callback {
    /// A function that calls one of the program through a state.
    pub fn of(function: Procedure) -> Self {
        Self(function)
    }
}

impl Argument for Callback {
    type C = Procedure;

    fn c(&mut self) -> Procedure {
        self.0
    }
}

/// Number of functions that can be operations, and error handlers of each kind.
const SLOTS: usize = 64;

/// Functions without a state, by the number of the function that calls them.
#[derive(Debug)]
pub struct Table {
    what: &'static str,
    procedures: [AtomicUsize; SLOTS],
}

impl Table {
    /// A table of no functions yet, for what the text says.
    pub const fn new(what: &'static str) -> Self {
        Self { what, procedures: [const { AtomicUsize::new(0) }; SLOTS] }
    }

    /// The number of a function, which it keeps.
    fn slot(&self, procedure: Procedure) -> Option<usize> {
        let address = procedure as usize;
        let slot = self.procedures.iter().position(|place| {
            let found = place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
            found.is_ok() || found == Err(address)
        });
        if slot.is_none() {
            let what = self.what;
            let text = format!("canele: more than {SLOTS} functions of the program as {what}\n");
            // A message that nobody can read is lost.
            let _ = stderr().write_all(text.as_bytes());
        }
        slot
    }

    fn procedure(&self, slot: usize) -> usize {
        self.procedures[slot].load(Ordering::Acquire)
    }
}

/// Functions of a generic parameter that counts from 0, as an array.
macro_rules! numbered {
    ($function:ident $kind:ty) => {
        numbered!(@ $function $kind;
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    (@ $function:ident $kind:ty; $($number:literal)*) => {
        [$($function::<$kind, $number> as Procedure),*]
    };
}

static OPERATIONS: Table = Table::new("operations");

/// A user-defined operation. Its number of elements is an int or an MPI_Count, whose address is passed on.
unsafe extern "C" fn operation<K: Translation, const SLOT: usize>(
    invec: *mut c_void,
    inoutvec: *mut c_void,
    len: *mut c_void,
    datatype: *mut K::C,
) {
    type Operation<P> = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut P);
    // SAFETY: C passes the address of a handle, and the program gave the function as an operation.
    unsafe {
        let mut datatype = K::to_program(*datatype);
        let procedure: Operation<K::Program> = transmute(OPERATIONS.procedure(SLOT));
        procedure(invec, inoutvec, len, &mut datatype);
    }
}

/// The function of an operation; `K` is the kind of datatypes.
pub fn operation_for<K: Translation>(procedure: Procedure) -> Callback {
    let slot = OPERATIONS.slot(procedure);
    Callback(slot.map_or(ptr::null(), |slot| numbered!(operation K)[slot]))
}

/// Kind of object with error handlers.
pub trait Handled: Translation {
    /// Kind of their error codes.
    type Code: Translation<Program = c_int, C = c_int>;

    /// The functions for it.
    fn table() -> &'static Table;
}

/// Gives kinds of objects their tables of error handlers.
#[macro_export]
macro_rules! handled {
    ($code:ty; $($kind:ident $what:literal)*) => { $(
        impl $crate::callback::Handled for $kind {
            type Code = $code;

            fn table() -> &'static $crate::callback::Table {
                static TABLE: $crate::callback::Table = $crate::callback::Table::new($what);
                &TABLE
            }
        }
    )* };
}

unsafe extern "C" fn error_handler<K: Handled, const SLOT: usize>(
    object: *mut K::C,
    code: *mut c_int,
) {
    type Handler<P> = unsafe extern "C" fn(*mut P, *mut c_int);
    // SAFETY: C passes the addresses of a handle and a code, and the program gave the function for these.
    unsafe {
        let mut object = K::to_program(*object);
        let mut changed = K::Code::to_program(*code);
        let procedure: Handler<K::Program> = transmute(K::table().procedure(SLOT));
        procedure(&mut object, &mut changed);
        *code = K::Code::to_c(changed);
    }
}

/// The function of an error handler. C passes it further arguments, which it ignores.
pub fn error_handler_for<K: Handled>(procedure: Procedure) -> Callback {
    let slot = K::table().slot(procedure);
    Callback(slot.map_or(ptr::null(), |slot| numbered!(error_handler K)[slot]))
}

/// A state that C keeps and passes to callbacks. It is never freed if C takes no notice of it.
#[derive(Debug)]
pub struct CallbackState<T> {
    state: *mut T,
    kind: PhantomData<T>,
}

impl<T> CallbackState<T> {
    /// A state for one object.
    pub fn new(state: T) -> Self {
        Self { state: Box::into_raw(Box::new(state)), kind: PhantomData }
    }
}

impl<T: PartialEq> CallbackState<T> {
    /// A state that is kept for good, since objects in use may outlive what it was made for. Equal states are one.
    pub fn shared(state: T, known: &'static Mutex<Vec<&'static T>>) -> Self {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|other| ***other == state).copied();
        let state = found.unwrap_or_else(|| {
            let new: &'static T = Box::leak(Box::new(state));
            known.push(new);
            new
        });
        Self { state: ptr::from_ref(state).cast_mut(), kind: PhantomData }
    }
}

impl<T> Argument for CallbackState<T> {
    type C = *mut c_void;

    fn c(&mut self) -> *mut c_void {
        self.state.cast()
    }
}
