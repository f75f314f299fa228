//! Predicted times of calls with more ranks than cores, on one node or on several of one machine.

use super::{Model, Order, RankCounts, YIELD_NS, log2_ceil};
use crate::catalogue::{
    Allgather, Allreduce, Alltoall, Barrier, Broadcast, Catalogue, Gather, Prefix, Reduce,
    ReduceScatter,
};
use crate::choice::{Algorithm, Call, Operation};
use crate::costs::OVERSUBSCRIBED_CORES;

impl Model {
    /// Returns [`Self::predicted_ns`] for ranks that share cores. A waiting rank gets its core back
    /// after the others have run, so waits count, and the work of all ranks together.
    pub(super) fn oversubscribed_ns(&self, call: &Call, algorithm: Algorithm) -> Option<u64> {
        let ranks = self.shape.ranks;
        let (others, rounds) = (ranks - 1, log2_ceil(ranks));
        // Waits of the last rank, all messages, data that one rank moves and combines alone, and
        // data of all in parallel: in multiples of the call's bytes.
        let (waits, messages, alone, together) = match call.operation {
            Operation::Barrier => match Barrier::named(algorithm)? {
                Barrier::Linear => (2, 2 * others, 0, 0),
                Barrier::Dissemination
                | Barrier::Tournament
                | Barrier::Leaders
                | Barrier::Hierarchical
                | Barrier::Multisite
                | Barrier::Shmem => return None,
            },
            Operation::Broadcast => match Broadcast::named(algorithm)? {
                Broadcast::Linear => (1, others, 0, others),
                Broadcast::Binomial
                | Broadcast::Chain
                | Broadcast::TwoTree
                | Broadcast::VanDeGeijn
                | Broadcast::Leaders
                | Broadcast::Hierarchical
                | Broadcast::Multisite
                | Broadcast::Shmem => return None,
            },
            Operation::Gather | Operation::Scatter => match Gather::named(algorithm)? {
                Gather::Linear => (1, others, 0, others),
                Gather::Binomial | Gather::Leaders | Gather::Aggregated | Gather::Shmem => {
                    return None;
                }
            },
            Operation::Allgather => match Allgather::named(algorithm)? {
                Allgather::Linear => (2, 2 * others, others, ranks * others),
                Allgather::Pairwise => (1, ranks * others, 0, ranks * others),
                Allgather::Bruck
                | Allgather::Ring
                | Allgather::Tournament
                | Allgather::Leaders
                | Allgather::Hierarchical
                | Allgather::Aggregated
                | Allgather::Multisite
                | Allgather::Shmem => return None,
            },
            Operation::Alltoall => match Alltoall::named(algorithm)? {
                Alltoall::Pairwise => (1, ranks * others, 0, ranks * others),
                Alltoall::Bruck | Alltoall::Leaders | Alltoall::Aggregated | Alltoall::Shmem => {
                    return None;
                }
            },
            Operation::Reduce => match Reduce::named(algorithm)? {
                Reduce::Linear => (1, others, 2 * ranks, 0),
                Reduce::Pairwise => (2, (ranks + 1) * others, 0, 3 * ranks),
                Reduce::Binomial
                | Reduce::Chain
                | Reduce::TwoTree
                | Reduce::Ring
                | Reduce::Leaders
                | Reduce::Hierarchical
                | Reduce::Multisite
                | Reduce::Shmem => return None,
            },
            Operation::Allreduce => match Allreduce::named(algorithm)? {
                Allreduce::Linear => (2, 2 * others, 2 * ranks, others),
                Allreduce::Pairwise => (2, 2 * ranks * others, 0, 2 * others + ranks),
                Allreduce::Doubling
                | Allreduce::Butterfly
                | Allreduce::Halving
                | Allreduce::Ring
                | Allreduce::Tournament
                | Allreduce::Leaders
                | Allreduce::Hierarchical
                | Allreduce::Multisite
                | Allreduce::Shmem => return None,
            },
            Operation::ReduceScatter => match ReduceScatter::named(algorithm)? {
                ReduceScatter::Pairwise => (1, ranks * others, 0, 2 * ranks),
                ReduceScatter::Binomial
                | ReduceScatter::Ring
                | ReduceScatter::Leaders
                | ReduceScatter::Multisite
                | ReduceScatter::Shmem => return None,
            },
            Operation::Scan | Operation::Exscan => match Prefix::named(algorithm)? {
                Prefix::Doubling => (rounds, ranks * rounds, 0, 3 * ranks * rounds),
                Prefix::Chain if let Some(page_bytes) = self.page_bytes => {
                    return Some(self.chain_in_shmem_ns(call.bytes, page_bytes));
                }
                Prefix::Chain if self.shape.is_in_order => {
                    (2, others * self.chain_segments(call.bytes), 0, 3 * others)
                }
                Prefix::Chain | Prefix::Leaders | Prefix::Multisite | Prefix::Shmem => return None,
            },
        };
        let copies = if call.bytes > EAGER_MOST { FETCHED_COPIES } else { OVERSUBSCRIBED_COPIES };
        let times_bytes = |times: u64| call.bytes.saturating_mul(times * copies);
        let stream_ns = |times: u64| self.near.stream_ns(times_bytes(times));
        let parallel_ns = messages * self.near.work_ns + stream_ns(together);
        Some(waits * ranks * YIELD_NS + stream_ns(alone) + parallel_ns / OVERSUBSCRIBED_CORES)
    }

    /// Returns the minimum time of a call on several nodes that share their cores. It counts the
    /// rounds, in each of which all ranks run, and the work of all messages between nodes. It is 0
    /// for operations that go by the leaders of nodes anyway.
    pub(super) fn shared_ns(&self, call: &Call, algorithm: Algorithm) -> u64 {
        let (rounds, messages) = self.shared(call, algorithm).unwrap_or((0, 0));
        let work_ns = 2 * messages * self.far.work_ns;
        rounds * self.shape.ranks * YIELD_NS + work_ns / OVERSUBSCRIBED_CORES
    }

    /// Returns the number of consecutive waits, and of messages between nodes.
    fn shared(&self, call: &Call, algorithm: Algorithm) -> Option<(u64, u64)> {
        let RankCounts { ranks, nodes, node_ranks, .. } = self.shape;
        let foreign = ranks - node_ranks;
        let doublings = |order: &Order| {
            let rounds = log2_ceil(ranks);
            let leave: u64 =
                order.shift[..rounds as usize].iter().map(|&leave| u64::from(leave)).sum();
            (rounds, nodes * leave)
        };
        // The ranks of a node wait for its leader, and it waits for another's.
        let between_leaders = |rounds: u64| (2 + rounds, nodes * (nodes - 1));
        Some(match call.operation {
            Operation::Allgather => match Allgather::named(algorithm)? {
                Allgather::Bruck => doublings(&self.by_rank),
                Allgather::Ring => (ranks - 1, nodes * (ranks - 1)),
                Allgather::Tournament => (2 * log2_ceil(ranks), 2 * (nodes - 1)),
                Allgather::Leaders => between_leaders(1),
                Allgather::Hierarchical => between_leaders(nodes - 1),
                Allgather::Multisite => (2, ranks * (nodes - 1)),
                Allgather::Linear
                | Allgather::Pairwise
                | Allgather::Aggregated
                | Allgather::Shmem => {
                    return None;
                }
            },
            Operation::Alltoall => match Alltoall::named(algorithm)? {
                Alltoall::Pairwise => (1, ranks * foreign),
                Alltoall::Bruck => doublings(&self.by_place),
                Alltoall::Leaders => between_leaders(1),
                Alltoall::Aggregated | Alltoall::Shmem => return None,
            },
            Operation::ReduceScatter => match ReduceScatter::named(algorithm)? {
                ReduceScatter::Binomial => (log2_ceil(ranks) + 1, nodes - 1 + foreign),
                ReduceScatter::Ring => (ranks - 1, nodes * (ranks - 1)),
                ReduceScatter::Leaders => (3, ranks.min(call.units.max(1)) * (nodes - 1)),
                ReduceScatter::Pairwise | ReduceScatter::Multisite | ReduceScatter::Shmem => {
                    return None;
                }
            },
            Operation::Barrier
            | Operation::Broadcast
            | Operation::Gather
            | Operation::Scatter
            | Operation::Reduce
            | Operation::Allreduce
            | Operation::Scan
            | Operation::Exscan => return None,
        })
    }
}

/// Effective number of copies into and out of a message: the cache that all ranks of a core share
/// holds another rank's data by then.
const OVERSUBSCRIBED_COPIES: u64 = 3;

/// Limit in bytes above which the kernel reads from a sleeping rank page by page, and the effective
/// number of copies for that.
const EAGER_MOST: u64 = 16 << 10;
const FETCHED_COPIES: u64 = 6;
