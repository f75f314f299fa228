//! Tests of links that are lost and reopened.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use auth::Identity;
use connect::Patience;
use netpath::interfaces;
use rail::{Event, Fault, Post, Rail};
use wire::{Frame, PeerId};

use crate::{QuicConfig, QuicRail};

/// Two rails, and what they have reported.
struct RailPair {
    rails: [QuicRail; 2],
    seen: [Vec<Seen>; 2],
}

#[derive(Debug, PartialEq)]
enum Seen {
    Up,
    Lost,
    Unreachable,
    Frame(Vec<u8>),
}

impl RailPair {
    fn new() -> Self {
        let rails = [0, 1].map(|rank| {
            QuicRail::new(QuicConfig {
                rank: PeerId(rank),
                job: 3,
                identity: Identity::of(&[8; 32].into(), 3),
                interface: Some("127.0.0.1".into()),
                connect_timeout: PATIENCE,
                silence: Patience::default().silence(),
                passes: false,
                costs: std::sync::Arc::new(cost::NoStore),
            })
            .unwrap()
        });
        Self { rails, seen: [Vec::new(), Vec::new()] }
    }

    fn listen_address(&self, rank: usize) -> SocketAddr {
        self.rails[rank].driver().sockets[0].address
    }

    /// Makes one rank dial the other at an address.
    fn connect_by(&mut self, dialler: usize, address: SocketAddr) {
        let address = interfaces::emit(self.rails[1 - dialler].network, &[address]);
        self.rails[dialler].connect(PeerId(1 - dialler as u32), &address).unwrap();
    }

    fn poll(&mut self) {
        for (rail, seen) in self.rails.iter_mut().zip(&mut self.seen) {
            let mut has_ended = false;
            rail.poll(&mut |event| {
                assert!(!has_ended, "{event:?} in one report with the end of the link");
                has_ended = matches!(event, Event::Down { .. });
                match event {
                    Event::Up { .. } => seen.push(Seen::Up),
                    Event::Down { fault: Fault::Lost(_) | Fault::Silent(..), .. } => {
                        seen.push(Seen::Lost)
                    }
                    Event::Down { .. } => seen.push(Seen::Unreachable),
                    Event::Frame { bytes, .. } => seen.push(Seen::Frame(bytes.into())),
                    Event::Cost { .. } | Event::Hampered { .. } => {}
                    other => panic!("{other:?}"),
                }
            });
        }
    }

    /// Polls until both have reported what is expected, since the last time.
    fn expect(&mut self, expected: [&[Seen]; 2]) {
        let limit = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if self.seen.iter().zip(expected).all(|(seen, due)| seen.len() >= due.len()) {
                break;
            }
            assert!(Instant::now() < limit, "{:?}, where {expected:?} is due", self.seen);
            sleep(Duration::from_millis(1));
        }
        assert_eq!(self.seen.each_ref().map(Vec::as_slice), expected);
        self.seen = [Vec::new(), Vec::new()];
    }

    /// Polls until `datagrams` were lost, without any event. `lost` counts those since its last call.
    fn expect_nothing_for(&mut self, datagrams: u32, mut lost: impl FnMut() -> u32) {
        let (limit, mut count) = (Instant::now() + PATIENCE, 0);
        while count < datagrams {
            self.expect([&[], &[]]);
            count += lost();
            assert!(Instant::now() < limit, "{count} of {datagrams} datagrams");
            sleep(Duration::from_millis(1));
        }
    }

    fn post(&mut self, from: usize) {
        let frame = Frame { head: vec![from as u8; 9], ..Frame::default() };
        assert_eq!(self.rails[from].post(PeerId(1 - from as u32), &frame), Post::Done);
    }

    /// Sends a frame each way.
    fn exchange(&mut self) {
        self.post(0);
        self.post(1);
        self.expect([&[Seen::Frame(vec![1; 9])], &[Seen::Frame(vec![0; 9])]]);
    }

    fn is_open(&self, rank: usize) -> bool {
        let driver = self.rails[rank].driver();
        driver.links.open_key(PeerId(1 - rank as u32)).is_some()
    }

    /// Treats the link as a WAN link from now on.
    fn set_far(&mut self) {
        for rail in &self.rails {
            rail.driver().connections.values_mut().for_each(|connection| connection.is_wan = true);
        }
    }
}

#[test]
fn a_lost_link_is_reopened_by_either_end() {
    let mut pair = RailPair::new();
    pair.connect_by(0, pair.listen_address(1));
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    for dialler in [0, 1, 1, 0] {
        pair.rails[0].disconnect(PeerId(1));
        pair.expect([&[], &[Seen::Lost]]);
        pair.connect_by(dialler, pair.listen_address(1 - dialler));
        pair.expect([&[Seen::Up], &[Seen::Up]]);
        pair.exchange();
    }
}

#[test]
fn a_link_that_both_ends_reopen_comes_up_once() {
    let mut pair = RailPair::new();
    pair.connect_by(0, pair.listen_address(1));
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    for _ in 0..4 {
        pair.rails[1].disconnect(PeerId(0));
        pair.expect([&[Seen::Lost], &[]]);
        pair.connect_by(0, pair.listen_address(1));
        pair.connect_by(1, pair.listen_address(0));
        pair.expect([&[Seen::Up], &[Seen::Up]]);
        pair.exchange();
    }
}

#[test]
fn a_link_that_only_one_end_has_lost_is_replaced() {
    let mut pair = RailPair::new();
    let relay = Relay::to(pair.listen_address(1));
    pair.connect_by(0, relay.address);
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    for _ in 0..3 {
        pair.exchange();
        relay.set_cut(true);
        pair.rails[0].disconnect(PeerId(1));
        pair.expect([&[], &[]]);
        relay.settle();
        relay.set_cut(false);
        assert!(pair.is_open(1), "nobody has told it");
        pair.connect_by(0, relay.address);
        pair.expect([&[Seen::Up], &[Seen::Lost, Seen::Up]]);
    }
    pair.exchange();
}

#[test]
fn a_silent_wan_link_is_lost_and_reopened() {
    let mut pair = RailPair::new();
    let relay = Relay::to(pair.listen_address(1));
    pair.connect_by(0, relay.address);
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    pair.exchange();
    pair.set_far();
    relay.set_cut(true);
    pair.post(0);
    pair.post(1);
    pair.expect([&[Seen::Lost], &[Seen::Lost]]);
    pair.connect_by(0, relay.address);
    // What is said once, and again.
    pair.expect_nothing_for(2, || relay.take_swallowed());
    relay.set_cut(false);
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    pair.exchange();
}

#[test]
fn a_short_outage_is_no_loss() {
    let mut pair = RailPair::new();
    let relay = Relay::to(pair.listen_address(1));
    pair.connect_by(0, relay.address);
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    pair.set_far();
    relay.set_cut(true);
    pair.post(0);
    pair.expect_nothing_for(SHORT, || relay.take_swallowed());
    relay.set_cut(false);
    pair.expect([&[], &[Seen::Frame(vec![0; 9])]]);
    pair.exchange();
}

#[test]
fn a_peer_whose_host_refuses_is_given_up_and_one_that_is_silent_is_not() {
    let mut pair = RailPair::new();
    pair.connect_by(0, pair.listen_address(1));
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    pair.rails[0].disconnect(PeerId(1));
    pair.expect([&[], &[Seen::Lost]]);
    // The connection to where the peer was has to be over: the host's word could be meant for it.
    let limit = Instant::now() + PATIENCE;
    while !pair.rails[0].driver().connections.is_empty() {
        pair.poll();
        assert!(Instant::now() < limit, "a closed connection stays");
        sleep(Duration::from_millis(5));
    }
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    pair.connect_by(0, closed);
    pair.expect([&[Seen::Unreachable], &[]]);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    pair.connect_by(0, silent.local_addr().unwrap());
    pair.expect_nothing_for(2, || u32::from(silent.recv(&mut [0; 1 << 11]).is_ok()));
    let mut driver = pair.rails[0].driver();
    assert!(driver.links.dialling(PeerId(1)).is_some());
}

#[test]
fn the_client_migrates_the_link_to_another_socket() {
    let mut pair = RailPair::new();
    pair.connect_by(0, pair.listen_address(1));
    pair.expect([&[Seen::Up], &[Seen::Up]]);
    pair.exchange();
    for round in 1..3 {
        let mut driver = pair.rails[0].driver();
        let index = driver.add_socket([127, 0, 0, 1].into()).expect("a socket");
        assert_eq!(index, round);
        let key = *driver.connections.keys().next().expect("a link");
        driver.migrate(key, index);
        drop(driver);
        pair.exchange();
        let from =
            pair.rails[1].driver().connections.values().next().unwrap().protocol.remote_address();
        assert_eq!(from, pair.rails[0].driver().sockets[index].address);
    }
}

/// A relay that forwards or drops datagrams.
struct Relay {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    /// Number of checks of both sockets.
    turns: Arc<AtomicU32>,
    /// Number of dropped datagrams since the last query.
    swallowed: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn to(target: SocketAddr) -> Self {
        let [near, far] = [(), ()].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let address = near.local_addr().unwrap();
        let [is_cut, ends] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let [turns, swallowed] = [(), ()].map(|()| Arc::new(AtomicU32::new(0)));
        let (cut, end) = (Arc::clone(&is_cut), Arc::clone(&ends));
        let (turn, lost) = (Arc::clone(&turns), Arc::clone(&swallowed));
        let thread = spawn(move || {
            let mut room = vec![0; 1 << 16];
            let mut caller = None;
            while !end.load(Ordering::Relaxed) {
                let passes = !cut.load(Ordering::Relaxed);
                let count = || lost.fetch_add(u32::from(!passes), Ordering::Relaxed);
                while let Ok((len, from)) = near.recv_from(&mut room) {
                    caller = Some(from);
                    count();
                    // A full socket loses it, as a network would.
                    let _ = passes.then(|| far.send_to(&room[..len], target));
                }
                while let Ok((len, _)) = far.recv_from(&mut room) {
                    count();
                    let _ = caller.filter(|_| passes).map(|to| near.send_to(&room[..len], to));
                }
                turn.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_micros(300));
            }
        });
        Self { address, is_cut, turns, swallowed, ends, thread: Some(thread) }
    }

    /// Sets if datagrams are forwarded or dropped from now on.
    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
        self.settle();
        self.take_swallowed();
    }

    /// Waits until all datagrams sent before have been handled.
    fn settle(&self) {
        let begun = self.turns.load(Ordering::Relaxed);
        let limit = Instant::now() + PATIENCE;
        while self.turns.load(Ordering::Relaxed).wrapping_sub(begun) < 2 {
            assert!(Instant::now() < limit, "the relay has stopped");
            sleep(Duration::from_micros(300));
        }
    }

    /// Returns the number of datagrams dropped since the last call.
    fn take_swallowed(&self) -> u32 {
        self.swallowed.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A relay that has panicked has failed the test already.
            let _ = thread.join();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Datagrams lost in a short outage.
const SHORT: u32 = 10;
