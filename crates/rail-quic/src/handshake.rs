//! Connections that are to become links: those that this process opens, and those it accepts.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use auth::{Handshake, HandshakeEnd, Opening, Outcome, Step, answer_to, verdict};
use bytes::Bytes;
use connect::{Agreed, Asked, DialAction, DialFailure, Verdict};
use quinn_proto::{ConnectionHandle, Dir, Incoming};
use rail::{Fault, Refusal};
use rustc_hash::FxHashMap;
use tracing::debug;
use wire::{PeerId, ProcessId};

use crate::congestion::Path;
use crate::connection::{Code, Connection, Outlet, Stage};
use crate::controller::SharedController;
use crate::endpoint::EndpointDriver;
use crate::key_chain::KeyId;
use crate::reports::QuicReport;
use crate::socket::Socket;

impl EndpointDriver {
    /// Starts to connect to `peer`. `patience` limits the time for a peer that was never connected.
    pub(super) fn connect(
        &mut self,
        peer: PeerId,
        candidates: Vec<SocketAddr>,
        patience: Duration,
    ) {
        if self.links.get(peer).is_some() {
            return;
        }
        let now = self.clock.look(Instant::now());
        self.links.dial(peer, candidates, (now, patience), RandomState::new().hash_one(peer.0));
        self.dial(Instant::now());
    }

    /// Adds a process of another job, with the key that both have to prove.
    pub(super) fn add_peer(&mut self, peer: (PeerId, ProcessId), key: &[u8; 32]) {
        let own = self.local.process();
        self.links.add_peer(peer.0, peer.1 < own);
        if let Err(error) = self.keys.add(own, peer, key) {
            // The key of the job has the same kind, so this does not happen.
            debug!(%error, "QUIC: a key of another job is left out");
        }
        self.strangers.set_keys(self.keys.marks());
        self.filter_sockets();
    }

    pub(super) fn is_known(&self, peer: PeerId) -> bool {
        self.links.get(peer).is_some()
    }

    /// True if first packets have to prove a key.
    pub(super) fn has_many_pending(&self) -> bool {
        self.pending_accepts().count() >= UNPROVED_UNVALIDATED
    }

    /// Accepts a new connection. If many are pending, the client must validate its address first (Retry), which costs
    /// it a round trip. If the limit is reached, the oldest pending connection is closed.
    pub(super) fn admit(
        &mut self,
        index: usize,
        incoming: Incoming,
        now: Instant,
        answer: &mut Vec<u8>,
    ) {
        let from = incoming.remote_address();
        if self.has_many_pending() && !incoming.remote_address_validated() && incoming.may_retry() {
            if let Ok(transmit) = self.endpoint.retry(incoming, answer) {
                self.sockets[index].send(transmit, answer);
            }
            return;
        }
        self.evict_pending(now);
        let known = self.knowledge.recall(self.sockets[index].address, from);
        let controller = SharedController::new(known);
        // A stranger meets the key of the job, and is told why it is refused.
        let key = self.keys.maker(incoming.orig_dst_cid()).unwrap_or(KeyId::Own);
        let config = self.keys.get(key).server(&controller, known);
        match self.endpoint.accept(incoming, now, answer, Some(config)) {
            Ok((handle, protocol)) => {
                let handshake = Handshake::listen(self.clock.look(now) + TRY_TIMEOUT);
                let stage = (Stage::Handshake(handshake), key);
                self.add(handle, Connection::new(protocol, index, stage, controller, now));
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.sockets[index].send(transmit, answer);
                }
                self.note_refusal(from, Refusal::Protocol);
            }
        }
    }

    /// Accepted connections that are not links, with their deadlines; closed ones come first.
    fn pending_accepts(&self) -> impl Iterator<Item = (Duration, usize)> {
        self.connections.iter().filter_map(|(&key, connection)| match &connection.stage {
            Stage::Handshake(handshake) if handshake.asked().is_none() => {
                Some((handshake.deadline(), key))
            }
            Stage::Closing => Some((Duration::ZERO, key)),
            Stage::Dialled { .. } | Stage::Handshake(_) | Stage::Open { .. } => None,
        })
    }

    /// Bounds the number of pending connections: closes the oldest one. An evicted peer is told and tries again.
    fn evict_pending(&mut self, now: Instant) {
        if self.pending_accepts().count() < UNPROVED_MAX {
            return;
        }
        let Some((_, key)) = self.pending_accepts().min() else { return };
        if self.connections.get(&key).is_some_and(Connection::is_unproved) {
            self.end_handshake(key, Refusal::TooMany.into(), Some(Code::Declined), now);
            self.pump(key, now);
        }
        self.forget(key);
    }

    pub(super) fn add(&mut self, handle: ConnectionHandle, mut connection: Connection) {
        connection.update_depth();
        self.unproved += 1;
        self.connections.insert(handle.0, connection);
        self.list_to_serve(handle.0);
    }

    /// Tries the next addresses of dialled peers, and gives up those that are out of time.
    pub(super) fn dial(&mut self, at: Instant) {
        let now = self.clock.look(at);
        let Self { links, connections, .. } = self;
        for (peer, action) in links.poll_dials(now, |peer| has_proved_to(connections, peer)) {
            match action {
                DialAction::Try { address, timeout } => {
                    self.dial_one(peer, address, (at, now + timeout));
                }
                DialAction::GiveUp(account) => {
                    self.drop_dials(peer, at);
                    self.reports
                        .push_back(QuicReport::Down { peer, fault: Fault::Unreachable(account) });
                }
            }
        }
        self.serve_connections(at);
    }

    /// Begins an attempt. `deadline` is on the rail's clock.
    fn dial_one(
        &mut self,
        peer: PeerId,
        address: SocketAddr,
        (now, deadline): (Instant, Duration),
    ) {
        debug!(peer = peer.0, %address, "QUIC: connects");
        let Some(index) = self.socket_for(address) else {
            let text = "no address here to reach it from";
            return self.note_failure(peer, address, DialFailure::silent(text), now);
        };
        let known = self.knowledge.recall(self.sockets[index].address, address);
        let controller = SharedController::new(known);
        let key = self.keys.with(peer);
        let config = self.keys.get(key).client(&controller, known);
        match self.endpoint.connect(now, config, address, SERVER_NAME) {
            Ok((handle, protocol)) => {
                let stage = (Stage::Dialled { peer, deadline }, key);
                self.add(handle, Connection::new(protocol, index, stage, controller, now));
            }
            Err(error) => {
                self.note_failure(peer, address, DialFailure::silent(error.to_string()), now);
            }
        }
    }

    /// Returns the socket from which an address is reached: the routing table determines the local address.
    pub(super) fn socket_for(&mut self, address: SocketAddr) -> Option<usize> {
        let own = route(address);
        let fits = |socket: &Socket| socket.address.is_ipv4() == address.is_ipv4();
        let is_own = |socket: &Socket| Some(socket.address.ip()) == own;
        let leads_out = |socket: &Socket| {
            fits(socket) && socket.address.ip().is_loopback() == address.ip().is_loopback()
        };
        let sockets = &self.sockets;
        let is_home = |socket: &Socket| leads_out(socket) && socket.has_address();
        let found = sockets.iter().position(is_own).or_else(|| sockets.iter().position(is_home));
        if found.is_some() || !sockets.iter().any(leads_out) {
            return found;
        }
        // All sockets that fit are bound to addresses that this host has lost.
        own.filter(|own| own.is_loopback() == address.ip().is_loopback())
            .and_then(|own| self.add_socket(own))
    }

    pub(super) fn note_failure(
        &mut self,
        peer: PeerId,
        address: SocketAddr,
        failure: DialFailure,
        at: Instant,
    ) {
        debug!(peer = peer.0, %address, ?failure, "QUIC: has not connected");
        let now = self.clock.now();
        if let Some(dialling) = self.links.dialling(peer) {
            dialling.handle_failure(address, failure, now);
            self.next_look = at;
        }
    }

    /// Closes this end's own attempts to reach `peer`.
    pub(super) fn drop_dials(&mut self, peer: PeerId, now: Instant) {
        let is_dial = |connection: &Connection| connection.dials() == Some(peer);
        let dials: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_dial(connection))
            .map(|(&key, _)| key)
            .collect();
        for key in dials {
            self.close(key, Code::Declined, now);
        }
    }

    /// Closes connections that have not become links in time.
    pub(super) fn expire(&mut self, at: Instant) {
        let now = self.clock.look(at);
        let late: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_late(now))
            .map(|(&key, _)| key)
            .collect();
        for key in late {
            let Some(connection) = self.connections.get(&key) else { continue };
            let end = match connection.stage {
                Stage::Dialled { .. } => HandshakeEnd::Failed("no answer".into()),
                Stage::Handshake(_) | Stage::Open { .. } | Stage::Closing => HandshakeEnd::Late,
            };
            self.end_handshake(key, end, Some(Code::Declined), at);
        }
    }

    /// Ends a connection that becomes no link, and closes it with a code unless it is closed already.
    pub(super) fn end_handshake(
        &mut self,
        key: usize,
        end: HandshakeEnd,
        code: Option<Code>,
        at: Instant,
    ) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let address = connection.protocol.remote_address();
        let is_unproved = connection.is_unproved();
        let stage = std::mem::replace(&mut connection.stage, Stage::Closing);
        self.unproved -= usize::from(is_unproved);
        if let Some(code) = code {
            let reason = match &end {
                HandshakeEnd::Refused(refusal) => answer_to(*refusal),
                HandshakeEnd::Declined | HandshakeEnd::Late | HandshakeEnd::Failed(_) => None,
            };
            let reason = reason.map_or_else(Bytes::new, |word| Bytes::copy_from_slice(&word));
            connection.close(at, code, reason);
            self.list_to_serve(key);
        }
        match stage {
            Stage::Dialled { peer, .. } => self.note_failure(peer, address, end.into(), at),
            Stage::Handshake(handshake) => match handshake.end(end, &mut self.links) {
                Outcome::Attempt(peer, failure) => self.note_failure(peer, address, failure, at),
                Outcome::Stranger(refusal) => self.note_refusal(address, refusal),
                Outcome::Excused => {}
            },
            Stage::Open { .. } | Stage::Closing => {}
        }
    }

    /// Begins the handshake on a connection that this end has opened.
    pub(super) fn handle_connected(&mut self, key: usize) {
        let Some(&Stage::Dialled { peer, deadline }) =
            self.connections.get(&key).map(|connection| &connection.stage)
        else {
            return;
        };
        let is_asked = has_proved_to(&self.connections, peer);
        let asked = self.links.ask(peer, is_asked);
        // The channel has proved both ends, and encrypts.
        let process = self.keys.process(peer);
        let wanted = process.map_or(self.local.name_of(peer), |process| PeerId(process.rank));
        let (encrypts, note, nonce) = (true, [0; 4], [0; 32]);
        let opening = Opening { asked, wanted, encrypts, note, nonce };
        let deadline = deadline.max(self.clock.now() + VERDICT_TIMEOUT);
        let (handshake, hello) = Handshake::call(&self.local.own(None), &opening, deadline);
        let Some(connection) = self.connections.get_mut(&key) else { return };
        connection.stream = connection.protocol.streams().open(Dir::Bi);
        connection.send_message(&hello);
        connection.stage = Stage::Handshake(handshake);
    }

    pub(super) fn handle_opened(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let accepted = connection.protocol.streams().accept(Dir::Bi);
        if connection.is_accepted() && connection.stream.is_none() {
            connection.stream = accepted;
            connection.readable = true;
        }
    }

    /// Advances the handshake by the bytes that have arrived.
    pub(super) fn shake_hands(&mut self, key: usize, now: Instant) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let own = self.local.own(self.keys.holders(connection.key));
        match connection.receive_message(&own) {
            Ok(Step::Waits) => {}
            Ok(Step::Identified { peer, generation }) => self.judge(key, peer, generation, now),
            Ok(Step::Accepted { asked, generation }) => {
                match self.links.conclude(asked, generation) {
                    Some(agreed) => self.open(key, agreed, now),
                    None => self.close(key, Code::Declined, now),
                }
            }
            // Not asked for where the channel has proved both ends.
            Ok(Step::Proves(_) | Step::Introduced(_)) => {
                self.end_handshake(key, Refusal::Protocol.into(), Some(Code::Misbehaved), now);
            }
            Err(end) => self.end_handshake(key, end, Some(Code::Misbehaved), now),
        }
    }

    /// Decides whether the connection of an authenticated peer is the link.
    fn judge(&mut self, key: usize, peer: PeerId, generation: u32, now: Instant) {
        let has_proved = || has_proved_to(&self.connections, peer);
        let agreed = match self.links.judge(peer, generation, has_proved) {
            Verdict::Accepted(agreed) => agreed,
            Verdict::Replaces(old, agreed) => {
                self.yield_to(peer, old, now);
                agreed
            }
            Verdict::Declined => return self.close(key, Code::Declined, now),
        };
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.send_message(&verdict(agreed.generation()));
        }
        self.open(key, agreed, now);
    }

    /// Closes the open link to a peer that has lost it.
    fn yield_to(&mut self, peer: PeerId, key: usize, now: Instant) {
        self.links.remove(peer);
        self.learn(key);
        self.close(key, Code::Lost, now);
        let fault = Fault::Lost("the peer has lost it".into());
        self.reports.push_back(QuicReport::Down { peer, fault });
    }

    fn open(&mut self, key: usize, agreed: Agreed, now: Instant) {
        let peer = agreed.peer();
        self.links.open(agreed, key);
        let Some(connection) = self.connections.get_mut(&key) else { return };
        connection.stage = Stage::Open { peer };
        self.unproved -= 1;
        let known = connection.controller.lock().model.known();
        let round_trip = connection.protocol.rtt();
        let here = self.sockets[connection.socket].address;
        let there = connection.protocol.remote_address();
        let path =
            self.knowledge.recall(here, there).or(known).unwrap_or_else(|| usual(round_trip));
        let cost = self.knowledge.cost(&path);
        connection.expect_loss(self.knowledge.loss(here, there));
        // A connection between gateways serves many ranks: it is given up as early as a WAN link.
        connection.is_wan = path.round_trip >= FAR || self.local.is_gateway;
        self.reports.push_back(QuicReport::Up { peer });
        self.reports.push_back(QuicReport::Cost { peer, cost });
        self.list_to_read(key);
        self.drop_dials(peer, now);
    }

    pub(super) fn note_refusal(&mut self, from: SocketAddr, reason: Refusal) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push_back(QuicReport::Refused { from, reason });
        }
    }
}

/// True if this end has sent a hello to `peer` and awaits the verdict: that connection may be the link already.
fn has_proved_to(connections: &FxHashMap<usize, Connection>, peer: PeerId) -> bool {
    connections.values().any(|connection| match &connection.stage {
        Stage::Handshake(handshake) => {
            handshake.is_proved() && handshake.asked().map(Asked::peer) == Some(peer)
        }
        Stage::Dialled { .. } | Stage::Open { .. } | Stage::Closing => false,
    })
}

/// Default estimate of a path of which only the round trip is known.
fn usual(round_trip: Duration) -> Path {
    let bytes_per_s = if round_trip > FAR { FAR_RATE } else { NEAR_RATE };
    Path { bytes_per_s, is_conclusive: false, round_trip }
}

/// Returns the local address from which packets to `address` leave.
fn route(address: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if address.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    // Connecting a datagram socket sends nothing; the kernel looks up the route.
    let probe = std::net::UdpSocket::bind((any, 0)).ok()?;
    probe.connect(address).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Server name in the TLS handshake, which nobody checks.
const SERVER_NAME: &str = "canele";

/// Maximum number of pending connections, and the number from which on clients must validate their address.
const UNPROVED_MAX: usize = 128;
const UNPROVED_UNVALIDATED: usize = 32;
/// Time limit for one address to answer, and for an unauthenticated peer to send its hello.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the verdict of an authenticated peer.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);

/// Round trip above which a peer is in another site: unacknowledged frames are kept, and links are reopened.
const FAR: Duration = Duration::from_millis(2);
/// 10 Gb/s.
const NEAR_RATE: f64 = 1.25e9;
/// 1 Gb/s.
const FAR_RATE: f64 = 125e6;
const REPORTS_MAX: usize = 4096;
