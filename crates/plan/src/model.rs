//! Predicted times of algorithms, in closed form.
//!
//! A message of `n` bytes takes `2o + L + n·g`: the work of both sides, the latency, and the bytes
//! (LogGP, Alexandrov and others 1995). Ranks of a node share its network: messages that several of
//! them send to other nodes in one round go one behind the other. All numbers are integers, so that
//! all ranks compute the same. `tests/choice.rs` compares the model with the simulation.

mod multisite;
mod oversubscribed;
mod shmem;

use std::sync::Arc;

use crate::catalogue::{
    Allgather, Allreduce, Alltoall, Barrier, Broadcast, Catalogue, Gather, Prefix, Reduce,
    ReduceScatter,
};
use crate::choice::{Algorithm, Call, Operation};
use crate::costs::{Costs, MessageCost, OVERSUBSCRIBED_CORES};
use crate::crossings::Crossings;

/// Inputs of a prediction.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    shape: RankCounts,
    by_place: Order,
    by_rank: Order,
    near: LevelCost,
    far: LevelCost,
    wide: LevelCost,
    crossings: Arc<Crossings>,
    wake_ns: u64,
    /// Bytes of a page of the shared segments, if the call uses them within each of several nodes,
    /// or along a chain on one.
    page_bytes: Option<u64>,
}

/// Maximum number of ranks of a node that send to other nodes at once, over distances 1, 2, 4…, in
/// an order of all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// Every rank sends over the distance.
    shift: [u32; 32],
    /// Pairs exchange.
    swap: [u32; 32],
    /// Down a binomial tree, or up.
    tree: [u32; 32],
}

/// Numbers of ranks, nodes and sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankCounts {
    /// Number of ranks.
    pub ranks: u64,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of sites.
    pub sites: u64,
    /// Ranks of the fullest node.
    pub node_ranks: u64,
    /// Nodes of the largest site.
    pub site_nodes: u64,
    /// Ranks of the largest site.
    pub site_ranks: u64,
    /// Maximum number of runs of consecutive ranks on a node.
    pub node_runs: u64,
    /// Maximum number of runs of consecutive ranks in a site.
    pub site_runs: u64,
    /// Maximum number of prefixes that one node sends: one per run and node with ranks above it.
    pub node_tells: u64,
    /// True if the ranks of each node and of each site are consecutive.
    pub is_in_order: bool,
    /// True if ranks outnumber the cores of their one node.
    pub is_oversubscribed: bool,
    /// True if several nodes of one site are on one machine, and ranks outnumber its cores.
    pub is_shared: bool,
    /// True if short data go through the leaders of nodes, if there are several nodes.
    pub has_leaders: bool,
}

/// Cost of messages at one level.
#[derive(Clone, Copy, Debug)]
struct LevelCost {
    latency_ns: u64,
    work_ns: u64,
    ps_per_byte: u64,
}

impl Model {
    /// Makes a model for ranks of such a shape; `by_place` is the order of the grid.
    pub(crate) fn new(
        shape: RankCounts,
        [by_place, by_rank]: [Order; 2],
        costs: &Costs,
        crossings: Arc<Crossings>,
    ) -> Self {
        let Costs { node, site, wide, wake_ns } = *costs;
        let [near, far, wide] = [node, site, wide].map(LevelCost::of);
        let page_bytes = None;
        Self { shape, by_place, by_rank, near, far, wide, crossings, wake_ns, page_bytes }
    }

    /// Returns the model for the same ranks with other costs and equal sites.
    pub(crate) fn with_costs(&self, costs: &Costs) -> Self {
        let crossings = Arc::new(match self.shape.sites {
            1 => Crossings::of_nodes(self.shape.nodes, costs),
            _ => Crossings::alike(costs.wide, costs),
        });
        Self::new(self.shape, [self.by_place, self.by_rank], costs, crossings)
    }

    /// Costs of messages between the sites.
    pub(crate) fn crossings(&self) -> &Crossings {
        &self.crossings
    }

    /// Numbers of ranks, nodes and sites.
    pub(crate) fn shape(&self) -> &RankCounts {
        &self.shape
    }

    /// Returns [`Self::predicted_ns`] with or without the shared segments, whichever is less, and
    /// whether they are used. They are used within several nodes, or by all ranks of one.
    pub(crate) fn fastest_ns(
        &self,
        call: &Call,
        algorithm: Algorithm,
        root_site: Option<u32>,
        page_bytes: Option<u64>,
    ) -> Option<(u64, bool)> {
        if algorithm == Algorithm::Shmem {
            let page_bytes = page_bytes.filter(|_| self.shape.nodes == 1)?;
            return Some((self.shmem_ns(call, page_bytes)?.0, true));
        }
        let by_messages_ns = self.predicted_ns(call, algorithm, root_site)?;
        let page_bytes = page_bytes.filter(|bytes| self.fits_shmem(call, algorithm, *bytes));
        let by_shmem_ns = page_bytes.and_then(|_| {
            let by_shmem = Self { page_bytes, ..self.clone() };
            by_shmem.predicted_ns(call, algorithm, root_site)
        });
        Some(match by_shmem_ns {
            Some(by_shmem_ns) if by_shmem_ns < by_messages_ns => (by_shmem_ns, true),
            Some(_) | None => (by_messages_ns, false),
        })
    }

    /// Returns the predicted time of a call with the root in site `root_site`, or in the worst one.
    /// None if the algorithm cannot carry out the call.
    pub(crate) fn predicted_ns(
        &self,
        call: &Call,
        algorithm: Algorithm,
        root_site: Option<u32>,
    ) -> Option<u64> {
        let RankCounts { sites, nodes, is_oversubscribed, is_shared, .. } = self.shape;
        if nodes == 1 && matches!(algorithm, Algorithm::Leaders | Algorithm::Hierarchical) {
            return None;
        }
        if sites > 1 {
            return self.multisite_ns(call, algorithm, root_site);
        }
        if is_oversubscribed {
            return self.oversubscribed_ns(call, algorithm);
        }
        let alone_ns = self.dedicated_ns(call, algorithm)?;
        Some(if is_shared { alone_ns.max(self.shared_ns(call, algorithm)) } else { alone_ns })
    }

    /// Predicts a call on nodes of one site with a core for each rank.
    fn dedicated_ns(&self, call: &Call, algorithm: Algorithm) -> Option<u64> {
        match call.operation {
            Operation::Barrier => self.barrier_ns(Barrier::named(algorithm)?),
            Operation::Broadcast => self.broadcast_ns(call, Broadcast::named(algorithm)?),
            Operation::Gather | Operation::Scatter => {
                self.gather_ns(call, Gather::named(algorithm)?)
            }
            Operation::Allgather => self.allgather_ns(call, Allgather::named(algorithm)?),
            Operation::Alltoall => self.alltoall_ns(call, Alltoall::named(algorithm)?),
            Operation::Reduce => self.reduce_ns(call, Reduce::named(algorithm)?),
            Operation::Allreduce => self.allreduce_ns(call, Allreduce::named(algorithm)?),
            Operation::ReduceScatter => {
                self.reduce_scatter_ns(call, ReduceScatter::named(algorithm)?)
            }
            Operation::Scan | Operation::Exscan => self.prefix_ns(call, Prefix::named(algorithm)?),
        }
    }

    /// Returns the number of segments in which a chain passes so many bytes on. With `c` of them
    /// the last arrives after `p + c − 2` steps of `work + n·g/c`, which is least for
    /// `c = √((p − 2)·n·g/work)`.
    pub(crate) fn chain_segments(&self, bytes: u64) -> u64 {
        let best = segments(self.farthest(), self.shape.ranks.saturating_sub(2), bytes);
        // Only as many are worked on at once as there are cores, and each is waited for.
        if self.shape.is_oversubscribed { best.min(OVERSUBSCRIBED_CORES) } else { best }
    }

    /// Returns the number of segments for each half of so many bytes along two trees, of the ranks
    /// of a node and of nodes. Both halves have as many together as a chain of twice the height,
    /// since inner nodes pass each segment on twice.
    pub(crate) fn tree_segments(&self, bytes: u64) -> [u64; 2] {
        let RankCounts { nodes, node_ranks, .. } = self.shape;
        [(self.near, node_ranks), (self.far, nodes)]
            .map(|(level, ranks)| segments(level, 2 * log2_ceil(ranks), bytes).div_ceil(2))
    }

    fn barrier_ns(&self, algorithm: Barrier) -> Option<u64> {
        let nodes = self.shape.nodes;
        let legs = 2 * self.star_ns(0);
        Some(match algorithm {
            Barrier::Linear => 2 * (self.farthest().hop_ns(0) + self.root_work_ns()),
            Barrier::Dissemination => self.shifts_ns(&self.by_place, |_| 0),
            Barrier::Tournament => 2 * self.tree_ns(&self.by_place, 0),
            Barrier::Leaders => legs + self.far.hop_ns(0) + 2 * (nodes - 1) * self.far.work_ns,
            Barrier::Hierarchical => legs + log2_ceil(nodes) * self.far.hop_ns(0),
            Barrier::Multisite | Barrier::Shmem => return None,
        })
    }

    fn broadcast_ns(&self, call: &Call, algorithm: Broadcast) -> Option<u64> {
        let RankCounts { ranks, nodes, .. } = self.shape;
        let bytes = call.bytes;
        Some(match algorithm {
            Broadcast::Linear => self.one_with_all_ns(bytes),
            Broadcast::Binomial => self.tree_ns(&self.by_place, bytes),
            Broadcast::Chain => self.chain_ns(bytes, 0),
            Broadcast::TwoTree if call.units > 1 => self.two_trees_ns(bytes, 0),
            Broadcast::VanDeGeijn if call.units >= ranks && ranks > 2 => {
                let part = bytes / ranks;
                let scattered = self.tree_ns(&self.by_place, 0) + self.scattered_ns(bytes);
                scattered + self.ring_ns(part, 0) + self.waking_ns(scattered, ranks - 1)
            }
            Broadcast::Leaders => {
                let crossing = self.far.stream_ns((nodes - 1) * bytes);
                let within = (self.star_stream_ns(bytes), 0);
                self.piped_ns(bytes, self.star_ns(0) + self.far.hop_ns(0), crossing, within)
                    + (nodes - 1) * self.far.work_ns
            }
            Broadcast::Hierarchical => {
                log2_ceil(nodes) * self.far.hop_ns(bytes) + self.star_ns(bytes)
            }
            Broadcast::TwoTree
            | Broadcast::VanDeGeijn
            | Broadcast::Multisite
            | Broadcast::Shmem => {
                return None;
            }
        })
    }

    /// Predicts blocks to one rank, or from one.
    fn gather_ns(&self, call: &Call, algorithm: Gather) -> Option<u64> {
        let RankCounts { ranks, nodes, node_ranks, .. } = self.shape;
        let bytes = call.bytes;
        let foreign = self.far.stream_ns((ranks - node_ranks) * bytes);
        let copies = 2 * self.compute_ns(ranks * bytes);
        Some(match algorithm {
            Gather::Linear => self.one_with_all_ns(bytes) + self.compute_ns(bytes),
            Gather::Binomial if call.is_uniform => {
                self.tree_ns(&self.by_place, 0)
                    + foreign
                    + self.near.stream_ns(ranks * bytes)
                    + copies
            }
            Gather::Leaders if call.is_uniform => {
                let legs =
                    self.blocks_ns(bytes) + self.far.hop_ns(0) + (nodes - 1) * self.far.work_ns;
                legs + foreign + copies
            }
            Gather::Binomial | Gather::Leaders | Gather::Aggregated | Gather::Shmem => return None,
        })
    }

    fn allgather_ns(&self, call: &Call, algorithm: Allgather) -> Option<u64> {
        let RankCounts { ranks, nodes, node_ranks, is_in_order, .. } = self.shape;
        let (bytes, total) = (call.bytes, ranks * call.bytes);
        let collected = self.blocks_ns(bytes);
        let given = self.star_ns(total);
        let sorted = if is_in_order { 0 } else { 2 * self.compute_ns(total) };
        let copied = self.compute_ns(bytes);
        Some(match algorithm {
            Allgather::Bruck => {
                copied + self.shifts_ns(&self.by_rank, |have| have.min(ranks - have) * bytes)
            }
            Allgather::Ring => copied + self.ring_ns(bytes, 0),
            Allgather::Tournament => {
                let gathered = self.far.stream_ns((ranks - node_ranks) * bytes)
                    + self.near.stream_ns(node_ranks * bytes);
                let [up, down] = [0, total].map(|bytes| self.tree_ns(&self.by_rank, bytes));
                copied + up + gathered + down
            }
            Allgather::Leaders => {
                let crossing = self.far.stream_ns((nodes - 1) * node_ranks * bytes);
                let work = 2 * (nodes - 1) * self.far.work_ns;
                collected + self.far.hop_ns(0) + work + crossing + given + sorted
            }
            Allgather::Multisite
                if (2..=STRAIGHT_NODES_MOST).contains(&nodes) && node_ranks > 1 =>
            {
                // Each rank sends its block to one rank of each node, which passes it on while
                // others arrive.
                let segments = segments_of(bytes);
                let received = (ranks - node_ranks) / node_ranks + 1;
                let crossing = self.far.stream_ns((nodes - 1) * node_ranks * bytes);
                let work = (nodes - 1 + received) * segments * self.far.work_ns;
                let passed = 2 * (node_ranks - 1) * received;
                let near = passed * (segments * self.near.work_ns + self.near.stream_ns(bytes));
                let last = self.near.hop_ns(bytes / segments);
                copied + self.far.hop_ns(0) + crossing.max(work + near) + last
            }
            Allgather::Hierarchical if is_in_order => {
                collected + (nodes - 1) * self.far.hop_ns(node_ranks * bytes) + given
            }
            Allgather::Hierarchical
            | Allgather::Linear
            | Allgather::Pairwise
            | Allgather::Aggregated
            | Allgather::Multisite
            | Allgather::Shmem => return None,
        })
    }

    fn alltoall_ns(&self, call: &Call, algorithm: Alltoall) -> Option<u64> {
        let RankCounts { ranks, nodes, node_ranks, .. } = self.shape;
        let bytes = call.bytes;
        let foreign = ranks - node_ranks;
        let crossing = self.far.stream_ns(node_ranks * foreign * bytes);
        Some(match algorithm {
            Alltoall::Pairwise => {
                let work = foreign * self.far.work_ns + (node_ranks - 1) * self.near.work_ns;
                let near = self.near.stream_ns((2 * node_ranks - 1) * bytes);
                2 * work + self.farthest().hop_ns(0) + near + crossing
            }
            Alltoall::Bruck if call.is_uniform => {
                let passed = ranks / 2 * bytes;
                let copies = (2 + 2 * log2_ceil(ranks) / 2) * self.compute_ns(ranks * bytes);
                // Every copy is a step of its own.
                let steps = log2_ceil(ranks) * ranks * COPY_NS;
                self.shifts_ns(&self.by_place, |_| passed) + copies + steps
            }
            Alltoall::Leaders if call.is_uniform => {
                let legs = 2 * self.star_ns(foreign * bytes) + self.star_ns(bytes);
                let copies = 4 * self.compute_ns(node_ranks * foreign * bytes);
                let steps = node_ranks * foreign * COPY_NS;
                let work = 2 * (nodes - 1) * self.far.work_ns;
                legs + self.far.hop_ns(0) + work + crossing + copies + steps
            }
            Alltoall::Bruck | Alltoall::Leaders | Alltoall::Aggregated | Alltoall::Shmem => {
                return None;
            }
        })
    }

    fn reduce_ns(&self, call: &Call, algorithm: Reduce) -> Option<u64> {
        let RankCounts { ranks, nodes, .. } = self.shape;
        let bytes = call.bytes;
        let is_ordered = call.commutes || self.shape.is_in_order;
        Some(match algorithm {
            Reduce::Linear => self.one_with_all_ns(bytes) + (ranks + 1) * self.compute_ns(bytes),
            Reduce::Binomial => {
                self.tree_ns(self.order(call), bytes)
                    + 2 * log2_ceil(ranks) * self.compute_ns(bytes)
            }
            Reduce::Chain if is_ordered => self.chain_ns(bytes, 1),
            Reduce::TwoTree if call.units > 1 && is_ordered => self.two_trees_ns(bytes, 1),
            Reduce::Ring if call.commutes && call.units >= ranks => {
                let part = bytes / ranks;
                let combined = self.compute_ns(bytes) + self.ring_ns(part, self.compute_ns(part));
                combined + self.one_with_all_ns(part)
            }
            Reduce::Leaders => self.leaders_reduce_ns(call, false),
            Reduce::Hierarchical if is_ordered => {
                let within = self.star_ns(bytes) + self.star_compute_ns(bytes);
                within + log2_ceil(nodes) * (self.far.hop_ns(bytes) + 2 * self.compute_ns(bytes))
            }
            Reduce::Chain
            | Reduce::TwoTree
            | Reduce::Ring
            | Reduce::Hierarchical
            | Reduce::Pairwise
            | Reduce::Multisite
            | Reduce::Shmem => return None,
        })
    }

    fn allreduce_ns(&self, call: &Call, algorithm: Allreduce) -> Option<u64> {
        let RankCounts { ranks, nodes, .. } = self.shape;
        let bytes = call.bytes;
        let is_ordered = call.commutes || self.shape.is_in_order;
        let order = self.order(call);
        Some(match algorithm {
            Allreduce::Linear => {
                2 * self.one_with_all_ns(bytes) + (ranks + 1) * self.compute_ns(bytes)
            }
            Allreduce::Doubling => {
                let rounds = log2_floor(ranks);
                self.fold_ns(order, bytes)
                    + (0..rounds).map(|round| self.swap_ns(order, round, bytes)).sum::<u64>()
                    + 2 * rounds * self.compute_ns(bytes)
            }
            Allreduce::Butterfly if ranks <= BUTTERFLY_MOST => {
                let passed = |have: u64| have.min(ranks - have);
                let more = ranks - 1 - log2_ceil(ranks);
                let rounds = self.shifts_ns(order, |have| passed(have) * bytes)
                    + more * self.farthest().work_ns;
                rounds + (ranks + 1) * self.compute_ns(bytes)
            }
            Allreduce::Halving if call.units >= ranks => {
                let halves = (0..log2_floor(ranks)).map(|round| {
                    let half = bytes >> (round + 1);
                    2 * self.swap_ns(order, round, half) + 2 * self.compute_ns(half)
                });
                self.fold_ns(order, bytes) + halves.sum::<u64>()
            }
            Allreduce::Ring if call.commutes && call.units >= ranks => {
                let part = bytes / ranks;
                self.ring_ns(part, self.compute_ns(part)) + self.ring_ns(part, 0)
            }
            Allreduce::Tournament => {
                2 * self.tree_ns(order, bytes) + 2 * log2_ceil(ranks) * self.compute_ns(bytes)
            }
            Allreduce::Leaders => self.leaders_reduce_ns(call, true),
            Allreduce::Hierarchical if is_ordered => {
                let within = 2 * self.star_ns(bytes) + self.star_compute_ns(bytes);
                let pairs = if nodes.is_power_of_two() { 0 } else { 2 };
                let rounds = log2_floor(nodes) + pairs;
                within + rounds * (self.far.hop_ns(bytes) + 2 * self.compute_ns(bytes))
            }
            Allreduce::Pairwise if nodes == 1 && call.units >= ranks => {
                let part = bytes / ranks;
                2 * self.pairwise_ns(part) + self.compute_ns(bytes + part)
            }
            Allreduce::Butterfly
            | Allreduce::Halving
            | Allreduce::Ring
            | Allreduce::Hierarchical
            | Allreduce::Pairwise
            | Allreduce::Multisite
            | Allreduce::Shmem => return None,
        })
    }

    fn reduce_scatter_ns(&self, call: &Call, algorithm: ReduceScatter) -> Option<u64> {
        let RankCounts { ranks, nodes, .. } = self.shape;
        let bytes = call.bytes;
        Some(match algorithm {
            ReduceScatter::Binomial => {
                let up = self.tree_ns(&self.by_rank, bytes);
                let combined = (2 * log2_ceil(ranks) + 1) * self.compute_ns(bytes);
                // A block is at least one unit.
                let given = match call.units < ranks {
                    true => self.farthest().hop_ns(0) + call.units * self.farthest().work_ns,
                    false => self.one_with_all_ns(bytes / ranks),
                };
                up + combined + given
            }
            ReduceScatter::Ring if call.commutes => {
                let part = bytes / ranks;
                self.ring_ns(part, self.compute_ns(part)) + self.compute_ns(bytes)
            }
            ReduceScatter::Leaders => self.leaders_reduce_scatter_ns(call),
            ReduceScatter::Pairwise if nodes == 1 => {
                self.pairwise_ns(bytes / ranks) + self.compute_ns(bytes + bytes / ranks)
            }
            ReduceScatter::Ring
            | ReduceScatter::Pairwise
            | ReduceScatter::Multisite
            | ReduceScatter::Shmem => return None,
        })
    }

    /// Predicts a reduce-scatter in which each block takes its own path through leaders of all
    /// nodes, which differ from block to block.
    fn leaders_reduce_scatter_ns(&self, call: &Call) -> u64 {
        let RankCounts { ranks, nodes, node_ranks, is_in_order, .. } = self.shape;
        let runs = if call.commutes || is_in_order { 1 } else { node_ranks };
        let bytes = call.bytes;
        let blocks = ranks.min(call.units.max(1));
        let foreign = blocks - blocks / nodes;
        // The only rank of a node has all the blocks that leave it.
        let shared = |all: u64| all - all / node_ranks;
        let near = match self.page_bytes {
            Some(_) => self.meeting_ns() + self.near.stream_ns(bytes),
            None => 2 * (self.near.hop_ns(0) + shared(blocks) * self.near.work_ns),
        };
        let work = (foreign.div_ceil(node_ranks) + nodes - 1) * runs * self.far.work_ns;
        let legs = near + self.far.hop_ns(0);
        let combined =
            2 * self.compute_ns(shared(bytes)) + nodes * runs * self.compute_ns(bytes / ranks);
        let crossing = self.far.stream_ns(runs * (bytes - bytes / nodes));
        legs + work + crossing.max(combined) + crossing.min(combined) / 2
    }

    fn prefix_ns(&self, call: &Call, algorithm: Prefix) -> Option<u64> {
        let RankCounts { ranks, nodes, node_ranks, node_runs, node_tells, .. } = self.shape;
        let bytes = call.bytes;
        Some(match algorithm {
            Prefix::Doubling => {
                let combined = (2 * log2_ceil(ranks) + 2) * self.compute_ns(bytes);
                self.shifts_ns(&self.by_rank, |_| bytes) + combined
            }
            Prefix::Chain if let Some(page_bytes) = self.page_bytes => {
                self.chain_in_shmem_ns(bytes, page_bytes)
            }
            Prefix::Chain if self.shape.is_in_order => self.chain_ns(bytes, 2),
            Prefix::Leaders => {
                let crossing = self.far.stream_ns(node_tells * bytes);
                let work = 2 * node_tells * self.far.work_ns;
                let combined = (2 * node_ranks + nodes * node_runs) * self.compute_ns(bytes);
                2 * self.star_ns(bytes) + self.far.hop_ns(0) + work + crossing + combined
            }
            Prefix::Chain | Prefix::Multisite | Prefix::Shmem => return None,
        })
    }

    /// Returns the time from the leader of a node to the last of its ranks, or from them to it.
    fn star_ns(&self, bytes: u64) -> u64 {
        let others = self.shape.node_ranks - 1;
        match others {
            0 => 0,
            _ if self.page_bytes.is_some() => self.meeting_ns() + self.star_stream_ns(bytes),
            _ => self.near.hop_ns(bytes) + (others - 1) * self.near.busy_ns(bytes),
        }
    }

    /// Returns the time for a block of each rank of a node to its leader, or from it.
    fn blocks_ns(&self, bytes: u64) -> u64 {
        match self.page_bytes {
            // The leader copies all of them, and each rank its own.
            Some(_) => self.meeting_ns() + self.near.stream_ns(self.shape.node_ranks * bytes),
            None => self.star_ns(bytes),
        }
    }

    fn star_stream_ns(&self, bytes: u64) -> u64 {
        // Posted data are read by all at once.
        let times = match self.page_bytes {
            Some(_) => 2,
            None => self.shape.node_ranks - 1,
        };
        self.near.stream_ns(times * bytes)
    }

    /// Returns the leader's time to combine its node's operands.
    fn star_compute_ns(&self, bytes: u64) -> u64 {
        self.shape.node_ranks * self.compute_ns(bytes)
    }

    /// Returns the time in which one rank exchanges so many bytes with each other one.
    fn one_with_all_ns(&self, bytes: u64) -> u64 {
        let RankCounts { ranks, node_ranks, .. } = self.shape;
        if ranks == 1 {
            return 0;
        }
        let foreign = ranks - node_ranks;
        let streams =
            self.far.stream_ns(foreign * bytes) + self.near.stream_ns((node_ranks - 1) * bytes);
        self.farthest().hop_ns(0) + self.root_work_ns() + streams
    }

    /// Returns the work of a rank that receives from all others, after the first.
    fn root_work_ns(&self) -> u64 {
        let RankCounts { ranks, node_ranks, .. } = self.shape;
        let foreign = ranks - node_ranks;
        foreign * self.far.work_ns + node_ranks.saturating_sub(2) * self.near.work_ns
    }

    /// Returns the time down a binomial tree, or up.
    fn tree_ns(&self, order: &Order, bytes: u64) -> u64 {
        (0..log2_ceil(self.shape.ranks))
            .map(|level| match order.tree[level as usize] {
                0 => self.near.hop_ns(bytes),
                leave => self.together_ns(leave, bytes),
            })
            .sum()
    }

    /// Returns the transfer time of a scatter's bytes at its root.
    fn scattered_ns(&self, bytes: u64) -> u64 {
        if self.shape.nodes == 1 { self.near.stream_ns(bytes) } else { self.far.stream_ns(bytes) }
    }

    /// Returns the time of once around a ring in the order of the grid, with blocks of so many
    /// bytes and so much work on arrival. It is the time of a block's path around the ring, or the
    /// time that a link is busy with all blocks.
    fn ring_ns(&self, bytes: u64, combined_ns: u64) -> u64 {
        let RankCounts { ranks, nodes, .. } = self.shape;
        let near = self.near.hop_ns(bytes) + self.near.stream_ns(bytes) + combined_ns;
        if nodes == 1 {
            return (ranks - 1) * near;
        }
        let far = self.far.hop_ns(bytes) + combined_ns;
        let around = (nodes - 1) * far + (ranks - nodes) * near.max(far / ranks);
        let busy = self.far.busy_ns(bytes).max(self.near.busy_ns(bytes) + combined_ns);
        around.max(far + (ranks - 2) * busy)
    }

    /// Returns the time in which each rank of one node sends so many bytes to every other.
    fn pairwise_ns(&self, bytes: u64) -> u64 {
        let others = self.shape.ranks - 1;
        let work_ns = 2 * others.saturating_sub(1) * self.near.work_ns;
        work_ns + self.near.hop_ns(0) + 2 * self.near.stream_ns(others * bytes)
    }

    /// Returns the time along a chain, with so many reductions of the data on the path.
    fn chain_ns(&self, bytes: u64, reductions: u64) -> u64 {
        let RankCounts { ranks, nodes, .. } = self.shape;
        let segments = self.chain_segments(bytes);
        let segment = bytes.div_ceil(segments);
        let combined = reductions * self.compute_ns(segment);
        let mut hops = (nodes - 1) * (self.far.hop_ns(segment) + combined)
            + (ranks - nodes) * (self.near.hop_ns(segment) + combined);
        hops += self.waking_ns(hops, ranks - 1);
        let (near, level) = (self.near, self.farthest());
        let interval = (2 * near.busy_ns(segment) + combined).max(level.busy_ns(segment));
        hops + (segments - 1) * interval
    }

    /// Returns the time along two trees of nodes and two of each node's ranks, with so many
    /// reductions of the data of each branch.
    fn two_trees_ns(&self, bytes: u64, reductions: u64) -> u64 {
        let RankCounts { nodes, node_ranks, .. } = self.shape;
        let (near, far) = (self.near, self.far);
        // Of the two halves of a segment one is passed on twice, and the other only received.
        let within = |segment, combined_ns| 4 * near.busy_ns(segment) + combined_ns;
        let between =
            |segment, combined_ns| far.stream_ns(2 * segment).max(4 * far.work_ns + combined_ns);
        let [of_ranks, of_nodes] = self.tree_segments(bytes);
        let along =
            |level: LevelCost, ranks: u64, segments: u64, interval: &dyn Fn(u64, u64) -> u64| {
                let segment = bytes.div_ceil(2 * segments);
                let combined_ns = 2 * reductions * self.compute_ns(segment);
                let height = log2_ceil(ranks) + 1;
                let hops = height * (level.hop_ns(segment) + level.busy_ns(segment) + combined_ns);
                let waking = self.waking_ns(hops, height);
                if ranks == 1 {
                    0
                } else {
                    hops + waking + (segments - 1) * interval(segment, combined_ns)
                }
            };
        along(near, node_ranks, of_ranks, &within) + along(far, nodes, of_nodes, &between)
    }

    /// Returns the delay from sleeping ranks on a path through so many ranks: those that the data
    /// reach late have gone to sleep.
    fn waking_ns(&self, path_ns: u64, ranks: u64) -> u64 {
        let late = path_ns.saturating_sub(SPINS * self.wake_ns);
        let sleepers = ranks * late / path_ns.max(1);
        sleepers * self.wake_ns
    }

    /// Returns the time of one round over each power of two below the number of ranks, with the
    /// bytes that `bytes` gives.
    fn shifts_ns(&self, order: &Order, bytes: impl Fn(u64) -> u64) -> u64 {
        (0..log2_ceil(self.shape.ranks))
            .map(|level| self.together_ns(order.shift[level as usize], bytes(1 << level)))
            .sum()
    }

    /// Returns the time of a round in which pairs exchange that are `2^level` positions apart.
    fn swap_ns(&self, order: &Order, level: u64, bytes: u64) -> u64 {
        self.together_ns(order.swap[level as usize], bytes)
    }

    /// Returns the time of a round in which `leave` ranks of a node send to other nodes, and the
    /// rest within it.
    fn together_ns(&self, leave: u32, bytes: u64) -> u64 {
        match leave {
            // Every rank copies the data it sends and the data it receives.
            0 => self.near.hop_ns(bytes) + self.near.stream_ns(bytes),
            _ => self.far.hop_ns(0) + self.far.stream_ns(u64::from(leave) * bytes),
        }
    }

    /// Returns the time to fold the ranks to a power of two.
    fn fold_ns(&self, order: &Order, bytes: u64) -> u64 {
        if self.shape.ranks.is_power_of_two() {
            return 0;
        }
        2 * self.swap_ns(order, 0, bytes) + self.compute_ns(bytes)
    }

    /// Returns the time to copy or combine so many bytes.
    fn compute_ns(&self, bytes: u64) -> u64 {
        self.near.stream_ns(bytes)
    }

    /// Returns the cost of the farthest messages.
    fn farthest(&self) -> LevelCost {
        if self.shape.nodes == 1 { self.near } else { self.far }
    }

    /// Returns the order in which operands are combined.
    fn order(&self, call: &Call) -> &Order {
        if call.commutes { &self.by_place } else { &self.by_rank }
    }
}

impl Order {
    /// Counts for ranks on such nodes, in their order.
    pub(crate) fn new(nodes: &[u32]) -> Self {
        let size = nodes.len();
        let count = nodes.iter().max().map_or(0, |last| *last as usize + 1);
        let mut leaving = vec![0; count];
        let mut most = |sends: &dyn Fn(usize) -> Option<usize>| {
            leaving.fill(0);
            for from in 0..size {
                if sends(from).is_some_and(|to| nodes[to] != nodes[from]) {
                    leaving[nodes[from] as usize] += 1;
                }
            }
            leaving.iter().copied().max().unwrap_or(0)
        };
        let mut order = Self::default();
        for level in 0..log2_ceil(size as u64) as usize {
            let distance = 1 << level;
            order.shift[level] = most(&|from| Some((from + distance) % size));
            order.swap[level] = most(&|from| Some(from ^ distance).filter(|&to| to < size));
            let is_child = |from: usize| from % (2 * distance) == distance;
            order.tree[level] = most(&|from| is_child(from).then(|| from - distance));
        }
        order
    }
}

impl LevelCost {
    fn of(cost: MessageCost) -> Self {
        let ps_per_byte = 1_000_000_000_000 / cost.bytes_per_s.max(1);
        Self { latency_ns: cost.latency_ns, work_ns: cost.overhead_ns, ps_per_byte }
    }

    /// Returns the time from the sender's call to the end of the receiver's.
    fn hop_ns(&self, bytes: u64) -> u64 {
        2 * self.work_ns + self.latency_ns + self.stream_ns(bytes)
    }

    /// Returns the time that a message keeps its sender from the next.
    fn busy_ns(&self, bytes: u64) -> u64 {
        self.work_ns + self.stream_ns(bytes)
    }

    fn stream_ns(&self, bytes: u64) -> u64 {
        (bytes.saturating_mul(self.ps_per_byte) / 1000).min(STREAM_MAX_NS)
    }
}

/// Returns the number of segments for so many bytes along a path of `steps` steps more than one.
fn segments(level: LevelCost, steps: u64, bytes: u64) -> u64 {
    let best = (steps * level.stream_ns(bytes) / (2 * level.work_ns).max(1)).isqrt();
    best.min(bytes / SEGMENT_LEAST).clamp(1, SEGMENTS_MOST)
}

/// Returns the number of segments for so many bytes by leaders.
pub(crate) fn segments_of(bytes: u64) -> u64 {
    (bytes / SEGMENT_LEAST).clamp(1, 16)
}

/// ⌈log2 n⌉.
fn log2_ceil(n: u64) -> u64 {
    u64::from(u64::BITS - n.saturating_sub(1).leading_zeros())
}

/// ⌊log2 n⌋.
fn log2_floor(n: u64) -> u64 {
    u64::from(n.max(1).ilog2())
}

/// Five hours. Sums of many cannot overflow.
pub(crate) const STREAM_MAX_NS: u64 = 1 << 44;

/// A rank that waits longer than so many wake-up latencies has gone to sleep.
pub(crate) const SPINS: u64 = 10;

/// Time to begin a copy.
const COPY_NS: u64 = 20;

/// Minimum length of a segment in bytes: shorter ones are not worth their messages.
const SEGMENT_LEAST: u64 = 8 << 10;

/// Maximum number of segments: more hide nothing more.
const SEGMENTS_MOST: u64 = 64;

/// Maximum number of nodes for direct long messages: a rank would need too many connections.
const STRAIGHT_NODES_MOST: u64 = 64;

/// Maximum number of ranks for a butterfly: every rank needs memory for all operands.
const BUTTERFLY_MOST: u64 = 64;

/// Cost of a wait for each rank that runs in the meantime: it finds nothing and yields the core.
const YIELD_NS: u64 = 1_000;

/// Time to find that a rank has posted.
pub(crate) const LINE_NS: u64 = 30;
