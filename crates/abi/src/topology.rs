//! Process topologies (MPI-5.0 §8).

use std::ffi::c_int;

use mpi::comm::{Comm, CommRef, NULL};
use mpi::topology::{self, Cart, Edge, Graph, Neighbours, Topology};

use crate::arguments::{Named, PROC_NULL, find_comm, length};
use crate::convention::*;

/// The communicator that functions which make another are given.
fn old(on: RawHandle) -> Result<CommRef> {
    named("comm_old", find_comm(on))?;
    crate::arguments::intra(on)
}

fn comm(on: RawHandle) -> Result<Named> {
    crate::arguments::comm(on)
}

fn give(made: Option<Comm>, place: Out<RawHandle>) -> Result<()> {
    place.put(raw(made.map_or(NULL, |comm| comm.handle())))
}

pub(crate) fn topo_test(on: RawHandle, status: Out<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let kind = match comm.topology().map(AsRef::as_ref) {
        None => UNDEFINED,
        Some(Topology::Cart(_)) => 211,
        Some(Topology::Graph(_)) => 212,
        Some(Topology::Distributed(_)) => 213,
    };
    status.put(kind)
}

pub(crate) fn dims_create(nodes: c_int, dims: &mut [c_int]) -> Result<()> {
    topology::complete_dims(nodes, dims)
}

fn grid(comm: &Comm, dims: &[c_int], periods: &[c_int]) -> Result<Cart> {
    let mut closed = room("periods", periods.len())?;
    closed.extend(periods.iter().map(|&period| period != 0));
    Cart::new(dims, closed, comm.size())
}

pub(crate) fn cart_create(
    on: RawHandle,
    dims: &[c_int],
    periods: &[c_int],
    reorder: c_int,
    made: Out<RawHandle>,
) -> Result<()> {
    let comm = old(on)?;
    give(comm.arrange_grid(grid(&comm, dims, periods)?, reorder != 0)?, made)
}

pub(crate) fn cart_map(
    on: RawHandle,
    dims: &[c_int],
    periods: &[c_int],
    rank: Out<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let mapped = comm.map_grid(&grid(&comm, dims, periods)?)?;
    rank.put(mapped.map_or(UNDEFINED, |rank| rank as c_int))
}

pub(crate) fn cartdim_get(on: RawHandle, ndims: Out<c_int>) -> Result<()> {
    ndims.put(comm(on)?.cart()?.dims().len() as c_int)
}

pub(crate) fn cart_get(
    on: RawHandle,
    dims: Slots<c_int>,
    periods: Slots<c_int>,
    coordinates: Slots<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    fits("maxdims", dims.len(), cart.dims().len())?;
    dims.write(ints(cart.dims()))?;
    periods.write(cart.periods().iter().map(|&ring| c_int::from(ring)))?;
    coordinates.write(ints(&cart.coordinates(comm.rank())))
}

pub(crate) fn cart_coords(on: RawHandle, rank: c_int, coordinates: Slots<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    let rank = member("rank", rank, comm.size())?;
    fits("maxdims", coordinates.len(), cart.dims().len())?;
    coordinates.write(ints(&cart.coordinates(rank)))
}

pub(crate) fn cart_rank(
    on: RawHandle,
    coordinates: Array<'_, c_int>,
    rank: Out<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    let coordinates = coordinates.all(cart.dims().len())?;
    rank.put(cart.rank(coordinates)? as c_int)
}

pub(crate) fn cart_shift(
    on: RawHandle,
    direction: c_int,
    displacement: c_int,
    source: Out<c_int>,
    destination: Out<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let (before, behind) = comm.cart()?.shift(comm.rank(), direction, displacement)?;
    let rank = |found: Option<u32>| found.map_or(PROC_NULL, |rank| rank as c_int);
    source.put(rank(before))?;
    destination.put(rank(behind))
}

pub(crate) fn cart_sub(
    on: RawHandle,
    remain: Array<'_, c_int>,
    made: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let len = comm.cart()?.dims().len();
    let remain = remain.all(len)?.iter().map(|&remains| remains != 0);
    give(comm.part_of_grid(&remain.collect::<Vec<_>>())?, made)
}

fn graph(comm: &Comm, index: &[c_int], edges: Array<'_, c_int>) -> Result<Graph> {
    Graph::check_nodes(index.len(), comm.size())?;
    let len = length("indx", index.last().copied().unwrap_or(0))?;
    Graph::new(index, edges.all(len)?, comm.size())
}

pub(crate) fn graph_create(
    on: RawHandle,
    index: &[c_int],
    edges: Array<'_, c_int>,
    reorder: c_int,
    made: Out<RawHandle>,
) -> Result<()> {
    let comm = old(on)?;
    give(comm.arrange_graph(graph(&comm, index, edges)?, reorder != 0)?, made)
}

pub(crate) fn graph_map(
    on: RawHandle,
    index: &[c_int],
    edges: Array<'_, c_int>,
    rank: Out<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let mapped = comm.map_graph(&graph(&comm, index, edges)?)?;
    rank.put(mapped.map_or(UNDEFINED, |rank| rank as c_int))
}

pub(crate) fn graphdims_get(on: RawHandle, nodes: Out<c_int>, edges: Out<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let graph = comm.graph()?;
    nodes.put(graph.index().len() as c_int)?;
    edges.put(graph.edges().len() as c_int)
}

pub(crate) fn graph_get(on: RawHandle, index: Slots<c_int>, edges: Slots<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let graph = comm.graph()?;
    fits("maxindex", index.len(), graph.index().len())?;
    fits("maxedges", edges.len(), graph.edges().len())?;
    index.write(ints(graph.index()))?;
    edges.write(ints(graph.edges()))
}

pub(crate) fn graph_neighbors_count(on: RawHandle, rank: c_int, count: Out<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let graph = comm.graph()?;
    let rank = member("rank", rank, comm.size())?;
    count.put(graph.neighbours(rank).len() as c_int)
}

pub(crate) fn graph_neighbors(on: RawHandle, rank: c_int, neighbours: Slots<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let found = comm.graph()?.neighbours(member("rank", rank, comm.size())?);
    neighbours.write(ints(&found[..neighbours.len().min(found.len())]))
}

/// Ranks and the weights that belong to them.
fn edges_of(
    size: u32,
    name: &str,
    (ranks, weights): (&[c_int], Array<'_, c_int>),
    weights_name: &str,
) -> Result<Vec<(u32, i32)>> {
    let weights = match weights.address() {
        UNWEIGHTED | WEIGHTS_EMPTY => None,
        _ => Some(weights.all(ranks.len())?),
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
    let mut edges = room(name, ranks.len())?;
    for one in ranks.iter().enumerate() {
        edges.push(edge(one)?);
    }
    Ok(edges)
}

pub(crate) fn dist_graph_create_adjacent(
    on: RawHandle,
    sources: &[c_int],
    source_weights: Array<'_, c_int>,
    destinations: &[c_int],
    destination_weights: Array<'_, c_int>,
    info: RawHandle,
    reorder: c_int,
    made: Out<RawHandle>,
) -> Result<()> {
    let comm = old(on)?;
    let hints = crate::info::optional(info)?;
    // Where there are no neighbours, there is nothing to weigh.
    let sides = [(sources, source_weights), (destinations, destination_weights)];
    let weighted = sides.map(|(ranks, one)| (!ranks.is_empty(), one.address() != UNWEIGHTED));
    let is_weighted = match weighted {
        [(true, sources), (true, destinations)] if sources != destinations => {
            let text = "destweights and sourceweights must both be MPI_UNWEIGHTED, or none";
            return Err(Error::argument(text));
        }
        [(true, is_weighted), _] | [_, (true, is_weighted)] => is_weighted,
        [(false, sources), (false, destinations)] => sources && destinations,
    };
    let (into, out) = ((sources, source_weights), (destinations, destination_weights));
    let neighbours = Neighbours {
        sources: edges_of(comm.size(), "sources", into, "sourceweights")?,
        destinations: edges_of(comm.size(), "destinations", out, "destweights")?,
        is_weighted,
    };
    let result = comm.arrange_neighbours(neighbours, reorder != 0)?;
    result.set_info(&hints);
    give(Some(result), made)
}

pub(crate) fn dist_graph_create(
    on: RawHandle,
    sources: &[c_int],
    degrees: &[c_int],
    destinations: Array<'_, c_int>,
    weights: Array<'_, c_int>,
    info: RawHandle,
    reorder: c_int,
    made: Out<RawHandle>,
) -> Result<()> {
    let comm = old(on)?;
    let hints = crate::info::optional(info)?;
    let mut checked = room("degrees", degrees.len())?;
    for (index, &degree) in degrees.iter().enumerate() {
        let negative = |_| Error::argument(format!("degrees[{index}] = {degree} is negative"));
        checked.push(usize::try_from(degree).map_err(negative)?);
    }
    let degrees = checked;
    let destinations = destinations.all(degrees.iter().sum())?;
    let ends = edges_of(comm.size(), "destinations", (destinations, weights), "weights")?;
    let mut edges = room("destinations", ends.len())?;
    let mut rest = &ends[..];
    for (index, (&source, &degree)) in sources.iter().zip(&degrees).enumerate() {
        let source = member(&format!("sources[{index}]"), source, comm.size())?;
        let (mine, after) = rest.split_at(degree);
        rest = after;
        let edge = |&(destination, weight): &(u32, i32)| Edge { source, destination, weight };
        edges.extend(mine.iter().map(edge));
    }
    let result = comm.arrange_edges(&edges, weights.address() != UNWEIGHTED, reorder != 0)?;
    result.set_info(&hints);
    give(Some(result), made)
}

pub(crate) fn dist_graph_neighbors_count(
    on: RawHandle,
    indegree: Out<c_int>,
    outdegree: Out<c_int>,
    weighted: Out<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let neighbours = comm.neighbours()?;
    indegree.put(neighbours.sources.len() as c_int)?;
    outdegree.put(neighbours.destinations.len() as c_int)?;
    weighted.put(c_int::from(neighbours.is_weighted))
}

pub(crate) fn dist_graph_neighbors(
    on: RawHandle,
    sources: Slots<c_int>,
    source_weights: Slots<c_int>,
    destinations: Slots<c_int>,
    destination_weights: Slots<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let neighbours = comm.neighbours()?;
    fits("maxindegree", sources.len(), neighbours.sources.len())?;
    fits("maxoutdegree", destinations.len(), neighbours.destinations.len())?;
    let sides = [
        (&neighbours.sources, sources, source_weights),
        (&neighbours.destinations, destinations, destination_weights),
    ];
    for (edges, ranks, weights) in sides {
        ranks.write(edges.iter().map(|&(end, _)| end as c_int))?;
        if neighbours.is_weighted && !matches!(weights.address(), UNWEIGHTED | WEIGHTS_EMPTY) {
            weights.write(edges.iter().map(|&(_, load)| load))?;
        }
    }
    Ok(())
}

fn ints(values: &[u32]) -> Vec<c_int> {
    values.iter().map(|&value| value as c_int).collect()
}

fn fits(name: &str, max: usize, needed: usize) -> Result<()> {
    if max < needed {
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
