//! Calls from the application's threads: at once, or waiting.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use engine::Envelope;
use lock::{Guard, Lock};
use memory::Region;
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd};

use wire::GateId;

use crate::core::Core;
use crate::policy::{Courtesy, Next, Patience, Policy};
use crate::standby::{Look, Standby};
use crate::tasks::Task;

/// The communication of one process, shared by its threads.
pub struct Progress {
    core: Lock<Core>,
    /// Threads that sleep until the polling thread reports, and how often it has.
    changed: Condvar,
    reports: Mutex<u64>,
    waiting: AtomicU32,
    /// Whether a waiting thread polls for all; guarded by `core`'s lock.
    polling: AtomicBool,
    /// Whether the polling thread sleeps in the kernel; guarded by `core`'s lock.
    asleep: AtomicBool,
    /// Whether it is for the thread that stands by that the rails ring; guarded by `core`'s lock.
    guarded: AtomicBool,
    /// Becomes readable when any rail rings.
    bells: OwnedFd,
    /// Wakes the polling thread from another one.
    wake: OwnedFd,
    /// Wakes the thread that stands by.
    relief: OwnedFd,
    policy: Policy,
    courtesy: Courtesy,
    pub(crate) standby: Standby,
    myself: Weak<Self>,
}

impl Progress {
    /// Joins `core` with a waiting `policy`.
    ///
    /// # Errors
    /// When the kernel gives no epoll or event descriptor.
    pub fn new(core: Core, policy: Policy) -> std::io::Result<Arc<Self>> {
        let bells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let [wake, relief] = [event()?, event()?];
        let readable = epoll::EventFlags::IN;
        for descriptor in core.descriptors() {
            epoll::add(&bells, descriptor, epoll::EventData::new_u64(1), readable)?;
        }
        Ok(Arc::new_cyclic(|myself| Self {
            core: Lock::new(core),
            changed: Condvar::new(),
            reports: Mutex::new(0),
            waiting: AtomicU32::new(0),
            polling: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            guarded: AtomicBool::new(false),
            bells,
            wake,
            relief,
            policy,
            courtesy: Courtesy::default(),
            standby: Standby::default(),
            myself: Weak::clone(myself),
        }))
    }

    /// Runs a command and sends at once what follows from it.
    #[inline]
    pub fn submit<T>(&self, command: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let before = core.engine.news();
        let result = command(&mut core);
        core.flush();
        self.report(&core, before);
        self.leave(&mut core);
        drop(self.work(core));
        result
    }

    /// Begins a task; it has gone on as far as it can.
    pub fn begin(&self, task: Box<dyn Task>) {
        self.submit(|core| core.add_task(task));
    }

    /// Sends a short message at once, or lays it beside others; see [`Core::send_short`].
    #[inline]
    pub fn send_short(&self, gate: GateId, envelope: Envelope, data: &Region) -> bool {
        let mut core = self.lock();
        let sent = core.send_short(gate, envelope, data);
        if core.has_loose_ends {
            self.hand_over(&mut core);
        }
        sent
    }

    /// Polls once, then asks.
    #[inline]
    pub fn test<T>(&self, question: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let before = core.engine.news();
        core.advance();
        core = self.work(core);
        let answer = question(&mut core);
        core.settle();
        self.report(&core, before);
        self.leave(&mut core);
        drop(self.work(core));
        answer
    }

    /// Looks without polling.
    pub fn look<T>(&self, question: impl FnOnce(&mut Core) -> T) -> T {
        question(&mut self.lock())
    }

    /// Runs `command`, then polls until `ready` answers.
    #[inline]
    pub fn submit_and_wait<T, U>(
        &self,
        command: impl FnOnce(&mut Core) -> U,
        mut ready: impl FnMut(&mut Core, &U) -> Option<T>,
    ) -> T {
        let mut core = self.lock();
        let before = core.engine.news();
        let submitted = command(&mut core);
        core.flush();
        self.report(&core, before);
        self.wait_locked(core, None, |core| ready(core, &submitted))
            .unwrap_or_else(|| unreachable!())
    }

    /// Polls until `ready` answers. What it submits is sent.
    pub fn wait<T>(&self, ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        self.wait_locked(self.lock(), None, ready).unwrap_or_else(|| unreachable!())
    }

    /// Polls until `ready` answers or the time is over.
    pub fn wait_for<T>(
        &self,
        limit: Duration,
        ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        self.wait_locked(self.lock(), Some(Instant::now() + limit), ready)
    }

    /// Lets waiting threads ask again: what they wait for has come, and not through the core.
    pub fn wake(&self) {
        let _core = self.lock();
        self.wake_waiting();
        if self.asleep.load(Ordering::Relaxed) {
            ring(&self.wake);
        }
    }

    /// Gives the core away where ranks are more than cores: for loops of tests that found nothing.
    pub fn pause(&self) {
        if !self.policy.has_a_core() {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn lock(&self) -> Guard<'_, Core> {
        self.core.lock()
    }

    /// Lets tasks compute what they have to, without the core.
    #[inline]
    fn work<'a>(&'a self, core: Guard<'a, Core>) -> Guard<'a, Core> {
        if core.has_loose_ends { self.work_for_tasks(core) } else { core }
    }

    #[cold]
    fn work_for_tasks<'a>(&'a self, mut core: Guard<'a, Core>) -> Guard<'a, Core> {
        while let Some(mut task) = core.take_work() {
            drop(core);
            task.work();
            core = self.lock();
            let before = core.engine.news();
            core.add_task(task);
            self.report(&core, before);
            self.leave(&mut core);
        }
        core
    }

    /// Sees that somebody brings to its end what a call leaves behind.
    #[inline]
    fn leave(&self, core: &mut Core) {
        if core.is_left_behind() {
            self.hand_over(core);
        }
    }

    fn hand_over(&self, core: &mut Core) {
        if !self.standby.call(&self.myself) {
            core.stop_gathering();
        }
        // Who sleeps has not asked the rails for room.
        if core.has_backlog() {
            if self.asleep.load(Ordering::Relaxed) {
                ring(&self.wake);
            } else if self.guarded.load(Ordering::Relaxed) {
                ring(&self.relief);
            }
        }
    }

    /// Tells waiting threads that something completed.
    #[inline]
    fn report(&self, core: &Core, before: u64) {
        if core.engine.news() != before {
            self.wake_waiting();
            if self.asleep.load(Ordering::Relaxed) {
                ring(&self.wake);
            }
        }
    }

    fn wait_locked<'a, T>(
        &'a self,
        mut core: Guard<'a, Core>,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        let mut mine = false;
        let mut attentive = false;
        let mut patience = Patience::new(self.policy);
        loop {
            let before = core.engine.news();
            let answer = ready(&mut core);
            core.settle();
            if answer.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                if attentive {
                    core.set_attentive(false);
                }
                if mine {
                    self.polling.store(false, Ordering::Relaxed);
                    self.wake_waiting();
                } else {
                    self.report(&core, before);
                }
                self.leave(&mut core);
                drop(self.work(core));
                return answer;
            }
            if core.has_work() {
                self.report(&core, before);
                if std::mem::take(&mut mine) {
                    // Others poll meanwhile.
                    self.polling.store(false, Ordering::Relaxed);
                    self.wake_waiting();
                }
                core = self.work(core);
                continue;
            }
            if !mine && self.polling.load(Ordering::Relaxed) {
                core.release_gathered();
                core.flush();
                self.report(&core, before);
                if core.has_backlog() {
                    self.hand_over(&mut core);
                }
                // What has just completed may be what this thread waits for.
                if core.engine.news() == before {
                    core = self.wait_for_others(core, deadline);
                }
                continue;
            }
            mine = true;
            if !attentive && self.policy.has_a_core() && core.engine.has_offers() {
                attentive = true;
                core.set_attentive(true);
            }
            self.polling.store(true, Ordering::Relaxed);
            let moved = core.advance();
            if core.engine.news() != before {
                self.wake_waiting();
            }
            if moved {
                patience.renew();
                continue;
            }
            core = match patience.next(&self.courtesy) {
                Next::Spin => self.breathe(core, std::hint::spin_loop),
                Next::Look | Next::Guess if core.shares_core() => {
                    self.breathe(core, std::thread::yield_now)
                }
                Next::Guess if self.courtesy.pays() => self.guess(core),
                Next::Look | Next::Guess => core,
                Next::Yield => self.breathe(core, std::thread::yield_now),
                // What has just completed may be what this thread waits for.
                Next::Sleep if core.engine.news() != before => core,
                Next::Sleep => self.sleep(core, deadline),
            };
        }
    }

    /// Lets other threads take the lock while this one pauses.
    #[inline]
    fn breathe<'a>(&'a self, core: Guard<'a, Core>, pause: fn()) -> Guard<'a, Core> {
        drop(core);
        pause();
        self.lock()
    }

    /// Yields, and learns whether that paid.
    #[cold]
    fn guess<'a>(&'a self, core: Guard<'a, Core>) -> Guard<'a, Core> {
        let begin = Instant::now();
        let mut core = self.breathe(core, std::thread::yield_now);
        let took = begin.elapsed();
        let before = core.engine.news();
        let news = core.advance();
        self.report(&core, before);
        self.courtesy.learn(took, news);
        core
    }

    /// Sleeps until the polling thread reports. The count of reports is taken while the core is held:
    /// whatever changes afterwards is reported later.
    #[cold]
    fn wait_for_others<'a>(
        &'a self,
        core: Guard<'a, Core>,
        deadline: Option<Instant>,
    ) -> Guard<'a, Core> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let reports = self.reports.lock().unwrap_or_else(|poison| poison.into_inner());
        let seen = *reports;
        drop(core);
        let limit = deadline
            .map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        // Over or not, the caller looks again.
        drop(self.changed.wait_timeout_while(reports, limit, |reports| *reports == seen));
        let core = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Wakes the threads that wait for the polling one.
    #[inline]
    fn wake_waiting(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.tell_waiting();
        }
    }

    #[cold]
    fn tell_waiting(&self) {
        *self.reports.lock().unwrap_or_else(|poison| poison.into_inner()) += 1;
        self.changed.notify_all();
    }

    /// Sleeps in the kernel until a rail rings, another thread completes something, or time is over.
    #[cold]
    fn sleep<'a>(
        &'a self,
        mut core: Guard<'a, Core>,
        deadline: Option<Instant>,
    ) -> Guard<'a, Core> {
        if core.prepare_sleep() {
            self.asleep.store(true, Ordering::Relaxed);
            if self.guarded.swap(false, Ordering::Relaxed) {
                // The rails ring for this thread now, and fall silent after it.
                ring(&self.relief);
            }
            drop(core);
            let limit = deadline.map_or(MAX_SLEEP, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(MAX_SLEEP)
            });
            self.wait_for_bell(&self.wake, limit);
            core = self.lock();
            self.asleep.store(false, Ordering::Relaxed);
        } else if self.guarded.load(Ordering::Relaxed) {
            // The thread that stands by sleeps on: the rails are to ring for it.
            return core;
        }
        core.finish_sleep();
        core
    }

    /// One look of the thread that stands by, after which `seen` is the turn of the core; where nobody
    /// has polled since the last look, it polls, sleeps in the kernel, and goes on until somebody does.
    pub(crate) fn stand_in(&self, seen: &mut u64) -> Look {
        let mut core = self.lock();
        if core.is_gathering() {
            let before = core.engine.news();
            core.release_gathered();
            core.flush();
            self.report(&core, before);
            return Look::Gathered;
        }
        loop {
            core.look_at_backlog();
            if !core.is_left_behind() {
                return Look::Idle;
            }
            if self.asleep.load(Ordering::Relaxed) {
                return Look::Relieved;
            }
            if self.polling.load(Ordering::Relaxed) || core.turn() != *seen {
                *seen = core.turn();
                return Look::Covered;
            }
            let before = core.engine.news();
            let moved = core.advance();
            core = self.work(core);
            *seen = core.turn();
            self.report(&core, before);
            core = if moved { self.breathe(core, std::hint::spin_loop) } else { self.guard(core) };
        }
    }

    /// Whether something is left behind and nobody sleeps until a rail rings.
    pub(crate) fn is_deserted(&self) -> bool {
        let core = self.lock();
        core.is_left_behind() && !self.asleep.load(Ordering::Relaxed)
    }

    /// Sleeps in the kernel until a rail rings.
    fn guard<'a>(&'a self, mut core: Guard<'a, Core>) -> Guard<'a, Core> {
        if core.prepare_sleep() {
            self.guarded.store(true, Ordering::Relaxed);
            drop(core);
            self.wait_for_bell(&self.relief, MAX_SLEEP);
            core = self.lock();
            if !self.guarded.swap(false, Ordering::Relaxed) {
                return core;
            }
        }
        core.finish_sleep();
        core
    }

    /// How long nobody has to poll for the application to be away. Where ranks share cores one that
    /// waits for its turn is not away.
    pub(crate) fn away_after(&self) -> Duration {
        if self.policy.has_a_core() { AWAY } else { CROWDED_AWAY }
    }

    /// Sleeps until a rail rings, `event` comes, or time is over.
    fn wait_for_bell(&self, event: &OwnedFd, limit: Duration) {
        let timeout = rustix::time::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut bells =
            [PollFd::new(&self.bells, PollFlags::IN), PollFd::new(event, PollFlags::IN)];
        // An interruption by a signal only means that we look at the rails earlier.
        let _ = rustix::event::poll(&mut bells, Some(&timeout));
        // It is empty, and does not block, when nobody has woken us by hand.
        let _ = rustix::io::read(event, &mut [0; 8]);
    }
}

fn event() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(event: &OwnedFd) {
    // Fails only when the counter is full, and then the sleeper is awake anyhow.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// A sleeper looks at its rails at least this often, so that no lost bell can stop a job.
const MAX_SLEEP: Duration = Duration::from_millis(500);

/// An application that has left something behind and not polled for so long computes.
const AWAY: Duration = Duration::from_micros(500);
const CROWDED_AWAY: Duration = Duration::from_millis(4);
