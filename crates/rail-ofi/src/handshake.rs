//! Connections that become links: those that this endpoint begins, and those that others begin.
//!
//! The first message holds the hello of `auth`, the address of the caller's endpoint and the key for answers, with a
//! MAC of all. So nobody without the job's secret makes this endpoint write to an address, or keep anything.

use std::time::{Duration, Instant};

use auth::{
    ANSWER_LEN, Answer, Binding, DECLINES, HELLO_LEN, Handshake, HandshakeEnd, Hello, Nonce,
    Opening, Outcome, Own, SEAL_LEN, Step, verdict,
};
use connect::{Agreed, DialAction, DialFailure, Verdict};
use cost::Cost;
use rail::{Event, Fault, Refusal};
use tracing::debug;
use wire::PeerId;

use crate::connection::{ConnectionStage, OfiConnection, SILENCE};
use crate::fabric::Destination;
use crate::message::{HELLO, MessageKind, shown};
use crate::{CAPABILITIES, OfiRail};

impl OfiRail {
    /// Tries peers that are due, and gives up those that are out of time.
    pub(super) fn dial(&mut self, now: Duration) {
        let Self { links, connections, .. } = self;
        for (peer, action) in
            links.poll_dials(now, |peer| has_proved_to(connections.values(), peer))
        {
            match action {
                DialAction::Try { timeout, .. } => {
                    self.dial_one(peer, now + timeout.max(TRY_MIN));
                }
                DialAction::GiveUp(account) => {
                    self.drop_dials(peer);
                    self.ended.push_back((peer, Fault::Unreachable(account)));
                }
            }
        }
    }

    fn dial_one(&mut self, peer: PeerId, deadline: Duration) {
        let Some(name) = self.addresses.get(&peer).cloned() else { return };
        let address = shown(&name);
        let (Some(to), Some((key, nonce))) = (self.destination(&name), random()) else {
            let failure = DialFailure::silent("the provider does not take the address");
            return self.note_failure(peer, failure);
        };
        debug!(peer = peer.0, %address, "OFI: connects");
        let is_asked = self.connections.values().any(|one| one.asks(peer));
        let asked = self.links.ask(peer, is_asked);
        let opening = Opening { asked, wanted: peer, encrypts: false, note: [0; 4], nonce };
        let (handshake, hello) = Handshake::call(&Own::Codes(&self.keys), &opening, deadline);
        let words = Words { key, name: self.endpoint.name() }.emit();
        let seal = self.keys.with(peer).seal_later(&hello, &NO_ANSWER, FIRST, &words);
        let payload = [&hello[..], &seal, &words].concat();
        let connection = OfiConnection::new(handshake, (to, address), HELLO, self.clock.now());
        self.connections.insert(key, connection);
        self.say(key, MessageKind::Handshake, payload);
    }

    /// The provider's number of an address.
    fn destination(&mut self, name: &[u8]) -> Option<Destination> {
        if let Some(known) = self.destinations.get(name) {
            return Some(*known);
        }
        let new = self.endpoint.insert(name)?;
        self.destinations.insert(name.to_vec(), new);
        Some(new)
    }

    fn note_failure(&mut self, peer: PeerId, failure: DialFailure) {
        debug!(peer = peer.0, ?failure, "OFI: has not connected");
        let now = self.clock.now();
        let Some(address) = self.addresses.get(&peer).map(|name| shown(name)) else { return };
        if let Some(dialling) = self.links.dialling(peer) {
            dialling.handle_failure(address, failure, now);
        }
    }

    /// Handles the first message of a connection.
    pub(super) fn handle_hello(&mut self, payload: &[u8]) {
        let Some((hello, seal, words)) = parse_hello(payload) else {
            return self.refuse(shown(&[]), Refusal::Protocol);
        };
        let Some(Words { key: their_key, name }) = Words::parse(words) else {
            return self.refuse(shown(&[]), Refusal::Protocol);
        };
        let address = shown(name);
        let mut handshake = Handshake::listen(self.clock.now() + self.connect_timeout);
        match self.introduce(&mut handshake, hello, seal, words) {
            Ok(()) => {}
            Err(HandshakeEnd::Refused(refusal)) => return self.refuse(address, refusal),
            Err(_) => return self.refuse(address, Refusal::Protocol),
        }
        // A copy of an earlier hello.
        if self.connections.values().any(|one| one.their_key == their_key) {
            return;
        }
        self.evict_oldest();
        let (Some(to), Some((key, nonce))) = (self.destination(name), random()) else { return };
        let Ok(answer) = handshake.handle_keys(&self.keys, &CLEAR, nonce) else { return };
        debug!(%address, "OFI: accepts");
        let mut connection =
            OfiConnection::new(handshake, (to, address), their_key, self.clock.now());
        connection.next_received = 1;
        self.connections.insert(key, connection);
        self.say(key, MessageKind::Handshake, [&answer[..], &key.to_le_bytes()].concat());
    }

    /// Checks that a hello is from a process that knows the secret it shares with this one.
    fn introduce(
        &self,
        handshake: &mut Handshake,
        hello: &Hello,
        seal: &[u8; SEAL_LEN],
        words: &[u8],
    ) -> Result<(), HandshakeEnd> {
        let own = Own::Codes(&self.keys);
        let step = handshake.handle_bytes(&own, &mut &hello[..], || Ok(CLEAR))?;
        let Step::Introduced(caller) = step else { return Err(Refusal::Protocol.into()) };
        self.encryption.check(caller)?;
        let shared = self.keys.with(caller.peer);
        let checked = shared.check_seal_later(hello, &NO_ANSWER, FIRST, words, seal);
        checked.map_err(|_| Refusal::Secret.into())
    }

    /// Bounds the number of connections that have not proved themselves.
    fn evict_oldest(&mut self) {
        let pending = self.connections.iter().filter_map(|(&key, one)| {
            let handshake = one.handshake().filter(|handshake| handshake.asked().is_none())?;
            Some((handshake.deadline(), key))
        });
        if pending.clone().count() >= PENDING_MAX
            && let Some((_, key)) = pending.min()
        {
            self.end_handshake(key, Refusal::TooMany.into(), false);
        }
    }

    /// Handles a further message of a handshake.
    pub(super) fn handle_step(
        &mut self,
        key: u64,
        payload: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let ConnectionStage::Handshake(handshake) = &mut connection.stage else { return };
        let is_answer = handshake.asked().is_some() && !handshake.is_proved();
        let (mut bytes, their_key) = match payload.split_last_chunk() {
            Some((bytes, their_key)) if is_answer => (bytes, Some(u64::from_le_bytes(*their_key))),
            _ => (payload, None),
        };
        let is_whole = bytes.len() == handshake.missing();
        let step = handshake.handle_bytes(&Own::Codes(&self.keys), &mut bytes, || Ok(CLEAR));
        if !is_whole {
            return self.end_handshake(key, Refusal::Protocol.into(), false);
        }
        match step {
            Ok(Step::Proves(proof)) => {
                connection.their_key = their_key.unwrap_or(HELLO);
                connection.asked = Instant::now();
                self.say(key, MessageKind::Handshake, proof.to_vec());
            }
            Ok(Step::Identified { peer, generation }) => {
                connection.round_trip = Some(connection.asked.elapsed());
                self.judge(key, (peer, generation), sink);
            }
            Ok(Step::Accepted { asked, generation }) => {
                connection.round_trip = Some(connection.asked.elapsed());
                match self.links.conclude(asked, generation) {
                    Some(agreed) => self.open(key, agreed, sink),
                    None => self.forget(key),
                }
            }
            Ok(Step::Waits | Step::Introduced(_)) => {
                self.end_handshake(key, Refusal::Protocol.into(), false);
            }
            Err(end) => self.end_handshake(key, end, false),
        }
    }

    /// Decides whether the connection of an authenticated peer is the link.
    fn judge(
        &mut self,
        key: u64,
        (peer, generation): (PeerId, u32),
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let Self { links, connections, .. } = self;
        match links.judge(peer, generation, || has_proved_to(connections.values(), peer)) {
            Verdict::Accepted(agreed) => {
                self.say(key, MessageKind::Handshake, verdict(agreed.generation()).to_vec());
                self.open(key, agreed, sink);
            }
            Verdict::Replaces(old, agreed) => {
                if let Some(connection) = self.connections.get_mut(&key) {
                    connection.stage = ConnectionStage::Replaces(agreed);
                    self.newcomers.push(key);
                }
                self.end(old, Fault::Lost("the peer has lost it".into()));
            }
            // It ends with the handshake's time.
            Verdict::Declined => self.say(key, MessageKind::Handshake, DECLINES.to_vec()),
        }
    }

    /// Opens connections that replace links whose ends have been handled.
    pub(super) fn open_newcomers(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        if self.newcomers.is_empty() {
            return false;
        }
        for key in std::mem::take(&mut self.newcomers) {
            let Some(connection) = self.connections.get(&key) else { continue };
            let ConnectionStage::Replaces(agreed) = connection.stage else { continue };
            self.say(key, MessageKind::Handshake, verdict(agreed.generation()).to_vec());
            self.open(key, agreed, sink);
            self.deliver_early(key, sink);
        }
        true
    }

    /// Makes a connection the link to its peer.
    fn open(&mut self, key: u64, agreed: Agreed, sink: &mut dyn FnMut(Event<'_>)) {
        // The last step may have failed to leave.
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let peer = agreed.peer();
        connection.stage = ConnectionStage::Open(peer);
        let cost = cost(connection.round_trip, self.provider.bytes_per_s());
        debug!(peer = peer.0, address = %connection.address, round_trip_us = cost.round_trip_ns() / 1000, "OFI: is connected");
        self.links.open(agreed, key);
        self.drop_dials(peer);
        sink(Event::Up { peer, capabilities: CAPABILITIES });
        sink(Event::Cost { peer, cost });
    }

    /// Ends this side's attempts to reach `peer`.
    pub(super) fn drop_dials(&mut self, peer: PeerId) {
        let asks = self.connections.iter().filter(|(_, one)| one.asks(peer));
        for key in asks.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.forget(key);
        }
    }

    /// Ends handshakes that are late. A peer that has this end's proof may compute.
    pub(super) fn expire(&mut self, now: Duration) {
        let is_late = |one: &OfiConnection| {
            one.handshake().is_some_and(|handshake| {
                handshake.is_late(now, || now < handshake.deadline() + SILENCE)
            })
        };
        let late = self.connections.iter().filter(|(_, one)| is_late(one));
        for key in late.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.end_handshake(key, HandshakeEnd::Late, false);
        }
    }

    /// Ends a connection in its handshake. `is_refused` is true if the host of the peer says that nobody is there.
    pub(super) fn end_handshake(&mut self, key: u64, end: HandshakeEnd, is_refused: bool) {
        let Some(OfiConnection { stage, address, .. }) = self.remove(key) else { return };
        let ConnectionStage::Handshake(handshake) = stage else { return };
        match (handshake.end(end.clone(), &mut self.links), end) {
            (Outcome::Attempt(peer, _), HandshakeEnd::Failed(text)) if is_refused => {
                self.note_failure(peer, DialFailure::refused(text));
            }
            (Outcome::Attempt(peer, failure), _) => self.note_failure(peer, failure),
            (Outcome::Stranger(refusal), _) => self.refuse(address, refusal),
            (Outcome::Excused, _) => {}
        }
    }
}

/// The part of a hello that describes the caller's endpoint.
struct Words<'a> {
    /// Key for answers.
    key: u64,
    /// Address of the endpoint.
    name: &'a [u8],
}

impl<'a> Words<'a> {
    fn emit(&self) -> Vec<u8> {
        [&self.key.to_le_bytes()[..], self.name].concat()
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (key, name) = bytes.split_first_chunk()?;
        Some(Self { key: u64::from_le_bytes(*key), name })
    }
}

/// Splits a first message into hello, MAC and what it covers beside the hello.
fn parse_hello(payload: &[u8]) -> Option<(&Hello, &[u8; SEAL_LEN], &[u8])> {
    let (hello, rest) = payload.split_first_chunk::<HELLO_LEN>()?;
    let (seal, words) = rest.split_first_chunk::<SEAL_LEN>()?;
    Some((hello, seal, words))
}

/// True if this end has proved itself to `peer` over one of the connections.
fn has_proved_to<'a>(
    mut connections: impl Iterator<Item = &'a OfiConnection>,
    peer: PeerId,
) -> bool {
    connections.any(|one| one.asks(peer) && one.handshake().is_some_and(Handshake::is_proved))
}

/// A key for a connection, and the bytes that no other handshake has.
fn random() -> Option<(u64, Nonce)> {
    let (mut key, mut nonce) = ([0; 8], [0; 32]);
    getrandom::fill(&mut key).ok()?;
    getrandom::fill(&mut nonce).ok()?;
    // Zero is the key of a hello.
    Some((u64::from_le_bytes(key).max(HELLO + 1), nonce))
}

/// First estimate of a link's cost, from a step of the handshake and its answer.
fn cost(round_trip: Option<Duration>, bytes_per_s: Option<u64>) -> Cost {
    let round_trip_ns = round_trip.map_or(0, |time| time.as_nanos().min(u64::MAX.into()) as u64);
    let latency_ns = (round_trip_ns / 2).clamp(LATENCY_MIN_NS, LATENCY_MAX_NS);
    Cost::linear(latency_ns, latency_ns / GAP_SHARE, bytes_per_s.unwrap_or(USUAL_RATE))
}

/// The handshake is not encrypted.
const CLEAR: Binding = [0; 32];
/// Answer before which the MAC of a hello is made, and its number.
const NO_ANSWER: Answer = [0; ANSWER_LEN];
const FIRST: (u8, u64) = (0, 0);
/// Shortest time limit of an attempt: messages are not lost, and a peer may be late.
const TRY_MIN: Duration = Duration::from_secs(5);
/// Connections of others in their handshake at once.
const PENDING_MAX: usize = 128;
/// Bounds of the latency of a link. A step of the handshake also takes both ends some time.
const LATENCY_MIN_NS: u64 = 500;
const LATENCY_MAX_NS: u64 = 50_000;
/// Share of the latency for which a short frame keeps the link busy.
const GAP_SHARE: u64 = 8;
/// Rate of a network that does not tell its own, in bytes per second.
const USUAL_RATE: u64 = 5_000_000_000;
