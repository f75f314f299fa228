//! A message being packed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use engine::{OpId, Outcome, SendMode};
use lock::{Held, Missing, OwnedCell};
use memory::Region;
use progress::Worker;
use wire::PeerId;

use crate::batch::{Batch, INLINE_MAX};
use crate::channel::{Line, PACKETS_MAX, Part, Place};
use crate::unpacking::gone;
use crate::{Constraints, Error, Fault, Next, Result, Send};

/// A message being packed. Clones are the same message. One that is never ended is never sent whole, and
/// keeps its connection.
#[derive(Clone, Debug)]
pub struct Packing(Arc<Inner>);

/// A message that may be being packed still.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference(Weak<Inner>);

#[derive(Debug)]
struct Inner {
    line: Arc<Line>,
    place: Place,
    /// Used by the thread that packs. Others, before they wait, let what is packed leave.
    draft: OwnedCell<Draft>,
    has_ended: AtomicBool,
}

/// A message until it has ended.
#[derive(Debug)]
struct Draft {
    batch: Batch,
    packets: u32,
    /// Maximum number of packets for which short ones are just copied into the batch; 0 while separate data are queued.
    short_max: u32,
    batches: u32,
    /// Packets whose memory must not be read yet, in order.
    late: Vec<Late>,
    /// Data that go apart, behind the batch that holds their records.
    queued: Vec<(u32, Region)>,
    /// Sends in flight.
    ops: Vec<OpId>,
}

#[derive(Debug)]
struct Late {
    position: u32,
    data: Region,
    constraints: Constraints,
    /// Its record is written, so that its data go apart.
    recorded: bool,
}

impl Packing {
    pub(crate) fn new(line: Arc<Line>, place: Place, batch: Batch) -> Self {
        let draft = Draft {
            batch,
            packets: 0,
            short_max: PACKETS_MAX - 1,
            batches: 0,
            late: Vec::new(),
            queued: Vec::new(),
            ops: Vec::new(),
        };
        let has_ended = AtomicBool::new(false);
        Self(Arc::new(Inner { line, place, draft: OwnedCell::new(draft), has_ended }))
    }

    pub(crate) fn reference(&self) -> Reference {
        Reference(Arc::downgrade(&self.0))
    }

    /// To whom it goes.
    pub fn peer(&self) -> u32 {
        self.0.place.peer
    }

    /// Adds `data`, which is read when `constraints` say.
    ///
    /// # Errors
    /// When the message has ended, has as many packets as a message can have, or is in use by another
    /// thread.
    pub fn pack(&self, data: &Region, constraints: Constraints, next: Next) -> Result<()> {
        let mut draft = self.0.take_turn()?;
        if next != Next::Computing && draft.has_room(constraints, data.len()) {
            draft.packets += 1;
            draft.batch.put_region(constraints, data);
            return Ok(());
        }
        self.0.pack_any(&mut draft, data, constraints, next)
    }

    /// Adds `data`, which are not read late, where no more is to do than to copy them; else false.
    #[inline(always)]
    pub(crate) fn pack_short(&self, data: &[u8], constraints: Constraints) -> bool {
        debug_assert!(constraints.send != Send::Later);
        let Some(mut draft) = self.0.draft.take_at_once() else { return false };
        let is_put = draft.packets < draft.short_max && draft.batch.put_inline(constraints, data);
        draft.packets += u32::from(is_put);
        is_put
    }

    /// Ends the message, and waits until nothing of the packets' memory is needed any more.
    ///
    /// # Errors
    /// When the message has ended, is in use by another thread, or the peer is gone; then it has ended
    /// too.
    pub fn end(&self) -> Result<()> {
        let inner = &*self.0;
        let mut draft = inner.take_turn()?.keep();
        for late in std::mem::take(&mut draft.late) {
            let Late { position, data, constraints, recorded } = late;
            if recorded {
                draft.queued.push((position, data));
            } else {
                inner.put(&mut draft, position, &data, constraints);
            }
        }
        draft.batch.put_end();
        inner.emit(&mut draft);
        let sent = inner.wait(&mut draft.ops);
        inner.has_ended.store(true, Ordering::Relaxed);
        inner.line.end_packing(inner.place.peer, draft.batch);
        sent
    }
}

impl Reference {
    /// Lets what is packed leave.
    pub fn emit(&self) {
        let Some(inner) = self.0.upgrade() else { return };
        if let Some(mut draft) = inner.draft.help() {
            inner.emit(&mut draft);
        }
    }
}

impl Draft {
    /// True if a packet only needs to be copied into the batch.
    fn has_room(&self, constraints: Constraints, len: usize) -> bool {
        let is_short = len <= INLINE_MAX && self.batch.has_room(len);
        constraints.send != Send::Later && is_short && self.packets < self.short_max
    }

    /// Takes note of whether others are to go beside the batch.
    fn note_others(&mut self) {
        let has_none = self.late.is_empty() && self.queued.is_empty();
        self.short_max = if has_none { PACKETS_MAX - 1 } else { 0 };
    }
}

impl Inner {
    fn take_turn(&self) -> Result<Held<'_, Draft>> {
        self.draft.take().map_err(|missing| match missing {
            Missing::Gone if self.has_ended.load(Ordering::Relaxed) => ended(),
            Missing::Used | Missing::Gone => busy(),
        })
    }

    fn pack_any(
        &self,
        draft: &mut Draft,
        data: &Region,
        constraints: Constraints,
        next: Next,
    ) -> Result<()> {
        if draft.packets + 1 == PACKETS_MAX {
            let message = format!("a message has fewer than {PACKETS_MAX} packets");
            return Err(Error::new(Fault::Limit, message));
        }
        let position = draft.packets;
        draft.packets += 1;
        let has_waited = !draft.queued.is_empty();
        if constraints.send == Send::Later {
            let data = data.clone();
            draft.late.push(Late { position, data, constraints, recorded: false });
        } else {
            self.record_late(draft);
            self.put(draft, position, data, constraints);
        }
        let more_at_once =
            matches!(next, Next::Packet(Constraints { send: Send::Safer | Send::Cheaper, .. }));
        if next == Next::Computing || (has_waited && !more_at_once) {
            self.emit(draft);
        }
        if next == Next::Computing {
            self.line.progress.submit(Worker::release_coalesced);
        }
        draft.note_others();
        Ok(())
    }

    /// Writes the records of packets that are read late, before those of others.
    fn record_late(&self, draft: &mut Draft) {
        for index in 0..draft.late.len() {
            let Late { ref data, constraints, recorded, .. } = draft.late[index];
            if !recorded {
                let bytes = data.len() as u64;
                self.make_room(draft, INLINE_MAX + 1);
                draft.batch.put_apart(constraints, bytes);
                draft.late[index].recorded = true;
            }
        }
    }

    fn put(&self, draft: &mut Draft, position: u32, data: &Region, constraints: Constraints) {
        self.make_room(draft, data.len());
        if data.len() <= INLINE_MAX {
            return draft.batch.put_region(constraints, data);
        }
        draft.batch.put_apart(constraints, data.len() as u64);
        let data = match constraints.send {
            Send::Safer => Region::from_box(data.to_vec().into()),
            Send::Later | Send::Cheaper => data.clone(),
        };
        draft.queued.push((position, data));
    }

    fn make_room(&self, draft: &mut Draft, len: usize) {
        if !draft.batch.has_room(len) {
            self.emit(draft);
        }
    }

    /// Hands the batch to the engine, and the data behind it.
    fn emit(&self, draft: &mut Draft) {
        let Draft { batch, batches, queued, ops, .. } = draft;
        if batch.is_empty() && queued.is_empty() {
            return;
        }
        let Self { line, place, .. } = self;
        let peer = PeerId(place.peer);
        let envelope = |part| line.envelope(place.sequence, part);
        let send = |worker: &mut Worker, part: Part, data: &Region| {
            worker.engine.submit_send(peer, envelope(part), data, SendMode::Standard)
        };
        let written = (!batch.is_empty()).then(|| {
            *batches += 1;
            (Part::Batch(*batches - 1), batch.written())
        });
        if let Some((part, data)) = &written
            && queued.is_empty()
            && line.progress.send_short(peer, envelope(*part), data)
        {
            return batch.clear();
        }
        // The engine reads from its memory until it is sent.
        *batch = Batch::default();
        let apart = queued.drain(..).map(|(position, data)| (Part::Data(position), data));
        let all = written.into_iter().chain(apart);
        line.progress
            .submit(|worker| ops.extend(all.map(|(part, data)| send(worker, part, &data))));
    }

    fn wait(&self, ops: &mut Vec<OpId>) -> Result<()> {
        let mut lost = false;
        if !ops.is_empty() {
            self.line.wait(|worker| {
                while let Some(&op) = ops.last() {
                    let completion = worker.engine.take(op)?;
                    lost |= completion.outcome == Outcome::PeerFailed;
                    ops.pop();
                }
                Some(())
            });
        }
        if lost {
            Err(self.line.progress.look(|worker| gone(worker, self.place.peer)))
        } else {
            Ok(())
        }
    }
}

/// The error of a message that another thread is at.
#[cold]
pub(crate) fn busy() -> Error {
    Error::new(Fault::Busy, "a message is packed or unpacked by one thread at a time")
}

/// The error of a message that has been ended.
#[cold]
pub(crate) fn ended() -> Error {
    Error::new(Fault::State, "the message was ended before")
}
