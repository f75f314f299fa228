//! Building blocks of the locks. The loom model substitutes its own.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicU32, AtomicU64};
pub use std::sync::{Condvar, Mutex};
pub use std::thread::yield_now;

pub use crate::alone::{has_one_thread, is_known_alone};
pub(crate) use crate::order;

/// Rounds of spinning, some microseconds in all: as long as a lock is held that guards no system call. Each round
/// pauses twice as often as the one before.
pub const ROUNDS: u32 = 7;

/// Pauses before the thread yields, some microseconds.
pub const SPINS: u32 = 100;
