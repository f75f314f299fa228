//! Error handlers (MPI-5.0 §9.3).

use std::ffi::c_int;

use mpi::errhandler::{Errhandler, NULL, Owner};
use mpi::file::{self, File};

use crate::arguments::{comm, window};
use crate::convention::*;

/// Calls an error handler function of the application.
///
/// # Safety
/// `function` is the address of an `MPI_Comm_errhandler_function` or a sibling for other objects.
pub(crate) unsafe fn call(function: usize, object: &mut RawHandle, code: &mut c_int) {
    // SAFETY: the caller's promise. The type is variadic in C; the two arguments pass alike.
    let function: unsafe extern "C" fn(*mut RawHandle, *mut c_int, ...) =
        unsafe { std::mem::transmute(function) };
    // SAFETY: the application gave a function that takes the object and the code by address.
    unsafe { function(object, code) };
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
    report("MPI_Comm_call_errhandler", On::Comm(raw(comm.handle())), code);
    Ok(())
}

pub(crate) fn win_set_errhandler(on: RawHandle, errhandler: RawHandle) -> Result<()> {
    let window = window(on)?;
    let handler = named("errhandler", Errhandler::find(handle(errhandler), Owner::Win))?;
    window.set_errhandler(handler);
    Ok(())
}

pub(crate) fn win_get_errhandler(on: RawHandle, errhandler: Out<RawHandle>) -> Result<()> {
    errhandler.put(raw(window(on)?.errhandler().hold()?))
}

pub(crate) fn win_call_errhandler(on: RawHandle, code: c_int) -> Result<()> {
    let window = window(on)?;
    report("MPI_Win_call_errhandler", On::Win(raw(window.handle())), code);
    Ok(())
}

/// Sets the error handler of a file, or of `MPI_FILE_NULL`: files get that when they are opened (MPI-5.0 §14.7).
pub(crate) fn file_set_errhandler(on: RawHandle, errhandler: RawHandle) -> Result<()> {
    let find = || named("errhandler", Errhandler::find(handle(errhandler), Owner::File));
    match handle(on) {
        file::NULL => file::set_null_errhandler(find()?),
        _ => file_of(on)?.set_errhandler(find()?),
    }
    Ok(())
}

pub(crate) fn file_get_errhandler(on: RawHandle, errhandler: Out<RawHandle>) -> Result<()> {
    if handle(on) != file::NULL {
        file_of(on)?;
    }
    errhandler.put(raw(file::errhandler_of(handle(on)).1.hold()?))
}

pub(crate) fn file_call_errhandler(on: RawHandle, code: c_int) -> Result<()> {
    if handle(on) != file::NULL {
        crate::arguments::file(on)?;
    }
    report("MPI_File_call_errhandler", On::File(on), code);
    Ok(())
}

fn file_of(on: RawHandle) -> Result<File> {
    crate::world::current()?;
    named("file", file::find(handle(on)))
}

/// Calls the error handler of an object with a code. The handler's return ends the call well (MPI-5.0 §9.3.4).
pub(crate) fn report(function: &'static str, on: On, code: c_int) {
    let (class_of_it, text) = crate::error::described(code);
    let mut error = class(class_of_it, format!("the application reports error {code}{text}"));
    error.code = Some(code);
    crate::error::raise(function, on, error);
}

pub(crate) fn errhandler_free(errhandler: InOut<RawHandle>) -> Result<()> {
    named("errhandler", Errhandler::free(handle(errhandler.get())))?;
    errhandler.put(raw(NULL))
}
