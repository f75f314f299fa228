//! Queues of ends: who waits for one of many operations learns which have ended, without asking each.
//!
//! The owner of a queue registers operations, each under a *place*: a number of its own. When an operation completes,
//! its place enters the queue. An operation may be registered in several queues, and in each under one place. So a
//! queue never holds more places than were registered.

use std::collections::VecDeque;

/// Identifies a queue of ends until it is closed. Stale identifiers are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndQueueId {
    index: u32,
    generation: u32,
}

/// A place in the numbering of a queue's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMark {
    /// The queue.
    pub queue: EndQueueId,
    /// The number that enters the queue.
    pub place: u32,
}

/// All queues, and the registrations of operations.
#[derive(Debug, Default)]
pub(crate) struct EndQueues {
    queues: Vec<EndQueue>,
    registrations: Vec<Registration>,
    /// Unused registrations.
    free: Vec<u32>,
    /// First registration by index of the operation.
    first: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct EndQueue {
    generation: u32,
    is_open: bool,
    pub places: VecDeque<u32>,
    /// Number of places that are in the queue or will enter it.
    pub expected: usize,
}

/// An operation's place in one queue.
#[derive(Clone, Copy, Debug)]
struct Registration {
    mark: EndMark,
    /// The operation's next registration.
    next: u32,
}

impl EndQueues {
    pub fn open(&mut self) -> EndQueueId {
        let index = self.queues.iter().position(|queue| !queue.is_open).unwrap_or_else(|| {
            self.queues.push(EndQueue::default());
            self.queues.len() - 1
        });
        let queue = &mut self.queues[index];
        queue.is_open = true;
        EndQueueId { index: index as u32, generation: queue.generation }
    }

    pub fn close(&mut self, id: EndQueueId) {
        if let Some(queue) = self.find_mut(id) {
            let generation = queue.generation.wrapping_add(1);
            *queue = EndQueue { generation, ..EndQueue::default() };
        }
    }

    #[inline]
    pub fn find(&self, id: EndQueueId) -> Option<&EndQueue> {
        let queue = self.queues.get(id.index as usize)?;
        (queue.is_open && queue.generation == id.generation).then_some(queue)
    }

    #[inline]
    pub fn find_mut(&mut self, id: EndQueueId) -> Option<&mut EndQueue> {
        let queue = self.queues.get_mut(id.index as usize)?;
        (queue.is_open && queue.generation == id.generation).then_some(queue)
    }

    pub fn push(&mut self, mark: EndMark) {
        if let Some(queue) = self.find_mut(mark.queue) {
            queue.places.push_back(mark.place);
        }
    }

    pub fn expect(&mut self, id: EndQueueId) {
        if let Some(queue) = self.find_mut(id) {
            queue.expected += 1;
        }
    }

    pub fn unexpect(&mut self, id: EndQueueId) {
        if let Some(queue) = self.find_mut(id) {
            queue.expected -= 1;
        }
    }

    /// Registers a pending operation. Returns its former place in the queue.
    pub fn register(&mut self, op: u32, mark: EndMark) -> Option<u32> {
        self.drop_closed(op);
        let mut at = self.first_of(op);
        while at != NONE {
            let registration = &mut self.registrations[at as usize];
            if registration.mark.queue == mark.queue {
                return Some(std::mem::replace(&mut registration.mark.place, mark.place));
            }
            at = registration.next;
        }
        if self.first.len() <= op as usize {
            self.first.resize(op as usize + 1, NONE);
        }
        let next = self.first[op as usize];
        let registration = Registration { mark, next };
        self.first[op as usize] = match self.free.pop() {
            Some(free) => {
                self.registrations[free as usize] = registration;
                free
            }
            None => {
                self.registrations.push(registration);
                self.registrations.len() as u32 - 1
            }
        };
        self.expect(mark.queue);
        None
    }

    fn first_of(&self, op: u32) -> u32 {
        self.first.get(op as usize).copied().unwrap_or(NONE)
    }

    /// Drops an operation's registrations in queues that are closed, so that it has at most one in each open queue.
    fn drop_closed(&mut self, op: u32) {
        self.retain(op, |queues, mark| queues.find(mark.queue).is_some());
    }

    /// Drops an operation's registration in one queue.
    pub fn forget(&mut self, op: u32, id: EndQueueId) {
        let before = self.free.len();
        self.retain(op, |_, mark| mark.queue != id);
        if self.free.len() > before {
            self.unexpect(id);
        }
    }

    fn retain(&mut self, op: u32, keeps: impl Fn(&Self, EndMark) -> bool) {
        let (mut before, mut at) = (NONE, self.first_of(op));
        while at != NONE {
            let Registration { mark, next } = self.registrations[at as usize];
            if keeps(self, mark) {
                before = at;
            } else {
                match before {
                    NONE => self.first[op as usize] = next,
                    before => self.registrations[before as usize].next = next,
                }
                self.free.push(at);
            }
            at = next;
        }
    }

    /// Lets the places of an operation enter their queues.
    pub fn note(&mut self, op: u32) {
        let mut at = self.first_of(op);
        if at != NONE {
            self.first[op as usize] = NONE;
        }
        while at != NONE {
            let Registration { mark, next } = self.registrations[at as usize];
            self.push(mark);
            self.free.push(at);
            at = next;
        }
    }

    /// Number of queues and of registrations that have memory.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.queues.len(), self.registrations.len())
    }
}

/// No registration.
const NONE: u32 = u32::MAX;
