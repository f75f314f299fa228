//! Threads that poll from cores that nobody wants.
//!
//! While the progress thread rests between two checks, the rails wake nobody, and a thread woken on a halted core is
//! late. So with three or more cores per rank, a `SCHED_IDLE` thread in each cache domain helps while the application
//! computes. It keeps a core awake, which the kernel gives at once to any thread that wants it, and it wakes the
//! progress thread when an event arrives. Idle pollers do not serve a waiting thread. In measurements they woke it no
//! sooner, and at times much later: Linux searches less far for an idle core if more cores are busy.
//!
//! Such a thread may be preempted at any point for as long as others compute. So it holds nothing that another thread
//! waits for: neither the worker's lock nor any other. It polls through [`ReadinessProbe`]s, and wakes a sleeper once
//! per sleep. Nobody depends on it: the rails wake a thread that sleeps on them, and a resting progress thread checks
//! again. It polls for 20 ms after an event, and then sleeps until it is called. A preempted one is not called for a
//! longer time.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rail::ReadinessProbe;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::backoff::{Backoff, Decision};
use crate::event;

/// State that the idle pollers share with the threads that they wake.
pub(crate) struct IdlePollers {
    began: Instant,
    /// Open while the progress thread rests between two checks.
    pub thread_rest: WakeFlag,
    /// Open while the progress thread sleeps on the rails.
    pub thread_sleep: WakeFlag,
    /// Eventfds of the progress thread: for its sleep on the rails, and for its rest between two checks.
    sleep_event: Arc<OwnedFd>,
    rest_event: Arc<OwnedFd>,
    /// Backoff for waking a resting progress thread. Guarded by the worker's lock.
    backoff: Backoff,
    /// Set before the first thread starts.
    readiness_probes: OnceLock<Vec<Arc<dyn ReadinessProbe>>>,
    /// The idle pollers, with the number of cores and the cores for which they were chosen. The pollers do not lock
    /// it.
    pollers: Mutex<PollerSet>,
    resting: AtomicU32,
    /// Number of idle pollers that poll, or were preempted while they did.
    pub awake: Arc<AtomicU32>,
    /// End of the polling time, and end of the time without calls, both in µs since `began`.
    until_us: AtomicU64,
    held_until_us: AtomicU64,
    /// True while a waiting thread sleeps on the rails: the idle pollers are not called then.
    is_suspended: AtomicBool,
    /// The engine's event count at the last call.
    event_count: AtomicU64,
    is_over: AtomicBool,
    looks: AtomicU64,
    rings: AtomicU64,
}

#[derive(Default)]
struct PollerSet {
    spare: usize,
    cores: Vec<usize>,
    list: Vec<Arc<PollerState>>,
}

/// The cores and the state of one idle poller.
struct PollerState {
    cores: CpuSet,
    /// True while it sleeps, or is about to.
    rests: AtomicBool,
    is_over: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Flag that lets one thread at a time wake a sleeper. The loom model builds it from other atomics.
pub(crate) struct WakeFlag<S: AtomicByte = AtomicU8>(S);

/// Atomic byte, of the standard library or of loom.
pub(crate) trait AtomicByte {
    fn new(value: u8) -> Self;
    fn load(&self, order: Ordering) -> u8;
    fn store(&self, value: u8, order: Ordering);
    fn swap(&self, value: u8, order: Ordering) -> u8;
    /// True if the value was `from`, and is `to` now.
    fn exchange(&self, from: u8, to: u8) -> bool;
}

/// Implements [`AtomicByte`] for an atomic type: the standard's and loom's have the same functions, but no common trait.
macro_rules! impl_atomic_byte {
    ($atomic:ty) => {
        impl $crate::idle_poller::AtomicByte for $atomic {
            fn new(value: u8) -> Self {
                Self::new(value)
            }

            fn load(&self, order: Ordering) -> u8 {
                self.load(order)
            }

            fn store(&self, value: u8, order: Ordering) {
                self.store(value, order);
            }

            fn swap(&self, value: u8, order: Ordering) -> u8 {
                self.swap(value, order)
            }

            fn exchange(&self, from: u8, to: u8) -> bool {
                self.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            }
        }
    };
}

impl_atomic_byte!(AtomicU8);
#[cfg(test)]
pub(crate) use impl_atomic_byte;

impl<S: AtomicByte> WakeFlag<S> {
    /// Creates a closed flag.
    pub fn new() -> Self {
        Self(S::new(CLOSED))
    }

    /// Allows one wake-up from now on.
    pub fn open(&self) {
        self.0.store(OPEN, Ordering::Release);
    }

    /// Allows none any more. True if there was one.
    pub fn close(&self) -> bool {
        self.0.swap(CLOSED, Ordering::Acquire) == CLAIMED
    }

    /// True if a wake-up is allowed.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == OPEN
    }

    /// True if the caller is the thread that wakes the sleeper.
    pub fn take(&self) -> bool {
        self.0.exchange(OPEN, CLAIMED)
    }
}

/// Returns the cores of each idle poller: the first domains, one for each spare core.
pub(crate) fn poller_cores(spare: usize, domains: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    domains.into_iter().take(spare).collect()
}

impl IdlePollers {
    pub fn new(sleep_event: Arc<OwnedFd>, rest_event: Arc<OwnedFd>) -> Self {
        Self {
            began: Instant::now(),
            thread_rest: WakeFlag::new(),
            thread_sleep: WakeFlag::new(),
            sleep_event,
            rest_event,
            backoff: Backoff::new(),
            readiness_probes: OnceLock::new(),
            pollers: Mutex::default(),
            resting: AtomicU32::new(0),
            awake: Arc::default(),
            until_us: AtomicU64::new(0),
            held_until_us: AtomicU64::new(0),
            is_suspended: AtomicBool::new(false),
            event_count: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            rings: AtomicU64::new(0),
        }
    }

    /// Numbers of checks and of wake-ups.
    pub fn counts(&self) -> (u64, u64) {
        (self.looks.load(Ordering::Relaxed), self.rings.load(Ordering::Relaxed))
    }

    /// Adjusts the number of idle pollers to the spare cores that the caller, the progress thread, may run on,
    /// since these may have changed. `spare` is the number of cores beside the rank's own; `readiness_probes` is
    /// asked once.
    pub fn review(
        self: &Arc<Self>,
        spare: usize,
        readiness_probes: impl FnOnce() -> Vec<Arc<dyn ReadinessProbe>>,
    ) {
        let Some(cores) = topo::domains::allowed(None) else { return };
        let spare = spare.min(cores.len().saturating_sub(1));
        let is_over = self.is_over.load(Ordering::Acquire);
        if is_over || self.pollers().is_for(spare, &cores) {
            return;
        }
        if self.readiness_probes.get_or_init(readiness_probes).is_empty() {
            return;
        }
        let sets = poller_cores(spare, topo::domains::of_machine(&cores));
        let list: Vec<_> = sets.iter().filter_map(|cores| self.start(cores)).collect();
        let former = std::mem::replace(&mut *self.pollers(), PollerSet { spare, cores, list });
        former.list.iter().for_each(|poller| poller.end());
        if self.is_over.load(Ordering::Acquire) {
            self.end();
        }
    }

    /// Makes all idle pollers leave, and does not wait for them. They run when a core is free, and hold nothing.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        std::mem::take(&mut self.pollers().list).iter().for_each(|poller| poller.end());
    }

    /// Has resting idle pollers poll for a while if the event count has changed.
    pub fn call_for(&self, event_count: u64) {
        if self.event_count.swap(event_count, Ordering::Relaxed) != event_count {
            self.call();
        }
    }

    /// Has resting idle pollers poll for a while: something has happened without an event, or is left pending.
    pub fn call(&self) {
        if self.is_suspended.load(Ordering::Relaxed) {
            return;
        }
        let now_us = self.us(Instant::now());
        self.until_us.store(now_us + POLL_US, Ordering::Relaxed);
        let is_held = now_us < self.held_until_us.load(Ordering::Relaxed);
        if self.resting.load(Ordering::Relaxed) > 0 && !is_held {
            self.pollers().list.iter().for_each(|poller| poller.call());
        }
    }

    /// Stops the idle pollers because a waiting thread sleeps on the rails, which they would wake no sooner.
    pub fn suspend(&self) {
        self.is_suspended.store(true, Ordering::Relaxed);
        self.until_us.store(0, Ordering::Relaxed);
    }

    /// Allows calls again: that thread is awake.
    pub fn resume(&self) {
        self.is_suspended.store(false, Ordering::Relaxed);
    }

    /// True if idle pollers may wake the progress thread between two checks, which is rare if it did not pay lately.
    pub fn may_ring(&self) -> bool {
        self.resting.load(Ordering::Relaxed) < self.pollers().list.len() as u32
            && self.backoff.decide() != Decision::Skip
    }

    /// Records if a wake-up paid.
    pub fn learn(&self, paid: bool) {
        self.backoff.learn(paid);
    }

    fn pollers(&self) -> MutexGuard<'_, PollerSet> {
        self.pollers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Starts an idle poller on these cores; none if the system gives no thread.
    fn start(self: &Arc<Self>, allowed: &[usize]) -> Option<Arc<PollerState>> {
        let mut cores = CpuSet::new();
        allowed.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| cores.set(*core));
        let [rests, is_over] = [false, false].map(AtomicBool::new);
        let poller = Arc::new(PollerState { cores, rests, is_over, thread: OnceLock::new() });
        let (idle, own) = (Arc::clone(self), Arc::clone(&poller));
        let builder = thread::Builder::new().name("canele-idle".into()).stack_size(STACK_BYTES);
        let spawned = cpu::without_signals(|| builder.spawn(move || idle.run_idle_poller(&own)));
        let _ = poller.thread.set(spawned.ok()?.thread().clone());
        Some(poller)
    }

    /// Main loop of an idle poller. It may be preempted when its end is requested; then it leaves late.
    fn run_idle_poller(&self, poller: &PollerState) {
        let is_set = sched_setaffinity(None, &poller.cores).and_then(|()| sched_getaffinity(None));
        if cpu::poll_when_idle().is_err() || is_set != Ok(poller.cores) {
            return;
        }
        while !poller.is_over() {
            // If the process has lost a core, the next review chooses another poller for these cores.
            if sched_getaffinity(None) == Ok(poller.cores) {
                self.awake.fetch_add(1, Ordering::Relaxed);
                self.look_for_a_while(poller);
                self.awake.fetch_sub(1, Ordering::Relaxed);
            }
            self.rest(poller);
        }
    }

    fn rest(&self, poller: &PollerState) {
        self.resting.fetch_add(1, Ordering::Relaxed);
        poller.rests.store(true, Ordering::Release);
        while poller.rests.load(Ordering::Acquire) && !poller.is_over() {
            thread::park();
        }
        self.resting.fetch_sub(1, Ordering::Relaxed);
    }

    fn look_for_a_while(&self, poller: &PollerState) {
        let mut looks = 0;
        let mut last = Instant::now();
        let mut seen: Option<Instant> = None;
        while !poller.is_over() {
            let now = Instant::now();
            let now_us = self.us(now);
            if now - last >= PREEMPTED {
                self.held_until_us.fetch_max(now_us + HOLD_US, Ordering::Relaxed);
                break;
            }
            last = now;
            if now_us >= self.until_us.load(Ordering::Relaxed) {
                break;
            }
            looks += 1;
            seen = self.look(now, seen);
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.looks.fetch_add(looks, Ordering::Relaxed);
    }

    /// Wakes a sleeper if there is one and an event has arrived. Returns the time since which there has been an
    /// event.
    fn look(&self, now: Instant, seen: Option<Instant>) -> Option<Instant> {
        let [sleeps, rests] = [&self.thread_sleep, &self.thread_rest].map(WakeFlag::is_open);
        let sees_events =
            || self.readiness_probes.get().into_iter().flatten().any(|one| one.sees_events());
        if !(sleeps || rests) || !sees_events() {
            return None;
        }
        let since = seen.unwrap_or(now);
        if sleeps && self.thread_sleep.take() {
            self.signal(&self.sleep_event);
        } else if rests && now - since >= PENDING_FOR && self.thread_rest.take() {
            self.signal(&self.rest_event);
        }
        Some(since)
    }

    fn signal(&self, event: &OwnedFd) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        event::signal(event);
    }
}

impl PollerSet {
    /// True if these pollers were chosen for this number of spare cores among these cores.
    fn is_for(&self, spare: usize, cores: &[usize]) -> bool {
        self.spare == spare && (spare == 0 || self.cores == cores)
    }
}

impl PollerState {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn call(&self) {
        if self.rests.load(Ordering::Relaxed) && self.rests.swap(false, Ordering::AcqRel) {
            self.unpark();
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.unpark();
    }

    fn unpark(&self) {
        self.thread.get().into_iter().for_each(Thread::unpark);
    }
}

/// States of a [`WakeFlag`].
const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const CLAIMED: u8 = 2;

/// Polling time after an event, in µs. Programs that communicate every few milliseconds find a poller awake, and
/// programs that wait or compute for longer pay nothing.
const POLL_US: u64 = 20_000;

/// A poller preempted for so long is on a core that others want…
const PREEMPTED: Duration = Duration::from_millis(1);
/// …and is not called for so long, in µs: it would run late, or compete for the core.
const HOLD_US: u64 = 100_000;

/// Age of an event before the progress thread is woken. An application that polls handles events sooner.
const PENDING_FOR: Duration = Duration::from_micros(5);

/// Pauses between two checks. They leave most of the core to its other hardware thread, and the probed cache lines
/// where they are.
const PAUSES: u32 = 8;

const STACK_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_on_in_each_domain_as_far_as_cores_are_left() {
        let domains = vec![vec![0, 1], vec![2, 3], vec![8]];
        assert_eq!(poller_cores(5, domains.clone()), domains);
        assert_eq!(poller_cores(2, domains.clone()), domains[..2]);
        assert!(poller_cores(0, domains).is_empty());
    }

    #[test]
    fn others_look_on_when_cores_come_or_go_or_fewer_are_spare() {
        let pollers = PollerSet { spare: 2, cores: vec![0, 1, 2, 3], list: Vec::new() };
        assert!(pollers.is_for(2, &[0, 1, 2, 3]));
        assert!(!pollers.is_for(2, &[0, 1, 2]) && !pollers.is_for(0, &[0, 1, 2, 3]));
        assert!(PollerSet::default().is_for(0, &[0, 1]), "nobody does at first");
    }

    #[test]
    fn a_sleep_is_rung_for_once() {
        let flag: WakeFlag = WakeFlag::new();
        assert!(!flag.is_open() && !flag.take());
        flag.open();
        assert!(flag.is_open() && flag.take());
        assert!(!flag.is_open() && !flag.take());
        assert!(flag.close());
        flag.open();
        assert!(!flag.close(), "nobody rang this time");
    }

    #[test]
    fn only_what_lasts_is_told_who_rests_between_two_looks() {
        let idle = idle();
        let event_count = Arc::new(TestProbe(AtomicBool::new(true)));
        assert!(idle.readiness_probes.set(vec![Arc::<TestProbe>::clone(&event_count)]).is_ok());
        let begin = Instant::now();
        assert_eq!(idle.look(begin, None), None, "nobody listens");
        idle.thread_rest.open();
        let seen = idle.look(begin, None);
        assert_eq!((seen, idle.counts().1), (Some(begin), 0));
        idle.look(begin + PENDING_FOR, seen);
        assert_eq!(idle.counts().1, 1);
        idle.thread_sleep.open();
        idle.look(begin, None);
        assert_eq!(idle.counts().1, 2, "a sleeping thread is woken at once");
        idle.thread_sleep.open();
        event_count.0.store(false, Ordering::Relaxed);
        assert_eq!(idle.look(begin, seen), None);
        assert_eq!(idle.counts().1, 2);
    }

    #[test]
    fn a_preempted_idle_poller_is_not_woken_for_a_while() {
        let idle = idle();
        let poller = PollerState {
            cores: CpuSet::new(),
            rests: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            thread: OnceLock::new(),
        };
        let poller = Arc::new(poller);
        idle.resting.store(1, Ordering::Relaxed);
        idle.pollers().list.push(Arc::clone(&poller));
        idle.held_until_us.store(u64::MAX, Ordering::Relaxed);
        idle.call_for(1);
        assert!(poller.rests.load(Ordering::Relaxed));
        idle.held_until_us.store(0, Ordering::Relaxed);
        idle.call_for(1);
        assert!(poller.rests.load(Ordering::Relaxed), "that was no new event");
        idle.suspend();
        idle.call_for(2);
        assert!(poller.rests.load(Ordering::Relaxed), "a thread waits asleep");
        idle.resume();
        idle.call_for(3);
        assert!(!poller.rests.load(Ordering::Relaxed));
    }

    struct TestProbe(AtomicBool);

    impl ReadinessProbe for TestProbe {
        fn sees_events(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn idle() -> IdlePollers {
        let event = || Arc::new(event::new().expect("an event"));
        IdlePollers::new(event(), event())
    }
}
