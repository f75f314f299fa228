//! Collective communication (MPI-5.0 §6). The bodies check the arguments and plan; the shims carry out what
//! they give.

mod inter;
mod neighbourhood;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use datatype::Datatype;
use memory::Region;
use mpi::check::Told;
use mpi::collective::{Call, Collective, Elements};
pub(crate) use mpi::comm::Form;
use mpi::neighbourhood::Neighbourhood;
use mpi::plans::{Operation, Shape};
use mpi::request::Request;
use plan::{Operands, Schedule, Topology};

use crate::arguments::{
    Names, PROC_NULL, RECV, SEND, buffer, comm, committed, count, distinct, region, root,
};
use crate::convention::*;

pub(crate) use neighbourhood::{
    neighbor_allgather, neighbor_allgatherv, neighbor_alltoall, neighbor_alltoallv,
    neighbor_alltoallw,
};

const BUFFER: Names = Names::new("buffer", "count", "datatype");
const SENDS: Names = Names::new("sendbuf", "sendcounts", "sendtypes");
const RECEIVES: Names = Names::new("recvbuf", "recvcounts", "recvtypes");

/// Carries out a collective: the blocking form.
#[inline]
pub(crate) fn run(collective: Result<Collective>) -> Result<()> {
    match &collective {
        // Borrowed: it is large, and nobody else needs it.
        Ok(collective) => collective.run(),
        Err(error) => Err(error.clone()),
    }
}

/// Begins a collective: the form `MPI_I…`.
pub(crate) unsafe fn begin(collective: Result<Collective>, request: *mut RawHandle) -> Result<()> {
    let collective = collective?;
    // SAFETY: as the body's.
    unsafe { give(request, || collective.begin()) }
}

/// Keeps a collective, to be started again and again: the form `MPI_…_init`. No hints are known.
pub(crate) unsafe fn keep(
    collective: Result<Collective>,
    info: RawHandle,
    request: *mut RawHandle,
) -> Result<()> {
    let collective = collective?;
    crate::info::optional(info)?;
    // SAFETY: as the body's.
    unsafe { give(request, || Ok(collective.persistent())) }
}

/// The place is looked at last: a call counts whatever is wrong with its arguments.
unsafe fn give(place: *mut RawHandle, request: impl FnOnce() -> Result<Request>) -> Result<()> {
    leads_somewhere("request", place)?;
    // SAFETY: as the body's.
    unsafe { put(place, raw(request()?.register()?)) }
}

/// A call on a communicator, counted.
#[inline]
pub(crate) fn call(on: RawHandle, form: Form) -> Result<Call> {
    Ok(Call::new(comm(on)?, form))
}

/// How many blocks each process has for others: one for each of the group, or of the other one.
fn remote_size(comm: &Call) -> u32 {
    comm.halves().map_or(comm.size(), |groups| groups.remote.len() as u32)
}

/// `MPI_IN_PLACE`.
fn is_in_place(address: *const c_void) -> bool {
    address as usize == 1
}

pub(crate) unsafe fn barrier(call: Result<Call>) -> Result<Collective> {
    call?.barrier()
}

pub(crate) unsafe fn bcast(
    buf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    from: c_int,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe { inter::bcast(buf, n, datatype, from, comm) };
    }
    let from = root(&comm, from)?;
    // SAFETY: as the body's.
    let data = unsafe { buffer(&BUFFER, buf, n, datatype) }?;
    let len = data.len() as u64;
    comm.tell(|| Told::new(Operation::Bcast, Some(from), Some(len), None));
    let shape = Shape { root: from, ..Shape::of(Operation::Bcast).with_len(len) };
    let schedule = comm.plan(shape, |rank, places| plan::broadcast(rank, places, from, len))?;
    Ok(comm.bytes(schedule, Region::empty(), data))
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
                let offset = displacements.at(index) as isize;
                // From `MPI_BOTTOM` on, these displacements are addresses.
                let place = match address.is_null() {
                    true => address.wrapping_byte_offset(offset),
                    false => displaced(address, offset),
                };
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

/// An operation on blocks.
#[derive(Clone, Copy)]
struct OnBlocks {
    operation: Operation,
    /// None where there is no root.
    root: Option<u32>,
    /// The blocks' length, if they are equal.
    block: Option<u64>,
    in_place: bool,
}

/// A plan that is kept if blocks are equal. Others follow from as many sizes as there are ranks.
fn planned(
    comm: &Call,
    on: OnBlocks,
    make: impl FnOnce(u32, &Topology) -> Schedule,
) -> Result<Arc<Schedule>> {
    let OnBlocks { operation, root, block, in_place } = on;
    comm.tell(|| Told::new(operation, root, block, None));
    match block {
        Some(len) => {
            let root = root.unwrap_or(0);
            comm.plan(Shape { root, in_place, ..Shape::of(operation).with_len(len) }, make)
        }
        None => Ok(Arc::new(make(comm.rank(), comm.places()?))),
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
) -> Result<Collective> {
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe {
            inter::gather(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, to, comm)
        };
    }
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
            let on = OnBlocks {
                operation: Operation::Gather,
                root: Some(to),
                block: uniform.then(|| sizes(0)),
                in_place,
            };
            let schedule = planned(&comm, on, |rank, places| {
                plan::gather(rank, places, to, &sizes, uniform, in_place)
            })?;
            return Ok(comm.bytes(schedule, input, blocks.stream));
        }
        let own = input.len() as u64;
        let on = OnBlocks {
            operation: Operation::Gather,
            root: Some(to),
            block: uniform.then_some(own),
            in_place: false,
        };
        let schedule = planned(&comm, on, |rank, places| {
            plan::gather(rank, places, to, &|_| own, uniform, false)
        })?;
        Ok(comm.bytes(schedule, input, Region::empty()))
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
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Uniform(recvcount);
    // SAFETY: as the body's.
    unsafe {
        let comm = call?;
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
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let comm = call?;
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
) -> Result<Collective> {
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe {
            inter::scatter(sendbuf, placement, sendtype, recvbuf, recvcount, recvtype, from, comm)
        };
    }
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
            let on = OnBlocks {
                operation: Operation::Scatter,
                root: Some(from),
                block: uniform.then(|| sizes(0)),
                in_place,
            };
            let schedule = planned(&comm, on, |rank, places| {
                plan::scatter(rank, places, from, &sizes, uniform, in_place)
            })?;
            return Ok(comm.bytes(schedule, blocks.stream, output));
        }
        let own = output.len() as u64;
        let on = OnBlocks {
            operation: Operation::Scatter,
            root: Some(from),
            block: uniform.then_some(own),
            in_place: false,
        };
        let schedule = planned(&comm, on, |rank, places| {
            plan::scatter(rank, places, from, &|_| own, uniform, false)
        })?;
        Ok(comm.bytes(schedule, Region::empty(), output))
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
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Uniform(sendcount);
    // SAFETY: as the body's.
    unsafe {
        let comm = call?;
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
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let comm = call?;
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
) -> Result<Collective> {
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe {
            inter::allgather(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, comm)
        };
    }
    let in_place = is_in_place(sendbuf);
    let uniform = matches!(placement, Placement::Uniform(_));
    // SAFETY: as the body's.
    unsafe {
        let input =
            if in_place { Region::empty() } else { buffer(&SEND, sendbuf, sendcount, sendtype)? };
        check_disjoint(placement, comm.size())?;
        let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, comm.size())?;
        distinct("sendbuf", &input, "recvbuf", &blocks.own(comm.rank()))?;
        let sizes = |rank: u32| blocks.sizes[rank as usize];
        check_own(in_place, input.len() as u64, sizes(comm.rank()))?;
        let on = OnBlocks {
            operation: Operation::Allgather,
            root: None,
            block: uniform.then(|| sizes(0)),
            in_place,
        };
        let schedule =
            planned(&comm, on, |rank, places| plan::allgather(rank, places, &sizes, in_place))?;
        Ok(comm.bytes(schedule, input, blocks.stream))
    }
}

pub(crate) unsafe fn allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let placement = Placement::Uniform(recvcount);
    // SAFETY: as the body's.
    unsafe { allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, call?) }
}

pub(crate) unsafe fn allgatherv(
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
    // SAFETY: as the body's.
    unsafe { allgather_blocks(sendbuf, sendcount, sendtype, recvbuf, placement, recvtype, call?) }
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
        operation: Operation::Alltoall,
        root: None,
        block: uniform.then(|| from(0)),
        in_place,
    };
    let schedule = planned(&comm, on, |rank, places| {
        let schedule = plan::alltoall(rank, places, &to, &from, uniform);
        if in_place { schedule.in_place(len as u64) } else { schedule }
    })?;
    Ok(match sends {
        Some(sends) => comm.bytes(schedule, sends.stream, receives.stream),
        None => comm.bytes(schedule, Region::scratch(len), receives.stream),
    })
}

pub(crate) unsafe fn alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    let blocks = remote_size(&comm);
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
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
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    let blocks = remote_size(&comm);
    let listed = |counts, displacements| Placement::Listed { counts, displacements };
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => {
                let placement = listed(sendcounts, senddispls);
                Some(Blocks::new(&SEND, sendbuf, placement, sendtype, blocks)?)
            }
        };
        let placement = listed(recvcounts, recvdispls);
        check_disjoint(placement, blocks)?;
        let receives = Blocks::new(&RECV, recvbuf, placement, recvtype, blocks)?;
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
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    let blocks = remote_size(&comm);
    // SAFETY: as the body's.
    unsafe {
        let sends = match is_in_place(sendbuf) {
            true => None,
            false => {
                Some(Blocks::mixed(&SENDS, sendbuf, sendcounts, senddispls, sendtypes, blocks)?)
            }
        };
        let receives =
            Blocks::mixed(&RECEIVES, recvbuf, recvcounts, recvdispls, recvtypes, blocks)?;
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

    fn tell(&self, operation: Operation, root: Option<u32>, bytes: Option<u64>) {
        self.comm.tell(|| {
            // The application's own may be called otherwise elsewhere.
            let op = match &self.op {
                datatype::Op::Predefined(op) => Some(format!("{op:?}")),
                datatype::Op::User { .. } => None,
            };
            Told::new(operation, root, bytes, op.as_deref())
        });
    }

    /// A plan for these operands.
    fn plan(
        &self,
        operation: Operation,
        root: u32,
        operands: Operands,
        make: impl FnOnce(u32, &Topology) -> Schedule,
    ) -> Result<Arc<Schedule>> {
        let Operands { len, element, commutes, in_place } = operands;
        let has_root = operation == Operation::Reduce;
        self.tell(operation, has_root.then_some(root), Some(len * element));
        self.comm.plan(Shape { operation, root, len, element, commutes, in_place }, make)
    }

    fn planned(self, schedule: Arc<Schedule>, (input, output): (Region, Region)) -> Collective {
        let Self { comm, datatype, handle, op, .. } = self;
        comm.elements(schedule, Elements { input, output, datatype, handle, op })
    }
}

pub(crate) unsafe fn reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    to: c_int,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe { inter::reduce(sendbuf, recvbuf, n, datatype, op, to, comm) };
    }
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let to = root(&this.comm, to)?;
    let (rank, n) = (this.comm.rank(), count("count", n)?);
    let commutes = this.op.is_commutative();
    let in_place = this.in_place && rank == to;
    // SAFETY: as the body's.
    let buffers = unsafe {
        match rank == to {
            true => this.buffers(sendbuf, recvbuf, n)?,
            false => (this.sent(sendbuf, n)?, Region::empty()),
        }
    };
    let operands = this.operands(n, commutes, in_place);
    let schedule = this.plan(Operation::Reduce, to, operands, |rank, places| {
        plan::reduce(rank, places, to, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

pub(crate) unsafe fn allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe { inter::allreduce(sendbuf, recvbuf, n, datatype, op, comm) };
    }
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let n = count("count", n)?;
    // SAFETY: as the body's.
    let buffers = unsafe { this.buffers(sendbuf, recvbuf, n) }?;
    let operands = this.operands(n, this.op.is_commutative(), this.in_place);
    let schedule = this.plan(Operation::Allreduce, 0, operands, |rank, places| {
        plan::allreduce(rank, places, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

pub(crate) unsafe fn scan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let this = Reduction::new(sendbuf, datatype, op, inter::within(call?, "a scan")?)?;
    let n = count("count", n)?;
    // SAFETY: as the body's.
    let buffers = unsafe { this.buffers(sendbuf, recvbuf, n) }?;
    let operands = this.operands(n, this.op.is_commutative(), this.in_place);
    let schedule =
        this.plan(Operation::Scan, 0, operands, |rank, places| plan::scan(rank, places, operands))?;
    Ok(this.planned(schedule, buffers))
}

pub(crate) unsafe fn exscan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let this = Reduction::new(sendbuf, datatype, op, inter::within(call?, "a scan")?)?;
    let n = count("count", n)?;
    // SAFETY: as the body's.
    let buffers = unsafe { this.buffers(sendbuf, recvbuf, n) }?;
    let operands = this.operands(n, this.op.is_commutative(), this.in_place);
    let schedule = this.plan(Operation::Exscan, 0, operands, |rank, places| {
        plan::exscan(rank, places, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

unsafe fn reduce_scatter_counts(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: &[usize],
    uniform: bool,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    if comm.halves().is_some() {
        // SAFETY: as the body's.
        return unsafe { inter::reduce_scatter(sendbuf, recvbuf, counts, datatype, op, comm) };
    }
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let rank = this.comm.rank();
    let total: usize = counts.iter().sum();
    let own = counts[rank as usize];
    let operands = this.operands(own, this.op.is_commutative(), this.in_place);
    let make = |rank, places: &Topology| {
        let counts = |rank: u32| counts[rank as usize] as u64;
        let schedule =
            plan::reduce_scatter(rank, places, &counts, operands.element, operands.commutes);
        if operands.in_place { schedule.in_place(total as u64) } else { schedule }
    };
    let schedule = match uniform {
        true => this.plan(Operation::ReduceScatterBlock, 0, operands, make)?,
        false => {
            this.tell(Operation::ReduceScatter, None, Some(total as u64 * operands.element));
            Arc::new(make(rank, this.comm.places()?))
        }
    };
    // SAFETY: as the body's.
    unsafe {
        if this.in_place {
            let output = this.received(recvbuf, total)?;
            let Reduction { comm, datatype, handle, op, .. } = this;
            let elements = Elements { input: Region::empty(), output, datatype, handle, op };
            return Ok(comm.elements(schedule, elements.with_own_input(total as u64)));
        }
        let output = this.received(recvbuf, own)?;
        let input = this.sent(sendbuf, total)?;
        this.check_distinct((&input, total), (&output, own))?;
        Ok(this.planned(schedule, (input, output)))
    }
}

pub(crate) unsafe fn reduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: Ints,
    datatype: RawHandle,
    op: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    // SAFETY: as the body's.
    unsafe {
        let counts = counts.read_counts(inter::local_size(&comm) as usize)?;
        reduce_scatter_counts(sendbuf, recvbuf, &counts, false, datatype, op, comm)
    }
}

pub(crate) unsafe fn reduce_scatter_block(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    call: Result<Call>,
) -> Result<Collective> {
    let comm = call?;
    let counts = vec![count("recvcount", n)?; inter::local_size(&comm) as usize];
    // SAFETY: as the body's.
    unsafe { reduce_scatter_counts(sendbuf, recvbuf, &counts, true, datatype, op, comm) }
}
