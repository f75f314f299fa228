//! Listen addresses of gateways, before their ports are known.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// An address and a range of ports, of which a gateway takes the first free one: `10.77.1.10:7000`,
/// `10.77.1.10:7000-7009`, or `10.77.1.10` for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    address: IpAddr,
    /// The range 0..=0 stands for any port.
    ports: RangeInclusive<u16>,
}

/// The error for a text that is no listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address with ports: write it like 10.77.1.10:7000, 10.77.1.10:7000-7009, or 10.77.1.10 \
     for any port"
)]
pub struct ListenAddressError(String);

impl ListenAddress {
    /// Returns the addresses to try, in order; port 0 lets the system choose.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let address = self.address;
        self.ports.clone().map(move |port| SocketAddr::new(address, port))
    }

    /// Returns the address, if there is only one.
    pub fn only(&self) -> Option<SocketAddr> {
        let port = *self.ports.start();
        (port > 0 && port == *self.ports.end()).then(|| SocketAddr::new(self.address, port))
    }

    /// Returns the IP address without ports.
    pub fn ip(&self) -> IpAddr {
        self.address
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self { address: address.ip(), ports: address.port()..=address.port() }
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        let wrong = || ListenAddressError(text.into());
        if let Ok(address) = text.parse() {
            return Ok(Self { address, ports: 0..=0 });
        }
        let Some((first, last)) = text.rsplit_once('-') else {
            return text.parse().map(|address: SocketAddr| address.into()).map_err(|_| wrong());
        };
        let first: SocketAddr = first.parse().map_err(|_| wrong())?;
        let last: u16 = last.parse().map_err(|_| wrong())?;
        let is_range = (1..=last).contains(&first.port());
        is_range.then(|| Self { address: first.ip(), ports: first.port()..=last }).ok_or_else(wrong)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        match (first, last) {
            (0, _) => write!(f, "{}", self.address),
            _ if first == last => write!(f, "{}", SocketAddr::new(self.address, first)),
            _ => write!(f, "{}-{last}", SocketAddr::new(self.address, first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_has_one_port_several_or_any() {
        let ports = |text: &str| {
            let listen: ListenAddress = text.parse().unwrap();
            assert_eq!(listen.to_string().parse(), Ok(listen.clone()));
            let all: Vec<u16> = listen.addresses().map(|one| one.port()).collect();
            (all, listen.only().is_some())
        };
        assert_eq!(ports("10.1.0.9:7000"), (vec![7000], true));
        assert_eq!(ports("10.1.0.9:7000-7002"), (vec![7000, 7001, 7002], false));
        assert_eq!(ports("10.1.0.9"), (vec![0], false));
        assert_eq!(ports("10.1.0.9:0"), (vec![0], false));
        assert_eq!(ports("[2001:db8::7]:65535-65535"), (vec![65535], true));
        assert_eq!(ports("2001:db8::7"), (vec![0], false));
    }

    #[test]
    fn malformed_listen_addresses_are_reported() {
        for text in [
            "",
            "name",
            "name:7",
            "10.1.0.9:",
            "10.1.0.9:8-7",
            "10.1.0.9:0-7",
            "10.1.0.9:7-x",
            "::1:7-8",
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(ListenAddressError(text.into())));
        }
    }
}
