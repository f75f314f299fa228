//! Memory interface of this rail's protocols: words and bytes that two sides share.
//!
//! Processes share a [`Segment`](super::segment::Segment). The loom models use memory that shows every order in which
//! the memory model lets writes become visible, with very short rings.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Zeroed memory of a fixed length, visible to its creator and to processes that attach it.
pub trait Shared: Sized {
    /// A 64-bit word.
    type Word64: Word<u64>;
    /// A 32-bit word.
    type Word32: Word<u32>;

    /// Length of a ring in bytes, a multiple of eight lines.
    const RING_LEN: usize;
    /// Length from which on a body cuts through, in bytes.
    const CUT_THROUGH_MIN: usize;
    /// Length of its pieces, a multiple of the line.
    const PIECE_LEN: usize;
    /// Number of chunks of a pool.
    const CHUNKS: u16;
    /// Length of a chunk in bytes, a multiple of the line.
    const CHUNK_LEN: usize;

    /// Maximum number of rounds of a shared segment with a line each, with room for a brief contribution; a power of
    /// two.
    const ROUNDS: u64;
    /// Maximum length of a brief contribution, in bytes; plus 16, a multiple of the line.
    const BRIEF_LEN: usize;
    /// Number of rounds with a slot each for a short contribution.
    const SHORT_ROUNDS: u64;
    /// Maximum length of a short contribution, in bytes; a multiple of the line.
    const SHORT_LEN: usize;

    /// Number of fences that a neighbour runs for an awake peer before it withdraws the warning.
    const WASTED_FENCES_MAX: u32;

    /// Creates `len` zeroed bytes.
    fn create(len: usize) -> io::Result<Self>;

    /// Creates `len` bytes, of which only the first `reserved` have memory; others must be reserved before they are
    /// written.
    fn create_in_part(len: usize, reserved: usize) -> io::Result<Self>;

    /// Reserves memory for a range.
    fn reserve(&mut self, at: usize, len: usize) -> io::Result<()>;

    /// Attaches at least `len` bytes behind descriptor `fd` of process `pid`.
    fn attach(pid: i32, fd: i32, len: usize) -> io::Result<Self>;

    /// Descriptor number, for peers; -1 for attached memory.
    fn descriptor(&self) -> i32;

    /// The 64-bit word at byte `at`, a multiple of 8.
    fn word64(&self, at: usize) -> &Self::Word64;

    /// The 32-bit word at byte `at`, a multiple of 4.
    fn word32(&self, at: usize) -> &Self::Word32;

    /// Bytes that the protocol currently assigns to this side for reading.
    fn slice(&self, at: usize, len: usize) -> &[u8];

    /// Bytes that the protocol currently assigns to this side for writing.
    fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8];

    /// Copies `bytes` to byte `at`.
    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.slice_mut(at, bytes.len()).copy_from_slice(bytes);
    }

    /// Full memory fence of this thread.
    fn fence();

    /// Spin-loop hint.
    fn pause();

    /// Fence of a process about to sleep; with `on_all_cores`, on every core that runs a registered process
    /// (`membarrier`).
    fn sleeper_fence(on_all_cores: bool);
}

/// An atomic number.
pub trait Word<N> {
    fn load(&self, order: Ordering) -> N;
    fn store(&self, value: N, order: Ordering);
    fn swap(&self, value: N, order: Ordering) -> N;
    fn fetch_and(&self, value: N, order: Ordering) -> N;
    fn fetch_or(&self, value: N, order: Ordering) -> N;
    /// Stores `value` if the current value is `known`.
    fn replace(&self, known: N, value: N, order: Ordering);
}

/// Implements [`Word`] by the methods of the standard atomics.
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
