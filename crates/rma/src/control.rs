//! Words that guard the memory of one target.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use rail_shm::SharedMemory;
use rustix::process::{Pid, test_kill_process};

/// Words that guard the memory of one target: in this process, or in memory that its node shares.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Own(Arc<OwnWords>),
    Shared(SharedMemory, usize),
}

/// Words of memory that only this process maps.
#[derive(Debug, Default)]
pub(crate) struct OwnWords {
    lock: AtomicU64,
    combining: AtomicU32,
}

impl Control {
    /// Length in shared memory, in bytes: a cache line.
    pub const LEN: usize = 64;

    /// Word of the window's lock.
    pub fn lock_word(&self) -> &AtomicU64 {
        match self {
            Self::Own(words) => &words.lock,
            Self::Shared(memory, at) => memory.word64(*at),
        }
    }

    /// Holds the lock of all who combine elements, while `work` runs.
    pub fn combine<T>(&self, work: impl FnOnce() -> T) -> T {
        let word = match self {
            Self::Own(words) => &words.combining,
            Self::Shared(memory, at) => memory.word32(*at + 8),
        };
        // A call of the kernel each time would cost more than the rest.
        static OWN_ID: LazyLock<u32> = LazyLock::new(std::process::id);
        let me = *OWN_ID;
        let mut tries: u32 = 0;
        loop {
            match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(holder) => {
                    tries += 1;
                    wait_for(word, holder, tries);
                }
            }
        }
        let result = work();
        word.store(0, Ordering::Release);
        result
    }
}

/// Waits for another holder; one that has ended loses the lock.
#[cold]
fn wait_for(word: &AtomicU32, holder: u32, tries: u32) {
    if !tries.is_multiple_of(SPINS) {
        return std::hint::spin_loop();
    }
    std::thread::yield_now();
    let pid = i32::try_from(holder).ok().and_then(Pid::from_raw);
    if tries.is_multiple_of(SPINS * YIELDS)
        && pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    {
        // Somebody else may have done so.
        let _ = word.compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Spins before the core is given to others, and yields before the holder is looked for.
const SPINS: u32 = 100;
const YIELDS: u32 = 100;
