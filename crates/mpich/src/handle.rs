//! Handles, and numbers of values in arrays that depend on a communicator.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use binding::number_of::{Queries, Query};
use binding::translation::Translation;

use crate::kind::UNKNOWN;
use crate::sentinel;
use crate::standard::standard;

pub(crate) use crate::constants::{Comm, Datatype, Session, Win};

/// A file: a pointer in MPICH's ABI too, so handles are the standard's, but for `MPI_FILE_NULL`.
pub(crate) struct File;

impl Translation for File {
    type Program = usize;
    type C = usize;
    const UNWRITTEN: usize = usize::MAX;

    fn to_c(value: usize) -> usize {
        match value {
            0 => FILE_NULL,
            FILE_NULL => UNKNOWN,
            _ => value,
        }
    }

    fn to_program(handle: usize) -> usize {
        if handle == FILE_NULL { 0 } else { handle }
    }
}

binding::handled! { crate::code::Code;
    Comm "error handlers of communicators"
    File "error handlers of files"
    Session "error handlers of sessions"
    Win "error handlers of windows"
}

fn queries() -> &'static Queries {
    static QUERIES: OnceLock<Queries> = OnceLock::new();
    QUERIES.get_or_init(|| Queries {
        test_inter: standard!("PMPI_Comm_test_inter" => Query),
        size: standard!("PMPI_Comm_size" => Query),
        remote_size: standard!("PMPI_Comm_remote_size" => Query),
        rank: standard!("PMPI_Comm_rank" => Query),
        topo_test: standard!("PMPI_Topo_test" => Query),
        cartdim_get: standard!("PMPI_Cartdim_get" => Query),
        graph_neighbors_count: standard!("PMPI_Graph_neighbors_count" =>
            unsafe extern "C" fn(usize, c_int, *mut c_int) -> c_int),
        dist_graph_neighbors_count: standard!("PMPI_Dist_graph_neighbors_count" =>
            unsafe extern "C" fn(usize, *mut c_int, *mut c_int, *mut c_int) -> c_int),
    })
}

/// The address of an argument at the root of a spawn; NULL at other ranks, where it may be any.
pub(crate) fn at_root<T>(comm: c_int, root: c_int, argument: *mut T) -> *mut T {
    let is_root = queries().is_root(Comm::to_c(comm), root);
    if is_root { argument } else { std::ptr::null_mut() }
}

/// Number of ranks that a collective exchanges data with.
pub(crate) fn ranks(comm: c_int) -> i64 {
    queries().ranks(Comm::to_c(comm))
}

/// Number of neighbours that a rank receives from.
pub(crate) fn sources(comm: c_int) -> i64 {
    queries().neighbours(Comm::to_c(comm)).0
}

/// Number of neighbours that a rank sends to.
pub(crate) fn destinations(comm: c_int) -> i64 {
    queries().neighbours(Comm::to_c(comm)).1
}

/// Number of datatypes of a collective: none if the buffer beside them is `MPI_IN_PLACE`, where they do not count.
pub(crate) fn unless_in_place(buffer: *const c_void, comm: c_int, number: fn(c_int) -> i64) -> i64 {
    if sentinel::is_in_place(buffer) { 0 } else { number(comm) }
}

/// A number of values that the program passes by its address.
///
/// # Safety
/// `number` must be NULL or the address of an integer.
pub(crate) unsafe fn behind(number: *const c_int) -> i64 {
    // SAFETY: as the caller says.
    unsafe { number.as_ref() }.map_or(0, |number| (*number).into())
}

const FILE_NULL: usize = 0x118;
