//! Collective communication (MPI-5.0 §6).

use std::ffi::{c_int, c_void};

use datatype::Datatype;
use memory::Region;
use mpi::collective::{Bytes, Call, Elements, place};
use plan::Operands;

use crate::arguments::{Names, RECV, SEND, buffer, comm, committed, count, distinct, region, root};
use crate::convention::*;

const BUFFER: Names = Names::new("buffer", "count", "datatype");
const SENDS: Names = Names::new("sendbuf", "sendcounts", "sendtypes");
const RECEIVES: Names = Names::new("recvbuf", "recvcounts", "recvtypes");

/// A call on a communicator, counted.
fn call(on: RawHandle) -> Result<Call> {
    comm(on).map(Call::new)
}

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
    let comm = call(on)?;
    let from = root(&comm, from)?;
    // SAFETY: as the body's.
    let data = unsafe { buffer(&BUFFER, buf, n, datatype) }?;
    let schedule = plan::broadcast(comm.rank(), comm.size(), from, data.len() as u64, place()?);
    comm.run(&schedule, &Bytes::new(Region::empty(), data))
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
    fn check(self, names: &Names, ranks: u32) -> Result<()> {
        match self {
            Self::Uniform(each) => count(names.count, each).map(drop),
            Self::Listed { counts, displacements } => {
                counts.check(ranks as usize)?;
                displacements.check(ranks as usize)
            }
        }
    }

    /// Count and displacement in elements of block `index`.
    unsafe fn at(self, index: usize) -> Result<(usize, i64)> {
        match self {
            Self::Uniform(count) => Ok((count as usize, count.wrapping_mul(index as i64))),
            // SAFETY: as the body's.
            Self::Listed { counts, displacements } => unsafe {
                Ok((counts.count_at(index)?, displacements.at(index)))
            },
        }
    }
}

/// Checks that no element lies in two blocks: receives would write it twice (MPI-5.0 §6.5, §6.7).
unsafe fn check_disjoint(placement: Placement, ranks: u32) -> Result<()> {
    let Placement::Listed { counts, displacements } = placement else { return Ok(()) };
    counts.check(ranks as usize)?;
    displacements.check(ranks as usize)?;
    // SAFETY: as the body's.
    let at = |index| unsafe { (displacements.at(index), counts.at(index), index) };
    let mut blocks: Vec<_> = (0..ranks as usize).map(at).filter(|block| block.1 > 0).collect();
    if !blocks.is_sorted() {
        blocks.sort_unstable();
    }
    let overlap = blocks.windows(2).find(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0);
    let Some(&[one, other]) = overlap.and_then(|pair| pair.first_chunk()) else {
        return Ok(());
    };
    let name = displacements.name;
    Err(Error::argument(format!(
        "{name}[{}] = {} lies in the block of {} at {name}[{}] = {}",
        other.2, other.0, one.1, one.2, one.0
    )))
}

impl Blocks {
    unsafe fn new(
        names: &Names,
        address: *const c_void,
        placement: Placement,
        datatype: RawHandle,
        ranks: u32,
    ) -> Result<Self> {
        let datatype = committed(names.datatype, datatype)?;
        placement.check(names, ranks)?;
        let extent = datatype.extent().1;
        let mut blocks = Gathered::new(ranks);
        for index in 0..ranks as usize {
            // SAFETY: as the body's.
            let part = unsafe {
                let (elements, displacement) = placement.at(index)?;
                let offset = (displacement as isize).wrapping_mul(extent);
                region(names, displaced(address, offset), elements, &datatype)?
            };
            blocks.push(part);
        }
        Ok(blocks.end())
    }

    /// Blocks with a datatype each, at displacements in bytes.
    unsafe fn mixed(
        names: &Names,
        address: *const c_void,
        counts: Ints,
        displacements: Ints,
        types: *const RawHandle,
        ranks: u32,
    ) -> Result<Self> {
        counts.check(ranks as usize)?;
        displacements.check(ranks as usize)?;
        let mut blocks = Gathered::new(ranks);
        // SAFETY: as the body's.
        let types = unsafe { array(names.datatype, types, ranks as usize) }?;
        for (index, &raw) in types.iter().enumerate() {
            // SAFETY: as the body's.
            let part = unsafe {
                let datatype = committed(names.datatype, raw)?;
                let place = displaced(address, displacements.at(index) as isize);
                region(names, place, counts.count_at(index)?, &datatype)?
            };
            blocks.push(part);
        }
        Ok(blocks.end())
    }

    /// What this process has for itself.
    fn own(&self, rank: u32) -> Region {
        let rank = rank as usize;
        let start: u64 = self.sizes[..rank].iter().sum();
        self.stream.slice(start as usize, self.sizes[rank] as usize)
    }
}

/// Blocks on their way to one stream.
struct Gathered {
    parts: Vec<Region>,
    sizes: Vec<u64>,
}

impl Gathered {
    fn new(ranks: u32) -> Self {
        let ranks = ranks as usize;
        Self { parts: Vec::with_capacity(ranks), sizes: Vec::with_capacity(ranks) }
    }

    fn push(&mut self, part: Region) {
        self.sizes.push(part.len() as u64);
        self.parts.push(part);
    }

    fn end(self) -> Blocks {
        Blocks { stream: Region::chain(self.parts), sizes: self.sizes }
    }
}

/// An address so many bytes on; NULL and its like stay what they are.
fn displaced(address: *const c_void, offset: isize) -> *const c_void {
    match address as usize {
        0..16 => address,
        _ => address.wrapping_byte_offset(offset),
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
    comm: Call,
    uniform: bool,
) -> Result<()> {
    let to = root(&comm, to)?;
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = rank == to && is_in_place(sendbuf);
    // SAFETY: as the body's.
    unsafe {
        let input =
            if in_place { Region::empty() } else { buffer(&SEND, sendbuf, sendcount, sendtype)? };
        if rank == to {
            check_disjoint(placement, size)?;
            let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, size)?;
            distinct("sendbuf", &input, "recvbuf", &blocks.own(rank))?;
            let sizes = |rank: u32| blocks.sizes[rank as usize];
            check_own(in_place, input.len() as u64, sizes(rank))?;
            let schedule = plan::gather(rank, size, to, &sizes, uniform, in_place);
            return comm.run(&schedule, &Bytes::new(input, blocks.stream));
        }
        let own = input.len() as u64;
        let schedule = plan::gather(rank, size, to, &|_| own, uniform, false);
        comm.run(&schedule, &Bytes::new(input, Region::empty()))
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
        let comm = call(on)?;
        gather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, root, comm, true)
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
        let comm = call(on)?;
        gather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, root, comm, false)
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
    comm: Call,
    uniform: bool,
) -> Result<()> {
    let from = root(&comm, from)?;
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = rank == from && is_in_place(recvbuf);
    // SAFETY: as the body's.
    unsafe {
        let output =
            if in_place { Region::empty() } else { buffer(&RECV, recvbuf, recvcount, recvtype)? };
        if rank == from {
            let blocks = Blocks::new(&SEND, sendbuf, placement, sendtype, size)?;
            distinct("sendbuf", &blocks.own(rank), "recvbuf", &output)?;
            let sizes = |rank: u32| blocks.sizes[rank as usize];
            check_own(in_place, sizes(rank), output.len() as u64)?;
            let schedule = plan::scatter(rank, size, from, &sizes, uniform, in_place);
            return comm.run(&schedule, &Bytes::new(blocks.stream, output));
        }
        let own = output.len() as u64;
        let schedule = plan::scatter(rank, size, from, &|_| own, uniform, false);
        comm.run(&schedule, &Bytes::new(Region::empty(), output))
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
        let comm = call(on)?;
        scatter_blocks(sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, root, comm, true)
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
        let comm = call(on)?;
        scatter_blocks(
            sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, root, comm, false,
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
    comm: Call,
) -> Result<()> {
    let in_place = is_in_place(sendbuf);
    // SAFETY: as the body's.
    unsafe {
        let input =
            if in_place { Region::empty() } else { buffer(&SEND, sendbuf, sendcount, sendtype)? };
        check_disjoint(placement, comm.size())?;
        let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, comm.size())?;
        distinct("sendbuf", &input, "recvbuf", &blocks.own(comm.rank()))?;
        let sizes = |rank: u32| blocks.sizes[rank as usize];
        check_own(in_place, input.len() as u64, sizes(comm.rank()))?;
        let schedule = plan::allgather(comm.rank(), comm.size(), &sizes, in_place);
        comm.run(&schedule, &Bytes::new(input, blocks.stream))
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
        allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, call(on)?)
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
        allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, call(on)?)
    }
}

/// Exchanges blocks between all pairs; in place, what is sent is first copied aside.
fn alltoall_blocks(
    comm: Call,
    sends: Option<Blocks>,
    receives: Blocks,
    uniform: bool,
) -> Result<()> {
    if let Some(sends) = &sends {
        distinct("sendbuf", &sends.own(comm.rank()), "recvbuf", &receives.own(comm.rank()))?;
    }
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
    comm.run(&schedule, &Bytes::new(sends.stream, receives.stream))
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
    let comm = call(on)?;
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => {
                let placement = Placement::Uniform(sendcount);
                Some(Blocks::new(&SEND, sendbuf, placement, sendtype, comm.size())?)
            }
        };
        let placement = Placement::Uniform(recvcount);
        let receives = Blocks::new(&RECV, recvbuf, placement, recvtype, comm.size())?;
        alltoall_blocks(comm, sends, receives, true)
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
    let comm = call(on)?;
    let listed = |counts, displacements| Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => {
                let placement = listed(sendcounts, senddispls);
                Some(Blocks::new(&SEND, sendbuf, placement, sendtype, comm.size())?)
            }
        };
        let placement = listed(recvcounts, recvdispls);
        check_disjoint(placement, comm.size())?;
        let receives = Blocks::new(&RECV, recvbuf, placement, recvtype, comm.size())?;
        alltoall_blocks(comm, sends, receives, false)
    }
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
    let comm = call(on)?;
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => Some(Blocks::mixed(
                &SENDS,
                sendbuf,
                sendcounts,
                senddispls,
                sendtypes,
                comm.size(),
            )?),
        };
        let receives =
            Blocks::mixed(&RECEIVES, recvbuf, recvcounts, recvdispls, recvtypes, comm.size())?;
        alltoall_blocks(comm, sends, receives, false)
    }
}

/// The memory from the lowest byte of `count` elements' data to the highest, gaps included: what
/// reduction functions are given.
///
/// # Safety
/// As for any buffer of an MPI call.
pub(crate) unsafe fn elements(
    name: &'static str,
    address: *const c_void,
    count: usize,
    datatype: &Datatype,
) -> Result<Region> {
    // SAFETY: the caller's promise.
    unsafe {
        region(&Names::new(name, "count", "datatype"), address, count, datatype)?;
        let Some((lowest, bytes)) = datatype.reach(count) else {
            let text = format!("count = {count} elements exceed memory");
            return Err(class(ErrorClass::Count, text));
        };
        Ok(Region::new(address.cast_mut().cast::<u8>().wrapping_offset(lowest), bytes))
    }
}

/// What all reductions take: checked, and the buffers' memory.
struct Reduction {
    comm: Call,
    datatype: Datatype,
    handle: u64,
    op: datatype::Op,
    in_place: bool,
}

impl Reduction {
    fn new(sendbuf: *const c_void, datatype: RawHandle, op: RawHandle, comm: Call) -> Result<Self> {
        let kind = committed("datatype", datatype)?;
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

    unsafe fn sent(&self, sendbuf: *const c_void, count: usize) -> Result<Region> {
        // SAFETY: as the body's.
        unsafe { elements("sendbuf", sendbuf, count, &self.datatype) }
    }

    unsafe fn received(&self, recvbuf: *mut c_void, count: usize) -> Result<Region> {
        // SAFETY: as the body's.
        unsafe { elements("recvbuf", recvbuf, count, &self.datatype) }
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
            let input = if self.in_place { Region::empty() } else { self.sent(sendbuf, count)? };
            let output = self.received(recvbuf, count)?;
            if !self.in_place {
                self.check_distinct((&input, count), (&output, count))?;
            }
            Ok((input, output))
        }
    }

    /// Checks the data and not the gaps: what is sent may lie between what is received.
    fn check_distinct(&self, input: (&Region, usize), output: (&Region, usize)) -> Result<()> {
        let data = |(whole, count): (&Region, usize)| {
            let (lowest, _) = self.datatype.reach(count)?;
            whole.typed(-lowest, count, self.datatype.layout())
        };
        let (Some(sent), Some(received)) = (data(input), data(output)) else { return Ok(()) };
        distinct("sendbuf", &sent, "recvbuf", &received)
    }

    fn elements(&self, (input, output): (Region, Region)) -> Elements<'_> {
        let Self { datatype, handle, op, .. } = self;
        Elements { input, output, datatype, handle: *handle, op }
    }

    fn run(&self, schedule: &plan::Schedule, buffers: (Region, Region)) -> Result<()> {
        self.comm.run(schedule, &self.elements(buffers))
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
    let this = Reduction::new(sendbuf, datatype, op, call(on)?)?;
    let to = root(&this.comm, to)?;
    let (rank, size, n) = (this.comm.rank(), this.comm.size(), count("count", n)?);
    let commutes = this.op.is_commutative();
    let in_place = this.in_place && rank == to;
    // SAFETY: as the body's.
    let buffers = unsafe {
        match rank == to {
            true => this.buffers(sendbuf, recvbuf, n)?,
            false => (this.sent(sendbuf, n)?, Region::empty()),
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
    let this = Reduction::new(sendbuf, datatype, op, call(on)?)?;
    let (rank, size, n) = (this.comm.rank(), this.comm.size(), count("count", n)?);
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
    let this = Reduction::new(sendbuf, datatype, op, call(on)?)?;
    let n = count("count", n)?;
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
    let this = Reduction::new(sendbuf, datatype, op, call(on)?)?;
    let n = count("count", n)?;
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
    comm: Call,
) -> Result<()> {
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let (rank, size) = (this.comm.rank(), this.comm.size());
    let total: usize = counts.iter().sum();
    // SAFETY: as the body's.
    let (input, output) = unsafe {
        if this.in_place {
            let whole = this.received(recvbuf, total)?;
            let copy = this.elements((Region::empty(), whole.clone())).copy_of_output(total as u64);
            (copy, whole)
        } else {
            let own = this.received(recvbuf, counts[rank as usize])?;
            let input = this.sent(sendbuf, total)?;
            this.check_distinct((&input, total), (&own, counts[rank as usize]))?;
            (input, own)
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
    let comm = call(on)?;
    // SAFETY: as the body's.
    unsafe {
        let counts = counts.read_counts(comm.size() as usize)?;
        reduce_scatter_counts(sendbuf, recvbuf, &counts, datatype, op, comm)
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
    let comm = call(on)?;
    let counts = vec![count("recvcount", n)?; comm.size() as usize];
    // SAFETY: as the body's.
    unsafe { reduce_scatter_counts(sendbuf, recvbuf, &counts, datatype, op, comm) }
}
