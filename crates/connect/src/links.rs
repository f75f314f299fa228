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
    /// Peers of other jobs: true if they count as lower than this process.
    is_lower: FxHashMap<PeerId, bool>,
    /// Longest time for which a peer that was never connected is dialled, and for which one attempt lasts.
    connect_timeout: Duration,
    links: FxHashMap<PeerId, RailLink<K>>,
    openings: FxHashMap<PeerId, Openings>,
    /// Number of peers being dialled.
    dialled: usize,
}

/// Openings of the link to a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Openings {
    /// Number of the latest one that may have succeeded at either end.
    latest: u32,
    /// True if one has succeeded here.
    was_open: bool,
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

/// State of a connection that this process dials: it has an opening to name, and awaits the verdict of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    peer: PeerId,
    generation: u32,
}

impl Asked {
    /// The peer that is asked.
    pub fn peer(self) -> PeerId {
        self.peer
    }

    /// Number of this opening.
    pub fn generation(self) -> u32 {
        self.generation
    }
}

/// State of a connection that both ends take for the link: [`Links::open`] makes it the link here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    peer: PeerId,
    generation: u32,
}

impl Agreed {
    /// The peer at the other end.
    pub fn peer(self) -> PeerId {
        self.peer
    }

    /// Number of the latest opening, as this end counts.
    pub fn generation(self) -> u32 {
        self.generation
    }
}

/// Decision on a connection whose caller has proved to be a peer of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<K> {
    /// It is the link.
    Accepted(Agreed),
    /// It is the link once this older connection is closed, which its caller has lost.
    Replaces(K, Agreed),
    /// Another connection is the link, or becomes it.
    Declined,
}

impl<K: Copy> Links<K> {
    /// Links of the process with rank `own`.
    pub fn new(own: PeerId, connect_timeout: Duration) -> Self {
        Self {
            own,
            is_lower: FxHashMap::default(),
            connect_timeout,
            links: FxHashMap::default(),
            openings: FxHashMap::default(),
            dialled: 0,
        }
    }

    /// Adds a peer of another job. Both ends must agree on which of them counts as the lower rank.
    pub fn add_peer(&mut self, peer: PeerId, is_lower: bool) {
        self.is_lower.insert(peer, is_lower);
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

    /// Number of the latest opening that may have succeeded; 0 if there was none.
    pub fn generation(&self, peer: PeerId) -> u32 {
        self.openings.get(&peer).map_or(0, |openings| openings.latest)
    }

    /// True if the link to a peer was open before.
    pub fn has_been_open(&self, peer: PeerId) -> bool {
        self.openings.get(&peer).is_some_and(|openings| openings.was_open)
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

    /// Begins the handshake of a connection to `peer`. The opening is number 1 until one has succeeded, then one more
    /// than any that may have succeeded at either end. `is_asked` is true if another attempt already carries that
    /// number.
    pub fn ask(&mut self, peer: PeerId, is_asked: bool) -> Asked {
        let Some(Openings { latest, .. }) = self.openings.get_mut(&peer) else {
            return Asked { peer, generation: 1 };
        };
        if !is_asked {
            *latest = latest.saturating_add(1);
        }
        Asked { peer, generation: *latest }
    }

    /// Handles the acceptance of a connection by its other end, which counts this opening. `None` if another one is
    /// the link here.
    pub fn conclude(&mut self, asked: Asked, generation: u32) -> Option<Agreed> {
        let is_open = matches!(self.links.get(&asked.peer), Some(RailLink::Open { .. }));
        (!is_open).then(|| self.agree(asked.peer, generation))
    }

    /// Takes a connection for the link before the verdict of its other end, for which this end has proved itself.
    /// `None` if the other end may decide otherwise: it may have another link, or its own attempt wins.
    pub fn anticipate(&mut self, asked: Asked) -> Option<Agreed> {
        let is_first = asked.generation == 1 && !self.openings.contains_key(&asked.peer);
        let wins = !self.counts_as_lower(asked.peer);
        let is_dialled = matches!(self.links.get(&asked.peer), Some(RailLink::Dialling(_)));
        (is_first && wins && is_dialled).then(|| self.agree(asked.peer, asked.generation))
    }

    /// Handles the acceptance of a link that was [anticipated](Self::anticipate), and how its other end counts it.
    pub fn handle_acceptance(&mut self, asked: Asked, generation: u32) {
        self.agree(asked.peer, generation);
    }

    /// True if of crossing connections that of the peer is the link.
    fn counts_as_lower(&self, peer: PeerId) -> bool {
        self.is_lower.get(&peer).copied().unwrap_or(peer < self.own)
    }

    /// Records that a connection ended before the verdict of its other end arrived, which may have accepted it. The
    /// next opening has a later number, and replaces that one.
    pub fn handle_unanswered(&mut self, asked: Asked) {
        self.agree(asked.peer, asked.generation);
    }

    /// Records an opening that has succeeded, or may have.
    fn agree(&mut self, peer: PeerId, generation: u32) -> Agreed {
        let Openings { latest, .. } = self.openings.entry(peer).or_default();
        *latest = generation.max(*latest);
        Agreed { peer, generation: *latest }
    }

    /// Decides on a connection of an authenticated caller that names a generation. `has_proved` is true if this end
    /// has proved itself over an attempt of its own, which may be the link at the other end.
    pub fn judge(
        &mut self,
        caller: PeerId,
        generation: u32,
        has_proved: impl FnOnce() -> bool,
    ) -> Verdict<K> {
        let is_lower = self.counts_as_lower(caller);
        let older = match self.links.get(&caller) {
            None => None,
            Some(RailLink::Open { key }) if generation > self.generation(caller) => Some(*key),
            Some(RailLink::Dialling(_)) if is_lower || !has_proved() => None,
            Some(RailLink::Open { .. } | RailLink::Dialling(_)) => return Verdict::Declined,
        };
        let agreed = self.agree(caller, generation);
        match older {
            Some(key) => Verdict::Replaces(key, agreed),
            None => Verdict::Accepted(agreed),
        }
    }

    /// Makes a connection the link.
    pub fn open(&mut self, agreed: Agreed, key: K) {
        self.openings.entry(agreed.peer).or_default().was_open = true;
        self.put(agreed.peer, RailLink::Open { key });
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

    /// Accepts a connection from a peer.
    fn open(links: &mut Links<u64>, peer: PeerId, key: u64) {
        match links.judge(peer, 1, || false) {
            Verdict::Accepted(agreed) => links.open(agreed, key),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn crossing_connections_of_two_jobs_are_judged_alike_at_both_ends() {
        for is_lower in [false, true] {
            let (there, here) = (PeerId(9), PeerId(7));
            let (mut one, mut other) = (links(), Links::<u64>::new(OWN, NOW.1));
            one.add_peer(there, is_lower);
            other.add_peer(here, !is_lower);
            one.dial(there, vec![address()], NOW, 0);
            other.dial(here, vec![address()], NOW, 0);
            let is_accepted = |verdict| matches!(verdict, Verdict::Accepted(_));
            assert_eq!(is_accepted(one.judge(there, 1, || true)), is_lower);
            assert_eq!(is_accepted(other.judge(here, 1, || true)), !is_lower);
        }
    }

    #[test]
    fn crossing_connections_are_judged_alike_at_both_ends() {
        for caller in [PeerId(3), PeerId(8)] {
            for (callee_asked, caller_asked) in [(false, false), (false, true), (true, true)] {
                let mut callee = links();
                callee.dial(caller, vec![address()], NOW, 0);
                let mut other = Links::<u64>::new(caller, NOW.1);
                other.dial(OWN, vec![address()], NOW, 0);
                let is_accepted = |verdict| matches!(verdict, Verdict::Accepted(_));
                let forth = is_accepted(callee.judge(caller, 1, || callee_asked));
                let back = is_accepted(other.judge(OWN, 1, || caller_asked));
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
        open(&mut links, PeerId(1), 70);
        let proved = || unreachable!("no attempt is under way");
        assert_eq!(links.judge(PeerId(1), 1, proved), Verdict::Declined);
        let agreed = Agreed { peer: PeerId(1), generation: 2 };
        assert_eq!(links.judge(PeerId(1), 2, proved), Verdict::Replaces(70, agreed));
        assert_eq!(links.judge(PeerId(1), 2, proved), Verdict::Declined, "a replay");
        // An opening of this end has a later number than any that the other end can have seen.
        links.remove(PeerId(1));
        assert_eq!(links.ask(PeerId(1), false).generation(), 3);
        assert_eq!(links.ask(PeerId(1), true).generation(), 3);
        assert_eq!(links.ask(PeerId(2), false).generation(), 1);
    }

    #[test]
    fn an_opening_whose_verdict_was_lost_is_replaced_by_the_next() {
        for lost in 1..4 {
            let (mut caller, mut callee) = (Links::<u64>::new(PeerId(1), NOW.1), links());
            for key in 0..=lost {
                let asked = caller.ask(OWN, false);
                assert_eq!(asked.generation(), key as u32 + 1);
                match callee.judge(PeerId(1), asked.generation(), || false) {
                    Verdict::Accepted(agreed) | Verdict::Replaces(_, agreed) => {
                        callee.open(agreed, key);
                    }
                    Verdict::Declined => panic!("opening {key} is declined"),
                }
                caller.handle_unanswered(asked);
            }
            assert_eq!(callee.open_key(PeerId(1)), Some(lost));
        }
    }

    #[test]
    fn an_accepted_connection_is_the_link_unless_another_one_is() {
        let mut links = links();
        let [first, second] = [(); 2].map(|()| links.ask(PeerId(1), false));
        let agreed = links.conclude(first, 4).expect("there is no link");
        links.open(agreed, 8);
        assert_eq!((links.open_key(PeerId(1)), links.generation(PeerId(1))), (Some(8), 4));
        assert_eq!(links.conclude(second, 5), None);
        assert_eq!(links.generation(PeerId(1)), 4);
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
        open(&mut links, PeerId(1), 7);
        assert_eq!((links.dialled(), links.open_key(PeerId(1))), (1, Some(7)));
        // An attempt that may be the link already is waited for.
        assert_eq!(links.poll_dials(timeout, |peer| peer == PeerId(2)), []);
        let ends = links.poll_dials(timeout, |_| false);
        assert!(matches!(&ends[..], [(PeerId(2), DialAction::GiveUp(_))]), "{ends:?}");
        assert_eq!(links.dialled(), 0);
        assert!(links.get(PeerId(2)).is_none());
    }
}
