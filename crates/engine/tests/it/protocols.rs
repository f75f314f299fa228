//! Protocols by message length and send mode.

use engine::{Outcome, SendMode, strategy};
use wire::Capabilities;

use testing::seeds;

use crate::network::{
    ALL, FETCH, FETCH_REFUSED, LONG_ROUND_TRIP, NEAR, Receive, Send, Shape, SimulatedNetwork,
    TWO_LINKS,
};

#[test]
fn every_size_arrives_by_every_protocol() {
    for seed in seeds(4) {
        for shape in ALL {
            for mode in [SendMode::Standard, SendMode::Synchronous] {
                let mut network = SimulatedNetwork::new(seed, 2, shape);
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
    }
}

#[test]
fn short_messages_are_eager_and_long_ones_use_rendezvous() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
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
fn a_long_message_with_credit_does_not_wait_for_the_cts() {
    for (bytes, one_way) in [(1025, true), (6000, true), (6001, false), (20_000, false)] {
        let took = |seed| {
            let mut network = SimulatedNetwork::new(seed, 2, LONG_ROUND_TRIP);
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
        // The minimum is reached where the link is never full.
        let took_ns = (0..8).map(took).min().expect("eight seeds");
        // The message and the returned credit; or RTS, CTS and data.
        let trips = if one_way { 1..=2 } else { 3..=4 };
        let took = (took_ns + LONG_ROUND_TRIP.latency_ns / 2) / LONG_ROUND_TRIP.latency_ns;
        assert!(trips.contains(&took), "{bytes} bytes took {took_ns} ns");
    }
}

#[test]
fn short_messages_that_skip_the_send_queue_overtake_nothing() {
    let (mut skipped, mut coalesced) = (0, 0);
    for seed in seeds(40) {
        let mut network = SimulatedNetwork::new(
            seed,
            2,
            Shape { depth: 2, bytes_per_us: 100, ..LONG_ROUND_TRIP },
        );
        let receives: Vec<_> = (0..60).map(|_| network.receive(1, Some(0), None, 9000)).collect();
        for tag in 0..60 {
            let bytes = network.random.pick(&[0, 8, 256, 257, 1025, 9000]);
            network.send(0, 1, tag, bytes);
            let steps = network.random.below(30);
            network.run_steps(steps);
        }
        network.finish();
        skipped += network.short_sends;
        coalesced += network.coalesced_sends;
        for (tag, receive) in (0..).zip(receives) {
            assert_eq!(network.end(receive).tag, tag);
        }
    }
    assert!(skipped > 0, "an idle link takes a short message at once");
    assert!(coalesced > 0, "short messages are coalesced behind one another");
}

#[test]
fn coalesced_messages_share_a_frame_with_later_ones() {
    // The seeds are those of strategies that coalesce.
    let mut network = SimulatedNetwork::new(1, 2, NEAR);
    network.receive(1, Some(0), None, 0);
    network.send_synchronous(0, 1, 0, 0);
    network.run();
    let before = network.counters(0);
    for tag in 1..=50 {
        assert!(network.coalesce_now(0, 1, tag, 8));
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
fn fifo_coalesces_nothing() {
    let fifo = || strategy::named("fifo").expect("a known name");
    let mut network = SimulatedNetwork::with_strategy(0, 2, NEAR, &fifo);
    network.receive(1, Some(0), None, 0);
    network.send_synchronous(0, 1, 0, 0);
    network.run();
    let before = network.counters(0).frames;
    assert!(!network.coalesce_now(0, 1, 1, 8));
    for tag in 1..=50 {
        network.send(0, 1, tag, 8);
        network.receive(1, Some(0), Some(tag), 8);
    }
    network.finish();
    assert_eq!((network.counters(0).frames - before, network.coalesced_sends), (50, 0));
}

#[test]
fn messages_that_do_not_fit_beside_coalesced_ones_have_their_own_frame() {
    for shape in [NEAR, TWO_LINKS] {
        for name in &strategy::NAMES[1..] {
            let strategy = || strategy::named(name).expect("a known name");
            let mut network = SimulatedNetwork::with_strategy(1, 2, shape, &strategy);
            network.receive(1, Some(0), None, 0);
            network.send_synchronous(0, 1, 0, 0);
            network.run();
            for tag in 1..=16 {
                assert!(network.coalesce_now(0, 1, tag, 200));
            }
            network.send_synchronous(0, 1, 17, 1024);
            for tag in 1..=17 {
                network.receive(1, Some(0), Some(tag), 1024);
            }
            network.finish();
        }
    }
}

#[test]
fn short_messages_that_fit_no_frame_use_rendezvous() {
    for (shape, header) in [(NEAR, 32), (TWO_LINKS, 40)] {
        let narrow = Capabilities { frame_max: 512, ..shape.capabilities };
        let room = 512 - header;
        for seed in seeds(strategy::NAMES.len() as u64) {
            let mut network =
                SimulatedNetwork::new(seed, 2, Shape { capabilities: narrow, ..shape });
            for (tag, bytes) in (0..).zip([room - 1, room, room + 1, 512, 513, 1024]) {
                network.send(0, 1, tag, bytes);
                network.receive(1, Some(0), Some(tag), bytes);
            }
            network.finish();
            let asked = network.counters(0).rendezvous;
            assert_eq!(asked, 4, "{header} bytes of each frame are headers");
        }
    }
}

#[test]
fn a_refused_remote_read_is_not_tried_again() {
    let mut network = SimulatedNetwork::new(0, 2, FETCH_REFUSED);
    for tag in 0..3 {
        network.receive(1, Some(0), Some(tag), 20_000);
        network.send(0, 1, tag, 20_000);
        network.finish();
    }
    assert_eq!(network.remote_reads, 1);
}

#[test]
fn a_message_that_is_too_long_is_truncated_by_every_protocol() {
    for seed in seeds(8) {
        for shape in ALL {
            let mut network = SimulatedNetwork::new(seed, 2, shape);
            for (tag, &bytes) in (0..).zip(&sizes(shape.capabilities)) {
                for capacity in [0, 1, bytes / 2, bytes.saturating_sub(1)] {
                    let posted_first = network.random.one_in(2);
                    let receive = |network: &mut SimulatedNetwork| {
                        network.receive(1, Some(0), Some(tag), capacity)
                    };
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
    }
}

#[test]
fn a_synchronous_send_waits_for_its_receive_and_a_standard_one_only_if_long() {
    for shape in [NEAR, FETCH] {
        for bytes in [0, 8, 300, 5000] {
            let mut network = SimulatedNetwork::new(bytes as u64, 2, shape);
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
fn large_messages_head_to_head_pass_each_other() {
    for seed in seeds(4) {
        for shape in ALL.into_iter().chain([Shape { depth: 1, ..NEAR }]) {
            let mut network = SimulatedNetwork::new(seed, 2, shape);
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
    }
}

#[test]
fn a_hundred_megabytes_head_to_head_pass_each_other() {
    const BYTES: usize = 100_000_000;
    for (shape, dies) in [(NEAR, false), (FETCH, false), (TWO_LINKS, true)] {
        let capabilities = Capabilities { frame_max: 256 << 10, ..shape.capabilities };
        let mut network = SimulatedNetwork::new(6, 2, Shape { capabilities, ..shape });
        network.send_synchronous(0, 1, 0, BYTES);
        network.send_synchronous(1, 0, 0, BYTES);
        network.run();
        network.receive(0, Some(1), Some(0), BYTES);
        network.receive(1, None, None, BYTES);
        if dies {
            while network.delivered(0, 1, 1) < 100 {
                network.run_steps(1);
            }
            network.cut_link(0, 1, 1);
        }
        network.finish();
        assert_eq!(network.counters(0).unexpected_bytes_max.0, 0);
    }
}

#[test]
fn a_long_message_does_not_hold_up_a_short_one() {
    let slow = Shape { bytes_per_us: 100, ..NEAR };
    let mut network = SimulatedNetwork::new(0, 2, slow);
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
fn long_messages_to_distant_peers_are_acknowledged_now_and_then() {
    const PIECE: usize = 64 << 10;
    let capabilities = Capabilities {
        frame_max: PIECE + 1024,
        piece_max: PIECE,
        credit_bytes: 4 << 20,
        credit_wanted: 4 << 20,
        rts_data_max: 4 << 20,
        replay: true,
        ..NEAR.capabilities
    };
    // Frames of the receiver, which sends nothing of its own.
    let frames = |latency_ns: u64| {
        let shape = Shape { latency_ns, bytes_per_us: 125, capabilities, ..NEAR };
        let mut network = SimulatedNetwork::new(0, 2, shape);
        network.receive(1, Some(0), Some(1), 16 * PIECE);
        network.send(0, 1, 1, 16 * PIECE);
        network.finish();
        network.counters(1).frames
    };
    let (near, far) = (frames(100_000), frames(6_000_000));
    assert!(near >= 16, "{near} frames: memory that is sent from is waited for");
    assert!((4..=8).contains(&far), "{far} frames: four words of it, and what opens links");
}

#[test]
fn short_messages_wait_for_short_pieces_on_a_local_network() {
    let capabilities = Capabilities {
        frame_max: 256 << 10,
        adapts: true,
        rts_data_max: 2 << 20,
        ..NEAR.capabilities
    };
    let shape = Shape { latency_ns: 20_000, bytes_per_us: 125, capabilities, ..NEAR };
    let strategy = || strategy::named("auto").expect("a known name");
    for seed in 0..10 {
        let mut network = SimulatedNetwork::with_strategy(seed, 2, shape, &strategy);
        let long = network.receive(1, Some(0), Some(1), 16 << 20);
        let short = network.receive(1, Some(0), Some(2), 8);
        network.send(0, 1, 1, 16 << 20);
        network.run_steps(60);
        let begin_ns = network.now_ns;
        network.send(0, 1, 2, 8);
        while !network.is_complete(short) {
            network.run_steps(1);
        }
        // As many frames as the link takes, one that it refused, and its own.
        let took_ns = network.now_ns - begin_ns;
        assert!(took_ns < 7 * 600_000, "seed {seed}: {took_ns} ns");
        assert!(!network.is_complete(long));
    }
}

#[test]
fn long_messages_share_the_link() {
    for seed in 0..10 {
        let slow = Shape { bytes_per_us: 100, ..NEAR };
        let mut network = SimulatedNetwork::new(seed, 2, slow);
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
    for seed in seeds(4) {
        for shape in [NEAR, FETCH] {
            let mut network = SimulatedNetwork::new(seed, 1, shape);
            for (tag, &bytes) in (0..).zip(&sizes(shape.capabilities)) {
                network.send_synchronous(0, 0, tag, bytes);
                network.receive(0, None, Some(tag), bytes);
            }
            network.finish();
        }
    }
}

#[test]
fn a_released_operation_goes_on_and_leaves_its_place() {
    for seed in seeds(20) {
        for bytes in [8, 1000, 9000] {
            let mut network = SimulatedNetwork::new(seed, 2, NEAR);
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

#[test]
fn data_after_an_rts_leave_credit_for_short_messages() {
    // The receiver grants twice the data before the CTS, or no more than that.
    for credit_bytes in [8 << 20, 4 << 20] {
        let capabilities = Capabilities {
            frame_max: 256 << 10,
            piece_max: 64 << 10,
            rts_data_max: 4 << 20,
            credit_bytes,
            credit_wanted: credit_bytes,
            ..NEAR.capabilities
        };
        let shape = Shape { latency_ns: 5_800_000, bytes_per_us: 118, capabilities, ..NEAR };
        let mut network = SimulatedNetwork::new(0, 2, shape);
        for long_bytes in [4 << 20, 16 << 20, 4 << 20, 16 << 20] {
            let long = network.receive(1, Some(0), Some(1), long_bytes);
            let short = network.receive(1, Some(0), Some(2), 8);
            network.send(0, 1, 1, long_bytes);
            network.run_steps(6);
            let begin_ns = network.now_ns;
            network.send(0, 1, 2, 8);
            while !network.is_complete(short) {
                network.run_steps(1);
            }
            let took_ns = network.now_ns - begin_ns;
            // A rendezvous waits for a round trip first.
            assert!(took_ns < 3 * shape.latency_ns, "{took_ns} ns with a credit of {credit_bytes}");
            assert!(!network.is_complete(long));
            network.run();
        }
        assert_eq!(network.counters(0).out_of_credit, 0);
        network.finish();
    }
}
