//! Traffic and queues of this rank, for a launcher that watches the job.
//!
//! Nothing is counted until a launcher asks. From then on a send observer in each engine counts messages, and a thread
//! looks at short intervals if threads of the application are in the library. Both end some time after the last request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use boot::{RankLoad, Reach, SentTo};
use engine::{Engine, Envelope, SendObserver};
use progress::{Progress, Worker};
use tracing::debug;
use wire::PeerId;

use crate::instance::Instance;

/// Returns the counts of an instance, which go on for `watch`.
pub(crate) fn of(instance: &Arc<Instance>, watch: Duration) -> RankLoad {
    let counts = watched(instance, watch);
    let mut load = RankLoad {
        at_us: counts.began.elapsed().as_micros() as u64,
        samples: counts.samples.load(Ordering::Relaxed),
        samples_in_mpi: counts.samples_in_mpi.load(Ordering::Relaxed),
        sent: counts.sent(),
        ..RankLoad::default()
    };
    for vci in instance.all() {
        let (queues, paths, down) = vci.look(|worker| {
            let queues = worker.engine.queue_lengths();
            (queues, worker.path_statistics(), worker.peers_without_link().len())
        });
        load.posted += queues.receives as u64;
        load.unexpected += queues.messages as u64;
        load.unexpected_bytes += queues.message_bytes as u64;
        load.queued += queues.sends as u64;
        load.down += down as u64;
        for (peer, path) in paths {
            let sent = &mut load.sent[counts.place(peer)];
            sent.retransmitted += path.retransmitted;
            sent.round_trip_us = sent.round_trip_us.max(path.round_trip.as_micros() as u64);
        }
    }
    let is_used = |sent: &SentTo| sent.messages > 0 || sent.round_trip_us > 0;
    load.sent.retain(is_used);
    load.sent.sort_by_key(|sent| std::cmp::Reverse(sent.bytes));
    load
}

/// Counts of an instance that is watched.
#[derive(Debug)]
struct LoadCounts {
    began: Instant,
    /// Time at which the counting ends.
    until: Mutex<Instant>,
    samples: AtomicU64,
    samples_in_mpi: AtomicU64,
    /// Place of each peer of the job.
    places: Vec<u32>,
    /// Traffic to each place: the own node, other jobs, and the sites.
    traffic: Vec<PlaceTraffic>,
}

/// Messages to the peers of one place.
#[derive(Debug)]
struct PlaceTraffic {
    reach: Reach,
    rank: u32,
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// Place of the peers on the own node.
const OWN_NODE: u32 = 0;
/// Place of the peers of other jobs.
const OTHER_JOBS: u32 = 1;
/// Place of the first site.
const FIRST_SITE: u32 = 2;

impl LoadCounts {
    fn new(instance: &Instance, until: Instant) -> Self {
        let own = instance.own_peer();
        let (own_node, own_site) = (instance.node(own), instance.site(own));
        let place = |peer: PeerId| match instance.node(peer) == own_node {
            true => OWN_NODE,
            false => FIRST_SITE + instance.site(peer),
        };
        let of = |reach, rank| PlaceTraffic {
            reach,
            rank,
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        let mut first_of_site = vec![0; instance.sites().sites() as usize];
        for peer in instance.job_peers().collect::<Vec<_>>().into_iter().rev() {
            first_of_site[instance.site(peer) as usize] = peer.0;
        }
        let sites = (0..).zip(first_of_site).map(|(site, first)| match site == own_site {
            true => of(Reach::Site, first),
            false => of(Reach::Far, first),
        });
        let near = [of(Reach::Node, own.0), of(Reach::OtherJob, 0)];
        Self {
            began: Instant::now(),
            until: Mutex::new(until),
            samples: AtomicU64::new(0),
            samples_in_mpi: AtomicU64::new(0),
            places: instance.job_peers().map(place).collect(),
            traffic: near.into_iter().chain(sites).collect(),
        }
    }

    fn place(&self, peer: PeerId) -> usize {
        *self.places.get(peer.0 as usize).unwrap_or(&OTHER_JOBS) as usize
    }

    fn note(&self, peer: PeerId, bytes: u64) {
        let to = &self.traffic[self.place(peer)];
        to.messages.fetch_add(1, Ordering::Relaxed);
        to.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sent(&self) -> Vec<SentTo> {
        let sent = |to: &PlaceTraffic| SentTo {
            reach: to.reach,
            rank: to.rank,
            messages: to.messages.load(Ordering::Relaxed),
            bytes: to.bytes.load(Ordering::Relaxed),
            ..SentTo::default()
        };
        self.traffic.iter().map(sent).collect()
    }

    fn until(&self) -> MutexGuard<'_, Instant> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the threads of the application until the counting ends.
    fn sample(&self, instance: &Weak<Instance>) {
        while Instant::now() < *self.until() {
            thread::sleep(SAMPLE_EVERY);
            let Some(instance) = instance.upgrade() else { return };
            let is_in_mpi = instance.all().any(Progress::is_in_use);
            self.samples.fetch_add(1, Ordering::Relaxed);
            self.samples_in_mpi.fetch_add(is_in_mpi.into(), Ordering::Relaxed);
        }
    }
}

/// Counts the sends of one engine, for an observer that was there before as well.
#[derive(Debug)]
struct LoadObserver {
    counts: Arc<LoadCounts>,
    former: Option<Box<dyn SendObserver>>,
}

impl LoadObserver {
    fn begin(counts: &Arc<LoadCounts>, engine: &mut Engine) {
        let former = engine.take_send_observer();
        engine.set_send_observer(Box::new(Self { counts: Arc::clone(counts), former }));
    }
}

impl SendObserver for LoadObserver {
    fn note_send(&mut self, peer: PeerId, envelope: Envelope, bytes: u64) {
        self.counts.note(peer, bytes);
        if let Some(former) = &mut self.former {
            former.note_send(peer, envelope, bytes);
        }
    }

    fn note_access(&mut self, peer: PeerId, bytes: u64) {
        self.counts.note(peer, bytes);
        if let Some(former) = &mut self.former {
            former.note_access(peer, bytes);
        }
    }

    fn into_former(self: Box<Self>) -> Option<Box<dyn SendObserver>> {
        self.former
    }
}

/// Counts of the instance that is watched now.
static WATCHED: Mutex<Option<(Weak<Instance>, Arc<LoadCounts>)>> = Mutex::new(None);

/// Returns the counts of an instance, which begin now or go on.
fn watched(instance: &Arc<Instance>, watch: Duration) -> Arc<LoadCounts> {
    let until = Instant::now() + watch;
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |known: &Weak<Instance>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(instance));
    if let Some((_, counts)) = watched.as_ref().filter(|(known, _)| same(known)) {
        let mut known = counts.until();
        *known = until.max(*known);
        return Arc::clone(counts);
    }
    let counts = Arc::new(LoadCounts::new(instance, until));
    let theirs = Arc::downgrade(instance);
    for vci in instance.all() {
        vci.look(|worker| LoadObserver::begin(&counts, &mut worker.engine));
    }
    *watched = Some((Weak::clone(&theirs), Arc::clone(&counts)));
    let sampled = Arc::clone(&counts);
    let spawned = cpu::without_signals(|| {
        let thread = thread::Builder::new().name("canele-load".into()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            loop {
                sampled.sample(&theirs);
                if end(&theirs, &sampled) {
                    return;
                }
            }
        })
    });
    if let Err(error) = spawned {
        // The messages are counted all the same, until the process ends.
        debug!(%error, "no thread for samples");
    }
    counts
}

/// Ends the counting, unless it was asked to go on meanwhile.
fn end(instance: &Weak<Instance>, counts: &Arc<LoadCounts>) -> bool {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let still = instance.upgrade();
    if still.is_some() && Instant::now() < *counts.until() {
        return false;
    }
    if watched.as_ref().is_some_and(|(_, known)| Arc::ptr_eq(known, counts)) {
        *watched = None;
    }
    // Under the lock, so that nobody begins meanwhile.
    let restore = |worker: &mut Worker| {
        let former = worker.engine.take_send_observer().and_then(|observer| observer.into_former());
        former.into_iter().for_each(|former| worker.engine.set_send_observer(former));
    };
    still.iter().flat_map(|instance| instance.all()).for_each(|vci| vci.look(restore));
    true
}

/// Interval of the samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);
/// Stack of the thread that samples.
const STACK_BYTES: usize = 128 << 10;
