//! Every schedule of the ranks of one node, checked against the definition of its operation.

use std::sync::Arc;

use plan::{Algorithm, Costs, MessageCost, Operands, Operation, Schedule, Step, Topology};

use crate::machine::{TestRank, Unit, run as run_on};

/// Runs all ranks to their end and returns their outputs.
fn run(ranks: Vec<TestRank>) -> Vec<Vec<Unit>> {
    let topology = Topology::flat(ranks.len() as u32, false, Costs::default());
    run_on(ranks, &topology).outputs
}

fn block(rank: u32, len: u64, to: u32) -> Vec<Unit> {
    (0..len).map(|index| Unit::Datum { from: rank, to, index }).collect()
}

/// Lengths on both sides of the algorithms' thresholds.
const LENGTHS: [u64; 4] = [0, 1, 7, 100];

/// Bytes of a page of shared segments: some blocks fit on one together, others are longer than one.
const PAGE: u64 = 64;

/// Returns one node with a core for each rank, and an oversubscribed one. More follow for each
/// algorithm of the operation, also with work that costs more than waiting.
fn machines(size: u32, operation: Operation) -> Vec<Topology> {
    let plain = |is_oversubscribed| Topology::flat(size, is_oversubscribed, Costs::default());
    let by = |algorithm: &Algorithm, is_oversubscribed: bool, costs: Costs| {
        let plans = format!("{operation} * {algorithm}").parse().unwrap();
        Topology::flat(size, is_oversubscribed, costs)
            .with_shm_coll(PAGE)
            .with_plans(Arc::new(plans))
    };
    let plans = operation.algorithms().iter().flat_map(|one| {
        let copied = MessageCost { bytes_per_s: 1_000_000, ..Costs::default().node };
        let copied = Costs { node: copied, ..Costs::default() };
        [(true, copied), (false, Costs::default()), (false, copied)]
            .map(|(is_oversubscribed, costs)| by(one, is_oversubscribed, costs))
    });
    [false, true].map(plain).into_iter().chain(plans).collect()
}

#[test]
fn elements_longer_than_a_page_do_not_use_the_shared_segment() {
    let operation = Operation::Reduce;
    let plans = format!("{operation} * shmem").parse().unwrap();
    let machine = Topology::flat(4, false, Costs::default()).with_shm_coll(64);
    let machine = machine.with_plans(Arc::new(plans));
    let posts = |element| {
        let operands =
            Operands { len: 3, element, commutes: true, is_exact: true, in_place: false };
        let schedule = plan::reduce(1, &machine, 0, operands);
        schedule.steps.iter().filter(|step| matches!(step, Step::Post { .. })).count()
    };
    assert_eq!([16, 32, 64, 65].map(posts), [1, 2, 3, 0]);
}

/// Checks blocks of equal and of different lengths.
#[test]
fn nobody_posts_more_than_a_page() {
    for (size, len, element) in [(2, 9, 8), (3, 100, 1), (7, 30, 4), (8, 5, 7), (33, 3, 1)] {
        let on = |operation| machines(size, operation);
        let operands = Operands { len, element, commutes: true, is_exact: true, in_place: false };
        let counts = |rank: u32| u64::from(rank % 3) * len;
        let bytes = len * element;
        for rank in 0..size {
            let (one, each) = (1, |_: u32| bytes);
            let reduced = |of: Topology| plan::reduce(rank, &of, 1, operands);
            let all_reduced = |of: Topology| plan::allreduce(rank, &of, operands);
            let scattered = |of: Topology| plan::reduce_scatter(rank, &of, &counts, operands);
            let moved = |of: Topology| {
                [
                    plan::broadcast(rank, &of, 1, bytes),
                    plan::gather(rank, &of, 1, &each, true, false),
                    plan::scatter(rank, &of, 1, &each, true, false),
                    plan::allgather(rank, &of, &counts, false),
                    plan::alltoall(rank, &of, &each, &each, true),
                ]
            };
            let of = |operation, plan: &dyn Fn(Topology) -> Schedule| {
                on(operation).into_iter().map(|of| (element, plan(of))).collect::<Vec<_>>()
            };
            let mut schedules = of(Operation::Reduce, &reduced);
            schedules.extend(of(Operation::Allreduce, &all_reduced));
            schedules.extend(of(Operation::ReduceScatter, &scattered));
            let all = Operation::ALL.into_iter().flat_map(on);
            schedules.extend(all.flat_map(moved).map(|schedule| (one, schedule)));
            for (unit, schedule) in schedules {
                let posts = schedule.steps.iter().filter_map(|step| match *step {
                    Step::Post { span } => Some(span.len),
                    Step::PostParts { first, count } => {
                        let parts = &schedule.blocks[first as usize..][..count as usize];
                        Some(parts.iter().map(|part| part.len).sum())
                    }
                    _ => None,
                });
                assert!(posts.max().unwrap_or(0) * unit <= PAGE, "rank {rank} of {size}");
            }
        }
    }
}

#[test]
fn long_work_in_the_shared_segment_is_divided() {
    let meetings = |machine: &Topology| {
        let operands =
            Operands { len: 8, element: 8, commutes: true, is_exact: true, in_place: false };
        let schedule = plan::allreduce(1, machine, operands);
        schedule.steps.iter().filter(|step| matches!(step, Step::Meet { .. })).count()
    };
    let [.., short, long] = &machines(4, Operation::Allreduce)[..] else { panic!("no shmem") };
    assert_eq!([short, long].map(meetings), [1, 2]);
}

const SIZES: std::ops::RangeInclusive<u32> = 1..=33;

#[test]
fn barrier_waits_for_everyone_in_log_rounds() {
    for size in SIZES {
        let schedules: Vec<_> = (0..size)
            .map(|rank| plan::barrier(rank, &Topology::flat(size, false, Costs::default())))
            .collect();
        let rounds = schedules[0].steps.iter().filter(|step| **step == Step::Wait).count();
        assert_eq!(rounds as u32, u32::BITS - (size - 1).leading_zeros());
        // A rank that leaves knows of all others: knowledge spreads with the messages.
        let mut known: Vec<u64> = (0..size).map(|rank| 1 << rank).collect();
        for round in 0..rounds {
            let before = known.clone();
            for (rank, schedule) in schedules.iter().enumerate() {
                let Step::Receive { from, .. } = schedule.steps[3 * round] else { panic!() };
                known[rank] |= before[from as usize];
            }
        }
        assert!(known.iter().all(|known| *known == (1u64 << size) - 1));
        run(schedules.into_iter().map(|one| TestRank::new(one, vec![], vec![])).collect());
    }
}

/// Torres and Kofuji's aim: 5, 6 and 7 ranks take no more rounds than 8.
#[test]
fn short_exchanges_take_log_rounds() {
    for size in SIZES {
        let machine = Topology::flat(size, false, Costs::default());
        let least = u32::BITS - (size - 1).leading_zeros();
        let operands =
            Operands { len: 1, element: 4, commutes: true, is_exact: true, in_place: false };
        for rank in 0..size {
            let is_reduced = [5, 6, 7].contains(&size) || size.is_power_of_two();
            for schedule in [
                Some(plan::barrier(rank, &machine)),
                Some(plan::allgather(rank, &machine, &|_| 4, false)),
                is_reduced.then(|| plan::allreduce(rank, &machine, operands)),
            ] {
                let Some(schedule) = schedule else { continue };
                let waits = schedule.steps.iter().filter(|step| **step == Step::Wait);
                assert_eq!(waits.count() as u32, least, "rank {rank} of {size}");
            }
        }
    }
}

/// The butterfly takes ⌈log2 p⌉ rounds for any number of ranks. Fewer are impossible: a rank
/// receives from one other in a round, so its number of operands at most doubles.
#[test]
fn the_butterfly_takes_the_fewest_rounds_for_any_number_of_ranks() {
    let operands =
        Operands { len: 1, element: 4, commutes: false, is_exact: false, in_place: false };
    for size in SIZES {
        let plans = "allreduce * butterfly".parse().unwrap();
        let machine = Topology::flat(size, false, Costs::default()).with_plans(Arc::new(plans));
        let least = u32::BITS - (size - 1).leading_zeros();
        for rank in 0..size {
            let schedule = plan::allreduce(rank, &machine, operands);
            let mut rounds = schedule.steps.split(|step| *step == Step::Wait);
            assert_eq!(rounds.clone().count() as u32, least + 1, "rank {rank} of {size}");
            let one_peer = |steps: &[Step]| {
                let peers = steps.iter().filter_map(|step| match step {
                    Step::Receive { from, .. } => Some(*from),
                    _ => None,
                });
                peers.collect::<std::collections::BTreeSet<u32>>().len() <= 1
            };
            assert!(rounds.all(one_peer), "rank {rank} of {size} hears of several at once");
        }
    }
}

#[test]
fn oversubscribed_barrier_makes_each_rank_wait_once_and_the_first_twice() {
    for size in SIZES {
        let schedules: Vec<_> = (0..size)
            .map(|rank| plan::barrier(rank, &Topology::flat(size, true, Costs::default())))
            .collect();
        for (rank, schedule) in schedules.iter().enumerate() {
            let waits = schedule.steps.iter().filter(|step| **step == Step::Wait).count();
            assert!(waits <= if rank == 0 { 2 } else { 1 });
        }
        // Rank 0 signals no rank before all have signalled it; two ranks signal each other.
        if size > 2 {
            let wait = schedules[0].steps.iter().position(|step| *step == Step::Wait);
            let before = &schedules[0].steps[..wait.unwrap_or(0)];
            assert!(before.iter().all(|step| matches!(step, Step::Receive { .. })));
            assert_eq!(before.len() as u32, size - 1);
        }
        run(schedules.into_iter().map(|one| TestRank::new(one, vec![], vec![])).collect());
    }
}

#[test]
fn broadcast_gives_everyone_the_roots_data() {
    for size in SIZES {
        for root in [0, size / 2, size - 1] {
            for len in [0, 1, 70_000] {
                if len > 1 && size > 9 {
                    continue;
                }
                let data = block(root, len, 0);
                for machine in machines(size, Operation::Broadcast) {
                    let rank = |rank| {
                        let none = || vec![Unit::Nothing; len as usize];
                        let output = if rank == root { data.clone() } else { none() };
                        TestRank::new(plan::broadcast(rank, &machine, root, len), vec![], output)
                    };
                    let outputs = run((0..size).map(rank).collect());
                    assert!(outputs.iter().all(|output| *output == data));
                }
            }
        }
    }
}

/// Lengths from none to many segments, of which some are empty.
#[test]
fn two_trees_reach_all_and_keep_their_order() {
    for size in 1..=64 {
        let by = |operation: Operation| {
            let plans = format!("{operation} * two_tree").parse().unwrap();
            Topology::flat(size, false, Costs::default()).with_plans(Arc::new(plans))
        };
        let root = size * 5 % 7 % size;
        for len in [1, 2, 3, 70, 300_000] {
            let machine = by(Operation::Broadcast);
            if len == 300_000 && !size.is_multiple_of(13) {
                continue;
            }
            let data = block(root, len, 0);
            let rank = |rank| {
                let none = || vec![Unit::Nothing; len as usize];
                let output = if rank == root { data.clone() } else { none() };
                TestRank::new(plan::broadcast(rank, &machine, root, len), vec![], output)
            };
            let outputs = run((0..size).map(rank).collect());
            assert!(outputs.iter().all(|output| *output == data), "{len} to {size}");
        }
        for (len, commutes, in_place) in [
            (1, false, false),
            (2, true, true),
            (3, false, true),
            (70, false, false),
            (71, true, false),
        ] {
            let machine = by(Operation::Reduce);
            let operands = Operands { len, element: 4096, commutes, is_exact: commutes, in_place };
            let mine = |rank: u32| vec![Unit::operand(rank, commutes); len as usize];
            let rank = |rank: u32| {
                let output = match (rank == root, in_place) {
                    (true, true) => mine(rank),
                    (true, false) => vec![Unit::Nothing; len as usize],
                    (false, _) => vec![],
                };
                TestRank::new(plan::reduce(rank, &machine, root, operands), mine(rank), output)
            };
            let found = &run((0..size).map(rank).collect())[root as usize];
            assert!(found.iter().all(|unit| unit.is_all_below(size)), "{len} of {size}");
        }
    }
}

#[test]
fn gather_and_scatter_move_blocks_to_and_from_the_root() {
    for size in SIZES {
        let gathering = machines(size, Operation::Gather).into_iter();
        let scattering = machines(size, Operation::Scatter);
        for (root, (machine, other)) in [0, size / 3, size - 1]
            .iter()
            .flat_map(|&root| gathering.clone().zip(&scattering).map(move |both| (root, both)))
        {
            for (each, in_place) in [(Some(5), false), (Some(5), true), (Some(5 * PAGE + 1), true)]
                .into_iter()
                .chain([(None, false), (None, true)])
            {
                let uniform = each.is_some();
                // Empty blocks, and blocks longer than several pages.
                let differ = |rank: u32| u64::from(rank * 7 % 4) * u64::from(1 + rank % 3 * 70);
                let sizes = move |rank: u32| each.unwrap_or_else(|| differ(rank));
                let whole: Vec<Unit> =
                    (0..size).flat_map(|rank| block(rank, sizes(rank), root)).collect();
                let gathers = (0..size).map(|rank| {
                    let schedule = plan::gather(rank, &machine, root, &sizes, uniform, in_place);
                    let mut output =
                        vec![Unit::Nothing; if rank == root { whole.len() } else { 0 }];
                    let own = block(rank, sizes(rank), root);
                    if rank == root && in_place {
                        let at = (0..root).map(sizes).sum::<u64>() as usize;
                        output[at..at + own.len()].clone_from_slice(&own);
                    }
                    TestRank::new(schedule, own, output)
                });
                assert_eq!(run(gathers.collect())[root as usize], whole);
                let scatters = (0..size).map(|rank| {
                    let schedule = plan::scatter(rank, other, root, &sizes, uniform, in_place);
                    let input = if rank == root { whole.clone() } else { vec![] };
                    TestRank::new(schedule, input, vec![Unit::Nothing; sizes(rank) as usize])
                });
                for (rank, output) in run(scatters.collect()).into_iter().enumerate() {
                    if !(in_place && rank as u32 == root) {
                        assert_eq!(output, block(rank as u32, sizes(rank as u32), root));
                    }
                }
            }
        }
    }
}

#[test]
fn allgather_gives_everyone_everything() {
    for size in SIZES {
        let machines = machines(size, Operation::Allgather);
        for (len, machine) in
            [0, 1, 3, 30_000].iter().flat_map(|&len| machines.iter().map(move |one| (len, one)))
        {
            if len > 3 && size > 6 {
                continue;
            }
            for in_place in [false, true] {
                let sizes = move |rank: u32| if len == 3 { u64::from(rank % 3) } else { len };
                let whole: Vec<Unit> =
                    (0..size).flat_map(|rank| block(rank, sizes(rank), 0)).collect();
                let rank = |rank: u32| {
                    let schedule = plan::allgather(rank, machine, &sizes, in_place);
                    let mut output = vec![Unit::Nothing; whole.len()];
                    if in_place {
                        let at = (0..rank).map(sizes).sum::<u64>() as usize;
                        output[at..at + sizes(rank) as usize].clone_from_slice(&block(
                            rank,
                            sizes(rank),
                            0,
                        ));
                    }
                    TestRank::new(schedule, block(rank, sizes(rank), 0), output)
                };
                assert!(run((0..size).map(rank).collect()).iter().all(|output| *output == whole));
            }
        }
    }
}

#[test]
fn alltoall_exchanges_every_pair() {
    for size in SIZES {
        for (uniform, machine) in [true, false].iter().flat_map(|&uniform| {
            machines(size, Operation::Alltoall).into_iter().map(move |one| (uniform, one))
        }) {
            let pair =
                move |from: u32, to: u32| if uniform { 3 } else { u64::from((from + 2 * to) % 4) };
            let rank = |rank: u32| {
                let (sends, receives) = (|to| pair(rank, to), |from| pair(from, rank));
                let schedule = plan::alltoall(rank, &machine, &sends, &receives, uniform);
                let input = (0..size).flat_map(|to| block(rank, pair(rank, to), to)).collect();
                let len: u64 = (0..size).map(|from| pair(from, rank)).sum();
                TestRank::new(schedule, input, vec![Unit::Nothing; len as usize])
            };
            for (rank, output) in run((0..size).map(rank).collect()).into_iter().enumerate() {
                let rank = rank as u32;
                let expected: Vec<Unit> =
                    (0..size).flat_map(|from| block(from, pair(from, rank), rank)).collect();
                assert_eq!(output, expected);
            }
        }
    }
}

#[test]
fn reductions_combine_every_operand_once_and_in_order() {
    for size in SIZES {
        for len in LENGTHS {
            // An element of 1 KiB makes a hundred of them long.
            for (commutes, in_place, element) in
                [(false, false, 1024), (false, true, 4), (true, false, 4), (true, true, 1024)]
            {
                let mine = |rank: u32| vec![Unit::operand(rank, commutes); len as usize];
                let place = |rank: u32| {
                    if in_place { mine(rank) } else { vec![Unit::Nothing; len as usize] }
                };
                let root = size / 2;
                let operands = Operands { len, element, commutes, is_exact: commutes, in_place };
                for machine in machines(size, Operation::Allreduce) {
                    let all = (0..size).map(|rank| {
                        let schedule = plan::allreduce(rank, &machine, operands);
                        TestRank::new(schedule, mine(rank), place(rank))
                    });
                    let found = run(all.collect());
                    assert!(found.iter().flatten().all(|unit| unit.is_all_below(size)));
                    assert!(found.iter().all(|output| *output == found[0]));
                }
                for machine in machines(size, Operation::Reduce) {
                    let one = (0..size).map(|rank| {
                        let schedule = plan::reduce(rank, &machine, root, operands);
                        let output = if rank == root { place(rank) } else { vec![] };
                        TestRank::new(schedule, mine(rank), output)
                    });
                    let found = &run(one.collect())[root as usize];
                    assert!(found.iter().all(|unit| unit.is_all_below(size)));
                }
                for machine in machines(size, Operation::Scan) {
                    let scans = (0..size).map(|rank| {
                        TestRank::new(plan::scan(rank, &machine, operands), mine(rank), place(rank))
                    });
                    for (rank, output) in (1..).zip(run(scans.collect())) {
                        assert!(output.iter().all(|unit| unit.is_all_below(rank)));
                    }
                }
                for machine in machines(size, Operation::Exscan) {
                    let exscans = (0..size).map(|rank| {
                        TestRank::new(
                            plan::exscan(rank, &machine, operands),
                            mine(rank),
                            place(rank),
                        )
                    });
                    for (rank, output) in (0..).zip(run(exscans.collect())).skip(1) {
                        assert!(output.iter().all(|unit| unit.is_all_below(rank)));
                    }
                }
            }
        }
    }
}

#[test]
fn reduce_scatter_gives_each_its_block() {
    for size in SIZES {
        for (machine, (commutes, each)) in machines(size, Operation::ReduceScatter)
            .iter()
            .flat_map(|one| [(false, 3), (true, 3), (true, 100)].map(|what| (one, what)))
        {
            let counts = move |rank: u32| if rank.is_multiple_of(3) { each } else { each / 2 };
            let len: u64 = (0..size).map(counts).sum();
            let ranks = (0..size).map(|rank| {
                let operands =
                    Operands { len, element: 1024, commutes, is_exact: commutes, in_place: false };
                let schedule = plan::reduce_scatter(rank, machine, &counts, operands);
                let input = vec![Unit::operand(rank, commutes); len as usize];
                TestRank::new(schedule, input, vec![Unit::Nothing; counts(rank) as usize])
            });
            assert!(run(ranks.collect()).iter().flatten().all(|unit| unit.is_all_below(size)));
        }
    }
}
