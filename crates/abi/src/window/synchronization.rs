//! Synchronization of windows (MPI-5.0 §12.5).

use std::ffi::c_int;

use mpi::group::Group;
use mpi::objects;
use mpi::window::LockKind;

use super::rank_or_null;
use crate::arguments::window;
use crate::convention::*;

pub(crate) fn win_fence(assert: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    check_assert(assert, NOSTORE | NOPUT | NOPRECEDE | NOSUCCEED)?;
    window.fence(assert & NOSUCCEED == 0)
}

pub(crate) fn win_start(group: RawHandle, assert: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    let group = find_group(group)?;
    check_assert(assert, NOCHECK)?;
    window.start(&group, assert & NOCHECK != 0)
}

pub(crate) fn win_complete(win: RawHandle) -> Result<()> {
    window(win)?.complete()
}

pub(crate) fn win_post(group: RawHandle, assert: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    let group = find_group(group)?;
    check_assert(assert, NOCHECK | NOSTORE | NOPUT)?;
    window.post(&group, assert & NOCHECK != 0)
}

pub(crate) fn win_wait(win: RawHandle) -> Result<()> {
    window(win)?.wait()
}

pub(crate) fn win_test(win: RawHandle, flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(window(win)?.test()?))
}

pub(crate) fn win_lock(kind: c_int, rank: c_int, assert: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    let kind = match kind {
        LOCK_EXCLUSIVE => LockKind::Exclusive,
        LOCK_SHARED => LockKind::Shared,
        _ => {
            let text = format!("lock_type = {kind} is no kind of lock");
            return Err(class(ErrorClass::Locktype, text));
        }
    };
    let rank = rank_or_null(&window, "rank", rank)?;
    check_assert(assert, NOCHECK)?;
    window.lock(rank, kind, assert & NOCHECK != 0)
}

pub(crate) fn win_lock_all(assert: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    check_assert(assert, NOCHECK)?;
    window.lock_all(assert & NOCHECK != 0)
}

pub(crate) fn win_unlock(rank: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    window.unlock(rank_or_null(&window, "rank", rank)?)
}

pub(crate) fn win_unlock_all(win: RawHandle) -> Result<()> {
    window(win)?.unlock_all()
}

#[inline(always)]
pub(crate) fn win_flush(rank: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    window.flush(rank_or_null(&window, "rank", rank)?)
}

pub(crate) fn win_flush_all(win: RawHandle) -> Result<()> {
    window(win)?.flush_all()
}

pub(crate) fn win_flush_local(rank: c_int, win: RawHandle) -> Result<()> {
    let window = window(win)?;
    window.flush_local(rank_or_null(&window, "rank", rank)?)
}

pub(crate) fn win_flush_local_all(win: RawHandle) -> Result<()> {
    window(win)?.flush_local_all()
}

pub(crate) fn win_sync(win: RawHandle) -> Result<()> {
    window(win)?.sync();
    Ok(())
}

fn find_group(group: RawHandle) -> Result<Group> {
    named("group", objects::group(handle(group)))
}

/// Checks that only assertions are made that the function knows.
fn check_assert(assert: c_int, known: c_int) -> Result<()> {
    if assert & !known == 0 {
        return Ok(());
    }
    let text = format!("assert = {assert} has assertions that the function does not know");
    Err(class(ErrorClass::Assert, text))
}

const NOCHECK: c_int = 1024;
const NOPRECEDE: c_int = 2048;
const NOPUT: c_int = 4096;
const NOSTORE: c_int = 8192;
const NOSUCCEED: c_int = 16384;

const LOCK_EXCLUSIVE: c_int = 301;
const LOCK_SHARED: c_int = 302;
