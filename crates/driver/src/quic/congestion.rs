//! What a path carries, learned from what arrives, and how much may therefore be under way.
//!
//! Made for messages: a burst, then silence, then a burst again. What a path carries does not change by
//! silence, so nothing is unlearned by it. The rate is measured on trains of packets, however short the
//! message was: where acknowledgements come in more slowly than the packets had left, the network has set
//! their pace; where they do not, the path carries at least as much. The greatest of the last rounds is what
//! the path carries. A train is what left without a pause of the sender's own: one that had nothing to
//! send, while a word was under way, would pass for a slow path. About once in ten rounds a round leaves a
//! quarter faster, to find out whether there is more; and so does the first behind a silence, for the queue
//! that it may make is gone in the next.
//!
//! More than is in flight at that rate may be under way, so that late acknowledgements and lost packets do
//! not stop the sender; the pace, not the window, keeps the queue short: where packets wait it is a little less than
//! what the path carries, and no less than shows that it carries as much. Packets that are lost now and
//! then do not say that the path is full. Many do, where a queue stands, and most: then
//! the sender goes back to seven tenths of what was under way, as CUBIC does, and to the rate that arrived. A queue
//! alone is no reason, for a flow that fills every buffer would have the path for itself; it only has others
//! [keep their part](Fairness).
//!
//! Ideas: BBR (Cardwell et al., 2016), packet trains (Jain and Routhier, 1986).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Traffic;

use crate::fairness::{Fairness, ShareSample};
use crate::loss_pattern::LossPattern;

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    /// What it carries, packet headers included but for those of IP and UDP.
    pub bytes_per_s: f64,
    /// The least round trip.
    pub round_trip: Duration,
}

impl Path {
    /// Whether enough packets for a train pass while one lasts. A lower rate was not measured: a starved job has fallen
    /// to it, and would not leave it again.
    fn is_measurable(&self) -> bool {
        let span = 2.0 * self.round_trip.max(TRAIN_MIN).as_secs_f64();
        self.bytes_per_s * span > (TRAIN_PACKETS * PACKET_BYTES) as f64
    }
}

/// The sender's picture of a path. In: [`handle_sent`](Self::handle_sent), [`handle_ack`](Self::handle_ack)
/// for each packet and [`handle_acks_end`](Self::handle_acks_end) behind them,
/// [`handle_loss`](Self::handle_loss), [`handle_drained`](Self::handle_drained). Out:
/// [`window`](Self::window), [`pace`](Self::pace).
#[derive(Debug)]
pub(super) struct Model {
    phase: Phase,
    round_trip: Floor,
    /// What the path carries, in bytes per second, as far as known.
    rate: f64,
    /// The greatest rates of the last rounds that measured one, the oldest first.
    rates: VecDeque<f64>,
    /// Bytes that have left, and that were taken for lost.
    sent: u64,
    lost: u64,
    spread: LossPattern,
    queue: Queue,
    /// Bytes that have arrived.
    delivered: u64,
    in_flight: u64,
    /// Acknowledgements of late: a train, which left in one piece…
    train: VecDeque<Point>,
    /// …from then on…
    train_begin: Option<Instant>,
    /// …when next to nothing was under way.
    is_behind_silence: bool,
    /// Since when there is nothing to send.
    drained: Option<Instant>,
    /// Of the packets that the acknowledgement at hand names: when the newest left, and their bytes.
    newest: Option<Instant>,
    arriving: u64,
    /// When the last echo left.
    echoed: Option<Instant>,
    round: Round,
    /// Of rounds before, as far as that was under way at once: what arrived, and what was taken for lost.
    lately: (u64, u64),
    /// For how long packets waited in the network in the last round.
    waited: Duration,
    /// No more than this is under way since the path was full; grows with every round.
    ceiling: Option<f64>,
    mtu: u64,
    /// What is left to others.
    fairness: Fairness,
    /// What was known from before.
    known: Option<Path>,
    /// What was last told.
    told: Option<Path>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// What the path carries is not known: twice as much each round, until the rate stops growing.
    Startup { window: f64, best: f64, stalled: u8 },
    /// It is known. Rounds since the last one that left faster.
    Cruise { rounds: u8 },
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    delivered: u64,
    /// When the newest packet left of those acknowledged.
    sent: Instant,
}

/// From the moment when something leaves until it has arrived.
#[derive(Debug, Default)]
struct Round {
    /// Ends when something has arrived that left later than this.
    begin: Option<Instant>,
    arrived: u64,
    lost: u64,
    is_marked: bool,
    most_in_flight: u64,
    least_round_trip: Option<Duration>,
    most_round_trip: Option<Duration>,
    /// The greatest measured rate, and whether the network had set it.
    rate: f64,
    is_network_rate: bool,
}

impl Model {
    /// A path of which something may be known from before.
    pub fn new(known: Option<Path>) -> Self {
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
            is_behind_silence: false,
            drained: None,
            newest: None,
            arriving: 0,
            echoed: None,
            round: Round::default(),
            lately: (0, 0),
            waited: Duration::ZERO,
            ceiling: None,
            mtu: 1200,
            fairness: Fairness::default(),
            known,
            told: None,
        }
    }

    /// What was learned, once something was.
    pub fn path(&self) -> Option<Path> {
        let round_trip = self.round_trip.least()?;
        let is_learned = !self.rates.is_empty() && matches!(self.phase, Phase::Cruise { .. });
        is_learned.then_some(Path { bytes_per_s: self.rate, round_trip })
    }

    /// What was seen of the traffic, rate and round trip apart.
    pub fn traffic(&self) -> Traffic {
        let queue =
            self.path().map_or(0.0, |path| path.bytes_per_s * self.queue.longest.as_secs_f64());
        let seen = Traffic::new(self.sent, self.lost, queue as u64);
        seen.with_stretches(self.spread.counted())
    }

    /// What was learned, or else was known from before.
    pub fn known(&self) -> Option<Path> {
        self.path().or(self.known)
    }

    /// What was learned, if it differs from what was last told.
    pub fn lesson(&mut self) -> Option<Path> {
        let path = self.path()?;
        let differs = |told: Path| {
            let by = |one: f64, other: f64| (one / other - 1.0).abs() > TELLING;
            by(path.bytes_per_s, told.bytes_per_s)
                || by(path.round_trip.as_secs_f64(), told.round_trip.as_secs_f64())
        };
        let is_new = self.told.is_none_or(differs);
        is_new.then(|| *self.told.insert(path))
    }

    /// Bytes that may be under way.
    pub fn window(&self) -> u64 {
        let window = match self.phase {
            Phase::Startup { window, .. } => window,
            Phase::Cruise { .. } => {
                let window = WINDOW_GAIN * self.carried_at_once() + self.rate * LATE.as_secs_f64();
                window.min(self.ceiling.unwrap_or(f64::MAX))
            }
        };
        (window as u64).clamp(WINDOW_MIN_PACKETS * self.mtu, WINDOW_MAX)
    }

    /// Bytes that are under way.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// At which rate to send, in bytes per second.
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

    /// Something has left that will be acknowledged.
    pub fn handle_sent(&mut self, now: Instant, bytes: u64) {
        let drained = self.drained.take();
        let is_silent = self.in_flight as f64 <= self.carried_at_once() / SILENCE;
        let begins = |since| is_silent || now.saturating_duration_since(since) > PAUSE;
        if self.in_flight == 0 || drained.is_some_and(begins) {
            // Acknowledgements from before say nothing of the train that begins.
            self.train.clear();
            self.train_begin = Some(now);
            self.is_behind_silence = is_silent;
        }
        self.sent += bytes;
        self.spread.look(self.sent, self.lost.div_ceil(self.mtu));
        self.in_flight += bytes;
        self.round.most_in_flight = self.round.most_in_flight.max(self.in_flight);
        self.round.begin.get_or_insert(now);
    }

    /// There is nothing more to send for now.
    pub fn handle_drained(&mut self, now: Instant) {
        self.drained.get_or_insert(now);
    }

    /// Something has left that says nothing of the path when it arrives: it has let others go first.
    pub fn handle_echo(&mut self, now: Instant) {
        self.echoed = Some(now);
    }

    /// A packet has arrived.
    pub fn handle_ack(&mut self, sent: Instant, bytes: u64) {
        if self.echoed == Some(sent) {
            return;
        }
        self.arriving += bytes;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.newest = Some(self.newest.map_or(sent, |newest| newest.max(sent)));
    }

    /// All packets that an acknowledgement names have been handled; so much is still under way.
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

    /// Packets are taken for lost.
    pub fn handle_loss(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.round.lost += bytes;
        self.lost += bytes;
    }

    /// The network has marked packets instead of dropping them.
    pub fn handle_mark(&mut self) {
        self.round.is_marked = true;
    }

    /// Nothing has arrived for so long that the path must have failed, or be another one.
    pub fn handle_collapse(&mut self) {
        self.back_off();
    }

    /// The longest packet has changed.
    pub fn set_mtu(&mut self, bytes: u16) {
        self.mtu = bytes.into();
    }

    /// Leaves to others what is theirs, where packets wait for so long in the network.
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
            // The path carries what it was given, or all that it was believed to carry.
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
            // One train that comes bundled does not make a path much faster.
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
        let was_busy = round.most_in_flight as f64 > self.carried_at_once() / 2.0;
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
                // Where there was more, there may be more yet.
                *rounds = if has_risen { 0 } else { (*rounds + 1) % CYCLE };
                if let Some(ceiling) = self.ceiling {
                    let grown = ceiling + self.carried_at_once() / REGROWTH_ROUNDS;
                    let is_over = grown > WINDOW_GAIN * self.carried_at_once();
                    self.ceiling = (!is_over).then_some(grown);
                }
            }
            Phase::Cruise { .. } => {}
        }
    }

    /// Whether a round has shown that the path is full: more is lost than now and then, and packets have waited before
    /// that; or so much is that nothing else explains it. A round may be as short as the repeats of what was lost in the
    /// one before, so that what is lost counts beside all that was lately under way.
    fn is_congested(&self, round: &Round) -> bool {
        let (arrived, lost) = (self.lately.0 + round.arrived, self.lately.1 + round.lost);
        let share = lost as f64 / ((arrived + lost) as f64).max(1.0);
        let waited = round.most_round_trip.unwrap_or_default().saturating_sub(self.least());
        let is_many = share > LOST_MAX && lost >= LOST_PACKETS_MIN * self.mtu;
        round.is_marked || is_many && (waited > QUEUE_MIN || share > LOST_MOST)
    }

    /// What has arrived and what was lost lately, with this round.
    fn with_lately(&self, round: &Round) -> (u64, u64) {
        let (arrived, lost) = (self.lately.0 + round.arrived, self.lately.1 + round.lost);
        let part = (self.carried_at_once() / ((arrived + lost) as f64).max(1.0)).min(1.0);
        ((arrived as f64 * part) as u64, (lost as f64 * part) as u64)
    }

    fn handle_congestion(&mut self, round: &Round) {
        let arrived = round.arrived as f64 / self.least().as_secs_f64();
        match self.phase {
            Phase::Startup { .. } if !round.is_network_rate => self.rate = self.rate.max(arrived),
            Phase::Startup { .. } => self.rate = round.rate,
            Phase::Cruise { .. } if round.is_network_rate => {
                self.rate = round.rate.clamp(self.rate * BACK_OFF, self.rate) * GIVE_WAY;
            }
            Phase::Cruise { .. } => self.rate *= GIVE_WAY,
        }
        // Greater rates are of another time.
        self.rates.clear();
        self.rates.push_back(self.rate);
        self.ceiling =
            Some((round.most_in_flight as f64 * BACK_OFF).max(self.carried_at_once() / 2.0));
        self.phase = Phase::Cruise { rounds: 1 };
    }

    fn back_off(&mut self) {
        self.ceiling = Some(self.carried_at_once() / 2.0);
        self.phase = Phase::Cruise { rounds: 1 };
    }

    fn greatest(&self) -> f64 {
        self.rates.iter().copied().fold(RATE_MIN, f64::max)
    }

    /// Bytes under way that keep the path busy.
    fn carried_at_once(&self) -> f64 {
        self.rate * self.least().as_secs_f64()
    }

    /// Whether what leaves is the first behind a silence: nothing of the train has arrived.
    fn is_first(&self) -> bool {
        self.is_behind_silence && self.train.is_empty()
    }

    /// Whether packets wait in the network: they did in the last round, and as far as is known in this one.
    fn has_queue(&self) -> bool {
        let has_heard = self.round.least_round_trip.is_some();
        let waits =
            if has_heard { self.waited.min(self.queue_of(&self.round)) } else { self.waited };
        waits > self.least() / 8
    }

    /// How long packets have waited in the network in a round; what the hosts are late does not count.
    fn queue_of(&self, round: &Round) -> Duration {
        let least = self.least();
        round.least_round_trip.unwrap_or(least).saturating_sub(least + QUEUE_MIN)
    }

    fn least(&self) -> Duration {
        self.round_trip.least().unwrap_or(ROUND_TRIP_FIRST).max(ROUND_TRIP_MIN)
    }
}

/// For how long packets have waited in the network, by acknowledgements: the least of some in a row, for hosts answer late.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    longest: Duration,
    /// Of those in a row, and how many they are.
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

/// The least of the last minute or two.
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

/// An unknown path is first tried with so much.
const WINDOW_FIRST: f64 = 65_536.0;
/// …which leaves within such a time.
const BURST: Duration = Duration::from_micros(500);
const RATE_FIRST: f64 = 1_000_000.0;
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(10);
/// Nothing is nearer.
const ROUND_TRIP_MIN: Duration = Duration::from_micros(10);
const STARTUP_GAIN: f64 = 2.0;
/// A rate that does not grow by so much in a round has been reached…
const GROWING: f64 = 1.2;
/// …when that is so for so many rounds.
const STALLED_MAX: u8 = 2;

/// A difference that is worth telling.
const TELLING: f64 = 0.05;

const PROBE_GAIN: f64 = 1.25;
/// More than [`AS_FAST`]: what leaves so still confirms the rate.
const DRAIN_GAIN: f64 = 0.95;
/// Rounds from one that leaves faster to the next.
const CYCLE: u8 = 10;
/// Rounds of which the greatest rate counts.
const RATES: usize = 12;

/// What a train takes at least, as it arrives and as the path was believed to carry it: processes are woken
/// late, and acknowledge late, by a millisecond or three, which is to be little beside it.
const TRAIN_MIN: Duration = Duration::from_millis(6);
const TRAIN_PACKETS: u64 = 24;
/// Who had nothing to send for so long begins another train: the pause was not the network's.
const PAUSE: Duration = Duration::from_millis(1);
/// Such a part of what the path carries at once is next to nothing.
const SILENCE: f64 = 8.0;
const TRAIN_POINTS: usize = 512;
/// The longest of Ethernet's.
const PACKET_BYTES: u64 = 1472;
/// Arriving so much more slowly than leaving is the network's doing.
const SLOWER: f64 = 1.03;
/// A train that left so fast, by what is believed, and was not held up, confirms the belief.
const AS_FAST: f64 = 0.9;
/// A path becomes so much faster in a round, at most.
const RISE_MAX: f64 = 1.25;
/// A rate that is so much greater than before has risen.
const RISEN: f64 = 1.08;

/// A share of lost packets beyond which the path is full where packets wait…
const LOST_MAX: f64 = 0.03;
/// …if there are so many of them: of a message of 64 KB three are lost by chance now and then where one in a hundred is…
const LOST_PACKETS_MIN: u64 = 6;
/// …and beyond which it is where none waits, for a buffer may be too short to show it.
const LOST_MOST: f64 = 0.1;
/// Waiting for less may be the host's doing.
const QUEUE_MIN: Duration = Duration::from_micros(1500);
/// Acknowledgements in a row that a queue delays: some dozen packets.
const QUEUE_ACKS: u8 = 8;
const BACK_OFF: f64 = 0.7;
/// Part of its rate that a sender keeps where the path is full: others are to have room to grow.
const GIVE_WAY: f64 = 0.85;
/// Rounds until what may be under way has grown by what the path carries at once.
const REGROWTH_ROUNDS: f64 = 64.0;

/// What may be under way, in parts of what the path carries at once…
const WINDOW_GAIN: f64 = 1.6;
/// …and behind acknowledgements that are so late.
const LATE: Duration = Duration::from_millis(4);
const WINDOW_MIN_PACKETS: u64 = 16;
const WINDOW_MAX: u64 = 256 << 20;
const RATE_MIN: f64 = 100_000.0;
const RATE_MAX: f64 = 12.5e9;
const FLOOR_EVERY: Duration = Duration::from_secs(60);
