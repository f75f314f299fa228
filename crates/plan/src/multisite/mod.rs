//! Operations over several sites. No datum crosses between two sites twice, and nothing waits for
//! more than one crossing, or for two if that is much faster. Two crossings are faster with a relay
//! past a bad link. They are also faster with another relay site for each segment of long data: one
//! site then does not send all of them to every other ([`Relays`](crate::crossings::Relays)).
//!
//! Every node has a *leader*, and every site has one among the leaders of its nodes. A rank's data
//! go to its node's leader and from there to the site's leader, which exchanges them with all other
//! sites' leaders at once. Received data return the same way (Kielmann et al., MagPIe, 1999;
//! Karonis et al., MPICH-G2, 2000). Long data are cut in segments, each with leaders of its own, so
//! that all nodes and many connections work at once (Matsuda et al. 2006). Segments are on all hops
//! at the same time.
//!
//! A rank first begins all its receives and then sends whatever is complete. Both follow one order
//! that all ranks share ([`timetable`]): the expected time of each hop of each segment. So messages
//! between two ranks match in order. No rank waits for anything later in that order, so nothing can
//! deadlock, even if no message leaves before its receive has begun.

pub(crate) mod aggregated;
pub(crate) mod barrier;
pub(crate) mod broadcast;
pub(crate) mod exchange;
pub(crate) mod prefix;
pub(crate) mod reduction;

use crate::costs::Costs;
use crate::crossings::{Load, Routes};
use crate::schedule::part;
use crate::topology::{Grid, Levels};

/// The leaders of nodes and sites for one segment.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub levels: &'a Levels,
    /// Index of the leader: neighbouring indices lead through different nodes.
    pub leader_index: u32,
    pub root_role: RootRole,
}

/// Leadership of a root, at any leader index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootRole {
    /// There is no root, or it has no special role.
    None,
    /// Leads its node and its site: short data take no additional hop.
    Site(u32),
    /// Leads its node; the leaders of its site are on other nodes, if there are any. Long data then
    /// leave the root's node once, and the others pass them to other sites and to each other.
    Node(u32),
    /// Leads nothing, and the leaders of its site are on other nodes, if there are any. Data of all
    /// then arrive at its node once.
    Beside(u32),
}

impl Route<'_> {
    pub(crate) fn node_leader(&self, node: u32) -> u32 {
        if let RootRole::Site(root) | RootRole::Node(root) = self.root_role
            && self.levels.node(root) == node
        {
            return root;
        }
        let ranks = self.levels.ranks_of_node(node);
        let nodes = self.levels.nodes_of(self.levels.site_of_node(node)).len();
        ranks[self.leader_index as usize / nodes % ranks.len()]
    }

    pub(crate) fn site_leader(&self, site: u32) -> u32 {
        let nodes = self.levels.nodes_of(site);
        let count = nodes.len() as u32;
        match self.root_role {
            RootRole::Site(root) if self.levels.site(root) == site => root,
            RootRole::Node(root) | RootRole::Beside(root)
                if self.levels.site(root) == site && count > 1 =>
            {
                let own = self.levels.node(root);
                let node = nodes.start + self.leader_index % (count - 1);
                self.node_leader(node + u32::from(node >= own))
            }
            RootRole::None | RootRole::Site(_) | RootRole::Node(_) | RootRole::Beside(_) => {
                self.node_leader(nodes.start + self.leader_index % count)
            }
        }
    }

    /// Returns the leader of a rank's node.
    pub(crate) fn leader_of(&self, rank: u32) -> u32 {
        self.node_leader(self.levels.node(rank))
    }

    /// Returns that leader's position among the ranks of the node.
    pub(crate) fn leader_position(&self, rank: u32) -> u32 {
        let node = self.levels.node(rank);
        self.levels.place(self.node_leader(node)) - self.levels.places_of_node(node).0
    }

    /// Returns the leader of a rank's site.
    pub(crate) fn site_leader_of(&self, rank: u32) -> u32 {
        self.site_leader(self.levels.site(rank))
    }

    /// Returns the other ranks on a rank's node.
    pub(crate) fn neighbours(&self, rank: u32) -> impl Iterator<Item = u32> {
        let ranks = self.levels.ranks_of_node(self.levels.node(rank)).iter().copied();
        ranks.filter(move |&other| other != rank)
    }

    /// Returns the other nodes in a rank's site.
    pub(crate) fn other_nodes(&self, rank: u32) -> impl Iterator<Item = u32> {
        let own = self.levels.node(rank);
        self.levels.nodes_of(self.levels.site(rank)).filter(move |&node| node != own)
    }

    /// Returns the other sites from the next one on. Sites send in this order, so that not all send
    /// to one at a time.
    pub(crate) fn next_sites(&self, rank: u32) -> impl Iterator<Item = u32> {
        let (own, count) = (self.levels.site(rank), self.levels.sites());
        (1..count).map(move |distance| (own + distance) % count)
    }

    /// Returns the other sites in ascending order.
    pub(crate) fn other_sites(&self, rank: u32) -> impl Iterator<Item = u32> {
        let own = self.levels.site(rank);
        (0..self.levels.sites()).filter(move |&site| site != own)
    }
}

/// Data in segments.
#[derive(Clone, Copy)]
pub(crate) struct Cuts {
    len: u64,
    pub count: u32,
}

impl Cuts {
    /// Cuts `len` units of `unit` bytes into the number of segments with the earliest predicted
    /// arrival ([`segments`]).
    pub(crate) fn new(len: u64, unit: u64, sites: &Grid) -> Self {
        let Costs { site, wide, .. } = sites.costs;
        let bytes = len.saturating_mul(unit);
        let streams_ns = [wide, site].map(|route| route.stream_ns(bytes));
        let nodes = u64::from(sites.nodes_most);
        let count = segments(streams_ns, nodes, site.overhead_ns, bytes).min(len.max(1));
        Self { len, count: count as u32 }
    }

    /// Cuts data, and returns the relays of the segments of site `root`'s broadcast or reduction,
    /// or of an exchange among all without a root.
    pub(crate) fn routed(
        len: u64,
        unit: u64,
        sites: &Grid,
        root: Option<u32>,
        load: Load,
    ) -> (Self, Routes) {
        let cuts = Self::new(len, unit, sites);
        let bytes = len.saturating_mul(unit);
        let routes = sites.crossings.routes_of(root, bytes, cuts.count.into(), load);
        // Each relay site sends to all others, and gets as many segments.
        let Some(rotation) = routes.rotation() else { return (cuts, routes) };
        let Costs { site, wide, .. } = sites.costs;
        let (least, rotation) = (u64::from(cuts.count), u64::from(rotation));
        let count = match sites.crossings.are_nodes() {
            true => among_nodes(least, rotation, bytes),
            false => {
                rotated_segments(least, rotation, wide.stream_ns(bytes), site.overhead_ns, bytes)
            }
        };
        (Self { count: count.min(len) as u32, ..cuts }, routes)
    }

    /// Cuts one of as many blocks as there are ranks, which all travel at once.
    pub(crate) fn among(ranks: u32, len: u64, unit: u64, costs: &Costs) -> Self {
        let bytes = len.saturating_mul(unit);
        let stream_ns = costs.wide.stream_ns(bytes.saturating_mul(u64::from(ranks)));
        let best = best([stream_ns, 0], 1, costs.site.overhead_ns) / u64::from(ranks);
        let most = (bytes / SEGMENT_LEAST).min(len).min(SEGMENTS_MOST);
        Self { len, count: best.min(most).max(1) as u32 }
    }

    /// Returns the levels that the segments pass through.
    pub(crate) fn levels<'a>(&self, sites: &'a Grid) -> &'a Levels {
        if self.count == 1 { &sites.short } else { &sites.long }
    }

    /// Returns the start and length of a segment.
    pub(crate) fn segment(&self, index: u32) -> (u64, u64) {
        part(self.len, self.count, index)
    }

    /// Returns the delays between the hops of a segment.
    pub(crate) fn in_flight(&self, unit: u64, sites: &Grid) -> InFlight {
        let bytes = (self.len / u64::from(self.count)).saturating_mul(unit);
        let segment_ns = sites.costs.wide.stream_ns(bytes).max(1);
        // A rank that waits for data not yet there delays all its later sends by up to a crossing.
        // One that waits later than possible loses less. So the estimate allows links twice as
        // fast.
        let crossing = (2 * sites.costs.wide.latency_ns / segment_ns).min(SEGMENTS_MOST) as u32;
        InFlight { crossing, nodes: sites.nodes_most }
    }
}

/// Delays between hops, counted in segments that follow each other into a link.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    /// Segments in flight between sites.
    pub crossing: u32,
    /// Segments that a leader receives in the time of one, from all nodes of its site.
    pub nodes: u32,
}

/// Returns the leader index of segment `index`.
pub(crate) fn leader_index(index: u32, sites: &Grid) -> u32 {
    index % LEADER_PAIRS_MAX.max(sites.nodes_most)
}

/// Returns the number of segments with which so many bytes arrive earliest, given the transfer
/// times between sites and into one of a site's `nodes` nodes. With `n` segments of a stream of
/// time `t` over a path of `h` hops the last arrives `t + (h − 1)·t/n` after the first leaves. Each
/// of as many leaders gives its share `s/n` to all `k − 1` other nodes of the site. Each segment
/// also takes the work of some messages. The best `n` is `√(((h − 1)·t + (k − 1)·s)/work)`.
pub(crate) fn segments(streams_ns: [u64; 2], nodes: u64, work_ns: u64, bytes: u64) -> u64 {
    let most = (bytes / SEGMENT_LEAST).max(nodes.min(bytes / SHARE_LEAST));
    best(streams_ns, nodes, work_ns).min(most).clamp(1, SEGMENTS_MOST)
}

/// Returns the number of segments, at least `least`, if so many relay sites rotate.
pub(crate) fn rotated_segments(
    least: u64,
    rotation: u64,
    stream_ns: u64,
    work_ns: u64,
    bytes: u64,
) -> u64 {
    let best = best([stream_ns.saturating_mul(rotation), 0], 1, work_ns);
    let count = best.min(bytes / SEGMENT_LEAST).clamp(least, SEGMENTS_MOST);
    (count / rotation * rotation).max(least)
}

/// Returns the same for nodes of a site that rotate: one for each, up to `most`, or as many as are
/// worth their messages.
fn among_nodes(most: u64, rotation: u64, bytes: u64) -> u64 {
    let least = rotation.min(most);
    let count = (bytes / NODE_SEGMENT_LEAST).clamp(least, SEGMENTS_MOST);
    (count / rotation * rotation).max(least)
}

fn best([wide_ns, site_ns]: [u64; 2], nodes: u64, work_ns: u64) -> u64 {
    let legs_ns = (LEGS - 1).saturating_mul(wide_ns);
    let shares_ns = nodes.saturating_sub(1).saturating_mul(site_ns);
    (legs_ns.saturating_add(shares_ns) / (SEGMENT_MESSAGES * work_ns).max(1)).isqrt()
}

/// Returns all stages of all transfers in the order in which they are due. Transfer `c` begins at
/// `begins[c]`, and its stage `s` is `delays[s]` later, in segments, plus the value of `later` for
/// this rank's site. All ranks that exchange messages of a stage agree on that.
pub(crate) fn timetable(
    begins: &[u32],
    delays: &[u32],
    later: impl Fn(usize, usize) -> u32,
) -> Vec<(usize, usize)> {
    let due =
        |stage: usize, transfer: usize| begins[transfer] + delays[stage] + later(stage, transfer);
    let stages = (0..delays.len()).flat_map(|stage| (0..begins.len()).map(move |one| (stage, one)));
    let mut all: Vec<(usize, usize)> = stages.collect();
    all.sort_by_key(|&(stage, transfer)| (due(stage, transfer), stage, transfer));
    all
}

/// Hops of a path: within the node, within the site, between sites, and back.
const LEGS: u64 = 4;

/// Work of a segment on the path, in messages.
const SEGMENT_MESSAGES: u64 = 10;

/// Minimum length of a segment in bytes: shorter ones are not worth their messages.
const SEGMENT_LEAST: u64 = 8 << 10;

/// Minimum length if nodes rotate: each segment goes over the network twice.
const NODE_SEGMENT_LEAST: u64 = 16 << 10;

/// Minimum length of a share that is sent to all nodes of a site.
const SHARE_LEAST: u64 = 2 << 10;

/// Maximum number of segments: more hide nothing more.
const SEGMENTS_MOST: u64 = 64;

/// Maximum number of rank pairs that exchange the data of two sites, unless a site has more nodes.
/// Each pair needs a connection.
pub(crate) const LEADER_PAIRS_MAX: u32 = 16;
