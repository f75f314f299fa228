//! Whether others want the cores: other programs, or threads of the application that compute.
//!
//! Two signs tell that they do. A waiting thread that reads the clock, polls, and reads it again much later was
//! put aside meanwhile: when that happens again and again, cores are taken to be wanted for a while, for longer when
//! it goes on soon after, and for as long as more threads of the machine run, or could, than it has cores. Where
//! waits are long, or loops of tests, the latter is looked at without the former, for who spins long takes much from
//! those who compute.
//!
//! Ranks that share cores yield to each other while they wait. The kernel takes who yields for one that has had all of
//! its share (Linux 6.18 charges it a whole slice), so that others of its session who want the core have it next, for
//! milliseconds, even those of the lowest standing; who sleeps keeps its claim. Few yields from one that took so long
//! to the next tell of them, and then such ranks sleep at once for a while, which is longer when that happens again
//! soon after. That holds for posts on a shared segment only: ranks that exchange messages have turns of milliseconds of their
//! own. What runs in other sessions is given its share of a core by the session (sched(7), autogroup): it takes the
//! core in turns with all ranks together, after many yields, and who slept would gain nothing.
//!
//! Where cores are wanted a thread that waits keeps its own for no longer than sleeping costs: who sleeps soon has its
//! turn soon after it is woken, and who spins has used it up when the answer comes. Where those who want the cores are ranks of the
//! job on the same machine, that wait as well, it is left to them in turns while they give it back soon
//! ([`crate::turns`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use topo::processor::Runnable;

use crate::backoff::{Trust, Try};
use crate::yield_rounds::Turns;

/// What one process has seen lately; its words are guarded as the core is.
#[derive(Debug)]
pub(crate) struct Contention {
    is_oversubscribed: AtomicBool,
    began: Instant,
    /// When a thread was put aside last, in µs since `began`.
    put_aside_us: AtomicU64,
    /// How often in a row, each soon after the one before.
    times: AtomicU32,
    /// Until when that holds, or when it ended, in µs since `began`.
    until_us: AtomicU64,
    /// For how long it did when a thread was put aside last, in µs.
    hold_us: AtomicU64,
    /// Yields since the last that took milliseconds.
    brief_yields: AtomicU32,
    /// When the machine is looked at next, in µs since `began`.
    look_at_us: AtomicU64,
    /// In spinning for as long as sleeping costs.
    trust: Trust,
    turns: Turns,
    /// All cores of the machine, and what tells how many threads want them; none where it does not.
    machine: Option<(usize, Runnable)>,
    /// Threads of this process that run, or could, and want no core.
    idle: Arc<AtomicU32>,
}

impl Contention {
    /// Threads that `idle` counts take from nobody.
    pub fn beside(idle: Arc<AtomicU32>) -> Self {
        Self { idle, ..Self::new() }
    }

    pub fn new() -> Self {
        let machine = driver::cores_online().and_then(|cores| Some((cores, Runnable::open()?)));
        Self {
            is_oversubscribed: AtomicBool::new(false),
            began: Instant::now(),
            put_aside_us: AtomicU64::new(0),
            times: AtomicU32::new(0),
            until_us: AtomicU64::new(0),
            hold_us: AtomicU64::new(HOLD_US),
            brief_yields: AtomicU32::new(FEW_YIELDS),
            look_at_us: AtomicU64::new(0),
            trust: Trust::new(),
            turns: Turns::new(),
            machine,
            idle: Arc::default(),
        }
    }

    /// As where others always want the cores.
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

    /// As [`Contention::is_oversubscribed`], now that the clock was read: when the time is over it goes on while the
    /// machine is full.
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

    /// Whether more threads run, or could run, than there are cores.
    fn is_full(&self) -> bool {
        let Some((cores, runnable)) = &self.machine else { return false };
        let idle = self.idle.load(Ordering::Relaxed) as usize;
        runnable.count().is_some_and(|runnable| runnable > cores.saturating_add(idle))
    }

    /// A thread that polls has read the clock, and so much earlier the last time.
    #[inline]
    pub fn note_pause(&self, pause: Duration, now: Instant) {
        if pause >= PUT_ASIDE {
            self.note_put_aside(self.us(now));
        }
    }

    /// Once may be chance, or what carries this machine: it counts when it happens again soon and the machine is
    /// full, or again and again.
    #[cold]
    fn note_put_aside(&self, now_us: u64) {
        let last_us = self.put_aside_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(last_us) < PUT_ASIDE.as_micros() as u64 {
            // It was told of this time already.
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

    /// A thread of a rank that shares its core with others of the job has it back so long after it has yielded.
    #[inline]
    pub fn note_yield(&self, took: Duration, now: Instant) {
        if took < YIELDED_TO_OTHERS {
            let brief = self.brief_yields.load(Ordering::Relaxed);
            self.brief_yields.store(brief.saturating_add(1), Ordering::Relaxed);
        } else if self.brief_yields.swap(0, Ordering::Relaxed) < FEW_YIELDS {
            self.hold_longer(self.us(now));
        }
    }

    /// As [`Contention::is_oversubscribed`], for such a rank: how many run does not tell it who they are. When the time is over it
    /// yields again, and sees.
    pub fn is_held_at(&self, now: Instant) -> bool {
        let now_us = self.us(now);
        if now_us >= self.until_us.load(Ordering::Relaxed) {
            self.judge(now_us, false);
        }
        self.is_oversubscribed()
    }

    /// For longer if others want the cores again soon.
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
            self.turns.hold(now_us);
        }
        self.hold(now_us + hold_us);
    }

    fn hold(&self, until_us: u64) {
        self.until_us.fetch_max(until_us, Ordering::Relaxed);
        if !self.is_oversubscribed.swap(true, Ordering::Relaxed) {
            self.trust.restore();
        }
    }

    /// A thread has waited for so long, awake, asleep or in a loop of tests: where waits are long, it is seen now and then how
    /// many threads want the machine's cores.
    pub fn note_wait(&self, lasting: Duration, now: Instant) {
        let now_us = self.us(now);
        if lasting >= LONG && now_us >= self.look_at_us.load(Ordering::Relaxed) {
            self.look_at_us.store(now_us + LOOK_EVERY_US, Ordering::Relaxed);
            if self.is_full() {
                self.hold(now_us + LOOK_EVERY_US);
            }
        }
    }

    /// How long a thread that begins to wait keeps its core, where others want it: as long as sleeping costs
    /// (`brief`), or not at all where that has been in vain. Now and then one tries for longer, for two that both
    /// sleep at once keep each other from answering soon.
    pub fn patience(&self, brief: Duration) -> Duration {
        match self.trust.ask() {
            Try::Yes => brief,
            Try::Again => TRY_FOR * brief,
            Try::No => Duration::ZERO,
        }
    }

    /// Whether what a thread has spun for came before it had to sleep.
    pub fn learn(&self, paid: bool) {
        self.trust.learn(paid);
    }

    /// Whether a thread that begins to wait leaves the core to others again and again, and polls between; to be
    /// followed by [`Contention::learn_turns`] if so.
    pub fn takes_turns(&self, now: Instant) -> bool {
        self.turns.pay(self.us(now))
    }

    /// A thread that does holds the worker back after so long; whether to go on.
    pub fn note_turn(&self, took: Duration, now: Instant) -> bool {
        self.turns.note(took, self.us(now))
    }

    /// Whether what it waited for has come.
    pub fn learn_turns(&self, came: bool) {
        self.turns.learn(came);
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Polls between two looks at the clock take some µs; who was put aside comes back after milliseconds.
const PUT_ASIDE: Duration = Duration::from_micros(500);

/// Who shares a core with a thread that computes is put aside again so soon.
const AGAIN_US: u64 = 40_000;
/// So often in a row is no chance on a full machine; once more, and it is none on any.
const OFTEN: u32 = 3;

/// Ranks that wait give the core back within microseconds, and others when the kernel takes it from them.
const YIELDED_TO_OTHERS: Duration = Duration::from_millis(2);

/// From one yield that took so long to the next: those of two waits.
const FEW_YIELDS: u32 = 32;

/// How long a core is taken to be wanted once a thread was put aside: at least…
const HOLD_US: u64 = 10_000;
/// …and at most.
const HOLD_MAX_US: u64 = 160_000;

/// No answer that a thread spins for comes so late.
const LONG: Duration = Duration::from_micros(200);

/// Between two looks at the machine.
const LOOK_EVERY_US: u64 = 10_000;

/// Who tries though it has been in vain does so for so many times as long: a peer that sleeps is woken, and
/// answers.
const TRY_FOR: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_how_many_want_its_cores() {
        let contention = Contention::new();
        let (cores, runnable) = contention.machine.expect("a machine with /proc");
        assert!(cores > 0);
        let full = Contention { machine: Some((0, runnable)), ..Contention::new() };
        assert!(full.is_full(), "this thread runs");
        full.idle.store(u32::MAX, Ordering::Relaxed);
        assert!(!full.is_full(), "nobody wants a core");
    }

    #[test]
    fn a_thread_put_aside_again_soon_is_believed_for_longer() {
        let contention = Contention { machine: None, ..Contention::new() };
        let at = |us| contention.began + Duration::from_micros(us);
        let mut now_us = 1_000_000;
        contention.note_pause(PUT_ASIDE / 2, at(now_us));
        let often = |now_us| {
            let times = (0..=u64::from(OFTEN)).rev();
            times.for_each(|ms| contention.note_pause(PUT_ASIDE, at(now_us - 1000 * ms)));
        };
        for times in 0..10 {
            contention.note_pause(PUT_ASIDE, at(now_us + times * AGAIN_US));
        }
        assert!(!contention.is_oversubscribed(), "each may be chance");
        now_us += 10 * AGAIN_US;
        for _ in 0..10 {
            contention.note_pause(PUT_ASIDE, at(now_us));
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
    fn yields_that_take_milliseconds_again_soon_are_believed_and_then_for_longer() {
        let contention = Contention::new();
        let at = |us| contention.began + Duration::from_micros(us);
        for _ in 0..10 {
            contention.note_yield(YIELDED_TO_OTHERS, at(0));
            (0..FEW_YIELDS).for_each(|_| contention.note_yield(YIELDED_TO_OTHERS / 2, at(0)));
        }
        assert!(!contention.is_oversubscribed(), "each may be the turn of another session");
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
    fn long_waits_look_at_the_machine_now_and_then() {
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
        (1..=times).for_each(|ms| roomy.note_pause(PUT_ASIDE, at(&roomy, 1000 * ms)));
        assert!(!roomy.is_oversubscribed());
        let last_us = 1000 * (times + 1);
        roomy.note_pause(PUT_ASIDE, at(&roomy, last_us));
        assert!(
            roomy.is_oversubscribed() && !roomy.is_oversubscribed_at(at(&roomy, last_us + HOLD_US))
        );
    }
}
