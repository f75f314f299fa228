//! A cap on the rate of a connection in BBR startup.
//!
//! BBR startup sends at nearly three times the measured rate to see whether that passes. A connection that sends
//! rarely never leaves startup. The cap is therefore the rate found before, until BBR has seen the path full. Until
//! then the cap rises as far as long frames come through, judged by their [packet trains](PacketTrain).

use std::time::{Duration, Instant};

use crate::measure::Pace;
use crate::packet_train::{PacketTrain, TrainSample};

/// The startup cap of a connection, and the evidence for or against it.
#[derive(Debug, Default)]
pub struct StartupCap {
    /// Cap in bytes per second, while the connection is in startup.
    rate: Option<u64>,
    /// The packet train that leaves meanwhile.
    train: PacketTrain,
    /// Highest rate known to come through lately, in bytes per second. Single trains come slower on a busy host.
    carried: u64,
}

/// The action that a look at the connection calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapAction {
    /// No change.
    Stay,
    /// Cap the rate at this many bytes per second.
    Cap(u64),
    /// Cap the rate at this and restart BBR, whose lower estimate would limit it.
    Renew(u64),
    /// Remove the cap: BBR knows the bandwidth of the path.
    Release,
}

impl StartupCap {
    /// Current cap, in bytes per second.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Sets or removes the cap.
    pub fn set(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    /// Records a rate that comes through, or did when it was learned.
    pub fn learn(&mut self, rate: u64) {
        self.carried = rate;
    }

    /// Starts the cap at a rate that was found, plus headroom to see whether more comes through.
    pub fn begin(&mut self, rate: u64) -> CapAction {
        self.carried = rate;
        CapAction::Cap(beyond(rate))
    }

    /// Judges the connection by its packet train. Called repeatedly from the moment a long frame leaves, while it
    /// [awaits](Self::awaits) more.
    pub fn look(&mut self, now: Instant, pace: &Pace) -> CapAction {
        let Some(held) = self.rate else { return CapAction::Stay };
        let left = held.min(pace.paced);
        let Some(came) = self.train.look(now, pace.confirmed, pace.is_under_way, left) else {
            return CapAction::Stay;
        };
        let finding = TrainVerdict::of(came, left, pace.is_queued);
        let lately =
            if finding == TrainVerdict::Full { self.carried / 8 * 7 } else { self.carried };
        self.carried = came.rate().max(lately);
        match finding {
            TrainVerdict::Free if may_renew(pace) => CapAction::Renew(held.max(beyond(left))),
            TrainVerdict::Full if beyond(self.carried) < held => {
                CapAction::Cap(beyond(self.carried))
            }
            TrainVerdict::Free | TrainVerdict::Full | TrainVerdict::Unclear => CapAction::Stay,
        }
    }

    /// Returns the action at the end of startup, if it has ended. If BBR measured as much as the cap, there may be
    /// more. If packets are lost without a queue, BBR's estimate is wrong now and later. Loss recovery limits the
    /// bytes in flight, BBR takes that for a full path, and would go on at a fraction of the rate.
    pub fn judge_end(&self, pace: &Pace) -> Option<CapAction> {
        if pace.is_beginning {
            return None;
        }
        let known = self.rate.unwrap_or(self.carried);
        let has_passed = has_passed(pace.bytes_per_s, known);
        let is_misled = !has_passed && pace.is_lossy && !pace.is_queued;
        match (self.rate, has_passed) {
            _ if is_misled && !may_renew(pace) => Some(CapAction::Stay),
            (Some(held), false) if is_misled => Some(CapAction::Renew(held)),
            (Some(held), true) => Some(CapAction::Renew(beyond(held))),
            (Some(_), false) => Some(CapAction::Release),
            (None, false) if is_misled => Some(CapAction::Renew(beyond(known))),
            (None, _) => None,
        }
    }

    /// True if more ACKs of the train are expected.
    pub fn awaits(&self, now: Instant) -> bool {
        self.rate.is_some() && self.train.is_awaited(now)
    }
}

/// The result of one train that left while the connection was capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrainVerdict {
    /// The whole train came through: there may be room for more.
    Free,
    /// Part of it waited in a queue and came through slower.
    Full,
    /// The train proves neither.
    Unclear,
}

impl TrainVerdict {
    /// Judges a train that left at `left` bytes per second, with or without a queue on its path.
    fn of(came: TrainSample, left: u64, is_queued: bool) -> Self {
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

/// A rate plus headroom. It is tried also when all that left at a rate has come through: on a full path that queues
/// less than half a train.
pub fn beyond(rate: u64) -> u64 {
    rate.saturating_add(rate / HEADROOM)
}

/// True if the ACK rate matches the sending rate, apart from headers and jitter: many packets are acknowledged at
/// once, and hosts are busy.
fn has_passed(came: u64, left: u64) -> bool {
    came >= left / 6 * 5
}

/// True if BBR is neither in PROBE_RTT nor in loss recovery; a restart then would begin with almost no cwnd. A
/// standing queue, its own or another flow's, is drained by that pause, unless it drains before.
pub fn may_renew(pace: &Pace) -> bool {
    !pace.is_pausing && !pace.is_repairing && !pace.is_clogged
}

/// Share of the known rate that is added as headroom: a quarter. Headers, which the kernel counts, and BBR's own
/// margin take some of it. The rest shows whether more comes through.
const HEADROOM: u64 = 4;
/// Delay that proves a queue: busy hosts delay a train by some milliseconds, and a queue of so much harms nobody.
const TELLING: Duration = Duration::from_millis(6);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use testing::Random;

    use super::*;
    use crate::measure::is_queued;

    /// A connection in startup on an idle path.
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
    fn a_cap_rises_as_far_as_trains_come_through() {
        let held = 10_000_000;
        let train = |rate| TrainSample::at(rate, held);
        let (free, full) = (
            |came| TrainVerdict::of(train(came), held, false),
            |came| TrainVerdict::of(train(came), held, true),
        );
        assert_eq!(free(held), TrainVerdict::Free);
        assert_eq!(full(held / 10 * 9), TrainVerdict::Free, "all the same");
        // A cap of a quarter above the bandwidth of the path is left as it is.
        assert_eq!(full(held / 5 * 4), TrainVerdict::Unclear);
        assert_eq!(full(held / 2), TrainVerdict::Full);
        assert_eq!(full(held / 3 * 2), TrainVerdict::Full);
        assert_eq!(free(held / 2), TrainVerdict::Unclear, "its sender paused");
        // The kernel paced it below the cap.
        assert_eq!(TrainVerdict::of(train(held / 4), held / 4, true), TrainVerdict::Free);
        assert_eq!(TrainVerdict::of(train(held / 8), held / 4, true), TrainVerdict::Full);
        // A short train may have been delayed by a host.
        let short = TrainSample::at(held / 2, held / 200);
        assert_eq!(TrainVerdict::of(short, held, true), TrainVerdict::Unclear);
    }

    #[test]
    fn a_startup_that_ends_by_losses_is_restarted() {
        let held = 10_000_000;
        let cap = StartupCap { rate: Some(held), ..StartupCap::default() };
        let ended = Pace { is_beginning: false, ..PACE };
        assert_eq!(cap.judge_end(&PACE), None);
        assert_eq!(
            cap.judge_end(&ended),
            Some(CapAction::Renew(beyond(held))),
            "it has seen as much"
        );
        let slow = Pace { bytes_per_s: held / 3, ..ended };
        assert_eq!(cap.judge_end(&slow), Some(CapAction::Release));
        let lossy = Pace { is_lossy: true, ..slow };
        assert_eq!(cap.judge_end(&lossy), Some(CapAction::Renew(held)));
        let repairing = Pace { is_repairing: true, ..lossy };
        assert_eq!(cap.judge_end(&repairing), Some(CapAction::Stay), "with next to no window");
        let pausing = Pace { is_pausing: true, ..lossy };
        assert_eq!(cap.judge_end(&pausing), Some(CapAction::Stay), "likewise");
        let full = Pace { is_queued: true, ..lossy };
        assert_eq!(cap.judge_end(&full), Some(CapAction::Release), "it was the path");
        let free = StartupCap { carried: held, ..StartupCap::default() };
        assert_eq!(free.judge_end(&slow), None);
        assert_eq!(free.judge_end(&lossy), Some(CapAction::Renew(beyond(held))));
        assert_eq!([full, ended].map(|pace| free.judge_end(&pace)), [None; 2]);
        assert_eq!(StartupCap::default().judge_end(&lossy), None, "nothing is known");
    }

    #[test]
    fn bbr_is_not_restarted_in_a_pause_in_recovery_or_behind_a_queue() {
        assert!(may_renew(&PACE));
        assert!(!may_renew(&Pace { is_pausing: true, ..PACE }));
        assert!(!may_renew(&Pace { is_repairing: true, ..PACE }));
        assert!(!may_renew(&Pace { is_clogged: true, ..PACE }));
    }

    /// A simulated link, its queue, and the hosts at its ends.
    #[derive(Clone, Copy, Debug)]
    struct SimPath {
        /// Bandwidth in bytes per millisecond.
        rate: f64,
        round_trip_ms: f64,
        /// Fraction of the time in which a busy host delays it.
        stalls: f64,
        /// Bytes acknowledged at a time.
        clump: f64,
    }

    /// Messages over a path, each after the answer to the last, with the startup cap of their sender.
    struct SimSender {
        path: SimPath,
        cap: StartupCap,
        random: Random,
        start: Instant,
        /// Milliseconds since the start, like all times here.
        ms: f64,
        confirmed: f64,
        usual_ms: f64,
        stalled_until: f64,
        /// Longest queue before the link, in bytes.
        queued_most: f64,
    }

    impl SimSender {
        fn new(path: SimPath, shown: u64, seed: u64) -> Self {
            let mut sender = Self {
                path,
                cap: StartupCap::default(),
                random: Random::new(seed),
                start: Instant::now(),
                ms: 0.0,
                confirmed: 0.0,
                usual_ms: path.round_trip_ms,
                stalled_until: 0.0,
                queued_most: 0.0,
            };
            let verdict = sender.cap.begin(shown);
            sender.follow(verdict);
            sender
        }

        /// Sends a message; returns the milliseconds until all of it has left the link.
        fn send(&mut self, len: f64) -> f64 {
            let SimPath { rate, round_trip_ms, stalls, clump } = self.path;
            let (begun, mut next_look, mut took) = (self.ms, self.ms, 0.0);
            let (mut unsent, mut queued, mut passed, mut told) = (len, 0.0, 0.0, 0.0);
            // ACKs in flight: time of arrival, bytes, and queueing delay of the last byte.
            let mut acks: VecDeque<(f64, f64, f64)> = VecDeque::new();
            let (end, mut looks_on) = (self.confirmed + len, true);
            while end - self.confirmed > 0.5 || looks_on {
                self.ms += STEP_MS;
                // Headers use part of the cap.
                let held = self.cap.rate().map_or(f64::MAX, |rate| rate as f64 / 1000.0 * 0.956);
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
                        acks.push_back((self.ms + round_trip_ms, more, queued / rate));
                    }
                    if self.random.unit() < stalls * STEP_MS / STALL_MS {
                        self.stalled_until = self.ms + 2.0 * STALL_MS * self.random.unit();
                    }
                }
                while let Some((_, bytes, waited)) = acks.pop_front_if(|acks| acks.0 <= self.ms) {
                    self.confirmed += bytes;
                    self.usual_ms += (round_trip_ms + waited - self.usual_ms) / 8.0;
                }
                if self.ms >= next_look && looks_on {
                    let is_late = self.random.unit() < stalls;
                    next_look +=
                        if is_late { 2.0 + 2.0 * STALL_MS * self.random.unit() } else { 2.0 };
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
                is_queued: is_queued(us(self.usual_ms), us(self.path.round_trip_ms)),
                is_clogged: self.usual_ms > 2.0 * self.path.round_trip_ms,
                ..PACE
            };
            let verdict = self.cap.look(now, &pace);
            self.follow(verdict);
            self.cap.awaits(now)
        }

        fn follow(&mut self, verdict: CapAction) {
            if let CapAction::Cap(rate) | CapAction::Renew(rate) = verdict {
                self.cap.set(Some(rate));
            }
        }
    }

    const STEP_MS: f64 = 0.1;
    /// Mean delay by a busy host.
    const STALL_MS: f64 = 3.0;

    /// Checks each path and message length, whatever rate was shown at first and however busy the hosts are. The last
    /// of many messages take as long as the path needs. They queue at most two thirds of the longest message.
    #[test]
    fn any_first_rate_converges_to_the_bandwidth_of_the_path() {
        for (case, path) in paths().enumerate() {
            for (len, shown) in
                [(0.25, 0.4), (0.25, 3.0), (1.0, 0.4), (1.0, 1.0), (4.0, 0.4), (4.0, 3.0)]
            {
                let len = len * f64::from(1 << 20);
                let mut sender =
                    SimSender::new(path, (shown * path.rate * 1000.0) as u64, case as u64);
                for _ in 0..30 {
                    sender.send(len);
                }
                sender.queued_most = 0.0;
                let took = (0..40).map(|_| sender.send(len)).sum::<f64>() / 40.0 * path.rate / len;
                let queued = sender.queued_most / f64::from(1 << 20);
                // Messages that leave within a few looks show little at a time.
                let most = if len / path.rate < 3.0 { 1.8 } else { 1.1 + 2.0 * path.stalls };
                assert!(took < most, "{path:?}, {len} bytes, shown {shown}, case {case}: {took}");
                assert!(
                    queued < 2.2 + 4.0 * path.stalls,
                    "{path:?}, {len} bytes, shown {shown}, case {case}: {queued} MiB"
                );
            }
        }
    }

    fn paths() -> impl Iterator<Item = SimPath> {
        let links = [
            (117_600.0, 11.6),
            (37_500.0, 30.0),
            (11_760.0, 100.0),
            (11_760.0, 300.0),
            (1_176.0, 50.0),
        ];
        let hosts = [(0.0, 3e3), (0.05, 3e3), (0.15, 3e3), (0.0, 32e3), (0.05, 32e3), (0.15, 32e3)];
        links.into_iter().flat_map(move |(rate, round_trip_ms)| {
            hosts.map(|(stalls, clump)| SimPath { rate, round_trip_ms, stalls, clump })
        })
    }
}
