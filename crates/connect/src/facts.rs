//! Knowledge of a process about its peers, as the connection manager asks for it.

use wire::{PeerId, RailId};

/// A rail that may reach a peer, and the peer's address there.
pub type Candidate = (RailId, Vec<u8>);

/// Knowledge of a process about its peers, asked by [`Peers`](crate::Peers).
pub trait PeerFacts {
    /// Returns the addresses of a peer, best rail first; none if they are unknown.
    fn addresses(&mut self, peer: PeerId) -> Vec<Candidate>;

    /// True if the launcher has seen the process end.
    fn has_ended(&mut self, peer: PeerId) -> bool;

    /// True if the peer was reached and no link to it is open.
    fn is_down(&self, peer: PeerId) -> bool;

    /// True if a distant peer was reached and has no link now. A refusal may come from a host in between, so the peer
    /// is waited for.
    fn is_cut_off(&self, peer: PeerId) -> bool;

    /// True if the peer has acknowledged something since it lost a link, or nothing waits for that.
    fn is_restored(&self, peer: PeerId) -> bool;

    /// True if a lost link may reopen.
    fn may_reopen(&self, peer: PeerId, rail: RailId) -> bool;

    /// True if a lost link to a distant peer was open before.
    fn has_been_open(&self, peer: PeerId, rail: RailId) -> bool;

    /// True if a link carries frames.
    fn carries(&self, peer: PeerId, rail: RailId) -> bool;
}
