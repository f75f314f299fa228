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
use super::measure::{self, Pace, TcpSample};
use super::probe::{Probe, Progress};
use super::probe_lock::Claim;
use super::relay::Detour;
use super::{path_probe, rto};

/// What paces one connection.
pub(super) struct Pacing {
    /// What the connection costs, if the kernel says.
    pub known: Option<Known>,
    /// What the way carried for jobs before, in bytes per second.
    remembered: Option<u64>,
    /// Whether the peer is so far that it matters what waits here; links of ranks keep their frames then, to be opened
    /// anew.
    pub is_far: bool,
    /// What the way carries, if that is worth knowing.
    pub probe: Probe,
    /// What remembers that.
    pub steady: Option<Steady>,
    /// That it is this connection's to be found out, for as long as others are to hear of it.
    claim: Option<Claim>,
    /// Until when another is left to find it out.
    patient_until: Option<Instant>,
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
            known.as_ref().is_some_and(|known| known.cost.round_trip_ns() >= path_probe::FAR_NS);
        let pacing = Self::with(known, is_far, probe, None);
        if pacing.probe.is_due() {
            measure::widen_for_peer(socket);
        }
        pacing.set(socket);
        pacing
    }

    /// Of such a connection.
    pub fn with(known: Option<Known>, is_far: bool, probe: Probe, steady: Option<Steady>) -> Self {
        let remembered = known.as_ref().and_then(Known::remembered_rate);
        Self { known, remembered, is_far, probe, steady, claim: None, patient_until: None }
    }

    /// What the connection costs, as far as is known.
    pub fn cost(&self) -> Option<Cost> {
        self.known.as_ref().map(|known| known.cost)
    }

    /// The network has taken more; whether that changes what the connection is predicted to cost.
    pub fn look(&mut self, socket: &TcpStream) -> bool {
        let is_beginning = self.probe.is_beginning();
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

    /// The same for a connection among others of its host's, over the same way: one of them measures it, and once its rate
    /// is remembered the window is to be [widened](Self::widen) for it, by one when it opens and by others when they have
    /// long frames.
    pub fn begin_among(&mut self, socket: &TcpStream, knowledge: &Knowledge, opens: bool) -> bool {
        if !self.probe.is_due() {
            return false;
        }
        let now = Instant::now();
        if self.probe.is_behind() {
            return self.begin_probe(socket);
        }
        if self.patient_until.is_some_and(|until| now < until) {
            return false;
        }
        let known = self.known.as_mut().and_then(|known| known.recall(socket, knowledge));
        if self.claim.is_none() && (opens || known.is_none()) {
            self.claim = knowledge.claim(socket);
            if self.claim.is_none() {
                self.patient_until = (!opens).then_some(now + PATIENCE);
                return false;
            }
        }
        match known {
            Some(rate) => self.begin_widening(socket, rate, now),
            None => self.begin_probe(socket),
        }
    }

    fn begin_widening(&mut self, socket: &TcpStream, rate: u64, now: Instant) -> bool {
        let window = TcpSample::of(socket).ok().filter(|_| Steady::prepare(socket));
        match window {
            Some(sample) => self.probe.begin_widening(now, rate, sample.window()),
            None => self.probe = Probe::Done,
        }
        self.probe.is_beginning()
    }

    /// How many short packets of padding are to go now, to be told [when they have](Self::handle_widened).
    pub fn widen(&mut self, socket: &TcpStream, now: Duration) -> u64 {
        let Probe::Widening(widening) = &mut self.probe else { return 0 };
        let sample = TcpSample::of(socket).ok();
        let next = sample.and_then(|sample| widening.handle_look(sample.window(), Instant::now()));
        if next.is_none() {
            self.steady = Steady::begin(socket, Some(widening.rate()), now);
            self.probe = Probe::Done;
            self.limit_unsent(socket);
        }
        next.unwrap_or(0)
    }

    /// So many have gone.
    pub fn handle_widened(&mut self, packets: u64) {
        if let Probe::Widening(widening) = &mut self.probe {
            widening.handle_sent(packets);
        }
    }

    /// Sets what the connection's kernel is to go by from the beginning.
    pub fn set(&self, socket: &impl AsFd) {
        self.limit_unsent(socket);
        if self.is_far {
            rto::hasten(socket);
        }
    }

    /// What the kernel takes of a far link and does not send yet is no more than what the link carries until this
    /// side looks again: what comes later can be put before the rest, and its receiver's word, for which the
    /// sender waits when it is out of credit, is not long in coming.
    pub fn limit_unsent(&self, socket: &impl AsFd) {
        let most = if self.probe.is_running() {
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

    /// Lets through what the way has been seen to carry, and no more than its part where others share it; to be called now
    /// and then from when a long frame leaves. Whether to go on.
    pub fn ease(&mut self, socket: &TcpStream) -> bool {
        let sight = if self.is_far { measure::shared_sight(socket) } else { None };
        if let (Some(known), Some(sight)) = (&mut self.known, &sight) {
            known.see(sight);
        }
        match (&mut self.steady, &self.probe) {
            (Some(steady), Probe::Done) => {
                let now = Instant::now();
                if let Some(sight) = sight {
                    steady.share(socket, &sight, self.remembered, now);
                }
                steady.ease(socket, now)
            }
            _ => false,
        }
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
            has_lost = sample.repeats > 0;
            Some(sample.sight())
        };
        let progress = probe.handle_padded(count, Instant::now(), look);
        let goes_on = progress == Progress::Going && may_go_on;
        let found = match progress {
            Progress::Found(rate) => Some(rate),
            Progress::Going | Progress::Ended => None,
        };
        if is_own && (found.is_some() || !has_begun && (has_lost || !goes_on)) {
            *steady = Steady::begin(socket, found.or(passed.filter(|_| !goes_on)), now);
        }
        if goes_on {
            return false;
        }
        match (found, known) {
            (Some(rate), Some(known)) => known.learn_found(rate),
            // Others are to try.
            _ => self.claim = None,
        }
        *probe = Probe::Done;
        self.limit_unsent(socket);
        true
    }

    /// Keeps what was found of the way, for others over it.
    pub fn keep_found(&self, socket: &TcpStream, knowledge: &Knowledge) {
        if let Some(known) = &self.known {
            knowledge.keep_found(socket, known);
        }
    }

    /// Keeps what was learned of the connection, for jobs to come.
    pub fn keep(&mut self, socket: &TcpStream, knowledge: &Knowledge) {
        if let Some(known) = &mut self.known {
            knowledge.keep(socket, known, self.probe.is_beginning());
        }
    }
}

/// Padding that the kernel has and has not sent: a millisecond's at a gigabit per second.
const PADDING_UNSENT: u32 = 128 << 10;
/// How long another connection is left to find out what the way carries.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long what the kernel has not sent keeps a far link busy: the thread that stands by looks in this time, also
/// where ranks share cores.
const UNSENT_NS: u64 = 4_000_000;
pub(super) const UNSENT_MIN: u32 = 256 << 10;
