//! A lock that costs next to nothing while the process has one thread.
//!
//! An atomic exchange makes the core wait until all it has written before is visible to others. Behind a
//! short message that wait is as long as a cache line's way from the peer's core, which is most of what
//! the message takes. As long as the C library knows of a single thread, taking and giving back the lock
//! are plain writes, and the line travels while the next message is made. With it come turns, places for what
//! is a thread's own, and what keeps a thread from being cancelled.
//!
//! This is an unsafe zone: the locks give out references to what they guard.

mod alone;
mod cancel;
#[cfg(test)]
mod model;
mod mutual;
mod places;
#[cfg(test)]
mod tests;
mod turn;

pub use cancel::Uncancelled;
pub use mutual::{Guard, Lock};
pub use places::Places;
pub use turn::{Held, Missing, Turn};

/// What the locks are made of. Their model is made of others.
mod parts {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::AtomicU32;
    pub use std::sync::{Condvar, Mutex};
    pub use std::thread::yield_now;

    pub use crate::alone::{has_one_thread, is_known_alone};

    /// Some microseconds, as long as a lock is held that guards no system call.
    pub const SPINS: u32 = 100;
}

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        use parts::{AtomicU32, Condvar, Mutex};
        Self::of(AtomicU32::new(0), Mutex::new(()), Condvar::new(), value)
    }
}

impl<T> Turn<T> {
    /// A turn that nobody has.
    pub const fn new(value: T) -> Self {
        Self::of(parts::AtomicU32::new(0), value)
    }
}
