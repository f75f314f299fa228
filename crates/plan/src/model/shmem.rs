//! Predicted times of calls by the shared segment.

use super::{LINE_NS, Model, RankCounts, YIELD_NS};
use crate::algorithms::shmem::{dealt_rounds, link_bytes};
use crate::choice::{Algorithm, Call, Operation};
use crate::costs::OVERSUBSCRIBED_CORES;

impl Model {
    /// Returns the time of a call by a shared segment of such pages, and whether ranks should share
    /// its work and wait once more for that. None if a contribution does not fit.
    pub(crate) fn shmem_ns(&self, call: &Call, page_bytes: u64) -> Option<(u64, bool)> {
        let can_share = matches!(call.operation, Operation::Reduce | Operation::Allreduce);
        let variants = [false, true].into_iter().take(1 + usize::from(can_share));
        variants
            .filter_map(|is_shared| {
                Some((self.shmem_path_ns(call, page_bytes, is_shared)?, is_shared))
            })
            .min()
    }

    /// True if a call can use the shared segments within each of several nodes, or along a chain on
    /// one.
    pub(super) fn fits_shmem(&self, call: &Call, algorithm: Algorithm, page_bytes: u64) -> bool {
        let is_prefix = matches!(call.operation, Operation::Scan | Operation::Exscan);
        if self.shape.nodes == 1 {
            let link_bytes = link_bytes(page_bytes);
            let is_cut = call.bytes <= call.units.saturating_mul(link_bytes);
            let fits = call.bytes.div_ceil(link_bytes) <= SHMEM_ROUNDS_MAX && is_cut;
            return is_prefix && algorithm == Algorithm::Chain && self.shape.ranks > 1 && fits;
        }
        let RankCounts { ranks, nodes, node_ranks, node_runs, has_leaders, .. } = self.shape;
        let goes_by_leaders = match algorithm {
            Algorithm::Hierarchical => true,
            Algorithm::Leaders | Algorithm::Multisite | Algorithm::Aggregated => has_leaders,
            Algorithm::Linear
            | Algorithm::Binomial
            | Algorithm::Tournament
            | Algorithm::Dissemination
            | Algorithm::Chain
            | Algorithm::TwoTree
            | Algorithm::VanDeGeijn
            | Algorithm::Ring
            | Algorithm::Bruck
            | Algorithm::Pairwise
            | Algorithm::Butterfly
            | Algorithm::Doubling
            | Algorithm::Halving
            | Algorithm::Shmem => false,
        };
        let is_whole = || algorithm == Algorithm::Hierarchical || self.cuts(call) == 1;
        let is_one_run = call.commutes || node_runs == 1;
        let fits = |blocks: u64| call.longest.saturating_mul(blocks) <= link_bytes(page_bytes);
        let is_planned = match call.operation {
            Operation::Barrier => true,
            Operation::Broadcast => fits(1) && is_whole(),
            Operation::Reduce | Operation::Allreduce => fits(1) && is_whole() && is_one_run,
            Operation::Gather => fits(1),
            Operation::Scatter => fits(node_ranks),
            // `Multisite` sends blocks directly.
            Operation::Allgather => fits(ranks) && algorithm != Algorithm::Multisite,
            // Each rank posts all its data.
            Operation::ReduceScatter => fits(1) && is_one_run,
            Operation::Alltoall | Operation::Scan | Operation::Exscan => false,
        };
        nodes > 1 && node_ranks > 1 && goes_by_leaders && is_planned
    }

    /// Returns the time of a prefix along a chain by a shared segment of such pages. Each rank
    /// combines the piece of the one below and posts the result.
    pub(super) fn chain_in_shmem_ns(&self, bytes: u64, page_bytes: u64) -> u64 {
        let ranks = self.shape.ranks;
        let pieces = bytes.div_ceil(link_bytes(page_bytes)).max(1);
        let rounds = ranks - 1 + pieces;
        match self.shape.is_oversubscribed {
            true => {
                // The next rank finds a piece after half of the ranks that share its core have run.
                let parallel_ns = ranks * (rounds * LINE_NS + 2 * self.compute_ns(bytes));
                (ranks / 2 + pieces) * ranks * YIELD_NS + parallel_ns / OVERSUBSCRIBED_CORES
            }
            false => {
                let passed_ns = 4 * self.compute_ns(bytes.div_ceil(pieces));
                rounds * (self.near.latency_ns + LINE_NS + passed_ns)
            }
        }
    }

    /// Returns the time until a rank that waits at its node's segment has found all posts.
    pub(super) fn meeting_ns(&self) -> u64 {
        self.near.latency_ns + self.shape.node_ranks * LINE_NS
    }

    /// Returns the number of pieces of a call by a shared segment of such pages; none if one unit
    /// does not fit.
    fn shmem_pieces(&self, call: &Call, page_bytes: u64, is_shared: bool) -> Option<u64> {
        let Call { bytes, longest, units, is_uniform, .. } = *call;
        let (ranks, link_bytes) = (self.shape.ranks, link_bytes(page_bytes));
        let piece_bytes = if self.shape.is_oversubscribed { page_bytes } else { link_bytes };
        let unit_bytes = bytes.div_ceil(units.max(1)).max(1);
        let in_units = |bytes: u64, room: u64| {
            let fit = room / unit_bytes;
            (fit > 0).then(|| bytes.div_ceil(unit_bytes).div_ceil(fit).max(1))
        };
        let whole = |posted: u64| (posted <= page_bytes).then_some(1);
        match call.operation {
            Operation::Broadcast | Operation::Allreduce => in_units(bytes, piece_bytes),
            Operation::Reduce if is_shared => in_units(bytes, piece_bytes),
            Operation::Reduce => in_units(bytes, link_bytes),
            Operation::Gather | Operation::Allgather if is_uniform => in_units(longest, page_bytes),
            Operation::Scatter | Operation::Alltoall if is_uniform => {
                in_units(longest, page_bytes / ranks)
            }
            Operation::ReduceScatter => {
                dealt_rounds(bytes.div_ceil(unit_bytes), page_bytes / unit_bytes, ranks)
            }
            Operation::Scatter | Operation::Alltoall => whole(ranks * longest),
            Operation::Barrier
            | Operation::Gather
            | Operation::Allgather
            | Operation::Scan
            | Operation::Exscan => whole(longest),
        }
    }

    fn shmem_path_ns(&self, call: &Call, page_bytes: u64, is_shared: bool) -> Option<u64> {
        let (ranks, bytes) = (self.shape.ranks, call.bytes);
        let others = ranks - 1;
        // Combining, in halves of a copy. Ranks that share cores find in their caches the data that
        // all of them read.
        let combined = if self.shape.is_oversubscribed { 2 } else { 4 };
        // Data that one rank moves and combines alone, and data of all in parallel: in multiples of
        // the call's bytes.
        let (alone, together) = match call.operation {
            Operation::Barrier => (0, 0),
            Operation::Broadcast => (1, others),
            Operation::Gather => (0, 2 * others),
            Operation::Scatter => (0, 2 * ranks),
            Operation::Allgather => (0, ranks * ranks),
            Operation::Alltoall => (0, 2 * ranks * ranks),
            Operation::Reduce if is_shared => (1, 2 * ranks + combined * ranks / 2),
            Operation::Reduce => (2 * others, others),
            Operation::Allreduce if is_shared => (0, 2 * ranks + combined * ranks / 2),
            Operation::Allreduce => (0, combined * ranks * ranks / 2),
            Operation::ReduceScatter => (0, 3 * ranks),
            Operation::Scan | Operation::Exscan => (others, ranks * ranks),
        };
        let pieces = self.shmem_pieces(call, page_bytes, is_shared)?;
        let rounds = pieces * if is_shared { 2 } else { 1 };
        let most = match call.operation {
            Operation::Scatter | Operation::Alltoall => DEALT_ROUNDS_MOST,
            _ => SHMEM_ROUNDS_MAX,
        };
        if rounds > most {
            return None;
        }
        let stream_ns = |times: u64| self.near.stream_ns(bytes.saturating_mul(times));
        let lines_ns = ranks * LINE_NS;
        Some(match self.shape.is_oversubscribed {
            true => {
                let parallel_ns = ranks * lines_ns + stream_ns(together);
                ranks * YIELD_NS * rounds + stream_ns(alone) + parallel_ns / OVERSUBSCRIBED_CORES
            }
            false => {
                let parallel_ns = stream_ns(together.div_ceil(ranks));
                rounds * (self.near.latency_ns + lines_ns) + stream_ns(alone) + parallel_ns
            }
        })
    }
}

/// Maximum number of rounds for separate data to each rank. With more, messages are faster, since a
/// round begins when all have arrived.
const DEALT_ROUNDS_MOST: u64 = 8;

/// Maximum number of rounds, which bounds the length of plans.
const SHMEM_ROUNDS_MAX: u64 = 256;
