//! The head of each message, and the address that peers are told.

use std::net::{Ipv6Addr, SocketAddr};

use rail::RailError;

use crate::fabric::{Provider, socket_address};

/// Head of a message.
///
/// Any process of the network can send to an endpoint, and no connection says who it was. So each message begins with
/// a random number that the receiver has given to one peer alone, in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number that the receiver has given to the sender; [`HELLO`] at first.
    pub key: u64,
    /// Number of the message on its connection. Messages may complete out of order.
    pub sequence: u32,
    pub kind: MessageKind,
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MessageKind {
    /// A frame.
    Frame,
    /// A step of the handshake.
    Handshake,
    /// The sender leaves; nothing follows.
    Farewell,
    /// The sender has no such connection any more. It counts out of order, since what is missing will not come.
    Gone,
    /// An answer is wanted.
    Ping,
    /// The answer.
    Pong,
}

impl Head {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Encodes the head.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes
    }

    /// Decodes the head of a message; returns it and what follows.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (key, rest) = bytes.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let kind = match u32::from_le_bytes(*kind) {
            0 => MessageKind::Frame,
            1 => MessageKind::Handshake,
            2 => MessageKind::Farewell,
            3 => MessageKind::Gone,
            4 => MessageKind::Ping,
            5 => MessageKind::Pong,
            _ => return None,
        };
        let (key, sequence) = (u64::from_le_bytes(*key), u32::from_le_bytes(*sequence));
        Some((Self { key, sequence, kind }, rest))
    }
}

/// Longest frame in bytes.
pub(crate) const FRAME_MAX: usize = 128 << 10;

/// Key of the first message of a connection.
pub(crate) const HELLO: u64 = 0;

/// Encodes the address that peers are told: the kind of the network, and the endpoint's address in it.
pub(crate) fn emit_address(provider: &Provider, name: &[u8]) -> Vec<u8> {
    let mut bytes = network(provider);
    bytes.extend_from_slice(name);
    bytes
}

/// Returns the address of a peer's endpoint.
///
/// # Errors
/// The peer is in a network of another kind.
pub(crate) fn parse_address<'a>(
    provider: &Provider,
    bytes: &'a [u8],
) -> Result<&'a [u8], RailError> {
    let own = network(provider);
    bytes.strip_prefix(own.as_slice()).ok_or_else(|| {
        let text = format!("it is in another network than {} of libfabric", provider.name());
        RailError::Unreachable(text)
    })
}

/// The kind of a network: equal at all endpoints that may reach each other.
fn network(provider: &Provider) -> Vec<u8> {
    let name = provider.name();
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&provider.address_format().to_le_bytes());
    bytes.push(name.len().min(255) as u8);
    bytes.extend_from_slice(&name.as_bytes()[..name.len().min(255)]);
    bytes
}

/// Address to show: a socket address, or the first bytes of any other as an IPv6 address.
pub(crate) fn shown(name: &[u8]) -> SocketAddr {
    socket_address(name).unwrap_or_else(|| {
        let mut bytes = [0; 16];
        let count = name.len().min(bytes.len());
        bytes[..count].copy_from_slice(&name[..count]);
        SocketAddr::new(Ipv6Addr::from(bytes).into(), 0)
    })
}

/// Version of the messages.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_decoded_as_they_were_encoded() {
        let kinds = [
            MessageKind::Frame,
            MessageKind::Handshake,
            MessageKind::Farewell,
            MessageKind::Gone,
            MessageKind::Ping,
            MessageKind::Pong,
        ];
        for kind in kinds {
            let head = Head { key: 0x0102_0304_0506_0708, sequence: 9, kind };
            let mut bytes = head.emit().to_vec();
            bytes.push(7);
            assert_eq!(Head::parse(&bytes), Some((head, &[7][..])));
            assert_eq!(Head::parse(&bytes[..Head::LEN - 1]), None);
            bytes[12] = 6;
            assert_eq!(Head::parse(&bytes), None, "no such kind");
        }
    }
}
