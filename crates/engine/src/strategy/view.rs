//! View of a strategy: the data that waits at a peer, and the usable links.

use cost::{Cost, HostCost};
use wire::{Capabilities, PeerId, RailId, packet};

use crate::compress::Compression;
use crate::link::Link;
use crate::op::{Op, OpState, Ops};
use crate::peer::PeerState;
use crate::pending::Pending;

/// State of a peer while one of its links asks for a frame.
#[derive(Debug)]
pub struct View<'a> {
    id: PeerId,
    state: &'a PeerState,
    ops: &'a Ops,
    host: &'a HostCost,
    is_oversubscribed: bool,
    link: usize,
    /// True if the link only passes others, which carry long messages.
    is_passing: bool,
    room: usize,
    is_empty: bool,
}

/// A message whose envelope has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Index in the send queue: 0 is the oldest.
    pub at: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Communicator's context; messages of one context leave in order.
    pub context: u64,
    /// True if its receiver may be blocked on this message.
    pub is_urgent: bool,
    /// Number of later messages that have left before it.
    pub overtaken: usize,
    /// Credit that it takes if it leaves whole.
    pub cost: usize,
    /// True for addressed traffic, which leaves as [`Carry::Inline`](super::Carry::Inline).
    pub is_addressed: bool,
}

/// A long message that is being sent in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Index among the streams: 0 has waited longest.
    pub at: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Bytes that may be sent now and were not.
    pub left: usize,
    /// Bytes that were not sent at all, although some have no CTS yet.
    pub rest: usize,
}

/// A link of the peer.
#[derive(Clone, Copy, Debug)]
pub struct LinkView<'a> {
    link: &'a Link,
}

impl<'a> LinkView<'a> {
    /// Rail of the link.
    pub fn rail(&self) -> RailId {
        self.link.rail
    }

    /// Capabilities of the link.
    pub fn capabilities(&self) -> &Capabilities {
        &self.link.capabilities
    }

    /// Predicted cost of frames over the link.
    pub fn cost(&self) -> &'a Cost {
        &self.link.cost
    }

    /// Time for which sent frames will keep the link busy, in nanoseconds.
    pub fn backlog_ns(&self) -> u64 {
        match self.link.backlog_bytes() {
            0 => 0,
            bytes => self.link.cost.busy_ns(bytes as u64),
        }
    }

    /// Queueing delay of a new frame: the backlog beyond what the link carries in one round trip.
    pub fn queue_ns(&self) -> u64 {
        self.backlog_ns().saturating_sub(2 * self.link.cost.latency_ns())
    }

    /// Unacknowledged bytes; 0 on a link without ACKs.
    pub fn backlog_bytes(&self) -> usize {
        self.link.backlog_bytes()
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(
        id: PeerId,
        (state, link): (&'a PeerState, usize),
        ops: &'a Ops,
        (host, is_oversubscribed): (&'a HostCost, bool),
        (taken, is_empty): (usize, bool),
    ) -> Self {
        let room = state.links[link].capabilities.frame_max.saturating_sub(taken);
        let is_passing = state.links.len() > 1 && state.is_passed_by(link);
        Self { id, state, ops, host, is_oversubscribed, link, is_passing, room, is_empty }
    }

    /// Peer's identifier.
    pub fn peer(&self) -> PeerId {
        self.id
    }

    /// Link that asks for a frame.
    #[inline]
    pub fn link(&self) -> LinkView<'a> {
        LinkView { link: &self.state.links[self.link] }
    }

    /// Index of the asking link among [`View::links`].
    pub fn place(&self) -> usize {
        self.visible().position(|(at, _)| at == self.link).unwrap_or(0)
    }

    /// Links that carry the same traffic as the asking one, which is among them. A passing link
    /// ([`Capabilities::passes`]) is alone.
    pub fn links(&self) -> impl Iterator<Item = LinkView<'a>> {
        self.visible().map(|(_, link)| LinkView { link })
    }

    fn visible(&self) -> impl Iterator<Item = (usize, &'a Link)> + use<'a> {
        let (own, is_passing, state) = (self.link, self.is_passing, self.state);
        let all = state.links.iter().enumerate();
        all.filter(move |&(at, link)| at == own || !(is_passing || link.capabilities.passes))
    }

    /// True if no other link shares this traffic.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_passing || self.state.has_one_carrier()
    }

    /// True if the asking link carries pieces of long messages.
    #[inline]
    pub fn takes_pieces(&self) -> bool {
        !self.is_passing
    }

    /// Cost of copying, compressing and sending on this machine.
    pub fn host(&self) -> &HostCost {
        self.host
    }

    /// True if more ranks than CPU cores run here.
    pub fn is_oversubscribed(&self) -> bool {
        self.is_oversubscribed
    }

    /// Compression ratio observed with this peer.
    pub fn compression(&self) -> &Compression {
        &self.state.compression
    }

    /// True if waiting data would be stuck if the asking link took nothing. That holds if the frame
    /// is empty, no other link is full or yet to be asked, and no ACK is expected.
    pub fn is_last(&self) -> bool {
        let links = &self.state.links;
        let is_other = |at: usize| at != self.link;
        let is_busy = |link: &Link| !link.capabilities.passes && (link.full || link.listed);
        let others_go_on = || {
            links.iter().enumerate().any(|(at, link)| is_other(at) && is_busy(link))
                || links.iter().any(Link::awaits_ack)
        };
        self.is_empty && !self.is_passing && (links.len() == 1 || !others_go_on())
    }

    /// Bytes that still fit the frame.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Number of waiting control packets.
    #[inline]
    pub fn controls(&self) -> usize {
        self.state.control.len()
    }

    /// Credit for eager messages, in bytes.
    #[inline]
    pub fn credit(&self) -> usize {
        self.state.credit
    }

    /// Messages of the send queue, oldest first, limited to what the peer can put in order.
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = Message> + use<'a> {
        let seen = self.state.send_queue.iter().take(self.state.order_room());
        seen.enumerate().map(|(at, pending)| message(at, pending))
    }

    /// True if the send queue holds messages.
    #[inline]
    pub fn has_messages(&self) -> bool {
        !self.state.send_queue.is_empty()
    }

    /// Returns a message of the send queue.
    pub(crate) fn message(&self, at: usize) -> Option<Message> {
        self.state.send_queue.get(at).map(|pending| message(at, pending))
    }

    /// Messages being sent in pieces that the link may carry, longest waiting first.
    pub fn streams(&self) -> impl Iterator<Item = Stream> + use<'a> {
        let ops = self.ops;
        let most = if self.is_passing { 0 } else { usize::MAX };
        self.state.streams.iter().enumerate().take(most).filter_map(move |(at, id)| {
            let Some(Op { region, state: OpState::Send(send), .. }) = ops.find(*id) else {
                return None;
            };
            let until = if send.next < send.rts_data { send.rts_data } else { send.end };
            let (bytes, next) = (region.len(), send.next as usize);
            Some(Stream { at, bytes, left: until as usize - next, rest: bytes - next })
        })
    }

    /// True if so much has overtaken the streams that the next frame should be theirs: 256 KiB, and
    /// then four times what they were served.
    #[inline]
    pub fn is_stream_due(&self) -> bool {
        !self.is_passing && self.state.is_stream_due()
    }

    /// Number of messages that may leave without exceeding what the peer can put in order.
    pub fn order_room(&self) -> usize {
        self.state.order_room()
    }

    /// True if no other ready link would deliver a short message earlier.
    pub fn is_first(&self) -> bool {
        let arrival_ns = |link: &LinkView<'_>| link.backlog_ns() + link.cost().arrival_ns(SHORT);
        let mine = arrival_ns(&self.link());
        let mut others = self.visible().filter(|&(at, link)| at != self.link && link.is_ready());
        others.all(|(at, link)| (mine, self.link) < (arrival_ns(&LinkView { link }), at))
    }

    /// True if a message of this length may be eager.
    #[inline]
    pub fn is_short(&self, bytes: usize) -> bool {
        let Capabilities { frame_max, eager_max, .. } = *self.link().capabilities();
        let header = packet::EAGER_LEN + self.link().link.ack_len();
        bytes <= eager_max.min(frame_max.saturating_sub(header))
    }
}

/// Length of a short message, in bytes.
const SHORT: u64 = 64;

fn message(at: usize, pending: &Pending) -> Message {
    let Pending { bytes, cost, context, is_addressed, is_urgent, overtaken, .. } = *pending;
    Message { at, bytes, context, is_urgent, overtaken: usize::from(overtaken), cost, is_addressed }
}
