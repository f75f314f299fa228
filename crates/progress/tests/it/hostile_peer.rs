//! A peer that sends garbage frames loses its link; no other peer does.

use engine::{Config, Engine};
use progress::{Directory, Worker};
use rail::{Event, Rail, SimNetwork};
use wire::{Frame, PeerId};

#[test]
fn garbage_costs_only_its_sender_the_link() {
    for seed in 0..200u64 {
        let network = SimNetwork::new(seed);
        let engine = Engine::new(Config::new(3));
        let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(PeerId(0)))];
        let mut worker = Worker::new(engine, PeerId(0), 3, rails, Box::new(Nobody));
        let mut peers = [1, 2].map(|rank| network.rail(PeerId(rank)));
        for peer in &mut peers {
            peer.connect(PeerId(0), &0u32.to_le_bytes()).expect("a connection");
        }
        let mut down = [false; 2];
        let mut posted = false;
        for turn in 0..400 {
            network.step();
            worker.advance();
            for (peer, down) in peers.iter_mut().zip(&mut down) {
                peer.poll(&mut |event| *down |= matches!(event, Event::Down { .. }));
            }
            if turn > 100 && !posted {
                posted = true;
                for number in 0..3 {
                    let noise = noise(seed.wrapping_mul(31) + number, 1 + seed as usize % 90);
                    peers[0].post(PeerId(0), &Frame { head: noise, body: None, token: None });
                }
            }
        }
        assert_eq!(down, [true, false], "seed {seed}");
        assert_eq!((worker.rail_name(PeerId(1)), worker.rail_name(PeerId(2))), (None, Some("sim")));
        let told = worker.take_notices();
        assert_eq!(told.len(), 1, "seed {seed}: {told:?}");
        assert!(told[0].starts_with("rank 1 sent what no rank sends"), "{told:?}");
    }
}

/// Returns random bytes whose first begins no packet.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes: Vec<u8> = Vec::with_capacity(len);
    for _ in 0..len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((state >> 56) as u8);
    }
    bytes[0] |= 0xc0;
    bytes
}

struct Nobody;

impl Directory for Nobody {
    fn addresses(&mut self, _: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Err("nobody is asked for".into())
    }
}
