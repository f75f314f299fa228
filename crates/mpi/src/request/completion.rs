//! Ends of requests: waiting and testing for one, all or some of them (MPI-5.0 §3.7.3, §3.7.5).

use std::cell::Cell;
use std::sync::atomic::Ordering;

use engine::OpId;
use progress::Core;

use super::requests::{Entry, Part, REQUESTS};
use super::{Ended, NULL, Request, Status};
use crate::lanes::{Lane, Lanes, wait_in};
use crate::process::{self, Process};
use crate::table::{Handle, Objects};
use crate::{Error, ErrorClass, Result};

/// Waits for one request.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a handle that is none.
pub fn wait(handle: Handle) -> Result<Ended> {
    let (process, requests) = (process::current()?, REQUESTS.with(handle));
    // Who polls looks the request up once.
    let mut known = None;
    wait_in(process, lanes_of(process, handle)?, |lane, core| {
        if known.is_some_and(|op| core.still_awaits(op)) {
            return None;
        }
        let mut requests = requests.lock();
        let ended = end(&mut requests, (lane, core), handle);
        if let Ok(None) = ended {
            known = requests.find(handle).ok().and_then(|entry| entry.request.operation());
        }
        ended.transpose()
    })
}

/// Asks for the end of one request.
///
/// # Errors
/// As [`wait`].
pub fn test(handle: Handle) -> Result<Option<Ended>> {
    let (process, requests) = (process::current()?, REQUESTS.with(handle));
    let lanes = lanes_of(process, handle)?;
    let ended =
        test_in(process, lanes, |lane, core| end(&mut requests.lock(), (lane, core), handle))?;
    if ended.is_none() {
        process.lane(lanes.first()).pause();
    }
    Ok(ended)
}

/// The status of a request that has ended, leaving it as it is (`MPI_Request_get_status`).
///
/// # Errors
/// As [`wait`].
pub fn peek(handle: Handle) -> Result<Option<Status>> {
    let (process, requests) = (process::current()?, REQUESTS.with(handle));
    let lanes = lanes_of(process, handle)?;
    let status = test_in(process, lanes, |lane, core| {
        requests.lock().find(handle).map(|entry| entry.request.peek(lane, core))
    })?;
    if status.is_none() {
        process.lane(lanes.first()).pause();
    }
    Ok(status)
}

/// The statuses of those requests that have ended, leaving them as they are, by their place in the
/// list.
///
/// # Errors
/// As [`wait`].
pub fn peek_all(handles: &[Cell<Handle>]) -> Result<Vec<Peeked>> {
    let process = process::current()?;
    let lanes = check_all(handles)?.lanes;
    let mut all = vec![Peeked::Inactive; handles.len()];
    test_in(process, lanes, |lane, core| {
        each_active(handles, (lane, lanes), |requests, index| {
            let request = &requests.find(handles[index].get())?.request;
            if !matches!(all[index], Peeked::Ended(_)) {
                all[index] = request.peek(lane, core).map_or(Peeked::Active, Peeked::Ended);
            }
            Ok(true)
        })?;
        Ok(None::<()>)
    })?;
    if !all.iter().any(|one| matches!(one, Peeked::Ended(_))) {
        process.lane(lanes.first()).pause();
    }
    Ok(all)
}

/// What [`peek_all`] sees of a request.
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
pub fn wait_all(handles: &[Cell<Handle>], mut report: impl FnMut(usize, Ended)) -> Result<()> {
    let process = process::current()?;
    if REQUESTS.count() > 1 {
        return wait_all_in_lanes(process, handles, &mut report);
    }
    check_in(Lane::FIRST, handles, |_| true, |_| ())?;
    let mut open = handles;
    let of = Lane::FIRST;
    process.progress().wait(|core| end_all(&mut open, (of, core), &mut report).transpose())
}

/// As [`wait_all`], where there are several lanes.
#[cold]
fn wait_all_in_lanes(
    process: &Process,
    handles: &[Cell<Handle>],
    report: &mut impl FnMut(usize, Ended),
) -> Result<()> {
    let lanes = check_in_several(handles)?.lanes;
    let mut left = report_inactive(handles, report)?;
    wait_in(process, lanes, |lane, core| {
        let ended = end_some(handles, (lane, lanes), core, usize::MAX, report);
        let is_over = |ended| {
            left -= ended;
            (left == 0).then_some(())
        };
        ended.map(is_over).transpose()
    })
}

/// Whether all requests have ended; only then are they reported, as by [`wait_all`].
///
/// # Errors
/// As [`wait`].
pub fn test_all(handles: &[Cell<Handle>], mut report: impl FnMut(usize, Ended)) -> Result<bool> {
    let process = process::current()?;
    let lanes = check_all(handles)?.lanes;
    let Some(lane) = lanes.only() else {
        return test_all_in_several(process, lanes, handles, &mut report);
    };
    let all_done = process.lane(lane).test(|core| {
        for handle in handles.iter().map(Cell::get).filter(|handle| *handle != NULL) {
            let mut requests = REQUESTS.of(lane).lock();
            if requests.find(handle)?.request.peek(lane, core).is_none() {
                return Ok(false);
            }
        }
        let mut open = handles;
        end_all(&mut open, (lane, core), &mut report).map(|end| end.is_some())
    })?;
    if !all_done {
        process.lane(lanes.first()).pause();
    }
    Ok(all_done)
}

#[cold]
fn test_all_in_several(
    process: &Process,
    lanes: Lanes,
    handles: &[Cell<Handle>],
    report: &mut impl FnMut(usize, Ended),
) -> Result<bool> {
    if peek_all(handles)?.contains(&Peeked::Active) {
        return Ok(false);
    }
    report_inactive(handles, report)?;
    test_in(process, lanes, |lane, core| {
        end_some(handles, (lane, lanes), core, usize::MAX, report)?;
        Ok(None::<()>)
    })?;
    Ok(true)
}

/// Ends requests from the last on, until all have ended or one has not; `open` are those before it. All are of one lane.
#[inline]
fn end_all(
    open: &mut &[Cell<Handle>],
    (lane, core): (Lane, &mut Core),
    report: &mut impl FnMut(usize, Ended),
) -> Result<Option<()>> {
    let mut requests = REQUESTS.of(lane).lock();
    while let Some((handle, before)) = open.split_last() {
        let ended = if handle.get() == NULL {
            Ended::of(Status::EMPTY)
        } else {
            let ended = end(&mut requests, (lane, core), handle.get())?;
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

/// Reports the end of those that are null or not started; how many others there are.
#[cold]
fn report_inactive(
    handles: &[Cell<Handle>],
    report: &mut impl FnMut(usize, Ended),
) -> Result<usize> {
    let mut active = 0;
    for (index, handle) in handles.iter().map(Cell::get).enumerate() {
        if handle != NULL && REQUESTS.with(handle).lock().find(handle)?.request.is_active() {
            active += 1;
        } else {
            report(index, Ended { freed: false, ..Ended::of(Status::EMPTY) });
        }
    }
    Ok(active)
}

/// Ends and reports active requests that have ended as far as the core of one of the `lanes` tells, at most `most`; how many.
#[inline]
fn end_some(
    handles: &[Cell<Handle>],
    (lane, lanes): (Lane, Lanes),
    core: &mut Core,
    most: usize,
    report: &mut impl FnMut(usize, Ended),
) -> Result<usize> {
    let mut found = 0;
    each_active(handles, (lane, lanes), |requests, index| {
        let handle = &handles[index];
        if let Some(ended) = end(requests, (lane, core), handle.get())? {
            if ended.freed {
                handle.set(NULL);
            }
            report(index, ended);
            found += 1;
        }
        Ok(found < most)
    })?;
    Ok(found)
}

/// Waits until at least one active request has ended and reports those that have, at most `most`;
/// handles become null as by [`wait_all`]. False when none is active.
///
/// # Errors
/// As [`wait`].
pub fn wait_some(
    handles: &[Cell<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(handles, most, true, report)
}

/// As [`wait_some`], without waiting. The answer is whether any is active; none may be reported.
///
/// # Errors
/// As [`wait`].
pub fn test_some(
    handles: &[Cell<Handle>],
    most: usize,
    report: impl FnMut(usize, Ended),
) -> Result<bool> {
    some(handles, most, false, report)
}

fn some(
    handles: &[Cell<Handle>],
    most: usize,
    waits: bool,
    mut report: impl FnMut(usize, Ended),
) -> Result<bool> {
    let process = process::current()?;
    let Checked { is_active, lanes } = check_all(handles)?;
    if !is_active {
        return Ok(false);
    }
    let look = |lane, core: &mut Core| {
        let found = end_some(handles, (lane, lanes), core, most, &mut report)?;
        if found == 0 {
            core.await_any(|| ends(handles, (lane, lanes)));
        }
        Ok((found > 0).then_some(()))
    };
    let found = match waits {
        true => Some(wait_in(process, lanes, transposed(look))?),
        false => test_in(process, lanes, look)?,
    };
    if found.is_none() {
        process.lane(lanes.first()).pause();
    }
    Ok(true)
}

/// An answer that may be an error, as a wait takes it.
fn transposed<T>(
    mut look: impl FnMut(Lane, &mut Core) -> Result<Option<T>>,
) -> impl FnMut(Lane, &mut Core) -> Option<Result<T>> {
    move |lane, core| look(lane, core).transpose()
}

/// The operations of a lane whose ends end requests; none where something else does as well.
fn ends(handles: &[Cell<Handle>], of: (Lane, Lanes)) -> Option<Vec<OpId>> {
    let (mut ops, mut are_all) = (Vec::new(), true);
    let listed = each_active(handles, of, |requests, index| {
        let operations = requests.find(handles[index].get())?.request.operations();
        are_all &= !operations.is_empty();
        ops.extend(operations.iter().map(|operation| operation.op));
        Ok(are_all)
    });
    (listed.is_ok() && are_all).then_some(ops)
}

/// Calls `then` for the active requests that a lane's core can tell of, of those in `lanes`, with their table and their places
/// in the list, until it says no.
#[inline]
fn each_active(
    handles: &[Cell<Handle>],
    (lane, lanes): (Lane, Lanes),
    mut then: impl FnMut(&mut Objects<Entry>, usize) -> Result<bool>,
) -> Result<()> {
    let has_others = lane != Lane::FIRST && lanes.only().is_none();
    for table in [Some(lane), has_others.then_some(Lane::FIRST)].into_iter().flatten() {
        let mut requests = REQUESTS.of(table).lock();
        for (index, handle) in handles.iter().map(Cell::get).enumerate() {
            if handle == NULL || REQUESTS.lane(handle) != table {
                continue;
            }
            let request = &requests.find(handle)?.request;
            let is_asked = request.is_active() && (table == lane || request.is_of_all_lanes());
            if is_asked && !then(&mut requests, index)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Asks each of several lanes of a process once, until one answers.
#[inline]
fn test_in<T>(
    process: &Process,
    lanes: Lanes,
    mut ask: impl FnMut(Lane, &mut Core) -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(lane) = lanes.only() {
        return process.lane(lane).test(|core| ask(lane, core));
    }
    for lane in lanes.iter() {
        let answer = process.lane(lane).test(|core| ask(lane, core))?;
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// The lanes that can tell of the end of a request.
#[inline]
fn lanes_of(process: &Process, handle: Handle) -> Result<Lanes> {
    let lane = REQUESTS.lane(handle);
    if process.lanes() > 1
        && lane == Lane::FIRST
        && REQUESTS.of(lane).lock().find(handle)?.request.is_of_all_lanes()
    {
        return Ok(Lanes::all(process.lanes()));
    }
    Ok(Lanes::NONE.with(lane))
}

/// The end of the request behind a handle, once, if it is there; with it the request is gone, unless it
/// can be started again.
#[inline(always)]
fn end(
    requests: &mut Objects<Entry>,
    (lane, core): (Lane, &mut Core),
    handle: Handle,
) -> Result<Option<Ended>> {
    let is_gone = |end: &Option<Ended>| end.as_ref().is_some_and(|ended| ended.freed);
    requests.ask(handle, |entry| entry.request.poll(lane, core), is_gone)
}

/// What is known of requests in a list.
pub(super) struct Checked {
    /// Whether any is active.
    is_active: bool,
    /// The lanes that can tell of their ends; none of them means the first.
    lanes: Lanes,
}

/// Checks that all handles are null or live, and none is listed twice: a request can end only once.
#[inline(always)]
pub(super) fn check_all(handles: &[Cell<Handle>]) -> Result<Checked> {
    if REQUESTS.count() > 1 {
        return check_in_several(handles);
    }
    let mut is_active = false;
    let show = |request: &Request| is_active = is_active || request.is_active();
    check_in(Lane::FIRST, handles, |_| true, show)?;
    Ok(Checked { is_active, lanes: Lanes::NONE })
}

#[cold]
fn check_in_several(handles: &[Cell<Handle>]) -> Result<Checked> {
    let live = handles.iter().map(Cell::get).filter(|handle| *handle != NULL);
    let tables = live.fold(Lanes::NONE, |lanes, handle| lanes.with(REQUESTS.lane(handle)));
    let (mut is_active, mut is_of_all) = (false, false);
    for table in tables.iter() {
        let is_there = |handle| REQUESTS.lane(handle) == table;
        check_in(table, handles, is_there, |request| {
            is_active |= request.is_active();
            is_of_all |= request.is_of_all_lanes();
        })?;
    }
    let lanes = if is_of_all { Lanes::all(REQUESTS.count()) } else { tables };
    Ok(Checked { is_active, lanes })
}

/// Checks those of a table, and shows them.
#[inline(always)]
fn check_in(
    table: Lane,
    handles: &[Cell<Handle>],
    is_there: impl Fn(Handle) -> bool,
    mut show: impl FnMut(&Request),
) -> Result<()> {
    let Part { table, calls } = &REQUESTS.parts[table.number()];
    let mut requests = table.lock();
    let call = calls.load(Ordering::Relaxed) + 1;
    calls.store(call, Ordering::Relaxed);
    for (index, handle) in handles.iter().enumerate() {
        if handle.get() == NULL || !is_there(handle.get()) {
            continue;
        }
        let listed = requests.find(handle.get()).map_err(|error| error.about(entry(index)))?;
        if listed.listed == call {
            return Err(listed_twice(handles, index));
        }
        listed.listed = call;
        show(&listed.request);
    }
    Ok(())
}

#[cold]
fn listed_twice(handles: &[Cell<Handle>], index: usize) -> Error {
    let first = handles.iter().position(|handle| handle == &handles[index]).unwrap_or(index);
    Error::new(ErrorClass::Request, format!("{} is {} again", entry(index), entry(first)))
}

pub(super) fn entry(index: usize) -> String {
    format!("array_of_requests[{index}]")
}
