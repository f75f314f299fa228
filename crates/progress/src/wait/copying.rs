//! Threads that copy long messages, each without the lock; see `copies`.

use engine::RemoteReadId;
use lock::CombiningGuard;

use super::{Progress, Wait};
use crate::copies::{PIECE, Piece};
use crate::worker::Worker;

impl Progress {
    /// Copies the next piece for a thread that works `at` a remote read, or at none.
    pub(super) fn copy_next<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        at: &mut Option<RemoteReadId>,
    ) -> CombiningGuard<'a, Worker> {
        let Some(piece) = worker.take_piece(*at) else { return worker };
        *at = Some(piece.of());
        self.copy(worker, &piece)
    }

    /// Copies a piece of a remote read that others work at.
    #[cold]
    pub(super) fn help<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
    ) -> CombiningGuard<'a, Worker> {
        let Some(piece) = worker.take_any_piece() else { return worker };
        self.copy(worker, &piece)
    }

    /// Copies a piece like [`Progress::help`], for the polling thread, whose spin time then starts anew.
    #[cold]
    pub(super) fn help_while_waiting<'a>(
        &'a self,
        worker: CombiningGuard<'a, Worker>,
        wait: &mut Wait<'_>,
    ) -> CombiningGuard<'a, Worker> {
        let worker = self.help(worker);
        wait.spin_state.renew(&self.contention, true);
        worker
    }

    /// True if a waiting thread is to compute or to copy.
    #[cold]
    #[inline(never)]
    pub(super) fn is_wanted(&self, worker: &Worker, wait: &Wait<'_>) -> bool {
        worker.has_work() || worker.has_pieces(wait.copies)
    }

    /// True if an otherwise idle thread copies as well, because there is a CPU core beside those of the copying
    /// threads.
    #[cold]
    #[inline(never)]
    pub(super) fn may_help(&self, worker: &Worker) -> bool {
        worker.copies.left_bytes() > 0
            && worker.copies.in_progress() < self.cores.threads()
            && self.has_a_core()
    }

    /// Copies a piece without the lock. A waiting thread or the progress thread polls afterwards if nobody else
    /// does, so that a long message delays others by one piece at most.
    fn copy<'a>(
        &'a self,
        mut worker: CombiningGuard<'a, Worker>,
        piece: &Piece,
    ) -> CombiningGuard<'a, Worker> {
        self.call_for_help(&mut worker);
        let is_in_call = std::mem::take(&mut worker.is_in_call);
        drop(worker);
        let (is_copied, took) = piece.copy();
        let mut worker = self.lock();
        worker.is_in_call = is_in_call;
        let before = worker.engine.event_count();
        worker.return_piece(piece, is_copied, took);
        if !is_in_call && !worker.poll_state.is_polled() {
            worker.advance();
        }
        self.report(&mut worker, before);
        worker
    }

    /// Wakes a sleeping thread if enough bytes are left for it to help. Threads that are awake notice by
    /// themselves.
    fn call_for_help(&self, worker: &mut Worker) {
        if worker.copies.left_bytes() < WORTH_WAKING || !self.may_help(worker) {
            return;
        }
        match worker.poll_state.wakeup_for_events() {
            None => worker.waiters.wake_one(),
            wakeup => self.wake_thread(worker, wakeup),
        }
    }
}

/// Number of bytes that others copy while a thread is woken.
const WORTH_WAKING: usize = 2 * PIECE;
