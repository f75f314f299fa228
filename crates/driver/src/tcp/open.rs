//! A connection that carries frames: what is known of its way, how fast it goes, and how much of it waits in the kernel.

use std::time::{Duration, Instant};

use socket2::SockRef;
use wire::{Cost, GateId};

use super::congestion::Steady;
use super::knowledge::{Knowledge, Known};
use super::measure::{Pace, TcpSample};
use super::probe::{Probe, Progress, Sight};
use super::stall::StallWatch;
use super::stream::FrameStream;

/// A link, as one end has it.
pub(super) struct Open {
    pub peer: GateId,
    pub stream: FrameStream,
    /// What the connection costs, if the kernel says.
    pub known: Option<Known>,
    /// Whether the peer is so far that frames are kept, for the link to be opened anew.
    pub is_far: bool,
    /// When it opened.
    pub since: Duration,
    /// Looks in a row that found nothing.
    pub quiet: u32,
    /// What the way carries, if that is worth knowing.
    pub probe: Probe,
    /// What paces the connection since then.
    pub steady: Option<Steady>,
    pub stall: StallWatch,
    pub is_backlogged: bool,
    pub wants_write: bool,
}

impl Open {
    /// What leaves at once follows from what the link carries.
    pub fn reckon_burst(&mut self) {
        let carried =
            self.known.as_ref().map_or(u64::MAX, |known| known.cost.bytes_within(BURST_NS));
        self.stream.burst = usize::try_from(carried).unwrap_or(usize::MAX).max(BURST_MIN);
    }

    /// Begins to measure the way, if that was not done; whether it has.
    pub fn begin_probe(&mut self) -> bool {
        if !self.probe.is_due() {
            return false;
        }
        if !self.probe.is_behind() && !Steady::prepare(&self.stream.channel.socket) {
            self.probe = Probe::Done;
            return false;
        }
        let known = self.known.as_ref().and_then(Known::remembered_rate);
        self.probe.begin(Instant::now(), known);
        self.limit_unsent();
        true
    }

    /// What the kernel takes of a far link and does not send yet is no more than what the link carries until this
    /// side looks again: what comes later can be put before the rest, and its receiver's word, for which the
    /// sender waits when it is out of credit, is not long in coming.
    pub fn limit_unsent(&self) {
        let most = match &self.known {
            // What is to be sent finds the kernel with little padding before it.
            _ if self.probe.shown().is_some() => SHOWN_UNSENT,
            _ if self.probe.is_running() => PADDING_UNSENT,
            Some(known) if self.is_far => {
                let carried = known.cost.bytes_within(UNSENT_NS);
                u32::try_from(carried).unwrap_or(u32::MAX).max(UNSENT_MIN)
            }
            Some(_) | None => return,
        };
        let _ = SockRef::from(&self.stream.channel.socket).set_tcp_notsent_lowat(most);
    }

    /// Sees that the link goes on as fast as it is known to be.
    pub fn keep_pace(&mut self, now: Duration) {
        if let (Some(steady), Some(known), Probe::Done) =
            (&mut self.steady, &self.known, &self.probe)
        {
            steady.look(&self.stream.channel.socket, known.remembered_rate(), now);
        }
    }

    /// Looks at a link that was given a long frame; whether it is to be looked at again.
    pub fn look_after_long(&mut self) -> bool {
        if let Some(steady) = &mut self.steady {
            steady.ease(&self.stream.channel.socket);
        }
        // What waits here is on its way to the kernel.
        self.stall.look(&self.stream.channel.socket)
            || !self.stream.is_flushed() && self.stall.begin()
    }

    /// Padding that shows a rate is held to that.
    fn hold_show(&mut self) {
        if let (Some(steady), Some(rate)) = (&mut self.steady, self.probe.shown()) {
            steady.hold(&self.stream.channel.socket, rate);
        }
    }

    /// A long frame shows the way as padding does.
    pub fn hurry_show(&mut self, len: usize) {
        if self.probe.shown().is_some() {
            self.probe.handle_frame(len);
            self.limit_unsent();
        }
    }

    /// Sends padding as far as the kernel takes it and some is left; what the link costs when that is known.
    pub fn pad(&mut self, left: &mut usize, now: Duration) -> Option<Cost> {
        self.hold_show();
        // What fails here fails whoever reads next.
        let count = self.stream.pad(self.probe.allowance().min(*left)).unwrap_or(0);
        *left = left.saturating_sub(count);
        let Self { probe, stream, known, steady, .. } = self;
        let socket = &stream.channel.socket;
        let (is_own, mut has_lost) = (!probe.is_behind(), false);
        let (has_begun, passed) = (steady.is_some(), probe.passed());
        let look = || {
            let sample = TcpSample::of(socket).ok()?;
            has_lost = sample.has_lost;
            let remembered = || Pace::of(socket).map(|pace| pace.bytes_per_s);
            let sight = sample.sight();
            Some(if has_begun { Sight { rate: remembered(), ..sight } } else { sight })
        };
        let progress = probe.handle_padded(count, Instant::now(), look);
        let goes_on = matches!(progress, Progress::Going | Progress::Showing(_)) && *left > 0;
        let shown = match progress {
            Progress::Showing(rate) => Some(rate),
            Progress::Going | Progress::Measured | Progress::Ended => None,
        };
        if is_own && (shown.is_some() || !has_begun && (has_lost || !goes_on)) {
            *steady = Steady::begin(socket, shown.or(passed.filter(|_| !goes_on)), now);
        }
        if goes_on {
            if shown.is_some() {
                self.limit_unsent();
            }
            return None;
        }
        if progress == Progress::Measured {
            known.iter_mut().for_each(|known| known.learn_measured(socket));
        }
        *probe = Probe::Done;
        self.limit_unsent();
        self.reckon_burst();
        self.known.as_ref().map(|known| known.cost)
    }

    /// Keeps what was learned of the connection, for jobs to come.
    pub fn keep(&mut self, knowledge: &Knowledge) {
        if let Some(known) = &mut self.known {
            knowledge.keep(&self.stream.channel.socket, known);
        }
    }
}

/// Padding that the kernel has and has not sent: a millisecond's at a gigabit per second.
const PADDING_UNSENT: u32 = 128 << 10;
/// The same where a rate is on show, and need not grow.
const SHOWN_UNSENT: u32 = 48 << 10;
/// How long what the kernel has not sent keeps a far link busy: the thread that stands by looks in this time, also
/// where ranks share cores.
pub(super) const UNSENT_NS: u64 = 4_000_000;
pub(super) const UNSENT_MIN: u32 = 256 << 10;

/// A long message's first frames are to keep the link busy until the rail is polled, by the thread that
/// stands by at the latest, and no longer.
const BURST_NS: u64 = 500_000;
pub(super) const BURST_MIN: usize = 64 << 10;
