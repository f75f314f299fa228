//! Plans of all ranks for a call on ordinary data.

use plan::{Call, Operands, Operation, Schedule, Topology};

/// Returns the call, the bytes of its unit, and the plan of each rank. `is_exact` is true for data
/// that give the same result in any order.
pub fn planned(
    operation: Operation,
    bytes: u64,
    is_exact: bool,
    topology: &Topology,
) -> (Call, u64, Vec<Schedule>) {
    let operands = operands(bytes, is_exact);
    let sizes = |_: u32| bytes;
    let size = topology.size();
    // All of a rank's blocks are equal for operations that take a block of each.
    let counts = |rank: u32| {
        let at = |rank: u32| operands.len * u64::from(rank) / u64::from(size);
        at(rank + 1) - at(rank)
    };
    let plan = |rank: u32| match operation {
        Operation::Barrier => plan::barrier(rank, topology),
        Operation::Broadcast => plan::broadcast(rank, topology, 0, bytes),
        Operation::Gather => plan::gather(rank, topology, 0, &sizes, true, false),
        Operation::Scatter => plan::scatter(rank, topology, 0, &sizes, true, false),
        Operation::Allgather => plan::allgather(rank, topology, &sizes, false),
        Operation::Alltoall => plan::alltoall(rank, topology, &sizes, &sizes, true),
        Operation::Reduce => plan::reduce(rank, topology, 0, operands),
        Operation::Allreduce => plan::allreduce(rank, topology, operands),
        Operation::ReduceScatter => plan::reduce_scatter(rank, topology, &counts, operands),
        Operation::Scan => plan::scan(rank, topology, operands),
        Operation::Exscan => plan::exscan(rank, topology, operands),
    };
    let (call, unit) = call_of(operation, bytes, is_exact);
    (call, unit, (0..size).map(plan).collect())
}

/// Returns the call, and the bytes of its unit.
pub fn call_of(operation: Operation, bytes: u64, is_exact: bool) -> (Call, u64) {
    match operation {
        Operation::Barrier | Operation::Allgather | Operation::Alltoall => {
            (Call::of(operation, bytes), 1)
        }
        Operation::Broadcast | Operation::Gather | Operation::Scatter => {
            (Call::of(operation, bytes).with_root(0), 1)
        }
        Operation::Reduce => (operands(bytes, is_exact).call(operation).with_root(0), 8),
        Operation::Allreduce | Operation::ReduceScatter | Operation::Scan | Operation::Exscan => {
            (operands(bytes, is_exact).call(operation), 8)
        }
    }
}

fn operands(bytes: u64, is_exact: bool) -> Operands {
    Operands { len: bytes / 8, element: 8, commutes: true, is_exact, in_place: false }
}
