//! What engines do to one another, told as scenarios. Every completion in them is checked by the
//! network against what was sent and against a reference model of matching; see `network`.

mod network;

use engine::strategy::{self, Carry, Choice, Piece, Strategy, View};
use engine::{Counters, Outcome, Selector, SendMode};
use network::{AHEAD, Content, NEAR, Network, Random, Receive, SLOW, Send, Shape, for_seeds};
use wire::Capabilities;

const FETCH: Shape = Shape {
    capabilities: Capabilities { pull: true, ..NEAR.capabilities },
    pull_works: true,
    ..NEAR
};
const FETCH_REFUSED: Shape = Shape { pull_works: false, ..FETCH };
/// Two links whose frames overtake one another.
const TWO_LINKS: Shape = Shape {
    links: 2,
    jitter_ns: 20_000,
    capabilities: Capabilities { replay: true, ..NEAR.capabilities },
    ..NEAR
};
const AHEAD_TWO_LINKS: Shape = Shape {
    links: 2,
    jitter_ns: 300_000,
    capabilities: Capabilities { replay: true, ..AHEAD.capabilities },
    ..AHEAD
};
/// Where little is accepted before more is granted.
const GRANTED: Shape = Shape {
    capabilities: Capabilities {
        credit_bytes: 2 << 10,
        credit_wanted: 40 << 10,
        ..AHEAD.capabilities
    },
    ..AHEAD
};
/// Two slow links, on which pieces go packed.
const SLOW_TWO_LINKS: Shape = Shape {
    links: 2,
    jitter_ns: 300_000,
    capabilities: Capabilities { replay: true, ..SLOW.capabilities },
    ..SLOW
};
const ALL: [Shape; 9] =
    [NEAR, FETCH, FETCH_REFUSED, TWO_LINKS, AHEAD, AHEAD_TWO_LINKS, GRANTED, SLOW, SLOW_TWO_LINKS];

#[test]
fn random_programs_match_as_the_model_does() {
    for_seeds(2000, |seed| {
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
        program.drain();
    });
}

#[test]
fn every_size_arrives_by_every_protocol() {
    for_seeds(4, |seed| {
        for shape in ALL {
            for mode in [SendMode::Standard, SendMode::Synchronous] {
                let mut network = Network::new(seed, 2, shape);
                for (tag, &bytes) in (0..).zip(&sizes(shape.capabilities)) {
                    let send = Send { to: 1, context: 3, tag, bytes, mode };
                    let receive =
                        Receive { source: Some(0), context: 3, tag: Some(tag), capacity: bytes };
                    let posted_first = network.random.one_in(2);
                    if posted_first {
                        network.submit_receive(1, receive);
                    }
                    network.submit_send(0, send);
                    if !posted_first {
                        network.run();
                        network.submit_receive(1, receive);
                    }
                }
                network.finish();
            }
        }
    });
}

#[test]
fn short_messages_are_eager_and_long_ones_ask() {
    let mut network = Network::new(0, 2, NEAR);
    let eager_max = NEAR.capabilities.eager_max;
    for (bytes, eager, rendezvous) in [(eager_max, 1, 0), (eager_max + 1, 1, 1)] {
        network.receive(1, Some(0), None, bytes);
        network.send(0, 1, 0, bytes);
        network.finish();
        let counters = network.counters(0);
        assert_eq!((counters.eager, counters.rendezvous), (eager, rendezvous));
    }
    assert_eq!(network.counters(0).out_of_credit, 0);
}

#[test]
fn a_long_message_with_credit_does_not_wait_to_be_cleared() {
    for (bytes, one_way) in [(1025, true), (6000, true), (6001, false), (20_000, false)] {
        let took = |seed| {
            let mut network = Network::new(seed, 2, AHEAD);
            network.receive(1, Some(0), None, 0);
            network.send(0, 1, 0, 0);
            network.run();
            let begin_ns = network.now_ns;
            network.receive(1, Some(0), None, bytes);
            let send = network.send(0, 1, 0, bytes);
            network.run();
            assert_eq!(network.end(send).outcome, Outcome::Ok);
            network.now_ns - begin_ns
        };
        // At best, that is where the link is never said to be full.
        let took_ns = (0..8).map(took).min().expect("eight seeds");
        // The message, and the credit that comes back; or request, clear, data.
        let trips = if one_way { 1..=2 } else { 3..=4 };
        let took = (took_ns + AHEAD.latency_ns / 2) / AHEAD.latency_ns;
        assert!(trips.contains(&took), "{bytes} bytes took {took_ns} ns");
    }
}

#[test]
fn short_messages_overtake_nothing_when_they_skip_the_window() {
    let (mut skipped, mut gathered) = (0, 0);
    for_seeds(40, |seed| {
        let mut network = Network::new(seed, 2, Shape { depth: 2, bytes_per_us: 100, ..AHEAD });
        let receives: Vec<_> = (0..60).map(|_| network.receive(1, Some(0), None, 9000)).collect();
        for tag in 0..60 {
            let bytes = network.random.pick(&[0, 8, 256, 257, 1025, 9000]);
            network.send(0, 1, tag, bytes);
            let steps = network.random.below(30);
            network.run_steps(steps);
        }
        network.finish();
        skipped += network.short_sends;
        gathered += network.gathered_sends;
        for (tag, receive) in (0..).zip(receives) {
            assert_eq!(network.end(receive).tag, tag);
        }
    });
    assert!(skipped > 0, "an idle link takes a short message at once");
    assert!(gathered > 0, "short messages are gathered behind one another");
}

#[test]
fn gathered_messages_share_a_frame_with_what_follows() {
    let mut network = Network::new(0, 2, NEAR);
    network.receive(1, Some(0), None, 0);
    network.send_synchronous(0, 1, 0, 0);
    network.run();
    let before = network.counters(0);
    for tag in 1..=50 {
        assert!(network.gather_now(0, 1, tag, 8));
    }
    network.run();
    assert_eq!(network.counters(0).frames, before.frames, "nothing leaves before it is released");
    let long = network.send_synchronous(0, 1, 51, 1024);
    for tag in 1..=51 {
        network.receive(1, Some(0), Some(tag), 1024);
    }
    network.run();
    assert_eq!(network.end(long).outcome, Outcome::Ok);
    assert_eq!(network.counters(0).frames, before.frames + 1);
}

#[test]
fn what_goes_ahead_is_paid_for_and_paid_back() {
    let mut network = Network::new(0, 2, AHEAD);
    let credit = AHEAD.capabilities.credit_bytes;
    for round in 0..20 {
        for tag in 0..10 {
            network.send(0, 1, tag, 6000);
        }
        network.run();
        let held = network.counters(1).unexpected_bytes_max;
        assert!((6000..=credit).contains(&held), "{held} bytes wait in round {round}");
        for tag in (0..10).rev() {
            network.receive(1, Some(0), Some(tag), if tag % 3 == 0 { 100 } else { 6000 });
        }
        network.finish();
    }
}

#[test]
fn what_fits_no_frame_asks_though_it_is_short() {
    let narrow = Capabilities { frame_max: 512, ..NEAR.capabilities };
    for_seeds(4, |seed| {
        let mut network = Network::new(seed, 2, Shape { capabilities: narrow, ..NEAR });
        for (tag, bytes) in (0..).zip([479, 480, 481, 512, 513, 1024]) {
            network.send(0, 1, tag, bytes);
            network.receive(1, Some(0), Some(tag), bytes);
        }
        network.finish();
        assert_eq!(network.counters(0).rendezvous, 4, "32 bytes of each frame are the header's");
    });
}

#[test]
fn a_refused_fetch_is_not_tried_again() {
    let mut network = Network::new(0, 2, FETCH_REFUSED);
    for tag in 0..3 {
        network.receive(1, Some(0), Some(tag), 20_000);
        network.send(0, 1, tag, 20_000);
        network.finish();
    }
    assert_eq!(network.fetches, 1);
}

#[test]
fn a_message_that_is_too_long_is_truncated_by_every_protocol() {
    for_seeds(8, |seed| {
        for shape in ALL {
            let mut network = Network::new(seed, 2, shape);
            for (tag, &bytes) in (0..).zip(&sizes(shape.capabilities)) {
                for capacity in [0, 1, bytes / 2, bytes.saturating_sub(1)] {
                    let posted_first = network.random.one_in(2);
                    let receive =
                        |network: &mut Network| network.receive(1, Some(0), Some(tag), capacity);
                    let early = posted_first.then(|| receive(&mut network));
                    let send = network.send_synchronous(0, 1, tag, bytes);
                    network.run();
                    let end = early.unwrap_or_else(|| receive(&mut network));
                    network.finish();
                    let message_bytes = bytes as u64;
                    let outcome = match capacity < bytes {
                        true => Outcome::Truncated { message_bytes },
                        false => Outcome::Ok,
                    };
                    assert_eq!(network.end(end).outcome, outcome);
                    assert_eq!(
                        network.end(send).outcome,
                        Outcome::Ok,
                        "the sender is not to blame"
                    );
                }
            }
        }
    });
}

#[test]
fn a_synchronous_send_waits_for_its_receive_and_a_standard_one_only_if_long() {
    for shape in [NEAR, FETCH] {
        for bytes in [0, 8, 300, 5000] {
            let mut network = Network::new(bytes as u64, 2, shape);
            let synchronous = network.send_synchronous(0, 1, 1, bytes);
            let standard = network.send(0, 1, 2, bytes);
            network.run();
            assert!(!network.is_complete(synchronous), "nobody has received it");
            assert_eq!(network.is_complete(standard), bytes <= shape.capabilities.eager_max);
            network.receive(1, Some(0), Some(1), bytes);
            network.run();
            assert!(network.is_complete(synchronous));
            network.receive(1, Some(0), Some(2), bytes);
            network.finish();
        }
    }
}

#[test]
fn an_unexpected_flood_stays_within_the_credits_and_completes() {
    for_seeds(6, |seed| {
        let mut network = Network::new(seed, 2, NEAR);
        let messages = 1500;
        let bytes = |tag: i32| tag as usize * 7 % 1100;
        for tag in 0..messages {
            network.send(0, 1, tag, bytes(tag));
        }
        network.run();
        let counters = network.counters(1);
        let credit = NEAR.capabilities.credit_bytes;
        assert_eq!(counters.unexpected, messages as u64, "all have come, none is received");
        assert!(counters.unexpected_bytes_max <= credit, "{counters:?}");
        assert!(network.counters(0).out_of_credit > 0, "the flood is larger than the credits");
        for tag in (0..messages).rev() {
            network.receive(1, Some(0), Some(tag), bytes(tag));
        }
        network.finish();
        assert!(network.counters(1).unexpected_bytes_max <= credit);
    });
}

#[test]
fn what_is_granted_follows_the_link_and_stays_within_the_budget() {
    for_seeds(12, |seed| {
        let mut network = Network::new(seed, 6, GRANTED);
        let wanted = GRANTED.capabilities.credit_wanted;
        let mut held = 0;
        for from in 1..6 {
            network.send(from, 0, 0, 0);
            network.run();
            for tag in 1..200 {
                network.send(from, 0, tag, 1000);
            }
            network.run();
            let most = network.counters(0).unexpected_bytes_max;
            let first = from == 1;
            assert!(!first || most > wanted / 2, "{most} bytes, {wanted} were wanted");
            assert!(most - held <= wanted, "rank {from} was granted more than it may have");
            held = most;
        }
        let begin = 5 * GRANTED.capabilities.credit_bytes;
        assert!(held <= network::BUDGET_BYTES + begin, "{held} bytes wait");
        for from in 1..6 {
            for tag in 0..200 {
                network.receive(0, Some(from), Some(tag), 1000);
            }
        }
        network.finish();
    });
}

#[test]
fn credits_come_back_when_messages_are_received() {
    for_seeds(6, |seed| {
        let mut network = Network::new(seed, 2, NEAR);
        for tag in 0..400 {
            network.receive(1, Some(0), Some(tag), 1000);
        }
        for tag in 0..400 {
            network.send(0, 1, tag, 1000);
            network.run();
        }
        network.finish();
        assert_eq!(network.counters(0).out_of_credit, 0, "400 kB went through 16 kB of credit");
    });
}

#[test]
fn the_flood_of_one_gate_leaves_the_others_alone() {
    for_seeds(6, |seed| {
        let mut network = Network::new(seed, 3, NEAR);
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
    });
}

#[test]
fn large_messages_head_to_head_pass_each_other() {
    for_seeds(4, |seed| {
        for shape in ALL.into_iter().chain([Shape { depth: 1, ..NEAR }]) {
            let mut network = Network::new(seed, 2, shape);
            for tag in 0..4 {
                network.send(0, 1, tag, 100_000);
                network.send(1, 0, tag, 100_000);
            }
            network.run();
            for tag in (0..4).rev() {
                network.receive(0, Some(1), Some(tag), 100_000);
                network.receive(1, Some(0), Some(tag), 100_000);
            }
            network.finish();
        }
    });
}

#[test]
fn a_long_message_does_not_hold_up_a_short_one() {
    let slow = Shape { bytes_per_us: 100, ..NEAR };
    let mut network = Network::new(0, 2, slow);
    let long = network.receive(1, Some(0), Some(1), 1_000_000);
    let short = network.receive(1, Some(0), Some(2), 8);
    network.send(0, 1, 1, 1_000_000);
    network.run_steps(30);
    network.send(0, 1, 2, 8);
    while !network.is_complete(short) {
        network.run_steps(1);
    }
    assert!(!network.is_complete(long), "10 ms of data went before 8 bytes");
    network.finish();
}

#[test]
fn long_messages_share_the_way() {
    for seed in 0..10 {
        let slow = Shape { bytes_per_us: 100, ..NEAR };
        let mut network = Network::new(seed, 2, slow);
        let longest = network.receive(1, Some(0), Some(1), 1_000_000);
        let shorter = network.receive(1, Some(0), Some(2), 100_000);
        network.send(0, 1, 1, 1_000_000);
        network.send(0, 1, 2, 100_000);
        while !network.is_complete(shorter) {
            network.run_steps(1);
        }
        assert!(!network.is_complete(longest), "they are served in turn");
        network.finish();
    }
}

#[test]
fn a_process_sends_to_itself() {
    for_seeds(4, |seed| {
        for shape in [NEAR, FETCH] {
            let mut network = Network::new(seed, 1, shape);
            for (tag, &bytes) in (0..).zip(&sizes(shape.capabilities)) {
                network.send_synchronous(0, 0, tag, bytes);
                network.receive(0, None, Some(tag), bytes);
            }
            network.finish();
        }
    });
}

#[test]
fn a_cancelled_receive_takes_no_message() {
    let mut network = Network::new(0, 2, NEAR);
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
    let mut network = Network::new(0, 2, NEAR);
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
fn a_released_operation_goes_on_and_leaves_its_place() {
    for_seeds(20, |seed| {
        for bytes in [8, 1000, 9000] {
            let mut network = Network::new(seed, 2, NEAR);
            let send = network.send_synchronous(0, 1, 0, bytes);
            let receive = network.receive(1, Some(0), Some(0), bytes);
            let sent = network.memory(send);
            let steps = network.random.below(20);
            network.run_steps(steps);
            network.release(send);
            network.release(receive);
            network.finish();
            assert_eq!(network.memory(receive), sent);
            assert!(!network.is_known(send) && !network.is_known(receive));
            network.send(0, 1, 0, bytes);
            network.receive(1, Some(0), Some(0), bytes);
            network.finish();
            assert!(!network.is_known(send), "a name is not given twice");
        }
    });
}

#[test]
fn probes_see_and_matched_probes_take() {
    for bytes in [0, 8, 1024, 5000] {
        let mut network = Network::new(0, 2, NEAR);
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
fn a_message_taken_by_a_probe_still_counts_against_the_credits() {
    let mut network = Network::new(0, 2, NEAR);
    let any = Selector { context: 0, source: None, tag: None };
    let mut taken = Vec::new();
    for tag in 0..200 {
        network.send(0, 1, tag, 1000);
        network.run();
        taken.push(network.matched_probe(1, any).expect("it has come"));
    }
    assert!(network.counters(0).eager < 20, "16 kB of credit hold no 20 kB");
    assert!(network.counters(1).unexpected_bytes_max <= NEAR.capabilities.credit_bytes);
    for message in taken {
        network.matched_receive(1, message, 1000);
    }
    network.finish();
}

#[test]
fn a_cut_ends_what_needs_the_peer_and_nothing_else() {
    for_seeds(300, |seed| {
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
fn two_links_out_of_order_deliver_in_order() {
    for_seeds(40, |seed| {
        let far = Shape { latency_ns: 50_000, jitter_ns: 500_000, ..TWO_LINKS };
        let mut network = Network::new(seed, 2, far);
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
    });
}

#[test]
fn a_link_that_dies_loses_nothing_while_another_lives() {
    for_seeds(1500, |seed| {
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
    for_seeds(200, |seed| {
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
fn thousands_of_messages_in_few_frames_are_put_in_order() {
    for_seeds(12, |seed| {
        let capabilities =
            Capabilities { frame_max: 1 << 20, credit_bytes: 4 << 20, ..TWO_LINKS.capabilities };
        let mut network = Network::new(seed, 2, Shape { capabilities, ..TWO_LINKS });
        for tag in 0..20_000 {
            network.receive(1, Some(0), Some(tag), 0);
            network.send(0, 1, tag, 0);
            if tag % 3000 == 0 {
                network.run_steps(20);
            }
        }
        network.finish();
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

#[test]
fn both_links_carry_a_long_message() {
    let shape = Shape { bytes_per_us: 100, jitter_ns: 0, ..TWO_LINKS };
    let took_ns = |links, seed| {
        let mut network = Network::new(seed, 2, Shape { links, ..shape });
        network.receive(1, Some(0), None, 0);
        network.send(0, 1, 0, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, 1_000_000);
        network.send(0, 1, 1, 1_000_000);
        network.finish();
        network.now_ns - begin_ns
    };
    // Seeds are those of the strategy that splits.
    for seed in [4, 11, 18, 25] {
        let (one, two) = (took_ns(1, seed), took_ns(2, seed));
        assert!(two * 185 < one * 100, "seed {seed}: {one} ns over one link, {two} ns over two");
    }
}

/// How long 2 MB take, in nanoseconds, where nothing disturbs them, and what was packed for it.
fn took_ns(strategy: &str, shape: Shape) -> (u64, Counters) {
    let strategy = || strategy::named(strategy).expect("a known name");
    let once = |seed| {
        let mut network = Network::with_strategy(seed, 2, shape, &strategy);
        network.send(0, 1, 0, 0);
        network.receive(1, Some(0), None, 0);
        network.run();
        let begin_ns = network.now_ns;
        network.receive(1, Some(0), None, 2_000_000);
        network.send(0, 1, 1, 2_000_000);
        network.finish();
        (network.end_ns() - begin_ns, network.counters(0))
    };
    (0..3).map(once).min_by_key(|(took_ns, _)| *took_ns).expect("three seeds")
}

#[test]
fn on_a_slow_link_what_can_be_packed_arrives_twice_as_soon_and_the_rest_no_later() {
    for packing in ["compress", "auto"] {
        let with = |content| took_ns(packing, Shape { content, ..SLOW });
        let without = |content| took_ns("split", Shape { content, ..SLOW }).0;
        let ((sparse_ns, packed), plain_ns) = (with(Content::Sparse), without(Content::Sparse));
        assert!(2 * sparse_ns < plain_ns, "{packing}: {sparse_ns} ns, {plain_ns} ns as it is");
        assert!(packed.packed_from_bytes > 1_900_000, "{packed:?}");
        let ((dense_ns, tried), plain_ns) = (with(Content::Dense), without(Content::Dense));
        assert!(100 * dense_ns <= 102 * plain_ns, "{packing}: {dense_ns} ns, {plain_ns} ns");
        assert_eq!(tried.packed, 0);
        assert!(tried.packed_in_vain_bytes <= 40_000, "{tried:?}");
    }
}

#[test]
fn on_a_fast_link_nothing_is_packed() {
    let memory = Shape { bytes_per_us: 10_000, latency_ns: 200, ..SLOW };
    let far = Shape { bytes_per_us: 1_200, latency_ns: 5_000_000, ..SLOW };
    let silent = Capabilities { adapts: false, ..SLOW.capabilities };
    let untold = Shape { capabilities: silent, ..SLOW };
    for shape in [memory, far, untold] {
        for packing in ["compress", "auto"] {
            let (_, counters) = took_ns(packing, Shape { content: Content::Sparse, ..shape });
            assert_eq!((counters.packed, counters.packed_in_vain_bytes), (0, 0), "{shape:?}");
        }
    }
}

#[test]
fn what_is_packed_is_chosen_by_what_the_last_pieces_were() {
    let strategy = || strategy::named("compress").expect("a known name");
    let mut network = Network::with_strategy(3, 2, SLOW, &strategy);
    for tag in 0..60 {
        network.receive(1, Some(0), Some(tag), 300_000);
        let mode = if tag % 2 == 0 { SendMode::Standard } else { SendMode::Synchronous };
        network.submit_send(0, Send { to: 1, context: 0, tag, bytes: 300_000, mode });
        network.run();
    }
    network.finish();
    let Counters { packed_from_bytes, packed_to_bytes, packed_in_vain_bytes, .. } =
        network.counters(0);
    // Two messages in three can be packed, to three quarters and to a third.
    assert!(packed_from_bytes > 60 * 300_000 / 3, "{:?}", network.counters(0));
    assert!(packed_to_bytes * 10 < packed_from_bytes * 8, "{:?}", network.counters(0));
    assert!(packed_in_vain_bytes * 10 < packed_from_bytes, "{:?}", network.counters(0));
}

#[test]
fn messages_that_would_go_whole_go_ahead_packed() {
    let strategy = || strategy::named("auto").expect("a known name");
    let shape = Shape { content: Content::Sparse, ..SLOW };
    let mut network = Network::with_strategy(3, 2, shape, &strategy);
    for tag in 0..40 {
        let receive = |network: &mut Network| {
            let capacity = if tag % 3 == 0 { 5000 } else { 12_000 };
            network.receive(1, Some(0), Some(tag), capacity)
        };
        let early = (tag % 2 == 0).then(|| receive(&mut network));
        network.send(0, 1, tag, 12_000);
        network.run();
        let late = early.unwrap_or_else(|| receive(&mut network));
        network.run();
        assert!(network.is_complete(late));
    }
    network.finish();
    let Counters { packed, eager, rendezvous, .. } = network.counters(0);
    assert_eq!((packed, eager, rendezvous), (40, 0, 40), "{:?}", network.counters(0));
}

#[test]
fn a_strategy_that_breaks_a_rule_is_refused_with_its_reason() {
    #[derive(Debug)]
    struct Rogue(fn(&View<'_>, &mut Choice));
    impl Strategy for Rogue {
        fn name(&self) -> &'static str {
            "rogue"
        }
        fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
            (self.0)(view, choice);
        }
    }
    type Rule = fn(&View<'_>, &mut Choice);
    let rogues: [(Rule, &str); 9] = [
        (|_, choice| choice.controls = 7, "control packets"),
        (|_, choice| choice.messages.push((9, Carry::Copied)), "not to be had"),
        (|_, choice| choice.messages.push((2, Carry::Copied)), "overtakes an older one"),
        (|_, choice| choice.messages.push((0, Carry::Copied)), "must ask"),
        (
            |_, choice| {
                choice.messages.extend([(0, Carry::Asked), (1, Carry::Copied), (1, Carry::Copied)]);
            },
            "not to be had",
        ),
        (
            |_, choice| {
                choice.messages.extend([
                    (0, Carry::Asked),
                    (1, Carry::Gathered),
                    (2, Carry::Copied),
                ])
            },
            "goes on behind a body",
        ),
        (|_, choice| choice.piece = Some(Piece::plain(3, 1)), "a piece of"),
        (|_, choice| choice.piece = Some(Piece::plain(0, 1 << 20)), "has room for"),
        (
            |_, choice| {
                choice.messages.push((0, Carry::Asked));
                choice.piece = Some(Piece { packed_max: 970, ..Piece::plain(0, 1000) });
            },
            "may go packed",
        ),
    ];
    for (rogue, reason) in rogues {
        let mut network =
            Network::with_strategy(1, 2, NEAR, &|| Box::new(Rogue(rogue)) as Box<dyn Strategy>);
        for (tag, bytes) in [(0, 20_000), (1, 8), (2, 8)] {
            network.send(0, 1, tag, bytes);
        }
        for (tag, bytes) in [(0, 20_000), (1, 8), (2, 8)] {
            network.receive(1, Some(0), Some(tag), bytes);
        }
        network.finish();
        let refusal = network.refusal(0).expect("the rogue was found out");
        assert!(refusal.contains("strategy rogue") && refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn a_strategy_that_chooses_nothing_stalls_only_itself() {
    #[derive(Debug)]
    struct Idle;
    impl Strategy for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }
        fn choose(&mut self, _: &View<'_>, _: &mut Choice) {}
    }
    let mut network = Network::with_strategy(1, 2, NEAR, &|| Box::new(Idle) as Box<dyn Strategy>);
    network.send_synchronous(0, 1, 0, 100);
    network.receive(1, Some(0), Some(0), 100);
    network.finish();
    assert!(network.refusal(0).is_some_and(|text| text.contains("nothing")));
}

/// A random MPI program.
struct Program {
    network: Network,
    size: usize,
    receives: Vec<network::Handle>,
    taken: Vec<(usize, (engine::MatchedId, usize))>,
}

impl Program {
    fn new(seed: u64, size: usize, shape: Shape) -> Self {
        let network = Network::new(seed, size, shape);
        Self { network, size, receives: Vec::new(), taken: Vec::new() }
    }

    fn act(&mut self, random: &mut Random) {
        let rank = random.below(self.size);
        match random.below(16) {
            0..=6 => self.send(rank, random),
            7..=11 => {
                let receive = self.receive(random);
                self.receives.push(self.network.submit_receive(rank, receive));
            }
            12 => {
                if !self.receives.is_empty() {
                    let at = random.below(self.receives.len());
                    self.network.cancel(self.receives.swap_remove(at));
                }
            }
            13 => {
                let selector = self.receive(random).selector();
                self.network.probe(rank, selector);
            }
            14 => {
                let selector = self.receive(random).selector();
                if let Some(message) = self.network.matched_probe(rank, selector) {
                    self.taken.push((rank, message));
                }
            }
            _ => {
                if let Some((rank, message)) = self.taken.pop() {
                    self.network.matched_receive(rank, message, 3000);
                }
            }
        }
    }

    fn send(&mut self, rank: usize, random: &mut Random) {
        let (to, context) = (random.below(self.size), random.next() % 2);
        let bytes = random.pick(&[0, 1, 100, 256, 257, 1000, 1024, 1025, 5000, 9000]);
        let mode = random.pick(&[SendMode::Standard, SendMode::Standard, SendMode::Synchronous]);
        self.network
            .submit_send(rank, Send { to, context, tag: random.below(3) as i32, bytes, mode });
    }

    fn receive(&self, random: &mut Random) -> Receive {
        let source = random.below(2 * self.size);
        let tag = random.below(5) as i32;
        Receive {
            source: (source < self.size).then_some(source),
            context: random.next() % 2,
            tag: (tag < 3).then_some(tag),
            capacity: random.pick(&[0, 100, 1024, 10_000]),
        }
    }

    /// As [`Program::drain`], and nobody has failed.
    fn drain_whole(self) {
        let network = self.drain();
        assert_eq!(network.failures(), 0, "a link was left");
    }

    /// Receives and cancels whatever is left.
    fn drain(mut self) -> Network {
        self.network.run();
        for (rank, message) in self.taken {
            self.network.matched_receive(rank, message, 3000);
        }
        for rank in 0..self.size {
            for context in 0..2 {
                let any = Receive { source: None, context, tag: None, capacity: 10_000 };
                while self.network.probe(rank, any.selector()).is_some() {
                    self.network.submit_receive(rank, any);
                }
            }
        }
        self.network.run();
        for receive in self.receives {
            if !self.network.is_complete(receive) {
                assert!(self.network.cancel(receive), "only what nobody sent to is left");
            }
        }
        self.network.finish();
        self.network
    }
}

/// Sizes on both sides of every threshold.
fn sizes(capabilities: Capabilities) -> Vec<usize> {
    let Capabilities { frame_max, inline_max, eager_max, .. } = capabilities;
    let thresholds = [1, inline_max, eager_max, frame_max - 20, frame_max, 2 * (frame_max - 20)];
    let mut sizes: Vec<_> = thresholds.iter().flat_map(|&at| [at - 1, at, at + 1]).collect();
    sizes.push(100_000);
    sizes
}
