//! Waiting threads copy long messages from the sender's memory in pieces. They do not hold the worker's lock meanwhile.

#[macro_use]
mod wrapped_rail;
mod simulated;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Completion, Config, Engine, OpId, Outcome, SendMode};
use memory::Region;
use progress::{Directory, Policy, Progress, Worker};
use rail::{Rail, RailError, RemoteReader, SimNetwork, SimPath, SimRail};
use simulated::{envelope, process, selector, send};
use topo::processor::Runnable;
use wire::{Capabilities, PeerId, RemoteRegion};

#[test]
fn threads_that_wait_share_a_long_message_and_copy_each_byte_once() {
    let stage = CopyStage::new();
    stage.shown.meets.store(true, Ordering::SeqCst);
    let is_shared = || stage.shown.most.load(Ordering::SeqCst) >= 2;
    let begun = Instant::now();
    let mut quiet_rounds = 0;
    while !is_shared() && quiet_rounds < QUIET_ROUNDS && begun.elapsed() < PATIENCE {
        // No thread helps if others want the cores.
        quiet_rounds += u32::from(is_quiet());
        let others = [SHORT, SHORT + 1].map(|tag| stage.wait_for(stage.receive(tag, 8).0));
        let (long, into) = stage.receive(LONG, BYTES);
        let copied = stage.wait_for(long);
        let data = stage.send_long();
        assert_eq!(stage.until_it_ends(copied).outcome, Outcome::Ok);
        assert!(into.to_vec() == data.to_vec());
        assert_eq!(stage.shown.take_pieces(), vec![(0, BYTES as u64)]);
        for (tag, other) in (SHORT..).zip(others) {
            send(&stage.sender, tag);
            assert_eq!(stage.until_it_ends(other).outcome, Outcome::Ok);
        }
    }
    assert!(is_shared() || quiet_rounds < QUIET_ROUNDS, "each was copied by one thread alone");
}

#[test]
fn others_exchange_messages_while_one_copies() {
    let stage = CopyStage::new();
    stage.shown.permit(0);
    let (long, into) = stage.receive(LONG, BYTES);
    let copied = stage.wait_for(long);
    let data = stage.send_long();
    stage.until("somebody copies", || stage.shown.in_hand.load(Ordering::SeqCst) == 1);
    for tag in SHORT..SHORT + 10 {
        let (short, _) = stage.receive(tag, 8);
        send(&stage.sender, tag);
        let mut end = None;
        stage.until("the short message", || {
            end = stage.receiver.test(|worker| worker.engine.take(short));
            end.is_some()
        });
        assert!(end.is_some_and(|end| end.outcome == Outcome::Ok));
    }
    assert!(!copied.is_finished() && stage.shown.in_hand.load(Ordering::SeqCst) == 1);
    stage.shown.permit(usize::MAX);
    assert_eq!(stage.until_it_ends(copied).outcome, Outcome::Ok);
    assert!(into.to_vec() == data.to_vec());
}

#[test]
fn message_is_sent_if_the_system_refuses_the_remote_read() {
    let stage = CopyStage::new();
    *stage.shown.refused.lock().unwrap() = Some(BYTES as u64 / 2);
    for _ in 0..2 {
        let (long, into) = stage.receive(LONG, BYTES);
        let received = stage.wait_for(long);
        let data = stage.send_long();
        assert_eq!(stage.until_it_ends(received).outcome, Outcome::Ok);
        assert!(into.to_vec() == data.to_vec());
    }
    let pieces = stage.shown.take_pieces();
    assert!(pieces.len() == 1 && pieces[0].1 < BYTES as u64, "tried again: {pieces:?}");
}

#[test]
fn receive_from_a_dead_peer_ends_once_nobody_writes_to_its_memory() {
    let stage = CopyStage::new();
    stage.shown.permit(0);
    let (long, _) = stage.receive(LONG, BYTES);
    let copied = stage.wait_for(long);
    let _data = stage.send_long();
    stage.until("somebody copies", || stage.shown.in_hand.load(Ordering::SeqCst) == 1);
    stage.network.kill(SENDER);
    stage.until("the end", || stage.receiver.test(|worker| worker.engine.is_failed(SENDER)));
    assert!(!stage.receiver.submit(|worker| worker.engine.submit_cancel(long)));
    thread::sleep(SOON);
    assert!(
        !copied.is_finished() && !stage.receiver.look(|worker| worker.engine.is_complete(long))
    );
    stage.shown.permit(usize::MAX);
    assert_eq!(stage.until_it_ends(copied).outcome, Outcome::PeerFailed);
    assert_eq!(stage.shown.in_hand.load(Ordering::SeqCst), 0);
}

#[test]
fn ended_wait_leaves_the_rest_to_the_progress_thread() {
    let stage = CopyStage::new();
    stage.shown.permit(0);
    let (long, into) = stage.receive(LONG, BYTES);
    let (short, _) = stage.receive(SHORT, 8);
    let waiting = stage.wait_for(short);
    let data = stage.send_long();
    stage.until("somebody copies", || stage.shown.in_hand.load(Ordering::SeqCst) == 1);
    send(&stage.sender, SHORT);
    while stage.network.step() {}
    stage.shown.permit(1);
    assert_eq!(stage.until_it_ends(waiting).outcome, Outcome::Ok);
    let is_complete = || stage.receiver.look(|worker| worker.engine.is_complete(long));
    assert!(!is_complete() && !stage.receiver.look(|worker| worker.is_quiet()));
    stage.shown.permit(usize::MAX);
    stage.until("the long message", is_complete);
    assert!(into.to_vec() == data.to_vec());
    let counters = stage.receiver.look(|worker| worker.counters());
    let pieces =
        [counters.tasks_in_waits, counters.tasks_by_progress_thread].map(|steps| steps.pieces);
    assert!(pieces[0] >= 1 && pieces[1] > 1, "{counters:?}");
    assert!(!counters.tasks_by_progress_thread.copying.is_zero(), "{counters:?}");
}

/// True if this machine has no more runnable threads than cores.
fn is_quiet() -> bool {
    let cores = thread::available_parallelism().expect("cores").get();
    Runnable::open().and_then(|runnable| runnable.count()).is_some_and(|count| count <= cores)
}

/// Two processes, of which one reads messages from the other's memory.
struct CopyStage {
    /// Excludes other tests, whose threads would want the cores.
    _alone: MutexGuard<'static, ()>,
    network: SimNetwork,
    sender: Arc<Progress>,
    receiver: Arc<Progress>,
    shown: Arc<Shown>,
}

impl CopyStage {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let network = SimNetwork::new(0);
        let usual = SimPath::default();
        let capabilities = Capabilities { remote_read: true, ..usual.capabilities };
        network.set_usual_path(SimPath { capabilities, ..usual });
        let shown = Arc::new(Shown::default());
        let rail = Watched { rail: network.rail(RECEIVER), shown: Arc::clone(&shown) };
        let rails: Vec<Box<dyn Rail>> = vec![Box::new(rail)];
        let worker =
            Worker::new(Engine::new(Config::new(2)), RECEIVER, 2, rails, Box::new(RankDirectory));
        let receiver = Progress::new(worker, Policy::for_node(1, 4)).expect("descriptors");
        let sender = process(&network, SENDER.0);
        Self { _alone: alone, network, sender, receiver, shown }
    }

    fn receive(&self, tag: i32, bytes: usize) -> (OpId, Region) {
        let into = Region::owned(bytes);
        let submit =
            |worker: &mut Worker| worker.engine.submit_receive(Some(SENDER), selector(tag), &into);
        (self.receiver.submit(submit), into)
    }

    fn send_long(&self) -> Region {
        let data = Region::from_box((0..BYTES).map(|at| (at / 7) as u8).collect());
        self.sender.submit(|worker| {
            let op = worker.engine.submit_send(RECEIVER, envelope(LONG), &data, SendMode::Standard);
            worker.engine.release(op);
        });
        data
    }

    /// Starts a thread of the receiver that waits for an operation.
    fn wait_for(&self, op: OpId) -> thread::JoinHandle<Completion> {
        let receiver = Arc::clone(&self.receiver);
        thread::spawn(move || {
            receiver.wait_for(PATIENCE, |worker| worker.take_or_await(op)).expect("in good time")
        })
    }

    fn until_it_ends(&self, waiting: thread::JoinHandle<Completion>) -> Completion {
        self.until("the end of a wait", || waiting.is_finished());
        waiting.join().unwrap()
    }

    /// Advances simulated time and polls the sender until `is_so`.
    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "still not: {what}");
            self.network.step();
            self.sender.test(|_| ());
            self.receiver.wake();
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// State shared by the test and the threads that copy.
struct Shown {
    /// Ranges of bytes that were copied: start and end.
    pieces: Mutex<Vec<(u64, u64)>>,
    /// Number of pieces that may still be copied; further copies wait.
    permits: Mutex<usize>,
    permitted: Condvar,
    /// True if a copying thread waits a while for a second one.
    meets: AtomicBool,
    /// Offset from which on the system refuses reads.
    refused: Mutex<Option<u64>>,
    in_hand: AtomicUsize,
    /// Largest number of concurrent copies.
    most: AtomicUsize,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            pieces: Mutex::default(),
            permits: Mutex::new(usize::MAX),
            permitted: Condvar::new(),
            meets: AtomicBool::new(false),
            refused: Mutex::default(),
            in_hand: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }
}

impl Shown {
    fn permit(&self, pieces: usize) {
        *self.permits.lock().unwrap() = pieces;
        self.permitted.notify_all();
    }

    fn await_permit(&self) {
        let permits = self.permits.lock().unwrap();
        let is_none = |permits: &mut usize| *permits == 0;
        // The limit lets the test fail, rather than hang, if a copying thread wrongly holds the worker's lock.
        let waited = self.permitted.wait_timeout_while(permits, PATIENCE, is_none).unwrap();
        let mut permits = waited.0;
        *permits = permits.saturating_sub(1);
    }

    fn meet(&self) {
        let begun = Instant::now();
        let waits = || self.meets.load(Ordering::SeqCst) && begun.elapsed() < SOON;
        while waits() && self.most.load(Ordering::SeqCst) < 2 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the ranges copied since the last call: more than one if bytes are missing or were copied twice.
    fn take_pieces(&self) -> Vec<(u64, u64)> {
        let mut pieces = std::mem::take(&mut *self.pieces.lock().unwrap());
        pieces.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in pieces {
            match joined.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => joined.push((start, end)),
            }
        }
        joined
    }
}

struct Gated {
    remote_reader: Arc<dyn RemoteReader>,
    shown: Arc<Shown>,
}

impl RemoteReader for Gated {
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        let Self { remote_reader, shown } = self;
        let in_hand = shown.in_hand.fetch_add(1, Ordering::SeqCst) + 1;
        shown.most.fetch_max(in_hand, Ordering::SeqCst);
        shown.meet();
        shown.await_permit();
        let end = offset + local.len() as u64;
        let copied = match *shown.refused.lock().unwrap() {
            Some(refused) if end > refused => Err(RailError::Unreachable("refused".into())),
            _ => remote_reader.remote_read(remote, offset, local),
        };
        if copied.is_ok() {
            shown.pieces.lock().unwrap().push((offset, end));
        }
        shown.in_hand.fetch_sub(1, Ordering::SeqCst);
        copied
    }
}

/// A rail that records remote reads.
struct Watched {
    rail: SimRail,
    shown: Arc<Shown>,
}

impl Rail for Watched {
    passes_on!(rail: name, address, connect, disconnect, post, poll, descriptors, prepare_sleep, finish_sleep, is_flushed);

    fn remote_reader(&self, peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        let remote_reader = self.rail.remote_reader(peer)?;
        Some(Arc::new(Gated { remote_reader, shown: Arc::clone(&self.shown) }))
    }
}

/// On the simulated rail a rank is its own address.
struct RankDirectory;

impl Directory for RankDirectory {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }
}

const SENDER: PeerId = PeerId(0);
const RECEIVER: PeerId = PeerId(1);
const LONG: i32 = 1;
const SHORT: i32 = 2;
/// Length of a long message, not a multiple of the piece size.
const BYTES: usize = (5 << 20) + 77;
/// Number of rounds in which waiting threads would certainly help once.
const QUIET_ROUNDS: u32 = 100;
const SOON: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);
