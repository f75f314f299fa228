//! Names of peers in messages for people.
//!
//! A [`PeerId`] is a number of this process only. People know ranks, and the job of a rank if it is another one.

use std::collections::BTreeMap;
use std::fmt;

use wire::{PeerId, ProcessId};

/// The names of all peers.
#[derive(Clone, Debug)]
pub(crate) struct PeerNames {
    /// Number of processes of the own job, whose peers have the first numbers in order of rank.
    size: u32,
    /// Peers of other jobs.
    others: BTreeMap<PeerId, ProcessId>,
}

/// The name of one peer, as messages print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A rank of the own job.
    Rank(u32),
    /// A process of another job.
    Other(ProcessId),
    /// A peer that does not exist.
    Unknown(PeerId),
}

impl PeerNames {
    /// Names of the peers of a job of `size` processes.
    pub fn of_job(size: usize) -> Self {
        Self { size: size as u32, others: BTreeMap::new() }
    }

    /// Names a peer of another job.
    pub fn add(&mut self, peer: PeerId, process: ProcessId) {
        self.others.insert(peer, process);
    }

    /// The name of a peer.
    pub fn name(&self, peer: PeerId) -> PeerName {
        match self.others.get(&peer) {
            None if peer.0 < self.size => PeerName::Rank(peer.0),
            None => PeerName::Unknown(peer),
            Some(process) => PeerName::Other(*process),
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Other(process) => process.fmt(f),
            Self::Unknown(peer) => write!(f, "unknown peer {}", peer.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_by_rank_and_those_of_other_jobs_with_their_job() {
        let mut names = PeerNames::of_job(3);
        names.add(PeerId(3), ProcessId { job: 0x1f, rank: 1 });
        let named = |peer| names.name(PeerId(peer)).to_string();
        assert_eq!(named(1), "rank 1");
        assert_eq!(named(3), "rank 1 of job 000000000000001f");
        assert_eq!(named(4), "unknown peer 4");
    }
}
