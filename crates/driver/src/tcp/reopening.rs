//! Links that are lost and opened anew.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use wire::{Frame, PeerId};

use super::handshake::SHORT_SEGMENT;
use super::{Link, Socket, TcpConfig, TcpRail, TcpSample, interfaces};
use crate::rail::{Event, Fault, Post, Rail};

/// Two rails, and what they have reported.
struct Pair {
    rails: [TcpRail; 2],
    seen: [Vec<Seen>; 2],
}

#[derive(Debug, PartialEq)]
enum Seen {
    Up,
    Lost,
    Unreachable,
    Frame(Vec<u8>),
}

impl Pair {
    fn new() -> Self {
        let rails = [0, 1].map(|rank| {
            let config = TcpConfig {
                interface: Some("127.0.0.1".into()),
                connect_timeout: PATIENCE,
                ..TcpConfig::new(PeerId(rank), 3, [8; 32])
            };
            TcpRail::new(config).unwrap()
        });
        Self { rails, seen: [Vec::new(), Vec::new()] }
    }

    fn listener(&self, rank: usize) -> SocketAddr {
        self.rails[rank].listeners[0].local_addr().unwrap()
    }

    /// Rank 0 dials rank 1 by way of an address.
    fn connect_by(&mut self, address: SocketAddr) {
        let address = interfaces::emit(self.rails[1].identity, &[address]);
        self.rails[0].connect(PeerId(1), &address).unwrap();
    }

    /// Polls until both have reported what is expected, since the last time.
    fn expect(&mut self, expected: [&[Seen]; 2]) {
        let limit = Instant::now() + PATIENCE;
        loop {
            for (rail, seen) in self.rails.iter_mut().zip(&mut self.seen) {
                rail.poll(&mut |event| match event {
                    Event::Up { .. } => seen.push(Seen::Up),
                    Event::Down { fault: Fault::Lost(_), .. } => seen.push(Seen::Lost),
                    Event::Down { .. } => seen.push(Seen::Unreachable),
                    Event::Frame { bytes, .. } => seen.push(Seen::Frame(bytes.into())),
                    Event::Cost { .. } => {}
                    other => panic!("{other:?}"),
                });
            }
            if self.seen.iter().zip(expected).all(|(seen, due)| seen.len() >= due.len()) {
                break;
            }
            assert!(Instant::now() < limit, "{:?}, where {expected:?} is due", self.seen);
            sleep(Duration::from_millis(1));
        }
        assert_eq!(self.seen.each_ref().map(Vec::as_slice), expected);
        self.seen = [Vec::new(), Vec::new()];
    }

    /// Sends a frame each way.
    fn exchange(&mut self) {
        for from in [0, 1] {
            let frame = Frame { head: vec![from as u8; 9], ..Frame::default() };
            assert_eq!(self.rails[from].post(PeerId(1 - from as u32), &frame), Post::Done);
        }
        self.expect([&[Seen::Frame(vec![1; 9])], &[Seen::Frame(vec![0; 9])]]);
    }
}

#[test]
fn a_link_that_was_lost_is_opened_anew_by_either_end() {
    let mut pair = Pair::new();
    let addresses = [pair.listener(0), pair.listener(1)];
    pair.connect_by(addresses[1]);
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    for dialler in [0, 1, 1, 0] {
        // Without a goodbye, as when a process dies or a network does.
        pair.rails[0].disconnect(PeerId(1));
        pair.expect([&[], &[Seen::Lost]]);
        let other = 1 - dialler;
        let address = interfaces::emit(pair.rails[other].identity, &[addresses[other]]);
        pair.rails[dialler].connect(PeerId(other as u32), &address).unwrap();
        pair.expect([&[Seen::Up], &[Seen::Up]]);
        pair.exchange();
    }
}

/// The longest segment of the link from rank 0 to 1, which is taken for a long way from now on.
fn segment_bytes(pair: &mut Pair) -> u64 {
    let Link::Open { key } = pair.rails[0].links[&PeerId(1)] else { panic!() };
    let Some(Socket::Open(open)) = pair.rails[0].sockets.get_mut(&key) else { panic!() };
    open.pacing.is_wan = true;
    TcpSample::of(&open.stream.channel.socket).unwrap().segment_bytes
}

#[test]
fn a_long_way_on_which_links_live_shortly_gets_short_segments() {
    let mut pair = Pair::new();
    let target = pair.listener(1);
    for opening in 1..4 {
        pair.connect_by(target);
        pair.expect([&[Seen::Up], &[Seen::Up]]);
        let is_short = segment_bytes(&mut pair) <= u64::from(SHORT_SEGMENT);
        assert_eq!(is_short, opening == 3, "opening {opening}");
        pair.exchange();
        pair.rails[0].disconnect(PeerId(1));
        pair.expect([&[], &[Seen::Lost]]);
    }
}

#[test]
fn one_that_only_one_end_has_lost_gives_way_to_the_newcomer() {
    let mut pair = Pair::new();
    let relay = Relay::to(pair.listener(1));
    pair.connect_by(relay.address);
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    for _ in 0..3 {
        pair.exchange();
        relay.cut_near();
        pair.expect([&[Seen::Lost], &[]]);
        assert!(matches!(pair.rails[1].links.get(&PeerId(0)), Some(Link::Open { .. })));
        pair.connect_by(relay.address);
        pair.expect([&[Seen::Up], &[Seen::Lost, Seen::Up]]);
    }
    pair.exchange();
}

#[test]
fn a_peer_whose_host_refuses_is_given_up_and_one_that_is_silent_is_not() {
    let mut pair = Pair::new();
    pair.connect_by(pair.listener(1));
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    pair.rails[0].disconnect(PeerId(1));
    pair.expect([&[], &[Seen::Lost]]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    pair.connect_by(closed);
    pair.expect([&[Seen::Unreachable], &[]]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    pair.connect_by(silent.local_addr().unwrap());
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        pair.expect([&[], &[]]);
        sleep(Duration::from_millis(5));
    }
    assert!(matches!(pair.rails[0].links.get(&PeerId(1)), Some(Link::Dialling(_))));
}

/// Passes connections on, and can cut their nearer halves, of which the further ends hear nothing.
struct Relay {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl Relay {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&connections);
        // Ends with the process: nobody else knows the listener.
        spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(target) else { return };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    spawn(move || copy(&mut from, &mut to));
                }
                kept.lock().unwrap().push([near, far]);
            }
        });
        Self { address, connections }
    }

    fn cut_near(&self) {
        for [near, _] in &*self.connections.lock().unwrap() {
            // One that was cut before is not connected any more.
            let _ = near.shutdown(Shutdown::Both);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
