//! Execution of collective operations from the planner's schedules (MPI-5.0 §6).
//!
//! A [`Collective`] is one rank's part with its memory. It runs at once, in the background, or repeatedly.
//! `Running` holds the state of one run. It advances as far as completed operations allow, whenever a thread
//! holds the worker's lock.

mod buffers;
mod combining;
mod in_shm_coll;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use engine::{Completion, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use plan::{Schedule, Span, Step};
use progress::{Task, TaskStage, Worker};
use wire::PeerId;

use crate::check::{self, CallArguments};
use crate::failure::{Failure, Fault, Result};
use crate::plans::{Listed, Routine, Shape};
use crate::shm_coll::{self, CREATED_AFTER};
use crate::slot::Slot;
use crate::team::{self, Form, Team};

pub use buffers::Elements;
use buffers::Memory;
use in_shm_coll::Early;

/// A collective call of this process. It takes its number before its arguments are checked. If the check fails
/// on this rank only, later collectives still have the same numbers on all ranks.
#[derive(Debug)]
pub struct Call<T> {
    team: T,
    /// Number of this collective, which identifies its messages among collectives that run at the same time. It
    /// is the same on all processes because all make their calls of one form in the same order.
    tag: i32,
    form: Form,
    /// Arguments to compare with those of other processes, if such checks are on.
    arguments: OnceLock<Box<CallArguments>>,
}

/// One rank's part in a collective operation, ready to run.
#[derive(Debug)]
pub struct Collective<T> {
    call: Call<T>,
    schedule: Arc<Schedule>,
    memory: Memory,
}

/// Result of a collective in the background, once it has ended: `None` or the failure.
#[derive(Clone, Debug)]
pub struct Pending(Arc<OnceLock<Option<Box<Failure>>>>);

impl<T: Team> Call<T> {
    /// Numbers a call of a team.
    #[inline]
    pub fn new(team: T, form: Form) -> Self {
        // With checks on, processes may wrongly mix blocking and nonblocking calls: both share one counter.
        let form = match form {
            Form::Nonblocking if check::is_on() => Form::Blocking,
            form => form,
        };
        let tag = team.collectives().next_tag(form);
        if tag == CREATED_AFTER && form == Form::Blocking {
            shm_coll::create_once(&team, tag);
        }
        Self { team, tag, form, arguments: OnceLock::new() }
    }

    /// Makes a part of the collective that already has this number; it uses messages only.
    pub(crate) fn numbered(team: T, tag: i32) -> Self {
        Self { team, tag, form: Form::Nonblocking, arguments: OnceLock::new() }
    }

    /// The number of this collective, the tag of its messages.
    pub fn number(&self) -> i32 {
        self.tag
    }

    /// Returns this process's schedule for a collective of this shape: a cached one, or the result of `make`. Blocking
    /// calls may use the shared segment.
    #[inline]
    pub fn plan(
        &self,
        shape: Shape,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Arc<Schedule> {
        let in_shm_coll = self.in_shm_coll().is_some();
        team::plan(&self.team, Shape { in_shm_coll, ..shape }, make)
    }

    /// [`Call::plan`] for blocks of individual lengths.
    pub fn plan_listed(
        &self,
        shape: Shape,
        listed: Listed<'_>,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Arc<Schedule> {
        let in_shm_coll = self.in_shm_coll().is_some();
        team::plan_listed(&self.team, Shape { in_shm_coll, ..shape }, listed, make)
    }

    #[inline]
    fn in_shm_coll(&self) -> Option<&Slot> {
        if self.form == Form::Blocking { self.team.collectives().slot() } else { None }
    }

    /// Records the arguments to compare, if checks are on.
    #[inline]
    pub fn note_arguments(&self, arguments: impl FnOnce() -> CallArguments) {
        if check::is_on() {
            self.store_arguments(arguments);
        }
    }

    #[cold]
    fn store_arguments(&self, arguments: impl FnOnce() -> CallArguments) {
        // Each call records its arguments once.
        let _ = self.arguments.set(Box::new(arguments()));
    }

    /// Makes a barrier.
    #[inline]
    pub fn barrier(self) -> Collective<T> {
        self.note_arguments(|| CallArguments::new(Routine::Barrier, None, None, None));
        let schedule = self.plan(Shape::of(Routine::Barrier), plan::barrier);
        self.bytes(schedule, Region::empty(), Region::empty())
    }

    /// Makes a collective whose units are bytes of two packed streams.
    #[inline]
    pub fn bytes(
        self,
        schedule: impl Into<Arc<Schedule>>,
        input: Region,
        output: Region,
    ) -> Collective<T> {
        let memory = Memory::bytes(input, output);
        Collective { call: self, schedule: schedule.into(), memory }
    }

    /// Makes a collective whose units are elements.
    #[inline]
    pub fn elements(self, schedule: impl Into<Arc<Schedule>>, elements: Elements) -> Collective<T> {
        let memory = Memory::elements(elements);
        Collective { call: self, schedule: schedule.into(), memory }
    }
}

impl<T> Deref for Call<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.team
    }
}

impl<T: Team> Collective<T> {
    /// Its processes.
    pub fn team(&self) -> &T {
        &self.call.team
    }

    /// Runs the collective to its end.
    ///
    /// # Errors
    /// A peer failed, or sent a message of another length than this process expects.
    pub fn run(&self) -> Result<()>
    where
        T: Clone,
    {
        if self.call.arguments.get().is_some() {
            self.compare()?;
        }
        self.carry_out()
    }

    #[cold]
    fn compare(&self) -> Result<()>
    where
        T: Clone,
    {
        let mut comparison = self.comparison();
        while let Some(one) = comparison {
            one.collective.carry_out()?;
            comparison = one.conclude()?;
        }
        Ok(())
    }

    #[inline]
    fn carry_out(&self) -> Result<()> {
        if self.call.form == Form::Blocking
            && let Some(slot) = self.call.team.collectives().slot()
        {
            slot.begin(self.call.tag);
        }
        let progress = self.call.team.progress();
        let mut running = Running::new(self);
        while progress.wait(|worker| running.advance_or_await(worker)) == TaskStage::Works {
            running.work();
        }
        running.failure.map_or(Ok(()), Err)
    }

    /// The comparison of arguments that runs first, if checks are on.
    fn comparison(&self) -> Option<Comparison<T>>
    where
        T: Clone,
    {
        let arguments = self.call.arguments.get()?;
        let (team, size) = (&self.call.team, self.call.team.size());
        let calls = check::exchange(team, check::RECORD as u64);
        let lengths = check::exchange(team, check::LENGTHS as u64 * u64::from(size));
        let then = Lengths { schedule: lengths, own: check::lengths(arguments, size) };
        let own = arguments.emit().to_vec();
        Some(Comparison::new(&self.call, calls, own, Compared::Calls(then)))
    }

    /// The slot in the shared segment that its plan uses.
    #[inline]
    fn slot(&self) -> &Slot {
        match self.call.team.collectives().slot() {
            Some(slot) => slot,
            None => unreachable!("only teams with a shared segment have plans for it"),
        }
    }
}

impl<T: Team + Clone + Send + Sync + 'static> Collective<T> {
    /// Starts it; the progress engine runs it in the background and calls `then` after success. It may run repeatedly,
    /// but only once at a time.
    pub fn start(self: Arc<Self>, then: Option<Box<dyn FnOnce() + Send>>) -> Pending {
        let pending = Pending(Arc::default());
        let comparison = self.comparison().map(Comparison::begun);
        let (running, end) = (Running::new(Arc::clone(&self)), pending.clone());
        let task = Background { comparison, running, end, then };
        self.team().progress().begin(Box::new(task));
        pending
    }
}

impl Pending {
    /// The result, if the collective has ended.
    #[inline]
    pub fn end(&self) -> Option<&Option<Box<Failure>>> {
        self.0.get()
    }
}

/// An exchange of arguments, to compare the calls of all processes.
struct Comparison<T> {
    collective: Arc<Collective<T>>,
    /// Arguments of all processes.
    received: Region,
    compared: Compared,
}

/// Data exchanged: first the calls, then their lists of lengths, if a process has one.
enum Compared {
    Calls(Lengths),
    Lengths(Vec<u8>),
}

/// The exchange of lengths, and this process's contribution.
struct Lengths {
    schedule: Arc<Schedule>,
    own: Vec<u8>,
}

impl<T: Team + Clone> Comparison<T> {
    fn new(call: &Call<T>, schedule: Arc<Schedule>, own: Vec<u8>, compared: Compared) -> Self {
        let received = Region::owned(own.len() * call.team.size() as usize);
        let own = Region::from_box(own.into_boxed_slice());
        let collective =
            Call::numbered(call.team.clone(), call.tag).bytes(schedule, own, received.clone());
        Self { collective: Arc::new(collective), received, compared }
    }

    fn begun(self) -> (OwnRun<T>, Self) {
        (Running::new(Arc::clone(&self.collective)), self)
    }

    /// Compares the exchanged data. Fails for the first difference, or returns the next comparison.
    fn conclude(self) -> Result<Option<Self>> {
        let received = self.received.to_vec();
        match self.compared {
            Compared::Calls(Lengths { schedule, own }) => {
                check::compare(&received).map_or(Ok(()), Err)?;
                let call = &self.collective.call;
                let next = || Self::new(call, schedule, own, Compared::Lengths(received.clone()));
                Ok(check::has_lengths(&received).then(next))
            }
            Compared::Lengths(calls) => {
                check::compare_lengths(&calls, &received).map_or(Ok(None), Err)
            }
        }
    }
}

/// A run that owns its collective.
type OwnRun<T> = Running<Arc<Collective<T>>>;

/// A collective that runs in the background.
struct Background<T> {
    /// The comparison of arguments that runs first, if checks are on.
    comparison: Option<(OwnRun<T>, Comparison<T>)>,
    running: OwnRun<T>,
    end: Pending,
    /// Called after success.
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl<T: Team + Clone> Background<T> {
    fn stage(&mut self, worker: &mut Worker) -> TaskStage {
        while let Some((mut running, comparison)) = self.comparison.take() {
            let stage = running.advance(worker);
            if stage != TaskStage::Ended {
                self.comparison = Some((running, comparison));
                return stage;
            }
            match running.failure.take().map_or_else(|| comparison.conclude(), Err) {
                Ok(next) => self.comparison = next.map(Comparison::begun),
                Err(failure) => {
                    self.running.failure = Some(failure);
                    return TaskStage::Ended;
                }
            }
        }
        self.running.advance(worker)
    }
}

impl<T: Team + Clone + Send + Sync> Task for Background<T> {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let stage = self.stage(worker);
        if stage == TaskStage::Ended {
            let failure = self.running.failure.take();
            if let (None, Some(then)) = (&failure, self.then.take()) {
                then();
            }
            // A collective ends once.
            let _ = self.end.0.set(failure);
        }
        stage
    }

    fn work(&mut self) {
        match &mut self.comparison {
            Some((running, _)) => running.work(),
            None => self.running.work(),
        }
    }
}

/// State of one run of a collective.
struct Running<C> {
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
    failure: Option<Box<Failure>>,
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
    fn new(collective: C) -> Self {
        let temporaries = &collective.schedule.temporaries;
        let temporaries = temporaries.iter().map(|&units| collective.memory.temporary(units));
        let temporaries = temporaries.collect();
        let (needs_wake, watches, is_over) = (false, false, false);
        let (begun, failure) = (Vec::new(), None);
        let early = Early::default();
        Self { collective, temporaries, at: 0, begun, needs_wake, watches, early, failure, is_over }
    }

    /// [`Running::advance`] for a waiting thread; registers the awaited operation with the worker.
    #[inline]
    fn advance_or_await(&mut self, worker: &mut Worker) -> Option<TaskStage> {
        let stage = self.advance(worker);
        if stage == TaskStage::Waits {
            worker.await_op(|| self.awaited());
            return None;
        }
        Some(stage)
    }

    /// The operation that the current step waits for, if any.
    fn awaited(&self) -> Option<OpId> {
        match self.collective.schedule.steps.get(self.at) {
            Some(Step::Wait) | None => self.begun.last().map(|begun| begun.op),
            Some(&Step::Await { step }) => {
                let index = self.begun.binary_search_by_key(&step, |begun| begun.step).ok()?;
                Some(self.begun[index].op)
            }
            Some(_) => None,
        }
    }

    /// Runs steps until one must wait, or copies or reduces too much to run under the worker's lock.
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        if std::mem::take(&mut self.needs_wake) {
            self.wake_members(worker);
        }
        if worker.engine.has_revoked()
            && let Some(failed) = worker.engine.revoked_by(self.context())
        {
            self.give_up(worker, failed);
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
        self.settle(worker)
    }

    /// Runs the steps that need no worker: copies and reductions.
    fn work(&mut self) {
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
            Outcome::PeerFailed if let Some(failed) = worker.engine.revoked_by(context) => {
                return self.give_up(worker, failed);
            }
            Outcome::PeerFailed => {
                self.is_over = true;
                worker.revoke_context(context, peer);
                gone(&why_gone(peer, &worker.take_notices()))
            }
            Outcome::Truncated { message_bytes } => unfit(source, message_bytes, expected),
            Outcome::Ok | Outcome::Cancelled => unfit(source, bytes, expected),
        });
    }

    /// Ends this run and revokes the team's collectives, because a member has failed here or elsewhere.
    #[cold]
    fn give_up(&mut self, worker: &mut Worker, failed: PeerId) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        worker.revoke_context(self.context(), failed);
        if std::mem::take(&mut self.watches) {
            worker.unwatch(&self.collective.slot().shm_coll);
        }
        self.failure.get_or_insert_with(|| gone(&why_gone(failed, &[])));
    }

    fn copy(&self, from: Span, to: Span) {
        let stream = |span| self.collective.memory.stream(span, &self.temporaries);
        stream(to).copy_from(&stream(from));
    }

    fn reduce(&self, input: Span, inout: Span) {
        self.collective.memory.reduce(input, inout, &self.temporaries);
    }
}

/// The reason for a failed message to or from a peer: the notices of lost links, if any are left.
fn why_gone(peer: PeerId, notices: &[String]) -> String {
    match notices {
        [] => format!("rank {} cannot be reached any more", peer.0),
        notices => notices.join("; "),
    }
}

#[cold]
fn gone(why: &str) -> Box<Failure> {
    let message = format!("a peer is gone in the middle of a collective ({why})");
    Failure::new(Fault::PeerGone, message)
}

#[cold]
fn unfit(rank: u32, got: u64, expected: u64) -> Box<Failure> {
    let message = format!(
        "rank {rank} sent {got} bytes where {expected} were expected: counts or types differ between processes"
    );
    Failure::new(Fault::Length, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_lost_peer_and_does_not_claim_its_process_has_ended() {
        let lost = ["link to rank 3 lost: no link has opened again in time".to_owned()];
        for (notices, why) in [
            (&lost[..], "link to rank 3 lost: no link has opened again in time"),
            (&[], "rank 3 cannot be reached any more"),
        ] {
            let failure = gone(&why_gone(PeerId(3), notices));
            assert_eq!(failure.fault, Fault::PeerGone);
            let text = format!("a peer is gone in the middle of a collective ({why})");
            assert_eq!(failure.message, text);
        }
    }
}
