//! Liveness checks of awaited peers that were never contacted.
//!
//! A receive opens no link, because its sender does. To detect a sender that has ended, a process that waits for long
//! asks the launcher from time to time. The first check opens a link otherwise, which reports a later end. For a
//! healthy pair this costs one link, which its message would have opened anyway. A failed connection attempt proves
//! nothing: the peer may be able to connect only outwards. To protect both ends from floods, each check probes few
//! peers: those that have waited longest first, and among these the ranks behind the own one. For a message that may
//! take long, processes of higher ranks begin at later checks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wire::PeerId;

/// Awaited peers without a link and without pending sends.
#[derive(Debug)]
pub struct LivenessState {
    rank: PeerId,
    looked: Duration,
    /// Number of consecutive checks since the peer was last probed.
    looks: BTreeMap<PeerId, u32>,
    /// Peers to which a link was requested.
    called: BTreeSet<PeerId>,
    /// The last of those that are asked after in turn.
    last_in_turn: PeerId,
}

impl LivenessState {
    /// Liveness state of the process `rank`.
    pub fn new(rank: PeerId, now: Duration) -> Self {
        let (looks, called) = (BTreeMap::new(), BTreeSet::new());
        Self { rank, looked: now, looks, called, last_in_turn: rank }
    }

    /// True if it is time for a check.
    pub fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.looked) >= LOOK_EVERY
    }

    /// Notes that a link to a peer is requested; true if it is the first request.
    pub fn note_call(&mut self, peer: PeerId) -> bool {
        self.called.insert(peer)
    }

    /// Returns those of these peers to ask after at this check: a few, each in its turn.
    pub fn look_in_turn(&mut self, peers: BTreeSet<PeerId>) -> Vec<PeerId> {
        let (behind, first) = (peers.range(PeerId(self.last_in_turn.0 + 1)..), peers.iter());
        let due: Vec<PeerId> =
            behind.chain(first).copied().take(PROBES_PER_CHECK.min(peers.len())).collect();
        self.last_in_turn = due.last().copied().unwrap_or(self.last_in_turn);
        due
    }

    /// Checks the peers awaited now, each with a flag that says if its message is late. Returns the peers to probe.
    pub fn look(
        &mut self,
        now: Duration,
        awaited: impl Iterator<Item = (PeerId, bool)>,
    ) -> Vec<PeerId> {
        self.looked = now;
        let before = std::mem::take(&mut self.looks);
        let patience = CHECKS_BEFORE + self.rank.0 / RANKS_PER_CHECK;
        let mut due = Vec::new();
        for (peer, is_late) in awaited {
            let looks = before.get(&peer).map_or(1, |looks| looks + 1);
            self.looks.insert(peer, looks);
            if is_late || looks > patience {
                due.push(peer);
            }
        }
        due.sort_unstable_by_key(|peer| {
            (Reverse(self.looks[peer]), peer.0.wrapping_sub(self.rank.0))
        });
        due.dedup();
        due.truncate(PROBES_PER_CHECK);
        for peer in &due {
            self.looks.insert(*peer, 0);
        }
        due
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Number of checks before the sender of a message that is not expected soon is probed, and number of lower ranks for
/// which one more check is added. The latter limits the number of processes that probe one peer at a time.
const CHECKS_BEFORE: u32 = 5;
const RANKS_PER_CHECK: u32 = 100;

/// Maximum number of peers that one check probes.
const PROBES_PER_CHECK: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the peers probed by `rank` at each check, one second apart, if it waits for `awaited` from the first
    /// check on and no probe succeeds.
    fn probed(rank: u32, awaited: &[(u32, bool)], looks: u32) -> Vec<Vec<u32>> {
        let began = Duration::from_secs(3);
        let mut liveness = LivenessState::new(PeerId(rank), began);
        let look = |at| {
            let now = began + at * LOOK_EVERY;
            assert!(liveness.is_due(now) && !liveness.is_due(now - LOOK_EVERY));
            let awaited = awaited.iter().map(|&(peer, is_late)| (PeerId(peer), is_late));
            liveness.look(now, awaited).iter().map(|peer| peer.0).collect()
        };
        (1..=looks).map(look).collect()
    }

    /// Returns the first check that probes a peer.
    fn look_of(looks: &[Vec<u32>], peer: u32) -> Option<usize> {
        looks.iter().position(|probed| probed.contains(&peer))
    }

    #[test]
    fn late_peers_are_probed_at_each_check_and_others_after_a_while() {
        let looks = probed(0, &[(1, true), (2, false)], 12);
        let expected = |at| if at % 6 == 0 { vec![2, 1] } else { vec![1] };
        assert_eq!(looks, (1..=12).map(expected).collect::<Vec<_>>());
    }

    #[test]
    fn ended_wait_starts_its_count_anew() {
        let began = Duration::from_secs(3);
        let mut liveness = LivenessState::new(PeerId(0), began);
        let mut look = |at: u32, waits: bool| {
            let awaited = waits.then_some((PeerId(1), false));
            liveness.look(began + at * LOOK_EVERY, awaited.into_iter()).len()
        };
        for at in 1..40 {
            assert_eq!(look(at, at % 6 != 0), 0, "look {at}");
        }
    }

    #[test]
    fn thousand_awaited_peers_are_probed_few_at_a_time_and_all_in_the_end() {
        let all: Vec<_> =
            (0..1000).filter(|peer| *peer != 7).map(|peer| (peer, peer % 2 == 0)).collect();
        // Several receives may wait for the same peer.
        let twice: Vec<_> = all.iter().chain(&all).copied().collect();
        let looks = probed(7, &twice, 100);
        assert!(looks.iter().all(|probed| probed.len() <= PROBES_PER_CHECK));
        assert!(all.iter().all(|(peer, _)| look_of(&looks, *peer).is_some()));
    }

    #[test]
    fn peer_awaited_by_thousands_is_probed_by_few_at_a_time() {
        let mut probed_at = BTreeMap::<usize, u32>::new();
        for rank in 1..3000 {
            let look = look_of(&probed(rank, &[(0, false)], 60), 0);
            *probed_at.entry(look.expect("it is probed")).or_default() += 1;
        }
        assert!(probed_at.values().all(|&count| count <= RANKS_PER_CHECK), "{probed_at:?}");
    }

    #[test]
    fn peers_are_asked_after_in_turn() {
        let mut liveness = LivenessState::new(PeerId(60), Duration::ZERO);
        let mut look = |peers: u32| -> Vec<u32> {
            let peers = (0..peers).filter(|peer| *peer != 60).map(PeerId).collect();
            liveness.look_in_turn(peers).iter().map(|peer| peer.0).collect()
        };
        assert_eq!(look(0), []);
        assert_eq!(look(3), [0, 1, 2]);
        let asked: BTreeSet<u32> = (0..7).flat_map(|_| look(100)).collect();
        assert_eq!(asked.len(), 99);
    }

    #[test]
    fn ranks_behind_the_own_one_are_probed_first() {
        let all: Vec<_> = (0..64).map(|peer| (peer, true)).collect();
        let probed = &probed(60, &all, 1)[0];
        assert_eq!(*probed, (60..64).chain(0..12).collect::<Vec<_>>());
    }
}
