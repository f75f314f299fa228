//! Choice between two links for short messages, and passing of long ones.

use engine::{Config, Engine, Envelope, Loss, Posted, Selector, SendMode};
use memory::Region;
use wire::packet::{self, Incarnation};
use wire::{Capabilities, Frame, RailId};

use crate::network::{TWO_LINKS, peer_id};

const ENVELOPE: Envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };

/// Credit is large enough that none is returned.
const CAPABILITIES: Capabilities =
    Capabilities { credit_bytes: 1 << 20, credit_wanted: 1 << 20, ..TWO_LINKS.capabilities };

/// Creates an engine with these links to process 1, opened in this order.
fn engine(rails: &[u8]) -> Engine {
    let links: Vec<_> = rails.iter().map(|&rail| (rail, CAPABILITIES)).collect();
    engine_with(&links)
}

fn engine_with(links: &[(u8, Capabilities)]) -> Engine {
    let mut engine = Engine::new(Config::new(2));
    let mut frame = Frame::default();
    for &(number, capabilities) in links {
        let rail = RailId(number);
        engine.handle_up(peer_id(1), rail, capabilities);
        assert!(engine.poll_frame(peer_id(1), rail, &mut frame), "the resume");
        engine.handle_posted(peer_id(1), rail, &mut frame, Posted::Done);
        let mut resume = Vec::new();
        let name = Incarnation { rail: number, epoch: 1 };
        packet::emit_resume(&mut resume, name, 0, true);
        assert_eq!(engine.handle_frame(peer_id(1), rail, &resume), Ok(()));
    }
    engine
}

/// Sends a short message at once; returns its link and the frame.
fn send(engine: &mut Engine) -> (RailId, Vec<u8>) {
    let mut frame = Frame::default();
    let rail = engine.submit_short(peer_id(1), ENVELOPE, &Region::owned(8), &mut frame);
    let rail = rail.expect("a link that is ready, and nothing before the message");
    let head = frame.head.clone();
    engine.handle_posted(peer_id(1), rail, &mut frame, Posted::Done);
    (rail, head)
}

/// Delivers a frame with an expected message.
fn receive(engine: &mut Engine, rail: RailId, frame: &[u8]) {
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    let op = engine.submit_receive(Some(peer_id(1)), selector, &Region::owned(8));
    assert_eq!(engine.handle_frame(peer_id(1), rail, frame), Ok(()));
    assert!(engine.take(op).is_some());
}

/// Both ends send short messages over the same link, so that a reply comes back over the link of
/// the request.
#[test]
fn short_messages_take_the_first_rail_whichever_link_opened_first() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        assert_eq!(send(&mut engine(&order)).0, RailId(0), "opened as {order:?}");
    }
}

/// Replies carry the ACKs: no frame is sent for an ACK alone.
#[test]
fn requests_and_replies_need_no_other_frames() {
    let (mut one, mut other) = (engine(&[0, 1]), engine(&[0, 1]));
    let mut frame = Frame::default();
    for _ in 0..1000 {
        let (rail, question) = send(&mut one);
        receive(&mut other, rail, &question);
        let (rail, answer) = send(&mut other);
        receive(&mut one, rail, &answer);
        for engine in [&mut one, &mut other] {
            while let Some((peer, rail)) = engine.poll_peer() {
                assert!(!engine.poll_frame(peer, rail, &mut frame), "{frame:?}");
            }
        }
    }
}

/// A message of another link waits for those before it, unless its context allows overtaking.
#[test]
fn messages_overtake_others_where_the_application_allows_it() {
    let mut one = engine(&[0, 1]);
    let frames: Vec<_> = (0..3).map(|_| send(&mut one).1).collect();
    for is_allowed in [false, true] {
        let mut other = engine(&[0, 1]);
        other.set_overtaking(ENVELOPE.context, is_allowed);
        let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
        let region = Region::owned(8);
        let post = |engine: &mut Engine| engine.submit_receive(Some(peer_id(1)), selector, &region);
        let mut ops: Vec<_> = (0..2).map(|_| post(&mut other)).collect();
        assert_eq!(other.handle_frame(peer_id(1), RailId(0), &frames[1]), Ok(()));
        assert_eq!(other.is_complete(ops[0]), is_allowed);
        // One that no receive awaits is found at once, too.
        assert_eq!(other.handle_frame(peer_id(1), RailId(0), &frames[2]), Ok(()));
        assert_eq!(other.is_complete(ops[1]), is_allowed);
        assert!(other.handle_frame(peer_id(1), RailId(0), &frames[1]).is_err(), "it came before");
        assert_eq!(other.handle_frame(peer_id(1), RailId(0), &frames[0]), Ok(()));
        ops.push(post(&mut other));
        assert!(ops.iter().all(|op| other.take(*op).is_some()), "each completes once");
        let (_, next) = send(&mut one);
        assert!(other.handle_frame(peer_id(1), RailId(0), &next).is_ok() || !is_allowed);
    }
}

/// Posts all frames of the engine, except over links that are `full` by then. Returns the frames on
/// each of two links, and the bodies.
fn flush(engine: &mut Engine, room: &mut [usize; 2]) -> [(usize, usize); 2] {
    let mut sent = [(0, 0); 2];
    let mut frame = Frame::default();
    while let Some((peer, rail)) = engine.poll_peer() {
        let at = usize::from(rail.0);
        while engine.poll_frame(peer, rail, &mut frame) {
            if room[at] == 0 {
                engine.handle_posted(peer, rail, &mut frame, Posted::Full);
                break;
            }
            room[at] -= 1;
            sent[at].0 += 1;
            sent[at].1 += usize::from(frame.body.is_some());
            engine.handle_posted(peer, rail, &mut frame, Posted::Done);
        }
    }
    sent
}

/// With bulk data on a link of their own, short messages wait behind them neither in the engine nor
/// in the network.
#[test]
fn short_messages_pass_long_ones() {
    const ANY: usize = usize::MAX;
    let passing = Capabilities { eager_max: 128, inline_max: 128, passes: true, ..CAPABILITIES };
    let carrying = Capabilities { rts_data_max: 1 << 20, ..CAPABILITIES };
    let mut engine = engine_with(&[(1, carrying), (0, passing)]);
    assert_eq!(send(&mut engine).0, RailId(1), "nothing is to be passed");

    let submit = |engine: &mut Engine, bytes: usize| {
        engine.submit_send(peer_id(1), ENVELOPE, &Region::owned(bytes), SendMode::Standard)
    };
    submit(&mut engine, 40_000);
    let [(passed, _), (frames, pieces)] = flush(&mut engine, &mut [ANY, 8]);
    assert!(pieces > 1 && frames > 1, "the long one is under way");
    assert_eq!(passed, 0, "and alone");
    submit(&mut engine, 8);
    let [(passed, bodies), (frames, _)] = flush(&mut engine, &mut [ANY, 0]);
    assert_eq!((passed, bodies, frames), (1, 0, 0), "what is short passes a link that is full");
    submit(&mut engine, 30_000);
    submit(&mut engine, 8);
    let [(passed, bodies), _] = flush(&mut engine, &mut [ANY, 0]);
    assert_eq!((passed, bodies), (1, 0), "so does word of what is long, and what is behind it");

    engine.handle_room(peer_id(1), RailId(1));
    let [(_, bodies), (_, pieces)] = flush(&mut engine, &mut [ANY, ANY]);
    assert!(bodies == 0 && pieces > 8, "the rest goes where it belongs");
    assert_eq!(send(&mut engine).0, RailId(0), "of which no word has come");
    assert!(engine.counters().violations == 0);
}

#[test]
fn a_link_that_passes_another_carries_all_when_that_is_lost() {
    let passing = Capabilities { passes: true, ..CAPABILITIES };
    let mut engine = engine_with(&[(0, passing), (1, CAPABILITIES)]);
    assert_eq!(engine.handle_link_down(peer_id(1), RailId(1), true), Loss::Tolerated);
    engine.submit_send(peer_id(1), ENVELOPE, &Region::owned(1000), SendMode::Standard);
    let [(_, bodies), _] = flush(&mut engine, &mut [usize::MAX; 2]);
    assert_eq!(bodies, 1);
}
