//! Engines that follow each other in one process tell their operations apart.

use engine::{Config, Engine, Envelope, OpId, SendMode};
use memory::Region;
use wire::PeerId;

/// Submits some sends to a peer without a link.
fn submit(engine: &mut Engine) -> Vec<OpId> {
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let send = |_| {
        let bytes = Region::from_box(vec![0; 8].into());
        engine.submit_send(PeerId(1), envelope, &bytes, SendMode::Synchronous)
    };
    (0..5).map(send).collect()
}

#[test]
fn an_operation_of_an_earlier_engine_is_unknown_to_a_later_one() {
    let make = |first_generation| {
        let mut engine = Engine::new(Config { first_generation, ..Config::new(2) });
        let ops = submit(&mut engine);
        (engine, ops)
    };
    let generations = [0, 0x9e37_79b9, u32::MAX];
    let engines: Vec<_> = generations.into_iter().map(make).collect();
    for (number, (engine, ops)) in engines.iter().enumerate() {
        assert!(ops.iter().all(|op| engine.is_pending(*op)));
        for (_, strange) in engines.iter().enumerate().filter(|(other, _)| *other != number) {
            assert!(strange.1.iter().all(|op| !engine.is_pending(*op)));
        }
    }
}
