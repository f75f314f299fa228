//! A link: the way to a gate's peer over one rail, and what is under way on it.

use wire::{Capabilities, Cost, Frame, FrameToken, RailId, Thresholds, packet};

use crate::engine::PeerError;
use crate::ledger::Ledger;

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
    /// What has passed over a link whose frames are kept; none on another.
    pub ledger: Option<Box<Ledger>>,
}

impl Link {
    pub fn new(rail: RailId, capabilities: Capabilities) -> Self {
        let is_kept = capabilities.replay || capabilities.reopens;
        Self {
            rail,
            capabilities,
            cost: Cost::linear(UNKNOWN_NS, 0, UNKNOWN_BYTES_PER_S),
            full: false,
            listed: false,
            stalled: None,
            ledger: is_kept.then(Box::<Ledger>::default),
        }
    }

    /// Takes the sizes that follow from what the link costs.
    pub fn adapt(&mut self, thresholds: &Thresholds) {
        let Thresholds { piece_min, piece_max, eager_max, ahead_max, .. } = *thresholds;
        let Thresholds { credit_bytes: credit_wanted, aggregate_max, inline_max, .. } = *thresholds;
        self.capabilities = Capabilities {
            credit_wanted,
            aggregate_max,
            piece_min,
            piece_max,
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
        mut arrived: impl FnMut(FrameToken),
    ) -> Result<(), PeerError> {
        let Some(ledger) = &mut self.ledger else {
            return Err(PeerError::Confirmation { sent: 0, got: frames });
        };
        let before = ledger.bytes();
        ledger.confirm(frames, now_ns, &mut arrived)?;
        if ledger.wants_copies() {
            ledger.copy_others(self.capabilities.credit_wanted, arrived);
        }
        if let Some((bytes, took_ns)) = ledger.observe((before - ledger.bytes()) as u64, now_ns) {
            self.cost.learn(bytes, took_ns);
        }
        Ok(())
    }

    /// Whether the memory of a frame that the rail has let go is free: where nothing is kept, and where a copy is,
    /// because word of the arrival would be long in coming. Copies take no more than what is under way in two
    /// round trips, as the credit does.
    pub fn copies(&mut self, token: FrameToken) -> bool {
        let Some(ledger) = &mut self.ledger else { return true };
        self.cost.round_trip_ns() >= COPIED_FROM_NS
            && ledger.copy(token, self.capabilities.credit_wanted)
    }

    /// It is so late: what has left since the time was told before has left by now.
    pub fn stamp(&mut self, now_ns: u64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.stamp(now_ns);
        }
    }

    /// Takes what the rail predicts, as far as the traffic has not shown it.
    pub fn predict(&mut self, cost: Cost) {
        if self.ledger.as_ref().is_some_and(|ledger| ledger.has_learned) {
            self.cost.learn_latency(cost.latency_ns());
        } else {
            self.cost = cost;
        }
    }

    /// Asks whether what has left long ago has arrived, where no other link shows that this one delivers nothing:
    /// one that has swallowed it fails when more follows.
    pub fn ask_if_late(&mut self, now_ns: u64) {
        let patience_ns = self.patience_ns();
        if let Some(ledger) = &mut self.ledger {
            ledger.probe_after(patience_ns, now_ns);
        }
    }

    /// How long a frame may take before the link is suspected.
    fn patience_ns(&self) -> u64 {
        let predicted = self.cost.round_trip_ns() + self.cost.busy_ns(self.backlog_bytes() as u64);
        predicted.saturating_mul(LATE_TIMES).max(LATE_NS)
    }

    /// Whether this end wants frames to be kept: others can carry them, or it is far to the peer, where a link is
    /// waited for that is lost.
    pub fn keeps(&self, is_patient: bool) -> bool {
        self.capabilities.replay || (is_patient && self.cost.round_trip_ns() >= FAR_NS)
    }

    /// What a frame over it begins with, in bytes, where frames are kept.
    #[inline]
    pub fn word_len(&self) -> usize {
        if self.ledger.is_some() { packet::ARRIVED_LEN } else { 0 }
    }

    /// Whether a frame could be posted now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.full && self.ledger.as_ref().is_none_or(|ledger| ledger.has_room())
    }

    /// Whether the link has something to send that is its own, not the gate's.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.stalled.is_some() || self.ledger.as_ref().is_some_and(|ledger| ledger.has_errand())
    }

    /// Whether a long frame is under way of which the peer is to say that it has arrived.
    pub fn has_longs(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.has_longs())
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
        self.ledger.as_ref().map_or(0, |ledger| ledger.bytes())
    }

    /// What the rail has not taken has to go another way, and nothing is known of its room any more.
    pub fn close(&mut self) {
        (self.stalled, self.full, self.listed) = (None, false, false);
        if let Some(ledger) = &mut self.ledger {
            ledger.close();
        }
    }
}

/// A link that carries nothing at the moment: it is gone and may open again, or it is being introduced.
#[derive(Debug)]
pub(crate) struct Apart {
    pub link: Link,
    pub state: State,
}

impl Apart {
    /// Whether the peer is to be greeted, and can be.
    pub fn greets(&self) -> bool {
        let Self { link, state } = self;
        !link.full
            && (link.stalled.is_some() || matches!(state, State::Open { has_greeted: false, .. }))
    }
}

/// How far a link is from carrying frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Gone for good; the peer is to say what has arrived.
    Gone,
    /// Gone, and may open again.
    Parted,
    /// Open; each side greets the other.
    Open {
        /// The greeting has left…
        has_greeted: bool,
        /// …and the peer's has come.
        is_greeted: bool,
    },
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
        let is_outrun =
            others().any(|other| of(other).is_some_and(|it| it.confirmed_ns() > late_ns));
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

/// It is far to a peer from which an answer takes so long: between sites, links drop.
const FAR_NS: u64 = 1_000_000;

/// Who waits for word of an arrival over a shorter round trip waits no longer than for a copy of much.
const COPIED_FROM_NS: u64 = 500_000;
