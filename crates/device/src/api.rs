//! The functions of CUDA's driver interface that copies need (cuda.h of CUDA 11 and later).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::{self, Write as _};
use std::mem;

/// A result; 0 is success.
pub(crate) type Code = c_int;
/// A context, stream or event.
pub(crate) type Object = *mut c_void;
/// An address, in a device or not.
pub(crate) type Place = u64;

/// A copy of rows of bytes (`CUDA_MEMCPY2D`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Rows {
    pub from: Side,
    pub to: Side,
    /// Bytes of a row.
    pub width: usize,
    pub height: usize,
}

/// One side of a copy of rows.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Side {
    x: usize,
    y: usize,
    kind: c_uint,
    host: *const c_void,
    place: Place,
    array: Object,
    /// Bytes from one row to the next.
    pitch: usize,
}

impl Side {
    /// Rows whose first one is at an address that tells where it is.
    pub fn at(place: *mut u8, pitch: usize) -> Self {
        let (host, array) = (std::ptr::null(), std::ptr::null_mut());
        Self { x: 0, y: 0, kind: UNIFIED, host, place: place as Place, array, pitch }
    }
}

macro_rules! functions {
    ($($field:ident $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of the library, which stays loaded.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Api {
            fn of(function: impl Fn(&CStr) -> Result<*mut c_void, String>) -> Result<Self, String> {
                Ok(Self { $($field: {
                    let found = function($symbol)?;
                    // SAFETY: the library declares the function so (cuda.h).
                    unsafe {
                        mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Code>(found)
                    }
                },)* })
            }
        }
    };
}

functions! {
    pointer_attributes c"cuPointerGetAttributes" (c_uint, *const c_int, *const *mut c_void, Place);
    retain_primary_context c"cuDevicePrimaryCtxRetain" (*mut Object, c_int);
    push_context c"cuCtxPushCurrent_v2" (Object);
    pop_context c"cuCtxPopCurrent_v2" (*mut Object);
    create_stream c"cuStreamCreate" (*mut Object, c_uint);
    create_event c"cuEventCreate" (*mut Object, c_uint);
    record_event c"cuEventRecord" (Object, Object);
    query_event c"cuEventQuery" (Object);
    wait_for_event c"cuEventSynchronize" (Object);
    copy c"cuMemcpyAsync" (Place, Place, usize, Object);
    copy_rows c"cuMemcpy2DAsync_v2" (*const Rows, Object);
    allocate_on_host c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    error_name c"cuGetErrorName" (Code, *mut *const c_char);
}

impl Api {
    /// Loads the library.
    ///
    /// # Errors
    /// It is missing, or lacks a function.
    pub fn load() -> Result<Self, String> {
        // SAFETY: the name is a C string. The library's constructors run as in a program that is linked to it.
        let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            // SAFETY: the function takes nothing; its text stays until this thread's next call.
            let reason = unsafe { libc::dlerror() };
            if reason.is_null() {
                return Err(format!("{} cannot be loaded", NAME.to_string_lossy()));
            }
            // SAFETY: a reason is a C string.
            return Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned());
        }
        let function = |name: &CStr| {
            // SAFETY: the library stays loaded, and the name is a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            let missing = || format!("{} lacks {}", NAME.to_string_lossy(), name.to_string_lossy());
            if found.is_null() { Err(missing()) } else { Ok(found) }
        };
        Self::of(function)
    }

    /// Checks a result. A device that fails once fails from then on, and its memory is lost: the process ends.
    pub fn check(&self, code: Code, what: std::fmt::Arguments<'_>) {
        if code == 0 {
            return;
        }
        let mut name = std::ptr::null();
        // SAFETY: the function stores the address of a constant text, or null.
        unsafe { (self.error_name)(code, &raw mut name) };
        let name = match name.is_null() {
            true => format!("error {code}"),
            // SAFETY: the name is a C string that stays.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        };
        let cause = "The buffer may have been freed, or be too short; a kernel may have failed";
        // A message that nobody can read is lost.
        let _ = writeln!(io::stderr(), "canele: {what}: {name}. {cause}");
        std::process::abort();
    }
}

const NAME: &CStr = c"libcuda.so.1";

/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: Code = 600;
/// `CU_POINTER_ATTRIBUTE_CONTEXT`, `_MEMORY_TYPE`, `_IS_MANAGED`, `_DEVICE_ORDINAL`.
pub(crate) const ATTRIBUTES: [c_int; 4] = [1, 2, 8, 9];
/// `CU_MEMORYTYPE_DEVICE`.
pub(crate) const DEVICE: c_uint = 2;
/// `CU_MEMORYTYPE_UNIFIED`.
const UNIFIED: c_uint = 4;
/// `CU_STREAM_NON_BLOCKING`: copies do not wait for the application's default stream.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a thread that waits leaves its core to others.
pub(crate) const SLEEPING: c_uint = 3;
/// `CU_MEMHOSTALLOC_PORTABLE`: for all contexts.
pub(crate) const PORTABLE: c_uint = 1;
