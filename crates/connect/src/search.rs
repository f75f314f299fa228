//! The search for a first route to a peer.

use wire::RailId;

use crate::facts::Candidate;
use crate::rails::RailSet;

/// Reason for which a route to a peer is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A message is to be sent: without a route the peer has failed.
    Wanted,
    /// A message is awaited. The peer may still connect to this process if no route leads to it.
    Awaited,
}

/// Search for a route to a peer: its rails are asked in order, those of a team at once.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub purpose: Purpose,
    /// Rail whose answer decides when the next one is asked.
    pub leader: RailId,
    /// Rails asked so far.
    pub asked: RailSet,
    /// Rails to ask if the leader fails, with the peer's addresses there.
    later: Vec<Candidate>,
    /// Errors of the rails that have failed.
    refusals: Vec<String>,
}

impl Search {
    /// Search over these rails, of which none has been asked.
    pub fn new(purpose: Purpose, candidates: Vec<Candidate>) -> Self {
        let (asked, refusals) = (RailSet::EMPTY, Vec::new());
        Self { purpose, leader: RailId(0), asked, later: candidates, refusals }
    }

    /// Makes the next rail the leader. Returns the rails to ask: the leader, then others of its team; none if no rail
    /// is left.
    pub fn advance(&mut self, team: impl Fn(RailId) -> RailId) -> Vec<Candidate> {
        if self.later.is_empty() {
            return Vec::new();
        }
        let (leader, address) = self.later.remove(0);
        self.leader = leader;
        let twins = self.later.iter().filter(|(rail, _)| team(*rail) == team(leader));
        let asked: Vec<_> = std::iter::once((leader, address)).chain(twins.cloned()).collect();
        asked.iter().for_each(|(rail, _)| self.asked.insert(*rail));
        asked
    }

    /// True if only the leader was ever to be asked.
    pub fn is_alone(&self) -> bool {
        self.later.is_empty() && self.refusals.is_empty()
    }

    /// Notes that a rail does not reach the peer. It is not asked again.
    pub fn note_refusal(&mut self, rail: RailId, name: &str, reason: &str) {
        self.later.retain(|(other, _)| *other != rail);
        self.asked.remove(rail);
        self.refusals.push(format!("{name}: {reason}"));
    }

    /// The latest refusal and the next rail, if there are both.
    pub fn turn(&self) -> Option<(&str, RailId)> {
        Some((self.refusals.last()?, self.later.first()?.0))
    }

    /// Says which rails have failed, and why.
    pub fn account(&self) -> String {
        if self.refusals.is_empty() { "no rail in common".into() } else { self.refusals.join("; ") }
    }
}
