//! Handover of polling by a thread that ends.
//!
//! If CPU cores are few, a thread that stops polling wakes nobody, because it usually polls again before another
//! could begin. A thread that ends does not return, and the progress thread would notice late.

use std::cell::RefCell;
use std::sync::Weak;

use crate::wait::Progress;

/// Notes that the calling thread has waited in `progress`; at its end, another waiting thread goes on.
pub(crate) fn note(progress: &Weak<Progress>) {
    // A thread that is already ending hands over nothing.
    let _ = HEIR.try_with(|heir| {
        let mut heir = heir.0.borrow_mut();
        if !heir.as_ref().is_some_and(|(known, _)| Weak::ptr_eq(known, progress)) {
            *heir = Some((Weak::clone(progress), std::process::id()));
        }
    });
}

/// The communication in which the thread waited last, and its process id: a forked process has no part in it.
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
