//! A message being packed.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use engine::{OpId, Outcome, SendMode};
use memory::Region;
use progress::Core;
use wire::GateId;

use crate::batch::{Batch, INLINE_MAX};
use crate::channel::{Desk, Line, PACKETS_MAX, Part, Place, batch_memory};
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
    /// Held while a thread packs or ends.
    turn: Mutex<()>,
    /// Another thread, before it waits, only lets what is packed leave.
    draft: Mutex<Option<Draft>>,
}

/// A message until it has ended.
#[derive(Debug)]
struct Draft {
    desk: Desk,
    packets: u32,
    batches: u32,
    /// Packets whose memory must not be read yet, in order.
    late: Vec<Late>,
    /// Data that go apart, behind the batch that holds their records.
    queued: Vec<(u32, Region)>,
    /// What the engine has not sent.
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
    pub(crate) fn new(line: Arc<Line>, place: Place, desk: Desk) -> Self {
        let draft = Draft {
            desk,
            packets: 0,
            batches: 0,
            late: Vec::new(),
            queued: Vec::new(),
            ops: Vec::new(),
        };
        Self(Arc::new(Inner { line, place, turn: Mutex::new(()), draft: Mutex::new(Some(draft)) }))
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
        let inner = &*self.0;
        let _turn = in_use_by_one(&inner.turn)?;
        let mut guard = inner.draft.lock().unwrap_or_else(|poison| poison.into_inner());
        let draft = guard.as_mut().ok_or_else(ended)?;
        if draft.packets + 1 == PACKETS_MAX {
            let message = format!("a message has fewer than {PACKETS_MAX} packets");
            return Err(Error::new(Fault::Limit, message));
        }
        let position = draft.packets;
        draft.packets += 1;
        let data = data.clone();
        let has_waited = !draft.queued.is_empty();
        let is_late = constraints.send == Send::Later;
        if is_late {
            draft.late.push(Late { position, data, constraints, recorded: false });
        } else {
            inner.record_late(draft);
            inner.put(draft, position, data, constraints);
        }
        let more_at_once =
            matches!(next, Next::Packet(Constraints { send: Send::Safer | Send::Cheaper, .. }));
        if next == Next::Computing || (has_waited && !more_at_once) {
            inner.emit(draft);
        }
        if next == Next::Computing {
            inner.line.progress.submit(Core::release_gathered);
        }
        Ok(())
    }

    /// Ends the message, and waits until nothing of the packets' memory is needed any more.
    ///
    /// # Errors
    /// When the message has ended, is in use by another thread, or the peer is gone; then it has ended
    /// too.
    pub fn end(&self) -> Result<()> {
        let inner = &*self.0;
        let _turn = in_use_by_one(&inner.turn)?;
        let mut guard = inner.draft.lock().unwrap_or_else(|poison| poison.into_inner());
        let mut draft = guard.take().ok_or_else(ended)?;
        for late in std::mem::take(&mut draft.late) {
            let Late { position, data, constraints, recorded } = late;
            if recorded {
                draft.queued.push((position, data));
            } else {
                inner.put(&mut draft, position, data, constraints);
            }
        }
        draft.desk.batch.put_end();
        inner.emit(&mut draft);
        let sent = inner.wait(&mut draft.ops);
        inner.line.end_packing(inner.place.peer, draft.desk);
        sent
    }
}

impl Reference {
    /// Lets what is packed leave, unless its thread is at it.
    pub fn emit(&self) {
        let Some(inner) = self.0.upgrade() else { return };
        let Ok(mut guard) = inner.draft.try_lock() else { return };
        if let Some(draft) = &mut *guard {
            inner.emit(draft);
        }
    }
}

impl Inner {
    /// Writes the records of packets that are read late, before those of others.
    fn record_late(&self, draft: &mut Draft) {
        for index in 0..draft.late.len() {
            let Late { ref data, constraints, recorded, .. } = draft.late[index];
            if !recorded {
                let bytes = data.len() as u64;
                self.make_room(draft, INLINE_MAX + 1);
                draft.desk.batch.put_apart(constraints, bytes);
                draft.late[index].recorded = true;
            }
        }
    }

    fn put(&self, draft: &mut Draft, position: u32, data: Region, constraints: Constraints) {
        self.make_room(draft, data.len());
        if data.len() <= INLINE_MAX {
            return draft.desk.batch.put_inline(constraints, &data);
        }
        draft.desk.batch.put_apart(constraints, data.len() as u64);
        let data = match constraints.send {
            Send::Safer => Region::from_box(data.to_vec().into()),
            Send::Later | Send::Cheaper => data,
        };
        draft.queued.push((position, data));
    }

    fn make_room(&self, draft: &mut Draft, len: usize) {
        if !draft.desk.batch.has_room(len) {
            self.emit(draft);
        }
    }

    /// Hands the batch to the engine, and the data behind it.
    fn emit(&self, draft: &mut Draft) {
        let Draft { desk: Desk { batch, memory }, batches, queued, ops, .. } = draft;
        if batch.is_empty() && queued.is_empty() {
            return;
        }
        let Self { line, place, .. } = self;
        let gate = GateId(place.peer);
        let envelope = |part| line.envelope(place.sequence, part);
        let send = |core: &mut Core, part: Part, data: &Region| {
            core.engine.submit_send(gate, envelope(part), data, SendMode::Standard)
        };
        let written = (!batch.is_empty()).then(|| {
            *batches += 1;
            (Part::Batch(*batches - 1), write(batch, memory))
        });
        if let Some((part, data)) = &written
            && queued.is_empty()
            && line.progress.send_short(gate, envelope(*part), data)
        {
            return;
        }
        // The engine reads from it until it is sent.
        *memory = batch_memory();
        let apart = queued.drain(..).map(|(position, data)| (Part::Data(position), data));
        let all = written.into_iter().chain(apart);
        line.progress.submit(|core| ops.extend(all.map(|(part, data)| send(core, part, &data))));
    }

    fn wait(&self, ops: &mut Vec<OpId>) -> Result<()> {
        let mut lost = false;
        if !ops.is_empty() {
            self.line.wait(|core| {
                while let Some(&op) = ops.last() {
                    let completion = core.engine.take(op)?;
                    lost |= completion.outcome == Outcome::PeerFailed;
                    ops.pop();
                }
                Some(())
            });
        }
        if lost { Err(self.line.progress.look(|core| gone(core, self.place.peer))) } else { Ok(()) }
    }
}

fn write(batch: &mut Batch, memory: &Region) -> Region {
    memory.write(0, batch.bytes());
    let data = memory.slice(0, batch.bytes().len());
    batch.clear();
    data
}

/// The lock of an object that one thread uses at a time.
pub(crate) fn in_use_by_one<T>(state: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    match state.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poison)) => Ok(poison.into_inner()),
        Err(TryLockError::WouldBlock) => {
            let message = "a message is packed or unpacked by one thread at a time";
            Err(Error::new(Fault::Busy, message))
        }
    }
}

/// The error of a message that has been ended.
#[cold]
pub(crate) fn ended() -> Error {
    Error::new(Fault::State, "the message was ended before")
}
