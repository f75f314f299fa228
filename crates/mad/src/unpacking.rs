//! A message being unpacked.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{OpId, Outcome};
use lock::{Held, Missing, OwnedCell};
use memory::Region;
use progress::Worker;

use crate::batch::{Entry, Form, INLINE_MAX, Reader, Record, Strange};
use crate::channel::{Line, Opener, PACKETS_MAX, Part, Place};
use crate::packing::{busy, ended};
use crate::{Constraints, Error, Fault, Next, Receive, Result};

/// A message being unpacked. Clones are the same message. Until it has ended, memory that was given to
/// it may be written.
#[derive(Clone, Debug)]
pub struct Unpacking(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    line: Arc<Line>,
    place: Place,
    intake: OwnedCell<Intake>,
}

/// A message until its end.
#[derive(Debug)]
struct Intake {
    /// The first batch, if it was taken out of matching.
    opener: Option<Opener>,
    /// The batch that is being read. While an unpack waits, all that has come was read.
    reader: Reader,
    /// Number of batches requested so far.
    batches: u32,
    /// The one on its way. There is one as long as everything is read and the end is not.
    arriving: Option<OpId>,
    /// The position of the next record.
    position: u32,
    /// Unpacks that wait for their records, in order; all `CHEAPER`.
    wanted: VecDeque<Wanted>,
    /// Data on their way, with the positions of their packets.
    ops: Vec<(u32, OpId)>,
    /// The first failure of an unpack that had returned.
    failure: Option<Error>,
    /// Why no more can be read.
    broken: Option<Error>,
}

#[derive(Debug)]
struct Wanted {
    into: Region,
    constraints: Constraints,
    /// The receive of data that come apart, which may come together with their record.
    early: Option<OpId>,
}

/// The next record.
enum Head {
    Packet(Record),
    End,
    /// It has not come yet, or never will.
    Nothing,
}

impl Unpacking {
    pub(crate) fn new(
        line: Arc<Line>,
        place: Place,
        reader: Reader,
        opener: Option<Opener>,
    ) -> Self {
        let intake = Intake {
            opener,
            reader,
            batches: 0,
            arriving: None,
            position: 0,
            wanted: VecDeque::new(),
            ops: Vec::new(),
            failure: None,
            broken: None,
        };
        Self(Arc::new(Inner { line, place, intake: OwnedCell::new(intake) }))
    }

    /// From whom it comes.
    pub fn peer(&self) -> u32 {
        self.0.place.peer
    }

    /// Takes the next packet into `into`. With `Receive::Express` the data are there afterwards; with
    /// `Receive::Cheaper` they may come until the end, and so may the failure of this call.
    ///
    /// # Errors
    /// When the packet has another length or other constraints, or there is none: then it stays the
    /// next. When the message has ended, is in use by another thread, or the peer is gone.
    pub fn unpack(&self, into: &Region, constraints: Constraints, next: Next) -> Result<()> {
        self.0.take_turn()?.unpack_any(&self.0, into, constraints, next)
    }

    /// Takes the next packet into `into`, where it is there and fits; else false.
    #[inline(always)]
    pub(crate) fn unpack_short(&self, into: &mut [u8], constraints: Constraints) -> bool {
        let Some(mut intake) = self.0.intake.take_at_once() else { return false };
        let is_taken = intake.reader.take_inline(constraints, into);
        intake.position += u32::from(is_taken);
        is_taken
    }

    /// Ends the unpacking: waits until all data are there, and the sender has ended the message.
    ///
    /// # Errors
    /// When packets are left, which are lost; when an unpack has failed since; when the peer is gone.
    /// The unpacking has ended all the same, unless it had before or is in use by another thread.
    pub fn end(&self) -> Result<()> {
        let inner = &*self.0;
        let mut intake = inner.take_turn()?;
        let mut left = 0;
        inner.line.wait(|worker| intake.finish(inner, worker, &mut left));
        let Intake { mut reader, failure, broken, position, .. } = intake.keep();
        reader.open(0);
        inner.line.end_unpacking(inner.place.peer, reader);
        let leftovers = (left > 0).then(|| {
            let message = format!(
                "{left} of {position} packets from process {} were not unpacked and are lost",
                inner.place.peer
            );
            Error::new(Fault::Packets, message)
        });
        broken.or(failure).or(leftovers).map_or(Ok(()), Err)
    }
}

impl Inner {
    fn take_turn(&self) -> Result<Held<'_, Intake>> {
        self.intake.take().map_err(|missing| match missing {
            Missing::Used => busy(),
            Missing::Gone => ended(),
        })
    }

    fn ask_for_data(&self, worker: &mut Worker, position: u32, into: &Region) -> OpId {
        let (peer, selector) = self.line.selector(self.place, Part::Data(position));
        worker.engine.submit_receive(peer, selector, into)
    }

    fn wait_for_data(&self, position: u32, op: OpId) -> Result<()> {
        self.line.wait(|worker| {
            let completion = worker.engine.take(op)?;
            Some(self.check_data(worker, position, completion.outcome))
        })
    }

    fn check_data(&self, worker: &mut Worker, position: u32, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Ok | Outcome::Cancelled | Outcome::Refused => Ok(()),
            Outcome::PeerFailed | Outcome::Revoked => Err(gone(worker, self.place.peer)),
            Outcome::Truncated { message_bytes } => {
                Err(self.strange(&format!("{message_bytes} bytes for packet {position}")))
            }
        }
    }

    #[cold]
    fn strange(&self, what: &str) -> Error {
        let message = format!("process {} sent what no peer sends: {what}", self.place.peer);
        Error::new(Fault::Peer, message)
    }
}

impl Intake {
    fn unpack_any(
        &mut self,
        inner: &Inner,
        into: &Region,
        constraints: Constraints,
        next: Next,
    ) -> Result<()> {
        let Some(record) = self.record(inner, constraints.receive)? else {
            return self.want(inner, into, constraints, next);
        };
        self.check(inner, &record, into.len(), constraints)?;
        let position = self.position;
        match (self.take_now(inner, &record, into, next), constraints.receive) {
            (None, _) => {}
            (Some(op), Receive::Express) => inner.wait_for_data(position, op)?,
            (Some(op), Receive::Cheaper) => self.ops.push((position, op)),
        }
        if next == Next::Computing {
            inner.line.progress.test(|worker| self.advance(inner, worker));
        }
        Ok(())
    }

    /// The record that belongs to the next unpack; waits for it where its data are wanted at once.
    fn record(&mut self, inner: &Inner, receive: Receive) -> Result<Option<Record>> {
        if !self.is_ready(inner) {
            match receive {
                Receive::Express => inner.line.wait(|worker| {
                    self.advance(inner, worker);
                    self.is_ready(inner).then_some(())
                }),
                Receive::Cheaper => {
                    inner.line.progress.submit(|worker| self.advance(inner, worker));
                }
            }
        }
        match self.head(inner) {
            Head::Packet(record) if self.wanted.is_empty() => Ok(Some(record)),
            Head::End => Err(self.too_many(inner)),
            Head::Packet(..) | Head::Nothing => match &self.broken {
                Some(broken) => Err(broken.clone()),
                None => Ok(None),
            },
        }
    }

    /// Lets an unpack wait for its record.
    fn want(
        &mut self,
        inner: &Inner,
        into: &Region,
        constraints: Constraints,
        next: Next,
    ) -> Result<()> {
        if self.position as usize + self.wanted.len() >= PACKETS_MAX as usize {
            let message = format!("a message has fewer than {PACKETS_MAX} packets");
            return Err(Error::new(Fault::Limit, message));
        }
        let early = (into.len() > INLINE_MAX).then(|| {
            let position = self.position + self.wanted.len() as u32;
            inner.line.progress.submit(|worker| inner.ask_for_data(worker, position, into))
        });
        self.wanted.push_back(Wanted { into: into.clone(), constraints, early });
        if next == Next::Computing {
            inner.line.progress.test(|worker| self.advance(inner, worker));
        }
        Ok(())
    }

    /// True if the next unpack completes without waiting.
    #[inline]
    fn is_ready(&mut self, inner: &Inner) -> bool {
        let is_known = self.wanted.is_empty() && !matches!(self.head(inner), Head::Nothing);
        is_known || self.broken.is_some()
    }

    #[inline]
    fn head(&mut self, inner: &Inner) -> Head {
        if self.broken.is_some() {
            return Head::Nothing;
        }
        match self.reader.entry() {
            Ok(Some(Entry::Packet(record))) => Head::Packet(record),
            Ok(Some(Entry::End)) => Head::End,
            Ok(None) => Head::Nothing,
            Err(Strange) => {
                self.broken = Some(inner.strange("a batch without sense"));
                Head::Nothing
            }
        }
    }

    /// Takes in what has come, gives it to the unpacks that wait, and asks for more.
    fn advance(&mut self, inner: &Inner, worker: &mut Worker) {
        let mut has_asked = false;
        loop {
            self.open_batch(inner, worker);
            while !self.wanted.is_empty() {
                match self.head(inner) {
                    Head::Packet(record) => self.settle(inner, worker, &record),
                    Head::End => {
                        let failure = self.too_many(inner);
                        self.failure.get_or_insert(failure);
                        self.give_up_wanted(worker);
                    }
                    Head::Nothing => break,
                }
                has_asked = true;
            }
            let is_read = matches!(self.head(inner), Head::Nothing);
            if !is_read || self.broken.is_some() || self.arriving.is_some() {
                break;
            }
            self.arriving = self.ask(inner, worker);
            has_asked = true;
        }
        if has_asked {
            worker.flush();
        }
    }

    /// Begins to read the batch that has come.
    fn open_batch(&mut self, inner: &Inner, worker: &mut Worker) {
        let Some(completion) = self.arriving.and_then(|op| worker.engine.take(op)) else { return };
        self.arriving = None;
        match completion.outcome {
            Outcome::Ok => self.reader.open(completion.bytes as usize),
            Outcome::PeerFailed | Outcome::Revoked => {
                self.broken = Some(gone(worker, inner.place.peer))
            }
            Outcome::Truncated { .. } | Outcome::Cancelled | Outcome::Refused => {
                self.broken = Some(inner.strange("a batch that is too long"));
            }
        }
    }

    /// Asks for the next batch.
    fn ask(&mut self, inner: &Inner, worker: &mut Worker) -> Option<OpId> {
        let number = self.batches;
        if number == PACKETS_MAX {
            self.broken = Some(inner.strange("a message without end"));
            return None;
        }
        self.batches += 1;
        let memory = self.reader.receive();
        if number == 0 {
            let peer = inner.place.peer;
            let opener = self.opener.take().or_else(|| inner.line.take_aside(peer));
            if let Some(Opener { id, .. }) = opener {
                return worker.engine.submit_matched_receive(id, memory);
            }
        }
        let (peer, selector) = inner.line.selector(inner.place, Part::Batch(number));
        Some(worker.engine.submit_receive(peer, selector, memory))
    }

    /// Takes the packet that is next, outside the core; answers the operation that brings data that come
    /// apart.
    #[inline]
    fn take_now(
        &mut self,
        inner: &Inner,
        record: &Record,
        into: &Region,
        next: Next,
    ) -> Option<OpId> {
        let op = match record.form {
            Form::Inline => {
                self.reader.copy(record, into);
                None
            }
            Form::Apart => {
                let progress = &inner.line.progress;
                let ask = |worker: &mut Worker| inner.ask_for_data(worker, self.position, into);
                Some(match next {
                    // What this asks of the peer goes with what the next unpack asks.
                    Next::Packet(_) => progress.look(ask),
                    Next::Unknown | Next::Computing => progress.submit(ask),
                })
            }
        };
        self.pass(record);
        op
    }

    /// Gives the packet that is next to the first unpack that waits. If it does not fit, it is lost.
    fn settle(&mut self, inner: &Inner, worker: &mut Worker, record: &Record) {
        let Some(Wanted { into, constraints, early }) = self.wanted.pop_front() else { return };
        let position = self.position;
        match (self.check(inner, record, into.len(), constraints), record.form) {
            (Ok(()), Form::Inline) => {
                self.reader.copy(record, &into);
                self.give_up(worker, early);
            }
            (Ok(()), Form::Apart) => {
                let op = early.unwrap_or_else(|| inner.ask_for_data(worker, position, &into));
                self.ops.push((position, op));
            }
            (Err(failure), _) => {
                self.failure.get_or_insert(failure);
                if !self.give_up(worker, early) {
                    return self.lose(inner, worker, record);
                }
            }
        }
        self.pass(record);
    }

    /// Takes a receive back. True when it has its data, or gets them: the memory is still written.
    fn give_up(&mut self, worker: &mut Worker, early: Option<OpId>) -> bool {
        let Some(op) = early else { return false };
        let is_free = worker.engine.submit_cancel(op);
        if is_free {
            worker.engine.release(op);
        } else {
            self.ops.push((self.position, op));
        }
        !is_free
    }

    fn give_up_wanted(&mut self, worker: &mut Worker) {
        for Wanted { early, .. } in std::mem::take(&mut self.wanted) {
            self.give_up(worker, early);
        }
    }

    /// Passes over a packet that nobody takes; its data are dropped when they come.
    fn lose(&mut self, inner: &Inner, worker: &mut Worker, record: &Record) {
        if record.form == Form::Apart {
            let op = inner.ask_for_data(worker, self.position, &Region::empty());
            worker.engine.release(op);
        }
        self.pass(record);
    }

    fn pass(&mut self, record: &Record) {
        self.reader.pass(record);
        self.position += 1;
    }

    /// Brings the message to its end; none until it is there. Counts packets that nobody took.
    fn finish(&mut self, inner: &Inner, worker: &mut Worker, left: &mut u32) -> Option<()> {
        loop {
            self.advance(inner, worker);
            match self.head(inner) {
                Head::Packet(record) => {
                    self.lose(inner, worker, &record);
                    *left += 1;
                }
                Head::Nothing if self.broken.is_none() => return None,
                Head::Nothing | Head::End => break,
            }
        }
        if self.broken.is_some() {
            self.give_up_wanted(worker);
            let on_their_way = self.ops.iter().map(|(_, op)| *op).chain(self.arriving);
            for op in on_their_way {
                worker.engine.submit_cancel(op);
            }
            if let Some(op) = self.arriving.take() {
                worker.engine.release(op);
            }
        }
        worker.flush();
        while let Some(&(position, op)) = self.ops.last() {
            let completion = worker.engine.take(op)?;
            self.ops.pop();
            if let Err(failure) = inner.check_data(worker, position, completion.outcome) {
                self.failure.get_or_insert(failure);
            }
        }
        Some(())
    }

    fn check(
        &self,
        inner: &Inner,
        record: &Record,
        len: usize,
        constraints: Constraints,
    ) -> Result<()> {
        let Place { peer, .. } = inner.place;
        let position = self.position;
        if record.bytes != len as u64 {
            let message = format!(
                "packet {position} from process {peer} has {} bytes; {len} were to be unpacked",
                record.bytes
            );
            return Err(Error::new(Fault::Size, message));
        }
        if record.constraints != constraints {
            let message = format!(
                "packet {position} from process {peer} is {}; it was to be unpacked as {constraints}",
                record.constraints
            );
            return Err(Error::new(Fault::Constraints, message));
        }
        Ok(())
    }

    #[cold]
    fn too_many(&self, inner: &Inner) -> Error {
        let message = format!(
            "the message from process {} has only {} packets",
            inner.place.peer, self.position
        );
        Error::new(Fault::Packets, message)
    }
}

/// The error of what needs a peer that is gone.
#[cold]
pub(crate) fn gone(worker: &mut Worker, peer: u32) -> Error {
    // Another thread may have been told why.
    let notices = worker.take_notices();
    let why = if notices.is_empty() { String::new() } else { format!(" ({})", notices.join("; ")) };
    Error::new(Fault::Peer, format!("process {peer} is gone{why}"))
}
