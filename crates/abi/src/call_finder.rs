//! Finds the MPI call that a waiting thread is in, for reports on jobs that hang.
//!
//! Only a thread that waits and was asked unwinds its stack. Calls themselves note nothing.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr;

/// Returns the name of the MPI function that the calling thread is in, and the place that has called it.
pub(crate) fn find() -> Option<(String, String)> {
    let mut frames = [ptr::null_mut(); FRAMES];
    // SAFETY: the array has room for this number of addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as i32) };
    let frames = frames.iter().take(count.max(0) as usize);
    // A return address may belong to the function behind the one that has called.
    let mut symbols = frames.filter_map(|address| Symbol::at(address.wrapping_byte_sub(1)));
    let call = symbols.find_map(|symbol| symbol.mpi_call())?;
    let place = symbols.find(|symbol| symbol.mpi_call().is_none());
    Some((call, place.map(|symbol| symbol.place()).unwrap_or_default()))
}

/// Position of an address in a program or library.
struct Symbol {
    name: Option<String>,
    file: String,
    /// Offset in the file as it is loaded.
    offset: usize,
}

impl Symbol {
    fn at(address: *mut c_void) -> Option<Self> {
        // SAFETY: a `Dl_info` of zeros is valid: null pointers.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the address is only compared, and the result is this function's own.
        if unsafe { libc::dladdr(address, &raw mut info) } == 0 {
            return None;
        }
        let text = |pointer: *const libc::c_char| {
            let text = (!pointer.is_null())
                // SAFETY: the loader's strings end with a zero, and stay while their library is loaded. It is: a frame of
                // this stack is in it.
                .then(|| unsafe { CStr::from_ptr(pointer) });
            text.map(|text| text.to_string_lossy().into_owned())
        };
        let offset = (address as usize).wrapping_sub(info.dli_fbase as usize);
        Some(Self { name: text(info.dli_sname), file: text(info.dli_fname)?, offset })
    }

    /// Name of the MPI function, as programs call it.
    fn mpi_call(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        let name = name.strip_prefix('P').or_else(|| name.strip_prefix('p')).unwrap_or(name);
        let is_mpi = name.starts_with("MPI_") || name.starts_with("mpi_");
        is_mpi.then(|| name.to_owned())
    }

    fn place(&self) -> String {
        let file = Path::new(&self.file)
            .file_name()
            .map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        match &self.name {
            Some(name) => format!("{name} in {file}"),
            None => format!("{file}+{:#x}", self.offset),
        }
    }
}

/// Frames that are looked at.
const FRAMES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_mpi_are_known_by_their_names() {
        let symbol = |name: Option<&str>| Symbol {
            name: name.map(str::to_owned),
            file: "/opt/ring".into(),
            offset: 0x123,
        };
        assert_eq!(symbol(Some("PMPI_Recv")).mpi_call().as_deref(), Some("MPI_Recv"));
        assert_eq!(symbol(Some("mpi_recv_")).mpi_call().as_deref(), Some("mpi_recv_"));
        assert_eq!(symbol(Some("main")).mpi_call(), None);
        assert_eq!(symbol(Some("main")).place(), "main in ring");
        assert_eq!(symbol(None).place(), "ring+0x123");
    }
}
