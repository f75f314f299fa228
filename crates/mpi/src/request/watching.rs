//! Long arrays of requests that a program names again and again, as loops around `MPI_Waitany` do.
//!
//! A call that looked at every request would make such a loop quadratic. From its second use on, an array is *watched*:
//! each of its requests is registered in a queue of ends (`engine::EndQueueId`), and a call takes its answer from the
//! queue. Each VCI watches the requests that it carries, under its worker's lock, and depends on no other.
//!
//! The array belongs to the program, which may change it between calls. A call that finds no end in the queue compares
//! the array with the registered handles, which takes a fraction of a nanosecond for each, before it waits. A call
//! that does find one compares only now and then. An answer is always checked against the array.

use std::cell::Cell;

use engine::{EndMark, EndQueueId};
use handles::Handle;
use progress::Worker;

use super::completion::{
    LONG, List, end, entry, is_active, is_asked, is_of_all_vcis, listed_twice, test_in, transposed,
};
use super::named::{Named, unknown};
use super::registered::Registered;
use super::requests::REQUESTS;
use super::{Ended, NULL};
use crate::process::Process;
use crate::vci::{Vci, VciSet};
use crate::watched::WatchedArray;
use crate::{Error, Result};

/// A call that names a watched array.
struct WatchedCall<'a, F> {
    process: &'a Process,
    handles: &'a [Cell<Handle>],
    /// Largest number of ends to report: one, or all.
    most: usize,
    report: F,
    /// VCIs in which the array has been compared.
    compared: VciSet,
    is_active: bool,
}

/// True if the calls for one or some of these requests use a watched array.
#[inline]
pub(super) fn is_watched(process: &Process, handles: &[Cell<Handle>]) -> bool {
    handles.len() >= LONG && process.watched().is_repeated(handles.as_ptr().addr())
}

/// Answers like [`wait_some`](super::several::wait_some) or [`test_some`](super::several::test_some).
pub(super) fn some(
    process: &Process,
    handles: &[Cell<Handle>],
    most: usize,
    waits: bool,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    let (compared, mut vcis) = (VciSet::NONE, VciSet::NONE);
    let mut call = WatchedCall { process, handles, most, report, compared, is_active: true };
    if process.vcis() > 1 {
        if most == 1 && call.take_in_any_vci()? {
            return Ok(true);
        }
        vcis = List::vcis_of(process, handles)?;
        if !call.has_active()? {
            return Ok(false);
        }
    }
    let look = |vci, worker: &mut Worker| call.look(vci, worker);
    let found = match waits {
        true => Some(process.wait_in(vcis, transposed(look))?),
        false => test_in(process, vcis, look)?,
    };
    if found.is_none() {
        process.vci(vcis.first()).pause();
    }
    Ok(call.is_active)
}

impl<F: FnMut(usize, Ended)> WatchedCall<'_, F> {
    fn address(&self) -> usize {
        self.handles.as_ptr().addr()
    }

    /// Reports requests that have ended, as far as this VCI's worker knows; `None` if there are none.
    fn look(&mut self, vci: Vci, worker: &mut Worker) -> Result<Option<()>> {
        let mut watched = self.process.watched().of(vci);
        let (array, is_new) = watched.reach(self.address(), worker);
        let looked = self.look_at(array, is_new, (vci, worker));
        if looked.is_err() || !self.is_active {
            watched.close(self.address(), worker);
        }
        looked
    }

    fn look_at(
        &mut self,
        array: &mut WatchedArray,
        is_new: bool,
        (vci, worker): (Vci, &mut Worker),
    ) -> Result<Option<()>> {
        if is_new {
            List::check_all(self.process, self.handles, vci, worker)?;
        }
        let mut is_compared = !is_new && self.compared.contains(vci);
        if !is_compared && (is_new || self.most > 1 || array.is_due()) {
            self.compare(array, (vci, worker))?;
            is_compared = true;
        }
        let mut found = self.take(array, (vci, worker))?;
        if found == 0 && !is_compared {
            self.compare(array, (vci, worker))?;
            found = self.take(array, (vci, worker))?;
        }
        if found == 0 && worker.engine.failed_peers() != 0 {
            found = self.take_held_up(array, (vci, worker))?;
        }
        if found > 0 {
            return Ok(Some(()));
        }
        if self.process.vcis() == 1 && !array.expects_ends(worker) && !self.asks(array)? {
            self.is_active = false;
            return Ok(Some(()));
        }
        match array.asked.is_empty() {
            true => worker.await_end_in(array.queue),
            false => worker.await_any(|| None),
        }
        Ok(None)
    }

    /// Reports receives whose senders may have failed, which enter no queue; how many.
    #[cold]
    fn take_held_up(
        &mut self,
        array: &mut WatchedArray,
        (vci, worker): (Vci, &mut Worker),
    ) -> Result<usize> {
        let mut found = 0;
        for place in 0..self.handles.len() as u32 {
            if found < self.most && self.end_at(array, place, (vci, worker))? {
                found += 1;
            }
        }
        Ok(found)
    }

    fn compare(
        &mut self,
        array: &mut WatchedArray,
        (vci, worker): (Vci, &mut Worker),
    ) -> Result<()> {
        self.compared = self.compared.with(vci);
        compare(array, self.handles, self.process.vcis() > 1, (vci, worker))
    }

    /// Reports ends from the queue, and those that must be asked for; how many.
    fn take(&mut self, array: &mut WatchedArray, of: (Vci, &mut Worker)) -> Result<usize> {
        let (vci, worker) = of;
        let mut found = 0;
        if self.most == 1 {
            while found == 0
                && let Some(place) = worker.engine.next_end(array.queue)
            {
                found += usize::from(self.end_at(array, place, (vci, worker))?);
            }
        } else {
            let mut places = Vec::new();
            places.extend(std::iter::from_fn(|| worker.engine.next_end(array.queue)));
            places.sort_unstable();
            for place in places {
                found += usize::from(self.end_at(array, place, (vci, worker))?);
            }
        }
        for place in array.asked.clone() {
            if found < self.most && self.end_at(array, place, (vci, worker))? {
                // A persistent request stays, and may be started again.
                if array.handles.get(place as usize) == Some(&NULL) {
                    array.asked.retain(|asked| *asked != place);
                }
                found += 1;
            }
        }
        Ok(found)
    }

    /// Ends and reports the request at a place of the array, if it is the registered one and has ended.
    fn end_at(
        &mut self,
        array: &mut WatchedArray,
        place: u32,
        of: (Vci, &mut Worker),
    ) -> Result<bool> {
        let index = place as usize;
        of.1.note_request_looks(1);
        array.taken += 1;
        let known = array.handles.get(index).copied();
        let Some(cell) = self.handles.get(index).filter(|cell| Some(cell.get()) == known) else {
            // The program has changed the array, and may change it back before it is compared.
            array.missed.push(place);
            return Ok(false);
        };
        let handle = cell.get();
        // The place may have entered the queue for a former request.
        if !is_asked(handle, of.0)? {
            return Ok(false);
        }
        let ended = end(of, handle).map_err(|error| error.about(entry(index)))?;
        // Otherwise another of its operations is under way.
        let Some(ended) = ended else { return Ok(false) };
        if ended.freed {
            cell.set(NULL);
            array.handles[index] = NULL;
        }
        (self.report)(index, ended);
        Ok(true)
    }

    /// True if one of the requests that must be asked for is active.
    fn asks(&self, array: &WatchedArray) -> Result<bool> {
        for handle in array.asked.iter().filter_map(|place| array.handles.get(*place as usize)) {
            if *handle != NULL && is_active(*handle)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes an end that is in the queue of some VCI.
    fn take_in_any_vci(&mut self) -> Result<bool> {
        for vci in VciSet::all(self.process.vcis()).iter() {
            let has_it = self.process.watched().of(vci).has(self.address());
            if has_it && self.process.vci(vci).submit(|worker| self.take_known(vci, worker))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take_known(&mut self, vci: Vci, worker: &mut Worker) -> Result<bool> {
        let mut watched = self.process.watched().of(vci);
        let (array, is_new) = watched.reach(self.address(), worker);
        if is_new || array.is_due() {
            return Ok(false);
        }
        let taken = self.take(array, (vci, worker));
        if taken.is_err() {
            watched.close(self.address(), worker);
        }
        Ok(taken? > 0)
    }

    fn has_active(&self) -> Result<bool> {
        for (index, handle) in self.handles.iter().map(Cell::get).enumerate() {
            if is_active(handle).map_err(|error| error.about(entry(index)))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Registers what the program has put into an array, and forgets what it has taken out. With `has_others`, other VCIs carry
/// some of its requests.
fn compare(
    array: &mut WatchedArray,
    handles: &[Cell<Handle>],
    has_others: bool,
    (vci, worker): (Vci, &mut Worker),
) -> Result<()> {
    array.taken = 0;
    let removed = array.handles.split_off(array.handles.len().min(handles.len()));
    removed.into_iter().for_each(|handle| forget(handle, array.queue, (vci, worker)));
    array.handles.resize(handles.len(), NULL);
    let changed = array.changed(handles);
    worker.note_request_looks(changed.len());
    // A request may have moved from one changed place to another: all leave before any comes.
    for &index in &changed {
        let former = std::mem::replace(&mut array.handles[index], NULL);
        forget(former, array.queue, (vci, worker));
    }
    let WatchedArray { handles: known, asked, .. } = array;
    asked.retain(|place| known.get(*place as usize).is_some_and(|handle| *handle != NULL));
    for index in changed {
        let handle = handles[index].get();
        let about = |error: Error| error.about(entry(index));
        let mark = EndMark { queue: array.queue, place: index as u32 };
        match register(handle, mark, (vci, worker)).map_err(about)? {
            Some(Registered::Anew) => {}
            Some(Registered::Before) => return Err(listed_twice(handles, index)),
            Some(Registered::Never) => array.asked.push(mark.place),
            None if has_others || handle == NULL => {}
            None => return Err(about(unknown(handle))),
        }
        array.handles[index] = handle;
    }
    Ok(())
}

/// Registers a request, if this VCI's worker learns of its end.
fn register(
    handle: Handle,
    mark: EndMark,
    (vci, worker): (Vci, &mut Worker),
) -> Result<Option<Registered>> {
    let in_table = |of: Vci, worker: &mut Worker| {
        Ok(Some(REQUESTS.of(of).lock().find(handle)?.register_end(worker, mark)))
    };
    match Named::of(handle) {
        Named::Null => Ok(None),
        Named::Done(_) => Ok(Some(Registered::ended(worker, mark))),
        Named::Operation(named) if named.vci == vci => {
            named.known(worker)?;
            Ok(Some(Registered::of(worker.engine.expect_end_of(named.op, mark))))
        }
        Named::Stored(of) if of == vci => in_table(of, worker),
        Named::Stored(Vci::FIRST) if is_of_all_vcis(handle)? => in_table(Vci::FIRST, worker),
        Named::Operation(_) | Named::Stored(_) => Ok(None),
    }
}

/// Takes back [`register`].
fn forget(handle: Handle, queue: EndQueueId, (vci, worker): (Vci, &mut Worker)) {
    match Named::of(handle) {
        Named::Operation(named) if named.vci == vci => {
            worker.engine.forget_end_of(named.op, queue);
        }
        Named::Stored(of) if of == vci => {
            if let Ok(stored) = REQUESTS.of(of).lock().find(handle) {
                stored.forget_end(worker, queue);
            }
        }
        Named::Null | Named::Done(_) | Named::Operation(_) | Named::Stored(_) => {}
    }
}
