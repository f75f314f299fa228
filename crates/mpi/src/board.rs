//! Boards of communicators whose processes are on one node: founded together, once collectives are frequent.

use std::sync::Arc;

use driver::{Board, BoardDoor};
use lock::Lock;
use memory::Region;

use crate::collective::Call;
use crate::comm::{Comm, CommRef};
use crate::plans::{Operation, Shape};
use crate::{Result, record};

/// This process's seat at the board of a communicator.
#[derive(Debug)]
pub(crate) struct Seat {
    pub board: Arc<Lock<Board>>,
    /// The communicator's, with the board.
    pub places: plan::Topology,
}

/// How many blocking collectives a communicator has had before its processes found a board: those that have
/// fewer are not worth the memory.
pub(crate) const FOUNDED_AFTER: i32 = 4;

impl Seat {
    /// Founds the board of `comm` in its collective `tag`, with all its processes; none if one of them cannot, or
    /// does not want to.
    #[cold]
    pub fn found(comm: &Comm, tag: i32) -> Option<Self> {
        let size = comm.size();
        let places = comm.places().ok()?;
        if places.nodes() > 1 || comm.halves().is_some() {
            return None;
        }
        let page_bytes = plan::page_bytes(size)?;
        let page_len = page_bytes as usize;
        let own = if comm.rank() == 0 { Board::found(size, page_len).ok() } else { None };
        let told = own.as_ref().map_or([0; DOOR], |(_, door)| {
            let mut told = [1; DOOR];
            told[1..].copy_from_slice(&door.emit());
            told
        });
        let heard = broadcast(comm, tag, told).ok()?;
        let joined = match (own, heard) {
            (Some((board, _)), _) => Some(board),
            (None, [1, door @ ..]) if comm.rank() > 0 => {
                Board::join(BoardDoor::parse(door), size, comm.rank(), page_len).ok()
            }
            (None, _) => None,
        };
        let joined = joined.filter(|_| is_wanted());
        let is_joined_by_all = vote(comm, tag, joined.is_some()).ok()?;
        let mut board = joined.filter(|_| is_joined_by_all)?;
        board.close_door();
        let places = places.clone().with_board(page_bytes);
        Some(Self { board: Arc::new(Lock::new(board)), places })
    }
}

/// Whether this process shares memory with its neighbours, and nobody wants to know who sends whom what.
fn is_wanted() -> bool {
    let rails = settings::RAILS.text();
    rails.split([',', '+']).any(|rail| rail.trim() == "shm") && !record::is_on()
}

/// What rank 0 tells.
fn broadcast(comm: &Comm, tag: i32, told: [u8; DOOR]) -> Result<[u8; DOOR]> {
    let shape = Shape::of(Operation::Bcast).with_len(DOOR as u64);
    let plan = comm.plan(shape, |rank, places| plan::broadcast(rank, places, 0, DOOR as u64))?;
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

/// A byte that says whether there is one, and the door.
const DOOR: usize = 1 + BoardDoor::LEN;
