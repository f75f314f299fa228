//! Process topologies (MPI-5.0 §8): what a communicator remembers of who is whose neighbour.
//!
//! Where the caller lets them, ranks are reordered, so that neighbours are on one node, or on one site at least
//! (`place`). All processes find the same order, from the same neighbours and the same map of the job.

use std::sync::Arc;

use crate::collective::Routine;
use crate::comm::Comm;
use crate::exchange;
use crate::{Error, ErrorClass, Result};

/// The topology of a communicator.
#[derive(Clone, Debug)]
pub enum Topology {
    /// A grid.
    Cart(Cart),
    /// A graph that every process knows.
    Graph(Graph),
    /// A graph of which every process knows its neighbours.
    Distributed(Neighbours),
}

/// A grid of processes in row-major order, each dimension open or closed to a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<u32>,
    periods: Vec<bool>,
}

/// A graph: the neighbours of node `i` are `edges[index[i - 1]..index[i]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    index: Vec<u32>,
    edges: Vec<u32>,
}

/// The neighbours of one process, with weights if there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Edges that lead here: source and weight.
    pub sources: Vec<(u32, i32)>,
    /// Edges that lead away: destination and weight.
    pub destinations: Vec<(u32, i32)>,
    /// True if the weights were given.
    pub is_weighted: bool,
}

/// An edge of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// From this rank.
    pub source: u32,
    /// To this one.
    pub destination: u32,
    /// Weight of the edge.
    pub weight: i32,
}

impl Cart {
    /// A grid for at most `size` processes.
    ///
    /// # Errors
    /// `MPI_ERR_DIMS` when a dimension is not positive, or the grid larger.
    pub fn new(dims: &[i32], periods: Vec<bool>, size: u32) -> Result<Self> {
        let mut checked = Vec::new();
        let full =
            |_| Error::new(ErrorClass::NoMem, format!("ndims = {} exceed memory", dims.len()));
        checked.try_reserve_exact(dims.len()).map_err(full)?;
        for (axis, &dim) in dims.iter().enumerate() {
            let bad = || format!("dims[{axis}] = {dim} is not positive");
            let dim = u32::try_from(dim).ok().filter(|&dim| dim > 0);
            checked.push(dim.ok_or_else(|| Error::new(ErrorClass::Dims, bad()))?);
        }
        let all = checked.iter().try_fold(1u32, |all, &dim| all.checked_mul(dim));
        if all.is_none_or(|all| all > size) {
            let few = &dims[..dims.len().min(FEW)];
            let message = format!("dims: a grid of {few:?} is larger than {size} processes");
            return Err(Error::new(ErrorClass::Dims, message));
        }
        Ok(Self { dims: checked, periods })
    }

    /// Processes in each dimension.
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// True for each periodic dimension.
    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.dims.iter().product()
    }

    /// Returns the coordinates of a rank, which is below the size.
    pub fn coordinates(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut coordinates = vec![0; self.dims.len()];
        for (place, &dim) in coordinates.iter_mut().zip(&self.dims).rev() {
            *place = rest % dim;
            rest /= dim;
        }
        coordinates
    }

    /// Returns the rank at these coordinates; periodic dimensions wrap around.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` for a coordinate outside a dimension that is no ring.
    pub fn rank(&self, coordinates: &[i32]) -> Result<u32> {
        let mut rank = 0;
        for (axis, (&dim, &is_ring)) in self.dims.iter().zip(&self.periods).enumerate() {
            let place = i64::from(coordinates[axis]);
            let inside = if is_ring { place.rem_euclid(i64::from(dim)) } else { place };
            if !(0..i64::from(dim)).contains(&inside) {
                let message = format!("coords[{axis}] = {place} is outside a dimension of {dim}");
                return Err(Error::argument(message));
            }
            rank = rank * dim + inside as u32;
        }
        Ok(rank)
    }

    /// Returns the ranks `displacement` steps before and after a rank in one dimension, if they exist.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` for a direction that is no dimension.
    pub fn shift(
        &self,
        rank: u32,
        direction: i32,
        displacement: i32,
    ) -> Result<(Option<u32>, Option<u32>)> {
        let axis = usize::try_from(direction).ok().filter(|&axis| axis < self.dims.len());
        let bad = || format!("direction = {direction} in a grid of {} dimensions", self.dims.len());
        let axis = axis.ok_or_else(|| Error::argument(bad()))?;
        let own: Vec<i32> = self.coordinates(rank).into_iter().map(|place| place as i32).collect();
        let at = |steps: i64| {
            let mut place = own.clone();
            let there = i64::from(own[axis]) + steps;
            let dim = i64::from(self.dims[axis]);
            place[axis] =
                if self.periods[axis] { there.rem_euclid(dim) } else { there.clamp(-1, dim) }
                    as i32;
            self.rank(&place).ok()
        };
        Ok((at(-i64::from(displacement)), at(i64::from(displacement))))
    }

    /// Adjacency of the processes.
    fn graph(&self) -> place::Graph {
        let steps = (0..self.size()).flat_map(|rank| {
            let next = move |axis: usize| self.shift(rank, axis as i32, 1).ok()?.1;
            (0..self.dims.len()).filter_map(next).map(move |other| (rank, other, 1))
        });
        place::Graph::new(self.size(), steps)
    }

    /// The grid of the dimensions that remain.
    fn part(&self, remain: &[bool]) -> Self {
        let kept = |axis: &usize| remain[*axis];
        Self {
            dims: (0..self.dims.len()).filter(kept).map(|axis| self.dims[axis]).collect(),
            periods: (0..self.dims.len()).filter(kept).map(|axis| self.periods[axis]).collect(),
        }
    }
}

impl Graph {
    /// A graph for at most `size` processes.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when there are more nodes, the index falls, or an edge leads out of the graph.
    pub fn new(index: &[i32], edges: &[i32], size: u32) -> Result<Self> {
        Self::check_nodes(index.len(), size)?;
        let mut last = 0;
        for (node, &end) in index.iter().enumerate() {
            if end < last {
                return Err(Error::argument(format!("indx[{node}] = {end} is less than before")));
            }
            last = end;
        }
        for (at, &edge) in edges.iter().enumerate() {
            if usize::try_from(edge).is_ok_and(|edge| edge < index.len()) {
                continue;
            }
            let message = format!("edges[{at}] = {edge} in a graph of {} nodes", index.len());
            return Err(Error::argument(message));
        }
        let unsigned = |values: &[i32]| values.iter().map(|&value| value as u32).collect();
        Ok(Self { index: unsigned(index), edges: unsigned(edges) })
    }

    /// Checks that there is a process for each node.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if there is none.
    pub fn check_nodes(nodes: usize, size: u32) -> Result<()> {
        if nodes > size as usize {
            let message = format!("nnodes = {nodes} is more than {size} processes");
            return Err(Error::argument(message));
        }
        Ok(())
    }

    /// End of each node's neighbours in the list of edges.
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    /// The neighbours of all nodes.
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// Adjacency of the processes.
    fn graph(&self) -> place::Graph {
        let size = self.index.len() as u32;
        let edges = |node: u32| self.neighbours(node).iter().map(move |&other| (node, other, 1));
        place::Graph::new(size, (0..size).flat_map(edges))
    }

    /// The neighbours of a node, which is below the number of nodes.
    pub fn neighbours(&self, node: u32) -> &[u32] {
        let node = node as usize;
        let start = if node == 0 { 0 } else { self.index[node - 1] };
        &self.edges[start as usize..self.index[node] as usize]
    }
}

impl Comm {
    /// The grid.
    ///
    /// # Errors
    /// `MPI_ERR_TOPOLOGY` when the communicator has none.
    pub fn cart(&self) -> Result<&Cart> {
        match self.topology().map(Arc::as_ref) {
            Some(Topology::Cart(cart)) => Ok(cart),
            Some(Topology::Graph(_) | Topology::Distributed(_)) | None => Err(no_topology("grid")),
        }
    }

    /// The graph that every process knows.
    ///
    /// # Errors
    /// As [`Comm::cart`].
    pub fn graph(&self) -> Result<&Graph> {
        match self.topology().map(Arc::as_ref) {
            Some(Topology::Graph(graph)) => Ok(graph),
            Some(Topology::Cart(_) | Topology::Distributed(_)) | None => Err(no_topology("graph")),
        }
    }

    /// The neighbours in a distributed graph.
    ///
    /// # Errors
    /// As [`Comm::cart`].
    pub fn neighbours(&self) -> Result<&Neighbours> {
        match self.topology().map(Arc::as_ref) {
            Some(Topology::Distributed(neighbours)) => Ok(neighbours),
            Some(Topology::Cart(_) | Topology::Graph(_)) | None => {
                Err(no_topology("distributed graph"))
            }
        }
    }

    /// A communicator of the first processes, arranged in a grid (collective); `None` for the others.
    ///
    /// # Errors
    /// As [`Comm::split`].
    pub fn arrange_grid(&self, cart: Cart, reorder: bool) -> Result<Option<Self>> {
        let order = self.order(cart.size(), reorder, || cart.graph())?;
        self.arrange_first(order, Topology::Cart(cart))
    }

    /// A communicator of the first processes, the nodes of a graph (collective); `None` for the others.
    ///
    /// # Errors
    /// As [`Comm::split`].
    pub fn arrange_graph(&self, graph: Graph, reorder: bool) -> Result<Option<Self>> {
        let order = self.order(graph.index.len() as u32, reorder, || graph.graph())?;
        self.arrange_first(order, Topology::Graph(graph))
    }

    /// The rank that this process would have in a reordered grid (MPI-5.0 §8.5.8), if it is in it.
    ///
    /// # Errors
    /// When not initialised.
    pub fn map_grid(&self, cart: &Cart) -> Result<Option<u32>> {
        let order = self.order(cart.size(), true, || cart.graph())?;
        Ok(order.get(self.rank() as usize).copied())
    }

    /// [`Comm::map_grid`] for a graph.
    ///
    /// # Errors
    /// When not initialised.
    pub fn map_graph(&self, graph: &Graph) -> Result<Option<u32>> {
        let order = self.order(graph.index.len() as u32, true, || graph.graph())?;
        Ok(order.get(self.rank() as usize).copied())
    }

    fn arrange_first(&self, order: Vec<u32>, topology: Topology) -> Result<Option<Self>> {
        let rank = order.get(self.rank() as usize);
        let made = self.split(rank.map(|_| 0), rank.map_or(0, |&rank| rank as i32))?;
        Ok(made.map(|comm| comm.with_topology(topology)))
    }

    /// The new rank of each of the first `size` processes: their own, or such that neighbours in the graph are
    /// near each other.
    fn order(
        &self,
        size: u32,
        reorder: bool,
        graph: impl FnOnce() -> place::Graph,
    ) -> Result<Vec<u32>> {
        if !reorder || self.site_map().nodes() == 1 {
            return Ok((0..size).collect());
        }
        let home = |rank| {
            let plan::Location { node, site } = self.location(rank);
            (node, site)
        };
        let homes: Vec<(u32, u32)> = (0..size).map(home).collect();
        Ok(order_at(&homes, &graph()))
    }

    /// The lower-dimensional grid this process lies in (collective).
    ///
    /// # Errors
    /// As [`Comm::cart`] and [`Comm::split`].
    pub fn part_of_grid(&self, remain: &[bool]) -> Result<Option<Self>> {
        let cart = self.cart()?;
        let dropped: Vec<bool> = remain.iter().map(|remains| !remains).collect();
        let coordinates = cart.coordinates(self.rank());
        let others = coordinates.iter().zip(&cart.dims).zip(&dropped);
        let color = others.fold(
            0,
            |color, ((&place, &dim), &is_dropped)| {
                if is_dropped { color * dim + place } else { color }
            },
        );
        let part = Topology::Cart(cart.part(remain));
        Ok(self.split(Some(color as i32), 0)?.map(|comm| comm.with_topology(part)))
    }

    /// A communicator of the same processes, where the process of each rank has the neighbours that this one
    /// of the same rank tells (collective); what processes tell agrees.
    ///
    /// # Errors
    /// As [`Comm::split`].
    pub fn arrange_neighbours(&self, neighbours: Neighbours, reorder: bool) -> Result<Self> {
        if !reorder || self.site_map().nodes() == 1 {
            return self.arrange_told(neighbours);
        }
        let mine = neighbours.emit();
        let lengths = self.lengths(mine.len())?;
        // More stay where they are, by the sum that all know.
        if lengths.iter().copied().fold(0, u64::saturating_add) > TOLD_MAX {
            return self.arrange_told(neighbours);
        }
        let received = exchange::allgather_listed(self, Routine::DistGraphCreate, &mine, &lengths)?;
        let parse = |bytes: &Vec<u8>| Neighbours::parse(bytes, self.size());
        let all: Option<Vec<Neighbours>> = received.iter().map(parse).collect();
        let all =
            all.ok_or_else(|| Error::new(ErrorClass::Intern, "neighbours arrived malformed"))?;
        let edges = (0u32..).zip(&all).flat_map(|(source, own)| {
            own.destinations.iter().map(move |&(to, weight)| (source, to, weight.max(0) as u64))
        });
        let order = self.order(self.size(), true, || place::Graph::new(self.size(), edges))?;
        let rank = order[self.rank() as usize];
        let mine = all.into_iter().nth(rank as usize).unwrap_or_default();
        self.arrange_as(rank, mine)
    }

    /// [`Comm::arrange_neighbours`] for edges that any process may give (collective).
    ///
    /// # Errors
    /// As [`Comm::split`].
    pub fn arrange_edges(&self, edges: &[Edge], is_weighted: bool, reorder: bool) -> Result<Self> {
        let mut mine = Vec::with_capacity(12 * edges.len());
        for edge in edges {
            mine.extend(edge.source.to_le_bytes());
            mine.extend(edge.destination.to_le_bytes());
            mine.extend(edge.weight.to_le_bytes());
        }
        let lengths = self.lengths(mine.len())?;
        let received = exchange::allgather_listed(self, Routine::DistGraphCreate, &mine, &lengths)?;
        let all: Vec<Edge> =
            received.iter().flat_map(|one| one.as_chunks::<12>().0).map(Edge::parse).collect();
        let known = all.iter().filter(|edge| edge.source.max(edge.destination) < self.size());
        let received = known.map(|edge| (edge.source, edge.destination, edge.weight.max(0) as u64));
        let order =
            self.order(self.size(), reorder, || place::Graph::new(self.size(), received))?;
        let rank = order[self.rank() as usize];
        let mut neighbours = Neighbours { is_weighted, ..Neighbours::default() };
        for Edge { source, destination, weight } in all {
            if destination == rank {
                neighbours.sources.push((source, weight));
            }
            if source == rank {
                neighbours.destinations.push((destination, weight));
            }
        }
        match reorder {
            true => self.arrange_as(rank, neighbours),
            false => self.arrange_told(neighbours),
        }
    }

    /// Gathers the number of bytes that each process contributes (collective).
    fn lengths(&self, mine: usize) -> Result<Vec<u64>> {
        let mine = (mine as u64).to_le_bytes();
        let all = exchange::allgather(self, Routine::DistGraphCreate, mine)?;
        Ok(all.into_iter().map(u64::from_le_bytes).collect())
    }

    /// A communicator of the same processes, of which this one has `rank` and these neighbours (collective).
    fn arrange_as(&self, rank: u32, neighbours: Neighbours) -> Result<Self> {
        let made = self.split(Some(0), rank as i32)?;
        let gone = || Error::new(ErrorClass::Intern, "a process is in no communicator of all");
        Ok(made.ok_or_else(gone)?.with_topology(Topology::Distributed(neighbours)))
    }

    /// A communicator of the same processes in their order, with these neighbours (collective).
    fn arrange_told(&self, neighbours: Neighbours) -> Result<Self> {
        Ok(self.duplicate_plain()?.with_topology(Topology::Distributed(neighbours)))
    }
}

impl Neighbours {
    fn emit(&self) -> Vec<u8> {
        let mut bytes = (self.sources.len() as u32).to_le_bytes().to_vec();
        for (rank, weight) in self.sources.iter().chain(&self.destinations) {
            bytes.extend(rank.to_le_bytes());
            bytes.extend(weight.to_le_bytes());
        }
        bytes.push(u8::from(self.is_weighted));
        bytes
    }

    /// Decodes the contribution of a process of a communicator of `size`.
    fn parse(bytes: &[u8], size: u32) -> Option<Self> {
        let (&is_weighted, rest) = bytes.split_last()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (chunks, []) = rest.as_chunks::<8>() else { return None };
        let edges = chunks.iter().map(|&[a, b, c, d, e, f, g, h]| {
            (u32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]))
        });
        let all: Vec<(u32, i32)> = edges.collect();
        let (sources, destinations) = all.split_at_checked(u32::from_le_bytes(*count) as usize)?;
        all.iter().all(|(rank, _)| *rank < size).then(|| Self {
            sources: sources.to_vec(),
            destinations: destinations.to_vec(),
            is_weighted: is_weighted != 0,
        })
    }
}

impl Edge {
    fn parse(&[a, b, c, d, e, f, g, h, i, j, k, l]: &[u8; 12]) -> Self {
        Self {
            source: u32::from_le_bytes([a, b, c, d]),
            destination: u32::from_le_bytes([e, f, g, h]),
            weight: i32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// The new ranks of processes on these nodes and sites, so that neighbours in the graph are near each other.
/// The processes of a node take the ranks that go there in their order.
fn order_at(homes: &[(u32, u32)], graph: &place::Graph) -> Vec<u32> {
    let mut nodes: Vec<u32> = Vec::new();
    let mut sites: Vec<u32> = Vec::new();
    let mut hosts: Vec<place::Host> = Vec::new();
    let mut before = Vec::with_capacity(homes.len());
    for &(node, site) in homes {
        let known = nodes.iter().position(|one| *one == node).unwrap_or_else(|| {
            let site = sites.iter().position(|one| *one == site).unwrap_or_else(|| {
                sites.push(site);
                sites.len() - 1
            });
            nodes.push(node);
            hosts.push(place::Host { site: site as u32, slots: 0 });
            nodes.len() - 1
        });
        hosts[known].slots += 1;
        before.push(known as u32);
    }
    let after = place::place(graph, &hosts, &before);
    let mut taken: Vec<Vec<u32>> = vec![Vec::new(); hosts.len()];
    for (rank, &host) in (0..homes.len() as u32).zip(&after).rev() {
        taken[host as usize].push(rank);
    }
    // Nobody goes where there is no room, so there are as many ranks for a node as it has processes.
    before.iter().filter_map(|&host| taken[host as usize].pop()).collect()
}

/// Fills in the dimensions that are zero, so that the grid has `nodes` processes. The new dimensions are as close
/// to each other as possible, the larger first (MPI-5.0 §8.5.2).
///
/// # Errors
/// `MPI_ERR_DIMS` for a negative dimension, or where those given do not divide the number.
pub fn complete_dims(nodes: i32, dims: &mut [i32]) -> Result<()> {
    let mut rest = u32::try_from(nodes)
        .ok()
        .filter(|&nodes| nodes > 0)
        .ok_or_else(|| Error::argument(format!("nnodes = {nodes} is not positive")))?;
    for (axis, &dim) in dims.iter().enumerate() {
        match u32::try_from(dim) {
            Ok(0) => {}
            Ok(given) if rest.is_multiple_of(given) => rest /= given,
            _ => {
                let message = format!("dims[{axis}] = {dim} does not divide nnodes = {nodes}");
                return Err(Error::new(ErrorClass::Dims, message));
            }
        }
    }
    let open = dims.iter().filter(|&&dim| dim == 0).count();
    if open == 0 && rest != 1 {
        let few = &dims[..dims.len().min(FEW)];
        let message = format!("dims: {few:?} is no grid of nnodes = {nodes}");
        return Err(Error::new(ErrorClass::Dims, message));
    }
    // A number of 32 bits has fewer factors than that, apart from ones.
    let found = closest_factors(rest, open.min(32)).into_iter().chain(std::iter::repeat(1));
    for (dim, factor) in dims.iter_mut().filter(|dim| **dim == 0).zip(found) {
        *dim = factor as i32;
    }
    Ok(())
}

/// `count` factors of `number`, falling, whose first and last differ least; of several such, those
/// with the least sum.
fn closest_factors(number: u32, count: usize) -> Vec<u32> {
    let mut divisors: Vec<u32> = (1..)
        .take_while(|low: &u32| low.checked_mul(*low).is_some_and(|square| square <= number))
        .filter(|low| number.is_multiple_of(*low))
        .flat_map(|low| [low, number / low])
        .collect();
    divisors.sort_unstable();
    divisors.dedup();
    let mut trivial = vec![1; count];
    if let Some(first) = trivial.first_mut() {
        *first = number;
    }
    let mut search = Search { divisors, best: trivial, budget: SEARCH_MAX };
    if count > 1 {
        search.extend(number, count, &mut Vec::with_capacity(count));
    }
    search.best
}

/// A search through the factorisations of a number.
struct Search {
    divisors: Vec<u32>,
    best: Vec<u32>,
    /// Number of factors still to try.
    budget: u32,
}

impl Search {
    fn extend(&mut self, rest: u32, count: usize, chosen: &mut Vec<u32>) {
        if count == 1 {
            chosen.push(rest);
            if self.is_better(chosen) {
                self.best.clone_from(chosen);
            }
            chosen.pop();
            return;
        }
        let most = chosen.last().copied().unwrap_or(u32::MAX).min(rest);
        // The first is tried from the least that can be the greatest, the others from the greatest.
        let mut candidates: Vec<u32> =
            self.divisors.iter().copied().filter(|&factor| factor <= most).collect();
        if !chosen.is_empty() {
            candidates.reverse();
        }
        for factor in candidates {
            let greatest = chosen.first().copied().unwrap_or(factor);
            let spread = self.best[0] - self.best[self.best.len() - 1];
            let is_close = greatest - factor <= spread;
            // The factors to come are no greater than this one, and must make up the rest.
            let suffices = u64::from(factor)
                .checked_pow(count as u32)
                .is_none_or(|all| all >= u64::from(rest));
            if !rest.is_multiple_of(factor) || !is_close || !suffices {
                continue;
            }
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            chosen.push(factor);
            self.extend(rest / factor, count - 1, chosen);
            chosen.pop();
        }
    }

    fn is_better(&self, chosen: &[u32]) -> bool {
        if !chosen.is_sorted_by(|a, b| a >= b) {
            return false;
        }
        let rank = |factors: &[u32]| {
            let spread = factors[0] - factors[factors.len() - 1];
            (spread, factors.iter().map(|&factor| u64::from(factor)).sum::<u64>())
        };
        rank(chosen) < rank(&self.best)
    }
}

fn no_topology(kind: &str) -> Error {
    Error::new(ErrorClass::Topology, format!("comm: the communicator is no {kind}"))
}

/// Number of dimensions that a message lists.
const FEW: usize = 8;

/// Maximum number of factors to try for the dimensions of a grid.
const SEARCH_MAX: u32 = 1 << 20;

/// Maximum bytes of adjacency that every process gathers to reorder ranks.
const TOLD_MAX: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_lead_back_to_the_rank() {
        let cart = Cart::new(&[3, 4, 2], vec![true, false, true], 24).unwrap();
        for rank in 0..24 {
            let place: Vec<i32> = cart.coordinates(rank).iter().map(|&one| one as i32).collect();
            assert_eq!(cart.rank(&place).unwrap(), rank);
        }
        assert_eq!(cart.coordinates(13), [1, 2, 1]);
        assert_eq!(cart.rank(&[-2, 2, 3]).unwrap(), 13);
        assert_eq!(cart.rank(&[0, 4, 0]).unwrap_err().class, ErrorClass::Arg);
    }

    #[test]
    fn shifts_leave_the_grid_where_it_is_open() {
        let cart = Cart::new(&[3, 4], vec![true, false], 12).unwrap();
        assert_eq!(cart.shift(0, 0, 1).unwrap(), (Some(8), Some(4)));
        assert_eq!(cart.shift(0, 1, 1).unwrap(), (None, Some(1)));
        assert_eq!(cart.shift(3, 1, i32::MIN).unwrap(), (None, None));
        assert_eq!(cart.shift(3, 0, i32::MIN).unwrap().0, cart.shift(3, 0, 1).unwrap().0);
        assert!(cart.shift(0, 2, 1).is_err());
    }

    #[test]
    fn grids_and_graphs_are_checked() {
        assert_eq!(Cart::new(&[2, 0], vec![false; 2], 9).unwrap_err().class, ErrorClass::Dims);
        assert_eq!(
            Cart::new(&[1 << 20, 1 << 20], vec![false; 2], 9).unwrap_err().class,
            ErrorClass::Dims
        );
        assert_eq!(Cart::new(&[], vec![], 9).unwrap().size(), 1);
        assert!(Graph::new(&[2, 1], &[1, 0], 2).is_err());
        assert!(Graph::new(&[1, 2], &[1, 2], 2).is_err());
        let graph = Graph::new(&[2, 3, 4], &[1, 2, 0, 0], 3).unwrap();
        assert_eq!((graph.neighbours(0), graph.neighbours(2)), (&[1, 2][..], &[0][..]));
    }

    #[test]
    fn neighbours_are_near_each_other_where_ranks_may_be_reordered() {
        // Processes dealt in turns over two nodes on each of two sites.
        let homes: Vec<(u32, u32)> = (0..16).map(|rank| (rank % 4, rank % 2)).collect();
        let crossing = |order: &[u32], graph: &place::Graph| {
            let mut site = [0; 16];
            order.iter().zip(&homes).for_each(|(&rank, home)| site[rank as usize] = home.1);
            let edges =
                (0..16).flat_map(|from| graph.neighbours(from).iter().map(move |to| (from, to.0)));
            edges.filter(|(from, to)| site[*from as usize] != site[*to as usize]).count() / 2
        };
        let ring = Cart::new(&[16], vec![true], 16).unwrap().graph();
        let grid = Cart::new(&[4, 4], vec![false; 2], 16).unwrap().graph();
        for (graph, dealt, least) in [(ring, 16, 2), (grid, 12, 4)] {
            let same: Vec<u32> = (0..16).collect();
            assert_eq!(crossing(&same, &graph), dealt);
            let order = order_at(&homes, &graph);
            assert_eq!(crossing(&order, &graph), least);
            let mut all = order.clone();
            all.sort_unstable();
            assert_eq!(all, same, "each rank is given once");
        }
    }

    #[test]
    fn neighbours_are_told_as_they_are() {
        let received = Neighbours {
            sources: vec![(3, 7), (0, 0)],
            destinations: vec![(1, i32::MAX)],
            is_weighted: true,
        };
        assert_eq!(Neighbours::parse(&received.emit(), 4), Some(received.clone()));
        assert_eq!(Neighbours::parse(&received.emit(), 3), None);
        let none = Neighbours::default();
        assert_eq!(Neighbours::parse(&none.emit(), 1), Some(none));
        let bytes = received.emit();
        assert!(
            (0..bytes.len())
                .all(|end| Neighbours::parse(&bytes[..end], 4) != Some(received.clone()))
        );
    }

    #[test]
    fn dimensions_are_as_close_as_they_can_be() {
        let dims = |nodes, mut dims: Vec<i32>| complete_dims(nodes, &mut dims).map(|()| dims);
        assert_eq!(dims(6, vec![0, 0]).unwrap(), [3, 2]);
        assert_eq!(dims(7, vec![0, 0]).unwrap(), [7, 1]);
        assert_eq!(dims(6, vec![0, 3, 0]).unwrap(), [2, 3, 1]);
        assert_eq!(dims(48, vec![0; 3]).unwrap(), [4, 4, 3]);
        assert_eq!(dims(1, vec![0; 4]).unwrap(), [1, 1, 1, 1]);
        assert_eq!(dims(2_147_483_647, vec![0; 2]).unwrap(), [2_147_483_647, 1]);
        assert_eq!(dims(735_134_400, vec![0; 9]).unwrap().iter().product::<i32>(), 735_134_400);
        assert_eq!(dims(6, vec![4, 0]).unwrap_err().class, ErrorClass::Dims);
        assert_eq!(dims(6, vec![2, 2]).unwrap_err().class, ErrorClass::Dims);
        assert_eq!(dims(0, vec![0]).unwrap_err().class, ErrorClass::Arg);
        let many = dims(12, vec![0; 1 << 20]).unwrap();
        assert!(many.starts_with(&[3, 2, 2, 1]) && many.iter().product::<i32>() == 12);
    }

    #[test]
    fn no_factorisation_is_closer() {
        for number in 1..=200u32 {
            for count in 1..=3 {
                let found = closest_factors(number, count);
                let spread = found[0] - found[count - 1];
                assert_eq!(found.iter().product::<u32>(), number);
                assert!(found.is_sorted_by(|a, b| a >= b));
                let least = all_factors(number, count)
                    .into_iter()
                    .map(|all| all.iter().max().unwrap() - all.iter().min().unwrap());
                assert_eq!(Some(spread), least.min(), "{number} in {count}");
            }
        }
    }

    fn all_factors(number: u32, count: usize) -> Vec<Vec<u32>> {
        if count == 1 {
            return vec![vec![number]];
        }
        let firsts = (1..=number).filter(|first| number.is_multiple_of(*first));
        firsts
            .flat_map(|first| {
                let rest = all_factors(number / first, count - 1);
                rest.into_iter().map(move |all| [vec![first], all].concat())
            })
            .collect()
    }
}
