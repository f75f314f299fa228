//! The rails of a job's processes, wrapped so that they report missed wake-ups.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rail::{
    Event, LoopbackRail, Post, Rail, RailError, RemoteReader, SimLoss, SimNetwork, SimPath, SimRail,
};
use rail_shm::{ShmConfig, ShmRail};
use rail_tcp::{TcpConfig, TcpRail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testing::Random;
use wire::{Frame, PeerId};

use crate::job::lock;
use crate::plan::Plan;

/// Kinds of rails between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailKind {
    /// One or two simulated networks.
    Simulated,
    /// TCP over the loopback interface.
    Tcp,
    /// Shared memory.
    Shm,
}

/// The rails of all processes.
pub struct Rails {
    pub of: Vec<Vec<Box<dyn Rail>>>,
    /// Number of times that a thread of any process slept although an event was pending.
    pub unrung: Arc<AtomicU32>,
    /// A thread that advances simulated time, on simulated networks.
    pub clock: Option<Clock>,
}

/// Opens the rails of each process, and starts the clock of simulated networks.
pub fn open(kind: RailKind, plan: &Plan) -> Rails {
    let ranks = 0..plan.processes;
    let mut clock = None;
    let between: Vec<Vec<Box<dyn Rail>>> = match kind {
        RailKind::Tcp => ranks.clone().map(|rank| vec![tcp(rank)]).collect(),
        RailKind::Shm => ranks.clone().map(|rank| vec![shm(rank)]).collect(),
        RailKind::Simulated => {
            let mut random = plan.seed_of(&[5]);
            let names = random.pick(&[&["sim"][..], &["sim", "sim1"]]);
            // Links of one kind have the same credit.
            let credit_bytes = random.pick(&[16 << 10, 1 << 20]);
            let networks: Vec<_> =
                names.iter().map(|_| network(&mut random, credit_bytes)).collect();
            let mut ends = Vec::new();
            let mut end = |rank, network: &SimNetwork, name| -> Box<dyn Rail> {
                let end = Arc::new(End::new(network.rail(PeerId(rank))));
                ends.push(Arc::clone(&end));
                Box::new(Ringing { name, end })
            };
            let mut ends_of = |rank| -> Vec<_> {
                networks
                    .iter()
                    .zip(names)
                    .map(|(network, name)| end(rank, network, *name))
                    .collect()
            };
            let all = ranks.clone().map(&mut ends_of).collect();
            clock = Some(Clock::start(networks, ends));
            all
        }
    };
    let unrung = Arc::new(AtomicU32::new(0));
    let attend = |rail| -> Box<dyn Rail> {
        Box::new(Attended { rail, asleep: None, count: Arc::clone(&unrung) })
    };
    let own =
        |rank| -> Box<dyn Rail> { Box::new(LoopbackRail::new(PeerId(rank)).expect("an event")) };
    let of_rank =
        |(rank, rails): (u32, Vec<_>)| [own(rank)].into_iter().chain(rails).map(attend).collect();
    Rails { of: ranks.zip(between).map(of_rank).collect(), unrung, clock }
}

/// A rail that detects missed wake-ups: after a long sleep an event is pending, and no descriptor is readable.
struct Attended {
    rail: Box<dyn Rail>,
    asleep: Option<Instant>,
    count: Arc<AtomicU32>,
}

impl Rail for Attended {
    passes_on!(rail: name, address, connect, disconnect, post, poll, remote_reader, coalesce_within, neighbours, descriptors, is_flushed);

    fn prepare_sleep(&mut self) -> bool {
        self.asleep = Some(Instant::now());
        self.rail.prepare_sleep()
    }

    fn finish_sleep(&mut self) {
        let is_long = self.asleep.take().is_some_and(|since| since.elapsed() >= LONG);
        // The thread that caused the event may be about to signal it.
        let is_unrung = is_long
            && !rings(&*self.rail, Duration::ZERO)
            && !self.rail.prepare_sleep()
            && !rings(&*self.rail, BELL_PATIENCE);
        self.count.fetch_add(u32::from(is_unrung), Ordering::Relaxed);
        self.rail.finish_sleep();
    }
}

fn tcp(rank: u32) -> Box<dyn Rail> {
    let config = TcpConfig {
        interface: Some("127.0.0.1".into()),
        connect_timeout: Duration::from_secs(20),
        ..TcpConfig::new(PeerId(rank), 7, [9; 32])
    };
    Box::new(TcpRail::new(config).expect("a rail over the loopback"))
}

fn shm(rank: u32) -> Box<dyn Rail> {
    Box::new(
        ShmRail::new(ShmConfig {
            rank: PeerId(rank),
            job: [7; 16],
            host: cost::HostCost::default(),
        })
        .expect("shared memory"),
    )
}

/// Creates a network of random latency, bandwidth, depth and loss.
fn network(random: &mut Random, credit_bytes: usize) -> SimNetwork {
    let network = SimNetwork::new(random.next());
    let usual = SimPath::default();
    let late = SimLoss::Delays { per_million: 20_000, by: Duration::from_millis(2) };
    let capabilities = wire::Capabilities {
        remote_read: random.one_in(2),
        rts_data_max: random.pick(&[0, 100_000]),
        credit_bytes,
        ..usual.capabilities
    };
    network.set_usual_path(SimPath {
        latency: Duration::from_micros(random.pick(&[1, 20, 400])),
        bandwidth_bytes_per_s: random.pick(&[None, Some(100_000_000), Some(1_250_000_000)]),
        depth: random.pick(&[1, 4]),
        loss: random.pick(&[SimLoss::Never, late]),
        capabilities,
        ..usual
    });
    network
}

/// An end of a simulated network that signals events through a pipe, as real rails do.
struct End {
    rail: Mutex<SimRail>,
    asleep: AtomicBool,
    heard: PipeReader,
    bell: PipeWriter,
}

impl End {
    fn new(rail: SimRail) -> Self {
        let (heard, bell) = std::io::pipe().expect("a pipe");
        Self { rail: Mutex::new(rail), asleep: AtomicBool::new(false), heard, bell }
    }

    /// Wakes a sleeper that has an event pending, once.
    fn ring(&self) {
        let has_events = !lock(&self.rail).prepare_sleep();
        if has_events && self.asleep.swap(false, Ordering::SeqCst) {
            (&self.bell).write_all(&[1]).expect("room in the pipe");
        }
    }
}

/// The rail of a process on a simulated network.
struct Ringing {
    name: &'static str,
    end: Arc<End>,
}

impl Rail for Ringing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> Vec<u8> {
        lock(&self.end.rail).address()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        lock(&self.end.rail).connect(peer, address)
    }

    fn disconnect(&mut self, peer: PeerId) {
        lock(&self.end.rail).disconnect(peer);
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        lock(&self.end.rail).post(peer, frame)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        lock(&self.end.rail).poll(sink)
    }

    fn remote_reader(&self, peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        lock(&self.end.rail).remote_reader(peer)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.end.heard.as_fd()]
    }

    fn prepare_sleep(&mut self) -> bool {
        self.end.asleep.store(true, Ordering::SeqCst);
        lock(&self.end.rail).prepare_sleep()
    }

    fn finish_sleep(&mut self) {
        if !self.end.asleep.swap(false, Ordering::SeqCst) {
            let mut byte = [0];
            (&self.end.heard).read_exact(&mut byte).expect("the bell's byte");
        }
    }

    fn is_flushed(&self) -> bool {
        lock(&self.end.rail).is_flushed()
    }
}

/// Makes simulated time pass.
pub struct Clock {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    fn start(networks: Vec<SimNetwork>, ends: Vec<Arc<End>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                networks.iter().for_each(|network| network.advance(TICK));
                ends.iter().for_each(|end| end.ring());
                thread::sleep(TICK);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the clock goes on");
        }
    }
}

fn rings(rail: &dyn Rail, limit: Duration) -> bool {
    let descriptors = rail.descriptors();
    let mut bells: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|bell| PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN))
        .collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    poll(&mut bells, Some(&limit)).expect("poll") > 0
}

/// Step of simulated time.
const TICK: Duration = Duration::from_micros(50);

/// Sleep after which an event must be pending, as no thread of the test stays away so long.
///
/// A thread that was not woken polls by itself after half a second.
const LONG: Duration = Duration::from_millis(400);

/// Time by which a busy machine may delay a thread that signals.
const BELL_PATIENCE: Duration = Duration::from_secs(20);
