//! Links that are cut and reopen.

use engine::{Outcome, strategy};
use testing::{Random, seeds};

use crate::network::{
    AHEAD_TWO_LINKS, LONG_ROUND_TRIP, NEAR, Program, SCARCE_TWO_LINKS, SLOW, SLOW_TWO_LINKS, Shape,
    SimulatedNetwork, TWO_LINKS, peer_id,
};

const REOPENING: [Shape; 8] = [
    NEAR.reopening(),
    LONG_ROUND_TRIP.reopening(),
    SLOW.reopening(),
    TWO_LINKS.reopening(),
    AHEAD_TWO_LINKS.reopening(),
    SLOW_TWO_LINKS.reopening(),
    Shape { links: 3, ..TWO_LINKS.reopening() },
    SCARCE_TWO_LINKS.reopening(),
];

#[test]
fn cuts_only_cost_time() {
    let (mut resent, mut taken) = (0, 0);
    for seed in seeds(2000) {
        let network = links_that_are_cut(seed);
        resent += network.fates().resent;
        taken += network.granted;
    }
    if !testing::is_seed_given() {
        assert!(resent > 3000, "only {resent} frames were sent again");
        assert!(taken > 150, "only {taken} messages were taken in without a receive");
    }
}

/// Runs a random program while links are cut repeatedly, all at once or one by one; it ends as if
/// none was.
fn links_that_are_cut(seed: u64) -> SimulatedNetwork {
    let mut random = Random::new(!seed);
    let size = 2 + random.below(2);
    let shape = random.pick(&REOPENING);
    let mut program = Program::new(seed, size, shape);
    for _ in 0..10 + random.below(60) {
        program.act(&mut random);
        let steps = random.below(40);
        program.network.run_steps(steps);
        let (from, to) = (random.below(size), random.below(size));
        if from == to || !random.one_in(6) {
            continue;
        }
        let for_ns = random.pick(&[1_000, 30_000, 400_000, 90_000_000_u64, 3_000_000_000]);
        let all = random.one_in(2);
        let link = random.below(shape.links);
        for link in (0..shape.links).filter(|at| all || *at == link) {
            let for_ns = 1 + random.below(for_ns);
            program.network.cut_for((from, to), link, for_ns);
        }
    }
    program.drain_whole()
}

#[test]
fn a_rendezvous_survives_a_cut_of_all_links_at_any_step() {
    let mut parts = 0;
    for seed in seeds(3 * STEPS_MAX) {
        let (shape, step) = (REOPENING[[0, 4, 6][seed as usize % 3]], seed as usize / 3);
        let split = || strategy::named("split").expect("a known name");
        let mut network = SimulatedNetwork::with_strategy(seed, 2, shape, &split);
        let mut ends = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            ends.push(network.receive(to, Some(from), Some(0), 12_000));
            ends.push(network.send_synchronous(from, to, 0, 12_000));
            ends.push(network.send(from, to, 1, 12_000));
            ends.push(network.receive(to, Some(from), Some(1), 12_000));
        }
        network.run_steps(step);
        (0..shape.links).for_each(|link| network.cut_for((0, 1), link, 700_000));
        // A second cut follows when the link is whole, or nearly.
        network.run_steps(40);
        (0..shape.links).for_each(|link| network.cut_for((0, 1), link, 50_000));
        network.finish();
        assert!(ends.iter().all(|&end| network.end(end).outcome == Outcome::Ok));
        parts += network.fates().parts;
    }
    if !testing::is_seed_given() {
        assert!(parts > 10, "{parts} cuts met a piece that had come in part");
    }
}

const STEPS_MAX: u64 = 400;

#[test]
fn another_rail_replaces_one_that_lost_its_path() {
    let mut resent = 0;
    for seed in seeds(3 * STEPS_MAX) {
        let (shape, step) = (REOPENING[3 + seed as usize % 3], seed as usize / 3);
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        network.set_spare(0, 1);
        let mut ends = vec![network.send(0, 1, 99, 8), network.receive(1, Some(0), Some(99), 8)];
        network.run_until_links(0, 1, 1);
        network.run_until_links(1, 0, 1);
        // Each link works for a while, the first one twice.
        for (round, link) in [0, 1, 0].into_iter().enumerate() {
            for (from, to) in [(0, 1), (1, 0)] {
                for (tag, bytes) in [(0, 12_000), (1, 300), (2, 8)] {
                    let tag = 3 * round as i32 + tag;
                    ends.push(network.receive(to, Some(from), Some(tag), bytes));
                    ends.push(network.send_synchronous(from, to, tag, bytes));
                }
            }
            network.run_steps(step);
            let (a, b) = if step % 2 == 0 { (0, 1) } else { (1, 0) };
            network.forbid(a, b, link);
            network.run_steps(step);
        }
        network.finish();
        assert!(ends.iter().all(|&end| network.end(end).outcome == Outcome::Ok));
        resent += network.fates().resent;
    }
    if !testing::is_seed_given() {
        assert!(resent > 1000, "only {resent} frames were sent again");
    }
}

#[test]
fn a_peer_that_is_away_for_too_long_has_failed() {
    for seed in seeds(60) {
        let shape = REOPENING[seed as usize % REOPENING.len()];
        let mut network = SimulatedNetwork::new(seed, 3, shape);
        let sends = [0, 1].map(|tag| network.send_synchronous(0, 1, tag, 20_000));
        let receives = [network.receive(1, Some(0), Some(0), 20_000)];
        let elsewhere =
            [network.send_synchronous(0, 2, 0, 9000), network.receive(2, None, None, 9000)];
        network.run_until_links(0, 1, shape.links);
        network.run_until_links(1, 0, shape.links);
        network.run_steps(seed as usize % 10);
        (0..shape.links).for_each(|link| network.cut_for((0, 1), link, 100_000_000_000));
        network.finish();
        for end in sends.into_iter().chain(receives) {
            assert!(matches!(network.end(end).outcome, Outcome::PeerFailed | Outcome::Ok));
        }
        assert_eq!(network.end(sends[1]).outcome, Outcome::PeerFailed, "nobody has received it");
        assert!(elsewhere.iter().all(|&end| network.end(end).outcome == Outcome::Ok));
        assert!((60_000_000_000..110_000_000_000).contains(&network.now_ns), "{}", network.now_ns);
    }
}

#[test]
fn a_process_that_has_confirmed_all_may_leave() {
    let mut early = 0;
    for seed in seeds(400) {
        let mut random = Random::new(seed);
        let shape = random.pick(&REOPENING);
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        let receives = [0, 1, 2].map(|tag| network.receive(1, Some(0), Some(tag), 300));
        for tag in 0..3 {
            network.send(0, 1, tag, 300);
        }
        network.run_until_links(0, 1, 1);
        network.run_steps(random.below(30));
        if random.one_in(2) {
            (0..shape.links).for_each(|link| network.cut_for((0, 1), link, 700_000));
        }
        let mut is_confirmed = false;
        for _ in 0..5000 {
            let have_come = receives.iter().all(|receive| network.is_complete(*receive));
            early += u32::from(network.engine(0).is_idle() && !have_come);
            is_confirmed = network.engine(0).confirm_all(peer_id(1));
            if is_confirmed {
                assert!(have_come, "seed {seed}");
                break;
            }
            // More events than the clock adds.
            network.look_at_clock(0, 1, 1000);
            network.run_steps(60);
        }
        assert!(is_confirmed, "seed {seed}: nothing confirms it");
        network.finish();
    }
    if !testing::is_seed_given() {
        assert!(early > 10, "only {early} times a process could have left too early");
    }
}
