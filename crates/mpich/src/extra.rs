//! Functions that the standard ABI does not have, or whose results are no error codes.

use std::ffi::c_int;

use binding::alias;
use binding::translation::Translation;

use crate::code::Code;
use crate::function::Returned;
use crate::handle::{Datatype, File};
use crate::standard::standard;
use crate::status::MpichStatus;

/// Handles are integers, so this function and those that jump to it give back what they get.
#[unsafe(no_mangle)]
extern "C" fn PMPI_Comm_c2f(handle: c_int) -> c_int {
    handle
}

alias! { PMPI_Comm_c2f: MPI_Comm_c2f MPI_Comm_f2c PMPI_Comm_f2c
MPI_Comm_toint PMPI_Comm_toint MPI_Comm_fromint PMPI_Comm_fromint
MPI_Errhandler_c2f PMPI_Errhandler_c2f MPI_Errhandler_f2c PMPI_Errhandler_f2c
MPI_Errhandler_toint PMPI_Errhandler_toint MPI_Errhandler_fromint PMPI_Errhandler_fromint
MPI_Group_c2f PMPI_Group_c2f MPI_Group_f2c PMPI_Group_f2c
MPI_Group_toint PMPI_Group_toint MPI_Group_fromint PMPI_Group_fromint
MPI_Info_c2f PMPI_Info_c2f MPI_Info_f2c PMPI_Info_f2c
MPI_Info_toint PMPI_Info_toint MPI_Info_fromint PMPI_Info_fromint
MPI_Message_c2f PMPI_Message_c2f MPI_Message_f2c PMPI_Message_f2c
MPI_Message_toint PMPI_Message_toint MPI_Message_fromint PMPI_Message_fromint
MPI_Op_c2f PMPI_Op_c2f MPI_Op_f2c PMPI_Op_f2c
MPI_Op_toint PMPI_Op_toint MPI_Op_fromint PMPI_Op_fromint
MPI_Request_c2f PMPI_Request_c2f MPI_Request_f2c PMPI_Request_f2c
MPI_Request_toint PMPI_Request_toint MPI_Request_fromint PMPI_Request_fromint
MPI_Session_c2f PMPI_Session_c2f MPI_Session_f2c PMPI_Session_f2c
MPI_Session_toint PMPI_Session_toint MPI_Session_fromint PMPI_Session_fromint
MPI_Type_c2f PMPI_Type_c2f MPI_Type_f2c PMPI_Type_f2c
MPI_Type_toint PMPI_Type_toint MPI_Type_fromint PMPI_Type_fromint
MPI_Win_c2f PMPI_Win_c2f MPI_Win_f2c PMPI_Win_f2c
MPI_Win_toint PMPI_Win_toint MPI_Win_fromint PMPI_Win_fromint }

#[unsafe(no_mangle)]
extern "C" fn PMPI_File_toint(file: usize) -> c_int {
    let function = standard!("PMPI_File_toint" => unsafe extern "C" fn(usize) -> c_int);
    // SAFETY: the function takes any handle.
    if file == 0 { 0 } else { unsafe { function(file) } }
}
alias! { PMPI_File_toint: MPI_File_toint MPI_File_c2f PMPI_File_c2f }

#[unsafe(no_mangle)]
extern "C" fn PMPI_File_fromint(value: c_int) -> usize {
    let function = standard!("PMPI_File_fromint" => unsafe extern "C" fn(c_int) -> usize);
    // SAFETY: the function takes any integer.
    if value == 0 { 0 } else { File::to_program(unsafe { function(value) }) }
}
alias! { PMPI_File_fromint: MPI_File_fromint MPI_File_f2c PMPI_File_f2c }

/// Statuses are the same integers in all languages and forms.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMPI_Status_f2c(from: *const MpichStatus, to: *mut MpichStatus) -> c_int {
    if from.is_null() || to.is_null() {
        return MPI_ERR_ARG;
    }
    // SAFETY: the program passes the addresses of two statuses, which may be one.
    unsafe { to.write(from.read()) };
    0
}
alias! { PMPI_Status_f2c: MPI_Status_f2c MPI_Status_c2f PMPI_Status_c2f
MPI_Status_c2f08 PMPI_Status_c2f08 MPI_Status_f082c PMPI_Status_f082c
MPI_Status_f2f08 PMPI_Status_f2f08 MPI_Status_f082f PMPI_Status_f082f }

/// The version of the standard ABI, which this library does not have (MPI-5.0 §20.2).
#[unsafe(no_mangle)]
unsafe extern "C" fn PMPI_Abi_get_version(major: *mut c_int, minor: *mut c_int) -> c_int {
    for place in [major, minor] {
        // SAFETY: the program passes NULL or the address of an integer.
        match unsafe { place.as_mut() } {
            Some(place) => *place = -1,
            None => return MPI_ERR_ARG,
        }
    }
    0
}
alias! { PMPI_Abi_get_version: MPI_Abi_get_version }

/// Further arguments of this function mean something to tools only.
#[unsafe(no_mangle)]
extern "C" fn PMPI_Pcontrol(level: c_int) -> c_int {
    let function = standard!("PMPI_Pcontrol" => unsafe extern "C" fn(c_int, ...) -> c_int);
    // SAFETY: the function takes any level.
    Code::of(unsafe { function(level) })
}
alias! { PMPI_Pcontrol: MPI_Pcontrol }

unsafe extern "C" {
    fn PMPI_Get_address();
    fn PMPI_Comm_create_errhandler();
    fn PMPI_Comm_get_errhandler();
    fn PMPI_Comm_set_errhandler();
    fn PMPI_Type_create_hindexed();
    fn PMPI_Type_create_hvector();
    fn PMPI_Type_create_struct();
}
// Functions of MPI-1 and MPI-2 that have left the standard; today's have the same arguments.
alias! { PMPI_Get_address: MPI_Address PMPI_Address }
alias! { PMPI_Comm_create_errhandler: MPI_Errhandler_create PMPI_Errhandler_create }
alias! { PMPI_Comm_get_errhandler: MPI_Errhandler_get PMPI_Errhandler_get }
alias! { PMPI_Comm_set_errhandler: MPI_Errhandler_set PMPI_Errhandler_set }
alias! { PMPI_Type_create_hindexed: MPI_Type_hindexed PMPI_Type_hindexed }
alias! { PMPI_Type_create_hvector: MPI_Type_hvector PMPI_Type_hvector }
alias! { PMPI_Type_create_struct: MPI_Type_struct PMPI_Type_struct }

/// Defines functions that tell one of the bounds of a datatype.
macro_rules! bounds {
    ($($name:ident $profiled:ident ($lb:ident, $extent:ident) $bound:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiled(datatype: c_int, bound: *mut isize) -> c_int {
            let function = standard!("PMPI_Type_get_extent" =>
                unsafe extern "C" fn(usize, *mut isize, *mut isize) -> c_int);
            let ($lb, $extent) = (&mut 0, &mut 0);
            // SAFETY: the function takes any handle, and the addresses are those of integers.
            let code = unsafe { function(Datatype::to_c(datatype), $lb, $extent) };
            // SAFETY: the program passes NULL or the address of an integer.
            if let (0, Some(bound)) = (code, unsafe { bound.as_mut() }) {
                *bound = $bound;
            }
            Code::of(code)
        }
        alias! { $profiled: $name }
    )* };
}

bounds! {
    MPI_Type_extent PMPI_Type_extent (_lb, extent) *extent;
    MPI_Type_lb PMPI_Type_lb (lb, _extent) *lb;
    MPI_Type_ub PMPI_Type_ub (lb, extent) *lb + *extent;
}

/// Canele moves no memory of graphics processors.
#[unsafe(no_mangle)]
extern "C" fn PMPIX_Query_cuda_support() -> c_int {
    0
}
alias! { PMPIX_Query_cuda_support: MPIX_Query_cuda_support MPIX_Query_hip_support PMPIX_Query_hip_support
MPIX_Query_ze_support PMPIX_Query_ze_support }

#[unsafe(no_mangle)]
unsafe extern "C" fn PMPIX_GPU_query_support(_: c_int, is_supported: *mut c_int) -> c_int {
    // SAFETY: the program passes NULL or the address of an integer.
    match unsafe { is_supported.as_mut() } {
        Some(is_supported) => *is_supported = 0,
        None => return MPI_ERR_ARG,
    }
    0
}
alias! { PMPIX_GPU_query_support: MPIX_GPU_query_support }

/// `MPI_ERR_ARG` of MPICH.
const MPI_ERR_ARG: c_int = 12;
