//! Engines over simulated links, in virtual time.
//!
//! A [`Network`] owns the engines of a job, moves their frames over links of a given [`Shape`] and
//! decides by its seed whatever the real world decides by chance: how soon a process looks at its
//! engine, whether a rail copies a frame or holds it, when it has no room, which of two links a frame
//! takes. Time is counted, never waited for.
//!
//! Every completion is checked as it comes: a receive against the reference model of matching, which
//! sees the same packets, and byte by byte against what the sender sent; a synchronous send against
//! the model's word that it was matched. The memory of a completed send is overwritten at once, so
//! that whoever reads it later sends garbage.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part of the harness")]

mod agenda;
mod check;
mod mangle;
mod random;
mod reference;

use std::collections::{BTreeMap, BTreeSet};

use engine::strategy::{self, Strategy};
use engine::{
    Completion, Config, Counters, Engine, Envelope, MatchedId, Message, OpId, Outcome, PeerError,
    Posted, PullId, Selector, SendMode,
};
use memory::{Region, Span};
use wire::packet::{self, Packet};
use wire::{Capabilities, Cost, Frame, FrameToken, GateId, HostCost, RailId, RemoteRegion};

use agenda::Agenda;
use check::{UNTOUCHED, overlaps};
pub use mangle::{corpus, mutate};
pub use random::{Random, for_seeds};
use reference::{Reference, Waiting};

/// What a pair of processes has between them.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// One way, in nanoseconds.
    pub latency_ns: u64,
    /// Added to the latency of each frame, at most, in nanoseconds.
    pub jitter_ns: u64,
    pub bytes_per_us: u64,
    /// Frames a link takes before it says that it is full.
    pub depth: usize,
    /// Links between the two; they open one after the other.
    pub links: usize,
    pub capabilities: Capabilities,
    /// Whether a fetch succeeds where the link allows one.
    pub pull_works: bool,
    /// What the messages are made of.
    pub content: Content,
}

/// How well messages can be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Not at all.
    Dense,
    /// To a third and less.
    Sparse,
    /// Some well, some not, some in part.
    Mixed,
}

/// A link with small thresholds, so that small scenarios meet all of them.
pub const NEAR: Shape = Shape {
    latency_ns: 1_000,
    jitter_ns: 0,
    bytes_per_us: 10_000,
    depth: 4,
    links: 1,
    capabilities: Capabilities {
        frame_max: 4096,
        inline_max: 256,
        eager_max: 1024,
        ahead_max: 0,
        piece_min: 256,
        credit_bytes: 16 << 10,
        credit_wanted: 16 << 10,
        pull: false,
        adapts: false,
        replay: false,
    },
    pull_works: false,
    content: Content::Dense,
};

/// A slow line between sites, which says what it costs.
pub const SLOW: Shape = Shape {
    latency_ns: 1_000_000,
    bytes_per_us: 10,
    capabilities: Capabilities {
        frame_max: 40 << 10,
        credit_bytes: 64 << 10,
        adapts: true,
        ..NEAR.capabilities
    },
    content: Content::Mixed,
    ..NEAR
};

/// Where asking takes long.
pub const AHEAD: Shape = Shape {
    latency_ns: 100_000,
    capabilities: Capabilities { ahead_max: 6000, ..NEAR.capabilities },
    ..NEAR
};

/// What each process has for unmatched messages beyond what links accept from the beginning.
pub const BUDGET_BYTES: usize = 80 << 10;

/// The first link's rail.
pub const RAIL: RailId = RailId(0);

/// A submitted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    rank: usize,
    index: usize,
}

/// A send, said in full.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub to: usize,
    pub context: u64,
    pub tag: i32,
    pub bytes: usize,
    pub mode: SendMode,
}

/// A receive, said in full.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    pub source: Option<usize>,
    pub context: u64,
    pub tag: Option<i32>,
    pub capacity: usize,
}

/// Rewrites a frame on its way: what is delivered instead.
pub type Tamper = Box<dyn FnMut(&mut Random, Vec<u8>) -> Vec<Vec<u8>>>;

pub struct Network {
    pub random: Random,
    pub now_ns: u64,
    /// What engines said of their peers: (who, of whom, what).
    pub accusations: Vec<(usize, usize, PeerError)>,
    /// How many fetches were tried.
    pub fetches: u64,
    /// How many messages were sent without an operation.
    pub short_sends: u64,
    /// How many were gathered.
    pub gathered_sends: u64,
    /// How many links were closed for being late.
    pub late_links: u64,
    /// Every frame delivered, if asked for.
    pub record: Option<Vec<Vec<u8>>>,
    processes: Vec<Process>,
    shapes: BTreeMap<(usize, usize), Shape>,
    default_shape: Shape,
    ways: BTreeMap<(usize, usize), Way>,
    messages: Vec<Sent>,
    /// Messages by sender, receiver and context, in the order of their submission.
    order: BTreeMap<(usize, usize, u64), Vec<usize>>,
    /// Numbered frames that have come, by sender and receiver.
    numbers: BTreeSet<(usize, usize, u32)>,
    /// Memory that rails hold: whose, and where it lies.
    held: Vec<(usize, FrameToken, Span)>,
    agenda: Agenda<Event>,
}

struct Process {
    engine: Engine,
    reference: Reference,
    ops: Vec<Tracked>,
    open: Vec<usize>,
    news_seen: u64,
    flush_due: bool,
    away_until_ns: u64,
    /// Until when it packs and unpacks what it has been seen to.
    busy_ns: u64,
}

struct Tracked {
    /// None for what was sent without an operation.
    op: Option<OpId>,
    region: Region,
    kind: Kind,
    end: Option<Completion>,
}

#[derive(Clone, Copy)]
enum Kind {
    Send {
        message: usize,
    },
    /// `found` is the message that the reference model gave it.
    Receive {
        gate: Option<GateId>,
        found: Option<usize>,
    },
}

struct Sent {
    from: usize,
    send: Send,
    region: Region,
    matched: bool,
    complete: bool,
}

/// The way from one process to another.
struct Way {
    lanes: Vec<Lane>,
    tamper: Option<Tamper>,
    tampered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Opening,
    Open,
    Cut,
}

#[derive(Clone, Copy)]
struct Lane {
    state: State,
    refused: bool,
    in_flight: usize,
    free_ns: u64,
    last_arrival_ns: u64,
    late_ns: u64,
    swallows: bool,
}

enum Event {
    Flush(usize),
    Release(usize, usize),
    Up(usize, usize, usize),
    Room(usize, usize, usize),
    Departed { from: usize, to: usize, lane: usize, cargo: Cargo, arrival_ns: u64 },
    Sent { from: usize, to: usize, lane: usize, token: FrameToken, span: Span },
    Arrived { from: usize, to: usize, lane: usize, bytes: Vec<u8> },
    Pulled { rank: usize, id: PullId, remote: RemoteRegion, from: usize, local: Region },
    Down(usize, usize),
    LinkDown(usize, usize, usize),
    Tick(usize),
}

/// A frame that was copied when it was posted, or that is read when it leaves.
enum Cargo {
    Copied(Vec<u8>),
    Held(Frame),
}

impl Network {
    /// Processes with a strategy drawn by the seed.
    pub fn new(seed: u64, size: usize, shape: Shape) -> Self {
        let name = strategy::NAMES[seed as usize % strategy::NAMES.len()];
        Self::with_strategy(seed, size, shape, &|| strategy::named(name).expect("a known name"))
    }

    pub fn with_strategy(
        seed: u64,
        size: usize,
        shape: Shape,
        strategy: &dyn Fn() -> Box<dyn Strategy>,
    ) -> Self {
        let process = |_| Process {
            engine: Engine::new(Config {
                budget_bytes: BUDGET_BYTES,
                strategy: strategy(),
                ..Config::new(size)
            }),
            reference: Reference::default(),
            ops: Vec::new(),
            open: Vec::new(),
            news_seen: 0,
            flush_due: false,
            away_until_ns: 0,
            busy_ns: 0,
        };
        Self {
            random: Random::new(seed),
            now_ns: 0,
            accusations: Vec::new(),
            fetches: 0,
            short_sends: 0,
            gathered_sends: 0,
            late_links: 0,
            record: None,
            processes: (0..size).map(process).collect(),
            shapes: BTreeMap::new(),
            default_shape: shape,
            ways: BTreeMap::new(),
            messages: Vec::new(),
            order: BTreeMap::new(),
            numbers: BTreeSet::new(),
            held: Vec::new(),
            agenda: Agenda::new(),
        }
    }

    /// Gives one pair of processes, both ways, a link of its own kind.
    pub fn set_shape(&mut self, a: usize, b: usize, shape: Shape) {
        self.shapes.insert((a.min(b), a.max(b)), shape);
    }

    /// From now on, what `from` sends to `to` passes through `tamper`; what happens between the two
    /// is not checked any more.
    pub fn tamper(&mut self, from: usize, to: usize, tamper: Tamper) {
        self.way(to, from).tampered = true;
        let way = self.way(from, to);
        way.tamper = Some(tamper);
        way.tampered = true;
    }

    pub fn send(&mut self, from: usize, to: usize, tag: i32, bytes: usize) -> Handle {
        self.submit_send(from, Send { to, context: 0, tag, bytes, mode: SendMode::Standard })
    }

    pub fn send_synchronous(&mut self, from: usize, to: usize, tag: i32, bytes: usize) -> Handle {
        self.submit_send(from, Send { to, context: 0, tag, bytes, mode: SendMode::Synchronous })
    }

    pub fn submit_send(&mut self, from: usize, send: Send) -> Handle {
        let message = self.messages.len();
        let data = self.shape(from, send.to).content.of(message, send.bytes);
        let region = Region::from_box(data.into());
        let is_urgent = send.context % 2 == 1;
        let (context, source) = (send.context, from as u32);
        let envelope = Envelope { context, source, tag: send.tag, is_urgent };
        let sent = Sent { from, send, region: region.clone(), matched: false, complete: false };
        self.messages.push(sent);
        self.order.entry((from, send.to, send.context)).or_default().push(message);
        let kind = Kind::Send { message };
        let may_be_short = send.mode == SendMode::Standard && self.random.one_in(2);
        if may_be_short
            && (self.gather(from, send, envelope, &region)
                || self.send_short(from, send, envelope, &region))
        {
            let (source, tag, bytes) = (envelope.source, send.tag, send.bytes as u64);
            let end = Completion { source, tag, bytes, outcome: Outcome::Ok };
            let handle = self.processes[from].track_ended(from, region, kind, end);
            self.check(from, handle.index);
            return handle;
        }
        let process = &mut self.processes[from];
        let op = process.engine.submit_send(gate(send.to), envelope, &region, send.mode);
        let handle = process.track(from, op, region, kind);
        self.settle(from);
        handle
    }

    /// Sends without an operation, where the engine can.
    fn send_short(&mut self, from: usize, send: Send, envelope: Envelope, data: &Region) -> bool {
        let to = gate(send.to);
        let mut frame = Frame::default();
        let Some(rail) = self.processes[from].engine.submit_short(to, envelope, data, &mut frame)
        else {
            return false;
        };
        let posted = self.post(from, send.to, rail, &frame);
        self.processes[from].engine.handle_posted(to, rail, &mut frame, posted);
        self.short_sends += 1;
        true
    }

    /// Lays a message of a few bytes beside others, without releasing it.
    pub fn gather_now(&mut self, from: usize, to: usize, tag: i32, bytes: usize) -> bool {
        let envelope = Envelope { context: 0, source: from as u32, tag, is_urgent: false };
        let message = self.messages.len();
        let data = self.shape(from, to).content.of(message, bytes);
        let region = Region::from_box(data.into());
        let mode = SendMode::Standard;
        let send = Send { to, context: 0, tag, bytes, mode };
        let taken = self.processes[from].engine.submit_gathered(gate(to), envelope, &region);
        if taken {
            let sent = Sent { from, send, region, matched: false, complete: true };
            self.messages.push(sent);
            self.order.entry((from, to, 0)).or_default().push(message);
        }
        taken
    }

    /// Lays a short message beside others, now and then, and releases them after a while.
    fn gather(&mut self, from: usize, send: Send, envelope: Envelope, data: &Region) -> bool {
        let to = gate(send.to);
        let engine = &mut self.processes[from].engine;
        if !self.random.one_in(2) || !engine.submit_gathered(to, envelope, data) {
            return false;
        }
        let delay = self.random.below(5_000) as u64;
        self.schedule(delay, Event::Release(from, send.to));
        self.gathered_sends += 1;
        true
    }

    pub fn receive(
        &mut self,
        rank: usize,
        source: Option<usize>,
        tag: Option<i32>,
        capacity: usize,
    ) -> Handle {
        self.submit_receive(rank, Receive { source, context: 0, tag, capacity })
    }

    pub fn submit_receive(&mut self, rank: usize, receive: Receive) -> Handle {
        let region = untouched(receive.capacity);
        let gate = receive.source.map(gate);
        let selector = receive.selector();
        let process = &mut self.processes[rank];
        let op = process.engine.submit_receive(gate, selector, &region);
        let handle = process.track(rank, op, region, Kind::Receive { gate, found: None });
        if let Some(message) = process.reference.post(gate, selector, handle.index) {
            self.pair(rank, handle.index, message);
        }
        self.settle(rank);
        handle
    }

    /// Cancels a receive; the engine must answer as the model does.
    pub fn cancel(&mut self, handle: Handle) -> bool {
        let process = &mut self.processes[handle.rank];
        let cancelled = process.engine.submit_cancel(process.op(handle.index));
        assert_eq!(cancelled, process.reference.cancel(handle.index), "cancelled or not");
        self.settle(handle.rank);
        cancelled
    }

    /// Forgets an operation: it goes on, and nobody hears of its end.
    pub fn release(&mut self, handle: Handle) {
        let process = &mut self.processes[handle.rank];
        process.engine.release(process.op(handle.index));
        process.open.retain(|&index| index != handle.index);
    }

    /// The memory of an operation.
    pub fn memory(&self, handle: Handle) -> Vec<u8> {
        self.processes[handle.rank].ops[handle.index].region.to_vec()
    }

    /// Whether the engine still knows an operation by its name.
    pub fn is_known(&mut self, handle: Handle) -> bool {
        let process = &mut self.processes[handle.rank];
        let op = process.op(handle.index);
        process.engine.peek(op).is_some() || process.engine.take(op).is_some()
    }

    /// Probes; the engine must answer as the model does.
    pub fn probe(&mut self, rank: usize, selector: Selector) -> Option<Message> {
        let process = &mut self.processes[rank];
        let found = process.engine.probe(selector.source.map(GateId), selector);
        let expected = process.reference.peek(&selector).copied();
        let expected = expected.map(|waiting| self.described(rank, &waiting));
        assert_eq!(found, expected, "what a probe finds");
        found
    }

    /// Takes a message out of matching, as the model does.
    pub fn matched_probe(&mut self, rank: usize, selector: Selector) -> Option<(MatchedId, usize)> {
        let process = &mut self.processes[rank];
        let found = process.engine.submit_matched_probe(selector.source.map(GateId), selector);
        let expected = process.reference.take(None, &selector);
        let described = expected.as_ref().map(|waiting| self.described(rank, waiting));
        assert_eq!(found.map(|(_, message)| message), described, "what a matched probe takes");
        let message = self.message_of(rank, &expected?);
        Some((found?.0, message))
    }

    /// Receives what a matched probe took.
    pub fn matched_receive(
        &mut self,
        rank: usize,
        (id, message): (MatchedId, usize),
        capacity: usize,
    ) -> Handle {
        let region = untouched(capacity);
        let process = &mut self.processes[rank];
        let op = process.engine.submit_matched_receive(id, &region).expect("taken once");
        let found = Some(message);
        let gate = Some(gate(self.messages[message].from));
        let handle = process.track(rank, op, region, Kind::Receive { gate, found });
        assert_eq!(process.engine.submit_matched_receive(id, &Region::empty()), None);
        self.messages[message].matched = true;
        self.settle(rank);
        handle
    }

    /// Cuts what is between two processes: frames on their way are lost, and both notice, each in
    /// its time.
    pub fn cut(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.way(from, to).cut();
            let delay = self.random.below(5_000) as u64;
            self.schedule(delay, Event::Down(from, to));
        }
    }

    /// Cuts one of the links between two processes: frames on their way over it are lost, and both
    /// notice, each in its time.
    pub fn cut_link(&mut self, a: usize, b: usize, lane: usize) {
        for (from, to) in [(a, b), (b, a)] {
            if std::mem::replace(&mut self.way(from, to).lanes[lane].state, State::Cut)
                == State::Open
            {
                let delay = self.random.below(200_000) as u64;
                self.schedule(delay, Event::LinkDown(from, to, lane));
            }
        }
    }

    /// How many links are open between two processes, at both ends.
    pub fn links(&mut self, from: usize, to: usize) -> usize {
        let of = |way: &Way, state| way.lanes.iter().filter(|lane| lane.state == state).count();
        let both = [of(self.way(from, to), State::Open), of(self.way(to, from), State::Open)];
        both.into_iter().min().unwrap_or(0)
    }

    /// Runs until so many links lead from one process to another.
    pub fn run_until_links(&mut self, from: usize, to: usize, links: usize) {
        let is_open = |lane: &&Lane| lane.state == State::Open;
        while self.way(from, to).lanes.iter().filter(is_open).count() < links && self.step() {}
    }

    /// From now on, what leaves over a link arrives so much later.
    pub fn slow_down(&mut self, from: usize, to: usize, lane: usize, late_ns: u64) {
        self.way(from, to).lanes[lane].late_ns = late_ns;
    }

    /// From now on, what leaves over a link never arrives, and nobody is told; for half a minute both
    /// processes look at the clock.
    pub fn swallow(&mut self, a: usize, b: usize, lane: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.way(from, to).lanes[lane].swallows = true;
            for tick in 0..600 {
                self.schedule(tick * 50_000_000, Event::Tick(from));
            }
        }
    }

    /// A process does not look at its engine for a while; the others look at the clock meanwhile.
    pub fn look_away(&mut self, rank: usize, for_ns: u64) {
        self.processes[rank].away_until_ns = self.now_ns + for_ns;
        for tick in 0..for_ns / 50_000_000 + 20 {
            for other in (0..self.processes.len()).filter(|other| *other != rank) {
                self.schedule(tick * 50_000_000, Event::Tick(other));
            }
        }
    }

    /// Closes links that are late, as `progress` does.
    fn judge(&mut self, rank: usize) {
        let now_ns = self.now_ns;
        while let Some((GateId(peer), RailId(lane))) =
            self.processes[rank].engine.handle_time(now_ns)
        {
            self.late_links += 1;
            self.way(rank, peer as usize).lanes[lane as usize].state = State::Cut;
            let engine = &mut self.processes[rank].engine;
            assert!(engine.handle_link_down(GateId(peer), RailId(lane)), "another is left");
        }
    }

    /// How many operations ended because a peer failed.
    pub fn failures(&self) -> usize {
        let ends = self.processes.iter().flat_map(|process| &process.ops).filter_map(|op| op.end);
        ends.filter(|end| end.outcome == Outcome::PeerFailed).count()
    }

    /// Why a process gave up its strategy.
    pub fn refusal(&mut self, rank: usize) -> Option<String> {
        self.processes[rank].engine.poll_refusal()
    }

    /// When the last process has nothing to do any more, now that nothing is left to happen.
    pub fn end_ns(&self) -> u64 {
        self.processes.iter().map(|process| process.busy_ns).fold(self.now_ns, u64::max)
    }

    /// Runs until nothing is left to happen.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Runs at most `steps` events.
    pub fn run_steps(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
    }

    /// Runs until nothing is left to happen, and asserts that all is done.
    pub fn finish(&mut self) {
        self.run();
        for (rank, process) in self.processes.iter().enumerate() {
            let open: Vec<_> = process.open.iter().map(|&index| process.describe(index)).collect();
            assert!(open.is_empty(), "rank {rank} still waits: {open:?}");
            assert!(process.engine.is_idle(), "rank {rank} is not idle");
            assert!(!process.engine.has_offers(), "rank {rank} has offers");
        }
        assert!(self.accusations.is_empty(), "{:?}", self.accusations);
    }

    pub fn is_complete(&self, handle: Handle) -> bool {
        self.processes[handle.rank].ops[handle.index].end.is_some()
    }

    /// How an operation ended.
    ///
    /// # Panics
    /// If it has not.
    pub fn end(&self, handle: Handle) -> Completion {
        self.processes[handle.rank].ops[handle.index].end.expect("the operation is complete")
    }

    pub fn counters(&self, rank: usize) -> Counters {
        self.processes[rank].engine.counters()
    }

    fn step(&mut self) -> bool {
        let Some((at_ns, event)) = self.agenda.next() else { return false };
        self.now_ns = at_ns;
        match event {
            Event::Flush(rank) => self.flush(rank),
            Event::Up(rank, peer, lane) => {
                let shape = self.shape(rank, peer);
                let state = &mut self.way(rank, peer).lanes[lane].state;
                if *state == State::Opening {
                    *state = State::Open;
                    let engine = &mut self.processes[rank].engine;
                    engine.handle_up(gate(peer), rail(lane), shape.capabilities);
                    if shape.capabilities.adapts {
                        let bytes_per_s = shape.bytes_per_us * 1_000_000;
                        let cost = Cost::linear(shape.latency_ns, 1, bytes_per_s);
                        engine.handle_cost(gate(peer), rail(lane), cost);
                    }
                }
                self.settle(rank);
            }
            Event::Room(rank, peer, lane) => {
                let way = &mut self.way(rank, peer).lanes[lane];
                if way.state == State::Open {
                    way.refused = false;
                    self.processes[rank].engine.handle_room(gate(peer), rail(lane));
                }
                self.settle(rank);
            }
            Event::Departed { from, to, lane, cargo, arrival_ns } => {
                self.depart(from, to, lane, cargo, arrival_ns);
            }
            Event::Sent { from, to, lane, token, span } => self.sent(from, to, lane, token, span),
            Event::Arrived { from, to, lane, bytes } => self.arrive(from, to, lane, bytes),
            Event::Pulled { rank, id, remote, from, local } => {
                self.pulled(rank, id, remote, from, &local);
            }
            Event::Down(rank, peer) => self.down(rank, peer),
            Event::Tick(rank) => {
                self.judge(rank);
                self.settle(rank);
            }
            Event::LinkDown(rank, peer, lane) => {
                if !self.processes[rank].engine.handle_link_down(gate(peer), rail(lane)) {
                    self.way(rank, peer).cut();
                    self.way(peer, rank).cut();
                    self.down(rank, peer);
                    self.schedule(1_000, Event::Down(peer, rank));
                }
                self.settle(rank);
            }
            Event::Release(rank, peer) => {
                self.processes[rank].engine.release_gathered(gate(peer));
                self.settle(rank);
            }
        }
        true
    }

    fn down(&mut self, rank: usize, peer: usize) {
        let messages = &self.messages;
        self.held.retain(|(from, _, span)| {
            let holds = |message: &Sent| message.from == rank && overlaps(&message.region, *span);
            *from != rank || !messages.iter().any(|one| one.send.to == peer && holds(one))
        });
        self.processes[rank].reference.fail(gate(peer));
        self.processes[rank].engine.handle_down(gate(peer));
        self.settle(rank);
    }

    /// What `progress` does after every command and event.
    fn flush(&mut self, rank: usize) {
        self.processes[rank].flush_due = false;
        while let Some(GateId(peer)) = self.processes[rank].engine.poll_connect() {
            self.connect(rank, peer as usize);
        }
        let mut frame = Frame::default();
        while let Some((to, rail)) = self.processes[rank].engine.poll_gate() {
            while self.poll_frame(rank, to, rail, &mut frame) {
                let posted = self.post(rank, to.0 as usize, rail, &frame);
                self.processes[rank].engine.handle_posted(to, rail, &mut frame, posted);
                if posted == Posted::Full {
                    break;
                }
            }
        }
        while let Some(pull) = self.processes[rank].engine.poll_pull() {
            let from = pull.gate.0 as usize;
            let shape = self.shape(rank, from);
            if shape.pull_works && self.random.one_in(4) {
                self.processes[rank].engine.handle_pull_declined(pull.id);
                self.settle(rank);
                continue;
            }
            assert!(shape.capabilities.pull, "a fetch over a link that has none");
            let delay = shape.latency_ns + pull.remote.len * 1000 / shape.bytes_per_us;
            let (id, remote, local) = (pull.id, pull.remote, pull.local);
            self.schedule(delay, Event::Pulled { rank, id, remote, from, local });
        }
        self.collect(rank);
    }

    /// Packing takes its time.
    fn poll_frame(&mut self, rank: usize, to: GateId, rail: RailId, frame: &mut Frame) -> bool {
        let Process { engine, busy_ns, .. } = &mut self.processes[rank];
        let read = |engine: &Engine| {
            let Counters { packed_from_bytes, packed_in_vain_bytes, .. } = engine.counters();
            packed_from_bytes + packed_in_vain_bytes
        };
        let before = read(engine);
        let is_built = engine.poll_frame(to, rail, frame);
        let packing_ns = HostCost::default().packing_ns(read(engine) - before);
        if packing_ns > 0 {
            *busy_ns = self.now_ns.max(*busy_ns) + packing_ns;
        }
        is_built
    }

    fn connect(&mut self, from: usize, to: usize) {
        let Shape { latency_ns, links, .. } = self.shape(from, to);
        let states: Vec<_> = self.way(from, to).lanes.iter().map(|lane| lane.state).collect();
        if states.iter().all(|state| *state == State::Cut) {
            return self.schedule(latency_ns, Event::Down(from, to));
        }
        let closed = |lane: &usize| states[*lane] == State::Closed;
        for lane in (0..links).filter(closed) {
            let late_ns = if lane == 0 { 0 } else { self.random.below(300_000) as u64 };
            self.way(from, to).lanes[lane].state = State::Opening;
            self.schedule(late_ns + 2 * latency_ns, Event::Up(from, to, lane));
            if from != to {
                let first_ns = self.now_ns + late_ns + 2 * latency_ns;
                self.way(to, from).lanes[lane].state = State::Opening;
                self.way(to, from).lanes[lane].last_arrival_ns = first_ns;
                self.schedule(late_ns + latency_ns, Event::Up(to, from, lane));
            }
        }
    }

    fn post(&mut self, from: usize, to: usize, rail: RailId, frame: &Frame) -> Posted {
        let shape = self.shape(from, to);
        let lane = rail.0 as usize;
        assert!(!frame.is_empty(), "an empty frame was posted");
        assert!(frame.len() <= shape.capabilities.frame_max, "a frame is too long");
        assert_eq!(frame.body.is_some(), frame.token.is_some(), "a body has a token");
        match self.way(from, to).lanes[lane].state {
            State::Open => {}
            State::Cut => return Posted::Done,
            State::Closed | State::Opening => panic!("a frame for a link that is not open"),
        }
        let now_ns = self.now_ns;
        let begin_ns = now_ns.max(self.processes[from].busy_ns);
        let spurious = self.random.one_in(16);
        let way = &mut self.way(from, to).lanes[lane];
        assert!(!way.refused, "a frame for a link that is full");
        if spurious || way.in_flight == shape.depth {
            way.refused = true;
            if spurious {
                self.schedule(shape.latency_ns, Event::Room(from, to, lane));
            }
            return Posted::Full;
        }
        let is_held = frame.token.is_some() && self.random.one_in(2);
        if is_held {
            let (token, span) = held(frame);
            self.held.push((from, token, span));
        }
        let jitter_ns = self.random.below(shape.jitter_ns as usize + 1) as u64;
        let way = &mut self.way(from, to).lanes[lane];
        way.in_flight += 1;
        way.free_ns =
            way.free_ns.max(begin_ns) + 1 + frame.len() as u64 * 1000 / shape.bytes_per_us;
        way.last_arrival_ns =
            (way.free_ns + shape.latency_ns + way.late_ns + jitter_ns).max(way.last_arrival_ns + 1);
        let (departure_ns, arrival_ns) = (way.free_ns, way.last_arrival_ns);
        let cargo = if is_held { Cargo::Held(frame.clone()) } else { Cargo::Copied(bytes(frame)) };
        let event = Event::Departed { from, to, lane, cargo, arrival_ns };
        self.schedule(departure_ns - now_ns, event);
        if is_held { Posted::Held } else { Posted::Done }
    }

    fn depart(&mut self, from: usize, to: usize, lane: usize, cargo: Cargo, arrival_ns: u64) {
        let is_replayed = self.shape(from, to).capabilities.replay;
        let way = &mut self.way(from, to).lanes[lane];
        way.in_flight -= 1;
        if way.state == State::Cut {
            if let Cargo::Held(frame) = cargo {
                self.let_go(from, &frame);
            }
            return;
        }
        let now_room = std::mem::take(&mut way.refused);
        let bytes = match cargo {
            Cargo::Copied(bytes) => bytes,
            Cargo::Held(frame) => {
                let (token, span) = held(&frame);
                let delay = self.random.below(10_000) as u64;
                self.schedule(delay, Event::Sent { from, to, lane, token, span });
                if is_replayed {
                    self.let_go(from, &frame);
                }
                bytes(&frame)
            }
        };
        if now_room {
            self.processes[from].engine.handle_room(gate(to), rail(lane));
        }
        self.settle(from);
        self.schedule(arrival_ns - self.now_ns, Event::Arrived { from, to, lane, bytes });
    }

    /// A rail reads the memory of a frame no more.
    fn let_go(&mut self, from: usize, frame: &Frame) {
        let (token, span) = held(frame);
        if let Some(at) = self.held.iter().position(|one| *one == (from, token, span)) {
            self.held.swap_remove(at);
        }
    }

    fn sent(&mut self, from: usize, to: usize, lane: usize, token: FrameToken, span: Span) {
        let is_this = |one: &(usize, FrameToken, Span)| *one == (from, token, span);
        if let Some(at) = self.held.iter().position(is_this) {
            self.held.swap_remove(at);
            self.processes[from].engine.handle_sent(gate(to), rail(lane), token);
            self.settle(from);
        }
    }

    fn arrive(&mut self, from: usize, to: usize, lane: usize, bytes: Vec<u8>) {
        let away_until_ns = self.processes[to].away_until_ns;
        if self.now_ns < away_until_ns {
            // The links' order among themselves is that in which the process will look at them.
            let later_ns = away_until_ns - self.now_ns + lane as u64;
            return self.schedule(later_ns, Event::Arrived { from, to, lane, bytes });
        }
        let Lane { state, swallows, .. } = self.way(from, to).lanes[lane];
        if state == State::Cut || swallows || self.way(to, from).lanes[lane].state == State::Cut {
            return;
        }
        if let Some(record) = &mut self.record {
            record.push(bytes.clone());
        }
        let Self { random, ways, .. } = self;
        let tamper = ways.get_mut(&(from, to)).and_then(|way| way.tamper.as_mut());
        let frames = match tamper {
            Some(tamper) => tamper(random, bytes),
            None => vec![bytes],
        };
        for frame in frames {
            if let Err(error) = self.take_in(from, to, lane, &frame) {
                assert!(self.is_tampered(from, to), "rank {to} accuses {from}: {error}");
                self.accusations.push((to, from, error));
                self.way(from, to).cut();
                self.way(to, from).cut();
                self.down(to, from);
                self.schedule(1_000, Event::Down(from, to));
                break;
            }
        }
        self.settle(to);
    }

    fn take_in(
        &mut self,
        from: usize,
        to: usize,
        lane: usize,
        frame: &[u8],
    ) -> Result<(), PeerError> {
        if !self.is_tampered(from, to) {
            self.tell_reference(from, to, frame);
        }
        let mut rest = frame;
        while let Ok(Some(packet)) = packet::parse(&mut rest) {
            if let Packet::PackedData { bytes, .. } | Packet::PackedAhead { bytes, .. } = packet {
                let unpacking_ns = u64::from(bytes) * HostCost::default().unpack_ps_per_byte / 1000;
                let busy_ns = &mut self.processes[to].busy_ns;
                *busy_ns = self.now_ns.max(*busy_ns) + unpacking_ns;
            }
        }
        self.processes[to].engine.handle_frame(gate(from), rail(lane), frame)
    }

    fn tell_reference(&mut self, from: usize, to: usize, mut frame: &[u8]) {
        while let Some(packet) = packet::parse(&mut frame).expect("engines send frames") {
            let (header, asks) = match packet {
                Packet::Eager { header, .. } => (header, None),
                Packet::Request { header, bytes, .. } => (header, Some(bytes)),
                Packet::Ahead { sequence, payload, .. } => {
                    let bytes = payload.len() as u64;
                    self.processes[to].reference.arrive_ahead(gate(from), sequence, bytes);
                    continue;
                }
                Packet::PackedAhead { sequence, bytes, .. } => {
                    let bytes = u64::from(bytes);
                    self.processes[to].reference.arrive_ahead(gate(from), sequence, bytes);
                    continue;
                }
                Packet::Mark { number, .. } => {
                    if !self.numbers.insert((from, to, number)) {
                        return;
                    }
                    continue;
                }
                Packet::Arrived { .. }
                | Packet::Clear { .. }
                | Packet::Data { .. }
                | Packet::PackedData { .. }
                | Packet::Finish { .. }
                | Packet::Credit { .. } => continue,
            };
            let pairs = self.processes[to].reference.arrive(gate(from), header, asks);
            for (receive, message) in pairs {
                self.pair(to, receive, message);
            }
        }
    }

    fn pulled(
        &mut self,
        rank: usize,
        id: PullId,
        remote: RemoteRegion,
        from: usize,
        local: &Region,
    ) {
        let works = self.shape(rank, from).pull_works
            && self.way(from, rank).lanes[0].state == State::Open
            && !self.is_tampered(from, rank);
        self.fetches += 1;
        if works {
            let region = self.memory_at(from, remote);
            local.copy_from(&region);
        }
        self.processes[rank].engine.handle_pulled(id, works);
        self.settle(rank);
    }

    /// The sender's memory at an address that it has given away.
    fn memory_at(&self, rank: usize, remote: RemoteRegion) -> Region {
        let is_there = |message: &&Sent| {
            let address = message.region.as_span().map(|span| span.address as u64);
            message.from == rank && !message.complete && address == Some(remote.address)
        };
        let message = self.messages.iter().find(is_there).expect("memory of a send under way");
        message.region.slice(0, remote.len as usize)
    }

    fn settle(&mut self, rank: usize) {
        self.collect(rank);
        if !std::mem::replace(&mut self.processes[rank].flush_due, true) {
            let busy_ns = self.processes[rank].busy_ns.saturating_sub(self.now_ns);
            let delay = busy_ns + self.random.below(2_000) as u64;
            self.schedule(delay, Event::Flush(rank));
        }
    }

    /// Takes what has completed, and checks it.
    fn collect(&mut self, rank: usize) {
        let process = &mut self.processes[rank];
        if process.news_seen == process.engine.news() {
            return;
        }
        process.news_seen = process.engine.news();
        let mut done = Vec::new();
        let Process { engine, ops, open, .. } = process;
        open.retain(|&index| match ops[index].op.and_then(|op| engine.take(op)) {
            Some(completion) => {
                ops[index].end = Some(completion);
                done.push(index);
                false
            }
            None => true,
        });
        for index in done {
            self.check(rank, index);
        }
    }

    fn pair(&mut self, rank: usize, receive: usize, waiting: Waiting) {
        let message = self.message_of(rank, &waiting);
        self.messages[message].matched = true;
        if let Kind::Receive { found, .. } = &mut self.processes[rank].ops[receive].kind {
            *found = Some(message);
        }
    }

    fn message_of(&self, rank: usize, waiting: &Waiting) -> usize {
        let key = (waiting.gate.0 as usize, rank, waiting.header.context);
        self.order[&key][waiting.number as usize]
    }

    fn described(&self, rank: usize, waiting: &Waiting) -> Message {
        let Sent { from, send, .. } = &self.messages[self.message_of(rank, waiting)];
        Message { source: *from as u32, tag: send.tag, bytes: send.bytes as u64 }
    }

    fn shape(&self, a: usize, b: usize) -> Shape {
        *self.shapes.get(&(a.min(b), a.max(b))).unwrap_or(&self.default_shape)
    }

    fn way(&mut self, from: usize, to: usize) -> &mut Way {
        let links = self.shape(from, to).links;
        self.ways.entry((from, to)).or_insert_with(|| Way {
            lanes: vec![Lane::CLOSED; links],
            tamper: None,
            tampered: false,
        })
    }

    /// Whether all links between two processes are cut.
    fn is_cut(&self, from: usize, to: usize) -> bool {
        let is_cut = |way: &Way| way.lanes.iter().all(|lane| lane.state == State::Cut);
        self.ways.get(&(from, to)).is_some_and(is_cut)
    }

    fn is_tampered(&self, from: usize, to: usize) -> bool {
        self.ways.get(&(from, to)).is_some_and(|way| way.tampered)
    }

    fn schedule(&mut self, delay_ns: u64, event: Event) {
        self.agenda.add(self.now_ns + delay_ns, self.random.next(), event);
    }
}

impl Way {
    fn cut(&mut self) {
        for lane in &mut self.lanes {
            lane.state = State::Cut;
        }
    }
}

impl Lane {
    const CLOSED: Self = Self {
        state: State::Closed,
        refused: false,
        in_flight: 0,
        free_ns: 0,
        last_arrival_ns: 0,
        late_ns: 0,
        swallows: false,
    };
}

impl Receive {
    pub fn selector(&self) -> Selector {
        let source = self.source.map(|source| source as u32);
        Selector { context: self.context, source, tag: self.tag }
    }
}

impl Process {
    fn track(&mut self, rank: usize, op: OpId, region: Region, kind: Kind) -> Handle {
        let index = self.ops.len();
        self.ops.push(Tracked { op: Some(op), region, kind, end: None });
        self.open.push(index);
        Handle { rank, index }
    }

    fn track_ended(&mut self, rank: usize, region: Region, kind: Kind, end: Completion) -> Handle {
        let index = self.ops.len();
        self.ops.push(Tracked { op: None, region, kind, end: Some(end) });
        Handle { rank, index }
    }

    fn op(&self, index: usize) -> OpId {
        self.ops[index].op.expect("an operation was submitted")
    }

    fn describe(&self, index: usize) -> String {
        match self.ops[index].kind {
            Kind::Send { message } => format!("send of message {message}"),
            Kind::Receive { gate, found: None } => format!("receive from {gate:?}"),
            Kind::Receive { found: Some(_), .. } => "receive of a matched message".into(),
        }
    }
}

fn rail(lane: usize) -> RailId {
    RailId(lane as u8)
}

pub fn gate(rank: usize) -> GateId {
    GateId(rank as u32)
}

impl Content {
    /// The bytes of a message, told by its number.
    fn of(self, message: usize, len: usize) -> Vec<u8> {
        let mut random = Random::new(message as u64);
        let sparse = match self {
            Self::Dense => 0,
            Self::Sparse => 8,
            Self::Mixed => random.pick(&[0, 4, 8]),
        };
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            let word = random.next();
            let is_zero = word >> 32 & 7 < sparse && word >> 48 & 3 > 0;
            bytes.extend(if is_zero { 0 } else { word }.to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

fn untouched(len: usize) -> Region {
    Region::from_box(vec![UNTOUCHED; len].into())
}

/// The token and the memory of a frame with a body.
fn held(frame: &Frame) -> (FrameToken, Span) {
    let body = frame.body.as_ref().expect("only frames with a body are held");
    let span = body.region.as_span().expect("messages lie in one piece");
    (frame.token.expect("a body has a token"), span)
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.head.clone();
    if let Some(body) = &frame.body {
        bytes.extend(body.region.to_vec());
    }
    bytes
}
