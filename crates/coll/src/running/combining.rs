//! Operands that ranks have posted on the shared segment, combined in the order of the schedule.

use std::ops::Deref;

use datatype::Reducer;
use memory::Region;
use plan::{Buffer, Fold, Operand, Span};
use rail_shm::ShmColl;

use super::Running;
use crate::call::Collective;
use crate::failure::{Result, no_memory};
use crate::team::Team;

impl<C: Deref<Target = Collective<T>>, T: Team> Running<C> {
    /// True if all operands of a span together are few enough to be combined under the worker's lock.
    #[inline]
    pub(super) fn is_brief_to_combine(&self, to: Span) -> bool {
        let Collective { schedule, memory, .. } = &*self.collective;
        memory.is_brief(to.len.saturating_mul(schedule.order.len() as u64))
    }

    /// Takes what all operands come to, if a rank that has had a core before has combined them.
    pub(super) fn take_combined(&self, to: Span) -> bool {
        let slot = self.collective.slot();
        let shm_coll = slot.shm_coll.lock();
        let Some(combined) = shm_coll.combined() else { return false };
        let into = self.collective.memory.stream(to, &self.temporaries);
        let fits = combined.len() == into.len();
        if fits {
            into.write(0, combined);
        }
        fits
    }

    /// Combines `own` and what the others have posted, from unit `at` on, to `to`, and tells the others if that is for all.
    pub(super) fn combine(&mut self, own: Span, at: u64, to: Span, for_all: bool) {
        let Collective { schedule, memory, .. } = &*self.collective;
        let combined = match memory.reducer() {
            Some(reducer) if to.len as usize * memory.unit() <= FEW => {
                self.combine_on_stack::<FEW, SLOTS>(own, at, to, reducer)
            }
            Some(reducer) if depth(&schedule.order) <= SLOTS / 2 => {
                self.combine_on_stack::<MANY, { SLOTS / 2 }>(own, at, to, reducer)
            }
            Some(reducer) => self.combine_on_stack::<MANY, SLOTS>(own, at, to, reducer),
            None => self.combine_in_parts(own, at, to),
        };
        if let Err(error) = combined {
            self.failure = Some(error);
        } else if for_all {
            self.tell_combined(to);
        }
    }

    #[inline]
    fn tell_combined(&self, to: Span) {
        let memory = &self.collective.memory;
        let len = to.len as usize * memory.unit();
        if memory.reducer().is_some() && len <= ShmColl::COMBINED_MAX {
            let combined = memory.stream(to, &self.temporaries);
            self.collective
                .slot()
                .shm_coll
                .lock()
                .tell_combined(len, |into| combined.read(0, into));
        }
    }

    /// In parts that are combined on the stack, from where operands lie. Who combines few bytes need not find room for many.
    fn combine_on_stack<const PART: usize, const SLOTS: usize>(
        &self,
        own: Span,
        at: u64,
        to: Span,
        reducer: Reducer,
    ) -> Result<()> {
        let Collective { schedule, memory, .. } = &*self.collective;
        let [input, output] = [own, to].map(|span| memory.stream(span, &self.temporaries));
        let at = at as usize * memory.unit();
        let shm_coll = &*self.collective.slot().shm_coll.lock();
        let (mut own, mut slots) = ([0; PART], [[0; PART]; SLOTS]);
        for start in (0..output.len()).step_by(PART) {
            let len = PART.min(output.len() - start);
            input.read(start, &mut own[..len]);
            let operands = Operands { own: &own[..len], shm_coll, at: at + start };
            if let Err(from) = operands.combine(&schedule.order, reducer, &mut slots) {
                return Err(self.unfit_part(from, shm_coll.posted(from).len(), at + output.len()));
            }
            output.write(start, &slots[0][..len]);
        }
        Ok(())
    }

    /// In parts so short that combinations stay in a first-level cache while operands pass.
    fn combine_in_parts(&self, own: Span, at: u64, to: Span) -> Result<()> {
        let part = (PART / self.collective.memory.unit().max(1)).max(1) as u64;
        for start in (0..to.len).step_by(part as usize) {
            let len = part.min(to.len - start);
            self.combine_many(own.part(start, len), at + start, to.part(start, len))?;
        }
        Ok(())
    }

    /// Combines a part of all operands into `to`, with temporaries for partial results.
    fn combine_many(&self, own: Span, at: u64, to: Span) -> Result<()> {
        let Collective { schedule, memory, .. } = &*self.collective;
        let mut temporaries = self.temporaries.clone();
        let (mut slots, mut used) = (vec![to], 0);
        for fold in &schedule.order {
            match *fold {
                Fold::Begin(begins) => {
                    if used == slots.len() {
                        let buffer = Buffer::Temporary(temporaries.len() as u32);
                        temporaries.push(memory.temporary(to.len).ok_or_else(no_memory)?);
                        slots.push(Span { buffer, start: 0, len: to.len });
                    }
                    let operand = self.operand(begins, own, at)?;
                    memory.stream(slots[used], &temporaries).copy_from(&operand);
                    used += 1;
                }
                Fold::Put(Operand::Own) => memory.reduce(own, slots[used - 1], &temporaries),
                Fold::Put(left) => {
                    memory.combine(&self.operand(left, own, at)?, slots[used - 1], &temporaries);
                }
                Fold::Join => {
                    used -= 1;
                    memory.reduce(slots[used], slots[used - 1], &temporaries);
                }
            }
        }
        Ok(())
    }

    /// The stream of an operand.
    #[inline]
    fn operand(&self, operand: Operand, own: Span, at: u64) -> Result<Region> {
        match operand {
            Operand::Own => Ok(self.collective.memory.stream(own, &self.temporaries)),
            Operand::Posted(from) => self.posted(from, at, own.len),
        }
    }
}

/// A part of all operands, where they lie.
struct Operands<'a> {
    own: &'a [u8],
    shm_coll: &'a ShmColl,
    /// Offset of the part in the posted data.
    at: usize,
}

impl Operands<'_> {
    /// Leaves in the first slot what they come to; fails with who has posted too little.
    #[inline(always)]
    fn combine<const PART: usize, const SLOTS: usize>(
        &self,
        order: &[Fold],
        reducer: Reducer,
        slots: &mut [[u8; PART]; SLOTS],
    ) -> std::result::Result<(), u32> {
        let len = self.own.len();
        // What begins a combination is read where it lies.
        let (mut used, mut begun) = (0, None::<&[u8]>);
        for fold in order {
            match *fold {
                Fold::Begin(operand) => {
                    if let Some(begun) = begun.replace(self.find(operand)?) {
                        slots[used][..len].copy_from_slice(begun);
                        used += 1;
                    }
                }
                Fold::Put(left) => {
                    let left = self.find(left)?;
                    if let Some(right) = begun.take() {
                        reducer.combine(left, right, &mut slots[used][..len]);
                        used += 1;
                    } else {
                        reducer.combine_onto(left, &mut slots[used - 1][..len]);
                    }
                }
                Fold::Join => {
                    used -= 1;
                    let (right, left) = slots.split_at_mut(used);
                    reducer.combine_onto(&left[0][..len], &mut right[used - 1][..len]);
                }
            }
        }
        if let Some(only) = begun {
            slots[0][..len].copy_from_slice(only);
        }
        Ok(())
    }

    #[inline(always)]
    fn find(&self, operand: Operand) -> std::result::Result<&[u8], u32> {
        match operand {
            Operand::Own => Ok(self.own),
            Operand::Posted(from) => {
                let part = self.shm_coll.posted(from).get(self.at..self.at + self.own.len());
                part.ok_or(from)
            }
        }
    }
}

/// Maximum number of partial results at once.
fn depth(order: &[Fold]) -> usize {
    let (mut used, mut most) = (0, 0);
    for fold in order {
        match fold {
            Fold::Begin(_) => used += 1,
            Fold::Put(_) => {}
            Fold::Join => used -= 1,
        }
        most = most.max(used);
    }
    most
}

/// Bytes of an operand that are combined at a time on the stack, where it has no more, and where it has.
const FEW: usize = 64;
const MANY: usize = 1024;

/// Combinations at once there: more than those of the most ranks that share a shared segment. Half as many do for sixteen.
const SLOTS: usize = 8;

/// Bytes of an operand that is combined at a time elsewhere, where it is long.
const PART: usize = 8 << 10;
