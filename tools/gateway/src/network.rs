//! IP networks, as the command line allows them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A set of addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    prefix: u8,
}

/// Error for a text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network: write it like 10.1.0.0/16, 2001:db8::/32 or 192.0.2.7")]
pub struct NetError(String);

impl Net {
    /// True if the address belongs to the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (own, other, length) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        let free = length - u32::from(self.prefix);
        (own ^ other).checked_shr(free).unwrap_or(0) == 0
    }

    /// Returns the addresses that belong to one of `nets`.
    pub(crate) fn allowed(nets: &[Self], addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let is_allowed = |one: &&SocketAddr| nets.iter().any(|net| net.contains(one.ip()));
        addresses.iter().filter(is_allowed).copied().collect()
    }
}

impl FromStr for Net {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let wrong = || NetError(text.into());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(length), |prefix| prefix.parse().map_err(|_| wrong()))?;
        if prefix <= length { Ok(Self { address, prefix }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Joins networks with commas, for messages.
pub(crate) fn list(nets: &[Net]) -> String {
    let texts: Vec<String> = nets.iter().map(Net::to_string).collect();
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_share_its_bits() {
        let has = |net: &str, address: &str| {
            net.parse::<Net>().unwrap().contains(address.parse().unwrap())
        };
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.0"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "::1"));
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.6"));
        assert!(has("2001:db8::/32", "2001:db8:1::") && !has("2001:db8::/32", "2001:db9::"));
        assert!(has("::/0", "::1") && !has("::1", "::2"));
    }

    #[test]
    fn invalid_networks_are_rejected_by_name() {
        for text in ["", "10.1.0.0/33", "10.1/16", "eth0", "::/129", "10.0.0.0/-1", "1.2.3.4/"] {
            assert_eq!(text.parse::<Net>(), Err(NetError(text.into())));
        }
    }
}
