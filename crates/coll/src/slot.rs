//! Slots of processes in shared segments, and the memory that these may occupy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock::Lock;
use rail_shm::{Operations, ShmColl};

/// This process's slot in the shared segment of its node.
#[derive(Debug)]
pub struct Slot {
    pub shm_coll: Arc<Lock<ShmColl>>,
    /// Topology of the team, including shared segments.
    pub places: plan::Topology,
    /// Ranks of the processes on this segment, in order of their positions.
    members: Vec<u32>,
    /// Index of this process in `members`.
    pub position: u32,
    operations: Operations,
    _space: Space,
}

impl Slot {
    /// Enters a segment that all `members` have joined, in their collective `tag`.
    pub fn enter(
        (space, mut shm_coll): (Space, ShmColl),
        places: plan::Topology,
        (members, position): (Vec<u32>, u32),
        tag: i32,
    ) -> Self {
        shm_coll.close_invitation();
        let operations = shm_coll.operations().clone();
        operations.begin(tag - 1);
        let shm_coll = Arc::new(Lock::new(shm_coll));
        Self { shm_coll, places, members, position, operations, _space: space }
    }

    /// Begins a blocking collective. A gap in the tags is left by collectives whose comparison has failed, and, while
    /// calls are compared, by nonblocking ones.
    #[inline]
    pub fn begin(&self, tag: i32) {
        // Blocking collectives run one at a time (MPI-5.0 §6.1).
        if !self.operations.begin(tag) {
            self.leave_out();
        }
    }

    #[cold]
    fn leave_out(&self) {
        self.shm_coll.lock().leave_out();
    }

    /// The rank of the process at a position.
    #[inline]
    pub fn rank(&self, position: u32) -> u32 {
        self.members[position as usize]
    }

    /// Number of processes that share the segment.
    pub fn size(&self) -> usize {
        self.members.len()
    }
}

/// A share of the memory budget for all shared segments of this process, in bytes.
#[derive(Debug)]
pub struct Space(usize);

impl Space {
    /// Takes a share, if there is room for it.
    pub fn take(bytes: usize) -> Option<Self> {
        let fits = |taken: usize| Some(taken + bytes).filter(|&all| all <= SPACE_MAX);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok().then(|| Self(bytes))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Bytes that the shared segments of this process occupy.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Limit of [`TAKEN`], in bytes: enough for sixteen large communicators.
const SPACE_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_stay_within_their_budget_and_give_it_back() {
        let most = Space::take(SPACE_MAX - 5).unwrap();
        assert!(Space::take(6).is_none());
        let rest = Space::take(5).unwrap();
        drop(most);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 5);
        drop(rest);
        assert!(Space::take(SPACE_MAX).is_some());
    }
}
