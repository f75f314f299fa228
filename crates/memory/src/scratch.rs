//! Memory for temporaries that is reused.
//!
//! A computation needs temporaries of the same lengths again and again. If the allocator returns
//! them to the system, each page costs a fault on the next use, more than the work on it.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns at least `len` bytes with arbitrary contents; none if there is no memory.
pub(crate) fn take(len: usize) -> Option<Box<[u8]>> {
    let found = pool().take(len);
    found.or_else(|| zeroed(len.checked_next_multiple_of(GRAIN)?))
}

/// Returns `len` bytes of zeros; none if there is no memory.
fn zeroed(len: usize) -> Option<Box<[u8]>> {
    if len == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: the layout has a size. The system zeroes long memory when it is first touched, so this is no loop.
    let first = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    // SAFETY: the allocator has given so many bytes, in the layout of a box of them.
    Some(unsafe { Box::from_raw(NonNull::slice_from_raw_parts(first, len).as_ptr()) })
}

/// Keeps memory for reuse.
pub(crate) fn give(memory: Box<[u8]>) {
    // Memory without room is freed after the lock is released.
    let _freed = pool().give(memory);
}

#[derive(Default)]
struct Pool {
    /// Kept memory, the most recent at the end: it may still be in a cache.
    memory: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Pool {
    const fn new() -> Self {
        Self { memory: VecDeque::new(), bytes: 0 }
    }

    /// Returns the most recent memory that is long enough, and less than twice as long.
    fn take(&mut self, len: usize) -> Option<Box<[u8]>> {
        let lens = len..=2 * len.next_multiple_of(GRAIN);
        let at = self.memory.iter().rposition(|memory| lens.contains(&memory.len()))?;
        let memory = self.memory.remove(at)?;
        self.bytes -= memory.len();
        Some(memory)
    }

    /// Keeps memory in place of the oldest; returns the memory that has no room.
    fn give(&mut self, memory: Box<[u8]>) -> Vec<Box<[u8]>> {
        self.bytes += memory.len();
        self.memory.push_back(memory);
        let mut freed = Vec::new();
        while (self.bytes > BYTES_MAX || self.memory.len() > COUNT_MAX)
            && let Some(oldest) = self.memory.pop_front()
        {
            self.bytes -= oldest.len();
            freed.push(oldest);
        }
        freed
    }
}

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unit of lengths: a page.
const GRAIN: usize = 4096;

/// Maximum of kept memory, in bytes and in pieces.
const BYTES_MAX: usize = 32 << 20;
const COUNT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize) -> Box<[u8]> {
        vec![0; len].into_boxed_slice()
    }

    #[test]
    fn fitting_memory_is_reused_most_recent_first() {
        let mut pool = Pool::new();
        for len in [8192, 8192, 65536] {
            assert!(pool.give(of(len)).is_empty());
        }
        let last = pool.memory[1].as_ptr();
        assert_eq!(pool.take(5000).map(|memory| memory.as_ptr()), Some(last));
        assert!(pool.take(20000).is_none(), "more than twice as long is for others");
        assert!(pool.take(8193).is_none());
        assert!(pool.take(65536).is_some() && pool.take(8192).is_some());
        assert_eq!((pool.bytes, pool.memory.len()), (0, 0));
    }

    #[test]
    fn the_pool_is_bounded_in_bytes_and_pieces() {
        let mut pool = Pool::new();
        let freed: usize = (0..2 * COUNT_MAX).map(|_| pool.give(of(GRAIN)).len()).sum();
        assert_eq!((freed, pool.memory.len()), (COUNT_MAX, COUNT_MAX));
        assert_eq!(pool.give(of(BYTES_MAX)).len(), COUNT_MAX, "all others give way");
        assert_eq!(pool.give(of(BYTES_MAX + 1)).len(), 2, "what is too long is not kept");
        assert_eq!(pool.bytes, 0);
    }
}
