//! Requests: operations that a call began and another completes (MPI-5.0 §3.7, §3.9).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{Completion, OpId, Outcome};
use progress::Core;

use crate::buffer::Flush;
use crate::collective::{Collective, Pending};
use crate::comm::Comm;
use crate::lanes::{LANES_MAX, Lane, Lanes, wait_in};
use crate::point_to_point::{Receive, Send};
use crate::process::{self, Process};
use crate::table::{Handle, Kind, Objects, Table};
use crate::{Error, ErrorClass, Result};

/// What a completed operation tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender's rank; none for operations without a message.
    pub source: Source,
    /// The tag; none likewise.
    pub tag: Option<i32>,
    /// Bytes delivered.
    pub bytes: u64,
    /// Whether it was cancelled.
    pub cancelled: bool,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A rank of the communicator.
    Rank(u32),
    /// `MPI_PROC_NULL`.
    ProcNull,
    /// No message (an empty status).
    None,
}

impl Status {
    /// The status of operations that concern no message (MPI-5.0 §3.7.3).
    pub const EMPTY: Self = Self { source: Source::None, tag: None, bytes: 0, cancelled: false };
    /// The status of a receive from `MPI_PROC_NULL`.
    pub const PROC_NULL: Self = Self { source: Source::ProcNull, ..Self::EMPTY };
}

/// How a request ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What it tells.
    pub status: Status,
    /// What went wrong, if anything.
    pub error: Option<Error>,
    /// Whether the handle is gone; that of a persistent request stays.
    pub freed: bool,
}

impl Ended {
    /// The good end of a request that is used once.
    #[inline]
    fn of(status: Status) -> Self {
        Self { status, error: None, freed: true }
    }
}

/// An operation under way, or ready to be started. A tag of its own is read faster than one that hides in
/// what the variants hold.
#[derive(Debug)]
#[repr(u64)]
pub enum Request {
    /// Complete from the beginning.
    Done(Status),
    /// Under way in the engine.
    Operation(Operation),
    /// A receive and a send that end as one.
    Exchange(Box<[Request; 2]>),
    /// Done when the messages in a buffer have left.
    Flush(Flush),
    /// A collective that goes on by itself.
    Collective(Pending),
    /// To be started any number of times.
    Persistent(Arc<Persistent>),
}

/// An operation of the engine, and where its errors go.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The operation.
    pub op: OpId,
    /// Whether it is a receive, whose status tells of a message.
    pub receives: bool,
    /// Where it is under way.
    pub lane: Lane,
    /// The communicator whose handler gets its errors.
    pub comm: Handle,
}

/// What a persistent request does when started.
#[derive(Clone, Debug)]
pub enum Template {
    /// Sends.
    Send(Send),
    /// Receives.
    Receive(Receive),
    /// Takes part in a collective.
    Collective(Arc<Collective>),
}

/// A persistent request.
#[derive(Debug)]
pub struct Persistent {
    template: Template,
    active: Mutex<Option<Active>>,
}

/// What a started persistent request is doing.
#[derive(Debug)]
enum Active {
    Done(Status),
    Operation(Operation),
    Collective(Pending),
}

impl Request {
    /// Gives the request a handle, among those of the lane that it is under way in.
    ///
    /// # Errors
    /// When no more requests fit.
    #[inline(always)]
    pub fn register(self, lane: Lane) -> Result<Handle> {
        REQUESTS.of(lane).insert(Entry { request: self, listed: 0 })
    }

    /// A request that does nothing until started.
    pub fn persistent(template: Template) -> Self {
        Self::Persistent(Arc::new(Persistent { template, active: Mutex::new(None) }))
    }

    /// The end of the request, once, if it is there, as far as the core of a lane tells.
    #[inline(always)]
    fn poll(&self, lane: Lane, core: &mut Core) -> Option<Ended> {
        match self {
            Self::Done(status) => Some(Ended::of(*status)),
            Self::Operation(operation) => operation.poll(core, true),
            Self::Exchange(_) | Self::Flush(_) | Self::Collective(_) | Self::Persistent(_) => {
                self.poll_seldom(lane, core)
            }
        }
    }

    fn poll_seldom(&self, lane: Lane, core: &mut Core) -> Option<Ended> {
        match self {
            Self::Done(_) | Self::Operation(_) => self.poll(lane, core),
            Self::Exchange(parts) => {
                let [receive, send] = &**parts;
                receive.peek(lane, core).and_then(|_| send.peek(lane, core))?;
                let (received, sent) = (receive.poll(lane, core)?, send.poll(lane, core)?);
                Some(Ended { error: received.error.or(sent.error), ..received })
            }
            Self::Flush(flush) => flush.is_done(lane, core).then_some(Ended::of(Status::EMPTY)),
            Self::Collective(pending) => {
                let error = pending.end()?.clone();
                Some(Ended { error, ..Ended::of(Status::EMPTY) })
            }
            Self::Persistent(persistent) => {
                let mut active = persistent.active();
                let ended = match &*active {
                    None => Ended { status: Status::EMPTY, error: None, freed: false },
                    Some(Active::Done(status)) => {
                        Ended { status: *status, error: None, freed: false }
                    }
                    Some(Active::Operation(operation)) => operation.poll(core, false)?,
                    Some(Active::Collective(pending)) => {
                        let error = pending.end()?.clone();
                        Ended { status: Status::EMPTY, error, freed: false }
                    }
                };
                *active = None;
                Some(ended)
            }
        }
    }

    /// The status of the request if it has ended, which is left as it is.
    fn peek(&self, lane: Lane, core: &mut Core) -> Option<Status> {
        match self {
            Self::Done(status) => Some(*status),
            Self::Operation(operation) => operation.peek(core),
            Self::Exchange(parts) => {
                let status = parts[0].peek(lane, core)?;
                parts[1].peek(lane, core).map(|_| status)
            }
            Self::Flush(flush) => flush.is_done(lane, core).then_some(Status::EMPTY),
            Self::Collective(pending) => pending.end().map(|_| Status::EMPTY),
            Self::Persistent(persistent) => match &*persistent.active() {
                None => Some(Status::EMPTY),
                Some(Active::Done(status)) => Some(*status),
                Some(Active::Operation(operation)) => operation.peek(core),
                Some(Active::Collective(pending)) => pending.end().map(|_| Status::EMPTY),
            },
        }
    }

    /// Whether the request counts in calls that wait for any of several.
    fn is_active(&self) -> bool {
        match self {
            Self::Done(_)
            | Self::Operation(_)
            | Self::Exchange(_)
            | Self::Flush(_)
            | Self::Collective(_) => true,
            Self::Persistent(persistent) => persistent.active().is_some(),
        }
    }

    /// Whether its end shows only where each lane has been asked.
    fn is_of_all_lanes(&self) -> bool {
        matches!(self, Self::Flush(_))
    }

    /// The engine's operation that the request is, if it is one.
    fn operation(&self) -> Option<OpId> {
        match self {
            Self::Operation(operation) => Some(operation.op),
            Self::Done(_)
            | Self::Exchange(_)
            | Self::Flush(_)
            | Self::Collective(_)
            | Self::Persistent(_) => None,
        }
    }

    /// The engine's operations behind the request; none where they are not the request's alone.
    fn operations(&self) -> Vec<Operation> {
        match self {
            Self::Done(_) | Self::Flush(_) | Self::Collective(_) => Vec::new(),
            Self::Operation(operation) => vec![*operation],
            Self::Exchange(parts) => parts.iter().flat_map(Self::operations).collect(),
            Self::Persistent(persistent) => match &*persistent.active() {
                Some(Active::Operation(operation)) => vec![*operation],
                Some(Active::Done(_) | Active::Collective(_)) | None => Vec::new(),
            },
        }
    }

    /// Whether it is a collective that has begun: such can be neither cancelled nor freed
    /// (MPI-5.0 §6.12, §6.13).
    fn is_begun_collective(&self) -> bool {
        match self {
            Self::Collective(_) => true,
            Self::Done(_) | Self::Operation(_) | Self::Exchange(_) | Self::Flush(_) => false,
            Self::Persistent(persistent) => {
                matches!(&*persistent.active(), Some(Active::Collective(_)))
            }
        }
    }
}

impl Operation {
    /// One on a communicator.
    #[inline]
    pub(crate) fn of(comm: &Comm, op: OpId, receives: bool) -> Self {
        Self { op, receives, lane: comm.lane(), comm: comm.handle() }
    }

    #[inline]
    fn poll(&self, core: &mut Core, freed: bool) -> Option<Ended> {
        let completion = core.take_or_await(self.op)?;
        let (status, error) = self.interpret(completion, core);
        Some(Ended { status, error, freed })
    }

    fn peek(&self, core: &mut Core) -> Option<Status> {
        let completion = core.engine.peek(self.op)?;
        Some(self.interpret(completion, core).0)
    }

    /// What a completion means to the caller.
    #[inline]
    pub fn interpret(&self, completion: Completion, core: &mut Core) -> (Status, Option<Error>) {
        match completion.outcome {
            Outcome::Ok => (self.status(&completion), None),
            Outcome::Cancelled => (Status { cancelled: true, ..Status::EMPTY }, None),
            Outcome::Truncated { .. } | Outcome::PeerFailed => {
                (self.status(&completion), Some(self.failure(completion, core)))
            }
        }
    }

    #[inline]
    fn status(&self, completion: &Completion) -> Status {
        let &Completion { source, tag, bytes, .. } = completion;
        if self.receives {
            Status { source: Source::Rank(source), tag: Some(tag), bytes, cancelled: false }
        } else {
            Status::EMPTY
        }
    }

    #[cold]
    fn failure(&self, completion: Completion, core: &mut Core) -> Error {
        let Completion { source, tag, bytes, outcome } = completion;
        let error = match outcome {
            Outcome::Truncated { message_bytes } => {
                let message = format!(
                    "a message of {message_bytes} bytes from rank {source} with tag {tag} met a receive of {bytes} bytes"
                );
                Error::new(ErrorClass::Truncate, message)
            }
            Outcome::Ok | Outcome::Cancelled | Outcome::PeerFailed => gone(core),
        };
        error.on(self.comm)
    }
}

/// The error of what needs a peer that is gone.
pub(crate) fn gone(core: &mut progress::Core) -> Error {
    let notices = core.take_notices().join("; ");
    Error::new(ErrorClass::ProcAborted, format!("the peer is gone ({notices})"))
}

impl Persistent {
    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn start(&self) -> Result<()> {
        let mut active = self.active();
        if active.is_some() {
            return Err(already_active());
        }
        let request = match &self.template {
            Template::Send(send) => send.begin()?,
            Template::Receive(receive) => receive.begin()?,
            Template::Collective(collective) => {
                Request::Collective(Arc::clone(collective).start()?)
            }
        };
        *active = match request {
            Request::Done(status) => Some(Active::Done(status)),
            Request::Operation(operation) => Some(Active::Operation(operation)),
            Request::Collective(pending) => Some(Active::Collective(pending)),
            Request::Exchange(_) | Request::Flush(_) | Request::Persistent(_) => None,
        };
        Ok(())
    }
}

/// Starts a persistent request.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request that is not persistent or active already.
pub fn start(handle: Handle) -> Result<()> {
    startable(handle)?.start()
}

/// Starts persistent requests, all or, if one cannot be started, none.
///
/// # Errors
/// As [`start`].
pub fn start_all(handles: &[Cell<Handle>]) -> Result<()> {
    check_all(handles)?;
    let mut all = Vec::with_capacity(handles.len());
    for (index, handle) in handles.iter().enumerate() {
        all.push(startable(handle.get()).map_err(|error| error.about(entry(index)))?);
    }
    all.iter().try_for_each(|persistent| persistent.start())
}

fn startable(handle: Handle) -> Result<Arc<Persistent>> {
    match &REQUESTS.with(handle).lock().find(handle)?.request {
        Request::Persistent(persistent) if persistent.active().is_some() => Err(already_active()),
        Request::Persistent(persistent) => Ok(Arc::clone(persistent)),
        Request::Done(_)
        | Request::Operation(_)
        | Request::Exchange(_)
        | Request::Flush(_)
        | Request::Collective(_) => {
            Err(Error::new(ErrorClass::Request, "the request is not persistent"))
        }
    }
}

fn already_active() -> Error {
    Error::new(ErrorClass::Request, "the request is active already")
}

/// Waits for one request.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a handle that is none.
pub fn wait(handle: Handle) -> Result<Ended> {
    let (process, requests) = (process::current()?, REQUESTS.with(handle));
    // Who polls looks the request up once.
    let mut known = None;
    wait_in(process, lanes_of(process, handle)?, |lane, core| {
        if known.is_some_and(|op| core.still_awaits(op)) {
            return None;
        }
        let mut requests = requests.lock();
        let ended = end(&mut requests, (lane, core), handle);
        if let Ok(None) = ended {
            known = requests.find(handle).ok().and_then(|entry| entry.request.operation());
        }
        ended.transpose()
    })
}

/// Asks for the end of one request.
///
/// # Errors
/// As [`wait`].
pub fn test(handle: Handle) -> Result<Option<Ended>> {
    let (process, requests) = (process::current()?, REQUESTS.with(handle));
    let lanes = lanes_of(process, handle)?;
    let ended =
        test_in(process, lanes, |lane, core| end(&mut requests.lock(), (lane, core), handle))?;
    if ended.is_none() {
        process.lane(lanes.first()).pause();
    }
    Ok(ended)
}

/// The status of a request that has ended, leaving it as it is (`MPI_Request_get_status`).
///
/// # Errors
/// As [`wait`].
pub fn peek(handle: Handle) -> Result<Option<Status>> {
    let (process, requests) = (process::current()?, REQUESTS.with(handle));
    let lanes = lanes_of(process, handle)?;
    let status = test_in(process, lanes, |lane, core| {
        requests.lock().find(handle).map(|entry| entry.request.peek(lane, core))
    })?;
    if status.is_none() {
        process.lane(lanes.first()).pause();
    }
    Ok(status)
}

/// The statuses of those requests that have ended, leaving them as they are, by their place in the
/// list.
///
/// # Errors
/// As [`wait`].
pub fn peek_all(handles: &[Cell<Handle>]) -> Result<Vec<Peeked>> {
    let process = process::current()?;
    let lanes = check_all(handles)?.lanes;
    let mut all = vec![Peeked::Inactive; handles.len()];
    test_in(process, lanes, |lane, core| {
        each_active(handles, (lane, lanes), |requests, index| {
            let request = &requests.find(handles[index].get())?.request;
            if !matches!(all[index], Peeked::Ended(_)) {
                all[index] = request.peek(lane, core).map_or(Peeked::Active, Peeked::Ended);
            }
            Ok(true)
        })?;
        Ok(None::<()>)
    })?;
    if !all.iter().any(|one| matches!(one, Peeked::Ended(_))) {
        process.lane(lanes.first()).pause();
    }
    Ok(all)
}

/// What [`peek_all`] sees of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// Null, or persistent and not started.
    Inactive,
    /// Under way.
    Active,
    /// Over.
    Ended(Status),
}

/// Waits until all requests have ended, in whatever order, and reports each. Null requests have ended
/// with nothing to tell; the handles of requests that are gone become null.
///
/// # Errors
/// As [`wait`], before anything is waited for.
pub fn wait_all(handles: &[Cell<Handle>], mut report: impl FnMut(usize, Ended)) -> Result<()> {
    let process = process::current()?;
    let lanes = check_all(handles)?.lanes;
    let Some(lane) = lanes.only() else {
        return wait_all_in_several(process, lanes, handles, &mut report);
    };
    let mut open = handles;
    let end_all = |core: &mut Core| end_all(&mut open, (lane, core), &mut report).transpose();
    process.lane(lane).wait(end_all)
}

#[cold]
fn wait_all_in_several(
    process: &Process,
    lanes: Lanes,
    handles: &[Cell<Handle>],
    report: &mut impl FnMut(usize, Ended),
) -> Result<()> {
    let mut left = report_inactive(handles, report)?;
    wait_in(process, lanes, |lane, core| {
        let ended = end_some(handles, (lane, lanes), core, usize::MAX, report);
        let is_over = |ended| {
            left -= ended;
            (left == 0).then_some(())
        };
        ended.map(is_over).transpose()
    })
}

/// Whether all requests have ended; only then are they reported, as by [`wait_all`].
///
/// # Errors
/// As [`wait`].
pub fn test_all(handles: &[Cell<Handle>], mut report: impl FnMut(usize, Ended)) -> Result<bool> {
    let process = process::current()?;
    let lanes = check_all(handles)?.lanes;
    let Some(lane) = lanes.only() else {
        return test_all_in_several(process, lanes, handles, &mut report);
    };
    let all_done = process.lane(lane).test(|core| {
        for handle in handles.iter().map(Cell::get).filter(|handle| *handle != NULL) {
            let mut requests = REQUESTS.of(lane).lock();
            if requests.find(handle)?.request.peek(lane, core).is_none() {
                return Ok(false);
            }
        }
        let mut open = handles;
        end_all(&mut open, (lane, core), &mut report).map(|end| end.is_some())
    })?;
    if !all_done {
        process.lane(lanes.first()).pause();
    }
    Ok(all_done)
}

#[cold]
fn test_all_in_several(
    process: &Process,
    lanes: Lanes,
    handles: &[Cell<Handle>],
    report: &mut impl FnMut(usize, Ended),
) -> Result<bool> {
    if peek_all(handles)?.contains(&Peeked::Active) {
        return Ok(false);
    }
    report_inactive(handles, report)?;
    test_in(process, lanes, |lane, core| {
        end_some(handles, (lane, lanes), core, usize::MAX, report)?;
        Ok(None::<()>)
    })?;
    Ok(true)
}

/// Ends requests from the last on, until all have ended or one has not; `open` are those before it. All are of one lane.
#[inline]
fn end_all(
    open: &mut &[Cell<Handle>],
    (lane, core): (Lane, &mut Core),
    report: &mut impl FnMut(usize, Ended),
) -> Result<Option<()>> {
    let mut requests = REQUESTS.of(lane).lock();
    while let Some((handle, before)) = open.split_last() {
        let ended = if handle.get() == NULL {
            Ended::of(Status::EMPTY)
        } else {
            let ended = end(&mut requests, (lane, core), handle.get())?;
            let Some(ended) = ended else { return Ok(None) };
            if ended.freed {
                handle.set(NULL);
            }
            ended
        };
        report(before.len(), ended);
        *open = before;
    }
    Ok(Some(()))
}

/// Reports the end of those that are null or not started; how many others there are.
#[cold]
fn report_inactive(
    handles: &[Cell<Handle>],
    report: &mut impl FnMut(usize, Ended),
) -> Result<usize> {
    let mut active = 0;
    for (index, handle) in handles.iter().map(Cell::get).enumerate() {
        if handle != NULL && REQUESTS.with(handle).lock().find(handle)?.request.is_active() {
            active += 1;
        } else {
            report(index, Ended { freed: false, ..Ended::of(Status::EMPTY) });
        }
    }
    Ok(active)
}

/// Ends and reports active requests that have ended as far as the core of one of the `lanes` tells, at most `most`; how many.
#[inline]
fn end_some(
    handles: &[Cell<Handle>],
    (lane, lanes): (Lane, Lanes),
    core: &mut Core,
    most: usize,
    report: &mut impl FnMut(usize, Ended),
) -> Result<usize> {
    let mut found = 0;
    each_active(handles, (lane, lanes), |requests, index| {
        let handle = &handles[index];
        if let Some(ended) = end(requests, (lane, core), handle.get())? {
            if ended.freed {
                handle.set(NULL);
            }
            report(index, ended);
            found += 1;
        }
        Ok(found < most)
    })?;
    Ok(found)
}

/// Waits until at least one active request has ended and reports those that have, at most `most`;
/// handles become null as by [`wait_all`]. False when none is active.
///
/// # Errors
/// As [`wait`].
pub fn wait_some(
    handles: &[Cell<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(handles, most, true, report)
}

/// As [`wait_some`], without waiting. The answer is whether any is active; none may be reported.
///
/// # Errors
/// As [`wait`].
pub fn test_some(
    handles: &[Cell<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(handles, most, false, report)
}

fn some(
    handles: &[Cell<Handle>],
    most: usize,
    waits: bool,
    mut report: impl FnMut(usize, Ended),
) -> Result<bool> {
    let process = process::current()?;
    let Checked { is_active, lanes } = check_all(handles)?;
    if !is_active {
        return Ok(false);
    }
    let look = |lane, core: &mut Core| {
        let found = end_some(handles, (lane, lanes), core, most, &mut report)?;
        if found == 0 {
            core.await_any(|| ends(handles, (lane, lanes)));
        }
        Ok((found > 0).then_some(()))
    };
    let found = match waits {
        true => Some(wait_in(process, lanes, transposed(look))?),
        false => test_in(process, lanes, look)?,
    };
    if found.is_none() {
        process.lane(lanes.first()).pause();
    }
    Ok(true)
}

/// An answer that may be an error, as a wait takes it.
fn transposed<T>(
    mut look: impl FnMut(Lane, &mut Core) -> Result<Option<T>>,
) -> impl FnMut(Lane, &mut Core) -> Option<Result<T>> {
    move |lane, core| look(lane, core).transpose()
}

/// The operations of a lane whose ends end requests; none where something else does as well.
fn ends(handles: &[Cell<Handle>], of: (Lane, Lanes)) -> Option<Vec<OpId>> {
    let (mut ops, mut are_all) = (Vec::new(), true);
    let listed = each_active(handles, of, |requests, index| {
        let operations = requests.find(handles[index].get())?.request.operations();
        are_all &= !operations.is_empty();
        ops.extend(operations.iter().map(|operation| operation.op));
        Ok(are_all)
    });
    (listed.is_ok() && are_all).then_some(ops)
}

/// Calls `then` for the active requests that a lane's core can tell of, of those in `lanes`, with their table and their places
/// in the list, until it says no.
#[inline]
fn each_active(
    handles: &[Cell<Handle>],
    (lane, lanes): (Lane, Lanes),
    mut then: impl FnMut(&mut Objects<Entry>, usize) -> Result<bool>,
) -> Result<()> {
    let has_others = lane != Lane::FIRST && lanes.only().is_none();
    for table in [Some(lane), has_others.then_some(Lane::FIRST)].into_iter().flatten() {
        let mut requests = REQUESTS.of(table).lock();
        for (index, handle) in handles.iter().map(Cell::get).enumerate() {
            if handle == NULL || REQUESTS.lane(handle) != table {
                continue;
            }
            let request = &requests.find(handle)?.request;
            let is_asked = request.is_active() && (table == lane || request.is_of_all_lanes());
            if is_asked && !then(&mut requests, index)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Asks each of several lanes of a process once, until one answers.
#[inline]
fn test_in<T>(
    process: &Process,
    lanes: Lanes,
    mut ask: impl FnMut(Lane, &mut Core) -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(lane) = lanes.only() {
        return process.lane(lane).test(|core| ask(lane, core));
    }
    for lane in lanes.iter() {
        let answer = process.lane(lane).test(|core| ask(lane, core))?;
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// The lanes that can tell of the end of a request.
#[inline]
fn lanes_of(process: &Process, handle: Handle) -> Result<Lanes> {
    let lane = REQUESTS.lane(handle);
    if process.lanes() > 1
        && lane == Lane::FIRST
        && REQUESTS.of(lane).lock().find(handle)?.request.is_of_all_lanes()
    {
        return Ok(Lanes::all(process.lanes()));
    }
    Ok(Lanes::NONE.with(lane))
}

/// Cancels a receive that no message has met; sends go on (MPI-5.0 §3.8.4).
///
/// # Errors
/// As [`wait`], and for a collective.
pub fn cancel(handle: Handle) -> Result<()> {
    let operations = {
        let mut requests = REQUESTS.with(handle).lock();
        let request = &requests.find(handle)?.request;
        if request.is_begun_collective() {
            return Err(begun_collective("cancelled"));
        }
        request.operations()
    };
    for operation in operations {
        let progress = process::current()?.lane(operation.lane);
        progress.submit(|core| core.engine.submit_cancel(operation.op));
    }
    Ok(())
}

/// Forgets a request; what it began completes by itself.
///
/// # Errors
/// As [`wait`], and for a collective under way.
pub fn free(handle: Handle) -> Result<()> {
    let removed = {
        let mut requests = REQUESTS.with(handle).lock();
        if requests.find(handle)?.request.is_begun_collective() {
            return Err(begun_collective("freed"));
        }
        requests.remove(handle)?
    };
    for operation in removed.request.operations() {
        let progress = process::current()?.lane(operation.lane);
        progress.submit(|core| core.engine.release(operation.op));
    }
    Ok(())
}

#[cold]
fn begun_collective(what: &str) -> Error {
    let message = format!("a collective that has begun cannot be {what}; wait for it");
    Error::new(ErrorClass::Request, message)
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    REQUESTS.with(Handle(u64::from(value as u32))).from_int(value)
}

/// The process, which has no requests yet, has so many lanes: a power of two.
pub(crate) fn spread(lanes: usize) {
    REQUESTS.others.store(lanes - 1, Ordering::Relaxed);
    for (number, part) in REQUESTS.parts.iter().take(lanes).enumerate() {
        part.table.be_part(number, lanes);
    }
}

/// The end of the request behind a handle, once, if it is there; with it the request is gone, unless it
/// can be started again.
#[inline(always)]
fn end(
    requests: &mut Objects<Entry>,
    (lane, core): (Lane, &mut Core),
    handle: Handle,
) -> Result<Option<Ended>> {
    let is_gone = |end: &Option<Ended>| end.as_ref().is_some_and(|ended| ended.freed);
    requests.ask(handle, |entry| entry.request.poll(lane, core), is_gone)
}

/// What is known of requests in a list.
struct Checked {
    /// Whether any is active.
    is_active: bool,
    /// The lanes that can tell of their ends; none of them means the first.
    lanes: Lanes,
}

/// Checks that all handles are null or live, and none is listed twice: a request can end only once.
#[inline(always)]
fn check_all(handles: &[Cell<Handle>]) -> Result<Checked> {
    if REQUESTS.count() > 1 {
        return check_in_several(handles);
    }
    let mut is_active = false;
    let show = |request: &Request| is_active = is_active || request.is_active();
    check_in(Lane::FIRST, handles, |_| true, show)?;
    Ok(Checked { is_active, lanes: Lanes::NONE })
}

#[cold]
fn check_in_several(handles: &[Cell<Handle>]) -> Result<Checked> {
    let live = handles.iter().map(Cell::get).filter(|handle| *handle != NULL);
    let tables = live.fold(Lanes::NONE, |lanes, handle| lanes.with(REQUESTS.lane(handle)));
    let (mut is_active, mut is_of_all) = (false, false);
    for table in tables.iter() {
        let is_there = |handle| REQUESTS.lane(handle) == table;
        check_in(table, handles, is_there, |request| {
            is_active |= request.is_active();
            is_of_all |= request.is_of_all_lanes();
        })?;
    }
    let lanes = if is_of_all { Lanes::all(REQUESTS.count()) } else { tables };
    Ok(Checked { is_active, lanes })
}

/// Checks those of a table, and shows them.
#[inline(always)]
fn check_in(
    table: Lane,
    handles: &[Cell<Handle>],
    is_there: impl Fn(Handle) -> bool,
    mut show: impl FnMut(&Request),
) -> Result<()> {
    let Part { table, calls } = &REQUESTS.parts[table.number()];
    let mut requests = table.lock();
    let call = calls.load(Ordering::Relaxed) + 1;
    calls.store(call, Ordering::Relaxed);
    for (index, handle) in handles.iter().enumerate() {
        if handle.get() == NULL || !is_there(handle.get()) {
            continue;
        }
        let listed = requests.find(handle.get()).map_err(|error| error.about(entry(index)))?;
        if listed.listed == call {
            return Err(listed_twice(handles, index));
        }
        listed.listed = call;
        show(&listed.request);
    }
    Ok(())
}

#[cold]
fn listed_twice(handles: &[Cell<Handle>], index: usize) -> Error {
    let first = handles.iter().position(|handle| handle == &handles[index]).unwrap_or(index);
    Error::new(ErrorClass::Request, format!("{} is {} again", entry(index), entry(first)))
}

fn entry(index: usize) -> String {
    format!("array_of_requests[{index}]")
}

/// A request in the table.
#[derive(Debug)]
struct Entry {
    request: Request,
    /// The last call that listed it among others.
    listed: u64,
}

/// `MPI_REQUEST_NULL`.
pub const NULL: Handle = Handle(0x180);

/// The requests of a process, in a table for each lane; the lowest bits of their numbers say in which.
struct Requests {
    parts: [Part; LANES_MAX],
    /// How many lanes there are besides the first.
    others: AtomicUsize,
}

/// Those of a lane, on cache lines of their own.
#[repr(align(128))]
struct Part {
    table: Table<Entry>,
    /// How many calls have listed some; guarded by the table's lock.
    calls: AtomicU64,
}

impl Requests {
    /// How many lanes there are.
    fn count(&self) -> usize {
        self.others.load(Ordering::Relaxed) + 1
    }

    /// The lane of a request, by its handle.
    #[inline]
    fn lane(&self, handle: Handle) -> Lane {
        Lane::numbered(handle.index() & self.others.load(Ordering::Relaxed))
    }

    #[inline]
    fn of(&self, lane: Lane) -> &Table<Entry> {
        &self.parts[lane.number()].table
    }

    /// Those that a request is among.
    #[inline]
    fn with(&self, handle: Handle) -> &Table<Entry> {
        self.of(self.lane(handle))
    }
}

/// Locked after the core.
static REQUESTS: Requests = Requests {
    parts: [const {
        let table = Table::new(Kind::Request, ErrorClass::Request);
        Part { table, calls: AtomicU64::new(0) }
    }; LANES_MAX],
    others: AtomicUsize::new(0),
};
