//! Requests: the families of wait and test (MPI-5.0 §3.7).

use std::cell::Cell;
use std::ffi::c_int;

use handles::Handle;
use mpi::request::{self, Ended, Ending, Peeked, several};

use crate::convention::*;
use crate::error::code_of_failure;
use crate::{generalized, world};

/// Reports one request that has ended: its handle, its status, its error.
fn settle(ended: Ended, request: InOut<RawHandle>, status: StatusOut) -> Result<()> {
    if ended.freed {
        request.put(REQUEST_NULL)?;
    }
    generalized::settle(ended, status)
}

/// The status of no operation: its error is MPI_SUCCESS, whatever was there (MPI-5.0 §3.7.3).
fn settle_empty(status: StatusOut) {
    status.put(|| Status::of(&request::Status::EMPTY));
}

pub(crate) fn wait(request: InOut<RawHandle>, status: StatusOut) -> Result<()> {
    if request.get() == REQUEST_NULL {
        settle_empty(status);
        return Ok(());
    }
    settle(
        named("request", request::wait(world::current()?, handle(request.get())))?,
        request,
        status,
    )
}

pub(crate) fn test(request: InOut<RawHandle>, flag: Out<c_int>, status: StatusOut) -> Result<()> {
    if request.get() == REQUEST_NULL {
        settle_empty(status);
        return flag.put(1);
    }
    match named("request", request::test(world::current()?, handle(request.get())))? {
        None => flag.put(0),
        Some(ended) => {
            flag.put(1)?;
            settle(ended, request, status)
        }
    }
}

/// Places for the statuses of several requests.
struct Reports {
    statuses: Statuses,
    /// The endings that were no success, with the places of their statuses.
    others: Vec<(usize, Ending)>,
}

impl Reports {
    fn new(statuses: Statuses) -> Self {
        Self { statuses, others: Vec::new() }
    }

    /// Reports the end of a request in status `place`.
    #[inline]
    fn add(&mut self, place: usize, ended: Ended) {
        // SAFETY: there are as many statuses as requests, and each request is reported once.
        unsafe { self.statuses.fill_unchecked(place, &ended.status) };
        match ended.ending {
            Ending::Success => {}
            other @ (Ending::Failed(_) | Ending::Generalized(_)) => self.defer(place, other),
        }
    }

    #[cold]
    fn defer(&mut self, place: usize, ending: Ending) {
        self.others.push((place, ending));
    }

    /// `MPI_ERR_IN_STATUS` when any of so many requests failed (MPI-5.0 §3.7.5). Only then are the error fields of the
    /// statuses written (MPI-5.0 §3.2.5).
    #[inline]
    fn result(self, reported: usize) -> Result<()> {
        if self.others.is_empty() { Ok(()) } else { self.settle(reported) }
    }

    #[cold]
    fn settle(self, reported: usize) -> Result<()> {
        let mut failed = Vec::new();
        for (place, ending) in self.others {
            let result = match ending {
                Ending::Success => Ok(()),
                Ending::Failed(error) => Err(error),
                Ending::Generalized(request) => generalized::end(&request, self.statuses.at(place)),
            };
            failed.extend(result.err().map(|error| (place, error)));
        }
        let Some((_, first)) = failed.first() else { return Ok(()) };
        (0..reported).for_each(|place| self.statuses.set_error(place, 0));
        for (place, error) in &failed {
            self.statuses.set_error(*place, code_of_failure(error, || error.to_string()));
        }
        let mut whole = class(ErrorClass::InStatus, first.to_string());
        whole.on = first.on;
        Err(whole)
    }
}

#[inline(always)]
pub(crate) fn waitall(requests: &[Cell<Handle>], statuses: Statuses) -> Result<()> {
    let mut reports = Reports::new(statuses);
    request::wait_all(world::current()?, requests, |index, ended| reports.add(index, ended))?;
    reports.result(requests.len())
}

pub(crate) fn testall(
    requests: &[Cell<Handle>],
    flag: Out<c_int>,
    statuses: Statuses,
) -> Result<()> {
    let mut reports = Reports::new(statuses);
    let done =
        request::test_all(world::current()?, requests, |index, ended| reports.add(index, ended))?;
    flag.put(c_int::from(done))?;
    reports.result(requests.len())
}

pub(crate) fn waitany(
    requests: &[Cell<Handle>],
    index: Out<c_int>,
    status: StatusOut,
) -> Result<()> {
    any(requests, index, status, true).map(drop)
}

pub(crate) fn testany(
    requests: &[Cell<Handle>],
    index: Out<c_int>,
    flag: Out<c_int>,
    status: StatusOut,
) -> Result<()> {
    flag.put(1)?;
    let done = any(requests, index, status, false)?;
    flag.put(c_int::from(done))
}

/// One that has ended; whether the call is done (an array without active requests is).
fn any(
    requests: &[Cell<Handle>],
    index: Out<c_int>,
    status: StatusOut,
    waits: bool,
) -> Result<bool> {
    let mut found = None;
    let report = |at, ended| found = Some((at, ended));
    let active = match waits {
        true => several::wait_some(world::current()?, requests, 1, report)?,
        false => several::test_some(world::current()?, requests, 1, report)?,
    };
    match found {
        Some((at, ended)) => {
            index.put(at as c_int)?;
            generalized::settle(ended, status).map(|()| true)
        }
        None => {
            index.put(UNDEFINED)?;
            if !active {
                settle_empty(status);
            }
            Ok(!active)
        }
    }
}

pub(crate) fn waitsome(
    requests: &[Cell<Handle>],
    outcount: Out<c_int>,
    indices: Slots<c_int>,
    statuses: Statuses,
) -> Result<()> {
    some(requests, outcount, indices, statuses, true)
}

pub(crate) fn testsome(
    requests: &[Cell<Handle>],
    outcount: Out<c_int>,
    indices: Slots<c_int>,
    statuses: Statuses,
) -> Result<()> {
    some(requests, outcount, indices, statuses, false)
}

fn some(
    requests: &[Cell<Handle>],
    outcount: Out<c_int>,
    indices: Slots<c_int>,
    statuses: Statuses,
    waits: bool,
) -> Result<()> {
    indices.check(requests.len())?;
    let mut reports = Reports::new(statuses);
    let mut place = 0;
    let report = |index: usize, ended| {
        // There are as many places as requests.
        let _ = indices.put(place, index as c_int);
        reports.add(place, ended);
        place += 1;
    };
    let active = match waits {
        true => several::wait_some(world::current()?, requests, usize::MAX, report)?,
        false => several::test_some(world::current()?, requests, usize::MAX, report)?,
    };
    outcount.put(if active { place as c_int } else { UNDEFINED })?;
    reports.result(place)
}

pub(crate) fn start(request: InOut<RawHandle>) -> Result<()> {
    named("request", request::start(handle(request.get())))
}

pub(crate) fn startall(requests: &[Cell<Handle>]) -> Result<()> {
    request::start_all(world::current()?, requests)
}

pub(crate) fn cancel(request: InOut<RawHandle>) -> Result<()> {
    if generalized::cancel(request.get())? {
        return Ok(());
    }
    named("request", request::cancel(world::current()?, handle(request.get())))
}

pub(crate) fn request_free(request: InOut<RawHandle>) -> Result<()> {
    if generalized::request_free(request)? {
        return Ok(());
    }
    named("request", request::free(world::current()?, handle(request.get())))?;
    request.put(REQUEST_NULL)
}

pub(crate) fn request_get_status(
    request: RawHandle,
    flag: Out<c_int>,
    status: StatusOut,
) -> Result<()> {
    if request == REQUEST_NULL {
        settle_empty(status);
        return flag.put(1);
    }
    let outcome = named("request", request::peek(world::current()?, handle(request)))?;
    flag.put(c_int::from(outcome.is_some()))?;
    outcome.map_or(Ok(()), |known| generalized::peek(handle(request), &known, status))
}

pub(crate) fn request_get_status_all(
    requests: &[Cell<Handle>],
    flag: Out<c_int>,
    statuses: Statuses,
) -> Result<()> {
    let all = request::peek_all(world::current()?, requests)?;
    let done = !all.contains(&Peeked::Active);
    flag.put(c_int::from(done))?;
    if done {
        for (index, peeked) in all.iter().enumerate() {
            generalized::peek(requests[index].get(), &status_of(peeked), statuses.at(index))?;
        }
    }
    Ok(())
}

pub(crate) fn request_get_status_any(
    requests: &[Cell<Handle>],
    index: Out<c_int>,
    flag: Out<c_int>,
    status: StatusOut,
) -> Result<()> {
    let all = request::peek_all(world::current()?, requests)?;
    let ended = all.iter().position(|peeked| matches!(peeked, Peeked::Ended(_)));
    let none_active = all.iter().all(|peeked| *peeked == Peeked::Inactive);
    index.put(ended.map_or(UNDEFINED, |at| at as c_int))?;
    flag.put(c_int::from(ended.is_some() || none_active))?;
    if let Some(at) = ended {
        generalized::peek(requests[at].get(), &status_of(&all[at]), status)?;
    } else if none_active {
        settle_empty(status);
    }
    Ok(())
}

pub(crate) fn request_get_status_some(
    requests: &[Cell<Handle>],
    outcount: Out<c_int>,
    indices: Slots<c_int>,
    statuses: Statuses,
) -> Result<()> {
    let all = request::peek_all(world::current()?, requests)?;
    indices.check(requests.len())?;
    if all.iter().all(|peeked| *peeked == Peeked::Inactive) {
        return outcount.put(UNDEFINED);
    }
    let ended = all.iter().enumerate().filter(|(_, one)| matches!(one, Peeked::Ended(_)));
    let mut place = 0;
    for (index, peeked) in ended {
        indices.put(place, index as c_int)?;
        generalized::peek(requests[index].get(), &status_of(peeked), statuses.at(place))?;
        place += 1;
    }
    outcount.put(place as c_int)
}

fn status_of(peeked: &Peeked) -> request::Status {
    match peeked {
        Peeked::Ended(status) => *status,
        Peeked::Inactive | Peeked::Active => request::Status::EMPTY,
    }
}

const REQUEST_NULL: RawHandle = request::NULL.0 as RawHandle;
