//! Generalized requests: calls of the program's functions (MPI-5.0 §13.2).

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use handles::Handle;
use mpi::generalized::{GeneralizedRequest, RequestFunctions};
use mpi::request::{self, Ended, Ending, generalized};

use crate::convention::*;
use crate::error::callback_result;
use crate::world;

type Query = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

pub(crate) fn grequest_start(
    query_fn: Function,
    free_fn: Function,
    cancel_fn: Function,
    extra_state: *mut c_void,
    request: Out<RawHandle>,
) -> Result<()> {
    world::current()?;
    for (function, name) in [(query_fn, "query_fn"), (free_fn, "free_fn"), (cancel_fn, "cancel_fn")]
    {
        if function.is_null() {
            return Err(null(name));
        }
    }
    let [query, free, cancel] = [query_fn, free_fn, cancel_fn].map(|function| function as usize);
    let extra_state = extra_state as usize;
    let made = generalized::start(RequestFunctions { query, free, cancel, extra_state })?;
    request.put(raw(made))
}

pub(crate) fn grequest_complete(request: RawHandle) -> Result<()> {
    let due = named("request", generalized::complete(world::current()?, handle(request)))?;
    due.map_or(Ok(()), |request| free(&request))
}

/// Frees a generalized request, now or when it is complete. False for another kind of request.
pub(crate) fn request_free(request: InOut<RawHandle>) -> Result<bool> {
    let freed = handle(request.get());
    if generalized::find(freed).is_none() {
        return Ok(false);
    }
    let due = named("request", generalized::free(freed))?;
    request.put(raw(request::NULL))?;
    due.map_or(Ok(true), |request| free(&request).map(|()| true))
}

/// Cancels a generalized request. False for another kind of request.
pub(crate) fn cancel(request: RawHandle) -> Result<bool> {
    let Some(request) = generalized::find(handle(request)) else { return Ok(false) };
    let RequestFunctions { cancel, extra_state, .. } = request.functions();
    let complete = c_int::from(request.is_complete());
    // SAFETY: the application gave this address as a cancel function.
    let code = unsafe {
        let cancel: Cancel = transmute(cancel);
        cancel(extra_state as _, complete)
    };
    result("cancel", code).map(|()| true)
}

/// Fills the status of a request that has ended. Ends a generalized one by its functions.
#[inline]
pub(crate) fn settle(ended: Ended, status: StatusOut) -> Result<()> {
    match ended.ending {
        Ending::Success => {
            status.fill(&ended.status);
            Ok(())
        }
        Ending::Failed(error) => {
            status.fill(&ended.status);
            Err(error)
        }
        Ending::Generalized(request) => end(&request, status),
    }
}

/// Ends a generalized request. The call fails with the code of the function called last, of those that failed.
#[cold]
pub(crate) fn end(request: &GeneralizedRequest, status: StatusOut) -> Result<()> {
    let queried = query(request, status);
    free(request)?;
    result("query", queried)
}

/// Fills the status of a request that has ended, which is left as it is.
pub(crate) fn peek(request: Handle, known: &request::Status, status: StatusOut) -> Result<()> {
    match generalized::find(request) {
        Some(request) => result("query", query(&request, status)),
        None => {
            status.fill(known);
            Ok(())
        }
    }
}

/// Lets the program fill the status. Returns its function's code.
fn query(request: &GeneralizedRequest, status: StatusOut) -> c_int {
    let RequestFunctions { query, extra_state, .. } = request.functions();
    status.fill(&request::Status::EMPTY);
    let mut unused = Status::of(&request::Status::EMPTY);
    // SAFETY: the application gave this address as a query function.
    unsafe {
        let query: Query = transmute(query);
        query(extra_state as _, status.or(&mut unused))
    }
}

fn free(request: &GeneralizedRequest) -> Result<()> {
    let RequestFunctions { free, extra_state, .. } = request.functions();
    // SAFETY: the application gave this address as a function to free.
    let code = unsafe {
        let free: Free = transmute(free);
        free(extra_state as _)
    };
    result("free", code)
}

fn result(function: &str, code: c_int) -> Result<()> {
    callback_result(format_args!("the {function} function of a generalized request"), code)
}
