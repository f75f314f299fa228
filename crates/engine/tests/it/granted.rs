//! Messages that are granted although they will never be received.

use engine::{Config, Engine, PeerError, Posted, Revocation, RevokedBy};
use wire::Frame;
use wire::packet::{self, Header, Packet, RndvKind};

use crate::network::{RAIL, SCARCE, peer_id};

const PEER: usize = 1;
const CONTEXT: u64 = 7;
const BYTES: usize = 1000;

#[test]
fn granted_messages_of_a_revoked_context_complete_and_return_their_credit() {
    for pieces_before in 0..=2 {
        let mut engine = Engine::new(Config::new(3));
        engine.handle_up(peer_id(PEER), RAIL, SCARCE.capabilities);
        assert_eq!(receive(&mut engine, &rts(0, 3, BYTES as u64)), Ok(()));
        assert_eq!(receive(&mut engine, &rts(1, 4, 0)), Ok(()));
        assert!(says(&mut engine, &[Packet::Grant { op: 3 }, Packet::Grant { op: 4 }]));
        let pieces = [piece(0, 0, BYTES / 2), piece(0, BYTES / 2, BYTES / 2)];
        let (before, after) = pieces.split_at(pieces_before);
        before.iter().for_each(|piece| assert_eq!(receive(&mut engine, piece), Ok(())));
        assert!(engine.submit_revoke(&Revocation {
            context: CONTEXT,
            marks: 0,
            by: RevokedBy::Failure(peer_id(2)),
        }));
        after.iter().for_each(|piece| assert_eq!(receive(&mut engine, piece), Ok(())));
        let cost = 2 * 64 + BYTES as u32;
        assert!(says(&mut engine, &[Packet::Credit { bytes: cost }]), "{pieces_before} before");
        assert!(!engine.has_pending(), "nothing waits for bytes of it");
        let again = receive(&mut engine, &piece(0, 0, 1));
        assert_eq!(again, Err(PeerError::RtsData { sequence: 0 }));

        // Late data are refused.
        assert_eq!(receive(&mut engine, &rts(2, 5, BYTES as u64)), Ok(()));
        let sent = frames(&mut engine);
        let word = packet::parse(&mut &sent[..]);
        assert!(matches!(word, Ok(Some(Packet::Cts { op: 5, wanted: 0, .. }))), "{word:?}");
    }
}

fn rts(sequence: u32, op: u32, bytes: u64) -> Vec<u8> {
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

fn receive(engine: &mut Engine, frame: &[u8]) -> Result<(), PeerError> {
    engine.handle_frame(peer_id(PEER), RAIL, frame)
}

/// True if the engine sends exactly this.
fn says(engine: &mut Engine, packets: &[Packet<'_>]) -> bool {
    let sent = frames(engine);
    let mut rest = &sent[..];
    packets.iter().all(|packet| packet::parse(&mut rest) == Ok(Some(*packet))) && rest.is_empty()
}

/// Returns the next frame for the peer.
fn frames(engine: &mut Engine) -> Vec<u8> {
    let (mut sent, mut frame) = (Vec::new(), Frame::default());
    while engine.poll_frame(peer_id(PEER), RAIL, &mut frame) {
        sent.extend_from_slice(&frame.head);
        frame.body.iter().for_each(|body| body.region.append_to(&mut sent));
        engine.handle_posted(peer_id(PEER), RAIL, &mut frame, Posted::Done);
    }
    sent
}
