//! The rail over TCP: authenticated connections, opened at first use.
//!
//! One listener per address. A peer's addresses are tried in order, the next when the last has not connected for a
//! while. An address counts only when the process behind it has proved to be the wanted rank of this job. If both
//! ranks dial at the same time, the lower rank's connection survives once its end has proved itself; until then the
//! higher rank's may win. Further rails serve one network each (`netpath::networks`). Between two polls a connection
//! takes no more of long messages than its network carries in half a millisecond. Bytes in the kernel go first, and
//! messages submitted beside a long one can pass it. Sockets never block. The sockets with traffic are read directly,
//! the others through epoll.

#[cfg(test)]
mod dial_tests;
mod handshake;
#[cfg(test)]
mod hostile_tests;
mod hot_socket;
mod links;
#[cfg(test)]
mod man_in_the_middle_tests;
mod open;
#[cfg(test)]
mod reopening_tests;
#[cfg(test)]
mod send_budget_tests;
mod shared_paths;
mod stream;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{Credentials, Encryption, Keyring, Secret};
use connect::{Links, RailLink};
use cost::{CostStore, NoStore};
use lock::Uncancelled;
use netpath::{
    Congestion, Interface, Knowledge, LONG_FRAME, QdiscDrops, TCP_NAMES, TcpNetwork, TcpSample,
    bytes_in_flight, interfaces, path_probe,
};
use rail::{
    Clock, Event, Fault, PathStatistics, Post, Rail, RailError, ReadinessProbe, Refusal, Sockets,
    Unshared,
};
use relay::{PathCosts, Routes};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::epoll;
use wire::{Capabilities, FIRST_CREDIT_BYTES, Frame, PeerId, ProcessId};

use crate::handshake::PendingConnection;
use crate::hot_socket::HotSocket;
use crate::open::Open;
use crate::shared_paths::SharedPaths;
use crate::stream::FRAME_MAX;

/// Configuration of the rail.
#[derive(Clone)]
pub struct TcpConfig {
    /// This process.
    pub rank: PeerId,
    /// The job's number, the same in all its processes.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// Interfaces or addresses to listen on, separated by commas; all if absent.
    pub interface: Option<String>,
    /// Time for which a peer's addresses are tried, and in which an accepted connection must prove itself.
    pub connect_timeout: Duration,
    /// Links to encrypt; both ends decide alike.
    pub encryption: Encryption,
    /// Congestion control of the connections.
    pub congestion: Congestion,
    /// Costs of paths, kept between jobs.
    pub costs: Arc<dyn CostStore>,
}

impl TcpConfig {
    /// All networks, nothing encrypted, no costs kept.
    pub fn new(rank: PeerId, job: u64, secret: impl Into<Secret>) -> Self {
        let connect_timeout = Duration::from_secs(30);
        Self {
            rank,
            job,
            secret: secret.into(),
            interface: None,
            connect_timeout,
            encryption: Encryption::None,
            congestion: Congestion::Auto,
            costs: Arc::new(NoStore),
        }
    }
}

/// The TCP rail of one process.
pub struct TcpRail {
    keys: Keyring,
    encryption: Encryption,
    congestion: Congestion,
    knowledge: Knowledge,
    /// Network that the rail serves; all if absent.
    network: Option<TcpNetwork>,
    identity: [u8; 16],
    interfaces: Vec<Interface>,
    listeners: Vec<Unshared<TcpListener>>,
    epoll: OwnedFd,
    connect_timeout: Duration,
    clock: Clock,
    sockets: FxHashMap<u64, Socket>,
    next_key: u64,
    /// State of the link to each peer, with the keys of open ones.
    links: Links<u64>,
    /// Routes to peers, and the addresses where the peers listen.
    routes: FxHashMap<PeerId, (Routes, Vec<SocketAddr>)>,
    /// Costs of the routes through gateways.
    path_costs: PathCosts,
    /// Peers on whose paths packets of full length may be lost.
    short_segments: FxHashSet<PeerId>,
    /// Connections that replace a link, opened at the next poll.
    newcomers: Vec<u64>,
    hot_socket: HotSocket,
    /// Open links with frames in their buffers that epoll does not report.
    unread: Vec<u64>,
    /// Open links that refused a frame although they have room.
    deferred: Vec<u64>,
    /// Paths to distant networks, and the links that share each.
    paths: SharedPaths,
    /// Open links watched for qdisc drops, and the time of the next look.
    qdisc_drops: QdiscDrops,
    next_drop_look: Duration,
    /// Number of links whose bytes a qdisc dropped, or whose cwnd was warming up, at the last look.
    unfinished: usize,
    /// Number of polls, wrapping.
    polls: u32,
    /// True if the process has slept since epoll was asked: the wake-up may stem from another link than the hot
    /// socket.
    has_slept: bool,
    /// Number of open links with frames that the kernel has not taken.
    backlogged: usize,
    /// Number of open links that wait for EPOLLOUT.
    writing: usize,
    /// Padding budget in bytes: for links that are long themselves, and for links to gateways. The segment behind a
    /// gateway is shared with other processes.
    padding_left: usize,
    padding_left_behind: usize,
    /// Number of connections in their handshake.
    pending: usize,
    refused: Vec<(SocketAddr, Refusal)>,
    /// Time until which nothing is accepted, because descriptors ran out.
    resting: Option<Duration>,
    shortage: Shortage,
    /// Time of the next check for vanished hosts.
    next_path_probe: Duration,
    /// Links that have ended or could not be opened, to be reported one by one.
    ended: VecDeque<(PeerId, Fault)>,
    /// Sockets of open links, for idle pollers.
    readiness_probe: Option<Arc<Sockets>>,
}

/// The shortage of descriptors, and whether it was reported.
enum Shortage {
    Never,
    Untold(String),
    Told,
}

enum Socket {
    PendingConnection(Box<PendingConnection>),
    Open(Box<Open>),
}

impl TcpRail {
    /// Opens the listeners.
    ///
    /// # Errors
    /// Returned when no usable interface is found, or the kernel gives no socket.
    pub fn new(config: TcpConfig) -> Result<Self, RailError> {
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
        Self::listen(config, addresses, interfaces, None)
    }

    /// Opens a listener on one network, which names the rail. The rail cannot reach peers elsewhere.
    ///
    /// # Errors
    /// Returned when the kernel gives no socket.
    pub fn on(network: &TcpNetwork, config: TcpConfig) -> Result<Self, RailError> {
        let interfaces = vec![network.interface().clone()];
        Self::listen(config, vec![network.address()], interfaces, Some(network.clone()))
    }

    fn listen(
        config: TcpConfig,
        addresses: Vec<IpAddr>,
        interfaces: Vec<Interface>,
        network: Option<TcpNetwork>,
    ) -> Result<Self, RailError> {
        let system = |call| move |source| RailError::System { call, source };
        config.congestion.check().map_err(system("setsockopt(TCP_CONGESTION)"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("epoll_create")(error.into()))?;
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = TcpListener::bind((address, 0)).map_err(system("bind"))?;
            listener.set_nonblocking(true).map_err(system("fcntl"))?;
            let data = epoll::EventData::new_u64(LISTENER_KEYS + listeners.len() as u64);
            epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)
                .map_err(|error| system("epoll_ctl")(error.into()))?;
            listeners.push(Unshared::new(listener));
        }
        let qdisc_drops = QdiscDrops::new().map_err(system("timerfd_create"))?;
        let data = epoll::EventData::new_u64(QDISC_DROPS_KEY);
        epoll::add(&epoll, qdisc_drops.descriptor(), data, epoll::EventFlags::IN)
            .map_err(|error| system("epoll_ctl")(error.into()))?;
        let TcpConfig { rank, job, secret, connect_timeout, encryption, congestion, costs, .. } =
            config;
        Ok(Self {
            keys: Keyring::new(Credentials { rank, job, secret }),
            encryption,
            congestion,
            knowledge: Knowledge::new(
                costs,
                network.as_ref().map_or(TCP_NAMES[0], TcpNetwork::name),
                job,
            ),
            network,
            identity: interfaces::network_identity(),
            interfaces,
            listeners,
            epoll,
            connect_timeout,
            clock: Clock::new(),
            sockets: FxHashMap::default(),
            next_key: 0,
            links: Links::new(rank, connect_timeout),
            routes: FxHashMap::default(),
            path_costs: PathCosts::default(),
            short_segments: FxHashSet::default(),
            newcomers: Vec::new(),
            hot_socket: HotSocket::default(),
            unread: Vec::new(),
            deferred: Vec::new(),
            paths: SharedPaths::default(),
            qdisc_drops,
            next_drop_look: Duration::ZERO,
            unfinished: 0,
            polls: 0,
            has_slept: false,
            backlogged: 0,
            writing: 0,
            padding_left: PADDING_OF_ALL,
            padding_left_behind: usize::MAX,
            pending: 0,
            refused: Vec::new(),
            resting: None,
            shortage: Shortage::Never,
            next_path_probe: path_probe::LOOK_EVERY,
            ended: VecDeque::new(),
            readiness_probe: None,
        })
    }

    /// Polls the sockets until a link has ended: what follows waits until the caller has handled the end.
    fn poll_sockets(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = !self.deferred.is_empty() && self.invite_deferred(sink);
        moved |= self.paths.limits_any() && self.invite_held(sink);
        let mut newcomers = std::mem::take(&mut self.newcomers).into_iter();
        while self.ended.is_empty()
            && let Some(key) = newcomers.next()
        {
            moved |= self.advance(key, sink);
        }
        self.newcomers.extend(newcomers);
        let mut unread = std::mem::take(&mut self.unread).into_iter();
        while self.ended.is_empty()
            && let Some(key) = unread.next()
        {
            moved |= self.read(key, sink);
            self.note_unread(key);
        }
        self.unread.extend(unread);
        let alone = self.hot_socket.alone();
        if let Some(key) = alone
            && self.ended.is_empty()
        {
            let has_read = self.read(key, sink);
            match has_read {
                true => self.note_unread(key),
                false => self.hot_socket.note_empty_read(),
            }
            moved |= has_read;
        }
        let is_epoll_due = alone.is_none() || self.polls.is_multiple_of(EPOLL_EVERY);
        let is_busy = self.links.dialled() > 0 || self.writing > 0 || self.unfinished > 0;
        // If the hot socket woke the process, other sockets may be ready too; epoll reports them again.
        let rang_elsewhere = std::mem::take(&mut self.has_slept) && !moved;
        if (is_epoll_due || is_busy || rang_elsewhere) && self.ended.is_empty() {
            moved |= self.poll_epoll(sink);
        }
        moved
    }

    fn poll_epoll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let now = self.clock.look(Instant::now());
        let mut moved = false;
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        for event in &events[..count] {
            if !self.ended.is_empty() {
                // Epoll reports the others again.
                return true;
            }
            let key = event.data.u64();
            if key == QDISC_DROPS_KEY {
                self.qdisc_drops.hear();
                self.next_drop_look = now;
                continue;
            }
            if let Some(index) = key.checked_sub(LISTENER_KEYS) {
                self.accept(index as usize, now);
                continue;
            }
            match self.sockets.get(&key) {
                Some(Socket::PendingConnection(_)) => moved |= self.advance(key, sink),
                Some(Socket::Open(_)) => {
                    let flags = event.flags;
                    // A frame that arrives may be answered before padding leaves.
                    moved |= self.read(key, sink);
                    self.note_unread(key);
                    if flags.contains(epoll::EventFlags::OUT) {
                        moved |= self.write(key, sink);
                    }
                }
                None => {}
            }
        }
        if !self.qdisc_drops.is_empty() && now >= self.next_drop_look {
            self.next_drop_look = now + QdiscDrops::LOOK_EVERY;
            moved |= self.push_dropped(sink);
        }
        if self.resting.is_some_and(|end| now >= end) {
            self.listen_again();
        }
        if now >= self.next_path_probe {
            let is_wan =
                |socket: &Socket| matches!(socket, Socket::Open(open) if open.pacing.is_wan);
            let soon = self.links.dialled() > 0 || self.sockets.values().any(is_wan);
            self.next_path_probe =
                now + if soon { path_probe::LOOK_WAN_EVERY } else { path_probe::LOOK_EVERY };
            self.close_vanished();
            self.give_up_vanished();
            for socket in self.sockets.values_mut() {
                if let Socket::Open(open) = socket {
                    open.keep_pace(now);
                }
            }
        }
        if self.pending > 0 || self.links.dialled() > 0 {
            self.expire(now);
            self.dial(now);
        }
        if let Shortage::Untold(reason) = &mut self.shortage {
            let reason = std::mem::take(reason);
            self.shortage = Shortage::Told;
            sink(Event::Hampered { reason });
            moved = true;
        }
        for (from, reason) in std::mem::take(&mut self.refused) {
            sink(Event::Refused { from, reason });
            moved = true;
        }
        moved
    }
}

impl Rail for TcpRail {
    fn name(&self) -> &'static str {
        self.network.as_ref().map_or(TCP_NAMES[0], TcpNetwork::name)
    }

    fn address(&self) -> Vec<u8> {
        let listeners: Vec<SocketAddr> =
            self.listeners.iter().filter_map(|one| one.local_addr().ok()).collect();
        interfaces::emit(self.identity, &listeners)
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        let _uncancelled = Uncancelled::begin();
        if self.links.get(peer).is_some() {
            return Ok(());
        }
        let malformed = || RailError::Unreachable("a malformed address".into());
        let (routes, published) = Routes::parse(address).ok_or_else(malformed)?;
        let (identity, offered) = interfaces::parse(published).ok_or_else(malformed)?;
        let here = identity == self.identity;
        let listeners = offered.clone();
        let (mut candidates, patience) = match &self.network {
            Some(network) => (network.candidates(here, offered), NETWORK_PATIENCE),
            None => (interfaces::order(here, offered, &self.interfaces), routes.patience()),
        };
        if !routes.direct {
            candidates.clear();
        }
        candidates.extend(routes.order(&self.path_costs, (self.keys.own().rank, peer)));
        if candidates.is_empty() {
            return Err(RailError::Unreachable(match &self.network {
                Some(network) => format!("none of its addresses is on the network of {network}"),
                None => {
                    "each of its addresses is one of this node too, or of no use elsewhere".into()
                }
            }));
        }
        let now = self.clock.look(Instant::now());
        let awaits_path_costs = self.ask_for_path_costs(&routes, now);
        let seed = RandomState::new().hash_one(peer.0);
        let dialling = self.links.dial(peer, candidates, (now, patience), seed);
        if awaits_path_costs {
            dialling.hold(now + PATH_COST_PATIENCE);
        }
        self.routes.insert(peer, (routes, listeners));
        self.dial(now);
        Ok(())
    }

    fn add_peer(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        self.links.add_peer(peer, process < self.keys.process());
        self.keys.add(peer, process, key);
    }

    fn disconnect(&mut self, peer: PeerId) {
        let _uncancelled = Uncancelled::begin();
        self.routes.remove(&peer);
        match self.links.remove(peer) {
            Some(RailLink::Dialling(_)) => self.drop_dials(peer),
            Some(RailLink::Open { key }) => {
                self.forget(key);
            }
            None => {}
        }
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let _uncancelled = Uncancelled::begin();
        let Some(key) = self.links.open_key(peer) else { return Post::Full };
        if frame.len() >= LONG_FRAME && self.holds(key) {
            return Post::Full;
        }
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return Post::Full };
        match open.stream.post(frame, self.polls) {
            Ok(post) => {
                let mut is_new = false;
                if frame.len() >= LONG_FRAME {
                    if let Some(path) = open.path.filter(|_| post != Post::Full) {
                        self.paths.note_sent(path, frame.len());
                    }
                    open.begin_probe(&self.knowledge, false);
                    // A link already watched is looked at in time.
                    is_new = open.drop_watch.begin();
                }
                if post == Post::Full && open.stream.is_flushed() {
                    self.deferred.push(key);
                }
                if is_new {
                    self.look_after_long(key);
                }
                self.watch(key);
                post
            }
            Err(_) => {
                // The reader finds the same fault and reports it.
                open.stream.refused = true;
                Post::Full
            }
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let _uncancelled = Uncancelled::begin();
        self.polls = self.polls.wrapping_add(1);
        let moved = self.ended.is_empty() && self.poll_sockets(sink);
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

    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        if self.readiness_probe.is_none() {
            let readiness_probe = Sockets::new()?;
            for socket in self.sockets.values() {
                if let Socket::Open(open) = socket {
                    readiness_probe.add(&open.stream.channel.socket);
                }
            }
            self.readiness_probe = Some(Arc::new(readiness_probe));
        }
        self.readiness_probe.as_ref().map(|readiness_probe| -> Arc<dyn ReadinessProbe> {
            Arc::<Sockets>::clone(readiness_probe)
        })
    }

    fn path_statistics(&self, sink: &mut dyn FnMut(PeerId, PathStatistics)) {
        for socket in self.sockets.values() {
            let Socket::Open(open) = socket else { continue };
            // A connection that has just failed has no statistics.
            let Ok(sample) = TcpSample::of(&open.stream.channel.socket) else { continue };
            let round_trip = Duration::from_nanos(sample.round_trip_ns.unwrap_or(0));
            let is_in_flight = bytes_in_flight(&open.stream.channel.socket) > 0;
            let retransmitted = sample.retransmits;
            sink(open.peer, PathStatistics { retransmitted, round_trip, is_in_flight });
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        let has_more =
            |socket: &Socket| matches!(socket, Socket::Open(open) if open.stream.has_more());
        let has_events =
            !(self.ended.is_empty() && self.deferred.is_empty() && self.newcomers.is_empty());
        self.qdisc_drops.prepare_sleep();
        self.has_slept = true;
        !has_events && !self.sockets.values().any(has_more)
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        self.backlogged == 0 && self.deferred.is_empty()
    }

    fn is_at_rest(&self) -> bool {
        let has_room = self.deferred.is_empty() && !self.paths.limits_any();
        self.writing == 0 && has_room && self.unfinished == 0
    }
}

impl Drop for TcpRail {
    fn drop(&mut self) {
        for socket in self.sockets.values_mut() {
            if let Socket::Open(open) = socket {
                open.keep(&self.knowledge);
                open.stream.say_goodbye();
            }
        }
    }
}

/// Padding budget of a process over all links, in bytes: many processes may share the path.
const PADDING_OF_ALL: usize = 16 << 20;
/// Maximum number of links measured at once: each sees only its share of the path.
const MEASURED_AT_ONCE: usize = 4;
/// Lifetime below which a reopened link may have carried no long packet.
const SHORT_LIFE: Duration = Duration::from_secs(30);

/// First epoll key of the listeners.
const LISTENER_KEYS: u64 = 1 << 63;
/// Epoll key of the timer for qdisc drops.
const QDISC_DROPS_KEY: u64 = LISTENER_KEYS - 1;
/// Time within which messages coalesce. Messages of a burst follow each other in some tenths of a microsecond, and a
/// system call takes some microseconds. An answer to an answer comes after 5 µs at the earliest and must not wait.
const COALESCE_WITHIN: Duration = Duration::from_micros(2);

/// Time for which a network of the peer's numbers is tried: another path exists, and this may be another network.
const NETWORK_PATIENCE: Duration = Duration::from_secs(5);

/// Time to wait for gateways to report path costs: some milliseconds in a site, more if they are busy.
const PATH_COST_PATIENCE: Duration = Duration::from_millis(100);

/// Number of polls per `epoll_wait` while the hot socket is read directly.
const EPOLL_EVERY: u32 = 8;
/// Maximum number of events per `epoll_wait`.
const EVENTS: usize = 64;

/// Capabilities until a link is measured. A message of up to 64 KiB is sent at once, both in a site (round trip of
/// tens of µs) and over a WAN (milliseconds). At most 4 MiB are in flight unmatched.
const CAPABILITIES: Capabilities = Capabilities {
    frame_max: FRAME_MAX,
    inline_max: 8 << 10,
    eager_max: 64 << 10,
    rts_data_max: 2 << 20,
    aggregate_max: 64 << 10,
    piece_min: 64 << 10,
    piece_max: 64 << 10,
    credit_bytes: FIRST_CREDIT_BYTES,
    credit_wanted: 4 << 20,
    remote_read: false,
    adapts: true,
    replay: false,
    reopens: true,
    copies: false,
    passes: false,
};
