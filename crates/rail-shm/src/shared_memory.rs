//! Memory that the processes of a node map for windows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

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
    /// one has them mapped.
    ///
    /// # Errors
    /// The kernel gives no shared memory.
    pub fn create(len: usize) -> io::Result<(Self, [u8; Self::INVITATION_LEN])> {
        let segment = Segment::create(len)?;
        let (pid, descriptor) = (std::process::id(), segment.descriptor() as u32);
        let invitation = (u64::from(pid) << 32 | u64::from(descriptor)).to_le_bytes();
        Ok((Self(Arc::new(Mapping { segment, len })), invitation))
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

#[cfg(test)]
mod tests {
    use super::*;

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
