//! Connections in their handshake: dialled by this process, or accepted and not yet authenticated.

mod steps;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use auth::{Channel, Handshake, HandshakeEnd, Hello, Outcome, refusal_in};
use connect::{Agreed, Asked, DialAction, DialFailure, Refusal, VERSION_LEN, other_version};
use netpath::{RelayInfo, TcpNetwork, TcpSample, path_probe};
use rail::{Event, Fault};
use relay::{NOBODY, PathCost, Request, Routes};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use tracing::debug;
use wire::PeerId;

use crate::{LISTENER_KEYS, Shortage, Socket, TcpRail};

/// A connection in its handshake.
pub(super) struct PendingConnection {
    channel: Channel,
    /// Address of the other end.
    address: SocketAddr,
    stage: PendingStage,
    /// Received part of a gateway's message.
    got: Vec<u8>,
    /// Path behind `address`, if that is a gateway's.
    relay_info: RelayInfo,
    /// Other gateways, if the connection only asks for path costs to them (peer [`NOBODY`]).
    about: Vec<SocketAddr>,
}

/// Stage of a connection.
enum PendingStage {
    /// It does not lead to the peer yet.
    Prelude {
        peer: PeerId,
        awaits: Prelude,
        /// Deadline on the rail's clock.
        deadline: Duration,
    },
    /// The two ends prove themselves.
    Handshake(Handshake),
    /// It is the link once the one that it replaces has been closed.
    Replaces(Agreed),
}

/// The event that a connection waits for which does not lead to its peer yet.
#[derive(Clone, Copy)]
enum Prelude {
    Connection,
    /// The answer of a gateway to the hello.
    RelayAnswer(Hello),
    /// The gateway's reply to the request.
    Reply,
}

impl TcpRail {
    fn add(&mut self, pending: PendingConnection, interest: epoll::EventFlags) {
        let key = self.next_key;
        self.next_key += 1;
        let data = epoll::EventData::new_u64(key);
        if epoll::add(&self.epoll, &pending.channel.socket, data, interest).is_ok() {
            self.pending += 1;
            self.sockets.insert(key, Socket::PendingConnection(Box::new(pending)));
        }
    }

    /// Tries the next addresses of peers being dialled, and gives up those that are out of time.
    pub(super) fn dial(&mut self, now: Duration) {
        let Self { links, sockets, .. } = self;
        for (peer, action) in links.poll_dials(now, |peer| has_proved_to(sockets, peer)) {
            match action {
                DialAction::Try { address, timeout } => self.dial_one(peer, address, now + timeout),
                DialAction::GiveUp(account) => {
                    self.ended.push_back((peer, Fault::Unreachable(account)));
                    self.drop_dials(peer);
                }
            }
        }
    }

    fn dial_one(&mut self, peer: PeerId, address: SocketAddr, deadline: Duration) {
        debug!(peer = peer.0, %address, "TCP: connects");
        match begin_connect(address, self.network.as_ref(), self.short_segments.contains(&peer)) {
            Ok(socket) => {
                let stage = PendingStage::connecting(peer, deadline);
                self.add(PendingConnection::new(socket, address, stage), epoll::EventFlags::OUT);
            }
            Err(error) => {
                let failure = self.connect_failure(peer, address, &error);
                self.note_failure(peer, address, failure);
            }
        }
    }

    /// Asks the gateways of this site for path costs, if there is a choice and the costs are unknown. Returns true if
    /// answers are pending.
    pub(super) fn ask_for_path_costs(&mut self, routes: &Routes, now: Duration) -> bool {
        let (gateways, about) = routes.questions();
        for &gateway in gateways {
            if !self.path_costs.is_due(gateway, about, now) {
                continue;
            }
            let Ok(socket) = begin_connect(gateway, self.network.as_ref(), false) else {
                self.path_costs.handle_answer(gateway, about, None, now);
                continue;
            };
            self.path_costs.note_asked(gateway, about);
            let stage = PendingStage::connecting(NOBODY, now + ANSWER_TIMEOUT);
            let pending = PendingConnection {
                about: about.to_vec(),
                ..PendingConnection::new(socket, gateway, stage)
            };
            self.add(pending, epoll::EventFlags::OUT);
        }
        gateways.iter().any(|gateway| self.path_costs.is_asked(*gateway, about))
    }

    /// Records the path costs that a gateway reported, or its failure.
    fn handle_path_costs(
        &mut self,
        gateway: SocketAddr,
        about: &[SocketAddr],
        said: Option<&[PathCost]>,
    ) {
        let now = self.clock.now();
        let Self { path_costs, links, routes, keys, .. } = self;
        path_costs.handle_answer(gateway, about, said, now);
        for (peer, dialling) in links.all_dialling() {
            let Some((routes, _)) = routes.get(&peer) else { continue };
            let (gateways, others) = routes.questions();
            if others == about {
                let is_said = !gateways.iter().any(|one| path_costs.is_asked(*one, about));
                dialling.arrange(&routes.order(path_costs, (keys.own().rank, peer)), is_said, now);
            }
        }
    }

    /// Ends a connection that becomes no link.
    fn end(&mut self, one: PendingConnection, failure: Failure) {
        let PendingConnection { address, stage, about, .. } = one;
        match stage {
            PendingStage::Prelude { peer: NOBODY, .. } => {
                self.handle_path_costs(address, &about, None);
            }
            PendingStage::Prelude { peer, .. } => {
                let failure = match failure {
                    Failure::End(end) => end.into(),
                    Failure::System(error) => self.connect_failure(peer, address, &error),
                };
                self.note_failure(peer, address, failure);
            }
            PendingStage::Handshake(handshake) => {
                match handshake.end(failure.into_end(), &mut self.links) {
                    Outcome::Attempt(peer, failure) => self.note_failure(peer, address, failure),
                    Outcome::Stranger(refusal) => self.refused.push((address, refusal)),
                    Outcome::Excused => {}
                }
            }
            PendingStage::Replaces(_) => {}
        }
    }

    /// Takes a connection out of the handshake.
    fn take_pending(&mut self, key: u64) -> Option<PendingConnection> {
        let Some(Socket::PendingConnection(one)) = self.sockets.remove(&key) else { return None };
        self.pending -= 1;
        Some(*one)
    }

    fn note_failure(&mut self, peer: PeerId, address: SocketAddr, failure: DialFailure) {
        debug!(peer = peer.0, %address, ?failure, "TCP: has not connected");
        let now = self.clock.now();
        if let Some(dialling) = self.links.dialling(peer) {
            dialling.handle_failure(address, failure, now);
        }
    }

    /// True if a socket is a droppable attempt to reach `peer`. A request to a gateway is completed first, so that
    /// the peer learns whose connection it was.
    fn is_dial_to(socket: &Socket, peer: PeerId) -> bool {
        let Socket::PendingConnection(one) = socket else { return false };
        let is_asked_for = matches!(
            one.stage,
            PendingStage::Prelude { awaits: Prelude::RelayAnswer(_) | Prelude::Reply, .. }
        );
        one.dials() == Some(peer) && !is_asked_for
    }

    /// Closes this side's attempts to reach `peer`.
    pub(super) fn drop_dials(&mut self, peer: PeerId) {
        let dials = self.sockets.extract_if(|_, socket| Self::is_dial_to(socket, peer));
        for (_, socket) in dials.collect::<Vec<_>>() {
            self.pending -= 1;
            if let (Socket::PendingConnection(mut one), Ok(nonce)) = (socket, nonce())
                && one.is_connecting()
                && self.request(peer, one.address).is_none()
            {
                // If the connection has just been established, the hello tells the other end whose it was. Otherwise
                // it learns nothing, and need not.
                let encrypts = self.encryption.covers(peer);
                let _ = one.say(&self.keys.hello(peer, encrypts, 0, nonce));
            }
        }
    }

    /// Begins the handshake with a peer over a new connection.
    fn ask(&mut self, peer: PeerId) -> Asked {
        let is_asked = is_asked(&self.sockets, |handshake| asks(handshake, peer));
        self.links.ask(peer, is_asked)
    }

    pub(super) fn accept(&mut self, index: usize, now: Duration) {
        for _ in 0..ACCEPTS {
            let (socket, address) = match self.listeners[index].accept() {
                Ok(accepted) => accepted,
                Err(error) if is_shortage(&error) => return self.rest(&error, now),
                Err(_) => return,
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            debug!(%address, "TCP: accepts");
            self.evict_oldest();
            let stage = PendingStage::Handshake(Handshake::listen(now + self.connect_timeout));
            self.add(PendingConnection::new(socket, address, stage), epoll::EventFlags::IN);
        }
    }

    /// Stops accepting for a while. Pending connections would keep the listeners readable, and no thread could sleep.
    fn rest(&mut self, error: &io::Error, now: Duration) {
        self.listen_for(epoll::EventFlags::empty());
        self.resting = Some(now + REST);
        if let Shortage::Never = self.shortage {
            let text = format!(
                "a connection waits and cannot be accepted: {error}; it is tried again, and more \
                 open files (ulimit -n) would help"
            );
            self.shortage = Shortage::Untold(text);
        }
    }

    pub(super) fn listen_again(&mut self) {
        self.resting = None;
        self.listen_for(epoll::EventFlags::IN);
    }

    fn listen_for(&mut self, interest: epoll::EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENER_KEYS + index as u64);
            // Modifying a registered descriptor allocates nothing that could be short.
            let _ = epoll::modify(&self.epoll, listener, data, interest);
        }
    }

    /// Bounds the number of unauthenticated peers by closing the one that has been silent longest. A real peer that
    /// is closed so connects again.
    fn evict_oldest(&mut self) {
        if self.pending < PENDING_MAX {
            return;
        }
        let unauthenticated = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::PendingConnection(one) if one.dials().is_none() => Some((one.is_known(), key)),
            Socket::PendingConnection(_) | Socket::Open(_) => None,
        });
        let count = unauthenticated.clone().count();
        if let Some((_, key)) = unauthenticated.min().filter(|_| count >= PENDING_MAX) {
            self.give_up(key, Refusal::TooMany.into());
        }
    }

    /// Closes a connection in its handshake.
    fn give_up(&mut self, key: u64, end: HandshakeEnd) {
        if let Some(one) = self.take_pending(key) {
            self.end(one, end.into());
        }
    }

    /// Advances a handshake as far as the received bytes allow.
    pub(super) fn advance(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(mut one) = self.take_pending(key) else { return false };
        loop {
            let was_connecting = one.is_connecting();
            match self.step(&mut one) {
                Ok(Step::Wait) => {
                    self.keep_pending(key, one);
                    return false;
                }
                Ok(Step::On) if was_connecting => {
                    let (data, socket) = (epoll::EventData::new_u64(key), &one.channel.socket);
                    // Fails only for lack of kernel memory; the attempt then times out.
                    let _ = epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN);
                }
                Ok(Step::On) => {}
                Ok(Step::Open(agreed)) => {
                    self.open(key, agreed, (one.channel, None), one.relay_info, sink);
                    return true;
                }
                Ok(Step::Anticipate(agreed)) => {
                    let PendingConnection { channel, stage, relay_info, .. } = one;
                    let PendingStage::Handshake(verdict) = stage else { return false };
                    self.open(key, agreed, (channel, Some(verdict)), relay_info, sink);
                    return true;
                }
                Ok(Step::Drop) => return false,
                Ok(Step::Replace(peer)) => {
                    self.keep_pending(key, one);
                    self.newcomers.push(key);
                    if let Some(old) = self.links.open_key(peer) {
                        self.close(old, Fault::Lost("the peer has lost it".into()));
                    }
                    return true;
                }
                Err(failure) => {
                    self.end(one, failure);
                    return false;
                }
            }
        }
    }

    fn keep_pending(&mut self, key: u64, one: PendingConnection) {
        self.pending += 1;
        self.sockets.insert(key, Socket::PendingConnection(Box::new(one)));
    }

    /// Returns the request for the gateway at `address`, if it is a gateway on a route to `peer`.
    fn request(&self, peer: PeerId, address: SocketAddr) -> Option<Request> {
        let (routes, listeners) = self.routes.get(&peer)?;
        let is_gateway = routes.gateways().any(|gateway| gateway == address);
        let known = (&self.path_costs, self.keys.own().rank);
        let named = self.keys.rank_of(peer);
        let request = || routes.request(peer, address, listeners, known);
        is_gateway.then(|| Request { peer: named, ..request() })
    }

    /// Says what it means that a connection could not be made. A refusal by a gateway says nothing of the peer.
    fn connect_failure(&self, peer: PeerId, address: SocketAddr, error: &io::Error) -> DialFailure {
        let is_refused = error.kind() == ErrorKind::ConnectionRefused;
        let failure = if is_refused && self.request(peer, address).is_none() {
            DialFailure::refused
        } else {
            DialFailure::silent
        };
        failure(error.to_string())
    }

    pub(super) fn expire(&mut self, now: Duration) {
        let late =
            |socket: &Socket| matches!(socket, Socket::PendingConnection(one) if one.is_late(now));
        let keys: Vec<u64> =
            self.sockets.iter().filter(|(_, one)| late(one)).map(|(&key, _)| key).collect();
        for key in keys {
            let Some(one) = self.take_pending(key) else { continue };
            let is_connecting = one.is_connecting();
            let end = if is_connecting {
                HandshakeEnd::Failed("no connection".into())
            } else {
                HandshakeEnd::Late
            };
            self.end(one, end.into());
        }
    }

    /// Ends attempts to reopen links whose hosts have vanished after connecting.
    pub(super) fn give_up_vanished(&mut self) {
        let vanished = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::PendingConnection(one) => {
                let peer = one.dials().filter(|peer| self.links.has_been_open(*peer))?;
                path_probe::has_vanished(&one.channel.socket, path_probe::SILENCE_WAN)?;
                Some((key, peer))
            }
            Socket::Open(_) => None,
        });
        for (key, peer) in vanished.collect::<Vec<_>>() {
            self.short_segments.insert(peer);
            self.give_up(key, HandshakeEnd::Failed("connected, but vanished".into()));
        }
    }
}

impl PendingStage {
    fn connecting(peer: PeerId, deadline: Duration) -> Self {
        Self::Prelude { peer, awaits: Prelude::Connection, deadline }
    }
}

impl PendingConnection {
    /// A connection with this address and stage.
    fn new(socket: TcpStream, address: SocketAddr, stage: PendingStage) -> Self {
        let (channel, relay_info) = (Channel::new(socket), RelayInfo::default());
        Self { channel, address, stage, got: Vec::new(), relay_info, about: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn awaits_proof(&self) -> bool {
        matches!(&self.stage, PendingStage::Handshake(handshake) if handshake.awaits_proof())
    }

    /// Round trip of the connection itself, as far as the kernel knows.
    fn round_trip(&self) -> Duration {
        let sample = TcpSample::of(&self.channel.socket).ok();
        Duration::from_nanos(sample.and_then(|sample| sample.round_trip_ns).unwrap_or(0))
    }

    /// Returns the peer that this side dials, if it is the initiator.
    fn dials(&self) -> Option<PeerId> {
        match &self.stage {
            PendingStage::Prelude { peer, .. } => Some(*peer),
            PendingStage::Handshake(handshake) => handshake.asked().map(Asked::peer),
            PendingStage::Replaces(_) => None,
        }
    }

    fn is_connecting(&self) -> bool {
        matches!(self.stage, PendingStage::Prelude { awaits: Prelude::Connection, .. })
    }

    /// True if the other end has sent a valid hello.
    fn is_known(&self) -> bool {
        match &self.stage {
            PendingStage::Prelude { .. } => false,
            PendingStage::Handshake(handshake) => handshake.is_known(),
            PendingStage::Replaces(_) => true,
        }
    }

    /// True if the connection is given up now.
    fn is_late(&self, now: Duration) -> bool {
        let socket = &self.channel.socket;
        let is_alive = || path_probe::has_vanished(socket, path_probe::SILENCE).is_none();
        match &self.stage {
            PendingStage::Prelude { deadline, .. } => now >= *deadline,
            PendingStage::Handshake(handshake) => handshake.is_late(now, is_alive),
            PendingStage::Replaces(_) => false,
        }
    }

    /// Sends a handshake message. It is short: a fresh connection takes it whole.
    fn say(&mut self, message: &[u8]) -> Result<(), Failure> {
        match self.channel.write(message)? {
            count if count == message.len() => Ok(()),
            _ => Err(Refusal::Closed.into()),
        }
    }

    /// Returns the refusal of an acceptor that has answered a hello with another version, before any key.
    fn heard_version(&self) -> Option<Refusal> {
        let mut word = [0; VERSION_LEN];
        let len = self.channel.socket.peek(&mut word).ok()?;
        other_version(word.get(..len)?)
    }

    /// Returns the next `N` bytes of a gateway, once they have arrived.
    fn hear<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Failure> {
        let mut buffer = [0; N];
        let Some(bytes) = self.read(&mut buffer[self.got.len()..])? else { return Ok(None) };
        self.got.extend(bytes);
        let Ok(message) = <[u8; N]>::try_from(&self.got[..]) else { return Ok(None) };
        self.got.clear();
        Ok(Some(message))
    }

    /// Reads what has arrived, as far as there is room.
    fn read<'a>(&mut self, room: &'a mut [u8]) -> Result<Option<&'a [u8]>, Failure> {
        match self.channel.read(room) {
            Ok(0) => Err(Refusal::Closed.into()),
            Ok(count) => Ok(Some(&room[..count])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// True if an attempt to reach `peer` waits for the verdict, so that it may be the link already.
pub(super) fn has_proved_to(sockets: &FxHashMap<u64, Socket>, peer: PeerId) -> bool {
    is_asked(sockets, |handshake| handshake.is_proved() && asks(handshake, peer))
}

fn asks(handshake: &Handshake, peer: PeerId) -> bool {
    handshake.asked().map(Asked::peer) == Some(peer)
}

/// True if a handshake of this kind is under way.
fn is_asked(sockets: &FxHashMap<u64, Socket>, is_such: impl Fn(&Handshake) -> bool) -> bool {
    sockets.values().any(|socket| {
        let Socket::PendingConnection(one) = socket else { return false };
        matches!(&one.stage, PendingStage::Handshake(handshake) if is_such(handshake))
    })
}

/// The result of one step of a handshake.
enum Step {
    Wait,
    On,
    Open(Agreed),
    /// It is the link, although its verdict is still to come.
    Anticipate(Agreed),
    /// The existing link is closed first; then this connection is the link.
    Replace(PeerId),
    Drop,
}

/// Why a connection in its handshake ends.
enum Failure {
    End(HandshakeEnd),
    System(io::Error),
}

impl Failure {
    fn into_end(self) -> HandshakeEnd {
        match self {
            Self::End(end) => end,
            Self::System(error) => HandshakeEnd::Failed(error.to_string()),
        }
    }
}

impl From<HandshakeEnd> for Failure {
    fn from(end: HandshakeEnd) -> Self {
        Self::End(end)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::End(refusal.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match refusal_in(&error) {
            Some(refusal) => refusal.into(),
            None => Self::System(error),
        }
    }
}

/// Begins a connection. `by` binds it to one network, so that its bytes go nowhere else. `is_short` limits segments
/// in both directions, where longer ones may be lost.
pub(super) fn begin_connect(
    to: SocketAddr,
    by: Option<&TcpNetwork>,
    is_short: bool,
) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(to);
    let kind = socket2::Type::STREAM.nonblocking().cloexec();
    let socket = socket2::Socket::new(domain, kind, Some(socket2::Protocol::TCP))?;
    if let Some(network) = by {
        // Older kernels reserve this for root; there the routing table must choose the network.
        let _ = socket.bind_device(Some(network.interface().link().as_bytes()));
        socket.bind(&SocketAddr::new(network.address(), 0).into())?;
    }
    if is_short {
        socket.set_tcp_mss(SHORT_SEGMENT)?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// True if accepting failed for lack of a resource that may be there later.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

fn nonce() -> Result<[u8; 32], Failure> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// Segment size that every network carries: the IPv6 minimum MTU (1280 bytes, RFC 8200 §5) without headers.
pub(super) const SHORT_SEGMENT: u32 = 1220;
/// Time for a gateway to report path costs. The dialler itself waits less.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause of the listeners when nothing can be accepted.
const REST: Duration = Duration::from_millis(200);
/// Pending connections at once; a scan can hold no more.
pub(super) const PENDING_MAX: usize = 128;
/// Maximum number of connections accepted per poll.
const ACCEPTS: usize = 16;
