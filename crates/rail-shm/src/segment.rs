//! Memory shared between the processes of a node, without a name in any file system.
//!
//! A segment is a `memfd`; peers open it through `/proc/<pid>/fd/<n>`, which the kernel permits to
//! processes of the same user that see each other. Whatever ends a process, nothing is left behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use lock::Uncancelled;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::shared::Shared;

/// Largest base page size of Linux.
const KERNEL_PAGE: usize = 64 << 10;

/// A mapped segment.
#[derive(Debug)]
pub struct Segment {
    address: *mut u8,
    len: usize,
    /// Descriptor by which peers attach, if this process created the segment.
    file: Option<File>,
}

// SAFETY: a segment is a range of shared memory; all access is atomic or to ranges that the protocol assigns to one
// side at a time.
unsafe impl Send for Segment {}

impl Shared for Segment {
    type Word64 = AtomicU64;
    type Word32 = AtomicU32;

    const RING_LEN: usize = 128 << 10;
    const CUT_THROUGH_MIN: usize = 4 << 10;
    const PIECE_LEN: usize = 4 << 10;
    const CHUNKS: u16 = 48;
    /// A frame of 64 KiB with its header, at any alignment of its body.
    const CHUNK_LEN: usize = (64 << 10) + 4 * 64;
    /// A member far ahead of others on its core waits for a time slice of each.
    const ROUNDS: u64 = 64;
    /// One number for each of a dozen members.
    const BRIEF_LEN: usize = 2 * 64 - 16;
    const SHORT_ROUNDS: u64 = 16;
    /// 1 KiB.
    const SHORT_LEN: usize = 1 << 10;
    /// 64 fences cost a tenth of one interrupt of another core.
    const WASTED_FENCES_MAX: u32 = 64;

    fn create(len: usize) -> io::Result<Self> {
        Self::create_in_part(len, len)
    }

    /// Fails if memory is short, instead of a SIGBUS at the first access.
    fn create_in_part(len: usize, reserved: usize) -> io::Result<Self> {
        let _uncancelled = Uncancelled::begin();
        let file = File::from(memfd_create(c"canele", MemfdFlags::CLOEXEC)?);
        file.set_len(len as u64)?;
        // SAFETY: `posix_fallocate` on our descriptor touches no memory of this process.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, reserved as libc::off_t) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut segment = Self::map(&file, len)?;
        segment.file = Some(file);
        Ok(segment)
    }

    fn reserve(&mut self, at: usize, len: usize) -> io::Result<()> {
        assert!(at <= self.len && len <= self.len - at);
        let start = at / KERNEL_PAGE * KERNEL_PAGE;
        let end = (at + len).next_multiple_of(KERNEL_PAGE).min(self.len);
        // SAFETY: the range lies in the mapping, and populating keeps its contents.
        let advised = unsafe {
            let address = self.address.add(start).cast();
            libc::madvise(address, end - start, libc::MADV_POPULATE_WRITE)
        };
        if advised == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EFAULT | libc::EHWPOISON) => Err(error),
            // Kernels before Linux 5.14 lack the call; memory is then allocated at the first access.
            _ => Ok(()),
        }
    }

    fn attach(pid: i32, fd: RawFd, len: usize) -> io::Result<Self> {
        let _uncancelled = Uncancelled::begin();
        let file = open_descriptor(pid, fd)?;
        let metadata = file.metadata()?;
        // SAFETY: `geteuid` takes no arguments and touches no memory.
        let me = unsafe { libc::geteuid() };
        if metadata.uid() != me {
            return Err(io::Error::other("the segment belongs to another user"));
        }
        if metadata.len() < len as u64 {
            return Err(io::Error::other("the segment is too short"));
        }
        Self::map(&file, len)
    }

    fn descriptor(&self) -> RawFd {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    #[inline]
    fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY: in range and aligned (mappings begin on pages); zeroed memory is a valid atomic.
        unsafe { AtomicU64::from_ptr(self.address.add(at).cast()) }
    }

    #[inline]
    fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: in range and aligned to 4 bytes by the assertion; zeroed memory is a valid atomic.
        unsafe { AtomicU32::from_ptr(self.address.add(at).cast()) }
    }

    #[inline]
    fn slice(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: in range; the producer does not change a record between its release and its reuse.
        unsafe { std::slice::from_raw_parts(self.address.add(at), len) }
    }

    #[inline]
    fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: in range; the consumer does not read a record before its release.
        unsafe { std::slice::from_raw_parts_mut(self.address.add(at), len) }
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn pause() {
        std::hint::spin_loop();
    }

    fn sleeper_fence(on_all_cores: bool) {
        if !(on_all_cores && membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)) {
            fence(Ordering::SeqCst);
        }
    }
}

impl Segment {
    /// Maps the same memory a second time.
    pub fn again(&self) -> io::Result<Self> {
        // Emulators (qemu-user) know only this.
        if let Some(file) = &self.file {
            return Self::map(file, self.len);
        }
        // SAFETY: mremap(2) with length zero on a shared mapping creates another mapping at an address that the kernel
        // chooses; the existing one does not change.
        let address =
            unsafe { libc::mremap(self.address.cast(), 0, self.len, libc::MREMAP_MAYMOVE) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address: address.cast(), len: self.len, file: None })
    }

    fn map(file: &File, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: creates a new mapping at an address that the kernel chooses, so no memory in use changes.
        let address = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address: address.cast(), len, file: None })
    }

    /// Closes the descriptor: no more peers can attach.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Returns the address of byte `at` in this process.
    pub fn address(&self, at: usize) -> u64 {
        assert!(at < self.len);
        self.address as u64 + at as u64
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this segment owns the mapping, and no reference to it remains.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

/// Opens descriptor `fd` of process `pid`, without blocking.
pub(crate) fn open_descriptor(pid: i32, fd: RawFd) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/{pid}/fd/{fd}"))
}

/// Registers this process for others' `membarrier`; true if the call works in both directions.
pub(crate) fn can_run_barriers() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
        && membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes a command, flags and a core number, and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
