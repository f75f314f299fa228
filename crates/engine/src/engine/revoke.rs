//! Contexts that are revoked after the failure of a peer.
//!
//! In a revoked context nothing is received any more. Messages of others are accepted and
//! discarded, so that their sends complete. Peers are notified by a message of the context with the
//! tag [`REVOKE_TAG`], and revoke it too. A message that matched before completes, since its memory
//! is being written.

use memory::Region;
use wire::PeerId;
use wire::packet::Header;

use super::{Engine, PeerError};
use crate::matching::Unexpected;
use crate::op::{Envelope, OpId, OpState, SendMode};

/// Tag of the message that revokes a context; its source is the failed peer. No other message of a
/// revocable context has it, and no receive in one leaves its tag open.
pub const REVOKE_TAG: i32 = i32::MIN;

impl Engine {
    /// Revokes a context because `failed` has failed. Pending and later receives complete with
    /// [`Outcome::PeerFailed`](crate::Outcome::PeerFailed). False if it is revoked already, or too
    /// many are.
    #[cold]
    pub fn submit_revoke(&mut self, context: u64, failed: PeerId) -> bool {
        if self.revoked.contains_key(&context) || self.revoked.len() == REVOKED_MAX {
            return false;
        }
        self.revoked.insert(context, failed);
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

    /// Notifies a peer that a context is revoked. The send completes when the peer has received it.
    pub fn submit_revocation(&mut self, peer: PeerId, context: u64, failed: PeerId) -> OpId {
        let envelope = Envelope { context, source: failed.0, tag: REVOKE_TAG, is_urgent: true };
        self.submit_send(peer, envelope, &Region::empty(), SendMode::Synchronous)
    }

    /// True if any context is revoked.
    #[inline]
    pub fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Failed peer because of which a context is revoked.
    #[inline]
    pub fn revoked_by(&self, context: u64) -> Option<PeerId> {
        if self.has_revoked() { self.revoked.get(&context).copied() } else { None }
    }

    /// Next context that a peer has revoked; each is returned once.
    pub fn poll_revoked(&mut self) -> Option<u64> {
        self.revoked_by_peers.pop_front()
    }

    /// Handles a message without a receive: true if it revokes its context, or its context is
    /// revoked.
    #[inline]
    pub(super) fn is_revoked_for(&mut self, header: &Header) -> Result<bool, PeerError> {
        if header.tag == REVOKE_TAG {
            self.handle_revoke(header)?;
        }
        Ok(self.revoked_by(header.context).is_some())
    }

    #[cold]
    fn handle_revoke(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { context, source, .. } = *header;
        if self.submit_revoke(context, PeerId(source)) {
            self.revoked_by_peers.push_back(context);
        }
        if self.revoked.contains_key(&context) {
            Ok(())
        } else {
            Err(PeerError::Revoked(REVOKED_MAX))
        }
    }

    /// Receives a message and drops its data.
    #[cold]
    pub(super) fn discard(&mut self, message: Unexpected) {
        let id = self.ops.insert(Some(message.peer), Region::empty(), OpState::Posted);
        self.ops.release(id);
        self.accept(id, message);
    }
}

/// Maximal number of revoked contexts; they are remembered because messages may come late.
pub(super) const REVOKED_MAX: usize = 1 << 16;
