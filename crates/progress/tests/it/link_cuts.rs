//! TCP links that are cut under traffic open again, and every byte arrives once and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{Completion, Config, Engine, Envelope, Outcome, SendMode};
use memory::Region;
use progress::{Directory, Worker};
use rail::{Event, Fault, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use testing::Random;
use wire::{Capabilities, PeerId};

use crate::traffic::Exchange;

#[test]
fn messages_survive_lost_connections() {
    for seed in 1..=3 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (mut cores, scissors) = pair();
        let mut ends = Vec::new();
        let mut cuts = 0;
        for number in 0..MESSAGES {
            ends.push(Exchange::begin(&mut cores, &mut random, number, number as i32));
            for _ in 0..random.below(60) {
                cores.iter_mut().for_each(|worker| {
                    worker.advance();
                    worker.flush();
                });
            }
            if random.below(8) == 0 {
                scissors[random.below(2)].store(true, Ordering::Relaxed);
                cuts += 1;
            }
        }
        let limit = Instant::now() + PATIENCE;
        for (number, mut end) in ends.into_iter().enumerate() {
            while !end.has_ended(&mut cores) {
                for worker in &mut cores {
                    worker.advance();
                    worker.flush();
                }
                assert!(Instant::now() < limit, "message {number} does not arrive");
            }
            end.check();
        }
        let resent: u64 = cores.iter().map(|worker| worker.engine.counters().resent).sum();
        println!("{cuts} cuts, {resent} frames sent again");
    }
}

#[test]
fn dead_process_is_not_waited_for() {
    let (cores, scissors) = pair();
    let [mut worker, mut other] = cores;
    let (to, data) = (PeerId(1), Region::owned(8));
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let first = worker.engine.submit_send(to, envelope, &data, SendMode::Standard);
    let limit = Instant::now() + PATIENCE;
    while worker.engine.take(first).is_none() {
        worker.advance();
        worker.flush();
        other.advance();
        other.flush();
        assert!(Instant::now() < limit, "no link");
    }
    let send = worker.engine.submit_send(to, envelope, &data, SendMode::Synchronous);
    // Its connection closes without a goodbye, and its port refuses connections.
    scissors[1].store(true, Ordering::Relaxed);
    other.advance();
    drop(other);
    let outcome = loop {
        worker.advance();
        worker.flush();
        if let Some(Completion { outcome, .. }) = worker.engine.take(send) {
            break outcome;
        }
        assert!(
            Instant::now() < limit,
            "the send fails long before the patience with lost links is over"
        );
    };
    assert_eq!(outcome, Outcome::PeerFailed);
}

/// Two ranks within one process, over the loopback, and the flags that cut their links.
fn pair() -> ([Worker; 2], [Arc<AtomicBool>; 2]) {
    let scissors = [0; 2].map(|_| Arc::new(AtomicBool::new(false)));
    let rails = [0, 1].map(|rank| {
        let config = TcpConfig {
            interface: Some("127.0.0.1".into()),
            connect_timeout: PATIENCE,
            ..TcpConfig::new(PeerId(rank), 7, [9; 32])
        };
        let peer = PeerId(1 - rank);
        let rail = TcpRail::new(config).expect("a rail over the loopback");
        Cut { rail, peer, is_open: false, scissors: Arc::clone(&scissors[rank as usize]) }
    });
    let addresses = rails.each_ref().map(|cut| cut.rail.address());
    let mut ranks = 0..;
    let cores = rails.map(|rail| {
        let rank = PeerId(ranks.next().unwrap_or(0));
        let directory = Box::new(Both(addresses.clone()));
        Worker::new(Engine::new(Config::new(2)), rank, 2, vec![Box::new(rail)], directory)
    });
    (cores, scissors)
}

/// A rail whose link is cut on demand, and which replays frames although its peer is near.
struct Cut {
    rail: TcpRail,
    peer: PeerId,
    is_open: bool,
    scissors: Arc<AtomicBool>,
}

impl Rail for Cut {
    passes_on!(rail: name, address, connect, post, remote_reader, descriptors, prepare_sleep, finish_sleep, is_flushed);

    fn disconnect(&mut self, peer: PeerId) {
        self.is_open = false;
        self.rail.disconnect(peer);
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Self { rail, peer, is_open, scissors } = self;
        if *is_open && scissors.swap(false, Ordering::Relaxed) {
            *is_open = false;
            rail.disconnect(*peer);
            sink(Event::Down { peer: *peer, fault: Fault::Lost("it was cut".into()) });
            return true;
        }
        rail.poll(&mut |event| match event {
            Event::Up { peer, capabilities } => {
                *is_open = true;
                let capabilities = Capabilities { replay: true, ..capabilities };
                sink(Event::Up { peer, capabilities });
            }
            Event::Down { peer, fault } => {
                *is_open = false;
                sink(Event::Down { peer, fault });
            }
            other => sink(other),
        })
    }
}

struct Both([Vec<u8>; 2]);

impl Directory for Both {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("tcp".into(), self.0[peer.0 as usize].clone())])
    }
}

const MESSAGES: usize = 150;

/// Upper limit for a whole test.
const PATIENCE: Duration = Duration::from_secs(40);
