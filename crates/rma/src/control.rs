//! Words that guard the memory of one target.
//!
//! Elements are combined under the locks of the blocks in which they lie. A block's lock follows from the address within
//! a page, which is the same in every mapping. So ranks that combine different elements rarely wait for each other.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, LazyLock};

use memory::Region;
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
    combining: [AtomicU32; BLOCKS],
}

/// Number of blocks of a page, each with a lock.
const BLOCKS: usize = 16;

/// Length of a block in bytes.
const BLOCK_LEN: usize = 256;

const CACHE_LINE: usize = 64;

impl Control {
    /// Length in shared memory, in bytes: a cache line for each word.
    pub const LEN: usize = (1 + BLOCKS) * CACHE_LINE;

    /// Word of the window's lock.
    pub fn lock_word(&self) -> &AtomicU64 {
        match self {
            Self::Own(words) => &words.lock,
            Self::Shared(memory, at) => memory.word64(*at),
        }
    }

    /// Holds the locks of all who combine elements of `len` bytes at `offset`, while `work` runs.
    #[inline(always)]
    pub fn combine<T>(
        &self,
        (memory, offset, len): (&Region, usize, usize),
        work: impl FnOnce() -> T,
    ) -> T {
        let address = memory.as_span().map(|span| span.address as usize + offset);
        let single = match address {
            Some(first) if first % BLOCK_LEN + len <= BLOCK_LEN => {
                Some(self.block_word(first / BLOCK_LEN % BLOCKS))
            }
            _ => None,
        };
        match single {
            Some(word) => word_lock::take(word, own_id()),
            None => self.take_several(address, len),
        }
        let result = work();
        match single {
            Some(word) => word_lock::give_back(word),
            None => self.give_several_back(address, len),
        }
        result
    }

    /// Takes the locks of several blocks, in the order of their numbers; those of all blocks if the elements have no
    /// common address.
    #[inline(never)]
    fn take_several(&self, address: Option<usize>, len: usize) {
        touched(address, len).for_each(|block| word_lock::take(self.block_word(block), own_id()));
    }

    #[inline(never)]
    fn give_several_back(&self, address: Option<usize>, len: usize) {
        touched(address, len).for_each(|block| word_lock::give_back(self.block_word(block)));
    }

    fn block_word(&self, block: usize) -> &AtomicU32 {
        match self {
            Self::Own(words) => &words.combining[block],
            Self::Shared(memory, at) => memory.word32(*at + (1 + block) * CACHE_LINE),
        }
    }
}

/// Blocks that elements touch, in the order of their numbers.
fn touched(address: Option<usize>, len: usize) -> impl Iterator<Item = usize> {
    let (first, number) = match address {
        Some(address) => {
            (address / BLOCK_LEN, (address % BLOCK_LEN + len).div_ceil(BLOCK_LEN).min(BLOCKS))
        }
        None => (0, BLOCKS),
    };
    (0..BLOCKS).filter(move |block| block.wrapping_sub(first) % BLOCKS < number)
}

/// Number of this process. A call of the kernel each time would cost more than the rest.
#[inline]
fn own_id() -> u32 {
    static OWN_ID: LazyLock<u32> = LazyLock::new(std::process::id);
    *OWN_ID
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// Blocks whose locks are held while elements are combined, as bits.
    fn held(control: &Control, place: (&Region, usize, usize)) -> u32 {
        control.combine(place, || {
            let is_held = |&block: &usize| control.block_word(block).load(Relaxed) != 0;
            (0..BLOCKS).filter(is_held).map(|block| 1 << block).sum()
        })
    }

    #[test]
    fn the_locks_of_all_touched_blocks_are_held_and_given_back() {
        let control = Control::Own(Arc::default());
        let memory = Region::owned(5 * BLOCKS * BLOCK_LEN);
        let address = memory.as_span().unwrap().address as usize;
        for offset in (0..2 * BLOCKS * BLOCK_LEN).step_by(52) {
            for len in [1, 8, 32, BLOCK_LEN, 3 * BLOCK_LEN + 1, 2 * BLOCKS * BLOCK_LEN] {
                let blocks =
                    (address + offset..address + offset + len).map(|byte| byte / BLOCK_LEN);
                let expected = blocks.fold(0, |all, block| all | 1 << (block % BLOCKS));
                assert_eq!(held(&control, (&memory, offset, len)), expected, "{offset} {len}");
            }
        }
        let parts = Region::chain([memory.slice(0, 4), memory.slice(8, 4)]);
        assert_eq!(held(&control, (&parts, 0, 8)), u32::MAX >> (32 - BLOCKS));
        assert_eq!(held(&control, (&memory, 0, 0)).count_ones(), 1);
        assert!((0..BLOCKS).all(|block| control.block_word(block).load(Relaxed) == 0));
    }

    #[test]
    fn two_mappings_of_a_window_have_the_same_locks() {
        let (node, invitation) = crate::NodeMemory::create(&[10_000; 2], true).unwrap();
        let other = crate::NodeMemory::join(invitation, &[10_000; 2], true).unwrap();
        for offset in (0..9992).step_by(8) {
            let [one, two] =
                [&node, &other].map(|node| held(&node.control(1), (&node.part(1), offset, 8)));
            assert_eq!(one, two, "{offset}");
        }
    }
}
