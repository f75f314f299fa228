//! Precedence of waiting threads over computing threads, if the system permits it.
//!
//! The kernel gives each thread a share of its core. A thread that exchanges short messages uses up its share sooner
//! than the computing threads beside it, however little it does per message. It is then preempted for milliseconds.
//! So a thread that sleeps for messages on contended cores gets a higher priority, if the process may set it. It
//! loses the priority when it has not slept between two checks: it computes then. Resetting it at the end of the wait
//! would make the kernel give its core away at once. So the progress thread resets it.

use std::time::{Duration, Instant};

use cpu::Thread;

/// The threads with a higher priority. Guarded by the worker's lock.
#[derive(Debug)]
pub(crate) struct Precedence {
    holders: Vec<Holder>,
    /// True if the system does not permit it.
    is_refused: bool,
    looked: Option<Instant>,
    /// Time between two checks.
    period: Duration,
}

#[derive(Debug)]
struct Holder {
    thread: Thread,
    id: std::thread::ThreadId,
    /// True if it has slept since the last check.
    has_slept: bool,
}

impl Precedence {
    pub fn new() -> Self {
        Self { holders: Vec::new(), is_refused: false, looked: None, period: WATCH_MIN }
    }

    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Returns the time between two checks, if any thread has the higher priority.
    pub fn rest(&self) -> Option<Duration> {
        self.is_held().then_some(self.period)
    }

    /// Raises the priority of the calling thread, which is about to sleep on a contended core.
    pub fn claim(&mut self) {
        if self.is_refused {
            return;
        }
        let id = std::thread::current().id();
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.id == id) {
            holder.has_slept = true;
            return;
        }
        let Some(thread) = Thread::current() else { return };
        match thread.precede() {
            Ok(()) => {
                self.holders.push(Holder { thread, id, has_slept: true });
                self.period = WATCH_MIN;
            }
            Err(_) => self.is_refused = true,
        }
    }

    /// Resets all priorities, as no thread exists that would do it later.
    pub fn give_up(&mut self) {
        self.is_refused = true;
        for holder in self.holders.drain(..) {
            let _ = holder.thread.step_back();
        }
    }

    /// Resets the threads that have not slept since the last check. While there are none, checks become rare,
    /// because each takes a core from threads that want it.
    pub fn look(&mut self) {
        let now = Instant::now();
        if !self.is_held() || self.looked.is_some_and(|looked| now - looked < self.period) {
            return;
        }
        self.looked = Some(now);
        self.period = (2 * self.period).min(WATCH_MAX);
        self.holders.retain_mut(|holder| {
            let stays = std::mem::take(&mut holder.has_slept);
            if !stays {
                // The thread may have ended.
                let _ = holder.thread.step_back();
                self.period = WATCH_MIN;
            }
            stays
        });
    }
}

/// A thread that has not slept for so long computes: at least…
const WATCH_MIN: Duration = Duration::from_millis(2);
/// …and at most. A thread that begins to compute keeps the higher priority for some slices of the others.
const WATCH_MAX: Duration = Duration::from_millis(16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_not_slept_are_put_back() {
        let mut precedence = Precedence::new();
        precedence.claim();
        precedence.claim();
        assert!(precedence.holders.len() <= 1);
        if !precedence.is_held() {
            // Not every system permits it, and a thread with a priority of its own keeps that.
            assert!(precedence.is_refused || Thread::current().is_none());
            return testing::skip("this user may not go before others");
        }
        assert_eq!(Thread::current(), None);
        precedence.look();
        assert!(precedence.is_held(), "it has slept");
        assert_eq!(precedence.rest(), Some(2 * WATCH_MIN));
        precedence.look();
        assert!(precedence.is_held(), "it has just been looked at");
        precedence.looked = None;
        precedence.claim();
        precedence.look();
        precedence.looked = None;
        precedence.look();
        assert!(!precedence.is_held());
        assert!(Thread::current().is_some());
        assert_eq!(precedence.rest(), None);
    }
}
