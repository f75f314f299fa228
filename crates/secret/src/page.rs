//! A page of memory that core dumps leave out.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use zeroize::Zeroize;

/// Length of a secret in bytes. The kernel rounds it up to a page wherever it takes lengths of mappings.
pub(crate) const LEN: usize = 32;

/// A mapping of one page, which begins with a secret. Core dumps leave it out, and it is not swapped out if the limit
/// on locked memory permits. It is wiped before it is removed.
pub(crate) struct Page(*mut [u8; LEN]);

// SAFETY: a page owns its mapping, as a box would, and is bound to no thread.
unsafe impl Send for Page {}
// SAFETY: shared references only read the bytes.
unsafe impl Sync for Page {}

impl Page {
    /// Maps a page of zeros. If the system has no memory, the process ends as after any other allocation.
    pub fn new() -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, replaces no other.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), LEN, access, MapFlags::PRIVATE) };
        let Ok(address) = mapped else { handle_alloc_error(Layout::new::<[u8; LEN]>()) };
        // SAFETY: the range is the mapping above. Neither call changes what it contains.
        let kept = unsafe {
            // Without permission the secret may be swapped out; it is kept out of dumps all the same.
            let _ = mlock(address, LEN);
            madvise(address, LEN, Advice::LinuxDontDump)
        };
        debug_assert!(kept.is_ok(), "{kept:?}");
        Self(address.cast())
    }

    pub fn bytes(&self) -> &[u8; LEN] {
        // SAFETY: the mapping is longer, aligned to a page, and lives as long as `self`. Every byte is valid.
        unsafe { &*self.0 }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8; LEN] {
        // SAFETY: as in `bytes`; `self` is borrowed mutably, so there is no other reference.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.bytes_mut().zeroize();
        // SAFETY: the mapping is this page's own, and no reference to it is left.
        let removed = unsafe { munmap(self.0.cast(), LEN) };
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the flags of the mapping at an address, from `/proc/self/smaps`.
    fn flags(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in maps.lines() {
            let word = line.split(' ').next().unwrap_or("");
            if let Some((from, to)) = word.split_once('-') {
                let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
                is_here = (from..to).contains(&address);
            } else if is_here && word == "VmFlags:" {
                return Some(line.to_owned());
            }
        }
        None
    }

    #[test]
    fn dumps_leave_a_page_out() {
        let mut page = Page::new();
        page.bytes_mut().fill(9);
        let shown = flags(page.bytes().as_ptr() as usize).expect("it is mapped");
        assert!(shown.split(' ').any(|flag| flag == "dd"), "{shown}");
    }
}
