//! Memory of a fixed length, written and read by its owner piece by piece.

use crate::Region;
use crate::region::copy_few;

/// `LEN` bytes, which the engine takes or fills as a region, and their owner reads and writes in a few
/// instructions. Not both at once: the owner waits until the engine is done.
#[derive(Debug)]
pub struct Page<const LEN: usize> {
    /// Where the region begins, which owns the memory.
    address: *mut u8,
    whole: Region,
}

// SAFETY: a page is a region and its address.
unsafe impl<const LEN: usize> Send for Page<LEN> {}
// SAFETY: shared references read.
unsafe impl<const LEN: usize> Sync for Page<LEN> {}

impl<const LEN: usize> Default for Page<LEN> {
    fn default() -> Self {
        let whole = Region::owned(LEN);
        let address = whole.as_span().map_or(std::ptr::null_mut(), |span| span.address);
        Self { address, whole }
    }
}

impl<const LEN: usize> Page<LEN> {
    /// All of it.
    pub fn region(&self) -> &Region {
        &self.whole
    }

    /// Copies `source` over the bytes from `at` on.
    ///
    /// # Panics
    /// If they are beyond the page: an error of the library, not of its user.
    #[inline(always)]
    pub fn write(&mut self, at: usize, source: &[u8]) {
        check::<LEN>(at, source.len());
        // SAFETY: the bytes are inside the memory of the region, which is there as long as `self`; the
        // source is memory that somebody has borrowed, and so another one.
        unsafe { copy_few(source.as_ptr(), self.address.add(at), source.len()) };
    }

    /// Copies the bytes from `at` on into `target`.
    ///
    /// # Panics
    /// As [`Page::write`].
    #[inline(always)]
    pub fn read(&self, at: usize, target: &mut [u8]) {
        check::<LEN>(at, target.len());
        // SAFETY: as in `write`.
        unsafe { copy_few(self.address.add(at), target.as_mut_ptr(), target.len()) };
    }
}

#[inline(always)]
fn check<const LEN: usize>(at: usize, len: usize) {
    if len > LEN || at > LEN - len {
        outside(at, len, LEN);
    }
}

#[cold]
fn outside(at: usize, len: usize, all: usize) -> ! {
    panic!("bytes {at}..+{len} lie outside a page of {all} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_region_and_the_other_way_round() {
        let mut page = Page::<64>::default();
        for len in 0..=40 {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            page.region().write(0, &[0; 64]);
            page.write(64 - len, &bytes);
            assert_eq!(page.region().to_vec(), [vec![0; 64 - len], bytes.clone()].concat());
            let mut read = vec![0; len];
            page.read(64 - len, &mut read);
            assert_eq!(read, bytes);
        }
    }

    #[test]
    fn nothing_is_beyond() {
        for (at, len) in [(1, 64), (64, 1), (usize::MAX, 2), (0, 65)] {
            let beyond = std::panic::catch_unwind(|| {
                Page::<64>::default().write(at, &vec![0; len]);
            });
            assert!(beyond.is_err(), "{len} bytes at {at}");
        }
        Page::<64>::default().read(64, &mut []);
    }
}
