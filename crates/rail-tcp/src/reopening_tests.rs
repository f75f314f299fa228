//! Links that are lost and reopened.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use netpath::{TcpSample, interfaces};
use rail::{Event, Fault, Post, Rail};
use rustix::event::epoll;
use wire::{Frame, PeerId};

use crate::handshake::SHORT_SEGMENT;
use crate::handshake::has_proved_to;
use crate::{Socket, TcpConfig, TcpRail};

/// Two rails, and what they have reported.
struct ReopenedPair {
    rails: [TcpRail; 2],
    seen: [Vec<LinkEvent>; 2],
}

#[derive(Debug, PartialEq)]
enum LinkEvent {
    Up,
    Lost,
    Unreachable,
    Frame(Vec<u8>),
}

impl ReopenedPair {
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

    /// Makes rank 0 dial rank 1 at an address.
    fn connect_by(&mut self, address: SocketAddr) {
        let address = interfaces::emit(self.rails[1].identity, &[address]);
        self.rails[0].connect(PeerId(1), &address).unwrap();
    }

    /// Polls until both have reported the expected events since the last call.
    fn expect(&mut self, expected: [&[LinkEvent]; 2]) {
        let limit = Instant::now() + PATIENCE;
        loop {
            for (rail, seen) in self.rails.iter_mut().zip(&mut self.seen) {
                rail.poll(&mut |event| match event {
                    Event::Up { .. } => seen.push(LinkEvent::Up),
                    Event::Down { fault: Fault::Lost(_) | Fault::Silent(..), .. } => {
                        seen.push(LinkEvent::Lost)
                    }
                    Event::Down { .. } => seen.push(LinkEvent::Unreachable),
                    Event::Frame { bytes, .. } => seen.push(LinkEvent::Frame(bytes.into())),
                    Event::Cost { .. } | Event::Hampered { .. } => {}
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

    /// Sends a frame in each direction.
    fn exchange(&mut self) {
        for from in [0, 1] {
            let frame = Frame { head: vec![from as u8; 9], ..Frame::default() };
            assert_eq!(self.rails[from].post(PeerId(1 - from as u32), &frame), Post::Done);
        }
        self.expect([&[LinkEvent::Frame(vec![1; 9])], &[LinkEvent::Frame(vec![0; 9])]]);
    }
}

#[test]
fn a_lost_link_is_reopened_by_either_end() {
    let mut pair = ReopenedPair::new();
    let addresses = [pair.listener(0), pair.listener(1)];
    pair.connect_by(addresses[1]);
    pair.expect([&[LinkEvent::Up], &[LinkEvent::Up]]);
    for dialler in [0, 1, 1, 0] {
        // The link ends without a goodbye, as when a process or a network dies.
        pair.rails[0].disconnect(PeerId(1));
        pair.expect([&[], &[LinkEvent::Lost]]);
        let other = 1 - dialler;
        let address = interfaces::emit(pair.rails[other].identity, &[addresses[other]]);
        pair.rails[dialler].connect(PeerId(other as u32), &address).unwrap();
        pair.expect([&[LinkEvent::Up], &[LinkEvent::Up]]);
        pair.exchange();
    }
}

#[test]
fn a_loss_and_a_return_that_arrive_together_are_reported_by_two_polls() {
    let mut pair = ReopenedPair::new();
    let target = pair.listener(1);
    pair.connect_by(target);
    pair.expect([&[LinkEvent::Up], &[LinkEvent::Up]]);
    let limit = Instant::now() + PATIENCE;
    pair.rails[0].disconnect(PeerId(1));
    // The loss stays unseen until the new connection has proved itself.
    watch_link_of(&mut pair.rails[1], epoll::EventFlags::empty());
    pair.connect_by(target);
    let is_at_proof =
        |socket: &Socket| matches!(socket, Socket::PendingConnection(one) if one.awaits_proof());
    while !pair.rails[1].sockets.values().any(is_at_proof) {
        for rail in &mut pair.rails {
            rail.poll(&mut |event| panic!("{event:?}"));
        }
        assert!(Instant::now() < limit, "no handshake");
    }
    // Epoll reports the connections in the order in which they become ready: the lost one, then the new one.
    pair.rails[1].poll(&mut |event| panic!("{event:?}"));
    watch_link_of(&mut pair.rails[1], epoll::EventFlags::IN);
    while !has_proved_to(&pair.rails[0].sockets, PeerId(1)) {
        pair.rails[0].poll(&mut |event| panic!("{event:?}"));
        assert!(Instant::now() < limit, "no proof");
    }
    let mut polls: Vec<Vec<LinkEvent>> = Vec::new();
    while polls.iter().flatten().count() < 2 {
        let mut seen = Vec::new();
        pair.rails[1].poll(&mut |event| match event {
            Event::Up { .. } => seen.push(LinkEvent::Up),
            Event::Down { .. } => seen.push(LinkEvent::Lost),
            _ => {}
        });
        polls.push(seen);
        assert!(Instant::now() < limit, "{polls:?}");
    }
    polls.retain(|seen| !seen.is_empty());
    assert_eq!(polls, [[LinkEvent::Lost], [LinkEvent::Up]]);
    pair.expect([&[LinkEvent::Up], &[]]);
    pair.exchange();
}

/// Sets the events for which epoll watches the only link.
fn watch_link_of(rail: &mut TcpRail, flags: epoll::EventFlags) {
    let (&key, socket) = rail.sockets.iter().find(|(_, it)| matches!(it, Socket::Open(_))).unwrap();
    let Socket::Open(open) = socket else { unreachable!() };
    let data = epoll::EventData::new_u64(key);
    epoll::modify(&rail.epoll, &open.stream.channel.socket, data, flags).unwrap();
}

/// Maximum segment size of the link from rank 0 to 1, which counts as a WAN link from now on.
fn segment_bytes(pair: &mut ReopenedPair) -> u64 {
    let key = pair.rails[0].links.open_key(PeerId(1)).unwrap();
    let Some(Socket::Open(open)) = pair.rails[0].sockets.get_mut(&key) else { panic!() };
    open.pacing.is_wan = true;
    TcpSample::of(&open.stream.channel.socket).unwrap().segment_bytes
}

#[test]
fn a_wan_path_with_short_lived_links_gets_short_segments() {
    let mut pair = ReopenedPair::new();
    let target = pair.listener(1);
    for opening in 1..4 {
        pair.connect_by(target);
        pair.expect([&[LinkEvent::Up], &[LinkEvent::Up]]);
        let is_short = segment_bytes(&mut pair) <= u64::from(SHORT_SEGMENT);
        assert_eq!(is_short, opening == 3, "opening {opening}");
        pair.exchange();
        pair.rails[0].disconnect(PeerId(1));
        pair.expect([&[], &[LinkEvent::Lost]]);
    }
}

#[test]
fn a_link_lost_at_one_end_is_replaced_by_the_new_connection() {
    let mut pair = ReopenedPair::new();
    let relay = CuttableRelay::to(pair.listener(1));
    pair.connect_by(relay.address);
    pair.expect([&[LinkEvent::Up], &[LinkEvent::Up]]);
    for _ in 0..3 {
        pair.exchange();
        relay.cut_near();
        pair.expect([&[LinkEvent::Lost], &[]]);
        assert!(pair.rails[1].links.open_key(PeerId(0)).is_some());
        pair.connect_by(relay.address);
        pair.expect([&[LinkEvent::Up], &[LinkEvent::Lost, LinkEvent::Up]]);
    }
    pair.exchange();
}

#[test]
fn a_peer_whose_host_refuses_is_given_up_and_one_that_is_silent_is_not() {
    let mut pair = ReopenedPair::new();
    pair.connect_by(pair.listener(1));
    pair.expect([&[LinkEvent::Up], &[LinkEvent::Up]]);
    pair.rails[0].disconnect(PeerId(1));
    pair.expect([&[], &[LinkEvent::Lost]]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    pair.connect_by(closed);
    pair.expect([&[LinkEvent::Unreachable], &[]]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    pair.connect_by(silent.local_addr().unwrap());
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        pair.expect([&[], &[]]);
        sleep(Duration::from_millis(5));
    }
    assert!(pair.rails[0].links.dialling(PeerId(1)).is_some());
}

/// A relay that can cut the near halves of its connections, unnoticed by the far ends.
struct CuttableRelay {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl CuttableRelay {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&connections);
        // The thread ends with the process: nobody else knows the listener.
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
            // A connection that was cut before is no longer connected.
            let _ = near.shutdown(Shutdown::Both);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
