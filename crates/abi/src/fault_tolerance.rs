//! Communicators whose members fail (`mpi-ext.h`).

use std::ffi::c_int;

use crate::arguments::{comm, length};
use crate::convention::*;
use crate::group::give;

pub(crate) fn comm_revoke(on: RawHandle) -> Result<()> {
    comm(on)?.revoke();
    Ok(())
}

pub(crate) fn comm_is_revoked(on: RawHandle, flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(comm(on)?.is_revoked()))
}

pub(crate) fn comm_get_failed(on: RawHandle, failed: Out<RawHandle>) -> Result<()> {
    give(comm(on)?.failed(), failed)
}

pub(crate) fn comm_ack_failed(
    on: RawHandle,
    num_to_ack: c_int,
    num_acked: Out<c_int>,
) -> Result<()> {
    let count = length("num_to_ack", num_to_ack)?;
    num_acked.put(comm(on)?.acknowledge(count) as c_int)
}

pub(crate) fn comm_failure_ack(on: RawHandle) -> Result<()> {
    comm(on)?.acknowledge_all();
    Ok(())
}

pub(crate) fn comm_failure_get_acked(on: RawHandle, failed: Out<RawHandle>) -> Result<()> {
    give(comm(on)?.acknowledged(), failed)
}

pub(crate) fn comm_agree(on: RawHandle, flag: InOut<c_int>) -> Result<()> {
    let (agreed, error) = comm(on)?.agree(flag.get())?;
    flag.put(agreed)?;
    error.map_or(Ok(()), Err)
}

pub(crate) fn comm_iagree(on: RawHandle, flag: Address, request: Out<RawHandle>) -> Result<()> {
    if flag.get().is_null() {
        return Err(null("flag"));
    }
    let comm = comm(on)?;
    let begun = comm.begin_agree(flag.ordinary_bytes(size_of::<c_int>()));
    request.put(raw(begun.register(comm.vci())?))
}

pub(crate) fn comm_shrink(on: RawHandle, made: Out<RawHandle>) -> Result<()> {
    made.put(raw(comm(on)?.shrink()?.handle()))
}

pub(crate) fn comm_ishrink(
    on: RawHandle,
    made: Out<RawHandle>,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let (handle, begun) = comm.begin_shrink()?;
    request.put(raw(begun.register(comm.vci())?))?;
    made.put(raw(handle))
}
