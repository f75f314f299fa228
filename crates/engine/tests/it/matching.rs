//! Matching of receives and messages, and their order.

use engine::{Outcome, Selector};
use wire::Capabilities;

use testing::{Random, seeds};

use crate::network::{ALL, NEAR, Program, Shape, SimulatedNetwork, TWO_LINKS};

#[test]
fn random_programs_match_as_the_model_does() {
    let mut taken = 0;
    for seed in seeds(5000) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&ALL);
        let mut program = Program::new(seed, 2 + random.below(3), shape);
        for _ in 0..10 + random.below(60) {
            program.act(&mut random);
            if random.one_in(3) {
                let steps = random.below(40);
                program.network.run_steps(steps);
            }
        }
        taken += program.drain().granted;
    }
    if !testing::is_seed_given() {
        assert!(taken > 500, "only {taken} messages were taken in without a receive");
    }
}

#[test]
fn thousands_of_wildcards_among_exact_receives_match_as_the_model_does() {
    for seed in seeds(6) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&ALL);
        let mut program = Program::new(seed, 3, shape);
        // Receives before messages, messages before receives, and both at once, with probes among
        // them.
        for phase in [seed % 3, (seed + 1) % 3, 2] {
            for _ in 0..5000 {
                let rank = random.below(3);
                match phase {
                    0 => program.post(rank, &mut random),
                    1 => program.send(rank, &mut random),
                    _ => program.act(&mut random),
                }
                program.network.run_steps(1);
            }
        }
        program.drain();
    }
}

#[test]
fn a_cancelled_receive_takes_no_message() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
    let cancelled = network.receive(1, Some(0), None, 64);
    let kept = network.receive(1, None, None, 64);
    assert!(network.cancel(cancelled));
    assert!(!network.cancel(cancelled), "it is over already");
    network.send(0, 1, 5, 64);
    network.run();
    assert!(!network.cancel(kept), "too late");
    network.finish();
    assert_eq!(network.end(cancelled).outcome, Outcome::Cancelled);
    assert_eq!(network.end(kept).outcome, Outcome::Ok);
}

#[test]
fn a_send_and_a_receive_under_way_cannot_be_cancelled() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
    let send = network.send(0, 1, 0, 100_000);
    let receive = network.receive(1, Some(0), None, 100_000);
    network.run_steps(12);
    assert!(!network.is_complete(receive));
    assert!(!network.cancel(send));
    network.run_steps(12);
    network.cancel(receive);
    network.finish();
}

#[test]
fn probes_see_and_matched_probes_take() {
    for bytes in [0, 8, 1024, 5000] {
        let mut network = SimulatedNetwork::new(0, 2, NEAR);
        let any = Selector { context: 0, source: None, tag: None };
        assert_eq!(network.probe(1, any), None);
        for tag in 0..3 {
            network.send_synchronous(0, 1, tag, bytes);
        }
        network.run();
        assert_eq!(network.probe(1, any).map(|message| message.tag), Some(0));
        let second = Selector { tag: Some(1), ..any };
        let taken = network.matched_probe(1, second).expect("it has come");
        assert_eq!(network.matched_probe(1, second), None, "a message is taken once");
        network.receive(1, Some(0), None, bytes);
        network.receive(1, Some(0), None, bytes);
        network.run();
        network.matched_receive(1, taken, bytes);
        network.finish();
    }
}

#[test]
fn two_links_out_of_order_deliver_in_order() {
    for seed in seeds(40) {
        let far = Shape { latency_ns: 50_000, jitter_ns: 500_000, ..TWO_LINKS };
        let mut network = SimulatedNetwork::new(seed, 2, far);
        let receives: Vec<_> = (0..200).map(|_| network.receive(1, Some(0), None, 2000)).collect();
        for tag in 0..200 {
            let bytes = network.random.below(2000);
            network.send(0, 1, tag, bytes);
            network.run_steps(1);
        }
        network.finish();
        for (tag, receive) in (0..).zip(receives) {
            assert_eq!(network.end(receive).tag, tag);
        }
    }
}

#[test]
fn thousands_of_messages_in_few_frames_are_put_in_order() {
    for seed in seeds(12) {
        let capabilities =
            Capabilities { frame_max: 1 << 20, credit_bytes: 4 << 20, ..TWO_LINKS.capabilities };
        let mut network = SimulatedNetwork::new(seed, 2, Shape { capabilities, ..TWO_LINKS });
        for tag in 0..20_000 {
            network.receive(1, Some(0), Some(tag), 0);
            network.send(0, 1, tag, 0);
            if tag % 3000 == 0 {
                network.run_steps(20);
            }
        }
        network.finish();
    }
}
