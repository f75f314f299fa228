//! A thread that sleeps until another wakes it.
//!
//! It sleeps on a pipe, not on a futex. The kernel assumes that a writer to a pipe is about to sleep, and lets the
//! reader have its core if no other is idle. A thread woken by a futex may get the core on which a neighbor polls,
//! while its own core stays idle.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::idle_poller::Sign;
use crate::locality::core_here;

/// A thread that waits for others.
#[derive(Debug)]
pub(crate) struct Sleeper {
    nap: Nap<AtomicU8>,
    thread: Thread,
    id: Pid,
    /// Core on which it was when it last went to sleep. Guarded by the lock of its worker.
    core: AtomicU32,
    /// Its affinity while it is moved to one core. Guarded by the lock of its worker.
    allowed: Mutex<Option<CpuSet>>,
    /// Pipe that wakes it. If the process has no file descriptors left, there is none, and the thread parks.
    pipe: Option<(OwnedFd, OwnedFd)>,
}

/// State of a thread: awake, asleep, or woken. The waker signals it only if it sleeps, and then once.
#[derive(Debug)]
pub(crate) struct Nap<S>(S);

/// Result of one sleep in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Call,
    Nothing,
    TimeIsOver,
}

impl Sleeper {
    fn new() -> Self {
        let pipe = pipe_with(PipeFlags::CLOEXEC).ok();
        let (thread, id) = (thread::current(), gettid());
        Self {
            nap: Nap::new(),
            thread,
            id,
            core: AtomicU32::new(0),
            allowed: Mutex::new(None),
            pipe,
        }
    }

    /// Returns the calling thread, which is about to sleep.
    pub fn of_this_thread() -> Arc<Self> {
        thread_local! {
            static SLEEPER: Arc<Sleeper> = Arc::new(Sleeper::new());
        }
        let sleeper = SLEEPER.with(Arc::clone);
        sleeper.nap.begin();
        sleeper.core.store(core_here() as u32, Ordering::Relaxed);
        sleeper
    }

    /// Returns the core on which it went to sleep.
    pub fn core(&self) -> u32 {
        self.core.load(Ordering::Relaxed)
    }

    /// Makes it continue on another core, if its affinity permits. Otherwise the kernel would wake it where it went
    /// to sleep, while it counts it among the threads that run there.
    pub fn move_to(&self, core: u32) -> rustix::io::Result<()> {
        let allowed = sched_getaffinity(Some(self.id))?;
        if allowed.is_set(core as usize) {
            let mut only = CpuSet::new();
            only.set(core as usize);
            sched_setaffinity(Some(self.id), &only)?;
            *self.lock_allowed() = Some(allowed);
        }
        Ok(())
    }

    /// Restores the affinity that it had before it was moved. Called by the thread itself when it is awake.
    pub fn be_free(&self) {
        if let Some(allowed) = self.lock_allowed().take() {
            // The old affinity was permitted before.
            let _ = sched_setaffinity(None, &allowed);
        }
    }

    fn lock_allowed(&self) -> MutexGuard<'_, Option<CpuSet>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes it. Called once after the thread has announced its sleep.
    pub fn wake(&self) {
        if !self.nap.end() {
            return;
        }
        match &self.pipe {
            // The pipe is empty, so the write does not block.
            Some((_, calls)) => drop(rustix::io::write(calls, &[0])),
            None => self.thread.unpark(),
        }
    }

    /// Waits until it is woken or time is over, first spinning for at most `spin`. True if it was woken.
    pub fn sleep(&self, spin: Duration, deadline: Option<Instant>) -> bool {
        if !spin.is_zero() {
            let begin = Instant::now();
            let mut looks = 0u32;
            while !looks.is_multiple_of(LOOKS_PER_CLOCK) || begin.elapsed() < spin {
                if self.nap.has_ended() {
                    return true;
                }
                looks += 1;
                std::hint::spin_loop();
            }
        }
        self.nap.sleep(|is_timed| self.listen(deadline.filter(|_| is_timed)))
    }

    fn listen(&self, deadline: Option<Instant>) -> Heard {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Heard::TimeIsOver;
        }
        let Some((calls, _)) = &self.pipe else {
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            return if self.nap.has_ended() { Heard::Call } else { Heard::Nothing };
        };
        if let Some(left) = left {
            let timeout = rustix::time::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut readable = [PollFd::new(calls, PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut readable, Some(&timeout)), Ok(1)) {
                return Heard::Nothing;
            }
        }
        // A signal ends the call as well.
        match rustix::io::read(calls, &mut [0; 1]) {
            Ok(1) => Heard::Call,
            _ => Heard::Nothing,
        }
    }
}

impl<S: Sign> Nap<S> {
    /// Creates the state of an awake thread.
    pub fn new() -> Self {
        Self(S::new(AWAKE))
    }

    /// Records that the thread is about to sleep.
    pub fn begin(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Records that the thread need not sleep any more. True if it has to be signaled.
    pub fn end(&self) -> bool {
        self.0.swap(WOKEN, Ordering::AcqRel) == ASLEEP
    }

    /// True if it need not sleep any more.
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == WOKEN
    }

    /// Sleeps until `listen` has received the signal. Its argument tells if its time may end. True if the thread
    /// was woken.
    pub fn sleep(&self, mut listen: impl FnMut(bool) -> Heard) -> bool {
        if !self.0.exchange(AWAKE, ASLEEP) {
            return true;
        }
        let mut is_timed = true;
        loop {
            match listen(is_timed) {
                Heard::Call => return true,
                Heard::Nothing => {}
                Heard::TimeIsOver if self.0.exchange(ASLEEP, AWAKE) => return false,
                // The signal is on its way and is received here, so that none is left for the next sleep.
                Heard::TimeIsOver => is_timed = false,
            }
        }
    }
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

/// Number of looks per clock reading.
const LOOKS_PER_CLOCK: u32 = 64;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn ways() -> [fn() -> Sleeper; 2] {
        [Sleeper::new, || Sleeper { pipe: None, ..Sleeper::new() }]
    }

    fn later(wait: Duration) -> Option<Instant> {
        Some(Instant::now() + wait)
    }

    #[test]
    fn two_threads_wake_each_other() {
        for way in ways() {
            let (one, other) = (mpsc::channel(), mpsc::channel());
            let second = thread::spawn(move || take_turns(way, &one.0, &other.1, false));
            take_turns(way, &other.0, &one.1, true);
            second.join().expect("it has ended well");
        }
    }

    type Told = mpsc::Sender<Arc<Sleeper>>;

    fn take_turns(
        way: fn() -> Sleeper,
        tell: &Told,
        told: &mpsc::Receiver<Arc<Sleeper>>,
        begins: bool,
    ) {
        let me = Arc::new(way());
        tell.send(Arc::clone(&me)).expect("the other listens");
        let other = told.recv().expect("the other has told");
        for turn in 0..4000 {
            if turn > 0 || !begins {
                let spin = Duration::from_micros(turn % 3 * 5);
                let deadline = if turn % 2 == 0 { later(WATCHDOG) } else { None };
                assert!(me.sleep(spin, deadline), "turn {turn}");
                me.nap.begin();
            }
            other.wake();
        }
    }

    #[test]
    fn time_ends_and_leaves_nothing() {
        for way in ways() {
            let sleeper = way();
            for _ in 0..3 {
                assert!(!sleeper.sleep(Duration::ZERO, later(Duration::from_millis(1))));
            }
            sleeper.wake();
            assert!(sleeper.sleep(Duration::ZERO, None));
            sleeper.nap.begin();
            assert!(!sleeper.sleep(Duration::ZERO, later(Duration::from_millis(1))));
        }
    }

    #[test]
    fn who_is_moved_wakes_there_and_is_free_again() {
        let allowed = sched_getaffinity(None).expect("this thread's");
        let cores: Vec<u32> =
            (0..CpuSet::MAX_CPU as u32).filter(|core| allowed.is_set(*core as usize)).collect();
        for core in cores {
            let (tell, told) = mpsc::channel();
            let sleeper = thread::spawn(move || {
                let me = Sleeper::of_this_thread();
                tell.send(Arc::clone(&me)).expect("the test listens");
                assert!(me.sleep(Duration::ZERO, later(WATCHDOG)));
                let woken_on = core_here() as u32;
                me.be_free();
                (woken_on, sched_getaffinity(None).expect("this thread's"))
            });
            let asleep = told.recv().expect("it has told");
            asleep.move_to(core).expect("a thread of this process");
            asleep.wake();
            assert_eq!(sleeper.join().expect("it has ended well"), (core, allowed));
        }
    }

    #[test]
    fn who_is_bound_is_not_moved_elsewhere() {
        thread::spawn(|| {
            let me = Sleeper::of_this_thread();
            let mut only = CpuSet::new();
            only.set(me.core() as usize);
            sched_setaffinity(None, &only).expect("where it is");
            me.move_to(me.core() + 1).expect("nothing to do");
            assert_eq!(sched_getaffinity(None).expect("this thread's"), only);
            me.be_free();
            assert_eq!(sched_getaffinity(None).expect("this thread's"), only);
        })
        .join()
        .expect("it has ended well");
    }

    #[test]
    fn who_is_awake_is_not_called() {
        let sleeper = Sleeper::new();
        // More bytes than a pipe holds.
        for _ in 0..100_000 {
            sleeper.nap.begin();
            sleeper.wake();
            assert!(sleeper.sleep(WATCHDOG, None));
        }
    }

    const WATCHDOG: Duration = Duration::from_secs(60);
}

#[cfg(test)]
mod model;
