//! What a strategy sees: what waits at a peer, and the links it may take.

use wire::packet;
use wire::{Capabilities, Cost, HostCost, PeerId, RailId};

use crate::compress::Compression;
use crate::link::Link;
use crate::op::{Op, OpState, Ops};
use crate::peer::{PeerState, Pending, charge};

/// What waits at a peer while one of its links asks for a frame.
#[derive(Debug)]
pub struct View<'a> {
    id: PeerId,
    state: &'a PeerState,
    ops: &'a Ops,
    host: &'a HostCost,
    is_oversubscribed: bool,
    link: usize,
    /// It passes others, which carry what is long.
    is_passing: bool,
    room: usize,
    is_empty: bool,
}

/// A message whose envelope has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its place in the send_queue: 0 is the oldest.
    pub at: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Messages of one context leave in order.
    pub context: u64,
    /// Whether its receiver may be waiting for nothing else.
    pub is_urgent: bool,
    /// How many later messages have left before it.
    pub overtaken: usize,
}

/// A long message that is on its way piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its place among the streams: the one that waits longest is 0.
    pub at: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// How many of these may go now and have not.
    pub left: usize,
    /// How many have not gone at all, though some have not been asked for.
    pub rest: usize,
}

/// A link of the peer.
#[derive(Clone, Copy, Debug)]
pub struct LinkView<'a> {
    link: &'a Link,
}

impl<'a> LinkView<'a> {
    /// The rail it belongs to.
    pub fn rail(&self) -> RailId {
        self.link.rail
    }

    /// What it can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.link.capabilities
    }

    /// What frames over it are predicted to cost.
    pub fn cost(&self) -> &'a Cost {
        &self.link.cost
    }

    /// How long what has left over it will keep it busy, in nanoseconds.
    pub fn backlog_ns(&self) -> u64 {
        match self.link.backlog_bytes() {
            0 => 0,
            bytes => self.link.cost.busy_ns(bytes as u64),
        }
    }

    /// How long a frame would wait for its turn: the backlog without what the link carries until word of
    /// an arrival is back.
    pub fn queue_ns(&self) -> u64 {
        self.backlog_ns().saturating_sub(2 * self.link.cost.latency_ns())
    }

    /// Bytes that have left over it and have not been said to have arrived; 0 where nobody says.
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

    /// The peer.
    pub fn peer(&self) -> PeerId {
        self.id
    }

    /// The link that asks.
    #[inline]
    pub fn link(&self) -> LinkView<'a> {
        LinkView { link: &self.state.links[self.link] }
    }

    /// The place of the one that asks among [`View::links`].
    pub fn place(&self) -> usize {
        self.visible().position(|(at, _)| at == self.link).unwrap_or(0)
    }

    /// The links of the peer that carry the same as the one that asks, which is among them: all, or it alone where it
    /// passes others ([`Capabilities::passes`]).
    pub fn links(&self) -> impl Iterator<Item = LinkView<'a>> {
        self.visible().map(|(_, link)| LinkView { link })
    }

    fn visible(&self) -> impl Iterator<Item = (usize, &'a Link)> + use<'a> {
        let (own, is_passing, state) = (self.link, self.is_passing, self.state);
        let all = state.links.iter().enumerate();
        all.filter(move |&(at, link)| at == own || !(is_passing || link.capabilities.passes))
    }

    /// Whether the link that asks shares what waits with no other.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_passing || self.state.has_one_carrier()
    }

    /// Whether the link that asks carries pieces of long messages.
    #[inline]
    pub fn takes_pieces(&self) -> bool {
        !self.is_passing
    }

    /// What this machine takes to copy, to pack and to send.
    pub fn host(&self) -> &HostCost {
        self.host
    }

    /// Whether others want its cores.
    pub fn is_oversubscribed(&self) -> bool {
        self.is_oversubscribed
    }

    /// What packing has brought on the way to the peer.
    pub fn packing(&self) -> &Compression {
        &self.state.packing
    }

    /// Whether what waits would wait for ever if the link that asks took nothing: the frame is empty
    /// so far, no other link is full or still to be asked, and no word is due of what is under way.
    pub fn is_last(&self) -> bool {
        let links = &self.state.links;
        let is_other = |at: usize| at != self.link;
        let is_busy = |link: &Link| !link.capabilities.passes && (link.full || link.listed);
        let others_go_on = || {
            links.iter().enumerate().any(|(at, link)| is_other(at) && is_busy(link))
                || links.iter().any(Link::awaits_word)
        };
        self.is_empty && !self.is_passing && (links.len() == 1 || !others_go_on())
    }

    /// Bytes that the frame can still hold.
    #[inline]
    pub fn room(&self) -> usize {
        self.room
    }

    /// How many control packets wait.
    #[inline]
    pub fn controls(&self) -> usize {
        self.state.control.len()
    }

    /// What messages that go without asking may cost, in bytes.
    #[inline]
    pub fn credit(&self) -> usize {
        self.state.credit
    }

    /// What a message of `bytes` bytes that goes without asking costs of the credit.
    #[inline]
    pub fn cost_bytes(bytes: usize) -> usize {
        charge(bytes)
    }

    /// The messages of the send_queue, the oldest first; no more than the peer can put in order.
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = Message> + use<'a> {
        let seen = self.state.send_queue.iter().take(self.state.order_room());
        seen.enumerate().map(|(at, pending)| message(at, pending))
    }

    /// Whether there are messages in the send_queue.
    #[inline]
    pub fn has_messages(&self) -> bool {
        !self.state.send_queue.is_empty()
    }

    /// A message of the send_queue.
    pub(crate) fn message(&self, at: usize) -> Option<Message> {
        self.state.send_queue.get(at).map(|pending| message(at, pending))
    }

    /// The messages under way in pieces that the link carries, the one that waits longest first.
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

    /// Whether so much has left while streams waited that the next frame should be theirs: 256 KiB, and from then
    /// on four times what they were served.
    #[inline]
    pub fn is_stream_due(&self) -> bool {
        !self.is_passing && self.state.is_stream_due()
    }

    /// How many of the send_queue's messages may leave, for the peer to be able to put them in order.
    pub fn order_room(&self) -> usize {
        self.state.order_room()
    }

    /// Whether no other link that is ready would deliver a short message earlier.
    pub fn is_first(&self) -> bool {
        let arrival_ns = |link: &LinkView<'_>| link.backlog_ns() + link.cost().arrival_ns(SHORT);
        let mine = arrival_ns(&self.link());
        let mut others = self.visible().filter(|&(at, link)| at != self.link && link.is_ready());
        others.all(|(at, link)| (mine, self.link) < (arrival_ns(&LinkView { link }), at))
    }

    /// Whether a message of so many bytes may go without asking, as far as its length goes.
    #[inline]
    pub fn is_short(&self, bytes: usize) -> bool {
        let Capabilities { frame_max, eager_max, .. } = *self.link().capabilities();
        let header = packet::EAGER_LEN + self.link().link.word_len();
        bytes <= eager_max.min(frame_max.saturating_sub(header))
    }
}

/// The length of a short message, in bytes.
const SHORT: u64 = 64;

fn message(at: usize, pending: &Pending) -> Message {
    let Pending { bytes, context, is_urgent, overtaken, .. } = *pending;
    Message { at, bytes, context, is_urgent, overtaken: usize::from(overtaken) }
}
