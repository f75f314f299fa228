//! What links between the nodes of a job cost, as far as that is remembered.

use std::collections::HashMap;
use std::net::IpAddr;

use wire::Cost;

use crate::Pair;
use crate::sites::{Home, Map};

/// What the links within sites cost, and those between sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Between {
    /// Between nodes of one site, if any such link is remembered.
    pub near: Option<Links>,
    /// Between sites.
    pub far: Option<Links>,
}

/// What links of a kind cost. Latency and gap are the middle ones within a site, where links are alike, and one that
/// was sampled on a busy machine shall not stand for all; between sites the worst, for there links differ, and what is
/// planned for all must hold for each. The rate is the greatest that one of them has shown: links that carried at the
/// same time had to share what is between them, and remember less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// One way, between the systems of two hosts.
    pub latency_ns: u64,
    /// How long a host is busy with an empty frame.
    pub gap_ns: u64,
    /// None where they have carried nothing long.
    pub bytes_per_s: Option<u64>,
}

impl Between {
    /// What remembered links say of processes at these homes. Links count whose two ends are addresses of
    /// two of the nodes; an address that several nodes have says nothing.
    pub fn of<'a>(
        homes: &[Home],
        map: &Map,
        links: impl Iterator<Item = (&'a Pair, &'a Cost)>,
    ) -> Self {
        let owners = owners(homes, map);
        let owner = |end: &str| {
            let address: IpAddr = end.rsplit('/').next()?.parse().ok()?;
            owners.get(&address.to_canonical()).copied().flatten()
        };
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (pair, cost) in links {
            let (Some(here), Some(there)) = (owner(pair.here()), owner(pair.there())) else {
                continue;
            };
            if map.node(here) != map.node(there) {
                let is_near = map.site(here) == map.site(there);
                if is_near { near.push(cost) } else { far.push(cost) }
            }
        }
        let (middle, last) = (near.len() / 2, far.len().saturating_sub(1));
        Self { near: Links::of(&near, middle), far: Links::of(&far, last) }
    }
}

impl Links {
    /// Of some that there are, with the latency and the gap that come at `place` in order.
    fn of(links: &[&Cost], place: usize) -> Option<Self> {
        let ordered = |figure: fn(&Cost) -> u64| {
            let mut figures: Vec<u64> = links.iter().map(|cost| figure(cost)).collect();
            figures.sort_unstable();
            figures.get(place).copied()
        };
        Some(Self {
            latency_ns: ordered(Cost::latency_ns)?,
            gap_ns: ordered(Cost::gap_ns)?,
            bytes_per_s: links.iter().filter_map(|cost| cost.shown_bytes_per_s()).max(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::Network;

    fn home(node: u8, site: &str, address: &str) -> Home {
        let networks = vec![Network::new(address.parse().unwrap(), 24)];
        Home { node: vec![node], site: Some(site.into()), networks }
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
        let found = Between::of(&homes, &map, links.iter().map(|(pair, cost)| (pair, cost)));
        let (near, far) = (found.near.unwrap(), found.far.unwrap());
        let guessed = Links { latency_ns: 20_000, gap_ns: 1_000, bytes_per_s: None };
        assert_eq!(near, guessed, "what no long message has shown is not planned from");
        assert_eq!((far.latency_ns, far.gap_ns), (6_000_000, 1_000));
        let rate = far.bytes_per_s.unwrap();
        assert!((295_000_000..301_000_000).contains(&rate), "{rate}");
        let busy = (pair("10.0.0.2", "10.0.0.1"), Cost::linear(90_000, 9_000, 1_000_000_000));
        let again = (pair("10.0.0.1", "10.0.0.2"), Cost::linear(21_000, 1_000, 1_000_000_000));
        let three = [&busy, &again, &links[0]].map(|(pair, cost)| (pair, cost));
        let near = Between::of(&homes, &map, three.into_iter()).near;
        assert_eq!(near, Some(Links { latency_ns: 21_000, ..guessed }), "one is busy");
        let none = Between::of(&homes[..1], &Map::flat(), links.iter().map(|(p, c)| (p, c)));
        assert_eq!(none, Between::default());
    }
}
