//! Creation of windows (MPI-5.0 §12.2), and the memory that processes of a node share.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};

use coll::Team;
use memory::Region;
use rma::{NodeMemory, WindowMemory};

use super::flavor::Flavor;
use super::hints::{ALIGNMENT_MIN, Hints};
use super::object::{Details, Values, WINDOWS, Window, WindowObject};
use super::put_record::PutRecord;
use super::shared_epochs::SharedEpochs;
use crate::attribute::Attributes;
use crate::collective::Routine;
use crate::comm::Comm;
use crate::errhandler::Errhandler;
use crate::group::Group;
use crate::info::Info;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result, exchange};

/// Memory of a process in a window, as this process may access it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachableMemory {
    /// Length in bytes; 0 if this process cannot access it.
    pub len: u64,
    /// Displacement unit in bytes.
    pub unit: u32,
    /// Its address in this process; 0 if this process cannot access it.
    pub address: usize,
}

impl Window {
    /// Makes a window of the application's memory (collective).
    ///
    /// # Errors
    /// A peer failed, or the table of windows is full.
    pub fn create(comm: &Comm, memory: Region, unit: u32, info: &Info) -> Result<Self> {
        let made = |_: &Comm| Ok(Some(WindowMemory::Own(memory)));
        Self::make(comm, Flavor::Create, unit, Hints::new(info), made)
    }

    /// Makes a window without memory (collective).
    ///
    /// # Errors
    /// As [`Window::create`].
    pub fn create_dynamic(comm: &Comm, info: &Info) -> Result<Self> {
        let made = |_: &Comm| Ok(Some(WindowMemory::Dynamic));
        Self::make(comm, Flavor::Dynamic, 1, Hints::new(info), made)
    }

    /// Makes a window of new memory (collective). Processes of a node share theirs, if all can.
    ///
    /// # Errors
    /// As [`Window::create`], and `MPI_ERR_NO_MEM`.
    pub fn allocate(comm: &Comm, len: usize, unit: u32, info: &Info) -> Result<Self> {
        let hints = Hints::new(info);
        let alignment = hints.alignment();
        let made = |comm: &Comm| {
            let wants_shared = comm.wants_shm_coll() && alignment == ALIGNMENT_MIN;
            let node = Neighbours::find(comm, len as u64)?;
            // Without one of its node a process has memory of its own, and meets the others again.
            let shared = share(&node, false, wants_shared).unwrap_or(None);
            node.free(comm)?;
            Ok(shared.or_else(|| own_memory(len, alignment).map(WindowMemory::Own)))
        };
        Self::make(comm, Flavor::Allocate, unit, hints, made)
    }

    /// Makes a window of new memory that all its processes share (collective).
    ///
    /// # Errors
    /// As [`Window::create`], and `MPI_ERR_RMA_SHARED` if they cannot share memory.
    pub fn allocate_shared(comm: &Comm, len: usize, unit: u32, info: &Info) -> Result<Self> {
        let hints = Hints::new(info);
        let is_contiguous = !hints.is_noncontiguous();
        let made = |comm: &Comm| {
            let node = Neighbours::find(comm, len as u64)?;
            if node.ranks.len() != comm.size() as usize {
                node.free(comm)?;
                return Err(Error::new(
                    ErrorClass::RmaShared,
                    "comm has processes of several nodes",
                ));
            }
            let refused = "a process of comm could not map the memory of its node";
            let shared = match comm.size() {
                1 => own_memory(len, ALIGNMENT_MIN).map(WindowMemory::Own),
                _ => share(&node, is_contiguous, true)?,
            };
            shared.map(Some).ok_or_else(|| Error::new(ErrorClass::RmaShared, refused))
        };
        Self::make(comm, Flavor::Shared, unit, hints, made)
    }

    /// Makes a window of what `memory` returns. None of it means that there is not enough.
    fn make(
        comm: &Comm,
        flavor: Flavor,
        unit: u32,
        hints: Hints,
        memory: impl FnOnce(&Comm) -> Result<Option<WindowMemory>>,
    ) -> Result<Self> {
        let own = comm.duplicate_plain()?;
        let made = memory(&own).and_then(|memory| open(&own, memory, unit));
        let made = made.and_then(|mut rma| {
            if !hints.has_accumulate_order() {
                rma.ignore_accumulate_order();
            }
            let rank = own.rank();
            let base = rma.memory(rank).and_then(Region::as_span);
            let values = Values {
                base: base.map_or(0, |span| span.address as usize),
                size: base.map_or(0, |span| span.len as isize),
                unit: unit as i32,
                flavor: flavor.number(),
                model: UNIFIED,
            };
            let details = Details {
                name: Vec::new(),
                errhandler: Errhandler::Fatal,
                attributes: Attributes::default(),
                hints,
            };
            let window = Self(std::sync::Arc::new(WindowObject {
                comm: own.clone(),
                rma,
                flavor,
                values,
                handle: OnceLock::new(),
                is_freed: AtomicBool::new(false),
                epochs: SharedEpochs::new(own.size(), coll::check::is_on()),
                puts: coll::check::is_on().then(PutRecord::default),
                locking: Mutex::new(()),
                details: Mutex::new(details),
            }));
            let handle = WINDOWS.insert(window.clone())?;
            // A new window has no handle yet.
            let _ = window.0.handle.set(handle);
            Ok(window)
        });
        if made.is_err() {
            own.free()?;
        }
        made
    }

    /// The memory of a rank, or of the lowest rank that has any, as this process may access it.
    pub fn reachable_memory(&self, rank: Option<u32>) -> ReachableMemory {
        let rma = &self.0.rma;
        let has_memory = |rank: &u32| self.0.flavor != Flavor::Dynamic && rma.len(*rank) > 0;
        let lowest = || (0..self.size()).find(has_memory);
        let Some(rank) = rank.or_else(lowest) else {
            return ReachableMemory { len: 0, unit: self.0.values.unit as u32, address: 0 };
        };
        let span = rma.memory(rank).and_then(Region::as_span);
        let (len, address) = span.map_or((0, 0), |span| (span.len as u64, span.address as usize));
        ReachableMemory { len, unit: rma.unit(rank), address }
    }
}

/// Exposes memory to all processes of a communicator, and learns of theirs (collective).
fn open(comm: &Comm, memory: Option<WindowMemory>, unit: u32) -> Result<rma::Window> {
    let process = comm.process();
    let has_memory = memory.is_some();
    let memory = memory.unwrap_or(WindowMemory::Dynamic);
    let progress = process.vci(Vci::FIRST);
    let (mut window, card) =
        rma::Window::expose(progress, process.served(), comm.rank(), memory, unit);
    let mut mine = [u8::from(has_memory); CARD_LEN];
    mine[1..].copy_from_slice(&card);
    let all = exchange::allgather(comm, Routine::WinCreate, mine).and_then(|all| {
        match all.iter().position(|other| other[0] == 0) {
            None => Ok(all),
            Some(rank) => {
                let message = format!("rank {rank} has not enough memory for the window");
                Err(Error::new(ErrorClass::NoMem, message))
            }
        }
    });
    let cards = match all {
        Ok(all) => all.into_iter().map(|[_, card @ ..]| card).collect::<Vec<rma::Card>>(),
        Err(error) => {
            window.close();
            return Err(error);
        }
    };
    window.open(comm.group().iter().collect(), &cards);
    Ok(window)
}

/// The processes of a communicator on this process's node.
#[derive(Debug)]
struct Neighbours {
    /// Their ranks, in ascending order.
    ranks: Vec<u32>,
    /// Lengths of their parts of the window in bytes.
    lengths: Vec<u64>,
    /// A communicator of these alone: other nodes, which may be far, take no part in what they exchange.
    comm: Comm,
}

impl Neighbours {
    /// Finds them (collective), for a window to which this process contributes `len` bytes.
    fn find(comm: &Comm, len: u64) -> Result<Self> {
        let node = comm.node_number();
        let mine = [node, len, comm.process().draw_context()];
        let all = exchange::allgather(comm, Routine::WinCreate, bytes_of(mine))?;
        let all = (0..).zip(all.iter().map(words_of));
        let near: Vec<_> = all.filter(|(_, [other, ..])| *other == node).collect();
        let ranks: Vec<u32> = near.iter().map(|(rank, _)| *rank).collect();
        let lengths = near.iter().map(|(_, [_, len, _])| *len).collect();
        let comm = match near.first() {
            Some((_, [.., context])) if ranks.len() < comm.size() as usize => {
                let peers = ranks.iter().map(|&rank| comm.group().peer(rank)).collect();
                // This process is one of them.
                comm.part(*context, &Group::of(peers))?.unwrap_or_else(|| comm.clone())
            }
            _ => comm.clone(),
        };
        Ok(Self { ranks, lengths, comm })
    }

    /// Frees the communicator, unless it is `comm`, of which it was made.
    fn free(&self, comm: &Comm) -> Result<()> {
        if self.comm.handle() == comm.handle() { Ok(()) } else { self.comm.free() }
    }
}

fn bytes_of(words: [u64; 3]) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

fn words_of(bytes: &[u8; 24]) -> [u64; 3] {
    let mut words = [0; 3];
    for (word, from) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*from);
    }
    words
}

/// Makes memory that the processes of a node share (collective over them). None if one of them does not want to share or
/// cannot, or is alone.
fn share(
    node: &Neighbours,
    is_contiguous: bool,
    wants_shared: bool,
) -> Result<Option<WindowMemory>> {
    let Neighbours { ranks, lengths, comm } = node;
    if ranks.len() < 2 {
        return Ok(None);
    }
    let is_first = comm.rank() == 0;
    let own = match is_first && wants_shared {
        true => NodeMemory::create(lengths, is_contiguous).ok(),
        false => None,
    };
    let mine = own.as_ref().map_or([0; INVITATION_LEN], |(_, invitation)| {
        let mut bytes = [if is_contiguous { CONTIGUOUS } else { SPACED }; INVITATION_LEN];
        bytes[1..].copy_from_slice(invitation);
        bytes
    });
    let [form, invitation @ ..] = exchange::broadcast(comm, Routine::WinCreate, mine)?;
    let joined = match own {
        Some((memory, _)) => Some(memory),
        None if is_first || !wants_shared || form == 0 => None,
        None => NodeMemory::join(invitation, lengths, form == CONTIGUOUS).ok(),
    };
    let votes = exchange::allgather(comm, Routine::WinCreate, [u8::from(joined.is_some())])?;
    let have_all = votes.iter().all(|vote| *vote == [1]);
    Ok(joined.filter(|_| have_all).map(|memory| WindowMemory::Node(memory, ranks.clone())))
}

/// Makes memory that the processes of this node share, `len` bytes for each (collective). None if they cannot.
pub(crate) fn node_memory(comm: &Comm, len: u64) -> Result<Option<NodeMemory>> {
    let node = Neighbours::find(comm, len)?;
    let shared = share(&node, false, comm.wants_shm_coll());
    node.free(comm)?;
    Ok(match shared? {
        Some(WindowMemory::Node(memory, _)) => Some(memory),
        Some(WindowMemory::Own(_) | WindowMemory::Dynamic) | None => None,
    })
}

/// Memory of this process alone, filled with zeros.
fn own_memory(len: usize, alignment: usize) -> Option<Region> {
    let mut bytes = Vec::new();
    let room = len.checked_add(alignment).filter(|room| NodeMemory::is_available(*room))?;
    bytes.try_reserve_exact(room).ok()?;
    bytes.resize(room, 0);
    let whole = Region::from_box(bytes.into_boxed_slice());
    let address = whole.as_span()?.address as usize;
    Some(whole.slice(address.next_multiple_of(alignment) - address, len))
}

/// Length of an invitation: a byte that is 0 if there is none, then its bytes.
const INVITATION_LEN: usize = 1 + size_of::<rma::NodeInvitation>();
/// First byte of an invitation to memory whose parts follow each other.
const CONTIGUOUS: u8 = 1;
/// First byte of an invitation to memory whose parts begin on boundaries.
const SPACED: u8 = 2;
/// Length of a card: a byte that is 0 if memory is lacking, then its bytes.
const CARD_LEN: usize = 1 + size_of::<rma::Card>();
/// `MPI_WIN_UNIFIED`.
const UNIFIED: i32 = 321;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_aligned() {
        for (len, alignment) in [(0, 64), (1, 64), (100, 4096)] {
            let memory = own_memory(len, alignment).unwrap();
            assert_eq!(memory.len(), len);
            assert_eq!(memory.as_span().unwrap().address as usize % alignment, 0);
        }
        assert!(own_memory(usize::MAX - 4096, 64).is_none());
        assert!(own_memory(1 << 45, 64).is_none());
    }
}
