//! Attacks by unauthenticated or malicious peers do not disturb the traffic of others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use auth::{
    ANSWER_LEN, Binding, Credentials, ENCRYPTS_AT, HELLO_LEN, PROOF_LEN, VERDICT_LEN, verdict,
};
use connect::version_word;
use proptest::prelude::*;
use rail::{Event, Fault, Post, Rail, Refusal};
use wire::{Frame, PROTOCOL_VERSION, PeerId};

use crate::handshake::PENDING_MAX;
use crate::{TcpConfig, TcpRail};

/// Two ranks that exchange frames without end, and the other events of rank 0.
struct Exchange {
    rails: [TcpRail; 2],
    up: [bool; 2],
    /// Number of frames exchanged.
    rounds: u32,
    refused: Vec<Refusal>,
    /// Events of rank 2, which the tests play.
    malicious: Vec<String>,
}

impl Exchange {
    fn new(patience: Duration) -> Self {
        let rails = [0, 1].map(|rank| {
            let interface = Some("127.0.0.1".into());
            let rank = PeerId(rank);
            let connect_timeout = patience;
            let usual = TcpConfig::new(rank, JOB, SECRET);
            TcpRail::new(TcpConfig { interface, connect_timeout, ..usual }).unwrap()
        });
        let (refused, malicious) = (Vec::new(), Vec::new());
        let mut exchange = Self { rails, up: [false; 2], rounds: 0, refused, malicious };
        let address = exchange.rails[1].address();
        exchange.rails[0].connect(PeerId(1), &address).unwrap();
        exchange.until(|exchange| exchange.up == [true; 2]);
        exchange.send(0, 0);
        exchange.until(|exchange| exchange.rounds > 0);
        exchange
    }

    /// Address where rank 0 listens.
    fn target(&self) -> SocketAddr {
        self.rails[0].listeners[0].local_addr().unwrap()
    }

    fn send(&mut self, from: usize, number: u32) {
        let head = [number.to_le_bytes().to_vec(), vec![7; number as usize % 5000]].concat();
        let frame = Frame { head, body: None, token: None };
        let to = PeerId(1 - from as u32);
        assert_eq!(self.rails[from].post(to, &frame), Post::Done);
    }

    fn poll_once(&mut self) {
        assert!(self.rails[0].pending <= PENDING_MAX);
        for rank in 0..2 {
            let mut arrived = None;
            let Self { rails, up, refused, malicious, .. } = self;
            rails[rank].poll(&mut |event| match event {
                Event::Frame { peer: PeerId(2), bytes } => {
                    malicious.push(format!("frame of {}", bytes.len()));
                }
                Event::Up { peer: PeerId(2), .. } => malicious.push("up".into()),
                Event::Down { peer: PeerId(2), fault } => malicious.push(match fault {
                    Fault::Misbehaved(_) => "misbehaved".into(),
                    Fault::Lost(_) => "lost".into(),
                    other => format!("{other:?}"),
                }),
                Event::Up { .. } => up[rank] = true,
                Event::Frame { bytes, .. } => {
                    let number = u32::from_le_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(bytes.len(), 4 + number as usize % 5000);
                    assert!(arrived.replace(number).is_none(), "one frame is under way");
                }
                // The rest of a long frame is discarded.
                Event::Begun { peer: PeerId(2), taken, .. } => *taken = true,
                Event::Rest { peer: PeerId(2), .. } => {}
                Event::Refused { reason, .. } => {
                    assert_eq!(rank, 0);
                    refused.push(reason);
                }
                Event::Cost { .. } | Event::Hampered { .. } => {}
                other => panic!("{other:?}"),
            });
            if let Some(number) = arrived {
                self.rounds += 1;
                self.send(rank, number + 1);
            }
        }
    }

    fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            self.poll_once();
            assert!(Instant::now() < limit, "refused so far: {:?}", self.refused);
        }
    }

    /// Checks that the exchange goes on and that no other connection is left.
    fn check_unharmed(&mut self) {
        let rounds = self.rounds;
        self.until(|exchange| {
            exchange.rounds >= rounds + 20 && exchange.rails[0].sockets.len() == 1
        });
        assert_eq!(self.rails[0].pending, 0);
        assert!(self.rails[0].links.open_key(PeerId(1)).is_some());
    }

    /// Runs `attack` beside the exchange, to its end.
    fn attack_with(&mut self, attack: impl FnOnce(SocketAddr) + Send + 'static) {
        let target = self.target();
        let attacker = thread::spawn(move || attack(target));
        self.until(|_| attacker.is_finished());
        attacker.join().unwrap();
        self.check_unharmed();
    }

    fn count(&self, reason: Refusal) -> usize {
        self.refused.iter().filter(|one| **one == reason).count()
    }
}

fn credentials(rank: u32) -> Credentials {
    Credentials { rank: PeerId(rank), job: JOB, secret: SECRET.into() }
}

/// Sends `bytes` and waits until the connection is closed.
fn send_bytes(target: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(target).unwrap();
    // The connection may be closed before all is sent.
    let _ = stream.write_all(bytes);
    wait_for_end(&mut stream);
}

fn wait_for_end(stream: &mut TcpStream) -> usize {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut sink = [0; 4096];
    let mut received = 0;
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return received,
            Ok(count) => received += count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return received,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}

/// Returns a connection on which rank 2 has authenticated, and the bytes that it sent.
fn prove(target: SocketAddr) -> (TcpStream, Vec<u8>) {
    let own = credentials(2);
    let mut stream = TcpStream::connect(target).unwrap();
    let hello = own.hello(PeerId(0), false, 0, [9; 32]);
    stream.write_all(&hello).unwrap();
    let mut answer = [0; ANSWER_LEN];
    stream.read_exact(&mut answer).unwrap();
    own.check_answer(&hello, &CLEAR, &answer).unwrap();
    let proof = own.proof(&hello, &CLEAR, &answer);
    stream.write_all(&proof).unwrap();
    let mut said = [0; VERDICT_LEN];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said, verdict(0));
    (stream, [&hello[..], &proof].concat())
}

#[test]
fn garbage_and_other_versions_are_refused() {
    let mut exchange = Exchange::new(PATIENCE);
    exchange.attack_with(|target| {
        send_bytes(target, format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HELLO_LEN)).as_bytes())
    });
    exchange.attack_with(|target| {
        let mut other_version = credentials(2).hello(PeerId(0), false, 0, [1; 32]);
        other_version[7] += 1;
        send_bytes(target, &other_version);
    });
    exchange.attack_with(|target| send_bytes(target, &vec![0xff; 1 << 20]));
    let version = Refusal::Version { theirs: PROTOCOL_VERSION + 1, own: PROTOCOL_VERSION };
    assert_eq!(exchange.refused, [Refusal::Protocol, version, Refusal::Protocol]);
}

#[test]
fn other_jobs_and_thieves_are_refused() {
    let mut exchange = Exchange::new(PATIENCE);
    exchange.attack_with(|target| {
        let other = Credentials { job: JOB + 1, ..credentials(2) };
        send_bytes(target, &other.hello(PeerId(0), false, 0, [1; 32]));
        send_bytes(target, &credentials(2).hello(PeerId(5), false, 0, [1; 32]));
    });
    assert_eq!(exchange.refused, [Refusal::Job; 2]);
    exchange.attack_with(|target| {
        let thief = Credentials { secret: [0; 32].into(), ..credentials(2) };
        let mut stream = TcpStream::connect(target).unwrap();
        let hello = thief.hello(PeerId(0), false, 0, [1; 32]);
        stream.write_all(&hello).unwrap();
        let mut answer = [0; ANSWER_LEN];
        stream.read_exact(&mut answer).unwrap();
        stream.write_all(&thief.proof(&hello, &CLEAR, &answer)).unwrap();
        assert_eq!(wait_for_end(&mut stream), 0);
    });
    assert_eq!(exchange.refused[2..], [Refusal::Secret]);
    assert!(exchange.malicious.is_empty());
}

#[test]
fn a_handshake_cut_short_is_refused_and_a_recorded_one_too() {
    let mut exchange = Exchange::new(PATIENCE);
    exchange.attack_with(|target| {
        for len in [1, 8, HELLO_LEN - 1] {
            let mut stream = TcpStream::connect(target).unwrap();
            stream.write_all(&credentials(2).hello(PeerId(0), false, 0, [1; 32])[..len]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(wait_for_end(&mut stream), 0);
        }
    });
    assert_eq!(exchange.refused, [Refusal::Closed; 3]);
    // A peer that sends a valid hello and closes may have found a better path.
    exchange.attack_with(|target| {
        let mut stream = TcpStream::connect(target).unwrap();
        stream.write_all(&credentials(2).hello(PeerId(0), false, 0, [1; 32])).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(wait_for_end(&mut stream), ANSWER_LEN);
    });
    assert_eq!(exchange.refused.len(), 3);
    exchange.attack_with(|target| {
        let (stream, said) = prove(target);
        drop(stream);
        assert_eq!(said.len(), HELLO_LEN + PROOF_LEN);
        send_bytes(target, &said);
    });
    assert_eq!(exchange.refused[3..], [Refusal::Secret]);
    assert_eq!(exchange.malicious, ["up", "lost"]);
}

#[test]
fn a_port_scan_is_refused_hundreds_of_times() {
    let mut exchange = Exchange::new(PATIENCE);
    exchange.attack_with(|target| {
        for _ in 0..400 {
            drop(TcpStream::connect(target).unwrap());
        }
    });
    // The kernel still holds some of them ready to be accepted.
    exchange.until(|exchange| exchange.refused.len() == 400);
    exchange.check_unharmed();
    assert_eq!(exchange.count(Refusal::Closed) + exchange.count(Refusal::TooMany), 400);
}

#[test]
fn silent_peers_are_bounded_in_number_and_time() {
    let mut exchange = Exchange::new(Duration::from_secs(3));
    exchange.attack_with(|target| {
        let connect = || TcpStream::connect(target).unwrap();
        let mut silent: Vec<TcpStream> = (0..2 * PENDING_MAX).map(|_| connect()).collect();
        // A peer can still connect.
        let (peer, _) = prove(target);
        for stream in &mut silent {
            assert_eq!(wait_for_end(stream), 0);
        }
        drop(peer);
    });
    let (too_many, slow) = (exchange.count(Refusal::TooMany), exchange.count(Refusal::Slow));
    assert!(too_many > 0 && slow > 0, "{:?}", exchange.refused);
    assert_eq!(too_many + slow, 2 * PENDING_MAX);
    // Its end need not be seen in time here.
    assert_eq!(exchange.malicious[0], "up");
}

#[test]
fn a_peer_that_sends_impossible_frames_is_cut_off() {
    let too_long = (super::stream::FRAME_MAX as u32 + 1).to_le_bytes();
    let complement = (!(super::stream::FRAME_MAX as u32 + 1)).to_le_bytes();
    let oversized = [too_long, complement].concat();
    for nonsense in [oversized, b"8 random".to_vec(), vec![0; 8]] {
        let mut exchange = Exchange::new(PATIENCE);
        exchange.attack_with(move |target| {
            let (mut stream, _) = prove(target);
            let frame = [&3u32.to_le_bytes()[..], &(!3u32).to_le_bytes(), b"abc"].concat();
            stream.write_all(&frame).unwrap();
            stream.write_all(&nonsense).unwrap();
            wait_for_end(&mut stream);
        });
        assert_eq!(exchange.malicious, ["up", "frame of 3", "misbehaved"]);
        assert!(exchange.refused.is_empty());
    }
}

#[test]
fn a_peer_cut_off_in_the_middle_of_a_frame_is_lost_and_the_frame_with_it() {
    let mut exchange = Exchange::new(PATIENCE);
    exchange.attack_with(|target| {
        let (mut stream, _) = prove(target);
        let header = [50_000u32.to_le_bytes(), (!50_000u32).to_le_bytes()].concat();
        stream.write_all(&header).unwrap();
        stream.write_all(&[1; 30_000]).unwrap();
    });
    assert_eq!(exchange.malicious, ["up", "lost"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testing::cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    /// Random bytes after a valid beginning of any length, in the handshake or behind it.
    #[test]
    fn random_bytes_harm_nobody(
        honest in 0usize..HELLO_LEN + PROOF_LEN + 8,
        noise in proptest::collection::vec(any::<u8>(), 1..300),
    ) {
        let mut noise = noise;
        let mut exchange = Exchange::new(PATIENCE);
        exchange.attack_with(move |target| {
            let own = credentials(2);
            let hello = own.hello(PeerId(0), false, 0, [9; 32]);
            let mut stream = TcpStream::connect(target).unwrap();
            stream.write_all(&hello[..honest.min(HELLO_LEN)]).unwrap();
            let mut due = hello.get(honest).copied();
            if honest >= HELLO_LEN {
                let mut answer = [0; ANSWER_LEN];
                stream.read_exact(&mut answer).unwrap();
                let proof = own.proof(&hello, &CLEAR, &answer);
                stream.write_all(&proof[..(honest - HELLO_LEN).min(PROOF_LEN)]).unwrap();
                due = proof.get(honest - HELLO_LEN).copied();
            }
            // Noise that equals the one missing byte would be no noise.
            if due == Some(noise[0]) {
                noise[0] ^= 1;
            }
            // The connection may be closed before all is sent.
            let _ = stream.write_all(&noise);
            let _ = stream.shutdown(Shutdown::Write);
            wait_for_end(&mut stream);
        });
        let proved = honest >= HELLO_LEN + PROOF_LEN;
        prop_assert_eq!(exchange.malicious.first().map(String::as_str), proved.then_some("up"));
        prop_assert!(exchange.refused.len() <= 1, "{:?}", exchange.refused);
    }

    /// The parser accepts only a hello made for this process.
    #[test]
    fn only_a_hello_to_this_rank_of_this_job_is_one(hello: [u8; HELLO_LEN], at in 0..HELLO_LEN, flip in 1u8..) {
        let own = credentials(0);
        prop_assert_eq!(own.check_hello(&hello).is_ok(), hello[..8] == version_word() && hello[ENCRYPTS_AT] <= 1 && hello[8..16] == JOB.to_le_bytes() && hello[20..24] == [0; 4]);
        let mut changed = credentials(2).hello(PeerId(0), false, 0, [3; 32]);
        changed[at] ^= flip;
        let checked = own.check_hello(&changed);
        match at {
            0..7 => prop_assert_eq!(checked, Err(Refusal::Protocol)),
            7 => prop_assert_eq!(checked, Err(Refusal::Version { theirs: changed[7], own: PROTOCOL_VERSION })),
            8..16 | 20..24 => prop_assert_eq!(checked, Err(Refusal::Job)),
            60 if changed[60] == 1 => prop_assert_eq!(checked.map(|caller| caller.encrypts), Ok(true)),
            60 => prop_assert_eq!(checked, Err(Refusal::Protocol)),
            // Another rank or another nonce: the proof will not fit.
            _ => prop_assert!(checked.is_ok()),
        }
    }

    /// A change of any bit anywhere in the handshake voids the proofs.
    #[test]
    fn no_bit_of_a_handshake_can_be_changed(at in 0..HELLO_LEN + ANSWER_LEN + PROOF_LEN, bit in 0..8u32) {
        let (own, other) = (credentials(2), credentials(0));
        let hello = own.hello(PeerId(0), false, 0, [3; 32]);
        let answer = other.answer(&hello, &CLEAR, [4; 32]);
        let proof = own.proof(&hello, &CLEAR, &answer);
        let (mut changed_hello, mut changed_answer, mut changed_proof) = (hello, answer, proof);
        let flip = 1u8 << bit;
        match at {
            0..HELLO_LEN => changed_hello[at] ^= flip,
            _ => match at - HELLO_LEN {
                inner @ 0..ANSWER_LEN => changed_answer[inner] ^= flip,
                inner => changed_proof[inner - ANSWER_LEN] ^= flip,
            },
        }
        let accepted = own.check_answer(&changed_hello, &CLEAR, &changed_answer).is_ok()
            && other.check_proof(&changed_hello, &CLEAR, &changed_answer, &changed_proof).is_ok();
        prop_assert!(!accepted);
    }
}

const CLEAR: Binding = [0; 32];
const JOB: u64 = 77;
const SECRET: [u8; 32] = [5; 32];
const PATIENCE: Duration = Duration::from_secs(10);
