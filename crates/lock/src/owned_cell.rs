//! A value that one thread uses at a time, and that others see to while nobody uses it.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, SPINS, has_one_thread, is_known_alone, spin_loop, yield_now};

/// Guards a value that has users, of which there must be one at a time, and helpers, which act for the
/// user while it is away. To take it costs an atomic exchange, or less while the process has one
/// thread; to give it back, a plain write. So nobody sleeps for it: it is held for short.
pub struct OwnedCell<T> {
    /// [`FREE`], [`USED`], [`HELPED`] or [`EMPTY`]; the value is there unless it is empty. Who takes it
    /// acquires what the one before has released.
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub struct Held<'a, T> {
    turn: &'a OwnedCell<T>,
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
unsafe impl<T: Send> Sync for OwnedCell<T> {}
// SAFETY: the value is the turn's own.
unsafe impl<T: Send> Send for OwnedCell<T> {}
// SAFETY: what is shared between threads gives out shared references only.
unsafe impl<T: Sync> Sync for Held<'_, T> {}

impl<T> OwnedCell<T> {
    /// A turn that nobody has, made of a zero.
    pub(super) const fn of(state: AtomicU32, value: T) -> Self {
        Self { state, value: UnsafeCell::new(MaybeUninit::new(value)) }
    }

    /// Takes the value to use it; waits for a helper.
    ///
    /// # Errors
    /// When another user has it, or none will have it any more.
    #[inline]
    pub fn take(&self) -> Result<Held<'_, T>, Missing> {
        if self.try_take(USED) { Ok(Held { turn: self }) } else { self.take_from_helper() }
    }

    /// Takes the value to use it, if nobody has it; without a call.
    #[inline(always)]
    pub fn take_at_once(&self) -> Option<Held<'_, T>> {
        if self.try_take_of(is_known_alone(), USED) { Some(Held { turn: self }) } else { None }
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
        self.try_take_of(has_one_thread(), taken)
    }

    #[inline(always)]
    fn try_take_of(&self, is_alone: bool, taken: u32) -> bool {
        if is_alone {
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

impl<T> Drop for OwnedCell<T> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Relaxed) != EMPTY {
            // SAFETY: the value is there, and nobody has it.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> fmt::Debug for OwnedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedCell").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A turn is short, unless the core of who has it was taken away.
#[cold]
fn pause(turns: &mut u32) {
    *turns = turns.saturating_add(1);
    if *turns <= SPINS { spin_loop() } else { yield_now() }
}

const FREE: u32 = 0;
const USED: u32 = 1;
const HELPED: u32 = 2;
const EMPTY: u32 = 3;
