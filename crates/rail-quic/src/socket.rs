//! A UDP socket: batches out (GSO) and in, the largest permitted buffers, and ICMP errors.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::BytesMut;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use rail::Unshared;
use rustix::net::sockopt;
use socket2::{SockFilter, SockRef};

use crate::connection::Outlet;
use crate::settings::BUFFER_BYTES;

/// A socket bound to one address of this host.
pub(super) struct Socket {
    udp: Unshared<UdpSocket>,
    state: UdpSocketState,
    pub address: SocketAddr,
    /// Receive buffer, for a process that comes late.
    pub receive_buffer_bytes: usize,
    /// A batch for which the kernel had no room.
    stuck: Option<(Transmit, Vec<u8>)>,
    /// True if the kernel has refused to send from this address.
    pub is_doubtful: bool,
}

/// An ICMP error for a packet.
pub(super) struct Undelivered {
    /// Destination host of the packet.
    pub host: IpAddr,
    /// True for "port unreachable", which only the host itself can send.
    pub is_refused: bool,
}

/// Receive buffers.
pub(super) struct Intake {
    room: Vec<u8>,
}

/// A received datagram.
pub(super) struct Datagram {
    pub from: SocketAddr,
    pub to: Option<IpAddr>,
    pub ecn: Option<EcnCodepoint>,
    pub bytes: BytesMut,
}

impl Intake {
    pub fn new() -> Self {
        Self { room: vec![0; BATCH * BATCH_LEN] }
    }
}

impl Socket {
    pub fn bind(address: IpAddr) -> io::Result<Self> {
        Self::of(UdpSocket::bind((address, 0))?)
    }

    /// Adopts a bound socket.
    pub fn of(udp: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&udp).into())?;
        // Older kernels do not support it; ended peers are then found by timeouts.
        let _ = state.enable_transport_errors((&udp).into());
        // Only the superuser may exceed `net.core.rmem_max`; others get as much as it allows.
        if sockopt::set_socket_recv_buffer_size_force(&udp, BUFFER_BYTES).is_err() {
            let _ = state.set_recv_buffer_size((&udp).into(), BUFFER_BYTES);
        }
        let _ = state.set_send_buffer_size((&udp).into(), BUFFER_BYTES);
        let receive_buffer_bytes = state.recv_buffer_size((&udp).into())?;
        let address = udp.local_addr()?;
        Ok(Self {
            udp: Unshared::new(udp),
            state,
            address,
            receive_buffer_bytes,
            stuck: None,
            is_doubtful: false,
        })
    }

    /// Returns the size of the send buffer.
    pub fn send_buffer_bytes(&self) -> io::Result<usize> {
        self.state.send_buffer_size((&self.udp).into())
    }

    /// True if packets are never fragmented, so that path MTU discovery works.
    pub fn keeps_packets_whole(&self) -> bool {
        !self.state.may_fragment()
    }

    /// True if this host still has the address.
    pub fn has_address(&self) -> bool {
        UdpSocket::bind((self.address.ip(), 0)).is_ok()
    }

    /// Sends the waiting batch, if any; true if none is left.
    pub fn unstick(&mut self) -> bool {
        let Some((transmit, contents)) = self.stuck.take() else { return true };
        let is_sent = self.try_send(&transmit, &contents);
        if !is_sent {
            self.stuck = Some((transmit, contents));
        }
        is_sent
    }

    fn try_send(&mut self, transmit: &Transmit, contents: &[u8]) -> bool {
        let batch = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.map(outer_ecn),
            contents: &contents[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: None,
        };
        for _ in 0..DELAYED_ERRORS_MAX {
            match self.state.try_send((&self.udp).into(), &batch) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // An error of an earlier packet; this batch is still unsent.
                Err(error) if is_delayed_error(&error) => {}
                Ok(()) => return true,
                // The batch counts as lost and is retransmitted.
                Err(_) => {
                    self.is_doubtful = true;
                    return true;
                }
            }
        }
        true
    }

    /// Has the kernel drop what the filter does not accept.
    pub fn attach(&self, filter: &[SockFilter]) -> io::Result<()> {
        SockRef::from(&self.udp).attach_filter(filter)
    }

    /// Has the kernel drop nothing more.
    pub fn detach(&self) {
        // Fails only if there is no filter.
        let _ = SockRef::from(&self.udp).detach_filter();
    }

    /// Receives a bounded number of datagrams; returns true if more may be pending.
    pub fn receive(&mut self, intake: &mut Intake, sink: &mut dyn FnMut(Datagram)) -> bool {
        let mut meta = [RecvMeta::default(); BATCH];
        let mut rooms = intake.room.chunks_mut(BATCH_LEN).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| rooms.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let count = match self.state.recv((&self.udp).into(), &mut slices, &mut meta) {
            Ok(count) => count,
            Err(error) => return is_delayed_error(&error),
        };
        for (meta, room) in meta[..count].iter().zip(intake.room.chunks(BATCH_LEN)) {
            let mut rest = BytesMut::from(&room[..meta.len]);
            while !rest.is_empty() {
                let bytes = rest.split_to(meta.stride.clamp(1, rest.len()));
                let ecn = meta.ecn.map(inner_ecn);
                sink(Datagram { from: meta.addr, to: meta.dst_ip, ecn, bytes });
            }
        }
        count == BATCH
    }

    /// Reports a bounded number of undelivered packets.
    pub fn errors(&mut self, sink: &mut dyn FnMut(Undelivered)) {
        for _ in 0..ERRORS_MAX {
            let Ok(Some(error)) = self.state.recv_transport_error((&self.udp).into()) else {
                return;
            };
            let is_final = matches!(error.payload, quinn_udp::TransportErrorPayload::Unreachable);
            if let Some(address) = error.addr.filter(|_| is_final) {
                let is_refused = error.raw_errno == libc::ECONNREFUSED;
                sink(Undelivered { host: address.ip(), is_refused });
            }
        }
    }
}

impl Outlet for Socket {
    fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    fn batch_max(&self, packet_len: usize) -> usize {
        self.state.max_gso_segments().min(BATCH_LEN_MAX / packet_len.max(1)).max(1)
    }

    fn send(&mut self, transmit: Transmit, contents: &mut Vec<u8>) -> bool {
        if self.try_send(&transmit, contents) {
            return true;
        }
        self.stuck = Some((transmit, std::mem::take(contents)));
        false
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// True if the error belongs to an earlier packet: ICMP errors are returned by the next system call.
fn is_delayed_error(error: &io::Error) -> bool {
    let codes = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EHOSTDOWN];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

fn outer_ecn(ecn: EcnCodepoint) -> quinn_udp::EcnCodepoint {
    match ecn {
        EcnCodepoint::Ect0 => quinn_udp::EcnCodepoint::Ect0,
        EcnCodepoint::Ect1 => quinn_udp::EcnCodepoint::Ect1,
        EcnCodepoint::Ce => quinn_udp::EcnCodepoint::Ce,
    }
}

fn inner_ecn(ecn: quinn_udp::EcnCodepoint) -> EcnCodepoint {
    match ecn {
        quinn_udp::EcnCodepoint::Ect0 => EcnCodepoint::Ect0,
        quinn_udp::EcnCodepoint::Ect1 => EcnCodepoint::Ect1,
        quinn_udp::EcnCodepoint::Ce => EcnCodepoint::Ce,
    }
}

/// Number of batches per receive call.
const BATCH: usize = 4;
/// Maximum length of a received batch (GRO).
const BATCH_LEN: usize = 1 << 16;
/// Maximum length of a sent batch: the kernel counts it as one datagram before segmentation.
const BATCH_LEN_MAX: usize = 65_000;
/// Maximum number of delayed errors per call.
const DELAYED_ERRORS_MAX: usize = 3;
/// Maximum number of undelivered packets reported at once.
const ERRORS_MAX: usize = 16;
