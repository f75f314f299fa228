//! Peers that lie. Whatever bytes a peer sends, nothing panics and no other peer is harmed. Invalid
//! or unexpected frames are blamed on their sender.

use std::num::NonZeroU64;

use engine::{Config, Engine, Envelope, OpId, Outcome, PeerError, Posted, Selector, SendMode};
use memory::Region;
use proptest::prelude::*;
use testing::{Random, seeds};
use wire::addressed::{self, Answer, CallHeader};
use wire::compress::{Codec, UNCOMPRESSED_MAX};
use wire::packet::{self, Header, Packet, RndvKind};
use wire::{Capabilities, Frame};

use crate::network::{
    LONG_ROUND_TRIP, NEAR, RAIL, Receive, Send, Shape, SimulatedNetwork, corpus, mutate, peer_id,
};

const HOSTILE: usize = 1;
const HONEST: usize = 2;

#[test]
fn bytes_that_are_no_frame_are_refused() {
    for bytes in [&[0][..], &[0xff; 64], &[0x11; 31], &[0x11; 33], &[0x16, 0, 0], &[0x17; 7]] {
        let error = Victim::new().engine.handle_frame(peer_id(HOSTILE), RAIL, bytes).unwrap_err();
        assert!(matches!(error, PeerError::Frame(_)), "{bytes:?}: {error}");
    }
}

#[test]
fn a_frame_cut_anywhere_harms_nobody() {
    for frame in corpus().iter().step_by(7) {
        for len in 0..frame.len().min(200) {
            let mut victim = Victim::new();
            let _ = victim.suffer(&[frame[..len].to_vec()]);
            victim.assert_unharmed();
        }
    }
}

#[test]
fn a_replayed_message_is_refused() {
    let mut victim = Victim::new();
    let frame = eager(HOSTILE, 77, 0, b"once");
    assert_eq!(victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame), Ok(()));
    let error = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame).unwrap_err();
    assert_eq!(error, PeerError::Sequence { expected: 1, got: 0 });
    victim.assert_unharmed();
}

#[test]
fn a_message_too_far_ahead_is_refused() {
    let mut victim = Victim::new();
    let error = victim
        .engine
        .handle_frame(peer_id(HOSTILE), RAIL, &eager(HOSTILE, 77, 5000, b""))
        .unwrap_err();
    assert_eq!(error, PeerError::Sequence { expected: 0, got: 5000 });
}

#[test]
fn more_than_the_credit_is_refused() {
    let mut victim = Victim::new();
    let credit = NEAR.capabilities.credit_bytes;
    let mut sent = 0;
    let error = (0..).find_map(|sequence| {
        sent += 1000;
        victim
            .engine
            .handle_frame(peer_id(HOSTILE), RAIL, &eager(HOSTILE, 77, sequence, &[0; 1000]))
            .err()
    });
    assert!(matches!(error, Some(PeerError::Credit { .. })), "{error:?}");
    assert!((credit - 2000..=credit + 1000).contains(&sent), "{sent} bytes of {credit}");
    victim.assert_unharmed();
}

#[test]
fn data_outside_what_was_asked_for_is_refused() {
    for (offset, len) in [(4991, 10), (5000, 1), (u64::MAX, 1), (u64::MAX - 3, 8)] {
        let mut victim = Victim::new();
        let mut request = Vec::new();
        packet::emit_rts(&mut request, &header(HOSTILE, LONG, 0), 3, 5000, RndvKind::Stream);
        victim
            .engine
            .handle_frame(peer_id(HOSTILE), RAIL, &request)
            .expect("a request is in order");
        let receiver = victim.cleared(HOSTILE);
        let mut data = Vec::new();
        packet::emit_data(&mut data, receiver, offset, len);
        data.resize(data.len() + len as usize, 1);
        let error = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &data).unwrap_err();
        assert_eq!(error, PeerError::Range { offset, len: len as usize, wanted: 5000 });
        victim.assert_unharmed();
    }
}

#[test]
fn a_cts_for_more_than_the_message_is_refused() {
    let mut victim = Victim::new();
    let long = victim.hostile_request;
    let mut frame = Vec::new();
    packet::emit_cts(&mut frame, long, 0, LONG_BYTES as u64 + 1);
    let error = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame).unwrap_err();
    assert!(matches!(error, PeerError::Range { .. }), "{error}");
    victim.assert_unharmed();
}

#[test]
fn packets_about_operations_of_others_are_refused() {
    let (finish, take, cts) = (packet::emit_fin, packet::emit_grant, packet::emit_cts);
    for op in 0..20 {
        let mut victim = Victim::new();
        if [victim.hostile_request, victim.hostile_synchronous].contains(&op) {
            continue;
        }
        for what in 0..4 {
            let mut frame = Vec::new();
            match what {
                0 => finish(&mut frame, op),
                1 => cts(&mut frame, op, 0, 1),
                2 => take(&mut frame, op),
                _ => packet::emit_data(&mut frame, op, 0, 0),
            }
            let error = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame).unwrap_err();
            assert!(matches!(error, PeerError::Operation { .. }), "{error}");
        }
        victim.assert_unharmed();
    }
}

#[test]
fn only_waiting_short_messages_can_be_granted_and_only_once() {
    let mut victim = Victim::new();
    let deliver = |victim: &mut Victim, emit: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        emit(&mut frame);
        victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame)
    };
    // These messages use up the credit exactly.
    for bytes in [1000, 0] {
        (0..20).for_each(|_| _ = victim.submit(bytes, SendMode::Standard));
        for (op, rndv) in victim.requests() {
            let result = deliver(&mut victim, &|to| packet::emit_grant(to, op));
            assert_eq!(result.is_ok(), rndv == SHORT_KIND);
        }
        victim.drain(HOSTILE);
    }
    let [taken, empty, cleared, synchronous, long] = [
        (1000, SendMode::Standard),
        (0, SendMode::Standard),
        (1000, SendMode::Standard),
        (1000, SendMode::Synchronous),
        (5000, SendMode::Standard),
    ]
    .map(|(bytes, mode)| victim.submit(bytes, mode));
    let (names, kinds): (Vec<_>, Vec<_>) = victim.requests().into_iter().unzip();
    assert_eq!(kinds, [SHORT_KIND, SHORT_KIND, SHORT_KIND, RndvKind::Stream, RndvKind::Stream]);
    assert_eq!(deliver(&mut victim, &|to| packet::emit_grant(to, names[0])), Ok(()));
    assert_eq!(deliver(&mut victim, &|to| packet::emit_grant(to, names[1])), Ok(()));
    assert_eq!(deliver(&mut victim, &|to| packet::emit_cts(to, names[2], 0, 1000)), Ok(()));
    // Done, pending, of an unused index, of the other peer, synchronous, long.
    for op in 0..100 {
        let error = PeerError::Operation { what: "grant", op };
        assert_eq!(deliver(&mut victim, &|to| packet::emit_grant(to, op)), Err(error));
    }
    for op in &names[..3] {
        let cts = deliver(&mut victim, &|to| packet::emit_cts(to, *op, 0, 0));
        assert_eq!(cts, Err(PeerError::Operation { what: "cts", op: *op }));
        let finish = deliver(&mut victim, &|to| packet::emit_fin(to, *op));
        assert_eq!(finish, Err(PeerError::Operation { what: "fin", op: *op }));
    }
    let frames = victim.drain(HOSTILE).concat();
    let (mut rest, mut sent) = (&frames[..], [0, 0]);
    while let Ok(Some(packet)) = packet::parse(&mut rest) {
        match packet {
            Packet::RtsData { payload, .. } => sent[0] += payload.len(),
            Packet::Data { payload, .. } => sent[1] += payload.len(),
            other => panic!("{other:?}, where pieces should be"),
        }
    }
    assert_eq!(sent, [1000, 1000], "what was taken, and what was cleared");
    for op in [taken, empty, cleared] {
        assert_eq!(victim.engine.take(op).map(|end| end.outcome), Some(Outcome::Ok));
    }
    assert!(![synchronous, long].iter().any(|&op| victim.engine.is_complete(op)));
    victim.assert_unharmed();
}

#[test]
fn data_for_a_message_of_another_peer_is_refused() {
    let mut victim = Victim::new();
    let mut request = Vec::new();
    packet::emit_rts(&mut request, &header(HONEST, LONG, 0), 3, 5000, RndvKind::Stream);
    victim.engine.handle_frame(peer_id(HONEST), RAIL, &request).expect("a request is in order");
    let receiver = victim.cleared(HONEST);
    let mut data = Vec::new();
    packet::emit_data(&mut data, receiver, 0, 8);
    data.extend(b"forged!!");
    let error = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &data).unwrap_err();
    assert_eq!(error, PeerError::Operation { what: "data", op: receiver });
}

#[test]
fn rts_data_without_a_message_are_refused() {
    let piece = |sequence, offset, bytes: usize| {
        let mut frame = Vec::new();
        packet::emit_rts_data(&mut frame, sequence, offset, bytes as u32);
        [frame, vec![1; bytes]].concat()
    };
    let request = |sequence, rts_data| {
        let mut frame = Vec::new();
        let rndv = RndvKind::WithData { bytes: rts_data, cts: true };
        packet::emit_rts(&mut frame, &header(HOSTILE, 77, sequence), 3, 5000, rndv);
        frame
    };
    let short = |bytes| {
        let mut frame = Vec::new();
        // No receive is posted there.
        let header = Header { context: 7, ..header(HOSTILE, 77, 0) };
        packet::emit_rts(&mut frame, &header, 3, bytes, SHORT_KIND);
        frame
    };
    let past = vec![eager(HOSTILE, 77, 0, b""), piece(0, 0, 8)];
    let far = vec![piece(5000, 0, 8)];
    let empty = vec![piece(0, 0, 0)];
    let beyond = vec![request(0, 100), piece(0, 99, 2)];
    let wrapped = vec![request(0, 100), piece(0, u64::MAX, 2)];
    let twice = vec![request(0, 100), piece(0, 0, 100), piece(0, 0, 1)];
    let again = vec![request(0, 100), request(0, 100)];
    let too_few = vec![piece(0, 0, 8), request(0, 7)];
    let more_than_all = vec![request(0, 5001)];
    let beyond_taken = vec![short(100), piece(0, 99, 2)];
    let taken_twice = vec![short(100), piece(0, 0, 100), piece(0, 0, 1)];
    let too_few_taken = vec![piece(0, 0, 8), short(7)];
    let too_long_to_take = vec![short(u64::MAX), piece(0, 0, 8)];
    let scattered = (0..300).map(|at| piece(0, 3 * at, 1)).collect();
    let unpaid = (0..20).map(|sequence| piece(sequence, 0, 900)).collect();
    let attacks: [Vec<Vec<u8>>; 15] = [
        past,
        far,
        empty,
        beyond,
        wrapped,
        twice,
        again,
        too_few,
        more_than_all,
        beyond_taken,
        taken_twice,
        too_few_taken,
        too_long_to_take,
        scattered,
        unpaid,
    ];
    for (attack, frames) in attacks.iter().enumerate() {
        let mut victim = Victim::new();
        let (last, before) = frames.split_last().expect("frames");
        if attack < 13 {
            assert_eq!(victim.suffer(before), Ok(()), "attack {attack}");
            assert!(victim.suffer(std::slice::from_ref(last)).is_err(), "attack {attack}");
        } else {
            assert!(victim.suffer(frames).is_err(), "attack {attack}");
        }
        victim.assert_unharmed();
    }
}

#[test]
fn compressed_pieces_that_lie_are_refused() {
    let zeros =
        |bytes| Codec::default().compress(&vec![0; bytes], 1 << 10).expect("zeros are short");
    let (whole, bomb) = (zeros(5000), zeros(UNCOMPRESSED_MAX));
    let data = |receiver, offset, bytes, compressed: &[u8]| {
        let mut frame = Vec::new();
        packet::emit_compressed_data(&mut frame, receiver, offset, bytes, compressed.len() as u32);
        [&frame[..], compressed].concat()
    };
    let lies: [(u64, u32, &[u8]); 9] = [
        (0, 5000, b""),
        (0, 5000, b"no frame of that kind"),
        (0, 5000, &whole[..whole.len() - 1]),
        (0, 4999, &whole),
        (0, 4096, &bomb),
        (1, 5000, &whole),
        (u64::MAX, 5000, &whole),
        (0, UNCOMPRESSED_MAX as u32, &bomb),
        (0, u32::MAX, &bomb),
    ];
    for (at, (offset, bytes, compressed)) in lies.into_iter().enumerate() {
        let mut victim = Victim::new();
        let mut request = Vec::new();
        packet::emit_rts(&mut request, &header(HOSTILE, LONG, 0), 3, 5000, RndvKind::Stream);
        assert_eq!(victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &request), Ok(()));
        let receiver = victim.cleared(HOSTILE);
        let result = victim.engine.handle_frame(
            peer_id(HOSTILE),
            RAIL,
            &data(receiver, offset, bytes, compressed),
        );
        match result {
            Err(PeerError::Compressed { .. }) => assert!(at < 5, "lie {at}"),
            Err(PeerError::Range { .. }) => assert!(at >= 5, "lie {at}"),
            other => panic!("lie {at}: {other:?}"),
        }
        victim.assert_unharmed();
        let mut frame = Vec::new();
        packet::emit_compressed_rts_data(&mut frame, 0, offset, bytes, compressed.len() as u32);
        frame.extend(compressed);
        // Before the RTS, any offset within the credit may be right.
        assert_eq!(Victim::new().suffer(&[frame]).is_err(), at != 5, "lie {at}, rts_data");
    }
    let mut victim = Victim::new();
    let unasked = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &data(0, 0, 5000, &whole));
    assert!(matches!(unasked, Err(PeerError::Operation { .. })), "{unasked:?}");
    victim.assert_unharmed();
}

#[test]
fn compressed_pieces_are_charged_uncompressed() {
    let bytes: Vec<u8> = (0..5000u32).map(|at| (at / 100) as u8).collect();
    let compressed = Codec::default().compress(&bytes, 1000).expect("runs are short");
    let rts_data = |sequence| {
        let mut frame = Vec::new();
        let rndv = RndvKind::WithData { bytes: 5000, cts: false };
        packet::emit_rts(&mut frame, &header(HOSTILE, LONG, sequence), 3, 5000, rndv);
        packet::emit_compressed_rts_data(&mut frame, sequence, 0, 5000, compressed.len() as u32);
        [&frame[..], &compressed].concat()
    };
    let mut victim = Victim::new();
    assert_eq!(victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &rts_data(0)), Ok(()));
    assert!(victim.engine.is_complete(victim.exposed[3]), "the long receive has it all");
    // With the RTS, three fit the accepted bytes, whatever their compressed length.
    let result: Vec<_> = (1..6)
        .map(|sequence| {
            victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &rts_data(sequence)).is_ok()
        })
        .collect();
    assert_eq!(result, [true, true, false, false, false]);
    victim.engine.handle_down(peer_id(HOSTILE));
    victim.assert_unharmed();
}

#[test]
fn a_forged_source_takes_no_receive_that_names_another_peer() {
    let mut victim = Victim::new();
    let forged = eager(HONEST, SHORT, 0, b"forged!!");
    victim
        .engine
        .handle_frame(peer_id(HOSTILE), RAIL, &forged)
        .expect("nothing is wrong with the frame");
    victim.assert_unharmed();
}

#[test]
fn a_forged_message_that_waits_is_not_received_from_another_peer() {
    let mut victim = Victim::new();
    let elsewhere = Header { context: 7, ..header(HONEST, 0, 0) };
    let message = |payload: &[u8]| {
        let mut frame = Vec::new();
        packet::emit_eager(&mut frame, &elsewhere, None, payload.len() as u32);
        [&frame[..], payload].concat()
    };
    let forged = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &message(b"forged!!"));
    assert_eq!(forged, Ok(()), "nothing is wrong with the frame itself");
    for tag in [None, Some(0)] {
        let selector = Selector { context: 7, source: Some(HONEST as u32), tag };
        let into = Region::owned(8);
        let op = victim.engine.submit_receive(Some(peer_id(HONEST)), selector, &into);
        assert_eq!(victim.engine.take(op), None);
        assert!(victim.engine.submit_cancel(op));
    }
    victim.assert_unharmed();
}

#[test]
fn the_number_of_revoked_contexts_is_limited() {
    let mut victim = Victim::new();
    let error = (0..).find_map(|sequence| {
        let (context, failed) = (8 + u64::from(sequence), 2);
        let revocation = CallHeader {
            handler: 0,
            epoch: 0,
            sequence,
            answer: Answer::None,
            arguments: [context, failed, 0],
        };
        let mut frame = Vec::new();
        addressed::emit_call(&mut frame, &revocation, 0);
        let result = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame);
        victim.drain(HOSTILE);
        result.err().map(|error| (sequence, error))
    });
    assert_eq!(error, Some((1 << 16, PeerError::Revoked(1 << 16))));
    victim.assert_unharmed();
}

#[test]
fn frames_of_a_failed_peer_are_refused() {
    let mut victim = Victim::new();
    let any = Selector { context: 0, source: None, tag: None };
    let op = victim.engine.submit_receive(None, any, &Region::owned(8));
    victim.engine.handle_down(peer_id(HOSTILE));
    let mut request = Vec::new();
    packet::emit_rts(&mut request, &header(HOSTILE, 5, 0), 3, 8, RndvKind::Stream);
    let mut credit = Vec::new();
    packet::emit_credit(&mut credit, 8);
    for frame in [eager(HOSTILE, 5, 0, b""), request, credit] {
        let result = victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &frame);
        assert_eq!(result, Err(PeerError::NotConnected));
    }
    assert_eq!(victim.engine.take(op), None, "no ghost has taken it");
    victim.assert_unharmed();
}

#[test]
fn a_failed_peer_does_not_come_back() {
    let mut victim = Victim::new();
    let message = eager(HOSTILE, 900, 0, &[1; 900]);
    victim.engine.handle_frame(peer_id(HOSTILE), RAIL, &message).expect("a message in order");
    victim.engine.handle_down(peer_id(HOSTILE));
    victim.engine.handle_up(peer_id(HOSTILE), RAIL, NEAR.capabilities);
    let selector = Selector { context: 0, source: Some(HOSTILE as u32), tag: Some(900) };
    for _ in 0..2 {
        let into = Region::owned(900);
        let op = victim.engine.submit_receive(Some(peer_id(HOSTILE)), selector, &into);
        victim.drain(HOSTILE);
        assert!(victim.engine.take(op).is_some(), "what came before is received, then no more");
    }
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let data = Region::owned(8);
    let op = victim.engine.submit_send(peer_id(HOSTILE), envelope, &data, SendMode::Standard);
    assert_eq!(victim.engine.take(op).map(|end| end.outcome), Some(Outcome::PeerFailed));
    victim.assert_unharmed();
}

#[test]
fn remote_reads_from_a_failed_peer_complete_when_writing_has_ended() {
    for (is_copied, outcome) in [(true, Outcome::Ok), (false, Outcome::PeerFailed)] {
        let mut engine = Engine::new(Config::new(2));
        engine.handle_up(peer_id(1), RAIL, Capabilities { remote_read: true, ..NEAR.capabilities });
        let selector = Selector { context: 0, source: Some(1), tag: Some(LONG) };
        let receive = |engine: &mut Engine| {
            engine.submit_receive(Some(peer_id(1)), selector, &Region::owned(5000))
        };
        let [being_read, listed] = [(); 2].map(|()| receive(&mut engine));
        let request = |sequence| {
            let mut frame = Vec::new();
            let rndv = RndvKind::Get(0x1000);
            packet::emit_rts(&mut frame, &header(1, LONG, sequence), 3, 5000, rndv);
            frame
        };
        engine.handle_frame(peer_id(1), RAIL, &request(0)).expect("a message in order");
        let remote_read = engine.poll_remote_read().expect("a peer that can be read");
        engine.handle_frame(peer_id(1), RAIL, &request(1)).expect("a message in order");
        engine.handle_down(peer_id(1));
        let outcome_of = |end: Option<engine::Completion>| end.map(|end| end.outcome);
        assert_eq!(outcome_of(engine.take(listed)), Some(Outcome::PeerFailed), "nobody has begun");
        assert_eq!(engine.take(being_read), None, "its memory is written to");
        engine.handle_remote_read_done(remote_read.id, is_copied);
        assert_eq!(outcome_of(engine.take(being_read)), Some(outcome));
        assert!(engine.poll_remote_read().is_none() && engine.is_idle() && !engine.has_pending());
    }
}

#[test]
fn a_peer_that_could_not_be_reached_comes_up_only_if_nobody_has_given_it_up() {
    for has_failed in [false, true] {
        let mut engine = Engine::new(Config::new(2));
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        let data = Region::owned(8);
        engine.submit_send(peer_id(1), envelope, &data, SendMode::Standard);
        assert_eq!(engine.poll_connect(), Some(peer_id(1)));
        if has_failed {
            engine.handle_down(peer_id(1));
        } else {
            engine.handle_no_path(peer_id(1));
        }
        engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
        let op = engine.submit_send(peer_id(1), envelope, &data, SendMode::Standard);
        assert_eq!(engine.poll_peer(), (!has_failed).then_some((peer_id(1), RAIL)));
        let outcome = engine.take(op).map(|end| end.outcome);
        assert_eq!(outcome, has_failed.then_some(Outcome::PeerFailed));
    }
}

#[test]
fn a_peer_outside_the_job_is_refused() {
    let mut victim = Victim::new();
    assert_eq!(victim.engine.handle_frame(peer_id(7), RAIL, &[]), Err(PeerError::Unknown(7)));
}

#[test]
fn links_that_mangle_one_peer_leave_the_others_their_traffic() {
    let mut accused = 0;
    for seed in seeds(400) {
        let mut random = Random::new(!seed);
        let remote_read = Shape { remote_read_works: true, ..NEAR };
        let mut network =
            SimulatedNetwork::new(seed, 3, random.pick(&[NEAR, remote_read, LONG_ROUND_TRIP]));
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let rate = random.pick(&[1, 3, 10]);
        let mangle = move |random: &mut Random, frame: Vec<u8>| {
            seen.push(frame);
            let frame = &seen[seen.len() - 1];
            if random.one_in(rate) { mutate(random, frame, &seen) } else { vec![frame.clone()] }
        };
        network.tamper(HOSTILE, 0, Box::new(mangle));
        let mut honest = Vec::new();
        for round in 0..60 {
            let pairs = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
            let (from, to) = random.pick(&pairs);
            let bytes = random.pick(&[0, 8, 257, 1000, 1025, 9000]);
            let mode = random.pick(&[SendMode::Standard, SendMode::Synchronous]);
            let tag = round % 4;
            let send = Send { to, context: 0, tag, bytes, mode };
            let receive =
                Receive { source: Some(from), context: 0, tag: Some(tag), capacity: 9000 };
            let both = [network.submit_send(from, send), network.submit_receive(to, receive)];
            if (from.min(to), from.max(to)) != (0, HOSTILE) {
                honest.extend(both);
            }
            network.run_steps(10);
        }
        network.run();
        for operation in honest {
            assert_eq!(network.end(operation).outcome, Outcome::Ok);
        }
        assert!(network.accusations.iter().all(|(_, of, _)| *of != HONEST));
        accused += network.accusations.len();
    }
    if !testing::is_seed_given() {
        assert!(accused > 200, "most of 400 mangled links are noticed, not {accused}");
    }
}

#[test]
fn mutations_of_real_frames_harm_nobody() {
    let corpus = corpus();
    assert!(corpus.len() > 100, "only {} frames recorded", corpus.len());
    let mut refused = 0;
    for seed in seeds(4000) {
        let mut random = Random::new(seed);
        let mut victim = Victim::new();
        let mut frames = Vec::new();
        for _ in 0..1 + random.below(6) {
            let at = random.below(corpus.len());
            frames.extend(mutate(&mut random, &corpus[at], &corpus));
        }
        refused += u32::from(victim.suffer(&frames).is_err());
        victim.assert_unharmed();
    }
    if !testing::is_seed_given() {
        assert!(refused > 2000, "most of 4000 mutated conversations are refused, not {refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testing::cases(1500), failure_persistence: None, ..<_>::default() })]

    #[test]
    fn well_formed_lies_harm_nobody(lies in prop::collection::vec(lie(), 1..12)) {
        let mut victim = Victim::new();
        let _ = victim.suffer(&lies);
        victim.assert_unharmed();
    }

    #[test]
    fn arbitrary_bytes_harm_nobody(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..8)) {
        let mut victim = Victim::new();
        let _ = victim.suffer(&frames);
        victim.assert_unharmed();
    }
}

/// A process in the middle of exchanges with two peers, one of which lies.
struct Victim {
    engine: Engine,
    /// Operations with the peer that lies.
    exposed: Vec<OpId>,
    receive: (OpId, Region),
    synchronous: OpId,
    long: OpId,
    honest_synchronous: u32,
    honest_request: u32,
    hostile_synchronous: u32,
    hostile_request: u32,
}

impl Victim {
    fn new() -> Self {
        let mut engine = Engine::new(Config::new(3));
        for _ in 0..2 {
            engine.expose(Region::owned(4000));
        }
        let mut submitted = Vec::new();
        for peer in [HOSTILE, HONEST] {
            engine.handle_up(peer_id(peer), RAIL, VICTIM);
            let to = peer_id(peer);
            let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
            let (short, long) = (Region::owned(8), Region::owned(LONG_BYTES));
            let synchronous = engine.submit_send(to, envelope, &short, SendMode::Synchronous);
            let request = engine.submit_send(to, envelope, &long, SendMode::Standard);
            let receive = |engine: &mut Engine, tag, bytes| {
                let selector = Selector { context: 0, source: Some(peer as u32), tag };
                let into = Region::owned(bytes);
                (engine.submit_receive(Some(to), selector, &into), into)
            };
            let short = receive(&mut engine, Some(SHORT), 8);
            let (long, _) = receive(&mut engine, Some(LONG), LONG_BYTES);
            let (any, _) = receive(&mut engine, None, 100);
            submitted.push((synchronous, request, short, long, any));
        }
        let (synchronous, request, receive, ..) = submitted.pop().expect("two peers");
        let exposed = submitted.pop().expect("two peers");
        let exposed = vec![exposed.0, exposed.1, exposed.2.0, exposed.3, exposed.4];
        let mut victim = Self {
            engine,
            exposed,
            receive,
            synchronous,
            long: request,
            honest_synchronous: 0,
            honest_request: 0,
            hostile_synchronous: 0,
            hostile_request: 0,
        };
        (victim.honest_synchronous, victim.honest_request) = victim.announced(HONEST);
        (victim.hostile_synchronous, victim.hostile_request) = victim.announced(HOSTILE);
        victim
    }

    /// Operation numbers that a peer has learned: of the synchronous send, and of the RTS.
    fn announced(&mut self, peer: usize) -> (u32, u32) {
        let frames = self.drain(peer).concat();
        let mut rest = &frames[..];
        let Ok(Some(Packet::Eager { acknowledge: Some(synchronous), .. })) =
            packet::parse(&mut rest)
        else {
            panic!("the short message goes first");
        };
        let Ok(Some(Packet::Rts { op, .. })) = packet::parse(&mut rest) else {
            panic!("the long message asks");
        };
        (synchronous, op)
    }

    /// Sends to the peer that lies.
    fn submit(&mut self, bytes: usize, mode: SendMode) -> OpId {
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        self.engine.submit_send(peer_id(HOSTILE), envelope, &Region::owned(bytes), mode)
    }

    /// Returns the RTSs that the lying peer has received.
    fn requests(&mut self) -> Vec<(u32, RndvKind)> {
        let frames = self.drain(HOSTILE).concat();
        let mut rest = &frames[..];
        let mut requests = Vec::new();
        while let Ok(Some(packet)) = packet::parse(&mut rest) {
            if let Packet::Rts { op, rndv, .. } = packet {
                requests.push((op, rndv));
            }
        }
        requests
    }

    /// Returns the operation that a CTS to a peer names.
    fn cleared(&mut self, peer: usize) -> u32 {
        let frames = self.drain(peer).concat();
        match packet::parse(&mut &frames[..]) {
            Ok(Some(Packet::Cts { receiver, .. })) => receiver,
            other => panic!("{other:?}, where a cts should be"),
        }
    }

    /// Delivers the liar's frames until it is found out, then goes on without it.
    fn suffer(&mut self, frames: &[Vec<u8>]) -> Result<(), PeerError> {
        for frame in frames {
            let result = self.engine.handle_frame(peer_id(HOSTILE), RAIL, frame);
            self.drain(HOSTILE);
            while let Some(remote_read) = self.engine.poll_remote_read() {
                self.engine.handle_remote_read_done(remote_read.id, false);
            }
            if result.is_err() {
                self.engine.handle_down(peer_id(HOSTILE));
                let left = self.exposed.iter().filter(|&&op| !self.engine.is_complete(op)).count();
                assert_eq!(left, 0, "operations with a peer that is gone");
                return result;
            }
        }
        Ok(())
    }

    /// Completes the honest peer's exchange as if there had been no lie.
    fn assert_unharmed(&mut self) {
        let peer = peer_id(HONEST);
        let result = self.engine.handle_frame(peer, RAIL, &eager(HONEST, SHORT, 0, b"the real"));
        assert_eq!(result, Ok(()));
        assert_eq!(self.engine.take(self.receive.0).map(|end| end.outcome), Some(Outcome::Ok));
        assert_eq!(self.receive.1.to_vec(), b"the real");
        let mut answers = Vec::new();
        packet::emit_fin(&mut answers, self.honest_synchronous);
        packet::emit_cts(&mut answers, self.honest_request, 9, LONG_BYTES as u64);
        assert_eq!(self.engine.handle_frame(peer, RAIL, &answers), Ok(()));
        assert!(self.engine.take(self.synchronous).is_some());
        let sent: usize =
            self.drain(HONEST).iter().map(|frame| frame.len() - packet::DATA_LEN).sum();
        assert_eq!(sent, LONG_BYTES - VICTIM.rts_data_max);
        assert_eq!(self.engine.take(self.long).map(|end| end.outcome), Some(Outcome::Ok));
    }

    /// Returns the engine's frames for a peer; frames for others are lost.
    fn drain(&mut self, peer: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut frame = Frame::default();
        while self.engine.poll_frame(peer_id(peer), RAIL, &mut frame) {
            let body = frame.body.as_ref().map_or(Vec::new(), |body| body.region.to_vec());
            frames.push([&frame.head[..], &body].concat());
            self.engine.handle_posted(peer_id(peer), RAIL, &mut frame, Posted::Done);
        }
        frames
    }
}

/// Generates a frame that parses.
fn lie() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![4 => 0..12u32, 1 => any::<u32>()];
    let long = prop_oneof![0..9000u64, any::<u64>(), Just(u64::MAX)];
    let header = (0..2u64, 0..4u32, prop_oneof![Just(SHORT), Just(LONG), 0..9], 0..3u32)
        .prop_map(|(context, source, tag, sequence)| Header { context, source, tag, sequence });
    let payload = prop::collection::vec(any::<u8>(), 0..64);
    (0..10, header, number.clone(), number, long.clone(), long, payload).prop_map(
        |(kind, header, op, other, bytes, offset, payload)| {
            let mut frame = Vec::new();
            let acknowledge = (op % 2 == 0).then_some(op);
            let rndv = match op % 5 {
                0 => RndvKind::Stream,
                1 => RndvKind::Get(offset),
                2 => RndvKind::WithData { bytes: offset, cts: true },
                3 => RndvKind::Short(NonZeroU64::new(offset)),
                _ => RndvKind::WithData { bytes, cts: false },
            };
            match kind {
                0 => packet::emit_eager(&mut frame, &header, acknowledge, payload.len() as u32),
                1 => packet::emit_rts(&mut frame, &header, op, bytes, rndv),
                2 => packet::emit_cts(&mut frame, op, other, bytes),
                3 => packet::emit_data(&mut frame, op, offset, payload.len() as u32),
                4 => packet::emit_fin(&mut frame, op),
                5 => packet::emit_rts_data(&mut frame, op, offset, payload.len() as u32),
                6 => packet::emit_compressed_data(
                    &mut frame,
                    op,
                    offset,
                    other,
                    payload.len() as u32,
                ),
                7 => packet::emit_compressed_rts_data(
                    &mut frame,
                    op,
                    offset,
                    other,
                    payload.len() as u32,
                ),
                8 => packet::emit_grant(&mut frame, op),
                _ => packet::emit_credit(&mut frame, op),
            }
            if [0, 3, 5, 6, 7].contains(&kind) {
                frame.extend(payload);
            }
            frame
        },
    )
}

fn header(source: usize, tag: i32, sequence: u32) -> Header {
    Header { context: 0, source: source as u32, tag, sequence }
}

fn eager(source: usize, tag: i32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    packet::emit_eager(&mut frame, &header(source, tag, sequence), None, payload.len() as u32);
    frame.extend(payload);
    frame
}

/// Capabilities of the victim's links: long messages are sent partly before the CTS.
const VICTIM: Capabilities = Capabilities { rts_data_max: 2000, ..NEAR.capabilities };
const SHORT: i32 = 1;
const SHORT_KIND: RndvKind = RndvKind::Short(None);
const LONG: i32 = 2;
const LONG_BYTES: usize = 5000;
