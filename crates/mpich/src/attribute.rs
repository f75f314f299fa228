//! Attributes: their callbacks, and the values of those that the standard defines.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use binding::argument::Argument;
use binding::callback::{Callback, CallbackState, Procedure};
use binding::translation::Translation;

use crate::code::Code;
use crate::constants::{Key, Rank, WindowFlavor, WindowModel};

/// The state of a key: the addresses of its functions, and the program's state.
#[derive(PartialEq)]
pub(crate) struct Keyval {
    copy: usize,
    delete: usize,
    extra_state: usize,
}

impl Keyval {
    /// A key may be freed while attributes have it, so its state is kept for good.
    pub(crate) fn state(
        copy: Procedure,
        delete: Procedure,
        extra_state: *mut c_void,
    ) -> CallbackState<Self> {
        static KEYS: Mutex<Vec<&'static Keyval>> = Mutex::new(Vec::new());
        let extra_state = extra_state as usize;
        let key = Self { copy: copy as usize, delete: delete as usize, extra_state };
        CallbackState::shared(key, &KEYS)
    }
}

/// The function that copies attributes of objects of a kind. NULL copies nothing in both forms.
pub(crate) fn copy_of<K: Translation<Program = c_int, C = usize>>(function: Procedure) -> Callback {
    Callback::of(if function.is_null() {
        ptr::null()
    } else if function == MPIR_Dup_fn as Procedure {
        ptr::without_provenance(DUP)
    } else {
        copy::<K> as Procedure
    })
}

/// The function that deletes attributes of objects of a kind.
pub(crate) fn delete_of<K: Translation<Program = c_int, C = usize>>(
    function: Procedure,
) -> Callback {
    Callback::of(if function.is_null() { ptr::null() } else { delete::<K> as Procedure })
}

unsafe extern "C" fn copy<K: Translation<Program = c_int, C = usize>>(
    object: usize,
    keyval: c_int,
    key: *const Keyval,
    value: *mut c_void,
    copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    type Copy =
        unsafe extern "C" fn(c_int, c_int, usize, *mut c_void, *mut c_void, *mut c_int) -> c_int;
    // SAFETY: the state lasts as long as the process, and the program gave the function for copies.
    Code::to_c(unsafe {
        let function: Copy = transmute((*key).copy);
        let (object, keyval) = (K::to_program(object), Key::to_program(keyval));
        function(object, keyval, (*key).extra_state, value, copied, flag)
    })
}

unsafe extern "C" fn delete<K: Translation<Program = c_int, C = usize>>(
    object: usize,
    keyval: c_int,
    value: *mut c_void,
    key: *const Keyval,
) -> c_int {
    type Delete = unsafe extern "C" fn(c_int, c_int, *mut c_void, usize) -> c_int;
    // SAFETY: the state lasts as long as the process, and the program gave the function for deletions.
    Code::to_c(unsafe {
        let function: Delete = transmute((*key).delete);
        function(K::to_program(object), Key::to_program(keyval), value, (*key).extra_state)
    })
}

/// `MPI_DUP_FN` and its siblings: copies an attribute's value.
#[unsafe(no_mangle)]
unsafe extern "C" fn MPIR_Dup_fn(
    _: c_int,
    _: c_int,
    _: *mut c_void,
    value: *mut c_void,
    copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller passes what it passes to a copy function.
    unsafe {
        *copied.cast::<*mut c_void>() = value;
        *flag = 1;
    }
    0
}

/// Room for an attribute's value.
pub(crate) struct AttributeResult {
    place: *mut *mut c_void,
    key: c_int,
    value: *mut c_void,
}

impl AttributeResult {
    pub(crate) fn take(place: *mut c_void, key: c_int) -> Self {
        Self { place: place.cast(), key: Key::to_c(key), value: unwritten() }
    }
}

impl Argument for AttributeResult {
    type C = *mut c_void;

    fn c(&mut self) -> Self::C {
        if self.place.is_null() { ptr::null_mut() } else { (&raw mut self.value).cast() }
    }

    fn give(self) {
        if self.value == unwritten() {
            return;
        }
        let translate = match self.key {
            IO | HOST => Rank::to_program,
            LASTUSEDCODE => Code::to_program,
            WIN_CREATE_FLAVOR => WindowFlavor::to_program,
            WIN_MODEL => WindowModel::to_program,
            // SAFETY: the program passes the address of a pointer, since C has got an address to write to.
            _ => return unsafe { *self.place = self.value },
        };
        // SAFETY: C gives the address of an int for these keys of the standard.
        let value = translate(unsafe { *self.value.cast::<c_int>() });
        // SAFETY: as for other keys, this is the address of a pointer.
        unsafe { *self.place = lasting(self.key, value) };
    }
}

/// The address of a value of an attribute that the standard defines. It lasts as long as the process.
fn lasting(key: c_int, value: c_int) -> *mut c_void {
    static VALUES: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];
    // The flavours and models of windows differ between windows, so each value has a place of its own.
    static OF_WINDOWS: [c_int; 5] = [0, 1, 2, 3, 4];
    let place = match key {
        IO => &VALUES[0],
        HOST => &VALUES[1],
        LASTUSEDCODE => &VALUES[2],
        _ => {
            let place = OF_WINDOWS.get(value as usize).unwrap_or(&OF_WINDOWS[0]);
            return ptr::from_ref(place).cast_mut().cast();
        }
    };
    place.store(value, Ordering::Relaxed);
    place.as_ptr().cast()
}

/// A value that C does not give: the place of a result before the call.
fn unwritten() -> *mut c_void {
    static UNWRITTEN: u8 = 0;
    (&raw const UNWRITTEN).cast_mut().cast()
}

/// `MPI_COMM_DUP_FN` and its siblings in the standard ABI.
const DUP: usize = 1;
const IO: c_int = 502;
const HOST: c_int = 503;
const LASTUSEDCODE: c_int = 506;
const WIN_CREATE_FLAVOR: c_int = 604;
const WIN_MODEL: c_int = 605;
