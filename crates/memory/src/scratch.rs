//! Memory that is used again.
//!
//! Whoever computes with temporaries needs ones of the same lengths again and again. What the allocator has
//! given back to the system meanwhile costs a fault for each page, more than the work on it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `len` bytes at least, whose contents are whatever they were.
pub(crate) fn take(len: usize) -> Box<[u8]> {
    let found = shelf().take(len);
    found.unwrap_or_else(|| vec![0; len.next_multiple_of(GRAIN)].into_boxed_slice())
}

/// Lays memory aside.
pub(crate) fn give(memory: Box<[u8]>) {
    // What has no room is freed after the lock.
    let _freed = shelf().give(memory);
}

#[derive(Default)]
struct Shelf {
    /// The memory laid aside last is at the end: it may still be in a cache.
    memory: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Shelf {
    const fn new() -> Self {
        Self { memory: VecDeque::new(), bytes: 0 }
    }

    /// The one laid aside last of those that are long enough, and not twice as long.
    fn take(&mut self, len: usize) -> Option<Box<[u8]>> {
        let lens = len..=2 * len.next_multiple_of(GRAIN);
        let at = self.memory.iter().rposition(|memory| lens.contains(&memory.len()))?;
        let memory = self.memory.remove(at)?;
        self.bytes -= memory.len();
        Some(memory)
    }

    /// Lays memory aside in place of the oldest; answers what there is no room for.
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

static SHELF: Mutex<Shelf> = Mutex::new(Shelf::new());

fn shelf() -> MutexGuard<'static, Shelf> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lengths are multiples of a page.
const GRAIN: usize = 4096;

/// So much lies ready at most, in bytes and in pieces.
const BYTES_MAX: usize = 32 << 20;
const COUNT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize) -> Box<[u8]> {
        vec![0; len].into_boxed_slice()
    }

    #[test]
    fn what_fits_is_used_again_the_last_first() {
        let mut shelf = Shelf::new();
        for len in [8192, 8192, 65536] {
            assert!(shelf.give(of(len)).is_empty());
        }
        let last = shelf.memory[1].as_ptr();
        assert_eq!(shelf.take(5000).map(|memory| memory.as_ptr()), Some(last));
        assert!(shelf.take(20000).is_none(), "more than twice as long is for others");
        assert!(shelf.take(8193).is_none());
        assert!(shelf.take(65536).is_some() && shelf.take(8192).is_some());
        assert_eq!((shelf.bytes, shelf.memory.len()), (0, 0));
    }

    #[test]
    fn the_shelf_is_bounded_in_bytes_and_pieces() {
        let mut shelf = Shelf::new();
        let freed: usize = (0..2 * COUNT_MAX).map(|_| shelf.give(of(GRAIN)).len()).sum();
        assert_eq!((freed, shelf.memory.len()), (COUNT_MAX, COUNT_MAX));
        assert_eq!(shelf.give(of(BYTES_MAX)).len(), COUNT_MAX, "all others give way");
        assert_eq!(shelf.give(of(BYTES_MAX + 1)).len(), 2, "what is too long is not kept");
        assert_eq!(shelf.bytes, 0);
    }
}
