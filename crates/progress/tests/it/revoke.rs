//! A context is revoked because a member has failed: all live members learn of it, and nobody waits in it any more.

use engine::{Config, Engine, Envelope, OpId, Outcome, Revocation, RevokedBy, Selector, SendMode};
use memory::Region;
use progress::{Directory, Worker};
use rail::{Rail, SimNetwork};
use testing::Random;
use wire::PeerId;

#[test]
fn live_members_learn_of_a_revocation_whichever_others_are_dead() {
    for seed in testing::seeds(300) {
        let mut random = Random::new(seed);
        let size = 2 + random.below(16);
        let mut job = TestJob::new(seed, size);
        let knows = random.below(size);
        let dead: Vec<_> =
            (0..size).filter(|rank| *rank != knows && random.below(3) == 0).collect();
        let waiting: Vec<_> = (0..size).map(|rank| job.receive(rank, CONTEXT)).collect();
        if random.below(2) == 0 {
            job.run();
        }
        dead.iter().for_each(|rank| job.kill(*rank));
        let failed = PeerId(dead.first().map_or(99, |rank| *rank as u32));
        // The failure is found first, or the application revokes the communicator, or both.
        let is_found = random.below(3) > 0;
        if is_found {
            job.cores[knows].revoke_context(CONTEXT, failed);
        }
        let by = if is_found && random.below(2) == 0 {
            RevokedBy::Failure(failed)
        } else {
            if random.below(2) == 0 {
                job.run();
            }
            let by = RevokedBy::Application;
            job.cores[knows].revoke(Revocation { context: CONTEXT & !3, marks: 3, by });
            by
        };
        job.run();
        for rank in (0..size).filter(|rank| !dead.contains(rank)) {
            let worker = &mut job.cores[rank];
            assert_eq!(worker.engine.revoked_by(CONTEXT), Some(by), "seed {seed}, rank {rank}");
            let end = worker.engine.take(waiting[rank]).map(|end| end.outcome);
            let is_known = matches!(end, Some(Outcome::PeerFailed | Outcome::Revoked));
            assert!(is_known, "seed {seed}, rank {rank}: {end:?}");
            assert!(worker.is_quiet(), "seed {seed}: rank {rank} still sends");
            let late = job.receive(rank, CONTEXT);
            assert!(job.cores[rank].engine.is_complete(late), "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn messages_of_a_revoked_context_end_and_others_arrive() {
    for (bytes, is_posted) in
        [(0, false), (8, false), (50_000, false), (2 << 20, false), (2 << 20, true)]
    {
        let mut job = TestJob::new(bytes as u64, 2);
        let matched = is_posted.then(|| job.receive_from(1, 0, CONTEXT, bytes));
        let sends: Vec<_> = [SendMode::Standard, SendMode::Synchronous]
            .map(|mode| job.send(0, 1, CONTEXT, bytes, mode))
            .into();
        job.run();
        job.cores[1].revoke_context(CONTEXT, PeerId(7));
        let late = job.send(0, 1, CONTEXT, bytes, SendMode::Synchronous);
        let other = job.send(0, 1, 0, bytes, SendMode::Synchronous);
        let into = job.receive_from(1, 0, 0, bytes);
        job.run();
        for send in sends.into_iter().chain([late, other]) {
            let end = job.cores[0].engine.take(send).map(|end| end.outcome);
            assert_eq!(end, Some(Outcome::Ok), "{bytes} bytes");
        }
        for receive in matched.into_iter().chain([into]) {
            let end = job.cores[1].engine.take(receive).map(|end| (end.outcome, end.bytes));
            assert_eq!(end, Some((Outcome::Ok, bytes as u64)));
        }
        // Credit has been returned, so as many bytes can be sent again.
        let again = job.send(0, 1, CONTEXT, bytes, SendMode::Synchronous);
        job.run();
        assert!(job.cores[0].engine.take(again).is_some(), "{bytes} bytes");
    }
}

#[test]
fn application_ends_sends_whatever_they_wait_for() {
    for (bytes, steps) in
        [8, 50_000, 2 << 20].into_iter().flat_map(|bytes| (0..40).map(move |steps| (bytes, steps)))
    {
        let mut job = TestJob::new(bytes as u64, 2);
        let send = job.send(0, 1, CONTEXT, bytes, SendMode::Synchronous);
        for _ in 0..steps {
            job.step();
        }
        let revocation = Revocation { context: CONTEXT & !3, marks: 3, by: RevokedBy::Application };
        job.cores[steps % 2].revoke(revocation);
        job.run();
        let end = job.cores[0].engine.take(send).map(|end| end.outcome);
        assert_eq!(end, Some(Outcome::Revoked), "{bytes} bytes, {steps} steps");
        for rank in [0, 1] {
            assert!(job.cores[rank].is_quiet(), "{bytes} bytes, {steps} steps, rank {rank}");
            let late = job.receive(rank, CONTEXT & !3);
            let end = job.cores[rank].engine.take(late).map(|end| end.outcome);
            assert_eq!(end, Some(Outcome::Revoked));
        }
        let other = job.send(0, 1, 0, bytes, SendMode::Synchronous);
        let into = job.receive_from(1, 0, 0, bytes);
        job.run();
        for (rank, op) in [(0, other), (1, into)] {
            let end = job.cores[rank].engine.take(op).map(|end| end.outcome);
            assert_eq!(end, Some(Outcome::Ok), "{bytes} bytes, {steps} steps");
        }
    }
}

#[test]
fn leaving_process_need_not_wait_for_links_that_only_carry_revocations() {
    let mut job = TestJob::new(0, 4);
    let all_is_out = |job: &TestJob| {
        let worker = &job.cores[0];
        (worker.is_quiet(), worker.is_quiet_but_for_revoked())
    };
    // A message sent in a revoked context is not wanted any more.
    let unwanted = job.send(0, 3, CONTEXT, 8, SendMode::Standard);
    job.cores[0].flush();
    assert_eq!(all_is_out(&job), (false, false));
    job.cores[0].revoke_context(CONTEXT, PeerId(2));
    job.cores[0].flush();
    assert_eq!(all_is_out(&job), (false, true));
    let wanted = job.send(0, 3, 0, 8, SendMode::Standard);
    job.cores[0].flush();
    assert_eq!(all_is_out(&job), (false, false));
    job.run();
    assert_eq!(all_is_out(&job), (true, true));
    for send in [unwanted, wanted] {
        assert!(job.cores[0].engine.take(send).is_some());
    }
}

#[test]
fn members_learn_of_a_revocation_once_they_are_known() {
    let mut job = TestJob::new(0, 8);
    let other = CONTEXT + 4;
    job.cores[3].revoke_context(other, PeerId(1));
    job.run();
    let knowing = |job: &TestJob| {
        job.cores.iter().filter(|worker| worker.engine.revoked_by(other).is_some()).count()
    };
    assert_eq!(knowing(&job), 1);
    KNOWS_OTHER.set(true);
    job.cores[3].revoke_context(other, PeerId(1));
    job.run();
    assert_eq!(knowing(&job), 8);
}

/// The processes of a job, in virtual time.
struct TestJob {
    network: SimNetwork,
    cores: Vec<Worker>,
    dead: Vec<usize>,
}

impl TestJob {
    fn new(seed: u64, size: usize) -> Self {
        let network = SimNetwork::new(seed);
        let worker = |rank| {
            let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(peer_id(rank)))];
            let directory = Box::new(Ring { size, rank });
            Worker::new(Engine::new(Config::new(size)), peer_id(rank), size, rails, directory)
        };
        let cores = (0..size).map(worker).collect();
        Self { network, cores, dead: Vec::new() }
    }

    fn kill(&mut self, rank: usize) {
        self.network.kill(peer_id(rank));
        self.dead.push(rank);
    }

    /// Posts a receive from the next process.
    fn receive(&mut self, rank: usize, context: u64) -> OpId {
        let from = (rank + 1) % self.cores.len();
        self.receive_from(rank, from, context, 8)
    }

    fn receive_from(&mut self, rank: usize, from: usize, context: u64, bytes: usize) -> OpId {
        let selector = Selector { context, source: Some(from as u32), tag: Some(0) };
        let into = Region::owned(bytes);
        self.cores[rank].engine.submit_receive(Some(peer_id(from)), selector, &into)
    }

    fn send(&mut self, from: usize, to: usize, context: u64, bytes: usize, mode: SendMode) -> OpId {
        let envelope = Envelope { context, source: from as u32, tag: 0, is_urgent: false };
        self.cores[from].engine.submit_send(peer_id(to), envelope, &Region::owned(bytes), mode)
    }

    /// Runs until nothing happens any more.
    fn run(&mut self) {
        let mut idle = 0;
        while idle < 200 {
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    fn step(&mut self) -> bool {
        let mut has_moved = self.network.step();
        for (rank, worker) in self.cores.iter_mut().enumerate() {
            if !self.dead.contains(&rank) {
                has_moved |= worker.advance();
                worker.flush();
            }
        }
        has_moved
    }
}

/// A directory in which every context has all processes as members. On the simulated rail a rank is its own address.
struct Ring {
    size: usize,
    rank: usize,
}

impl Directory for Ring {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }

    fn members(&mut self, context: u64) -> Option<Vec<PeerId>> {
        let ring = (0..self.size).map(|step| peer_id((self.rank + step) % self.size));
        (context & !3 == CONTEXT & !3 || KNOWS_OTHER.get()).then(|| ring.collect())
    }
}

fn peer_id(rank: usize) -> PeerId {
    PeerId(rank as u32)
}

const CONTEXT: u64 = 5;

thread_local! {
    static KNOWS_OTHER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
