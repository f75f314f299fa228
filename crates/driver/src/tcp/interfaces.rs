//! Which addresses a process offers, and in which order a peer tries them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

/// A network interface's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub name: String,
    pub address: IpAddr,
}

/// The interfaces of this network namespace.
pub(crate) fn list() -> std::io::Result<Vec<Interface>> {
    let all = if_addrs::get_if_addrs()?;
    Ok(all.into_iter().map(|one| Interface { address: one.ip(), name: one.name }).collect())
}

/// The addresses to listen on, best first. `only` names an interface, an address, or the beginning
/// of one (`10.0.`); without it, real networks come before bridges and containers' networks, and the
/// loopback last: peers elsewhere cannot reach it, peers here try it first.
pub(crate) fn choose(interfaces: &[Interface], only: Option<&str>) -> Vec<IpAddr> {
    let mut chosen: Vec<(u8, IpAddr)> = interfaces
        .iter()
        .filter(|one| match only {
            Some(only) => one.name == only || one.address.to_string().starts_with(only),
            None => true,
        })
        .filter_map(|one| Some((preference(one)?, one.address)))
        .collect();
    chosen.sort_by_key(|&(preference, _)| preference);
    chosen.dedup_by_key(|&mut (_, address)| address);
    chosen.into_iter().map(|(_, address)| address).take(ADDRESSES_MAX).collect()
}

/// Lower is better; none for addresses that cannot be given to others.
fn preference(interface: &Interface) -> Option<u8> {
    let is_local = match interface.address {
        IpAddr::V4(address) => address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_unspecified(),
    };
    if is_local {
        return None;
    }
    let inner = INNER.iter().any(|prefix| interface.name.starts_with(prefix));
    Some(match (interface.address.is_loopback(), inner, interface.address.is_ipv4()) {
        (true, _, true) => 4,
        (true, _, false) => return None,
        (false, false, true) => 0,
        (false, false, false) => 1,
        (false, true, true) => 2,
        (false, true, false) => 3,
    })
}

/// What tells network namespaces apart, so that loopback addresses are tried only where they lead
/// to the same place.
pub(crate) fn network_identity() -> [u8; 16] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let inode = std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
    let mut identity = [0u8; 16];
    for (at, byte) in boot.bytes().filter(u8::is_ascii_hexdigit).enumerate() {
        identity[at % 8] = identity[at % 8].rotate_left(3) ^ byte;
    }
    identity[8..].copy_from_slice(&inode.to_le_bytes());
    identity
}

/// A published address: the namespace, then the listeners.
pub(crate) fn emit(identity: [u8; 16], listeners: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(identity);
    for listener in listeners {
        match listener.ip() {
            IpAddr::V4(address) => {
                bytes.push(4);
                bytes.extend(address.octets());
            }
            IpAddr::V6(address) => {
                bytes.push(6);
                bytes.extend(address.octets());
            }
        }
        bytes.extend(listener.port().to_le_bytes());
    }
    bytes
}

/// The addresses to try for a peer, in order; none when the bytes are no address.
pub(crate) fn parse(identity: [u8; 16], bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let rest = bytes.strip_prefix(&[VERSION])?;
    let (theirs, mut rest) = rest.split_first_chunk::<16>()?;
    let mut listeners = Vec::new();
    while let Some((kind, tail)) = rest.split_first() {
        let (address, tail) = match kind {
            4 => {
                let (octets, tail) = tail.split_first_chunk::<4>()?;
                (IpAddr::V4(Ipv4Addr::from(*octets)), tail)
            }
            6 => {
                let (octets, tail) = tail.split_first_chunk::<16>()?;
                (IpAddr::V6(Ipv6Addr::from(*octets)), tail)
            }
            _ => return None,
        };
        let (port, tail) = tail.split_first_chunk::<2>()?;
        listeners.push(SocketAddr::new(address, u16::from_le_bytes(*port)));
        rest = tail;
    }
    let here = *theirs == identity;
    listeners.retain(|listener| here || !listener.ip().is_loopback());
    listeners.sort_by_key(|listener| !(here && listener.ip().is_loopback()));
    Some(listeners)
}

/// Interfaces that usually lead into this machine only.
const INNER: &[&str] =
    &["docker", "virbr", "br-", "veth", "cni", "flannel", "lxc", "lxd", "podman", "tap", "tun"];

/// Addresses offered at most: 16 of IPv6 fit a published address of 512 bytes.
const ADDRESSES_MAX: usize = 16;

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface { name: name.into(), address: address.parse().unwrap() }
    }

    #[test]
    fn bridges_come_last_and_link_locals_never() {
        let all = [
            interface("lo", "127.0.0.1"),
            interface("docker0", "172.17.0.1"),
            interface("virbr0", "192.168.122.1"),
            interface("eth0", "fe80::1"),
            interface("eth0", "10.1.2.3"),
        ];
        let texts =
            |only| -> Vec<String> { choose(&all, only).iter().map(ToString::to_string).collect() };
        assert_eq!(texts(None), ["10.1.2.3", "172.17.0.1", "192.168.122.1", "127.0.0.1"]);
        assert_eq!(texts(Some("virbr0")), ["192.168.122.1"]);
        assert_eq!(texts(Some("10.1.")), ["10.1.2.3"]);
        assert!(texts(Some("eth7")).is_empty());
    }

    #[test]
    fn the_loopback_is_tried_first_here_and_never_elsewhere() {
        let listeners: Vec<SocketAddr> =
            ["10.0.0.1:5", "[2001:db8::1]:6", "127.0.0.1:7"].map(|a| a.parse().unwrap()).into();
        let bytes = emit([1; 16], &listeners);
        assert_eq!(parse([2; 16], &bytes).unwrap(), listeners[..2]);
        assert_eq!(parse([1; 16], &bytes).unwrap()[0], listeners[2]);
        assert_eq!(parse([1; 16], &bytes[..bytes.len() - 1]), None);
        assert_eq!(parse([1; 16], b"x"), None);
    }
}
