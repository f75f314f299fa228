//! Unmatched receives.

use wire::PeerId;
use wire::packet::Header;

use super::Selector;
use super::blocks::Blocks;
use super::key::{Key, Pattern, Patterns};
use super::queues::{NONE, Queues};
use crate::op::OpId;

/// Posted receives, in queues of those that accept the same messages.
#[derive(Debug)]
pub(super) struct Posted {
    stamp: u64,
    /// Entries by the index of their operation.
    entries: Blocks<PostedSlot>,
    /// A single receive, which is in no queue; else `NONE`.
    lone: u32,
    queues: Queues,
    /// Number of queued receives of each pattern, and the patterns in use.
    counts: [u32; Pattern::COUNT],
    patterns: Patterns,
}

#[derive(Clone, Copy, Debug, Default)]
struct PostedSlot {
    /// Sequence number of the receive; 0 if the entry is empty.
    stamp: u64,
    generation: u32,
    key: Key,
}

impl Posted {
    pub const fn new() -> Self {
        Self {
            stamp: 0,
            entries: Blocks::new(),
            lone: NONE,
            queues: Queues::new(),
            counts: [0; Pattern::COUNT],
            patterns: Patterns::NONE,
        }
    }

    #[inline]
    pub fn post(&mut self, peer: Option<PeerId>, selector: &Selector, op: OpId) {
        let key = Key::of_receive(peer, selector);
        self.stamp += 1;
        self.entries.reach(op.index);
        debug_assert_eq!(self.entries[op.index].stamp, 0, "an operation is posted once");
        self.entries[op.index] = PostedSlot { stamp: self.stamp, generation: op.generation, key };
        if self.lone == NONE && self.patterns == Patterns::NONE {
            self.lone = op.index;
            return;
        }
        if self.lone != NONE {
            self.queue_lone();
        }
        self.queue(op.index);
    }

    #[cold]
    fn queue_lone(&mut self) {
        let lone = std::mem::replace(&mut self.lone, NONE);
        self.queue(lone);
    }

    #[inline]
    fn queue(&mut self, index: u32) {
        let entries = &self.entries;
        self.queues.push(index, |slot| entries[slot].key);
        let pattern = entries[index].key.pattern();
        self.counts[pattern.index()] += 1;
        self.patterns.insert(pattern);
    }

    /// Takes the oldest receive that accepts a message.
    #[inline]
    pub fn take(&mut self, peer: PeerId, header: &Header) -> Option<OpId> {
        if self.lone != NONE {
            let PostedSlot { key, .. } = self.entries[self.lone];
            let accepts = key == Key::of_message(key.pattern(), peer, header);
            return accepts.then(|| self.take_lone());
        }
        if self.patterns == Patterns::NONE {
            return None;
        }
        if self.patterns != Patterns::EXACT {
            return self.take_of_several(peer, header);
        }
        let entries = &self.entries;
        let key = Key::of_message(Pattern::EXACT, peer, header);
        let index = self.queues.first(key, |slot| entries[slot].key)?;
        Some(self.take_first(index, key))
    }

    /// Takes the oldest among the heads of the queues.
    fn take_of_several(&mut self, peer: PeerId, header: &Header) -> Option<OpId> {
        let entries = &self.entries;
        let mut oldest = None;
        let mut least = u64::MAX;
        for pattern in self.patterns {
            let key = Key::of_message(pattern, peer, header);
            if let Some(index) = self.queues.first(key, |slot| entries[slot].key)
                && entries[index].stamp < least
            {
                least = entries[index].stamp;
                oldest = Some((index, key));
            }
        }
        let (index, key) = oldest?;
        Some(self.take_first(index, key))
    }

    #[inline]
    fn take_lone(&mut self) -> OpId {
        let index = std::mem::replace(&mut self.lone, NONE);
        self.vacate(index)
    }

    #[inline]
    fn take_first(&mut self, index: u32, key: Key) -> OpId {
        self.queues.remove_first(index, key);
        self.uncount(key.pattern());
        self.vacate(index)
    }

    /// Receives of a context, in no order.
    pub fn of_context(&self, context: u64) -> Vec<OpId> {
        let receive = |index: u32| {
            let PostedSlot { stamp, generation, key } = self.entries[index];
            (stamp != 0 && key.context() == context).then_some(OpId { index, generation })
        };
        (0..self.entries.len()).filter_map(receive).collect()
    }

    /// Peers that receives name, and their contexts.
    pub fn named(&self) -> Vec<(PeerId, u64)> {
        let named = |index: u32| {
            let PostedSlot { stamp, key, .. } = self.entries[index];
            key.peer().filter(|_| stamp != 0).map(|peer| (peer, key.context()))
        };
        (0..self.entries.len()).filter_map(named).collect()
    }

    /// Peer and selector of a receive; none if it is not posted.
    pub fn named_by(&self, op: OpId) -> Option<(Option<PeerId>, Selector)> {
        let is_there = op.index < self.entries.len();
        let slot = is_there.then(|| self.entries[op.index])?;
        let is_it = slot.stamp != 0 && slot.generation == op.generation;
        is_it.then(|| (slot.key.peer(), slot.key.selector()))
    }

    /// Peers and selectors of all receives, in the order of their slots.
    pub fn all(&self) -> Vec<(Option<PeerId>, Selector)> {
        let slots = (0..self.entries.len()).map(|index| self.entries[index]);
        let used = slots.filter(|slot| slot.stamp != 0);
        used.map(|slot| (slot.key.peer(), slot.key.selector())).collect()
    }

    /// Removes a receive; false if it is not here.
    pub fn cancel(&mut self, op: OpId) -> bool {
        if op.index >= self.entries.len() {
            return false;
        }
        let PostedSlot { stamp, generation, key } = self.entries[op.index];
        if stamp == 0 || generation != op.generation {
            return false;
        }
        if self.lone == op.index {
            self.lone = NONE;
        } else {
            let entries = &self.entries;
            self.queues.remove(op.index, |slot| entries[slot].key);
            self.uncount(key.pattern());
        }
        self.vacate(op.index);
        true
    }

    #[inline]
    fn uncount(&mut self, pattern: Pattern) {
        let count = &mut self.counts[pattern.index()];
        *count -= 1;
        if *count == 0 {
            self.patterns.remove(pattern);
        }
    }

    #[inline]
    fn vacate(&mut self, index: u32) -> OpId {
        let entry = &mut self.entries[index];
        entry.stamp = 0;
        OpId { index, generation: entry.generation }
    }
}
