//! Messages that are taken in where nobody is going to receive them.

mod network;

use engine::{Config, Engine, PeerError, Posted};
use network::{RAIL, SCARCE, peer_id};
use wire::Frame;
use wire::packet::{self, Header, Packet, RndvKind};

const PEER: usize = 1;
const CONTEXT: u64 = 7;
const BYTES: usize = 1000;

#[test]
fn what_a_closed_context_has_taken_in_comes_to_its_end_and_its_cost_is_given_back() {
    for pieces_before in 0..=2 {
        let mut engine = Engine::new(Config::new(3));
        engine.handle_up(peer_id(PEER), RAIL, SCARCE.capabilities);
        assert_eq!(hear(&mut engine, &request(0, 3, BYTES as u64)), Ok(()));
        assert_eq!(hear(&mut engine, &request(1, 4, 0)), Ok(()));
        assert!(says(&mut engine, &[Packet::Grant { op: 3 }, Packet::Grant { op: 4 }]));
        let pieces = [piece(0, 0, BYTES / 2), piece(0, BYTES / 2, BYTES / 2)];
        let (before, after) = pieces.split_at(pieces_before);
        before.iter().for_each(|piece| assert_eq!(hear(&mut engine, piece), Ok(())));
        assert!(engine.submit_close(CONTEXT, peer_id(2)));
        after.iter().for_each(|piece| assert_eq!(hear(&mut engine, piece), Ok(())));
        let cost = 2 * 64 + BYTES as u32;
        assert!(says(&mut engine, &[Packet::Credit { bytes: cost }]), "{pieces_before} before");
        assert!(!engine.has_pending(), "nothing waits for bytes of it");
        let again = hear(&mut engine, &piece(0, 0, 1));
        assert_eq!(again, Err(PeerError::Ahead { sequence: 0 }));

        // What comes too late is not wanted.
        assert_eq!(hear(&mut engine, &request(2, 5, BYTES as u64)), Ok(()));
        let sent = frames(&mut engine);
        let word = packet::parse(&mut &sent[..]);
        assert!(matches!(word, Ok(Some(Packet::Cts { op: 5, wanted: 0, .. }))), "{word:?}");
    }
}

fn request(sequence: u32, op: u32, bytes: u64) -> Vec<u8> {
    let header = Header { context: CONTEXT, source: PEER as u32, tag: 0, sequence };
    let mut frame = Vec::new();
    packet::emit_rts(&mut frame, &header, op, bytes, RndvKind::Short(None));
    frame
}

fn piece(sequence: u32, offset: usize, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    packet::emit_rts_data(&mut frame, sequence, offset as u64, bytes as u32);
    frame.resize(frame.len() + bytes, 1);
    frame
}

fn hear(engine: &mut Engine, frame: &[u8]) -> Result<(), PeerError> {
    engine.handle_frame(peer_id(PEER), RAIL, frame)
}

/// Whether the engine has this to say and nothing else.
fn says(engine: &mut Engine, packets: &[Packet<'_>]) -> bool {
    let sent = frames(engine);
    let mut rest = &sent[..];
    packets.iter().all(|packet| packet::parse(&mut rest) == Ok(Some(*packet))) && rest.is_empty()
}

/// What the engine has for the peer.
fn frames(engine: &mut Engine) -> Vec<u8> {
    let (mut sent, mut frame) = (Vec::new(), Frame::default());
    while engine.poll_frame(peer_id(PEER), RAIL, &mut frame) {
        sent.extend_from_slice(&frame.head);
        frame.body.iter().for_each(|body| body.region.append_to(&mut sent));
        engine.handle_posted(peer_id(PEER), RAIL, &mut frame, Posted::Done);
    }
    sent
}
