//! Random partitioned messages between ranks in virtual time, over links that lose frames: each byte arrives once.
//!
//! Each rank is the whole path from a sender or receiver down to a simulated rail. The seed decides the messages, their
//! partitions, the links, who runs when, and what is lost.

#[path = "../../../rma/tests/scenarios/stage.rs"]
#[allow(dead_code, reason = "windows use more of the stage")]
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use engine::{Config, Engine};
use memory::Region;
use partitioned::{Channels, Misuse, PartitionedFault, Receiver, Route, Sender};
use progress::{Directory, Policy, Progress, Worker};
use rail::{LoopbackRail, Rail, SimLoss, SimNetwork, SimPath};
use stage::{Cuts, Stage};
use testing::{Random, seeds};
use wire::{Capabilities, PeerId};

#[test]
fn partitions_arrive_once_over_sound_links() {
    let mut early = 0;
    for seed in seeds(80) {
        early += Scenario::new(seed, SimLinks::Sound).run().early;
    }
    assert!(testing::is_seed_given() || early > 100, "{early} partitions were seen before the end");
}

#[test]
fn partitions_arrive_once_though_links_reopen() {
    let mut cuts = 0;
    for seed in seeds(80) {
        cuts += Scenario::new(seed, SimLinks::Reopened).run().cuts;
    }
    assert!(testing::is_seed_given() || cuts > 100, "{cuts} cuts");
}

#[test]
fn partitions_arrive_once_though_another_link_takes_over() {
    let mut cuts = 0;
    for seed in seeds(80) {
        cuts += Scenario::new(seed, SimLinks::Two).run().cuts;
    }
    assert!(testing::is_seed_given() || cuts > 50, "{cuts} cuts");
}

#[test]
fn a_rank_that_ends_fails_its_messages_and_no_others() {
    let mut failures = 0;
    for seed in seeds(80) {
        let scenario = Scenario { has_victim: true, ..Scenario::new(seed, SimLinks::Sound) };
        failures += scenario.run().failures;
    }
    assert!(testing::is_seed_given() || failures > 50, "{failures} messages have failed");
}

/// SimLinks between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimLinks {
    /// One, without losses or with late frames.
    Sound,
    /// One that is cut and opens again.
    Reopened,
    /// Two, of which one is lost.
    Two,
}

struct Scenario {
    random: Random,
    size: usize,
    links: SimLinks,
    /// True if a rank ends without a word.
    has_victim: bool,
}

/// Results of a scenario.
struct Results {
    /// Partitions that were found before their message had ended.
    early: u64,
    failures: u64,
    cuts: u64,
}

/// A partitioned message.
#[derive(Clone, Copy, Debug)]
struct Plan {
    number: usize,
    from: usize,
    to: usize,
    tag: i32,
    sent: u32,
    received: u32,
    sent_bytes: usize,
    received_bytes: usize,
}

/// State that all ranks share.
struct ScenarioState {
    stage: Arc<Stage>,
    plans: Vec<Plan>,
    runs: u64,
    size: usize,
    ended: AtomicUsize,
    early: AtomicU64,
    failures: AtomicU64,
    victim: Option<usize>,
}

impl Scenario {
    fn new(seed: u64, links: SimLinks) -> Self {
        let mut random = Random::new(!seed);
        let size = 1 + random.below(3) + usize::from(links == SimLinks::Two);
        Self { random, size, links, has_victim: false }
    }

    fn run(mut self) -> Results {
        let stage = self.stage();
        let plans = (0..1 + self.random.below(6)).map(|number| self.plan(number)).collect();
        let victim = self.has_victim.then(|| self.random.below(self.size));
        let world = ScenarioState {
            stage: Arc::clone(&stage),
            plans,
            // After a failure the ranks would not agree on further runs.
            runs: if self.has_victim { 1 } else { 1 + self.random.below(3) as u64 },
            size: self.size,
            ended: AtomicUsize::new(0),
            early: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            victim,
        };
        let processes: Vec<_> =
            (0..self.size).map(|rank| process(&stage, rank, self.size)).collect();
        thread::scope(|scope| {
            for (rank, progress) in processes.iter().enumerate() {
                let (world, random) = (&world, Random::new(self.random.next()));
                let member = Member { rank, world, progress, random, sides: Vec::new() };
                scope.spawn(move || world.stage.run(rank, || member.run()));
            }
        });
        let [early, failures] =
            [&world.early, &world.failures].map(|count| count.load(Ordering::Relaxed));
        Results { early, failures, cuts: stage.cuts_made() }
    }

    fn plan(&mut self, number: usize) -> Plan {
        let random = &mut self.random;
        let unit = random.pick(&[0, 1, 3, 100, 1000, 5000, 9000]);
        let (one, other) = (1 + random.below(6), 1 + random.below(6));
        // The total is a multiple of both numbers.
        let (mut sent, mut sent_bytes) = (one as u32, other * unit);
        let (received, received_bytes) = (other as u32, one * unit);
        if random.one_in(8) {
            (sent, sent_bytes) = (random.pick(&[0, 300]), 0);
        }
        // The receiver may have room for more.
        let received = received + if random.one_in(4) { random.below(3) as u32 } else { 0 };
        let (from, to) = (random.below(self.size), random.below(self.size));
        let tag = random.below(2);
        Plan { number, from, to, tag, sent, received, sent_bytes, received_bytes }
    }

    fn stage(&mut self) -> Arc<Stage> {
        let random = &mut self.random;
        let count = if self.links == SimLinks::Two { 2 } else { 1 };
        let replay = self.links != SimLinks::Sound;
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
                reopens: self.links == SimLinks::Reopened,
                ..SimPath::default().capabilities
            };
            let loss = match self.links {
                SimLinks::Sound if random.one_in(2) => {
                    SimLoss::Delays { per_million: 50_000, by: Duration::from_millis(1) }
                }
                _ => SimLoss::Never,
            };
            network.set_usual_path(SimPath {
                latency: Duration::from_micros(random.pick(&[1, 10, 1000])),
                bandwidth_bytes_per_s: random.pick(&[None, Some(100_000_000)]),
                depth: 1 + random.below(4),
                window_bytes: random.pick(&[20_000, 4 << 20]),
                loss,
                capabilities,
                ..SimPath::default()
            });
            network
        });
        let networks = networks.collect();
        let cuts = match self.links {
            SimLinks::Sound => Cuts::None,
            SimLinks::Reopened => Cuts::Any(random.pick(&[10, 50])),
            SimLinks::Two => Cuts::OneEach(random.pick(&[10, 100])),
        };
        Stage::new(Random::new(random.next()), networks, cuts, self.size)
    }
}

/// Program of one rank.
struct Member<'a> {
    rank: usize,
    world: &'a ScenarioState,
    progress: &'a Arc<Progress>,
    random: Random,
    sides: Vec<Side>,
}

/// One side of a message.
enum Side {
    Sender { plan: Plan, sender: Arc<Sender>, data: Region, unmarked: Vec<u32> },
    Receiver { plan: Plan, receiver: Arc<Receiver>, into: Region },
}

impl Member<'_> {
    fn run(mut self) {
        self.open();
        for run in 0..self.world.runs {
            if self.run_once(run).is_err() {
                break;
            }
        }
        self.world.ended.fetch_add(1, Ordering::Relaxed);
        self.world.stage.tell_all();
        if self.world.victim == Some(self.rank) {
            return self.world.stage.kill(self.rank);
        }
        let (ended, size) = (&self.world.ended, self.world.size);
        self.progress.wait(|_| (ended.load(Ordering::Relaxed) == size).then_some(()));
    }

    /// Makes both sides of messages, in the order of their numbers.
    fn open(&mut self) {
        let channels = Channels::new(self.progress);
        for &plan in &self.world.plans {
            let route = |peer: usize| Route {
                peer: PeerId(peer as u32),
                context: 4,
                source: plan.from as u32,
                tag: plan.tag,
                note: 1,
            };
            if plan.from == self.rank {
                let data = Region::owned(plan.sent as usize * plan.sent_bytes);
                let sender = channels.send(route(plan.to), data.clone(), plan.sent);
                let sender = sender.expect("memory");
                assert_eq!(sender.mark([].into_iter()), Err(Misuse::Inactive));
                self.sides.push(Side::Sender { plan, sender, data, unmarked: Vec::new() });
            }
            self.maybe_pause();
            if plan.to == self.rank {
                let into = Region::owned(plan.received as usize * plan.received_bytes);
                let receiver = channels.receive(route(plan.from), into.clone(), plan.received);
                let receiver = receiver.expect("memory");
                assert!((0..plan.received).all(|at| receiver.has_arrived(at) == Ok(true)));
                self.sides.push(Side::Receiver { plan, receiver, into });
            }
        }
    }

    fn maybe_pause(&mut self) {
        if self.random.one_in(3) {
            self.world.stage.pause(self.rank);
        }
    }

    /// Runs all messages once; an error if one has failed.
    fn run_once(&mut self, run: u64) -> Result<(), PartitionedFault> {
        let mut order: Vec<_> = (0..self.sides.len()).collect();
        while !order.is_empty() {
            let at = order.swap_remove(self.random.below(order.len()));
            self.start(at, run);
            self.maybe_pause();
        }
        for _ in 0..4 * self.sides.len() {
            if self.world.victim == Some(self.rank) && self.random.one_in(8) {
                return Err(PartitionedFault::PeerFailed);
            }
            let at = self.random.below(self.sides.len());
            self.go_on(at, run, false);
            self.maybe_pause();
        }
        (0..self.sides.len()).for_each(|at| self.go_on(at, run, true));
        let mut order: Vec<_> = (0..self.sides.len()).collect();
        let mut result = Ok(());
        while !order.is_empty() {
            let at = order.swap_remove(self.random.below(order.len()));
            result = self.end(at, run).and(result);
        }
        result
    }

    fn start(&mut self, at: usize, run: u64) {
        match &mut self.sides[at] {
            Side::Sender { plan, sender, data, unmarked } => {
                unmarked.extend(0..plan.sent);
                sender.start();
                // The bytes are there before each partition is ready.
                data.write(0, &content(plan, run, data.len()));
                let result = self.progress.test(|worker| sender.poll(worker));
                assert!(plan.sent == 0 || result.is_none_or(|result| result.is_err()), "early");
            }
            Side::Receiver { receiver, into, .. } => {
                into.write(0, &vec![0xee; into.len()]);
                receiver.start();
            }
        }
    }

    /// Marks some partitions, or all; or asks for one.
    fn go_on(&mut self, at: usize, run: u64, all: bool) {
        let random = &mut self.random;
        match &mut self.sides[at] {
            Side::Sender { sender, unmarked, plan, .. } => {
                let some = if all { unmarked.len() } else { random.below(unmarked.len() + 1) };
                let first = random.below(unmarked.len() - some + 1);
                let marked: Vec<_> = unmarked.drain(first..first + some).collect();
                sender.mark(marked.iter().copied()).expect("partitions that are not ready");
                if let Some(&marked) = marked.first() {
                    let twice = sender.mark([marked].into_iter());
                    assert_eq!(twice, Err(Misuse::ReadyTwice(marked)));
                }
                let beyond = sender.mark([plan.sent].into_iter());
                assert_eq!(beyond, Err(Misuse::NoPartition(plan.sent)));
            }
            Side::Receiver { plan, receiver, into } => {
                let partition = random.below(plan.received as usize);
                if receiver.has_arrived(partition as u32) == Ok(true) {
                    check(plan, run, into, partition..partition + 1);
                    self.world.early.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits for a message, and checks it.
    fn end(&mut self, at: usize, run: u64) -> Result<(), PartitionedFault> {
        let (plan, result) = match &self.sides[at] {
            Side::Sender { plan, sender, data, .. } => {
                let result = self.progress.wait(|worker| sender.poll(worker));
                sender.end();
                // The memory may be reused.
                data.write(0, &vec![0xdd; data.len()]);
                (plan, result)
            }
            Side::Receiver { plan, receiver, into } => {
                let result = self.progress.wait(|worker| {
                    let result = receiver.poll(worker)?;
                    receiver.end(worker);
                    Some(result)
                });
                if let Ok(bytes) = result {
                    assert_eq!(bytes as usize, plan.sent as usize * plan.sent_bytes, "{plan:?}");
                    check(plan, run, into, 0..plan.received as usize);
                }
                (plan, result.map(drop))
            }
        };
        if result.is_err() {
            self.world.failures.fetch_add(1, Ordering::Relaxed);
            let ends = [plan.from, plan.to].map(Some);
            assert!(ends.contains(&self.world.victim), "{plan:?}: {result:?}");
        }
        result
    }
}

/// Checks partitions of a receiver that have arrived: what was sent, and nothing behind it.
fn check(plan: &Plan, run: u64, into: &Region, partitions: std::ops::Range<usize>) {
    let message = plan.sent as usize * plan.sent_bytes;
    let mut expected = content(plan, run, message.min(into.len()));
    expected.resize(into.len(), 0xee);
    let range = partitions.start * plan.received_bytes..partitions.end * plan.received_bytes;
    let found = into.slice(range.start, range.len()).to_vec();
    assert!(found == expected[range], "{plan:?} in run {run}: {partitions:?}");
}

fn content(plan: &Plan, run: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new((plan.number as u64) << 32 | run);
    (0..len).map(|_| random.next() as u8).collect()
}

/// Makes a process on the stage.
fn process(stage: &Arc<Stage>, rank: usize, size: usize) -> Arc<Progress> {
    let id = PeerId(rank as u32);
    let own: Box<dyn Rail> = Box::new(LoopbackRail::new(id).expect("a rail to oneself"));
    let rails = [own].into_iter().chain(stage.rails(rank)).collect();
    let worker =
        Worker::new(Engine::new(Config::new(size)), id, size, rails, Box::new(StageDirectory(id)));
    let progress =
        Progress::new(worker.silenced(), Policy::for_node(size, size)).expect("descriptors");
    // The ranks take turns, and no other thread does.
    progress.end_threads();
    progress
}

struct StageDirectory(PeerId);

impl Directory for StageDirectory {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        let own = ("self".to_owned(), peer.0.to_le_bytes().into());
        let own = (peer == self.0).then_some(own);
        Ok(own.map_or_else(|| Stage::addresses(peer), |own| vec![own]))
    }
}
