//! Unmatched messages.

use wire::PeerId;
use wire::packet::Header;

use super::blocks::Blocks;
use super::key::{Key, Pattern, Patterns};
use super::queues::{NONE, Queues};
use super::{Selector, Unexpected};

/// Waiting messages, in queues of those that look alike to receives of a pattern. A pattern's
/// queues are built on its first receive or probe.
#[derive(Debug)]
pub(super) struct Waiting {
    stamp: u64,
    slots: Blocks<Slot>,
    /// First slot of the free list, and first slot that was never used.
    free: u32,
    fresh: u32,
    live: u32,
    /// A single message, which is in no queue; else `NONE`.
    lone: u32,
    queues: [Queues; Pattern::COUNT],
    patterns: Patterns,
}

#[derive(Debug)]
enum Slot {
    Free {
        next: u32,
    },
    /// A message, stamped in order of arrival.
    Used {
        stamp: u64,
        message: Unexpected,
    },
}

impl Waiting {
    pub const fn new() -> Self {
        Self {
            stamp: 0,
            slots: Blocks::new(),
            free: NONE,
            fresh: 0,
            live: 0,
            lone: NONE,
            queues: [const { Queues::new() }; Pattern::COUNT],
            patterns: Patterns::EXACT,
        }
    }

    #[inline(always)]
    pub fn arrive(&mut self, message: Unexpected) {
        self.stamp += 1;
        self.live += 1;
        let slot = self.vacant_slot();
        self.slots[slot] = Slot::Used { stamp: self.stamp, message };
        if self.live == 1 {
            self.lone = slot;
            return;
        }
        if self.lone != NONE {
            self.queue_lone();
        }
        self.queue(slot);
    }

    #[cold]
    fn queue_lone(&mut self) {
        let lone = std::mem::replace(&mut self.lone, NONE);
        self.queue(lone);
    }

    fn queue(&mut self, slot: u32) {
        let slots = &self.slots;
        for pattern in self.patterns {
            self.queues[pattern.index()].push(slot, |slot| key_of(slots, pattern, slot));
        }
    }

    /// Finds the oldest message that a selector accepts, of `peer` if given.
    #[inline]
    pub fn find(&mut self, peer: Option<PeerId>, selector: &Selector) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        let key = Key::of_receive(peer, selector);
        let pattern = key.pattern();
        if self.lone != NONE {
            return (key_of(&self.slots, pattern, self.lone) == key).then_some(self.lone);
        }
        if !self.patterns.contains(pattern) {
            self.arrange(pattern);
        }
        self.queues[pattern.index()].first(key, |slot| key_of(&self.slots, pattern, slot))
    }

    /// Finds the message of a peer with this header.
    pub fn find_message(&self, peer: PeerId, header: &Header) -> Option<u32> {
        let is_it = |slot: &u32| {
            let message = self.message(*slot);
            message.is_some_and(|message| message.peer == peer && message.header == *header)
        };
        if self.lone != NONE {
            return Some(self.lone).filter(is_it);
        }
        let (pattern, slots) = (Pattern::EXACT, &self.slots);
        let (queues, key) = (&self.queues[pattern.index()], Key::of_message(pattern, peer, header));
        queues.entries(key, |slot| key_of(slots, pattern, slot)).find(is_it)
    }

    pub fn message(&self, slot: u32) -> Option<&Unexpected> {
        match &self.slots[slot] {
            Slot::Used { message, .. } => Some(message),
            Slot::Free { .. } => None,
        }
    }

    /// Removes the message of a slot that [`Self::find`] has found.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Unexpected {
        if slot == self.lone {
            self.lone = NONE;
        } else {
            self.unqueue(slot);
        }
        let vacated = std::mem::replace(&mut self.slots[slot], Slot::Free { next: self.free });
        let Slot::Used { message, .. } = vacated else {
            unreachable!("a slot that was found holds a message");
        };
        self.free = slot;
        self.live -= 1;
        if self.live == 0 && self.fresh > SPARE_SLOTS {
            self.clear();
        }
        message
    }

    #[inline]
    fn unqueue(&mut self, slot: u32) {
        let slots = &self.slots;
        for pattern in self.patterns {
            self.queues[pattern.index()].remove(slot, |slot| key_of(slots, pattern, slot));
        }
    }

    /// Iterates over all messages, in no order; their matching fields must not change.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut Unexpected> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Used { message, .. } => Some(message),
            Slot::Free { .. } => None,
        })
    }

    /// Removes the messages for which `is_selected` is true.
    pub fn take_where(&mut self, is_selected: impl Fn(&Unexpected) -> bool) -> Vec<Unexpected> {
        let mut taken = Vec::new();
        for slot in 0..self.slots.len() {
            // The table may have been freed with the last message.
            if slot < self.slots.len() && self.message(slot).is_some_and(&is_selected) {
                taken.push(self.remove(slot));
            }
        }
        taken
    }

    #[inline]
    fn vacant_slot(&mut self) -> u32 {
        if self.free != NONE
            && let Slot::Free { next } = self.slots[self.free]
        {
            return std::mem::replace(&mut self.free, next);
        }
        self.slots.reach(self.fresh);
        self.fresh += 1;
        self.fresh - 1
    }

    /// Adds all messages to the queues of a pattern, oldest first.
    #[cold]
    fn arrange(&mut self, pattern: Pattern) {
        self.patterns.insert(pattern);
        let slots = &self.slots;
        let stamp = |slot: u32| match slots[slot] {
            Slot::Used { stamp, .. } => Some((stamp, slot)),
            Slot::Free { .. } => None,
        };
        let mut order: Vec<_> = (0..self.fresh).filter_map(stamp).collect();
        order.sort_unstable();
        for (_, slot) in order {
            self.queues[pattern.index()].push(slot, |slot| key_of(slots, pattern, slot));
        }
    }

    /// Frees the memory of a flood of messages.
    #[cold]
    fn clear(&mut self) {
        let Self { stamp, patterns, .. } = *self;
        *self = Self { stamp, patterns, ..Self::new() };
    }
}

#[inline]
fn key_of(slots: &Blocks<Slot>, pattern: Pattern, slot: u32) -> Key {
    let Slot::Used { message, .. } = &slots[slot] else {
        unreachable!("a slot in a queue holds a message");
    };
    Key::of_message(pattern, message.peer, &message.header)
}

impl Default for Slot {
    fn default() -> Self {
        Self::Free { next: NONE }
    }
}

/// Number of slots that stay allocated without messages.
const SPARE_SLOTS: u32 = 4096;
