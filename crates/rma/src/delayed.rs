//! Accumulates that wait for the caches of the core. Where the program demands no order of them, each one's element is
//! fetched into the cache at once, but combined only when some others have followed or a flush completes it. So the
//! fetches of several elements overlap.

use lock::Lock;
use memory::Region;

use crate::combine::Combination;

/// Accumulates that wait. A flush applies them.
#[derive(Debug, Default)]
pub(crate) struct Delayed(Lock<Ring>);

#[derive(Debug, Default)]
struct Ring {
    waiting: [Option<DelayedAccumulate>; WAITING_MAX],
    /// Place of the oldest one if all places are taken.
    next: usize,
}

/// An accumulate of one element, whose data are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedAccumulate {
    pub rank: u32,
    /// Offset of the element in the memory of the target.
    pub offset: usize,
    pub operand: [u8; OPERAND_MAX],
    pub combination: &'static Combination,
}

impl Delayed {
    /// Lets an accumulate of an element in `memory` wait, and notes that. Applies the oldest one if there is no room.
    #[inline]
    pub fn push(
        &self,
        new: DelayedAccumulate,
        memory: &Region,
        note: impl FnOnce(),
        apply: impl FnOnce(DelayedAccumulate),
    ) {
        memory.prefetch(new.offset);
        let mut ring = self.0.lock();
        note();
        let next = ring.next;
        ring.next = (next + 1) % WAITING_MAX;
        if let Some(oldest) = ring.waiting[next].replace(new) {
            apply(oldest);
        }
    }

    /// Applies all that wait, the oldest first. Notes that before others can wait.
    pub fn drain(&self, mut apply: impl FnMut(DelayedAccumulate), note: impl FnOnce()) {
        let mut ring = self.0.lock();
        let next = ring.next;
        let (newer, older) = ring.waiting.split_at_mut(next);
        older.iter_mut().chain(newer).filter_map(Option::take).for_each(&mut apply);
        note();
    }
}

/// Number of accumulates that wait, which is about the number of lines that a core fetches at a time.
const WAITING_MAX: usize = 16;

/// Longest element that waits, in bytes.
pub(crate) const OPERAND_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use datatype::{Builtin, Predefined};

    use super::*;

    #[test]
    fn accumulates_are_applied_in_order_and_once() {
        let combination = Combination::find(Builtin::Int64T, Predefined::Sum).unwrap();
        let (delayed, memory) = (Delayed::default(), Region::owned(8));
        let mut applied = Vec::new();
        for pushed in 0..5 * WAITING_MAX + 3 {
            let operand = (pushed as u64).to_le_bytes();
            let new = DelayedAccumulate { rank: 0, offset: 0, operand, combination };
            let apply =
                |oldest: DelayedAccumulate| applied.push(u64::from_le_bytes(oldest.operand));
            delayed.push(new, &memory, || (), apply);
            assert_eq!(applied.len(), (pushed + 1).saturating_sub(WAITING_MAX));
            if pushed % 40 == 37 {
                delayed.drain(|one| applied.push(u64::from_le_bytes(one.operand)), || ());
                assert_eq!(applied, (0..=pushed as u64).collect::<Vec<_>>());
                applied.clear();
                delayed.drain(|_| panic!("applied twice"), || ());
                break;
            }
        }
    }
}
