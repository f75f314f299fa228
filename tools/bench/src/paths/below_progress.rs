//! The path through engine and progress.

use std::sync::Arc;

use engine::{Config, Engine, SendMode};
use progress::{Directory, Policy, Progress, Worker};
use rail::Rail;
use wire::PeerId;

use super::message::{MessagePath, Messages, outcome, strategy};

/// A rail below the engine and its progress, called as the MPI layer calls them.
pub struct RailBelowProgress {
    progress: Arc<Progress>,
    messages: Messages,
}

impl RailBelowProgress {
    /// Makes the process; its link opens when it is first used.
    pub fn open(
        rail: Box<dyn Rail>,
        rank: u32,
        cores: usize,
        address: Vec<u8>,
    ) -> Result<Self, String> {
        let progress = open_progress(rail, rank, cores, address)?;
        Ok(Self { progress, messages: Messages::of(rank) })
    }
}

/// Makes the progress of a process with one rail; the link opens when it is first used.
pub fn open_progress(
    rail: Box<dyn Rail>,
    rank: u32,
    cores: usize,
    address: Vec<u8>,
) -> Result<Arc<Progress>, String> {
    let directory = Box::new(AddressStore { rail: rail.name(), address });
    let engine = Engine::new(Config { strategy: strategy()?, ..Config::new(2) });
    let worker = Worker::new(engine, PeerId(rank), 2, vec![rail], directory);
    Progress::new(worker, Policy::for_node(2, cores)).map_err(|error| error.to_string())
}

impl MessagePath for RailBelowProgress {
    fn prepare(&mut self, size: usize) {
        self.messages.prepare(size);
    }

    fn set_final(&mut self, is_final: bool) {
        self.messages.set_final(is_final);
    }

    fn is_final(&self) -> bool {
        self.messages.is_final()
    }

    fn is_echo(&self) -> bool {
        self.messages.is_echo()
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        let Self { progress, messages } = self;
        let Messages { peer, envelope, .. } = *messages;
        let data = messages.data(returns);
        if progress.send_short(peer, envelope, data) {
            return Ok(());
        }
        let sent = progress.submit_and_wait(
            |worker| worker.engine.submit_send(peer, envelope, data, SendMode::Standard),
            |worker, &op| worker.engine.take(op),
        );
        outcome(sent.outcome)
    }

    fn receive(&mut self) -> Result<(), String> {
        let Messages { peer, selector, ref into, .. } = self.messages;
        let received = self.progress.submit_and_wait(
            |worker| worker.engine.submit_receive(Some(peer), selector, into),
            |worker, &op| worker.engine.take(op),
        );
        outcome(received.outcome)
    }
}

/// Store that knows only the address of the other process.
struct AddressStore {
    rail: &'static str,
    address: Vec<u8>,
}

impl Directory for AddressStore {
    fn addresses(&mut self, _peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![(self.rail.into(), self.address.clone())])
    }
}
