//! Members keep in step though one has left an operation out.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::awaited::{Awaited, What};
use super::layout::BEHIND_AT;
use super::{Shared, ShmColl, Word};

/// The operations in which a member takes part, one at a time: all go through them in the same order.
#[derive(Clone, Debug, Default)]
pub struct Operations(Arc<AtomicI32>);

impl Operations {
    /// Begins the one of this number. Whether it is the next: if not, some between were left out.
    #[inline]
    pub fn begin(&self, number: i32) -> bool {
        let latest = self.0.load(Ordering::Relaxed);
        self.0.store(number, Ordering::Relaxed);
        number == latest.wrapping_add(1)
    }

    /// That of the one under way; as many bits as are told others.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed).cast_unsigned()) & NUMBERS
    }
}

/// Whether a member knows in which round the operation under way begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Standing {
    #[default]
    InStep,
    /// It has left some out before it, whose rounds others may have gone through.
    Behind,
    /// It was behind, and has told others so; in that round it was in step.
    HasTold(u64),
}

impl<S: Shared> ShmColl<S> {
    /// Those that this member takes part in.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// This member has left out some before the one under way.
    pub fn leave_out(&mut self) {
        self.standing = Standing::Behind;
    }

    /// Whether this member knows in which round the operation begins, and has posted in all before it.
    #[inline]
    pub(super) fn is_in_step(&mut self) -> bool {
        self.standing == Standing::InStep || self.gets_in_step()
    }

    #[cold]
    fn gets_in_step(&mut self) -> bool {
        if let Standing::HasTold(round) = self.standing {
            // Its posts tell more.
            if self.round > round {
                self.tell_behind(0);
                self.standing = Standing::InStep;
            }
            return true;
        }
        let (last, is_known) = self.last_before();
        while self.round < last && self.has_place_for(0) {
            self.post_for(NONE, 0, |_, _| ());
        }
        let is_in_step = is_known && self.round == last;
        if is_in_step {
            self.standing = Standing::HasTold(last);
        }
        is_in_step
    }

    fn tell_behind(&self, mark: u64) {
        let own = self.control(self.me) + BEHIND_AT;
        self.memory.word64(own).store(mark, Ordering::Release);
    }

    /// The last round that is known to be before the operation's first, and whether it is the one before that. Whoever has
    /// begun it in step has marked posts with its number. Where nobody will, for all are behind, or have left it out, it is the
    /// latest in which somebody has posted.
    fn last_before(&mut self) -> (u64, bool) {
        let (number, me) = (self.operations.number(), self.me);
        self.tell_behind(mark(self.round, number));
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
            Awaited { round, members, what: What::Post }
        };
        self.awaited = absent.map(awaits);
        (last, absent.is_none())
    }
}

/// A round, later ones being greater, and beside it the number of the operation that it belongs to.
#[inline]
pub(super) fn mark(round: u64, number: u64) -> u64 {
    round << NUMBER_BITS | number
}

#[inline]
pub(super) fn round_of(mark: u64) -> u64 {
    mark >> NUMBER_BITS
}

/// Whether an operation is this one or comes after it, among those that are near each other.
fn is_at_or_past(number: u64, this: u64) -> bool {
    number.wrapping_sub(this) & NUMBERS <= NUMBERS / 2
}

/// Enough to tell operations apart that are under way at the same time, and to leave bits for years of rounds.
const NUMBER_BITS: u32 = 16;
const NUMBERS: u64 = (1 << (NUMBER_BITS - 1)) - 1;

/// In place of a number: the post makes up for an operation that was left out.
const NONE: u64 = NUMBERS + 1;

#[cfg(test)]
mod tests {
    use crate::shm::shm_coll::{ShmColl, ShmCollInvitation};
    use crate::sim::mix;

    const PAGE: usize = 4 << 10;

    fn members(size: u32) -> Vec<ShmColl> {
        let (first, door) = ShmColl::found(size, PAGE).unwrap();
        let join =
            |me| ShmColl::join(ShmCollInvitation::parse(door.emit()), size, me, PAGE).unwrap();
        std::iter::once(first).chain((1..size).map(join)).collect()
    }

    fn draw(seed: &mut u64) -> u64 {
        *seed = mix(*seed);
        *seed
    }

    /// What a member does in an operation: so many posts; the last of them meets, if all take part.
    #[derive(Clone, Copy)]
    struct Operation {
        posts: u64,
        /// A bit for each member that leaves it out.
        left_out: u64,
    }

    /// Members go through operations, each as soon as it can; who comes next is drawn.
    fn go_through(size: u32, operations: &[Operation], seed: &mut u64) {
        let mut shm_colls = members(size);
        // The operation, how many posts of it are done, and whether it has begun.
        let mut places = vec![(0, 0, false); size as usize];
        let mut in_vain = 0;
        while places.iter().any(|place| place.0 < operations.len()) {
            let me = (draw(seed) % u64::from(size)) as usize;
            let (at, done, has_begun) = &mut places[me];
            let Some(operation) = operations.get(*at) else { continue };
            let shm_coll = &mut shm_colls[me];
            let number = 7 + *at as i32;
            in_vain += 1;
            assert!(in_vain < 10_000, "members {size}: nobody can go on");
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
                (*done, in_vain) = (*done + 1, 0);
                continue;
            }
            if operation.left_out == 0 && operation.posts > 0 {
                if !shm_coll.has(0..size) {
                    continue;
                }
                (0..size).for_each(|member| assert_eq!(shm_coll.posted(member), told(member)));
            }
            (*at, *done, *has_begun, in_vain) = (*at + 1, 0, false, 0);
        }
    }

    #[test]
    fn members_that_leave_operations_out_are_in_step_with_the_others() {
        for number in testing::seeds(300) {
            let mut seed = number;
            println!("CANELE_SEED={number}");
            let size = 2 + (draw(&mut seed) % 4) as u32;
            let drawn = |_| Operation {
                posts: draw(&mut seed) % 4,
                left_out: match draw(&mut seed) % 4 {
                    0 | 1 => draw(&mut seed) & ((1 << size) - 1),
                    2 => (1 << size) - 1,
                    _ => 0,
                },
            };
            let mut operations: Vec<Operation> = (0..60).map(drawn).collect();
            // All come to the last one.
            operations.push(Operation { posts: 1, left_out: 0 });
            go_through(size, &operations, &mut seed);
        }
    }
}
