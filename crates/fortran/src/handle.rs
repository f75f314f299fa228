//! Handles: an INTEGER in Fortran, or a type that holds one, and as wide as a pointer in C.

use std::ffi::{c_int, c_void};

use binding::number_of::Queries;
use binding::translation::Translation;

use crate::sentinel;

macro_rules! kinds {
    ($($kind:ident $fromint:ident $toint:ident)*) => { $(
        pub(crate) struct $kind;

        impl Translation for $kind {
            type Program = c_int;
            type C = usize;
            const UNWRITTEN: usize = usize::MAX;

            fn to_c(value: c_int) -> usize {
                unsafe extern "C" {
                    fn $fromint(value: c_int) -> usize;
                }
                // The integer of a predefined handle is its value in C (MPI-5.0 §20.3).
                if (0..FIRST_DYNAMIC).contains(&value) {
                    return value as usize;
                }
                // SAFETY: the function takes any integer.
                unsafe { $fromint(value) }
            }

            fn to_program(handle: usize) -> c_int {
                unsafe extern "C" {
                    fn $toint(handle: usize) -> c_int;
                }
                if handle < FIRST_DYNAMIC as usize {
                    return handle as c_int;
                }
                // SAFETY: C has given this handle.
                unsafe { $toint(handle) }
            }
        }
    )* };
}

kinds! {
    Comm MPI_Comm_fromint MPI_Comm_toint
    Datatype MPI_Type_fromint MPI_Type_toint
    Errhandler MPI_Errhandler_fromint MPI_Errhandler_toint
    File MPI_File_fromint MPI_File_toint
    Group MPI_Group_fromint MPI_Group_toint
    Info MPI_Info_fromint MPI_Info_toint
    Message MPI_Message_fromint MPI_Message_toint
    Op MPI_Op_fromint MPI_Op_toint
    Request MPI_Request_fromint MPI_Request_toint
    Session MPI_Session_fromint MPI_Session_toint
    Win MPI_Win_fromint MPI_Win_toint
}

/// Handles from here on are not predefined.
const FIRST_DYNAMIC: c_int = 0x1000;
/// An error code, which is the same in C.
pub(crate) struct Code;

impl Translation for Code {
    type Program = c_int;
    type C = c_int;
    const UNWRITTEN: c_int = c_int::MIN;

    fn to_c(value: c_int) -> c_int {
        value
    }

    fn to_program(value: c_int) -> c_int {
        value
    }
}

/// Number of datatypes of a collective: none if the buffer beside them is `MPI_IN_PLACE`, where they do not count.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn unless_in_place(
    buffer: *mut c_void,
    comm: *const c_int,
    number: unsafe fn(*const c_int) -> i64,
) -> i64 {
    // SAFETY: as the caller says.
    if sentinel::is_in_place(buffer) { 0 } else { unsafe { number(comm) } }
}

unsafe extern "C" {
    fn PMPI_Comm_test_inter(comm: usize, flag: *mut c_int) -> c_int;
    fn PMPI_Comm_size(comm: usize, size: *mut c_int) -> c_int;
    fn PMPI_Comm_remote_size(comm: usize, size: *mut c_int) -> c_int;
    fn PMPI_Topo_test(comm: usize, status: *mut c_int) -> c_int;
    fn PMPI_Cartdim_get(comm: usize, ndims: *mut c_int) -> c_int;
    fn PMPI_Comm_rank(comm: usize, rank: *mut c_int) -> c_int;
    fn PMPI_Graph_neighbors_count(comm: usize, rank: c_int, neighbors: *mut c_int) -> c_int;
    fn PMPI_Dist_graph_neighbors_count(
        comm: usize,
        indegree: *mut c_int,
        outdegree: *mut c_int,
        weighted: *mut c_int,
    ) -> c_int;
}

static QUERIES: Queries = Queries {
    test_inter: PMPI_Comm_test_inter,
    size: PMPI_Comm_size,
    remote_size: PMPI_Comm_remote_size,
    rank: PMPI_Comm_rank,
    topo_test: PMPI_Topo_test,
    cartdim_get: PMPI_Cartdim_get,
    graph_neighbors_count: PMPI_Graph_neighbors_count,
    dist_graph_neighbors_count: PMPI_Dist_graph_neighbors_count,
};

/// Number of ranks that a collective exchanges data with.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn ranks(comm: *const c_int) -> i64 {
    // SAFETY: as the caller says.
    QUERIES.ranks(Comm::to_c(unsafe { *comm }))
}

/// True at the root of a collective, where the buffers count that other ranks only name.
pub(crate) fn is_root(comm: usize, root: c_int) -> bool {
    QUERIES.is_root(comm, root)
}

/// The address of an argument at the root of a spawn; NULL at other ranks, where it may be any.
///
/// # Safety
/// `comm` and `root` must be the addresses of a handle and of an integer.
pub(crate) unsafe fn at_root<T>(
    comm: *const c_int,
    root: *const c_int,
    argument: *const T,
) -> *const T {
    // SAFETY: as the caller says.
    let is_root = unsafe { is_root(Comm::to_c(*comm), *root) };
    if is_root { argument } else { std::ptr::null() }
}

/// Number of neighbours that a rank receives from.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn sources(comm: *const c_int) -> i64 {
    // SAFETY: as the caller says.
    QUERIES.neighbours(Comm::to_c(unsafe { *comm })).0
}

/// Number of neighbours that a rank sends to.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn destinations(comm: *const c_int) -> i64 {
    // SAFETY: as the caller says.
    QUERIES.neighbours(Comm::to_c(unsafe { *comm })).1
}
