//! The rail over TCP: authenticated connections, opened at first use.
//!
//! One listener per address; a peer's addresses are tried in order, the next one when the last has
//! not connected for a while, and an address counts only when the process behind it has proved to be
//! the wanted rank of this job. Of two connections opened head to head the lower rank's survives, if
//! it has come so far that its end has proved itself; until then the higher rank's may be quicker.
//! Sockets never block; the sockets with traffic are read directly, the others through epoll.

mod dial;
mod handshake;
#[cfg(test)]
mod hostile;
mod interfaces;
#[cfg(test)]
mod patience;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use memory::Region;
use rustix::event::epoll;
use wire::{Capabilities, Frame, GateId, RemoteRegion};

use crate::rail::{Event, Fault, Post, Rail, RailError};

use dial::{Clock, Dialling, Due};
pub use handshake::Refusal;
use handshake::{
    ACCEPTED, ANSWER_LEN, Answer, Credentials, DECLINED, HELLO_LEN, Hello, PROOF_LEN, VERDICT_LEN,
};
use interfaces::Interface;
use stream::{FRAME_MAX, FrameStream, Received};

/// What the rail needs to know.
#[derive(Clone)]
pub struct TcpConfig {
    /// This process.
    pub rank: GateId,
    /// The job's number, the same in all its processes.
    pub job: u64,
    /// The job's secret.
    pub secret: [u8; 32],
    /// Listen on this interface or address only.
    pub interface: Option<String>,
    /// How long a peer's addresses are tried, and how long a stranger may take to prove itself.
    pub connect_timeout: Duration,
}

/// The rail of one process over TCP.
pub struct TcpRail {
    credentials: Credentials,
    identity: [u8; 16],
    interfaces: Vec<Interface>,
    listeners: Vec<TcpListener>,
    epoll: OwnedFd,
    connect_timeout: Duration,
    clock: Clock,
    sockets: HashMap<u64, Socket>,
    next_key: u64,
    links: HashMap<GateId, Link>,
    /// Keys of open links that had traffic lately: read without asking epoll.
    hot: Vec<u64>,
    /// Keys of other links with frames left in their buffers, of which epoll knows nothing.
    unread: Vec<u64>,
    polls: u32,
    /// Connections in their handshake.
    unproved: usize,
    /// Peers that are being dialled.
    dialled: usize,
    refused: Vec<(SocketAddr, Refusal)>,
    failed: Vec<(GateId, Fault)>,
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

struct Open {
    peer: GateId,
    stream: FrameStream,
    /// Looks in a row that found nothing.
    quiet: u32,
    wants_write: bool,
}

/// A connection in its handshake.
struct Unproved {
    socket: TcpStream,
    /// The other end.
    address: SocketAddr,
    stage: Stage,
    got: Vec<u8>,
    /// On the rail's clock.
    deadline: Duration,
}

/// What is awaited.
#[derive(Clone, Copy)]
enum Stage {
    Connect { peer: GateId },
    Answer { peer: GateId, hello: Hello },
    Verdict { peer: GateId },
    Hello,
    Proof { peer: GateId, hello: Hello, answer: Answer },
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
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("epoll_create")(error.into()))?;
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = TcpListener::bind((address, 0)).map_err(system("bind"))?;
            listener.set_nonblocking(true).map_err(system("fcntl"))?;
            let data = epoll::EventData::new_u64(LISTENER_KEYS + listeners.len() as u64);
            epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)
                .map_err(|error| system("epoll_ctl")(error.into()))?;
            listeners.push(listener);
        }
        let TcpConfig { rank, job, secret, connect_timeout, .. } = config;
        Ok(Self {
            credentials: Credentials { rank, job, secret },
            identity: interfaces::network_identity(),
            interfaces,
            listeners,
            epoll,
            connect_timeout,
            clock: Clock::new(),
            sockets: HashMap::new(),
            next_key: 0,
            links: HashMap::new(),
            hot: Vec::new(),
            unread: Vec::new(),
            polls: 0,
            unproved: 0,
            dialled: 0,
            refused: Vec::new(),
            failed: Vec::new(),
        })
    }

    fn add(&mut self, unproved: Unproved, interest: epoll::EventFlags) {
        let key = self.next_key;
        self.next_key += 1;
        let data = epoll::EventData::new_u64(key);
        if epoll::add(&self.epoll, &unproved.socket, data, interest).is_ok() {
            self.unproved += 1;
            self.sockets.insert(key, Socket::Unproved(Box::new(unproved)));
        }
    }

    /// Tries the next addresses of peers that are being dialled; gives up those that are out of time.
    fn dial(&mut self, now: Duration) {
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
                Due::GiveUp(account) => {
                    self.links.remove(&peer);
                    self.failed.push((peer, Fault::Unreachable(account)));
                    self.drop_dials(peer);
                }
            }
        }
    }

    fn dial_one(&mut self, peer: GateId, address: SocketAddr, now: Duration) {
        match begin_connect(address) {
            Ok(socket) => {
                let stage = Stage::Connect { peer };
                let deadline = now + TRY_TIMEOUT.min(self.connect_timeout);
                let unproved = Unproved { socket, address, stage, got: Vec::new(), deadline };
                self.add(unproved, epoll::EventFlags::OUT);
            }
            Err(error) => self.note_failure(peer, address, error.to_string()),
        }
    }

    /// A try has met a listener, which has its time to answer.
    fn note_connection(&mut self, one: &mut Unproved) {
        let now = self.clock.now();
        one.deadline = now + self.connect_timeout;
        if let Some(Link::Dialling(dialling)) =
            one.dials().and_then(|peer| self.links.get_mut(&peer))
        {
            dialling.handle_connection(now);
        }
    }

    fn note_failure(&mut self, peer: GateId, address: SocketAddr, text: String) {
        let now = self.clock.now();
        if let Some(Link::Dialling(dialling)) = self.links.get_mut(&peer) {
            dialling.handle_failure(address, text, now);
        }
    }

    fn is_dial_to(socket: &Socket, peer: GateId) -> bool {
        matches!(socket, Socket::Unproved(one) if one.dials() == Some(peer))
    }

    /// Closes this side's own attempts to reach `peer`, and counts anew who is being dialled.
    fn drop_dials(&mut self, peer: GateId) {
        let dials = self.sockets.extract_if(|_, socket| Self::is_dial_to(socket, peer));
        for (_, socket) in dials {
            self.unproved -= 1;
            if let (Socket::Unproved(mut one), Ok(nonce)) = (socket, nonce())
                && let Stage::Connect { .. } = one.stage
            {
                // Where the connection has just come about, the other end learns whose it was. Where
                // it has not, it learns nothing, and need not.
                let _ = one.say(&self.credentials.hello(peer, nonce));
            }
        }
        self.count_dialled();
    }

    fn count_dialled(&mut self) {
        let is_dialled = |link: &&Link| matches!(link, Link::Dialling(_));
        self.dialled = self.links.values().filter(is_dialled).count();
    }

    /// Whether an attempt of this side's to reach `peer` waits for the verdict: it may be the link.
    fn has_proved_to(&self, peer: GateId) -> bool {
        self.sockets.values().any(|socket| {
            let Socket::Unproved(one) = socket else { return false };
            matches!(one.stage, Stage::Verdict { peer: dialled } if dialled == peer)
        })
    }

    fn accept(&mut self, index: usize, now: Duration) {
        for _ in 0..ACCEPTS {
            let Ok((socket, address)) = self.listeners[index].accept() else { return };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            self.make_way();
            let deadline = now + self.connect_timeout;
            let stage = Stage::Hello;
            let unproved = Unproved { socket, address, stage, got: Vec::new(), deadline };
            self.add(unproved, epoll::EventFlags::IN);
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
            Refusal::Protocol | Refusal::Job | Refusal::Secret => false,
        };
        if !(excusable && one.is_known()) {
            self.refused.push((one.address, refusal));
        }
    }

    /// Moves a handshake on as far as the socket's bytes allow.
    fn shake(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
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
                    let _ = epoll::modify(&self.epoll, &one.socket, data, epoll::EventFlags::IN);
                    self.note_connection(&mut one);
                }
                Ok(Step::On) => {}
                Ok(Step::Open(peer)) => {
                    self.open(key, peer, one.socket, sink);
                    return true;
                }
                Ok(Step::Drop) => return false,
                Err(failure) => {
                    match (one.dials(), failure) {
                        (Some(peer), failure) => {
                            self.note_failure(peer, one.address, failure.to_string());
                        }
                        (None, Failure::Refused(refusal)) => self.note_refusal(&one, refusal),
                        (None, Failure::System(_) | Failure::Declined) => {
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
                if let Some(error) = one.socket.take_error()? {
                    return Err(error.into());
                }
                match one.socket.peer_addr() {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Step::Wait),
                    Err(error) => return Err(error.into()),
                }
                one.socket.set_nodelay(true)?;
                let hello = self.credentials.hello(peer, nonce()?);
                one.say(&hello)?;
                one.stage = Stage::Answer { peer, hello };
                Ok(Step::On)
            }
            Stage::Answer { peer, hello } => {
                let Some(answer) = one.hear::<ANSWER_LEN>()? else { return Ok(Step::Wait) };
                self.credentials.check_answer(&hello, &answer)?;
                let proof = self.credentials.proof(&hello, &answer);
                one.say(&proof)?;
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
                let peer = self.credentials.check_hello(&hello)?;
                one.socket.set_nodelay(true)?;
                let answer = self.credentials.answer(&hello, nonce()?);
                one.say(&answer)?;
                one.stage = Stage::Proof { peer, hello, answer };
                Ok(Step::On)
            }
            Stage::Proof { peer, hello, answer } => {
                let Some(proof) = one.hear::<PROOF_LEN>()? else { return Ok(Step::Wait) };
                self.credentials.check_proof(&hello, &answer, &proof)?;
                let accepted = match self.links.get(&peer) {
                    None => true,
                    Some(Link::Open { .. }) => false,
                    Some(Link::Dialling(_)) => {
                        peer < self.credentials.rank || !self.has_proved_to(peer)
                    }
                };
                one.say(&[if accepted { ACCEPTED } else { DECLINED }])?;
                Ok(if accepted { Step::Open(peer) } else { Step::Drop })
            }
        }
    }

    fn open(&mut self, key: u64, peer: GateId, socket: TcpStream, sink: &mut dyn FnMut(Event<'_>)) {
        let data = epoll::EventData::new_u64(key);
        // Fails only for lack of kernel memory; the link is then found silent by its peer's timeout.
        let _ = epoll::modify(&self.epoll, &socket, data, epoll::EventFlags::IN);
        let stream = FrameStream::new(socket);
        let open = Open { peer, stream, quiet: 0, wants_write: false };
        self.sockets.insert(key, Socket::Open(Box::new(open)));
        self.links.insert(peer, Link::Open { key });
        self.drop_dials(peer);
        self.hot.push(key);
        sink(Event::Up { peer, capabilities: CAPABILITIES });
    }

    /// Reads one open link and shows what came.
    fn read(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return false };
        let peer = open.peer;
        let received =
            if open.stream.has_frame() { Received::Bytes } else { open.stream.receive() };
        let fault = match received {
            Received::Nothing => {
                open.quiet = open.quiet.saturating_add(1);
                return false;
            }
            Received::Bytes => {
                open.quiet = 0;
                match open.stream.deliver(&mut |bytes| sink(Event::Frame { peer, bytes })) {
                    Ok(_) => return true,
                    Err(fault) => fault,
                }
            }
            Received::End(fault) => fault,
        };
        self.close(key, fault, sink);
        true
    }

    /// A link that is not hot and has more to show gets a turn at the next poll.
    fn note_unread(&mut self, key: u64) {
        if let Some(Socket::Open(open)) = self.sockets.get(&key)
            && open.stream.has_frame()
            && !self.hot.contains(&key)
            && !self.unread.contains(&key)
        {
            self.unread.push(key);
        }
    }

    fn close(&mut self, key: u64, fault: Fault, sink: &mut dyn FnMut(Event<'_>)) {
        if let Some(Socket::Open(open)) = self.sockets.remove(&key) {
            self.links.remove(&open.peer);
            self.hot.retain(|hot| *hot != key);
            sink(Event::Down { peer: open.peer, fault });
        }
    }

    /// Sends what waits on one link.
    fn write(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return false };
        let peer = open.peer;
        match open.stream.flush(&mut |token| sink(Event::Sent { peer, token })) {
            Ok(moved) => {
                if open.stream.refused && open.stream.has_room() {
                    open.stream.refused = false;
                    sink(Event::Room { peer });
                }
                set_interest(&self.epoll, key, open);
                moved
            }
            Err(error) => {
                self.close(key, Fault::Lost(error.to_string()), sink);
                true
            }
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
                    if !self.hot.contains(&key) && self.hot.len() < HOT_MAX {
                        self.hot.push(key);
                    }
                    self.note_unread(key);
                }
                None => {}
            }
        }
        if self.unproved > 0 || self.dialled > 0 {
            self.expire(now);
            self.dial(now);
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

    fn expire(&mut self, now: Duration) {
        let late = |socket: &Socket| matches!(socket, Socket::Unproved(one) if now >= one.deadline);
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
            let address = one.address;
            self.sockets.remove(&key);
            self.unproved -= 1;
            self.note_failure(peer, address, text.into());
        }
    }
}

impl Rail for TcpRail {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn address(&self) -> Vec<u8> {
        let listeners: Vec<SocketAddr> =
            self.listeners.iter().filter_map(|one| one.local_addr().ok()).collect();
        interfaces::emit(self.identity, &listeners)
    }

    fn connect(&mut self, peer: GateId, address: &[u8]) -> Result<(), RailError> {
        if self.links.contains_key(&peer) {
            return Ok(());
        }
        let (identity, offered) = interfaces::parse(address)
            .ok_or_else(|| RailError::Unreachable("a malformed address".into()))?;
        let here = identity == self.identity;
        let candidates = interfaces::order(here, offered, &self.interfaces);
        if candidates.is_empty() {
            let text = "each of its addresses is one of this node too, or of no use elsewhere";
            return Err(RailError::Unreachable(text.into()));
        }
        let now = self.clock.look(Instant::now());
        let dialling = Dialling::new(candidates, now, self.connect_timeout);
        self.links.insert(peer, Link::Dialling(dialling));
        self.count_dialled();
        self.dial(now);
        Ok(())
    }

    fn disconnect(&mut self, peer: GateId) {
        let Some(link) = self.links.remove(&peer) else { return };
        match link {
            Link::Dialling(_) => self.drop_dials(peer),
            Link::Open { key } => {
                self.sockets.remove(&key);
                self.hot.retain(|hot| *hot != key);
            }
        }
    }

    fn post(&mut self, peer: GateId, frame: &Frame) -> Post {
        let Some(Link::Open { key }) = self.links.get(&peer) else { return Post::Full };
        let key = *key;
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return Post::Full };
        match open.stream.post(frame) {
            Ok(post) => {
                set_interest(&self.epoll, key, open);
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
        let mut moved = false;
        let mut index = 0;
        while index < self.hot.len() {
            let key = self.hot[index];
            moved |= self.read(key, sink);
            let quiet = match self.sockets.get(&key) {
                Some(Socket::Open(open)) => open.quiet,
                Some(Socket::Unproved(_)) | None => QUIET_MAX,
            };
            if quiet >= QUIET_MAX {
                self.hot.retain(|hot| *hot != key);
            } else {
                index += 1;
            }
        }
        for key in std::mem::take(&mut self.unread) {
            moved |= self.read(key, sink);
            self.note_unread(key);
        }
        self.polls = self.polls.wrapping_add(1);
        let busy = self.dialled > 0 || self.has_backlog();
        if self.polls.is_multiple_of(EPOLL_EVERY) || self.hot.is_empty() || busy {
            moved |= self.poll_epoll(sink);
        }
        moved
    }

    fn pull(&mut self, _: GateId, _: RemoteRegion, _: u64, _: &Region) -> Result<(), RailError> {
        Err(RailError::Unreachable("TCP cannot fetch".into()))
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.epoll.as_fd()]
    }

    fn prepare_sleep(&mut self) -> bool {
        let has_frame =
            |socket: &Socket| matches!(socket, Socket::Open(open) if open.stream.has_frame());
        self.failed.is_empty() && !self.sockets.values().any(has_frame)
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        !self.has_backlog()
    }
}

impl TcpRail {
    fn has_backlog(&self) -> bool {
        self.sockets.values().any(|socket| matches!(socket, Socket::Open(open) if open.wants_write))
    }
}

impl Drop for TcpRail {
    fn drop(&mut self) {
        for socket in self.sockets.values_mut() {
            if let Socket::Open(open) = socket {
                open.stream.say_goodbye();
            }
        }
    }
}

impl Unproved {
    /// Whom this side wants to reach by it, if it is the initiator.
    fn dials(&self) -> Option<GateId> {
        match &self.stage {
            Stage::Connect { peer } | Stage::Answer { peer, .. } | Stage::Verdict { peer } => {
                Some(*peer)
            }
            Stage::Hello | Stage::Proof { .. } => None,
        }
    }

    /// Whether the other end has said a proper hello to this process.
    fn is_known(&self) -> bool {
        matches!(self.stage, Stage::Proof { .. })
    }

    /// Handshake words are short: a fresh connection takes them whole.
    fn say(&mut self, word: &[u8]) -> Result<(), Failure> {
        match self.socket.write(word)? {
            count if count == word.len() => Ok(()),
            _ => Err(Refusal::Closed.into()),
        }
    }

    /// The next `N` bytes, once they are there.
    fn hear<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Failure> {
        let mut buffer = [0; N];
        let missing = N - self.got.len();
        match self.socket.read(&mut buffer[..missing]) {
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
    Open(GateId),
    Drop,
}

enum Failure {
    Refused(Refusal),
    /// The other end prefers another connection, which may come to nothing.
    Declined,
    System(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Declined => f.write_str("declined in favour of another connection"),
            Self::System(error) => error.fmt(f),
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
        Self::System(error)
    }
}

fn set_interest(epoll: &OwnedFd, key: u64, open: &mut Open) {
    let wants_write = !open.stream.is_flushed();
    if wants_write != open.wants_write {
        open.wants_write = wants_write;
        let write = if wants_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(key);
        // Fails only for lack of kernel memory; the hot reader and the next post try again.
        let _ = epoll::modify(epoll, &open.stream.socket, data, epoll::EventFlags::IN | write);
    }
}

fn begin_connect(to: SocketAddr) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(to);
    let kind = socket2::Type::STREAM.nonblocking().cloexec();
    let socket = socket2::Socket::new(domain, kind, Some(socket2::Protocol::TCP))?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

fn nonce() -> Result<[u8; 32], Failure> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

/// Epoll keys from here on are listeners'.
const LISTENER_KEYS: u64 = 1 << 63;
/// How long the network may take to bring about one connection: a few retransmissions.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Unproved connections at once; a scan can hold no more.
const UNPROVED_MAX: usize = 64;
/// Connections accepted in one look.
const ACCEPTS: usize = 16;
/// Links read directly.
const HOT_MAX: usize = 4;
/// A link is not hot after so many empty looks.
const QUIET_MAX: u32 = 4096;
/// With hot links, epoll is asked once in so many polls.
const EPOLL_EVERY: u32 = 64;
/// Events taken from epoll at once.
const EVENTS: usize = 64;

/// Until a link is measured: a message of up to 64 KiB goes at once, in a site's round trip of tens
/// of microseconds or a WAN's of milliseconds alike; 4 MiB are in flight unmatched at most.
const CAPABILITIES: Capabilities = Capabilities {
    frame_max: FRAME_MAX,
    inline_max: 8 << 10,
    eager_max: 64 << 10,
    ahead_max: 2 << 20,
    piece_min: 64 << 10,
    credit_bytes: 4 << 20,
    pull: false,
};
