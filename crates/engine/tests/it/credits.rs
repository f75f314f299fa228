//! Limits on unmatched messages.

use engine::{Counters, Outcome, Peak, Selector, SendMode, strategy};
use wire::Capabilities;

use testing::{Random, seeds};

use crate::network::{
    AHEAD_TWO_LINKS, ALL, BUDGET_BYTES, FETCH, GRANTED, LONG_ROUND_TRIP, NEAR, Receive, SCARCE,
    SCARCE_TWO_LINKS, Send, Shape, SimulatedNetwork, TWO_LINKS,
};

#[test]
fn data_before_the_cts_are_charged_and_credited_back() {
    let mut network = SimulatedNetwork::new(0, 2, LONG_ROUND_TRIP);
    let credit = LONG_ROUND_TRIP.capabilities.credit_bytes;
    for round in 0..20 {
        for tag in 0..10 {
            network.send(0, 1, tag, 6000);
        }
        network.run();
        let held = network.counters(1).unexpected_bytes_max.0;
        assert!((6000..=credit).contains(&held), "{held} bytes wait in round {round}");
        for tag in (0..10).rev() {
            network.receive(1, Some(0), Some(tag), if tag % 3 == 0 { 100 } else { 6000 });
        }
        network.finish();
    }
}

#[test]
fn an_unexpected_flood_stays_within_what_is_granted_and_completes() {
    for seed in seeds(12) {
        // Without a budget nothing is granted beyond the credits.
        let budget_bytes = [0, BUDGET_BYTES][seed as usize % 2];
        let mut network = SimulatedNetwork::with_budget(seed, 2, NEAR, budget_bytes);
        let messages = 1500;
        let bytes = |tag: i32| tag as usize * 7 % 1100;
        for tag in 0..messages {
            network.send(0, 1, tag, bytes(tag));
        }
        network.run();
        let counters = network.counters(1);
        // One peer may have half of the budget.
        let most = NEAR.capabilities.credit_bytes + budget_bytes / 2;
        assert_eq!(counters.unexpected, messages as u64, "all have come, none is received");
        assert!(counters.unexpected_bytes_max.0 <= most, "{counters:?}");
        assert!(network.counters(0).out_of_credit > 0, "the flood is larger than the credits");
        for tag in (0..messages).rev() {
            network.receive(1, Some(0), Some(tag), bytes(tag));
        }
        network.finish();
        assert!(network.counters(1).unexpected_bytes_max.0 <= most);
    }
}

#[test]
fn granted_credit_follows_the_link_and_stays_within_the_budget() {
    for seed in seeds(12) {
        let mut network = SimulatedNetwork::new(seed, 6, GRANTED);
        let wanted = GRANTED.capabilities.credit_wanted;
        let mut held = 0;
        for from in 1..6 {
            network.send(from, 0, 0, 0);
            network.run();
            for tag in 1..200 {
                network.send(from, 0, tag, 1000);
            }
            network.run();
            let most = network.counters(0).unexpected_bytes_max.0;
            let first = from == 1;
            assert!(!first || most > wanted / 2, "{most} bytes, {wanted} were wanted");
            assert!(most - held <= wanted, "rank {from} was granted more than it may have");
            held = most;
        }
        let begin = 5 * GRANTED.capabilities.credit_bytes;
        assert!(held <= BUDGET_BYTES + begin, "{held} bytes wait");
        for from in 1..6 {
            for tag in 0..200 {
                network.receive(0, Some(from), Some(tag), 1000);
            }
        }
        network.finish();
    }
}

#[test]
fn all_peers_out_of_credit_at_once_bring_everything_to_late_receivers() {
    const SIZE: usize = 4;
    for seed in seeds(100) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&[NEAR, TWO_LINKS, LONG_ROUND_TRIP, AHEAD_TWO_LINKS, GRANTED]);
        let mut network = SimulatedNetwork::new(seed, SIZE, shape);
        let all = || (0..SIZE).flat_map(|a| (0..SIZE).map(move |b| (a, b)));
        let pairs: Vec<_> = all().filter(|(from, to)| from != to).collect();
        for tag in 0..60 {
            for &(from, to) in &pairs {
                let bytes = random.pick(&[8, 700, 1000, 1024, 5000]);
                network.send(from, to, tag, bytes);
                network.run_steps(2);
            }
        }
        network.run();
        let begin = SIZE.saturating_sub(1) * shape.capabilities.credit_bytes;
        for rank in 0..SIZE {
            let Counters { out_of_credit, unexpected_bytes_max: Peak(most), .. } =
                network.counters(rank);
            assert!(out_of_credit > 0 && most > begin / 2, "rank {rank}");
        }
        // The processes begin to receive one after another, with exact selectors or wildcards.
        for to in 0..SIZE {
            for tag in (0..60).rev() {
                for from in (0..SIZE).filter(|from| *from != to) {
                    match to % 2 {
                        0 => network.receive(to, Some(from), Some(tag), 5000),
                        _ => network.receive(to, None, None, 5000),
                    };
                }
            }
            network.run();
        }
        network.finish();
    }
}

#[test]
fn credits_come_back_when_messages_are_received() {
    for seed in seeds(6) {
        let mut network = SimulatedNetwork::new(seed, 2, NEAR);
        for tag in 0..400 {
            network.receive(1, Some(0), Some(tag), 1000);
        }
        for tag in 0..400 {
            network.send(0, 1, tag, 1000);
            network.run();
        }
        network.finish();
        assert_eq!(network.counters(0).out_of_credit, 0, "400 kB went through 16 kB of credit");
    }
}

#[test]
fn the_flood_of_one_peer_leaves_the_others_alone() {
    for seed in seeds(6) {
        let mut network = SimulatedNetwork::new(seed, 3, NEAR);
        for tag in 0..300 {
            network.send(1, 0, tag, 500);
        }
        network.run();
        assert!(network.counters(1).out_of_credit > 0, "the flood has used up its credit");
        for tag in 0..100 {
            let receive = network.receive(0, Some(2), Some(tag), 1000);
            network.send(2, 0, tag, 1000);
            network.run();
            assert!(network.is_complete(receive));
        }
        assert_eq!(network.counters(2).out_of_credit, 0);
        for tag in 0..300 {
            network.receive(0, None, Some(tag), 500);
        }
        network.finish();
    }
}

#[test]
fn a_communicator_that_nobody_receives_on_leaves_the_others_alone() {
    const SIZES: [usize; 6] = [0, 8, 700, 1024, 5000, 100_000];
    for seed in seeds((ALL.len() * strategy::NAMES.len()) as u64) {
        let shape = ALL[seed as usize / strategy::NAMES.len()];
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        let send = |network: &mut SimulatedNetwork, context, tag, bytes| {
            let mode = SendMode::Standard;
            network.submit_send(0, Send { to: 1, context, tag, bytes, mode });
        };
        let receive = |network: &mut SimulatedNetwork, context, tag| {
            let receive = Receive { source: Some(0), context, tag: Some(tag), capacity: 100_000 };
            network.submit_receive(1, receive)
        };
        let mut flood = 0;
        while flood < 150 || network.counters(0).out_of_credit == 0 {
            assert!(flood < 10_000, "the flood uses up the credit");
            send(&mut network, 2, flood, SIZES[flood as usize % SIZES.len()]);
            network.run_steps(3);
            flood += 1;
        }
        network.run();
        for tag in 0..60 {
            let ready = receive(&mut network, 0, tag);
            send(&mut network, 2, flood + tag, SIZES[tag as usize % 5 + 1]);
            send(&mut network, 0, tag, SIZES[tag as usize % SIZES.len()]);
            network.run();
            assert!(network.is_complete(ready), "message {tag} is behind what nobody receives");
        }
        for tag in (0..flood + 60).rev() {
            receive(&mut network, 2, tag);
        }
        network.finish();
    }
}

#[test]
fn a_message_taken_by_a_probe_still_counts_against_the_credits() {
    let mut network = SimulatedNetwork::with_budget(0, 2, NEAR, 0);
    let any = Selector { context: 0, source: None, tag: None };
    let mut taken = Vec::new();
    for tag in 0..200 {
        network.send(0, 1, tag, 1000);
        network.run();
        taken.push(network.matched_probe(1, any).expect("it has come"));
    }
    assert!(network.counters(0).eager < 20, "16 kB of credit hold no 20 kB");
    assert!(network.counters(1).unexpected_bytes_max.0 <= NEAR.capabilities.credit_bytes);
    for message in taken {
        network.matched_receive(1, message, 1000);
    }
    network.finish();
}

#[test]
fn short_messages_beyond_the_credit_do_not_wait_for_their_receive() {
    const MESSAGES: i32 = 400;
    let mut taken = 0;
    for seed in seeds((ALL.len() * 3 * 4) as u64) {
        let shape = ALL[seed as usize % ALL.len()];
        let mut network = SimulatedNetwork::with_budget(seed, 2, shape, 4 << 20);
        let bytes = |tag: i32| tag as usize * 37 % 1025;
        let mut sends = Vec::new();
        for tag in 0..MESSAGES {
            sends.push(network.send(0, 1, tag, bytes(tag)));
            let steps = network.random.below(20);
            network.run_steps(steps);
        }
        network.run();
        let waiting = sends.iter().filter(|&&send| !network.is_complete(send)).count();
        assert_eq!(waiting, 0, "sends that wait for a receive");
        taken += network.granted;
        let any = Selector { context: 0, source: None, tag: None };
        let mut receives = Vec::new();
        for tag in 0..MESSAGES {
            receives.push(match seed as usize / ALL.len() % 3 {
                0 => network.receive(1, Some(0), Some(tag), 1024),
                1 => network.receive(1, None, None, 1024),
                _ => {
                    let message = network.matched_probe(1, any).expect("it has come");
                    network.matched_receive(1, message, 1024)
                }
            });
        }
        network.finish();
        for (tag, receive) in (0..).zip(receives) {
            assert_eq!(network.end(receive).tag, tag, "they come in order");
        }
    }
    assert!(taken > 1000, "only {taken} were taken in");
}

#[test]
fn every_short_length_is_granted_and_no_long_one() {
    let eager_max = NEAR.capabilities.eager_max;
    for (bytes, count) in [(0, 400), (1, 400), (eager_max, 100), (eager_max + 1, 100)] {
        for shape in [NEAR, FETCH, LONG_ROUND_TRIP, TWO_LINKS] {
            let mut network = SimulatedNetwork::with_budget(bytes as u64, 2, shape, 1 << 20);
            let sends: Vec<_> = (0..count).map(|tag| network.send(0, 1, tag, bytes)).collect();
            network.run();
            let are_complete = sends.iter().all(|&send| network.is_complete(send));
            assert_eq!(are_complete, bytes <= eager_max, "{bytes} bytes");
            assert_eq!(network.granted > 0, bytes <= eager_max, "{bytes} bytes");
            for tag in (0..count).rev() {
                network.receive(1, Some(0), Some(tag), bytes);
            }
            network.finish();
            let before = network.granted;
            for tag in 0..20 {
                network.send(0, 1, tag, bytes);
                network.run();
            }
            assert_eq!(network.granted, before, "what was granted for the others is credit now");
            for tag in 0..20 {
                network.receive(1, Some(0), Some(tag), bytes);
            }
            network.finish();
        }
    }
}

#[test]
fn messages_beyond_the_budget_wait_for_their_receive() {
    for (budget_bytes, most) in [(0, 0), (1127, 0), (1128, 1), (8 << 10, 7), (64 << 10, 58)] {
        for seed in seeds(strategy::NAMES.len() as u64) {
            let mut network = SimulatedNetwork::with_budget(seed, 2, NEAR, budget_bytes);
            let sends: Vec<_> = (0..200).map(|tag| network.send(0, 1, tag, 500)).collect();
            network.run();
            assert_eq!(network.granted, most, "messages of 564 bytes in {budget_bytes}");
            let complete = sends.iter().filter(|&&send| network.is_complete(send)).count() as u64;
            assert_eq!(complete, network.counters(0).eager + most);
            let limit = NEAR.capabilities.credit_bytes + budget_bytes / 2;
            assert!(network.counters(1).unexpected_bytes_max.0 <= limit);
            for tag in (0..200).rev() {
                network.receive(1, Some(0), Some(tag), 500);
            }
            network.finish();
        }
    }
}

#[test]
fn one_peer_that_floods_leaves_the_others_half_of_the_budget() {
    let mut network = SimulatedNetwork::with_budget(0, 5, NEAR, 256 << 10);
    let mut shares = Vec::new();
    for from in 1..5 {
        let before = network.granted;
        for tag in 0..400 {
            network.send(from, 0, tag, 500);
        }
        network.run();
        shares.push(network.granted - before);
    }
    assert!(shares[3] > 20 && shares.is_sorted_by(|one, next| one / 2 <= *next), "{shares:?}");
    for from in 1..5 {
        for tag in 0..400 {
            network.receive(0, Some(from), Some(tag), 500);
        }
    }
    network.finish();
}

#[test]
fn a_synchronous_send_beyond_the_credit_waits_for_its_receive() {
    for seed in seeds(14) {
        let shape = [NEAR, FETCH][seed as usize % 2];
        let mut network = SimulatedNetwork::with_budget(seed, 2, shape, 1 << 20);
        let mut sends = Vec::new();
        for tag in 0..100 {
            sends.push(network.send_synchronous(0, 1, tag, 500));
            network.send(0, 1, tag, 500);
        }
        network.run();
        assert!(network.granted > 0 && !sends.iter().any(|&send| network.is_complete(send)));
        for (tag, send) in (0..).zip(sends) {
            network.receive(1, Some(0), Some(tag), 500);
            network.run();
            assert!(network.is_complete(send));
        }
        for tag in 0..100 {
            network.receive(1, Some(0), Some(tag), 500);
        }
        network.finish();
    }
}

#[test]
fn a_receive_may_match_a_message_while_its_granted_data_arrive() {
    // Messages in several pieces; a seed is the step at which the receives are posted.
    let narrow = |shape: Shape| {
        let capabilities = Capabilities { frame_max: 512, ..shape.capabilities };
        Shape { capabilities, bytes_per_us: 100, ..shape }
    };
    let mut taken = 0;
    for seed in seeds(600) {
        let shape = narrow([SCARCE, SCARCE_TWO_LINKS][seed as usize % 2]);
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        let sends: Vec<_> = (0..12).map(|tag| network.send(0, 1, tag, 1024)).collect();
        network.run_steps(seed as usize / 2);
        let any = Selector { context: 0, source: None, tag: None };
        let matched = network.matched_probe(1, any);
        for tag in (0..12).rev() {
            network.receive(
                1,
                Some(0),
                [None, Some(tag)][seed as usize / 2 % 2],
                90 * tag as usize,
            );
        }
        if let Some(message) = matched {
            network.matched_receive(1, message, 700);
            network.send(0, 1, 0, 0);
        }
        network.finish();
        assert!(sends.iter().all(|&send| network.is_complete(send)));
        taken += network.granted;
    }
    assert!(taken > 600, "only {taken} were taken in");
}

#[test]
fn a_lost_link_loses_no_granted_data() {
    for seed in seeds(600) {
        let step = seed as usize / 2;
        let mut network = SimulatedNetwork::with_budget(seed, 2, SCARCE_TWO_LINKS, 1 << 20);
        let sends: Vec<_> = (0..40).map(|tag| network.send(0, 1, tag, 25 * tag as usize)).collect();
        network.run_until_links(0, 1, 2);
        network.run_steps(step);
        network.cut_link(0, 1, seed as usize % 2);
        network.run();
        assert!(sends.iter().all(|&send| network.is_complete(send)), "the other link carries on");
        for tag in (0..40).rev() {
            network.receive(1, Some(0), Some(tag), 1000);
        }
        network.finish();
        assert!(network.granted > 0);
    }
}

#[test]
fn complete_granted_messages_outlive_their_sender() {
    for seed in seeds(200) {
        let mut network = SimulatedNetwork::new(seed, 2, SCARCE);
        let sends: Vec<_> = (0..12).map(|tag| network.send(0, 1, tag, 90 * tag as usize)).collect();
        network.run_steps(seed as usize);
        let all = sends.iter().all(|&send| network.is_complete(send));
        if all {
            network.run();
        }
        network.cut(0, 1);
        network.run();
        let receives: Vec<_> =
            (0..12).map(|tag| network.receive(1, Some(0), Some(tag), 990)).collect();
        network.finish();
        let outcomes = receives.iter().map(|&receive| network.end(receive).outcome);
        assert!(!all || outcomes.into_iter().all(|outcome| outcome == Outcome::Ok));
    }
}
