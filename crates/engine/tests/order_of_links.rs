//! In which order the links of a gate stand.

mod network;

use engine::{Config, Engine, Envelope, Posted};
use memory::Region;
use network::{TWO_LINKS, gate};
use wire::packet::{self, Incarnation};
use wire::{Frame, RailId};

/// Both ends send what is short over the same link, so that an answer comes back the way of the question.
#[test]
fn short_messages_take_the_first_rail_whichever_link_opened_first() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut engine = Engine::new(Config::new(2));
        let mut frame = Frame::default();
        for rail in order.map(RailId) {
            engine.handle_up(gate(1), rail, TWO_LINKS.capabilities);
            assert!(engine.poll_frame(gate(1), rail, &mut frame), "the greeting");
            engine.handle_posted(gate(1), rail, &mut frame, Posted::Done);
            let mut greeting = Vec::new();
            let name = Incarnation { rail: rail.0, epoch: 1 };
            packet::emit_greeting(&mut greeting, name, 0, true);
            assert_eq!(engine.handle_frame(gate(1), rail, &greeting), Ok(()));
        }
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        let taken = engine.submit_short(gate(1), envelope, &Region::owned(8), &mut frame);
        assert_eq!(taken, Some(RailId(0)), "opened as {order:?}");
    }
}
