//! Agreements of processes that fail at random moments, in virtual time: all get the same answer, and all end.
//!
//! Each process is the whole path from a call down to a simulated rail. The seed decides the size, the delays, who calls
//! when, and who fails when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agree::{AgreementFault, AgreementRecord, Agreements, Membership, RankSet, agreement};
use engine::{Config, Engine};
use progress::{Directory, Worker};
use rail::{Rail, SimNetwork, SimPath};
use testing::Random;
use wire::PeerId;

#[test]
fn all_get_the_same_answer_whoever_fails_at_any_moment() {
    let mut seen = AgreementCounts::default();
    for seed in testing::seeds(4000) {
        AgreementJob::new(seed).run(&mut seen);
    }
    let AgreementCounts { answers, failures, excluded, by_dead } = seen;
    let is_worth_it = answers > 20_000 && failures > 4000 && excluded > 4000 && by_dead > 500;
    assert!(testing::is_seed_given() || is_worth_it, "{seen:?}");
}

/// Results of all seeds.
#[derive(Clone, Copy, Debug, Default)]
struct AgreementCounts {
    answers: usize,
    /// Processes that have failed.
    failures: usize,
    /// Answers that name failed processes.
    excluded: usize,
    /// Answers to processes that have failed later.
    by_dead: usize,
}

/// Answers of one process, in order.
type Answers = Arc<Mutex<Vec<Result<AgreementRecord, AgreementFault>>>>;

struct AgreementJob {
    seed: u64,
    random: Random,
    network: SimNetwork,
    workers: Vec<Worker>,
    agreements: Vec<Arc<Agreements>>,
    answers: Vec<Answers>,
    called: Vec<Vec<AgreementRecord>>,
    dead: Vec<bool>,
    /// Number of agreements that each process takes part in.
    rounds: usize,
}

impl AgreementJob {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = 1 + random.below(9);
        let network = SimNetwork::new(seed);
        for from in 0..size {
            for to in 0..size {
                let latency = Duration::from_micros(1 + random.below(300) as u64);
                let path = SimPath { latency, ..SimPath::default() };
                network.set_path(peer_id(from), peer_id(to), path);
            }
        }
        let (mut workers, mut agreements) = (Vec::new(), Vec::new());
        for rank in 0..size {
            let mut engine = Engine::new(Config::new(size));
            agreements.push(Agreements::new(&mut engine));
            let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(peer_id(rank)))];
            workers.push(Worker::new(engine, peer_id(rank), size, rails, Box::new(SimAddresses)));
        }
        let answers = (0..size).map(|_| Answers::default()).collect();
        let rounds = 1 + random.below(3);
        let (called, dead) = (vec![Vec::new(); size], vec![false; size]);
        Self { seed, random, network, workers, agreements, answers, called, dead, rounds }
    }

    fn size(&self) -> usize {
        self.workers.len()
    }

    fn run(mut self, seen: &mut AgreementCounts) {
        let size = self.size();
        let deaths = self.random.below(size);
        let mut due: Vec<(usize, usize)> =
            (0..deaths).map(|_| (self.random.below(400), self.random.below(size))).collect();
        // Some call several agreements at once, as nonblocking calls do.
        let at_once = self.random.below(2) == 0;
        let (mut idle, mut time) = (0, 0);
        while idle < 300 {
            time += 1;
            for rank in 0..size {
                let (called, got) = (self.called[rank].len(), self.answers(rank).len());
                let may_call = called < self.rounds && (called == got || at_once);
                if !self.dead[rank] && may_call && (idle > 100 || self.random.below(20) == 0) {
                    self.call(rank);
                }
            }
            let (now, later) = due.into_iter().partition(|(at, _)| *at <= time || idle > 200);
            due = later;
            for (_, rank) in now {
                self.kill(rank);
            }
            idle = if self.step() { 0 } else { idle + 1 };
        }
        self.check(seen);
    }

    fn answers(&self, rank: usize) -> Vec<Result<AgreementRecord, AgreementFault>> {
        self.answers[rank].lock().unwrap().clone()
    }

    fn call(&mut self, rank: usize) {
        let size = self.size();
        let known = (0..size as u32).filter(|of| self.workers[rank].engine.is_failed(PeerId(*of)));
        let failed = RankSet::of(size, known);
        let flags = [self.random.next() as u32 | 1, u32::MAX];
        let acked = RankSet::of(size, failed.iter().filter(|_| self.random.below(2) == 0));
        let number = 1000 + rank as u64;
        let own = AgreementRecord { flags, number, failed, acked };
        self.called[rank].push(own.clone());
        let answers = Arc::clone(&self.answers[rank]);
        let members = (0..size).map(peer_id).collect();
        let membership = Membership { context: CONTEXT, members, rank: rank as u32 };
        let then = Box::new(move |answer, _: &mut Worker| answers.lock().unwrap().push(answer));
        let task = agreement(&self.agreements[rank], membership, own, then);
        self.workers[rank].add_task(task);
    }

    /// Ends a process, unless it is the last one.
    fn kill(&mut self, rank: usize) {
        if self.dead.iter().filter(|is_dead| !**is_dead).count() > 1 && !self.dead[rank] {
            self.network.kill(peer_id(rank));
            self.dead[rank] = true;
        }
    }

    fn step(&mut self) -> bool {
        let mut has_moved = self.network.step();
        for (rank, worker) in self.workers.iter_mut().enumerate() {
            // A process may be late.
            if !self.dead[rank] && self.random.below(4) > 0 {
                has_moved |= worker.advance();
                worker.flush();
            }
        }
        has_moved
    }

    fn check(&self, seen: &mut AgreementCounts) {
        let (seed, size) = (self.seed, self.size());
        seen.failures += self.dead.iter().filter(|is_dead| **is_dead).count();
        for round in 0..self.rounds {
            let mut answer: Option<AgreementRecord> = None;
            for rank in 0..size {
                let answers = self.answers(rank);
                let own = answers.get(round).cloned().map(|own| own.expect("an answer"));
                assert!(own.is_some() || self.dead[rank], "seed {seed}: rank {rank} waits on");
                let Some(own) = own else { continue };
                seen.answers += 1;
                seen.by_dead += usize::from(self.dead[rank]);
                seen.excluded += usize::from(own.failed.iter().next().is_some());
                let known = answer.get_or_insert_with(|| own.clone());
                assert_eq!(*known, own, "seed {seed}: rank {rank}, round {round}");
            }
            let Some(answer) = answer else { continue };
            let of = |rank: usize| self.called[rank].get(round);
            for rank in 0..size {
                let has_failed = answer.failed.contains(rank as u32);
                assert!(!has_failed || self.dead[rank], "seed {seed}: rank {rank} lives");
                let own = of(rank);
                // Who is not excluded has contributed.
                if let Some(own) = own.filter(|_| !has_failed) {
                    assert_eq!(answer.flags[0] & !own.flags[0], 0, "seed {seed}, rank {rank}");
                    assert!(answer.acked.is_within(&own.acked), "seed {seed}, rank {rank}");
                    assert!(own.failed.is_within(&answer.failed), "seed {seed}, rank {rank}");
                }
                assert!(own.is_some() || has_failed, "seed {seed}: rank {rank} has not called");
            }
            let all = (0..size).filter_map(of).fold(u32::MAX, |all, own| all & own.flags[0]);
            assert_eq!(all & !answer.flags[0], 0, "seed {seed}: a bit of all is missing");
            let leader = (answer.number - 1000) as usize;
            assert!(of(leader).is_some(), "seed {seed}: a number of nobody");
        }
    }
}

/// On the simulated rail a rank is its own address.
struct SimAddresses;

impl Directory for SimAddresses {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }
}

fn peer_id(rank: usize) -> PeerId {
    PeerId(rank as u32)
}

const CONTEXT: u64 = 4;
