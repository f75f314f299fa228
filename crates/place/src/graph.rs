//! The traffic between ranks, without direction.

/// A graph of ranks, whose edges are weighted by traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// First edge of each rank, and the end.
    starts: Vec<usize>,
    /// Other end and weight, at least 1. Every edge is listed at both of its ends. All together
    /// weigh less than 2 · [`TOTAL_MAX`].
    edges: Vec<(u32, u64)>,
}

impl Graph {
    /// Makes the graph of `size` ranks from directed traffic. Weights of the same two ranks add up.
    /// Traffic of a rank with itself, or with ranks that do not exist, is left out.
    pub fn new(size: u32, edges: impl IntoIterator<Item = (u32, u32, u64)>) -> Self {
        let is_edge =
            |&(from, to, weight): &(u32, u32, u64)| from != to && from.max(to) < size && weight > 0;
        let mut all: Vec<(u32, u32, u64)> = edges.into_iter().filter(is_edge).collect();
        let total: u128 = all.iter().map(|&(_, _, weight)| u128::from(weight)).sum();
        let excess =
            (u128::BITS - total.leading_zeros()).saturating_sub(TOTAL_MAX.trailing_zeros());
        for edge in &mut all {
            edge.2 = (edge.2 >> excess.min(u64::BITS - 1)).max(1);
        }
        let reversed: Vec<_> = all.iter().map(|&(from, to, weight)| (to, from, weight)).collect();
        all.extend(reversed);
        all.sort_unstable();
        all.dedup_by(|next, last| {
            let is_same = (next.0, next.1) == (last.0, last.1);
            last.2 += if is_same { next.2 } else { 0 };
            is_same
        });
        let mut starts = vec![0; size as usize + 1];
        all.iter().for_each(|&(from, _, _)| starts[from as usize + 1] += 1);
        for rank in 0..size as usize {
            starts[rank + 1] += starts[rank];
        }
        Self { starts, edges: all.into_iter().map(|(_, to, weight)| (to, weight)).collect() }
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// True if there is no traffic.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Returns the neighbours of a rank, with weights.
    pub fn neighbours(&self, rank: u32) -> &[(u32, u64)] {
        &self.edges[self.starts[rank as usize]..self.starts[rank as usize + 1]]
    }

    /// Returns the graph of some of its ranks, in their order.
    pub(crate) fn part(&self, members: &[u32]) -> Self {
        let mut number = vec![None; self.size() as usize];
        for (new, &old) in (0u32..).zip(members) {
            number[old as usize] = Some(new);
        }
        self.renumbered(members.len() as u32, |rank| number[rank as usize])
    }

    /// Returns the graph whose rank `number(i)` stands for rank `i`, for all ranks that have a
    /// number.
    pub(crate) fn renumbered(&self, size: u32, number: impl Fn(u32) -> Option<u32>) -> Self {
        let edges = (0..self.size()).flat_map(|from| {
            let own = self.neighbours(from).iter().filter(move |(to, _)| from < *to);
            own.filter_map(|&(to, weight)| Some((number(from)?, number(to)?, weight)))
                .collect::<Vec<_>>()
        });
        Self::new(size, edges)
    }
}

/// Maximum total weight, except for edges of weight 1; greater weights are scaled down.
const TOTAL_MAX: u64 = 1 << 38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_two_ranks_add_up() {
        let graph =
            Graph::new(3, [(0, 1, 2), (1, 0, 3), (1, 2, 1), (2, 2, 9), (0, 3, 9), (0, 2, 0)]);
        assert_eq!(graph.neighbours(0), [(1, 5)]);
        assert_eq!(graph.neighbours(1), [(0, 5), (2, 1)]);
        assert_eq!(graph.part(&[2, 1]).neighbours(0), [(1, 1)]);
        assert!(Graph::new(0, []).is_empty());
    }

    #[test]
    fn huge_weights_keep_their_proportion() {
        let graph = Graph::new(3, [(0, 1, u64::MAX), (1, 2, u64::MAX / 4), (0, 2, 1)]);
        let weight = |one: u32, other: u32| {
            graph.neighbours(one).iter().find(|(to, _)| *to == other).unwrap().1
        };
        assert!(weight(0, 1) <= TOTAL_MAX && weight(0, 2) == 1);
        assert_eq!(weight(0, 1) / weight(1, 2), 4);
    }
}
