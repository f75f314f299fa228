//! A value with one user at a time, and helpers that act for the user meanwhile.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, SPINS, has_one_thread, is_known_alone, spin_loop, yield_now};

/// Guards a value that has users, of which there must be one at a time, and helpers, which act for the user while it
/// is away. Taking it costs an atomic exchange, or less while the process has one thread; releasing it is a plain
/// write. So no thread sleeps for it: it must be held for a short time only.
pub struct OwnedCell<T> {
    /// [`FREE`], [`USED`], [`HELPED`] or [`EMPTY`]; the value exists unless the cell is empty. A thread that takes
    /// the value acquires what the thread before has released.
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// Exclusive access to the value, until it is dropped.
#[derive(Debug)]
pub struct Held<'a, T> {
    cell: &'a OwnedCell<T>,
}

/// Reason why a user cannot have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Another user holds it.
    Used,
    /// A user has moved it out.
    Gone,
}

// SAFETY: the cell hands its value to one thread at a time, so `T: Send` suffices.
unsafe impl<T: Send> Sync for OwnedCell<T> {}
// SAFETY: the cell owns its value and moves to another thread with it.
unsafe impl<T: Send> Send for OwnedCell<T> {}
// SAFETY: a `Held` shared between threads gives out shared references only.
unsafe impl<T: Sync> Sync for Held<'_, T> {}

impl<T> OwnedCell<T> {
    /// Creates a cell that nobody holds, from a state that is zero.
    pub(super) const fn of(state: AtomicU32, value: T) -> Self {
        Self { state, value: UnsafeCell::new(MaybeUninit::new(value)) }
    }

    /// Takes the value as its user; waits for a helper.
    ///
    /// # Errors
    /// Fails if another user holds the value, or if it was moved out.
    #[inline]
    pub fn take(&self) -> Result<Held<'_, T>, Missing> {
        if self.try_take(USED) { Ok(Held { cell: self }) } else { self.take_from_helper() }
    }

    /// Takes the value as its user if nobody holds it. Makes no call.
    #[inline(always)]
    pub fn take_at_once(&self) -> Option<Held<'_, T>> {
        if self.try_take_of(is_known_alone(), USED) { Some(Held { cell: self }) } else { None }
    }

    /// Takes the value as a helper; waits for the user. Returns none if another helper holds the value or it was
    /// moved out: then all that the user had done before was seen to.
    pub fn help(&self) -> Option<Held<'_, T>> {
        let mut pauses = 0;
        loop {
            match self.state.load(Ordering::Acquire) {
                FREE if self.try_take(HELPED) => return Some(Held { cell: self }),
                HELPED | EMPTY => return None,
                _ => pause(&mut pauses),
            }
        }
    }

    #[cold]
    fn take_from_helper(&self) -> Result<Held<'_, T>, Missing> {
        let mut pauses = 0;
        loop {
            match self.state.load(Ordering::Acquire) {
                FREE if self.try_take(USED) => return Ok(Held { cell: self }),
                USED => return Err(Missing::Used),
                EMPTY => return Err(Missing::Gone),
                _ => pause(&mut pauses),
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
    /// Moves the value out; nobody else will have it.
    pub fn keep(self) -> T {
        let cell = self.cell;
        std::mem::forget(self);
        // SAFETY: this guard's thread holds the cell, which is not empty, so the value is initialised. The cell is
        // empty from now on, so nobody reads the value again.
        let value = unsafe { (*cell.value.get()).assume_init_read() };
        cell.state.store(EMPTY, Ordering::Release);
        value
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread holds the cell, so the value is initialised and no exclusive reference exists.
        unsafe { (*self.cell.value.get()).assume_init_ref() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard's thread holds the cell, so the value is initialised; the guard is borrowed exclusively.
        unsafe { (*self.cell.value.get()).assume_init_mut() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.state.store(FREE, Ordering::Release);
    }
}

impl<T> Drop for OwnedCell<T> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Relaxed) != EMPTY {
            // SAFETY: a cell that is not empty has a value, and nobody holds a cell that is being dropped.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> fmt::Debug for OwnedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedCell").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Waits a moment. The value is held for a short time unless its holder was preempted.
#[cold]
fn pause(pauses: &mut u32) {
    *pauses = pauses.saturating_add(1);
    if *pauses <= SPINS { spin_loop() } else { yield_now() }
}

const FREE: u32 = 0;
const USED: u32 = 1;
const HELPED: u32 = 2;
const EMPTY: u32 = 3;
