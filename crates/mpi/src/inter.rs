//! Intercommunicators: two groups that talk to each other (MPI-5.0 §7.6).
//!
//! Point-to-point messages go to the other group. Collectives run on the *merged* communicator of both groups,
//! the first before the second, which carries the same context and is nobody's to see.

use plan::Groups;

use wire::PeerId;

use crate::collective::Routine;
use crate::comm::Comm;
use crate::exchange;
use crate::group::{Comparison, Group};
use crate::root_channel::RootChannel;
use crate::{Error, ErrorClass, Result};

/// The two groups of an intercommunicator in the order on which both have agreed, and which of them this
/// process is in.
#[derive(Clone, Debug)]
pub(crate) struct GroupPair {
    pub groups: [Group; 2],
    pub is_second: bool,
}

/// The way by which the leaders of two groups find each other.
#[derive(Clone, Copy, Debug)]
pub struct Bridge<'a> {
    /// A communicator of both.
    pub comm: &'a Comm,
    /// The other's rank in it.
    pub leader: u32,
    /// Tells this exchange from others.
    pub tag: i32,
}

impl RootChannel for Bridge<'_> {
    fn leads_to(&self) -> Option<PeerId> {
        Some(self.comm.peer(self.leader))
    }

    fn swap(&mut self, mine: &[u8], room: usize) -> Result<Vec<u8>> {
        self.comm.swap(self.leader, self.tag, mine, room)
    }
}

impl GroupPair {
    /// This process's group.
    pub fn local(&self) -> &Group {
        &self.groups[usize::from(self.is_second)]
    }

    /// The other.
    pub fn remote(&self) -> &Group {
        &self.groups[usize::from(!self.is_second)]
    }

    /// Both as one.
    pub fn merged(&self) -> Group {
        let [first, second] = &self.groups;
        Group::of(first.iter().chain(second.iter()).collect())
    }

    /// Ranks of each group in the merged group.
    pub fn halves(&self) -> Groups {
        let (first, all) = (self.groups[0].size(), self.groups[0].size() + self.groups[1].size());
        match self.is_second {
            false => Groups { local: 0..first, remote: first..all },
            true => Groups { local: first..all, remote: 0..first },
        }
    }
}

impl Comm {
    /// Number of this process's site, which tells it from the sites of other members.
    pub fn own_site(&self) -> u32 {
        match self.merged() {
            Some(merged) => merged.location(merged.rank()).site,
            None => self.location(self.rank()).site,
        }
    }

    /// An intercommunicator of this communicator's group, whose `leader` crosses the bridge, and another one's
    /// (collective over both). Only the leader needs to know the bridge.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` when the groups have a process in common.
    pub fn connect(&self, leader: u32, mut bridge: Option<Bridge<'_>>) -> Result<Self> {
        self.meet(leader, bridge.as_mut().map(|bridge| Ok(bridge as &mut dyn RootChannel)))
    }

    /// A communicator of both groups (collective over both): the group that is `is_high` behind the other.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` for a communicator of one group.
    pub fn merge(&self, is_high: bool) -> Result<Self> {
        let (merged, pair) = self.merged().zip(self.pair()).ok_or_else(not_inter)?;
        let mine = (u32::from(is_high), self.process().draw_context());
        let all = exchange::allgather(merged, Routine::IntercommMerge, emit_place(mine))?;
        let received = |rank: u32| all.get(rank as usize).map_or((0, 0), parse_place);
        let [first, second] = &pair.groups;
        let (leader, group) = match received(0).0 > received(first.size()).0 {
            true => (first.size(), Group::of(second.iter().chain(first.iter()).collect())),
            false => (0, pair.merged()),
        };
        let made = merged.part(received(leader).1, &group)?.ok_or_else(malformed)?;
        made.set_errhandler(self.errhandler());
        Ok(made)
    }

    /// An intercommunicator of those ranks of the merged communicator, in order; none where a group has none,
    /// or not this process. `drawn` are the context numbers that the ranks have drawn.
    pub(crate) fn select(&self, ranks: &[u32], drawn: impl Fn(u32) -> u64) -> Result<Option<Self>> {
        let (merged, pair) = self.merged().zip(self.pair()).ok_or_else(not_inter)?;
        let (first, second): (Vec<u32>, Vec<u32>) =
            ranks.iter().partition(|&&rank| rank < pair.groups[0].size());
        if first.is_empty() || second.is_empty() || !ranks.contains(&merged.rank()) {
            return Ok(None);
        }
        let context = drawn(first[0]);
        let group = |ranks: Vec<u32>| {
            Group::of(ranks.into_iter().map(|rank| merged.group().peer(rank)).collect())
        };
        let pair = GroupPair { groups: [group(first), group(second)], is_second: pair.is_second };
        Self::between(self.process(), context, pair, self.errhandler()).register().map(Some)
    }

    /// [`Comm::create`] for an intercommunicator: each group names its own members.
    pub(crate) fn create_between(&self, group: &Group) -> Result<Option<Self>> {
        let merged = self.merged().ok_or_else(not_inter)?;
        let process = self.process();
        let mine = (group.rank_of(process.own_peer()).unwrap_or(u32::MAX), process.draw_context());
        let all = exchange::allgather(merged, Routine::CommCreate, emit_place(mine))?;
        let places: Vec<(u32, u64)> = all.iter().map(parse_place).collect();
        let mut chosen: Vec<(u32, u32)> = (0..)
            .zip(&places)
            .map(|(rank, &(place, _))| (place, rank))
            .filter(|&(place, _)| place != u32::MAX)
            .collect();
        chosen.sort_unstable();
        let ranks: Vec<u32> = chosen.into_iter().map(|(_, rank)| rank).collect();
        self.select(&ranks, |rank| places[rank as usize].1)
    }

    /// Compares this intercommunicator's groups to another's.
    pub(crate) fn compare_pairs(&self, one: &GroupPair, other: &GroupPair) -> Comparison {
        use Comparison::{Congruent, Identical, Similar, Unequal};
        let local = one.local().compare(other.local());
        match (local, one.remote().compare(other.remote())) {
            (Unequal, _) | (_, Unequal) => Unequal,
            (Identical | Congruent, Identical | Congruent) => Congruent,
            (Similar, _) | (_, Similar) => Similar,
        }
    }
}

/// A place in a group, and a context number.
fn emit_place((place, context): (u32, u64)) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&place.to_le_bytes());
    bytes[4..].copy_from_slice(&context.to_le_bytes());
    bytes
}

fn parse_place(&[a, b, c, d, context @ ..]: &[u8; 12]) -> (u32, u64) {
    (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(context))
}

#[cold]
pub(crate) fn malformed() -> Error {
    Error::new(ErrorClass::Intern, "an exchange between two groups arrived malformed")
}

/// The error of what needs two groups.
#[cold]
pub fn not_inter() -> Error {
    Error::new(ErrorClass::Comm, "the communicator is no intercommunicator")
}
