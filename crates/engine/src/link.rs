//! A link: the way to a gate's peer over one rail, and what is under way on it.
//!
//! Where a gate may have several links, frames are numbered and kept until the peer says that they have
//! arrived. A link delivers in order, so that a count says which; the number, which is the gate's, tells
//! a frame that comes a second time, over another link, because the first died.

use std::collections::{BTreeSet, VecDeque};

use wire::packet;
use wire::{Body, Capabilities, Cost, Frame, FrameToken, RailId, Thresholds};

use crate::engine::PeerError;
use crate::gate::EARLY_MAX;

#[derive(Debug)]
pub(crate) struct Link {
    pub rail: RailId,
    pub capabilities: Capabilities,
    /// What frames over it are predicted to cost.
    pub cost: Cost,
    /// The rail takes no frame at the moment.
    pub full: bool,
    /// Whether the link stands in the engine's list of links with work.
    pub listed: bool,
    /// A frame the rail had no room for: the first to go.
    pub stalled: Option<Frame>,
    /// What has been sent over a link that may be replaced; none on one that may not.
    pub ledger: Option<Box<Ledger>>,
    /// What has come over the link.
    pub tally: Tally,
}

impl Link {
    pub fn new(rail: RailId, capabilities: Capabilities) -> Self {
        let ledger = capabilities.replay.then(Box::<Ledger>::default);
        Self {
            rail,
            capabilities,
            cost: Cost::linear(UNKNOWN_NS, 0, UNKNOWN_BYTES_PER_S),
            full: false,
            listed: false,
            stalled: None,
            ledger,
            tally: Tally::default(),
        }
    }

    /// Takes the sizes that follow from what the link costs.
    pub fn adapt(&mut self, thresholds: &Thresholds) {
        let Thresholds { credit_bytes, piece_min, eager_max, ahead_max, inline_max, .. } =
            *thresholds;
        let credit_wanted = credit_bytes;
        self.capabilities = Capabilities {
            credit_wanted,
            piece_min,
            eager_max,
            ahead_max,
            inline_max,
            ..self.capabilities
        };
    }

    /// The peer has so many of the frames; tells the tokens of those it had not before.
    #[inline]
    pub fn confirm(
        &mut self,
        frames: u32,
        now_ns: u64,
        arrived: impl FnMut(FrameToken),
    ) -> Result<(), PeerError> {
        let Some(ledger) = &mut self.ledger else {
            return Err(PeerError::Confirmation { sent: 0, got: frames });
        };
        let before = ledger.bytes;
        ledger.confirm(frames, now_ns, arrived)?;
        if let Some((bytes, took_ns)) = ledger.observe((before - ledger.bytes) as u64, now_ns) {
            self.cost.learn(bytes, took_ns);
        }
        Ok(())
    }

    /// It is so late: what has left since the time was told before has left by now.
    pub fn stamp(&mut self, now_ns: u64) {
        let kept = self.ledger.iter_mut().flat_map(|ledger| ledger.kept.iter_mut().rev());
        kept.take_while(|kept| kept.sent_ns.is_none()).for_each(|kept| kept.sent_ns = Some(now_ns));
    }

    /// Takes what the rail predicts, as far as the traffic has not shown it.
    pub fn predict(&mut self, cost: Cost) {
        if self.ledger.as_ref().is_some_and(|ledger| ledger.has_learned) {
            self.cost.learn_latency(cost.latency_ns());
        } else {
            self.cost = cost;
        }
    }

    /// How long a frame may take before the link is suspected.
    fn patience_ns(&self) -> u64 {
        let predicted = self.cost.round_trip_ns() + self.cost.busy_ns(self.backlog_bytes() as u64);
        predicted.saturating_mul(LATE_TIMES).max(LATE_NS)
    }

    /// What a frame's number takes of it, in bytes.
    #[inline]
    pub fn mark_len(&self) -> usize {
        if self.ledger.is_some() { packet::MARK_LEN } else { 0 }
    }

    /// Whether a frame could be posted now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.full && self.ledger.as_ref().is_none_or(|ledger| ledger.has_room())
    }

    /// Whether the link has something to send that is its own, not the gate's.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.stalled.is_some()
            || self.tally.is_asked
            || self.ledger.as_ref().is_some_and(|ledger| ledger.probes)
    }

    /// Whether frames are under way of which the peer is to say that they have arrived.
    #[inline]
    pub fn has_kept(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| !ledger.kept.is_empty())
    }

    /// Whether nothing is under way that an operation waits for.
    pub fn is_settled(&self) -> bool {
        self.ledger.as_ref().is_none_or(|ledger| ledger.is_settled())
    }

    /// Whether the peer is to say that something has arrived, and has not.
    pub fn awaits_word(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.awaits_word())
    }

    /// Bytes posted of which the peer has not yet said that they have arrived; 0 where it does not say.
    pub fn backlog_bytes(&self) -> usize {
        self.ledger.as_ref().map_or(0, |ledger| ledger.bytes)
    }
}

/// A frame that has left and may have to leave again.
#[derive(Debug)]
pub(crate) struct Kept {
    pub number: u32,
    /// The first message's sequence, if there is one in it.
    pub sequence: u32,
    pub head: Vec<u8>,
    pub body: Option<Body>,
    pub token: Option<FrameToken>,
    /// When it left, at the latest; none until the time is told the next time.
    pub sent_ns: Option<u64>,
}

impl Kept {
    pub fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.region.len())
    }

    /// The number and the sequence with which it left.
    pub fn age(&self) -> (u32, u32) {
        (self.number, self.sequence)
    }
}

/// What a link that may be replaced has sent and received.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Frames that have not been said to have arrived, in the order they left.
    kept: VecDeque<Kept>,
    /// Their bytes.
    bytes: usize,
    /// Memory that heads were kept in, for those to come.
    spare: Vec<Vec<u8>>,
    /// How many have been said to have arrived, and when the last of them had left.
    confirmed: u32,
    confirmed_ns: u64,
    /// How many frames had left with the last that the peer was asked to confirm at once.
    prompted: u32,
    /// Since when the link seems to be late.
    suspected_ns: Option<u64>,
    /// Whether the peer is asked for a sign of life.
    probes: bool,
    /// What has arrived since the link was last found busy without a pause, and since when.
    busy: Option<(u64, u64)>,
    /// Whether the link's rate has shown.
    has_learned: bool,
}

impl Ledger {
    pub fn has_room(&self) -> bool {
        self.kept.len() < KEPT_MAX
    }

    /// Keeps a frame that is about to be posted; `is_prompt` if it is to be confirmed at once.
    pub fn keep(&mut self, kept: Kept, is_prompt: bool) {
        self.bytes += kept.len();
        self.kept.push_back(kept);
        if is_prompt {
            self.prompted = self.confirmed.wrapping_add(self.kept.len() as u32);
        }
    }

    /// Whether a frame is under way that the peer was asked to confirm at once.
    fn awaits_word(&self) -> bool {
        let outstanding = self.prompted.wrapping_sub(self.confirmed);
        (1..=self.kept.len() as u32).contains(&outstanding)
    }

    /// A copy of a head, to be kept.
    #[inline]
    pub fn copy_of(&mut self, head: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(head);
        copy
    }

    /// Whether the frame that is kept next is to be confirmed at once.
    pub fn is_prompt(&self, has_body: bool) -> bool {
        has_body || self.kept.len() % PROMPT_EVERY == PROMPT_EVERY - 1
    }

    /// The peer has so many of the frames; tells the tokens of those it had not before.
    #[inline]
    fn confirm(
        &mut self,
        frames: u32,
        now_ns: u64,
        mut arrived: impl FnMut(FrameToken),
    ) -> Result<(), PeerError> {
        let news = frames.wrapping_sub(self.confirmed) as usize;
        if news > self.kept.len() {
            let expected = self.confirmed.wrapping_add(self.kept.len() as u32);
            return Err(PeerError::Confirmation { sent: expected, got: frames });
        }
        self.confirmed = frames;
        for _ in 0..news {
            let Some(kept) = self.kept.pop_front() else { break };
            self.bytes -= kept.len();
            self.confirmed_ns = kept.sent_ns.unwrap_or(now_ns);
            let Kept { mut head, token, .. } = kept;
            if let Some(token) = token {
                arrived(token);
            }
            if self.spare.len() < SPARE_MAX && head.capacity() <= SPARE_BYTES_MAX {
                head.clear();
                self.spare.push(head);
            }
        }
        Ok(())
    }

    /// Frames of so many bytes have arrived now: what that says of the link's rate, as bytes and the time
    /// they took, if it was busy all the while.
    fn observe(&mut self, arrived_bytes: u64, now_ns: u64) -> Option<(u64, u64)> {
        let Some((since_ns, before)) = self.busy.filter(|_| !self.kept.is_empty()) else {
            self.busy = (!self.kept.is_empty()).then_some((now_ns, 0));
            return None;
        };
        let (bytes, took_ns) = (before + arrived_bytes, now_ns - since_ns);
        let is_enough = bytes >= OBSERVED_MIN && took_ns > 0;
        self.busy = Some(if is_enough { (now_ns, 0) } else { (since_ns, bytes) });
        self.has_learned |= is_enough;
        is_enough.then_some((bytes, took_ns))
    }

    /// When the oldest frame left that has not been said to have arrived.
    fn waits_since_ns(&self) -> Option<u64> {
        self.kept.front().and_then(|kept| kept.sent_ns)
    }

    /// Whether a frame has left since.
    fn has_sent_since(&self, since_ns: u64) -> bool {
        self.kept.back().is_some_and(|kept| kept.sent_ns.is_none_or(|sent_ns| sent_ns > since_ns))
    }

    /// Takes note that the peer is asked for a sign of life; whether it was to be.
    pub fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// The frames that may not have arrived, now that the link is gone.
    pub fn into_kept(self) -> VecDeque<Kept> {
        self.kept
    }

    /// The age of the oldest frame that has not been said to have arrived.
    pub fn oldest(&self) -> Option<(u32, u32)> {
        self.kept.front().map(Kept::age)
    }

    /// Whether no operation waits for a frame to arrive.
    pub fn is_settled(&self) -> bool {
        self.kept.iter().all(|kept| kept.token.is_none())
    }
}

/// The numbered frames that came over a link.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    received: u32,
    /// How many the peer has been told of.
    told: u32,
    /// The peer waits to be told.
    is_asked: bool,
}

impl Tally {
    /// A numbered frame has come.
    pub fn receive(&mut self) {
        self.received = self.received.wrapping_add(1);
    }

    /// The peer waits to be told.
    pub fn ask(&mut self) {
        self.is_asked |= self.told != self.received;
    }

    /// Appends to a frame what has come, if that is news.
    #[inline]
    pub fn tell(&mut self, head: &mut Vec<u8>) {
        if self.told != self.received {
            packet::emit_arrived(head, self.received);
            self.told = self.received;
        }
        self.is_asked = false;
    }
}

/// The numbered frames of a gate that have come, over whichever link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// All before this have come.
    next: u32,
    /// Of those after it, these.
    beyond: BTreeSet<u32>,
}

impl Seen {
    /// Whether none is missing before the last that came.
    pub fn is_complete(&self) -> bool {
        self.beyond.is_empty()
    }

    /// Notes a frame; false if it has come before.
    #[inline]
    pub fn insert(&mut self, number: u32) -> Result<bool, PeerError> {
        if number == self.next && self.beyond.is_empty() {
            self.next = number.wrapping_add(1);
            return Ok(true);
        }
        self.insert_beyond(number)
    }

    #[inline(never)]
    fn insert_beyond(&mut self, number: u32) -> Result<bool, PeerError> {
        let ahead = number.wrapping_sub(self.next);
        if ahead > u32::MAX / 2 {
            return Ok(false);
        }
        if ahead as usize > EARLY_MAX {
            return Err(PeerError::Sequence { expected: self.next, got: number });
        }
        if !self.beyond.insert(number) {
            return Ok(false);
        }
        while self.beyond.remove(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        Ok(true)
    }
}

/// Judges the links of a gate beside one another at a moment: the rail of one that is late, to be given
/// up. A peer that computes is late on all links; one link is, when frames that left much later over
/// another have arrived, and then a sign of life that was asked for over it does not come either. Where
/// there were none, the peer is asked for a sign of life over the others.
pub(crate) fn judge(links: &mut [Link], now_ns: u64) -> Option<RailId> {
    for at in 0..links.len() {
        let Some(since_ns) = links[at].ledger.as_ref().and_then(|own| own.waits_since_ns()) else {
            continue;
        };
        let late_ns = since_ns.saturating_add(links[at].patience_ns());
        if now_ns <= late_ns {
            if let Some(ledger) = &mut links[at].ledger {
                ledger.suspected_ns = None;
            }
            continue;
        }
        let others = || (0..links.len()).filter(|&other| other != at);
        let of = |at: usize| links[at].ledger.as_ref();
        let is_outrun = others().any(|other| of(other).is_some_and(|it| it.confirmed_ns > late_ns));
        if is_outrun {
            let grace_ns = links[at].patience_ns();
            let ledger = links[at].ledger.as_mut()?;
            if let Some(suspected_ns) = ledger.suspected_ns {
                if now_ns - suspected_ns > grace_ns {
                    return Some(links[at].rail);
                }
            } else {
                // Its peer may have had no reason to say what has come.
                ledger.suspected_ns = Some(now_ns);
                ledger.probes = true;
            }
            continue;
        }
        for other in (0..links.len()).filter(|&other| other != at) {
            if let Some(ledger) = &mut links[other].ledger {
                ledger.probes |= !ledger.has_sent_since(late_ns);
            }
        }
    }
    None
}

/// What links cost of which nobody has said it.
const UNKNOWN_NS: u64 = 10_000;
const UNKNOWN_BYTES_PER_S: u64 = 1_000_000_000;

/// A link is suspected when a frame takes so many times what was predicted, and so long.
const LATE_TIMES: u64 = 8;
const LATE_NS: u64 = 500_000_000;

/// What has to arrive before it says something of a link's rate, in bytes.
const OBSERVED_MIN: u64 = 512 << 10;

/// The memory of so many short heads is held ready.
const SPARE_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 4 << 10;

/// Frames that may be under way on a link without having been confirmed.
const KEPT_MAX: usize = 1024;

/// The peer is asked to confirm at least every so many frames.
const PROMPT_EVERY: usize = 64;
