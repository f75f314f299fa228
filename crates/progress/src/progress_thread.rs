//! The thread that makes progress while the application computes.
//!
//! A computing application leaves operations pending: requests that need a peer's answer, bytes that a full socket
//! did not take, short messages that wait to be coalesced. The progress thread completes them in all communications
//! of its process. A call that leaves something pending wakes it. It then looks from time to time if another thread
//! polls, and sleeps in the kernel on all rails if none does. While nothing is pending it sleeps without a time
//! limit. A process that only makes blocking calls never starts it.

#[cfg(test)]
mod model;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::event;
use crate::idle_poller::Idle;
use crate::wait::{MAX_SLEEP, Progress};

/// The progress thread of a process.
#[derive(Debug)]
pub(crate) struct ProgressThread {
    /// Eventfd that wakes it, wherever it sleeps.
    pub bell: Arc<OwnedFd>,
    /// True if the thread runs, known once it was needed: the system may have given none.
    is_there: OnceLock<bool>,
    /// Communications that the thread has not taken up yet.
    comers: Mutex<Vec<Weak<Progress>>>,
}

/// A communication's handle to the progress thread.
#[derive(Debug)]
pub(crate) struct Summons {
    pub progress_thread: Arc<ProgressThread>,
    /// True while the thread serves this communication, or was called to.
    awake: AtomicBool,
}

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Coalesced short messages were sent.
    Coalesced,
    /// Another thread polls; rest for this time.
    Covered(Duration),
    /// Another thread holds the worker's lock.
    Passed,
    /// Another thread sleeps until a rail wakes it.
    Relieved,
    /// Nothing is pending.
    Idle,
    /// Something has advanced and more may; other communications are looked at first.
    Moved,
    /// The rails wake the progress thread, until it has looked again.
    Guards,
}

/// Reason for a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The end of a rest, or a call.
    Due,
    /// A wake-up by an idle poller: an event has arrived that no thread handles.
    Rung,
    /// The end of a sleep on the rails of this length.
    Slept(Duration),
}

/// Rest times of the progress thread while threads wait for the polling one. Each look costs them more time than a
/// thread switch, so rests grow while another thread polls, and start anew when none did.
#[derive(Debug)]
pub(crate) struct Rest {
    period: Duration,
    /// Number of looks in a row that may be skipped.
    passes: u32,
}

impl Rest {
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

    /// True if this look may be skipped because another thread holds the worker's lock.
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
        let (is_there, comers) = (OnceLock::new(), Mutex::default());
        Ok(Arc::new(Self { bell: Arc::new(event::new()?), is_there, comers }))
    }

    /// Adds a communication, which the thread serves once it is called.
    pub fn watch(self: &Arc<Self>, progress: Weak<Progress>) -> Summons {
        self.comers.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        Summons { progress_thread: Arc::clone(self), awake: AtomicBool::new(false) }
    }

    fn comers(&self) -> Vec<Weak<Progress>> {
        std::mem::take(&mut *self.comers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves all communications of the process until they are gone.
    fn stand_by(&self) {
        IS_THIS_THREAD.set(true);
        let mut posts = Vec::new();
        loop {
            posts.extend(self.comers().into_iter().map(Post::new));
            posts.retain(Post::is_needed);
            if posts.is_empty() {
                return;
            }
            let is_shared = posts.len() > 1;
            posts.iter_mut().for_each(|post| post.look_if_due(is_shared));
            self.sleep(&mut posts);
        }
    }

    /// Sleeps until a communication is due, or may have called.
    fn sleep(&self, posts: &mut [Post]) {
        let now = Instant::now();
        let due = posts.iter().filter_map(|post| post.due_at(now)).min();
        let limit = due.map(|due| due.saturating_duration_since(now));
        if limit.is_some_and(|limit| limit.is_zero()) {
            return;
        }
        posts.iter().for_each(Post::listen);
        let mut bells = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        let guarded = posts.iter().filter_map(Post::guarded).flat_map(Progress::bells);
        bells.extend(guarded.map(|bell| PollFd::new(bell, PollFlags::IN)));
        event::wait(&mut bells, limit);
        let rung: Vec<bool> = bells.iter().map(|bell| !bell.revents().is_empty()).collect();
        if rung[0] {
            event::clear(&self.bell);
        }
        let mut of_guarded = rung[1..].chunks(Progress::BELLS);
        for post in posts {
            let bells = post.guarded().and_then(|_| of_guarded.next()).unwrap_or_default();
            post.hear(bells);
        }
    }
}

impl Summons {
    /// True if the thread was called, or is at work.
    fn is_made(&self) -> bool {
        self.awake.load(Ordering::Relaxed)
    }

    /// Wakes the thread; false if there is none. The caller holds the worker's lock.
    #[inline]
    pub fn call(&self) -> bool {
        if self.awake.load(Ordering::Relaxed) {
            return true;
        }
        self.wake()
    }

    #[cold]
    fn wake(&self) -> bool {
        if !*self
            .progress_thread
            .is_there
            .get_or_init(|| spawn(Arc::clone(&self.progress_thread)).is_some())
        {
            return false;
        }
        if !self.awake.swap(true, Ordering::AcqRel) {
            event::signal(&self.progress_thread.bell);
        }
        true
    }
}

impl Drop for Summons {
    fn drop(&mut self) {
        event::signal(&self.progress_thread.bell);
    }
}

/// State of the thread for one communication.
struct Post {
    progress: Weak<Progress>,
    state: State,
    /// Poll tick of its worker at the last look.
    seen: u64,
    /// Number of looks in a row that found nothing.
    idle: u32,
    rest: Rest,
}

enum State {
    /// Nothing is pending. Sleeps until called or, while threads have a higher priority, until this time.
    Sleeps(Option<Instant>),
    /// Rests between two looks. Holds the idle pollers that may wake it before, and true if one has.
    Rests { until: Instant, idle_pollers: Option<Arc<Idle>>, is_rung: bool },
    /// Sleeps on the rails since this time; true if they have woken it.
    Guards { progress: Arc<Progress>, since: Instant, is_rung: bool },
    /// Due again as soon as the other communications have been looked at.
    Due,
}

impl Post {
    fn new(progress: Weak<Progress>) -> Self {
        Self { progress, state: State::Sleeps(None), seen: 0, idle: 0, rest: Rest::new() }
    }

    fn is_needed(&self) -> bool {
        self.progress.strong_count() > 0
    }

    /// Returns the time at which it is due if it is not called before.
    fn due_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Sleeps(until) => *until,
            State::Rests { is_rung: true, .. } | State::Guards { is_rung: true, .. } => Some(now),
            State::Rests { until, .. } => Some(*until),
            State::Guards { since, .. } => Some(*since + MAX_SLEEP),
            State::Due => Some(now),
        }
    }

    /// Looks if it is due.
    fn look_if_due(&mut self, is_shared: bool) {
        let Some(progress) = self.progress.upgrade() else { return };
        let now = Instant::now();
        let is_due = self.due_at(now).is_some_and(|due| due <= now);
        let cause = match &self.state {
            State::Sleeps(_) if is_due || progress.summons.is_made() => self.wake(&progress),
            State::Rests { is_rung: true, .. } => Cause::Rung,
            State::Guards { since, .. } if is_due => Cause::Slept(now - *since),
            State::Rests { .. } | State::Due if is_due => Cause::Due,
            State::Sleeps(_) | State::Rests { .. } | State::Guards { .. } | State::Due => return,
        };
        let look = progress.stand_in(&mut self.seen, cause, &mut self.rest, is_shared);
        self.idle = match look {
            Look::Idle => self.idle + 1,
            Look::Moved | Look::Guards => self.idle,
            Look::Coalesced | Look::Covered(_) | Look::Passed | Look::Relieved => 0,
        };
        self.state = match look {
            Look::Coalesced => State::rest(COALESCED, None),
            Look::Idle if self.idle < IDLE_LOOKS => State::rest(COALESCED, None),
            Look::Covered(period) => State::rest(period, Some(&progress.idle)),
            Look::Passed => State::rest(self.rest.period, Some(&progress.idle)),
            Look::Moved => State::Due,
            Look::Guards => State::Guards { progress, since: Instant::now(), is_rung: false },
            Look::Idle | Look::Relieved => self.sleep(&progress),
        };
    }

    /// Ends a sleep without a time limit.
    fn wake(&mut self, progress: &Progress) -> Cause {
        let is_called = progress.summons.awake.swap(true, Ordering::AcqRel);
        if is_called {
            progress.have_looked_on();
        }
        // A thread that only checks priorities sleeps again after one look.
        self.idle = if is_called { 0 } else { IDLE_LOOKS - 1 };
        Cause::Due
    }

    /// Begins a sleep without a time limit, unless something was left pending meanwhile.
    fn sleep(&mut self, progress: &Progress) -> State {
        let awake = &progress.summons.awake;
        awake.store(false, Ordering::Release);
        // A call that left something pending before the store has not woken the thread.
        let (is_deserted, watch) = progress.is_deserted();
        if is_deserted && !awake.swap(true, Ordering::AcqRel) {
            self.idle = 0;
            return State::Due;
        }
        State::Sleeps(watch.map(|period| Instant::now() + period))
    }

    /// Returns the communication whose rails wake the thread.
    fn guarded(&self) -> Option<&Progress> {
        match &self.state {
            State::Guards { progress, .. } => Some(progress),
            State::Sleeps(_) | State::Rests { .. } | State::Due => None,
        }
    }

    /// Prepares for the thread's sleep.
    fn listen(&self) {
        if let State::Rests { idle_pollers: Some(idle_pollers), .. } = &self.state {
            idle_pollers.away.open();
        }
    }

    /// Evaluates the thread's sleep. `bells` are those of this communication, if the thread slept on them; true if
    /// signaled.
    fn hear(&mut self, bells: &[bool]) {
        match &mut self.state {
            State::Rests { idle_pollers: Some(idle_pollers), is_rung, .. } => {
                *is_rung = idle_pollers.away.close();
            }
            State::Guards { progress, is_rung, .. } => {
                *is_rung = bells.contains(&true);
                progress.silence(bells);
            }
            State::Sleeps(_) | State::Rests { .. } | State::Due => {}
        }
    }
}

impl State {
    /// Creates a rest of this length, which the idle pollers may end if that has paid lately.
    fn rest(period: Duration, idle_pollers: Option<&Arc<Idle>>) -> Self {
        let idle_pollers = idle_pollers.filter(|idle_pollers| idle_pollers.may_ring()).cloned();
        Self::Rests { until: Instant::now() + period, idle_pollers, is_rung: false }
    }
}

/// Starts the progress thread. It inherits a mask that blocks all signals, which are for the application's threads.
fn spawn(progress_thread: Arc<ProgressThread>) -> Option<()> {
    let builder = thread::Builder::new().name("canele-progress".into());
    let builder = builder.stack_size(STACK_BYTES);
    let spawned = driver::without_signals(|| builder.spawn(move || progress_thread.stand_by()));
    spawned.ok().map(drop)
}

/// True if the calling thread is the progress thread.
pub(crate) fn is_this_thread() -> bool {
    IS_THIS_THREAD.get()
}

thread_local! {
    static IS_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Longest time that coalesced messages wait, apart from the kernel's timer slack.
pub(crate) const COALESCED: Duration = Duration::from_micros(50);

/// Time that due threads wait for a look if nobody polled at the last one…
const DEFERRED: Duration = Duration::from_micros(100);
/// …and at most.
const DEFERRED_MAX: Duration = Duration::from_micros(400);

/// Number of looks in a row that are skipped.
const PASSES_MAX: u32 = 3;

/// Number of looks that find nothing before the thread sleeps without a time limit.
pub(crate) const IDLE_LOOKS: u32 = 10;

/// Stack size: reduction functions of the application may run on it.
const STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_while_others_poll_and_looks_are_not_given_up_for_ever() {
        let mut rest = Rest::new();
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
