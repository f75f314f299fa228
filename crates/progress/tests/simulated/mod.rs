//! Two ranks of a job within one process, over the simulated network.

use std::sync::Arc;

use engine::{Config, Engine, Envelope, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{Rail, SimNetwork};
use wire::PeerId;

/// Sends 8 bytes from rank 0 to rank 1, and releases the operation.
pub fn send(progress: &Progress, tag: i32) {
    let data = Region::owned(8);
    progress.submit(|worker| {
        let op = worker.engine.submit_send(PeerId(1), envelope(tag), &data, SendMode::Standard);
        worker.engine.release(op);
    });
}

/// Envelope of a message from rank 0.
pub fn envelope(tag: i32) -> Envelope {
    Envelope { context: 0, source: 0, tag, is_urgent: false }
}

/// Selector of a message from rank 0.
pub fn selector(tag: i32) -> Selector {
    Selector { context: 0, source: Some(0), tag: Some(tag) }
}

/// Creates one of two ranks on a simulated network.
pub fn process(network: &SimNetwork, rank: u32) -> Arc<Progress> {
    let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(PeerId(rank)))];
    let worker =
        Worker::new(Engine::new(Config::new(2)), PeerId(rank), 2, rails, Box::new(RankDirectory));
    Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors")
}

/// On the simulated rail a rank is its own address.
struct RankDirectory;

impl Directory for RankDirectory {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }
}
