//! Calls from the application's threads: at once, or waiting.

mod copying;
mod several;
mod standing_in;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::PullId;
use lock::{Desk, Seat};
use rustix::event::{PollFd, PollFlags, epoll};

use wire::PeerId;

use crate::beside::Beside;
use crate::copies::timed;
use crate::core::Core;
use crate::cores::Cores;
use crate::crowding::Crowding;
use crate::event;
use crate::idle::Idle;
use crate::policy::{Courtesy, Next, Patience, Policy};
use crate::sleeper::Sleeper;
use crate::standby::{Standby, Summons};
use crate::submissions::Slip;
use crate::succession;
use crate::tasks::Task;
use crate::trust::Trust;
use crate::vain::{NAP, Vain};
use crate::waiters::Awaited;
use crate::watch::Bell;

/// The communication of one process, shared by its threads.
pub struct Progress {
    core: Desk<Core>,
    /// Becomes readable when any rail rings.
    bells: OwnedFd,
    /// Wakes the polling thread from another one.
    wake: OwnedFd,
    /// Wakes the thread that stands by.
    relief: Arc<OwnedFd>,
    /// As in the core.
    has_held_copies: Arc<AtomicBool>,
    cores: Cores,
    courtesy: Courtesy,
    crowding: Crowding,
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
    copies: Option<PullId>,
}

impl Progress {
    /// Joins `core` with a waiting `policy`.
    ///
    /// # Errors
    /// When the kernel gives no epoll or event descriptor.
    pub fn new(core: Core, policy: Policy) -> std::io::Result<Arc<Self>> {
        Self::with(core, policy, &Standby::new()?)
    }

    /// As [`Progress::new`], for another communication of the same process: one thread stands by for both.
    ///
    /// # Errors
    /// As [`Progress::new`].
    pub fn new_beside(&self, core: Core, policy: Policy) -> std::io::Result<Arc<Self>> {
        Self::with(core, policy, &self.summons.standby)
    }

    fn with(mut core: Core, policy: Policy, standby: &Arc<Standby>) -> std::io::Result<Arc<Self>> {
        let bells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (wake, relief) = (event::new()?, Arc::new(event::new()?));
        let readable = epoll::EventFlags::IN;
        for descriptor in core.descriptors() {
            epoll::add(&bells, descriptor, epoll::EventData::new_u64(1), readable)?;
        }
        let idle = Arc::new(Idle::new(Arc::clone(&relief), Arc::clone(&standby.bell)));
        core.idle = Some(Arc::clone(&idle));
        let slips = Slip::all(&mut core);
        let has_held_copies = Arc::clone(&core.has_held_copies);
        Ok(Arc::new_cyclic(|myself| {
            core.owner = Weak::clone(myself);
            Self {
                core: Desk::new(slips, core),
                bells,
                wake,
                relief,
                has_held_copies,
                cores: Cores::new(policy),
                courtesy: Courtesy::default(),
                crowding: Crowding::beside(Arc::clone(&idle.awake)),
                holding_up: Trust::new(),
                vain: Vain::new(),
                summons: standby.watch(Weak::clone(myself)),
                idle,
                beside: Beside::default(),
                myself: Weak::clone(myself),
            }
        }))
    }

    /// Runs a command and sends at once what follows from it.
    #[inline]
    pub fn submit<T>(&self, command: impl FnOnce(&mut Core) -> T) -> T {
        self.submit_seated(self.lock(), command)
    }

    #[inline]
    pub(crate) fn submit_seated<T>(
        &self,
        mut core: Seat<'_, Core>,
        command: impl FnOnce(&mut Core) -> T,
    ) -> T {
        core.is_in_call = true;
        let before = core.engine.news();
        let result = command(&mut core);
        core.settle();
        self.report(&mut core, before);
        self.end_call(core);
        result
    }

    /// Begins a task; it has gone on as far as it can.
    pub fn begin(&self, task: Box<dyn Task>) {
        self.submit(|core| core.add_task(task));
    }

    /// Polls once, then asks.
    #[inline]
    pub fn test<T>(&self, question: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        core.is_in_call = true;
        core.counters.polls_by_tests += 1;
        let before = core.engine.news();
        core.advance();
        core = self.work(core);
        let answer = question(&mut core);
        core.settle();
        self.report(&mut core, before);
        self.end_call(core);
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
        core.settle();
        self.report(&mut core, before);
        self.wait_locked(core, None, |core| ready(core, &submitted))
            .unwrap_or_else(|| unreachable!())
    }

    /// Polls until `ready` answers. What it submits is sent. Part of its callers: most find the answer there at once.
    #[inline(always)]
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
        let mut core = self.lock();
        core.waiters.wake_all();
        let bell = core.watch.hears_news();
        self.ring(&mut core, bell);
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
        let mut core = self.lock();
        self.look_at_cores(&mut core, now);
        if !self.cores.has_a_core() {
            return;
        }
        self.crowding.note_wait(lasting, now);
        if self.crowding.is_crowded() && self.crowding.is_crowded_at(now) {
            let before = core.engine.news();
            let is_news = |core: &mut Core| (core.engine.news() != before).then_some(());
            self.wait_locked(core, Some(now + NAP), is_news);
            self.vain.have_waited(Instant::now());
        }
    }

    /// At which threads meet.
    #[inline]
    pub(crate) fn core(&self) -> &Desk<Core> {
        &self.core
    }

    /// Whether messages that were copied wait for their peers.
    pub(crate) fn has_held_copies(&self) -> &AtomicBool {
        &self.has_held_copies
    }

    #[inline]
    fn lock(&self) -> Seat<'_, Core> {
        self.core.lock()
    }

    #[inline]
    fn end_call(&self, core: Seat<'_, Core>) {
        let mut core = self.work(core);
        self.leave(&mut core);
        core.is_in_call = false;
    }

    /// Lets tasks compute what they have to, without the core; a call copies what nobody is at as well.
    #[inline]
    fn work<'a>(&'a self, core: Seat<'a, Core>) -> Seat<'a, Core> {
        if core.has_loose_ends { self.work_for_tasks(core) } else { core }
    }

    #[cold]
    fn work_for_tasks<'a>(&'a self, mut core: Seat<'a, Core>) -> Seat<'a, Core> {
        let is_in_call = core.is_in_call;
        let mut copies = None;
        loop {
            while let Some(mut task) = core.take_work() {
                self.leave(&mut core);
                core.is_in_call = false;
                drop(core);
                let ((), took) = timed(|| task.work());
                core = self.lock();
                core.is_in_call = is_in_call;
                core.note_work(took);
                let before = core.engine.news();
                core.add_task(task);
                self.report(&mut core, before);
                self.leave(&mut core);
            }
            if !is_in_call || !core.has_pieces(copies) {
                return core;
            }
            core = self.copy_next(core, &mut copies);
        }
    }

    /// Sees that somebody brings to its end what a call leaves behind.
    #[inline]
    pub(crate) fn leave(&self, core: &mut Core) {
        if core.is_left_behind() {
            self.hand_over(core);
        }
    }

    pub(crate) fn hand_over(&self, core: &mut Core) {
        if !self.summons.call() {
            // The system gave no thread: nobody sends what is gathered later, or wakes those who are due.
            core.stop_gathering();
            core.waiters.wake_due();
            if !core.watch.is_polled() {
                core.waiters.wake_one();
            }
        }
        // Who sleeps has not asked the rails for room, and copies nothing.
        if core.has_backlog() || (core.has_loose_ends && core.has_pieces(None)) {
            let bell = core.watch.hears_backlog();
            self.ring(core, bell);
        }
    }

    /// Tells waiting threads that something completed.
    #[inline]
    pub(crate) fn report(&self, core: &mut Core, before: u64) {
        if core.engine.news() != before {
            self.tell(core);
            let bell = core.watch.hears_news();
            self.ring(core, bell);
        }
    }

    #[inline(always)]
    fn wait_locked<'a, T>(
        &'a self,
        mut core: Seat<'a, Core>,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        let patience = Patience::new(&self.cores);
        let mut wait = Wait { polls: false, attentive: false, patience, deadline, copies: None };
        loop {
            let before = core.engine.news();
            core.awaited = Awaited::News;
            core.asker_polls = wait.polls;
            let answer = ready(&mut core);
            core.settle();
            if answer.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.end_wait(core, &wait, before);
                return answer;
            }
            core = if core.has_loose_ends && self.is_wanted(&core, &wait) {
                self.work_meanwhile(core, &mut wait, before)
            } else if !wait.polls && core.watch.is_polled() {
                self.leave_it_to_others(core, &wait, before)
            } else {
                self.poll(core, &mut wait, before)
            };
        }
    }

    #[inline(always)]
    fn end_wait(&self, mut core: Seat<'_, Core>, wait: &Wait<'_>, before: u64) {
        if wait.attentive {
            core.set_attentive(false);
        }
        self.report(&mut core, before);
        if wait.polls {
            wait.patience.end(&self.holding_up);
            self.stop_polling(&mut core);
        }
        self.leave(&mut core);
        drop(self.work(core));
    }

    /// Computes for tasks, or copies a piece of a long message; others poll meanwhile.
    #[cold]
    fn work_meanwhile<'a>(
        &'a self,
        mut core: Seat<'a, Core>,
        wait: &mut Wait<'_>,
        before: u64,
    ) -> Seat<'a, Core> {
        self.report(&mut core, before);
        if std::mem::take(&mut wait.polls) {
            self.stop_polling(&mut core);
        }
        if core.has_work() {
            return self.work(core);
        }
        let core = self.copy_next(core, &mut wait.copies);
        wait.patience.renew(&self.crowding, true);
        core
    }

    /// Another thread polls.
    fn leave_it_to_others<'a>(
        &'a self,
        mut core: Seat<'a, Core>,
        wait: &Wait<'_>,
        before: u64,
    ) -> Seat<'a, Core> {
        core.release_gathered();
        core.flush();
        self.report(&mut core, before);
        match core.engine.news() == before {
            true if core.has_loose_ends && self.may_help(&core) => self.help(core),
            true => self.wait_for_others(core, wait.deadline, None),
            // What has just completed may be what this thread waits for.
            false => core,
        }
    }

    /// Polls once for all threads, and pauses if nothing moved.
    #[inline(always)]
    fn poll<'a>(
        &'a self,
        mut core: Seat<'a, Core>,
        wait: &mut Wait<'_>,
        before: u64,
    ) -> Seat<'a, Core> {
        let is_first = !std::mem::replace(&mut wait.polls, true);
        if !wait.attentive && core.engine.has_offers() && self.cores.has_a_core() {
            wait.attentive = true;
            core.set_attentive(true);
        }
        core.watch.begin_polling();
        let moved = match is_first && !self.cores.has_a_core() {
            true => core.advance_at_board(),
            false => core.advance(),
        };
        // What has just completed may be what this thread waits for.
        let is_news = core.engine.news() != before;
        if is_news {
            self.tell(&mut core);
        }
        if moved {
            wait.patience.renew(&self.crowding, is_news);
            return core;
        }
        if !is_news && core.waiters.has_due() && wait.patience.gives_way(&self.holding_up) {
            wait.polls = false;
            core.watch.stop_polling();
            let next = core.waiters.next_due();
            return self.wait_for_others(core, wait.deadline, next);
        }
        self.pause_between_polls(core, wait, is_news)
    }

    #[inline(always)]
    fn pause_between_polls<'a>(
        &'a self,
        mut core: Seat<'a, Core>,
        wait: &mut Wait<'_>,
        is_news: bool,
    ) -> Seat<'a, Core> {
        let next = wait.patience.next(&self.courtesy, &self.crowding);
        core.engine.set_crowded(!self.has_a_core());
        if next != Next::Spin {
            core.counters.spinning += wait.patience.take_spun();
            if core.has_loose_ends && self.may_help(&core) {
                return self.help_while_waiting(core, wait);
            }
        }
        match next {
            Next::Spin => self.breathe(core, std::hint::spin_loop),
            Next::Look | Next::Guess if core.shares_core() => {
                self.leave_core(core, is_news, wait.deadline)
            }
            Next::Guess if self.courtesy.pays() => self.guess(core),
            Next::Look | Next::Guess => core,
            Next::Yield if is_news || !self.is_futile(&core) => {
                let (core, took) = self.yield_core(core);
                wait.patience.note_yield(took);
                core
            }
            Next::Yield => self.sleep(core, wait.deadline),
            Next::Turn | Next::Sleep if is_news => core,
            Next::Turn => {
                let (core, took) = self.yield_core(core);
                wait.patience.note_turn(&self.crowding, took, Instant::now());
                core
            }
            Next::Sleep => self.sleep(core, wait.deadline),
        }
    }

    /// Lets other threads take the lock while this one pauses.
    #[inline]
    fn breathe<'a>(&'a self, core: Seat<'a, Core>, pause: fn()) -> Seat<'a, Core> {
        drop(core);
        pause();
        self.lock()
    }

    /// Whether others have the core for long after a yield of a thread that waits for posts. Such a thread is woken
    /// once, when all are there; who waits for messages is woken for each.
    fn is_futile(&self, core: &Core) -> bool {
        core.is_at_board() && self.crowding.is_crowded() && self.crowding.is_held_at(Instant::now())
    }

    /// Gives the processor's core away as well; says for how long.
    fn yield_core<'a>(&'a self, core: Seat<'a, Core>) -> (Seat<'a, Core>, Duration) {
        let began = Instant::now();
        let mut core = self.breathe(core, std::thread::yield_now);
        let now = Instant::now();
        let took = now - began;
        core.counters.yields += 1;
        core.counters.yielding += took;
        if self.cores.has_a_core() {
            // What the thread waits for may have come meanwhile: then nobody asks again how long it was away.
            self.crowding.note_pause(took, now);
        } else if core.is_at_board() {
            self.crowding.note_yield(took, now);
            if !self.crowding.is_crowded() {
                core.even_out(now);
            }
        }
        self.look_at_cores(&mut core, now);
        (core, took)
    }

    /// The calling thread does not answer at once anyway: sees to it, now and then, that it waits as the cores that there
    /// are allow.
    fn look_at_cores(&self, core: &mut Core, now: Instant) {
        let is_new = self.cores.look(now, |own| core.compare_cores(own));
        core.counters.changes_of_cores += u64::from(is_new);
    }

    /// Lets a peer on the same core run. To yield where others want it as well would be to have it back after
    /// milliseconds.
    fn leave_core<'a>(
        &'a self,
        core: Seat<'a, Core>,
        is_news: bool,
        deadline: Option<Instant>,
    ) -> Seat<'a, Core> {
        match self.crowding.is_crowded() {
            true if is_news => core,
            true => self.sleep(core, deadline),
            false => self.yield_core(core).0,
        }
    }

    /// Yields, and learns whether that paid.
    #[cold]
    fn guess<'a>(&'a self, core: Seat<'a, Core>) -> Seat<'a, Core> {
        let (mut core, took) = self.yield_core(core);
        let before = core.engine.news();
        let news = core.advance();
        self.report(&mut core, before);
        self.courtesy.learn(took, news);
        core
    }

    /// Sleeps until the wait is over, or this thread is to poll. Who is `next` is woken without the lock, which it would
    /// find taken otherwise: the kernel lets it go on at once.
    #[cold]
    fn wait_for_others<'a>(
        &'a self,
        mut core: Seat<'a, Core>,
        deadline: Option<Instant>,
        next: Option<Arc<Sleeper>>,
    ) -> Seat<'a, Core> {
        succession::note(&self.myself);
        let awaited = std::mem::take(&mut core.awaited);
        let sleeper = Sleeper::of_this_thread();
        core.waiters.add(&sleeper, awaited);
        core.counters.waits_for_others += 1;
        let spin = match self.is_crowded(&core) {
            true => Duration::ZERO,
            false if self.crowding.is_crowded() => self.cores.brief(),
            false => self.cores.spin(),
        };
        self.leave(&mut core);
        if let Some(next) = &next {
            core.keep_apart(next, sleeper.core());
        }
        drop(core);
        if let Some(next) = next {
            next.wake();
        }
        let is_woken = sleeper.sleep(spin, deadline);
        let mut core = self.lock();
        core.counters.woken += u64::from(is_woken);
        if !is_woken {
            core.waiters.remove(&sleeper);
        }
        sleeper.be_free();
        core
    }

    /// Whether a thread that waits has a core, and nobody else wants it.
    fn has_a_core(&self) -> bool {
        self.cores.has_a_core() && !self.crowding.is_crowded()
    }

    /// Whether more threads wait than have a core each.
    fn is_crowded(&self, core: &Core) -> bool {
        core.waiters.len() >= self.cores.threads()
    }

    /// Wakes the threads that wait for others and need not any more. Where cores are few they are left
    /// to the polling thread, which gives way when it has nothing for itself.
    #[inline]
    fn tell(&self, core: &mut Core) {
        if !core.waiters.is_empty() {
            self.tell_waiting(core);
        }
    }

    #[cold]
    fn tell_waiting(&self, core: &mut Core) {
        let Core { waiters, engine, .. } = core;
        waiters.find_due(engine);
        if !(core.watch.is_polled_now() && self.is_crowded(core)) {
            core.waiters.wake_due();
        }
    }

    /// The calling thread polls no more. Where cores are few it comes back before another has begun, or
    /// the thread that stands by sees to it.
    #[inline]
    fn stop_polling(&self, core: &mut Core) {
        core.watch.stop_polling();
        if !core.waiters.is_empty() && !self.is_crowded(core) {
            core.waiters.wake_one();
        }
    }

    /// A thread has ended that may have polled for others. What has the core meanwhile may be this thread itself, which a
    /// signal has interrupted: then it is left to the thread that stands by.
    pub(crate) fn succeed(&self) {
        if let Some(mut core) = self.core.try_lock()
            && !core.watch.is_polled()
        {
            core.waiters.wake_one();
        }
    }

    /// Sleeps in the kernel until a rail rings, another thread completes something, or time is over.
    #[cold]
    fn sleep<'a>(&'a self, mut core: Seat<'a, Core>, deadline: Option<Instant>) -> Seat<'a, Core> {
        core.waiters.wake_due();
        self.look_at_cores(&mut core, Instant::now());
        let probed = core.awaited.probed();
        if core.prepare_sleep() {
            let relieved = core.watch.lie_down();
            self.ring(&mut core, relieved);
            self.go_first(&mut core);
            self.idle.dismiss();
            drop(core);
            let limit = deadline.map_or(MAX_SLEEP, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(MAX_SLEEP)
            });
            let limit = self.beside.rest(limit);
            let slept = self.wait_for_bell(limit);
            if slept >= limit {
                self.look_beside();
            }
            core = self.lock();
            self.idle.admit();
            core.counters.sleeps += 1;
            core.counters.sleeping += slept;
            if self.cores.has_a_core() {
                self.crowding.note_wait(slept, Instant::now());
            }
            core.watch.get_up();
        } else if core.watch.is_guarded() {
            // The thread that stands by sleeps on: the rails are to ring for it.
            return core;
        }
        self.finish_sleep(&mut core, probed);
        core
    }

    fn finish_sleep(&self, core: &mut Core, probed: Option<PeerId>) {
        let before = core.engine.news();
        core.finish_sleep(probed);
        self.report(core, before);
    }

    /// The calling thread is about to sleep: where others want the cores it goes before them when it is woken,
    /// and the thread that stands by sees that it does not for longer than that takes. Ranks of the job that share cores would
    /// go before each other.
    fn go_first(&self, core: &mut Core) {
        let is_alone = self.cores.has_a_core() && self.cores.turns() == 0;
        if is_alone && self.crowding.is_crowded() {
            let was_held = core.precedence.is_held();
            core.precedence.claim();
            let is_new = !was_held && core.precedence.is_held();
            if is_new && !self.summons.call() {
                core.precedence.give_up();
            }
        }
    }

    /// Wakes a thread that sleeps on the rails, if one is to be woken.
    #[inline]
    fn ring(&self, core: &mut Core, bell: Option<Bell>) {
        if let Some(bell) = bell {
            self.ring_for(core, bell);
        }
    }

    #[cold]
    fn ring_for(&self, core: &mut Core, bell: Bell) {
        let event = match bell {
            Bell::Wake => &self.wake,
            Bell::Relief => &self.relief,
        };
        core.counters.bells += 1;
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
pub(crate) const CROWDED_AWAY: Duration = Duration::from_millis(4);
