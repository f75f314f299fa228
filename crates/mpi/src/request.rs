//! Requests: operations that a call began and another completes (MPI-5.0 §3.7, §3.9).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{Completion, OpId, Outcome};
use progress::Core;

use crate::buffer::Flush;
use crate::collective::{Collective, Pending};
use crate::point_to_point::{Receive, Send};
use crate::process;
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
    /// Gives the request a handle.
    ///
    /// # Errors
    /// When no more requests fit.
    #[inline(always)]
    pub fn register(self) -> Result<Handle> {
        REQUESTS.insert(Entry { request: self, listed: 0 })
    }

    /// A request that does nothing until started.
    pub fn persistent(template: Template) -> Self {
        Self::Persistent(Arc::new(Persistent { template, active: Mutex::new(None) }))
    }

    /// The end of the request, once, if it is there.
    #[inline(always)]
    fn poll(&self, core: &mut Core) -> Option<Ended> {
        match self {
            Self::Done(status) => Some(Ended::of(*status)),
            Self::Operation(operation) => operation.poll(core, true),
            Self::Exchange(_) | Self::Flush(_) | Self::Collective(_) | Self::Persistent(_) => {
                self.poll_seldom(core)
            }
        }
    }

    fn poll_seldom(&self, core: &mut Core) -> Option<Ended> {
        match self {
            Self::Done(_) | Self::Operation(_) => self.poll(core),
            Self::Exchange(parts) => {
                let [receive, send] = &**parts;
                receive.peek(core).and_then(|_| send.peek(core))?;
                let (received, sent) = (receive.poll(core)?, send.poll(core)?);
                Some(Ended { error: received.error.or(sent.error), ..received })
            }
            Self::Flush(flush) => flush.is_done(core).then_some(Ended::of(Status::EMPTY)),
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
    fn peek(&self, core: &mut Core) -> Option<Status> {
        match self {
            Self::Done(status) => Some(*status),
            Self::Operation(operation) => operation.peek(core),
            Self::Exchange(parts) => {
                let status = parts[0].peek(core)?;
                parts[1].peek(core).map(|_| status)
            }
            Self::Flush(flush) => flush.is_done(core).then_some(Status::EMPTY),
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
    check_all(&mut REQUESTS.lock(), handles)?;
    let mut all = Vec::with_capacity(handles.len());
    for (index, handle) in handles.iter().enumerate() {
        all.push(startable(handle.get()).map_err(|error| error.about(entry(index)))?);
    }
    all.iter().try_for_each(|persistent| persistent.start())
}

fn startable(handle: Handle) -> Result<Arc<Persistent>> {
    match &REQUESTS.lock().find(handle)?.request {
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
    process::current()?.progress().wait(|core| end(&mut REQUESTS.lock(), core, handle).transpose())
}

/// Asks for the end of one request.
///
/// # Errors
/// As [`wait`].
pub fn test(handle: Handle) -> Result<Option<Ended>> {
    let progress = process::current()?.progress();
    let ended = progress.test(|core| end(&mut REQUESTS.lock(), core, handle))?;
    if ended.is_none() {
        progress.pause();
    }
    Ok(ended)
}

/// The status of a request that has ended, leaving it as it is (`MPI_Request_get_status`).
///
/// # Errors
/// As [`wait`].
pub fn peek(handle: Handle) -> Result<Option<Status>> {
    let progress = process::current()?.progress();
    let status =
        progress.test(|core| REQUESTS.lock().find(handle).map(|entry| entry.request.peek(core)))?;
    if status.is_none() {
        progress.pause();
    }
    Ok(status)
}

/// The statuses of those requests that have ended, leaving them as they are, by their place in the
/// list.
///
/// # Errors
/// As [`wait`].
pub fn peek_all(handles: &[Cell<Handle>]) -> Result<Vec<Peeked>> {
    check_all(&mut REQUESTS.lock(), handles)?;
    let progress = process::current()?.progress();
    let all: Vec<_> = progress.test(|core| {
        let mut requests = REQUESTS.lock();
        let look = |handle: &Cell<Handle>| {
            if handle.get() == NULL {
                return Ok(Peeked::Inactive);
            }
            let request = &requests.find(handle.get())?.request;
            match request.is_active() {
                true => Ok(request.peek(core).map_or(Peeked::Active, Peeked::Ended)),
                false => Ok(Peeked::Inactive),
            }
        };
        handles.iter().map(look).collect::<Result<_>>()
    })?;
    if !all.iter().any(|one| matches!(one, Peeked::Ended(_))) {
        progress.pause();
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
    check_all(&mut REQUESTS.lock(), handles)?;
    let mut open = handles;
    process::current()?.progress().wait(|core| end_all(&mut open, core, &mut report).transpose())
}

/// Whether all requests have ended; only then are they reported, as by [`wait_all`].
///
/// # Errors
/// As [`wait`].
pub fn test_all(handles: &[Cell<Handle>], mut report: impl FnMut(usize, Ended)) -> Result<bool> {
    check_all(&mut REQUESTS.lock(), handles)?;
    let progress = process::current()?.progress();
    let all_done = progress.test(|core| {
        for handle in handles.iter().map(Cell::get).filter(|handle| *handle != NULL) {
            if REQUESTS.lock().find(handle)?.request.peek(core).is_none() {
                return Ok(false);
            }
        }
        let mut open = handles;
        end_all(&mut open, core, &mut report).map(|end| end.is_some())
    })?;
    if !all_done {
        progress.pause();
    }
    Ok(all_done)
}

/// Ends requests from the last on, until all have ended or one has not; `open` are those before it.
#[inline]
fn end_all(
    open: &mut &[Cell<Handle>],
    core: &mut Core,
    report: &mut impl FnMut(usize, Ended),
) -> Result<Option<()>> {
    let mut requests = REQUESTS.lock();
    while let Some((handle, before)) = open.split_last() {
        let ended = if handle.get() == NULL {
            Ended::of(Status::EMPTY)
        } else {
            let Some(ended) = end(&mut requests, core, handle.get())? else { return Ok(None) };
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
    if !check_all(&mut REQUESTS.lock(), handles)? {
        return Ok(false);
    }
    let progress = process::current()?.progress();
    let mut look = |core: &mut Core| {
        let mut requests = REQUESTS.lock();
        let mut found = 0;
        for (index, handle) in handles.iter().enumerate() {
            if handle.get() == NULL || !requests.find(handle.get())?.request.is_active() {
                continue;
            }
            let Some(ended) = end(&mut requests, core, handle.get())? else { continue };
            if ended.freed {
                handle.set(NULL);
            }
            report(index, ended);
            found += 1;
            if found == most {
                break;
            }
        }
        if found == 0 {
            core.await_any(|| ends(&mut requests, handles));
        }
        Ok((found > 0).then_some(()))
    };
    let found = match waits {
        true => Some(progress.wait(|core| look(core).transpose())?),
        false => progress.test(look)?,
    };
    if found.is_none() {
        progress.pause();
    }
    Ok(true)
}

/// The operations whose ends end requests; none where something else does as well.
fn ends(requests: &mut Objects<Entry>, handles: &[Cell<Handle>]) -> Option<Vec<OpId>> {
    let mut ops = Vec::new();
    for handle in handles.iter().map(Cell::get).filter(|&handle| handle != NULL) {
        let request = &requests.find(handle).ok()?.request;
        let operations = request.operations();
        if operations.is_empty() && request.is_active() {
            return None;
        }
        ops.extend(operations.iter().map(|operation| operation.op));
    }
    Some(ops)
}

/// Cancels a receive that no message has met; sends go on (MPI-5.0 §3.8.4).
///
/// # Errors
/// As [`wait`], and for a collective.
pub fn cancel(handle: Handle) -> Result<()> {
    let operations = {
        let mut requests = REQUESTS.lock();
        let request = &requests.find(handle)?.request;
        if request.is_begun_collective() {
            return Err(begun_collective("cancelled"));
        }
        request.operations()
    };
    for operation in operations {
        process::current()?.progress().submit(|core| core.engine.submit_cancel(operation.op));
    }
    Ok(())
}

/// Forgets a request; what it began completes by itself.
///
/// # Errors
/// As [`wait`], and for a collective under way.
pub fn free(handle: Handle) -> Result<()> {
    let removed = {
        let mut requests = REQUESTS.lock();
        if requests.find(handle)?.request.is_begun_collective() {
            return Err(begun_collective("freed"));
        }
        requests.remove(handle)?
    };
    for operation in removed.request.operations() {
        process::current()?.progress().submit(|core| core.engine.release(operation.op));
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
    REQUESTS.from_int(value)
}

/// The end of the request behind a handle, once, if it is there; with it the request is gone, unless it
/// can be started again.
#[inline(always)]
fn end(requests: &mut Objects<Entry>, core: &mut Core, handle: Handle) -> Result<Option<Ended>> {
    let is_gone = |end: &Option<Ended>| end.as_ref().is_some_and(|ended| ended.freed);
    requests.ask(handle, |entry| entry.request.poll(core), is_gone)
}

/// Checks that all handles are null or live, and none is listed twice: a request can end only once.
/// Whether any request is active.
fn check_all(requests: &mut Objects<Entry>, handles: &[Cell<Handle>]) -> Result<bool> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // Guarded by the table's lock.
    let call = CALLS.load(Ordering::Relaxed) + 1;
    CALLS.store(call, Ordering::Relaxed);
    let mut active = false;
    for (index, handle) in handles.iter().enumerate() {
        if handle.get() == NULL {
            continue;
        }
        let listed = requests.find(handle.get()).map_err(|error| error.about(entry(index)))?;
        if listed.listed == call {
            return Err(listed_twice(handles, index));
        }
        listed.listed = call;
        active = active || listed.request.is_active();
    }
    Ok(active)
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

/// Locked after the core.
static REQUESTS: Table<Entry> = Table::new(Kind::Request, ErrorClass::Request);
