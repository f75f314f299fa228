//! Memory use of engines, measured at the allocator.

mod network;

use engine::{Config, Engine, Envelope, Loss, Posted, Selector, SendMode};
use memory::Region;
use network::{NEAR, RAIL, corpus, mutate, peer_id};
use peak_alloc::PeakAlloc;
use testing::{Random, seeds};
use wire::compress::{Codec, UNCOMPRESSED_MAX};
use wire::packet::{self, Header, RndvKind};
use wire::{Capabilities, Frame, PeerId, RailId};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A single test, so that nothing else allocates meanwhile.
#[test]
fn memory_is_bounded() {
    allocations_caused_by_a_peer_are_bounded_by_its_data();
    oversized_requests_allocate_nothing();
    oversized_compressed_pieces_allocate_nothing();
    rts_data_allocate_their_length_or_their_credit();
    unmatched_messages_take_a_multiple_of_their_credit_and_give_it_back();
    operations_leave_nothing_behind();
    a_message_without_a_receive_does_not_make_others_pile_up();
    unused_peers_cost_a_word_each();
    a_short_unexpected_message_takes_a_few_words();
    a_granted_short_message_takes_little_more();
    short_messages_and_their_receives_allocate_nothing();
    keys_that_come_and_go_leave_nothing();
    long_messages_head_to_head_take_no_memory_of_their_own();
}

fn allocations_caused_by_a_peer_are_bounded_by_its_data() {
    let corpus = corpus();
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let frames: Vec<_> = (0..100)
            .flat_map(|_| {
                let at = random.below(corpus.len());
                if random.one_in(4) {
                    mutate(&mut random, &corpus[at], &corpus)
                } else {
                    vec![corpus[at].clone()]
                }
            })
            .collect();
        let before = ALLOCATOR.current_usage();
        let mut engine = Engine::new(Config::new(2));
        engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
        let mut fed = 0;
        for frame in &frames {
            fed += frame.len();
            let _ = engine.handle_frame(peer_id(1), RAIL, frame);
            let taken = ALLOCATOR.current_usage() - before;
            assert!(taken <= TABLES_BYTES + 8 * fed, "{taken} bytes for {fed} received");
        }
    }
}

fn oversized_requests_allocate_nothing() {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    let selector = Selector { context: 0, source: Some(1), tag: Some(0) };
    let into = Region::owned(64);
    engine.submit_receive(Some(peer_id(1)), selector, &into);
    let mut request = Vec::new();
    packet::emit_rts(&mut request, &header(0), 0, u64::MAX, RndvKind::Stream);
    let before = ALLOCATOR.current_usage();
    engine.handle_frame(peer_id(1), RAIL, &request).expect("any length may be announced");
    assert!(ALLOCATOR.current_usage() - before < 4096);
}

fn oversized_compressed_pieces_allocate_nothing() {
    let mut codec = Codec::default();
    let bomb = codec.compress(&vec![0; UNCOMPRESSED_MAX], 4096).expect("zeros are short");
    drop(codec);
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    let selector = Selector { context: 0, source: Some(1), tag: Some(0) };
    let into = Region::owned(64);
    engine.submit_receive(Some(peer_id(1)), selector, &into);
    let mut request = Vec::new();
    packet::emit_rts(&mut request, &header(0), 0, u64::MAX, RndvKind::Stream);
    engine.handle_frame(peer_id(1), RAIL, &request).expect("any length may be announced");
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    for bytes in [64, 65, 100_000, UNCOMPRESSED_MAX as u32, u32::MAX] {
        let (mut data, mut rts_data) = (Vec::new(), Vec::new());
        packet::emit_compressed_data(&mut data, 0, 0, bytes, bomb.len() as u32);
        packet::emit_compressed_rts_data(&mut rts_data, 1, 0, bytes, bomb.len() as u32);
        for frame in [data, rts_data] {
            let heard = engine.handle_frame(peer_id(1), RAIL, &[&frame[..], &bomb].concat());
            assert!(heard.is_err(), "{bytes} bytes of a bomb");
        }
    }
    let taken = ALLOCATOR.peak_usage() - before;
    assert!(taken < 8192, "{taken} bytes");
}

fn rts_data_allocate_their_length_or_their_credit() {
    let zeros = Codec::default().compress(&[0; 1000], 100).expect("zeros are short");
    let compressed = |sequence| {
        let mut frame = Vec::new();
        packet::emit_compressed_rts_data(&mut frame, sequence, 0, 1000, zeros.len() as u32);
        [&frame[..], &zeros].concat()
    };
    let piece = |sequence, offset, bytes: usize| {
        let mut frame = Vec::new();
        packet::emit_rts_data(&mut frame, sequence, offset, bytes as u32);
        frame.resize(frame.len() + bytes, 7);
        frame
    };
    let request = |sequence, rts_data| {
        let mut frame = Vec::new();
        let rndv = RndvKind::WithData { bytes: rts_data, cts: true };
        packet::emit_rts(&mut frame, &header(sequence), 0, 1 << 30, rndv);
        frame
    };
    let specks = |sequence| (0..200).map(move |at| piece(sequence, 2 * at, 1));
    let announced = (0..20).flat_map(|one| [request(one, 500)].into_iter().chain(specks(one)));
    let attacks: [Vec<Vec<u8>>; 5] = [
        (0..4000).map(compressed).collect(),
        (0..4000).map(|sequence| piece(sequence, 0, 1)).collect(),
        (0..4000).map(|sequence| piece(sequence, 0, 0)).collect(),
        (0..40).flat_map(specks).collect(),
        announced.collect(),
    ];
    for (attack, frames) in attacks.iter().enumerate() {
        let mut engine = Engine::new(Config::new(2));
        engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
        let before = ALLOCATOR.current_usage();
        let mut fed = 0;
        for frame in frames {
            fed += frame.len();
            if engine.handle_frame(peer_id(1), RAIL, frame).is_err() {
                break;
            }
            let taken = ALLOCATOR.current_usage() - before;
            let bound = TABLES_BYTES + 8 * fed + NEAR.capabilities.credit_bytes;
            assert!(taken <= bound, "attack {attack}: {taken} bytes for {fed} received");
        }
    }
}

fn unmatched_messages_take_a_multiple_of_their_credit_and_give_it_back() {
    for bytes in [0, 8, 100, 1000] {
        let mut engine = Engine::new(Config::new(2));
        engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
        let frame = vec![0; packet::EAGER_LEN + bytes];
        let before = ALLOCATOR.current_usage();
        let mut after_first = None;
        let mut sequence = 0;
        for _ in 0..10 {
            let messages = NEAR.capabilities.credit_bytes / (bytes + 64);
            for _ in 0..messages {
                let mut frame = frame.clone();
                let mut head = Vec::new();
                packet::emit_eager(&mut head, &header(sequence), None, bytes as u32);
                frame[..head.len()].copy_from_slice(&head);
                engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the credits");
                sequence += 1;
            }
            let full = ALLOCATOR.current_usage() - before;
            let bound = TABLES_BYTES + 2 * NEAR.capabilities.credit_bytes;
            assert!(full <= bound, "{full} bytes for messages of {bytes}");
            receive_all(&mut engine, messages, bytes);
            let empty = ALLOCATOR.current_usage() - before;
            let first = *after_first.get_or_insert(empty);
            assert!(empty <= first + 4096, "{empty} bytes are kept, {first} after the first flood");
        }
    }
}

fn operations_leave_nothing_behind() {
    let mut engine = Engine::new(Config::new(1));
    engine.handle_up(peer_id(0), RAIL, NEAR.capabilities);
    let (data, into) = (Region::owned(5000), Region::owned(5000));
    let mut after_first = None;
    for round in 0..3000 {
        let bytes = [0, 200, 1000, 5000][round % 4];
        let tag = (round % 16) as i32;
        let envelope = Envelope { context: 0, source: 0, tag, is_urgent: false };
        let mode = [SendMode::Standard, SendMode::Synchronous][round / 4 % 2];
        let send = engine.submit_send(peer_id(0), envelope, &data.slice(0, bytes), mode);
        let selector =
            Selector { context: 0, source: Some(0), tag: (round % 3 > 0).then_some(tag) };
        let receive = engine.submit_receive(Some(peer_id(0)), selector, &into);
        let cancelled = engine.submit_receive(Some(peer_id(0)), selector, &into);
        speak_to_itself(&mut engine);
        assert!(engine.submit_cancel(cancelled));
        for op in [send, receive, cancelled] {
            assert!(engine.take(op).is_some(), "round {round}");
        }
        let used = ALLOCATOR.current_usage();
        if round >= 100 {
            let first = *after_first.get_or_insert(used);
            assert!(used <= first + 4096, "{used} bytes after {round} rounds, {first} after 100");
        }
    }
}

fn a_message_without_a_receive_does_not_make_others_pile_up() {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    let into = Region::empty();
    let before = ALLOCATOR.current_usage();
    for sequence in 0..20_000 {
        let tag = i32::from(sequence > 0);
        let mut frame = Vec::new();
        packet::emit_eager(&mut frame, &Header { tag, ..header(sequence) }, None, 0);
        engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the credits");
        let wanted = Selector { context: 0, source: Some(1), tag: Some(1) };
        let op = engine.submit_receive(Some(peer_id(1)), wanted, &into);
        assert_eq!(engine.take(op).is_some(), sequence > 0);
        if sequence == 0 {
            assert!(engine.submit_cancel(op) && engine.take(op).is_some());
        }
        return_credit(&mut engine);
        let taken = ALLOCATOR.current_usage() - before;
        assert!(taken <= 2 * TABLES_BYTES, "{taken} bytes after {sequence} messages");
    }
}

fn unused_peers_cost_a_word_each() {
    let taken_by = |peers| {
        let before = ALLOCATOR.current_usage();
        let engine = Engine::new(Config::new(peers));
        assert!(engine.is_idle());
        ALLOCATOR.current_usage() - before
    };
    // An engine has room for its first operations.
    let taken_by_few = taken_by(2);
    assert!(taken_by_few <= 16 << 10, "{taken_by_few} bytes");
    let taken = taken_by(10_000);
    assert!(taken <= taken_by_few + 10_000 * 8, "{taken} bytes, {taken_by_few} by few");
}

fn a_short_unexpected_message_takes_a_few_words() {
    const MESSAGES: u32 = 100_000;
    for bytes in [0, 8, 24] {
        // Receives of no pattern, of some, of all: each pattern has its queues.
        for patterns in [0, 2, 4] {
            let mut engine = Engine::new(Config::new(2));
            engine.handle_up(peer_id(1), RAIL, ROOMY);
            let before = ALLOCATOR.current_usage();
            ALLOCATOR.reset_peak_usage();
            for sequence in 0..MESSAGES {
                let mut frame = Vec::new();
                let header = Header { tag: sequence as i32, ..header(sequence) };
                packet::emit_eager(&mut frame, &header, None, bytes as u32);
                frame.resize(frame.len() + bytes, 7);
                engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the credits");
                for (source, tag) in PATTERNS.into_iter().take(patterns) {
                    let selector = selecting(source, tag.then_some(header.tag));
                    assert!(engine.probe(source.then_some(peer_id(1)), selector).is_some());
                }
            }
            let each = (ALLOCATOR.current_usage() - before) / MESSAGES as usize;
            let most = (ALLOCATOR.peak_usage() - before) / MESSAGES as usize;
            println!("{each} bytes for a message of {bytes}, {patterns} patterns; {most} at most");
            assert!(most <= 256, "{most} bytes for a message of {bytes} bytes");
            receive_all(&mut engine, MESSAGES as usize, bytes);
            let kept = ALLOCATOR.current_usage() - before;
            assert!(kept <= TABLES_BYTES, "{kept} bytes are kept");
        }
    }
}

fn a_granted_short_message_takes_little_more() {
    const MESSAGES: u32 = 20_000;
    for bytes in [0, 8, 1000] {
        let mut engine = Engine::new(Config::new(2));
        engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
        let before = ALLOCATOR.current_usage();
        for round in 0..3 {
            for sequence in round * MESSAGES..(round + 1) * MESSAGES {
                let mut frame = Vec::new();
                let rndv = RndvKind::Short(None);
                packet::emit_rts(&mut frame, &header(sequence), 0, bytes as u64, rndv);
                if bytes > 0 {
                    packet::emit_rts_data(&mut frame, sequence, 0, bytes as u32);
                    frame.resize(frame.len() + bytes, 7);
                }
                engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the budget");
                return_credit(&mut engine);
            }
            let each = (ALLOCATOR.current_usage() - before) / MESSAGES as usize;
            println!("{each} bytes for a message of {bytes} that is taken in");
            assert!(each <= bytes + 384, "{each} bytes for a message of {bytes}");
            receive_all(&mut engine, MESSAGES as usize, bytes);
            let kept = ALLOCATOR.current_usage() - before;
            assert!(kept <= TABLES_BYTES, "{kept} bytes are kept");
        }
    }
}

fn short_messages_and_their_receives_allocate_nothing() {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    let into = Region::owned(8);
    let mut frame = Vec::with_capacity(packet::EAGER_LEN + 8);
    for sequence in 0..10_000 {
        if sequence == 100 {
            ALLOCATOR.reset_peak_usage();
        }
        let before = ALLOCATOR.current_usage();
        let (source, tag) = PATTERNS[sequence as usize % 4];
        let selector = selecting(source, tag.then_some(0));
        frame.clear();
        packet::emit_eager(&mut frame, &header(sequence), None, 8);
        frame.resize(packet::EAGER_LEN + 8, 7);
        let posted_first = sequence / 4 % 2 == 0;
        if !posted_first {
            engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the credits");
        }
        let op = engine.submit_receive(source.then_some(peer_id(1)), selector, &into);
        if posted_first {
            engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the credits");
        }
        assert!(engine.take(op).is_some());
        if sequence % 64 == 0 {
            return_credit(&mut engine);
            ALLOCATOR.reset_peak_usage();
        } else if sequence > 100 {
            assert_eq!(ALLOCATOR.peak_usage(), before, "allocated for message {sequence}");
        }
    }
}

fn keys_that_come_and_go_leave_nothing() {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    let into = Region::owned(8);
    let mut after_first = None;
    for sequence in 0..200_000 {
        let header = Header { tag: sequence as i32, ..header(sequence) };
        let mut frame = Vec::new();
        packet::emit_eager(&mut frame, &header, None, 0);
        let selector = selecting(true, Some(header.tag));
        let posted_first = sequence % 2 == 0;
        let posted = posted_first.then(|| engine.submit_receive(Some(peer_id(1)), selector, &into));
        engine.handle_frame(peer_id(1), RAIL, &frame).expect("within the credits");
        let op = posted.unwrap_or_else(|| engine.submit_receive(Some(peer_id(1)), selector, &into));
        assert!(engine.take(op).is_some());
        if sequence % 100 == 99 {
            return_credit(&mut engine);
            drop(frame);
            let used = ALLOCATOR.current_usage();
            let first = *after_first.get_or_insert(used);
            assert!(used <= first, "{used} bytes after {sequence} tags, {first} after 100");
        }
    }
}

/// Sends a hundred megabytes in each direction over two links, of which one dies with data in
/// flight.
fn long_messages_head_to_head_take_no_memory_of_their_own() {
    const BYTES: usize = 100_000_000;
    const RAILS: [RailId; 2] = [RailId(0), RailId(1)];
    let capabilities = Capabilities { frame_max: 64 << 10, replay: true, ..NEAR.capabilities };
    let (data, into) = ([0; 2].map(|_| Region::owned(BYTES)), [0; 2].map(|_| Region::owned(BYTES)));
    data.iter().for_each(|data| data.write(BYTES - 3, b"end"));
    let mut engines = [0; 2].map(|_| Engine::new(Config::new(2)));
    let mut wire = Vec::with_capacity(capabilities.frame_max);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let mut ops = Vec::new();
    for (rank, engine) in engines.iter_mut().enumerate() {
        let peer = peer_id(1 - rank);
        RAILS.iter().for_each(|&rail| engine.handle_up(peer, rail, capabilities));
        let envelope = Envelope { context: 0, source: rank as u32, tag: 0, is_urgent: false };
        ops.push((rank, engine.submit_send(peer, envelope, &data[rank], SendMode::Standard)));
        let selector = Selector { context: 0, source: Some(peer.0), tag: None };
        ops.push((rank, engine.submit_receive(Some(peer), selector, &into[rank])));
    }
    let (mut moved_bytes, mut lost) = (0, 0);
    while ops.iter().any(|&(rank, op)| !engines[rank].is_complete(op)) {
        let moved_before = (moved_bytes, lost);
        for (from, rail) in [(0, RAILS[0]), (0, RAILS[1]), (1, RAILS[0]), (1, RAILS[1])] {
            if !next_frame(&mut engines[from], peer_id(1 - from), rail, &mut wire) {
                continue;
            }
            // In the middle, one link drops its frames and dies.
            if rail == RAILS[1] && moved_bytes > BYTES {
                lost += 1;
                continue;
            }
            moved_bytes += wire.len();
            engines[1 - from].handle_frame(peer_id(from), rail, &wire).expect("it is in order");
        }
        if lost == 40 {
            for (rank, engine) in engines.iter_mut().enumerate() {
                let loss = engine.handle_link_down(peer_id(1 - rank), RAILS[1], false);
                assert_eq!(loss, Loss::Tolerated, "another is left");
            }
        }
        assert!((moved_bytes, lost) != moved_before, "nothing moves");
    }
    let taken = ALLOCATOR.peak_usage() - before;
    println!("{taken} bytes for 100 MB each rndv, {lost} frames lost");
    assert!(lost >= 40 && taken < 64 << 10, "{taken} bytes");
    for into in into {
        assert_eq!(into.slice(BYTES - 3, 3).to_vec(), b"end");
    }
}

fn selecting(source: bool, tag: Option<i32>) -> Selector {
    Selector { context: 0, source: source.then_some(1), tag }
}

/// Receives all waiting messages, so that the engine returns the credit.
fn receive_all(engine: &mut Engine, messages: usize, bytes: usize) {
    let into = Region::owned(bytes);
    let any = Selector { context: 0, source: None, tag: None };
    for _ in 0..messages {
        let op = engine.submit_receive(None, any, &into);
        assert!(engine.take(op).is_some(), "a message waits");
    }
    return_credit(engine);
}

fn return_credit(engine: &mut Engine) {
    let mut frame = Frame::default();
    while engine.poll_frame(peer_id(1), RAIL, &mut frame) {
        engine.handle_posted(peer_id(1), RAIL, &mut frame, Posted::Done);
    }
}

/// Takes an engine's next frame for a link, as bytes; `None` if there is none.
fn next_frame(engine: &mut Engine, peer: PeerId, rail: RailId, wire: &mut Vec<u8>) -> bool {
    let mut frame = Frame::default();
    let is_built = engine.poll_frame(peer, rail, &mut frame);
    if is_built {
        wire.clear();
        wire.extend_from_slice(&frame.head);
        frame.body.iter().for_each(|body| body.region.append_to(wire));
        engine.handle_posted(peer, rail, &mut frame, Posted::Done);
    }
    is_built
}

/// Delivers an engine's own frames to it.
fn speak_to_itself(engine: &mut Engine) {
    let mut frame = Frame::default();
    while engine.poll_frame(peer_id(0), RAIL, &mut frame) {
        let body = frame.body.as_ref().map_or(Vec::new(), |body| body.region.to_vec());
        let bytes = [&frame.head[..], &body].concat();
        engine.handle_posted(peer_id(0), RAIL, &mut frame, Posted::Done);
        engine.handle_frame(peer_id(0), RAIL, &bytes).expect("engines speak the protocol");
    }
}

fn header(sequence: u32) -> Header {
    Header { context: 0, source: 1, tag: 0, sequence }
}

/// True if a receive names its source; its tag.
const PATTERNS: [(bool, bool); 4] = [(true, true), (false, true), (true, false), (false, false)];

/// A link with credit for a hundred thousand messages.
const ROOMY: Capabilities = Capabilities { credit_bytes: 64 << 20, ..NEAR.capabilities };

/// The hash tables of matching, and the first blocks of growing tables.
const TABLES_BYTES: usize = 72 << 10;
