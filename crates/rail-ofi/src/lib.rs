//! The rail over libfabric: fast networks such as InfiniBand, Omni-Path, Slingshot and EFA.
//!
//! One connectionless endpoint (`FI_EP_RDM`) per rail. The library is loaded at run time. Every message is copied into
//! a buffer of the endpoint, which may be registered memory, and received into another. A connection of the rail is
//! the numbered messages between two endpoints. It begins with the handshake of `auth`, whose first message proves
//! the job's secret already, and each later one carries a random key (`message::Head`). Frames are not encrypted:
//! the rail leaves peers alone whose links must be ([`auth::Encryption`]).
#![deny(unsafe_code)]

mod connection;
mod fabric;
mod handshake;
#[cfg(test)]
mod hostile_tests;
mod links;
mod message;
mod network;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use auth::{Credentials, Encryption, Keyring, Secret};
use connect::{Links, RailLink};
use lock::Uncancelled;
use rail::{Clock, Event, Fault, Post, Rail, RailError, Refusal};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tracing::debug;
use wire::{Capabilities, FIRST_CREDIT_BYTES, Frame, PeerId, ProcessId};

use crate::connection::OfiConnection;
use crate::fabric::{Destination, Endpoint, Provider, Received};
use crate::message::{FRAME_MAX, Head, emit_address, parse_address, shown};

pub use network::{OfiNetwork, has_fast_device};

/// Configuration of the rail.
#[derive(Clone)]
pub struct OfiConfig {
    /// This process.
    pub rank: PeerId,
    /// The job's number, the same in all its processes.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// Time for which a peer is tried, and in which a caller must prove itself.
    pub connect_timeout: Duration,
    /// Links that must be encrypted, which this rail does not open.
    pub encryption: Encryption,
}

/// The rail of one process over libfabric.
pub struct OfiRail {
    // The endpoint is closed before the provider is forgotten.
    endpoint: Endpoint,
    provider: Provider,
    keys: Keyring,
    encryption: Encryption,
    connect_timeout: Duration,
    clock: Clock,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Interval at which the timer rings.
    rings_every: Duration,
    /// Connections by the key that this end has given to the other.
    connections: FxHashMap<u64, OfiConnection>,
    links: Links<u64>,
    /// Addresses of the endpoints of peers, and the provider's numbers for them.
    addresses: FxHashMap<PeerId, Vec<u8>>,
    destinations: BTreeMap<Vec<u8>, Destination>,
    /// Connection of each send.
    owners: Vec<u64>,
    /// Received messages that are not handled yet.
    arrived: VecDeque<Received>,
    /// Connections that replace a link, opened at the next poll.
    newcomers: Vec<u64>,
    /// Keys of connections that have ended, the latest last, with the keys and addresses of their other ends.
    gone: VecDeque<(u64, u64, Destination)>,
    /// Links that have ended or could not be opened, to be reported one by one.
    ended: VecDeque<(PeerId, Fault)>,
    refused: VecDeque<(SocketAddr, Refusal)>,
    /// Number of messages being sent on connections.
    in_flight: usize,
    /// Number of connections with unsent messages of their own, and of links that have refused a frame.
    backlogged: usize,
    deferred: usize,
    /// True if no send has ended since the provider took no more.
    is_blocked: bool,
    polls: u32,
    next_tick: Duration,
}

impl OfiRail {
    /// Opens an endpoint in a network.
    ///
    /// # Errors
    /// The provider refuses.
    pub fn new(network: OfiNetwork, config: OfiConfig) -> Result<Self, RailError> {
        let _uncancelled = Uncancelled::begin();
        let provider = network.provider;
        let unreachable = |text: String| {
            RailError::Unreachable(format!("{} of libfabric: {text}", provider.name()))
        };
        let endpoint = Endpoint::open(&provider, Head::LEN + FRAME_MAX).map_err(unreachable)?;
        let system =
            |call| move |error: rustix::io::Errno| RailError::System { call, source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(system("timerfd_create"))?;
        let watched = [Some(timer.as_fd()), endpoint.wait_descriptor()];
        for (descriptor, data) in watched.into_iter().flatten().zip(0..) {
            let data = epoll::EventData::new_u64(data);
            epoll::add(&epoll, descriptor, data, epoll::EventFlags::IN)
                .map_err(system("epoll_ctl"))?;
        }
        let waits = endpoint.wait_descriptor().is_some();
        debug!(provider = provider.name(), domain = provider.domain(), waits, "OFI: is open");
        let OfiConfig { rank, job, secret, connect_timeout, encryption } = config;
        Ok(Self {
            owners: vec![0; endpoint.sends()],
            endpoint,
            provider,
            keys: Keyring::new(Credentials { rank, job, secret }),
            encryption,
            connect_timeout,
            clock: Clock::new(),
            epoll,
            timer,
            rings_every: Duration::ZERO,
            connections: FxHashMap::default(),
            links: Links::new(rank, connect_timeout),
            addresses: FxHashMap::default(),
            destinations: BTreeMap::new(),
            arrived: VecDeque::new(),
            newcomers: Vec::new(),
            gone: VecDeque::new(),
            ended: VecDeque::new(),
            refused: VecDeque::new(),
            in_flight: 0,
            backlogged: 0,
            deferred: 0,
            is_blocked: false,
            polls: 0,
            next_tick: Duration::ZERO,
        })
    }

    /// Interval at which this process must poll though nothing comes; zero if it need not.
    fn polls_every(&self) -> Duration {
        let is_stuck = (self.backlogged > 0 || self.deferred > 0) && self.endpoint.is_idle();
        if self.connections.is_empty() && self.links.dialled() == 0 {
            // Peers may call.
            return if self.endpoint.wait_descriptor().is_some() { Duration::ZERO } else { STUCK };
        }
        if is_stuck || self.endpoint.wait_descriptor().is_none() {
            return STUCK;
        }
        if self.links.dialled() > 0 { DIALS } else { TICK }
    }

    /// Has the timer ring at an interval.
    fn ring_every(&mut self, interval: Duration) {
        if interval == self.rings_every {
            return;
        }
        self.rings_every = interval;
        let at =
            Timespec { tv_sec: interval.as_secs() as i64, tv_nsec: interval.subsec_nanos().into() };
        let times = Itimerspec { it_interval: at, it_value: at };
        // Cannot fail for a valid time.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times);
    }
}

impl Rail for OfiRail {
    fn name(&self) -> &'static str {
        "ofi"
    }

    fn address(&self) -> Vec<u8> {
        emit_address(&self.provider, self.endpoint.name())
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        let _uncancelled = Uncancelled::begin();
        if self.links.get(peer).is_some() {
            return Ok(());
        }
        let address = parse_address(&self.provider, address)?;
        if address.len() != self.endpoint.name().len() {
            return Err(RailError::Unreachable("a malformed address".into()));
        }
        if self.encryption.covers(peer) {
            let text = "the link must be encrypted (CANELE_ENCRYPT), and libfabric's are not";
            return Err(RailError::Unreachable(text.into()));
        }
        let now = self.clock.look(Instant::now());
        let seed = RandomState::new().hash_one(peer.0);
        self.links.dial(peer, vec![shown(address)], (now, self.connect_timeout), seed);
        self.addresses.insert(peer, address.to_vec());
        self.dial(now);
        Ok(())
    }

    fn add_peer(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        self.links.add_peer(peer, process < self.keys.process());
        self.keys.add(peer, process, key);
    }

    fn disconnect(&mut self, peer: PeerId) {
        let _uncancelled = Uncancelled::begin();
        match self.links.remove(peer) {
            Some(RailLink::Dialling(_)) => self.drop_dials(peer),
            Some(RailLink::Open { key }) => self.forget(key),
            None => {}
        }
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let _uncancelled = Uncancelled::begin();
        let Some(key) = self.links.open_key(peer) else { return Post::Full };
        self.post_frame(key, frame)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let _uncancelled = Uncancelled::begin();
        self.polls = self.polls.wrapping_add(1);
        let moved = self.ended.is_empty() && self.advance(sink);
        if let Some((peer, fault)) = self.ended.pop_front() {
            sink(Event::Down { peer, fault });
            return true;
        }
        moved
    }

    fn coalesce_within(&self) -> Duration {
        COALESCE_WITHIN
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.epoll.as_fd()]
    }

    fn prepare_sleep(&mut self) -> bool {
        let _uncancelled = Uncancelled::begin();
        let is_waiting =
            self.arrived.is_empty() && self.ended.is_empty() && self.newcomers.is_empty();
        if !is_waiting || !self.refused.is_empty() {
            return false;
        }
        self.ring_every(self.polls_every());
        self.endpoint.wait_descriptor().is_none() || self.endpoint.may_wait()
    }

    fn finish_sleep(&mut self) {
        // The next poll looks at the clock.
        self.polls |= LOOK_EVERY - 1;
        if !self.rings_every.is_zero() {
            let mut rings = [0; 8];
            // Without a ring there is nothing to read.
            let _ = rustix::io::read(&self.timer, &mut rings);
        }
    }

    fn is_flushed(&self) -> bool {
        self.in_flight == 0 && self.backlogged == 0 && self.deferred == 0
    }

    fn is_at_rest(&self) -> bool {
        self.is_flushed() && self.links.dialled() == 0
    }
}

impl Drop for OfiRail {
    fn drop(&mut self) {
        let _uncancelled = Uncancelled::begin();
        self.say_farewell();
    }
}

/// Frames of one link being sent at once.
const LINK_SENDS: usize = 16;
/// Number of polls for each look at the clock.
const LOOK_EVERY: u32 = 64;
/// Interval of keepalive checks.
const TICK: Duration = Duration::from_secs(1);
/// Interval of polls while peers are dialled.
const DIALS: Duration = Duration::from_millis(50);
/// Interval of polls where no descriptor reports what comes, or that a refused message can go.
const STUCK: Duration = Duration::from_millis(1);
/// Time within which messages coalesce: a send takes about as long as two of them.
const COALESCE_WITHIN: Duration = Duration::from_nanos(500);

/// Capabilities of a link. Frames are copied into buffers of the endpoint.
const CAPABILITIES: Capabilities = Capabilities {
    frame_max: FRAME_MAX,
    inline_max: 8 << 10,
    eager_max: 64 << 10,
    rts_data_max: 0,
    aggregate_max: 64 << 10,
    piece_min: 64 << 10,
    piece_max: 64 << 10,
    credit_bytes: FIRST_CREDIT_BYTES,
    credit_wanted: 4 << 20,
    remote_read: false,
    adapts: true,
    replay: false,
    reopens: true,
    copies: true,
    passes: false,
};
