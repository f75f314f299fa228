//! Nodes and sites of a job's processes.
//!
//! Each process publishes its [`Locality`]. The [`SiteMap`] is computed from all of them, in the
//! order of ranks: numbers of nodes and sites, dense, in the order of their first rank.
//!
//! Processes that share memory are on one node. A process that names its site belongs to that site.
//! Processes without a name are in one site if they are on one node or have a network in common,
//! directly or by a chain of such. A network is identified by the bits that its addresses share, so
//! two private networks with the same numbers look like one. If two nodes have the same address in
//! it, they are known to be two, and the network connects no nodes. Names separate sites even
//! within a node, so that a node always belongs to one site.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::number;

/// Locality of a process, as it publishes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// Identity of the node: equal for processes that share memory, and different for others; at
    /// most 255 bytes.
    pub node: Vec<u8>,
    /// Identity of the machine: equal for processes whose nodes share a machine and its cores, as
    /// containers do, and different for others. Empty if unknown; at most 255 bytes.
    pub machine: Vec<u8>,
    /// Name of the site, if it has one; at most 255 bytes.
    pub site: Option<String>,
    /// Networks that lead from here to other machines; at most 255.
    pub networks: Vec<Network>,
}

/// An address and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Node and site of every process of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteMap {
    /// Node and site of each rank; empty if all are on one node.
    places: Vec<RankLocation>,
    nodes: u32,
    sites: u32,
    is_one_machine: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RankLocation {
    node: u32,
    site: u32,
}

impl SiteMap {
    /// Makes the map of processes on one node of one site.
    pub fn flat() -> Self {
        Self { places: Vec::new(), nodes: 1, sites: 1, is_one_machine: true }
    }

    /// Makes the map of processes with these localities, in the order of their ranks.
    pub fn of(localities: &[Locality]) -> Self {
        let node = dense(localities.iter().map(|locality| (&locality.node, &locality.site)));
        let site = dense(site_keys(localities, &node));
        let places = node.into_iter().zip(site).map(|(node, site)| RankLocation { node, site });
        let is_known = localities.first().is_some_and(|locality| !locality.machine.is_empty());
        let is_same =
            localities.windows(2).all(|localities| localities[0].machine == localities[1].machine);
        Self::of_places(places.collect(), is_known && is_same)
    }

    /// Returns the node of a rank of the job, one of `0..nodes()`.
    #[inline]
    pub fn node(&self, rank: u32) -> u32 {
        self.place(rank).node
    }

    /// Returns the site of a rank of the job, one of `0..sites()`. Ranks of one node are of one
    /// site.
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

    /// True if all nodes are known to be on one machine, whose cores they share.
    pub fn is_one_machine(&self) -> bool {
        self.is_one_machine
    }

    /// Encodes the map: the machine flag, and runs of ranks with the same node and site.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.is_one_machine)];
        for run in self.places.chunk_by(|one, next| one == next) {
            let numbers = [run.len() as u32, run[0].node, run[0].site];
            numbers.into_iter().for_each(|number| number::append(&mut bytes, number.into()));
        }
        bytes
    }

    /// Decodes the map of a job of so many processes; none if the bytes are not valid.
    pub fn parse(bytes: &[u8], size: u32) -> Option<Self> {
        let (&is_one_machine, mut rest) = bytes.strip_prefix(&[VERSION])?.split_first()?;
        let mut places: Vec<RankLocation> = Vec::new();
        while !rest.is_empty() {
            let ranks = small(&mut rest)?;
            let place = RankLocation { node: small(&mut rest)?, site: small(&mut rest)? };
            if ranks > size.checked_sub(places.len() as u32)? {
                return None;
            }
            places.extend(std::iter::repeat_n(place, ranks as usize));
        }
        let is_whole = places.is_empty() || places.len() == size as usize;
        let is_known = is_one_machine <= 1 && is_whole && is_ordered(&places);
        is_known.then(|| Self::of_places(places, is_one_machine == 1))
    }

    fn of_places(mut places: Vec<RankLocation>, is_one_machine: bool) -> Self {
        let count = |number: fn(&RankLocation) -> u32| {
            places.iter().map(number).max().map_or(1, |last| last.saturating_add(1))
        };
        let (nodes, sites) = (count(|place| place.node), count(|place| place.site));
        if nodes == 1 {
            places = Vec::new();
        }
        Self { places, nodes, sites, is_one_machine: is_one_machine || nodes == 1 }
    }

    #[inline]
    fn place(&self, rank: u32) -> RankLocation {
        self.places.get(rank as usize).copied().unwrap_or_default()
    }
}

impl Locality {
    /// Encodes the locality.
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

    /// Decodes a published locality; none if the bytes are not valid.
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
    /// Makes the network whose addresses share their first `prefix` bits with `address`.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        Self { address, prefix: prefix.min(length(address)) }
    }

    /// Returns the address in the network.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the first address of the network, and the number of bits that its addresses share.
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

/// True if nodes and sites are numbered in the order of their first ranks, and every node is of one
/// site.
fn is_ordered(places: &[RankLocation]) -> bool {
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

/// Returns the common key of each rank's site: its name, or the first of the nodes that networks
/// connect.
fn site_keys<'a>(localities: &'a [Locality], node: &[u32]) -> Vec<(Option<&'a str>, u32)> {
    let nodes = node.iter().max().map_or(0, |last| last + 1);
    let mut joined = DisjointSets((0..nodes).collect());
    for members in subnets(localities, node).into_values() {
        let is_one = members.iter().all(|(_, is_owner)| *is_owner);
        for ((one, _), (other, _)) in members.iter().zip(&members[1..]).filter(|_| is_one) {
            joined.join(*one, *other);
        }
    }
    let family = |(locality, &node): (&'a Locality, &u32)| match &locality.site {
        Some(name) => (Some(name.as_str()), 0),
        None => (None, joined.first(node)),
    };
    localities.iter().zip(node).map(family).collect()
}

/// Returns the nodes without a site's name in each subnet, and whether each is the first with its
/// address.
fn subnets(localities: &[Locality], node: &[u32]) -> HashMap<(IpAddr, u8), Vec<(u32, bool)>> {
    let mut owners: HashMap<Network, u32> = HashMap::new();
    let mut subnets: HashMap<(IpAddr, u8), Vec<(u32, bool)>> = HashMap::new();
    for (locality, &node) in
        localities.iter().zip(node).filter(|(locality, _)| locality.site.is_none())
    {
        for network in &locality.networks {
            let owner = *owners.entry(*network).or_insert(node);
            subnets.entry(network.subnet()).or_default().push((node, owner == node));
        }
    }
    subnets
}

/// Disjoint sets of numbers; each is identified by its least member.
struct DisjointSets(Vec<u32>);

impl DisjointSets {
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

/// Numbers different values in the order in which they first appear.
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

    fn locality(node: &str, networks: &[&str]) -> Locality {
        let networks = networks.iter().map(|text| network(text)).collect();
        Locality { node: node.into(), machine: Vec::new(), site: None, networks }
    }

    fn named(node: &str, site: &str, networks: &[&str]) -> Locality {
        Locality { site: Some(site.into()), ..locality(node, networks) }
    }

    fn numbers(localities: &[Locality]) -> (Vec<u32>, Vec<u32>) {
        let map = SiteMap::of(localities);
        (0..localities.len() as u32).map(|rank| (map.node(rank), map.site(rank))).unzip()
    }

    #[test]
    fn nodes_are_of_one_machine_if_all_say_so() {
        let on = |node, machine: &str| Locality { machine: machine.into(), ..locality(node, &[]) };
        let is_one = |localities: &[Locality]| SiteMap::of(localities).is_one_machine();
        assert!(is_one(&[on("a", "m"), on("b", "m")]) && is_one(&[on("a", ""), on("a", "")]));
        assert!(!is_one(&[on("a", "m"), on("b", "m"), on("c", "n")]));
        assert!(!is_one(&[on("a", ""), on("b", "")]), "not known");
    }

    #[test]
    fn hosts_are_of_one_site_by_a_chain_of_networks() {
        let localities = [
            locality("a", &["10.0.0.1/24"]),
            locality("b", &["10.9.0.1/24"]),
            locality("c", &["10.0.0.3/24", "10.1.0.3/24"]),
            locality("a", &["10.0.0.1/24"]),
            locality("d", &["10.1.0.4/24"]),
            locality("e", &["10.0.0.5/16"]),
        ];
        assert_eq!(numbers(&localities), (vec![0, 1, 2, 0, 3, 4], vec![0, 1, 0, 0, 0, 2]));
        let six = [locality("a", &["fd00:1::1/64"]), locality("b", &["fd00:1::2/64"])];
        assert_eq!(SiteMap::of(&six).sites(), 1);
        let alone = [locality("a", &["10.0.0.1/32"]), locality("b", &["10.0.0.2/32"])];
        assert_eq!(SiteMap::of(&alone).sites(), 2);
    }

    #[test]
    fn networks_with_the_same_numbers_are_two_if_an_address_appears_twice() {
        let private = [locality("a", &["192.168.1.2/24"]), locality("b", &["192.168.1.2/24"])];
        assert_eq!(SiteMap::of(&private).sites(), 2);
        let mut localities = private.to_vec();
        localities.push(locality("c", &["192.168.1.3/24", "10.0.0.3/24"]));
        localities.push(locality("a", &["192.168.1.2/24", "10.0.0.1/24"]));
        assert_eq!(numbers(&localities).1, [0, 1, 0, 0]);
    }

    #[test]
    fn names_come_before_networks_and_separate_even_a_node() {
        let localities = [
            named("a", "north", &["10.0.0.1/24"]),
            named("a", "south", &["10.0.0.1/24"]),
            named("b", "north", &["10.7.0.1/24"]),
            locality("c", &["10.0.0.2/24"]),
            locality("a", &["10.0.0.1/24"]),
        ];
        assert_eq!(numbers(&localities), (vec![0, 1, 2, 3, 4], vec![0, 1, 0, 2, 2]));
    }

    #[test]
    fn one_node_needs_no_table() {
        assert_eq!(SiteMap::of(&vec![locality("a", &[]); 5]), SiteMap::flat());
        assert_eq!(SiteMap::flat().emit().len(), 2);
        assert_eq!(
            (SiteMap::flat().nodes(), SiteMap::flat().sites(), SiteMap::flat().site(4)),
            (1, 1, 0)
        );
        assert_eq!(SiteMap::parse(&SiteMap::flat().emit(), 5), Some(SiteMap::flat()));
    }

    /// Localities that often have a node, a name or a network in common.
    fn localities() -> impl Strategy<Value = Vec<Locality>> {
        let networks = proptest::collection::vec((0u8..4, 1u8..6, 24u8..26), 0..3);
        let one = (0u8..6, 0u8..8, networks).prop_map(|(node, site, networks)| Locality {
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

    /// Returns the pairs of ranks in one site, by the definition: the closure of what any two have
    /// in common.
    fn by_definition(localities: &[Locality]) -> Vec<Vec<bool>> {
        let is_twice = |subnet| {
            let all = || localities.iter().filter(|locality| locality.site.is_none());
            let both = all().flat_map(|one| all().map(move |other| (one, other)));
            both.filter(|(one, other)| one.node != other.node).any(|(one, other)| {
                let same = one.networks.iter().filter(|n| other.networks.contains(n));
                same.map(Network::subnet).any(|it| it == subnet)
            })
        };
        let meet = |one: &Locality, other: &Locality| match (&one.site, &other.site) {
            (Some(one), Some(other)) => one == other,
            (None, None) => {
                let theirs: Vec<_> = other.networks.iter().map(Network::subnet).collect();
                let mut own = one.networks.iter().map(Network::subnet);
                one.node == other.node || own.any(|n| theirs.contains(&n) && !is_twice(n))
            }
            (Some(_), None) | (None, Some(_)) => false,
        };
        let all = 0..localities.len();
        let row = |one: usize| {
            all.clone().map(|other| meet(&localities[one], &localities[other])).collect()
        };
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
        fn sites_follow_their_definition(localities in localities()) {
            let (node, site) = numbers(&localities);
            let joined = by_definition(&localities);
            for (one, row) in joined.iter().enumerate() {
                for (other, &expected) in row.iter().enumerate() {
                    prop_assert_eq!(site[one] == site[other], expected || one == other);
                    let same = (&localities[one].node, &localities[one].site)
                        == (&localities[other].node, &localities[other].site);
                    prop_assert_eq!(node[one] == node[other], same);
                }
            }
            let mut machines = localities.iter().map(|locality| &locality.machine);
            let first = machines.next();
            let is_one = machines.all(|machine| Some(machine) == first);
            let map = SiteMap::of(&localities);
            prop_assert_eq!(map.is_one_machine(), is_one || map.nodes() == 1);
            let in_order = |all: &[u32]| {
                let mut next = 0;
                all.iter().all(|&it| { next += u32::from(it == next); it < next })
            };
            prop_assert!(in_order(&node) && in_order(&site));
        }

        #[test]
        fn every_process_finds_the_same_map(localities in localities(), shift in 0usize..4) {
            let decoded: Vec<Locality> =
                localities.iter().map(|locality| Locality::parse(&locality.emit()).unwrap()).collect();
            prop_assert_eq!(&decoded, &localities);
            let mut rotated = decoded;
            for locality in &mut rotated {
                let by = shift % locality.networks.len().max(1);
                locality.networks.rotate_left(by);
            }
            let map = SiteMap::of(&localities);
            prop_assert_eq!(&SiteMap::of(&rotated), &map);
            prop_assert_eq!(SiteMap::parse(&map.emit(), localities.len() as u32), Some(map));
        }

        #[test]
        fn foreign_bytes_never_give_an_inconsistent_map(bytes: Vec<u8>, size in 1u32..40) {
            let whole = [&[VERSION][..], &bytes].concat();
            if let Some(map) = SiteMap::parse(&whole, size) {
                for rank in 0..size {
                    prop_assert!(map.node(rank) < map.nodes() && map.site(rank) < map.sites());
                }
                prop_assert_eq!(SiteMap::parse(&map.emit(), size), Some(map));
            }
            if let Some(locality) = Locality::parse(&whole) {
                prop_assert_eq!(Locality::parse(&locality.emit()), Some(locality));
            }
        }
    }
}
