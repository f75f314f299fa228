//! Calls from the application's threads: at once, or waiting.

mod copying;
mod several;
mod standing_in;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::RemoteReadId;
use lock::{CombiningGuard, CombiningLock};
use rustix::event::{PollFd, PollFlags, epoll};

use wire::PeerId;

use crate::backoff::Trust;
use crate::busy_test::{NAP, Vain};
use crate::contention::Contention;
use crate::copies::timed;
use crate::cores::Cores;
use crate::event;
use crate::exit_handover;
use crate::idle_poller::Idle;
use crate::parker::Sleeper;
use crate::policy::{Courtesy, Next, Patience, Policy};
use crate::poller::Bell;
use crate::progress_thread::{ProgressThread, Summons};
use crate::siblings::Beside;
use crate::submissions::Record;
use crate::tasks::Task;
use crate::waiters::Awaited;
use crate::worker::Worker;

/// The communication of one process, shared by its threads.
pub struct Progress {
    worker: CombiningLock<Worker>,
    /// Becomes readable when any rail rings.
    bells: OwnedFd,
    /// Wakes the polling thread from another one.
    wake: OwnedFd,
    /// Wakes the progress thread.
    relief: Arc<OwnedFd>,
    /// As in the core.
    has_held_copies: Arc<AtomicBool>,
    cores: Cores,
    courtesy: Courtesy,
    contention: Contention,
    /// In polling on while other threads are due.
    holding_up: Trust,
    /// Tests that found nothing.
    vain: Vain,
    pub(crate) summons: Summons,
    pub(crate) idle: Arc<Idle>,
    pub(crate) beside: Beside,
    pub(crate) myself: Weak<Self>,
}

/// The course of one wait.
struct Wait<'a> {
    /// This thread polls for all.
    polls: bool,
    /// This thread has told peers that it stays until what it has offered is sent.
    attentive: bool,
    patience: Patience<'a>,
    deadline: Option<Instant>,
    /// The long message that this thread copies.
    copies: Option<RemoteReadId>,
}

impl Progress {
    /// Joins `core` with a waiting `policy`.
    ///
    /// # Errors
    /// When the kernel gives no epoll or event descriptor.
    pub fn new(worker: Worker, policy: Policy) -> std::io::Result<Arc<Self>> {
        Self::with(worker, policy, &ProgressThread::new()?)
    }

    /// As [`Progress::new`], for another communication of the same process: one thread stands by for both.
    ///
    /// # Errors
    /// As [`Progress::new`].
    pub fn new_beside(&self, worker: Worker, policy: Policy) -> std::io::Result<Arc<Self>> {
        Self::with(worker, policy, &self.summons.progress_thread)
    }

    fn with(
        mut worker: Worker,
        policy: Policy,
        progress_thread: &Arc<ProgressThread>,
    ) -> std::io::Result<Arc<Self>> {
        let bells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (wake, relief) = (event::new()?, Arc::new(event::new()?));
        let readable = epoll::EventFlags::IN;
        for descriptor in worker.descriptors() {
            epoll::add(&bells, descriptor, epoll::EventData::new_u64(1), readable)?;
        }
        let idle = Arc::new(Idle::new(Arc::clone(&relief), Arc::clone(&progress_thread.bell)));
        worker.idle = Some(Arc::clone(&idle));
        let records = Record::all(&mut worker);
        let has_held_copies = Arc::clone(&worker.has_held_copies);
        Ok(Arc::new_cyclic(|myself| {
            worker.owner = Weak::clone(myself);
            Self {
                worker: CombiningLock::new(records, worker),
                bells,
                wake,
                relief,
                has_held_copies,
                cores: Cores::new(policy),
                courtesy: Courtesy::default(),
                contention: Contention::beside(Arc::clone(&idle.awake)),
                holding_up: Trust::new(),
                vain: Vain::new(),
                summons: progress_thread.watch(Weak::clone(myself)),
                idle,
                beside: Beside::default(),
                myself: Weak::clone(myself),
            }
        }))
    }

    /// Runs a command and sends at once what follows from it.
    #[inline]
    pub fn submit<T>(&self, command: impl FnOnce(&mut Worker) -> T) -> T {
        self.submit_seated(self.lock(), command)
    }

    #[inline]
    pub(crate) fn submit_seated<T>(
        &self,
        mut worker: CombiningGuard<'_, Worker>,
        command: impl FnOnce(&mut Worker) -> T,
    ) -> T {
        worker.is_in_call = true;
        let before = worker.engine.event_count();
        let result = command(&mut worker);
        worker.settle();
        self.report(&mut worker, before);
        self.end_call(worker);
        result
    }

    /// Begins a task; it has gone on as far as it can.
    pub fn begin(&self, task: Box<dyn Task>) {
        self.submit(|worker| worker.add_task(task));
    }

    /// Polls once, then asks.
    #[inline]
    pub fn test<T>(&self, question: impl FnOnce(&mut Worker) -> T) -> T {
        let mut worker = self.lock();
        worker.is_in_call = true;
        worker.counters.polls_by_tests += 1;
        let before = worker.engine.event_count();
        worker.advance();
        worker = self.work(worker);
        let answer = question(&mut worker);
        worker.settle();
        self.report(&mut worker, before);
        self.end_call(worker);
        answer
    }

    /// Looks without polling.
    pub fn look<T>(&self, question: impl FnOnce(&mut Worker) -> T) -> T {
        question(&mut self.lock())
    }

    /// Runs `command`, then polls until `ready` answers.
    #[inline]
    pub fn submit_and_wait<T, U>(
        &self,
        command: impl FnOnce(&mut Worker) -> U,
        mut ready: impl FnMut(&mut Worker, &U) -> Option<T>,
    ) -> T {
        let mut worker = self.lock();
        let before = worker.engine.event_count();
        let submitted = command(&mut worker);
        worker.settle();
        self.report(&mut worker, before);
        self.wait_locked(worker, None, |worker| ready(worker, &submitted))
            .unwrap_or_else(|| unreachable!())
    }

    /// Polls until `ready` answers. What it submits is sent. Part of its callers: most find the answer there at once.
    #[inline(always)]
    pub fn wait<T>(&self, ready: impl FnMut(&mut Worker) -> Option<T>) -> T {
        self.wait_locked(self.lock(), None, ready).unwrap_or_else(|| unreachable!())
    }

    /// Polls until `ready` answers or the time is over.
    pub fn wait_for<T>(
        &self,
        limit: Duration,
        ready: impl FnMut(&mut Worker) -> Option<T>,
    ) -> Option<T> {
        self.wait_locked(self.lock(), Some(Instant::now() + limit), ready)
    }

    /// Lets waiting threads ask again: what they wait for has come, and not through the core.
    pub fn wake(&self) {
        let mut worker = self.lock();
        worker.waiters.wake_all();
        let bell = worker.watch.hears_events();
        self.ring(&mut worker, bell);
    }

    /// A test has found nothing: gives the core away where ranks are more than cores, and in a loop of such tests where
    /// others want it.
    #[inline]
    pub fn pause(&self) {
        if !self.cores.has_a_core() {
            std::thread::yield_now();
        }
        if self.vain.count() {
            self.pause_in_a_loop(Instant::now());
        }
    }

    /// Waits, where others want the cores: to yield would be to have this one back after milliseconds.
    #[cold]
    fn pause_in_a_loop(&self, now: Instant) {
        self.look_beside();
        let Some(lasting) = self.vain.look(now) else { return };
        let mut worker = self.lock();
        self.look_at_cores(&mut worker, now);
        if !self.cores.has_a_core() {
            return;
        }
        self.contention.note_wait(lasting, now);
        if self.contention.is_oversubscribed() && self.contention.is_oversubscribed_at(now) {
            let before = worker.engine.event_count();
            let has_events =
                |worker: &mut Worker| (worker.engine.event_count() != before).then_some(());
            self.wait_locked(worker, Some(now + NAP), has_events);
            self.vain.have_waited(Instant::now());
        }
    }

    /// At which threads meet.
    #[inline]
    pub(crate) fn worker(&self) -> &CombiningLock<Worker> {
        &self.worker
    }

    /// Whether messages that were copied wait for their peers.
    pub(crate) fn has_held_copies(&self) -> &AtomicBool {
        &self.has_held_copies
    }

    #[inline]
    fn lock(&self) -> CombiningGuard<'_, Worker> {
        self.worker.lock()
    }

    #[inline]
    fn end_call(&self, worker: CombiningGuard<'_, Worker>) {
        let mut worker = self.work(worker);
        self.leave(&mut worker);
        worker.is_in_call = false;
    }

    /// Lets tasks compute what they have to, without the core; a call copies what nobody is at as well.
    #[inline]
    fn work<'a>(&'a self, worker: CombiningGuard<'a, Worker>) -> CombiningGuard<'a, Worker> {
        if worker.has_loose_ends { self.work_for_tasks(worker) } else { worker }
    }

    #[cold]
    fn work_for_tasks<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
    ) -> CombiningGuard<'a, Worker> {
        let is_in_call = worker.is_in_call;
        let mut copies = None;
        loop {
            while let Some(mut task) = worker.take_work() {
                self.leave(&mut worker);
                worker.is_in_call = false;
                drop(worker);
                let ((), took) = timed(|| task.work());
                worker = self.lock();
                worker.is_in_call = is_in_call;
                worker.note_work(took);
                let before = worker.engine.event_count();
                worker.add_task(task);
                self.report(&mut worker, before);
                self.leave(&mut worker);
            }
            if !is_in_call || !worker.has_pieces(copies) {
                return worker;
            }
            worker = self.copy_next(worker, &mut copies);
        }
    }

    /// Sees that somebody brings to its end what a call leaves behind.
    #[inline]
    pub(crate) fn leave(&self, worker: &mut Worker) {
        if worker.is_left_behind() {
            self.hand_over(worker);
        }
    }

    pub(crate) fn hand_over(&self, worker: &mut Worker) {
        if !self.summons.call() {
            // The system gave no thread: nobody sends what is coalesced later, or wakes those who are due.
            worker.stop_coalescing();
            worker.waiters.wake_due();
            if !worker.watch.is_polled() {
                worker.waiters.wake_one();
            }
        }
        // Who sleeps has not asked the rails for room, and copies nothing.
        if worker.has_backlog() || (worker.has_loose_ends && worker.has_pieces(None)) {
            let bell = worker.watch.hears_backlog();
            self.ring(worker, bell);
        }
    }

    /// Tells waiting threads that something completed.
    #[inline]
    pub(crate) fn report(&self, worker: &mut Worker, before: u64) {
        if worker.engine.event_count() != before {
            self.tell(worker);
            let bell = worker.watch.hears_events();
            self.ring(worker, bell);
        }
    }

    #[inline(always)]
    fn wait_locked<'a, T>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Worker) -> Option<T>,
    ) -> Option<T> {
        let patience = Patience::new(&self.cores);
        let mut wait = Wait { polls: false, attentive: false, patience, deadline, copies: None };
        loop {
            let before = worker.engine.event_count();
            worker.awaited = Awaited::Events;
            worker.asker_polls = wait.polls;
            let answer = ready(&mut worker);
            worker.settle();
            if answer.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.end_wait(worker, &wait, before);
                return answer;
            }
            worker = if worker.has_loose_ends && self.is_wanted(&worker, &wait) {
                self.work_meanwhile(worker, &mut wait, before)
            } else if !wait.polls && worker.watch.is_polled() {
                self.leave_it_to_others(worker, &wait, before)
            } else {
                self.poll(worker, &mut wait, before)
            };
        }
    }

    #[inline(always)]
    fn end_wait(&self, mut worker: CombiningGuard<'_, Worker>, wait: &Wait<'_>, before: u64) {
        if wait.attentive {
            worker.set_attentive(false);
        }
        self.report(&mut worker, before);
        if wait.polls {
            wait.patience.end(&self.holding_up);
            self.stop_polling(&mut worker);
        }
        self.leave(&mut worker);
        drop(self.work(worker));
    }

    /// Computes for tasks, or copies a piece of a long message; others poll meanwhile.
    #[cold]
    fn work_meanwhile<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        wait: &mut Wait<'_>,
        before: u64,
    ) -> CombiningGuard<'a, Worker> {
        self.report(&mut worker, before);
        if std::mem::take(&mut wait.polls) {
            self.stop_polling(&mut worker);
        }
        if worker.has_work() {
            return self.work(worker);
        }
        let worker = self.copy_next(worker, &mut wait.copies);
        wait.patience.renew(&self.contention, true);
        worker
    }

    /// Another thread polls.
    fn leave_it_to_others<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        wait: &Wait<'_>,
        before: u64,
    ) -> CombiningGuard<'a, Worker> {
        worker.release_coalesced();
        worker.flush();
        self.report(&mut worker, before);
        match worker.engine.event_count() == before {
            true if worker.has_loose_ends && self.may_help(&worker) => self.help(worker),
            true => self.wait_for_others(worker, wait.deadline, None),
            // What has just completed may be what this thread waits for.
            false => worker,
        }
    }

    /// Polls once for all threads, and pauses if nothing moved.
    #[inline(always)]
    fn poll<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        wait: &mut Wait<'_>,
        before: u64,
    ) -> CombiningGuard<'a, Worker> {
        let is_first = !std::mem::replace(&mut wait.polls, true);
        if !wait.attentive && worker.engine.has_offers() && self.cores.has_a_core() {
            wait.attentive = true;
            worker.set_attentive(true);
        }
        worker.watch.begin_polling();
        let moved = match is_first && !self.cores.has_a_core() {
            true => worker.advance_in_shm_coll(),
            false => worker.advance(),
        };
        // What has just completed may be what this thread waits for.
        let has_events = worker.engine.event_count() != before;
        if has_events {
            self.tell(&mut worker);
        }
        if moved {
            wait.patience.renew(&self.contention, has_events);
            return worker;
        }
        if !has_events && worker.waiters.has_due() && wait.patience.gives_way(&self.holding_up) {
            wait.polls = false;
            worker.watch.stop_polling();
            let next = worker.waiters.next_due();
            return self.wait_for_others(worker, wait.deadline, next);
        }
        self.pause_between_polls(worker, wait, has_events)
    }

    #[inline(always)]
    fn pause_between_polls<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        wait: &mut Wait<'_>,
        has_events: bool,
    ) -> CombiningGuard<'a, Worker> {
        let next = wait.patience.next(&self.courtesy, &self.contention);
        worker.engine.set_oversubscribed(!self.has_a_core());
        if next != Next::Spin {
            worker.counters.spinning += wait.patience.take_spun();
            if worker.has_loose_ends && self.may_help(&worker) {
                return self.help_while_waiting(worker, wait);
            }
        }
        match next {
            Next::Spin => self.breathe(worker, std::hint::spin_loop),
            Next::Look | Next::Guess if worker.shares_core() => {
                self.leave_core(worker, has_events, wait.deadline)
            }
            Next::Guess if self.courtesy.pays() => self.guess(worker),
            Next::Look | Next::Guess => worker,
            Next::Yield if has_events || !self.is_futile(&worker) => {
                let (worker, took) = self.yield_core(worker);
                wait.patience.note_yield(took);
                worker
            }
            Next::Yield => self.sleep(worker, wait.deadline),
            Next::OwnedCell | Next::Sleep if has_events => worker,
            Next::OwnedCell => {
                let (worker, took) = self.yield_core(worker);
                wait.patience.note_turn(&self.contention, took, Instant::now());
                worker
            }
            Next::Sleep => self.sleep(worker, wait.deadline),
        }
    }

    /// Lets other threads take the lock while this one pauses.
    #[inline]
    fn breathe<'a>(
        &'a self,
        worker: CombiningGuard<'a, Worker>,
        pause: fn(),
    ) -> CombiningGuard<'a, Worker> {
        drop(worker);
        pause();
        self.lock()
    }

    /// Whether others have the core for long after a yield of a thread that waits for posts. Such a thread is woken
    /// once, when all are there; who waits for messages is woken for each.
    fn is_futile(&self, worker: &Worker) -> bool {
        worker.is_in_shmem()
            && self.contention.is_oversubscribed()
            && self.contention.is_held_at(Instant::now())
    }

    /// Gives the processor's core away as well; says for how long.
    fn yield_core<'a>(
        &'a self,
        worker: CombiningGuard<'a, Worker>,
    ) -> (CombiningGuard<'a, Worker>, Duration) {
        let began = Instant::now();
        let mut worker = self.breathe(worker, std::thread::yield_now);
        let now = Instant::now();
        let took = now - began;
        worker.counters.yields += 1;
        worker.counters.yielding += took;
        if self.cores.has_a_core() {
            // What the thread waits for may have come meanwhile: then nobody asks again how long it was away.
            self.contention.note_pause(took, now);
        } else if worker.is_in_shmem() {
            self.contention.note_yield(took, now);
            if !self.contention.is_oversubscribed() {
                worker.even_out(now);
            }
        }
        self.look_at_cores(&mut worker, now);
        (worker, took)
    }

    /// The calling thread does not answer at once anyway: sees to it, now and then, that it waits as the cores that there
    /// are allow.
    fn look_at_cores(&self, worker: &mut Worker, now: Instant) {
        let is_new = self.cores.look(now, |own| worker.compare_cores(own));
        worker.counters.changes_of_cores += u64::from(is_new);
    }

    /// Lets a peer on the same core run. To yield where others want it as well would be to have it back after
    /// milliseconds.
    fn leave_core<'a>(
        &'a self,
        worker: CombiningGuard<'a, Worker>,
        has_events: bool,
        deadline: Option<Instant>,
    ) -> CombiningGuard<'a, Worker> {
        match self.contention.is_oversubscribed() {
            true if has_events => worker,
            true => self.sleep(worker, deadline),
            false => self.yield_core(worker).0,
        }
    }

    /// Yields, and learns whether that paid.
    #[cold]
    fn guess<'a>(&'a self, worker: CombiningGuard<'a, Worker>) -> CombiningGuard<'a, Worker> {
        let (mut worker, took) = self.yield_core(worker);
        let before = worker.engine.event_count();
        let event_count = worker.advance();
        self.report(&mut worker, before);
        self.courtesy.learn(took, event_count);
        worker
    }

    /// Sleeps until the wait is over, or this thread is to poll. Who is `next` is woken without the lock, which it would
    /// find taken otherwise: the kernel lets it go on at once.
    #[cold]
    fn wait_for_others<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        deadline: Option<Instant>,
        next: Option<Arc<Sleeper>>,
    ) -> CombiningGuard<'a, Worker> {
        exit_handover::note(&self.myself);
        let awaited = std::mem::take(&mut worker.awaited);
        let sleeper = Sleeper::of_this_thread();
        worker.waiters.add(&sleeper, awaited);
        worker.counters.waits_for_others += 1;
        let spin = match self.is_oversubscribed(&worker) {
            true => Duration::ZERO,
            false if self.contention.is_oversubscribed() => self.cores.brief(),
            false => self.cores.spin(),
        };
        self.leave(&mut worker);
        if let Some(next) = &next {
            worker.keep_apart(next, sleeper.core());
        }
        drop(worker);
        if let Some(next) = next {
            next.wake();
        }
        let is_woken = sleeper.sleep(spin, deadline);
        let mut worker = self.lock();
        worker.counters.woken += u64::from(is_woken);
        if !is_woken {
            worker.waiters.remove(&sleeper);
        }
        sleeper.be_free();
        worker
    }

    /// Whether a thread that waits has a core, and nobody else wants it.
    fn has_a_core(&self) -> bool {
        self.cores.has_a_core() && !self.contention.is_oversubscribed()
    }

    /// Whether more threads wait than have a core each.
    fn is_oversubscribed(&self, worker: &Worker) -> bool {
        worker.waiters.len() >= self.cores.threads()
    }

    /// Wakes the threads that wait for others and need not any more. Where cores are few they are left
    /// to the polling thread, which gives way when it has nothing for itself.
    #[inline]
    fn tell(&self, worker: &mut Worker) {
        if !worker.waiters.is_empty() {
            self.tell_waiting(worker);
        }
    }

    #[cold]
    fn tell_waiting(&self, worker: &mut Worker) {
        let Worker { waiters, engine, .. } = worker;
        waiters.find_due(engine);
        if !(worker.watch.is_polled_now() && self.is_oversubscribed(worker)) {
            worker.waiters.wake_due();
        }
    }

    /// The calling thread polls no more. Where cores are few it comes back before another has begun, or
    /// the progress thread sees to it.
    #[inline]
    fn stop_polling(&self, worker: &mut Worker) {
        worker.watch.stop_polling();
        if !worker.waiters.is_empty() && !self.is_oversubscribed(worker) {
            worker.waiters.wake_one();
        }
    }

    /// A thread has ended that may have polled for others. What holds the worker meanwhile may be this thread itself, which a
    /// signal has interrupted: then it is left to the progress thread.
    pub(crate) fn succeed(&self) {
        if let Some(mut worker) = self.worker.try_lock()
            && !worker.watch.is_polled()
        {
            worker.waiters.wake_one();
        }
    }

    /// Sleeps in the kernel until a rail rings, another thread completes something, or time is over.
    #[cold]
    fn sleep<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        deadline: Option<Instant>,
    ) -> CombiningGuard<'a, Worker> {
        worker.waiters.wake_due();
        self.look_at_cores(&mut worker, Instant::now());
        let probed = worker.awaited.probed();
        if worker.prepare_sleep() {
            let relieved = worker.watch.lie_down();
            self.ring(&mut worker, relieved);
            self.go_first(&mut worker);
            self.idle.dismiss();
            drop(worker);
            let limit = deadline.map_or(MAX_SLEEP, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(MAX_SLEEP)
            });
            let limit = self.beside.rest(limit);
            let slept = self.wait_for_bell(limit);
            if slept >= limit {
                self.look_beside();
            }
            worker = self.lock();
            self.idle.admit();
            worker.counters.sleeps += 1;
            worker.counters.sleeping += slept;
            if self.cores.has_a_core() {
                self.contention.note_wait(slept, Instant::now());
            }
            worker.watch.get_up();
        } else if worker.watch.is_guarded() {
            // The progress thread sleeps on: the rails are to ring for it.
            return worker;
        }
        self.finish_sleep(&mut worker, probed);
        worker
    }

    fn finish_sleep(&self, worker: &mut Worker, probed: Option<PeerId>) {
        let before = worker.engine.event_count();
        worker.finish_sleep(probed);
        self.report(worker, before);
    }

    /// The calling thread is about to sleep: where others want the cores it goes before them when it is woken,
    /// and the progress thread sees that it does not for longer than that takes. Ranks of the job that share cores would
    /// go before each other.
    fn go_first(&self, worker: &mut Worker) {
        let is_alone = self.cores.has_a_core() && self.cores.turns() == 0;
        if is_alone && self.contention.is_oversubscribed() {
            let was_held = worker.precedence.is_held();
            worker.precedence.claim();
            let is_new = !was_held && worker.precedence.is_held();
            if is_new && !self.summons.call() {
                worker.precedence.give_up();
            }
        }
    }

    /// Wakes a thread that sleeps on the rails, if one is to be woken.
    #[inline]
    fn ring(&self, worker: &mut Worker, bell: Option<Bell>) {
        if let Some(bell) = bell {
            self.ring_for(worker, bell);
        }
    }

    #[cold]
    fn ring_for(&self, worker: &mut Worker, bell: Bell) {
        let event = match bell {
            Bell::Wake => &self.wake,
            Bell::Relief => &self.relief,
        };
        worker.counters.bells += 1;
        event::ring(event);
    }

    /// Sleeps until a rail rings, another thread wakes the one that polls, or time is over; answers for how long.
    fn wait_for_bell(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        let mut bells =
            [PollFd::new(&self.bells, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        event::wait(&mut bells, Some(limit));
        if !bells[1].revents().is_empty() {
            event::silence(&self.wake);
        }
        began.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.idle.end();
    }
}

/// A sleeper looks at its rails at least this often, so that no lost bell can stop a job.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(500);

/// An application that has left something behind and not polled for so long computes.
pub(crate) const AWAY: Duration = Duration::from_micros(500);
pub(crate) const OVERSUBSCRIBED_AWAY: Duration = Duration::from_millis(4);
