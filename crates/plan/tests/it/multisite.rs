//! Schedules over several sites: correct, free of deadlock without buffers, and with the fewest
//! bytes between sites. No path has more than one crossing, or two with a relay past a bad link.
//!
//! The shapes are random; `CANELE_SEED=n` repeats one, `CANELE_SEED=n+` takes as many from there.

use std::sync::Arc;

use plan::{
    Algorithm, Buffer, Call, Costs, Distance, Location, MessageCost, Operands, Operation, Pairs,
    Plans, Schedule, Step, Topology,
};
use testing::{Random, seeds};

use crate::machine::{Outcome, TestRank, Unit, run};

/// A machine and a call on it.
struct GridCase {
    topology: Topology,
    locations: Vec<Location>,
    root: u32,
    in_place: bool,
    commutes: bool,
    /// True if any order gives the same result.
    is_exact: bool,
    /// True if nothing is cut: later segments of long data are queued behind received ones of the
    /// first.
    is_short: bool,
    /// True if messages may have parts that were never written.
    has_slots: bool,
    random: Random,
}

impl GridCase {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = 1 + random.below(64);
        // One site is as frequent as several.
        let sites = if random.one_in(2) { 1 } else { 2 + random.below(4) };
        let nodes = 1 + random.below(if sites == 1 { 12 } else { 4 });
        // In blocks, alternating, or at random.
        let order = random.below(3);
        let locations: Vec<Location> = (0..size)
            .map(|rank| {
                let place = match order {
                    0 => rank * sites * nodes / size,
                    1 => rank % (sites * nodes),
                    _ => random.below(sites * nodes),
                };
                Location { node: place as u32, site: (place / nodes) as u32 }
            })
            .collect();
        let costs = [Costs::default(), aggregating(), narrow()][random.below(3)];
        // In half of the cases sites are far and near, with good links and bad ones.
        let pairs =
            if random.one_in(2) { Pairs::default() } else { unlike(&mut random, sites as u32) };
        let topology = Topology::with_pairs(&locations, random.one_in(2), costs, &pairs);
        // In half of the cases an algorithm is forced that would not be chosen, where possible.
        let topology = match random.one_in(2) {
            true => topology.with_plans(Arc::new(wanted(&mut random))),
            false => topology,
        };
        // Nodes may have a shared segment, with pages that hold some of the data.
        let topology = match random.one_in(2) {
            true => topology.with_shm_coll(64 << random.below(10)),
            false => topology,
        };
        let root = random.below(size) as u32;
        let (in_place, commutes) = (random.one_in(2), random.one_in(2));
        let is_exact = commutes && random.one_in(2);
        Self {
            topology,
            locations,
            root,
            in_place,
            commutes,
            is_exact,
            is_short: true,
            has_slots: false,
            random,
        }
    }

    fn size(&self) -> u32 {
        self.topology.size()
    }

    fn site(&self, rank: u32) -> u32 {
        self.locations[rank as usize].site
    }

    /// Returns a length in units: none, few, or enough for several segments.
    fn length(&mut self, most: u64) -> u64 {
        match self.random.below(4) {
            0 => 0,
            1 => 1,
            2 => 1 + self.random.below(9),
            _ => self.random.below(most),
        }
    }

    fn run(
        &self,
        schedule: impl Fn(u32) -> Schedule,
        input: impl Fn(u32) -> Vec<Unit>,
        output: impl Fn(u32) -> Vec<Unit>,
    ) -> Outcome {
        let rank = |rank| {
            let mut rank = TestRank::new(schedule(rank), input(rank), output(rank));
            rank.has_remains = self.has_slots;
            rank
        };
        let outcome = run((0..self.size()).map(rank).collect(), &self.topology);
        if self.topology.sites() > 1 && self.is_short {
            let most = if self.is_alike() { 1 } else { 2 };
            assert!(outcome.depth <= most, "{} crossings", outcome.depth);
        }
        outcome
    }

    /// True if all sites are equally far from each other.
    fn is_alike(&self) -> bool {
        self.topology.pairs() == Pairs::default()
    }

    /// True if short blocks of which only the root knows all lengths travel in slots.
    fn aggregates(&self, operation: Operation) -> bool {
        let call = Call { is_uniform: false, ..Call::of(operation, SLOT) };
        self.topology.choice(&call) == Algorithm::Aggregated
    }

    /// Returns the crossing units of such a block.
    fn crosses(&self, len: u64) -> u64 {
        match self.has_slots {
            true => SLOT + if len > SLOT { len } else { 0 },
            false => len,
        }
    }

    /// Checks the units between each two sites against the sum of `least` over their ranks; or the
    /// units into each site, if sites relay for others.
    fn check_crossed(&self, outcome: &Outcome, least: impl Fn(u32, u32) -> u64) {
        match self.is_alike() && self.is_short {
            true => self.check_between(outcome, least, |from, to| (from, to)),
            false => self.check_between(outcome, least, |_, to| (to, to)),
        }
    }

    /// Checks sums for the sites that `between` names.
    fn check_between(
        &self,
        outcome: &Outcome,
        least: impl Fn(u32, u32) -> u64,
        between: impl Fn(u32, u32) -> (u32, u32),
    ) {
        for &(from, to) in outcome.crossed.keys() {
            assert_ne!(self.site(from), self.site(to));
        }
        let mut expected = std::collections::BTreeMap::new();
        let mut found = std::collections::BTreeMap::new();
        for from in 0..self.size() {
            for to in 0..self.size() {
                let (one, other) = (self.site(from), self.site(to));
                if one != other {
                    let pair = between(one, other);
                    *expected.entry(pair).or_insert(0) += least(from, to);
                    let crossed = outcome.crossed.get(&(from, to)).copied().unwrap_or(0);
                    *found.entry(pair).or_insert(0) += crossed;
                }
            }
        }
        assert_eq!(found, expected, "units between sites");
    }

    /// Checks the units to combining sites against the sum of `least` over ranks.
    fn check_combined(&self, outcome: &Outcome, least: impl Fn(u32, u32) -> u64) {
        if self.is_alike() && (self.is_short || !self.is_exact) {
            self.check_between(outcome, least, |from, to| (from, to));
        } else if self.is_exact {
            // A relay combines first.
            self.check_between(outcome, least, |from, _| (from, from));
        } else {
            self.check_relayed(outcome, least);
        }
    }

    /// Checks that each site sent its own data for others, as `least` says, and everything it
    /// received for others.
    fn check_relayed(&self, outcome: &Outcome, least: impl Fn(u32, u32) -> u64) {
        let all = |units: &dyn Fn(u32, u32) -> u64, counts: &dyn Fn(u32, u32) -> bool| -> u64 {
            let pairs =
                (0..self.size()).flat_map(|from| (0..self.size()).map(move |to| (from, to)));
            let crossing = pairs.filter(|(from, to)| self.site(*from) != self.site(*to));
            crossing.filter(|(from, to)| counts(*from, *to)).map(|(from, to)| units(from, to)).sum()
        };
        let crossed = |from, to| outcome.crossed.get(&(from, to)).copied().unwrap_or(0);
        for site in (0..self.size()).map(|rank| self.site(rank)) {
            let leaves = |from, _| self.site(from) == site;
            let comes = |_, to| self.site(to) == site;
            let (sent, heard) = (all(&crossed, &leaves), all(&crossed, &comes));
            let (own, needed) = (all(&least, &leaves), all(&least, &comes));
            assert!(heard >= needed, "{heard} units to site {site}, {needed} for it");
            assert_eq!(sent, own + heard - needed, "units from site {site}");
        }
    }

    /// Checks that each site received the sum of `needed` over ranks, and at most that of `all`: it
    /// may not need data that it relays.
    fn check_received(
        &self,
        outcome: &Outcome,
        needed: impl Fn(u32, u32) -> u64,
        all: impl Fn(u32, u32) -> u64,
    ) {
        for site in (0..self.size()).map(|rank| self.site(rank)) {
            let inside = |rank: &u32| self.site(*rank) == site;
            let sum = |units: &dyn Fn(u32, u32) -> u64| -> u64 {
                let to = (0..self.size()).filter(inside);
                let pairs = to.flat_map(|to| (0..self.size()).map(move |from| (from, to)));
                pairs.filter(|(from, _)| !inside(from)).map(|(from, to)| units(from, to)).sum()
            };
            let heard = sum(&|from, to| outcome.crossed.get(&(from, to)).copied().unwrap_or(0));
            let expected = sum(&needed)..=sum(&all);
            assert!(expected.contains(&heard), "{heard} units to site {site}, not {expected:?}");
        }
    }

    /// True if a rank is the lowest of its site.
    fn is_first(&self, rank: u32) -> bool {
        (0..rank).all(|lower| self.site(lower) != self.site(rank))
    }

    /// Returns the number of runs of consecutive ranks in a rank's site, as far as that matters.
    fn runs(&self, rank: u32) -> u64 {
        let begins = |one: &u32| {
            self.site(*one) == self.site(rank)
                && (*one == 0 || self.site(*one - 1) != self.site(rank))
        };
        if self.commutes { 1 } else { (0..self.size()).filter(begins).count() as u64 }
    }
}

/// Returns any algorithm for each operation.
fn wanted(random: &mut Random) -> Plans {
    let line = |operation: Operation| {
        let algorithms = operation.algorithms();
        let algorithm = algorithms[random.below(algorithms.len() as u64) as usize];
        format!("{operation} * {algorithm}\n")
    };
    Operation::ALL.map(line).concat().parse().unwrap()
}

/// A network within the site so good that aggregation always pays.
fn aggregating() -> Costs {
    let site = MessageCost { latency_ns: 0, bytes_per_s: u64::MAX, overhead_ns: 4_000 };
    Costs { site, ..Costs::default() }
}

/// Near sites and networks so bad that segments of a broadcast each leave to another site.
fn narrow() -> Costs {
    let site = MessageCost { latency_ns: 20_000, bytes_per_s: 1_000_000, overhead_ns: 4_000 };
    Costs { site, wide: MessageCost { latency_ns: 100_000, ..site }, ..Costs::default() }
}

/// Returns costs between each two sites, from a campus to the other side of the earth, and from a
/// modem to more than a network within a site.
fn unlike(random: &mut Random, sites: u32) -> Pairs {
    let mut cost = || MessageCost {
        latency_ns: 100_000 << random.below(11),
        bytes_per_s: 10_000 << random.below(16),
        overhead_ns: 4_000,
    };
    let each = (0..sites).flat_map(|one| (one + 1..sites).map(move |other| (one, other)));
    Pairs::new(each.map(|(one, other)| (one, other, cost())).collect::<Vec<_>>())
}

fn nothing(len: u64) -> Vec<Unit> {
    vec![Unit::Nothing; len as usize]
}

fn block(from: u32, to: u32, len: u64) -> Vec<Unit> {
    (0..len).map(|index| Unit::Datum { from, to, index }).collect()
}

/// Runs a check for many seeds, or for the requested ones.
fn for_seeds(check: impl Fn(GridCase)) {
    for seed in seeds(CASES) {
        check(GridCase::new(seed));
    }
}

const CASES: u64 = 250;

/// Bytes of a slot for blocks of unknown lengths.
const SLOT: u64 = 256;

/// Returns the number of ranks that post in their node's shared segment, and of those that send to
/// a neighbour.
fn posting(topology: &Topology, plan: impl Fn(u32) -> Schedule) -> (usize, usize) {
    let does = |what: &dyn Fn(u32, Step) -> bool| {
        let is_one = |&rank: &u32| plan(rank).steps.iter().any(|&step| what(rank, step));
        (0..topology.size()).filter(is_one).count()
    };
    let posts = does(&|_, step| matches!(step, Step::Post { .. }));
    let sends = does(&|rank, step| match step {
        Step::Send { to, .. } => topology.distance(rank, to) == Distance::Node,
        _ => false,
    });
    (posts, sends)
}

/// Uses nodes of sixteen ranks and of one, which has no other rank to post for.
#[test]
fn short_data_go_within_nodes_by_shared_segments() {
    let operands =
        |len| Operands { len, element: 8, commutes: true, is_exact: false, in_place: false };
    for sites in [1, 2] {
        let location = |rank: u32| Location { node: rank / 16, site: rank / 32 % sites };
        let locations: Vec<Location> = (0..49).map(location).collect();
        let topology = Topology::new(&locations, false, Costs::default()).with_shm_coll(4 << 10);
        let leaders = if sites == 1 { "leaders" } else { "aggregated" };
        let plans = format!(
            "allreduce * hierarchical\nallgather 9.. hierarchical\nallgather * {leaders}\ngather * {leaders}\nscatter * {leaders}\nreduce_scatter * leaders\n"
        );
        let topology = topology.with_plans(Arc::new(plans.parse().unwrap()));
        let gathered =
            |len| posting(&topology, |rank| plan::allgather(rank, &topology, &|_| len, false));
        let all = [
            posting(&topology, |rank| plan::barrier(rank, &topology)),
            posting(&topology, |rank| plan::broadcast(rank, &topology, 7, 4 << 10)),
            posting(&topology, |rank| plan::reduce(rank, &topology, 7, operands(1))),
            posting(&topology, |rank| plan::allreduce(rank, &topology, operands(8))),
            gathered(1),
            gathered((4 << 10) / 49),
            posting(&topology, |rank| plan::gather(rank, &topology, 17, &|_| 4 << 10, true, false)),
            posting(&topology, |rank| plan::scatter(rank, &topology, 17, &|_| 256, true, false)),
            posting(&topology, |rank| plan::reduce_scatter(rank, &topology, &|_| 1, operands(49))),
        ];
        assert_eq!(all, [(48, 0); 9], "{sites} sites");
        assert_eq!(gathered((4 << 10) / 49 + 1).0, 0, "{sites} sites");
        let uneven = |rank: u32| u64::from(rank % 3);
        let all = [
            posting(&topology, |rank| plan::gather(rank, &topology, 17, &uneven, false, false)),
            posting(&topology, |rank| plan::scatter(rank, &topology, 17, &uneven, false, false)),
        ];
        // Slots travel between sites only.
        assert!(sites == 1 || all == [(48, 0); 2], "{all:?}");
        let long = posting(&topology, |rank| plan::broadcast(rank, &topology, 7, (4 << 10) + 1));
        assert_eq!(long.0, 0, "{sites} sites");
    }
}

#[test]
fn barrier_waits_for_all() {
    for_seeds(|case| {
        let none = |_| Vec::new();
        let outcome = case.run(|rank| plan::barrier(rank, &case.topology), none, none);
        let sites = u64::from(case.topology.sites());
        if sites > 1 {
            assert_eq!(outcome.messages, sites * (sites - 1));
            assert_eq!(outcome.depth, 1);
        }
    });
}

#[test]
fn broadcast_crosses_once() {
    for_seeds(|mut case| {
        let (len, root) = (case.length(60_000), case.root);
        case.is_short = len < 4 << 10;
        let data = block(root, 0, len);
        let place = |rank| if rank == root { data.clone() } else { nothing(len) };
        let plan = |rank| plan::broadcast(rank, &case.topology, root, len);
        let outcome = case.run(plan, |_| Vec::new(), place);
        assert!(outcome.outputs.iter().all(|output| *output == data));
        case.check_crossed(
            &outcome,
            |from, to| {
                if from == root && case.is_first(to) { len } else { 0 }
            },
        );
    });
}

#[test]
fn gather_and_scatter_cross_once() {
    for_seeds(|mut case| {
        let uniform = case.random.one_in(2);
        let each = case.length(600);
        let unlike = [1, 200][case.random.below(2)];
        let sizes = |rank: u32| if uniform { each } else { u64::from(rank * 7 % 4) * unlike };
        let (root, in_place) = (case.root, case.in_place);
        let blocks = |rank| block(rank, root, sizes(rank));
        let whole: Vec<Unit> = (0..case.size()).flat_map(blocks).collect();
        let before: u64 = (0..root).map(sizes).sum();
        let own = before as usize..(before + sizes(root)) as usize;
        let place = |rank| {
            let mut place = nothing(if rank == root { whole.len() as u64 } else { 0 });
            if rank == root && in_place {
                place[own.clone()].copy_from_slice(&whole[own.clone()]);
            }
            place
        };
        case.has_slots = !uniform && case.aggregates(Operation::Gather);
        let plan = |rank| {
            plan::gather(rank, &case.topology, root, &sizes, uniform, in_place && rank == root)
        };
        let outcome = case.run(plan, blocks, place);
        assert_eq!(outcome.outputs[root as usize], whole);
        let least = |from| case.crosses(sizes(from));
        case.check_crossed(&outcome, |from, to| if to == root { least(from) } else { 0 });

        case.has_slots = !uniform && case.aggregates(Operation::Scatter);
        let plan = |rank| {
            plan::scatter(rank, &case.topology, root, &sizes, uniform, in_place && rank == root)
        };
        let input = |rank| if rank == root { whole.clone() } else { Vec::new() };
        let outcome = case.run(plan, input, |rank| nothing(sizes(rank)));
        for (rank, output) in (0..).zip(&outcome.outputs) {
            assert!((in_place && rank == root) || *output == blocks(rank));
        }
        let least = |to| case.crosses(sizes(to));
        case.check_crossed(&outcome, |from, to| if from == root { least(to) } else { 0 });
    });
}

#[test]
fn allgather_crosses_once() {
    for_seeds(|mut case| {
        let uniform = case.random.one_in(2);
        let most = if case.size() > 8 { 600 } else { 60_000 };
        let each = case.length(most);
        case.is_short = each < 16 << 10;
        let sizes = |rank: u32| if uniform { each } else { u64::from(rank * 7 % 4) };
        let blocks = |rank| block(rank, 0, sizes(rank));
        let whole: Vec<Unit> = (0..case.size()).flat_map(blocks).collect();
        let place = |rank: u32| {
            let mut place = nothing(whole.len() as u64);
            if case.in_place {
                let before = (0..rank).map(sizes).sum::<u64>() as usize;
                let own = before..before + sizes(rank) as usize;
                place[own.clone()].copy_from_slice(&whole[own]);
            }
            place
        };
        let plan = |rank| plan::allgather(rank, &case.topology, &sizes, case.in_place);
        let outcome = case.run(plan, blocks, place);
        assert!(outcome.outputs.iter().all(|output| *output == whole));
        case.check_crossed(&outcome, |from, to| if case.is_first(to) { sizes(from) } else { 0 });
    });
}

#[test]
fn alltoall_crosses_once() {
    for_seeds(|mut case| {
        let uniform = case.random.one_in(2);
        let each = case.length(40);
        let pair = |from: u32, to: u32| if uniform { each } else { u64::from((from + 2 * to) % 4) };
        let ranks = || 0..case.size();
        let plan = |rank| {
            let (sends, receives) = (|to| pair(rank, to), |from| pair(from, rank));
            plan::alltoall(rank, &case.topology, &sends, &receives, uniform)
        };
        let input = |from| ranks().flat_map(|to| block(from, to, pair(from, to))).collect();
        let place = |to| nothing(ranks().map(|from| pair(from, to)).sum());
        let outcome = case.run(plan, input, place);
        for (to, output) in ranks().zip(&outcome.outputs) {
            let expected: Vec<Unit> =
                ranks().flat_map(|from| block(from, to, pair(from, to))).collect();
            assert_eq!(*output, expected);
        }
        case.check_crossed(&outcome, pair);
    });
}

fn operands(case: &mut GridCase) -> Operands {
    let element = [4, 1 << 10, 1 << 14][case.random.below(3)];
    let len = case.length(120);
    case.is_short = len * element < 4 << 10;
    Operands {
        len,
        element,
        commutes: case.commutes,
        is_exact: case.is_exact,
        in_place: case.in_place,
    }
}

#[test]
fn reductions_cross_once() {
    for_seeds(|mut case| {
        let operands = operands(&mut case);
        let (size, root) = (case.size(), case.root);
        let mine = |rank| vec![Unit::operand(rank, case.commutes); operands.len as usize];
        let place = |rank| if case.in_place { mine(rank) } else { nothing(operands.len) };

        let plan = |rank| plan::allreduce(rank, &case.topology, operands);
        let outcome = case.run(plan, mine, place);
        let first = &outcome.outputs[0];
        assert!(first.iter().all(|unit| unit.is_all_below(size)));
        assert!(outcome.outputs.iter().all(|output| output == first));
        let is_pair = |from, to| case.is_first(from) && case.is_first(to);
        // The receivers of the result receive from one site.
        let other = |from, to| case.site(from) != case.site(to) && is_pair(from, to);
        let is_one = |from, to| (0..from).all(|lower| !other(lower, to));
        let one = |from, to| if other(from, to) && is_one(from, to) { operands.len } else { 0 };
        let told = |from, to| if is_pair(from, to) { operands.len * case.runs(from) } else { 0 };
        match case.is_short {
            true => case.check_crossed(&outcome, told),
            false => case.check_received(&outcome, one, told),
        }

        let plan = |rank| plan::reduce(rank, &case.topology, root, operands);
        let place = |rank| if rank == root { place(rank) } else { Vec::new() };
        let outcome = case.run(plan, mine, place);
        let result = &outcome.outputs[root as usize];
        assert!(result.iter().all(|unit| unit.is_all_below(size)));
        let least = |from, to| match to == root && case.is_first(from) {
            true => operands.len * case.runs(from),
            false => 0,
        };
        let home = case.site(root);
        match case.is_short || case.is_exact {
            true => case.check_combined(&outcome, least),
            false => case.check_received(
                &outcome,
                |from, to| if case.site(to) == home { one(from, to) } else { 0 },
                told,
            ),
        }
    });
}

#[test]
fn prefixes_cross_once() {
    for_seeds(|mut case| {
        // Prefixes are combined in order, whatever the operation.
        case.commutes = false;
        case.is_exact = false;
        let operands = operands(&mut case);
        let mine = |rank| vec![Unit::operand(rank, false); operands.len as usize];
        let place = |rank| if case.in_place { mine(rank) } else { nothing(operands.len) };
        // A site receives each run if it has ranks above it.
        let all = |from: u32, to| {
            let begins = from == 0 || case.site(from - 1) != case.site(from);
            if begins && case.is_first(to) { operands.len } else { 0 }
        };
        let needed = |from: u32, to| {
            let has_above = (from..case.size()).any(|rank| case.site(rank) == case.site(to));
            if has_above { all(from, to) } else { 0 }
        };
        let check = |outcome: &Outcome| match case.is_alike() {
            true => case.check_crossed(outcome, needed),
            false => case.check_received(outcome, needed, all),
        };
        let outcome = case.run(|rank| plan::scan(rank, &case.topology, operands), mine, place);
        for (rank, output) in (0..).zip(&outcome.outputs) {
            assert!(output.iter().all(|unit| unit.is_all_below(rank + 1)));
        }
        if case.topology.sites() > 1 {
            check(&outcome);
        }
        let outcome = case.run(|rank| plan::exscan(rank, &case.topology, operands), mine, place);
        for (rank, output) in (0..).zip(&outcome.outputs).skip(1) {
            assert!(output.iter().all(|unit| unit.is_all_below(rank)));
        }
        if case.topology.sites() > 1 {
            check(&outcome);
        }
    });
}

#[test]
fn reduce_scatter_crosses_once() {
    for_seeds(|mut case| {
        let each = case.length(20);
        let element = [4, 1 << 14][case.random.below(2)];
        let counts = |rank: u32| if rank.is_multiple_of(3) { each } else { each / 2 };
        let len: u64 = (0..case.size()).map(counts).sum();
        case.is_short = each * element < 16 << 10;
        let size = case.size();
        // In order, operands of one place are distinct from those of others.
        let operand = |rank, index| match case.commutes {
            true => Unit::operand(rank, true),
            false => {
                let first = index * size + rank;
                Unit::Run { first, end: first + 1 }
            }
        };
        let is_all = |unit: Unit, index| match case.commutes {
            true => unit.is_all_below(size),
            false => unit == Unit::Run { first: index * size, end: (index + 1) * size },
        };
        let input = |rank| (0..len as u32).map(|index| operand(rank, index)).collect();
        let GridCase { commutes, is_exact, .. } = case;
        let operands = Operands { len, element, commutes, is_exact, in_place: false };
        let plan = |rank| plan::reduce_scatter(rank, &case.topology, &counts, operands);
        let outcome = case.run(plan, input, |rank| nothing(counts(rank)));
        let results = outcome.outputs.iter().flatten();
        assert!((0..).zip(results).all(|(index, &unit)| is_all(unit, index)));
        let least = |from, to| {
            if case.is_first(from) { counts(to) * case.runs(from) } else { 0 }
        };
        case.check_combined(&outcome, least);
    });
}

#[test]
fn data_for_other_sites_leave_first() {
    // Two sites of two nodes with two ranks each, in order.
    let location = |rank: u32| Location { node: rank / 2, site: rank / 4 };
    let locations: Vec<_> = (0..8).map(location).collect();
    let topology = Topology::new(&locations, false, Costs::default());
    let mut seen = 0;
    for rank in 0..8 {
        let operands =
            Operands { len: 8, element: 1 << 18, commutes: true, is_exact: true, in_place: false };
        let schedule = plan::reduce_scatter(rank, &topology, &|_| 1, operands);
        let blocks: Vec<u64> = schedule
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Send { span, .. } if span.buffer == Buffer::Input => Some(span.start),
                _ => None,
            })
            .collect();
        let stays = |block: &u64| location(*block as u32).site == location(rank).site;
        let first = blocks.iter().position(stays).unwrap_or(blocks.len());
        assert!(blocks[first..].iter().all(stays), "rank {rank} sends blocks {blocks:?}");
        seen += usize::from(first > 0 && first < blocks.len());
    }
    assert!(seen > 0, "nobody sends both");
}
