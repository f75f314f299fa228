//! Which of two links short messages take, and what passes beside them.

mod network;

use engine::{Config, Engine, Envelope, Posted, Selector};
use memory::Region;
use network::{TWO_LINKS, gate};
use wire::packet::{self, Incarnation};
use wire::{Capabilities, Frame, RailId};

const ENVELOPE: Envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };

/// With credit enough that none is given back.
const CAPABILITIES: Capabilities =
    Capabilities { credit_bytes: 1 << 20, credit_wanted: 1 << 20, ..TWO_LINKS.capabilities };

/// An engine with these links to process 1, opened in this order.
fn engine(rails: &[u8]) -> Engine {
    let mut engine = Engine::new(Config::new(2));
    let mut frame = Frame::default();
    for &number in rails {
        let rail = RailId(number);
        engine.handle_up(gate(1), rail, CAPABILITIES);
        assert!(engine.poll_frame(gate(1), rail, &mut frame), "the greeting");
        engine.handle_posted(gate(1), rail, &mut frame, Posted::Done);
        let mut greeting = Vec::new();
        let name = Incarnation { rail: number, epoch: 1 };
        packet::emit_greeting(&mut greeting, name, 0, true);
        assert_eq!(engine.handle_frame(gate(1), rail, &greeting), Ok(()));
    }
    engine
}

/// Sends a short message at once: the link it takes, and the frame.
fn send(engine: &mut Engine) -> (RailId, Vec<u8>) {
    let mut frame = Frame::default();
    let rail = engine.submit_short(gate(1), ENVELOPE, &Region::owned(8), &mut frame);
    let rail = rail.expect("a link that is ready, and nothing before the message");
    let head = frame.head.clone();
    engine.handle_posted(gate(1), rail, &mut frame, Posted::Done);
    (rail, head)
}

/// Takes in a frame with a message that is waited for.
fn receive(engine: &mut Engine, rail: RailId, frame: &[u8]) {
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    let op = engine.submit_receive(Some(gate(1)), selector, &Region::owned(8));
    assert_eq!(engine.handle_frame(gate(1), rail, frame), Ok(()));
    assert!(engine.take(op).is_some());
}

/// Both ends send what is short over the same link, so that an answer comes back the way of the question.
#[test]
fn short_messages_take_the_first_rail_whichever_link_opened_first() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        assert_eq!(send(&mut engine(&order)).0, RailId(0), "opened as {order:?}");
    }
}

/// What has come is said in answers: no frame goes for that alone.
#[test]
fn questions_and_answers_are_all_that_passes() {
    let (mut one, mut other) = (engine(&[0, 1]), engine(&[0, 1]));
    let mut frame = Frame::default();
    for _ in 0..1000 {
        let (rail, question) = send(&mut one);
        receive(&mut other, rail, &question);
        let (rail, answer) = send(&mut other);
        receive(&mut one, rail, &answer);
        for engine in [&mut one, &mut other] {
            while let Some((peer, rail)) = engine.poll_gate() {
                assert!(!engine.poll_frame(peer, rail, &mut frame), "{frame:?}");
            }
        }
    }
}
