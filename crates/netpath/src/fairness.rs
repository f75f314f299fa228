//! Fairness of rate-based sending on a full path.
//!
//! A sender at its measured rate, such as BBR, does not yield to a queue. A competing flow that fills the buffer and
//! yields to losses, such as CUBIC, leaves it most of its bandwidth (Ware et al. 2019, on BBR's interactions with
//! loss-based congestion control). A sender capped below the bandwidth of the path makes no queue, so a
//! standing queue is another flow's. Therefore a sender with more than its share is capped at its share while a queue
//! stands, until the queue has gone.
//!
//! The bandwidth of the path shows when no queue stands, or is remembered. A sender that knows neither came after the
//! others, and takes what it gets.

use std::time::{Duration, Instant};

/// The share that a connection takes of its path, and its limit.
#[derive(Debug, Default)]
pub struct Fairness {
    span: Option<LookSpan>,
    /// Highest rate of a span, in bytes per second, and whether one had no queue.
    carried: u64,
    was_free: bool,
    limit: Option<RateLimit>,
    /// Delay of packets that is no queueing: the path has become longer.
    longer: Duration,
}

/// A sample of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ShareSample {
    /// Minimum round trip.
    pub least: Duration,
    /// Current excess over the minimum round trip.
    pub waits: Duration,
    /// Bytes acknowledged since the connection opened.
    pub confirmed: u64,
    /// Losses in any unit, since the connection opened.
    pub lost: u64,
    /// True if unsent bytes are queued.
    pub is_busy: bool,
}

/// Consecutive looks over several round trips.
#[derive(Clone, Copy, Debug)]
struct LookSpan {
    begin: Instant,
    first: ShareSample,
    last: Instant,
    was_busy: bool,
    /// Time for which it was busy, and the minimum queueing delay.
    busy: Duration,
    waits: Duration,
}

#[derive(Clone, Copy, Debug)]
struct RateLimit {
    /// Limit in bytes per second.
    rate: u64,
    /// Time of the last loss.
    lossless: Instant,
}

impl Fairness {
    /// Limit on the rate of the connection, in bytes per second.
    pub fn most(&self) -> Option<u64> {
        self.limit.map(|limit| limit.rate)
    }

    /// Records a look, several per round trip while the connection is busy. `remembered` is the bandwidth from
    /// earlier connections, in bytes per second. Returns true if [`most`](Self::most) has changed.
    pub fn look(&mut self, now: Instant, sight: &ShareSample, remembered: Option<u64>) -> bool {
        if sight.least < NEAR {
            return false;
        }
        let lasts = (sight.least * SPAN_ROUNDS).max(SPAN_MIN);
        let span = self.span.get_or_insert(LookSpan::new(now, sight));
        span.look(now, sight, lasts / SPAN_ROUNDS);
        if now < span.begin + lasts {
            return false;
        }
        let ended = *span;
        self.span = Some(LookSpan::new(now, sight));
        let before = self.most();
        self.judge(now, &ended, sight, remembered);
        self.most() != before
    }

    fn judge(&mut self, now: Instant, span: &LookSpan, end: &ShareSample, remembered: Option<u64>) {
        // A sender that pauses leaves enough to others.
        if span.busy < (now - span.begin) / 4 * 3 {
            self.limit = None;
            return;
        }
        let rate = span.rate(now, end);
        self.longer = self.longer.min(span.waits);
        let stands = span.waits - self.longer > end.least / QUEUE_SHARE + QUEUE_MIN;
        self.carried = self.carried.max(rate);
        self.was_free |= !stands;
        let Some(bandwidth) = self.bandwidth(remembered) else { return };
        let part = bandwidth / 100 * PART_PERCENT;
        let loses = end.lost > span.first.lost;
        let Some(limit) = &mut self.limit else {
            // With nearly all of the bandwidth, the queue is the sender's own; losses took bandwidth as well.
            let alone = bandwidth - bandwidth / if loses { LEFT_LOSING } else { LEFT };
            let is_limited = stands && (part..alone).contains(&rate);
            self.limit = is_limited.then_some(RateLimit { rate: part, lossless: now });
            return;
        };
        if loses {
            limit.lossless = now;
        }
        limit.rate = if stands { part } else { limit.rate + limit.rate / RISE };
        let is_longer = stands && now >= limit.lossless + LOSSLESS;
        if is_longer {
            self.longer = span.waits;
        }
        if is_longer || limit.rate > bandwidth {
            self.limit = None;
        }
    }

    /// Bandwidth of the path, if known; a remembered one may be a quarter too high.
    fn bandwidth(&self, remembered: Option<u64>) -> Option<u64> {
        let known = remembered.map(|rate| rate / 5 * 4);
        Some(known.or(self.was_free.then_some(0))?.max(self.carried))
    }
}

impl LookSpan {
    fn new(now: Instant, sight: &ShareSample) -> Self {
        let (busy, waits, was_busy) = (Duration::ZERO, sight.waits, sight.is_busy);
        Self { begin: now, first: *sight, last: now, was_busy, busy, waits }
    }

    /// Records a look. Times between looks farther apart than a round trip do not count as busy.
    fn look(&mut self, now: Instant, sight: &ShareSample, round_trip: Duration) {
        let since = now - self.last;
        if self.was_busy && since <= round_trip {
            self.busy += since;
        }
        self.last = now;
        self.was_busy = sight.is_busy;
        self.waits = self.waits.min(sight.waits);
    }

    /// ACK rate, in bytes per second.
    fn rate(&self, now: Instant, end: &ShareSample) -> u64 {
        let bytes = u128::from(end.confirmed - self.first.confirmed);
        let rate = bytes * 1_000_000_000 / (now - self.begin).as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Round trip below which hosts cause the delays, and no queue.
const NEAR: Duration = Duration::from_millis(1);
/// Share of the bandwidth in percent: a little more than half, so that two such senders fill the path.
const PART_PERCENT: u64 = 55;
/// Share (1/n) of the bandwidth; if less is left to others, the queue is one's own.
const LEFT: u64 = 16;
/// The same share when packets are lost.
const LEFT_LOSING: u64 = 8;
/// Length of a span: twice the round trips between two of BBR's own queues, and the time in which busy hosts answer
/// at once at least once.
const SPAN_ROUNDS: u32 = 16;
const SPAN_MIN: Duration = Duration::from_millis(100);
/// Delay that proves a standing queue: always more than this share of the round trip, and than this time, since hosts
/// are late.
const QUEUE_SHARE: u32 = 4;
const QUEUE_MIN: Duration = Duration::from_millis(1);
/// Share (1/n) by which the limit rises in each span without a queue. Other senders that probe for bandwidth, such as
/// BBR, find it sooner.
const RISE: u64 = 8;
/// Time without losses after which nobody fills the buffer, and the path has become longer.
const LOSSLESS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A simulated link, its senders, and their packets.
    struct SimNetwork {
        path: SimPath,
        start: Instant,
        ms: f64,
        senders: Vec<SimSender>,
        /// Queue before the link: sender and bytes.
        queue: VecDeque<(usize, f64)>,
        queued: f64,
        /// ACKs and losses in flight: arrival, sender, bytes, and queueing delay (`None` for a loss).
        acks: VecDeque<(f64, usize, f64, Option<f64>)>,
    }

    #[derive(Clone, Copy, Debug)]
    struct SimPath {
        /// Bandwidth in bytes per millisecond.
        rate: f64,
        round_trip_ms: f64,
        buffer: f64,
    }

    struct SimSender {
        law: SendLaw,
        in_flight: f64,
        confirmed: f64,
        lost: u64,
    }

    enum SendLaw {
        /// RateLaw-based, by the highest rate of the last rounds, as BBR.
        RateLaw(Box<RateLaw>),
        /// Loss-based (CUBIC, RFC 9438, in packets).
        Loss { window: f64, greatest: f64, reduced_ms: f64, is_slow: bool },
        /// It has ended.
        Over,
    }

    struct RateLaw {
        rates: VecDeque<f64>,
        round: u32,
        /// Begin and length of the round, and the bytes acknowledged at its begin.
        begun_ms: f64,
        lasts_ms: f64,
        confirmed: f64,
        fairness: Fairness,
    }

    impl SimNetwork {
        fn new(path: SimPath) -> Self {
            let (queue, acks) = (VecDeque::new(), VecDeque::new());
            Self {
                path,
                start: Instant::now(),
                ms: 0.0,
                senders: Vec::new(),
                queue,
                queued: 0.0,
                acks,
            }
        }

        fn add(&mut self, law: SendLaw) -> usize {
            self.senders.push(SimSender { law, in_flight: 0.0, confirmed: 0.0, lost: 0 });
            self.senders.len() - 1
        }

        fn add_rate(&mut self, begins_with: f64) -> usize {
            let rates = VecDeque::from([begins_with]);
            let fairness = Fairness::default();
            let (round, begun_ms, lasts_ms, confirmed) = (0, self.ms, self.path.round_trip_ms, 0.0);
            self.add(SendLaw::RateLaw(Box::new(RateLaw {
                rates,
                round,
                begun_ms,
                lasts_ms,
                confirmed,
                fairness,
            })))
        }

        fn add_loss(&mut self) -> usize {
            self.add(SendLaw::Loss {
                window: 10.0,
                greatest: 10.0,
                reduced_ms: self.ms,
                is_slow: true,
            })
        }

        fn is_limited(&self, index: usize) -> bool {
            matches!(&self.senders[index].law, SendLaw::RateLaw(law) if law.fairness.most().is_some())
        }

        /// Runs the simulation; returns each sender's share of the bandwidth.
        fn run(&mut self, seconds: f64) -> Vec<f64> {
            let before: Vec<f64> = self.senders.iter().map(|sender| sender.confirmed).collect();
            let end = self.ms + 1000.0 * seconds;
            while self.ms < end {
                self.step();
            }
            let carried = self.path.rate * 1000.0 * seconds;
            self.senders
                .iter()
                .zip(before)
                .map(|(sender, before)| (sender.confirmed - before) / carried)
                .collect()
        }

        fn step(&mut self) {
            let SimPath { rate, round_trip_ms, buffer } = self.path;
            self.ms += STEP_MS;
            let go: Vec<f64> =
                self.senders.iter().map(|sender| sender.goes(round_trip_ms)).collect();
            let share = ((buffer - self.queued) / go.iter().sum::<f64>()).min(1.0);
            for (index, goes) in go.into_iter().enumerate() {
                self.senders[index].in_flight += goes;
                let fits = share * goes;
                self.queue.push_back((index, fits));
                self.queued += fits;
                if share < 1.0 {
                    let heard = self.ms + round_trip_ms + self.queued / rate;
                    self.acks.push_back((heard, index, goes - fits, None));
                }
            }
            let waits = self.queued / rate;
            let mut room = rate * STEP_MS;
            while let Some((index, bytes)) = self.queue.front_mut().filter(|_| room > 0.0) {
                let (index, passes) = (*index, bytes.min(room));
                (*bytes, room, self.queued) =
                    (*bytes - passes, room - passes, self.queued - passes);
                self.acks.push_back((self.ms + round_trip_ms, index, passes, Some(waits)));
                if *bytes <= 0.0 {
                    self.queue.pop_front();
                }
            }
            let now = self.start + Duration::from_secs_f64(self.ms / 1000.0);
            let ms = self.ms;
            self.acks.retain(|&(heard, index, bytes, waited)| {
                if heard <= ms {
                    self.senders[index].hear(now, ms, self.path, bytes, waited);
                }
                heard > ms
            });
        }
    }

    impl SimSender {
        /// Bytes that leave in a step.
        fn goes(&self, round_trip_ms: f64) -> f64 {
            let (window, most) = match &self.law {
                SendLaw::RateLaw(law) => {
                    let gain = [1.25, 0.75].get(law.round as usize % 8).copied().unwrap_or(1.0);
                    let most = law.fairness.most();
                    let most = most.map_or(f64::MAX, |most| most as f64 / 1000.0);
                    (2.0 * law.rate() * round_trip_ms, (gain * law.rate()).min(most) * STEP_MS)
                }
                SendLaw::Loss { window, .. } => (window * PACKET, f64::MAX),
                SendLaw::Over => (0.0, 0.0),
            };
            (window - self.in_flight).clamp(0.0, most)
        }

        /// Handles an ACK with its queueing delay, or a loss.
        fn hear(&mut self, now: Instant, ms: f64, path: SimPath, bytes: f64, waited: Option<f64>) {
            self.in_flight -= bytes;
            let Some(waited) = waited else {
                self.lost += 1;
                if let SendLaw::Loss { window, greatest, reduced_ms, is_slow } = &mut self.law
                    && ms > *reduced_ms + 2.0 * path.round_trip_ms
                {
                    (*greatest, *window, *reduced_ms, *is_slow) =
                        (*window, *window * 0.7, ms, false);
                }
                return;
            };
            self.confirmed += bytes;
            match &mut self.law {
                SendLaw::RateLaw(law) => {
                    let span = |ms: f64| Duration::from_secs_f64(ms / 1000.0);
                    let (confirmed, lost) = (self.confirmed as u64, self.lost);
                    let (least, waits) = (span(path.round_trip_ms), span(waited));
                    let sight = ShareSample { least, waits, confirmed, lost, is_busy: true };
                    law.fairness.look(now, &sight, None);
                    law.end_round(ms, self.confirmed, path.round_trip_ms + waited);
                }
                SendLaw::Loss { window, greatest, reduced_ms, is_slow } => {
                    let packets = bytes / PACKET;
                    if *is_slow {
                        *window += packets;
                        return;
                    }
                    let since = (ms - *reduced_ms + path.round_trip_ms) / 1000.0;
                    let inflection = (*greatest * 0.3 / 0.4).cbrt();
                    let target = 0.4 * (since - inflection).powi(3) + *greatest;
                    // CUBIC is never slower than Reno with the same reductions.
                    let reno =
                        0.53 * since * 1000.0 / (path.round_trip_ms + waited) + *greatest * 0.7;
                    let target = target.max(reno);
                    *window += (target.min(1.5 * *window) - *window).max(0.0) / *window * packets;
                }
                SendLaw::Over => {}
            }
        }
    }

    impl RateLaw {
        fn rate(&self) -> f64 {
            self.rates.iter().copied().fold(0.0, f64::max)
        }

        fn end_round(&mut self, ms: f64, confirmed: f64, round_trip_ms: f64) {
            if ms < self.begun_ms + self.lasts_ms {
                return;
            }
            // Nothing is acknowledged in the first round.
            if self.round > 0 {
                self.rates.push_back((confirmed - self.confirmed) / (ms - self.begun_ms));
            }
            if self.rates.len() > 10 {
                self.rates.pop_front();
            }
            self.round += 1;
            (self.begun_ms, self.lasts_ms, self.confirmed) = (ms, round_trip_ms, confirmed);
        }
    }

    /// Returns a link with a buffer of `holds` times the bandwidth-delay product.
    fn path(rate: f64, round_trip_ms: f64, holds: f64) -> SimPath {
        SimPath { rate, round_trip_ms, buffer: holds * rate * round_trip_ms }
    }

    /// Returns the lab's WAN link.
    fn lab() -> SimPath {
        path(117_600.0, 11.6, 1.4)
    }

    #[test]
    fn a_loss_based_flow_gets_its_share_beside_an_earlier_one() {
        for path in [lab(), path(37_500.0, 30.0, 1.4), path(11_760.0, 60.0, 2.0)] {
            let mut network = SimNetwork::new(path);
            let own = network.add_rate(path.rate);
            network.run(3.0);
            let other = network.add_loss();
            let shares = network.run(20.0);
            println!("{path:?}: {shares:.2?}");
            assert!(shares[own] > 0.35, "{path:?}: {shares:?}");
            assert!(shares[other] > 0.35, "{path:?}: {shares:?}");
        }
    }

    #[test]
    fn the_full_rate_returns_when_the_other_flow_ends() {
        let mut network = SimNetwork::new(lab());
        let own = network.add_rate(lab().rate);
        network.run(3.0);
        let other = network.add_loss();
        network.run(10.0);
        assert!(network.is_limited(own));
        network.senders[other].law = SendLaw::Over;
        network.run(1.0);
        assert!(!network.is_limited(own));
        let shares = network.run(2.0);
        assert!(shares[own] > 0.95, "{shares:?}");
    }

    #[test]
    fn rate_based_senders_fill_the_path_together() {
        for (count, path) in [(1, lab()), (1, path(37_500.0, 30.0, 0.3)), (2, lab()), (4, lab())] {
            let mut network = SimNetwork::new(path);
            for _ in 0..count {
                network.add_rate(path.rate);
            }
            network.run(3.0);
            let shares = network.run(5.0);
            println!("{path:?}: {shares:.2?}");
            assert!(shares.iter().sum::<f64>() > 0.95, "{path:?}: {shares:?}");
        }
    }

    /// Returns the limit after a series of looks. Each entry is a time in ms, a rate in kB/s, a queueing delay in ms,
    /// and whether packets were lost.
    fn limit_after(
        looks: &[(u64, u64, u64, bool)],
        is_busy: bool,
        remembered: Option<u64>,
    ) -> Option<u64> {
        let (mut now, mut fairness) = (Instant::now(), Fairness::default());
        let (least, mut confirmed, mut lost) = (Duration::from_millis(10), 0, 0);
        for &(lasts, rate, waits, loses) in looks {
            for _ in 0..lasts / 5 {
                now += Duration::from_millis(5);
                (confirmed, lost) = (confirmed + 5 * rate, lost + u64::from(loses));
                let waits = Duration::from_millis(waits);
                fairness.look(
                    now,
                    &ShareSample { least, waits, confirmed, lost, is_busy },
                    remembered,
                );
            }
        }
        fairness.most()
    }

    const ALONE: (u64, u64, u64, bool) = (1000, 100_000, 0, false);

    #[test]
    fn a_sender_above_its_share_is_limited_while_a_queue_stands() {
        let beside = |rate, waits| limit_after(&[ALONE, (1000, rate, waits, false)], true, None);
        assert_eq!(beside(70_000, 10), Some(55_000_000));
        assert_eq!(beside(50_000, 10), None, "it has less");
        assert_eq!(beside(90_000, 10), Some(55_000_000), "others have a tenth");
        assert_eq!(beside(95_000, 10), None, "nearly all is its own");
        let losing = |rate| limit_after(&[ALONE, (1000, rate, 10, true)], true, None);
        assert_eq!(losing(80_000), Some(55_000_000));
        assert_eq!(losing(90_000), None, "what is lost took room, too");
        assert_eq!(beside(70_000, 2), None, "no queue");
        let pauses = limit_after(&[ALONE, (1000, 70_000, 10, false)], false, None);
        assert_eq!(pauses, None, "it leaves enough");
    }

    #[test]
    fn a_sender_that_does_not_know_the_bandwidth_is_not_limited() {
        let comes_late = |remembered| limit_after(&[(2000, 70_000, 10, false)], true, remembered);
        assert_eq!(comes_late(None), None);
        assert_eq!(comes_late(Some(125_000_000)), Some(55_000_000));
    }

    #[test]
    fn a_longer_path_does_not_count_as_a_queue_for_ever() {
        let minute = LOSSLESS.as_millis() as u64;
        let since = |lasts, loses| limit_after(&[ALONE, (lasts, 60_000, 10, loses)], true, None);
        assert!(since(minute - 1000, false).is_some());
        assert_eq!(since(minute + 1000, false), None);
        assert!(since(minute + 1000, true).is_some(), "somebody fills the buffer");
        let queue = [ALONE, (minute + 1000, 60_000, 10, false), (1000, 60_000, 20, false)];
        assert!(limit_after(&queue, true, None).is_some(), "a queue on the longer path");
    }

    const STEP_MS: f64 = 0.2;
    const PACKET: f64 = 1448.0;
}
