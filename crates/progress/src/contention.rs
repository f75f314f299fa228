//! CPU contention: other programs, or threads of the application that compute, want the cores.
//!
//! Two signs reveal contention. A polling thread that reads the clock twice and finds a long time between was
//! preempted. If that happens repeatedly, the cores count as contended for a hold time, which grows if it happens
//! again soon after. It is extended while the machine has more runnable threads than cores. In long waits and loops
//! of tests the second sign alone suffices, because a thread that spins long takes much time from threads that
//! compute.
//!
//! Ranks that share cores yield to each other while they wait. The kernel charges a yielding thread its whole slice
//! (Linux 6.18). Other threads of its session that want the core then run for milliseconds, even those of the lowest
//! priority, while a thread that sleeps keeps its claim. Two such long yields with few short ones between them reveal
//! computing threads, and such ranks then sleep at once for a hold time. That holds for waits on a shared segment
//! only: ranks that exchange messages cause pauses of milliseconds themselves. Programs of other sessions get their
//! share of a core per session (sched(7), autogroup). They alternate with all ranks together, after many yields, and
//! sleeping would gain nothing.
//!
//! Under contention a waiting thread spins no longer than sleeping costs. A thread that sleeps soon runs again soon
//! after it is woken; one that spins has used up its slice when the answer arrives. If ranks of the job on the same
//! machine want the cores, and wait as well, the thread yields in rounds while the core comes back soon
//! ([`crate::yield_rounds`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use topo::processor::Runnable;

use crate::backoff::{Backoff, Decision};
use crate::yield_rounds::YieldRounds;

/// Contention that one process has seen lately. Its fields are guarded by the worker's lock.
#[derive(Debug)]
pub(crate) struct Contention {
    is_oversubscribed: AtomicBool,
    began: Instant,
    /// Time of the last preemption, in µs since `began`.
    preempted_us: AtomicU64,
    /// Preemptions in a row, each soon after the one before.
    times: AtomicU32,
    /// End of the hold time, in µs since `began`.
    until_us: AtomicU64,
    /// Length of the last hold time, in µs.
    hold_us: AtomicU64,
    /// Short yields since the last that took milliseconds.
    brief_yields: AtomicU32,
    /// Time of the next check of the machine, in µs since `began`.
    look_at_us: AtomicU64,
    /// Backoff for spinning as long as sleeping costs.
    backoff: Backoff,
    rounds: YieldRounds,
    /// Number of cores of the machine and the count of runnable threads; none if it is not available.
    machine: Option<(usize, Runnable)>,
    /// Idle pollers of this process that are awake: they are runnable, but give way to everybody.
    idle_pollers: Arc<AtomicU32>,
}

impl Contention {
    /// Creates the state with a count of awake idle pollers, which take nothing from others.
    pub fn with_idle_pollers(idle_pollers: Arc<AtomicU32>) -> Self {
        Self { idle_pollers, ..Self::new() }
    }

    pub fn new() -> Self {
        let machine = cpu::cores_online().and_then(|cores| Some((cores, Runnable::open()?)));
        Self {
            is_oversubscribed: AtomicBool::new(false),
            began: Instant::now(),
            preempted_us: AtomicU64::new(0),
            times: AtomicU32::new(0),
            until_us: AtomicU64::new(0),
            hold_us: AtomicU64::new(HOLD_US),
            brief_yields: AtomicU32::new(FEW_YIELDS),
            look_at_us: AtomicU64::new(0),
            backoff: Backoff::new(),
            rounds: YieldRounds::new(),
            machine,
            idle_pollers: Arc::default(),
        }
    }

    /// Creates one with endless contention.
    #[cfg(test)]
    pub fn lasting() -> Self {
        let contention = Self::new();
        contention.hold(u64::MAX);
        contention
    }

    #[inline]
    pub fn is_oversubscribed(&self) -> bool {
        self.is_oversubscribed.load(Ordering::Relaxed)
    }

    /// Answers as [`Contention::is_oversubscribed`] does, after a clock reading. A hold time that is over is extended
    /// while the machine has too many runnable threads.
    pub fn is_oversubscribed_at(&self, now: Instant) -> bool {
        let now_us = self.us(now);
        if now_us >= self.until_us.load(Ordering::Relaxed) {
            self.judge(now_us, self.is_full());
        }
        self.is_oversubscribed()
    }

    fn judge(&self, now_us: u64, is_full: bool) {
        match is_full {
            true => self.hold(now_us + LOOK_EVERY_US),
            false => self.is_oversubscribed.store(false, Ordering::Relaxed),
        }
    }

    /// True if the machine has more runnable threads than cores.
    fn is_full(&self) -> bool {
        let Some((cores, runnable)) = &self.machine else { return false };
        let idle_pollers = self.idle_pollers.load(Ordering::Relaxed) as usize;
        runnable.count().is_some_and(|runnable| runnable > cores.saturating_add(idle_pollers))
    }

    /// Records the time between two clock readings of a polling thread.
    #[inline]
    pub fn note_pause(&self, pause: Duration, now: Instant) {
        if pause >= PREEMPTED {
            self.note_preemption(self.us(now));
        }
    }

    /// Records a preemption. A single one may be chance, or the host of a virtual machine. It counts after several in
    /// a row: a few if the machine is full, one more otherwise.
    #[cold]
    fn note_preemption(&self, now_us: u64) {
        let last_us = self.preempted_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(last_us) < PREEMPTED.as_micros() as u64 {
            // The same preemption was recorded already.
            return;
        }
        let is_again = now_us.saturating_sub(last_us) < AGAIN_US;
        let times = if is_again { self.times.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        self.times.store(times, Ordering::Relaxed);
        let is_certain = times > OFTEN || times == OFTEN && self.is_full();
        if is_certain {
            self.hold_longer(now_us);
        }
    }

    /// Records the duration of a yield by a rank that shares its core with others of the job.
    #[inline]
    pub fn note_yield(&self, took: Duration, now: Instant) {
        if took < YIELDED_TO_OTHERS {
            let brief = self.brief_yields.load(Ordering::Relaxed);
            self.brief_yields.store(brief.saturating_add(1), Ordering::Relaxed);
        } else if self.brief_yields.swap(0, Ordering::Relaxed) < FEW_YIELDS {
            self.hold_longer(self.us(now));
        }
    }

    /// Answers as [`Contention::is_oversubscribed`] does, for a rank that shares its core: the number of runnable
    /// threads tells nothing, as ranks are among them. After the hold time it yields again to find out.
    pub fn is_held_at(&self, now: Instant) -> bool {
        let now_us = self.us(now);
        if now_us >= self.until_us.load(Ordering::Relaxed) {
            self.judge(now_us, false);
        }
        self.is_oversubscribed()
    }

    /// Starts a hold time, longer than the last if that ended recently.
    #[cold]
    fn hold_longer(&self, now_us: u64) {
        let until_us = self.until_us.load(Ordering::Relaxed);
        let free_us = if until_us > 0 { now_us.saturating_sub(until_us) } else { u64::MAX };
        let hold_us = match self.hold_us.load(Ordering::Relaxed) {
            hold_us if self.is_oversubscribed() => hold_us,
            hold_us if free_us < 4 * hold_us => (2 * hold_us).min(HOLD_MAX_US),
            _ => HOLD_US,
        };
        self.hold_us.store(hold_us, Ordering::Relaxed);
        if !self.is_oversubscribed() {
            self.rounds.hold(now_us);
        }
        self.hold(now_us + hold_us);
    }

    fn hold(&self, until_us: u64) {
        self.until_us.fetch_max(until_us, Ordering::Relaxed);
        if !self.is_oversubscribed.swap(true, Ordering::Relaxed) {
            self.backoff.reset();
        }
    }

    /// Records a long wait, whether awake, asleep or in a loop of tests. In long waits the number of runnable threads
    /// is checked now and then.
    pub fn note_wait(&self, lasting: Duration, now: Instant) {
        let now_us = self.us(now);
        if lasting >= LONG && now_us >= self.look_at_us.load(Ordering::Relaxed) {
            self.look_at_us.store(now_us + LOOK_EVERY_US, Ordering::Relaxed);
            if self.is_full() {
                self.hold(now_us + LOOK_EVERY_US);
            }
        }
    }

    /// Returns the time for which a thread that begins to wait spins under contention: `brief`, which is the cost of
    /// sleeping, or zero if spinning has not paid. A probe spins longer, because two threads that both sleep at once
    /// keep each other from answering soon.
    pub fn spin_limit(&self, brief: Duration) -> Duration {
        match self.backoff.decide() {
            Decision::Try => brief,
            Decision::Probe => PROBE_FACTOR * brief,
            Decision::Skip => Duration::ZERO,
        }
    }

    /// Records if spinning ended before the thread had to sleep.
    pub fn learn(&self, paid: bool) {
        self.backoff.learn(paid);
    }

    /// True if a thread that begins to wait should yield in rounds, with a poll after each. If so,
    /// [`Contention::learn_rounds`] follows.
    pub fn yields_in_rounds(&self, now: Instant) -> bool {
        self.rounds.pays(self.us(now))
    }

    /// Records the duration of a yield round. True if the rounds may go on.
    pub fn note_round(&self, took: Duration, now: Instant) -> bool {
        self.rounds.note(took, self.us(now))
    }

    /// Records if the event arrived during the rounds.
    pub fn learn_rounds(&self, came: bool) {
        self.rounds.learn(came);
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Two clock readings of a polling thread are some µs apart; a preempted thread runs again after milliseconds.
const PREEMPTED: Duration = Duration::from_micros(500);

/// A thread that shares its core with a computing one is preempted again within this time, in µs.
const AGAIN_US: u64 = 40_000;
/// This many preemptions in a row are no chance if the machine is full, and one more in any case.
const OFTEN: u32 = 3;

/// Ranks that wait return the core within microseconds; other threads keep it until the kernel preempts them.
const YIELDED_TO_OTHERS: Duration = Duration::from_millis(2);

/// Two long yields with fewer short ones between them reveal contention: the yields of two waits.
const FEW_YIELDS: u32 = 32;

/// Length of the hold time in µs after a preemption: at least…
const HOLD_US: u64 = 10_000;
/// …and at most.
const HOLD_MAX_US: u64 = 160_000;

/// No answer that a thread spins for takes this long.
const LONG: Duration = Duration::from_micros(200);

/// Time between two checks of the machine, in µs.
const LOOK_EVERY_US: u64 = 10_000;

/// A probe spins this many times longer: a sleeping peer is woken, and answers.
const PROBE_FACTOR: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runnable_threads_of_this_machine_are_counted() {
        let contention = Contention::new();
        let (cores, runnable) = contention.machine.expect("a machine with /proc");
        assert!(cores > 0);
        let full = Contention { machine: Some((0, runnable)), ..Contention::new() };
        assert!(full.is_full(), "this thread runs");
        full.idle_pollers.store(u32::MAX, Ordering::Relaxed);
        assert!(!full.is_full(), "nobody wants a core");
    }

    #[test]
    fn repeated_preemptions_lengthen_the_hold_time() {
        let contention = Contention { machine: None, ..Contention::new() };
        let at = |us| contention.began + Duration::from_micros(us);
        let mut now_us = 1_000_000;
        contention.note_pause(PREEMPTED / 2, at(now_us));
        let often = |now_us| {
            let times = (0..=u64::from(OFTEN)).rev();
            times.for_each(|ms| contention.note_pause(PREEMPTED, at(now_us - 1000 * ms)));
        };
        for times in 0..10 {
            contention.note_pause(PREEMPTED, at(now_us + times * AGAIN_US));
        }
        assert!(!contention.is_oversubscribed(), "each may be chance");
        now_us += 10 * AGAIN_US;
        for _ in 0..10 {
            contention.note_pause(PREEMPTED, at(now_us));
        }
        assert!(!contention.is_oversubscribed(), "all are one");
        now_us += 10 * AGAIN_US;
        for hold_us in [HOLD_US, 2 * HOLD_US, 4 * HOLD_US] {
            often(now_us);
            assert!(contention.is_oversubscribed_at(at(now_us + hold_us - 1)));
            contention.judge(now_us + hold_us, false);
            assert!(!contention.is_oversubscribed());
            now_us += hold_us + HOLD_US;
        }
        often(now_us + HOLD_MAX_US);
        assert_eq!(contention.hold_us.load(Ordering::Relaxed), HOLD_US);
    }

    #[test]
    fn repeated_long_yields_lengthen_the_hold_time() {
        let contention = Contention::new();
        let at = |us| contention.began + Duration::from_micros(us);
        for _ in 0..10 {
            contention.note_yield(YIELDED_TO_OTHERS, at(0));
            (0..FEW_YIELDS).for_each(|_| contention.note_yield(YIELDED_TO_OTHERS / 2, at(0)));
        }
        assert!(!contention.is_oversubscribed(), "each may be due to another session");
        contention.note_yield(YIELDED_TO_OTHERS, at(0));
        (1..FEW_YIELDS).for_each(|_| contention.note_yield(YIELDED_TO_OTHERS / 2, at(0)));
        let mut now_us = 1_000_000;
        for hold_us in [HOLD_US, 2 * HOLD_US, 4 * HOLD_US] {
            contention.note_yield(YIELDED_TO_OTHERS, at(now_us));
            assert!(contention.is_held_at(at(now_us + hold_us - 1)));
            assert!(!contention.is_held_at(at(now_us + hold_us)), "whatever runs");
            now_us += hold_us + HOLD_US;
        }
    }

    #[test]
    fn long_waits_check_the_machine_now_and_then() {
        let at = |contention: &Contention, us| contention.began + Duration::from_micros(us);
        let runnable = || Runnable::open().unwrap();
        let full = Contention { machine: Some((0, runnable())), ..Contention::new() };
        full.note_wait(LONG / 2, at(&full, 0));
        assert!(!full.is_oversubscribed());
        full.note_wait(LONG, at(&full, 0));
        assert!(full.is_oversubscribed_at(at(&full, LOOK_EVERY_US - 1)));
        assert!(full.is_oversubscribed_at(at(&full, LOOK_EVERY_US)), "this thread runs");
        let roomy = Contention { machine: Some((usize::MAX, runnable())), ..Contention::new() };
        roomy.note_wait(LONG, at(&roomy, 0));
        assert!(!roomy.is_oversubscribed());
        let times = u64::from(OFTEN);
        (1..=times).for_each(|ms| roomy.note_pause(PREEMPTED, at(&roomy, 1000 * ms)));
        assert!(!roomy.is_oversubscribed());
        let last_us = 1000 * (times + 1);
        roomy.note_pause(PREEMPTED, at(&roomy, last_us));
        assert!(
            roomy.is_oversubscribed() && !roomy.is_oversubscribed_at(at(&roomy, last_us + HOLD_US))
        );
    }
}
