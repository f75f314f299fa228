//! A link: the connection to a peer over one rail, and the frames in flight on it.

use cost::{Cost, HostCost, Thresholds};
use wire::{Capabilities, Frame, FrameToken, RailId, packet};

use crate::engine::PeerError;
use crate::op::OpId;
use crate::replay_buffer::ReplayBuffer;

#[derive(Debug)]
pub(crate) struct Link {
    pub rail: RailId,
    pub capabilities: Capabilities,
    /// Predicted cost of frames over the link.
    pub cost: Cost,
    /// Rate of long frames from which the sizes were derived, in bytes per second.
    derived_at: u64,
    /// True if the rail accepts no frame at the moment.
    pub full: bool,
    /// True if the link is in the engine's list of links with work.
    pub listed: bool,
    /// A frame that the rail had no room for: the first to leave.
    pub stalled: Option<Frame>,
    /// Replay state of a link whose frames are stored until acknowledged.
    pub replay_buffer: Option<Box<ReplayBuffer>>,
    /// The cut-through frame being received.
    pub through: Option<Through>,
}

/// A frame that is received in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Through {
    /// The receive that takes its payload.
    pub op: OpId,
    /// Offset of the payload in the message, of its next bytes, and of its end.
    pub start: u64,
    pub at: u64,
    pub end: u64,
    /// The ACK with which the frame begins: number of frames, and true if it asks for one in return.
    pub ack: Option<(u32, bool)>,
    /// Length of the frame after the ACK, in bytes.
    pub len: usize,
}

impl Link {
    pub fn new(rail: RailId, capabilities: Capabilities) -> Self {
        let has_replay = capabilities.replay || capabilities.reopens;
        Self {
            rail,
            capabilities,
            cost: Cost::linear(UNKNOWN_NS, 0, UNKNOWN_BYTES_PER_S),
            derived_at: UNKNOWN_BYTES_PER_S,
            full: false,
            listed: false,
            stalled: None,
            replay_buffer: has_replay.then(Box::<ReplayBuffer>::default),
            through: None,
        }
    }

    /// Derives the sizes from the link's cost, unless the rail fixes them.
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

    /// True if the observed rate differs by a quarter, so that sizes must be derived anew.
    fn has_changed(&self) -> bool {
        let (now, then) = (self.cost.bytes_per_s(LONG), self.derived_at);
        self.capabilities.adapts && 4 * now.max(then) > 5 * now.min(then)
    }

    /// Handles an ACK of `frames` frames; passes the tokens of newly acknowledged ones to
    /// `arrived`. Returns true if the link must [adapt](Self::adapt).
    #[inline]
    pub fn confirm(
        &mut self,
        frames: u32,
        now_ns: u64,
        mut on_acked: impl FnMut(FrameToken),
    ) -> Result<bool, PeerError> {
        let Some(replay_buffer) = &mut self.replay_buffer else {
            return Err(PeerError::Confirmation { sent: 0, got: frames });
        };
        let before = replay_buffer.bytes();
        replay_buffer.confirm(frames, now_ns, &mut on_acked)?;
        if replay_buffer.wants_copies() {
            replay_buffer.copy_others(self.capabilities.credit_wanted, on_acked);
        }
        let observed = replay_buffer.observe((before - replay_buffer.bytes()) as u64, now_ns);
        let Some((bytes, took_ns)) = observed else { return Ok(false) };
        self.cost.learn(bytes, took_ns);
        Ok(self.has_changed())
    }

    /// Returns true if the memory of a frame that the rail has released is free: nothing is stored,
    /// or a copy is, because the ACK would take long. Copies take at most two BDPs, like the
    /// credit.
    pub fn copies(&mut self, token: FrameToken) -> bool {
        let keeps_copies = self.keeps_copies();
        let Some(replay_buffer) = &mut self.replay_buffer else { return true };
        keeps_copies && replay_buffer.copy(token, self.capabilities.credit_wanted)
    }

    /// True if sent memory is copied instead of waiting for the ACK.
    pub fn keeps_copies(&self) -> bool {
        self.cost.round_trip_ns() >= COPIED_FROM_NS
    }

    /// Records the time: all frames sent since the previous call had left by now.
    pub fn stamp(&mut self, now_ns: u64) {
        if let Some(replay_buffer) = &mut self.replay_buffer {
            replay_buffer.stamp(now_ns);
        }
    }

    /// Takes the rail's prediction, except for what traffic has shown. ACKs move the prediction in small steps, so a
    /// rate that the rail has measured counts more where it is clearly another.
    pub fn predict(&mut self, cost: Cost) {
        let has_learned = self.replay_buffer.as_ref().is_some_and(|it| it.has_learned);
        let known = self.cost.bytes_per_s(LONG);
        let is_other = |shown: u64| 4 * shown.max(known) > 5 * shown.min(known);
        if has_learned && !cost.shown_bytes_per_s().is_some_and(is_other) {
            self.cost.learn_latency(cost.latency_ns());
        } else {
            self.cost = cost;
        }
    }

    /// Probes for an ACK of frames that left long ago, if no other link shows that this one is
    /// dead. A link that drops the frame fails when more follows.
    pub fn ask_if_late(&mut self, now_ns: u64) {
        let patience_ns = self.patience_ns();
        if let Some(replay_buffer) = &mut self.replay_buffer {
            replay_buffer.probe_after(patience_ns, now_ns);
        }
    }

    /// Time a frame may take before the link is suspected, in nanoseconds.
    fn patience_ns(&self) -> u64 {
        let predicted = self.cost.round_trip_ns() + self.cost.busy_ns(self.backlog_bytes() as u64);
        predicted.saturating_mul(LATE_TIMES).max(LATE_NS)
    }

    /// True if this end wants frames stored: other links can carry them, or the peer is far and a
    /// lost link is waited for.
    pub fn keeps(&self, reopens: bool) -> bool {
        self.capabilities.replay || (reopens && self.is_far())
    }

    /// True if the round trip is long enough to leave the site.
    pub fn is_far(&self) -> bool {
        self.cost.round_trip_ns() >= FAR_NS
    }

    /// Length of the ACK at the beginning of a frame, in bytes.
    #[inline]
    pub fn ack_len(&self) -> usize {
        if self.replay_buffer.is_some() { packet::ACK_LEN } else { 0 }
    }

    /// True if a frame could be posted now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.full
            && self.replay_buffer.as_ref().is_none_or(|replay_buffer| replay_buffer.has_room())
    }

    /// True if the link itself has something to send, inactive from the peer.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.stalled.is_some()
            || self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.has_work())
    }

    /// True if a long frame is unacknowledged.
    pub fn has_longs(&self) -> bool {
        self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.has_longs())
    }

    /// True if no operation waits for a frame in flight.
    pub fn is_settled(&self) -> bool {
        self.replay_buffer.as_ref().is_none_or(|replay_buffer| replay_buffer.is_settled())
    }

    /// True if an ACK was asked for and has not come.
    pub fn awaits_ack(&self) -> bool {
        self.replay_buffer.as_ref().is_some_and(|replay_buffer| replay_buffer.awaits_ack())
    }

    /// Unacknowledged bytes; 0 on a link without ACKs.
    pub fn backlog_bytes(&self) -> usize {
        self.replay_buffer.as_ref().map_or(0, |replay_buffer| replay_buffer.bytes())
    }

    /// Resets a link that was closed: stalled frames are dropped, and the rail's room is unknown.
    pub fn close(&mut self) {
        (self.stalled, self.full, self.listed) = (None, false, false);
        self.through = None;
        if let Some(replay_buffer) = &mut self.replay_buffer {
            replay_buffer.close();
        }
    }
}

/// A link that carries no frames: it was lost and may reopen, or the `Resume`s are being exchanged.
#[derive(Debug)]
pub(crate) struct InactiveLink {
    pub link: Link,
    pub state: LinkState,
}

impl InactiveLink {
    /// True if a `Resume` must be sent, and can be.
    pub fn needs_resume(&self) -> bool {
        let Self { link, state } = self;
        !link.full
            && (link.stalled.is_some()
                || matches!(state, LinkState::Open { resume_sent: false, .. }))
    }
}

/// State of an inactive link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Lost for good; the peer will report what it received.
    Gone,
    /// Lost, and may reopen.
    Down,
    /// Open; both sides exchange `Resume`s.
    Open {
        /// True if this side's `Resume` has left.
        resume_sent: bool,
        /// True if the peer's `Resume` has arrived.
        resume_received: bool,
    },
}

/// Compares the links of a peer and returns the rail of one to give up. A peer that computes is
/// late on all links. A link is suspected if frames that left much later over another link were
/// acknowledged. It is given up if a probe over it is not acknowledged either. If no later frame
/// was sent, the other links are probed.
pub(crate) fn judge(links: &mut [Link], now_ns: u64) -> Option<RailId> {
    for at in 0..links.len() {
        let Some(since_ns) = links[at].replay_buffer.as_ref().and_then(|own| own.waits_since_ns())
        else {
            continue;
        };
        // A link that acknowledges or brings frames is alive, however slow it is.
        let heard_ns = links[at].replay_buffer.as_ref().map_or(0, |own| own.heard_ns());
        let late_ns = since_ns.max(heard_ns).saturating_add(links[at].patience_ns());
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
                // The peer may have had no reason to acknowledge.
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

/// Assumed cost of a link before the rail reports it.
const UNKNOWN_NS: u64 = 10_000;
const UNKNOWN_BYTES_PER_S: u64 = 1_000_000_000;

/// Frame length at which a link's rate shows.
const LONG: u64 = 1 << 20;

/// A link is suspected when a frame takes this many times its prediction, and at least this long.
const LATE_TIMES: u64 = 8;
const LATE_NS: u64 = 500_000_000;

/// Round trip from which a peer is far: links between sites drop.
const FAR_NS: u64 = 1_000_000;

/// Round trip from which copying sent memory beats waiting for the ACK.
const COPIED_FROM_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use memory::Region;
    use wire::Body;

    use super::*;
    use crate::replay_buffer::FrameRecord;

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
        let record = FrameRecord { from: 0, sequence: number, is_prompt: true };
        link.replay_buffer.as_mut().expect("frames are kept").store(&frame, record);
    }

    /// Acknowledges pieces one by one at a rate in bytes per second; returns how often the link
    /// adapted.
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

    #[test]
    fn a_measured_rate_counts_more_than_small_steps() {
        let mut link = link();
        link.predict(Cost::linear(5_800_000, 2_000, 118_000_000));
        arrive(&mut link, 12_000_000);
        let learned = link.cost.bytes_per_s(LONG);
        let mut cost = Cost::linear(5_800_000, 2_000, 118_000_000);
        link.predict(cost);
        assert_eq!(link.cost.bytes_per_s(LONG), learned, "a guess");
        cost.set_rate(600_000, true);
        link.predict(cost);
        assert!(link.cost.bytes_per_s(LONG).abs_diff(600_000) < 60_000, "{}", link.cost);
    }

    /// Behaviour of a slow link, each 0.4 s.
    #[derive(Clone, Copy, PartialEq)]
    enum Sign {
        Nothing,
        Ack,
        /// It brings a frame. ACKs wait behind it.
        Frame,
    }

    /// Fills a slow link with pieces of 256 KiB, beside a fast link. Returns the rail that is given up.
    fn given_up(sign: Sign) -> Option<RailId> {
        let mut links = [link(), link()];
        links[1].rail = RailId(1);
        for link in &mut links {
            link.predict(Cost::linear(100_000, 2_000, 125_000_000));
        }
        (0..40).for_each(|number| send(&mut links[0], number));
        links[0].stamp(1);
        (1..=40).find_map(|number| {
            let now_ns = u64::from(number) * 400_000_000;
            send(&mut links[1], number - 1);
            links[1].stamp(now_ns - 1_000_000);
            links[1].confirm(number, now_ns, |_| {}).unwrap();
            match sign {
                Sign::Nothing => {}
                Sign::Ack => links[0].confirm(number, now_ns, |_| {}).map(drop).unwrap(),
                Sign::Frame => links[0].replay_buffer.as_mut().unwrap().receive(PIECE),
            }
            links[0].stamp(now_ns);
            judge(&mut links, now_ns)
        })
    }

    #[test]
    fn a_slow_link_with_signs_of_life_is_not_given_up() {
        assert_eq!(given_up(Sign::Ack), None);
        assert_eq!(given_up(Sign::Frame), None);
        assert_eq!(given_up(Sign::Nothing), Some(RailId(0)));
    }

    const BUDGET: u64 = 64 << 20;
}
