//! What a long way carries, found out before it matters.
//!
//! A congestion control that sends at the rate it has measured has measured nothing yet when a connection
//! opens, and as long as the sender has little to send it only sees that. So the opening of a connection, or where
//! a process has many the first long frame, is followed by padding, which the receiver throws away and answers with
//! padding of its own: until a queue begins to form, the rate grows no more, the kernel is about to let as much go at
//! once as the way is known to hold, or there was enough of it. It goes only while nothing else is to be sent, and
//! little of it waits in the kernel, so that frames do not wait behind it. Up to there the rate doubles every round
//! trip. Then the connection is [held](super::hold) to what was found. Where that is remembered, padding is short, and
//! only [widens](Widening) the kernel's window.

use std::time::{Duration, Instant};

use super::cwnd_warmup::{Widening, Window};

/// How far the measuring of a connection has come.
#[derive(Debug)]
pub(super) enum Probe {
    /// It is not needed, or was done.
    Done,
    /// It begins with the connection, or with the first long frame.
    Due {
        /// Of the network, with nothing queued.
        round_trip: Duration,
        /// Where it is long.
        way: Way,
    },
    /// Padding goes, ever faster.
    Running(Course),
    /// The way is known, and short padding goes.
    Widening(Widening),
}

/// Where the long part of a connection's way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Between its two ends.
    Own,
    /// Behind the gateway at which it ends: this kernel sees how fast that takes, and not what the way carries.
    Behind,
}

impl Way {
    /// How much padding a link takes. What is behind a gateway shows itself to that, by two round trips at its rate; what
    /// is this side's own in a round trip and a quarter, if nothing goes while the last of it is confirmed.
    fn padding_max(self, round_trip: Duration) -> usize {
        let (time, least) = match self {
            Self::Own => (round_trip * 5 / 4, PADDING_LEAST),
            Self::Behind => (round_trip * 2, 0),
        };
        let padding = usize::try_from(bytes_within(RATE, time)).unwrap_or(PADDING_MAX);
        padding.clamp(least, PADDING_MAX)
    }
}

/// Padding under way.
#[derive(Debug)]
struct Padding {
    round_trip: Duration,
    end: Instant,
    next_look: Instant,
    padded: usize,
    /// At most.
    most: usize,
}

/// A measurement under way.
#[derive(Debug)]
pub(super) struct Course {
    padding: Padding,
    way: Way,
    /// What the way is known to carry, in bytes per second.
    known: Option<u64>,
    looks: u32,
    /// The last look, and what was confirmed then.
    looked: Option<(Instant, u64)>,
    /// The highest seen, in bytes per second.
    rate: u64,
    /// The highest at which was confirmed what had left faster, in bytes per second.
    came: u64,
    /// What may be under way, in bytes per second.
    passed: u64,
    /// What of it comes through, as far as is known.
    passes: u64,
    /// Round trips without growth.
    still: u32,
    /// Looks in a row at a queue.
    queued: u32,
}

/// What the kernel shows of a connection under measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// At which rate the peer confirms, in bytes per second; none where the sender was what limited it.
    pub rate: Option<u64>,
    /// What may be under way, in bytes.
    pub window: u64,
    /// What the peer has confirmed since the connection opened, in bytes.
    pub confirmed: u64,
    /// It has not confirmed all.
    pub is_under_way: bool,
    /// Round trips have become longer.
    pub is_queued: bool,
}

/// What padding has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is to be learned.
    Going,
    /// The way carries so many bytes per second, or more.
    Found(u64),
    /// It ends; of the rate nothing was learned that was not known.
    Ended,
}

impl Probe {
    /// Begins, if it is due. The way is known to carry so many bytes per second, if it is.
    pub fn begin(&mut self, now: Instant, known: Option<u64>) {
        let Self::Due { round_trip, way } = *self else { return };
        *self = Self::Running(Course {
            padding: Padding::new(round_trip, way.padding_max(round_trip), now),
            way,
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

    /// Has the window widened instead, for what the way is known to carry, in bytes per second.
    pub fn begin_widening(&mut self, now: Instant, known: u64, window: Window) {
        if let Self::Due { round_trip, .. } = *self {
            *self = Self::Widening(Widening::new(known, round_trip, window, now));
        }
    }

    pub fn is_due(&self) -> bool {
        matches!(self, Self::Due { .. })
    }

    /// Whether it is the gateway that has to remember, and not this side.
    pub fn is_behind(&self) -> bool {
        let (Self::Due { way, .. } | Self::Running(Course { way, .. })) = self else {
            return false;
        };
        *way == Way::Behind
    }

    /// Whether long padding goes.
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// Whether short padding goes.
    pub fn is_widening(&self) -> bool {
        matches!(self, Self::Widening(_))
    }

    /// Whether the connection's beginning is not over.
    pub fn is_beginning(&self) -> bool {
        matches!(self, Self::Running(_) | Self::Widening(_))
    }

    /// What may have gone in each round trip when it was last seen, in bytes per second: without a queue that passes.
    pub fn passed(&self) -> Option<u64> {
        match self {
            Self::Running(course) => Some(course.passed).filter(|&rate| rate > 0),
            Self::Widening(_) | Self::Done | Self::Due { .. } => None,
        }
    }

    /// How much long padding may still go.
    pub fn allowance(&self) -> usize {
        match self {
            Self::Running(Course { padding, .. }) => padding.most.saturating_sub(padding.padded),
            Self::Widening(_) | Self::Done | Self::Due { .. } => 0,
        }
    }

    /// So much padding has gone. At `now` it may be time for a look at the connection, if the kernel allows it. Ends
    /// when nothing more is to be learned.
    pub fn handle_padded(
        &mut self,
        count: usize,
        now: Instant,
        look: impl FnOnce() -> Option<Sight>,
    ) -> Progress {
        let Self::Running(course) = self else { return Progress::Ended };
        let is_time = course.padding.handle(count, now) && course.way == Way::Own;
        let sight = if is_time { look() } else { None };
        let judged = sight.map_or(Progress::Going, |sight| course.judge(sight, now));
        let progress = if judged == Progress::Going { course.judge_end(now) } else { judged };
        if progress != Progress::Going {
            *self = Self::Done;
        }
        progress
    }
}

impl Padding {
    /// Up to so much.
    fn new(round_trip: Duration, most: usize, now: Instant) -> Self {
        let (end, next_look) = (now + round_trip * ROUNDS_MAX, now + round_trip);
        Self { round_trip, end, next_look, padded: 0, most }
    }

    /// Whether it is time for a look at the connection.
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

impl Course {
    fn judge(&mut self, sight: Sight, now: Instant) -> Progress {
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
        // What may be under way is what the way holds, or up to twice as much, and what comes through is what it carries:
        // the kernel's rate is that of a round trip, in which less went before.
        let seen = sight.rate.unwrap_or(0).max(self.rate);
        let carried = if seen > 0 { beyond(seen).max(self.came) } else { u64::MAX };
        self.passes = carried.min(self.passed / 4 * 3).max(self.rate);
        let is_confirmed = self.padding.is_enough() && !sight.is_under_way;
        if self.still >= STILL_MAX {
            Progress::Found(self.rate)
        } else if self.queued >= QUEUED_MAX || is_confirmed {
            Progress::Found(self.passes)
        } else if let Some(known) = self.known.filter(|known| self.passed >= known / 4 * 3) {
            // What is confirmed from now on lets half as much again go, and does not meet a queue.
            Progress::Found(known)
        } else {
            Progress::Going
        }
    }

    /// Ends where there was enough of it and nothing more is to be seen, or nobody has had time for it.
    fn judge_end(&self, now: Instant) -> Progress {
        let is_enough = self.padding.is_enough();
        if now >= self.padding.end {
            let is_seen = is_enough && self.passes > 0;
            if is_seen { Progress::Found(self.passes) } else { Progress::Ended }
        } else if is_enough && self.way == Way::Behind {
            Progress::Ended
        } else {
            Progress::Going
        }
    }

    /// So much is confirmed by now.
    fn note_confirmed(&mut self, confirmed: u64, now: Instant) {
        if let Some((at, before)) = self.looked.replace((now, confirmed)) {
            let came = rate_of(confirmed.saturating_sub(before), now - at);
            self.came = self.came.max(came);
        }
    }
}

/// A rate that was seen, and a part of it: more may come through.
fn beyond(rate: u64) -> u64 {
    rate.saturating_add(rate / 4)
}

/// What a rate comes to, in bytes per second.
fn bytes_within(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The rate of so many bytes.
fn rate_of(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// A frame is long from here on: shorter ones leave in the first round trip anyway.
pub(super) const LONG: usize = 16 << 10;
/// What a way may be found to carry, in bytes per second: a gigabit; near ways more.
const RATE: u64 = 125_000_000;
/// Padding at most, where a way can be measured with so much, and where it is long.
const PADDING_LEAST: usize = 7 << 18;
const PADDING_MAX: usize = 8 << 20;
/// Round trips without growth by a quarter that say that the way is full (BBR's own rule).
const STILL_MAX: u32 = 3;
/// Looks in a row that say that a queue is forming, and how many there are in a round trip.
const QUEUED_MAX: u32 = 2;
const LOOKS_A_ROUND: u32 = 4;
/// Round trips at most, also where nobody has time for it.
const ROUNDS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);

    /// A network, and who sends over it.
    #[derive(Clone, Copy)]
    struct Path {
        /// In bytes per second.
        rate: u64,
        has_buffer: bool,
        limited_by_sender: bool,
        known: Option<u64>,
        way: Way,
    }

    const PATH: Path = Path {
        rate: 20_000_000,
        has_buffer: true,
        limited_by_sender: false,
        known: None,
        way: Way::Own,
    };

    impl Path {
        /// How much padding goes, how many looks it takes, and what it comes to: the window doubles every round trip.
        fn run(self) -> (usize, u32, Progress) {
            let start = Instant::now();
            let mut probe = Probe::Due { round_trip: ROUND_TRIP, way: self.way };
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
                let sight = Sight {
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
        let (sum, looks, progress) = PATH.run();
        // In the round trip in which the way became full.
        assert!((5 * LOOKS_A_ROUND..6 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 400_000, "{sum} bytes");
        let Progress::Found(rate) = progress else { panic!("{progress:?}") };
        assert!((PATH.rate..=beyond(PATH.rate)).contains(&rate), "{rate} bytes per second");
        // Of one who had little to send nothing is known but what may be under way.
        let (_, _, progress) = Path { limited_by_sender: true, ..PATH }.run();
        let Progress::Found(rate) = progress else { panic!("{progress:?}") };
        assert!((PATH.rate..2 * PATH.rate).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn what_has_passed_is_known_when_padding_ends_for_its_bytes() {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, way: Way::Own };
        probe.begin(start, None);
        assert_eq!(probe.passed(), None);
        let sight = |window, is_under_way| {
            Some(Sight { rate: None, window, confirmed: 0, is_under_way, is_queued: false })
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
    fn what_is_not_confirmed_is_not_waited_for_long() {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, way: Way::Own };
        probe.begin(start, None);
        let (rate, window) = (Some(60_000_000), 1_000_000);
        let sight =
            || Some(Sight { rate, window, confirmed: 0, is_under_way: true, is_queued: false });
        let mut now = start + ROUND_TRIP;
        while probe.handle_padded(PADDING_LEAST, now, sight) == Progress::Going {
            now += ROUND_TRIP / LOOKS_A_ROUND;
        }
        assert_eq!(now, start + ROUND_TRIP * 3);
        assert!(!probe.is_running());
    }

    #[test]
    fn padding_ends_when_the_rate_grows_no_more() {
        let (sum, looks, progress) = Path { has_buffer: false, ..PATH }.run();
        assert!((8 * LOOKS_A_ROUND..10 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 2_000_000, "{sum} bytes");
        assert_eq!(progress, Progress::Found(PATH.rate));
    }

    #[test]
    fn padding_ends_before_the_way_is_full_where_that_is_known() {
        let (sum, _, progress) = Path { known: Some(PATH.rate), ..PATH }.run();
        assert!(sum < 150_000, "{sum} bytes");
        assert_eq!(progress, Progress::Found(PATH.rate));
        // It carries less than was known.
        let (more, _, progress) = Path { known: Some(4 * PATH.rate), ..PATH }.run();
        assert!(more > sum, "{more} bytes");
        let Progress::Found(rate) = progress else { panic!("{progress:?}") };
        assert!((PATH.rate..2 * PATH.rate).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn padding_is_bounded_in_bytes_and_time() {
        let endless = Path { rate: u64::MAX / 4, has_buffer: false, ..PATH };
        let (sum, _, progress) = endless.run();
        assert!(sum < 2 * PADDING_LEAST, "{sum} bytes");
        assert!(matches!(progress, Progress::Found(_)), "{progress:?}");
        let slow = Path { rate: 1_000_000, has_buffer: false, limited_by_sender: true, ..PATH };
        assert_eq!(slow.run().1, (ROUNDS_MAX - 1) * LOOKS_A_ROUND);
    }

    #[test]
    fn padding_is_as_long_as_the_way() {
        let most = |ms| Way::Own.padding_max(Duration::from_millis(ms));
        assert_eq!((most(1), most(10), most(40)), (PADDING_LEAST, PADDING_LEAST, 6_250_000));
        assert_eq!((most(100), most(u64::from(u32::MAX))), (PADDING_MAX, PADDING_MAX));
    }

    #[test]
    fn what_a_gateway_takes_does_not_end_it() {
        let behind = Path { rate: 1_000_000, way: Way::Behind, ..PATH };
        assert_eq!(behind.run().1, (ROUNDS_MAX - 1) * LOOKS_A_ROUND);
        let enough = Way::Behind.padding_max(ROUND_TRIP);
        assert!(Path { rate: u64::MAX / 4, ..behind }.run().0 >= enough);
        assert_eq!(enough, 2_500_000);
        assert_eq!(Way::Behind.padding_max(ROUND_TRIP * 30), PADDING_MAX);
    }

    #[test]
    fn what_is_done_is_not_begun_again() {
        let mut probe = Probe::Done;
        probe.begin(Instant::now(), None);
        let sight =
            Sight { rate: Some(1), window: 1, confirmed: 0, is_under_way: true, is_queued: false };
        assert_eq!(probe.handle_padded(1, Instant::now(), || Some(sight)), Progress::Ended);
        assert_eq!((probe.is_running(), probe.allowance()), (false, 0));
    }
}
