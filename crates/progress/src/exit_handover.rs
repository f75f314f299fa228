//! What a thread that ends leaves to others: it may have polled for them.
//!
//! Where cores are few, who stops polling wakes nobody, for it comes back before another has begun. One that ends does
//! not come back, and the progress thread would see it late.

use std::cell::RefCell;
use std::sync::Weak;

use crate::wait::Progress;

/// The calling thread has waited in `progress`: when it ends, one that waits there goes on.
pub(crate) fn note(progress: &Weak<Progress>) {
    // A thread that is ending already leaves nothing.
    let _ = HEIR.try_with(|heir| {
        let mut heir = heir.0.borrow_mut();
        if !heir.as_ref().is_some_and(|(known, _)| Weak::ptr_eq(known, progress)) {
            *heir = Some((Weak::clone(progress), std::process::id()));
        }
    });
}

/// Where the thread has waited last, and in which process: a forked one has no part in it.
struct Heir(RefCell<Option<(Weak<Progress>, u32)>>);

impl Drop for Heir {
    fn drop(&mut self) {
        let Some((progress, process)) = self.0.take() else { return };
        if process == std::process::id()
            && let Some(progress) = progress.upgrade()
        {
            progress.succeed();
        }
    }
}

thread_local! {
    static HEIR: Heir = const { Heir(RefCell::new(None)) };
}
