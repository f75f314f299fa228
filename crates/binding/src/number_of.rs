//! Numbers of values in arrays whose length follows from the communicator.

use std::ffi::c_int;

/// A function of C that answers a question about a communicator with one integer.
pub type Query = unsafe extern "C" fn(usize, *mut c_int) -> c_int;

/// The functions of C that answer questions about communicators.
#[derive(Clone, Copy, Debug)]
pub struct Queries {
    /// `MPI_Comm_test_inter`.
    pub test_inter: Query,
    /// `MPI_Comm_size`.
    pub size: Query,
    /// `MPI_Comm_remote_size`.
    pub remote_size: Query,
    /// `MPI_Comm_rank`.
    pub rank: Query,
    /// `MPI_Topo_test`.
    pub topo_test: Query,
    /// `MPI_Cartdim_get`.
    pub cartdim_get: Query,
    /// `MPI_Graph_neighbors_count`.
    pub graph_neighbors_count: unsafe extern "C" fn(usize, c_int, *mut c_int) -> c_int,
    /// `MPI_Dist_graph_neighbors_count`.
    pub dist_graph_neighbors_count:
        unsafe extern "C" fn(usize, *mut c_int, *mut c_int, *mut c_int) -> c_int,
}

impl Queries {
    /// The answer to a question; none if the handle is not that of a communicator.
    fn ask(query: Query, comm: usize) -> Option<c_int> {
        let mut answer = 0;
        // SAFETY: the function takes any handle, and the address is that of an integer.
        let code = unsafe { query(comm, &mut answer) };
        (code == 0).then_some(answer)
    }

    /// Number of ranks that a collective exchanges data with.
    pub fn ranks(&self, comm: usize) -> i64 {
        let size = match Self::ask(self.test_inter, comm) {
            None => return 0,
            Some(0) => self.size,
            Some(_) => self.remote_size,
        };
        Self::ask(size, comm).unwrap_or(0).into()
    }

    /// True at the root of a collective, where the buffers count that other ranks only name.
    pub fn is_root(&self, comm: usize, root: c_int) -> bool {
        match Self::ask(self.test_inter, comm) {
            None | Some(0) => Self::ask(self.rank, comm) == Some(root),
            Some(_) => root == ROOT,
        }
    }

    /// Numbers of neighbours that a rank receives from and sends to.
    pub fn neighbours(&self, comm: usize) -> (i64, i64) {
        let (mut sources, mut destinations, mut is_weighted) = (0, 0, 0);
        match Self::ask(self.topo_test, comm) {
            Some(CART) => {
                sources = 2 * Self::ask(self.cartdim_get, comm).unwrap_or(0);
                destinations = sources;
            }
            Some(GRAPH) => {
                let rank = Self::ask(self.rank, comm).unwrap_or(0);
                // SAFETY: the function takes any handle and rank, and the address is that of an integer.
                unsafe { (self.graph_neighbors_count)(comm, rank, &mut sources) };
                destinations = sources;
            }
            // SAFETY: the function takes any handle, and the addresses are those of integers.
            Some(DIST_GRAPH) => unsafe {
                (self.dist_graph_neighbors_count)(
                    comm,
                    &mut sources,
                    &mut destinations,
                    &mut is_weighted,
                );
            },
            _ => {}
        }
        (sources.into(), destinations.into())
    }
}

const ROOT: c_int = -4;
const CART: c_int = 211;
const GRAPH: c_int = 212;
const DIST_GRAPH: c_int = 213;
