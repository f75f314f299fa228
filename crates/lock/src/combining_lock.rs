//! A lock that executes requests of threads which found it held.
//!
//! One word tells if the lock is held and which records were left: flat combining (Hendler, Incze, Shavit, Tzafrir,
//! 2010). The records form the list of Treiber's stack, which is taken as a whole. So the lock is never free while a
//! record is left, and its holder sees all records that any thread had left before. Requests of one thread are executed
//! in their order, whether it leaves them as records or takes the lock itself.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use super::latch::{FREE, HELD, Latch, WANTED};
use super::parts::{AtomicU32, AtomicU64, has_one_thread, order};

/// Guards a value that one thread at a time may use, with records for threads that find it held.
pub struct CombiningLock<T: Combiner> {
    /// The bits above the latch's own hold the record that was left last, counted from 1.
    latch: Latch,
    /// One bit for each free record.
    free: AtomicU64,
    records: Box<[Record<T::Record>]>,
    value: UnsafeCell<T>,
}

/// A value that executes the records of other threads.
pub trait Combiner {
    /// Request of a thread that found the lock held.
    type Record;

    /// Executes some records, each thread's in their order.
    fn take_in<'a>(&mut self, records: impl Iterator<Item = &'a mut Self::Record>)
    where
        Self::Record: 'a;
}

/// Exclusive access to the value, until the guard is dropped.
pub struct CombiningGuard<'a, T: Combiner> {
    combining_lock: &'a CombiningLock<T>,
}

/// Outcome for a thread that found the lock held.
#[must_use]
pub enum Entered<'a, T: Combiner, R> {
    /// The thread has waited and holds the lock now.
    Locked(CombiningGuard<'a, T>),
    /// The thread has left a record; the holder executes it before it releases the lock.
    Left(R),
}

/// A record. Its content belongs to the thread that has taken its bit until the record is in the list. Then it belongs
/// to the thread that takes it out, until the bit is set again.
struct Record<F> {
    content: UnsafeCell<F>,
    /// The record that was left before this one, counted from 1. Released and acquired with the list's head.
    before: AtomicU32,
}

// SAFETY: the lock hands its value, and each record, to one thread at a time, so `Send` suffices for both.
unsafe impl<T: Combiner<Record: Send> + Send> Sync for CombiningLock<T> {}
// SAFETY: a guard shared between threads gives out shared references only.
unsafe impl<T: Combiner + Sync> Sync for CombiningGuard<'_, T> {}

impl<T: Combiner> CombiningLock<T> {
    /// Creates a lock that nobody holds, with as many records as `free` has bits set, from the lowest on.
    pub(super) fn of(
        latch: Latch,
        (free, befores): (AtomicU64, impl Iterator<Item = AtomicU32>),
        records: impl IntoIterator<Item = T::Record>,
        value: T,
    ) -> Self {
        let record = |(content, before)| Record { content: UnsafeCell::new(content), before };
        let records = records.into_iter().zip(befores).map(record).collect();
        Self { latch, free, records, value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else holds the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> CombiningGuard<'_, T> {
        order::check_combining();
        self.latch.take();
        self.guard()
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<CombiningGuard<'_, T>> {
        self.latch.try_take().then(|| self.guard())
    }

    /// Takes the lock if nobody holds it, in few instructions while the process has one thread.
    #[inline(always)]
    pub fn take_at_once(&self) -> Option<CombiningGuard<'_, T>> {
        order::check_combining();
        let Latch { word, .. } = &self.latch;
        if has_one_thread() && word.load(Ordering::Relaxed) == FREE {
            word.store(HELD, Ordering::Relaxed);
        } else if !self.latch.try_take() {
            return None;
        }
        Some(self.guard())
    }

    /// Makes the guard of the thread that has just taken the lock.
    #[inline(always)]
    fn guard(&self) -> CombiningGuard<'_, T> {
        order::count_combining(true);
        CombiningGuard { combining_lock: self }
    }

    /// Leaves a record that `fill` has filled, as somebody else holds the lock. Waits for the lock instead if no
    /// record is free or `may_leave` forbids it.
    #[cold]
    pub fn leave<R>(
        &self,
        may_leave: impl FnOnce() -> bool,
        fill: impl FnOnce(&mut T::Record) -> R,
    ) -> Entered<'_, T, R> {
        let number = if may_leave() { self.claim() } else { None };
        let Some(number) = number else { return Entered::Locked(self.lock()) };
        let record = &self.records[number as usize];
        // SAFETY: this thread has just taken the record's bit.
        let receipt = fill(unsafe { &mut *record.content.get() });
        let Latch { word, .. } = &self.latch;
        let mut known = word.load(Ordering::Relaxed);
        loop {
            record.before.store(known >> LIST_SHIFT, Ordering::Relaxed);
            let held = HELD | known & WANTED | (number + 1) << LIST_SHIFT;
            match word.compare_exchange(known, held, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => known = now,
            }
        }
        if known == FREE {
            // The holder has released the lock meanwhile, so this thread executes the record.
            drop(self.guard());
        }
        Entered::Left(receipt)
    }

    /// Takes a free record.
    fn claim(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let lowest = free & free.wrapping_neg();
            let left = free & !lowest;
            // The acquire orders the record's former use before its next one.
            match self.free.compare_exchange(free, left, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(lowest.trailing_zeros()),
                Err(now) => free = now,
            }
        }
        None
    }
}

impl<T: Combiner> CombiningLock<T> {
    /// Executes the records that others have left, releases the lock, and wakes a waiter. Records become free only
    /// afterwards, so no more are executed than there are.
    #[cold]
    #[inline(never)]
    fn release(&self) {
        let Self { latch, free, .. } = self;
        let mut executed = 0;
        loop {
            let known = latch.word.load(Ordering::Relaxed);
            if known >> LIST_SHIFT != 0 {
                let last = latch.word.fetch_and(WANTED, Ordering::Acquire) >> LIST_SHIFT;
                executed |= self.execute(last);
                continue;
            }
            let released =
                latch.word.compare_exchange(known, FREE, Ordering::Release, Ordering::Relaxed);
            if released.is_ok() {
                if executed != 0 {
                    free.fetch_or(executed, Ordering::Release);
                }
                if known == WANTED {
                    latch.wake_one();
                }
                return;
            }
        }
    }

    /// Executes a list of records, released the last one, in the order in which they were left; returns their bits.
    fn execute(&self, mut last: u32) -> u64 {
        let records = &self.records;
        let (mut order, mut first, mut bits) = ([0; RECORDS_MAX], RECORDS_MAX, 0);
        while last != 0 {
            first -= 1;
            order[first] = last - 1;
            bits |= 1 << (last - 1);
            last = records[last as usize - 1].before.load(Ordering::Relaxed);
        }
        // SAFETY: the thread that takes a list owns its records, and each is in it once.
        let content = |number: &u32| unsafe { &mut *records[*number as usize].content.get() };
        // SAFETY: the calling thread holds the lock, and its guard, which is being dropped, gives out no more
        // references.
        let value = unsafe { &mut *self.value.get() };
        value.take_in(order[first..].iter().map(content));
        bits
    }
}

impl<T: Combiner> Deref for CombiningGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread holds the lock, and no exclusive reference exists while the guard is shared.
        unsafe { &*self.combining_lock.value.get() }
    }
}

impl<T: Combiner> DerefMut for CombiningGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard's thread holds the lock, and the guard is borrowed exclusively.
        unsafe { &mut *self.combining_lock.value.get() }
    }
}

impl<T: Combiner> Drop for CombiningGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        order::count_combining(false);
        let Latch { word, .. } = &self.combining_lock.latch;
        if has_one_thread() {
            // Only other threads leave records, so there are none: the only thread was alone all the time.
            word.store(FREE, Ordering::Release);
        } else if word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.combining_lock.release();
        }
    }
}

impl<T: Combiner + fmt::Debug> fmt::Debug for CombiningLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombiningLock").field("latch", &self.latch).finish_non_exhaustive()
    }
}

/// Greatest number of records: the bits of a word.
pub(super) const RECORDS_MAX: usize = 64;

/// Position of the list's head in the latch's word.
const LIST_SHIFT: u32 = 2;
