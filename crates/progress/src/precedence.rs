//! Precedence of threads that wait over those that compute, where the system permits it.
//!
//! The kernel gives each thread a share of its core. One that exchanges short messages uses its share up sooner
//! than threads that compute beside it, however little it does for each message, and is put aside for
//! milliseconds. A thread that sleeps for messages where cores are wanted goes before the others, if the process
//! may say so, until it has not slept from one look to the next: then it computes, and is one of them. It cannot be put back
//! when its wait ends, for that would have the kernel give its core away at once; the progress thread
//! sees to it.

use std::time::{Duration, Instant};

use driver::Thread;

/// The threads that go before others; guarded as the core.
#[derive(Debug)]
pub(crate) struct Precedence {
    holders: Vec<Holder>,
    /// The system does not permit it.
    is_refused: bool,
    looked: Option<Instant>,
    /// From one look to the next.
    period: Duration,
}

#[derive(Debug)]
struct Holder {
    thread: Thread,
    id: std::thread::ThreadId,
    /// It has slept since the last look.
    has_slept: bool,
}

impl Precedence {
    pub fn new() -> Self {
        Self { holders: Vec::new(), is_refused: false, looked: None, period: WATCH_MIN }
    }

    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// How long until the next look, if any thread goes before others.
    pub fn rest(&self) -> Option<Duration> {
        self.is_held().then_some(self.period)
    }

    /// The calling thread is about to sleep where cores are wanted.
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

    /// There is nobody to put threads back.
    pub fn give_up(&mut self) {
        self.is_refused = true;
        for holder in self.holders.drain(..) {
            let _ = holder.thread.step_back();
        }
    }

    /// Puts back the threads that have not slept since the last look. While there are none, looks become seldom: each
    /// takes a core from those who want it.
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
                // It may have ended.
                let _ = holder.thread.step_back();
                self.period = WATCH_MIN;
            }
            stays
        });
    }
}

/// A thread that has not slept for so long computes: at least…
const WATCH_MIN: Duration = Duration::from_millis(2);
/// …and at most: one that begins to compute goes before others for some of their slices more.
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
            // Not every system permits it, and a thread of another standing keeps that.
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
