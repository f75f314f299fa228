//! A thread that sleeps until another wakes it.
//!
//! It sleeps on a pipe, not on a futex: the kernel takes who writes into a pipe for one that is about to sleep, and lets
//! the reader have its core where no other is idle. Who is woken by a futex may get the core on which a neighbour polls, and
//! leave its own idle.

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
    /// On which core it was when it was last about to sleep; guarded as the core it waits on.
    core: AtomicU32,
    /// Where it may run, while it is moved to a core; guarded as the core it waits on.
    allowed: Mutex<Option<CpuSet>>,
    /// What it is called by. None where the process has no descriptors left: then it parks.
    pipe: Option<(OwnedFd, OwnedFd)>,
}

/// Whether a thread sleeps, or need not any more. Who wakes it calls it only if it sleeps, and then once.
#[derive(Debug)]
pub(crate) struct Nap<S>(S);

/// What a sleeping thread has heard.
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

    /// The calling thread, which is about to sleep.
    pub fn of_this_thread() -> Arc<Self> {
        thread_local! {
            static SLEEPER: Arc<Sleeper> = Arc::new(Sleeper::new());
        }
        let sleeper = SLEEPER.with(Arc::clone);
        sleeper.nap.begin();
        sleeper.core.store(core_here() as u32, Ordering::Relaxed);
        sleeper
    }

    /// On which core it was when it went to sleep.
    pub fn core(&self) -> u32 {
        self.core.load(Ordering::Relaxed)
    }

    /// Has it go on on another core, if it may. The kernel would wake it where it went to sleep, as long as it counts it
    /// among those that run there.
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

    /// It is this thread, and awake: it is as free as before it was moved.
    pub fn be_free(&self) {
        if let Some(allowed) = self.lock_allowed().take() {
            // It was so free before.
            let _ = sched_setaffinity(None, &allowed);
        }
    }

    fn lock_allowed(&self) -> MutexGuard<'_, Option<CpuSet>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes it; once after it has said that it is about to sleep.
    pub fn wake(&self) {
        if !self.nap.end() {
            return;
        }
        match &self.pipe {
            // It has room: it is empty.
            Some((_, calls)) => drop(rustix::io::write(calls, &[0])),
            None => self.thread.unpark(),
        }
    }

    /// Waits until it is woken or time is over, awake for at most as long as `spin`; whether it was woken.
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
    /// Of a thread that is awake.
    pub fn new() -> Self {
        Self(S::new(AWAKE))
    }

    /// The thread is about to sleep.
    pub fn begin(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// The thread need not sleep any more; whether it is to be called.
    pub fn end(&self) -> bool {
        self.0.swap(WOKEN, Ordering::AcqRel) == ASLEEP
    }

    /// Whether it need not sleep any more.
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == WOKEN
    }

    /// Sleeps until `listen`, which is told whether its time may end, has heard the call; whether it was woken.
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
                // The call is on its way: nothing of it may be left for the next time.
                Heard::TimeIsOver => is_timed = false,
            }
        }
    }
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

/// The clock is read once in so many looks.
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
        // More than a pipe takes.
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
