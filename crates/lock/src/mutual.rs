//! A mutual exclusion lock.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use super::latch::{FREE, Latch, WANTED};
use super::parts::{has_one_thread, order};

/// Guards a value that one thread at a time may use. A panic does not poison it.
#[derive(Debug)]
pub struct Lock<T> {
    latch: Latch,
    value: UnsafeCell<T>,
}

/// Exclusive access to the value, until the guard is dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

// SAFETY: the lock hands its value to one thread at a time, so `T: Send` suffices, as for any lock.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: a guard shared between threads gives out shared references only.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Lock<T> {
    /// Creates a lock that nobody holds.
    pub(super) const fn of(latch: Latch, value: T) -> Self {
        Self { latch, value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else holds the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.latch.take();
        self.guard()
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.latch.try_take().then(|| self.guard())
    }

    /// Makes the guard of the thread that has just taken the lock.
    #[inline(always)]
    fn guard(&self) -> Guard<'_, T> {
        order::count_plain(true);
        Guard { lock: self }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread holds the lock, and no exclusive reference exists while the guard is shared.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard's thread holds the lock, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        order::count_plain(false);
        let Latch { word, .. } = &self.lock.latch;
        if has_one_thread() {
            word.store(FREE, Ordering::Release);
        } else if word.swap(FREE, Ordering::Release) == WANTED {
            self.lock.latch.wake_one();
        }
    }
}
