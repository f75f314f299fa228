//! Predicted times of calls between sites.

use super::{LevelCost, Model, Shape, segments_of};
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
        let Shape { ranks, node_ranks, site_ranks, site_nodes, sites, has_leaders, .. } =
            self.shape;
        let bytes = call.bytes;
        let crossing = self.crossed_ns(root_site, 0, |_, _| 0);
        let legs = self.star_ns(0) + if site_nodes > 1 { self.far.hop_ns(0) } else { 0 };
        let foreign = ranks - site_ranks;
        // Bytes from one site to another, and bytes that a node sends or receives for crossings.
        // During the crossing, data from and to the own site pass as well.
        let near = site_ranks - node_ranks;
        let streams = |between: &dyn Fn(u64, u64) -> u64, blocks: u64| {
            let far = |blocks: u64| self.far.stream_ns(blocks.saturating_mul(bytes));
            let between = |from, to| between(from, to).saturating_mul(bytes);
            let crossed = self.crossed_ns(root_site, far(blocks * foreign), between);
            crossed.max(far(blocks * (foreign + near)))
        };
        let of_site = |from: u64, _: u64| from;
        let of_pairs = |from: u64, to: u64| from * to;
        // Data of all by leaders of sites, each of which sends `sent` bytes within its site; or the
        // time by relays.
        let whole = |told: Option<u64>, sent: u64| {
            let sent_ns = self.far.stream_ns(sent);
            let straight = || self.crossed_ns(root_site, sent_ns, |_, _| bytes);
            told.map_or_else(straight, |delivered_ns| delivered_ns.max(sent_ns) + self.wake_ns)
        };
        // Each node is leader of a part of cut data, as long as there are segments for it.
        let segments = self.cuts(call);
        let leaders = segments.min(site_nodes);
        let spread = |load| self.crossings.spread_ns(root_site, bytes, segments, load);
        // Data by relays, each of which sends to all other sites: the last segment follows the
        // node's other ones.
        let past = |crossings_ns: u64, turns: u64, sent: u64| {
            let stream_ns = self.far.stream_ns(bytes);
            let cuts = rotated_segments(segments, turns, stream_ns, self.far.work_ns, bytes);
            crossings_ns + self.far.stream_ns(sent) + (turns + site_nodes - 2) * stream_ns / cuts
        };
        let reduced = |told: Option<u64>, sent: u64| {
            whole(told, sent) + 2 * legs + 2 * (sites - 1) * self.wide.work_ns
        };
        Some(match call.operation {
            Operation::Barrier => match Barrier::named(algorithm)? {
                Barrier::Multisite => crossing + 2 * legs + 2 * (sites - 1) * self.wide.work_ns,
                Barrier::Linear
                | Barrier::Dissemination
                | Barrier::Tournament
                | Barrier::Leaders
                | Barrier::Hierarchical
                | Barrier::Shmem => return None,
            },
            Operation::Broadcast => match Broadcast::named(algorithm)? {
                Broadcast::Multisite => {
                    // The nodes of the root's site, without its own if there are others, send to
                    // other sites and to each other.
                    let others = leaders.min(site_nodes - 1).max(1);
                    let passed = (sites - 1 + site_nodes.saturating_sub(2)) * bytes / others;
                    let sent = passed.max((site_nodes - 1) * bytes / leaders);
                    let told = || self.crossings.rooted_ns(root_site, bytes, Load::One);
                    legs + match spread(Load::One) {
                        Some(crossings_ns) => {
                            past(crossings_ns, sites - 1, site_nodes * bytes / leaders)
                        }
                        None => whole(told(), sent),
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
            },
            Operation::Gather | Operation::Scatter => match Gather::named(algorithm)? {
                Gather::Linear => streams(&of_site, 1) + ranks * self.far.work_ns,
                Gather::Aggregated => {
                    let aggregate = self.far.stream_ns(bytes.saturating_mul(site_ranks));
                    let legs = 2 * self.far.latency_ns + 2 * aggregate;
                    streams(&of_site, 1)
                        + legs
                        + if has_leaders { self.blocks_ns(bytes) } else { 0 }
                }
                Gather::Binomial | Gather::Leaders | Gather::Shmem => return None,
            },
            Operation::Allgather => match Allgather::named(algorithm)? {
                Allgather::Aggregated => {
                    let near = || self.blocks_ns(bytes) + self.star_ns(ranks * bytes);
                    let near = if has_leaders { near() } else { 0 };
                    streams(&of_site, 1) + 3 * self.far.stream_ns(ranks * bytes) + near
                }
                Allgather::Multisite => {
                    let told = self.crossings.delivered_ns(
                        |ranks| ranks.saturating_mul(bytes),
                        Load::One,
                        Receivers::All,
                    );
                    let far_ns = self.far.stream_ns((foreign + near).saturating_mul(bytes));
                    let straight = || streams(&of_site, 1);
                    told.map_or_else(straight, |delivered_ns| {
                        delivered_ns.max(far_ns) + self.wake_ns
                    }) + 2 * ranks * self.far.work_ns
                }
                Allgather::Linear
                | Allgather::Pairwise
                | Allgather::Bruck
                | Allgather::Ring
                | Allgather::Leaders
                | Allgather::Hierarchical
                | Allgather::Shmem => return None,
            },
            Operation::Alltoall => match Alltoall::named(algorithm)? {
                Alltoall::Pairwise => {
                    let streams = streams(&of_pairs, node_ranks);
                    streams + 2 * foreign * self.far.work_ns
                }
                Alltoall::Aggregated if call.is_uniform => {
                    let aggregate = self.far.stream_ns(bytes.saturating_mul(site_ranks * foreign));
                    let legs = self.far.latency_ns + site_ranks * self.far.work_ns + aggregate;
                    let streams = streams(&of_pairs, node_ranks);
                    streams + 2 * legs
                }
                Alltoall::Aggregated | Alltoall::Bruck | Alltoall::Leaders | Alltoall::Shmem => {
                    return None;
                }
            },
            Operation::Reduce => match Reduce::named(algorithm)? {
                Reduce::Multisite => {
                    let load = Load::of_operands(call.is_exact);
                    let sent = |others| {
                        let root_intake = root_intake(site_nodes, others).0 * bytes / 100;
                        root_intake.max((site_nodes - 1) * bytes / leaders)
                    };
                    let told = || self.crossings.rooted_ns(root_site, bytes, load);
                    match spread(load) {
                        Some(crossings_ns) if load == Load::One => {
                            2 * legs + past(crossings_ns, sites - 1, sent(1))
                        }
                        Some(crossings_ns) => 2 * legs + past(crossings_ns, sites, sent(2)),
                        None => reduced(told(), sent(sites - 1)),
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
            },
            Operation::Allreduce => match Allreduce::named(algorithm)? {
                Allreduce::Multisite => {
                    let operands = bytes - bytes / site_nodes;
                    let within = operands + (site_nodes - 1) * bytes / leaders;
                    let told = || self.crossings.delivered_ns(|_| bytes, Load::One, Receivers::All);
                    match self.crossings.met_ns(bytes, segments) {
                        Some(crossings_ns) => {
                            let sent = within + 2 * (sites - 1) * bytes / sites / leaders;
                            2 * legs + past(crossings_ns, sites, sent)
                        }
                        None => reduced(told(), within + (sites - 1) * bytes / leaders),
                    }
                }
                Allreduce::Linear
                | Allreduce::Pairwise
                | Allreduce::Doubling
                | Allreduce::Butterfly
                | Allreduce::Halving
                | Allreduce::Ring
                | Allreduce::Leaders
                | Allreduce::Hierarchical
                | Allreduce::Shmem => return None,
            },
            Operation::ReduceScatter => match ReduceScatter::named(algorithm)? {
                ReduceScatter::Multisite => {
                    let sent =
                        bytes - bytes / site_nodes + (sites - 1) * bytes / (sites * site_nodes);
                    let work = 2 * foreign.min(call.units) * self.wide.work_ns / site_ranks.max(1);
                    let load = Load::of_operands(call.is_exact);
                    let of_site = |its: u64| bytes.saturating_mul(its) / ranks;
                    let told = self.crossings.delivered_ns(of_site, load, Receivers::All);
                    let sent_ns = self.far.stream_ns(sent);
                    let straight = || self.crossed_ns(root_site, sent_ns, |_, _| bytes / sites);
                    let past = |delivered_ns: u64| delivered_ns.max(sent_ns) + self.wake_ns;
                    2 * legs + work + told.map_or_else(straight, past)
                }
                ReduceScatter::Pairwise
                | ReduceScatter::Binomial
                | ReduceScatter::Ring
                | ReduceScatter::Leaders
                | ReduceScatter::Shmem => return None,
            },
            Operation::Scan | Operation::Exscan => match Prefix::named(algorithm)? {
                Prefix::Multisite => {
                    // The leader of a site receives the runs of its nodes, and returns the prefix
                    // below each.
                    let Shape { node_runs, site_runs, .. } = self.shape;
                    let runs = node_runs * (site_nodes - 1);
                    let sent = (2 * runs + site_runs * (sites - 1)) * bytes / leaders;
                    let work = 2 * (runs + site_runs * sites) * self.far.work_ns;
                    let (crosses, receivers) = (site_runs * bytes, Receivers::of_runs(site_runs));
                    2 * legs
                        + work
                        + whole(
                            self.crossings.delivered_ns(|_| crosses, Load::One, receivers),
                            sent,
                        )
                }
                Prefix::Doubling | Prefix::Chain | Prefix::Leaders | Prefix::Shmem => return None,
            },
        })
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
        let Shape { nodes, node_ranks, is_in_order, .. } = self.shape;
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
