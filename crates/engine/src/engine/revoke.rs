//! Contexts that are revoked, after the failure of a peer or because the application wants it.
//!
//! In a revoked context nothing is received any more. Messages of others are accepted and
//! discarded, so that their sends complete. Peers are notified by a call of the handler
//! [`REVOKE`], and revoke it too. A message that matched before completes, since its memory
//! is being written.

use memory::Region;
use wire::PeerId;

use super::{Engine, PeerError};
use crate::exposed::{AddressedHead, HandlerId, IncomingCall, Wanted};
use crate::matching::Unexpected;
use crate::op::{Head, Op, OpId, OpState, Outcome, SendFate, SendState};
use crate::revocation::{Revocation, RevokedBy};

/// Handler that revokes contexts: its arguments are the first one, the failed peer, and the marks of the others.
pub(super) const REVOKE: HandlerId = HandlerId(0);

impl Engine {
    /// Revokes contexts. Pending and later receives complete with [`Outcome::PeerFailed`] or, if the application wants it,
    /// with [`Outcome::Revoked`], as pending sends then do. False if they are revoked already, or too many are.
    #[cold]
    pub fn submit_revoke(&mut self, revocation: &Revocation) -> bool {
        let by = revocation.by;
        let is_new = |context: &u64| match self.revoked.get(context) {
            None => true,
            Some(RevokedBy::Failure(_)) => by == RevokedBy::Application,
            Some(RevokedBy::Application) => false,
        };
        let contexts: Vec<u64> = revocation.contexts().filter(is_new).collect();
        if contexts.is_empty() || self.revoked.len() + contexts.len() > REVOKED_MAX {
            return false;
        }
        self.ops.event_count += 1;
        for &context in &contexts {
            self.revoked.insert(context, by);
            for id in self.matching.posted_in(context) {
                self.matching.cancel(id);
                self.end_with(id.index, by.outcome());
            }
            for message in self.matching.take_messages_of(context) {
                self.forget_waiting(&message);
                self.discard(message);
            }
        }
        if by == RevokedBy::Application {
            self.end_sends(&contexts);
        }
        true
    }

    /// Ends the sends of contexts that have not left. The others fail once their peers have answered, who revoke the
    /// contexts too.
    fn end_sends(&mut self, contexts: &[u64]) {
        let is_of_them = |op: &Op| match &op.state {
            OpState::Send(SendState { head: Head::Matched(envelope), .. }) => {
                contexts.contains(&envelope.context)
            }
            OpState::Send(_)
            | OpState::Free
            | OpState::Posted
            | OpState::Receiving { .. }
            | OpState::RemoteReading { .. }
            | OpState::Done(_) => false,
        };
        let found = (0..).zip(self.ops.all()).filter(|(_, op)| is_of_them(op));
        let found: Vec<u32> = found.map(|(index, _)| index).collect();
        for index in found {
            let id = self.ops.id(index);
            let Some(&Op { peer: Some(peer), state: OpState::Send(send), .. }) = self.ops.find(id)
            else {
                continue;
            };
            if self.withdraw_send(id, peer, &send) {
                self.end_with(index, Outcome::Revoked);
            } else if let Some(OpState::Send(send)) = self.ops.at(index).map(|op| &mut op.state)
                && send.fate == SendFate::Usual
            {
                send.fate = SendFate::Revoked;
            }
        }
    }

    /// Notifies a peer of a revocation. The send completes when the peer has received it.
    pub fn submit_revocation(&mut self, peer: PeerId, revocation: &Revocation) -> OpId {
        let Revocation { context, marks, by } = *revocation;
        let by = match by {
            RevokedBy::Failure(failed) => failed.0,
            RevokedBy::Application => BY_APPLICATION,
        };
        let arguments = [context, u64::from(by), marks];
        self.call(peer, REVOKE, (arguments, &Region::empty()), Wanted::Done, context)
    }

    /// Number of notices that have left, and that their peers have not confirmed.
    pub(super) fn notices_under_way(&self) -> usize {
        let is_notice = |op: &&Op| {
            let OpState::Send(send) = &op.state else { return false };
            let Head::Addressed(AddressedHead::Call(call)) = &send.head else { return false };
            call.handler == REVOKE.0 && send.awaiting && !send.to_emit && send.held == 0
        };
        self.ops.all().filter(is_notice).count()
    }

    /// True if any context is revoked.
    #[inline]
    pub fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Reason for which a context is revoked.
    #[inline]
    pub fn revoked_by(&self, context: u64) -> Option<RevokedBy> {
        if self.has_revoked() { self.revoked.get(&context).copied() } else { None }
    }

    /// Next revocation by a peer; each is returned once.
    pub fn poll_revoked(&mut self) -> Option<Revocation> {
        self.revoked_by_peers.pop_front()
    }

    /// Ends a receive whose peer has failed, or whose context is revoked.
    #[cold]
    pub(super) fn end_hopeless(&mut self, id: OpId, context: u64) {
        let outcome = self.revoked_by(context).map_or(Outcome::PeerFailed, RevokedBy::outcome);
        self.end_with(id.index, outcome);
    }

    /// Handles a peer's notice of a revocation.
    #[cold]
    pub(super) fn handle_revocation(&mut self, call: &IncomingCall<'_>) -> Result<(), PeerError> {
        let [context, by, marks] = call.arguments;
        let by = match by as u32 {
            BY_APPLICATION => RevokedBy::Application,
            failed => RevokedBy::Failure(PeerId(failed)),
        };
        if marks.count_ones() > MARKS_MAX {
            return Err(PeerError::Call {
                handler: REVOKE.0,
                reason: "too many marks of contexts",
            });
        }
        let revocation = Revocation { context, marks, by };
        if self.submit_revoke(&revocation) {
            self.revoked_by_peers.push_back(revocation);
        }
        if !self.revoked.contains_key(&context) {
            return Err(PeerError::Revoked(REVOKED_MAX));
        }
        self.replies.send(call.reply_to, &[]);
        Ok(())
    }

    /// Drops a message of a revoked context. Its sender is told if the application has revoked that; otherwise its send
    /// ends as if a receive had matched.
    #[cold]
    pub(super) fn discard(&mut self, message: Unexpected) {
        if self.revoked_by(message.header.context) == Some(RevokedBy::Application)
            && let Some(op) = message.awaits_match()
            && !self.is_failed(message.peer)
        {
            return self.drop_message(message, op);
        }
        let id = self.ops.insert(Some(message.peer), Region::empty(), OpState::Posted);
        self.ops.release(id);
        self.accept(id, message);
    }
}

/// Maximal number of revoked contexts; they are remembered because messages may come late.
pub(super) const REVOKED_MAX: usize = 1 << 16;

/// Maximal number of marks of contexts that are revoked together.
const MARKS_MAX: u32 = 4;

/// Stands for the application in place of a failed peer.
const BY_APPLICATION: u32 = u32::MAX;
