//! Where the ranks of a communicator run.
//!
//! All ranks plan from equal topologies: what they do fits together only because they decide alike.

use crate::costs::{Costs, Distance};

/// Where the ranks of a communicator run.
#[derive(Clone, Debug)]
pub struct Topology {
    size: u32,
    is_crowded: bool,
    levels: Option<Box<Levels>>,
    across: Option<Box<Across>>,
    costs: Costs,
}

/// Where one rank runs: numbers that tell nodes and sites apart, and mean nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Ranks with equal numbers share memory.
    pub node: u32,
    /// Ranks with equal numbers are near each other. A node lies in one site: that of its first rank.
    pub site: u32,
}

/// What operations over several sites are planned from.
#[derive(Clone, Debug)]
pub(crate) struct Across {
    /// The levels that what is long goes through.
    pub long: Levels,
    /// Those that what is short goes through.
    pub short: Levels,
    pub costs: Costs,
    /// The nodes of the site that has most of them.
    pub nodes_most: u32,
    /// The ranks of the site that has most of them.
    pub ranks_most: u32,
}

/// Ranks by node and nodes by site. Sites are numbered in the order of their first ranks, nodes likewise
/// within each site and then on: the *order of the grid*, in which the ranks of every node and of every
/// site are neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    /// All ranks in the order of the grid.
    ranks: Vec<u32>,
    /// Each rank's place in it.
    places: Vec<u32>,
    /// Each rank's node.
    node_of: Vec<u32>,
    /// Each node's site.
    site_of: Vec<u32>,
    /// Where each node begins in `ranks`, and the end.
    node_starts: Vec<u32>,
    /// Where each site begins among the nodes, and the end.
    site_starts: Vec<u32>,
}

impl Topology {
    /// The ranks of one node. `is_crowded` says that they outnumber its cores.
    pub fn flat(size: u32, is_crowded: bool, costs: Costs) -> Self {
        Self { size, is_crowded, levels: None, across: None, costs }
    }

    /// Ranks where `locations` says. A single node is as [`Topology::flat`].
    pub fn new(locations: &[Location], is_crowded: bool, costs: Costs) -> Self {
        let size = locations.len() as u32;
        let several = locations.iter().any(|location| location.node != locations[0].node);
        let levels = several.then(|| Box::new(Levels::new(locations)));
        let across = levels.as_deref().filter(|levels| levels.sites() > 1);
        let across = across.map(|levels| Box::new(Across::new(levels, locations, costs)));
        Self { size, is_crowded: is_crowded && !several, levels, across, costs }
    }

    /// The number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether all ranks are on one node and outnumber its cores.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// How many sites the ranks are in.
    pub fn sites(&self) -> u32 {
        self.levels.as_ref().map_or(1, |levels| levels.sites())
    }

    /// How many nodes the ranks are on.
    pub fn nodes(&self) -> u32 {
        self.levels.as_ref().map_or(1, |levels| levels.nodes())
    }

    /// What messages cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Where a rank runs, by dense numbers.
    pub fn location(&self, rank: u32) -> Location {
        match &self.levels {
            Some(levels) => Location { node: levels.node(rank), site: levels.site(rank) },
            None => Location { node: 0, site: 0 },
        }
    }

    /// How far apart two ranks are.
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

    /// What operations over several sites are planned from, where there are several.
    #[inline]
    pub(crate) fn across(&self) -> Option<&Across> {
        self.across.as_deref()
    }
}

impl Across {
    /// Short messages skip the heads of nodes where the head of a site tells all its ranks sooner than the
    /// last of them would wake after a leg more.
    fn new(levels: &Levels, locations: &[Location], costs: Costs) -> Self {
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
            Levels::new(&(0..locations.len() as u32).map(whole).collect::<Vec<_>>())
        } else {
            levels.clone()
        };
        let (nodes_most, ranks_most) = (nodes as u32, ranks as u32);
        Self { long: levels.clone(), short, costs, nodes_most, ranks_most }
    }
}

impl Levels {
    fn new(locations: &[Location]) -> Self {
        let nodes = dense(locations.iter().map(|location| location.node));
        let first_of_node = firsts(&nodes);
        let site_of_node: Vec<u32> =
            dense(first_of_node.iter().map(|&rank| locations[rank as usize].site));
        // By site, and then by the first rank.
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

    pub(crate) fn sites(&self) -> u32 {
        self.site_starts.len() as u32 - 1
    }

    fn nodes(&self) -> u32 {
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

    /// The nodes of a site.
    pub(crate) fn nodes_of(&self, site: u32) -> std::ops::Range<u32> {
        self.site_starts[site as usize]..self.site_starts[site as usize + 1]
    }

    /// The ranks of a node, the lowest first.
    pub(crate) fn ranks_of_node(&self, node: u32) -> &[u32] {
        let (start, end) = self.places_of_node(node);
        &self.ranks[start as usize..end as usize]
    }

    /// The ranks of a site in the order of the grid.
    pub(crate) fn ranks_of_site(&self, site: u32) -> &[u32] {
        let (start, end) = self.places_of_site(site);
        &self.ranks[start as usize..end as usize]
    }

    /// All ranks in the order of the grid.
    pub(crate) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// A rank's place in the order of the grid.
    pub(crate) fn place(&self, rank: u32) -> u32 {
        self.places[rank as usize]
    }

    /// From where to where the ranks of a node are in the order of the grid.
    pub(crate) fn places_of_node(&self, node: u32) -> (u32, u32) {
        (self.node_starts[node as usize], self.node_starts[node as usize + 1])
    }

    /// From where to where the ranks of a site are in the order of the grid.
    pub(crate) fn places_of_site(&self, site: u32) -> (u32, u32) {
        let nodes = self.nodes_of(site);
        (self.node_starts[nodes.start as usize], self.node_starts[nodes.end as usize])
    }
}

/// The same numbers, counted from 0 in the order in which they first come.
fn dense(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut known = std::collections::BTreeMap::new();
    let number = |number| {
        let next = known.len() as u32;
        *known.entry(number).or_insert(next)
    };
    numbers.map(number).collect()
}

/// Where each of dense numbers comes first.
fn firsts(numbers: &[u32]) -> Vec<u32> {
    let mut firsts = Vec::new();
    for (index, &number) in (0..).zip(numbers) {
        if number as usize == firsts.len() {
            firsts.push(index);
        }
    }
    firsts
}

/// Where each of ascending dense numbers begins, and the end.
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
        // Two sites dealt in turns, the first with two nodes.
        let topology = of(&[(7, 3), (9, 1), (7, 3), (9, 1), (2, 3), (9, 1)]);
        assert_eq!((topology.sites(), topology.nodes()), (2, 3));
        let levels = &topology.across().unwrap().long;
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
    fn one_node_has_no_levels_and_several_are_no_crowd() {
        let here = Location { node: 5, site: 8 };
        let topology = Topology::new(&[here; 4], true, Costs::default());
        assert!(topology.levels.is_none() && topology.is_crowded() && topology.sites() == 1);
        let there = Location { node: 6, site: 8 };
        let topology = Topology::new(&[here, there], true, Costs::default());
        assert!(topology.across().is_none() && !topology.is_crowded() && topology.nodes() == 2);
        assert_eq!(Topology::new(&[], false, Costs::default()).size(), 0);
    }
}
