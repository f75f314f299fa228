//! Costs between each two sites, and the relays by which a site sends to another.
//!
//! If the direct link between two sites is much worse than the links of both to a third, the third
//! relays. The longest side of the triangle is then not the shortest path. All numbers are
//! integers, so that all ranks compute the same.

use std::ops::Range;

use crate::costs::{Costs, MessageCost};
use crate::model::{STREAM_MAX_NS, segments_of};

/// Known costs between pairs of sites, among the first sites of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(u32, u32, MessageCost)>);

/// Costs between the sites of a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Crossings {
    /// Cost of pairs without a known cost; of all pairs if there is no table.
    usual: MessageCost,
    /// Costs from each site to each, row by row; empty if all are equal.
    table: Vec<MessageCost>,
    /// Number of ranks of each site, if there is a table.
    ranks: Vec<u64>,
    /// Wake-up latency of a rank that waited for another site.
    wake_ns: u64,
    /// Cost of a node's network. `nodes` is the number of nodes in the largest site.
    network: MessageCost,
    nodes: u64,
    /// Number of sites, if known.
    count: u32,
    /// True if the "sites" are nodes of one site.
    are_nodes: bool,
}

/// Cost between two sites, and their numbers of ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    pub cost: MessageCost,
    pub from_ranks: u64,
    pub to_ranks: u64,
}

/// Sites that relay to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Relays {
    /// None: every site sends directly.
    #[default]
    Straight,
    /// From each of `sites` sites to each: the site that sends the data to it.
    Table { sites: u32, senders: Vec<u32> },
    /// All by the site `by`, which alone gets the data from their origin.
    Through { sites: u32, by: u32 },
}

/// Relays of the segments of a root's broadcast or reduction. Either all segments have the same, or
/// each has another relay site, in rotation.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    relays: Vec<Relays>,
    nodes: u32,
}

/// Data on a crossing that serves several sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The same data for all of them, or their combination.
    One,
    /// Separate data of each of them.
    Each,
}

/// Receivers of a site's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receivers {
    /// All others.
    All,
    /// Sites with higher numbers.
    Above,
}

/// Data that sites send to each other.
#[derive(Clone, Copy)]
struct SiteFlow<'a> {
    /// Bytes that each site sends.
    bytes: &'a dyn Fn(u32) -> u64,
    /// The only sender; none if all send.
    root: Option<u32>,
    load: Load,
    receivers: Receivers,
}

impl Pairs {
    /// Makes a table from pairs of different sites. The first entry of a pair counts, in either
    /// direction.
    pub fn new(known: impl IntoIterator<Item = (u32, u32, MessageCost)>) -> Self {
        let ordered =
            |(one, other, cost): (u32, u32, MessageCost)| (one.min(other), one.max(other), cost);
        let kept = |pair: &(u32, u32, MessageCost)| pair.0 != pair.1 && pair.1 < SITES_MOST;
        let mut known: Vec<_> = known.into_iter().map(ordered).filter(kept).collect();
        known.sort_by_key(|pair| (pair.0, pair.1));
        known.dedup_by_key(|pair| (pair.0, pair.1));
        Self(known)
    }

    /// Returns the cost between two sites, if known.
    pub fn cost(&self, one: u32, other: u32) -> Option<MessageCost> {
        let key = (one.min(other), one.max(other));
        let at = self.0.binary_search_by_key(&key, |pair| (pair.0, pair.1)).ok()?;
        Some(self.0[at].2)
    }

    /// Returns all known pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, MessageCost)> + '_ {
        self.0.iter().copied()
    }

    /// Encodes the pairs as bytes, for ranks that have to plan from the same.
    pub fn emit(&self) -> Vec<u8> {
        let numbers = |(one, other, cost): (u32, u32, MessageCost)| {
            let MessageCost { latency_ns, bytes_per_s, overhead_ns } = cost;
            [one.into(), other.into(), latency_ns, bytes_per_s, overhead_ns]
        };
        self.iter().flat_map(numbers).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the pairs, clamped so that sums cannot overflow; none if the bytes are not valid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let (pairs, []) = numbers.as_chunks::<5>() else { return None };
        let pair = |&[one, other, latency_ns, bytes_per_s, overhead_ns]: &[u64; 5]| {
            let cost = MessageCost { latency_ns, bytes_per_s, overhead_ns }.bounded();
            let sites = u32::try_from(one).ok().zip(u32::try_from(other).ok());
            sites.filter(|(one, other)| one < other).map(|(one, other)| (one, other, cost))
        };
        let known: Vec<_> = pairs.iter().map(pair).collect::<Option<_>>()?;
        let found = Self::new(known.iter().copied());
        (found.0 == known).then_some(found)
    }
}

impl Crossings {
    /// Makes crossings that all cost the same.
    pub(crate) fn alike(usual: MessageCost, costs: &Costs) -> Self {
        let (network, wake_ns) = (costs.site, costs.wake_ns);
        let (table, ranks) = (Vec::new(), Vec::new());
        let (nodes, count, are_nodes) = (1, 0, false);
        Self { usual, table, ranks, wake_ns, network, nodes, count, are_nodes }
    }

    /// Makes crossings between so many nodes of one site, as if each were a site. Data that leave a
    /// node take the same link to any other.
    pub(crate) fn of_nodes(count: u64, costs: &Costs) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self { count, are_nodes: true, ..Self::alike(costs.site, costs) }
    }

    /// Makes crossings between sites with these numbers in `pairs`, with `ranks` ranks each and at
    /// most `nodes` nodes.
    pub(crate) fn new(
        sites: &[u32],
        ranks: Vec<u64>,
        nodes: u64,
        costs: &Costs,
        pairs: &Pairs,
    ) -> Self {
        let count = sites.len() as u32;
        let alike = Self { nodes, count, ..Self::alike(costs.wide, costs) };
        if sites.len() > SITES_MOST as usize {
            return alike;
        }
        let cost = |one: u32, other: u32| pairs.cost(one, other).unwrap_or(costs.wide);
        let row = |&one: &u32| sites.iter().map(move |&other| cost(one, other));
        let table: Vec<MessageCost> = sites.iter().flat_map(row).collect();
        let others = |at: &usize| at / sites.len() != at % sites.len();
        let mut found = (0..table.len()).filter(others).map(|at| table[at]);
        match found.next() {
            Some(usual) if found.all(|cost| cost == usual) => Self { usual, ..alike },
            Some(_) => Self { table, ranks, ..alike },
            None => alike,
        }
    }

    /// True if these are nodes of one site.
    pub(crate) fn are_nodes(&self) -> bool {
        self.are_nodes
    }

    /// Returns the cost of a message from one site to another.
    #[inline]
    pub(crate) fn cost(&self, from: u32, to: u32) -> MessageCost {
        if self.table.is_empty() {
            return self.usual;
        }
        self.table[(from * self.sites() + to) as usize]
    }

    /// Returns the longest latency and the best rate. Stages are scheduled by these: waiting for
    /// data that are not there yet costs more than waiting later than possible.
    pub(crate) fn widest(&self) -> MessageCost {
        let most = |figure: fn(MessageCost) -> u64| {
            self.all(0, None).map(|crossing| figure(crossing.cost)).max().unwrap_or(0)
        };
        MessageCost {
            latency_ns: most(|cost| cost.latency_ns),
            bytes_per_s: most(|cost| cost.bytes_per_s),
            overhead_ns: most(|cost| cost.overhead_ns),
        }
    }

    /// Returns the pairs that differ from the usual, by their sites' numbers.
    pub(crate) fn pairs(&self) -> Pairs {
        let sites = self.sites();
        let row = |one| (one + 1..sites).map(move |other| (one, other, self.cost(one, other)));
        Pairs::new((0..sites).flat_map(row))
    }

    /// Returns a crossing from each site to each other, or to `root_site`. If all are equal, one
    /// with `site_ranks` ranks stands for all.
    pub(crate) fn all(
        &self,
        site_ranks: u64,
        root_site: Option<u32>,
    ) -> impl Iterator<Item = Crossing> + '_ {
        let one = Crossing { cost: self.usual, from_ranks: site_ranks, to_ranks: site_ranks };
        let alike = self.table.is_empty().then_some(one);
        let ranks = |site: u32| self.ranks[site as usize];
        let counts = move |pair: &(u32, u32)| root_site.is_none_or(|root_site| pair.1 == root_site);
        alike.into_iter().chain(self.each().filter(counts).map(move |(from, to)| Crossing {
            cost: self.cost(from, to),
            from_ranks: ranks(from),
            to_ranks: ranks(to),
        }))
    }

    /// Returns the transfer time from one site to each; empty if all are equal.
    pub(crate) fn delays_ns(&self, from: u32, bytes: &dyn Fn(u32) -> u64) -> Vec<u64> {
        let path_ns = |to| {
            let cost = self.cost(from, to);
            cost.latency_ns + stream_ns(cost, bytes(to))
        };
        (0..self.sites()).map(path_ns).collect()
    }

    /// Returns the relays by which `root` sends so many bytes in so many segments to all, or
    /// receives as many from them. Without a root, all send to all.
    pub(crate) fn routes_of(
        &self,
        root: Option<u32>,
        bytes: u64,
        segments: u64,
        load: Load,
    ) -> Routes {
        let flow = SiteFlow { bytes: &|_| bytes, root, load, receivers: Receivers::All };
        let relays = self.relays(flow);
        let nodes = self.nodes as u32;
        if !self.is_spread(flow, &relays, segments) {
            return Routes { relays: vec![relays], nodes };
        }
        let sites = self.count;
        let rotation = (0..sites).map(|offset| (root.unwrap_or(0) + offset) % sites);
        // With `Load::Each` every relay combines its segments, and the root's site is a relay too.
        let passes = |by: &u32| root != Some(*by) || load == Load::Each;
        let through = rotation.filter(passes).map(|by| match root {
            Some(root) if by == root => Relays::Straight,
            _ => Relays::Through { sites, by },
        });
        Routes { relays: through.collect(), nodes }
    }

    /// Returns the latency of two crossings by which so many bytes of `root_site`, or of any site,
    /// go in so many segments, if each segment has another relay.
    pub(crate) fn spread_ns(
        &self,
        root_site: Option<u32>,
        bytes: u64,
        segments: u64,
        load: Load,
    ) -> Option<u64> {
        // If all sites are equal, any root stands for all.
        let root_site = root_site.or(self.table.is_empty().then_some(0));
        let mut roots =
            (0..self.count).filter(|&root| root_site.is_none_or(|root_site| root_site == root));
        let of = |_| bytes;
        let is_spread = |root| {
            let flow = SiteFlow::of_root(root, &of, load);
            self.is_spread(flow, &self.relays(flow), segments)
        };
        roots.all(is_spread).then(|| self.two_hops_ns())
    }

    /// Returns the same for an allreduce in which each site combines some segments and sends them
    /// to the others.
    pub(crate) fn met_ns(&self, bytes: u64, segments: u64) -> Option<u64> {
        let flow =
            SiteFlow { bytes: &|_| bytes, root: None, load: Load::One, receivers: Receivers::All };
        let meets = self.is_spread(flow, &self.relays(flow), segments);
        meets.then(|| self.two_hops_ns())
    }

    /// True if each of so many segments has another relay, because that is much faster than
    /// `relays`. Of a root's data each segment then leaves the root only once; if all send to all,
    /// twice.
    fn is_spread(&self, flow: SiteFlow, relays: &Relays, segments: u64) -> bool {
        let others = u64::from(self.count.saturating_sub(1));
        // Long data of one node go along chains.
        if others < 2 || segments < 2 || (self.are_nodes && flow.root.is_some()) {
            return false;
        }
        let (bytes, worst) = ((flow.bytes)(flow.root.unwrap_or(0)), self.worst(None));
        // In addition, nodes of a site send to each other.
        let near = bytes.saturating_mul(self.nodes - 1);
        let (carried_ns, leaves, near) = match flow.root {
            // The root receives the other sites' segments, and those that they have combined.
            Some(_) if flow.load == Load::Each => {
                let part = bytes / (others + 1).min(segments);
                let to_root_ns = stream_ns(self.worst(flow.root), 2 * part);
                (to_root_ns.max(stream_ns(worst, part)), part.saturating_mul(others + 1), near)
            }
            Some(_) => {
                let part = bytes / others.min(segments);
                (stream_ns(worst, part), part.saturating_mul(others - 1).max(bytes), near)
            }
            None => {
                // Each sends to another all parts but its own, and its own to all.
                let parts = (others + 1).min(segments);
                let part = bytes / parts;
                let leaves = part.saturating_mul(parts - 1 + others);
                (stream_ns(worst, 2 * part), leaves, near.saturating_mul(2))
            }
        };
        let leaves_ns = |bytes: u64| stream_ns(self.network, bytes / self.nodes.min(segments));
        let streams_ns = carried_ns.max(leaves_ns(leaves.saturating_add(near)));
        let straight_ns = match self.table.is_empty() {
            false => self.last_ns(relays, flow),
            true => {
                let leaves_ns = leaves_ns(bytes.saturating_mul(others).saturating_add(near));
                worst.latency_ns + 2 * worst.overhead_ns + stream_ns(worst, bytes).max(leaves_ns)
            }
        };
        let past_ns = self.two_hops_ns() + streams_ns + streams_ns / segments;
        if self.are_nodes { past_ns < straight_ns } else { pays(past_ns, straight_ns) }
    }

    /// Returns the latency of two crossings of short data.
    fn two_hops_ns(&self) -> u64 {
        let worst = self.worst(None);
        let wake_ns = if self.are_nodes { 0 } else { self.wake_ns };
        2 * (worst.latency_ns + 2 * worst.overhead_ns) + wake_ns
    }

    /// Returns the longest latency, and the worst rate to any site, or to `root_site`.
    fn worst(&self, root_site: Option<u32>) -> MessageCost {
        let rates = self.all(0, root_site).map(|crossing| crossing.cost.bytes_per_s);
        MessageCost { bytes_per_s: rates.min().unwrap_or(0), ..self.widest() }
    }

    /// Returns the relays if each site sends the bytes for its number of ranks to others, or
    /// receives as many.
    pub(crate) fn relays_among(
        &self,
        bytes: impl Fn(u64) -> u64,
        load: Load,
        receivers: Receivers,
    ) -> Relays {
        let of = |site: u32| bytes(self.ranks[site as usize]);
        self.relays(SiteFlow { bytes: &of, root: None, load, receivers })
    }

    /// Returns the time until the last site has all data over the chosen relays; none if all are
    /// equal.
    pub(crate) fn delivered_ns(
        &self,
        bytes: impl Fn(u64) -> u64,
        load: Load,
        receivers: Receivers,
    ) -> Option<u64> {
        let of = |site: u32| bytes(self.ranks[site as usize]);
        let flow = SiteFlow { bytes: &of, root: None, load, receivers };
        let last_ns = || self.last_ns(&self.relays(flow), flow);
        (!self.table.is_empty()).then(last_ns)
    }

    /// Returns the time until the last site has the data of `root_site`, or that has the data of
    /// all; the worst root if none is given.
    pub(crate) fn rooted_ns(&self, root_site: Option<u32>, bytes: u64, load: Load) -> Option<u64> {
        let of_root = |root| {
            let of = |_| bytes;
            let flow = SiteFlow::of_root(root, &of, load);
            self.last_ns(&self.relays(flow), flow)
        };
        let roots =
            (0..self.sites()).filter(|&root| root_site.is_none_or(|root_site| root_site == root));
        roots.map(of_root).max()
    }

    /// Returns the longest latency from a root to the relays of its data.
    pub(crate) fn outward_relay_ns(&self, relays: &Relays, root: u32) -> u64 {
        let legs = relays.past(root).map(|(by, _)| self.cost(root, by).latency_ns);
        legs.max().unwrap_or(0)
    }

    /// Returns the longest latency from other sites to the relays of data for a root.
    pub(crate) fn inward_relay_ns(&self, relays: &Relays, root: u32) -> u64 {
        let legs = relays.past(root).map(|(by, site)| self.cost(site, by).latency_ns);
        legs.max().unwrap_or(0)
    }

    fn sites(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns all ordered pairs of sites, if they differ.
    fn each(&self) -> impl Iterator<Item = (u32, u32)> {
        let sites = self.sites();
        (0..sites)
            .flat_map(move |from| (0..sites).map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
    }

    /// Chooses relays for sites to which the direct path is much longer. Only sites that receive
    /// directly relay.
    fn relays(&self, flow: SiteFlow) -> Relays {
        if self.table.is_empty() {
            return Relays::default();
        }
        let sites = self.sites();
        let mut senders: Vec<u32> = (0..sites * sites).map(|at| at / sites).collect();
        for root in flow.roots(sites) {
            let bytes = (flow.bytes)(root);
            let streams: Vec<u64> = self.table.iter().map(|&cost| stream_ns(cost, bytes)).collect();
            let path_ns = |by, to| self.path_ns(&streams, bytes, [root, by, to]);
            let past = |to: u32, passes: &dyn Fn(u32) -> bool| {
                let others = (0..sites).filter(|&by| by != to && by != root && passes(by));
                let best = others.map(|by| (path_ns(by, to), by)).min();
                best.filter(|best| pays(best.0, path_ns(root, to))).map(|best| best.1)
            };
            let is_straight: Vec<bool> =
                (0..sites).map(|to| to == root || past(to, &|_| true).is_none()).collect();
            let late = flow.receivers(root, sites).filter(|&to| !is_straight[to as usize]);
            for to in late {
                if let Some(by) = past(to, &|by| is_straight[by as usize]) {
                    senders[(root * sites + to) as usize] = by;
                }
            }
        }
        let found = Relays::Table { sites, senders };
        // Together they may load the same links.
        let last_ns = |relays: &Relays| self.last_ns(relays, flow);
        if pays(last_ns(&found), last_ns(&Relays::Straight)) { found } else { Relays::Straight }
    }

    /// Returns the time when the last site has all its data.
    fn last_ns(&self, relays: &Relays, flow: SiteFlow) -> u64 {
        let sites = self.sites();
        let deliveries = || {
            let receivers = move |root| flow.receivers(root, sites).map(move |to| (root, to));
            flow.roots(sites).flat_map(receivers)
        };
        let bytes = flow.bytes;
        let mut loads = vec![0u64; self.table.len()];
        for (root, to) in deliveries() {
            let by = relays.sender(root, to);
            let mut carry = |from: u32, to: u32| {
                let carried = &mut loads[(from * sites + to) as usize];
                *carried = carried.saturating_add(bytes(root));
            };
            carry(by, to);
            if by != root && flow.load == Load::Each {
                carry(root, by);
            }
        }
        let leaves = |loads: &[u64]| {
            let all = loads.iter().fold(0u64, |sum, load| sum.saturating_add(*load));
            stream_ns(self.network, all / self.nodes)
        };
        let leaving: Vec<u64> = loads.chunks(sites.max(1) as usize).map(leaves).collect();
        let streams: Vec<u64> = (0..self.table.len())
            .map(|at| stream_ns(self.table[at], loads[at]).max(leaving[at / sites as usize]))
            .collect();
        let path_ns =
            |(root, to)| self.path_ns(&streams, bytes(root), [root, relays.sender(root, to), to]);
        deliveries().map(path_ns).max().unwrap_or(0)
    }

    /// Returns the time when a site has the data of another, directly or by a relay that passes
    /// segments on. `streams` gives the transfer time over each crossing.
    fn path_ns(&self, streams: &[u64], bytes: u64, [root, by, to]: [u32; 3]) -> u64 {
        let leg = |from: u32, to: u32| {
            let at = (from * self.sites() + to) as usize;
            let MessageCost { latency_ns, overhead_ns, .. } = self.table[at];
            (latency_ns + 2 * overhead_ns, streams[at])
        };
        let (hop_ns, stream_ns) = leg(by, to);
        if by == root {
            return hop_ns + stream_ns;
        }
        let first = leg(root, by);
        let segment_ns = first.1.min(stream_ns) / segments_of(bytes);
        first.0 + self.wake_ns + hop_ns + first.1.max(stream_ns) + segment_ns
    }
}

impl Load {
    /// Returns the load of operands for one site. They may be combined on the path if that gives
    /// the same to the last bit.
    pub(crate) fn of_operands(is_exact: bool) -> Self {
        if is_exact { Self::One } else { Self::Each }
    }
}

impl Receivers {
    /// Returns the receivers of prefixes, which are the ranks above a run. Sites with one run each
    /// follow each other.
    pub(crate) fn of_runs(site_runs: u64) -> Self {
        if site_runs == 1 { Self::Above } else { Self::All }
    }
}

impl<'a> SiteFlow<'a> {
    fn of_root(root: u32, bytes: &'a dyn Fn(u32) -> u64, load: Load) -> Self {
        Self { bytes, root: Some(root), load, receivers: Receivers::All }
    }

    fn roots(&self, sites: u32) -> Range<u32> {
        self.root.map_or(0..sites, |root| root..root + 1)
    }

    fn receivers(&self, root: u32, sites: u32) -> impl Iterator<Item = u32> + use<> {
        let first = match self.receivers {
            Receivers::All => 0,
            Receivers::Above => root + 1,
        };
        (first..sites).filter(move |&to| to != root)
    }
}

impl Relays {
    /// Returns the site that sends `from`'s data to `to`.
    #[inline]
    pub(crate) fn sender(&self, from: u32, to: u32) -> u32 {
        match self {
            Self::Straight => from,
            Self::Table { sites, senders } => senders[(from * sites + to) as usize],
            Self::Through { by, .. } if from == *by || to == *by => from,
            Self::Through { by, .. } => *by,
        }
    }

    /// Returns the only relay, if all data go by one.
    pub(crate) fn by(&self) -> Option<u32> {
        match self {
            Self::Through { by, .. } => Some(*by),
            Self::Straight | Self::Table { .. } => None,
        }
    }

    /// Returns the relays of a root's data, and the sites that get the data from them.
    fn past(&self, root: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let senders = (0..self.sites()).map(move |to| (self.sender(root, to), to));
        senders.filter(move |&(by, to)| by != root && to != root)
    }

    /// Returns the sites to which `by` relays `from`'s data.
    pub(crate) fn forwarded_by(&self, by: u32, from: u32) -> impl Iterator<Item = u32> + '_ {
        let sites = if by == from { 0 } else { self.sites() };
        (0..sites).filter(move |&to| to != by && to != from && self.sender(from, to) == by)
    }

    /// Number of sites; 0 if all send directly.
    fn sites(&self) -> u32 {
        match self {
            Self::Straight => 0,
            Self::Table { sites, .. } | Self::Through { sites, .. } => *sites,
        }
    }
}

impl Routes {
    /// Number of relay sites in the rotation, if there is one.
    pub(crate) fn rotation(&self) -> Option<u32> {
        let rotation = self.relays.len() as u32;
        (rotation > 1).then_some(rotation)
    }

    /// Returns the relays of a segment. Neighbouring nodes' segments go by neighbouring sites, and
    /// one node's segments by all of them.
    pub(crate) fn relays(&self, index: u32) -> &Relays {
        let sites = self.relays.len() as u32;
        let round = sites / divisor(sites, self.nodes) * self.nodes;
        &self.relays[((index + index / round) % sites) as usize]
    }
}

/// Returns the greatest common divisor.
fn divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// Returns the transfer time of so many bytes, clamped so that sums cannot overflow.
fn stream_ns(cost: MessageCost, bytes: u64) -> u64 {
    cost.stream_ns(bytes).min(STREAM_MAX_NS)
}

/// True if a path by relays is short enough to replace the direct one. The margin is there because
/// link costs are not exact, and because a relay has less capacity for others.
fn pays(past_ns: u64, straight_ns: u64) -> bool {
    3 * past_ns < 2 * straight_ns
}

/// Maximum number of sites with own costs: their table takes three kilobytes per communicator.
const SITES_MOST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(latency_ms: u64, mb_per_s: u64) -> MessageCost {
        let (latency_ns, bytes_per_s) = (latency_ms * 1_000_000, mb_per_s * 1_000_000);
        MessageCost { latency_ns, bytes_per_s, overhead_ns: 4_000 }
    }

    impl Crossings {
        /// Relays of uncut data.
        fn relays_of(&self, root: u32, bytes: u64, load: Load) -> Relays {
            self.routes_of(Some(root), bytes, 1, load).relays(0).clone()
        }
    }

    /// Sites 4, 2 and 9 of a job, each of one node, with 1, 2 and 3 ranks.
    fn three(pairs: [(u32, u32, MessageCost); 3]) -> Crossings {
        let costs = Costs::default();
        Crossings::new(&[4, 2, 9], vec![1, 2, 3], 1, &costs, &Pairs::new(pairs))
    }

    #[test]
    fn pairs_survive_encoding_and_decoding() {
        let known =
            [(3, 1, cost(5, 10)), (0, 2, cost(7, 20)), (1, 3, cost(9, 9)), (2, 2, cost(1, 1))];
        let pairs = Pairs::new(known.into_iter().chain([(0, 16, cost(1, 1))]));
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [(0, 2, cost(7, 20)), (1, 3, cost(5, 10))]);
        assert_eq!((pairs.cost(3, 1), pairs.cost(0, 1)), (Some(cost(5, 10)), None));
        let bytes = pairs.emit();
        assert_eq!(Pairs::parse(&bytes), Some(pairs));
        assert_eq!(Pairs::parse(&[]), Some(Pairs::default()));
        let twice = [&bytes[..], &bytes].concat();
        for wrong in [&bytes[1..], &bytes[..40 + 8], &twice, &[0xff; 40], &[0; 40]] {
            assert_eq!(Pairs::parse(wrong), None);
        }
        let wild = [&1u64.to_le_bytes()[..], &2u64.to_le_bytes(), &[0xff; 24]].concat();
        assert!(Pairs::parse(&wild).unwrap().cost(1, 2).unwrap().latency_ns <= 60_000_000_000);
    }

    #[test]
    fn sites_that_are_alike_need_no_table() {
        let near = cost(1, 100);
        let alike = three([(2, 4, near), (2, 9, near), (4, 9, near)]);
        assert!(alike.table.is_empty() && alike.pairs() == Pairs::default());
        assert_eq!(
            (
                alike.cost(0, 2),
                alike.delivered_ns(|_| 8, Load::One, Receivers::All),
                alike.widest()
            ),
            (near, None, near)
        );
        let unlike = three([(2, 4, near), (2, 9, near), (4, 0, near)]);
        assert_eq!((unlike.cost(1, 0), unlike.cost(2, 0)), (near, Costs::default().wide));
        assert_eq!(unlike.widest(), MessageCost { latency_ns: 6_000_000, ..Costs::default().wide });
        let many: Vec<u32> = (0..17).collect();
        let pairs = Pairs::new([(0, 1, near)]);
        assert!(Crossings::new(&many, vec![1; 17], 1, &Costs::default(), &pairs).table.is_empty());
        let two = Crossings::new(&[0, 1], vec![1; 2], 1, &Costs::default(), &pairs);
        assert!(two.table.is_empty() && two.usual == near);
    }

    #[test]
    fn a_site_behind_a_bad_link_receives_by_a_third() {
        let good = cost(5, 100);
        let slow = three([(4, 2, good), (2, 9, good), (4, 9, cost(5, 1))]);
        let sender =
            |relays: &Relays| [relays.sender(0, 1), relays.sender(0, 2), relays.sender(2, 0)];
        assert_eq!(
            sender(&slow.relays_of(0, 8, Load::One)),
            [0, 0, 2],
            "short data do not wait for the rate"
        );
        let of_first = slow.relays_of(0, 1 << 20, Load::One);
        assert_eq!(sender(&of_first), [0, 1, 2], "only of the root");
        assert_eq!(of_first.forwarded_by(1, 0).collect::<Vec<_>>(), [2]);
        let all = slow.relays_among(|_| 1 << 20, Load::One, Receivers::All);
        assert_eq!((sender(&all), all.sender(1, 2)), ([0, 1, 1], 1));
        assert_eq!(slow.relays_of(1, 1 << 20, Load::One), Relays::Straight);
        let flow = SiteFlow {
            bytes: &|_| 1 << 20,
            root: None,
            load: Load::One,
            receivers: Receivers::All,
        };
        let straight_ns = slow.last_ns(&Relays::Straight, flow);
        assert!(
            slow.delivered_ns(|_| 1 << 20, Load::One, Receivers::All).unwrap() < straight_ns / 10
        );
        let upwards = slow.relays_among(|_| 1 << 20, Load::One, Receivers::Above);
        assert_eq!((sender(&upwards), upwards.sender(1, 2)), ([0, 1, 2], 1), "of those below only");
        let long = three([(4, 2, good), (2, 9, good), (4, 9, cost(50, 100))]);
        assert_eq!(sender(&long.relays_of(0, 8, Load::Each)), [0, 1, 2]);
        let little = three([(4, 2, good), (2, 9, good), (4, 9, cost(14, 100))]);
        assert_eq!(little.relays_of(0, 8, Load::One), Relays::Straight, "link costs are not exact");
    }

    #[test]
    fn separate_data_are_relayed_only_while_the_link_can_carry_them() {
        let third = |mb_per_s| {
            three([(4, 2, cost(5, 100)), (2, 9, cost(5, 100)), (4, 9, cost(5, mb_per_s))])
        };
        let is_past =
            |crossings: &Crossings, load| crossings.relays_of(0, 1 << 20, load).sender(0, 2) == 1;
        // A megabyte takes 10 ms over the good links, and 105 ms or 34 ms over the bad one.
        assert!(is_past(&third(10), Load::One) && is_past(&third(10), Load::Each));
        assert!(is_past(&third(30), Load::One) && !is_past(&third(30), Load::Each));
        let [one, each] = [Load::One, Load::Each]
            .map(|load| third(10).rooted_ns(Some(0), 1 << 20, load).unwrap());
        let (least, most) = (one + 10_000_000, one + 11_000_000);
        assert!((least..most).contains(&each), "{one} and {each}");
        // Six sites, of which four receive by the second.
        let costs = Costs::default();
        let far = (2..6).map(|site| (0, site, cost(50, 100)));
        let near = (2..6).map(|site| (1, site, cost(5, 100)));
        let pairs = Pairs::new(far.chain(near).chain([(0, 1, cost(5, 100))]));
        let six = Crossings::new(&[0, 1, 2, 3, 4, 5], vec![1; 6], 1, &costs, &pairs);
        let past = |bytes, load| {
            let relays = six.relays_of(0, bytes, load);
            (2..6).filter(|&site| relays.sender(0, site) == 1).count()
        };
        assert_eq!([past(8, Load::One), past(8, Load::Each)], [4, 4]);
        assert_eq!([past(1 << 20, Load::One), past(1 << 20, Load::Each)], [4, 0]);
    }

    #[test]
    fn segments_for_many_sites_each_have_another_relay() {
        let costs = Costs::default();
        let sites: Vec<u32> = (0..16).collect();
        let of = |nodes| Crossings::new(&sites, vec![1; 16], nodes, &costs, &Pairs::default());
        let routes = |nodes, bytes, load| of(nodes).routes_of(Some(3), bytes, 24, load);
        assert_eq!(routes(1, 8, Load::One).relays(0), &Relays::Straight);
        assert_eq!(routes(1, 1 << 20, Load::Each).rotation(), Some(16));
        for nodes in [1, 2, 3, 5] {
            let routes = routes(nodes, 1 << 20, Load::One);
            let mut pairs = std::collections::BTreeSet::new();
            for index in 0..15 * nodes as u32 {
                let by = routes.relays(index).sender(3, if index % 2 == 0 { 2 } else { 9 });
                let relays = routes.relays(index);
                let by = if by == 3 { relays.sender(3, 4) } else { by };
                let receivers: Vec<u32> = relays.forwarded_by(by, 3).collect();
                assert!(by != 3 && receivers.len() == 14 && !receivers.contains(&3), "{relays:?}");
                pairs.insert((by, index % nodes as u32));
            }
            assert_eq!(pairs.len(), 15 * nodes as usize, "each node sends by each site");
        }
        assert!(of(1).spread_ns(None, 1 << 20, 24, Load::One).unwrap() > 12_000_000);
        assert_eq!(of(1).spread_ns(None, 1 << 20, 1, Load::One), None);
    }
}
