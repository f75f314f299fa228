//! Exchanges the library needs for itself: agreeing on contexts, splitting communicators, meetings of groups. Those of a whole communicator
//! are collectives of its, planned as the application's are; those of a group alone go by a tree.

use engine::{Envelope, Outcome, Revocation, RevokedBy, Selector, SendMode};
use memory::Region;
use progress::{Progress, Worker};
use runtime::context;
use wire::PeerId;

use crate::collective::{self, Call, CallArguments, Form, Routine, Shape};
use crate::comm::{Comm, CommRef};
use crate::failures::revoked;
use crate::group::Group;
use crate::process::Process;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

/// Processes and tag of an exchange.
pub(crate) struct Span<'a> {
    pub process: &'a Process,
    pub vci: Vci,
    pub context: u64,
    pub tag: i32,
    pub group: &'a Group,
    /// This process's rank in `group`.
    pub rank: u32,
}

impl Span<'_> {
    fn progress(&self) -> &Progress {
        self.process.vci(self.vci)
    }

    fn send(&self, to: u32, bytes: &[u8]) -> Result<()> {
        let region = Region::from_box(bytes.into());
        let envelope =
            Envelope { context: self.context, source: self.rank, tag: self.tag, is_urgent: true };
        let peer = self.group.peer(to);
        let completion = self.progress().submit_and_wait(
            |worker| worker.engine.submit_send(peer, envelope, &region, SendMode::Standard),
            |worker, op| worker.take_or_await(*op),
        );
        self.checked(completion.outcome, to)
    }

    /// Sends to a rank while it sends as well, and returns what has come, at most `room` bytes.
    pub fn swap(&self, with: u32, bytes: &[u8], room: usize) -> Result<Vec<u8>> {
        let region = Region::from_box(bytes.into());
        let envelope =
            Envelope { context: self.context, source: self.rank, tag: self.tag, is_urgent: true };
        let peer = self.group.peer(with);
        let op = self.progress().submit(|worker| {
            worker.engine.submit_send(peer, envelope, &region, SendMode::Standard)
        });
        let heard = self.receive(with, room)?;
        let completion = self.progress().wait(|worker| worker.take_or_await(op));
        self.checked(completion.outcome, with)?;
        Ok(heard)
    }

    /// Receives at most `room` bytes.
    fn receive(&self, from: u32, room: usize) -> Result<Vec<u8>> {
        let region = Region::scratch(room).ok_or_else(no_memory)?;
        let selector = Selector { context: self.context, source: Some(from), tag: Some(self.tag) };
        let peer = self.group.peer(from);
        let completion = self.progress().submit_and_wait(
            |worker| worker.engine.submit_receive(Some(peer), selector, &region),
            |worker, op| worker.take_or_await(*op),
        );
        self.checked(completion.outcome, from)?;
        Ok(region.slice(0, completion.bytes as usize).to_vec())
    }

    /// The bytes of rank 0 at every rank, by a binomial tree; `mine` counts at rank 0 only. None at all say that there is an
    /// error: who has heard nothing tells those behind it so, for they wait for nobody else.
    pub fn broadcast(&self, mine: &[u8]) -> Result<Vec<u8>> {
        self.broadcast_most(mine, short_room(self.process))
    }

    /// [`Span::broadcast`] of at most `room` bytes.
    pub fn broadcast_most(&self, mine: &[u8], room: usize) -> Result<Vec<u8>> {
        let heard = match self.rank {
            0 => self.open().map(|()| mine.to_vec()),
            rank => self.receive(rank & (rank - 1), room),
        };
        let received = heard.as_deref().unwrap_or_default();
        let mut sent = Ok(());
        for child in self.children() {
            // The others behind this rank wait for it, also if one has failed.
            sent = sent.and(self.send(child, received));
        }
        sent.and(heard).and_then(|bytes| if bytes.is_empty() { Err(unheard()) } else { Ok(bytes) })
    }

    /// True at rank 0 if all ranks say so, by the same tree; the others return what those behind them say.
    pub fn all(&self, is_so: bool) -> Result<bool> {
        let mut heard = Ok(is_so);
        for child in self.children() {
            let said = self.receive(child, 1).map(|bytes| bytes == [1]);
            heard = heard.and_then(|all| said.map(|said| said && all));
        }
        if self.rank > 0 {
            let told = matches!(heard, Ok(true));
            self.send(self.rank & (self.rank - 1), &[u8::from(told)])?;
        }
        heard
    }

    /// The ranks behind this one in a binomial tree, the one with most behind it first.
    fn children(&self) -> impl Iterator<Item = u32> {
        let (rank, size) = (self.rank, self.group.size());
        let lowest = if rank == 0 { 31 } else { rank.trailing_zeros() };
        (0..lowest.min(31))
            .rev()
            .map(move |bit| 1 << bit)
            .filter(move |&step| step < size - rank)
            .map(move |step| rank + step)
    }

    /// Fails if a participant is known to have failed.
    fn open(&self) -> Result<()> {
        let closed_by = |worker: &mut Worker| worker.engine.revoked_by(self.context);
        self.progress().look(closed_by).map_or(Ok(()), |by| Err(self.ended(by)))
    }

    fn checked(&self, outcome: Outcome, peer: u32) -> Result<()> {
        match outcome {
            Outcome::Ok => Ok(()),
            Outcome::PeerFailed | Outcome::Revoked => {
                Err(self.ended(self.close(self.group.peer(peer))))
            }
            Outcome::Truncated { .. } | Outcome::Cancelled | Outcome::Refused => Err(Error::new(
                ErrorClass::Intern,
                "an exchange of the library met a foreign message",
            )),
        }
    }

    #[cold]
    fn ended(&self, by: RevokedBy) -> Error {
        let failed = match by {
            RevokedBy::Application => return revoked(),
            RevokedBy::Failure(failed) => failed,
        };
        let peer = self.process.peer_name(failed);
        let message = format!("{peer} cannot be reached in an exchange of the library");
        Error::new(ErrorClass::ProcAborted, message)
    }

    /// A peer cannot be reached, or a collective of the communicator has found one that cannot: which, or that the
    /// communicator is revoked. Where the exchange is one of a communicator's collectives, these are closed.
    fn close(&self, peer: PeerId) -> RevokedBy {
        let context = self.context;
        let close = |worker: &mut Worker| {
            let by = worker.engine.revoked_by(context).unwrap_or(RevokedBy::Failure(peer));
            if context::has_collectives(context) {
                worker.revoke(Revocation { context, marks: 0, by });
            }
            by
        };
        self.progress().submit(close)
    }
}

/// Gathers a value of every rank of a communicator in rank order (collective, for a call of `operation`). Uses the
/// same plan as the application's allgather.
pub(crate) fn allgather<const N: usize>(
    comm: &Comm,
    operation: Routine,
    mine: [u8; N],
) -> Result<Vec<[u8; N]>> {
    let call = call_of(comm, operation);
    let len = N as u64;
    let shape = Shape::of(Routine::Allgather).with_len(len);
    let schedule = call.plan(shape, |rank, places| plan::allgather(rank, places, &|_| len, false));
    let heard = Region::owned(N * call.size() as usize);
    call.bytes(schedule, Region::from_box(Box::new(mine)), heard.clone()).run()?;
    Ok(heard.to_vec().as_chunks().0.to_vec())
}

/// The same of so many bytes of each.
pub(crate) fn allgather_listed(
    comm: &Comm,
    operation: Routine,
    mine: &[u8],
    lengths: &[u64],
) -> Result<Vec<Vec<u8>>> {
    let call = call_of(comm, operation);
    let listed = [[].as_slice(), lengths];
    let schedule = call.plan_listed(Shape::of(Routine::Allgather), listed, |rank, places| {
        plan::allgather(rank, places, &|rank| lengths[rank as usize], false)
    });
    let bytes = lengths.iter().copied().fold(0, u64::saturating_add);
    let full =
        || Error::new(ErrorClass::NoMem, format!("no memory for {bytes} bytes of all ranks"));
    let heard = Region::scratch(bytes as usize).ok_or_else(full)?;
    call.bytes(schedule, Region::from_box(mine.into()), heard.clone()).run()?;
    let heard = heard.to_vec();
    let mut rest = heard.as_slice();
    let each = lengths.iter().map(|&len| rest.split_off(..len as usize).unwrap_or_default());
    Ok(each.map(<[u8]>::to_vec).collect())
}

/// Broadcasts a value of rank 0 to every rank of a communicator (collective, for a call of `operation`). Uses the
/// same plan as the application's broadcast.
pub(crate) fn broadcast<const N: usize>(
    comm: &Comm,
    operation: Routine,
    mine: [u8; N],
) -> Result<[u8; N]> {
    let call = call_of(comm, operation);
    let len = N as u64;
    let shape = Shape::of(Routine::Bcast).with_len(len);
    let schedule = call.plan(shape, |rank, places| plan::broadcast(rank, places, 0, len));
    let received = Region::from_box(Box::new(mine));
    call.bytes(schedule, Region::empty(), received.clone()).run()?;
    Ok(received.to_vec().try_into().unwrap_or(mine))
}

fn call_of(comm: &Comm, operation: Routine) -> Call {
    let call = collective::call(CommRef::Derived(comm.clone()), Form::Blocking);
    call.note_arguments(|| CallArguments::new(operation, None, None, None));
    call
}

/// Room for an exchange of a few numbers, a text, or a list of the job's processes.
pub(crate) fn short_room(process: &Process) -> usize {
    NUMBERS_BYTES + 4 * process.size() as usize
}

#[cold]
fn no_memory() -> Error {
    Error::new(ErrorClass::NoMem, "no memory for an exchange of the library")
}

#[cold]
fn unheard() -> Error {
    let message = "a peer is gone in an exchange of the library, as others say";
    Error::new(ErrorClass::ProcAborted, message)
}

/// Maximum bytes of an exchange besides a list of processes.
const NUMBERS_BYTES: usize = 512;
