//! Loom model of the hand-over between a waiting thread, the progress thread, and threads that only call, in every
//! order of their steps.
//!
//! The model runs [`PollState`] itself, below simplified loops of `wait` and `progress_thread`: without spinning, other
//! waiters, and time. Nothing wakes by time, so a missing wake-up is a deadlock, which loom finds. With an idle
//! poller, the progress thread sleeps even between two checks until it is woken. A rail is a doorbell that wakes a
//! thread which has prepared to sleep; the rails' own protocol is proved in `rail-shm`. Each protocol also runs with
//! one [`Flaw`], which its model must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;
use testing::preemptions;

use super::{PollState, Wakeup};
use crate::idle_poller::{WakeFlag, impl_atomic_byte};

/// Deliberate fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A sleeping thread is not woken for events.
    EventUnsignalled,
    /// A sleeping thread is not woken for bytes that a rail has no room for.
    BacklogUnsignalled,
    /// The progress thread is not told that the rails wake another thread.
    FormerUnsignalled,
    /// A thread that finds events before it sleeps disarms the rails.
    DisarmsRails,
    /// The progress thread does not check once more before it goes to rest.
    NoLastCheck,
    /// The progress thread does not announce that it rests between two checks.
    FlagClosed,
}

/// A process with a progress thread.
struct ModelProcess {
    flaw: Flaw,
    worker: Mutex<ModelWorker>,
    /// Signaled when a message has ended or bytes have left, for threads that only check that.
    moved: Condvar,
    rail: Mutex<Rail>,
    events: Mutex<Events>,
    signalled: Condvar,
    /// True while the progress thread is at work.
    is_called: AtomicBool,
    /// True if an idle poller runs.
    has_idle_poller: bool,
    is_over: AtomicBool,
    flags: WakeFlags,
    /// True if the progress thread need not rest.
    call: Mutex<bool>,
    called: Condvar,
}

/// State that the worker's lock guards.
#[derive(Default)]
struct ModelWorker {
    poll_state: PollState,
    /// Number of expected messages, and of handled ones.
    begun: u32,
    ended: u32,
    /// True while a rail has no room for some bytes, and once these have left.
    has_backlog: bool,
    has_left: bool,
    /// Number of polls.
    tick: u32,
    is_over: bool,
}

/// Number of arrived messages, and true if the rail wakes a thread for more.
#[derive(Default)]
struct Rail {
    arrived: u32,
    is_armed: bool,
}

/// Events that end a sleep.
#[derive(Default)]
struct Events {
    rails: bool,
    poller: bool,
    progress_thread: bool,
    /// True if the progress thread is not to rest between two checks.
    rest: bool,
}

/// Flags of the sleepers that the idle poller wakes.
struct WakeFlags {
    rest: WakeFlag<AtomicU8>,
    sleep: WakeFlag<AtomicU8>,
}

impl_atomic_byte!(AtomicU8);

enum CheckResult {
    Polled,
    Rests,
    Over,
}

impl ModelWorker {
    fn is_left_behind(&self) -> bool {
        self.begun > self.ended || self.has_backlog
    }
}

impl ModelProcess {
    fn new(flaw: Flaw, has_idle_poller: bool) -> Arc<Self> {
        Arc::new(Self {
            flaw,
            has_idle_poller,
            is_over: AtomicBool::new(false),
            flags: WakeFlags { rest: WakeFlag::new(), sleep: WakeFlag::new() },
            worker: Mutex::new(ModelWorker::default()),
            moved: Condvar::new(),
            rail: Mutex::new(Rail::default()),
            events: Mutex::new(Events::default()),
            signalled: Condvar::new(),
            // The first call creates it.
            is_called: AtomicBool::new(true),
            call: Mutex::new(false),
            called: Condvar::new(),
        })
    }

    fn worker(&self) -> MutexGuard<'_, ModelWorker> {
        self.worker.lock().unwrap()
    }

    /// Polls. True if anything moved.
    fn advance(&self, worker: &mut ModelWorker) -> bool {
        worker.tick += 1;
        let left = std::mem::take(&mut worker.has_backlog);
        worker.has_left |= left;
        let arrived = std::mem::take(&mut self.rail.lock().unwrap().arrived);
        worker.ended += arrived;
        left || arrived > 0
    }

    /// Arms the rail. True if it has no message.
    fn prepare_sleep(&self) -> bool {
        let mut rail = self.rail.lock().unwrap();
        rail.is_armed = true;
        rail.arrived == 0
    }

    /// Begins to receive a message, or leaves bytes for which a rail has no room.
    fn submit(&self, has_room: bool) {
        let mut worker = self.worker();
        worker.begun += u32::from(has_room);
        worker.has_backlog |= !has_room;
        self.leave(&worker);
    }

    /// Polls, and computes on.
    fn poll_once(&self) {
        let mut worker = self.worker();
        if self.advance(&mut worker) {
            self.report(&worker);
        }
    }

    /// Sends a message to its own process.
    fn send_here(&self) {
        let mut worker = self.worker();
        worker.ended += 1;
        self.report(&worker);
        self.leave(&worker);
    }

    /// Waits until this number of messages has arrived.
    fn wait(&self, messages: u32) {
        let mut worker = self.worker();
        while worker.ended < messages {
            worker.poll_state.begin_polling();
            if self.advance(&mut worker) {
                self.moved.notify_all();
            } else {
                worker = self.sleep(worker);
            }
        }
        worker.poll_state.stop_polling();
        self.leave(&worker);
    }

    fn sleep<'a>(&'a self, mut worker: MutexGuard<'a, ModelWorker>) -> MutexGuard<'a, ModelWorker> {
        if self.prepare_sleep() {
            let former = worker.poll_state.begin_poller_sleep();
            self.wake_thread(former.filter(|_| self.flaw != Flaw::FormerUnsignalled));
            drop(worker);
            self.sleep_on(Wakeup::Poller);
            worker = self.worker();
            worker.poll_state.end_poller_sleep();
        } else if worker.poll_state.is_thread_asleep() && self.flaw != Flaw::DisarmsRails {
            return worker;
        }
        self.finish_sleep();
        worker
    }

    /// Computes, without a call, until this number of messages has arrived.
    fn compute(&self, messages: u32) {
        let mut worker = self.worker();
        while worker.ended < messages {
            worker = self.moved.wait(worker).unwrap();
        }
    }

    fn leave(&self, worker: &ModelWorker) {
        let is_called = self.is_called.load(Ordering::Relaxed);
        if worker.is_left_behind() && !is_called && !self.is_called.swap(true, Ordering::AcqRel) {
            self.call();
        }
        if worker.has_backlog && self.flaw != Flaw::BacklogUnsignalled {
            self.wake_thread(worker.poll_state.wakeup_for_backlog());
        }
    }

    fn report(&self, worker: &ModelWorker) {
        self.moved.notify_all();
        if self.flaw != Flaw::EventUnsignalled {
            self.wake_thread(worker.poll_state.wakeup_for_events());
        }
    }

    /// Runs the progress thread.
    fn run(&self) {
        let mut seen = 0;
        let mut is_woken = false;
        loop {
            match self.run_check(&mut seen, std::mem::take(&mut is_woken)) {
                CheckResult::Polled if self.has_idle_poller => is_woken = self.rest_until_woken(),
                // Rests for some time.
                CheckResult::Polled => thread::yield_now(),
                CheckResult::Over => return,
                CheckResult::Rests => {
                    self.is_called.store(false, Ordering::Release);
                    let is_called =
                        self.is_unattended() && !self.is_called.swap(true, Ordering::AcqRel);
                    if !is_called {
                        self.rest();
                    }
                }
            }
        }
    }

    /// Rests between two checks until the idle poller ends the rest.
    fn rest_until_woken(&self) -> bool {
        if self.flaw != Flaw::FlagClosed {
            self.flags.rest.open();
        }
        let mut events = self.events.lock().unwrap();
        while !std::mem::take(&mut events.rest) {
            events = self.signalled.wait(events).unwrap();
        }
        drop(events);
        self.flags.rest.close()
    }

    /// Runs the idle poller, which does not take the worker's lock.
    fn run_idle_poller(&self) {
        let WakeFlags { rest, sleep } = &self.flags;
        while !self.is_over.load(Ordering::Acquire) {
            let [sleeps, rests] = [sleep, rest].map(WakeFlag::is_open);
            if (sleeps || rests) && self.rail.lock().unwrap().arrived > 0 {
                if sleeps && sleep.take() {
                    self.wake_thread(Some(Wakeup::ProgressThread));
                } else if rests && rest.take() {
                    self.wake_from_rest();
                }
            }
            thread::yield_now();
        }
    }

    fn wake_from_rest(&self) {
        self.events.lock().unwrap().rest = true;
        self.signalled.notify_all();
    }

    fn run_check(&self, seen: &mut u32, is_woken: bool) -> CheckResult {
        let mut worker = self.worker();
        if is_woken {
            *seen = worker.tick;
        }
        loop {
            if worker.is_over {
                return CheckResult::Over;
            }
            if !worker.is_left_behind() || worker.poll_state.is_asleep() {
                return CheckResult::Rests;
            }
            if worker.poll_state.is_polled() || worker.tick != *seen {
                *seen = worker.tick;
                return CheckResult::Polled;
            }
            let moved = self.advance(&mut worker);
            *seen = worker.tick;
            if is_woken && !moved {
                return CheckResult::Polled;
            }
            if moved {
                self.report(&worker);
                drop(worker);
                worker = self.worker();
            } else {
                worker = self.sleep_on_rails(worker);
            }
        }
    }

    fn sleep_on_rails<'a>(
        &'a self,
        mut worker: MutexGuard<'a, ModelWorker>,
    ) -> MutexGuard<'a, ModelWorker> {
        if self.prepare_sleep() {
            worker.poll_state.begin_thread_sleep();
            drop(worker);
            self.flags.sleep.open();
            self.sleep_on(Wakeup::ProgressThread);
            self.flags.sleep.close();
            worker = self.worker();
            if !worker.poll_state.end_thread_sleep() {
                return worker;
            }
        }
        self.finish_sleep();
        worker
    }

    fn is_unattended(&self) -> bool {
        let worker = self.worker();
        let is_watched = worker.poll_state.is_asleep();
        worker.is_left_behind() && !is_watched && self.flaw != Flaw::NoLastCheck
    }

    fn finish_sleep(&self) {
        self.rail.lock().unwrap().is_armed = false;
        self.events.lock().unwrap().rails = false;
    }

    fn wake_thread(&self, wakeup: Option<Wakeup>) {
        let mut events = self.events.lock().unwrap();
        match wakeup {
            None => return,
            Some(Wakeup::Poller) => events.poller = true,
            Some(Wakeup::ProgressThread) => events.progress_thread = true,
        }
        self.signalled.notify_all();
    }

    fn sleep_on(&self, wakeup: Wakeup) {
        let mut events = self.events.lock().unwrap();
        loop {
            let own = match wakeup {
                Wakeup::Poller => &mut events.poller,
                Wakeup::ProgressThread => &mut events.progress_thread,
            };
            if std::mem::take(own) || events.rails {
                return;
            }
            events = self.signalled.wait(events).unwrap();
        }
    }

    fn call(&self) {
        *self.call.lock().unwrap() = true;
        self.called.notify_one();
    }

    fn rest(&self) {
        let mut call = self.call.lock().unwrap();
        while !std::mem::take(&mut *call) {
            call = self.called.wait(call).unwrap();
        }
    }

    /// Receives a message from a peer.
    fn arrive(&self) {
        let mut rail = self.rail.lock().unwrap();
        rail.arrived += 1;
        if rail.is_armed {
            self.events.lock().unwrap().rails = true;
            self.signalled.notify_all();
        }
    }

    /// Receives the peer's answer to the bytes that had no room.
    fn answer(&self) {
        let mut worker = self.worker();
        while !worker.has_left {
            worker = self.moved.wait(worker).unwrap();
        }
        drop(worker);
        self.arrive();
    }

    /// Ends the progress thread.
    fn end(&self) {
        self.worker().is_over = true;
        self.is_over.store(true, Ordering::Release);
        self.wake_from_rest();
        self.wake_thread(Some(Wakeup::ProgressThread));
        self.call();
    }
}

/// Runs the process's own thread beside the other threads and the progress thread.
fn without_idle_poller(
    flaw: Flaw,
    others: impl IntoIterator<Item = fn(&ModelProcess)>,
    own: impl FnOnce(&ModelProcess),
) {
    play(ModelProcess::new(flaw, false), others, own);
}

/// Runs the same with an idle poller.
fn with_idle_poller(
    flaw: Flaw,
    others: impl IntoIterator<Item = fn(&ModelProcess)>,
    own: impl FnOnce(&ModelProcess),
) {
    play(ModelProcess::new(flaw, true), others, own);
}

fn play(
    process: Arc<ModelProcess>,
    others: impl IntoIterator<Item = fn(&ModelProcess)>,
    own: impl FnOnce(&ModelProcess),
) {
    let spawn = |act: fn(&ModelProcess)| {
        let process = Arc::clone(&process);
        thread::spawn(move || act(&process))
    };
    let progress_thread = spawn(ModelProcess::run);
    let idle_poller = process.has_idle_poller.then(|| spawn(ModelProcess::run_idle_poller));
    let others: Vec<_> = others.into_iter().map(spawn).collect();
    own(&process);
    others.into_iter().for_each(|other| other.join().unwrap());
    process.end();
    idle_poller.into_iter().for_each(|idle_poller| idle_poller.join().unwrap());
    progress_thread.join().unwrap();
}

/// The application begins to receive, computes, and makes no call.
fn pending_work_is_completed(flaw: Flaw) {
    without_idle_poller(flaw, [ModelProcess::arrive as fn(&ModelProcess)], |process| {
        process.submit(true);
        process.compute(1);
    });
}

/// The application waits for one of two messages, and computes until the other has arrived.
fn work_left_by_a_waiter_is_completed(flaw: Flaw) {
    let peer = |process: &ModelProcess| (0..2).for_each(|_| process.arrive());
    without_idle_poller(flaw, [peer as fn(&ModelProcess)], |process| {
        process.submit(true);
        process.submit(true);
        process.wait(1);
        process.compute(2);
    });
}

/// Another thread completes the awaited message, and no rail wakes the waiting thread.
fn a_waiter_is_woken_by_another_thread(flaw: Flaw) {
    without_idle_poller(flaw, [ModelProcess::send_here as fn(&ModelProcess)], |process| {
        process.wait(1)
    });
}

/// The awaited message arrives after the bytes that another thread left pending have gone.
fn backlog_is_sent(flaw: Flaw) {
    let submits = |process: &ModelProcess| process.submit(false);
    let others = [submits as fn(&ModelProcess), ModelProcess::answer];
    without_idle_poller(flaw, others, |process| process.wait(1));
}

/// The application begins to receive, polls once, and computes. Meanwhile the progress thread rests or sleeps on
/// the rails, and is woken by the rails, by the idle poller, or by both.
fn a_resting_progress_thread_is_woken(flaw: Flaw) {
    with_idle_poller(flaw, [ModelProcess::arrive as fn(&ModelProcess)], |process| {
        process.submit(true);
        process.poll_once();
        process.compute(1);
    });
}

/// Runs a protocol in every order with at most this number of preemptions.
fn explore(preemptions: usize, flaw: Flaw, protocol: fn(Flaw)) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    // LOOM_MAX_PREEMPTIONS raises the bound, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || protocol(flaw));
}

fn notices(flaw: Flaw, protocol: fn(Flaw)) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(3, flaw, protocol))).is_err()
}

#[test]
fn every_sleeper_is_woken() {
    explore(preemptions(), Flaw::None, pending_work_is_completed);
    explore(preemptions(), Flaw::None, work_left_by_a_waiter_is_completed);
    explore(preemptions(), Flaw::None, a_waiter_is_woken_by_another_thread);
    explore(preemptions(), Flaw::None, backlog_is_sent);
}

#[test]
fn an_idle_poller_wakes_a_resting_progress_thread() {
    // The idle poller polls many times, so the bound is lower.
    explore(2, Flaw::None, a_resting_progress_thread_is_woken);
}

#[test]
fn flaws_are_noticed() {
    assert!(notices(Flaw::NoLastCheck, pending_work_is_completed));
    assert!(notices(Flaw::FormerUnsignalled, work_left_by_a_waiter_is_completed));
    assert!(notices(Flaw::DisarmsRails, work_left_by_a_waiter_is_completed));
    assert!(notices(Flaw::EventUnsignalled, a_waiter_is_woken_by_another_thread));
    assert!(notices(Flaw::BacklogUnsignalled, backlog_is_sent));
    assert!(notices(Flaw::FlagClosed, a_resting_progress_thread_is_woken));
}
