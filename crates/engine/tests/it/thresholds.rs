//! Thresholds that follow from the link's cost and change with it.

use cost::{Cost, HostCost, Thresholds};
use engine::strategy::Aggregate;
use engine::{BUDGET_BYTES, Config, Engine, Envelope, Posted, SendMode};
use memory::Region;
use wire::packet::{self, Packet};
use wire::{Capabilities, Frame};

use crate::network::{NEAR, RAIL, peer_id};

/// Three costs of one link: a local network, a wide-area link, and one with expensive frames.
const COSTS: [(u64, u64, u64); 3] =
    [(8_000, 2_000, 118), (5_800_000, 2_000, 118), (200_000, 30_000, 1_000)];

#[test]
fn sizes_follow_what_the_link_costs_and_change_with_it() {
    let capabilities = Capabilities {
        frame_max: FRAME_MAX,
        credit_bytes: 1 << 30,
        adapts: true,
        ..NEAR.capabilities
    };
    let mut engine = Engine::new(Config { strategy: Box::new(Aggregate), ..Config::new(2) });
    engine.handle_up(peer_id(1), RAIL, capabilities);
    let mut seen = Vec::new();
    for (latency_ns, gap_ns, mb_per_s) in COSTS {
        let cost = Cost::linear(latency_ns, gap_ns, mb_per_s * 1_000_000);
        let sizes = Thresholds::derive(&cost, &HostCost::default(), BUDGET_BYTES as u64);
        engine.handle_cost(peer_id(1), RAIL, cost);
        let Thresholds { inline_max, eager_max, aggregate_max, piece_max, rts_data_max, .. } =
            sizes;

        let [copied] = &sent(&mut engine, &[inline_max])[..] else { panic!("one frame") };
        assert!(copied.body.is_none(), "{sizes:?}");
        let [coalesced] = &sent(&mut engine, &[inline_max + 1])[..] else { panic!("one frame") };
        assert!(coalesced.body.is_some(), "{sizes:?}");

        assert!(!asks(&sent(&mut engine, &[eager_max])[0]), "{sizes:?}");
        let long = sent(&mut engine, &[eager_max + 1]);
        assert!(asks(&long[0]), "{sizes:?}");
        assert_eq!(long.len() > 1, rts_data_max > 0, "{sizes:?}");

        let short = sent(&mut engine, &[500; 2000]);
        let most = short.iter().map(|frame| frame.head.len()).max().unwrap_or(0);
        assert!((aggregate_max / 2..=aggregate_max).contains(&most), "{most} of {sizes:?}");

        let pieces = sent(&mut engine, &[64 << 20]);
        let longest = pieces.iter().map(|frame| frame.len() - frame.head.len()).max().unwrap_or(0);
        let piece_max = piece_max.min(FRAME_MAX);
        assert!((piece_max * 9 / 10..=piece_max).contains(&longest), "{longest} of {sizes:?}");
        seen.push(sizes);
    }
    assert!(seen[0].piece_max < seen[1].piece_max && seen[0].aggregate_max < seen[2].aggregate_max);
}

/// Returns the frames in which messages of these lengths leave, or begin to.
fn sent(engine: &mut Engine, lengths: &[usize]) -> Vec<Frame> {
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    for &bytes in lengths {
        engine.submit_send(peer_id(1), envelope, &Region::owned(bytes), SendMode::Standard);
    }
    let (mut frames, mut frame) = (Vec::new(), Frame::default());
    while engine.poll_frame(peer_id(1), RAIL, &mut frame) {
        frames.push(frame.clone());
        engine.handle_posted(peer_id(1), RAIL, &mut frame, Posted::Done);
    }
    frames
}

/// True if a frame begins with an RTS, credit packets aside.
fn asks(frame: &Frame) -> bool {
    let body = frame.body.as_ref().map_or(Vec::new(), |body| body.region.to_vec());
    let bytes = [&frame.head[..], &body].concat();
    let mut rest = &bytes[..];
    loop {
        match packet::parse(&mut rest) {
            Ok(Some(Packet::Credit { .. })) => {}
            Ok(Some(packet)) => return matches!(packet, Packet::Rts { .. }),
            other => panic!("{other:?}"),
        }
    }
}

const FRAME_MAX: usize = 4 << 20;
