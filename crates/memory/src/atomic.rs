//! Atomic replacement of elements, for operations on memory that several processes combine.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::Region;

/// Defines the replacement of a number by a function of it.
macro_rules! replacements {
    ($($name:ident $atomic:ty, $number:ty;)*) => { $(
        /// Replaces the number at an address, and returns the former bytes.
        ///
        /// # Safety
        /// The address is aligned and valid for reads and writes, which others only do atomically meanwhile.
        unsafe fn $name(address: *mut u8, new: &mut dyn FnMut([u8; 8]) -> [u8; 8]) -> [u8; 8] {
            // SAFETY: the caller's promise.
            let number = unsafe { <$atomic>::from_ptr(address.cast()) };
            let mut old = number.load(Ordering::Acquire);
            loop {
                let mut bytes = [0; 8];
                bytes[..size_of::<$number>()].copy_from_slice(&old.to_ne_bytes());
                let made = new(bytes);
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(&made[..size_of::<$number>()]);
                let wanted = <$number>::from_ne_bytes(own);
                match number.compare_exchange_weak(old, wanted, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return bytes,
                    Err(other) => old = other,
                }
            }
        }
    )* };
}

replacements! {
    replace_u8 AtomicU8, u8;
    replace_u16 AtomicU16, u16;
    replace_u32 AtomicU32, u32;
    replace_u64 AtomicU64, u64;
}

impl Region {
    /// Replaces `len` bytes at `offset` by what `new` makes of them, and returns the former ones. The replacement is
    /// atomic for all who use this function, in any process. `new` may be called several times. The bytes are the first
    /// of eight. `None` if the memory is scattered or not aligned, or `len` is not 1, 2, 4 or 8.
    ///
    /// # Panics
    /// If the range exceeds the region: an error of the library, not of its user.
    pub fn replace(
        &self,
        offset: usize,
        len: usize,
        new: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Option<[u8; 8]> {
        let span = self.slice(offset, len).as_span()?;
        if !(span.address as usize).is_multiple_of(len.max(1)) {
            return None;
        }
        // SAFETY: the range was checked, and the region's maker guaranteed it; it is aligned.
        unsafe {
            match len {
                1 => Some(replace_u8(span.address, new)),
                2 => Some(replace_u16(span.address, new)),
                4 => Some(replace_u32(span.address, new)),
                8 => Some(replace_u64(span.address, new)),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_replacements_lose_nothing() {
        for len in [2, 4, 8] {
            let memory = Region::owned(16);
            let add = || {
                for _ in 0..10_000 {
                    let old = memory.replace(8, len, &mut |bytes| {
                        (u64::from_le_bytes(bytes) + 1).to_le_bytes()
                    });
                    assert!(old.is_some());
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(add);
                scope.spawn(add);
            });
            let mut sum = [0; 8];
            memory.read(8, &mut sum[..len]);
            assert_eq!(u64::from_le_bytes(sum), 20_000);
            assert_eq!(memory.slice(0, 8).to_vec(), [0; 8]);
        }
    }

    #[test]
    fn only_aligned_numbers_are_replaced() {
        let memory = Region::owned(32);
        let replaced = |offset, len| memory.replace(offset, len, &mut |_| [7; 8]);
        assert!(
            [(0, 3), (1, 2), (2, 4), (4, 8), (0, 16), (0, 0)]
                .iter()
                .all(|&(offset, len)| replaced(offset, len).is_none())
        );
        assert_eq!(memory.to_vec(), [0; 32]);
        assert_eq!(replaced(3, 1), Some([0; 8]));
        assert_eq!(memory.slice(2, 3).to_vec(), [0, 7, 0]);
    }
}
