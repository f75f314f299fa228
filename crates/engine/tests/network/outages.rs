//! Outages of peers at a simulated process.

use std::collections::BTreeMap;
use std::time::Duration;

use connect::{Outage, OutageStep, Patience};
use engine::{Engine, Loss};
use wire::{PeerId, RailId};

use super::{SimulatedNetwork, SimulatedProcess};

/// Peers that have lost links, on a clock that stops while the process is away.
#[derive(Default)]
pub(super) struct Outages {
    peers: BTreeMap<PeerId, Outage>,
    now: Duration,
    /// Time of the last look.
    looked_ns: u64,
}

impl Outages {
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }

    /// Lets time pass; returns what becomes of the peers.
    fn look(&mut self, now_ns: u64, engine: &Engine) -> Vec<(PeerId, OutageStep)> {
        // A process that was away has not waited.
        self.now += Duration::from_nanos(now_ns - self.looked_ns).min(Duration::from_secs(1));
        self.looked_ns = now_ns;
        let Self { peers, now, .. } = self;
        let mut steps = Vec::new();
        peers.retain(|&peer, outage| {
            let state = (engine.is_down(peer), engine.is_restored(peer));
            let step = outage.look(*now, state, &Patience::default());
            steps.push((peer, step));
            !matches!(step, OutageStep::Ends | OutageStep::Fails)
        });
        steps
    }
}

impl SimulatedProcess {
    pub(super) fn lose_link(&mut self, peer: PeerId, rail: RailId, ends: bool) -> Loss {
        let Self { engine, outages, .. } = self;
        if engine.is_restored(peer) {
            outages.forget(peer);
        }
        let loss = engine.handle_link_down(peer, rail, ends);
        let now = outages.now;
        outages
            .peers
            .entry(peer)
            .or_insert_with(|| Outage::new(now, Duration::ZERO))
            .note_loss(rail, now, None);
        loss
    }
}

impl SimulatedNetwork {
    /// Gives up peers that have had no link for too long, and asks other links for a path, as
    /// `progress` does.
    pub(super) fn follow_outages(&mut self, rank: usize) {
        let now_ns = self.now_ns;
        let SimulatedProcess { outages, engine, .. } = &mut self.processes[rank];
        for (PeerId(peer), step) in outages.look(now_ns, engine) {
            match step {
                OutageStep::Waits | OutageStep::Ends => {}
                OutageStep::Detour => self.ask_others(rank, peer as usize),
                OutageStep::Fails => self.give_up(rank, peer as usize),
            }
        }
    }

    /// Asks the spare links for a path to a peer.
    fn ask_others(&mut self, rank: usize, peer: usize) {
        let (a, b) = (rank.min(peer), rank.max(peer));
        for link in 0..2 {
            let pair_link = (a, b, link);
            let leads = self.spare.contains(&pair_link) && self.forbidden != Some(pair_link);
            if leads && self.mending.insert(pair_link) {
                self.mend(a, b, link);
            }
        }
    }
}
