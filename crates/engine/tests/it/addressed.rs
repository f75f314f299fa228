//! Addressed traffic: exposed memory, calls of handlers, flushes.

use engine::{Config, Engine, HandlerId, Outcome, PeerError, PutTo, Wanted};
use memory::Region;
use testing::{Random, seeds};
use wire::addressed::{self, Answer, CallHeader};
use wire::{Frame, RemoteKey};

use crate::network::{
    AHEAD_TWO_LINKS, ALL, INVERT, LATER, NEAR, Program, RAIL, SCARCE_TWO_LINKS, SLOW_TWO_LINKS,
    Shape, SimulatedNetwork, TWO_LINKS, peer_id,
};

#[test]
fn random_traffic_is_applied_once_in_order_and_flushed_completely() {
    for seed in seeds(400) {
        let mut random = Random::new(!seed);
        let shape = random.pick(&ALL);
        let size = 2 + random.below(2);
        let mut program = Program::new(seed, size, shape);
        program.network.expose();
        for _ in 0..80 {
            match random.below(3) {
                0 => program.act(&mut random),
                _ => program.network.act_addressed(&mut random),
            }
            let steps = random.below(6);
            program.network.run_steps(steps);
        }
        program.network.run();
        program.network.answer_all();
        let mut network = program.drain_whole();
        network.check_memory();
    }
}

#[test]
fn lost_links_repeat_nothing_and_lose_nothing() {
    for seed in seeds(400) {
        let mut random = Random::new(!seed);
        let shapes = [TWO_LINKS, AHEAD_TWO_LINKS, SCARCE_TWO_LINKS, SLOW_TWO_LINKS];
        let shape = Shape { links: 3, ..random.pick(&shapes) };
        let mut network = SimulatedNetwork::new(seed, 2, shape);
        network.expose();
        for _ in 0..120 {
            network.act_addressed(&mut random);
            if random.one_in(20) && network.links(0, 1) > 1 {
                let link = random.below(3);
                match random.one_in(2) {
                    true => network.cut_link(0, 1, link),
                    false => network.lose(0, 1, link),
                }
            }
            let steps = random.below(10);
            network.run_steps(steps);
        }
        network.run();
        network.answer_all();
        network.finish();
        network.check_memory();
        assert_eq!(network.failures(), 0, "a link was left");
    }
}

#[test]
fn a_failed_peer_ends_what_is_pending_and_what_comes_later() {
    for seed in seeds(200) {
        let mut random = Random::new(!seed);
        let mut network = SimulatedNetwork::new(seed, 3, random.pick(&ALL));
        network.expose();
        (0..30).for_each(|_| network.act_addressed(&mut random));
        let steps = random.below(200);
        network.run_steps(steps);
        network.cut(0, 1);
        let later = network.call(0, 1, LATER, 1, 10, true);
        network.run();
        let put = network.put(0, 1, 5000).expect("no link takes it at once");
        let get = network.get(0, 1, 0, 10);
        let call = network.call(0, 1, INVERT, 0, 10, true);
        let flush = network.flush_addressed(0, 1);
        network.call(1, 2, LATER, 0, 0, false);
        network.call(0, 2, LATER, 0, 0, false);
        network.call(2, 0, LATER, 0, 0, false);
        network.call(2, 1, LATER, 0, 0, false);
        network.finish();
        for op in [later, put, get, call, flush] {
            assert_eq!(network.end(op).outcome, Outcome::PeerFailed);
        }
    }
}

#[test]
fn more_gets_than_a_peer_may_ask_for_wait_for_their_turn() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
    network.expose();
    let gets: Vec<_> = (0..10_000).map(|at| network.get(0, 1, at, 8)).collect();
    let call = network.call(0, 1, INVERT, 0, 8, true);
    let last = network.call(0, 1, INVERT, 0, 8, false);
    network.finish();
    for op in gets.into_iter().chain([call, last]) {
        assert_eq!(network.end(op).outcome, Outcome::Ok);
    }
}

#[test]
fn more_flushes_than_a_peer_counts_are_one() {
    let mut network = SimulatedNetwork::new(0, 2, TWO_LINKS);
    network.expose();
    let flushes: Vec<_> = (0..3000)
        .map(|_| {
            network.put(0, 1, 8);
            network.flush_addressed(0, 1)
        })
        .collect();
    network.finish();
    network.check_memory();
    assert!(flushes.into_iter().all(|flush| network.end(flush).outcome == Outcome::Ok));
}

#[test]
fn a_short_put_takes_one_way_and_a_get_a_round_trip() {
    let mut network = SimulatedNetwork::new(0, 2, NEAR);
    network.expose();
    network.flush_addressed(0, 1);
    network.put(0, 1, 8);
    network.run();
    let began_ns = network.now_ns;
    let get = network.get(0, 1, 0, 8);
    network.run();
    assert_eq!(network.end(get).outcome, Outcome::Ok);
    let trips = (network.now_ns - began_ns) as f64 / NEAR.latency_ns as f64;
    // Each side looks at its engine within 2 us.
    assert!((2.0..8.0).contains(&trips), "{trips}");
}

/// A process that has exposed 100 bytes to a peer that lies.
fn victim() -> (Engine, RemoteKey, Region) {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    let (stale, memory) = (engine.expose(Region::owned(100)), Region::owned(100));
    assert!(engine.withdraw(stale) && !engine.withdraw(stale));
    let key = engine.expose(memory.clone());
    assert_eq!((key.index, key.generation), (stale.index, stale.generation + 1));
    (engine, key, memory)
}

fn says(engine: &mut Engine, emit: impl FnOnce(&mut Vec<u8>)) -> Result<(), PeerError> {
    let mut frame = Vec::new();
    emit(&mut frame);
    engine.handle_frame(peer_id(1), RAIL, &frame)
}

#[test]
fn what_is_not_exposed_is_neither_read_nor_written() {
    let (mut engine, key, memory) = victim();
    let stale = RemoteKey { generation: key.generation - 1, ..key };
    let unknown = RemoteKey { index: 7, ..key };
    let ranges = [(key, 93, 8), (key, 101, 1), (key, u64::MAX, 8), (stale, 0, 8), (unknown, 0, 8)];
    for (key, offset, len) in ranges {
        let put = says(&mut engine, |to| {
            addressed::emit_put(to, key, 0, offset, len);
            to.resize(to.len() + len as usize, 1);
        });
        let get = says(&mut engine, |to| addressed::emit_get(to, key, offset, u64::from(len), 0));
        for error in [put, get] {
            assert!(matches!(error, Err(PeerError::Key { .. })), "{error:?}");
        }
    }
    let error = says(&mut engine, |to| addressed::emit_get(to, key, 1, u64::MAX, 0));
    assert!(matches!(error, Err(PeerError::Key { .. })), "{error:?}");
    assert_eq!(memory.to_vec(), vec![0; 100]);
}

#[test]
fn calls_of_unknown_handlers_and_of_too_many_bytes_are_refused() {
    let call =
        CallHeader { handler: 9, epoch: 0, sequence: 0, answer: Answer::None, arguments: [0; 3] };
    let (mut engine, ..) = victim();
    let error = says(&mut engine, |to| addressed::emit_call(to, &call, 0));
    assert_eq!(error, Err(PeerError::Handler(9)));
    let (mut engine, ..) = victim();
    let error = says(&mut engine, |to| {
        addressed::emit_call(to, &call, 20_000);
        to.resize(to.len() + 20_000, 0);
    });
    assert!(matches!(error, Err(PeerError::Range { .. })), "{error:?}");
}

#[test]
fn a_peer_cannot_make_lists_grow_without_limit() {
    let (mut engine, key, _) = victim();
    let epochs = (0..=u16::MAX).map(|epoch| {
        says(&mut engine, |to| {
            addressed::emit_put(to, key, epoch, 0, 1);
            to.push(1);
        })
    });
    assert_eq!(epochs.filter(Result::is_ok).count(), 1025);
    let (mut engine, key, _) = victim();
    let gets = (0..10_000).map(|op| says(&mut engine, |to| addressed::emit_get(to, key, 0, 8, op)));
    assert_eq!(gets.take_while(Result::is_ok).count(), 4096);
    let (mut engine, ..) = victim();
    let first = says(&mut engine, |to| addressed::emit_flush(to, 0, 0, 1));
    let second = says(&mut engine, |to| addressed::emit_flush(to, 1, 0, 1));
    assert_eq!((first, second), (Ok(()), Err(PeerError::Addressed("flushes"))));
}

#[test]
fn answers_that_were_not_asked_for_are_refused() {
    let (mut engine, key, _) = victim();
    let flush = engine.submit_flush(peer_id(1));
    assert!(engine.take(flush).is_some(), "there is nothing to flush");
    let data = Region::owned(8);
    let call = engine.submit_call(peer_id(1), HandlerId(1), [0; 3], &data, Wanted::Done);
    let mut frame = Frame::default();
    assert!(engine.poll_peer().is_some() && engine.poll_frame(peer_id(1), RAIL, &mut frame));
    let op = call.to_bits() as u32;
    let cts = says(&mut engine, |to| wire::packet::emit_cts(to, op, 0, 8));
    let grant = says(&mut engine, |to| wire::packet::emit_grant(to, op));
    for error in [cts, grant] {
        assert!(matches!(error, Err(PeerError::Operation { .. })), "{error:?}");
    }
    assert_eq!(says(&mut engine, |to| wire::packet::emit_fin(to, op)), Ok(()));
    assert!(engine.take(call).is_some());
    let put = PutTo { key, offset: 0 };
    let get = engine.submit_get(peer_id(1), put, &data);
    let op = get.to_bits() as u32;
    let error = says(&mut engine, |to| {
        wire::packet::emit_data(to, op, 0, 9);
        to.resize(to.len() + 9, 0);
    });
    assert!(matches!(error, Err(PeerError::Range { .. })), "{error:?}");
}

#[test]
fn an_applied_put_is_an_event() {
    let (mut engine, key, _) = victim();
    let before = engine.event_count();
    let put = says(&mut engine, |to| {
        addressed::emit_put(to, key, 0, 0, 1);
        to.push(1);
    });
    assert_eq!((put, engine.event_count()), (Ok(()), before + 1));
}

#[test]
fn pieces_are_reached_while_they_are_attached_and_overlap_none() {
    let (mut engine, ..) = victim();
    let key = engine.expose_pieces();
    let (low, high) = (Region::owned(10), Region::owned(20));
    assert!(engine.attach(key, 1 << 40, high.clone()) && engine.attach(key, 100, low.clone()));
    for (offset, len) in [(95, 6), (109, 1), (90, 100), ((1 << 40) + 19, 9), (u64::MAX, 2)] {
        assert!(!engine.attach(key, offset, Region::owned(len)), "{len} bytes at {offset}");
    }
    let put = |engine: &mut Engine, offset, len: usize| {
        says(engine, |to| {
            addressed::emit_put(to, key, 0, offset, len as u32);
            to.resize(to.len() + len, 7);
        })
    };
    assert_eq!(put(&mut engine, 105, 5), Ok(()));
    assert_eq!(put(&mut engine, 1 << 40, 20), Ok(()));
    // The application's errors are no violation.
    for (offset, len) in [(99, 1), (99, 2), (109, 2), (110, 1), ((1 << 40) - 1, 2), (0, 1)] {
        assert_eq!(put(&mut engine, offset, len), Ok(()), "{len} bytes at {offset}");
    }
    assert_eq!(low.to_vec(), [0, 0, 0, 0, 0, 7, 7, 7, 7, 7]);
    let (next, last) = (Region::owned(5), Region::owned(5));
    assert!(engine.attach(key, 115, last.clone()));
    assert_eq!(put(&mut engine, 105, 12), Ok(()), "there is a gap");
    assert_eq!(last.to_vec(), [0; 5]);
    assert!(engine.attach(key, 110, next.clone()));
    assert_eq!(put(&mut engine, 105, 12), Ok(()));
    assert_eq!((next.to_vec(), last.to_vec()), (vec![7; 5], vec![7, 7, 0, 0, 0]));
    assert_eq!(put(&mut engine, 105, 16), Ok(()));
    assert_eq!(last.to_vec(), [7, 7, 0, 0, 0]);
    assert_eq!(high.to_vec(), [7; 20]);
    assert!(!engine.detach(key, 101) && engine.detach(key, 100) && !engine.detach(key, 100));
    low.write(5, &[1]);
    assert_eq!(put(&mut engine, 105, 1), Ok(()));
    assert_eq!(low.to_vec()[5], 1);
}

#[test]
fn what_is_not_attached_is_refused_and_the_link_stays() {
    for seed in seeds(50) {
        let mut network = SimulatedNetwork::new(seed, 2, TWO_LINKS);
        network.expose();
        let key = network.expose_pieces(1);
        let (data, into) = (Region::owned(3000), Region::owned(8));
        let to = PutTo { key, offset: 4096 };
        let mut outcomes = Vec::new();
        for round in 0..3 {
            let first = network.call(0, 1, INVERT, 0, 8, true);
            let engine = network.engine(0);
            let put = engine.submit_put(peer_id(1), to, &data.slice(0, 8 + 1400 * round));
            let flush = engine.submit_flush(peer_id(1));
            let get = engine.submit_get(peer_id(1), to, &into);
            let again = engine.submit_flush(peer_id(1));
            network.finish();
            assert_eq!(network.end(first).outcome, Outcome::Ok);
            let mut outcome = |op| network.engine(0).take(op).map(|end| end.outcome);
            outcomes.push([put, flush, get, again].map(&mut outcome));
        }
        let refused = Some(Outcome::Refused);
        for one in outcomes {
            assert_eq!(one, [Some(Outcome::Ok), refused, refused, refused]);
        }
        let later = network.engine(0).submit_flush(peer_id(1));
        let later = network.engine(0).take(later).map(|end| end.outcome);
        assert_eq!((later, network.failures()), (Some(Outcome::Ok), 0), "a link was left");
    }
}
