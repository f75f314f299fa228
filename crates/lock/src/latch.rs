//! The word that tells if a lock is held, and the queue of threads that sleep until it is free.

use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, Condvar, Mutex, ROUNDS, has_one_thread, spin_loop};

/// The part of a lock that does not depend on the guarded value.
#[derive(Debug)]
pub(super) struct Latch {
    /// [`FREE`], or [`HELD`] or [`WANTED`]; the upper bits hold what else a lock keeps there. Threads that exchange
    /// it acquire and release the guarded value. A process of one thread uses plain writes: thread creation makes
    /// them visible to the new thread.
    pub(super) word: AtomicU32,
    queue: Queue,
}

/// Queue in which threads sleep that found the lock held.
#[derive(Debug)]
struct Queue {
    mutex: Mutex<()>,
    released: Condvar,
}

impl Latch {
    /// Creates the latch of a free lock from a word that is zero, a mutex and a condition variable.
    pub(super) const fn of(word: AtomicU32, mutex: Mutex<()>, released: Condvar) -> Self {
        Self { word, queue: Queue { mutex, released } }
    }

    /// Waits until nobody else holds the lock, and takes it. This costs few instructions while the process has one
    /// thread.
    #[inline(always)]
    pub(super) fn take(&self) {
        if has_one_thread() && self.word.load(Ordering::Relaxed) == FREE {
            self.word.store(HELD, Ordering::Relaxed);
        } else if !self.try_take() {
            self.wait();
        }
    }

    #[inline(always)]
    pub(super) fn try_take(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Spins first, because the lock may be held for a few hundred instructions only, and then sleeps. Every check
    /// takes the word's cache line from the holder, so checks become less and less frequent (Anderson, "The
    /// performance of spin lock alternatives for shared-memory multiprocessors", 1990). A thread that takes the lock
    /// here leaves [`WANTED`], because others may still sleep in the queue.
    #[cold]
    fn wait(&self) {
        for round in 1..=ROUNDS {
            (0..1 << round).for_each(|_| spin_loop());
            if self.word.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
        }
        let mut sleeper = self.queue.mutex.lock().unwrap_or_else(|poison| poison.into_inner());
        while self.word.fetch_or(WANTED, Ordering::Acquire) != FREE {
            let woken = self.queue.released.wait(sleeper);
            sleeper = woken.unwrap_or_else(|poison| poison.into_inner());
        }
    }

    /// Wakes one sleeper. A thread that has set [`WANTED`] sleeps, or is about to while it holds the queue's mutex.
    #[cold]
    pub(super) fn wake_one(&self) {
        drop(self.queue.mutex.lock());
        self.queue.released.notify_one();
    }
}

pub(super) const FREE: u32 = 0;
pub(super) const HELD: u32 = 1;
/// Held, and perhaps with sleepers in the queue.
pub(super) const WANTED: u32 = 3;
