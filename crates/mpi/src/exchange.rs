//! Small exchanges the library needs for itself: agreeing on contexts, splitting communicators.

use engine::{Envelope, Outcome, Selector, SendMode};
use memory::Region;
use progress::Core;
use wire::GateId;

use crate::comm::{Comm, Form};
use crate::group::Group;
use crate::process;
use crate::{Error, ErrorClass, Result};

/// Whom an exchange runs among, and how its messages are told from others.
pub(crate) struct Span<'a> {
    pub context: u64,
    pub tag: i32,
    pub group: &'a Group,
    /// This process's rank in `group`.
    pub rank: u32,
}

impl Span<'_> {
    fn send(&self, to: u32, bytes: &[u8]) -> Result<()> {
        let progress = process::current()?.progress();
        let region = Region::from_box(bytes.into());
        let envelope =
            Envelope { context: self.context, source: self.rank, tag: self.tag, is_urgent: true };
        let gate = GateId(self.group.world_rank(to));
        let completion = progress.submit_and_wait(
            |core| core.engine.submit_send(gate, envelope, &region, SendMode::Standard),
            |core, op| core.take_or_await(*op),
        );
        self.checked(completion.outcome, to)
    }

    /// Sends to a rank while it sends as well, and gives what has come.
    pub fn swap(&self, with: u32, bytes: &[u8]) -> Result<Vec<u8>> {
        let progress = process::current()?.progress();
        let region = Region::from_box(bytes.into());
        let envelope =
            Envelope { context: self.context, source: self.rank, tag: self.tag, is_urgent: true };
        let gate = GateId(self.group.world_rank(with));
        let op = progress
            .submit(|core| core.engine.submit_send(gate, envelope, &region, SendMode::Standard));
        let heard = self.receive(with, MAX_BYTES)?;
        let completion = progress.wait(|core| core.take_or_await(op));
        self.checked(completion.outcome, with)?;
        Ok(heard)
    }

    fn receive(&self, from: u32, max: usize) -> Result<Vec<u8>> {
        let progress = process::current()?.progress();
        let region = Region::owned(max);
        let selector = Selector { context: self.context, source: Some(from), tag: Some(self.tag) };
        let gate = GateId(self.group.world_rank(from));
        let completion = progress.submit_and_wait(
            |core| core.engine.submit_receive(Some(gate), selector, &region),
            |core, op| core.take_or_await(*op),
        );
        self.checked(completion.outcome, from)?;
        Ok(region.slice(0, completion.bytes as usize).to_vec())
    }

    /// Whether none of those who take part has failed, as far as known here.
    fn open(&self) -> Result<()> {
        let closed_by = |core: &mut Core| core.engine.closed_by(self.context);
        process::current()?.progress().look(closed_by).map_or(Ok(()), |failed| Err(gone(failed)))
    }

    fn checked(&self, outcome: Outcome, peer: u32) -> Result<()> {
        match outcome {
            Outcome::Ok => Ok(()),
            Outcome::PeerFailed => Err(gone(self.close(GateId(self.group.world_rank(peer)))?)),
            Outcome::Truncated { .. } | Outcome::Cancelled => Err(Error::new(
                ErrorClass::Intern,
                "an exchange of the library met a foreign message",
            )),
        }
    }

    /// A peer cannot be reached, or a collective of the communicator has found one that cannot: which. Where the exchange
    /// is one of a communicator's collectives, these are closed.
    fn close(&self, peer: GateId) -> Result<GateId> {
        let context = self.context;
        let close = |core: &mut Core| {
            let failed = core.engine.closed_by(context).unwrap_or(peer);
            if Comm::has_collectives_in(context) {
                core.close_context(context, failed);
            }
            failed
        };
        Ok(process::current()?.progress().submit(close))
    }
}

/// The bytes of rank 0 at every rank of `span`, by a binomial tree; `mine` counts at rank 0 only. None at all say that
/// there is an error: who has heard nothing tells those behind it so, for they wait for nobody else.
pub(crate) fn broadcast(span: &Span<'_>, mine: &[u8]) -> Result<Vec<u8>> {
    let size = span.group.size();
    let heard = match span.rank {
        0 => span.open().map(|()| mine.to_vec()),
        rank => span.receive(rank & (rank - 1), MAX_BYTES),
    };
    let told = heard.as_deref().unwrap_or_default();
    let mut sent = Ok(());
    let lowest = if span.rank == 0 { 32 } else { span.rank.trailing_zeros() };
    for bit in (0..lowest.min(31)).rev() {
        let child = span.rank + (1 << bit);
        if child < size && (1u32 << bit) < size {
            sent = sent.and(span.send(child, told));
        }
    }
    sent.and(heard).and_then(|bytes| if bytes.is_empty() { Err(unheard()) } else { Ok(bytes) })
}

/// The bytes of every rank, in rank order, at every rank: gathered up the tree, then broadcast.
pub(crate) fn allgather(comm: &Comm, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    let tag = comm.next_collective(Form::Blocking);
    let context = comm.collective_context();
    let span = Span { context, tag, group: comm.group(), rank: comm.rank() };
    let mut gathered = Vec::new();
    append(&mut gathered, mine);
    let mut bit = 1;
    while bit < comm.size() {
        if comm.rank() & bit != 0 {
            span.send(comm.rank() - bit, &gathered)?;
            break;
        }
        if comm.rank() + bit < comm.size() {
            gathered.extend(span.receive(comm.rank() + bit, MAX_BYTES)?);
        }
        bit <<= 1;
    }
    let all = broadcast(&span, &gathered)?;
    split(&all).ok_or_else(|| Error::new(ErrorClass::Intern, "an exchange arrived malformed"))
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u32).to_le_bytes());
    to.extend(bytes);
}

fn split(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        parts.push(rest.get(..len)?.to_vec());
        bytes = &rest[len..];
    }
    Some(parts)
}

#[cold]
fn gone(failed: GateId) -> Error {
    let message = format!("rank {} cannot be reached in an exchange of the library", failed.0);
    Error::new(ErrorClass::ProcAborted, message)
}

#[cold]
fn unheard() -> Error {
    let message = "a peer is gone in an exchange of the library, as others say";
    Error::new(ErrorClass::ProcAborted, message)
}

/// The longest exchange: 100 bytes for each of 160 000 ranks.
pub(crate) const MAX_BYTES: usize = 16 << 20;
