//! Threads that wait while another polls.
//!
//! Each sleeps until its awaited event has come: the completion of one or any of several operations, a message, or,
//! if that is unknown, any event. If there are fewer CPU cores than waiting threads, a thread whose wait is over
//! becomes *due* first. It runs when the polling thread has nothing for itself and gives way, because a thread switch
//! on a core costs more than a message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{EndQueueId, Engine, OpId, Selector};
use wire::PeerId;

use crate::parker::Parker;

/// Waiting threads of a process; guarded by the worker's lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    asleep: Vec<Waiter>,
    /// Threads whose wait is over but that nobody has woken.
    due: VecDeque<Arc<Parker>>,
    /// Time since which a thread has been due without being woken by a check.
    since: Option<Instant>,
    /// Number of peers that had failed when all were told of it.
    failed_peers: u32,
}

#[derive(Debug)]
struct Waiter {
    parker: Arc<Parker>,
    /// Event before which the thread need not be woken.
    awaited: Awaited,
}

/// Event for which an unanswered question waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Any event may bring the answer.
    #[default]
    Events,
    Op(OpId),
    AnyOf(Vec<OpId>),
    EndIn(EndQueueId),
    /// An unexpected message, from one peer or from any.
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
    pub fn add(&mut self, parker: &Arc<Parker>, awaited: Awaited) {
        self.asleep.push(Waiter { parker: Arc::clone(parker), awaited });
    }

    /// Removes a thread that has not been woken.
    pub fn remove(&mut self, parker: &Arc<Parker>) {
        self.asleep.retain(|waiter| !Arc::ptr_eq(&waiter.parker, parker));
        self.due.retain(|due| !Arc::ptr_eq(due, parker));
    }

    /// Returns the peers whose messages are probed for.
    pub fn probed(&self) -> impl Iterator<Item = PeerId> {
        self.asleep.iter().filter_map(|waiter| waiter.awaited.probed())
    }

    /// Moves the threads whose awaited event has come to the due ones. The failure of a peer is one for all.
    pub fn find_due(&mut self, engine: &mut Engine) {
        let failed_peers = engine.failed_peers();
        let has_failed = std::mem::replace(&mut self.failed_peers, failed_peers) != failed_peers;
        let is_over = |waiter: &mut Waiter| has_failed || waiter.awaited.has_come(engine);
        self.due.extend(self.asleep.extract_if(.., is_over).map(|waiter| waiter.parker));
    }

    /// Removes and returns the first due thread, to be woken.
    pub fn next_due(&mut self) -> Option<Arc<Parker>> {
        self.due.pop_front()
    }

    fn wake_next(&mut self) {
        if let Some(due) = self.next_due() {
            due.wake();
        }
    }

    /// Wakes all due threads.
    pub fn wake_due(&mut self) {
        self.due.drain(..).for_each(|due| due.wake());
    }

    /// Checks the due threads from time to time. It wakes all if no thread polls and could give way, and one if the
    /// same thread has polled for long. Returns true if there were due threads and nobody polled.
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

    /// Wakes one thread: the first due one, or else the last that came, to poll for the others.
    pub fn wake_one(&mut self) {
        if self.has_due() {
            self.wake_next();
        } else if let Some(waiter) = self.asleep.pop() {
            waiter.parker.wake();
        }
    }

    /// Wakes all threads.
    pub fn wake_all(&mut self) {
        self.wake_due();
        self.asleep.drain(..).for_each(|waiter| waiter.parker.wake());
    }
}

impl Awaited {
    /// Returns the peer whose message is probed for.
    pub fn probed(&self) -> Option<PeerId> {
        match self {
            Self::Message(peer, _) => *peer,
            Self::Events | Self::Op(_) | Self::AnyOf(_) | Self::EndIn(_) => None,
        }
    }

    /// True if the awaited event has come.
    fn has_come(&self, engine: &mut Engine) -> bool {
        match self {
            Self::Events => true,
            Self::Op(op) => engine.is_complete(*op),
            Self::AnyOf(ops) => ops.iter().any(|&op| engine.is_complete(op)),
            // The owner of a closed queue looks for itself.
            Self::EndIn(queue) => engine.ends_in(*queue) > 0 || !engine.is_open_end_queue(*queue),
            Self::Message(peer, selector) => {
                peer.is_some_and(|peer| engine.is_failed(peer))
                    || engine.probe(*peer, *selector).is_some()
            }
        }
    }
}

/// Longest time for which a thread is due while another polls, apart from the wait for the next check.
const HELD_MAX: Duration = Duration::from_micros(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_due_thread_is_woken_while_another_polls() {
        let mut waiters = Waiters::default();
        let now = Instant::now();
        assert!(!waiters.relieve(false, now), "nobody is due");
        let due = [0, 1].map(|_| std::thread::spawn(Parker::of_this_thread).join().unwrap());
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
