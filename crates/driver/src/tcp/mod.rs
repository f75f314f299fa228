//! The rail over TCP: authenticated connections, opened at first use.
//!
//! One listener per address; a peer's addresses are tried in order, the next one when the last has
//! not connected for a while, and an address counts only when the process behind it has proved to be
//! the wanted rank of this job. Of two connections opened head to head the lower rank's survives.
//! Sockets never block; the sockets with traffic are read directly, the others through epoll.

mod handshake;
mod interfaces;
mod stream;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use memory::Region;
use rustix::event::epoll;
use wire::{Capabilities, Frame, GateId, RemoteRegion};

use crate::rail::{Event, Fault, Post, Rail, RailError};

pub use handshake::Refusal;
use handshake::{
    ACCEPTED, ANSWER_LEN, Answer, Credentials, DECLINED, HELLO_LEN, Hello, PROOF_LEN, VERDICT_LEN,
};
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
    /// How long a peer's addresses are tried.
    pub connect_timeout: Duration,
}

/// The rail of one process over TCP.
pub struct TcpRail {
    credentials: Credentials,
    identity: [u8; 16],
    listeners: Vec<TcpListener>,
    epoll: OwnedFd,
    connect_timeout: Duration,
    sockets: HashMap<u64, Socket>,
    next_key: u64,
    links: HashMap<GateId, Link>,
    /// Keys of open links that had traffic lately: read without asking epoll.
    hot: Vec<u64>,
    /// Keys of other links with frames left in their buffers, of which epoll knows nothing.
    unread: Vec<u64>,
    polls: u32,
    /// Handshakes under way, and dials waiting for their turn.
    unproved: usize,
    refusals: HashMap<Refusal, u64>,
    failed: Vec<(GateId, Fault)>,
}

/// What is known of a peer.
enum Link {
    Dialling(Dialling),
    Open { key: u64 },
}

struct Dialling {
    candidates: std::vec::IntoIter<SocketAddr>,
    tried: Vec<String>,
    /// When the next candidate is tried though the last is still silent.
    next: Instant,
    deadline: Instant,
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
    stage: Stage,
    got: Vec<u8>,
    deadline: Instant,
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
            listeners,
            epoll,
            connect_timeout,
            sockets: HashMap::new(),
            next_key: 0,
            links: HashMap::new(),
            hot: Vec::new(),
            unread: Vec::new(),
            polls: 0,
            unproved: 0,
            refusals: HashMap::new(),
            failed: Vec::new(),
        })
    }

    /// How many connections were refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        self.refusals.iter().map(|(reason, count)| (*reason, *count))
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
    fn dial(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (&peer, link) in &mut self.links {
            let Link::Dialling(dialling) = link else { continue };
            if now >= dialling.deadline {
                due.push((peer, None));
            } else if now >= dialling.next {
                match dialling.candidates.next() {
                    Some(candidate) => {
                        dialling.next = now + STAGGER;
                        dialling.tried.push(candidate.to_string());
                        due.push((peer, Some(candidate)));
                    }
                    None => dialling.next = dialling.deadline,
                }
            }
        }
        for (peer, candidate) in due {
            match candidate {
                Some(candidate) => self.dial_one(peer, candidate, now),
                None => self.give_up(peer),
            }
        }
    }

    fn dial_one(&mut self, peer: GateId, candidate: SocketAddr, now: Instant) {
        match begin_connect(candidate) {
            Ok(socket) => {
                let stage = Stage::Connect { peer };
                let deadline = now + self.connect_timeout;
                let unproved = Unproved { socket, stage, got: Vec::new(), deadline };
                self.add(unproved, epoll::EventFlags::OUT);
            }
            Err(error) => self.note_failure(peer, &error.to_string()),
        }
    }

    /// A candidate has failed: the next one need not wait.
    fn note_failure(&mut self, peer: GateId, text: &str) {
        if let Some(Link::Dialling(dialling)) = self.links.get_mut(&peer) {
            if let Some(last) = dialling.tried.last_mut() {
                last.push_str(&format!(" ({text})"));
            }
            if dialling.candidates.len() > 0 {
                dialling.next = Instant::now();
            }
        }
    }

    fn give_up(&mut self, peer: GateId) {
        if let Some(Link::Dialling(dialling)) = self.links.remove(&peer) {
            let tried = dialling.tried.join(", ");
            let seconds = self.connect_timeout.as_secs();
            let text = format!("no answer within {seconds} s from {tried}");
            self.failed.push((peer, Fault::Unreachable(text)));
        }
        self.drop_dials(peer);
    }

    /// Closes this side's own attempts to reach `peer`.
    fn drop_dials(&mut self, peer: GateId) {
        let keys: Vec<u64> = self
            .sockets
            .iter()
            .filter(
                |(_, socket)| matches!(socket, Socket::Unproved(one) if one.dials() == Some(peer)),
            )
            .map(|(&key, _)| key)
            .collect();
        for key in keys {
            self.sockets.remove(&key);
            self.unproved -= 1;
        }
    }

    fn accept(&mut self, index: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            let Ok((socket, _)) = self.listeners[index].accept() else { return };
            if self.unproved >= UNPROVED_MAX {
                self.refuse(Refusal::Crowd);
                continue;
            }
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let deadline = now + HANDSHAKE_TIMEOUT;
            let unproved = Unproved { socket, stage: Stage::Hello, got: Vec::new(), deadline };
            self.add(unproved, epoll::EventFlags::IN);
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        *self.refusals.entry(refusal).or_default() += 1;
    }

    /// Moves a handshake on as far as the socket's bytes allow.
    fn shake(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Unproved(mut one)) = self.sockets.remove(&key) else { return false };
        self.unproved -= 1;
        loop {
            match self.step(&mut one) {
                Ok(Step::Wait) => {
                    self.unproved += 1;
                    self.sockets.insert(key, Socket::Unproved(one));
                    return false;
                }
                Ok(Step::On) => {}
                Ok(Step::Open(peer)) => {
                    self.open(key, peer, one.socket, sink);
                    return true;
                }
                Ok(Step::Drop) => return false,
                Err(failure) => {
                    match (one.dials(), failure) {
                        (Some(peer), Failure::Refused(refusal)) => {
                            self.refuse(refusal);
                            self.note_failure(peer, &refusal.to_string());
                        }
                        (Some(peer), Failure::System(error)) => {
                            self.note_failure(peer, &error.to_string());
                        }
                        (None, Failure::Refused(refusal)) => self.refuse(refusal),
                        (None, Failure::System(_)) => self.refuse(Refusal::Closed),
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
                    Some([DECLINED]) => Ok(Step::Drop),
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
                    Some(Link::Dialling(_)) => peer < self.credentials.rank,
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
        self.drop_dials(peer);
        let stream = FrameStream::new(socket);
        let open = Open { peer, stream, quiet: 0, wants_write: false };
        self.sockets.insert(key, Socket::Open(Box::new(open)));
        self.links.insert(peer, Link::Open { key });
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
        let now = Instant::now();
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
        if self.unproved > 0 || self.is_dialling() {
            self.dial(now);
            self.expire(now);
        }
        for (peer, fault) in std::mem::take(&mut self.failed) {
            sink(Event::Down { peer, fault });
            moved = true;
        }
        moved
    }

    fn is_dialling(&self) -> bool {
        self.links.values().any(|link| matches!(link, Link::Dialling(_)))
    }

    fn expire(&mut self, now: Instant) {
        let late = |socket: &Socket| matches!(socket, Socket::Unproved(one) if now >= one.deadline);
        let keys: Vec<u64> =
            self.sockets.iter().filter(|(_, one)| late(one)).map(|(&key, _)| key).collect();
        for key in keys {
            if let Some(Socket::Unproved(one)) = self.sockets.remove(&key) {
                self.unproved -= 1;
                if one.dials().is_none() {
                    self.refuse(Refusal::Slow);
                }
            }
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
        let candidates = interfaces::parse(self.identity, address)
            .filter(|candidates| !candidates.is_empty())
            .ok_or_else(|| RailError::Unreachable("no address to try".into()))?;
        let now = Instant::now();
        let dialling = Dialling {
            candidates: candidates.into_iter(),
            tried: Vec::new(),
            next: now,
            deadline: now + self.connect_timeout,
        };
        self.links.insert(peer, Link::Dialling(dialling));
        self.dial(now);
        Ok(())
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
        let busy = self.unproved > 0 || self.has_backlog();
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
    System(io::Error),
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
/// A candidate address that is silent for so long gets company by the next.
const STAGGER: Duration = Duration::from_millis(250);
/// How long an unproved peer may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
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
