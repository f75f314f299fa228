//! Rails of different kinds, behind walls that rise in mid-run: whichever still leads to the peer takes over, and every
//! byte arrives once and in order.

mod traffic;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use driver::{Event, Fault, Post, Rail, RailError, SimNetwork, SimRail};
use engine::{Config, Engine};
use memory::Region;
use progress::{Core, Directory};
use traffic::{Exchange, Random};
use wire::{Capabilities, Frame, GateId, RemoteRegion};

#[test]
fn the_rail_that_leads_there_takes_over() {
    let seeds = std::env::var("CANELE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in seeds.map_or(1..=12, |seed| seed..=seed) {
        println!("seed {seed}");
        let mut job = Job::new(seed);
        job.exchange();
        let mut leading = job.agreed().expect("a link has opened");
        for _ in 0..ROUNDS {
            let is_plain_cut = job.random.below(3) == 0;
            job.walls.iter().enumerate().for_each(|(at, wall)| {
                wall.store(is_plain_cut || at == leading, Ordering::Relaxed);
            });
            job.begin();
            if is_plain_cut {
                let steps = job.random.below(3000);
                (0..steps).for_each(|_| job.step());
                job.walls.iter().for_each(|wall| wall.store(false, Ordering::Relaxed));
            } else {
                // Where it led nothing passes, and both know what does.
                job.run(|job| job.agreed() == Some(1 - leading));
            }
            job.finish();
            leading = job.agreed().unwrap_or(leading);
        }
        job.exchange();
    }
}

/// Two processes of a job, what is between them, and what they have begun.
struct Job {
    cores: [Core; 2],
    networks: [SimNetwork; 2],
    walls: [Arc<AtomicBool>; 2],
    random: Random,
    begun: Vec<Exchange>,
    number: usize,
    limit: Instant,
}

impl Job {
    fn new(seed: u64) -> Self {
        let networks = [0, 1].map(|number| SimNetwork::new(2 * seed + number));
        let walls = [0; 2].map(|_| Arc::new(AtomicBool::new(false)));
        let mut random = Random(seed);
        let cores = [0, 1].map(|rank| {
            let rail = |at: usize| Walled {
                name: NAMES[at],
                rail: networks[at].rail(GateId(rank)),
                peer: GateId(1 - rank),
                wall: Arc::clone(&walls[at]),
                is_open: false,
                is_asked: false,
                notices_in: None,
                random: Random(1 + random.below(1 << 30) as u64),
            };
            let rails = [0, 1].map(rail).map(|rail| Box::new(rail) as Box<dyn Rail>);
            let config = Config { detour_ns: 3_000_000, ..Config::new(2) };
            Core::new(Engine::new(config), GateId(rank), 2, rails.into(), Box::new(Both))
        });
        let limit = Instant::now() + PATIENCE;
        Self { cores, networks, walls, random, begun: Vec::new(), number: 0, limit }
    }

    /// Which rail leads first, where both ends say the same.
    fn agreed(&self) -> Option<usize> {
        let [one, other] = self.names();
        one.filter(|_| one == other).and_then(|name| NAMES.iter().position(|own| *own == name))
    }

    fn names(&self) -> [Option<&'static str>; 2] {
        [0, 1].map(|rank| self.cores[rank].rail_name(GateId(1 - rank as u32)))
    }

    /// Begins to exchange some messages of any length.
    fn begin(&mut self) {
        for _ in 0..1 + self.random.below(12) {
            // The same tag for all: their order shows.
            self.begun.push(Exchange::begin(&mut self.cores, &mut self.random, self.number, 0));
            self.number += 1;
            (0..self.random.below(30)).for_each(|_| self.step());
        }
    }

    /// Runs until all that was begun has arrived.
    fn finish(&mut self) {
        for mut exchange in std::mem::take(&mut self.begun) {
            self.run(|job| exchange.has_ended(&mut job.cores));
            exchange.check();
        }
    }

    fn exchange(&mut self) {
        self.begin();
        self.finish();
    }

    fn run(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        while !is_done(self) {
            self.step();
            assert!(Instant::now() < self.limit, "{:?} do not get on", self.names());
        }
    }

    fn step(&mut self) {
        self.networks.iter().for_each(|network| _ = network.step());
        for core in &mut self.cores {
            core.advance();
            core.flush();
        }
    }
}

/// A rail with a wall, which swallows everything without a word. What was open behind it is found lost after a while,
/// by each end in its time, and what is asked for meanwhile when the wall is gone.
struct Walled {
    name: &'static str,
    rail: SimRail,
    peer: GateId,
    wall: Arc<AtomicBool>,
    is_open: bool,
    is_asked: bool,
    /// In how many polls the loss is found.
    notices_in: Option<usize>,
    random: Random,
}

impl Walled {
    fn is_walled(&self) -> bool {
        self.wall.load(Ordering::Relaxed)
    }
}

impl Rail for Walled {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> Vec<u8> {
        self.rail.address()
    }

    fn connect(&mut self, peer: GateId, address: &[u8]) -> Result<(), RailError> {
        self.is_asked = self.is_walled();
        if self.is_asked { Ok(()) } else { self.rail.connect(peer, address) }
    }

    fn disconnect(&mut self, peer: GateId) {
        (self.is_open, self.is_asked, self.notices_in) = (false, false, None);
        self.rail.disconnect(peer);
    }

    fn post(&mut self, peer: GateId, frame: &Frame) -> Post {
        if self.notices_in.is_some() { Post::Done } else { self.rail.post(peer, frame) }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        if self.is_walled() && self.is_open && self.notices_in.is_none() {
            self.notices_in = Some(self.random.below(400));
        }
        let peer = self.peer;
        if let Some(polls) = &mut self.notices_in {
            self.rail.poll(&mut |_| {});
            if *polls > 0 {
                *polls -= 1;
                return false;
            }
            self.disconnect(peer);
            let fault = Fault::Lost("nobody answers".into());
            sink(Event::Down { peer, fault });
            return true;
        }
        if self.is_walled() {
            // A link that is being opened is not.
            let mut was_up = false;
            self.rail.poll(&mut |event| was_up |= matches!(event, Event::Up { .. }));
            self.is_asked |= was_up;
            if was_up {
                self.rail.disconnect(peer);
            }
            return false;
        }
        if std::mem::take(&mut self.is_asked) {
            let address = peer.0.to_le_bytes();
            self.rail.connect(peer, &address).expect("an address of the network");
        }
        let is_open = &mut self.is_open;
        self.rail.poll(&mut |event| match event {
            Event::Up { peer, capabilities } => {
                *is_open = true;
                let capabilities = Capabilities { replay: true, reopens: true, ..capabilities };
                sink(Event::Up { peer, capabilities });
            }
            Event::Down { peer, fault } => {
                *is_open = false;
                sink(Event::Down { peer, fault });
            }
            other => sink(other),
        })
    }

    fn pull(
        &mut self,
        peer: GateId,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        self.rail.pull(peer, remote, offset, local)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rail.descriptors()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.rail.prepare_sleep()
    }

    fn finish_sleep(&mut self) {
        self.rail.finish_sleep();
    }

    fn is_flushed(&self) -> bool {
        self.rail.is_flushed()
    }
}

struct Both;

impl Directory for Both {
    fn addresses(&mut self, peer: GateId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(NAMES.map(|name| (name.into(), peer.0.to_le_bytes().into())).into())
    }
}

/// The rails, the preferred first.
const NAMES: [&str; 2] = ["tcp", "quic"];

/// How often a wall rises.
const ROUNDS: usize = 12;

/// More than all takes.
const PATIENCE: Duration = Duration::from_secs(60);
