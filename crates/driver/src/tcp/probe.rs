//! What a long way carries, found out before it matters.
//!
//! A congestion control that sends at the rate it has measured has measured nothing yet when a connection
//! opens, and as long as the sender has little to send it only sees that. So the opening of a connection, or where
//! a process has many the first long frame, is followed by padding, which the receiver throws away and answers with
//! padding of its own: until a queue begins to form, the rate grows no more, the kernel is about to let as much go at
//! once as the way is known to hold, or there was enough of it. It goes only while nothing else is to be sent, and
//! little of it waits in the kernel, so that frames do not wait behind it. Then the kernel knows the way for as long as
//! the connection lives, and so does who predicts its cost.

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
    /// Padding goes.
    Running(Course),
}

/// Where the long part of a connection's way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Between its two ends.
    Own,
    /// Behind the gateway at which it ends: this kernel sees how fast that takes, and not what the way carries.
    Behind,
}

/// A measurement under way.
#[derive(Debug)]
pub(super) struct Course {
    round_trip: Duration,
    way: Way,
    /// What the way is known to hold, in bytes.
    held: u64,
    end: Instant,
    next_look: Instant,
    looks: u32,
    padded: usize,
    /// The highest seen, in bytes per second.
    rate: u64,
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
    /// Round trips have become longer.
    pub is_queued: bool,
}

/// What padding has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is to be learned.
    Going,
    /// What the way carries was seen.
    Measured,
    /// It ends; of the rate nothing was learned that was not known.
    Ended,
}

impl Probe {
    /// Begins, if it is due. The way is known to carry so many bytes per second, if it is.
    pub fn begin(&mut self, now: Instant, known: Option<u64>) {
        let Self::Due { round_trip, way } = *self else { return };
        let held = known.map_or(u128::MAX, |rate| u128::from(rate) * round_trip.as_nanos());
        *self = Self::Running(Course {
            round_trip,
            way,
            held: u64::try_from(held / 1_000_000_000).unwrap_or(u64::MAX),
            end: now + round_trip * ROUNDS_MAX,
            next_look: now + round_trip,
            looks: 0,
            padded: 0,
            rate: 0,
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
        matches!(self, Self::Running(_))
    }

    /// How much padding may still go.
    pub fn allowance(&self) -> usize {
        match self {
            Self::Running(course) => PADDING_MAX.saturating_sub(course.padded),
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
        let Self::Running(course) = self else { return Progress::Ended };
        course.padded += count;
        let progress = if course.padded >= PADDING_MAX || now >= course.end {
            Progress::Ended
        } else if now >= course.next_look {
            course.next_look = now + course.round_trip / LOOKS_A_ROUND;
            match course.way {
                Way::Own => look().map_or(Progress::Going, |sight| course.judge(sight)),
                Way::Behind => Progress::Going,
            }
        } else {
            Progress::Going
        };
        if progress != Progress::Going {
            *self = Self::Done;
        }
        progress
    }
}

impl Course {
    fn judge(&mut self, sight: Sight) -> Progress {
        self.queued = if sight.is_queued { self.queued + 1 } else { 0 };
        self.looks += 1;
        if let Some(rate) = sight.rate
            && self.looks.is_multiple_of(LOOKS_A_ROUND)
        {
            let grows = rate > self.rate.saturating_add(self.rate / 4);
            self.still = if grows { 0 } else { self.still + 1 };
            self.rate = self.rate.max(rate);
        }
        if self.still >= STILL_MAX {
            Progress::Measured
        } else if self.queued >= QUEUED_MAX {
            // The way may carry nearly twice of what came through it a round trip ago.
            Progress::Ended
        } else if sight.window >= self.held / 4 * 3 {
            // What is confirmed from now on lets half as much again go, and does not meet a queue.
            Progress::Ended
        } else {
            Progress::Going
        }
    }
}

/// A frame is long from here on: shorter ones leave in the first round trip anyway.
pub(super) const LONG: usize = 16 << 10;
/// Padding at most: what a gigabit per second over 12 ms takes to be seen, and some round trips more.
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
            while probe.is_running() {
                looks += 1;
                let now = start + ROUND_TRIP + ROUND_TRIP / LOOKS_A_ROUND * looks;
                let rate = (window / 2 * 100).min(self.rate);
                let count = (rate / 100 / u64::from(LOOKS_A_ROUND)) as usize;
                assert!(probe.allowance() > 0);
                assert_eq!(progress, Progress::Going);
                sum += count;
                let sight = Sight {
                    rate: (!self.limited_by_sender).then_some(rate),
                    window,
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
        assert_eq!(progress, Progress::Ended, "it may carry more than was seen");
    }

    #[test]
    fn padding_ends_when_the_rate_grows_no_more() {
        let (sum, looks, progress) = Path { has_buffer: false, ..PATH }.run();
        assert!((8 * LOOKS_A_ROUND..10 * LOOKS_A_ROUND).contains(&looks), "{looks} looks");
        assert!(sum < 2_000_000, "{sum} bytes");
        assert_eq!(progress, Progress::Measured);
    }

    #[test]
    fn padding_ends_before_the_way_is_full_where_that_is_known() {
        let (sum, _, progress) = Path { known: Some(PATH.rate), ..PATH }.run();
        assert!(sum < 150_000, "{sum} bytes");
        assert_eq!(progress, Progress::Ended);
        // It carries less than was known.
        let (more, _, progress) = Path { known: Some(4 * PATH.rate), ..PATH }.run();
        assert!(more > sum, "{more} bytes");
        assert_eq!(progress, Progress::Ended);
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
        assert!(Path { rate: u64::MAX / 4, ..behind }.run().0 >= PADDING_MAX);
    }

    #[test]
    fn what_is_done_is_not_begun_again() {
        let mut probe = Probe::Done;
        probe.begin(Instant::now(), None);
        let sight = Sight { rate: Some(1), window: 1, is_queued: false };
        assert_eq!(probe.handle_padded(1, Instant::now(), || Some(sight)), Progress::Ended);
        assert_eq!((probe.is_running(), probe.allowance()), (false, 0));
    }
}
