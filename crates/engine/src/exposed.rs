//! Memory and handlers that a process offers to its peers, and the packets that address them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use memory::Region;
use wire::addressed::{Answer, CallHeader};
use wire::{PeerId, RemoteKey};

/// Memory that this process has exposed to its peers.
#[derive(Debug, Default)]
pub struct ExposedMemory {
    slots: Vec<Exposure>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Exposure {
    generation: u32,
    memory: Option<Exposed>,
}

/// Memory behind one key.
#[derive(Debug)]
enum Exposed {
    Whole(Region),
    /// Pieces that come and go, by the offsets of their first bytes.
    Pieces(BTreeMap<u64, Region>),
}

impl ExposedMemory {
    pub(crate) fn expose(&mut self, memory: Region) -> RemoteKey {
        self.add(Exposed::Whole(memory))
    }

    pub(crate) fn expose_pieces(&mut self) -> RemoteKey {
        self.add(Exposed::Pieces(BTreeMap::new()))
    }

    fn add(&mut self, memory: Exposed) -> RemoteKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Exposure { generation: 0, memory: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.memory = Some(memory);
        RemoteKey { index, generation: slot.generation }
    }

    pub(crate) fn withdraw(&mut self, key: RemoteKey) -> bool {
        let slot = self.slots.get_mut(key.index as usize);
        let Some(slot) = slot.filter(|slot| slot.generation == key.generation) else {
            return false;
        };
        if slot.memory.take().is_none() {
            return false;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        true
    }

    /// Adds a piece; false if it overlaps another, or the key has none.
    pub(crate) fn attach(&mut self, key: RemoteKey, offset: u64, piece: Region) -> bool {
        let Some(pieces) = self.pieces(key) else { return false };
        let Some(end) = offset.checked_add(piece.len() as u64) else { return false };
        let before = pieces.range(..end).next_back();
        if before.is_some_and(|(start, other)| start + other.len() as u64 > offset) {
            return false;
        }
        pieces.insert(offset, piece).is_none()
    }

    /// Removes the piece that begins at an offset; false if there is none.
    pub(crate) fn detach(&mut self, key: RemoteKey, offset: u64) -> bool {
        self.pieces(key).is_some_and(|pieces| pieces.remove(&offset).is_some())
    }

    fn pieces(&mut self, key: RemoteKey) -> Option<&mut BTreeMap<u64, Region>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        match slot.memory.as_mut().filter(|_| slot.generation == key.generation)? {
            Exposed::Pieces(pieces) => Some(pieces),
            Exposed::Whole(_) => None,
        }
    }

    /// Returns `len` bytes from `offset` on.
    ///
    /// # Errors
    /// The bytes are not exposed. That is the application's error if pieces of memory come and go behind the key.
    pub fn take(&self, key: RemoteKey, offset: u64, len: u64) -> Result<Region, CallError> {
        self.find(key, offset, len).ok_or(match self.has_pieces(key) {
            true => CallError::Refused,
            false => CallError::Malformed("bytes outside the exposed memory"),
        })
    }

    /// Returns `len` bytes from `offset` on; `None` for a stale or invalid key, or if a byte is not exposed.
    pub fn find(&self, key: RemoteKey, offset: u64, len: u64) -> Option<Region> {
        let slot = self.slots.get(key.index as usize)?;
        let memory = slot.memory.as_ref().filter(|_| slot.generation == key.generation)?;
        match memory {
            Exposed::Whole(region) => part(region, offset, len),
            Exposed::Pieces(pieces) => {
                let (start, region) = pieces.range(..=offset).next_back()?;
                part(region, offset - start, len).or_else(|| across(pieces, *start, offset, len))
            }
        }
    }
}

impl ExposedMemory {
    /// True if pieces come and go behind this key: an access to others is an error of the application, and not of its
    /// library.
    pub(crate) fn has_pieces(&self, key: RemoteKey) -> bool {
        let slot = self.slots.get(key.index as usize);
        let slot = slot.filter(|slot| slot.generation == key.generation);
        slot.is_some_and(|slot| matches!(slot.memory, Some(Exposed::Pieces(_))))
    }
}

/// Returns `len` bytes of a region, if it has them.
fn part(region: &Region, offset: u64, len: u64) -> Option<Region> {
    let is_inside = offset.checked_add(len)? <= region.len() as u64;
    is_inside.then(|| region.slice(offset as usize, len as usize))
}

/// Returns bytes of several pieces, if these follow one another without a gap from the one that begins at `start`.
fn across(pieces: &BTreeMap<u64, Region>, start: u64, offset: u64, len: u64) -> Option<Region> {
    let end = offset.checked_add(len)?;
    let (mut at, mut parts) = (offset, Vec::new());
    for (&start, region) in pieces.range(start..end) {
        let own_end = (start + region.len() as u64).min(end);
        parts.push(part(region, at.checked_sub(start)?, own_end.checked_sub(at)?)?);
        at = own_end;
    }
    (at == end).then(|| Region::chain(parts))
}

/// Handler of calls. It runs within the engine, so it must not take long and cannot wait.
pub trait Handler: Send + Debug {
    /// Handles a call. A call that asks for an answer is answered once, now or during a later call.
    ///
    /// # Errors
    /// The call was not carried out.
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        memory: &ExposedMemory,
        replies: &mut Replies,
    ) -> Result<(), CallError>;
}

/// Reason why a call was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The call is malformed; the text says how. The caller's links are closed.
    Malformed(&'static str),
    /// The application accesses memory that is not exposed. The caller is told.
    Refused,
}

impl From<&'static str> for CallError {
    fn from(reason: &'static str) -> Self {
        Self::Malformed(reason)
    }
}

/// Number of a handler, the same in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerId(pub u16);

/// A call of a peer.
#[derive(Clone, Copy, Debug)]
pub struct IncomingCall<'a> {
    /// Caller.
    pub peer: PeerId,
    /// Arguments of the call.
    pub arguments: [u64; 3],
    /// Payload of the call.
    pub payload: &'a [u8],
    /// Destination of the answer.
    pub reply_to: ReplyTo,
}

/// Destination of a call's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub(crate) peer: PeerId,
    pub(crate) answer: Answer,
}

impl ReplyTo {
    /// The caller.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// True if the caller wants bytes.
    pub fn wants_data(&self) -> bool {
        matches!(self.answer, Answer::Data(_))
    }
}

/// Answers that a handler gives.
#[derive(Debug, Default)]
pub struct Replies(pub(crate) Vec<(ReplyTo, Reply)>);

/// Answer to a call.
#[derive(Debug)]
pub(crate) enum Reply {
    Data(Region),
    Refused,
}

impl Replies {
    /// Answers a call. The bytes are as many as the caller has room for; none if it asked only to be told.
    pub fn send(&mut self, to: ReplyTo, bytes: &[u8]) {
        self.send_region(to, Region::from_box(bytes.into()));
    }

    /// [`Replies::send`] of described memory.
    pub fn send_region(&mut self, to: ReplyTo, data: Region) {
        if to.answer != Answer::None {
            self.0.push((to, Reply::Data(data)));
        }
    }

    /// Refuses a call that wants an answer.
    pub fn refuse(&mut self, to: ReplyTo) {
        self.0.push((to, Reply::Refused));
    }
}

/// Answer that a caller wants.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// None: the call completes when its payload may be reused.
    Nothing,
    /// The call completes when its handler has answered.
    Done,
    /// The call completes when the reply has arrived here.
    Reply(&'a Region),
}

/// A put.
#[derive(Clone, Copy, Debug)]
pub struct PutTo {
    /// Key of the peer's memory.
    pub key: RemoteKey,
    /// Offset of the first byte in it.
    pub offset: u64,
}

/// Packet in which the data of a send leave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AddressedHead {
    Put {
        to: PutTo,
        epoch: u16,
    },
    /// A call; its sequence is assigned when it leaves.
    Call(CallHeader),
    /// Data for an operation of the peer.
    Data {
        receiver: u32,
    },
    /// Nothing: a flush.
    Flush,
}

impl AddressedHead {
    /// Length of the packet's header in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Put { .. } => wire::addressed::PUT_LEN,
            Self::Call(_) => wire::addressed::CALL_LEN,
            Self::Data { .. } => wire::packet::DATA_LEN,
            Self::Flush => 0,
        }
    }
}

/// Longest payload of a call, in bytes. It bounds what an early call takes: it waits for those before it.
pub const CALL_MAX: usize = 16 << 10;

/// Longest put that shares a frame with others, in bytes; a longer one is sent in pieces.
pub(crate) const SHORT_PUT_MAX: usize = 2 << 10;
