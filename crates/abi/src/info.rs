//! Info objects (MPI-5.0 §10).

use std::ffi::{c_char, c_int};

use lock::Uncancelled;
use mpi::info::Info;

use crate::convention::*;

/// `MPI_MAX_INFO_KEY`.
const KEY_MAX: usize = 256;

pub(crate) fn find(info: RawHandle) -> Result<Info> {
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

pub(crate) fn info_create(info: Out<RawHandle>) -> Result<()> {
    info.put(raw(Info::default().register()?))
}

pub(crate) fn info_create_env(
    _argc: c_int,
    _argv: *mut *mut c_char,
    info: Out<RawHandle>,
) -> Result<()> {
    info.put(raw(environment().register()?))
}

pub(crate) fn info_set(info: RawHandle, key: String, value: String) -> Result<()> {
    find(info)?.set(&key, &value)
}

pub(crate) fn info_delete(info: RawHandle, key: String) -> Result<()> {
    find(info)?.delete(&key)
}

pub(crate) fn info_get(
    info: RawHandle,
    key: String,
    len: c_int,
    value: Chars,
    flag: Out<c_int>,
) -> Result<()> {
    let known = find(info)?.value(&key)?;
    let room = crate::arguments::length("valuelen", len)? + 1;
    if let Some(known) = &known {
        value.write(known, room)?;
    }
    flag.put(c_int::from(known.is_some()))
}

pub(crate) fn info_get_string(
    info: RawHandle,
    key: String,
    len: InOut<c_int>,
    value: Chars,
    flag: Out<c_int>,
) -> Result<()> {
    let Some(known) = find(info)?.value(&key)? else { return flag.put(0) };
    value.write(&known, crate::arguments::length("buflen", len.get())?)?;
    len.put(known.len() as c_int + 1)?;
    flag.put(1)
}

pub(crate) fn info_get_valuelen(
    info: RawHandle,
    key: String,
    len: Out<c_int>,
    flag: Out<c_int>,
) -> Result<()> {
    let Some(known) = find(info)?.value(&key)? else { return flag.put(0) };
    len.put(known.len() as c_int)?;
    flag.put(1)
}

pub(crate) fn info_get_nkeys(info: RawHandle, count: Out<c_int>) -> Result<()> {
    count.put(find(info)?.len() as c_int)
}

pub(crate) fn info_get_nthkey(info: RawHandle, n: c_int, key: Chars) -> Result<()> {
    let info = find(info)?;
    let missing = || Error::argument(format!("n = {n}, but there are {} keys", info.len()));
    let found = usize::try_from(n).ok().and_then(|n| info.key(n)).ok_or_else(missing)?;
    key.write(&found, KEY_MAX).map(drop)
}

pub(crate) fn info_dup(info: RawHandle, copy: Out<RawHandle>) -> Result<()> {
    copy.put(raw(find(info)?.duplicate().register()?))
}

pub(crate) fn info_free(info: InOut<RawHandle>) -> Result<()> {
    named("info", Info::free(handle(info.get())))?;
    info.put(raw(mpi::info::NULL))
}

/// The hints a call is given; none for `MPI_INFO_NULL`.
pub(crate) fn optional(info: RawHandle) -> Result<Info> {
    match handle(info) {
        mpi::info::NULL => Ok(Info::default()),
        _ => Ok(find(info)?.duplicate()),
    }
}
