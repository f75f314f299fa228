//! Loom model of the hand-over between a waiting thread, the progress thread, and threads that only call, in every
//! order of their steps.
//!
//! The model runs [`Watch`] itself, below simplified loops of `wait` and `progress_thread`: without spinning, other
//! waiters, and time. Nothing wakes by time, so a missing wake-up is a deadlock, which loom finds. With an idle
//! poller, the progress thread sleeps even between two looks until it is woken. A rail is a doorbell that wakes a
//! thread which has prepared to sleep; the rails' own protocol is proved in `driver`. Each protocol also runs with
//! one [`Flaw`], which its model must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

use super::{Bell, Watch};
use crate::idle_poller::{Ear, is_sign};

/// Deliberate fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A sleeping thread is not woken for events.
    Unheard,
    /// A sleeping thread is not woken for bytes that a rail has no room for.
    Unasked,
    /// The progress thread is not told that the rails wake another thread.
    Unrelieved,
    /// A thread that finds events before it sleeps disarms the rails.
    Silences,
    /// The progress thread does not look once more before it goes to rest.
    LooksNoMore,
    /// The progress thread does not announce that it rests between two looks.
    RestsUnsaid,
}

/// A process with a progress thread.
struct Process {
    flaw: Flaw,
    worker: Mutex<Worker>,
    /// Signaled when a message has ended or bytes have left, for threads that only look at that.
    moved: Condvar,
    rail: Mutex<Rail>,
    events: Mutex<Events>,
    rung: Condvar,
    /// True while the progress thread is at work.
    is_called: AtomicBool,
    /// True if an idle poller runs.
    is_seen: bool,
    is_over: AtomicBool,
    ears: Ears,
    /// True if the progress thread need not rest.
    call: Mutex<bool>,
    called: Condvar,
}

/// State that the worker's lock guards.
#[derive(Default)]
struct Worker {
    watch: Watch,
    /// Number of expected messages, and of handled ones.
    begun: u32,
    ended: u32,
    /// True while a rail has no room for some bytes, and once these have left.
    has_backlog: bool,
    has_left: bool,
    /// Number of polls.
    turn: u32,
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
    bells: bool,
    wake: bool,
    relief: bool,
    /// True if the progress thread is not to rest between two looks.
    hail: bool,
}

/// Flags of the sleepers that the idle poller wakes.
struct Ears {
    away: Ear<AtomicU8>,
    guarded: Ear<AtomicU8>,
}

is_sign!(AtomicU8);

enum Look {
    Covered,
    Rests,
    Over,
}

impl Worker {
    fn is_left_behind(&self) -> bool {
        self.begun > self.ended || self.has_backlog
    }
}

impl Process {
    fn new(flaw: Flaw, is_seen: bool) -> Arc<Self> {
        Arc::new(Self {
            flaw,
            is_seen,
            is_over: AtomicBool::new(false),
            ears: Ears { away: Ear::new(), guarded: Ear::new() },
            worker: Mutex::new(Worker::default()),
            moved: Condvar::new(),
            rail: Mutex::new(Rail::default()),
            events: Mutex::new(Events::default()),
            rung: Condvar::new(),
            // The first call creates it.
            is_called: AtomicBool::new(true),
            call: Mutex::new(false),
            called: Condvar::new(),
        })
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap()
    }

    /// Polls. True if anything moved.
    fn advance(&self, worker: &mut Worker) -> bool {
        worker.turn += 1;
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
            worker.watch.begin_polling();
            if self.advance(&mut worker) {
                self.moved.notify_all();
            } else {
                worker = self.sleep(worker);
            }
        }
        worker.watch.stop_polling();
        self.leave(&worker);
    }

    fn sleep<'a>(&'a self, mut worker: MutexGuard<'a, Worker>) -> MutexGuard<'a, Worker> {
        if self.prepare_sleep() {
            let relieved = worker.watch.lie_down();
            self.ring(relieved.filter(|_| self.flaw != Flaw::Unrelieved));
            drop(worker);
            self.sleep_on(Bell::Wake);
            worker = self.worker();
            worker.watch.get_up();
        } else if worker.watch.is_guarded() && self.flaw != Flaw::Silences {
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

    fn leave(&self, worker: &Worker) {
        let is_called = self.is_called.load(Ordering::Relaxed);
        if worker.is_left_behind() && !is_called && !self.is_called.swap(true, Ordering::AcqRel) {
            self.call();
        }
        if worker.has_backlog && self.flaw != Flaw::Unasked {
            self.ring(worker.watch.hears_backlog());
        }
    }

    fn report(&self, worker: &Worker) {
        self.moved.notify_all();
        if self.flaw != Flaw::Unheard {
            self.ring(worker.watch.hears_events());
        }
    }

    /// Runs the progress thread.
    fn stand_by(&self) {
        let mut seen = 0;
        let mut is_rung = false;
        loop {
            match self.stand_in(&mut seen, std::mem::take(&mut is_rung)) {
                Look::Covered if self.is_seen => is_rung = self.rest_or_hear(),
                // Rests for some time.
                Look::Covered => thread::yield_now(),
                Look::Over => return,
                Look::Rests => {
                    self.is_called.store(false, Ordering::Release);
                    let is_called =
                        self.is_deserted() && !self.is_called.swap(true, Ordering::AcqRel);
                    if !is_called {
                        self.rest();
                    }
                }
            }
        }
    }

    /// Rests between two looks until the idle poller ends the rest.
    fn rest_or_hear(&self) -> bool {
        if self.flaw != Flaw::RestsUnsaid {
            self.ears.away.open();
        }
        let mut events = self.events.lock().unwrap();
        while !std::mem::take(&mut events.hail) {
            events = self.rung.wait(events).unwrap();
        }
        drop(events);
        self.ears.away.close()
    }

    /// Runs the idle poller, which does not take the worker's lock.
    fn look_on(&self) {
        let Ears { away, guarded } = &self.ears;
        while !self.is_over.load(Ordering::Acquire) {
            let [guards, rests] = [guarded, away].map(Ear::listens);
            if (guards || rests) && self.rail.lock().unwrap().arrived > 0 {
                if guards && guarded.take() {
                    self.ring(Some(Bell::Relief));
                } else if rests && away.take() {
                    self.hail();
                }
            }
            thread::yield_now();
        }
    }

    fn hail(&self) {
        self.events.lock().unwrap().hail = true;
        self.rung.notify_all();
    }

    fn stand_in(&self, seen: &mut u32, is_rung: bool) -> Look {
        let mut worker = self.worker();
        if is_rung {
            *seen = worker.turn;
        }
        loop {
            if worker.is_over {
                return Look::Over;
            }
            if !worker.is_left_behind() || worker.watch.is_asleep() {
                return Look::Rests;
            }
            if worker.watch.is_polled() || worker.turn != *seen {
                *seen = worker.turn;
                return Look::Covered;
            }
            let moved = self.advance(&mut worker);
            *seen = worker.turn;
            if is_rung && !moved {
                return Look::Covered;
            }
            if moved {
                self.report(&worker);
                drop(worker);
                worker = self.worker();
            } else {
                worker = self.guard(worker);
            }
        }
    }

    fn guard<'a>(&'a self, mut worker: MutexGuard<'a, Worker>) -> MutexGuard<'a, Worker> {
        if self.prepare_sleep() {
            worker.watch.begin_guard();
            drop(worker);
            self.ears.guarded.open();
            self.sleep_on(Bell::Relief);
            self.ears.guarded.close();
            worker = self.worker();
            if !worker.watch.end_guard() {
                return worker;
            }
        }
        self.finish_sleep();
        worker
    }

    fn is_deserted(&self) -> bool {
        let worker = self.worker();
        let is_watched = worker.watch.is_asleep();
        worker.is_left_behind() && !is_watched && self.flaw != Flaw::LooksNoMore
    }

    fn finish_sleep(&self) {
        self.rail.lock().unwrap().is_armed = false;
        self.events.lock().unwrap().bells = false;
    }

    fn ring(&self, bell: Option<Bell>) {
        let mut events = self.events.lock().unwrap();
        match bell {
            None => return,
            Some(Bell::Wake) => events.wake = true,
            Some(Bell::Relief) => events.relief = true,
        }
        self.rung.notify_all();
    }

    fn sleep_on(&self, bell: Bell) {
        let mut events = self.events.lock().unwrap();
        loop {
            let own = match bell {
                Bell::Wake => &mut events.wake,
                Bell::Relief => &mut events.relief,
            };
            if std::mem::take(own) || events.bells {
                return;
            }
            events = self.rung.wait(events).unwrap();
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
            self.events.lock().unwrap().bells = true;
            self.rung.notify_all();
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
        self.hail();
        self.ring(Some(Bell::Relief));
        self.call();
    }
}

/// Runs the process's own thread beside the other threads and the progress thread.
fn beside(flaw: Flaw, others: impl IntoIterator<Item = fn(&Process)>, own: impl FnOnce(&Process)) {
    play(Process::new(flaw, false), others, own);
}

/// Runs the same with an idle poller.
fn in_sight(
    flaw: Flaw,
    others: impl IntoIterator<Item = fn(&Process)>,
    own: impl FnOnce(&Process),
) {
    play(Process::new(flaw, true), others, own);
}

fn play(
    process: Arc<Process>,
    others: impl IntoIterator<Item = fn(&Process)>,
    own: impl FnOnce(&Process),
) {
    let spawn = |act: fn(&Process)| {
        let process = Arc::clone(&process);
        thread::spawn(move || act(&process))
    };
    let progress_thread = spawn(Process::stand_by);
    let idle_poller = process.is_seen.then(|| spawn(Process::look_on));
    let others: Vec<_> = others.into_iter().map(spawn).collect();
    own(&process);
    others.into_iter().for_each(|other| other.join().unwrap());
    process.end();
    idle_poller.into_iter().for_each(|idle_poller| idle_poller.join().unwrap());
    progress_thread.join().unwrap();
}

/// The application begins to receive, computes, and makes no call.
fn what_is_left_behind_comes_to_its_end(flaw: Flaw) {
    beside(flaw, [Process::arrive as fn(&Process)], |process| {
        process.submit(true);
        process.compute(1);
    });
}

/// The application waits for one of two messages, and computes until the other has arrived.
fn who_waited_leaves_the_rest(flaw: Flaw) {
    let peer = |process: &Process| (0..2).for_each(|_| process.arrive());
    beside(flaw, [peer as fn(&Process)], |process| {
        process.submit(true);
        process.submit(true);
        process.wait(1);
        process.compute(2);
    });
}

/// Another thread completes the awaited message, and no rail wakes the waiting thread.
fn who_waits_hears_of_news(flaw: Flaw) {
    beside(flaw, [Process::send_here as fn(&Process)], |process| process.wait(1));
}

/// The awaited message arrives after the bytes that another thread left pending have gone.
fn what_had_no_room_goes(flaw: Flaw) {
    let submits = |process: &Process| process.submit(false);
    let others = [submits as fn(&Process), Process::answer];
    beside(flaw, others, |process| process.wait(1));
}

/// The application begins to receive, polls once, and computes. Meanwhile the progress thread rests or sleeps on
/// the rails, and is woken by the rails, by the idle poller, or by both.
fn who_rests_is_rung_for(flaw: Flaw) {
    in_sight(flaw, [Process::arrive as fn(&Process)], |process| {
        process.submit(true);
        process.poll_once();
        process.compute(1);
    });
}

/// Runs a protocol in every order.
fn explore(flaw: Flaw, protocol: fn(Flaw)) {
    explore_within(3, flaw, protocol);
}

/// Runs a protocol in every order with at most this number of preemptions.
fn explore_within(preemptions: usize, flaw: Flaw, protocol: fn(Flaw)) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    // LOOM_MAX_PREEMPTIONS raises the bound, which takes longer.
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || protocol(flaw));
}

fn notices(flaw: Flaw, protocol: fn(Flaw)) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(flaw, protocol))).is_err()
}

#[test]
fn nobody_is_forgotten() {
    explore(Flaw::None, what_is_left_behind_comes_to_its_end);
    explore(Flaw::None, who_waited_leaves_the_rest);
    explore(Flaw::None, who_waits_hears_of_news);
    explore(Flaw::None, what_had_no_room_goes);
}

#[test]
fn who_rests_is_not_forgotten_by_who_looks_on() {
    // The idle poller looks many times, so the bound is lower.
    explore_within(2, Flaw::None, who_rests_is_rung_for);
}

#[test]
fn flaws_are_noticed() {
    assert!(notices(Flaw::LooksNoMore, what_is_left_behind_comes_to_its_end));
    assert!(notices(Flaw::Unrelieved, who_waited_leaves_the_rest));
    assert!(notices(Flaw::Silences, who_waited_leaves_the_rest));
    assert!(notices(Flaw::Unheard, who_waits_hears_of_news));
    assert!(notices(Flaw::Unasked, what_had_no_room_goes));
    assert!(notices(Flaw::RestsUnsaid, who_rests_is_rung_for));
}
