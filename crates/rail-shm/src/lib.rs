//! The rail between processes of one node: rings in shared memory, and remote reads by the kernel.
//!
//! Each process owns an *inbox*, a segment with a few words, and a *doorbell*, a pipe. For each peer it sends to, it
//! creates a ring and announces it in the peer's inbox. The peer attaches and creates its own ring in return. A
//! process about to sleep says so in its inbox; a peer that writes afterwards rings the doorbell.

mod attach;
mod balance;
mod cursors;
mod inbox;
mod liveness;
#[cfg(test)]
mod loom_model;
mod migrate;
mod node;
mod nt_stores;
mod pool;
mod process_memory;
mod ring;
mod segment;
mod shared;
mod shared_memory;
mod shm_coll;
mod shortage;
mod sleep;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use auth::OtherJobs;
use cost::{Cost, HostCost};
use lock::Uncancelled;
use rail::{
    Affinities, Event, FRAME_MAX_OF_ALL, Fault, Neighbours, Post, Rail, RailError, ReadinessProbe,
    RemoteReader,
};
use wire::{Capabilities, FIRST_CREDIT_BYTES, Frame, Incoming, PeerId, ProcessId};

use crate::cursors::{Cursors, GONE};
use crate::inbox::{
    ATTENTIVE_AT, CORE_AT, CORES_AT, COUNT_AT, INBOX_LEN, JOB_AT, OWN_ADDRESS_AT, PEERS_MAX,
    TOKEN_AT,
};
use crate::liveness::Liveness;
use crate::migrate::Migrator;
use crate::node::Address;
pub use crate::node::{machine_identity, node_identity};
use crate::pool::{CHUNK_FRAME_MAX, LINE, Pool};
use crate::process_memory::ProcessMemory;
use crate::ring::{Arrival, Consumer, Producer};
use crate::segment::{Segment, open_descriptor};
use crate::shared::Shared;
pub use crate::shared_memory::SharedMemory;
pub use crate::shm_coll::{Operations, ShmColl, ShmCollInvitation};
use crate::shortage::Shortage;
use crate::sleep::Fences;

/// Configuration of the rail.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// Rank of this process.
    pub rank: PeerId,
    /// Distinguishes this job from others of the same user: its number, and zeros.
    pub job: [u8; 16],
    /// Cost of operations on this machine.
    pub host: HostCost,
}

/// The rail of one process to its neighbours on the node.
#[derive(Debug)]
pub struct ShmRail {
    rank: PeerId,
    address: Address,
    job: [u8; 16],
    other_jobs: OtherJobs,
    inbox: Segment,
    doorbell: File,
    /// Write end, which peers open through `/proc`.
    _doorbell_write: OwnedFd,
    announced: u32,
    /// CPU core that this process last published.
    core: u32,
    migrator: Migrator,
    /// Chunks for the long frames of all links.
    pool: Pool,
    /// Cost of shared memory on this machine, the same for all neighbours.
    cost: Cost,
    links: Vec<ShmLink>,
    /// `by_peer[peer]` = index into `links`, plus one.
    by_peer: Vec<u32>,
    /// Doorbells of neighbours without a link.
    doorbells: HashMap<PeerId, File>,
    events: VecDeque<ShmReport>,
    /// Lack of a resource for rings that neighbours have announced.
    shortage: Shortage,
    /// Time of the next liveness check of the neighbours.
    next_look: Instant,
    /// Number of consecutive polls that found nothing.
    idle_polls: u32,
    /// Readiness probe, once requested.
    cursors: Option<Arc<Cursors>>,
}

/// A link to a peer.
#[derive(Debug)]
struct ShmLink {
    peer: PeerId,
    pid: i32,
    liveness: Liveness,
    producer: Producer,
    /// `None` until the peer has announced its ring.
    consumer: Option<Consumer>,
    inbox: Segment,
    doorbell: File,
    fences: Fences,
    remote_read: bool,
    /// False until a process of another job has proved its key.
    is_proved: bool,
    refused: bool,
    down: bool,
    /// True once the peer is gone and all it has sent was read.
    is_over: bool,
    /// Short frames received since the last post, or since the last check of the distance to the producer.
    streamed: usize,
    /// Time until which the ring is not read.
    rest: Option<Instant>,
}

#[derive(Debug)]
enum ShmReport {
    Up(PeerId, Capabilities),
    Down(PeerId, Fault),
    Hampered(String),
}

impl ShmRail {
    /// Creates the inbox of this process.
    ///
    /// # Errors
    /// The kernel gives no shared memory or no pipe.
    pub fn new(config: ShmConfig) -> Result<Self, RailError> {
        let failed = |call| move |source| RailError::System { call, source };
        let mut inbox =
            Segment::create(INBOX_LEN).map_err(failed("shared memory for the inbox"))?;
        let (doorbell, doorbell_write) = pipe().map_err(failed("pipe for the doorbell"))?;
        let mut token = [0; 16];
        getrandom::fill(&mut token)
            .map_err(|error| failed("getrandom")(io::Error::other(error.to_string())))?;
        inbox.write(TOKEN_AT, &token);
        inbox.write(JOB_AT, &config.job);
        inbox.word32(CORE_AT).store(NO_CORE, Ordering::Relaxed);
        sleep::init_inbox(&inbox);
        inbox.word64(OWN_ADDRESS_AT).store(inbox.address(TOKEN_AT), Ordering::Release);
        let address = Address {
            pid: std::process::id() as i32,
            inbox: inbox.descriptor(),
            doorbell: doorbell_write.as_raw_fd(),
            token,
            identity: node_identity(),
        };
        let host = config.host;
        let (number, _) = config.job.split_at(8);
        let job = number.iter().rev().fold(0, |job, byte| job << 8 | u64::from(*byte));
        Ok(Self {
            rank: config.rank,
            address,
            job: config.job,
            other_jobs: OtherJobs::new(ProcessId { job, rank: config.rank.0 }),
            inbox,
            doorbell,
            _doorbell_write: doorbell_write,
            announced: 0,
            core: NO_CORE,
            migrator: Migrator::after(MEETINGS),
            pool: Pool::default(),
            cost: host.shared_memory(HostCost::NEIGHBOUR_NS),
            links: Vec::new(),
            by_peer: Vec::new(),
            doorbells: HashMap::new(),
            events: VecDeque::new(),
            shortage: Shortage::default(),
            next_look: Instant::now(),
            idle_polls: 0,
            cursors: None,
        })
    }

    /// Publishes the CPU core of this thread to the neighbours.
    fn publish_core(&mut self) -> u32 {
        // SAFETY: `sched_getcpu` takes no arguments and touches no memory.
        let core = unsafe { libc::sched_getcpu() } as u32;
        if core != self.core {
            self.core = core;
            self.inbox.word32(CORE_AT).store(core, Ordering::Relaxed);
        }
        core
    }

    fn link(&self, peer: PeerId) -> Option<usize> {
        let index = *self.by_peer.get(peer.0 as usize)?;
        (index as usize).checked_sub(1)
    }

    /// Wakes the peer if it sleeps.
    fn ring_doorbell(&self, index: usize) {
        self.links[index].ring_doorbell();
    }

    /// Reads a bounded number of frames from one ring.
    #[inline]
    fn poll_link(&mut self, index: usize, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let link = &mut self.links[index];
        if link.down || link.rests() {
            return false;
        }
        let peer = link.peer;
        let (mut frames, mut short) = (0, 0);
        if let Some(consumer) = &mut link.consumer {
            let mut show = |arrival: Arrival<'_>| match arrival {
                Arrival::Whole(bytes) => {
                    short += usize::from(bytes.len() <= SHORT_MAX);
                    sink(Event::Frame { peer, bytes });
                }
                Arrival::Begun { bytes, len, taken } => {
                    sink(Event::Begun { peer, bytes, len, taken });
                }
                Arrival::Rest(bytes) => sink(Event::Rest { peer, bytes: Incoming::Here(bytes) }),
            };
            while frames < BURST && consumer.pop(&mut show) {
                frames += 1;
            }
            link.note(short);
        }
        let room = link.refused && self.has_room(index);
        if room {
            self.links[index].refused = false;
            sink(Event::Room { peer });
        }
        if frames > 0 {
            self.answer_wanted(index);
        }
        frames > 0 || room
    }

    fn has_room(&mut self, index: usize) -> bool {
        self.links[index].producer.has_room_for_any() && self.pool.has_room(index)
    }

    /// Wakes a producer that sleeps for room, if there is room now.
    #[inline]
    fn answer_wanted(&mut self, index: usize) {
        let link = &mut self.links[index];
        if let Some(consumer) = &mut link.consumer
            && link.fences.give_room(consumer)
        {
            self.ring_doorbell(index);
        }
    }

    /// Writes a long frame to a chunk, with its body line-aligned, and the chunk's position to the ring.
    #[cold]
    fn post_long(&mut self, index: usize, frame: &Frame) -> Post {
        if !self.links[index].producer.has_room_for_place() {
            return self.refuse(index);
        }
        let chunk = match self.pool.take(index) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return self.refuse(index),
            Err(error) => {
                let link = &mut self.links[index];
                link.end();
                let fault = Fault::Lost(format!("no shared memory for long messages: {error}"));
                self.events.push_back(ShmReport::Down(link.peer, fault));
                return Post::Full;
            }
        };
        let producer = &mut self.links[index].producer;
        let lead = LINE - frame.head.len() % LINE;
        self.pool.write((chunk, lead, frame.len()), |pool, at, start, past| {
            producer.push_long(frame, (chunk, start), (pool, at), past);
        });
        self.ring_doorbell(index);
        Post::Done
    }

    fn refuse(&mut self, index: usize) -> Post {
        self.links[index].refused = true;
        Post::Full
    }

    fn any_link_has_events(&mut self) -> bool {
        (0..self.links.len()).any(|index| {
            let link = &self.links[index];
            let arrived = link.consumer.as_ref().is_some_and(Consumer::has_events);
            !link.down && (arrived || (link.refused && self.has_room(index)))
        })
    }

    /// Runs the liveness check from time to time, for processes that only poll and never sleep.
    #[inline]
    fn note_idle_poll(&mut self) {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        if self.idle_polls.is_multiple_of(POLLS_PER_CLOCK) && Instant::now() >= self.next_look {
            self.check_peers();
        }
    }

    /// Finds peers that have left and, at a long interval because of the system calls, peers that have died.
    #[cold]
    fn check_peers(&mut self) {
        let now = Instant::now();
        let look = now >= self.next_look;
        if look {
            self.next_look = now + LOOK_EVERY;
        }
        for (index, link) in self.links.iter_mut().enumerate().filter(|(_, link)| !link.down) {
            let consumer = link.consumer.as_ref();
            let fault = if !link.is_proved && link.producer.is_refused() {
                Fault::Unreachable(REFUSED.into())
            } else if consumer.is_some_and(Consumer::is_broken) {
                Fault::Lost(format!("process {} ended with a message under way", link.pid))
            } else if consumer.is_some_and(Consumer::is_closed) {
                Fault::Closed
            } else if look && link.liveness.has_ended() {
                Fault::Lost(format!("process {} has ended", link.pid))
            } else {
                continue;
            };
            if !consumer.is_some_and(Consumer::has_events) {
                link.end();
                link.is_over = true;
                self.pool.forget(index);
                self.events.push_back(ShmReport::Down(link.peer, fault));
            }
        }
    }
}

impl ShmLink {
    /// Marks the link as down.
    fn end(&mut self) {
        self.down = true;
        if let Some(consumer) = &self.consumer {
            consumer.leave(GONE);
        }
    }

    /// Returns the CPU core on which the peer was last seen, if it is awake.
    fn core(&self) -> Option<u32> {
        let is_awake = !self.down && !sleep::is_asleep(&self.inbox);
        is_awake.then(|| self.inbox.word32(CORE_AT).load(Ordering::Relaxed))
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    fn ring_doorbell(&self) {
        if self.fences.must_wake(&self.inbox) {
            self.wake();
        }
    }

    /// Wakes a sleeping peer, which may not know of this link yet.
    fn introduce(&self) {
        if Fences::Sender.must_wake(&self.inbox) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        ring(&self.doorbell);
    }

    /// True if the ring is not to be read for now.
    #[inline]
    fn rests(&mut self) -> bool {
        match self.rest {
            None => false,
            Some(until) => {
                let rests = Instant::now() < until;
                if !rests {
                    self.rest = None;
                }
                rests
            }
        }
    }

    /// Counts short frames and pauses reading if the consumer follows the producer too closely. A close consumer
    /// takes lines that the producer is about to write, so both wait for cache misses. After a short pause the
    /// producer is ahead and stays there. A peer that waits for replies is not delayed.
    #[inline]
    fn note(&mut self, short_frames: usize) {
        self.streamed += short_frames;
        if self.streamed >= STREAM {
            self.streamed = 0;
            if self.consumer.as_ref().is_some_and(Consumer::is_close) {
                self.rest = Some(Instant::now() + REST);
            }
        }
    }
}

impl Rail for ShmRail {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn address(&self) -> Vec<u8> {
        self.address.emit()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        if self.usable_link(peer).is_some() {
            return Ok(());
        }
        let malformed = || RailError::Unreachable("a malformed address".into());
        let address = Address::parse(address).ok_or_else(malformed)?;
        let is_proved = self.other_jobs.process(peer).is_none();
        self.attach(peer, &address, is_proved).map(drop)
    }

    fn add_peer(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        self.other_jobs.add(peer, process, key);
    }

    fn disconnect(&mut self, peer: PeerId) {
        let Some(index) = self.link(peer).filter(|&index| !self.links[index].down) else { return };
        self.links[index].end();
        self.links[index].producer.close();
        self.pool.forget(index);
        self.ring_doorbell(index);
    }

    #[inline]
    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let Some(index) = self.link(peer) else { return Post::Full };
        let link = &mut self.links[index];
        link.streamed = 0;
        if frame.len() > self.pool.ring_max() {
            return self.post_long(index, frame);
        }
        if !link.producer.push(frame) {
            return self.refuse(index);
        }
        link.ring_doorbell();
        Post::Done
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = self.attach_announced();
        while let Some(report) = self.events.pop_front() {
            moved = true;
            match report {
                ShmReport::Up(peer, capabilities) => {
                    sink(Event::Up { peer, capabilities });
                    sink(Event::Cost { peer, cost: self.cost });
                }
                ShmReport::Down(peer, fault) => {
                    sink(Event::Down { peer, fault });
                    return true;
                }
                ShmReport::Hampered(reason) => sink(Event::Hampered { reason }),
            }
        }
        for index in 0..self.links.len() {
            moved |= self.poll_link(index, sink);
        }
        if moved {
            self.idle_polls = 0;
        } else {
            self.note_idle_poll();
        }
        moved
    }

    fn remote_reader(&self, peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        let link = &self.links[self.link(peer)?];
        link.remote_read.then(|| -> Arc<dyn RemoteReader> { Arc::new(ProcessMemory(link.pid)) })
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        Some(self)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.doorbell.as_fd()]
    }

    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        if self.cursors.is_none() {
            let cursors = Cursors::new(&self.inbox, self.announced)?;
            let live = self.links.iter_mut().filter(|link| !link.down);
            for consumer in live.filter_map(|link| link.consumer.as_mut()) {
                let at = Arc::clone(consumer.publish_cursor());
                cursors.add(consumer.segment(), &at);
            }
            self.cursors = Some(Arc::new(cursors));
        }
        self.cursors
            .as_ref()
            .map(|cursors| -> Arc<dyn ReadinessProbe> { Arc::<Cursors>::clone(cursors) })
    }

    fn prepare_sleep(&mut self) -> bool {
        self.check_peers();
        // Any reader may return chunks to the pool, so room is wanted in all rings.
        let wanted = self.links.iter().any(|link| link.refused && !link.down);
        let starved = self.links.iter().filter(|_| wanted).map(|link| &link.producer);
        let by_sleeper = self.links.iter().any(|link| link.fences == Fences::Sleeper);
        let fences = if by_sleeper { Fences::Sleeper } else { Fences::Sender };
        sleep::begin_sleep(fences, &self.inbox, starved);
        let count = self.inbox.word32(COUNT_AT).load(Ordering::Acquire).min(PEERS_MAX);
        self.events.is_empty() && self.announced == count && !self.any_link_has_events()
    }

    fn finish_sleep(&mut self) {
        sleep::end_sleep(&self.inbox);
        if self.links.is_empty() {
            // The doorbell of a new peer stays pending until its ring is attached.
            return;
        }
        let mut rings = [0; 64];
        while matches!(rustix::io::read(&self.doorbell, &mut rings), Ok(64)) {}
    }

    fn is_flushed(&self) -> bool {
        true
    }
}

impl Neighbours for ShmRail {
    fn wake(&mut self, peer: PeerId, address: &mut dyn FnMut() -> Option<Vec<u8>>) -> bool {
        if let Some(index) = self.link(peer) {
            self.links[index].wake();
            return true;
        }
        if !self.doorbells.contains_key(&peer) {
            let _uncancelled = Uncancelled::begin();
            let address = address().and_then(|bytes| Address::parse(&bytes));
            let address = address.filter(|one| one.identity == self.address.identity);
            let doorbell = address.and_then(|one| open_descriptor(one.pid, one.doorbell).ok());
            let Some(doorbell) = doorbell else { return false };
            self.doorbells.insert(peer, doorbell);
        }
        if let Some(doorbell) = self.doorbells.get(&peer) {
            ring(doorbell);
        }
        true
    }

    fn set_attentive(&mut self, attentive: bool) {
        self.inbox.word32(ATTENTIVE_AT).store(u32::from(attentive), Ordering::Relaxed);
    }

    fn is_attentive(&self, peer: PeerId, bytes: u64) -> bool {
        self.link(peer).is_some_and(|index| {
            let inbox = &self.links[index].inbox;
            let is_polling = inbox.word32(ATTENTIVE_AT).load(Ordering::Relaxed) != 0;
            is_polling && (bytes >= WORTH_WAKING || !sleep::is_asleep(inbox))
        })
    }

    fn shares_core(&mut self) -> bool {
        let core = self.publish_core();
        let Self { links, migrator, rank, .. } = self;
        let mut here = links.iter().filter(|link| link.core() == Some(core));
        let Some(neighbour) = here.next() else { return false };
        if neighbour.peer < *rank || here.any(|link| link.peer < *rank) {
            migrator.note_shared_core(core, links.iter().filter_map(ShmLink::core));
        }
        true
    }

    fn has_neighbour_on(&self, core: u32) -> bool {
        self.links.iter().any(|link| link.core() == Some(core))
    }

    fn compare_cores(&mut self, own: u64) -> Affinities {
        self.publish_core();
        self.inbox.word64(CORES_AT).store(own, Ordering::Relaxed);
        let live = self.links.iter().filter(|link| !link.down);
        let theirs = live.map(|link| link.inbox.word64(CORES_AT).load(Ordering::Relaxed));
        let mut found = Affinities::default();
        for cores in theirs.filter(|cores| *cores != NOT_TOLD) {
            match cores == own {
                true => found.alike += 1,
                false => found.others += 1,
            }
        }
        found
    }
}

impl Drop for ShmRail {
    fn drop(&mut self) {
        for index in 0..self.links.len() {
            self.links[index].producer.close();
            self.ring_doorbell(index);
        }
    }
}

fn ring(doorbell: &File) {
    // A full pipe has woken the peer already. The write cannot raise `SIGPIPE`: this process has opened both ends.
    let _ = rustix::io::write(doorbell, &[1]);
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new and owned by nothing else.
    Ok(unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Value of a process that has not published its core.
const NO_CORE: u32 = u32::MAX;

/// Value of a process that has not published its affinity: the initial value of a segment.
const NOT_TOLD: u64 = 0;

/// Reason why a process of another job has not taken a ring.
const REFUSED: &str = "it has not been told of this process, or of another key";

/// Interval of liveness checks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Consecutive polls on a shared core that are no coincidence.
const MEETINGS: u32 = 64;

/// Number of idle polls per reading of the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// Frames of one peer before the next is polled.
const BURST: usize = 16;

/// Maximum length of a short frame, which fits a few lines.
const SHORT_MAX: usize = 256;

/// Number of short frames between checks of the distance to the producer.
const STREAM: usize = 32;

/// Length from which on a CTS is faster than a remote read even if the peer has to be woken, which takes 10 to 30 µs.
const WORTH_WAKING: u64 = 512 << 10;

/// Pause of reading: a few cache-line transfers between distant cores.
const REST: Duration = Duration::from_nanos(2000);

const _: () = assert!(CHUNK_FRAME_MAX >= FRAME_MAX_OF_ALL);

const CAPABILITIES: Capabilities = Capabilities {
    frame_max: CHUNK_FRAME_MAX,
    inline_max: 4 << 10,
    eager_max: 64 << 10,
    rts_data_max: 0,
    aggregate_max: CHUNK_FRAME_MAX,
    piece_min: CHUNK_FRAME_MAX,
    piece_max: CHUNK_FRAME_MAX,
    credit_bytes: FIRST_CREDIT_BYTES,
    credit_wanted: 1 << 20,
    remote_read: true,
    adapts: false,
    replay: false,
    reopens: false,
    copies: true,
    passes: false,
};
