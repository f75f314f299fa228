//! The functions of the standard ABI, in `libmpi_abi.so.1`.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use binding::library;

/// A function of `libmpi_abi.so.1`, found when it is first called.
pub(crate) struct Standard {
    name: &'static str,
    /// Null before the first call.
    address: AtomicPtr<c_void>,
}

impl Standard {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let address = library::function(self.name, "libmpi.so.12");
        self.address.store(address, Ordering::Release);
        address
    }
}

/// Finds a function of the standard ABI, as a pointer to a function of a type.
macro_rules! standard {
    ($name:expr => $type:ty) => {{
        static FUNCTION: $crate::standard::Standard = $crate::standard::Standard::new($name);
        // SAFETY: the function of this name has this prototype in the standard.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(FUNCTION.address()) }
    }};
}

pub(crate) use standard;
