//! Point-to-point communication (MPI-5.0 §3).

use engine::{Envelope, MatchedId, Message, OpId, RevokedBy, Selector, SendMode};
use handles::{Handle, Kind, Table};
use memory::Region;
use partitioned::Route;
use progress::Worker;
use runtime::context;
use wire::PeerId;

use crate::comm::Comm;
use crate::failures::{held_up, revoked};
use crate::partitioned::{PartitionedMessage, too_many};
use crate::process::Process;
use crate::request::{Done, Operation, Request, Source, Status, gone};
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

/// A send, ready to begin.
#[derive(Clone, Debug)]
pub struct Send {
    /// Communicator of the message.
    pub comm: Comm,
    /// To whom; none is `MPI_PROC_NULL`.
    pub to: Option<u32>,
    /// The tag.
    pub tag: i32,
    /// Data to send.
    pub data: Region,
    /// Send mode.
    pub mode: Mode,
}

/// The four modes of sending (MPI-5.0 §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Standard. A ready send, whose receive is posted already, is one too.
    Standard,
    /// Complete when matched.
    Synchronous,
    /// Copied into the attached buffer.
    Buffered,
}

/// A receive, ready to begin.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Communicator of the message.
    pub comm: Comm,
    /// From whom.
    pub from: From,
    /// The tag; none for any.
    pub tag: Option<i32>,
    /// Into what.
    pub into: Region,
}

/// Source that a receive or probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A rank.
    Rank(u32),
    /// `MPI_ANY_SOURCE`.
    Any,
    /// `MPI_PROC_NULL`.
    Null,
}

/// Sends, and waits until the memory may be reused (or longer, as the mode says).
///
/// # Errors
/// When the peer fails, or the attached buffer is full.
#[inline]
pub fn send(comm: &Comm, to: Option<u32>, tag: i32, data: &Region, mode: Mode) -> Result<()> {
    let Some(to) = to else { return Ok(()) };
    if mode == Mode::Buffered {
        return send_buffered(comm, to, tag, data);
    }
    let progress = comm.progress();
    let (peer, envelope) = (comm.peer(to), envelope(comm, tag));
    if mode == Mode::Standard && progress.send_short(peer, envelope, data) {
        return Ok(());
    }
    let mode = engine_mode(mode);
    let operation = |op| Operation::of(comm, op, false);
    let (_, error) = progress.submit_and_wait(
        |worker| worker.engine.submit_send(peer, envelope, data, mode),
        |worker, &op| Some(operation(op).interpret(worker.take_or_await(op)?, worker)),
    );
    error.map_or(Ok(()), Err)
}

/// Sends from the buffer of the communicator or, where it has none, from that of its session or of the process.
fn send_buffered(comm: &Comm, to: u32, tag: i32, data: &Region) -> Result<()> {
    let (process, own) = (comm.process(), comm.buffer());
    let place = if own.is_attached() { own } else { process.buffer_of_send() };
    place.send((process, comm.vci()), (comm.peer(to), envelope(comm, tag)), data)
}

/// Receives, and waits for the message.
///
/// # Errors
/// When the message is longer than the memory (the beginning is there), or the peer fails.
#[inline]
pub fn receive(
    comm: &Comm,
    from: From,
    tag: Option<i32>,
    into: &Region,
) -> (Status, Option<Error>) {
    let Some(selector) = selector(comm, from, tag) else { return (Status::PROC_NULL, None) };
    let progress = comm.progress();
    let peer = selector.source.map(|source| comm.peer(source));
    let operation = |op| Operation::of(comm, op, true);
    progress.submit_and_wait(
        |worker| worker.engine.submit_receive(peer, selector, into),
        |worker, &op| match worker.take_or_await(op) {
            Some(completion) => Some(operation(op).interpret(completion, worker)),
            None if worker.engine.may_be_held_up(op) => give_up(comm, op, worker),
            None => None,
        },
    )
}

/// Gives up a receive from any source if a process that may be the sender has failed.
#[cold]
fn give_up(comm: &Comm, op: OpId, worker: &mut Worker) -> Option<(Status, Option<Error>)> {
    let mut error = held_up(comm.handle(), worker)?;
    error.class = ErrorClass::ProcAborted;
    worker.engine.submit_cancel(op);
    worker.engine.take(op)?;
    Some((Status::EMPTY, Some(error)))
}

/// Begins a send.
///
/// # Errors
/// When the attached buffer is full.
#[inline]
pub fn begin_send(
    comm: &Comm,
    to: Option<u32>,
    tag: i32,
    data: &Region,
    mode: Mode,
) -> Result<Request> {
    let Some(to) = to else { return Ok(Request::Done(Done::Sent)) };
    if mode == Mode::Buffered {
        send_buffered(comm, to, tag, data)?;
        return Ok(Request::Done(Done::Sent));
    }
    let (peer, envelope) = (comm.peer(to), envelope(comm, tag));
    let (progress, note) = (comm.progress(), comm.handle().0);
    let begun = progress.begin_send(peer, envelope, data, engine_mode(mode), note);
    Ok(match begun {
        None => Request::Done(Done::Sent),
        Some(op) => Request::Operation(Operation::of(comm, op, false)),
    })
}

/// Begins a receive.
#[inline]
pub fn begin_receive(comm: &Comm, from: From, tag: Option<i32>, into: &Region) -> Request {
    let Some(selector) = selector(comm, from, tag) else {
        return Request::Done(Done::OfNobody);
    };
    let peer = selector.source.map(|source| comm.peer(source));
    let op = comm.progress().begin_receive(peer, selector, into, comm.handle().0);
    Request::Operation(Operation::of(comm, op, true))
}

/// Begins a send that belongs to a collective call, whose number is the tag: it ends when the collectives of the communicator are
/// revoked.
pub(crate) fn begin_send_within(comm: &Comm, to: u32, number: i32, data: &Region) -> Request {
    let envelope = Envelope { context: comm.collective_context(), ..envelope(comm, number) };
    let (peer, note) = (comm.peer(to), comm.handle().0);
    match comm.progress().begin_send(peer, envelope, data, SendMode::Standard, note) {
        None => Request::Done(Done::Sent),
        Some(op) => Request::Operation(Operation::of(comm, op, false)),
    }
}

/// Begins a receive like [`begin_send_within`].
pub(crate) fn begin_receive_within(comm: &Comm, from: u32, number: i32, into: &Region) -> Request {
    let (context, tag) = (comm.collective_context(), Some(number));
    let selector = Selector { context, source: Some(from), tag };
    let (peer, note) = (Some(comm.peer(from)), comm.handle().0);
    let op = comm.progress().begin_receive(peer, selector, into, note);
    Request::Operation(Operation::of(comm, op, true))
}

impl Send {
    /// Begins it.
    ///
    /// # Errors
    /// As [`begin_send`].
    pub fn begin(&self) -> Result<Request> {
        if self.comm.peer_count() == 0 {
            return Err(revoked());
        }
        begin_send(&self.comm, self.to, self.tag, &self.data, self.mode)
    }
}

impl Receive {
    /// Begins it.
    pub fn begin(&self) -> Request {
        begin_receive(&self.comm, self.from, self.tag, &self.into)
    }
}

/// Begins a send and a receive that end as one.
///
/// # Errors
/// As [`begin_send`].
pub fn begin_exchange(send: &Send, receive: &Receive) -> Result<Request> {
    let received = receive.begin();
    Ok(Request::Exchange(Box::new([received, send.begin()?])))
}

/// Makes the sending side of a partitioned message, which is matched with the receiving side that its destination makes.
///
/// # Errors
/// There is no memory for so many partitions.
pub fn partitioned_send(
    comm: &Comm,
    to: Option<u32>,
    tag: i32,
    data: Region,
    partitions: u32,
) -> Result<PartitionedMessage> {
    let channels = comm.process().channels(comm.vci());
    let make = |to| channels.send(route(comm, to, comm.rank(), tag), data, partitions);
    let sender = to.map(|to| make(to).ok_or_else(|| too_many(partitions))).transpose()?;
    Ok(PartitionedMessage::send(comm.handle(), sender, partitions))
}

/// Makes the receiving side of a partitioned message.
///
/// # Errors
/// Those of [`partitioned_send`].
pub fn partitioned_receive(
    comm: &Comm,
    from: Option<u32>,
    tag: i32,
    into: Region,
    partitions: u32,
) -> Result<PartitionedMessage> {
    let channels = comm.process().channels(comm.vci());
    let make = |from| channels.receive(route(comm, from, from, tag), into, partitions);
    let with_source = |from| {
        let receiver = make(from).ok_or_else(|| too_many(partitions))?;
        Ok::<_, Error>((receiver, from, tag))
    };
    let receiver = from.map(with_source).transpose()?;
    Ok(PartitionedMessage::receive(comm.handle(), receiver, partitions))
}

fn route(comm: &Comm, with: u32, source: u32, tag: i32) -> Route {
    let context = comm.context() | context::PARTITIONED;
    Route { peer: comm.peer(with), context, source, tag, note: comm.handle().0 }
}

/// Waits for a message to be there.
///
/// # Errors
/// When the source is gone.
pub fn probe(comm: &Comm, from: From, tag: Option<i32>) -> Result<Status> {
    let Some(selector) = selector(comm, from, tag) else { return Ok(Status::PROC_NULL) };
    let peer = selector.source.map(|source| comm.peer(source));
    let progress = comm.progress();
    let message = progress.wait(|worker| {
        let found = worker.engine.probe(peer, selector);
        hope(comm, worker, (peer, selector), found)
    });
    message.map(status_of)
}

/// Returns the result of a probe or a failure; `None` while a message may still arrive.
fn hope<T>(
    comm: &Comm,
    worker: &mut Worker,
    (peer, selector): (Option<PeerId>, Selector),
    found: Option<T>,
) -> Option<Result<T>> {
    match found {
        Some(found) => Some(Ok(found)),
        None if worker.engine.revoked_by(selector.context) == Some(RevokedBy::Application) => {
            Some(Err(revoked()))
        }
        None if peer.is_some_and(|peer| worker.engine.is_failed(peer)) => Some(Err(gone(worker))),
        None if peer.is_none()
            && worker.engine.failed_peers() != 0
            && let Some(error) = held_up(comm.handle(), worker) =>
        {
            Some(Err(error))
        }
        None => {
            worker.await_message(peer, selector);
            None
        }
    }
}

/// Returns the status of a matching message if one has arrived.
///
/// # Errors
/// When the source is gone.
pub fn immediate_probe(comm: &Comm, from: From, tag: Option<i32>) -> Result<Option<Status>> {
    let Some(selector) = selector(comm, from, tag) else { return Ok(Some(Status::PROC_NULL)) };
    let peer = selector.source.map(|source| comm.peer(source));
    let progress = comm.progress();
    let message = progress.test(|worker| {
        let found = worker.engine.probe(peer, selector);
        hope(comm, worker, (peer, selector), found)
    });
    if message.is_none() {
        progress.pause();
    }
    Ok(message.transpose()?.map(status_of))
}

/// A message taken out of matching, or `MPI_MESSAGE_NO_PROC`.
#[derive(Clone, Copy, Debug)]
pub enum Matched {
    /// A message, by its handle.
    Message(Handle),
    /// A probe of `MPI_PROC_NULL`.
    NoProc,
}

/// Takes a message that is there out of matching; waits for one if told to.
///
/// # Errors
/// When the source is gone.
pub fn matched_probe(
    comm: &Comm,
    from: From,
    tag: Option<i32>,
    waits: bool,
) -> Result<Option<(Matched, Status)>> {
    let Some(selector) = selector(comm, from, tag) else {
        return Ok(Some((Matched::NoProc, Status::PROC_NULL)));
    };
    let peer = selector.source.map(|source| comm.peer(source));
    let progress = comm.progress();
    let take = |worker: &mut Worker| {
        let found = worker.engine.submit_matched_probe(peer, selector);
        hope(comm, worker, (peer, selector), found)
    };
    let found = if waits { Some(progress.wait(take)) } else { progress.test(take) };
    let Some((id, message)) = found.transpose()? else {
        progress.pause();
        return Ok(None);
    };
    let handle = MESSAGES.insert((id, comm.handle(), comm.vci()))?;
    Ok(Some((Matched::Message(handle), status_of(message))))
}

/// Begins to receive a message that a matched probe took.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a handle that names no such message.
pub fn begin_matched_receive(
    process: &Process,
    message: Handle,
    into: &Region,
) -> Result<Operation> {
    let (id, comm, vci) = MESSAGES.remove(message)?;
    let progress = process.vci(vci);
    let op = progress.submit(|worker| {
        let op = worker.engine.submit_matched_receive(id, into)?;
        worker.engine.note(op, comm.0);
        Some(op)
    });
    let gone = || Error::new(ErrorClass::Request, "the message was received already");
    Ok(Operation { op: op.ok_or_else(gone)?, receives: true, vci, comm })
}

/// Waits for an operation.
pub fn finish(process: &Process, operation: Operation) -> (Status, Option<Error>) {
    process.vci(operation.vci).wait(|worker| {
        let completion = worker.take_or_await(operation.op)?;
        Some(operation.interpret(completion, worker))
    })
}

/// The handle of a message whose Fortran integer is `value`.
pub fn message_from_int(value: i32) -> Handle {
    MESSAGES.from_int(value)
}

#[inline]
fn envelope(comm: &Comm, tag: i32) -> Envelope {
    Envelope { context: comm.context(), source: comm.rank(), tag, is_urgent: false }
}

#[inline]
fn selector(comm: &Comm, from: From, tag: Option<i32>) -> Option<Selector> {
    let source = match from {
        From::Rank(rank) => Some(rank),
        From::Any => None,
        From::Null => return None,
    };
    Some(Selector { context: comm.context(), source, tag })
}

fn engine_mode(mode: Mode) -> SendMode {
    match mode {
        Mode::Standard | Mode::Buffered => SendMode::Standard,
        Mode::Synchronous => SendMode::Synchronous,
    }
}

fn status_of(message: Message) -> Status {
    let Message { source, tag, bytes } = message;
    Status { source: Source::Rank(source), tag: Some(tag), bytes, cancelled: false }
}

/// Drops all matched messages; their handles are stale.
pub(crate) fn clear() {
    MESSAGES.clear();
}

static MESSAGES: Table<(MatchedId, Handle, Vci)> = Table::new(Kind::Message);
