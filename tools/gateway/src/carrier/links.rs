//! The links to other gateways, and their channels.
//!
//! A link is a TCP connection ([`streams`](super::streams)) or a QUIC connection of the rail that ranks use
//! over UDP, with its pacing, path memory and failure detection. All connections to another gateway share the
//! link: short messages go first, and long ones take turns. Bytes that the link does not accept wait at their
//! source.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cost::Cost;
use rail::{Event, Fault, Post, Rail, Refusal};
use rail_quic::QuicRail;
use relay::PathCost;
use rustix::event::epoll;
use tokio::sync::{mpsc, oneshot};
use wire::{Body, Frame, PeerId};

use super::messages::{ChannelId, Credit, TrunkMessage};
use super::streams::{self, NewLink, Streams};
use super::{EndKey, IncomingRequest, Relays};
use crate::account::Account;

/// A channel of one of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    peer: PeerId,
    channel: ChannelId,
}

/// A request for a channel to another gateway.
pub(super) struct Call {
    pub gateway: SocketAddr,
    pub request: Vec<u8>,
    /// True if a link is to be opened over UDP if there is none.
    pub opens: bool,
    pub answer: oneshot::Sender<CallOutcome>,
}

/// Result of a call.
pub(super) enum CallOutcome {
    /// The other gateway has replied over a path with this round trip.
    Reply { key: Key, reply: Vec<u8>, round_trip: Duration },
    /// There is no link, and none was opened.
    NoLink,
    /// The link was lost, or the channel closed.
    Lost,
}

/// All links.
pub(super) struct Links {
    transports: Transports,
    table: LinkTable,
}

/// Transports of the links.
struct Transports {
    /// None if other gateways are not called over UDP.
    rail: Option<QuicRail>,
    streams: Streams,
}

/// State of the links and their channels.
struct LinkTable {
    peers: HashMap<PeerId, Peer>,
    /// Link to each gateway.
    gateways: HashMap<SocketAddr, PeerId>,
    /// Gateways not reached over UDP, and when they may be tried again.
    udp_failed: HashMap<SocketAddr, Instant>,
    /// Gateways whose link was lost and not opened again.
    lost: HashSet<SocketAddr>,
    /// Number of links that this side has tried to open.
    called: u32,
    /// Work to do once the rail has reported all events.
    pending: PendingWork,
    incoming: mpsc::Sender<IncomingRequest>,
    account: Arc<Account>,
}

#[derive(Default)]
struct PendingWork {
    /// Links that have opened.
    new: Vec<PeerId>,
    /// Links with control messages to send.
    with_control: Vec<PeerId>,
    /// Links to be closed.
    dead: Vec<PeerId>,
    requests: Vec<(Key, Vec<u8>)>,
    /// Ends of relays that have received bytes, that may send again, or that have broken off.
    received: Vec<EndKey>,
    writable: Vec<EndKey>,
    broken: Vec<(EndKey, io::Error)>,
}

struct Peer {
    address: Option<SocketAddr>,
    is_open: bool,
    channels: HashMap<ChannelId, Channel>,
    /// Number of channels that this side has opened.
    opened: u32,
    /// Control messages, sent before all others.
    control: VecDeque<Vec<u8>>,
    /// Channels that send more once there is room.
    waiting: VecDeque<ChannelId>,
    /// Calls that wait for the link.
    callers: Vec<Call>,
    cost: Option<Cost>,
}

struct Channel {
    credit: Credit,
    /// Bytes received before there was a relay.
    early: VecDeque<u8>,
    has_ended: bool,
    is_waiting: bool,
    /// End of a relay that the channel is.
    end: Option<EndKey>,
    /// Receiver of the reply.
    answer: Option<oneshot::Sender<CallOutcome>>,
}

impl Links {
    pub fn new(
        rail: Option<QuicRail>,
        streams: Streams,
        incoming: mpsc::Sender<IncomingRequest>,
        account: Arc<Account>,
    ) -> Self {
        let table = LinkTable {
            peers: HashMap::new(),
            gateways: HashMap::new(),
            udp_failed: HashMap::new(),
            lost: HashSet::new(),
            called: 0,
            pending: PendingWork::default(),
            incoming,
            account,
        };
        Self { transports: Transports { rail, streams }, table }
    }

    /// True if there are links over TCP, which need a periodic [`look`](Self::look).
    pub fn has_streams(&self) -> bool {
        !self.transports.streams.is_empty()
    }

    /// Returns the links over TCP.
    pub fn streams(&mut self) -> &mut Streams {
        &mut self.transports.streams
    }

    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.transports.rail.as_ref().map_or(Vec::new(), Rail::descriptors)
    }

    /// True if nothing is to be done before the descriptors become ready.
    pub fn prepare_sleep(&mut self) -> bool {
        self.transports.rail.as_mut().is_none_or(Rail::prepare_sleep)
    }

    pub fn finish_sleep(&mut self) {
        if let Some(rail) = &mut self.transports.rail {
            rail.finish_sleep();
        }
    }

    /// Handles the rail's events and hands relays their bytes.
    pub fn serve(&mut self, relays: &mut Relays) {
        let table = &mut self.table;
        if let Some(rail) = &mut self.transports.rail {
            rail.poll(&mut |event| table.handle(event, relays));
        }
        self.run_pending(relays);
    }

    /// Handles an epoll event of a link over TCP. False if the key is not a link's.
    pub fn serve_stream(
        &mut self,
        key: u64,
        flags: epoll::EventFlags,
        relays: &mut Relays,
        buffer: &mut [u8],
    ) -> bool {
        let Some(id) = streams::of_key(key) else { return false };
        let table = &mut self.table;
        self.transports.streams.serve(id, flags, buffer, &mut |event| table.handle(event, relays));
        self.run_pending(relays);
        true
    }

    /// Runs the periodic work of links. To be called every [`netpath::WanTcp::LOOK_EVERY`].
    pub fn look(&mut self, relays: &mut Relays) {
        let table = &mut self.table;
        self.transports.streams.look(&mut |event| table.handle(event, relays));
        self.run_pending(relays);
    }

    /// Adds a link over TCP to the gateway that listens at these addresses.
    pub fn add(&mut self, link: NewLink, from: SocketAddr, gateways: &[SocketAddr]) {
        let added = self.transports.streams.add(link);
        match added {
            Ok((id, cost)) => {
                let mut peer = Peer::new();
                (peer.address, peer.is_open, peer.cost) = (Some(from), true, Some(cost));
                self.table.peers.insert(id, peer);
                // Addresses of other hosts may be private ones that mean hosts of this side.
                let called = gateways.iter().filter(|one| one.ip() == from.ip());
                for gateway in called.take(ADDRESSES_MAX) {
                    self.table.note_link(*gateway, id);
                }
            }
            Err(error) => {
                drop(writeln!(io::stderr(), "canele-gateway: no link to {from}: {error}"))
            }
        }
    }

    /// Does the work that events have left.
    fn run_pending(&mut self, relays: &mut Relays) {
        self.table.run_pending(&mut self.transports);
        let PendingWork { received, writable, broken, .. } = &mut self.table.pending;
        let received = std::mem::take(received);
        let (writable, broken) = (std::mem::take(writable), std::mem::take(broken));
        for end in received {
            relays.forward(end, self);
        }
        for end in writable {
            relays.resume_channel(end, self);
        }
        for (end, error) in broken {
            relays.end(end.slot(), Err(error), self);
        }
        self.settle();
    }

    /// Sends control messages as far as there is room.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.table.pending.with_control) {
            self.table.settle(id, &mut self.transports);
        }
    }

    /// Opens a channel to another gateway.
    pub fn call(&mut self, call: Call) {
        self.table.call(call, &mut self.transports);
        self.settle();
    }

    /// Sends the reply to a request.
    pub fn reply(&mut self, key: Key, reply: &[u8]) {
        if self.table.channel(key).is_some() {
            self.table.queue_control(key, TrunkMessage::Reply(reply));
            self.settle();
        }
    }

    /// Attaches a relay to the channel. Returns the bytes received so far, and true if they are all. None if
    /// the channel is closed.
    pub fn attach(&mut self, key: Key, end: EndKey) -> Option<(VecDeque<u8>, bool)> {
        let channel = self.table.channel(key)?;
        channel.end = Some(end);
        Some((std::mem::take(&mut channel.early), channel.has_ended))
    }

    /// Sends as much as credit and link accept. The relay is resumed when there is room for more.
    pub fn send(&mut self, key: Key, bytes: &[u8]) -> usize {
        // Control messages go first. Without room for them, the rail reports when there is some.
        let is_settled = self.table.settle(key.peer, &mut self.transports);
        let Some(peer) = self.table.peers.get_mut(&key.peer) else { return 0 };
        let Some(channel) = peer.channels.get_mut(&key.channel) else { return 0 };
        let mut sent = 0;
        while sent < bytes.len() {
            let len = (bytes.len() - sent).min(channel.credit.room()).min(PIECE_MAX);
            let piece = &bytes[sent..][..len];
            if piece.is_empty() {
                // A grant resumes the relay.
                break;
            }
            let head = TrunkMessage::Data(piece).head(key.channel);
            if !is_settled || self.transports.post(key.peer, [&head, piece]) == Post::Full {
                if !std::mem::replace(&mut channel.is_waiting, true) {
                    if is_short([&head, piece]) {
                        peer.waiting.push_front(key.channel);
                    } else {
                        peer.waiting.push_back(key.channel);
                    }
                }
                break;
            }
            channel.credit.note_sent(piece.len());
            sent += piece.len();
        }
        self.transports.flush(key.peer);
        sent
    }

    /// Ends the data of a relay.
    pub fn end(&mut self, key: Key) {
        self.table.queue_control(key, TrunkMessage::End);
        self.settle();
    }

    /// Notes that the relay has forwarded bytes of the channel.
    pub fn note_consumed(&mut self, key: Key, len: usize) {
        self.table.note_consumed(key, len);
        self.settle();
    }

    /// Removes a channel. Tells the other side unless both directions have ended (`is_whole`).
    pub fn close(&mut self, key: Key, is_whole: bool) {
        let Some(peer) = self.table.peers.get_mut(&key.peer) else { return };
        if peer.channels.remove(&key.channel).is_some() && !is_whole {
            self.table.queue_control(key, TrunkMessage::Break);
            self.settle();
        }
    }

    /// Returns the costs of the links to gateways. If both sides opened one at once, each was measured beside
    /// the other, so the faster one counts.
    pub fn costs(&self, gateways: &[SocketAddr]) -> Vec<PathCost> {
        let LinkTable { peers, gateways: called, lost, .. } = &self.table;
        let is_open = |gateway: &SocketAddr| peers.get(called.get(gateway)?)?.cost;
        let costs_at = |gateway: SocketAddr| {
            let is_at_host = move |peer: &&Peer| {
                peer.is_open && peer.address.is_some_and(|address| address.ip() == gateway.ip())
            };
            peers.values().filter(is_at_host).filter_map(|peer| peer.cost)
        };
        let path_cost = |gateway: &SocketAddr| match is_open(gateway) {
            Some(cost) => {
                let fastest = costs_at(*gateway).max_by_key(Cost::shown_bytes_per_s);
                PathCost::of(&fastest.unwrap_or(cost))
            }
            None if lost.contains(gateway) => PathCost::Closed,
            None => PathCost::Unknown,
        };
        gateways.iter().map(path_cost).collect()
    }

    /// Returns a line for each link.
    pub fn account(&self) -> String {
        let mut text = String::new();
        for (id, peer) in self.table.peers.iter().filter(|(_, peer)| peer.is_open) {
            let (Some(address), Some(cost)) = (peer.address, peer.cost) else { continue };
            let round_trip = Duration::from_nanos(2 * cost.latency_ns());
            let protocol = if Streams::has(*id) { "TCP" } else { "UDP" };
            let rate = match cost.shown_bytes_per_s() {
                Some(bytes_per_s) => format!("{} Mb/s", bytes_per_s * 8 / 1_000_000),
                None => "not measured".into(),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "gateway {address}: over {protocol}, round trip {round_trip:.1?}, {rate}, {} connections",
                peer.channels.len()
            );
        }
        text
    }
}

impl LinkTable {
    fn handle(&mut self, event: Event<'_>, relays: &mut Relays) {
        match event {
            Event::Up { peer, .. } => self.handle_up(peer),
            Event::Frame { peer, bytes } => {
                let message = TrunkMessage::parse(bytes);
                if message
                    .and_then(|(channel, message)| {
                        self.handle_message(Key { peer, channel }, message, relays)
                    })
                    .is_none()
                {
                    self.report_invalid(peer);
                    self.pending.dead.push(peer);
                }
            }
            Event::Room { peer: id } => {
                self.pending.with_control.push(id);
                let Some(peer) = self.peers.get_mut(&id) else { return };
                for channel in std::mem::take(&mut peer.waiting) {
                    let Some(channel) = peer.channels.get_mut(&channel) else { continue };
                    channel.is_waiting = false;
                    self.pending.writable.extend(channel.end);
                }
            }
            Event::Cost { peer, cost } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.cost = Some(cost);
                }
            }
            Event::Refused { from, reason } => self.account.refuse(from, reason),
            Event::Hampered { reason } => drop(writeln!(io::stderr(), "canele-gateway: {reason}")),
            Event::Down { peer, fault } => {
                if let Fault::Misbehaved(_) = fault {
                    self.report_invalid(peer);
                }
                self.drop_peer(peer, Instant::now());
            }
            // The rail copies what it sends, and reports whole frames only.
            Event::Sent { .. } | Event::Begun { .. } | Event::Rest { .. } => {}
        }
    }

    /// Counts a peer's invalid message.
    fn report_invalid(&self, id: PeerId) {
        if let Some(from) = self.peers.get(&id).and_then(|peer| peer.address) {
            self.account.refuse(from, Refusal::Protocol);
        }
    }

    /// Uses this link for calls to the gateway.
    fn note_link(&mut self, gateway: SocketAddr, id: PeerId) {
        self.lost.remove(&gateway);
        self.gateways.insert(gateway, id);
    }

    fn handle_up(&mut self, id: PeerId) {
        let peer = self.peers.entry(id).or_insert_with(Peer::new);
        peer.is_open = true;
        self.pending.new.push(id);
        for call in std::mem::take(&mut peer.callers) {
            self.open(id, call);
        }
    }

    /// Handles a message. None if it breaks the protocol.
    fn handle_message(
        &mut self,
        key: Key,
        message: TrunkMessage<'_>,
        relays: &mut Relays,
    ) -> Option<()> {
        let peer = self.peers.get_mut(&key.peer)?;
        if let TrunkMessage::Open(request) = message {
            let opened_by_peer = peer.channels.keys().filter(|channel| !channel.is_own()).count();
            if key.channel.is_own() || peer.channels.contains_key(&key.channel) {
                return None;
            }
            if opened_by_peer >= CHANNELS_MAX {
                self.queue_control(key, TrunkMessage::Break);
                return Some(());
            }
            peer.channels.insert(key.channel, Channel::new(None));
            self.pending.requests.push((key, request.to_vec()));
            return Some(());
        }
        // The message may have crossed this side's close.
        let Some(channel) = peer.channels.get_mut(&key.channel) else { return Some(()) };
        match message {
            TrunkMessage::Open(_) => {}
            TrunkMessage::Reply(reply) => {
                let round_trip = peer.cost.map_or(0, |cost| 2 * cost.latency_ns());
                let round_trip = Duration::from_nanos(round_trip);
                let reply = CallOutcome::Reply { key, reply: reply.to_vec(), round_trip };
                if channel.answer.take()?.send(reply).is_err() {
                    // The caller has given up.
                    peer.channels.remove(&key.channel);
                    self.queue_control(key, TrunkMessage::Break);
                }
            }
            TrunkMessage::Data(bytes) => {
                let is_granted = channel.credit.note_received(bytes.len()) && !channel.has_ended;
                if !is_granted {
                    return None;
                }
                let Some(end) = channel.end else {
                    channel.early.extend(bytes);
                    return Some(());
                };
                relays.receive(end, bytes);
                self.pending.note_received(end);
            }
            TrunkMessage::Grant(bytes) => {
                if !channel.credit.note_grant(bytes) {
                    return None;
                }
                self.pending.writable.extend(channel.end);
            }
            TrunkMessage::End => {
                channel.has_ended = true;
                if let Some(end) = channel.end {
                    relays.receive_end(end);
                    self.pending.note_received(end);
                }
            }
            TrunkMessage::Break => {
                let channel = peer.channels.remove(&key.channel)?;
                self.pending.broken.extend(channel.break_off());
            }
        }
        Some(())
    }

    fn run_pending(&mut self, transports: &mut Transports) {
        for id in std::mem::take(&mut self.pending.new) {
            let Some(address) = transports.rail.as_ref().and_then(|rail| rail.address_of(id))
            else {
                continue;
            };
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.address = Some(address);
            // A gateway has one link from an address, so an older link from there is dead.
            let is_older = |other: &PeerId, peer: &Peer| {
                *other != id && is_caller(*other) && is_caller(id) && peer.address == Some(address)
            };
            let older = self.peers.iter().filter(|(other, peer)| is_older(other, peer));
            self.pending.dead.extend(older.map(|(other, _)| *other));
            self.note_link(address, id);
        }
        for id in std::mem::take(&mut self.pending.dead) {
            transports.disconnect(id);
            self.drop_peer(id, Instant::now());
        }
        for (key, request) in std::mem::take(&mut self.pending.requests) {
            let from = self.peers.get(&key.peer).and_then(|peer| peer.address);
            let request = from.map(|from| IncomingRequest { key, from, request });
            let is_heard = request.is_some_and(|request| self.incoming.try_send(request).is_ok());
            if !is_heard && self.channel(key).is_some() {
                self.queue_control(key, TrunkMessage::Break);
            }
        }
    }

    fn call(&mut self, call: Call, transports: &mut Transports) {
        let now = Instant::now();
        self.udp_failed.retain(|_, until| *until > now);
        if let Some(id) = self.gateways.get(&call.gateway).copied()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            if peer.is_open {
                self.open(id, call);
            } else {
                peer.callers.push(call);
            }
            return;
        }
        let Some(rail) = transports.rail.as_mut().filter(|_| call.opens) else {
            return call.refuse();
        };
        if self.udp_failed.contains_key(&call.gateway) {
            return call.refuse();
        }
        let id = PeerId(self.called);
        self.called = (self.called + 1) & !NUMBERS;
        let mut peer = Peer::new();
        peer.address = Some(call.gateway);
        self.gateways.insert(call.gateway, id);
        rail.call(id, call.gateway);
        peer.callers.push(call);
        self.peers.insert(id, peer);
    }

    fn open(&mut self, id: PeerId, call: Call) {
        let Some(peer) = self.peers.get_mut(&id) else { return call.refuse() };
        let channel = ChannelId::own(peer.opened);
        peer.opened = peer.opened.wrapping_add(1);
        peer.channels.insert(channel, Channel::new(Some(call.answer)));
        self.queue_control(Key { peer: id, channel }, TrunkMessage::Open(&call.request));
    }

    fn queue_control(&mut self, key: Key, message: TrunkMessage<'_>) {
        if let Some(peer) = self.peers.get_mut(&key.peer) {
            peer.control.push_back(message.head(key.channel));
            self.pending.with_control.push(key.peer);
        }
    }

    /// Sends the control messages of a link. True if there was room for all.
    fn settle(&mut self, id: PeerId, transports: &mut Transports) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else { return true };
        let mut is_sent = true;
        while let Some(head) = peer.control.pop_front_if(|_| is_sent) {
            is_sent = transports.post(id, [&head, &[]]) != Post::Full;
            if !is_sent {
                // The rail reports when there is room.
                peer.control.push_front(head);
            }
        }
        transports.flush(id);
        is_sent
    }

    fn note_consumed(&mut self, key: Key, len: usize) {
        let Some(channel) = self.channel(key) else { return };
        if let Some(grant) = channel.credit.note_consumed(len) {
            self.queue_control(key, TrunkMessage::Grant(grant));
        }
    }

    fn channel(&mut self, key: Key) -> Option<&mut Channel> {
        self.peers.get_mut(&key.peer)?.channels.get_mut(&key.channel)
    }

    /// Removes a link and breaks off the connections it relays.
    fn drop_peer(&mut self, id: PeerId, now: Instant) {
        let Some(peer) = self.peers.remove(&id) else { return };
        let called = self.gateways.extract_if(|_, other| *other == id).map(|(address, _)| address);
        if peer.is_open && self.lost.len() < FAILED_MAX {
            self.lost.extend(called);
        } else {
            called.for_each(drop);
        }
        for channel in peer.channels.into_values() {
            self.pending.broken.extend(channel.break_off());
        }
        if let Some(address) = peer.address.filter(|_| !peer.is_open)
            && self.udp_failed.len() < FAILED_MAX
        {
            self.udp_failed.insert(address, now + FAILED_FOR);
        }
        peer.callers.into_iter().for_each(Call::refuse);
    }
}

impl PendingWork {
    /// Notes that a relay has received bytes, forwarded together with those that follow.
    fn note_received(&mut self, end: EndKey) {
        if self.received.last() != Some(&end) {
            self.received.push(end);
        }
    }
}

impl Transports {
    /// Queues a message in two parts, sent when the link is [flushed](Self::flush).
    fn post(&mut self, id: PeerId, parts: [&[u8]; 2]) -> Post {
        match &mut self.rail {
            _ if Streams::has(id) => self.streams.post(id, parts),
            Some(rail) => rail.post(id, &frame(parts)),
            None => Post::Full,
        }
    }

    /// Sends the queued messages; the rail does so by itself.
    fn flush(&mut self, id: PeerId) {
        if Streams::has(id) {
            self.streams.flush(id);
        }
    }

    fn disconnect(&mut self, id: PeerId) {
        match &mut self.rail {
            _ if Streams::has(id) => self.streams.remove(id),
            Some(rail) => rail.disconnect(id),
            None => {}
        }
    }
}

impl Call {
    fn refuse(self) {
        // The caller may have given up.
        let _ = self.answer.send(CallOutcome::NoLink);
    }
}

impl Peer {
    fn new() -> Self {
        Self {
            address: None,
            is_open: false,
            channels: HashMap::new(),
            opened: 0,
            control: VecDeque::new(),
            waiting: VecDeque::new(),
            callers: Vec::new(),
            cost: None,
        }
    }
}

impl Channel {
    fn new(answer: Option<oneshot::Sender<CallOutcome>>) -> Self {
        Self {
            credit: Credit::new(),
            early: VecDeque::new(),
            has_ended: false,
            is_waiting: false,
            end: None,
            answer,
        }
    }

    /// Returns the end of a relay that breaks off with the channel.
    fn break_off(self) -> Option<(EndKey, io::Error)> {
        if let Some(answer) = self.answer {
            // The caller may have given up.
            let _ = answer.send(CallOutcome::Lost);
        }
        Some((self.end?, io::ErrorKind::ConnectionReset.into()))
    }
}

/// True if a message goes before long ones.
fn is_short(parts: [&[u8]; 2]) -> bool {
    parts.iter().map(|part| part.len()).sum::<usize>() <= SHORT_MAX
}

/// Returns a message as a frame of the rail, which sends short frames before those with a body.
fn frame(parts: [&[u8]; 2]) -> Frame {
    let [mut head, rest] = parts.map(<[u8]>::to_vec);
    if is_short(parts) {
        head.extend(rest);
        return Frame { head, body: None, token: None };
    }
    let region = memory::Region::from_box(rest.into());
    Frame { head, body: Some(Body { region }), token: None }
}

/// True if the other side has opened the link and chosen its identifier.
fn is_caller(id: PeerId) -> bool {
    id.0 & CALLER != 0
}

/// Bit of identifiers that gateways choose for themselves over UDP; identifiers that they give to called
/// gateways lack it.
pub(super) const CALLER: u32 = 1 << 31;
/// Bits that identifiers of called gateways lack.
const NUMBERS: u32 = 0b11 << 30;

/// Longest piece of a channel's data: others follow it, and the other gateway forwards it when it is whole
/// (0.13 ms at 1 Gb/s).
const PIECE_MAX: usize = 16 << 10;
/// Length up to which messages go before long ones.
const SHORT_MAX: usize = 8 << 10;
/// Maximum number of connections relayed for another gateway.
const CHANNELS_MAX: usize = 1024;
/// Pause after a failed attempt over UDP.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// Maximum number of gateways in either table of failures.
const FAILED_MAX: usize = 256;
/// Maximum number of listen addresses per gateway.
const ADDRESSES_MAX: usize = 16;
