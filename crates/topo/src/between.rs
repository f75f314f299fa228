//! What links between the nodes of a job cost, as far as that is remembered: by rank 0's machine, and by the first
//! process of each other node, which tells what it knows of links that lead far.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{Cost, HostCost, Traffic, number};

use crate::cache::Listing;
use crate::sites::{Home, Map};
use crate::transport::{First, Signs, Sockets};
use crate::{Entry, Pair};

/// What the links within sites cost, and those between sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Between {
    /// Between nodes of one site, if any such link is remembered.
    pub near: Option<Links>,
    /// Between sites.
    pub far: Option<Links>,
    /// Between two sites each, by their numbers, the lower first.
    pub pairs: BTreeMap<(u32, u32), Links>,
    /// Between which two sites, named likewise, QUIC goes first, for what is known of one direction or both.
    pub quic_first: BTreeSet<(u32, u32)>,
}

/// What links of a kind cost. Latency and gap are the middle ones within a site, where links are alike, and one that
/// was sampled on a busy machine shall not stand for all; between sites the worst, for there links differ, and what is
/// planned for all must hold for each. The rate is the greatest that one of them has shown within a site; between sites
/// it is what their nodes carry together, each by its best link: links that carry at the same time, as in a collective,
/// share what is between the sites, and each has shown its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// One way, between the systems of two hosts.
    pub latency_ns: u64,
    /// How long a host is busy with an empty frame.
    pub gap_ns: u64,
    /// None where they have carried nothing long.
    pub bytes_per_s: Option<u64>,
}

/// A link that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    ends: [IpAddr; 2],
    cost: Links,
    is_quic: bool,
    /// Of a million packets so many get lost by chance.
    loss_ppm: Option<u32>,
    /// It carries about as much in a round trip as its host's sockets hold.
    fills_sockets: bool,
}

impl Known {
    /// All that the cache of a host with such sockets lists, but those whose ends are no addresses.
    pub fn all(listing: &Listing, sockets: &Sockets) -> Vec<Self> {
        let known =
            |(pair, entry): &(Pair, Entry<Cost>)| Self::of(pair, &entry.value, listing, sockets);
        listing.links.iter().filter_map(known).collect()
    }

    /// The latest of those that lead far, so many as others are told of.
    pub fn latest_far(listing: &Listing, sockets: &Sockets) -> Vec<Self> {
        let mut links: Vec<_> = listing.links.iter().collect();
        links.sort_by_key(|(_, entry)| entry.age);
        let known = links
            .into_iter()
            .filter_map(|(pair, entry)| Self::of(pair, &entry.value, listing, sockets));
        known.filter(|known| known.cost.latency_ns >= FAR_NS).take(TOLD_MOST).collect()
    }

    fn of(pair: &Pair, cost: &Cost, listing: &Listing, sockets: &Sockets) -> Option<Self> {
        let address = |end: &str| {
            let address: IpAddr = end.rsplit('/').next()?.parse().ok()?;
            Some(address.to_canonical())
        };
        let fills_sockets = sockets.are_filled_by(cost);
        let cost = Links {
            latency_ns: cost.latency_ns(),
            gap_ns: cost.gap_ns(),
            bytes_per_s: cost.shown_bytes_per_s(),
        };
        let chance = listing.traffic.get(pair).and_then(Traffic::chance);
        let loss_ppm = chance.map(|chance| (chance * 1e6) as u32);
        let ends = [address(pair.here())?, address(pair.there())?];
        Some(Self { ends, cost, is_quic: pair.rail() == "quic", loss_ppm, fills_sockets })
    }

    /// Of several links in one direction that which loses most counts, and whether any of them fills sockets.
    fn add_to(&self, signs: &mut Signs) {
        signs.fills_sockets |= self.fills_sockets;
        let Some(loss) = self.loss_ppm.map(|ppm| f64::from(ppm) / 1e6) else { return };
        let known = if self.is_quic { &mut signs.by_quic } else { &mut signs.by_tcp };
        *known = Some(known.map_or(loss, |known| known.max(loss)));
    }

    /// What is known, as bytes.
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

    /// What such bytes say; none where they are none, or say more than anybody tells.
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
            let cost = Links { latency_ns, gap_ns, bytes_per_s };
            known.push(Self { ends, cost, is_quic, loss_ppm, fills_sockets });
        }
        (known.len() <= TOLD_MOST).then_some(known)
    }
}

impl Between {
    /// What remembered links say of processes at these homes. Links count whose two ends are addresses of
    /// two of the nodes; an address that several nodes have says nothing.
    pub fn of(homes: &[Home], map: &Map, links: &[Known]) -> Self {
        let owners = owners(homes, map);
        let owner = |end: &IpAddr| owners.get(end).copied().flatten();
        let mut near = Vec::new();
        let mut pairs: BTreeMap<(u32, u32), Vec<Links>> = BTreeMap::new();
        // From one site to another, of each node the best link's.
        let mut rates: BTreeMap<(u32, u32), BTreeMap<u32, u64>> = BTreeMap::new();
        let mut ways: BTreeMap<(u32, u32), Signs> = BTreeMap::new();
        for known in links {
            let Known { ends: [here, there], cost, .. } = known;
            let (Some(here), Some(there)) = (owner(here), owner(there)) else { continue };
            let (one, other) = (map.site(here), map.site(there));
            if one != other {
                pairs.entry((one.min(other), one.max(other))).or_default().push(*cost);
                if let Some(rate) = cost.bytes_per_s {
                    let of_nodes = rates.entry((one, other)).or_default();
                    let best = of_nodes.entry(map.node(here)).or_default();
                    *best = rate.max(*best);
                }
                known.add_to(ways.entry((one, other)).or_default());
            } else if map.node(here) != map.node(there) {
                near.push(*cost);
            }
        }
        let middle = near.len() / 2;
        let worst = |links: &[Links]| Links::of(links, links.len().saturating_sub(1));
        let one_way = |from: u32, to: u32| {
            let of_nodes = rates.get(&(from, to))?.values();
            Some(of_nodes.fold(0, |sum: u64, rate| sum.saturating_add(*rate)))
        };
        let pair = |((one, other), links): ((u32, u32), Vec<Links>)| {
            let bytes_per_s = one_way(one, other).max(one_way(other, one));
            Some(((one, other), Links { bytes_per_s, ..worst(&links)? }))
        };
        let pairs: BTreeMap<_, _> = pairs.into_iter().filter_map(pair).collect();
        let far = worst(&pairs.values().copied().collect::<Vec<_>>());
        let by_quic = ways.into_iter().filter(|(_, signs)| signs.first() == First::Quic);
        let quic_first =
            by_quic.map(|((one, other), _)| (one.min(other), one.max(other))).collect();
        Self { near: Links::of(&near, middle), pairs, far, quic_first }
    }
}

impl Links {
    /// Between two processes of a host, by its memory.
    pub fn in_memory(host: &HostCost) -> Self {
        let cost = host.shared_memory(NEIGHBOUR_NS);
        Self {
            latency_ns: cost.latency_ns(),
            gap_ns: cost.gap_ns(),
            bytes_per_s: Some(cost.bytes_per_s(LONG_LEN)),
        }
    }

    /// Of some that there are, with the latency and the gap that come at `place` in order.
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

/// What a cache remembers of links, for whoever has no job in which to know their ends: within a site the links of
/// other hosts than their own, and of those that lead far the one that was used last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Within sites, and of how many links.
    pub near: Option<(Links, usize)>,
    /// Between sites, and of which link.
    pub far: Option<(Links, Pair)>,
}

impl Remembered {
    /// What the cache lists.
    pub fn of(listing: &Listing) -> Self {
        let known = |(pair, entry): &(Pair, Entry<Cost>)| {
            let known = Known::of(pair, &entry.value, listing, &Sockets::default())?;
            Some((known, entry.age, pair.clone()))
        };
        let known = listing.links.iter().filter_map(known);
        let known = known.filter(|(known, ..)| known.ends[0] != known.ends[1]);
        let (far, near): (Vec<_>, Vec<_>) =
            known.partition(|(known, ..)| known.cost.latency_ns >= FAR_NS);
        let near: Vec<Links> = near.into_iter().map(|(known, ..)| known.cost).collect();
        let latest = far.into_iter().min_by_key(|(_, age, _)| *age);
        Self {
            near: Links::of(&near, near.len() / 2).map(|links| (links, near.len())),
            far: latest.map(|(known, _, pair)| (known.cost, pair)),
        }
    }
}

/// A rank of the node that has each address; none where several nodes have it.
fn owners(homes: &[Home], map: &Map) -> HashMap<IpAddr, Option<u32>> {
    let mut owners: HashMap<IpAddr, Option<u32>> = HashMap::new();
    for (rank, home) in (0..).zip(homes) {
        for address in home.networks.iter().map(|network| network.address().to_canonical()) {
            let owner = owners.entry(address).or_insert(Some(rank));
            *owner = owner.filter(|&other| map.node(other) == map.node(rank));
        }
    }
    owners
}

/// An address off the beginning.
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

/// How long a word takes from one process of a node to another that looks for it, and all that they do
/// for it.
const NEIGHBOUR_NS: u64 = 600;

/// The rate of a way is that of messages as long as this: the gap does not count.
const LONG_LEN: u64 = 1 << 20;

/// No link within a site is as long.
const FAR_NS: u64 = 200_000;

/// A node tells of so many links, a kilobyte of them: one to each of as many others.
const TOLD_MOST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::Network;

    fn home(node: u8, site: &str, address: &str) -> Home {
        let networks = vec![Network::new(address.parse().unwrap(), 24)];
        Home { node: vec![node], site: Some(site.into()), networks, ..Home::default() }
    }

    fn pair(here: &str, there: &str) -> Pair {
        Pair::new("tcp", &format!("host/{here}"), there)
    }

    #[test]
    fn links_of_the_job_count_by_their_kind() {
        let homes = [
            home(0, "north", "10.0.0.1"),
            home(1, "north", "10.0.0.2"),
            home(2, "south", "10.1.0.1"),
            home(2, "south", "10.1.0.1"),
            home(3, "south", "10.0.0.9"),
            home(4, "south", "10.0.0.9"),
        ];
        let map = Map::of(&homes);
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
        let known = |links: &[(Pair, Cost)]| -> Vec<Known> {
            links
                .iter()
                .filter_map(|(pair, cost)| {
                    Known::of(pair, cost, &Listing::default(), &Sockets::default())
                })
                .collect()
        };
        let links = known(&links);
        assert_eq!(links.len(), 7, "an end is no address");
        let found = Between::of(&homes, &map, &links);
        let (near, far) = (found.near.unwrap(), found.far.unwrap());
        let guessed = Links { latency_ns: 20_000, gap_ns: 1_000, bytes_per_s: None };
        assert_eq!(near, guessed, "what no long message has shown is not planned from");
        assert_eq!((far.latency_ns, far.gap_ns), (6_000_000, 1_000));
        let rate = far.bytes_per_s.unwrap();
        assert!((490_000_000..502_000_000).contains(&rate), "what two nodes carry: {rate}");
        let back = (pair("10.1.0.1", "10.0.0.2"), shown(Cost::linear(6_000_000, 900, 400_000_000)));
        let both = [&links[..], &known(&[back])].concat();
        assert_eq!(Between::of(&homes, &map, &both).far, Some(far), "one way, and the other");
        let busy = (pair("10.0.0.2", "10.0.0.1"), Cost::linear(90_000, 9_000, 1_000_000_000));
        let again = (pair("10.0.0.1", "10.0.0.2"), Cost::linear(21_000, 1_000, 1_000_000_000));
        let three = [&known(&[busy, again])[..], &links[..1]].concat();
        let near = Between::of(&homes, &map, &three).near;
        assert_eq!(near, Some(Links { latency_ns: 21_000, ..guessed }), "one is busy");
        let none = Between::of(&homes[..1], &Map::flat(), &links);
        assert_eq!(none, Between::default());
    }

    #[test]
    fn each_two_sites_have_links_of_their_own() {
        let homes = [
            home(0, "north", "10.0.0.1"),
            home(1, "south", "10.1.0.1"),
            home(2, "west", "2001:db8::7"),
            home(3, "south", "10.1.0.2"),
        ];
        let known = |here: &str, there: &str, latency_ns| {
            let cost = Links { latency_ns, gap_ns: 1_000, bytes_per_s: None };
            let ends = [here, there].map(|end| end.parse().unwrap());
            Known { ends, cost, is_quic: false, loss_ppm: None, fills_sockets: false }
        };
        let links = [
            known("10.0.0.1", "10.1.0.1", 5_000_000),
            known("10.1.0.2", "10.0.0.1", 6_000_000),
            known("2001:db8::7", "10.1.0.1", 9_000_000),
        ];
        let found = Between::of(&homes, &Map::of(&homes), &links);
        let latencies: Vec<_> =
            found.pairs.iter().map(|(sites, links)| (*sites, links.latency_ns)).collect();
        assert_eq!(latencies, [((0, 1), 6_000_000), ((1, 2), 9_000_000)]);
        let told = Known::emit(&links);
        assert_eq!(Known::parse(&told), Some(links.to_vec()));
        assert_eq!(Known::parse(&[]), Some(Vec::new()));
        for wrong in [&told[1..], &told[..told.len() - 1], &[5; 40], &told.repeat(11)] {
            assert_eq!(Known::parse(wrong), None);
        }
    }

    #[test]
    fn two_sites_that_lose_much_between_them_are_found_whichever_way_it_is_lost() {
        let homes = [
            home(0, "north", "10.0.0.1"),
            home(1, "south", "10.1.0.1"),
            home(2, "west", "10.2.0.1"),
        ];
        let known = |is_quic, here: &str, there: &str, loss_ppm| {
            let cost = Links { latency_ns: 5_000_000, gap_ns: 1_000, bytes_per_s: None };
            let ends = [here, there].map(|end| end.parse().unwrap());
            Known { ends, cost, is_quic, loss_ppm, fills_sockets: false }
        };
        let (north, south, west) = ("10.0.0.1", "10.1.0.1", "10.2.0.1");
        let links = [
            known(false, north, south, Some(10)),
            known(false, south, north, Some(10_000)),
            known(false, north, west, Some(10_000)),
            known(true, north, west, Some(0)),
            known(true, west, north, None),
        ];
        let found = Between::of(&homes, &Map::of(&homes), &links);
        assert_eq!(found.quic_first, [(0, 1)].into(), "over QUIC nothing is lost between 0 and 2");
        assert_eq!(Known::parse(&Known::emit(&links)), Some(links.to_vec()));
        let full = Known { fills_sockets: true, ..known(false, west, south, None) };
        let found = Between::of(&homes, &Map::of(&homes), &[full]);
        assert_eq!(found.quic_first, [(1, 2)].into(), "TCP's sockets hold no more");
        assert_eq!(Known::parse(&Known::emit(&[full])), Some(vec![full]));
    }

    #[test]
    fn a_tool_goes_by_the_links_that_were_used() {
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
        let found = Remembered::of(&Listing { links, ..Listing::default() });
        let (near, count) = found.near.unwrap();
        assert_eq!((near.latency_ns, near.bytes_per_s, count), (30_000, None, 2));
        let (far, of) = found.far.unwrap();
        assert_eq!((far.latency_ns, of), (4_000_000, pair("10.0.0.1", "10.2.0.1")));
        assert_eq!(Remembered::of(&Listing::default()), Remembered::default());
    }

    #[test]
    fn a_node_tells_of_the_latest_links_that_lead_far() {
        let entry = |number: u8, latency_ns| {
            let pair = pair("10.0.0.1", &format!("10.1.0.{number}"));
            let age = std::time::Duration::from_secs(u64::from(number));
            (pair, Entry { value: Cost::linear(latency_ns, 1_000, 1_000_000_000), age })
        };
        let far = (1..200).rev().map(|number| entry(number, 5_000_000));
        let links = far.chain([entry(0, 50_000)]).collect();
        let told = Known::latest_far(&Listing { links, ..Listing::default() }, &Sockets::default());
        let ends: Vec<IpAddr> = told.iter().map(|known| known.ends[1]).collect();
        assert_eq!(
            ends,
            (1..33).map(|number| IpAddr::from([10, 1, 0, number])).collect::<Vec<_>>()
        );
        assert_eq!(Known::parse(&Known::emit(&told)), Some(told));
    }
}
