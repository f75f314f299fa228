//! Attributes (MPI-5.0 §7.7), and their values in both languages (§19.3.7).
//!
//! A value is a pointer in C and an integer as wide in Fortran. C gets the address of an integer that Fortran has set;
//! Fortran gets that integer again, the address of what C has set, and the integers behind predefined attributes.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::{Mutex, MutexGuard};

use binding::argument::Argument;
use binding::callback::{CallbackState, Procedure};
use binding::translation::Translation;

/// An integer in an attribute's callbacks: as wide as an address, or an INTEGER in those of MPI-1.
pub(crate) trait Word: Copy {
    fn widened(self) -> isize;
    /// The integer, or its lower half in an INTEGER.
    fn of(value: isize) -> Self;
}

impl Word for isize {
    fn widened(self) -> isize {
        self
    }

    fn of(value: isize) -> Self {
        value
    }
}

impl Word for c_int {
    fn widened(self) -> isize {
        self as isize
    }

    fn of(value: isize) -> Self {
        value as c_int
    }
}

/// Addresses of the integers that Fortran has set.
fn integers() -> MutexGuard<'static, BTreeSet<usize>> {
    static INTEGERS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    INTEGERS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// An integer for C to point to.
fn keep(value: isize) -> *mut c_void {
    let address = Box::into_raw(Box::new(value));
    integers().insert(address as usize);
    address.cast()
}

/// The integer that Fortran has set, if it has set this attribute.
fn kept(value: *mut c_void) -> Option<isize> {
    let all = integers();
    // SAFETY: an address of this set is that of an integer, which is freed after it is removed.
    all.contains(&(value as usize)).then(|| unsafe { *value.cast::<isize>() })
}

/// Frees the integer that Fortran has set, if it has set this attribute.
fn forget(value: *mut c_void) {
    if integers().remove(&(value as usize)) {
        // SAFETY: the address was that of an integer from [`keep`], and nothing finds it any more.
        drop(unsafe { Box::from_raw(value.cast::<isize>()) });
    }
}

/// A value for C to keep.
pub(crate) struct NewValue(*mut c_void);

impl NewValue {
    pub(crate) unsafe fn take<W: Word>(variable: *const W) -> Self {
        // SAFETY: Fortran passes the address of an integer.
        Self(keep(unsafe { *variable }.widened()))
    }
}

impl Argument for NewValue {
    type C = *mut c_void;

    fn c(&mut self) -> *mut c_void {
        self.0
    }
}

/// Room for a value that C gives.
pub(crate) struct ValueResult<W> {
    variable: *mut W,
    key: c_int,
    value: *mut c_void,
}

impl<W: Word> ValueResult<W> {
    pub(crate) unsafe fn take(variable: *mut W, key: *const c_int) -> Self {
        // SAFETY: Fortran passes the address of a key.
        Self { variable, key: unsafe { *key }, value: unwritten() }
    }
}

impl<W: Word> Argument for ValueResult<W> {
    type C = *mut c_void;

    fn c(&mut self) -> *mut c_void {
        (&raw mut self.value).cast()
    }

    fn give(self) {
        if self.value == unwritten() {
            return;
        }
        let value = match self.key {
            // SAFETY: C gives the address of an int for these keys of the standard.
            TAG_UB..=UNIVERSE_SIZE | WIN_DISP_UNIT | WIN_CREATE_FLAVOR | WIN_MODEL => unsafe {
                *self.value.cast::<c_int>() as isize
            },
            // SAFETY: C gives the address of an MPI_Aint for this key of the standard.
            WIN_SIZE => unsafe { *self.value.cast::<isize>() },
            _ => kept(self.value).unwrap_or(self.value as isize),
        };
        // SAFETY: Fortran passes the address of an integer.
        unsafe { *self.variable = W::of(value) };
    }
}

/// A value that C does not give: the place of a result before the call.
fn unwritten() -> *mut c_void {
    static UNWRITTEN: u8 = 0;
    (&raw const UNWRITTEN).cast_mut().cast()
}

/// The state of a key: its procedures, and the program's state. Keys with equal ones share it.
#[derive(PartialEq)]
pub(crate) struct KeyvalProcedures {
    copy: Procedure,
    delete: Procedure,
    extra_state: isize,
}

// SAFETY: a key is only read, and its procedures are addresses of code.
unsafe impl Send for KeyvalProcedures {}
// SAFETY: nothing of a key is written after it is made, and code can be called from any thread.
unsafe impl Sync for KeyvalProcedures {}

impl KeyvalProcedures {
    /// Reads the program's state. A key may be freed while attributes have it, so its state is kept for good.
    pub(crate) unsafe fn take<W: Word>(
        copy: Procedure,
        delete: Procedure,
        extra_state: *const W,
    ) -> CallbackState<Self> {
        static KEYS: Mutex<Vec<&'static KeyvalProcedures>> = Mutex::new(Vec::new());
        // SAFETY: Fortran passes the address of an integer.
        let extra_state = unsafe { *extra_state }.widened();
        CallbackState::shared(Self { copy, delete, extra_state }, &KEYS)
    }
}

/// Calls a procedure that copies an attribute. What C has set stays C's, unless the procedure changes it.
pub(crate) unsafe extern "C" fn copy<K: Translation<Program = c_int, C = usize>, W: Word>(
    object: usize,
    keyval: c_int,
    key: *const KeyvalProcedures,
    value: *mut c_void,
    copied: *mut *mut c_void,
    flag: *mut c_int,
) -> c_int {
    type Copy<W> = unsafe extern "C" fn(
        *const c_int,
        *const c_int,
        *const W,
        *const W,
        *mut W,
        *mut c_int,
        *mut c_int,
    );
    let integer = kept(value);
    let before = W::of(integer.unwrap_or(value as isize));
    let (mut after, mut code) = (W::of(0), 0);
    // SAFETY: the state lasts as long as the process, and the program gave the procedure for copies.
    unsafe {
        let procedure: Copy<W> = transmute((*key).copy);
        let extra_state = W::of((*key).extra_state);
        *flag = 0;
        let object = K::to_program(object);
        procedure(&object, &keyval, &extra_state, &before, &mut after, flag, &mut code);
        if *flag != 0 && code == 0 {
            let is_same = integer.is_none() && after.widened() == before.widened();
            *copied = if is_same { value } else { keep(after.widened()) };
        }
    }
    code
}

/// Calls a procedure that deletes an attribute.
pub(crate) unsafe extern "C" fn delete<K: Translation<Program = c_int, C = usize>, W: Word>(
    object: usize,
    keyval: c_int,
    value: *mut c_void,
    key: *const KeyvalProcedures,
) -> c_int {
    type Delete<W> =
        unsafe extern "C" fn(*const c_int, *const c_int, *const W, *const W, *mut c_int);
    let before = W::of(kept(value).unwrap_or(value as isize));
    let mut code = 0;
    // SAFETY: the state lasts as long as the process, and the program gave the procedure for deletions.
    unsafe {
        let procedure: Delete<W> = transmute((*key).delete);
        let extra_state = W::of((*key).extra_state);
        procedure(&K::to_program(object), &keyval, &before, &extra_state, &mut code);
    }
    if code == 0 {
        forget(value);
    }
    code
}

const TAG_UB: c_int = 501;
const UNIVERSE_SIZE: c_int = 507;
const WIN_DISP_UNIT: c_int = 602;
const WIN_SIZE: c_int = 603;
const WIN_CREATE_FLAVOR: c_int = 604;
const WIN_MODEL: c_int = 605;
