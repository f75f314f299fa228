//! Exchange of messages between two engines: callgrind counts the engine's instructions for a
//! message of a given length.
//!
//! Usage: `exchange plain|kept|twins ROUNDS BYTES`: over a link without replay, one whose frames
//! are stored until acknowledged, or two of these.

use cost::Cost;
use engine::{Config, Engine, Envelope, Outcome, Posted, Selector, SendMode};
use memory::Region;
use wire::{Capabilities, Frame, PeerId, RailId};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, rounds, bytes] = &arguments[..] else { panic!("exchange KIND ROUNDS BYTES") };
    let (rounds, bytes): (u32, usize) = (rounds.parse().unwrap(), bytes.parse().unwrap());
    let (links, replay) = match &kind[..] {
        "plain" => (1, false),
        "kept" => (1, true),
        "twins" => (2, true),
        other => panic!("no kind of links: {other}"),
    };
    let mut ends = [Endpoint::new(0), Endpoint::new(1)];
    for link in 0..links {
        for end in &mut ends {
            end.engine.handle_up(end.peer, RailId(link), Capabilities { replay, ..LAN });
            end.engine.handle_cost(
                end.peer,
                RailId(link),
                Cost::linear(15_000, 2_000, 1_200_000_000),
            );
        }
    }
    let data = Region::owned(bytes);
    for _ in 0..2 * links {
        settle(&mut ends);
    }
    for round in 0..rounds {
        let (from, to) = (round as usize % 2, 1 - round as usize % 2);
        let selector = Selector { context: 0, source: Some(from as u32), tag: Some(7) };
        let receive = ends[to].engine.submit_receive(Some(ends[to].peer), selector, &data);
        ends[from].send(&data);
        let end = loop {
            settle(&mut ends);
            if let Some(end) = ends[to].engine.take(receive) {
                break end;
            }
        };
        assert_eq!((end.bytes, end.outcome), (bytes as u64, Outcome::Ok));
    }
}

/// A process and its posted receives.
struct Endpoint {
    engine: Engine,
    peer: PeerId,
    frame: Frame,
    posted: Vec<(RailId, Vec<u8>)>,
    now_ns: u64,
}

impl Endpoint {
    fn new(rank: u32) -> Self {
        let engine = Engine::new(Config::new(2));
        Self {
            engine,
            peer: PeerId(1 - rank),
            frame: Frame::default(),
            posted: Vec::new(),
            now_ns: 0,
        }
    }

    fn send(&mut self, data: &Region) {
        let envelope = Envelope { context: 0, source: 1 - self.peer.0, tag: 7, is_urgent: false };
        match self.engine.submit_short(self.peer, envelope, data, &mut self.frame) {
            Some(rail) => self.post(rail),
            None => {
                let op = self.engine.submit_send(self.peer, envelope, data, SendMode::Standard);
                self.engine.release(op);
            }
        }
    }

    /// Accepts every frame, as a rail.
    fn post(&mut self, rail: RailId) {
        let mut bytes = self.frame.head.clone();
        if let Some(body) = &self.frame.body {
            bytes.extend(body.region.to_vec());
        }
        self.posted.push((rail, bytes));
        self.engine.handle_posted(self.peer, rail, &mut self.frame, Posted::Done);
    }

    /// Handles completions like `progress`.
    fn flush(&mut self) {
        if self.engine.wants_time() {
            self.now_ns += 20_000;
            assert_eq!(self.engine.handle_time(self.now_ns), None);
        }
        while self.engine.poll_connect().is_some() {}
        while let Some((peer, rail)) = self.engine.poll_peer() {
            while self.engine.poll_frame(peer, rail, &mut self.frame) {
                self.post(rail);
            }
        }
    }
}

fn settle(ends: &mut [Endpoint; 2]) {
    for at in 0..2 {
        ends[at].flush();
        let peer = ends[1 - at].peer;
        for (rail, bytes) in std::mem::take(&mut ends[at].posted) {
            ends[1 - at].engine.handle_frame(peer, rail, &bytes).expect("engines send frames");
            ends[1 - at].flush();
        }
    }
}

/// A local network.
const LAN: Capabilities = Capabilities {
    frame_max: 256 << 10,
    inline_max: 8 << 10,
    eager_max: 64 << 10,
    rts_data_max: 0,
    aggregate_max: 64 << 10,
    piece_min: 64 << 10,
    piece_max: 64 << 10,
    credit_bytes: 64 << 10,
    credit_wanted: 4 << 20,
    remote_read: false,
    adapts: true,
    replay: false,
    reopens: false,
    copies: false,
    passes: false,
};
