//! Memory that the processes of a node map for windows.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, LazyLock};
use std::{fs, io};

use memory::{Keeper, Region};

use crate::segment::Segment;
use crate::shared::Shared;

/// A mapped segment. Clones are the same mapping.
#[derive(Clone, Debug)]
pub struct SharedMemory(Arc<Mapping>);

#[derive(Debug)]
struct Mapping {
    segment: Segment,
    len: usize,
}

// SAFETY: the methods of the mapping only give atomics and the address of its memory, which regions control.
unsafe impl Sync for Mapping {}

impl Keeper for Mapping {}

impl SharedMemory {
    /// Length of an encoded invitation in bytes.
    pub const INVITATION_LEN: usize = 8;

    /// Creates `len` zeroed bytes, at least one. The invitation lets other processes of the node map them while this
    /// one has them mapped. Pages are allocated at the first access, near the core of the process that makes it, unless
    /// such an access could fail.
    ///
    /// # Errors
    /// The kernel gives no shared memory, or there is less memory.
    pub fn create(len: usize) -> io::Result<(Self, [u8; Self::INVITATION_LEN])> {
        if !Self::is_available(len) {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "more memory than there is"));
        }
        let segment = match commitments_count() {
            true => Segment::create(len)?,
            false => Segment::create_in_part(len, 1)?,
        };
        let (pid, descriptor) = (std::process::id(), segment.descriptor() as u32);
        let invitation = (u64::from(pid) << 32 | u64::from(descriptor)).to_le_bytes();
        Ok((Self(Arc::new(Mapping { segment, len })), invitation))
    }

    /// False if the system has not as much memory; short lengths are not compared.
    pub fn is_available(len: usize) -> bool {
        len < CHECKED_MIN || available_bytes().is_none_or(|most| len as u64 <= most)
    }

    /// Maps the memory of another process.
    ///
    /// # Errors
    /// The kernel does not let this process attach the other's memory.
    pub fn join(invitation: [u8; Self::INVITATION_LEN], len: usize) -> io::Result<Self> {
        let number = u64::from_le_bytes(invitation);
        let segment = Segment::attach((number >> 32) as i32, number as u32 as i32, len)?;
        Ok(Self(Arc::new(Mapping { segment, len })))
    }

    /// The 64-bit word at byte `at`, a multiple of 8.
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        self.0.segment.word64(at)
    }

    /// The 32-bit word at byte `at`, a multiple of 4.
    pub fn word32(&self, at: usize) -> &AtomicU32 {
        self.0.segment.word32(at)
    }

    /// Returns `len` bytes from byte `at` on. The region keeps the mapping.
    pub fn region(&self, at: usize, len: usize) -> Region {
        assert!(at <= self.0.len && len <= self.0.len - at);
        if len == 0 {
            return Region::empty();
        }
        let keeper: Arc<dyn Keeper> = Arc::<Mapping>::clone(&self.0);
        // SAFETY: the range lies in the mapping, which lives as long as the keeper.
        unsafe { Region::kept(self.0.segment.address(at) as *mut u8, len, keeper) }
    }
}

/// True if a store to a page that is not allocated may fail while there is memory: the system counts what processes have
/// asked for (`vm.overcommit_memory`). A `memfd` has no other limit of its own.
fn commitments_count() -> bool {
    static COUNT: LazyLock<bool> = LazyLock::new(|| {
        let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory");
        !mode.is_ok_and(|mode| matches!(mode.trim(), "0" | "1"))
    });
    *COUNT
}

/// Number of bytes that the system could give to processes, if it tells.
fn available_bytes() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |name: &str| -> Option<u64> {
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kibibytes("MemAvailable")? + kibibytes("SwapFree").unwrap_or(0)) << 10)
}

/// Length from which on memory is compared with what is available. The question takes some 30 microseconds.
const CHECKED_MIN: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_there_is_is_refused() {
        let all = available_bytes().expect("a system that tells of its memory");
        assert!(all > 1 << 20, "{all} bytes");
        assert!(SharedMemory::create(1 << 45).is_err() && !SharedMemory::is_available(1 << 45));
    }

    #[test]
    fn a_region_keeps_the_mapping_and_others_see_it() {
        let (one, invitation) = SharedMemory::create(100_000).unwrap();
        let other = SharedMemory::join(invitation, 100_000).unwrap();
        assert!(SharedMemory::join(invitation, 100_001).is_err(), "the memory is shorter");
        let region = other.region(4096, 8);
        drop(other);
        region.write(0, &[7; 8]);
        assert_eq!(one.region(4090, 8).to_vec(), [0, 0, 0, 0, 0, 0, 7, 7]);
        drop(one);
        assert_eq!(region.to_vec(), [7; 8]);
    }
}
