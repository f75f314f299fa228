//! Connections that are to become links: those that this process opens, and those of strangers.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quinn_proto::{ConnectionError, ConnectionHandle, Dir, Incoming, TransportErrorCode};
use wire::PeerId;

use super::congestion::Path;
use super::connection::{Code, Line, Outlet, Stage};
use super::controller::SharedGate;
use super::endpoint::{Core, Link, Report};
use super::hello::{Caller, HELLO_LEN, VERDICT_LEN, accept, accepted};
use super::socket::Socket;
use crate::rail::Fault;
use crate::tcp::Refusal;
use crate::tcp::dial::{Dialling, Due};

impl Core {
    /// Begins to look for `peer` at these addresses, for as long as `patience` at most where it has never been met.
    pub(super) fn connect(
        &mut self,
        peer: PeerId,
        candidates: Vec<SocketAddr>,
        patience: Duration,
    ) {
        if self.links.contains_key(&peer) {
            return;
        }
        let now = self.clock.look(Instant::now());
        let dialling = if self.generations.contains_key(&peer) {
            Dialling::again(candidates, now)
        } else {
            Dialling::new(candidates, now, self.connect_timeout.min(patience))
        };
        self.links.insert(peer, Link::Dialling(dialling));
        self.dialled += 1;
        self.dial(Instant::now());
    }

    pub(super) fn is_known(&self, peer: PeerId) -> bool {
        self.links.contains_key(&peer)
    }

    /// A stranger comes. Where many wait to be known, only those whose address is proved are let in; it
    /// costs them a round trip. Where more wait than can be known, another has to go.
    pub(super) fn admit(
        &mut self,
        index: usize,
        incoming: Incoming,
        now: Instant,
        answer: &mut Vec<u8>,
    ) {
        let from = incoming.remote_address();
        let is_oversubscribed = self.guests().count() >= UNPROVED_EASY;
        if is_oversubscribed && !incoming.remote_address_validated() && incoming.may_retry() {
            if let Ok(transmit) = self.endpoint.retry(incoming, answer) {
                self.sockets[index].send(transmit, answer);
            }
            return;
        }
        self.make_way(now);
        let known = self.knowledge.recall(self.sockets[index].address, from);
        let gate = SharedGate::new(known);
        let config = self.keys.server(&gate, known);
        match self.endpoint.accept(incoming, now, answer, Some(config)) {
            Ok((handle, connection)) => {
                let mut line = Line::new(connection, index, Stage::Strange, gate, now);
                line.deadline = self.clock.look(now) + TRY_TIMEOUT;
                self.add(handle, line);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.sockets[index].send(transmit, answer);
                }
                self.note_refusal(from, Refusal::Protocol);
            }
        }
    }

    /// Others' connections that are no links, and when each has to be one; what is closed already should go first.
    fn guests(&self) -> impl Iterator<Item = (Duration, usize)> {
        self.lines.iter().filter_map(|(&key, line)| match line.stage {
            Stage::Strange => Some((line.deadline, key)),
            Stage::Closing => Some((Duration::ZERO, key)),
            Stage::Dialled { .. } | Stage::Asked { .. } | Stage::Open { .. } => None,
        })
    }

    /// Keeps the number of guests bounded: the one that has been here longest goes. A peer that is pushed out so
    /// is told, and comes again.
    fn make_way(&mut self, now: Instant) {
        if self.guests().count() < UNPROVED_MAX {
            return;
        }
        let Some((_, key)) = self.guests().min() else { return };
        let Some(line) = self.lines.get(&key) else { return };
        if line.stage == Stage::Strange {
            let from = line.connection.remote_address();
            self.note_refusal(from, Refusal::TooMany);
            self.close(key, Code::Declined, now);
            self.pump(key, now);
        }
        self.forget(key);
    }

    pub(super) fn add(&mut self, handle: ConnectionHandle, mut line: Line) {
        line.reckon_depth();
        self.unproved += 1;
        self.lines.insert(handle.0, line);
        self.list_to_serve(handle.0);
    }

    /// Tries the next addresses of peers that are being dialled; gives up those that are out of time.
    pub(super) fn dial(&mut self, at: Instant) {
        let now = self.clock.look(at);
        let mut due = Vec::new();
        for (&peer, link) in &mut self.links {
            let Link::Dialling(dialling) = link else { continue };
            match dialling.due(now) {
                Due::Nothing => {}
                due_now => due.push((peer, due_now)),
            }
        }
        for (peer, due_now) in due {
            match due_now {
                Due::Nothing => {}
                Due::Try(address) => self.dial_one(peer, address, at),
                Due::GiveUp(account) => {
                    self.links.remove(&peer);
                    self.dialled -= 1;
                    self.drop_dials(peer, at);
                    self.reports
                        .push_back(Report::Down { peer, fault: Fault::Unreachable(account) });
                }
            }
        }
        self.serve_lines(at);
    }

    pub(super) fn dial_one(&mut self, peer: PeerId, address: SocketAddr, now: Instant) {
        let Some(Link::Dialling(dialling)) = self.links.get(&peer) else { return };
        let patience = dialling.try_timeout().min(self.connect_timeout);
        let Some(index) = self.way_to(address) else {
            let text = "no address here to reach it from".into();
            return self.note_failure(peer, address, (text, false), now);
        };
        let known = self.knowledge.recall(self.sockets[index].address, address);
        let gate = SharedGate::new(known);
        let config = self.keys.client(&gate, known);
        match self.endpoint.connect(now, config, address, SERVER_NAME) {
            Ok((handle, connection)) => {
                let mut line = Line::new(connection, index, Stage::Dialled { peer }, gate, now);
                line.deadline = self.clock.now() + patience;
                self.add(handle, line);
            }
            Err(error) => self.note_failure(peer, address, (error.to_string(), false), now),
        }
    }

    /// The socket to reach an address from: the system's route says which of our addresses that is.
    pub(super) fn way_to(&mut self, address: SocketAddr) -> Option<usize> {
        let own = route(address);
        let fits = |socket: &Socket| socket.address.is_ipv4() == address.is_ipv4();
        let is_own = |socket: &Socket| Some(socket.address.ip()) == own;
        let leads_out = |socket: &Socket| {
            fits(socket) && socket.address.ip().is_loopback() == address.ip().is_loopback()
        };
        let sockets = &self.sockets;
        let is_home = |socket: &Socket| leads_out(socket) && socket.is_at_home();
        let found = sockets.iter().position(is_own).or_else(|| sockets.iter().position(is_home));
        if found.is_some() || !sockets.iter().any(leads_out) {
            return found;
        }
        // All that led there are of addresses that this host has no more.
        own.filter(|own| own.is_loopback() == address.ip().is_loopback())
            .and_then(|own| self.add_socket(own))
    }

    pub(super) fn note_failure(
        &mut self,
        peer: PeerId,
        address: SocketAddr,
        failure: (String, bool),
        at: Instant,
    ) {
        let now = self.clock.now();
        if let Some(Link::Dialling(dialling)) = self.links.get_mut(&peer) {
            dialling.handle_failure(address, failure, now);
            self.next_look = at;
        }
    }

    /// Closes this side's own attempts to reach `peer`.
    pub(super) fn drop_dials(&mut self, peer: PeerId, now: Instant) {
        let is_dial = |line: &Line| line.dials() == Some(peer);
        let dials: Vec<usize> =
            self.lines.iter().filter(|(_, line)| is_dial(line)).map(|(&key, _)| key).collect();
        for key in dials {
            self.close(key, Code::Declined, now);
        }
    }

    /// Whether this side has said hello to `peer` and waits for the verdict: that may be the link.
    pub(super) fn has_asked(&self, peer: PeerId) -> bool {
        self.lines.values().any(|line| line.stage == Stage::Asked { peer })
    }

    /// Gives up connections that have not become links in time.
    pub(super) fn expire(&mut self, at: Instant) {
        let now = self.clock.look(at);
        let is_late = |line: &Line| line.is_unproved() && now >= line.deadline;
        let late: Vec<usize> =
            self.lines.iter().filter(|(_, line)| is_late(line)).map(|(&key, _)| key).collect();
        for key in late {
            let Some(line) = self.lines.get(&key) else { continue };
            let (dials, address) = (line.dials(), line.connection.remote_address());
            self.close(key, Code::Declined, at);
            match dials {
                Some(peer) => self.note_failure(peer, address, ("no answer".into(), false), at),
                None => self.note_refusal(address, Refusal::Slow),
            }
        }
    }

    pub(super) fn handle_connected(&mut self, key: usize) {
        let Some(Stage::Dialled { peer }) = self.lines.get(&key).map(|line| line.stage) else {
            return;
        };
        let generation = self.next_generation(peer);
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.stream = line.connection.streams().open(Dir::Bi);
        line.say(&self.myself.hello(peer, generation));
        line.stage = Stage::Asked { peer };
        line.deadline = line.deadline.max(self.clock.now() + VERDICT_TIMEOUT);
    }

    /// Which opening of the link to a peer is tried: the first until one has come about, then one more than any
    /// that may have come about at either end.
    fn next_generation(&mut self, peer: PeerId) -> u32 {
        let others_ask = self.has_asked(peer);
        let Some(known) = self.generations.get_mut(&peer) else { return 1 };
        if !others_ask {
            *known = known.saturating_add(1);
        }
        *known
    }

    pub(super) fn handle_opened(&mut self, key: usize) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let accepted = line.connection.streams().accept(Dir::Bi);
        if line.stage == Stage::Strange && line.stream.is_none() {
            line.stream = accepted;
            line.readable = true;
        }
    }

    pub(super) fn hear_hello(&mut self, key: usize, now: Instant) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let Some(hello) = line.hear::<HELLO_LEN>() else { return };
        let from = line.connection.remote_address();
        match self.myself.check(&hello) {
            Ok(caller) if self.accepts(caller) => {
                let Caller { rank: peer, generation } = caller;
                self.give_way(peer, now);
                let known = self.generations.entry(peer).or_default();
                *known = generation.max(*known);
                let verdict = accept(*known);
                if let Some(line) = self.lines.get_mut(&key) {
                    line.say(&verdict);
                }
                self.open(key, peer, now);
            }
            Ok(_) => self.close(key, Code::Declined, now),
            Err(refusal) => {
                self.close(key, Code::Misbehaved, now);
                self.note_refusal(from, refusal);
            }
        }
    }

    /// Of two connections opened head to head the lower rank's survives, if it has come so far that its
    /// end has said hello. Whoever has a later opening in mind has lost the link, though it seems whole here.
    fn accepts(&self, Caller { rank: peer, generation }: Caller) -> bool {
        let known = self.generations.get(&peer).copied().unwrap_or_default();
        match self.links.get(&peer) {
            None => true,
            Some(Link::Open { .. }) => generation > known,
            Some(Link::Dialling(_)) => peer < self.myself.rank || !self.has_asked(peer),
        }
    }

    /// The peer has lost the link, if it is open here.
    fn give_way(&mut self, peer: PeerId, now: Instant) {
        let Some(&Link::Open { key }) = self.links.get(&peer) else { return };
        self.links.remove(&peer);
        self.learn(key);
        self.close(key, Code::Lost, now);
        let fault = Fault::Lost("the peer has lost it".into());
        self.reports.push_back(Report::Down { peer, fault });
    }

    pub(super) fn hear_verdict(&mut self, key: usize, peer: PeerId, now: Instant) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let Some(verdict) = line.hear::<VERDICT_LEN>() else { return };
        match accepted(verdict) {
            Some(generation) if !matches!(self.links.get(&peer), Some(Link::Open { .. })) => {
                let known = self.generations.entry(peer).or_default();
                *known = generation.max(*known);
                self.open(key, peer, now);
            }
            Some(_) | None => self.close(key, Code::Declined, now),
        }
    }

    pub(super) fn open(&mut self, key: usize, peer: PeerId, now: Instant) {
        if let Some(Link::Dialling(_)) = self.links.insert(peer, Link::Open { key }) {
            self.dialled -= 1;
        }
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.stage = Stage::Open { peer };
        self.unproved -= 1;
        let known = line.gate.lock().model.known();
        let round_trip = line.connection.rtt();
        let here = self.sockets[line.socket].address;
        let there = line.connection.remote_address();
        let path =
            self.knowledge.recall(here, there).or(known).unwrap_or_else(|| usual(round_trip));
        let cost = self.knowledge.cost(&path);
        line.expect_loss(self.knowledge.loss(here, there));
        // One between gateways is for many: it is not to be waited for longer than for another.
        line.is_far = path.round_trip >= FAR || self.myself.is_gateway;
        self.reports.push_back(Report::Up { peer });
        self.reports.push_back(Report::Cost { peer, cost });
        self.list_to_read(key);
        self.drop_dials(peer, now);
    }

    pub(super) fn note_refusal(&mut self, from: SocketAddr, reason: Refusal) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push_back(Report::Refused { from, reason });
        }
    }
}

/// A path of which only the round trip is known.
fn usual(round_trip: Duration) -> Path {
    let bytes_per_s = if round_trip > FAR { FAR_RATE } else { NEAR_RATE };
    Path { bytes_per_s, round_trip }
}

/// What the end of a stranger's connection means, if it is to be told. Who goes away in the middle may have
/// found a better way.
pub(super) fn refusal(reason: &ConnectionError) -> Option<Refusal> {
    let code = match reason {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        ConnectionError::VersionMismatch => return Some(Refusal::Protocol),
        ConnectionError::TimedOut => return Some(Refusal::Slow),
        ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => return None,
    };
    let is_of_tls = (0x100..0x200).contains(&u64::from(code));
    let is_of_protocol =
        code != TransportErrorCode::NO_ERROR && code != TransportErrorCode::APPLICATION_ERROR;
    match (is_of_tls, is_of_protocol) {
        (true, _) => Some(Refusal::Secret),
        (false, true) => Some(Refusal::Protocol),
        (false, false) => None,
    }
}

/// From which of this host's addresses packets leave for `address`.
fn route(address: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if address.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    // Connecting a datagram socket sends nothing: the system looks the route up.
    let probe = std::net::UdpSocket::bind((any, 0)).ok()?;
    probe.connect(address).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// The name that a client asks for: it goes nowhere, and nobody checks it.
const SERVER_NAME: &str = "canele";

/// Guests at once; and how many before addresses must be proved.
const UNPROVED_MAX: usize = 128;
const UNPROVED_EASY: usize = 32;
/// How long one address has to answer, and a stranger to say who it is.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer that has shown its key may take to say whether this connection is the link.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);

/// Longer round trips leave the site: there frames are kept, and links are opened anew.
const FAR: Duration = Duration::from_millis(2);
/// 10 Gb/s.
const NEAR_RATE: f64 = 1.25e9;
/// 1 Gb/s.
const FAR_RATE: f64 = 125e6;
const REPORTS_MAX: usize = 4096;
