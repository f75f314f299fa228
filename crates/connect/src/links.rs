//! The links of one rail: which peers it dials, which are reached, and which of several connections is the link.

use std::net::SocketAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;
use wire::PeerId;

use crate::dial::{Dialling, Due};

/// The links of one rail. `K` is the rail's key of a connection.
///
/// Both ends may open a link at the same time, and either end may lose it unnoticed by the other. Two rules make them
/// agree. Of crossing connections, that of the lower rank is the link once its end has proved itself. And each
/// opening has a number, its *generation*: a caller with a later generation has lost the link that looks intact here.
#[derive(Debug)]
pub struct Links<K> {
    own: PeerId,
    /// Longest time for which a peer that was never connected is dialled, and for which one attempt lasts.
    connect_timeout: Duration,
    links: FxHashMap<PeerId, RailLink<K>>,
    /// Latest opening that may have succeeded at either end, for each link that has been open.
    generations: FxHashMap<PeerId, u32>,
    /// Number of peers being dialled.
    dialled: usize,
}

/// State of the link to a peer.
#[derive(Debug)]
pub enum RailLink<K> {
    /// Its addresses are being tried.
    Dialling(Dialling),
    /// The connection with this key is the link.
    Open {
        /// Key of the connection.
        key: K,
    },
}

/// An action of the dialler that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum DialAction {
    /// Connect to this address, for at most the given time.
    Try {
        /// Address of the peer, or of a gateway.
        address: SocketAddr,
        /// Time limit of the attempt.
        timeout: Duration,
    },
    /// Report that the peer is unreachable, and close the attempts. The text lists them.
    GiveUp(String),
}

/// Decision on a connection whose caller has proved to be a peer of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<K> {
    /// It is the link.
    Accepted,
    /// It is the link once this older connection is closed, which its caller has lost.
    Replaces(K),
    /// Another connection is the link, or becomes it.
    Declined,
}

impl<K: Copy> Links<K> {
    /// Links of the process with rank `own`.
    pub fn new(own: PeerId, connect_timeout: Duration) -> Self {
        Self {
            own,
            connect_timeout,
            links: FxHashMap::default(),
            generations: FxHashMap::default(),
            dialled: 0,
        }
    }

    /// State of the link to a peer; `None` if it is neither dialled nor open.
    #[inline]
    pub fn get(&self, peer: PeerId) -> Option<&RailLink<K>> {
        self.links.get(&peer)
    }

    /// Key of the open link to a peer.
    #[inline]
    pub fn open_key(&self, peer: PeerId) -> Option<K> {
        match self.links.get(&peer)? {
            RailLink::Open { key } => Some(*key),
            RailLink::Dialling(_) => None,
        }
    }

    /// The dialling of a peer.
    pub fn dialling(&mut self, peer: PeerId) -> Option<&mut Dialling> {
        match self.links.get_mut(&peer)? {
            RailLink::Dialling(dialling) => Some(dialling),
            RailLink::Open { .. } => None,
        }
    }

    /// All peers being dialled.
    pub fn all_dialling(&mut self) -> impl Iterator<Item = (PeerId, &mut Dialling)> {
        self.links.iter_mut().filter_map(|(&peer, link)| match link {
            RailLink::Dialling(dialling) => Some((peer, dialling)),
            RailLink::Open { .. } => None,
        })
    }

    /// Number of peers being dialled.
    #[inline]
    pub fn dialled(&self) -> usize {
        self.dialled
    }

    /// Number of the latest opening that may have succeeded; 0 if the link was never open.
    pub fn generation(&self, peer: PeerId) -> u32 {
        self.generations.get(&peer).copied().unwrap_or_default()
    }

    /// True if the link to a peer was open before.
    pub fn has_been_open(&self, peer: PeerId) -> bool {
        self.generations.contains_key(&peer)
    }

    /// Starts to dial a peer without a link. One that was never connected is given up after `patience`; a link that
    /// was open is reopened, with pauses that have a random part from `seed`.
    pub fn dial(
        &mut self,
        peer: PeerId,
        candidates: Vec<SocketAddr>,
        (now, patience): (Duration, Duration),
        seed: u64,
    ) -> &mut Dialling {
        let dialling = if self.has_been_open(peer) {
            Dialling::again(candidates, now, seed)
        } else {
            Dialling::new(candidates, now, patience.min(self.connect_timeout))
        };
        self.put(peer, RailLink::Dialling(dialling));
        match self.links.get_mut(&peer) {
            Some(RailLink::Dialling(dialling)) => dialling,
            Some(RailLink::Open { .. }) | None => unreachable!("it was just inserted"),
        }
    }

    /// Returns the actions due now, at most one for each dialled peer. A peer to which an attempt `has_proved` this
    /// end is not given up: that connection may be the link already.
    pub fn poll_dials(
        &mut self,
        now: Duration,
        has_proved: impl Fn(PeerId) -> bool,
    ) -> Vec<(PeerId, DialAction)> {
        let connect_timeout = self.connect_timeout;
        let due = |(peer, dialling): (PeerId, &mut Dialling)| match dialling.due(now) {
            Due::Nothing => None,
            Due::Try(address) => {
                let timeout = dialling.try_timeout().min(connect_timeout);
                Some((peer, DialAction::Try { address, timeout }))
            }
            Due::GiveUp(_) if has_proved(peer) => None,
            Due::GiveUp(account) => Some((peer, DialAction::GiveUp(account))),
        };
        let actions: Vec<_> = self.all_dialling().filter_map(due).collect();
        for (peer, action) in &actions {
            if let DialAction::GiveUp(_) = action {
                self.remove(*peer);
            }
        }
        actions
    }

    /// Returns the number of the next opening: 1 until one has succeeded, then one more than any that may have
    /// succeeded at either end. `is_asked` is true if another attempt already carries the current number.
    pub fn next_generation(&mut self, peer: PeerId, is_asked: bool) -> u32 {
        let Some(known) = self.generations.get_mut(&peer) else { return 1 };
        if !is_asked {
            *known = known.saturating_add(1);
        }
        *known
    }

    /// Decides on a connection of an authenticated caller that names a generation. `has_proved` is true if this end
    /// has proved itself over an attempt of its own, which may be the link at the other end.
    pub fn judge(
        &self,
        caller: PeerId,
        generation: u32,
        has_proved: impl FnOnce() -> bool,
    ) -> Verdict<K> {
        match self.links.get(&caller) {
            None => Verdict::Accepted,
            Some(RailLink::Open { key }) if generation > self.generation(caller) => {
                Verdict::Replaces(*key)
            }
            Some(RailLink::Open { .. }) => Verdict::Declined,
            Some(RailLink::Dialling(_)) if caller < self.own || !has_proved() => Verdict::Accepted,
            Some(RailLink::Dialling(_)) => Verdict::Declined,
        }
    }

    /// Records an opening that has succeeded, or may have; returns the latest one.
    pub fn note_generation(&mut self, peer: PeerId, generation: u32) -> u32 {
        let known = self.generations.entry(peer).or_default();
        *known = generation.max(*known);
        *known
    }

    /// Makes a connection the link.
    pub fn open(&mut self, peer: PeerId, key: K) {
        self.note_generation(peer, 1);
        self.put(peer, RailLink::Open { key });
    }

    /// Removes the link to a peer; returns its state.
    pub fn remove(&mut self, peer: PeerId) -> Option<RailLink<K>> {
        let removed = self.links.remove(&peer);
        self.dialled -= usize::from(matches!(removed, Some(RailLink::Dialling(_))));
        removed
    }

    fn put(&mut self, peer: PeerId, link: RailLink<K>) {
        self.dialled += usize::from(matches!(link, RailLink::Dialling(_)));
        let replaced = self.links.insert(peer, link);
        self.dialled -= usize::from(matches!(replaced, Some(RailLink::Dialling(_))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: PeerId = PeerId(5);
    const NOW: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(9));

    fn links() -> Links<u64> {
        Links::new(OWN, Duration::from_secs(3))
    }

    fn address() -> SocketAddr {
        "10.0.0.1:1".parse().unwrap()
    }

    #[test]
    fn crossing_connections_are_judged_alike_at_both_ends() {
        for caller in [PeerId(3), PeerId(8)] {
            for (callee_asked, caller_asked) in [(false, false), (false, true), (true, true)] {
                let mut callee = links();
                callee.dial(caller, vec![address()], NOW, 0);
                let mut other = Links::<u64>::new(caller, NOW.1);
                other.dial(OWN, vec![address()], NOW, 0);
                let forth = callee.judge(caller, 1, || callee_asked) == Verdict::Accepted;
                let back = other.judge(OWN, 1, || caller_asked) == Verdict::Accepted;
                // An end that has proved itself accepts no other connection than the lower rank's.
                let both_proved = callee_asked && caller_asked;
                assert!(!(forth && back && both_proved), "{caller:?}: two links");
                assert!(forth || back, "{caller:?}: no link");
            }
        }
    }

    #[test]
    fn a_later_opening_replaces_a_link_and_an_equal_one_does_not() {
        let mut links = links();
        links.open(PeerId(1), 70);
        let proved = || unreachable!("no attempt is under way");
        assert_eq!(links.judge(PeerId(1), 1, proved), Verdict::Declined);
        assert_eq!(links.judge(PeerId(1), 2, proved), Verdict::Replaces(70));
        assert_eq!(links.note_generation(PeerId(1), 2), 2);
        assert_eq!(links.judge(PeerId(1), 2, proved), Verdict::Declined, "a replay");
        // An opening of this end has a later number than any that the other end can have seen.
        links.remove(PeerId(1));
        assert_eq!(links.next_generation(PeerId(1), false), 3);
        assert_eq!(links.next_generation(PeerId(1), true), 3);
        assert_eq!(links.next_generation(PeerId(2), false), 1);
    }

    #[test]
    fn dialled_peers_are_counted_and_given_up() {
        let mut links = links();
        links.dial(PeerId(1), vec![address()], NOW, 0);
        links.dial(PeerId(2), vec![address()], NOW, 0);
        assert_eq!(links.dialled(), 2);
        let tries = links.poll_dials(NOW.0, |_| false);
        let timeout = Duration::from_secs(3);
        assert!(
            tries
                .iter()
                .all(|(_, action)| { *action == DialAction::Try { address: address(), timeout } })
        );
        links.open(PeerId(1), 7);
        assert_eq!((links.dialled(), links.open_key(PeerId(1))), (1, Some(7)));
        // An attempt that may be the link already is waited for.
        assert_eq!(links.poll_dials(timeout, |peer| peer == PeerId(2)), []);
        let ends = links.poll_dials(timeout, |_| false);
        assert!(matches!(&ends[..], [(PeerId(2), DialAction::GiveUp(_))]), "{ends:?}");
        assert_eq!(links.dialled(), 0);
        assert!(links.get(PeerId(2)).is_none());
    }
}
