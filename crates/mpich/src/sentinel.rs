//! Addresses with a meaning, as arguments and as variables that programs link to.

use std::ffi::c_void;
use std::ptr;

/// The address of a buffer as C gets it.
#[inline]
pub(crate) fn buffer(address: *const c_void) -> *const c_void {
    if is_in_place(address) { ptr::without_provenance(STANDARD_IN_PLACE) } else { address }
}

/// True if a buffer is `MPI_IN_PLACE`.
#[inline]
pub(crate) fn is_in_place(address: *const c_void) -> bool {
    address.addr() == usize::MAX
}

/// `MPI_IN_PLACE` of the standard ABI.
const STANDARD_IN_PLACE: usize = 1;

/// A variable whose value is an address that only means something, or that of a status.
macro_rules! variables {
    ($($name:ident = $value:expr;)*) => { $(
        #[unsafe(no_mangle)]
        static $name: Sentinel = Sentinel($value);
    )* };
}

/// An address that nobody follows here.
#[repr(transparent)]
struct Sentinel(*const c_void);

// SAFETY: an address may be read by any thread.
unsafe impl Sync for Sentinel {}

/// A status of Fortran 2008 that is ignored: only its address means something.
static IGNORED_F08: [i32; 5] = [0; 5];

variables! {
    MPI_UNWEIGHTED = ptr::without_provenance(10);
    MPI_WEIGHTS_EMPTY = ptr::without_provenance(11);
    MPI_T_PVAR_ALL_HANDLES = ptr::without_provenance(1);
    MPI_F_STATUS_IGNORE = ptr::null();
    MPI_F_STATUSES_IGNORE = ptr::null();
    MPI_F08_STATUS_IGNORE = (&raw const IGNORED_F08).cast();
    MPI_F08_STATUSES_IGNORE = (&raw const IGNORED_F08).cast();
}
