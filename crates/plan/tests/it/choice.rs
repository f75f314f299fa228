//! Closed-form predictions, compared with the simulation of all ranks.

use std::sync::Arc;

use plan::{Algorithm, Costs, Location, MessageCost, Operation, Topology, predict};

use crate::planned::planned;

/// Makes a topology of ranks on the nodes that `node` gives.
fn nodes(size: u32, node: impl Fn(u32) -> u32, costs: Costs) -> Topology {
    let locations: Vec<Location> =
        (0..size).map(|rank| Location { node: node(rank), site: 0 }).collect();
    Topology::new(&locations, false, costs)
}

/// Shapes of one site, by name.
fn shapes() -> Vec<(&'static str, Topology)> {
    let usual = Costs::default();
    let site = MessageCost { latency_ns: 4_000, bytes_per_s: 3_000_000_000, overhead_ns: 1_500 };
    let fast = Costs { site, ..usual };
    let flat = |size| Topology::flat(size, false, usual);
    vec![
        ("2 ranks", flat(2)),
        ("4 ranks", flat(4)),
        ("7 ranks", flat(7)),
        ("16 ranks", flat(16)),
        ("48 ranks", flat(48)),
        ("4 x 1 ranks", nodes(4, |rank| rank, usual)),
        ("2 x 4 ranks", nodes(8, |rank| rank / 4, usual)),
        (
            "2 x 4 ranks with shared segments",
            nodes(8, |rank| rank / 4, usual).with_shm_coll(64 << 10),
        ),
        ("4 x 4 ranks", nodes(16, |rank| rank / 4, usual)),
        ("4 x 4 ranks, fast", nodes(16, |rank| rank / 4, fast)),
        ("4 x 4 ranks dealt in turns", nodes(16, |rank| rank % 4, usual)),
        (
            "4 x 8 ranks with shared segments",
            nodes(32, |rank| rank / 8, usual).with_shm_coll(64 << 10),
        ),
        ("16 x 4 ranks", nodes(64, |rank| rank / 4, usual)),
        ("5 + 3 + 1 ranks", nodes(9, |rank| (rank + 1) / 3 % 3, usual)),
        ("32 x 1 ranks, fast", nodes(32, |rank| rank, fast)),
    ]
}

fn simulated_ns(operation: Operation, bytes: u64, topology: &Topology) -> u64 {
    let (_, unit, schedules) = planned(operation, bytes, true, topology);
    predict(&schedules, topology, unit).time_ns
}

fn forced(topology: &Topology, operation: Operation, algorithm: Algorithm) -> Topology {
    let plans = format!("{operation} * {algorithm}").parse().unwrap();
    topology.clone().with_plans(Arc::new(plans))
}

/// Shapes of several sites: sites, nodes of each, ranks of each.
fn grids() -> Vec<(String, Topology)> {
    let grid = |(sites, nodes, ranks): (u32, u32, u32)| {
        let location = |rank: u32| Location { node: rank / ranks, site: rank / ranks / nodes };
        let locations: Vec<Location> = (0..sites * nodes * ranks).map(location).collect();
        let topology = Topology::new(&locations, false, Costs::default()).with_shm_coll(64 << 10);
        (format!("{sites} x {nodes} x {ranks} ranks"), topology)
    };
    [(2, 2, 2), (2, 1, 4), (4, 1, 1), (2, 8, 4), (4, 4, 4), (8, 2, 1), (2, 2, 16)]
        .map(grid)
        .to_vec()
}

/// The formulas match the simulation within a factor, also over several sites, which have fewer
/// algorithms.
#[test]
fn formulas_are_near_the_simulation() {
    let shapes = shapes().into_iter().map(|(name, topology)| (name.to_owned(), topology));
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    for (name, topology) in shapes.chain(grids()) {
        for operation in Operation::ALL {
            for bytes in [8, 4 << 10, 64 << 10, 1 << 20] {
                let (call, unit, schedules) = planned(operation, bytes, true, &topology);
                let choice = topology.choice(&call);
                let predicted_ns = topology.predicted_ns(&call, choice).unwrap();
                let simulated_ns = predict(&schedules, &topology, unit).time_ns;
                let ratio = predicted_ns as f64 / simulated_ns as f64;
                if !(0.75..1.4).contains(&ratio) {
                    println!(
                        "{name}: {operation} of {bytes} by {choice}: {predicted_ns} of {simulated_ns}, {ratio:.2}"
                    );
                }
                (least, most) = (least.min(ratio), most.max(ratio));
            }
        }
    }
    println!("from {least:.2} to {most:.2} of what is simulated");
    assert!(least >= NEAR.0 && most <= NEAR.1, "{least:.2} to {most:.2}");
}

const NEAR: (f64, f64) = (0.5, 2.0);

/// The chosen algorithm is, simulated, little slower than the best candidate.
#[test]
fn the_choice_is_nearly_the_best() {
    let (mut worst, mut sum, mut count) = (0.0f64, 0.0, 0);
    for (name, topology) in shapes() {
        for operation in Operation::ALL {
            for bytes in [8, 1 << 10, 16 << 10, 128 << 10, 1 << 20] {
                if operation == Operation::Barrier && bytes > 8 {
                    continue;
                }
                let (call, _, _) = planned(operation, bytes, true, &topology);
                let choice = topology.choice(&call);
                let all: Vec<(Algorithm, u64, u64)> = topology
                    .candidates(&call)
                    .into_iter()
                    .map(|(algorithm, predicted_ns)| {
                        let topology = forced(&topology, operation, algorithm);
                        (algorithm, predicted_ns, simulated_ns(operation, bytes, &topology))
                    })
                    .collect();
                let least = all.iter().map(|one| one.2).min().unwrap();
                let chosen = all.iter().find(|one| one.0 == choice).unwrap().2;
                let ratio = chosen as f64 / least as f64;
                if ratio > TOLD {
                    println!("{name}: {operation} of {bytes}: {choice} {ratio:.2} of {all:?}");
                }
                worst = worst.max(ratio);
                (sum, count) = (sum + ratio, count + 1);
            }
        }
    }
    println!("at worst {worst:.2} times the best, {:.3} on average", sum / f64::from(count));
    assert!(worst <= WORST, "{worst:.2} times the best");
    assert!(sum / f64::from(count) <= AVERAGE, "{:.3} times the best", sum / f64::from(count));
}

/// Limits of the choice's time relative to the best: at worst, on average, and for a message to be
/// printed.
const WORST: f64 = 1.6;
const AVERAGE: f64 = 1.03;
const TOLD: f64 = 1.2;
