//! Operations that combine data (MPI-5.0 §6.9 to §6.12).

use super::*;

/// The memory from the lowest byte of `count` elements' data to the highest, gaps included: what
/// reduction functions are given.
#[inline(always)]
pub(crate) fn elements(
    name: &'static str,
    address: Address,
    count: usize,
    datatype: &Datatype,
) -> Result<Region> {
    let data = region(&Names::new(name, "count", "datatype"), address, count, datatype)?;
    if datatype.layout().is_contiguous() {
        return Ok(data);
    }
    let Some((lowest, bytes)) = datatype.reach(count) else {
        let text = format!("count = {count} elements exceed memory");
        return Err(class(ErrorClass::Count, text));
    };
    Ok(address.bytes(lowest, bytes))
}

/// Checks that the data of two buffers of so many elements lie apart. Data of one may lie in the other's gaps.
#[inline]
pub(crate) fn check_data_distinct(
    datatype: &Datatype,
    names: [&str; 2],
    buffers: [(&Region, usize); 2],
) -> Result<()> {
    match overlap(buffers[0].0, buffers[1].0) {
        None => Ok(()),
        Some(_) => check_between_gaps(datatype, names, buffers),
    }
}

#[cold]
fn check_between_gaps(
    datatype: &Datatype,
    names: [&str; 2],
    buffers: [(&Region, usize); 2],
) -> Result<()> {
    let data = |(whole, count): (&Region, usize)| {
        let (lowest, _) = datatype.reach(count)?;
        whole.typed(-lowest, count, datatype.layout())
    };
    let [Some(sent), Some(received)] = buffers.map(data) else { return Ok(()) };
    distinct(names[0], &sent, names[1], &received)
}

fn shape_of(operation: Routine, operands: Operands) -> Shape {
    let Operands { len, element, commutes, is_exact, in_place } = operands;
    let shape = Shape::of(operation).with_len(len);
    Shape { element, commutes, is_exact, in_place, ..shape }
}

/// Checked arguments of a reduction, and the memory of its buffers.
pub(super) struct Reduction {
    pub comm: Call,
    pub datatype: Cow<'static, Datatype>,
    pub handle: u64,
    pub op: datatype::Op,
    pub in_place: bool,
}

impl Reduction {
    /// Checks the arguments of a reduction of so many elements.
    #[inline(always)]
    pub fn new(
        sendbuf: Address,
        elements: usize,
        datatype: RawHandle,
        op: RawHandle,
        comm: Call,
    ) -> Result<Self> {
        let kind = committed_for("datatype", datatype, elements)?;
        let op = crate::op::checked(op, &kind, elements)?;
        let in_place = sendbuf.is_in_place();
        Ok(Self { comm, datatype: kind, handle: datatype as u64, op, in_place })
    }

    /// Sum of the parts of a `reduce_scatter`, in elements.
    pub fn total(&self, name: &str, counts: &[usize]) -> Result<usize> {
        let total = counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count));
        let bytes = total.and_then(|total| total.checked_mul(self.datatype.size()));
        match (total, bytes) {
            (Some(total), Some(bytes)) if bytes <= isize::MAX as usize => Ok(total),
            _ => Err(class(ErrorClass::Count, format!("{name}: all parts exceed memory"))),
        }
    }

    pub fn element(&self) -> u64 {
        self.datatype.size() as u64
    }

    #[inline]
    pub fn operands(&self, len: usize, in_place: bool) -> Operands {
        Operands {
            len: len as u64,
            element: self.element(),
            commutes: self.op.is_commutative(),
            is_exact: self.op.is_exact_for(&self.datatype),
            in_place,
        }
    }

    #[inline]
    pub fn sent(&self, sendbuf: Address, count: usize) -> Result<Region> {
        elements("sendbuf", sendbuf, count, &self.datatype)
    }

    #[inline]
    pub fn received(&self, recvbuf: Address, count: usize) -> Result<Region> {
        elements("recvbuf", recvbuf, count, &self.datatype)
    }

    /// Input and output, as many elements each.
    #[inline]
    pub fn buffers(
        &self,
        sendbuf: Address,
        recvbuf: Address,
        count: usize,
    ) -> Result<(Region, Region)> {
        let input = if self.in_place { Region::empty() } else { self.sent(sendbuf, count)? };
        let output = self.received(recvbuf, count)?;
        if !self.in_place {
            self.check_distinct((&input, count), (&output, count))?;
        }
        Ok((input, output))
    }

    /// Checks that what is sent and what is received lie apart.
    #[inline]
    pub fn check_distinct(&self, input: (&Region, usize), output: (&Region, usize)) -> Result<()> {
        check_data_distinct(&self.datatype, ["sendbuf", "recvbuf"], [input, output])
    }

    #[inline]
    pub fn note_arguments(&self, operation: Routine, root: Option<u32>, bytes: Option<u64>) {
        self.comm.note_arguments(|| {
            // The application's own may be called otherwise elsewhere.
            let op = match &self.op {
                datatype::Op::Predefined(op) => Some(format!("{op:?}")),
                datatype::Op::User { .. } => None,
            };
            CallArguments::new(operation, root, bytes, op.as_deref())
        });
    }

    /// A plan for these operands.
    #[inline]
    pub fn plan(
        &self,
        operation: Routine,
        root: u32,
        operands: Operands,
        make: impl FnOnce(u32, &Topology) -> Schedule,
    ) -> Arc<Schedule> {
        let has_root = operation == Routine::Reduce;
        let bytes = operands.len * operands.element;
        self.note_arguments(operation, has_root.then_some(root), Some(bytes));
        self.comm.plan(Shape { root, ..shape_of(operation, operands) }, make)
    }

    #[inline]
    pub fn planned(self, schedule: Arc<Schedule>, (input, output): (Region, Region)) -> Collective {
        let Self { comm, datatype, handle, op, .. } = self;
        comm.elements(schedule, Elements { input, output, datatype, handle, op })
    }
}

pub(crate) fn reduce(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    to: c_int,
    comm: Call,
) -> Result<Collective> {
    if comm.halves().is_some() {
        return inter::reduce(sendbuf, recvbuf, n, datatype, op, to, comm);
    }
    let n = count("count", n)?;
    let this = Reduction::new(sendbuf, n, datatype, op, comm)?;
    let to = root(&this.comm, to)?;
    let rank = this.comm.rank();
    let in_place = this.in_place && rank == to;
    let buffers = match rank == to {
        true => this.buffers(sendbuf, recvbuf, n)?,
        false => (this.sent(sendbuf, n)?, Region::empty()),
    };
    let operands = this.operands(n, in_place);
    let schedule = this.plan(Routine::Reduce, to, operands, |rank, places| {
        plan::reduce(rank, places, to, operands)
    });
    Ok(this.planned(schedule, buffers))
}

pub(crate) fn allreduce(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    if comm.halves().is_some() {
        return inter::allreduce(sendbuf, recvbuf, n, datatype, op, comm);
    }
    let n = count("count", n)?;
    let this = Reduction::new(sendbuf, n, datatype, op, comm)?;
    let buffers = this.buffers(sendbuf, recvbuf, n)?;
    let operands = this.operands(n, this.in_place);
    let schedule = this.plan(Routine::Allreduce, 0, operands, |rank, places| {
        plan::allreduce(rank, places, operands)
    });
    Ok(this.planned(schedule, buffers))
}

pub(crate) fn scan(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let n = count("count", n)?;
    let this = Reduction::new(sendbuf, n, datatype, op, inter::within(comm, "a scan")?)?;
    let buffers = this.buffers(sendbuf, recvbuf, n)?;
    let operands = this.operands(n, this.in_place);
    let schedule =
        this.plan(Routine::Scan, 0, operands, |rank, places| plan::scan(rank, places, operands));
    Ok(this.planned(schedule, buffers))
}

pub(crate) fn exscan(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let n = count("count", n)?;
    let this = Reduction::new(sendbuf, n, datatype, op, inter::within(comm, "a scan")?)?;
    // The first rank has nothing to receive (MPI-5.0 §6.11.2).
    let buffers = match this.comm.rank() {
        0 if !this.in_place => (this.sent(sendbuf, n)?, Region::empty()),
        _ => this.buffers(sendbuf, recvbuf, n)?,
    };
    let operands = this.operands(n, this.in_place);
    let schedule = this
        .plan(Routine::Exscan, 0, operands, |rank, places| plan::exscan(rank, places, operands));
    Ok(this.planned(schedule, buffers))
}

fn reduce_scatter_counts(
    sendbuf: Address,
    recvbuf: Address,
    counts: &[usize],
    is_block: bool,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let name = if is_block { "recvcount" } else { "recvcounts" };
    if comm.halves().is_some() {
        return inter::reduce_scatter(sendbuf, recvbuf, (name, counts), datatype, op, comm);
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let this = Reduction::new(sendbuf, most, datatype, op, comm)?;
    let rank = this.comm.rank();
    let total = this.total(name, counts)?;
    let own = counts[rank as usize];
    let operands = this.operands(own, this.in_place);
    let make = |rank, places: &Topology| {
        let counts = |rank: u32| counts[rank as usize] as u64;
        let schedule = plan::reduce_scatter(rank, places, &counts, operands);
        if operands.in_place { schedule.in_place(total as u64) } else { schedule }
    };
    let schedule = if is_block || counts.iter().all(|count| *count == own) {
        let (block, any) = (Routine::ReduceScatterBlock, Routine::ReduceScatter);
        this.plan(if is_block { block } else { any }, 0, operands, make)
    } else {
        this.note_arguments(Routine::ReduceScatter, None, Some(total as u64 * operands.element));
        let counts: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
        let shape = shape_of(Routine::ReduceScatter, operands);
        this.comm.plan_listed(shape, [&[], &counts], make)
    };
    if this.in_place {
        let output = this.received(recvbuf, total)?;
        let Reduction { comm, datatype, handle, op, .. } = this;
        let elements = Elements { input: Region::empty(), output, datatype, handle, op };
        let full = || class(ErrorClass::NoMem, format!("{name}: no memory for {total} elements"));
        let elements = elements.with_own_input(total as u64).ok_or_else(full)?;
        return Ok(comm.elements(schedule, elements));
    }
    let output = this.received(recvbuf, own)?;
    let input = this.sent(sendbuf, total)?;
    this.check_distinct((&input, total), (&output, own))?;
    Ok(this.planned(schedule, (input, output)))
}

pub(crate) fn reduce_scatter(
    sendbuf: Address,
    recvbuf: Address,
    counts: Ints<'_>,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let counts = counts.all(inter::local_size(&comm) as usize)?.counts()?;
    reduce_scatter_counts(sendbuf, recvbuf, &counts, false, datatype, op, comm)
}

pub(crate) fn reduce_scatter_block(
    sendbuf: Address,
    recvbuf: Address,
    n: i64,
    datatype: RawHandle,
    op: RawHandle,
    comm: Call,
) -> Result<Collective> {
    let counts = vec![count("recvcount", n)?; inter::local_size(&comm) as usize];
    reduce_scatter_counts(sendbuf, recvbuf, &counts, true, datatype, op, comm)
}
