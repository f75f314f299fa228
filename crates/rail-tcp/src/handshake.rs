//! Connections in their handshake: dialled by this process, or accepted and not yet authenticated.

mod steps;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use auth::{Answer, Channel, Hello, refusal_in};
use connect::{Agreed, Asked, DialAction, DialFailure, VERSION_LEN, other_version, version_word};
use netpath::{RelayInfo, TcpNetwork, TcpSample, path_probe};
use rail::{Event, Fault, Refusal};
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
    stage: HandshakeStage,
    got: Vec<u8>,
    /// Deadline on the rail's clock.
    deadline: Duration,
    /// Path behind `address`, if that is a gateway's.
    relay_info: RelayInfo,
    /// Other gateways, if the connection only asks for path costs to them (peer [`NOBODY`]).
    about: Vec<SocketAddr>,
}

/// The message or event that the handshake waits for.
#[derive(Clone, Copy)]
enum HandshakeStage {
    Connect {
        peer: PeerId,
    },
    /// The answer of a gateway to the hello.
    RelayAnswer {
        peer: PeerId,
        hello: Hello,
    },
    /// The gateway's reply to the request.
    Reply {
        peer: PeerId,
    },
    Answer {
        asked: Asked,
        hello: Hello,
    },
    Verdict {
        asked: Asked,
    },
    Hello,
    Keys {
        peer: PeerId,
        hello: Hello,
    },
    Proof {
        peer: PeerId,
        hello: Hello,
        answer: Answer,
    },
    /// Authenticated; the link that it replaces has been closed.
    Authenticated {
        agreed: Agreed,
    },
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
                let stage = HandshakeStage::Connect { peer };
                let pending = PendingConnection::new(socket, address, stage, deadline);
                self.add(pending, epoll::EventFlags::OUT);
            }
            Err(error) => {
                let failure = self.dial_failure(peer, address, Failure::System(error));
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
            let (stage, deadline) =
                (HandshakeStage::Connect { peer: NOBODY }, now + ANSWER_TIMEOUT);
            let pending = PendingConnection {
                about: about.to_vec(),
                ..PendingConnection::new(socket, gateway, stage, deadline)
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
        let Self { path_costs, links, routes, credentials, .. } = self;
        path_costs.handle_answer(gateway, about, said, now);
        for (peer, dialling) in links.all_dialling() {
            let Some((routes, _)) = routes.get(&peer) else { continue };
            let (gateways, others) = routes.questions();
            if others == about {
                let is_said = !gateways.iter().any(|one| path_costs.is_asked(*one, about));
                dialling.arrange(&routes.order(path_costs, (credentials.rank, peer)), is_said, now);
            }
        }
    }

    /// Extends the deadline of a connection attempt that met a listener, the peer's or a gateway's. A gateway may be
    /// there though nobody is behind it.
    fn note_connection(&mut self, one: &mut PendingConnection) {
        if !one.about.is_empty() {
            return;
        }
        let now = self.clock.now();
        one.deadline = now + self.connect_timeout;
        let HandshakeStage::Answer { asked, .. } = one.stage else { return };
        if let Some(dialling) = self.links.dialling(asked.peer()) {
            dialling.handle_connection(now, 2 * self.connect_timeout);
        }
    }

    /// Records that a connection ended that its other end may have accepted.
    fn note_unanswered(&mut self, one: &PendingConnection) {
        if let HandshakeStage::Verdict { asked } = one.stage {
            self.links.handle_unanswered(asked);
        }
    }

    fn note_failed_try(&mut self, peer: PeerId, one: &PendingConnection, failure: DialFailure) {
        match peer {
            NOBODY => self.handle_path_costs(one.address, &one.about, None),
            peer => self.note_failure(peer, one.address, failure),
        }
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
        let is_asked_for =
            matches!(one.stage, HandshakeStage::RelayAnswer { .. } | HandshakeStage::Reply { .. });
        one.dials() == Some(peer) && !is_asked_for
    }

    /// Closes this side's attempts to reach `peer`.
    pub(super) fn drop_dials(&mut self, peer: PeerId) {
        let dials = self.sockets.extract_if(|_, socket| Self::is_dial_to(socket, peer));
        for (_, socket) in dials.collect::<Vec<_>>() {
            self.pending -= 1;
            if let (Socket::PendingConnection(mut one), Ok(nonce)) = (socket, nonce())
                && let HandshakeStage::Connect { .. } = one.stage
                && self.request(peer, one.address).is_none()
            {
                // If the connection has just been established, the hello tells the other end whose it was. Otherwise
                // it learns nothing, and need not.
                let encrypts = self.encryption.covers(peer);
                let _ = one.say(&self.credentials.hello(peer, encrypts, 0, nonce));
            }
        }
    }

    /// Begins the handshake with a peer over a new connection.
    fn ask(&mut self, peer: PeerId) -> Asked {
        let is_asked = |socket: &Socket| match socket {
            Socket::PendingConnection(one) => match one.stage {
                HandshakeStage::Answer { asked, .. } | HandshakeStage::Verdict { asked } => {
                    asked.peer() == peer
                }
                HandshakeStage::Connect { .. }
                | HandshakeStage::RelayAnswer { .. }
                | HandshakeStage::Reply { .. }
                | HandshakeStage::Hello
                | HandshakeStage::Keys { .. }
                | HandshakeStage::Proof { .. }
                | HandshakeStage::Authenticated { .. } => false,
            },
            Socket::Open(_) => false,
        };
        self.links.ask(peer, self.sockets.values().any(is_asked))
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
            let deadline = now + self.connect_timeout;
            let stage = HandshakeStage::Hello;
            self.add(
                PendingConnection::new(socket, address, stage, deadline),
                epoll::EventFlags::IN,
            );
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
            self.reject(key, Refusal::TooMany);
        }
    }

    /// Closes a connection in its handshake because of the other end's fault.
    fn reject(&mut self, key: u64, refusal: Refusal) {
        if let Some(Socket::PendingConnection(one)) = self.sockets.remove(&key) {
            self.pending -= 1;
            self.note_refusal(&one, refusal);
        }
    }

    /// Reports a refused connection. After a proper hello, a timeout or close is not reported: the peer may be
    /// computing, or have found a better path.
    fn note_refusal(&mut self, one: &PendingConnection, refusal: Refusal) {
        let excusable = match refusal {
            Refusal::Slow | Refusal::Closed | Refusal::TooMany => true,
            Refusal::Protocol
            | Refusal::Version { .. }
            | Refusal::Job
            | Refusal::Secret
            | Refusal::Altered
            | Refusal::Clear
            | Refusal::Encrypted => false,
        };
        if !(excusable && one.is_known()) {
            self.refused.push((one.address, refusal));
        }
    }

    /// Advances a handshake as far as the received bytes allow.
    pub(super) fn advance(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::PendingConnection(mut one)) = self.sockets.remove(&key) else {
            return false;
        };
        self.pending -= 1;
        loop {
            let connecting = matches!(one.stage, HandshakeStage::Connect { .. });
            match self.step(&mut one) {
                Ok(Step::Wait) => {
                    self.pending += 1;
                    self.sockets.insert(key, Socket::PendingConnection(one));
                    return false;
                }
                Ok(Step::On) if connecting => {
                    let data = epoll::EventData::new_u64(key);
                    // Fails only for lack of kernel memory; the attempt then times out.
                    let _ = epoll::modify(
                        &self.epoll,
                        &one.channel.socket,
                        data,
                        epoll::EventFlags::IN,
                    );
                    self.note_connection(&mut one);
                }
                Ok(Step::On) => {}
                Ok(Step::Open(agreed)) => {
                    self.open(key, agreed, one.channel, one.relay_info, sink);
                    return true;
                }
                Ok(Step::Drop) => return false,
                Ok(Step::Replace(peer)) => {
                    self.pending += 1;
                    self.sockets.insert(key, Socket::PendingConnection(one));
                    self.newcomers.push(key);
                    if let Some(old) = self.links.open_key(peer) {
                        self.close(old, Fault::Lost("the peer has lost it".into()));
                    }
                    return true;
                }
                Err(failure) => {
                    if !matches!(failure, Failure::Declined) {
                        self.note_unanswered(&one);
                    }
                    match (one.dials(), failure) {
                        (Some(peer), failure) => {
                            let failure = self.dial_failure(peer, one.address, failure);
                            self.note_failed_try(peer, &one, failure);
                        }
                        (None, Failure::Refused(refusal)) => self.note_refusal(&one, refusal),
                        (None, Failure::System(_) | Failure::Declined | Failure::Gateway(_)) => {
                            self.note_refusal(&one, Refusal::Closed)
                        }
                    }
                    return false;
                }
            }
        }
    }

    /// Returns the request for the gateway at `address`, if it is a gateway on a route to `peer`.
    fn request(&self, peer: PeerId, address: SocketAddr) -> Option<Request> {
        let (routes, listeners) = self.routes.get(&peer)?;
        let is_gateway = routes.gateways().any(|gateway| gateway == address);
        let known = (&self.path_costs, self.credentials.rank);
        is_gateway.then(|| routes.request(peer, address, listeners, known))
    }

    /// Says what the failure of an attempt means. A refusal by a gateway says nothing of the peer.
    fn dial_failure(&self, peer: PeerId, address: SocketAddr, failure: Failure) -> DialFailure {
        let text = failure.to_string();
        match failure {
            Failure::System(error)
                if is_refusal(&error) && self.request(peer, address).is_none() =>
            {
                DialFailure::refused(text)
            }
            Failure::Refused(Refusal::Version { .. }) => DialFailure::other_version(text),
            Failure::Refused(Refusal::Secret | Refusal::Job | Refusal::Protocol) => {
                DialFailure::stranger(text)
            }
            Failure::Refused(Refusal::Closed) => DialFailure::closed(text),
            Failure::System(_) | Failure::Refused(_) | Failure::Declined | Failure::Gateway(_) => {
                DialFailure::silent(text)
            }
        }
    }

    pub(super) fn expire(&mut self, now: Duration) {
        let late = |socket: &Socket| matches!(socket, Socket::PendingConnection(one) if now >= one.deadline && !one.may_be_open());
        let keys: Vec<u64> =
            self.sockets.iter().filter(|(_, one)| late(one)).map(|(&key, _)| key).collect();
        for key in keys {
            let Some(Socket::PendingConnection(one)) = self.sockets.get(&key) else { continue };
            let Some(peer) = one.dials() else {
                self.reject(key, Refusal::Slow);
                continue;
            };
            let connecting = matches!(one.stage, HandshakeStage::Connect { .. });
            let text = if connecting { "no connection" } else { "connected, but silent" };
            if let Some(Socket::PendingConnection(one)) = self.sockets.remove(&key) {
                self.pending -= 1;
                self.note_unanswered(&one);
                self.note_failed_try(peer, &one, DialFailure::silent(text));
            }
        }
    }

    /// Ends attempts to reopen links whose hosts have vanished after connecting.
    pub(super) fn give_up_vanished(&mut self) {
        let vanished = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::PendingConnection(one) => {
                let peer = one.dials().filter(|peer| self.links.has_been_open(*peer))?;
                path_probe::has_vanished(&one.channel.socket, path_probe::SILENCE_WAN)?;
                Some((key, peer, one.address))
            }
            Socket::Open(_) => None,
        });
        for (key, peer, address) in vanished.collect::<Vec<_>>() {
            self.sockets.remove(&key);
            self.pending -= 1;
            self.short_segments.insert(peer);
            self.note_failure(peer, address, DialFailure::silent("connected, but vanished"));
        }
    }
}

impl PendingConnection {
    /// A connection with this address whose handshake begins with `stage`.
    fn new(
        socket: TcpStream,
        address: SocketAddr,
        stage: HandshakeStage,
        deadline: Duration,
    ) -> Self {
        let (channel, relay_info) = (Channel::new(socket), RelayInfo::default());
        Self { channel, address, stage, got: Vec::new(), deadline, relay_info, about: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn awaits_proof(&self) -> bool {
        matches!(self.stage, HandshakeStage::Proof { .. })
    }

    /// Round trip of the connection itself, as far as the kernel knows.
    fn round_trip(&self) -> Duration {
        let sample = TcpSample::of(&self.channel.socket).ok();
        Duration::from_nanos(sample.and_then(|sample| sample.round_trip_ns).unwrap_or(0))
    }

    /// Returns the peer that this side dials, if it is the initiator.
    fn dials(&self) -> Option<PeerId> {
        match &self.stage {
            HandshakeStage::Connect { peer }
            | HandshakeStage::RelayAnswer { peer, .. }
            | HandshakeStage::Reply { peer } => Some(*peer),
            HandshakeStage::Answer { asked, .. } | HandshakeStage::Verdict { asked } => {
                Some(asked.peer())
            }
            HandshakeStage::Hello
            | HandshakeStage::Keys { .. }
            | HandshakeStage::Proof { .. }
            | HandshakeStage::Authenticated { .. } => None,
        }
    }

    /// True if the other end has sent a valid hello.
    fn is_known(&self) -> bool {
        matches!(
            self.stage,
            HandshakeStage::Keys { .. }
                | HandshakeStage::Proof { .. }
                | HandshakeStage::Authenticated { .. }
        )
    }

    /// True if the peer may have taken this connection for the link already, or will once it polls. Such a connection
    /// has no deadline, like a link, while the peer's host is alive.
    fn may_be_open(&self) -> bool {
        let is_proved = matches!(self.stage, HandshakeStage::Verdict { .. });
        is_proved && path_probe::has_vanished(&self.channel.socket, path_probe::SILENCE).is_none()
    }

    /// Sends a handshake message. It is short: a fresh connection takes it whole.
    fn say(&mut self, message: &[u8]) -> Result<(), Failure> {
        match self.channel.write(message)? {
            count if count == message.len() => Ok(()),
            _ => Err(Refusal::Closed.into()),
        }
    }

    /// Tells a caller of another version the own one, so that both ends can name both.
    fn answer(&mut self, refusal: Refusal) -> Refusal {
        if let Refusal::Version { .. } = refusal {
            // A caller that does not hear it sees a closed connection.
            let _ = self.say(&version_word());
        }
        refusal
    }

    /// Returns the refusal of an acceptor that has answered a hello with another version, before any key.
    fn heard_version(&self) -> Option<Refusal> {
        let mut word = [0; VERSION_LEN];
        let len = self.channel.socket.peek(&mut word).ok()?;
        other_version(word.get(..len)?)
    }

    /// Returns the next `N` bytes, once they have arrived.
    fn hear<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Failure> {
        let mut buffer = [0; N];
        let missing = N - self.got.len();
        match self.channel.read(&mut buffer[..missing]) {
            Ok(0) => return Err(Refusal::Closed.into()),
            Ok(count) => self.got.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let Ok(message) = <[u8; N]>::try_from(&self.got[..]) else { return Ok(None) };
        self.got.clear();
        Ok(Some(message))
    }
}

/// True if an attempt to reach `peer` waits for the verdict, so that it may be the link already.
pub(super) fn has_proved_to(sockets: &FxHashMap<u64, Socket>, peer: PeerId) -> bool {
    sockets.values().any(|socket| {
        let Socket::PendingConnection(one) = socket else { return false };
        matches!(one.stage, HandshakeStage::Verdict { asked } if asked.peer() == peer)
    })
}

/// The result of one step of a handshake.
enum Step {
    Wait,
    On,
    Open(Agreed),
    /// The existing link is closed first; then this connection is the link.
    Replace(PeerId),
    Drop,
}

enum Failure {
    Refused(Refusal),
    /// The other end prefers another connection, which may fail.
    Declined,
    System(io::Error),
    /// A gateway does not reach the peer, and says why.
    Gateway(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Declined => f.write_str("declined in favour of another connection"),
            Self::System(error) => error.fmt(f),
            Self::Gateway(text) => write!(f, "gateway: {text}"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match refusal_in(&error) {
            Some(refusal) => Self::Refused(refusal),
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

/// True if the other host, or somebody in its name, has refused the connection.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
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
/// PendingConnection connections at once; a scan can hold no more.
pub(super) const PENDING_MAX: usize = 128;
/// Maximum number of connections accepted per poll.
const ACCEPTS: usize = 16;
