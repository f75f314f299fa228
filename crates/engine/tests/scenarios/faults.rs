//! Links and peers that die, lie still, or look away.

use engine::{Outcome, Selector};

use crate::network::{
    AHEAD, AHEAD_TWO_LINKS, ALL, NEAR, Network, Program, Random, SLOW_TWO_LINKS, Shape, TWO_LINKS,
    for_seeds,
};

#[test]
fn a_cut_ends_what_needs_the_peer_and_nothing_else() {
    for_seeds(4000, |seed| {
        let mut random = Random::new(!seed);
        let shape = random.pick(&ALL);
        let mut program = Program::new(seed, 3, shape);
        for _ in 0..40 {
            program.act(&mut random);
        }
        let steps = random.below(400);
        program.network.run_steps(steps);
        program.network.cut(0, 1);
        let to_failed = program.network.send_synchronous(0, 1, 0, 20_000);
        for _ in 0..20 {
            program.act(&mut random);
        }
        program.network.run();
        assert_eq!(program.network.end(to_failed).outcome, Outcome::PeerFailed);
        program.drain();
    });
}

#[test]
fn a_peer_that_goes_in_mid_rendezvous_fails_both_sides() {
    for shape in ALL {
        for steps in 0..60 {
            let mut network = Network::new(steps as u64, 2, shape);
            let send = network.send_synchronous(0, 1, 0, 50_000);
            let receive = network.receive(1, Some(0), None, 50_000);
            network.run_steps(steps);
            network.cut(0, 1);
            network.finish();
            let ends = [network.end(send).outcome, network.end(receive).outcome];
            assert!(ends.iter().all(|end| matches!(end, Outcome::Ok | Outcome::PeerFailed)));
        }
    }
}

#[test]
fn messages_that_came_whole_outlive_their_sender() {
    let mut network = Network::new(0, 2, NEAR);
    network.send(0, 1, 1, 100);
    network.send(0, 1, 2, 100_000);
    network.run();
    network.cut(0, 1);
    network.run();
    let whole = network.receive(1, Some(0), Some(1), 100);
    let asked = network.receive(1, Some(0), Some(2), 100_000);
    network.finish();
    assert_eq!(network.end(whole).outcome, Outcome::Ok);
    assert_eq!(network.end(asked).outcome, Outcome::PeerFailed);
}

#[test]
fn messages_that_came_wholly_ahead_outlive_their_sender() {
    let mut network = Network::new(0, 2, AHEAD);
    let any = Selector { context: 0, source: None, tag: None };
    for (tag, bytes) in [(4, 100), (1, 6000), (2, 5000), (3, 20_000)] {
        network.send(0, 1, tag, bytes);
    }
    network.run();
    assert_eq!(network.counters(0).rendezvous, 3, "three are too long to be eager");
    let second = network.matched_probe(1, Selector { tag: Some(2), ..any }).expect("it has come");
    network.cut(0, 1);
    network.run();
    let first = Selector { tag: Some(1), ..any };
    assert_eq!(network.probe(1, first).map(|message| message.bytes), Some(6000));
    let whole = network.receive(1, Some(0), Some(1), 6000);
    let taken = network.matched_receive(1, second, 5000);
    let part = network.receive(1, Some(0), Some(3), 20_000);
    let eager = network.receive(1, Some(0), Some(4), 100);
    network.finish();
    for receive in [whole, taken, eager] {
        assert_eq!(network.end(receive).outcome, Outcome::Ok);
    }
    assert_eq!(network.end(part).outcome, Outcome::PeerFailed);
}

#[test]
fn a_link_that_dies_loses_nothing_while_another_lives() {
    for_seeds(10_000, |seed| {
        let mut random = Random::new(!seed);
        let links = 2 + random.below(2);
        let shape = Shape { links, ..random.pick(&[TWO_LINKS, AHEAD_TWO_LINKS, SLOW_TWO_LINKS]) };
        let mut program = Program::new(seed, 2 + random.below(2), shape);
        for _ in 0..10 + random.below(60) {
            program.act(&mut random);
            let steps = random.below(40);
            program.network.run_steps(steps);
            if random.one_in(8) && program.network.links(0, 1) > 1 {
                let lane = random.below(links);
                program.network.cut_link(0, 1, lane);
            }
        }
        program.drain_whole();
    });
}

#[test]
fn a_link_that_dies_in_mid_rendezvous_gives_its_share_to_the_other() {
    let mut packed = 0;
    for shape in [TWO_LINKS, AHEAD_TWO_LINKS, SLOW_TWO_LINKS] {
        for steps in 0..120 {
            for lane in 0..2 {
                let mut network = Network::new(steps as u64, 2, shape);
                let sends: Vec<_> =
                    (0..3).map(|tag| network.send_synchronous(0, 1, tag, 50_000)).collect();
                let receives: Vec<_> =
                    (0..3).map(|tag| network.receive(1, Some(0), Some(tag), 50_000)).collect();
                network.run_until_links(0, 1, 2);
                network.run_steps(steps);
                network.cut_link(0, 1, lane);
                network.finish();
                packed += network.counters(0).packed;
                for end in sends.into_iter().chain(receives) {
                    assert_eq!(network.end(end).outcome, Outcome::Ok, "{steps} steps, lane {lane}");
                }
            }
        }
    }
    assert!(packed > 0, "pieces that leave again may be packed");
}

#[test]
fn a_link_that_swallows_everything_is_found_out_by_the_other() {
    for_seeds(1000, |seed| {
        let mut random = Random::new(!seed);
        let shape = random.pick(&[TWO_LINKS, AHEAD_TWO_LINKS]);
        let mut network = Network::new(seed, 2, shape);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let lane = random.below(2);
        network.swallow(0, 1, lane);
        let mut ends = Vec::new();
        for tag in 0..40 {
            let bytes = random.pick(&[8, 1000, 5000, 30_000]);
            let (from, to) = random.pick(&[(0, 1), (1, 0)]);
            ends.push(network.send_synchronous(from, to, tag, bytes));
            ends.push(network.receive(to, Some(from), Some(tag), bytes));
            let steps = random.below(60);
            network.run_steps(steps);
        }
        while ends.iter().any(|&end| !network.is_complete(end)) {
            assert!(network.now_ns < 10_000_000_000, "ten seconds were not enough");
            network.run_steps(1);
        }
        assert!(ends.iter().all(|&end| network.end(end).outcome == Outcome::Ok));
    });
}

#[test]
fn a_peer_that_looks_away_is_not_taken_for_a_dead_link() {
    for_seeds(40, |seed| {
        let mut network = Network::new(seed, 2, TWO_LINKS);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        network.look_away(1, 5_000_000_000);
        for tag in 1..20 {
            network.send(0, 1, tag, 20_000);
            network.receive(1, Some(0), Some(tag), 20_000);
        }
        network.finish();
        assert_eq!(network.late_links, 0);
    });
}

#[test]
fn a_slow_link_does_not_stop_the_others() {
    for_seeds(6, |seed| {
        let mut network = Network::new(seed, 2, TWO_LINKS);
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        network.slow_down(0, 1, 1, 2_000_000_000);
        for tag in 0..6000 {
            network.receive(1, Some(0), Some(tag), 600);
            network.send(0, 1, tag, if tag % 100 == 0 { 600 } else { 8 });
            if tag % 16 == 0 {
                network.run_steps(100);
            }
        }
        network.finish();
    });
}
