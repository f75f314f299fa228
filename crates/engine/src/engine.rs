//! The engine: commands, events, outputs.

mod links;

use std::collections::VecDeque;

use memory::Region;
use wire::pack::Packer;
use wire::packet::{self, FrameError, Header, Packet, Way};
use wire::{Capabilities, Frame, FrameToken, GateId, HostCost, RailId, RemoteRegion};

pub use links::{Loss, Overdue};

use crate::ahead::Settled;
use crate::emit::{
    BEGIN_MAX, GATHERED_MAX, emit_begin, emit_choice, emit_end, emit_lost, emit_short, emit_whole,
};
use crate::gate::{Control, EARLY_MAX, Gate, Pending, Reach, charge};
use crate::matching::{
    Content, Matched, MatchedId, Matching, Message, Selector, Unexpected, wanted,
};
use crate::op::{
    Completion, Envelope, Op, OpId, OpState, Ops, Outcome, SendMode, SendState, receive_piece,
    received,
};
use crate::strategy::{Auto, Choice, Fifo, Strategy, View};

/// What does not follow from the links.
#[derive(Debug)]
pub struct Config {
    /// Number of processes in the job: gates are `0..size`.
    pub size: usize,
    /// How much memory unmatched messages may take beyond what every link accepts from the beginning.
    pub budget_bytes: usize,
    /// How long a peer may be without an open link before it is taken to have failed, in nanoseconds; 0: not
    /// at all.
    pub patience_ns: u64,
    /// What this machine takes to copy and to send.
    pub host: HostCost,
    /// What chooses the contents of frames.
    pub strategy: Box<dyn Strategy>,
}

impl Config {
    /// A job of `size` processes, with the strategy that does all.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            budget_bytes: BUDGET_BYTES,
            patience_ns: PATIENCE_NS,
            host: HostCost::default(),
            strategy: Box::new(Auto::default()),
        }
    }
}

/// Memory for unmatched messages, where nobody says otherwise.
pub const BUDGET_BYTES: usize = 256 << 20;

/// How long a peer may be without an open link, where nobody says otherwise, in nanoseconds.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// No peer is believed to accept more.
const CREDIT_MAX: usize = 1 << 30;

/// What became of a frame the engine built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Taken, its memory is free.
    Done,
    /// Taken; `handle_sent` follows.
    Held,
    /// Not taken; `handle_room` follows.
    Full,
}

/// Names a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullId(OpId);

/// Memory of a peer to be copied here.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Names it in [`Engine::handle_pulled`].
    pub id: PullId,
    /// The peer.
    pub gate: GateId,
    /// The rail that reaches its memory.
    pub rail: RailId,
    /// Its memory.
    pub remote: RemoteRegion,
    /// Where in it to begin, in bytes.
    pub offset: u64,
    /// Where the bytes go; its length says how many.
    pub local: Region,
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A packet refers to an operation that does not expect it.
    #[error("a {what} packet names operation {op}, which does not expect one")]
    Operation {
        /// The packet's kind.
        what: &'static str,
        /// The number it gave.
        op: u32,
    },
    /// A message comes twice, or too far ahead of the one before.
    #[error("message {got} arrived where {expected} was due")]
    Sequence {
        /// The number due.
        expected: u32,
        /// The number found.
        got: u32,
    },
    /// More unmatched data than was granted.
    #[error("{charged} bytes of unmatched messages, where {granted} were granted")]
    Credit {
        /// What the peer has sent.
        charged: usize,
        /// What it may send.
        granted: usize,
    },
    /// Data outside the memory that was cleared for it.
    #[error("data at {offset}..+{len} of a message of which {wanted} bytes were asked for")]
    Range {
        /// Where it should go.
        offset: u64,
        /// How long it is.
        len: usize,
        /// How much was asked for.
        wanted: u64,
    },
    /// A piece sent ahead of a clear belongs to no message under way, or comes twice.
    #[error("data ahead of message {sequence}, of which none is due")]
    Ahead {
        /// The message's sequence.
        sequence: u32,
    },
    /// A packed piece is not what it says.
    #[error("a packed piece of {len} bytes does not unpack to {bytes}")]
    Packed {
        /// Its length as it came.
        len: usize,
        /// Its length in the message, as it says.
        bytes: usize,
    },
    /// A word about the link inside a frame.
    #[error("a word about the link stands inside a frame")]
    Word,
    /// A frame over a link that the peer has not greeted over.
    #[error("a frame came before the greeting")]
    Greeting,
    /// More frames are said to have arrived than were sent.
    #[error("{got} frames are said to have arrived of {sent}")]
    Confirmation {
        /// How many were sent.
        sent: u32,
        /// How many have arrived, as the peer says.
        got: u32,
    },
    /// A peer that is not in the job.
    #[error("gate {0} is not in the job")]
    Gate(u32),
    /// A peer without a link: it is gone, or was never there.
    #[error("a frame over a link that is not open")]
    NotConnected,
}

/// What the engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent whole.
    pub eager: u64,
    /// Messages that asked first.
    pub rendezvous: u64,
    /// Of those that asked, for want of credit only.
    pub out_of_credit: u64,
    /// Answers to requests, and ends of fetched messages told.
    pub answers: u64,
    /// Pieces of messages that asked first.
    pub pieces: u64,
    /// Frames built.
    pub frames: u64,
    /// Frames sent again, because a link was lost.
    pub resent: u64,
    /// Messages that waited for a receive.
    pub unexpected: u64,
    /// The most bytes of unmatched messages held at once.
    pub unexpected_bytes_max: usize,
    /// Pieces of long messages sent packed…
    pub packed: u64,
    /// …their bytes before…
    pub packed_from_bytes: u64,
    /// …and after, without headers.
    pub packed_to_bytes: u64,
    /// Bytes packed that did not get short enough, and went as they are.
    pub packed_in_vain_bytes: u64,
}

impl Counters {
    /// Packets built that are of a message.
    pub fn packets(&self) -> u64 {
        self.eager + self.rendezvous + self.answers + self.pieces
    }
}

/// The communication engine of one process; see the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Engine {
    gates: Vec<Option<Box<Gate>>>,
    ops: Ops,
    matching: Matching,
    matched: Matched,
    ready: VecDeque<(GateId, RailId)>,
    wanted: VecDeque<GateId>,
    pulls: VecDeque<OpId>,
    unexpected_bytes: usize,
    /// Gates whose links are looked at beside one another, or waited for.
    watched: Vec<GateId>,
    /// A long frame has left for one of these, or one is waited for.
    is_timed: bool,
    now_ns: u64,
    /// How often in a row the engine did not want to know it.
    untimed: u32,
    /// Links that the peer has given up: to be closed.
    severed: VecDeque<(GateId, RailId)>,
    patience_ns: u64,
    host: HostCost,
    budget_bytes: usize,
    granted_bytes: usize,
    counters: Counters,
    packer: Packer,
    strategy: Box<dyn Strategy>,
    /// Whether it gathers.
    gathers: bool,
    choice: Choice,
    /// Why the strategy that was asked for was given up.
    refusal: Option<String>,
}

impl Engine {
    /// An engine without links.
    pub fn new(config: Config) -> Self {
        let mut gates = Vec::new();
        gates.resize_with(config.size, || None);
        Self {
            gates,
            ops: Ops::default(),
            matching: Matching::new(),
            matched: Matched::default(),
            ready: VecDeque::new(),
            wanted: VecDeque::new(),
            pulls: VecDeque::new(),
            unexpected_bytes: 0,
            watched: Vec::new(),
            is_timed: false,
            now_ns: 0,
            untimed: 0,
            severed: VecDeque::new(),
            patience_ns: config.patience_ns,
            host: config.host,
            budget_bytes: config.budget_bytes,
            granted_bytes: 0,
            counters: Counters::default(),
            packer: Packer::default(),
            gathers: config.strategy.gathers(),
            strategy: config.strategy,
            choice: Choice::default(),
            refusal: None,
        }
    }

    /// Sends `data` to `gate`, one of the job's processes.
    #[inline]
    pub fn submit_send(
        &mut self,
        gate: GateId,
        envelope: Envelope,
        data: &Region,
        mode: SendMode,
    ) -> OpId {
        let state = OpState::Send(SendState {
            envelope,
            to_emit: true,
            held: 0,
            awaiting: mode == SendMode::Synchronous,
            sequence: 0,
            ahead: 0,
            receiver: 0,
            next: 0,
            end: 0,
            offered: false,
        });
        let id = self.ops.insert(Some(gate), data.clone(), state);
        let way = self.gate(gate);
        if way.reach.is_failed() {
            self.fail(id.index);
            return id;
        }
        let Envelope { context, is_urgent, .. } = envelope;
        way.window.push_back(Pending { id, bytes: data.len(), context, is_urgent, overtaken: 0 });
        self.list(gate);
        id
    }

    /// Builds the frame of a short message that can leave at once, with nothing before it on its gate.
    /// Answers the rail for which `frame` holds it: the message is sent, its memory free, and the frame
    /// is to be posted as one of [`Engine::poll_frame`]. None when it must be submitted as any other.
    #[inline]
    pub fn submit_short(
        &mut self,
        gate: GateId,
        envelope: Envelope,
        data: &Region,
        frame: &mut Frame,
    ) -> Option<RailId> {
        let way = self.gates.get_mut(gate.0 as usize)?.as_mut()?;
        let [link] = &way.links[..] else {
            return self.submit_short_kept(gate, envelope, data, frame);
        };
        if link.ledger.is_some() {
            return self.submit_short_kept(gate, envelope, data, frame);
        }
        let rail = link.rail;
        if !link.is_ready() || link.has_work() || !way.takes_short(link, data.len()) {
            return None;
        }
        frame.clear();
        emit_whole(way, envelope, data, &mut frame.head);
        self.counters.eager += 1;
        self.counters.frames += 1;
        Some(rail)
    }

    /// As [`Engine::submit_short`], where frames are kept and there may be several links.
    #[cold]
    fn submit_short_kept(
        &mut self,
        gate: GateId,
        envelope: Envelope,
        data: &Region,
        frame: &mut Frame,
    ) -> Option<RailId> {
        let way = self.gates.get_mut(gate.0 as usize)?.as_mut()?;
        let at = way.first_ready()?;
        let link = &way.links[at];
        let rail = link.rail;
        let room = way.order_room();
        if !way.takes_short(link, data.len()) || room == 0 {
            return None;
        }
        frame.clear();
        emit_short(way, at, room, (envelope, data), frame);
        self.counters.eager += 1;
        self.counters.frames += 1;
        Some(rail)
    }

    /// Lays a short message beside others of its gate, to share a frame with them and with what follows,
    /// until [`Engine::release_gathered`] or until the gate has something else to send. True when the
    /// message is taken: it is sent, its memory free. False when it must be submitted as any other, as
    /// when the frame is full, or the strategy gathers nothing.
    pub fn submit_gathered(&mut self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        let Some(Some(way)) = self.gates.get_mut(gate.0 as usize) else { return false };
        let Some(link) = way.links.first() else { return false };
        let len = data.len();
        let Capabilities { frame_max, inline_max, .. } = link.capabilities;
        let frame_max = frame_max.saturating_sub(BEGIN_MAX).min(GATHERED_MAX);
        if !self.gathers
            || len > inline_max
            || way.gathered.len() + packet::EAGER_LEN + len > frame_max
            || charge(len) > way.credit
            || !way.window.is_empty()
            || way.order_room() == 0
        {
            return false;
        }
        let mut gathered = std::mem::take(&mut way.gathered);
        if gathered.is_empty() {
            way.gathered_from = way.sequence_out;
        }
        emit_whole(way, envelope, data, &mut gathered);
        way.gathered = gathered;
        self.counters.eager += 1;
        true
    }

    /// Whether messages were gathered for a gate that have not left.
    #[inline]
    pub fn has_gathered(&self, gate: GateId) -> bool {
        let way = self.gates.get(gate.0 as usize).and_then(Option::as_ref);
        way.is_some_and(|way| !way.gathered.is_empty())
    }

    /// Lets what was gathered for a gate go.
    pub fn release_gathered(&mut self, gate: GateId) {
        let way = self.gate(gate);
        if !way.gathered.is_empty() {
            way.released = true;
            self.list(gate);
        }
    }

    /// Receives a message that `selector` accepts into `into`; `gate` is the only process it can come
    /// from, if it names its source.
    #[inline]
    pub fn submit_receive(
        &mut self,
        gate: Option<GateId>,
        selector: Selector,
        into: &Region,
    ) -> OpId {
        let id = self.ops.insert(gate, into.clone(), OpState::Posted);
        if let Some(message) = self.matching.take_waiting(gate, &selector) {
            self.deliver_waiting(id, message);
        } else if gate.is_some_and(|gate| self.is_failed(gate)) {
            self.fail(id.index);
        } else {
            self.matching.post(gate, selector, id);
        }
        id
    }

    /// Cancels a receive that has not been matched; false if it is too late, or a send.
    pub fn submit_cancel(&mut self, op: OpId) -> bool {
        let is_posted = self.ops.find(op).is_some_and(|op| matches!(op.state, OpState::Posted));
        if !is_posted || !self.matching.cancel(op) {
            return false;
        }
        let outcome = Outcome::Cancelled;
        self.ops.complete(op.index, Completion { source: 0, tag: 0, bytes: 0, outcome });
        true
    }

    /// The oldest waiting message that `selector` accepts; `gate` is as in [`Engine::submit_receive`].
    pub fn probe(&mut self, gate: Option<GateId>, selector: Selector) -> Option<Message> {
        self.matching.peek(gate, &selector).map(Unexpected::message)
    }

    /// Takes the oldest waiting message that `selector` accepts out of matching; `gate` is as in
    /// [`Engine::submit_receive`].
    pub fn submit_matched_probe(
        &mut self,
        gate: Option<GateId>,
        selector: Selector,
    ) -> Option<(MatchedId, Message)> {
        let message = self.matching.take_waiting(gate, &selector)?;
        let described = message.message();
        Some((self.matched.insert(message), described))
    }

    /// Receives a message that a matched probe took; `None` if it was received before.
    pub fn submit_matched_receive(&mut self, message: MatchedId, into: &Region) -> Option<OpId> {
        let message = self.matched.take(message)?;
        let id = self.ops.insert(Some(message.gate), into.clone(), OpState::Posted);
        self.deliver_waiting(id, message);
        Some(id)
    }

    /// The end of an operation, once; `None` while it is under way.
    #[inline]
    pub fn take(&mut self, op: OpId) -> Option<Completion> {
        self.ops.take(op)
    }

    /// Whether [`Engine::take`] would answer.
    pub fn is_complete(&self, op: OpId) -> bool {
        self.ops.find(op).is_some_and(|op| matches!(op.state, OpState::Done(_)))
    }

    /// The end of an operation, left in place; `None` while it is under way.
    pub fn peek(&self, op: OpId) -> Option<Completion> {
        match self.ops.find(op)?.state {
            OpState::Done(completion) => Some(completion),
            OpState::Free
            | OpState::Posted
            | OpState::Arriving { .. }
            | OpState::Pulling { .. }
            | OpState::Send(_) => None,
        }
    }

    /// Forgets an operation as soon as it completes.
    pub fn release(&mut self, op: OpId) {
        self.ops.release(op);
    }

    /// Counts news that the engine does not know of: the end of something made of several operations.
    pub fn submit_news(&mut self) {
        self.ops.news += 1;
    }

    /// Grows with whatever a thread may wait for: operations that complete, messages that come before
    /// their receive, peers that fail, and what was submitted as news.
    #[inline]
    pub fn news(&self) -> u64 {
        self.ops.news
    }

    /// Whether operations are under way.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.ops.pending != 0
    }

    /// Whether messages were offered to peers that have not taken them whole.
    #[inline]
    pub fn has_offers(&self) -> bool {
        self.ops.offers > 0
    }

    /// Whether nothing is left to send and nobody waits for this process's data.
    pub fn is_idle(&self) -> bool {
        let gates_idle = self.gates.iter().flatten().all(|gate| gate.is_idle());
        gates_idle && self.pulls.is_empty() && self.ops.sends_pending() == 0
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether there may be something to connect, to copy or to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        !(self.ready.is_empty() && self.pulls.is_empty() && self.wanted.is_empty())
    }

    /// A gate that has work and no link; each is named once.
    #[inline]
    pub fn poll_connect(&mut self) -> Option<GateId> {
        self.wanted.pop_front()
    }

    /// A gate's link that can take a frame which is there to be built.
    #[inline]
    pub fn poll_gate(&mut self) -> Option<(GateId, RailId)> {
        while let Some((id, rail)) = self.ready.pop_front() {
            let gate = self.gate(id);
            let has_work = gate.has_work();
            let Some(link) = gate.link(rail) else {
                if gate.greets(rail) {
                    return Some((id, rail));
                }
                continue;
            };
            link.listed = false;
            if !link.full && (has_work || link.has_work()) {
                return Some((id, rail));
            }
        }
        None
    }

    /// Builds the next frame for a link of `gate` into `frame`; false when there is nothing to send over
    /// it.
    #[inline]
    pub fn poll_frame(&mut self, gate: GateId, rail: RailId, frame: &mut Frame) -> bool {
        frame.clear();
        let Some(Some(way)) = self.gates.get_mut(gate.0 as usize) else { return false };
        let Some(at) = way.links.iter().position(|link| link.rail == rail) else {
            return self.poll_greeting(gate, rail, frame);
        };
        let link = &mut way.links[at];
        if link.full {
            return false;
        }
        if let Some(stalled) = link.stalled.take() {
            *frame = stalled;
            return true;
        }
        if !way.has_work() && !way.links[at].has_work() {
            return false;
        }
        if way.links[at].ledger.is_none() || !self.emit_kept(gate, at, frame) {
            self.build(gate, at, frame);
        }
        self.counters.frames += u64::from(!frame.is_empty());
        !frame.is_empty()
    }

    /// Where frames are kept: builds one that goes again, or the word that alone can go; false if there is
    /// room for what is new.
    fn emit_kept(&mut self, gate: GateId, at: usize, frame: &mut Frame) -> bool {
        let Some(Some(way)) = self.gates.get_mut(gate.0 as usize) else { return true };
        let may_keep = way.may_keep(at);
        let Some(ledger) = &mut way.links[at].ledger else { return false };
        if ledger.emit_again(frame) {
            self.counters.resent += 1;
            return true;
        }
        if !may_keep {
            if ledger.is_asked() {
                ledger.tell(&mut frame.head, false);
            }
            return true;
        }
        let goes_again = !way.lost.is_empty() && emit_lost(way, at, frame);
        self.counters.resent += u64::from(goes_again);
        self.is_timed |= goes_again;
        goes_again
    }

    /// Builds a frame of what the strategy chooses.
    fn build(&mut self, gate: GateId, link: usize, frame: &mut Frame) {
        let Self { gates, ops, counters, packer, host, strategy, gathers, choice, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return };
        let begun = emit_begin(way, link, way.order_room(), frame);
        if way.has_choice() {
            choice.clear();
            let taken = frame.head.len();
            let view = View::new(gate, (way, link), ops, host, (taken, taken == begun.from));
            strategy.choose(&view, choice);
            if let Err(invalid) = choice.check(&view) {
                let text = format!("strategy {}: {invalid}; fifo goes on", strategy.name());
                self.refusal = Some(text);
                *strategy = Box::new(Fifo);
                *gathers = strategy.gathers();
                choice.clear();
                strategy.choose(&view, choice);
            }
            emit_choice(way, link, ops, choice, frame, (counters, packer));
        }
        emit_end(way, link, begun, frame);
        self.is_timed |= frame.body.is_some();
    }

    /// Why a strategy was given up, once.
    pub fn poll_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    /// What the rail did with the frame that [`Engine::poll_frame`] built.
    #[inline]
    pub fn handle_posted(&mut self, gate: GateId, rail: RailId, frame: &mut Frame, posted: Posted) {
        match posted {
            Posted::Done => {
                if let Some(token) = frame.token {
                    self.handle_sent(gate, rail, token);
                }
            }
            Posted::Held => {}
            Posted::Full => {
                let Some(link) = self.gate(gate).any_link(rail) else { return };
                link.full = true;
                link.stalled = Some(std::mem::take(frame));
            }
        }
        // What this link does not take, now that it has more to do, another may.
        if !self.watched.is_empty() || posted == Posted::Full {
            self.list_if_working(gate);
        }
    }

    /// Lists a gate that has more to send.
    #[cold]
    fn list_if_working(&mut self, gate: GateId) {
        if self.gate(gate).has_work() {
            self.list(gate);
        }
    }

    /// Takes in a frame that came over a link of `gate`.
    ///
    /// # Errors
    /// When the peer breaks the protocol. Nothing of other peers is touched; the caller closes the
    /// gate's links and calls [`Engine::handle_down`].
    pub fn handle_frame(
        &mut self,
        gate: GateId,
        rail: RailId,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let peer = self.gates.get(gate.0 as usize).ok_or(PeerError::Gate(gate.0))?;
        let way = peer.as_ref().ok_or(PeerError::NotConnected)?;
        let mut rest = match way.links.iter().position(|link| link.rail == rail) {
            Some(at) if way.links[at].ledger.is_some() => self.hear(gate, at, bytes)?,
            Some(_) => bytes,
            None => self.hear_apart(gate, rail, bytes)?,
        };
        while let Some(packet) = packet::parse(&mut rest)? {
            if let Packet::Eager { header, acknowledge, payload } = packet {
                self.handle_eager(gate, header, acknowledge, payload)?;
                continue;
            }
            self.handle_packet(gate, packet)?;
        }
        Ok(())
    }

    /// Takes in a packet, apart from the way of short messages.
    #[inline(never)]
    fn handle_packet(&mut self, gate: GateId, packet: Packet<'_>) -> Result<(), PeerError> {
        match packet {
            Packet::Eager { header, acknowledge, payload } => {
                self.handle_eager(gate, header, acknowledge, payload)
            }
            Packet::Ahead { sequence, offset, payload } => {
                self.handle_ahead(gate, sequence, offset, payload)
            }
            Packet::Request { header, op, bytes, way } => {
                if let Way::Ahead { bytes: ahead, .. } = way {
                    self.announce_ahead(gate, header.sequence, ahead, bytes)?;
                }
                let content = Content::Request { op, bytes, way };
                self.handle_message(Unexpected { gate, header, content })
            }
            Packet::Clear { op, receiver, wanted } => self.handle_clear(gate, op, receiver, wanted),
            Packet::Data { receiver, offset, payload } => {
                self.handle_data(gate, receiver, offset, payload)
            }
            Packet::PackedAhead { sequence, offset, bytes, payload } => {
                self.handle_packed_ahead(gate, (sequence, offset), payload, bytes as usize)
            }
            Packet::PackedData { receiver, offset, bytes, payload } => {
                self.handle_packed_data(gate, (receiver, offset), payload, bytes as usize)
            }
            Packet::Finish { op } => self.handle_finish(gate, op),
            Packet::Credit { bytes } => {
                let way = self.gate(gate);
                way.credit = CREDIT_MAX.min(way.credit + bytes as usize);
                Ok(())
            }
            Packet::Parted { link, frames } => self.handle_parted(gate, link, frames),
            Packet::Arrived { .. } | Packet::Greeting { .. } => Err(PeerError::Word),
        }
    }

    /// Memory of a peer that is to be fetched.
    #[inline]
    pub fn poll_pull(&mut self) -> Option<Pull> {
        loop {
            let id = self.pulls.pop_front()?;
            let Some(op) = self.ops.find(id) else { continue };
            let (OpState::Pulling { wanted, address, .. }, Some(gate)) = (&op.state, op.gate)
            else {
                continue;
            };
            let remote = RemoteRegion { address: *address, len: *wanted };
            let local = op.region.slice(0, *wanted as usize);
            let Some(rail) = self.gate(gate).pulling_rail() else {
                self.handle_pull_declined(PullId(id));
                continue;
            };
            return Some(Pull { id: PullId(id), gate, rail, remote, offset: 0, local });
        }
    }

    /// A fetch is done, or was refused: then the peer is asked to send.
    pub fn handle_pulled(&mut self, id: PullId, ok: bool) {
        let PullId(id) = id;
        let Some(op) = self.ops.find_mut(id) else { return };
        let (&OpState::Pulling { source, tag, bytes, wanted, op: sender, .. }, Some(gate)) =
            (&op.state, op.gate)
        else {
            return;
        };
        if !ok {
            self.gate(gate).pull_refused = true;
            return self.handle_pull_declined(PullId(id));
        }
        self.ops.complete(id.index, received(source, tag, bytes, wanted));
        self.gate(gate).control.push_back(Control::Finish { op: sender });
        self.list(gate);
    }

    /// A fetch is not wanted this time: the peer is asked to send.
    pub fn handle_pull_declined(&mut self, id: PullId) {
        let PullId(id) = id;
        let Some(op) = self.ops.find_mut(id) else { return };
        let (&OpState::Pulling { source, tag, bytes, wanted, op: sender, .. }, Some(gate)) =
            (&op.state, op.gate)
        else {
            return;
        };
        op.state = OpState::Arriving { source, tag, bytes, wanted, left: wanted };
        let clear = Control::Clear { op: sender, receiver: id.index, wanted };
        self.gate(gate).control.push_back(clear);
        self.list(gate);
    }

    #[inline]
    fn gate(&mut self, gate: GateId) -> &mut Gate {
        self.gates[gate.0 as usize].get_or_insert_with(new_gate)
    }

    /// Whether the peer is gone, or there is no way to it: nothing more comes from there.
    pub fn is_failed(&self, gate: GateId) -> bool {
        self.gates[gate.0 as usize].as_ref().is_some_and(|gate| gate.reach.is_failed())
    }

    /// Notes that a gate has work.
    #[inline]
    fn list(&mut self, id: GateId) {
        let Self { gates, ready, wanted, .. } = self;
        let way = gates[id.0 as usize].get_or_insert_with(new_gate);
        match way.reach {
            Reach::Closed => {
                way.reach = Reach::Wanted;
                wanted.push_back(id);
            }
            Reach::Up => {
                for link in way.links.iter_mut().filter(|link| !link.full && !link.listed) {
                    link.listed = true;
                    ready.push_back((id, link.rail));
                }
                if !way.apart.is_empty() {
                    way.list_greetings(|rail| ready.push_back((id, rail)));
                }
            }
            Reach::Wanted | Reach::Unreachable | Reach::Gone => {}
        }
    }

    fn fail(&mut self, index: u32) {
        let completion = Completion { source: 0, tag: 0, bytes: 0, outcome: Outcome::PeerFailed };
        self.ops.complete(index, completion);
    }

    /// Whether a matching-bearing packet is the next of its gate; true takes it.
    #[inline]
    fn in_sequence(&mut self, gate: GateId, got: u32) -> Result<bool, PeerError> {
        let way = self.gate(gate);
        let expected = way.sequence_in;
        if got == expected {
            way.sequence_in = expected.wrapping_add(1);
            return Ok(true);
        }
        let ahead = got.wrapping_sub(expected) as usize;
        if ahead > EARLY_MAX || way.early.contains_key(&got) {
            return Err(PeerError::Sequence { expected, got });
        }
        Ok(false)
    }

    /// A whole message: straight into the receive that waits for it, or aside.
    #[inline]
    fn handle_eager(
        &mut self,
        gate: GateId,
        header: Header,
        acknowledge: Option<u32>,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        self.charge(gate, charge(payload.len()))?;
        let way = self.gate(gate);
        let overtaken = way.sequence_in != header.sequence || !way.early.is_empty();
        if !overtaken && let Some(id) = self.matching.take_posted(gate, &header) {
            self.gate(gate).sequence_in = header.sequence.wrapping_add(1);
            self.deliver(id, gate, &header, payload, acknowledge);
            return Ok(());
        }
        let content = Content::Eager { data: payload.into(), acknowledge };
        self.handle_message(Unexpected { gate, header, content })
    }

    /// A message in its turn or ahead of it: matched, or laid aside; then those it held up.
    fn handle_message(&mut self, message: Unexpected) -> Result<(), PeerError> {
        let gate = message.gate;
        let sequence = message.header.sequence;
        if !self.in_sequence(gate, sequence)? {
            self.gate(gate).early.insert(sequence, message);
            return Ok(());
        }
        self.match_or_keep(message);
        loop {
            let way = self.gate(gate);
            let Some(next) = way.early.remove(&way.sequence_in) else { return Ok(()) };
            way.sequence_in = way.sequence_in.wrapping_add(1);
            self.match_or_keep(next);
        }
    }

    fn match_or_keep(&mut self, message: Unexpected) {
        match self.matching.take_posted(message.gate, &message.header) {
            Some(id) => self.accept(id, message),
            None => {
                self.counters.unexpected += 1;
                self.ops.news += 1;
                if let Content::Eager { data, .. } = &message.content {
                    self.unexpected_bytes += data.len();
                    let most = self.counters.unexpected_bytes_max.max(self.unexpected_bytes);
                    self.counters.unexpected_bytes_max = most;
                }
                self.matching.arrive(message);
            }
        }
    }

    /// A message that waited has found its receive.
    fn deliver_waiting(&mut self, id: OpId, message: Unexpected) {
        if let Content::Eager { data, .. } = &message.content {
            self.unexpected_bytes -= data.len();
        }
        self.accept(id, message);
    }

    fn accept(&mut self, id: OpId, message: Unexpected) {
        let Unexpected { gate, header, content } = message;
        match content {
            Content::Eager { data, acknowledge } => {
                self.deliver(id, gate, &header, &data, acknowledge);
            }
            Content::Request { op, bytes, way } => {
                self.answer(id, gate, &header, op, bytes, way);
            }
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        id: OpId,
        gate: GateId,
        header: &Header,
        payload: &[u8],
        acknowledge: Option<u32>,
    ) {
        let Some(op) = self.ops.at(id.index) else { return };
        let bytes = payload.len() as u64;
        let wanted = wanted(&op.region, bytes);
        op.region.write(0, &payload[..wanted as usize]);
        self.ops.complete(id.index, received(header.source, header.tag, bytes, wanted));
        let way = self.gate(gate);
        if way.reach.is_failed() {
            return;
        }
        way.owed += charge(payload.len());
        if let Some(op) = acknowledge {
            way.control.push_back(Control::Finish { op });
        } else if !way.must_return_credit() {
            return;
        }
        self.list(gate);
    }

    /// Answers a request that found its receive: fetch, take what came ahead, clear.
    fn answer(
        &mut self,
        id: OpId,
        gate: GateId,
        header: &Header,
        sender: u32,
        bytes: u64,
        approach: Way,
    ) {
        let Header { source, tag, sequence, .. } = *header;
        let Some(op) = self.ops.at(id.index) else { return };
        let wanted = wanted(&op.region, bytes);
        op.gate = Some(gate);
        op.state = OpState::Arriving { source, tag, bytes, wanted, left: wanted };
        let way = self.gate(gate);
        if way.reach.is_failed() {
            return self.fail(id.index);
        }
        let can_pull = way.can_fetch() && wanted > 0;
        match approach {
            Way::Fetch(address) if can_pull => {
                if let Some(op) = self.ops.at(id.index) {
                    op.state = OpState::Pulling { source, tag, bytes, wanted, op: sender, address };
                }
                self.pulls.push_back(id);
                return;
            }
            Way::Ahead { clear: false, .. } => {}
            Way::Ask | Way::Fetch(_) | Way::Ahead { clear: true, .. } => {
                way.control.push_back(Control::Clear { op: sender, receiver: id.index, wanted });
            }
        }
        if wanted == 0 {
            self.ops.complete(id.index, received(source, tag, bytes, 0));
        }
        if let Way::Ahead { .. } = approach {
            self.take_ahead(gate, sequence, id);
        }
        self.list(gate);
    }

    fn handle_clear(
        &mut self,
        gate: GateId,
        op: u32,
        receiver: u32,
        wanted: u64,
    ) -> Result<(), PeerError> {
        let (bytes, send) = self.awaiting_send(gate, op, "clear")?;
        if wanted > bytes {
            return Err(PeerError::Range { offset: 0, len: wanted as usize, wanted: bytes });
        }
        send.awaiting = false;
        send.receiver = receiver;
        // What was promised ahead goes whole, wanted or not.
        send.end = wanted.max(send.ahead);
        let streams_already = send.to_emit;
        send.to_emit = send.next < send.end;
        if !send.to_emit {
            self.ops.complete_send_if_done(op);
        } else if !streams_already {
            let id = self.ops.id(op);
            self.gate(gate).streams.push_back(id);
            self.list(gate);
        }
        Ok(())
    }

    fn handle_finish(&mut self, gate: GateId, op: u32) -> Result<(), PeerError> {
        self.awaiting_send(gate, op, "finish")?.1.awaiting = false;
        self.ops.complete_send_if_done(op);
        Ok(())
    }

    /// A send that waits for a word of this peer, and its message's length in bytes.
    fn awaiting_send(
        &mut self,
        gate: GateId,
        op: u32,
        what: &'static str,
    ) -> Result<(u64, &mut SendState), PeerError> {
        match self.ops.at(op) {
            Some(Op { state: OpState::Send(send), gate: Some(to), region, .. })
                if *to == gate && send.awaiting && (!send.to_emit || send.ahead > 0) =>
            {
                Ok((region.len() as u64, send))
            }
            _ => Err(PeerError::Operation { what, op }),
        }
    }

    fn handle_data(
        &mut self,
        gate: GateId,
        receiver: u32,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let id = self.expect_data(gate, receiver, offset, payload.len())?;
        receive_piece(&mut self.ops, id, offset, payload);
        Ok(())
    }

    /// The receive that asked for these bytes of its message.
    #[inline]
    fn expect_data(
        &mut self,
        gate: GateId,
        receiver: u32,
        offset: u64,
        len: usize,
    ) -> Result<OpId, PeerError> {
        let unexpected = PeerError::Operation { what: "data", op: receiver };
        let op = self.ops.at(receiver).filter(|op| op.gate == Some(gate)).ok_or(unexpected)?;
        let OpState::Arriving { wanted, left, .. } = &op.state else {
            return Err(unexpected);
        };
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > *wanted) || len as u64 > *left {
            return Err(PeerError::Range { offset, len, wanted: *wanted });
        }
        Ok(self.ops.id(receiver))
    }

    /// As [`Engine::handle_data`]; nothing is unpacked that was not asked for.
    #[cold]
    fn handle_packed_data(
        &mut self,
        gate: GateId,
        (receiver, offset): (u32, u64),
        payload: &[u8],
        bytes: usize,
    ) -> Result<(), PeerError> {
        let id = self.expect_data(gate, receiver, offset, bytes)?;
        let Self { packer, ops, .. } = self;
        let wrong = PeerError::Packed { len: payload.len(), bytes };
        receive_piece(ops, id, offset, packer.unpack(payload, bytes).ok_or(wrong)?);
        Ok(())
    }

    /// A request says how much of its message comes ahead.
    fn announce_ahead(
        &mut self,
        gate: GateId,
        sequence: u32,
        ahead: u64,
        bytes: u64,
    ) -> Result<(), PeerError> {
        let granted = self.gate(gate).accepted as u64;
        if ahead > bytes || ahead > granted {
            return Err(PeerError::Range { offset: 0, len: ahead as usize, wanted: bytes });
        }
        let way = self.gate(gate);
        let expected = way.sequence_in;
        if sequence.wrapping_sub(expected) as usize > EARLY_MAX {
            return Err(PeerError::Sequence { expected, got: sequence });
        }
        let early = way.arrivals.announce(sequence, ahead)?;
        self.charge(gate, charge(ahead as usize) - early)
    }

    fn handle_ahead(
        &mut self,
        gate: GateId,
        sequence: u32,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let Self { gates, ops, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return Ok(()) };
        let is_due = sequence.wrapping_sub(way.sequence_in) as usize <= EARLY_MAX;
        let limit = way.accepted as u64;
        let settled = way.arrivals.piece(ops, sequence, (offset, payload), (is_due, limit))?;
        self.settle(gate, settled);
        self.charge(gate, settled.early)
    }

    /// As [`Engine::handle_ahead`]; nothing is unpacked that would not be accepted from any sender.
    #[cold]
    fn handle_packed_ahead(
        &mut self,
        gate: GateId,
        (sequence, offset): (u32, u64),
        payload: &[u8],
        bytes: usize,
    ) -> Result<(), PeerError> {
        let wanted = self.gate(gate).accepted as u64;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > wanted) {
            return Err(PeerError::Range { offset, len: bytes, wanted });
        }
        let mut packer = std::mem::take(&mut self.packer);
        let taken = match packer.unpack(payload, bytes) {
            Some(piece) => self.handle_ahead(gate, sequence, offset, piece),
            None => Err(PeerError::Packed { len: payload.len(), bytes }),
        };
        self.packer = packer;
        taken
    }

    /// Gives a receive that matched what came ahead.
    fn take_ahead(&mut self, gate: GateId, sequence: u32, id: OpId) {
        let Self { gates, ops, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return };
        let settled = way.arrivals.matched(ops, sequence, id);
        self.settle(gate, settled);
    }

    fn settle(&mut self, gate: GateId, settled: Settled) {
        self.unexpected_bytes = self.unexpected_bytes + settled.kept - settled.released;
        let most = self.counters.unexpected_bytes_max.max(self.unexpected_bytes);
        self.counters.unexpected_bytes_max = most;
        if let Some(bytes) = settled.retired {
            let way = self.gate(gate);
            way.owed += charge(bytes);
            if way.must_return_credit() {
                self.list(gate);
            }
        }
    }

    /// Keeps the messages that came wholly ahead from a peer that is gone, and drops the parts of others.
    fn end_ahead(&mut self, gate: GateId) {
        let mut arrivals = std::mem::take(&mut self.gate(gate).arrivals);
        self.unexpected_bytes -= arrivals.waiting_bytes();
        for message in self.matching.messages_mut().chain(self.matched.messages_mut()) {
            if message.gate == gate
                && let Content::Request { bytes, .. } = message.content
                && let Some(data) = arrivals.take_whole(message.header.sequence, bytes)
            {
                self.unexpected_bytes += data.len();
                message.content = Content::Eager { data: data.into(), acknowledge: None };
            }
        }
    }

    #[inline]
    fn charge(&mut self, gate: GateId, bytes: usize) -> Result<(), PeerError> {
        let way = self.gate(gate);
        way.charged += bytes;
        let granted = way.accepted;
        if way.charged > granted {
            return Err(PeerError::Credit { charged: way.charged, granted });
        }
        Ok(())
    }
}

/// The memory of a frame is free.
fn free(ops: &mut Ops, token: FrameToken) {
    let id = OpId { index: token.0 as u32, generation: (token.0 >> 32) as u32 };
    if let Some(Op { state: OpState::Send(send), .. }) = ops.find_mut(id) {
        send.held = send.held.saturating_sub(1);
        ops.complete_send_if_done(id.index);
    }
}

/// Once for each peer that is spoken to.
#[cold]
#[inline(never)]
fn new_gate() -> Box<Gate> {
    Box::new(Gate::new())
}
