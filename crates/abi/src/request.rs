//! Requests: the families of wait and test (MPI-5.0 §3.7).

use std::cell::Cell;
use std::ffi::c_int;

use mpi::request::{self, Ended, Peeked};
use mpi::table::Handle;

use crate::convention::*;
use crate::error::code_for;
use crate::status::fill;

/// Reports one request that has ended: its status, its handle, its error.
unsafe fn settle(ended: Ended, request: *mut RawHandle, status: *mut Status) -> Result<()> {
    // SAFETY: `request` points to a handle of the caller; `status` points to a status or is
    // MPI_STATUS_IGNORE.
    unsafe {
        fill(status, &ended.status);
        if ended.freed {
            *request = REQUEST_NULL;
        }
    }
    ended.error.map_or(Ok(()), Err)
}

/// The status of no operation: its error is MPI_SUCCESS, whatever was there (MPI-5.0 §3.7.3).
unsafe fn settle_empty(status: *mut Status) {
    if !status.is_null() {
        // SAFETY: `status` is not MPI_STATUS_IGNORE here and points to a status of the caller.
        unsafe { *status = Status::of(&request::Status::EMPTY) };
    }
}

pub(crate) unsafe fn wait(request: *mut RawHandle, status: *mut Status) -> Result<()> {
    // SAFETY: `request` points to a handle of the caller; `status` points to a status or is
    // MPI_STATUS_IGNORE.
    unsafe {
        if *request == REQUEST_NULL {
            settle_empty(status);
            return Ok(());
        }
        settle(named("request", request::wait(handle(*request)))?, request, status)
    }
}

pub(crate) unsafe fn test(
    request: *mut RawHandle,
    flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `request` points to a handle of the caller; `flag` points to a variable of the
    // caller; `status` points to a status or is MPI_STATUS_IGNORE.
    unsafe {
        if *request == REQUEST_NULL {
            settle_empty(status);
            return put(flag, 1);
        }
        match named("request", request::test(handle(*request)))? {
            None => put(flag, 0),
            Some(ended) => {
                put(flag, 1)?;
                settle(ended, request, status)
            }
        }
    }
}

/// The handles of an array. They are read while others are set to null.
#[inline]
unsafe fn handles<'a>(
    name: &str,
    count: c_int,
    requests: *const RawHandle,
) -> Result<&'a [Cell<Handle>]> {
    const { assert!(size_of::<RawHandle>() == size_of::<Handle>()) };
    let count = crate::arguments::count(name, i64::from(count))?;
    // SAFETY: the caller passes `count` handles, which no other thread uses during the call. Only
    // calls that may change the array write its cells.
    unsafe { array("array_of_requests", requests.cast(), count) }
}

/// Places for the statuses of several requests.
struct Reports {
    statuses: *mut Status,
    /// The first error, for callers that cannot be given a status each.
    failed: Option<Error>,
}

impl Reports {
    /// Reports the end of a request in status `place`.
    #[inline]
    unsafe fn add(&mut self, place: usize, ended: Ended) {
        let code = match ended.error {
            None => 0,
            Some(error) => self.fail(error),
        };
        if !self.statuses.is_null() {
            let status = Status { error: code, ..Status::of(&ended.status) };
            // SAFETY: the array of statuses has as many entries as there are requests; `place` is
            // below that.
            unsafe { *self.statuses.add(place) = status };
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> c_int {
        let code = code_for(error.class, error.to_string());
        self.failed.get_or_insert(error);
        code
    }

    /// `MPI_ERR_IN_STATUS` when any failed (MPI-5.0 §3.7.5).
    fn result(self) -> Result<()> {
        match self.failed {
            None => Ok(()),
            Some(error) => {
                let on = error.on;
                let mut whole = class(ErrorClass::InStatus, error.to_string());
                whole.on = on;
                Err(whole)
            }
        }
    }
}

pub(crate) unsafe fn waitall(
    count: c_int,
    requests: *mut RawHandle,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: `requests` and `statuses` have `count` entries each.
    unsafe {
        let all = handles("count", count, requests)?;
        let mut reports = Reports { statuses, failed: None };
        request::wait_all(all, |index, ended| reports.add(index, ended))?;
        reports.result()
    }
}

pub(crate) unsafe fn testall(
    count: c_int,
    requests: *mut RawHandle,
    flag: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: `requests` and `statuses` have `count` entries each; `flag` points to a variable of
    // the caller.
    unsafe {
        let all = handles("count", count, requests)?;
        let mut reports = Reports { statuses, failed: None };
        let done = request::test_all(all, |index, ended| reports.add(index, ended))?;
        put(flag, c_int::from(done))?;
        reports.result()
    }
}

pub(crate) unsafe fn waitany(
    count: c_int,
    requests: *mut RawHandle,
    index: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `requests` has `count` entries; `index` and `status` point to variables of the
    // caller.
    unsafe { any(count, requests, index, status, true).map(drop) }
}

pub(crate) unsafe fn testany(
    count: c_int,
    requests: *mut RawHandle,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `requests` has `count` entries; `index`, `flag` and `status` point to variables of
    // the caller.
    unsafe {
        put(flag, 1)?;
        let done = any(count, requests, index, status, false)?;
        put(flag, c_int::from(done))
    }
}

/// One that has ended; whether the call is done (an array without active requests is).
unsafe fn any(
    count: c_int,
    requests: *mut RawHandle,
    index: *mut c_int,
    status: *mut Status,
    waits: bool,
) -> Result<bool> {
    // SAFETY: `requests` has `count` entries; `index` and `status` point to variables of the
    // caller.
    unsafe {
        let all = handles("count", count, requests)?;
        let mut found = None;
        let report = |at, ended| found = Some((at, ended));
        let active = match waits {
            true => request::wait_some(all, 1, report)?,
            false => request::test_some(all, 1, report)?,
        };
        match found {
            Some((at, ended)) => {
                put(index, at as c_int)?;
                fill(status, &ended.status);
                ended.error.map_or(Ok(true), Err)
            }
            None => {
                put(index, UNDEFINED)?;
                if !active {
                    settle_empty(status);
                }
                Ok(!active)
            }
        }
    }
}

pub(crate) unsafe fn waitsome(
    incount: c_int,
    requests: *mut RawHandle,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: `requests`, `indices` and `statuses` have `incount` entries; `outcount` points to a
    // variable of the caller.
    unsafe { some(incount, requests, outcount, indices, statuses, true) }
}

pub(crate) unsafe fn testsome(
    incount: c_int,
    requests: *mut RawHandle,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: `requests`, `indices` and `statuses` have `incount` entries; `outcount` points to a
    // variable of the caller.
    unsafe { some(incount, requests, outcount, indices, statuses, false) }
}

unsafe fn some(
    count: c_int,
    requests: *mut RawHandle,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
    waits: bool,
) -> Result<()> {
    // SAFETY: the three arrays have `count` entries each; `outcount` points to a variable of the
    // caller.
    unsafe {
        let all = handles("incount", count, requests)?;
        array("array_of_indices", indices, all.len())?;
        let mut reports = Reports { statuses, failed: None };
        let mut place = 0;
        let report = |index: usize, ended| {
            *indices.add(place) = index as c_int;
            reports.add(place, ended);
            place += 1;
        };
        let active = match waits {
            true => request::wait_some(all, usize::MAX, report)?,
            false => request::test_some(all, usize::MAX, report)?,
        };
        put(outcount, if active { place as c_int } else { UNDEFINED })?;
        reports.result()
    }
}

pub(crate) unsafe fn start(request: *mut RawHandle) -> Result<()> {
    // SAFETY: `request` points to a handle of the caller.
    named("request", request::start(handle(unsafe { *request })))
}

pub(crate) unsafe fn startall(count: c_int, requests: *mut RawHandle) -> Result<()> {
    // SAFETY: the array of requests has as many entries as the count says.
    request::start_all(unsafe { handles("count", count, requests) }?)
}

pub(crate) unsafe fn cancel(request: *mut RawHandle) -> Result<()> {
    // SAFETY: `request` points to a handle of the caller.
    named("request", request::cancel(handle(unsafe { *request })))
}

pub(crate) unsafe fn request_free(request: *mut RawHandle) -> Result<()> {
    // SAFETY: `request` points to a handle of the caller.
    unsafe {
        named("request", request::free(handle(*request)))?;
        *request = REQUEST_NULL;
    }
    Ok(())
}

pub(crate) unsafe fn request_get_status(
    request: RawHandle,
    flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `flag` points to a variable of the caller; `status` points to a status or is
    // MPI_STATUS_IGNORE.
    unsafe {
        if request == REQUEST_NULL {
            settle_empty(status);
            return put(flag, 1);
        }
        let outcome = named("request", request::peek(handle(request)))?;
        if let Some(outcome) = &outcome {
            fill(status, outcome);
        }
        put(flag, c_int::from(outcome.is_some()))
    }
}

pub(crate) unsafe fn request_get_status_all(
    count: c_int,
    requests: *const RawHandle,
    flag: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: `requests` and `statuses` have `count` entries each; `flag` points to a variable of
    // the caller.
    unsafe {
        let all = request::peek_all(handles("count", count, requests)?)?;
        let done = !all.contains(&Peeked::Active);
        put(flag, c_int::from(done))?;
        if done && !statuses.is_null() {
            for (index, peeked) in all.iter().enumerate() {
                fill(statuses.add(index), &status_of(peeked));
            }
        }
    }
    Ok(())
}

pub(crate) unsafe fn request_get_status_any(
    count: c_int,
    requests: *const RawHandle,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: `requests` has `count` entries; `index`, `flag` and `status` point to variables of
    // the caller.
    unsafe {
        let all = request::peek_all(handles("count", count, requests)?)?;
        let ended = all.iter().position(|peeked| matches!(peeked, Peeked::Ended(_)));
        let none_active = all.iter().all(|peeked| *peeked == Peeked::Inactive);
        if let Some(at) = ended {
            fill(status, &status_of(&all[at]));
        } else if none_active {
            settle_empty(status);
        }
        put(index, ended.map_or(UNDEFINED, |at| at as c_int))?;
        put(flag, c_int::from(ended.is_some() || none_active))
    }
}

pub(crate) unsafe fn request_get_status_some(
    count: c_int,
    requests: *const RawHandle,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> Result<()> {
    // SAFETY: the three arrays have `count` entries each; `outcount` points to a variable of the
    // caller.
    unsafe {
        let all = request::peek_all(handles("incount", count, requests)?)?;
        array("array_of_indices", indices, all.len())?;
        if all.iter().all(|peeked| *peeked == Peeked::Inactive) {
            return put(outcount, UNDEFINED);
        }
        let ended = all.iter().enumerate().filter(|(_, one)| matches!(one, Peeked::Ended(_)));
        let mut place = 0;
        for (index, peeked) in ended {
            *indices.add(place) = index as c_int;
            if !statuses.is_null() {
                fill(statuses.add(place), &status_of(peeked));
            }
            place += 1;
        }
        put(outcount, place as c_int)
    }
}

fn status_of(peeked: &Peeked) -> request::Status {
    match peeked {
        Peeked::Ended(status) => *status,
        Peeked::Inactive | Peeked::Active => request::Status::EMPTY,
    }
}

const REQUEST_NULL: RawHandle = request::NULL.0 as RawHandle;
