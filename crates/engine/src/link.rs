//! A link: the way to a peer's peer over one rail, and what is under way on it.

use wire::{Capabilities, Cost, Frame, FrameToken, HostCost, RailId, Thresholds, packet};

use crate::engine::PeerError;
use crate::replay_buffer::ReplayBuffer;

#[derive(Debug)]
pub(crate) struct Link {
    pub rail: RailId,
    pub capabilities: Capabilities,
    /// What frames over it are predicted to cost.
    pub cost: Cost,
    /// What long frames carried a second when the sizes were derived from that, in bytes.
    derived_at: u64,
    /// The rail takes no frame at the moment.
    pub full: bool,
    /// Whether the link stands in the engine's list of links with work.
    pub listed: bool,
    /// A frame the rail had no room for: the first to go.
    pub stalled: Option<Frame>,
    /// What has passed over a link whose frames are kept; none on another.
    pub replay_buffer: Option<Box<ReplayBuffer>>,
}

impl Link {
    pub fn new(rail: RailId, capabilities: Capabilities) -> Self {
        let is_kept = capabilities.replay || capabilities.reopens;
        Self {
            rail,
            capabilities,
            cost: Cost::linear(UNKNOWN_NS, 0, UNKNOWN_BYTES_PER_S),
            derived_at: UNKNOWN_BYTES_PER_S,
            full: false,
            listed: false,
            stalled: None,
            replay_buffer: is_kept.then(Box::<ReplayBuffer>::default),
        }
    }

    /// Takes the sizes that follow from what the link costs, unless it keeps those of its rail.
    pub fn adapt(&mut self, host: &HostCost, budget_bytes: u64) {
        if !self.capabilities.adapts {
            return;
        }
        self.derived_at = self.cost.bytes_per_s(LONG);
        let thresholds = Thresholds::derive(&self.cost, host, budget_bytes);
        let Thresholds { piece_min, piece_max, eager_max, rts_data_max, .. } = thresholds;
        let Thresholds { credit_bytes: credit_wanted, aggregate_max, inline_max, .. } = thresholds;
        self.capabilities = Capabilities {
            credit_wanted,
            aggregate_max,
            piece_min,
            piece_max,
            eager_max,
            rts_data_max,
            inline_max,
            ..self.capabilities
        };
    }

    /// Whether the sizes are to follow what traffic has shown: another rate by a quarter.
    fn has_changed(&self) -> bool {
        let (now, then) = (self.cost.bytes_per_s(LONG), self.derived_at);
        self.capabilities.adapts && 4 * now.max(then) > 5 * now.min(then)
    }

    /// The peer has so many of the frames; tells the tokens of those it had not before. Answers whether the link
    /// is to [adapt](Self::adapt) to what that says of it.
    #[inline]
    pub fn confirm(
        &mut self,
        frames: u32,
        now_ns: u64,
        mut arrived: impl FnMut(FrameToken),
    ) -> Result<bool, PeerError> {
        let Some(replay_buffer) = &mut self.replay_buffer else {
            return Err(PeerError::Confirmation { sent: 0, got: frames });
        };
        let before = replay_buffer.bytes();
        replay_buffer.confirm(frames, now_ns, &mut arrived)?;
        if replay_buffer.wants_copies() {
            replay_buffer.copy_others(self.capabilities.credit_wanted, arrived);
        }
        let observed = replay_buffer.observe((before - replay_buffer.bytes()) as u64, now_ns);
        let Some((bytes, took_ns)) = observed else { return Ok(false) };
        self.cost.learn(bytes, took_ns);
        Ok(self.has_changed())
    }

    /// Whether the memory of a frame that the rail has let go is free: where nothing is kept, and where a copy is,
    /// because word of the arrival would be long in coming. Copies take no more than what is under way in two
    /// round trips, as the credit does.
    pub fn copies(&mut self, token: FrameToken) -> bool {
        let keeps_copies = self.keeps_copies();
        let Some(replay_buffer) = &mut self.replay_buffer else { return true };
        keeps_copies && replay_buffer.copy(token, self.capabilities.credit_wanted)
    }

    /// Whether what has left is copied rather than waited for.
    pub fn keeps_copies(&self) -> bool {
        self.cost.round_trip_ns() >= COPIED_FROM_NS
    }

    /// It is so late: what has left since the time was told before has left by now.
    pub fn stamp(&mut self, now_ns: u64) {
        if let Some(replay_buffer) = &mut self.replay_buffer {
            replay_buffer.stamp(now_ns);
        }
    }

    /// Takes what the rail predicts, as far as the traffic has not shown it.
    pub fn predict(&mut self, cost: Cost) {
        if self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.has_learned) {
            self.cost.learn_latency(cost.latency_ns());
        } else {
            self.cost = cost;
        }
    }

    /// Asks whether what has left long ago has arrived, where no other link shows that this one delivers nothing:
    /// one that has swallowed it fails when more follows.
    pub fn ask_if_late(&mut self, now_ns: u64) {
        let patience_ns = self.patience_ns();
        if let Some(replay_buffer) = &mut self.replay_buffer {
            replay_buffer.probe_after(patience_ns, now_ns);
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
        self.capabilities.replay || (is_patient && self.is_far())
    }

    /// Whether an answer takes so long that it leaves the site.
    pub fn is_far(&self) -> bool {
        self.cost.round_trip_ns() >= FAR_NS
    }

    /// What a frame over it begins with, in bytes, where frames are kept.
    #[inline]
    pub fn word_len(&self) -> usize {
        if self.replay_buffer.is_some() { packet::ACK_LEN } else { 0 }
    }

    /// Whether a frame could be posted now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.full
            && self.replay_buffer.as_ref().is_none_or(|replay_buffer| replay_buffer.has_room())
    }

    /// Whether the link has something to send that is its own, not the peer's.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.stalled.is_some()
            || self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.has_errand())
    }

    /// Whether a long frame is under way of which the peer is to say that it has arrived.
    pub fn has_longs(&self) -> bool {
        self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.has_longs())
    }

    /// Whether nothing is under way that an operation waits for.
    pub fn is_settled(&self) -> bool {
        self.replay_buffer.as_ref().is_none_or(|replay_buffer| replay_buffer.is_settled())
    }

    /// Whether the peer is to say that something has arrived, and has not.
    pub fn awaits_word(&self) -> bool {
        self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.awaits_word())
    }

    /// Bytes posted of which the peer has not yet said that they have arrived; 0 where it does not say.
    pub fn backlog_bytes(&self) -> usize {
        self.replay_buffer.as_ref().map_or(0, |replay_buffer| replay_buffer.bytes())
    }

    /// What the rail has not taken has to go another way, and nothing is known of its room any more.
    pub fn close(&mut self) {
        (self.stalled, self.full, self.listed) = (None, false, false);
        if let Some(replay_buffer) = &mut self.replay_buffer {
            replay_buffer.close();
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

/// Judges the links of a peer beside one another at a moment: the rail of one that is late, to be given
/// up. A peer that computes is late on all links; one link is, when frames that left much later over
/// another have arrived, and then a sign of life that was asked for over it does not come either. Where
/// there were none, the peer is asked for a sign of life over the others.
pub(crate) fn judge(links: &mut [Link], now_ns: u64) -> Option<RailId> {
    for at in 0..links.len() {
        let Some(since_ns) = links[at].replay_buffer.as_ref().and_then(|own| own.waits_since_ns())
        else {
            continue;
        };
        let late_ns = since_ns.saturating_add(links[at].patience_ns());
        if now_ns <= late_ns {
            if let Some(replay_buffer) = &mut links[at].replay_buffer {
                replay_buffer.suspected_ns = None;
            }
            continue;
        }
        let others = || (0..links.len()).filter(|&other| other != at);
        let of = |at: usize| links[at].replay_buffer.as_ref();
        let is_outrun =
            others().any(|other| of(other).is_some_and(|it| it.confirmed_ns() > late_ns));
        if is_outrun {
            let grace_ns = links[at].patience_ns();
            let replay_buffer = links[at].replay_buffer.as_mut()?;
            if let Some(suspected_ns) = replay_buffer.suspected_ns {
                if now_ns - suspected_ns > grace_ns {
                    return Some(links[at].rail);
                }
            } else {
                // Its peer may have had no reason to say what has come.
                replay_buffer.suspected_ns = Some(now_ns);
                replay_buffer.probes = true;
            }
            continue;
        }
        for other in (0..links.len()).filter(|&other| other != at) {
            if let Some(replay_buffer) = &mut links[other].replay_buffer {
                replay_buffer.probes |= !replay_buffer.has_sent_since(late_ns);
            }
        }
    }
    None
}

/// What links cost of which nobody has said it.
const UNKNOWN_NS: u64 = 10_000;
const UNKNOWN_BYTES_PER_S: u64 = 1_000_000_000;

/// A length at which a link's rate shows.
const LONG: u64 = 1 << 20;

/// A link is suspected when a frame takes so many times what was predicted, and so long.
const LATE_TIMES: u64 = 8;
const LATE_NS: u64 = 500_000_000;

/// It is far to a peer from which an answer takes so long: between sites, links drop.
const FAR_NS: u64 = 1_000_000;

/// Who waits for word of an arrival over a shorter round trip waits no longer than for a copy of much.
const COPIED_FROM_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use memory::Region;
    use wire::Body;

    use super::*;
    use crate::replay_buffer::Keeping;

    const PIECE: usize = 256 << 10;

    fn link() -> Link {
        let sizes = [16 << 10; 7];
        let [
            inline_max,
            eager_max,
            rts_data_max,
            aggregate_max,
            piece_min,
            piece_max,
            credit_bytes,
        ] = sizes;
        Link::new(
            RailId(0),
            Capabilities {
                frame_max: 1 << 20,
                inline_max,
                eager_max,
                rts_data_max,
                aggregate_max,
                piece_min,
                piece_max,
                credit_bytes,
                credit_wanted: credit_bytes,
                remote_read: false,
                adapts: true,
                replay: true,
                reopens: false,
                copies: false,
                passes: false,
            },
        )
    }

    fn send(link: &mut Link, number: u32) {
        let body = Some(Body { region: Region::owned(PIECE) });
        let frame = Frame { head: vec![0; 20], body, token: Some(FrameToken(u64::from(number))) };
        let keeping = Keeping { from: 0, sequence: number, is_prompt: true };
        link.replay_buffer.as_mut().expect("frames are kept").keep(&frame, keeping);
    }

    /// Pieces arrive one by one at a rate in bytes a second, and the link adapts; how often it has.
    fn arrive(link: &mut Link, bytes_per_s: u64) -> usize {
        const PIECES: u32 = 60;
        let every_ns = PIECE as u64 * 1_000_000_000 / bytes_per_s;
        (0..PIECES).for_each(|number| send(link, number));
        let mut arrives = |number: u32| {
            let changes = link.confirm(number, u64::from(number) * every_ns, |_| {});
            let changes = changes.expect("so many were sent");
            if changes {
                link.adapt(&HostCost::default(), BUDGET);
            }
            usize::from(changes)
        };
        (1..=PIECES).map(&mut arrives).sum()
    }

    #[test]
    fn sizes_follow_what_traffic_shows() {
        for (bytes_per_s, follows) in [(118_000_000, false), (12_000_000, true)] {
            let mut link = link();
            link.predict(Cost::linear(5_800_000, 2_000, 118_000_000));
            link.adapt(&HostCost::default(), BUDGET);
            let before = link.capabilities;
            assert_eq!(arrive(&mut link, bytes_per_s) > 0, follows, "{bytes_per_s} bytes/s");
            let (now, cost) = (link.capabilities, &link.cost);
            assert_eq!(now != before, follows, "{now:?} of {cost:?}, {before:?} before");
            assert!(now.piece_max <= before.piece_max && now.credit_wanted <= before.credit_wanted);
        }
    }

    #[test]
    fn a_rail_that_keeps_its_sizes_does() {
        let mut link = link();
        link.capabilities.adapts = false;
        let before = link.capabilities;
        link.predict(Cost::linear(5_800_000, 2_000, 118_000_000));
        link.adapt(&HostCost::default(), BUDGET);
        assert_eq!((arrive(&mut link, 12_000_000), link.capabilities), (0, before));
    }

    const BUDGET: u64 = 64 << 20;
}
