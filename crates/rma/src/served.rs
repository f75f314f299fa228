//! Windows of this process that peers reach, and the handlers of their calls.

use std::sync::Arc;

use engine::{CallError, ExposedMemory, Handler, HandlerId, IncomingCall, Replies, ReplyTo};
use lock::Lock;
use progress::Progress;
use wire::{PeerId, RemoteKey};

use crate::combine::Combination;
use crate::control::Control;
use crate::locks::{self, LockKind, LockWait, Queue};
use crate::pieces::{PieceRun, REPLY_MAX};
use crate::request::{self, CallKind};

/// Windows of a process that peers reach. A process has one, for all its windows.
#[derive(Debug)]
pub struct Served {
    /// By the index of their keys.
    windows: Lock<Vec<Option<Arc<Guarded>>>>,
}

/// Guards of the memory of one window.
#[derive(Debug)]
pub(crate) struct Guarded {
    key: RemoteKey,
    pub control: Control,
    /// Ranks that take and give back the lock by its word.
    near: Vec<u32>,
    lock: Lock<LockState>,
}

/// The lock of a window, as its target knows it.
#[derive(Debug, Default)]
struct LockState {
    queue: Queue<ReplyTo>,
    /// Those that hold it and give it back by a call. A process holds it once.
    holders: Vec<LockHolder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockHolder {
    peer: PeerId,
    rank: u32,
    kind: LockKind,
}

impl Served {
    /// Makes the windows of a process, and sets the handlers of its worker.
    pub fn new(progress: &Progress) -> Arc<Self> {
        let served = Arc::new(Self { windows: Lock::new(Vec::new()) });
        progress.look(|worker| {
            for kind in CallKind::ALL {
                let handler = CallHandler { kind, served: Arc::clone(&served) };
                worker.engine.set_handler(kind.handler(), Box::new(handler));
            }
        });
        served
    }

    /// Adds a window. The `near` ranks take and give back its lock by the word.
    pub(crate) fn add(&self, key: RemoteKey, control: Control, near: Vec<u32>) -> Arc<Guarded> {
        let lock = Lock::new(LockState::default());
        let guarded = Arc::new(Guarded { key, control, near, lock });
        let mut windows = self.windows.lock();
        let index = key.index as usize;
        if windows.len() <= index {
            windows.resize(index + 1, None);
        }
        windows[index] = Some(Arc::clone(&guarded));
        guarded
    }

    pub(crate) fn remove(&self, key: RemoteKey) {
        if let Some(place) = self.windows.lock().get_mut(key.index as usize) {
            place.take_if(|guarded| guarded.key == key);
        }
    }

    fn find(&self, key: RemoteKey) -> Result<Arc<Guarded>, &'static str> {
        let windows = self.windows.lock();
        let found = windows.get(key.index as usize).and_then(Option::as_ref);
        let found = found.filter(|guarded| guarded.key == key);
        found.cloned().ok_or("there is no such window")
    }
}

impl Guarded {
    /// Grants the lock to those who wait for it, as far as it is free.
    pub fn serve_queue(&self, replies: &mut Replies) {
        self.serve(&mut self.lock.lock(), replies);
    }

    fn serve(&self, LockState { queue, holders }: &mut LockState, replies: &mut Replies) {
        queue.serve(self.control.lock_word(), &mut |LockWait { kind, rank, process }| {
            if !self.near.contains(&rank) {
                holders.push(LockHolder { peer: process.peer(), rank, kind });
            }
            replies.send(process, &[]);
        });
    }

    /// Queues a process, and grants the lock as far as it is free.
    fn ask(
        &self,
        call: &IncomingCall<'_>,
        (kind, rank): (u64, u64),
        replies: &mut Replies,
    ) -> Result<(), CallError> {
        let kind = LockKind::numbered(kind).ok_or(NO_LOCK)?;
        let rank = u32::try_from(rank).map_err(|_| NO_RANK)?;
        let mut state = self.lock.lock();
        // A process holds the lock of a target once, so it waits once: both lists are bounded.
        let is_queued = state.queue.has(|process| process.peer() == call.peer);
        if is_queued || state.holders.iter().any(|holder| holder.peer == call.peer) {
            return Err("a process asks twice for a lock".into());
        }
        state.queue.ask(LockWait { kind, rank, process: call.reply_to });
        self.serve(&mut state, replies);
        Ok(())
    }

    /// Takes the lock back from a process that was granted it.
    fn unlock(
        &self,
        call: &IncomingCall<'_>,
        kind: u64,
        replies: &mut Replies,
    ) -> Result<(), CallError> {
        let kind = LockKind::numbered(kind).ok_or(NO_LOCK)?;
        let is_it = |holder: &LockHolder| holder.peer == call.peer && holder.kind == kind;
        let mut state = self.lock.lock();
        let held = state.holders.iter().position(is_it).ok_or("the lock is not held")?;
        state.holders.swap_remove(held);
        if locks::give_back(self.control.lock_word(), kind) {
            self.serve(&mut state, replies);
        }
        Ok(())
    }

    /// Refuses the lock to those who cannot get it because a rank that is gone holds it. The word does not tell who shares the
    /// lock: a rank that takes it by the word counts as one of them, if there are any.
    fn note_lost(&self, rank: u64, replies: &mut Replies) -> Result<(), CallError> {
        let rank = u32::try_from(rank).map_err(|_| NO_RANK)?;
        let word = self.control.lock_word();
        let mut state = self.lock.lock();
        state.queue.forget(rank);
        self.serve(&mut state, replies);
        let holders = &state.holders;
        let granted = holders.iter().filter(|holder| holder.kind == LockKind::Shared).count();
        let may_share = self.near.contains(&rank) && locks::sharers(word) > granted as u64;
        let was_granted = holders.iter().any(|holder| holder.rank == rank);
        let is_held = may_share || was_granted || locks::owner(word) == Some(rank);
        while is_held && let Some(first) = state.queue.pop(word) {
            replies.refuse(first.process);
            self.serve(&mut state, replies);
        }
        Ok(())
    }
}

const NO_LOCK: &str = "there is no such lock";
const NO_RANK: &str = "there is no such rank";

/// Handler of one kind of call.
#[derive(Debug)]
struct CallHandler {
    kind: CallKind,
    served: Arc<Served>,
}

impl Handler for CallHandler {
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        memory: &ExposedMemory,
        replies: &mut Replies,
    ) -> Result<(), CallError> {
        let [key, what, detail] = call.arguments;
        let key = request::key_of(key);
        let guarded = self.served.find(key)?;
        match self.kind {
            CallKind::Accumulate => {
                accumulate(call, (key, memory), &guarded, (what, detail), replies)
            }
            CallKind::CompareAndSwap => {
                compare_and_swap(call, (key, memory), &guarded, (what, detail), replies)
            }
            CallKind::Lock => guarded.ask(call, (what, detail), replies),
            CallKind::Unlock => guarded.unlock(call, what, replies),
            CallKind::Lost => guarded.note_lost(what, replies),
            CallKind::GivenBack => {
                guarded.serve_queue(replies);
                Ok(())
            }
            CallKind::Put => put(call, (key, memory), what, replies),
            CallKind::Get => get(call, (key, memory), what, replies),
        }
    }
}

fn accumulate(
    call: &IncomingCall<'_>,
    (key, memory): (RemoteKey, &ExposedMemory),
    guarded: &Guarded,
    (number, runs): (u64, u64),
    replies: &mut Replies,
) -> Result<(), CallError> {
    let combination = Combination::numbered(number).ok_or("there is no such combination")?;
    let (runs, mut data) = request::runs_of(call.payload, runs).ok_or(SHORT_RUNS)?;
    let mut old = Vec::new();
    for (offset, count) in runs {
        let len = count as usize * combination.size();
        let own = data.split_off(..len).ok_or("the data are too short")?;
        let Some(last) = count.checked_sub(1) else { continue };
        let reach = last as usize * combination.extent() + combination.size();
        let found = memory.take(key, offset, reach as u64)?;
        combination.apply(&found, 0, own, &guarded.control, &mut |one| {
            if call.reply_to.wants_data() {
                old.extend_from_slice(one);
            }
        });
    }
    if !data.is_empty() {
        return Err("there are more data than elements".into());
    }
    replies.send(call.reply_to, &old);
    Ok(())
}

fn compare_and_swap(
    call: &IncomingCall<'_>,
    (key, memory): (RemoteKey, &ExposedMemory),
    guarded: &Guarded,
    (number, offset): (u64, u64),
    replies: &mut Replies,
) -> Result<(), CallError> {
    let combination = Combination::numbered(number).ok_or("there is no such combination")?;
    let size = combination.simple_size().ok_or("elements of this type cannot be swapped")?;
    let values = call.payload.split_at_checked(size).filter(|(_, new)| new.len() == size);
    let (compare, new) = values.ok_or("there are not two elements")?;
    let found = memory.take(key, offset, size as u64)?;
    let reply = |old: &[u8]| replies.send(call.reply_to, old);
    combination.compare_and_swap(&found, 0, (compare, new), &guarded.control, reply);
    Ok(())
}

fn put(
    call: &IncomingCall<'_>,
    (key, memory): (RemoteKey, &ExposedMemory),
    runs: u64,
    replies: &mut Replies,
) -> Result<(), CallError> {
    let (runs, mut data) = PieceRun::decode(call.payload, runs).ok_or(SHORT_RUNS)?;
    for run in runs {
        let len = run.len as usize;
        let bytes = usize::try_from(run.bytes()).ok().filter(|bytes| *bytes > 0);
        let own =
            bytes.and_then(|bytes| data.split_off(..bytes)).ok_or("the data are too short")?;
        let mut pieces = own.chunks_exact(len);
        let put = run.visit(memory, key, |memory, at| {
            if let Some(piece) = pieces.next() {
                memory.write(at, piece);
            }
        });
        put?;
    }
    if !data.is_empty() {
        return Err("there are more data than pieces".into());
    }
    replies.send(call.reply_to, &[]);
    Ok(())
}

fn get(
    call: &IncomingCall<'_>,
    (key, memory): (RemoteKey, &ExposedMemory),
    runs: u64,
    replies: &mut Replies,
) -> Result<(), CallError> {
    let (runs, _) = PieceRun::decode(call.payload, runs).ok_or(SHORT_RUNS)?;
    let mut reply = Vec::new();
    for run in runs {
        let room = REPLY_MAX - reply.len();
        if run.bytes() == 0 || run.bytes() > room as u64 {
            return Err("the pieces are too long, or empty".into());
        }
        let got = run.visit(memory, key, |memory, at| {
            let from = reply.len();
            reply.resize(from + run.len as usize, 0);
            memory.read(at, &mut reply[from..]);
        });
        got?;
    }
    replies.send(call.reply_to, &reply);
    Ok(())
}

const SHORT_RUNS: &str = "the runs are too short";

impl CallKind {
    /// Number of its handler.
    pub fn handler(self) -> HandlerId {
        HandlerId(FIRST_HANDLER + self as u16)
    }
}

/// Number of the first handler of windows.
const FIRST_HANDLER: u16 = 1;
