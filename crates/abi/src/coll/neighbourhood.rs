//! Collective communication between neighbours (MPI-5.0 §8.6). Nothing of it works in place.

use super::*;

/// All of what is sent to every neighbour, a block from each.
fn allgather_blocks(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    placement: Placement<'_>,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let neighbours = named("comm", comm.neighbourhood())?;
    let input = buffer(&SEND, sendbuf, sendcount, sendtype)?;
    let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, neighbours.indegree())?
        .apart(placement)?;
    distinct("sendbuf", &input, "recvbuf", &blocks.stream)?;
    comm.note_arguments(|| {
        let sends = vec![input.len() as u64; neighbours.outdegree() as usize];
        let lengths = neighbours.lengths(comm.size(), &sends, &blocks.sizes);
        CallArguments::new(Routine::NeighborAllgather, None, None, None).with_lengths(lengths)
    });
    let schedule = neighbours.allgather(input.len() as u64, &blocks.sizes);
    Ok(comm.bytes(schedule, input, blocks.stream))
}

pub(crate) fn neighbor_allgather(
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

pub(crate) fn neighbor_allgatherv(
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

/// A block to every neighbour, and one from each.
fn alltoall_blocks(
    comm: Call,
    neighbours: &Neighbourhood,
    sends: Blocks,
    receives: Blocks,
) -> Result<Collective> {
    distinct("sendbuf", &sends.stream, "recvbuf", &receives.stream)?;
    comm.note_arguments(|| {
        let lengths = neighbours.lengths(comm.size(), &sends.sizes, &receives.sizes);
        CallArguments::new(Routine::NeighborAlltoall, None, None, None).with_lengths(lengths)
    });
    let schedule = neighbours.alltoall(&sends.sizes, &receives.sizes);
    Ok(comm.bytes(schedule, sends.stream, receives.stream))
}

fn alltoall_placed(
    (sendbuf, sends, sendtype): (Address, Placement<'_>, RawHandle),
    (recvbuf, receives, recvtype): (Address, Placement<'_>, RawHandle),
    comm: Call,
) -> Result<Collective> {
    let neighbours = named("comm", comm.neighbourhood())?;
    let (out, into) = (neighbours.outdegree(), neighbours.indegree());
    let (sends, receives) = (
        Blocks::new(&SEND, sendbuf, sends, sendtype, out)?,
        Blocks::new(&RECV, recvbuf, receives, recvtype, into)?.apart(receives)?,
    );
    alltoall_blocks(comm, &neighbours, sends, receives)
}

pub(crate) fn neighbor_alltoall(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let sends = (sendbuf, Placement::Uniform(sendcount), sendtype);
    let receives = (recvbuf, Placement::Uniform(recvcount), recvtype);
    alltoall_placed(sends, receives, comm)
}

pub(crate) fn neighbor_alltoallv(
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
    let listed = |counts, displacements| Placement::Listed { counts, displacements };
    let sends = (sendbuf, listed(sendcounts, senddispls), sendtype);
    let receives = (recvbuf, listed(recvcounts, recvdispls), recvtype);
    alltoall_placed(sends, receives, comm)
}

/// Displacements are in bytes, and of the same type in both widths.
pub(crate) fn neighbor_alltoallw(
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
    let neighbours = named("comm", comm.neighbourhood())?;
    let (out, into) = (neighbours.outdegree(), neighbours.indegree());
    let (sends, receives) = (
        Blocks::mixed(&SENDS, sendbuf, sendcounts, senddispls, sendtypes, out)?,
        Blocks::mixed(&RECEIVES, recvbuf, recvcounts, recvdispls, recvtypes, into)?,
    );
    alltoall_blocks(comm, &neighbours, sends, receives)
}
