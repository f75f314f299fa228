//! Congestion control: the estimate of a path, and the bytes that may therefore be in flight.
//!
//! The controller is made for messages: bursts separated by silence. Silence does not change what a path carries, so
//! the estimate does not decay. The delivery rate is measured on packet trains, however short the message. If ACKs
//! arrive more slowly than the packets left, the network has set the rate; otherwise the path carries at least that
//! rate. The estimate is the maximum of the last rounds, as in BBR. A train is what left without a pause of the
//! sender's own: a sender without data would look like a slow path. One round in ten leaves 25 % faster, to probe for
//! more bandwidth. So does the first round after silence, because the queue it may cause is gone in the next.
//!
//! More than one BDP may be in flight, so that late ACKs and lost packets do not stop the sender. The pace, not the
//! window, keeps the queue short. If packets queue, the pace is a little below the estimate, but high enough to
//! confirm it. Occasional losses do not mean that the path is full. Many losses with a standing queue do, and so does
//! a very high loss rate. The sender then reduces its window to 0.7 of the bytes in flight, as CUBIC does, and its
//! rate to the delivery rate. A queue alone is no reason: a flow that fills every buffer would take the whole path.
//! It only limits the sender to its [fair share](Fairness).
//!
//! Sources: BBR (Cardwell et al., 2016), packet trains (Jain and Routhier, 1986).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cost::{RateMeter, RateSample, Traffic};
use netpath::{Fairness, LossPattern, ShareSample};

/// Estimate of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    /// Bandwidth, including packet headers except those of IP and UDP.
    pub bytes_per_s: f64,
    /// True if the bandwidth is that of a long flow, and not of a short burst.
    pub is_conclusive: bool,
    /// Minimum round trip.
    pub round_trip: Duration,
}

impl Path {
    /// True if enough packets for a train pass while one lasts. A lower rate is not a measurement: a starved job has
    /// fallen to it, and would never leave it again.
    fn is_measurable(&self) -> bool {
        let span = 2.0 * self.round_trip.max(TRAIN_MIN).as_secs_f64();
        self.bytes_per_s * span > (TRAIN_PACKETS * PACKET_BYTES) as f64
    }
}

/// The sender's model of a path. Inputs: [`handle_sent`](Self::handle_sent), [`handle_ack`](Self::handle_ack) for
/// each packet and [`handle_acks_end`](Self::handle_acks_end) after them, [`handle_loss`](Self::handle_loss),
/// [`handle_drained`](Self::handle_drained). Outputs: [`window`](Self::window), [`pace`](Self::pace).
#[derive(Debug)]
pub(super) struct Model {
    phase: Phase,
    round_trip: Floor,
    /// Estimated bandwidth in bytes per second.
    rate: f64,
    /// Rates of the last rounds that measured one, oldest first.
    rates: VecDeque<f64>,
    /// Bytes sent, and bytes declared lost.
    sent: u64,
    lost: u64,
    spread: LossPattern,
    queue: Queue,
    /// Bytes acknowledged.
    delivered: u64,
    in_flight: u64,
    /// Recent ACKs of the current train.
    train: VecDeque<Point>,
    /// Departure of the first packet of the train.
    train_begin: Option<Instant>,
    /// True if almost nothing was in flight when the train began.
    follows_silence: bool,
    /// Time since which there is nothing to send.
    drained: Option<Instant>,
    /// Departure of the newest packet in the current ACK frame, and the acknowledged bytes.
    newest: Option<Instant>,
    arriving: u64,
    /// Departure of the last tail duplicate.
    duplicated: Option<Instant>,
    round: Round,
    /// Acknowledged and lost bytes of recent rounds, up to one BDP.
    lately: (u64, u64),
    /// Queueing delay of the last round.
    waited: Duration,
    /// Limit of bytes in flight since the path was full; grows with every round.
    ceiling: Option<f64>,
    mtu: u64,
    /// Limit that leaves other flows their share.
    fairness: Fairness,
    /// The rate that the path sustains, for predictions, and the clock of its samples.
    meter: RateMeter,
    begin: Option<Instant>,
    /// Estimate of earlier jobs.
    known: Option<Path>,
    /// Estimate last reported.
    told: Option<Path>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The bandwidth is unknown: the window doubles each round until the rate stops growing (BBR startup).
    Startup { window: f64, best: f64, stalled: u8 },
    /// The bandwidth is known. `rounds` counts from the last faster round.
    Cruise { rounds: u8 },
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    delivered: u64,
    /// Departure of the newest packet it acknowledges.
    sent: Instant,
}

/// A round: from the departure of a packet to its acknowledgement.
#[derive(Debug, Default)]
struct Round {
    /// The round ends when a packet that left later is acknowledged.
    begin: Option<Instant>,
    arrived: u64,
    lost: u64,
    is_marked: bool,
    most_in_flight: u64,
    least_round_trip: Option<Duration>,
    most_round_trip: Option<Duration>,
    /// Maximum measured rate, and if the network had set it.
    rate: f64,
    is_network_rate: bool,
}

impl Model {
    /// Creates the model of a path, with the estimate of earlier jobs if there is one.
    pub fn new(known: Option<Path>) -> Self {
        let conclusive = known.filter(|path| path.is_conclusive);
        let known = known.filter(Path::is_measurable);
        let phase = match known {
            Some(_) => Phase::Cruise { rounds: 1 },
            None => Phase::Startup { window: WINDOW_FIRST, best: 0.0, stalled: 0 },
        };
        Self {
            phase,
            round_trip: Floor::new(known.map(|path| path.round_trip)),
            rate: known.map_or(RATE_FIRST, |path| path.bytes_per_s.clamp(RATE_MIN, RATE_MAX)),
            rates: VecDeque::new(),
            sent: 0,
            lost: 0,
            spread: LossPattern::default(),
            queue: Queue::default(),
            delivered: 0,
            in_flight: 0,
            train: VecDeque::new(),
            train_begin: None,
            follows_silence: false,
            drained: None,
            newest: None,
            arriving: 0,
            duplicated: None,
            round: Round::default(),
            lately: (0, 0),
            waited: Duration::ZERO,
            ceiling: None,
            mtu: 1200,
            fairness: Fairness::default(),
            meter: RateMeter::new(conclusive.map(|path| path.bytes_per_s as u64)),
            begin: None,
            known,
            told: None,
        }
    }

    /// Returns the measured estimate, once there is one.
    pub fn path(&self) -> Option<Path> {
        let round_trip = self.round_trip.least()?;
        let is_learned = !self.rates.is_empty() && matches!(self.phase, Phase::Cruise { .. });
        let paced = is_learned.then_some(self.rate);
        let shown = self.meter.bytes_per_s().filter(|_| self.meter.has_measured());
        let bytes_per_s = shown.map(|rate| rate as f64).or(paced)?;
        Some(Path { bytes_per_s, is_conclusive: self.meter.is_conclusive(), round_trip })
    }

    /// Returns the traffic statistics other than rate and round trip.
    pub fn traffic(&self) -> Traffic {
        let queue =
            self.path().map_or(0.0, |path| path.bytes_per_s * self.queue.longest.as_secs_f64());
        let seen = Traffic::new(self.sent, self.lost, queue as u64);
        seen.with_stretches(self.spread.counted())
    }

    /// Returns the measured estimate, or else that of earlier jobs.
    pub fn known(&self) -> Option<Path> {
        self.path().or(self.known)
    }

    /// Returns the measured estimate if it differs from the one last reported.
    pub fn lesson(&mut self) -> Option<Path> {
        let path = self.path()?;
        let differs = |told: Path| {
            let by = |one: f64, other: f64| (one / other - 1.0).abs() > TELLING;
            by(path.bytes_per_s, told.bytes_per_s)
                || path.is_conclusive != told.is_conclusive
                || by(path.round_trip.as_secs_f64(), told.round_trip.as_secs_f64())
        };
        let is_new = self.told.is_none_or(differs);
        is_new.then(|| *self.told.insert(path))
    }

    /// Returns the congestion window in bytes.
    pub fn window(&self) -> u64 {
        let window = match self.phase {
            Phase::Startup { window, .. } => window,
            Phase::Cruise { .. } => {
                let window = WINDOW_GAIN * self.bdp() + self.rate * LATE.as_secs_f64();
                window.min(self.ceiling.unwrap_or(f64::MAX))
            }
        };
        (window as u64).clamp(WINDOW_MIN_PACKETS * self.mtu, WINDOW_MAX)
    }

    /// Returns the number of bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the pacing rate in bytes per second.
    pub fn pace(&self) -> f64 {
        let pace = match self.phase {
            Phase::Startup { window, .. } => {
                let round_trip = self.least();
                let of_window = window / round_trip.as_secs_f64();
                (STARTUP_GAIN * self.rate.max(of_window)).max(WINDOW_FIRST / BURST.as_secs_f64())
            }
            Phase::Cruise { rounds: 0 } => PROBE_GAIN * self.rate,
            Phase::Cruise { .. } if self.has_queue() => DRAIN_GAIN * self.rate,
            Phase::Cruise { .. } if self.is_first() => PROBE_GAIN * self.rate,
            Phase::Cruise { .. } => self.rate,
        };
        let most = self.fairness.most().map_or(RATE_MAX, |most| most as f64);
        pace.min(most).clamp(RATE_MIN, RATE_MAX)
    }

    /// Records a sent ack-eliciting packet.
    pub fn handle_sent(&mut self, now: Instant, bytes: u64) {
        let drained = self.drained.take();
        let is_silent = self.in_flight as f64 <= self.bdp() / SILENCE;
        let begins = |since| is_silent || now.saturating_duration_since(since) > PAUSE;
        if self.in_flight == 0 || drained.is_some_and(begins) {
            // ACKs of earlier packets say nothing about the new train.
            self.train.clear();
            self.train_begin = Some(now);
            self.follows_silence = is_silent;
        }
        self.sent += bytes;
        self.spread.look(self.sent, self.lost.div_ceil(self.mtu));
        self.in_flight += bytes;
        self.round.most_in_flight = self.round.most_in_flight.max(self.in_flight);
        self.round.begin.get_or_insert(now);
    }

    /// Records that nothing is left to send.
    pub fn handle_drained(&mut self, now: Instant) {
        self.drained.get_or_insert(now);
    }

    /// Records a sent tail duplicate. Its ACK is not measured, because it waited for other data.
    pub fn handle_duplicate(&mut self, now: Instant) {
        self.duplicated = Some(now);
    }

    /// Records an acknowledged packet.
    pub fn handle_ack(&mut self, sent: Instant, bytes: u64) {
        if self.duplicated == Some(sent) {
            return;
        }
        self.arriving += bytes;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.newest = Some(self.newest.map_or(sent, |newest| newest.max(sent)));
    }

    /// Completes an ACK frame; `in_flight` bytes remain in flight.
    pub fn handle_acks_end(&mut self, now: Instant, in_flight: u64) {
        self.in_flight = in_flight;
        let Some(sent) = self.newest.take() else { return };
        let arriving = std::mem::take(&mut self.arriving);
        self.delivered += arriving;
        self.round.arrived += arriving;
        let round_trip = now.saturating_duration_since(sent);
        self.round_trip.observe(now, round_trip);
        let waits = round_trip.saturating_sub(self.least());
        self.queue.observe(waits);
        self.share(now, waits);
        self.meter_rate(now);
        let least = &mut self.round.least_round_trip;
        *least = Some(least.map_or(round_trip, |least| least.min(round_trip)));
        self.round.most_round_trip = self.round.most_round_trip.max(Some(round_trip));
        if self.train_begin.is_some_and(|begin| sent >= begin) {
            let point = Point { at: now, delivered: self.delivered, sent };
            self.measure(&point);
            self.train.push_back(point);
        }
        if let Phase::Startup { window, .. } = &mut self.phase
            && self.round.most_in_flight as f64 > *window / 2.0
        {
            *window += arriving as f64;
        }
        if self.round.begin.is_some_and(|begin| sent >= begin) {
            self.end_round(now);
        }
    }

    /// Records that the peer takes no more data at the moment.
    pub fn handle_blocked(&mut self) {
        self.meter.end_run();
    }

    /// Gives the rate meter a sample, unless a limit of its own holds the sender back.
    fn meter_rate(&mut self, now: Instant) {
        if self.fairness.most().is_some() {
            return self.meter.end_run();
        }
        let begin = *self.begin.get_or_insert(now);
        self.meter.handle_sample(RateSample {
            at_ns: now.saturating_duration_since(begin).as_nanos() as u64,
            arrived: self.delivered,
            in_flight: self.in_flight,
            is_backlogged: self.drained.is_none(),
            limited_ns: 0,
        });
    }

    /// Records bytes declared lost.
    pub fn handle_loss(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.round.lost += bytes;
        self.lost += bytes;
    }

    /// Records an ECN congestion mark.
    pub fn handle_mark(&mut self) {
        self.round.is_marked = true;
    }

    /// Handles persistent congestion: the path has failed or has changed.
    pub fn handle_collapse(&mut self) {
        self.back_off();
    }

    /// Sets the maximum packet size.
    pub fn set_mtu(&mut self, bytes: u16) {
        self.mtu = bytes.into();
    }

    /// Updates the fair-share limit from the queueing delay.
    fn share(&mut self, now: Instant, waits: Duration) {
        let sight = ShareSample {
            least: self.least(),
            waits,
            confirmed: self.delivered,
            lost: self.lost,
            is_busy: self.drained.is_none(),
        };
        self.fairness.look(now, &sight, self.known.map(|path| path.bytes_per_s as u64));
    }

    /// Measures the rate of the train that ends with `point`.
    fn measure(&mut self, point: &Point) {
        let span = self.least().max(TRAIN_MIN) * 2;
        while self.train.len() > TRAIN_POINTS
            || self.train.front().is_some_and(|first| point.at - first.at > span)
        {
            self.train.pop_front();
        }
        let Some(first) = self.train.front() else { return };
        let bytes = point.delivered - first.delivered;
        let arrival = point.at.saturating_duration_since(first.at);
        let departure = point.sent.saturating_duration_since(first.sent);
        let long_enough = self.rate * TRAIN_MIN.as_secs_f64();
        if arrival < TRAIN_MIN
            || (bytes as f64) < long_enough.max((TRAIN_PACKETS * self.mtu) as f64)
        {
            return;
        }
        let rate = bytes as f64 / arrival.max(departure).as_secs_f64();
        let is_network_rate = arrival > departure.mul_f64(SLOWER);
        self.round.is_network_rate |= is_network_rate;
        if is_network_rate {
            self.round.rate = self.round.rate.max(rate);
        } else if rate > self.rate * AS_FAST {
            // The path carries the rate it was given, or the estimate if that is higher.
            self.round.rate = self.round.rate.max(rate.max(self.rate));
        }
        if let Phase::Startup { .. } = self.phase {
            self.rate = self.rate.max(rate).min(RATE_MAX);
        }
    }

    fn end_round(&mut self, now: Instant) {
        let round = std::mem::take(&mut self.round);
        let before = self.rate;
        let is_congested = self.is_congested(&round);
        self.lately = if is_congested { (0, 0) } else { self.with_lately(&round) };
        if is_congested {
            self.handle_congestion(&round);
        } else if round.rate > 0.0 {
            // A single train that arrives compressed must not raise the estimate much.
            self.rates.push_back(round.rate.min(self.rate * RISE_MAX));
            if self.rates.len() > RATES {
                self.rates.pop_front();
            }
            self.rate = self.greatest();
        }
        self.go_on(&round, self.rate > before * RISEN);
        self.waited = self.queue_of(&round);
        self.round.begin = (self.in_flight > 0).then_some(now);
        self.round.most_in_flight = self.in_flight;
    }

    fn go_on(&mut self, round: &Round, has_risen: bool) {
        let was_busy = round.most_in_flight as f64 > self.bdp() / 2.0;
        match &mut self.phase {
            Phase::Startup { best, stalled, .. } => {
                if round.rate > *best * GROWING {
                    *best = round.rate;
                    *stalled = 0;
                } else if round.is_network_rate {
                    *stalled += 1;
                    if *stalled >= STALLED_MAX {
                        self.phase = Phase::Cruise { rounds: 1 };
                    }
                }
            }
            Phase::Cruise { rounds } if was_busy => {
                // After a rise there may be still more bandwidth: probe again.
                *rounds = if has_risen { 0 } else { (*rounds + 1) % CYCLE };
                if let Some(ceiling) = self.ceiling {
                    let grown = ceiling + self.bdp() / REGROWTH_ROUNDS;
                    let is_over = grown > WINDOW_GAIN * self.bdp();
                    self.ceiling = (!is_over).then_some(grown);
                }
            }
            Phase::Cruise { .. } => {}
        }
    }

    /// True if the round shows a full path: the loss rate is high and packets have queued, or the loss rate is very
    /// high. A round may be as short as the retransmissions of the one before, so the losses of recent rounds count
    /// too.
    fn is_congested(&self, round: &Round) -> bool {
        let (arrived, lost) = (self.lately.0 + round.arrived, self.lately.1 + round.lost);
        let share = lost as f64 / ((arrived + lost) as f64).max(1.0);
        let waited = round.most_round_trip.unwrap_or_default().saturating_sub(self.least());
        let is_many = share > LOST_MAX && lost >= LOST_PACKETS_MIN * self.mtu;
        round.is_marked || is_many && (waited > QUEUE_MIN || share > LOST_MOST)
    }

    /// Returns the acknowledged and lost bytes of recent rounds including this one.
    fn with_lately(&self, round: &Round) -> (u64, u64) {
        let (arrived, lost) = (self.lately.0 + round.arrived, self.lately.1 + round.lost);
        let part = (self.bdp() / ((arrived + lost) as f64).max(1.0)).min(1.0);
        ((arrived as f64 * part) as u64, (lost as f64 * part) as u64)
    }

    fn handle_congestion(&mut self, round: &Round) {
        let arrived = round.arrived as f64 / self.least().as_secs_f64();
        match self.phase {
            Phase::Startup { .. } if !round.is_network_rate => self.rate = self.rate.max(arrived),
            Phase::Startup { .. } => self.rate = round.rate,
            Phase::Cruise { .. } if round.is_network_rate => {
                self.rate = round.rate.clamp(self.rate * BACK_OFF, self.rate) * YIELD;
            }
            Phase::Cruise { .. } => self.rate *= YIELD,
        }
        // Older and higher rates are obsolete.
        self.rates.clear();
        self.rates.push_back(self.rate);
        self.ceiling = Some((round.most_in_flight as f64 * BACK_OFF).max(self.bdp() / 2.0));
        self.phase = Phase::Cruise { rounds: 1 };
    }

    fn back_off(&mut self) {
        self.ceiling = Some(self.bdp() / 2.0);
        self.phase = Phase::Cruise { rounds: 1 };
    }

    fn greatest(&self) -> f64 {
        self.rates.iter().copied().fold(RATE_MIN, f64::max)
    }

    /// Returns the BDP in bytes.
    fn bdp(&self) -> f64 {
        self.rate * self.least().as_secs_f64()
    }

    /// True for the first packets after silence: none of the train was acknowledged yet.
    fn is_first(&self) -> bool {
        self.follows_silence && self.train.is_empty()
    }

    /// True if packets queue in the network: in the last round, and so far in this one.
    fn has_queue(&self) -> bool {
        let has_heard = self.round.least_round_trip.is_some();
        let waits =
            if has_heard { self.waited.min(self.queue_of(&self.round)) } else { self.waited };
        waits > self.least() / 8
    }

    /// Returns the queueing delay of a round, without the lateness of the hosts.
    fn queue_of(&self, round: &Round) -> Duration {
        let least = self.least();
        round.least_round_trip.unwrap_or(least).saturating_sub(least + QUEUE_MIN)
    }

    fn least(&self) -> Duration {
        self.round_trip.least().unwrap_or(ROUND_TRIP_FIRST).max(ROUND_TRIP_MIN)
    }
}

/// Longest queueing delay, as the minimum over several consecutive ACKs, because hosts acknowledge late.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    longest: Duration,
    /// Minimum of the current series, and its length.
    least: Duration,
    count: u8,
}

impl Queue {
    fn observe(&mut self, wait: Duration) {
        self.least = if self.count == 0 { wait } else { self.least.min(wait) };
        self.count += 1;
        if self.count == QUEUE_ACKS {
            let is_seen = self.least > QUEUE_MIN;
            self.longest = if is_seen { self.longest.max(self.least) } else { self.longest };
            self.count = 0;
        }
    }
}

/// Windowed minimum over one to two minutes.
#[derive(Clone, Copy, Debug)]
struct Floor {
    before: Option<Duration>,
    now: Option<Duration>,
    since: Option<Instant>,
}

impl Floor {
    fn new(known: Option<Duration>) -> Self {
        Self { before: known, now: None, since: None }
    }

    fn least(&self) -> Option<Duration> {
        match (self.before, self.now) {
            (Some(before), Some(now)) => Some(before.min(now)),
            (before, now) => before.or(now),
        }
    }

    fn observe(&mut self, now: Instant, value: Duration) {
        if self.now.is_none_or(|least| value < least) {
            self.now = Some(value);
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > FLOOR_EVERY {
            *self = Self { before: self.now, now: None, since: Some(now) };
        }
    }
}

/// Initial window of an unknown path, in bytes.
const WINDOW_FIRST: f64 = 65_536.0;
/// Time within which the initial window leaves.
const BURST: Duration = Duration::from_micros(500);
const RATE_FIRST: f64 = 1_000_000.0;
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(10);
/// Lower bound of the round trip.
const ROUND_TRIP_MIN: Duration = Duration::from_micros(10);
const STARTUP_GAIN: f64 = 2.0;
/// Startup ends when the rate grows by less than this factor per round…
const GROWING: f64 = 1.2;
/// …for this many rounds.
const STALLED_MAX: u8 = 2;

/// Relative difference that is worth a report.
const TELLING: f64 = 0.05;

const PROBE_GAIN: f64 = 1.25;
/// Pace while packets queue; above [`AS_FAST`], so that it still confirms the rate.
const DRAIN_GAIN: f64 = 0.95;
/// Rounds from one faster round to the next.
const CYCLE: u8 = 10;
/// Number of rounds in the maximum filter.
const RATES: usize = 12;

/// Minimum duration of a train, both as it arrives and at the estimated rate. Processes are woken late and
/// acknowledge late by 1 to 3 ms, which must be small in comparison.
const TRAIN_MIN: Duration = Duration::from_millis(6);
const TRAIN_PACKETS: u64 = 24;
/// Pause without data after which a new train begins: the pause was not caused by the network.
const PAUSE: Duration = Duration::from_millis(1);
/// Divisor of the BDP below which almost nothing is in flight.
const SILENCE: f64 = 8.0;
const TRAIN_POINTS: usize = 512;
/// Maximum packet size on Ethernet.
const PACKET_BYTES: u64 = 1472;
/// Ratio of arrival to departure time from which on the network has set the rate.
const SLOWER: f64 = 1.03;
/// Fraction of the estimate that a train must reach to confirm it.
const AS_FAST: f64 = 0.9;
/// Maximum rise of the estimate per round.
const RISE_MAX: f64 = 1.25;
/// Ratio to the previous estimate that counts as a rise.
const RISEN: f64 = 1.08;

/// Loss rate above which the path is full if packets queue…
const LOST_MAX: f64 = 0.03;
/// …given at least this many lost packets: at 1 % random loss, a message of 64 KB sometimes loses three…
const LOST_PACKETS_MIN: u64 = 6;
/// …and above which it is full without a queue, because a short buffer may not show one.
const LOST_MOST: f64 = 0.1;
/// Queueing delay below which the hosts may be the cause.
const QUEUE_MIN: Duration = Duration::from_micros(1500);
/// Consecutive ACKs that a queue must delay: a few dozen packets.
const QUEUE_ACKS: u8 = 8;
const BACK_OFF: f64 = 0.7;
/// Part of its rate that a sender keeps on a full path, so that other flows can grow.
const YIELD: f64 = 0.85;
/// Rounds in which the ceiling grows by one BDP.
const REGROWTH_ROUNDS: f64 = 64.0;

/// Congestion window in BDPs…
const WINDOW_GAIN: f64 = 1.6;
/// …plus a reserve for late ACKs.
const LATE: Duration = Duration::from_millis(4);
const WINDOW_MIN_PACKETS: u64 = 16;
const WINDOW_MAX: u64 = 256 << 20;
const RATE_MIN: f64 = 100_000.0;
const RATE_MAX: f64 = 12.5e9;
const FLOOR_EVERY: Duration = Duration::from_secs(60);
