//! A connection that carries frames.

use std::time::Duration;

use wire::{Cost, GateId};

use super::knowledge::Knowledge;
use super::pacing::Pacing;
use super::stall::StallWatch;
use super::stream::FrameStream;

/// A link, as one end has it.
pub(super) struct Open {
    pub peer: GateId,
    pub stream: FrameStream,
    pub pacing: Pacing,
    /// When it opened.
    pub since: Duration,
    /// Looks in a row that found nothing.
    pub quiet: u32,
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

    /// Begins to measure the way, if that was not done; whether it has.
    pub fn begin_probe(&mut self) -> bool {
        self.pacing.begin_probe(&self.stream.channel.socket)
    }

    /// Sees that the link goes on as fast as it is known to be.
    pub fn keep_pace(&mut self, now: Duration) {
        self.pacing.keep_pace(&self.stream.channel.socket, now);
    }

    /// Looks at a link that was given a long frame; whether it is to be looked at again.
    pub fn look_after_long(&mut self) -> bool {
        let socket = &self.stream.channel.socket;
        let is_awaited = self.pacing.ease(socket);
        // What waits here is on its way to the kernel.
        self.stall.look(socket) || (is_awaited || !self.stream.is_flushed()) && self.stall.begin()
    }

    /// A long frame goes.
    pub fn handle_frame(&mut self, len: usize) {
        self.pacing.handle_frame(&self.stream.channel.socket, len);
    }

    /// Sends padding as far as the kernel takes it and some is left; what the link costs when that is known.
    pub fn pad(&mut self, left: &mut usize, now: Duration) -> Option<Cost> {
        let most = self.pacing.allowance(&self.stream.channel.socket).min(*left);
        // What fails here fails whoever reads next.
        let count = self.stream.pad(most).unwrap_or(0);
        *left = left.saturating_sub(count);
        let socket = &self.stream.channel.socket;
        if !self.pacing.handle_padded(socket, count, *left > 0, now) {
            return None;
        }
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
