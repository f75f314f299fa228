//! Channels, their connections, and how their messages are told from all others.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{Envelope, MatchedId, Selector};
use lock::{Guard, Lock};
use memory::Region;
use progress::{Progress, Worker};
use wire::PeerId;

use crate::batch::{Batch, Reader};
use crate::packing::Reference;
use crate::{Error, Fault, Packing, Result, Unpacking};

/// This process, as the channels see it: its communication and its place in the job.
pub struct Node {
    progress: Arc<Progress>,
    rank: u32,
    size: u32,
    lines: Arc<Lines>,
}

/// All channels of a process.
#[derive(Default)]
struct Lines {
    /// Locked before a worker, and before a line's state.
    numbers: Mutex<BTreeMap<u32, Arc<Line>>>,
    /// Messages being packed.
    packings: AtomicUsize,
}

/// An open channel. Clones are the same.
#[derive(Clone, Debug)]
pub struct Channel {
    line: Arc<Line>,
    /// Number of earlier openings of this channel number, so that handles of closed channels stay invalid.
    opening: u64,
}

/// State of a channel number, open or closed. Messages that arrive early wait until the channel is opened, and
/// message numbers continue after it is closed.
pub(crate) struct Line {
    pub progress: Arc<Progress>,
    pub rank: u32,
    size: u32,
    number: u32,
    /// All there are, this one among them, as long as the node exists.
    lines: Arc<Lines>,
    /// Locked after the worker.
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    openings: u64,
    connections: BTreeMap<u32, Connection>,
    /// First batches that came to an unpacking from anybody while their peer's last message was still
    /// being unpacked, in order. The peers' credits bound them.
    aside: VecDeque<Opener>,
}

/// A channel and a peer.
#[derive(Debug, Default)]
struct Connection {
    packing: Side<Batch>,
    packed_now: Reference,
    unpacking: Side<Reader>,
}

/// One direction of a connection.
#[derive(Debug)]
struct Side<T> {
    is_open: bool,
    /// The number of its next message.
    next: u32,
    /// Buffers of the last message, for reuse by the next.
    spare: Option<T>,
}

impl<T> Default for Side<T> {
    fn default() -> Self {
        Self { is_open: false, next: 0, spare: None }
    }
}

/// The first batch of a message, taken out of matching.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub peer: u32,
    pub id: MatchedId,
}

/// A message's place on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub peer: u32,
    pub sequence: u32,
}

/// Kind of engine message on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A batch of a message, by its number from 0 on.
    Batch(u32),
    /// The data of the packet at a position.
    Data(u32),
}

impl Node {
    /// Process `rank` of `size`, which communicates by `progress`.
    pub fn new(progress: Arc<Progress>, rank: u32, size: u32) -> Self {
        Self { progress, rank, size, lines: Arc::default() }
    }

    /// This process's rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes in the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Opens a channel. Nothing is exchanged: processes that open the same number have the same channel.
    ///
    /// # Errors
    /// When the number is not below [`CHANNELS_MAX`], or open here already.
    pub fn open(&self, number: u32) -> Result<Channel> {
        if number >= CHANNELS_MAX {
            let message = format!("channel {number}: numbers are below {CHANNELS_MAX}");
            return Err(Error::new(Fault::Channel, message));
        }
        let mut lines = self.lines.lock();
        let line = lines.entry(number).or_insert_with(|| Arc::new(self.line(number)));
        let mut state = line.lock();
        if state.is_open {
            let message = format!("channel {number} is open in this process already");
            return Err(Error::new(Fault::Channel, message));
        }
        state.is_open = true;
        state.openings += 1;
        let opening = state.openings;
        drop(state);
        Ok(Channel { line: Arc::clone(line), opening })
    }

    /// Closes all channels.
    ///
    /// # Errors
    /// When messages are open; then no channel is closed.
    pub fn close(&self) -> Result<()> {
        let lines = self.lines.lock();
        // None begins a message on one while the others are looked at.
        let mut all: Vec<_> = lines.values().map(|line| (line.number, line.lock())).collect();
        all.iter().try_for_each(|(number, state)| state.has_no_messages(*number))?;
        for (_, state) in &mut all {
            state.is_open = false;
        }
        drop(all);
        self.progress.wake();
        Ok(())
    }

    fn line(&self, number: u32) -> Line {
        let (progress, lines) = (Arc::clone(&self.progress), Arc::clone(&self.lines));
        Line { progress, rank: self.rank, size: self.size, number, lines, state: Lock::default() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The lines refer to each other.
        self.lines.lock().clear();
    }
}

impl Channel {
    /// The number it was opened by.
    pub fn number(&self) -> u32 {
        self.line.number
    }

    /// Begins a message to process `to`.
    ///
    /// # Errors
    /// When there is no such process, or a message to it is open on this channel.
    pub fn begin_packing(&self, to: u32) -> Result<Packing> {
        let mut state = self.state()?;
        let connection = state.connection(&self.line, to)?;
        let (sequence, batch) = connection.packing.begin(|| self.line.already_open(to, "to"))?;
        let place = Place { peer: to, sequence };
        let packing = Packing::new(Arc::clone(&self.line), place, batch.unwrap_or_default());
        connection.packed_now = packing.reference();
        self.line.lines.packings.fetch_add(1, Ordering::Relaxed);
        Ok(packing)
    }

    /// Begins to unpack the next message of whichever process one comes from first; waits for it.
    ///
    /// # Errors
    /// When the channel is closed.
    pub fn begin_unpacking(&self) -> Result<Unpacking> {
        drop(self.state()?);
        let (place, reader, opener) = self.line.wait(|worker| self.claim(worker).transpose())?;
        let reader = reader.unwrap_or_default();
        Ok(Unpacking::new(Arc::clone(&self.line), place, reader, Some(opener)))
    }

    /// Begins to unpack the next message of process `from`; does not wait.
    ///
    /// # Errors
    /// When there is no such process, or a message from it is being unpacked on this channel.
    pub fn begin_unpacking_from(&self, from: u32) -> Result<Unpacking> {
        let mut state = self.state()?;
        let connection = state.connection(&self.line, from)?;
        let (sequence, reader) =
            connection.unpacking.begin(|| self.line.already_open(from, "from"))?;
        let opener = state.take_aside(from);
        drop(state);
        let place = Place { peer: from, sequence };
        Ok(Unpacking::new(Arc::clone(&self.line), place, reader.unwrap_or_default(), opener))
    }

    /// Closes the channel. What comes later waits until the number is opened again.
    ///
    /// # Errors
    /// When messages are open on it.
    pub fn close(&self) -> Result<()> {
        let mut state = self.state()?;
        state.has_no_messages(self.line.number)?;
        state.is_open = false;
        drop(state);
        // Threads may wait for a message from anybody.
        self.line.progress.wake();
        Ok(())
    }

    /// The first message that waits, of a peer from which none is being unpacked.
    fn claim(&self, worker: &mut Worker) -> Result<Option<(Place, Option<Reader>, Opener)>> {
        let mut state = self.state()?;
        loop {
            if let Some(opener) = state.take_first_aside() {
                let peer = opener.peer;
                let connection = state.connection(&self.line, peer)?;
                let (sequence, reader) =
                    connection.unpacking.begin(|| self.line.already_open(peer, "from"))?;
                return Ok(Some((Place { peer, sequence }, reader, opener)));
            }
            let selector = self.line.any_opener();
            let Some((id, message)) = worker.engine.submit_matched_probe(None, selector) else {
                return Ok(None);
            };
            if message.source < self.line.size {
                state.aside.push_back(Opener { peer: message.source, id });
            } else if let Some(op) = worker.engine.submit_matched_receive(id, &Region::empty()) {
                // No process of the job sends this.
                worker.engine.release(op);
            }
        }
    }

    fn state(&self) -> Result<Guard<'_, State>> {
        let state = self.line.lock();
        if state.is_open && state.openings == self.opening {
            return Ok(state);
        }
        Err(Error::new(Fault::Channel, format!("channel {} was closed", self.line.number)))
    }
}

impl Line {
    /// Returns the envelope of an engine message.
    pub fn envelope(&self, sequence: u32, part: Part) -> Envelope {
        let (context, tag) = self.address(sequence, part);
        Envelope { context, source: self.rank, tag, is_urgent: false }
    }

    /// Returns the selector for an engine message from the peer.
    pub fn selector(&self, place: Place, part: Part) -> (Option<PeerId>, Selector) {
        let (context, tag) = self.address(place.sequence, part);
        let selector = Selector { context, source: Some(place.peer), tag: Some(tag) };
        (Some(PeerId(place.peer)), selector)
    }

    /// The first batch of the peer's next message, if somebody took it out of matching.
    pub fn take_aside(&self, peer: u32) -> Option<Opener> {
        self.lock().take_aside(peer)
    }

    /// Polls until `ready` answers. Before it waits, what was packed leaves: the peer may wait for it.
    pub fn wait<T>(&self, mut ready: impl FnMut(&mut Worker) -> Option<T>) -> T {
        if self.lines.packings.load(Ordering::Relaxed) > 0 {
            if let Some(answer) = self.progress.test(&mut ready) {
                return answer;
            }
            self.lines.emit_packed();
        }
        self.progress.wait(ready)
    }

    /// A message was packed.
    pub fn end_packing(&self, peer: u32, batch: Batch) {
        self.lines.packings.fetch_sub(1, Ordering::Relaxed);
        if let Some(connection) = self.lock().connections.get_mut(&peer) {
            connection.packing.end(batch);
        }
    }

    /// A message was unpacked.
    pub fn end_unpacking(&self, peer: u32, reader: Reader) {
        let mut state = self.lock();
        if let Some(connection) = state.connections.get_mut(&peer) {
            connection.unpacking.end(reader);
        }
        let has_next = state.aside.iter().any(|opener| opener.peer == peer);
        drop(state);
        if has_next {
            // Threads that wait for a message from anybody may have it now.
            self.progress.wake();
        }
    }

    fn address(&self, sequence: u32, part: Part) -> (u64, i32) {
        let (low, high) = (sequence & SEQUENCE_MASK, u64::from(sequence >> SEQUENCE_BITS));
        let (stream, tag) = match part {
            Part::Batch(0) => return (self.context(), (sequence & OPENER_MASK) as i32),
            Part::Batch(number) => (1, number),
            Part::Data(position) => (2, position),
        };
        (self.context() | high << HIGH_SHIFT | stream, (low << POSITION_BITS | tag) as i32)
    }

    fn any_opener(&self) -> Selector {
        Selector { context: self.context(), source: None, tag: None }
    }

    fn context(&self) -> u64 {
        CONTEXTS | u64::from(self.number) << 2
    }

    fn already_open(&self, peer: u32, way: &str) -> Error {
        let message = format!(
            "a message {way} process {peer} on channel {} has not been ended: end it first",
            self.number
        );
        Error::new(Fault::Open, message)
    }

    fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Line>>> {
        self.numbers.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    #[cold]
    fn emit_packed(&self) {
        let mut open: Vec<Reference> = Vec::new();
        for line in self.lock().values() {
            open.extend(line.lock().connections.values().map(|known| known.packed_now.clone()));
        }
        open.iter().for_each(Reference::emit);
    }
}

impl State {
    fn connection(&mut self, line: &Line, peer: u32) -> Result<&mut Connection> {
        if peer >= line.size {
            let message = format!("process {peer} of a job of {}", line.size);
            return Err(Error::new(Fault::Rank, message));
        }
        Ok(self.connections.entry(peer).or_default())
    }

    fn take_aside(&mut self, peer: u32) -> Option<Opener> {
        let at = self.aside.iter().position(|opener| opener.peer == peer)?;
        self.aside.remove(at)
    }

    fn take_first_aside(&mut self) -> Option<Opener> {
        let Self { aside, connections, .. } = self;
        let is_free = |opener: &Opener| {
            connections.get(&opener.peer).is_none_or(|connection| !connection.unpacking.is_open)
        };
        let at = aside.iter().position(is_free)?;
        aside.remove(at)
    }

    fn has_no_messages(&self, number: u32) -> Result<()> {
        let busy = |(peer, connection): (&u32, &Connection)| {
            let Connection { packing, unpacking, .. } = connection;
            match (packing.is_open, unpacking.is_open) {
                (true, _) => Some((*peer, "to")),
                (_, true) => Some((*peer, "from")),
                (false, false) => None,
            }
        };
        let Some((peer, way)) = self.connections.iter().find_map(busy) else { return Ok(()) };
        let message = format!(
            "channel {number} has a message {way} process {peer} that was not ended: end it first"
        );
        Err(Error::new(Fault::Open, message))
    }
}

impl<T> Side<T> {
    fn begin(&mut self, busy: impl FnOnce() -> Error) -> Result<(u32, Option<T>)> {
        if self.is_open {
            return Err(busy());
        }
        self.is_open = true;
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        Ok((sequence, self.spare.take()))
    }

    fn end(&mut self, spare: T) {
        self.is_open = false;
        self.spare = Some(spare);
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Channel numbers are below this.
pub const CHANNELS_MAX: u32 = 1 << 16;

/// A message has fewer packets, and at most as many batches.
pub const PACKETS_MAX: u32 = 1 << POSITION_BITS;

/// The bit that no communicator's context has: theirs begin with the leader's rank, which is below 2²⁹.
const CONTEXTS: u64 = 1 << 63;

const POSITION_BITS: u32 = 20;

/// Number of bits of a message's number in the tag; the rest is in the context. Therefore a receive left over from
/// unpacking too much never matches a later message.
const SEQUENCE_BITS: u32 = 10;
const SEQUENCE_MASK: u32 = (1 << SEQUENCE_BITS) - 1;
const HIGH_SHIFT: u32 = 32;

const OPENER_MASK: u32 = (1 << 30) - 1;
