//! Messages of connections, and the ends of links.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use auth::HandshakeEnd;
use rail::{Event, Fault, Post, Refusal};
use wire::Frame;

use crate::connection::{ConnectionStage, Keepalive, OfiConnection};
use crate::fabric::{Completion, Destination, Received, SendFailure, SendRefusal};
use crate::message::{HELLO, Head, MessageKind, shown};
use crate::{LINK_SENDS, LOOK_EVERY, OfiRail, TICK};

impl OfiRail {
    /// Posts a frame on a link.
    pub(super) fn post_frame(&mut self, key: u64, frame: &Frame) -> Post {
        let Some(connection) = self.connections.get_mut(&key) else { return Post::Full };
        let has_room = connection.in_flight < LINK_SENDS && connection.unsent.is_empty();
        if has_room && let Some(slot) = self.endpoint.claim() {
            let (to, sequence) = (connection.to, connection.next_sent);
            let head = Head { key: connection.their_key, sequence, kind: MessageKind::Frame };
            let contents = self.endpoint.contents(&slot);
            let (at, end) = (Head::LEN + frame.head.len(), Head::LEN + frame.len());
            contents[..Head::LEN].copy_from_slice(&head.emit());
            contents[Head::LEN..at].copy_from_slice(&frame.head);
            if let Some(body) = &frame.body {
                body.region.read(0, &mut contents[at..end]);
            }
            match self.endpoint.send(slot, end, to) {
                Ok(number) => {
                    self.note_sent(key, number);
                    return Post::Done;
                }
                Err(SendRefusal::Full) => self.is_blocked = true,
                Err(SendRefusal::Failed(failure)) => {
                    self.fail(key, failure);
                    return Post::Full;
                }
            }
        }
        if let Some(connection) = self.connections.get_mut(&key)
            && !connection.is_refused
        {
            connection.is_refused = true;
            self.deferred += 1;
        }
        Post::Full
    }

    /// Counts a message that is being sent on a connection.
    fn note_sent(&mut self, key: u64, number: usize) {
        self.owners[number] = key;
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.next_sent = connection.next_sent.wrapping_add(1);
            connection.in_flight += 1;
            self.in_flight += 1;
        }
    }

    /// Sends a message of a connection itself, now or as soon as the provider takes it.
    pub(super) fn say(&mut self, key: u64, kind: MessageKind, payload: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        self.backlogged += usize::from(connection.unsent.is_empty());
        connection.unsent.push_back((kind, payload));
        self.send_unsent(key);
    }

    /// Sends the unsent messages of a connection, as far as the provider takes them. True if it took one.
    fn send_unsent(&mut self, key: u64) -> bool {
        let mut moved = false;
        while let Some(connection) = self.connections.get_mut(&key)
            && let Some((kind, payload)) = connection.unsent.front()
        {
            let (to, sequence) = (connection.to, connection.next_sent);
            let head = Head { key: connection.their_key, sequence, kind: *kind };
            let Some(slot) = self.endpoint.claim() else { break };
            let len = Head::LEN + payload.len();
            let contents = self.endpoint.contents(&slot);
            contents[..Head::LEN].copy_from_slice(&head.emit());
            contents[Head::LEN..len].copy_from_slice(payload);
            match self.endpoint.send(slot, len, to) {
                Ok(number) => {
                    connection.unsent.pop_front();
                    self.backlogged -= usize::from(connection.unsent.is_empty());
                    self.note_sent(key, number);
                    moved = true;
                }
                Err(SendRefusal::Full) => {
                    self.is_blocked = true;
                    break;
                }
                Err(SendRefusal::Failed(failure)) => {
                    self.fail(key, failure);
                    return true;
                }
            }
        }
        moved
    }

    /// Tells an endpoint that a connection is gone. If that is not possible now, its next message is answered so.
    fn say_gone(&mut self, their_key: u64, to: Destination) {
        // The other end has not told its key yet.
        if their_key == HELLO {
            return;
        }
        let Some(slot) = self.endpoint.claim() else { return };
        let head = Head { key: their_key, sequence: 0, kind: MessageKind::Gone };
        self.endpoint.contents(&slot)[..Head::LEN].copy_from_slice(&head.emit());
        if let Ok(number) = self.endpoint.send(slot, Head::LEN, to) {
            self.owners[number] = HELLO;
        }
    }

    /// Reads completions, and reports until a link has ended: what follows waits until the caller has handled the end.
    pub(super) fn advance(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = self.open_newcomers(sink);
        if self.arrived.is_empty() {
            moved |= self.read_completions();
        }
        while self.ended.is_empty()
            && let Some(received) = self.arrived.pop_front()
        {
            self.handle(received, sink);
            moved = true;
        }
        if self.backlogged > 0 {
            let is_backlogged = |one: &OfiConnection| !one.unsent.is_empty();
            let keys = self.keys_of(is_backlogged);
            moved |= keys.into_iter().fold(false, |moved, key| self.send_unsent(key) | moved);
        }
        if self.deferred > 0 && self.ended.is_empty() {
            moved |= self.invite(sink);
        }
        if self.polls.is_multiple_of(LOOK_EVERY) || self.links.dialled() > 0 {
            self.keep_time();
        }
        if self.ended.is_empty() {
            for (from, reason) in std::mem::take(&mut self.refused) {
                sink(Event::Refused { from, reason });
                moved = true;
            }
        }
        moved
    }

    fn keys_of(&self, is_such: impl Fn(&OfiConnection) -> bool) -> Vec<u64> {
        self.connections.iter().filter(|(_, one)| is_such(one)).map(|(&key, _)| key).collect()
    }

    fn read_completions(&mut self) -> bool {
        let Self { endpoint, arrived, connections, owners, in_flight, is_blocked, .. } = self;
        let mut failed = Vec::new();
        let moved = endpoint.poll(&mut |completion| match completion {
            Completion::Received(received) => arrived.push_back(received),
            Completion::Sent(number, failure) => {
                *is_blocked = false;
                let key = owners[number];
                if let Some(connection) = connections.get_mut(&key) {
                    connection.in_flight -= 1;
                    *in_flight -= 1;
                    failed.extend(failure.map(|failure| (key, failure)));
                }
            }
        });
        for (key, failure) in failed {
            self.fail(key, failure);
        }
        moved
    }

    /// Reports room on links that refused a frame and can take some.
    fn invite(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        // Where nothing is being sent, no completion says that the provider takes more.
        let is_tried = self.endpoint.is_idle() && self.polls.is_multiple_of(RETRY_EVERY);
        if self.is_blocked && !is_tried || !self.endpoint.has_unused() {
            return false;
        }
        let mut moved = false;
        for connection in self.connections.values_mut() {
            let has_room = connection.unsent.is_empty() && connection.in_flight <= LINK_SENDS / 2;
            if connection.is_refused
                && has_room
                && let Some(peer) = connection.peer()
            {
                connection.is_refused = false;
                self.deferred -= 1;
                sink(Event::Room { peer });
                moved = true;
            }
        }
        moved
    }

    /// Handles a message.
    fn handle(&mut self, received: Received, sink: &mut dyn FnMut(Event<'_>)) {
        let Some((head, payload)) = Head::parse(self.endpoint.bytes(&received)) else {
            self.endpoint.release(received);
            return self.refuse(NOWHERE, Refusal::Protocol);
        };
        let Head { key, sequence, kind } = head;
        if key == HELLO {
            let payload = payload.to_vec();
            self.endpoint.release(received);
            return self.handle_hello(&payload);
        }
        let Some(connection) = self.connections.get_mut(&key) else {
            self.endpoint.release(received);
            return self.handle_unknown(key, kind);
        };
        connection.heard = self.clock.now();
        if kind == MessageKind::Gone {
            self.endpoint.release(received);
            let fault = Fault::Lost(format!("{} has lost the connection", connection.address));
            return self.end(key, fault);
        }
        match sequence.wrapping_sub(connection.next_received) {
            0 => {
                connection.next_received = sequence.wrapping_add(1);
                self.deliver(key, received, sink);
                self.deliver_early(key, sink);
            }
            1..EARLY_MAX => {
                if let Some(earlier) = connection.early.insert(sequence, received) {
                    self.endpoint.release(earlier);
                }
            }
            _ => self.endpoint.release(received),
        }
    }

    /// Delivers the messages that have waited for an earlier one.
    pub(super) fn deliver_early(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) {
        while self.ended.is_empty()
            && let Some(connection) = self.connections.get_mut(&key)
            && let Some(received) = connection.early.remove(&connection.next_received)
        {
            connection.next_received = connection.next_received.wrapping_add(1);
            self.deliver(key, received, sink);
        }
    }

    /// Delivers the next message of a connection.
    fn deliver(&mut self, key: u64, received: Received, sink: &mut dyn FnMut(Event<'_>)) {
        let peer = self.connections.get(&key).and_then(OfiConnection::peer);
        let Some((head, payload)) = Head::parse(self.endpoint.bytes(&received)) else {
            return self.endpoint.release(received);
        };
        match (head.kind, peer) {
            (MessageKind::Frame, Some(peer)) => sink(Event::Frame { peer, bytes: payload }),
            (MessageKind::Handshake, None) => {
                let payload = payload.to_vec();
                self.endpoint.release(received);
                return self.handle_step(key, &payload, sink);
            }
            (MessageKind::Farewell, _) => self.end(key, Fault::Closed),
            (MessageKind::Ping, Some(_)) => self.say(key, MessageKind::Pong, Vec::new()),
            (MessageKind::Pong, Some(_)) | (MessageKind::Gone, _) => {}
            (MessageKind::Frame | MessageKind::Ping | MessageKind::Pong, None)
            | (MessageKind::Handshake, Some(_)) => {
                self.end(key, Fault::Misbehaved("a message out of place".into()));
            }
        }
        self.endpoint.release(received);
    }

    /// Handles a message with a key that no connection has.
    fn handle_unknown(&mut self, key: u64, kind: MessageKind) {
        match self.gone.iter().find(|(gone, ..)| *gone == key) {
            Some(_) if kind == MessageKind::Gone => {}
            Some(&(_, their_key, to)) => self.say_gone(their_key, to),
            None => self.refuse(NOWHERE, Refusal::Protocol),
        }
    }

    /// Has a refusal reported. Those of a flood are not all told.
    pub(super) fn refuse(&mut self, from: SocketAddr, refusal: Refusal) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push_back((from, refusal));
        }
    }

    /// Looks at the clock: dials, gives up what is late, and asks silent peers for a sign of life.
    fn keep_time(&mut self) {
        let now = self.clock.look(Instant::now());
        if self.links.dialled() > 0 {
            self.dial(now);
        }
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        self.expire(now);
        let mut due = Vec::new();
        for (&key, connection) in &mut self.connections {
            if connection.peer().is_some() {
                due.push((key, connection.keepalive(now)));
            }
        }
        for (key, keepalive) in due {
            match keepalive {
                Keepalive::Nothing => {}
                Keepalive::Ping => {
                    if self.connections.get(&key).is_some_and(|one| one.unsent.is_empty()) {
                        self.say(key, MessageKind::Ping, Vec::new());
                    }
                }
                Keepalive::Lost(silence) => {
                    let Some(connection) = self.connections.get(&key) else { continue };
                    let text =
                        format!("{} is silent for {} s", connection.address, silence.as_secs());
                    self.end(key, Fault::Silent(text, silence));
                }
                Keepalive::Cut(lasted) => {
                    let Some(connection) = self.connections.get(&key) else { continue };
                    let (address, lasted) = (connection.address, lasted.as_secs());
                    let text = format!("libfabric has not reached {address} for {lasted} s");
                    self.end(key, Fault::Lost(text));
                }
            }
        }
    }

    /// Handles the failure of a send.
    fn fail(&mut self, key: u64, failure: SendFailure) {
        let Some(connection) = self.connections.get(&key) else { return };
        let SendFailure { is_refused, text } = failure;
        match connection.stage {
            ConnectionStage::Handshake(_) => {
                self.end_handshake(key, HandshakeEnd::Failed(text), is_refused);
            }
            ConnectionStage::Open(_) | ConnectionStage::Replaces(_) => {
                let own = shown(self.endpoint.name());
                let fault = Fault::Lost(format!("{own} to {}: {text}", connection.address));
                self.end(key, fault);
            }
        }
    }

    /// Ends a connection whose other end knows of it or is lost. The end of a link is reported.
    pub(super) fn end(&mut self, key: u64, fault: Fault) {
        let Some(connection) = self.connections.get(&key) else { return };
        match connection.stage {
            ConnectionStage::Handshake(_) => {
                let text = fault.text().unwrap_or("the peer has closed it").to_owned();
                self.end_handshake(key, HandshakeEnd::Failed(text), false);
            }
            ConnectionStage::Replaces(_) => {
                self.remove(key);
            }
            ConnectionStage::Open(peer) => {
                self.remove(key);
                self.links.remove(peer);
                self.ended.push_back((peer, fault));
            }
        }
    }

    /// Ends a connection without a report, and tells the other end.
    pub(super) fn forget(&mut self, key: u64) {
        if let Some(OfiConnection { their_key, to, .. }) = self.remove(key) {
            self.say_gone(their_key, to);
        }
    }

    /// Removes a connection. What is being sent on it stays with the provider, in the endpoint's memory.
    pub(super) fn remove(&mut self, key: u64) -> Option<OfiConnection> {
        let mut connection = self.connections.remove(&key)?;
        for (_, received) in std::mem::take(&mut connection.early) {
            self.endpoint.release(received);
        }
        self.in_flight -= connection.in_flight;
        self.backlogged -= usize::from(!connection.unsent.is_empty());
        self.deferred -= usize::from(connection.is_refused);
        if self.gone.len() >= GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back((key, connection.their_key, connection.to));
        Some(connection)
    }

    /// Tells the peers of all links that this process leaves, and waits for a moment until that has left.
    pub(super) fn say_farewell(&mut self) {
        for key in self.keys_of(|one| one.peer().is_some()) {
            self.say(key, MessageKind::Farewell, Vec::new());
        }
        let begin = Instant::now();
        while (self.in_flight > 0 || self.backlogged > 0) && begin.elapsed() < FAREWELL_MAX {
            self.read_completions();
            while let Some(received) = self.arrived.pop_front() {
                let head = Head::parse(self.endpoint.bytes(&received)).map(|(head, _)| head);
                self.endpoint.release(received);
                // Who leaves too does not hear this end's farewell.
                if let Some(Head { key, kind: MessageKind::Farewell | MessageKind::Gone, .. }) =
                    head
                {
                    self.remove(key);
                }
            }
            for key in self.keys_of(|one| !one.unsent.is_empty()) {
                self.send_unsent(key);
            }
        }
    }
}

/// Address of a stranger, which no message tells.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Messages that may come before an earlier one: no more are received at once.
const EARLY_MAX: u32 = 128;
/// Ended connections that are remembered.
const GONE_MAX: usize = 256;
/// Refusals that wait to be told.
const REFUSED_MAX: usize = 16;
/// Polls between two trials of a provider that takes nothing, and says nothing.
const RETRY_EVERY: u32 = 16;
/// Time for the last messages to leave.
const FAREWELL_MAX: std::time::Duration = std::time::Duration::from_secs(1);
