//! Tests with unauthenticated peers: the exchange between the job's ranks must go on.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::Identity;
use connect::Patience;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, Endpoint, EndpointConfig};
use rail::{Event, Fault, Post, Rail, Refusal};
use wire::{Frame, PeerId};

use crate::{QuicConfig, QuicRail};

/// Two ranks that exchange frames without end, and what rank 0 sees besides.
pub(super) struct Exchange {
    pub rails: [QuicRail; 2],
    up: [bool; 2],
    rounds: u32,
    refused: Vec<Refusal>,
}

fn rail(rank: u32, secret: u8, job: u64) -> QuicRail {
    patient_rail(rank, secret, job, PATIENCE)
}

fn patient_rail(rank: u32, secret: u8, job: u64, connect_timeout: Duration) -> QuicRail {
    QuicRail::new(QuicConfig {
        rank: PeerId(rank),
        job,
        identity: Identity::of(&[secret; 32].into(), job),
        interface: Some("127.0.0.1".into()),
        connect_timeout,
        silence: Patience::default().silence(),
        passes: false,
        costs: std::sync::Arc::new(cost::NoStore),
    })
    .unwrap()
}

impl Exchange {
    pub fn new() -> Self {
        let rails = [0, 1].map(|rank| rail(rank, SECRET, JOB));
        let mut exchange = Self { rails, up: [false; 2], rounds: 0, refused: Vec::new() };
        let address = exchange.rails[1].address();
        exchange.rails[0].connect(PeerId(1), &address).unwrap();
        exchange.until("up", |exchange| exchange.up == [true; 2]);
        exchange.send(0, 0);
        exchange
    }

    fn send(&mut self, from: usize, number: u32) {
        let head = [number.to_le_bytes().to_vec(), vec![7; number as usize % 5000]].concat();
        let frame = Frame { head, body: None, token: None };
        assert_eq!(self.rails[from].post(PeerId(1 - from as u32), &frame), Post::Done);
    }

    pub fn turn(&mut self) {
        for rank in 0..2 {
            let mut arrived = None;
            let Self { rails, up, refused, .. } = self;
            rails[rank].poll(&mut |event| match event {
                Event::Up { .. } => up[rank] = true,
                Event::Frame { peer, bytes } => {
                    assert_eq!(peer, PeerId(1 - rank as u32));
                    let number = u32::from_le_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(bytes.len(), 4 + number as usize % 5000);
                    assert!(arrived.replace(number).is_none(), "one frame is under way");
                }
                Event::Refused { reason, .. } => {
                    assert_eq!(rank, 0);
                    refused.push(reason);
                }
                Event::Cost { .. } | Event::Hampered { .. } => {}
                // Those that come and go.
                Event::Down { peer, .. } if peer > PeerId(1) => {}
                other => panic!("{other:?}"),
            });
            if let Some(number) = arrived {
                self.rounds += 1;
                self.send(rank, number + 1);
            }
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            self.turn();
            assert!(Instant::now() < limit, "not in 30 s: {what}; refused: {:?}", self.refused);
        }
    }

    pub fn goes_on(&mut self) {
        let rounds = self.rounds + 200;
        self.until("the exchange goes on", |exchange| exchange.rounds >= rounds);
    }

    /// Returns how the attempt of a process outside the job to reach rank 0 ends.
    fn fate_of(&mut self, mut stranger: QuicRail) -> Fault {
        let address = self.rails[0].address();
        stranger.connect(PeerId(0), &address).unwrap();
        let mut fate = None;
        self.until("the stranger gives up", |_| {
            stranger.poll(&mut |event| match event {
                Event::Down { fault, .. } => fate = Some(fault),
                other => panic!("{other:?}"),
            });
            fate.is_some()
        });
        fate.expect("known by now")
    }
}

#[test]
fn a_computing_rank_without_peers_is_reached() {
    let mut rails = [0, 1].map(|rank| rail(rank, SECRET, JOB));
    let address = rails[1].address();
    rails[0].connect(PeerId(1), &address).unwrap();
    let limit = Instant::now() + Duration::from_secs(30);
    let mut is_up = false;
    while !is_up {
        rails[0].poll(&mut |event| match event {
            Event::Up { .. } => is_up = true,
            Event::Cost { .. } | Event::Hampered { .. } => {}
            other => panic!("{other:?}"),
        });
        assert!(Instant::now() < limit, "nobody answers");
    }
}

#[test]
fn a_peer_without_the_jobs_key_is_refused_and_reported() {
    let mut exchange = Exchange::new();
    let fate = exchange.fate_of(rail(2, SECRET + 1, JOB));
    assert!(matches!(fate, Fault::Unreachable(_)), "{fate:?}");
    assert!(exchange.refused.contains(&Refusal::Secret), "{:?}", exchange.refused);
    exchange.goes_on();
}

#[test]
fn noise_of_all_lengths_is_ignored() {
    let mut exchange = Exchange::new();
    let target = exchange.rails[0].driver().sockets[0].address;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut word = 7u64;
    for len in 0..1400 {
        let noise: Vec<u8> = (0..len)
            .map(|_| {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (word >> 33) as u8
            })
            .collect();
        // The socket may be full for a moment: then this one is lost, as on a network.
        let _ = socket.send_to(&noise, target);
        if len % 50 == 0 {
            exchange.turn();
        }
    }
    exchange.goes_on();
    assert!(exchange.refused.len() < 1400);
}

#[test]
fn hundreds_of_abandoned_connections_leave_room_for_the_job() {
    let mut exchange = Exchange::new();
    let target = exchange.rails[0].address();
    // Each begins to introduce itself, and goes away.
    for _ in 0..8 {
        // To make rails, and to end them, takes long on a busy machine, and the ranks are not to fall silent.
        let mut strangers: Vec<QuicRail> = Vec::new();
        for rank in 2..42 {
            strangers.push(rail(rank, SECRET, JOB));
            exchange.turn();
        }
        for stranger in &mut strangers {
            stranger.connect(PeerId(0), &target).unwrap();
        }
        for stranger in strangers {
            exchange.turn();
            drop(stranger);
        }
    }
    exchange.goes_on();
    let patience = Duration::from_secs(30);
    let mut late = patient_rail(50, SECRET, JOB, patience);
    late.connect(PeerId(0), &target).unwrap();
    // It is let in, if only after its address is proved.
    let limit = Instant::now() + patience;
    let mut is_up = false;
    while !is_up {
        late.poll(&mut |event| is_up |= matches!(event, Event::Up { .. }));
        exchange.rails[0].poll(&mut |_| {});
        assert!(Instant::now() < limit, "a peer of the job is kept out");
    }
}

/// First packets of connections that nobody of the job opens.
fn strange_packets(target: std::net::SocketAddr, count: usize) -> Vec<Vec<u8>> {
    let client =
        QuicClientConfig::try_from(Identity::of(&[SECRET + 1; 32].into(), JOB).client()).unwrap();
    let config = ClientConfig::new(Arc::new(client));
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
    let mut packet = || {
        let now = Instant::now();
        let (_, mut one) = endpoint.connect(now, config.clone(), target, "canele").unwrap();
        let mut bytes = Vec::new();
        assert!(one.poll_transmit(now, 1, &mut bytes).is_some());
        bytes
    };
    (0..count).map(|_| packet()).collect()
}

#[test]
fn a_flood_of_first_packets_becomes_no_work_and_keeps_no_peer_out() {
    let mut exchange = Exchange::new();
    let target = exchange.rails[0].driver().sockets[0].address;
    let packets = strange_packets(target, 500);
    let sockets: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let address = exchange.rails[0].address();
    let mut late = patient_rail(50, SECRET, JOB, Duration::from_secs(30));
    let (limit, mut is_up, mut sent) = (Instant::now() + Duration::from_secs(30), false, 0);
    while !is_up || sent < 20_000 {
        for packet in packets.iter().cycle().skip(sent % packets.len()).take(25) {
            let _ = sockets[sent % sockets.len()].send_to(packet, target);
            sent += 1;
        }
        if sent == 5000 {
            late.connect(PeerId(0), &address).unwrap();
        }
        exchange.turn();
        late.poll(&mut |event| is_up |= matches!(event, Event::Up { .. }));
        let pending = exchange.rails[0].driver().connections.len();
        assert!(pending <= PENDING_MAX, "{pending} connections");
        assert!(Instant::now() < limit, "{sent} sent, {is_up}");
    }
    exchange.goes_on();
}

/// Connections of strangers at once, as in `handshake`, and three more.
const PENDING_MAX: usize = 32 + 3;
const PATIENCE: Duration = Duration::from_secs(4);
/// Byte of the job's secret, and number of the job.
pub(super) const SECRET: u8 = 3;
pub(super) const JOB: u64 = 9;
