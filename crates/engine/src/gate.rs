//! A gate: all that is known about the way to one peer.

use std::collections::{BTreeMap, VecDeque};

use wire::{Capabilities, Frame};

use crate::ahead::Arrivals;
use crate::matching::Unexpected;
use crate::op::OpId;

/// The state of a gate's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Nothing was ever sent.
    Closed,
    /// The engine has asked for a link.
    Wanted,
    /// Frames can be posted; unless `full`, at once.
    Up { full: bool },
    /// There is no way there; the peer may find one here.
    Unreachable,
    /// The peer is gone for good.
    Gone,
}

impl Link {
    /// Whether operations with the peer fail.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Unreachable | Self::Gone)
    }
}

/// A word for the peer's engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Clear { op: u32, receiver: u32, wanted: u64 },
    Finish { op: u32 },
}

#[derive(Debug)]
pub(crate) struct Gate {
    pub link: Link,
    pub capabilities: Capabilities,
    /// Whether the gate stands in the engine's list of gates with work.
    pub listed: bool,
    pub control: VecDeque<Control>,
    /// Sends whose envelope has not left yet, in order.
    pub window: VecDeque<OpId>,
    /// Sends being streamed, served in turn.
    pub streams: VecDeque<OpId>,
    /// Short messages, as they will stand in a frame, before all that is in the window.
    pub gathered: Vec<u8>,
    /// They need not wait for more.
    pub released: bool,
    /// A frame the rail had no room for: the first to go.
    pub stalled: Option<Frame>,
    pub sequence_out: u32,
    pub sequence_in: u32,
    /// Messages that overtook an earlier one on another rail.
    pub early: BTreeMap<u32, Unexpected>,
    /// Messages that come ahead of their clear.
    pub arrivals: Arrivals,
    /// Unmatched bytes the peer still accepts.
    pub credit: usize,
    /// Bytes the peer has charged to us: waiting here, or consumed and not yet given back.
    pub charged: usize,
    /// Of these, what was consumed.
    pub owed: usize,
    /// Fetching from this peer was refused once.
    pub pull_refused: bool,
}

impl Gate {
    pub fn new() -> Self {
        Self {
            link: Link::Closed,
            capabilities: Capabilities {
                frame_max: 0,
                inline_max: 0,
                eager_max: 0,
                ahead_max: 0,
                piece_min: 0,
                credit_bytes: 0,
                pull: false,
            },
            listed: false,
            control: VecDeque::new(),
            window: VecDeque::new(),
            streams: VecDeque::new(),
            gathered: Vec::new(),
            released: false,
            stalled: None,
            sequence_out: 0,
            sequence_in: 0,
            early: BTreeMap::new(),
            arrivals: Arrivals::default(),
            credit: 0,
            charged: 0,
            owed: 0,
            pull_refused: false,
        }
    }

    #[inline]
    pub fn has_work(&self) -> bool {
        !self.window.is_empty()
            || !self.streams.is_empty()
            || !self.control.is_empty()
            || self.stalled.is_some()
            || self.released
            || self.must_return_credit()
    }

    /// Credit is given back in a frame of its own when a quarter of it is owed…
    #[inline]
    pub fn must_return_credit(&self) -> bool {
        self.owed > 0 && self.owed >= self.capabilities.credit_bytes / 4
    }

    /// …and rides on other frames from an eighth on.
    #[inline]
    pub fn may_return_credit(&self) -> bool {
        self.owed > 0 && self.owed >= self.capabilities.credit_bytes / 8
    }

    pub fn is_idle(&self) -> bool {
        self.link.is_failed() || (!self.has_work() && self.gathered.is_empty())
    }
}

/// What an unmatched message of `len` bytes costs the receiver.
#[inline]
pub(crate) fn charge(len: usize) -> usize {
    len + OVERHEAD
}

const OVERHEAD: usize = 64;

/// More messages than this never overtake one another.
pub(crate) const EARLY_MAX: usize = 4096;
