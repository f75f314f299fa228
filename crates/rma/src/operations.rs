//! Operations on the memory of targets.

use engine::{CALL_MAX, PutTo, Short, Wanted};
use memory::Region;

use crate::combine::{Combination, ELEMENT_MAX};
use crate::control::Control;
use crate::delayed::{DelayedAccumulate, OPERAND_MAX};
use crate::fault::Result;
use crate::pieces::{PIECE_MAX, PieceRun, Pieces};
use crate::place::{ByteRun, TargetPlace};
use crate::request::{self, CallKind, RUN_LEN};
use crate::window::{Mapped, Target, Window};

impl Window {
    /// Puts data, which are as long as the elements of `to`.
    ///
    /// # Errors
    /// Elements lie outside the window.
    #[inline(always)]
    pub fn put(&self, data: &Region, to: TargetPlace<'_>) -> Result<()> {
        let target = self.target(to.rank());
        to.check(target.len)?;
        match (&target.mapped, to.contiguous()) {
            (Some(mapped), Some(offset)) if !data.is_empty() => {
                mapped.memory.move_piece(offset, data, 0, data.len());
            }
            _ => self.put_unusual(data.clone(), to),
        }
        Ok(())
    }

    /// Puts data with gaps, or to memory that this process does not map.
    #[inline(never)]
    fn put_unusual(&self, data: Region, to: TargetPlace<'_>) {
        let target = self.target(to.rank());
        match &target.mapped {
            Some(Mapped { memory, .. }) => elements(memory, &to).copy_from(&data),
            None if data.is_empty() => {}
            None => self.put_remote(&data, &to, target),
        }
    }

    fn put_remote(&self, data: &Region, to: &TargetPlace<'_>, target: &Target) {
        let (mut at, mut pieces) = (0, Pieces::default());
        to.each_run(|piece| {
            if piece.len > PIECE_MAX || piece.len == data.len() {
                self.put_pieces(&mut pieces, (data, at), to, target);
                self.put_run(to, target, piece.offset, &data.slice(at, piece.len));
            } else if !pieces.add::<true>(piece) {
                self.put_pieces(&mut pieces, (data, at), to, target);
                pieces.add::<true>(piece);
            }
            at += piece.len;
        });
        self.put_pieces(&mut pieces, (data, at), to, target);
    }

    /// True if a flush is likely to follow the next operation on a target, and is as cheap before as after it.
    fn expects_flush(&self, target: &Target) -> bool {
        !self.is_of_request() && target.outstanding.expects_flush()
    }

    /// Puts short pieces, whose data end at byte `end`, and empties their list.
    fn put_pieces(
        &self,
        pieces: &mut Pieces,
        (data, end): (&Region, usize),
        to: &TargetPlace<'_>,
        target: &Target,
    ) {
        let Pieces { runs, bytes } = &pieces;
        if runs.is_empty() {
            return;
        }
        let mut payload = Vec::with_capacity(runs.len() * PieceRun::LEN + bytes);
        pieces.encode(&mut payload);
        data.slice(end - bytes, *bytes).append_to(&mut payload);
        let arguments = [request::argument_of(target.key), runs.len() as u64, 0];
        self.call(to, target, CallKind::Put, arguments, payload, None);
        *pieces = Pieces::default();
    }

    fn put_run(&self, to: &TargetPlace<'_>, target: &Target, offset: u64, data: &Region) {
        let (progress, put) = (&self.inner.progress, PutTo { key: target.key, offset });
        if data.len() <= PIECE_MAX && self.expects_flush(target) {
            // Both leave in one frame.
            let flush = progress.submit(|worker| {
                let op = worker.engine.submit_put(target.peer, put, data);
                worker.engine.release(op);
                worker.engine.submit_flush(target.peer)
            });
            return self.note(to.rank(), flush);
        }
        if !progress.access_short(target.peer, Short::Put(put), data) {
            let op = progress.submit(|worker| worker.engine.submit_put(target.peer, put, data));
            self.note(to.rank(), op);
        }
        target.outstanding.note_sent();
    }

    /// Gets the elements of `from` into memory of the same length.
    ///
    /// # Errors
    /// Elements lie outside the window.
    #[inline(always)]
    pub fn get(&self, into: &Region, from: TargetPlace<'_>) -> Result<()> {
        let target = self.target(from.rank());
        from.check(target.len)?;
        match (&target.mapped, from.contiguous()) {
            (Some(mapped), Some(offset)) if !into.is_empty() => {
                into.move_piece(0, &mapped.memory, offset, into.len());
            }
            _ => self.get_unusual(into.clone(), from),
        }
        Ok(())
    }

    /// Gets elements with gaps, or from memory that this process does not map.
    #[inline(never)]
    fn get_unusual(&self, into: Region, from: TargetPlace<'_>) {
        let target = self.target(from.rank());
        match &target.mapped {
            Some(Mapped { memory, .. }) => into.copy_from(&elements(memory, &from)),
            None if into.is_empty() => {}
            None => self.get_remote(&into, &from, target),
        }
    }

    fn get_remote(&self, into: &Region, from: &TargetPlace<'_>, target: &Target) {
        let (mut at, mut pieces) = (0, Pieces::default());
        from.each_run(|piece| {
            if piece.len > PIECE_MAX || piece.len == into.len() {
                self.get_pieces(&mut pieces, (into, at), from, target);
                self.get_run(from, target, piece.offset, &into.slice(at, piece.len));
            } else if !pieces.add::<false>(piece) {
                self.get_pieces(&mut pieces, (into, at), from, target);
                pieces.add::<false>(piece);
            }
            at += piece.len;
        });
        self.get_pieces(&mut pieces, (into, at), from, target);
    }

    fn get_run(&self, from: &TargetPlace<'_>, target: &Target, offset: u64, into: &Region) {
        let place = PutTo { key: target.key, offset };
        let submit =
            |worker: &mut progress::Worker| worker.engine.submit_get(target.peer, place, into);
        self.note(from.rank(), self.inner.progress.submit(submit));
    }

    /// Gets short pieces, whose memory here ends at byte `end`, and empties their list.
    fn get_pieces(
        &self,
        pieces: &mut Pieces,
        (into, end): (&Region, usize),
        from: &TargetPlace<'_>,
        target: &Target,
    ) {
        let Pieces { runs, bytes } = &pieces;
        if runs.is_empty() {
            return;
        }
        let mut payload = Vec::with_capacity(runs.len() * PieceRun::LEN);
        pieces.encode(&mut payload);
        let arguments = [request::argument_of(target.key), runs.len() as u64, 0];
        let into = into.slice(end - bytes, *bytes);
        self.call(from, target, CallKind::Get, arguments, payload, Some(&into));
        *pieces = Pieces::default();
    }

    /// Combines data with the elements of `to`.
    ///
    /// # Errors
    /// Elements lie outside the window.
    #[inline(always)]
    pub fn accumulate(
        &self,
        data: &Region,
        to: TargetPlace<'_>,
        combination: &'static Combination,
    ) -> Result<()> {
        match self.delayed {
            None => self.combine(Some(data), None, to, combination),
            // The call that is rarely made gets a value, so that this one stays in registers.
            Some(_) => self.accumulate_in_any_order(&data.clone(), to, combination),
        }
    }

    /// Combines data like [`Window::accumulate`]; `result` gets the elements that were there. Without data, the elements
    /// stay as they are.
    ///
    /// # Errors
    /// Those of [`Window::accumulate`].
    #[inline(always)]
    pub fn get_accumulate(
        &self,
        data: Option<&Region>,
        result: &Region,
        to: TargetPlace<'_>,
        combination: &'static Combination,
    ) -> Result<()> {
        self.combine(data, Some(result), to, combination)
    }

    /// Replaces one element without gaps by `data` if it equals `compare`; `result` gets the element that was there. The
    /// combination is one of its type.
    ///
    /// # Errors
    /// The element lies outside the window.
    #[inline]
    pub fn compare_and_swap(
        &self,
        data: &Region,
        compare: &Region,
        result: &Region,
        to: TargetPlace<'_>,
        combination: &'static Combination,
    ) -> Result<()> {
        let target = self.target(to.rank());
        to.check(target.len)?;
        let Some(Mapped { memory, control }) = &target.mapped else {
            self.swap_remote([data.clone(), compare.clone(), result.clone()], to, combination);
            return Ok(());
        };
        let (size, offset) = (to.len(), to.displacement() as usize);
        let (mut older, mut newer) = ([0; ELEMENT_MAX], [0; ELEMENT_MAX]);
        let (older, newer) = (&mut older[..size], &mut newer[..size]);
        compare.read(0, older);
        data.read(0, newer);
        let keep = |old: &[u8]| result.write(0, old);
        combination.compare_and_swap(memory, offset, (older, newer), control, keep);
        Ok(())
    }

    #[inline(never)]
    fn swap_remote(
        &self,
        [data, compare, result]: [Region; 3],
        to: TargetPlace<'_>,
        combination: &Combination,
    ) {
        let (target, offset) = (self.target(to.rank()), to.displacement() as u64);
        let arguments = [request::argument_of(target.key), combination.number(), offset];
        let payload = [compare.to_vec(), data.to_vec()].concat();
        self.call(&to, target, CallKind::CompareAndSwap, arguments, payload, Some(&result));
    }

    /// Combines data with elements of a target; without data, the elements stay as they are.
    #[inline(always)]
    fn combine(
        &self,
        data: Option<&Region>,
        result: Option<&Region>,
        to: TargetPlace<'_>,
        combination: &'static Combination,
    ) -> Result<()> {
        let target = self.target(to.rank());
        to.check(target.len)?;
        match (&target.mapped, to.contiguous()) {
            (Some(Mapped { memory, control }), Some(offset))
                if combination.simple_size() == Some(to.len()) =>
            {
                combination.apply_to_one(memory, offset, data, result, control);
            }
            _ => self.combine_several(data.cloned(), result.cloned(), to, combination),
        }
        Ok(())
    }

    /// Combines data in any order; short ones wait.
    #[inline(never)]
    fn accumulate_in_any_order(
        &self,
        data: &Region,
        to: TargetPlace<'_>,
        combination: &'static Combination,
    ) -> Result<()> {
        let target = self.target(to.rank());
        to.check(target.len)?;
        let is_short = to.len() == OPERAND_MAX && combination.simple_size() == Some(OPERAND_MAX);
        match (&self.delayed, &target.mapped, to.contiguous()) {
            (Some(delayed), Some(mapped), Some(offset)) if is_short => {
                let mut operand = [0; OPERAND_MAX];
                data.read(0, &mut operand);
                let new = DelayedAccumulate { rank: to.rank(), offset, operand, combination };
                let note = || target.outstanding.note_delayed();
                delayed.push(new, &mapped.memory, note, |oldest| self.apply_delayed(oldest));
            }
            _ => self.combine_several(Some(data.clone()), None, to, combination),
        }
        Ok(())
    }

    /// Combines the element of an accumulate that has waited.
    #[inline]
    pub(crate) fn apply_delayed(&self, delayed: DelayedAccumulate) {
        let DelayedAccumulate { rank, offset, operand, combination } = delayed;
        if let Some(Mapped { memory, control }) = &self.target(rank).mapped {
            let (at, mut old) = ((memory, offset), [0; OPERAND_MAX]);
            combination.combine_operand::<OPERAND_MAX>(&operand, at, &mut old, control);
        }
    }

    #[inline(never)]
    fn combine_several(
        &self,
        data: Option<Region>,
        result: Option<Region>,
        to: TargetPlace<'_>,
        combination: &Combination,
    ) {
        let (target, result) = (self.target(to.rank()), result.as_ref());
        let data = data.unwrap_or_else(|| Region::owned(to.len()));
        match &target.mapped {
            Some(mapped) => combine_mapped(&data, result, &to, combination, mapped),
            None => self.combine_remote(&data, result, &to, target, combination),
        }
    }

    fn combine_remote(
        &self,
        data: &Region,
        result: Option<&Region>,
        to: &TargetPlace<'_>,
        target: &Target,
        combination: &Combination,
    ) {
        let mut part = CallPart { at: 0, runs: Vec::new(), elements: 0 };
        for (offset, count) in element_runs(to, combination) {
            let mut done = 0;
            while done < count {
                let room = part.room(combination);
                if room == 0 {
                    self.combine_part(&mut part, (data, result), to, target, combination);
                    continue;
                }
                let some = room.min(count - done);
                part.runs.push((offset + (done * combination.extent()) as u64, some as u32));
                part.elements += some;
                done += some;
            }
        }
        self.combine_part(&mut part, (data, result), to, target, combination);
    }

    /// Combines some runs of elements, and empties their list.
    fn combine_part(
        &self,
        part: &mut CallPart,
        (data, result): (&Region, Option<&Region>),
        to: &TargetPlace<'_>,
        target: &Target,
        combination: &Combination,
    ) {
        let len = part.elements * combination.size();
        if len == 0 {
            return;
        }
        let at = part.at;
        let result = result.map(|result| result.slice(at, len));
        let runs = std::mem::take(&mut part.runs);
        (part.at, part.elements) = (at + len, 0);
        let mut payload = Vec::with_capacity(runs.len() * RUN_LEN + len);
        runs.iter().for_each(|&(offset, count)| request::push_run(&mut payload, offset, count));
        data.slice(at, len).append_to(&mut payload);
        let key = request::argument_of(target.key);
        let arguments = [key, combination.number(), runs.len() as u64];
        self.call(to, target, CallKind::Accumulate, arguments, payload, result.as_ref());
    }

    /// Calls a handler of a target, which replies if there is room for it. A call that was replied to needs no flush.
    fn call(
        &self,
        to: &TargetPlace<'_>,
        target: &Target,
        kind: CallKind,
        arguments: [u64; 3],
        payload: Vec<u8>,
        reply: Option<&Region>,
    ) {
        let payload = Region::from_box(payload.into());
        let wanted = match reply {
            Some(reply) => Wanted::Reply(reply),
            None if self.expects_flush(target) => Wanted::Done,
            None => Wanted::Nothing,
        };
        let (progress, handler) = (&self.inner.progress, kind.handler());
        if matches!(wanted, Wanted::Nothing)
            && progress.access_short(target.peer, Short::Call(handler, arguments), &payload)
        {
            return target.outstanding.note_sent();
        }
        let op = progress.submit(|worker| {
            worker.engine.submit_call(target.peer, handler, arguments, &payload, wanted)
        });
        if matches!(wanted, Wanted::Nothing) {
            target.outstanding.note_sent();
        }
        self.note(to.rank(), op);
    }
}

/// Elements that share a call.
struct CallPart {
    /// Offset of their data, in bytes.
    at: usize,
    /// Offset of the first element of each run in the window, and number of its elements.
    runs: Vec<(u64, u32)>,
    elements: usize,
}

impl CallPart {
    /// Number of elements that another run may have.
    fn room(&self, combination: &Combination) -> usize {
        let taken = (self.runs.len() + 1) * RUN_LEN + self.elements * combination.size();
        CALL_MAX.saturating_sub(taken) / combination.size()
    }
}

/// Combines elements in memory that this process maps.
fn combine_mapped(
    data: &Region,
    result: Option<&Region>,
    to: &TargetPlace<'_>,
    combination: &Combination,
    Mapped { memory, control }: &Mapped,
) {
    let step = LOCKED_MAX * combination.size();
    if combination.has_gaps() {
        return combine_with_gaps(data, result, to, combination, (memory, control));
    }
    let elements = elements(memory, to);
    for at in (0..data.len()).step_by(step) {
        let len = step.min(data.len() - at);
        let (data, result) = (data.slice(at, len), result.map(|result| result.slice(at, len)));
        let elements = elements.slice(at, len);
        let work = || combination.apply_to_stream(&elements, &data, result.as_ref());
        control.combine((&elements, 0, len), work);
    }
}

/// Combines elements whose parts have gaps in memory.
#[cold]
fn combine_with_gaps(
    data: &Region,
    result: Option<&Region>,
    to: &TargetPlace<'_>,
    combination: &Combination,
    (memory, control): (&Region, &Control),
) {
    let (mut read, mut kept) = (0, 0);
    for (offset, count) in element_runs(to, combination) {
        for first in (0..count).step_by(LOCKED_MAX) {
            let some = LOCKED_MAX.min(count - first);
            let bytes = data.slice(read, some * combination.size()).to_vec();
            let at = offset as usize + first * combination.extent();
            combination.apply(memory, at, &bytes, control, &mut |old| {
                result.inspect(|result| result.write(kept, old));
                kept += old.len();
            });
            read += bytes.len();
        }
    }
}

/// Number of elements that are combined while others wait for the locks.
const LOCKED_MAX: usize = 4096;

/// Elements of a place in memory that this process maps. The place was checked.
fn elements(memory: &Region, place: &TargetPlace<'_>) -> Region {
    let Some((count, layout)) = place.scattered() else {
        return memory.slice(place.displacement() as usize, place.len());
    };
    let displacement = isize::try_from(place.displacement()).ok();
    let found = displacement.and_then(|at| memory.typed(at, count, layout));
    found.unwrap_or_else(Region::empty)
}

/// Runs of whole elements of a predefined type: the offset of the first, and their number.
fn element_runs(place: &TargetPlace<'_>, combination: &Combination) -> Vec<(u64, usize)> {
    let (size, extent) = (combination.size(), combination.extent());
    let mut runs: Vec<(u64, usize)> = Vec::new();
    // Bytes that are missing of an element whose parts have gaps between them.
    let mut missing = 0;
    place.each_run(|ByteRun { offset, len }| {
        if missing > 0 {
            missing -= len.min(missing);
            return;
        }
        let count = if size == extent { len / size } else { 1 };
        missing = (size * count).saturating_sub(len);
        match runs.last_mut() {
            Some((first, number)) if *first + (*number * extent) as u64 == offset => {
                *number += count
            }
            _ => runs.push((offset, count)),
        }
    });
    runs
}
