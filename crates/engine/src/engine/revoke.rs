//! Contexts that are closed, because of a peer that has failed.
//!
//! Who closes a context receives nothing of it any more; what others have sent in it is taken in and thrown away, so that
//! their sends end. Peers are told by a message of the context with the tag [`CLOSES`], and close it too. What has met
//! its receive before goes to its end: its memory is being written to.

use memory::Region;
use wire::PeerId;
use wire::packet::Header;

use super::{Engine, PeerError};
use crate::matching::Unexpected;
use crate::op::{Envelope, OpId, OpState, SendMode};

/// The tag of the message that closes a context; its source is the peer that has failed. No other message of a context
/// that is ever closed has it, and no receive in one leaves its tag open.
pub const CLOSES: i32 = i32::MIN;

impl Engine {
    /// Closes a context because `failed` has: receives without a message, and those to come, complete with
    /// [`Outcome::PeerFailed`](crate::Outcome::PeerFailed). False if it is closed already, or too many are.
    #[cold]
    pub fn submit_close(&mut self, context: u64, failed: PeerId) -> bool {
        if self.closed.contains_key(&context) || self.closed.len() == CLOSED_MAX {
            return false;
        }
        self.closed.insert(context, failed);
        self.ops.event_count += 1;
        for id in self.matching.posted_in(context) {
            self.matching.cancel(id);
            self.fail(id.index);
        }
        for message in self.matching.take_messages_of(context) {
            self.forget_waiting(&message);
            self.discard(message);
        }
        true
    }

    /// Tells a peer that a context is closed. The send ends when the peer has heard.
    pub fn submit_closing(&mut self, peer: PeerId, context: u64, failed: PeerId) -> OpId {
        let envelope = Envelope { context, source: failed.0, tag: CLOSES, is_urgent: true };
        self.submit_send(peer, envelope, &Region::empty(), SendMode::Synchronous)
    }

    /// Whether any context is closed.
    #[inline]
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// The peer because of which a context is closed, if it is.
    #[inline]
    pub fn closed_by(&self, context: u64) -> Option<PeerId> {
        if self.has_closed() { self.closed.get(&context).copied() } else { None }
    }

    /// A context that a peer has closed, once.
    pub fn poll_closed(&mut self) -> Option<u64> {
        self.heard_closed.pop_front()
    }

    /// A message without a receive: whether it closes its context, or comes too late for it.
    #[inline]
    pub(super) fn is_closed_to(&mut self, header: &Header) -> Result<bool, PeerError> {
        if header.tag == CLOSES {
            self.hear_close(header)?;
        }
        Ok(self.closed_by(header.context).is_some())
    }

    #[cold]
    fn hear_close(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { context, source, .. } = *header;
        if self.submit_close(context, PeerId(source)) {
            self.heard_closed.push_back(context);
        }
        if self.closed.contains_key(&context) { Ok(()) } else { Err(PeerError::Closed(CLOSED_MAX)) }
    }

    /// Takes in a message that nobody wants, as if it were received.
    #[cold]
    pub(super) fn discard(&mut self, message: Unexpected) {
        let id = self.ops.insert(Some(message.peer), Region::empty(), OpState::Posted);
        self.ops.release(id);
        self.accept(id, message);
    }
}

/// So many contexts may be closed: they are remembered, for messages may come late.
pub(super) const CLOSED_MAX: usize = 1 << 16;
