//! Damaged frames.

use engine::{SendMode, strategy};
use wire::Capabilities;

use super::{INVERT, LONG_ROUND_TRIP, NEAR, SLOW, Send, Shape, SimulatedNetwork};
use testing::Random;

/// Frames of every kind, from working engines.
pub fn corpus() -> Vec<Vec<u8>> {
    let remote_read = Capabilities { remote_read: true, ..NEAR.capabilities };
    let mut frames = Vec::new();
    let readable = Shape { capabilities: remote_read, remote_read_works: true, ..NEAR };
    for (shape, strategy) in [
        (NEAR, "aggregate"),
        (LONG_ROUND_TRIP, "aggregate"),
        (readable, "aggregate"),
        (SLOW, "compress"),
    ] {
        let strategy = || strategy::named(strategy).expect("a known name");
        let mut network = SimulatedNetwork::with_strategy(1, 2, shape, &strategy);
        network.record = Some(Vec::new());
        for tag in 0..40 {
            let bytes = [0, 8, 300, 1500, 5000][tag as usize % 5];
            let mode = [SendMode::Standard, SendMode::Synchronous][tag as usize % 2];
            network.submit_send(0, Send { to: 1, context: 0, tag, bytes, mode });
            network.receive(1, Some(0), Some(tag), bytes);
            network.run();
        }
        // More data than the credit, before any receive.
        for tag in 40..120 {
            network.send(0, 1, tag, [0, 8, 1000][tag as usize % 3]);
        }
        network.run();
        for tag in 40..120 {
            network.receive(1, Some(0), Some(tag), 1000);
        }
        // Messages that nobody receives.
        let (to, context, mode) = (1, 0, SendMode::Synchronous);
        let unwanted = |tag| Send { to, context, tag, bytes: [8, 5000][tag as usize % 2], mode };
        let sends: Vec<_> = (120..130).map(|tag| network.submit_send(0, unwanted(tag))).collect();
        network.run();
        for send in sends {
            network.cancel_send(send);
        }
        network.run();
        network.expose();
        for round in 0..40 {
            let len = [0, 8, 300, 1500, 5000][round % 5];
            network.put(0, 1, len);
            network.get(0, 1, round, len);
            network.call(0, 1, INVERT, 0, len.min(1500), round % 2 == 0);
            network.flush_addressed(0, 1);
            network.run();
        }
        network.finish();
        frames.extend(network.record.unwrap_or_default());
    }
    frames
}

/// Ways to damage a frame.
pub fn mutate(random: &mut Random, frame: &[u8], others: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut bytes = frame.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len() + 1);
        match random.below(9) {
            0 => bytes.truncate(at),
            1 => bytes.extend(random.next().to_le_bytes()),
            2 => bytes.extend(&others[random.below(others.len())]),
            3 => return vec![bytes.clone(), bytes],
            4 => return vec![],
            5 => overwrite(&mut bytes, at, &[0x11 + random.below(20) as u8]),
            6 => overwrite(&mut bytes, at, &[random.next() as u8]),
            7 => overwrite(&mut bytes, at & !3, &random.pick(&EDGES).to_le_bytes()[..4]),
            _ => overwrite(&mut bytes, at & !3, &random.pick(&EDGES).to_le_bytes()),
        }
    }
    vec![bytes]
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(with) {
        *byte = *new;
    }
}

/// Numbers that provoke arithmetic errors.
const EDGES: [u64; 8] = [0, 1, 4096, 0x7fff_ffff, 0xffff_ffff, 1 << 32, i64::MAX as u64, u64::MAX];
