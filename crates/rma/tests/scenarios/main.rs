//! Random programs of several ranks in virtual time, over links that lose frames, against a sequential reference.
//!
//! Each rank is the whole path from the window down to a simulated rail, and runs a random program. The seed decides the
//! programs, the links, who runs when, and what is lost.

mod hostile;
mod member;
mod model;
mod stage;
mod world;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use engine::{Config, Engine};
use member::Member;
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{LoopbackRail, Rail, SimLoss, SimNetwork, SimPath};
use rma::{NodeMemory, Served, Window, WindowMemory};
use stage::{Cuts, Stage};
use testing::{Random, seeds};
use wire::{Capabilities, PeerId};
use world::World;

#[test]
fn operations_happen_once_and_in_order_over_sound_links() {
    let mut operations = 0;
    for seed in seeds(120) {
        operations += Scenario::new(seed, Links::Sound).run().operations;
    }
    assert!(testing::is_seed_given() || operations > 1000, "{operations} operations");
}

#[test]
fn operations_happen_once_and_in_order_though_links_reopen() {
    let mut cuts = 0;
    for seed in seeds(120) {
        cuts += Scenario::new(seed, Links::Reopened).run().cuts;
    }
    assert!(testing::is_seed_given() || cuts > 100, "{cuts} cuts");
}

#[test]
fn operations_happen_once_and_in_order_though_another_link_takes_over() {
    let mut cuts = 0;
    for seed in seeds(120) {
        cuts += Scenario::new(seed, Links::Two).run().cuts;
    }
    assert!(testing::is_seed_given() || cuts > 50, "{cuts} cuts");
}

#[test]
fn a_rank_that_ends_fails_its_operations_and_no_others() {
    let (mut failures, mut refused) = (0, 0);
    for seed in seeds(100) {
        let scenario = Scenario { has_victim: true, ..Scenario::new(seed, Links::Sound) };
        let result = scenario.run();
        (failures, refused) = (failures + result.operations, refused + result.refused);
    }
    assert!(testing::is_seed_given() || failures > 50, "{failures} ranks have noticed");
    assert!(testing::is_seed_given() || refused > 20, "{refused} locks were refused");
}

/// Links between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    /// One, without losses or with late frames.
    Sound,
    /// One that is cut and opens again.
    Reopened,
    /// Two, of which one is lost.
    Two,
}

/// Memory of the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavor {
    Own,
    /// All but the last rank share memory.
    Node,
    /// Attached in pieces.
    Dynamic,
}

struct Scenario {
    seed: u64,
    random: Random,
    size: usize,
    links: Links,
    flavor: Flavor,
    /// True if a rank ends without a word.
    has_victim: bool,
    /// True if only rank 0 submits operations.
    is_of_one: bool,
}

/// Result of a scenario.
struct ScenarioResult {
    operations: u64,
    /// Number of locks that were refused because of their holder's end.
    refused: u64,
    /// Number of links that were cut.
    cuts: u64,
    /// Frames that rank 0 has sent, and the length of its peers' windows.
    frames: Vec<Vec<u8>>,
    window_len: usize,
}

impl Scenario {
    fn new(seed: u64, links: Links) -> Self {
        let mut random = Random::new(!seed);
        let size = 2 + random.below(3);
        let flavor = random.pick(&[Flavor::Own, Flavor::Own, Flavor::Node, Flavor::Dynamic]);
        Self { seed, random, size, links, flavor, has_victim: false, is_of_one: false }
    }

    /// Runs the programs of all ranks.
    fn run(mut self) -> ScenarioResult {
        let stage = self.stage();
        let processes: Vec<_> =
            (0..self.size).map(|rank| process(&stage, rank, self.size)).collect();
        let zone_len = if self.random.one_in(8) { 60_000 } else { 2_000 };
        let window_len = world::window_len(self.size, zone_len);
        let memories = self.memories(window_len);
        let windows = self.windows(&processes, &memories);
        let regions: Vec<_> = memories.into_iter().map(|(region, _)| region).collect();
        let bases = regions.iter().map(|region| self.base(region)).collect();
        let world = World::new(&mut self.random, &stage, regions, bases, zone_len);
        let (world, seed) = (&world, self.seed);
        let victim = self.has_victim.then(|| self.random.below(self.size));
        thread::scope(|scope| {
            for (rank, (window, progress)) in windows.iter().zip(&processes).enumerate() {
                let member = Member::new(rank, world, progress, window, seed);
                let member = if self.is_of_one && rank > 0 { member.idle() } else { member };
                scope.spawn(move || {
                    world.stage.run(rank, || match victim {
                        Some(victim) => member.run_beside(victim),
                        None => member.run(),
                    });
                });
            }
        });
        if victim.is_none() {
            world.check();
        }
        let (operations, refused, cuts) = (world.operations(), world.refused(), stage.cuts_made());
        ScenarioResult { operations, refused, cuts, frames: stage.frames(), window_len }
    }

    fn stage(&mut self) -> Arc<Stage> {
        let random = &mut self.random;
        let count = if self.links == Links::Two { 2 } else { 1 };
        let replay = self.links != Links::Sound;
        // What one link loses fits into the frames of the other, and the longest call into a frame.
        let frame_max = random.pick(&[17 << 10, 64 << 10]);
        let networks = (0..count).map(|_| {
            let network = SimNetwork::new(random.next());
            let capabilities = Capabilities {
                frame_max,
                inline_max: random.pick(&[256, 4096]),
                eager_max: random.pick(&[1024, 3000]),
                aggregate_max: frame_max,
                piece_min: 1024,
                piece_max: frame_max,
                replay,
                reopens: self.links == Links::Reopened,
                ..SimPath::default().capabilities
            };
            let loss = match self.links {
                Links::Sound if random.one_in(2) => {
                    SimLoss::Delays { per_million: 50_000, by: Duration::from_millis(1) }
                }
                _ => SimLoss::Never,
            };
            let bandwidth_bytes_per_s =
                random.pick(&[None, Some(100_000_000), Some(10_000_000_000)]);
            let latency = Duration::from_micros(random.pick(&[1, 10, 1000]));
            let depth = 1 + random.below(4);
            let window_bytes = random.pick(&[20_000, 4 << 20]);
            let path = SimPath {
                latency,
                bandwidth_bytes_per_s,
                depth,
                window_bytes,
                loss,
                capabilities,
                ..SimPath::default()
            };
            network.set_usual_path(path);
            network
        });
        let networks = networks.collect();
        let cuts = match self.links {
            Links::Sound => Cuts::None,
            Links::Reopened => Cuts::Any(random.pick(&[20, 100])),
            Links::Two => Cuts::OneEach(random.pick(&[20, 200])),
        };
        Stage::new(Random::new(random.next()), networks, cuts, self.size)
    }

    /// Memory of each rank, and its part of the window.
    fn memories(&mut self, len: usize) -> Vec<(Region, WindowMemory)> {
        let neighbours = self.size - 1;
        let node = || NodeMemory::create(&vec![len as u64; neighbours], true).expect("memory").0;
        let node = (self.flavor == Flavor::Node).then(node);
        let memory = |rank| match (&node, self.flavor) {
            (Some(node), _) if rank < neighbours => {
                let ranks = (0..neighbours as u32).collect();
                (node.part(rank), WindowMemory::Node(node.clone(), ranks))
            }
            (_, Flavor::Dynamic) => (Region::owned(len), WindowMemory::Dynamic),
            _ => {
                let own = Region::owned(len);
                (own.clone(), WindowMemory::Own(own))
            }
        };
        (0..self.size).map(memory).collect()
    }

    fn windows(
        &mut self,
        processes: &[Arc<Progress>],
        memories: &[(Region, WindowMemory)],
    ) -> Vec<Window> {
        let exposed =
            processes.iter().zip(memories).enumerate().map(|(rank, (progress, (_, memory)))| {
                let served = Served::new(progress);
                Window::expose(progress, &served, rank as u32, memory.clone(), 1)
            });
        let (mut windows, cards): (Vec<_>, Vec<_>) = exposed.unzip();
        for (window, (region, _)) in windows.iter_mut().zip(memories) {
            window.open((0..self.size as u32).map(PeerId).collect(), &cards);
            let mut at = 0;
            while self.flavor == Flavor::Dynamic && at < region.len() {
                let len = (1 + self.random.below(region.len())).min(region.len() - at);
                window.attach(region.slice(at, len)).expect("pieces that do not overlap");
                at += len;
            }
        }
        windows
    }

    /// Displacement of the first byte of a window.
    fn base(&self, region: &Region) -> i64 {
        let address = region.as_span().map_or(0, |span| span.address as i64);
        if self.flavor == Flavor::Dynamic { address } else { 0 }
    }
}

/// Makes a process on the stage.
fn process(stage: &Arc<Stage>, rank: usize, size: usize) -> Arc<Progress> {
    let id = PeerId(rank as u32);
    let own: Box<dyn Rail> = Box::new(LoopbackRail::new(id).expect("a rail to oneself"));
    let rails = [own].into_iter().chain(stage.rails(rank)).collect();
    let worker =
        Worker::new(Engine::new(Config::new(size)), id, size, rails, Box::new(Addresses(id)));
    let progress =
        Progress::new(worker.silenced(), Policy::for_node(size, size)).expect("descriptors");
    // The ranks take turns, and no other thread does.
    progress.end_threads();
    progress
}

struct Addresses(PeerId);

impl Directory for Addresses {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        let own = ("self".to_owned(), peer.0.to_le_bytes().into());
        let own = (peer == self.0).then_some(own);
        Ok(own.map_or_else(|| Stage::addresses(peer), |own| vec![own]))
    }
}
