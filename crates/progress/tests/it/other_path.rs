//! The next rail is tried if a rail begins to open a link and fails.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use engine::{Config, Engine, Envelope, Outcome, Selector, SendMode};
use memory::Region;
use progress::{Directory, Worker};
use rail::{Event, Fault, Rail, RailError, SimNetwork};
use wire::PeerId;

use crate::unlinked::UnlinkedRail;

#[test]
fn next_rail_carries_messages_if_the_first_cannot() {
    let network = SimNetwork::new(0);
    let refused = Refused::default();
    let [mut sender, mut receiver] = [0, 1].map(|rank| {
        let rail = Box::new(network.rail(PeerId(rank)));
        let rails: Vec<Box<dyn Rail>> =
            vec![Box::new(Refusing::new("one")), Box::new(Refusing::new("two")), rail];
        worker(PeerId(rank), rails, &refused)
    });
    let into = Region::owned(5);
    let receive = receiver.engine.submit_receive(Some(PeerId(0)), SELECTOR, &into);
    let data = Region::from_box(Box::new(*b"hello"));
    let send = sender.engine.submit_send(PeerId(1), ENVELOPE, &data, SendMode::Synchronous);
    for worker in [&mut sender, &mut receiver] {
        worker.flush();
    }
    for _ in 0..1000 {
        network.step();
        sender.advance();
        receiver.advance();
    }
    assert_eq!(into.to_vec(), b"hello");
    assert_eq!(sender.engine.take(send).map(|sent| sent.outcome), Some(Outcome::Ok));
    assert!(receiver.engine.take(receive).is_some());
    assert_eq!(sender.rail_name(PeerId(1)), Some("sim"));
    assert_eq!(sender.take_notices(), [""; 0], "a peer reached by another rail is no fault");
    let refused = refused.lock().unwrap();
    assert_eq!(*refused, [(PeerId(1), "one".to_owned()), (PeerId(1), "two".to_owned())]);
}

#[test]
fn all_reasons_are_reported_if_no_rail_is_left() {
    let rails: Vec<Box<dyn Rail>> =
        vec![Box::new(Refusing::new("one")), Box::new(Refusing::new("two"))];
    let mut sender = worker(PeerId(0), rails, &Refused::default());
    let data = Region::from_box(Box::new(*b"hello"));
    let send = sender.engine.submit_send(PeerId(1), ENVELOPE, &data, SendMode::Synchronous);
    sender.flush();
    for _ in 0..10 {
        sender.advance();
    }
    let outcome = sender.engine.take(send).map(|sent| sent.outcome);
    assert_eq!(outcome, Some(Outcome::PeerFailed));
    let told = sender.take_notices();
    assert_eq!(told, ["rank 1 cannot be reached: one: rank 1 is out; two: rank 1 is out"]);
}

/// A rail that accepts a connection request and refuses it later.
struct Refusing {
    rail: UnlinkedRail,
    name: &'static str,
    asked: VecDeque<PeerId>,
}

impl Refusing {
    fn new(name: &'static str) -> Self {
        Self { rail: UnlinkedRail, name, asked: VecDeque::new() }
    }
}

impl Rail for Refusing {
    passes_on!(rail: address, disconnect, post, descriptors, finish_sleep, is_flushed);

    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&mut self, peer: PeerId, _: &[u8]) -> Result<(), RailError> {
        self.asked.push_back(peer);
        Ok(())
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(peer) = self.asked.pop_front() else { return false };
        let fault = Fault::Unreachable(format!("rank {} is out", peer.0));
        sink(Event::Down { peer, fault });
        true
    }

    fn prepare_sleep(&mut self) -> bool {
        self.asked.is_empty()
    }
}

fn worker(rank: PeerId, rails: Vec<Box<dyn Rail>>, refused: &Refused) -> Worker {
    let ranks = Box::new(NotingDirectory(Arc::clone(refused)));
    Worker::new(Engine::new(Config::new(2)), rank, 2, rails, ranks)
}

/// Peers that were not reached, each with the rail that failed.
type Refused = Arc<Mutex<Vec<(PeerId, String)>>>;

/// A directory with addresses for the refusing rails first, then for the simulated one.
struct NotingDirectory(Refused);

impl Directory for NotingDirectory {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        let rails = ["one", "two", "sim"];
        Ok(rails.map(|rail| (rail.into(), peer.0.to_le_bytes().into())).into())
    }

    fn note_unreachable(&mut self, peer: PeerId, rail: &str) {
        self.0.lock().unwrap().push((peer, rail.to_owned()));
    }
}

const SELECTOR: Selector = Selector { context: 0, source: Some(0), tag: Some(0) };
const ENVELOPE: Envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
