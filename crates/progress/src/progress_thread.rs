//! The thread that makes progress while the application stays away.
//!
//! An application that computes leaves behind what it has begun: requests that wait for a peer's word,
//! bytes a full socket did not take, short messages that wait for company. This thread brings them to
//! their end, in all communications of its process. It is called when a call leaves something behind, looks now and then
//! whether somebody else polls, and sleeps in the kernel on all rails once nobody does. While nothing is left behind it
//! sleeps for good; a process that only makes blocking calls never has it.

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

/// The thread of a process.
#[derive(Debug)]
pub(crate) struct ProgressThread {
    /// Wakes it, wherever it sleeps.
    pub bell: Arc<OwnedFd>,
    /// Whether there is one, once it was needed: the system may give none.
    is_there: OnceLock<bool>,
    /// Communications that it does not know of yet.
    comers: Mutex<Vec<Weak<Progress>>>,
}

/// What a communication calls it by.
#[derive(Debug)]
pub(crate) struct Summons {
    pub progress_thread: Arc<ProgressThread>,
    /// It looks after things, or was called to.
    awake: AtomicBool,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Short messages had been coalesced, and are sent.
    Coalesced,
    /// Somebody else polls: to rest for so long.
    Covered(Duration),
    /// Another thread holds the worker.
    Passed,
    /// Somebody else sleeps until a rail rings.
    Relieved,
    /// Nothing is left behind.
    Idle,
    /// Something has moved, and more may; others are to be looked at before.
    Moved,
    /// The rails ring for the progress thread, until it has looked again.
    Guards,
}

/// What a look follows on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A rest, or a call.
    Due,
    /// A ring of who looks on: something has come that nobody takes in.
    Rung,
    /// So long a sleep on the rails.
    Slept(Duration),
}

/// How long the progress thread rests while threads wait for the one that polls. Each look takes more of theirs
/// than a change of threads, so rests grow while somebody polls, and begin anew when nobody did.
#[derive(Debug)]
pub(crate) struct Rest {
    period: Duration,
    /// Looks in a row that may be given up.
    passes: u32,
}

impl Rest {
    pub fn new() -> Self {
        Self { period: DEFERRED, passes: 0 }
    }

    /// Nobody polled, or no thread waits.
    pub fn shorten(&mut self) {
        *self = Self::new();
    }

    /// Somebody polls for threads that wait; how long to rest.
    pub fn lengthen(&mut self) -> Duration {
        self.passes = PASSES_MAX;
        let longer = (2 * self.period).min(DEFERRED_MAX);
        std::mem::replace(&mut self.period, longer)
    }

    /// Whether this look may be given up, where another thread holds the worker.
    pub fn passes(&mut self) -> bool {
        let passes = self.passes > 0;
        self.passes = self.passes.saturating_sub(1);
        passes
    }
}

impl ProgressThread {
    /// Of a process that has no such thread yet.
    ///
    /// # Errors
    /// When the kernel gives no event descriptor.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let (is_there, comers) = (OnceLock::new(), Mutex::default());
        Ok(Arc::new(Self { bell: Arc::new(event::new()?), is_there, comers }))
    }

    /// It is to look after this one as well, if it is called.
    pub fn watch(self: &Arc<Self>, progress: Weak<Progress>) -> Summons {
        self.comers.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        Summons { progress_thread: Arc::clone(self), awake: AtomicBool::new(false) }
    }

    fn comers(&self) -> Vec<Weak<Progress>> {
        std::mem::take(&mut *self.comers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks after all communications of the process, until they are gone.
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

    /// Sleeps until a communication is to be looked at, or one may have called.
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
            event::silence(&self.bell);
        }
        let mut of_guarded = rung[1..].chunks(Progress::BELLS);
        for post in posts {
            let bells = post.guarded().and_then(|_| of_guarded.next()).unwrap_or_default();
            post.hear(bells);
        }
    }
}

impl Summons {
    /// Whether it was called, or is at it.
    fn is_made(&self) -> bool {
        self.awake.load(Ordering::Relaxed)
    }

    /// Calls the thread; false when there is none. The caller holds the core.
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
            event::ring(&self.progress_thread.bell);
        }
        true
    }
}

impl Drop for Summons {
    fn drop(&mut self) {
        event::ring(&self.progress_thread.bell);
    }
}

/// The thread's part in one communication.
struct Post {
    progress: Weak<Progress>,
    state: State,
    /// The turn of its core at the last look.
    seen: u64,
    /// Looks in a row that found nothing.
    idle: u32,
    rest: Rest,
}

enum State {
    /// Nothing is left behind: until it is called or, where a thread goes before others, until then.
    Sleeps(Option<Instant>),
    /// Between two looks; who may ring before the next is due, and whether they have.
    Rests { until: Instant, idle_pollers: Option<Arc<Idle>>, is_rung: bool },
    /// On the rails, since when, and whether they have rung.
    Guards { progress: Arc<Progress>, since: Instant, is_rung: bool },
    /// It is to be looked at again as soon as the others have been.
    Due,
}

impl Post {
    fn new(progress: Weak<Progress>) -> Self {
        Self { progress, state: State::Sleeps(None), seen: 0, idle: 0, rest: Rest::new() }
    }

    fn is_needed(&self) -> bool {
        self.progress.strong_count() > 0
    }

    /// When it is due, if it is not called before.
    fn due_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Sleeps(until) => *until,
            State::Rests { is_rung: true, .. } | State::Guards { is_rung: true, .. } => Some(now),
            State::Rests { until, .. } => Some(*until),
            State::Guards { since, .. } => Some(*since + MAX_SLEEP),
            State::Due => Some(now),
        }
    }

    /// Looks, if that is due.
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

    /// Ends a sleep for good.
    fn wake(&mut self, progress: &Progress) -> Cause {
        let is_called = progress.summons.awake.swap(true, Ordering::AcqRel);
        if is_called {
            progress.have_looked_on();
        }
        // Who only looks after threads that go before others sleeps on once it has.
        self.idle = if is_called { 0 } else { IDLE_LOOKS - 1 };
        Cause::Due
    }

    /// Begins one, unless something was left behind meanwhile.
    fn sleep(&mut self, progress: &Progress) -> State {
        let awake = &progress.summons.awake;
        awake.store(false, Ordering::Release);
        // What was left behind before the store has called nobody.
        let (is_deserted, watch) = progress.is_deserted();
        if is_deserted && !awake.swap(true, Ordering::AcqRel) {
            self.idle = 0;
            return State::Due;
        }
        State::Sleeps(watch.map(|period| Instant::now() + period))
    }

    /// The communication whose rails ring for the thread.
    fn guarded(&self) -> Option<&Progress> {
        match &self.state {
            State::Guards { progress, .. } => Some(progress),
            State::Sleeps(_) | State::Rests { .. } | State::Due => None,
        }
    }

    /// The thread is about to sleep.
    fn listen(&self) {
        if let State::Rests { idle_pollers: Some(idle_pollers), .. } = &self.state {
            idle_pollers.away.open();
        }
    }

    /// It has slept; the bells of the communication that have rung, if it slept on them.
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
    /// A rest of so long, or until those who look on ring, where they may.
    fn rest(period: Duration, idle_pollers: Option<&Arc<Idle>>) -> Self {
        let idle_pollers = idle_pollers.filter(|idle_pollers| idle_pollers.may_ring()).cloned();
        Self::Rests { until: Instant::now() + period, idle_pollers, is_rung: false }
    }
}

/// Signals are for the application's threads: the new one inherits that all are blocked.
fn spawn(progress_thread: Arc<ProgressThread>) -> Option<()> {
    let builder = thread::Builder::new().name("canele-progress".into());
    let builder = builder.stack_size(STACK_BYTES);
    let spawned = driver::without_signals(|| builder.spawn(move || progress_thread.stand_by()));
    spawned.ok().map(drop)
}

/// Whether the calling thread is the progress thread.
pub(crate) fn is_this_thread() -> bool {
    IS_THIS_THREAD.get()
}

thread_local! {
    static IS_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Coalesced messages wait so long at most, and the kernel's timer slack.
pub(crate) const COALESCED: Duration = Duration::from_micros(50);

/// Threads that are due wait so long for a look, when nobody polled at the last one…
const DEFERRED: Duration = Duration::from_micros(100);
/// …and at most.
const DEFERRED_MAX: Duration = Duration::from_micros(400);

/// So many looks in a row are given up.
const PASSES_MAX: u32 = 3;

/// Looks that find nothing before the thread sleeps for good.
pub(crate) const IDLE_LOOKS: u32 = 10;

/// Reduction functions of the application may run on it.
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
