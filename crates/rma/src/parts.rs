//! Building blocks of what threads and processes share. The loom model substitutes its own.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::yield_now;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// True if no process has this number.
pub(crate) fn has_ended(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Tries after which the core is given to others, and yields after which the holder is looked for.
pub(crate) const SPINS: u32 = 100;
pub(crate) const YIELDS: u32 = 100;
