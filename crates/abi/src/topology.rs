//! Process topologies (MPI-5.0 §8).

use std::ffi::c_int;

use mpi::comm::{Comm, CommRef, NULL};
use mpi::topology::{self, Cart, Edge, Graph, Neighbours, Topology};

use crate::arguments::{Named, PROC_NULL, length};
use crate::convention::*;

/// The communicator that functions which make another are given.
fn old(on: RawHandle) -> Result<CommRef> {
    named("comm_old", mpi::comm::find(handle(on)))?;
    crate::arguments::intra(on)
}

fn comm(on: RawHandle) -> Result<Named> {
    crate::arguments::comm(on)
}

unsafe fn give(made: Option<Comm>, place: *mut RawHandle) -> Result<()> {
    // SAFETY: `place` points to a variable of the caller.
    unsafe { put(place, raw(made.map_or(NULL, |comm| comm.handle()))) }
}

pub(crate) unsafe fn topo_test(on: RawHandle, status: *mut c_int) -> Result<()> {
    let comm = comm(on)?;
    let kind = match comm.topology().map(AsRef::as_ref) {
        None => UNDEFINED,
        Some(Topology::Cart(_)) => 211,
        Some(Topology::Graph(_)) => 212,
        Some(Topology::Distributed(_)) => 213,
    };
    // SAFETY: `status` points to a variable of the caller.
    unsafe { put(status, kind) }
}

pub(crate) unsafe fn dims_create(nodes: c_int, ndims: c_int, dims: *mut c_int) -> Result<()> {
    let len = length("ndims", ndims)?;
    // SAFETY: `dims` has `len` entries, which the caller lets us overwrite.
    unsafe {
        let mut all = array("dims", dims, len)?.to_vec();
        topology::complete_dims(nodes, &mut all)?;
        write("dims", dims, &all)
    }
}

unsafe fn grid(
    comm: &Comm,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
) -> Result<Cart> {
    let len = usize::try_from(ndims)
        .map_err(|_| class(ErrorClass::Dims, format!("ndims = {ndims} is negative")))?;
    // SAFETY: `periods` and `dims` have `len` entries.
    unsafe {
        let periods = array("periods", periods, len)?.iter().map(|&period| period != 0);
        Cart::new(array("dims", dims, len)?, &periods.collect::<Vec<_>>(), comm.size())
    }
}

pub(crate) unsafe fn cart_create(
    on: RawHandle,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    reorder: c_int,
    made: *mut RawHandle,
) -> Result<()> {
    let comm = old(on)?;
    // SAFETY: `dims` and `periods` have `ndims` entries; `made` points to a variable of the caller.
    unsafe { give(comm.arrange_grid(grid(&comm, ndims, dims, periods)?, reorder != 0)?, made) }
}

pub(crate) unsafe fn cart_map(
    on: RawHandle,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
    rank: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    // SAFETY: `rank` points to a variable of the caller; `dims` and `periods` have `ndims` entries.
    unsafe {
        let mapped = comm.map_grid(&grid(&comm, ndims, dims, periods)?)?;
        put(rank, mapped.map_or(UNDEFINED, |rank| rank as c_int))
    }
}

pub(crate) unsafe fn cartdim_get(on: RawHandle, ndims: *mut c_int) -> Result<()> {
    // SAFETY: `ndims` points to a variable of the caller.
    unsafe { put(ndims, comm(on)?.cart()?.dims().len() as c_int) }
}

pub(crate) unsafe fn cart_get(
    on: RawHandle,
    max: c_int,
    dims: *mut c_int,
    periods: *mut c_int,
    coordinates: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    room("maxdims", max, cart.dims().len())?;
    let rings: Vec<c_int> = cart.periods().iter().map(|&ring| c_int::from(ring)).collect();
    // SAFETY: `dims`, `periods` and `coordinates` have `maxdims` entries, as many as needed by the
    // check above.
    unsafe {
        write("dims", dims, &ints(cart.dims()))?;
        write("periods", periods, &rings)?;
        write("coords", coordinates, &ints(&cart.coordinates(comm.rank())))
    }
}

pub(crate) unsafe fn cart_coords(
    on: RawHandle,
    rank: c_int,
    max: c_int,
    coordinates: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    let rank = member("rank", rank, comm.size())?;
    room("maxdims", max, cart.dims().len())?;
    // SAFETY: `coordinates` has `maxdims` entries, as many as needed by the check above.
    unsafe { write("coords", coordinates, &ints(&cart.coordinates(rank))) }
}

pub(crate) unsafe fn cart_rank(
    on: RawHandle,
    coordinates: *const c_int,
    rank: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    // SAFETY: `coordinates` has an entry for each dimension; `rank` points to a variable of the
    // caller.
    unsafe {
        let coordinates = array("coords", coordinates, cart.dims().len())?;
        put(rank, cart.rank(coordinates)? as c_int)
    }
}

pub(crate) unsafe fn cart_shift(
    on: RawHandle,
    direction: c_int,
    displacement: c_int,
    source: *mut c_int,
    destination: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let (before, behind) = comm.cart()?.shift(comm.rank(), direction, displacement)?;
    let rank = |found: Option<u32>| found.map_or(PROC_NULL, |rank| rank as c_int);
    // SAFETY: `source` and `destination` point to variables of the caller.
    unsafe {
        put(source, rank(before))?;
        put(destination, rank(behind))
    }
}

pub(crate) unsafe fn cart_sub(
    on: RawHandle,
    remain: *const c_int,
    made: *mut RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    let len = comm.cart()?.dims().len();
    // SAFETY: `remain` has `len` entries; `made` points to a variable of the caller.
    unsafe {
        let remain = array("remain_dims", remain, len)?.iter().map(|&remains| remains != 0);
        give(comm.part_of_grid(&remain.collect::<Vec<_>>())?, made)
    }
}

unsafe fn graph(
    comm: &Comm,
    nodes: c_int,
    index: *const c_int,
    edges: *const c_int,
) -> Result<Graph> {
    // SAFETY: `index` has `nodes` entries; `edges` has `len` entries.
    unsafe {
        let index = array("indx", index, length("nnodes", nodes)?)?;
        let len = length("indx", index.last().copied().unwrap_or(0))?;
        Graph::new(index, array("edges", edges, len)?, comm.size())
    }
}

pub(crate) unsafe fn graph_create(
    on: RawHandle,
    nodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    reorder: c_int,
    made: *mut RawHandle,
) -> Result<()> {
    let comm = old(on)?;
    // SAFETY: `index` and `edges` have the lengths that the arguments say; `made` points to a
    // variable of the caller.
    unsafe { give(comm.arrange_graph(graph(&comm, nodes, index, edges)?, reorder != 0)?, made) }
}

pub(crate) unsafe fn graph_map(
    on: RawHandle,
    nodes: c_int,
    index: *const c_int,
    edges: *const c_int,
    rank: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    // SAFETY: `index` and `edges` have the lengths that the arguments say; `rank` points to a
    // variable of the caller.
    unsafe {
        let mapped = comm.map_graph(&graph(&comm, nodes, index, edges)?)?;
        put(rank, mapped.map_or(UNDEFINED, |rank| rank as c_int))
    }
}

pub(crate) unsafe fn graphdims_get(
    on: RawHandle,
    nodes: *mut c_int,
    edges: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let graph = comm.graph()?;
    // SAFETY: `nodes` and `edges` point to variables of the caller.
    unsafe {
        put(nodes, graph.index().len() as c_int)?;
        put(edges, graph.edges().len() as c_int)
    }
}

pub(crate) unsafe fn graph_get(
    on: RawHandle,
    max_index: c_int,
    max_edges: c_int,
    index: *mut c_int,
    edges: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let graph = comm.graph()?;
    room("maxindex", max_index, graph.index().len())?;
    room("maxedges", max_edges, graph.edges().len())?;
    // SAFETY: `index` and `edges` have `maxindex` and `maxedges` entries, as many as needed by the
    // checks above.
    unsafe {
        write("indx", index, &ints(graph.index()))?;
        write("edges", edges, &ints(graph.edges()))
    }
}

pub(crate) unsafe fn graph_neighbors_count(
    on: RawHandle,
    rank: c_int,
    count: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let graph = comm.graph()?;
    let rank = member("rank", rank, comm.size())?;
    // SAFETY: `count` points to a variable of the caller.
    unsafe { put(count, graph.neighbours(rank).len() as c_int) }
}

pub(crate) unsafe fn graph_neighbors(
    on: RawHandle,
    rank: c_int,
    max: c_int,
    neighbours: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let found = comm.graph()?.neighbours(member("rank", rank, comm.size())?);
    let room = length("maxneighbors", max)?.min(found.len());
    // SAFETY: `neighbours` has `maxneighbors` entries; no more are written.
    unsafe { write("neighbors", neighbours, &ints(&found[..room])) }
}

/// Ranks and the weights that belong to them.
unsafe fn edges_of(
    size: u32,
    name: &str,
    (ranks, weights): (&[c_int], *const c_int),
    weights_name: &'static str,
) -> Result<Vec<(u32, i32)>> {
    let weights = match weights as usize {
        UNWEIGHTED | WEIGHTS_EMPTY => None,
        // SAFETY: `weights` has one entry for each of `ranks`.
        _ => Some(unsafe { array(weights_name, weights, ranks.len()) }?),
    };
    let edge = |(index, &rank): (usize, &c_int)| {
        let rank = member(&format!("{name}[{index}]"), rank, size)?;
        match weights.map(|weights| weights[index]) {
            Some(weight) if weight < 0 => {
                Err(Error::argument(format!("{weights_name}[{index}] = {weight} is negative")))
            }
            weight => Ok((rank, weight.unwrap_or(1))),
        }
    };
    ranks.iter().enumerate().map(edge).collect()
}

pub(crate) unsafe fn dist_graph_create_adjacent(
    on: RawHandle,
    indegree: c_int,
    sources: *const c_int,
    source_weights: *const c_int,
    outdegree: c_int,
    destinations: *const c_int,
    destination_weights: *const c_int,
    info: RawHandle,
    reorder: c_int,
    made: *mut RawHandle,
) -> Result<()> {
    let comm = old(on)?;
    let hints = crate::info::optional(info)?;
    let weighted = [source_weights, destination_weights].map(|one| one as usize != UNWEIGHTED);
    if weighted[0] != weighted[1] {
        let text = "destweights and sourceweights must both be MPI_UNWEIGHTED, or none";
        return Err(Error::argument(text));
    }
    // SAFETY: the arrays have `indegree` and `outdegree` entries; `made` points to a variable of
    // the caller.
    unsafe {
        let sources = array("sources", sources, length("indegree", indegree)?)?;
        let destinations = array("destinations", destinations, length("outdegree", outdegree)?)?;
        let (into, out) = ((sources, source_weights), (destinations, destination_weights));
        let neighbours = Neighbours {
            sources: edges_of(comm.size(), "sources", into, "sourceweights")?,
            destinations: edges_of(comm.size(), "destinations", out, "destweights")?,
            is_weighted: weighted[0],
        };
        let result = comm.arrange_neighbours(neighbours, reorder != 0)?;
        result.set_info(&hints);
        give(Some(result), made)
    }
}

pub(crate) unsafe fn dist_graph_create(
    on: RawHandle,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights: *const c_int,
    info: RawHandle,
    reorder: c_int,
    made: *mut RawHandle,
) -> Result<()> {
    let comm = old(on)?;
    let hints = crate::info::optional(info)?;
    // SAFETY: `sources` and `degrees` have `n` entries, the others as many as the degrees sum to;
    // `made` points to a variable of the caller.
    unsafe {
        let n = length("n", n)?;
        let sources = array("sources", sources, n)?;
        let degrees = Ints::int("degrees", degrees).read_counts(n);
        let degrees = degrees.map_err(|mut error| {
            error.class = ErrorClass::Arg;
            error
        })?;
        let destinations = array("destinations", destinations, degrees.iter().sum())?;
        let ends = edges_of(comm.size(), "destinations", (destinations, weights), "weights")?;
        let mut edges = Vec::with_capacity(ends.len());
        let mut rest = &ends[..];
        for (index, (&source, &degree)) in sources.iter().zip(&degrees).enumerate() {
            let source = member(&format!("sources[{index}]"), source, comm.size())?;
            let (mine, after) = rest.split_at(degree);
            rest = after;
            let edge = |&(destination, weight): &(u32, i32)| Edge { source, destination, weight };
            edges.extend(mine.iter().map(edge));
        }
        let result = comm.arrange_edges(&edges, weights as usize != UNWEIGHTED, reorder != 0)?;
        result.set_info(&hints);
        give(Some(result), made)
    }
}

pub(crate) unsafe fn dist_graph_neighbors_count(
    on: RawHandle,
    indegree: *mut c_int,
    outdegree: *mut c_int,
    weighted: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let neighbours = comm.neighbours()?;
    // SAFETY: `indegree`, `outdegree` and `weighted` point to variables of the caller.
    unsafe {
        put(indegree, neighbours.sources.len() as c_int)?;
        put(outdegree, neighbours.destinations.len() as c_int)?;
        put(weighted, c_int::from(neighbours.is_weighted))
    }
}

pub(crate) unsafe fn dist_graph_neighbors(
    on: RawHandle,
    max_indegree: c_int,
    sources: *mut c_int,
    source_weights: *mut c_int,
    max_outdegree: c_int,
    destinations: *mut c_int,
    destination_weights: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    let neighbours = comm.neighbours()?;
    room("maxindegree", max_indegree, neighbours.sources.len())?;
    room("maxoutdegree", max_outdegree, neighbours.destinations.len())?;
    let sides = [
        (&neighbours.sources, "sources", sources, "sourceweights", source_weights),
        (
            &neighbours.destinations,
            "destinations",
            destinations,
            "destweights",
            destination_weights,
        ),
    ];
    for (edges, name, ranks, weights_name, weights) in sides {
        let (ends, loads): (Vec<u32>, Vec<i32>) = edges.iter().copied().unzip();
        // SAFETY: `ranks` and `weights` have `maxindegree` or `maxoutdegree` entries, as many as
        // needed by the checks above.
        unsafe {
            write(name, ranks, &ints(&ends))?;
            if neighbours.is_weighted && !matches!(weights as usize, UNWEIGHTED | WEIGHTS_EMPTY) {
                write(weights_name, weights, &loads)?;
            }
        }
    }
    Ok(())
}

fn ints(values: &[u32]) -> Vec<c_int> {
    values.iter().map(|&value| value as c_int).collect()
}

/// Fills the beginning of an array.
unsafe fn write(name: &'static str, place: *mut c_int, values: &[c_int]) -> Result<()> {
    // SAFETY: the caller passes an array with room for the values.
    unsafe {
        array(name, place, values.len())?;
        if !values.is_empty() {
            place.copy_from(values.as_ptr(), values.len());
        }
    }
    Ok(())
}

fn room(name: &str, max: c_int, needed: usize) -> Result<()> {
    if length(name, max)? < needed {
        return Err(Error::argument(format!("{name} = {max} where {needed} are needed")));
    }
    Ok(())
}

fn member(name: &str, rank: c_int, size: u32) -> Result<u32> {
    let found = u32::try_from(rank).ok().filter(|&rank| rank < size);
    let bad = || format!("{name} = {rank} is outside a communicator of {size}");
    found.ok_or_else(|| class(ErrorClass::Rank, bad()))
}

/// `MPI_UNWEIGHTED`.
const UNWEIGHTED: usize = 10;
/// `MPI_WEIGHTS_EMPTY`.
const WEIGHTS_EMPTY: usize = 11;
