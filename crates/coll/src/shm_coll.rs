//! Creation of shared segments: one for the processes of a team on each node, once collectives are frequent.

use memory::Region;
use rail_shm::{ShmColl, ShmCollInvitation};

use crate::call::Collective;
use crate::failure::Result;
use crate::plans::{Routine, Shape};
use crate::slot::{Slot, Space};
use crate::team::{self, Team};

/// Creates a shared segment with all processes of a team in their collective `tag`, unless that has been tried.
#[cold]
pub fn create_once(team: &impl Team, tag: i32) {
    if !team.collectives().knows_slot() {
        team.collectives().set_slot(create(team, tag));
    }
}

/// Creates the shared segments of a team in its collective `tag`, with all its processes. Returns `None` if one
/// process cannot join or does not want to. A process alone on its node has a segment that no plan uses.
fn create(team: &impl Team, tag: i32) -> Option<Slot> {
    let places = team.places();
    // The same on all nodes, because all processes must choose the same plan.
    let page_bytes = plan::page_bytes(places.node_ranks())?;
    let page_len = page_bytes as usize;
    let members = places.neighbours(team.rank());
    let size = members.len() as u32;
    let position = members.iter().position(|member| *member == team.rank())? as u32;
    let own = if position == 0 { ShmColl::create(size, page_len).ok() } else { None };
    let message = own.as_ref().map_or([0; INVITATION_LEN], |(_, invitation)| {
        let mut bytes = [1; INVITATION_LEN];
        bytes[1..].copy_from_slice(&invitation.emit());
        bytes
    });
    let received = broadcast_in_node(team, tag, message).ok()?;
    let joined = match (own, received) {
        (Some((shm_coll, _)), _) => Some(shm_coll),
        (None, [1, invitation @ ..]) if position > 0 => {
            ShmColl::join(ShmCollInvitation::parse(invitation), size, position, page_len).ok()
        }
        (None, _) => None,
    };
    let joined = joined.filter(|_| team.wants_shm_coll());
    let joined = joined.and_then(|shm_coll| Some((Space::take(shm_coll.len_bytes())?, shm_coll)));
    let is_joined_by_all = vote(team, tag, joined.is_some()).ok()?;
    let joined = joined.filter(|_| is_joined_by_all)?;
    let places = places.clone().with_shm_coll(page_bytes);
    Some(Slot::enter(joined, places, (members, position), tag))
}

/// Broadcasts the message of the node's first process to the processes of the node.
fn broadcast_in_node(
    team: &impl Team,
    tag: i32,
    message: [u8; INVITATION_LEN],
) -> Result<[u8; INVITATION_LEN]> {
    let plan = plan::broadcast_in_node(team.rank(), team.places(), INVITATION_LEN as u64);
    let data = Region::from_box(Box::new(message));
    Collective::part((team, tag), plan, Region::empty(), data.clone()).run()?;
    Ok(data.to_vec().try_into().unwrap_or([0; INVITATION_LEN]))
}

/// True if all processes vote yes.
fn vote(team: &impl Team, tag: i32, yes: bool) -> Result<bool> {
    let shape = Shape::of(Routine::Allgather).with_len(1);
    let plan = team::plan(team, shape, |rank, places| plan::allgather(rank, places, &|_| 1, false));
    let (own, all) =
        (Region::from_box(Box::new([u8::from(yes)])), Region::owned(team.size() as usize));
    Collective::part((team, tag), plan, own, all.clone()).run()?;
    Ok(all.to_vec().iter().all(|&vote| vote == 1))
}

/// Length of the message: one byte that is 1 if there is a segment, then the invitation.
const INVITATION_LEN: usize = 1 + ShmCollInvitation::LEN;

/// Number of blocking collectives after which a team creates a shared segment. A team with fewer is not worth
/// the memory.
pub const CREATED_AFTER: i32 = 4;
