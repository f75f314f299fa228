//! How fast a train of packets comes through.
//!
//! What leaves at a steady rate is confirmed at the same rate, or at that of the narrowest link of the way where that
//! carries less (packet trains: Jain & Routhier, "Packet trains", 1986; Dovrolis et al., "What do packet dispersion
//! techniques measure?", 2001). That shows also in trains that are shorter than a round trip, by which the kernel
//! divides what it has sent.

use std::time::{Duration, Instant};

/// What is seen of a train, one look after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Train {
    /// All is confirmed.
    #[default]
    Gone,
    /// Nothing of it is coming through: the last look, and the last that found any of it confirmed.
    Left { last: Sighting, moved: Instant },
    /// It comes through: the first look that found so, and the last.
    Coming { first: Sighting, last: Sighting },
}

/// What was seen of a train that has come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// In bytes per second.
    pub rate: u64,
    pub bytes: u64,
}

impl Passage {
    /// How long it would have taken at another rate, in bytes per second.
    pub fn time_at(&self, rate: u64) -> Duration {
        Duration::from_nanos(self.bytes.saturating_mul(1_000_000_000) / rate.max(1))
    }

    /// How much longer it took than at another rate.
    pub fn delay_at(&self, rate: u64) -> Duration {
        self.time_at(self.rate).saturating_sub(self.time_at(rate))
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
    /// at a rate, in bytes per second. Says at which the train came through, when it ends, pauses, or has been long enough.
    pub fn look(
        &mut self,
        at: Instant,
        confirmed: u64,
        is_under_way: bool,
        left: u64,
    ) -> Option<Passage> {
        let now = Sighting { at, confirmed };
        let clump = Passage { rate: left, bytes: CLUMP }.time_at(left / PAUSE_SHARE);
        let comes = |last: &Sighting| now.rate_since(last) > left / PAUSE_SHARE;
        let (next, came) = match *self {
            Self::Coming { first, last } if !is_under_way => (Self::Gone, last.train_since(&first)),
            _ if !is_under_way => (Self::Gone, None),
            Self::Gone => (Self::Left { last: now, moved: at }, None),
            Self::Left { last, .. } if comes(&last) => {
                (Self::Coming { first: now, last: now }, None)
            }
            Self::Left { last, moved } => {
                let moved = if confirmed > last.confirmed { at } else { moved };
                (Self::Left { last: now, moved }, None)
            }
            // Many packets are confirmed at a time.
            Self::Coming { last, .. } if confirmed == last.confirmed && at < last.at + clump => {
                (*self, None)
            }
            Self::Coming { first, last } if !comes(&last) => {
                (Self::Left { last: now, moved: at }, last.train_since(&first))
            }
            Self::Coming { first, .. } if at >= first.at + LONG && now.is_much_since(&first) => {
                (Self::Coming { first: now, last: now }, now.train_since(&first))
            }
            Self::Coming { first, .. } => (Self::Coming { first, last: now }, None),
        };
        *self = next;
        // One that was too short and was held up would be taken for a slow one, and never for a fast one.
        came.filter(|came| came.time_at(left) >= SHORT)
    }

    /// Whether more of it is to be confirmed; nobody waits long for what does not come.
    pub fn is_awaited(&self, now: Instant) -> bool {
        match *self {
            Self::Gone => false,
            Self::Left { moved, .. } => now < moved + PATIENCE,
            Self::Coming { .. } => true,
        }
    }
}

impl Sighting {
    /// At which rate more was confirmed, in bytes per second.
    fn rate_since(&self, before: &Self) -> u64 {
        let (time, bytes) = (self.at - before.at, self.confirmed - before.confirmed);
        let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Whether more than some packets were confirmed.
    fn is_much_since(&self, before: &Self) -> bool {
        self.confirmed - before.confirmed >= MUCH
    }

    /// A train since then, if it was one of more than some packets.
    fn train_since(&self, first: &Self) -> Option<Passage> {
        let bytes = self.confirmed - first.confirmed;
        (self.at - first.at >= SHORT && self.is_much_since(first))
            .then(|| Passage { rate: self.rate_since(first), bytes })
    }
}

/// Trains that say something: of some looks, also at the rate at which they left, and of some packets that did not come at
/// once.
const SHORT: Duration = Duration::from_millis(2);
const MUCH: u64 = 128 << 10;
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
        let rate = |came: Option<Passage>| came.map(|came| came.rate);
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
    fn a_pause_is_no_part_of_a_train() {
        let (start, mut train) = (Instant::now(), Train::default());
        let mut look = |ms, confirmed| {
            let came = train.look(start + Duration::from_millis(ms), confirmed, true, 100_000_000);
            came.map(|came| came.rate)
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
