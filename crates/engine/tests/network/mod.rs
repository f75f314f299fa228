//! Engines over simulated links, in virtual time.
//!
//! A [`SimulatedNetwork`] owns the engines of a job and moves their frames over links of a given [`Shape`].
//! Its seed decides all random events: how soon a process looks at its engine, and which of two
//! links a frame takes. It also decides whether a rail copies or holds a frame, and when the rail
//! has no room. Time is counted, never waited for.
//!
//! Every completion is checked at once. A receive is compared with the reference model of matching,
//! which sees the same packets, and byte by byte with the sent data. A synchronous send must have
//! been matched in the model. The memory of a completed send is overwritten at once, so that a late
//! read would send garbage.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part of the harness")]

mod addressed;
mod agenda;
mod check;
mod content;
mod links;
mod mangle;
mod matching;
mod outages;
mod program;
mod reference;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use addressed::Exposed;
pub use addressed::{AddressedKind, INVERT, LATER};
use agenda::Agenda;
use check::UNTOUCHED;
pub use content::Content;
use content::filled;
use cost::{Cost, HostCost};
use engine::strategy::{self, Strategy};
use engine::{
    Completion, Config, Counters, Engine, Envelope, MatchedId, Message, OpId, Outcome, PeerError,
    Posted, RemoteReadId, Selector, SendMode, Short,
};
pub use links::Fates;
use links::{Cargo, Direction, LinkState, Passage, rail};
pub use mangle::{corpus, mutate};
use memory::{Region, Span};
use outages::Outages;
pub use program::Program;
use reference::{Reference, Waiting};
pub use shape::*;
use testing::Random;
use wire::packet::{self, Packet};
use wire::{Capabilities, Frame, FrameToken, PeerId, RailId, RemoteRegion};

/// Budget of each process for unmatched messages, beyond what links accept at the start.
pub const BUDGET_BYTES: usize = 80 << 10;

/// Rail of the first link.
pub const RAIL: RailId = RailId(0);

/// A submitted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    rank: usize,
    index: usize,
}

/// Parameters of a send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub to: usize,
    pub context: u64,
    pub tag: i32,
    pub bytes: usize,
    pub mode: SendMode,
}

/// Parameters of a receive.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    pub source: Option<usize>,
    pub context: u64,
    pub tag: Option<i32>,
    pub capacity: usize,
}

/// Replaces a frame in flight by the frames that are delivered.
pub type Tamper = Box<dyn FnMut(&mut Random, Vec<u8>) -> Vec<Vec<u8>>>;

pub struct SimulatedNetwork {
    pub random: Random,
    pub now_ns: u64,
    /// Errors that engines reported: (reporter, peer, error).
    pub accusations: Vec<(usize, usize, PeerError)>,
    /// Counters of events so far.
    pub steps: usize,
    fates: Fates,
    /// Number of remote reads tried.
    pub remote_reads: u64,
    /// Number of messages sent without an operation.
    pub short_sends: u64,
    /// Number of coalesced messages.
    pub coalesced_sends: u64,
    /// Number of granted messages.
    pub granted: u64,
    /// Number of links closed for being late.
    pub late_links: u64,
    /// Every frame delivered, if recording is on.
    pub record: Option<Vec<Vec<u8>>>,
    processes: Vec<SimulatedProcess>,
    shapes: BTreeMap<(usize, usize), Shape>,
    default_shape: Shape,
    budget_bytes: usize,
    directions: BTreeMap<(usize, usize), Direction>,
    messages: Vec<Sent>,
    /// Messages by sender, receiver and context, in order of submission.
    order: BTreeMap<(usize, usize, u64), Vec<usize>>,
    /// Received messages by sender and receiver.
    sequences: BTreeSet<(usize, usize, u32)>,
    /// Number of frames posted, and the newest received, by sender and receiver.
    posted: u64,
    newest: BTreeMap<(usize, usize), u64>,
    /// Number of reconnections, and the links that will reconnect.
    connections: u32,
    mending: BTreeSet<(usize, usize, usize)>,
    /// Links that open on request in place of another.
    spare: BTreeSet<(usize, usize, usize)>,
    /// Link over which nothing passes.
    forbidden: Option<(usize, usize, usize)>,
    /// Memory that rails hold: owner, token and range.
    held: Vec<(usize, FrameToken, Span)>,
    agenda: Agenda<Event>,
}

struct SimulatedProcess {
    engine: Engine,
    reference: Reference,
    ops: Vec<Tracked>,
    /// Operations that may complete at any time.
    open: Vec<usize>,
    /// Receives without a message in the reference model: they end by a cancel or a failure.
    posted: BTreeSet<usize>,
    events_seen: u64,
    flush_due: bool,
    away_until_ns: u64,
    outages: Outages,
    /// Time until which the process compresses and decompresses.
    busy_ns: u64,
    /// Reports of its strategy's violations.
    refusals: Vec<String>,
    exposed: Option<Exposed>,
}

struct Tracked {
    /// `None` for a message sent without an operation.
    op: Option<OpId>,
    region: Region,
    kind: TrackedKind,
    end: Option<Completion>,
}

#[derive(Clone, Copy)]
enum TrackedKind {
    Send {
        message: usize,
    },
    /// A receive; `found` is the message that the reference model gave it.
    Receive {
        peer: Option<PeerId>,
        found: Option<usize>,
    },
    Addressed(AddressedKind),
}

struct Sent {
    from: usize,
    send: Send,
    region: Region,
    matched: bool,
    complete: bool,
    /// True if it was cancelled before it left, or the receiver has dropped it.
    dropped: bool,
}

enum Event {
    Flush(usize),
    Release(usize, usize),
    Up(usize, usize, usize),
    Room(usize, usize, usize),
    Departed {
        passage: Passage,
        cargo: Cargo,
        arrival_ns: u64,
    },
    Sent {
        from: usize,
        to: usize,
        link: usize,
        frame: Frame,
    },
    Arrived {
        passage: Passage,
        bytes: Vec<u8>,
    },
    RemoteReadDone {
        rank: usize,
        id: RemoteReadId,
        remote: RemoteRegion,
        from: usize,
        local: Region,
    },
    Down(usize, usize),
    LinkDown(usize, usize, usize, u32),
    Mended(usize, usize, usize),
    Opened {
        rank: usize,
        peer: usize,
        link: usize,
        connection: u32,
        peer_ns: u64,
    },
    Tick(usize),
}

impl SimulatedNetwork {
    /// Processes with a strategy drawn by the seed.
    pub fn new(seed: u64, size: usize, shape: Shape) -> Self {
        let name = strategy::NAMES[seed as usize % strategy::NAMES.len()];
        Self::with_strategy(seed, size, shape, &|| strategy::named(name).expect("a known name"))
    }

    /// Creates a network like [`SimulatedNetwork::new`], with a budget for unmatched messages at each
    /// process.
    pub fn with_budget(seed: u64, size: usize, shape: Shape, budget_bytes: usize) -> Self {
        let name = strategy::NAMES[seed as usize % strategy::NAMES.len()];
        let strategy = || strategy::named(name).expect("a known name");
        Self::with_config(seed, shape, &|| Config {
            budget_bytes,
            strategy: strategy(),
            ..Config::new(size)
        })
    }

    pub fn with_strategy(
        seed: u64,
        size: usize,
        shape: Shape,
        strategy: &dyn Fn() -> Box<dyn Strategy>,
    ) -> Self {
        Self::with_config(seed, shape, &|| Config {
            budget_bytes: BUDGET_BYTES,
            strategy: strategy(),
            ..Config::new(size)
        })
    }

    fn with_config(seed: u64, shape: Shape, config: &dyn Fn() -> Config) -> Self {
        let Config { size, budget_bytes, .. } = config();
        let process = |_| SimulatedProcess {
            engine: Engine::new(config()),
            reference: Reference::default(),
            ops: Vec::new(),
            open: Vec::new(),
            posted: BTreeSet::new(),
            events_seen: 0,
            flush_due: false,
            away_until_ns: 0,
            outages: Outages::default(),
            busy_ns: 0,
            refusals: Vec::new(),
            exposed: None,
        };
        Self {
            random: Random::new(seed),
            now_ns: 0,
            accusations: Vec::new(),
            steps: 0,
            fates: Fates::default(),
            remote_reads: 0,
            short_sends: 0,
            coalesced_sends: 0,
            granted: 0,
            late_links: 0,
            record: None,
            processes: (0..size).map(process).collect(),
            shapes: BTreeMap::new(),
            default_shape: shape,
            budget_bytes,
            directions: BTreeMap::new(),
            messages: Vec::new(),
            order: BTreeMap::new(),
            sequences: BTreeSet::new(),
            posted: 0,
            newest: BTreeMap::new(),
            connections: 0,
            mending: BTreeSet::new(),
            spare: BTreeSet::new(),
            forbidden: None,
            held: Vec::new(),
            agenda: Agenda::new(),
        }
    }

    /// Gives one pair of processes a link of its own kind, in both directions.
    pub fn set_shape(&mut self, a: usize, b: usize, shape: Shape) {
        self.shapes.insert((a.min(b), a.max(b)), shape);
    }

    /// Passes all later frames from `from` to `to` through `tamper`; traffic between the two is not
    /// checked any more.
    pub fn tamper(&mut self, from: usize, to: usize, tamper: Tamper) {
        self.direction(to, from).tampered = true;
        let direction = self.direction(from, to);
        direction.tamper = Some(tamper);
        direction.tampered = true;
    }

    pub fn send(&mut self, from: usize, to: usize, tag: i32, bytes: usize) -> Handle {
        self.submit_send(from, Send { to, context: 0, tag, bytes, mode: SendMode::Standard })
    }

    pub fn send_synchronous(&mut self, from: usize, to: usize, tag: i32, bytes: usize) -> Handle {
        self.submit_send(from, Send { to, context: 0, tag, bytes, mode: SendMode::Synchronous })
    }

    pub fn submit_send(&mut self, from: usize, send: Send) -> Handle {
        let message = self.messages.len();
        let region = self.shape(from, send.to).content.of(message, send.bytes);
        let is_urgent = send.context % 2 == 1;
        let (context, source) = (send.context, from as u32);
        let envelope = Envelope { context, source, tag: send.tag, is_urgent };
        let (matched, complete, dropped) = (false, false, false);
        let sent = Sent { from, send, region: region.clone(), matched, complete, dropped };
        self.messages.push(sent);
        self.order.entry((from, send.to, send.context)).or_default().push(message);
        let kind = TrackedKind::Send { message };
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
        let op = process.engine.submit_send(peer_id(send.to), envelope, &region, send.mode);
        let handle = process.track(from, op, region, kind);
        self.settle(from);
        handle
    }

    /// Sends without an operation, if the engine can.
    fn send_short(&mut self, from: usize, send: Send, envelope: Envelope, data: &Region) -> bool {
        let to = peer_id(send.to);
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

    /// Coalesces a message of a few bytes, without releasing it.
    pub fn coalesce_now(&mut self, from: usize, to: usize, tag: i32, bytes: usize) -> bool {
        let envelope = Envelope { context: 0, source: from as u32, tag, is_urgent: false };
        let message = self.messages.len();
        let region = self.shape(from, to).content.of(message, bytes);
        let mode = SendMode::Standard;
        let send = Send { to, context: 0, tag, bytes, mode };
        let taken = self.processes[from].engine.submit_coalesced(
            peer_id(to),
            Short::Message(envelope),
            &region,
        );
        if taken {
            let (matched, complete, dropped) = (false, true, false);
            let sent = Sent { from, send, region, matched, complete, dropped };
            self.messages.push(sent);
            self.order.entry((from, to, 0)).or_default().push(message);
        }
        taken
    }

    /// Coalesces a short message now and then, and releases it after a while.
    fn gather(&mut self, from: usize, send: Send, envelope: Envelope, data: &Region) -> bool {
        let to = peer_id(send.to);
        let engine = &mut self.processes[from].engine;
        if !self.random.one_in(2) || !engine.submit_coalesced(to, Short::Message(envelope), data) {
            return false;
        }
        let delay = self.random.below(5_000) as u64;
        self.schedule(delay, Event::Release(from, send.to));
        self.coalesced_sends += 1;
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
        let region = filled(receive.capacity, UNTOUCHED);
        let peer = receive.source.map(peer_id);
        let selector = receive.selector();
        let process = &mut self.processes[rank];
        let op = process.engine.submit_receive(peer, selector, &region);
        let handle = process.track(rank, op, region, TrackedKind::Receive { peer, found: None });
        if let Some(message) = process.reference.post(peer, selector, handle.index) {
            self.pair(rank, handle.index, message);
        }
        self.settle(rank);
        handle
    }

    /// Cancels a receive; the engine must return the same as the model.
    pub fn cancel(&mut self, handle: Handle) -> bool {
        let process = &mut self.processes[handle.rank];
        let cancelled = process.engine.submit_cancel(process.op(handle.index));
        assert_eq!(cancelled, process.reference.cancel(handle.index), "cancelled or not");
        process.watch(handle.index);
        self.settle(handle.rank);
        cancelled
    }

    /// Releases an operation: it continues, and its completion is dropped.
    pub fn release(&mut self, handle: Handle) {
        let process = &mut self.processes[handle.rank];
        process.engine.release(process.op(handle.index));
        process.open.retain(|&index| index != handle.index);
        process.posted.remove(&handle.index);
    }

    /// Memory of an operation.
    pub fn memory(&self, handle: Handle) -> Vec<u8> {
        self.processes[handle.rank].ops[handle.index].region.to_vec()
    }

    /// True if the engine still knows an operation's identifier.
    pub fn is_known(&mut self, handle: Handle) -> bool {
        let process = &mut self.processes[handle.rank];
        let op = process.op(handle.index);
        process.engine.peek(op).is_some() || process.engine.take(op).is_some()
    }

    /// Probes; the engine must return the same as the model.
    pub fn probe(&mut self, rank: usize, selector: Selector) -> Option<Message> {
        let process = &mut self.processes[rank];
        let found = process.engine.probe(selector.source.map(PeerId), selector);
        let expected = process.reference.peek(&selector).copied();
        let expected = expected.map(|waiting| self.described(rank, &waiting));
        assert_eq!(found, expected, "what a probe finds");
        found
    }

    /// Takes a message out of matching, like the model.
    pub fn matched_probe(&mut self, rank: usize, selector: Selector) -> Option<(MatchedId, usize)> {
        let process = &mut self.processes[rank];
        let found = process.engine.submit_matched_probe(selector.source.map(PeerId), selector);
        let expected = process.reference.take(None, &selector);
        let described = expected.as_ref().map(|waiting| self.described(rank, waiting));
        assert_eq!(found.map(|(_, message)| message), described, "what a matched probe takes");
        let message = self.message_of(rank, &expected?);
        Some((found?.0, message))
    }

    /// Receives the message of a matched probe.
    pub fn matched_receive(
        &mut self,
        rank: usize,
        (id, message): (MatchedId, usize),
        capacity: usize,
    ) -> Handle {
        let region = filled(capacity, UNTOUCHED);
        let process = &mut self.processes[rank];
        let op = process.engine.submit_matched_receive(id, &region).expect("taken once");
        let found = Some(message);
        let peer = Some(peer_id(self.messages[message].from));
        let handle = process.track(rank, op, region, TrackedKind::Receive { peer, found });
        assert_eq!(process.engine.submit_matched_receive(id, &Region::empty()), None);
        self.messages[message].matched = true;
        self.settle(rank);
        handle
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.processes.len()
    }

    /// Number of operations that ended because a peer failed.
    pub fn failures(&self) -> usize {
        let ends = self.processes.iter().flat_map(|process| &process.ops).filter_map(|op| op.end);
        ends.filter(|end| end.outcome == Outcome::PeerFailed).count()
    }

    /// Reports of a process's strategy violations.
    pub fn refusals(&self, rank: usize) -> &[String] {
        &self.processes[rank].refusals
    }

    /// Time at which the last process is idle, after all events.
    pub fn end_ns(&self) -> u64 {
        self.processes.iter().map(|process| process.busy_ns).fold(self.now_ns, u64::max)
    }

    /// Runs until no event is left.
    pub fn run(&mut self) {
        while self.step() {}
        for (rank, SimulatedProcess { engine, ops, posted, .. }) in
            self.processes.iter().enumerate()
        {
            let is_complete = |index: usize| ops[index].op.is_some_and(|op| engine.is_complete(op));
            let forged = posted.iter().find(|&&index| is_complete(index));
            assert_eq!(forged, None, "rank {rank} received what the model matched with nothing");
        }
    }

    /// Runs at most `steps` events.
    pub fn run_steps(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
    }

    /// Runs until no event is left, and asserts that all is done.
    pub fn finish(&mut self) {
        self.run();
        for (rank, process) in self.processes.iter().enumerate() {
            for refusal in &process.refusals {
                let is_ours = |name: &&str| refusal.starts_with(&format!("strategy {name}:"));
                assert!(!strategy::NAMES.iter().any(is_ours), "rank {rank}: {refusal}");
            }
            let open = process.open.iter().chain(&process.posted);
            let open: Vec<_> = open.map(|&index| process.describe(index)).collect();
            assert!(open.is_empty(), "rank {rank} still waits: {open:?}");
            assert!(process.engine.is_idle(), "rank {rank} is not idle");
            assert!(!process.engine.has_offers(), "rank {rank} has offers");
            let held = process.engine.counters().unexpected_bytes_max.0;
            assert!(held <= self.unexpected_bytes_max(rank), "rank {rank} held {held} bytes");
        }
        assert!(self.accusations.is_empty(), "{:?}", self.accusations);
    }

    /// Upper bound of unmatched bytes at a process: what links accept at the start, and its budget.
    pub fn unexpected_bytes_max(&self, rank: usize) -> usize {
        let accepted = |peer| self.shape(rank, peer).capabilities.credit_bytes;
        (0..self.processes.len()).map(accepted).sum::<usize>() + self.budget_bytes
    }

    pub fn is_complete(&self, handle: Handle) -> bool {
        self.processes[handle.rank].ops[handle.index].end.is_some()
    }

    /// Result of an operation.
    ///
    /// # Panics
    /// If it is pending.
    pub fn end(&self, handle: Handle) -> Completion {
        self.processes[handle.rank].ops[handle.index].end.expect("the operation is complete")
    }

    /// Counters of lost and resent frames.
    pub fn fates(&self) -> Fates {
        let resent = self.processes.iter().map(|one| one.engine.counters().resent).sum();
        Fates { resent, ..self.fates }
    }

    /// Oversubscribes all CPU cores from now on.
    pub fn oversubscribe(&mut self) {
        self.processes.iter_mut().for_each(|process| process.engine.set_oversubscribed(true));
    }

    pub fn counters(&self, rank: usize) -> Counters {
        self.processes[rank].engine.counters()
    }

    fn step(&mut self) -> bool {
        let Some((at_ns, event)) = self.agenda.next() else { return false };
        self.now_ns = at_ns;
        self.steps += 1;
        match event {
            Event::Flush(rank) => self.flush(rank),
            Event::Up(rank, peer, link) => {
                let shape = self.shape(rank, peer).of_link(link);
                let state = &mut self.direction(rank, peer).links[link].state;
                if *state == LinkState::Opening {
                    *state = LinkState::Open;
                    let capabilities = self.capabilities(rank, peer, link);
                    let engine = &mut self.processes[rank].engine;
                    engine.handle_up(peer_id(peer), rail(link), capabilities);
                    if shape.capabilities.adapts {
                        let bytes_per_s = shape.bytes_per_us * 1_000_000;
                        let cost = Cost::linear(shape.latency_ns, 1, bytes_per_s);
                        engine.handle_cost(peer_id(peer), rail(link), cost);
                    }
                }
                self.settle(rank);
            }
            Event::Room(rank, peer, link) => {
                let simulated = &mut self.direction(rank, peer).links[link];
                if simulated.state == LinkState::Open {
                    simulated.refused = false;
                    self.processes[rank].engine.handle_room(peer_id(peer), rail(link));
                }
                self.settle(rank);
            }
            Event::Departed { passage, cargo, arrival_ns } => {
                self.depart(passage, cargo, arrival_ns);
            }
            Event::Sent { from, to, link, frame } => self.sent(from, to, link, &frame),
            Event::Arrived { passage, bytes } => self.arrive(passage, bytes),
            Event::RemoteReadDone { rank, id, remote, from, local } => {
                self.remote_read(rank, id, remote, from, &local);
            }
            Event::Down(rank, peer) => self.down(rank, peer),
            Event::Tick(rank) => {
                self.judge(rank);
                self.settle(rank);
            }
            Event::LinkDown(rank, peer, link, connection) => {
                self.find_cut(rank, peer, link, connection);
            }
            Event::Mended(a, b, link) => self.mend(a, b, link),
            Event::Opened { rank, peer, link, connection, peer_ns } => {
                self.open_anew((rank, peer), link, connection, peer_ns);
            }
            Event::Release(rank, peer) => {
                self.processes[rank].engine.release_coalesced(peer_id(peer));
                self.settle(rank);
            }
        }
        true
    }

    fn settle(&mut self, rank: usize) {
        self.collect(rank);
        if !std::mem::replace(&mut self.processes[rank].flush_due, true) {
            let busy_ns = self.processes[rank].busy_ns.saturating_sub(self.now_ns);
            let delay = busy_ns + self.random.below(2_000) as u64;
            self.schedule(delay, Event::Flush(rank));
        }
    }

    /// Takes and checks all completions.
    fn collect(&mut self, rank: usize) {
        let process = &mut self.processes[rank];
        if process.events_seen == process.engine.event_count() {
            return;
        }
        process.events_seen = process.engine.event_count();
        let mut done = Vec::new();
        let SimulatedProcess { engine, ops, open, .. } = process;
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

    fn described(&self, rank: usize, waiting: &Waiting) -> Message {
        let Sent { from, send, .. } = &self.messages[self.message_of(rank, waiting)];
        Message { source: *from as u32, tag: send.tag, bytes: send.bytes as u64 }
    }

    fn shape(&self, a: usize, b: usize) -> Shape {
        *self.shapes.get(&(a.min(b), a.max(b))).unwrap_or(&self.default_shape)
    }

    fn schedule(&mut self, delay_ns: u64, event: Event) {
        self.agenda.add(self.now_ns + delay_ns, self.random.next(), event);
    }
}

impl Receive {
    pub fn selector(&self) -> Selector {
        let source = self.source.map(|source| source as u32);
        Selector { context: self.context, source, tag: self.tag }
    }
}

impl SimulatedProcess {
    fn track(&mut self, rank: usize, op: OpId, region: Region, kind: TrackedKind) -> Handle {
        let index = self.ops.len();
        self.ops.push(Tracked { op: Some(op), region, kind, end: None });
        match kind {
            TrackedKind::Receive { found: None, .. } if !self.engine.is_complete(op) => {
                self.posted.insert(index);
            }
            TrackedKind::Receive { .. } | TrackedKind::Send { .. } | TrackedKind::Addressed(_) => {
                self.open.push(index)
            }
        }
        Handle { rank, index }
    }

    /// Notes that a posted receive may complete.
    fn watch(&mut self, index: usize) {
        if self.posted.remove(&index) {
            self.open.push(index);
        }
    }

    fn watch_all(&mut self) {
        self.open.extend(std::mem::take(&mut self.posted));
    }

    fn track_ended(
        &mut self,
        rank: usize,
        region: Region,
        kind: TrackedKind,
        end: Completion,
    ) -> Handle {
        let index = self.ops.len();
        self.ops.push(Tracked { op: None, region, kind, end: Some(end) });
        Handle { rank, index }
    }

    fn op(&self, index: usize) -> OpId {
        self.ops[index].op.expect("an operation was submitted")
    }

    fn describe(&self, index: usize) -> String {
        match self.ops[index].kind {
            TrackedKind::Send { message } => format!("send of message {message}"),
            TrackedKind::Receive { peer, found: None } => format!("receive from {peer:?}"),
            TrackedKind::Receive { found: Some(_), .. } => "receive of a matched message".into(),
            TrackedKind::Addressed(kind) => format!("{kind:?}"),
        }
    }
}

pub fn peer_id(rank: usize) -> PeerId {
    PeerId(rank as u32)
}
