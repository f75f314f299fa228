//! Collective communication between neighbours of a topology (MPI-5.0 §8.6).

use std::sync::Arc;

use plan::{Buffer, Schedule, Span};

use crate::collective::Lengths;
use crate::comm::Comm;
use crate::topology::{Cart, Topology};
use crate::{Error, ErrorClass, Result};

/// Neighbours with which a process exchanges blocks. A block of `MPI_PROC_NULL` is neither sent nor received, but
/// has its place in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbourhood {
    sources: Vec<Option<u32>>,
    destinations: Vec<Option<u32>>,
    /// True if blocks `2 d` and `2 d + 1` belong to the neighbours before and after in dimension `d`. A block sent
    /// in one direction is received from the other, even if both neighbours are the same process.
    is_grid: bool,
}

impl Comm {
    /// This process's neighbours, in the order that the standard gives them.
    ///
    /// # Errors
    /// `MPI_ERR_TOPOLOGY` when the communicator has none.
    pub fn neighbourhood(&self) -> Result<Neighbourhood> {
        match self.topology().map(Arc::as_ref) {
            Some(Topology::Cart(cart)) => Ok(Neighbourhood::of_grid(cart, self.rank())),
            Some(Topology::Graph(graph)) => {
                let all: Vec<_> = graph.neighbours(self.rank()).iter().copied().map(Some).collect();
                Ok(Neighbourhood { sources: all.clone(), destinations: all, is_grid: false })
            }
            Some(Topology::Distributed(neighbours)) => {
                let ends = |edges: &[(u32, i32)]| edges.iter().map(|edge| Some(edge.0)).collect();
                Ok(Neighbourhood {
                    sources: ends(&neighbours.sources),
                    destinations: ends(&neighbours.destinations),
                    is_grid: false,
                })
            }
            None => {
                let message = "the communicator has no topology, hence no neighbours";
                Err(Error::new(ErrorClass::Topology, message))
            }
        }
    }
}

impl Neighbourhood {
    fn of_grid(cart: &Cart, rank: u32) -> Self {
        let both = |axis| cart.shift(rank, axis as i32, 1).unwrap_or((None, None));
        let all: Vec<_> = (0..cart.dims().len())
            .map(both)
            .flat_map(|(before, behind)| [before, behind])
            .collect();
        Self { sources: all.clone(), destinations: all, is_grid: true }
    }

    /// Number of received blocks.
    pub fn indegree(&self) -> u32 {
        self.sources.len() as u32
    }

    /// Number of sent blocks, if each neighbour gets its own.
    pub fn outdegree(&self) -> u32 {
        self.destinations.len() as u32
    }

    /// Returns the lengths exchanged with each rank, from the lengths of the blocks.
    pub fn lengths(&self, size: u32, sends: &[u64], receives: &[u64]) -> Lengths {
        let of = |ends: &[Option<u32>], lengths: &[u64]| -> Vec<(u32, u64)> {
            ends.iter().zip(lengths).filter_map(|(end, len)| Some(((*end)?, *len))).collect()
        };
        let none = Lengths::none(size);
        none.sending(of(&self.destinations, sends)).expecting(of(&self.sources, receives))
    }

    /// All of the input to every destination, a block of the output from every source. Units are bytes.
    pub fn allgather(&self, len: u64, receives: &[u64]) -> Schedule {
        let all = Span { buffer: Buffer::Input, start: 0, len };
        let sends = self.destinations.iter().filter_map(|&to| Some((to?, all)));
        plan::exchange(self.receives(receives), sends)
    }

    /// A block of the input to every destination, one of the output from every source. Units are bytes.
    pub fn alltoall(&self, sends: &[u64], receives: &[u64]) -> Schedule {
        let blocks = blocks(Buffer::Input, sends);
        let sends =
            self.destinations.iter().zip(blocks).filter_map(|(&to, span)| Some((to?, span)));
        plan::exchange(self.receives(receives), sends)
    }

    /// In the order of the messages of each source: on a grid, what comes from behind was sent first.
    fn receives(&self, sizes: &[u64]) -> impl Iterator<Item = (u32, Span)> {
        let blocks: Vec<Span> = blocks(Buffer::Output, sizes).collect();
        (0..blocks.len()).filter_map(move |place| {
            let place = if self.is_grid { place ^ 1 } else { place };
            Some((self.sources[place]?, blocks[place]))
        })
    }
}

fn blocks(buffer: Buffer, sizes: &[u64]) -> impl Iterator<Item = Span> {
    sizes.iter().scan(0, move |start, &len| {
        let span = Span { buffer, start: *start, len };
        *start += len;
        Some(span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Step;

    /// In a ring of two, the neighbour on both sides is the same: what it sends forward comes from before.
    #[test]
    fn blocks_sent_forward_arrive_from_before() {
        let cart = Cart::new(&[2], vec![true], 2).unwrap();
        let neighbours = Neighbourhood::of_grid(&cart, 0);
        let schedule = neighbours.alltoall(&[1, 2], &[2, 1]);
        let lens = |want: fn(&Step) -> Option<Span>| -> Vec<(u64, u64)> {
            schedule.steps.iter().filter_map(want).map(|span| (span.start, span.len)).collect()
        };
        let sent = lens(|step| match step {
            Step::Send { to: 1, span } => Some(*span),
            _ => None,
        });
        let received = lens(|step| match step {
            Step::Receive { from: 1, span } => Some(*span),
            _ => None,
        });
        assert_eq!(sent, [(0, 1), (1, 2)]);
        assert_eq!(received, [(2, 1), (0, 2)]);
    }

    #[test]
    fn beyond_an_edge_is_nobody() {
        let cart = Cart::new(&[3, 1], vec![false, false], 3).unwrap();
        let neighbours = Neighbourhood::of_grid(&cart, 0);
        assert_eq!(neighbours.sources, [None, Some(1), None, None]);
        let schedule = neighbours.allgather(4, &[4; 4]);
        let span = Span { buffer: Buffer::Output, start: 4, len: 4 };
        assert_eq!(schedule.steps[0], Step::Receive { from: 1, span });
        assert_eq!(schedule.steps.len(), 3);
    }
}
