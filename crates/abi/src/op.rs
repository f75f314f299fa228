//! Reduction operations of the application (MPI-5.0 §6.9.5).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use datatype::{Op, UserFunction};
use memory::Region;
use mpi::objects::{self, OPS};

use crate::arguments::{committed_for, count};
use crate::convention::*;

/// An `MPI_User_function`, or its large-count sibling.
enum CFunction {
    Int(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut RawHandle)),
    Count(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut RawHandle)),
}

impl UserFunction for CFunction {
    fn apply(&self, input: &Region, inout: &Region, origin: isize, count: usize, datatype: u64) {
        let (Some(input), Some(inout)) = (input.as_span(), inout.as_span()) else { return };
        let first = |span: memory::Span| span.address.wrapping_offset(origin).cast();
        let (from, to) = (first(input), first(inout));
        let mut datatype = datatype as RawHandle;
        match self {
            Self::Int(function) => {
                let mut len = count as c_int;
                // SAFETY: the application gave this function for elements of its datatypes, which
                // lie at both addresses.
                unsafe { function(from, to, &mut len, &mut datatype) };
            }
            Self::Count(function) => {
                let mut len = count as i64;
                // SAFETY: the application gave this function for elements of its datatypes, which
                // lie at both addresses.
                unsafe { function(from, to, &mut len, &mut datatype) };
            }
        }
    }
}

fn create(function: CFunction, commute: c_int, op: Out<RawHandle>) -> Result<()> {
    let made = Op::User { function: Arc::new(function), commutes: commute != 0 };
    op.put(raw(OPS.insert(made)?))
}

pub(crate) fn op_create(function: Function, commute: c_int, op: Out<RawHandle>) -> Result<()> {
    if function.is_null() {
        return Err(null("user_fn"));
    }
    // SAFETY: the standard types the argument as this function.
    unsafe { create(CFunction::Int(std::mem::transmute(function)), commute, op) }
}

pub(crate) fn op_create_c(function: Function, commute: c_int, op: Out<RawHandle>) -> Result<()> {
    if function.is_null() {
        return Err(null("user_fn"));
    }
    // SAFETY: the standard types the argument as this function.
    unsafe { create(CFunction::Count(std::mem::transmute(function)), commute, op) }
}

pub(crate) fn op_free(op: InOut<RawHandle>) -> Result<()> {
    named("op", OPS.remove(handle(op.get())))?;
    op.put(OP_NULL)
}

pub(crate) fn op_commutative(op: RawHandle, commute: Out<c_int>) -> Result<()> {
    commute.put(c_int::from(named("op", objects::op(handle(op)))?.is_commutative()))
}

pub(crate) fn reduce_local(
    inbuf: Address,
    inoutbuf: Address,
    elements: i64,
    datatype: RawHandle,
    op: RawHandle,
) -> Result<()> {
    let elements = count("count", elements)?;
    let kind = committed_for("datatype", datatype, elements)?;
    let op = checked(op, &kind, elements)?;
    let input = crate::coll::elements("inbuf", inbuf, elements, &kind)?;
    let inout = crate::coll::elements("inoutbuf", inoutbuf, elements, &kind)?;
    let buffers = [(&input, elements), (&inout, elements)];
    crate::coll::check_data_distinct(&kind, ["inbuf", "inoutbuf"], buffers)?;
    op.apply(&input, &inout, elements, &kind, datatype as u64);
    Ok(())
}

/// The operation, if it is defined for the datatype of the elements, if there are any.
#[inline]
pub(crate) fn checked(op: RawHandle, datatype: &datatype::Datatype, elements: usize) -> Result<Op> {
    let found = named("op", objects::op(handle(op)))?;
    if elements > 0 && !found.is_valid_for(datatype) {
        let name = String::from_utf8_lossy(&datatype.name()).into_owned();
        let text = format!("op = {found:?} is not defined for datatype {name}");
        return Err(class(ErrorClass::Op, text));
    }
    Ok(found)
}

const OP_NULL: RawHandle = 0x20;
