//! A peer: all that is known about the way to one peer.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use wire::packet::{self, Incarnation};
use wire::{Capabilities, Frame, RailId};

use crate::compress::Compression;
use crate::emit::BEGIN_MAX;
use crate::link::{Apart, Link, State};
use crate::matching::Unexpected;
use crate::op::OpId;
use crate::replay_buffer::{Lost, PROMPT_BYTES, ReplayBuffer};
use crate::rts_data::Arrivals;

/// Whether a peer's peer can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing was ever sent.
    Closed,
    /// The engine has asked for a link.
    Wanted,
    /// There is a link.
    Up,
    /// There is no way there; the peer may find one here.
    Unreachable,
    /// The peer is gone for good.
    Gone,
}

impl Reach {
    /// Whether operations with the peer fail.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Unreachable | Self::Gone)
    }
}

/// A word for the peer's engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Cts { op: u32, receiver: u32, wanted: u64 },
    Grant { op: u32 },
    Fin { op: u32 },
    LinkDown { link: Incarnation, frames: u32 },
}

/// A send whose envelope has not left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub id: OpId,
    pub bytes: usize,
    pub context: u64,
    /// Its receiver may be waiting for nothing else.
    pub is_urgent: bool,
    /// Later messages that have left before it.
    pub overtaken: u16,
}

#[derive(Debug)]
pub(crate) struct PeerState {
    pub reach: Reach,
    /// The links that carry frames to the peer, by their rails.
    pub links: SmallVec<[Link; 1]>,
    /// Those that carry nothing now.
    pub apart: Vec<Apart>,
    /// For how long none has been open, as far as somebody looked; none before the first look.
    pub parted_for_ns: Option<u64>,
    /// How often other rails were asked for a way meanwhile.
    pub detours: u64,
    pub control: VecDeque<Control>,
    /// Sends whose envelope has not left yet, in order.
    pub send_queue: VecDeque<Pending>,
    /// Sends being streamed, served in turn.
    pub streams: VecDeque<OpId>,
    /// How much others have left while these waited, in bytes, beyond the share that is theirs.
    pub passed_bytes: usize,
    /// Short messages, as they will stand in a frame, before all that is in the send_queue.
    pub coalesced: Vec<u8>,
    /// The sequence of the first of them.
    pub coalesced_from: u32,
    /// They need not wait for more.
    pub released: bool,
    pub sequence_out: u32,
    pub sequence_in: u32,
    /// Messages that overtook an earlier one on another link.
    pub early: BTreeMap<u32, Unexpected>,
    /// The receive that the frame under way is for, and where in its message the next bytes belong.
    pub through: Option<(OpId, u64)>,
    /// Messages that come ahead of their clear.
    pub arrivals: Arrivals,
    /// The peer waits to be told what has come, and of what is missing when it has.
    pub is_pressed: bool,
    /// Frames that links have lost, and others are to carry.
    pub lost: VecDeque<Lost>,
    /// Unmatched bytes the peer still accepts.
    pub credit: usize,
    /// Unmatched bytes that are accepted of the peer in all: from the beginning, and as granted since.
    pub accepted: usize,
    /// What was granted since, out of the process's budget, and of that what the peer has not been told.
    pub granted: usize,
    pub untold: usize,
    /// Bytes the peer has charged to us: waiting here, or consumed and not yet given back.
    pub charged: usize,
    /// Of these, what was consumed.
    pub owed: usize,
    /// What packing has brought.
    pub packing: Compression,
    /// Fetching from this peer was refused once.
    pub remote_read_refused: bool,
    /// The strategy broke a rule here: `fifo` goes on.
    pub is_plain: bool,
}

impl PeerState {
    pub fn new() -> Self {
        Self {
            reach: Reach::Closed,
            links: SmallVec::new(),
            apart: Vec::new(),
            parted_for_ns: None,
            detours: 0,
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
            through: None,
            arrivals: Arrivals::default(),
            is_pressed: false,
            lost: VecDeque::new(),
            credit: 0,
            accepted: 0,
            granted: 0,
            untold: 0,
            charged: 0,
            owed: 0,
            packing: Compression::default(),
            remote_read_refused: false,
            is_plain: false,
        }
    }

    #[inline]
    pub fn link(&mut self, rail: RailId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.rail == rail)
    }

    /// As [`PeerState::link`], and among those that carry nothing now.
    pub fn any_link(&mut self, rail: RailId) -> Option<&mut Link> {
        let apart = self.apart.iter_mut().map(|apart| &mut apart.link);
        self.links.iter_mut().chain(apart).find(|link| link.rail == rail)
    }

    /// Whether the peer was reached, and no link to it is open.
    pub fn is_parted(&self) -> bool {
        let is_open = |apart: &Apart| matches!(apart.state, State::Open { .. });
        self.links.is_empty() && !self.apart.is_empty() && !self.apart.iter().any(is_open)
    }

    /// So much time has passed without an open link; how much in all.
    pub fn wait_parted(&mut self, passed_ns: u64) -> u64 {
        if self.parted_for_ns.is_none() {
            self.detours = 0;
        }
        let for_ns = self.parted_for_ns.map_or(0, |for_ns| for_ns + passed_ns);
        self.parted_for_ns = Some(for_ns);
        for_ns
    }

    /// Whether links of the peer are looked at beside one another, or waited for, or may swallow what they keep.
    pub fn is_watched(&self) -> bool {
        !self.apart.is_empty() || self.links.iter().any(|link| link.replay_buffer.is_some())
    }

    /// Names the links over which the peer is still to be greeted, once.
    pub fn list_resumes(&mut self, mut list: impl FnMut(RailId)) {
        let apart = self.apart.iter_mut().filter(|apart| !apart.link.listed && apart.greets());
        for apart in apart {
            apart.link.listed = true;
            list(apart.link.rail);
        }
    }

    /// Whether the peer is still to be greeted over a link, which was listed.
    pub fn greets(&mut self, rail: RailId) -> bool {
        let Some(apart) = self.apart(rail) else { return false };
        apart.link.listed = false;
        apart.greets()
    }

    /// A link that carries nothing now.
    pub fn apart(&mut self, rail: RailId) -> Option<&mut Apart> {
        self.apart.iter_mut().find(|apart| apart.link.rail == rail)
    }

    /// The longest frame that a link can carry which is open or may open again.
    fn frame_max(&self) -> Option<usize> {
        let hopeful = self.apart.iter().filter(|apart| apart.state != State::Gone);
        let links = self.links.iter().chain(hopeful.map(|apart| &apart.link));
        links.map(|link| link.capabilities.frame_max).max()
    }

    /// Whether all that may have been lost can go another way, now or later.
    pub fn can_recover(&self) -> bool {
        let Some(frame_max) = self.frame_max() else { return false };
        let gone = self.apart.iter().filter(|apart| apart.state == State::Gone);
        let mut replay_buffers = gone.filter_map(|apart| apart.link.replay_buffer.as_ref());
        self.lost.iter().all(|lost| lost.fits(frame_max))
            && replay_buffers.all(|replay_buffer| replay_buffer.fits(frame_max))
    }

    /// A link carries frames from now on. Both ends have their links in the same order, whichever opened first:
    /// what is short goes over the first, and an answer that comes back over the same connection carries the
    /// kernel's word that the question has arrived, for which it sends a packet otherwise.
    pub fn join(&mut self, link: Link) {
        // What was to be asked behind a long frame may go over this one now.
        let replay_buffers = self.links.iter_mut().filter_map(|link| link.replay_buffer.as_mut());
        replay_buffers
            .for_each(|replay_buffer| replay_buffer.probes |= replay_buffer.has_unprompted_long());
        let behind = self.links.iter().position(|other| other.rail > link.rail);
        self.links.insert(behind.unwrap_or(self.links.len()), link);
    }

    /// A link is gone; the peer is to be told what has come over it.
    pub fn part(&mut self, mut link: Link, state: State) {
        link.close();
        self.tell_parted(&link);
        self.apart.push(Apart { link, state });
    }

    /// Has the peer told, over another link, that no more is taken from this one.
    pub fn tell_parted(&mut self, link: &Link) {
        let Some(replay_buffer) = &link.replay_buffer else { return };
        let name = replay_buffer.name(link.rail);
        self.control.retain(
            |word| !matches!(word, Control::LinkDown { link, .. } if link.rail == name.rail),
        );
        self.control.push_back(Control::LinkDown { link: name, frames: replay_buffer.received() });
    }

    /// Gives what a link has kept, of which the peer has said that it takes no more from there, to those that can
    /// carry it.
    pub fn give_away(&mut self, rail: RailId) {
        let Some(frame_max) = self.frame_max() else { return };
        let lost = &mut self.lost;
        let mut own = self.apart.iter_mut().filter(|apart| apart.link.rail == rail);
        let replay_buffer = own.next().and_then(|apart| apart.link.replay_buffer.as_mut());
        if let Some(replay_buffer) =
            replay_buffer.filter(|replay_buffer| replay_buffer.fits(frame_max))
        {
            replay_buffer.take_lost(lost);
        }
    }

    /// Whether there is something to send that any link may carry.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.send_queue.is_empty()
            || !self.streams.is_empty()
            || !self.control.is_empty()
            || !self.lost.is_empty()
            || self.released
            || self.must_return_credit()
    }

    /// Whether there is nothing to send, of the peer or of its links.
    #[inline]
    pub fn is_drained(&self) -> bool {
        !self.has_work() && !self.links.iter().any(Link::has_work)
    }

    /// Whether there is something for a strategy to choose from.
    pub fn has_choice(&self) -> bool {
        !(self.send_queue.is_empty() && self.streams.is_empty() && self.control.is_empty())
    }

    /// A frame was built of what was chosen; it may hold a piece of the long message whose turn it was.
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

    /// Whether so much has passed the long messages that the next frame is theirs.
    #[inline]
    pub fn is_stream_due(&self) -> bool {
        self.passed_bytes >= PASSED_MAX_BYTES && !self.streams.is_empty()
    }

    /// Whether a message of `len` bytes may leave over a link at once, before all else.
    #[inline(always)]
    pub fn takes_short(&self, link: &Link, len: usize) -> bool {
        let Capabilities { inline_max, frame_max, .. } = link.capabilities;
        len <= inline_max
            && BEGIN_MAX + packet::EAGER_LEN + len <= frame_max
            && charge(len) <= self.credit
            && self.coalesced.is_empty()
            && !self.has_work()
    }

    /// The first link that can take a short message at once.
    pub fn first_ready(&self) -> Option<usize> {
        let is_ready = |at: &usize| {
            let link = &self.links[*at];
            link.is_ready() && !link.has_work() && self.is_served_by(*at)
        };
        (0..self.links.len()).find(is_ready)
    }

    /// Whether a link only passes what others of the peer are busy with.
    #[inline]
    pub fn is_passed_by(&self, link: usize) -> bool {
        self.links[link].capabilities.passes && self.carriers().next().is_some()
    }

    /// The links that carry whatever there is.
    fn carriers(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| !link.capabilities.passes)
    }

    /// Whether one link carries all that is long.
    pub fn has_one_carrier(&self) -> bool {
        self.links.len() == 1 || self.carriers().count() == 1
    }

    /// The link whose sizes hold for a long message that is announced over this one.
    pub fn carrier_beside(&self, link: usize) -> &Link {
        let own = &self.links[link];
        if own.capabilities.passes { self.carriers().next().unwrap_or(own) } else { own }
    }

    /// Whether a link carries what waits at the peer: one that passes others does while all of them are busy, and
    /// little at a time.
    #[inline]
    pub fn is_served_by(&self, link: usize) -> bool {
        self.links.len() == 1 || !self.is_passed_by(link) || {
            let is_busy = |link: &Link| link.full || link.backlog_bytes() >= PASSED_FROM_BYTES;
            self.links[link].backlog_bytes() < PASSING_MAX_BYTES && self.carriers().all(is_busy)
        }
    }

    /// Whether the peer could put one more frame in order, and the link keep it.
    pub fn may_keep(&self, link: usize) -> bool {
        self.links[link].is_ready() && self.order_room() > 0
    }

    /// Whether one of the two processes can read the other's memory.
    pub fn can_fetch(&self) -> bool {
        !self.remote_read_refused && self.remote_read_rail().is_some()
    }

    /// The rail by which one can.
    pub fn remote_read_rail(&self) -> Option<RailId> {
        self.links.iter().find(|link| link.capabilities.remote_read).map(|link| link.rail)
    }

    /// How many more messages may leave before the oldest that is under way has arrived: the peer puts
    /// no more than that in order.
    #[inline]
    pub fn order_room(&self) -> usize {
        // One link delivers in order.
        let is_one = self.links.len() == 1 && self.apart.is_empty() && self.lost.is_empty();
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
        if !(self.apart.is_empty() && self.lost.is_empty()) {
            let apart = self.apart.iter().filter_map(|apart| oldest(&apart.link));
            let lost = self.lost.iter().map(|lost| lost.sequence);
            most = most.max(apart.chain(lost).map(spread).max().unwrap_or(0));
        }
        EARLY_MAX.saturating_sub(most as usize)
    }

    /// Credit is given back in a frame of its own when a quarter of it is owed…
    #[inline]
    pub fn must_return_credit(&self) -> bool {
        self.owed > self.accepted / 4 || self.untold > 0
    }

    /// …and rides on other frames from an eighth on.
    #[inline]
    pub fn may_return_credit(&self) -> bool {
        self.owed > self.accepted / 8 || self.untold > 0
    }

    /// Takes the credit that the peer is to be told of, with what is granted anew.
    pub fn return_credit(&mut self) -> u32 {
        let bytes = (self.owed + self.untold).min(u32::MAX as usize);
        let owed = bytes.min(self.owed);
        self.charged -= owed;
        self.owed -= owed;
        self.untold -= bytes - owed;
        self.accepted += bytes - owed;
        bytes as u32
    }

    pub fn is_idle(&self) -> bool {
        self.reach.is_failed()
            || (self.is_drained()
                && self.coalesced.is_empty()
                && self.links.iter().all(Link::is_settled)
                && self.apart.iter().all(|apart| apart.link.backlog_bytes() == 0))
    }
}

/// What an unmatched message of `len` bytes costs the receiver.
#[inline]
pub(crate) fn charge(len: usize) -> usize {
    len + OVERHEAD
}

const OVERHEAD: usize = 64;

/// When so much has passed long messages, a byte of them goes for so many of others; a frame counts as if it
/// were a little longer.
const PASSED_MAX_BYTES: usize = 256 << 10;
const PASSED_SHARE: usize = 4;
const FRAME_BYTES: usize = 1 << 10;

/// A link is passed while so much is under way on it, and no more at once than the word of which is sure to come: what
/// is wanted soon is little.
const PASSED_FROM_BYTES: usize = 16 << 10;
const PASSING_MAX_BYTES: usize = 2 * PROMPT_BYTES;

/// More messages than this never overtake one another.
pub(crate) const EARLY_MAX: usize = 4096;
