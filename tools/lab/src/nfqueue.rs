//! Netfilter packet queues with verdicts from user space (`nfnetlink_queue`).
//!
//! Normally only the beginning and the length of each packet are copied to user space; the packet stays in
//! the kernel, unsegmented. If packets must be distinguished, they arrive segmented. If they are to be sent
//! again, they arrive whole, with checksums. Numbers in attributes are big-endian; those of netlink itself
//! have the machine's order.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::wire::Detail;

/// A queue of packets.
#[derive(Debug)]
pub(crate) struct PacketQueue {
    socket: OwnedFd,
    number: u16,
    detail: Detail,
    buffer: Vec<u8>,
    /// The kernel timestamps packets while such a socket exists.
    _stamping: UdpSocket,
}

/// A packet that waits for its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub id: u32,
    /// Length of the IP packet, before segmentation.
    pub bytes: u32,
    /// Protocol number.
    pub protocol: u8,
    /// Arrival time since 1970 by the system's clock, if the kernel has recorded it.
    pub arrived: Option<Duration>,
    /// Contents from the IP header on; empty if the packet was not copied whole.
    pub content: Vec<u8>,
}

impl PacketQueue {
    /// Opens queue `number` of this network namespace.
    pub fn open(number: u16, packets_max: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::RAW;
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, Some(NETFILTER))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES);
        let stamping = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        setsockopt(&stamping, sockopt::ReceiveTimestamp, &true)?;
        let (detail, buffer) = (Detail::Lengths, vec![0; 64 << 10]);
        let mut queue = Self { socket, number, detail, buffer, _stamping: stamping };
        queue.configure(&[(CFG_CMD, &[CMD_BIND, 0, 0, 0])])?;
        queue.configure(&[(CFG_PARAMS, &copy(HEADER_BYTES))])?;
        queue.configure(&[(CFG_QUEUE_MAXLEN, &packets_max.to_be_bytes())])?;
        let flag = CFG_F_GSO.to_be_bytes();
        queue.configure(&[(CFG_FLAGS, &flag), (CFG_MASK, &flag)])?;
        Ok(queue)
    }

    /// Sets the detail of packets from now on.
    pub fn set_detail(&mut self, detail: Detail) -> io::Result<()> {
        if detail == self.detail {
            return Ok(());
        }
        self.detail = detail;
        let (flags, bytes) = match detail {
            Detail::Lengths => (CFG_F_GSO, HEADER_BYTES),
            Detail::Packets => (0, HEADER_BYTES),
            Detail::Contents => (0, WHOLE_BYTES),
        };
        let (flags, mask) = (flags.to_be_bytes(), CFG_F_GSO.to_be_bytes());
        // Packets may arrive before an answer, so none is requested.
        let attributes: [(u16, &[u8]); 3] =
            [(CFG_PARAMS, &copy(bytes)), (CFG_FLAGS, &flags), (CFG_MASK, &mask)];
        self.send(MSG_CONFIG, 0, &attributes)
    }

    /// Receives the packets that have arrived, without waiting.
    pub fn receive(&mut self, sink: &mut dyn FnMut(Packet)) -> io::Result<bool> {
        match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                messages(&self.buffer[..count], &mut |kind, body| {
                    if kind == SUBSYSTEM | MSG_PACKET
                        && let Some(packet) = parse_packet(body)
                    {
                        sink(packet);
                    }
                });
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            // The kernel dropped packets beyond our buffer, as a full buffer does.
            Err(rustix::io::Errno::NOBUFS) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts all packets up to and including `id`.
    pub fn accept_up_to(&mut self, id: u32) -> io::Result<()> {
        self.verdict(MSG_VERDICT_BATCH, VERDICT_ACCEPT, id)
    }

    /// Accepts one packet.
    pub fn accept(&mut self, id: u32) -> io::Result<()> {
        self.verdict(MSG_VERDICT, VERDICT_ACCEPT, id)
    }

    /// Drops one packet.
    pub fn drop_packet(&mut self, id: u32) -> io::Result<()> {
        self.verdict(MSG_VERDICT, VERDICT_DROP, id)
    }

    /// Returns the descriptor, readable when packets have arrived.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn verdict(&mut self, message: u16, verdict: u32, id: u32) -> io::Result<()> {
        let mut value = verdict.to_be_bytes().to_vec();
        value.extend(id.to_be_bytes());
        self.send(message, 0, &[(VERDICT_HDR, &value)])
    }

    fn configure(&mut self, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        self.send(MSG_CONFIG, FLAG_ACK, attributes)?;
        self.acknowledged()
    }

    fn acknowledged(&mut self) -> io::Result<()> {
        let (count, _) = rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
        let mut code = None;
        messages(&self.buffer[..count], &mut |kind, body| {
            if kind == NLMSG_ERROR
                && let Some(word) = body.first_chunk::<4>()
            {
                code = Some(i32::from_ne_bytes(*word));
            }
        });
        match code {
            Some(0) | None => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
        }
    }

    fn send(&mut self, message: u16, flags: u16, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend([0, 0]);
        bytes.extend(self.number.to_be_bytes());
        for (kind, value) in attributes {
            bytes.extend((value.len() as u16 + 4).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&(SUBSYSTEM | message).to_ne_bytes());
        bytes[6..8].copy_from_slice(&(FLAG_REQUEST | flags).to_ne_bytes());
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        Ok(())
    }
}

/// Returns the parameters of a queue that copies so many bytes per packet.
fn copy(bytes: u32) -> [u8; 5] {
    let [a, b, c, d] = bytes.to_be_bytes();
    [a, b, c, d, COPY_PACKET]
}

/// Calls `sink` with kind and body of each message.
fn messages(mut bytes: &[u8], sink: &mut dyn FnMut(u16, &[u8])) {
    while let Some(header) = bytes.first_chunk::<HEADER_LEN>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = bytes.get(HEADER_LEN..len) else { return };
        sink(kind, body);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
}

/// Parses the attributes of a packet's message.
fn parse_packet(body: &[u8]) -> Option<Packet> {
    let mut rest = body.get(4..)?;
    let (mut id, mut payload, mut length, mut arrived) = (None, &[][..], None, None);
    while let Some(header) = rest.first_chunk::<4>() {
        let len = u16::from_ne_bytes([header[0], header[1]]) as usize;
        let kind = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_MASK;
        let value = rest.get(4..len)?;
        match kind {
            PACKET_HDR => id = value.first_chunk::<4>().map(|word| u32::from_be_bytes(*word)),
            CAP_LEN => length = value.first_chunk::<4>().map(|word| u32::from_be_bytes(*word)),
            PAYLOAD => payload = value,
            TIMESTAMP => arrived = parse_timestamp(value),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    let protocol = payload.get(PROTOCOL_AT).copied().unwrap_or(0);
    let bytes = length.unwrap_or(payload.len() as u32);
    let is_whole = payload.len() as u32 == bytes;
    let content = if is_whole { payload.to_vec() } else { Vec::new() };
    Some(Packet { id: id?, bytes, protocol, arrived, content })
}

/// Parses seconds and microseconds.
fn parse_timestamp(value: &[u8]) -> Option<Duration> {
    let (seconds, rest) = value.split_first_chunk::<8>()?;
    let seconds = Duration::from_secs(u64::from_be_bytes(*seconds));
    let micros = u64::from_be_bytes(*rest.first_chunk::<8>()?);
    seconds.checked_add(Duration::from_micros(micros))
}

const HEADER_LEN: usize = 16;
const ATTRIBUTE_MASK: u16 = 0x3fff;
const NLMSG_ERROR: u16 = 2;
const FLAG_REQUEST: u16 = 1;
const FLAG_ACK: u16 = 4;
const SUBSYSTEM: u16 = 3 << 8;
const MSG_PACKET: u16 = 0;
const MSG_VERDICT: u16 = 1;
const MSG_CONFIG: u16 = 2;
const MSG_VERDICT_BATCH: u16 = 3;
const PACKET_HDR: u16 = 1;
const VERDICT_HDR: u16 = 2;
const TIMESTAMP: u16 = 4;
const PAYLOAD: u16 = 10;
const CAP_LEN: u16 = 13;
const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_QUEUE_MAXLEN: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
const CMD_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const CFG_F_GSO: u32 = 4;
const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;

/// Bytes copied per packet: the IP header. With none at all the kernel would copy everything.
const HEADER_BYTES: u32 = 20;
/// Bytes copied for whole packets: more than any packet on Ethernet has.
const WHOLE_BYTES: u32 = 2048;
/// Offset of the protocol in the IP header.
const PROTOCOL_AT: usize = 9;
/// Receive buffer, for packets that arrive meanwhile.
const RECEIVE_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_message_gives_id_and_whole_length() {
        let mut body = vec![2, 0, 0, 0];
        let mut attribute = |kind: u16, value: &[u8]| {
            body.extend((value.len() as u16 + 4).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        };
        attribute(PACKET_HDR, &[0, 0, 0, 9, 8, 0, 2]);
        let mut header = vec![0; 20];
        header[PROTOCOL_AT] = 17;
        attribute(PAYLOAD, &header);
        let content = header.clone();
        let whole = Packet { id: 9, bytes: 20, protocol: 17, arrived: None, content };
        assert_eq!(parse_packet(&body), Some(whole.clone()));
        body.extend([20, 0, TIMESTAMP as u8, 0]);
        body.extend([1_700_000_000_u64.to_be_bytes(), 250_000_u64.to_be_bytes()].concat());
        let whole = Packet { arrived: Some(Duration::new(1_700_000_000, 250_000_000)), ..whole };
        assert_eq!(parse_packet(&body), Some(whole.clone()));
        body.extend([8, 0, CAP_LEN as u8, 0, 0, 0, 5, 220]);
        let packet = Packet { bytes: 1500, content: Vec::new(), ..whole };
        assert_eq!(parse_packet(&body), Some(packet));
        assert_eq!(parse_packet(&body[..9]), None);
        assert_eq!(parse_packet(&[]), None);
    }
}
