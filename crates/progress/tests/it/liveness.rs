//! A process checks the liveness of a peer that it waits for and has no link to.
//!
//! A dead peer is detected. A live peer only sees a connection, and is waited for even if no link opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use engine::{Config, Engine, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{Rail, SimNetwork, SimPath};
use wire::PeerId;

#[test]
fn waiting_process_detects_a_dead_peer_without_a_link() {
    let ways = [(SOON, receive as fn(&Progress, u64) -> Outcome), (0, receive), (0, probe)];
    at_once(ways, |(context, wait)| {
        let job = TestJob::new();
        job.end_peer();
        assert_eq!(job.run(|waiter| wait(waiter, context)), Outcome::PeerFailed);
        assert_eq!(job.probed(), 0, "no connection is attempted");
    });
}

#[test]
fn testing_process_detects_a_dead_peer_without_a_link() {
    at_once([test_receive as fn(&Progress) -> Outcome, test_probe], |tests| {
        let job = TestJob::new();
        job.end_peer();
        assert_eq!(job.run(tests), Outcome::PeerFailed);
    });
}

#[test]
fn threads_that_leave_polling_to_others_detect_a_dead_peer() {
    let job = TestJob::new();
    job.end_peer();
    let ends = job.run(|waiter| {
        thread::scope(|scope| {
            let waiting =
                [receive, receive, probe, probe].map(|wait| scope.spawn(move || wait(waiter, 0)));
            waiting.map(|thread| thread.join().expect("it has ended"))
        })
    });
    assert_eq!(ends, [Outcome::PeerFailed; 4]);
}

#[test]
fn peer_that_can_connect_but_not_be_reached_is_waited_for() {
    let job = TestJob::new();
    job.wall_off_peer();
    let receives: Vec<_> = (0..3).map(|_| submit(&job.waiter, SOON)).collect();
    job.run(|waiter| {
        job.call_in_vain(waiter, &receives);
        job.send_from_peer(SOON, receives.len());
        for op in receives.iter().copied() {
            assert_eq!(end(waiter, op), Outcome::Ok);
        }
    });
    assert_eq!(job.probed(), 1, "one connection is attempted");
}

#[test]
fn unreachable_peer_is_detected_when_it_ends() {
    let job = TestJob::new();
    job.wall_off_peer();
    let receive = submit(&job.waiter, SOON);
    let ended = job.run(|waiter| {
        job.call_in_vain(waiter, &[receive]);
        job.end_peer();
        end(waiter, receive)
    });
    assert_eq!(ended, Outcome::PeerFailed);
}

#[test]
fn send_to_an_unreachable_peer_fails_as_ever() {
    let job = TestJob::new();
    job.wall_off_peer();
    let receive = submit(&job.waiter, SOON);
    let ends = job.run(|waiter| {
        job.await_call(waiter, &[receive]);
        // One send begins during the connection attempt, the other after it has failed.
        [(); 2].map(|()| {
            let op = submit_send(waiter, PEER, SOON);
            end(waiter, op)
        })
    });
    assert_eq!(ends, [Outcome::PeerFailed; 2]);
    assert_eq!(end(&job.waiter, receive), Outcome::PeerFailed);
    assert_eq!(job.probed(), 2, "the send attempts a new connection");
}

#[test]
fn live_peer_is_waited_for_with_any_number_of_receives() {
    let job = TestJob::new();
    let receives: Vec<_> = (0..1000).map(|_| submit(&job.waiter, 0)).collect();
    job.run(|waiter| {
        job.await_call(waiter, &receives);
        thread::scope(|scope| {
            scope.spawn(|| job.send_from_peer(0, receives.len()));
            for op in receives.iter().copied() {
                assert_eq!(end(waiter, op), Outcome::Ok);
            }
        });
    });
    assert_eq!(job.probed(), 1);
}

/// Runs each case in a thread of its own, as each waits for seconds.
fn at_once<T: Send, const COUNT: usize>(cases: [T; COUNT], test: impl Fn(T) + Sync) {
    let test = &test;
    thread::scope(|scope| cases.map(|case| drop(scope.spawn(move || test(case)))));
}

fn receive(waiter: &Progress, context: u64) -> Outcome {
    end(waiter, submit(waiter, context))
}

fn submit(waiter: &Progress, context: u64) -> OpId {
    waiter.submit(|worker| {
        worker.engine.submit_receive(Some(PEER), selector(context), &Region::owned(8))
    })
}

fn submit_send(sender: &Progress, to: PeerId, context: u64) -> OpId {
    let source = if to == ME { PEER } else { ME };
    let envelope = Envelope { context, source: source.0, tag: 0, is_urgent: false };
    let data = Region::owned(8);
    sender.submit(|worker| worker.engine.submit_send(to, envelope, &data, SendMode::Standard))
}

fn end(waiter: &Progress, op: OpId) -> Outcome {
    waiter.wait(|worker| worker.take_or_await(op)).outcome
}

fn probe(waiter: &Progress, context: u64) -> Outcome {
    waiter.wait(|worker| ask_for_message(worker, context))
}

fn test_receive(waiter: &Progress) -> Outcome {
    let op = submit(waiter, 0);
    test(waiter, |worker| Some(worker.engine.take(op)?.outcome))
}

fn test_probe(waiter: &Progress) -> Outcome {
    test(waiter, |worker| ask_for_message(worker, 0))
}

fn test(waiter: &Progress, mut question: impl FnMut(&mut Worker) -> Option<Outcome>) -> Outcome {
    loop {
        if let Some(outcome) = waiter.test(&mut question) {
            return outcome;
        }
        waiter.pause();
    }
}

fn ask_for_message(worker: &mut Worker, context: u64) -> Option<Outcome> {
    if worker.engine.probe(Some(PEER), selector(context)).is_some() {
        return Some(Outcome::Ok);
    }
    worker.await_message(Some(PEER), selector(context));
    worker.engine.is_failed(PEER).then_some(Outcome::PeerFailed)
}

fn selector(context: u64) -> Selector {
    Selector { context, source: Some(PEER.0), tag: Some(0) }
}

/// Two processes, of which one waits for the other.
struct TestJob {
    network: SimNetwork,
    waiter: Arc<Progress>,
    peer: Arc<Progress>,
    probed: Arc<AtomicU32>,
    has_ended: Arc<AtomicBool>,
}

impl TestJob {
    fn new() -> Self {
        let network = SimNetwork::new(0);
        let (probed, has_ended) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let [waiter, peer] = [ME, PEER].map(|rank| {
            let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(rank))];
            let (probed, has_ended) = (Arc::clone(&probed), Arc::clone(&has_ended));
            let directory = Box::new(ProbedDirectory { probed, has_ended });
            let worker = Worker::new(Engine::new(Config::new(2)), rank, 2, rails, directory);
            Progress::new(worker, Policy::for_node(2, 1)).expect("descriptors")
        });
        Self { network, waiter, peer, probed, has_ended }
    }

    /// Ends the peer, which the launcher sees.
    fn end_peer(&self) {
        self.network.kill(PEER);
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Drops frames to the peer; frames from the peer pass.
    fn wall_off_peer(&self) {
        self.network.set_path(ME, PEER, SimPath { reachable: false, ..SimPath::default() });
    }

    /// Waits for the connection attempt to the peer; no receive may end meanwhile.
    fn await_call(&self, waiter: &Progress, receives: &[OpId]) {
        while self.probed() == 0 {
            self.watch(waiter, receives);
        }
    }

    /// Waits for the connection attempt, and then until it has timed out.
    fn call_in_vain(&self, waiter: &Progress, receives: &[OpId]) {
        self.await_call(waiter, receives);
        let called = self.network.now();
        while self.network.now() < called + Duration::from_secs(100) {
            self.watch(waiter, receives);
        }
    }

    fn watch(&self, waiter: &Progress, receives: &[OpId]) {
        let is_over = |worker: &mut Worker| {
            receives.iter().any(|op| worker.engine.is_complete(*op)).then_some(())
        };
        assert_eq!(waiter.wait_for(Duration::from_millis(100), is_over), None);
    }

    /// Sends `count` messages from the peer, and waits until they have left.
    fn send_from_peer(&self, context: u64, count: usize) {
        for _ in 0..count {
            submit_send(&self.peer, ME, context);
        }
        self.peer.wait(|worker| worker.is_quiet().then_some(()));
    }

    /// Returns the result of `wait`, and advances simulated time meanwhile.
    fn run<T: Send>(&self, wait: impl FnOnce(&Progress) -> T + Send) -> T {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&self.waiter));
            while !waiting.is_finished() {
                self.network.advance(Duration::from_secs(1));
                thread::sleep(Duration::from_millis(10));
            }
            waiting.join().expect("it has ended")
        })
    }

    /// Number of requests for the peer's addresses.
    fn probed(&self) -> u32 {
        self.probed.load(Ordering::Relaxed)
    }
}

/// A directory that counts requests for the address of [`PEER`], and knows if it has ended.
struct ProbedDirectory {
    probed: Arc<AtomicU32>,
    has_ended: Arc<AtomicBool>,
}

impl Directory for ProbedDirectory {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        self.probed.fetch_add(u32::from(peer == PEER), Ordering::Relaxed);
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }

    fn has_ended(&mut self, _: PeerId) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn expects_soon(&self, context: u64) -> bool {
        context == SOON
    }
}

const ME: PeerId = PeerId(0);
const PEER: PeerId = PeerId(1);
const SOON: u64 = 5;
