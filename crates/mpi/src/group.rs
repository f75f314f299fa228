//! Groups: ordered sets of processes (MPI-5.0 §7.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use handles::Handle;
use wire::PeerId;

use crate::{Error, ErrorClass, Result};

/// An ordered set of processes.
#[derive(Clone, Debug)]
pub struct Group {
    members: Arc<Members>,
    /// The session that it derives from; none in the World Model.
    session: Option<Handle>,
}

#[derive(Debug)]
enum Members {
    /// The first `size` peers, in order.
    First { size: u32 },
    /// Any others.
    Listed { peers: Vec<PeerId>, index: BTreeMap<PeerId, u32> },
}

/// Result of a comparison of two groups or communicators (MPI-5.0 §7.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The same object, or the same members in the same order.
    Identical,
    /// The same members in the same order, another context (communicators only).
    Congruent,
    /// The same members in another order.
    Similar,
    /// Different members.
    Unequal,
}

/// First, last and stride, as `MPI_Group_range_incl` takes them.
pub type RankRange = [i32; 3];

impl Group {
    /// The group without members.
    pub fn empty() -> Self {
        Self::of(Vec::new())
    }

    /// The group of these processes, in this order; they are distinct.
    pub fn of(peers: Vec<PeerId>) -> Self {
        if peers.iter().enumerate().all(|(index, peer)| index as u32 == peer.0) {
            return Self::with(Members::First { size: peers.len() as u32 });
        }
        let index = peers.iter().enumerate().map(|(index, &peer)| (peer, index as u32)).collect();
        Self::with(Members::Listed { peers, index })
    }

    fn with(members: Members) -> Self {
        Self { members: Arc::new(members), session: None }
    }

    /// The same group, which derives from a session, or from the World Model.
    #[must_use]
    pub fn of_session(self, session: Option<Handle>) -> Self {
        Self { session, ..self }
    }

    /// The session that it derives from; none in the World Model.
    pub fn session(&self) -> Option<Handle> {
        self.session
    }

    /// A group of these processes that derives from the same session.
    fn like(&self, peers: Vec<PeerId>) -> Self {
        Self::of(peers).of_session(self.session)
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        match &*self.members {
            Members::First { size } => *size,
            Members::Listed { peers, .. } => peers.len() as u32,
        }
    }

    /// The process of rank `rank`, which is below `size`.
    #[inline]
    pub fn peer(&self, rank: u32) -> PeerId {
        match &*self.members {
            Members::First { .. } => PeerId(rank),
            Members::Listed { peers, .. } => peers[rank as usize],
        }
    }

    /// The rank in this group of a process, if it is a member.
    pub fn rank_of(&self, peer: PeerId) -> Option<u32> {
        match &*self.members {
            Members::First { size } => (peer.0 < *size).then_some(peer.0),
            Members::Listed { index, .. } => index.get(&peer).copied(),
        }
    }

    /// The members, in group order.
    pub fn iter(&self) -> impl Iterator<Item = PeerId> + '_ {
        (0..self.size()).map(|rank| self.peer(rank))
    }

    /// The members of both kinds: all of this group, then those of `other` that are not in it.
    pub fn union(&self, other: &Self) -> Self {
        let added = other.iter().filter(|&peer| self.rank_of(peer).is_none());
        self.like(self.iter().chain(added).collect())
    }

    /// The members that are in `other` too, in this group's order.
    pub fn intersection(&self, other: &Self) -> Self {
        self.like(self.iter().filter(|&peer| other.rank_of(peer).is_some()).collect())
    }

    /// The members that are not in `other`, in this group's order.
    pub fn difference(&self, other: &Self) -> Self {
        self.like(self.iter().filter(|&peer| other.rank_of(peer).is_none()).collect())
    }

    /// The members `ranks`, in that order.
    ///
    /// # Errors
    /// `MPI_ERR_RANK` for a rank outside the group or named twice.
    pub fn include(&self, ranks: &[i32]) -> Result<Self> {
        let chosen = self.check_distinct(ranks)?;
        Ok(self.like(chosen.into_iter().map(|rank| self.peer(rank)).collect()))
    }

    /// The members but `ranks`, in this group's order.
    ///
    /// # Errors
    /// As [`Group::include`].
    pub fn exclude(&self, ranks: &[i32]) -> Result<Self> {
        let mut out = vec![false; self.size() as usize];
        for rank in self.check_distinct(ranks)? {
            out[rank as usize] = true;
        }
        let kept = (0..self.size()).filter(|&rank| !out[rank as usize]);
        Ok(self.like(kept.map(|rank| self.peer(rank)).collect()))
    }

    /// The ranks that `ranges` name, expanded (MPI-5.0 §7.3.2).
    ///
    /// # Errors
    /// `MPI_ERR_ARG` for a stride of zero, `MPI_ERR_RANK` for an end outside the group.
    pub fn expand(&self, ranges: &[RankRange]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for &[first, last, stride] in ranges {
            if stride == 0 {
                return Err(Error::argument(format!("range {first}:{last} has stride 0")));
            }
            self.check_rank(first)?;
            self.check_rank(last)?;
            let distance = (i64::from(last) - i64::from(first)) * i64::from(stride.signum());
            let steps = distance.div_euclid(i64::from(stride).abs());
            let range =
                (0..=steps).map(|step| (i64::from(first) + step * i64::from(stride)) as i32);
            ranks.extend(range);
        }
        Ok(ranks)
    }

    /// Compares this group to `other`.
    pub fn compare(&self, other: &Self) -> Comparison {
        if self.size() != other.size() {
            Comparison::Unequal
        } else if self.iter().eq(other.iter()) {
            Comparison::Identical
        } else if self.iter().all(|peer| other.rank_of(peer).is_some()) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// The rank in `other` of this group's member `rank`.
    ///
    /// # Errors
    /// `MPI_ERR_RANK` for a rank outside the group.
    pub fn translate(&self, rank: i32, other: &Self) -> Result<Option<u32>> {
        let rank = self.check_rank(rank)?;
        Ok(other.rank_of(self.peer(rank)))
    }

    fn check_rank(&self, rank: i32) -> Result<u32> {
        match u32::try_from(rank) {
            Ok(rank) if rank < self.size() => Ok(rank),
            _ => {
                let message = format!("rank {rank} is outside a group of {}", self.size());
                Err(Error::new(ErrorClass::Rank, message))
            }
        }
    }

    fn check_distinct(&self, ranks: &[i32]) -> Result<Vec<u32>> {
        let mut seen = vec![false; self.size() as usize];
        ranks
            .iter()
            .map(|&rank| {
                let rank = self.check_rank(rank)?;
                if std::mem::replace(&mut seen[rank as usize], true) {
                    return Err(Error::new(
                        ErrorClass::Rank,
                        format!("rank {rank} is named twice"),
                    ));
                }
                Ok(rank)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(numbers: &[u32]) -> Vec<PeerId> {
        numbers.iter().copied().map(PeerId).collect()
    }

    fn first(size: u32) -> Group {
        Group::of((0..size).map(PeerId).collect())
    }

    fn listed(numbers: &[u32]) -> Group {
        Group::of(peers(numbers))
    }

    #[test]
    fn set_operations_keep_the_order_of_the_first_group() {
        let (a, b) = (listed(&[5, 1, 3]), listed(&[3, 4, 5]));
        assert!(a.union(&b).iter().eq(peers(&[5, 1, 3, 4])));
        assert!(a.intersection(&b).iter().eq(peers(&[5, 3])));
        assert!(a.difference(&b).iter().eq(peers(&[1])));
    }

    #[test]
    fn ranges_run_both_ways() {
        let group = first(10);
        assert_eq!(group.expand(&[[0, 4, 2], [9, 7, -1]]).unwrap(), [0, 2, 4, 9, 8, 7]);
        assert_eq!(group.expand(&[[4, 2, 1], [4, 3, 2]]).unwrap(), []);
        assert_eq!(group.expand(&[[4, 1, -2]]).unwrap(), [4, 2]);
        assert_eq!(group.expand(&[[0, 4, 0]]).unwrap_err().class, ErrorClass::Arg);
        assert_eq!(group.expand(&[[0, 10, 1]]).unwrap_err().class, ErrorClass::Rank);
    }

    #[test]
    fn a_rank_named_twice_is_refused() {
        assert_eq!(first(3).include(&[1, 1]).unwrap_err().class, ErrorClass::Rank);
        assert!(first(3).exclude(&[1]).unwrap().iter().eq(peers(&[0, 2])));
    }

    #[test]
    fn comparison_tells_order_from_membership() {
        assert_eq!(listed(&[2, 1]).compare(&listed(&[1, 2])), Comparison::Similar);
        assert_eq!(listed(&[2, 1]).compare(&listed(&[2, 1])), Comparison::Identical);
        assert_eq!(listed(&[2, 1]).compare(&listed(&[2, 3])), Comparison::Unequal);
        assert_eq!(Group::empty().compare(&first(0)), Comparison::Identical);
    }
}
