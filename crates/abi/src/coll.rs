//! Collective communication (MPI-5.0 §6).

use std::ffi::{c_int, c_void};

use datatype::Datatype;
use memory::Region;
use mpi::collective::{Bytes, Elements, place, run};
use mpi::comm::CommRef;
use plan::Operands;

use crate::arguments::{buffer, comm, committed, count, region, root};
use crate::convention::*;

/// `MPI_IN_PLACE`.
fn is_in_place(address: *const c_void) -> bool {
    address as usize == 1
}

pub(crate) unsafe fn barrier(on: RawHandle) -> Result<()> {
    mpi::collective::barrier(&*comm(on)?)
}

pub(crate) unsafe fn bcast(
    buf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    from: c_int,
    on: RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    let from = root(&comm, from)?;
    // SAFETY: as the body's.
    let data = unsafe { buffer(buf, n, datatype) }?;
    let schedule = plan::broadcast(comm.rank(), comm.size(), from, data.len() as u64, place()?);
    run(&comm, &schedule, &Bytes::new(Region::empty(), data))
}

/// The blocks of a buffer that holds one for every rank, as one stream, and their lengths in bytes.
struct Blocks {
    stream: Region,
    sizes: Vec<u64>,
}

/// Where each block lies: at multiples of one count, or at displacements of their own.
#[derive(Clone, Copy)]
enum Placement {
    Uniform(i64),
    Listed { counts: Ints, displacements: Ints },
}

impl Placement {
    /// Count and displacement in elements of block `index`.
    unsafe fn at(self, index: usize) -> (i64, i64) {
        match self {
            Self::Uniform(count) => (count, count.wrapping_mul(index as i64)),
            // SAFETY: as the body's.
            Self::Listed { counts, displacements } => unsafe {
                (counts.at(index), displacements.at(index))
            },
        }
    }
}

impl Blocks {
    unsafe fn new(
        address: *const c_void,
        placement: Placement,
        datatype: RawHandle,
        ranks: u32,
    ) -> Result<Self> {
        let datatype = committed(datatype)?;
        let extent = datatype.extent().1;
        let mut parts = Vec::with_capacity(ranks as usize);
        let mut sizes = Vec::with_capacity(ranks as usize);
        for index in 0..ranks as usize {
            // SAFETY: as the body's.
            let part = unsafe {
                let (n, displacement) = placement.at(index);
                let place = if address.is_null() {
                    address
                } else {
                    address.wrapping_byte_offset(displacement as isize * extent)
                };
                region(place, count(n)?, &datatype)?
            };
            sizes.push(part.len() as u64);
            parts.push(part);
        }
        Ok(Self { stream: Region::chain(parts), sizes })
    }
}

unsafe fn gather_blocks(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    placement: Placement,
    recvtype: RawHandle,
    to: c_int,
    comm: &CommRef,
    uniform: bool,
) -> Result<()> {
    let to = root(comm, to)?;
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = rank == to && is_in_place(sendbuf);
    // SAFETY: as the body's.
    unsafe {
        let input = if in_place { Region::empty() } else { buffer(sendbuf, sendcount, sendtype)? };
        if rank == to {
            let blocks = Blocks::new(recvbuf, placement, recvtype, size)?;
            let sizes = |rank: u32| blocks.sizes[rank as usize];
            check_own(in_place, input.len() as u64, sizes(rank))?;
            let schedule = plan::gather(rank, size, to, &sizes, uniform, in_place);
            return run(comm, &schedule, &Bytes::new(input, blocks.stream));
        }
        let own = input.len() as u64;
        let schedule = plan::gather(rank, size, to, &|_| own, uniform, false);
        run(comm, &schedule, &Bytes::new(input, Region::empty()))
    }
}

/// What a process sends itself must be as long as what it expects of itself.
fn check_own(in_place: bool, sent: u64, expected: u64) -> Result<()> {
    if in_place || sent == expected {
        return Ok(());
    }
    let text = format!("this process sends itself {sent} bytes but expects {expected}");
    Err(class(ErrorClass::Truncate, text))
}

pub(crate) unsafe fn gather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    on: RawHandle,
) -> Result<()> {
    let placement = Placement::Uniform(recvcount);
    // SAFETY: as the body's.
    unsafe {
        let comm = comm(on)?;
        gather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, root, &comm, true)
    }
}

pub(crate) unsafe fn gatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    counts: Ints,
    displacements: Ints,
    recvtype: RawHandle,
    root: c_int,
    on: RawHandle,
) -> Result<()> {
    let placement = Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let comm = comm(on)?;
        gather_blocks(
            sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, root, &comm, false,
        )
    }
}

unsafe fn scatter_blocks(
    sendbuf: *const c_void,
    placement: Placement,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    from: c_int,
    comm: &CommRef,
    uniform: bool,
) -> Result<()> {
    let from = root(comm, from)?;
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = rank == from && is_in_place(recvbuf);
    // SAFETY: as the body's.
    unsafe {
        let output = if in_place { Region::empty() } else { buffer(recvbuf, recvcount, recvtype)? };
        if rank == from {
            let blocks = Blocks::new(sendbuf, placement, sendtype, size)?;
            let sizes = |rank: u32| blocks.sizes[rank as usize];
            check_own(in_place, sizes(rank), output.len() as u64)?;
            let schedule = plan::scatter(rank, size, from, &sizes, uniform, in_place);
            return run(comm, &schedule, &Bytes::new(blocks.stream, output));
        }
        let own = output.len() as u64;
        let schedule = plan::scatter(rank, size, from, &|_| own, uniform, false);
        run(comm, &schedule, &Bytes::new(Region::empty(), output))
    }
}

pub(crate) unsafe fn scatter(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    on: RawHandle,
) -> Result<()> {
    let placement = Placement::Uniform(sendcount);
    // SAFETY: as the body's.
    unsafe {
        let comm = comm(on)?;
        scatter_blocks(
            sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, root, &comm, true,
        )
    }
}

pub(crate) unsafe fn scatterv(
    sendbuf: *const c_void,
    counts: Ints,
    displacements: Ints,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    on: RawHandle,
) -> Result<()> {
    let placement = Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let comm = comm(on)?;
        scatter_blocks(
            sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, root, &comm, false,
        )
    }
}

unsafe fn allgather_blocks(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    placement: Placement,
    recvtype: RawHandle,
    comm: &CommRef,
) -> Result<()> {
    let in_place = is_in_place(sendbuf);
    // SAFETY: as the body's.
    unsafe {
        let input = if in_place { Region::empty() } else { buffer(sendbuf, sendcount, sendtype)? };
        let blocks = Blocks::new(recvbuf, placement, recvtype, comm.size())?;
        let sizes = |rank: u32| blocks.sizes[rank as usize];
        check_own(in_place, input.len() as u64, sizes(comm.rank()))?;
        let schedule = plan::allgather(comm.rank(), comm.size(), &sizes, in_place);
        run(comm, &schedule, &Bytes::new(input, blocks.stream))
    }
}

pub(crate) unsafe fn allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let placement = Placement::Uniform(recvcount);
    // SAFETY: as the body's.
    unsafe {
        allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, &comm(on)?)
    }
}

pub(crate) unsafe fn allgatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    counts: Ints,
    displacements: Ints,
    recvtype: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let placement = Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, &comm(on)?)
    }
}

/// Exchanges blocks between all pairs; in place, what is sent is first copied aside.
fn alltoall_blocks(
    comm: &CommRef,
    sends: Option<Blocks>,
    receives: Blocks,
    uniform: bool,
) -> Result<()> {
    let sends = sends.unwrap_or_else(|| {
        let copy = Region::owned(receives.stream.len());
        copy.copy_from(&receives.stream);
        Blocks { stream: copy, sizes: receives.sizes.clone() }
    });
    let own = comm.rank() as usize;
    check_own(false, sends.sizes[own], receives.sizes[own])?;
    let schedule = plan::alltoall(
        comm.rank(),
        comm.size(),
        &|to| sends.sizes[to as usize],
        &|from| receives.sizes[from as usize],
        uniform,
        place()?,
    );
    run(comm, &schedule, &Bytes::new(sends.stream, receives.stream))
}

pub(crate) unsafe fn alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => {
                Some(Blocks::new(sendbuf, Placement::Uniform(sendcount), sendtype, comm.size())?)
            }
        };
        let placement = Placement::Uniform(recvcount);
        let receives = Blocks::new(recvbuf, placement, recvtype, comm.size())?;
        alltoall_blocks(&comm, sends, receives, true)
    }
}

pub(crate) unsafe fn alltoallv(
    sendbuf: *const c_void,
    sendcounts: Ints,
    senddispls: Ints,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    recvdispls: Ints,
    recvtype: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    let listed = |counts, displacements| Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => {
                Some(Blocks::new(sendbuf, listed(sendcounts, senddispls), sendtype, comm.size())?)
            }
        };
        let placement = listed(recvcounts, recvdispls);
        let receives = Blocks::new(recvbuf, placement, recvtype, comm.size())?;
        alltoall_blocks(&comm, sends, receives, false)
    }
}

/// Blocks with a datatype each, at displacements in bytes.
unsafe fn mixed_blocks(
    address: *const c_void,
    counts: Ints,
    displacements: Ints,
    types: *const RawHandle,
    ranks: u32,
) -> Result<Blocks> {
    let mut parts = Vec::new();
    let mut sizes = Vec::new();
    for index in 0..ranks as usize {
        // SAFETY: as the body's.
        let part = unsafe {
            let datatype = committed(*types.add(index))?;
            let place = address.wrapping_byte_offset(displacements.at(index) as isize);
            region(place, count(counts.at(index))?, &datatype)?
        };
        sizes.push(part.len() as u64);
        parts.push(part);
    }
    Ok(Blocks { stream: Region::chain(parts), sizes })
}

pub(crate) unsafe fn alltoallw(
    sendbuf: *const c_void,
    sendcounts: Ints,
    senddispls: Ints,
    sendtypes: *const RawHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    recvdispls: Ints,
    recvtypes: *const RawHandle,
    on: RawHandle,
) -> Result<()> {
    let comm = comm(on)?;
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => Some(mixed_blocks(sendbuf, sendcounts, senddispls, sendtypes, comm.size())?),
        };
        let receives = mixed_blocks(recvbuf, recvcounts, recvdispls, recvtypes, comm.size())?;
        alltoall_blocks(&comm, sends, receives, false)
    }
}

/// The memory that `count` elements span, gaps included: what reduction functions are given.
///
/// # Safety
/// As for any buffer of an MPI call.
pub(crate) unsafe fn elements(
    address: *const c_void,
    count: usize,
    datatype: &Datatype,
) -> Result<Region> {
    // SAFETY: the caller's promise.
    unsafe {
        region(address, count, datatype)?;
        let bytes = count * usize::try_from(datatype.extent().1).unwrap_or(0);
        Ok(Region::new(address.cast_mut().cast(), bytes))
    }
}

/// What all reductions take: checked, and the buffers' memory.
struct Reduction {
    comm: CommRef,
    datatype: Datatype,
    handle: u64,
    op: datatype::Op,
    in_place: bool,
}

impl Reduction {
    fn new(
        sendbuf: *const c_void,
        datatype: RawHandle,
        op: RawHandle,
        on: RawHandle,
    ) -> Result<Self> {
        let comm = comm(on)?;
        let kind = committed(datatype)?;
        let op = crate::op::checked(op, &kind)?;
        let in_place = is_in_place(sendbuf);
        Ok(Self { comm, datatype: kind, handle: datatype as u64, op, in_place })
    }

    fn element(&self) -> u64 {
        self.datatype.size() as u64
    }

    fn operands(&self, len: usize, commutes: bool, in_place: bool) -> Operands {
        Operands { len: len as u64, element: self.element(), commutes, in_place }
    }

    unsafe fn memory(&self, address: *const c_void, count: usize) -> Result<Region> {
        // SAFETY: as the body's.
        unsafe { elements(address, count, &self.datatype) }
    }

    /// Input and output, as many elements each.
    unsafe fn buffers(
        &self,
        sendbuf: *const c_void,
        recvbuf: *mut c_void,
        count: usize,
    ) -> Result<(Region, Region)> {
        // SAFETY: as the body's.
        unsafe {
            let input = if self.in_place { Region::empty() } else { self.memory(sendbuf, count)? };
            Ok((input, self.memory(recvbuf, count)?))
        }
    }

    fn run(&self, schedule: &plan::Schedule, (input, output): (Region, Region)) -> Result<()> {
        let Self { comm, datatype, handle, op, .. } = self;
        let memory = Elements { input, output, datatype, handle: *handle, op };
        run(comm, schedule, &memory)
    }
}

pub(crate) unsafe fn reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    to: c_int,
    on: RawHandle,
) -> Result<()> {
    let this = Reduction::new(sendbuf, datatype, op, on)?;
    let to = root(&this.comm, to)?;
    let (rank, size, n) = (this.comm.rank(), this.comm.size(), count(n)?);
    let commutes = this.op.is_commutative();
    let in_place = this.in_place && rank == to;
    // SAFETY: as the body's.
    let buffers = unsafe {
        match rank == to {
            true => this.buffers(sendbuf, recvbuf, n)?,
            false => (this.memory(sendbuf, n)?, Region::empty()),
        }
    };
    let schedule = plan::reduce(rank, size, to, this.operands(n, commutes, in_place), place()?);
    this.run(&schedule, buffers)
}

pub(crate) unsafe fn allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let this = Reduction::new(sendbuf, datatype, op, on)?;
    let (rank, size, n) = (this.comm.rank(), this.comm.size(), count(n)?);
    let commutes = this.op.is_commutative();
    // SAFETY: as the body's.
    let buffers = unsafe { this.buffers(sendbuf, recvbuf, n) }?;
    let schedule = plan::allreduce(rank, size, this.operands(n, commutes, this.in_place), place()?);
    this.run(&schedule, buffers)
}

pub(crate) unsafe fn scan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let this = Reduction::new(sendbuf, datatype, op, on)?;
    let n = count(n)?;
    // SAFETY: as the body's.
    let buffers = unsafe { this.buffers(sendbuf, recvbuf, n) }?;
    let schedule = plan::scan(this.comm.rank(), this.comm.size(), n as u64, this.in_place);
    this.run(&schedule, buffers)
}

pub(crate) unsafe fn exscan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let this = Reduction::new(sendbuf, datatype, op, on)?;
    let n = count(n)?;
    // SAFETY: as the body's.
    let buffers = unsafe { this.buffers(sendbuf, recvbuf, n) }?;
    let schedule = plan::exscan(this.comm.rank(), this.comm.size(), n as u64, this.in_place);
    this.run(&schedule, buffers)
}

unsafe fn reduce_scatter_counts(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: &[usize],
    datatype: RawHandle,
    op: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let this = Reduction::new(sendbuf, datatype, op, on)?;
    let (rank, size) = (this.comm.rank(), this.comm.size());
    let total: usize = counts.iter().sum();
    // SAFETY: as the body's.
    let (input, output) = unsafe {
        if this.in_place {
            let whole = this.memory(recvbuf, total)?;
            let copy = Region::owned(whole.len());
            copy.copy_from(&whole);
            (copy, whole)
        } else {
            let own = this.memory(recvbuf, counts[rank as usize])?;
            (this.memory(sendbuf, total)?, own)
        }
    };
    let counts = |rank: u32| counts[rank as usize] as u64;
    let commutes = this.op.is_commutative();
    let schedule = plan::reduce_scatter(rank, size, &counts, this.element(), commutes);
    this.run(&schedule, (input, output))
}

pub(crate) unsafe fn reduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: Ints,
    datatype: RawHandle,
    op: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let ranks = comm(on)?.size() as usize;
    // SAFETY: as the body's.
    unsafe {
        let counts: Result<Vec<usize>> = counts.read(ranks).into_iter().map(count).collect();
        reduce_scatter_counts(sendbuf, recvbuf, &counts?, datatype, op, on)
    }
}

pub(crate) unsafe fn reduce_scatter_block(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    on: RawHandle,
) -> Result<()> {
    let counts = vec![count(n)?; comm(on)?.size() as usize];
    // SAFETY: as the body's.
    unsafe { reduce_scatter_counts(sendbuf, recvbuf, &counts, datatype, op, on) }
}
