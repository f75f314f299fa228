//! The thread that sends what was gathered when the application stays away.
//!
//! Short messages that follow one another sooner than a rail sends them share a frame, which leaves when
//! it is full or at the next call that makes progress. An application that computes instead would keep
//! its last messages back; this thread sends them within some tens of microseconds. It sleeps in the
//! kernel unless messages have been gathered in the last millisecond.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::wait::Progress;

/// The thread's state, and its handle once it was needed.
#[derive(Debug, Default)]
pub(crate) struct Courier {
    /// It is on its rounds, or was called to them.
    awake: AtomicBool,
    /// None where the system gave no thread.
    thread: OnceLock<Option<Thread>>,
}

impl Courier {
    /// Calls the thread to its rounds; false when there is none.
    #[inline]
    pub fn call(&self, progress: &Weak<Progress>) -> bool {
        if self.awake.load(Ordering::Relaxed) {
            return true;
        }
        self.wake(progress)
    }

    #[cold]
    fn wake(&self, progress: &Weak<Progress>) -> bool {
        let thread = self.thread.get_or_init(|| {
            let progress = Weak::clone(progress);
            let builder = thread::Builder::new().name("canele-courier".into());
            let spawned = builder.stack_size(STACK_BYTES).spawn(move || rounds(&progress));
            spawned.ok().map(|handle| handle.thread().clone())
        });
        let Some(thread) = thread else { return false };
        if !self.awake.swap(true, Ordering::AcqRel) {
            thread.unpark();
        }
        true
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Rounds while messages are gathered, then sleep, until the process's communication is gone.
fn rounds(progress: &Weak<Progress>) {
    let mut quiet = 0;
    loop {
        thread::sleep(ROUND);
        let Some(progress) = progress.upgrade() else { return };
        quiet = if progress.send_gathered() { 0 } else { quiet + 1 };
        if quiet < QUIET_ROUNDS {
            continue;
        }
        quiet = 0;
        let courier = &progress.courier;
        courier.awake.store(false, Ordering::Release);
        // What was gathered before the store would find nobody to call again.
        if progress.look(|core| core.is_gathering()) && !courier.awake.swap(true, Ordering::AcqRel)
        {
            continue;
        }
        drop(progress);
        thread::park();
    }
}

/// Messages wait so long at most, and the kernel's timer slack.
const ROUND: Duration = Duration::from_micros(50);

/// Rounds without work before the thread sleeps.
const QUIET_ROUNDS: u32 = 10;

const STACK_BYTES: usize = 256 << 10;
