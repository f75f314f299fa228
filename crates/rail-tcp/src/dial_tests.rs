//! Wrong addresses, peers that compute, and simultaneous dialling.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::handshake::has_proved_to;
use crate::{TcpConfig, TcpRail};
use auth::Encryption;
use connect::version_word;
use netpath::interfaces;
use rail::{Event, Fault, Rail, Refusal};
use wire::{PROTOCOL_VERSION, PeerId};

struct DialPair {
    rails: [TcpRail; 2],
    up: [bool; 2],
    down: Vec<(usize, Fault)>,
    refused: Vec<(usize, Refusal)>,
}

impl DialPair {
    /// Attempts are not given up, however busy the machine is.
    fn new() -> Self {
        Self::with(Encryption::None, Duration::from_secs(20))
    }

    fn with(encryption: Encryption, connect_timeout: Duration) -> Self {
        let rails = [0, 1].map(|rank| {
            TcpRail::new(TcpConfig {
                interface: Some("127.0.0.1".into()),
                connect_timeout,
                encryption: encryption.clone(),
                ..TcpConfig::new(PeerId(rank), 3, [8; 32])
            })
            .unwrap()
        });
        Self { rails, up: [false; 2], down: Vec::new(), refused: Vec::new() }
    }

    fn connect(&mut self, from: usize) {
        let address = self.rails[1 - from].address();
        self.rails[from].connect(PeerId(1 - from as u32), &address).unwrap();
    }

    fn listener(&self, rank: usize) -> SocketAddr {
        self.rails[rank].listeners[0].local_addr().unwrap()
    }

    fn poll(&mut self, rank: usize) {
        let Self { rails, up, down, refused } = self;
        rails[rank].poll(&mut |event| match event {
            Event::Up { .. } => {
                assert!(!up[rank], "up twice");
                up[rank] = true;
            }
            Event::Down { fault, .. } => down.push((rank, fault)),
            Event::Refused { reason, .. } => refused.push((rank, reason)),
            Event::Cost { .. } | Event::Hampered { .. } => {}
            other => panic!("{other:?}"),
        });
    }

    /// Polls the given ranks for a while, and at least as often as a sleeper would.
    fn poll_for(&mut self, ranks: &[usize], duration: Duration) {
        let end = Instant::now() + duration;
        let mut polls = 0;
        while Instant::now() < end || polls < POLLS_MIN {
            ranks.iter().for_each(|&rank| self.poll(rank));
            sleep(Duration::from_millis(5));
            polls += 1;
        }
    }

    fn come_up(&mut self) {
        let limit = Instant::now() + Duration::from_secs(20);
        while self.up != [true; 2] {
            self.poll(0);
            self.poll(1);
            assert!(self.down.is_empty(), "{:?}", self.down);
            assert!(Instant::now() < limit, "up: {:?}", self.up);
        }
    }
}

#[test]
fn a_wrong_address_is_noticed_and_the_next_one_tried() {
    let mut pair = DialPair::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // The addresses: its own listener, as if two nodes had the same address; a closed port; a silent listener; the
    // peer.
    let own = pair.listener(0);
    let offered = [own, closed, silent.local_addr().unwrap(), pair.listener(1)];
    let address = interfaces::emit(pair.rails[1].identity, &offered);
    pair.rails[0].connect(PeerId(1), &address).unwrap();
    pair.come_up();
    assert_eq!(pair.refused, [(0, Refusal::Job)]);
    assert_eq!(pair.rails[0].pending, 0);
}

#[test]
fn a_process_that_computes_after_dialling_still_connects() {
    for encryption in [Encryption::None, Encryption::All] {
        let mut pair = DialPair::with(encryption.clone(), PATIENCE);
        pair.connect(0);
        // The peer gives up the silent connection meanwhile.
        pair.poll_for(&[1], 2 * PATIENCE);
        pair.come_up();
        let mut pair = DialPair::with(encryption, PATIENCE);
        pair.connect(0);
        sleep(2 * PATIENCE);
        pair.come_up();
        assert!(pair.refused.is_empty());
    }
}

#[test]
fn a_peer_that_computes_is_waited_for() {
    for encryption in [Encryption::None, Encryption::All] {
        // The peer, which does not poll meanwhile, has lost a second at most.
        let patience = Duration::from_millis(1800);
        let mut pair = DialPair::with(encryption, patience);
        pair.connect(0);
        pair.poll_for(&[0], 2 * patience);
        assert!(pair.down.is_empty(), "{:?}", pair.down);
        pair.come_up();
        assert!(pair.refused.is_empty(), "{:?}", pair.refused);
    }
}

/// The higher rank waits, for its connection may lose against one that it does not know of.
#[test]
fn a_verdict_is_waited_for_however_long_the_peer_computes_before_it() {
    for encryption in [Encryption::None, Encryption::All] {
        let mut pair = DialPair::with(encryption, PATIENCE);
        pair.connect(1);
        let limit = Instant::now() + Duration::from_secs(20);
        while !has_proved_to(&pair.rails[1].sockets, PeerId(0)) {
            pair.poll(0);
            pair.poll(1);
            assert!(Instant::now() < limit, "no answer");
        }
        assert_eq!(pair.up, [false; 2]);
        let dialled = pair.rails[1].pending;
        pair.poll_for(&[1], 6 * PATIENCE);
        assert!(
            has_proved_to(&pair.rails[1].sockets, PeerId(0)),
            "given up: the peer may have taken it"
        );
        assert_eq!(pair.rails[1].pending, dialled, "there is no need for another");
        pair.come_up();
        pair.poll_for(&[0, 1], PATIENCE);
        assert!(pair.down.is_empty() && pair.refused.is_empty(), "{:?}", pair.down);
    }
}

#[test]
fn a_link_without_its_verdict_lasts_however_long_the_peer_computes_before_it() {
    let mut pair = DialPair::with(Encryption::All, PATIENCE);
    pair.connect(0);
    let limit = Instant::now() + Duration::from_secs(20);
    while !pair.up[0] {
        pair.poll(1);
        pair.poll(0);
        assert!(Instant::now() < limit, "no link");
    }
    pair.poll_for(&[0], 6 * PATIENCE);
    assert_eq!((pair.up, pair.rails[0].pending), ([true, false], 0));
    pair.come_up();
    pair.poll_for(&[0, 1], PATIENCE);
    assert!(pair.down.is_empty() && pair.refused.is_empty(), "{:?}", pair.down);
}

#[test]
fn a_dialling_process_can_sleep() {
    let mut pair = DialPair::new();
    pair.connect(0);
    pair.poll_for(&[0], Duration::from_millis(50));
    let rail = &mut pair.rails[0];
    assert!(rail.prepare_sleep());
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut events = [rustix::event::PollFd::new(&rail.epoll, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut events, Some(&zero)), Ok(0), "an event without cause");
}

#[test]
fn an_absent_peer_is_reported_with_the_addresses_tried() {
    let mut pair = DialPair::with(Encryption::None, PATIENCE);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = interfaces::emit(pair.rails[1].identity, &[closed]);
    pair.rails[0].connect(PeerId(1), &address).unwrap();
    let limit = Instant::now() + Duration::from_secs(20);
    while pair.down.is_empty() {
        pair.poll_for(&[0], Duration::from_millis(50));
        assert!(Instant::now() < limit, "nobody is at home, and nobody says so");
    }
    let [(0, Fault::Unreachable(text))] = &pair.down[..] else { panic!("{:?}", pair.down) };
    assert!(text.contains(&closed.to_string()) && text.contains("refused"), "{text}");
    assert!(pair.rails[0].links.get(PeerId(1)).is_none());
}

#[test]
fn the_higher_rank_connects_where_the_lower_cannot() {
    let mut pair = DialPair::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = interfaces::emit(pair.rails[1].identity, &[closed]);
    pair.rails[0].connect(PeerId(1), &address).unwrap();
    pair.connect(1);
    assert!(pair.rails[0].links.dialling(PeerId(1)).is_some());
    pair.come_up();
}

#[test]
fn simultaneous_dials_leave_one_connection() {
    for polls in 0..80u32 {
        let encryption = if polls < 40 { Encryption::None } else { Encryption::All };
        let mut pair = DialPair::with(encryption, Duration::from_secs(20));
        for at in 0..12 {
            if at == polls % 5 {
                pair.connect(0);
            }
            if at == polls % 7 {
                pair.connect(1);
            }
            pair.poll(((polls >> (at % 6)) & 1) as usize);
        }
        pair.come_up();
        let limit = Instant::now() + Duration::from_secs(10);
        while pair.rails.each_ref().map(|rail| rail.sockets.len()) != [1, 1] {
            pair.poll(0);
            pair.poll(1);
            assert!(Instant::now() < limit, "connections are left in round {polls}");
        }
        assert_eq!(pair.down, []);
        assert_eq!(pair.refused, []);
    }
}

/// The acceptor's message names both versions, too ([`connect::Refusal`]).
#[test]
fn an_acceptor_of_another_version_is_named_with_its_version() {
    for encryption in [Encryption::None, Encryption::All] {
        let mut pair = DialPair::with(encryption, PATIENCE);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            // The dialler tries again until its time is up.
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if stream.read_exact(&mut [0; 8]).is_err() {
                    break;
                }
                let mut word = version_word();
                word[7] += 1;
                stream.write_all(&word).unwrap();
                // What else was sent is read, so that the answer is not lost with a reset.
                let _ = stream.shutdown(Shutdown::Write);
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        });
        let offered = interfaces::emit(pair.rails[1].identity, &[address]);
        pair.rails[0].connect(PeerId(1), &offered).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while pair.down.is_empty() {
            pair.poll(0);
            assert!(Instant::now() < limit);
        }
        drop(TcpStream::connect(address));
        other.join().unwrap();
        let text = pair.down[0].1.text().unwrap_or_default();
        for version in [PROTOCOL_VERSION, PROTOCOL_VERSION + 1] {
            assert!(text.contains(&format!("version {version}")), "{text}");
        }
    }
}

/// Timeout of the ranks that are to lose the race.
const PATIENCE: Duration = Duration::from_millis(700);
/// Polls needed to handle all that has arrived.
const POLLS_MIN: u32 = 10;
