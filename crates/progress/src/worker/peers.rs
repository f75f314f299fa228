//! The peers of a worker: their names, those of other jobs, and the rails that lead to them.

use connect::PeerName;
use rail::PathStatistics;
use wire::{PeerId, ProcessId};

use super::Worker;

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

    /// Peers to which no link leads at the moment, although one has.
    pub fn peers_without_link(&self) -> Vec<PeerId> {
        self.peers.without_link().collect()
    }
}
