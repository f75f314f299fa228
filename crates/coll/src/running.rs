//! State of one run of a collective. It advances as far as completed operations allow, whenever a thread holds the
//! worker's lock.

mod combining;
mod early;
mod in_shm_coll;

use std::fmt;
use std::ops::Deref;

use engine::{Completion, Envelope, OpId, Outcome, Revocation, RevokedBy, Selector, SendMode};
use memory::Region;
use plan::{Span, Step};
use progress::{TaskStage, Worker};
use wire::PeerId;

use crate::call::{Call, Collective};
use crate::failure::{Failure, gone, no_memory, revoked, unfit};
use crate::team::Team;

use early::Early;

/// State of one run of a collective.
pub(crate) struct Running<C> {
    collective: C,
    temporaries: Vec<Region>,
    /// Index of the next step.
    at: usize,
    /// Operations in flight, in the order of their steps. The next wait completes them.
    begun: Vec<InFlight>,
    /// True if data was posted on the shared segment and sleeping ranks have not been woken yet.
    needs_wake: bool,
    /// True while the worker watches the shared segment for this collective.
    watches: bool,
    /// Steps whose data was taken ahead of order.
    early: Early,
    pub(crate) failure: Option<Box<Failure>>,
    /// True if a member of the team has failed: no further step runs.
    is_over: bool,
}

/// A send or receive in flight.
#[derive(Clone, Copy)]
struct InFlight {
    step: u32,
    /// Destination or source.
    peer: PeerId,
    op: OpId,
    /// Expected length of the message.
    bytes: u64,
}

impl<C: Deref<Target = Collective<T>>, T: Team> Running<C> {
    #[inline]
    pub(crate) fn new(collective: C) -> Self {
        let temporaries = match collective.schedule.temporaries.is_empty() {
            true => Some(Vec::new()),
            false => temporaries(&collective),
        };
        let (needs_wake, watches, is_over) = (false, false, false);
        let (begun, failure) = (Vec::new(), temporaries.is_none().then(no_memory));
        let at = if failure.is_some() { NOWHERE } else { 0 };
        let temporaries = temporaries.unwrap_or_default();
        let early = Early::default();
        Self { collective, temporaries, at, begun, needs_wake, watches, early, failure, is_over }
    }

    /// [`Running::advance`] for a waiting thread; registers the awaited operation with the worker.
    #[inline]
    pub(crate) fn advance_or_await(&mut self, worker: &mut Worker) -> Option<TaskStage> {
        let stage = self.advance(worker);
        if stage == TaskStage::Waits {
            worker.await_op(|| self.awaited());
            return None;
        }
        Some(stage)
    }

    /// The operation that the current step waits for, if any.
    pub(crate) fn awaited(&self) -> Option<OpId> {
        match self.collective.schedule.steps.get(self.at) {
            _ if self.is_over => self.begun.last().map(|begun| begun.op),
            Some(Step::Wait) | None => self.begun.last().map(|begun| begun.op),
            Some(&Step::Await { step }) => {
                let index = self.begun.binary_search_by_key(&step, |begun| begun.step).ok()?;
                Some(self.begun[index].op)
            }
            Some(_) => None,
        }
    }

    /// Runs steps until one must wait, or copies or reduces too much to run under the worker's lock.
    pub(crate) fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        if std::mem::take(&mut self.needs_wake) {
            self.wake_members(worker);
        }
        if worker.engine.has_revoked()
            && let Some(by) = worker.engine.revoked_by(self.context())
        {
            self.give_up(worker, by);
            return self.settle(worker);
        }
        while let Some(&step) = self.collective.schedule.steps.get(self.at) {
            match step {
                Step::Send { to, span } => self.send(worker, to, span),
                Step::Receive { from, span } => self.receive(worker, from, span),
                Step::Wait => match self.settle(worker) {
                    TaskStage::Ended if self.failure.is_none() => {}
                    stage => return stage,
                },
                Step::Await { step } => {
                    if !self.settle_one(worker, step) {
                        return TaskStage::Waits;
                    }
                    if self.is_over {
                        return self.settle(worker);
                    }
                }
                Step::Copy { from, to } if self.collective.memory.is_brief(to.len) => {
                    self.copy(from, to);
                }
                Step::Reduce { input, inout } if self.collective.memory.is_brief(inout.len) => {
                    self.reduce(input, inout);
                }
                Step::Post { .. } | Step::PostParts { .. } | Step::PostBlocks => {
                    let (units, len) = self.posts(step);
                    let stage = self.await_shm_coll(worker, |shm_coll| shm_coll.has_room(len));
                    if stage != TaskStage::Ended || self.failure.is_some() {
                        self.notify_of_skipped(worker);
                        return stage;
                    }
                    if !self.reserves(worker, |shm_coll| shm_coll.reserve(len)) {
                        return TaskStage::Ended;
                    }
                    if !self.collective.memory.is_brief(units) {
                        return TaskStage::Works;
                    }
                    self.post(step);
                    self.wake_members(worker);
                }
                Step::Meet { .. } if self.untaken().next().is_some() => return TaskStage::Works,
                Step::Meet { first, end } => {
                    let stage = self.await_shm_coll(worker, |shm_coll| shm_coll.has(first..end));
                    if stage == TaskStage::Waits {
                        if self.comes_first() {
                            continue;
                        }
                        self.take_short();
                    }
                    if stage != TaskStage::Ended || self.failure.is_some() {
                        return stage;
                    }
                }
                Step::Announce { units, reader } => self.announce(units, reader),
                Step::PostMore { .. } => return self.await_room_for_more(worker),
                Step::Release { piece } => {
                    self.release(piece);
                    self.wake_members(worker);
                }
                Step::TakeMore { .. } if self.early.takes(self.at) => {}
                Step::TakeMore { from, piece, .. } => return self.await_more(worker, from, piece),
                Step::Take { .. } if self.early.takes(self.at) => {}
                Step::Take { from, at, to } if self.collective.memory.is_brief(to.len) => {
                    self.take(from, at, to);
                }
                Step::TakeBlock { from, to } if self.collective.memory.is_brief(to.len) => {
                    self.take_block(from, to);
                }
                Step::Combine { to, for_all: true, .. } if self.take_combined(to) => {}
                Step::Combine { own, at, to, for_all } if self.is_brief_to_combine(to) => {
                    self.combine(own, at, to, for_all);
                }
                Step::Copy { .. } | Step::Reduce { .. } => return TaskStage::Works,
                Step::Take { .. } | Step::TakeBlock { .. } => return TaskStage::Works,
                Step::Combine { .. } => return TaskStage::Works,
            }
            self.at += 1;
        }
        if self.at == NOWHERE {
            return self.leave(worker);
        }
        self.settle(worker)
    }

    /// Runs the steps that need no worker: copies and reductions.
    pub(crate) fn work(&mut self) {
        let first = self.at;
        while let Some(&step) = self.collective.schedule.steps.get(self.at) {
            match step {
                Step::Copy { from, to } => self.copy(from, to),
                Step::Reduce { input, inout } => self.reduce(input, inout),
                // `advance` has checked that there is room.
                Step::Post { .. } | Step::PostParts { .. } | Step::PostBlocks
                    if self.at == first =>
                {
                    self.post(step);
                    self.needs_wake = true;
                }
                Step::Meet { .. } if self.at == first => return self.take_early(),
                Step::PostMore { piece, span } if self.at == first => {
                    self.post_more(piece, span);
                    self.needs_wake = true;
                }
                Step::TakeMore { .. } if self.early.takes(self.at) => {}
                Step::TakeMore { from, piece, to } if self.has_more(from, piece) => {
                    self.take_more(from, piece, to);
                }
                Step::TakeMore { .. } if self.at == first => return self.take_early(),
                Step::Take { .. } if self.early.takes(self.at) => {}
                Step::Take { from, at, to } => self.take(from, at, to),
                Step::TakeBlock { from, to } => self.take_block(from, to),
                Step::Combine { own, at, to, for_all } => self.combine(own, at, to, for_all),
                Step::Send { .. } | Step::Receive { .. } => return,
                Step::Post { .. } | Step::PostParts { .. } | Step::PostBlocks => return,
                Step::Wait | Step::Await { .. } | Step::Meet { .. } => return,
                Step::Announce { .. } | Step::PostMore { .. } => return,
                Step::TakeMore { .. } | Step::Release { .. } => return,
            }
            self.at += 1;
        }
    }

    /// The context of its messages.
    #[inline]
    fn context(&self) -> u64 {
        self.collective.call.team.context()
    }

    #[inline]
    fn send(&mut self, worker: &mut Worker, to: u32, span: Span) {
        let Call { team, tag, .. } = &self.collective.call;
        let data = self.collective.memory.stream(span, &self.temporaries);
        let context = team.context();
        let envelope = Envelope { context, source: team.rank(), tag: *tag, is_urgent: true };
        let peer = team.peer(to);
        if !worker.send_short(peer, envelope, &data) {
            let op = worker.engine.submit_send(peer, envelope, &data, SendMode::Standard);
            self.note_begun(peer, op, data.len());
        }
    }

    #[inline]
    fn receive(&mut self, worker: &mut Worker, from: u32, span: Span) {
        let Call { team, tag, .. } = &self.collective.call;
        let into = self.collective.memory.stream(span, &self.temporaries);
        let context = team.context();
        let selector = Selector { context, source: Some(from), tag: Some(*tag) };
        let peer = team.peer(from);
        let op = worker.engine.submit_receive(Some(peer), selector, &into);
        self.note_begun(peer, op, into.len());
    }

    #[inline]
    fn note_begun(&mut self, peer: PeerId, op: OpId, bytes: usize) {
        self.begun.push(InFlight { step: self.at as u32, peer, op, bytes: bytes as u64 });
    }

    /// Completes all operations in flight, or returns [`TaskStage::Waits`].
    #[inline]
    fn settle(&mut self, worker: &mut Worker) -> TaskStage {
        while let Some(&begun) = self.begun.last() {
            let Some(completion) = worker.engine.take(begun.op) else { return TaskStage::Waits };
            self.begun.pop();
            self.check(begun, completion, worker);
        }
        TaskStage::Ended
    }

    /// True if the operation of a step has ended. A failure is reported at the next wait for all operations:
    /// other operations are still in flight, and peers may wait for them.
    fn settle_one(&mut self, worker: &mut Worker, step: u32) -> bool {
        let Ok(index) = self.begun.binary_search_by_key(&step, |begun| begun.step) else {
            return true;
        };
        let begun = self.begun[index];
        let Some(completion) = worker.engine.take(begun.op) else { return false };
        self.begun.remove(index);
        self.check(begun, completion, worker);
        true
    }

    #[inline]
    fn check(&mut self, begun: InFlight, completion: Completion, worker: &mut Worker) {
        if completion.outcome != Outcome::Ok || completion.bytes != begun.bytes {
            self.note_failure(begun, completion, worker);
        }
    }

    /// Records the first failure of an operation.
    #[cold]
    fn note_failure(&mut self, begun: InFlight, completion: Completion, worker: &mut Worker) {
        if self.failure.is_some() {
            return;
        }
        let InFlight { peer, bytes: expected, .. } = begun;
        let Completion { source, bytes, outcome, .. } = completion;
        let context = self.context();
        self.failure = Some(match outcome {
            Outcome::PeerFailed | Outcome::Revoked
                if let Some(by) = worker.engine.revoked_by(context) =>
            {
                return self.give_up(worker, by);
            }
            Outcome::PeerFailed | Outcome::Revoked => {
                self.is_over = true;
                worker.revoke_context(context, peer);
                gone(&why_gone(worker.peer_name(peer), &worker.take_notices()))
            }
            Outcome::Truncated { message_bytes } => unfit(source, message_bytes, expected),
            Outcome::Ok | Outcome::Cancelled | Outcome::Refused => unfit(source, bytes, expected),
        });
    }

    /// Ends this run before its first step, and revokes the team's collectives: the others cannot do without this rank.
    #[cold]
    fn leave(&mut self, worker: &mut Worker) -> TaskStage {
        let team = &self.collective.call.team;
        let own = team.peer(team.rank());
        self.give_up(worker, RevokedBy::Failure(own));
        TaskStage::Ended
    }

    /// Ends this run and revokes the team's collectives, because a member has failed here or elsewhere, or because the
    /// application has revoked the communicator.
    #[cold]
    fn give_up(&mut self, worker: &mut Worker, by: RevokedBy) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        worker.revoke(Revocation { context: self.context(), marks: 0, by });
        if std::mem::take(&mut self.watches) {
            worker.unwatch(&self.collective.slot().shm_coll);
        }
        self.failure.get_or_insert_with(|| match by {
            RevokedBy::Failure(failed) => gone(&why_gone(worker.peer_name(failed), &[])),
            RevokedBy::Application => revoked(),
        });
    }

    fn copy(&self, from: Span, to: Span) {
        let stream = |span| self.collective.memory.stream(span, &self.temporaries);
        stream(to).copy_from(&stream(from));
    }

    fn reduce(&self, input: Span, inout: Span) {
        self.collective.memory.reduce(input, inout, &self.temporaries);
    }
}

/// The memory of the temporaries; none if there is not enough.
fn temporaries<T>(collective: &Collective<T>) -> Option<Vec<Region>> {
    let units = collective.schedule.temporaries.iter();
    units.map(|&units| collective.memory.temporary(units)).collect()
}

/// The step of a run that has no memory for its temporaries: behind all steps.
const NOWHERE: usize = usize::MAX;

/// The reason for a failed message to or from a peer: the notices of lost links, if any are left.
fn why_gone(peer: impl fmt::Display, notices: &[String]) -> String {
    match notices {
        [] => format!("{peer} cannot be reached any more"),
        notices => notices.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Fault;

    #[test]
    fn error_names_the_lost_peer_and_does_not_claim_its_process_has_ended() {
        let lost = ["link to rank 3 lost: no link has opened again in time".to_owned()];
        for (notices, why) in [
            (&lost[..], "link to rank 3 lost: no link has opened again in time"),
            (&[], "rank 3 cannot be reached any more"),
        ] {
            let failure = gone(&why_gone("rank 3", notices));
            assert_eq!(failure.fault, Fault::PeerGone);
            let text = format!("a peer is gone in the middle of a collective ({why})");
            assert_eq!(failure.message, text);
        }
    }
}
