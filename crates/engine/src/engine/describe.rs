//! Descriptions of what is pending, for reports on jobs that run or hang.

use std::collections::BTreeSet;

use wire::PeerId;

use crate::engine::Engine;
use crate::matching::{Message, Selector};
use crate::op::{Head, Op, OpId, OpState};
use crate::peer::PeerState;
use crate::pending_op::{PendingOp, QueueLengths};

impl Engine {
    /// Describes an operation; none if it is not pending.
    pub fn describe(&self, op: OpId) -> Option<PendingOp> {
        let &Op { peer, ref state, .. } = self.ops.find(op)?;
        Some(match *state {
            OpState::Free | OpState::Done(_) => return None,
            OpState::Posted => {
                let (peer, selector) = self.matching.posted(op)?;
                PendingOp::Receive { peer, selector }
            }
            OpState::Receiving { is_answer: true, .. } => PendingOp::Access { peer },
            OpState::Receiving { tag, bytes, .. } | OpState::RemoteReading { tag, bytes, .. } => {
                PendingOp::Arriving { peer, tag, bytes }
            }
            OpState::Send(send) => match send.head {
                Head::Addressed(_) => PendingOp::Access { peer },
                Head::Matched(envelope) => PendingOp::Send {
                    peer,
                    context: envelope.context,
                    tag: envelope.tag,
                    is_offered: send.awaiting && !send.to_emit,
                },
            },
        })
    }

    /// True if a send of a communicator is not complete, or a receive of it has no message. The lowest two bits of a context
    /// tell messages of one communicator apart.
    pub fn has_pending_in(&self, context: u64) -> bool {
        let is_of_it = |other: u64| other >> 2 == context >> 2;
        let is_sent = |op: &Op| match &op.state {
            OpState::Send(send) => {
                matches!(send.head, Head::Matched(envelope) if is_of_it(envelope.context))
            }
            OpState::Free
            | OpState::Posted
            | OpState::Receiving { .. }
            | OpState::RemoteReading { .. }
            | OpState::Done(_) => false,
        };
        let mut posted = self.matching.all_posted().into_iter();
        self.ops.all().any(is_sent) || posted.any(|(_, selector)| is_of_it(selector.context))
    }

    /// Contexts in which receives from any source wait, each once.
    pub fn contexts_of_any_source(&self) -> BTreeSet<u64> {
        let posted = self.matching.all_posted().into_iter();
        posted.filter(|(peer, _)| peer.is_none()).map(|(_, selector)| selector.context).collect()
    }

    /// True for a receive from any source that no message has matched, while peers have failed.
    #[inline]
    pub fn may_be_held_up(&self, op: OpId) -> bool {
        self.failed_peers != 0 && self.takes_from_any(op)
    }

    /// True for a receive from any source that no message has matched.
    #[cold]
    fn takes_from_any(&self, op: OpId) -> bool {
        self.matching.posted(op).is_some_and(|(peer, _)| peer.is_none())
    }

    /// Receives without a message, each with the peer that it names.
    pub fn unmatched_receives(&self) -> Vec<(Option<PeerId>, Selector)> {
        self.matching.all_posted()
    }

    /// Messages without a receive, each with its sender and context.
    pub fn unmatched_messages(&mut self) -> Vec<(PeerId, u64, Message)> {
        let messages = self.matching.messages_mut();
        messages.map(|one| (one.peer, one.header.context, one.message())).collect()
    }

    /// Counts what is pending.
    pub fn queue_lengths(&mut self) -> QueueLengths {
        let sends = |peer: &PeerState| peer.send_queue.len() + peer.streams.len();
        QueueLengths {
            receives: self.matching.all_posted().len(),
            messages: self.matching.messages_mut().count(),
            message_bytes: self.unexpected_bytes,
            sends: self.peers.iter().flatten().map(|peer| sends(peer)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use memory::Region;

    use super::*;
    use crate::engine::Config;
    use crate::op::{Envelope, SendMode};

    #[test]
    fn pending_operations_are_described_until_they_end() {
        let mut engine = Engine::new(Config::new(3));
        let named = Selector { context: 4, source: Some(1), tag: Some(-7) };
        let any = Selector { context: 4, source: None, tag: None };
        let ops = [(Some(PeerId(1)), named), (None, any)].map(|(peer, selector)| {
            let op = engine.submit_receive(peer, selector, &Region::owned(8));
            assert_eq!(engine.describe(op), Some(PendingOp::Receive { peer, selector }));
            op
        });
        assert_eq!(engine.unmatched_receives(), [(Some(PeerId(1)), named), (None, any)]);
        let envelope = Envelope { context: 9, source: 0, tag: 3, is_urgent: false };
        let data = Region::owned(8);
        let sent = engine.submit_send(PeerId(2), envelope, &data, SendMode::Standard);
        let peer = Some(PeerId(2));
        let expected = PendingOp::Send { peer, context: 9, tag: 3, is_offered: false };
        assert_eq!(engine.describe(sent), Some(expected));
        let expected = QueueLengths { receives: 2, sends: 1, ..QueueLengths::default() };
        assert_eq!(engine.queue_lengths(), expected);
        engine.submit_cancel(ops[0]);
        assert_eq!(engine.describe(ops[0]), None);
        assert_eq!(engine.unmatched_receives(), [(None, any)]);
        assert!(engine.unmatched_messages().is_empty());
        assert_eq!(engine.queue_lengths().receives, 1);
    }
}
