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

use crate::idle_poller::AtomicByte;
use crate::locality::core_here;

/// A thread that waits for others.
#[derive(Debug)]
pub(crate) struct Parker {
    state: ParkState<AtomicU8>,
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
pub(crate) struct ParkState<S>(S);

/// Result of one sleep in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkEvent {
    Wakeup,
    Nothing,
    Timeout,
}

impl Parker {
    fn new() -> Self {
        let pipe = pipe_with(PipeFlags::CLOEXEC).ok();
        let (thread, id) = (thread::current(), gettid());
        Self {
            state: ParkState::new(),
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
            static PARKER: Arc<Parker> = Arc::new(Parker::new());
        }
        let parker = PARKER.with(Arc::clone);
        parker.state.begin();
        parker.core.store(core_here() as u32, Ordering::Relaxed);
        parker
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
    pub fn restore_affinity(&self) {
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
        if !self.state.end() {
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
                if self.state.has_ended() {
                    return true;
                }
                looks += 1;
                std::hint::spin_loop();
            }
        }
        self.state.sleep(|is_timed| self.listen(deadline.filter(|_| is_timed)))
    }

    fn listen(&self, deadline: Option<Instant>) -> ParkEvent {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return ParkEvent::Timeout;
        }
        let Some((calls, _)) = &self.pipe else {
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            return if self.state.has_ended() { ParkEvent::Wakeup } else { ParkEvent::Nothing };
        };
        if let Some(left) = left {
            let timeout = rustix::time::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut readable = [PollFd::new(calls, PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut readable, Some(&timeout)), Ok(1)) {
                return ParkEvent::Nothing;
            }
        }
        // A signal ends the call as well.
        match rustix::io::read(calls, &mut [0; 1]) {
            Ok(1) => ParkEvent::Wakeup,
            _ => ParkEvent::Nothing,
        }
    }
}

impl<S: AtomicByte> ParkState<S> {
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
    pub fn sleep(&self, mut listen: impl FnMut(bool) -> ParkEvent) -> bool {
        if !self.0.exchange(AWAKE, ASLEEP) {
            return true;
        }
        let mut is_timed = true;
        loop {
            match listen(is_timed) {
                ParkEvent::Wakeup => return true,
                ParkEvent::Nothing => {}
                ParkEvent::Timeout if self.0.exchange(ASLEEP, AWAKE) => return false,
                // The signal is on its way and is received here, so that none is left for the next sleep.
                ParkEvent::Timeout => is_timed = false,
            }
        }
    }
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

/// Number of checks per clock reading.
const LOOKS_PER_CLOCK: u32 = 64;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn kinds() -> [fn() -> Parker; 2] {
        [Parker::new, || Parker { pipe: None, ..Parker::new() }]
    }

    fn later(wait: Duration) -> Option<Instant> {
        Some(Instant::now() + wait)
    }

    #[test]
    fn two_threads_wake_each_other() {
        for new in kinds() {
            let (one, other) = (mpsc::channel(), mpsc::channel());
            let second = thread::spawn(move || alternate(new, &one.0, &other.1, false));
            alternate(new, &other.0, &one.1, true);
            second.join().expect("it has ended well");
        }
    }

    type Told = mpsc::Sender<Arc<Parker>>;

    fn alternate(
        new: fn() -> Parker,
        tell: &Told,
        told: &mpsc::Receiver<Arc<Parker>>,
        begins: bool,
    ) {
        let me = Arc::new(new());
        tell.send(Arc::clone(&me)).expect("the other listens");
        let other = told.recv().expect("the other has told");
        for turn in 0..4000 {
            if turn > 0 || !begins {
                let spin = Duration::from_micros(turn % 3 * 5);
                let deadline = if turn % 2 == 0 { later(WATCHDOG) } else { None };
                assert!(me.sleep(spin, deadline), "turn {turn}");
                me.state.begin();
            }
            other.wake();
        }
    }

    #[test]
    fn time_ends_and_leaves_nothing() {
        for new in kinds() {
            let parker = new();
            for _ in 0..3 {
                assert!(!parker.sleep(Duration::ZERO, later(Duration::from_millis(1))));
            }
            parker.wake();
            assert!(parker.sleep(Duration::ZERO, None));
            parker.state.begin();
            assert!(!parker.sleep(Duration::ZERO, later(Duration::from_millis(1))));
        }
    }

    #[test]
    fn a_moved_thread_wakes_there_and_regains_its_affinity() {
        let allowed = sched_getaffinity(None).expect("this thread's");
        let cores: Vec<u32> =
            (0..CpuSet::MAX_CPU as u32).filter(|core| allowed.is_set(*core as usize)).collect();
        for core in cores {
            let (tell, told) = mpsc::channel();
            let parker = thread::spawn(move || {
                let me = Parker::of_this_thread();
                tell.send(Arc::clone(&me)).expect("the test listens");
                assert!(me.sleep(Duration::ZERO, later(WATCHDOG)));
                let woken_on = core_here() as u32;
                me.restore_affinity();
                (woken_on, sched_getaffinity(None).expect("this thread's"))
            });
            let asleep = told.recv().expect("it has told");
            asleep.move_to(core).expect("a thread of this process");
            asleep.wake();
            assert_eq!(parker.join().expect("it has ended well"), (core, allowed));
        }
    }

    #[test]
    fn a_bound_thread_is_not_moved() {
        thread::spawn(|| {
            let me = Parker::of_this_thread();
            let mut only = CpuSet::new();
            only.set(me.core() as usize);
            sched_setaffinity(None, &only).expect("where it is");
            me.move_to(me.core() + 1).expect("nothing to do");
            assert_eq!(sched_getaffinity(None).expect("this thread's"), only);
            me.restore_affinity();
            assert_eq!(sched_getaffinity(None).expect("this thread's"), only);
        })
        .join()
        .expect("it has ended well");
    }

    #[test]
    fn an_awake_thread_is_not_signalled() {
        let parker = Parker::new();
        // More bytes than a pipe holds.
        for _ in 0..100_000 {
            parker.state.begin();
            parker.wake();
            assert!(parker.sleep(WATCHDOG, None));
        }
    }

    const WATCHDOG: Duration = Duration::from_secs(60);
}

#[cfg(test)]
mod loom_model;
