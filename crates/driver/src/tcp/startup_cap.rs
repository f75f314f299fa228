//! To what a connection that begins is held.
//!
//! BBR's beginning sends nearly three times what it has measured, to see whether that passes, and who sends now and then
//! never comes to the end of it. So the connection is held to what was found before until it has seen the way full, and
//! until then as far as what it sends comes through, by the [trains](Train) of long frames.

use std::time::{Duration, Instant};

use super::measure::Pace;
use super::packet_train::{Passage, Train};

/// What a connection is held to, and what tells whether that is right.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// In bytes per second, while it begins.
    rate: Option<u64>,
    /// Of what leaves meanwhile.
    train: Train,
    /// The greatest rate that was known to come through lately, in bytes per second: a busy host has single trains come
    /// slower.
    carried: u64,
}

/// What is to be done with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Stay,
    /// It is to be held to this, in bytes per second.
    Hold(u64),
    /// To be held to this and begun anew: what it has measured is less, and would bind it.
    Renew(u64),
    /// To be let go: it knows what the way carries.
    Release,
}

impl Hold {
    /// What it is held to now, in bytes per second.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// It is held to so much from now on, or to nothing.
    pub fn set(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    /// So much comes through, or at least did when that was learned.
    pub fn learn(&mut self, rate: u64) {
        self.carried = rate;
    }

    /// A rate was found, and there is room to see that more comes through.
    pub fn begin(&mut self, rate: u64) -> Verdict {
        self.carried = rate;
        Verdict::Hold(beyond(rate))
    }

    /// A look at the connection, to be had now and then from when a long frame leaves while it [is awaited](Self::awaits).
    pub fn look(&mut self, now: Instant, pace: &Pace) -> Verdict {
        let Some(held) = self.rate else { return Verdict::Stay };
        let left = held.min(pace.paced);
        let Some(came) = self.train.look(now, pace.confirmed, pace.is_under_way, left) else {
            return Verdict::Stay;
        };
        let finding = Finding::of(came, left, pace.is_queued);
        let lately = if finding == Finding::Full { self.carried / 8 * 7 } else { self.carried };
        self.carried = came.rate().max(lately);
        match finding {
            Finding::Free if may_renew(pace) => Verdict::Renew(held.max(beyond(left))),
            Finding::Full if beyond(self.carried) < held => Verdict::Hold(beyond(self.carried)),
            Finding::Free | Finding::Full | Finding::Unclear => Verdict::Stay,
        }
    }

    /// Whether it has come to the end of its beginning, and what then: where it has seen as much as it was held to, there
    /// may be more. Where packets get lost without a queue it has seen nothing, then or later: what is repaired is limited by
    /// what may be under way meanwhile, which BBR takes for the way's end, and would go on at a part of the rate.
    pub fn judge_end(&self, pace: &Pace) -> Option<Verdict> {
        if pace.is_beginning {
            return None;
        }
        let known = self.rate.unwrap_or(self.carried);
        let has_passed = has_passed(pace.bytes_per_s, known);
        let is_misled = !has_passed && pace.is_lossy && !pace.is_queued;
        match (self.rate, has_passed) {
            _ if is_misled && !may_renew(pace) => Some(Verdict::Stay),
            (Some(held), false) if is_misled => Some(Verdict::Renew(held)),
            (Some(held), true) => Some(Verdict::Renew(beyond(held))),
            (Some(_), false) => Some(Verdict::Release),
            (None, false) if is_misled => Some(Verdict::Renew(beyond(known))),
            (None, _) => None,
        }
    }

    /// Whether there is more to be seen.
    pub fn awaits(&self, now: Instant) -> bool {
        self.rate.is_some() && self.train.is_awaited(now)
    }
}

/// What comes of a train that has left at a rate while the connection was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// All of it has come through: there may be room for more.
    Free,
    /// Part of it waited in a queue, and came through slower.
    Full,
    /// Neither can be said.
    Unclear,
}

impl Finding {
    /// Of a train that left at a rate, in bytes per second, with a queue on its way or without.
    fn of(came: Passage, left: u64, is_queued: bool) -> Self {
        let is_slow = came.rate() < left / 4 * 3 && came.delay_at(left) >= TELLING;
        if has_passed(came.rate(), left) {
            Self::Free
        } else if is_queued && is_slow && came.trains == 1 {
            Self::Full
        } else {
            Self::Unclear
        }
    }
}

/// A rate, and what goes beyond it. It is tried, too, when all that left at a rate has come through: where the way was full
/// just then, that makes no queue as long as half of a train.
pub(super) fn beyond(rate: u64) -> u64 {
    rate.saturating_add(rate / HEADROOM)
}

/// Whether what left at a rate has come through at another that is the same but for headers and what varies: many packets are
/// confirmed at a time, and hosts are busy.
fn has_passed(came: u64, left: u64) -> bool {
    came >= left / 6 * 5
}

/// Whether it does not pause right now, nor repairs: then it would begin with next to no window. Where queues stand, somebody
/// else's or its own, the pause is what ends them, unless they end before.
pub(super) fn may_renew(pace: &Pace) -> bool {
    !pace.is_pausing && !pace.is_repairing && !pace.is_clogged
}

/// What goes beyond the rate that is known: a quarter. Headers, which the kernel counts, and BBR's own margin take some
/// of it; the rest shows whether more comes through.
const HEADROOM: u64 = 4;
/// Hosts that are busy hold a train up for some milliseconds; a queue of so much harms nobody.
const TELLING: Duration = Duration::from_millis(6);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::measure::is_queued;
    use std::collections::VecDeque;

    /// One that begins, on a free way.
    const PACE: Pace = Pace {
        bytes_per_s: 10_000_000,
        is_beginning: true,
        is_pausing: false,
        paced: 10_000_000,
        confirmed: 0,
        is_under_way: true,
        is_queued: false,
        is_clogged: false,
        is_lossy: false,
        is_repairing: false,
    };

    #[test]
    fn what_is_held_is_let_through_as_far_as_it_comes_through() {
        let held = 10_000_000;
        let train = |rate| Passage::at(rate, held);
        let (free, full) = (
            |came| Finding::of(train(came), held, false),
            |came| Finding::of(train(came), held, true),
        );
        assert_eq!(free(held), Finding::Free);
        assert_eq!(full(held / 10 * 9), Finding::Free, "all the same");
        // A connection that is held to a quarter more than its way carries is left so.
        assert_eq!(full(held / 5 * 4), Finding::Unclear);
        assert_eq!(full(held / 2), Finding::Full);
        assert_eq!(full(held / 3 * 2), Finding::Full);
        assert_eq!(free(held / 2), Finding::Unclear, "its sender paused");
        // The kernel let it go slower than it was held to.
        assert_eq!(Finding::of(train(held / 4), held / 4, true), Finding::Free);
        assert_eq!(Finding::of(train(held / 8), held / 4, true), Finding::Full);
        // A short one may have been held up by a host.
        let short = Passage::at(held / 2, held / 200);
        assert_eq!(Finding::of(short, held, true), Finding::Unclear);
    }

    #[test]
    fn whoever_ends_its_beginning_by_losses_begins_anew() {
        let held = 10_000_000;
        let hold = Hold { rate: Some(held), ..Hold::default() };
        let ended = Pace { is_beginning: false, ..PACE };
        assert_eq!(hold.judge_end(&PACE), None);
        assert_eq!(
            hold.judge_end(&ended),
            Some(Verdict::Renew(beyond(held))),
            "it has seen as much"
        );
        let slow = Pace { bytes_per_s: held / 3, ..ended };
        assert_eq!(hold.judge_end(&slow), Some(Verdict::Release));
        let lossy = Pace { is_lossy: true, ..slow };
        assert_eq!(hold.judge_end(&lossy), Some(Verdict::Renew(held)));
        let repairing = Pace { is_repairing: true, ..lossy };
        assert_eq!(hold.judge_end(&repairing), Some(Verdict::Stay), "with next to no window");
        let pausing = Pace { is_pausing: true, ..lossy };
        assert_eq!(hold.judge_end(&pausing), Some(Verdict::Stay), "likewise");
        let full = Pace { is_queued: true, ..lossy };
        assert_eq!(hold.judge_end(&full), Some(Verdict::Release), "it was the way");
        let free = Hold { carried: held, ..Hold::default() };
        assert_eq!(free.judge_end(&slow), None);
        assert_eq!(free.judge_end(&lossy), Some(Verdict::Renew(beyond(held))));
        assert_eq!([full, ended].map(|pace| free.judge_end(&pace)), [None; 2]);
        assert_eq!(Hold::default().judge_end(&lossy), None, "nothing is known");
    }

    #[test]
    fn what_pauses_repairs_or_meets_a_queue_goes_on() {
        assert!(may_renew(&PACE));
        assert!(!may_renew(&Pace { is_pausing: true, ..PACE }));
        assert!(!may_renew(&Pace { is_repairing: true, ..PACE }));
        assert!(!may_renew(&Pace { is_clogged: true, ..PACE }));
    }

    /// A link, what waits before it, and the hosts at its ends.
    #[derive(Clone, Copy, Debug)]
    struct Way {
        /// What it carries, in bytes per millisecond.
        rate: f64,
        round_trip_ms: f64,
        /// The part of the time in which a busy host holds it up.
        stalls: f64,
        /// As much is confirmed at a time, in bytes.
        clump: f64,
    }

    /// Messages over a way, one when the last one's answer is there, and the hold of their sender.
    struct Course {
        way: Way,
        hold: Hold,
        seed: u64,
        start: Instant,
        /// Since the start, as all times here.
        ms: f64,
        confirmed: f64,
        usual_ms: f64,
        stalled_until: f64,
        /// The most that has waited before the link, in bytes.
        queued_most: f64,
    }

    impl Course {
        fn new(way: Way, shown: u64, seed: u64) -> Self {
            let mut course = Self {
                way,
                hold: Hold::default(),
                seed,
                start: Instant::now(),
                ms: 0.0,
                confirmed: 0.0,
                usual_ms: way.round_trip_ms,
                stalled_until: 0.0,
                queued_most: 0.0,
            };
            let verdict = course.hold.begin(shown);
            course.follow(verdict);
            course
        }

        /// Sends a message; how many milliseconds pass until all of it has left the link.
        fn send(&mut self, len: f64) -> f64 {
            let Way { rate, round_trip_ms, stalls, clump } = self.way;
            let (begun, mut next_look, mut took) = (self.ms, self.ms, 0.0);
            let (mut unsent, mut queued, mut passed, mut told) = (len, 0.0, 0.0, 0.0);
            // What is confirmed when, and for how long the last of it has waited.
            let mut news: VecDeque<(f64, f64, f64)> = VecDeque::new();
            let (end, mut looks_on) = (self.confirmed + len, true);
            while end - self.confirmed > 0.5 || looks_on {
                self.ms += STEP_MS;
                // Headers leave, too.
                let held = self.hold.rate().map_or(f64::MAX, |rate| rate as f64 / 1000.0 * 0.956);
                let goes = f64::min(held * STEP_MS, unsent);
                (unsent, queued) = (unsent - goes, queued + goes);
                self.queued_most = f64::max(self.queued_most, queued);
                if self.ms >= self.stalled_until {
                    let passes = f64::min(queued, rate * STEP_MS);
                    (queued, passed) = (queued - passes, passed + passes);
                    let is_last = len - passed < 1.0;
                    if is_last && told < len || passed - told >= clump {
                        let more = if is_last { len - told } else { passed - told };
                        (told, took) = (told + more, self.ms - begun);
                        news.push_back((self.ms + round_trip_ms, more, queued / rate));
                    }
                    if self.chance() < stalls * STEP_MS / STALL_MS {
                        self.stalled_until = self.ms + 2.0 * STALL_MS * self.chance();
                    }
                }
                while let Some((_, bytes, waited)) = news.pop_front_if(|news| news.0 <= self.ms) {
                    self.confirmed += bytes;
                    self.usual_ms += (round_trip_ms + waited - self.usual_ms) / 8.0;
                }
                if self.ms >= next_look && looks_on {
                    let is_late = self.chance() < stalls;
                    next_look += if is_late { 2.0 + 2.0 * STALL_MS * self.chance() } else { 2.0 };
                    looks_on = self.look(end - self.confirmed > 0.5);
                }
            }
            self.ms += round_trip_ms;
            took
        }

        fn look(&mut self, is_under_way: bool) -> bool {
            let us = |ms: f64| (ms * 1000.0) as u32;
            let now = self.start + Duration::from_secs_f64(self.ms / 1000.0);
            let pace = Pace {
                paced: u64::MAX,
                confirmed: self.confirmed as u64,
                is_under_way,
                is_queued: is_queued(us(self.usual_ms), us(self.way.round_trip_ms)),
                is_clogged: self.usual_ms > 2.0 * self.way.round_trip_ms,
                ..PACE
            };
            let verdict = self.hold.look(now, &pace);
            self.follow(verdict);
            self.hold.awaits(now)
        }

        fn follow(&mut self, verdict: Verdict) {
            if let Verdict::Hold(rate) | Verdict::Renew(rate) = verdict {
                self.hold.set(Some(rate));
            }
        }

        /// From 0 to 1 (Knuth's MMIX).
        fn chance(&mut self) -> f64 {
            let next = self.seed.wrapping_mul(6_364_136_223_846_793_005);
            self.seed = next.wrapping_add(1_442_695_040_888_963_407);
            (self.seed >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    const STEP_MS: f64 = 0.1;
    /// Hosts hold up for so long in the mean.
    const STALL_MS: f64 = 3.0;

    /// Over each of the ways and by messages of each of the lengths, whatever was shown at first and however hosts are busy:
    /// the last of many messages take as long as the way needs, and make no queue longer than two thirds of the longest.
    #[test]
    fn whatever_is_shown_becomes_what_the_way_carries() {
        for (case, way) in ways().enumerate() {
            for (len, shown) in
                [(0.25, 0.4), (0.25, 3.0), (1.0, 0.4), (1.0, 1.0), (4.0, 0.4), (4.0, 3.0)]
            {
                let len = len * f64::from(1 << 20);
                let mut course = Course::new(way, (shown * way.rate * 1000.0) as u64, case as u64);
                for _ in 0..30 {
                    course.send(len);
                }
                course.queued_most = 0.0;
                let took = (0..10).map(|_| course.send(len)).sum::<f64>() / 10.0 * way.rate / len;
                let queued = course.queued_most / f64::from(1 << 20);
                // What is gone in some looks shows little at a time.
                let most = if len / way.rate < 3.0 { 1.8 } else { 1.1 + 2.0 * way.stalls };
                assert!(took < most, "{way:?}, {len} bytes, shown {shown}, case {case}: {took}");
                assert!(
                    queued < 2.2 + 4.0 * way.stalls,
                    "{way:?}, {len} bytes, shown {shown}, case {case}: {queued} MiB"
                );
            }
        }
    }

    fn ways() -> impl Iterator<Item = Way> {
        let links = [
            (117_600.0, 11.6),
            (37_500.0, 30.0),
            (11_760.0, 100.0),
            (11_760.0, 300.0),
            (1_176.0, 50.0),
        ];
        let hosts = [(0.0, 3e3), (0.05, 3e3), (0.15, 3e3), (0.0, 32e3), (0.05, 32e3), (0.15, 32e3)];
        links.into_iter().flat_map(move |(rate, round_trip_ms)| {
            hosts.map(|(stalls, clump)| Way { rate, round_trip_ms, stalls, clump })
        })
    }
}
