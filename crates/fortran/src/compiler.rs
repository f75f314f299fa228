//! Facts about the Fortran compiler that the library takes for granted, for C to know (MPI-5.0 §20.4).

use std::ffi::{CStr, c_char, c_int};
use std::sync::Once;

/// Sizes of types in bytes, as the procedures here read them.
const SIZES: [(&CStr, &CStr); 4] = [
    (c"mpi_logical_size", c"4"),
    (c"mpi_integer_size", c"4"),
    (c"mpi_real_size", c"4"),
    (c"mpi_double_precision_size", c"8"),
];

unsafe extern "C" {
    fn PMPI_Info_create(info: *mut usize) -> c_int;
    fn PMPI_Info_set(info: usize, key: *const c_char, value: *const c_char) -> c_int;
    fn PMPI_Info_free(info: *mut usize) -> c_int;
    fn PMPI_Abi_set_fortran_info(info: usize) -> c_int;
    fn PMPI_Abi_get_fortran_info(info: *mut usize) -> c_int;
}

/// Tells C the facts once it is initialised, unless it knows them. An error is ignored: the program can do without. MPICH
/// ends a program that asks before.
pub(crate) fn announce(code: c_int) {
    static ONCE: Once = Once::new();
    if code != 0 {
        return;
    }
    ONCE.call_once(|| {
        let mut info = INFO_NULL;
        // SAFETY: MPI is initialised, and the texts end in a zero byte.
        unsafe {
            let is_known = PMPI_Abi_get_fortran_info(&mut info) != 0 || info != INFO_NULL;
            if !is_known && PMPI_Info_create(&mut info) == 0 {
                for (key, value) in SIZES {
                    PMPI_Info_set(info, key.as_ptr(), value.as_ptr());
                }
                PMPI_Abi_set_fortran_info(info);
            }
            if info != INFO_NULL {
                PMPI_Info_free(&mut info);
            }
        }
    });
}

/// `MPI_INFO_NULL`.
const INFO_NULL: usize = 0x130;
