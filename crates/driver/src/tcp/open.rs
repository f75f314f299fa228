//! A connection that carries frames.

use std::time::Duration;

use wire::{Cost, PeerId};

use super::knowledge::Knowledge;
use super::pacing::Pacing;
use super::qdisc_drop::StallWatch;
use super::stream::FrameStream;

/// A link, as one end has it.
pub(super) struct Open {
    pub peer: PeerId,
    pub stream: FrameStream,
    pub pacing: Pacing,
    /// When it opened.
    pub since: Duration,
    pub stall: StallWatch,
    pub is_backlogged: bool,
    pub wants_write: bool,
}

impl Open {
    /// What leaves at once follows from what the link carries.
    pub fn reckon_burst(&mut self) {
        let within = |cost: Cost| cost.bytes_within(BURST_NS.max(cost.latency_ns() / BURST_SHARE));
        let carried = self.pacing.cost().map_or(u64::MAX, within);
        self.stream.burst = usize::try_from(carried).unwrap_or(usize::MAX).max(BURST_MIN);
    }

    /// Begins to measure the way, if that was not done and is this process's to do, or to widen it; whether it has.
    pub fn begin_probe(&mut self, knowledge: &Knowledge, opens: bool) -> bool {
        self.pacing.begin_among(&self.stream.channel.socket, knowledge, opens)
    }

    /// Sees that the link goes on as fast as it is known to be.
    pub fn keep_pace(&mut self, now: Duration) {
        self.pacing.keep_pace(&self.stream.channel.socket, now);
    }

    /// Looks at a link that was given a long frame, or is widened; whether it is to be looked at again.
    pub fn look_after_long(&mut self, now: Duration) -> bool {
        self.widen(now);
        let socket = &self.stream.channel.socket;
        let is_awaited = self.pacing.ease(socket) || self.pacing.probe.is_widening();
        // What waits here is on its way to the kernel.
        self.stall.look(socket) || (is_awaited || !self.stream.is_flushed()) && self.stall.begin()
    }

    /// Whether it had stalled at the last look, or is to be widened further.
    pub fn is_unfinished(&self) -> bool {
        self.stall.is_stalled() || self.pacing.probe.is_widening()
    }

    fn widen(&mut self, now: Duration) {
        let most = self.pacing.widen(&self.stream.channel.socket, now);
        // What fails here fails whoever reads next.
        let packets = self.stream.pad_shortly(most).unwrap_or(0);
        self.pacing.handle_widened(packets);
    }

    /// Sends padding as far as the kernel takes it and some is left; what the link costs when that is known.
    pub fn pad(&mut self, left: &mut usize, knowledge: &Knowledge, now: Duration) -> Option<Cost> {
        let most = self.pacing.probe.allowance().min(*left);
        // What fails here fails whoever reads next.
        let count = self.stream.pad(most).unwrap_or(0);
        *left = left.saturating_sub(count);
        let socket = &self.stream.channel.socket;
        if !self.pacing.handle_padded(socket, count, *left > 0, now) {
            return None;
        }
        self.pacing.keep_found(socket, knowledge);
        self.reckon_burst();
        self.pacing.cost()
    }

    /// Keeps what was learned of the connection, for jobs to come.
    pub fn keep(&mut self, knowledge: &Knowledge) {
        self.pacing.keep(&self.stream.channel.socket, knowledge);
    }
}

/// A long message's first frames are to keep the link busy until the rail is polled, by the thread that
/// stands by at the latest, and no longer.
const BURST_NS: u64 = 500_000;
/// Far away what waits for so much of the way is hardly later, and the thread that stands by may be.
const BURST_SHARE: u64 = 4;
pub(super) const BURST_MIN: usize = 64 << 10;
