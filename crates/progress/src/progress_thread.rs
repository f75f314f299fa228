//! The thread that makes progress while the application computes.
//!
//! A computing application leaves operations pending: requests that need a peer's answer, bytes that a full socket
//! did not take, short messages that wait to be coalesced. The progress thread completes them in all VCIs
//! of its process. A call that leaves something pending wakes it. It then checks from time to time if another thread
//! polls, and sleeps in the kernel on all rails if none does. While nothing is pending it sleeps, and polls once every
//! [`IDLE`]: a peer that has cancelled a send waits for an answer of this process, whose application may call nothing.
//! A process that only makes blocking calls never starts it.

#[cfg(test)]
mod loom_model;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::event;
use crate::idle_poller::IdlePollers;
use crate::wait::{AWAY, MAX_SLEEP, Progress};

/// The progress thread of a process.
#[derive(Debug)]
pub(crate) struct ProgressThread {
    /// Eventfd that wakes it, wherever it sleeps.
    pub event: Arc<OwnedFd>,
    /// The thread, known once it was needed: the system may have given none.
    thread: OnceLock<Option<Mutex<Option<JoinHandle<()>>>>>,
    /// True once the thread is to end. None is started afterwards.
    is_over: AtomicBool,
    /// VCIs that the thread has not taken up yet.
    newcomers: Mutex<Vec<Weak<Progress>>>,
}

/// A VCI's handle to the progress thread.
#[derive(Debug)]
pub(crate) struct ThreadHandle {
    pub progress_thread: Arc<ProgressThread>,
    /// [`ASLEEP`], [`RESTS_IDLE`] or [`AWAKE`].
    attention: AtomicU8,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// Coalesced short messages were sent.
    Coalesced,
    /// Another thread polls; rest for this time.
    Polled(Duration),
    /// Another thread holds the worker's lock.
    Locked,
    /// Another thread sleeps until a rail wakes it.
    Watched,
    /// Nothing is pending.
    Idle,
    /// Something has advanced and more may; other VCIs are checked first.
    Moved,
    /// The rails wake the progress thread, until it has looked again.
    Sleeps,
}

/// Reason for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckCause {
    /// The end of a rest, or a call.
    Due,
    /// A wake-up by an idle poller: an event has arrived that no thread handles.
    Woken,
    /// The end of a sleep on the rails of this length.
    Slept(Duration),
    /// The end of a sleep while nothing was pending.
    Lapsed,
}

/// Rest times of the progress thread while threads wait for the polling one. Each check costs them more time than a
/// thread switch, so rests grow while another thread polls, and start anew when none did.
#[derive(Debug)]
pub(crate) struct RestPeriod {
    period: Duration,
    /// Number of checks in a row that may be skipped.
    passes: u32,
}

impl RestPeriod {
    pub fn new() -> Self {
        Self { period: DEFERRED, passes: 0 }
    }

    /// Resets the rest time: nobody polled, or no thread waits.
    pub fn shorten(&mut self) {
        *self = Self::new();
    }

    /// Returns the time to rest, and doubles the next: another thread polls for waiting threads.
    pub fn lengthen(&mut self) -> Duration {
        self.passes = PASSES_MAX;
        let longer = (2 * self.period).min(DEFERRED_MAX);
        std::mem::replace(&mut self.period, longer)
    }

    /// True if this check may be skipped because another thread holds the worker's lock.
    pub fn passes(&mut self) -> bool {
        let passes = self.passes > 0;
        self.passes = self.passes.saturating_sub(1);
        passes
    }
}

impl ProgressThread {
    /// Creates the state of a process without a progress thread.
    ///
    /// # Errors
    /// An error if the kernel gives no event descriptor.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let event = Arc::new(event::new()?);
        let (thread, is_over, newcomers) = Default::default();
        Ok(Arc::new(Self { event, thread, is_over, newcomers }))
    }

    /// Ends the thread and waits until it has gone, unless it is the caller.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let Some(thread) = self.thread.get_or_init(|| None) else { return };
        event::signal(&self.event);
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|_| !is_this_thread()) {
            // A panic of the thread has been reported by itself.
            let _ = thread.join();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Adds a VCI, which the thread serves once it is called.
    pub fn register(self: &Arc<Self>, progress: Weak<Progress>) -> ThreadHandle {
        self.newcomers.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        ThreadHandle { progress_thread: Arc::clone(self), attention: AtomicU8::new(ASLEEP) }
    }

    fn newcomers(&self) -> Vec<Weak<Progress>> {
        std::mem::take(&mut *self.newcomers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves all VCIs of the process until they are gone, or it is to end.
    fn run(&self) {
        IS_THIS_THREAD.set(true);
        let mut vcis = Vec::new();
        loop {
            vcis.extend(self.newcomers().into_iter().map(VciState::new));
            vcis.retain(VciState::is_needed);
            if vcis.is_empty() || self.is_over() {
                return;
            }
            let is_shared = vcis.len() > 1;
            vcis.iter_mut().for_each(|vci| vci.check_if_due(is_shared));
            self.sleep(&mut vcis);
        }
    }

    /// Sleeps until a VCI is due, or may have called.
    fn sleep(&self, vcis: &mut [VciState]) {
        let now = Instant::now();
        let due = vcis.iter().filter_map(|vci| vci.due_at(now)).min();
        let limit = due.map(|due| due.saturating_duration_since(now));
        if limit.is_some_and(|limit| limit.is_zero()) {
            return;
        }
        vcis.iter().for_each(VciState::allow_wakeup);
        let mut events = vec![PollFd::new(&*self.event, PollFlags::IN)];
        let on_rails = vcis.iter().filter_map(VciState::on_rails).flat_map(Progress::rail_events);
        events.extend(on_rails.map(|event| PollFd::new(event, PollFlags::IN)));
        event::wait(&mut events, limit);
        let woken: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
        if woken[0] {
            event::clear(&self.event);
        }
        let mut of_rails = woken[1..].chunks(Progress::DESCRIPTORS);
        for vci in vcis {
            let events = vci.on_rails().and_then(|_| of_rails.next()).unwrap_or_default();
            vci.note_wakeup(events);
        }
    }
}

impl ThreadHandle {
    /// True if the thread was called, or is at work.
    fn is_called(&self) -> bool {
        self.attention.load(Ordering::Relaxed) == AWAKE
    }

    /// Records that the thread serves the VCI. True if it was called to, or did before.
    fn begin_work(&self) -> bool {
        self.attention.swap(AWAKE, Ordering::AcqRel) == AWAKE
    }

    /// Wakes the thread, also from an idle rest if work is urgent; false if there is none. The caller holds the
    /// worker's lock.
    #[inline]
    pub fn call(&self, is_urgent: impl FnOnce() -> bool) -> bool {
        match self.attention.load(Ordering::Relaxed) {
            AWAKE => true,
            RESTS_IDLE if !is_urgent() => true,
            _ => self.wake(),
        }
    }

    /// Begins a rest that urgent work ends. The caller is the thread, and holds the worker's lock.
    pub fn begin_idle_rest(&self) {
        self.attention.store(RESTS_IDLE, Ordering::Relaxed);
    }

    #[cold]
    fn wake(&self) -> bool {
        let of = &self.progress_thread;
        if of.is_over() || of.thread.get_or_init(|| spawn(Arc::clone(of))).is_none() {
            return false;
        }
        if self.attention.swap(AWAKE, Ordering::AcqRel) != AWAKE {
            event::signal(&self.progress_thread.event);
        }
        true
    }
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        event::signal(&self.progress_thread.event);
    }
}

/// State of the thread for one VCI.
struct VciState {
    progress: Weak<Progress>,
    state: VciPhase,
    /// Poll tick of its worker at the last check.
    seen: u64,
    /// Number of checks in a row that found nothing.
    idle_checks: u32,
    rest: RestPeriod,
}

enum VciPhase {
    /// Nothing is pending. Sleeps until called, or until this time.
    Sleeps(Option<Instant>),
    /// Nothing is pending, but was a moment ago. Rests until urgent work is left, or until this time.
    RestsIdle(Instant),
    /// Rests between two checks. Holds the idle pollers that may wake it before, and true if one has.
    Rests { until: Instant, idle_pollers: Option<Arc<IdlePollers>>, is_woken: bool },
    /// Sleeps on the rails since this time; true if they have woken it.
    OnRails { progress: Arc<Progress>, since: Instant, is_woken: bool },
    /// Due again as soon as the other VCIs have been checked.
    Due,
}

impl VciState {
    fn new(progress: Weak<Progress>) -> Self {
        Self {
            progress,
            state: VciPhase::Sleeps(None),
            seen: 0,
            idle_checks: 0,
            rest: RestPeriod::new(),
        }
    }

    fn is_needed(&self) -> bool {
        self.progress.strong_count() > 0
    }

    /// Returns the time at which it is due if it is not called before.
    fn due_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            VciPhase::Sleeps(until) => *until,
            VciPhase::RestsIdle(until) => Some(*until),
            VciPhase::Rests { is_woken: true, .. } | VciPhase::OnRails { is_woken: true, .. } => {
                Some(now)
            }
            VciPhase::Rests { until, .. } => Some(*until),
            VciPhase::OnRails { since, .. } => Some(*since + MAX_SLEEP),
            VciPhase::Due => Some(now),
        }
    }

    /// Checks the VCI if it is due.
    fn check_if_due(&mut self, is_shared: bool) {
        let Some(progress) = self.progress.upgrade() else { return };
        let now = Instant::now();
        let is_due = self.due_at(now).is_some_and(|due| due <= now);
        let cause = match &self.state {
            VciPhase::Sleeps(_) if is_due || progress.thread_handle.is_called() => {
                self.wake(&progress)
            }
            VciPhase::RestsIdle(_) if is_due || progress.thread_handle.is_called() => {
                progress.thread_handle.begin_work();
                CheckCause::Due
            }
            VciPhase::Rests { is_woken: true, .. } => CheckCause::Woken,
            VciPhase::OnRails { since, .. } if is_due => CheckCause::Slept(now - *since),
            VciPhase::Rests { .. } | VciPhase::Due if is_due => CheckCause::Due,
            VciPhase::Sleeps(_)
            | VciPhase::RestsIdle(_)
            | VciPhase::Rests { .. }
            | VciPhase::OnRails { .. }
            | VciPhase::Due => return,
        };
        let result = progress.run_check(&mut self.seen, cause, &mut self.rest, is_shared);
        self.idle_checks = match result {
            CheckResult::Idle => self.idle_checks + 1,
            CheckResult::Moved | CheckResult::Sleeps => self.idle_checks,
            CheckResult::Coalesced
            | CheckResult::Polled(_)
            | CheckResult::Locked
            | CheckResult::Watched => 0,
        };
        self.state = match result {
            CheckResult::Coalesced => VciPhase::rest(COALESCED, None),
            CheckResult::Idle if self.idle_checks < IDLE_CHECKS => {
                VciPhase::RestsIdle(Instant::now() + AWAY)
            }
            CheckResult::Polled(period) => VciPhase::rest(period, Some(&progress.idle_pollers)),
            CheckResult::Locked => VciPhase::rest(self.rest.period, Some(&progress.idle_pollers)),
            CheckResult::Moved => VciPhase::Due,
            CheckResult::Sleeps => {
                VciPhase::OnRails { progress, since: Instant::now(), is_woken: false }
            }
            CheckResult::Idle | CheckResult::Watched => self.sleep(&progress),
        };
    }

    /// Ends a sleep while nothing was pending.
    fn wake(&mut self, progress: &Progress) -> CheckCause {
        let is_called = progress.thread_handle.begin_work();
        if is_called {
            progress.start_idle_pollers();
        }
        // A thread that nobody has called sleeps again after one check.
        self.idle_checks = if is_called { 0 } else { IDLE_CHECKS - 1 };
        if is_called { CheckCause::Due } else { CheckCause::Lapsed }
    }

    /// Begins a sleep until called, unless something was left pending meanwhile.
    fn sleep(&mut self, progress: &Progress) -> VciPhase {
        let attention = &progress.thread_handle.attention;
        attention.store(ASLEEP, Ordering::Release);
        // A call that left something pending before the store has not woken the thread.
        let (is_unattended, watch) = progress.is_unattended();
        if is_unattended && !progress.thread_handle.begin_work() {
            self.idle_checks = 0;
            return VciPhase::Due;
        }
        VciPhase::Sleeps(Some(Instant::now() + watch.unwrap_or(IDLE).min(IDLE)))
    }

    /// Returns the VCI whose rails wake the thread.
    fn on_rails(&self) -> Option<&Progress> {
        match &self.state {
            VciPhase::OnRails { progress, .. } => Some(progress),
            VciPhase::Sleeps(_)
            | VciPhase::RestsIdle(_)
            | VciPhase::Rests { .. }
            | VciPhase::Due => None,
        }
    }

    /// Prepares for the thread's sleep.
    fn allow_wakeup(&self) {
        if let VciPhase::Rests { idle_pollers: Some(idle_pollers), .. } = &self.state {
            idle_pollers.thread_rest.open();
        }
    }

    /// Evaluates the thread's sleep. `events` are those of this VCI, if the thread slept on them; true if
    /// signaled.
    fn note_wakeup(&mut self, events: &[bool]) {
        match &mut self.state {
            VciPhase::Rests { idle_pollers: Some(idle_pollers), is_woken, .. } => {
                *is_woken = idle_pollers.thread_rest.close();
            }
            VciPhase::OnRails { progress, is_woken, .. } => {
                *is_woken = events.contains(&true);
                progress.clear_events(events);
            }
            VciPhase::Sleeps(_)
            | VciPhase::RestsIdle(_)
            | VciPhase::Rests { .. }
            | VciPhase::Due => {}
        }
    }
}

impl VciPhase {
    /// Creates a rest of this length, which the idle pollers may end if that has paid lately.
    fn rest(period: Duration, idle_pollers: Option<&Arc<IdlePollers>>) -> Self {
        let idle_pollers = idle_pollers.filter(|idle_pollers| idle_pollers.may_ring()).cloned();
        Self::Rests { until: Instant::now() + period, idle_pollers, is_woken: false }
    }
}

/// Starts the progress thread. It inherits a mask that blocks all signals, which are for the application's threads.
fn spawn(progress_thread: Arc<ProgressThread>) -> Option<Mutex<Option<JoinHandle<()>>>> {
    let builder = thread::Builder::new().name("canele-progress".into());
    let builder = builder.stack_size(STACK_BYTES);
    let spawned = cpu::without_signals(|| builder.spawn(move || progress_thread.run()));
    Some(Mutex::new(Some(spawned.ok()?)))
}

/// True if the calling thread is the progress thread.
pub(crate) fn is_this_thread() -> bool {
    IS_THIS_THREAD.get()
}

thread_local! {
    static IS_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The thread sleeps until called.
const ASLEEP: u8 = 0;
/// Nothing is pending, and the thread rests for [`AWAY`]: too long for urgent work. Set under the worker's lock.
const RESTS_IDLE: u8 = 1;
/// The thread was called, or serves the VCI.
const AWAKE: u8 = 2;

/// Longest time that coalesced messages wait, apart from the kernel's timer slack.
pub(crate) const COALESCED: Duration = Duration::from_micros(50);

/// Time that due threads wait for a check if nobody polled at the last one…
const DEFERRED: Duration = Duration::from_micros(100);
/// …and at most.
const DEFERRED_MAX: Duration = Duration::from_micros(400);

/// Number of checks in a row that are skipped.
const PASSES_MAX: u32 = 3;

/// Time between polls while nothing is pending: about 20 µs of processor time each.
const IDLE: Duration = Duration::from_millis(250);

/// Number of checks that find nothing before the thread sleeps until called.
pub(crate) const IDLE_CHECKS: u32 = 10;

/// Stack size: reduction functions of the application may run on it.
const STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_while_others_poll_and_looks_are_not_given_up_for_ever() {
        let mut rest = RestPeriod::new();
        assert!(!rest.passes(), "nobody is known to wait");
        assert_eq!(rest.lengthen(), DEFERRED);
        assert_eq!(rest.lengthen(), 2 * DEFERRED);
        (0..9).for_each(|_| assert!(rest.lengthen() <= DEFERRED_MAX));
        assert_eq!(rest.lengthen(), DEFERRED_MAX);
        assert_eq!((0..100).take_while(|_| rest.passes()).count(), PASSES_MAX as usize);
        rest.shorten();
        assert!(!rest.passes());
        assert_eq!(rest.lengthen(), DEFERRED);
    }
}
