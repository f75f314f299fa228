//! Operations over several sites: no datum crosses the distance between two sites twice, and nothing
//! waits for more than one crossing, or for two where that is much sooner: past a bad link, or where of long data each
//! segment goes by another site, so that not all leaves one as often as there are others
//! ([`Relays`](crate::crossings::Relays)).
//!
//! Every node has a *head*, and every site has one among the heads of its nodes. What the ranks of a node
//! have goes to its head, from there to the head of the site, which exchanges it with all other sites'
//! heads at once; what comes goes the same way back (Kielmann et al., MagPIe, 1999; Karonis et al.,
//! MPICH-G2, 2000). Long data are cut in segments, each with heads of its own, so that all nodes and many
//! connections work at once (Matsuda et al. 2006), and segments are on all legs of the way at the same
//! time.
//!
//! A rank first begins all its receives and then sends what is complete, both in one order that all ranks
//! share ([`timetable`]): by when each leg of each segment is expected to be due. So messages between two
//! ranks meet in order, and no rank waits for anything that comes later in that order: nothing can lock
//! up, even if no message leaves before its receive has begun.

pub(crate) mod aggregated;
pub(crate) mod barrier;
pub(crate) mod broadcast;
pub(crate) mod exchange;
pub(crate) mod prefix;
pub(crate) mod reduction;

use crate::costs::Costs;
use crate::crossings::{Load, Routes};
use crate::schedule::part;
use crate::topology::{Across, Levels};

/// Who is head of what, for one segment.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub levels: &'a Levels,
    /// Which of the possible heads: neighbouring lanes go through different nodes.
    pub lane: u32,
    pub pin: Pin,
}

/// What a root is the head of, whatever the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// There is no root, or it is as any other rank.
    None,
    /// Its node and its site: what is short takes no leg more than it must.
    Site(u32),
    /// Its node; the heads of its site are on other nodes, if there are others. What is long then leaves
    /// the root's node once, and the others pass it on both to other sites and to each other.
    Node(u32),
    /// Nothing, and the heads of its site are on other nodes, if there are others: what comes of all then comes to its
    /// node once.
    Beside(u32),
}

impl Way<'_> {
    pub(crate) fn node_head(&self, node: u32) -> u32 {
        if let Pin::Site(root) | Pin::Node(root) = self.pin
            && self.levels.node(root) == node
        {
            return root;
        }
        let ranks = self.levels.ranks_of_node(node);
        let nodes = self.levels.nodes_of(self.levels.site_of_node(node)).len();
        ranks[self.lane as usize / nodes % ranks.len()]
    }

    pub(crate) fn site_head(&self, site: u32) -> u32 {
        let nodes = self.levels.nodes_of(site);
        let count = nodes.len() as u32;
        match self.pin {
            Pin::Site(root) if self.levels.site(root) == site => root,
            Pin::Node(root) | Pin::Beside(root) if self.levels.site(root) == site && count > 1 => {
                let own = self.levels.node(root);
                let node = nodes.start + self.lane % (count - 1);
                self.node_head(node + u32::from(node >= own))
            }
            Pin::None | Pin::Site(_) | Pin::Node(_) | Pin::Beside(_) => {
                self.node_head(nodes.start + self.lane % count)
            }
        }
    }

    /// The head of a rank's node.
    pub(crate) fn head_of(&self, rank: u32) -> u32 {
        self.node_head(self.levels.node(rank))
    }

    /// Where that is among the ranks of the node.
    pub(crate) fn head_position(&self, rank: u32) -> u32 {
        let node = self.levels.node(rank);
        self.levels.place(self.node_head(node)) - self.levels.places_of_node(node).0
    }

    /// The head of a rank's site.
    pub(crate) fn site_head_of(&self, rank: u32) -> u32 {
        self.site_head(self.levels.site(rank))
    }

    /// The other ranks on a rank's node.
    pub(crate) fn neighbours(&self, rank: u32) -> impl Iterator<Item = u32> {
        let ranks = self.levels.ranks_of_node(self.levels.node(rank)).iter().copied();
        ranks.filter(move |&other| other != rank)
    }

    /// The other nodes in a rank's site.
    pub(crate) fn other_nodes(&self, rank: u32) -> impl Iterator<Item = u32> {
        let own = self.levels.node(rank);
        self.levels.nodes_of(self.levels.site(rank)).filter(move |&node| node != own)
    }

    /// The same from the next one on: in which order each sends to all, so that not all send to one at a time.
    pub(crate) fn next_sites(&self, rank: u32) -> impl Iterator<Item = u32> {
        let (own, count) = (self.levels.site(rank), self.levels.sites());
        (1..count).map(move |distance| (own + distance) % count)
    }

    /// The sites that a rank is not in.
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
    /// `len` units of `unit` bytes in as many segments as are predicted to arrive soonest ([`segments`]).
    pub(crate) fn new(len: u64, unit: u64, sites: &Across) -> Self {
        let Costs { site, wide, .. } = sites.costs;
        let bytes = len.saturating_mul(unit);
        let streams_ns = [wide, site].map(|way| way.stream_ns(bytes));
        let nodes = u64::from(sites.nodes_most);
        let count = segments(streams_ns, nodes, site.overhead_ns, bytes).min(len.max(1));
        Self { len, count: count as u32 }
    }

    /// The same, and by which sites the segments of what site `root` tells the others go, or of what it hears of them, or
    /// of what all do where there is none.
    pub(crate) fn routed(
        len: u64,
        unit: u64,
        sites: &Across,
        root: Option<u32>,
        load: Load,
    ) -> (Self, Routes) {
        let cuts = Self::new(len, unit, sites);
        let bytes = len.saturating_mul(unit);
        let routes = sites.crossings.routes_of(root, bytes, cuts.count.into(), load);
        // Each of the sites that pass on has to tell all others, and gets as many segments.
        let Some(turns) = routes.turns() else { return (cuts, routes) };
        let Costs { site, wide, .. } = sites.costs;
        let (least, turns) = (u64::from(cuts.count), u64::from(turns));
        let count = match sites.crossings.are_nodes() {
            true => among_nodes(least, turns, bytes),
            false => in_turns(least, turns, wide.stream_ns(bytes), site.overhead_ns, bytes),
        };
        (Self { count: count.min(len) as u32, ..cuts }, routes)
    }

    /// One of as many as there are ranks, which are all on their way at once.
    pub(crate) fn among(ranks: u32, len: u64, unit: u64, costs: &Costs) -> Self {
        let bytes = len.saturating_mul(unit);
        let stream_ns = costs.wide.stream_ns(bytes.saturating_mul(u64::from(ranks)));
        let best = best([stream_ns, 0], 1, costs.site.overhead_ns) / u64::from(ranks);
        let most = (bytes / SEGMENT_LEAST).min(len).min(SEGMENTS_MOST);
        Self { len, count: best.min(most).max(1) as u32 }
    }

    /// What the segments go through.
    pub(crate) fn levels<'a>(&self, sites: &'a Across) -> &'a Levels {
        if self.count == 1 { &sites.short } else { &sites.long }
    }

    /// Begin and length of a segment.
    pub(crate) fn segment(&self, index: u32) -> (u64, u64) {
        part(self.len, self.count, index)
    }

    /// How far apart the legs of a segment's way are.
    pub(crate) fn pace(&self, unit: u64, sites: &Across) -> Pace {
        let bytes = (self.len / u64::from(self.count)).saturating_mul(unit);
        let segment_ns = sites.costs.wide.stream_ns(bytes).max(1);
        // Who waits for what has not come yet holds up all that it has still to send, for as long as a
        // crossing; who waits later than it could loses less. So the links may be twice as fast.
        let crossing = (2 * sites.costs.wide.latency_ns / segment_ns).min(SEGMENTS_MOST) as u32;
        Pace { crossing, nodes: sites.nodes_most }
    }
}

/// When legs are due, counted in segments that follow each other into a link.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// How many are under way between sites.
    pub crossing: u32,
    /// How many a head takes in meanwhile of one segment, from all nodes of its site.
    pub nodes: u32,
}

/// The heads of segment `index`.
pub(crate) fn lane(index: u32, sites: &Across) -> u32 {
    index % LANES.max(sites.nodes_most)
}

/// In how many segments so many bytes arrive soonest that are so long on their way between sites, and into a node of
/// which a site has so many. With `n` segments of a stream of time `t` over a way of `h` legs the last arrives
/// `t + (h − 1)·t/n` after the first leaves; each of as many heads gives its share `s/n` to all `k − 1` other nodes of
/// the site; and each segment takes the work of some messages besides: the best `n` is
/// `√(((h − 1)·t + (k − 1)·s)/work)`.
pub(crate) fn segments(streams_ns: [u64; 2], nodes: u64, work_ns: u64, bytes: u64) -> u64 {
    let most = (bytes / SEGMENT_LEAST).max(nodes.min(bytes / SHARE_LEAST));
    best(streams_ns, nodes, work_ns).min(most).clamp(1, SEGMENTS_MOST)
}

/// In how many segments they go, not fewer than `least`, if so many sites take turns.
pub(crate) fn in_turns(least: u64, turns: u64, stream_ns: u64, work_ns: u64, bytes: u64) -> u64 {
    let best = best([stream_ns.saturating_mul(turns), 0], 1, work_ns);
    let count = best.min(bytes / SEGMENT_LEAST).clamp(least, SEGMENTS_MOST);
    (count / turns * turns).max(least)
}

/// The same where nodes of a site take turns: one for each, or as many as are worth their messages; of no more than `most`.
fn among_nodes(most: u64, turns: u64, bytes: u64) -> u64 {
    let least = turns.min(most);
    let count = (bytes / NODE_SEGMENT_LEAST).clamp(least, SEGMENTS_MOST);
    (count / turns * turns).max(least)
}

fn best([wide_ns, site_ns]: [u64; 2], nodes: u64, work_ns: u64) -> u64 {
    let legs_ns = (LEGS - 1).saturating_mul(wide_ns);
    let shares_ns = nodes.saturating_sub(1).saturating_mul(site_ns);
    (legs_ns.saturating_add(shares_ns) / (SEGMENT_MESSAGES * work_ns).max(1)).isqrt()
}

/// All stages of all courses in the order in which they are due: course `c` begins at `begins[c]`, and its
/// stage `s` is `delays[s]` later, counted in segments, and in this rank's site what `later` says besides. All that
/// exchange messages of a stage agree on that.
pub(crate) fn timetable(
    begins: &[u32],
    delays: &[u32],
    later: impl Fn(usize, usize) -> u32,
) -> Vec<(usize, usize)> {
    let due = |stage: usize, course: usize| begins[course] + delays[stage] + later(stage, course);
    let stages = (0..delays.len()).flat_map(|stage| (0..begins.len()).map(move |one| (stage, one)));
    let mut all: Vec<(usize, usize)> = stages.collect();
    all.sort_by_key(|&(stage, course)| (due(stage, course), stage, course));
    all
}

/// The legs of a way: within the node, within the site, between sites, and the same back.
const LEGS: u64 = 4;

/// How many messages' work a segment makes on the way.
const SEGMENT_MESSAGES: u64 = 10;

/// Shorter segments are not worth their messages, in bytes.
const SEGMENT_LEAST: u64 = 8 << 10;

/// Nor, where nodes take turns, are shorter ones than this: each goes over the network twice.
const NODE_SEGMENT_LEAST: u64 = 16 << 10;

/// Nor are shorter ones than this that are sent to all nodes of a site.
const SHARE_LEAST: u64 = 2 << 10;

/// More segments hide nothing more.
const SEGMENTS_MOST: u64 = 64;

/// At most so many pairs of ranks exchange the data of two sites, or one for each node of a site: each pair needs a
/// connection.
pub(crate) const LANES: u32 = 16;
