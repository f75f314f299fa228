//! Processes of a job within one: each with an engine of its own, over the loopback.

use std::sync::Arc;
use std::time::Duration;

use engine::{Config, Engine};
use mad::Node;
use progress::{Directory, Policy, Progress, Worker};
use rail::{LoopbackRail, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::PeerId;

/// A process, and its communication.
pub struct RankProcess {
    pub node: Node,
    pub progress: Arc<Progress>,
}

/// `size` processes; their communication lasts as long as the test's process does.
pub fn job(size: u32) -> Vec<RankProcess> {
    testing::end_together(PATIENCE);
    let rails: Vec<TcpRail> = (0..size).map(rail).collect();
    let addresses: Vec<Vec<u8>> = rails.iter().map(Rail::address).collect();
    let open = |(rail, rank)| {
        let peer = PeerId(rank);
        let engine = Engine::new(Config::new(size as usize));
        let own = LoopbackRail::new(peer).expect("an event");
        let mut addresses = addresses.clone();
        addresses[rank as usize] = own.address();
        let directory = Box::new(Loopback { rank, addresses });
        let rails: Vec<Box<dyn Rail>> = vec![Box::new(own), Box::new(rail)];
        let worker = Worker::new(engine, peer, size as usize, rails, directory);
        let progress = Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors");
        RankProcess { node: Node::new(Arc::clone(&progress), rank, size), progress }
    };
    rails.into_iter().zip(0..).map(open).collect()
}

fn rail(rank: u32) -> TcpRail {
    let config = TcpConfig {
        interface: Some("127.0.0.1".into()),
        connect_timeout: Duration::from_secs(20),
        ..TcpConfig::new(PeerId(rank), 7, [9; 32])
    };
    TcpRail::new(config).expect("a rail over the loopback")
}

struct Loopback {
    rank: u32,
    addresses: Vec<Vec<u8>>,
}

impl Directory for Loopback {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        let name = if peer.0 == self.rank { "self" } else { "tcp" };
        Ok(vec![(name.into(), self.addresses[peer.0 as usize].clone())])
    }
}

const PATIENCE: Duration = Duration::from_secs(120);
