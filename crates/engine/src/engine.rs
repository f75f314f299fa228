//! The engine: commands, events, outputs.

use std::collections::VecDeque;

use memory::Region;
use wire::pack::Packer;
use wire::packet::{self, FrameError, Header, Packet, Way};
use wire::{
    Capabilities, Cost, Frame, FrameToken, GateId, HostCost, RailId, RemoteRegion, Thresholds,
};

use crate::ahead::Settled;
use crate::emit::{
    BEGIN_MAX, GATHERED_MAX, emit_again, emit_begin, emit_choice, emit_end, emit_whole,
};
use crate::gate::{Control, EARLY_MAX, Gate, Pending, Reach, charge};
use crate::link::{Kept, Link, judge};
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
            host: HostCost::default(),
            strategy: Box::new(Auto::default()),
        }
    }
}

/// Memory for unmatched messages, where nobody says otherwise.
pub const BUDGET_BYTES: usize = 256 << 20;

/// So often the time need not be told, where nothing is under way.
const UNTIMED_MAX: u32 = 64;

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
    /// A frame's number inside the frame.
    #[error("a frame's number stands inside the frame")]
    Mark,
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
    /// Gates that have, or had, several links.
    forked: Vec<GateId>,
    now_ns: u64,
    /// How often in a row the engine did not want to know it.
    untimed: u32,
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
            forked: Vec::new(),
            now_ns: 0,
            untimed: 0,
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
        let begun = emit_begin(way, at, room, frame);
        emit_whole(way, envelope, data, &mut frame.head);
        emit_end(way, at, begun, frame);
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
            let Some(link) = gate.link(rail) else { continue };
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
        let Some(at) = way.links.iter().position(|link| link.rail == rail) else { return false };
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
        if way.links[at].ledger.is_some() && !way.may_number(at) {
            way.links[at].tally.tell(&mut frame.head);
        } else if way.lost.is_empty() || !emit_again(way, at, frame) {
            self.build(gate, at, frame);
        }
        self.counters.frames += u64::from(!frame.is_empty());
        !frame.is_empty()
    }

    /// Builds a frame of what the strategy chooses.
    fn build(&mut self, gate: GateId, link: usize, frame: &mut Frame) {
        let Self { gates, ops, counters, packer, host, strategy, gathers, choice, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return };
        let begun = emit_begin(way, link, way.order_room(), frame);
        if way.has_choice() {
            choice.clear();
            let view = View::new(gate, (way, link), ops, host, frame.head.len());
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
                let Some(link) = self.gate(gate).link(rail) else { return };
                link.full = true;
                link.stalled = Some(std::mem::take(frame));
            }
        }
        // What this link does not take, now that it has more to do, another may.
        if !self.forked.is_empty() || posted == Posted::Full {
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

    /// The memory of a frame is free again, as far as the rail goes.
    pub fn handle_sent(&mut self, gate: GateId, rail: RailId, token: FrameToken) {
        // What may have to leave again is free when it has arrived.
        if self.gate(gate).link(rail).is_some_and(|link| link.ledger.is_none()) {
            free(&mut self.ops, token);
        }
    }

    /// A full link has room again.
    pub fn handle_room(&mut self, gate: GateId, rail: RailId) {
        if let Some(link) = self.gate(gate).link(rail) {
            link.full = false;
            self.list(gate);
        }
    }

    /// A link is open. A peer that is gone stays gone: its messages and credits have no beginning
    /// any more.
    pub fn handle_up(&mut self, gate: GateId, rail: RailId, capabilities: Capabilities) {
        let way = self.gate(gate);
        if way.reach == Reach::Gone || way.link(rail).is_some() {
            return;
        }
        if way.reach != Reach::Up {
            way.reach = Reach::Up;
            way.accepted = capabilities.credit_bytes;
            way.credit = capabilities.credit_bytes;
        }
        way.links.push(Link::new(rail, capabilities));
        if way.links.len() == 2 && !self.forked.contains(&gate) {
            self.forked.push(gate);
        }
        self.grant(gate, capabilities.credit_wanted);
        self.list(gate);
    }

    /// What a link costs is known, or known better.
    pub fn handle_cost(&mut self, gate: GateId, rail: RailId, cost: Cost) {
        let (host, budget) = (self.host, self.budget_bytes as u64);
        let Some(link) = self.gate(gate).link(rail) else { return };
        link.predict(cost);
        if link.capabilities.adapts {
            link.adapt(&Thresholds::derive(&cost, &host, budget));
            let wanted = link.capabilities.credit_wanted;
            self.grant(gate, wanted);
        }
        // A link that was passed over may be the better one now.
        self.list(gate);
    }

    /// Grants a peer credit up to `wanted` bytes in all, as far as the budget goes: never more than half
    /// of what is left, so that there is some for those that come later.
    fn grant(&mut self, gate: GateId, wanted: usize) {
        let left = self.budget_bytes.saturating_sub(self.granted_bytes) / 2;
        let way = self.gate(gate);
        let bytes = wanted.saturating_sub(way.accepted + way.untold).min(left);
        way.granted += bytes;
        way.untold += bytes;
        self.granted_bytes += bytes;
    }

    /// Whether the engine is to be told the time, when asked after what came was taken in: where links are
    /// judged beside one another, while something is under way on them, and now and then.
    #[inline]
    pub fn wants_time(&mut self) -> bool {
        !self.forked.is_empty() && self.judges_now()
    }

    fn judges_now(&mut self) -> bool {
        let Self { forked, gates, untimed, .. } = self;
        let is_under_way = forked.iter().any(|gate| {
            let way = gates[gate.0 as usize].as_ref();
            way.is_some_and(|way| way.links.iter().any(Link::has_kept))
        });
        *untimed = if is_under_way || *untimed == UNTIMED_MAX { 0 } else { *untimed + 1 };
        *untimed == 0
    }

    /// It is so late, by a clock that never goes back. Answers a link that has fallen so far behind the
    /// others of its gate that it is to be closed; [`Engine::handle_link_down`] follows.
    pub fn handle_time(&mut self, now_ns: u64) -> Option<(GateId, RailId)> {
        self.now_ns = now_ns;
        let mut late = None;
        for at in 0..self.forked.len() {
            let gate = self.forked[at];
            let way = self.gate(gate);
            way.links.iter_mut().for_each(|link| link.stamp(now_ns));
            if way.links.len() < 2 {
                continue;
            }
            late = judge(&mut way.links, now_ns).map(|rail| (gate, rail)).or(late);
            if way.links.iter().any(Link::has_work) || way.has_work() {
                self.list(gate);
            }
        }
        late
    }

    /// A link is gone. True if others carry on, and what it may have lost; else the peer is gone, as
    /// [`Engine::handle_down`] says.
    pub fn handle_link_down(&mut self, gate: GateId, rail: RailId) -> bool {
        let way = self.gate(gate);
        let Some(at) = way.links.iter().position(|link| link.rail == rail) else {
            return way.reach == Reach::Up;
        };
        let Link { ledger, .. } = way.links.remove(at);
        let frame_max = way.links.iter().map(|link| link.capabilities.frame_max).max();
        let carries = |kept: &Kept| frame_max.is_some_and(|max| kept.len() <= max);
        let survives = !way.links.is_empty() && ledger.is_some();
        if let Some(ledger) = ledger {
            way.lost.extend(ledger.into_kept());
        }
        if !survives || !way.lost.iter().all(carries) {
            self.handle_down(gate);
            return false;
        }
        self.list(gate);
        true
    }

    /// The peer is gone, or there is no way to it: operations that need it complete with
    /// [`Outcome::PeerFailed`].
    pub fn handle_down(&mut self, gate: GateId) {
        self.end_ahead(gate);
        self.ops.news += 1;
        let way = self.gate(gate);
        let reach = match way.reach {
            Reach::Closed | Reach::Wanted | Reach::Unreachable => Reach::Unreachable,
            Reach::Up | Reach::Gone => Reach::Gone,
        };
        let granted = way.granted;
        *way = Gate { reach, ..Gate::new() };
        self.granted_bytes -= granted;
        self.matching.drop_requests(gate);
        for index in self.ops.of_gate(gate) {
            self.matching.cancel(self.ops.id(index));
            self.fail(index);
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
        let is_open = |way: &Gate| way.links.iter().any(|link| link.rail == rail);
        if !peer.as_ref().is_some_and(|way| is_open(way)) {
            return Err(PeerError::NotConnected);
        }
        let (mut rest, mut is_numbered) = (bytes, false);
        while let Some(packet) = packet::parse(&mut rest)? {
            if let Packet::Eager { header, acknowledge, payload } = packet {
                self.handle_eager(gate, header, acknowledge, payload)?;
                continue;
            }
            if let Packet::Mark { number, prompt } = packet {
                if std::mem::replace(&mut is_numbered, true) {
                    return Err(PeerError::Mark);
                }
                if !self.is_new(gate, rail, number, prompt)? {
                    return Ok(());
                }
                continue;
            }
            if let Packet::Arrived { frames } = packet {
                self.handle_arrived(gate, rail, frames)?;
                continue;
            }
            self.handle_packet(gate, rail, packet)?;
        }
        Ok(())
    }

    /// Takes in a packet, apart from the way of short messages.
    #[inline(never)]
    fn handle_packet(
        &mut self,
        gate: GateId,
        rail: RailId,
        packet: Packet<'_>,
    ) -> Result<(), PeerError> {
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
            Packet::Arrived { frames } => self.handle_arrived(gate, rail, frames),
            Packet::Mark { .. } => Err(PeerError::Mark),
        }
    }

    /// Frames have arrived: what was kept of them is free.
    #[inline(never)]
    fn handle_arrived(&mut self, gate: GateId, rail: RailId, frames: u32) -> Result<(), PeerError> {
        let Self { gates, ops, now_ns, .. } = self;
        let Some(Some(way)) = gates.get_mut(gate.0 as usize) else { return Ok(()) };
        let Some(link) = way.link(rail) else { return Ok(()) };
        link.confirm(frames, *now_ns, |token| free(ops, token))?;
        // The peer puts more in order now, and the link keeps more.
        if !way.is_drained() {
            self.list(gate);
        }
        Ok(())
    }

    /// Notes a numbered frame; false if it came before, over a link that died since.
    #[inline]
    fn is_new(
        &mut self,
        gate: GateId,
        rail: RailId,
        number: u32,
        prompt: bool,
    ) -> Result<bool, PeerError> {
        let way = self.gate(gate);
        if let Some(link) = way.link(rail) {
            link.tally.receive();
        }
        let is_new = way.seen.insert(number)?;
        if prompt || way.is_pressed {
            // On all links: what holds the sender up may be a frame on another, which may be still to come.
            way.links.iter_mut().for_each(|link| link.tally.ask());
            way.is_pressed = !way.seen.is_complete();
            self.list(gate);
        }
        Ok(is_new)
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
