//! The rate meter in virtual time: transfers over token buckets, on quiet and busy hosts.

use cost::{RateMeter, RateSample};
use testing::Random;

/// A path, and the hosts at its ends.
#[derive(Clone, Copy, Debug)]
struct BucketPath {
    /// Sustained rate in bytes per second.
    rate: f64,
    /// Rate of the line, at which a burst passes.
    line: f64,
    /// Size of the bucket, in bytes.
    bucket: f64,
    round_trip_s: f64,
    /// Bytes that the sender's kernel takes.
    send_buffer: f64,
    /// Share of the time in which the sending process finds its core taken.
    stalls: f64,
}

/// A connection over a path, as a fluid.
struct SimTransfer {
    path: BucketPath,
    random: Random,
    now_s: f64,
    step_s: f64,
    tokens: f64,
    /// Bytes in the queue before the bucket.
    queue: f64,
    window: f64,
    unsent: f64,
    passed: f64,
    arrived: f64,
    sent: f64,
    limited_s: f64,
    acks: std::collections::VecDeque<(f64, f64)>,
    stalled_until_s: f64,
    next_look_s: f64,
    looked_at: f64,
}

impl SimTransfer {
    fn new(path: BucketPath, seed: u64) -> Self {
        Self {
            path,
            random: Random::new(seed),
            now_s: 0.0,
            step_s: (4e6 / path.rate / 1500.0).min(path.round_trip_s / 4.0),
            tokens: path.bucket,
            queue: 0.0,
            window: 14_480.0,
            unsent: 0.0,
            passed: 0.0,
            arrived: 0.0,
            sent: 0.0,
            limited_s: 0.0,
            acks: std::collections::VecDeque::new(),
            stalled_until_s: 0.0,
            next_look_s: 0.0,
            looked_at: 0.0,
        }
    }

    /// Sends a message as fast as the path takes it.
    fn send(&mut self, len: f64, meter: &mut RateMeter) {
        let (end, mut left) = (self.arrived + len, len);
        while end - self.arrived > 1.0 {
            self.now_s += self.step_s;
            let is_awake = self.now_s >= self.stalled_until_s;
            if is_awake {
                let room =
                    (self.path.send_buffer - self.unsent - (self.sent - self.arrived)).max(0.0);
                let goes = f64::min(room, left);
                (left, self.unsent) = (left - goes, self.unsent + goes);
                if self.random.unit() < self.path.stalls * self.step_s / STALL_S {
                    self.stalled_until_s = self.now_s + 2.0 * STALL_S * self.random.unit();
                }
            }
            self.carry();
            let is_due = self.now_s >= self.next_look_s || self.arrived - self.looked_at > ROOM;
            if is_awake && is_due {
                self.look(left, meter);
            }
        }
        self.look(0.0, meter);
    }

    /// Moves bytes for one step: into the queue, through the bucket, and their ACKs back in clumps.
    fn carry(&mut self) {
        let BucketPath { rate, line, bucket, round_trip_s, .. } = self.path;
        let goes = f64::min(self.unsent, (self.window - (self.sent - self.arrived)).max(0.0));
        if goes == 0.0 && self.unsent == 0.0 && self.sent - self.arrived < 1.0 {
            self.limited_s += self.step_s;
        }
        (self.unsent, self.sent, self.queue) =
            (self.unsent - goes, self.sent + goes, self.queue + goes);
        // A bucket without room passes what flows in.
        self.tokens = f64::min(self.tokens + rate * self.step_s, bucket.max(rate * self.step_s));
        let passes = self.queue.min(line * self.step_s).min(self.tokens);
        (self.queue, self.tokens) = (self.queue - passes, self.tokens - passes);
        self.passed += passes;
        if passes > 0.0 {
            self.acks.push_back((self.now_s + round_trip_s, self.passed));
        }
        let clump = (rate * 0.001).clamp(3000.0, 65_536.0);
        let due = self.acks.iter().take_while(|(at_s, _)| *at_s <= self.now_s).count();
        if let Some(&(_, passed)) = due.checked_sub(1).and_then(|last| self.acks.get(last))
            && (passed - self.arrived >= clump || due == self.acks.len())
        {
            self.window += passed - self.arrived;
            self.arrived = passed;
            self.acks.drain(..due);
        }
    }

    fn look(&mut self, left: f64, meter: &mut RateMeter) {
        let is_late = self.random.unit() < self.path.stalls;
        let late_s = if is_late { 2.0 * STALL_S * self.random.unit() } else { 0.0 };
        self.next_look_s = self.now_s + 0.002 + late_s;
        self.looked_at = self.arrived;
        meter.handle_sample(RateSample {
            at_ns: (self.now_s * 1e9) as u64,
            arrived: self.arrived as u64,
            in_flight: (self.sent - self.arrived) as u64,
            is_backlogged: self.unsent + left > 0.0,
            limited_ns: (self.limited_s * 1e9) as u64,
        });
    }

    /// Lets time pass; the bucket fills.
    fn rest(&mut self, time_s: f64) {
        self.now_s += time_s;
        self.limited_s += time_s;
        self.tokens = f64::min(self.tokens + self.path.rate * time_s, self.path.bucket);
    }
}

/// Mean time for which a busy host keeps a process waiting.
const STALL_S: f64 = 0.003;
/// Bytes after which the rail is told of room.
const ROOM: f64 = 262_144.0;
const MIB: f64 = 1_048_576.0;

fn random_path(random: &mut Random, stalls: f64) -> BucketPath {
    // From 1 Mb/s to 10 Gb/s.
    let rate = 125_000.0 * 10_000_f64.powf(random.unit());
    BucketPath {
        rate,
        line: rate * (2.0 + 30.0 * random.unit()),
        bucket: if random.one_in(4) { 0.0 } else { MIB * random.unit() },
        // What a short path has in flight fills its queue.
        round_trip_s: 20e-6 * (0.05 * MIB / rate / 20e-6).max(1.0).powf(random.unit()),
        send_buffer: MIB * (1.0 + 3.0 * random.unit()),
        stalls,
    }
}

fn check(meter: &RateMeter, path: &BucketPath, when: &str) {
    let found = meter.bytes_per_s().unwrap_or(0) as f64;
    assert!(
        (found / path.rate - 1.0).abs() < 0.15,
        "{when}: {found:.0}, is {:.0}: {path:?}",
        path.rate
    );
}

#[test]
fn four_megabytes_show_the_rate_behind_any_bucket() {
    for seed in testing::seeds(60) {
        let mut random = Random::new(seed);
        let path = random_path(&mut random, 0.0);
        let (mut meter, mut transfer) = (RateMeter::default(), SimTransfer::new(path, seed));
        transfer.send(4.0 * MIB, &mut meter);
        assert!(meter.is_conclusive(), "{path:?}");
        check(&meter, &path, "after 4 MiB");
    }
}

#[test]
fn a_busy_host_shows_the_rate_too() {
    for seed in testing::seeds(60) {
        let mut random = Random::new(seed);
        let stalls = 0.15 * random.unit();
        let path = random_path(&mut random, stalls);
        let (mut meter, mut transfer) = (RateMeter::default(), SimTransfer::new(path, seed));
        // Of 4 MiB that pass in the time of two stalls, a busy process may see nothing.
        let len = if 4.0 * MIB / path.rate > 20.0 * STALL_S { 4.0 } else { 16.0 };
        transfer.send(len * MIB, &mut meter);
        check(&meter, &path, "on a busy host");
    }
}

#[test]
fn a_burst_after_silence_changes_nothing() {
    for seed in testing::seeds(12) {
        let mut random = Random::new(seed);
        let path = random_path(&mut random, 0.0);
        let (mut meter, mut transfer) = (RateMeter::default(), SimTransfer::new(path, seed));
        transfer.send(4.0 * MIB, &mut meter);
        for _ in 0..20 {
            transfer.rest(2.0 * path.bucket / path.rate);
            transfer.send(MIB * random.unit(), &mut meter);
        }
        check(&meter, &path, "after bursts");
    }
}

#[test]
fn a_path_that_changes_is_followed() {
    for seed in testing::seeds(12) {
        let mut random = Random::new(seed);
        let (before, after) = (random_path(&mut random, 0.0), random_path(&mut random, 0.0));
        let mut meter = RateMeter::default();
        SimTransfer::new(before, seed).send(8.0 * MIB, &mut meter);
        meter.end_run();
        let mut transfer = SimTransfer::new(after, seed);
        for _ in 0..6 {
            transfer.send(8.0 * MIB, &mut meter);
        }
        check(&meter, &after, "after a change");
    }
}

#[test]
fn a_remembered_rate_lasts_until_a_long_run() {
    let mut meter = RateMeter::new(Some(1_000_000));
    let path = BucketPath {
        rate: 2e6,
        line: 100e6,
        bucket: MIB,
        round_trip_s: 1e-4,
        send_buffer: MIB,
        stalls: 0.0,
    };
    let mut transfer = SimTransfer::new(path, 1);
    transfer.send(0.9 * MIB, &mut meter);
    assert_eq!((meter.bytes_per_s(), meter.has_measured()), (Some(1_000_000), true), "a burst");
    transfer.rest(1.0);
    transfer.send(4.0 * MIB, &mut meter);
    check(&meter, &path, "with a memory");
}
