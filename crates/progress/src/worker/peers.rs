//! The peers of a worker: their names, those of other jobs, and the rails that lead to them.

use std::time::Duration;

use connect::{PeerName, Purpose};
use rail::{PathStatistics, Rail};
use wire::{PeerId, ProcessId, RailId};

use super::{Directory, OwnAddresses, PolledRail, Worker, kind};

/// Rails.
impl Worker {
    /// Adds rails behind the others. Those of one kind make a team.
    pub(super) fn append_rails(&mut self, rails: Vec<Box<dyn Rail>>) {
        for rail in rails {
            let coalesce_within = rail.coalesce_within();
            let name = rail.name();
            let first = self.rails.iter().position(|known| kind(known.name) == kind(name));
            self.rails.push(PolledRail {
                name,
                coalesce_within,
                buffers: coalesce_within > Duration::ZERO,
                team: RailId(first.unwrap_or(self.rails.len()) as u8),
                has_twin: false,
                is_mixed: false,
                passes: rail.passes(),
                passed_by: None,
                idle_polls: 0,
                skip: 0,
                rail,
            });
        }
        self.near = self.rails.iter_mut().position(|polled| polled.rail.neighbours().is_some());
        self.count_teams();
    }

    pub(super) fn join_team(&mut self, kinds: &[&str]) {
        let is_member = |polled: &PolledRail| kinds.contains(&kind(polled.name));
        if let Some(first) = self.rails.iter().position(is_member) {
            let members = self.rails.iter_mut().filter(|polled| is_member(polled));
            members.for_each(|polled| polled.team = RailId(first as u8));
        }
        self.count_teams();
    }

    /// Adds rails, the teams among them, and the directory of peers that knows these rails. No other peer is known yet.
    pub(crate) fn add_rails(
        &mut self,
        rails: Vec<Box<dyn Rail>>,
        teams: &[Vec<String>],
        directory: impl FnOnce(OwnAddresses) -> Box<dyn Directory>,
    ) {
        self.append_rails(rails);
        for team in teams {
            self.join_team(&team.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let own = self.rails.iter().map(|one| (one.name.to_owned(), one.rail.address()));
        self.directory = directory(own.collect());
    }
}

/// Peers.
impl Worker {
    /// Adds a process of another job, to which messages may be sent from now on, and which may connect to this process.
    /// Both have to know the same `key`. Returns its number.
    pub fn add_peer(&mut self, process: ProcessId, key: &[u8; 32], card: Vec<u8>) -> PeerId {
        let peer = self.peers.add_peer(process);
        let same = self.engine.add_peer();
        debug_assert_eq!(peer, same, "the engine counts its peers as the connection manager does");
        for polled in &mut self.rails {
            polled.rail.add_peer(peer, process, key);
        }
        self.directory.add_peer(peer, card);
        peer
    }

    /// The name of a peer in messages.
    pub fn peer_name(&self, peer: PeerId) -> PeerName {
        self.peers.name(peer)
    }

    /// Asks for a link to a peer before there is a message for it.
    pub fn submit_link(&mut self, peer: PeerId) {
        if self.peers.is_closed(peer) {
            self.open(peer, Purpose::Wanted);
        }
    }

    /// True once no link to a peer is being opened: there is one, or there will be none.
    pub fn has_settled(&self, peer: PeerId) -> bool {
        self.peers.leading_rail(peer).is_some() || self.peers.is_failed(peer)
    }

    /// Name of the rail that carries frames to `peer`, once a link is open.
    pub fn rail_name(&self, peer: PeerId) -> Option<&'static str> {
        Some(self.rails[self.peers.leading_rail(peer)?.0 as usize].name)
    }

    /// Returns what the transports know of their open connections, each with its peer.
    pub fn path_statistics(&self) -> Vec<(PeerId, PathStatistics)> {
        let mut all = Vec::new();
        for polled in &self.rails {
            polled.rail.path_statistics(&mut |peer, statistics| all.push((peer, statistics)));
        }
        all
    }

    /// Sets whether these peers may end: then nobody is told of it.
    pub fn set_may_end(&mut self, peers: &[PeerId], may_end: bool) {
        for peer in peers {
            match may_end {
                true => self.may_end.insert(*peer),
                false => self.may_end.remove(peer),
            };
        }
    }

    /// True if all that was sent to these peers has arrived there, or at their systems, or they have failed.
    pub fn has_delivered_to(&mut self, peers: &[PeerId]) -> bool {
        let mut is_delivered = true;
        for peer in peers {
            is_delivered &= self.engine.confirm_all(*peer);
        }
        is_delivered && {
            let statistics = self.path_statistics();
            !statistics.iter().any(|(peer, it)| it.is_in_flight && peers.contains(peer))
        }
    }

    /// Peers to which no link leads at the moment, although one has.
    pub fn peers_without_link(&self) -> Vec<PeerId> {
        self.peers.without_link().collect()
    }
}
