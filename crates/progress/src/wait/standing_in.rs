//! Work of the progress thread in one communication.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lock::CombiningGuard;

use super::{AWAY, OVERSUBSCRIBED_AWAY, Progress};
use crate::event;
use crate::locality::Places;
use crate::progress_thread::{Cause, Look, Rest};
use crate::worker::Worker;

impl Progress {
    /// Does one check of the progress thread; afterwards `seen` is the worker's poll tick. If no thread has polled
    /// since the last check, it polls until another thread does or it is to sleep on the rails. If an idle poller
    /// has signalled, it polls until its events are handled. If `rest` allows it, it skips a worker whose lock is
    /// taken. If `is_shared`, it looks after other communications between two polls.
    pub(crate) fn stand_in(
        &self,
        seen: &mut u64,
        cause: Cause,
        rest: &mut Rest,
        is_shared: bool,
    ) -> Look {
        let is_rung = cause == Cause::Rung;
        let mut worker = match cause {
            Cause::Slept(slept) => self.end_guard(slept),
            Cause::Due | Cause::Rung => match self.begin_look(seen, is_rung, rest) {
                Ok(worker) => worker,
                Err(look) => return look,
            },
        };
        let (mut copies, mut has_moved) = (None, false);
        loop {
            worker.look_at_backlog();
            if !worker.is_left_behind() {
                return Look::Idle;
            }
            // Another polling thread copies it next.
            if !worker.watch.is_polled_now() && worker.has_pieces(copies) {
                worker = self.copy_next(worker, &mut copies);
                continue;
            }
            if worker.watch.is_asleep() {
                return Look::Relieved;
            }
            if worker.watch.is_polled() || worker.turn() != *seen {
                *seen = worker.turn();
                if is_rung && !has_moved {
                    self.idle.learn(false);
                }
                return Look::Covered(self.rest_after(&worker, rest));
            }
            let before = worker.engine.event_count();
            worker.counters.polls_by_progress_thread += 1;
            let moved = worker.advance();
            worker = self.work(worker);
            *seen = worker.turn();
            self.report(&mut worker, before);
            if moved {
                self.idle.call();
            }
            if is_rung && (moved || !has_moved) {
                self.idle.learn(moved);
            }
            has_moved |= moved;
            if is_rung && !moved && !worker.has_pieces(copies) {
                return Look::Covered(self.rest_after(&worker, rest));
            }
            worker = match moved || worker.has_pieces(copies) {
                true if is_shared && !is_rung => return Look::Moved,
                true => self.breathe(worker, std::hint::spin_loop),
                false => match self.begin_guard(worker) {
                    None => return Look::Guards,
                    Some(worker) => worker,
                },
            };
        }
    }

    /// Wakes the threads that are due and releases coalesced messages, which may be all the work of a check.
    fn begin_look(
        &self,
        seen: &mut u64,
        is_rung: bool,
        rest: &mut Rest,
    ) -> Result<CombiningGuard<'_, Worker>, Look> {
        let mut worker = self.core_for_look(is_rung, rest).ok_or(Look::Passed)?;
        worker.counters.looks_by_progress_thread += 1;
        self.idle.call_for(worker.engine.event_count());
        worker.precedence.look();
        if worker.is_coalescing() {
            let before = worker.engine.event_count();
            worker.release_coalesced();
            worker.flush();
            self.report(&mut worker, before);
            return Err(Look::Coalesced);
        }
        // A polling thread may be between two waits.
        if is_rung {
            *seen = worker.turn();
        }
        let is_polled = worker.watch.is_polled() || worker.turn() != *seen;
        if worker.waiters.relieve(is_polled, Instant::now()) {
            rest.shorten();
        }
        Ok(worker)
    }

    /// Takes the lock for a check. A failed `try_lock` is skipped at first, since this thread may have preempted
    /// the holder on their only CPU core.
    fn core_for_look(&self, is_rung: bool, rest: &mut Rest) -> Option<CombiningGuard<'_, Worker>> {
        match self.worker.try_lock() {
            None if !is_rung && rest.passes() => None,
            Some(worker) => Some(worker),
            None => Some(self.lock()),
        }
    }

    /// Starts idle pollers on free CPU cores while the progress thread is needed.
    pub(crate) fn have_looked_on(&self) {
        self.find_places();
        self.idle.review(self.cores.idle_pollers(), || self.lock().readiness_probes());
        self.idle.call();
    }

    /// Updates the NUMA and cache domains of the process's present CPU cores, so that work is taken where it is
    /// nearest.
    fn find_places(&self) {
        if !self.lock().places.is_due(Instant::now()) {
            return;
        }
        let Some(cores) = topo::domains::of_process() else { return };
        if self.lock().places.is_of(&cores) {
            return;
        }
        let places = Places::new(cores, topo::domains::locate());
        self.lock().places = places;
    }

    /// True if work is pending and no thread sleeps on the rails. The second value is the time until a raised
    /// precedence is to be checked.
    pub(crate) fn is_deserted(&self) -> (bool, Option<Duration>) {
        let worker = self.lock();
        // A sleeping thread does not send coalesced messages.
        let is_watched = worker.watch.is_asleep() && !worker.is_coalescing();
        (worker.is_left_behind() && !is_watched, worker.precedence.rest())
    }

    /// Arms the rails to signal the progress thread, which is about to sleep. Returns the lock if a rail has an
    /// event already.
    fn begin_guard<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
    ) -> Option<CombiningGuard<'a, Worker>> {
        if !worker.prepare_sleep() {
            self.finish_sleep(&mut worker, None);
            return Some(worker);
        }
        worker.watch.begin_guard();
        drop(worker);
        self.idle.guarded.open();
        None
    }

    /// Ends the sleep of the progress thread, which lasted for `slept`.
    fn end_guard(&self, slept: Duration) -> CombiningGuard<'_, Worker> {
        self.idle.guarded.close();
        let mut worker = self.lock();
        worker.counters.sleeps_of_progress_thread += 1;
        worker.counters.progress_thread_sleeping += slept;
        if worker.watch.end_guard() {
            self.finish_sleep(&mut worker, None);
        }
        worker
    }

    /// Descriptors that wake the progress thread while it sleeps on the rails: the rails and the other threads.
    pub(crate) fn bells(&self) -> [&OwnedFd; Self::BELLS] {
        [&self.bells, &self.relief]
    }

    /// Number of those descriptors.
    pub(crate) const BELLS: usize = 2;

    /// Resets the eventfd if it was among those that have signalled.
    pub(crate) fn silence(&self, rung: &[bool]) {
        if rung.last() == Some(&true) {
            event::clear(&self.relief);
        }
    }

    /// Returns the pause of the progress thread while others poll: the time without polls after which the
    /// application counts as away. It is longer if ranks share CPU cores, as a rank may wait for its core. It stays
    /// short with a backlog, which would soon leave the link idle.
    fn rest_after(&self, worker: &Worker, rest: &mut Rest) -> Duration {
        let is_soon = worker.has_backlog() || self.has_a_core();
        match worker.waiters.is_empty() {
            false => return rest.lengthen(),
            true => rest.shorten(),
        }
        if is_soon { AWAY } else { OVERSUBSCRIBED_AWAY }
    }
}
