//! Commands, events and outputs of the engine.

mod addressed;
mod arrive;
mod describe;
mod ends;
mod error;
mod leave;
mod links;
mod noted;
mod retract;
mod revoke;
mod submit;
mod through;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::Discriminant;
use std::ops::Add;

use cost::HostCost;
pub use error::PeerError;
pub use links::Loss;
use memory::Region;
use wire::compress::Codec;
use wire::{FrameToken, PeerId, RailId, RemoteRegion};

use crate::exposed::{ExposedMemory, Handler, Replies};
use crate::matching::{Matched, Matching};
use crate::op::{Completion, Op, OpId, OpState, Ops, Outcome};
use crate::peer::{PeerState, Reach};
use crate::pending::Pending;
use crate::replay_buffer::FrameRecord;
use crate::revocation::{Revocation, RevokedBy};
use crate::send_observer::SendObserver;
use crate::strategy::{Auto, Choice, Invalid, Strategy};

/// Settings that do not follow from the links.
#[derive(Debug)]
pub struct Config {
    /// Number of processes in the job: peers are `0..size`.
    pub size: usize,
    /// Memory for unmatched messages, beyond what every link accepts at the start, in bytes.
    pub budget_bytes: usize,
    /// True if lost links may reopen. Otherwise a peer without an open link has failed.
    pub reopens: bool,
    /// Cost of copying and sending on this machine.
    pub host: HostCost,
    /// Strategy that chooses the contents of frames.
    pub strategy: Box<dyn Strategy>,
    /// First generation of the identifiers of operations. Engines that follow each other in one process take distant
    /// ones: no identifier of an earlier engine is then one of a later engine's.
    pub first_generation: u32,
}

impl Config {
    /// Configures a job of `size` processes with the default strategy ([`Auto`]).
    pub fn new(size: usize) -> Self {
        Self {
            size,
            budget_bytes: BUDGET_BYTES,
            reopens: true,
            host: HostCost::default(),
            strategy: Box::new(Auto::default()),
            first_generation: 0,
        }
    }
}

/// Default memory for unmatched messages.
pub const BUDGET_BYTES: usize = 256 << 20;

/// Upper bound of a peer's credit.
const CREDIT_MAX: usize = 1 << 30;

/// Result of posting a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Accepted; its memory is free.
    Done,
    /// Accepted; `handle_sent` follows.
    Held,
    /// Not accepted; `handle_room` follows.
    Full,
}

/// Identifies a remote read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteReadId(OpId);

/// Memory of a peer to be copied to this process.
#[derive(Clone, Debug)]
pub struct RemoteRead {
    /// Identifier for [`Engine::handle_remote_read_done`].
    pub id: RemoteReadId,
    /// Peer that owns the memory.
    pub peer: PeerId,
    /// Rail that reaches the memory.
    pub rail: RailId,
    /// Memory to read.
    pub remote: RemoteRegion,
    /// Offset of the first byte in it.
    pub offset: u64,
    /// Destination; its length is the number of bytes.
    pub local: Region,
}

crate::counters! {
    /// Statistics of the engine. Those of the engines of a process are added.
    pub struct Counters {
        /// Eager messages.
        pub eager: u64,
        /// Rendezvous messages.
        pub rendezvous: u64,
        /// Short messages among these, sent by rendezvous for lack of credit.
        pub out_of_credit: u64,
        /// Puts.
        pub puts: u64,
        /// Gets.
        pub gets: u64,
        /// Calls of handlers of peers.
        pub calls: u64,
        /// CTS, grant and FIN packets.
        pub answers: u64,
        /// Pieces of rendezvous messages.
        pub pieces: u64,
        /// Frames built.
        pub frames: u64,
        /// Frames resent after a link was lost.
        pub resent: u64,
        /// Messages that arrived before their receive.
        pub unexpected: u64,
        /// Messages among these that their senders cancelled.
        pub retracted: u64,
        /// Peak bytes of unmatched messages.
        pub unexpected_bytes_max: Peak,
        /// Compressed pieces of long messages.
        pub compressed: u64,
        /// Their bytes before compression.
        pub uncompressed_bytes: u64,
        /// Their bytes after compression, without headers.
        pub compressed_bytes: u64,
        /// Bytes that compression was tried on without gain.
        pub incompressible_bytes: u64,
        /// Peers for which the strategy broke a rule and `fifo` took over.
        pub violations: u64,
    }
}

impl Counters {
    /// Number of packets of messages that were built.
    pub fn packets(&self) -> u64 {
        self.eager + self.rendezvous + self.answers + self.pieces
    }
}

/// The highest of a series of values. The sum of several is their highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peak(pub usize);

impl Peak {
    pub(crate) fn note(&mut self, value: usize) {
        self.0 = self.0.max(value);
    }
}

impl Add for Peak {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.max(other)
    }
}

/// Communication engine of one process; see the crate's documentation for the order of calls.
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
    /// Peers whose links are compared, probed or waited for.
    watched: Vec<PeerId>,
    /// True if a long frame to one of these is unacknowledged, or a link is waited for.
    is_timed: bool,
    now_ns: u64,
    /// Number of consecutive calls that needed no time.
    untimed: u32,
    failed_peers: u32,
    /// Links that the peer has given up, to be closed.
    severed: VecDeque<(PeerId, RailId)>,
    /// Contexts whose messages may match before those that were sent earlier.
    overtaking: BTreeSet<u64>,
    /// Revoked contexts with the reason; then revocations by peers, still to be reported.
    revoked: BTreeMap<u64, RevokedBy>,
    revoked_by_peers: VecDeque<Revocation>,
    /// Data to store the frame being posted; it is stored after posting, while the frame is in
    /// flight.
    record: Option<FrameRecord>,
    reopens: bool,
    host: HostCost,
    is_oversubscribed: bool,
    budget_bytes: usize,
    granted_bytes: usize,
    counters: Counters,
    codec: Codec,
    strategy: Box<dyn Strategy>,
    /// True if the strategy coalesces short messages.
    coalesces: bool,
    choice: Choice,
    /// Rules that the strategy broke, and the messages still to be reported.
    broken: Vec<Discriminant<Invalid>>,
    violations: VecDeque<(PeerId, String)>,
    send_observer: Option<Box<dyn SendObserver>>,
    memory: ExposedMemory,
    handlers: Vec<Option<Box<dyn Handler>>>,
    replies: Replies,
}

impl Engine {
    /// Creates an engine without links.
    pub fn new(config: Config) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(config.size, || None);
        Self {
            peers,
            ops: Ops::new(config.first_generation),
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
            failed_peers: 0,
            severed: VecDeque::new(),
            overtaking: BTreeSet::new(),
            revoked: BTreeMap::new(),
            revoked_by_peers: VecDeque::new(),
            record: None,
            reopens: config.reopens,
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
            violations: VecDeque::new(),
            send_observer: None,
            memory: ExposedMemory::default(),
            handlers: Vec::new(),
            replies: Replies::default(),
        }
    }

    /// Takes the completion of an operation, once; `None` while it is pending.
    #[inline]
    pub fn take(&mut self, op: OpId) -> Option<Completion> {
        self.ops.take(op)
    }

    /// Sets whether more ranks than CPU cores run here, so that CPU time is not free.
    #[inline]
    pub fn set_oversubscribed(&mut self, is_oversubscribed: bool) {
        self.is_oversubscribed = is_oversubscribed;
    }

    /// True if [`Engine::take`] would return a completion.
    pub fn is_complete(&self, op: OpId) -> bool {
        self.ops.find(op).is_some_and(|op| matches!(op.state, OpState::Done(_)))
    }

    /// True while an operation is neither complete nor gone.
    pub fn is_pending(&self, op: OpId) -> bool {
        let is_under_way = |op: &Op| !matches!(op.state, OpState::Done(_) | OpState::Free);
        self.ops.find(op).is_some_and(is_under_way)
    }

    /// Returns the completion of an operation without taking it; `None` while it is pending.
    pub fn peek(&self, op: OpId) -> Option<Completion> {
        match self.ops.find(op)?.state {
            OpState::Done(completion) => Some(completion),
            OpState::Free
            | OpState::Posted
            | OpState::Receiving { .. }
            | OpState::RemoteReading { .. }
            | OpState::Send(_) => None,
        }
    }

    /// Forgets an operation as soon as it completes.
    pub fn release(&mut self, op: OpId) {
        self.ops.release(op);
    }

    /// Counts an event that the engine does not know of, such as the end of a collective.
    pub fn submit_event(&mut self) {
        self.ops.event_count += 1;
    }

    /// Counter of everything that a thread may wait for: completions, unexpected messages, applied
    /// puts and calls, peer failures, and submitted events.
    #[inline]
    pub fn event_count(&self) -> u64 {
        self.ops.event_count
    }

    /// True if operations are pending, or peers may reach exposed memory at any time: somebody has to poll.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.ops.pending != 0
    }

    /// True if a rendezvous send has not completed.
    #[inline]
    pub fn has_offers(&self) -> bool {
        self.ops.offers > 0
    }

    /// True if nothing is left to send and no peer waits for this process's data.
    pub fn is_idle(&self) -> bool {
        let peers_idle = self.peers.iter().flatten().all(|peer| peer.is_idle());
        peers_idle && self.remote_reads.is_empty() && self.ops.sends_pending() == 0
    }

    /// True if the engine is idle, except for sends in revoked contexts to peers without a path
    /// yet, and for notices of revocations that have left. A peer that leaves its job reads none.
    pub fn is_idle_but_for_revoked(&self) -> bool {
        let mut unsaid = 0;
        let mut peers = self.peers.iter().flatten();
        let are_idle = peers.all(|peer| {
            let is_revoked = |send: &Pending| self.revoked.contains_key(&send.context);
            let waits = peer.reach == Reach::Wanted && peer.send_queue.iter().all(is_revoked);
            unsaid += if waits { peer.send_queue.len() } else { 0 };
            waits || peer.is_idle()
        });
        let unneeded = unsaid + self.notices_under_way();
        are_idle && self.remote_reads.is_empty() && self.ops.sends_pending() == unneeded
    }

    /// Statistics so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    #[inline]
    fn peer(&mut self, peer: PeerId) -> &mut PeerState {
        self.peers[peer.0 as usize].get_or_insert_with(new_peer)
    }

    /// Adds a peer: the one after the last.
    pub fn add_peer(&mut self) -> PeerId {
        self.peers.push(None);
        PeerId(self.peers.len() as u32 - 1)
    }

    /// True if the peer has failed or no path to it exists: nothing more arrives from it.
    pub fn is_failed(&self, peer: PeerId) -> bool {
        self.peers[peer.0 as usize].as_ref().is_some_and(|peer| peer.reach.is_failed())
    }

    /// Number of peers that have failed.
    #[inline]
    pub fn failed_peers(&self) -> u32 {
        self.failed_peers
    }

    /// First failed peer, if any.
    pub fn first_failed(&self) -> Option<PeerId> {
        (0..self.peers.len() as u32).map(PeerId).find(|peer| self.is_failed(*peer))
    }

    /// Lists the links of a peer that has work.
    #[inline]
    fn list(&mut self, id: PeerId) {
        let Self { peers, ready, wanted, .. } = self;
        let state = peers[id.0 as usize].get_or_insert_with(new_peer);
        match state.reach {
            Reach::Unconnected => {
                state.reach = Reach::Wanted;
                wanted.push_back(id);
            }
            Reach::Up => {
                for link in state.links.iter_mut().filter(|link| !link.full && !link.listed) {
                    link.listed = true;
                    ready.push_back((id, link.rail));
                }
                if !state.inactive.is_empty() {
                    state.list_resumes(|rail| ready.push_back((id, rail)));
                }
            }
            Reach::Wanted | Reach::Failed => {}
        }
    }

    fn fail(&mut self, index: u32) {
        self.end_with(index, Outcome::PeerFailed);
    }

    fn end_with(&mut self, index: u32, outcome: Outcome) {
        self.ops.complete(index, Completion { source: 0, tag: 0, bytes: 0, outcome });
    }
}

/// Releases the memory of a frame.
fn free(ops: &mut Ops, token: FrameToken) {
    let id = OpId { index: token.0 as u32, generation: (token.0 >> 32) as u32 };
    if let Some(Op { state: OpState::Send(send), .. }) = ops.find_mut(id) {
        send.held = send.held.saturating_sub(1);
        ops.complete_send_if_done(id.index);
    }
}

/// Allocates a peer's state on first contact.
#[cold]
#[inline(never)]
fn new_peer() -> Box<PeerState> {
    Box::new(PeerState::new())
}
