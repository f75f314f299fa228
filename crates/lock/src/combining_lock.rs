//! A lock at which who finds it held may leave what it wants done.
//!
//! One word says who holds it and what was left (after Hendler, Incze, Shavit, Tzafrir, "Flat combining", 2010, with the
//! list of Treiber's stack, of which all is taken at once): so it is never free while anything is left, and who holds it
//! has before it all that any thread had left until then. A thread's own wishes are seen to in its order, those that
//! it leaves and those that it sees to itself.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use super::latch::{FREE, HELD, Latch, WANTED};
use super::parts::{AtomicU32, AtomicU64, has_one_thread};

/// Guards a value that one thread at a time may use, and has records for those who find it used.
pub struct CombiningLock<T: Combiner> {
    /// Above its own bits, the record that was left last, counted from 1.
    latch: Latch,
    /// A bit for each record that nobody has.
    free: AtomicU64,
    records: Box<[Record<T::Record>]>,
    value: UnsafeCell<T>,
}

/// What sees to the records that others have left.
pub trait Combiner {
    /// What is left.
    type Record;

    /// Sees to some that were left, each thread's in its order.
    fn take_in<'a>(&mut self, records: impl Iterator<Item = &'a mut Self::Record>)
    where
        Self::Record: 'a;
}

/// The value, until it is dropped.
pub struct CombiningGuard<'a, T: Combiner> {
    combining_lock: &'a CombiningLock<T>,
}

/// Who came to a combining_lock that another had either has it now, or has left a record.
#[must_use]
pub enum Entered<'a, T: Combiner, R> {
    /// It has waited.
    Seated(CombiningGuard<'a, T>),
    /// Who has it sees to the record before it gives the combining_lock back.
    Left(R),
}

/// Its content is of the thread that has taken its bit, until it is in the list; then of who takes it out, until the bit
/// is set again.
struct Record<F> {
    content: UnsafeCell<F>,
    /// The record that was left before it, counted from 1. Released and acquired with the list's head.
    before: AtomicU32,
}

// SAFETY: the combining_lock hands its value, and each record, to one thread at a time, so they need to bear being handed over.
unsafe impl<T: Combiner<Record: Send> + Send> Sync for CombiningLock<T> {}
// SAFETY: a guard shared between threads gives out shared references only.
unsafe impl<T: Combiner + Sync> Sync for CombiningGuard<'_, T> {}

impl<T: Combiner> CombiningLock<T> {
    /// A combining_lock that nobody has, with as many records as `free` has bits, from the lowest on.
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

    /// Waits until nobody else has it.
    #[inline]
    pub fn lock(&self) -> CombiningGuard<'_, T> {
        self.latch.take();
        CombiningGuard { combining_lock: self }
    }

    /// Takes it if nobody has it.
    pub fn try_lock(&self) -> Option<CombiningGuard<'_, T>> {
        self.latch.try_take().then(|| CombiningGuard { combining_lock: self })
    }

    /// Takes it if nobody has it; in few instructions while the process has one thread.
    #[inline(always)]
    pub fn take_at_once(&self) -> Option<CombiningGuard<'_, T>> {
        let Latch { word, .. } = &self.latch;
        if has_one_thread() && word.load(Ordering::Relaxed) == FREE {
            word.store(HELD, Ordering::Relaxed);
        } else if !self.latch.try_take() {
            return None;
        }
        Some(CombiningGuard { combining_lock: self })
    }

    /// Somebody has it: leaves a record, as `fill` makes it out. It waits where there is no record, or where it may not leave
    /// one.
    #[cold]
    pub fn leave<R>(
        &self,
        may_leave: impl FnOnce() -> bool,
        fill: impl FnOnce(&mut T::Record) -> R,
    ) -> Entered<'_, T, R> {
        let number = if may_leave() { self.claim() } else { None };
        let Some(number) = number else { return Entered::Seated(self.lock()) };
        let record = &self.records[number as usize];
        // SAFETY: this thread has just taken the record's bit.
        let receipt = fill(unsafe { &mut *record.content.get() });
        let Latch { word, .. } = &self.latch;
        let mut known = word.load(Ordering::Relaxed);
        loop {
            record.before.store(known >> LEFT, Ordering::Relaxed);
            let held = HELD | known & WANTED | (number + 1) << LEFT;
            match word.compare_exchange(known, held, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => known = now,
            }
        }
        if known == FREE {
            // It has been given back meanwhile.
            drop(CombiningGuard { combining_lock: self });
        }
        Entered::Left(receipt)
    }

    /// Takes a record that nobody has.
    fn claim(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let lowest = free & free.wrapping_neg();
            let left = free & !lowest;
            // What was done with the record before has been done.
            match self.free.compare_exchange(free, left, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(lowest.trailing_zeros()),
                Err(now) => free = now,
            }
        }
        None
    }
}

impl<T: Combiner> CombiningLock<T> {
    /// Who has the combining_lock gives it back where others wait for it, or have left records. Those may be used again only by then:
    /// so no more are seen to than there are.
    #[cold]
    #[inline(never)]
    fn give_back(&self) {
        let Self { latch, free, .. } = self;
        let mut seen_to = 0;
        loop {
            let known = latch.word.load(Ordering::Relaxed);
            if known >> LEFT != 0 {
                let last = latch.word.fetch_and(WANTED, Ordering::Acquire) >> LEFT;
                seen_to |= self.see_to(last);
                continue;
            }
            let given =
                latch.word.compare_exchange(known, FREE, Ordering::Release, Ordering::Relaxed);
            if given.is_ok() {
                if seen_to != 0 {
                    free.fetch_or(seen_to, Ordering::Release);
                }
                if known == WANTED {
                    latch.wake_one();
                }
                return;
            }
        }
    }

    /// Who has the combining_lock sees to the records of a list, the last before it; answers their bits.
    fn see_to(&self, mut last: u32) -> u64 {
        let records = &self.records;
        let (mut order, mut first, mut bits) = ([0; RECORDS_MAX], RECORDS_MAX, 0);
        while last != 0 {
            first -= 1;
            order[first] = last - 1;
            bits |= 1 << (last - 1);
            last = records[last as usize - 1].before.load(Ordering::Relaxed);
        }
        // SAFETY: who takes a list has its records, and each is in it once.
        let content = |number: &u32| unsafe { &mut *records[*number as usize].content.get() };
        // SAFETY: the calling thread has the combining_lock, and its guard, which is being dropped, gives out no reference any more.
        let value = unsafe { &mut *self.value.get() };
        value.take_in(order[first..].iter().map(content));
        bits
    }
}

impl<T: Combiner> Deref for CombiningGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread has the combining_lock, and nobody else has a reference.
        unsafe { &*self.combining_lock.value.get() }
    }
}

impl<T: Combiner> DerefMut for CombiningGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.combining_lock.value.get() }
    }
}

impl<T: Combiner> Drop for CombiningGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let Latch { word, .. } = &self.combining_lock.latch;
        if has_one_thread() {
            // Records are left by others, while this one does not wait for them to end.
            word.store(FREE, Ordering::Release);
        } else if word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.combining_lock.give_back();
        }
    }
}

impl<T: Combiner + fmt::Debug> fmt::Debug for CombiningLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombiningLock").field("latch", &self.latch).finish_non_exhaustive()
    }
}

/// As many as a word has bits.
pub(super) const RECORDS_MAX: usize = 64;

/// Where the list begins in the latch's word.
const LEFT: u32 = 2;
