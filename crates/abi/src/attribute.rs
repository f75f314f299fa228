//! Attributes of communicators and datatypes (MPI-5.0 §7.7).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard};

use mpi::attribute::{self, Attributes, Keyval, Owner};
use mpi::comm::Comm;
use mpi::{objects, process};

use crate::arguments::comm;
use crate::convention::*;

type Copy = unsafe extern "C" fn(
    RawHandle,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_int,
) -> c_int;
type Delete = unsafe extern "C" fn(RawHandle, c_int, *mut c_void, *mut c_void) -> c_int;

/// `MPI_COMM_NULL_COPY_FN` and its siblings.
const NULL_COPY: usize = 0;
/// `MPI_COMM_DUP_FN` and its siblings.
const DUP: usize = 1;

unsafe fn create(
    owner: Owner,
    copy: Function,
    delete: Function,
    keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    let (copy, delete) = (copy as usize, delete as usize);
    let extra_state = extra_state as usize;
    // SAFETY: as the body's.
    unsafe { put(keyval, attribute::create(Keyval { owner, copy, delete, extra_state })) }
}

unsafe fn free(owner: Owner, keyval: *mut c_int) -> Result<()> {
    // SAFETY: as the body's.
    unsafe {
        attribute::free(*keyval, owner)?;
        put(keyval, KEYVAL_INVALID)
    }
}

/// What a copy callback makes of a value; none when the attribute is not copied.
unsafe fn copied(
    keyval: Keyval,
    key: c_int,
    owner: RawHandle,
    value: usize,
) -> Result<Option<usize>> {
    match keyval.copy {
        NULL_COPY => Ok(None),
        DUP => Ok(Some(value)),
        function => {
            let (mut made, mut flag) = (0usize, 0);
            // SAFETY: the application gave this address as a copy function.
            let code = unsafe {
                let copy: Copy = std::mem::transmute(function);
                let place = (&raw mut made).cast();
                copy(owner, key, keyval.extra_state as _, value as _, place, &mut flag)
            };
            callback_result(code)?;
            Ok((flag != 0).then_some(made))
        }
    }
}

unsafe fn deleted(keyval: Keyval, key: c_int, owner: RawHandle, value: usize) -> Result<()> {
    if keyval.delete == 0 {
        return Ok(());
    }
    // SAFETY: the application gave this address as a delete function.
    let code = unsafe {
        let delete: Delete = std::mem::transmute(keyval.delete);
        delete(owner, key, value as _, keyval.extra_state as _)
    };
    callback_result(code)
}

fn callback_result(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let mut error = class(ErrorClass::Other, format!("an attribute callback returned {code}"));
    error.code = Some(code);
    Err(error)
}

/// Copies the attributes of a communicator to its duplicate, as their callbacks say.
pub(crate) unsafe fn copy_all(from: &Comm, to: &Comm) -> Result<()> {
    for (key, value) in from.with_attributes(|attributes| attributes.all()) {
        let keyval = attribute::find(key, Owner::Comm)?;
        // SAFETY: the callback is the application's.
        if let Some(value) = unsafe { copied(keyval, key, raw(from.handle()), value) }? {
            to.with_attributes(|attributes| attributes.set(key, value));
        }
    }
    Ok(())
}

/// Deletes the attributes of a communicator, the last set first.
pub(crate) fn delete_all(comm: &Comm) -> Result<()> {
    let all = comm.with_attributes(|attributes| attributes.all());
    for (key, value) in all.into_iter().rev() {
        let keyval = attribute::find(key, Owner::Comm)?;
        // SAFETY: the callback is the application's.
        unsafe { deleted(keyval, key, raw(comm.handle()), value) }?;
        comm.with_attributes(|attributes| attributes.remove(key));
    }
    Ok(())
}

/// What finalisation does first (MPI-5.0 §11.2.4).
pub(crate) fn delete_all_of_self() -> Result<()> {
    delete_all(process::current()?.myself())
}

pub(crate) unsafe fn comm_create_keyval(
    copy: Function,
    delete: Function,
    keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { create(Owner::Comm, copy, delete, keyval, extra_state) }
}

pub(crate) unsafe fn comm_free_keyval(keyval: *mut c_int) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { free(Owner::Comm, keyval) }
}

pub(crate) unsafe fn comm_set_attr(on: RawHandle, key: c_int, value: *mut c_void) -> Result<()> {
    let comm = comm(on)?;
    let keyval = attribute::find(key, Owner::Comm)?;
    if let Some(old) = comm.with_attributes(|attributes| attributes.value(key)) {
        // SAFETY: the callback is the application's.
        unsafe { deleted(keyval, key, on, old) }?;
    }
    comm.with_attributes(|attributes| attributes.set(key, value as usize));
    Ok(())
}

pub(crate) unsafe fn comm_get_attr(
    on: RawHandle,
    key: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> Result<()> {
    let comm = comm(on)?;
    // SAFETY: as the body's: `value` is the address of a pointer.
    unsafe {
        if let Some(known) = predefined(key)? {
            put(flag, c_int::from(known.is_some()))?;
            return match known {
                Some(place) => put(value.cast::<*const c_int>(), place),
                None => Ok(()),
            };
        }
        attribute::find(key, Owner::Comm)?;
        match comm.with_attributes(|attributes| attributes.value(key)) {
            Some(known) => {
                put(value.cast::<usize>(), known)?;
                put(flag, 1)
            }
            None => put(flag, 0),
        }
    }
}

pub(crate) unsafe fn comm_delete_attr(on: RawHandle, key: c_int) -> Result<()> {
    let comm = comm(on)?;
    let keyval = attribute::find(key, Owner::Comm)?;
    let missing = || class(ErrorClass::Keyval, format!("no attribute is set under key {key}"));
    let value = comm.with_attributes(|attributes| attributes.value(key)).ok_or_else(missing)?;
    // SAFETY: the callback is the application's.
    unsafe { deleted(keyval, key, on, value) }?;
    comm.with_attributes(|attributes| attributes.remove(key));
    Ok(())
}

/// The place of a predefined attribute's value; none inside when it has none, none outside when the
/// key is not predefined.
fn predefined(key: c_int) -> Result<Option<Option<*const c_int>>> {
    let job = process::current()?.job();
    let value = match key {
        TAG_UB => Some(c_int::MAX),
        IO => Some(crate::arguments::ANY_SOURCE),
        HOST => Some(crate::arguments::PROC_NULL),
        WTIME_IS_GLOBAL => Some(0),
        APPNUM => job.application_number().map(|number| number as c_int),
        LAST_USED_CODE => Some(crate::error::last_used_code()),
        UNIVERSE_SIZE => job.universe_size().map(|size| size as c_int),
        _ => return Ok(None),
    };
    Ok(Some(value.map(|value| {
        static VALUES: LazyLock<Mutex<HashMap<c_int, &'static Mutex<c_int>>>> =
            LazyLock::new(Mutex::default);
        let mut values = VALUES.lock().unwrap_or_else(|poison| poison.into_inner());
        let place = values.entry(key).or_insert_with(|| Box::leak(Box::default()));
        let mut inner = place.lock().unwrap_or_else(|poison| poison.into_inner());
        *inner = value;
        &raw const *inner
    })))
}

/// The attributes of derived datatypes, by handle.
fn of_types() -> MutexGuard<'static, HashMap<RawHandle, Attributes>> {
    static TYPES: LazyLock<Mutex<HashMap<RawHandle, Attributes>>> = LazyLock::new(Mutex::default);
    TYPES.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Copies the attributes of a datatype to its duplicate.
pub(crate) unsafe fn copy_type(from: RawHandle, to: RawHandle) -> Result<()> {
    let all = of_types().get(&from).map(Attributes::all).unwrap_or_default();
    for (key, value) in all {
        let keyval = attribute::find(key, Owner::Datatype)?;
        // SAFETY: the callback is the application's.
        if let Some(value) = unsafe { copied(keyval, key, from, value) }? {
            of_types().entry(to).or_default().set(key, value);
        }
    }
    Ok(())
}

/// Deletes the attributes of a datatype that is freed.
pub(crate) unsafe fn delete_type(datatype: RawHandle) -> Result<()> {
    let all = of_types().get(&datatype).map(Attributes::all).unwrap_or_default();
    for (key, value) in all.into_iter().rev() {
        let keyval = attribute::find(key, Owner::Datatype)?;
        // SAFETY: the callback is the application's.
        unsafe { deleted(keyval, key, datatype, value) }?;
    }
    of_types().remove(&datatype);
    Ok(())
}

pub(crate) unsafe fn type_create_keyval(
    copy: Function,
    delete: Function,
    keyval: *mut c_int,
    extra_state: *mut c_void,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { create(Owner::Datatype, copy, delete, keyval, extra_state) }
}

pub(crate) unsafe fn type_free_keyval(keyval: *mut c_int) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { free(Owner::Datatype, keyval) }
}

pub(crate) unsafe fn type_set_attr(
    datatype: RawHandle,
    key: c_int,
    value: *mut c_void,
) -> Result<()> {
    objects::datatype(handle(datatype))?;
    let keyval = attribute::find(key, Owner::Datatype)?;
    let old = of_types().get(&datatype).and_then(|attributes| attributes.value(key));
    if let Some(old) = old {
        // SAFETY: the callback is the application's.
        unsafe { deleted(keyval, key, datatype, old) }?;
    }
    of_types().entry(datatype).or_default().set(key, value as usize);
    Ok(())
}

pub(crate) unsafe fn type_get_attr(
    datatype: RawHandle,
    key: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> Result<()> {
    objects::datatype(handle(datatype))?;
    attribute::find(key, Owner::Datatype)?;
    let known = of_types().get(&datatype).and_then(|attributes| attributes.value(key));
    // SAFETY: as the body's: `value` is the address of a pointer.
    unsafe {
        if let Some(known) = known {
            put(value.cast::<usize>(), known)?;
        }
        put(flag, c_int::from(known.is_some()))
    }
}

pub(crate) unsafe fn type_delete_attr(datatype: RawHandle, key: c_int) -> Result<()> {
    objects::datatype(handle(datatype))?;
    let keyval = attribute::find(key, Owner::Datatype)?;
    let missing = || class(ErrorClass::Keyval, format!("no attribute is set under key {key}"));
    let known = of_types().get(&datatype).and_then(|attributes| attributes.value(key));
    let value = known.ok_or_else(missing)?;
    // SAFETY: the callback is the application's.
    unsafe { deleted(keyval, key, datatype, value) }?;
    of_types().entry(datatype).or_default().remove(key);
    Ok(())
}

const KEYVAL_INVALID: c_int = 0;
const TAG_UB: c_int = 501;
const IO: c_int = 502;
const HOST: c_int = 503;
const WTIME_IS_GLOBAL: c_int = 504;
const APPNUM: c_int = 505;
const LAST_USED_CODE: c_int = 506;
const UNIVERSE_SIZE: c_int = 507;
