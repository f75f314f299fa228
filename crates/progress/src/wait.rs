//! Calls from the application's threads, both non-blocking and waiting.

mod copying;
mod progress_check;
mod reporting;
mod several;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::RemoteReadId;
use lock::{CombiningGuard, CombiningLock};
use rail::Rail;
use rustix::event::{PollFd, PollFlags, epoll};

use wire::PeerId;

use crate::backoff::Backoff;
use crate::busy_test::{BusyTests, NAP};
use crate::contention::Contention;
use crate::copies::timed;
use crate::cores::Cores;
use crate::event;
use crate::exit_handover;
use crate::idle_poller::IdlePollers;
use crate::parker::Parker;
use crate::policy::{NextStep, Policy, SpinState, YieldPolicy};
use crate::poller::Wakeup;
use crate::progress_thread::{ProgressThread, ThreadHandle};
use crate::siblings::Siblings;
use crate::submissions::Record;
use crate::tasks::Task;
use crate::waiters::Awaited;
use crate::worker::{Directory, OwnAddresses, Worker};

/// A VCI of a process, shared by its threads: the engine, the rails, and the state of waiting.
pub struct Progress {
    worker: CombiningLock<Worker>,
    /// Epoll descriptor that becomes readable when any rail signals.
    rails_epoll: OwnedFd,
    /// Eventfd that wakes the polling thread.
    poller_event: OwnedFd,
    /// Eventfd that wakes the progress thread.
    thread_event: Arc<OwnedFd>,
    /// Shared with the worker; see `Worker::refuses_copies`.
    refuses_copies: Arc<AtomicBool>,
    cores: Cores,
    yield_policy: YieldPolicy,
    contention: Contention,
    /// Backoff of polling on while other threads are due.
    handover_backoff: Backoff,
    /// Counter of tests that found nothing.
    busy_tests: BusyTests,
    pub(crate) thread_handle: ThreadHandle,
    pub(crate) idle_pollers: Arc<IdlePollers>,
    pub(crate) siblings: Siblings,
    pub(crate) myself: Weak<Self>,
}

/// State of one wait.
struct Wait<'a> {
    /// True if this thread polls for all.
    polls: bool,
    /// True if this thread has told peers that it stays until its offered messages are sent.
    attentive: bool,
    spin_state: SpinState<'a>,
    deadline: Option<Instant>,
    /// The long message that this thread copies.
    copies: Option<RemoteReadId>,
}

impl Progress {
    /// Joins `worker` with a waiting `policy`.
    ///
    /// # Errors
    /// If the kernel gives no epoll or event descriptor.
    pub fn new(worker: Worker, policy: Policy) -> std::io::Result<Arc<Self>> {
        Self::with(worker, policy, &ProgressThread::new()?)
    }

    /// Creates another VCI of the same process like [`Progress::new`]; both share one progress thread.
    ///
    /// # Errors
    /// The errors of [`Progress::new`].
    pub fn new_sibling(&self, worker: Worker, policy: Policy) -> std::io::Result<Arc<Self>> {
        Self::with(worker, policy, &self.thread_handle.progress_thread)
    }

    fn with(
        mut worker: Worker,
        policy: Policy,
        progress_thread: &Arc<ProgressThread>,
    ) -> std::io::Result<Arc<Self>> {
        let rails_epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (poller_event, thread_event) = (event::new()?, Arc::new(event::new()?));
        let readable = epoll::EventFlags::IN;
        for descriptor in worker.descriptors() {
            epoll::add(&rails_epoll, descriptor, epoll::EventData::new_u64(1), readable)?;
        }
        let idle_pollers = Arc::new(IdlePollers::new(
            Arc::clone(&thread_event),
            Arc::clone(&progress_thread.event),
        ));
        worker.idle_pollers = Some(Arc::clone(&idle_pollers));
        let records = Record::all(&mut worker);
        let refuses_copies = Arc::clone(&worker.refuses_copies);
        Ok(Arc::new_cyclic(|myself| {
            worker.owner = Weak::clone(myself);
            Self {
                worker: CombiningLock::new(records, worker),
                rails_epoll,
                poller_event,
                thread_event,
                refuses_copies,
                cores: Cores::new(policy),
                yield_policy: YieldPolicy::default(),
                contention: Contention::with_idle_pollers(Arc::clone(&idle_pollers.awake)),
                handover_backoff: Backoff::new(),
                busy_tests: BusyTests::new(),
                thread_handle: progress_thread.register(Weak::clone(myself)),
                idle_pollers,
                siblings: Siblings::default(),
                myself: Weak::clone(myself),
            }
        }))
    }

    /// Adds rails to a process that has had none to others.
    ///
    /// # Errors
    /// If the kernel does not watch their descriptors.
    pub fn add_rails(
        &self,
        rails: Vec<Box<dyn Rail>>,
        teams: &[Vec<String>],
        directory: impl FnOnce(OwnAddresses) -> Box<dyn Directory>,
    ) -> std::io::Result<()> {
        for descriptor in rails.iter().flat_map(|rail| rail.descriptors()) {
            let readable = epoll::EventFlags::IN;
            epoll::add(&self.rails_epoll, descriptor, epoll::EventData::new_u64(1), readable)?;
        }
        self.lock().add_rails(rails, teams, directory);
        self.wake();
        Ok(())
    }

    /// Ends the threads of the process, and waits for the progress thread. Idle pollers leave when they next get a core.
    /// Calls still make progress.
    pub fn end_threads(&self) {
        self.idle_pollers.end();
        self.thread_handle.progress_thread.end();
    }

    /// Runs a command and sends its output at once.
    #[inline]
    pub fn submit<T>(&self, command: impl FnOnce(&mut Worker) -> T) -> T {
        self.submit_locked(self.lock(), command)
    }

    #[inline]
    pub(crate) fn submit_locked<T>(
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

    /// Begins a task and advances it as far as possible.
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

    /// Asks without polling.
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

    /// Polls until `ready` answers, and sends what it submits. Inlined into its callers, because most find the
    /// answer at once.
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

    /// Lets waiting threads ask again after an event outside the worker.
    pub fn wake(&self) {
        let mut worker = self.lock();
        worker.waiters.wake_all();
        let wakeup = worker.poll_state.wakeup_for_events();
        self.wake_thread(&mut worker, wakeup);
    }

    /// Pauses after a test that found nothing. It yields the CPU core if there are more ranks than cores, or, in a
    /// loop of such tests, if other threads want it.
    #[inline]
    pub fn pause(&self) {
        if !self.cores.has_a_core() {
            std::thread::yield_now();
        }
        if self.busy_tests.count() {
            self.pause_in_a_loop(Instant::now());
        }
    }

    /// Sleeps if other threads want the CPU cores; after a yield, this thread would get its core back only after
    /// milliseconds.
    #[cold]
    fn pause_in_a_loop(&self, now: Instant) {
        self.poll_siblings();
        let Some(lasting) = self.busy_tests.look(now) else { return };
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
            self.busy_tests.have_waited(Instant::now());
        }
    }

    /// The lock at which all threads meet.
    #[inline]
    pub(crate) fn worker(&self) -> &CombiningLock<Worker> {
        &self.worker
    }

    /// True if messages must not be copied: a copy waits for its peer, or a peer has failed.
    pub(crate) fn refuses_copies(&self) -> &AtomicBool {
        &self.refuses_copies
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

    /// Lets tasks compute without the lock; a call also copies pieces that no thread has taken.
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

    /// Sees to it that some thread completes the work that a call leaves pending.
    #[inline]
    pub(crate) fn leave(&self, worker: &mut Worker) {
        if worker.is_left_behind() {
            self.hand_over(worker);
        }
    }

    pub(crate) fn hand_over(&self, worker: &mut Worker) {
        if !self.thread_handle.call(|| worker.is_urgent()) {
            // The system gave no thread: nobody else would send coalesced messages or wake due threads.
            worker.stop_coalescing();
            worker.waiters.wake_due();
            if !worker.poll_state.is_polled() {
                worker.waiters.wake_one();
            }
        }
        // A sleeping thread has not asked the rails for room and copies nothing.
        if worker.has_backlog() || (worker.has_loose_ends && worker.has_pieces(None)) {
            let wakeup = worker.poll_state.wakeup_for_backlog();
            self.wake_thread(worker, wakeup);
        }
    }

    /// Tells waiting threads that something completed.
    #[inline]
    pub(crate) fn report(&self, worker: &mut Worker, before: u64) {
        if worker.engine.event_count() != before {
            self.wake_finished(worker);
            let wakeup = worker.poll_state.wakeup_for_events();
            self.wake_thread(worker, wakeup);
        }
    }

    #[inline(always)]
    fn wait_locked<'a, T>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Worker) -> Option<T>,
    ) -> Option<T> {
        let spin_state = SpinState::new(&self.cores);
        let mut wait = Wait { polls: false, attentive: false, spin_state, deadline, copies: None };
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
            } else if !wait.polls && worker.poll_state.is_polled() {
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
            wait.spin_state.end(&self.handover_backoff);
            self.stop_polling(&mut worker);
        }
        self.leave(&mut worker);
        drop(self.work(worker));
    }

    /// Computes for tasks, or copies a piece of a long message, while other threads poll.
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
        wait.spin_state.renew(&self.contention, true);
        worker
    }

    /// Waits while another thread polls.
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
            // The latest completion may be the one that this thread waits for.
            false => worker,
        }
    }

    /// Polls once for all threads, and pauses if there was no event.
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
        worker.poll_state.begin_polling();
        let moved = match is_first && !self.cores.has_a_core() {
            true => worker.advance_in_shm_coll(),
            false => worker.advance(),
        };
        // The latest completion may be the one that this thread waits for.
        let has_events = worker.engine.event_count() != before;
        if has_events {
            self.wake_finished(&mut worker);
        }
        if moved {
            wait.spin_state.renew(&self.contention, has_events);
            return worker;
        }
        if !has_events
            && worker.waiters.has_due()
            && wait.spin_state.hands_over(&self.handover_backoff)
        {
            wait.polls = false;
            worker.poll_state.stop_polling();
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
        let next = wait.spin_state.next(&self.yield_policy, &self.contention);
        worker.engine.set_oversubscribed(!self.has_a_core());
        if next != NextStep::Spin {
            worker.counters.spinning += wait.spin_state.take_spun();
            if worker.has_loose_ends && self.may_help(&worker) {
                return self.help_while_waiting(worker, wait);
            }
        }
        match next {
            NextStep::Spin => self.release_briefly(worker, std::hint::spin_loop),
            NextStep::YieldToPeer | NextStep::TryYield if worker.shares_core() => {
                self.leave_core(worker, has_events, wait.deadline)
            }
            NextStep::TryYield if self.yield_policy.pays() => self.guess(worker),
            NextStep::YieldToPeer | NextStep::TryYield => worker,
            NextStep::Yield if has_events || !self.is_futile(&worker) => {
                let (worker, took) = self.yield_core(worker);
                wait.spin_state.note_yield(took);
                worker
            }
            NextStep::Yield => self.sleep(worker, wait.deadline),
            NextStep::YieldRound | NextStep::Sleep if has_events => worker,
            NextStep::YieldRound => {
                let (worker, took) = self.yield_core(worker);
                wait.spin_state.note_round(&self.contention, took, Instant::now());
                worker
            }
            NextStep::Sleep => self.sleep(worker, wait.deadline),
        }
    }

    /// Lets other threads take the lock while this one pauses.
    #[inline]
    fn release_briefly<'a>(
        &'a self,
        worker: CombiningGuard<'a, Worker>,
        pause: fn(),
    ) -> CombiningGuard<'a, Worker> {
        drop(worker);
        pause();
        self.lock()
    }

    /// True if a thread that waits for posts would lose its CPU core for long by yielding. Such a thread is woken
    /// once, when all posts are there; a thread that waits for messages is woken for each.
    fn is_futile(&self, worker: &Worker) -> bool {
        worker.is_in_shmem()
            && self.contention.is_oversubscribed()
            && self.contention.is_held_at(Instant::now())
    }

    /// Yields the CPU core as well; returns for how long.
    fn yield_core<'a>(
        &'a self,
        worker: CombiningGuard<'a, Worker>,
    ) -> (CombiningGuard<'a, Worker>, Duration) {
        let began = Instant::now();
        let mut worker = self.release_briefly(worker, std::thread::yield_now);
        let now = Instant::now();
        let took = now - began;
        worker.counters.yields += 1;
        worker.counters.yielding += took;
        if self.cores.has_a_core() {
            // The awaited event may have come meanwhile, and then no later check measures how long the thread was
            // away.
            self.contention.note_pause(took, now);
        } else if worker.is_in_shmem() {
            self.contention.note_yield(took, now);
            if !self.contention.is_oversubscribed() {
                worker.balance_shm_colls(now);
            }
        }
        self.look_at_cores(&mut worker, now);
        (worker, took)
    }

    /// Checks the available CPU cores from time to time, while the calling thread has no answer to give anyway.
    fn look_at_cores(&self, worker: &mut Worker, now: Instant) {
        let is_new = self.cores.look(now, |own| worker.compare_cores(own));
        worker.counters.oversubscription_changes += u64::from(is_new);
    }

    /// Lets a peer on the same CPU core run. If other threads want the core as well, this thread sleeps, because a
    /// yield would cost milliseconds.
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

    /// Yields, and records if that was worthwhile.
    #[cold]
    fn guess<'a>(&'a self, worker: CombiningGuard<'a, Worker>) -> CombiningGuard<'a, Worker> {
        let (mut worker, took) = self.yield_core(worker);
        let before = worker.engine.event_count();
        let event_count = worker.advance();
        self.report(&mut worker, before);
        self.yield_policy.learn(took, event_count);
        worker
    }

    /// Sleeps until the wait is over or this thread is to poll. `next` is woken after the lock is released, because
    /// the kernel may run it at once and it would find the lock taken.
    #[cold]
    fn wait_for_others<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        deadline: Option<Instant>,
        next: Option<Arc<Parker>>,
    ) -> CombiningGuard<'a, Worker> {
        exit_handover::note(&self.myself);
        worker.note_wait();
        let awaited = std::mem::take(&mut worker.awaited);
        let parker = Parker::of_this_thread();
        worker.waiters.add(&parker, awaited);
        worker.counters.waits_without_polling += 1;
        let spin = match self.is_oversubscribed(&worker) {
            true => Duration::ZERO,
            false if self.contention.is_oversubscribed() => self.cores.brief(),
            false => self.cores.spin(),
        };
        self.leave(&mut worker);
        if let Some(next) = &next {
            worker.keep_apart(next, parker.core());
        }
        drop(worker);
        if let Some(next) = next {
            next.wake();
        }
        let is_woken = parker.sleep(spin, deadline);
        let mut worker = self.lock();
        worker.counters.woken += u64::from(is_woken);
        if !is_woken {
            worker.waiters.remove(&parker);
        }
        parker.restore_affinity();
        worker
    }

    /// True if a waiting thread has a CPU core that nobody else wants.
    fn has_a_core(&self) -> bool {
        self.cores.has_a_core() && !self.contention.is_oversubscribed()
    }

    /// True if there are more waiting threads than CPU cores.
    fn is_oversubscribed(&self, worker: &Worker) -> bool {
        worker.waiters.len() >= self.cores.threads()
    }

    /// Wakes the waiting threads whose operations are complete. If CPU cores are few, the polling thread does so
    /// later, when it has nothing for itself.
    #[inline]
    fn wake_finished(&self, worker: &mut Worker) {
        if !worker.waiters.is_empty() {
            self.wake_finished_slow(worker);
        }
    }

    #[cold]
    fn wake_finished_slow(&self, worker: &mut Worker) {
        let Worker { waiters, engine, .. } = worker;
        waiters.find_due(engine);
        if !(worker.poll_state.is_polled_now() && self.is_oversubscribed(worker)) {
            worker.waiters.wake_due();
        }
    }

    /// Ends the polling of the calling thread. If CPU cores are few, it usually returns before another thread has
    /// begun; otherwise the progress thread takes over.
    #[inline]
    fn stop_polling(&self, worker: &mut Worker) {
        worker.poll_state.stop_polling();
        if !worker.waiters.is_empty() && !self.is_oversubscribed(worker) {
            worker.waiters.wake_one();
        }
    }

    /// Wakes a successor after the end of a thread that may have polled for others. If the lock is taken, its
    /// holder may be this very thread, interrupted by a signal; the progress thread then takes over.
    pub(crate) fn resume_polling(&self) {
        if let Some(mut worker) = self.worker.try_lock()
            && !worker.poll_state.is_polled()
        {
            worker.waiters.wake_one();
        }
    }

    /// Sleeps in the kernel until a rail signals, another thread completes something, or time is over.
    #[cold]
    fn sleep<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        deadline: Option<Instant>,
    ) -> CombiningGuard<'a, Worker> {
        worker.waiters.wake_due();
        worker.note_wait();
        let now = Instant::now();
        worker.note_quiet(now);
        self.look_at_cores(&mut worker, now);
        let probed = worker.awaited.probed();
        if worker.prepare_sleep() {
            let former = worker.poll_state.begin_poller_sleep();
            self.wake_thread(&mut worker, former);
            self.claim_precedence(&mut worker);
            self.idle_pollers.suspend();
            drop(worker);
            let limit = deadline.map_or(MAX_SLEEP, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(MAX_SLEEP)
            });
            let limit = self.siblings.rest(limit);
            let slept = self.sleep_on_rails(limit);
            if slept >= limit {
                self.poll_siblings();
            }
            worker = self.lock();
            self.idle_pollers.resume();
            worker.counters.sleeps += 1;
            worker.counters.sleeping += slept;
            if self.cores.has_a_core() {
                self.contention.note_wait(slept, Instant::now());
            }
            worker.poll_state.end_poller_sleep();
        } else if worker.poll_state.is_thread_asleep() {
            // The progress thread sleeps on, and the rails are to signal for it.
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

    /// Raises the scheduling precedence of the calling thread before it sleeps, if other threads want the CPU
    /// cores. The progress thread limits the precedence to the time of a wake-up. Ranks of the job that share cores
    /// leave it out, as they would only preempt each other.
    fn claim_precedence(&self, worker: &mut Worker) {
        let is_alone = self.cores.has_a_core() && self.cores.yield_rounds() == 0;
        if is_alone && self.contention.is_oversubscribed() {
            let was_held = worker.precedence.is_held();
            worker.precedence.claim();
            let is_new = !was_held && worker.precedence.is_held();
            if is_new && !self.thread_handle.call(|| true) {
                worker.precedence.give_up();
            }
        }
    }

    /// Wakes a thread that sleeps on the rails, if one is to be woken.
    #[inline]
    fn wake_thread(&self, worker: &mut Worker, wakeup: Option<Wakeup>) {
        if let Some(wakeup) = wakeup {
            self.signal(worker, wakeup);
        }
    }

    #[cold]
    fn signal(&self, worker: &mut Worker, wakeup: Wakeup) {
        let event = match wakeup {
            Wakeup::Poller => &self.poller_event,
            Wakeup::ProgressThread => &self.thread_event,
        };
        worker.counters.wakeups += 1;
        event::signal(event);
    }

    /// Sleeps until a rail signals, another thread wakes the polling one, or time is over. Returns the duration.
    fn sleep_on_rails(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        let mut events = [
            PollFd::new(&self.rails_epoll, PollFlags::IN),
            PollFd::new(&self.poller_event, PollFlags::IN),
        ];
        event::wait(&mut events, Some(limit));
        if !events[1].revents().is_empty() {
            event::clear(&self.poller_event);
        }
        began.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.idle_pollers.end();
    }
}

/// Longest sleep between two checks of the rails, so that no lost signal can stop a job.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(500);

/// Time without polls after which an application with pending work counts as computing.
pub(crate) const AWAY: Duration = Duration::from_micros(500);
pub(crate) const OVERSUBSCRIBED_AWAY: Duration = Duration::from_millis(4);
