//! Handles: an INTEGER in Fortran, or a type that holds one, and as wide as a pointer in C.

use std::ffi::c_int;
use std::marker::PhantomData;

use smallvec::SmallVec;

use crate::argument::Argument;
use crate::sentinel;

/// HandleKind of object that handles name.
pub(crate) trait HandleKind {
    fn from_int(value: c_int) -> usize;
    fn to_int(handle: usize) -> c_int;
}

macro_rules! kinds {
    ($($kind:ident $fromint:ident $toint:ident)*) => { $(
        pub(crate) struct $kind;

        impl HandleKind for $kind {
            fn from_int(value: c_int) -> usize {
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

            fn to_int(handle: usize) -> c_int {
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
/// A handle that C does not give: the place of a result before the call.
const UNWRITTEN: usize = usize::MAX;

/// A handle that C gets by its value.
pub(crate) struct Handle<K>(usize, PhantomData<K>);

impl<K: HandleKind> Handle<K> {
    pub(crate) unsafe fn take(variable: *const c_int) -> Self {
        // SAFETY: Fortran passes the address of a handle.
        Self(K::from_int(unsafe { *variable }), PhantomData)
    }

    /// Puts another handle in its place.
    pub(crate) fn replace(&mut self, handle: usize) {
        self.0 = handle;
    }
}

impl<K> Argument for Handle<K> {
    type C = usize;

    fn c(&mut self) -> usize {
        self.0
    }
}

/// A variable for a handle, which C reads or writes or both.
pub(crate) struct Variable<K> {
    variable: *mut c_int,
    before: usize,
    handle: usize,
    kind: PhantomData<K>,
}

impl<K: HandleKind> Variable<K> {
    /// A handle that C may change.
    pub(crate) unsafe fn take(variable: *mut c_int) -> Self {
        // SAFETY: Fortran passes the address of a handle.
        let handle = K::from_int(unsafe { *variable });
        Self { variable, before: handle, handle, kind: PhantomData }
    }

    /// Room for a handle that C gives.
    pub(crate) unsafe fn result(variable: *mut c_int) -> Self {
        Self { variable, before: UNWRITTEN, handle: UNWRITTEN, kind: PhantomData }
    }
}

impl<K: HandleKind> Argument for Variable<K> {
    type C = *mut usize;

    fn c(&mut self) -> *mut usize {
        &mut self.handle
    }

    fn give(self) {
        if self.handle != self.before {
            // SAFETY: Fortran passes the address of a handle.
            unsafe { *self.variable = K::to_int(self.handle) };
        }
    }
}

/// Handles that C reads or writes or both.
pub(crate) struct Handles<K> {
    variables: *mut c_int,
    before: SmallVec<[usize; 16]>,
    handles: SmallVec<[usize; 16]>,
    kind: PhantomData<K>,
}

impl<K: HandleKind> Handles<K> {
    /// Handles that C may change. A negative number is for C to refuse.
    pub(crate) unsafe fn take(variables: *mut c_int, number: i64) -> Self {
        let handles: SmallVec<[usize; 16]> = (0..number.max(0) as usize)
            // SAFETY: Fortran passes as many handles.
            .map(|i| K::from_int(unsafe { *variables.add(i) }))
            .collect();
        Self { variables, before: handles.clone(), handles, kind: PhantomData }
    }

    /// Room for handles that C gives.
    pub(crate) unsafe fn result(variables: *mut c_int, number: i64) -> Self {
        let handles = SmallVec::from_elem(UNWRITTEN, number.max(0) as usize);
        Self { variables, before: handles.clone(), handles, kind: PhantomData }
    }
}

impl<K: HandleKind> Argument for Handles<K> {
    type C = *mut usize;

    fn c(&mut self) -> *mut usize {
        self.handles.as_mut_ptr()
    }

    fn give(self) {
        for (i, (handle, before)) in self.handles.iter().zip(&self.before).enumerate() {
            if handle != before {
                // SAFETY: Fortran passes room for as many handles.
                unsafe { *self.variables.add(i) = K::to_int(*handle) };
            }
        }
    }
}

/// Number of datatypes of a collective: none if the buffer beside them is `MPI_IN_PLACE`, where they do not count.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn unless_in_place(
    buffer: *mut std::ffi::c_void,
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

/// Number of ranks that a collective exchanges data with.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn ranks(comm: *const c_int) -> i64 {
    let (mut is_inter, mut size) = (0, 0);
    // SAFETY: the functions take any handle, and the addresses are those of integers.
    unsafe {
        let comm = Comm::from_int(*comm);
        if PMPI_Comm_test_inter(comm, &mut is_inter) != 0 {
            return 0;
        }
        match is_inter {
            0 => PMPI_Comm_size(comm, &mut size),
            _ => PMPI_Comm_remote_size(comm, &mut size),
        };
    }
    size.into()
}

/// True at the root of a collective, where the buffers count that other ranks only name.
pub(crate) fn is_root(comm: usize, root: c_int) -> bool {
    let (mut is_inter, mut rank) = (0, -1);
    // SAFETY: the functions take any handle, and the addresses are those of integers.
    unsafe {
        PMPI_Comm_test_inter(comm, &mut is_inter);
        PMPI_Comm_rank(comm, &mut rank);
    }
    root == if is_inter == 0 { rank } else { ROOT }
}

/// Numbers of neighbours that a rank receives from and sends to.
unsafe fn degrees(comm: *const c_int) -> (i64, i64) {
    let (mut topology, mut sources, mut destinations, mut is_weighted) = (0, 0, 0, 0);
    // SAFETY: the functions take any handle, and the addresses are those of integers.
    unsafe {
        let comm = Comm::from_int(*comm);
        if PMPI_Topo_test(comm, &mut topology) != 0 {
            return (0, 0);
        }
        match topology {
            CART => {
                PMPI_Cartdim_get(comm, &mut sources);
                sources *= 2;
                destinations = sources;
            }
            GRAPH => {
                let mut rank = 0;
                PMPI_Comm_rank(comm, &mut rank);
                PMPI_Graph_neighbors_count(comm, rank, &mut sources);
                destinations = sources;
            }
            DIST_GRAPH => {
                PMPI_Dist_graph_neighbors_count(
                    comm,
                    &mut sources,
                    &mut destinations,
                    &mut is_weighted,
                );
            }
            _ => {}
        }
    }
    (sources.into(), destinations.into())
}

/// Number of neighbours that a rank receives from.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn sources(comm: *const c_int) -> i64 {
    // SAFETY: as the caller says.
    unsafe { degrees(comm).0 }
}

/// Number of neighbours that a rank sends to.
///
/// # Safety
/// `comm` must be the address of a handle.
pub(crate) unsafe fn destinations(comm: *const c_int) -> i64 {
    // SAFETY: as the caller says.
    unsafe { degrees(comm).1 }
}

const ROOT: c_int = -4;
const CART: c_int = 211;
const GRAPH: c_int = 212;
const DIST_GRAPH: c_int = 213;
