//! The lock itself.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, Condvar, Mutex, SPINS, has_one_thread, spin_loop};

/// Guards a value that one thread at a time may use. A thread that panics leaves it as it is.
#[derive(Debug)]
pub struct Lock<T> {
    /// [`FREE`], [`HELD`] or [`WANTED`]. Threads that exchange it acquire and release what is guarded.
    /// A process of one thread writes it plainly: a thread that is born later finds in it, as in all
    /// memory, what its maker has written.
    state: AtomicU32,
    queue: Queue,
    value: UnsafeCell<T>,
}

/// Where threads sleep that found the lock held.
#[derive(Debug)]
struct Queue {
    mutex: Mutex<()>,
    given_back: Condvar,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

// SAFETY: the lock hands its value to one thread at a time, so the value needs to bear being handed
// over, as with any lock.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: a guard shared between threads gives out shared references only.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Lock<T> {
    /// A lock that nobody holds, made of a zero and two others of its parts.
    pub(super) const fn of(
        state: AtomicU32,
        mutex: Mutex<()>,
        given_back: Condvar,
        value: T,
    ) -> Self {
        Self { state, queue: Queue { mutex, given_back }, value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else holds the lock, and holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if has_one_thread() && self.state.load(Ordering::Relaxed) == FREE {
            self.state.store(HELD, Ordering::Relaxed);
        } else if !self.try_take() {
            self.wait();
        }
        Guard { lock: self }
    }

    /// Holds the lock if nobody does.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.try_take().then(|| Guard { lock: self })
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// What is held for a few hundred instructions is worth some of them; then the thread sleeps. Who
    /// may have others beside it in the queue leaves word of that in the state.
    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
        }
        let mut sleeper = self.queue.mutex.lock().unwrap_or_else(|poison| poison.into_inner());
        while self.state.swap(WANTED, Ordering::Acquire) != FREE {
            let woken = self.queue.given_back.wait(sleeper);
            sleeper = woken.unwrap_or_else(|poison| poison.into_inner());
        }
    }

    /// A thread that has left word sleeps, or is about to while it holds the queue's mutex.
    #[cold]
    fn wake_one(&self) {
        drop(self.queue.mutex.lock());
        self.queue.given_back.notify_one();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread holds the lock, and nobody else has a reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let state = &self.lock.state;
        if has_one_thread() {
            state.store(FREE, Ordering::Release);
        } else if state.swap(FREE, Ordering::Release) == WANTED {
            self.lock.wake_one();
        }
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and perhaps slept for.
const WANTED: u32 = 2;
