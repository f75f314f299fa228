//! Tests of the congestion controller in virtual time. Two ends of a connection share a link with a rate, a delay, a
//! drop-tail buffer and losses; some tests add a competing CUBIC flow.
//!
//! Results for links of 1 to 300 ms and 100 Mb/s to 10 Gb/s are kept as a snapshot: `UPDATE_EXPECT=1 cargo test
//! -p rail-quic bottleneck` rewrites it.

mod buckets;
mod rival;
mod silence;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{Handshake, Identity};
use bytes::BytesMut;
use cost::Traffic;
use expect_test::expect_file;
use quinn_proto::{ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamEvent, Transmit};
use rail::Post;
use testing::Random;
use wire::{Frame, PeerId};

use crate::bottleneck_tests::rival::Rival;
use crate::congestion::Path;
use crate::connection::{Connection, Outlet, Stage};
use crate::controller::SharedController;
use crate::key_chain::KeyId;
use crate::settings;
use crate::settings::Keys;

/// A link, and what uses it.
struct World {
    start: Instant,
    now: Instant,
    link: BottleneckLink,
    ends: [End; 2],
    events: BinaryHeap<Reverse<(Instant, u64, Action)>>,
    count: u64,
    rival: Option<Rival>,
    random: Random,
    /// The receiver finds its core taken now and then, so long at most.
    nap_max: Duration,
    wakes: Option<Instant>,
}

/// One direction has all the properties, the way back only the delay.
#[derive(Clone, Copy)]
struct BottleneckLink {
    bytes_per_s: f64,
    delay: Duration,
    buffer_bytes: usize,
    loss: f64,
    /// Longer packets are dropped without a word.
    mtu: usize,
    /// Nothing passes until then.
    cut: Option<Instant>,
    /// Bytes that pass at once after silence.
    bucket_bytes: f64,
    /// When the link has carried what is in the buffer.
    free: Option<Instant>,
    lost: u64,
    carried: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Arrive { at: usize, bytes: Vec<u8> },
    Wake { end: usize },
    RivalHears { number: u64, arrived: bool },
}

/// One end of the connection.
struct End {
    endpoint: Endpoint,
    keys: Keys,
    known: Option<Path>,
    connection: Option<(ConnectionHandle, Connection)>,
    bytes: u64,
    /// Number of urgent messages received.
    words: u64,
    /// Bytes still to post.
    backlog: u64,
    wakes: Option<Instant>,
}

/// Packets that leave an end.
#[derive(Default)]
struct Out(Vec<Vec<u8>>);

impl Outlet for Out {
    fn is_stuck(&self) -> bool {
        false
    }

    fn batch_max(&self, packet_len: usize) -> usize {
        65_000 / packet_len
    }

    fn send(&mut self, transmit: Transmit, contents: &mut Vec<u8>) -> bool {
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        self.0.extend(contents[..transmit.size].chunks(segment).map(<[u8]>::to_vec));
        true
    }
}

impl World {
    fn new(link: BottleneckLink, known: Option<Path>, seed: u64) -> Self {
        let start = Instant::now();
        let end = |known| {
            let identity = Identity::of(&[7; 32].into(), 5);
            let keys = Keys::new(&identity).unwrap();
            let config = Arc::new(settings::endpoint([1, 2]));
            let endpoint = Endpoint::new(config, Some(keys.any_server()), true, Some([3; 32]));
            End {
                endpoint,
                keys,
                known,
                connection: None,
                bytes: 0,
                words: 0,
                backlog: 0,
                wakes: None,
            }
        };
        let mut world = Self {
            start,
            now: start,
            link,
            ends: [end(known), end(known)],
            events: BinaryHeap::new(),
            count: 0,
            rival: None,
            random: Random::new(seed),
            nap_max: Duration::ZERO,
            wakes: None,
        };
        let first = &mut world.ends[0];
        let controller = SharedController::new(known);
        let config = first.keys.client(&controller, known);
        let (handle, protocol) = first.endpoint.connect(start, config, address(1), "test").unwrap();
        let stage = Stage::Dialled { peer: PeerId(1), deadline: Duration::MAX };
        first.connection =
            Some((handle, Connection::new(protocol, 0, (stage, KeyId::Own), controller, start)));
        world.pump(0);
        world.until(|world| world.ends.iter().all(|end| end.is_up()));
        world
    }

    fn with_rival(mut self) -> Self {
        self.rival = Some(Rival {
            window: 10.0,
            greatest: 10.0,
            reduced: self.now,
            in_flight: 0,
            next: 0,
            arrived: 0,
            recovers_until: 0,
        });
        self.drive_rival();
        self
    }

    fn at(&mut self, when: Instant, action: Action) {
        self.count += 1;
        self.events.push(Reverse((when, self.count, action)));
    }

    /// Sends so many bytes over the bottleneck; when they arrive, if they do.
    fn cross(&mut self, bytes: usize) -> Option<Instant> {
        let is_lost = self.random.unit() < self.link.loss;
        let link = &mut self.link;
        let is_lost = is_lost || bytes > link.mtu || link.cut.is_some_and(|end| self.now < end);
        let earliest = self.now - Duration::from_secs_f64(link.bucket_bytes / link.bytes_per_s);
        let free = link.free.unwrap_or(earliest).max(earliest);
        let queued = free.saturating_duration_since(self.now).as_secs_f64() * link.bytes_per_s;
        if queued as usize + bytes > link.buffer_bytes || is_lost {
            link.lost += 1;
            return None;
        }
        link.carried += 1;
        let free = free + Duration::from_secs_f64(bytes as f64 / link.bytes_per_s);
        link.free = Some(free);
        Some(free.max(self.now) + link.delay)
    }

    fn pump(&mut self, index: usize) {
        let (now, end) = (self.now, &mut self.ends[index]);
        let mut out = Out::default();
        end.drive(now, &mut out);
        if let Some(next) = end.next()
            && end.wakes.is_none_or(|at| next < at || at <= now)
        {
            let next = next.max(now + Duration::from_micros(10));
            end.wakes = Some(next);
            self.at(next, Action::Wake { end: index });
        }
        for bytes in out.0 {
            // Headers of IP and UDP.
            let when = if index == 0 {
                self.cross(bytes.len() + 28)
            } else {
                Some(self.now + self.link.delay)
            };
            if let Some(when) = when {
                self.at(when, Action::Arrive { at: 1 - index, bytes });
            }
        }
    }

    fn step(&mut self) {
        let Reverse((when, _, action)) = self.events.pop().expect("something is always due");
        self.now = when;
        match action {
            Action::Arrive { at: 1, bytes } if self.wakes.is_some_and(|wakes| when < wakes) => {
                self.at(self.wakes.unwrap_or(when), Action::Arrive { at: 1, bytes });
            }
            Action::Arrive { at, bytes } => {
                if at == 1 && self.random.unit() < NAPS {
                    self.wakes = Some(when + self.nap_max.mul_f64(self.random.unit()));
                }
                let mut out = Out::default();
                self.ends[at].hear(when, 1 - at, &bytes, &mut out);
                assert!(out.0.is_empty());
                // What comes at once is served at once.
                let is_last = !matches!(self.events.peek(), Some(Reverse((next, _, Action::Arrive { .. })))
                    if *next <= when + WAKING);
                if is_last {
                    self.pump(at);
                }
            }
            Action::Wake { end } => {
                self.ends[end].wakes = None;
                self.pump(end);
            }
            Action::RivalHears { number, arrived } => {
                let round_trip = 2 * self.link.delay;
                if let Some(rival) = &mut self.rival {
                    rival.hear(when, number, arrived, round_trip);
                }
                self.drive_rival();
            }
        }
    }

    fn drive_rival(&mut self) {
        while let Some(rival) = &mut self.rival
            && (rival.in_flight as f64) < rival.window
        {
            let number = rival.next;
            rival.next += 1;
            rival.in_flight += 1;
            let arrival = self.cross(PACKET);
            // A loss is heard of by what arrives behind it.
            let behind = self.link.free.unwrap_or(self.now) + 2 * self.link.delay;
            let when = arrival.map_or(behind, |arrival| arrival + self.link.delay);
            self.at(when, Action::RivalHears { number, arrived: arrival.is_some() });
        }
    }

    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        while !is_so(self) {
            self.step();
            assert!(self.now - self.start < Duration::from_secs(120), "in vain for two minutes");
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        // Something happens at the end at the latest.
        self.at(end, Action::Wake { end: 0 });
        self.until(|world| world.now >= end);
    }

    /// Submits a message.
    fn send_later(&mut self, bytes: u64) {
        self.ends[0].backlog += bytes;
        self.pump(0);
    }

    /// Returns the traffic statistics of the sender.
    fn traffic(&self) -> Traffic {
        let (_, connection) = self.ends[0].connection.as_ref().expect("a connection");
        connection.controller.lock().model.traffic()
    }

    /// Sends a message and returns the time until it has arrived.
    fn send(&mut self, bytes: u64) -> Duration {
        let (begin, before) = (self.now, self.ends[1].bytes);
        self.send_later(bytes);
        self.until(|world| world.ends[1].bytes >= before + bytes);
        self.now - begin
    }

    /// Sends urgent messages one after the other during a bulk flow, and returns their sorted times.
    fn words_beside_bulk(&mut self, count: usize) -> Vec<Duration> {
        self.ends[0].backlog = u64::MAX / 2;
        self.pump(0);
        self.run_for(Duration::from_secs(2));
        let mut took: Vec<Duration> = (0..count)
            .map(|_| {
                self.run_for(self.link.delay);
                let (begin, before) = (self.now, self.ends[1].words);
                self.until(|world| world.post_word());
                self.until(|world| world.ends[1].words > before);
                self.now - begin
            })
            .collect();
        took.sort_unstable();
        took
    }

    /// Posts an urgent message before the waiting bulk data if there is room; otherwise runs the next event.
    fn post_word(&mut self) -> bool {
        let (_, connection) = self.ends[0].connection.as_mut().expect("a connection");
        let word = Frame { head: WORD.to_vec(), body: None, token: None };
        let is_posted = connection.outbox.post(&word, 0) == Post::Done;
        if is_posted {
            self.pump(0);
        }
        is_posted
    }

    /// Returns the bytes received within a time, as a share of what the link carries.
    fn goodput(&mut self, duration: Duration) -> f64 {
        self.ends[0].backlog = u64::MAX / 2;
        self.pump(0);
        let before = self.ends[1].bytes;
        self.run_for(duration);
        self.ends[0].backlog = 0;
        let bytes = self.ends[1].bytes - before;
        bytes as f64 / duration.as_secs_f64() / self.link.bytes_per_s
    }

    /// Sends a message, waits two seconds, and returns the ratio of its time to the limit.
    fn ratio_of(&mut self, bytes: u64) -> f64 {
        let ratio = self.send(bytes).as_secs_f64() / self.limit(bytes).as_secs_f64();
        self.run_for(Duration::from_secs(2));
        ratio
    }

    /// Returns the minimum time of a message.
    fn limit(&self, bytes: u64) -> Duration {
        let on_the_wire = bytes as f64 * 1500.0 / 1434.0;
        self.link.delay + Duration::from_secs_f64(on_the_wire / self.link.bytes_per_s)
    }
}

impl End {
    fn is_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|(_, connection)| connection.stream.is_some())
    }

    fn hear(&mut self, now: Instant, from: usize, bytes: &[u8], out: &mut Out) {
        let mut answer = Vec::new();
        let datagram = BytesMut::from(bytes);
        match self.endpoint.handle(now, address(from), None, None, datagram, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                let (_, connection) = self.connection.as_mut().expect("a connection");
                connection.protocol.handle_event(event);
                connection.stir();
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let controller = SharedController::new(self.known);
                let config = self.keys.server(&controller, self.known);
                let accepted = self.endpoint.accept(incoming, now, &mut answer, Some(config));
                let (handle, protocol) = accepted.expect("a good first packet");
                let stage = Stage::Handshake(Handshake::listen(Duration::MAX));
                self.connection = Some((
                    handle,
                    Connection::new(protocol, 0, (stage, KeyId::Own), controller, now),
                ));
            }
            Some(DatagramEvent::Response(transmit)) => {
                out.send(transmit, &mut answer);
            }
            None => {}
        }
    }

    fn next(&mut self) -> Option<Instant> {
        self.connection.as_mut()?.1.next()
    }

    fn drive(&mut self, now: Instant, out: &mut Out) {
        let Some((handle, connection)) = &mut self.connection else { return };
        if connection.protocol.poll_timeout().is_some_and(|due| due <= now) {
            connection.protocol.handle_timeout(now);
            connection.stir();
        }
        while let Some(event) = connection.protocol.poll() {
            match event {
                Event::Connected if matches!(connection.stage, Stage::Dialled { .. }) => {
                    connection.stream = connection.protocol.streams().open(Dir::Bi);
                    connection.send_message(&[0; 4]);
                }
                Event::Stream(StreamEvent::Opened { .. }) => {
                    connection.stream = connection.protocol.streams().accept(Dir::Bi);
                }
                Event::DatagramReceived => connection.take_duplicates(),
                Event::ConnectionLost { reason } => panic!("{reason}"),
                _ => {}
            }
        }
        while let Some(event) = connection.protocol.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.protocol.handle_event(event);
            }
        }
        let (bytes, words) = (&mut self.bytes, &mut self.words);
        let taken = connection.read(usize::MAX, &mut |frame| {
            *bytes += frame.len() as u64;
            *words += u64::from(frame.len() == WORD.len());
        });
        taken.expect("frames");
        connection.update_depth();
        while self.backlog > 0 && connection.stream.is_some() {
            let len = self.backlog.min(PIECE);
            let head = vec![7; len as usize];
            if connection.outbox.post(&Frame { head, body: None, token: None }, 0) == Post::Full {
                break;
            }
            self.backlog -= len;
            connection.pump(now, out, &mut Vec::new());
        }
        connection.pump(now, out, &mut Vec::new());
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, index as u8 + 1], 4000))
}

/// Rennes to Nancy with a fifth of the rate.
fn link() -> BottleneckLink {
    BottleneckLink {
        bytes_per_s: RATE,
        delay: Duration::from_micros(5800),
        buffer_bytes: 400_000,
        loss: 0.0,
        mtu: 1500,
        cut: None,
        bucket_bytes: 0.0,
        free: None,
        lost: 0,
        carried: 0,
    }
}

fn path(bytes_per_s: f64, round_trip: Duration) -> Path {
    Path { bytes_per_s, is_conclusive: false, round_trip }
}

fn known(link: &BottleneckLink) -> Option<Path> {
    Some(path(0.98 * link.bytes_per_s, 2 * link.delay))
}

const RATE: f64 = 25e6;
const PACKET: usize = 1500;
const PIECE: u64 = 64 << 10;
const WORD: [u8; 8] = [7; 8];
/// Packets with which a nap begins.
const NAPS: f64 = 0.02;
/// Packets that come so soon after one another are served together.
const WAKING: Duration = Duration::from_micros(60);

#[test]
fn a_bulk_flow_finds_the_rate_of_an_unknown_path_and_keeps_it() {
    let mut world = World::new(link(), None, 1);
    world.goodput(Duration::from_secs(1));
    let (lost, carried) = (world.link.lost, world.link.carried);
    let share = world.goodput(Duration::from_secs(2));
    println!("share {share:.3}");
    assert!(share > 0.88, "{share}");
    let lost = (world.link.lost - lost) as f64 / (world.link.carried - carried) as f64;
    assert!(lost < 0.02, "{lost}");
}

#[test]
fn messages_arrive_at_the_limit_on_a_known_path_even_after_silence() {
    let link = link();
    let mut world = World::new(link, known(&link), 2);
    for round in 0..3 {
        for bytes in [64 << 10, 512 << 10, 4 << 20] {
            world.run_for(Duration::from_secs(2));
            let (took, limit) = (world.send(bytes), world.limit(bytes));
            println!("{bytes} bytes: {took:?}, limit {limit:?}");
            let ratio = took.as_secs_f64() / limit.as_secs_f64();
            assert!(
                ratio < 1.10,
                "{bytes} bytes took {took:?} in round {round}, at best {limit:?}"
            );
        }
    }
}

#[test]
fn pauses_of_the_sender_do_not_change_the_estimate() {
    let link = link();
    let mut world = World::new(link, known(&link), 12);
    world.nap_max = Duration::from_millis(2);
    let (mut took, mut limit) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..60 {
        // Words are under way while the other end sends, and when the message begins to leave.
        for _ in 0..4 {
            world.send_later(1000);
            world.run_for(link.delay / 2);
        }
        took += world.send(256 << 10);
        limit += world.limit(256 << 10);
    }
    let ratio = took.as_secs_f64() / limit.as_secs_f64();
    println!("{ratio:.3} of the limit");
    assert!(ratio < 1.10, "{took:?}, at best {limit:?}");
}

#[test]
fn random_losses_cost_no_bandwidth() {
    for (seed, loss, least) in [(3, 0.001, 0.85), (4, 0.01, 0.55)] {
        let link = BottleneckLink { loss, ..link() };
        let mut world = World::new(link, known(&link), seed);
        let share = world.goodput(Duration::from_secs(3));
        println!("share {share:.3} with {loss} lost");
        assert!(share > least, "{share} with {loss} lost, seed {seed}");
    }
}

/// Sends messages one after the other and returns their sorted times.
fn one_by_one(world: &mut World, count: usize, bytes: u64) -> Vec<Duration> {
    let mut took: Vec<Duration> = (0..count)
        .map(|_| {
            let took = world.send(bytes);
            world.run_for(world.link.delay);
            took
        })
        .collect();
    took.sort_unstable();
    took
}

#[test]
fn messages_of_which_packets_are_lost_take_a_round_trip_more() {
    for (seed, bytes, is_known) in [(31, 64 << 10, false), (32, 1 << 20, true), (33, 4 << 20, true)]
    {
        let link = BottleneckLink { loss: 0.01, ..far(1000, 11_600) };
        let known = known(&link).filter(|_| is_known);
        let mut world = World::new(link, known, seed);
        let took = one_by_one(&mut world, 30, bytes);
        let (limit, repair) = (world.limit(bytes), 2 * link.delay);
        println!("{bytes} bytes: {:?}, {:?}, limit {limit:?}", took[15], took[27]);
        assert!(took[15] < limit + repair.mul_f64(1.1), "{:?}, seed {seed}", took[15]);
        assert!(took[27] < limit + repair.mul_f64(2.5), "{:?}, seed {seed}", took[27]);
    }
}

#[test]
fn the_loss_of_the_last_packet_is_detected_as_soon_as_any_other() {
    for (seed, bytes) in [(34, 100), (35, 20_000)] {
        let link = BottleneckLink { loss: 0.02, ..far(1000, 11_600) };
        let mut world = World::new(link, known(&link), seed);
        one_by_one(&mut world, 200, bytes);
        let took = one_by_one(&mut world, 400, bytes);
        let (limit, repair) = (world.limit(bytes), 2 * link.delay);
        println!("{bytes} bytes: {:?}, {:?}, limit {limit:?}", took[200], took[396]);
        assert!(took[396] < limit + repair.mul_f64(1.3), "{:?}, seed {seed}", took[396]);
    }
}

#[test]
fn losses_and_queueing_are_counted() {
    for (seed, loss) in [(15, 0.0), (16, 0.001), (17, 0.01)] {
        let link = BottleneckLink { loss, ..link() };
        let mut world = World::new(link, known(&link), seed);
        world.send(32 << 20);
        let seen = world.traffic().loss().expect("enough was sent");
        println!("{seen:.5} of {loss} lost, seed {seed}");
        assert!(seen >= loss / 2.0 && seen <= loss * 2.0, "{seen} of {loss} lost, seed {seed}");
        assert!(world.traffic().queue_bytes() <= link.buffer_bytes as u64);
        let chance = world.traffic().chance().expect("enough was sent");
        println!("{chance:.5} by chance");
        assert!(
            chance >= loss / 2.5 && chance <= seen,
            "{chance} of {loss} by chance, seed {seed}"
        );
    }
    // Who is told of twice the rate fills the buffer.
    let link = link();
    let fast = BottleneckLink { bytes_per_s: 2.0 * RATE, ..link };
    let mut world = World::new(link, known(&fast), 18);
    world.send(16 << 20);
    let queue = world.traffic().queue_bytes();
    println!("{queue} of {} bytes waited", link.buffer_bytes);
    let most = link.buffer_bytes as u64;
    assert!((most / 4..=most).contains(&queue), "{queue} of {most} bytes");
    let (seen, chance) = (world.traffic().loss().unwrap(), world.traffic().chance().unwrap());
    println!("{seen:.5} lost where the buffer overflowed, {chance:.5} by chance");
    assert!(chance < 0.001 && seen > 2.0 * chance, "{chance} of {seen} by chance, seed 18");
}

#[test]
fn an_urgent_message_does_not_wait_long_behind_bulk() {
    for (seed, loss, usual, most) in [(21, 0.0, 2.6, 4.0), (23, 0.001, 4.0, 9.0)] {
        let link = BottleneckLink { loss, ..far(200, 11_600) };
        let mut world = World::new(link, known(&link), seed);
        let took = world.words_beside_bulk(40);
        let ways = |took: Duration| took.as_secs_f64() / link.delay.as_secs_f64();
        let (median, late) = (ways(took[20]), ways(took[37]));
        println!("{median:.2} and {late:.2} ways with {loss} lost");
        assert!(median < usual, "{median} ways with {loss} lost, seed {seed}");
        assert!(late < most, "{late} ways with {loss} lost, seed {seed}");
    }
}

#[test]
fn a_path_that_became_slower_is_followed() {
    let fast = link();
    let slow = BottleneckLink { bytes_per_s: RATE / 8.0, ..fast };
    let mut world = World::new(slow, known(&fast), 5);
    world.goodput(Duration::from_secs(2));
    let (lost, carried) = (world.link.lost, world.link.carried);
    let share = world.goodput(Duration::from_secs(3));
    assert!(share > 0.85, "{share}");
    let lost = (world.link.lost - lost) as f64 / (world.link.carried - carried) as f64;
    assert!(lost < 0.03, "{lost}");
}

#[test]
fn a_path_that_became_faster_is_followed() {
    let slow = link();
    let fast =
        BottleneckLink { bytes_per_s: RATE * 2.0, buffer_bytes: 2 * slow.buffer_bytes, ..slow };
    let mut world = World::new(fast, known(&slow), 6);
    world.goodput(Duration::from_secs(3));
    let share = world.goodput(Duration::from_secs(2));
    assert!(share > 0.85, "{share}");
}

#[test]
fn the_estimate_of_a_starved_job_is_ignored() {
    // Between two processes of a host, and far away.
    for (seed, delay) in [(8, Duration::from_micros(10)), (9, Duration::from_micros(5800))] {
        let link = BottleneckLink { delay, ..link() };
        let starved = path(100_000.0, 2 * delay);
        let mut world = World::new(link, Some(starved), seed);
        world.goodput(Duration::from_secs(1));
        let share = world.goodput(Duration::from_secs(2));
        println!("share {share:.3}, {delay:?} away");
        assert!(share > 0.8, "{share}, {delay:?} away, seed {seed}");
    }
}

#[test]
fn a_competing_flow_keeps_its_share() {
    for buffer_bytes in [30_000, 80_000, 200_000] {
        let link = BottleneckLink { bytes_per_s: RATE / 5.0, buffer_bytes, ..link() };
        let mut world = World::new(link, known(&link), 7).with_rival();
        world.goodput(Duration::from_secs(5));
        let before = world.rival.as_ref().map_or(0, |rival| rival.arrived);
        let duration = Duration::from_secs(15);
        let own = world.goodput(duration);
        let arrived = world.rival.as_ref().map_or(0, |rival| rival.arrived) - before;
        let others = arrived as f64 * PACKET as f64 / duration.as_secs_f64() / link.bytes_per_s;
        println!("buffer {buffer_bytes}: own {own:.3}, the other's {others:.3}");
        assert!(others > 0.15, "{others} beside {own} with {buffer_bytes} of buffer");
        assert!(own > 0.15, "{own} beside {others} with {buffer_bytes} of buffer");
    }
}

#[test]
fn a_flow_that_comes_later_gets_its_share() {
    for buffer_bytes in [300_000, 400_000] {
        let link = BottleneckLink { buffer_bytes, ..far(200, 11_600) };
        let mut world = World::new(link, known(&link), 7);
        world.goodput(Duration::from_secs(1));
        let mut world = world.with_rival();
        let duration = Duration::from_secs(10);
        let own = world.goodput(duration);
        let arrived = world.rival.as_ref().map_or(0, |rival| rival.arrived);
        let others = arrived as f64 * PACKET as f64 / duration.as_secs_f64() / link.bytes_per_s;
        println!("buffer {buffer_bytes}: own {own:.3}, the other's {others:.3}");
        assert!(others > 0.35, "{others} beside {own} with {buffer_bytes} of buffer");
        assert!(own > 0.35, "{own} beside {others} with {buffer_bytes} of buffer");
    }
}

#[test]
fn dropped_packets_are_retransmitted_at_the_reduced_pace() {
    let link = BottleneckLink { buffer_bytes: 40_000, ..link() };
    let mut world = World::new(link, None, 8);
    let took = world.send(8 << 20);
    println!("8 MB took {took:?}, limit {:?}", world.limit(8 << 20));
    assert!(took < 6 * world.limit(8 << 20), "{took:?}");
    assert_eq!(world.ends[1].bytes, 8 << 20);
}

#[test]
fn a_smaller_path_mtu_is_discovered() {
    let link = link();
    let mut world = World::new(link, known(&link), 9);
    world.send(4 << 20);
    world.link.mtu = 1280;
    let took = world.send(4 << 20);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let took = world.send(4 << 20);
    assert!(took < 2 * world.limit(4 << 20), "{took:?}");
}

#[test]
fn an_outage_costs_time_but_no_message() {
    for cut in [200, 2000, 20_000] {
        let link = link();
        let mut world = World::new(link, known(&link), 10);
        world.send(1 << 20);
        let cut = Duration::from_millis(cut);
        world.link.cut = Some(world.now + cut);
        let took = world.send(1 << 20);
        assert!(took < cut + Duration::from_millis(700), "{took:?} with a cut of {cut:?}");
        let took = world.send(4 << 20);
        assert!(took < 2 * world.limit(4 << 20), "{took:?} after a cut of {cut:?}");
    }
}

/// A link with the buffer of the lab.
fn far(rate_mbit_per_s: u64, round_trip_us: u64) -> BottleneckLink {
    let delay = Duration::from_micros(round_trip_us / 2);
    BottleneckLink {
        bytes_per_s: rate_mbit_per_s as f64 / 8e-6,
        delay,
        buffer_bytes: 2_000_000,
        ..link()
    }
}

/// Times of messages over long links, relative to the limit: on a new connection, behind others on it, and after
/// silence on a known path.
fn table() -> String {
    let mut text = String::from(
        "# round trip, rate: the first message of a connection to an unknown path, of 64 KB and of 1 MB; there the second and\n\
         # the tenth of 1 MB, each after 2 s of silence; 64 KB and 1 MB after 2 s of silence on a known path, the longest of\n\
         # three; times the limit\n",
    );
    for rate in [100, 1000, 10_000] {
        for round_trip_us in [1000, 11_600, 50_000, 100_000, 300_000] {
            let link = far(rate, round_trip_us);
            let [short, long] = SIZES;
            let first = World::new(link, None, 13).ratio_of(short);
            let mut world = World::new(link, None, 13);
            let fresh: Vec<f64> = (0..10).map(|_| world.ratio_of(long)).collect();
            let mut world = World::new(link, known(&link), 14);
            world.run_for(Duration::from_secs(2));
            let silent =
                SIZES.map(|bytes| (0..3).map(|_| world.ratio_of(bytes)).fold(0.0, f64::max));
            let link = format!("{:>6} ms {rate:>6} Mb/s", round_trip_us as f64 / 1e3);
            text.push_str(&format!(
                "{link}: {first:>6.2} {:>6.2}   {:>6.2} {:>6.2}   {:>6.2} {:>6.2}\n",
                fresh[0], fresh[1], fresh[9], silent[0], silent[1],
            ));
            assert!(silent.iter().all(|ratio| *ratio < 1.10), "{link}: {silent:?}");
        }
    }
    text
}

#[test]
fn times_over_long_links_are_those_of_the_snapshot() {
    expect_file!["./bottleneck.txt"].assert_eq(&table());
}

const SIZES: [u64; 2] = [64 << 10, 1 << 20];
