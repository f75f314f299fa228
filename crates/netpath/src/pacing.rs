//! Pacing of one connection: the known cost of its path, the probe that measures it, and the limit on unsent bytes in
//! the kernel.
//!
//! The owner of the connection sends the padding: as much as [`allowance`](Pacing::allowance) permits while nothing
//! else is to be sent. It then [reports](Pacing::handle_padded) how much has gone.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cost::Cost;
use socket2::SockRef;

use crate::congestion::{Bbr, Congestion};
use crate::knowledge::{Knowledge, KnownPath};
use crate::measure::{Pace, TcpSample};
use crate::probe::{Probe, Progress};
use crate::probe_lock::ProbeLock;
use crate::relay_info::RelayInfo;
use crate::{measure, path_probe, rto};

/// Pacing state of one connection.
pub struct Pacing {
    /// Cost of the connection, if the kernel reports it.
    pub known: Option<KnownPath>,
    /// Rate of the path in earlier jobs, in bytes per second.
    remembered: Option<u64>,
    /// True if the path is so long that unsent bytes here matter. Links of ranks then keep their frames, to be able
    /// to reconnect.
    pub is_wan: bool,
    /// The bandwidth probe of the path, if one is needed.
    pub probe: Probe,
    /// BBR on the connection, once started.
    pub bbr: Option<Bbr>,
    /// The lock that makes this connection probe the path, while others wait for its result.
    probe_lock: Option<ProbeLock>,
    /// Deadline until which another connection may probe the path.
    waits_until: Option<Instant>,
    /// True until cwnd has room for long padding.
    is_narrow: bool,
}

impl Pacing {
    /// Pacing of a connection that has just opened; `relay_info` describes the path behind its end.
    pub fn new(
        socket: &TcpStream,
        relay_info: RelayInfo,
        knowledge: &Knowledge,
        congestion: &Congestion,
    ) -> Self {
        let known = knowledge.first(socket, relay_info.round_trip);
        let round_trip = known.as_ref().and_then(|known| known.round_trip);
        let probe = congestion.choose(socket, round_trip.unwrap_or_default(), relay_info);
        let is_wan = known
            .as_ref()
            .is_some_and(|known| known.cost.round_trip_ns() >= path_probe::WAN_RTT_NS);
        let pacing = Self::with(known, is_wan, probe, None);
        if pacing.probe.is_due() {
            measure::open_receive_window(socket);
        }
        pacing.set(socket);
        pacing
    }

    /// Pacing of a connection from its parts.
    pub fn with(known: Option<KnownPath>, is_wan: bool, probe: Probe, bbr: Option<Bbr>) -> Self {
        let remembered = known.as_ref().and_then(KnownPath::remembered_rate);
        let (probe_lock, waits_until, is_narrow) = (None, None, true);
        Self { known, remembered, is_wan, probe, bbr, probe_lock, waits_until, is_narrow }
    }

    /// Predicted cost of the connection, if known.
    pub fn cost(&self) -> Option<Cost> {
        self.known.as_ref().map(|known| known.cost)
    }

    /// Updates the predicted cost after the network took more bytes. Returns true if it changed clearly. `has_more`
    /// tells that bytes wait outside the kernel.
    pub fn look(&mut self, socket: &TcpStream, has_more: bool) -> bool {
        if let Some(known) = &mut self.known {
            known.look(socket);
        }
        self.measure(socket, has_more)
    }

    /// Measures the rate of the path on what was acknowledged. Called repeatedly from the moment a long frame leaves.
    /// Returns true if the predicted cost changed clearly. During startup, and at a limit of its own, the connection
    /// says little of the path.
    pub fn measure(&mut self, socket: &TcpStream, has_more: bool) -> bool {
        let Some(known) = &mut self.known else { return false };
        if self.probe.is_beginning() || self.bbr.as_ref().is_some_and(Bbr::is_sharing) {
            known.stop_measuring();
            return false;
        }
        known.measure(socket, has_more)
    }

    /// True if the rate is being measured, so that further looks are due.
    pub fn is_measuring(&self) -> bool {
        self.known.as_ref().is_some_and(KnownPath::is_measuring)
    }

    /// Starts the probe if it is due. Returns true if it started.
    pub fn begin_probe(&mut self, socket: &TcpStream) -> bool {
        if !self.probe.is_due() {
            return false;
        }
        if !self.probe.is_behind() && !Bbr::prepare(socket) {
            self.probe = Probe::Done;
            return false;
        }
        let known = self.known.as_ref().and_then(KnownPath::remembered_rate);
        self.probe.begin(Instant::now(), known);
        self.limit_unsent(socket);
        true
    }

    /// Starts the probe or the warm-up of one connection among others of this host over the same path. One of them
    /// probes it. Once its rate is remembered, cwnd is [warmed up](Self::warm_up): by one connection when it opens, by
    /// the others when they have long frames.
    pub fn begin_among(&mut self, socket: &TcpStream, knowledge: &Knowledge, opens: bool) -> bool {
        if !self.probe.is_due() {
            return false;
        }
        let now = Instant::now();
        if self.probe.is_behind() {
            return self.begin_probe(socket);
        }
        if self.waits_until.is_some_and(|until| now < until) {
            return false;
        }
        let known = self.known.as_mut().and_then(|known| known.recall(socket, knowledge));
        if self.probe_lock.is_none() && (opens || known.is_none()) {
            self.probe_lock = knowledge.probe_lock(socket);
            if self.probe_lock.is_none() {
                self.waits_until = (!opens).then_some(now + PROBE_WAIT);
                return false;
            }
        }
        match known {
            Some(rate) => self.begin_warmup(socket, rate, now),
            None => self.begin_probe(socket),
        }
    }

    fn begin_warmup(&mut self, socket: &TcpStream, rate: u64, now: Instant) -> bool {
        let window = TcpSample::of(socket).ok().filter(|_| Bbr::prepare(socket));
        match window {
            Some(sample) => self.probe.begin_warmup(now, rate, sample.window()),
            None => self.probe = Probe::Done,
        }
        self.probe.is_beginning()
    }

    /// Number of short padding packets to send now; the caller reports them [when sent](Self::handle_warmup_sent).
    pub fn warm_up(&mut self, socket: &TcpStream, now: Duration) -> u64 {
        let Probe::CwndWarmup(warmup) = &mut self.probe else { return 0 };
        let sample = TcpSample::of(socket).ok();
        let next = sample.and_then(|sample| warmup.handle_look(sample.window(), Instant::now()));
        if next.is_none() {
            self.bbr = Bbr::begin(socket, Some(warmup.rate()), now);
            self.probe = Probe::Done;
            self.limit_unsent(socket);
        }
        next.unwrap_or(0)
    }

    /// Records that `packets` warm-up packets were sent.
    pub fn handle_warmup_sent(&mut self, packets: u64) {
        if let Probe::CwndWarmup(warmup) = &mut self.probe {
            warmup.handle_sent(packets);
        }
    }

    /// Sets the socket options that hold from the beginning.
    pub fn set(&self, socket: &impl AsFd) {
        self.limit_unsent(socket);
        if self.is_wan {
            rto::lower_rto(socket);
        }
    }

    /// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`) of a WAN link to what it carries until the next
    /// look. Later frames can then pass the rest, and credit from the receiver arrives soon.
    pub fn limit_unsent(&self, socket: &impl AsFd) {
        let most = if self.probe.is_running() && self.probe.is_behind() {
            PADDING_UNSENT
        } else if self.probe.is_running() {
            // A frame waits behind these bytes, and they leave at the pace of cwnd.
            let in_flight = TcpSample::of(socket).map_or(0, |sample| sample.window().bytes());
            u32::try_from(in_flight).unwrap_or(u32::MAX).clamp(PADDING_UNSENT_MIN, PADDING_UNSENT)
        } else if self.is_wan {
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

    /// Keeps the link at its known rate.
    pub fn keep_pace(&mut self, socket: &TcpStream, now: Duration) {
        if let (Some(bbr), Probe::Done) = (&mut self.bbr, &self.probe) {
            let rate = self.known.as_ref().and_then(KnownPath::remembered_rate);
            bbr.look(socket, rate, now);
        }
    }

    /// Adapts the startup cap and the fairness limit to what was acknowledged. Called repeatedly from the moment a
    /// long frame leaves. Returns true if further calls are needed.
    pub fn adapt_cap(&mut self, socket: &TcpStream) -> bool {
        let sight = if self.is_wan { measure::shared_sight(socket) } else { None };
        if let (Some(known), Some(sight)) = (&mut self.known, &sight) {
            known.record(sight);
        }
        match (&mut self.bbr, &self.probe) {
            (Some(bbr), Probe::Done) => {
                let now = Instant::now();
                if let Some(sight) = sight {
                    bbr.share(socket, &sight, self.remembered, now);
                }
                bbr.adapt_cap(socket, now)
            }
            _ => false,
        }
    }

    /// Number of packets of short padding to send now, while cwnd is small: they open it as long ones do, and the first
    /// frames of the connection find room. `None` once long padding may go.
    pub fn short_padding(&mut self, socket: &TcpStream) -> Option<u64> {
        if !self.is_narrow || self.probe.is_behind() {
            return None;
        }
        let window = TcpSample::of(socket).ok()?.window();
        self.is_narrow = window.packets < NARROW && !window.has_lost;
        let room = window.packets.saturating_sub(window.under_way + ROOM_LEFT);
        self.is_narrow.then_some(room)
    }

    /// Records that `count` bytes of padding were sent, and whether more may go. Returns true if this was the last.
    pub fn handle_padded(
        &mut self,
        socket: &TcpStream,
        count: usize,
        may_go_on: bool,
        now: Duration,
    ) -> bool {
        let Self { probe, known, bbr, .. } = self;
        let (is_own, mut has_lost, mut has_looked) = (!probe.is_behind(), false, false);
        let (has_begun, passed, padded) = (bbr.is_some(), probe.passed(), probe.padded());
        let look = || {
            let sample = TcpSample::of(socket).ok()?;
            has_looked = true;
            has_lost = sample.retransmits > 0;
            Some(sample.sight())
        };
        let progress = probe.handle_padded(count, Instant::now(), look);
        let goes_on = progress == Progress::Going && may_go_on;
        let found = match progress {
            Progress::Found(rate) => Some(rate),
            Progress::Going | Progress::Ended => None,
        };
        if is_own && (found.is_some() || !has_begun && (has_lost || !goes_on)) {
            *bbr = Bbr::begin(socket, found.or(passed.filter(|_| !goes_on)), now);
        }
        if goes_on {
            if has_looked {
                self.limit_unsent(socket);
            }
            return false;
        }
        match (found, known) {
            (Some(rate), Some(known)) => known.learn_found(rate, padded + count as u64),
            // Other connections may try.
            _ => self.probe_lock = None,
        }
        *probe = Probe::Done;
        self.limit_unsent(socket);
        true
    }

    /// Stores the result of the probe for other processes of this host.
    pub fn keep_found(&self, socket: &TcpStream, knowledge: &Knowledge) {
        if let Some(known) = &self.known {
            knowledge.keep_found(socket, known);
        }
    }

    /// Stores what was learned of the connection, for later jobs.
    pub fn keep(&mut self, socket: &TcpStream, knowledge: &Knowledge) {
        if let Some(known) = &mut self.known {
            knowledge.keep(socket, known);
        }
    }
}

/// Packets in cwnd from which on padding may be long.
const NARROW: u64 = 48;
/// Packets of room that short padding leaves for frames.
const ROOM_LEFT: u64 = 4;
/// Most unsent padding in the kernel: a millisecond's worth at a gigabit per second.
const PADDING_UNSENT: u32 = 128 << 10;
/// Limit of it while cwnd is small.
const PADDING_UNSENT_MIN: u32 = 8 << 10;
/// Time that another connection has to probe the path.
const PROBE_WAIT: Duration = Duration::from_millis(20);
/// Time that the unsent bytes keep a WAN link busy. The progress thread looks within this time, also when
/// oversubscribed.
const UNSENT_NS: u64 = 4_000_000;
pub const UNSENT_MIN: u32 = 256 << 10;
