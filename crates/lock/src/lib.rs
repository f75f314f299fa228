//! A lock that costs next to nothing while the process has one thread.
//!
//! An atomic exchange makes the CPU core wait until all its earlier writes are visible to others. Behind a short
//! message that wait lasts as long as a cache line's transfer from the peer's core, which is most of the message's
//! cost. While the C library knows of a single thread, taking and releasing the lock are plain writes. The cache line
//! then travels while the next message is made.
//!
//! The crate also holds a combining lock: a thread that finds it held leaves a record instead of waiting. A thread takes
//! it before all other locks (`order`). Further parts are a cell with one user at a time, slots for thread-local values, and a guard against thread cancellation.
//!
//! This is an unsafe zone: the locks give out references to what they guard.

mod alone;
mod cancel;
mod combining_lock;
mod latch;
#[cfg(test)]
mod loom_model;
mod mutual;
mod order;
mod owned_cell;
mod parts;
#[cfg(test)]
mod tests;
mod thread_slots;

pub use cancel::Uncancelled;
pub use combining_lock::{Combiner, CombiningGuard, CombiningLock, Entered};
pub use mutual::{Guard, Lock};
pub use owned_cell::{Held, Missing, OwnedCell};
pub use thread_slots::ThreadSlots;

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self::of(latch(), value)
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Combiner> CombiningLock<T> {
    /// Creates a combining lock that nobody holds, with these records; more than 64 are ignored.
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
    /// Creates a cell that nobody holds.
    pub const fn new(value: T) -> Self {
        Self::of(parts::AtomicU32::new(0), value)
    }
}
