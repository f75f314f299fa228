//! Cut-through frames: the engine sees their beginning first.

use engine::{Completion, Config, Engine, OpId, Outcome, PeerError, Selector};
use memory::Region;
use wire::packet::{self, Header, RndvKind};
use wire::{Capabilities, Frame, Incoming, PeerId, RailId};

use crate::network::{NEAR, RAIL};

#[test]
fn a_message_with_a_posted_receive_cuts_through() {
    let mut engine = engine(CAPABILITIES);
    let (op, region) = receive(&mut engine, BYTES);
    let frame = message(0, &pattern());
    let (beginning, rest) = frame.split_at(100);
    assert_eq!(engine.handle_beginning(PEER, RAIL, beginning, frame.len()), Ok(true));
    assert!(engine.take(op).is_none());
    let event_count = engine.event_count();
    for piece in rest.chunks(300) {
        assert!(engine.take(op).is_none() && engine.event_count() == event_count);
        bring(&mut engine, piece);
    }
    assert_eq!(ended(&mut engine, op), (BYTES as u64, Outcome::Ok));
    assert_eq!(region.to_vec(), pattern());
    // The next message is handled in order.
    let (op, _) = receive(&mut engine, BYTES);
    assert_eq!(engine.handle_frame(PEER, RAIL, &message(1, b"next")), Ok(()));
    assert_eq!(ended(&mut engine, op), (4, Outcome::Ok));
}

#[test]
fn a_receive_takes_no_more_than_it_has_room_for() {
    for room in [0, 10, 500] {
        let mut engine = engine(CAPABILITIES);
        let (op, region) = receive(&mut engine, room);
        let frame = message(0, &pattern());
        let (beginning, rest) = frame.split_at(100);
        assert_eq!(engine.handle_beginning(PEER, RAIL, beginning, frame.len()), Ok(true));
        rest.chunks(300).for_each(|piece| bring(&mut engine, piece));
        let truncated = Outcome::Truncated { message_bytes: BYTES as u64 };
        assert_eq!(ended(&mut engine, op), (room as u64, truncated));
        assert_eq!(region.to_vec(), pattern()[..room]);
    }
}

#[test]
fn unexpected_messages_are_received_whole() {
    let mut engine = engine(CAPABILITIES);
    let frame = message(0, &pattern());
    for _ in 0..2 {
        assert_eq!(engine.handle_beginning(PEER, RAIL, &frame[..100], frame.len()), Ok(false));
    }
    assert_eq!(engine.handle_frame(PEER, RAIL, &frame), Ok(()));
    let (op, region) = receive(&mut engine, BYTES);
    assert_eq!(ended(&mut engine, op), (BYTES as u64, Outcome::Ok));
    assert_eq!(region.to_vec(), pattern());
}

#[test]
fn other_frames_are_received_whole() {
    let mut engine = engine(CAPABILITIES);
    let _ = receive(&mut engine, BYTES);
    let early = message(1, &pattern());
    let two = [message(0, b"first"), message(1, &pattern())].concat();
    let mut request = Vec::new();
    packet::emit_rts(&mut request, &header(0), 3, 1 << 20, RndvKind::Stream);
    let cut = &message(0, &pattern())[..31];
    for (beginning, len) in
        [(&early[..], early.len()), (&two, two.len()), (&request, 5000), (cut, 64)]
    {
        let beginning = &beginning[..beginning.len().min(100)];
        assert_eq!(engine.handle_beginning(PEER, RAIL, beginning, len), Ok(false));
    }
    let next = message(0, &pattern());
    assert_eq!(engine.handle_beginning(PEER, RailId(1), &next[..100], next.len()), Ok(false));
    assert_eq!(engine.handle_beginning(PeerId(7), RAIL, &next[..100], next.len()), Ok(false));
    assert_eq!(engine.handle_beginning(PEER, RAIL, &next[..100], next.len()), Ok(true));
}

#[test]
fn messages_on_a_link_with_replay_are_received_whole() {
    let mut engine = engine(Capabilities { replay: true, ..CAPABILITIES });
    let _ = receive(&mut engine, BYTES);
    let frame = message(0, &pattern());
    assert_eq!(engine.handle_beginning(PEER, RAIL, &frame[..100], frame.len()), Ok(false));
}

#[test]
fn a_sender_without_credit_is_found_out() {
    let mut engine = engine(Capabilities { credit_bytes: 1000, credit_wanted: 0, ..CAPABILITIES });
    let _ = receive(&mut engine, BYTES);
    let frame = message(0, &pattern());
    assert_eq!(engine.handle_beginning(PEER, RAIL, &frame[..100], frame.len()), Ok(false));
    let error = engine.handle_frame(PEER, RAIL, &frame).unwrap_err();
    assert!(matches!(error, PeerError::Credit { .. }), "{error}");
}

#[test]
fn a_receive_fails_if_its_peer_fails_in_the_middle() {
    let mut engine = engine(CAPABILITIES);
    let (op, region) = receive(&mut engine, BYTES);
    let frame = message(0, &pattern());
    assert_eq!(engine.handle_beginning(PEER, RAIL, &frame[..1000], frame.len()), Ok(true));
    engine.handle_down(PEER);
    assert_eq!(ended(&mut engine, op).1, Outcome::PeerFailed);
    let before = region.to_vec();
    bring(&mut engine, &frame[1000..]);
    assert_eq!(region.to_vec(), before, "its memory is free");
}

#[test]
fn an_expected_piece_cuts_through() {
    let mut engine = engine(CAPABILITIES);
    let (op, region) = receive(&mut engine, BYTES);
    let mut request = Vec::new();
    packet::emit_rts(&mut request, &header(0), 3, BYTES as u64, RndvKind::Stream);
    assert_eq!(engine.handle_frame(PEER, RAIL, &request), Ok(()));
    let mut answer = Frame::default();
    assert_eq!(engine.poll_peer(), Some((PEER, RAIL)));
    assert!(engine.poll_frame(PEER, RAIL, &mut answer));
    let parsed = packet::parse(&mut &answer.head[..]);
    let Ok(Some(packet::Packet::Cts { receiver, .. })) = parsed else { panic!("{parsed:?}") };
    let data = |offset: usize, payload: &[u8]| {
        let mut frame = Vec::new();
        packet::emit_data(&mut frame, receiver, offset as u64, payload.len() as u32);
        frame.extend(payload);
        frame
    };
    let wrong = data(BYTES - 10, &[0; 100]);
    assert!(engine.handle_beginning(PEER, RAIL, &wrong[..50], wrong.len()).is_err());
    for (offset, payload) in [(2000, &pattern()[2000..]), (0, &pattern()[..2000])] {
        assert!(engine.take(op).is_none());
        let frame = data(offset, payload);
        assert_eq!(engine.handle_beginning(PEER, RAIL, &frame[..20], frame.len()), Ok(true));
        frame[20..].chunks(999).for_each(|piece| bring(&mut engine, piece));
    }
    assert_eq!(ended(&mut engine, op), (BYTES as u64, Outcome::Ok));
    assert_eq!(region.to_vec(), pattern());
}

const PEER: PeerId = PeerId(1);
const BYTES: usize = 5000;
const CAPABILITIES: Capabilities =
    Capabilities { credit_bytes: 1 << 20, credit_wanted: 1 << 20, ..NEAR.capabilities };

fn engine(capabilities: Capabilities) -> Engine {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(PEER, RAIL, capabilities);
    engine
}

fn receive(engine: &mut Engine, room: usize) -> (OpId, Region) {
    let region = Region::owned(room);
    let selector = Selector { context: 0, source: None, tag: None };
    (engine.submit_receive(None, selector, &region), region)
}

/// Brings the next bytes of a frame that the engine takes in pieces.
fn bring(engine: &mut Engine, piece: &[u8]) {
    assert_eq!(engine.handle_rest(PEER, RAIL, Incoming::Here(piece)), Ok(()));
}

fn ended(engine: &mut Engine, op: OpId) -> (u64, Outcome) {
    let Completion { bytes, outcome, .. } = engine.take(op).expect("it has ended");
    (bytes, outcome)
}

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn header(sequence: u32) -> Header {
    Header { context: 0, source: 1, tag: 3, sequence }
}

fn message(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    packet::emit_eager(&mut frame, &header(sequence), None, payload.len() as u32);
    frame.extend(payload);
    frame
}
