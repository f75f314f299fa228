//! Leaves others their part of a way that is full.
//!
//! Who sends at the rate that it has measured, as BBR does, gives way to no queue: beside a flow that fills the buffer and
//! gives way to losses, as CUBIC does, it keeps most of what it had (Ware et al., "Modeling BBR's interactions with
//! loss-based congestion control", 2019). But who is held to less than the way carries makes no queue: one that stands all
//! the same is somebody else's. So who takes more than its part of the way while a queue stands is held to its part, until
//! the queue has gone.
//!
//! What the way carries shows when no queue stands, or is remembered. Who knows neither has come to where others were
//! before, and takes what it gets.

use std::time::{Duration, Instant};

/// What a connection takes of its way, and leaves of it.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    span: Option<Span>,
    /// The greatest rate of a span, in bytes per second, and whether no queue stood in one.
    carried: u64,
    was_free: bool,
    held: Option<Held>,
    /// For how long packets wait that wait for nobody: the way has become longer.
    longer: Duration,
}

/// What is seen of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// The least round trip, and by how much they are longer now.
    pub least: Duration,
    pub waits: Duration,
    /// What has been confirmed, in bytes, and what was lost, in whatever unit, since it opened.
    pub confirmed: u64,
    pub lost: u64,
    /// There is more to be sent than has left.
    pub is_busy: bool,
}

/// Looks in a row, of some round trips.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: Instant,
    first: Sight,
    last: Instant,
    was_busy: bool,
    /// For how long it was busy, and for how long packets waited at least.
    busy: Duration,
    waits: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// In bytes per second.
    rate: u64,
    /// Since when nothing was lost.
    lossless: Instant,
}

impl Fairness {
    /// What the connection is to be held to, in bytes per second.
    pub fn most(&self) -> Option<u64> {
        self.held.map(|held| held.rate)
    }

    /// A look, to be had some times in a round trip while the connection is busy. Connections before it have left word
    /// that the way carries so much, in bytes per second, if they have. Whether [`most`](Self::most) has changed.
    pub fn look(&mut self, now: Instant, sight: &Sight, remembered: Option<u64>) -> bool {
        if sight.least < NEAR {
            return false;
        }
        let lasts = (sight.least * SPAN_ROUNDS).max(SPAN_MIN);
        let span = self.span.get_or_insert(Span::new(now, sight));
        span.look(now, sight, lasts / SPAN_ROUNDS);
        if now < span.begin + lasts {
            return false;
        }
        let ended = *span;
        self.span = Some(Span::new(now, sight));
        let before = self.most();
        self.judge(now, &ended, sight, remembered);
        self.most() != before
    }

    fn judge(&mut self, now: Instant, span: &Span, end: &Sight, remembered: Option<u64>) {
        // Who pauses leaves enough.
        if span.busy < (now - span.begin) / 4 * 3 {
            self.held = None;
            return;
        }
        let rate = span.rate(now, end);
        self.longer = self.longer.min(span.waits);
        let stands = span.waits - self.longer > end.least / QUEUE_SHARE + QUEUE_MIN;
        self.carried = self.carried.max(rate);
        self.was_free |= !stands;
        let Some(carries) = self.carries(remembered) else { return };
        let part = carries / 100 * PART_PERCENT;
        let loses = end.lost > span.first.lost;
        let Some(held) = &mut self.held else {
            // What stands where nearly all is one's own is one's own, too; what was lost took room as well.
            let alone = carries - carries / if loses { LEFT_LOSING } else { LEFT };
            let is_held = stands && (part..alone).contains(&rate);
            self.held = is_held.then_some(Held { rate: part, lossless: now });
            return;
        };
        if loses {
            held.lossless = now;
        }
        held.rate = if stands { part } else { held.rate + held.rate / RISE };
        let is_longer = stands && now >= held.lossless + LOSSLESS;
        if is_longer {
            self.longer = span.waits;
        }
        if is_longer || held.rate > carries {
            self.held = None;
        }
    }

    /// What the way carries, if that is known: what is remembered may be a quarter too much.
    fn carries(&self, remembered: Option<u64>) -> Option<u64> {
        let known = remembered.map(|rate| rate / 5 * 4);
        Some(known.or(self.was_free.then_some(0))?.max(self.carried))
    }
}

impl Span {
    fn new(now: Instant, sight: &Sight) -> Self {
        let (busy, waits, was_busy) = (Duration::ZERO, sight.waits, sight.is_busy);
        Self { begin: now, first: *sight, last: now, was_busy, busy, waits }
    }

    /// Nobody knows what was between two looks that are farther apart than a round trip.
    fn look(&mut self, now: Instant, sight: &Sight, round_trip: Duration) {
        let since = now - self.last;
        if self.was_busy && since <= round_trip {
            self.busy += since;
        }
        self.last = now;
        self.was_busy = sight.is_busy;
        self.waits = self.waits.min(sight.waits);
    }

    /// At which rate it was confirmed, in bytes per second.
    fn rate(&self, now: Instant, end: &Sight) -> u64 {
        let bytes = u128::from(end.confirmed - self.first.confirmed);
        let rate = bytes * 1_000_000_000 / (now - self.begin).as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Over shorter ways it is hosts for which packets wait.
const NEAR: Duration = Duration::from_millis(1);
/// A little more than half, so that two of a kind fill the way.
const PART_PERCENT: u64 = 55;
/// A queue is one's own where others are left less than this part of the way.
const LEFT: u64 = 16;
/// The same where packets get lost.
const LEFT_LOSING: u64 = 8;
/// Twice as many round trips as BBR takes from one in which it makes a queue of its own to the next; and what busy hosts
/// need to be seen to answer at once.
const SPAN_ROUNDS: u32 = 16;
const SPAN_MIN: Duration = Duration::from_millis(100);
/// A queue stands where packets never wait for less than this part of a round trip, and this long: hosts are late.
const QUEUE_SHARE: u32 = 4;
const QUEUE_MIN: Duration = Duration::from_millis(1);
/// By this part of it more leaves in each span without a queue: others, who look for room as BBR does, find it sooner.
const RISE: u64 = 8;
/// What is held for so long and loses nothing competes with nobody who fills the buffer: the way has become longer.
const LOSSLESS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A link, who sends over it, and what is under way.
    struct World {
        way: Way,
        start: Instant,
        ms: f64,
        senders: Vec<Sender>,
        /// What waits before the link: whose, and how many bytes.
        queue: VecDeque<(usize, f64)>,
        queued: f64,
        /// What is heard of when, by whom: bytes that came through, having waited for so long, or that did not.
        news: VecDeque<(f64, usize, f64, Option<f64>)>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Way {
        /// What it carries, in bytes per millisecond.
        rate: f64,
        round_trip_ms: f64,
        buffer: f64,
    }

    struct Sender {
        law: Law,
        in_flight: f64,
        confirmed: f64,
        lost: u64,
    }

    enum Law {
        /// By the greatest rate of the last rounds, as BBR.
        Rate(Box<Rate>),
        /// By losses (CUBIC, RFC 9438, in packets).
        Loss { window: f64, greatest: f64, reduced_ms: f64, is_slow: bool },
        /// It has ended.
        Over,
    }

    struct Rate {
        rates: VecDeque<f64>,
        round: u32,
        /// When the round began, how long it lasts, and what had been confirmed then.
        begun_ms: f64,
        lasts_ms: f64,
        confirmed: f64,
        fairness: Fairness,
    }

    impl World {
        fn new(way: Way) -> Self {
            let (queue, news) = (VecDeque::new(), VecDeque::new());
            Self {
                way,
                start: Instant::now(),
                ms: 0.0,
                senders: Vec::new(),
                queue,
                queued: 0.0,
                news,
            }
        }

        fn add(&mut self, law: Law) -> usize {
            self.senders.push(Sender { law, in_flight: 0.0, confirmed: 0.0, lost: 0 });
            self.senders.len() - 1
        }

        fn add_rate(&mut self, begins_with: f64) -> usize {
            let rates = VecDeque::from([begins_with]);
            let fairness = Fairness::default();
            let (round, begun_ms, lasts_ms, confirmed) = (0, self.ms, self.way.round_trip_ms, 0.0);
            self.add(Law::Rate(Box::new(Rate {
                rates,
                round,
                begun_ms,
                lasts_ms,
                confirmed,
                fairness,
            })))
        }

        fn add_loss(&mut self) -> usize {
            self.add(Law::Loss { window: 10.0, greatest: 10.0, reduced_ms: self.ms, is_slow: true })
        }

        fn is_held(&self, index: usize) -> bool {
            matches!(&self.senders[index].law, Law::Rate(law) if law.fairness.most().is_some())
        }

        /// Lets time pass; what came through of each sender, as a share of what the link carries.
        fn run(&mut self, seconds: f64) -> Vec<f64> {
            let before: Vec<f64> = self.senders.iter().map(|sender| sender.confirmed).collect();
            let end = self.ms + 1000.0 * seconds;
            while self.ms < end {
                self.step();
            }
            let carried = self.way.rate * 1000.0 * seconds;
            self.senders
                .iter()
                .zip(before)
                .map(|(sender, before)| (sender.confirmed - before) / carried)
                .collect()
        }

        fn step(&mut self) {
            let Way { rate, round_trip_ms, buffer } = self.way;
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
                    self.news.push_back((heard, index, goes - fits, None));
                }
            }
            let waits = self.queued / rate;
            let mut room = rate * STEP_MS;
            while let Some((index, bytes)) = self.queue.front_mut().filter(|_| room > 0.0) {
                let (index, passes) = (*index, bytes.min(room));
                (*bytes, room, self.queued) =
                    (*bytes - passes, room - passes, self.queued - passes);
                self.news.push_back((self.ms + round_trip_ms, index, passes, Some(waits)));
                if *bytes <= 0.0 {
                    self.queue.pop_front();
                }
            }
            let now = self.start + Duration::from_secs_f64(self.ms / 1000.0);
            let ms = self.ms;
            self.news.retain(|&(heard, index, bytes, waited)| {
                if heard <= ms {
                    self.senders[index].hear(now, ms, self.way, bytes, waited);
                }
                heard > ms
            });
        }
    }

    impl Sender {
        /// How much leaves in a step.
        fn goes(&self, round_trip_ms: f64) -> f64 {
            let (window, most) = match &self.law {
                Law::Rate(law) => {
                    let gain = [1.25, 0.75].get(law.round as usize % 8).copied().unwrap_or(1.0);
                    let most = law.fairness.most();
                    let most = most.map_or(f64::MAX, |most| most as f64 / 1000.0);
                    (2.0 * law.rate() * round_trip_ms, (gain * law.rate()).min(most) * STEP_MS)
                }
                Law::Loss { window, .. } => (window * PACKET, f64::MAX),
                Law::Over => (0.0, 0.0),
            };
            (window - self.in_flight).clamp(0.0, most)
        }

        /// So many bytes have come through, having waited, or have not.
        fn hear(&mut self, now: Instant, ms: f64, way: Way, bytes: f64, waited: Option<f64>) {
            self.in_flight -= bytes;
            let Some(waited) = waited else {
                self.lost += 1;
                if let Law::Loss { window, greatest, reduced_ms, is_slow } = &mut self.law
                    && ms > *reduced_ms + 2.0 * way.round_trip_ms
                {
                    (*greatest, *window, *reduced_ms, *is_slow) =
                        (*window, *window * 0.7, ms, false);
                }
                return;
            };
            self.confirmed += bytes;
            match &mut self.law {
                Law::Rate(law) => {
                    let span = |ms: f64| Duration::from_secs_f64(ms / 1000.0);
                    let (confirmed, lost) = (self.confirmed as u64, self.lost);
                    let (least, waits) = (span(way.round_trip_ms), span(waited));
                    let sight = Sight { least, waits, confirmed, lost, is_busy: true };
                    law.fairness.look(now, &sight, None);
                    law.end_round(ms, self.confirmed, way.round_trip_ms + waited);
                }
                Law::Loss { window, greatest, reduced_ms, is_slow } => {
                    let packets = bytes / PACKET;
                    if *is_slow {
                        *window += packets;
                        return;
                    }
                    let since = (ms - *reduced_ms + way.round_trip_ms) / 1000.0;
                    let inflection = (*greatest * 0.3 / 0.4).cbrt();
                    let target = 0.4 * (since - inflection).powi(3) + *greatest;
                    // Never slower than Reno with the same reductions.
                    let reno =
                        0.53 * since * 1000.0 / (way.round_trip_ms + waited) + *greatest * 0.7;
                    let target = target.max(reno);
                    *window += (target.min(1.5 * *window) - *window).max(0.0) / *window * packets;
                }
                Law::Over => {}
            }
        }
    }

    impl Rate {
        fn rate(&self) -> f64 {
            self.rates.iter().copied().fold(0.0, f64::max)
        }

        fn end_round(&mut self, ms: f64, confirmed: f64, round_trip_ms: f64) {
            if ms < self.begun_ms + self.lasts_ms {
                return;
            }
            // In the first nothing comes through.
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

    /// A link with a buffer of so many times what it holds.
    fn way(rate: f64, round_trip_ms: f64, holds: f64) -> Way {
        Way { rate, round_trip_ms, buffer: holds * rate * round_trip_ms }
    }

    /// The lab's.
    fn lab() -> Way {
        way(117_600.0, 11.6, 1.4)
    }

    #[test]
    fn a_flow_that_goes_by_losses_gets_its_part_beside_one_that_was_there_before() {
        for way in [lab(), way(37_500.0, 30.0, 1.4), way(11_760.0, 60.0, 2.0)] {
            let mut world = World::new(way);
            let own = world.add_rate(way.rate);
            world.run(3.0);
            let other = world.add_loss();
            let shares = world.run(20.0);
            println!("{way:?}: {shares:.2?}");
            assert!(shares[own] > 0.35, "{way:?}: {shares:?}");
            assert!(shares[other] > 0.35, "{way:?}: {shares:?}");
        }
    }

    #[test]
    fn when_the_other_has_gone_all_is_taken() {
        let mut world = World::new(lab());
        let own = world.add_rate(lab().rate);
        world.run(3.0);
        let other = world.add_loss();
        world.run(10.0);
        assert!(world.is_held(own));
        world.senders[other].law = Law::Over;
        world.run(1.0);
        assert!(!world.is_held(own));
        let shares = world.run(2.0);
        assert!(shares[own] > 0.95, "{shares:?}");
    }

    #[test]
    fn those_of_a_kind_take_all_together() {
        for (count, way) in [(1, lab()), (1, way(37_500.0, 30.0, 0.3)), (2, lab()), (4, lab())] {
            let mut world = World::new(way);
            for _ in 0..count {
                world.add_rate(way.rate);
            }
            world.run(3.0);
            let shares = world.run(5.0);
            println!("{way:?}: {shares:.2?}");
            assert!(shares.iter().sum::<f64>() > 0.95, "{way:?}: {shares:?}");
        }
    }

    /// What comes of looks at a connection, each of so many ms: its rate in kB/s, for how many ms packets wait, and whether
    /// something was lost; what it is held to in the end.
    fn held_after(
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
                fairness.look(now, &Sight { least, waits, confirmed, lost, is_busy }, remembered);
            }
        }
        fairness.most()
    }

    const ALONE: (u64, u64, u64, bool) = (1000, 100_000, 0, false);

    #[test]
    fn who_takes_more_than_its_part_while_a_queue_stands_is_held_to_it() {
        let beside = |rate, waits| held_after(&[ALONE, (1000, rate, waits, false)], true, None);
        assert_eq!(beside(70_000, 10), Some(55_000_000));
        assert_eq!(beside(50_000, 10), None, "it has less");
        assert_eq!(beside(90_000, 10), Some(55_000_000), "others have a tenth");
        assert_eq!(beside(95_000, 10), None, "nearly all is its own");
        let losing = |rate| held_after(&[ALONE, (1000, rate, 10, true)], true, None);
        assert_eq!(losing(80_000), Some(55_000_000));
        assert_eq!(losing(90_000), None, "what is lost took room, too");
        assert_eq!(beside(70_000, 2), None, "no queue");
        let pauses = held_after(&[ALONE, (1000, 70_000, 10, false)], false, None);
        assert_eq!(pauses, None, "it leaves enough");
    }

    #[test]
    fn who_does_not_know_what_the_way_carries_takes_what_it_gets() {
        let comes_late = |remembered| held_after(&[(2000, 70_000, 10, false)], true, remembered);
        assert_eq!(comes_late(None), None);
        assert_eq!(comes_late(Some(125_000_000)), Some(55_000_000));
    }

    #[test]
    fn a_way_that_has_become_longer_is_no_queue_for_ever() {
        let minute = LOSSLESS.as_millis() as u64;
        let since = |lasts, loses| held_after(&[ALONE, (lasts, 60_000, 10, loses)], true, None);
        assert!(since(minute - 1000, false).is_some());
        assert_eq!(since(minute + 1000, false), None);
        assert!(since(minute + 1000, true).is_some(), "somebody fills the buffer");
        let queue = [ALONE, (minute + 1000, 60_000, 10, false), (1000, 60_000, 20, false)];
        assert!(held_after(&queue, true, None).is_some(), "a queue on the longer way");
    }

    const STEP_MS: f64 = 0.2;
    const PACKET: f64 = 1448.0;
}
