//! Operations on windows (MPI-5.0 §12.3).

use std::ffi::c_int;

use datatype::{Datatype, Op, Predefined};
use mpi::objects;
use mpi::vci::Vci;
use mpi::window::{Access, Elements, Target, Window};

use super::rank_or_null;
use crate::arguments::{Names, buffer, committed, count, region, window};
use crate::convention::*;

const ORIGIN: Names = Names::new("origin_addr", "origin_count", "origin_datatype");
const RESULT: Names = Names::new("result_addr", "result_count", "result_datatype");

macro_rules! transfers {
    ($($now:ident $later:ident $kind:ident;)*) => {$(
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
            let window = window(win)?;
            let own = buffer(&ORIGIN, origin, origin_count, origin_datatype)?;
            let target = target(&window, rank, disp, target_count, target_datatype)?;
            window.submit(Access::$kind(&own), &target)
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
            let target = target(&window, rank, disp, target_count, target_datatype)?;
            begin(&window, Access::$kind(&own), &target, request)
        }
    )*};
}

transfers! {
    put rput Put;
    get rget Get;
}

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
    let window = window(win)?;
    let data = elements(&ORIGIN, origin, origin_count, origin_datatype)?;
    let target = target(&window, rank, disp, target_count, target_datatype)?;
    window.submit(Access::Accumulate { data: &data, op: find_op(op)? }, &target)
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
    let target = target(&window, rank, disp, target_count, target_datatype)?;
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
    let target = target(&window, rank, disp, target_count, target_datatype)?;
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
    let target = target(&window, rank, disp, target_count, target_datatype)?;
    begin(
        &window,
        Access::GetAccumulate { data: data.as_ref(), result: &result, op },
        &target,
        request,
    )
}

pub(crate) fn fetch_and_op(
    origin: Address,
    result: Address,
    datatype: RawHandle,
    rank: c_int,
    disp: isize,
    op: RawHandle,
    win: RawHandle,
) -> Result<()> {
    let window = window(win)?;
    let op = find_op(op)?;
    let one = predefined(datatype)?;
    let data = match op {
        Predefined::NoOp => None,
        _ => Some(element("origin_addr", origin, one)?),
    };
    let result = element("result_addr", result, one)?;
    let target = target(&window, rank, disp, 1, datatype)?;
    window.submit(Access::GetAccumulate { data: data.as_ref(), result: &result, op }, &target)
}

pub(crate) fn compare_and_swap(
    origin: Address,
    compare: Address,
    result: Address,
    datatype: RawHandle,
    rank: c_int,
    disp: isize,
    win: RawHandle,
) -> Result<()> {
    let window = window(win)?;
    let one = predefined(datatype)?;
    let data = element("origin_addr", origin, one)?.memory;
    let compare = element("compare_addr", compare, one)?.memory;
    let result = element("result_addr", result, one)?.memory;
    let target = target(&window, rank, disp, 1, datatype)?;
    window
        .submit(Access::CompareAndSwap { data: &data, compare: &compare, result: &result }, &target)
}

fn begin(
    window: &Window,
    access: Access<'_>,
    target: &Target,
    request: Out<RawHandle>,
) -> Result<()> {
    request.put(raw(window.begin(access, target)?.register(Vci::FIRST)?))
}

/// Elements of this process.
#[inline(always)]
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

/// One element of this process.
#[inline(always)]
fn element(name: &'static str, address: Address, one: &'static Datatype) -> Result<Elements> {
    let names = Names::new(name, "count", "datatype");
    Ok(Elements { memory: region(&names, address, 1, one)?, builtin: one.as_builtin() })
}

#[inline(always)]
fn target(
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
    Ok(Target { rank, displacement: disp as i64, count, datatype })
}

#[cold]
fn too_many(count: usize, size: usize) -> Error {
    let text = format!("target_count = {count} of {size} bytes each exceed memory");
    class(ErrorClass::Count, text)
}

/// An operation that accumulates: one of the standard's.
#[inline(always)]
fn find_op(op: RawHandle) -> Result<Predefined> {
    match named("op", objects::op(handle(op)))? {
        Op::Predefined(op) => Ok(op),
        Op::User { .. } => {
            Err(class(ErrorClass::Op, "op is none of the standard's operations".into()))
        }
    }
}

#[inline(always)]
fn predefined(datatype: RawHandle) -> Result<&'static Datatype> {
    named("datatype", objects::predefined(handle(datatype)))
}
