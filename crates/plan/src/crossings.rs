//! What messages cost between each two sites, and by which way a site tells another.
//!
//! Where what is between two sites is much worse than what leads from both to a third, that one passes on: the
//! triangle's longest side is not the shortest way. All is integers, so that all ranks find the same.

use std::ops::Range;

use crate::costs::{Cost, Costs};
use crate::model::{STREAM_MAX_NS, segments_of};

/// What messages cost between two sites each, as far as that is known, of the first sites of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(u32, u32, Cost)>);

/// What messages cost between the sites of a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Crossings {
    /// Of the pairs that nothing else is known of: of all, where there is no table.
    usual: Cost,
    /// From each site to each, row by row, where they are not alike.
    table: Vec<Cost>,
    /// How many ranks each site has, where there is a table.
    ranks: Vec<u64>,
    /// What a rank takes to go on that waited for another site.
    wake_ns: u64,
    /// What leads to a node, and how many nodes a site has at most.
    network: Cost,
    nodes: u64,
    /// How many sites there are, if that is known.
    count: u32,
    /// Whether they are nodes of one site.
    are_nodes: bool,
}

/// What two sites cost, and how many ranks they have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    pub cost: Cost,
    pub from_ranks: u64,
    pub to_ranks: u64,
}

/// By which sites others are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Relays {
    /// All by those who have it first.
    #[default]
    Straight,
    /// From each of so many sites to each: which one tells it.
    Table { sites: u32, tellers: Vec<u32> },
    /// All by one of so many sites, which alone is told.
    Through { sites: u32, by: u32 },
}

/// By which sites the segments of what one tells the others go, or of what it hears of them: all alike, or each by one
/// of them, which take turns.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    relays: Vec<Relays>,
    nodes: u32,
}

/// What a crossing carries that lies on the way from one site to several others, or from them to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// What is the same for all, or what all come to.
    One,
    /// What each of them has by itself.
    Each,
}

/// Whom all tell what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearers {
    /// All others.
    All,
    /// Those with higher numbers.
    Above,
}

/// What sites tell each other.
#[derive(Clone, Copy)]
struct Telling<'a> {
    /// What each tells, in bytes.
    bytes: &'a dyn Fn(u32) -> u64,
    /// Who tells alone, if not all do.
    root: Option<u32>,
    load: Load,
    hearers: Hearers,
}

impl Pairs {
    /// Of pairs of different sites, each of which counts once, whichever way round it is named.
    pub fn new(known: impl IntoIterator<Item = (u32, u32, Cost)>) -> Self {
        let ordered = |(one, other, cost): (u32, u32, Cost)| (one.min(other), one.max(other), cost);
        let kept = |pair: &(u32, u32, Cost)| pair.0 != pair.1 && pair.1 < SITES_MOST;
        let mut known: Vec<_> = known.into_iter().map(ordered).filter(kept).collect();
        known.sort_by_key(|pair| (pair.0, pair.1));
        known.dedup_by_key(|pair| (pair.0, pair.1));
        Self(known)
    }

    /// What messages cost between two sites, if that is known.
    pub fn cost(&self, one: u32, other: u32) -> Option<Cost> {
        let key = (one.min(other), one.max(other));
        let at = self.0.binary_search_by_key(&key, |pair| (pair.0, pair.1)).ok()?;
        Some(self.0[at].2)
    }

    /// All that are known, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, Cost)> + '_ {
        self.0.iter().copied()
    }

    /// The pairs as bytes, for those who have to plan from the same.
    pub fn emit(&self) -> Vec<u8> {
        let numbers = |(one, other, cost): (u32, u32, Cost)| {
            let Cost { latency_ns, bytes_per_s, overhead_ns } = cost;
            [one.into(), other.into(), latency_ns, bytes_per_s, overhead_ns]
        };
        self.iter().flat_map(numbers).flat_map(u64::to_le_bytes).collect()
    }

    /// The pairs that such bytes say, within bounds that sums of costs stay in; none where they are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let (pairs, []) = numbers.as_chunks::<5>() else { return None };
        let pair = |&[one, other, latency_ns, bytes_per_s, overhead_ns]: &[u64; 5]| {
            let cost = Cost { latency_ns, bytes_per_s, overhead_ns }.bounded();
            let sites = u32::try_from(one).ok().zip(u32::try_from(other).ok());
            sites.filter(|(one, other)| one < other).map(|(one, other)| (one, other, cost))
        };
        let known: Vec<_> = pairs.iter().map(pair).collect::<Option<_>>()?;
        let found = Self::new(known.iter().copied());
        (found.0 == known).then_some(found)
    }
}

impl Crossings {
    /// All alike.
    pub(crate) fn alike(usual: Cost, costs: &Costs) -> Self {
        let (network, wake_ns) = (costs.site, costs.wake_ns);
        let (table, ranks) = (Vec::new(), Vec::new());
        let (nodes, count, are_nodes) = (1, 0, false);
        Self { usual, table, ranks, wake_ns, network, nodes, count, are_nodes }
    }

    /// Between so many nodes of one site, as if each were a site of its own: what leaves a node takes the same way to
    /// whichever other.
    pub(crate) fn of_nodes(count: u64, costs: &Costs) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self { count, are_nodes: true, ..Self::alike(costs.site, costs) }
    }

    /// Between sites that have these numbers in `pairs`, so many ranks each, and so many nodes at most.
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
        let table: Vec<Cost> = sites.iter().flat_map(row).collect();
        let others = |at: &usize| at / sites.len() != at % sites.len();
        let mut found = (0..table.len()).filter(others).map(|at| table[at]);
        match found.next() {
            Some(usual) if found.all(|cost| cost == usual) => Self { usual, ..alike },
            Some(_) => Self { table, ranks, ..alike },
            None => alike,
        }
    }

    /// Whether these are nodes of one site.
    pub(crate) fn are_nodes(&self) -> bool {
        self.are_nodes
    }

    /// What a message costs from one site to another.
    #[inline]
    pub(crate) fn cost(&self, from: u32, to: u32) -> Cost {
        if self.table.is_empty() {
            return self.usual;
        }
        self.table[(from * self.sites() + to) as usize]
    }

    /// The greatest distance, and the best rate: by these what follows each other is ordered, for who waits for what
    /// has not come yet loses more than who waits later than it could.
    pub(crate) fn widest(&self) -> Cost {
        let most = |figure: fn(Cost) -> u64| {
            self.all(0, None).map(|crossing| figure(crossing.cost)).max().unwrap_or(0)
        };
        Cost {
            latency_ns: most(|cost| cost.latency_ns),
            bytes_per_s: most(|cost| cost.bytes_per_s),
            overhead_ns: most(|cost| cost.overhead_ns),
        }
    }

    /// Those that are not alike, by their sites' numbers.
    pub(crate) fn pairs(&self) -> Pairs {
        let sites = self.sites();
        let row = |one| (one + 1..sites).map(move |other| (one, other, self.cost(one, other)));
        Pairs::new((0..sites).flat_map(row))
    }

    /// One from each site to each other, or to `home`; or one that stands for all, between sites of so many ranks.
    pub(crate) fn all(
        &self,
        site_ranks: u64,
        home: Option<u32>,
    ) -> impl Iterator<Item = Crossing> + '_ {
        let one = Crossing { cost: self.usual, from_ranks: site_ranks, to_ranks: site_ranks };
        let alike = self.table.is_empty().then_some(one);
        let ranks = |site: u32| self.ranks[site as usize];
        let counts = move |pair: &(u32, u32)| home.is_none_or(|home| pair.1 == home);
        alike.into_iter().chain(self.each().filter(counts).map(move |(from, to)| Crossing {
            cost: self.cost(from, to),
            from_ranks: ranks(from),
            to_ranks: ranks(to),
        }))
    }

    /// How long what each site is told is under way from one; nothing where all are alike.
    pub(crate) fn ways_ns(&self, from: u32, bytes: &dyn Fn(u32) -> u64) -> Vec<u64> {
        let way_ns = |to| {
            let cost = self.cost(from, to);
            cost.latency_ns + stream_ns(cost, bytes(to))
        };
        (0..self.sites()).map(way_ns).collect()
    }

    /// By which sites one tells the others so many bytes in so many segments, or hears them of them; or, where there is
    /// no such one, by which all tell all.
    pub(crate) fn routes_of(
        &self,
        root: Option<u32>,
        bytes: u64,
        segments: u64,
        load: Load,
    ) -> Routes {
        let telling = Telling { bytes: &|_| bytes, root, load, hearers: Hearers::All };
        let relays = self.relays(telling);
        let nodes = self.nodes as u32;
        if !self.is_spread(telling, &relays, segments) {
            return Routes { relays: vec![relays], nodes };
        }
        let sites = self.count;
        let turns = (0..sites).map(|turn| (root.unwrap_or(0) + turn) % sites);
        // What does not become one on the way is combined at each of them, the root's too.
        let passes = |by: &u32| root != Some(*by) || load == Load::Each;
        let through = turns.filter(passes).map(|by| match root {
            Some(root) if by == root => Relays::Straight,
            _ => Relays::Through { sites, by },
        });
        Routes { relays: through.collect(), nodes }
    }

    /// How long two crossings take by which so many bytes of `home`, or of whichever site it is, go in so many segments,
    /// if each goes by another site.
    pub(crate) fn spread_ns(
        &self,
        home: Option<u32>,
        bytes: u64,
        segments: u64,
        load: Load,
    ) -> Option<u64> {
        // Where all are alike any root is.
        let home = home.or(self.table.is_empty().then_some(0));
        let mut roots = (0..self.count).filter(|&root| home.is_none_or(|home| home == root));
        let of = |_| bytes;
        let is_spread = |root| {
            let telling = Telling::of_root(root, &of, load);
            self.is_spread(telling, &self.relays(telling), segments)
        };
        roots.all(is_spread).then(|| self.two_hops_ns())
    }

    /// The same for what all have, of which each site combines segments and tells the others.
    pub(crate) fn met_ns(&self, bytes: u64, segments: u64) -> Option<u64> {
        let telling =
            Telling { bytes: &|_| bytes, root: None, load: Load::One, hearers: Hearers::All };
        let meets = self.is_spread(telling, &self.relays(telling), segments);
        meets.then(|| self.two_hops_ns())
    }

    /// Whether each of so many segments goes by another site: where that is much sooner than by `relays`, for of what
    /// one tells all others each segment leaves it once only, and of what all tell each other twice.
    fn is_spread(&self, telling: Telling, relays: &Relays, segments: u64) -> bool {
        let others = u64::from(self.count.saturating_sub(1));
        // What one node tells the others goes along chains where it is long.
        if others < 2 || segments < 2 || (self.are_nodes && telling.root.is_some()) {
            return false;
        }
        let (bytes, worst) = ((telling.bytes)(telling.root.unwrap_or(0)), self.worst(None));
        // Besides, nodes of a site tell each other.
        let near = bytes.saturating_mul(self.nodes - 1);
        let (carried_ns, leaves, near) = match telling.root {
            // To the root go both what others have of its segments and what they have combined.
            Some(_) if telling.load == Load::Each => {
                let part = bytes / (others + 1).min(segments);
                let to_root_ns = stream_ns(self.worst(telling.root), 2 * part);
                (to_root_ns.max(stream_ns(worst, part)), part.saturating_mul(others + 1), near)
            }
            Some(_) => {
                let part = bytes / others.min(segments);
                (stream_ns(worst, part), part.saturating_mul(others - 1).max(bytes), near)
            }
            None => {
                // Of all parts but its own each tells another, and that to all.
                let parts = (others + 1).min(segments);
                let part = bytes / parts;
                let leaves = part.saturating_mul(parts - 1 + others);
                (stream_ns(worst, 2 * part), leaves, near.saturating_mul(2))
            }
        };
        let leaves_ns = |bytes: u64| stream_ns(self.network, bytes / self.nodes.min(segments));
        let streams_ns = carried_ns.max(leaves_ns(leaves.saturating_add(near)));
        let straight_ns = match self.table.is_empty() {
            false => self.last_ns(relays, telling),
            true => {
                let leaves_ns = leaves_ns(bytes.saturating_mul(others).saturating_add(near));
                worst.latency_ns + 2 * worst.overhead_ns + stream_ns(worst, bytes).max(leaves_ns)
            }
        };
        let past_ns = self.two_hops_ns() + streams_ns + streams_ns / segments;
        if self.are_nodes { past_ns < straight_ns } else { pays(past_ns, straight_ns) }
    }

    /// Two crossings of what is short.
    fn two_hops_ns(&self) -> u64 {
        let worst = self.worst(None);
        let wake_ns = if self.are_nodes { 0 } else { self.wake_ns };
        2 * (worst.latency_ns + 2 * worst.overhead_ns) + wake_ns
    }

    /// The greatest distance, and the worst rate at which any site is reached, or `home`.
    fn worst(&self, home: Option<u32>) -> Cost {
        let rates = self.all(0, home).map(|crossing| crossing.cost.bytes_per_s);
        Cost { bytes_per_s: rates.min().unwrap_or(0), ..self.widest() }
    }

    /// By which sites each tells others its bytes, by its number of ranks, or hears as many of them.
    pub(crate) fn relays_among(
        &self,
        bytes: impl Fn(u64) -> u64,
        load: Load,
        hearers: Hearers,
    ) -> Relays {
        let of = |site: u32| bytes(self.ranks[site as usize]);
        self.relays(Telling { bytes: &of, root: None, load, hearers })
    }

    /// What it takes until the last site knows what it is told, by the ways that are taken; nothing where all are alike.
    pub(crate) fn told_ns(
        &self,
        bytes: impl Fn(u64) -> u64,
        load: Load,
        hearers: Hearers,
    ) -> Option<u64> {
        let of = |site: u32| bytes(self.ranks[site as usize]);
        let telling = Telling { bytes: &of, root: None, load, hearers };
        let last_ns = || self.last_ns(&self.relays(telling), telling);
        (!self.table.is_empty()).then(last_ns)
    }

    /// The same until the last site knows what `home` tells all of them, or it what they all do; whichever it is.
    pub(crate) fn rooted_ns(&self, home: Option<u32>, bytes: u64, load: Load) -> Option<u64> {
        let of_root = |root| {
            let of = |_| bytes;
            let telling = Telling::of_root(root, &of, load);
            self.last_ns(&self.relays(telling), telling)
        };
        let roots = (0..self.sites()).filter(|&root| home.is_none_or(|home| home == root));
        roots.map(of_root).max()
    }

    /// After how long those who pass on what one tells others have it.
    pub(crate) fn told_on_ns(&self, relays: &Relays, root: u32) -> u64 {
        let legs = relays.past(root).map(|(by, _)| self.cost(root, by).latency_ns);
        legs.max().unwrap_or(0)
    }

    /// After how long those who pass on what others have for one have it.
    pub(crate) fn heard_on_ns(&self, relays: &Relays, root: u32) -> u64 {
        let legs = relays.past(root).map(|(by, site)| self.cost(site, by).latency_ns);
        legs.max().unwrap_or(0)
    }

    fn sites(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// From each site to each other, where they are not alike.
    fn each(&self) -> impl Iterator<Item = (u32, u32)> {
        let sites = self.sites();
        (0..sites)
            .flat_map(move |from| (0..sites).map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
    }

    /// From those who tell to those who hear it, past sites to which the straight way is much longer than another.
    /// Only those that are told straight pass on.
    fn relays(&self, telling: Telling) -> Relays {
        if self.table.is_empty() {
            return Relays::default();
        }
        let sites = self.sites();
        let mut tellers: Vec<u32> = (0..sites * sites).map(|at| at / sites).collect();
        for root in telling.roots(sites) {
            let bytes = (telling.bytes)(root);
            let streams: Vec<u64> = self.table.iter().map(|&cost| stream_ns(cost, bytes)).collect();
            let way_ns = |by, to| self.way_ns(&streams, bytes, [root, by, to]);
            let past = |to: u32, passes: &dyn Fn(u32) -> bool| {
                let others = (0..sites).filter(|&by| by != to && by != root && passes(by));
                let best = others.map(|by| (way_ns(by, to), by)).min();
                best.filter(|best| pays(best.0, way_ns(root, to))).map(|best| best.1)
            };
            let is_straight: Vec<bool> =
                (0..sites).map(|to| to == root || past(to, &|_| true).is_none()).collect();
            let late = telling.hearers(root, sites).filter(|&to| !is_straight[to as usize]);
            for to in late {
                if let Some(by) = past(to, &|by| is_straight[by as usize]) {
                    tellers[(root * sites + to) as usize] = by;
                }
            }
        }
        let found = Relays::Table { sites, tellers };
        // All together they may be in each other's way.
        let last_ns = |relays: &Relays| self.last_ns(relays, telling);
        if pays(last_ns(&found), last_ns(&Relays::Straight)) { found } else { Relays::Straight }
    }

    /// When the last site knows what it is told.
    fn last_ns(&self, relays: &Relays, telling: Telling) -> u64 {
        let sites = self.sites();
        let told = || {
            let hearers = move |root| telling.hearers(root, sites).map(move |to| (root, to));
            telling.roots(sites).flat_map(hearers)
        };
        let bytes = telling.bytes;
        let mut loads = vec![0u64; self.table.len()];
        for (root, to) in told() {
            let by = relays.teller(root, to);
            let mut carry = |from: u32, to: u32| {
                let carried = &mut loads[(from * sites + to) as usize];
                *carried = carried.saturating_add(bytes(root));
            };
            carry(by, to);
            if by != root && telling.load == Load::Each {
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
        let way_ns =
            |(root, to)| self.way_ns(&streams, bytes(root), [root, relays.teller(root, to), to]);
        told().map(way_ns).max().unwrap_or(0)
    }

    /// When a site knows what another has, straight from there or by one that passes segments on, where what goes
    /// over each crossing takes so long.
    fn way_ns(&self, streams: &[u64], bytes: u64, [root, by, to]: [u32; 3]) -> u64 {
        let leg = |from: u32, to: u32| {
            let at = (from * self.sites() + to) as usize;
            let Cost { latency_ns, overhead_ns, .. } = self.table[at];
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
    /// Of operands that are to be combined at one site, and may be on the way where that is the same to the last bit.
    pub(crate) fn of_operands(is_exact: bool) -> Self {
        if is_exact { Self::One } else { Self::Each }
    }
}

impl Hearers {
    /// Of what so many runs of consecutive ranks at most come to, for the ranks above them: sites with one each follow
    /// each other.
    pub(crate) fn of_runs(site_runs: u64) -> Self {
        if site_runs == 1 { Self::Above } else { Self::All }
    }
}

impl<'a> Telling<'a> {
    fn of_root(root: u32, bytes: &'a dyn Fn(u32) -> u64, load: Load) -> Self {
        Self { bytes, root: Some(root), load, hearers: Hearers::All }
    }

    fn roots(&self, sites: u32) -> Range<u32> {
        self.root.map_or(0..sites, |root| root..root + 1)
    }

    fn hearers(&self, root: u32, sites: u32) -> impl Iterator<Item = u32> + use<> {
        let first = match self.hearers {
            Hearers::All => 0,
            Hearers::Above => root + 1,
        };
        (first..sites).filter(move |&to| to != root)
    }
}

impl Relays {
    /// Who tells a site what another has.
    #[inline]
    pub(crate) fn teller(&self, from: u32, to: u32) -> u32 {
        match self {
            Self::Straight => from,
            Self::Table { sites, tellers } => tellers[(from * sites + to) as usize],
            Self::Through { by, .. } if from == *by || to == *by => from,
            Self::Through { by, .. } => *by,
        }
    }

    /// The one site that passes on, if all else goes past it.
    pub(crate) fn by(&self) -> Option<u32> {
        match self {
            Self::Through { by, .. } => Some(*by),
            Self::Straight | Self::Table { .. } => None,
        }
    }

    /// Who tells others what one has, and whom.
    fn past(&self, root: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let told = (0..self.sites()).map(move |to| (self.teller(root, to), to));
        told.filter(move |&(by, to)| by != root && to != root)
    }

    /// Whom a site tells what another has.
    pub(crate) fn told_by(&self, by: u32, from: u32) -> impl Iterator<Item = u32> + '_ {
        let sites = if by == from { 0 } else { self.sites() };
        (0..sites).filter(move |&to| to != by && to != from && self.teller(from, to) == by)
    }

    /// Among how many sites they are, where not all are told straight.
    fn sites(&self) -> u32 {
        match self {
            Self::Straight => 0,
            Self::Table { sites, .. } | Self::Through { sites, .. } => *sites,
        }
    }
}

impl Routes {
    /// How many sites take turns, if they do.
    pub(crate) fn turns(&self) -> Option<u32> {
        let turns = self.relays.len() as u32;
        (turns > 1).then_some(turns)
    }

    /// Of a segment. Segments that neighbouring nodes carry go by neighbouring sites, and those that one node does by
    /// all of them.
    pub(crate) fn relays(&self, index: u32) -> &Relays {
        let sites = self.relays.len() as u32;
        let round = sites / divisor(sites, self.nodes) * self.nodes;
        &self.relays[((index + index / round) % sites) as usize]
    }
}

/// The greatest common one.
fn divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// How long so many bytes are on their way; sums of many do not overflow.
fn stream_ns(cost: Cost, bytes: u64) -> u64 {
    cost.stream_ns(bytes).min(STREAM_MAX_NS)
}

/// Whether a way is so much shorter than the straight one that it may be taken for it: what is known of links is
/// not exact, and a site that passes on has less for others.
fn pays(past_ns: u64, straight_ns: u64) -> bool {
    3 * past_ns < 2 * straight_ns
}

/// Pairs of more sites are as usual: these take three kilobytes a communicator.
const SITES_MOST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(latency_ms: u64, mb_per_s: u64) -> Cost {
        let (latency_ns, bytes_per_s) = (latency_ms * 1_000_000, mb_per_s * 1_000_000);
        Cost { latency_ns, bytes_per_s, overhead_ns: 4_000 }
    }

    impl Crossings {
        /// Of what is not cut.
        fn relays_of(&self, root: u32, bytes: u64, load: Load) -> Relays {
            self.routes_of(Some(root), bytes, 1, load).relays(0).clone()
        }
    }

    /// Sites 4, 2 and 9 of a job, of one node and so many ranks.
    fn three(pairs: [(u32, u32, Cost); 3]) -> Crossings {
        let costs = Costs::default();
        Crossings::new(&[4, 2, 9], vec![1, 2, 3], 1, &costs, &Pairs::new(pairs))
    }

    #[test]
    fn everybody_reads_the_pairs_that_were_told() {
        let known =
            [(3, 1, cost(5, 10)), (0, 2, cost(7, 20)), (1, 3, cost(9, 9)), (2, 2, cost(1, 1))];
        let pairs = Pairs::new(known.into_iter().chain([(0, 16, cost(1, 1))]));
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [(0, 2, cost(7, 20)), (1, 3, cost(5, 10))]);
        assert_eq!((pairs.cost(3, 1), pairs.cost(0, 1)), (Some(cost(5, 10)), None));
        let told = pairs.emit();
        assert_eq!(Pairs::parse(&told), Some(pairs));
        assert_eq!(Pairs::parse(&[]), Some(Pairs::default()));
        let twice = [&told[..], &told].concat();
        for wrong in [&told[1..], &told[..40 + 8], &twice, &[0xff; 40], &[0; 40]] {
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
            (alike.cost(0, 2), alike.told_ns(|_| 8, Load::One, Hearers::All), alike.widest()),
            (near, None, near)
        );
        let unlike = three([(2, 4, near), (2, 9, near), (4, 0, near)]);
        assert_eq!((unlike.cost(1, 0), unlike.cost(2, 0)), (near, Costs::default().wide));
        assert_eq!(unlike.widest(), Cost { latency_ns: 6_000_000, ..Costs::default().wide });
        let many: Vec<u32> = (0..17).collect();
        let pairs = Pairs::new([(0, 1, near)]);
        assert!(Crossings::new(&many, vec![1; 17], 1, &Costs::default(), &pairs).table.is_empty());
        let two = Crossings::new(&[0, 1], vec![1; 2], 1, &Costs::default(), &pairs);
        assert!(two.table.is_empty() && two.usual == near);
    }

    #[test]
    fn a_site_behind_a_bad_link_is_told_by_a_third() {
        let good = cost(5, 100);
        let slow = three([(4, 2, good), (2, 9, good), (4, 9, cost(5, 1))]);
        let teller =
            |relays: &Relays| [relays.teller(0, 1), relays.teller(0, 2), relays.teller(2, 0)];
        assert_eq!(
            teller(&slow.relays_of(0, 8, Load::One)),
            [0, 0, 2],
            "what is short does not wait for the rate"
        );
        let of_first = slow.relays_of(0, 1 << 20, Load::One);
        assert_eq!(teller(&of_first), [0, 1, 2], "only of the root");
        assert_eq!(of_first.told_by(1, 0).collect::<Vec<_>>(), [2]);
        let all = slow.relays_among(|_| 1 << 20, Load::One, Hearers::All);
        assert_eq!((teller(&all), all.teller(1, 2)), ([0, 1, 1], 1));
        assert_eq!(slow.relays_of(1, 1 << 20, Load::One), Relays::Straight);
        let telling =
            Telling { bytes: &|_| 1 << 20, root: None, load: Load::One, hearers: Hearers::All };
        let straight_ns = slow.last_ns(&Relays::Straight, telling);
        assert!(slow.told_ns(|_| 1 << 20, Load::One, Hearers::All).unwrap() < straight_ns / 10);
        let upwards = slow.relays_among(|_| 1 << 20, Load::One, Hearers::Above);
        assert_eq!((teller(&upwards), upwards.teller(1, 2)), ([0, 1, 2], 1), "of those below only");
        let long = three([(4, 2, good), (2, 9, good), (4, 9, cost(50, 100))]);
        assert_eq!(teller(&long.relays_of(0, 8, Load::Each)), [0, 1, 2]);
        let little = three([(4, 2, good), (2, 9, good), (4, 9, cost(14, 100))]);
        assert_eq!(
            little.relays_of(0, 8, Load::One),
            Relays::Straight,
            "what is known of links is not exact"
        );
    }

    #[test]
    fn what_does_not_become_one_is_passed_on_while_the_link_carries_it() {
        let third = |mb_per_s| {
            three([(4, 2, cost(5, 100)), (2, 9, cost(5, 100)), (4, 9, cost(5, mb_per_s))])
        };
        let is_past =
            |crossings: &Crossings, load| crossings.relays_of(0, 1 << 20, load).teller(0, 2) == 1;
        // A megabyte takes 10 ms over the good links, and over the bad one 105 ms, or 34 ms.
        assert!(is_past(&third(10), Load::One) && is_past(&third(10), Load::Each));
        assert!(is_past(&third(30), Load::One) && !is_past(&third(30), Load::Each));
        let [one, each] = [Load::One, Load::Each]
            .map(|load| third(10).rooted_ns(Some(0), 1 << 20, load).unwrap());
        let (least, most) = (one + 10_000_000, one + 11_000_000);
        assert!((least..most).contains(&each), "{one} and {each}");
        // Six sites that all hear past the second.
        let costs = Costs::default();
        let far = (2..6).map(|site| (0, site, cost(50, 100)));
        let near = (2..6).map(|site| (1, site, cost(5, 100)));
        let pairs = Pairs::new(far.chain(near).chain([(0, 1, cost(5, 100))]));
        let six = Crossings::new(&[0, 1, 2, 3, 4, 5], vec![1; 6], 1, &costs, &pairs);
        let past = |bytes, load| {
            let relays = six.relays_of(0, bytes, load);
            (2..6).filter(|&site| relays.teller(0, site) == 1).count()
        };
        assert_eq!([past(8, Load::One), past(8, Load::Each)], [4, 4]);
        assert_eq!([past(1 << 20, Load::One), past(1 << 20, Load::Each)], [4, 0]);
    }

    #[test]
    fn segments_for_many_sites_go_each_by_another_one() {
        let costs = Costs::default();
        let sites: Vec<u32> = (0..16).collect();
        let of = |nodes| Crossings::new(&sites, vec![1; 16], nodes, &costs, &Pairs::default());
        let routes = |nodes, bytes, load| of(nodes).routes_of(Some(3), bytes, 24, load);
        assert_eq!(routes(1, 8, Load::One).relays(0), &Relays::Straight);
        assert_eq!(routes(1, 1 << 20, Load::Each).turns(), Some(16));
        for nodes in [1, 2, 3, 5] {
            let routes = routes(nodes, 1 << 20, Load::One);
            let mut pairs = std::collections::BTreeSet::new();
            for index in 0..15 * nodes as u32 {
                let by = routes.relays(index).teller(3, if index % 2 == 0 { 2 } else { 9 });
                let relays = routes.relays(index);
                let by = if by == 3 { relays.teller(3, 4) } else { by };
                let told: Vec<u32> = relays.told_by(by, 3).collect();
                assert!(by != 3 && told.len() == 14 && !told.contains(&3), "{relays:?}");
                pairs.insert((by, index % nodes as u32));
            }
            assert_eq!(pairs.len(), 15 * nodes as usize, "each node tells by each site");
        }
        assert!(of(1).spread_ns(None, 1 << 20, 24, Load::One).unwrap() > 12_000_000);
        assert_eq!(of(1).spread_ns(None, 1 << 20, 1, Load::One), None);
    }
}
