//! Operations: pending sends and receives.

use memory::Region;
use wire::PeerId;

use crate::ends::EndQueues;
use crate::exposed::AddressedHead;

/// Identifies an operation until its completion is taken. Stale identifiers are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl OpId {
    /// Encodes the identifier as a number: the index in the low 32 bits, its generation in the high
    /// ones.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Decodes an identifier from its number.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Matching fields that a sender gives a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Context of the communicator.
    pub context: u64,
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// True if its receiver may be blocked on this message, as in a collective; not transmitted.
    pub is_urgent: bool,
}

/// Condition under which a send completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Completes when its memory may be reused.
    Standard,
    /// Completes when, in addition, a receive has matched it.
    Synchronous,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Ok,
    /// The message was longer than the receive's memory, which holds its beginning.
    Truncated {
        /// Full length of the message in bytes.
        message_bytes: u64,
    },
    /// Cancelled before it was matched.
    Cancelled,
    /// The peer has failed.
    PeerFailed,
    /// The application has revoked the context.
    Revoked,
    /// The peer has exposed no such memory, and took the access for an error of the application. A flush ends so if an
    /// earlier put or call did.
    Refused,
}

/// Completion of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Bytes delivered.
    pub bytes: u64,
    /// Result of the operation.
    pub outcome: Outcome,
}

/// One operation. `region` is the application's memory, dropped at completion.
#[derive(Debug)]
pub(crate) struct Op {
    pub generation: u32,
    pub peer: Option<PeerId>,
    pub region: Region,
    pub state: OpState,
    /// Marks of what follows the completion: [`RELEASED`], [`REGISTERED`].
    pub at_end: u8,
    /// Note of the submitter; 0 if there is none, or the operation was released.
    pub note: u64,
    /// True if the operation is in the list being built.
    pub is_listed: bool,
}

impl Op {
    fn new(generation: u32, peer: Option<PeerId>, region: Region, state: OpState) -> Self {
        Self { generation, peer, region, state, at_end: 0, note: 0, is_listed: false }
    }
}

/// State of an operation. Its tag is a byte of its own: one in a niche of the fields takes more instructions to read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum OpState {
    Free,
    /// A receive in the match table.
    Posted,
    /// A matched receive whose data are incomplete.
    Receiving {
        source: u32,
        tag: i32,
        bytes: u64,
        wanted: u64,
        left: u64,
        /// True if it receives the answer of a get or call, false if it matched a message.
        is_answer: bool,
    },
    /// A matched receive that `progress` reads remotely; `op` is the sender's. Once polled, it ends
    /// with its remote read, which writes to its memory.
    RemoteReading {
        source: u32,
        tag: i32,
        bytes: u64,
        wanted: u64,
        op: u32,
        address: u64,
        is_polled: bool,
    },
    Send(SendState),
    Done(Completion),
}

/// Purpose of a send's data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head {
    /// A message to be matched.
    Matched(Envelope),
    /// Addressed traffic.
    Addressed(AddressedHead),
}

impl Head {
    /// True if its receiver may be blocked on these data more than on others.
    pub fn is_urgent(&self) -> bool {
        matches!(self, Self::Matched(Envelope { is_urgent: true, .. }))
    }
}

/// Unusual events in the life of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFate {
    /// Nothing unusual.
    Usual,
    /// The application has cancelled it, and the peer was asked to drop the message.
    Retracted,
    /// The peer has dropped the message.
    Dropped,
    /// The peer has refused the call.
    Refused,
    /// Its context was revoked before it was complete.
    Revoked,
}

/// A send; it is complete when nothing of this is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendState {
    pub head: Head,
    /// True if the message is in the send queue, or being streamed.
    pub to_emit: bool,
    /// Number of frames that hold its memory at a rail.
    pub held: u32,
    /// True if the send waits for a CTS or FIN.
    pub awaiting: bool,
    pub fate: SendFate,
    /// Streaming state: the message's sequence, the bytes sent before the CTS, the receiver's
    /// operation after it, and the unsent bytes `next..end`.
    pub sequence: u32,
    pub rts_data: u64,
    pub receiver: u32,
    pub next: u64,
    pub end: u64,
    /// True if an RTS was sent.
    pub offered: bool,
    /// True if the receiver may grant credit before a receive matches.
    pub may_be_granted: bool,
}

impl SendState {
    /// Creates a send without anything to emit or to wait for.
    pub const fn new(head: Head) -> Self {
        Self {
            head,
            to_emit: false,
            held: 0,
            awaiting: false,
            fate: SendFate::Usual,
            sequence: 0,
            rts_data: 0,
            receiver: 0,
            next: 0,
            end: 0,
            offered: false,
            may_be_granted: false,
        }
    }

    pub fn is_complete(&self) -> bool {
        !self.to_emit && self.held == 0 && !self.awaiting
    }
}

/// Writes the wanted part of a piece of a message, and completes the receive with the last one. True if that was the
/// answer of a get or call.
#[inline]
pub(crate) fn receive_piece(ops: &mut Ops, id: OpId, offset: u64, payload: &[u8]) -> bool {
    write_piece(ops, id, offset, payload);
    count_piece(ops, id, offset, payload.len() as u64)
}

/// Writes the wanted part of a piece of a message.
#[inline]
pub(crate) fn write_piece(ops: &mut Ops, id: OpId, offset: u64, payload: &[u8]) {
    if let Some(Op { region, state: OpState::Receiving { wanted, .. }, .. }) = ops.find_mut(id) {
        let len = wanted.saturating_sub(offset).min(payload.len() as u64);
        if len > 0 {
            region.begin_write(offset as usize, &payload[..len as usize]);
        }
    }
}

/// Counts a written piece of a message, and completes the receive with the last one. True if that was the answer of a
/// get or call.
#[inline]
pub(crate) fn count_piece(ops: &mut Ops, id: OpId, offset: u64, piece_len: u64) -> bool {
    let Some(Op {
        state: OpState::Receiving { source, tag, bytes, wanted, left, is_answer }, ..
    }) = ops.find_mut(id)
    else {
        return false;
    };
    let len = wanted.saturating_sub(offset).min(piece_len).min(*left);
    if len == 0 {
        return false;
    }
    *left -= len;
    if *left > 0 {
        return false;
    }
    let (completion, is_answer) = (received(*source, *tag, *bytes, *wanted), *is_answer);
    ops.complete(id.index, completion);
    is_answer
}

/// Completion of a receive that took `wanted` of a message's `bytes`.
#[inline]
pub(crate) fn received(source: u32, tag: i32, bytes: u64, wanted: u64) -> Completion {
    let outcome =
        if wanted < bytes { Outcome::Truncated { message_bytes: bytes } } else { Outcome::Ok };
    Completion { source, tag, bytes: wanted, outcome }
}

/// Mark of an operation whose completion will not be taken.
pub(crate) const RELEASED: u8 = 1;

/// Mark of an operation that may be registered in queues of ends.
pub(crate) const REGISTERED: u8 = 2;

/// Number of slots for which there is room from the start: as many as a process reserves for its threads. A table that
/// grew to that size would leave smaller ones on the heap.
const FIRST_SLOTS: usize = 64;

/// Table of all operations of a process.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slots: Vec<Op>,
    free: Vec<u32>,
    /// Generation of the first operation in each slot.
    first_generation: u32,
    /// Number of pending sends by rendezvous.
    pub offers: usize,
    /// Number of pending operations, and of exposed memories.
    pub pending: usize,
    /// Counter of completions and of other events that a thread may wait for.
    pub event_count: u64,
    /// Queues of those who wait for one of many operations.
    pub ends: EndQueues,
}

impl Ops {
    /// An empty table whose identifiers begin with this generation.
    pub fn new(first_generation: u32) -> Self {
        Self { first_generation, slots: Vec::with_capacity(FIRST_SLOTS), ..Self::default() }
    }

    /// All slots, used or not.
    pub fn all(&self) -> impl Iterator<Item = &Op> {
        self.slots.iter()
    }

    /// Returns the memory for bytes `from..to` of a message that a receive takes in pieces: as much as it wants of
    /// them, and nothing if it has ended.
    #[inline]
    pub fn piece_target(&mut self, id: OpId, from: u64, to: u64) -> Region {
        match self.find_mut(id) {
            Some(Op { region, state: OpState::Receiving { wanted, .. }, .. }) if from < *wanted => {
                region.slice(from as usize, (to.min(*wanted) - from) as usize)
            }
            _ => Region::empty(),
        }
    }

    #[inline]
    pub fn insert(&mut self, peer: Option<PeerId>, region: Region, state: OpState) -> OpId {
        self.pending += 1;
        if let Some(index) = self.free.pop() {
            let op = &mut self.slots[index as usize];
            op.peer = peer;
            op.region = region;
            op.state = state;
            op.at_end = 0;
            return OpId { index, generation: op.generation };
        }
        let (index, generation) = (self.slots.len() as u32, self.first_generation);
        self.slots.push(Op::new(generation, peer, region, state));
        OpId { index, generation }
    }

    /// Reserves an identifier for a later operation.
    pub fn reserve(&mut self) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            let generation = self.first_generation;
            self.slots.push(Op::new(generation, None, Region::empty(), OpState::Free));
            self.slots.len() as u32 - 1
        });
        self.id(index)
    }

    /// Submits an operation with a reserved identifier.
    pub fn insert_reserved(
        &mut self,
        id: OpId,
        peer: Option<PeerId>,
        region: Region,
        state: OpState,
    ) {
        self.pending += 1;
        let op = &mut self.slots[id.index as usize];
        debug_assert!(op.generation == id.generation && matches!(op.state, OpState::Free));
        *op = Op::new(id.generation, peer, region, state);
    }

    pub fn at(&mut self, index: u32) -> Option<&mut Op> {
        self.slots.get_mut(index as usize)
    }

    #[inline]
    pub fn find(&self, id: OpId) -> Option<&Op> {
        self.slots.get(id.index as usize).filter(|op| op.generation == id.generation)
    }

    #[inline]
    pub fn find_mut(&mut self, id: OpId) -> Option<&mut Op> {
        self.slots.get_mut(id.index as usize).filter(|op| op.generation == id.generation)
    }

    pub fn id(&self, index: u32) -> OpId {
        OpId { index, generation: self.slots[index as usize].generation }
    }

    /// Current identifier at an index, if it was ever used.
    pub fn name(&self, index: u32) -> Option<OpId> {
        self.slots.get(index as usize).map(|op| OpId { index, generation: op.generation })
    }

    /// Completes a pending operation.
    #[inline]
    pub fn complete(&mut self, index: u32, completion: Completion) {
        self.complete_with(index, |_| completion);
    }

    /// Completes a pending operation as `end` says, which may still write to its memory.
    #[inline]
    pub fn complete_with(&mut self, index: u32, end: impl FnOnce(&Region) -> Completion) {
        let op = &mut self.slots[index as usize];
        let completion = end(&op.region);
        debug_assert!(!matches!(op.state, OpState::Done(_) | OpState::Free));
        if let OpState::Send(SendState { offered: true, .. }) = op.state {
            self.offers -= 1;
        }
        op.region.settle();
        op.region = Region::empty();
        self.pending -= 1;
        self.event_count += 1;
        op.state = OpState::Done(completion);
        if op.at_end != 0 {
            self.note_completion(index);
        }
    }

    /// Tells the queues of ends, and forgets a released operation.
    #[inline(never)]
    fn note_completion(&mut self, index: u32) {
        let at_end = std::mem::take(&mut self.slots[index as usize].at_end);
        if at_end & REGISTERED != 0 {
            self.ends.note(index);
        }
        if at_end & RELEASED != 0 {
            self.vacate(index);
        }
    }

    /// Completes a send that has nothing left to do.
    #[inline]
    pub fn complete_send_if_done(&mut self, index: u32) {
        if let Some(Op { state: OpState::Send(send), region, .. }) = self.slots.get(index as usize)
            && send.is_complete()
        {
            let (source, tag) = match send.head {
                Head::Matched(Envelope { source, tag, .. }) => (source, tag),
                Head::Addressed(_) => (0, 0),
            };
            let bytes = region.len() as u64;
            let outcome = match send.fate {
                SendFate::Usual | SendFate::Retracted => Outcome::Ok,
                SendFate::Dropped => Outcome::Cancelled,
                SendFate::Refused => Outcome::Refused,
                SendFate::Revoked => Outcome::Revoked,
            };
            self.complete(index, Completion { source, tag, bytes, outcome });
        }
    }

    #[inline]
    pub fn take(&mut self, id: OpId) -> Option<Completion> {
        let OpState::Done(completion) = self.find(id)?.state else { return None };
        self.vacate(id.index);
        Some(completion)
    }

    pub fn release(&mut self, id: OpId) {
        match self.find_mut(id) {
            Some(Op { state: OpState::Done(_), .. }) => self.vacate(id.index),
            Some(op) => {
                let former = std::mem::replace(&mut op.at_end, RELEASED);
                op.note = 0;
                if former & REGISTERED != 0 {
                    self.ends.note(id.index);
                }
            }
            None => {}
        }
    }

    /// Number of pending sends.
    pub fn sends_pending(&self) -> usize {
        self.slots.iter().filter(|op| matches!(op.state, OpState::Send(_))).count()
    }

    /// Indices of unfinished operations with `peer`.
    pub fn of_peer(&self, peer: PeerId) -> Vec<u32> {
        let unfinished = |op: &Op| !matches!(op.state, OpState::Free | OpState::Done(_));
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, op)| op.peer == Some(peer) && unfinished(op))
            .map(|(index, _)| index)
            .collect()
    }

    /// True if a remote read is writing to the operation's memory.
    pub fn is_being_read(&self, index: u32) -> bool {
        matches!(self.slots[index as usize].state, OpState::RemoteReading { is_polled: true, .. })
    }

    #[inline]
    pub fn vacate(&mut self, index: u32) {
        let op = &mut self.slots[index as usize];
        op.generation = op.generation.wrapping_add(1);
        op.state = OpState::Free;
        op.note = 0;
        self.free.push(index);
    }
}
