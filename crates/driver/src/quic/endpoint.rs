//! The rail's state, which the application's threads and the keeper serve in turn: sockets, connections,
//! and which peers they lead to.
//!
//! [`Core::serve`] does all that the protocol asks for: it takes in what has come, answers it, sends what may
//! leave, and looks after timers. [`Core::report`] shows what came of it. The keeper only serves.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::{
    ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointEvent,
    Event as Happening, StreamEvent,
};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use wire::{Capabilities, Cost, Frame, PeerId};

use super::connection::{Code, Line, Outlet, Reading, Stage};
use super::frames::FRAME_MAX;
use super::handshake::refusal;
use super::hello::Myself;
use super::knowledge::Knowledge;
use super::settings::{self, Keys};
use super::socket::{Datagram, Intake, Socket, Undelivered};
use crate::rail::{Event, Fault, Post, RailError};
use crate::tcp::Refusal;
use crate::tcp::dial::{Clock, Dialling};

/// Everything of the rail that changes.
pub(super) struct Core {
    pub(super) myself: Myself,
    pub(super) keys: Keys,
    pub(super) knowledge: Knowledge,
    pub(super) endpoint: Endpoint,
    pub(super) sockets: Vec<Socket>,
    pub(super) intake: Intake,
    /// Datagrams of one look, and a batch on its way out.
    pub(super) inbound: Vec<Datagram>,
    pub(super) batch: Vec<u8>,
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) lines: FxHashMap<usize, Line>,
    pub(super) links: FxHashMap<PeerId, Link>,
    /// Of links that have been open, the last opening that may have come about.
    pub(super) generations: FxHashMap<PeerId, u32>,
    /// Lines that may have something to send, or to read.
    pub(super) to_serve: Vec<usize>,
    pub(super) to_read: VecDeque<usize>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, usize)>>,
    pub(super) reports: VecDeque<Report>,
    /// Lines that may yet become links.
    pub(super) unproved: usize,
    pub(super) dialled: usize,
    pub(super) clock: Clock,
    pub(super) connect_timeout: Duration,
    /// When to look again after peers that are dialled and strangers that dawdle.
    pub(super) next_look: Instant,
    /// When to look again at what was learned of the paths.
    pub(super) next_lesson: Instant,
    /// The user knows of buffers that are too small.
    pub(super) has_complained: bool,
    /// The application's thread sleeps until the descriptors wake it.
    pub(super) is_asleep: bool,
    /// How often the rail was polled: the time between two polls is a turn.
    pub(super) polls: u32,
    /// The rail's links pass those of another, which learns what the paths carry.
    passes: bool,
}

/// What is known of a peer.
pub(super) enum Link {
    Dialling(Dialling),
    Open { key: usize },
}

/// What has happened and was not told.
pub(super) enum Report {
    Up { peer: PeerId },
    Room { peer: PeerId },
    Cost { peer: PeerId, cost: Cost },
    Down { peer: PeerId, fault: Fault },
    Refused { from: SocketAddr, reason: Refusal },
    Hampered { reason: String },
}

impl Core {
    pub fn new(
        myself: Myself,
        keys: Keys,
        sockets: Vec<Socket>,
        epoll: Arc<OwnedFd>,
        connect_timeout: Duration,
        passes: bool,
    ) -> Self {
        let tries_lengths = sockets.iter().all(Socket::keeps_packets_whole);
        let config = Arc::new(settings::endpoint());
        let endpoint = Endpoint::new(config, Some(keys.any_server()), tries_lengths, None);
        let now = Instant::now();
        Self {
            myself,
            keys,
            knowledge: Knowledge::new(),
            endpoint,
            sockets,
            intake: Intake::new(),
            inbound: Vec::new(),
            batch: Vec::new(),
            epoll,
            lines: FxHashMap::default(),
            links: FxHashMap::default(),
            generations: FxHashMap::default(),
            to_serve: Vec::new(),
            to_read: VecDeque::new(),
            timers: BinaryHeap::new(),
            reports: VecDeque::new(),
            unproved: 0,
            dialled: 0,
            clock: Clock::new(),
            connect_timeout,
            next_look: now,
            next_lesson: now,
            has_complained: passes,
            is_asleep: false,
            polls: 0,
            passes,
        }
    }

    /// Whether there is anything to keep alive.
    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty() || self.dialled > 0
    }

    /// Whether everything posted has arrived.
    pub fn is_flushed(&self) -> bool {
        self.lines.values().all(|line| line.peer().is_none() || line.is_flushed())
    }

    /// Whether there is something to report, or to do at once.
    pub fn has_events(&self, now: Instant) -> bool {
        !(self.reports.is_empty() && self.to_read.is_empty() && self.to_serve.is_empty())
            || self.next(now).is_some_and(|next| next <= now)
    }

    /// When to serve next if nothing comes before.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let is_looking = self.dialled > 0 || self.unproved > 0;
        let look = is_looking.then(|| self.next_look.max(now));
        timer.into_iter().chain(look).min()
    }

    /// Ends what leads to `peer`, without a word to the engine.
    pub fn disconnect(&mut self, peer: PeerId, now: Instant) {
        match self.links.remove(&peer) {
            Some(Link::Dialling(_)) => {
                self.dialled -= 1;
                self.drop_dials(peer, now);
            }
            Some(Link::Open { key }) => self.close(key, Code::Misbehaved, now),
            None => {}
        }
        self.reports.retain(|reports| reports.peer() != Some(peer));
        self.serve_lines(now);
    }

    /// Says goodbye to all.
    pub fn leave(&mut self, now: Instant) {
        let open: Vec<usize> = self
            .lines
            .iter()
            .filter(|(_, line)| line.peer().is_some())
            .map(|(&key, _)| key)
            .collect();
        for key in open {
            self.learn(key);
            self.close(key, Code::Goodbye, now);
        }
        self.serve_lines(now);
    }

    /// Takes a frame, and says whether some of what was posted on its link has to wait for the pace.
    pub fn post(&mut self, peer: PeerId, frame: &Frame, now: Instant) -> (Post, bool) {
        let Some(Link::Open { key }) = self.links.get(&peer) else { return (Post::Full, false) };
        let key = *key;
        let Some(line) = self.lines.get_mut(&key) else { return (Post::Full, false) };
        let post = line.outbox.post(frame, self.polls);
        if post == Post::Full {
            // It is invited when there is room, by the next poll at the earliest.
            self.list_to_serve(key);
        } else if !line.is_paced(now) {
            self.pump(key, now);
        }
        (post, self.lines.get(&key).is_some_and(Line::waits_for_pace))
    }

    /// Where the peer behind an open link is.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        let Some(Link::Open { key }) = self.links.get(&peer) else { return None };
        self.lines.get(key).map(|line| line.connection.remote_address())
    }

    /// Whether anything that was posted waits for the pace.
    pub fn waits_for_pace(&self) -> bool {
        self.lines.values().any(Line::waits_for_pace)
    }

    /// Does what is due; whether anything was.
    pub fn serve(&mut self, now: Instant) -> bool {
        let mut moved = self.take_in(now);
        moved |= self.run_timers(now);
        if (self.dialled > 0 || self.unproved > 0) && now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.expire(now);
            self.dial(now);
        }
        if now >= self.next_lesson {
            self.next_lesson = now + LESSON_EVERY;
            self.look_at_paths(now);
        }
        // What came in took its time to be opened.
        moved |= self.serve_lines(Instant::now());
        moved
    }

    /// Shows what has happened; whether anything was.
    pub fn report(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = !self.reports.is_empty();
        while let Some(reports) = self.reports.pop_front() {
            let is_end = matches!(reports, Report::Down { .. });
            reports.tell(if self.passes { &PASSING } else { &CAPABILITIES }, sink);
            if is_end {
                // Who hears of an end acts on it after this report: a link that takes its place comes with the next.
                return true;
            }
        }
        for _ in 0..self.to_read.len() {
            let Some(key) = self.to_read.pop_front() else { break };
            moved |= self.read(key, sink);
        }
        // And what was shown took its time, too.
        self.serve_lines(Instant::now());
        moved
    }

    fn read(&mut self, key: usize, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(line) = self.lines.get_mut(&key) else { return false };
        line.listed.to_read = false;
        let Some(peer) = line.peer() else { return false };
        let mut moved = false;
        let reading = line.read(READ_BYTES, &mut |bytes| {
            moved = true;
            sink(Event::Frame { peer, bytes });
        });
        match reading {
            Ok(Reading::More) => self.list_to_read(key),
            Ok(Reading::Dry) => {
                line.readable = false;
                if let Some(fault) = line.ending.take() {
                    line.stage = Stage::Closing;
                    self.links.remove(&peer);
                    sink(Event::Down { peer, fault });
                    moved = true;
                }
            }
            Err(fault) => {
                self.links.remove(&peer);
                self.close(key, Code::Misbehaved, Instant::now());
                sink(Event::Down { peer, fault });
                moved = true;
            }
        }
        self.list_to_serve(key);
        moved
    }

    /// Takes in what has come to the sockets.
    fn take_in(&mut self, now: Instant) -> bool {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&*self.epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        let mut moved = false;
        for event in &events[..count] {
            // The timer's own entry is beyond the sockets: it only wakes.
            let index = event.data.u64() as usize;
            if index >= self.sockets.len() {
                continue;
            }
            let flags = event.flags;
            if flags.contains(epoll::EventFlags::ERR) {
                self.hear_errors(index, now);
            }
            if flags.contains(epoll::EventFlags::OUT) && self.sockets[index].unstick() {
                self.set_interest(index);
                self.stir_all(index);
            }
            moved |= self.take_in_from(index);
        }
        moved
    }

    fn take_in_from(&mut self, index: usize) -> bool {
        let mut moved = false;
        for _ in 0..LOOKS {
            let mut inbound = std::mem::take(&mut self.inbound);
            let has_more = self.sockets[index]
                .receive(&mut self.intake, &mut |datagram| inbound.push(datagram));
            moved |= !inbound.is_empty();
            // It may have come since this look began: a round trip that seems shorter than it was is believed for long.
            let now = Instant::now();
            for datagram in inbound.drain(..) {
                self.handle(index, datagram, now);
            }
            self.inbound = inbound;
            if !has_more {
                break;
            }
        }
        moved
    }

    fn handle(&mut self, index: usize, datagram: Datagram, now: Instant) {
        let Datagram { from, to, ecn, bytes } = datagram;
        let mut answer = std::mem::take(&mut self.batch);
        answer.clear();
        match self.endpoint.handle(now, from, to, ecn, bytes, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(line) = self.lines.get_mut(&handle.0) {
                    line.connection.handle_event(event);
                    self.list_to_serve(handle.0);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.admit(index, incoming, now, &mut answer);
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.sockets[index].send(transmit, &mut answer);
            }
            None => {}
        }
        self.batch = answer;
    }

    pub(super) fn close(&mut self, key: usize, code: Code, now: Instant) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        self.unproved -= usize::from(line.is_unproved());
        line.close(now, code);
        self.list_to_serve(key);
    }

    fn run_timers(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(&Reverse((at, key))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(line) = self.lines.get_mut(&key) else { continue };
            if line.timer != Some(at) {
                continue;
            }
            line.timer = None;
            if line.connection.poll_timeout().is_some_and(|due| due <= now) {
                line.connection.handle_timeout(now);
                line.stir();
            }
            moved |= self.check_doubt(key, now);
            self.list_to_serve(key);
        }
        moved
    }

    /// Looks after all lines that may have something to do.
    pub(super) fn serve_lines(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for _ in 0..ROUNDS {
            if self.to_serve.is_empty() {
                break;
            }
            for key in std::mem::take(&mut self.to_serve) {
                if let Some(line) = self.lines.get_mut(&key) {
                    line.listed.to_serve = false;
                    line.stir();
                    self.tend(key, now);
                    moved |= self.pump(key, now);
                }
            }
        }
        moved
    }

    pub(super) fn list_to_serve(&mut self, key: usize) {
        if let Some(line) = self.lines.get_mut(&key)
            && !std::mem::replace(&mut line.listed.to_serve, true)
        {
            self.to_serve.push(key);
        }
    }

    pub(super) fn list_to_read(&mut self, key: usize) {
        if let Some(line) = self.lines.get_mut(&key)
            && !std::mem::replace(&mut line.listed.to_read, true)
        {
            self.to_read.push_back(key);
        }
    }

    /// Sends what may leave on one line, and notes when more may.
    pub(super) fn pump(&mut self, key: usize, now: Instant) -> bool {
        let Some(line) = self.lines.get_mut(&key) else { return false };
        let socket = &mut self.sockets[line.socket];
        let was_stuck = socket.is_stuck();
        let moved = line.pump(now, socket, &mut self.batch);
        let (index, is_stuck) = (line.socket, socket.is_stuck());
        if let Some(peer) = line.peer()
            && line.outbox.invite(self.polls)
        {
            self.reports.push_back(Report::Room { peer });
        }
        self.note_timer(key);
        if is_stuck && !was_stuck {
            self.set_interest(index);
        }
        let unanswered = self.lines.get(&key).and_then(Line::unanswered);
        if let Some(count) = unanswered {
            self.lose(key, format!("its host has answered none of {count} knocks"), now);
        }
        self.remove_drained(key);
        moved
    }

    /// Ends a link that this end takes for lost.
    pub(super) fn lose(&mut self, key: usize, text: String, now: Instant) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        if line.peer().is_none() || line.ending.is_some() {
            return;
        }
        line.ending = Some(Fault::Lost(text));
        line.connection.close(now, (Code::Lost as u32).into(), bytes::Bytes::new());
        line.stir();
        self.learn(key);
        self.list_to_serve(key);
        self.list_to_read(key);
    }

    fn note_timer(&mut self, key: usize) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let doubt = line.doubted.map(|(until, _)| until);
        let Some(next) = line.next().into_iter().chain(doubt).min() else { return };
        // An entry that comes too soon does no harm; it is made anew then.
        if line.timer.is_none_or(|at| next < at) {
            line.timer = Some(next);
            self.timers.push(Reverse((next, key)));
        }
    }

    fn remove_drained(&mut self, key: usize) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        while let Some(event) = line.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(key), event) {
                line.connection.handle_event(event);
            }
        }
        if line.connection.is_drained() && line.stage == Stage::Closing {
            self.lines.remove(&key);
        }
    }

    /// Removes a connection, whatever its other end still says.
    pub(super) fn forget(&mut self, key: usize) {
        if self.lines.remove(&key).is_some() {
            self.endpoint.handle_event(ConnectionHandle(key), EndpointEvent::drained());
        }
    }

    /// Follows what has happened to one connection.
    fn tend(&mut self, key: usize, now: Instant) {
        while let Some(happening) = self.lines.get_mut(&key).and_then(|line| line.connection.poll())
        {
            match happening {
                Happening::Connected => self.handle_connected(key),
                Happening::ConnectionLost { reason } => self.handle_lost(key, &reason, now),
                Happening::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.handle_opened(key),
                Happening::Stream(StreamEvent::Readable { .. }) => {
                    if let Some(line) = self.lines.get_mut(&key) {
                        line.readable = true;
                    }
                }
                Happening::DatagramReceived => {
                    if let Some(line) = self.lines.get_mut(&key) {
                        line.take_echoes();
                    }
                }
                Happening::Stream(_)
                | Happening::HandshakeDataReady
                | Happening::DatagramsUnblocked => {}
            }
        }
        let Some(line) = self.lines.get_mut(&key) else { return };
        while let Some(event) = line.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(key), event) {
                line.connection.handle_event(event);
            }
        }
        if line.readable {
            match line.stage {
                Stage::Open { .. } => self.list_to_read(key),
                Stage::Strange => self.hear_hello(key, now),
                Stage::Asked { peer } => self.hear_verdict(key, peer, now),
                Stage::Dialled { .. } | Stage::Closing => {}
            }
        }
    }

    fn handle_lost(&mut self, key: usize, reason: &ConnectionError, now: Instant) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let address = line.connection.remote_address();
        match line.stage {
            Stage::Open { .. } => {
                line.ending.get_or_insert_with(|| fault(reason));
                self.list_to_read(key);
                self.learn(key);
            }
            Stage::Dialled { peer } | Stage::Asked { peer } => {
                line.stage = Stage::Closing;
                self.unproved -= 1;
                self.note_failure(peer, address, (reason.to_string(), false), now);
            }
            Stage::Strange => {
                line.stage = Stage::Closing;
                self.unproved -= 1;
                if let Some(refusal) = refusal(reason) {
                    self.note_refusal(address, refusal);
                }
            }
            Stage::Closing => {}
        }
    }

    /// A host says that packets to it cannot be delivered, not which. Anybody can say so; but who does not
    /// answer then is gone.
    fn hear_errors(&mut self, index: usize, now: Instant) {
        let mut errors = Vec::new();
        self.sockets[index].errors(&mut |error| errors.push(error));
        for Undelivered { host, is_refused } in errors {
            let address = |line: &Line| line.connection.remote_address();
            let there: Vec<(usize, u16)> = self
                .lines
                .iter()
                .filter(|(_, line)| address(line).ip() == host)
                .map(|(&key, line)| (key, address(line).port()))
                .collect();
            let is_clear = there.windows(2).all(|pair| pair[0].1 == pair[1].1);
            for (key, _) in there {
                self.doubt(key, is_refused && is_clear, now);
            }
        }
    }

    /// Somebody says that nobody is there; `is_refused` if that is the host itself, and nobody else on it can
    /// be meant.
    fn doubt(&mut self, key: usize, is_refused: bool, now: Instant) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let heard = line.connection.stats().udp_rx.datagrams;
        match line.stage {
            Stage::Dialled { peer } if heard == 0 => {
                let address = line.connection.remote_address();
                self.close(key, Code::Declined, now);
                self.note_failure(peer, address, ("nobody is there".into(), is_refused), now);
            }
            Stage::Open { .. } if line.doubted.is_none() => {
                line.doubted = Some((now + DOUBT, heard));
                line.connection.ping();
                self.list_to_serve(key);
            }
            Stage::Open { .. }
            | Stage::Dialled { .. }
            | Stage::Asked { .. }
            | Stage::Strange
            | Stage::Closing => {}
        }
    }

    /// The time to show a sign of life may be over.
    fn check_doubt(&mut self, key: usize, now: Instant) -> bool {
        let Some(line) = self.lines.get_mut(&key) else { return false };
        let Some((_, heard)) = line.doubted.take_if(|(until, _)| now >= *until) else {
            return false;
        };
        let is_silent = line.connection.stats().udp_rx.datagrams == heard;
        if is_silent && line.peer().is_some() && line.ending.is_none() {
            let text = "its host says that nobody is there, and nobody answers";
            self.lose(key, text.into(), now);
        }
        is_silent
    }

    /// Takes what was learned of the paths to the engine, and to the user what keeps them from being used.
    fn look_at_paths(&mut self, now: Instant) {
        self.look_for_moves(now);
        for line in self.lines.values_mut() {
            let Some(peer) = line.peer() else { continue };
            line.reckon_depth();
            let mut gate = line.gate.lock();
            let Some(path) = gate.model.lesson() else { continue };
            drop(gate);
            self.reports.push_back(Report::Cost { peer, cost: self.knowledge.cost(&path) });
            let needed = settings::buffer_needed(path.bytes_per_s);
            let got = self.sockets[line.socket].receive_buffer_bytes;
            if got < needed && !std::mem::replace(&mut self.has_complained, true) {
                let reason = format!(
                    "the system gives a UDP socket {got} bytes, where {needed} would keep what arrives while \
                     this process computes; sysctl net.core.rmem_max={needed} would help"
                );
                self.reports.push_back(Report::Hampered { reason });
            }
        }
    }

    /// Keeps what was learned of a path, for jobs to come.
    pub(super) fn learn(&mut self, key: usize) {
        if self.passes {
            return;
        }
        let Some(line) = self.lines.get(&key) else { return };
        let (here, there) = (self.sockets[line.socket].address, line.connection.remote_address());
        let gate = line.gate.lock();
        if let Some(path) = gate.model.path() {
            self.knowledge.keep(here, there, &path);
        }
        self.knowledge.keep_traffic(here, there, &gate.model.traffic());
    }

    fn stir_all(&mut self, index: usize) {
        let keys: Vec<usize> = self
            .lines
            .iter()
            .filter(|(_, line)| line.socket == index)
            .map(|(&key, _)| key)
            .collect();
        keys.into_iter().for_each(|key| self.list_to_serve(key));
    }

    fn set_interest(&mut self, index: usize) {
        let socket = &self.sockets[index];
        let write =
            if socket.is_stuck() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(index as u64);
        // Fails only for lack of kernel memory; what comes in is then found all the same.
        let _ = epoll::modify(&*self.epoll, socket, data, epoll::EventFlags::IN | write);
    }
}

impl Report {
    fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Up { peer }
            | Self::Room { peer }
            | Self::Cost { peer, .. }
            | Self::Down { peer, .. } => Some(*peer),
            Self::Refused { .. } | Self::Hampered { .. } => None,
        }
    }

    fn tell(self, capabilities: &Capabilities, sink: &mut dyn FnMut(Event<'_>)) {
        match self {
            Self::Up { peer } => sink(Event::Up { peer, capabilities: *capabilities }),
            Self::Room { peer } => sink(Event::Room { peer }),
            Self::Cost { peer, cost } => sink(Event::Cost { peer, cost }),
            Self::Down { peer, fault } => sink(Event::Down { peer, fault }),
            Self::Refused { from, reason } => sink(Event::Refused { from, reason }),
            Self::Hampered { reason } => sink(Event::Hampered { reason }),
        }
    }
}

/// What the end of a link means to the engine.
fn fault(reason: &ConnectionError) -> Fault {
    match reason {
        ConnectionError::ApplicationClosed(close)
            if close.error_code == (Code::Goodbye as u32).into() =>
        {
            Fault::Closed
        }
        reason => Fault::Lost(reason.to_string()),
    }
}

/// Opens sockets for these addresses, which are the rail's from number `first` on, and has them watched.
pub(super) fn open_sockets(
    addresses: Vec<IpAddr>,
    epoll: &OwnedFd,
    first: usize,
) -> Result<Vec<Socket>, RailError> {
    take_sockets(addresses.into_iter().map(Socket::bind), epoll, first)
}

/// Takes sockets, which are the rail's from number `first` on, and has them watched.
pub(super) fn take_sockets(
    opened: impl Iterator<Item = io::Result<Socket>>,
    epoll: &OwnedFd,
    first: usize,
) -> Result<Vec<Socket>, RailError> {
    let system = |call| move |source| RailError::System { call, source };
    let mut sockets = Vec::new();
    for socket in opened {
        let socket = socket.map_err(system("bind"))?;
        let data = epoll::EventData::new_u64((first + sockets.len()) as u64);
        epoll::add(epoll, &socket, data, epoll::EventFlags::IN)
            .map_err(|error| system("epoll_ctl")(error.into()))?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// How often peers that are dialled and strangers are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often the engine learns what paths cost.
const LESSON_EVERY: Duration = Duration::from_millis(100);
/// How long a peer has to show that it is there when somebody says that it is not.
const DOUBT: Duration = Duration::from_secs(2);

/// Events taken from epoll at once.
const EVENTS: usize = 16;
/// Looks at one socket before the others have their turn.
const LOOKS: usize = 4;
/// Frames shown of one link before the others have their turn, in bytes.
const READ_BYTES: usize = 512 << 10;
/// Lines that make work for themselves have as many turns.
const ROUNDS: usize = 4;

/// Until a link is measured, as over TCP.
const CAPABILITIES: Capabilities = Capabilities {
    frame_max: FRAME_MAX,
    inline_max: 8 << 10,
    eager_max: 64 << 10,
    rts_data_max: 2 << 20,
    aggregate_max: 64 << 10,
    piece_min: 64 << 10,
    piece_max: 64 << 10,
    credit_bytes: 64 << 10,
    credit_wanted: 4 << 20,
    remote_read: false,
    adapts: true,
    replay: false,
    reopens: true,
    copies: false,
    passes: false,
};

/// Of links that pass others: what is longer is announced here, and follows over the other link. A connection of its own
/// helps only what is not behind what it is to pass.
const PASSING: Capabilities = Capabilities {
    inline_max: 4 << 10,
    eager_max: 4 << 10,
    aggregate_max: 16 << 10,
    adapts: false,
    replay: true,
    copies: false,
    passes: true,
    ..CAPABILITIES
};
