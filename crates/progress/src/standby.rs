//! The thread that makes progress while the application stays away.
//!
//! An application that computes leaves behind what it has begun: requests that wait for a peer's word,
//! bytes a full socket did not take, short messages that wait for company. This thread brings them to
//! their end. It is called when a call leaves something behind, looks now and then whether somebody else
//! polls, and sleeps in the kernel on all rails once nobody does. While nothing is left behind it sleeps
//! for good; a process that only makes blocking calls never has it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::idle::Idle;
use crate::wait::Progress;

/// The thread's state, and its handle once it was needed.
#[derive(Debug, Default)]
pub(crate) struct Standby {
    /// It looks after things, or was called to.
    awake: AtomicBool,
    /// None where the system gave no thread.
    thread: OnceLock<Option<Thread>>,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Short messages had been gathered, and are sent.
    Gathered,
    /// Somebody else polls: to rest for so long.
    Covered(Duration),
    /// Another thread has the core.
    Passed,
    /// Somebody else sleeps until a rail rings.
    Relieved,
    /// Nothing is left behind.
    Idle,
}

/// How long the thread that stands by rests while threads wait for the one that polls. Each look takes more of theirs
/// than a change of threads, so rests grow while somebody polls, and begin anew when nobody did.
#[derive(Debug)]
pub(crate) struct Rest {
    period: Duration,
    /// Looks in a row that may be given up.
    passes: u32,
}

impl Rest {
    pub fn new() -> Self {
        Self { period: DEFERRED, passes: 0 }
    }

    /// Nobody polled, or no thread waits.
    pub fn shorten(&mut self) {
        *self = Self::new();
    }

    /// Somebody polls for threads that wait; how long to rest.
    pub fn lengthen(&mut self) -> Duration {
        self.passes = PASSES_MAX;
        let longer = (2 * self.period).min(DEFERRED_MAX);
        std::mem::replace(&mut self.period, longer)
    }

    /// Whether this look may be given up, where another thread has the core.
    pub fn passes(&mut self) -> bool {
        let passes = self.passes > 0;
        self.passes = self.passes.saturating_sub(1);
        passes
    }
}

impl Standby {
    /// Calls the thread; false when there is none. The caller holds the core.
    #[inline]
    pub fn call(&self, progress: &Weak<Progress>) -> bool {
        if self.awake.load(Ordering::Relaxed) {
            return true;
        }
        self.wake(progress)
    }

    #[cold]
    fn wake(&self, progress: &Weak<Progress>) -> bool {
        let thread = self.thread.get_or_init(|| spawn(Weak::clone(progress)));
        let Some(thread) = thread else { return false };
        if !self.awake.swap(true, Ordering::AcqRel) {
            thread.unpark();
        }
        true
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Signals are for the application's threads: the new one inherits that all are blocked.
fn spawn(progress: Weak<Progress>) -> Option<Thread> {
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).ok()?;
    let builder = thread::Builder::new().name("canele-standby".into());
    let spawned = builder.stack_size(STACK_BYTES).spawn(move || stand_by(&progress));
    // The set is one the kernel has just given.
    let _ = before.thread_set_mask();
    spawned.ok().map(|handle| handle.thread().clone())
}

/// Looks while something is left behind, then sleeps, until the process's communication is gone.
fn stand_by(progress: &Weak<Progress>) {
    IS_THIS_THREAD.set(true);
    let mut seen = 0;
    let mut idle = 0;
    let mut rest = Rest::new();
    let (mut has_slept, mut is_rung) = (true, false);
    loop {
        let Some(progress) = progress.upgrade() else { return };
        if std::mem::take(&mut has_slept) {
            let is_called = progress.standby.awake.swap(true, Ordering::AcqRel);
            if is_called {
                progress.have_looked_on();
            }
            // Who only looks after threads that go before others sleeps on once it has.
            idle = if is_called { 0 } else { IDLE_LOOKS - 1 };
        }
        let look = progress.stand_in(&mut seen, std::mem::take(&mut is_rung), &mut rest);
        idle = if look == Look::Idle { idle + 1 } else { 0 };
        let period = match look {
            Look::Gathered => Some(GATHERED),
            Look::Idle => (idle < IDLE_LOOKS).then_some(GATHERED),
            Look::Covered(period) => Some(period),
            Look::Passed => Some(rest.period),
            Look::Relieved => None,
        };
        if let Some(period) = period {
            let onlookers = Arc::clone(&progress.idle);
            drop(progress);
            match look {
                Look::Covered(_) | Look::Passed => is_rung = rest_or_hear(&onlookers, period),
                Look::Gathered | Look::Idle | Look::Relieved => thread::sleep(period),
            }
            continue;
        }
        let awake = &progress.standby.awake;
        awake.store(false, Ordering::Release);
        // What was left behind before the store has called nobody.
        let (is_deserted, watch) = progress.is_deserted();
        if is_deserted && !awake.swap(true, Ordering::AcqRel) {
            idle = 0;
            continue;
        }
        drop(progress);
        match watch {
            Some(period) => thread::park_timeout(period),
            None => thread::park(),
        }
        has_slept = true;
    }
}

/// Rests until the next look; whether who looks on has rung meanwhile.
fn rest_or_hear(onlookers: &Idle, period: Duration) -> bool {
    if !onlookers.may_ring() {
        thread::sleep(period);
        return false;
    }
    onlookers.away.open();
    thread::park_timeout(period);
    onlookers.away.close()
}

/// Whether the calling thread is the one that stands by.
pub(crate) fn is_this_thread() -> bool {
    IS_THIS_THREAD.get()
}

thread_local! {
    static IS_THIS_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Gathered messages wait so long at most, and the kernel's timer slack.
pub(crate) const GATHERED: Duration = Duration::from_micros(50);

/// Threads that are due wait so long for a look, when nobody polled at the last one…
const DEFERRED: Duration = Duration::from_micros(100);
/// …and at most.
const DEFERRED_MAX: Duration = Duration::from_micros(400);

/// So many looks in a row are given up.
const PASSES_MAX: u32 = 3;

/// Looks that find nothing before the thread sleeps for good.
pub(crate) const IDLE_LOOKS: u32 = 10;

/// Reduction functions of the application may run on it.
const STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_while_others_poll_and_looks_are_not_given_up_for_ever() {
        let mut rest = Rest::new();
        assert!(!rest.passes(), "nobody is known to wait");
        assert_eq!(rest.lengthen(), DEFERRED);
        assert_eq!(rest.lengthen(), 2 * DEFERRED);
        (0..9).for_each(|_| assert!(rest.lengthen() <= DEFERRED_MAX));
        assert_eq!(rest.lengthen(), DEFERRED_MAX);
        assert_eq!((0..100).take_while(|_| rest.passes()).count(), PASSES_MAX as usize);
        rest.shorten();
        assert!(!rest.passes());
        assert_eq!(rest.lengthen(), DEFERRED);
    }
}
