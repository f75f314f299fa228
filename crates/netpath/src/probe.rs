//! Measures the bandwidth of a long path before it matters.
//!
//! BBR has no estimate when a connection opens, and while the sender has little to send it measures only that. So
//! padding follows the opening of a connection, or its first long frame if the process has many connections. The
//! receiver discards the padding and answers with its own. Padding ends when a queue forms, the rate stops growing,
//! cwnd is about to reach the known size of the path, or enough was sent. It is sent only while nothing else is, and
//! little of it waits in the kernel, so that frames are not delayed. Until then the rate doubles every round trip.
//! Afterwards the connection is [capped](super::startup_cap) at the rate found. If a rate is remembered, the padding
//! is short and only [warms up](CwndWarmup) cwnd.

use std::time::{Duration, Instant};

use crate::cwnd_warmup::CwndWarmup;
use crate::measure::{Cwnd, PathSample};

/// State of the bandwidth probe of a connection.
#[derive(Debug)]
pub enum Probe {
    /// No probe is needed, or it is done.
    Done,
    /// The probe starts with the connection or its first long frame.
    Due {
        /// Round trip of the path with empty queues.
        round_trip: Duration,
        /// Location of the long segment.
        segment: LongSegment,
    },
    /// Padding is sent at a growing rate.
    Running(Measurement),
    /// The rate is known, and short padding warms up cwnd.
    CwndWarmup(CwndWarmup),
}

/// Location of the long segment of a connection's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongSegment {
    /// Between the two ends of the connection.
    Own,
    /// Behind the gateway at which the connection ends. This kernel sees how fast the gateway takes bytes, and not
    /// the bandwidth of the path.
    Behind,
}

impl LongSegment {
    /// Limit on padding, in bytes. A gateway measures the segment behind it with two round trips at its rate. The own
    /// path takes a round trip and a quarter, if nothing is sent while the last of it is acknowledged.
    fn padding_max(self, round_trip: Duration) -> usize {
        let (time, least) = match self {
            Self::Own => (round_trip * 5 / 4, PADDING_LEAST),
            Self::Behind => (round_trip * 2, 0),
        };
        let padding = usize::try_from(bytes_within(RATE, time)).unwrap_or(PADDING_MAX);
        padding.clamp(least, PADDING_MAX)
    }
}

/// Padding being sent.
#[derive(Debug)]
struct Padding {
    round_trip: Duration,
    end: Instant,
    next_look: Instant,
    padded: usize,
    /// Limit in bytes.
    most: usize,
}

/// A running measurement.
#[derive(Debug)]
pub struct Measurement {
    padding: Padding,
    segment: LongSegment,
    /// Known rate of the path, in bytes per second.
    known: Option<u64>,
    looks: u32,
    /// Time of the last look, and the bytes acknowledged then.
    looked: Option<(Instant, u64)>,
    /// Highest delivery rate, in bytes per second.
    rate: u64,
    /// Highest ACK rate of bytes that had left faster, in bytes per second.
    came: u64,
    /// Rate that cwnd allows, in bytes per second.
    passed: u64,
    /// Part of that rate that comes through, as far as is known.
    passes: u64,
    /// Consecutive round trips without growth.
    still: u32,
    /// Consecutive looks that saw a queue.
    queued: u32,
}

/// Progress of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The measurement goes on.
    Going,
    /// The path carries at least this many bytes per second.
    Found(u64),
    /// The measurement ended and found no new rate.
    Ended,
}

impl Probe {
    /// Starts the measurement if it is due; `known` is the known rate of the path in bytes per second.
    pub fn begin(&mut self, now: Instant, known: Option<u64>) {
        let Self::Due { round_trip, segment } = *self else { return };
        *self = Self::Running(Measurement {
            padding: Padding::new(round_trip, segment.padding_max(round_trip), now),
            segment,
            known,
            looks: 0,
            looked: None,
            rate: 0,
            came: 0,
            passed: 0,
            passes: 0,
            still: 0,
            queued: 0,
        });
    }

    /// Starts a cwnd warm-up instead, for a known rate in bytes per second.
    pub fn begin_warmup(&mut self, now: Instant, known: u64, window: Cwnd) {
        if let Self::Due { round_trip, .. } = *self {
            *self = Self::CwndWarmup(CwndWarmup::new(known, round_trip, window, now));
        }
    }

    /// True if the path is to be measured, and the measurement has not begun.
    pub fn is_due(&self) -> bool {
        matches!(self, Self::Due { .. })
    }

    /// True if the gateway has to measure, and not this side.
    pub fn is_behind(&self) -> bool {
        let (Self::Due { segment, .. } | Self::Running(Measurement { segment, .. })) = self else {
            return false;
        };
        *segment == LongSegment::Behind
    }

    /// True if long padding is being sent.
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// True if short padding is being sent.
    pub fn is_warming_up(&self) -> bool {
        matches!(self, Self::CwndWarmup(_))
    }

    /// True if the measurement or the warm-up goes on.
    pub fn is_beginning(&self) -> bool {
        matches!(self, Self::Running(_) | Self::CwndWarmup(_))
    }

    /// Rate that cwnd allowed at the last look, in bytes per second; without a queue it comes through.
    pub fn passed(&self) -> Option<u64> {
        match self {
            Self::Running(measurement) => Some(measurement.passed).filter(|&rate| rate > 0),
            Self::CwndWarmup(_) | Self::Done | Self::Due { .. } => None,
        }
    }

    /// Bytes of long padding that were sent.
    pub fn padded(&self) -> u64 {
        match self {
            Self::Running(measurement) => measurement.padding.padded as u64,
            Self::CwndWarmup(_) | Self::Done | Self::Due { .. } => 0,
        }
    }

    /// Bytes of long padding that may still be sent.
    pub fn allowance(&self) -> usize {
        match self {
            Self::Running(Measurement { padding, .. }) => {
                padding.most.saturating_sub(padding.padded)
            }
            Self::CwndWarmup(_) | Self::Done | Self::Due { .. } => 0,
        }
    }

    /// Records `count` bytes of padding, and looks at the connection if it is time. Ends when nothing more is to be
    /// learned.
    pub fn handle_padded(
        &mut self,
        count: usize,
        now: Instant,
        look: impl FnOnce() -> Option<PathSample>,
    ) -> Progress {
        let Self::Running(measurement) = self else { return Progress::Ended };
        let is_time =
            measurement.padding.handle(count, now) && measurement.segment == LongSegment::Own;
        let sight = if is_time { look() } else { None };
        let judged = sight.map_or(Progress::Going, |sight| measurement.judge(sight, now));
        let progress = if judged == Progress::Going { measurement.judge_end(now) } else { judged };
        if progress != Progress::Going {
            *self = Self::Done;
        }
        progress
    }
}

impl Padding {
    /// Plans padding of up to `most` bytes.
    fn new(round_trip: Duration, most: usize, now: Instant) -> Self {
        let (end, next_look) = (now + round_trip * ROUNDS_MAX, now + round_trip);
        Self { round_trip, end, next_look, padded: 0, most }
    }

    /// Records `count` bytes; returns true if it is time for a look at the connection.
    fn handle(&mut self, count: usize, now: Instant) -> bool {
        let was_enough = self.is_enough();
        self.padded += count;
        if self.is_enough() && !was_enough {
            self.end = self.end.min(now + self.round_trip * 2);
        }
        let is_time = now >= self.next_look;
        if is_time {
            self.next_look = now + self.round_trip / LOOKS_A_ROUND;
        }
        is_time
    }

    fn is_enough(&self) -> bool {
        self.padded >= self.most
    }
}

impl Measurement {
    fn judge(&mut self, sight: PathSample, now: Instant) -> Progress {
        self.queued = if sight.is_queued { self.queued + 1 } else { 0 };
        self.looks += 1;
        self.passed = rate_of(sight.window, self.padding.round_trip);
        self.note_confirmed(sight.confirmed, now);
        if let Some(rate) = sight.rate
            && self.looks.is_multiple_of(LOOKS_A_ROUND)
        {
            let grows = rate > beyond(self.rate);
            self.still = if grows { 0 } else { self.still + 1 };
            self.rate = self.rate.max(rate);
        }
        // cwnd is the size of the path or up to twice as much, and the delivery rate is what the path carries. The
        // kernel's rate is that of the last round trip, in which less was sent.
        let seen = sight.rate.unwrap_or(0).max(self.rate);
        let carried = if seen > 0 { beyond(seen).max(self.came) } else { u64::MAX };
        self.passes = carried.min(self.passed / 4 * 3).max(self.rate);
        let is_confirmed = self.padding.is_enough() && !sight.is_under_way;
        if self.still >= STILL_MAX {
            Progress::Found(self.rate)
        } else if self.queued >= QUEUED_MAX || is_confirmed {
            Progress::Found(self.passes)
        } else if let Some(known) = self.known.filter(|known| self.passed >= known / 4 * 3) {
            // ACKs from now on let half as much again go, and meet no queue.
            Progress::Found(known)
        } else {
            Progress::Going
        }
    }

    /// Ends the measurement when all padding was sent and nothing more is to be seen, or time is up.
    fn judge_end(&self, now: Instant) -> Progress {
        let is_enough = self.padding.is_enough();
        if now >= self.padding.end {
            let is_seen = is_enough && self.passes > 0;
            if is_seen { Progress::Found(self.passes) } else { Progress::Ended }
        } else if is_enough && self.segment == LongSegment::Behind {
            Progress::Ended
        } else {
            Progress::Going
        }
    }

    /// Records the bytes acknowledged so far.
    fn note_confirmed(&mut self, confirmed: u64, now: Instant) {
        if let Some((at, before)) = self.looked.replace((now, confirmed)) {
            let came = rate_of(confirmed.saturating_sub(before), now - at);
            self.came = self.came.max(came);
        }
    }
}

/// A rate plus a quarter: more may come through.
fn beyond(rate: u64) -> u64 {
    rate.saturating_add(rate / 4)
}

/// Bytes that a rate, in bytes per second, carries in `time`.
fn bytes_within(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Rate of `bytes` over `time`, in bytes per second.
fn rate_of(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Length from which a frame is long; shorter ones leave in the first round trip anyway.
pub const LONG_FRAME: usize = 16 << 10;
/// Highest rate that a probe can find, in bytes per second: a gigabit; more on short paths.
const RATE: u64 = 125_000_000;
/// Limits on padding, for paths that little padding can measure and for long ones.
const PADDING_LEAST: usize = 7 << 18;
const PADDING_MAX: usize = 8 << 20;
/// Round trips without growth by a quarter after which the path is full (BBR's own rule).
const STILL_MAX: u32 = 3;
/// Consecutive looks that prove a queue, and looks per round trip.
const QUEUED_MAX: u32 = 2;
const LOOKS_A_ROUND: u32 = 4;
/// Limit in round trips, also if the sender is too slow.
const ROUNDS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);

    /// A simulated network and its sender.
    #[derive(Clone, Copy)]
    struct SimNetwork {
        /// Bandwidth in bytes per second.
        rate: u64,
        has_buffer: bool,
        limited_by_sender: bool,
        known: Option<u64>,
        segment: LongSegment,
    }

    const NETWORK: SimNetwork = SimNetwork {
        rate: 20_000_000,
        has_buffer: true,
        limited_by_sender: false,
        known: None,
        segment: LongSegment::Own,
    };

    impl SimNetwork {
        /// Returns the padding sent, the number of looks, and the result. cwnd doubles every round trip.
        fn run(self) -> (usize, u32, Progress) {
            let start = Instant::now();
            let mut probe = Probe::Due { round_trip: ROUND_TRIP, segment: self.segment };
            probe.begin(start, self.known);
            let (mut window, mut looks, mut sum, mut progress) = (14_000, 0, 0, Progress::Going);
            let mut confirmed = 0;
            while matches!(probe, Probe::Running(_)) {
                looks += 1;
                let now = start + ROUND_TRIP + ROUND_TRIP / LOOKS_A_ROUND * looks;
                let rate = (window / 2 * 100).min(self.rate);
                let goes = (rate / 100 / u64::from(LOOKS_A_ROUND)) as usize;
                let count = goes.min(probe.allowance());
                assert_eq!(progress, Progress::Going);
                sum += count;
                confirmed += count as u64;
                let sight = PathSample {
                    rate: (!self.limited_by_sender).then_some(rate),
                    window,
                    confirmed,
                    is_under_way: count > 0,
                    is_queued: self.has_buffer && rate == self.rate,
                };
                progress = probe.handle_padded(count, now, || Some(sight));
                if looks.is_multiple_of(LOOKS_A_ROUND) {
                    window = (window * 2).min(1 << 40);
                }
            }
            assert_eq!(probe.allowance(), 0);
            (sum, looks, progress)
        }
    }

    #[test]
    fn padding_ends_when_a_queue_begins_to_form() {
        let (sum, looks, progress) = NETWORK.run();
        // The probe ends in the round trip that fills the path.
        assert!((5 * LOOKS_A_ROUND..6 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 400_000, "{sum} bytes");
        let Progress::Found(rate) = progress else { panic!("{progress:?}") };
        assert!((NETWORK.rate..=beyond(NETWORK.rate)).contains(&rate), "{rate} bytes per second");
        // A sender with little to send shows only its cwnd.
        let (_, _, progress) = SimNetwork { limited_by_sender: true, ..NETWORK }.run();
        let Progress::Found(rate) = progress else { panic!("{progress:?}") };
        assert!((NETWORK.rate..2 * NETWORK.rate).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn a_probe_reports_the_rate_that_passed() {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, segment: LongSegment::Own };
        probe.begin(start, None);
        assert_eq!(probe.passed(), None);
        let sight = |window, is_under_way| {
            Some(PathSample { rate: None, window, confirmed: 0, is_under_way, is_queued: false })
        };
        probe.handle_padded(1, start + ROUND_TRIP, || sight(500_000, true));
        assert_eq!(probe.passed(), Some(50_000_000));
        let now = start + ROUND_TRIP * 2;
        let enough = probe.handle_padded(PADDING_LEAST, now, || sight(1_000_000, true));
        assert_eq!((enough, probe.allowance()), (Progress::Going, 0), "to be confirmed");
        assert_eq!(probe.passed(), Some(100_000_000));
        let now = start + ROUND_TRIP * 3;
        let found = probe.handle_padded(0, now, || sight(2_000_000, false));
        assert_eq!((found, probe.passed()), (Progress::Found(150_000_000), None));
    }

    #[test]
    fn missing_acks_end_a_probe_soon() {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, segment: LongSegment::Own };
        probe.begin(start, None);
        let (rate, window) = (Some(60_000_000), 1_000_000);
        let sight = || {
            Some(PathSample { rate, window, confirmed: 0, is_under_way: true, is_queued: false })
        };
        let mut now = start + ROUND_TRIP;
        while probe.handle_padded(PADDING_LEAST, now, sight) == Progress::Going {
            now += ROUND_TRIP / LOOKS_A_ROUND;
        }
        assert_eq!(now, start + ROUND_TRIP * 3);
        assert!(!probe.is_running());
    }

    #[test]
    fn padding_ends_when_the_rate_grows_no_more() {
        let (sum, looks, progress) = SimNetwork { has_buffer: false, ..NETWORK }.run();
        assert!((8 * LOOKS_A_ROUND..10 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 2_000_000, "{sum} bytes");
        assert_eq!(progress, Progress::Found(NETWORK.rate));
    }

    #[test]
    fn padding_ends_early_where_the_rate_is_known() {
        let (sum, _, progress) = SimNetwork { known: Some(NETWORK.rate), ..NETWORK }.run();
        assert!(sum < 150_000, "{sum} bytes");
        assert_eq!(progress, Progress::Found(NETWORK.rate));
        // The path carries less than was known.
        let (more, _, progress) = SimNetwork { known: Some(4 * NETWORK.rate), ..NETWORK }.run();
        assert!(more > sum, "{more} bytes");
        let Progress::Found(rate) = progress else { panic!("{progress:?}") };
        assert!((NETWORK.rate..2 * NETWORK.rate).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn padding_is_bounded_in_bytes_and_time() {
        let endless = SimNetwork { rate: u64::MAX / 4, has_buffer: false, ..NETWORK };
        let (sum, _, progress) = endless.run();
        assert!(sum < 2 * PADDING_LEAST, "{sum} bytes");
        assert!(matches!(progress, Progress::Found(_)), "{progress:?}");
        let slow =
            SimNetwork { rate: 1_000_000, has_buffer: false, limited_by_sender: true, ..NETWORK };
        assert_eq!(slow.run().1, (ROUNDS_MAX - 1) * LOOKS_A_ROUND);
    }

    #[test]
    fn padding_grows_with_the_round_trip() {
        let most = |ms| LongSegment::Own.padding_max(Duration::from_millis(ms));
        assert_eq!((most(1), most(10), most(40)), (PADDING_LEAST, PADDING_LEAST, 6_250_000));
        assert_eq!((most(100), most(u64::from(u32::MAX))), (PADDING_MAX, PADDING_MAX));
    }

    #[test]
    fn the_intake_of_a_gateway_does_not_end_a_probe() {
        let behind = SimNetwork { rate: 1_000_000, segment: LongSegment::Behind, ..NETWORK };
        assert_eq!(behind.run().1, (ROUNDS_MAX - 1) * LOOKS_A_ROUND);
        let enough = LongSegment::Behind.padding_max(ROUND_TRIP);
        assert!(SimNetwork { rate: u64::MAX / 4, ..behind }.run().0 >= enough);
        assert_eq!(enough, 2_500_000);
        assert_eq!(LongSegment::Behind.padding_max(ROUND_TRIP * 30), PADDING_MAX);
    }

    #[test]
    fn a_finished_probe_is_not_restarted() {
        let mut probe = Probe::Done;
        probe.begin(Instant::now(), None);
        let sight = PathSample {
            rate: Some(1),
            window: 1,
            confirmed: 0,
            is_under_way: true,
            is_queued: false,
        };
        assert_eq!(probe.handle_padded(1, Instant::now(), || Some(sight)), Progress::Ended);
        assert_eq!((probe.is_running(), probe.allowance()), (false, 0));
    }
}
