//! Random datagrams made from overheard ones: nothing breaks, what they take is bounded, and a link goes on.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use auth::Identity;
use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, DatagramEvent, Endpoint,
    EndpointConfig,
};
use testing::Random;

use crate::socket::Datagram;
use crate::unauthenticated_tests::{Exchange, JOB, SECRET};

/// A process with the key of the job, whose datagrams the attacker hears, changes and repeats.
struct Caller {
    socket: UdpSocket,
    endpoint: Endpoint,
    config: ClientConfig,
    connections: Vec<(ConnectionHandle, Connection)>,
    heard: Vec<Vec<u8>>,
}

impl Caller {
    fn new() -> Self {
        let identity = Identity::of(&[SECRET; 32].into(), JOB);
        let client = QuicClientConfig::try_from(identity.client()).unwrap();
        let mut config = ClientConfig::new(Arc::new(client));
        let ids = identity.first_ids();
        config.initial_dst_cid_provider(Arc::new(move || {
            let mut nonce = [0; 8];
            getrandom::fill(&mut nonce).unwrap();
            ConnectionId::new(&ids.make(nonce))
        }));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        Self { socket, endpoint, config, connections: Vec::new(), heard: Vec::new() }
    }

    /// Begins a connection, and forgets the oldest one if there are many.
    fn begin(&mut self, target: SocketAddr) {
        if self.connections.len() == CONNECTIONS_MAX {
            let (handle, _) = self.connections.remove(0);
            self.endpoint.handle_event(handle, quinn_proto::EndpointEvent::drained());
        }
        let config = self.config.clone();
        let begun = self.endpoint.connect(Instant::now(), config, target, "canele").unwrap();
        self.connections.push(begun);
    }

    /// Returns the datagrams that leave now.
    fn poll(&mut self) -> Vec<Vec<u8>> {
        let now = Instant::now();
        let mut left = Vec::new();
        let mut room = vec![0; 2048];
        while let Ok((len, from)) = self.socket.recv_from(&mut room) {
            let bytes = BytesMut::from(&room[..len]);
            let event = self.endpoint.handle(now, from, None, None, bytes, &mut Vec::new());
            if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                && let Some((_, one)) = self.connections.iter_mut().find(|one| one.0 == handle)
            {
                one.handle_event(event);
            }
        }
        for (handle, one) in &mut self.connections {
            while let Some(event) = one.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    one.handle_event(event);
                }
            }
            let mut bytes = Vec::new();
            while one.poll_transmit(now, 1, &mut bytes).is_some() {
                left.push(std::mem::take(&mut bytes));
            }
        }
        left
    }
}

/// Returns a datagram made of others that were heard.
fn changed(random: &mut Random, heard: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = heard[random.below(heard.len())].clone();
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        // The header is of more interest than what is encrypted.
        let early = random.below(bytes.len().min(40));
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8u8),
            1 | 2 => bytes[early] = random.next() as u8,
            // Lengths of IDs and tokens, and numbers of variable length.
            3 => bytes[early] = random.pick(&[0, 1, 5, 19, 20, 21, 63, 64, 127, 128, 192, 255]),
            4 => bytes.truncate(1 + at),
            5 => {
                let other = &heard[random.below(heard.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[at.min(other.len())..]);
            }
            _ => {
                let other = &heard[random.below(heard.len())];
                bytes.extend_from_slice(other);
                bytes.truncate(1472);
            }
        }
        if bytes.is_empty() {
            return vec![random.next() as u8];
        }
    }
    bytes
}

#[test]
fn changed_and_repeated_datagrams_take_little_and_end_no_link() {
    let mut exchange = Exchange::new();
    let target = exchange.rails[0].driver().sockets[0].address;
    for seed in testing::seeds(30) {
        let mut random = Random::new(seed);
        let mut caller = Caller::new();
        let own = caller.socket.local_addr().unwrap();
        let mut passed = 0;
        for _ in 0..400 {
            match random.below(20) {
                0 => caller.begin(target),
                1..4 => exchange.turn(),
                _ => {}
            }
            let mut datagrams = caller.poll();
            if caller.heard.len() < HEARD_MAX {
                caller.heard.extend_from_slice(&datagrams);
            }
            datagrams.retain(|_| !random.one_in(10));
            let mut from = own;
            if datagrams.is_empty() && !caller.heard.is_empty() {
                let copies = random.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 40]);
                datagrams = vec![changed(&mut random, &caller.heard); copies];
                if random.one_in(2) {
                    from = ([127, 0, 0, 2], 1024 + random.below(9u16)).into();
                }
            }
            let mut driver = exchange.rails[0].driver();
            for bytes in datagrams {
                let bytes = BytesMut::from(&bytes[..]);
                let datagram = Datagram { from, to: Some(target.ip()), ecn: None, bytes };
                passed += u32::from(driver.handle(0, datagram, Instant::now()));
            }
            let (connections, reports) = (driver.connections.len(), driver.reports.len());
            assert!(
                connections <= PENDING_MAX && reports <= REPORTS_MAX,
                "{connections} {reports}"
            );
            driver.strangers.check_bounds();
        }
        assert!(passed > 0, "seed {seed}: none reached a connection");
        exchange.turn();
    }
    exchange.goes_on();
}

const CONNECTIONS_MAX: usize = 4;
const HEARD_MAX: usize = 400;
/// Pending connections at once, as in `handshake`, and the open one.
const PENDING_MAX: usize = 128 + 1;
/// Maximum number of reports, as in `handshake`, and a few of other kinds.
const REPORTS_MAX: usize = 4096 + 16;
