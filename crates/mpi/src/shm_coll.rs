//! Boards of communicators: one for the processes on each node, all founded together, once collectives are frequent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use driver::{Operations, ShmColl, ShmCollInvitation};
use lock::Lock;
use memory::Region;

use crate::collective::Call;
use crate::comm::{Comm, CommRef};
use crate::plans::{Operation, Shape};
use crate::process::wanted_rails;
use crate::{Result, record};

/// This process's seat at the shared segment of those on its node.
#[derive(Debug)]
pub(crate) struct Seat {
    pub shm_coll: Arc<Lock<ShmColl>>,
    /// The communicator's, with the shared segments.
    pub places: plan::Topology,
    /// Who sits there, by their ranks, and at which position this process does.
    members: Vec<u32>,
    pub position: u32,
    operations: Operations,
    _space: Space,
}

/// How many blocking collectives a communicator has had before its processes found a shared segment: those that have
/// fewer are not worth the memory.
pub(crate) const FOUNDED_AFTER: i32 = 4;

impl Seat {
    /// Founds the shared segments of `comm` in its collective `tag`, with all its processes; none if one of them cannot, or
    /// does not want to. Who is alone on its node has one for itself, by which no plan goes.
    #[cold]
    pub fn found(comm: &Comm, tag: i32) -> Option<Self> {
        let places = comm.places().ok()?;
        if comm.halves().is_some() {
            return None;
        }
        // The same on all nodes, for all plan alike.
        let page_bytes = plan::page_bytes(places.node_ranks())?;
        let page_len = page_bytes as usize;
        let members = places.neighbours(comm.rank());
        let size = members.len() as u32;
        let position = members.iter().position(|member| *member == comm.rank())? as u32;
        let own = if position == 0 { ShmColl::found(size, page_len).ok() } else { None };
        let told = own.as_ref().map_or([0; DOOR], |(_, door)| {
            let mut told = [1; DOOR];
            told[1..].copy_from_slice(&door.emit());
            told
        });
        let heard = tell_neighbours(comm, tag, told).ok()?;
        let joined = match (own, heard) {
            (Some((shm_coll, _)), _) => Some(shm_coll),
            (None, [1, door @ ..]) if position > 0 => {
                ShmColl::join(ShmCollInvitation::parse(door), size, position, page_len).ok()
            }
            (None, _) => None,
        };
        let joined = joined.filter(|_| is_wanted());
        let joined =
            joined.and_then(|shm_coll| Some((Space::take(shm_coll.len_bytes())?, shm_coll)));
        let is_joined_by_all = vote(comm, tag, joined.is_some()).ok()?;
        let (space, mut shm_coll) = joined.filter(|_| is_joined_by_all)?;
        shm_coll.close_door();
        let places = places.clone().with_shm_coll(page_bytes);
        let operations = shm_coll.operations().clone();
        operations.begin(tag - 1);
        let shm_coll = Arc::new(Lock::new(shm_coll));
        Some(Self { shm_coll, places, members, position, operations, _space: space })
    }

    /// Begins a blocking collective; if it is not the next, those between failed their checks in this process.
    #[inline]
    pub fn begin(&self, tag: i32) {
        // One at a time (MPI-5.0 §6.1).
        if !self.operations.begin(tag) {
            self.leave_out();
        }
    }

    #[cold]
    fn leave_out(&self) {
        self.shm_coll.lock().leave_out();
    }

    /// The rank of who sits at a position.
    #[inline]
    pub fn rank(&self, position: u32) -> u32 {
        self.members[position as usize]
    }

    /// How many sit there.
    pub fn size(&self) -> usize {
        self.members.len()
    }
}

/// A part of the memory that all shared segments of a process may take together.
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

/// How many bytes the shared segments of this process take.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Whether this process shares memory with its neighbours, and nobody wants to know who sends whom what.
fn is_wanted() -> bool {
    wanted_rails().split([',', '+']).any(|rail| rail.trim() == "shm") && !record::is_on()
}

/// What the first process of this one's node tells.
fn tell_neighbours(comm: &Comm, tag: i32, told: [u8; DOOR]) -> Result<[u8; DOOR]> {
    let plan = plan::broadcast_in_node(comm.rank(), comm.places()?, DOOR as u64);
    let data = Region::from_box(Box::new(told));
    let call = Call::numbered(CommRef::Derived(comm.clone()), tag);
    call.bytes(plan, Region::empty(), data.clone()).run()?;
    Ok(data.to_vec().try_into().unwrap_or([0; DOOR]))
}

/// Whether all say yes.
fn vote(comm: &Comm, tag: i32, yes: bool) -> Result<bool> {
    let shape = Shape::of(Operation::Allgather).with_len(1);
    let plan = comm.plan(shape, |rank, places| plan::allgather(rank, places, &|_| 1, false))?;
    let (own, all) =
        (Region::from_box(Box::new([u8::from(yes)])), Region::owned(comm.size() as usize));
    let call = Call::numbered(CommRef::Derived(comm.clone()), tag);
    call.bytes(plan, own, all.clone()).run()?;
    Ok(all.to_vec().iter().all(|&vote| vote == 1))
}

/// How many they may take: those of sixteen large communicators.
const SPACE_MAX: usize = 128 << 20;

/// A byte that says whether there is one, and the door.
const DOOR: usize = 1 + ShmCollInvitation::LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_take_no_more_than_their_space_and_give_it_back() {
        let most = Space::take(SPACE_MAX - 5).unwrap();
        assert!(Space::take(6).is_none());
        let rest = Space::take(5).unwrap();
        drop(most);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 5);
        drop(rest);
        assert!(Space::take(SPACE_MAX).is_some());
    }
}
