//! What collectives are predicted to take, beside the least that distance and bytes allow.

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

/// One crossing, and the bytes that two sites exchange.
fn bound_ns(bytes: u64) -> u64 {
    let wide = Costs::default().wide;
    wide.latency_ns + wide.stream_ns(bytes)
}

fn check(what: &str, found: Prediction, bytes: u64, most: f64) {
    let ratio = found.time_ns as f64 / bound_ns(bytes) as f64;
    println!("{what}: {} us, {ratio:.3} of the least, {found:?}", found.time_ns / 1000);
    assert!(found.time_ns >= bound_ns(bytes), "{what} beats distance and bytes: {found:?}");
    assert!(ratio <= most, "{what}: {ratio:.3} of the least, more than {most}");
}

#[test]
fn short_ones_take_one_crossing() {
    let grid = grid();
    let operands = Operands { len: 1, element: 8, commutes: true, in_place: false };
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
        check(what, found, 0, 1.04);
    }
}

#[test]
fn long_ones_take_little_more_than_their_bytes() {
    let grid = grid();
    for (bytes, most) in
        [(64 << 10, 1.1), (256 << 10, 1.2), (1 << 20, 1.35), (16 << 20, 1.55), (256 << 20, 1.55)]
    {
        let operands = Operands { len: bytes / 8, element: 8, commutes: true, in_place: false };
        let found = of(&grid, 1, |rank| plan::broadcast(rank, &grid, 2, bytes));
        assert_eq!(found.wide_bytes, bytes);
        check(&format!("broadcast of {bytes} bytes"), found, bytes, 1.1);
        // Where results are combined, a node sends half of what crosses, and twice half to its neighbour.
        let found = of(&grid, 8, |rank| plan::allreduce(rank, &grid, operands));
        assert_eq!(found.wide_bytes, 2 * bytes);
        check(&format!("allreduce of {bytes} bytes"), found, bytes, most);
        let found = of(&grid, 8, |rank| plan::reduce(rank, &grid, 0, operands));
        assert_eq!(found.wide_bytes, bytes);
        check(&format!("reduce of {bytes} bytes"), found, bytes, most);
        let found = of(&grid, 1, |rank| plan::allgather(rank, &grid, &|_| bytes / 4, false));
        assert_eq!(found.wide_bytes, 2 * bytes);
        // A node takes in the blocks of all ranks but its two over one network.
        check(&format!("allgather of {} bytes", bytes / 4), found, bytes / 4 * 6, 1.1);
    }
}

/// A thousand ranks: what a rank does for something short depends on how many it is head of only, and the
/// segments of something long do not wait for each other.
#[test]
fn large_grids_are_planned_as_small_ones() {
    let (nodes, ranks) = (16, 16);
    let locations: Vec<Location> = (0..1024)
        .map(|rank| Location { node: rank / ranks, site: rank / (nodes * ranks) })
        .collect();
    let grid = Topology::new(&locations, false, Costs::default());
    let short = Operands { len: 1, element: 8, commutes: true, in_place: false };
    let all = |make: &dyn Fn(u32) -> Schedule| (0..grid.size()).map(make).collect::<Vec<_>>();
    for schedules in [
        all(&|rank| plan::barrier(rank, &grid)),
        all(&|rank| plan::broadcast(rank, &grid, 700, 8)),
        all(&|rank| plan::reduce(rank, &grid, 700, short)),
        all(&|rank| plan::allreduce(rank, &grid, short)),
    ] {
        let most = schedules.iter().map(|schedule| schedule.steps.len()).max().unwrap_or(0);
        // A receive, a wait for it, a combination and a send for each.
        assert!(most as u32 <= 4 * (4 + nodes + ranks), "{most} steps");
        check("a short one of 1024 ranks", predict(&schedules, &grid, 8), 0, 1.06);
    }
    let long = Operands { len: 2 << 20, element: 8, commutes: true, in_place: false };
    let schedules = all(&|rank| plan::allreduce(rank, &grid, long));
    check("allreduce of 16 MB of 1024 ranks", predict(&schedules, &grid, 8), 16 << 20, 2.8);
}
