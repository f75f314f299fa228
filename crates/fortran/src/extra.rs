//! Procedures that C does not have, or has in another form: functions, predefined callbacks, copies of statuses.

use std::ffi::{c_int, c_void};

use crate::attribute::Word;
use crate::descriptor::{Array, Descriptor};
use binding::alias;

/// Defines functions that return a value, for C's `MPI_` and `PMPI_` form, each with further names.
macro_rules! functions {
    ($($result:ty: [$($c:ident $name:ident $($alias:ident)*),*] ($($argument:ident: $type:ty),*);)*) => { $(
        functions! { @each $result, [$($c $name ($($alias)*)),*] ($($argument: $type),*) }
    )* };
    (@each $result:ty, [$($c:ident $name:ident $aliases:tt),*] $arguments:tt) => { $(
        functions! { @one $result, $c $name $aliases $arguments }
    )* };
    (@one $result:ty, $c:ident $name:ident ($($alias:ident)*) ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: *const $type),*) -> $result {
            unsafe extern "C" {
                fn $c($($argument: $type),*) -> $result;
            }
            // SAFETY: Fortran passes the addresses of variables of these types.
            unsafe { $c($(*$argument),*) }
        }
        alias! { $name: $($alias)* }
    };
}

functions! {
    f64: [MPI_Wtime mpi_wtime_ mpi_wtime mpi_wtime__ MPI_WTIME mpi_wtime_f08_,
        PMPI_Wtime pmpi_wtime_ pmpi_wtime pmpi_wtime__ PMPI_WTIME pmpi_wtime_f08_] ();
    f64: [MPI_Wtick mpi_wtick_ mpi_wtick mpi_wtick__ MPI_WTICK mpi_wtick_f08_,
        PMPI_Wtick pmpi_wtick_ pmpi_wtick pmpi_wtick__ PMPI_WTICK pmpi_wtick_f08_] ();
    isize: [MPI_Aint_add mpi_aint_add_ mpi_aint_add mpi_aint_add__ MPI_AINT_ADD mpi_aint_add_f08_,
        PMPI_Aint_add pmpi_aint_add_ pmpi_aint_add pmpi_aint_add__ PMPI_AINT_ADD pmpi_aint_add_f08_]
        (base: isize, disp: isize);
    isize: [MPI_Aint_diff mpi_aint_diff_ mpi_aint_diff mpi_aint_diff__ MPI_AINT_DIFF mpi_aint_diff_f08_,
        PMPI_Aint_diff pmpi_aint_diff_ pmpi_aint_diff pmpi_aint_diff__ PMPI_AINT_DIFF pmpi_aint_diff_f08_]
        (addr1: isize, addr2: isize);
}

/// Defines `MPI_Pcontrol`, which has no error code in Fortran and further arguments in C.
macro_rules! pcontrol {
    ($($c:ident $name:ident $($alias:ident)*;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(level: *const c_int) {
            unsafe extern "C" {
                fn $c(level: c_int, ...) -> c_int;
            }
            // SAFETY: Fortran passes the address of an integer.
            unsafe { $c(*level) };
        }
        alias! { $name: $($alias)* }
    )* };
}

pcontrol! {
    MPI_Pcontrol mpi_pcontrol_ mpi_pcontrol mpi_pcontrol__ MPI_PCONTROL mpi_pcontrol_f08_;
    PMPI_Pcontrol pmpi_pcontrol_ pmpi_pcontrol pmpi_pcontrol__ PMPI_PCONTROL pmpi_pcontrol_f08_;
}

/// Copies an attribute's value.
unsafe fn dup<W: Word>(from: *const W, to: *mut W, flag: *mut c_int, ierror: *mut c_int) {
    // SAFETY: the caller passes what it passes to a copy procedure.
    unsafe {
        *to = *from;
        *flag = 1;
        *ierror = 0;
    }
}

/// Defines the predefined callbacks of attributes, whose values are of a type.
macro_rules! predefined {
    ($($word:ty: $dup:ident $dup2:ident $dup3:ident $dup4:ident, $null:ident $null2:ident $null3:ident $null4:ident,
        $delete:ident $delete2:ident $delete3:ident $delete4:ident;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $dup(
            _: *const c_int, _: *const c_int, _: *const $word, from: *const $word, to: *mut $word,
            flag: *mut c_int, ierror: *mut c_int,
        ) {
            // SAFETY: the caller passes what it passes to a copy procedure.
            unsafe { dup(from, to, flag, ierror) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $null(
            _: *const c_int, _: *const c_int, _: *const $word, _: *const $word, _: *mut $word,
            flag: *mut c_int, ierror: *mut c_int,
        ) {
            // SAFETY: the caller passes what it passes to a copy procedure.
            unsafe { (*flag, *ierror) = (0, 0) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $delete(
            _: *const c_int, _: *const c_int, _: *const $word, _: *const $word, ierror: *mut c_int,
        ) {
            // SAFETY: the caller passes what it passes to a delete procedure.
            unsafe { *ierror = 0 }
        }
        alias! { $dup: $dup2 $dup3 $dup4 }
        alias! { $null: $null2 $null3 $null4 }
        alias! { $delete: $delete2 $delete3 $delete4 }
    )* };
}

predefined! {
    isize: mpi_comm_dup_fn_ mpi_comm_dup_fn mpi_comm_dup_fn__ MPI_COMM_DUP_FN,
        mpi_comm_null_copy_fn_ mpi_comm_null_copy_fn mpi_comm_null_copy_fn__ MPI_COMM_NULL_COPY_FN,
        mpi_comm_null_delete_fn_ mpi_comm_null_delete_fn mpi_comm_null_delete_fn__ MPI_COMM_NULL_DELETE_FN;
    isize: mpi_type_dup_fn_ mpi_type_dup_fn mpi_type_dup_fn__ MPI_TYPE_DUP_FN,
        mpi_type_null_copy_fn_ mpi_type_null_copy_fn mpi_type_null_copy_fn__ MPI_TYPE_NULL_COPY_FN,
        mpi_type_null_delete_fn_ mpi_type_null_delete_fn mpi_type_null_delete_fn__ MPI_TYPE_NULL_DELETE_FN;
    isize: mpi_win_dup_fn_ mpi_win_dup_fn mpi_win_dup_fn__ MPI_WIN_DUP_FN,
        mpi_win_null_copy_fn_ mpi_win_null_copy_fn mpi_win_null_copy_fn__ MPI_WIN_NULL_COPY_FN,
        mpi_win_null_delete_fn_ mpi_win_null_delete_fn mpi_win_null_delete_fn__ MPI_WIN_NULL_DELETE_FN;
    c_int: mpi_dup_fn_ mpi_dup_fn mpi_dup_fn__ MPI_DUP_FN,
        mpi_null_copy_fn_ mpi_null_copy_fn mpi_null_copy_fn__ MPI_NULL_COPY_FN,
        mpi_null_delete_fn_ mpi_null_delete_fn mpi_null_delete_fn__ MPI_NULL_DELETE_FN;
}

/// A status: the same integers in all languages and forms.
type Status = [c_int; 8];

/// Copies a status between its two forms in Fortran.
#[unsafe(no_mangle)]
unsafe extern "C" fn mpi_status_f2f08_(from: *const Status, to: *mut Status, ierror: *mut c_int) {
    // SAFETY: Fortran passes the addresses of two statuses.
    unsafe {
        *to = *from;
        crate::argument::finish(0, ierror);
    }
}
alias! { mpi_status_f2f08_: mpi_status_f2f08 mpi_status_f2f08__ MPI_STATUS_F2F08 mpi_status_f2f08_f08_
pmpi_status_f2f08_ pmpi_status_f2f08 pmpi_status_f2f08__ PMPI_STATUS_F2F08 pmpi_status_f2f08_f08_
mpi_status_f082f_ mpi_status_f082f mpi_status_f082f__ MPI_STATUS_F082F mpi_status_f082f_f08_
pmpi_status_f082f_ pmpi_status_f082f pmpi_status_f082f__ PMPI_STATUS_F082F pmpi_status_f082f_f08_ }

/// Keeps the compiler from holding a buffer in registers across the call.
#[unsafe(no_mangle)]
extern "C" fn mpi_f_sync_reg_(_: *mut c_void) {}
alias! { mpi_f_sync_reg_: mpi_f_sync_reg mpi_f_sync_reg__ MPI_F_SYNC_REG mpi_f_sync_reg_f08_ canele_mpi_f_sync_reg_f08ts mpi_f_sync_reg_f08ts_
pmpi_f_sync_reg_ pmpi_f_sync_reg pmpi_f_sync_reg__ PMPI_F_SYNC_REG pmpi_f_sync_reg_f08_ canele_pmpi_f_sync_reg_f08ts pmpi_f_sync_reg_f08ts_ }

/// The size of a variable, or of an element of an array.
#[unsafe(no_mangle)]
unsafe extern "C" fn canele_mpi_sizeof_f08ts(
    x: *const Descriptor,
    size: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: Fortran passes a descriptor and the addresses of integers.
    unsafe {
        *size = Array::of(x).element as c_int;
        crate::argument::finish(0, ierror);
    }
}
alias! { canele_mpi_sizeof_f08ts: canele_pmpi_sizeof_f08ts mpi_sizeof_f08ts_ pmpi_sizeof_f08ts_ canele_mpi_sizeof canele_pmpi_sizeof }

/// Defines the comparisons of handles in `mpi_f08`.
macro_rules! comparisons {
    ($($equal:ident $unequal:ident)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $equal(a: *const c_int, b: *const c_int) -> c_int {
            // SAFETY: Fortran passes the addresses of two handles.
            unsafe { c_int::from(*a == *b) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $unequal(a: *const c_int, b: *const c_int) -> c_int {
            // SAFETY: both are addresses of handles, as in the other comparison.
            unsafe { c_int::from(*a != *b) }
        }
    )* };
}

comparisons! { canele_handle_eq_ canele_handle_ne_ }
alias! { canele_handle_eq_: canele_comm_eq_ canele_datatype_eq_ canele_errhandler_eq_ canele_file_eq_ canele_group_eq_ canele_info_eq_ canele_message_eq_ canele_op_eq_ canele_request_eq_ canele_session_eq_ canele_win_eq_ }
alias! { canele_handle_ne_: canele_comm_ne_ canele_datatype_ne_ canele_errhandler_ne_ canele_file_ne_ canele_group_ne_ canele_info_ne_ canele_message_ne_ canele_op_ne_ canele_request_ne_ canele_session_ne_ canele_win_ne_ }
