//! Locks of windows (MPI-5.0 §12.5.3): one word for each target, and a queue at the target for those who wait.
//!
//! A process that maps the word takes a free lock by itself. All others, and those that find it taken, ask the target,
//! which queues them and grants in order. While processes are queued the word says so: then nobody takes it by itself,
//! and whoever gives it back tells the target.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Replies, ReplyTo};

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

/// Takes the lock if it is free and nobody waits.
pub(crate) fn try_take(word: &AtomicU64, kind: LockKind) -> bool {
    take(word, kind, 0)
}

/// Takes the lock if it is free, on behalf of one who waits.
fn try_grant(word: &AtomicU64, kind: LockKind) -> bool {
    take(word, kind, WAITERS)
}

fn take(word: &AtomicU64, kind: LockKind, ignored: u64) -> bool {
    let taken = |value: u64| match kind {
        LockKind::Shared => (value & !ignored & (EXCLUSIVE | WAITERS) == 0).then(|| value + 1),
        LockKind::Exclusive => (value & !ignored == 0).then_some(value | EXCLUSIVE),
    };
    word.fetch_update(Ordering::Acquire, Ordering::Relaxed, taken).is_ok()
}

/// Gives the lock back. True if somebody waits for it.
pub(crate) fn give_back(word: &AtomicU64, kind: LockKind) -> bool {
    let before = match kind {
        LockKind::Shared => word.fetch_sub(1, Ordering::Release),
        LockKind::Exclusive => word.fetch_and(!EXCLUSIVE, Ordering::Release),
    };
    before & WAITERS != 0
}

/// True if a lock of this kind may be held: a process that gives back what it does not have breaks the protocol.
pub(crate) fn is_held(word: &AtomicU64, kind: LockKind) -> bool {
    let value = word.load(Ordering::Relaxed);
    match kind {
        LockKind::Shared => value & !(EXCLUSIVE | WAITERS) > 0,
        LockKind::Exclusive => value & EXCLUSIVE != 0,
    }
}

/// Processes that wait for the lock of one target.
#[derive(Debug, Default)]
pub(crate) struct Queue(VecDeque<(LockKind, ReplyTo)>);

impl Queue {
    /// Grants a lock, or queues its process.
    pub fn ask(&mut self, word: &AtomicU64, kind: LockKind, by: ReplyTo, replies: &mut Replies) {
        self.0.push_back((kind, by));
        self.serve(word, replies);
    }

    /// Grants what can be granted, in order.
    pub fn serve(&mut self, word: &AtomicU64, replies: &mut Replies) {
        if self.0.is_empty() {
            return;
        }
        // Whoever gives the lock back from now on sees that somebody waits.
        word.fetch_or(WAITERS, Ordering::Relaxed);
        while let Some((_, by)) = self.0.pop_front_if(|(kind, _)| try_grant(word, *kind)) {
            replies.send(by, &[]);
        }
        if self.0.is_empty() {
            word.fetch_and(!WAITERS, Ordering::Relaxed);
        }
    }
}

const EXCLUSIVE: u64 = 1 << 63;
const WAITERS: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_shared_or_exclusive() {
        let word = AtomicU64::new(0);
        assert!(try_take(&word, LockKind::Shared) && try_take(&word, LockKind::Shared));
        assert!(!try_take(&word, LockKind::Exclusive));
        assert!(is_held(&word, LockKind::Shared) && !is_held(&word, LockKind::Exclusive));
        assert!(!give_back(&word, LockKind::Shared) && !give_back(&word, LockKind::Shared));
        assert!(try_take(&word, LockKind::Exclusive) && !try_take(&word, LockKind::Shared));
        assert!(!try_take(&word, LockKind::Exclusive));
        assert!(!give_back(&word, LockKind::Exclusive));
        assert_eq!(word.into_inner(), 0);
    }

    #[test]
    fn nobody_passes_those_who_wait() {
        let word = AtomicU64::new(WAITERS | 1);
        assert!(!try_take(&word, LockKind::Shared));
        assert!(give_back(&word, LockKind::Shared));
        assert!(!try_take(&word, LockKind::Exclusive));
        assert!(try_grant(&word, LockKind::Exclusive));
        assert!(give_back(&word, LockKind::Exclusive));
        assert_eq!(word.into_inner(), WAITERS);
    }
}
