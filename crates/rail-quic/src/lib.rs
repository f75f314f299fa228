//! The QUIC rail: UDP, with a congestion controller that remembers its paths.
//!
//! The rail has one UDP socket per local address and one connection per peer. One bidirectional stream carries the
//! frames, whole and in order. Both ends prove the job's key in the TLS handshake, then exchange their ranks
//! (`hello`). The estimate of a path is stored between jobs and survives idle periods, so a message is sent at the
//! path's rate from its first byte (`congestion`). The rail accepts few bytes ahead of the pace, so that the engine
//! can still send urgent messages first (`frames`).
//!
//! The thread that polls does what the kernel does for TCP: it encrypts, paces, acknowledges and retransmits packets.
//! A process that computes does not poll. An IO thread therefore serves the connections from time to time: it sends
//! keepalives and paced data. It neither delivers frames nor takes the engine's lock. A posted frame counts as
//! flushed once the peer has acknowledged it.
//!
//! A lost packet delays the stream data behind it, as with TCP, and a retransmission may be megabytes long. A second
//! rail with connections of its own overtakes the first while that is busy ([`QuicConfig::passes`]). Bulk and urgent
//! messages then have a congestion window each, as in GridMPI.
//!
//! A connection survives short outages (`keepalive`) and an address change of the end that opened it
//! (`migration`). Between sites either end reopens a lost connection. The hello carries a generation number, so
//! that a connection that only one end has lost is replaced (`hello`).

#[cfg(test)]
mod bottleneck_tests;
mod congestion;
mod connection;
mod controller;
mod dropping;
mod endpoint;
mod first_packet;
mod frames;
mod handshake;
mod hello;
#[cfg(test)]
mod hostile_tests;
mod io_thread;
mod keepalive;
mod key_chain;
mod knowledge;
mod limits;
mod marks;
mod migration;
mod pacer;
#[cfg(test)]
mod reopening_tests;
mod reports;
mod settings;
mod socket;
mod strangers;
mod tail_duplicate;
#[cfg(test)]
mod unauthenticated_tests;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ::lock::Uncancelled;
use auth::Identity;
use connect::Patience;
use cost::CostStore;
use netpath::{Interface, QUIC_NAME, interfaces};
use rail::{Event, PathStatistics, Post, Rail, RailError, ReadinessProbe, Sockets};
use relay::Routes;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
#[cfg(doc)]
use wire::Capabilities;
use wire::{Frame, PeerId, ProcessId};

use self::endpoint::{EndpointDriver, Limits, lock, open_sockets, take_sockets};
pub use self::frames::{Inbox, Outbox};
use self::hello::LocalEnd;
use self::io_thread::IoThread;
use self::key_chain::KeyChain;
pub use self::limits::{QuicBuffers, QuicNeeds};
use self::socket::Socket;

/// Configuration of the rail.
#[derive(Clone, Debug)]
pub struct QuicConfig {
    /// Rank of this process.
    pub rank: PeerId,
    /// Number of the job, the same in all its processes.
    pub job: u64,
    /// Certificate and key that authenticate the processes of the job.
    pub identity: Identity,
    /// Comma-separated list of the only interfaces or addresses to listen on.
    pub interface: Option<String>,
    /// Time limit for connecting to a peer.
    pub connect_timeout: Duration,
    /// Silence after which a link to another site is lost ([`connect::Patience::silence`]).
    pub silence: Duration,
    /// True for a second rail, whose links overtake those of the first ([`Capabilities::passes`]).
    pub passes: bool,
    /// Costs of paths, kept between jobs.
    pub costs: Arc<dyn CostStore>,
}

/// The rail of one process over UDP.
pub struct QuicRail {
    driver: Arc<Mutex<EndpointDriver>>,
    /// Epoll descriptor of the sockets and the timer.
    epoll: Arc<OwnedFd>,
    /// Timer that wakes a sleeping thread when work is due.
    timer: OwnedFd,
    is_timer_set: bool,
    network: [u8; 16],
    interfaces: Vec<Interface>,
    address: Vec<u8>,
    /// `None` if the rail is always polled.
    io_thread: Option<IoThread>,
    passes: bool,
}

/// Configuration of a gateway's rail to other gateways.
#[derive(Debug)]
pub struct TrunkConfig {
    /// Number that this gateway has given itself.
    pub own: PeerId,
    /// Number of the job.
    pub job: u64,
    /// Certificate and key that authenticate the processes of the job.
    pub identity: Identity,
    /// Sockets on which other gateways connect.
    pub sockets: Vec<UdpSocket>,
    /// Time limit for connecting to a gateway.
    pub connect_timeout: Duration,
    /// Costs of paths, kept between jobs.
    pub costs: Arc<dyn CostStore>,
}

impl QuicRail {
    /// Opens the sockets.
    ///
    /// # Errors
    /// No usable interface exists, or the kernel gives no socket or thread.
    pub fn new(config: QuicConfig) -> Result<Self, RailError> {
        let system = |call| move |source| RailError::System { call, source };
        let interfaces = interfaces::list().map_err(system("list of network interfaces"))?;
        let addresses = interfaces::choose(&interfaces, config.interface.as_deref());
        if addresses.is_empty() {
            let text = match &config.interface {
                Some(name) => format!("no interface or address `{name}` here (CANELE_IFACE)"),
                None => "no network interface with an address".into(),
            };
            return Err(RailError::Unreachable(text));
        }
        let open = |epoll: &OwnedFd| open_sockets(addresses, epoll, 0);
        let local = LocalEnd { rank: config.rank, job: config.job, is_gateway: false };
        let QuicConfig { identity, connect_timeout, silence, passes, costs, .. } = config;
        let limits = Limits { connect_timeout, silence, passes };
        let mut rail = Self::with(local, &identity, limits, costs, open)?;
        let listeners: Vec<_> = rail.driver().sockets.iter().map(|one| one.address).collect();
        rail.network = interfaces::network_identity();
        rail.address = interfaces::emit(rail.network, &listeners);
        rail.interfaces = interfaces;
        rail.io_thread = Some(IoThread::start(&rail.driver).map_err(system("a thread"))?);
        Ok(rail)
    }

    /// Creates the rail of a gateway to other gateways, which is polled all the time. A gateway that
    /// [calls](Self::call) numbers the peer; other peers number themselves.
    ///
    /// # Errors
    /// The kernel gives no descriptors.
    pub fn between_gateways(config: TrunkConfig) -> Result<Self, RailError> {
        let TrunkConfig { own, job, identity, sockets, connect_timeout, costs } = config;
        let open = |epoll: &OwnedFd| take_sockets(sockets.into_iter().map(Socket::of), epoll, 0);
        let local = LocalEnd { rank: own, job, is_gateway: true };
        let silence = Patience::default().silence();
        let limits = Limits { connect_timeout, silence, passes: false };
        Self::with(local, &identity, limits, costs, open)
    }

    fn with(
        local: LocalEnd,
        identity: &Identity,
        limits: Limits,
        costs: Arc<dyn CostStore>,
        open: impl FnOnce(&OwnedFd) -> Result<Vec<Socket>, RailError>,
    ) -> Result<Self, RailError> {
        let system = |call| move |source| RailError::System { call, source };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("epoll_create")(error.into()))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| system("timerfd_create")(error.into()))?;
        let data = epoll::EventData::new_u64(TIMER_KEY);
        epoll::add(&epoll, &timer, data, epoll::EventFlags::IN)
            .map_err(|error| system("epoll_ctl")(error.into()))?;
        let sockets = open(&epoll)?;
        let keys = KeyChain::new(identity)?;
        let epoll = Arc::new(epoll);
        let poll = Arc::clone(&epoll);
        let driver = EndpointDriver::new(local, keys, sockets, poll, limits, costs);
        Ok(Self {
            driver: Arc::new(Mutex::new(driver)),
            epoll,
            timer,
            is_timer_set: false,
            network: [0; 16],
            interfaces: Vec::new(),
            address: Vec::new(),
            io_thread: None,
            passes: limits.passes,
        })
    }

    /// Connects to a gateway, which is `peer` from now on, as [`Rail::connect`] does.
    pub fn call(&mut self, peer: PeerId, gateway: SocketAddr) {
        self.driver().connect(peer, vec![gateway], Duration::MAX);
    }

    /// Returns the remote address of an open link.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.driver().address_of(peer)
    }

    fn driver(&self) -> MutexGuard<'_, EndpointDriver> {
        lock(&self.driver)
    }

    /// Sets the timer to `at`, or disarms it.
    fn set_timer(&mut self, now: Instant, at: Option<Instant>) {
        if at.is_none() && !self.is_timer_set {
            return;
        }
        let after = at.map(|at| at.saturating_duration_since(now).max(Duration::from_nanos(1)));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = after.map_or(zero, |after| Timespec {
            tv_sec: after.as_secs() as i64,
            tv_nsec: after.subsec_nanos().into(),
        });
        let value = Itimerspec { it_interval: zero, it_value: value };
        // Cannot fail for a valid timer; sleeping threads also wake by themselves from time to time.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
        self.is_timer_set = at.is_some();
    }
}

impl Rail for QuicRail {
    fn name(&self) -> &'static str {
        if self.passes { PASSING_NAME } else { QUIC_NAME }
    }

    fn passes(&self) -> bool {
        self.passes
    }

    fn address(&self) -> Vec<u8> {
        self.address.clone()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        let _uncancelled = Uncancelled::begin();
        let malformed = || RailError::Unreachable("a malformed address".into());
        let (ways, published) = Routes::parse(address).ok_or_else(malformed)?;
        let (network, offered) = interfaces::parse(published).ok_or_else(malformed)?;
        let here = network == self.network;
        let candidates = interfaces::order(here, offered, &self.interfaces);
        let mut driver = self.driver();
        if driver.is_known(peer) {
            return Ok(());
        }
        if candidates.is_empty() {
            let text = "each of its addresses is one of this node too, or of no use elsewhere";
            return Err(RailError::Unreachable(text.into()));
        }
        driver.connect(peer, candidates, ways.patience());
        Ok(())
    }

    fn add_peer(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        let _uncancelled = Uncancelled::begin();
        self.driver().add_peer((peer, process), key);
    }

    fn disconnect(&mut self, peer: PeerId) {
        let _uncancelled = Uncancelled::begin();
        self.driver().disconnect(peer, Instant::now());
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let _uncancelled = Uncancelled::begin();
        let (post, waits) = self.driver().post(peer, frame, Instant::now());
        if let Some(io_thread) = self.io_thread.as_ref().filter(|_| waits) {
            io_thread.call();
        }
        post
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let _uncancelled = Uncancelled::begin();
        if let Some(io_thread) = &self.io_thread {
            io_thread.note_poll();
        }
        let mut driver = self.driver();
        driver.polls = driver.polls.wrapping_add(1);
        let moved = driver.serve(Instant::now());
        driver.report(sink) || moved
    }

    fn coalesce_within(&self) -> Duration {
        COALESCE_WITHIN
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.epoll.as_fd()]
    }

    /// The probe sees neither frames that the IO thread has received nor sockets added after an address change.
    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        let readiness_probe = Sockets::new()?;
        self.driver().sockets.iter().for_each(|socket| readiness_probe.add(socket));
        Some(Arc::new(readiness_probe))
    }

    fn path_statistics(&self, sink: &mut dyn FnMut(PeerId, PathStatistics)) {
        self.driver().path_statistics(sink);
    }

    fn prepare_sleep(&mut self) -> bool {
        let _uncancelled = Uncancelled::begin();
        let now = Instant::now();
        let mut driver = self.driver();
        if driver.has_events(now) {
            return false;
        }
        driver.is_asleep = true;
        let next = driver.next(now);
        drop(driver);
        self.set_timer(now, next);
        true
    }

    fn finish_sleep(&mut self) {
        let _uncancelled = Uncancelled::begin();
        // The timer stays armed: the next sleep sets it.
        self.driver().is_asleep = false;
    }

    fn is_flushed(&self) -> bool {
        self.driver().is_flushed()
    }
}

impl Drop for QuicRail {
    fn drop(&mut self) {
        if let Some(io_thread) = &mut self.io_thread {
            io_thread.stop();
        }
        self.driver().leave(Instant::now());
    }
}

/// Name of the rail whose links overtake those of the first.
const PASSING_NAME: &str = "quic1";

/// Epoll key of the timer, above the indices of all sockets.
const TIMER_KEY: u64 = u64::MAX;

/// Cost of encrypting and sending one packet, almost independent of its length.
const COALESCE_WITHIN: Duration = Duration::from_micros(4);
