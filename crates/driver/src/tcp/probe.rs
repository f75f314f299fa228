//! What a long way carries, found out before it matters.
//!
//! A congestion control that sends at the rate it has measured has measured nothing yet when a connection
//! opens, and as long as the sender has little to send it only sees that. So the opening of a connection, or where
//! a process has many the first long frame, is followed by padding, which the receiver throws away and answers with
//! padding of its own: until a queue begins to form, the rate grows no more, the kernel is about to let as much go at
//! once as the way is known to hold, or there was enough of it. It goes only while nothing else is to be sent, and
//! little of it waits in the kernel, so that frames do not wait behind it. Up to there the rate doubles every round
//! trip, whoever remembers or not; who remembers then is shown the rate for a round trip or two, at that rate, so that
//! no queue forms. Then the kernel knows the way for as long as the connection lives, and so does who predicts its cost.

use std::time::{Duration, Instant};

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
    /// Padding goes at a rate, which the congestion control that remembers is to see.
    Showing(Show),
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
    /// How much padding a link takes: what is behind a gateway shows itself to that, by two round trips at its rate.
    fn padding_max(self, round_trip: Duration) -> usize {
        let behind = usize::try_from(bytes_within(RATE_BEHIND, round_trip * 2));
        match self {
            Self::Own => PADDING_MAX,
            Self::Behind => behind.unwrap_or(PADDING_MAX).min(PADDING_MAX),
        }
    }
}

/// Padding under way.
#[derive(Debug)]
struct Padding {
    round_trip: Duration,
    since: Instant,
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
    /// What may be under way, in bytes per second.
    passed: u64,
    /// Round trips without growth.
    still: u32,
    /// Looks in a row at a queue.
    queued: u32,
}

/// A rate on show.
#[derive(Debug)]
pub(super) struct Show {
    padding: Padding,
    rate: u64,
    /// Of long frames, in bytes.
    framed: u64,
}

/// What the kernel shows of a connection under measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// At which rate the peer confirms, in bytes per second; none where the sender was what limited it. While a rate is
    /// shown, what is remembered of it.
    pub rate: Option<u64>,
    /// What may be under way, in bytes.
    pub window: u64,
    /// What the peer has confirmed since the connection opened, in bytes.
    pub confirmed: u64,
    /// Round trips have become longer.
    pub is_queued: bool,
}

/// What padding has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is to be learned.
    Going,
    /// Who remembers is to begin, held to so many bytes per second: that is shown from now on.
    Showing(u64),
    /// What the way carries was seen.
    Measured,
    /// More was shown than it carries, which is so many bytes per second.
    Full(u64),
    /// It ends; of the rate nothing was learned that was not known.
    Ended,
}

impl Probe {
    /// Begins, if it is due. The way is known to carry so many bytes per second, if it is.
    pub fn begin(&mut self, now: Instant, known: Option<u64>) {
        let Self::Due { round_trip, way } = *self else { return };
        *self = Self::Running(Course {
            padding: Padding::new(round_trip, ROUNDS_MAX, 0, way.padding_max(round_trip), now),
            way,
            known,
            looks: 0,
            looked: None,
            rate: 0,
            passed: 0,
            still: 0,
            queued: 0,
        });
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

    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_) | Self::Showing(_))
    }

    /// The rate on show.
    pub fn shown(&self) -> Option<u64> {
        match self {
            Self::Showing(show) => Some(show.rate),
            Self::Done | Self::Due { .. } | Self::Running(_) => None,
        }
    }

    /// What may have gone in each round trip when it was last seen, in bytes per second: without a queue that passes.
    pub fn passed(&self) -> Option<u64> {
        match self {
            Self::Running(course) => Some(course.passed).filter(|&rate| rate > 0),
            Self::Showing(_) | Self::Done | Self::Due { .. } => None,
        }
    }

    /// A long frame goes. Many of them show what the way carries as well as padding does, which ends.
    pub fn handle_frame(&mut self, len: usize) {
        if let Self::Showing(show) = self {
            show.framed += len as u64;
            if show.framed >= bytes_within(show.rate, show.padding.round_trip / 2) {
                *self = Self::Done;
            }
        }
    }

    /// How much padding may still go.
    pub fn allowance(&self) -> usize {
        match self {
            Self::Running(Course { padding, .. }) | Self::Showing(Show { padding, .. }) => {
                padding.most.saturating_sub(padding.padded)
            }
            Self::Done | Self::Due { .. } => 0,
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
        let progress = match self {
            Self::Running(course) => match course.padding.handle(count, now) {
                Turn::Look if course.way == Way::Own => {
                    look().map_or(Progress::Going, |sight| course.judge(sight, now))
                }
                Turn::Look | Turn::Goes => Progress::Going,
                Turn::Over => Progress::Ended,
            },
            Self::Showing(show) => match show.padding.handle(count, now) {
                Turn::Look => look().map_or(Progress::Going, |sight| show.judge(sight, now)),
                Turn::Goes => Progress::Going,
                Turn::Over => Progress::Ended,
            },
            Self::Done | Self::Due { .. } => return Progress::Ended,
        };
        match (&*self, progress) {
            (_, Progress::Going) => {}
            (
                Self::Running(Course { padding, .. }) | Self::Showing(Show { padding, .. }),
                Progress::Showing(rate),
            ) => {
                let &Padding { round_trip, padded, .. } = padding;
                let padding = Padding::new(round_trip, SHOWN_ROUNDS_MAX, padded, PADDING_MAX, now);
                *self = Self::Showing(Show { padding, rate, framed: 0 });
            }
            (
                _,
                Progress::Showing(_) | Progress::Measured | Progress::Full(_) | Progress::Ended,
            ) => {
                *self = Self::Done;
            }
        }
        progress
    }
}

/// What is due when padding has gone.
enum Turn {
    Goes,
    /// A look at the connection.
    Look,
    /// There was enough of it.
    Over,
}

impl Padding {
    /// For so many round trips at most, after as much as was padded before, and up to so much with it.
    fn new(round_trip: Duration, rounds: u32, padded: usize, most: usize, now: Instant) -> Self {
        let (end, next_look) = (now + round_trip * rounds, now + round_trip);
        Self { round_trip, since: now, end, next_look, padded, most }
    }

    fn handle(&mut self, count: usize, now: Instant) -> Turn {
        self.padded += count;
        if self.padded >= self.most || now >= self.end {
            Turn::Over
        } else if now >= self.next_look {
            self.next_look = now + self.round_trip / LOOKS_A_ROUND;
            Turn::Look
        } else {
            Turn::Goes
        }
    }
}

impl Course {
    fn judge(&mut self, sight: Sight, now: Instant) -> Progress {
        self.queued = if sight.is_queued { self.queued + 1 } else { 0 };
        self.looks += 1;
        self.passed = rate_of(sight.window, self.padding.round_trip);
        let came = self.note_confirmed(sight.confirmed, now);
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
        let carried = if seen > 0 { beyond(seen).max(came) } else { u64::MAX };
        let passes = carried.min(self.passed / 4 * 3).max(self.rate);
        if self.still >= STILL_MAX {
            Progress::Showing(self.rate)
        } else if self.queued >= QUEUED_MAX {
            Progress::Showing(passes)
        } else if let Some(known) = self.known.filter(|known| self.passed >= known / 4 * 3) {
            // What is confirmed from now on lets half as much again go, and does not meet a queue.
            Progress::Showing(known)
        } else {
            Progress::Going
        }
    }

    /// So much is confirmed by now; at which rate since the last look, in bytes per second.
    fn note_confirmed(&mut self, confirmed: u64, now: Instant) -> u64 {
        let before = self.looked.replace((now, confirmed));
        before.map_or(0, |(at, before)| rate_of(confirmed.saturating_sub(before), now - at))
    }
}

impl Show {
    fn judge(&self, sight: Sight, now: Instant) -> Progress {
        let (seen, shown_for) = (sight.rate.unwrap_or(0), now - self.padding.since);
        // What goes in the first round trip is seen in the second, and the queue until then is of what went before.
        let is_seen = shown_for >= self.padding.round_trip * 2;
        if is_seen && sight.is_queued {
            if seen >= self.rate / 2 { Progress::Full(seen) } else { Progress::Ended }
        } else if seen > self.rate.saturating_add(self.rate / 16) {
            // More than that goes, and comes through.
            Progress::Showing(if sight.is_queued { seen } else { beyond(seen) })
        } else if is_seen && seen >= self.rate / 8 * 7 {
            Progress::Measured
        } else {
            Progress::Going
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
/// Padding at most: what a gigabit per second over 12 ms takes to be seen, and some round trips more.
const PADDING_MAX: usize = 8 << 20;
/// What a way behind a gateway is taken to carry, in bytes per second: a gigabit.
const RATE_BEHIND: u64 = 125_000_000;
/// Round trips without growth by a quarter that say that the way is full (BBR's own rule).
const STILL_MAX: u32 = 3;
/// Looks in a row that say that a queue is forming, and how many there are in a round trip.
const QUEUED_MAX: u32 = 2;
const LOOKS_A_ROUND: u32 = 4;
/// Round trips at most, also where nobody has time for it.
const ROUNDS_MAX: u32 = 24;
/// Round trips in which a rate is shown: what goes in the first is confirmed in the second, and seen by its end.
const SHOWN_ROUNDS_MAX: u32 = 4;

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
                let count = (rate / 100 / u64::from(LOOKS_A_ROUND)) as usize;
                assert!(probe.allowance() > 0);
                assert_eq!(progress, Progress::Going);
                sum += count;
                confirmed += count as u64;
                let sight = Sight {
                    rate: (!self.limited_by_sender).then_some(rate),
                    window,
                    confirmed,
                    is_queued: self.has_buffer && rate == self.rate,
                };
                progress = probe.handle_padded(count, now, || Some(sight));
                if looks.is_multiple_of(LOOKS_A_ROUND) {
                    window = (window * 2).min(1 << 40);
                }
            }
            assert_eq!(probe.allowance() > 0, matches!(progress, Progress::Showing(_)));
            (sum, looks, progress)
        }
    }

    #[test]
    fn padding_ends_when_a_queue_begins_to_form() {
        let (sum, looks, progress) = PATH.run();
        // In the round trip in which the way became full.
        assert!((5 * LOOKS_A_ROUND..6 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 400_000, "{sum} bytes");
        let Progress::Showing(rate) = progress else { panic!("{progress:?}") };
        assert!((PATH.rate..=beyond(PATH.rate)).contains(&rate), "{rate} bytes per second");
        // Of one who had little to send nothing is known but what may be under way.
        let (_, _, progress) = Path { limited_by_sender: true, ..PATH }.run();
        let Progress::Showing(rate) = progress else { panic!("{progress:?}") };
        assert!((PATH.rate..2 * PATH.rate).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn what_has_passed_is_known_when_padding_ends_for_its_bytes() {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, way: Way::Own };
        probe.begin(start, None);
        assert_eq!(probe.passed(), None);
        let sight = |window| Some(Sight { rate: None, window, confirmed: 0, is_queued: false });
        probe.handle_padded(1, start + ROUND_TRIP, || sight(500_000));
        assert_eq!(probe.passed(), Some(50_000_000));
        probe.handle_padded(1, start + ROUND_TRIP * 2, || sight(1_000_000));
        assert_eq!(probe.passed(), Some(100_000_000));
        let now = start + ROUND_TRIP * 3;
        assert_eq!(probe.handle_padded(PADDING_MAX, now, || sight(1)), Progress::Ended);
        assert_eq!(probe.passed(), None);
    }

    #[test]
    fn padding_ends_when_the_rate_grows_no_more() {
        let (sum, looks, progress) = Path { has_buffer: false, ..PATH }.run();
        assert!((8 * LOOKS_A_ROUND..10 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 2_000_000, "{sum} bytes");
        assert_eq!(progress, Progress::Showing(PATH.rate));
    }

    #[test]
    fn padding_ends_before_the_way_is_full_where_that_is_known() {
        let (sum, _, progress) = Path { known: Some(PATH.rate), ..PATH }.run();
        assert!(sum < 150_000, "{sum} bytes");
        assert_eq!(progress, Progress::Showing(PATH.rate));
        // It carries less than was known.
        let (more, _, progress) = Path { known: Some(4 * PATH.rate), ..PATH }.run();
        assert!(more > sum, "{more} bytes");
        let Progress::Showing(rate) = progress else { panic!("{progress:?}") };
        assert!((PATH.rate..2 * PATH.rate).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn a_rate_is_shown_until_it_is_remembered_and_not_for_long() {
        let start = Instant::now();
        let show = |remembered: fn(u32) -> (u64, bool)| {
            let mut probe = Probe::Due { round_trip: ROUND_TRIP, way: Way::Own };
            probe.begin(start, Some(1_000_000));
            let sight = |(rate, is_queued)| {
                let (window, confirmed) = (8_000, 0);
                Sight { rate: Some(rate), window, confirmed, is_queued }
            };
            let mut now = start + ROUND_TRIP;
            let begun = probe.handle_padded(1000, now, || Some(sight((1, false))));
            assert_eq!(begun, Progress::Showing(1_000_000));
            for look in 1.. {
                now += ROUND_TRIP / LOOKS_A_ROUND;
                match probe.handle_padded(1000, now, || Some(sight(remembered(look)))) {
                    Progress::Going => {
                        assert_eq!((probe.shown(), probe.is_running()), (Some(1_000_000), true));
                        assert!(probe.allowance() > 0);
                    }
                    progress => return (look, progress, probe.is_running()),
                }
            }
            unreachable!()
        };
        // What goes in the first round trip is not seen as it is before the second has ended.
        assert_eq!(show(|_| (1_000_000, false)), (2 * LOOKS_A_ROUND, Progress::Measured, false));
        let seen_late = show(|look| (if look < 11 { 500_000 } else { 900_000 }, false));
        assert_eq!(seen_late, (11, Progress::Measured, false));
        // More comes through than was known.
        assert_eq!(
            show(|_| (1_100_000, false)),
            (LOOKS_A_ROUND, Progress::Showing(1_375_000), true)
        );
        assert_eq!(
            show(|_| (1_100_000, true)),
            (LOOKS_A_ROUND, Progress::Showing(1_100_000), true)
        );
        // The queue of what went before is gone by then, or more goes than comes through.
        let seen_late = show(|look| (900_000, look < 8));
        assert_eq!(seen_late, (2 * LOOKS_A_ROUND, Progress::Measured, false));
        assert_eq!(show(|_| (900_000, true)), (2 * LOOKS_A_ROUND, Progress::Full(900_000), false));
        assert_eq!(
            show(|_| (400_000, true)),
            (2 * LOOKS_A_ROUND, Progress::Ended, false),
            "a busy host"
        );
        let most = SHOWN_ROUNDS_MAX * LOOKS_A_ROUND;
        assert_eq!(show(|_| (500_000, false)), (most, Progress::Ended, false));
    }

    #[test]
    fn a_show_ends_where_long_frames_take_its_place() {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, way: Way::Own };
        probe.begin(start, Some(20_000_000));
        probe.handle_frame(1 << 20);
        assert!(probe.is_running(), "nothing is shown yet");
        let (window, confirmed) = (160_000, 0);
        let sight = Sight { rate: Some(1), window, confirmed, is_queued: false };
        let progress = probe.handle_padded(1, start + ROUND_TRIP, || Some(sight));
        assert_eq!(progress, Progress::Showing(20_000_000));
        probe.handle_frame(99_999);
        assert_eq!(probe.shown(), Some(20_000_000));
        probe.handle_frame(1);
        assert_eq!((probe.shown(), probe.is_running(), probe.allowance()), (None, false, 0));
    }

    #[test]
    fn padding_is_bounded_in_bytes_and_time() {
        let endless = Path { rate: u64::MAX / 4, has_buffer: false, ..PATH };
        let (sum, _, progress) = endless.run();
        assert!(sum < 2 * PADDING_MAX, "{sum} bytes");
        assert_eq!(progress, Progress::Ended);
        let slow = Path { rate: 1_000_000, has_buffer: false, limited_by_sender: true, ..PATH };
        assert_eq!(slow.run().1, (ROUNDS_MAX - 1) * LOOKS_A_ROUND);
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
        let sight = Sight { rate: Some(1), window: 1, confirmed: 0, is_queued: false };
        assert_eq!(probe.handle_padded(1, Instant::now(), || Some(sight)), Progress::Ended);
        assert_eq!((probe.is_running(), probe.allowance()), (false, 0));
    }
}
