//! Bandwidth estimates from packet trains.
//!
//! Packets that leave at a steady rate are acknowledged at that rate, or at the rate of the bottleneck link if that
//! is lower (Jain & Routhier, "Packet trains", 1986; Dovrolis et al., "What do packet dispersion techniques
//! measure?", 2001). Trains shorter than a round trip show it too; the kernel instead divides the bytes sent by the
//! round trip.

use std::time::{Duration, Instant};

/// The state of the current train, and of short ones before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketTrain {
    seen: TrainState,
    /// Sum of trains too short to prove anything alone, since they last did together.
    short: Option<TrainSample>,
}

/// The state of one train.
#[derive(Clone, Copy, Debug, Default)]
enum TrainState {
    /// Everything is acknowledged.
    #[default]
    Gone,
    /// The train has left and no ACKs arrive: the last look, and the last time that any ACK arrived.
    Left { last: AckSample, moved: Instant },
    /// ACKs arrive: the first look that saw it, and the last.
    Coming { first: AckSample, last: AckSample },
}

/// ACK timing of one train, or of several short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainSample {
    pub bytes: u64,
    pub took: Duration,
    pub trains: u32,
}

impl TrainSample {
    /// ACK rate in bytes per second.
    pub fn rate(&self) -> u64 {
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.took.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Time that it would have taken at another rate, in bytes per second.
    pub fn time_at(&self, rate: u64) -> Duration {
        time_at(self.bytes, rate)
    }

    /// Delay compared with another rate.
    pub fn delay_at(&self, rate: u64) -> Duration {
        self.took.saturating_sub(self.time_at(rate))
    }

    /// Sample of one train of `bytes` at `rate`.
    #[cfg(test)]
    pub fn at(rate: u64, bytes: u64) -> Self {
        Self { bytes, took: time_at(bytes, rate), trains: 1 }
    }

    /// Sum of both samples.
    fn and(&self, other: &Self) -> Self {
        let (bytes, took) = (self.bytes + other.bytes, self.took + other.took);
        Self { bytes, took, trains: self.trains + other.trains }
    }

    /// True if the train is at least `times` minimum trains long, in time (at `left` bytes per second, too) and in
    /// bytes.
    fn is_of(&self, times: u32, left: u64) -> bool {
        let least = self.took.min(self.time_at(left));
        least >= SHORT * times && self.bytes >= MUCH * u64::from(times)
    }
}

/// Bytes acknowledged at a point in time.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    at: Instant,
    /// Bytes acknowledged since the connection opened.
    confirmed: u64,
}

impl PacketTrain {
    /// Records a look: bytes acknowledged since the connection opened, whether more is in flight, and the sending
    /// rate in bytes per second. Returns a sample when the train ends, pauses or is long enough. Short trains return
    /// one when several together are long enough.
    pub fn look(
        &mut self,
        at: Instant,
        confirmed: u64,
        is_under_way: bool,
        left: u64,
    ) -> Option<TrainSample> {
        let now = AckSample { at, confirmed };
        let clump = time_at(CLUMP, left / PAUSE_SHARE);
        let comes = |last: &AckSample| now.since(last).rate() > left / PAUSE_SHARE;
        let (next, came) = match self.seen {
            TrainState::Coming { first, last } if !is_under_way => {
                (TrainState::Gone, Some(last.since(&first)))
            }
            _ if !is_under_way => (TrainState::Gone, None),
            TrainState::Gone => (TrainState::Left { last: now, moved: at }, None),
            TrainState::Left { last, .. } if comes(&last) => {
                (TrainState::Coming { first: now, last: now }, None)
            }
            TrainState::Left { last, moved } => {
                let moved = if confirmed > last.confirmed { at } else { moved };
                (TrainState::Left { last: now, moved }, None)
            }
            // Many packets are acknowledged at a time.
            TrainState::Coming { last, .. }
                if confirmed == last.confirmed && at < last.at + clump =>
            {
                (self.seen, None)
            }
            TrainState::Coming { first, last } if !comes(&last) => {
                (TrainState::Left { last: now, moved: at }, Some(last.since(&first)))
            }
            TrainState::Coming { first, .. }
                if at >= first.at + LONG && now.since(&first).bytes >= MUCH =>
            {
                (TrainState::Coming { first: now, last: now }, Some(now.since(&first)))
            }
            TrainState::Coming { first, .. } => (TrainState::Coming { first, last: now }, None),
        };
        self.seen = next;
        self.weigh(came?, left)
    }

    /// Returns the sample if it is long enough. A short train that was delayed would look slow, and none would ever
    /// look fast. Several together say as much as one long train.
    fn weigh(&mut self, came: TrainSample, left: u64) -> Option<TrainSample> {
        if came.is_of(1, left) {
            return Some(came);
        }
        let short = self.short.map_or(came, |short| short.and(&came));
        let says = short.is_of(SHORT_TOGETHER, left);
        self.short = (!says).then_some(short);
        says.then_some(short)
    }

    /// True if more ACKs are expected; the wait for absent ACKs is short.
    pub fn is_awaited(&self, now: Instant) -> bool {
        match self.seen {
            TrainState::Gone => false,
            TrainState::Left { moved, .. } => now < moved + PATIENCE,
            TrainState::Coming { .. } => true,
        }
    }
}

impl AckSample {
    /// Bytes and time since another sample.
    fn since(&self, before: &Self) -> TrainSample {
        let (bytes, took) = (self.confirmed - before.confirmed, self.at - before.at);
        TrainSample { bytes, took, trains: 1 }
    }
}

/// Time that `bytes` take at a rate in bytes per second.
fn time_at(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1))
}

/// Minimum length of a train: several looks, also at the sending rate, and several packets that did not arrive at
/// once.
const SHORT: Duration = Duration::from_millis(2);
const MUCH: u64 = 128 << 10;
/// Number of minimum trains that short trains must add up to: a clump of ACKs may be missing or extra at both ends of
/// each.
const SHORT_TOGETHER: u32 = 4;
/// Fraction of the sending rate below which the train pauses: short messages go, and no train.
const PAUSE_SHARE: u64 = 8;
/// Bytes acknowledged at a time.
const CLUMP: u64 = 64 << 10;
/// Duration after which a train counts as complete. BBR under a cap takes that rate for the maximum after three round
/// trips, so this is shorter.
const LONG: Duration = Duration::from_millis(20);
/// Longest round trip, retransmissions included.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rate found for a train of `bytes` with looks `every` ms. Its ACKs arrive over `took` ms from
    /// `delay` on.
    fn found(bytes: u64, took: u64, delay: u64, every: u64) -> (Option<u64>, u64) {
        let rate = |came: Option<TrainSample>| came.map(|came| came.rate());
        let (start, mut train, mut looks) = (Instant::now(), PacketTrain::default(), 0);
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
    fn a_train_has_the_rate_of_its_acks_whenever_they_begin() {
        for delay in [1, 11, 12, 100] {
            let (came, _) = found(1_000_000, 10, delay, 2);
            assert_eq!(came, Some(100_000_000), "{delay} ms");
        }
    }

    #[test]
    fn acks_at_once_prove_nothing() {
        assert_eq!(found(1_000_000, 1, 12, 2).0, None);
        assert_eq!(found(20_000, 10, 12, 2).0, None, "a few packets");
        assert_eq!(found(250_000, 10, 12, 2).0, None, "soon gone, and held up");
        assert_eq!(found(1_000_000, 10, 12, 30).0, None, "nobody looked");
    }

    #[test]
    fn short_trains_prove_together_what_one_does_not() {
        let (start, mut train) = (Instant::now(), PacketTrain::default());
        // Two looks, 1 ms apart, see ACKs of each train.
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
        let (start, mut train) = (Instant::now(), PacketTrain::default());
        let mut look = |ms, confirmed| {
            let came = train.look(start + Duration::from_millis(ms), confirmed, true, 100_000_000);
            came.map(|came| came.rate())
        };
        let begun = [(0, 0), (2, 200_000), (4, 400_000), (6, 600_000)];
        assert!(begun.iter().all(|&(ms, confirmed)| look(ms, confirmed).is_none()));
        // A clump of ACKs may still arrive.
        assert_eq!(look(8, 600_000), None);
        assert_eq!(look(10, 600_010), Some(100_000_000));
        assert!((11..50).all(|ms| look(ms, 600_000 + ms).is_none()));
        // The bytes acknowledged meanwhile came at once.
        assert_eq!(look(50, 1_600_000), None);
        assert_eq!(look(58, 2_000_000), None);
        assert_eq!(look(60, 2_000_100), Some(50_000_000));
    }

    #[test]
    fn an_endless_train_is_split_into_many() {
        let (came, looks) = found(1_000_000_000, 10_000, 12, 2);
        assert_eq!(came, Some(100_000_000));
        assert!(looks < 40, "{looks} looks");
    }

    #[test]
    fn missing_acks_are_not_awaited_for_long() {
        let (start, mut train) = (Instant::now(), PacketTrain::default());
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
