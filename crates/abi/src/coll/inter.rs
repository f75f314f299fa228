//! Collectives between two groups (MPI-5.0 §6.2.2). Nothing of them works in place.

use plan::{Groups, Role};

use super::*;

/// The groups of a call on an intercommunicator.
fn groups(comm: &Call) -> Result<&Groups> {
    comm.halves().ok_or_else(mpi::inter::not_inter)
}

/// What this process is where `root` is the argument: `MPI_ROOT`, `MPI_PROC_NULL` or a rank of the other group.
fn role(comm: &Call, root: c_int) -> Result<Role> {
    let remote = &groups(comm)?.remote;
    match u32::try_from(root) {
        Ok(rank) if (rank as usize) < remote.len() => Ok(Role::Partner(remote.start + rank)),
        _ if root == ROOT => Ok(Role::Root),
        _ if root == PROC_NULL => Ok(Role::Idle),
        _ => {
            let text = format!(
                "root = {root} is neither MPI_ROOT nor MPI_PROC_NULL, and outside a remote group of {}",
                remote.len()
            );
            Err(class(ErrorClass::Root, text))
        }
    }
}

/// The shape of an operation with a root.
fn shape(operation: Operation, role: Role) -> Shape {
    let root = match role {
        Role::Root => u32::MAX,
        Role::Idle => u32::MAX - 1,
        Role::Partner(root) => root,
    };
    Shape { root, ..Shape::of(operation) }
}

/// Says what calls are compared by: the root, as a rank of both groups, by those that know it. Lengths differ
/// between the groups.
fn tell(comm: &Call, operation: Operation, role: Option<Role>) {
    let root = match role {
        Some(Role::Root) => Some(comm.rank()),
        Some(Role::Partner(root)) => Some(root),
        Some(Role::Idle) | None => None,
    };
    comm.tell(|| Told::new(operation, root, None, None));
}

/// Takes no part.
fn idle(comm: Call) -> Collective {
    comm.bytes(Schedule::default(), Region::empty(), Region::empty())
}

fn one_group_only(operation: &str) -> Error {
    let text = format!("comm: {operation} is not defined on an intercommunicator");
    class(ErrorClass::Comm, text)
}

pub(super) unsafe fn bcast(
    buf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let role = role(&comm, root)?;
    tell(&comm, Operation::Bcast, Some(role));
    if role == Role::Idle {
        return Ok(idle(comm));
    }
    // SAFETY: as the body's.
    let data = unsafe { buffer(&BUFFER, buf, n, datatype) }?;
    let (len, groups) = (data.len() as u64, groups(&comm)?);
    let shape = shape(Operation::Bcast, role).with_len(len);
    let schedule = comm.plan(shape, |rank, places| groups.broadcast(rank, places, role, len))?;
    Ok(comm.bytes(schedule, Region::empty(), data))
}

pub(super) unsafe fn gather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    placement: Placement,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let (role, size) = (role(&comm, root)?, remote_size(&comm));
    tell(&comm, Operation::Gather, Some(role));
    // SAFETY: as the body's.
    let (input, output, sizes) = unsafe {
        match role {
            Role::Idle => return Ok(idle(comm)),
            Role::Root => {
                check_disjoint(placement, size)?;
                let blocks = Blocks::new(&RECV, recvbuf, placement, recvtype, size)?;
                (Region::empty(), blocks.stream, blocks.sizes)
            }
            Role::Partner(_) => {
                let input = buffer(&SEND, sendbuf, sendcount, sendtype)?;
                let own = input.len() as u64;
                (input, Region::empty(), vec![own])
            }
        }
    };
    let schedule = groups(&comm)?.gather(comm.rank(), comm.places()?, role, &sizes);
    Ok(comm.bytes(schedule, input, output))
}

pub(super) unsafe fn scatter(
    sendbuf: *const c_void,
    placement: Placement,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let (role, size) = (role(&comm, root)?, remote_size(&comm));
    tell(&comm, Operation::Scatter, Some(role));
    // SAFETY: as the body's.
    let (input, output, sizes) = unsafe {
        match role {
            Role::Idle => return Ok(idle(comm)),
            Role::Root => {
                let blocks = Blocks::new(&SEND, sendbuf, placement, sendtype, size)?;
                (blocks.stream, Region::empty(), blocks.sizes)
            }
            Role::Partner(_) => {
                let output = buffer(&RECV, recvbuf, recvcount, recvtype)?;
                let own = output.len() as u64;
                (Region::empty(), output, vec![own])
            }
        }
    };
    let schedule = groups(&comm)?.scatter(comm.rank(), comm.places()?, role, &sizes);
    Ok(comm.bytes(schedule, input, output))
}

pub(super) unsafe fn allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: *mut c_void,
    placement: Placement,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    tell(&comm, Operation::Allgather, None);
    let size = remote_size(&comm);
    // SAFETY: as the body's.
    let (input, blocks) = unsafe {
        check_disjoint(placement, size)?;
        (
            buffer(&SEND, sendbuf, sendcount, sendtype)?,
            Blocks::new(&RECV, recvbuf, placement, recvtype, size)?,
        )
    };
    distinct("sendbuf", &input, "recvbuf", &blocks.stream)?;
    let own = input.len() as u64;
    let schedule = groups(&comm)?.allgather(comm.rank(), comm.places()?, own, &blocks.sizes);
    Ok(comm.bytes(schedule, input, blocks.stream))
}

pub(super) fn alltoall(comm: Call, sends: Blocks, receives: Blocks) -> Result<Collective> {
    tell(&comm, Operation::Alltoall, None);
    distinct("sendbuf", &sends.stream, "recvbuf", &receives.stream)?;
    let schedule = groups(&comm)?.alltoall(&sends.sizes, &receives.sizes);
    Ok(comm.bytes(schedule, sends.stream, receives.stream))
}

impl Reduction {
    /// The plan of a reduction between groups for these operands.
    fn plan_between(
        &self,
        shape: Shape,
        operands: Operands,
        make: impl FnOnce(&Groups, u32, &Topology) -> Schedule,
    ) -> Result<Arc<Schedule>> {
        let Operands { len, element, commutes, in_place } = operands;
        let groups = groups(&self.comm)?;
        let shape = Shape { len, element, commutes, in_place, ..shape };
        self.comm.plan(shape, |rank, places| make(groups, rank, places))
    }
}

pub(super) unsafe fn reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let role = role(&comm, root)?;
    tell(&comm, Operation::Reduce, Some(role));
    if role == Role::Idle {
        return Ok(idle(comm));
    }
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let n = count("count", n)?;
    // SAFETY: as the body's.
    let buffers = unsafe {
        match role {
            Role::Root => (Region::empty(), this.received(recvbuf, n)?),
            Role::Idle | Role::Partner(_) => (this.sent(sendbuf, n)?, Region::empty()),
        }
    };
    let operands = this.operands(n, this.op.is_commutative(), false);
    let shape = shape(Operation::Reduce, role);
    let schedule = this.plan_between(shape, operands, |groups, rank, places| {
        groups.reduce(rank, places, role, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

pub(super) unsafe fn allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    tell(&comm, Operation::Allreduce, None);
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let n = count("count", n)?;
    // SAFETY: as the body's.
    let buffers = unsafe { (this.sent(sendbuf, n)?, this.received(recvbuf, n)?) };
    this.check_distinct((&buffers.0, n), (&buffers.1, n))?;
    let operands = this.operands(n, this.op.is_commutative(), false);
    let shape = Shape::of(Operation::Allreduce);
    let schedule = this.plan_between(shape, operands, |groups, rank, places| {
        groups.allreduce(rank, places, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

/// `counts` are the parts of this group; both groups' come to the same sum (MPI-5.0 §6.10).
pub(super) unsafe fn reduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: &[usize],
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    tell(&comm, Operation::ReduceScatter, None);
    let this = Reduction::new(sendbuf, datatype, op, comm)?;
    let groups = groups(&this.comm)?;
    let total: usize = counts.iter().sum();
    let own = counts[(this.comm.rank() - groups.local.start) as usize];
    // SAFETY: as the body's.
    let buffers = unsafe { (this.sent(sendbuf, total)?, this.received(recvbuf, own)?) };
    this.check_distinct((&buffers.0, total), (&buffers.1, own))?;
    let operands = this.operands(total, this.op.is_commutative(), false);
    let counts: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
    let schedule = groups.reduce_scatter(this.comm.rank(), this.comm.places()?, &counts, operands);
    Ok(this.planned(Arc::new(schedule), buffers))
}

/// How many processes this call's own counts are for: the whole group, or this one of two.
pub(super) fn local_size(comm: &Call) -> u32 {
    comm.halves().map_or(comm.size(), |groups| groups.local.len() as u32)
}

/// Checks that the communicator has one group.
pub(super) fn within(comm: Call, operation: &str) -> Result<Call> {
    if comm.halves().is_some() { Err(one_group_only(operation)) } else { Ok(comm) }
}

/// `MPI_ROOT`.
const ROOT: c_int = -4;
