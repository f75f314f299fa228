//! Requests: operations that a call began and another completes (MPI-5.0 §3.7, §3.9).

use std::sync::{Arc, Mutex, MutexGuard};

use engine::{Completion, OpId, Outcome};
use progress::Core;

use crate::buffer::Flush;
use crate::point_to_point::{self as p2p, Receive, Send};
use crate::process;
use crate::table::{Handle, Kind, Table};
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
    fn of(status: Status) -> Self {
        Self { status, error: None, freed: true }
    }
}

/// An operation under way, or ready to be started.
#[derive(Clone, Debug)]
pub enum Request {
    /// Complete from the beginning.
    Done(Status),
    /// Under way in the engine.
    Operation(Operation),
    /// A receive and a send that end as one.
    Exchange(Box<[Request; 2]>),
    /// Done when the messages in a buffer have left.
    Flush(Flush),
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
}

/// A persistent request.
#[derive(Debug)]
pub struct Persistent {
    template: Template,
    active: Mutex<Option<Active>>,
}

/// What a started persistent request is doing.
#[derive(Clone, Copy, Debug)]
enum Active {
    Done(Status),
    Operation(Operation),
}

impl Request {
    /// Gives the request a handle.
    ///
    /// # Errors
    /// When no more requests fit.
    pub fn register(self) -> Result<Handle> {
        REQUESTS.insert(self)
    }

    /// A request that does nothing until started.
    pub fn persistent(template: Template) -> Self {
        Self::Persistent(Arc::new(Persistent { template, active: Mutex::new(None) }))
    }

    /// The end of the request, once, if it is there.
    fn poll(&self, core: &mut Core) -> Option<Ended> {
        match self {
            Self::Done(status) => Some(Ended::of(*status)),
            Self::Operation(operation) => operation.poll(core, true),
            Self::Exchange(parts) => {
                let [receive, send] = &**parts;
                receive.peek(core).and_then(|_| send.peek(core))?;
                let (received, sent) = (receive.poll(core)?, send.poll(core)?);
                Some(Ended { error: received.error.or(sent.error), ..received })
            }
            Self::Flush(flush) => flush.is_done(core).then_some(Ended::of(Status::EMPTY)),
            Self::Persistent(persistent) => {
                let mut active = persistent.active();
                let ended = match *active {
                    None => Ended { status: Status::EMPTY, error: None, freed: false },
                    Some(Active::Done(status)) => Ended { status, error: None, freed: false },
                    Some(Active::Operation(operation)) => operation.poll(core, false)?,
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
            Self::Persistent(persistent) => match *persistent.active() {
                None => Some(Status::EMPTY),
                Some(Active::Done(status)) => Some(status),
                Some(Active::Operation(operation)) => operation.peek(core),
            },
        }
    }

    /// Whether the request counts in calls that wait for any of several.
    fn is_active(&self) -> bool {
        match self {
            Self::Done(_) | Self::Operation(_) | Self::Exchange(_) | Self::Flush(_) => true,
            Self::Persistent(persistent) => persistent.active().is_some(),
        }
    }

    /// The engine's operations behind the request.
    fn operations(&self) -> Vec<Operation> {
        match self {
            Self::Done(_) | Self::Flush(_) => Vec::new(),
            Self::Operation(operation) => vec![*operation],
            Self::Exchange(parts) => parts.iter().flat_map(Self::operations).collect(),
            Self::Persistent(persistent) => match *persistent.active() {
                Some(Active::Operation(operation)) => vec![operation],
                Some(Active::Done(_)) | None => Vec::new(),
            },
        }
    }
}

impl Operation {
    fn poll(&self, core: &mut Core, freed: bool) -> Option<Ended> {
        let completion = core.engine.take(self.op)?;
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
        let Completion { source, tag, bytes, outcome } = completion;
        let status = if self.receives {
            Status { source: Source::Rank(source), tag: Some(tag), bytes, cancelled: false }
        } else {
            Status::EMPTY
        };
        match outcome {
            Outcome::Ok => (status, None),
            Outcome::Cancelled => (Status { cancelled: true, ..Status::EMPTY }, None),
            Outcome::Truncated { message_bytes } => {
                let message = format!(
                    "a message of {message_bytes} bytes from rank {source} with tag {tag} met a receive of {bytes} bytes"
                );
                (status, Some(Error::new(ErrorClass::Truncate, message).on(self.comm)))
            }
            Outcome::PeerFailed => (status, Some(gone(core).on(self.comm))),
        }
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
            Template::Send(send) => p2p::begin_send(send)?,
            Template::Receive(receive) => p2p::begin_receive(receive)?,
        };
        *active = match request {
            Request::Done(status) => Some(Active::Done(status)),
            Request::Operation(operation) => Some(Active::Operation(operation)),
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
pub fn start_all(handles: &[Handle]) -> Result<()> {
    let mut all = Vec::with_capacity(handles.len());
    check_distinct(handles.iter().copied().enumerate())?;
    for (index, &handle) in handles.iter().enumerate() {
        all.push(startable(handle).map_err(|error| error.about(entry(index)))?);
    }
    all.iter().try_for_each(|persistent| persistent.start())
}

fn startable(handle: Handle) -> Result<Arc<Persistent>> {
    match REQUESTS.find(handle)? {
        Request::Persistent(persistent) if persistent.active().is_some() => Err(already_active()),
        Request::Persistent(persistent) => Ok(persistent),
        Request::Done(_) | Request::Operation(_) | Request::Exchange(_) | Request::Flush(_) => {
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
    let request = REQUESTS.find(handle)?;
    let ended = process::current()?.progress().wait(|core| request.poll(core));
    settle(handle, &ended)?;
    Ok(ended)
}

/// Asks for the end of one request.
///
/// # Errors
/// As [`wait`].
pub fn test(handle: Handle) -> Result<Option<Ended>> {
    let request = REQUESTS.find(handle)?;
    let progress = process::current()?.progress();
    let Some(ended) = progress.test(|core| request.poll(core)) else {
        progress.pause();
        return Ok(None);
    };
    settle(handle, &ended)?;
    Ok(Some(ended))
}

/// The status of a request that has ended, leaving it as it is (`MPI_Request_get_status`).
///
/// # Errors
/// As [`wait`].
pub fn peek(handle: Handle) -> Result<Option<Status>> {
    let request = REQUESTS.find(handle)?;
    let progress = process::current()?.progress();
    let status = progress.test(|core| request.peek(core));
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
pub fn peek_all(handles: &[Option<Handle>]) -> Result<Vec<Peeked>> {
    let requests = find_all(handles)?;
    let progress = process::current()?.progress();
    let mut all = vec![Peeked::Inactive; handles.len()];
    progress.test(|core| {
        for (index, _, request) in &requests {
            if request.is_active() {
                all[*index] = request.peek(core).map_or(Peeked::Active, Peeked::Ended);
            }
        }
    });
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

/// Waits until all requests have ended, in whatever order, and reports each; `None` among the handles
/// are null requests.
///
/// # Errors
/// As [`wait`], before anything is waited for.
pub fn wait_all(handles: &[Option<Handle>], mut report: impl FnMut(usize, Ended)) -> Result<()> {
    let requests = find_all(handles)?;
    let mut open: Vec<usize> = (0..requests.len()).rev().collect();
    let progress = process::current()?.progress();
    let mut ended = Vec::with_capacity(requests.len());
    progress.wait(|core| {
        while let Some(&last) = open.last() {
            let (index, _, request) = &requests[last];
            ended.push((*index, last, request.poll(core)?));
            open.pop();
        }
        Some(())
    });
    for (index, at, ended) in ended {
        settle(requests[at].1, &ended)?;
        report(index, ended);
    }
    Ok(())
}

/// Whether all requests have ended; only then are they reported.
///
/// # Errors
/// As [`wait`].
pub fn test_all(handles: &[Option<Handle>], report: impl FnMut(usize, Ended)) -> Result<bool> {
    let requests = find_all(handles)?;
    let progress = process::current()?.progress();
    let all_done =
        progress.test(|core| requests.iter().all(|(_, _, request)| request.peek(core).is_some()));
    if !all_done {
        progress.pause();
        return Ok(false);
    }
    wait_all(handles, report)?;
    Ok(true)
}

/// Waits until at least one active request has ended and reports those that have, at most `most`.
/// False when none is active.
///
/// # Errors
/// As [`wait`].
pub fn wait_some(
    handles: &[Option<Handle>],
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
    handles: &[Option<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(handles, most, false, report)
}

fn some(
    handles: &[Option<Handle>],
    most: usize,
    waits: bool,
    mut report: impl FnMut(usize, Ended),
) -> Result<bool> {
    let mut requests = find_all(handles)?;
    requests.retain(|(_, _, request)| request.is_active());
    if requests.is_empty() {
        return Ok(false);
    }
    let progress = process::current()?.progress();
    let look = |core: &mut Core| {
        let found = requests.iter().filter_map(|(index, handle, request)| {
            request.poll(core).map(|ended| (*index, *handle, ended))
        });
        let found: Vec<_> = found.take(most).collect();
        (!found.is_empty()).then_some(found)
    };
    let found = if waits { Some(progress.wait(look)) } else { progress.test(look) };
    if found.is_none() {
        progress.pause();
    }
    for (index, handle, ended) in found.unwrap_or_default() {
        settle(handle, &ended)?;
        report(index, ended);
    }
    Ok(true)
}

/// Cancels a receive that no message has met; sends go on (MPI-5.0 §3.8.4).
///
/// # Errors
/// As [`wait`].
pub fn cancel(handle: Handle) -> Result<()> {
    for operation in REQUESTS.find(handle)?.operations() {
        process::current()?.progress().submit(|core| core.engine.submit_cancel(operation.op));
    }
    Ok(())
}

/// Forgets a request; what it began completes by itself.
///
/// # Errors
/// As [`wait`].
pub fn free(handle: Handle) -> Result<()> {
    for operation in REQUESTS.remove(handle)?.operations() {
        process::current()?.progress().submit(|core| core.engine.release(operation.op));
    }
    Ok(())
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    REQUESTS.from_int(value)
}

fn settle(handle: Handle, ended: &Ended) -> Result<()> {
    if ended.freed {
        REQUESTS.remove(handle)?;
    }
    Ok(())
}

fn find_all(handles: &[Option<Handle>]) -> Result<Vec<(usize, Handle, Request)>> {
    let there = handles.iter().enumerate().filter_map(|(index, handle)| Some((index, (*handle)?)));
    check_distinct(there.clone())?;
    there
        .map(|(index, handle)| match REQUESTS.find(handle) {
            Ok(request) => Ok((index, handle, request)),
            Err(error) => Err(error.about(entry(index))),
        })
        .collect()
}

/// A request can end only once: one that is listed twice would be waited for without end.
fn check_distinct(handles: impl Iterator<Item = (usize, Handle)> + Clone) -> Result<()> {
    let values = handles.clone().map(|(_, handle)| handle.0 as u32);
    // Requests begun one after the other have rising or falling handles.
    if values.clone().is_sorted_by(|a, b| a < b) || values.is_sorted_by(|a, b| a > b) {
        return Ok(());
    }
    let mut sorted: Vec<(u64, usize)> = handles.map(|(index, handle)| (handle.0, index)).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            let message = format!("{} is {} again", entry(pair[1].1), entry(pair[0].1));
            Err(Error::new(ErrorClass::Request, message))
        }
    }
}

fn entry(index: usize) -> String {
    format!("array_of_requests[{index}]")
}

static REQUESTS: Table<Request> = Table::new(Kind::Request, ErrorClass::Request);
