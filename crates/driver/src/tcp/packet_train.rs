//! How fast a train of packets comes through.
//!
//! What leaves at a steady rate is confirmed at the same rate, or at that of the narrowest link of the way where that
//! carries less (packet trains: Jain & Routhier, "Packet trains", 1986; Dovrolis et al., "What do packet dispersion
//! techniques measure?", 2001). That shows also in trains that are shorter than a round trip, by which the kernel
//! divides what it has sent.

use std::time::{Duration, Instant};

/// What is seen of trains, one look after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Train {
    seen: Seen,
    /// Of those too short to say anything by themselves, since they last did together.
    short: Option<Passage>,
}

/// What is seen of one train.
#[derive(Clone, Copy, Debug, Default)]
enum Seen {
    /// All is confirmed.
    #[default]
    Gone,
    /// Nothing of it is coming through: the last look, and the last that found any of it confirmed.
    Left { last: Sighting, moved: Instant },
    /// It comes through: the first look that found so, and the last.
    Coming { first: Sighting, last: Sighting },
}

/// What was seen of a train that has come through, or of several short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub bytes: u64,
    pub took: Duration,
    pub trains: u32,
}

impl Passage {
    /// In bytes per second.
    pub fn rate(&self) -> u64 {
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.took.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// How long it would have taken at another rate, in bytes per second.
    pub fn time_at(&self, rate: u64) -> Duration {
        time_at(self.bytes, rate)
    }

    /// How much longer it took than at another rate.
    pub fn delay_at(&self, rate: u64) -> Duration {
        self.took.saturating_sub(self.time_at(rate))
    }

    /// Of one train of so many bytes.
    #[cfg(test)]
    pub fn at(rate: u64, bytes: u64) -> Self {
        Self { bytes, took: time_at(bytes, rate), trains: 1 }
    }

    /// Both together.
    fn and(&self, other: &Self) -> Self {
        let (bytes, took) = (self.bytes + other.bytes, self.took + other.took);
        Self { bytes, took, trains: self.trains + other.trains }
    }

    /// Whether what left at a rate took so many of the shortest trains' times, and was as much as so many have.
    fn is_of(&self, times: u32, left: u64) -> bool {
        let least = self.took.min(self.time_at(left));
        least >= SHORT * times && self.bytes >= MUCH * u64::from(times)
    }
}

/// So much was confirmed at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    at: Instant,
    /// Since the connection opened, in bytes.
    confirmed: u64,
}

impl Train {
    /// A look: so many bytes were confirmed since the connection opened, and more is under way, or not. What leaves does so
    /// at a rate, in bytes per second. Says at which the train came through, when it ends, pauses, or has been long enough,
    /// and of short ones when some have.
    pub fn look(
        &mut self,
        at: Instant,
        confirmed: u64,
        is_under_way: bool,
        left: u64,
    ) -> Option<Passage> {
        let now = Sighting { at, confirmed };
        let clump = time_at(CLUMP, left / PAUSE_SHARE);
        let comes = |last: &Sighting| now.since(last).rate() > left / PAUSE_SHARE;
        let (next, came) = match self.seen {
            Seen::Coming { first, last } if !is_under_way => (Seen::Gone, Some(last.since(&first))),
            _ if !is_under_way => (Seen::Gone, None),
            Seen::Gone => (Seen::Left { last: now, moved: at }, None),
            Seen::Left { last, .. } if comes(&last) => {
                (Seen::Coming { first: now, last: now }, None)
            }
            Seen::Left { last, moved } => {
                let moved = if confirmed > last.confirmed { at } else { moved };
                (Seen::Left { last: now, moved }, None)
            }
            // Many packets are confirmed at a time.
            Seen::Coming { last, .. } if confirmed == last.confirmed && at < last.at + clump => {
                (self.seen, None)
            }
            Seen::Coming { first, last } if !comes(&last) => {
                (Seen::Left { last: now, moved: at }, Some(last.since(&first)))
            }
            Seen::Coming { first, .. }
                if at >= first.at + LONG && now.since(&first).bytes >= MUCH =>
            {
                (Seen::Coming { first: now, last: now }, Some(now.since(&first)))
            }
            Seen::Coming { first, .. } => (Seen::Coming { first, last: now }, None),
        };
        self.seen = next;
        self.weigh(came?, left)
    }

    /// What is seen of a train, if it says anything. One that was too short and was held up would be taken for a slow one, and
    /// never for a fast one; some together say what their looks would have said of a longer one.
    fn weigh(&mut self, came: Passage, left: u64) -> Option<Passage> {
        if came.is_of(1, left) {
            return Some(came);
        }
        let short = self.short.map_or(came, |short| short.and(&came));
        let says = short.is_of(SHORT_TOGETHER, left);
        self.short = (!says).then_some(short);
        says.then_some(short)
    }

    /// Whether more of it is to be confirmed; nobody waits long for what does not come.
    pub fn is_awaited(&self, now: Instant) -> bool {
        match self.seen {
            Seen::Gone => false,
            Seen::Left { moved, .. } => now < moved + PATIENCE,
            Seen::Coming { .. } => true,
        }
    }
}

impl Sighting {
    /// What was confirmed since then.
    fn since(&self, before: &Self) -> Passage {
        let (bytes, took) = (self.confirmed - before.confirmed, self.at - before.at);
        Passage { bytes, took, trains: 1 }
    }
}

/// How long so many bytes take at a rate, in bytes per second.
fn time_at(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1))
}

/// Trains that say something: of some looks, also at the rate at which they left, and of some packets that did not come at
/// once.
const SHORT: Duration = Duration::from_millis(2);
const MUCH: u64 = 128 << 10;
/// Trains that are shorter say something when together they are as long as so many of these: at both ends of each a clump of
/// confirmations may have come, or be about to.
const SHORT_TOGETHER: u32 = 4;
/// Where less comes through than this part of what leaves, the train pauses: words go, and no train.
const PAUSE_SHARE: u64 = 8;
/// As much is confirmed at a time.
const CLUMP: u64 = 64 << 10;
/// What goes on for so long is taken for a train of its own: sooner than BBR, held to a rate, takes that for all there is,
/// which is after three round trips.
const LONG: Duration = Duration::from_millis(20);
/// The longest round trips, and what is sent again.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a train of so many bytes, in looks so many ms apart, is found to come through at: it comes through in
    /// `took` ms from `delay` on.
    fn found(bytes: u64, took: u64, delay: u64, every: u64) -> (Option<u64>, u64) {
        let rate = |came: Option<Passage>| came.map(|came| came.rate());
        let (start, mut train, mut looks) = (Instant::now(), Train::default(), 0);
        for ms in (0..).step_by(every as usize) {
            looks += 1;
            let now = start + Duration::from_millis(ms);
            let confirmed = bytes * ms.saturating_sub(delay).min(took) / took;
            let came = train.look(now, 1000 + confirmed, confirmed < bytes, 100_000_000);
            if came.is_some() || confirmed == bytes {
                return (rate(came), looks);
            }
            assert!(train.is_awaited(now));
        }
        unreachable!()
    }

    #[test]
    fn a_train_has_the_rate_at_which_it_is_confirmed_whenever_that_begins() {
        for delay in [1, 11, 12, 100] {
            let (came, _) = found(1_000_000, 10, delay, 2);
            assert_eq!(came, Some(100_000_000), "{delay} ms");
        }
    }

    #[test]
    fn what_is_confirmed_at_once_says_nothing() {
        assert_eq!(found(1_000_000, 1, 12, 2).0, None);
        assert_eq!(found(20_000, 10, 12, 2).0, None, "a few packets");
        assert_eq!(found(250_000, 10, 12, 2).0, None, "soon gone, and held up");
        assert_eq!(found(1_000_000, 10, 12, 30).0, None, "nobody looked");
    }

    #[test]
    fn short_trains_say_together_what_one_does_not() {
        let (start, mut train) = (Instant::now(), Train::default());
        // Of each of them two looks are had in which it comes, 1 ms apart.
        let mut came = (0..100).filter_map(|nth: u64| {
            let ends = [(0, 0), (10, 0), (12, 60_000), (13, 160_000), (15, 200_000)];
            ends.into_iter().find_map(|(ms, bytes)| {
                let at = start + Duration::from_millis(20 * nth + ms);
                train.look(at, 200_000 * nth + bytes, bytes < 200_000, 100_000_000)
            })
        });
        let first = came.next().expect("some together");
        assert_eq!((first.rate(), first.trains), (100_000_000, 8));
        assert_eq!(came.next(), Some(first), "others");
    }

    #[test]
    fn a_pause_is_no_part_of_a_train() {
        let (start, mut train) = (Instant::now(), Train::default());
        let mut look = |ms, confirmed| {
            let came = train.look(start + Duration::from_millis(ms), confirmed, true, 100_000_000);
            came.map(|came| came.rate())
        };
        let begun = [(0, 0), (2, 200_000), (4, 400_000), (6, 600_000)];
        assert!(begun.iter().all(|&(ms, confirmed)| look(ms, confirmed).is_none()));
        // Or a clump of confirmations is to come.
        assert_eq!(look(8, 600_000), None);
        assert_eq!(look(10, 600_010), Some(100_000_000));
        assert!((11..50).all(|ms| look(ms, 600_000 + ms).is_none()));
        // What was confirmed meanwhile came at once.
        assert_eq!(look(50, 1_600_000), None);
        assert_eq!(look(58, 2_000_000), None);
        assert_eq!(look(60, 2_000_100), Some(50_000_000));
    }

    #[test]
    fn what_does_not_end_is_many_trains() {
        let (came, looks) = found(1_000_000_000, 10_000, 12, 2);
        assert_eq!(came, Some(100_000_000));
        assert!(looks < 40, "{looks} looks");
    }

    #[test]
    fn what_is_not_confirmed_is_not_awaited_for_long() {
        let (start, mut train) = (Instant::now(), Train::default());
        assert!(!train.is_awaited(start), "nothing left");
        for ms in 0..=1000 {
            assert_eq!(train.look(start + Duration::from_millis(ms), 7, true, 1000), None);
        }
        assert!(!train.is_awaited(start + PATIENCE));
        train.look(start + PATIENCE, 7, false, 1000);
        assert!(!train.is_awaited(start));
        train.look(start, 7, true, 1000);
        assert!(train.is_awaited(start), "of the next one");
    }
}
