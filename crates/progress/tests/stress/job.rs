//! A job within one process: each of its processes has an engine, rails and a lock of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Config, Engine};
use progress::{Directory, Policy, Progress, Worker};
use rail::Rail;
use wire::PeerId;

use crate::member::Pending;
use crate::plan::{Kind, MessageStream, Plan};
use crate::rails::{self, Rails};
use crate::watch::WatchState;

/// The processes of one run.
pub struct Job {
    pub rails: rails::RailKind,
    pub plan: Plan,
    pub processes: Vec<StressProcess>,
    /// Number of threads that have finished all windows.
    pub done: AtomicU32,
    unrung: Arc<AtomicU32>,
    _clock: Option<rails::Clock>,
}

/// One process of the job, and the state that its threads share.
pub struct StressProcess {
    pub progress: Arc<Progress>,
    /// Operations that any thread may wait for, each with the window in which it began.
    pub pool: Mutex<Vec<(u32, Pending)>>,
    /// Number of claimed messages among those for all threads, for each window.
    pub tickets: Vec<AtomicU32>,
    /// Messages received.
    pub ledger: Mutex<Vec<Received>>,
    pub states: Vec<WatchState>,
}

/// A message received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Number that grows in the order in which a thread posted its receives.
    pub serial: u64,
    pub stream: MessageStream,
    pub number: u32,
}

impl Job {
    pub fn new(kind: rails::RailKind, seed: u64) -> Self {
        let plan = Plan::new(seed);
        let Rails { of: rails_of, unrung, clock } = rails::open(kind, &plan);
        let addresses: Vec<Vec<(String, Vec<u8>)>> = rails_of
            .iter()
            .map(|rails| rails.iter().map(|one| (one.name().into(), one.address())).collect())
            .collect();
        let mut random = plan.seed_of(&[4]);
        let policy = random.pick(&[Policy::for_node(1, 2), Policy::for_node(2, 1)]);
        let process = |(rails, rank): (Vec<Box<dyn Rail>>, u32)| {
            let size = plan.processes as usize;
            let directory = Box::new(Addresses { rank, of: addresses.clone() });
            let engine = Engine::new(Config::new(size));
            let worker = Worker::new(engine, PeerId(rank), size, rails, directory);
            StressProcess {
                progress: Progress::new(worker, policy).expect("descriptors"),
                pool: Mutex::default(),
                tickets: (0..plan.windows).map(|_| AtomicU32::new(0)).collect(),
                ledger: Mutex::default(),
                states: (0..plan.threads).map(|_| WatchState::default()).collect(),
            }
        };
        let processes = rails_of.into_iter().zip(0..).map(process).collect();
        Self { rails: kind, plan, processes, done: AtomicU32::new(0), unrung, _clock: clock }
    }

    /// Checks that each message came once, and in order within a stream that one thread receives.
    pub fn check_all_arrived(&self) {
        let mut seen: BTreeMap<MessageStream, Vec<u32>> = BTreeMap::new();
        for process in &self.processes {
            let mut ledger = lock(&process.ledger).clone();
            ledger.sort_by_key(|entry| entry.serial);
            for entry in ledger {
                seen.entry(entry.stream).or_default().push(entry.number);
            }
        }
        for kind in [Kind::Exact, Kind::Open, Kind::Probed, Kind::Cancelled, Kind::Shared] {
            for stream in self.plan.streams(kind) {
                let mut numbers = seen.remove(&stream).unwrap_or_default();
                if kind == Kind::Shared {
                    numbers.sort_unstable();
                }
                let count =
                    (0..self.plan.windows).map(|window| self.plan.count(window, stream)).sum();
                assert_eq!(numbers, Vec::from_iter(0..count), "{stream:?}");
            }
        }
        assert!(seen.is_empty(), "nobody sent these: {seen:?}");
    }

    /// Checks that nothing waits to be sent and no operation is left.
    pub fn check_nothing_is_left(&self) {
        let begin = Instant::now();
        let is_busy = |process: &&StressProcess| !process.progress.test(|worker| worker.is_quiet());
        // Every process is tested, because each test makes progress.
        while self.processes.iter().filter(is_busy).count() > 0 {
            assert!(begin.elapsed() < QUIET_PATIENCE, "something is left to send");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(self.processes.iter().all(|process| lock(&process.pool).is_empty()));
        let unrung = self.unrung.load(Ordering::Relaxed);
        assert_eq!(unrung, 0, "a thread slept so often although an event was pending");
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

struct Addresses {
    rank: u32,
    of: Vec<Vec<(String, Vec<u8>)>>,
}

impl Directory for Addresses {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        let own = peer.0 == self.rank;
        let mut known = self.of[peer.0 as usize].clone();
        known.retain(|(name, _)| own == (name == "self"));
        Ok(known)
    }
}

const QUIET_PATIENCE: Duration = Duration::from_secs(60);
