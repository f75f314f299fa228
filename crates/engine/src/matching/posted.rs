//! Receives without a message.

use wire::GateId;
use wire::packet::Header;

use super::Selector;
use super::blocks::Blocks;
use super::key::{Key, Pattern, Patterns};
use super::queues::Queues;
use crate::op::OpId;

/// The posted receives, in queues of those that accept the same.
#[derive(Debug)]
pub(super) struct Posted {
    stamp: u64,
    /// By the index of their operation.
    entries: Blocks<Entry>,
    queues: Queues,
    /// How many there are of each pattern, and which there are.
    counts: [u32; Pattern::COUNT],
    patterns: Patterns,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Counts the receives; 0 where there is none.
    stamp: u64,
    generation: u32,
    key: Key,
}

impl Posted {
    pub const fn new() -> Self {
        Self {
            stamp: 0,
            entries: Blocks::new(),
            queues: Queues::new(),
            counts: [0; Pattern::COUNT],
            patterns: Patterns::NONE,
        }
    }

    #[inline]
    pub fn post(&mut self, gate: Option<GateId>, selector: &Selector, op: OpId) {
        let key = Key::of_receive(gate, selector);
        self.stamp += 1;
        self.entries.reach(op.index);
        self.entries[op.index] = Entry { stamp: self.stamp, generation: op.generation, key };
        let entries = &self.entries;
        self.queues.push(op.index, |slot| entries[slot].key);
        self.counts[key.pattern().index()] += 1;
        self.patterns.insert(key.pattern());
    }

    /// Takes the oldest receive that accepts a message.
    #[inline]
    pub fn take(&mut self, gate: GateId, header: &Header) -> Option<OpId> {
        if self.patterns == Patterns::NONE {
            return None;
        }
        if self.patterns != Patterns::EXACT {
            return self.take_of_several(gate, header);
        }
        let entries = &self.entries;
        let key = Key::of_message(Pattern::EXACT, gate, header);
        let index = self.queues.first(key, |slot| entries[slot].key)?;
        Some(self.take_first(index, key))
    }

    /// Takes the oldest of those that are the first of their queues.
    fn take_of_several(&mut self, gate: GateId, header: &Header) -> Option<OpId> {
        let entries = &self.entries;
        let mut oldest = None;
        let mut least = u64::MAX;
        for pattern in self.patterns {
            let key = Key::of_message(pattern, gate, header);
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
    fn take_first(&mut self, index: u32, key: Key) -> OpId {
        self.queues.remove_first(index, key);
        self.forget(index, key.pattern());
        OpId { index, generation: self.entries[index].generation }
    }

    /// Removes a receive; false when it is not here.
    pub fn cancel(&mut self, op: OpId) -> bool {
        if op.index >= self.entries.len() {
            return false;
        }
        let Entry { stamp, generation, key } = self.entries[op.index];
        if stamp == 0 || generation != op.generation {
            return false;
        }
        let entries = &self.entries;
        self.queues.remove(op.index, |slot| entries[slot].key);
        self.forget(op.index, key.pattern());
        true
    }

    #[inline]
    fn forget(&mut self, index: u32, pattern: Pattern) {
        self.entries[index].stamp = 0;
        let count = &mut self.counts[pattern.index()];
        *count -= 1;
        if *count == 0 {
            self.patterns.remove(pattern);
        }
    }
}
