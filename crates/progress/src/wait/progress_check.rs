//! Work of the progress thread in one VCI.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lock::CombiningGuard;

use super::{AWAY, OVERSUBSCRIBED_AWAY, Progress};
use crate::event;
use crate::locality::Locality;
use crate::progress_thread::{CheckCause, CheckResult, RestPeriod};
use crate::worker::Worker;

impl Progress {
    /// Does one check of the progress thread; afterwards `seen` is the worker's poll tick. If no thread has polled
    /// since the last check, it polls until another thread does or it is to sleep on the rails. If an idle poller
    /// has signalled, it polls until its events are handled. If `rest` allows it, it skips a worker whose lock is
    /// taken. If `is_shared`, it checks other VCIs between two polls. After a sleep while nothing was pending it polls
    /// once.
    pub(crate) fn run_check(
        &self,
        seen: &mut u64,
        cause: CheckCause,
        rest: &mut RestPeriod,
        is_shared: bool,
    ) -> CheckResult {
        let is_woken = cause == CheckCause::Woken;
        let mut worker = match cause {
            CheckCause::Slept(slept) => self.end_thread_sleep(slept),
            CheckCause::Due | CheckCause::Woken | CheckCause::Lapsed => {
                match self.begin_check(seen, is_woken, rest) {
                    Ok(worker) => worker,
                    Err(look) => return look,
                }
            }
        };
        if cause == CheckCause::Lapsed {
            if worker.tick() == *seen && !worker.poll_state.is_asleep() {
                let before = worker.engine.event_count();
                worker.counters.polls_by_progress_thread += 1;
                worker.advance();
                self.report(&mut worker, before);
            }
            *seen = worker.tick();
        }
        let (mut copies, mut has_moved) = (None, false);
        loop {
            worker.look_at_backlog();
            if !worker.is_left_behind() {
                self.thread_handle.begin_idle_rest();
                return CheckResult::Idle;
            }
            // Another polling thread copies it next.
            if !worker.poll_state.is_polled_now() && worker.has_pieces(copies) {
                worker = self.copy_next(worker, &mut copies);
                continue;
            }
            if worker.poll_state.is_asleep() {
                return CheckResult::Watched;
            }
            if worker.poll_state.is_polled() || worker.tick() != *seen {
                *seen = worker.tick();
                if is_woken && !has_moved {
                    self.idle_pollers.learn(false);
                }
                return CheckResult::Polled(self.rest_after(&worker, rest));
            }
            let before = worker.engine.event_count();
            worker.counters.polls_by_progress_thread += 1;
            let moved = worker.advance();
            worker = self.work(worker);
            *seen = worker.tick();
            self.report(&mut worker, before);
            if moved {
                self.idle_pollers.call();
            }
            if is_woken && (moved || !has_moved) {
                self.idle_pollers.learn(moved);
            }
            has_moved |= moved;
            if is_woken && !moved && !worker.has_pieces(copies) {
                return CheckResult::Polled(self.rest_after(&worker, rest));
            }
            worker = match moved || worker.has_pieces(copies) {
                true if is_shared && !is_woken => return CheckResult::Moved,
                true => self.release_briefly(worker, std::hint::spin_loop),
                false => match self.begin_thread_sleep(worker) {
                    None => return CheckResult::Sleeps,
                    Some(worker) => worker,
                },
            };
        }
    }

    /// Wakes the threads that are due and releases coalesced messages, which may be all the work of a check.
    fn begin_check(
        &self,
        seen: &mut u64,
        is_woken: bool,
        rest: &mut RestPeriod,
    ) -> Result<CombiningGuard<'_, Worker>, CheckResult> {
        let mut worker = self.lock_for_check(is_woken, rest).ok_or(CheckResult::Locked)?;
        worker.counters.checks_by_progress_thread += 1;
        self.idle_pollers.call_for(worker.engine.event_count());
        worker.precedence.look();
        if worker.is_coalescing() {
            let before = worker.engine.event_count();
            worker.release_coalesced();
            worker.flush();
            self.report(&mut worker, before);
            return Err(CheckResult::Coalesced);
        }
        // A polling thread may be between two waits.
        if is_woken {
            *seen = worker.tick();
        }
        let is_polled = worker.poll_state.is_polled() || worker.tick() != *seen;
        if worker.waiters.relieve(is_polled, Instant::now()) {
            rest.shorten();
        }
        Ok(worker)
    }

    /// Takes the lock for a check. A failed `try_lock` is skipped at first, since this thread may have preempted
    /// the holder on their only CPU core.
    fn lock_for_check(
        &self,
        is_woken: bool,
        rest: &mut RestPeriod,
    ) -> Option<CombiningGuard<'_, Worker>> {
        match self.worker.try_lock() {
            None if !is_woken && rest.passes() => None,
            Some(worker) => Some(worker),
            None => Some(self.lock()),
        }
    }

    /// Starts idle pollers on free CPU cores while the progress thread is needed.
    pub(crate) fn start_idle_pollers(&self) {
        self.update_locality();
        self.idle_pollers.review(self.cores.idle_pollers(), || self.lock().readiness_probes());
        self.idle_pollers.call();
    }

    /// Updates the NUMA and cache domains of the process's present CPU cores, so that work is taken where it is
    /// nearest.
    fn update_locality(&self) {
        if !self.lock().locality.is_due(Instant::now()) {
            return;
        }
        let Some(cores) = topo::domains::of_process() else { return };
        if self.lock().locality.is_of(&cores) {
            return;
        }
        let locality = Locality::new(cores, topo::domains::locate());
        self.lock().locality = locality;
    }

    /// True if work is pending and no thread sleeps on the rails. The second value is the time until a raised
    /// precedence is to be checked.
    pub(crate) fn is_unattended(&self) -> (bool, Option<Duration>) {
        let worker = self.lock();
        // A sleeping thread does not send coalesced messages.
        let is_watched = worker.poll_state.is_asleep() && !worker.is_coalescing();
        (worker.is_left_behind() && !is_watched, worker.precedence.rest())
    }

    /// Arms the rails to signal the progress thread, which is about to sleep. Returns the lock if a rail has an
    /// event already.
    fn begin_thread_sleep<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
    ) -> Option<CombiningGuard<'a, Worker>> {
        if !worker.prepare_sleep() {
            self.finish_sleep(&mut worker, None);
            return Some(worker);
        }
        worker.poll_state.begin_thread_sleep();
        drop(worker);
        self.idle_pollers.thread_sleep.open();
        None
    }

    /// Ends the sleep of the progress thread, which lasted for `slept`.
    fn end_thread_sleep(&self, slept: Duration) -> CombiningGuard<'_, Worker> {
        self.idle_pollers.thread_sleep.close();
        let mut worker = self.lock();
        worker.counters.sleeps_by_progress_thread += 1;
        worker.counters.progress_thread_sleeping += slept;
        if worker.poll_state.end_thread_sleep() {
            self.finish_sleep(&mut worker, None);
        }
        worker
    }

    /// Descriptors that wake the progress thread while it sleeps on the rails: the rails and the other threads.
    pub(crate) fn rail_events(&self) -> [&OwnedFd; Self::DESCRIPTORS] {
        [&self.rails_epoll, &self.thread_event]
    }

    /// Number of those descriptors.
    pub(crate) const DESCRIPTORS: usize = 2;

    /// Resets the eventfd if it was among those that have signalled.
    pub(crate) fn clear_events(&self, woken: &[bool]) {
        if woken.last() == Some(&true) {
            event::clear(&self.thread_event);
        }
    }

    /// Returns the pause of the progress thread while others poll: the time without polls after which the
    /// application counts as away. It is longer if ranks share CPU cores, as a rank may wait for its core. It stays
    /// short with a backlog, which would soon leave the link idle.
    fn rest_after(&self, worker: &Worker, rest: &mut RestPeriod) -> Duration {
        let is_soon = worker.has_backlog() || self.has_a_core();
        match worker.waiters.is_empty() {
            false => return rest.lengthen(),
            true => rest.shorten(),
        }
        if is_soon { AWAY } else { OVERSUBSCRIBED_AWAY }
    }
}
