//! Threads that wait while another polls.
//!
//! Each sleeps until what it waits for has come: the end of an operation, or of any of several, a message, or,
//! where that cannot be told, any news. Where cores are fewer than waiting threads, one whose wait is
//! over is *due* first: it runs when the polling thread has nothing for itself and gives way, for a change
//! of threads on a core costs more than a message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, OpId, Selector};
use wire::PeerId;

use crate::parker::Sleeper;

/// All of a process that wait for others; guarded as the core they wait on.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    asleep: Vec<Waiter>,
    /// Their wait is over, and nobody has woken them.
    due: VecDeque<Arc<Sleeper>>,
    /// Since when somebody is due and has been woken by no look, as far as looks have shown.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Waiter {
    sleeper: Arc<Sleeper>,
    /// It need not be woken before this has come.
    awaited: Awaited,
}

/// What a question waits for that has had no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Any news may bring the answer.
    #[default]
    Events,
    Op(OpId),
    AnyOf(Vec<OpId>),
    /// A message that waits for its receive, of one peer or of anybody.
    Message(Option<PeerId>, Selector),
}

impl Waiters {
    pub fn is_empty(&self) -> bool {
        self.asleep.is_empty() && self.due.is_empty()
    }

    pub fn len(&self) -> usize {
        self.asleep.len() + self.due.len()
    }

    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Adds a thread that is about to sleep.
    pub fn add(&mut self, sleeper: &Arc<Sleeper>, awaited: Awaited) {
        self.asleep.push(Waiter { sleeper: Arc::clone(sleeper), awaited });
    }

    /// Takes out a thread that has not been woken.
    pub fn remove(&mut self, sleeper: &Arc<Sleeper>) {
        self.asleep.retain(|waiter| !Arc::ptr_eq(&waiter.sleeper, sleeper));
        self.due.retain(|due| !Arc::ptr_eq(due, sleeper));
    }

    /// Whose messages are waited for that are to wait for their receive.
    pub fn probed(&self) -> impl Iterator<Item = PeerId> {
        self.asleep.iter().filter_map(|waiter| waiter.awaited.probed())
    }

    /// There is news: finds those who wait for no more.
    pub fn find_due(&mut self, engine: &mut Engine) {
        let is_over = |waiter: &mut Waiter| waiter.awaited.has_come(engine);
        self.due.extend(self.asleep.extract_if(.., is_over).map(|waiter| waiter.sleeper));
    }

    /// Takes out the first that is due, to be woken.
    pub fn next_due(&mut self) -> Option<Arc<Sleeper>> {
        self.due.pop_front()
    }

    fn wake_next(&mut self) {
        if let Some(due) = self.next_due() {
            due.wake();
        }
    }

    /// Wakes all that are due.
    pub fn wake_due(&mut self) {
        self.due.drain(..).for_each(|due| due.wake());
    }

    /// A look at those who are due, now and then: all wake if nobody polls who would give way, and one if
    /// the same thread has been polling for long. Whether nobody did.
    pub fn relieve(&mut self, is_polled: bool, now: Instant) -> bool {
        if !self.has_due() {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if !is_polled {
            self.since = None;
            self.wake_due();
        } else if now - since >= HELD_MAX {
            self.since = None;
            self.wake_next();
        }
        !is_polled
    }

    /// Wakes one: the first that is due, or else the last that has come, to poll for the others.
    pub fn wake_one(&mut self) {
        if self.has_due() {
            self.wake_next();
        } else if let Some(waiter) = self.asleep.pop() {
            waiter.sleeper.wake();
        }
    }

    /// Wakes all.
    pub fn wake_all(&mut self) {
        self.wake_due();
        self.asleep.drain(..).for_each(|waiter| waiter.sleeper.wake());
    }
}

impl Awaited {
    /// Whose message that is to wait for its receive.
    pub fn probed(&self) -> Option<PeerId> {
        match self {
            Self::Message(peer, _) => *peer,
            Self::Events | Self::Op(_) | Self::AnyOf(_) => None,
        }
    }

    /// After some news.
    fn has_come(&self, engine: &mut Engine) -> bool {
        match self {
            Self::Events => true,
            Self::Op(op) => engine.is_complete(*op),
            Self::AnyOf(ops) => ops.iter().any(|&op| engine.is_complete(op)),
            Self::Message(peer, selector) => {
                peer.is_some_and(|peer| engine.is_failed(peer))
                    || engine.probe(*peer, *selector).is_some()
            }
        }
    }
}

/// A thread is due for so long at most while another polls, and until the next look.
const HELD_MAX: Duration = Duration::from_micros(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_due_for_long_is_woken_though_another_polls() {
        let mut waiters = Waiters::default();
        let now = Instant::now();
        assert!(!waiters.relieve(false, now), "nobody is due");
        let due = [0, 1].map(|_| std::thread::spawn(Sleeper::of_this_thread).join().unwrap());
        waiters.due.extend(due);
        assert!(!waiters.relieve(true, now));
        assert!(!waiters.relieve(true, now + HELD_MAX / 2));
        assert_eq!(waiters.len(), 2);
        assert!(!waiters.relieve(true, now + HELD_MAX));
        assert_eq!(waiters.len(), 1);
        assert!(!waiters.relieve(true, now + HELD_MAX));
        assert_eq!(waiters.len(), 1, "the next has waited for no look yet");
        assert!(waiters.relieve(false, now + HELD_MAX));
        assert!(waiters.is_empty());
    }
}
