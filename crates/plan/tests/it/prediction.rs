//! Predicted times of collectives, compared with the least that distance and bytes allow.

use plan::{Costs, Location, Operands, Prediction, Schedule, Topology, predict};

/// Two sites of two nodes with two ranks each.
fn grid() -> Topology {
    let locations: Vec<Location> =
        (0..8).map(|rank| Location { node: rank / 2, site: rank / 4 }).collect();
    Topology::new(&locations, false, Costs::default())
}

fn of(topology: &Topology, unit: u64, schedule: impl Fn(u32) -> Schedule) -> Prediction {
    let schedules: Vec<Schedule> = (0..topology.size()).map(schedule).collect();
    predict(&schedules, topology, unit)
}

/// Minimum load of an operation: bytes from one site to the other, and bytes in or out of some
/// node. Those that do not cross may pass while the others are in flight.
#[derive(Clone, Copy)]
struct Least {
    crosses: u64,
    passes_a_node: u64,
}

impl Least {
    /// Makes a load with as many of both.
    fn of(bytes: u64) -> Self {
        Self { crosses: bytes, passes_a_node: bytes }
    }

    fn ns(self) -> u64 {
        let Costs { site, wide, .. } = Costs::default();
        let crossing_ns = wide.latency_ns + wide.stream_ns(self.crosses);
        crossing_ns.max(site.latency_ns + site.stream_ns(self.passes_a_node))
    }
}

fn check(what: &str, found: Prediction, least: Least, most: f64) {
    let ratio = found.time_ns as f64 / least.ns() as f64;
    println!("{what}: {} us, {ratio:.3} of the least, {found:?}", found.time_ns / 1000);
    assert!(found.time_ns >= least.ns(), "{what} beats distance and bytes: {found:?}");
    assert!(ratio <= most, "{what}: {ratio:.3} of the least, more than {most}");
}

#[test]
fn short_ones_take_one_crossing() {
    let grid = grid();
    let operands = Operands { len: 1, element: 8, commutes: true, is_exact: true, in_place: false };
    let all = [
        ("barrier", of(&grid, 1, |rank| plan::barrier(rank, &grid))),
        ("broadcast", of(&grid, 1, |rank| plan::broadcast(rank, &grid, 0, 8))),
        ("reduce", of(&grid, 8, |rank| plan::reduce(rank, &grid, 3, operands))),
        ("allreduce", of(&grid, 8, |rank| plan::allreduce(rank, &grid, operands))),
        ("scan", of(&grid, 8, |rank| plan::scan(rank, &grid, operands))),
        ("allgather", of(&grid, 1, |rank| plan::allgather(rank, &grid, &|_| 8, false))),
        ("alltoall", of(&grid, 1, |rank| plan::alltoall(rank, &grid, &|_| 8, &|_| 8, true))),
        ("gather", of(&grid, 1, |rank| plan::gather(rank, &grid, 5, &|_| 8, true, false))),
        ("scatter", of(&grid, 1, |rank| plan::scatter(rank, &grid, 5, &|_| 8, true, false))),
    ];
    for (what, found) in all {
        check(what, found, Least::of(0), 1.04);
    }
}

#[test]
fn long_ones_take_little_more_than_their_bytes() {
    let grid = grid();
    for (bytes, most) in
        [(64 << 10, 1.1), (256 << 10, 1.2), (1 << 20, 1.35), (16 << 20, 1.55), (256 << 20, 1.55)]
    {
        let operands = Operands {
            len: bytes / 8,
            element: 8,
            commutes: true,
            is_exact: true,
            in_place: false,
        };
        let found = of(&grid, 1, |rank| plan::broadcast(rank, &grid, 2, bytes));
        assert_eq!(found.wide_bytes, bytes);
        check(&format!("broadcast of {bytes} bytes"), found, Least::of(bytes), 1.1);
        let found = of(&grid, 8, |rank| plan::allreduce(rank, &grid, operands));
        assert_eq!(found.wide_bytes, 2 * bytes);
        // Every byte of the result takes three messages on the networks of two nodes. They are an
        // operand from one node of a site to the other, one crossing, and the result back.
        let least = Least { crosses: bytes, passes_a_node: bytes * 3 / 2 };
        check(&format!("allreduce of {bytes} bytes"), found, least, 1.15);
        let found = of(&grid, 8, |rank| plan::reduce(rank, &grid, 0, operands));
        assert_eq!(found.wide_bytes, bytes);
        check(&format!("reduce of {bytes} bytes"), found, Least::of(bytes), most);
    }
}

#[test]
fn long_blocks_take_little_more_than_their_bytes() {
    let grid = grid();
    for bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20] {
        // The four ranks of a site send across, and some node receives or sends the blocks of all
        // ranks but its two.
        let least = Least { crosses: 4 * bytes, passes_a_node: 6 * bytes };
        let found = of(&grid, 1, |rank| plan::allgather(rank, &grid, &|_| bytes, false));
        assert_eq!(found.wide_bytes, 2 * 4 * bytes);
        check(&format!("allgather of {bytes} bytes"), found, least, 1.2);
        let found = of(&grid, 1, |rank| plan::gather(rank, &grid, 5, &|_| bytes, true, false));
        assert_eq!(found.wide_bytes, 4 * bytes);
        check(&format!("gather of {bytes} bytes"), found, least, 1.02);
        let found = of(&grid, 1, |rank| plan::scatter(rank, &grid, 5, &|_| bytes, true, false));
        assert_eq!(found.wide_bytes, 4 * bytes);
        check(&format!("scatter of {bytes} bytes"), found, least, 1.02);
    }
}

/// A node passes data on within it while the rest arrives, and no two nodes send to the same one at
/// a time.
#[test]
fn long_blocks_fill_the_networks_of_all_nodes_of_a_site() {
    for nodes in [2, 3, 4, 8] {
        let locations: Vec<Location> =
            (0..2 * nodes).map(|rank| Location { node: rank / 2, site: 0 }).collect();
        let site = Topology::new(&locations, false, Costs::default());
        for bytes in [64 << 10, 1 << 20] {
            let found = of(&site, 1, |rank| plan::allgather(rank, &site, &|_| bytes, false));
            let least_ns = Costs::default().site.stream_ns(u64::from(2 * (nodes - 1)) * bytes);
            let ratio = found.time_ns as f64 / least_ns as f64;
            println!("{bytes} bytes on {nodes} nodes: {ratio:.3} of the least");
            assert!((1.0..=1.08).contains(&ratio), "{bytes} bytes on {nodes} nodes: {ratio:.3}");
        }
    }
}

/// Each node combines a part for all: its operands leave it once, and the result of its part.
#[test]
fn a_long_allreduce_leaves_each_node_of_a_site_twice() {
    for nodes in [3, 4, 8] {
        let locations: Vec<Location> =
            (0..2 * nodes).map(|rank| Location { node: rank / 2, site: 0 }).collect();
        let site = Topology::new(&locations, false, Costs::default());
        for (bytes, most) in [(64 << 10, 1.45), (1 << 20, 1.05)] {
            let (len, element) = (bytes / 8, 8);
            let (commutes, is_exact, in_place) = (true, false, false);
            let operands = Operands { len, element, commutes, is_exact, in_place };
            let found = of(&site, 8, |rank| plan::allreduce(rank, &site, operands));
            let sent = 2 * u64::from(nodes - 1) * bytes / u64::from(nodes);
            let ratio = found.time_ns as f64 / Costs::default().site.stream_ns(sent) as f64;
            println!("{bytes} bytes on {nodes} nodes: {ratio:.3} of the least");
            assert!((1.0..=most).contains(&ratio), "{bytes} bytes on {nodes} nodes: {ratio:.3}");
        }
    }
}

/// Uses a thousand ranks. A rank's work for short data depends only on the number of its followers,
/// and segments of long data do not wait for each other.
#[test]
fn large_grids_are_planned_as_small_ones() {
    let (nodes, ranks) = (16, 16);
    let locations: Vec<Location> = (0..1024)
        .map(|rank| Location { node: rank / ranks, site: rank / (nodes * ranks) })
        .collect();
    let grid = Topology::new(&locations, false, Costs::default());
    let short = Operands { len: 1, element: 8, commutes: true, is_exact: true, in_place: false };
    let all = |make: &dyn Fn(u32) -> Schedule| (0..grid.size()).map(make).collect::<Vec<_>>();
    for schedules in [
        all(&|rank| plan::barrier(rank, &grid)),
        all(&|rank| plan::broadcast(rank, &grid, 700, 8)),
        all(&|rank| plan::reduce(rank, &grid, 700, short)),
        all(&|rank| plan::allreduce(rank, &grid, short)),
    ] {
        let most = schedules.iter().map(|schedule| schedule.steps.len()).max().unwrap_or(0);
        // For each: a receive, a wait for it, a combination and a send.
        assert!(most as u32 <= 4 * (4 + nodes + ranks), "{most} steps");
        check("a short one of 1024 ranks", predict(&schedules, &grid, 8), Least::of(0), 1.06);
    }
    // Only the root knows all lengths; a message of each rank would be 3 ms of its work.
    let sizes = |rank: u32| u64::from(rank % 9);
    for schedules in [
        all(&|rank| plan::gather(rank, &grid, 700, &sizes, false, false)),
        all(&|rank| plan::scatter(rank, &grid, 700, &sizes, false, false)),
    ] {
        let found = predict(&schedules, &grid, 1);
        assert_eq!(found.wide_messages, 3);
        check("unlike blocks of 1024 ranks", found, Least::of(0), 1.4);
    }
    let long =
        Operands { len: 2 << 20, element: 8, commutes: true, is_exact: true, in_place: false };
    let schedules = all(&|rank| plan::allreduce(rank, &grid, long));
    let found = predict(&schedules, &grid, 8);
    check("allreduce of 16 MB of 1024 ranks", found, Least::of(16 << 20), 2.8);
}
