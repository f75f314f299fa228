//! The engine: commands, events, outputs.

mod arrive;
mod error;
mod leave;
mod links;
mod noted;
mod revoke;
mod submit;
mod through;

use std::collections::{BTreeMap, VecDeque};
use std::mem::Discriminant;
use std::ops::Add;

use memory::Region;
use wire::compress::Codec;
use wire::{FrameToken, HostCost, PeerId, RailId, RemoteRegion};

pub use error::PeerError;
pub use links::{Loss, Overdue};
pub use revoke::CLOSES;

use crate::matching::{Matched, Matching};
use crate::op::{Completion, Op, OpId, OpState, Ops, Outcome};
use crate::peer::{PeerState, Pending, Reach};
use crate::replay_buffer::Keeping;
use crate::send_observer::SendObserver;
use crate::strategy::{Auto, Choice, Invalid, Strategy};

/// What does not follow from the links.
#[derive(Debug)]
pub struct Config {
    /// Number of processes in the job: peers are `0..size`.
    pub size: usize,
    /// How much memory unmatched messages may take beyond what every link accepts from the beginning.
    pub budget_bytes: usize,
    /// How long a peer may be without an open link before it is taken to have failed, in nanoseconds; 0: not
    /// at all.
    pub patience_ns: u64,
    /// How long it may be so before other rails are asked for a way, in nanoseconds; not 0.
    pub detour_ns: u64,
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
            detour_ns: DETOUR_NS,
            host: HostCost::default(),
            strategy: Box::new(Auto::default()),
        }
    }
}

/// Memory for unmatched messages, where nobody says otherwise.
pub const BUDGET_BYTES: usize = 256 << 20;

/// How long a peer may be without an open link, where nobody says otherwise, in nanoseconds.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// How long it may be so before other rails are asked for a way, in nanoseconds: as long as a network may swallow
/// what opens the first link.
const DETOUR_NS: u64 = 1_500_000_000;

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
pub struct RemoteReadId(OpId);

/// Memory of a peer to be copied here.
#[derive(Clone, Debug)]
pub struct RemoteRead {
    /// Names it in [`Engine::handle_remote_read_done`].
    pub id: RemoteReadId,
    /// The peer.
    pub peer: PeerId,
    /// The rail that reaches its memory.
    pub rail: RailId,
    /// Its memory.
    pub remote: RemoteRegion,
    /// Where in it to begin, in bytes.
    pub offset: u64,
    /// Where the bytes go; its length says how many.
    pub local: Region,
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
    pub uncompressed_bytes: u64,
    /// …and after, without headers.
    pub compressed_bytes: u64,
    /// Bytes packed that did not get short enough, and went as they are.
    pub incompressible_bytes: u64,
    /// Gates on which the strategy broke a rule, and `fifo` went on.
    pub refusals: u64,
}

impl Counters {
    /// Packets built that are of a message.
    pub fn packets(&self) -> u64 {
        self.eager + self.rendezvous + self.answers + self.pieces
    }
}

/// Of several engines of a process.
impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            eager: self.eager + other.eager,
            rendezvous: self.rendezvous + other.rendezvous,
            out_of_credit: self.out_of_credit + other.out_of_credit,
            answers: self.answers + other.answers,
            pieces: self.pieces + other.pieces,
            frames: self.frames + other.frames,
            resent: self.resent + other.resent,
            unexpected: self.unexpected + other.unexpected,
            unexpected_bytes_max: self.unexpected_bytes_max.max(other.unexpected_bytes_max),
            packed: self.packed + other.packed,
            uncompressed_bytes: self.uncompressed_bytes + other.uncompressed_bytes,
            compressed_bytes: self.compressed_bytes + other.compressed_bytes,
            incompressible_bytes: self.incompressible_bytes + other.incompressible_bytes,
            refusals: self.refusals + other.refusals,
        }
    }
}

/// The communication engine of one process; see the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Engine {
    peers: Vec<Option<Box<PeerState>>>,
    ops: Ops,
    matching: Matching,
    matched: Matched,
    ready: VecDeque<(PeerId, RailId)>,
    wanted: VecDeque<PeerId>,
    remote_reads: VecDeque<OpId>,
    unexpected_bytes: usize,
    /// Gates whose links are looked at beside one another, or waited for.
    watched: Vec<PeerId>,
    /// A long frame has left for one of these, or one is waited for.
    is_timed: bool,
    now_ns: u64,
    /// How often in a row the engine did not want to know it.
    untimed: u32,
    /// Links that the peer has given up: to be closed.
    severed: VecDeque<(PeerId, RailId)>,
    /// Contexts that are closed, because of whom; and those of which peers have told, still to be told on.
    closed: BTreeMap<u64, PeerId>,
    heard_closed: VecDeque<u64>,
    /// How the frame that is being posted is kept: done afterwards, when it is on its way.
    keeping: Option<Keeping>,
    patience_ns: u64,
    detour_ns: u64,
    host: HostCost,
    is_oversubscribed: bool,
    budget_bytes: usize,
    granted_bytes: usize,
    counters: Counters,
    codec: Codec,
    strategy: Box<dyn Strategy>,
    /// Whether it coalesces.
    coalesces: bool,
    choice: Choice,
    /// Which rules the strategy broke, and which of that is still to be told.
    broken: Vec<Discriminant<Invalid>>,
    refusals: VecDeque<String>,
    send_observer: Option<Box<dyn SendObserver>>,
}

impl Engine {
    /// An engine without links.
    pub fn new(config: Config) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(config.size, || None);
        Self {
            peers,
            ops: Ops::default(),
            matching: Matching::new(),
            matched: Matched::default(),
            ready: VecDeque::new(),
            wanted: VecDeque::new(),
            remote_reads: VecDeque::new(),
            unexpected_bytes: 0,
            watched: Vec::new(),
            is_timed: false,
            now_ns: 0,
            untimed: 0,
            severed: VecDeque::new(),
            closed: BTreeMap::new(),
            heard_closed: VecDeque::new(),
            keeping: None,
            patience_ns: config.patience_ns,
            detour_ns: config.detour_ns,
            host: config.host,
            is_oversubscribed: false,
            budget_bytes: config.budget_bytes,
            granted_bytes: 0,
            counters: Counters::default(),
            codec: Codec::default(),
            coalesces: config.strategy.coalesces(),
            strategy: config.strategy,
            choice: Choice::default(),
            broken: Vec::new(),
            refusals: VecDeque::new(),
            send_observer: None,
        }
    }

    /// The end of an operation, once; `None` while it is under way.
    #[inline]
    pub fn take(&mut self, op: OpId) -> Option<Completion> {
        self.ops.take(op)
    }

    /// Whether others want this host's cores: processor time that is free elsewhere is not.
    #[inline]
    pub fn set_oversubscribed(&mut self, is_oversubscribed: bool) {
        self.is_oversubscribed = is_oversubscribed;
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
            | OpState::RemoteReading { .. }
            | OpState::Send(_) => None,
        }
    }

    /// Forgets an operation as soon as it completes.
    pub fn release(&mut self, op: OpId) {
        self.ops.release(op);
    }

    /// Counts news that the engine does not know of: the end of something made of several operations.
    pub fn submit_event(&mut self) {
        self.ops.event_count += 1;
    }

    /// Grows with whatever a thread may wait for: operations that complete, messages that come before
    /// their receive, peers that fail, and what was submitted as news.
    #[inline]
    pub fn event_count(&self) -> u64 {
        self.ops.event_count
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
        let peers_idle = self.peers.iter().flatten().all(|peer| peer.is_idle());
        peers_idle && self.remote_reads.is_empty() && self.ops.sends_pending() == 0
    }

    /// As [`Engine::is_idle`], but for what would be said in closed contexts to peers to which no way is found yet.
    pub fn is_idle_but_for_closed(&self) -> bool {
        let mut unsaid = 0;
        let mut peers = self.peers.iter().flatten();
        let are_idle = peers.all(|peer| {
            let is_closed = |send: &Pending| self.closed.contains_key(&send.context);
            let waits = peer.reach == Reach::Wanted && peer.send_queue.iter().all(is_closed);
            unsaid += if waits { peer.send_queue.len() } else { 0 };
            waits || peer.is_idle()
        });
        are_idle && self.remote_reads.is_empty() && self.ops.sends_pending() == unsaid
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    #[inline]
    fn peer(&mut self, peer: PeerId) -> &mut PeerState {
        self.peers[peer.0 as usize].get_or_insert_with(new_peer)
    }

    /// Whether the peer is gone, or there is no way to it: nothing more comes from there.
    pub fn is_failed(&self, peer: PeerId) -> bool {
        self.peers[peer.0 as usize].as_ref().is_some_and(|peer| peer.reach.is_failed())
    }

    /// A peer that has failed, if any has.
    pub fn first_failed(&self) -> Option<PeerId> {
        (0..self.peers.len() as u32).map(PeerId).find(|peer| self.is_failed(*peer))
    }

    /// Notes that a peer has work.
    #[inline]
    fn list(&mut self, id: PeerId) {
        let Self { peers, ready, wanted, .. } = self;
        let state = peers[id.0 as usize].get_or_insert_with(new_peer);
        match state.reach {
            Reach::Closed => {
                state.reach = Reach::Wanted;
                wanted.push_back(id);
            }
            Reach::Up => {
                for link in state.links.iter_mut().filter(|link| !link.full && !link.listed) {
                    link.listed = true;
                    ready.push_back((id, link.rail));
                }
                if !state.apart.is_empty() {
                    state.list_resumes(|rail| ready.push_back((id, rail)));
                }
            }
            Reach::Wanted | Reach::Unreachable | Reach::Gone => {}
        }
    }

    fn fail(&mut self, index: u32) {
        let completion = Completion { source: 0, tag: 0, bytes: 0, outcome: Outcome::PeerFailed };
        self.ops.complete(index, completion);
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
fn new_peer() -> Box<PeerState> {
    Box::new(PeerState::new())
}
