//! Groups (MPI-5.0 §7.3).

use std::ffi::c_int;

use mpi::group::{Comparison, Group};
use mpi::objects::{self, GROUPS};
use mpi::process;

use crate::arguments::{PROC_NULL, count};
use crate::convention::*;

fn find(group: RawHandle) -> Result<Group> {
    objects::group(handle(group))
}

/// Gives a group a handle; the empty one has its own.
pub(crate) unsafe fn give(group: Group, place: *mut RawHandle) -> Result<()> {
    let handle = if group.size() == 0 { GROUP_EMPTY } else { raw(GROUPS.insert(group)?) };
    // SAFETY: as the body's.
    unsafe { put(place, handle) }
}

pub(crate) fn code_of(comparison: Comparison) -> c_int {
    match comparison {
        Comparison::Identical => 201,
        Comparison::Congruent => 202,
        Comparison::Similar => 203,
        Comparison::Unequal => 204,
    }
}

pub(crate) unsafe fn group_size(group: RawHandle, size: *mut c_int) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { put(size, find(group)?.size() as c_int) }
}

pub(crate) unsafe fn group_rank(group: RawHandle, rank: *mut c_int) -> Result<()> {
    let own = find(group)?.rank_of(process::current()?.rank());
    // SAFETY: as the body's.
    unsafe { put(rank, own.map_or(UNDEFINED, |rank| rank as c_int)) }
}

pub(crate) unsafe fn group_compare(
    one: RawHandle,
    other: RawHandle,
    result: *mut c_int,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { put(result, code_of(find(one)?.compare(&find(other)?))) }
}

pub(crate) unsafe fn group_translate_ranks(
    one: RawHandle,
    n: c_int,
    ranks: *const c_int,
    other: RawHandle,
    results: *mut c_int,
) -> Result<()> {
    let (one, other) = (find(one)?, find(other)?);
    for index in 0..count(i64::from(n))? {
        // SAFETY: as the body's.
        unsafe {
            let translated = match *ranks.add(index) {
                PROC_NULL => PROC_NULL,
                rank => one.translate(rank, &other)?.map_or(UNDEFINED, |rank| rank as c_int),
            };
            *results.add(index) = translated;
        }
    }
    Ok(())
}

macro_rules! combinations {
    ($($name:ident $method:ident;)*) => {$(
        pub(crate) unsafe fn $name(
            one: RawHandle,
            other: RawHandle,
            result: *mut RawHandle,
        ) -> Result<()> {
            // SAFETY: as the body's.
            unsafe { give(find(one)?.$method(&find(other)?), result) }
        }
    )*};
}

combinations! {
    group_union union;
    group_intersection intersection;
    group_difference difference;
}

unsafe fn ranks_of(n: c_int, ranks: *const c_int) -> Result<Vec<c_int>> {
    // SAFETY: as the body's.
    Ok((0..count(i64::from(n))?).map(|index| unsafe { *ranks.add(index) }).collect())
}

pub(crate) unsafe fn group_incl(
    group: RawHandle,
    n: c_int,
    ranks: *const c_int,
    result: *mut RawHandle,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { give(find(group)?.include(&ranks_of(n, ranks)?)?, result) }
}

pub(crate) unsafe fn group_excl(
    group: RawHandle,
    n: c_int,
    ranks: *const c_int,
    result: *mut RawHandle,
) -> Result<()> {
    // SAFETY: as the body's.
    unsafe { give(find(group)?.exclude(&ranks_of(n, ranks)?)?, result) }
}

unsafe fn expanded(group: &Group, n: c_int, ranges: *mut [c_int; 3]) -> Result<Vec<c_int>> {
    // SAFETY: as the body's.
    let read = |index| unsafe { *ranges.add(index) };
    let ranges: Vec<[c_int; 3]> = (0..count(i64::from(n))?).map(read).collect();
    group.expand(&ranges)
}

pub(crate) unsafe fn group_range_incl(
    group: RawHandle,
    n: c_int,
    ranges: *mut [c_int; 3],
    result: *mut RawHandle,
) -> Result<()> {
    let group = find(group)?;
    // SAFETY: as the body's.
    unsafe { give(group.include(&expanded(&group, n, ranges)?)?, result) }
}

pub(crate) unsafe fn group_range_excl(
    group: RawHandle,
    n: c_int,
    ranges: *mut [c_int; 3],
    result: *mut RawHandle,
) -> Result<()> {
    let group = find(group)?;
    // SAFETY: as the body's.
    unsafe { give(group.exclude(&expanded(&group, n, ranges)?)?, result) }
}

pub(crate) unsafe fn group_free(group: *mut RawHandle) -> Result<()> {
    // SAFETY: as the body's.
    unsafe {
        if *group != GROUP_EMPTY {
            GROUPS.remove(handle(*group))?;
        }
        put(group, GROUP_NULL)
    }
}

const GROUP_NULL: RawHandle = 0x108;
const GROUP_EMPTY: RawHandle = 0x109;
