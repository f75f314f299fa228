//! Collective operations: the planner's schedules, carried out (MPI-5.0 §6).
//!
//! A [`Collective`] is what one rank does, with its memory, ready to be carried out: at once, in the
//! background, or any number of times. All go through one `Running`, which moves on as far as completed
//! operations allow whenever somebody holds the worker at hand.

mod buffers;
mod combining;
mod in_shm_coll;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use engine::{Completion, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use plan::{Schedule, Span, Step};
use progress::{Stage, Task, Worker};
use wire::PeerId;

use crate::check::{self, Told};
use crate::comm::{Comm, CommRef, Form};
use crate::plans::{Listed, Operation, Shape};
use crate::request::{Request, Template};
use crate::shm_coll::{FOUNDED_AFTER, Seat};
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

pub use buffers::Elements;
use buffers::Memory;
use in_shm_coll::Early;

/// Waits until all processes of the communicator have called.
///
/// # Errors
/// When a peer fails.
pub fn barrier(comm: &Comm) -> Result<()> {
    Call::new(CommRef::Derived(comm.clone()), Form::Blocking).barrier()?.run()
}

/// A collective call of this process. It counts from here on, before its arguments are checked: one that
/// fails its check on this rank only still has the number it has on the others, and what follows stays
/// in step.
#[derive(Debug)]
pub struct Call {
    comm: CommRef,
    /// Tells this collective's messages from those of others on the communicator, also of those that run
    /// at the same time: all processes make their calls of a form in the same order.
    tag: i32,
    form: Form,
    /// What it is compared by with the others', where that is asked for.
    told: OnceLock<Box<Told>>,
}

/// What this rank does in a collective operation, ready to be carried out.
#[derive(Debug)]
pub struct Collective {
    call: Call,
    schedule: Arc<Schedule>,
    memory: Memory,
}

/// The end of an operation in the background, once it is there: the error, if there was one.
#[derive(Clone, Debug)]
pub struct Pending(Arc<OnceLock<Option<Error>>>);

impl Call {
    /// Counts a call on `comm`.
    #[inline]
    pub fn new(comm: CommRef, form: Form) -> Self {
        let comm = match comm.merged() {
            Some(merged) => CommRef::Derived(merged.clone()),
            None => comm,
        };
        // Processes that are compared may differ in that too: the two count as one.
        let form = match form {
            Form::Begun if check::is_on() => Form::Blocking,
            form => form,
        };
        let tag = comm.next_collective(form);
        if tag == FOUNDED_AFTER && form == Form::Blocking {
            comm.found_shm_coll(tag);
        }
        Self { comm, tag, form, told: OnceLock::new() }
    }

    /// A part of the collective that has this number already, which goes by messages.
    pub(crate) fn numbered(comm: CommRef, tag: i32) -> Self {
        Self { comm, tag, form: Form::Begun, told: OnceLock::new() }
    }

    /// By which messages of it are told from others.
    pub(crate) fn number(&self) -> i32 {
        self.tag
    }

    /// As [`Comm::plan`]; blocking calls may use the shared segment.
    ///
    /// # Errors
    /// When not initialised.
    #[inline]
    pub fn plan(
        &self,
        shape: Shape,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Result<Arc<Schedule>> {
        let in_shm_coll = self.in_shm_coll().is_some();
        self.comm.plan(Shape { in_shm_coll, ..shape }, make)
    }

    /// As [`Call::plan`], of blocks of such lengths.
    ///
    /// # Errors
    /// When not initialised.
    pub fn plan_listed(
        &self,
        shape: Shape,
        listed: Listed<'_>,
        make: impl FnOnce(u32, &plan::Topology) -> Schedule,
    ) -> Result<Arc<Schedule>> {
        let in_shm_coll = self.in_shm_coll().is_some();
        self.comm.plan_listed(Shape { in_shm_coll, ..shape }, listed, make)
    }

    #[inline]
    fn in_shm_coll(&self) -> Option<&Seat> {
        if self.form == Form::Blocking { self.comm.seat() } else { None }
    }

    /// Says what the call is compared by, if calls are.
    #[inline]
    pub fn tell(&self, told: impl FnOnce() -> Told) {
        if check::is_on() {
            self.note(told);
        }
    }

    #[cold]
    fn note(&self, told: impl FnOnce() -> Told) {
        // Each body tells once.
        let _ = self.told.set(Box::new(told()));
    }

    /// A barrier.
    ///
    /// # Errors
    /// When not initialised.
    #[inline]
    pub fn barrier(self) -> Result<Collective> {
        self.tell(|| Told::new(Operation::Barrier, None, None, None));
        let schedule = self.plan(Shape::of(Operation::Barrier), plan::barrier)?;
        Ok(self.bytes(schedule, Region::empty(), Region::empty()))
    }

    /// A schedule whose units are bytes of two packed streams.
    #[inline]
    pub fn bytes(
        self,
        schedule: impl Into<Arc<Schedule>>,
        input: Region,
        output: Region,
    ) -> Collective {
        let memory = Memory::bytes(input, output);
        Collective { call: self, schedule: schedule.into(), memory }
    }

    /// A schedule whose units are elements.
    #[inline]
    pub fn elements(self, schedule: impl Into<Arc<Schedule>>, elements: Elements) -> Collective {
        let memory = Memory::elements(elements);
        Collective { call: self, schedule: schedule.into(), memory }
    }
}

impl Deref for Call {
    type Target = CommRef;

    fn deref(&self) -> &CommRef {
        &self.comm
    }
}

impl Collective {
    /// The vci of its messages.
    pub fn vci(&self) -> Vci {
        self.call.comm.vci()
    }

    /// Carries it out.
    ///
    /// # Errors
    /// When a peer fails, or sends a message of another length than this process expects.
    pub fn run(&self) -> Result<()> {
        if self.call.told.get().is_some() {
            self.compare()?;
        }
        self.carry_out()
    }

    #[cold]
    fn compare(&self) -> Result<()> {
        let mut comparison = self.comparison()?;
        while let Some(one) = comparison {
            one.collective.carry_out()?;
            comparison = one.conclude()?;
        }
        Ok(())
    }

    #[inline]
    fn carry_out(&self) -> Result<()> {
        if self.call.form == Form::Blocking
            && let Some(seat) = self.call.comm.seat()
        {
            seat.begin(self.call.tag);
        }
        let progress = self.call.comm.progress()?;
        let mut running = Running::new(self);
        while progress.wait(|worker| running.advance_or_await(worker)) == Stage::Works {
            running.work();
        }
        running.failure.map_or(Ok(()), Err)
    }

    /// Begins it; it goes on without calls.
    ///
    /// # Errors
    /// When not initialised.
    pub fn begin(self) -> Result<Request> {
        Ok(Request::Collective(Arc::new(self).start()?))
    }

    /// As [`Collective::begin`]; its good end calls `then`.
    pub(crate) fn begin_with_end(self, then: Box<dyn FnOnce() + Send>) -> Result<Request> {
        Ok(Request::Collective(Arc::new(self).start_with_end(Some(then))?))
    }

    /// A request that begins it whenever started.
    ///
    /// Such operations are made in the same order on all processes, but may be started in any
    /// (MPI-5.0 §6.13): their messages keep the number of the call that made them.
    pub fn persistent(self) -> Request {
        Request::persistent(Template::Collective(Arc::new(self)))
    }

    /// As [`Collective::begin`]; at most once at a time.
    pub(crate) fn start(self: Arc<Self>) -> Result<Pending> {
        self.start_with_end(None)
    }

    /// What has to come first where calls are compared.
    fn comparison(&self) -> Result<Option<Comparison>> {
        let Some(told) = self.call.told.get() else { return Ok(None) };
        let (comm, size) = (&self.call.comm, self.call.comm.size());
        let calls = check::exchange(comm, check::RECORD as u64)?;
        let lengths = check::exchange(comm, check::LENGTHS as u64 * u64::from(size))?;
        let then = Lengths { schedule: lengths, said: check::lengths(told, size) };
        let said = told.emit().to_vec();
        Ok(Some(Comparison::new(&self.call, calls, said, Compared::Calls(then))))
    }

    /// The seat at the shared segment that its plan goes by.
    #[inline]
    fn seat(&self) -> &Seat {
        match self.call.comm.seat() {
            Some(seat) => seat,
            None => unreachable!("plans go by the shm_coll of communicators that have one"),
        }
    }

    fn start_with_end(self: Arc<Self>, then: Option<Box<dyn FnOnce() + Send>>) -> Result<Pending> {
        let progress = self.call.comm.progress()?;
        let pending = Pending(Arc::default());
        let comparison = self.comparison()?.map(Comparison::begun);
        let (running, end) = (Running::new(self), pending.clone());
        progress.begin(Box::new(Background { comparison, running, end, then }));
        Ok(pending)
    }
}

impl Pending {
    /// The end, if it is there.
    #[inline]
    pub(crate) fn end(&self) -> Option<&Option<Error>> {
        self.0.get()
    }
}

/// An exchange of what calls are compared by.
struct Comparison {
    collective: Arc<Collective>,
    heard: Region,
    compared: Compared,
}

/// What is exchanged: what all call, and then lengths, if somebody has some, of these calls.
enum Compared {
    Calls(Lengths),
    Lengths(Vec<u8>),
}

/// The exchange of lengths, and what this process says in it.
struct Lengths {
    schedule: Arc<Schedule>,
    said: Vec<u8>,
}

impl Comparison {
    fn new(call: &Call, schedule: Arc<Schedule>, said: Vec<u8>, compared: Compared) -> Self {
        let heard = Region::owned(said.len() * call.comm.size() as usize);
        let comm = CommRef::Derived(Comm::clone(&call.comm));
        let said = Region::from_box(said.into_boxed_slice());
        let collective = Call::numbered(comm, call.tag).bytes(schedule, said, heard.clone());
        Self { collective: Arc::new(collective), heard, compared }
    }

    fn begun(self) -> (Running<Arc<Collective>>, Self) {
        (Running::new(Arc::clone(&self.collective)), self)
    }

    /// At the exchange's good end what differs, or what is to be compared next.
    fn conclude(self) -> Result<Option<Self>> {
        let heard = self.heard.to_vec();
        match self.compared {
            Compared::Calls(Lengths { schedule, said }) => {
                check::compare(&heard).map_or(Ok(()), Err)?;
                let call = &self.collective.call;
                let next = || Self::new(call, schedule, said, Compared::Lengths(heard.clone()));
                Ok(check::has_lengths(&heard).then(next))
            }
            Compared::Lengths(calls) => {
                check::compare_lengths(&calls, &heard).map_or(Ok(None), Err)
            }
        }
    }
}

/// A collective that nobody has to wait for.
struct Background {
    /// What comes first, where calls are compared.
    comparison: Option<(Running<Arc<Collective>>, Comparison)>,
    running: Running<Arc<Collective>>,
    end: Pending,
    /// What its good end brings about.
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl Background {
    fn stage(&mut self, worker: &mut Worker) -> Stage {
        while let Some((mut running, comparison)) = self.comparison.take() {
            let stage = running.advance(worker);
            if stage != Stage::Ended {
                self.comparison = Some((running, comparison));
                return stage;
            }
            match running.failure.take().map_or_else(|| comparison.conclude(), Err) {
                Ok(next) => self.comparison = next.map(Comparison::begun),
                Err(error) => {
                    self.running.failure = Some(error);
                    return Stage::Ended;
                }
            }
        }
        self.running.advance(worker)
    }
}

impl Task for Background {
    fn advance(&mut self, worker: &mut Worker) -> Stage {
        let stage = self.stage(worker);
        if stage == Stage::Ended {
            let comm = self.running.collective.call.handle();
            let failure = self.running.failure.take().map(|error| error.on(comm));
            if let (None, Some(then)) = (&failure, self.then.take()) {
                then();
            }
            // It ends once.
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

/// A collective under way.
struct Running<C> {
    collective: C,
    temporaries: Vec<Region>,
    /// The next step.
    at: usize,
    /// Operations that have to end before the next wait does, in the order of their steps.
    begun: Vec<Begun>,
    /// Something was posted on the shared segment, and nobody told.
    has_events: bool,
    /// The shared segment is watched for it.
    watches: bool,
    early: Early,
    failure: Option<Error>,
    /// A member of the communicator has failed: no further step is taken.
    is_over: bool,
}

/// An operation under way.
#[derive(Clone, Copy)]
struct Begun {
    step: u32,
    /// The other end.
    peer: PeerId,
    op: OpId,
    /// How many it moves.
    bytes: u64,
}

impl<C: Deref<Target = Collective>> Running<C> {
    #[inline]
    fn new(collective: C) -> Self {
        let temporaries = &collective.schedule.temporaries;
        let temporaries = temporaries.iter().map(|&units| collective.memory.temporary(units));
        let temporaries = temporaries.collect();
        let (has_events, watches, is_over) = (false, false, false);
        let (begun, failure) = (Vec::new(), None);
        let early = Early::default();
        Self { collective, temporaries, at: 0, begun, has_events, watches, early, failure, is_over }
    }

    /// As [`Running::advance`], for a thread that waits.
    #[inline]
    fn advance_or_await(&mut self, worker: &mut Worker) -> Option<Stage> {
        let stage = self.advance(worker);
        if stage == Stage::Waits {
            worker.await_op(|| self.awaited());
            return None;
        }
        Some(stage)
    }

    /// The operation without whose end it does not go on, if it waits for one.
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

    /// Takes steps until one has to wait or is too long for who holds the worker.
    fn advance(&mut self, worker: &mut Worker) -> Stage {
        if std::mem::take(&mut self.has_events) {
            self.tell(worker);
        }
        if worker.engine.has_closed()
            && let Some(failed) = worker.engine.closed_by(self.context())
        {
            self.give_up(worker, failed);
            return self.settle(worker);
        }
        while let Some(&step) = self.collective.schedule.steps.get(self.at) {
            match step {
                Step::Send { to, span } => self.send(worker, to, span),
                Step::Receive { from, span } => self.receive(worker, from, span),
                Step::Wait => match self.settle(worker) {
                    Stage::Ended if self.failure.is_none() => {}
                    stage => return stage,
                },
                Step::Await { step } => {
                    if !self.settle_one(worker, step) {
                        return Stage::Waits;
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
                    if stage != Stage::Ended || self.failure.is_some() {
                        self.tell_what_was_left_out(worker);
                        return stage;
                    }
                    if !self.reserves(worker, |shm_coll| shm_coll.reserve(len)) {
                        return Stage::Ended;
                    }
                    if !self.collective.memory.is_brief(units) {
                        return Stage::Works;
                    }
                    self.post(step);
                    self.tell(worker);
                }
                Step::Meet { .. } if self.untaken().next().is_some() => return Stage::Works,
                Step::Meet { first, end } => {
                    let stage = self.await_shm_coll(worker, |shm_coll| shm_coll.has(first..end));
                    if stage == Stage::Waits {
                        if self.comes_first() {
                            continue;
                        }
                        self.take_short();
                    }
                    if stage != Stage::Ended || self.failure.is_some() {
                        return stage;
                    }
                }
                Step::Announce { units, reader } => self.announce(units, reader),
                Step::PostMore { .. } => return self.await_room_for_more(worker),
                Step::Release { piece } => {
                    self.release(piece);
                    self.tell(worker);
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
                Step::Copy { .. } | Step::Reduce { .. } => return Stage::Works,
                Step::Take { .. } | Step::TakeBlock { .. } => return Stage::Works,
                Step::Combine { .. } => return Stage::Works,
            }
            self.at += 1;
        }
        self.settle(worker)
    }

    /// Takes the steps that need no core.
    fn work(&mut self) {
        let first = self.at;
        while let Some(&step) = self.collective.schedule.steps.get(self.at) {
            match step {
                Step::Copy { from, to } => self.copy(from, to),
                Step::Reduce { input, inout } => self.reduce(input, inout),
                // There is room: this is work because there was.
                Step::Post { .. } | Step::PostParts { .. } | Step::PostBlocks
                    if self.at == first =>
                {
                    self.post(step);
                    self.has_events = true;
                }
                Step::Meet { .. } if self.at == first => return self.take_early(),
                Step::PostMore { piece, span } if self.at == first => {
                    self.post_more(piece, span);
                    self.has_events = true;
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

    /// What its messages carry.
    #[inline]
    fn context(&self) -> u64 {
        self.collective.call.comm.collective_context()
    }

    #[inline]
    fn send(&mut self, worker: &mut Worker, to: u32, span: Span) {
        let Call { comm, tag, .. } = &self.collective.call;
        let data = self.collective.memory.stream(span, &self.temporaries);
        let context = comm.collective_context();
        let envelope = Envelope { context, source: comm.rank(), tag: *tag, is_urgent: true };
        let peer = comm.peer(to);
        if !worker.send_short(peer, envelope, &data) {
            let op = worker.engine.submit_send(peer, envelope, &data, SendMode::Standard);
            self.note_begun(peer, op, data.len());
        }
    }

    #[inline]
    fn receive(&mut self, worker: &mut Worker, from: u32, span: Span) {
        let Call { comm, tag, .. } = &self.collective.call;
        let into = self.collective.memory.stream(span, &self.temporaries);
        let context = comm.collective_context();
        let selector = Selector { context, source: Some(from), tag: Some(*tag) };
        let peer = comm.peer(from);
        let op = worker.engine.submit_receive(Some(peer), selector, &into);
        self.note_begun(peer, op, into.len());
    }

    #[inline]
    fn note_begun(&mut self, peer: PeerId, op: OpId, bytes: usize) {
        self.begun.push(Begun { step: self.at as u32, peer, op, bytes: bytes as u64 });
    }

    /// Whether all that was begun has ended.
    #[inline]
    fn settle(&mut self, worker: &mut Worker) -> Stage {
        while let Some(&begun) = self.begun.last() {
            let Some(completion) = worker.engine.take(begun.op) else { return Stage::Waits };
            self.begun.pop();
            self.check(begun, completion, worker);
        }
        Stage::Ended
    }

    /// Whether what was begun in a step has ended. What fails is told at the next wait for everything:
    /// what else was begun is still under way, and may be what a peer waits for.
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
    fn check(&mut self, begun: Begun, completion: Completion, worker: &mut Worker) {
        if completion.outcome != Outcome::Ok || completion.bytes != begun.bytes {
            self.note_failure(begun, completion, worker);
        }
    }

    /// What was begun in a step has failed. The first that does is told why.
    #[cold]
    fn note_failure(&mut self, begun: Begun, completion: Completion, worker: &mut Worker) {
        if self.failure.is_some() {
            return;
        }
        let Begun { peer, bytes: expected, .. } = begun;
        let Completion { source, bytes, outcome, .. } = completion;
        let context = self.context();
        self.failure = Some(match outcome {
            Outcome::PeerFailed if let Some(failed) = worker.engine.closed_by(context) => {
                return self.give_up(worker, failed);
            }
            Outcome::PeerFailed => {
                self.is_over = true;
                worker.close_context(context, peer);
                gone(&why_gone(peer, &worker.take_notices()))
            }
            Outcome::Truncated { message_bytes } => unfit(source, message_bytes, expected),
            Outcome::Ok | Outcome::Cancelled => unfit(source, bytes, expected),
        });
    }

    /// A member has failed, here or to another: the communicator's collectives are closed.
    #[cold]
    fn give_up(&mut self, worker: &mut Worker, failed: PeerId) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        worker.close_context(self.context(), failed);
        if std::mem::take(&mut self.watches) {
            worker.unwatch(&self.collective.seat().shm_coll);
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

/// Why a message to or from a peer has failed. An earlier error may have told of the link.
fn why_gone(peer: PeerId, notices: &[String]) -> String {
    match notices {
        [] => format!("rank {} cannot be reached any more", peer.0),
        notices => notices.join("; "),
    }
}

#[cold]
fn gone(why: &str) -> Error {
    Error::new(
        ErrorClass::ProcAborted,
        format!("a peer is gone in the middle of a collective ({why})"),
    )
}

#[cold]
fn unfit(rank: u32, got: u64, expected: u64) -> Error {
    let message = format!(
        "rank {rank} sent {got} bytes where {expected} were expected: counts or types differ between processes"
    );
    Error::new(ErrorClass::Truncate, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_is_named_and_no_end_claimed_that_nobody_has_seen() {
        let lost = ["link to rank 3 lost: no link has opened again in time".to_owned()];
        for (notices, why) in [
            (&lost[..], "link to rank 3 lost: no link has opened again in time"),
            (&[], "rank 3 cannot be reached any more"),
        ] {
            let error = gone(&why_gone(PeerId(3), notices));
            assert_eq!(error.class, ErrorClass::ProcAborted);
            let text = format!("a peer is gone in the middle of a collective ({why})");
            assert_eq!(error.message, text);
        }
    }
}
