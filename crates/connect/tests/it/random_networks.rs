//! Random networks: processes dial each other at the same time, links are cut, dropped, refused and replayed, and
//! addresses change.

use std::time::Duration;

use testing::Random;

use crate::network::{MOVING, NetworkEvent, VirtualNetwork};

#[test]
fn both_ends_agree_and_every_lost_link_comes_back() {
    for seed in testing::seeds(2000) {
        let mut random = Random::new(seed ^ 0x5eed);
        let size = 2 + random.below(3_usize);
        let teams = random.pick(&[&[0][..], &[0, 0], &[0, 1], &[0, 0, 2], &[0, 1, 2]]);
        let mut network = VirtualNetwork::new(seed, size, teams);
        for _ in 0..8 + random.below(24) {
            let at = Duration::from_millis(random.below(25_000_u64));
            let event = disturbance(&mut random, size, teams.len());
            network.schedule(at, event);
        }
        // Pairs meet early, some of them at the same instant.
        for process in 0..size {
            for peer in (0..size).filter(|peer| *peer != process) {
                let at = Duration::from_millis(100 * random.below(20_u64));
                network.schedule(at, NetworkEvent::Want { process, peer });
            }
        }
        network.run_until(Duration::from_secs(25));
        network.heal_all();
        network.run_until(Duration::from_secs(60));
        // A rail may just be retried: what both ends see at one instant may differ, but not for long.
        let earlier = network.disagreements();
        network.run_until(Duration::from_secs(70));
        let later = network.disagreements();
        let lasting: Vec<_> = later.iter().filter(|one| earlier.contains(one)).collect();
        assert!(lasting.is_empty(), "{lasting:?}");
    }
}

#[test]
fn crossing_dials_open_one_link_that_lasts() {
    for seed in testing::seeds(1000) {
        let mut random = Random::new(seed ^ 0xd1a1);
        let size = 2 + random.below(4_usize);
        let teams = random.pick(&[&[0][..], &[0, 0], &[0, 0, 2]]);
        let mut network = VirtualNetwork::new(seed, size, teams);
        let spread = random.pick(&[1, 60, 400_u64]);
        let pairs: Vec<_> = network.pairs().collect();
        for &(process, peer) in &pairs {
            for (process, peer) in [(process, peer), (peer, process)] {
                let at = Duration::from_millis(random.below(spread));
                network.schedule(at, NetworkEvent::Want { process, peer });
            }
        }
        network.run_until(Duration::from_secs(5));
        assert_eq!((network.met(), network.disagreements()), (pairs.len(), Vec::new()));
        assert_eq!(network.ended, 0, "a link that nobody has cut was lost");
    }
}

fn disturbance(random: &mut Random, size: usize, rails: usize) -> NetworkEvent {
    let process = random.below(size - 1);
    let pair = (process, process + 1 + random.below(size - 1 - process));
    let rail = random.below(rails);
    match random.below(10) {
        0..4 => {
            let most = random.pick(&[300, 3_000, 12_000, 40_000_u64]);
            NetworkEvent::Cut { pair, rail, lasts: Duration::from_millis(random.below(most)) }
        }
        4..7 => NetworkEvent::Drop { pair, rail, is_noticed: random.one_in(2) },
        7 => NetworkEvent::Replay { process: pair.0, peer: pair.1, rail },
        8 => NetworkEvent::Move { process: MOVING, rail },
        _ => NetworkEvent::Want { process: pair.1, peer: pair.0 },
    }
}
