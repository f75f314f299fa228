//! The word that says whether a lock is held, and where threads sleep that found it so.

use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, Condvar, Mutex, ROUNDS, has_one_thread, spin_loop};

/// What a lock is but for what it guards.
#[derive(Debug)]
pub(super) struct Latch {
    /// [`FREE`], or [`HELD`] or [`WANTED`] and above them what else a lock keeps there. Threads that exchange it acquire
    /// and release what is guarded. A process of one thread writes it plainly: a thread that is born later finds in it,
    /// as in all memory, what its maker has written.
    pub(super) word: AtomicU32,
    queue: Queue,
}

/// Where threads sleep that found the lock held.
#[derive(Debug)]
struct Queue {
    mutex: Mutex<()>,
    given_back: Condvar,
}

impl Latch {
    /// Of a lock that nobody holds, made of a zero and two others of its parts.
    pub(super) const fn of(word: AtomicU32, mutex: Mutex<()>, given_back: Condvar) -> Self {
        Self { word, queue: Queue { mutex, given_back } }
    }

    /// Waits until nobody else holds the lock, and holds it; in few instructions while the process has one thread.
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

    /// What is held for a few hundred instructions is worth some of them; then the thread sleeps. Who asks takes the word's
    /// line, and what lies beside it, from who holds the lock, and so asks less and less often (Anderson, "The performance
    /// of spin lock alternatives for shared-memory multiprocessors", 1990). Who may have others beside it in the queue
    /// leaves word of that.
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
            let woken = self.queue.given_back.wait(sleeper);
            sleeper = woken.unwrap_or_else(|poison| poison.into_inner());
        }
    }

    /// A thread that has left word sleeps, or is about to while it holds the queue's mutex.
    #[cold]
    pub(super) fn wake_one(&self) {
        drop(self.queue.mutex.lock());
        self.queue.given_back.notify_one();
    }
}

pub(super) const FREE: u32 = 0;
pub(super) const HELD: u32 = 1;
/// Held, and perhaps slept for.
pub(super) const WANTED: u32 = 3;
