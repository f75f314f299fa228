//! Short messages: sent at once, or laid beside others where a rail is still at the last.

use std::time::{Duration, Instant};

use engine::Envelope;
use memory::Region;
use wire::PeerId;

use super::{Route, Worker};

/// Short messages that leave one behind the other: in the same turn, and each as soon after the one before as
/// rails still are at that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) turn: u64,
    /// When the last one had left. Looked at only where it followed another in the same turn: an answer costs no
    /// look at the clock.
    pub(super) at: Option<Instant>,
}

/// What left at once for a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastShort {
    pub(super) row: u64,
    /// More than one in this row.
    pub(super) is_repeated: bool,
}

impl Worker {
    /// Whether messages wait for company.
    #[inline]
    pub fn is_coalescing(&self) -> bool {
        !self.coalescing.is_empty()
    }

    /// Lets what was coalesced go at the next flush.
    #[inline]
    pub fn release_coalesced(&mut self) {
        while let Some(peer) = self.coalescing.pop() {
            self.engine.release_coalesced(peer);
        }
    }

    /// Gathers nothing any more: nobody would send it.
    pub(crate) fn stop_coalescing(&mut self) {
        self.may_coalesce = false;
        self.release_coalesced();
        self.flush();
    }

    /// Sends a short message at once, if nothing stands before it, or lays it beside others where the
    /// rail is still at the last; false when it must be submitted as any other.
    #[inline]
    pub fn send_short(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let Some(&Route::Open(rails)) = self.routes.get(peer.0 as usize) else { return false };
        let station = &self.rails[rails.first.0 as usize];
        if station.buffers && self.may_coalesce {
            return self.send_or_coalesce(peer, station.coalesce_within, envelope, data);
        }
        self.send_at_once(peer, envelope, data)
    }

    #[inline]
    pub(super) fn send_at_once(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let rail = self.engine.submit_short(peer, envelope, data, &mut self.frame);
        if let Some(rail) = rail {
            self.post(peer, rail);
        }
        rail.is_some()
    }

    fn send_or_coalesce(
        &mut self,
        peer: PeerId,
        within: Duration,
        envelope: Envelope,
        data: &Region,
    ) -> bool {
        let index = peer.0 as usize;
        if self.posted.len() <= index {
            self.posted.resize(index + 1, LastShort::default());
        }
        if self.engine.has_coalesced(peer) {
            return self.coalesce_more(peer, envelope, data);
        }
        let follows = self.row.turn == self.turn;
        if !follows || self.row.at.is_some_and(|at| at.elapsed() >= within) {
            self.row = Row { number: self.row.number + 1, turn: self.turn, at: None };
        }
        let LastShort { row, is_repeated } = self.posted[index];
        let is_in_row = row == self.row.number;
        let taken = match is_in_row && is_repeated {
            true => self.coalesce_more(peer, envelope, data),
            false => self.send_at_once(peer, envelope, data),
        };
        if taken {
            self.row.at = follows.then(Instant::now);
            self.posted[index] = LastShort { row: self.row.number, is_repeated: is_in_row };
        }
        taken
    }

    /// Lays a short message beside others; what there is goes first if that is all a frame takes.
    fn coalesce_more(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        if self.gather(peer, envelope, data) {
            return true;
        }
        self.engine.release_coalesced(peer);
        self.flush();
        self.gather(peer, envelope, data)
    }

    fn gather(&mut self, peer: PeerId, envelope: Envelope, data: &Region) -> bool {
        let taken = self.engine.submit_coalesced(peer, envelope, data);
        if taken && !self.coalescing.contains(&peer) {
            self.coalescing.push(peer);
            self.has_loose_ends = true;
        }
        taken
    }
}
