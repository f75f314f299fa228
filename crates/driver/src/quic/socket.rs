//! A UDP socket: batches out and in, buffers as large as permitted, and what the network says of packets
//! that went nowhere.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::BytesMut;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::net::sockopt;

use super::connection::Outlet;
use crate::fork::Unshared;

/// A socket bound to one address of this host.
pub(super) struct Socket {
    udp: Unshared<UdpSocket>,
    state: UdpSocketState,
    pub address: SocketAddr,
    /// What the kernel keeps for the process that comes late.
    pub receive_buffer_bytes: usize,
    /// A batch that the kernel had no room for.
    stuck: Option<(Transmit, Vec<u8>)>,
    /// The kernel has refused to send from here.
    pub is_doubtful: bool,
}

/// What the network says of a packet that went nowhere.
pub(super) struct Undelivered {
    /// Who says so: the host that it was for, or one on the way.
    pub host: IpAddr,
    /// Nobody has the port, which only the host itself can know.
    pub is_refused: bool,
}

/// Room for what comes in.
pub(super) struct Intake {
    room: Vec<u8>,
}

/// A datagram that came in.
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

    /// One that is bound already.
    pub fn of(udp: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&udp).into())?;
        // Older kernels have no word for it; there peers that have ended are found by their silence.
        let _ = state.enable_transport_errors((&udp).into());
        // Only the superuser goes beyond the system's limit; others get as much as it allows.
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

    /// What the kernel takes before packets have left.
    pub fn send_buffer_bytes(&self) -> io::Result<usize> {
        self.state.send_buffer_size((&self.udp).into())
    }

    /// Whether packets are never cut in pieces on their way, so that their length can be tried.
    pub fn keeps_packets_whole(&self) -> bool {
        !self.state.may_fragment()
    }

    /// Whether this host still has the address.
    pub fn is_at_home(&self) -> bool {
        UdpSocket::bind((self.address.ip(), 0)).is_ok()
    }

    /// Sends the batch that waits, if there is one; whether none is left.
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
        for _ in 0..ECHOES_MAX {
            match self.state.try_send((&self.udp).into(), &batch) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // A word about an earlier packet; this one is still to be sent.
                Err(error) if is_echo(&error) => {}
                Ok(()) => return true,
                // What does not leave is lost, as it may be further on: it is sent again.
                Err(_) => {
                    self.is_doubtful = true;
                    return true;
                }
            }
        }
        true
    }

    /// Takes in what has come, at most a bounded number of datagrams; whether there may be more.
    pub fn receive(&mut self, intake: &mut Intake, sink: &mut dyn FnMut(Datagram)) -> bool {
        let mut meta = [RecvMeta::default(); BATCH];
        let mut rooms = intake.room.chunks_mut(BATCH_LEN).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| rooms.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let count = match self.state.recv((&self.udp).into(), &mut slices, &mut meta) {
            Ok(count) => count,
            Err(error) => return is_echo(&error),
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

    /// Packets that could not be delivered; at most some.
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

/// What the network says of an earlier packet comes back from whatever call is next.
fn is_echo(error: &io::Error) -> bool {
    let echoes = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EHOSTDOWN];
    error.raw_os_error().is_some_and(|code| echoes.contains(&code))
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

/// What is asked of the kernel for each direction: 60 ms at 1 Gb/s, for a process that computes.
const BUFFER_BYTES: usize = 8 << 20;
/// Batches taken in by one call…
const BATCH: usize = 4;
/// …of at most so many bytes each.
const BATCH_LEN: usize = 1 << 16;
/// The longest batch that leaves: the length of a datagram, as the kernel counts it before it cuts it.
const BATCH_LEN_MAX: usize = 65_000;
/// Words about earlier packets that come back from one call.
const ECHOES_MAX: usize = 3;
/// Undelivered packets heard of in one look.
const ERRORS_MAX: usize = 16;
