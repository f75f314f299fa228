//! What the protocols of this rail are written over: words and bytes that two sides share.
//!
//! Processes share a [`Segment`](super::segment::Segment). The models share memory that shows every
//! order in which the language lets writes become visible, with rings of a few lines only.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Zeroed memory of a fixed length, seen by its maker and by those who attach to it.
pub trait Shared: Sized {
    /// A 64-bit word.
    type Word64: Word<u64>;
    /// A 32-bit word.
    type Word32: Word<u32>;

    /// Length of a ring in bytes, a multiple of eight lines.
    const RING_LEN: usize;
    /// Bodies of so many bytes cut through…
    const THROUGH_MIN: usize;
    /// …in pieces of so many, a multiple of the line.
    const PIECE_LEN: usize;
    /// How many chunks a pool has.
    const CHUNKS: u16;
    /// Length of a chunk in bytes, a multiple of the line.
    const CHUNK_LEN: usize;

    /// How many rounds of a shared segment have lines of their own at most, with room for what is brief: a power of two, as
    /// that of others is.
    const ROUNDS: u64;
    /// What of a shared segment is brief, in bytes: with 16 more a multiple of the line.
    const BRIEF_LEN: usize;
    /// How many rounds have places of their own for what is short.
    const SHORT_ROUNDS: u64;
    /// What of a shared segment is short, in bytes: a multiple of the line.
    const SHORT_LEN: usize;

    /// So many fences a neighbour runs in vain before it asks for others.
    const IN_VAIN: u32;

    /// Fresh memory of `len` zeroed bytes.
    fn create(len: usize) -> io::Result<Self>;

    /// The same, of which only the first `reserved` bytes are there; others are to be reserved before they are written.
    fn create_in_part(len: usize, reserved: usize) -> io::Result<Self>;

    /// Sees that so many bytes are there.
    fn reserve(&mut self, at: usize, len: usize) -> io::Result<()>;

    /// The memory of at least `len` bytes behind descriptor `fd` of process `pid`.
    fn attach(pid: i32, fd: i32, len: usize) -> io::Result<Self>;

    /// The descriptor's number, for peers; -1 for another's memory.
    fn descriptor(&self) -> i32;

    /// The 64-bit word at byte `at`, a multiple of 8.
    fn word64(&self, at: usize) -> &Self::Word64;

    /// The 32-bit word at byte `at`, a multiple of 4.
    fn word32(&self, at: usize) -> &Self::Word32;

    /// Bytes that the protocol gives to this side for reading.
    fn slice(&self, at: usize, len: usize) -> &[u8];

    /// Bytes that the protocol gives to this side for writing.
    fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8];

    /// Copies `bytes` to byte `at`.
    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.slice_mut(at, bytes.len()).copy_from_slice(bytes);
    }

    /// A full fence on this core.
    fn fence();

    /// Lets the other side go on.
    fn pause();

    /// That of who is about to sleep, if asked for on every core that runs a process which has registered for it.
    fn fence_of_sleeper(on_all_cores: bool);
}

/// A number that is read and written whole.
pub trait Word<N> {
    fn load(&self, order: Ordering) -> N;
    fn store(&self, value: N, order: Ordering);
    fn swap(&self, value: N, order: Ordering) -> N;
    fn fetch_and(&self, value: N, order: Ordering) -> N;
    fn fetch_or(&self, value: N, order: Ordering) -> N;
    /// Stores `value` where `known` is; nothing where something else is.
    fn replace(&self, known: N, value: N, order: Ordering);
}

/// Atomics with the methods that the standard library gives them.
macro_rules! words {
    ($($atomic:ty: $number:ty),*) => {$(
        impl Word<$number> for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> $number {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: $number, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn swap(&self, value: $number, order: Ordering) -> $number {
                self.swap(value, order)
            }

            #[inline]
            fn fetch_and(&self, value: $number, order: Ordering) -> $number {
                self.fetch_and(value, order)
            }

            #[inline]
            fn fetch_or(&self, value: $number, order: Ordering) -> $number {
                self.fetch_or(value, order)
            }

            #[inline]
            fn replace(&self, known: $number, value: $number, order: Ordering) {
                let _ = self.compare_exchange(known, value, order, Ordering::Relaxed);
            }
        }
    )*};
}

words!(AtomicU32: u32, AtomicU64: u64);
