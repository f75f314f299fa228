//! Short messages that a rail copies from the application's memory itself.

use engine::{Config, Engine, Envelope, Posted};
use memory::Region;
use wire::packet::{self, Packet};
use wire::{Capabilities, Frame, PeerId};

use crate::network::{NEAR, RAIL};

#[test]
fn the_memory_of_a_refused_frame_is_free() {
    let mut engine = engine(true);
    let (data, mut frame) = (message(1), Frame::default());
    assert_eq!(engine.submit_short(PEER, ENVELOPE, &data, &mut frame), Some(RAIL));
    assert_eq!(frame.head.len(), packet::EAGER_LEN);
    assert!(frame.body.is_some() && frame.token.is_none());
    engine.handle_posted(PEER, RAIL, &mut frame, Posted::Full);
    data.write(0, &[0xee; LEN]);
    assert_eq!(engine.submit_short(PEER, ENVELOPE, &message(2), &mut frame), None, "it waits");
    engine.handle_room(PEER, RAIL);
    assert!(engine.poll_peer().is_some() && engine.poll_frame(PEER, RAIL, &mut frame));
    assert!(frame.body.is_none());
    assert_eq!(payload(&frame.head), message(1).to_vec());
    engine.handle_posted(PEER, RAIL, &mut frame, Posted::Done);
    // An accepted frame is not polled again.
    assert_eq!(engine.submit_short(PEER, ENVELOPE, &message(3), &mut frame), Some(RAIL));
    engine.handle_posted(PEER, RAIL, &mut frame, Posted::Done);
    assert!(engine.poll_peer().is_none() && !engine.has_pending());
}

#[test]
fn very_short_data_and_data_a_rail_might_hold_are_copied_into_the_frame() {
    for (copies, len) in [(true, 512), (false, LEN)] {
        let mut frame = Frame::default();
        let data = message(1).slice(0, len);
        assert_eq!(engine(copies).submit_short(PEER, ENVELOPE, &data, &mut frame), Some(RAIL));
        assert!(frame.body.is_none());
        assert_eq!(payload(&frame.head), data.to_vec());
    }
}

const PEER: PeerId = PeerId(1);
const ENVELOPE: Envelope = Envelope { context: 0, source: 0, tag: 3, is_urgent: false };
const LEN: usize = 3000;

fn engine(copies: bool) -> Engine {
    let mut engine = Engine::new(Config::new(2));
    let capabilities = Capabilities { inline_max: 4 << 10, copies, ..NEAR.capabilities };
    engine.handle_up(PEER, RAIL, capabilities);
    engine
}

fn message(number: u8) -> Region {
    let region = Region::owned(LEN);
    region.write(0, &[number; LEN]);
    region
}

fn payload(mut frame: &[u8]) -> Vec<u8> {
    match packet::parse(&mut frame) {
        Ok(Some(Packet::Eager { payload, .. })) => payload.to_vec(),
        other => panic!("{other:?}"),
    }
}
