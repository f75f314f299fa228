//! Predicted times of every operation on grids of up to 16384 ranks on up to 16 sites, as a
//! snapshot: a change is a readable difference. Each row has the closed form, the least that
//! distance and bytes allow, and the simulation if it is fast enough.
//!
//! `UPDATE_EXPECT=1 cargo test -p plan --test it curves` writes the snapshot.

use std::fmt::Write;

use expect_test::expect_file;
use plan::{Call, Costs, Location, Operation, Topology, predict};

use crate::planned::{call_of, planned};

/// Makes sites of equal numbers of nodes of 16 ranks, or of fewer.
fn grid(ranks: u32, sites: u32) -> Topology {
    let node = (ranks / sites).min(16);
    let location = |rank: u32| Location { node: rank / node, site: rank / (ranks / sites) };
    let locations: Vec<Location> = (0..ranks).map(location).collect();
    Topology::new(&locations, false, Costs::default())
}

/// Returns a lower bound for an operation. It counts one message over the greatest distance, and
/// the bytes that some rank, some node's network, or the path between two sites must carry.
fn bound_ns(call: &Call, topology: &Topology) -> u64 {
    let Costs { node, site, wide, .. } = *topology.costs();
    let (ranks, sites) = (u64::from(topology.size()), u64::from(topology.sites()));
    let nodes = u64::from(topology.nodes());
    let (on_node, on_site) = (ranks / nodes, ranks / sites);
    let bytes = call.bytes;
    // Bytes that a rank must receive or send, that its node must, and that one site must send to
    // another.
    let (rank, network, between) = match call.operation {
        Operation::Barrier => (0, 0, 0),
        Operation::Broadcast
        | Operation::Reduce
        | Operation::Allreduce
        | Operation::Scan
        | Operation::Exscan => (bytes, bytes, bytes),
        Operation::ReduceScatter => (bytes - bytes / ranks, bytes - bytes / nodes, bytes / sites),
        Operation::Gather | Operation::Scatter | Operation::Allgather => {
            ((ranks - 1) * bytes, (ranks - on_node) * bytes, on_site * bytes)
        }
        Operation::Alltoall => {
            let foreign = ranks - on_node;
            ((ranks - 1) * bytes, on_node * foreign * bytes, on_site * on_site * bytes)
        }
    };
    let near_ns = node.latency_ns + node.stream_ns(rank);
    if nodes == 1 {
        return near_ns;
    }
    let far_ns = site.latency_ns + site.stream_ns(network);
    if sites == 1 {
        return far_ns.max(near_ns);
    }
    (wide.latency_ns + wide.stream_ns(between)).max(far_ns)
}

/// Maximum number of ranks that are simulated in less than a tenth of a second.
fn simulated_ranks(operation: Operation) -> u32 {
    match operation {
        Operation::Allgather | Operation::Alltoall | Operation::ReduceScatter => 128,
        Operation::Barrier
        | Operation::Broadcast
        | Operation::Gather
        | Operation::Scatter
        | Operation::Reduce
        | Operation::Allreduce
        | Operation::Scan
        | Operation::Exscan => 1024,
    }
}

fn table() -> String {
    let mut text = String::from(
        "# operation bytes ranks x sites: algorithm, ms predicted, times the least; ms simulated, times the prediction\n",
    );
    for operation in Operation::ALL {
        for bytes in [8, 64 << 10, 1 << 20] {
            if operation == Operation::Barrier && bytes > 8 {
                continue;
            }
            for (ranks, sites) in GRIDS {
                // No rank has 16 GiB for it.
                let is_of_all = matches!(operation, Operation::Allgather | Operation::Alltoall);
                if is_of_all && bytes * u64::from(ranks) >= 16 << 30 {
                    continue;
                }
                let (call, _) = call_of(
                    operation,
                    if operation == Operation::Barrier { 0 } else { bytes },
                    true,
                );
                let topology = &grid(ranks, sites);
                let choice = topology.choice(&call);
                let predicted_ns = topology.predicted_ns(&call, choice).unwrap();
                let bound_ns = bound_ns(&call, topology);
                assert!(
                    predicted_ns + predicted_ns / 50 >= bound_ns,
                    "{operation} of {bytes} by {choice} on {ranks} x {sites}: {predicted_ns} of {bound_ns}"
                );
                let _ = write!(
                    text,
                    "{operation:<14} {:>7} {ranks:>5} x {sites:<2}  {choice:<13} {:>12.3} {:>8.2}",
                    call.bytes,
                    predicted_ns as f64 * 1e-6,
                    predicted_ns as f64 / bound_ns as f64
                );
                if ranks <= simulated_ranks(operation) {
                    let (_, unit, schedules) = planned(operation, call.bytes, true, topology);
                    let simulated_ns = predict(&schedules, topology, unit).time_ns;
                    let ratio = simulated_ns as f64 / predicted_ns as f64;
                    let _ = write!(text, " {:>12.3} {ratio:>8.2}", simulated_ns as f64 * 1e-6);
                }
                text.push('\n');
            }
        }
    }
    text
}

#[test]
fn curves_match_the_snapshot() {
    expect_file!["./curves.txt"].assert_eq(&table());
}

const GRIDS: [(u32, u32); 12] = [
    (16, 1),
    (16, 2),
    (16, 16),
    (128, 1),
    (128, 4),
    (1024, 1),
    (1024, 2),
    (1024, 16),
    (4096, 4),
    (16384, 1),
    (16384, 4),
    (16384, 16),
];
