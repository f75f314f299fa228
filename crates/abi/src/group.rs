//! Groups (MPI-5.0 §7.3).

use std::ffi::c_int;

use mpi::group::{Comparison, Group};
use mpi::objects::{self, GROUPS};
use mpi::process;

use crate::arguments::{PROC_NULL, length};
use crate::convention::*;

fn find(group: RawHandle) -> Result<Group> {
    named("group", objects::group(handle(group)))
}

/// The two groups of functions that take so many.
fn find_two(one: RawHandle, other: RawHandle) -> Result<(Group, Group)> {
    let one = named("group1", objects::group(handle(one)))?;
    Ok((one, named("group2", objects::group(handle(other)))?))
}

/// Gives a group a handle; the empty one has its own.
pub(crate) unsafe fn give(group: Group, place: *mut RawHandle) -> Result<()> {
    let handle = if group.size() == 0 { GROUP_EMPTY } else { raw(GROUPS.insert(group)?) };
    // SAFETY: `place` points to a variable of the caller.
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
    // SAFETY: `size` points to a variable of the caller.
    unsafe { put(size, find(group)?.size() as c_int) }
}

pub(crate) unsafe fn group_rank(group: RawHandle, rank: *mut c_int) -> Result<()> {
    let own = find(group)?.rank_of(process::current()?.rank());
    // SAFETY: `rank` points to a variable of the caller.
    unsafe { put(rank, own.map_or(UNDEFINED, |rank| rank as c_int)) }
}

pub(crate) unsafe fn group_compare(
    one: RawHandle,
    other: RawHandle,
    result: *mut c_int,
) -> Result<()> {
    let (one, other) = find_two(one, other)?;
    // SAFETY: `result` points to a variable of the caller.
    unsafe { put(result, code_of(one.compare(&other))) }
}

pub(crate) unsafe fn group_translate_ranks(
    one: RawHandle,
    n: c_int,
    ranks: *const c_int,
    other: RawHandle,
    results: *mut c_int,
) -> Result<()> {
    let (one, other) = find_two(one, other)?;
    // SAFETY: `ranks` and `results` have `n` entries each.
    unsafe {
        let ranks = array("ranks1", ranks, length("n", n)?)?;
        array("ranks2", results, ranks.len())?;
        for (index, &rank) in ranks.iter().enumerate() {
            let translated = match rank {
                PROC_NULL => PROC_NULL,
                rank => named("ranks1", one.translate(rank, &other))?
                    .map_or(UNDEFINED, |rank| rank as c_int),
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
            let (one, other) = find_two(one, other)?;
            // SAFETY: `result` points to a variable of the caller.
            unsafe { give(one.$method(&other), result) }
        }
    )*};
}

combinations! {
    group_union union;
    group_intersection intersection;
    group_difference difference;
}

pub(crate) unsafe fn group_incl(
    group: RawHandle,
    n: c_int,
    ranks: *const c_int,
    result: *mut RawHandle,
) -> Result<()> {
    let group = find(group)?;
    // SAFETY: `ranks` has `n` entries; `result` points to a variable of the caller.
    unsafe {
        let ranks = array("ranks", ranks, length("n", n)?)?;
        give(named("ranks", group.include(ranks))?, result)
    }
}

pub(crate) unsafe fn group_excl(
    group: RawHandle,
    n: c_int,
    ranks: *const c_int,
    result: *mut RawHandle,
) -> Result<()> {
    let group = find(group)?;
    // SAFETY: `ranks` has `n` entries; `result` points to a variable of the caller.
    unsafe {
        let ranks = array("ranks", ranks, length("n", n)?)?;
        give(named("ranks", group.exclude(ranks))?, result)
    }
}

unsafe fn expanded(group: &Group, n: c_int, ranges: *mut [c_int; 3]) -> Result<Vec<c_int>> {
    // SAFETY: `ranges` has `n` entries.
    let ranges = unsafe { array("ranges", ranges, length("n", n)?) }?;
    named("ranges", group.expand(ranges))
}

pub(crate) unsafe fn group_range_incl(
    group: RawHandle,
    n: c_int,
    ranges: *mut [c_int; 3],
    result: *mut RawHandle,
) -> Result<()> {
    let group = find(group)?;
    // SAFETY: `ranges` has `n` entries; `result` points to a variable of the caller.
    unsafe { give(named("ranges", group.include(&expanded(&group, n, ranges)?))?, result) }
}

pub(crate) unsafe fn group_range_excl(
    group: RawHandle,
    n: c_int,
    ranges: *mut [c_int; 3],
    result: *mut RawHandle,
) -> Result<()> {
    let group = find(group)?;
    // SAFETY: `ranges` has `n` entries; `result` points to a variable of the caller.
    unsafe { give(named("ranges", group.exclude(&expanded(&group, n, ranges)?))?, result) }
}

pub(crate) unsafe fn group_free(group: *mut RawHandle) -> Result<()> {
    // SAFETY: `group` points to a variable of the caller.
    unsafe {
        if *group != GROUP_EMPTY {
            named("group", GROUPS.remove(handle(*group)))?;
        }
        put(group, GROUP_NULL)
    }
}

const GROUP_NULL: RawHandle = 0x108;
const GROUP_EMPTY: RawHandle = 0x109;
