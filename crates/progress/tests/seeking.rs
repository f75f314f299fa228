//! A peer that is waited for, and was never spoken to, is sought: one that is gone is found out, and one that lives
//! is not disturbed but for a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use driver::{Rail, SimNetwork};
use engine::{Config, Engine, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use progress::{Core, Directory, Policy, Progress};
use wire::GateId;

#[test]
fn whoever_waits_finds_out_that_a_peer_it_never_spoke_to_is_gone() {
    let ways = [(SOON, receive as fn(&Progress, u64) -> Outcome), (0, receive), (0, probe)];
    at_once(ways, |(context, wait)| {
        let job = Job::new(false);
        job.network.kill(PEER);
        assert_eq!(job.run(|waiter| wait(waiter, context)), Outcome::PeerFailed);
        assert_eq!(job.sought(), 1);
    });
}

#[test]
fn so_does_who_only_tests() {
    at_once([test_receive as fn(&Progress) -> Outcome, test_probe], |tests| {
        let job = Job::new(false);
        job.network.kill(PEER);
        assert_eq!(job.run(tests), Outcome::PeerFailed);
    });
}

#[test]
fn so_do_threads_that_wait_for_one_another_to_poll() {
    let job = Job::new(false);
    job.network.kill(PEER);
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
fn one_whose_process_has_ended_is_not_called() {
    at_once([receive, probe], |wait| {
        let job = Job::new(true);
        assert_eq!(job.run(|waiter| wait(waiter, 0)), Outcome::PeerFailed);
        assert_eq!(job.sought(), 0);
    });
}

#[test]
fn one_that_lives_is_waited_for_however_many_receives_there_are() {
    let job = Job::new(false);
    let mut receives: Vec<_> = (0..1000).map(|_| submit(&job.waiter, 0)).collect();
    job.run(|waiter| {
        while job.sought() == 0 {
            let is_over = |core: &mut Core| core.engine.is_complete(receives[0]).then_some(());
            assert_eq!(waiter.wait_for(Duration::from_millis(100), is_over), None);
        }
        let envelope = Envelope { context: 0, source: PEER.0, tag: 0, is_urgent: false };
        for _ in &receives {
            let send = |core: &mut Core| {
                core.engine.submit_send(ME, envelope, &Region::owned(8), SendMode::Standard)
            };
            job.peer.submit(send);
        }
        thread::scope(|scope| {
            scope.spawn(|| job.peer.wait(|core| core.is_quiet().then_some(())));
            for op in receives.drain(..) {
                assert_eq!(end(waiter, op), Outcome::Ok);
            }
        });
    });
    assert_eq!(job.sought(), 1);
}

/// Each in a thread of its own, for they wait for seconds.
fn at_once<T: Send, const COUNT: usize>(cases: [T; COUNT], test: impl Fn(T) + Sync) {
    let test = &test;
    thread::scope(|scope| cases.map(|case| drop(scope.spawn(move || test(case)))));
}

fn receive(waiter: &Progress, context: u64) -> Outcome {
    end(waiter, submit(waiter, context))
}

fn submit(waiter: &Progress, context: u64) -> OpId {
    waiter
        .submit(|core| core.engine.submit_receive(Some(PEER), selector(context), &Region::owned(8)))
}

fn end(waiter: &Progress, op: OpId) -> Outcome {
    waiter.wait(|core| core.take_or_await(op)).outcome
}

fn probe(waiter: &Progress, context: u64) -> Outcome {
    waiter.wait(|core| ask_for_message(core, context))
}

fn test_receive(waiter: &Progress) -> Outcome {
    let op = submit(waiter, 0);
    test(waiter, |core| Some(core.engine.take(op)?.outcome))
}

fn test_probe(waiter: &Progress) -> Outcome {
    test(waiter, |core| ask_for_message(core, 0))
}

fn test(waiter: &Progress, mut question: impl FnMut(&mut Core) -> Option<Outcome>) -> Outcome {
    loop {
        if let Some(outcome) = waiter.test(&mut question) {
            return outcome;
        }
        waiter.pause();
    }
}

fn ask_for_message(core: &mut Core, context: u64) -> Option<Outcome> {
    if core.engine.probe(Some(PEER), selector(context)).is_some() {
        return Some(Outcome::Ok);
    }
    core.await_message(Some(PEER), selector(context));
    core.engine.is_failed(PEER).then_some(Outcome::PeerFailed)
}

fn selector(context: u64) -> Selector {
    Selector { context, source: Some(PEER.0), tag: Some(0) }
}

/// Two processes, of which one waits for the other.
struct Job {
    network: SimNetwork,
    waiter: Arc<Progress>,
    peer: Arc<Progress>,
    sought: Arc<AtomicU32>,
}

impl Job {
    /// The launcher has seen the peer end, or not.
    fn new(has_ended: bool) -> Self {
        let network = SimNetwork::new(0);
        let sought = Arc::<AtomicU32>::default();
        let [waiter, peer] = [ME, PEER].map(|rank| {
            let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(rank))];
            let directory = Box::new(Ranks { sought: Arc::clone(&sought), has_ended });
            let core = Core::new(Engine::new(Config::new(2)), rank, 2, rails, directory);
            Progress::new(core, Policy::for_node(2, 1)).expect("descriptors")
        });
        Self { network, waiter, peer, sought }
    }

    /// What `wait` comes to while time passes.
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

    /// How often a way to the peer was asked for.
    fn sought(&self) -> u32 {
        self.sought.load(Ordering::Relaxed)
    }
}

/// On the simulated rail a rank is its own address.
struct Ranks {
    sought: Arc<AtomicU32>,
    has_ended: bool,
}

impl Directory for Ranks {
    fn addresses(&mut self, peer: GateId) -> Result<Vec<(String, Vec<u8>)>, String> {
        self.sought.fetch_add(u32::from(peer == PEER), Ordering::Relaxed);
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }

    fn has_ended(&mut self, _: GateId) -> bool {
        self.has_ended
    }

    fn expects_soon(&self, context: u64) -> bool {
        context == SOON
    }
}

const ME: GateId = GateId(0);
const PEER: GateId = GateId(1);
const SOON: u64 = 5;
