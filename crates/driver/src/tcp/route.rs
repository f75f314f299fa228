//! Which way leads to a rank of another site: directly, or through gateways.
//!
//! A site whose hosts cannot be reached from outside tells the others by which gateways they can. Who has
//! gateways of its own goes through one of these, for its hosts may have no way out either; it calls the
//! other site's. Where the other site's hosts are reachable, they are dialled directly first. Of several gateways
//! those go first whose ways cost least ([`path_cost`](super::path_cost)), the others replace one that does not answer. Of TCP and QUIC
//! that which goes first is told that there is another rail to ask, where both may go straight.

use std::net::SocketAddr;
use std::time::Duration;

use wire::PeerId;

use super::interfaces::{emit_one, parse_all, parse_one};
use super::networks::NAMES;
use super::path_cost::{PathCosts, Way};
use super::relay::{Request, VIA_MAX};
use crate::quic::NAME as QUIC;

/// The gateways of a site, as its ranks know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateways {
    /// Where ranks of the site call them.
    inside: Vec<SocketAddr>,
    /// Where others call them, who reach the site's hosts by nothing else.
    outside: Vec<SocketAddr>,
}

/// The ways to a rank: the first word of an address that a rail is given, before what the peer has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Whether its own addresses are tried, before all else.
    pub direct: bool,
    /// Whether another rail may lead there.
    has_other_rail: bool,
    /// Gateways of this process's site.
    near: Vec<SocketAddr>,
    /// Gateways of the peer's site.
    far: Vec<SocketAddr>,
}

impl Gateways {
    /// Reads a list with commas: `INSIDE` where ranks of this site call a gateway, or `INSIDE=OUTSIDE`,
    /// where others call it to reach the site's hosts.
    ///
    /// # Errors
    /// The word that is none of this.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut gateways = Self::default();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (inside, outside) = match word.split_once('=') {
                Some((inside, outside)) => (inside, Some(outside)),
                None => (word, None),
            };
            let address = |text: &str| {
                let wrong = |_| format!("`{word}` is not like 10.1.0.9:7000=192.0.2.9:7000");
                text.parse().map_err(wrong)
            };
            gateways.inside.push(address(inside)?);
            gateways.outside.extend(outside.map(address).transpose()?);
        }
        if gateways.inside.len() > VIA_MAX {
            return Err(format!("more than {VIA_MAX} gateways"));
        }
        Ok(gateways)
    }

    /// What the ranks of other sites have to know: nothing where they need no gateway.
    pub fn publish(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.outside.iter().for_each(|one| emit_one(&mut bytes, *one));
        bytes
    }

    /// The ways to a rank of another site, for the rails: each rail's name and the address for it. Of the
    /// peer there is what it has published, for its rails and of its gateways. None if that is nonsense.
    pub fn lead(
        &self,
        mut addresses: Vec<(String, Vec<u8>)>,
        published: &[u8],
    ) -> Option<Vec<(String, Vec<u8>)>> {
        let far = parse_all(published).filter(|far| far.len() <= VIA_MAX)?;
        let direct = far.is_empty();
        let place = |rail: &str| addresses.iter().position(|(name, _)| name == rail);
        let (tcp_before, quic_before) = match (place(NAMES[0]), place(QUIC)) {
            (Some(tcp), Some(quic)) if direct => (tcp < quic, quic < tcp),
            _ => (false, false),
        };
        if !direct {
            // What numbers other rails have found is behind the gateway, too.
            addresses.retain(|(name, _)| name == NAMES[0]);
        }
        let by_tcp = Ways { direct, has_other_rail: tcp_before, near: self.inside.clone(), far };
        let by_quic = Ways { has_other_rail: quic_before, ..Ways::straight() };
        for (name, bytes) in &mut addresses {
            match name.as_str() {
                QUIC => *bytes = by_quic.emit(bytes),
                tcp if tcp == NAMES[0] => *bytes = by_tcp.emit(bytes),
                _ => {}
            }
        }
        Some(addresses)
    }
}

impl Ways {
    /// To the peer's own addresses, and by no other rail.
    fn straight() -> Self {
        Self { direct: true, has_other_rail: false, near: Vec::new(), far: Vec::new() }
    }

    /// Puts the ways before what the peer has published, where they are others than straight ones.
    fn emit(&self, published: &[u8]) -> Vec<u8> {
        if *self == Self::straight() {
            return published.to_vec();
        }
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.direct, DIRECT) | flag(self.has_other_rail, OTHER_RAIL);
        let mut bytes = vec![ROUTED, flags];
        for list in [&self.near, &self.far] {
            bytes.push(list.len() as u8);
            list.iter().for_each(|one| emit_one(&mut bytes, *one));
        }
        bytes.extend(published);
        bytes
    }

    /// The ways in a rail's address, and what the peer has published; none if it begins like ways and has
    /// none.
    pub fn parse(address: &[u8]) -> Option<(Self, &[u8])> {
        let Some(rest) = address.strip_prefix(&[ROUTED]) else {
            return Some((Self::straight(), address));
        };
        let (flags, mut rest) = rest.split_first()?;
        let mut list = || {
            let (count, tail) = rest.split_first()?;
            rest = tail;
            (0..*count).map(|_| parse_one(&mut rest)).collect::<Option<Vec<_>>>()
        };
        let (near, far) = (list()?, list()?);
        let (direct, has_other_rail) = (flags & DIRECT != 0, flags & OTHER_RAIL != 0);
        Some((Self { direct, has_other_rail, near, far }, rest))
    }

    /// How long a network may swallow every try, and no host answer, before the peer is given up.
    pub fn patience(&self) -> Duration {
        let is_alone = !self.has_other_rail || self.gateways().next().is_some();
        if is_alone { Duration::MAX } else { OTHER_RAIL_AFTER }
    }

    /// The gateways that may be called.
    pub fn gateways(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.near.iter().chain(&self.far).copied()
    }

    /// Gateways of this process's site that are to be asked what their ways to those of the peer's cost, and these: none
    /// where there is no choice.
    pub fn questions(&self) -> (&[SocketAddr], &[SocketAddr]) {
        let has_choice = self.near.len() * self.far.len() > 1;
        if has_choice { (&self.near, &self.far) } else { (&[], &[]) }
    }

    /// The gateways in the order in which the pair of ranks calls them. Those of the peer's site are called by others than
    /// its own ranks where this site has none, or none that leads there.
    pub(super) fn order(&self, path_costs: &PathCosts, pair: (PeerId, PeerId)) -> Vec<SocketAddr> {
        let far: Vec<Way> = self.far.iter().map(|far| (*far, None)).collect();
        let through = path_costs.order(&self.through(), pair);
        let mut order = Vec::new();
        for (gateway, _) in through.into_iter().chain(path_costs.order(&far, pair)) {
            if !order.contains(&gateway) {
                order.push(gateway);
            }
        }
        order
    }

    /// What a gateway is asked for.
    pub(super) fn request(
        &self,
        peer: PeerId,
        gateway: SocketAddr,
        listeners: &[SocketAddr],
        (path_costs, own): (&PathCosts, PeerId),
    ) -> Request {
        let ways = path_costs.order(&self.through(), (own, peer)).into_iter();
        let via = ways.filter(|(near, _)| *near == gateway).filter_map(|(_, far)| far).collect();
        Request { peer, via, listeners: listeners.to_vec() }
    }

    /// The ways through gateways of this process's site.
    fn through(&self) -> Vec<Way> {
        let of = |near: &SocketAddr| -> Vec<Way> {
            let far = self.far.iter().map(|far| (*near, Some(*far)));
            if self.far.is_empty() { vec![(*near, None)] } else { far.collect() }
        };
        self.near.iter().flat_map(of).collect()
    }
}

/// Begins an address with ways, where others begin with their version.
const ROUTED: u8 = 0xff;
/// Flags of the ways.
const DIRECT: u8 = 1;
const OTHER_RAIL: u8 = 2;
/// Two tries of the kernel's, at 0 and 1 s, that nobody has answered; over UDP more, and a peer that computes answers
/// within 160 ms.
const OTHER_RAIL_AFTER: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::path_cost::PathCost;
    use proptest::prelude::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn card() -> Vec<(String, Vec<u8>)> {
        ["shm", "tcp", "tcp1"].map(|name| (name.to_owned(), vec![1, 2, 3])).to_vec()
    }

    fn ways(own: &str, theirs: &str) -> (Vec<String>, Ways) {
        let publish = |list: &str| Gateways::parse(list).unwrap().publish();
        let own = Gateways::parse(own).unwrap();
        let led = own.lead(card(), &publish(theirs)).unwrap();
        let names = led.iter().map(|(name, _)| name.clone()).collect();
        let (_, tcp) = led.iter().find(|(name, _)| name == "tcp").unwrap();
        let (ways, published) = Ways::parse(tcp).unwrap();
        assert_eq!(published, [1, 2, 3]);
        (names, ways)
    }

    /// What `gateway` is asked for where nothing is known of ways.
    fn asked(ways: &Ways, gateway: SocketAddr, listeners: &[SocketAddr]) -> Request {
        ways.request(PeerId(4), gateway, listeners, (&PathCosts::default(), PeerId(1)))
    }

    #[test]
    fn where_no_gateway_is_needed_nothing_changes() {
        let (names, ways) = ways("", "10.0.0.1:7");
        assert_eq!(names, ["shm", "tcp", "tcp1"]);
        assert!(ways.direct && ways.gateways().next().is_none());
    }

    #[test]
    fn whoever_has_a_gateway_may_leave_by_it_and_calls_that_of_a_private_site() {
        let (names, open) = ways("10.0.0.1:7", "");
        assert_eq!(names, ["shm", "tcp", "tcp1"]);
        let near = addresses(&["10.0.0.1:7"]);
        assert!(open.direct && open.gateways().eq(near.clone()));
        assert!(asked(&open, near[0], &[]).via.is_empty());
        assert_eq!(open.questions(), (&[][..], &[][..]), "there is no choice");
        let (names, private) = ways("10.0.0.1:7", "10.9.0.1:7=192.0.2.1:7");
        assert_eq!(names, ["tcp"]);
        let far = addresses(&["192.0.2.1:7"]);
        assert!(!private.direct);
        assert!(private.gateways().eq([near[0], far[0]]));
        assert_eq!(asked(&private, near[0], &near).via, far);
        // Called directly, the far gateway is the last.
        assert!(asked(&private, far[0], &near).via.is_empty());
        assert_eq!(asked(&private, far[0], &near).listeners, near);
    }

    #[test]
    fn the_network_is_given_less_time_where_another_rail_is_left_to_ask() {
        let led = |own: &str, theirs: &str, rails: &[&str]| {
            let publish = Gateways::parse(theirs).unwrap().publish();
            let card = rails.iter().map(|name| ((*name).to_owned(), vec![1, 2, 3])).collect();
            let led = Gateways::parse(own).unwrap().lead(card, &publish).unwrap();
            let names: Vec<_> = led.iter().map(|(name, _)| name.clone()).collect();
            (names.join(","), Ways::parse(&led[0].1).unwrap().0.patience())
        };
        let (both, private) = (&["tcp", "quic"], "10.9.0.1:7=192.0.2.1:7");
        assert_eq!(led("", "", &["tcp", "tcp1"]), ("tcp,tcp1".into(), Duration::MAX));
        assert_eq!(led("", "", both), ("tcp,quic".into(), OTHER_RAIL_AFTER));
        assert_eq!(led("", "", &["quic", "tcp"]), ("quic,tcp".into(), OTHER_RAIL_AFTER));
        assert_eq!(led("", "", &["quic"]), ("quic".into(), Duration::MAX));
        // A gateway may be there, and nobody behind it; packets of the other rail do not pass it.
        assert_eq!(led("10.0.0.1:7", "", both), ("tcp,quic".into(), Duration::MAX));
        assert_eq!(led("", private, both), ("tcp".into(), Duration::MAX));
    }

    #[test]
    fn gateways_of_both_sites_are_chosen_together_by_what_their_ways_cost() {
        let (own, theirs) =
            ("10.0.0.1:7,10.0.0.2:7", "10.9.0.1:7=192.0.2.1:7,10.9.0.2:7=192.0.2.2:7");
        let (_, ways) = ways(own, theirs);
        let (near, far) =
            (addresses(&["10.0.0.1:7", "10.0.0.2:7"]), addresses(&["192.0.2.1:7", "192.0.2.2:7"]));
        assert_eq!(ways.questions(), (&near[..], &far[..]));
        let costs = |ms| PathCost::Costs {
            round_trip: Duration::from_millis(ms),
            bytes_per_s: 125_000_000,
        };
        let mut path_costs = PathCosts::default();
        path_costs.handle_word(near[0], &far, Some(&[costs(40), costs(20)]), Duration::ZERO);
        path_costs.handle_word(near[1], &far, Some(&[costs(10), costs(30)]), Duration::ZERO);
        let pair = (PeerId(1), PeerId(4));
        let order = ways.order(&path_costs, pair);
        assert_eq!(order[..2], [near[1], near[0]]);
        assert!(far.iter().all(|one| order[2..].contains(one)) && order.len() == 4);
        let via = |near| ways.request(PeerId(4), near, &[], (&path_costs, PeerId(1))).via;
        assert_eq!(via(near[1]), [far[0], far[1]]);
        assert_eq!(via(near[0]), [far[1], far[0]]);
        assert!(via(far[0]).is_empty());
        // The best has died.
        path_costs.handle_word(near[1], &far, None, Duration::ZERO);
        assert_eq!(ways.order(&path_costs, pair)[..2], near);
    }

    #[test]
    fn gateways_share_the_pairs_of_ranks() {
        let list = "10.0.0.1:7=192.0.2.1:7,10.0.0.2:7=192.0.2.2:7,10.0.0.3:7=192.0.2.3:7";
        let (_, ways) = ways("", list);
        let mut counts = [0; 3];
        for pair in (0..8).flat_map(|one| (8..16).map(move |other| (PeerId(one), PeerId(other)))) {
            let order = ways.order(&PathCosts::default(), pair);
            assert_eq!(order, ways.order(&PathCosts::default(), (pair.1, pair.0)));
            let first = ways.far.iter().position(|one| *one == order[0]).unwrap();
            counts[first] += 1;
        }
        assert!(counts.iter().all(|count| (12..32).contains(count)), "{counts:?}");
    }

    #[test]
    fn words_that_are_no_gateways_are_named() {
        for word in ["10.0.0.1", "host:7", "10.0.0.1:7=", "=10.0.0.1:7", "10.0.0.1:7=x"] {
            let error = Gateways::parse(&format!("10.0.0.9:1,{word}")).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(Gateways::parse(&"10.0.0.1:7,".repeat(9)).is_err());
        assert_eq!(Gateways::parse(" , "), Ok(Gateways::default()));
    }

    proptest! {
        #[test]
        fn bytes_of_a_stranger_are_ways_or_are_not(mut bytes: Vec<u8>) {
            bytes.insert(0, ROUTED);
            if let Some((ways, published)) = Ways::parse(&bytes) {
                prop_assert_eq!(&ways.emit(published)[2..], &bytes[2..]);
            }
            let own = Gateways::default();
            let _ = own.lead(card(), &bytes);
        }
    }
}
