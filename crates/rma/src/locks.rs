//! Locks of windows (MPI-5.0 §12.5.3): one word for each target, and a queue at the target for those who wait.
//!
//! A process that maps the word takes a free lock by itself. All others, and those that find it taken, ask the target,
//! which queues them and grants in order. While processes are queued the word says so: then nobody takes it by itself,
//! and whoever gives it back tells the target.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::parts::AtomicU64;

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Held by any number of processes.
    Shared,
    /// Held by one process alone.
    Exclusive,
}

impl LockKind {
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Shared => 0,
            Self::Exclusive => 1,
        }
    }

    pub(crate) fn numbered(number: u64) -> Option<Self> {
        [Self::Shared, Self::Exclusive].into_iter().find(|kind| kind.number() == number)
    }
}

/// Takes the lock as this rank of the window, if it is free and nobody waits.
pub(crate) fn try_take(word: &AtomicU64, kind: LockKind, rank: u32) -> bool {
    take(word, kind, rank, 0)
}

/// Takes the lock if it is free, on behalf of a rank that waits.
pub(crate) fn try_grant(word: &AtomicU64, kind: LockKind, rank: u32) -> bool {
    take(word, kind, rank, WAITERS)
}

fn take(word: &AtomicU64, kind: LockKind, rank: u32, ignored: u64) -> bool {
    let taken = |value: u64| match kind {
        LockKind::Shared => (value & !ignored & (EXCLUSIVE | WAITERS) == 0).then(|| value + 1),
        LockKind::Exclusive => {
            (value & !ignored == 0).then_some(value | EXCLUSIVE | u64::from(rank))
        }
    };
    word.fetch_update(Ordering::Acquire, Ordering::Relaxed, taken).is_ok()
}

/// Gives the lock back. True if somebody waits for it.
pub(crate) fn give_back(word: &AtomicU64, kind: LockKind) -> bool {
    let before = match kind {
        LockKind::Shared => word.fetch_sub(1, Ordering::Release),
        LockKind::Exclusive => word.fetch_and(WAITERS, Ordering::Release),
    };
    before & WAITERS != 0
}

/// The rank that holds the lock exclusively, if one does.
pub(crate) fn owner(word: &AtomicU64) -> Option<u32> {
    let value = word.load(Ordering::Relaxed);
    (value & EXCLUSIVE != 0).then_some(value as u32)
}

/// Number of ranks that share the lock.
pub(crate) fn sharers(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed);
    if value & EXCLUSIVE == 0 { value & !WAITERS } else { 0 }
}

/// Processes that wait for the lock of one target. `T` is the way to tell one.
#[derive(Debug)]
pub(crate) struct Queue<T>(VecDeque<LockWait<T>>);

/// A process that waits for a lock.
#[derive(Debug)]
pub(crate) struct LockWait<T> {
    pub kind: LockKind,
    pub rank: u32,
    pub process: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Queue<T> {
    /// Queues a process.
    pub fn ask(&mut self, waiting: LockWait<T>) {
        self.0.push_back(waiting);
    }

    /// True if such a process waits.
    pub fn has(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.0.iter().any(|waiting| is_it(&waiting.process))
    }

    /// Grants what can be granted, in order, and tells those who waited for it.
    pub fn serve(&mut self, word: &AtomicU64, tell: &mut impl FnMut(LockWait<T>)) {
        if self.0.is_empty() {
            return;
        }
        // Whoever gives the lock back from now on sees that somebody waits.
        word.fetch_or(WAITERS, Ordering::Relaxed);
        let is_granted = |first: &mut LockWait<T>| try_grant(word, first.kind, first.rank);
        while let Some(first) = self.0.pop_front_if(is_granted) {
            tell(first);
        }
        if self.0.is_empty() {
            word.fetch_and(!WAITERS, Ordering::Relaxed);
        }
    }

    /// Removes a rank that waits no more.
    pub fn forget(&mut self, rank: u32) {
        self.0.retain(|waiting| waiting.rank != rank);
    }

    /// Removes the first one, who waits in vain.
    pub fn pop(&mut self, word: &AtomicU64) -> Option<LockWait<T>> {
        let first = self.0.pop_front()?;
        if self.0.is_empty() {
            word.fetch_and(!WAITERS, Ordering::Relaxed);
        }
        Some(first)
    }
}

/// Bit of a lock that one rank holds; the lower half of the word is the rank.
const EXCLUSIVE: u64 = 1 << 63;
pub(crate) const WAITERS: u64 = 1 << 62;
