//! Error handlers (MPI-5.0 §9.3).

use std::ffi::c_int;

use mpi::errhandler::{Errhandler, NULL, Owner};

use crate::arguments::comm;
use crate::convention::*;

/// Calls an error handler function of the application.
///
/// # Safety
/// `function` is the address of an `MPI_Comm_errhandler_function`.
pub(crate) unsafe fn call(function: usize, comm: &mut RawHandle, code: &mut c_int) {
    // SAFETY: the caller's promise. The type is variadic in C; the two arguments pass alike.
    let function: unsafe extern "C" fn(*mut RawHandle, *mut c_int, ...) =
        unsafe { std::mem::transmute(function) };
    // SAFETY: the application gave a function that takes the communicator and the code by address.
    unsafe { function(comm, code) };
}

macro_rules! creations {
    ($($name:ident $owner:ident $argument:literal;)*) => {$(
        pub(crate) fn $name(function: Function, errhandler: Out<RawHandle>) -> Result<()> {
            if function.is_null() {
                return Err(null($argument));
            }
            let made = Errhandler::create(Owner::$owner, function as usize)?;
            errhandler.put(raw(made))
        }
    )*};
}

creations! {
    comm_create_errhandler Comm "comm_errhandler_fn";
    win_create_errhandler Win "win_errhandler_fn";
    file_create_errhandler File "file_errhandler_fn";
    session_create_errhandler Session "session_errhandler_fn";
}

pub(crate) fn comm_set_errhandler(on: RawHandle, errhandler: RawHandle) -> Result<()> {
    let comm = comm(on)?;
    let handler = named("errhandler", Errhandler::find(handle(errhandler), Owner::Comm))?;
    comm.set_errhandler(handler);
    Ok(())
}

pub(crate) fn comm_get_errhandler(on: RawHandle, errhandler: Out<RawHandle>) -> Result<()> {
    errhandler.put(raw(comm(on)?.errhandler().hold()?))
}

pub(crate) fn comm_call_errhandler(on: RawHandle, code: c_int) -> Result<()> {
    let comm = comm(on)?;
    let mut error = class(ErrorClass::Unknown, format!("the application reports error {code}"));
    error.code = Some(code);
    // The handler's return ends the call well (MPI-5.0 §9.3.4).
    crate::error::raise("MPI_Comm_call_errhandler", On::Comm(raw(comm.handle())), error);
    Ok(())
}

pub(crate) fn errhandler_free(errhandler: InOut<RawHandle>) -> Result<()> {
    named("errhandler", Errhandler::free(handle(errhandler.get())))?;
    errhandler.put(raw(NULL))
}
