//! Order of combining operands, where the last bits of results depend on it. It is a function of
//! the call and of the placement of ranks, the same at all ranks, for any message costs, with a
//! shared segment or without.
//!
//! The shapes and costs are random; `CANELE_SEED=n` repeats one, `CANELE_SEED=n+` takes as many
//! from there.

use plan::{Costs, Location, MessageCost, Operands, Operation, Pairs, Schedule, Topology};
use testing::{Random, seeds};

use crate::machine::{TestRank, Unit, run};

const OPERATIONS: [Operation; 5] = [
    Operation::Reduce,
    Operation::Allreduce,
    Operation::ReduceScatter,
    Operation::Scan,
    Operation::Exscan,
];

/// The same ranks with changing costs, and on one node with a shared segment or without.
struct CostCase {
    locations: Vec<Location>,
    is_oversubscribed: bool,
    random: Random,
}

impl CostCase {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = 1 + random.below(40);
        let sites = [1, 1, 1 + random.below(4)][random.below(3)];
        let nodes = [1, 1 + random.below(8)][random.below(2)];
        let is_dealt = random.below(2) == 1;
        let location = |rank| {
            let place = if is_dealt { rank % (sites * nodes) } else { rank * sites * nodes / size };
            Location { node: place as u32, site: (place / nodes) as u32 }
        };
        let is_oversubscribed = random.below(2) == 1;
        Self { locations: (0..size).map(location).collect(), is_oversubscribed, random }
    }

    /// Returns a hundredth to a hundred times the usual cost.
    fn cost(&mut self, usual: MessageCost) -> MessageCost {
        let mut wild = |figure: u64| {
            let times = [1, 3, 10, 30, 100][self.random.below(5)];
            if self.random.below(2) == 1 { figure * times } else { figure / times }
        };
        MessageCost {
            latency_ns: wild(usual.latency_ns),
            bytes_per_s: wild(usual.bytes_per_s),
            overhead_ns: wild(usual.overhead_ns),
        }
    }

    fn topology(&mut self) -> Topology {
        let usual = Costs::default();
        let [node, site, wide] = [usual.node, usual.site, usual.wide].map(|one| self.cost(one));
        let wake_ns = 1 + self.random.below(200_000);
        let costs = Costs { node, site, wide, wake_ns };
        let sites = self.locations.iter().map(|location| location.site).max().unwrap_or(0);
        let of_pairs: Vec<(u32, u32)> =
            (0..=sites).flat_map(|one| (0..one).map(move |other| (other, one))).collect();
        let pairs: Vec<_> =
            of_pairs.into_iter().map(|(one, other)| (one, other, self.cost(wide))).collect();
        let pairs = if self.random.below(2) == 1 { Pairs::new(pairs) } else { Pairs::default() };
        let topology = Topology::with_pairs(&self.locations, self.is_oversubscribed, costs, &pairs);
        match self.random.below(2) {
            0 => topology,
            _ => topology.with_shm_coll(64 << self.random.below(10)),
        }
    }
}

/// A call, the same one whether it works in place or not.
#[derive(Clone, Copy, Debug)]
struct OrderedCall {
    operation: Operation,
    root: u32,
    operands: Operands,
}

impl OrderedCall {
    fn new(random: &mut Random, size: u32) -> Self {
        let len = [0, 1, 1 + random.below(9), random.below(150)][random.below(4)];
        let element = [4, 16, 1 << 10, 1 << 14][random.below(4)];
        let commutes = random.below(4) > 0;
        Self {
            operation: OPERATIONS[random.below(5)],
            root: random.below(size),
            operands: Operands { len, element, commutes, is_exact: false, in_place: false },
        }
    }

    fn count(&self, rank: u32) -> u64 {
        self.operands.len / (1 + u64::from(rank % 3))
    }

    fn plan(&self, rank: u32, topology: &Topology) -> Schedule {
        let Self { root, operands, .. } = *self;
        match self.operation {
            Operation::Reduce => plan::reduce(rank, topology, root, operands),
            Operation::Allreduce => plan::allreduce(rank, topology, operands),
            Operation::ReduceScatter => {
                plan::reduce_scatter(rank, topology, &|rank| self.count(rank), operands)
            }
            Operation::Scan => plan::scan(rank, topology, operands),
            Operation::Exscan => plan::exscan(rank, topology, operands),
            other => panic!("{other} combines nothing"),
        }
    }

    /// Returns the results of all ranks, with digests of the orders of combining.
    fn run(&self, topology: &Topology) -> Vec<Vec<Unit>> {
        let is_scattered = self.operation == Operation::ReduceScatter;
        let size = topology.size();
        let rank = |rank| {
            let (own, result) = match is_scattered {
                true => ((0..size).map(|rank| self.count(rank)).sum(), self.count(rank)),
                false => (self.operands.len, self.operands.len),
            };
            let own = vec![Unit::operand(rank, true); own as usize];
            let in_place = self.operands.in_place && !is_scattered;
            let output = if in_place { own.clone() } else { vec![Unit::Nothing; result as usize] };
            TestRank::new(self.plan(rank, topology), own, output)
        };
        let mut outputs = run((0..size).map(rank).collect(), topology).outputs;
        let has_result = |rank: usize| match self.operation {
            Operation::Reduce => rank == self.root as usize,
            Operation::Exscan => rank > 0,
            _ => true,
        };
        let without = (0..outputs.len()).filter(|&rank| !has_result(rank));
        without.collect::<Vec<_>>().into_iter().for_each(|rank| outputs[rank].clear());
        for (rank, output) in (0..).zip(&outputs) {
            let end = match self.operation {
                Operation::Scan => rank + 1,
                Operation::Exscan => rank,
                _ => size,
            };
            assert!(output.iter().all(|unit| unit.is_all_below(end)), "{self:?}");
        }
        outputs
    }
}

#[test]
fn the_order_depends_on_the_call_and_the_placement_only() {
    for seed in seeds(1000) {
        let mut case = CostCase::new(seed);
        let mut call = OrderedCall::new(&mut case.random, case.locations.len() as u32);
        let first = call.run(&case.topology());
        if call.operation == Operation::Allreduce {
            assert!(first.iter().all(|output| *output == first[0]), "{call:?}");
        }
        for _ in 0..6 {
            call.operands.in_place = case.random.below(2) == 1;
            let topology = case.topology();
            let costs = topology.costs();
            assert!(
                call.run(&topology) == first,
                "{call:?} with {costs:?} and a shmem {:?}",
                topology.page_bytes()
            );
        }
    }
}
