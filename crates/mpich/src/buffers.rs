//! Buffers for buffered sends. `MPI_BSEND_OVERHEAD` is smaller in MPICH's ABI, and programs measure their buffers by it.
//!
//! Canele only counts the bytes of an attached buffer, and never touches them. So it gets a size in which as many messages fit
//! with its own overhead.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use binding::translation::Translation;

use crate::code::Code;
use crate::function::Returned;
use crate::handle::{Comm, Session};
use crate::standard::standard;

/// The sizes of attached buffers as the program gave them, by address.
fn sizes() -> MutexGuard<'static, BTreeMap<usize, i64>> {
    static SIZES: Mutex<BTreeMap<usize, i64>> = Mutex::new(BTreeMap::new());
    SIZES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attaches a buffer by a function of the standard.
fn attach(
    buffer: *mut c_void,
    size: i64,
    function: impl FnOnce(*mut c_void, i64) -> c_int,
) -> c_int {
    if buffer.addr() == AUTOMATIC {
        return Code::of(function(ptr::without_provenance_mut(STANDARD_AUTOMATIC), size));
    }
    let counted = size.saturating_add((size / OVERHEAD).saturating_mul(FURTHER));
    let code = function(buffer, counted);
    if code == 0 {
        sizes().insert(buffer.addr(), size);
    }
    Code::of(code)
}

/// Detaches a buffer by a function of the standard.
///
/// # Safety
/// `place` must be NULL or the address of a pointer.
unsafe fn detach(
    place: *mut c_void,
    give: impl FnOnce(i64),
    function: impl FnOnce(*mut c_void, *mut i64) -> c_int,
) -> c_int {
    let (mut address, mut size) = (0_usize, 0);
    let place = place.cast::<usize>();
    let room = if place.is_null() { ptr::null_mut() } else { (&raw mut address).cast() };
    let code = function(room, &mut size);
    if code != 0 {
        return Code::of(code);
    }
    let own = sizes().remove(&address).unwrap_or(size);
    // SAFETY: the caller passes the address of a pointer, since C has got an address to write to.
    unsafe { *place = if address == STANDARD_AUTOMATIC { AUTOMATIC } else { address } };
    give(own);
    0
}

/// Defines the functions of the process for one width of sizes.
macro_rules! buffers {
    ($size:ty: $attach:ident $p_attach:ident $detach:ident $p_detach:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $p_attach(buffer: *mut c_void, size: $size) -> c_int {
            let function = standard!("PMPI_Buffer_attach_c" => unsafe extern "C" fn(*mut c_void, i64) -> c_int);
            // SAFETY: the program passes the address of a buffer.
            attach(buffer, size.into(), |buffer, size| unsafe { function(buffer, size) })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $p_detach(place: *mut c_void, size: *mut $size) -> c_int {
            let function = standard!("PMPI_Buffer_detach_c" => unsafe extern "C" fn(*mut c_void, *mut i64) -> c_int);
            // SAFETY: the program passes the addresses of a pointer and of a size.
            unsafe { detach(place, |own| give(size, own), |place, size| function(place, size)) }
        }

        binding::alias! { $p_attach: $attach }
        binding::alias! { $p_detach: $detach }
    };
}

/// Defines the functions of an object for one width of sizes.
macro_rules! buffers_of {
    ($kind:ident, $size:ty: $attach:ident $p_attach:ident $attach_c:literal $detach:ident $p_detach:ident $detach_c:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $p_attach(object: c_int, buffer: *mut c_void, size: $size) -> c_int {
            let function = standard!($attach_c => unsafe extern "C" fn(usize, *mut c_void, i64) -> c_int);
            let object = $kind::to_c(object);
            // SAFETY: the program passes the address of a buffer.
            attach(buffer, size.into(), |buffer, size| unsafe { function(object, buffer, size) })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $p_detach(object: c_int, place: *mut c_void, size: *mut $size) -> c_int {
            let function = standard!($detach_c => unsafe extern "C" fn(usize, *mut c_void, *mut i64) -> c_int);
            let object = $kind::to_c(object);
            // SAFETY: the program passes the addresses of a pointer and of a size.
            unsafe { detach(place, |own| give(size, own), |place, size| function(object, place, size)) }
        }

        binding::alias! { $p_attach: $attach }
        binding::alias! { $p_detach: $detach }
    };
}

/// Writes a size where the program wants it.
///
/// # Safety
/// `place` must be NULL or the address of an integer.
unsafe fn give<N: TryFrom<i64>>(place: *mut N, size: i64) {
    // SAFETY: as the caller says. A size that the program gave fits.
    if let (Some(place), Ok(size)) = (unsafe { place.as_mut() }, N::try_from(size)) {
        *place = size;
    }
}

buffers! { c_int: MPI_Buffer_attach PMPI_Buffer_attach MPI_Buffer_detach PMPI_Buffer_detach }
buffers! { i64: MPI_Buffer_attach_c PMPI_Buffer_attach_c MPI_Buffer_detach_c PMPI_Buffer_detach_c }
buffers_of! { Comm, c_int: MPI_Comm_attach_buffer PMPI_Comm_attach_buffer "PMPI_Comm_attach_buffer_c"
MPI_Comm_detach_buffer PMPI_Comm_detach_buffer "PMPI_Comm_detach_buffer_c" }
buffers_of! { Comm, i64: MPI_Comm_attach_buffer_c PMPI_Comm_attach_buffer_c "PMPI_Comm_attach_buffer_c"
MPI_Comm_detach_buffer_c PMPI_Comm_detach_buffer_c "PMPI_Comm_detach_buffer_c" }
buffers_of! { Session, c_int: MPI_Session_attach_buffer PMPI_Session_attach_buffer "PMPI_Session_attach_buffer_c"
MPI_Session_detach_buffer PMPI_Session_detach_buffer "PMPI_Session_detach_buffer_c" }
buffers_of! { Session, i64: MPI_Session_attach_buffer_c PMPI_Session_attach_buffer_c "PMPI_Session_attach_buffer_c"
MPI_Session_detach_buffer_c PMPI_Session_detach_buffer_c "PMPI_Session_detach_buffer_c" }

/// `MPI_BUFFER_AUTOMATIC` of MPICH.
const AUTOMATIC: usize = usize::MAX - 1;
/// `MPI_BUFFER_AUTOMATIC` of the standard ABI.
const STANDARD_AUTOMATIC: usize = 2;
/// `MPI_BSEND_OVERHEAD` of MPICH.
const OVERHEAD: i64 = 96;
/// Difference to that of the standard ABI.
const FURTHER: i64 = 512 - OVERHEAD;
