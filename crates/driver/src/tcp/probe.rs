//! What a long way carries, found out before it matters.
//!
//! A congestion control that sends at the rate it has measured has measured nothing yet when a connection
//! opens, and as long as the sender has little to send it only sees that. So the opening of a connection, or where
//! a process has many the first long frame, is followed by padding, which the receiver throws away and answers with
//! padding of its own: until the rate grows no more, or there was enough of it. It goes only while nothing else is
//! to be sent, and little of it waits in the kernel, so that frames do not wait behind it. Then the kernel knows the
//! way for as long as the connection lives, and so does who predicts its cost.

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
    end: Instant,
    next_look: Instant,
    padded: usize,
    /// The highest seen, in bytes per second.
    rate: u64,
    /// Round trips without growth.
    still: u32,
}

impl Probe {
    /// Begins, if it is due.
    pub fn begin(&mut self, now: Instant) {
        let Self::Due { round_trip, way } = *self else { return };
        *self = Self::Running(Course {
            round_trip,
            way,
            end: now + round_trip * ROUNDS_MAX,
            next_look: now + round_trip,
            padded: 0,
            rate: 0,
            still: 0,
        });
    }

    pub fn is_due(&self) -> bool {
        matches!(self, Self::Due { .. })
    }

    /// Whether it is the gateway that has to remember, and not this side.
    pub fn is_behind(&self) -> bool {
        matches!(self, Self::Due { way: Way::Behind, .. })
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

    /// So much padding has gone. At `now` it may be time to see at which `rate` the peer confirms, in bytes
    /// per second; none where the sender was what limited it. Ends when nothing more is to be learned.
    pub fn handle_padded(
        &mut self,
        count: usize,
        now: Instant,
        rate: impl FnOnce() -> Option<u64>,
    ) {
        let Self::Running(course) = self else { return };
        course.padded += count;
        let looks = now >= course.next_look;
        if looks {
            course.next_look = now + course.round_trip;
            if course.way == Way::Own
                && let Some(rate) = rate()
            {
                let grows = rate > course.rate.saturating_add(course.rate / 4);
                course.still = if grows { 0 } else { course.still + 1 };
                course.rate = course.rate.max(rate);
            }
        }
        if course.still >= STILL_MAX || course.padded >= PADDING_MAX || now >= course.end {
            *self = Self::Done;
        }
    }
}

/// A frame is long from here on: shorter ones leave in the first round trip anyway.
pub(super) const LONG: usize = 16 << 10;
/// Padding at most: what a gigabit per second over 12 ms takes to be seen, and some round trips more.
const PADDING_MAX: usize = 8 << 20;
/// Round trips without growth by a quarter that say that the way is full (BBR's own rule).
const STILL_MAX: u32 = 3;
/// Round trips at most, also where nobody has time for it.
const ROUNDS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);

    /// How much padding goes over a network of this rate, and how many round trips it takes.
    fn run(limit: u64, limited_by_sender: bool, way: Way) -> (usize, u32) {
        let start = Instant::now();
        let mut probe = Probe::Due { round_trip: ROUND_TRIP, way };
        probe.begin(start);
        let (mut rate, mut rounds, mut sum) = (1_400_000, 0, 0);
        while probe.is_running() {
            rounds += 1;
            let count = (rate / 100) as usize;
            assert!(probe.allowance() > 0);
            sum += count;
            let seen = (!limited_by_sender).then_some(rate);
            probe.handle_padded(count, start + ROUND_TRIP * rounds, || seen);
            rate = (rate * 2).min(limit);
        }
        assert_eq!(probe.allowance(), 0);
        (sum, rounds)
    }

    #[test]
    fn padding_ends_when_the_rate_grows_no_more() {
        let (sum, rounds) = run(20_000_000, false, Way::Own);
        assert!((7..10).contains(&rounds), "{rounds} round trips");
        assert!(sum < 2_000_000, "{sum} bytes");
    }

    #[test]
    fn padding_is_bounded_in_bytes_and_time() {
        let (sum, rounds) = run(u64::MAX / 4, false, Way::Own);
        assert!(sum < 2 * PADDING_MAX && rounds < 12, "{sum} bytes in {rounds} round trips");
        assert_eq!(run(1_000_000, true, Way::Own).1, ROUNDS_MAX);
    }

    #[test]
    fn what_a_gateway_takes_does_not_end_it() {
        assert_eq!(run(1_000_000, false, Way::Behind).1, ROUNDS_MAX);
        assert!(run(u64::MAX / 4, false, Way::Behind).0 >= PADDING_MAX);
    }

    #[test]
    fn what_is_done_is_not_begun_again() {
        let mut probe = Probe::Done;
        probe.begin(Instant::now());
        probe.handle_padded(1, Instant::now(), || Some(1));
        assert_eq!((probe.is_running(), probe.allowance()), (false, 0));
    }
}
