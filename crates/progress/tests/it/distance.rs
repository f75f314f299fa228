//! Times of the engine over long links, in virtual time, compared with a snapshot.
//!
//! The links have round trips of 1 to 300 ms and rates of 100 Mb/s to 10 Gb/s. The table holds half a round trip of
//! two ranks, and of 200 messages of 1 MB to and fro. Each time is divided by the least that the link allows.
//!
//! The engine is the real one, with its replay buffer, credit, thresholds and strategies. The simulated network gives
//! it the time and carries frames at the link's rate. The engine gets the link's cost, as from a rail that has
//! measured it. The rails' own mechanisms, such as congestion control, are left out.
//!
//! `UPDATE_EXPECT=1 cargo test -p progress --test it distance` writes the snapshot anew.

use std::fmt::Write;
use std::time::Duration;

use engine::{BUDGET_BYTES, Config, Engine, Envelope, OpId, Outcome, Posted, Selector, SendMode};
use expect_test::expect_file;
use memory::Region;
use rail::{Event, Post, Rail, SimNetwork, SimPath, SimRail};
use wire::{Capabilities, FIRST_CREDIT_BYTES, Frame, PeerId, RailId};

/// A rank, and its end of the link.
struct Endpoint {
    engine: Engine,
    rail: SimRail,
    frame: Frame,
}

impl Endpoint {
    fn peer(&self) -> PeerId {
        PeerId(1 - u32::from_le_bytes(self.rail.address().try_into().expect("a rank")))
    }

    /// Handles events and sends the frames that follow, as `progress` does; true if there was an event.
    fn advance(&mut self, now: Duration, path: &SimPath) -> bool {
        let Self { engine, rail, .. } = self;
        let moved = rail.poll(&mut |event| match event {
            Event::Up { peer, capabilities } => {
                engine.handle_up(peer, RAIL, capabilities);
                engine.handle_cost(peer, RAIL, path.cost());
            }
            Event::Frame { peer, bytes } => {
                engine.handle_frame(peer, RAIL, bytes).expect("a sound frame");
            }
            // Frames come whole on links with credit.
            Event::Begun { .. } => {}
            Event::Sent { peer, token } => engine.handle_sent(peer, RAIL, token),
            Event::Room { peer } => engine.handle_room(peer, RAIL),
            other => panic!("{other:?}"),
        });
        if engine.wants_time() {
            let overdue = engine.handle_time(now.as_nanos() as u64);
            assert!(overdue.is_none(), "nothing is late");
        }
        self.flush();
        moved
    }

    fn flush(&mut self) {
        let Self { engine, rail, frame } = self;
        while let Some(peer) = engine.poll_connect() {
            rail.connect(peer, &peer.0.to_le_bytes()).expect("a link");
        }
        while let Some((peer, rail_id)) = engine.poll_peer() {
            while engine.poll_frame(peer, rail_id, frame) {
                let posted = match rail.post(peer, frame) {
                    Post::Done => Posted::Done,
                    Post::Held => Posted::Held,
                    Post::Full => Posted::Full,
                };
                engine.handle_posted(peer, rail_id, frame, posted);
                if posted == Posted::Full {
                    break;
                }
            }
        }
    }

    fn send(&mut self, data: &Region) -> OpId {
        let op = self.engine.submit_send(self.peer(), ENVELOPE, data, SendMode::Standard);
        self.flush();
        op
    }

    fn receive(&mut self, into: &Region) -> OpId {
        let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
        let op = self.engine.submit_receive(Some(self.peer()), selector, into);
        self.flush();
        op
    }

    /// True if the operation has ended; it is then removed.
    fn has_ended(&mut self, op: &mut Option<OpId>) -> bool {
        let Some(completion) = op.and_then(|op| self.engine.take(op)) else { return op.is_none() };
        assert_eq!(completion.outcome, Outcome::Ok);
        *op = None;
        true
    }
}

/// Two ranks, and a link between them.
struct RankPair {
    network: SimNetwork,
    path: SimPath,
    ends: [Endpoint; 2],
    /// The second rank's send, if it has not ended.
    answer: Option<OpId>,
}

impl RankPair {
    fn new(round_trip: Duration, bits_per_s: u64, budget_bytes: usize) -> Self {
        Self::with(round_trip, bits_per_s, budget_bytes, CAPABILITIES)
    }

    fn with(
        round_trip: Duration,
        bits_per_s: u64,
        budget_bytes: usize,
        capabilities: Capabilities,
    ) -> Self {
        let bytes_per_s = bits_per_s / 8;
        let in_flight = (round_trip.as_secs_f64() * bytes_per_s as f64) as usize;
        let path = SimPath {
            latency: round_trip / 2,
            bandwidth_bytes_per_s: Some(bytes_per_s),
            // The link never runs dry, and its window never limits.
            depth: 4,
            window_bytes: 2 * in_flight + (4 << 20),
            capabilities,
            ..SimPath::default()
        };
        let network = SimNetwork::new(1);
        network.set_usual_path(path.clone());
        let end = |rank| Endpoint {
            engine: Engine::new(Config { budget_bytes, ..Config::new(2) }),
            rail: network.rail(PeerId(rank)),
            frame: Frame::default(),
        };
        let ends = [end(0), end(1)];
        Self { network, path, ends, answer: None }
    }

    /// Advances time to the next event, and handles all that follows at that instant.
    fn step(&mut self) {
        assert!(self.network.step(), "all waits for nothing");
        let now = self.network.now();
        loop {
            let moved = self.ends.each_mut().map(|end| end.advance(now, &self.path));
            if !moved.contains(&true) {
                return;
            }
        }
    }

    /// Exchanges a message there and back, as two MPI ranks do, and returns half of the time.
    fn exchange(&mut self, data: &Region, [there, back]: &[Region; 2]) -> Duration {
        let begin = self.network.now();
        let mut sent = Some(self.ends[0].send(data));
        let (mut came, mut came_back) = (None, None);
        let mut is_answered = false;
        loop {
            // Each rank does one operation after the other.
            if came.is_none() && !is_answered && self.ends[1].has_ended(&mut self.answer) {
                came = Some(self.ends[1].receive(there));
            }
            if came.is_some() && self.ends[1].has_ended(&mut came) {
                (self.answer, is_answered) = (Some(self.ends[1].send(there)), true);
            }
            if sent.is_some() && self.ends[0].has_ended(&mut sent) {
                came_back = Some(self.ends[0].receive(back));
            }
            if came_back.is_some() && self.ends[0].has_ended(&mut came_back) {
                return (self.network.now() - begin) / 2;
            }
            self.step();
        }
    }

    /// Least time that the link allows.
    fn limit(&self, bytes: usize) -> Duration {
        let bytes_per_s = self.path.bandwidth_bytes_per_s.expect("a rate");
        self.path.latency + Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64)
    }
}

/// Returns bytes that no strategy can compress (SplitMix64; Steele, Lea, Flood 2014).
fn noise(bytes: usize) -> Region {
    let word = |number: u64| {
        let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    };
    Region::from_box((0..bytes as u64 / 8).flat_map(word).collect())
}

/// Data of the messages, and the buffers that receive them.
struct Memory {
    data: Region,
    into: [Region; 2],
}

impl Memory {
    fn new() -> Self {
        Self { data: noise(LONGEST), into: [Region::owned(LONGEST), Region::owned(LONGEST)] }
    }

    fn of(&self, bytes: usize) -> (Region, [Region; 2]) {
        (self.data.slice(0, bytes), self.into.each_ref().map(|region| region.slice(0, bytes)))
    }
}

/// Exchanges messages of one size; returns the first time and the longest later one, divided by the limit.
fn pingpong(pair: &mut RankPair, memory: &Memory, bytes: usize) -> [f64; 2] {
    let (data, into) = memory.of(bytes);
    let limit = pair.limit(bytes).as_secs_f64();
    let times = [(); EXCHANGES].map(|()| pair.exchange(&data, &into).as_secs_f64() / limit);
    [times[0], times[1..].iter().copied().fold(0.0, f64::max)]
}

/// Exchanges messages to and fro on a new link; returns the time divided by the limit.
fn row(pair: &mut RankPair, memory: &Memory) -> f64 {
    let (data, into) = memory.of(ROW_BYTES);
    let took: Duration = (0..ROW).map(|_| pair.exchange(&data, &into)).sum();
    took.as_secs_f64() / (f64::from(ROW) * pair.limit(ROW_BYTES).as_secs_f64())
}

/// Sends messages at once on a used link; returns the time until the last has come, divided by the limit.
fn flood(pair: &mut RankPair, memory: &Memory) -> f64 {
    let (data, [into, _]) = memory.of(ROW_BYTES);
    let begin = pair.network.now();
    let mut receives: Vec<_> = (0..FLOOD).map(|_| Some(pair.ends[1].receive(&into))).collect();
    let mut sends: Vec<_> = (0..FLOOD).map(|_| Some(pair.ends[0].send(&data))).collect();
    while !receives.iter_mut().all(|receive| pair.ends[1].has_ended(receive)) {
        pair.step();
    }
    let took = pair.network.now() - begin;
    while !sends.iter_mut().all(|send| pair.ends[0].has_ended(send)) {
        pair.step();
    }
    took.as_secs_f64() / pair.limit(FLOOD * ROW_BYTES).as_secs_f64()
}

/// Most bytes sent before a CTS on any link: half of what the receiver accepts.
fn rts_data_max(budget_bytes: usize) -> usize {
    (budget_bytes / 4 / 2).max(32 << 20)
}

/// Bandwidth-delay product of a link, in bytes.
fn in_flight(bits_per_s: u64, round_trip_us: u64) -> usize {
    (bits_per_s / 8 * round_trip_us / 1_000_000) as usize
}

fn table() -> String {
    let mut text = String::from(
        "# round trip, rate: bytes, the first exchange and the longest of those after it, times the limit;\n\
         # messages to and fro on a link that has carried nothing; messages at once, one way\n",
    );
    let memory = Memory::new();
    for rate in RATES {
        for round_trip_us in ROUND_TRIPS_US {
            let link = format!("{:>6} ms {:>6} Mb/s", round_trip_us as f64 / 1e3, rate / 1_000_000);
            let new = || RankPair::new(Duration::from_micros(round_trip_us), rate, BUDGET_BYTES);
            let mut pair = new();
            for bytes in SIZES {
                let [first, later] = pingpong(&mut pair, &memory, bytes);
                let _ = writeln!(text, "{link}: {bytes:>9} {first:>8.3} {later:>8.3}");
                assert!(later > 0.999, "{link}: {bytes} bytes arrive before they can");
                let in_flight = in_flight(rate, round_trip_us);
                let is_ahead = bytes.min(in_flight) <= rts_data_max(BUDGET_BYTES);
                assert!(later < 1.10 || !is_ahead, "{link}: {bytes} bytes take {later}");
            }
            let (row, flood) = (row(&mut new(), &memory), flood(&mut pair, &memory));
            let _ = writeln!(text, "{link}: {ROW} x {ROW_BYTES} {row:>8.3}");
            let _ = writeln!(text, "{link}: {FLOOD} at once {flood:>8.3}");
            assert!(row < 1.10, "{link}: {ROW} messages take {row}");
            let is_under_way = in_flight(rate, round_trip_us) <= 2 * rts_data_max(BUDGET_BYTES);
            assert!(flood < 1.10 || !is_under_way, "{link}: {FLOOD} messages at once take {flood}");
        }
    }
    let _ = writeln!(
        text,
        "# the same where unmatched messages may take 1 GiB (CANELE_UNMATCHED_BYTES)"
    );
    let rate = RATES[2];
    for round_trip_us in ROUND_TRIPS_US {
        let mut pair = RankPair::new(Duration::from_micros(round_trip_us), rate, 1 << 30);
        let link = format!("{:>6} ms {:>6} Mb/s", round_trip_us as f64 / 1e3, rate / 1_000_000);
        let [first, later] = pingpong(&mut pair, &memory, LONGEST);
        let _ = writeln!(text, "{link}: {LONGEST:>9} {first:>8.3} {later:>8.3}");
        let flood = flood(&mut pair, &memory);
        let _ = writeln!(text, "{link}: {FLOOD} at once {flood:>8.3}");
        assert!(later < 1.10 && flood < 1.10, "{link}: {later}, {flood}");
    }
    thresholds(&mut text, &memory);
    text
}

/// Adds times over a link of 11.6 ms and 1 Gb/s with fixed eager thresholds (table 5 of Hablot et al., 2007).
///
/// The last rows have the threshold that the engine derives from the link.
fn thresholds(text: &mut String, memory: &Memory) {
    let (round_trip, rate) = (Duration::from_micros(ROUND_TRIPS_US[1]), RATES[1]);
    text.push_str("# 11.6 ms, 1000 Mb/s, a message that finds its receive: fixed eager threshold: bytes, times the limit\n");
    let mut write = |name: &str, bytes: usize, capabilities| {
        let mut pair = RankPair::with(round_trip, rate, BUDGET_BYTES, capabilities);
        // Another message opens the link.
        pingpong(&mut pair, memory, 1);
        let [_, later] = pingpong(&mut pair, memory, bytes);
        let _ = writeln!(text, "{name:>9}: {bytes:>9} {later:>8.3}");
        later
    };
    for threshold in THRESHOLDS {
        for bytes in THRESHOLD_SIZES {
            let rts_data_max = if bytes <= threshold { threshold } else { 0 };
            let eager_max = CAPABILITIES.eager_max.min(threshold);
            let credit_bytes = 4 * LONGEST;
            let fixed = Capabilities {
                eager_max,
                rts_data_max,
                credit_bytes,
                adapts: false,
                ..CAPABILITIES
            };
            write(&threshold.to_string(), bytes, fixed);
        }
    }
    for bytes in THRESHOLD_SIZES {
        let later = write("automatic", bytes, CAPABILITIES);
        assert!(later < 1.10, "{bytes} bytes take {later}");
    }
}

#[test]
fn times_over_long_links_match_the_snapshot() {
    expect_file!["./distance.txt"].assert_eq(&table());
}

const RAIL: RailId = RailId(0);
const ENVELOPE: Envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };

/// Capabilities of a TCP link before it is measured.
const CAPABILITIES: Capabilities = Capabilities {
    frame_max: 256 << 10,
    inline_max: 8 << 10,
    eager_max: 64 << 10,
    rts_data_max: 2 << 20,
    aggregate_max: 64 << 10,
    piece_min: 64 << 10,
    piece_max: 64 << 10,
    credit_bytes: FIRST_CREDIT_BYTES,
    credit_wanted: 4 << 20,
    remote_read: false,
    adapts: true,
    replay: false,
    reopens: true,
    copies: false,
    passes: false,
};

const ROUND_TRIPS_US: [u64; 5] = [1000, 11_600, 50_000, 100_000, 300_000];
const RATES: [u64; 3] = [100_000_000, 1_000_000_000, 10_000_000_000];
const SIZES: [usize; 8] = [1, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, LONGEST];
const LONGEST: usize = 64 << 20;
const THRESHOLDS: [usize; 4] = [64 << 10, 256 << 10, 4 << 20, LONGEST];
const THRESHOLD_SIZES: [usize; 4] = [64 << 10, 1 << 20, 4 << 20, LONGEST];
const EXCHANGES: usize = 3;
const ROW: u32 = 200;
const ROW_BYTES: usize = 1_000_000;
const FLOOD: usize = 200;
