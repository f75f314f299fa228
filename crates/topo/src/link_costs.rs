//! Stored costs of links between the nodes of a job. They come from the caches of rank 0's machine,
//! and of each other node's first process, which publishes the long links that it knows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cost::{Cost, HostCost, Traffic};
use wire::number;

use crate::cache::Listing;
use crate::sites::{Locality, SiteMap};
use crate::transport::{First, PathFacts, Sockets};
use crate::{Entry, Pair};

/// Costs of links within sites, and of those between sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCosts {
    /// Between nodes of one site, if any such link is known.
    pub near: Option<LinkCost>,
    /// Between sites.
    pub far: Option<LinkCost>,
    /// Between each two sites, by their numbers, the lower first.
    pub pairs: BTreeMap<(u32, u32), LinkCost>,
    /// Pairs of sites, numbered likewise, between which QUIC is tried first. Data of one direction
    /// are enough.
    pub quic_first: BTreeSet<(u32, u32)>,
}

/// Cost of links of a kind. Within a site links are alike: latency and gap are the medians, so that
/// one sample of a busy machine does not count. Between sites links differ, and a plan for all must
/// hold for each: latency and gap are the worst. The rate within a site is the highest that one
/// link has shown. Between sites it is the sum over their nodes of each one's best link. Links that
/// carry at the same time share the path, and each has shown its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCost {
    /// One-way latency between the systems of two hosts.
    pub latency_ns: u64,
    /// Time that a host is busy with an empty frame.
    pub gap_ns: u64,
    /// Bandwidth; none if the links have carried nothing long.
    pub bytes_per_s: Option<u64>,
}

/// A link with known costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownLink {
    ends: [IpAddr; 2],
    cost: LinkCost,
    is_quic: bool,
    /// Random losses in packets per million.
    loss_ppm: Option<u32>,
    /// True if its bandwidth-delay product is about what its host's sockets hold.
    fills_sockets: bool,
}

impl KnownLink {
    /// Returns all links in the cache of a host with such sockets, except those whose ends are no
    /// addresses.
    pub fn all(listing: &Listing, sockets: &Sockets) -> Vec<Self> {
        let known =
            |(pair, entry): &(Pair, Entry<Cost>)| Self::of(pair, &entry.value, listing, sockets);
        listing.links.iter().filter_map(known).collect()
    }

    /// Returns the most recently used of the long links, up to the number that is published.
    pub fn latest_far(listing: &Listing, sockets: &Sockets) -> Vec<Self> {
        let mut links: Vec<_> = listing.links.iter().collect();
        links.sort_by_key(|(_, entry)| entry.age);
        let known = links
            .into_iter()
            .filter_map(|(pair, entry)| Self::of(pair, &entry.value, listing, sockets));
        known.filter(|known| known.cost.latency_ns >= FAR_NS).take(PUBLISHED_MAX).collect()
    }

    fn of(pair: &Pair, cost: &Cost, listing: &Listing, sockets: &Sockets) -> Option<Self> {
        let address = |end: &str| {
            let address: IpAddr = end.rsplit('/').next()?.parse().ok()?;
            Some(address.to_canonical())
        };
        let fills_sockets = sockets.are_filled_by(cost);
        let cost = LinkCost {
            latency_ns: cost.latency_ns(),
            gap_ns: cost.gap_ns(),
            bytes_per_s: cost.shown_bytes_per_s(),
        };
        let chance = listing.traffic.get(pair).and_then(Traffic::chance);
        let loss_ppm = chance.map(|chance| (chance * 1e6) as u32);
        let ends = [address(pair.here())?, address(pair.there())?];
        Some(Self { ends, cost, is_quic: pair.rail() == "quic", loss_ppm, fills_sockets })
    }

    /// Adds the link to its direction's facts: the highest loss counts, and a filled socket of any
    /// link.
    fn add_to(&self, facts: &mut PathFacts) {
        facts.fills_sockets |= self.fills_sockets;
        let Some(loss) = self.loss_ppm.map(|ppm| f64::from(ppm) / 1e6) else { return };
        let known = if self.is_quic { &mut facts.by_quic } else { &mut facts.by_tcp };
        *known = Some(known.map_or(loss, |known| known.max(loss)));
    }

    /// Encodes the links.
    pub fn emit(known: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Self { ends, cost, is_quic, loss_ppm, fills_sockets } in known {
            for end in ends {
                match end {
                    IpAddr::V4(address) => {
                        bytes.push(4);
                        bytes.extend(address.octets());
                    }
                    IpAddr::V6(address) => {
                        bytes.push(16);
                        bytes.extend(address.octets());
                    }
                }
            }
            let loss = loss_ppm.map_or(0, |ppm| u64::from(ppm) + 1);
            let rate = cost.bytes_per_s.unwrap_or(0);
            let kind = u64::from(*is_quic) | u64::from(*fills_sockets) << 1;
            let figures = [cost.latency_ns, cost.gap_ns, rate, kind, loss];
            figures.into_iter().for_each(|figure| number::append(&mut bytes, figure));
        }
        bytes
    }

    /// Decodes links; none if the bytes are not valid, or hold more than a node publishes.
    pub fn parse(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut known = Vec::new();
        while !bytes.is_empty() {
            let ends = [address(&mut bytes)?, address(&mut bytes)?];
            let mut figure = || number::take(&mut bytes);
            let (latency_ns, gap_ns, rate) = (figure()?, figure()?, figure()?);
            let (kind, loss) = (figure()?, figure()?);
            let (is_quic, fills_sockets) = (kind & 1 != 0, kind & 2 != 0);
            let bytes_per_s = Some(rate).filter(|rate| *rate > 0);
            let loss_ppm = loss.checked_sub(1).map(u32::try_from).transpose().ok()?;
            let cost = LinkCost { latency_ns, gap_ns, bytes_per_s };
            known.push(Self { ends, cost, is_quic, loss_ppm, fills_sockets });
        }
        (known.len() <= PUBLISHED_MAX).then_some(known)
    }
}

impl NetworkCosts {
    /// Computes the costs for processes with these localities. Links count if both ends are
    /// addresses of two of the nodes. An address that several nodes have is ignored.
    pub fn of(localities: &[Locality], map: &SiteMap, links: &[KnownLink]) -> Self {
        let owners = owners(localities, map);
        let owner = |end: &IpAddr| owners.get(end).copied().flatten();
        let mut near = Vec::new();
        let mut pairs: BTreeMap<(u32, u32), Vec<LinkCost>> = BTreeMap::new();
        // From one site to another: the best link's rate of each node.
        let mut rates: BTreeMap<(u32, u32), BTreeMap<u32, u64>> = BTreeMap::new();
        let mut directions: BTreeMap<(u32, u32), PathFacts> = BTreeMap::new();
        for known in links {
            let KnownLink { ends: [here, there], cost, .. } = known;
            let (Some(here), Some(there)) = (owner(here), owner(there)) else { continue };
            let (one, other) = (map.site(here), map.site(there));
            if one != other {
                pairs.entry((one.min(other), one.max(other))).or_default().push(*cost);
                if let Some(rate) = cost.bytes_per_s {
                    let of_nodes = rates.entry((one, other)).or_default();
                    let best = of_nodes.entry(map.node(here)).or_default();
                    *best = rate.max(*best);
                }
                known.add_to(directions.entry((one, other)).or_default());
            } else if map.node(here) != map.node(there) {
                near.push(*cost);
            }
        }
        let middle = near.len() / 2;
        let worst = |links: &[LinkCost]| LinkCost::of(links, links.len().saturating_sub(1));
        let one_way = |from: u32, to: u32| {
            let of_nodes = rates.get(&(from, to))?.values();
            Some(of_nodes.fold(0, |sum: u64, rate| sum.saturating_add(*rate)))
        };
        let pair = |((one, other), links): ((u32, u32), Vec<LinkCost>)| {
            let bytes_per_s = one_way(one, other).max(one_way(other, one));
            Some(((one, other), LinkCost { bytes_per_s, ..worst(&links)? }))
        };
        let pairs: BTreeMap<_, _> = pairs.into_iter().filter_map(pair).collect();
        let far = worst(&pairs.values().copied().collect::<Vec<_>>());
        let by_quic = directions.into_iter().filter(|(_, facts)| facts.first() == First::Quic);
        let quic_first =
            by_quic.map(|((one, other), _)| (one.min(other), one.max(other))).collect();
        Self { near: LinkCost::of(&near, middle), pairs, far, quic_first }
    }
}

impl LinkCost {
    /// Returns the cost between two processes of a host, by its memory.
    pub fn in_memory(host: &HostCost) -> Self {
        let cost = host.shared_memory(NEIGHBOUR_NS);
        Self {
            latency_ns: cost.latency_ns(),
            gap_ns: cost.gap_ns(),
            bytes_per_s: Some(cost.bytes_per_s(LONG_LEN)),
        }
    }

    /// Combines links: the latency and the gap that are at `place` in ascending order, and the
    /// highest rate.
    fn of(links: &[Self], place: usize) -> Option<Self> {
        let ordered = |figure: fn(&Self) -> u64| {
            let mut figures: Vec<u64> = links.iter().map(figure).collect();
            figures.sort_unstable();
            figures.get(place).copied()
        };
        Some(Self {
            latency_ns: ordered(|links| links.latency_ns)?,
            gap_ns: ordered(|links| links.gap_ns)?,
            bytes_per_s: links.iter().filter_map(|links| links.bytes_per_s).max(),
        })
    }
}

/// Cached costs of links, for tools without a job that would identify the ends. Within a site these
/// are links between different hosts; of long links, the one used last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedCosts {
    /// Within sites, and the number of links.
    pub near: Option<(LinkCost, usize)>,
    /// Between sites, and the link's name.
    pub far: Option<(LinkCost, Pair)>,
}

impl CachedCosts {
    /// Computes the costs from the cache's list.
    pub fn of(listing: &Listing) -> Self {
        let known = |(pair, entry): &(Pair, Entry<Cost>)| {
            let known = KnownLink::of(pair, &entry.value, listing, &Sockets::default())?;
            Some((known, entry.age, pair.clone()))
        };
        let known = listing.links.iter().filter_map(known);
        let known = known.filter(|(known, ..)| known.ends[0] != known.ends[1]);
        let (far, near): (Vec<_>, Vec<_>) =
            known.partition(|(known, ..)| known.cost.latency_ns >= FAR_NS);
        let near: Vec<LinkCost> = near.into_iter().map(|(known, ..)| known.cost).collect();
        let latest = far.into_iter().min_by_key(|(_, age, _)| *age);
        Self {
            near: LinkCost::of(&near, near.len() / 2).map(|links| (links, near.len())),
            far: latest.map(|(known, _, pair)| (known.cost, pair)),
        }
    }
}

/// Returns a rank of the node that has each address; none if several nodes have it.
fn owners(localities: &[Locality], map: &SiteMap) -> HashMap<IpAddr, Option<u32>> {
    let mut owners: HashMap<IpAddr, Option<u32>> = HashMap::new();
    for (rank, locality) in (0..).zip(localities) {
        for address in locality.networks.iter().map(|network| network.address().to_canonical()) {
            let owner = owners.entry(address).or_insert(Some(rank));
            *owner = owner.filter(|&other| map.node(other) == map.node(rank));
        }
    }
    owners
}

/// Decodes an address and advances the bytes.
fn address(bytes: &mut &[u8]) -> Option<IpAddr> {
    let (&len, rest) = bytes.split_first()?;
    let (octets, rest) = rest.split_at_checked(usize::from(len))?;
    *bytes = rest;
    match len {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into()),
        _ => None,
    }
}

/// Latency between two processes of a node that poll, with all their work for a message.
const NEIGHBOUR_NS: u64 = 600;

/// Length of messages that show a link's rate: long enough that the gap does not count.
const LONG_LEN: u64 = 1 << 20;

/// Latency above any link's within a site.
const FAR_NS: u64 = 200_000;

/// Maximum number of links that a node publishes, a kilobyte: one to each of as many others.
const PUBLISHED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::Network;

    fn locality(node: u8, site: &str, address: &str) -> Locality {
        let networks = vec![Network::new(address.parse().unwrap(), 24)];
        Locality { node: vec![node], site: Some(site.into()), networks, ..Locality::default() }
    }

    fn pair(here: &str, there: &str) -> Pair {
        Pair::new("tcp", &format!("host/{here}"), there)
    }

    #[test]
    fn links_of_the_job_count_by_their_kind() {
        let localities = [
            locality(0, "north", "10.0.0.1"),
            locality(1, "north", "10.0.0.2"),
            locality(2, "south", "10.1.0.1"),
            locality(2, "south", "10.1.0.1"),
            locality(3, "south", "10.0.0.9"),
            locality(4, "south", "10.0.0.9"),
        ];
        let map = SiteMap::of(&localities);
        let shown = |mut cost: Cost| {
            cost.learn(1 << 20, cost.busy_ns(1 << 20));
            cost
        };
        let links = [
            (pair("10.0.0.1", "10.0.0.2"), Cost::linear(20_000, 1_000, 1_000_000_000)),
            (pair("10.0.0.1", "10.1.0.1"), shown(Cost::linear(5_000_000, 1_000, 200_000_000))),
            (pair("10.0.0.2", "10.1.0.1"), shown(Cost::linear(6_000_000, 900, 300_000_000))),
            (pair("10.0.0.1", "10.1.0.1"), Cost::linear(5_500_000, 1_000, 900_000_000)),
            (pair("10.0.0.1", "10.0.0.9"), Cost::linear(90_000_000, 1, 1_000_000_000)),
            (pair("10.0.0.1", "10.7.0.1"), Cost::linear(90_000_000, 1, 1_000_000_000)),
            (pair("10.0.0.1", "nowhere"), Cost::linear(90_000_000, 1, 1_000_000_000)),
            (pair("10.1.0.1", "10.1.0.1"), Cost::linear(90_000_000, 1, 1_000_000_000)),
        ];
        let known = |links: &[(Pair, Cost)]| -> Vec<KnownLink> {
            links
                .iter()
                .filter_map(|(pair, cost)| {
                    KnownLink::of(pair, cost, &Listing::default(), &Sockets::default())
                })
                .collect()
        };
        let links = known(&links);
        assert_eq!(links.len(), 7, "an end is no address");
        let found = NetworkCosts::of(&localities, &map, &links);
        let (near, far) = (found.near.unwrap(), found.far.unwrap());
        let guessed = LinkCost { latency_ns: 20_000, gap_ns: 1_000, bytes_per_s: None };
        assert_eq!(near, guessed, "a rate counts only if a long message has shown it");
        assert_eq!((far.latency_ns, far.gap_ns), (6_000_000, 1_000));
        let rate = far.bytes_per_s.unwrap();
        assert!((490_000_000..502_000_000).contains(&rate), "the sum of two nodes: {rate}");
        let back = (pair("10.1.0.1", "10.0.0.2"), shown(Cost::linear(6_000_000, 900, 400_000_000)));
        let both = [&links[..], &known(&[back])].concat();
        assert_eq!(
            NetworkCosts::of(&localities, &map, &both).far,
            Some(far),
            "the better direction"
        );
        let busy = (pair("10.0.0.2", "10.0.0.1"), Cost::linear(90_000, 9_000, 1_000_000_000));
        let again = (pair("10.0.0.1", "10.0.0.2"), Cost::linear(21_000, 1_000, 1_000_000_000));
        let three = [&known(&[busy, again])[..], &links[..1]].concat();
        let near = NetworkCosts::of(&localities, &map, &three).near;
        assert_eq!(near, Some(LinkCost { latency_ns: 21_000, ..guessed }), "one is busy");
        let none = NetworkCosts::of(&localities[..1], &SiteMap::flat(), &links);
        assert_eq!(none, NetworkCosts::default());
    }

    #[test]
    fn each_pair_of_sites_has_its_own_links() {
        let localities = [
            locality(0, "north", "10.0.0.1"),
            locality(1, "south", "10.1.0.1"),
            locality(2, "west", "2001:db8::7"),
            locality(3, "south", "10.1.0.2"),
        ];
        let known = |here: &str, there: &str, latency_ns| {
            let cost = LinkCost { latency_ns, gap_ns: 1_000, bytes_per_s: None };
            let ends = [here, there].map(|end| end.parse().unwrap());
            KnownLink { ends, cost, is_quic: false, loss_ppm: None, fills_sockets: false }
        };
        let links = [
            known("10.0.0.1", "10.1.0.1", 5_000_000),
            known("10.1.0.2", "10.0.0.1", 6_000_000),
            known("2001:db8::7", "10.1.0.1", 9_000_000),
        ];
        let found = NetworkCosts::of(&localities, &SiteMap::of(&localities), &links);
        let latencies: Vec<_> =
            found.pairs.iter().map(|(sites, links)| (*sites, links.latency_ns)).collect();
        assert_eq!(latencies, [((0, 1), 6_000_000), ((1, 2), 9_000_000)]);
        let bytes = KnownLink::emit(&links);
        assert_eq!(KnownLink::parse(&bytes), Some(links.to_vec()));
        assert_eq!(KnownLink::parse(&[]), Some(Vec::new()));
        for wrong in [&bytes[1..], &bytes[..bytes.len() - 1], &[5; 40], &bytes.repeat(11)] {
            assert_eq!(KnownLink::parse(wrong), None);
        }
    }

    #[test]
    fn two_sites_with_a_lossy_path_are_found_in_either_direction() {
        let localities = [
            locality(0, "north", "10.0.0.1"),
            locality(1, "south", "10.1.0.1"),
            locality(2, "west", "10.2.0.1"),
        ];
        let known = |is_quic, here: &str, there: &str, loss_ppm| {
            let cost = LinkCost { latency_ns: 5_000_000, gap_ns: 1_000, bytes_per_s: None };
            let ends = [here, there].map(|end| end.parse().unwrap());
            KnownLink { ends, cost, is_quic, loss_ppm, fills_sockets: false }
        };
        let (north, south, west) = ("10.0.0.1", "10.1.0.1", "10.2.0.1");
        let links = [
            known(false, north, south, Some(10)),
            known(false, south, north, Some(10_000)),
            known(false, north, west, Some(10_000)),
            known(true, north, west, Some(0)),
            known(true, west, north, None),
        ];
        let found = NetworkCosts::of(&localities, &SiteMap::of(&localities), &links);
        assert_eq!(found.quic_first, [(0, 1)].into(), "over QUIC nothing is lost between 0 and 2");
        assert_eq!(KnownLink::parse(&KnownLink::emit(&links)), Some(links.to_vec()));
        let full = KnownLink { fills_sockets: true, ..known(false, west, south, None) };
        let found = NetworkCosts::of(&localities, &SiteMap::of(&localities), &[full]);
        assert_eq!(found.quic_first, [(1, 2)].into(), "TCP's sockets hold no more");
        assert_eq!(KnownLink::parse(&KnownLink::emit(&[full])), Some(vec![full]));
    }

    #[test]
    fn tools_use_the_cached_links() {
        let entry = |here: &str, there: &str, latency_ns, age| {
            let value = Cost::linear(latency_ns, 1_000, 1_000_000_000);
            (pair(here, there), Entry { value, age: std::time::Duration::from_secs(age) })
        };
        let links = vec![
            entry("10.0.0.1", "10.0.0.2", 30_000, 9),
            entry("10.0.0.2", "10.0.0.1", 20_000, 9),
            entry("10.0.0.3", "10.0.0.3", 5, 1),
            entry("10.0.0.1", "10.1.0.1", 9_000_000, 8),
            entry("10.0.0.1", "10.2.0.1", 4_000_000, 7),
        ];
        let found = CachedCosts::of(&Listing { links, ..Listing::default() });
        let (near, count) = found.near.unwrap();
        assert_eq!((near.latency_ns, near.bytes_per_s, count), (30_000, None, 2));
        let (far, of) = found.far.unwrap();
        assert_eq!((far.latency_ns, of), (4_000_000, pair("10.0.0.1", "10.2.0.1")));
        assert_eq!(CachedCosts::of(&Listing::default()), CachedCosts::default());
    }

    #[test]
    fn a_node_publishes_its_latest_long_links() {
        let entry = |number: u8, latency_ns| {
            let pair = pair("10.0.0.1", &format!("10.1.0.{number}"));
            let age = std::time::Duration::from_secs(u64::from(number));
            (pair, Entry { value: Cost::linear(latency_ns, 1_000, 1_000_000_000), age })
        };
        let far = (1..200).rev().map(|number| entry(number, 5_000_000));
        let links = far.chain([entry(0, 50_000)]).collect();
        let bytes =
            KnownLink::latest_far(&Listing { links, ..Listing::default() }, &Sockets::default());
        let ends: Vec<IpAddr> = bytes.iter().map(|known| known.ends[1]).collect();
        assert_eq!(
            ends,
            (1..33).map(|number| IpAddr::from([10, 1, 0, number])).collect::<Vec<_>>()
        );
        assert_eq!(KnownLink::parse(&KnownLink::emit(&bytes)), Some(bytes));
    }
}
