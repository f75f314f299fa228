//! Hand-over of polling when a thread ends.
//!
//! Where cores are few, a thread that stops polling wakes nobody, because it polls again before another thread has
//! begun. A thread that ends does not poll again, and the progress thread would notice late.

use std::cell::RefCell;
use std::sync::Weak;

use crate::wait::Progress;

/// Records that the calling thread has waited in `progress`. When it ends, one of the threads waiting there takes
/// over.
pub(crate) fn note(progress: &Weak<Progress>) {
    // A thread that is already ending records nothing.
    let _ = LAST_WAIT.try_with(|last| {
        let mut last = last.0.borrow_mut();
        if !last.as_ref().is_some_and(|(known, _)| Weak::ptr_eq(known, progress)) {
            *last = Some((Weak::clone(progress), std::process::id()));
        }
    });
}

/// The VCI in which the thread has waited last, and the process: a forked child must not touch it.
struct LastWait(RefCell<Option<(Weak<Progress>, u32)>>);

impl Drop for LastWait {
    fn drop(&mut self) {
        let Some((progress, process)) = self.0.take() else { return };
        if process == std::process::id()
            && let Some(progress) = progress.upgrade()
        {
            progress.resume_polling();
        }
    }
}

thread_local! {
    static LAST_WAIT: LastWait = const { LastWait(RefCell::new(None)) };
}
