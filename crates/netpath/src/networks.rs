//! Networks with a rail of their own, so that one message can use several at once.
//!
//! The rail `tcp` serves all addresses and tries a peer's one after the other, common networks first, and of these
//! the lowest. Every further network of a process has a rail that listens on that network's address alone and dials
//! from it: `tcp1`, `tcp2`, `tcp3`.
//!
//! Two processes may be on different sets of networks, so the name says nothing of the peer's rail: the network
//! decides ([`TcpNetworks::pair`]). The lowest common network is left to `tcp`, and each other one joins the two
//! rails that serve it. Both sides find the same, because they compare the same addresses.
//!
//! A network is an interface with a carrier that leads out of the machine, or one that the user names. Addresses of
//! one device or one subnet are one network, because they add no bandwidth. Two networks with the same numbers are
//! told apart only by failed connections.

use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

use crate::interfaces;
use crate::interfaces::Interface;

/// The networks that this process is on.
#[derive(Clone, Debug, Default)]
pub struct TcpNetworks {
    identity: [u8; 16],
    /// The lowest first.
    networks: Vec<TcpNetwork>,
}

/// A network, and the interface that leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpNetwork {
    name: &'static str,
    interface: Interface,
}

impl TcpNetworks {
    /// Finds the networks; `only` restricts them as it does for the rail `tcp`.
    ///
    /// # Errors
    /// Returned when the system does not list its interfaces.
    pub fn find(only: Option<&str>) -> io::Result<Self> {
        let mut candidates = interfaces::list()?;
        candidates.retain(interfaces::has_carrier);
        Ok(Self { identity: interfaces::network_identity(), networks: separate(candidates, only) })
    }

    /// Returns all networks, at most four. `tcp` prefers the first; the others need rails of their own.
    pub fn all(&self) -> &[TcpNetwork] {
        &self.networks
    }

    /// Returns the rail addresses of a peer, each under the name of this process's rail that reaches it. Addresses
    /// without a rail, or served by `tcp` anyway, are left out.
    pub fn pair(&self, addresses: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
        let is_further = |name: &str| TCP_NAMES[1..].contains(&name);
        let (further, mut paired): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|(name, _)| is_further(name));
        let usual = paired.iter().find(|(name, _)| name == TCP_NAMES[0]);
        let Some((identity, offered)) = usual.and_then(|(_, bytes)| interfaces::parse(bytes))
        else {
            return paired;
        };
        if identity == self.identity {
            // No network is faster than the loopback.
            return paired;
        }
        let common = self.networks.iter().filter(|network| network.leads_to_any(&offered));
        for network in common.skip(1) {
            let met = further.iter().find(|(_, bytes)| {
                interfaces::parse(bytes).is_some_and(|(_, offered)| network.leads_to_any(&offered))
            });
            paired.extend(met.map(|(_, bytes)| (network.name.to_owned(), bytes.clone())));
        }
        paired
    }
}

impl TcpNetwork {
    /// The name of its rail.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// This process's address there.
    pub fn address(&self) -> IpAddr {
        self.interface.address
    }

    /// Prefix length of the network.
    pub fn prefix(&self) -> u8 {
        self.interface.prefix
    }

    /// Returns the interface of this process to the network.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns those of a peer's addresses that are on this network.
    pub fn candidates(&self, here: bool, offered: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let mut candidates =
            interfaces::order(here, offered, std::slice::from_ref(&self.interface));
        candidates.retain(|one| self.interface.reaches(one.ip()));
        candidates
    }

    fn leads_to_any(&self, offered: &[SocketAddr]) -> bool {
        let own = self.interface.address;
        offered.iter().any(|one| one.ip() != own && self.interface.reaches(one.ip()))
    }
}

impl fmt::Display for TcpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interface { name, address, prefix } = &self.interface;
        write!(f, "{address}/{prefix} ({name})")
    }
}

/// Selects one interface for each network.
fn separate(interfaces: Vec<Interface>, only: Option<&str>) -> Vec<TcpNetwork> {
    let is_wanted = |one: &Interface| match only {
        Some(only) => one.is_named_by(only),
        None => one.leads_out(),
    };
    let mut wanted: Vec<Interface> =
        interfaces.into_iter().filter(|one| is_wanted(one) && one.is_of_use()).collect();
    wanted.sort_by_key(|one| (one.address.is_ipv6(), one.address));
    let mut networks: Vec<TcpNetwork> = Vec::new();
    for interface in wanted {
        let is_known = networks.iter().any(|known| {
            known.interface.device() == interface.device()
                || known.interface.reaches(interface.address)
                || interface.reaches(known.interface.address)
        });
        if let (false, Some(&name)) = (is_known, TCP_NAMES.get(networks.len())) {
            networks.push(TcpNetwork { name, interface });
        }
    }
    networks
}

/// Name of the rail over QUIC.
pub const QUIC_NAME: &str = "quic";

/// Names of the rails over TCP; the first serves all addresses.
pub const TCP_NAMES: [&str; 4] = ["tcp", "tcp1", "tcp2", "tcp3"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interface(name: &str, network: &str) -> Interface {
        let (address, prefix) = network.split_once('/').unwrap();
        let (address, prefix) = (address.parse().unwrap(), prefix.parse().unwrap());
        Interface { name: name.into(), address, prefix }
    }

    /// Returns the interfaces of a node: a guests' bridge, the loopback, and these.
    fn node(own: &[(&str, &str)]) -> Vec<Interface> {
        let usual = [("docker0", "172.17.0.1/16"), ("lo", "127.0.0.1/8")];
        usual.iter().chain(own).map(|(name, network)| interface(name, network)).collect()
    }

    fn names(networks: &[TcpNetwork]) -> Vec<(&str, &str)> {
        networks.iter().map(|one| (one.name(), one.interface.name.as_str())).collect()
    }

    /// Returns a node with number `host` on each of the numbered networks, and its published addresses.
    fn host(host: u8, on: &[u8]) -> (TcpNetworks, Vec<(String, Vec<u8>)>) {
        let address = |network: u8| format!("10.{network}.0.{host}/24");
        let own: Vec<_> = on.iter().map(|n| interface(&format!("eth{n}"), &address(*n))).collect();
        let identity = [host; 16];
        let published = |one: &Interface| SocketAddr::new(one.address, 1000);
        let everywhere: Vec<SocketAddr> = own.iter().map(published).collect();
        let networks = TcpNetworks { identity, networks: separate(own, None) };
        let mut addresses = vec![
            ("shm".to_owned(), b"anything".to_vec()),
            ("tcp".to_owned(), interfaces::emit(identity, &everywhere)),
        ];
        for one in networks.all().iter().skip(1) {
            let bytes = interfaces::emit(identity, &[published(&one.interface)]);
            addresses.push((one.name.to_owned(), bytes));
        }
        (networks, addresses)
    }

    /// Returns the peer's address for each rail, apart from those always there.
    fn met(pairs: &[(String, Vec<u8>)]) -> Vec<(String, String)> {
        assert_eq!(
            pairs[..2].iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["shm", "tcp"]
        );
        let text = |bytes| interfaces::parse(bytes).unwrap().1[0].ip().to_string();
        pairs[2..].iter().map(|(name, bytes)| (name.clone(), text(bytes))).collect()
    }

    fn texts(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, address)| ((*name).into(), (*address).into())).collect()
    }

    #[test]
    fn a_network_of_its_own_is_one_that_leads_out_by_another_device() {
        let ordinary = node(&[("eth0", "10.1.0.3/24"), ("eth0", "fd00::3/64")]);
        assert_eq!(names(&separate(ordinary, None)), [("tcp", "eth0")]);
        let two = [("ib0", "192.168.7.3/24"), ("eth0", "10.1.0.3/24"), ("eth0:1", "10.2.0.3/24")];
        assert_eq!(names(&separate(node(&two), None)), [("tcp", "eth0"), ("tcp1", "ib0")]);
        let one = [
            ("eth0.7", "10.7.0.3/24"),
            ("eth0.8", "10.8.0.3/24"),
            ("eth1", "10.7.0.4/24"),
            ("wg0", "10.9.0.3/24"),
            ("eth2", "169.254.3.3/16"),
        ];
        assert_eq!(names(&separate(node(&one), None)), [("tcp", "eth0.7")]);
    }

    #[test]
    fn the_user_may_name_networks() {
        let own = [("eth0", "10.1.0.3/24"), ("eth1", "10.2.0.3/24"), ("eth2", "10.3.0.3/24")];
        let chosen = |only| -> Vec<String> {
            separate(node(&own), Some(only)).iter().map(|one| one.interface.name.clone()).collect()
        };
        assert_eq!(chosen("eth1"), ["eth1"]);
        assert_eq!(chosen("eth2, eth0"), ["eth0", "eth2"]);
        assert_eq!(chosen("10.2.,docker0"), ["eth1", "docker0"]);
        assert_eq!(chosen("10."), ["eth0", "eth1", "eth2"]);
        assert!(chosen("eth7,").is_empty());
    }

    #[test]
    fn four_networks_have_names() {
        let own: Vec<_> = (1..9).map(|n| (format!("eth{n}"), format!("10.{n}.0.3/24"))).collect();
        let own: Vec<_> = own.iter().map(|(name, net)| (name.as_str(), net.as_str())).collect();
        let found = separate(node(&own), None);
        assert_eq!(found.iter().map(TcpNetwork::name).collect::<Vec<_>>(), TCP_NAMES);
    }

    #[test]
    fn rails_meet_by_network_and_the_lowest_in_common_is_left_to_the_first() {
        let (own, _) = host(1, &[1, 2, 3]);
        for (networks, expected) in [
            (&[1, 2, 3][..], &[("tcp1", "10.2.0.2"), ("tcp2", "10.3.0.2")][..]),
            (&[1], &[]),
            (&[3], &[]),
            (&[1, 3], &[("tcp2", "10.3.0.2")]),
            (&[2, 3], &[("tcp2", "10.3.0.2")]),
            (&[0, 2, 3], &[("tcp2", "10.3.0.2")]),
            (&[0, 3], &[]),
            (&[7, 8], &[]),
        ] {
            let (_, published) = host(2, networks);
            assert_eq!(met(&own.pair(published)), texts(expected), "with {networks:?}");
        }
    }

    #[test]
    fn no_rail_is_added_within_a_node_or_to_peers_with_one_rail() {
        let (own, published) = host(1, &[1, 2]);
        assert_eq!(met(&own.pair(published)), []);
        let (_, mut restricted) = host(2, &[1, 2]);
        restricted.truncate(2);
        assert_eq!(own.pair(restricted.clone()), restricted);
        let (_, published) = host(2, &[1, 2]);
        assert_eq!(met(&TcpNetworks::default().pair(published)), []);
        let nonsense = vec![("tcp1".into(), b"x".to_vec()), ("tcp".into(), Vec::new())];
        assert_eq!(own.pair(nonsense), [("tcp".into(), Vec::new())]);
    }

    proptest! {
        #[test]
        fn both_sides_join_the_same_networks(one in 0u8..16, other in 0u8..16) {
            let set = |bits: u8| -> Vec<u8> { (0..4).filter(|n| bits >> n & 1 == 1).collect() };
            let (one_networks, one_published) = host(1, &set(one));
            let (other_networks, other_published) = host(2, &set(other));
            let joined = |pairs: &[(String, Vec<u8>)]| -> Vec<String> {
                met(pairs).iter().map(|(_, address)| address[..6].to_owned()).collect()
            };
            let seen = joined(&one_networks.pair(other_published));
            prop_assert_eq!(&seen, &joined(&other_networks.pair(one_published)));
            let common = set(one & other);
            prop_assert_eq!(seen.len(), common.len().saturating_sub(1));
        }
    }
}
