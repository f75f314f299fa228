//! The rail over UDP: QUIC, with a congestion controller that knows its paths.
//!
//! One UDP socket per address and one connection per peer; one stream of a connection carries the frames of
//! both directions, whole and in order. Both ends show the job's key in the handshake, and say which ranks
//! they are behind it. What a path carries is remembered between jobs and survives silence, so that a message
//! leaves at the path's pace from its first byte on ([`congestion`]); little is accepted ahead of the pace, so
//! that what is submitted later can still be let before ([`frames`]).
//!
//! What TCP does in the kernel happens here: packets are sealed, paced, acknowledged and repeated by
//! whichever thread polls. A process that computes does not poll, so a keeper looks in now and then and
//! keeps the connections alive, and sends what waits for its pace; it neither shows frames nor takes the
//! engine's lock. Whatever was posted
//! counts as left behind until it has arrived.
//!
//! What is lost holds up what has left behind it, as over TCP, and what is repeated may be megabytes of which a short
//! message knows nothing. So a second rail, with connections of its own, passes the first while that is busy
//! ([`QuicConfig::passes`]): bulk and what is wanted soon have a window each, as in GridMPI.
//!
//! A short cut is outlived by the connection ([`vigil`]), and so is another address of the end that opened it
//! ([`moving`]). Between sites a connection that is lost for good is opened anew, by either end; the hello names which
//! opening it is, so that one that only one end has lost gives way ([`hello`]).

#[cfg(test)]
mod bottleneck;
mod congestion;
mod connection;
mod controller;
mod endpoint;
mod frames;
mod handshake;
mod hello;
mod io_thread;
mod keepalive;
mod knowledge;
mod limits;
mod migration;
mod pacer;
#[cfg(test)]
mod reopening;
mod settings;
mod socket;
#[cfg(test)]
mod strangers;
mod tail_duplicate;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::lock::Uncancelled;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
#[cfg(doc)]
use wire::Capabilities;
use wire::{Frame, PeerId};

use crate::identity::Identity;
use crate::rail::{Event, Post, Rail, RailError};
use crate::readiness_probe::{ReadinessProbe, Sockets};
use crate::tcp::interfaces::{self, Interface};
use crate::tcp::route::Routes;

use self::endpoint::{Core, open_sockets, take_sockets};
pub use self::frames::{Inbox, Outbox};
use self::hello::Myself;
use self::io_thread::Keeper;
pub(crate) use self::knowledge::NAME;
pub use self::limits::{QuicBuffers, QuicNeeds};
use self::settings::Keys;
use self::socket::Socket;

/// What the rail needs to know.
#[derive(Clone, Debug)]
pub struct QuicConfig {
    /// This process.
    pub rank: PeerId,
    /// The job's number, the same in all its processes.
    pub job: u64,
    /// What the job's processes know one another by.
    pub identity: Identity,
    /// Listen on these interfaces or addresses only, a list with commas.
    pub interface: Option<String>,
    /// How long a peer's addresses are tried.
    pub connect_timeout: Duration,
    /// For a second rail, whose links pass those of the first ([`Capabilities::passes`]).
    pub passes: bool,
}

/// The rail of one process over UDP.
pub struct QuicRail {
    core: Arc<Mutex<Core>>,
    /// Watches the sockets and the timer.
    epoll: Arc<OwnedFd>,
    /// Wakes who sleeps when something is due.
    timer: OwnedFd,
    is_timer_set: bool,
    network: [u8; 16],
    interfaces: Vec<Interface>,
    address: Vec<u8>,
    /// None where the rail is always polled.
    keeper: Option<Keeper>,
    passes: bool,
}

/// What a gateway's rail to other gateways needs to know.
#[derive(Debug)]
pub struct TrunkConfig {
    /// The number that this gateway has given itself.
    pub own: PeerId,
    /// The job's number.
    pub job: u64,
    /// What the job's processes know one another by.
    pub identity: Identity,
    /// Where other gateways call.
    pub sockets: Vec<UdpSocket>,
    /// How long a gateway is called.
    pub connect_timeout: Duration,
}

impl QuicRail {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When no usable interface is found, or the kernel gives no socket or thread.
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
        let myself = Myself { rank: config.rank, job: config.job, is_gateway: false };
        let QuicConfig { identity, connect_timeout, passes, .. } = config;
        let mut rail = Self::with(myself, &identity, (connect_timeout, passes), open)?;
        let listeners: Vec<_> = rail.core().sockets.iter().map(|one| one.address).collect();
        rail.network = interfaces::network_identity();
        rail.address = interfaces::emit(rail.network, &listeners);
        rail.interfaces = interfaces;
        rail.keeper = Some(Keeper::start(&rail.core).map_err(system("a thread"))?);
        Ok(rail)
    }

    /// The rail of a gateway to other gateways, which is polled all the time. Peers are numbered by who
    /// [calls](Self::call) them, and by themselves.
    ///
    /// # Errors
    /// When the kernel gives no descriptors.
    pub fn between_gateways(config: TrunkConfig) -> Result<Self, RailError> {
        let TrunkConfig { own, job, identity, sockets, connect_timeout } = config;
        let open = |epoll: &OwnedFd| take_sockets(sockets.into_iter().map(Socket::of), epoll, 0);
        let myself = Myself { rank: own, job, is_gateway: true };
        Self::with(myself, &identity, (connect_timeout, false), open)
    }

    fn with(
        myself: Myself,
        identity: &Identity,
        (connect_timeout, passes): (Duration, bool),
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
        let keys = Keys::new(identity.client(), identity.server())?;
        let epoll = Arc::new(epoll);
        let core = Core::new(myself, keys, sockets, Arc::clone(&epoll), connect_timeout, passes);
        Ok(Self {
            core: Arc::new(Mutex::new(core)),
            epoll,
            timer,
            is_timer_set: false,
            network: [0; 16],
            interfaces: Vec::new(),
            address: Vec::new(),
            keeper: None,
            passes,
        })
    }

    /// Calls a gateway, which is `peer` from now on, as [`Rail::connect`] does.
    pub fn call(&mut self, peer: PeerId, gateway: SocketAddr) {
        self.core().connect(peer, vec![gateway], Duration::MAX);
    }

    /// Where the peer behind an open link is.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.core().address_of(peer)
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Has the timer wake who sleeps at `at`, or not at all.
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
        // Fails for no timer; sleepers look up by themselves now and then, too.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
        self.is_timer_set = at.is_some();
    }
}

impl Rail for QuicRail {
    fn name(&self) -> &'static str {
        if self.passes { PASSING_NAME } else { NAME }
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
        let mut core = self.core();
        if core.is_known(peer) {
            return Ok(());
        }
        if candidates.is_empty() {
            let text = "each of its addresses is one of this node too, or of no use elsewhere";
            return Err(RailError::Unreachable(text.into()));
        }
        core.connect(peer, candidates, ways.patience());
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        let _uncancelled = Uncancelled::begin();
        self.core().disconnect(peer, Instant::now());
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let _uncancelled = Uncancelled::begin();
        let (post, waits) = self.core().post(peer, frame, Instant::now());
        if let Some(keeper) = self.keeper.as_ref().filter(|_| waits) {
            keeper.call();
        }
        post
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let _uncancelled = Uncancelled::begin();
        if let Some(keeper) = &self.keeper {
            keeper.note_poll();
        }
        let mut core = self.core();
        core.polls = core.polls.wrapping_add(1);
        let moved = core.serve(Instant::now());
        core.report(sink) || moved
    }

    fn coalesce_within(&self) -> Duration {
        COALESCE_WITHIN
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.epoll.as_fd()]
    }

    /// What the keeper has taken in is not seen, nor what comes to an address that the host has got meanwhile.
    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        let readiness_probe = Sockets::new()?;
        self.core().sockets.iter().for_each(|socket| readiness_probe.add(socket));
        Some(Arc::new(readiness_probe))
    }

    fn prepare_sleep(&mut self) -> bool {
        let _uncancelled = Uncancelled::begin();
        let now = Instant::now();
        let mut core = self.core();
        if core.has_events(now) {
            return false;
        }
        core.is_asleep = true;
        let next = core.next(now);
        drop(core);
        self.set_timer(now, next);
        true
    }

    fn finish_sleep(&mut self) {
        let _uncancelled = Uncancelled::begin();
        // The timer is left alone: who sleeps next sets it.
        self.core().is_asleep = false;
    }

    fn is_flushed(&self) -> bool {
        self.core().is_flushed()
    }
}

impl Drop for QuicRail {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.stop();
        }
        self.core().leave(Instant::now());
    }
}

/// A thread that panicked has left nothing half done that matters more than going on.
fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of the rail whose links pass those of the first.
const PASSING_NAME: &str = "quic1";

/// The timer's key in epoll, beyond all sockets'.
const TIMER_KEY: u64 = u64::MAX;

/// A packet costs some microseconds to be sealed and sent, whatever is in it.
const COALESCE_WITHIN: Duration = Duration::from_micros(4);
