//! Partitioned messages (MPI-5.0 §4.2).

use std::ffi::c_int;

use memory::Region;
use mpi::partitioned::PartitionedMessage;
use mpi::point_to_point as p2p;
use mpi::request::{Request, Template, partitions};
use mpi::vci::Vci;

use crate::arguments::{ANY_SOURCE, BUF, buffer, comm, count, destination, length, tag};
use crate::convention::*;
use crate::world;

pub(crate) fn psend_init(
    buf: Address,
    partitions: c_int,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    tagged: c_int,
    on: RawHandle,
    info: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let to = destination(&comm, dest)?;
    let tag = tag("tag", tagged)?;
    crate::info::optional(info)?;
    let (data, partitions) = memory_of(buf, partitions, count, datatype)?;
    let message = p2p::partitioned_send(&comm, to, tag, data, partitions)?;
    give(message, comm.vci(), request)
}

pub(crate) fn precv_init(
    buf: Address,
    partitions: c_int,
    count: i64,
    datatype: RawHandle,
    dest: c_int,
    tagged: c_int,
    on: RawHandle,
    info: RawHandle,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    // The standard's ABI names its source so.
    if dest == ANY_SOURCE {
        let text = "dest = MPI_ANY_SOURCE: a partitioned receive names its source".to_owned();
        return Err(class(ErrorClass::Rank, text));
    }
    let from = destination(&comm, dest)?;
    let tag = tag("tag", tagged)?;
    crate::info::optional(info)?;
    let (into, partitions) = memory_of(buf, partitions, count, datatype)?;
    let message = p2p::partitioned_receive(&comm, from, tag, into, partitions)?;
    give(message, comm.vci(), request)
}

/// The memory of all partitions, and their number.
fn memory_of(
    buf: Address,
    partitions: c_int,
    elements: i64,
    datatype: RawHandle,
) -> Result<(Region, u32)> {
    let partitions = length("partitions", partitions)? as u32;
    let elements = count("count", elements)?;
    let all = elements.checked_mul(partitions as usize).and_then(|all| i64::try_from(all).ok());
    let all = all.ok_or_else(|| {
        let text = format!("count = {elements} in {partitions} partitions exceed memory");
        class(ErrorClass::Count, text)
    })?;
    Ok((buffer(&BUF, buf, all, datatype)?, partitions))
}

fn give(message: PartitionedMessage, vci: Vci, request: Out<RawHandle>) -> Result<()> {
    let template = Template::Partitioned(std::sync::Arc::new(message));
    request.put(raw(Request::persistent(template).register(vci)?))
}

pub(crate) fn pready(partition: c_int, request: RawHandle) -> Result<()> {
    let partition = number("partition", partition)?;
    mark(request, std::iter::once(partition))
}

pub(crate) fn pready_range(low: c_int, high: c_int, request: RawHandle) -> Result<()> {
    let (first, last) = (number("partition_low", low)?, number("partition_high", high)?);
    if first > last {
        let text = format!("partition_low = {low} is above partition_high = {high}");
        return Err(class(ErrorClass::Arg, text));
    }
    mark(request, first..=last)
}

pub(crate) fn pready_list(all: &[c_int], request: RawHandle) -> Result<()> {
    for (index, partition) in all.iter().enumerate() {
        number(&format!("array_of_partitions[{index}]"), *partition)?;
    }
    mark(request, all.iter().map(|partition| *partition as u32))
}

fn mark(request: RawHandle, all: impl Iterator<Item = u32> + Clone) -> Result<()> {
    world::current()?;
    partitions::mark_ready(handle(request), all)
}

pub(crate) fn parrived(request: RawHandle, partition: c_int, flag: Out<c_int>) -> Result<()> {
    world::current()?;
    let partition = number("partition", partition)?;
    flag.put(c_int::from(partitions::has_arrived(handle(request), partition)?))
}

/// The number of a partition.
fn number(name: &str, partition: c_int) -> Result<u32> {
    u32::try_from(partition).map_err(|_| negative(name, ErrorClass::Arg, i64::from(partition)))
}
