//! Connections in their handshake: those that this process dials, and those of strangers.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::epoll;
use wire::PeerId;

use super::dial::Due;
use super::hello::{
    ACCEPTED, ANSWER_LEN, Answer, Caller, Credentials, DECLINED, HELLO_LEN, Hello, PROOF_LEN,
    Refusal, VERDICT_LEN,
};
use super::measure::TcpSample;
use super::networks::TcpNetwork;
use super::path_probe;
use super::relay::{self, Detour, GATEWAY, NOBODY, PathCost, REPLY_LEN, Reply, Request};
use super::route::Ways;
use super::tls::{self, Channel};
use super::{LISTENER_KEYS, Link, Shortage, Socket, TcpRail};
use crate::rail::{Event, Fault};

/// A connection in its handshake.
pub(super) struct Unproved {
    channel: Channel,
    /// The other end.
    address: SocketAddr,
    stage: Stage,
    got: Vec<u8>,
    /// On the rail's clock.
    deadline: Duration,
    /// What lies behind `address`, if that is a gateway's.
    detour: Detour,
    /// Other gateways, if all that is wanted of this one is what its ways to them cost: to reach [`NOBODY`].
    about: Vec<SocketAddr>,
}

/// What is awaited.
#[derive(Clone, Copy)]
enum Stage {
    Connect {
        peer: PeerId,
    },
    /// A gateway's answer.
    Porter {
        peer: PeerId,
        hello: Hello,
    },
    /// What a gateway has reached.
    Reply {
        peer: PeerId,
    },
    Answer {
        peer: PeerId,
        hello: Hello,
    },
    Verdict {
        peer: PeerId,
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
    /// Proved; the link that it replaces has been closed.
    Proved {
        peer: PeerId,
    },
}

impl TcpRail {
    fn add(&mut self, unproved: Unproved, interest: epoll::EventFlags) {
        let key = self.next_key;
        self.next_key += 1;
        let data = epoll::EventData::new_u64(key);
        if epoll::add(&self.epoll, &unproved.channel.socket, data, interest).is_ok() {
            self.unproved += 1;
            self.sockets.insert(key, Socket::Unproved(Box::new(unproved)));
        }
    }

    /// Tries the next addresses of peers that are being dialled; gives up those that are out of time.
    pub(super) fn dial(&mut self, now: Duration) {
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
                Due::Try(address) => self.dial_one(peer, address, now),
                Due::GiveUp(_) if self.has_proved_to(peer) => {}
                Due::GiveUp(account) => {
                    self.links.remove(&peer);
                    self.failed.push((peer, Fault::Unreachable(account)));
                    self.drop_dials(peer);
                }
            }
        }
    }

    fn dial_one(&mut self, peer: PeerId, address: SocketAddr, now: Duration) {
        match begin_connect(address, self.network.as_ref(), self.narrow.contains(&peer)) {
            Ok(socket) => {
                let stage = Stage::Connect { peer };
                let try_timeout = match self.links.get(&peer) {
                    Some(Link::Dialling(dialling)) => dialling.try_timeout(),
                    Some(Link::Open { .. }) | None => return,
                };
                let deadline = now + try_timeout.min(self.connect_timeout);
                let channel = Channel::new(socket);
                let (detour, about) = (Detour::default(), Vec::new());
                let unproved =
                    Unproved { channel, address, stage, got: Vec::new(), deadline, detour, about };
                self.add(unproved, epoll::EventFlags::OUT);
            }
            Err(error) => {
                let is_refused = self.refuses(peer, address, &error);
                self.note_failure(peer, address, (error.to_string(), is_refused));
            }
        }
    }

    /// Asks gateways of this site what their ways cost, where there is a choice and that is not known; whether there is
    /// something to be waited for.
    pub(super) fn ask_for_path_costs(&mut self, ways: &Ways, now: Duration) -> bool {
        let (gateways, about) = ways.questions();
        for &gateway in gateways {
            if !self.path_costs.is_due(gateway, about, now) {
                continue;
            }
            let Ok(socket) = begin_connect(gateway, self.network.as_ref(), false) else {
                self.path_costs.handle_word(gateway, about, None, now);
                continue;
            };
            self.path_costs.note_asked(gateway, about);
            let (stage, deadline) = (Stage::Connect { peer: NOBODY }, now + ANSWER_TIMEOUT);
            let (channel, detour, about) =
                (Channel::new(socket), Detour::default(), about.to_vec());
            let address = gateway;
            let unproved =
                Unproved { channel, address, stage, got: Vec::new(), deadline, detour, about };
            self.add(unproved, epoll::EventFlags::OUT);
        }
        gateways.iter().any(|gateway| self.path_costs.is_asked(*gateway, about))
    }

    /// A gateway has said what its ways to the others cost, or nothing.
    fn handle_path_costs(
        &mut self,
        gateway: SocketAddr,
        about: &[SocketAddr],
        said: Option<&[PathCost]>,
    ) {
        let now = self.clock.now();
        let Self { path_costs, links, ways, credentials, .. } = self;
        path_costs.handle_word(gateway, about, said, now);
        for (&peer, link) in links {
            let (Link::Dialling(dialling), Some((ways, _))) = (link, ways.get(&peer)) else {
                continue;
            };
            let (gateways, others) = ways.questions();
            if others == about {
                let is_said = !gateways.iter().any(|one| path_costs.is_asked(*one, about));
                dialling.arrange(&ways.order(path_costs, (credentials.rank, peer)), is_said, now);
            }
        }
    }

    /// A try has met a listener, which has its time to answer: the peer's, or a gateway, of which there may
    /// be one though nobody is behind it.
    fn note_connection(&mut self, one: &mut Unproved) {
        if !one.about.is_empty() {
            return;
        }
        let now = self.clock.now();
        one.deadline = now + self.connect_timeout;
        let Stage::Answer { peer, .. } = one.stage else { return };
        if let Some(Link::Dialling(dialling)) = self.links.get_mut(&peer) {
            dialling.handle_connection(now, 2 * self.connect_timeout);
        }
    }

    fn note_failed_try(&mut self, peer: PeerId, one: &Unproved, failure: (String, bool)) {
        match peer {
            NOBODY => self.handle_path_costs(one.address, &one.about, None),
            peer => self.note_failure(peer, one.address, failure),
        }
    }

    fn note_failure(&mut self, peer: PeerId, address: SocketAddr, failure: (String, bool)) {
        let now = self.clock.now();
        if let Some(Link::Dialling(dialling)) = self.links.get_mut(&peer) {
            dialling.handle_failure(address, failure, now);
        }
    }

    /// Whether a socket is an attempt to reach `peer` that can be dropped. What a gateway has been asked for
    /// comes to its end first: the peer is to learn whose connection it was.
    fn is_dial_to(socket: &Socket, peer: PeerId) -> bool {
        let Socket::Unproved(one) = socket else { return false };
        let is_asked_for = matches!(one.stage, Stage::Porter { .. } | Stage::Reply { .. });
        one.dials() == Some(peer) && !is_asked_for
    }

    /// Closes this side's own attempts to reach `peer`, and counts anew who is being dialled.
    pub(super) fn drop_dials(&mut self, peer: PeerId) {
        let dials = self.sockets.extract_if(|_, socket| Self::is_dial_to(socket, peer));
        for (_, socket) in dials.collect::<Vec<_>>() {
            self.unproved -= 1;
            if let (Socket::Unproved(mut one), Ok(nonce)) = (socket, nonce())
                && let Stage::Connect { .. } = one.stage
                && self.request(peer, one.address).is_none()
            {
                // Where the connection has just come about, the other end learns whose it was. Where
                // it has not, it learns nothing, and need not.
                let encrypts = self.encryption.covers(peer);
                let _ = one.say(&self.credentials.hello(peer, encrypts, 0, nonce));
            }
        }
        self.count_dialled();
    }

    pub(super) fn count_dialled(&mut self) {
        let is_dialled = |link: &&Link| matches!(link, Link::Dialling(_));
        self.dialled = self.links.values().filter(is_dialled).count();
    }

    /// Which opening of the link to a peer is tried: the first until one has come about, then one more than any
    /// that may have come about at either end.
    fn next_generation(&mut self, peer: PeerId) -> u32 {
        let is_asked = |socket: &Socket| match socket {
            Socket::Unproved(one) => matches!(
                one.stage,
                Stage::Answer { peer: dialled, .. } | Stage::Verdict { peer: dialled } if dialled == peer
            ),
            Socket::Open(_) => false,
        };
        let others_ask = self.sockets.values().any(is_asked);
        let Some(known) = self.generations.get_mut(&peer) else { return 1 };
        if !others_ask {
            *known = known.saturating_add(1);
        }
        *known
    }

    /// Whether an attempt of this side's to reach `peer` waits for the verdict: it may be the link.
    pub(super) fn has_proved_to(&self, peer: PeerId) -> bool {
        self.sockets.values().any(|socket| {
            let Socket::Unproved(one) = socket else { return false };
            matches!(one.stage, Stage::Verdict { peer: dialled } if dialled == peer)
        })
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
            self.make_way();
            let deadline = now + self.connect_timeout;
            let stage = Stage::Hello;
            let channel = Channel::new(socket);
            let (detour, about) = (Detour::default(), Vec::new());
            let unproved =
                Unproved { channel, address, stage, got: Vec::new(), deadline, detour, about };
            self.add(unproved, epoll::EventFlags::IN);
        }
    }

    /// Leaves the listeners alone for a while: what waits there keeps them readable, and nobody could
    /// sleep beside them.
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
            // Modifying what is registered needs nothing that could be short.
            let _ = epoll::modify(&self.epoll, listener, data, interest);
        }
    }

    /// Keeps the number of strangers bounded: the one that has been silent longest goes. A peer that
    /// is pushed out so comes again.
    fn make_way(&mut self) {
        if self.unproved < UNPROVED_MAX {
            return;
        }
        let strangers = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::Unproved(one) if one.dials().is_none() => Some((one.is_known(), key)),
            Socket::Unproved(_) | Socket::Open(_) => None,
        });
        let count = strangers.clone().count();
        if let Some((_, key)) = strangers.min().filter(|_| count >= UNPROVED_MAX) {
            self.turn_away(key, Refusal::Crowd);
        }
    }

    /// Closes a connection in its handshake, for which the other end is to blame.
    fn turn_away(&mut self, key: u64, refusal: Refusal) {
        if let Some(Socket::Unproved(one)) = self.sockets.remove(&key) {
            self.unproved -= 1;
            self.note_refusal(&one, refusal);
        }
    }

    /// Tells of a stranger; but whoever has said a proper hello may be a peer that computes, or one
    /// that has found a better way since, unless it is caught in a lie.
    fn note_refusal(&mut self, one: &Unproved, refusal: Refusal) {
        let excusable = match refusal {
            Refusal::Slow | Refusal::Closed | Refusal::Crowd => true,
            Refusal::Protocol
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

    /// Moves a handshake on as far as the socket's bytes allow.
    pub(super) fn shake(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Unproved(mut one)) = self.sockets.remove(&key) else { return false };
        self.unproved -= 1;
        loop {
            let connecting = matches!(one.stage, Stage::Connect { .. });
            match self.step(&mut one) {
                Ok(Step::Wait) => {
                    self.unproved += 1;
                    self.sockets.insert(key, Socket::Unproved(one));
                    return false;
                }
                Ok(Step::On) if connecting => {
                    let data = epoll::EventData::new_u64(key);
                    // Fails only for lack of kernel memory; the try then runs out of time.
                    let _ = epoll::modify(
                        &self.epoll,
                        &one.channel.socket,
                        data,
                        epoll::EventFlags::IN,
                    );
                    self.note_connection(&mut one);
                }
                Ok(Step::On) => {}
                Ok(Step::Open(peer)) => {
                    self.open(key, peer, one.channel, one.detour, sink);
                    return true;
                }
                Ok(Step::Drop) => return false,
                Ok(Step::Replace(peer)) => {
                    self.unproved += 1;
                    self.sockets.insert(key, Socket::Unproved(one));
                    self.newcomers.push(key);
                    if let Some(&Link::Open { key: old }) = self.links.get(&peer) {
                        self.close(old, Fault::Lost("the peer has lost it".into()), sink);
                    }
                    return true;
                }
                Err(failure) => {
                    match (one.dials(), failure) {
                        (Some(peer), failure) => {
                            let is_refused = match &failure {
                                Failure::System(error) => self.refuses(peer, one.address, error),
                                Failure::Refused(_) | Failure::Declined | Failure::Gateway(_) => {
                                    false
                                }
                            };
                            let failure = (failure.to_string(), is_refused);
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

    fn step(&mut self, one: &mut Unproved) -> Result<Step, Failure> {
        match one.stage {
            Stage::Connect { peer } => {
                let socket = &one.channel.socket;
                if let Some(error) = socket.take_error()? {
                    return Err(error.into());
                }
                match socket.peer_addr() {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Step::Wait),
                    Err(error) => return Err(error.into()),
                }
                socket.set_nodelay(true)?;
                if peer == NOBODY || self.request(peer, one.address).is_some() {
                    let hello = self.credentials.hello(GATEWAY, false, 0, nonce()?);
                    one.say(&hello)?;
                    one.stage = Stage::Porter { peer, hello };
                    return Ok(Step::On);
                }
                self.greet(one, peer)
            }
            Stage::Porter { peer, hello } => {
                let Some(answer) = one.hear::<ANSWER_LEN>()? else { return Ok(Step::Wait) };
                let request = match peer {
                    NOBODY => Some(Request::of_path_costs(one.about.clone())),
                    peer => self.request(peer, one.address),
                };
                // The peer may have been disconnected from meanwhile.
                let Some(request) = request else { return Ok(Step::Drop) };
                one.say(&relay::ask(&self.credentials, &hello, &answer, &request)?)?;
                one.stage = Stage::Reply { peer };
                Ok(Step::On)
            }
            Stage::Reply { peer } => {
                let Some(reply) = one.hear::<REPLY_LEN>()? else { return Ok(Step::Wait) };
                match Reply::parse(&reply).ok_or(Refusal::Protocol)? {
                    Reply::PathCosts(path_costs) if peer == NOBODY => {
                        self.handle_path_costs(one.address, &one.about, Some(&path_costs));
                        return Ok(Step::Drop);
                    }
                    Reply::Open { beyond } if peer != NOBODY => one.detour = beyond,
                    Reply::Refused(text) => return Err(Failure::Gateway(text)),
                    Reply::Open { .. } | Reply::PathCosts(_) => {
                        return Err(Refusal::Protocol.into());
                    }
                }
                let step = self.greet(one, peer)?;
                self.note_connection(one);
                let is_wanted = matches!(self.links.get(&peer), Some(Link::Dialling(_)));
                Ok(if is_wanted { step } else { Step::Drop })
            }
            Stage::Answer { peer, hello } => {
                let Some(answer) = one.hear::<ANSWER_LEN>()? else { return Ok(Step::Wait) };
                let binding = one.channel.binding()?;
                self.credentials.check_answer(&hello, &binding, &answer)?;
                let proof = self.credentials.proof(&hello, &binding, &answer);
                one.say(&proof)?;
                path_probe::watch(&one.channel.socket, path_probe::SILENCE)?;
                one.stage = Stage::Verdict { peer };
                Ok(Step::On)
            }
            Stage::Verdict { peer } => {
                match one.hear::<VERDICT_LEN>()? {
                    None => Ok(Step::Wait),
                    Some([ACCEPTED])
                        if matches!(self.links.get(&peer), Some(Link::Open { .. })) =>
                    {
                        Ok(Step::Drop)
                    }
                    Some([ACCEPTED]) => Ok(Step::Open(peer)),
                    // The peer's own connection, or an earlier one of ours, is the link.
                    Some([DECLINED]) => Err(Failure::Declined),
                    Some(_) => Err(Refusal::Protocol.into()),
                }
            }
            Stage::Hello => {
                let Some(hello) = one.hear::<HELLO_LEN>()? else { return Ok(Step::Wait) };
                let caller = self.credentials.check_hello(&hello)?;
                self.encryption.check(caller)?;
                one.channel.socket.set_nodelay(true)?;
                one.detour = caller.way.behind(one.round_trip());
                if caller.encrypts {
                    one.channel.encrypt_as_server(self.encryption.identity(&self.credentials))?;
                }
                one.stage = Stage::Keys { peer: caller.rank, hello };
                Ok(Step::On)
            }
            Stage::Keys { peer, hello } => {
                if !one.channel.agree()? {
                    return Ok(Step::Wait);
                }
                let answer = self.credentials.answer(&hello, &one.channel.binding()?, nonce()?);
                one.say(&answer)?;
                one.stage = Stage::Proof { peer, hello, answer };
                Ok(Step::On)
            }
            Stage::Proof { peer, hello, answer } => {
                let Some(proof) = one.hear::<PROOF_LEN>()? else { return Ok(Step::Wait) };
                let binding = one.channel.binding()?;
                self.credentials.check_proof(&hello, &binding, &answer, &proof)?;
                let Caller { generation, .. } = self.credentials.check_hello(&hello)?;
                let known = self.generations.get(&peer).copied().unwrap_or_default();
                let accepted = match self.links.get(&peer) {
                    None => true,
                    // Whoever has a later opening in mind has lost the link, though it seems whole here.
                    Some(Link::Open { .. }) if generation > known => {
                        self.generations.insert(peer, generation);
                        one.stage = Stage::Proved { peer };
                        return Ok(Step::Replace(peer));
                    }
                    Some(Link::Open { .. }) => false,
                    Some(Link::Dialling(_)) => {
                        peer < self.credentials.rank || !self.has_proved_to(peer)
                    }
                };
                one.say(&[if accepted { ACCEPTED } else { DECLINED }])?;
                if !accepted {
                    return Ok(Step::Drop);
                }
                self.generations.insert(peer, generation.max(known));
                Ok(Step::Open(peer))
            }
            Stage::Proved { peer } => {
                one.say(&[ACCEPTED])?;
                Ok(Step::Open(peer))
            }
        }
    }

    /// Says hello to a peer, directly or through a gateway that has reached it.
    fn greet(&mut self, one: &mut Unproved, peer: PeerId) -> Result<Step, Failure> {
        let encrypts = self.encryption.covers(peer);
        let nonce = nonce()?;
        let generation = self.next_generation(peer);
        let mut hello = self.credentials.hello(peer, encrypts, generation, nonce);
        Credentials::add_way(&mut hello, one.detour.before(one.round_trip()));
        one.say(&hello)?;
        if encrypts {
            one.channel.encrypt_as_client(self.encryption.identity(&self.credentials))?;
        }
        one.stage = Stage::Answer { peer, hello };
        Ok(Step::On)
    }

    /// What is asked of the one who listens at `address`, if it is a gateway on the way to `peer`.
    fn request(&self, peer: PeerId, address: SocketAddr) -> Option<Request> {
        let (ways, listeners) = self.ways.get(&peer)?;
        let is_gateway = ways.gateways().any(|gateway| gateway == address);
        let known = (&self.path_costs, self.credentials.rank);
        is_gateway.then(|| ways.request(peer, address, listeners, known))
    }

    /// Whether it is said that nobody listens where a peer did. Of a gateway that says nothing of the peer.
    fn refuses(&self, peer: PeerId, address: SocketAddr, error: &io::Error) -> bool {
        is_refusal(error) && self.request(peer, address).is_none()
    }

    pub(super) fn expire(&mut self, now: Duration) {
        let late = |socket: &Socket| matches!(socket, Socket::Unproved(one) if now >= one.deadline && !one.may_be_open());
        let keys: Vec<u64> =
            self.sockets.iter().filter(|(_, one)| late(one)).map(|(&key, _)| key).collect();
        for key in keys {
            let Some(Socket::Unproved(one)) = self.sockets.get(&key) else { continue };
            let Some(peer) = one.dials() else {
                self.turn_away(key, Refusal::Slow);
                continue;
            };
            let connecting = matches!(one.stage, Stage::Connect { .. });
            let text = if connecting { "no connection" } else { "connected, but silent" };
            if let Some(Socket::Unproved(one)) = self.sockets.remove(&key) {
                self.unproved -= 1;
                self.note_failed_try(peer, &one, (text.into(), false));
            }
        }
    }

    /// Ends tries to open links anew that have connected, and whose hosts have vanished since.
    pub(super) fn give_up_vanished(&mut self) {
        let vanished = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::Unproved(one) => {
                let peer = one.dials().filter(|peer| self.generations.contains_key(peer))?;
                path_probe::has_vanished(&one.channel.socket, path_probe::SILENCE_FAR)?;
                Some((key, peer, one.address))
            }
            Socket::Open(_) => None,
        });
        for (key, peer, address) in vanished.collect::<Vec<_>>() {
            self.sockets.remove(&key);
            self.unproved -= 1;
            self.narrow.insert(peer);
            self.note_failure(peer, address, ("connected, but vanished".into(), false));
        }
    }
}

impl Unproved {
    /// Of the connection itself, as far as the kernel knows.
    fn round_trip(&self) -> Duration {
        let sample = TcpSample::of(&self.channel.socket).ok();
        Duration::from_nanos(sample.and_then(|sample| sample.round_trip_ns).unwrap_or(0))
    }

    /// Whom this side wants to reach by it, if it is the initiator.
    fn dials(&self) -> Option<PeerId> {
        match &self.stage {
            Stage::Connect { peer }
            | Stage::Porter { peer, .. }
            | Stage::Reply { peer }
            | Stage::Answer { peer, .. }
            | Stage::Verdict { peer } => Some(*peer),
            Stage::Hello | Stage::Keys { .. } | Stage::Proof { .. } | Stage::Proved { .. } => None,
        }
    }

    /// Whether the other end has said a proper hello to this process.
    fn is_known(&self) -> bool {
        matches!(self.stage, Stage::Keys { .. } | Stage::Proof { .. } | Stage::Proved { .. })
    }

    /// Whether the peer, whose host is there, may have taken it for the link already, or is going to once it looks:
    /// it waits for no time, as a link does.
    fn may_be_open(&self) -> bool {
        let is_proved = matches!(self.stage, Stage::Verdict { .. });
        is_proved && path_probe::has_vanished(&self.channel.socket, path_probe::SILENCE).is_none()
    }

    /// Handshake words are short: a fresh connection takes them whole.
    fn say(&mut self, word: &[u8]) -> Result<(), Failure> {
        match self.channel.write(word)? {
            count if count == word.len() => Ok(()),
            _ => Err(Refusal::Closed.into()),
        }
    }

    /// The next `N` bytes, once they are there.
    fn hear<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Failure> {
        let mut buffer = [0; N];
        let missing = N - self.got.len();
        match self.channel.read(&mut buffer[..missing]) {
            Ok(0) => return Err(Refusal::Closed.into()),
            Ok(count) => self.got.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let Ok(word) = <[u8; N]>::try_from(&self.got[..]) else { return Ok(None) };
        self.got.clear();
        Ok(Some(word))
    }
}

/// What a step of a handshake leads to.
enum Step {
    Wait,
    On,
    Open(PeerId),
    /// The link as it is goes first; then this connection is it.
    Replace(PeerId),
    Drop,
}

enum Failure {
    Refused(Refusal),
    /// The other end prefers another connection, which may come to nothing.
    Declined,
    System(io::Error),
    /// A gateway does not lead to the peer, and says why.
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
        match tls::refusal_in(&error) {
            Some(refusal) => Self::Refused(refusal),
            None => Self::System(error),
        }
    }
}

/// Begins a connection; by a network of one's own, so that its bytes go nowhere else; with short segments both
/// ways where longer ones may be lost.
pub(super) fn begin_connect(
    to: SocketAddr,
    by: Option<&TcpNetwork>,
    is_narrow: bool,
) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(to);
    let kind = socket2::Type::STREAM.nonblocking().cloexec();
    let socket = socket2::Socket::new(domain, kind, Some(socket2::Protocol::TCP))?;
    if let Some(network) = by {
        // Older kernels keep this for root; there the routes must lead where the networks are.
        let _ = socket.bind_device(Some(network.interface().link().as_bytes()));
        socket.bind(&SocketAddr::new(network.address(), 0).into())?;
    }
    if is_narrow {
        socket.set_tcp_mss(SHORT_SEGMENT)?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Whether the other host has said that nobody listens there, or somebody as if it had.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// Whether accepting fails for want of something that may be there later.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

fn nonce() -> Result<[u8; 32], Failure> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// What IPv6 lets no network carry less than (1280 bytes, RFC 8200 §5), without its headers and TCP's.
pub(super) const SHORT_SEGMENT: u32 = 1220;
/// How long a gateway may take to say what its ways cost. Who wants to know does not wait so long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long listeners are left alone when nothing can be accepted.
const REST: Duration = Duration::from_millis(200);
/// Unproved connections at once; a scan can hold no more.
pub(super) const UNPROVED_MAX: usize = 128;
/// Connections accepted in one look.
const ACCEPTS: usize = 16;
