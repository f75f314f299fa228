//! A flood of datagrams over UDP. An open connection and newcomers go on, compared with a flood to another port, which
//! costs the machine as much.
//!
//! `CANELE_TEST_BUDGET=10` measures ten times as long. The figures are printed.

#[path = "../job/mod.rs"]
mod job;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use auth::Identity;
use job::{JOB, PATIENCE, SECRET, identity, rail};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionId, Endpoint, EndpointConfig};
use rail::{Event, Post, Rail};
use rail_quic::{QuicRail, TrunkConfig};
use wire::{Frame, PeerId};

/// Datagrams that strangers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloodKind {
    /// Random bytes, as of open connections.
    Noise,
    /// First packets with another key.
    Initials,
    /// A first packet of the job, overheard and repeated.
    Repeated,
}

/// Ends of the connections.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Ranks,
    Gateways,
}

/// The file has one test, so that nothing else runs meanwhile.
#[test]
fn a_flood_of_strangers_keeps_out_neither_peers_nor_newcomers() {
    for kind in [FloodKind::Noise, FloodKind::Initials, FloodKind::Repeated] {
        compare(Ends::Ranks, kind, 1000);
    }
    compare(Ends::Ranks, FloodKind::Initials, 60_000);
    compare(Ends::Gateways, FloodKind::Initials, 1000);
}

/// Compares an exchange with a flood to its port, and to another.
fn compare(ends: Ends, kind: FloodKind, frame_len: usize) {
    let mut exchange = FloodedServer::new(ends, frame_len);
    // Nobody reads here.
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = elsewhere.local_addr().unwrap();
    let mut served = [Served::default(), Served::default()];
    for _ in 0..3 {
        for (served, target) in served.iter_mut().zip([other, exchange.target]) {
            let flood = Flood::start(kind, target);
            exchange.run(served);
            served.sent += flood.end();
        }
    }
    let [control, flooded] = served;
    println!("{ends:?} {frame_len} B, {kind:?} elsewhere: {control:?}");
    println!("{ends:?} {frame_len} B, {kind:?} to the port: {flooded:?}");
    let text = format!("{kind:?}: {flooded:?}, elsewhere {control:?}");
    assert!(10 * flooded.frames >= control.frames, "{text}");
    assert!(10 * flooded.newcomers.len() >= control.newcomers.len(), "{text}");
}

/// Work of a server in some time.
#[derive(Default)]
struct Served {
    time: Duration,
    frames: u64,
    /// Time of each newcomer until it was connected.
    newcomers: Vec<Duration>,
    /// Datagrams of the flood.
    sent: u64,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut times = self.newcomers.clone();
        times.sort();
        let ms = |part: f64| {
            let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            times.get(at).map_or(f64::INFINITY, |time| time.as_secs_f64() * 1e3)
        };
        let per_s = |count: u64| count as f64 / self.time.as_secs_f64();
        let (frames, sent) = (per_s(self.frames), per_s(self.sent));
        let (median, late, last) = (ms(0.5), ms(0.9), ms(1.0));
        write!(
            f,
            "{sent:.0} datagrams/s, {frames:.0} frames/s, {} newcomers, ms {median:.1} {late:.1} {last:.1}",
            times.len()
        )
    }
}

/// A server, its peer, with which it exchanges frames without end, and newcomers one after the other.
struct FloodedServer {
    ends: Ends,
    server: QuicRail,
    peer: QuicRail,
    target: SocketAddr,
    frame: Frame,
    /// Frames that wait for room, of the server and of the peer.
    waiting: [usize; 2],
    newcomer: Option<(QuicRail, Instant)>,
    number: u32,
}

impl FloodedServer {
    fn new(ends: Ends, frame_len: usize) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (server, target) = match ends {
            Ends::Ranks => {
                let rail = rail(0);
                let port = u16::from_le_bytes(*rail.address().last_chunk().unwrap());
                (rail, ([127, 0, 0, 1], port).into())
            }
            Ends::Gateways => {
                let target = socket.local_addr().unwrap();
                (gateway(0, socket), target)
            }
        };
        let peer = ends.client(1);
        let frame = Frame { head: vec![7; frame_len], body: None, token: None };
        let (newcomer, number) = (None, 1);
        let mut exchange =
            Self { ends, server, peer, target, frame, waiting: [0; 2], newcomer, number };
        exchange.ends.connect(&mut exchange.peer, &exchange.server, target);
        let limit = Instant::now() + PATIENCE;
        let mut is_up = false;
        while !is_up {
            exchange.server.poll(&mut |_| {});
            exchange.peer.poll(&mut |event| is_up |= matches!(event, Event::Up { .. }));
            assert!(Instant::now() < limit, "no connection");
        }
        exchange.waiting[1] = if frame_len > 10_000 { 8 } else { 1 };
        exchange
    }

    /// Exchanges frames and lets newcomers connect, for a while.
    fn run(&mut self, served: &mut Served) {
        let begin = Instant::now();
        let time = PHASE * testing::budget() as u32;
        while begin.elapsed() < time {
            self.poll(served);
        }
        // The one that is on the way counts with the time that it took up to now, if that is long.
        if let Some((_, since)) = self.newcomer.take()
            && since.elapsed() > time / 2
        {
            served.newcomers.push(since.elapsed());
        }
        served.time += begin.elapsed();
    }

    fn poll(&mut self, served: &mut Served) {
        let Self { server, peer, frame, waiting, .. } = self;
        for (end, rail) in [server, peer].into_iter().enumerate() {
            let other = PeerId(1 - end as u32);
            let mut arrived = 0;
            rail.poll(&mut |event| match event {
                Event::Frame { .. } => arrived += 1,
                Event::Hampered { reason } => println!("{reason}"),
                Event::Down { peer, fault } if peer == other => panic!("{peer:?}: {fault:?}"),
                _ => {}
            });
            waiting[end] += arrived;
            served.frames += arrived as u64;
            while waiting[end] > 0 && rail.post(other, frame) == Post::Done {
                waiting[end] -= 1;
            }
        }
        let Some((rail, since)) = &mut self.newcomer else {
            self.number += 1;
            let mut rail = self.ends.client(self.number);
            self.ends.connect(&mut rail, &self.server, self.target);
            self.newcomer = Some((rail, Instant::now()));
            return;
        };
        let mut is_up = false;
        rail.poll(&mut |event| match event {
            Event::Up { .. } => is_up = true,
            Event::Down { fault, .. } => panic!("a newcomer: {fault:?}"),
            _ => {}
        });
        if is_up {
            served.newcomers.push(since.elapsed());
            self.newcomer = None;
        }
    }
}

impl Ends {
    fn client(self, number: u32) -> QuicRail {
        match self {
            Self::Ranks => rail(number),
            Self::Gateways => gateway(number, UdpSocket::bind("127.0.0.1:0").unwrap()),
        }
    }

    fn connect(self, client: &mut QuicRail, server: &QuicRail, target: SocketAddr) {
        match self {
            Self::Ranks => client.connect(PeerId(0), &server.address()).unwrap(),
            Self::Gateways => client.call(PeerId(0), target),
        }
    }
}

fn gateway(number: u32, socket: UdpSocket) -> QuicRail {
    QuicRail::between_gateways(TrunkConfig {
        own: PeerId(number),
        job: JOB,
        identity: identity(),
        sockets: vec![socket],
        connect_timeout: PATIENCE,
        costs: Arc::new(cost::NoStore),
    })
    .unwrap()
}

/// A thread that sends datagrams as fast as it can.
struct Flood {
    stops: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl Flood {
    fn start(kind: FloodKind, target: SocketAddr) -> Self {
        let (stops, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let packets = packets(kind, target);
        let sockets: Vec<_> = (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let (end, count) = (Arc::clone(&stops), Arc::clone(&sent));
        let thread = thread::spawn(move || {
            let mut pairs = packets.iter().cycle().zip(sockets.iter().cycle());
            while !end.load(Ordering::Relaxed) {
                for (packet, socket) in pairs.by_ref().take(32) {
                    count.fetch_add(
                        socket.send_to(packet, target).is_ok().into(),
                        Ordering::Relaxed,
                    );
                }
            }
        });
        Self { stops, sent, thread }
    }

    /// Ends the flood; returns the number of datagrams.
    fn end(self) -> u64 {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.sent.load(Ordering::Relaxed)
    }
}

fn packets(kind: FloodKind, target: SocketAddr) -> Vec<Vec<u8>> {
    match kind {
        FloodKind::Noise => {
            let mut random = testing::Random::new(5);
            let mut packet = || {
                let mut bytes: Vec<u8> = (0..1200).map(|_| random.next() as u8).collect();
                bytes[0] = 0x40 | bytes[0] & 0x3f;
                bytes
            };
            (0..256).map(|_| packet()).collect()
        }
        FloodKind::Initials => initials(OTHER_SECRET, target, 256),
        FloodKind::Repeated => initials(SECRET, target, 1),
    }
}

/// Returns first packets of connections that a process with the secret opens.
fn initials(secret: [u8; 32], target: SocketAddr, count: usize) -> Vec<Vec<u8>> {
    let identity = Identity::of(&secret.into(), JOB);
    let client = QuicClientConfig::try_from(identity.client()).unwrap();
    let mut config = ClientConfig::new(Arc::new(client));
    let (ids, number) = (identity.first_ids(), AtomicU64::new(1 << 20));
    config.initial_dst_cid_provider(Arc::new(move || {
        let nonce = number.fetch_add(1, Ordering::Relaxed);
        ConnectionId::new(&ids.make(nonce.to_le_bytes()))
    }));
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

const OTHER_SECRET: [u8; 32] = [4; 32];
/// Time of one exchange.
const PHASE: Duration = Duration::from_millis(700);
