//! Collective communication (MPI-5.0 §6). The bodies check the arguments and plan; the shims carry out what
//! they give.

mod blocks;
mod inter;
mod neighbourhood;
mod reductions;

use std::borrow::Cow;
use std::ffi::c_int;
use std::sync::Arc;

use datatype::Datatype;
use memory::Region;

pub(crate) use mpi::collective::Form;
use mpi::collective::{
    self, Call, CallArguments, Collective, Elements, Lengths, Listed, Routine, Shape,
};
use mpi::neighbourhood::Neighbourhood;

use mpi::request::Request;
use mpi::vci::Vci;
use plan::{Operands, Schedule, Topology};

use crate::arguments::{
    Names, PROC_NULL, RECV, SEND, buffer, comm, committed, committed_for, count, distinct, overlap,
    region, root,
};
use crate::convention::*;

pub(crate) use neighbourhood::{
    neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv,
    neighbor_alltoallw,
};
pub(crate) use reductions::{
    allreduce, check_data_distinct, elements, exscan, reduce, reduce_scatter, reduce_scatter_block,
    scan,
};

use blocks::{Blocks, Placement};
use reductions::Reduction;

const BUFFER: Names = Names::new("buffer", "count", "datatype");
const SENDS: Names = Names::new("sendbuf", "sendcounts", "sendtypes");
const RECEIVES: Names = Names::new("recvbuf", "recvcounts", "recvtypes");

/// Carries out a collective: the blocking form.
#[inline]
pub(crate) fn run(collective: Result<Collective>) -> Result<()> {
    match &collective {
        // Borrowed: it is large, and nobody else needs it.
        Ok(collective) => Ok(collective.run()?),
        Err(error) => Err(error.clone()),
    }
}

/// Begins a collective: the form `MPI_I…`.
pub(crate) fn begin(collective: Result<Collective>, request: Out<RawHandle>) -> Result<()> {
    let collective = collective?;
    let vci = collective.team().vci();
    give(request, vci, collective::begin(collective))
}

/// Checks the last arguments of the form `MPI_…_init`. No hints are known.
pub(crate) fn kept(info: RawHandle, request: Out<RawHandle>) -> Result<Out<RawHandle>> {
    crate::info::optional(info).map(|_| request)
}

/// Keeps a collective, to be started again and again: the form `MPI_…_init`.
pub(crate) fn keep(collective: Result<Collective>, request: Out<RawHandle>) -> Result<()> {
    let collective = collective?;
    let vci = collective.team().vci();
    give(request, vci, collective::persistent(collective))
}

#[inline(always)]
fn give(place: Out<RawHandle>, vci: Vci, request: Request) -> Result<()> {
    place.put(raw(request.register(vci)?))
}

/// A call on a communicator.
#[inline]
pub(crate) fn call(on: RawHandle, form: Form) -> Result<Call> {
    Ok(collective::call(comm(on)?.into(), form))
}

/// Number of blocks that each process has for others: one for each rank of the group or of the remote group.
fn remote_size(comm: &Call) -> u32 {
    comm.halves().map_or(comm.size(), |groups| groups.remote.len() as u32)
}

pub(crate) fn barrier(comm: Call) -> Result<Collective> {
    Ok(comm.barrier())
}

pub(crate) fn bcast(
    buf: Address,
    n: i64,
    datatype: RawHandle,
    from: c_int,
    comm: Call,
) -> Result<Collective> {
    if comm.halves().is_some() {
        return inter::bcast(buf, n, datatype, from, comm);
    }
    let from = root(&comm, from)?;
    let data = buffer(&BUFFER, buf, n, datatype)?;
    let len = data.len() as u64;
    comm.note_arguments(|| CallArguments::new(Routine::Bcast, Some(from), Some(len), None));
    let shape = Shape { root: from, ..Shape::of(Routine::Bcast).with_len(len) };
    let schedule = comm.plan(shape, |rank, places| plan::broadcast(rank, places, from, len));
    Ok(comm.bytes(schedule, Region::empty(), data))
}

/// An operation on blocks.
#[derive(Clone, Copy)]
struct OnBlocks {
    operation: Routine,
    /// None where there is no root.
    root: Option<u32>,
    /// The blocks' length, if they are equal.
    block: Option<u64>,
    in_place: bool,
}

/// A plan for equal blocks, or for those of such lengths. These are compared by the lengths that are added to those of
/// which nothing is said.
fn planned(
    comm: &Call,
    on: OnBlocks,
    listed: Listed<'_>,
    lengths: impl FnOnce(Lengths) -> Lengths,
    make: impl FnOnce(u32, &Topology) -> Schedule,
) -> Arc<Schedule> {
    let OnBlocks { operation, root, block, in_place } = on;
    comm.note_arguments(|| {
        let arguments = CallArguments::new(operation, root, block, None);
        match block {
            Some(_) => arguments,
            None => arguments.with_lengths(lengths(Lengths::unknown(comm.size()))),
        }
    });
    let shape = Shape { root: root.unwrap_or(0), in_place, ..Shape::of(operation) };
    match block {
        Some(len) => comm.plan(shape.with_len(len), make),
        None => comm.plan_listed(shape, listed, make),
    }
}

fn gather_blocks(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    placement: Placement<'_>,
    recvtype: RawHandle,
    to: c_int,
    comm: Call,
    uniform: bool,
) -> Result<Collective> {
    if comm.halves().is_some() {
        return inter::gather(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, to, comm);
    }
    let to = root(&comm, to)?;
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = rank == to && sendbuf.is_in_place();
    let input =
        if in_place { Region::empty() } else { buffer(&SEND, sendbuf, sendcount, sendtype)? };
    if rank == to {
        let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, size)?.apart(placement)?;
        distinct("sendbuf", &input, "recvbuf", &blocks.own(rank))?;
        let sizes = |rank: u32| blocks.sizes[rank as usize];
        check_own(in_place, input.len() as u64, sizes(rank))?;
        let on = OnBlocks {
            operation: Routine::Gather,
            root: Some(to),
            block: uniform.then(|| sizes(0)),
            in_place,
        };
        let expected = |all: Lengths| all.expecting((0..size).map(|from| (from, sizes(from))));
        let schedule = planned(&comm, on, [&[], &blocks.sizes], expected, |rank, places| {
            plan::gather(rank, places, to, &sizes, uniform, in_place)
        });
        return Ok(comm.bytes(schedule, input, blocks.stream));
    }
    let own = input.len() as u64;
    let on = OnBlocks {
        operation: Routine::Gather,
        root: Some(to),
        block: uniform.then_some(own),
        in_place: false,
    };
    let sent = |all: Lengths| all.sending([(to, own)]);
    let schedule = planned(&comm, on, [&[own], &[]], sent, |rank, places| {
        plan::gather(rank, places, to, &|_| own, uniform, false)
    });
    Ok(comm.bytes(schedule, input, Region::empty()))
}

/// Checks that the block from a process to itself has the length it expects.
fn check_own(in_place: bool, sent: u64, expected: u64) -> Result<()> {
    if in_place || sent == expected {
        return Ok(());
    }
    let text = format!("this process sends itself {sent} bytes but expects {expected}");
    Err(class(ErrorClass::Truncate, text))
}

pub(crate) fn gather(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let placement = Placement::Uniform(recvcount);
    gather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, root, comm, true)
}

pub(crate) fn gatherv(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    counts: Ints<'_>,
    displacements: Ints<'_>,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let placement = Placement::Listed { counts, displacements };
    gather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, root, comm, false)
}

fn scatter_blocks(
    sendbuf: Address,
    placement: Placement<'_>,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    from: c_int,
    comm: Call,
    uniform: bool,
) -> Result<Collective> {
    if comm.halves().is_some() {
        return inter::scatter(
            sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, from, comm,
        );
    }
    let from = root(&comm, from)?;
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = rank == from && recvbuf.is_in_place();
    let output =
        if in_place { Region::empty() } else { buffer(&RECV, recvbuf, recvcount, recvtype)? };
    if rank == from {
        let blocks = Blocks::new(&SEND, sendbuf, placement, sendtype, size)?;
        distinct("sendbuf", &blocks.own(rank), "recvbuf", &output)?;
        let sizes = |rank: u32| blocks.sizes[rank as usize];
        check_own(in_place, sizes(rank), output.len() as u64)?;
        let on = OnBlocks {
            operation: Routine::Scatter,
            root: Some(from),
            block: uniform.then(|| sizes(0)),
            in_place,
        };
        let sent = |all: Lengths| all.sending((0..size).map(|to| (to, sizes(to))));
        let schedule = planned(&comm, on, [&blocks.sizes, &[]], sent, |rank, places| {
            plan::scatter(rank, places, from, &sizes, uniform, in_place)
        });
        return Ok(comm.bytes(schedule, blocks.stream, output));
    }
    let own = output.len() as u64;
    let on = OnBlocks {
        operation: Routine::Scatter,
        root: Some(from),
        block: uniform.then_some(own),
        in_place: false,
    };
    let expected = |all: Lengths| all.expecting([(from, own)]);
    let schedule = planned(&comm, on, [&[], &[own]], expected, |rank, places| {
        plan::scatter(rank, places, from, &|_| own, uniform, false)
    });
    Ok(comm.bytes(schedule, Region::empty(), output))
}

pub(crate) fn scatter(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let placement = Placement::Uniform(sendcount);
    scatter_blocks(sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, root, comm, true)
}

pub(crate) fn scatterv(
    sendbuf: Address,
    counts: Ints<'_>,
    displacements: Ints<'_>,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let placement = Placement::Listed { counts, displacements };
    scatter_blocks(sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, root, comm, false)
}

fn allgather_blocks(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    placement: Placement<'_>,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    if comm.halves().is_some() {
        return inter::allgather(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, comm);
    }
    let in_place = sendbuf.is_in_place();
    let uniform = matches!(placement, Placement::Uniform(_));
    let input =
        if in_place { Region::empty() } else { buffer(&SEND, sendbuf, sendcount, sendtype)? };
    let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, comm.size())?.apart(placement)?;
    distinct("sendbuf", &input, "recvbuf", &blocks.own(comm.rank()))?;
    let sizes = |rank: u32| blocks.sizes[rank as usize];
    check_own(in_place, input.len() as u64, sizes(comm.rank()))?;
    let on = OnBlocks {
        operation: Routine::Allgather,
        root: None,
        block: uniform.then(|| sizes(0)),
        in_place,
    };
    let own = sizes(comm.rank());
    let all_have_own = |all: Lengths| {
        let each = || 0..comm.size();
        let lengths = all.sending(each().map(|to| (to, own)));
        lengths.expecting(each().map(|from| (from, sizes(from))))
    };
    let schedule = planned(&comm, on, [&[], &blocks.sizes], all_have_own, |rank, places| {
        plan::allgather(rank, places, &sizes, in_place)
    });
    Ok(comm.bytes(schedule, input, blocks.stream))
}

pub(crate) fn allgather(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let placement = Placement::Uniform(recvcount);
    allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, comm)
}

pub(crate) fn allgatherv(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    counts: Ints<'_>,
    displacements: Ints<'_>,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let placement = Placement::Listed { counts, displacements };
    allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, comm)
}

/// Exchanges blocks between all pairs; in place, what is sent is first copied aside.
fn alltoall_blocks(
    comm: Call,
    sends: Option<Blocks>,
    receives: Blocks,
    uniform: bool,
) -> Result<Collective> {
    if comm.halves().is_some() {
        let in_place =
            || class(ErrorClass::Buffer, "sendbuf is MPI_IN_PLACE between two groups".into());
        return inter::alltoall(comm, sends.ok_or_else(in_place)?, receives);
    }
    let rank = comm.rank();
    if let Some(sends) = &sends {
        distinct("sendbuf", &sends.own(rank), "recvbuf", &receives.own(rank))?;
    }
    let sent = sends.as_ref().map_or(&receives.sizes, |sends| &sends.sizes);
    check_own(false, sent[rank as usize], receives.sizes[rank as usize])?;
    let to = |to: u32| sent[to as usize];
    let from = |from: u32| receives.sizes[from as usize];
    let (len, in_place) = (receives.stream.len(), sends.is_none());
    let on = OnBlocks {
        operation: Routine::Alltoall,
        root: None,
        block: uniform.then(|| from(0)),
        in_place,
    };
    let exchanged = |all: Lengths| {
        let lengths = all.sending((0..).zip(sent.iter().copied()));
        lengths.expecting((0..).zip(receives.sizes.iter().copied()))
    };
    let schedule = planned(&comm, on, [sent, &receives.sizes], exchanged, |rank, places| {
        let schedule = plan::alltoall(rank, places, &to, &from, uniform);
        if in_place { schedule.in_place(len as u64) } else { schedule }
    });
    Ok(match sends {
        Some(sends) => comm.bytes(schedule, sends.stream, receives.stream),
        None => {
            let full = || class(ErrorClass::NoMem, format!("recvbuf: no memory for {len} bytes"));
            comm.bytes(schedule, Region::scratch(len).ok_or_else(full)?, receives.stream)
        }
    })
}

pub(crate) fn alltoall(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let blocks = remote_size(&comm);
    let sends = match sendbuf.is_in_place() {
        true => None,
        false => {
            let placement = Placement::Uniform(sendcount);
            Some(Blocks::new(&SEND, sendbuf, placement, sendtype, blocks)?)
        }
    };
    let placement = Placement::Uniform(recvcount);
    let receives = Blocks::new(&RECV, recvbuf, placement, recvtype, blocks)?;
    alltoall_blocks(comm, sends, receives, true)
}

pub(crate) fn alltoallv(
    sendbuf: Address,
    sendcounts: Ints<'_>,
    senddispls: Ints<'_>,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcounts: Ints<'_>,
    recvdispls: Ints<'_>,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let blocks = remote_size(&comm);
    let listed = |counts, displacements| Placement::Listed { counts, displacements };
    let sends = match sendbuf.is_in_place() {
        true => None,
        false => {
            let placement = listed(sendcounts, senddispls);
            Some(Blocks::new(&SEND, sendbuf, placement, sendtype, blocks)?)
        }
    };
    let placement = listed(recvcounts, recvdispls);
    let receives = Blocks::new(&RECV, recvbuf, placement, recvtype, blocks)?.apart(placement)?;
    alltoall_blocks(comm, sends, receives, false)
}

pub(crate) fn alltoallw(
    sendbuf: Address,
    sendcounts: Ints<'_>,
    senddispls: Ints<'_>,
    sendtypes: Array<'_, RawHandle>,
    recvbuf: Address,
    recvcounts: Ints<'_>,
    recvdispls: Ints<'_>,
    recvtypes: Array<'_, RawHandle>,
    comm: Call,
) -> Result<Collective> {
    let blocks = remote_size(&comm);
    let sends = match sendbuf.is_in_place() {
        true => None,
        false => Some(Blocks::mixed(&SENDS, sendbuf, sendcounts, senddispls, sendtypes, blocks)?),
    };
    let receives = Blocks::mixed(&RECEIVES, recvbuf, recvcounts, recvdispls, recvtypes, blocks)?;
    alltoall_blocks(comm, sends, receives, false)
}
