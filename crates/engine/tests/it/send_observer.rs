//! A send observer sees every message and one-sided operation once, whichever protocol it uses.

use std::sync::{Arc, Mutex};

use engine::{Config, Engine, Envelope, HandlerId, PutTo, SendMode, SendObserver, Short, Wanted};
use memory::Region;
use wire::{Frame, PeerId, RemoteKey};

use crate::network::{NEAR, RAIL, peer_id};

#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<(u32, i32, u64)>>>);

impl SendObserver for Notes {
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, bytes: u64) {
        self.0.lock().unwrap().push((peer.0, envelope.tag, bytes));
    }

    fn note_access(&mut self, peer: PeerId, bytes: u64) {
        self.0.lock().unwrap().push((peer.0, ACCESS, bytes));
    }
}

#[test]
fn every_message_and_access_is_noted_once() {
    let notes = Notes::default();
    let mut engine = Engine::new(Config::new(3));
    engine.set_send_observer(Box::new(notes.clone()));
    let envelope = |tag| Envelope { context: 0, source: 0, tag, is_urgent: false };
    let send = |engine: &mut Engine, to, tag, bytes| {
        engine.submit_send(peer_id(to), envelope(tag), &Region::owned(bytes), SendMode::Standard);
    };
    let mut frame = Frame::default();
    // No link is open, so the caller submits the message as usual.
    let short = Region::owned(8);
    assert!(engine.submit_short(peer_id(1), envelope(0), &short, &mut frame).is_none());
    assert!(!engine.submit_coalesced(peer_id(1), Short::Message(envelope(0)), &short));
    send(&mut engine, 1, 0, 8);
    send(&mut engine, 2, 1, 1 << 20);
    engine.handle_up(peer_id(1), RAIL, NEAR.capabilities);
    while engine.poll_peer().is_some() {
        while engine.poll_frame(peer_id(1), RAIL, &mut frame) {
            engine.handle_posted(peer_id(1), RAIL, &mut frame, engine::Posted::Done);
        }
    }
    assert!(engine.submit_short(peer_id(1), envelope(2), &short, &mut frame).is_some());
    engine.handle_posted(peer_id(1), RAIL, &mut frame, engine::Posted::Done);
    assert!(engine.submit_coalesced(peer_id(1), Short::Message(envelope(3)), &short));
    let put = PutTo { key: RemoteKey { index: 0, generation: 0 }, offset: 0 };
    assert!(engine.submit_coalesced(peer_id(1), Short::Put(put), &short));
    engine.submit_put(peer_id(1), put, &Region::owned(3000));
    engine.submit_get(peer_id(2), put, &Region::owned(40));
    let wanted = Wanted::Nothing;
    engine.submit_call(peer_id(2), HandlerId(1), [0; 3], &Region::owned(16), wanted);
    let noted = notes.0.lock().unwrap().clone();
    assert_eq!(
        noted,
        [
            (1, 0, 8),
            (2, 1, 1 << 20),
            (1, 2, 8),
            (1, 3, 8),
            (1, ACCESS, 8),
            (1, ACCESS, 3000),
            (2, ACCESS, 40),
            (2, ACCESS, 16)
        ]
    );
}

/// Tag of one-sided operations among the notes.
const ACCESS: i32 = -1;
