//! Collective communication between neighbours (MPI-5.0 §8.6). Nothing of it works in place.

use super::*;

/// All of what is sent to every neighbour, a block from each.
unsafe fn allgather_blocks(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    placement: Placement,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let neighbours = named("comm", comm.neighbourhood())?;
    // SAFETY: `sendbuf` holds `sendcount` elements of `sendtype`; `recvbuf` holds the blocks that
    // counts and displacements describe.
    let (input, blocks) = unsafe {
        let input = buffer(&SEND, sendbuf, sendcount, sendtype)?;
        let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, neighbours.indegree())?
            .apart(placement)?;
        (input, blocks)
    };
    distinct("sendbuf", &input, "recvbuf", &blocks.stream)?;
    comm.note_arguments(|| {
        let sends = vec![input.len() as u64; neighbours.outdegree() as usize];
        let lengths = neighbours.lengths(comm.size(), &sends, &blocks.sizes);
        CallArguments::new(Routine::NeighborAllgather, None, None, None).with_lengths(lengths)
    });
    let schedule = neighbours.allgather(input.len() as u64, &blocks.sizes);
    Ok(comm.bytes(schedule, input, blocks.stream))
}

pub(crate) unsafe fn neighbor_allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Uniform(recvcount);
    // SAFETY: the caller's buffers go to `allgather_blocks`, which has the same conditions.
    unsafe { allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, call?) }
}

pub(crate) unsafe fn neighbor_allgatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    counts: Ints,
    displacements: Ints,
    recvtype: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Listed { counts, displacements };
    // SAFETY: the caller's buffers go to `allgather_blocks`, which has the same conditions.
    unsafe { allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, call?) }
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

unsafe fn alltoall_placed(
    (sendbuf, sends, sendtype): (*const c_void, Placement, RawHandle),
    (recvbuf, receives, recvtype): (*mut c_void, Placement, RawHandle),
    comm: Call,
) -> Result<Collective> {
    let neighbours = named("comm", comm.neighbourhood())?;
    let (out, into) = (neighbours.outdegree(), neighbours.indegree());
    // SAFETY: `recvbuf` and `sendbuf` hold the blocks that counts and displacements describe.
    let (sends, receives) = unsafe {
        (
            Blocks::new(&SEND, sendbuf, sends, sendtype, out)?,
            Blocks::new(&RECV, recvbuf, receives, recvtype, into)?.apart(receives)?,
        )
    };
    alltoall_blocks(comm, &neighbours, sends, receives)
}

pub(crate) unsafe fn neighbor_alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let sends = (sendbuf, Placement::Uniform(sendcount), sendtype);
    let receives = (recvbuf, Placement::Uniform(recvcount), recvtype);
    // SAFETY: the caller's buffers go to `alltoall_placed`, which has the same conditions.
    unsafe { alltoall_placed(sends, receives, call?) }
}

pub(crate) unsafe fn neighbor_alltoallv(
    sendbuf: *const c_void,
    sendcounts: Ints,
    senddispls: Ints,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    recvdispls: Ints,
    recvtype: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let listed = |counts, displacements| Placement::Listed { counts, displacements };
    let sends = (sendbuf, listed(sendcounts, senddispls), sendtype);
    let receives = (recvbuf, listed(recvcounts, recvdispls), recvtype);
    // SAFETY: the caller's buffers go to `alltoall_placed`, which has the same conditions.
    unsafe { alltoall_placed(sends, receives, call?) }
}

/// Displacements are in bytes, and of the same type in both widths.
pub(crate) unsafe fn neighbor_alltoallw(
    sendbuf: *const c_void,
    sendcounts: Ints,
    senddispls: *const isize,
    sendtypes: *const RawHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    recvdispls: *const isize,
    recvtypes: *const RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    let neighbours = named("comm", comm.neighbourhood())?;
    let (out, into) = (neighbours.outdegree(), neighbours.indegree());
    let sdispls = Ints::count("sdispls", senddispls.cast());
    let rdispls = Ints::count("rdispls", recvdispls.cast());
    // SAFETY: `recvbuf` and `sendbuf` hold the blocks that counts and displacements describe.
    let (sends, receives) = unsafe {
        (
            Blocks::mixed(&SENDS, sendbuf, sendcounts, sdispls, sendtypes, out)?,
            Blocks::mixed(&RECEIVES, recvbuf, recvcounts, rdispls, recvtypes, into)?,
        )
    };
    alltoall_blocks(comm, &neighbours, sends, receives)
}
