//! Cancelled sends: each message is received or dropped, whatever the links do. The model of matching decides which.

use engine::{Outcome, PeerError, Selector, SendMode};
use wire::{Frame, packet};

use testing::{Random, seeds};

use crate::network::{
    AHEAD_TWO_LINKS, ALL, GRANTED, LONG_ROUND_TRIP, NEAR, Program, RAIL, SCARCE_TWO_LINKS, SLOW,
    SLOW_TWO_LINKS, Send, Shape, SimulatedNetwork, TWO_LINKS, peer_id,
};

const SHAPES: [Shape; 9] = [
    NEAR,
    GRANTED,
    NEAR.reopening(),
    LONG_ROUND_TRIP.reopening(),
    SLOW.reopening(),
    TWO_LINKS.reopening(),
    AHEAD_TWO_LINKS.reopening(),
    SLOW_TWO_LINKS.reopening(),
    Shape { links: 3, ..SCARCE_TWO_LINKS.reopening() },
];

#[test]
fn each_message_is_received_or_cancelled() {
    let (mut cancelled, mut retracted, mut resent) = (0, 0, 0);
    for seed in seeds(2000) {
        let network = sends_that_are_cancelled(seed);
        cancelled += network.check_each_message();
        retracted += (0..network.size()).map(|rank| network.counters(rank).retracted).sum::<u64>();
        resent += network.fates().resent;
    }
    if !testing::is_seed_given() {
        assert!(retracted > 3000, "receivers have dropped only {retracted} messages");
        assert!(cancelled - retracted > 1000, "of {cancelled}, too few had not left");
        assert!(resent > 500, "only {resent} frames were sent again");
    }
}

/// Runs random sends, cancels, receives and probes, while links that reopen are cut.
fn sends_that_are_cancelled(seed: u64) -> SimulatedNetwork {
    let mut random = Random::new(!seed);
    let (size, shape) = (2 + random.below(2), random.pick(&SHAPES));
    let mut program = Program::new(seed, size, shape);
    for _ in 0..10 + random.below(80) {
        match random.below(4) {
            0 => program.act(&mut random),
            1 | 2 => {
                let rank = random.below(size);
                program.send(rank, &mut random);
            }
            _ => program.cancel_send(&mut random),
        }
        let steps = random.pick(&[0, 5, 40]);
        program.network.run_steps(steps);
        let (from, to) = (random.below(size), random.below(size));
        if from != to && shape.capabilities.reopens && random.one_in(8) {
            let for_ns = 1 + {
                let most = random.pick(&[1_000, 400_000, 90_000_000_u64]);
                random.below(most)
            };
            let link = random.below(shape.links);
            program.network.cut_for((from, to), link, for_ns);
        }
    }
    program.drain_whole()
}

#[test]
fn a_cancelled_send_ends_without_its_receiver() {
    for (shape, bytes) in ALL.into_iter().flat_map(|shape| BYTES.map(|bytes| (shape, bytes))) {
        for mode in [SendMode::Synchronous, SendMode::Standard] {
            let mut network = SimulatedNetwork::new(0, 2, shape);
            let context = 0;
            let sends: Vec<_> = (0..3)
                .map(|tag| network.submit_send(0, Send { to: 1, context, tag, bytes, mode }))
                .collect();
            network.run();
            sends.iter().for_each(|&send| assert!(!network.cancel_send(send), "it has left"));
            network.run();
            let ends: Vec<_> = sends.iter().map(|&send| network.end(send).outcome).collect();
            let are_short = mode == SendMode::Standard;
            let is_cancelled = |end: &Outcome| *end == Outcome::Cancelled;
            assert!(are_short || ends.iter().all(is_cancelled), "{bytes} bytes: {ends:?}");
            let any = Selector { context, source: None, tag: None };
            while network.probe(1, any).is_some() {
                network.receive(1, None, None, bytes);
            }
            network.finish();
            network.check_each_message();
        }
    }
}

const BYTES: [usize; 6] = [0, 1, 300, 1024, 5000, 200_000];

#[test]
fn cancelled_messages_return_their_credit() {
    for bytes in [8, 1000] {
        let mut network = SimulatedNetwork::new(0, 2, NEAR);
        let rounds = 4 * NEAR.capabilities.credit_bytes / bytes;
        for tag in 0..rounds as i32 {
            let send = network.send_synchronous(0, 1, tag, bytes);
            network.run();
            network.cancel_send(send);
            network.run();
            assert_eq!(network.end(send).outcome, Outcome::Cancelled);
        }
        network.finish();
        let (sender, receiver) = (network.counters(0), network.counters(1));
        assert_eq!((sender.out_of_credit, receiver.retracted), (0, rounds as u64));
        assert!(receiver.unexpected_bytes_max.0 <= bytes, "a dropped message waits no longer");
    }
}

#[test]
fn a_message_that_has_not_left_is_withdrawn() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
    let sends = [0, 1, 2].map(|tag| network.send_synchronous(0, 1, tag, 2000));
    // No link is open.
    assert!(network.cancel_send(sends[1]));
    assert!(!network.cancel_send(sends[1]), "it is over already");
    let receives = [0, 2].map(|_| network.receive(1, Some(0), None, 2000));
    network.finish();
    assert_eq!(network.end(sends[1]).outcome, Outcome::Cancelled);
    assert_eq!(receives.map(|receive| network.end(receive).tag), [0, 2]);
}

#[test]
fn a_message_of_a_matched_probe_is_not_cancelled() {
    for bytes in BYTES {
        let mut network = SimulatedNetwork::new(0, 2, NEAR);
        let [taken, left] = [0, 0].map(|tag| network.send_synchronous(0, 1, tag, bytes));
        network.run();
        let exact = Selector { context: 0, source: Some(0), tag: Some(0) };
        let message = network.matched_probe(1, exact).expect("it has come");
        [left, taken].into_iter().for_each(|send| assert!(!network.cancel_send(send)));
        network.run();
        assert_eq!(network.end(left).outcome, Outcome::Cancelled);
        assert!(!network.is_complete(taken));
        network.matched_receive(1, message, bytes);
        network.finish();
        assert_eq!(network.end(taken).outcome, Outcome::Ok);
    }
}

#[test]
fn a_message_that_a_peer_drops_was_cancelled_or_is_revoked() {
    let answers = |is_cancelled: bool| {
        let mut engine = engine::Engine::new(engine::Config::new(2));
        engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
        let data = memory::Region::owned(8);
        let envelope = engine::Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        let send = engine.submit_send(peer_id(1), envelope, &data, SendMode::Synchronous);
        let mut frame = Frame::default();
        assert!(engine.poll_peer().is_some() && engine.poll_frame(peer_id(1), RAIL, &mut frame));
        if is_cancelled {
            assert!(!engine.submit_cancel(send));
        }
        let mut refused = Vec::new();
        packet::emit_refused(&mut refused, send.to_bits() as u32);
        let answers = [0; 2].map(|_| engine.handle_frame(peer_id(1), RAIL, &refused));
        (answers, engine.take(send).map(|end| end.outcome))
    };
    let once = [Ok(()), Err(PeerError::Operation { what: "refused", op: 0 })];
    assert_eq!(answers(false), (once, Some(Outcome::Revoked)));
    assert_eq!(answers(true), (once, Some(Outcome::Cancelled)));
}
