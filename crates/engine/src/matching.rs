//! Matching of messages with receives (MPI-5.0 §3.2.4, §3.5).
//!
//! A receive names or omits its source and tag: its *pattern*. Each receive is in one queue, with
//! those that accept the same messages. A message looks at the head of its queue under each pattern
//! in use, and takes the oldest receive. Each message is in one queue for every pattern that was
//! ever used, with messages that look alike. A receive or probe finds the oldest matching message
//! at the head of one queue. The cost of a step does not depend on the number of receives and
//! messages. A single receive or message needs no queue.
//!
//! A receive that names its source also names the source's peer. A message that claims this source
//! but came from another peer does not match.

mod blocks;
mod key;
mod payload;
mod posted;
mod queues;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeMap;

use memory::Region;
use wire::PeerId;
use wire::addressed::CallHeader;
use wire::packet::{Header, RndvKind};

use crate::op::OpId;
pub(crate) use payload::Payload;
use posted::Posted;
use waiting::Waiting;

/// Messages that a receive or probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Context of the communicator.
    pub context: u64,
    /// Sender's rank in the communicator; `None` for any.
    pub source: Option<u32>,
    /// Tag; `None` for any.
    pub tag: Option<i32>,
}

/// A message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: u64,
}

/// Identifies a message that a matched probe removed from matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatchedId(pub(crate) u64);

/// A message without a receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub peer: PeerId,
    pub header: Header,
    pub content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// An eager message, and the sender's operation if it waits for the match.
    Eager { data: Payload, acknowledge: Option<u32> },
    /// An RTS.
    Rts { op: u32, bytes: u64, rndv: RndvKind },
}

/// A sequenced packet that arrived before those ahead of it.
#[derive(Debug)]
pub(crate) enum Early {
    Message(Unexpected),
    Call {
        call: CallHeader,
        payload: Box<[u8]>,
    },
    /// A message of a context that allows overtaking, which was matched or stored as it came.
    Overtaken,
}

impl Unexpected {
    pub fn bytes(&self) -> u64 {
        match &self.content {
            Content::Eager { data, .. } => data.len() as u64,
            Content::Rts { bytes, .. } => *bytes,
        }
    }

    /// The sender's operation, if it waits until a receive matches the message.
    pub fn awaits_match(&self) -> Option<u32> {
        match self.content {
            Content::Eager { acknowledge, .. } => acknowledge,
            Content::Rts { rndv: RndvKind::WithData { cts: false, .. }, .. } => None,
            Content::Rts { op, .. } => Some(op),
        }
    }

    pub fn message(&self) -> Message {
        Message { source: self.header.source, tag: self.header.tag, bytes: self.bytes() }
    }
}

/// Unmatched receives and messages.
#[derive(Debug)]
pub(crate) struct Matching {
    posted: Posted,
    waiting: Waiting,
}

impl Matching {
    pub const fn new() -> Self {
        Self { posted: Posted::new(), waiting: Waiting::new() }
    }

    /// Adds a receive that no waiting message matches.
    #[inline]
    pub fn post(&mut self, peer: Option<PeerId>, selector: Selector, op: OpId) {
        self.posted.post(peer, &selector, op);
    }

    /// Takes the oldest receive that accepts a message of `peer`.
    #[inline]
    pub fn take_posted(&mut self, peer: PeerId, header: &Header) -> Option<OpId> {
        self.posted.take(peer, header)
    }

    /// Receives of a context.
    pub fn posted_in(&self, context: u64) -> Vec<OpId> {
        self.posted.of_context(context)
    }

    /// Peer and selector of a posted receive.
    pub fn posted(&self, op: OpId) -> Option<(Option<PeerId>, Selector)> {
        self.posted.named_by(op)
    }

    /// Peers and selectors of all posted receives.
    pub fn all_posted(&self) -> Vec<(Option<PeerId>, Selector)> {
        self.posted.all()
    }

    /// Peers that receives name, and their contexts.
    pub fn awaited(&self) -> Vec<(PeerId, u64)> {
        self.posted.named()
    }

    /// Removes a receive; false if it is not in the table.
    pub fn cancel(&mut self, op: OpId) -> bool {
        self.posted.cancel(op)
    }

    /// Adds a message that no receive accepts.
    #[inline(always)]
    pub fn arrive(&mut self, message: Unexpected) {
        self.waiting.arrive(message);
    }

    /// Finds the oldest message a selector accepts, of `peer` if given, and leaves it in place.
    pub fn peek(&mut self, peer: Option<PeerId>, selector: &Selector) -> Option<&Unexpected> {
        let slot = self.waiting.find(peer, selector)?;
        self.waiting.message(slot)
    }

    /// Takes the oldest message a selector accepts, of `peer` if given.
    #[inline]
    pub fn take_waiting(
        &mut self,
        peer: Option<PeerId>,
        selector: &Selector,
    ) -> Option<Unexpected> {
        let slot = self.waiting.find(peer, selector)?;
        Some(self.waiting.remove(slot))
    }

    /// Takes the waiting message of `peer` with this header, if `is_selected` is true for it.
    pub fn retract(
        &mut self,
        peer: PeerId,
        header: &Header,
        is_selected: impl FnOnce(&Unexpected) -> bool,
    ) -> Option<Unexpected> {
        let slot = self.waiting.find_message(peer, header)?;
        let is_selected = self.waiting.message(slot).is_some_and(is_selected);
        is_selected.then(|| self.waiting.remove(slot))
    }

    /// Iterates over waiting messages in no order; their peers and headers must not change.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut Unexpected> {
        self.waiting.messages_mut()
    }

    /// Drops the RTSs of a failed peer; eager messages stay.
    pub fn drop_rts(&mut self, peer: PeerId) {
        self.waiting.take_where(|message| {
            message.peer == peer && matches!(message.content, Content::Rts { .. })
        });
    }

    /// Takes all waiting messages of a context, in no order.
    pub fn take_messages_of(&mut self, context: u64) -> Vec<Unexpected> {
        self.waiting.take_where(|message| message.header.context == context)
    }
}

/// Messages of matched probes, until they are received.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    next: u64,
    messages: BTreeMap<u64, Unexpected>,
}

impl Matched {
    pub fn insert(&mut self, message: Unexpected) -> MatchedId {
        self.next += 1;
        self.messages.insert(self.next, message);
        MatchedId(self.next)
    }

    /// Iterates over all of them, in no order.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut Unexpected> {
        self.messages.values_mut()
    }

    pub fn take(&mut self, id: MatchedId) -> Option<Unexpected> {
        self.messages.remove(&id.0)
    }
}

/// Bytes of a message that fit the receive's memory.
pub(crate) fn wanted(into: &Region, bytes: u64) -> u64 {
    bytes.min(into.len() as u64)
}
