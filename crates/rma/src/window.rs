//! A window, as one process sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use engine::{OpId, Outcome, Wanted};
use lock::Lock;
use memory::Region;
use progress::Progress;
use wire::{PeerId, RemoteKey};

use crate::control::Control;
use crate::delayed::Delayed;
use crate::fault::{AccessFault, Result};
use crate::locks::{self, LockKind};
use crate::node_memory::NodeMemory;
use crate::outstanding::{Outstanding, TargetFailed};
use crate::pending::PendingAccess;
use crate::request::{self, CallKind};
use crate::served::{Guarded, Served};

/// Memory that a process contributes to a window.
#[derive(Clone, Debug)]
pub enum WindowMemory {
    /// Memory that only this process maps.
    Own(Region),
    /// Memory of the processes of a node, with their ranks in the window in the order of the parts.
    Node(NodeMemory, Vec<u32>),
    /// None. Memory is attached later, and named by its address.
    Dynamic,
}

/// Description of a process's part of a window for the others.
pub type Card = [u8; 24];

/// A window, as one process sees it.
#[derive(Debug)]
pub struct Window {
    pub(crate) inner: Arc<WindowState>,
    /// The processes, once the window is open.
    targets: Arc<[Target]>,
    /// Operations of a request are listed here, and others with their target.
    sink: Option<Lock<Vec<(u32, OpId)>>>,
    /// Accumulates that wait, if the program demands no order of them.
    pub(crate) delayed: Option<Box<Delayed>>,
}

pub(crate) struct WindowState {
    pub progress: Arc<Progress>,
    served: Arc<Served>,
    rank: u32,
    key: RemoteKey,
    own: Arc<Guarded>,
    memory: WindowMemory,
}

/// A process of the window.
#[derive(Debug)]
pub(crate) struct Target {
    pub peer: PeerId,
    pub key: RemoteKey,
    pub len: u64,
    unit: u32,
    pub mapped: Option<Mapped>,
    pub outstanding: Outstanding<OpId>,
    /// True if the target has refused an operation, and nobody was told yet.
    has_refused: AtomicBool,
}

/// Memory of a target that this process maps too.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub memory: Region,
    pub control: Control,
}

impl fmt::Debug for WindowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, key) = (self.rank, self.key);
        f.debug_struct("WindowState")
            .field("rank", &rank)
            .field("key", &key)
            .finish_non_exhaustive()
    }
}

/// Making and ending.
impl Window {
    /// Exposes this process's memory, with a displacement unit in bytes, as rank `rank` of a window. The card is for all
    /// processes of the window, which then call [`Window::open`].
    pub fn expose(
        progress: &Arc<Progress>,
        served: &Arc<Served>,
        rank: u32,
        memory: WindowMemory,
        unit: u32,
    ) -> (Self, Card) {
        let (own, control) = match &memory {
            WindowMemory::Own(region) => (Some(region.clone()), Control::Own(Arc::default())),
            WindowMemory::Node(node, ranks) => {
                let position = ranks.iter().position(|one| *one == rank).unwrap_or(0);
                (Some(node.part(position)), node.control(position))
            }
            WindowMemory::Dynamic => (None, Control::Own(Arc::default())),
        };
        let len = own.as_ref().map_or(u64::MAX, |own| own.len() as u64);
        let key = progress.submit(|worker| match own {
            Some(own) => worker.engine.expose(own),
            None => worker.engine.expose_pieces(),
        });
        let near = match &memory {
            WindowMemory::Node(_, ranks) => ranks.clone(),
            WindowMemory::Own(_) | WindowMemory::Dynamic => vec![rank],
        };
        let own = served.add(key, control, near);
        let (progress, served) = (Arc::clone(progress), Arc::clone(served));
        let inner = Arc::new(WindowState { progress, served, rank, key, own, memory });
        let mut card = [0; 24];
        card[..8].copy_from_slice(&request::argument_of(key).to_le_bytes());
        card[8..16].copy_from_slice(&len.to_le_bytes());
        card[16..20].copy_from_slice(&unit.to_le_bytes());
        (Self { inner, targets: Arc::default(), sink: None, delayed: None }, card)
    }

    /// Makes the processes of the window known: peer and card of each rank.
    pub fn open(&mut self, peers: Vec<PeerId>, cards: &[Card]) {
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let target = |((rank, peer), card): ((u32, PeerId), &Card)| Target {
            peer,
            key: request::key_of(number(&card[..8])),
            len: number(&card[8..16]),
            unit: number(&card[16..20]) as u32,
            mapped: self.inner.mapped(rank),
            outstanding: Outstanding::new(),
            has_refused: AtomicBool::new(false),
        };
        self.targets = (0..).zip(peers).zip(cards).map(target).collect();
    }

    /// Permits that accumulates of this process on an element are applied in another order than that of the calls.
    pub fn ignore_accumulate_order(&mut self) {
        self.delayed = Some(Box::default());
    }

    /// Withdraws the memory of this process. All processes have flushed their operations and met before.
    pub fn close(&self) {
        let WindowState { progress, served, key, .. } = &*self.inner;
        served.remove(*key);
        progress.submit(|worker| worker.engine.withdraw(*key));
    }

    /// Length of a target's window in bytes.
    #[inline]
    pub fn len(&self, rank: u32) -> u64 {
        self.target(rank).len
    }

    /// Displacement unit of a target in bytes.
    #[inline]
    pub fn unit(&self, rank: u32) -> u32 {
        self.target(rank).unit
    }

    /// Memory of a target that this process maps too, or its own.
    pub fn memory(&self, rank: u32) -> Option<&Region> {
        self.target(rank).mapped.as_ref().map(|mapped| &mapped.memory)
    }

    /// Attaches memory, which peers name by its address.
    ///
    /// # Errors
    /// It overlaps attached memory, or memory is not attached to this window.
    pub fn attach(&self, memory: Region) -> Result<()> {
        let Some(span) = memory.as_span().filter(|span| span.len > 0) else { return Ok(()) };
        let (key, address) = (self.inner.key, span.address as u64);
        let attached =
            self.inner.progress.submit(|worker| worker.engine.attach(key, address, memory));
        if attached { Ok(()) } else { Err(AccessFault::Attach) }
    }

    /// Detaches the memory that begins at this address.
    ///
    /// # Errors
    /// None is attached there.
    pub fn detach(&self, address: u64) -> Result<()> {
        let key = self.inner.key;
        let detached = self.inner.progress.submit(|worker| worker.engine.detach(key, address));
        if detached { Ok(()) } else { Err(AccessFault::Attach) }
    }

    #[inline]
    pub(crate) fn target(&self, rank: u32) -> &Target {
        &self.targets[rank as usize]
    }
}

impl WindowState {
    /// Memory of a rank that this process maps.
    fn mapped(&self, rank: u32) -> Option<Mapped> {
        match &self.memory {
            WindowMemory::Own(memory) => (rank == self.rank)
                .then(|| Mapped { memory: memory.clone(), control: self.own.control.clone() }),
            WindowMemory::Node(node, ranks) => {
                let position = ranks.iter().position(|one| *one == rank)?;
                Some(Mapped { memory: node.part(position), control: node.control(position) })
            }
            WindowMemory::Dynamic => None,
        }
    }
}

/// Completion.
impl Window {
    /// Runs `submit` on the window; returns its operations as those of a request.
    ///
    /// # Errors
    /// Those of `submit`.
    pub fn with_request(&self, submit: impl FnOnce(&Self) -> Result<()>) -> Result<PendingAccess> {
        let (inner, targets) = (Arc::clone(&self.inner), Arc::clone(&self.targets));
        let window = Self { inner, targets, sink: Some(Lock::new(Vec::new())), delayed: None };
        submit(&window)?;
        let ops = window.sink.map(|sink| std::mem::take(&mut *sink.lock())).unwrap_or_default();
        Ok(PendingAccess::new(ops))
    }

    /// True if a request stands for the operations that are submitted.
    pub(crate) fn is_of_request(&self) -> bool {
        self.sink.is_some()
    }

    /// Lists an operation on a target.
    pub(crate) fn note(&self, rank: u32, op: OpId) {
        let outstanding = &self.target(rank).outstanding;
        if let Some(sink) = &self.sink {
            sink.lock().push((rank, op));
            outstanding.list_of_request(op);
            return;
        }
        // A failure of the target is reported by what completes the operations.
        if outstanding.list(op) >= OPERATIONS_MAX && self.flush_local(rank).is_err() {
            outstanding.note_failed();
        }
    }

    /// Completes all operations on a target, there and here.
    ///
    /// # Errors
    /// The target has failed.
    #[inline]
    pub fn flush(&self, rank: u32) -> Result<()> {
        self.sync();
        if self.target(rank).outstanding.is_empty() { Ok(()) } else { self.flush_target(rank) }
    }

    #[inline(never)]
    fn flush_target(&self, rank: u32) -> Result<()> {
        self.apply_all_delayed(rank);
        self.begin_flush(self.target(rank));
        self.complete(rank)
    }

    /// Completes all operations on all targets, there and here.
    ///
    /// # Errors
    /// A target has failed.
    pub fn flush_all(&self) -> Result<()> {
        self.apply_all_delayed(self.inner.rank);
        self.sync();
        self.targets.iter().for_each(|target| self.begin_flush(target));
        self.flush_local_all()
    }

    /// Asks a target to tell when it has applied what was sent.
    fn begin_flush(&self, target: &Target) {
        target.outstanding.begin_flush(|| {
            let flush = |worker: &mut progress::Worker| worker.engine.submit_flush(target.peer);
            self.inner.progress.submit(flush)
        });
    }

    /// Completes all operations on a target here: their memory may be reused.
    ///
    /// # Errors
    /// The target has failed.
    pub fn flush_local(&self, rank: u32) -> Result<()> {
        self.complete(rank)
    }

    /// Completes all operations on all targets here.
    ///
    /// # Errors
    /// A target has failed.
    pub fn flush_local_all(&self) -> Result<()> {
        (0..self.targets.len() as u32).map(|rank| self.complete(rank)).fold(Ok(()), Result::and)
    }

    /// Waits for the listed operations on a target.
    fn complete(&self, rank: u32) -> Result<()> {
        let target = self.target(rank);
        let take = |op| match self.inner.wait(op) {
            Outcome::Ok | Outcome::Truncated { .. } | Outcome::Cancelled => true,
            Outcome::PeerFailed | Outcome::Revoked => false,
            Outcome::Refused => {
                target.has_refused.store(true, Ordering::Relaxed);
                false
            }
        };
        let await_request = |op| {
            let progress = &self.inner.progress;
            progress.wait(|worker| (!worker.engine.is_pending(op)).then_some(()));
        };
        let completed = target.outstanding.complete(take, await_request);
        completed.map_err(|TargetFailed| {
            let is_refused = target.has_refused.swap(false, Ordering::Relaxed);
            if is_refused { AccessFault::NotAttached(rank) } else { AccessFault::PeerFailed(rank) }
        })
    }

    /// Orders accesses of this process to memory of the window before and after with each other, for all processes.
    #[inline]
    pub fn sync(&self) {
        fence(Ordering::SeqCst);
    }

    /// Applies the accumulates that wait. None of this target waits then.
    fn apply_all_delayed(&self, rank: u32) {
        if let Some(delayed) = &self.delayed {
            let forget = || self.target(rank).outstanding.forget_delayed();
            delayed.drain(|waiting| self.apply_delayed(waiting), forget);
            self.sync();
        }
    }
}

impl WindowState {
    pub fn wait(&self, op: OpId) -> Outcome {
        self.progress.wait(|worker| worker.take_or_await(op)).outcome
    }
}

/// Locks.
impl Window {
    /// Takes the lock of a target's window.
    ///
    /// # Errors
    /// The target has failed, or a process that holds the lock has.
    pub fn lock(&self, rank: u32, kind: LockKind) -> Result<()> {
        let (target, own) = (self.target(rank), self.inner.rank);
        let word = self.lock_word_of(rank);
        if word.is_some_and(|word| locks::try_take(word.lock_word(), kind, own)) {
            return Ok(());
        }
        let op = self.inner.progress.submit(|worker| {
            let arguments = [request::argument_of(target.key), kind.number(), own.into()];
            let (handler, payload) = (CallKind::Lock.handler(), Region::empty());
            worker.engine.submit_call(target.peer, handler, arguments, &payload, Wanted::Done)
        });
        match self.await_lock(rank, op) {
            Outcome::PeerFailed | Outcome::Revoked => Err(AccessFault::PeerFailed(rank)),
            Outcome::Refused => Err(AccessFault::HolderFailed(rank)),
            Outcome::Ok | Outcome::Truncated { .. } | Outcome::Cancelled => Ok(()),
        }
    }

    /// Waits for the answer to a call for a lock. Tells the target of processes that have failed meanwhile or before: they
    /// may hold it.
    fn await_lock(&self, rank: u32, op: OpId) -> Outcome {
        let peers: Arc<[PeerId]> = self.targets.iter().map(|target| target.peer).collect();
        self.inner.progress.look(|worker| worker.look_after(&peers));
        let mut told = 0;
        loop {
            let answer = self.inner.progress.wait(|worker| {
                if let Some(completion) = worker.take_or_await(op) {
                    worker.forget_peers(&peers);
                    return Some(Ok(completion.outcome));
                }
                let failed = worker.engine.failed_peers();
                if failed != told {
                    let ranks = (0..).zip(peers.iter());
                    let lost = ranks.filter(|(_, peer)| worker.engine.is_failed(**peer));
                    return Some(Err((failed, lost.map(|(rank, _)| rank).collect::<Vec<u32>>())));
                }
                None
            });
            match answer {
                Ok(outcome) => return outcome,
                Err((failed, lost)) => {
                    told = failed;
                    lost.into_iter().for_each(|one| self.tell(rank, CallKind::Lost, one.into()));
                }
            }
        }
    }

    /// Completes all operations on a target and gives its lock back, also if an operation has failed.
    ///
    /// # Errors
    /// The target has failed or refused an operation.
    pub fn unlock(&self, rank: u32, kind: LockKind) -> Result<()> {
        let flushed = self.flush(rank);
        let Some(word) = self.lock_word_of(rank) else {
            self.tell(rank, CallKind::Unlock, kind.number());
            return flushed;
        };
        if !locks::give_back(word.lock_word(), kind) {
            return flushed;
        }
        if rank == self.inner.rank {
            let own = &self.inner.own;
            self.inner.progress.submit(|worker| {
                worker.engine.submit_replies(|replies| own.serve_queue(replies));
            });
        } else {
            self.tell(rank, CallKind::GivenBack, kind.number());
        }
        flushed
    }

    /// Words of a target that this process maps.
    fn lock_word_of(&self, rank: u32) -> Option<&Control> {
        if rank == self.inner.rank {
            return Some(&self.inner.own.control);
        }
        self.target(rank).mapped.as_ref().map(|mapped| &mapped.control)
    }

    /// Calls a handler of a target that does not answer.
    fn tell(&self, rank: u32, call: CallKind, what: u64) {
        let target = self.target(rank);
        self.inner.progress.submit(|worker| {
            let arguments = [request::argument_of(target.key), what, 0];
            let (handler, payload) = (call.handler(), Region::empty());
            let engine = &mut worker.engine;
            let op = engine.submit_call(target.peer, handler, arguments, &payload, Wanted::Nothing);
            engine.release(op);
        });
        target.outstanding.note_sent();
    }
}

/// Number of operations on a target after which the next one waits for them. It bounds the payloads that wait to be sent.
const OPERATIONS_MAX: usize = 1024;
