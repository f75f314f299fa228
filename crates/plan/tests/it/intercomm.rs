//! Every plan between two groups against its operation's definition, without buffering.
//!
//! The shapes are random; `CANELE_SEED=n` repeats one, `CANELE_SEED=n+` takes as many from there.

use plan::{Costs, Groups, Location, Operands, Role, Schedule, Topology};
use testing::{Random, seeds};

use crate::machine::{TestRank, Unit, run};

struct GroupCase {
    topology: Topology,
    sizes: [u32; 2],
    /// Group of the root, and the root's rank in it.
    root: (usize, u32),
    operands: Operands,
    blocks: Vec<u64>,
}

impl GroupCase {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sizes = [1 + random.below(20) as u32, 1 + random.below(20) as u32];
        let (sites, nodes) = (1 + random.below(3), 1 + random.below(3));
        let locations: Vec<Location> = (0..sizes[0] + sizes[1])
            .map(|_| random.below(sites * nodes))
            .map(|place| Location { node: place as u32, site: (place / nodes) as u32 })
            .collect();
        let topology = Topology::new(&locations, random.below(2) == 1, Costs::default());
        let group = random.below(2) as usize;
        let root = (group, random.below(sizes[group]));
        let (len, element) = (random.below(50), [1, 8, 4096][random.below(3)]);
        let commutes = random.below(2) == 1;
        let is_exact = commutes && random.below(2) == 1;
        let operands = Operands { len, element, commutes, is_exact, in_place: false };
        let blocks = (0..20).map(|_| random.below(4)).collect();
        Self { topology, sizes, root, operands, blocks }
    }

    /// Runs the schedules of `make` for every rank, by group and rank in it, and returns the
    /// outputs in the same order.
    fn run(&self, make: impl Fn(usize, u32, u32, Groups) -> TestRank) -> [Vec<Vec<Unit>>; 2] {
        let halves = [0..self.sizes[0], self.sizes[0]..self.sizes[0] + self.sizes[1]];
        let ranks = (0..self.sizes[0] + self.sizes[1]).map(|rank| {
            let group = usize::from(rank >= self.sizes[0]);
            let (local, remote) = (halves[group].clone(), halves[1 - group].clone());
            make(group, rank - local.start, rank, Groups { local, remote })
        });
        let mut outputs = run(ranks.collect(), &self.topology).outputs;
        let second = outputs.split_off(self.sizes[0] as usize);
        [outputs, second]
    }

    fn role(&self, group: usize, rank: u32) -> Role {
        match (group == self.root.0, rank == self.root.1) {
            (true, true) => Role::Root,
            (true, false) => Role::Idle,
            (false, _) => {
                Role::Partner(if self.root.0 == 0 { 0 } else { self.sizes[0] } + self.root.1)
            }
        }
    }

    fn operand(&self, rank: u32) -> Vec<Unit> {
        vec![Unit::operand(rank, self.operands.commutes); self.operands.len as usize]
    }

    /// True if all units are the combination of the other group's operands.
    fn is_sum(&self, group: usize, units: &[Unit]) -> bool {
        units.iter().all(|unit| unit.is_all_below(self.sizes[1 - group]))
    }

    fn blocks(&self, group: usize) -> &[u64] {
        &self.blocks[..self.sizes[group] as usize]
    }

    fn whole(&self, group: usize) -> Vec<Unit> {
        (0u32..).zip(self.blocks(group)).flat_map(|(rank, &len)| block(rank, 0, len)).collect()
    }
}

fn block(from: u32, to: u32, len: u64) -> Vec<Unit> {
    (0..len).map(|index| Unit::Datum { from, to, index }).collect()
}

fn nothing(len: u64) -> Vec<Unit> {
    vec![Unit::Nothing; len as usize]
}

fn on_all(check: impl Fn(&GroupCase)) {
    for seed in seeds(100) {
        check(&GroupCase::new(seed));
    }
}

#[test]
fn data_go_from_a_root_to_the_other_group_and_back() {
    on_all(|case| {
        let other = 1 - case.root.0;
        let data = block(7, 0, case.operands.len * case.operands.element);
        let outputs = case.run(|group, rank, merged, groups| {
            let role = case.role(group, rank);
            let schedule = groups.broadcast(merged, &case.topology, role, data.len() as u64);
            let output = if role == Role::Root { data.clone() } else { nothing(data.len() as u64) };
            TestRank::new(schedule, vec![], output)
        });
        assert!(outputs[other].iter().all(|output| *output == data));

        let sizes = |role, rank: u32| match role {
            Role::Root => case.blocks(other).to_vec(),
            Role::Idle => vec![],
            Role::Partner(_) => vec![case.blocks(other)[rank as usize]],
        };
        let whole = case.whole(other);
        let outputs = case.run(|group, rank, merged, groups| {
            let role = case.role(group, rank);
            let sizes = sizes(role, rank);
            let schedule = groups.gather(merged, &case.topology, role, &sizes);
            let room = if role == Role::Root { whole.len() as u64 } else { 0 };
            let input = if group == other { block(rank, 0, sizes[0]) } else { vec![] };
            let mut rank = TestRank::new(schedule, input, nothing(room));
            // Short blocks travel in slots.
            rank.has_remains = true;
            rank
        });
        assert_eq!(outputs[case.root.0][case.root.1 as usize], whole);
        let outputs = case.run(|group, rank, merged, groups| {
            let role = case.role(group, rank);
            let sizes = sizes(role, rank);
            let schedule = groups.scatter(merged, &case.topology, role, &sizes);
            let room = if group == other { sizes[0] } else { 0 };
            let input = if role == Role::Root { whole.clone() } else { vec![] };
            let mut rank = TestRank::new(schedule, input, nothing(room));
            // Short blocks travel in slots.
            rank.has_remains = true;
            rank
        });
        for (rank, output) in (0u32..).zip(&outputs[other]) {
            assert_eq!(*output, block(rank, 0, case.blocks(other)[rank as usize]));
        }
    });
}

#[test]
fn groups_reduce_for_each_other() {
    on_all(|case| {
        let len = case.operands.len;
        let outputs = case.run(|group, rank, merged, groups| {
            let role = case.role(group, rank);
            let schedule = groups.reduce(merged, &case.topology, role, case.operands);
            match role {
                Role::Root => TestRank::new(schedule, vec![], nothing(len)),
                Role::Idle => TestRank::new(schedule, vec![], vec![]),
                Role::Partner(_) => TestRank::new(schedule, case.operand(rank), vec![]),
            }
        });
        assert!(case.is_sum(case.root.0, &outputs[case.root.0][case.root.1 as usize]));
        let outputs = case.run(|_, rank, merged, groups| {
            let schedule = groups.allreduce(merged, &case.topology, case.operands);
            TestRank::new(schedule, case.operand(rank), nothing(len))
        });
        for (group, outputs) in outputs.iter().enumerate() {
            assert!(outputs.iter().all(|output| case.is_sum(group, output)));
        }
        let counts = |group: usize| {
            let size = u64::from(case.sizes[group]);
            let at = |rank: u64| len * rank / size;
            (0..size).map(|rank| at(rank + 1) - at(rank)).collect::<Vec<_>>()
        };
        let outputs = case.run(|group, rank, merged, groups| {
            let counts = counts(group);
            let schedule = groups.reduce_scatter(merged, &case.topology, &counts, case.operands);
            TestRank::new(schedule, case.operand(rank), nothing(counts[rank as usize]))
        });
        for (group, outputs) in outputs.iter().enumerate() {
            assert!(outputs.iter().all(|output| case.is_sum(group, output)));
        }
    });
}

#[test]
fn groups_exchange_all_data() {
    on_all(|case| {
        let outputs = case.run(|group, rank, merged, groups| {
            let (own, others) = (case.blocks(group)[rank as usize], case.blocks(1 - group));
            let schedule = groups.allgather(merged, &case.topology, own, others);
            TestRank::new(schedule, block(rank, 0, own), nothing(others.iter().sum()))
        });
        for (group, outputs) in outputs.iter().enumerate() {
            assert!(outputs.iter().all(|output| *output == case.whole(1 - group)));
        }
        let len = |from: u32, to: u32| case.blocks[((from + 3 * to) % 20) as usize];
        let outputs = case.run(|group, rank, _, groups| {
            let others = 0..case.sizes[1 - group];
            let sends: Vec<u64> = others.clone().map(|other| len(rank, other)).collect();
            let receives: Vec<u64> = others.clone().map(|other| len(other, rank)).collect();
            let input = others.flat_map(|other| block(rank, other, len(rank, other))).collect();
            let schedule: Schedule = groups.alltoall(&sends, &receives);
            TestRank::new(schedule, input, nothing(receives.iter().sum()))
        });
        for (group, outputs) in outputs.iter().enumerate() {
            for (rank, output) in (0u32..).zip(outputs) {
                let others = 0..case.sizes[1 - group];
                let want: Vec<Unit> =
                    others.flat_map(|other| block(other, rank, len(other, rank))).collect();
                assert_eq!(*output, want);
            }
        }
    });
}
