//! How fast a connection goes: what is known of its way, how that is found out, and how much of it waits in the kernel.
//!
//! Whoever has the connection sends the padding: as much as [`allowance`](Pacing::allowance) says, while nothing else is
//! to be sent, and says [how much has gone](Pacing::handle_padded).

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::SockRef;
use wire::Cost;

use super::congestion::{Congestion, Steady};
use super::knowledge::{Knowledge, Known};
use super::measure::{Pace, TcpSample};
use super::probe::{Probe, Progress, Sight};
use super::relay::Detour;
use super::vigil;

/// What paces one connection.
pub(super) struct Pacing {
    /// What the connection costs, if the kernel says.
    pub known: Option<Known>,
    /// Whether the peer is so far that it matters what waits here; links of ranks keep their frames then, to be opened
    /// anew.
    pub is_far: bool,
    /// What the way carries, if that is worth knowing.
    pub probe: Probe,
    /// What remembers that.
    pub steady: Option<Steady>,
}

impl Pacing {
    /// Of a connection that has just opened, behind whose end the way is so much longer.
    pub fn new(
        socket: &TcpStream,
        detour: Detour,
        knowledge: &Knowledge,
        congestion: &Congestion,
    ) -> Self {
        let known = knowledge.first(socket, detour.round_trip);
        let round_trip = known.as_ref().and_then(|known| known.round_trip);
        let probe = congestion.choose(socket, round_trip.unwrap_or_default(), detour);
        let is_far =
            known.as_ref().is_some_and(|known| known.cost.round_trip_ns() >= vigil::FAR_NS);
        let pacing = Self { known, is_far, probe, steady: None };
        pacing.limit_unsent(socket);
        pacing
    }

    /// What the connection costs, as far as is known.
    pub fn cost(&self) -> Option<Cost> {
        self.known.as_ref().map(|known| known.cost)
    }

    /// The network has taken more; whether that changes what the connection is predicted to cost.
    pub fn look(&mut self, socket: &TcpStream) -> bool {
        let is_beginning = self.probe.is_running();
        self.known.as_mut().is_some_and(|known| known.look(socket, is_beginning))
    }

    /// Begins to measure the way, if that was not done; whether it has.
    pub fn begin_probe(&mut self, socket: &TcpStream) -> bool {
        if !self.probe.is_due() {
            return false;
        }
        if !self.probe.is_behind() && !Steady::prepare(socket) {
            self.probe = Probe::Done;
            return false;
        }
        let known = self.known.as_ref().and_then(Known::remembered_rate);
        self.probe.begin(Instant::now(), known);
        self.limit_unsent(socket);
        true
    }

    /// What the kernel takes of a far link and does not send yet is no more than what the link carries until this
    /// side looks again: what comes later can be put before the rest, and its receiver's word, for which the
    /// sender waits when it is out of credit, is not long in coming.
    pub fn limit_unsent(&self, socket: &impl AsFd) {
        let most = if self.probe.shown().is_some() {
            // What is to be sent finds the kernel with little padding before it.
            SHOWN_UNSENT
        } else if self.probe.is_running() {
            PADDING_UNSENT
        } else if self.is_far {
            let carried = match self.cost() {
                Some(cost) => cost.bytes_within(UNSENT_NS),
                None => Pace::of(socket).map_or(0, |pace| pace.bytes_within(UNSENT_NS)),
            };
            u32::try_from(carried).unwrap_or(u32::MAX).max(UNSENT_MIN)
        } else {
            return;
        };
        let _ = SockRef::from(socket).set_tcp_notsent_lowat(most);
    }

    /// Sees that the link goes on as fast as it is known to be.
    pub fn keep_pace(&mut self, socket: &TcpStream, now: Duration) {
        if let (Some(steady), Probe::Done) = (&mut self.steady, &self.probe) {
            let rate = self.known.as_ref().and_then(Known::remembered_rate);
            steady.look(socket, rate, now);
        }
    }

    /// Lets through what the way has been seen to carry; to be called now and then from when a long frame leaves. Whether
    /// to go on.
    pub fn ease(&mut self, socket: &TcpStream) -> bool {
        match (&mut self.steady, &self.probe) {
            (Some(steady), Probe::Done) => steady.ease(socket, Instant::now()),
            _ => false,
        }
    }

    /// A long frame goes, and shows the way as padding does. The way is measured, if it was not.
    pub fn handle_frame(&mut self, socket: &TcpStream, len: usize) {
        self.begin_probe(socket);
        if self.probe.shown().is_some() {
            self.probe.handle_frame(len);
            self.limit_unsent(socket);
        }
    }

    /// How much padding may go now. What shows a rate is held to that.
    pub fn allowance(&mut self, socket: &TcpStream) -> usize {
        if let (Some(steady), Some(rate)) = (&mut self.steady, self.probe.shown()) {
            steady.hold(socket, rate);
        }
        self.probe.allowance()
    }

    /// So much padding has gone, and there may be more; whether this was the last of it.
    pub fn handle_padded(
        &mut self,
        socket: &TcpStream,
        count: usize,
        may_go_on: bool,
        now: Duration,
    ) -> bool {
        let Self { probe, known, steady, .. } = self;
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
        let goes_on = matches!(progress, Progress::Going | Progress::Showing(_)) && may_go_on;
        let shown = match progress {
            Progress::Showing(rate) => Some(rate),
            Progress::Going | Progress::Measured | Progress::Full(_) | Progress::Ended => None,
        };
        if let (Some(steady), Progress::Full(rate)) = (&mut *steady, progress) {
            steady.hold_at_most(socket, rate);
        }
        if is_own && (shown.is_some() || !has_begun && (has_lost || !goes_on)) {
            *steady = Steady::begin(socket, shown.or(passed.filter(|_| !goes_on)), now);
        }
        if goes_on {
            if shown.is_some() {
                self.limit_unsent(socket);
            }
            return false;
        }
        if matches!(progress, Progress::Measured | Progress::Full(_)) {
            known.iter_mut().for_each(|known| known.learn_measured(socket));
        }
        *probe = Probe::Done;
        self.limit_unsent(socket);
        true
    }

    /// Keeps what was learned of the connection, for jobs to come.
    pub fn keep(&mut self, socket: &TcpStream, knowledge: &Knowledge) {
        if let Some(known) = &mut self.known {
            knowledge.keep(socket, known, self.probe.is_running());
        }
    }
}

/// Padding that the kernel has and has not sent: a millisecond's at a gigabit per second.
const PADDING_UNSENT: u32 = 128 << 10;
/// The same where a rate is on show, and need not grow.
const SHOWN_UNSENT: u32 = 48 << 10;
/// How long what the kernel has not sent keeps a far link busy: the thread that stands by looks in this time, also
/// where ranks share cores.
const UNSENT_NS: u64 = 4_000_000;
pub(super) const UNSENT_MIN: u32 = 256 << 10;
