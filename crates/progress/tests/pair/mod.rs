//! Several ranks of a job within one process, over the loopback interface.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::time::Duration;

use engine::{Config, Engine};
use progress::{Directory, Policy, Progress, Worker};
use rail::Rail;
use rail_tcp::{TcpConfig, TcpRail};
use wire::PeerId;

/// Returns two ranks in one process, with a TCP link over the loopback interface.
pub fn pair() -> [Arc<Progress>; 2] {
    group(|rail| Box::new(rail))
}

/// Returns several ranks with a link between any two, each rail made from a TCP rail by `over`.
pub fn group<const SIZE: usize>(over: fn(TcpRail) -> Box<dyn Rail>) -> [Arc<Progress>; SIZE] {
    cores(over).map(|worker| Progress::new(worker, policy(SIZE)).expect("descriptors"))
}

/// Returns the workers of such a group.
pub fn cores<const SIZE: usize>(over: fn(TcpRail) -> Box<dyn Rail>) -> [Worker; SIZE] {
    let rails: [TcpRail; SIZE] = std::array::from_fn(|rank| {
        let config = TcpConfig {
            interface: Some("127.0.0.1".into()),
            connect_timeout: PATIENCE,
            ..TcpConfig::new(PeerId(rank as u32), 7, [9; 32])
        };
        TcpRail::new(config).expect("a rail over the loopback")
    });
    let addresses = rails.each_ref().map(Rail::address);
    let mut ranks = 0..;
    rails.map(|rail| {
        let rank = PeerId(ranks.next().unwrap_or(0));
        let engine = Engine::new(Config::new(SIZE));
        let directory = Box::new(All(addresses.to_vec()));
        Worker::new(engine, rank, SIZE, vec![over(rail)], directory)
    })
}

/// Policy for `size` processes on a node with one core.
pub fn policy(size: usize) -> Policy {
    Policy::for_node(size, 1)
}

struct All(Vec<Vec<u8>>);

impl Directory for All {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("tcp".into(), self.0[peer.0 as usize].clone())])
    }
}

/// Upper limit for one step.
pub const PATIENCE: Duration = Duration::from_secs(20);
