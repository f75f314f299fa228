//! Shared segments of communicators: one for the processes on each node, created together once collectives are frequent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock::Lock;
use memory::Region;
use rail_shm::{Operations, ShmColl, ShmCollInvitation};
use runtime::{record, wanted_rails};

use crate::Result;
use crate::collective::Call;
use crate::comm::{Comm, CommRef};
use crate::plans::{Routine, Shape};

/// This process's slot in the shared segment of its node.
#[derive(Debug)]
pub(crate) struct Slot {
    pub shm_coll: Arc<Lock<ShmColl>>,
    /// Topology of the communicator, including shared segments.
    pub places: plan::Topology,
    /// Ranks of the processes on this segment, in order of their positions.
    members: Vec<u32>,
    /// Index of this process in `members`.
    pub position: u32,
    operations: Operations,
    _space: Space,
}

/// Number of blocking collectives after which a communicator creates a shared segment. A communicator with
/// fewer is not worth the memory.
pub(crate) const CREATED_AFTER: i32 = 4;

impl Slot {
    /// Creates the shared segments of `comm` in its collective `tag`, with all its processes. Returns `None` if one
    /// process cannot join or does not want to. A process alone on its node has a segment that no plan uses.
    #[cold]
    pub fn create(comm: &Comm, tag: i32) -> Option<Self> {
        let places = comm.places();
        if comm.halves().is_some() {
            return None;
        }
        // The same on all nodes, because all processes must choose the same plan.
        let page_bytes = plan::page_bytes(places.node_ranks())?;
        let page_len = page_bytes as usize;
        let members = places.neighbours(comm.rank());
        let size = members.len() as u32;
        let position = members.iter().position(|member| *member == comm.rank())? as u32;
        let own = if position == 0 { ShmColl::create(size, page_len).ok() } else { None };
        let message = own.as_ref().map_or([0; INVITATION_LEN], |(_, invitation)| {
            let mut bytes = [1; INVITATION_LEN];
            bytes[1..].copy_from_slice(&invitation.emit());
            bytes
        });
        let received = broadcast_in_node(comm, tag, message).ok()?;
        let joined = match (own, received) {
            (Some((shm_coll, _)), _) => Some(shm_coll),
            (None, [1, invitation @ ..]) if position > 0 => {
                ShmColl::join(ShmCollInvitation::parse(invitation), size, position, page_len).ok()
            }
            (None, _) => None,
        };
        let joined = joined.filter(|_| is_wanted());
        let joined =
            joined.and_then(|shm_coll| Some((Space::take(shm_coll.len_bytes())?, shm_coll)));
        let is_joined_by_all = vote(comm, tag, joined.is_some()).ok()?;
        let (space, mut shm_coll) = joined.filter(|_| is_joined_by_all)?;
        shm_coll.close_invitation();
        let places = places.clone().with_shm_coll(page_bytes);
        let operations = shm_coll.operations().clone();
        operations.begin(tag - 1);
        let shm_coll = Arc::new(Lock::new(shm_coll));
        Some(Self { shm_coll, places, members, position, operations, _space: space })
    }

    /// Begins a blocking collective. A gap in the tags means that skipped collectives failed their argument
    /// checks in this process.
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
struct Space(usize);

impl Space {
    fn take(bytes: usize) -> Option<Self> {
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

/// True if the rail `shm` is enabled and communication is not recorded.
fn is_wanted() -> bool {
    wanted_rails().split([',', '+']).any(|rail| rail.trim() == "shm") && !record::is_on()
}

/// Broadcasts the message of the node's first process to the processes of the node.
fn broadcast_in_node(
    comm: &Comm,
    tag: i32,
    message: [u8; INVITATION_LEN],
) -> Result<[u8; INVITATION_LEN]> {
    let plan = plan::broadcast_in_node(comm.rank(), comm.places(), INVITATION_LEN as u64);
    let data = Region::from_box(Box::new(message));
    let call = Call::numbered(CommRef::Derived(comm.clone()), tag);
    call.bytes(plan, Region::empty(), data.clone()).run()?;
    Ok(data.to_vec().try_into().unwrap_or([0; INVITATION_LEN]))
}

/// True if all processes vote yes.
fn vote(comm: &Comm, tag: i32, yes: bool) -> Result<bool> {
    let shape = Shape::of(Routine::Allgather).with_len(1);
    let plan = comm.plan(shape, |rank, places| plan::allgather(rank, places, &|_| 1, false));
    let (own, all) =
        (Region::from_box(Box::new([u8::from(yes)])), Region::owned(comm.size() as usize));
    let call = Call::numbered(CommRef::Derived(comm.clone()), tag);
    call.bytes(plan, own, all.clone()).run()?;
    Ok(all.to_vec().iter().all(|&vote| vote == 1))
}

/// Limit of [`TAKEN`], in bytes: enough for sixteen large communicators.
const SPACE_MAX: usize = 128 << 20;

/// Length of the message: one byte that is 1 if there is a segment, then the invitation.
const INVITATION_LEN: usize = 1 + ShmCollInvitation::LEN;

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
