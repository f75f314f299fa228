//! Resynchronisation of members after one has skipped an operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::shared::{Shared, Word};
use crate::shm_coll::ShmColl;
use crate::shm_coll::awaited::{Awaited, Condition};
use crate::shm_coll::layout::BEHIND_AT;

/// Number of the operation in which a member takes part. All members go through the operations in the same order.
#[derive(Clone, Debug, Default)]
pub struct Operations(Arc<AtomicI32>);

impl Operations {
    /// Begins operation `number`. False if operations in between were skipped.
    #[inline]
    pub fn begin(&self, number: i32) -> bool {
        let latest = self.0.load(Ordering::Relaxed);
        self.0.store(number, Ordering::Relaxed);
        number == latest.wrapping_add(1)
    }

    /// Returns the low bits of the current number, as published to others.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed).cast_unsigned()) & NUMBERS
    }
}

/// State of a member's knowledge of the round in which the current operation begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum StepState {
    #[default]
    InStep,
    /// It has skipped operations, whose rounds others may have gone through.
    Behind,
    /// It was behind, has told the others, and was in step from this round on.
    CaughtUp(u64),
}

impl<S: Shared> ShmColl<S> {
    /// Returns the operations in which this member takes part.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Records that this member has skipped operations before the current one.
    pub fn leave_out(&mut self) {
        self.step_state = StepState::Behind;
    }

    /// True if this member knows the first round of the operation and has posted in all rounds before.
    #[inline]
    pub(super) fn is_in_step(&mut self) -> bool {
        self.step_state == StepState::InStep || self.catch_up()
    }

    #[cold]
    fn catch_up(&mut self) -> bool {
        if let StepState::CaughtUp(round) = self.step_state {
            // Its later posts carry the operation number themselves.
            if self.round > round {
                self.publish_behind(0);
                self.step_state = StepState::InStep;
            }
            return true;
        }
        let (last, is_known) = self.last_before();
        while self.round < last && self.has_place_for(0) {
            self.post_for(NONE, 0, |_, _| ());
        }
        let is_in_step = is_known && self.round == last;
        if is_in_step {
            self.step_state = StepState::CaughtUp(last);
        }
        is_in_step
    }

    fn publish_behind(&self, mark: u64) {
        let own = self.control(self.me) + BEHIND_AT;
        self.memory.word64(own).store(mark, Ordering::Release);
    }

    /// Returns the last round known to precede the operation, and true if the operation begins right after it. A
    /// member that has begun it in step has marked its posts with its number. If no member will, because all are
    /// behind or have skipped it, it is the latest round in which any member has posted.
    fn last_before(&mut self) -> (u64, bool) {
        let (number, me) = (self.operations.number(), self.me);
        self.publish_behind(mark(self.round, number));
        S::fence();
        let (mut last, mut absent) = (self.round, None);
        for member in (0..self.size).filter(|member| *member != me) {
            let mut round = self.round + 1;
            let mut is_past = false;
            while self.has_posted(member, round) {
                let marked = self.marked(member, round) & (NUMBERS | NONE);
                if marked == number {
                    return (round - 1, true);
                }
                is_past |= marked != NONE && is_at_or_past(marked, number);
                round += 1;
            }
            let behind = self.memory.word64(self.control(member) + BEHIND_AT);
            let behind = behind.load(Ordering::Acquire);
            last = last.max(round - 1).max(round_of(behind));
            is_past |= behind != 0 && is_at_or_past(behind & NUMBERS, number);
            if !is_past {
                absent.get_or_insert((member, round));
            }
        }
        let awaits = |(member, round)| {
            let members = member..member + 1;
            Awaited { round, members, what: Condition::Post }
        };
        self.awaited = absent.map(awaits);
        (last, absent.is_none())
    }
}

/// Combines round and operation number; later rounds compare greater.
#[inline]
pub(super) fn mark(round: u64, number: u64) -> u64 {
    round << NUMBER_BITS | number
}

#[inline]
pub(super) fn round_of(mark: u64) -> u64 {
    mark >> NUMBER_BITS
}

/// True if operation `number` is `this` or a later one, for numbers close to each other.
fn is_at_or_past(number: u64, this: u64) -> bool {
    number.wrapping_sub(this) & NUMBERS <= NUMBERS / 2
}

/// Enough bits to distinguish concurrent operations; the remaining ones count rounds for years.
const NUMBER_BITS: u32 = 16;
const NUMBERS: u64 = (1 << (NUMBER_BITS - 1)) - 1;

/// Replaces the number of posts that make up for a skipped operation.
const NONE: u64 = NUMBERS + 1;

#[cfg(test)]
mod tests {
    use testing::{Random, seeds};

    use crate::shm_coll::{ShmColl, ShmCollInvitation};

    const PAGE: usize = 4 << 10;

    fn members(size: u32) -> Vec<ShmColl> {
        let (first, invitation) = ShmColl::create(size, PAGE).unwrap();
        let join = |me| {
            ShmColl::join(ShmCollInvitation::parse(invitation.emit()), size, me, PAGE).unwrap()
        };
        std::iter::once(first).chain((1..size).map(join)).collect()
    }

    /// Actions of members in an operation: `posts` posts; the last one meets, if all take part.
    #[derive(Clone, Copy)]
    struct Operation {
        posts: u64,
        /// Bit for each member that skips it.
        left_out: u64,
    }

    /// Members go through operations, each as soon as it can; who comes next is drawn.
    fn go_through(size: u32, operations: &[Operation], random: &mut Random) {
        let mut shm_colls = members(size);
        // The operation, how many posts of it are done, and whether it has begun.
        let mut places = vec![(0, 0, false); size as usize];
        let mut wasted = 0;
        while places.iter().any(|place| place.0 < operations.len()) {
            let me = random.below(size as usize);
            let (at, done, has_begun) = &mut places[me];
            let Some(operation) = operations.get(*at) else { continue };
            let shm_coll = &mut shm_colls[me];
            let number = 7 + *at as i32;
            wasted += 1;
            assert!(wasted < 10_000, "members {size}: nobody can go on");
            if operation.left_out >> me & 1 == 1 {
                (*at, *done, *has_begun) = (*at + 1, 0, false);
                continue;
            }
            if !std::mem::replace(has_begun, true) && !shm_coll.operations().begin(number) {
                shm_coll.leave_out();
            }
            let told = |member: u32| [member as u8, number as u8, 1];
            if *done < operation.posts {
                if !shm_coll.has_room(3) {
                    continue;
                }
                shm_coll.post(3, |bytes, _| bytes.copy_from_slice(&told(me as u32)));
                (*done, wasted) = (*done + 1, 0);
                continue;
            }
            if operation.left_out == 0 && operation.posts > 0 {
                if !shm_coll.has(0..size) {
                    continue;
                }
                (0..size).for_each(|member| assert_eq!(shm_coll.posted(member), told(member)));
            }
            (*at, *done, *has_begun, wasted) = (*at + 1, 0, false, 0);
        }
    }

    #[test]
    fn members_that_leave_operations_out_are_in_step_with_the_others() {
        for seed in seeds(300) {
            let mut random = Random::new(seed);
            let size = 2 + random.below(4);
            let drawn = |_| Operation {
                posts: random.below(4),
                left_out: match random.below(4) {
                    0 | 1 => random.next() & ((1 << size) - 1),
                    2 => (1 << size) - 1,
                    _ => 0,
                },
            };
            let mut operations: Vec<Operation> = (0..60).map(drawn).collect();
            // All come to the last one.
            operations.push(Operation { posts: 1, left_out: 0 });
            go_through(size, &operations, &mut random);
        }
    }
}
