//! Part of a member in one agreement.

use std::sync::Arc;

use engine::{CALL_MAX, OpId, Outcome, Wanted};
use memory::Region;
use progress::{Task, TaskStage, Worker};
use wire::PeerId;

use crate::instance::AgreementState;
use crate::ranks::RankSet;
use crate::record::{AgreementRecord, Knowledge};
use crate::served::{Agreements, CallKind, HANDLER};

/// The group of an agreement.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Context that tells its agreements from those of others.
    pub context: u64,
    /// The members, by rank.
    pub members: Arc<[PeerId]>,
    /// This process's rank.
    pub rank: u32,
}

/// Reason why there is no agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgreementFault {
    /// The group is too large.
    TooLarge,
    /// Members do not call the same functions.
    Malformed,
}

/// Called at the end of an agreement.
pub type Then = Box<dyn FnOnce(Result<AgreementRecord, AgreementFault>, &mut Worker) + Send>;

/// Makes this process's part in an agreement: `then` gets the answer. All members begin the agreements of a context in
/// the same order, each as soon as it has made its part.
pub fn agreement(
    agreements: &Arc<Agreements>,
    membership: Membership,
    own: AgreementRecord,
    then: Then,
) -> Box<dyn Task> {
    let number = agreements.draw(membership.context);
    let size = membership.members.len();
    Box::new(Agreement {
        agreements: Arc::clone(agreements),
        number,
        own: Some(own),
        then: Some(then),
        lost: vec![false; size],
        joins: Vec::new(),
        collects: Vec::new(),
        known: vec![None; size],
        proposal: None,
        membership,
    })
}

/// Part of this process in an agreement.
struct Agreement {
    agreements: Arc<Agreements>,
    membership: Membership,
    number: u32,
    /// Contribution, until the agreement before this one has ended.
    own: Option<AgreementRecord>,
    then: Option<Then>,
    /// Members that have not answered a call.
    lost: Vec<bool>,
    /// Calls of coordinators, which answer with the decision.
    joins: Vec<Asked>,
    /// Calls of members, as coordinator.
    collects: Vec<Asked>,
    /// Answers of members to these.
    known: Vec<Option<Knowledge>>,
    /// The proposed answer, and the calls of members that have not accepted it.
    proposal: Option<(AgreementRecord, Vec<(u32, OpId)>)>,
}

/// A call that a member answers with what it knows.
struct Asked {
    rank: u32,
    op: Option<OpId>,
    answer: Region,
}

impl Agreement {
    fn size(&self) -> usize {
        self.membership.members.len()
    }

    fn with_state<T>(&self, access: impl FnOnce(&mut AgreementState) -> T) -> Option<T> {
        let Self { agreements, membership, number, .. } = self;
        agreements.with(membership.context, |agreements| agreements.state(*number).map(access))
    }

    /// True if a rank is another one and alive, as far as is known.
    fn is_alive(&self, worker: &Worker, rank: u32) -> bool {
        let peer = self.membership.members[rank as usize];
        rank != self.membership.rank && !self.lost[rank as usize] && !worker.engine.is_failed(peer)
    }

    fn others_alive(&self, worker: &Worker) -> Vec<u32> {
        (0..self.size() as u32).filter(|rank| self.is_alive(worker, *rank)).collect()
    }

    /// The coordinator: the lowest rank that is alive, or one behind it that has taken over.
    fn coordinator(&self, worker: &Worker, promised: u32) -> u32 {
        let own = self.membership.rank;
        let lowest = (0..own).find(|rank| self.is_alive(worker, *rank)).unwrap_or(own);
        let has_taken_over = promised > lowest && (promised as usize) < self.size();
        match has_taken_over && self.is_alive(worker, promised) {
            true => promised,
            false => lowest,
        }
    }

    /// Calls a member, which answers with what it knows.
    fn ask(&self, worker: &mut Worker, rank: u32, kind: CallKind, payload: Vec<u8>) -> Asked {
        let peer = self.membership.members[rank as usize];
        let ballot = if kind == CallKind::Join { rank } else { self.membership.rank };
        let arguments = kind.arguments(self.membership.context, self.number, ballot);
        let (payload, answer) =
            (Region::from_box(payload.into()), Region::owned(Knowledge::len(self.size())));
        let wanted = Wanted::Reply(&answer);
        let op = worker.engine.submit_call(peer, HANDLER, arguments, &payload, wanted);
        Asked { rank, op: Some(op), answer }
    }

    /// Takes the answers that have come to calls of one kind. Calls of members that have failed are dropped.
    fn take_answers(
        &mut self,
        worker: &mut Worker,
        asked: &mut Vec<Asked>,
    ) -> Result<Vec<(u32, Knowledge)>, AgreementFault> {
        let (size, mut answers) = (self.size(), Vec::new());
        for call in asked.iter_mut() {
            let Some(completion) = call.op.and_then(|op| worker.engine.take(op)) else { continue };
            call.op = None;
            match completion.outcome {
                Outcome::Ok => {
                    let knowledge = Knowledge::parse(&call.answer.to_vec(), size);
                    answers.push((call.rank, knowledge.ok_or(AgreementFault::Malformed)?));
                }
                Outcome::PeerFailed | Outcome::Revoked => self.lost[call.rank as usize] = true,
                Outcome::Refused | Outcome::Truncated { .. } | Outcome::Cancelled => {
                    return Err(AgreementFault::Malformed);
                }
            }
        }
        asked.retain(|call| call.op.is_some());
        Ok(answers)
    }

    /// Advances; returns the decision once it is known.
    fn step(&mut self, worker: &mut Worker) -> Result<Option<AgreementRecord>, AgreementFault> {
        let (mut joins, mut collects) =
            (std::mem::take(&mut self.joins), std::mem::take(&mut self.collects));
        let answers = self.take_answers(worker, &mut joins);
        let collected = self.take_answers(worker, &mut collects);
        (self.joins, self.collects) = (joins, collects);
        for (rank, knowledge) in answers?.into_iter().chain(collected?) {
            if let Knowledge::Decided(record) = knowledge {
                return Ok(Some(record));
            }
            self.known[rank as usize] = Some(knowledge);
        }
        let promised = match self.with_state(|state| (state.promised, state.decision().cloned())) {
            Some((_, Some(decision))) => return Ok(Some(decision)),
            Some((promised, None)) => promised,
            None => return Err(AgreementFault::Malformed),
        };
        let coordinator = self.coordinator(worker, promised);
        if coordinator != self.membership.rank {
            self.join(worker, coordinator);
            return Ok(None);
        }
        self.lead(worker)
    }

    /// Joins a coordinator, once.
    fn join(&mut self, worker: &mut Worker, coordinator: u32) {
        if self.joins.iter().any(|call| call.rank == coordinator) {
            return;
        }
        let knowledge = self.with_state(|state| state.knowledge()).flatten();
        let payload = knowledge.map_or_else(Vec::new, |knowledge| knowledge.emit());
        let call = self.ask(worker, coordinator, CallKind::Join, payload);
        self.joins.push(call);
    }

    /// Acts as coordinator.
    fn lead(&mut self, worker: &mut Worker) -> Result<Option<AgreementRecord>, AgreementFault> {
        if self.proposal.is_none() {
            let others = self.others_alive(worker);
            if !self.hear_all(worker, &others)? {
                return Ok(None);
            }
            match self.compose(worker)? {
                Knowledge::Decided(record) => return Ok(Some(record)),
                Knowledge::Contributed(record) | Knowledge::Accepted(_, record) => {
                    self.propose(worker, &others, record);
                }
            }
        }
        self.count_acceptances(worker)
    }

    /// True if all that live have told what they know. Asks those that may not be about to do so by themselves.
    fn hear_all(&mut self, worker: &mut Worker, others: &[u32]) -> Result<bool, AgreementFault> {
        let size = self.size();
        let mut missing = 0;
        for &rank in others {
            if self.known[rank as usize].is_some() {
                continue;
            }
            let peer = self.membership.members[rank as usize];
            let told = self.with_state(|state| state.knowledge_of(peer).map(<[u8]>::to_vec));
            if let Some(bytes) = told.flatten() {
                let knowledge = Knowledge::parse(&bytes, size).ok_or(AgreementFault::Malformed)?;
                self.known[rank as usize] = Some(knowledge);
                continue;
            }
            missing += 1;
            // Members join the first coordinator of all. A call finds out if one that was never spoken to is alive.
            let is_due = self.membership.rank > 0 || worker.engine.is_untried(peer);
            if is_due && !self.collects.iter().any(|call| call.rank == rank) {
                let call = self.ask(worker, rank, CallKind::Collect, Vec::new());
                self.collects.push(call);
            }
        }
        Ok(missing == 0)
    }

    /// The answer to propose, from what all members know.
    fn compose(&self, worker: &Worker) -> Result<Knowledge, AgreementFault> {
        let own = self.with_state(|state| state.knowledge()).flatten();
        let own = own.ok_or(AgreementFault::Malformed)?;
        let known: Vec<&Knowledge> = self.known.iter().flatten().chain([&own]).collect();
        let is_decided = |knowledge: &&&Knowledge| matches!(knowledge, Knowledge::Decided(_));
        if let Some(decided) = known.iter().find(is_decided) {
            return Ok((*decided).clone());
        }
        let ballot = |knowledge: &&Knowledge| match knowledge {
            Knowledge::Accepted(ballot, _) => Some(*ballot),
            Knowledge::Contributed(_) | Knowledge::Decided(_) => None,
        };
        if let Some(accepted) = known.iter().copied().max_by_key(ballot)
            && ballot(&accepted).is_some()
        {
            return Ok(accepted.clone());
        }
        let Knowledge::Contributed(mut record) = own else {
            return Err(AgreementFault::Malformed);
        };
        for knowledge in self.known.iter().flatten() {
            if let Knowledge::Contributed(other) = knowledge {
                record.add(other);
            }
        }
        let size = self.size();
        let is_missing =
            |rank: &u32| *rank != self.membership.rank && self.known[*rank as usize].is_none();
        debug_assert!((0..size as u32).filter(is_missing).all(|rank| !self.is_alive(worker, rank)));
        record.failed.unite(&RankSet::of(size, (0..size as u32).filter(is_missing)));
        Ok(Knowledge::Contributed(record))
    }

    fn propose(&mut self, worker: &mut Worker, others: &[u32], record: AgreementRecord) {
        let own = self.membership.rank;
        if self.with_state(|state| state.accept(own, record.clone())) != Some(true) {
            return;
        }
        let arguments = CallKind::Propose.arguments(self.membership.context, self.number, own);
        let payload = Region::from_box(record.emit().into());
        let ops = others.iter().map(|&rank| {
            let peer = self.membership.members[rank as usize];
            let wanted = Wanted::Done;
            (rank, worker.engine.submit_call(peer, HANDLER, arguments, &payload, wanted))
        });
        self.proposal = Some((record, ops.collect()));
    }

    /// Returns the answer once all that live have accepted it.
    fn count_acceptances(
        &mut self,
        worker: &mut Worker,
    ) -> Result<Option<AgreementRecord>, AgreementFault> {
        let Some((record, mut ops)) = self.proposal.take() else { return Ok(None) };
        let mut refused = Vec::new();
        ops.retain(|&(rank, op)| match worker.engine.take(op).map(|end| end.outcome) {
            None => true,
            Some(Outcome::Ok) => false,
            Some(Outcome::Refused) => {
                refused.push(rank);
                false
            }
            Some(
                Outcome::PeerFailed
                | Outcome::Revoked
                | Outcome::Truncated { .. }
                | Outcome::Cancelled,
            ) => {
                self.lost[rank as usize] = true;
                false
            }
        });
        // Another coordinator takes this one for failed. The member tells what they decide.
        refused.retain(|rank| !self.collects.iter().any(|call| call.rank == *rank));
        for rank in refused {
            let call = self.ask(worker, rank, CallKind::Collect, Vec::new());
            self.collects.push(call);
        }
        let is_decided = ops.is_empty() && self.collects.is_empty();
        self.proposal = Some((record.clone(), ops));
        Ok(is_decided.then_some(record))
    }

    /// Tells those that wait for the decision, and ends.
    fn end(&mut self, worker: &mut Worker, result: Result<AgreementRecord, AgreementFault>) {
        if let Ok(record) = &result {
            let record = record.clone();
            worker.engine.submit_replies(|replies| {
                self.with_state(|state| state.decide(record, replies));
            });
        }
        let (context, number) = (self.membership.context, self.number);
        self.agreements.with(context, |agreements| agreements.end(number));
        let asked = self.joins.drain(..).chain(self.collects.drain(..));
        let proposed = self.proposal.take().into_iter().flat_map(|(_, ops)| ops);
        let ops = asked.filter_map(|call| call.op).chain(proposed.map(|(_, op)| op));
        ops.for_each(|op| worker.engine.release(op));
        if let Some(then) = self.then.take() {
            then(result, worker);
        }
    }
}

impl Task for Agreement {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let (context, size) = (self.membership.context, self.size());
        if Knowledge::len(size) > CALL_MAX {
            self.end(worker, Err(AgreementFault::TooLarge));
            return TaskStage::Ended;
        }
        if self.own.is_some() {
            let ended = self.agreements.with(context, |agreements| agreements.ended);
            if ended != self.number {
                return TaskStage::Waits;
            }
            if let Some(own) = self.own.take() {
                worker.engine.submit_replies(|replies| {
                    self.with_state(|state| state.contribute(own, size, replies));
                });
            }
        }
        match self.step(worker) {
            Ok(None) => TaskStage::Waits,
            Ok(Some(record)) => {
                self.end(worker, Ok(record));
                TaskStage::Ended
            }
            Err(fault) => {
                self.end(worker, Err(fault));
                TaskStage::Ended
            }
        }
    }

    fn work(&mut self) {}
}
