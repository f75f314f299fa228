//! Ends of requests: waiting and testing for one, all or some of them (MPI-5.0 §3.7.3, §3.7.5).

use std::cell::Cell;

use engine::OpId;
use handles::Handle;
use progress::Worker;

use super::named::{Named, unknown};
use super::requests::REQUESTS;
use super::{Ended, NULL, Status};
use crate::process::Process;
use crate::vci::{VCIS_MAX, Vci, VciSet};
use crate::{Error, ErrorClass, Result};

/// Waits for one request.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a handle that is none.
pub fn wait(process: &Process, handle: Handle) -> Result<Ended> {
    match Named::of(handle) {
        Named::Null => Err(unknown(handle)),
        Named::Done(done) => Ok(Ended::of(done.status())),
        Named::Operation(named) => {
            named.progress(process)?.wait(|worker| named.end(worker).transpose())
        }
        Named::Stored(vci) => process.wait_in(vcis_of(process, vci, handle)?, |vci, worker| {
            end((vci, worker), handle).transpose()
        }),
    }
}

/// Asks for the end of one request.
///
/// # Errors
/// As [`wait`].
pub fn test(process: &Process, handle: Handle) -> Result<Option<Ended>> {
    ask(process, handle, |of| end(of, handle), Ended::of)
}

/// The status of a request that has ended, leaving it as it is (`MPI_Request_get_status`).
///
/// # Errors
/// As [`wait`].
pub fn peek(process: &Process, handle: Handle) -> Result<Option<Status>> {
    ask(process, handle, |of| status(of, handle), |done| done)
}

/// Asks once for what one request has come to, which is known where it was complete when it began.
#[inline]
fn ask<T>(
    process: &Process,
    handle: Handle,
    mut question: impl FnMut((Vci, &mut Worker)) -> Result<Option<T>>,
    done: impl FnOnce(Status) -> T,
) -> Result<Option<T>> {
    let vcis = match Named::of(handle) {
        Named::Null => return Err(unknown(handle)),
        Named::Done(known) => return Ok(Some(done(known.status()))),
        Named::Operation(named) => named.progress(process).map(|_| VciSet::NONE.with(named.vci))?,
        Named::Stored(vci) => vcis_of(process, vci, handle)?,
    };
    let answer = test_in(process, vcis, |vci, worker| question((vci, worker)))?;
    if answer.is_none() {
        process.vci(vcis.first()).pause();
    }
    Ok(answer)
}

/// The statuses of those requests that have ended, leaving them as they are, by their place in the
/// list.
///
/// # Errors
/// As [`wait`].
pub fn peek_all(process: &Process, handles: &[Cell<Handle>]) -> Result<Vec<Peeked>> {
    let mut list = List::of(process, handles)?;
    let (vcis, mut all) = (list.vcis, Vec::new());
    let full =
        |_| Error::new(ErrorClass::NoMem, format!("{} requests exceed memory", handles.len()));
    all.try_reserve_exact(handles.len()).map_err(full)?;
    all.resize(handles.len(), Peeked::Inactive);
    test_in(process, vcis, |vci, worker| {
        list.check(vci, worker)?;
        list.each_active(vci, |index| {
            if !matches!(all[index], Peeked::Ended(_)) {
                let status = status((vci, worker), handles[index].get())?;
                all[index] = status.map_or(Peeked::Active, Peeked::Ended);
            }
            Ok(true)
        })?;
        Ok(None::<()>)
    })?;
    if !all.iter().any(|one| matches!(one, Peeked::Ended(_))) {
        process.vci(vcis.first()).pause();
    }
    Ok(all)
}

/// State of a request as [`peek_all`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// Null, or persistent and not started.
    Inactive,
    /// Under way.
    Active,
    /// Over.
    Ended(Status),
}

/// Waits until all requests have ended, in whatever order, and reports each. Null requests have ended
/// with nothing to tell; the handles of requests that are gone become null.
///
/// # Errors
/// As [`wait`], before anything is waited for.
pub fn wait_all(
    process: &Process,
    handles: &[Cell<Handle>],
    mut report: impl FnMut(usize, Ended),
) -> Result<()> {
    if report_done(handles, &mut report) {
        return Ok(());
    }
    let mut list = List::of(process, handles)?;
    let Some(vci) = list.vcis.only() else {
        return wait_all_in_vcis(process, &list, &mut report);
    };
    let mut open = handles;
    process.vci(vci).wait(|worker| {
        let checked = list.check(vci, worker);
        checked.and_then(|()| end_all(&mut open, (vci, worker), &mut report)).transpose()
    })
}

/// [`wait_all`] for several VCIs.
#[cold]
fn wait_all_in_vcis(
    process: &Process,
    list: &List,
    report: &mut impl FnMut(usize, Ended),
) -> Result<()> {
    let mut left = list.report_inactive(report)?;
    let mut open = [list.handles; VCIS_MAX];
    process.wait_in(list.vcis, |vci, worker| {
        let ended = end_last(&mut open[vci.number()], (vci, worker), report);
        let is_over = |ended| {
            left -= ended;
            (left == 0).then_some(())
        };
        ended.map(is_over).transpose()
    })
}

/// True if all requests have completed; only then are they reported, as by [`wait_all`].
///
/// # Errors
/// As [`wait`].
pub fn test_all(
    process: &Process,
    handles: &[Cell<Handle>],
    mut report: impl FnMut(usize, Ended),
) -> Result<bool> {
    if report_done(handles, &mut report) {
        return Ok(true);
    }
    let mut list = List::of(process, handles)?;
    let Some(vci) = list.vcis.only() else {
        return test_all_in_vcis(process, &list, &mut report);
    };
    let all_done = process.vci(vci).test(|worker| {
        if handles.len() >= LONG && has_open(handles, (vci, worker)) {
            return Ok(false);
        }
        list.check(vci, worker)?;
        for handle in handles.iter().map(Cell::get).filter(|handle| *handle != NULL) {
            if status((vci, worker), handle)?.is_none() {
                return Ok(false);
            }
        }
        let mut open = handles;
        end_all(&mut open, (vci, worker), &mut report).map(|end| end.is_some())
    })?;
    if !all_done {
        process.vci(vci).pause();
    }
    Ok(all_done)
}

/// True if a request is found that has not ended. The search begins where the calling thread found one last, since a
/// program that tests again and again for all would otherwise look at those that have ended each time.
fn has_open(handles: &[Cell<Handle>], (vci, worker): (Vci, &mut Worker)) -> bool {
    let mut is_open = |handle: Handle| match Named::of(handle).vci() {
        Some(of) if of == vci => status((vci, worker), handle).map(|status| status.is_none()),
        Some(_) => Err(unknown(handle)),
        None => Ok(false),
    };
    let first = OPEN_LAST.get().min(handles.len());
    for index in (first..handles.len()).chain(0..first) {
        match is_open(handles[index].get()) {
            Ok(false) => {}
            Ok(true) => {
                OPEN_LAST.set(index);
                return true;
            }
            // The check of all requests says which is wrong.
            Err(_) => return false,
        }
    }
    false
}

thread_local! {
    /// Index at which a call of this thread last found a request that had not ended.
    static OPEN_LAST: Cell<usize> = const { Cell::new(0) };
}

#[cold]
fn test_all_in_vcis(
    process: &Process,
    list: &List,
    report: &mut impl FnMut(usize, Ended),
) -> Result<bool> {
    if peek_all(process, list.handles)?.contains(&Peeked::Active) {
        return Ok(false);
    }
    list.report_inactive(report)?;
    test_in(process, list.vcis, |vci, worker| {
        list.end_some(vci, worker, usize::MAX, report)?;
        Ok(None::<()>)
    })?;
    Ok(true)
}

/// Reports requests all of which were complete when they began, or are null; whether they are so.
#[inline]
fn report_done(handles: &[Cell<Handle>], report: &mut impl FnMut(usize, Ended)) -> bool {
    let done = |handle: &Cell<Handle>| match Named::of(handle.get()) {
        Named::Null => Some(Status::INACTIVE),
        Named::Done(done) => Some(done.status()),
        Named::Operation(_) | Named::Stored(_) => None,
    };
    if handles.iter().any(|handle| done(handle).is_none()) {
        return false;
    }
    for (index, handle) in handles.iter().enumerate() {
        report(index, Ended::of(done(handle).unwrap_or(Status::INACTIVE)));
        handle.set(NULL);
    }
    true
}

/// Ends requests from the last on, until all have ended or one has not; `open` are those before it. All are of one vci.
#[inline]
fn end_all(
    open: &mut &[Cell<Handle>],
    (vci, worker): (Vci, &mut Worker),
    report: &mut impl FnMut(usize, Ended),
) -> Result<Option<()>> {
    while let Some((handle, before)) = open.split_last() {
        let ended = if handle.get() == NULL {
            Ended::of(Status::INACTIVE)
        } else {
            let ended = end((vci, worker), handle.get())?;
            let Some(ended) = ended else { return Ok(None) };
            if ended.freed {
                handle.set(NULL);
            }
            ended
        };
        report(before.len(), ended);
        *open = before;
    }
    Ok(Some(()))
}

/// Ends requests of one VCI among others, as [`end_all`] does; how many.
fn end_last(
    open: &mut &[Cell<Handle>],
    (vci, worker): (Vci, &mut Worker),
    report: &mut impl FnMut(usize, Ended),
) -> Result<usize> {
    let mut found = 0;
    while let Some((handle, before)) = open.split_last() {
        if is_asked(handle.get(), vci)? {
            let Some(ended) = end((vci, worker), handle.get())? else { break };
            if ended.freed {
                handle.set(NULL);
            }
            report(before.len(), ended);
            found += 1;
        }
        *open = before;
    }
    Ok(found)
}

/// An answer that may be an error, as a wait takes it.
pub(super) fn transposed<T>(
    mut look: impl FnMut(Vci, &mut Worker) -> Result<Option<T>>,
) -> impl FnMut(Vci, &mut Worker) -> Option<Result<T>> {
    move |vci, worker| look(vci, worker).transpose()
}

/// Requests that a call names together.
pub(super) struct List<'a> {
    handles: &'a [Cell<Handle>],
    /// The vcis that can tell of their ends; none of them means the first.
    pub vcis: VciSet,
    is_checked: bool,
    /// True if any request is active; valid once `is_checked` is set.
    pub is_active: bool,
}

impl<'a> List<'a> {
    /// Those behind some handles. Where they are in one vci, they are checked by the first who asks in it: so that takes
    /// its lock once.
    #[inline]
    pub(super) fn of(process: &Process, handles: &'a [Cell<Handle>]) -> Result<Self> {
        let list = Self { handles, vcis: VciSet::NONE, is_checked: false, is_active: false };
        if process.vcis() == 1 { Ok(list) } else { list.in_vcis(process) }
    }

    #[cold]
    fn in_vcis(mut self, process: &Process) -> Result<Self> {
        self.vcis = Self::vcis_of(process, self.handles)?;
        if self.vcis.only().is_none() {
            for vci in self.vcis.iter() {
                process.vci(vci).look(|worker| self.check_in(vci, worker))?;
            }
            self.is_checked = true;
        }
        Ok(self)
    }

    /// The VCIs that can tell of the ends of requests.
    pub(super) fn vcis_of(process: &Process, handles: &[Cell<Handle>]) -> Result<VciSet> {
        let (all, mut vcis) = (VciSet::all(process.vcis()), VciSet::NONE);
        for (index, handle) in handles.iter().map(Cell::get).enumerate() {
            let named = Named::of(handle);
            let Some(vci) = named.vci() else { continue };
            let is_of_all = match named {
                Named::Stored(Vci::FIRST) => is_of_all_vcis(handle),
                Named::Stored(_) | Named::Operation(_) | Named::Null | Named::Done(_) => Ok(false),
            };
            match is_of_all {
                Ok(true) => vcis = all,
                Ok(false) if all.contains(vci) => vcis = vcis.with(vci),
                Ok(false) => return Err(unknown(handle).about(entry(index))),
                Err(error) => return Err(error.about(entry(index))),
            }
        }
        Ok(vcis)
    }

    /// Checks the requests of a VCI, for a call that has found out which VCIs there are.
    pub(super) fn check_all(
        process: &Process,
        handles: &'a [Cell<Handle>],
        vci: Vci,
        worker: &mut Worker,
    ) -> Result<()> {
        let vcis = match process.vcis() {
            1 => VciSet::NONE,
            several => VciSet::all(several),
        };
        Self { handles, vcis, is_checked: false, is_active: false }.check_in(vci, worker)
    }

    /// Checks, if nobody has, that all handles are null or live, and none is listed twice: a request can end only once.
    #[inline]
    pub(super) fn check(&mut self, vci: Vci, worker: &mut Worker) -> Result<()> {
        if self.is_checked {
            return Ok(());
        }
        self.is_checked = true;
        self.check_in(vci, worker)
    }

    /// Checks those of a vci: puts each on its list, and takes all off again.
    #[inline]
    fn check_in(&mut self, vci: Vci, worker: &mut Worker) -> Result<()> {
        let (mut listed, mut checked) = (0, Ok(()));
        for handle in self.handles {
            match self.enlist(vci, worker, handle.get()) {
                Ok(Some(is_active)) => self.is_active |= is_active,
                Ok(None) => checked = Err(listed_twice(self.handles, listed)),
                Err(error) => checked = Err(error.about(entry(listed))),
            }
            if checked.is_err() {
                break;
            }
            listed += 1;
        }
        for handle in &self.handles[..listed] {
            strike(vci, worker, handle.get());
        }
        checked
    }

    /// Puts a request of a vci on the list; whether it is active, and none if it is there already.
    #[inline]
    fn enlist(&self, vci: Vci, worker: &mut Worker, handle: Handle) -> Result<Option<bool>> {
        let named = Named::of(handle);
        match named.vci() {
            Some(of) if of != vci && self.vcis.only().is_some() => return Err(unknown(handle)),
            Some(of) if of != vci => return Ok(Some(false)),
            Some(_) | None => {}
        }
        let (is_first, is_active) = match named {
            Named::Null => (true, false),
            Named::Done(_) => (true, true),
            Named::Operation(named) => {
                (worker.engine.enlist(named.op).ok_or_else(|| unknown(handle))?, true)
            }
            Named::Stored(vci) => {
                let mut requests = REQUESTS.of(vci).lock();
                let kept = requests.find(handle)?;
                (!std::mem::replace(&mut kept.is_listed, true), kept.request.is_active())
            }
        };
        Ok(is_first.then_some(is_active))
    }

    /// Reports the end of those that are null or not started; how many others there are.
    #[cold]
    fn report_inactive(&self, report: &mut impl FnMut(usize, Ended)) -> Result<usize> {
        let mut active = 0;
        for (index, handle) in self.handles.iter().map(Cell::get).enumerate() {
            if is_active(handle)? {
                active += 1;
            } else {
                report(index, Ended { freed: false, ..Ended::of(Status::INACTIVE) });
            }
        }
        Ok(active)
    }

    /// Ends and reports active requests that have ended as far as the core of a vci tells, at most `most`; how many.
    #[inline]
    pub(super) fn end_some(
        &self,
        vci: Vci,
        worker: &mut Worker,
        most: usize,
        report: &mut impl FnMut(usize, Ended),
    ) -> Result<usize> {
        let (mut found, mut looks) = (0, 0);
        self.each_active(vci, |index| {
            let handle = &self.handles[index];
            looks += 1;
            if let Some(ended) = end((vci, worker), handle.get())? {
                if ended.freed {
                    handle.set(NULL);
                }
                report(index, ended);
                found += 1;
            }
            Ok(found < most)
        })?;
        worker.note_request_looks(looks);
        Ok(found)
    }

    /// The operations of a vci whose ends end requests; none where something else does as well.
    pub(super) fn ends(&self, vci: Vci) -> Option<Vec<OpId>> {
        let (mut ops, mut are_all) = (Vec::new(), true);
        let listed = self.each_active(vci, |index| {
            let handle = self.handles[index].get();
            match Named::of(handle) {
                Named::Null => {}
                Named::Done(_) => are_all = false,
                Named::Operation(named) => ops.push(named.op),
                Named::Stored(vci) => {
                    let operations = REQUESTS.of(vci).lock().find(handle)?.request.operations();
                    are_all &= !operations.is_empty();
                    ops.extend(operations.iter().map(|operation| operation.op));
                }
            }
            Ok(are_all)
        });
        (listed.is_ok() && are_all).then_some(ops)
    }

    /// Calls `then` with the places in the list of the active requests that a vci's core can tell of, until it says no.
    #[inline]
    fn each_active(&self, vci: Vci, mut then: impl FnMut(usize) -> Result<bool>) -> Result<()> {
        for (index, handle) in self.handles.iter().map(Cell::get).enumerate() {
            if is_asked(handle, vci)? && !then(index)? {
                break;
            }
        }
        Ok(())
    }
}

/// Takes a request of a vci off the list.
#[inline]
fn strike(vci: Vci, worker: &mut Worker, handle: Handle) {
    match Named::of(handle) {
        Named::Operation(named) if named.vci == vci => worker.engine.strike(named.op),
        Named::Stored(of) if of == vci => {
            if let Ok(kept) = REQUESTS.of(vci).lock().find(handle) {
                kept.is_listed = false;
            }
        }
        Named::Null | Named::Done(_) | Named::Operation(_) | Named::Stored(_) => {}
    }
}

/// Checks requests that a call names together; which of them are active does not matter.
pub(super) fn check_now(process: &Process, handles: &[Cell<Handle>]) -> Result<()> {
    let mut list = List::of(process, handles)?;
    let vci = list.vcis.first();
    process.vci(vci).look(|worker| list.check(vci, worker))
}

/// Asks each of several vcis of a process once, until one answers.
#[inline]
pub(super) fn test_in<T>(
    process: &Process,
    vcis: VciSet,
    mut ask: impl FnMut(Vci, &mut Worker) -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(vci) = vcis.only() {
        return process.vci(vci).test(|worker| ask(vci, worker));
    }
    for vci in vcis.iter() {
        let answer = process.vci(vci).test(|worker| ask(vci, worker))?;
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// The vcis that can tell of the end of a request that is kept in the table of one.
fn vcis_of(process: &Process, vci: Vci, handle: Handle) -> Result<VciSet> {
    if vci.number() >= process.vcis() {
        return Err(unknown(handle));
    }
    if process.vcis() > 1 && vci == Vci::FIRST && is_of_all_vcis(handle)? {
        return Ok(VciSet::all(process.vcis()));
    }
    Ok(VciSet::NONE.with(vci))
}

/// True if the completion of a request in the first table depends on every VCI.
pub(super) fn is_of_all_vcis(handle: Handle) -> Result<bool> {
    Ok(REQUESTS.of(Vci::FIRST).lock().find(handle)?.request.is_of_all_vcis())
}

/// True if a request is active, and the worker of a VCI can tell of its end.
#[inline]
pub(super) fn is_asked(handle: Handle, vci: Vci) -> Result<bool> {
    match Named::of(handle) {
        Named::Null => Ok(false),
        Named::Done(_) => Ok(true),
        Named::Operation(named) => Ok(named.vci == vci),
        Named::Stored(of) if of == vci => is_active(handle),
        Named::Stored(Vci::FIRST) => is_of_all_vcis(handle),
        Named::Stored(_) => Ok(false),
    }
}

/// True if calls that wait for one of several requests wait for this one.
pub(super) fn is_active(handle: Handle) -> Result<bool> {
    match Named::of(handle) {
        Named::Null => Ok(false),
        Named::Done(_) | Named::Operation(_) => Ok(true),
        Named::Stored(vci) => Ok(REQUESTS.of(vci).lock().find(handle)?.request.is_active()),
    }
}

/// Takes the result of a request if it has completed, as far as this VCI's worker knows. The request is then freed
/// unless it is persistent. For an engine operation the VCI must be its own.
#[inline(always)]
pub(super) fn end((vci, worker): (Vci, &mut Worker), handle: Handle) -> Result<Option<Ended>> {
    match Named::of(handle) {
        Named::Null => Err(unknown(handle)),
        Named::Done(done) => Ok(Some(Ended::of(done.status()))),
        Named::Operation(named) => named.end(worker),
        Named::Stored(of) => end_kept(of, (vci, worker), handle),
    }
}

#[inline(never)]
fn end_kept(of: Vci, (vci, worker): (Vci, &mut Worker), handle: Handle) -> Result<Option<Ended>> {
    let is_gone = |end: &Option<Ended>| end.as_ref().is_some_and(|ended| ended.freed);
    Ok(REQUESTS.of(of).lock().ask(handle, |kept| kept.request.poll(vci, worker), is_gone)?)
}

/// The status of a request that has ended, which is left as it is, as far as the core of a vci tells.
fn status((vci, worker): (Vci, &mut Worker), handle: Handle) -> Result<Option<Status>> {
    match Named::of(handle) {
        Named::Null => Err(unknown(handle)),
        Named::Done(done) => Ok(Some(done.status())),
        Named::Operation(named) => named.peek(worker),
        Named::Stored(of) => Ok(REQUESTS.of(of).lock().find(handle)?.request.peek(vci, worker)),
    }
}

#[cold]
pub(super) fn listed_twice(handles: &[Cell<Handle>], index: usize) -> Error {
    let first = handles.iter().position(|handle| handle == &handles[index]).unwrap_or(index);
    Error::new(ErrorClass::Request, format!("{} is {} again", entry(index), entry(first)))
}

pub(super) fn entry(index: usize) -> String {
    format!("array_of_requests[{index}]")
}

/// Number of requests from which on a call does not look at each: to look at fewer takes no longer.
pub(super) const LONG: usize = 64;
