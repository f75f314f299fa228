//! Several rails, each behind a wall that starts to drop or refuse traffic in mid-run.
//!
//! A rail that still reaches the peer takes over. The preferred rail leads again when it can. Every byte arrives once
//! and in order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use connect::Patience;
use cost::Cost;
use engine::{Config, Engine, Envelope, Outcome, SendMode};
use memory::Region;
use progress::{Directory, Worker};
use rail::{Event, Fault, Post, Rail, RailError, SimNetwork, SimRail};
use testing::Random;
use wire::{Capabilities, Frame, PeerId, RailId};

use crate::traffic::Exchange;

#[test]
fn reachable_rail_takes_over() {
    for seed in testing::seeds(12) {
        println!("seed {seed}");
        let mut job = TestJob::new(seed, PATIENCE);
        job.exchange();
        let mut leading = job.agreed().expect("a link has opened");
        for _ in 0..ROUNDS {
            let is_plain_cut = job.random.below(3) == 0;
            for at in (0..2).filter(|at| is_plain_cut || *at == leading) {
                let kind = [RoleKind::Swallows, RoleKind::Refuses][job.random.below(2)];
                job.walls[at].set(kind);
            }
            (0..2).filter(|at| !is_plain_cut && *at != leading).for_each(|at| job.fall(at));
            job.begin();
            if is_plain_cut {
                let steps = job.random.below(3000);
                (0..steps).for_each(|_| job.step());
                (0..2).for_each(|at| job.fall(at));
            } else {
                // Nothing passes on the rail that led, and both ends agree on the other.
                job.run(|job| job.agreed() == Some(1 - leading));
            }
            job.finish();
            leading = job.agreed().unwrap_or(leading);
        }
        job.exchange();
    }
}

#[test]
fn preferred_rail_leads_again_when_it_can() {
    for seed in testing::seeds(12) {
        println!("seed {seed}");
        let mut job = TestJob::new(seed, PATIENCE);
        job.exchange();
        for _ in 0..RETURNS {
            job.run(|job| job.agreed() == Some(0));
            let kind = [RoleKind::Swallows, RoleKind::Refuses][job.random.below(2)];
            job.walls[0].set(kind);
            job.begin();
            job.run(|job| job.agreed() == Some(1));
            job.finish();
            // Some tries of the preferred rail fail.
            for _ in 0..job.random.below(4) {
                job.exchange();
            }
            job.fall(0);
            while job.agreed() != Some(0) {
                job.exchange();
            }
        }
        job.exchange();
    }
}

#[test]
fn passing_link_opens_once_another_carries_long_messages() {
    let mut job = TestJob::new(7, PATIENCE);
    job.walls[0].set(RoleKind::Refuses);
    let exchange = |job: &mut TestJob, bytes: usize| {
        let mut exchange = Exchange::of(&mut job.cores, (job.number, 0), (0, bytes));
        job.run(|job| exchange.has_ended(&mut job.cores));
        exchange.check();
    };
    let asked = |job: &TestJob| job.passing.load(Ordering::Relaxed);
    for _ in 0..3 {
        exchange(&mut job, 8);
    }
    assert_eq!((asked(&job), job.agreed()), (0, Some(1)), "short messages use one link");
    for _ in 0..3 {
        exchange(&mut job, 400_000);
    }
    assert_eq!(asked(&job), 1, "once, by the sender");
    let carries = |worker: &Worker, rank: u32| worker.engine.carries(PeerId(1 - rank), RailId(1));
    job.run(|job| [0, 1].iter().all(|&rank| carries(&job.cores[rank], rank as u32)));
}

#[test]
fn peer_refused_on_every_rail_has_the_same_patience_as_a_silent_one() {
    let seed = 5;
    let mut job = TestJob::new(seed, Duration::from_millis(200));
    job.exchange();
    job.walls.iter().for_each(|wall| wall.set(RoleKind::Refuses));
    let data = Region::owned(8);
    let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
    let send = job.cores[0].engine.submit_send(PeerId(1), envelope, &data, SendMode::Synchronous);
    let mut outcome = None;
    job.run(|job| {
        outcome = outcome.or(job.cores[0].engine.take(send).map(|end| end.outcome));
        outcome.is_some()
    });
    assert_eq!(outcome, Some(Outcome::PeerFailed));
    let told = job.cores[0].take_notices();
    assert_eq!(told, ["link to rank 1 lost: no link has opened again in time"]);
    for wall in &job.walls {
        assert!(wall.refused.load(Ordering::Relaxed) >= 4, "each end asks again on each rail");
    }
}

#[test]
fn ended_process_is_not_waited_for() {
    let mut job = TestJob::new(6, PATIENCE);
    job.exchange();
    job.walls[0].set(RoleKind::Swallows);
    job.walls[1].set(RoleKind::Refuses);
    job.has_ended.store(true, Ordering::Relaxed);
    let mut told = [0, 1].map(|_| Vec::new());
    job.run(|job| {
        told.iter_mut()
            .zip(&mut job.cores)
            .for_each(|(told, worker)| told.extend(worker.take_notices()));
        told.iter().all(|told| !told.is_empty())
    });
    for (rank, told) in told.iter().enumerate() {
        assert_eq!(*told, [format!("link to rank {} lost: its process has ended", 1 - rank)]);
    }
}

/// Two processes of a job, their networks and walls, and the exchanges under way.
struct TestJob {
    cores: [Worker; 2],
    networks: [SimNetwork; 3],
    walls: [Arc<Wall>; 2],
    /// Number of requests for a link that passes others.
    passing: Arc<AtomicUsize>,
    /// True if the launcher has seen both processes end.
    has_ended: Arc<AtomicBool>,
    random: Random,
    begun: Vec<Exchange>,
    number: usize,
    limit: Instant,
}

impl TestJob {
    fn new(seed: u64, patience: Duration) -> Self {
        let networks = [0, 1, 2].map(|number| SimNetwork::new(3 * seed + number));
        let passing = Arc::<AtomicUsize>::default();
        let walls = [0; 2].map(|_| Arc::<Wall>::default());
        let has_ended = Arc::<AtomicBool>::default();
        let mut random = Random::new(1 + seed);
        let cores = [0, 1].map(|rank| {
            let rail = |at: usize| Walled {
                name: NAMES[at],
                rail: networks[at].rail(PeerId(rank)),
                peer: PeerId(1 - rank),
                wall: Arc::clone(&walls[WALLS[at]]),
                passing: (at == PASSING).then(|| Arc::clone(&passing)),
                is_open: false,
                is_asked: false,
                notices_in: None,
                refuses_in: None,
                random: Random::new(1 + random.below(1 << 30) as u64),
            };
            let rails = [0, 1, 2].map(rail).map(|rail| Box::new(rail) as Box<dyn Rail>);
            Worker::new(
                Engine::new(Config::new(2)),
                PeerId(rank),
                2,
                rails.into(),
                Box::new(Both(Arc::clone(&has_ended))),
            )
            .with_patience(Patience { limit: patience, detour: Duration::from_millis(3) })
        });
        let limit = Instant::now() + LIMIT;
        let (begun, number) = (Vec::new(), 0);
        Self { cores, networks, walls, passing, has_ended, random, begun, number, limit }
    }

    /// Returns the wall of the leading rail if both ends agree on it.
    fn agreed(&self) -> Option<usize> {
        let wall = |name: &str| NAMES.iter().position(|own| *own == name).map(|at| WALLS[at]);
        let [one, other] = self.names().map(|name| name.and_then(wall));
        one.filter(|_| one == other)
    }

    fn names(&self) -> [Option<&'static str>; 2] {
        [0, 1].map(|rank| self.cores[rank].rail_name(PeerId(1 - rank as u32)))
    }

    /// Removes a wall.
    fn fall(&mut self, at: usize) {
        self.walls[at].set(RoleKind::Passes);
    }

    /// Begins to exchange some messages of any length.
    fn begin(&mut self) {
        for _ in 0..1 + self.random.below(12) {
            // All have the same tag, so a wrong order shows.
            self.begun.push(Exchange::begin(&mut self.cores, &mut self.random, self.number, 0));
            self.number += 1;
            (0..self.random.below(30)).for_each(|_| self.step());
        }
    }

    /// Runs until every exchange has arrived.
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
        for worker in &mut self.cores {
            worker.advance();
            worker.flush();
        }
    }
}

/// An obstacle between the two processes on a rail.
#[derive(Default)]
struct Wall {
    kind: Mutex<RoleKind>,
    /// Number of link requests that were refused.
    refused: AtomicUsize,
}

/// Effect of a wall on traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum RoleKind {
    #[default]
    Passes,
    /// Drops everything silently.
    Swallows,
    Refuses,
}

impl Wall {
    fn set(&self, kind: RoleKind) {
        *self.kind.lock().unwrap() = kind;
    }
}

/// A rail with a wall.
///
/// Each end finds an open link lost after a while, each in its own time. A link requested meanwhile opens when the wall
/// is gone, unless it is refused.
struct Walled {
    name: &'static str,
    rail: SimRail,
    peer: PeerId,
    wall: Arc<Wall>,
    /// Number of link requests, on a rail that passes others.
    passing: Option<Arc<AtomicUsize>>,
    is_open: bool,
    /// True if a link was requested and has not opened.
    is_asked: bool,
    /// Number of polls until the loss is found, or until a refusal comes.
    notices_in: Option<usize>,
    refuses_in: Option<usize>,
    random: Random,
}

impl Walled {
    fn kind(&self) -> RoleKind {
        *self.wall.kind.lock().unwrap()
    }

    fn is_walled(&self) -> bool {
        self.kind() != RoleKind::Passes
    }

    /// Refuses a requested link after a random number of polls, if the wall refuses.
    fn refuse(&mut self) -> Option<Fault> {
        if self.kind() == RoleKind::Swallows || !self.is_asked {
            return None;
        }
        let random = &mut self.random;
        let polls = self.refuses_in.get_or_insert_with(|| random.below(50));
        if *polls > 0 {
            *polls -= 1;
            return None;
        }
        self.disconnect(self.peer);
        self.wall.refused.fetch_add(1, Ordering::Relaxed);
        Some(Fault::Unreachable("nobody is there".into()))
    }
}

impl Rail for Walled {
    passes_on!(rail: address, remote_reader, descriptors, prepare_sleep, finish_sleep, is_flushed);

    fn name(&self) -> &'static str {
        self.name
    }

    /// Accepts frames before they are sent, as network rails do.
    fn coalesce_within(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn passes(&self) -> bool {
        self.passing.is_some()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        self.is_asked = true;
        self.passing.iter().for_each(|asked| _ = asked.fetch_add(1, Ordering::Relaxed));
        if self.is_walled() { Ok(()) } else { self.rail.connect(peer, address) }
    }

    fn disconnect(&mut self, peer: PeerId) {
        (self.is_open, self.is_asked) = (false, false);
        (self.notices_in, self.refuses_in) = (None, None);
        self.rail.disconnect(peer);
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
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
            // The link that was just opened is closed again.
            let mut was_up = false;
            self.rail.poll(&mut |event| was_up |= matches!(event, Event::Up { .. }));
            self.is_asked |= was_up;
            if was_up {
                self.rail.disconnect(peer);
            }
            let Some(fault) = self.refuse() else { return false };
            sink(Event::Down { peer, fault });
            return true;
        }
        self.refuses_in = None;
        if self.is_asked {
            let address = peer.0.to_le_bytes();
            self.rail.connect(peer, &address).expect("an address of the network");
        }
        let Self { is_open, is_asked, passing, .. } = self;
        let passes = passing.is_some();
        self.rail.poll(&mut |event| match event {
            Event::Up { peer, capabilities } => {
                (*is_open, *is_asked) = (true, false);
                let capabilities =
                    Capabilities { replay: true, reopens: true, passes, ..capabilities };
                sink(Event::Up { peer, capabilities });
                sink(Event::Cost { peer, cost: Cost::linear(FAR_NS, 1000, 1_000_000_000) });
            }
            Event::Down { peer, fault } => {
                (*is_open, *is_asked) = (false, false);
                sink(Event::Down { peer, fault });
            }
            other => sink(other),
        })
    }
}

struct Both(Arc<AtomicBool>);

impl Directory for Both {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(NAMES.map(|name| (name.into(), peer.0.to_le_bytes().into())).into())
    }

    fn has_ended(&mut self, _: PeerId) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Names of the rails: the preferred one, one that passes the last, and the last.
const NAMES: [&str; 3] = ["tcp", "quic1", "quic"];
const PASSING: usize = 1;
/// Index of the wall of each rail.
const WALLS: [usize; 3] = [0, 1, 1];

/// Number of times that a wall rises.
const ROUNDS: usize = 12;
/// Number of times that the preferred rail is left. Each time it is tried half as often as before.
const RETURNS: usize = 3;

/// Reported latency of a frame, in ns; a peer so far away may be behind a wall.
const FAR_NS: u64 = 2_000_000;

/// Upper limit for a whole test.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for which a lost peer is waited for.
const PATIENCE: Duration = LIMIT;
