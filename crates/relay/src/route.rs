//! Routes to ranks of other sites: direct, or through gateways.
//!
//! A site whose hosts are unreachable from outside publishes its gateways. A rank with gateways of its own calls the
//! other site through one of these, since its host may have no way out either. Reachable hosts are dialled directly
//! first. Where the gateways of two sites cannot call each other, those of other sites pass the connection on. The
//! launcher knows the sites, so it computes these paths. Of several gateways the cheapest routes go first ([`path_cost`](super::path_cost)); the others replace one
//! that does not answer. If both TCP and QUIC can connect directly, the first of them knows that another rail
//! follows.

use std::net::SocketAddr;
use std::time::Duration;

use netpath::interfaces::{emit_one, parse_all, parse_one};
use netpath::{QUIC_NAME, TCP_NAMES};
use wire::PeerId;

use crate::path_cost::{PathCosts, RouteKey};
use crate::relay::{Request, STAGES_MAX, VIA_MAX, emit_stages, parse_stages};

/// The gateways of a site, as its ranks know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateways {
    /// Addresses for ranks of the site.
    inside: Vec<SocketAddr>,
    /// Addresses for other sites, which reach the site's hosts only through them.
    outside: Vec<SocketAddr>,
    /// Paths to sites whose gateways those of this site cannot call: gateways in stages, the last of which are
    /// those of the other site.
    paths: Vec<Vec<Vec<SocketAddr>>>,
}

/// The routes to a rank, which precede the peer's published address in a rail's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// True if the peer's own addresses are tried before all else.
    pub direct: bool,
    /// True if another rail may reach the peer.
    has_other_rail: bool,
    /// Gateways of this process's site.
    near: Vec<SocketAddr>,
    /// Gateways in stages, each of which calls one of the next: those of sites in between, if any, then those of
    /// the peer's site. Empty if that has none.
    stages: Vec<Vec<SocketAddr>>,
}

impl Gateways {
    /// Parses a list separated by commas. Each entry is `INSIDE`, the address for ranks of this site, or
    /// `INSIDE=OUTSIDE` with the address for other sites. `HOP>FAR` is the path to a site whose gateways this
    /// site's cannot call; each part may name several gateways, with `|` between them.
    ///
    /// # Errors
    /// The malformed entry.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut gateways = Self::default();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word.contains('>') {
                gateways.paths.push(parse_path(word)?);
                continue;
            }
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

    /// Encodes the addresses for other sites; empty if they need no gateway.
    pub fn publish(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.outside.iter().for_each(|one| emit_one(&mut bytes, *one));
        bytes
    }

    /// Returns the routes to a rank of another site as pairs of rail name and address. `published` holds the peer's
    /// gateways. `None` if it is malformed.
    pub fn lead(
        &self,
        mut addresses: Vec<(String, Vec<u8>)>,
        published: &[u8],
    ) -> Option<Vec<(String, Vec<u8>)>> {
        let far = parse_all(published).filter(|far| far.len() <= VIA_MAX)?;
        let direct = far.is_empty();
        let place = |rail: &str| addresses.iter().position(|(name, _)| name == rail);
        let (tcp_before, quic_before) = match (place(TCP_NAMES[0]), place(QUIC_NAME)) {
            (Some(tcp), Some(quic)) if direct => (tcp < quic, quic < tcp),
            _ => (false, false),
        };
        if !direct {
            // Addresses of other rails are behind the gateway, too.
            addresses.retain(|(name, _)| name == TCP_NAMES[0]);
        }
        let near = self.inside.clone();
        let by_tcp = Routes { direct, has_other_rail: tcp_before, near, stages: self.stages(far) };
        let by_quic = Routes { has_other_rail: quic_before, ..Routes::straight() };
        for (name, bytes) in &mut addresses {
            match name.as_str() {
                QUIC_NAME => *bytes = by_quic.emit(bytes),
                tcp if tcp == TCP_NAMES[0] => *bytes = by_tcp.emit(bytes),
                _ => {}
            }
        }
        Some(addresses)
    }

    /// Returns the stages to a site with these gateways.
    fn stages(&self, far: Vec<SocketAddr>) -> Vec<Vec<SocketAddr>> {
        let leads = |path: &&Vec<Vec<SocketAddr>>| {
            path.last().is_some_and(|last| last.iter().any(|one| far.contains(one)))
        };
        match self.paths.iter().find(leads) {
            Some(path) => path.clone(),
            None if far.is_empty() => Vec::new(),
            None => vec![far],
        }
    }
}

/// Parses the path to a site whose gateways this site's cannot call.
fn parse_path(word: &str) -> Result<Vec<Vec<SocketAddr>>, String> {
    let stage = |text: &str| text.split('|').map(str::parse).collect::<Result<Vec<_>, _>>();
    let stages = word.split('>').map(stage).collect::<Result<Vec<_>, _>>();
    let stages =
        stages.map_err(|_| format!("`{word}` is not like 198.51.100.7:7000>192.0.2.9:7000"))?;
    if stages.len() > STAGES_MAX || stages.iter().any(|stage| stage.len() > VIA_MAX) {
        return Err(format!(
            "`{word}` has more than {STAGES_MAX} stages, or {VIA_MAX} gateways of a stage"
        ));
    }
    Ok(stages)
}

impl Routes {
    /// The direct route to the peer's own addresses, by no other rail.
    fn straight() -> Self {
        Self { direct: true, has_other_rail: false, near: Vec::new(), stages: Vec::new() }
    }

    /// Puts the routes before the peer's published address, unless the route is direct.
    fn emit(&self, published: &[u8]) -> Vec<u8> {
        if *self == Self::straight() {
            return published.to_vec();
        }
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.direct, DIRECT) | flag(self.has_other_rail, OTHER_RAIL);
        let mut bytes = vec![ROUTED, flags];
        bytes.push(self.near.len() as u8);
        self.near.iter().for_each(|one| emit_one(&mut bytes, *one));
        emit_stages(&mut bytes, &self.stages);
        bytes.extend(published);
        bytes
    }

    /// Splits a rail's address into routes and the peer's published part; `None` if the routes are malformed.
    pub fn parse(address: &[u8]) -> Option<(Self, &[u8])> {
        let Some(rest) = address.strip_prefix(&[ROUTED]) else {
            return Some((Self::straight(), address));
        };
        let (flags, rest) = rest.split_first()?;
        let (count, mut rest) = rest.split_first()?;
        let near = (0..*count).map(|_| parse_one(&mut rest)).collect::<Option<Vec<_>>>()?;
        let (stages, rest) = parse_stages(rest)?;
        let (direct, has_other_rail) = (flags & DIRECT != 0, flags & OTHER_RAIL != 0);
        Some((Self { direct, has_other_rail, near, stages }, rest))
    }

    /// Time without any answer after which the peer is given up.
    pub fn patience(&self) -> Duration {
        let is_alone = !self.has_other_rail || self.gateways().next().is_some();
        if is_alone { Duration::MAX } else { OTHER_RAIL_AFTER }
    }

    /// Gateways that may be called.
    pub fn gateways(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.near.iter().chain(self.far()).copied()
    }

    /// Gateways of other sites that this site's gateways call.
    fn far(&self) -> &[SocketAddr] {
        self.stages.first().map_or(&[], Vec::as_slice)
    }

    /// Gateways of this process's site to ask for path costs, and those of the next site to ask about; empty if
    /// there is no choice.
    pub fn questions(&self) -> (&[SocketAddr], &[SocketAddr]) {
        let has_choice = self.near.len() * self.far().len() > 1;
        if has_choice { (&self.near, self.far()) } else { (&[], &[]) }
    }

    /// Returns the gateways in the order in which the pair of ranks calls them. Gateways of other sites come
    /// last: they are called from outside only if this site has none that works.
    pub fn order(&self, path_costs: &PathCosts, pair: (PeerId, PeerId)) -> Vec<SocketAddr> {
        let far: Vec<RouteKey> = self.far().iter().map(|far| (*far, None)).collect();
        let through = path_costs.order(&self.through(), pair);
        let mut order = Vec::new();
        for (gateway, _) in through.into_iter().chain(path_costs.order(&far, pair)) {
            if !order.contains(&gateway) {
                order.push(gateway);
            }
        }
        order
    }

    /// Returns the request to a gateway.
    pub fn request(
        &self,
        peer: PeerId,
        gateway: SocketAddr,
        listeners: &[SocketAddr],
        (path_costs, own): (&PathCosts, PeerId),
    ) -> Request {
        let routes = path_costs.order(&self.through(), (own, peer)).into_iter();
        let next: Vec<_> =
            routes.filter(|(near, _)| *near == gateway).filter_map(|(_, far)| far).collect();
        let rest = self.stages.iter().skip(1).cloned();
        let via = Some(next).filter(|next| !next.is_empty()).into_iter().chain(rest).collect();
        Request { peer, via, listeners: listeners.to_vec() }
    }

    /// Routes through gateways of this process's site.
    fn through(&self) -> Vec<RouteKey> {
        let of = |near: &SocketAddr| -> Vec<RouteKey> {
            let far = self.far().iter().map(|far| (*near, Some(*far)));
            if self.far().is_empty() { vec![(*near, None)] } else { far.collect() }
        };
        self.near.iter().flat_map(of).collect()
    }
}

/// First byte of an address with routes, in place of a version.
const ROUTED: u8 = 0xff;
/// Flags of the routes.
const DIRECT: u8 = 1;
const OTHER_RAIL: u8 = 2;
/// Time for two SYNs, at 0 and 1 s, to go unanswered. Over UDP there are more, and a peer that computes answers
/// within 160 ms.
const OTHER_RAIL_AFTER: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path_cost::PathCost;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn card() -> Vec<(String, Vec<u8>)> {
        ["shm", "tcp", "tcp1"].map(|name| (name.to_owned(), vec![1, 2, 3])).to_vec()
    }

    fn routes(own: &str, theirs: &str) -> (Vec<String>, Routes) {
        let publish = |list: &str| Gateways::parse(list).unwrap().publish();
        let own = Gateways::parse(own).unwrap();
        let led = own.lead(card(), &publish(theirs)).unwrap();
        let names = led.iter().map(|(name, _)| name.clone()).collect();
        let (_, tcp) = led.iter().find(|(name, _)| name == "tcp").unwrap();
        let (routes, published) = Routes::parse(tcp).unwrap();
        assert_eq!(published, [1, 2, 3]);
        (names, routes)
    }

    /// Returns the request to `gateway` if no costs are known.
    fn asked(routes: &Routes, gateway: SocketAddr, listeners: &[SocketAddr]) -> Request {
        routes.request(PeerId(4), gateway, listeners, (&PathCosts::default(), PeerId(1)))
    }

    #[test]
    fn addresses_are_unchanged_without_gateways() {
        let (names, routes) = routes("", "10.0.0.1:7");
        assert_eq!(names, ["shm", "tcp", "tcp1"]);
        assert!(routes.direct && routes.gateways().next().is_none());
    }

    #[test]
    fn own_gateways_are_used_and_call_those_of_a_private_site() {
        let (names, open) = routes("10.0.0.1:7", "");
        assert_eq!(names, ["shm", "tcp", "tcp1"]);
        let near = addresses(&["10.0.0.1:7"]);
        assert!(open.direct && open.gateways().eq(near.clone()));
        assert!(asked(&open, near[0], &[]).via.is_empty());
        assert_eq!(open.questions(), (&[][..], &[][..]), "there is no choice");
        let (names, private) = routes("10.0.0.1:7", "10.9.0.1:7=192.0.2.1:7");
        assert_eq!(names, ["tcp"]);
        let far = addresses(&["192.0.2.1:7"]);
        assert!(!private.direct);
        assert!(private.gateways().eq([near[0], far[0]]));
        assert_eq!(asked(&private, near[0], &near).via, vec![far.clone()]);
        // A gateway that is called directly is the last one.
        assert!(asked(&private, far[0], &near).via.is_empty());
        assert_eq!(asked(&private, far[0], &near).listeners, near);
    }

    #[test]
    fn patience_is_shorter_with_another_rail() {
        let led = |own: &str, theirs: &str, rails: &[&str]| {
            let publish = Gateways::parse(theirs).unwrap().publish();
            let card = rails.iter().map(|name| ((*name).to_owned(), vec![1, 2, 3])).collect();
            let led = Gateways::parse(own).unwrap().lead(card, &publish).unwrap();
            let names: Vec<_> = led.iter().map(|(name, _)| name.clone()).collect();
            (names.join(","), Routes::parse(&led[0].1).unwrap().0.patience())
        };
        let (both, private) = (&["tcp", "quic"], "10.9.0.1:7=192.0.2.1:7");
        assert_eq!(led("", "", &["tcp", "tcp1"]), ("tcp,tcp1".into(), Duration::MAX));
        assert_eq!(led("", "", both), ("tcp,quic".into(), OTHER_RAIL_AFTER));
        assert_eq!(led("", "", &["quic", "tcp"]), ("quic,tcp".into(), OTHER_RAIL_AFTER));
        assert_eq!(led("", "", &["quic"]), ("quic".into(), Duration::MAX));
        // A gateway may be there with nobody behind it; packets of the other rail do not pass it.
        assert_eq!(led("10.0.0.1:7", "", both), ("tcp,quic".into(), Duration::MAX));
        assert_eq!(led("", private, both), ("tcp".into(), Duration::MAX));
    }

    #[test]
    fn gateways_of_both_sites_are_chosen_by_path_cost() {
        let (own, theirs) =
            ("10.0.0.1:7,10.0.0.2:7", "10.9.0.1:7=192.0.2.1:7,10.9.0.2:7=192.0.2.2:7");
        let (_, routes) = routes(own, theirs);
        let (near, far) =
            (addresses(&["10.0.0.1:7", "10.0.0.2:7"]), addresses(&["192.0.2.1:7", "192.0.2.2:7"]));
        assert_eq!(routes.questions(), (&near[..], &far[..]));
        let costs = |ms| PathCost::Costs {
            round_trip: Duration::from_millis(ms),
            bytes_per_s: 125_000_000,
        };
        let mut path_costs = PathCosts::default();
        path_costs.handle_answer(near[0], &far, Some(&[costs(40), costs(20)]), Duration::ZERO);
        path_costs.handle_answer(near[1], &far, Some(&[costs(10), costs(30)]), Duration::ZERO);
        let pair = (PeerId(1), PeerId(4));
        let order = routes.order(&path_costs, pair);
        assert_eq!(order[..2], [near[1], near[0]]);
        assert!(far.iter().all(|one| order[2..].contains(one)) && order.len() == 4);
        let via = |near| routes.request(PeerId(4), near, &[], (&path_costs, PeerId(1))).via;
        assert_eq!(via(near[1]), [[far[0], far[1]]]);
        assert_eq!(via(near[0]), [[far[1], far[0]]]);
        assert!(via(far[0]).is_empty());
        // The best gateway has died.
        path_costs.handle_answer(near[1], &far, None, Duration::ZERO);
        assert_eq!(routes.order(&path_costs, pair)[..2], near);
    }

    #[test]
    fn gateways_share_the_pairs_of_ranks() {
        let list = "10.0.0.1:7=192.0.2.1:7,10.0.0.2:7=192.0.2.2:7,10.0.0.3:7=192.0.2.3:7";
        let (_, routes) = routes("", list);
        let mut counts = [0; 3];
        for pair in (0..8).flat_map(|one| (8..16).map(move |other| (PeerId(one), PeerId(other)))) {
            let order = routes.order(&PathCosts::default(), pair);
            assert_eq!(order, routes.order(&PathCosts::default(), (pair.1, pair.0)));
            let first = routes.far().iter().position(|one| *one == order[0]).unwrap();
            counts[first] += 1;
        }
        assert!(counts.iter().all(|count| (12..32).contains(count)), "{counts:?}");
    }

    #[test]
    fn gateways_of_other_sites_pass_on_what_two_sites_send_each_other() {
        let path = "198.51.100.1:7|198.51.100.2:7>192.0.2.1:7";
        let far = "10.9.0.1:7=192.0.2.1:7";
        let own = format!("10.0.0.1:7,{path}");
        let (_, passed) = routes(&own, far);
        let (near, hops) =
            (addresses(&["10.0.0.1:7"]), addresses(&["198.51.100.1:7", "198.51.100.2:7"]));
        let far = addresses(&["192.0.2.1:7"]);
        assert!(passed.gateways().eq([near[0], hops[0], hops[1]]));
        assert_eq!(passed.questions(), (&near[..], &hops[..]));
        let via = asked(&passed, near[0], &[]).via;
        assert!(via.len() == 2 && hops.iter().all(|hop| via[0].contains(hop)));
        assert_eq!(via[1], far);
        // Called by a rank itself, the gateway in between only has to call the next one.
        assert_eq!(asked(&passed, hops[1], &[]).via, [far]);
        // The path is no path to other sites.
        let (_, other) = routes(&own, "10.8.0.1:7=192.0.2.9:7");
        assert_eq!(asked(&other, near[0], &[]).via, [addresses(&["192.0.2.9:7"])]);
    }

    #[test]
    fn malformed_gateways_are_reported() {
        for word in
            ["10.0.0.1", "host:7", "10.0.0.1:7=", "=10.0.0.1:7", "10.0.0.1:7=x", "10.0.0.1:7>", ">"]
        {
            let error = Gateways::parse(&format!("10.0.0.9:1,{word}")).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(Gateways::parse(&"10.0.0.1:7,".repeat(9)).is_err());
        let path = |stages: usize| Gateways::parse(&["10.0.0.1:7"; 9][..stages].join(">"));
        assert!(path(STAGES_MAX).is_ok() && path(STAGES_MAX + 1).is_err(), "paths are short");
        assert_eq!(Gateways::parse(" , "), Ok(Gateways::default()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_parse_as_routes_or_fail(mut bytes: Vec<u8>) {
            bytes.insert(0, ROUTED);
            if let Some((routes, published)) = Routes::parse(&bytes) {
                prop_assert_eq!(&routes.emit(published)[2..], &bytes[2..]);
            }
            let own = Gateways::default();
            let _ = own.lead(card(), &bytes);
        }
    }
}
