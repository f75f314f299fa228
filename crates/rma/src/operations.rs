//! Operations on the memory of targets.

use datatype::{Builtin, Predefined};
use engine::{CALL_MAX, PutTo, Wanted};
use memory::Region;

use crate::combine::Combination;
use crate::fault::Result;
use crate::place::{ByteRun, TargetPlace};
use crate::request::{self, CallKind, RUN_LEN};
use crate::window::{Mapped, Target, Window};

impl Window {
    /// Puts data, which are as long as the elements of `to`.
    ///
    /// # Errors
    /// Elements lie outside the window.
    pub fn put(&self, data: &Region, to: TargetPlace<'_>) -> Result<()> {
        let target = self.target(to.rank);
        to.check(target.len)?;
        if let Some(memory) = own_elements(target, &to) {
            memory.copy_from(data);
            return Ok(());
        }
        let mut at = 0;
        for ByteRun { offset, len } in to.runs() {
            self.put_run(&to, target, offset, &data.slice(at, len));
            at += len;
        }
        Self::note_sent(target);
        Ok(())
    }

    fn put_run(&self, to: &TargetPlace<'_>, target: &Target, offset: u64, data: &Region) {
        let (progress, put) = (&self.inner.progress, PutTo { key: target.key, offset });
        if !progress.put_short(target.peer, put, data) {
            let op = progress.submit(|worker| worker.engine.submit_put(target.peer, put, data));
            self.note(to.rank, op);
        }
    }

    /// Gets the elements of `from` into memory of the same length.
    ///
    /// # Errors
    /// Elements lie outside the window.
    pub fn get(&self, into: &Region, from: TargetPlace<'_>) -> Result<()> {
        let target = self.target(from.rank);
        from.check(target.len)?;
        if let Some(memory) = own_elements(target, &from) {
            into.copy_from(&memory);
            return Ok(());
        }
        let mut at = 0;
        for ByteRun { offset, len } in from.runs() {
            let (place, into) = (PutTo { key: target.key, offset }, into.slice(at, len));
            let submit =
                |worker: &mut progress::Worker| worker.engine.submit_get(target.peer, place, &into);
            self.note(from.rank, self.inner.progress.submit(submit));
            at += len;
        }
        Ok(())
    }

    /// Combines data with the elements of `to`, which consist of `builtin`.
    ///
    /// # Errors
    /// Elements lie outside the window.
    pub fn accumulate(
        &self,
        data: &Region,
        to: TargetPlace<'_>,
        builtin: Builtin,
        op: Predefined,
    ) -> Result<()> {
        self.combine(data, None, &to, &Combination::new(builtin, op))
    }

    /// Combines data like [`Window::accumulate`]; `result` gets the elements that were there. With
    /// [`Predefined::NoOp`] there are no data.
    ///
    /// # Errors
    /// Those of [`Window::accumulate`].
    pub fn get_accumulate(
        &self,
        data: &Region,
        result: &Region,
        to: TargetPlace<'_>,
        builtin: Builtin,
        op: Predefined,
    ) -> Result<()> {
        let none = || Region::from_box(vec![0; to.len()].into());
        let operand = if op == Predefined::NoOp { none() } else { data.clone() };
        self.combine(&operand, Some(result), &to, &Combination::new(builtin, op))
    }

    /// Replaces one element by `data` if it equals `compare`; `result` gets the element that was there.
    ///
    /// # Errors
    /// The element lies outside the window.
    pub fn compare_and_swap(
        &self,
        data: &Region,
        compare: &Region,
        result: &Region,
        to: TargetPlace<'_>,
        builtin: Builtin,
    ) -> Result<()> {
        let target = self.target(to.rank);
        to.check(target.len)?;
        let combination = Combination::new(builtin, Predefined::NoOp);
        let (compare, new) = (compare.to_vec(), data.to_vec());
        let offset = to.displacement as u64;
        if let Some(Mapped { memory, control }) = &target.mapped {
            let values = (&compare[..], &new[..]);
            let old = combination.compare_and_swap(memory, offset as usize, values, control);
            result.write(0, &old);
            return Ok(());
        }
        let arguments = [request::argument_of(target.key), combination.number(), offset];
        let payload = [compare, new].concat();
        self.call(&to, target, CallKind::CompareAndSwap, arguments, payload, Some(result));
        Ok(())
    }

    fn combine(
        &self,
        data: &Region,
        result: Option<&Region>,
        to: &TargetPlace<'_>,
        combination: &Combination,
    ) -> Result<()> {
        let target = self.target(to.rank);
        to.check(target.len)?;
        if let Some(mapped) = &target.mapped {
            combine_mapped(data, result, to, combination, mapped);
            return Ok(());
        }
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
        Ok(())
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
        let (data, at) = (data.slice(part.at, len).to_vec(), part.at);
        let result = result.map(|result| result.slice(at, len));
        let runs = std::mem::take(&mut part.runs);
        (part.at, part.elements) = (at + len, 0);
        let mut payload = Vec::with_capacity(runs.len() * RUN_LEN + len);
        runs.iter().for_each(|&(offset, count)| request::push_run(&mut payload, offset, count));
        payload.extend_from_slice(&data);
        let key = request::argument_of(target.key);
        let arguments = [key, combination.number(), runs.len() as u64];
        self.call(to, target, CallKind::Accumulate, arguments, payload, result.as_ref());
    }

    /// Calls a handler of a target, which replies if there is room for it.
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
        let wanted = reply.map_or(Wanted::Nothing, Wanted::Reply);
        let op = self.inner.progress.submit(|worker| {
            let handler = kind.handler();
            worker.engine.submit_call(target.peer, handler, arguments, &payload, wanted)
        });
        Self::note_sent(target);
        self.note(to.rank, op);
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
    let (size, mut read, mut kept) = (combination.size(), 0, 0);
    let mut old = |bytes: &[u8]| {
        if let Some(result) = result {
            result.write(kept, bytes);
            kept += bytes.len();
        }
    };
    if to.len() == size && to.layout.is_contiguous() {
        // One element, as in most calls.
        let mut element = [0; ELEMENT_MAX];
        data.read(0, &mut element[..size]);
        let offset = to.displacement as usize;
        return combination.apply(memory, offset, &element[..size], control, &mut old);
    }
    for (offset, count) in element_runs(to, combination) {
        for first in (0..count).step_by(LOCKED_MAX) {
            let some = LOCKED_MAX.min(count - first);
            let bytes = data.slice(read, some * size).to_vec();
            let at = offset as usize + first * combination.extent();
            combination.apply(memory, at, &bytes, control, &mut old);
            read += bytes.len();
        }
    }
}

/// Longest element in bytes.
const ELEMENT_MAX: usize = 32;

/// Number of elements that are combined while others wait for the lock.
const LOCKED_MAX: usize = 2048;

/// Elements of a place in memory that this process maps.
fn own_elements(target: &Target, place: &TargetPlace<'_>) -> Option<Region> {
    let mapped = target.mapped.as_ref()?;
    let displacement = isize::try_from(place.displacement).ok()?;
    mapped.memory.typed(displacement, place.count, place.layout)
}

/// Runs of whole elements of a predefined type: the offset of the first, and their number.
fn element_runs(place: &TargetPlace<'_>, combination: &Combination) -> Vec<(u64, usize)> {
    let (size, extent) = (combination.size(), combination.extent());
    let mut runs: Vec<(u64, usize)> = Vec::new();
    // Bytes that are missing of an element whose parts have gaps between them.
    let mut missing = 0;
    for ByteRun { offset, len } in place.runs() {
        if missing > 0 {
            missing -= len.min(missing);
            continue;
        }
        let count = if size == extent { len / size } else { 1 };
        missing = (size * count).saturating_sub(len);
        match runs.last_mut() {
            Some((first, number)) if *first + (*number * extent) as u64 == offset => {
                *number += count
            }
            _ => runs.push((offset, count)),
        }
    }
    runs
}
