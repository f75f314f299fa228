//! Placement of a communicator's ranks on nodes and sites.
//!
//! All ranks plan from equal topologies. Their schedules fit together only because they all choose
//! alike.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::algorithms::shmem::{ShmAccess, link_bytes};
use crate::choice::{Algorithm, Call, Plans};
use crate::costs::{Costs, Distance, MessageCost};
use crate::crossings::{Crossings, Pairs};
use crate::model::{Model, Order, RankCounts};
use crate::team::Team;

/// Placement of a communicator's ranks on nodes and sites.
#[derive(Clone, Debug)]
pub struct Topology {
    size: u32,
    is_oversubscribed: bool,
    levels: Option<Box<Levels>>,
    /// Levels whose top is the sites if there are several, else the nodes if there are several.
    grid: Option<Box<Grid>>,
    costs: Costs,
    model: Model,
    plans: Arc<Plans>,
    /// Bytes of a page of each node's shared segment, if nodes have one.
    page_bytes: Option<u64>,
}

/// Location of one rank. The numbers only tell nodes and sites apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Ranks with equal numbers share memory.
    pub node: u32,
    /// Ranks with equal numbers are near each other. A node belongs to the site of its first rank.
    pub site: u32,
}

/// Data from which operations over several sites, or several nodes of one site, are planned.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// Levels that long data pass through.
    pub long: Levels,
    /// Levels that short data pass through.
    pub short: Levels,
    pub costs: Costs,
    pub crossings: Arc<Crossings>,
    /// Number of nodes in the largest site.
    pub nodes_most: u32,
}

/// Ranks by node and nodes by site. Sites are numbered in the order of their first ranks. Nodes are
/// numbered likewise within each site, and consecutively over the sites. This gives the *order of
/// the grid*, in which the ranks of a node and of a site are neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    /// All ranks in the order of the grid.
    ranks: Vec<u32>,
    /// Each rank's place in that order.
    places: Vec<u32>,
    /// Each rank's node.
    node_of: Vec<u32>,
    /// Each node's site.
    site_of: Vec<u32>,
    /// First index of each node in `ranks`, and the end.
    node_starts: Vec<u32>,
    /// First node of each site, and the end.
    site_starts: Vec<u32>,
}

impl Topology {
    /// Returns the topology of ranks on one node. `is_oversubscribed` is true if they outnumber its
    /// cores.
    pub fn flat(size: u32, is_oversubscribed: bool, costs: Costs) -> Self {
        let shape = RankCounts::flat(size, is_oversubscribed);
        let crossings = Arc::new(Crossings::alike(costs.wide, &costs));
        let (model, plans) =
            (Model::new(shape, Default::default(), &costs, crossings), Arc::default());
        let (levels, grid, page_bytes) = (None, None, None);
        Self { size, is_oversubscribed, levels, grid, costs, model, plans, page_bytes }
    }

    /// Returns the topology of ranks at `locations`. `is_oversubscribed` is true if those are on
    /// one machine and outnumber its cores. A single node gives the same as [`Topology::flat`].
    pub fn new(locations: &[Location], is_oversubscribed: bool, costs: Costs) -> Self {
        Self::with_pairs(locations, is_oversubscribed, costs, &Pairs::default())
    }

    /// Returns the same with the known costs between some pairs of sites.
    pub fn with_pairs(
        locations: &[Location],
        is_oversubscribed: bool,
        costs: Costs,
        pairs: &Pairs,
    ) -> Self {
        let size = locations.len() as u32;
        if locations.iter().all(|location| location.node == locations[0].node) {
            return Self::flat(size, is_oversubscribed, costs);
        }
        let levels = Levels::new(locations);
        let (costs, grid) = match levels.sites() {
            1 => (costs, Grid::of_nodes(&levels, costs)),
            _ => {
                let costs = if is_oversubscribed { costs.when_oversubscribed(size) } else { costs };
                let crossings = levels.crossings(locations, &costs, pairs);
                let costs = Costs { wide: crossings.widest(), ..costs };
                (costs, Grid::new(&levels, costs, crossings))
            }
        };
        let crossings = Arc::clone(&grid.crossings);
        let has_leaders = grid.short.nodes() == levels.nodes();
        let is_shared = is_oversubscribed && levels.sites() == 1;
        let shape = RankCounts { has_leaders, is_shared, ..levels.shape() };
        let model = Model::new(shape, levels.orders(), &costs, crossings);
        let (levels, grid) = (Some(Box::new(levels)), Some(Box::new(grid)));
        let (plans, page_bytes) = (Arc::default(), None);
        Self { size, is_oversubscribed, levels, grid, costs, model, plans, page_bytes }
    }

    /// Returns the topology with the user's table of algorithms.
    #[must_use]
    pub fn with_plans(self, plans: Arc<Plans>) -> Self {
        Self { plans, ..self }
    }

    /// Returns the topology with a shared segment of such pages for the ranks of each node.
    #[must_use]
    pub fn with_shm_coll(self, page_bytes: u64) -> Self {
        Self { page_bytes: Some(page_bytes), ..self }
    }

    /// Number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// True if all ranks are on one node and outnumber its cores.
    pub fn is_oversubscribed(&self) -> bool {
        self.is_oversubscribed && self.levels.is_none()
    }

    /// True if all ranks are on one machine, on any number of nodes, and outnumber its cores.
    pub fn outnumbers_cores(&self) -> bool {
        self.is_oversubscribed
    }

    /// Number of sites.
    pub fn sites(&self) -> u32 {
        self.levels.as_ref().map_or(1, |levels| levels.sites())
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.levels.as_ref().map_or(1, |levels| levels.nodes())
    }

    /// Number of ranks on the fullest node.
    pub fn node_ranks(&self) -> u32 {
        self.model.shape().node_ranks as u32
    }

    /// Returns the ranks on a rank's node, lowest first: their positions in its shared segment.
    pub fn neighbours(&self, rank: u32) -> Vec<u32> {
        match &self.levels {
            Some(levels) => levels.ranks_of_node(levels.node(rank)).to_vec(),
            None => (0..self.size).collect(),
        }
    }

    /// Costs of messages. If sites differ, `wide` is the longest latency and the best rate.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the location of a rank, in dense numbers.
    pub fn location(&self, rank: u32) -> Location {
        match &self.levels {
            Some(levels) => Location { node: levels.node(rank), site: levels.site(rank) },
            None => Location { node: 0, site: 0 },
        }
    }

    /// Returns the distance between two ranks.
    pub fn distance(&self, one: u32, other: u32) -> Distance {
        let Some(levels) = &self.levels else { return Distance::Node };
        if levels.node(one) == levels.node(other) {
            Distance::Node
        } else if levels.site(one) == levels.site(other) {
            Distance::Site
        } else {
            Distance::Wide
        }
    }

    /// Returns the cost of a message from one rank to another.
    pub fn cost(&self, from: u32, to: u32) -> MessageCost {
        match (self.distance(from, to), &self.levels) {
            (Distance::Wide, Some(levels)) => {
                self.model.crossings().cost(levels.site(from), levels.site(to))
            }
            (distance, _) => self.costs.at(distance),
        }
    }

    /// Returns the costs between sites that differ, by the site numbers of [`Topology::location`].
    pub fn pairs(&self) -> Pairs {
        self.model.crossings().pairs()
    }

    /// Returns the predicted time of a call by an algorithm; none if the algorithm cannot carry it
    /// out.
    pub fn predicted_ns(&self, call: &Call, algorithm: Algorithm) -> Option<u64> {
        Some(self.model.fastest_ns(call, algorithm, self.root_site(call), self.page_bytes)?.0)
    }

    /// Returns the site of a call's root, if the root is known and there may be several sites.
    pub(crate) fn root_site(&self, call: &Call) -> Option<u32> {
        let site_of = |rank| self.levels.as_ref().map(|levels| levels.site(rank));
        call.root.and_then(site_of)
    }

    /// Bytes of a page of each node's shared segment, if nodes have one.
    pub fn page_bytes(&self) -> Option<u64> {
        self.page_bytes
    }

    /// Returns a rank's access to the shared segment of its node, with pages counted in units of
    /// `unit_bytes`. Without a shared segment the result is never used.
    pub(crate) fn shm(&self, me: u32, unit_bytes: u64) -> ShmAccess {
        let page_bytes = self.page_bytes.unwrap_or(0);
        let units = |bytes: u64| (bytes / unit_bytes.max(1)).max(1);
        let link = units(link_bytes(page_bytes));
        let page = units(page_bytes);
        let shares_cores = self.is_oversubscribed();
        let piece = if shares_cores { page } else { link };
        let (me, size) = match &self.levels {
            Some(levels) => {
                let (start, end) = levels.places_of_node(levels.node(me));
                (levels.place(me) - start, end - start)
            }
            None => (me, self.size),
        };
        ShmAccess { me, size, page, piece, link, shares_cores }
    }

    /// Returns a rank's access to the shared segment of its node if a call by leaders uses shared
    /// segments within nodes. None on a node with one rank.
    pub(crate) fn node_shm(
        &self,
        me: u32,
        unit_bytes: u64,
        call: &Call,
        algorithm: Algorithm,
    ) -> Option<ShmAccess> {
        let soonest = self.model.fastest_ns(call, algorithm, self.root_site(call), self.page_bytes);
        let by_shmem = soonest.is_some_and(|(_, by_shmem)| by_shmem);
        by_shmem.then(|| self.shm(me, unit_bytes)).filter(|shm| shm.size > 1)
    }

    /// Returns the algorithm by which the leaders of nodes exchange directly.
    pub(crate) fn leaders(&self) -> Algorithm {
        if self.sites() == 1 { Algorithm::Leaders } else { Algorithm::Multisite }
    }

    /// Returns the algorithm by which leaders exchange the blocks of all their ranks in one
    /// message.
    pub(crate) fn aggregated(&self) -> Algorithm {
        if self.sites() == 1 { Algorithm::Leaders } else { Algorithm::Aggregated }
    }

    /// True if ranks at the shared segment divide the work of a call.
    pub(crate) fn shares_in_shmem(&self, call: &Call) -> bool {
        let in_shm_coll = self.page_bytes.and_then(|bytes| self.model.shmem_ns(call, bytes));
        in_shm_coll.is_some_and(|(_, shares)| shares)
    }

    pub(crate) fn plans(&self) -> &Plans {
        &self.plans
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the levels whose leaders exchange directly.
    ///
    /// # Panics
    ///
    /// On one node: no algorithm that needs them is chosen there.
    #[inline]
    pub(crate) fn grid(&self) -> &Grid {
        self.grid.as_deref().expect("one node has no leaders that exchange")
    }

    pub(crate) fn levels(&self) -> Option<&Levels> {
        self.levels.as_deref()
    }

    /// Returns all ranks in their own order, as one of them sees them.
    pub(crate) fn by_rank(&self, me: u32) -> Team<'_> {
        Team::all(self.size, me)
    }

    /// Returns all ranks in the order of the grid, so that neighbours are near.
    pub(crate) fn by_place(&self, me: u32) -> Team<'_> {
        match &self.levels {
            Some(levels) => Team::of(levels.ranks(), levels.place(me)),
            None => Team::all(self.size, me),
        }
    }

    /// Returns a rank and then all others, the farthest first: other sites, then its own site, then
    /// its node. Among other sites the one with the longest transfer of a block for each of its
    /// ranks comes first.
    pub(crate) fn farthest_first(&self, me: u32, sizes: &dyn Fn(u32) -> u64) -> Vec<u32> {
        let mut ranks: Vec<u32> = (0..self.size).map(|offset| (me + offset) % self.size).collect();
        if let Some(levels) = &self.levels {
            let of_site = |site| levels.ranks_of_site(site).iter().map(|&rank| sizes(rank)).sum();
            let delays_ns = self.model.crossings().delays_ns(levels.site(me), &of_site);
            let path_ns = |rank| delays_ns.get(levels.site(rank) as usize);
            ranks[1..].sort_by_key(|&rank| Reverse((self.distance(me, rank), path_ns(rank))));
        }
        ranks
    }

    /// Returns a rank's place in the order of the grid.
    pub(crate) fn place(&self, rank: u32) -> u32 {
        self.levels.as_ref().map_or(rank, |levels| levels.place(rank))
    }
}

impl RankCounts {
    fn flat(size: u32, is_oversubscribed: bool) -> Self {
        let ranks = u64::from(size.max(1));
        Self {
            ranks,
            nodes: 1,
            sites: 1,
            node_ranks: ranks,
            site_nodes: 1,
            site_ranks: ranks,
            node_runs: 1,
            site_runs: 1,
            node_tells: 0,
            is_in_order: true,
            is_oversubscribed,
            is_shared: false,
            has_leaders: true,
        }
    }
}

impl Grid {
    /// Treats each node of one site as a site of its own.
    fn of_nodes(levels: &Levels, costs: Costs) -> Self {
        let node = |rank| Location { node: levels.node(rank), site: levels.node(rank) };
        let ranks = 0..levels.ranks().len() as u32;
        let nodes = Levels::new(&ranks.map(node).collect::<Vec<_>>());
        let crossings = Arc::new(Crossings::of_nodes(nodes.nodes().into(), &costs));
        let costs = Costs { site: costs.node, wide: costs.site, ..costs };
        Self { short: nodes.clone(), long: nodes, costs, crossings, nodes_most: 1 }
    }

    /// Chooses levels for long and short messages. Short ones skip the leaders of nodes if the leader
    /// of a site reaches all its ranks before the last of them would wake after another hop.
    fn new(levels: &Levels, costs: Costs, crossings: Crossings) -> Self {
        let sites = 0..levels.sites();
        let ranks = sites.clone().map(|site| levels.ranks_of_site(site).len() as u64).max();
        let nodes = sites.map(|site| levels.nodes_of(site).len() as u64).max();
        let (ranks, nodes) = (ranks.unwrap_or(1), nodes.unwrap_or(1));
        let by_nodes_ns = nodes * costs.site.overhead_ns
            + ranks.div_ceil(nodes) * costs.node.overhead_ns
            + costs.node.latency_ns
            + costs.wake_ns;
        let short = if ranks * costs.site.overhead_ns <= by_nodes_ns {
            let in_site = |rank| levels.site(rank);
            let whole = |rank| Location { node: in_site(rank), site: in_site(rank) };
            Levels::new(&(0..levels.ranks().len() as u32).map(whole).collect::<Vec<_>>())
        } else {
            levels.clone()
        };
        let nodes_most = nodes as u32;
        let crossings = Arc::new(crossings);
        Self { long: levels.clone(), short, costs, crossings, nodes_most }
    }
}

impl Levels {
    fn new(locations: &[Location]) -> Self {
        let nodes = dense(locations.iter().map(|location| location.node));
        let first_of_node = firsts(&nodes);
        let site_of_node: Vec<u32> =
            dense(first_of_node.iter().map(|&rank| locations[rank as usize].site));
        // By site, then by first rank.
        let mut order: Vec<u32> = (0..first_of_node.len() as u32).collect();
        order.sort_by_key(|&node| (site_of_node[node as usize], node));
        let mut renumbered = vec![0; order.len()];
        (0..).zip(&order).for_each(|(new, &old)| renumbered[old as usize] = new);
        let site_of: Vec<u32> = order.iter().map(|&old| site_of_node[old as usize]).collect();
        let node_of: Vec<u32> = nodes.iter().map(|&old| renumbered[old as usize]).collect();
        let mut ranks: Vec<u32> = (0..locations.len() as u32).collect();
        ranks.sort_by_key(|&rank| (node_of[rank as usize], rank));
        let mut places = vec![0; ranks.len()];
        (0..).zip(&ranks).for_each(|(place, &rank)| places[rank as usize] = place);
        let node_starts = boundaries(ranks.iter().map(|&rank| node_of[rank as usize]));
        let site_starts = boundaries(site_of.iter().copied());
        Self { ranks, places, node_of, site_of, node_starts, site_starts }
    }

    fn shape(&self) -> RankCounts {
        let widths = |starts: &[u32]| -> Vec<u64> {
            starts.windows(2).map(|pair| u64::from(pair[1] - pair[0])).collect()
        };
        let most = |counts: &[u64]| counts.iter().copied().max().unwrap_or(1);
        let of_nodes = widths(&self.node_starts);
        let of_sites = (0..self.sites()).map(|site| self.ranks_of_site(site).len() as u64);
        let node_ranks = most(&of_nodes);
        let [node_runs, node_tells] = runs(of_nodes.len(), &self.node_of).map(|all| most(&all));
        let of_ranks: Vec<u32> = self.node_of.iter().map(|&node| self.site_of_node(node)).collect();
        let [site_runs, _] = runs(self.sites() as usize, &of_ranks).map(|all| most(&all));
        RankCounts {
            ranks: self.ranks.len() as u64,
            nodes: of_nodes.len() as u64,
            sites: u64::from(self.sites()),
            node_ranks,
            site_nodes: most(&widths(&self.site_starts)),
            site_ranks: most(&of_sites.collect::<Vec<_>>()),
            node_runs,
            site_runs,
            node_tells,
            is_in_order: self.ranks.is_sorted(),
            is_oversubscribed: false,
            is_shared: false,
            has_leaders: true,
        }
    }

    /// Returns the costs between sites. `pairs` numbers them as `locations` does.
    fn crossings(&self, locations: &[Location], costs: &Costs, pairs: &Pairs) -> Crossings {
        let ranks = |site| self.ranks_of_site(site);
        // A node belongs to the site of its first rank.
        let number =
            |site| locations[self.ranks_of_node(self.nodes_of(site).start)[0] as usize].site;
        let sites: Vec<u32> = (0..self.sites()).map(number).collect();
        let counts = (0..self.sites()).map(|site| ranks(site).len() as u64).collect();
        let nodes = (0..self.sites()).map(|site| self.nodes_of(site).len() as u64).max();
        Crossings::new(&sites, counts, nodes.unwrap_or(1), costs, pairs)
    }

    /// Returns the order of the grid and the order of ranks.
    fn orders(&self) -> [Order; 2] {
        let by_place: Vec<u32> = self.ranks.iter().map(|&rank| self.node(rank)).collect();
        [Order::new(&by_place), Order::new(&self.node_of)]
    }

    pub(crate) fn sites(&self) -> u32 {
        self.site_starts.len() as u32 - 1
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.site_of.len() as u32
    }

    pub(crate) fn node(&self, rank: u32) -> u32 {
        self.node_of[rank as usize]
    }

    pub(crate) fn site(&self, rank: u32) -> u32 {
        self.site_of[self.node(rank) as usize]
    }

    pub(crate) fn site_of_node(&self, node: u32) -> u32 {
        self.site_of[node as usize]
    }

    /// Returns the nodes of a site.
    pub(crate) fn nodes_of(&self, site: u32) -> std::ops::Range<u32> {
        self.site_starts[site as usize]..self.site_starts[site as usize + 1]
    }

    /// Returns the ranks of a node, lowest first.
    pub(crate) fn ranks_of_node(&self, node: u32) -> &[u32] {
        let (start, end) = self.places_of_node(node);
        &self.ranks[start as usize..end as usize]
    }

    /// Returns the ranks of a site in the order of the grid.
    pub(crate) fn ranks_of_site(&self, site: u32) -> &[u32] {
        let (start, end) = self.places_of_site(site);
        &self.ranks[start as usize..end as usize]
    }

    /// Returns all ranks in the order of the grid.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Returns a rank's place in the order of the grid.
    pub(crate) fn place(&self, rank: u32) -> u32 {
        self.places[rank as usize]
    }

    /// Returns the range of a node's ranks in the order of the grid.
    pub(crate) fn places_of_node(&self, node: u32) -> (u32, u32) {
        (self.node_starts[node as usize], self.node_starts[node as usize + 1])
    }

    /// Returns the range of a site's ranks in the order of the grid.
    pub(crate) fn places_of_site(&self, site: u32) -> (u32, u32) {
        let nodes = self.nodes_of(site);
        (self.node_starts[nodes.start as usize], self.node_starts[nodes.end as usize])
    }
}

/// Counts, for each place, its runs of consecutive ranks, and the pairs that those make with places
/// that have ranks above the run.
fn runs(places: usize, of_ranks: &[u32]) -> [Vec<u64>; 2] {
    let runs = || of_ranks.chunk_by(|one, next| one == next).map(|run| run[0] as usize).enumerate();
    let mut last = vec![0; places];
    runs().for_each(|(at, place)| last[place] = at);
    last.sort_unstable();
    let (mut counts, mut pairs) = (vec![0; places], vec![0; places]);
    for (at, place) in runs() {
        counts[place] += 1;
        pairs[place] += (places - last.partition_point(|&last| last <= at)) as u64;
    }
    [counts, pairs]
}

/// Renumbers values from 0 in the order in which they first appear.
fn dense(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut known = std::collections::BTreeMap::new();
    let number = |number| {
        let next = known.len() as u32;
        *known.entry(number).or_insert(next)
    };
    numbers.map(number).collect()
}

/// Returns the first index of each dense number.
fn firsts(numbers: &[u32]) -> Vec<u32> {
    let mut firsts = Vec::new();
    for (index, &number) in (0..).zip(numbers) {
        if number as usize == firsts.len() {
            firsts.push(index);
        }
    }
    firsts
}

/// Returns the start of each of ascending dense numbers, and the end.
fn boundaries(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut starts = Vec::new();
    let mut end = 0;
    for number in numbers {
        if number as usize == starts.len() {
            starts.push(end);
        }
        end += 1;
    }
    starts.push(end);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(locations: &[(u32, u32)]) -> Topology {
        let locations: Vec<Location> =
            locations.iter().map(|&(node, site)| Location { node, site }).collect();
        Topology::new(&locations, false, Costs::default())
    }

    #[test]
    fn ranks_of_nodes_and_sites_are_neighbours_in_the_order_of_the_grid() {
        // Two sites with alternating ranks, the first with two nodes.
        let topology = of(&[(7, 3), (9, 1), (7, 3), (9, 1), (2, 3), (9, 1)]);
        assert_eq!((topology.sites(), topology.nodes()), (2, 3));
        let levels = &topology.grid().long;
        assert_eq!(levels.ranks(), [0, 2, 4, 1, 3, 5]);
        assert_eq!(levels.ranks_of_site(0), [0, 2, 4]);
        assert_eq!(levels.ranks_of_site(1), [1, 3, 5]);
        assert_eq!(levels.ranks_of_node(1), [4]);
        assert_eq!((levels.node(5), levels.site(5), levels.place(5)), (2, 1, 5));
        assert_eq!(levels.nodes_of(0), 0..2);
        let far = |one, other| topology.distance(one, other);
        assert_eq!(
            [far(0, 2), far(0, 4), far(0, 1)],
            [Distance::Node, Distance::Site, Distance::Wide]
        );
    }

    #[test]
    fn one_node_has_no_levels_and_several_are_not_oversubscribed() {
        let here = Location { node: 5, site: 8 };
        let topology = Topology::new(&[here; 4], true, Costs::default());
        assert!(topology.levels.is_none() && topology.is_oversubscribed() && topology.sites() == 1);
        let there = Location { node: 6, site: 8 };
        let topology = Topology::new(&[here, there], true, Costs::default());
        assert!(topology.sites() == 1 && !topology.is_oversubscribed() && topology.nodes() == 2);
        assert!(topology.outnumbers_cores() && topology.model.shape().is_shared);
        assert_eq!(Topology::new(&[], false, Costs::default()).size(), 0);
    }
}
