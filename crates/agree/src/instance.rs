//! One agreement as one member knows it.

use engine::{Replies, ReplyTo};
use wire::PeerId;

use crate::record::{AgreementRecord, Knowledge};

/// State of an agreement at a member.
#[derive(Debug, Default)]
pub(crate) struct AgreementState {
    /// Contribution of this member and size of the group, once it has called.
    own: Option<(AgreementRecord, usize)>,
    /// Highest ballot that the member has heard of.
    pub promised: u32,
    accepted: Option<(u32, AgreementRecord)>,
    decided: Option<AgreementRecord>,
    /// Members that have joined this one.
    joined: Vec<Joined>,
    /// Coordinators that ask for what this member knows, with their ballots.
    collecting: Vec<(u32, ReplyTo)>,
}

/// A member that has joined, and waits for the decision.
#[derive(Debug)]
struct Joined {
    peer: PeerId,
    knowledge: Vec<u8>,
    reply_to: ReplyTo,
}

impl AgreementState {
    pub fn decision(&self) -> Option<&AgreementRecord> {
        self.decided.as_ref()
    }

    /// Size of the group, once the member has called.
    pub fn size(&self) -> Option<usize> {
        self.own.as_ref().map(|(_, size)| *size)
    }

    /// Returns what the member knows, once it has called.
    pub fn knowledge(&self) -> Option<Knowledge> {
        let decided = self.decided.clone().map(Knowledge::Decided);
        let accepted = || self.accepted.clone().map(|(ballot, it)| Knowledge::Accepted(ballot, it));
        decided
            .or_else(accepted)
            .or_else(|| self.own.clone().map(|(own, _)| Knowledge::Contributed(own)))
    }

    /// Returns what a member that has joined knew.
    pub fn knowledge_of(&self, peer: PeerId) -> Option<&[u8]> {
        let joined = self.joined.iter().find(|joined| joined.peer == peer);
        joined.map(|joined| &joined.knowledge[..])
    }

    /// Takes part, and answers the coordinator that has asked meanwhile.
    pub fn contribute(&mut self, own: AgreementRecord, size: usize, replies: &mut Replies) {
        self.own = Some((own, size));
        self.answer(replies);
    }

    /// Handles a member that joins.
    pub fn join(
        &mut self,
        peer: PeerId,
        knowledge: &[u8],
        reply_to: ReplyTo,
        replies: &mut Replies,
    ) -> Result<(), &'static str> {
        if self.knowledge_of(peer).is_some() {
            return Err("a member joins an agreement twice");
        }
        self.joined.push(Joined { peer, knowledge: knowledge.into(), reply_to });
        self.answer(replies);
        Ok(())
    }

    /// Handles the question of a coordinator.
    pub fn collect(
        &mut self,
        ballot: u32,
        reply_to: ReplyTo,
        replies: &mut Replies,
    ) -> Result<(), &'static str> {
        if self.collecting.iter().any(|(_, other)| other.peer() == reply_to.peer()) {
            return Err("a coordinator asks twice");
        }
        self.promised = self.promised.max(ballot);
        self.collecting.push((ballot, reply_to));
        self.answer(replies);
        Ok(())
    }

    /// Accepts an answer, unless a coordinator of a higher ballot has asked. True if it is accepted, or the decision.
    pub fn accept(&mut self, ballot: u32, record: AgreementRecord) -> bool {
        if self.decided.is_some() {
            return true;
        }
        if ballot < self.promised {
            return false;
        }
        self.promised = ballot;
        self.accepted = Some((ballot, record));
        true
    }

    /// Learns of the decision.
    pub fn decide(&mut self, record: AgreementRecord, replies: &mut Replies) {
        self.decided.get_or_insert(record);
        self.answer(replies);
    }

    /// Answers those that wait for what the member knows by now. Coordinators of lower ballots wait for the decision.
    fn answer(&mut self, replies: &mut Replies) {
        let Some(knowledge) = self.knowledge() else { return };
        let bytes = knowledge.emit();
        let (is_decided, promised) = (self.decided.is_some(), self.promised);
        let is_due = |ballot: &mut (u32, ReplyTo)| is_decided || ballot.0 >= promised;
        for (_, reply_to) in self.collecting.extract_if(.., is_due) {
            replies.send(reply_to, &bytes);
        }
        if is_decided {
            for joined in self.joined.drain(..) {
                replies.send(joined.reply_to, &bytes);
            }
        }
    }
}
