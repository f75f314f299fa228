//! Queues by key: linked lists through the slots of a table, found by hashing.
//!
//! The first entry represents its queue: it is linked into its bucket's chain, and knows the
//! queue's last entry. When it leaves, the next entry takes its place; with the last entry the
//! queue is gone. Queues therefore need no allocation, and unused keys no memory.
//!
//! A bucket has one queue on average. Every step except growing takes constant time.

use super::blocks::Blocks;
use super::key::Key;

/// Queues of slots; the caller supplies a slot's key.
#[derive(Debug)]
pub(super) struct Queues {
    /// First entry of the first queue of each bucket.
    buckets: Vec<u32>,
    /// Right shift that turns a hash into a bucket's index.
    shift: u32,
    /// Number of queues.
    count: usize,
    links: Blocks<ListLink>,
}

#[derive(Clone, Copy, Debug)]
struct ListLink {
    next: u32,
    /// `NONE` in a queue's first entry.
    previous: u32,
    /// In a queue's first entry: the next queue of its bucket.
    chain: u32,
    /// In a queue's first entry: its last.
    last: u32,
}

impl Queues {
    pub const fn new() -> Self {
        Self { buckets: Vec::new(), shift: u64::BITS - 1, count: 0, links: Blocks::new() }
    }

    /// Oldest entry with a key.
    #[inline]
    pub fn first(&self, key: Key, key_of: impl Fn(u32) -> Key) -> Option<u32> {
        let mut slot = *self.buckets.get(self.bucket(key))?;
        while slot != NONE {
            if key_of(slot) == key {
                return Some(slot);
            }
            slot = self.links[slot].chain;
        }
        None
    }

    /// Iterates over the entries with a key, oldest first.
    pub fn entries<F: Fn(u32) -> Key>(
        &self,
        key: Key,
        key_of: F,
    ) -> impl Iterator<Item = u32> + use<'_, F> {
        let next = |slot: &u32| Some(self.links[*slot].next).filter(|next| *next != NONE);
        std::iter::successors(self.first(key, key_of), next)
    }

    /// Adds a slot to the queue of its key.
    #[inline]
    pub fn push(&mut self, slot: u32, key_of: impl Fn(u32) -> Key) {
        self.links.reach(slot);
        let key = key_of(slot);
        if let Some(first) = self.first(key, &key_of) {
            let previous = std::mem::replace(&mut self.links[first].last, slot);
            self.links[previous].next = slot;
            self.links[slot] = ListLink { previous, ..ListLink::default() };
            return;
        }
        if self.count == self.buckets.len() {
            self.grow(&key_of);
        }
        self.count += 1;
        let bucket = self.bucket(key);
        let chain = std::mem::replace(&mut self.buckets[bucket], slot);
        self.links[slot] = ListLink { chain, last: slot, ..ListLink::default() };
    }

    /// Removes a slot from its queue.
    #[inline]
    pub fn remove(&mut self, slot: u32, key_of: impl Fn(u32) -> Key) {
        let ListLink { next, previous, .. } = self.links[slot];
        if previous == NONE {
            return self.remove_first(slot, key_of(slot));
        }
        self.links[previous].next = next;
        if next != NONE {
            self.links[next].previous = previous;
        } else if let Some(first) = self.first(key_of(slot), &key_of) {
            self.links[first].last = previous;
        }
    }

    /// Removes the first entry of a queue.
    #[inline]
    pub fn remove_first(&mut self, slot: u32, key: Key) {
        let ListLink { next, chain, last, .. } = self.links[slot];
        let heir = if next == NONE {
            self.count -= 1;
            chain
        } else {
            let link = &mut self.links[next];
            (link.previous, link.chain, link.last) = (NONE, chain, last);
            next
        };
        let bucket = self.bucket(key);
        let mut at = self.buckets[bucket];
        if at == slot {
            self.buckets[bucket] = heir;
            return;
        }
        while self.links[at].chain != slot {
            at = self.links[at].chain;
        }
        self.links[at].chain = heir;
    }

    #[inline]
    fn bucket(&self, key: Key) -> usize {
        (key.hash() >> self.shift) as usize
    }

    #[cold]
    fn grow(&mut self, key_of: impl Fn(u32) -> Key) {
        let len = (2 * self.buckets.len()).max(BUCKETS_MIN);
        self.shift = u64::BITS - len.ilog2();
        for mut slot in std::mem::replace(&mut self.buckets, vec![NONE; len]) {
            while slot != NONE {
                let bucket = self.bucket(key_of(slot));
                let chain = std::mem::replace(&mut self.buckets[bucket], slot);
                slot = std::mem::replace(&mut self.links[slot].chain, chain);
            }
        }
    }
}

impl Default for ListLink {
    #[inline]
    fn default() -> Self {
        Self { next: NONE, previous: NONE, chain: NONE, last: NONE }
    }
}

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

const BUCKETS_MIN: usize = 64;
