//! A connection that carries frames.

use std::time::Duration;

use auth::Handshake;
use cost::Cost;
use netpath::{DropWatch, Knowledge, Pacing};
use wire::PeerId;

use crate::shared_paths::Prefix;
use crate::stream::{FrameStream, PADDING_SHORT};

/// One end of an open link.
pub(super) struct Open {
    pub peer: PeerId,
    pub stream: FrameStream,
    pub pacing: Pacing,
    /// Time of opening, on the rail's clock.
    pub since: Duration,
    pub drop_watch: DropWatch,
    /// Distant network to which the link leads.
    pub path: Option<Prefix>,
    pub is_backlogged: bool,
    pub wants_write: bool,
    /// Number of the last poll that has brought a whole frame.
    pub heard: Option<u32>,
    /// State of the handshake, until the verdict has come.
    pub verdict: Option<Handshake>,
}

impl Open {
    /// Sets the send budget (`burst`) from the cost of the link.
    pub fn update_burst(&mut self) {
        let within = |cost: Cost| cost.bytes_within(BURST_NS.max(cost.latency_ns() / BURST_SHARE));
        let carried = self.pacing.cost().map_or(u64::MAX, within);
        self.stream.burst = usize::try_from(carried).unwrap_or(usize::MAX).max(BURST_MIN);
    }

    /// Starts the probe of the path or the cwnd warm-up, if due and this process's to do. Returns true if one
    /// started.
    pub fn begin_probe(&mut self, knowledge: &Knowledge, opens: bool) -> bool {
        self.pacing.begin_among(&self.stream.channel.socket, knowledge, opens)
    }

    /// Keeps the link at its known rate.
    pub fn keep_pace(&mut self, now: Duration) {
        self.pacing.keep_pace(&self.stream.channel.socket, now);
    }

    /// Looks at a link that was given a long frame or is warming up. Returns true if it is to be looked at again, and
    /// its cost if that changed clearly.
    pub fn look_after_long(&mut self, now: Duration) -> (bool, Option<Cost>) {
        self.warm_up(now);
        let socket = &self.stream.channel.socket;
        let has_changed = self.pacing.measure(socket, !self.stream.is_flushed());
        let cost = if has_changed { self.pacing.cost() } else { None };
        let is_awaited = self.pacing.adapt_cap(socket)
            || self.pacing.probe.is_warming_up()
            || self.pacing.is_measuring();
        // Frames queued here are about to go to the kernel.
        let goes_on = self.drop_watch.look(socket)
            || (is_awaited || !self.stream.is_flushed()) && self.drop_watch.begin();
        if has_changed {
            self.update_burst();
        }
        (goes_on, cost)
    }

    /// True if the last look found a qdisc drop, or the warm-up goes on.
    pub fn is_unfinished(&self) -> bool {
        self.drop_watch.is_dropped() || self.pacing.probe.is_warming_up()
    }

    fn warm_up(&mut self, now: Duration) {
        let most = self.pacing.warm_up(&self.stream.channel.socket, now);
        // An error here also reaches the next reader of the socket.
        let packets = self.stream.pad_shortly(most).unwrap_or(0);
        self.pacing.handle_warmup_sent(packets);
    }

    /// Sends padding until the kernel takes no more or `left` is used up. Returns the cost of the link once it is
    /// known.
    pub fn pad(&mut self, left: &mut usize, knowledge: &Knowledge, now: Duration) -> Option<Cost> {
        let most = self.pacing.probe.allowance().min(*left);
        // An error here also reaches the next reader of the socket.
        let count = match self.pacing.short_padding(&self.stream.channel.socket) {
            Some(packets) => self.stream.pad_shortly(packets).unwrap_or(0) as usize * PADDING_SHORT,
            None => self.stream.pad(most).unwrap_or(0),
        };
        *left = left.saturating_sub(count);
        let socket = &self.stream.channel.socket;
        if !self.pacing.handle_padded(socket, count, *left > 0, now) {
            return None;
        }
        self.pacing.keep_found(socket, knowledge);
        self.update_burst();
        self.pacing.cost()
    }

    /// Stores what was learned of the connection, for later jobs.
    pub fn keep(&mut self, knowledge: &Knowledge) {
        self.pacing.keep(&self.stream.channel.socket, knowledge);
    }
}

/// Nanoseconds for which the first frames of a long message keep the link busy. The progress thread polls the rail
/// within that time.
const BURST_NS: u64 = 500_000;
/// Share of the latency that a burst may take on a WAN link: the delay hardly shows, and the progress thread may be
/// late.
const BURST_SHARE: u64 = 4;
pub(super) const BURST_MIN: usize = 64 << 10;
