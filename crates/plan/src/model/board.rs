//! What calls take by a board.

use super::{CROWD_CORES, LINE_NS, Model, Shape, TURN_NS};
use crate::across::segments;
use crate::choice::{Algorithm, Call, Operation};

impl Model {
    /// What a call takes by a board of such pages, and whether ranks had better share its work there and meet once
    /// more for that; none where a contribution is longer than a page.
    pub(crate) fn board_ns(&self, call: &Call, page_bytes: u64) -> Option<(u64, bool)> {
        let can_share = call.operation == Operation::Allreduce;
        let ways = [false, true].into_iter().take(1 + usize::from(can_share));
        ways.filter_map(|way| Some((self.board_way_ns(call, page_bytes, way)?, way))).min()
    }

    /// Whether what happens within each of several nodes, or along a chain on one, can go by their boards.
    pub(super) fn fits_boards(&self, call: &Call, algorithm: Algorithm, page_bytes: u64) -> bool {
        let is_prefix = matches!(call.operation, Operation::Scan | Operation::Exscan);
        if self.shape.nodes == 1 {
            let is_cut = call.bytes <= call.units.saturating_mul(page_bytes);
            let fits = call.bytes.div_ceil(page_bytes) <= BOARD_ROUNDS_MOST && is_cut;
            return is_prefix && algorithm == Algorithm::Chain && self.shape.ranks > 1 && fits;
        }
        let Shape { ranks, nodes, node_ranks, node_runs, has_heads, .. } = self.shape;
        let goes_by_heads = match algorithm {
            Algorithm::Levels => true,
            Algorithm::Heads | Algorithm::Sites | Algorithm::Bundles => has_heads,
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
            | Algorithm::Board => false,
        };
        let is_whole = || algorithm == Algorithm::Levels || self.is_whole(call);
        let is_one_run = call.commutes || node_runs == 1;
        let fits = |blocks: u64| call.longest.saturating_mul(blocks) <= page_bytes;
        let is_planned = match call.operation {
            Operation::Barrier => true,
            Operation::Broadcast => fits(1) && is_whole(),
            Operation::Reduce | Operation::Allreduce => fits(1) && is_whole() && is_one_run,
            Operation::Gather => fits(1),
            Operation::Scatter => fits(node_ranks),
            // By `Sites` blocks go straight.
            Operation::Allgather => fits(ranks) && algorithm != Algorithm::Sites,
            // Each shows all that it has.
            Operation::ReduceScatter => fits(1) && is_one_run,
            Operation::Alltoall | Operation::Scan | Operation::Exscan => false,
        };
        nodes > 1 && node_ranks > 1 && goes_by_heads && is_planned
    }

    /// Whether what all have goes by heads in one segment.
    fn is_whole(&self, call: &Call) -> bool {
        // Nodes of one site are as sites.
        let (wide, site, nodes) = match self.shape.sites {
            1 => (self.far, self.near, 1),
            _ => (self.wide, self.far, self.shape.site_nodes),
        };
        let streams_ns = [wide, site].map(|way| way.stream_ns(call.bytes));
        call.units <= 1 || segments(streams_ns, nodes, site.work_ns, call.bytes) == 1
    }

    /// What a prefix takes along a chain by a board of such pages: who hears a piece combines it and posts what it comes to.
    pub(super) fn chain_at_board_ns(&self, bytes: u64, page_bytes: u64) -> u64 {
        let ranks = self.shape.ranks;
        let pieces = bytes.div_ceil(page_bytes).max(1);
        let rounds = ranks - 1 + pieces;
        match self.shape.is_crowded {
            true => {
                // Who is next hears of a piece when half of those who share its core have had their turn.
                let beside_ns = ranks * (rounds * LINE_NS + 2 * self.compute_ns(bytes));
                (ranks / 2 + pieces) * ranks * TURN_NS + beside_ns / CROWD_CORES
            }
            false => {
                let passed_ns = 4 * self.compute_ns(bytes.div_ceil(pieces));
                rounds * (self.near.latency_ns + LINE_NS + passed_ns)
            }
        }
    }

    /// Until who waits at the board of a node has met all.
    pub(super) fn meeting_ns(&self) -> u64 {
        self.near.latency_ns + self.shape.node_ranks * LINE_NS
    }

    fn board_way_ns(&self, call: &Call, page_bytes: u64, is_shared: bool) -> Option<u64> {
        let (ranks, bytes) = (self.shape.ranks, call.bytes);
        let others = ranks - 1;
        // To combine, in halves of a copy: ranks that share cores find in their caches what all of them read.
        let combined = if self.shape.is_crowded { 2 } else { 4 };
        // What a rank posts at most, what one rank moves and combines alone, and what all do beside each other:
        // in multiples of the call's bytes.
        let (posts, alone, together) = match call.operation {
            Operation::Barrier => (0, 0, 0),
            Operation::Broadcast => (1, 1, others),
            Operation::Gather => (1, 0, 2 * others),
            Operation::Scatter => (ranks, 0, 2 * ranks),
            Operation::Allgather => (1, 0, ranks * ranks),
            Operation::Alltoall => (ranks, 0, 2 * ranks * ranks),
            Operation::Reduce => (1, 2 * others, others),
            Operation::Allreduce if is_shared => (1, 0, 2 * ranks + combined * ranks / 2),
            Operation::Allreduce => (1, 0, combined * ranks * ranks / 2),
            Operation::ReduceScatter => (1, 0, 3 * ranks),
            Operation::Scan | Operation::Exscan => (1, others, ranks * ranks),
        };
        let is_cut = matches!(
            call.operation,
            Operation::Broadcast | Operation::Reduce | Operation::Allreduce
        );
        let pieces = if is_cut { bytes.div_ceil(page_bytes).max(1) } else { 1 };
        let rounds = pieces * if is_shared { 2 } else { 1 };
        // A unit is not divided.
        let is_too_long = bytes > call.units.saturating_mul(page_bytes);
        if rounds > BOARD_ROUNDS_MOST || posts * call.longest > pieces * page_bytes || is_too_long {
            return None;
        }
        let stream_ns = |times: u64| self.near.stream_ns(bytes.saturating_mul(times));
        let lines_ns = ranks * LINE_NS;
        Some(match self.shape.is_crowded {
            true => {
                let beside_ns = ranks * lines_ns + stream_ns(together);
                ranks * TURN_NS * rounds + stream_ns(alone) + beside_ns / CROWD_CORES
            }
            false => {
                let beside_ns = stream_ns(together.div_ceil(ranks));
                rounds * (self.near.latency_ns + lines_ns) + stream_ns(alone) + beside_ns
            }
        })
    }
}

/// What takes more rounds at a board goes faster by messages.
const BOARD_ROUNDS_MOST: u64 = 16;
