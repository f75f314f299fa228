//! Operations on windows (MPI-5.0 §12.3).

use std::ffi::c_int;

use datatype::{Builtin, Op, Predefined};
use mpi::objects;
use mpi::vci::Vci;
use mpi::window::{Access, Elements, Target, Window};

use super::rank_or_null;
use crate::arguments::{Names, buffer, committed, count, gapless_len, region, window};
use crate::convention::*;

const ORIGIN: Names = Names::new("origin_addr", "origin_count", "origin_datatype");
const RESULT: Names = Names::new("result_addr", "result_count", "result_datatype");

macro_rules! transfers {
    ($($now:ident $later:ident $kind:ident;)*) => {$(
        #[inline(always)]
        pub(crate) fn $now(
            origin: Address,
            origin_count: i64,
            origin_datatype: RawHandle,
            rank: c_int,
            disp: isize,
            target_count: i64,
            target_datatype: RawHandle,
            win: RawHandle,
        ) -> Result<()> {
            let found = window(win)?;
            let window: &Window = &found;
            if let Some(own_len) = usual_len(origin, origin_count, origin_datatype)
                && let Some(target_len) = usual_target_len(target_count, target_datatype)
                && let Some(rank) = usual_rank(window, rank)
            {
                let own = origin.ordinary_bytes(own_len);
                let target = Target::gapless(rank, disp as i64, target_len, None);
                return window.submit_again(Access::$kind(&own), &target);
            }
            unusual(move || {
                let own = buffer(&ORIGIN, origin, origin_count, origin_datatype)?;
                let target = find_target(window, rank, disp, target_count, target_datatype)?;
                window.submit(Access::$kind(&own), &target)
            })
        }

        pub(crate) fn $later(
            origin: Address,
            origin_count: i64,
            origin_datatype: RawHandle,
            rank: c_int,
            disp: isize,
            target_count: i64,
            target_datatype: RawHandle,
            win: RawHandle,
            request: Out<RawHandle>,
        ) -> Result<()> {
            let window = window(win)?;
            let own = buffer(&ORIGIN, origin, origin_count, origin_datatype)?;
            let target = find_target(&window, rank, disp, target_count, target_datatype)?;
            begin(&window, Access::$kind(&own), &target, request)
        }
    )*};
}

transfers! {
    put rput Put;
    get rget Get;
}

#[inline(always)]
pub(crate) fn accumulate(
    origin: Address,
    origin_count: i64,
    origin_datatype: RawHandle,
    rank: c_int,
    disp: isize,
    target_count: i64,
    target_datatype: RawHandle,
    op: RawHandle,
    win: RawHandle,
) -> Result<()> {
    let found = window(win)?;
    let window: &Window = &found;
    if let Some(own_len) = usual_len(origin, origin_count, origin_datatype)
        && let Some(target_len) = usual_target_len(target_count, target_datatype)
        && let Some(rank) = usual_rank(window, rank)
        && let Some(op) = objects::predefined_op(handle(op))
    {
        let data = usual_elements(origin, own_len, origin_datatype);
        let builtin = Builtin::numbered(handle(target_datatype).0);
        let target = Target::gapless(rank, disp as i64, target_len, builtin);
        return window.submit_again(Access::Accumulate { data: &data, op }, &target);
    }
    unusual(move || {
        let data = elements(&ORIGIN, origin, origin_count, origin_datatype)?;
        let target = find_target(window, rank, disp, target_count, target_datatype)?;
        window.submit(Access::Accumulate { data: &data, op: find_op(op)? }, &target)
    })
}

pub(crate) fn raccumulate(
    origin: Address,
    origin_count: i64,
    origin_datatype: RawHandle,
    rank: c_int,
    disp: isize,
    target_count: i64,
    target_datatype: RawHandle,
    op: RawHandle,
    win: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let window = window(win)?;
    let data = elements(&ORIGIN, origin, origin_count, origin_datatype)?;
    let target = find_target(&window, rank, disp, target_count, target_datatype)?;
    begin(&window, Access::Accumulate { data: &data, op: find_op(op)? }, &target, request)
}

pub(crate) fn get_accumulate(
    origin: Address,
    origin_count: i64,
    origin_datatype: RawHandle,
    result: Address,
    result_count: i64,
    result_datatype: RawHandle,
    rank: c_int,
    disp: isize,
    target_count: i64,
    target_datatype: RawHandle,
    op: RawHandle,
    win: RawHandle,
) -> Result<()> {
    let window = window(win)?;
    let op = find_op(op)?;
    let data = operands(op, origin, origin_count, origin_datatype)?;
    let result = elements(&RESULT, result, result_count, result_datatype)?;
    let target = find_target(&window, rank, disp, target_count, target_datatype)?;
    window.submit(Access::GetAccumulate { data: data.as_ref(), result: &result, op }, &target)
}

pub(crate) fn rget_accumulate(
    origin: Address,
    origin_count: i64,
    origin_datatype: RawHandle,
    result: Address,
    result_count: i64,
    result_datatype: RawHandle,
    rank: c_int,
    disp: isize,
    target_count: i64,
    target_datatype: RawHandle,
    op: RawHandle,
    win: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let window = window(win)?;
    let op = find_op(op)?;
    let data = operands(op, origin, origin_count, origin_datatype)?;
    let result = elements(&RESULT, result, result_count, result_datatype)?;
    let target = find_target(&window, rank, disp, target_count, target_datatype)?;
    begin(
        &window,
        Access::GetAccumulate { data: data.as_ref(), result: &result, op },
        &target,
        request,
    )
}

#[inline(always)]
pub(crate) fn fetch_and_op(
    origin: Address,
    result: Address,
    datatype: RawHandle,
    rank: c_int,
    disp: isize,
    op: RawHandle,
    win: RawHandle,
) -> Result<()> {
    let found = window(win)?;
    let window: &Window = &found;
    if let Some(op) = objects::predefined_op(handle(op))
        // An operation that combines nothing looks at no data: any memory will do.
        && let data = if op == Predefined::NoOp { result } else { origin }
        && let Some(len) = usual_len(data, 1, datatype)
        && let Some(_) = usual_len(result, 1, datatype)
        && let Some(rank) = usual_rank(window, rank)
    {
        let data = usual_elements(data, len, datatype);
        let result = usual_elements(result, len, datatype);
        let target = Target::gapless(rank, disp as i64, len, data.builtin);
        let access = Access::GetAccumulate { data: Some(&data), result: &result, op };
        return window.submit_again(access, &target);
    }
    unusual(move || {
        let op = find_op(op)?;
        let data = match op {
            Predefined::NoOp => None,
            _ => Some(element("origin_addr", origin, datatype)?),
        };
        let before = element("result_addr", result, datatype)?;
        let target = find_target(window, rank, disp, 1, datatype)?;
        window.submit(Access::GetAccumulate { data: data.as_ref(), result: &before, op }, &target)
    })
}

#[inline(always)]
pub(crate) fn compare_and_swap(
    origin: Address,
    compare: Address,
    result: Address,
    datatype: RawHandle,
    rank: c_int,
    disp: isize,
    win: RawHandle,
) -> Result<()> {
    let found = window(win)?;
    let window: &Window = &found;
    if let Some(len) = usual_len(origin, 1, datatype)
        && let Some(_) = usual_len(compare, 1, datatype)
        && let Some(_) = usual_len(result, 1, datatype)
        && let Some(rank) = usual_rank(window, rank)
    {
        let (data, compare, result) =
            (origin.ordinary_bytes(len), compare.ordinary_bytes(len), result.ordinary_bytes(len));
        let builtin = Builtin::numbered(handle(datatype).0);
        let target = Target::gapless(rank, disp as i64, len, builtin);
        let access = Access::CompareAndSwap { data: &data, compare: &compare, result: &result };
        return window.submit_again(access, &target);
    }
    unusual(move || {
        let data = element("origin_addr", origin, datatype)?.memory;
        let compare = element("compare_addr", compare, datatype)?.memory;
        let result = element("result_addr", result, datatype)?.memory;
        let target = find_target(window, rank, disp, 1, datatype)?;
        let access = Access::CompareAndSwap { data: &data, compare: &compare, result: &result };
        window.submit(access, &target)
    })
}

fn begin(
    window: &Window,
    access: Access<'_>,
    target: &Target,
    request: Out<RawHandle>,
) -> Result<()> {
    request.put(raw(window.begin(access, target)?.register(Vci::FIRST)?))
}

/// Carries out a call whose arguments are not the usual ones: some elements of predefined datatypes without gaps, and a
/// target that was accessed before in the epoch. It checks all arguments in their order. The usual call constructs
/// its objects once all is known of them, and passes none to a function that is not inlined, so they stay in registers.
#[cold]
#[inline(never)]
fn unusual(call: impl FnOnce() -> Result<()>) -> Result<()> {
    call()
}

/// Length in bytes of elements of a predefined datatype without gaps at an address, if there are some.
#[inline(always)]
fn usual_len(address: Address, elements: i64, datatype: RawHandle) -> Option<usize> {
    let len = usual_target_len(elements, datatype)?;
    if address.is_ordinary() { Some(len) } else { None }
}

/// Length in bytes of such elements of a target.
#[inline(always)]
fn usual_target_len(elements: i64, datatype: RawHandle) -> Option<usize> {
    let len = gapless_len(elements, datatype)?;
    if len > 0 { Some(len) } else { None }
}

/// Rank of a target that was accessed before in the epoch.
#[inline(always)]
fn usual_rank(window: &Window, rank: c_int) -> Option<u32> {
    let rank = rank as u32;
    if rank < window.size() && window.permits(rank) { Some(rank) } else { None }
}

#[inline(always)]
fn usual_elements(address: Address, len: usize, datatype: RawHandle) -> Elements {
    Elements { memory: address.ordinary_bytes(len), builtin: Builtin::numbered(handle(datatype).0) }
}

/// Elements of this process.
fn elements(
    names: &Names,
    address: Address,
    elements: i64,
    datatype: RawHandle,
) -> Result<Elements> {
    let elements = count(names.count, elements)?;
    let datatype = committed(names.datatype, datatype)?;
    let memory = region(names, address, elements, &datatype)?;
    Ok(Elements { memory, builtin: datatype.only_builtin() })
}

/// Elements of this process that an operation combines; `MPI_NO_OP` looks at none of these arguments.
fn operands(
    op: Predefined,
    address: Address,
    count: i64,
    datatype: RawHandle,
) -> Result<Option<Elements>> {
    match op {
        Predefined::NoOp => Ok(None),
        _ => elements(&ORIGIN, address, count, datatype).map(Some),
    }
}

/// One element of this process, of a predefined datatype.
fn element(name: &'static str, address: Address, datatype: RawHandle) -> Result<Elements> {
    named("datatype", objects::predefined(handle(datatype)))?;
    elements(&Names::new(name, "count", "datatype"), address, 1, datatype)
}

/// Elements of a rank, or of `MPI_PROC_NULL`.
fn find_target(
    window: &Window,
    rank: c_int,
    disp: isize,
    elements: i64,
    datatype: RawHandle,
) -> Result<Target> {
    let rank = rank_or_null(window, "target_rank", rank)?;
    let count = count("target_count", elements)?;
    let datatype = committed("target_datatype", datatype)?;
    if count.checked_mul(datatype.size()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(too_many(count, datatype.size()));
    }
    Ok(Target::elements(rank, disp as i64, count, datatype))
}

#[cold]
fn too_many(count: usize, size: usize) -> Error {
    let text = format!("target_count = {count} of {size} bytes each exceed memory");
    class(ErrorClass::Count, text)
}

/// An operation that accumulates: one of the standard's.
fn find_op(op: RawHandle) -> Result<Predefined> {
    match named("op", objects::op(handle(op)))? {
        Op::Predefined(op) => Ok(op),
        Op::User { .. } => {
            Err(class(ErrorClass::Op, "op is none of the standard's operations".into()))
        }
    }
}
