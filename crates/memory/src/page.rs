//! Memory of a fixed length that its owner writes and reads in pieces.

use crate::Region;
use crate::copy::copy_few;

/// Memory of `LEN` bytes, which the engine reads or fills as a region, and which its owner reads
/// and writes in a few instructions. The owner must wait until the engine is done.
#[derive(Debug)]
pub struct Page<const LEN: usize> {
    /// Start of the region, which owns the memory.
    address: *mut u8,
    whole: Region,
}

// SAFETY: a page is a region and its address; the region owns the memory and may be sent.
unsafe impl<const LEN: usize> Send for Page<LEN> {}
// SAFETY: shared references only read the page.
unsafe impl<const LEN: usize> Sync for Page<LEN> {}

impl<const LEN: usize> Default for Page<LEN> {
    fn default() -> Self {
        let whole = Region::owned(LEN);
        let address = whole.as_span().map_or(std::ptr::null_mut(), |span| span.address);
        Self { address, whole }
    }
}

impl<const LEN: usize> Page<LEN> {
    /// Returns the whole page as a region.
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
        // SAFETY: the bytes are inside the region's memory, which lives as long as `self`. The
        // source is borrowed memory, and so distinct from it.
        unsafe { copy_few(source.as_ptr(), self.address.add(at), source.len()) };
    }

    /// Copies `head` over the bytes from `at` on, and `data` behind it, if that leaves at least
    /// `spare` bytes. True if it did.
    #[inline(always)]
    pub fn try_write<const HEAD: usize>(
        &mut self,
        at: usize,
        head: [u8; HEAD],
        data: &[u8],
        spare: usize,
    ) -> bool {
        let last = LEN.checked_sub(data.len()).and_then(|last| last.checked_sub(HEAD + spare));
        let has_room = last.is_some_and(|last| at <= last);
        if has_room {
            // SAFETY: both copies end within the page, whose memory lives as long as `self`; the
            // sources are borrowed memory and so distinct from it.
            unsafe {
                let to = self.address.add(at);
                to.cast::<[u8; HEAD]>().write_unaligned(head);
                copy_without_call(data.as_ptr(), to.add(HEAD), data.len());
            }
        }
        has_room
    }

    /// Copies the bytes behind `head` into `target`, if `head` is at `at` and they end by `end`.
    /// True if it did.
    #[inline(always)]
    pub fn try_read<const HEAD: usize>(
        &self,
        at: usize,
        end: usize,
        head: [u8; HEAD],
        target: &mut [u8],
    ) -> bool {
        let behind = end.min(LEN).checked_sub(at).and_then(|left| left.checked_sub(HEAD));
        if behind.is_none_or(|behind| target.len() > behind) {
            return false;
        }
        // SAFETY: both reads end within the page, whose memory lives as long as `self`; the target
        // is borrowed memory and so distinct from it.
        unsafe {
            let from = self.address.add(at);
            let is_it = from.cast::<[u8; HEAD]>().read_unaligned() == head;
            if is_it {
                copy_without_call(from.add(HEAD), target.as_mut_ptr(), target.len());
            }
            is_it
        }
    }

    /// Copies the bytes from `at` on into `target`.
    ///
    /// # Panics
    /// If they are beyond the page.
    #[inline(always)]
    pub fn read(&self, at: usize, target: &mut [u8]) {
        check::<LEN>(at, target.len());
        // SAFETY: the bytes are inside the page, whose memory lives as long as `self`; the target
        // is borrowed memory and so distinct from it.
        unsafe { copy_few(self.address.add(at), target.as_mut_ptr(), target.len()) };
    }
}

/// Copies like `copy_nonoverlapping`, at most a page, and never by a call. A call would make its
/// caller save its registers, even for the shortest copy.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy_without_call(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: all copies are within the caller's bytes: the first ones, the last ones, and whole
    // pairs between them.
    unsafe {
        match len {
            16..=32 => copy_ends::<u128>(from, to, len),
            8..16 => copy_ends::<u64>(from, to, len),
            4..8 => copy_ends::<u32>(from, to, len),
            2..4 => copy_ends::<u16>(from, to, len),
            1 => copy_ends::<u8>(from, to, len),
            0 => {}
            33.. => {
                let mut at = 0;
                while at + 32 < len {
                    copy_ends::<u128>(from.add(at), to.add(at), 32);
                    at += 32;
                }
                copy_ends::<u128>(from.add(len - 32), to.add(len - 32), 32);
            }
        }
    }
}

/// Copies the first and the last bytes of `len`, a `T` each, which may overlap.
///
/// # Safety
/// Both are `len` bytes of memory each, no shorter than a `T`, and do not overlap.
#[inline(always)]
unsafe fn copy_ends<T>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both ends lie within the bytes that the caller guarantees.
    unsafe {
        let (first_bytes, last_bytes) =
            (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(first_bytes);
        to.add(last).cast::<T>().write_unaligned(last_bytes);
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
    fn writes_are_visible_in_the_region_and_vice_versa() {
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
    fn data_without_room_are_not_written_and_other_heads_are_not_read() {
        let (head, mut page) = (*b"head", Page::<64>::default());
        for len in 0..=70 {
            let (data, mut into) = ((1..=len as u8).collect::<Vec<u8>>(), vec![0; len]);
            for at in (0..70).chain([usize::MAX - 5, usize::MAX]) {
                page.write(0, &[0; 64]);
                let has_room = at <= 64 && at + 4 + len + 3 <= 64;
                assert_eq!(page.try_write(at, head, &data, 3), has_room);
                let mut expected = [0; 64];
                if has_room {
                    expected[at..at + 4].copy_from_slice(&head);
                    expected[at + 4..at + 4 + len].copy_from_slice(&data);
                }
                assert_eq!(page.region().to_vec(), expected);
                for end in [at.saturating_add(3 + len), at.saturating_add(4 + len), 61, usize::MAX]
                {
                    let is_there = has_room && end >= at + 4 + len;
                    into.fill(0);
                    assert!(!page.try_read(at, end, *b"tail", &mut into));
                    assert!(into.iter().all(|byte| *byte == 0));
                    assert_eq!(page.try_read(at, end, head, &mut into), is_there);
                    assert_eq!(into == data, is_there || len == 0);
                }
            }
        }
    }

    #[test]
    fn accesses_beyond_the_page_panic() {
        for (at, len) in [(1, 64), (64, 1), (usize::MAX, 2), (0, 65)] {
            let beyond = std::panic::catch_unwind(|| {
                Page::<64>::default().write(at, &vec![0; len]);
            });
            assert!(beyond.is_err(), "{len} bytes at {at}");
        }
        Page::<64>::default().read(64, &mut []);
    }
}
