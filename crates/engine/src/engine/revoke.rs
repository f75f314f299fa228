//! Contexts that are revoked after the failure of a peer.
//!
//! In a revoked context nothing is received any more. Messages of others are accepted and
//! discarded, so that their sends complete. Peers are notified by a call of the handler
//! [`REVOKE`], and revoke it too. A message that matched before completes, since its memory
//! is being written.

use memory::Region;
use wire::PeerId;

use super::{Engine, PeerError};
use crate::exposed::{HandlerId, IncomingCall, Wanted};
use crate::matching::Unexpected;
use crate::op::{OpId, OpState};

/// Handler that revokes a context: its arguments are the context and the failed peer.
pub(super) const REVOKE: HandlerId = HandlerId(0);

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
        let arguments = [context, u64::from(failed.0), 0];
        self.call(peer, REVOKE, (arguments, &Region::empty()), Wanted::Done, context)
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

    /// Handles a peer's notice that a context is revoked.
    #[cold]
    pub(super) fn handle_revocation(&mut self, call: &IncomingCall<'_>) -> Result<(), PeerError> {
        let [context, failed, _] = call.arguments;
        if self.submit_revoke(context, PeerId(failed as u32)) {
            self.revoked_by_peers.push_back(context);
        }
        if !self.revoked.contains_key(&context) {
            return Err(PeerError::Revoked(REVOKED_MAX));
        }
        self.replies.send(call.reply_to, &[]);
        Ok(())
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
