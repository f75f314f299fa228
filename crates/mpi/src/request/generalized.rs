//! Generalized requests: operations of the program's own (MPI-5.0 §13.2).
//!
//! The program's functions run where no lock is held, since they may call any function of MPI. This module therefore
//! only says which of them are due, and its caller calls them.

use handles::{Handle, Objects};

use super::Request;
use super::named::{Named, unknown};
use super::requests::{REQUESTS, StoredRequest};
use crate::generalized::{GeneralizedRequest, RequestFunctions};
use crate::process::Process;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

/// Starts a generalized request.
///
/// # Errors
/// The table of requests is full.
pub fn start(functions: RequestFunctions) -> Result<Handle> {
    Request::Generalized(GeneralizedRequest::new(functions)).register(Vci::FIRST)
}

/// The generalized request with a handle; none if it is freed or another kind of request.
pub fn find(handle: Handle) -> Option<GeneralizedRequest> {
    let Named::Stored(vci) = Named::of(handle) else { return None };
    let mut requests = REQUESTS.of(vci).lock();
    let request = requests.find(handle).ok()?.request.generalized()?;
    (!request.is_freed()).then(|| request.clone())
}

/// Ends the operation of a generalized request. Returns the request if the program has freed it: its function to free
/// is then due.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request that is not generalized, or complete already.
pub fn complete(process: &Process, handle: Handle) -> Result<Option<GeneralizedRequest>> {
    let (request, is_freed) = with_lock(handle, |requests, request| {
        if !request.complete() {
            let message = "the generalized request is complete already";
            return Err(Error::new(ErrorClass::Request, message));
        }
        // One that is freed later has its function called there.
        let is_freed = request.is_freed();
        if is_freed {
            requests.remove(handle)?;
        }
        Ok((request, is_freed))
    })?;
    process.vci(Vci::FIRST).submit(|worker| request.announce(worker));
    Ok(is_freed.then_some(request))
}

/// Frees a generalized request, whose handle still serves to complete it. Returns the request if it is complete: its
/// function to free is then due.
///
/// # Errors
/// `MPI_ERR_REQUEST` for a request that is not generalized, or freed already.
pub fn free(handle: Handle) -> Result<Option<GeneralizedRequest>> {
    with_lock(handle, |requests, request| {
        if !request.set_freed() {
            return Err(unknown(handle));
        }
        if !request.is_complete() {
            return Ok(None);
        }
        requests.remove(handle)?;
        Ok(Some(request))
    })
}

/// Calls `act` with the generalized request of a handle, with the lock of its table.
fn with_lock<T>(
    handle: Handle,
    act: impl FnOnce(&mut Objects<StoredRequest>, GeneralizedRequest) -> Result<T>,
) -> Result<T> {
    let none = || Error::new(ErrorClass::Request, "the request is not a generalized one");
    let Named::Stored(vci) = Named::of(handle) else { return Err(none()) };
    let mut requests = REQUESTS.of(vci).lock();
    let request = requests.find(handle)?.request.generalized().cloned();
    act(&mut requests, request.ok_or_else(none)?)
}

impl Request {
    fn generalized(&self) -> Option<&GeneralizedRequest> {
        if let Self::Generalized(request) = self { Some(request) } else { None }
    }
}
