//! Calls of a peer that breaks the protocol: nothing panics, and no byte is written twice or beside the receiver's memory.

use std::sync::Arc;

use engine::{Config, Engine};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::LoopbackRail;
use testing::{Random, seeds};
use wire::PeerId;

use crate::channels::Channels;
use crate::route::Route;

#[test]
fn wrong_calls_write_nothing() {
    let progress = process();
    let channels = Channels::new(&progress);
    let (mut taken, mut refused) = (0, 0);
    for seed in seeds(300) {
        let mut random = Random::new(!seed);
        let route = Route { peer: HERE, context: 4, source: 0, tag: 0, note: 1 };
        let (count, bytes) = (1 + random.below(9), random.below(40));
        let memory = Region::owned(count * bytes + 2 * BESIDE);
        let into = memory.slice(BESIDE, count * bytes);
        let data = Region::owned(count * bytes);
        let sender = channels.send(route, data, count as u32).expect("memory");
        let receiver = channels.receive(route, into.clone(), count as u32).expect("memory");
        receiver.start();
        while !receiver.has_begun() {
            progress.test(|_| ());
        }
        let mut expected = vec![0; into.len()];
        let mut is_here = vec![false; count];
        for byte in 1..20 {
            let first = number(&mut random, count);
            let parts = number(&mut random, count);
            let len =
                if random.one_in(4) { random.below(400) } else { (parts as usize % 16) * bytes };
            let peer = PeerId(u32::from(random.one_in(8)));
            let called = receiver.handle_short(peer, first, parts, &vec![byte; len]);
            let end = first.saturating_add(parts);
            let range = first.min(count as u64) as usize..end.min(count as u64) as usize;
            let is_right = peer == HERE
                && end <= count as u64
                && len == parts as usize * bytes
                && !is_here[range.clone()].contains(&true);
            assert_eq!(called.is_ok(), is_right, "seed {seed}: {first} {parts} {len}");
            if is_right {
                is_here[range.clone()].fill(true);
                expected[range.start * bytes..range.end * bytes].fill(byte);
                taken += 1;
            }
            refused += u32::from(!is_right);
            assert_eq!(into.to_vec(), expected);
        }
        for beside in [0, BESIDE + into.len()] {
            assert_eq!(memory.slice(beside, BESIDE).to_vec(), [0; BESIDE]);
        }
        let is_whole = progress.test(|worker| receiver.poll(worker)).is_some();
        assert_eq!(is_whole, !is_here.contains(&false));
        progress.submit(|worker| receiver.end(worker));
        drop(sender);
    }
    assert!(testing::is_seed_given() || (taken > 300 && refused > 1000), "{taken} {refused}");
}

fn number(random: &mut Random, count: usize) -> u64 {
    if random.one_in(6) { random.pick(&EDGES) } else { random.below(count + 1) as u64 }
}

/// Makes a process of its own.
fn process() -> Arc<Progress> {
    let rail = Box::new(LoopbackRail::new(HERE).expect("a rail to oneself"));
    let worker =
        Worker::new(Engine::new(Config::new(2)), HERE, 2, vec![rail], Box::new(OwnAddress));
    let progress = Progress::new(worker.silenced(), Policy::for_node(1, 2)).expect("descriptors");
    progress.end_threads();
    progress
}

struct OwnAddress;

impl Directory for OwnAddress {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("self".into(), peer.0.to_le_bytes().to_vec())])
    }
}

const HERE: PeerId = PeerId(0);
const BESIDE: usize = 64;
/// Numbers that provoke arithmetic errors.
const EDGES: [u64; 6] = [1 << 31, u32::MAX as u64, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
