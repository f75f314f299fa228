//! Constants that have an address in Fortran and none in C (MPI-5.0 §2.5.4, §19.3.9).
//!
//! Their storage is here. `mpif.h` declares them as common blocks and the modules as variables, by these names. A
//! program may have its own copies, which the dynamic linker gives to this library too: only addresses count.

use std::ffi::{c_int, c_void};
use std::ptr::{self, addr_of};

/// Storage whose address means something.
#[repr(C, align(16))]
struct Storage<const INTEGERS: usize>([c_int; INTEGERS]);

macro_rules! storage {
    ($($name:ident: $integers:literal)*) => { $(
        #[unsafe(no_mangle)]
        static mut $name: Storage<$integers> = Storage([0; $integers]);
    )* };
}

storage! {
    canele_mpi_bottom: 1
    canele_mpi_bottom_f08: 1
    canele_mpi_in_place: 1
    canele_mpi_in_place_f08: 1
    canele_mpi_buffer_automatic: 1
    canele_mpi_buffer_automatic_f08: 1
    canele_mpi_status_ignore: 8
    canele_mpi_status_ignore_f08: 8
    canele_mpi_statuses_ignore: 8
    canele_mpi_statuses_ignore_f08: 8
    canele_mpi_errcodes_ignore: 1
    canele_mpi_errcodes_ignore_f08: 1
    canele_mpi_unweighted: 1
    canele_mpi_unweighted_f08: 1
    canele_mpi_weights_empty: 1
    canele_mpi_weights_empty_f08: 1
    canele_mpi_argv_null: 1
    canele_mpi_argv_null_f08: 1
    canele_mpi_argvs_null: 1
    canele_mpi_argvs_null_f08: 1
}

macro_rules! is {
    ($address:ident, $($name:ident)|*) => { $($address as usize == addr_of!($name) as usize)||* };
}

/// The address of a buffer as C gets it.
#[inline]
pub(crate) fn buffer(address: *mut c_void) -> *mut c_void {
    if is!(address, canele_mpi_bottom | canele_mpi_bottom_f08) {
        ptr::null_mut()
    } else if is!(address, canele_mpi_in_place | canele_mpi_in_place_f08) {
        IN_PLACE
    } else if is!(address, canele_mpi_buffer_automatic | canele_mpi_buffer_automatic_f08) {
        ptr::without_provenance_mut(2)
    } else {
        address
    }
}

/// True if a buffer is `MPI_IN_PLACE`.
pub(crate) fn is_in_place(address: *mut c_void) -> bool {
    is!(address, canele_mpi_in_place | canele_mpi_in_place_f08)
}

/// The address of a status or of several as C gets it.
#[inline]
pub(crate) fn statuses<T>(address: *mut T) -> *mut T {
    let is_ignored = is!(
        address,
        canele_mpi_status_ignore
            | canele_mpi_status_ignore_f08
            | canele_mpi_statuses_ignore
            | canele_mpi_statuses_ignore_f08
    );
    if is_ignored { ptr::null_mut() } else { address }
}

pub(crate) fn error_codes<T>(address: *mut T) -> *mut T {
    if is!(address, canele_mpi_errcodes_ignore | canele_mpi_errcodes_ignore_f08) {
        ptr::null_mut()
    } else {
        address
    }
}

pub(crate) fn weights<T>(address: *mut T) -> *mut T {
    if is!(address, canele_mpi_unweighted | canele_mpi_unweighted_f08) {
        ptr::without_provenance_mut(10)
    } else if is!(address, canele_mpi_weights_empty | canele_mpi_weights_empty_f08) {
        ptr::without_provenance_mut(11)
    } else {
        address
    }
}

/// True if a program or several get no arguments.
pub(crate) fn is_no_argv(address: *const u8) -> bool {
    is!(
        address,
        canele_mpi_argv_null
            | canele_mpi_argv_null_f08
            | canele_mpi_argvs_null
            | canele_mpi_argvs_null_f08
    )
}

const IN_PLACE: *mut c_void = ptr::without_provenance_mut(1);
