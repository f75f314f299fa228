//! Addresses that a process offers, and the order in which a peer tries them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A network interface's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Prefix length of its network.
    pub prefix: u8,
}

/// The kind of network behind an interface, the most useful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InterfaceKind {
    /// A network.
    Outer,
    /// A tunnel, perhaps to another site.
    Tunnel,
    /// The guests of this machine, whose addresses mean nothing elsewhere.
    Inner,
    /// This machine.
    Loopback,
}

/// The interfaces of this network namespace.
pub fn list() -> std::io::Result<Vec<Interface>> {
    let all = if_addrs::get_if_addrs()?;
    let known = all.into_iter().map(|one| {
        let (address, prefix) = match one.addr {
            if_addrs::IfAddr::V4(four) => (IpAddr::V4(four.ip), four.prefixlen),
            if_addrs::IfAddr::V6(six) => (IpAddr::V6(six.ip), six.prefixlen),
        };
        Interface { name: one.name, address, prefix }
    });
    Ok(known.collect())
}

/// True if an interface is up and has a carrier.
pub fn has_carrier(interface: &Interface) -> bool {
    let kind = socket2::Type::DGRAM.cloexec();
    let Ok(socket) = socket2::Socket::new(socket2::Domain::IPV4, kind, None) else { return false };
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let Some(room) = request.ifr_name.get_mut(..interface.link().len()) else { return false };
    for (to, from) in room.iter_mut().zip(interface.link().bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the kernel reads the name and writes the flags, within the structure.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    // SAFETY: the kernel has written the flags, and any bits are a valid number.
    answer == 0 && i32::from(unsafe { request.ifr_ifru.ifru_flags }) & wanted == wanted
}

/// Returns the addresses to listen on, best first. `only` names interfaces, addresses, or prefixes of addresses
/// (`eth0,10.0.`). Without it, all networks are served, and the loopback, which only local peers can reach and try
/// first. Bridges to guests are served only if there is no network at all.
pub fn choose(interfaces: &[Interface], only: Option<&str>) -> Vec<IpAddr> {
    let mut chosen: Vec<(InterfaceKind, bool, IpAddr)> = interfaces
        .iter()
        .filter(|one| only.is_none_or(|only| one.is_named_by(only)))
        .filter(|one| one.is_of_use())
        .map(|one| (one.kind(), one.address.is_ipv6(), one.address))
        .collect();
    chosen.sort();
    let has_network = chosen.first().is_some_and(|&(kind, ..)| kind < InterfaceKind::Inner);
    if only.is_none() && has_network {
        chosen.retain(|&(kind, ..)| kind != InterfaceKind::Inner);
    }
    chosen.dedup_by_key(|&mut (_, _, address)| address);
    chosen.into_iter().map(|(_, _, address)| address).take(ADDRESSES_MAX).collect()
}

/// Sorts the addresses of a peer into the order of trying; `here` is true within one network namespace. An address
/// that both nodes have (mostly a bridge to guests) leads back to this one and is dropped. A common network leads
/// straight to the other.
pub fn order(here: bool, listeners: Vec<SocketAddr>, interfaces: &[Interface]) -> Vec<SocketAddr> {
    let is_own = |listener: &SocketAddr| interfaces.iter().any(|o| o.address == listener.ip());
    let mut candidates = listeners;
    candidates.retain(|one| here || !(one.ip().is_loopback() || is_own(one)));
    candidates.sort_by_key(|one| distance(one.ip(), interfaces));
    candidates
}

/// Rank of an address; lower is tried first.
fn distance(address: IpAddr, interfaces: &[Interface]) -> u8 {
    if address.is_loopback() {
        return 0;
    }
    let shared = interfaces.iter().filter(|one| one.reaches(address)).map(Interface::kind).min();
    match shared {
        Some(InterfaceKind::Outer) => 1,
        None => 2,
        Some(InterfaceKind::Tunnel) => 3,
        Some(InterfaceKind::Inner | InterfaceKind::Loopback) => 4,
    }
}

impl Interface {
    fn kind(&self) -> InterfaceKind {
        let named = |prefixes: &[&str]| prefixes.iter().any(|prefix| self.name.starts_with(prefix));
        if self.address.is_loopback() {
            InterfaceKind::Loopback
        } else if named(INNER) {
            InterfaceKind::Inner
        } else if named(TUNNELS) {
            InterfaceKind::Tunnel
        } else {
            InterfaceKind::Outer
        }
    }

    /// True if it leads to other machines without a tunnel.
    pub fn leads_out(&self) -> bool {
        self.kind() == InterfaceKind::Outer
    }

    /// True if a list of interfaces, addresses and address prefixes includes it.
    pub fn is_named_by(&self, only: &str) -> bool {
        let address = self.address.to_string();
        let mut words = only.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.any(|word| self.name == word || address.starts_with(word))
    }

    /// Kernel name of the interface: a second address may have a label behind the name.
    pub fn link(&self) -> &str {
        self.name.split(':').next().unwrap_or(&self.name)
    }

    /// Device that carries its bytes: VLANs share their device.
    pub fn device(&self) -> &str {
        self.link().split('.').next().unwrap_or(&self.name)
    }

    /// True if its address can be given to others.
    pub fn is_of_use(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => !address.is_link_local() && !address.is_unspecified(),
            IpAddr::V6(address) => {
                !(address.is_unicast_link_local()
                    || address.is_unspecified()
                    || address.is_loopback())
            }
        }
    }

    /// True if `address` belongs to its network.
    pub fn reaches(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Identifier of the network namespace; loopback addresses are tried only within one.
pub fn network_identity() -> [u8; 16] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let inode = std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
    let mut identity = [0u8; 16];
    for (at, byte) in boot.bytes().filter(u8::is_ascii_hexdigit).enumerate() {
        identity[at % 8] = identity[at % 8].rotate_left(3) ^ byte;
    }
    identity[8..].copy_from_slice(&inode.to_le_bytes());
    identity
}

/// Encodes a published address: the namespace, then the listeners.
pub fn emit(identity: [u8; 16], listeners: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(identity);
    listeners.iter().for_each(|listener| emit_one(&mut bytes, *listener));
    bytes
}

/// Decodes the namespace and the listeners of a peer; `None` if malformed.
pub fn parse(bytes: &[u8]) -> Option<([u8; 16], Vec<SocketAddr>)> {
    let rest = bytes.strip_prefix(&[VERSION])?;
    let (identity, rest) = rest.split_first_chunk::<16>()?;
    Some((*identity, parse_all(rest)?))
}

/// Appends an address and a port.
pub fn emit_one(bytes: &mut Vec<u8>, one: SocketAddr) {
    match one.ip() {
        IpAddr::V4(address) => {
            bytes.push(4);
            bytes.extend(address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(6);
            bytes.extend(address.octets());
        }
    }
    bytes.extend(one.port().to_le_bytes());
}

/// Takes an address and a port from the front; `None` if malformed.
pub fn parse_one(bytes: &mut &[u8]) -> Option<SocketAddr> {
    let (kind, rest) = bytes.split_first()?;
    let (address, rest) = match kind {
        4 => {
            let (octets, rest) = rest.split_first_chunk::<4>()?;
            (IpAddr::V4(Ipv4Addr::from(*octets)), rest)
        }
        6 => {
            let (octets, rest) = rest.split_first_chunk::<16>()?;
            (IpAddr::V6(Ipv6Addr::from(*octets)), rest)
        }
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    *bytes = rest;
    Some(SocketAddr::new(address, u16::from_le_bytes(*port)))
}

/// Decodes the rest as addresses and ports, up to the limit.
pub fn parse_all(mut bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let mut listeners = Vec::new();
    while !bytes.is_empty() {
        listeners.push(parse_one(&mut bytes)?);
        if listeners.len() > ADDRESSES_MAX {
            return None;
        }
    }
    Some(listeners)
}

/// Name prefixes of interfaces to guests: bridges, and the host's ends of veth pairs.
const INNER: &[&str] = &[
    "docker", "virbr", "br-", "veth", "cni", "cali", "cilium", "flannel", "kube", "lxc", "lxd",
    "incus", "podman", "vmnet", "vboxnet", "vnet", "tap",
];

/// Name prefixes of interfaces to overlay networks.
const TUNNELS: &[&str] = &["tun", "wg", "ppp", "tailscale", "zt"];

/// Maximum number of addresses offered: 16 of IPv6 fit a published address of 512 bytes.
pub const ADDRESSES_MAX: usize = 16;

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interface(name: &str, network: &str) -> Interface {
        let (address, prefix) = network.split_once('/').unwrap();
        let (address, prefix) = (address.parse().unwrap(), prefix.parse().unwrap());
        Interface { name: name.into(), address, prefix }
    }

    fn node(own: &str) -> [Interface; 5] {
        [
            interface("docker0", "172.17.0.1/16"),
            interface("lo", "127.0.0.1/8"),
            interface("virbr0", "192.168.122.1/24"),
            interface("eth0", "fe80::1/64"),
            interface("eth0", own),
        ]
    }

    fn listeners(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn networks_and_the_loopback_are_listened_on_and_bridges_only_when_asked_for() {
        let all = node("10.1.2.3/24");
        let texts =
            |only| -> Vec<String> { choose(&all, only).iter().map(ToString::to_string).collect() };
        assert_eq!(texts(None), ["10.1.2.3", "127.0.0.1"]);
        assert_eq!(texts(Some("virbr0")), ["192.168.122.1"]);
        assert_eq!(texts(Some("10.1.")), ["10.1.2.3"]);
        assert_eq!(texts(Some("lo,eth0")), ["10.1.2.3", "127.0.0.1"]);
        assert!(texts(Some("eth7")).is_empty());
        let offline = &all[..4];
        let chosen = choose(offline, None);
        assert_eq!(
            chosen[..2],
            ["172.17.0.1", "192.168.122.1"].map(|a| a.parse::<IpAddr>().unwrap())
        );
        let vpn = [interface("wg0", "10.9.0.1/24"), interface("eth0", "10.1.2.3/24")];
        assert_eq!(choose(&vpn, None).len(), 2);
        assert_eq!(choose(&vpn, None)[0], all[4].address);
    }

    #[test]
    fn addresses_of_both_nodes_are_never_tried() {
        let offered = listeners(&["172.17.0.1:5", "192.168.122.1:5", "10.1.2.4:5", "127.0.0.1:5"]);
        assert_eq!(order(false, offered, &node("10.1.2.3/24")), listeners(&["10.1.2.4:5"]));
    }

    #[test]
    fn a_common_network_comes_first_and_a_common_bridge_last() {
        let offered = listeners(&["192.168.122.9:1", "198.51.100.7:2", "10.1.2.4:3"]);
        let expected = listeners(&["10.1.2.4:3", "198.51.100.7:2", "192.168.122.9:1"]);
        assert_eq!(order(false, offered, &node("10.1.2.3/24")), expected);
        let six = [interface("eth0", "2001:db8:1::1/48")];
        let offered = listeners(&["10.0.0.1:1", "[2001:db8:1:2::3]:2"]);
        assert_eq!(order(false, offered.clone(), &six)[0], offered[1]);
    }

    #[test]
    fn the_loopback_is_tried_first_here_and_never_elsewhere() {
        let offered = listeners(&["10.0.0.1:5", "[2001:db8::1]:6", "127.0.0.1:7"]);
        let bytes = emit([1; 16], &offered);
        let (identity, parsed) = parse(&bytes).unwrap();
        assert_eq!((identity, &parsed), ([1; 16], &offered));
        assert_eq!(order(false, parsed.clone(), &[]), offered[..2]);
        assert_eq!(order(true, parsed, &[])[0], offered[2]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_parse_as_an_address_or_fail(bytes: Vec<u8>, cut in 0usize..40) {
            if let Some((identity, listeners)) = parse(&bytes) {
                prop_assert_eq!(emit(identity, &listeners), bytes);
            }
            let good = emit([7; 16], &"10.0.0.1:5".parse().into_iter().collect::<Vec<_>>());
            let part = &good[..cut.min(good.len())];
            let whole = cut >= good.len() || cut == 17;
            prop_assert_eq!(parse(part).is_some(), whole);
        }
    }
}
