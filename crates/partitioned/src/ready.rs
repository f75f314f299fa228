//! Partitions that are ready: marked by any number of threads, taken by one thread at a time.
//!
//! Marked partitions form a list (Treiber, "Systems programming: coping with parallelism", 1986), whose head shares a
//! word with three flags. A thread that marks a partition becomes the *taker* if nobody is, once the receiver has started.
//! The taker takes whole lists until there is none. All changes of the word are atomic read-modify-writes, so whoever
//! marks a partition either is the taker or is seen by it.

use std::sync::atomic::Ordering;

use super::parts::{AtomicU32, AtomicU64};
use crate::fault::Misuse;

/// Partitions of a sender.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Low half: first marked partition, or [`END`]. High half: the flags.
    word: AtomicU64,
    /// By partition: [`UNMARKED`], or the next in the list, or [`END`].
    next: Box<[AtomicU32]>,
}

impl Ready {
    /// Makes so many partitions; `None` if there is no memory.
    pub fn new(partitions: u32) -> Option<Self> {
        let mut next = Vec::new();
        next.try_reserve_exact(partitions as usize).ok()?;
        next.resize_with(partitions as usize, || AtomicU32::new(UNMARKED));
        Some(Self { word: AtomicU64::new(EMPTY), next: next.into() })
    }

    /// Number of partitions.
    pub fn len(&self) -> u32 {
        self.next.len() as u32
    }

    /// Begins a run: no partition is ready.
    pub fn begin(&self) {
        self.next.iter().for_each(|next| next.store(UNMARKED, Ordering::Relaxed));
        // The application orders this before the marks of other threads.
        self.word.store(EMPTY | ACTIVE, Ordering::Release);
    }

    /// Ends a run.
    pub fn end(&self) {
        self.word.store(EMPTY, Ordering::Relaxed);
    }

    /// Lets marked partitions be taken. True if the caller is now the taker.
    pub fn open(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_taker = head(word) != END;
            let new = word | OPEN | if is_taker { TAKEN } else { 0 };
            // Releases what the receiver has told to later takers.
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return is_taker,
                Err(now) => word = now,
            }
        }
    }

    /// Marks partitions, all or none. True if the caller is now the taker.
    ///
    /// # Errors
    /// A partition is marked already, or does not exist, or the run has not begun.
    pub fn mark(&self, partitions: impl Iterator<Item = u32> + Clone) -> Result<bool, Misuse> {
        let (mut first, mut last) = (END, None);
        for (marked, partition) in partitions.clone().enumerate() {
            if let Err(misuse) = self.claim(partition, first) {
                self.unmark(partitions.take(marked));
                return Err(misuse);
            }
            last = last.or(Some(partition));
            first = partition;
        }
        let Some(last) = last else {
            let is_active = self.word.load(Ordering::Relaxed) & ACTIVE != 0;
            return if is_active { Ok(false) } else { Err(Misuse::Inactive) };
        };
        self.push(first, last).inspect_err(|_| self.unmark(partitions))
    }

    fn claim(&self, partition: u32, next: u32) -> Result<(), Misuse> {
        let place = self.next.get(partition as usize).ok_or(Misuse::NoPartition(partition))?;
        let (unmarked, relaxed) = (UNMARKED, Ordering::Relaxed);
        match place.compare_exchange(unmarked, next, relaxed, relaxed) {
            Ok(_) => Ok(()),
            Err(_) if self.word.load(relaxed) & ACTIVE == 0 => Err(Misuse::Inactive),
            Err(_) => Err(Misuse::ReadyTwice(partition)),
        }
    }

    fn unmark(&self, partitions: impl Iterator<Item = u32>) {
        for partition in partitions {
            self.next[partition as usize].store(UNMARKED, Ordering::Relaxed);
        }
    }

    /// Puts a chain of partitions before the list.
    fn push(&self, first: u32, last: u32) -> Result<bool, Misuse> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & ACTIVE == 0 {
                return Err(Misuse::Inactive);
            }
            self.next[last as usize].store(head(word), Ordering::Relaxed);
            let is_taker = word & (OPEN | TAKEN) == OPEN;
            let taken = if is_taker { TAKEN } else { 0 };
            let new = word & FLAGS | taken | u64::from(first);
            // Releases the bytes of the partitions and the chain to the taker.
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(is_taker),
                Err(now) => word = now,
            }
        }
    }

    /// Takes all marked partitions, in no order. False if there are none: the caller is then no longer the taker.
    pub fn take(&self, batch: &mut Vec<u32>) -> bool {
        batch.clear();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_empty = head(word) == END;
            let new = if is_empty { word & !TAKEN } else { word & FLAGS | EMPTY };
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if is_empty => return false,
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let mut at = head(word);
        while at != END {
            batch.push(at);
            at = self.next[at as usize].load(Ordering::Relaxed);
        }
        true
    }
}

fn head(word: u64) -> u32 {
    word as u32
}

/// Not marked.
const UNMARKED: u32 = u32::MAX;
/// End of the list; no partition has this number.
const END: u32 = u32::MAX - 1;
const EMPTY: u64 = END as u64;

/// A run has begun.
const ACTIVE: u64 = 1 << 32;
/// The receiver has started, so that partitions may leave.
const OPEN: u64 = 1 << 33;
/// A thread takes partitions.
const TAKEN: u64 = 1 << 34;
const FLAGS: u64 = ACTIVE | OPEN | TAKEN;
