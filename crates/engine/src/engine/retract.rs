//! Cancelled receives and sends (MPI-5.0 §3.8.4).
//!
//! A receive without a message is cancelled at once, and so is a send whose message has not left. A message whose sender
//! waits for the match is *retracted*: a call of the handler [`RETRACT`] asks the peer's engine. Calls and messages of a
//! process are handled in order, so the message has come before the call, whatever links they took. If no receive has
//! matched it, the peer drops it and answers `Refused`, and the send ends as cancelled. Otherwise the send ends as usual:
//! the answer to the match is under way. A message that a matched probe took, or that was granted, counts as matched.

use memory::Region;
use wire::PeerId;
use wire::packet::{Header, RndvKind};

use super::Engine;
use crate::exposed::{HandlerId, IncomingCall, Wanted};
use crate::matching::{Content, Unexpected};
use crate::op::{Completion, Envelope, Head, OpId, OpState, Outcome, SendFate, SendState};
use crate::peer::{Control, charge};
use crate::pending::ADDRESSED;

/// Handler that drops a message. Its arguments are the context, the source and tag, and the sequence of the message and
/// its sender's operation.
pub(super) const RETRACT: HandlerId = HandlerId(u16::MAX);

impl Engine {
    /// Cancels a receive that has not been matched, or a send. True if the operation has ended so. A send whose message has
    /// left ends when the peer's engine has answered, as cancelled or as usual.
    pub fn submit_cancel(&mut self, op: OpId) -> bool {
        let is_cancelled = match self.ops.find(op) {
            Some(found) => match (&found.state, found.peer) {
                (OpState::Posted, _) => self.matching.cancel(op),
                (&OpState::Send(send), Some(peer)) => self.cancel_send(op, peer, send),
                (OpState::Send(_), None)
                | (
                    OpState::Free
                    | OpState::Receiving { .. }
                    | OpState::RemoteReading { .. }
                    | OpState::Done(_),
                    _,
                ) => false,
            },
            None => false,
        };
        if is_cancelled {
            let outcome = Outcome::Cancelled;
            self.ops.complete(op.index, Completion { source: 0, tag: 0, bytes: 0, outcome });
        }
        is_cancelled
    }

    /// The peer that was asked to drop a message, and has not answered.
    pub fn asked_to_drop(&self, op: OpId) -> Option<PeerId> {
        let found = self.ops.find(op)?;
        let is_asked = |send: &SendState| send.awaiting && send.fate == SendFate::Retracted;
        matches!(&found.state, OpState::Send(send) if is_asked(send)).then_some(found.peer)?
    }

    /// Withdraws a message that has not left; true if it had not. Retracts one whose sender waits for the match.
    fn cancel_send(&mut self, op: OpId, peer: PeerId, send: SendState) -> bool {
        let Head::Matched(envelope) = send.head else { return false };
        if self.withdraw_send(op, peer, &send) {
            return true;
        }
        if send.awaiting && send.fate == SendFate::Usual {
            if let Some(OpState::Send(send)) = self.ops.find_mut(op).map(|op| &mut op.state) {
                send.fate = SendFate::Retracted;
            }
            let Envelope { context, source, tag, .. } = envelope;
            let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
            let arguments =
                [context, pair(source, tag.cast_unsigned()), pair(send.sequence, op.index)];
            let call =
                self.call(peer, RETRACT, (arguments, &Region::empty()), Wanted::Nothing, ADDRESSED);
            self.ops.release(call);
        }
        false
    }

    /// Withdraws a message that has not left; true if it had not.
    pub(super) fn withdraw_send(&mut self, op: OpId, peer: PeerId, send: &SendState) -> bool {
        if !send.to_emit || send.offered {
            return false;
        }
        let queue = &mut self.peer(peer).send_queue;
        let place = queue.iter().rposition(|pending| pending.id == op);
        place.is_some_and(|at| queue.remove(at).is_some())
    }

    /// Drops a message that its sender retracts, unless it was matched.
    pub(super) fn handle_retraction(&mut self, call: &IncomingCall<'_>) {
        let [context, envelope, place] = call.arguments;
        let (source, tag) = ((envelope >> 32) as u32, (envelope as u32).cast_signed());
        let (sequence, op) = ((place >> 32) as u32, place as u32);
        let header = Header { context, source, tag, sequence };
        let is_retractable = |message: &Unexpected| message.awaits_match() == Some(op);
        let Some(message) = self.matching.retract(call.peer, &header, is_retractable) else {
            return;
        };
        self.counters.retracted += 1;
        self.forget_waiting(&message);
        self.drop_message(message, op);
    }

    /// Drops a message whose sender's operation waits for a match, and tells the sender.
    pub(super) fn drop_message(&mut self, message: Unexpected, op: u32) {
        let (peer, sequence) = (message.peer, message.header.sequence);
        match message.content {
            Content::Eager { data, .. } => self.peer(peer).owed += charge(data.len()),
            Content::Rts { rndv: RndvKind::WithData { .. }, .. } => {
                // The announced data still come. An operation that has ended takes them.
                let nobody = self.ops.reserve();
                self.ops.vacate(nobody.index);
                self.take_rts_data(peer, sequence, nobody);
            }
            Content::Rts {
                rndv: RndvKind::Stream | RndvKind::Get(_) | RndvKind::Short(_), ..
            } => {}
        }
        self.answer_with(peer, Control::Refused { op });
    }
}
