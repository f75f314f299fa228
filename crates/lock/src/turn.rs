//! A value that one thread uses at a time, and that others see to while nobody uses it.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{SPINS, has_one_thread};

/// Guards a value that has users, of which there must be one at a time, and helpers, which act for the
/// user while it is away. To take it costs an atomic exchange, or less while the process has one
/// thread; to give it back, a plain write. So nobody sleeps for it: it is held for short.
pub struct Turn<T> {
    /// [`FREE`], [`USED`], [`HELPED`] or [`EMPTY`]; the value is there unless it is empty. Who takes it
    /// acquires what the one before has released.
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub struct Held<'a, T> {
    turn: &'a Turn<T>,
}

/// Why a user cannot have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Another user has it.
    Used,
    /// The last user has kept it.
    Gone,
}

// SAFETY: a turn hands its value to one thread at a time, so the value needs to bear being handed over.
unsafe impl<T: Send> Sync for Turn<T> {}
// SAFETY: the value is the turn's own.
unsafe impl<T: Send> Send for Turn<T> {}
// SAFETY: what is shared between threads gives out shared references only.
unsafe impl<T: Sync> Sync for Held<'_, T> {}

impl<T> Turn<T> {
    /// A turn that nobody has.
    pub const fn new(value: T) -> Self {
        let value = UnsafeCell::new(MaybeUninit::new(value));
        Self { state: AtomicU32::new(FREE), value }
    }

    /// Takes the value to use it; waits for a helper.
    ///
    /// # Errors
    /// When another user has it, or none will have it any more.
    #[inline]
    pub fn take(&self) -> Result<Held<'_, T>, Missing> {
        if self.try_take(USED) { Ok(Held { turn: self }) } else { self.take_from_helper() }
    }

    /// Takes the value for its user; waits for that one. None when another helper is at it, or none will
    /// have it any more: all that the user had done before was seen to.
    pub fn help(&self) -> Option<Held<'_, T>> {
        let mut turns = 0;
        loop {
            match self.state.load(Ordering::Acquire) {
                FREE if self.try_take(HELPED) => return Some(Held { turn: self }),
                HELPED | EMPTY => return None,
                _ => pause(&mut turns),
            }
        }
    }

    #[cold]
    fn take_from_helper(&self) -> Result<Held<'_, T>, Missing> {
        let mut turns = 0;
        loop {
            match self.state.load(Ordering::Acquire) {
                FREE if self.try_take(USED) => return Ok(Held { turn: self }),
                USED => return Err(Missing::Used),
                EMPTY => return Err(Missing::Gone),
                _ => pause(&mut turns),
            }
        }
    }

    #[inline]
    fn try_take(&self, taken: u32) -> bool {
        if has_one_thread() {
            let is_free = self.state.load(Ordering::Relaxed) == FREE;
            if is_free {
                self.state.store(taken, Ordering::Relaxed);
            }
            return is_free;
        }
        self.state.compare_exchange(FREE, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<T> Held<'_, T> {
    /// Keeps the value: nobody else will have it.
    pub fn keep(self) -> T {
        let turn = self.turn;
        std::mem::forget(self);
        // SAFETY: this guard's thread has the value, which is there as the turn is not empty, and nobody
        // reads it again once it is.
        let value = unsafe { (*turn.value.get()).assume_init_read() };
        turn.state.store(EMPTY, Ordering::Release);
        value
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread has the value, which is there, and nobody else has a reference.
        unsafe { (*self.turn.value.get()).assume_init_ref() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { (*self.turn.value.get()).assume_init_mut() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.turn.state.store(FREE, Ordering::Release);
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() != EMPTY {
            // SAFETY: the value is there, and nobody has it.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> fmt::Debug for Turn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A turn is short, unless the core of who has it was taken away.
#[cold]
fn pause(turns: &mut u32) {
    *turns = turns.saturating_add(1);
    if *turns <= SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

const FREE: u32 = 0;
const USED: u32 = 1;
const HELPED: u32 = 2;
const EMPTY: u32 = 3;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn one_user_at_a_time() {
        let turn = Turn::new(1);
        let held = turn.take().expect("a free turn");
        assert_eq!(turn.take().err(), Some(Missing::Used));
        drop(held);
        let kept = turn.take().expect("a free turn again").keep();
        assert_eq!((kept, turn.take().err()), (1, Some(Missing::Gone)));
        assert!(turn.help().is_none());
    }

    #[test]
    fn users_and_helpers_exclude_each_other_and_helpers_miss_nothing() {
        let (turn, inside) = (Turn::new(0), AtomicBool::new(false));
        let (seen, done) = (AtomicU32::new(0), AtomicBool::new(false));
        let alone = |step: &mut dyn FnMut()| {
            assert!(!inside.swap(true, Ordering::Relaxed));
            step();
            inside.store(false, Ordering::Relaxed);
        };
        let help = || {
            if let Some(mut made) = turn.help() {
                alone(&mut || {
                    seen.fetch_add(std::mem::take(&mut *made), Ordering::Relaxed);
                });
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        help();
                    }
                });
            }
            for _ in 0..20_000 {
                let mut made = turn.take().expect("one user only");
                alone(&mut || *made += 1);
            }
            done.store(true, Ordering::Relaxed);
        });
        help();
        assert_eq!(seen.load(Ordering::Relaxed), 20_000);
    }

    #[test]
    fn what_is_kept_is_dropped_once_and_the_rest_too() {
        let value = Arc::new(());
        let [kept, left] = [0, 1].map(|_| Turn::new(Arc::clone(&value)));
        let kept_value = kept.take().expect("a free turn").keep();
        drop(kept);
        assert_eq!(Arc::strong_count(&value), 3);
        drop((kept_value, left));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
