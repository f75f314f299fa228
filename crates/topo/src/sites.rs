//! Who is where: the nodes and sites of a job's processes.
//!
//! Each process tells the others of its [`Home`]. From all of them, in the order of ranks, follows the
//! [`Map`]: numbers of nodes and sites, dense, in the order of their first rank.
//!
//! Processes that share memory are on one node. A process that names its site is of that site. Those that
//! name none are of one site if they are on one node, or on a network in common; so are all that are
//! linked by a chain of such. A network is known by the bits that its addresses share, so two of the same
//! numbers look like one; where two nodes have the same address in it they are known to be two, and it
//! joins nobody. Names tell sites apart even within a node, so that a node is of one site always.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::number;

/// Where a process is, as it tells the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The same bytes in all processes that share memory, and in no others; at most 255.
    pub node: Vec<u8>,
    /// The same bytes in all processes whose nodes share a machine and its cores, as containers do, and in no others;
    /// none where that is not known; at most 255.
    pub machine: Vec<u8>,
    /// The site's name, if it has one; at most 255 bytes.
    pub site: Option<String>,
    /// The networks that lead from here to other machines; at most 255.
    pub networks: Vec<Network>,
}

/// An address, and the network that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The node and the site of every process of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// For each rank; none at all where everybody is on one node.
    places: Vec<Place>,
    nodes: u32,
    sites: u32,
    is_one_machine: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    node: u32,
    site: u32,
}

impl Map {
    /// Everybody on one node of one site.
    pub fn flat() -> Self {
        Self { places: Vec::new(), nodes: 1, sites: 1, is_one_machine: true }
    }

    /// The map of processes at these homes, in the order of their ranks.
    pub fn of(homes: &[Home]) -> Self {
        let node = dense(homes.iter().map(|home| (&home.node, &home.site)));
        let site = dense(families(homes, &node));
        let places = node.into_iter().zip(site).map(|(node, site)| Place { node, site });
        let is_known = homes.first().is_some_and(|home| !home.machine.is_empty());
        let is_same = homes.windows(2).all(|homes| homes[0].machine == homes[1].machine);
        Self::of_places(places.collect(), is_known && is_same)
    }

    /// The node of a rank of the job, one of `0..nodes()`.
    #[inline]
    pub fn node(&self, rank: u32) -> u32 {
        self.place(rank).node
    }

    /// The site of a rank of the job, one of `0..sites()`. Ranks of one node are of one site.
    #[inline]
    pub fn site(&self, rank: u32) -> u32 {
        self.place(rank).site
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Number of sites.
    pub fn sites(&self) -> u32 {
        self.sites
    }

    /// Whether all nodes are known to be on one machine, whose cores they share.
    pub fn is_one_machine(&self) -> bool {
        self.is_one_machine
    }

    /// The map as bytes: whether all is on one machine, and runs of ranks at one place.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.is_one_machine)];
        for run in self.places.chunk_by(|one, next| one == next) {
            let numbers = [run.len() as u32, run[0].node, run[0].site];
            numbers.into_iter().for_each(|number| number::append(&mut bytes, number.into()));
        }
        bytes
    }

    /// The map of a job of so many processes; none where the bytes are no such map.
    pub fn parse(bytes: &[u8], size: u32) -> Option<Self> {
        let (&is_one_machine, mut rest) = bytes.strip_prefix(&[VERSION])?.split_first()?;
        let mut places: Vec<Place> = Vec::new();
        while !rest.is_empty() {
            let ranks = small(&mut rest)?;
            let place = Place { node: small(&mut rest)?, site: small(&mut rest)? };
            if ranks > size.checked_sub(places.len() as u32)? {
                return None;
            }
            places.extend(std::iter::repeat_n(place, ranks as usize));
        }
        let is_whole = places.is_empty() || places.len() == size as usize;
        let is_known = is_one_machine <= 1 && is_whole && is_ordered(&places);
        is_known.then(|| Self::of_places(places, is_one_machine == 1))
    }

    fn of_places(mut places: Vec<Place>, is_one_machine: bool) -> Self {
        let count = |number: fn(&Place) -> u32| {
            places.iter().map(number).max().map_or(1, |last| last.saturating_add(1))
        };
        let (nodes, sites) = (count(|place| place.node), count(|place| place.site));
        if nodes == 1 {
            places = Vec::new();
        }
        Self { places, nodes, sites, is_one_machine: is_one_machine || nodes == 1 }
    }

    #[inline]
    fn place(&self, rank: u32) -> Place {
        self.places.get(rank as usize).copied().unwrap_or_default()
    }
}

impl Home {
    /// The home as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let mut append = |part: &[u8]| {
            let part = &part[..part.len().min(usize::from(u8::MAX))];
            bytes.push(part.len() as u8);
            bytes.extend(part);
        };
        append(&self.node);
        append(&self.machine);
        // A name is never empty.
        append(self.site.as_deref().unwrap_or("").as_bytes());
        for network in &self.networks {
            match network.address {
                IpAddr::V4(address) => append(&[&address.octets()[..], &[network.prefix]].concat()),
                IpAddr::V6(address) => append(&[&address.octets()[..], &[network.prefix]].concat()),
            }
        }
        bytes
    }

    /// The home that a process told of; none where the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let mut part = || {
            let (&len, tail) = rest.split_first()?;
            let (part, tail) = tail.split_at_checked(usize::from(len))?;
            rest = tail;
            Some((part, tail.is_empty()))
        };
        let (node, machine) = (part()?.0.to_vec(), part()?.0.to_vec());
        let (site, mut is_last) = part()?;
        let site = String::from_utf8(site.to_vec()).ok()?;
        let mut networks = Vec::new();
        while !is_last {
            let (bytes, last) = part()?;
            networks.push(Network::parse(bytes)?);
            is_last = last;
        }
        let site = Some(site).filter(|name| !name.is_empty());
        Some(Self { node, machine, site, networks })
    }
}

impl Network {
    /// The network whose addresses share their first `prefix` bits with `address`.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        Self { address, prefix: prefix.min(length(address)) }
    }

    /// The address in it that is told of.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// The first address of the network, and the bits that its addresses share.
    fn subnet(&self) -> (IpAddr, u8) {
        let unused = u32::from(length(self.address) - self.prefix);
        let first = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(unused).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(unused).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        (first, self.prefix)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&prefix, octets) = bytes.split_last()?;
        let address = match octets.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(octets).ok()?),
            16 => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
            _ => return None,
        };
        (prefix <= length(address)).then_some(Self { address, prefix })
    }
}

/// Bits of an address.
fn length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether nodes and sites are numbered as they come, and every node is of one site.
fn is_ordered(places: &[Place]) -> bool {
    let mut sites_of_nodes: Vec<u32> = Vec::new();
    let mut sites = 0;
    places.iter().all(|place| {
        if place.node as usize == sites_of_nodes.len() {
            sites_of_nodes.push(place.site);
            sites += u32::from(place.site == sites);
        }
        place.site < sites && sites_of_nodes.get(place.node as usize) == Some(&place.site)
    })
}

/// What ranks of one site have in common: the site's name, or the first node of those that networks join.
fn families<'a>(homes: &'a [Home], node: &[u32]) -> Vec<(Option<&'a str>, u32)> {
    let nodes = node.iter().max().map_or(0, |last| last + 1);
    let mut joined = Joined((0..nodes).collect());
    for members in subnets(homes, node).into_values() {
        let is_one = members.iter().all(|(_, is_owner)| *is_owner);
        for ((one, _), (other, _)) in members.iter().zip(&members[1..]).filter(|_| is_one) {
            joined.join(*one, *other);
        }
    }
    let family = |(home, &node): (&'a Home, &u32)| match &home.site {
        Some(name) => (Some(name.as_str()), 0),
        None => (None, joined.first(node)),
    };
    homes.iter().zip(node).map(family).collect()
}

/// The nodes without a site's name in each subnet, and whether each one is the first with its address.
fn subnets(homes: &[Home], node: &[u32]) -> HashMap<(IpAddr, u8), Vec<(u32, bool)>> {
    let mut owners: HashMap<Network, u32> = HashMap::new();
    let mut subnets: HashMap<(IpAddr, u8), Vec<(u32, bool)>> = HashMap::new();
    for (home, &node) in homes.iter().zip(node).filter(|(home, _)| home.site.is_none()) {
        for network in &home.networks {
            let owner = *owners.entry(*network).or_insert(node);
            subnets.entry(network.subnet()).or_default().push((node, owner == node));
        }
    }
    subnets
}

/// Numbers in sets; each set is known by its least.
struct Joined(Vec<u32>);

impl Joined {
    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other) as usize] = one.min(other);
    }

    fn first(&self, mut member: u32) -> u32 {
        while self.0[member as usize] != member {
            member = self.0[member as usize];
        }
        member
    }
}

/// Numbers for different values, in the order in which they first come.
fn dense<T: Eq + Hash>(values: impl IntoIterator<Item = T>) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let number = |value| {
        let next = numbers.len() as u32;
        *numbers.entry(value).or_insert(next)
    };
    values.into_iter().map(number).collect()
}

fn small(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(number::take(bytes)?).ok()
}

const VERSION: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        let (address, prefix) = text.split_once('/').unwrap();
        Network::new(address.parse().unwrap(), prefix.parse().unwrap())
    }

    fn home(node: &str, networks: &[&str]) -> Home {
        let networks = networks.iter().map(|text| network(text)).collect();
        Home { node: node.into(), machine: Vec::new(), site: None, networks }
    }

    fn named(node: &str, site: &str, networks: &[&str]) -> Home {
        Home { site: Some(site.into()), ..home(node, networks) }
    }

    fn numbers(homes: &[Home]) -> (Vec<u32>, Vec<u32>) {
        let map = Map::of(homes);
        (0..homes.len() as u32).map(|rank| (map.node(rank), map.site(rank))).unzip()
    }

    #[test]
    fn nodes_are_of_one_machine_if_all_say_so() {
        let on = |node, machine: &str| Home { machine: machine.into(), ..home(node, &[]) };
        let is_one = |homes: &[Home]| Map::of(homes).is_one_machine();
        assert!(is_one(&[on("a", "m"), on("b", "m")]) && is_one(&[on("a", ""), on("a", "")]));
        assert!(!is_one(&[on("a", "m"), on("b", "m"), on("c", "n")]));
        assert!(!is_one(&[on("a", ""), on("b", "")]), "not known");
    }

    #[test]
    fn hosts_are_of_one_site_by_a_chain_of_networks() {
        let homes = [
            home("a", &["10.0.0.1/24"]),
            home("b", &["10.9.0.1/24"]),
            home("c", &["10.0.0.3/24", "10.1.0.3/24"]),
            home("a", &["10.0.0.1/24"]),
            home("d", &["10.1.0.4/24"]),
            home("e", &["10.0.0.5/16"]),
        ];
        assert_eq!(numbers(&homes), (vec![0, 1, 2, 0, 3, 4], vec![0, 1, 0, 0, 0, 2]));
        let six = [home("a", &["fd00:1::1/64"]), home("b", &["fd00:1::2/64"])];
        assert_eq!(Map::of(&six).sites(), 1);
        let alone = [home("a", &["10.0.0.1/32"]), home("b", &["10.0.0.2/32"])];
        assert_eq!(Map::of(&alone).sites(), 2);
    }

    #[test]
    fn networks_of_the_same_numbers_are_two_where_an_address_is_there_twice() {
        let private = [home("a", &["192.168.1.2/24"]), home("b", &["192.168.1.2/24"])];
        assert_eq!(Map::of(&private).sites(), 2);
        let mut homes = private.to_vec();
        homes.push(home("c", &["192.168.1.3/24", "10.0.0.3/24"]));
        homes.push(home("a", &["192.168.1.2/24", "10.0.0.1/24"]));
        assert_eq!(numbers(&homes).1, [0, 1, 0, 0]);
    }

    #[test]
    fn names_come_before_networks_and_part_even_a_node() {
        let homes = [
            named("a", "north", &["10.0.0.1/24"]),
            named("a", "south", &["10.0.0.1/24"]),
            named("b", "north", &["10.7.0.1/24"]),
            home("c", &["10.0.0.2/24"]),
            home("a", &["10.0.0.1/24"]),
        ];
        assert_eq!(numbers(&homes), (vec![0, 1, 2, 3, 4], vec![0, 1, 0, 2, 2]));
    }

    #[test]
    fn one_node_needs_no_table() {
        assert_eq!(Map::of(&vec![home("a", &[]); 5]), Map::flat());
        assert_eq!(Map::flat().emit().len(), 2);
        assert_eq!((Map::flat().nodes(), Map::flat().sites(), Map::flat().site(4)), (1, 1, 0));
        assert_eq!(Map::parse(&Map::flat().emit(), 5), Some(Map::flat()));
    }

    /// Homes that often have a node, a name or a network in common.
    fn homes() -> impl Strategy<Value = Vec<Home>> {
        let networks = proptest::collection::vec((0u8..4, 1u8..6, 24u8..26), 0..3);
        let one = (0u8..6, 0u8..8, networks).prop_map(|(node, site, networks)| Home {
            node: vec![node],
            machine: vec![node / 3],
            site: ["x", "y"].get(usize::from(site)).map(ToString::to_string),
            networks: networks
                .into_iter()
                .map(|(net, host, prefix)| Network::new([10, 0, net, host].into(), prefix))
                .collect(),
        });
        proptest::collection::vec(one, 1..12)
    }

    /// Which ranks are of one site, by the definition: the closure of what any two have in common.
    fn by_definition(homes: &[Home]) -> Vec<Vec<bool>> {
        let is_twice = |subnet| {
            let all = || homes.iter().filter(|home| home.site.is_none());
            let both = all().flat_map(|one| all().map(move |other| (one, other)));
            both.filter(|(one, other)| one.node != other.node).any(|(one, other)| {
                let same = one.networks.iter().filter(|n| other.networks.contains(n));
                same.map(Network::subnet).any(|it| it == subnet)
            })
        };
        let meet = |one: &Home, other: &Home| match (&one.site, &other.site) {
            (Some(one), Some(other)) => one == other,
            (None, None) => {
                let theirs: Vec<_> = other.networks.iter().map(Network::subnet).collect();
                let mut own = one.networks.iter().map(Network::subnet);
                one.node == other.node || own.any(|n| theirs.contains(&n) && !is_twice(n))
            }
            (Some(_), None) | (None, Some(_)) => false,
        };
        let all = 0..homes.len();
        let row = |one: usize| all.clone().map(|other| meet(&homes[one], &homes[other])).collect();
        let mut joined: Vec<Vec<bool>> = all.clone().map(row).collect();
        for via in all.clone() {
            for from in all.clone() {
                for to in all.clone() {
                    joined[from][to] |= joined[from][via] && joined[via][to];
                }
            }
        }
        joined
    }

    proptest! {
        #[test]
        fn sites_are_what_their_definition_says(homes in homes()) {
            let (node, site) = numbers(&homes);
            let joined = by_definition(&homes);
            for (one, row) in joined.iter().enumerate() {
                for (other, &expected) in row.iter().enumerate() {
                    prop_assert_eq!(site[one] == site[other], expected || one == other);
                    let same = (&homes[one].node, &homes[one].site)
                        == (&homes[other].node, &homes[other].site);
                    prop_assert_eq!(node[one] == node[other], same);
                }
            }
            let mut machines = homes.iter().map(|home| &home.machine);
            let first = machines.next();
            let is_one = machines.all(|machine| Some(machine) == first);
            let map = Map::of(&homes);
            prop_assert_eq!(map.is_one_machine(), is_one || map.nodes() == 1);
            let in_order = |all: &[u32]| {
                let mut next = 0;
                all.iter().all(|&it| { next += u32::from(it == next); it < next })
            };
            prop_assert!(in_order(&node) && in_order(&site));
        }

        #[test]
        fn every_process_finds_the_same_map(homes in homes(), turn in 0usize..4) {
            let told: Vec<Home> =
                homes.iter().map(|home| Home::parse(&home.emit()).unwrap()).collect();
            prop_assert_eq!(&told, &homes);
            let mut turned = told;
            for home in &mut turned {
                let by = turn % home.networks.len().max(1);
                home.networks.rotate_left(by);
            }
            let map = Map::of(&homes);
            prop_assert_eq!(&Map::of(&turned), &map);
            prop_assert_eq!(Map::parse(&map.emit(), homes.len() as u32), Some(map));
        }

        #[test]
        fn bytes_of_a_stranger_are_a_map_or_are_not(bytes: Vec<u8>, size in 1u32..40) {
            let whole = [&[VERSION][..], &bytes].concat();
            if let Some(map) = Map::parse(&whole, size) {
                for rank in 0..size {
                    prop_assert!(map.node(rank) < map.nodes() && map.site(rank) < map.sites());
                }
                prop_assert_eq!(Map::parse(&map.emit(), size), Some(map));
            }
            if let Some(home) = Home::parse(&whole) {
                prop_assert_eq!(Home::parse(&home.emit()), Some(home));
            }
        }
    }
}
