//! Operands that ranks have posted on the board, combined in the order of the schedule.

use std::ops::Deref;

use datatype::{Builtin, Predefined};
use memory::Region;
use plan::{Buffer, Fold, Operand, Span};

use super::{Collective, Running};
use crate::Result;

impl<C: Deref<Target = Collective>> Running<C> {
    /// Whether all operands of a span together are combined so soon that others may wait for the core meanwhile.
    #[inline]
    pub(super) fn is_brief_to_combine(&self, to: Span) -> bool {
        let Collective { schedule, memory, .. } = &*self.collective;
        memory.is_brief(to.len.saturating_mul(schedule.order.len() as u64))
    }

    /// Combines `own` and what the others have posted, from unit `at` on, to `to`.
    pub(super) fn combine(&mut self, own: Span, at: u64, to: Span) {
        let memory = &self.collective.memory;
        let combined = match memory.packed() {
            Some(kind) if to.len as usize * memory.unit() <= SLOT => {
                self.combine_few(own, at, to, kind)
            }
            Some(_) | None => self.combine_in_parts(own, at, to),
        };
        if let Err(error) = combined {
            self.failure = Some(error);
        }
    }

    /// On the stack: few bytes are combined in less time than it takes to say where they lie.
    fn combine_few(
        &self,
        own: Span,
        at: u64,
        to: Span,
        (op, builtin): (Predefined, Builtin),
    ) -> Result<()> {
        let Collective { schedule, memory, .. } = &*self.collective;
        let len = to.len as usize * memory.unit();
        let (mut slots, mut operand, mut used) = ([[0; SLOT]; SLOTS], [0; SLOT], 0);
        for fold in &schedule.order {
            match *fold {
                Fold::Begin(begins) => {
                    self.operand(begins, own, at)?.read(0, &mut slots[used][..len]);
                    used += 1;
                }
                Fold::Put(left) => {
                    self.operand(left, own, at)?.read(0, &mut operand[..len]);
                    op.apply_bytes(&operand[..len], &mut slots[used - 1][..len], builtin);
                }
                Fold::Join => {
                    used -= 1;
                    let (right, left) = slots.split_at_mut(used);
                    op.apply_bytes(&left[0][..len], &mut right[used - 1][..len], builtin);
                }
            }
        }
        memory.stream(to, &self.temporaries).write(0, &slots[0][..len]);
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

    /// Where the result goes, and in temporaries.
    fn combine_many(&self, own: Span, at: u64, to: Span) -> Result<()> {
        let Collective { schedule, memory, .. } = &*self.collective;
        let mut temporaries = self.temporaries.clone();
        let (mut slots, mut used) = (vec![to], 0);
        for fold in &schedule.order {
            match *fold {
                Fold::Begin(begins) => {
                    if used == slots.len() {
                        let buffer = Buffer::Temporary(temporaries.len() as u32);
                        temporaries.push(memory.temporary(to.len));
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

/// Bytes of an operand that is combined on the stack.
const SLOT: usize = 64;

/// Bytes of an operand that is combined at a time where it is long.
const PART: usize = 8 << 10;

/// Combinations at once there: more than those of the most ranks that share a board.
const SLOTS: usize = 8;
