//! A lock that costs next to nothing while the process has one thread.
//!
//! An atomic exchange makes the core wait until all it has written before is visible to others. Behind a
//! short message that wait is as long as a cache line's way from the peer's core, which is most of what
//! the message takes. As long as the C library knows of a single thread, taking and giving back the lock
//! are plain writes, and the line travels while the next message is made. With it come a combining_lock, where who finds it held
//! leaves a record instead of waiting, turns, places for what is a thread's own, and what keeps a thread from being cancelled.
//!
//! This is an unsafe zone: the locks give out references to what they guard.

mod alone;
mod cancel;
mod combining_lock;
mod latch;
#[cfg(test)]
mod model;
mod mutual;
mod owned_cell;
#[cfg(test)]
mod tests;
mod thread_slots;

pub use cancel::Uncancelled;
pub use combining_lock::{Combiner, CombiningGuard, CombiningLock, Entered};
pub use mutual::{Guard, Lock};
pub use owned_cell::{Held, Missing, OwnedCell};
pub use thread_slots::ThreadSlots;

/// What the locks are made of. Their model is made of others.
mod parts {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicU32, AtomicU64};
    pub use std::sync::{Condvar, Mutex};
    pub use std::thread::yield_now;

    pub use crate::alone::{has_one_thread, is_known_alone};

    /// Some microseconds, as long as a lock is held that guards no system call; each round has twice the pauses of the one
    /// before.
    pub const ROUNDS: u32 = 7;

    /// Some microseconds.
    pub const SPINS: u32 = 100;
}

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self::of(latch(), value)
    }
}

impl<T: Combiner> CombiningLock<T> {
    /// A combining_lock that nobody has, with these records, which are 64 at most.
    pub fn new(records: impl IntoIterator<Item = T::Record>, value: T) -> Self {
        let records: Vec<_> = records.into_iter().take(combining_lock::RECORDS_MAX).collect();
        let befores = std::iter::repeat_with(|| parts::AtomicU32::new(0));
        let free = records.iter().fold(0, |bits, _| bits << 1 | 1);
        Self::of(latch(), (parts::AtomicU64::new(free), befores), records, value)
    }
}

const fn latch() -> latch::Latch {
    use parts::{AtomicU32, Condvar, Mutex};
    latch::Latch::of(AtomicU32::new(0), Mutex::new(()), Condvar::new())
}

impl<T> OwnedCell<T> {
    /// A turn that nobody has.
    pub const fn new(value: T) -> Self {
        Self::of(parts::AtomicU32::new(0), value)
    }
}
