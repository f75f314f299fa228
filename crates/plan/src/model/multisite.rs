//! Predicted times of calls between sites.

use super::{LevelCost, Model, RankCounts, segments_of};
use crate::catalogue::{
    Allgather, Allreduce, Alltoall, Barrier, Broadcast, Catalogue, Gather, Prefix, Reduce,
    ReduceScatter,
};
use crate::choice::{Algorithm, Call, Operation};
use crate::crossings::{Crossing, Load, Receivers};
use crate::multisite::{reduction::root_intake, rotated_segments, segments};

impl Model {
    /// Predicts operations over several sites: the crossing, and the terms in which their
    /// algorithms differ.
    pub(super) fn multisite_ns(
        &self,
        call: &Call,
        algorithm: Algorithm,
        root_site: Option<u32>,
    ) -> Option<u64> {
        let sites = SiteCall::new(self, call, root_site);
        match call.operation {
            Operation::Barrier => sites.barrier_ns(Barrier::named(algorithm)?),
            Operation::Broadcast => sites.broadcast_ns(Broadcast::named(algorithm)?),
            Operation::Gather | Operation::Scatter => sites.gather_ns(Gather::named(algorithm)?),
            Operation::Allgather => sites.allgather_ns(Allgather::named(algorithm)?),
            Operation::Alltoall => sites.alltoall_ns(Alltoall::named(algorithm)?),
            Operation::Reduce => sites.reduce_ns(Reduce::named(algorithm)?),
            Operation::Allreduce => sites.allreduce_ns(Allreduce::named(algorithm)?),
            Operation::ReduceScatter => sites.reduce_scatter_ns(ReduceScatter::named(algorithm)?),
            Operation::Scan | Operation::Exscan => sites.prefix_ns(Prefix::named(algorithm)?),
        }
    }

    /// Returns the number of segments for data of all, or for all, by leaders.
    pub(super) fn cuts(&self, call: &Call) -> u64 {
        // Nodes of one site take the place of sites.
        let (wide, site, nodes) = match self.shape.sites {
            1 => (self.far, self.near, 1),
            _ => (self.wide, self.far, self.shape.site_nodes),
        };
        let streams_ns = [wide, site].map(|level| level.stream_ns(call.bytes));
        let most = segments(streams_ns, nodes, site.work_ns, call.bytes);
        most.min(call.units.max(1))
    }

    /// Returns the longest crossing between two sites, or between others and `root_site`. `bytes`
    /// gives the bytes from one to another by their numbers of ranks. `meanwhile_ns` is the time of
    /// other work in parallel.
    fn crossed_ns(
        &self,
        root_site: Option<u32>,
        meanwhile_ns: u64,
        bytes: impl Fn(u64, u64) -> u64,
    ) -> u64 {
        let crossed = |Crossing { cost, from_ranks, to_ranks }| {
            let level = LevelCost::of(cost);
            level.hop_ns(0) + level.stream_ns(bytes(from_ranks, to_ranks)).max(meanwhile_ns)
        };
        let all = self.crossings.all(self.shape.site_ranks, root_site);
        all.map(crossed).max().unwrap_or(0) + self.wake_ns
    }

    /// Predicts a reduction by leaders: ranks to their leader, each leader to all others or to one,
    /// and back if all get the result.
    pub(super) fn leaders_reduce_ns(&self, call: &Call, to_all: bool) -> u64 {
        let RankCounts { nodes, node_ranks, is_in_order, .. } = self.shape;
        let bytes = call.bytes;
        let runs = if call.commutes || is_in_order { 1 } else { node_ranks };
        let legs = self.star_ns(0) * if to_all { 2 } else { 1 };
        let within = self.star_stream_ns(bytes) * if to_all { 2 } else { 1 };
        // Each node combines a part for the others: its operands leave it once, and its part of the
        // result goes to all.
        let segments = self.cuts(call);
        let met = || self.crossings.met_ns(bytes, segments);
        let (hops_ns, crossing, operands) = match to_all.then(met).flatten() {
            Some(hops_ns) => {
                let parts = segments.min(nodes);
                let sent = bytes.saturating_mul((parts - 1) * runs + nodes - 1);
                (hops_ns, self.far.stream_ns(sent / parts), runs)
            }
            None => {
                let crossing = self.far.stream_ns((nodes - 1) * runs * bytes);
                (self.far.hop_ns(0), crossing, nodes * runs)
            }
        };
        let combined = (node_ranks + operands + 1) * self.compute_ns(bytes);
        let work = (nodes - 1) * runs * self.far.work_ns * if to_all { 2 } else { 1 };
        self.piped_ns(bytes, legs + hops_ns, crossing, (within, combined)) + work
    }

    /// Returns the time of two streams behind each other, between nodes and within them, with the
    /// leaders' combining. Segments of long data overlap, and each has another leader: every rank
    /// then both sends and receives.
    pub(super) fn piped_ns(
        &self,
        bytes: u64,
        latencies: u64,
        between: u64,
        within: (u64, u64),
    ) -> u64 {
        let segments = segments_of(bytes);
        let leaders = segments.min(self.shape.node_ranks);
        let within = (within.0 * leaders.min(2) + within.1) / leaders;
        latencies + between.max(within) + between.min(within) / segments
    }
}

/// A call over several sites.
struct SiteCall<'a> {
    model: &'a Model,
    call: &'a Call,
    shape: RankCounts,
    root_site: Option<u32>,
    bytes: u64,
    /// Ranks outside the largest site.
    foreign: u64,
    /// Ranks of a site on other nodes.
    near: u64,
    /// Time from ranks to the leader of their site.
    hops_ns: u64,
    segments: u64,
    /// Nodes that lead a part of cut data each, as long as there are segments for them.
    leaders: u64,
}

impl<'a> SiteCall<'a> {
    fn new(model: &'a Model, call: &'a Call, root_site: Option<u32>) -> Self {
        let shape = model.shape;
        let RankCounts { ranks, node_ranks, site_ranks, site_nodes, .. } = shape;
        let (foreign, near) = (ranks - site_ranks, site_ranks - node_ranks);
        let hops_ns = model.star_ns(0) + if site_nodes > 1 { model.far.hop_ns(0) } else { 0 };
        let segments = model.cuts(call);
        let (leaders, bytes) = (segments.min(site_nodes), call.bytes);
        Self { model, call, shape, root_site, bytes, foreign, near, hops_ns, segments, leaders }
    }

    fn barrier_ns(&self, algorithm: Barrier) -> Option<u64> {
        let Self { model, hops_ns, .. } = *self;
        Some(match algorithm {
            Barrier::Multisite => {
                let crossing = model.crossed_ns(self.root_site, 0, |_, _| 0);
                crossing + 2 * hops_ns + 2 * (self.shape.sites - 1) * model.wide.work_ns
            }
            Barrier::Linear
            | Barrier::Dissemination
            | Barrier::Tournament
            | Barrier::Leaders
            | Barrier::Hierarchical
            | Barrier::Shmem => return None,
        })
    }

    fn broadcast_ns(&self, algorithm: Broadcast) -> Option<u64> {
        let Self { model, bytes, leaders, .. } = *self;
        let RankCounts { sites, site_nodes, .. } = self.shape;
        Some(match algorithm {
            Broadcast::Multisite => {
                // The nodes of the root's site, without its own if there are others, send to other
                // sites and to each other.
                let others = leaders.min(site_nodes - 1).max(1);
                let passed = (sites - 1 + site_nodes.saturating_sub(2)) * bytes / others;
                let sent = passed.max((site_nodes - 1) * bytes / leaders);
                let delivered = || model.crossings.rooted_ns(self.root_site, bytes, Load::One);
                self.hops_ns
                    + match self.spread_ns(Load::One) {
                        Some(crossings_ns) => {
                            let sent = site_nodes * bytes / leaders;
                            self.relayed_ns(crossings_ns, sites - 1, sent)
                        }
                        None => self.whole_ns(delivered(), sent),
                    }
            }
            Broadcast::Linear
            | Broadcast::Binomial
            | Broadcast::Chain
            | Broadcast::TwoTree
            | Broadcast::VanDeGeijn
            | Broadcast::Leaders
            | Broadcast::Hierarchical
            | Broadcast::Shmem => return None,
        })
    }

    fn gather_ns(&self, algorithm: Gather) -> Option<u64> {
        let Self { model, bytes, .. } = *self;
        let RankCounts { ranks, site_ranks, has_leaders, .. } = self.shape;
        Some(match algorithm {
            Gather::Linear => self.streams_ns(&of_site, 1) + ranks * model.far.work_ns,
            Gather::Aggregated => {
                let aggregate = model.far.stream_ns(bytes.saturating_mul(site_ranks));
                let hops_ns = 2 * model.far.latency_ns + 2 * aggregate;
                let near = if has_leaders { model.blocks_ns(bytes) } else { 0 };
                self.streams_ns(&of_site, 1) + hops_ns + near
            }
            Gather::Binomial | Gather::Leaders | Gather::Shmem => return None,
        })
    }

    fn allgather_ns(&self, algorithm: Allgather) -> Option<u64> {
        let Self { model, bytes, foreign, near, .. } = *self;
        let RankCounts { ranks, has_leaders, .. } = self.shape;
        Some(match algorithm {
            Allgather::Aggregated => {
                let near = || model.blocks_ns(bytes) + model.star_ns(ranks * bytes);
                let near = if has_leaders { near() } else { 0 };
                self.streams_ns(&of_site, 1) + 3 * model.far.stream_ns(ranks * bytes) + near
            }
            Allgather::Multisite => {
                let blocks = |ranks: u64| ranks.saturating_mul(bytes);
                let delivered = model.crossings.delivered_ns(blocks, Load::One, Receivers::All);
                let far_ns = model.far.stream_ns((foreign + near).saturating_mul(bytes));
                let relayed = |delivered_ns: u64| delivered_ns.max(far_ns) + model.wake_ns;
                let exchanged = delivered.map(relayed);
                exchanged.unwrap_or_else(|| self.streams_ns(&of_site, 1))
                    + 2 * ranks * model.far.work_ns
            }
            Allgather::Linear
            | Allgather::Pairwise
            | Allgather::Bruck
            | Allgather::Ring
            | Allgather::Tournament
            | Allgather::Leaders
            | Allgather::Hierarchical
            | Allgather::Shmem => return None,
        })
    }

    fn alltoall_ns(&self, algorithm: Alltoall) -> Option<u64> {
        let Self { model, bytes, foreign, .. } = *self;
        let RankCounts { node_ranks, site_ranks, .. } = self.shape;
        let of_pairs = |from: u64, to: u64| from * to;
        Some(match algorithm {
            Alltoall::Pairwise => {
                self.streams_ns(&of_pairs, node_ranks) + 2 * foreign * model.far.work_ns
            }
            Alltoall::Aggregated if self.call.is_uniform => {
                let aggregate = model.far.stream_ns(bytes.saturating_mul(site_ranks * foreign));
                let hops_ns = model.far.latency_ns + site_ranks * model.far.work_ns + aggregate;
                self.streams_ns(&of_pairs, node_ranks) + 2 * hops_ns
            }
            Alltoall::Aggregated | Alltoall::Bruck | Alltoall::Leaders | Alltoall::Shmem => {
                return None;
            }
        })
    }

    fn reduce_ns(&self, algorithm: Reduce) -> Option<u64> {
        let Self { model, bytes, hops_ns, .. } = *self;
        let RankCounts { sites, site_nodes, .. } = self.shape;
        Some(match algorithm {
            Reduce::Multisite => {
                let load = Load::of_operands(self.call.is_exact);
                let sent = |others| {
                    let root_intake = root_intake(site_nodes, others).0 * bytes / 100;
                    root_intake.max((site_nodes - 1) * bytes / self.leaders)
                };
                let delivered = || model.crossings.rooted_ns(self.root_site, bytes, load);
                match self.spread_ns(load) {
                    Some(crossings_ns) if load == Load::One => {
                        2 * hops_ns + self.relayed_ns(crossings_ns, sites - 1, sent(1))
                    }
                    Some(crossings_ns) => {
                        2 * hops_ns + self.relayed_ns(crossings_ns, sites, sent(2))
                    }
                    None => self.reduced_ns(delivered(), sent(sites - 1)),
                }
            }
            Reduce::Linear
            | Reduce::Pairwise
            | Reduce::Binomial
            | Reduce::Chain
            | Reduce::TwoTree
            | Reduce::Ring
            | Reduce::Leaders
            | Reduce::Hierarchical
            | Reduce::Shmem => return None,
        })
    }

    fn allreduce_ns(&self, algorithm: Allreduce) -> Option<u64> {
        let Self { model, bytes, leaders, .. } = *self;
        let RankCounts { sites, site_nodes, .. } = self.shape;
        Some(match algorithm {
            Allreduce::Multisite => {
                let operands = bytes - bytes / site_nodes;
                let within = operands + (site_nodes - 1) * bytes / leaders;
                let crossings = &model.crossings;
                let delivered = || crossings.delivered_ns(|_| bytes, Load::One, Receivers::All);
                match crossings.met_ns(bytes, self.segments) {
                    Some(crossings_ns) => {
                        let sent = within + 2 * (sites - 1) * bytes / sites / leaders;
                        2 * self.hops_ns + self.relayed_ns(crossings_ns, sites, sent)
                    }
                    None => self.reduced_ns(delivered(), within + (sites - 1) * bytes / leaders),
                }
            }
            Allreduce::Linear
            | Allreduce::Pairwise
            | Allreduce::Doubling
            | Allreduce::Butterfly
            | Allreduce::Halving
            | Allreduce::Ring
            | Allreduce::Tournament
            | Allreduce::Leaders
            | Allreduce::Hierarchical
            | Allreduce::Shmem => return None,
        })
    }

    fn reduce_scatter_ns(&self, algorithm: ReduceScatter) -> Option<u64> {
        let Self { model, bytes, .. } = *self;
        let RankCounts { ranks, sites, site_ranks, site_nodes, .. } = self.shape;
        Some(match algorithm {
            ReduceScatter::Multisite => {
                let sent = bytes - bytes / site_nodes + (sites - 1) * bytes / (sites * site_nodes);
                let blocks = self.foreign.min(self.call.units);
                let work = 2 * blocks * model.wide.work_ns / site_ranks.max(1);
                let load = Load::of_operands(self.call.is_exact);
                let of_site = |its: u64| bytes.saturating_mul(its) / ranks;
                let delivered = model.crossings.delivered_ns(of_site, load, Receivers::All);
                let sent_ns = model.far.stream_ns(sent);
                let straight = || model.crossed_ns(self.root_site, sent_ns, |_, _| bytes / sites);
                let relayed = |delivered_ns: u64| delivered_ns.max(sent_ns) + model.wake_ns;
                2 * self.hops_ns + work + delivered.map_or_else(straight, relayed)
            }
            ReduceScatter::Pairwise
            | ReduceScatter::Binomial
            | ReduceScatter::Ring
            | ReduceScatter::Leaders
            | ReduceScatter::Shmem => return None,
        })
    }

    fn prefix_ns(&self, algorithm: Prefix) -> Option<u64> {
        let Self { model, bytes, .. } = *self;
        let RankCounts { sites, site_nodes, node_runs, site_runs, .. } = self.shape;
        Some(match algorithm {
            Prefix::Multisite => {
                // The leader of a site receives the runs of its nodes, and returns the prefix below
                // each.
                let runs = node_runs * (site_nodes - 1);
                let sent = (2 * runs + site_runs * (sites - 1)) * bytes / self.leaders;
                let work = 2 * (runs + site_runs * sites) * model.far.work_ns;
                let (crosses, receivers) = (site_runs * bytes, Receivers::of_runs(site_runs));
                let delivered = model.crossings.delivered_ns(|_| crosses, Load::One, receivers);
                2 * self.hops_ns + work + self.whole_ns(delivered, sent)
            }
            Prefix::Doubling | Prefix::Chain | Prefix::Leaders | Prefix::Shmem => return None,
        })
    }

    /// Returns the time of blocks for other sites: `between` gives their number from one site to
    /// another by numbers of ranks, and a node sends or receives `blocks` per foreign rank. During
    /// the crossing, data from and to the own site pass as well.
    fn streams_ns(&self, between: &dyn Fn(u64, u64) -> u64, blocks: u64) -> u64 {
        let Self { model, bytes, foreign, near, .. } = *self;
        let far = |blocks: u64| model.far.stream_ns(blocks.saturating_mul(bytes));
        let between = |from, to| between(from, to).saturating_mul(bytes);
        let crossed = model.crossed_ns(self.root_site, far(blocks * foreign), between);
        crossed.max(far(blocks * (foreign + near)))
    }

    /// Returns the time of data of all by leaders of sites, each of which sends `sent` bytes within
    /// its site. If `delivered` gives a time by relays, that counts for the crossing.
    fn whole_ns(&self, delivered: Option<u64>, sent: u64) -> u64 {
        let Self { model, bytes, .. } = *self;
        let sent_ns = model.far.stream_ns(sent);
        let straight = || model.crossed_ns(self.root_site, sent_ns, |_, _| bytes);
        delivered.map_or_else(straight, |delivered_ns| delivered_ns.max(sent_ns) + model.wake_ns)
    }

    /// Returns the time of a reduction, to the leaders of sites and back.
    fn reduced_ns(&self, delivered: Option<u64>, sent: u64) -> u64 {
        let work = 2 * (self.shape.sites - 1) * self.model.wide.work_ns;
        self.whole_ns(delivered, sent) + 2 * self.hops_ns + work
    }

    /// Returns the latency of two crossings, if each segment has another relay.
    fn spread_ns(&self, load: Load) -> Option<u64> {
        self.model.crossings.spread_ns(self.root_site, self.bytes, self.segments, load)
    }

    /// Returns the time of data by `rotation` relays, each of which sends to all other sites. The
    /// last segment follows the node's other ones.
    fn relayed_ns(&self, crossings_ns: u64, rotation: u64, sent: u64) -> u64 {
        let Self { model, bytes, segments, .. } = *self;
        let stream_ns = model.far.stream_ns(bytes);
        let cuts = rotated_segments(segments, rotation, stream_ns, model.far.work_ns, bytes);
        let follows_ns = (rotation + self.shape.site_nodes - 2) * stream_ns / cuts;
        crossings_ns + model.far.stream_ns(sent) + follows_ns
    }
}

/// Blocks from one site to another, if each rank of the first sends one.
fn of_site(from_ranks: u64, _: u64) -> u64 {
    from_ranks
}
