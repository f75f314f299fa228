//! Collectives between two groups (MPI-5.0 §6.2.2). Nothing of them works in place.

use plan::{Groups, Role};

use super::*;

/// The groups of a call on an intercommunicator.
fn groups(comm: &Call) -> Result<&Groups> {
    comm.halves().ok_or_else(mpi::inter::not_inter)
}

/// Role of this process by the argument `root`: `MPI_ROOT`, `MPI_PROC_NULL` or a rank of the other group.
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
fn shape(operation: Routine, role: Role) -> Shape {
    let root = match role {
        Role::Root => u32::MAX,
        Role::Idle => u32::MAX - 1,
        Role::Partner(root) => root,
    };
    Shape { root, ..Shape::of(operation) }
}

/// The root as a rank of both groups, by those that know it.
fn root_of(comm: &Call, role: Role) -> Option<u32> {
    match role {
        Role::Root => Some(comm.rank()),
        Role::Partner(root) => Some(root),
        Role::Idle => None,
    }
}

/// Records the arguments to compare: the root, if any, and the lengths sent to and expected from each rank of the
/// remote group, or from the root alone.
fn note_arguments(
    comm: &Call,
    operation: Routine,
    role: Option<Role>,
    sends: &[u64],
    expects: &[u64],
) -> Result<()> {
    let first = match role {
        Some(Role::Partner(root)) => root,
        Some(Role::Root | Role::Idle) | None => groups(comm)?.remote.start,
    };
    comm.note_arguments(|| {
        let lengths = Lengths::unknown(comm.size());
        let lengths = lengths.sending((first..).zip(sends.iter().copied()));
        let lengths = lengths.expecting((first..).zip(expects.iter().copied()));
        let root = role.and_then(|role| root_of(comm, role));
        CallArguments::new(operation, root, None, None).with_lengths(lengths)
    });
    Ok(())
}

/// Makes the empty collective of a process that takes no part in an operation.
fn idle(comm: Call, operation: Routine) -> Collective {
    comm.note_arguments(|| CallArguments::new(operation, None, None, None));
    comm.bytes(Schedule::default(), Region::empty(), Region::empty())
}

fn one_group_only(operation: &str) -> Error {
    let text = format!("comm: {operation} is not defined on an intercommunicator");
    class(ErrorClass::Comm, text)
}

pub(super) fn bcast(
    buf: Address,
    n: i64,
    datatype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let role = role(&comm, root)?;
    if role == Role::Idle {
        return Ok(idle(comm, Routine::Bcast));
    }
    let data = buffer(&BUFFER, buf, n, datatype)?;
    let (len, groups) = (data.len() as u64, groups(&comm)?);
    comm.note_arguments(|| {
        CallArguments::new(Routine::Bcast, root_of(&comm, role), Some(len), None)
    });
    let shape = shape(Routine::Bcast, role).with_len(len);
    let schedule = comm.plan(shape, |rank, places| groups.broadcast(rank, places, role, len));
    Ok(comm.bytes(schedule, Region::empty(), data))
}

pub(super) fn gather(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    placement: Placement<'_>,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let (role, size) = (role(&comm, root)?, remote_size(&comm));
    let (input, output, sizes) = match role {
        Role::Idle => return Ok(idle(comm, Routine::Gather)),
        Role::Root => {
            let blocks =
                Blocks::new(&RECV, recvbuf, placement, recvtype, size)?.apart(placement)?;
            (Region::empty(), blocks.stream, blocks.sizes)
        }
        Role::Partner(_) => {
            let input = buffer(&SEND, sendbuf, sendcount, sendtype)?;
            let own = input.len() as u64;
            (input, Region::empty(), vec![own])
        }
    };
    let (sends, expects): (&[u64], &[u64]) = match role {
        Role::Root => (&[], &sizes),
        Role::Partner(_) | Role::Idle => (&sizes, &[]),
    };
    note_arguments(&comm, Routine::Gather, Some(role), sends, expects)?;
    let schedule = groups(&comm)?.gather(comm.rank(), comm.places(), role, &sizes);
    Ok(comm.bytes(schedule, input, output))
}

pub(super) fn scatter(
    sendbuf: Address,
    placement: Placement<'_>,
    sendtype: RawHandle,
    recvbuf: Address,
    recvcount: i64,
    recvtype: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let (role, size) = (role(&comm, root)?, remote_size(&comm));
    let (input, output, sizes) = match role {
        Role::Idle => return Ok(idle(comm, Routine::Scatter)),
        Role::Root => {
            let blocks = Blocks::new(&SEND, sendbuf, placement, sendtype, size)?;
            (blocks.stream, Region::empty(), blocks.sizes)
        }
        Role::Partner(_) => {
            let output = buffer(&RECV, recvbuf, recvcount, recvtype)?;
            let own = output.len() as u64;
            (Region::empty(), output, vec![own])
        }
    };
    let (sends, expects): (&[u64], &[u64]) = match role {
        Role::Root => (&sizes, &[]),
        Role::Partner(_) | Role::Idle => (&[], &sizes),
    };
    note_arguments(&comm, Routine::Scatter, Some(role), sends, expects)?;
    let schedule = groups(&comm)?.scatter(comm.rank(), comm.places(), role, &sizes);
    Ok(comm.bytes(schedule, input, output))
}

pub(super) fn allgather(
    sendbuf: Address,
    sendcount: i64,
    sendtype: RawHandle,
    recvbuf: Address,
    placement: Placement<'_>,
    recvtype: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let size = remote_size(&comm);
    let (input, blocks) = (
        buffer(&SEND, sendbuf, sendcount, sendtype)?,
        Blocks::new(&RECV, recvbuf, placement, recvtype, size)?.apart(placement)?,
    );
    distinct("sendbuf", &input, "recvbuf", &blocks.stream)?;
    let own = input.len() as u64;
    let sends = vec![own; size as usize];
    note_arguments(&comm, Routine::Allgather, None, &sends, &blocks.sizes)?;
    let schedule = groups(&comm)?.allgather(comm.rank(), comm.places(), own, &blocks.sizes);
    Ok(comm.bytes(schedule, input, blocks.stream))
}

pub(super) fn alltoall(comm: Call, sends: Blocks, receives: Blocks) -> Result<Collective> {
    distinct("sendbuf", &sends.stream, "recvbuf", &receives.stream)?;
    note_arguments(&comm, Routine::Alltoall, None, &sends.sizes, &receives.sizes)?;
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
        let Operands { len, element, commutes, is_exact, in_place } = operands;
        let groups = groups(&self.comm)?;
        let shape = Shape { len, element, commutes, is_exact, in_place, ..shape };
        Ok(self.comm.plan(shape, |rank, places| make(groups, rank, places)))
    }
}

pub(super) fn reduce(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    root: c_int,
    comm: Call,
) -> Result<Collective> {
    let role = role(&comm, root)?;
    if role == Role::Idle {
        return Ok(idle(comm, Routine::Reduce));
    }
    let n = count("count", n)?;
    let this = Reduction::new(sendbuf, n, datatype, op, comm)?;
    let buffers = match role {
        Role::Root => (Region::empty(), this.received(recvbuf, n)?),
        Role::Idle | Role::Partner(_) => (this.sent(sendbuf, n)?, Region::empty()),
    };
    let operands = this.operands(n, false);
    this.note_arguments(Routine::Reduce, root_of(&this.comm, role), Some(operands.bytes()));
    let shape = shape(Routine::Reduce, role);
    let schedule = this.plan_between(shape, operands, |groups, rank, places| {
        groups.reduce(rank, places, role, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

pub(super) fn allreduce(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let n = count("count", n)?;
    let this = Reduction::new(sendbuf, n, datatype, op, comm)?;
    let buffers = (this.sent(sendbuf, n)?, this.received(recvbuf, n)?);
    this.check_distinct((&buffers.0, n), (&buffers.1, n))?;
    let operands = this.operands(n, false);
    this.note_arguments(Routine::Allreduce, None, Some(operands.bytes()));
    let shape = Shape::of(Routine::Allreduce);
    let schedule = this.plan_between(shape, operands, |groups, rank, places| {
        groups.allreduce(rank, places, operands)
    })?;
    Ok(this.planned(schedule, buffers))
}

/// `counts` are the parts of this group; both groups' come to the same sum (MPI-5.0 §6.10).
pub(super) fn reduce_scatter(
    sendbuf: Address,
    recvbuf: Address,
    (name, counts): (&str, &[usize]),
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let most = counts.iter().copied().max().unwrap_or(0);
    let this = Reduction::new(sendbuf, most, datatype, op, comm)?;
    let groups = groups(&this.comm)?;
    let total = this.total(name, counts)?;
    let own = counts[(this.comm.rank() - groups.local.start) as usize];
    let buffers = (this.sent(sendbuf, total)?, this.received(recvbuf, own)?);
    this.check_distinct((&buffers.0, total), (&buffers.1, own))?;
    let operands = this.operands(total, false);
    this.note_arguments(Routine::ReduceScatter, None, Some(operands.bytes()));
    let counts: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
    let schedule = groups.reduce_scatter(this.comm.rank(), this.comm.places(), &counts, operands);
    Ok(this.planned(Arc::new(schedule), buffers))
}

/// Number of processes in the counts of this call: the group, or the local group of an intercommunicator.
pub(super) fn local_size(comm: &Call) -> u32 {
    comm.halves().map_or(comm.size(), |groups| groups.local.len() as u32)
}

/// Checks that the communicator has one group.
pub(super) fn within(comm: Call, operation: &str) -> Result<Call> {
    if comm.halves().is_some() { Err(one_group_only(operation)) } else { Ok(comm) }
}

/// `MPI_ROOT`.
const ROOT: c_int = -4;
