//! The rail over TCP: authenticated connections, opened at first use.
//!
//! One listener per address; a peer's addresses are tried in order, the next one when the last has
//! not connected for a while, and an address counts only when the process behind it has proved to be
//! the wanted rank of this job. Of two connections opened head to head the lower rank's survives, if
//! it has come so far that its end has proved itself; until then the higher rank's may be quicker.
//! Further rails serve one network each ([`networks`]).
//! Between two polls a connection takes no more of long messages than its network carries in half a
//! millisecond: what the kernel has goes first, and what is submitted in a row with a long message can pass.
//! Sockets never block; the sockets with traffic are read directly, the others through epoll.

mod congestion;
mod cwnd_warmup;
pub(crate) mod dial;
mod encryption;
mod handshake;
mod hello;
#[cfg(test)]
mod hostile;
mod hot_socket;
pub(crate) mod interfaces;
mod knowledge;
mod listener;
mod measure;
mod networks;
mod open;
mod pacing;
mod packet_train;
#[cfg(test)]
mod pair_path;
mod path_cost;
mod path_probe;
#[cfg(test)]
mod patience;
mod probe;
mod probe_lock;
mod qdisc_drop;
pub mod relay;
#[cfg(test)]
mod reopening;
pub(crate) mod route;
mod rto;
#[cfg(test)]
mod send_budget;
mod startup_cap;
mod stream;
mod tls;
mod wan;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock::Uncancelled;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::epoll;
use wire::{Capabilities, FIRST_CREDIT_BYTES, Frame, PeerId};

use crate::fork::Unshared;
use crate::rail::{Event, Fault, Post, Rail, RailError};
use crate::readiness_probe::{ReadinessProbe, Sockets};

pub use congestion::Congestion;
use dial::{Clock, Dialling};
pub use encryption::Encryption;
use encryption::Rule;
use handshake::Unproved;
use hello::Credentials;
pub use hello::Refusal;
use hot_socket::Speaker;
use interfaces::Interface;
pub use knowledge::Knowledge;
pub use listener::{Door, DoorError};
pub use measure::TcpSample;
use networks::NAMES;
pub use networks::{TcpNetwork, TcpNetworks};
use open::Open;
use pacing::Pacing;
use path_cost::PathCosts;
pub use qdisc_drop::{StallWatch, Stalls};
use relay::Detour;
pub use route::Gateways;
use route::Ways;
use stream::{FRAME_MAX, FrameStream, Received};
use tls::Channel;
pub use wan::FarTcp;

/// What the rail needs to know.
#[derive(Clone)]
pub struct TcpConfig {
    /// This process.
    pub rank: PeerId,
    /// The job's number, the same in all its processes.
    pub job: u64,
    /// The job's secret.
    pub secret: [u8; 32],
    /// Listen on these interfaces or addresses only, a list with commas.
    pub interface: Option<String>,
    /// How long a peer's addresses are tried, and how long a stranger may take to prove itself.
    pub connect_timeout: Duration,
    /// Which links are encrypted; the peers decide alike.
    pub encryption: Encryption,
    /// What controls how fast connections send.
    pub congestion: Congestion,
}

impl TcpConfig {
    /// All networks, nothing encrypted.
    pub fn new(rank: PeerId, job: u64, secret: [u8; 32]) -> Self {
        let connect_timeout = Duration::from_secs(30);
        Self {
            rank,
            job,
            secret,
            interface: None,
            connect_timeout,
            encryption: Encryption::None,
            congestion: Congestion::Auto,
        }
    }
}

/// The rail of one process over TCP.
pub struct TcpRail {
    credentials: Credentials,
    encryption: Rule,
    congestion: Congestion,
    knowledge: Knowledge,
    /// What it serves, if not all.
    network: Option<TcpNetwork>,
    identity: [u8; 16],
    interfaces: Vec<Interface>,
    listeners: Vec<Unshared<TcpListener>>,
    epoll: OwnedFd,
    connect_timeout: Duration,
    clock: Clock,
    sockets: FxHashMap<u64, Socket>,
    next_key: u64,
    links: FxHashMap<PeerId, Link>,
    /// Ways to peers that lead through gateways, and where the peers listen.
    ways: FxHashMap<PeerId, (Ways, Vec<SocketAddr>)>,
    /// What those cost.
    path_costs: PathCosts,
    /// Of links that have been open, the last opening that may have come about.
    generations: FxHashMap<PeerId, u32>,
    /// Peers to which long packets may not pass.
    narrow: FxHashSet<PeerId>,
    /// Keys of connections that have replaced a link, to be opened at the next poll.
    newcomers: Vec<u64>,
    speaker: Speaker,
    /// Keys of open links with frames left in their buffers, of which epoll knows nothing.
    unread: Vec<u64>,
    /// Keys of open links that refused a frame though they have room.
    deferred: Vec<u64>,
    /// Open links with what the kernel may have taken and does not send, and when to look next.
    stalls: Stalls,
    next_stall: Duration,
    /// Those that had stalled when they were looked at, or were being widened.
    stalled: usize,
    /// How often the rail was polled, wrapping.
    polls: u32,
    /// Somebody has slept since epoll was asked: what rang may be no link that is read unasked.
    has_slept: bool,
    /// Open links with frames that the kernel has not taken.
    backlogged: usize,
    /// Open links that want to know when the kernel takes more.
    writing: usize,
    /// How much padding may still go, over all links that are long themselves, and over all to gateways: what goes on
    /// from there shares a link, with other processes, too.
    padding_left: usize,
    padding_left_behind: usize,
    /// Connections in their handshake.
    unproved: usize,
    /// Peers that are being dialled.
    dialled: usize,
    refused: Vec<(SocketAddr, Refusal)>,
    /// Until when the listeners are left alone, for want of a descriptor to accept with.
    resting: Option<Duration>,
    shortage: Shortage,
    /// When to look next for hosts that have vanished.
    next_vigil: Duration,
    failed: Vec<(PeerId, Fault)>,
    /// For who looks on: the sockets of open links.
    readiness_probe: Option<Arc<Sockets>>,
}

/// Whether descriptors have run out, and whether that was told.
enum Shortage {
    Never,
    Untold(String),
    Told,
}

/// What is known of a peer.
enum Link {
    Dialling(Dialling),
    Open { key: u64 },
}

enum Socket {
    Unproved(Box<Unproved>),
    Open(Box<Open>),
}

impl TcpRail {
    /// Opens the listeners.
    ///
    /// # Errors
    /// When no usable interface is found, or the kernel gives no socket.
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

    /// Opens a listener on one network, whose name the rail has. Peers elsewhere are not reachable by it.
    ///
    /// # Errors
    /// When the kernel gives no socket.
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
        let stalls = Stalls::new().map_err(system("timerfd_create"))?;
        let data = epoll::EventData::new_u64(STALLS_KEY);
        epoll::add(&epoll, stalls.descriptor(), data, epoll::EventFlags::IN)
            .map_err(|error| system("epoll_ctl")(error.into()))?;
        let TcpConfig { rank, job, secret, connect_timeout, encryption, congestion, .. } = config;
        Ok(Self {
            credentials: Credentials { rank, job, secret },
            encryption: Rule::new(encryption),
            congestion,
            knowledge: Knowledge::new(network.as_ref().map_or(NAMES[0], TcpNetwork::name), job),
            network,
            identity: interfaces::network_identity(),
            interfaces,
            listeners,
            epoll,
            connect_timeout,
            clock: Clock::new(),
            sockets: FxHashMap::default(),
            next_key: 0,
            links: FxHashMap::default(),
            ways: FxHashMap::default(),
            path_costs: PathCosts::default(),
            generations: FxHashMap::default(),
            narrow: FxHashSet::default(),
            newcomers: Vec::new(),
            speaker: Speaker::default(),
            unread: Vec::new(),
            deferred: Vec::new(),
            stalls,
            next_stall: Duration::ZERO,
            stalled: 0,
            polls: 0,
            has_slept: false,
            backlogged: 0,
            writing: 0,
            padding_left: PADDING_OF_ALL,
            padding_left_behind: usize::MAX,
            unproved: 0,
            dialled: 0,
            refused: Vec::new(),
            resting: None,
            shortage: Shortage::Never,
            next_vigil: path_probe::LOOK_EVERY,
            failed: Vec::new(),
            readiness_probe: None,
        })
    }

    fn open(
        &mut self,
        key: u64,
        peer: PeerId,
        channel: Channel,
        detour: Detour,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let data = epoll::EventData::new_u64(key);
        // Fails only for lack of kernel memory; the link is then found silent by its peer's timeout.
        let _ = epoll::modify(&self.epoll, &channel.socket, data, epoll::EventFlags::IN);
        if let Some(readiness_probe) = &self.readiness_probe {
            readiness_probe.add(&channel.socket);
        }
        let pacing = Pacing::new(&channel.socket, detour, &self.knowledge, &self.congestion);
        // Fails for no TCP socket; a host that vanishes is then noticed when it is sent something.
        let _ = if pacing.is_far {
            path_probe::watch_far(&channel.socket)
        } else {
            path_probe::watch(&channel.socket, self.silence())
        };
        let cost = pacing.cost();
        let stream = FrameStream::new(channel);
        if pacing.is_far {
            self.next_vigil = self.next_vigil.min(self.clock.now() + path_probe::LOOK_FAR_EVERY);
        }
        let (is_backlogged, wants_write, since) = (false, false, self.clock.now());
        let mut open = Open {
            peer,
            stream,
            pacing,
            since,
            stall: StallWatch::default(),
            is_backlogged,
            wants_write,
        };
        open.reckon_burst();
        // Where there are many, what they carry is found out when it matters.
        let measures = open.pacing.probe.is_due()
            && self.may_measure()
            && open.begin_probe(&self.knowledge, true);
        self.sockets.insert(key, Socket::Open(Box::new(open)));
        self.links.insert(peer, Link::Open { key });
        if measures {
            self.watch_beginning(key);
        }
        self.generations.entry(peer).or_insert(1);
        self.drop_dials(peer);
        self.unread.push(key);
        sink(Event::Up { peer, capabilities: CAPABILITIES });
        if let Some(cost) = cost {
            sink(Event::Cost { peer, cost });
        }
    }

    /// Whether a link that opens is one of few to be measured.
    fn may_measure(&self) -> bool {
        let is_measured = |socket: &&Socket| matches!(socket, Socket::Open(open) if open.pacing.probe.is_beginning());
        let measured = self.sockets.values().filter(is_measured).count();
        measured < MEASURED_AT_ONCE && self.padding_left > PADDING_OF_ALL / 2
    }

    /// Reads one open link and shows what came.
    fn read(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return false };
        let peer = open.peer;
        let received =
            if open.stream.has_frame() { Received::Bytes } else { open.stream.receive() };
        let fault = match received {
            Received::Nothing => return false,
            Received::Bytes => {
                self.speaker.heard(key);
                match open.stream.deliver(&mut |bytes| sink(Event::Frame { peer, bytes })) {
                    Ok(_) => {
                        // The peer measures the way here, and nobody but this side the way there.
                        if std::mem::take(&mut open.stream.padded)
                            && open.begin_probe(&self.knowledge, false)
                        {
                            if let Some(cost) = open.pacing.cost() {
                                sink(Event::Cost { peer, cost });
                            }
                            self.watch_beginning(key);
                        }
                        return true;
                    }
                    Err(fault) => fault,
                }
            }
            Received::End(fault) => fault,
        };
        self.close(key, fault, sink);
        true
    }

    /// A link is measured, or widened, from now on.
    fn watch_beginning(&mut self, key: u64) {
        if let Some(Socket::Open(open)) = self.sockets.get_mut(&key)
            && open.pacing.probe.is_widening()
            && open.stall.begin()
        {
            self.look_after_long(key);
        }
        self.watch(key);
    }

    /// Looks at a link that was not watched, and watches it if it is to be looked at again.
    fn look_after_long(&mut self, key: u64) {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return };
        if open.look_after_long(self.clock.now()) {
            self.stalls.add(key);
            self.stalled += usize::from(open.is_unfinished());
        }
    }

    /// Asks epoll to tell of room for what a link has to send, and counts who waits for that.
    fn watch(&mut self, key: u64) {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return };
        let is_backlogged = !open.stream.is_flushed();
        if is_backlogged != open.is_backlogged {
            open.is_backlogged = is_backlogged;
            self.backlogged = if is_backlogged { self.backlogged + 1 } else { self.backlogged - 1 };
        }
        let wants_write = is_backlogged || open.pacing.probe.is_running();
        if wants_write != open.wants_write {
            open.wants_write = wants_write;
            self.writing = if wants_write { self.writing + 1 } else { self.writing - 1 };
            let out = if wants_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(key);
            let socket = &open.stream.channel.socket;
            // Fails only for lack of kernel memory; the next post tries again.
            let _ = epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN | out);
        }
    }

    /// A link that has more to show gets a turn at the next poll.
    fn note_unread(&mut self, key: u64) {
        if let Some(Socket::Open(open)) = self.sockets.get(&key)
            && open.stream.has_more()
            && !self.unread.contains(&key)
        {
            self.unread.push(key);
        }
    }

    fn close(&mut self, key: u64, fault: Fault, sink: &mut dyn FnMut(Event<'_>)) {
        if let Some(peer) = self.forget(key) {
            self.links.remove(&peer);
            sink(Event::Down { peer, fault });
        }
    }

    /// Closes the connection of an open link; whose it was.
    fn forget(&mut self, key: u64) -> Option<PeerId> {
        let Some(Socket::Open(mut open)) = self.sockets.remove(&key) else { return None };
        open.keep(&self.knowledge);
        let was_reopened = self.generations.get(&open.peer).is_some_and(|count| *count > 1);
        if open.pacing.is_far && was_reopened && self.clock.now() - open.since < SHORT_LIFE {
            // So it is where packets of full length are lost without a word (RFC 2923, §2.1).
            self.narrow.insert(open.peer);
        }
        self.backlogged -= usize::from(open.is_backlogged);
        self.writing -= usize::from(open.wants_write);
        Some(open.peer)
    }

    /// How long hosts may be silent. Those on a network of its own have the other rails.
    fn silence(&self) -> Duration {
        if self.network.is_some() { path_probe::SILENCE_NEARBY } else { path_probe::SILENCE }
    }

    /// Ends the links to hosts that have vanished with bytes under way to them.
    fn close_vanished(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let silence = self.silence();
        let vanished = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::Open(open) => {
                let silence = if open.pacing.is_far { path_probe::SILENCE_FAR } else { silence };
                Some((key, path_probe::has_vanished(&open.stream.channel.socket, silence)?))
            }
            Socket::Unproved(_) => None,
        });
        let vanished: Vec<_> = vanished.collect();
        for &(key, silence) in &vanished {
            let seconds = silence.as_secs_f64();
            let text = format!("its host has shown no sign of life for {seconds:.1} s");
            self.close(key, Fault::Lost(text), sink);
        }
        !vanished.is_empty()
    }

    /// Sends what waits on one link.
    fn write(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return false };
        let peer = open.peer;
        match open.stream.flush(&mut |token| sink(Event::Sent { peer, token })) {
            Ok(moved) => {
                let is_invited = open.stream.invite(self.polls);
                if is_invited {
                    if open.pacing.look(&open.stream.channel.socket)
                        && let Some(cost) = open.pacing.cost()
                    {
                        sink(Event::Cost { peer, cost });
                        open.reckon_burst();
                    }
                    sink(Event::Room { peer });
                }
                let left = if open.pacing.probe.is_behind() {
                    // One link takes it all, or several together no more than one.
                    let left = &mut self.padding_left_behind;
                    *left = open.pacing.probe.allowance().min(*left);
                    left
                } else {
                    &mut self.padding_left
                };
                // What was refused goes before more padding.
                if open.pacing.probe.is_running()
                    && !is_invited
                    && let Some(cost) = open.pad(left, &self.knowledge, self.clock.now())
                {
                    sink(Event::Cost { peer, cost });
                }
                self.watch(key);
                moved
            }
            Err(error) => {
                self.close(key, Fault::Lost(error.to_string()), sink);
                true
            }
        }
    }

    /// Lets those send what they deferred that still have room for it.
    fn invite_deferred(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = false;
        for key in std::mem::take(&mut self.deferred) {
            if let Some(Socket::Open(open)) = self.sockets.get_mut(&key)
                && open.stream.invite(self.polls)
            {
                sink(Event::Room { peer: open.peer });
                moved = true;
            }
        }
        moved
    }

    /// Looks at links with long frames, and pushes those that have stalled.
    fn push_stalled(&mut self) {
        let now = self.clock.now();
        let Self { sockets, stalls, stalled, .. } = self;
        *stalled = 0;
        let mut widened = Vec::new();
        stalls.look(|key| {
            let Some(Socket::Open(open)) = sockets.get_mut(key) else { return false };
            if open.pacing.probe.is_widening() {
                widened.push(*key);
            }
            let goes_on = open.look_after_long(now);
            *stalled += usize::from(open.is_unfinished());
            goes_on
        });
        for key in widened {
            self.watch(key);
        }
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
            let key = event.data.u64();
            if key == STALLS_KEY {
                self.stalls.hear();
                self.next_stall = now;
                continue;
            }
            if let Some(index) = key.checked_sub(LISTENER_KEYS) {
                self.accept(index as usize, now);
                continue;
            }
            match self.sockets.get(&key) {
                Some(Socket::Unproved(_)) => moved |= self.shake(key, sink),
                Some(Socket::Open(_)) => {
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        moved |= self.write(key, sink);
                    }
                    moved |= self.read(key, sink);
                    self.note_unread(key);
                }
                None => {}
            }
        }
        if !self.stalls.is_empty() && now >= self.next_stall {
            self.next_stall = now + Stalls::LOOK_EVERY;
            self.push_stalled();
        }
        if self.resting.is_some_and(|end| now >= end) {
            self.listen_again();
        }
        if now >= self.next_vigil {
            let is_far =
                |socket: &Socket| matches!(socket, Socket::Open(open) if open.pacing.is_far);
            let soon = self.dialled > 0 || self.sockets.values().any(is_far);
            self.next_vigil =
                now + if soon { path_probe::LOOK_FAR_EVERY } else { path_probe::LOOK_EVERY };
            moved |= self.close_vanished(sink);
            self.give_up_vanished();
            for socket in self.sockets.values_mut() {
                if let Socket::Open(open) = socket {
                    open.keep_pace(now);
                }
            }
        }
        if self.unproved > 0 || self.dialled > 0 {
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
        for (peer, fault) in std::mem::take(&mut self.failed) {
            sink(Event::Down { peer, fault });
            moved = true;
        }
        moved
    }
}

impl Rail for TcpRail {
    fn name(&self) -> &'static str {
        self.network.as_ref().map_or(NAMES[0], TcpNetwork::name)
    }

    fn address(&self) -> Vec<u8> {
        let listeners: Vec<SocketAddr> =
            self.listeners.iter().filter_map(|one| one.local_addr().ok()).collect();
        interfaces::emit(self.identity, &listeners)
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        let _uncancelled = Uncancelled::begin();
        if self.links.contains_key(&peer) {
            return Ok(());
        }
        let malformed = || RailError::Unreachable("a malformed address".into());
        let (ways, published) = Ways::parse(address).ok_or_else(malformed)?;
        let (identity, offered) = interfaces::parse(published).ok_or_else(malformed)?;
        let here = identity == self.identity;
        let listeners = offered.clone();
        let (mut candidates, patience) = match &self.network {
            Some(network) => (network.candidates(here, offered), NETWORK_PATIENCE),
            None => (interfaces::order(here, offered, &self.interfaces), ways.patience()),
        };
        if !ways.direct {
            candidates.clear();
        }
        candidates.extend(ways.order(&self.path_costs, (self.credentials.rank, peer)));
        if candidates.is_empty() {
            return Err(RailError::Unreachable(match &self.network {
                Some(network) => format!("none of its addresses is on the network of {network}"),
                None => {
                    "each of its addresses is one of this node too, or of no use elsewhere".into()
                }
            }));
        }
        let now = self.clock.look(Instant::now());
        let mut dialling = if self.generations.contains_key(&peer) {
            Dialling::again(candidates, now)
        } else {
            Dialling::new(candidates, now, patience.min(self.connect_timeout))
        };
        if self.ask_for_path_costs(&ways, now) {
            dialling.hold(now + PATH_COST_PATIENCE);
        }
        self.links.insert(peer, Link::Dialling(dialling));
        self.ways.insert(peer, (ways, listeners));
        self.count_dialled();
        self.dial(now);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        let _uncancelled = Uncancelled::begin();
        self.ways.remove(&peer);
        let Some(link) = self.links.remove(&peer) else { return };
        match link {
            Link::Dialling(_) => self.drop_dials(peer),
            Link::Open { key } => {
                self.forget(key);
            }
        }
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let _uncancelled = Uncancelled::begin();
        let Some(Link::Open { key }) = self.links.get(&peer) else { return Post::Full };
        let key = *key;
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return Post::Full };
        match open.stream.post(frame, self.polls) {
            Ok(post) => {
                let mut is_new = false;
                if frame.len() >= probe::LONG {
                    open.begin_probe(&self.knowledge, false);
                    // One that is watched is looked at in time.
                    is_new = open.stall.begin();
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
        let mut moved = !self.deferred.is_empty() && self.invite_deferred(sink);
        for key in std::mem::take(&mut self.newcomers) {
            moved |= self.shake(key, sink);
        }
        for key in std::mem::take(&mut self.unread) {
            moved |= self.read(key, sink);
            self.note_unread(key);
        }
        let alone = self.speaker.alone();
        if let Some(key) = alone {
            let has_spoken = self.read(key, sink);
            match has_spoken {
                true => self.note_unread(key),
                false => self.speaker.was_silent(),
            }
            moved |= has_spoken;
        }
        let is_others_turn = alone.is_none() || self.polls.is_multiple_of(EPOLL_EVERY);
        let is_busy = self.dialled > 0 || self.writing > 0 || self.stalled > 0;
        // Where the one link rang, others may have as well: then they ring again.
        let rang_elsewhere = std::mem::take(&mut self.has_slept) && !moved;
        if is_others_turn || is_busy || rang_elsewhere {
            moved |= self.poll_epoll(sink);
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

    fn prepare_sleep(&mut self) -> bool {
        let has_more =
            |socket: &Socket| matches!(socket, Socket::Open(open) if open.stream.has_more());
        let has_events =
            !(self.failed.is_empty() && self.deferred.is_empty() && self.newcomers.is_empty());
        self.stalls.prepare_sleep();
        self.has_slept = true;
        !has_events && !self.sockets.values().any(has_more)
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        self.backlogged == 0 && self.deferred.is_empty()
    }

    fn is_at_rest(&self) -> bool {
        self.writing == 0 && self.deferred.is_empty() && self.stalled == 0
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

/// Padding of a process, over all its links: those of many processes may share what is measured.
const PADDING_OF_ALL: usize = 16 << 20;
/// Links that are measured when they open, at one time: they share the way, and each sees what it gets of it.
const MEASURED_AT_ONCE: usize = 4;
/// A link that was opened anew and is lost again so soon may have carried no long packet.
const SHORT_LIFE: Duration = Duration::from_secs(30);

/// Epoll keys from here on are listeners'.
const LISTENER_KEYS: u64 = 1 << 63;
/// What tells that it is time to look at links that may have stalled.
const STALLS_KEY: u64 = LISTENER_KEYS - 1;
/// A burst's messages follow one another in some tenths of a microsecond, where a system call takes some
/// microseconds; an answer to an answer comes after 5 µs at the earliest, and must not wait.
const COALESCE_WITHIN: Duration = Duration::from_micros(2);

/// How long a network of the peer's numbers is tried: there is another way, and this may be another
/// network.
const NETWORK_PATIENCE: Duration = Duration::from_secs(5);

/// How long gateways are waited for to say what their ways cost: some milliseconds in a site, more where they are busy.
const PATH_COST_PATIENCE: Duration = Duration::from_millis(100);

/// While one link is read unasked, epoll is asked for the others once in so many polls.
const EPOLL_EVERY: u32 = 8;
/// Events taken from epoll at once.
const EVENTS: usize = 64;

/// Until a link is measured: a message of up to 64 KiB goes at once, in a site's round trip of tens
/// of microseconds or a WAN's of milliseconds alike; 4 MiB are in flight unmatched at most.
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
