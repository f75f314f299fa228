//! Words that guard the memory of one target.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, LazyLock};

use rail_shm::SharedMemory;

use crate::word_lock;

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
    #[inline]
    pub fn combine<T>(&self, work: impl FnOnce() -> T) -> T {
        let word = match self {
            Self::Own(words) => &words.combining,
            Self::Shared(memory, at) => memory.word32(*at + 8),
        };
        // A call of the kernel each time would cost more than the rest.
        static OWN_ID: LazyLock<u32> = LazyLock::new(std::process::id);
        word_lock::hold(word, *OWN_ID, work)
    }
}
