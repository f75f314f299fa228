//! Memory and handlers that a process offers to its peers, and the packets that address them.

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
    memory: Option<Region>,
}

impl ExposedMemory {
    pub(crate) fn expose(&mut self, memory: Region) -> RemoteKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Exposure { generation: 0, memory: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.memory = Some(memory);
        RemoteKey { index, generation: slot.generation }
    }

    pub(crate) fn withdraw(&mut self, key: RemoteKey) -> Option<Region> {
        let slot = self.slots.get_mut(key.index as usize);
        let slot = slot.filter(|slot| slot.generation == key.generation)?;
        let memory = slot.memory.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(memory)
    }

    /// Returns the memory of a key; `None` for a stale or invalid one.
    pub fn find(&self, key: RemoteKey) -> Option<&Region> {
        let slot = self.slots.get(key.index as usize)?;
        slot.memory.as_ref().filter(|_| slot.generation == key.generation)
    }
}

/// Handler of calls. It runs within the engine, so it must not take long and cannot wait.
pub trait Handler: Send + Debug {
    /// Handles a call. A call that asks for an answer is answered once, now or during a later call.
    ///
    /// # Errors
    /// The call is malformed; the text says how. The caller's links are closed.
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        memory: &ExposedMemory,
        replies: &mut Replies,
    ) -> Result<(), &'static str>;
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

/// Answers that a handler gives.
#[derive(Debug, Default)]
pub struct Replies(pub(crate) Vec<(ReplyTo, Box<[u8]>)>);

impl Replies {
    /// Answers a call. The bytes are as many as the caller has room for; none if it asked only to be told.
    pub fn send(&mut self, to: ReplyTo, bytes: &[u8]) {
        if to.answer != Answer::None {
            self.0.push((to, bytes.into()));
        }
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
