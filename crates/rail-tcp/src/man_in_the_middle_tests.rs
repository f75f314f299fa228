//! A man in the middle can end connections, and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use auth::{Credentials, ENCRYPTS_AT, Encryption, HELLO_LEN, Identity};
use netpath::interfaces;
use proptest::prelude::*;
use rail::{Event, Fault, Post, Rail, Refusal};
use rustls::ClientConnection;
use wire::{Frame, PeerId};

use crate::handshake::PENDING_MAX;
use crate::{TcpConfig, TcpRail};

/// Rank 0, which dials, and rank 1; both send each other numbered frames.
struct EncryptedPair {
    rails: [TcpRail; 2],
    up: [bool; 2],
    /// Ranks in the order in which they took the connection for the link.
    opened: Vec<usize>,
    /// Frames sent and received.
    sent: [u32; 2],
    received: [u32; 2],
    down: Vec<(usize, Fault)>,
    refused: Vec<(usize, Refusal)>,
}

impl EncryptedPair {
    fn new(encryption: [Encryption; 2], secrets: [u8; 2]) -> Self {
        let [one, other] = encryption;
        let rails = [rail(0, one, secrets[0]), rail(1, other, secrets[1])];
        let (opened, down, refused) = (Vec::new(), Vec::new(), Vec::new());
        Self { rails, up: [false; 2], opened, sent: [0; 2], received: [0; 2], down, refused }
    }

    /// Two ranks that encrypt.
    fn private() -> Self {
        Self::new([Encryption::All, Encryption::All], [SECRET; 2])
    }

    /// Address where rank 1 listens.
    fn target(&self) -> SocketAddr {
        self.rails[1].listeners[0].local_addr().unwrap()
    }

    fn connect(&mut self, through: SocketAddr) {
        let address = interfaces::emit(self.rails[1].identity, &[through]);
        self.rails[0].connect(PeerId(1), &address).unwrap();
    }

    fn poll_once(&mut self) {
        for rank in 0..2 {
            let Self { rails, up, opened, received, down, refused, .. } = self;
            rails[rank].poll(&mut |event| match event {
                Event::Up { .. } => {
                    up[rank] = true;
                    opened.push(rank);
                }
                Event::Down { fault, .. } => {
                    up[rank] = false;
                    down.push((rank, fault));
                }
                Event::Frame { bytes, .. } => {
                    assert_eq!(bytes, frame(received[rank]).head, "not what was sent");
                    received[rank] += 1;
                }
                Event::Refused { reason, .. } => refused.push((rank, reason)),
                Event::Cost { .. } | Event::Room { .. } | Event::Hampered { .. } => {}
                other => panic!("{other:?}"),
            });
            if self.up[rank] && self.sent[rank] < self.received[rank] + AHEAD {
                let to = PeerId(1 - rank as u32);
                if self.rails[rank].post(to, &frame(self.sent[rank])) != Post::Full {
                    self.sent[rank] += 1;
                }
            }
        }
        assert!(self.rails[1].pending <= PENDING_MAX);
        assert!((0..2).all(|rank| self.received[rank] <= self.sent[1 - rank]));
    }

    fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            self.poll_once();
            let Self { up, down, refused, .. } = self;
            assert!(Instant::now() < limit, "up: {up:?}, down: {down:?}, refused: {refused:?}");
        }
    }

    /// Checks that frames pass in both directions.
    fn flows(&mut self) {
        let wanted = self.received.map(|count| count + 50);
        self.until(|pair| pair.received.iter().zip(&wanted).all(|(count, wanted)| count >= wanted));
    }
}

fn rail(rank: u32, encryption: Encryption, secret: u8) -> TcpRail {
    let usual = TcpConfig::new(PeerId(rank), JOB, [secret; 32]);
    let interface = Some("127.0.0.1".into());
    let config = TcpConfig { interface, encryption, connect_timeout: PATIENCE, ..usual };
    TcpRail::new(config).unwrap()
}

fn frame(number: u32) -> Frame {
    let body = vec![number as u8; 500 + number as usize % 3000];
    let head = [number.to_le_bytes().to_vec(), body].concat();
    Frame { head, body: None, token: None }
}

/// The man in the middle's handling of a connection's bytes, as they come.
trait Attack: Send + 'static {
    /// Changes bytes after `gone` others in this direction: 0 to the listener, 1 back. Returns false to end the
    /// connection.
    fn handle(&mut self, direction: usize, gone: usize, bytes: &mut Vec<u8>) -> bool;
}

impl<F: FnMut(usize, usize, &mut Vec<u8>) -> bool + Send + 'static> Attack for F {
    fn handle(&mut self, direction: usize, gone: usize, bytes: &mut Vec<u8>) -> bool {
        self(direction, gone, bytes)
    }
}

/// Carries the first connection to `target` with attack and blocks further ones; returns the listen address.
fn man_in_the_middle(target: SocketAddr, attack: impl Attack) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(target).unwrap();
        carry([near, far], attack);
    });
    address
}

fn carry(ends: [TcpStream; 2], mut attack: impl Attack) {
    for end in &ends {
        end.set_nonblocking(true).unwrap();
        end.set_nodelay(true).unwrap();
    }
    let limit = Instant::now() + Duration::from_secs(60);
    let mut gone = [0; 2];
    while Instant::now() < limit {
        let mut is_idle = true;
        for direction in 0..2 {
            let mut room = vec![0; CARRIED_MAX];
            match (&ends[direction]).read(&mut room) {
                Ok(0) => return,
                Ok(count) => {
                    is_idle = false;
                    room.truncate(count);
                    let goes_on = attack.handle(direction, gone[direction], &mut room);
                    gone[direction] += count;
                    if !(write_all(&ends[1 - direction], &room) && goes_on) {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        if is_idle {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

fn write_all(mut to: &TcpStream, mut bytes: &[u8]) -> bool {
    let limit = Instant::now() + Duration::from_secs(10);
    while !bytes.is_empty() && Instant::now() < limit {
        match to.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(_) => return false,
        }
    }
    bytes.is_empty()
}

/// Keeps a copy of all that goes to the listener.
fn recorder() -> (impl Attack, Receiver<Vec<u8>>) {
    let (record, recorded): (Sender<Vec<u8>>, _) = channel();
    let attack = move |direction, _: usize, bytes: &mut Vec<u8>| {
        direction == 1 || record.send(bytes.clone()).is_ok()
    };
    (attack, recorded)
}

#[test]
fn a_passive_listener_sees_only_the_hello() {
    let mut pair = EncryptedPair::private();
    let (attack, recorded) = recorder();
    pair.connect(man_in_the_middle(pair.target(), attack));
    pair.flows();
    let bytes: Vec<u8> = recorded.try_iter().flatten().collect();
    assert_eq!(bytes[ENCRYPTS_AT], 1, "the hello says that it encrypts");
    assert!(bytes.len() > 50 * 500);
    assert!(!bytes.windows(32).any(|window| window == [20; 32]), "a frame in clear");
    assert_eq!(pair.refused, []);
    assert_eq!(pair.down, []);
}

#[test]
fn recorded_bytes_cannot_be_replayed() {
    let mut pair = EncryptedPair::private();
    let (attack, recorded) = recorder();
    pair.connect(man_in_the_middle(pair.target(), attack));
    pair.flows();
    let bytes: Vec<u8> = recorded.try_iter().flatten().collect();
    let rank = pair.rails[0].keys.own().rank;
    pair.rails[1].disconnect(rank);
    pair.until(|pair| pair.down.iter().any(|(rank, _)| *rank == 0));
    let received = pair.received[1];
    let mut stream = TcpStream::connect(pair.target()).unwrap();
    // The connection may be closed before all is sent.
    let _ = stream.write_all(&bytes);
    pair.until(|pair| !pair.refused.is_empty());
    assert!(matches!(pair.refused[..], [(1, Refusal::Altered | Refusal::Protocol)]));
    assert_eq!(pair.received[1], received);
    assert!(pair.rails[1].links.get(rank).is_none());
}

#[test]
fn a_connection_cut_short_is_lost_and_never_closed() {
    for len in [1, HELLO_LEN, HELLO_LEN + 50, 600, 5000, 70_000] {
        let mut pair = EncryptedPair::private();
        let cut = move |direction, gone: usize, bytes: &mut Vec<u8>| {
            bytes.truncate(if direction == 0 { len - gone.min(len) } else { usize::MAX });
            direction == 1 || gone + bytes.len() < len
        };
        pair.connect(man_in_the_middle(pair.target(), cut));
        pair.until(|pair| !pair.down.is_empty() || pair.rails[1].pending > 0);
        pair.until(|pair| pair.rails[1].sockets.is_empty());
        assert!(
            pair.down.iter().all(|(_, fault)| matches!(fault, Fault::Lost(_))),
            "{:?}",
            pair.down
        );
    }
}

/// Carries two connections to `target`; after the handshakes, the bytes of one dialler go to the other's connection.
fn splice(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let pairs = [(); 2].map(|()| {
            let (near, _) = listener.accept().unwrap();
            (near, TcpStream::connect(target).unwrap())
        });
        let others = [1, 0].map(|other: usize| pairs[other].1.try_clone().unwrap());
        for ((near, far), other) in pairs.into_iter().zip(others) {
            let swap = move |direction, gone: usize, bytes: &mut Vec<u8>| {
                if direction == 0 && gone > SPLICED_AFTER {
                    let _ = write_all(&other, bytes);
                    bytes.clear();
                }
                true
            };
            thread::spawn(move || carry([near, far], swap));
        }
    });
    address
}

/// The lower rank sends behind its proof. The higher one waits for the verdict, for its connection may lose.
#[test]
fn only_who_is_sure_of_the_verdict_does_not_wait_for_it() {
    for dialler in [0, 1] {
        let mut pair = EncryptedPair::private();
        let other = 1 - dialler;
        let target = pair.rails[other].listeners[0].local_addr().unwrap();
        let address = interfaces::emit(pair.rails[other].identity, &[target]);
        pair.rails[dialler].connect(PeerId(other as u32), &address).unwrap();
        pair.flows();
        assert_eq!((&pair.opened[..], pair.down.len()), (&[0, 1][..], 0));
    }
}

#[test]
fn a_link_that_was_taken_before_its_verdict_can_be_lost_and_opens_again() {
    let mut pair = EncryptedPair::private();
    // What follows the acceptor's first flight of TLS does not arrive.
    let cut = |direction, gone: usize, bytes: &mut Vec<u8>| {
        let is_verdict = direction == 1 && gone > 0;
        bytes.truncate(if is_verdict { 0 } else { usize::MAX });
        !is_verdict
    };
    pair.connect(man_in_the_middle(pair.target(), cut));
    pair.until(|pair| pair.down.iter().any(|(rank, _)| *rank == 0));
    assert_eq!((pair.opened[0], pair.received[0]), (0, 0));
    pair.until(|pair| pair.rails[1].sockets.is_empty());
    // The engine would send again what has not arrived.
    pair.sent = [pair.received[1], pair.received[0]];
    pair.connect(pair.target());
    pair.flows();
}

#[test]
fn connections_cannot_be_spliced() {
    let mut pair = EncryptedPair::private();
    let mut third = rail(2, Encryption::All, SECRET);
    let address = interfaces::emit(pair.rails[1].identity, &[splice(pair.target())]);
    pair.rails[0].connect(PeerId(1), &address).unwrap();
    third.connect(PeerId(1), &address).unwrap();
    let (mut rails, mut from_third, mut lost) = (pair.rails, 0, 0);
    let limit = Instant::now() + Duration::from_secs(30);
    while lost == 0 {
        for dialler in [&mut rails[0], &mut third] {
            let mut up = dialler.links.open_key(PeerId(1)).is_some();
            dialler.poll(&mut |event| up &= !matches!(event, Event::Down { .. }));
            let next = &mut pair.sent[usize::from(dialler.keys.own().rank.0 == 2)];
            if up && dialler.post(PeerId(1), &frame(*next)) != Post::Full {
                *next += 1;
            }
        }
        rails[1].poll(&mut |event| match event {
            Event::Down { fault, .. } => {
                assert!(matches!(fault, Fault::Lost(_)), "{fault:?}");
                lost += 1;
            }
            Event::Frame { peer, bytes } => {
                let count = if peer == PeerId(2) { &mut from_third } else { &mut pair.received[1] };
                assert_eq!(bytes, frame(*count).head);
                *count += 1;
            }
            // A connection that is still in its handshake is refused and not lost. Its bytes are not under its keys,
            // or are no hello.
            Event::Refused { reason: Refusal::Altered | Refusal::Protocol, .. } => lost += 1,
            Event::Up { .. } | Event::Cost { .. } | Event::Hampered { .. } => {}
            other => panic!("{other:?}"),
        });
        assert!(Instant::now() < limit);
    }
    let passed = from_third.max(pair.received[1]) as usize;
    assert!(passed * 500 < SPLICED_AFTER + CARRIED_MAX, "{passed} frames passed by the splice");
}

#[test]
fn processes_with_different_settings_refuse_each_other() {
    for (dials, listens, reason) in [
        (Encryption::None, Encryption::All, Refusal::Clear),
        (Encryption::All, Encryption::None, Refusal::Encrypted),
    ] {
        let mut pair = EncryptedPair::new([dials, listens], [SECRET; 2]);
        pair.connect(pair.target());
        pair.until(|pair| !pair.refused.is_empty());
        assert_eq!(pair.refused, [(1, reason)]);
        assert_eq!((pair.up, pair.received), ([false; 2], [0; 2]));
    }
}

#[test]
fn encryption_cannot_be_stripped() {
    // The hello loses its encryption flag; then all that follows it is withheld, too.
    for keeps_back in [false, true] {
        let mut pair = EncryptedPair::private();
        let strip = move |direction, gone: usize, bytes: &mut Vec<u8>| {
            if direction == 0 && gone < HELLO_LEN {
                bytes[ENCRYPTS_AT - gone] = 0;
                bytes.truncate(if keeps_back { HELLO_LEN - gone } else { usize::MAX });
            }
            true
        };
        pair.connect(man_in_the_middle(pair.target(), strip));
        pair.until(|pair| !pair.refused.is_empty());
        assert_eq!(pair.refused, [(1, Refusal::Clear)]);
        assert_eq!((pair.up, pair.received), ([false; 2], [0; 2]));
    }
    // A changed flag cannot make them believe that the other wants encryption.
    let mut pair = EncryptedPair::new([Encryption::None, Encryption::None], [SECRET; 2]);
    let flag = |direction, gone: usize, bytes: &mut Vec<u8>| {
        if direction == 0 && gone < HELLO_LEN {
            bytes[ENCRYPTS_AT - gone] = 1;
        }
        true
    };
    pair.connect(man_in_the_middle(pair.target(), flag));
    pair.until(|pair| !pair.refused.is_empty());
    assert_eq!(pair.refused, [(1, Refusal::Encrypted)]);
    assert_eq!(pair.up, [false; 2]);
}

#[test]
fn another_secret_is_refused_by_the_acceptor() {
    let mut pair = EncryptedPair::new([Encryption::All, Encryption::All], [SECRET, SECRET + 1]);
    pair.connect(pair.target());
    pair.until(|pair| !pair.refused.is_empty());
    assert_eq!(pair.refused, [(1, Refusal::Secret)]);
    assert_eq!(pair.up, [false; 2]);
}

#[test]
fn a_dialler_with_another_secret_gives_up_with_one_line() {
    for encryption in [Encryption::All, Encryption::None] {
        let mut pair = EncryptedPair::new([encryption.clone(), encryption], [SECRET, SECRET + 1]);
        pair.connect(pair.target());
        pair.until(|pair| !pair.down.is_empty());
        let [(0, Fault::Unreachable(text))] = &pair.down[..] else { panic!("{:?}", pair.down) };
        assert!(text.contains("no process of this job"), "{text}");
        assert!(text.contains("does not know the secret that the two must share"), "{text}");
        assert!(pair.refused.len() <= 4, "{:?}", pair.refused);
    }
}

#[test]
fn an_older_version_of_tls_is_refused() {
    let mut pair = EncryptedPair::private();
    let mut stream = TcpStream::connect(pair.target()).unwrap();
    let hello = stranger().hello(PeerId(1), true, 0, [1; 32]);
    // A hello of TLS 1.2, by its fields: version, random, no session, one cipher, no compression.
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0xc0, 0x2b], &[1, 0], &[0, 0]].concat();
    let len = body.len() as u8;
    let record = [&[22, 3, 1, 0, len + 4, 1, 0, 0, len][..], &body].concat();
    stream.write_all(&[&hello[..], &record].concat()).unwrap();
    pair.until(|pair| !pair.refused.is_empty());
    assert_eq!(pair.refused, [(1, Refusal::Protocol)]);
}

#[test]
fn thousands_of_half_open_handshakes_keep_no_peer_out() {
    let mut pair = EncryptedPair::private();
    pair.connect(pair.target());
    pair.flows();
    let target = pair.target();
    let many = thread::spawn(move || {
        let identity = Identity::of(&[99; 32].into(), JOB);
        let mut tls = ClientConnection::new(identity.client(), Identity::name()).unwrap();
        let mut words = stranger().hello(PeerId(1), true, 0, [1; 32]).to_vec();
        tls.write_tls(&mut words).unwrap();
        let mut held = std::collections::VecDeque::new();
        for number in 0..2000usize {
            let mut stream = TcpStream::connect(target).unwrap();
            // Some stop in the middle of a message. The connection may be closed before all is sent.
            let _ = stream.write_all(&words[..words.len() - number % 3 * 40]);
            held.push_back(stream);
            if held.len() > 2 * PENDING_MAX {
                held.pop_front();
            }
        }
        for stream in &held {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    while !many.is_finished() {
        pair.flows();
    }
    many.join().unwrap();
    pair.until(|pair| pair.rails[1].pending == 0);
    pair.flows();
    assert_eq!(pair.down, []);
    assert!(pair.rails[1].links.open_key(PeerId(0)).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testing::cases(48), failure_persistence: None, ..ProptestConfig::default() })]

    /// Flips any bit in the handshake or behind it, in either direction: no frame comes that was not sent. The
    /// connection ends, unless the bit had no meaning, in a record's version.
    #[test]
    fn no_bit_can_be_changed(
        direction in 0..2usize,
        at in prop_oneof![0..HELLO_LEN, HELLO_LEN..1200usize, 1200..100_000usize],
        bit in 0..8u32,
    ) {
        let mut pair = EncryptedPair::private();
        let flip = move |this, gone: usize, bytes: &mut Vec<u8>| {
            if this == direction && (gone..gone + bytes.len()).contains(&at) {
                bytes[at - gone] ^= 1 << bit;
            }
            true
        };
        pair.connect(man_in_the_middle(pair.target(), flip));
        pair.until(|pair| !(pair.rails[1].sockets.is_empty() && pair.refused.is_empty()));
        let is_past = |pair: &EncryptedPair| pair.received.iter().all(|count| *count > 250);
        pair.until(|pair| pair.rails[1].sockets.is_empty() || is_past(pair));
        prop_assert!(pair.down.iter().all(|(_, fault)| matches!(fault, Fault::Lost(_))), "{:?}", pair.down);
    }
}

/// A process that knows the job's number, and not its secret.
fn stranger() -> Credentials {
    Credentials { rank: PeerId(2), job: JOB, secret: [0; 32].into() }
}

const JOB: u64 = 78;
const SECRET: u8 = 6;
const PATIENCE: Duration = Duration::from_secs(3);
/// Frames sent before the first comes back.
const AHEAD: u32 = 40;
/// Bytes carried at once.
const CARRIED_MAX: usize = 16 << 10;
/// Upper bound of a handshake's bytes in one direction.
const SPLICED_AFTER: usize = 2000;
