//! Short messages: sent at once, or coalesced while the rail is busy with the previous one.

use std::time::{Duration, Instant};

use engine::{Envelope, Short};
use memory::Region;
use wire::PeerId;

use super::Worker;

/// A run of short messages sent in the same poll tick, each within the rails' coalescing time after the previous
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShortRun {
    pub(super) number: u64,
    pub(super) tick: u64,
    /// Time at which the last one left. It is recorded only if that one followed another in the same tick, so that
    /// a reply does not read the clock.
    pub(super) at: Option<Instant>,
}

/// Last short message sent at once to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastShort {
    pub(super) row: u64,
    /// True if there was more than one in this run.
    pub(super) is_repeated: bool,
}

impl Worker {
    /// True if messages wait to be coalesced.
    #[inline]
    pub fn is_coalescing(&self) -> bool {
        !self.coalescing.is_empty()
    }

    /// Releases coalesced messages to the next flush.
    #[inline]
    pub fn release_coalesced(&mut self) {
        while let Some(peer) = self.coalescing.pop() {
            self.engine.release_coalesced(peer);
        }
    }

    /// Stops coalescing, because no thread would send the messages.
    pub(crate) fn stop_coalescing(&mut self) {
        self.may_coalesce = false;
        self.release_coalesced();
        self.flush();
    }

    /// Sends a short message at once if nothing precedes it, or coalesces it while the rail is busy with the
    /// previous one. Returns false if it must be submitted like any other message.
    #[inline]
    pub fn send_short(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let Some(rail) = self.peers.leading_rail(peer) else { return false };
        let station = &self.rails[rail.0 as usize];
        if station.buffers && self.may_coalesce {
            let short = Short::Message(envelope);
            return self.send_or_coalesce(peer, station.coalesce_within, short, data);
        }
        self.send_at_once(peer, envelope, data)
    }

    /// Sends a short put or call like [`Worker::send_short`].
    pub fn access_short(&mut self, peer: PeerId, access: Short, data: &Region) -> bool {
        let Some(rail) = self.peers.leading_rail(peer) else { return false };
        let station = &self.rails[rail.0 as usize];
        if station.buffers && self.may_coalesce {
            return self.send_or_coalesce(peer, station.coalesce_within, access, data);
        }
        self.access_at_once(peer, access, data)
    }

    #[inline]
    pub(super) fn send_at_once(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let rail = self.engine.submit_short(peer, envelope, data, &mut self.frame);
        if let Some(rail) = rail {
            self.post(peer, rail);
        }
        rail.is_some()
    }

    fn access_at_once(&mut self, peer: PeerId, access: Short, data: &Region) -> bool {
        let rail = self.engine.submit_short_access(peer, access, data, &mut self.frame);
        if let Some(rail) = rail {
            self.post(peer, rail);
        }
        rail.is_some()
    }

    fn send_or_coalesce(
        &mut self,
        peer: PeerId,
        within: Duration,
        short: Short,
        data: &Region,
    ) -> bool {
        let index = peer.0 as usize;
        if self.posted.len() <= index {
            self.posted.resize(index + 1, LastShort::default());
        }
        if self.engine.has_coalesced(peer) {
            return self.coalesce_more(peer, short, data);
        }
        let follows = self.row.tick == self.tick;
        if !follows || self.row.at.is_some_and(|at| at.elapsed() >= within) {
            self.row = ShortRun { number: self.row.number + 1, tick: self.tick, at: None };
        }
        let LastShort { row, is_repeated } = self.posted[index];
        let is_in_run = row == self.row.number;
        let taken = match (is_in_run && is_repeated, short) {
            (true, _) => self.coalesce_more(peer, short, data),
            (false, Short::Message(envelope)) => self.send_at_once(peer, envelope, data),
            (false, access) => self.access_at_once(peer, access, data),
        };
        if taken {
            self.row.at = follows.then(Instant::now);
            self.posted[index] = LastShort { row: self.row.number, is_repeated: is_in_run };
        }
        taken
    }

    /// Coalesces a short packet. If it does not fit into the frame, the earlier ones leave first.
    fn coalesce_more(&mut self, peer: PeerId, short: Short, data: &Region) -> bool {
        if self.gather(peer, short, data) {
            return true;
        }
        self.engine.release_coalesced(peer);
        self.flush();
        self.gather(peer, short, data)
    }

    fn gather(&mut self, peer: PeerId, short: Short, data: &Region) -> bool {
        let taken = self.engine.submit_coalesced(peer, short, data);
        if taken && !self.coalescing.contains(&peer) {
            self.coalescing.push(peer);
            self.has_loose_ends = true;
        }
        taken
    }
}
