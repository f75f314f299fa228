//! Requests: operations that one call starts and another completes (MPI-5.0 §3.7, §3.9).

mod completion;
pub mod generalized;
mod named;
pub mod partitions;
mod registered;
mod requests;
pub mod several;
mod watching;

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Completion, OpId, Outcome};
use handles::{Handle, Objects};
use lock::Lock;
use progress::{Progress, Worker};

use crate::buffer::Flush;
use crate::collective::{self, Collective, PendingCollective};
use crate::comm::Comm;
use crate::failures::{held_up, revoked};
use crate::file::pending::PendingTransfer;
use crate::generalized::GeneralizedRequest;
use crate::partitioned::{Arrival, PartitionedMessage};
use crate::point_to_point::{Receive, Send};
use crate::process::Process;
use crate::vci::Vci;
use crate::window::pending::PendingAccess;
use crate::{Error, ErrorClass, Result};

pub use completion::{Peeked, peek, peek_all, test, test_all, wait, wait_all};
pub use named::from_int;

use completion::{check_now, entry};
use named::{Named, unknown};
use requests::{REQUESTS, StoredRequest};

/// Status of a completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Rank of the sender, for receives.
    pub source: Source,
    /// Tag of the message, for receives.
    pub tag: Option<i32>,
    /// Bytes delivered.
    pub bytes: u64,
    /// True if the operation was cancelled.
    pub cancelled: bool,
}

/// Source of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A rank of the communicator.
    Rank(u32),
    /// `MPI_PROC_NULL`.
    ProcNull,
    /// No message.
    None,
    /// No message, because the request is null or not active.
    Inactive,
}

/// Functions of a layer above for the start and the end of a collective in the background. Dropped when the request can run
/// no more.
pub trait Follower: Debug + std::marker::Send + Sync {
    /// Called before each run of a persistent request.
    fn begin(&self);
    /// Called when a run has ended, before its request completes, with true after success.
    fn end(&self, is_ok: bool);
}

/// Gives a follower to a collective that has begun, or to a persistent one that has not. Nobody else may use the request
/// yet.
///
/// # Errors
/// `MPI_ERR_REQUEST` for another request.
pub fn follow_collective(
    process: &Process,
    handle: Handle,
    follower: Arc<dyn Follower>,
) -> Result<()> {
    let Named::Stored(vci) = Named::of(handle) else { return Err(unknown(handle)) };
    let mut requests = REQUESTS.of(vci).lock();
    let stored = requests.find(handle)?;
    if let Request::Persistent(persistent) = &stored.request
        && let Template::Collective(collective) = &persistent.template
    {
        let collective = Arc::clone(collective);
        let followed = Box::new(FollowedCollective { collective, follower });
        stored.request = Request::persistent(Template::Followed(followed));
        return Ok(());
    }
    let Request::Collective(first) = &stored.request else { return Err(unknown(handle)) };
    let first = first.clone();
    drop(requests);
    // The worker is locked before the table.
    let both = first.followed_by(process.vci(vci), Box::new(move |is_ok| follower.end(is_ok)));
    REQUESTS.of(vci).lock().find(handle)?.request = Request::Collective(both);
    Ok(())
}

/// Drops all requests in the table; their handles are stale.
pub(crate) fn clear() {
    REQUESTS.clear();
}

impl Status {
    /// The status of operations that concern no message (MPI-5.0 §3.7.3).
    pub const EMPTY: Self = Self { source: Source::None, tag: None, bytes: 0, cancelled: false };
    /// The status of a request that is null or not active: the empty status, with an error field (MPI-5.0 §3.7.3).
    pub const INACTIVE: Self = Self { source: Source::Inactive, ..Self::EMPTY };
    /// The status of a receive from `MPI_PROC_NULL`.
    pub const PROC_NULL: Self = Self { source: Source::ProcNull, ..Self::EMPTY };

    /// The status of a partitioned message.
    fn of(arrival: Arrival) -> Self {
        match arrival {
            Arrival::Sent => Self::EMPTY,
            Arrival::OfNobody => Self::PROC_NULL,
            Arrival::Message { source, tag, bytes } => {
                Self { source: Source::Rank(source), tag: Some(tag), bytes, cancelled: false }
            }
        }
    }
}

/// Result of a completed request.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Status for the caller.
    pub status: Status,
    /// Success or not.
    pub ending: Ending,
    /// True if the handle was freed; false for a persistent request.
    pub freed: bool,
}

/// Success or failure of a request.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Well.
    Success,
    /// With an error.
    Failed(Error),
    /// Whatever the program's functions say, which are due once no lock is held.
    Generalized(GeneralizedRequest),
}

impl Ending {
    /// The error, if there is one.
    pub fn error(self) -> Option<Error> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Success | Self::Generalized(_) => None,
        }
    }
}

impl From<Option<Error>> for Ending {
    #[inline(always)]
    fn from(error: Option<Error>) -> Self {
        error.map_or(Self::Success, Self::Failed)
    }
}

impl Ended {
    /// Success of a request that is not persistent.
    #[inline]
    fn of(status: Status) -> Self {
        Self { status, ending: Ending::Success, freed: true }
    }

    /// True if the request goes on in spite of an error.
    fn is_pending(&self) -> bool {
        let is_pending = |error: &Error| error.class == ErrorClass::ProcFailedPending;
        matches!(&self.ending, Ending::Failed(error) if is_pending(error))
    }

    /// Success or failure of a request that is not persistent.
    fn with(status: Status, error: Option<Error>) -> Self {
        Self { status, ending: error.into(), freed: true }
    }
}

/// An operation in flight, or one that can be started.
#[derive(Debug)]
pub enum Request {
    /// Complete when it was started.
    Done(Done),
    /// In flight in the engine.
    Operation(Operation),
    /// A receive and a send that complete together.
    Exchange(Box<[Request; 2]>),
    /// Complete when all messages in an attached buffer have been sent.
    Flush(Flush),
    /// A collective in the background.
    Collective(PendingCollective),
    /// An operation on a window.
    Access(Box<PendingAccess>),
    /// An operation on a file.
    Transfer(PendingTransfer),
    /// An operation of the program's own.
    Generalized(GeneralizedRequest),
    /// A persistent request.
    Persistent(Arc<Persistent>),
}

/// An operation that was complete when it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A send, even one to `MPI_PROC_NULL`.
    Sent,
    /// A receive from `MPI_PROC_NULL`.
    OfNobody,
}

impl Done {
    /// The status for the caller.
    #[inline]
    pub fn status(self) -> Status {
        match self {
            Self::Sent => Status::EMPTY,
            Self::OfNobody => Status::PROC_NULL,
        }
    }
}

/// An operation of the engine, and the communicator for its errors.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Identifier in the engine.
    pub op: OpId,
    /// True for a receive, whose status describes a message.
    pub receives: bool,
    /// VCI that carries it.
    pub vci: Vci,
    /// Communicator whose error handler gets its errors.
    pub comm: Handle,
}

/// Operation that a persistent request starts. Long variants are boxed: requests stay in the size classes that the
/// allocator serves soonest (120 bytes and less of glibc).
#[derive(Clone, Debug)]
pub enum Template {
    /// Sends.
    Send(Box<Send>),
    /// Receives.
    Receive(Box<Receive>),
    /// Takes part in a collective.
    Collective(Arc<Collective>),
    /// The same, for a layer above.
    Followed(Box<FollowedCollective>),
    /// Sends or receives by partitions.
    Partitioned(Arc<PartitionedMessage>),
}

/// A persistent collective with a follower.
#[derive(Clone, Debug)]
pub struct FollowedCollective {
    collective: Arc<Collective>,
    follower: Arc<dyn Follower>,
}

/// A persistent request.
#[derive(Debug)]
pub struct Persistent {
    template: Template,
    /// Locked after the worker, so nobody holds it while the operation is submitted.
    run: Lock<RunState>,
    /// True once it is registered in a queue of ends.
    is_registered: AtomicBool,
}

/// State of a persistent request.
#[derive(Debug)]
enum RunState {
    Inactive,
    /// A thread is in `MPI_Start`. Calls of other threads come before it, so they find the request inactive.
    Starting,
    Active(Active),
}

/// Operation in flight of a started persistent request.
#[derive(Debug)]
enum Active {
    Done(Done),
    Operation(Operation),
    Collective(PendingCollective),
    Partitioned(Arc<PartitionedMessage>),
}

impl Request {
    /// Gives the request a handle in the table of its VCI.
    ///
    /// # Errors
    /// The table of requests is full.
    #[inline(always)]
    pub fn register(self, vci: Vci) -> Result<Handle> {
        match self {
            Self::Done(done) => Ok(done.handle()),
            Self::Operation(operation) => operation.handle(),
            Self::Exchange(_)
            | Self::Flush(_)
            | Self::Collective(_)
            | Self::Access(_)
            | Self::Transfer(_)
            | Self::Generalized(_)
            | Self::Persistent(_) => {
                let stored = StoredRequest { request: self, is_listed: false, marks: None };
                Ok(REQUESTS.of(vci).insert(stored)?)
            }
        }
    }

    /// Makes a persistent request, inactive until started.
    pub fn persistent(template: Template) -> Self {
        let (run, is_registered) = (Lock::new(RunState::Inactive), AtomicBool::new(false));
        Self::Persistent(Arc::new(Persistent { template, run, is_registered }))
    }

    /// Takes the result of the request if it has completed, as far as this VCI's worker knows.
    fn poll(&self, vci: Vci, worker: &mut Worker) -> Option<Ended> {
        match self {
            Self::Done(done) => Some(Ended::of(done.status())),
            Self::Operation(operation) => operation.poll(worker, true),
            Self::Exchange(parts) => {
                let [receive, send] = &**parts;
                receive.peek(vci, worker).and_then(|_| send.peek(vci, worker))?;
                let (received, sent) = (receive.poll(vci, worker)?, send.poll(vci, worker)?);
                let error = received.ending.error().or(sent.ending.error());
                Some(Ended::with(received.status, error))
            }
            Self::Flush(flush) => flush.is_done(vci, worker).then_some(Ended::of(Status::EMPTY)),
            Self::Collective(pending) => {
                let error = pending.end()?;
                Some(Ended::with(Status::EMPTY, error))
            }
            Self::Access(pending) => {
                let error = pending.end(worker)?;
                Some(Ended::with(Status::EMPTY, error))
            }
            Self::Transfer(pending) => {
                let (bytes, error) = pending.end()?;
                Some(Ended::with(Status { bytes, ..Status::EMPTY }, error))
            }
            Self::Generalized(request) if request.is_freed() => {
                let error = Error::new(ErrorClass::Request, "the generalized request is freed");
                Some(Ended { freed: false, ..Ended::with(Status::EMPTY, Some(error)) })
            }
            Self::Generalized(request) => request.is_complete().then(|| {
                let ending = Ending::Generalized(request.clone());
                Ended { ending, ..Ended::of(Status::EMPTY) }
            }),
            Self::Persistent(persistent) => {
                let mut run = persistent.run.lock();
                let RunState::Active(active) = &*run else {
                    return Some(Ended { freed: false, ..Ended::of(Status::INACTIVE) });
                };
                let ended = match active {
                    Active::Done(done) => Ended { freed: false, ..Ended::of(done.status()) },
                    Active::Operation(operation) => {
                        let ended = operation.poll(worker, false)?;
                        if ended.is_pending() {
                            return Some(ended);
                        }
                        ended
                    }
                    Active::Collective(pending) => {
                        let error = pending.end()?;
                        Ended { freed: false, ..Ended::with(Status::EMPTY, error) }
                    }
                    Active::Partitioned(message) => {
                        let (arrival, error) = message.poll(worker)?;
                        message.end(worker);
                        Ended { freed: false, ..Ended::with(Status::of(arrival), error) }
                    }
                };
                *run = RunState::Inactive;
                Some(ended)
            }
        }
    }

    /// Returns the status if the request has completed, without taking the result.
    fn peek(&self, vci: Vci, worker: &mut Worker) -> Option<Status> {
        match self {
            Self::Done(done) => Some(done.status()),
            Self::Operation(operation) => operation.peek(worker),
            Self::Exchange(parts) => {
                let status = parts[0].peek(vci, worker)?;
                parts[1].peek(vci, worker).map(|_| status)
            }
            Self::Flush(flush) => flush.is_done(vci, worker).then_some(Status::EMPTY),
            Self::Collective(pending) => pending.has_ended().then_some(Status::EMPTY),
            Self::Access(pending) => pending.end(worker).map(|_| Status::EMPTY),
            Self::Transfer(pending) => {
                pending.end().map(|(bytes, _)| Status { bytes, ..Status::EMPTY })
            }
            Self::Generalized(request) => request.is_complete().then_some(Status::EMPTY),
            Self::Persistent(persistent) => match persistent.run.lock().active() {
                None => Some(Status::INACTIVE),
                Some(Active::Done(done)) => Some(done.status()),
                Some(Active::Operation(operation)) => operation.peek(worker),
                Some(Active::Collective(pending)) => pending.has_ended().then_some(Status::EMPTY),
                Some(Active::Partitioned(message)) => {
                    message.poll(worker).map(|(arrival, _)| Status::of(arrival))
                }
            },
        }
    }

    /// True if calls that wait for one of several requests wait for this one.
    fn is_active(&self) -> bool {
        match self {
            Self::Done(_)
            | Self::Operation(_)
            | Self::Exchange(_)
            | Self::Flush(_)
            | Self::Collective(_)
            | Self::Access(_)
            | Self::Transfer(_)
            | Self::Generalized(_) => true,
            Self::Persistent(persistent) => persistent.run.lock().active().is_some(),
        }
    }

    /// True if its completion depends on every VCI.
    fn is_of_all_vcis(&self) -> bool {
        matches!(self, Self::Flush(_))
    }

    /// The engine's operations of this request; empty if they do not belong to the request alone.
    fn operations(&self) -> Vec<Operation> {
        match self {
            Self::Done(_)
            | Self::Flush(_)
            | Self::Collective(_)
            | Self::Access(_)
            | Self::Transfer(_)
            | Self::Generalized(_) => Vec::new(),
            Self::Operation(operation) => vec![*operation],
            Self::Exchange(parts) => parts.iter().flat_map(Self::operations).collect(),
            Self::Persistent(persistent) => match persistent.run.lock().active() {
                Some(Active::Operation(operation)) => vec![*operation],
                Some(Active::Done(_) | Active::Collective(_) | Active::Partitioned(_)) | None => {
                    Vec::new()
                }
            },
        }
    }

    /// The engine's operations that a cancel concerns: of an exchange only the receive, whose status cannot tell of the
    /// send.
    fn cancellable(&self) -> Vec<Operation> {
        let mut operations = self.operations();
        if let Self::Exchange(_) = self {
            operations.retain(|operation| operation.receives);
        }
        operations
    }

    /// Names what can be neither cancelled nor freed while it is in flight. This is a collective (MPI-5.0 §6.12, §6.13),
    /// an operation on a window (MPI-5.0 §12.3.5), or one on a file, whose memory is in use.
    fn unstoppable(&self) -> Option<&'static str> {
        match self {
            Self::Collective(_) => Some(COLLECTIVE),
            Self::Access(_) => Some("operation on a window"),
            Self::Transfer(_) => Some("operation on a file"),
            Self::Done(_)
            | Self::Operation(_)
            | Self::Exchange(_)
            | Self::Flush(_)
            | Self::Generalized(_) => None,
            Self::Persistent(persistent) => match persistent.run.lock().active() {
                Some(Active::Collective(_)) => Some(COLLECTIVE),
                Some(Active::Partitioned(_)) => Some("partitioned message"),
                Some(Active::Done(_) | Active::Operation(_)) | None => None,
            },
        }
    }
}

impl Operation {
    /// Describes an operation on a communicator.
    #[inline]
    pub(crate) fn of(comm: &Comm, op: OpId, receives: bool) -> Self {
        Self { op, receives, vci: comm.vci(), comm: comm.handle() }
    }

    #[inline]
    fn poll(&self, worker: &mut Worker, freed: bool) -> Option<Ended> {
        let Some(completion) = worker.take_or_await(self.op) else { return self.held_up(worker) };
        let (status, error) = self.interpret(completion, worker);
        Some(Ended { status, ending: error.into(), freed })
    }

    /// Result of a receive from any source whose sender may have failed. It goes on.
    #[inline]
    fn held_up(&self, worker: &mut Worker) -> Option<Ended> {
        if worker.engine.may_be_held_up(self.op) { self.report_held_up(worker) } else { None }
    }

    #[cold]
    fn report_held_up(&self, worker: &mut Worker) -> Option<Ended> {
        let error = held_up(self.comm, worker)?.on(self.comm);
        Some(Ended { freed: false, ..Ended::with(Status::EMPTY, Some(error)) })
    }

    fn peek(&self, worker: &mut Worker) -> Option<Status> {
        match worker.engine.peek(self.op) {
            Some(completion) => Some(self.interpret(completion, worker).0),
            None => self.held_up(worker).map(|ended| ended.status),
        }
    }

    /// Translates a completion into status and error.
    #[inline]
    pub fn interpret(
        &self,
        completion: Completion,
        worker: &mut Worker,
    ) -> (Status, Option<Error>) {
        match completion.outcome {
            Outcome::Ok => (self.status(&completion), None),
            Outcome::Cancelled => (Status { cancelled: true, ..Status::EMPTY }, None),
            Outcome::Truncated { .. }
            | Outcome::PeerFailed
            | Outcome::Revoked
            | Outcome::Refused => {
                (self.status(&completion), Some(self.failure(completion, worker)))
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
    fn failure(&self, completion: Completion, worker: &mut Worker) -> Error {
        let Completion { source, tag, bytes, outcome } = completion;
        let error = match outcome {
            Outcome::Truncated { message_bytes } => {
                let message = format!(
                    "a message of {message_bytes} bytes from rank {source} with tag {tag} met a receive of {bytes} bytes"
                );
                Error::new(ErrorClass::Truncate, message)
            }
            Outcome::Revoked => revoked(),
            Outcome::Ok | Outcome::Cancelled | Outcome::PeerFailed | Outcome::Refused => {
                gone(worker)
            }
        };
        error.on(self.comm)
    }
}

/// The error of an operation whose peer has failed.
pub(crate) fn gone(worker: &mut progress::Worker) -> Error {
    let notices = worker.take_notices().join("; ");
    Error::new(ErrorClass::ProcAborted, format!("the peer is gone ({notices})"))
}

impl RunState {
    /// The operation in flight.
    fn active(&self) -> Option<&Active> {
        match self {
            Self::Inactive | Self::Starting => None,
            Self::Active(active) => Some(active),
        }
    }
}

impl Persistent {
    fn start(&self) -> Result<()> {
        self.claim()?;
        let begun = self.template.begin();
        let mut run = self.run.lock();
        match begun {
            Ok(active) => *run = RunState::Active(active),
            Err(error) => {
                *run = RunState::Inactive;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lets the calling thread start the request.
    fn claim(&self) -> Result<()> {
        let mut run = self.run.lock();
        match &*run {
            RunState::Inactive => *run = RunState::Starting,
            RunState::Starting | RunState::Active(_) => return Err(already_active()),
        }
        Ok(())
    }
}

impl Template {
    /// Submits the operation.
    fn begin(&self) -> Result<Active> {
        let request = match self {
            Self::Send(send) => send.begin()?,
            Self::Receive(receive) => receive.begin(),
            Self::Collective(collective) => {
                return Ok(Active::Collective(collective::start(Arc::clone(collective))));
            }
            Self::Followed(followed) => return Ok(Active::Collective(followed.begin())),
            Self::Partitioned(message) => {
                message.start();
                return Ok(Active::Partitioned(Arc::clone(message)));
            }
        };
        Ok(match request {
            Request::Done(done) => Active::Done(done),
            Request::Operation(operation) => Active::Operation(operation),
            Request::Exchange(_)
            | Request::Flush(_)
            | Request::Collective(_)
            | Request::Access(_)
            | Request::Transfer(_)
            | Request::Generalized(_)
            | Request::Persistent(_) => unreachable!("a send or receive is one operation"),
        })
    }
}

impl FollowedCollective {
    #[cold]
    fn begin(&self) -> PendingCollective {
        self.follower.begin();
        let follower = Arc::clone(&self.follower);
        let progress = self.collective.team().progress();
        collective::start(Arc::clone(&self.collective))
            .followed_by(progress, Box::new(move |is_ok| follower.end(is_ok)))
    }
}

/// Starts a persistent request.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request that is not persistent or active already.
pub fn start(handle: Handle) -> Result<()> {
    startable(handle)?.start()
}

/// Starts all persistent requests, or none if one cannot be started.
///
/// # Errors
/// Those of [`start`].
pub fn start_all(process: &Process, handles: &[Cell<Handle>]) -> Result<()> {
    check_now(process, handles)?;
    let mut all = Vec::with_capacity(handles.len());
    for (index, handle) in handles.iter().enumerate() {
        all.push(startable(handle.get()).map_err(|error| error.about(entry(index)))?);
    }
    all.iter().try_for_each(Startable::start)
}

/// A persistent request that may be started.
struct Startable {
    handle: Handle,
    persistent: Arc<Persistent>,
}

impl Startable {
    fn start(&self) -> Result<()> {
        self.persistent.start()?;
        if self.persistent.is_registered.load(Ordering::Relaxed) {
            self.persistent.announce(self.handle);
        }
        Ok(())
    }
}

fn startable(handle: Handle) -> Result<Startable> {
    let Named::Stored(vci) = Named::of(handle) else { return Err(not_persistent()) };
    let mut requests = REQUESTS.of(vci).lock();
    match &requests.find(handle)?.request {
        Request::Persistent(persistent) if persistent.run.lock().active().is_some() => {
            Err(already_active())
        }
        Request::Persistent(persistent) => {
            Ok(Startable { handle, persistent: Arc::clone(persistent) })
        }
        Request::Done(_)
        | Request::Operation(_)
        | Request::Exchange(_)
        | Request::Flush(_)
        | Request::Collective(_)
        | Request::Access(_)
        | Request::Transfer(_)
        | Request::Generalized(_) => Err(not_persistent()),
    }
}

fn not_persistent() -> Error {
    Error::new(ErrorClass::Request, "the request is not persistent")
}

fn already_active() -> Error {
    Error::new(ErrorClass::Request, "the request is active already")
}

/// Cancels a receive that has not matched a message, or a send whose message no receive has matched. The peer's engine
/// decides on one that has left, whatever its program does (MPI-5.0 §3.8.4).
///
/// # Errors
/// Those of [`wait`], and `MPI_ERR_REQUEST` for a collective or an operation on a window or file.
pub fn cancel(process: &Process, handle: Handle) -> Result<()> {
    let find =
        |requests: &mut Objects<StoredRequest>| Ok(requests.find(handle)?.request.cancellable());
    // A matched receive continues, and so does a matched send. This process handles its own retraction within the call, for
    // programs test such a request once.
    let own = process.peer(process.rank());
    act_on(process, handle, "cancelled", find, |progress, op| {
        let flush = progress.submit(|worker| {
            worker.engine.submit_cancel(op);
            let asked = worker.engine.asked_to_drop(op);
            asked.filter(|_| asked == own).map(|peer| worker.engine.submit_flush(peer))
        });
        if let Some(flush) = flush {
            progress.wait(|worker| worker.take_or_await(flush));
        }
    })
}

/// Frees a request; its operation completes in the background.
///
/// # Errors
/// Those of [`wait`], and `MPI_ERR_REQUEST` for a collective or an operation on a window or file in flight.
pub fn free(process: &Process, handle: Handle) -> Result<()> {
    let remove =
        |requests: &mut Objects<StoredRequest>| Ok(requests.remove(handle)?.request.operations());
    act_on(process, handle, "freed", remove, |progress, op| {
        progress.submit(|worker| worker.engine.release(op));
    })
}

/// Applies `act` to the engine's operations of a request; `find` returns those of a request in the table.
fn act_on(
    process: &Process,
    handle: Handle,
    what: &str,
    find: impl FnOnce(&mut Objects<StoredRequest>) -> Result<Vec<Operation>>,
    act: impl Fn(&Progress, OpId),
) -> Result<()> {
    let operations = match Named::of(handle) {
        Named::Null => return Err(unknown(handle)),
        Named::Done(_) => return Ok(()),
        Named::Operation(named) => {
            let progress = named.progress(process)?;
            progress.look(|worker| named.known(worker).map(|_| ()))?;
            act(progress, named.op);
            return Ok(());
        }
        Named::Stored(vci) => {
            let mut requests = REQUESTS.of(vci).lock();
            let request = &requests.find(handle)?.request;
            if let Some(kind) = request.unstoppable() {
                return Err(begun(kind, what));
            }
            // The program's functions cancel and free it, unless it is freed.
            if let Request::Generalized(_) = request {
                return Err(unknown(handle));
            }
            find(&mut requests)?
        }
    };
    for operation in operations {
        act(process.vci(operation.vci), operation.op);
    }
    Ok(())
}

#[cold]
fn begun(kind: &str, what: &str) -> Error {
    let message = format!("a {kind} that has begun cannot be {what}; wait for it");
    Error::new(ErrorClass::Request, message)
}

/// Name of a collective in messages.
const COLLECTIVE: &str = "collective";

/// `MPI_REQUEST_NULL`.
pub const NULL: Handle = Handle(0x180);
