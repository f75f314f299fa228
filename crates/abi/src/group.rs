//! Groups (MPI-5.0 §7.3).

use std::ffi::c_int;

use mpi::group::{Comparison, Group};
use mpi::objects::{self, GROUPS};
use mpi::session;

use crate::arguments::PROC_NULL;
use crate::convention::*;
use crate::world;

fn find(group: RawHandle) -> Result<Group> {
    named("group", objects::group(handle(group)))
}

/// The two groups of functions that take so many.
fn find_two(one: RawHandle, other: RawHandle) -> Result<(Group, Group)> {
    let one = named("group1", objects::group(handle(one)))?;
    Ok((one, named("group2", objects::group(handle(other)))?))
}

/// Gives a group a handle; the empty one has its own.
pub(crate) fn give(group: Group, place: Out<RawHandle>) -> Result<()> {
    let handle = if group.size() == 0 { GROUP_EMPTY } else { raw(GROUPS.insert(group)?) };
    place.put(handle)
}

pub(crate) fn code_of(comparison: Comparison) -> c_int {
    match comparison {
        Comparison::Identical => 201,
        Comparison::Congruent => 202,
        Comparison::Similar => 203,
        Comparison::Unequal => 204,
    }
}

pub(crate) fn group_size(group: RawHandle, size: Out<c_int>) -> Result<()> {
    size.put(find(group)?.size() as c_int)
}

pub(crate) fn group_rank(group: RawHandle, rank: Out<c_int>) -> Result<()> {
    let group = find(group)?;
    // A session knows its rank before other processes have joined the job.
    let own = match session::are_any() {
        true => session::own_peer()?,
        false => world::current()?.own_peer(),
    };
    let own = group.rank_of(own);
    rank.put(own.map_or(UNDEFINED, |rank| rank as c_int))
}

pub(crate) fn group_compare(one: RawHandle, other: RawHandle, result: Out<c_int>) -> Result<()> {
    let (one, other) = find_two(one, other)?;
    result.put(code_of(one.compare(&other)))
}

pub(crate) fn group_translate_ranks(
    one: RawHandle,
    ranks: &[c_int],
    other: RawHandle,
    results: Slots<c_int>,
) -> Result<()> {
    let (one, other) = find_two(one, other)?;
    results.check(ranks.len())?;
    for (index, &rank) in ranks.iter().enumerate() {
        let translated = match rank {
            PROC_NULL => PROC_NULL,
            rank => {
                let found = named("ranks1", one.translate(rank, &other))?;
                found.map_or(UNDEFINED, |rank| rank as c_int)
            }
        };
        results.put(index, translated)?;
    }
    Ok(())
}

macro_rules! combinations {
    ($($name:ident $method:ident;)*) => {$(
        pub(crate) fn $name(
            one: RawHandle,
            other: RawHandle,
            result: Out<RawHandle>,
        ) -> Result<()> {
            let (one, other) = find_two(one, other)?;
            give(one.$method(&other), result)
        }
    )*};
}

combinations! {
    group_union union;
    group_intersection intersection;
    group_difference difference;
}

pub(crate) fn group_incl(group: RawHandle, ranks: &[c_int], result: Out<RawHandle>) -> Result<()> {
    let group = find(group)?;
    give(named("ranks", group.include(ranks))?, result)
}

pub(crate) fn group_excl(group: RawHandle, ranks: &[c_int], result: Out<RawHandle>) -> Result<()> {
    let group = find(group)?;
    give(named("ranks", group.exclude(ranks))?, result)
}

fn expanded(group: &Group, ranges: &[[c_int; 3]]) -> Result<Vec<c_int>> {
    named("ranges", group.expand(ranges))
}

pub(crate) fn group_range_incl(
    group: RawHandle,
    ranges: &[[c_int; 3]],
    result: Out<RawHandle>,
) -> Result<()> {
    let group = find(group)?;
    give(named("ranges", group.include(&expanded(&group, ranges)?))?, result)
}

pub(crate) fn group_range_excl(
    group: RawHandle,
    ranges: &[[c_int; 3]],
    result: Out<RawHandle>,
) -> Result<()> {
    let group = find(group)?;
    give(named("ranges", group.exclude(&expanded(&group, ranges)?))?, result)
}

pub(crate) fn group_free(group: InOut<RawHandle>) -> Result<()> {
    if group.get() != GROUP_EMPTY {
        named("group", GROUPS.remove(handle(group.get())))?;
    }
    group.put(GROUP_NULL)
}

const GROUP_NULL: RawHandle = 0x108;
const GROUP_EMPTY: RawHandle = 0x109;
