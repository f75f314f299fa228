//! Info objects (MPI-5.0 §10).

use std::ffi::{c_char, c_int};

use lock::Uncancelled;
use mpi::info::Info;

use crate::arguments::string;
use crate::convention::*;

/// `MPI_MAX_INFO_KEY`.
const KEY_MAX: usize = 256;

fn find(info: RawHandle) -> Result<Info> {
    named("info", Info::find(handle(info), environment))
}

/// Information about the start of this process (MPI-5.0 §11.2.2).
fn environment() -> Info {
    let _uncancelled = Uncancelled::begin();
    let info = Info::default();
    let mut arguments = std::env::args_os().map(|one| one.to_string_lossy().into_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    let pairs = [
        ("command", arguments.next().unwrap_or_default()),
        ("argv", arguments.collect::<Vec<_>>().join(" ")),
        ("host", host.trim().to_owned()),
        ("arch", std::env::consts::ARCH.to_owned()),
        ("wdir", directory.to_string_lossy().into_owned()),
    ];
    for (key, value) in pairs {
        // What does not fit an info object is left out of it.
        let _ = info.set(key, &value);
    }
    info
}

pub(crate) unsafe fn info_create(info: *mut RawHandle) -> Result<()> {
    // SAFETY: `info` points to a variable of the caller.
    unsafe { put(info, raw(Info::default().register()?)) }
}

pub(crate) unsafe fn info_create_env(
    _argc: c_int,
    _argv: *mut *mut c_char,
    info: *mut RawHandle,
) -> Result<()> {
    // SAFETY: `info` points to a variable of the caller.
    unsafe { put(info, raw(environment().register()?)) }
}

pub(crate) unsafe fn info_set(
    info: RawHandle,
    key: *const c_char,
    value: *const c_char,
) -> Result<()> {
    // SAFETY: `key` and `value` are C strings.
    unsafe { find(info)?.set(&string("key", key)?, &string("value", value)?) }
}

pub(crate) unsafe fn info_delete(info: RawHandle, key: *const c_char) -> Result<()> {
    // SAFETY: `key` is a C string or NULL.
    unsafe { find(info)?.delete(&string("key", key)?) }
}

pub(crate) unsafe fn info_get(
    info: RawHandle,
    key: *const c_char,
    len: c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> Result<()> {
    let mut room = crate::arguments::length("valuelen", len)?.saturating_add(1) as c_int;
    // SAFETY: `value` has room for `len` characters and the final zero byte.
    unsafe { info_get_string(info, key, &mut room, value, flag) }
}

pub(crate) unsafe fn info_get_string(
    info: RawHandle,
    key: *const c_char,
    len: *mut c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> Result<()> {
    // SAFETY: `key` is a C string or NULL; `flag` and `len` point to variables of the caller.
    unsafe {
        let Some(known) = find(info)?.value(&string("key", key)?)? else { return put(flag, 0) };
        let room = crate::arguments::length("buflen", *len)?;
        if room > 0 {
            leads_somewhere("value", value)?;
            let bytes = &known.as_bytes()[..known.len().min(room - 1)];
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), bytes.len());
            value.add(bytes.len()).write(0);
        }
        put(len, known.len() as c_int + 1)?;
        put(flag, 1)
    }
}

pub(crate) unsafe fn info_get_valuelen(
    info: RawHandle,
    key: *const c_char,
    len: *mut c_int,
    flag: *mut c_int,
) -> Result<()> {
    // SAFETY: `key` is a C string or NULL; `flag` and `len` point to variables of the caller.
    unsafe {
        let Some(known) = find(info)?.value(&string("key", key)?)? else { return put(flag, 0) };
        put(len, known.len() as c_int)?;
        put(flag, 1)
    }
}

pub(crate) unsafe fn info_get_nkeys(info: RawHandle, count: *mut c_int) -> Result<()> {
    // SAFETY: `count` points to a variable of the caller.
    unsafe { put(count, find(info)?.len() as c_int) }
}

pub(crate) unsafe fn info_get_nthkey(info: RawHandle, n: c_int, key: *mut c_char) -> Result<()> {
    let info = find(info)?;
    let missing = || Error::argument(format!("n = {n}, but there are {} keys", info.len()));
    let found = usize::try_from(n).ok().and_then(|n| info.key(n)).ok_or_else(missing)?;
    let mut len = 0;
    // SAFETY: `key` has room for MPI_MAX_INFO_KEY bytes; `len` is a local variable.
    unsafe { crate::error::write_string(&found, KEY_MAX, key, &mut len) }
}

pub(crate) unsafe fn info_dup(info: RawHandle, copy: *mut RawHandle) -> Result<()> {
    // SAFETY: `copy` points to a variable of the caller.
    unsafe { put(copy, raw(find(info)?.duplicate().register()?)) }
}

pub(crate) unsafe fn info_free(info: *mut RawHandle) -> Result<()> {
    // SAFETY: `info` points to a variable of the caller.
    unsafe {
        named("info", Info::free(handle(*info)))?;
        put(info, raw(mpi::info::NULL))
    }
}

/// The hints a call is given; none for `MPI_INFO_NULL`.
pub(crate) fn optional(info: RawHandle) -> Result<Info> {
    match handle(info) {
        mpi::info::NULL => Ok(Info::default()),
        _ => Ok(find(info)?.duplicate()),
    }
}
