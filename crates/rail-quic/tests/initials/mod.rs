//! QUIC Initial packets by the thousand, from several addresses.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use auth::Identity;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, DatagramEvent, Endpoint,
    EndpointConfig, EndpointEvent,
};

/// Clients that begin connections from several addresses, and could complete them: they have the key.
pub struct HalfOpenClients {
    target: SocketAddr,
    sockets: Vec<UdpSocket>,
    endpoint: Endpoint,
    config: ClientConfig,
    begun: Vec<(ConnectionHandle, usize, Connection)>,
    /// Number of clients that have proved their address.
    pub answered: usize,
}

impl HalfOpenClients {
    pub fn new(target: SocketAddr, identity: &Identity) -> Self {
        let client = QuicClientConfig::try_from(identity.client()).unwrap();
        let mut config = ClientConfig::new(Arc::new(client));
        let ids = identity.first_ids();
        let number = std::sync::atomic::AtomicU64::new(0);
        config.initial_dst_cid_provider(Arc::new(move || {
            let nonce = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            ConnectionId::new(&ids.make(nonce.to_le_bytes()))
        }));
        let sockets = (2..10).map(|host| {
            let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        Self {
            target,
            sockets: sockets.collect(),
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None),
            config,
            begun: Vec::new(),
            answered: 0,
        }
    }

    /// Sends the Initial packets of more connections.
    pub fn begin(&mut self, is_kept: bool) {
        for number in 0..AT_ONCE {
            let index = number % self.sockets.len();
            let (handle, mut connection) = self
                .endpoint
                .connect(Instant::now(), self.config.clone(), self.target, "canele")
                .unwrap();
            send(&mut connection, &self.sockets[index], self.target);
            if is_kept {
                self.begun.push((handle, index, connection));
            } else {
                self.endpoint.handle_event(handle, EndpointEvent::drained());
            }
        }
    }

    /// Repeats the packets with the address tokens received, and forgets all connections. `poll_server` polls the server
    /// between looks.
    pub fn answer(&mut self, mut poll_server: impl FnMut()) {
        for _ in 0..AT_ONCE {
            poll_server();
            for index in 0..self.sockets.len() {
                self.receive(index);
            }
        }
        for (handle, _, _) in self.begun.drain(..) {
            self.endpoint.handle_event(handle, EndpointEvent::drained());
        }
    }

    fn receive(&mut self, index: usize) {
        let mut bytes = [0; 2048];
        while let Ok((len, from)) = self.sockets[index].recv_from(&mut bytes) {
            // The long header of a Retry packet (RFC 9000, 17.2.5).
            if bytes[0] & 0xf0 != 0xf0 {
                continue;
            }
            let (now, packet) = (Instant::now(), bytes[..len].into());
            let event = self.endpoint.handle(now, from, None, None, packet, &mut Vec::new());
            let Some(DatagramEvent::ConnectionEvent(handle, event)) = event else { continue };
            let Some((_, index, one)) = self.begun.iter_mut().find(|one| one.0 == handle) else {
                continue;
            };
            one.handle_event(event);
            send(one, &self.sockets[*index], self.target);
            self.answered += 1;
        }
    }
}

fn send(connection: &mut Connection, socket: &UdpSocket, target: SocketAddr) {
    let mut bytes = Vec::new();
    if connection.poll_transmit(Instant::now(), 1, &mut bytes).is_some() {
        // A packet without room is lost, as on a network.
        let _ = socket.send_to(&bytes, target);
    }
}

/// Number of connections begun at once.
pub const AT_ONCE: usize = 30;
