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
            Some(kind) if to.len as usize * memory.unit() <= FEW => {
                self.combine_few(own, at, to, kind)
            }
            Some(kind) if depth(&self.collective.schedule.order) <= SLOTS / 2 => {
                self.combine_on_stack::<{ SLOTS / 2 }>(own, at, to, kind)
            }
            Some(kind) => self.combine_on_stack::<SLOTS>(own, at, to, kind),
            None => self.combine_in_parts(own, at, to),
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
        let (mut slots, mut operand, mut used) = ([[0; FEW]; SLOTS], [0; FEW], 0);
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

    /// In parts that are combined on the stack, from where operands lie. Who combines few bytes need not find room for that.
    #[inline(never)]
    fn combine_on_stack<const SLOTS: usize>(
        &self,
        own: Span,
        at: u64,
        to: Span,
        (op, builtin): (Predefined, Builtin),
    ) -> Result<()> {
        let Collective { schedule, memory, .. } = &*self.collective;
        let output = memory.stream(to, &self.temporaries);
        let mut operands = Vec::with_capacity(schedule.order.len());
        for fold in &schedule.order {
            if let Fold::Begin(operand) | Fold::Put(operand) = *fold {
                operands.push(self.operand(operand, own, at)?);
            }
        }
        let mut slots = [[0; SLOT]; SLOTS];
        for start in (0..output.len()).step_by(SLOT) {
            let len = SLOT.min(output.len() - start);
            let (mut operands, mut begun, mut used) = (operands.iter(), None::<&Region>, 0);
            for fold in &schedule.order {
                match fold {
                    Fold::Begin(_) => {
                        if let Some(begun) = std::mem::replace(&mut begun, operands.next()) {
                            begun.read(start, &mut slots[used][..len]);
                            used += 1;
                        }
                    }
                    Fold::Put(_) => {
                        let (left, right) = (operands.next(), begun.take());
                        used += usize::from(right.is_some());
                        let out = &mut slots[used - 1][..len];
                        if let Some(left) = left {
                            op.combine_parts(left, right, start, out, builtin);
                        }
                    }
                    Fold::Join => {
                        used -= 1;
                        let (right, left) = slots.split_at_mut(used);
                        op.apply_bytes(&left[0][..len], &mut right[used - 1][..len], builtin);
                    }
                }
            }
            match begun {
                Some(only) => output.slice(start, len).copy_from(&only.slice(start, len)),
                None => output.write(start, &slots[0][..len]),
            }
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

/// How many combinations there are at once.
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

/// Bytes of an operand that is combined at a time on the stack, where it has no more, and where it has.
const FEW: usize = 64;
const SLOT: usize = 1024;

/// Combinations at once there: more than those of the most ranks that share a board. Half as many do for sixteen.
const SLOTS: usize = 8;

/// Bytes of an operand that is combined at a time elsewhere, where it is long.
const PART: usize = 8 << 10;
