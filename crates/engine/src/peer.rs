//! State of one peer: its links, queues and credit.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use wire::packet::{self, Incarnation};
use wire::{Capabilities, Frame, RailId, RemoteKey};

use crate::addressed::AddressedState;
use crate::compress::Compression;
use crate::emit::{BEGIN_MAX, Short};
use crate::link::{InactiveLink, Link, LinkState};
use crate::matching::Early;
use crate::op::OpId;
use crate::pending::Pending;
use crate::replay_buffer::{Lost, PROMPT_BYTES, ReplayBuffer};
use crate::rts_data::RtsDataTable;

/// State of a peer, as far as the engine needs it: `connect` decides how the peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing was ever sent.
    Unconnected,
    /// A link was requested.
    Wanted,
    /// A link exists, or existed: frames can be built.
    Up,
    /// The peer has failed, or no path leads to it.
    Failed,
}

impl Reach {
    /// True if operations with the peer fail.
    pub fn is_failed(self) -> bool {
        self == Self::Failed
    }
}

/// A control packet for the peer's engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Cts { op: u32, receiver: u32, wanted: u64 },
    Grant { op: u32 },
    Fin { op: u32 },
    Refused { op: u32 },
    Get { key: RemoteKey, offset: u64, bytes: u64, op: u32 },
    Flush { op: u32, epoch: u16, bytes: u64 },
    LinkDown { link: Incarnation, frames: u32 },
}

#[derive(Debug)]
pub(crate) struct PeerState {
    pub reach: Reach,
    /// Active links to the peer, ordered by rail.
    pub links: SmallVec<[Link; 1]>,
    /// Links that carry no frames now.
    pub inactive: Vec<InactiveLink>,
    /// True if a link was lost, and nothing has been acknowledged since.
    pub has_lapsed: bool,
    pub control: VecDeque<Control>,
    /// Sends whose envelope has not left yet, in order.
    pub send_queue: VecDeque<Pending>,
    /// Sends being streamed, served round-robin.
    pub streams: VecDeque<OpId>,
    /// Bytes sent ahead of the waiting streams, beyond the share of the other messages.
    pub passed_bytes: usize,
    /// Short messages, encoded as in a frame; they precede the send queue.
    pub coalesced: Vec<u8>,
    /// Sequence of the first coalesced message.
    pub coalesced_from: u32,
    /// True if the coalesced messages may leave.
    pub released: bool,
    pub sequence_out: u32,
    pub sequence_in: u32,
    /// Messages that overtook an earlier one on another link.
    pub early: BTreeMap<u32, Early>,
    /// Messages whose data precede the CTS.
    pub rts_data: RtsDataTable,
    /// True if the peer waits for ACKs because its messages are out of order here.
    pub is_ack_wanted: bool,
    /// Frames of lost links, to be resent over others.
    pub lost: VecDeque<Lost>,
    /// Unmatched bytes that the peer still accepts.
    pub credit: usize,
    /// Unmatched bytes accepted from the peer in all: at the start, and granted since.
    pub accepted: usize,
    /// Bytes granted since from the process's budget, and those of them not yet announced to the
    /// peer.
    pub granted: usize,
    pub unannounced: usize,
    /// Bytes the peer has charged to this process: waiting here, or consumed and not yet returned.
    pub charged: usize,
    /// Consumed bytes among these.
    pub owed: usize,
    /// Compression ratio observed lately.
    pub compression: Compression,
    /// True if a remote read from this peer was refused once.
    pub remote_read_refused: bool,
    /// True if the strategy broke a rule here; `fifo` is then used.
    pub is_plain: bool,
    /// Addressed traffic, once there was any.
    pub addressed: Option<Box<AddressedState>>,
}

impl PeerState {
    pub fn new() -> Self {
        Self {
            reach: Reach::Unconnected,
            links: SmallVec::new(),
            inactive: Vec::new(),
            has_lapsed: false,
            control: VecDeque::new(),
            send_queue: VecDeque::new(),
            streams: VecDeque::new(),
            passed_bytes: 0,
            coalesced: Vec::new(),
            coalesced_from: 0,
            released: false,
            sequence_out: 0,
            sequence_in: 0,
            early: BTreeMap::new(),
            rts_data: RtsDataTable::default(),
            is_ack_wanted: false,
            lost: VecDeque::new(),
            credit: 0,
            accepted: 0,
            granted: 0,
            unannounced: 0,
            charged: 0,
            owed: 0,
            compression: Compression::default(),
            remote_read_refused: false,
            is_plain: false,
            addressed: None,
        }
    }

    /// State of addressed traffic, made on first use.
    #[inline]
    pub fn addressed(&mut self) -> &mut AddressedState {
        self.addressed.get_or_insert_default()
    }

    #[inline]
    pub fn link(&mut self, rail: RailId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.rail == rail)
    }

    /// Finds a link like [`PeerState::link`], inactive ones included.
    pub fn any_link(&mut self, rail: RailId) -> Option<&mut Link> {
        let inactive = self.inactive.iter_mut().map(|inactive| &mut inactive.link);
        self.links.iter_mut().chain(inactive).find(|link| link.rail == rail)
    }

    /// True if the peer was reached and no link to it is open.
    pub fn is_down(&self) -> bool {
        let is_open = |inactive: &InactiveLink| matches!(inactive.state, LinkState::Open { .. });
        self.links.is_empty() && !self.inactive.is_empty() && !self.inactive.iter().any(is_open)
    }

    /// True if links of the peer are compared, waited for, or probed.
    pub fn is_watched(&self) -> bool {
        !self.inactive.is_empty() || self.links.iter().any(|link| link.replay_buffer.is_some())
    }

    /// Passes the links that need a `Resume` to `list`, each once.
    pub fn list_resumes(&mut self, mut list: impl FnMut(RailId)) {
        let inactive = self
            .inactive
            .iter_mut()
            .filter(|inactive| !inactive.link.listed && inactive.needs_resume());
        for inactive in inactive {
            inactive.link.listed = true;
            list(inactive.link.rail);
        }
    }

    /// True if a listed link still needs a `Resume`.
    pub fn needs_resume(&mut self, rail: RailId) -> bool {
        let Some(inactive) = self.inactive(rail) else { return false };
        inactive.link.listed = false;
        inactive.needs_resume()
    }

    /// Finds an inactive link.
    pub fn inactive(&mut self, rail: RailId) -> Option<&mut InactiveLink> {
        self.inactive.iter_mut().find(|inactive| inactive.link.rail == rail)
    }

    /// Longest frame of all links that are open or may reopen.
    fn frame_max(&self) -> Option<usize> {
        let hopeful = self.inactive.iter().filter(|inactive| inactive.state != LinkState::Gone);
        let links = self.links.iter().chain(hopeful.map(|inactive| &inactive.link));
        links.map(|link| link.capabilities.frame_max).max()
    }

    /// True if all frames that may be lost fit another link, now or later.
    pub fn can_recover(&self) -> bool {
        let Some(frame_max) = self.frame_max() else { return false };
        let gone = self.inactive.iter().filter(|inactive| inactive.state == LinkState::Gone);
        let mut replay_buffers = gone.filter_map(|inactive| inactive.link.replay_buffer.as_ref());
        self.lost.iter().all(|lost| lost.fits(frame_max))
            && replay_buffers.all(|replay_buffer| replay_buffer.fits(frame_max))
    }

    /// Activates a link. Both ends have their links in the same order, whichever opened first:
    /// short messages use the first. A reply over the same connection piggybacks the TCP ACK, which
    /// otherwise takes a packet of its own.
    pub fn activate(&mut self, link: Link) {
        // A prompt request held back behind a long frame may leave over this link now.
        let replay_buffers = self.links.iter_mut().filter_map(|link| link.replay_buffer.as_mut());
        replay_buffers
            .for_each(|replay_buffer| replay_buffer.probes |= replay_buffer.has_unprompted_long());
        let behind = self.links.iter().position(|other| other.rail > link.rail);
        self.links.insert(behind.unwrap_or(self.links.len()), link);
    }

    /// Deactivates a lost link and queues a `LinkDown` with its frame count.
    pub fn deactivate(&mut self, mut link: Link, state: LinkState) {
        link.close();
        self.queue_link_down(&link);
        self.inactive.push(InactiveLink { link, state });
        self.repeat_link_downs();
    }

    /// Queues the `LinkDown` of every closed link again. It may be in a frame that was lost with another link. That
    /// frame is resent only after the peer's `LinkDown`, which may be lost in the same way.
    pub fn repeat_link_downs(&mut self) {
        let inactive = std::mem::take(&mut self.inactive);
        let is_closed =
            |one: &&InactiveLink| matches!(one.state, LinkState::Gone | LinkState::Down);
        inactive.iter().filter(is_closed).for_each(|one| self.queue_link_down(&one.link));
        self.inactive = inactive;
    }

    /// Queues a `LinkDown`, to be sent over another link: no more frames are accepted from this
    /// one.
    pub fn queue_link_down(&mut self, link: &Link) {
        let Some(replay_buffer) = &link.replay_buffer else { return };
        let name = replay_buffer.name(link.rail);
        self.control.retain(
            |word| !matches!(word, Control::LinkDown { link, .. } if link.rail == name.rail),
        );
        self.control.push_back(Control::LinkDown { link: name, frames: replay_buffer.received() });
    }

    /// Moves stored frames of a link that the peer has given up to the other links, if those can
    /// carry them.
    pub fn move_to_lost(&mut self, rail: RailId) {
        let Some(frame_max) = self.frame_max() else { return };
        let lost = &mut self.lost;
        let mut own = self.inactive.iter_mut().filter(|inactive| inactive.link.rail == rail);
        let replay_buffer = own.next().and_then(|inactive| inactive.link.replay_buffer.as_mut());
        if let Some(replay_buffer) =
            replay_buffer.filter(|replay_buffer| replay_buffer.fits(frame_max))
        {
            replay_buffer.take_lost(lost);
        }
    }

    /// True if there is something to send that any link may carry.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.send_queue.is_empty()
            || !self.streams.is_empty()
            || !self.control.is_empty()
            || !self.lost.is_empty()
            || self.released
            || self.must_return_credit()
    }

    /// True if neither the peer nor its links have anything to send.
    #[inline]
    pub fn is_drained(&self) -> bool {
        !self.has_work() && !self.links.iter().any(Link::has_work)
    }

    /// True if there is something for a strategy to choose from.
    pub fn has_choice(&self) -> bool {
        !(self.send_queue.is_empty() && self.streams.is_empty() && self.control.is_empty())
    }

    /// Accounts for a built frame; `serves_stream` is true if it holds a piece of the first stream.
    pub fn note_built(&mut self, frame: &Frame, serves_stream: bool) {
        if self.streams.is_empty() {
            self.passed_bytes = 0;
            return;
        }
        let body = frame.body.as_ref().map_or(0, |body| body.region.len());
        let (piece, others) = if serves_stream { (body, 0) } else { (0, body) };
        let passed = self.passed_bytes + frame.head.len() + others + FRAME_BYTES;
        self.passed_bytes = passed.saturating_sub(PASSED_SHARE * piece).min(PASSED_MAX_BYTES);
    }

    /// True if so much has overtaken the streams that the next frame is theirs.
    #[inline]
    pub fn is_stream_due(&self) -> bool {
        self.passed_bytes >= PASSED_MAX_BYTES && !self.streams.is_empty()
    }

    /// True if `len` bytes that cost so much credit may leave over a link at once, ahead of all else.
    #[inline(always)]
    pub fn takes_short(&self, link: &Link, len: usize, cost: usize) -> bool {
        let Capabilities { inline_max, frame_max, .. } = link.capabilities;
        len <= inline_max
            && BEGIN_MAX + packet::EAGER_LEN + len <= frame_max
            && cost <= self.credit
            && self.coalesced.is_empty()
            && !self.has_work()
    }

    /// True unless a call would overtake others that wait until the peer owes less.
    pub fn admits(&mut self, short: Short) -> bool {
        !matches!(short, Short::Call(..)) || self.addressed().admits()
    }

    /// First link that can send a short message at once.
    pub fn first_ready(&self) -> Option<usize> {
        let is_ready = |at: &usize| {
            let link = &self.links[*at];
            link.is_ready() && !link.has_work() && self.is_served_by(*at)
        };
        (0..self.links.len()).find(is_ready)
    }

    /// True if a link exists only to pass the peer's busy links ([`Capabilities::passes`]).
    #[inline]
    pub fn is_passed_by(&self, link: usize) -> bool {
        self.links[link].capabilities.passes && self.carriers().next().is_some()
    }

    /// Links that carry any traffic.
    fn carriers(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| !link.capabilities.passes)
    }

    /// True if a single link carries all long messages.
    pub fn has_one_carrier(&self) -> bool {
        self.links.len() == 1 || self.carriers().count() == 1
    }

    /// Link whose sizes apply to a long message announced over `link`.
    pub fn size_link(&self, link: usize) -> &Link {
        let own = &self.links[link];
        if own.capabilities.passes { self.carriers().next().unwrap_or(own) } else { own }
    }

    /// True if a link may send what waits at the peer. A passing link does so while all others are
    /// busy, and only a little at a time.
    #[inline]
    pub fn is_served_by(&self, link: usize) -> bool {
        self.links.len() == 1 || !self.is_passed_by(link) || {
            let is_busy = |link: &Link| link.full || link.backlog_bytes() >= PASSED_FROM_BYTES;
            self.links[link].backlog_bytes() < PASSING_MAX_BYTES && self.carriers().all(is_busy)
        }
    }

    /// True if the peer can order one more frame and the link can store it.
    pub fn may_store(&self, link: usize) -> bool {
        self.links[link].is_ready() && self.order_room() > 0
    }

    /// True if one of the two processes can read the other's memory.
    pub fn can_read_remotely(&self) -> bool {
        !self.remote_read_refused && self.remote_read_rail().is_some()
    }

    /// Rail of a link with remote read.
    pub fn remote_read_rail(&self) -> Option<RailId> {
        self.links.iter().find(|link| link.capabilities.remote_read).map(|link| link.rail)
    }

    /// Number of messages that may leave before the oldest unacknowledged one arrives; the peer
    /// orders no more than that.
    #[inline]
    pub fn order_room(&self) -> usize {
        // A single link delivers in order.
        let is_one = self.links.len() == 1 && self.inactive.is_empty() && self.lost.is_empty();
        if is_one { EARLY_MAX } else { self.order_room_of_many() }
    }

    fn order_room_of_many(&self) -> usize {
        let oldest =
            |link: &Link| link.replay_buffer.as_deref().and_then(ReplayBuffer::oldest_sequence);
        let spread = |oldest: u32| self.sequence_out.wrapping_sub(oldest);
        let mut most = 0;
        for link in &self.links {
            most = most.max(oldest(link).map_or(0, spread));
        }
        if !(self.inactive.is_empty() && self.lost.is_empty()) {
            let inactive = self.inactive.iter().filter_map(|inactive| oldest(&inactive.link));
            let lost = self.lost.iter().map(|lost| lost.sequence);
            most = most.max(inactive.chain(lost).map(spread).max().unwrap_or(0));
        }
        EARLY_MAX.saturating_sub(most as usize)
    }

    /// True if a quarter of the credit is owed, so that it is returned in a frame of its own.
    #[inline]
    pub fn must_return_credit(&self) -> bool {
        self.owed > self.accepted / 4 || self.unannounced > 0
    }

    /// True if an eighth is owed, so that it is added to other frames.
    #[inline]
    pub fn may_return_credit(&self) -> bool {
        self.owed > self.accepted / 8 || self.unannounced > 0
    }

    /// Takes the credit to return to the peer, newly granted credit included.
    pub fn return_credit(&mut self) -> u32 {
        let bytes = (self.owed + self.unannounced).min(u32::MAX as usize);
        let owed = bytes.min(self.owed);
        self.charged -= owed;
        self.owed -= owed;
        self.unannounced -= bytes - owed;
        self.accepted += bytes - owed;
        bytes as u32
    }

    pub fn is_idle(&self) -> bool {
        self.reach.is_failed()
            || (self.is_drained()
                && self.coalesced.is_empty()
                && self.links.iter().all(Link::is_settled)
                && self.inactive.iter().all(|inactive| inactive.link.backlog_bytes() == 0))
    }
}

/// Receiver's cost of an unmatched message of `len` bytes.
#[inline]
pub(crate) fn charge(len: usize) -> usize {
    len + OVERHEAD
}

const OVERHEAD: usize = 64;

/// Bytes that may pass long messages, after which they get one byte for every `PASSED_SHARE`
/// others. A frame counts as slightly longer than it is.
const PASSED_MAX_BYTES: usize = 256 << 10;
const PASSED_SHARE: usize = 4;
const FRAME_BYTES: usize = 1 << 10;

/// Backlog from which a link is passed, and the limit on the passing link: urgent messages are
/// small, and an ACK is certain to come.
const PASSED_FROM_BYTES: usize = 16 << 10;
const PASSING_MAX_BYTES: usize = 2 * PROMPT_BYTES;

/// Maximal distance by which messages overtake one another.
pub(crate) const EARLY_MAX: usize = 4096;
