//! Functions of libraries that the process has loaded, found by their names.

use std::ffi::{CStr, CString, c_void};
use std::io::Write;
use std::sync::OnceLock;

/// Finds a function of `libmpi_abi.so.1`, whatever other library has one of that name. Ends the process without it; `who`
/// begins the message.
pub fn function(name: &str, who: &str) -> *mut c_void {
    standard().function(name, who)
}

/// The library with the standard ABI: Canele's, or another.
pub fn standard() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::loaded(STANDARD))
}

/// A library that the process has loaded, for the program or for another library; or the lack of it.
pub struct Library {
    name: &'static CStr,
    /// Handle for `dlsym`; 0 if the library is not loaded.
    handle: usize,
}

impl Library {
    /// Returns the library of this name, which is not loaded again.
    pub fn loaded(name: &'static CStr) -> Self {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: the name is a C string, and a library that is loaded already runs no code.
        Self { name, handle: unsafe { libc::dlopen(name.as_ptr(), flags) as usize } }
    }

    /// True if the process has loaded it.
    pub fn is_loaded(&self) -> bool {
        self.handle != 0
    }

    /// Finds a function of this library; null if there is none.
    pub fn find(&self, name: &CStr) -> *mut c_void {
        match self.handle {
            0 => std::ptr::null_mut(),
            // SAFETY: the handle is that of a library that stays loaded, and the name is a C string.
            handle => unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) },
        }
    }

    /// Finds a function of this library. Ends the process without it; `who` begins the message.
    pub fn function(&self, name: &str, who: &str) -> *mut c_void {
        let address = self.find(&CString::new(name).unwrap_or_default());
        if address.is_null() {
            let library = self.name.to_string_lossy();
            let text = format!("canele: {who}: {library} of this program has no {name}\n");
            // A message that nobody can read is lost.
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
        address
    }
}

/// Name of the library with the standard ABI.
pub const STANDARD: &CStr = c"libmpi_abi.so.1";
