//! Peers that come after the engine was made.

use engine::{Config, Engine, Envelope, SendMode};
use memory::Region;
use wire::PeerId;

#[test]
fn peers_may_be_added_at_any_time() {
    let mut engine = Engine::new(Config::new(2));
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let send = |engine: &mut Engine, peer| {
        let bytes = Region::from_box(vec![0; 8].into());
        engine.submit_send(peer, envelope, &bytes, SendMode::Synchronous)
    };
    send(&mut engine, PeerId(1));
    assert_eq!(engine.add_peer(), PeerId(2));
    assert_eq!(engine.add_peer(), PeerId(3));
    let op = send(&mut engine, PeerId(3));
    assert!(engine.is_pending(op));
    let wanted: Vec<_> = std::iter::from_fn(|| engine.poll_connect()).collect();
    assert_eq!(wanted, [PeerId(1), PeerId(3)]);
}
