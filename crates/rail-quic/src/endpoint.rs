//! State of the rail, shared by the application's threads and the IO thread: sockets, connections and links.
//!
//! [`EndpointDriver::serve`] does the protocol work: it receives packets, answers them, sends what may leave, and
//! runs timers. [`EndpointDriver::report`] delivers frames and events. The IO thread only calls `serve`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use connect::{DialFailure, Links, RailLink};
use cost::CostStore;
use netpath::path_probe;
use quinn_proto::{
    ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointEvent,
    Event as ProtocolEvent, StreamEvent,
};
use rail::{Clock, Event, Fault, PathStatistics, Post, RailError};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use wire::{Capabilities, Frame, PeerId};

use crate::connection::{Code, Connection, Outlet, Reading, Stage};
use crate::frames::FRAME_MAX;
use crate::hello::{LocalEnd, end_of_accepted, end_of_attempt};
use crate::key_chain::{KeyChain, KeyId};
use crate::knowledge::Knowledge;
use crate::limits;
use crate::marks;
use crate::reports::QuicReport;
use crate::settings;
use crate::socket::{Datagram, Intake, Socket, Undelivered};
use crate::strangers::Strangers;

/// Mutable state of the rail, behind one lock.
pub(super) struct EndpointDriver {
    pub(super) local: LocalEnd,
    pub(super) keys: KeyChain,
    pub(super) strangers: Strangers,
    pub(super) knowledge: Knowledge,
    pub(super) endpoint: Endpoint,
    pub(super) sockets: Vec<Socket>,
    pub(super) intake: Intake,
    /// Datagrams of one receive call, and a batch to be sent.
    pub(super) inbound: Vec<Datagram>,
    pub(super) batch: Vec<u8>,
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) connections: FxHashMap<usize, Connection>,
    pub(super) links: Links<usize>,
    /// Connections that may have something to send, or to read.
    pub(super) to_serve: Vec<usize>,
    pub(super) to_read: VecDeque<usize>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, usize)>>,
    pub(super) reports: VecDeque<QuicReport>,
    /// Number of connections that may still become links.
    pub(super) unproved: usize,
    pub(super) clock: Clock,
    /// Time of the next check of dialled peers and of slow unauthenticated peers.
    pub(super) next_look: Instant,
    /// Time of the next report of path estimates.
    pub(super) next_lesson: Instant,
    /// True once the user was told of small buffers.
    pub(super) has_complained: bool,
    /// True while the application's thread sleeps on the descriptors.
    pub(super) is_asleep: bool,
    /// Number of polls. Each poll starts a new send budget.
    pub(super) polls: u32,
    /// True if the links overtake those of another rail, which stores the path estimates.
    passes: bool,
    /// Silence after which a WAN link is lost.
    silence: Duration,
}

/// Limits and kind of the rail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time limit for connecting to a peer.
    pub connect_timeout: Duration,
    /// Silence after which a WAN link is lost.
    pub silence: Duration,
    /// True if the links overtake those of another rail.
    pub passes: bool,
}

impl EndpointDriver {
    pub fn new(
        local: LocalEnd,
        keys: KeyChain,
        sockets: Vec<Socket>,
        epoll: Arc<OwnedFd>,
        limits: Limits,
        costs: Arc<dyn CostStore>,
    ) -> Self {
        let Limits { connect_timeout, silence, passes } = limits;
        let tries_lengths = sockets.iter().all(Socket::keeps_packets_whole);
        let now = Instant::now();
        let mark = marks::draw();
        let strangers = Strangers::new(mark, keys.marks(), now);
        let config = Arc::new(settings::endpoint(mark));
        let endpoint =
            Endpoint::new(config, Some(keys.get(KeyId::Own).any_server()), tries_lengths, None);
        Self {
            local,
            keys,
            strangers,
            knowledge: Knowledge::new(costs),
            endpoint,
            sockets,
            intake: Intake::new(),
            inbound: Vec::new(),
            batch: Vec::new(),
            epoll,
            connections: FxHashMap::default(),
            links: Links::new(local.rank, connect_timeout),
            to_serve: Vec::new(),
            to_read: VecDeque::new(),
            timers: BinaryHeap::new(),
            reports: VecDeque::new(),
            unproved: 0,
            clock: Clock::new(),
            next_look: now,
            next_lesson: now,
            has_complained: passes,
            is_asleep: false,
            polls: 0,
            passes,
            silence,
        }
    }

    /// True if a connection needs keepalives or service.
    pub fn has_connections(&self) -> bool {
        !self.connections.is_empty() || self.links.dialled() > 0
    }

    /// True if the peers have acknowledged all posted frames.
    pub fn is_flushed(&self) -> bool {
        self.connections
            .values()
            .all(|connection| connection.peer().is_none() || connection.is_flushed())
    }

    /// True if an event is pending or work is due now.
    pub fn has_events(&self, now: Instant) -> bool {
        !(self.reports.is_empty() && self.to_read.is_empty() && self.to_serve.is_empty())
            || self.next(now).is_some_and(|next| next <= now)
    }

    /// Returns the time of the next service if no input arrives before.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let is_looking = self.links.dialled() > 0 || self.unproved > 0;
        let look = is_looking.then(|| self.next_look.max(now));
        timer.into_iter().chain(look).min()
    }

    /// Closes the link to `peer` without an event.
    pub fn disconnect(&mut self, peer: PeerId, now: Instant) {
        match self.links.remove(peer) {
            Some(RailLink::Dialling(_)) => self.drop_dials(peer, now),
            Some(RailLink::Open { key }) => self.close(key, Code::Misbehaved, now),
            None => {}
        }
        self.reports.retain(|reports| reports.peer() != Some(peer));
        self.serve_connections(now);
    }

    /// Closes all links in an orderly way.
    pub fn leave(&mut self, now: Instant) {
        let open: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.peer().is_some())
            .map(|(&key, _)| key)
            .collect();
        for key in open {
            self.learn(key);
            self.close(key, Code::Goodbye, now);
        }
        self.serve_connections(now);
    }

    /// Accepts a frame. The second value is true if data of this link waits for the pacer.
    pub fn post(&mut self, peer: PeerId, frame: &Frame, now: Instant) -> (Post, bool) {
        let Some(key) = self.links.open_key(peer) else { return (Post::Full, false) };
        let Some(connection) = self.connections.get_mut(&key) else { return (Post::Full, false) };
        let post = connection.outbox.post(frame, self.polls);
        if post == Post::Full {
            // [`QuicReport::Room`] follows when there is room, with the next poll at the earliest.
            self.list_to_serve(key);
        } else if !connection.is_paced(now) {
            self.pump(key, now);
        }
        (post, self.connections.get(&key).is_some_and(Connection::waits_for_pace))
    }

    /// Returns the remote address of an open link.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        let key = self.links.open_key(peer)?;
        self.connections.get(&key).map(|connection| connection.protocol.remote_address())
    }

    /// Passes the losses and round trips of the open links to `sink`.
    pub fn path_statistics(&self, sink: &mut dyn FnMut(PeerId, PathStatistics)) {
        for connection in self.connections.values() {
            if let Stage::Open { peer } = connection.stage {
                let retransmitted = connection.protocol.stats().path.lost_packets;
                let round_trip = connection.protocol.rtt();
                let is_in_flight = !connection.is_flushed();
                sink(peer, PathStatistics { retransmitted, round_trip, is_in_flight });
            }
        }
    }

    /// True if posted data waits for the pacer.
    pub fn waits_for_pace(&self) -> bool {
        self.connections.values().any(Connection::waits_for_pace)
    }

    /// Does all work that is due; returns true if there was any.
    pub fn serve(&mut self, now: Instant) -> bool {
        let mut moved = self.take_in(now);
        moved |= self.run_timers(now);
        if (self.links.dialled() > 0 || self.unproved > 0) && now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.expire(now);
            self.dial(now);
        }
        if now >= self.next_lesson {
            self.next_lesson = now + LESSON_EVERY;
            self.update_costs(now);
        }
        self.review_strangers(now);
        // Decryption took time, so the clock is read again.
        moved |= self.serve_connections(Instant::now());
        moved
    }

    /// Reports events and frames to `sink`; returns true if there were any.
    pub fn report(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = !self.reports.is_empty();
        while let Some(reports) = self.reports.pop_front() {
            let is_end = matches!(reports, QuicReport::Down { .. });
            reports.tell(if self.passes { &PASSING } else { &CAPABILITIES }, sink);
            if is_end {
                // The caller handles the end after this poll; a replacement link comes with the next one.
                return true;
            }
        }
        for _ in 0..self.to_read.len() {
            let Some(key) = self.to_read.pop_front() else { break };
            match self.read(key, sink) {
                Some(has_read) => moved |= has_read,
                None => return true,
            }
        }
        // The sink took time, so the clock is read again.
        self.serve_connections(Instant::now());
        moved
    }

    /// Reads the frames of one connection. Returns true if there were any, and none if its link has ended.
    fn read(&mut self, key: usize, sink: &mut dyn FnMut(Event<'_>)) -> Option<bool> {
        let Some(connection) = self.connections.get_mut(&key) else { return Some(false) };
        connection.listed.to_read = false;
        let Some(peer) = connection.peer() else { return Some(false) };
        let (mut moved, mut has_ended) = (false, false);
        let reading = connection.read(READ_BYTES, &mut |bytes| {
            moved = true;
            sink(Event::Frame { peer, bytes });
        });
        match reading {
            Ok(Reading::More) => self.list_to_read(key),
            Ok(Reading::Dry) => {
                connection.readable = false;
                if let Some(fault) = connection.ending.take() {
                    connection.stage = Stage::Closing;
                    self.links.remove(peer);
                    sink(Event::Down { peer, fault });
                    has_ended = true;
                }
            }
            Err(fault) => {
                self.links.remove(peer);
                self.close(key, Code::Misbehaved, Instant::now());
                sink(Event::Down { peer, fault });
                has_ended = true;
            }
        }
        self.list_to_serve(key);
        (!has_ended).then_some(moved)
    }

    /// Receives from all sockets that are ready.
    fn take_in(&mut self, now: Instant) -> bool {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&*self.epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        let mut moved = false;
        for event in &events[..count] {
            // The timer has a key above the sockets; its event only wakes the thread.
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
        let (mut moved, mut looks) = (false, 0);
        for _ in 0..LOOKS_AT_STRANGERS {
            let mut inbound = std::mem::take(&mut self.inbound);
            let has_more = self.sockets[index]
                .receive(&mut self.intake, &mut |datagram| inbound.push(datagram));
            moved |= !inbound.is_empty();
            // The clock is read per batch: the minimum RTT filter would keep a round trip measured too short.
            let now = Instant::now();
            let mut is_strange = !inbound.is_empty();
            for datagram in inbound.drain(..) {
                is_strange &= !self.handle(index, datagram, now);
            }
            self.inbound = inbound;
            // A flood is dropped as fast as it comes, so that little else is lost in it.
            looks += u32::from(!is_strange);
            if !has_more || looks == LOOKS {
                break;
            }
        }
        moved
    }

    /// Handles a datagram; returns false if it is a stranger's that was dropped.
    pub(super) fn handle(&mut self, index: usize, datagram: Datagram, now: Instant) -> bool {
        let Datagram { from, to, ecn, bytes } = datagram;
        if self.is_strange(&bytes, from, now) {
            self.note_strange(from);
            return false;
        }
        let mut answer = std::mem::take(&mut self.batch);
        answer.clear();
        match self.endpoint.handle(now, from, to, ecn, bytes, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.protocol.handle_event(event);
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
        true
    }

    /// Closes a connection and tells its other end why.
    pub(super) fn close(&mut self, key: usize, code: Code, now: Instant) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        self.unproved -= usize::from(connection.is_unproved());
        connection.close(now, code, Bytes::new());
        self.list_to_serve(key);
    }

    fn run_timers(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(&Reverse((at, key))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(connection) = self.connections.get_mut(&key) else { continue };
            if connection.timer != Some(at) {
                continue;
            }
            connection.timer = None;
            if connection.protocol.poll_timeout().is_some_and(|due| due <= now) {
                connection.protocol.handle_timeout(now);
                connection.stir();
            }
            moved |= self.check_doubt(key, now);
            self.list_to_serve(key);
        }
        moved
    }

    /// Handles all connections that may have work.
    pub(super) fn serve_connections(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for _ in 0..ROUNDS {
            if self.to_serve.is_empty() {
                break;
            }
            for key in std::mem::take(&mut self.to_serve) {
                if let Some(connection) = self.connections.get_mut(&key) {
                    connection.listed.to_serve = false;
                    connection.stir();
                    self.handle_events(key, now);
                    moved |= self.pump(key, now);
                }
            }
        }
        moved
    }

    pub(super) fn list_to_serve(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(&key)
            && !std::mem::replace(&mut connection.listed.to_serve, true)
        {
            self.to_serve.push(key);
        }
    }

    pub(super) fn list_to_read(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(&key)
            && !std::mem::replace(&mut connection.listed.to_read, true)
        {
            self.to_read.push_back(key);
        }
    }

    /// Sends what may leave on one connection, and notes its next timer.
    pub(super) fn pump(&mut self, key: usize, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&key) else { return false };
        let socket = &mut self.sockets[connection.socket];
        let was_stuck = socket.is_stuck();
        let moved = connection.pump(now, socket, &mut self.batch);
        let (index, is_stuck) = (connection.socket, socket.is_stuck());
        if let Some(peer) = connection.peer()
            && connection.outbox.invite(self.polls)
        {
            self.reports.push_back(QuicReport::Room { peer });
        }
        self.note_timer(key);
        if is_stuck && !was_stuck {
            self.set_interest(index);
        }
        let connection = self.connections.get(&key);
        if let Some(silence) = connection.and_then(|one| one.has_vanished(now, self.silence)) {
            let text = path_probe::text(silence);
            self.lose(key, Fault::Silent(text, silence), now);
        }
        self.remove_drained(key);
        moved
    }

    /// Closes a link that this end counts as lost.
    pub(super) fn lose(&mut self, key: usize, fault: Fault, now: Instant) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if connection.peer().is_none() || connection.ending.is_some() {
            return;
        }
        connection.ending = Some(fault);
        connection.protocol.close(now, (Code::Lost as u32).into(), Bytes::new());
        connection.stir();
        self.learn(key);
        self.list_to_serve(key);
        self.list_to_read(key);
    }

    fn note_timer(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let doubt = connection.doubted.map(|(until, _)| until);
        let Some(next) = connection.next().into_iter().chain(doubt).min() else { return };
        // A timer that fires too early is harmless; it is set again then.
        if connection.timer.is_none_or(|at| next < at) {
            connection.timer = Some(next);
            self.timers.push(Reverse((next, key)));
        }
    }

    fn remove_drained(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        while let Some(event) = connection.protocol.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(key), event) {
                connection.protocol.handle_event(event);
            }
        }
        if connection.protocol.is_drained() && matches!(connection.stage, Stage::Closing) {
            self.connections.remove(&key);
        }
    }

    /// Removes a connection without waiting for its other end.
    pub(super) fn forget(&mut self, key: usize) {
        if self.connections.remove(&key).is_some() {
            self.endpoint.handle_event(ConnectionHandle(key), EndpointEvent::drained());
        }
    }

    /// Handles the protocol events of one connection.
    fn handle_events(&mut self, key: usize, now: Instant) {
        while let Some(event) =
            self.connections.get_mut(&key).and_then(|connection| connection.protocol.poll())
        {
            match event {
                ProtocolEvent::Connected => self.handle_connected(key),
                ProtocolEvent::ConnectionLost { reason } => self.handle_lost(key, &reason, now),
                ProtocolEvent::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    self.handle_opened(key)
                }
                ProtocolEvent::Stream(StreamEvent::Readable { .. }) => {
                    if let Some(connection) = self.connections.get_mut(&key) {
                        connection.readable = true;
                    }
                }
                ProtocolEvent::DatagramReceived => {
                    if let Some(connection) = self.connections.get_mut(&key) {
                        connection.take_duplicates();
                    }
                }
                ProtocolEvent::Stream(_)
                | ProtocolEvent::HandshakeDataReady
                | ProtocolEvent::DatagramsUnblocked => {}
            }
        }
        let Some(connection) = self.connections.get_mut(&key) else { return };
        while let Some(event) = connection.protocol.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(key), event) {
                connection.protocol.handle_event(event);
            }
        }
        if connection.readable {
            match connection.stage {
                Stage::Open { .. } => self.list_to_read(key),
                Stage::Handshake(_) => self.shake_hands(key, now),
                Stage::Dialled { .. } | Stage::Closing => {}
            }
        }
    }

    fn handle_lost(&mut self, key: usize, reason: &ConnectionError, now: Instant) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        match connection.stage {
            Stage::Open { .. } => {
                connection.ending.get_or_insert_with(|| fault(reason));
                self.list_to_read(key);
                self.learn(key);
            }
            Stage::Dialled { .. } | Stage::Handshake(_) => {
                let is_attempt = connection.dials().is_some();
                let end = if is_attempt { end_of_attempt } else { end_of_accepted };
                self.end_handshake(key, end(reason), None, now);
            }
            Stage::Closing => {}
        }
    }

    /// Handles ICMP errors. They name the host, not the packet, and anybody can forge them; so the peer gets time to
    /// answer before it counts as gone.
    fn hear_errors(&mut self, index: usize, now: Instant) {
        let mut errors = Vec::new();
        self.sockets[index].errors(&mut |error| errors.push(error));
        for Undelivered { host, is_refused } in errors {
            let address = |connection: &Connection| connection.protocol.remote_address();
            let there: Vec<(usize, u16)> = self
                .connections
                .iter()
                .filter(|(_, connection)| address(connection).ip() == host)
                .map(|(&key, connection)| (key, address(connection).port()))
                .collect();
            let is_clear = there.windows(2).all(|pair| pair[0].1 == pair[1].1);
            for (key, _) in there {
                self.doubt(key, is_refused && is_clear, now);
            }
        }
    }

    /// Handles an ICMP error for a connection. `is_refused` is true if the host itself refused, and no other process
    /// there can be meant.
    fn doubt(&mut self, key: usize, is_refused: bool, now: Instant) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let heard = connection.protocol.stats().udp_rx.datagrams;
        match connection.stage {
            Stage::Dialled { peer, .. } if heard == 0 => {
                let address = connection.protocol.remote_address();
                self.close(key, Code::Declined, now);
                let text = "nobody is there";
                let failure =
                    if is_refused { DialFailure::refused(text) } else { DialFailure::silent(text) };
                self.note_failure(peer, address, failure, now);
            }
            Stage::Open { .. } if connection.doubted.is_none() => {
                connection.doubted = Some((now + DOUBT, heard));
                connection.protocol.ping();
                self.list_to_serve(key);
            }
            Stage::Open { .. } | Stage::Dialled { .. } | Stage::Handshake(_) | Stage::Closing => {}
        }
    }

    /// Ends the link if the peer has sent nothing since an ICMP error.
    fn check_doubt(&mut self, key: usize, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&key) else { return false };
        let Some((_, heard)) = connection.doubted.take_if(|(until, _)| now >= *until) else {
            return false;
        };
        let is_silent = connection.protocol.stats().udp_rx.datagrams == heard;
        if is_silent && connection.peer().is_some() && connection.ending.is_none() {
            let text = "its host says that nobody is there, and nobody answers";
            self.lose(key, Fault::Lost(text.into()), now);
        }
        is_silent
    }

    /// Reports path estimates to the engine, and small buffers to the user.
    fn update_costs(&mut self, now: Instant) {
        self.check_addresses(now);
        for connection in self.connections.values_mut() {
            let Some(peer) = connection.peer() else { continue };
            connection.update_depth();
            let mut controller = connection.controller.lock();
            let Some(path) = controller.model.lesson() else { continue };
            drop(controller);
            let cost = self.knowledge.measured_cost(&path);
            self.reports.push_back(QuicReport::Cost { peer, cost });
            let (sockets, there) = (&self.sockets, connection.protocol.remote_address().ip());
            // Within this host the rate is that of copies, and no line paces it: shared memory is the remedy.
            let is_local =
                there.is_loopback() || sockets.iter().any(|socket| socket.address.ip() == there);
            let got = sockets[connection.socket].receive_buffer_bytes;
            let advice = limits::advice(got, path.bytes_per_s).filter(|_| !is_local);
            if let Some(reason) = advice.filter(|_| !self.has_complained) {
                self.has_complained = true;
                self.reports.push_back(QuicReport::Hampered { reason });
            }
        }
    }

    /// Stores the estimate of a path for later jobs.
    pub(super) fn learn(&mut self, key: usize) {
        if self.passes {
            return;
        }
        let Some(connection) = self.connections.get(&key) else { return };
        let (here, there) =
            (self.sockets[connection.socket].address, connection.protocol.remote_address());
        let controller = connection.controller.lock();
        if let Some(path) = controller.model.path() {
            self.knowledge.keep(here, there, &path);
        }
        self.knowledge.keep_traffic(here, there, &controller.model.traffic());
    }

    fn stir_all(&mut self, index: usize) {
        let keys: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.socket == index)
            .map(|(&key, _)| key)
            .collect();
        keys.into_iter().for_each(|key| self.list_to_serve(key));
    }

    fn set_interest(&mut self, index: usize) {
        let socket = &self.sockets[index];
        let write =
            if socket.is_stuck() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(index as u64);
        // Fails only for lack of kernel memory; input is still received.
        let _ = epoll::modify(&*self.epoll, socket, data, epoll::EventFlags::IN | write);
    }
}

/// Returns the fault that the engine sees for the end of a connection.
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

/// Opens sockets for these addresses, with indices from `first` on, and adds them to epoll.
pub(super) fn open_sockets(
    addresses: Vec<IpAddr>,
    epoll: &OwnedFd,
    first: usize,
) -> Result<Vec<Socket>, RailError> {
    take_sockets(addresses.into_iter().map(Socket::bind), epoll, first)
}

/// Adopts sockets, with indices from `first` on, and adds them to epoll.
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

/// Locks the driver, also after a panic: no invariant of the driver spans a panic that would make it unusable.
pub(super) fn lock(driver: &Mutex<EndpointDriver>) -> MutexGuard<'_, EndpointDriver> {
    driver.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interval of checks of dialled and unauthenticated peers.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Interval of cost reports to the engine.
const LESSON_EVERY: Duration = Duration::from_millis(100);
/// Time that a peer has to answer after an ICMP error.
const DOUBT: Duration = Duration::from_secs(2);

/// Events taken from one `epoll_wait`.
const EVENTS: usize = 16;
/// Receive calls on one socket before other sockets are served.
const LOOKS: u32 = 4;
/// Maximum number of batches per socket if those of strangers are dropped.
const LOOKS_AT_STRANGERS: u32 = 64;
/// Bytes delivered from one link before other links are served.
const READ_BYTES: usize = 512 << 10;
/// Passes over the connections that produce new work while they are served.
const ROUNDS: usize = 4;

/// Capabilities until a link is measured, as over TCP.
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

/// Capabilities of links that overtake others. Longer messages send an RTS here, and their data over the other link:
/// a separate connection helps only if its own queue is short.
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
