//! Threads that copy long messages, each without the core; see `copies`.

use engine::PullId;
use lock::Seat;

use super::{Progress, Wait};
use crate::copies::{PIECE, Piece};
use crate::core::Core;

impl Progress {
    /// Copies the next piece for a thread that is `at` a fetch, or at none.
    pub(super) fn copy_next<'a>(
        &'a self,
        mut core: Seat<'a, Core>,
        at: &mut Option<PullId>,
    ) -> Seat<'a, Core> {
        let Some(piece) = core.take_piece(*at) else { return core };
        *at = Some(piece.of());
        self.copy(core, &piece)
    }

    /// Copies a piece of what others are at.
    #[cold]
    pub(super) fn help<'a>(&'a self, mut core: Seat<'a, Core>) -> Seat<'a, Core> {
        let Some(piece) = core.take_any_piece() else { return core };
        self.copy(core, &piece)
    }

    /// As [`Progress::help`], by the thread that polls: it has a fresh patience afterwards.
    #[cold]
    pub(super) fn help_while_waiting<'a>(
        &'a self,
        core: Seat<'a, Core>,
        wait: &mut Wait<'_>,
    ) -> Seat<'a, Core> {
        let core = self.help(core);
        wait.patience.renew(&self.crowding, true);
        core
    }

    /// Whether a thread that waits is to compute, or to copy.
    #[cold]
    #[inline(never)]
    pub(super) fn is_wanted(&self, core: &Core, wait: &Wait<'_>) -> bool {
        core.has_work() || core.has_pieces(wait.copies)
    }

    /// Whether a thread that has nothing else to do copies as well: it has a core beside those who are at it.
    #[cold]
    #[inline(never)]
    pub(super) fn may_help(&self, core: &Core) -> bool {
        core.copies.left_bytes() > 0
            && core.copies.in_hand() < self.cores.threads()
            && self.has_a_core()
    }

    /// Copies a piece while others have the core. Who waits or stands by polls afterwards, if nobody else does: a long
    /// message holds up nothing for longer than a piece takes.
    fn copy<'a>(&'a self, mut core: Seat<'a, Core>, piece: &Piece) -> Seat<'a, Core> {
        self.call_for_help(&mut core);
        let is_in_call = std::mem::take(&mut core.is_in_call);
        drop(core);
        let (is_copied, took) = piece.copy();
        let mut core = self.lock();
        core.is_in_call = is_in_call;
        let before = core.engine.news();
        core.give_back(piece, is_copied, took);
        if !is_in_call && !core.watch.is_polled() {
            core.advance();
        }
        self.report(&mut core, before);
        core
    }

    /// Wakes one that sleeps, where so much is left that it comes in time. Who is awake sees for itself.
    fn call_for_help(&self, core: &mut Core) {
        if core.copies.left_bytes() < WORTH_WAKING || !self.may_help(core) {
            return;
        }
        match core.watch.hears_news() {
            None => core.waiters.wake_one(),
            bell => self.ring(core, bell),
        }
    }
}

/// Others copy so much while a thread is woken.
const WORTH_WAKING: usize = 2 * PIECE;
