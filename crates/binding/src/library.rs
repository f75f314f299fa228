//! Functions of the library that the process has loaded, found by their names.

use std::ffi::{CStr, CString, c_void};
use std::io::Write;
use std::sync::OnceLock;

/// Finds a function of `libmpi_abi.so.1`, whatever other library has one of that name. Ends the process without it; `who`
/// begins the message.
pub fn function(name: &str, who: &str) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        // The process has loaded it, for the program or for the library that asks. It is not loaded again.
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: the name is a C string, and a library that is loaded already runs no code.
        unsafe { libc::dlopen(SONAME.as_ptr(), flags) as usize }
    });
    let symbol = CString::new(name).unwrap_or_default();
    let address = match library {
        0 => std::ptr::null_mut(),
        // SAFETY: the handle is that of a library that stays loaded, and the name is a C string.
        _ => unsafe { libc::dlsym(library as *mut c_void, symbol.as_ptr()) },
    };
    if address.is_null() {
        let library = SONAME.to_string_lossy();
        let text = format!("canele: {who}: {library} of this program has no {name}\n");
        // A message that nobody can read is lost.
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::abort();
    }
    address
}

const SONAME: &CStr = c"libmpi_abi.so.1";
