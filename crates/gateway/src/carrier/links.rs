//! The links to other gateways, and their channels.
//!
//! A link is a connection over TCP ([`streams`](super::streams)), or one of the rail's that ranks have over UDP, with its
//! pace, its memory of the path and its ways to tell that the other end is lost. All that is carried to another gateway
//! shares it: who has little to say comes first, and those who have much take turns. What the link does not take now is
//! kept where it comes from.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::relay::PathCost;
use driver::{Event, Fault, Post, QuicRail, Rail, Refusal};
use rustix::event::epoll;
use tokio::sync::{mpsc, oneshot};
use wire::{Body, Cost, Frame, PeerId};

use super::streams::{self, Link, Streams};
use super::words::{ChannelId, Credit, Word};
use super::{Arrival, Loads};
use crate::account::Ledger;

/// A channel of one of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    peer: PeerId,
    channel: ChannelId,
}

/// A wish for a channel to another gateway.
pub(super) struct Call {
    pub gateway: SocketAddr,
    pub request: Vec<u8>,
    /// A link is opened over UDP where there is none.
    pub opens: bool,
    pub answer: oneshot::Sender<Answer>,
}

/// What became of a call.
pub(super) enum Answer {
    /// The other gateway has replied; how far it is.
    Reply { key: Key, reply: Vec<u8>, round_trip: Duration },
    /// There is no link, and none was opened.
    NoWay,
    /// The link was lost, or the channel broken off.
    Lost,
}

/// All links.
pub(super) struct Links {
    wires: Wires,
    book: Book,
}

/// Where words leave.
struct Wires {
    /// None where other gateways are not to be called over UDP.
    rail: Option<QuicRail>,
    streams: Streams,
}

/// What is known of the links.
struct Book {
    peers: HashMap<PeerId, Peer>,
    /// By which link a gateway is called.
    gateways: HashMap<SocketAddr, PeerId>,
    /// Gateways to which UDP did not lead; until when they are left alone.
    shunned: HashMap<SocketAddr, Instant>,
    /// Gateways to which a link was lost, and none leads yet.
    lost: HashSet<SocketAddr>,
    /// Links that this side has tried to open.
    called: u32,
    /// What there is to do when the rail has told all.
    errands: Errands,
    arrivals: mpsc::Sender<Arrival>,
    ledger: Arc<Ledger>,
}

#[derive(Default)]
struct Errands {
    /// Links that are open since.
    new: Vec<PeerId>,
    /// Links that owe words.
    owing: Vec<PeerId>,
    /// Links to be dropped.
    dead: Vec<PeerId>,
    requests: Vec<(Key, Vec<u8>)>,
    /// Places of loads that have been given something, that may say more, or that have broken off.
    given: Vec<usize>,
    stirred: Vec<usize>,
    broken: Vec<(usize, io::Error)>,
}

struct Peer {
    address: Option<SocketAddr>,
    is_open: bool,
    channels: HashMap<ChannelId, Channel>,
    /// Channels that this side has opened.
    opened: u32,
    /// Words that come before all others.
    owed: VecDeque<Vec<u8>>,
    /// Channels that have more to say when there is room.
    waiting: VecDeque<ChannelId>,
    /// Who waits for the link.
    callers: Vec<Call>,
    cost: Option<Cost>,
}

struct Channel {
    credit: Credit,
    /// Has come before there was a load.
    early: VecDeque<u8>,
    is_over: bool,
    is_waiting: bool,
    place: Option<usize>,
    /// Who waits for the reply.
    answer: Option<oneshot::Sender<Answer>>,
}

impl Links {
    pub fn new(
        rail: Option<QuicRail>,
        streams: Streams,
        arrivals: mpsc::Sender<Arrival>,
        ledger: Arc<Ledger>,
    ) -> Self {
        let book = Book {
            peers: HashMap::new(),
            gateways: HashMap::new(),
            shunned: HashMap::new(),
            lost: HashSet::new(),
            called: 0,
            errands: Errands::default(),
            arrivals,
            ledger,
        };
        Self { wires: Wires { rail, streams }, book }
    }

    /// Whether there are links that want to be [looked after](Self::look).
    pub fn are_cared_for(&self) -> bool {
        !self.wires.streams.is_empty()
    }

    /// The links over TCP.
    pub fn streams(&mut self) -> &mut Streams {
        &mut self.wires.streams
    }

    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.wires.rail.as_ref().map_or(Vec::new(), Rail::descriptors)
    }

    /// Whether nothing is to be done before the descriptors say so.
    pub fn prepare_sleep(&mut self) -> bool {
        self.wires.rail.as_mut().is_none_or(Rail::prepare_sleep)
    }

    pub fn finish_sleep(&mut self) {
        if let Some(rail) = &mut self.wires.rail {
            rail.finish_sleep();
        }
    }

    /// Does what the rail asks for, and shows loads what has come for them.
    pub fn serve(&mut self, loads: &mut Loads) {
        let book = &mut self.book;
        if let Some(rail) = &mut self.wires.rail {
            rail.poll(&mut |event| book.handle(event, loads));
        }
        self.run_errands(loads);
    }

    /// Does what a link over TCP is ready for; whether the event is about one.
    pub fn serve_stream(
        &mut self,
        key: u64,
        flags: epoll::EventFlags,
        loads: &mut Loads,
        buffer: &mut [u8],
    ) -> bool {
        let Some(id) = streams::of_key(key) else { return false };
        let book = &mut self.book;
        self.wires.streams.serve(id, flags, buffer, &mut |event| book.handle(event, loads));
        self.run_errands(loads);
        true
    }

    /// To be called every [`driver::FarTcp::LOOK_EVERY`].
    pub fn look(&mut self, loads: &mut Loads) {
        let book = &mut self.book;
        self.wires.streams.look(&mut |event| book.handle(event, loads));
        self.run_errands(loads);
    }

    /// A connection over TCP is a link from now on, by which the other gateway is called at these addresses.
    pub fn add(&mut self, link: Link, from: SocketAddr, gateways: &[SocketAddr]) {
        let added = self.wires.streams.add(link);
        match added {
            Ok((id, cost)) => {
                let mut peer = Peer::new();
                (peer.address, peer.is_open, peer.cost) = (Some(from), true, Some(cost));
                self.book.peers.insert(id, peer);
                // Others may be those of hosts of this side's, too.
                let called = gateways.iter().filter(|one| one.ip() == from.ip());
                for gateway in called.take(ADDRESSES_MAX) {
                    self.book.note_way(*gateway, id);
                }
            }
            Err(error) => eprintln!("canele-gateway: no link to {from}: {error}"),
        }
    }

    /// Does what there is to do when all events were handled.
    fn run_errands(&mut self, loads: &mut Loads) {
        self.book.run_errands(&mut self.wires);
        let Errands { given, stirred, broken, .. } = &mut self.book.errands;
        let given = std::mem::take(given);
        let (stirred, broken) = (std::mem::take(stirred), std::mem::take(broken));
        for place in given {
            loads.pass_on(place, self);
        }
        for place in stirred {
            loads.stir(place, self);
        }
        for (place, error) in broken {
            loads.end(place, Err(error), self);
        }
        self.settle();
    }

    /// Says what is owed, as far as there is room.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.book.errands.owing) {
            self.book.settle(id, &mut self.wires);
        }
    }

    /// Wants a channel to another gateway.
    pub fn call(&mut self, call: Call) {
        self.book.call(call, &mut self.wires);
        self.settle();
    }

    /// Replies to a request.
    pub fn reply(&mut self, key: Key, reply: &[u8]) {
        if self.book.channel(key).is_some() {
            self.book.owe(key, Word::Reply(reply));
            self.settle();
        }
    }

    /// A load takes the channel over: what has come for it already, and whether that is all. None if it has broken off.
    pub fn join(&mut self, key: Key, place: usize) -> Option<(VecDeque<u8>, bool)> {
        let channel = self.book.channel(key)?;
        channel.place = Some(place);
        Some((std::mem::take(&mut channel.early), channel.is_over))
    }

    /// Says as much as is taken at once; the load hears when there is room for more.
    pub fn say(&mut self, key: Key, bytes: &[u8]) -> usize {
        // What is owed comes before; where that finds no room, there is word when there is.
        let is_settled = self.book.settle(key.peer, &mut self.wires);
        let Some(peer) = self.book.peers.get_mut(&key.peer) else { return 0 };
        let Some(channel) = peer.channels.get_mut(&key.channel) else { return 0 };
        let mut said = 0;
        while said < bytes.len() {
            let len = (bytes.len() - said).min(channel.credit.room()).min(PIECE_MAX);
            let piece = &bytes[said..][..len];
            if piece.is_empty() {
                // The grant stirs the load.
                break;
            }
            let head = Word::Data(piece).head(key.channel);
            if !is_settled || self.wires.post(key.peer, [&head, piece]) == Post::Full {
                if !std::mem::replace(&mut channel.is_waiting, true) {
                    if is_short([&head, piece]) {
                        peer.waiting.push_front(key.channel);
                    } else {
                        peer.waiting.push_back(key.channel);
                    }
                }
                break;
            }
            channel.credit.note_said(piece.len());
            said += piece.len();
        }
        self.wires.flush(key.peer);
        said
    }

    /// A load has said all, and there is nothing more to come from it.
    pub fn end(&mut self, key: Key) {
        self.book.owe(key, Word::End);
        self.settle();
    }

    /// So much of what the channel has said was taken.
    pub fn note_taken(&mut self, key: Key, len: usize) {
        self.book.note_taken(key, len);
        self.settle();
    }

    /// Nobody uses the channel any more; `is_whole` if all was said, by both sides.
    pub fn leave(&mut self, key: Key, is_whole: bool) {
        let Some(peer) = self.book.peers.get_mut(&key.peer) else { return };
        if peer.channels.remove(&key.channel).is_some() && !is_whole {
            self.book.owe(key, Word::Break);
            self.settle();
        }
    }

    /// What the links to gateways cost. Where both sides have opened one at once, each has measured what the other left: the
    /// way carries what the faster one has shown.
    pub fn costs(&self, gateways: &[SocketAddr]) -> Vec<PathCost> {
        let Book { peers, gateways: called, lost, .. } = &self.book;
        let is_open = |gateway: &SocketAddr| peers.get(called.get(gateway)?)?.cost;
        let beside = |gateway: SocketAddr| {
            let is_there = move |peer: &&Peer| {
                peer.is_open && peer.address.is_some_and(|address| address.ip() == gateway.ip())
            };
            peers.values().filter(is_there).filter_map(|peer| peer.cost)
        };
        let path_cost = |gateway: &SocketAddr| match is_open(gateway) {
            Some(cost) => {
                let fastest = beside(*gateway).max_by_key(Cost::shown_bytes_per_s);
                PathCost::of(&fastest.unwrap_or(cost))
            }
            None if lost.contains(gateway) => PathCost::Closed,
            None => PathCost::Unknown,
        };
        gateways.iter().map(path_cost).collect()
    }

    /// A line for each link.
    pub fn account(&self) -> String {
        let mut text = String::new();
        for (id, peer) in self.book.peers.iter().filter(|(_, peer)| peer.is_open) {
            let (Some(address), Some(cost)) = (peer.address, peer.cost) else { continue };
            let round_trip = Duration::from_nanos(2 * cost.latency_ns());
            let way = if Streams::has(*id) { "TCP" } else { "UDP" };
            let rate = match cost.shown_bytes_per_s() {
                Some(bytes_per_s) => format!("{} Mb/s", bytes_per_s * 8 / 1_000_000),
                None => "not measured".into(),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "gateway {address}: over {way}, round trip {round_trip:.1?}, {rate}, {} connections",
                peer.channels.len()
            );
        }
        text
    }
}

impl Book {
    fn handle(&mut self, event: Event<'_>, loads: &mut Loads) {
        match event {
            Event::Up { peer, .. } => self.handle_up(peer),
            Event::Frame { peer, bytes } => {
                let heard = Word::parse(bytes);
                if heard
                    .and_then(|(channel, word)| self.hear(Key { peer, channel }, word, loads))
                    .is_none()
                {
                    self.tell_absurd(peer);
                    self.errands.dead.push(peer);
                }
            }
            Event::Room { peer: id } => {
                self.errands.owing.push(id);
                let Some(peer) = self.peers.get_mut(&id) else { return };
                for channel in std::mem::take(&mut peer.waiting) {
                    let Some(channel) = peer.channels.get_mut(&channel) else { continue };
                    channel.is_waiting = false;
                    self.errands.stirred.extend(channel.place);
                }
            }
            Event::Cost { peer, cost } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.cost = Some(cost);
                }
            }
            Event::Refused { from, reason } => self.ledger.refuse(from, reason),
            Event::Hampered { reason } => eprintln!("canele-gateway: {reason}"),
            Event::Down { peer, fault } => {
                if let Fault::Misbehaved(_) = fault {
                    self.tell_absurd(peer);
                }
                self.drop_peer(peer, Instant::now());
            }
            // The rail has copied what it was given, and shows frames whole to who does not take them otherwise.
            Event::Sent { .. } | Event::Begun { .. } | Event::Rest { .. } => {}
        }
    }

    /// The other end of a link has said what no gateway says.
    fn tell_absurd(&self, id: PeerId) {
        if let Some(from) = self.peers.get(&id).and_then(|peer| peer.address) {
            self.ledger.refuse(from, Refusal::Protocol);
        }
    }

    /// The gateway is called by this link from now on.
    fn note_way(&mut self, gateway: SocketAddr, id: PeerId) {
        self.lost.remove(&gateway);
        self.gateways.insert(gateway, id);
    }

    fn handle_up(&mut self, id: PeerId) {
        let peer = self.peers.entry(id).or_insert_with(Peer::new);
        peer.is_open = true;
        self.errands.new.push(id);
        for call in std::mem::take(&mut peer.callers) {
            self.open(id, call);
        }
    }

    /// Hears a word; none if no gateway says such.
    fn hear(&mut self, key: Key, word: Word<'_>, loads: &mut Loads) -> Option<()> {
        let peer = self.peers.get_mut(&key.peer)?;
        if let Word::Open(request) = word {
            let theirs = peer.channels.keys().filter(|channel| !channel.is_own()).count();
            if key.channel.is_own() || peer.channels.contains_key(&key.channel) {
                return None;
            }
            if theirs >= CHANNELS_MAX {
                self.owe(key, Word::Break);
                return Some(());
            }
            peer.channels.insert(key.channel, Channel::new(None));
            self.errands.requests.push((key, request.to_vec()));
            return Some(());
        }
        // A word about one that this side has left may be on its way.
        let Some(channel) = peer.channels.get_mut(&key.channel) else { return Some(()) };
        match word {
            Word::Open(_) => {}
            Word::Reply(reply) => {
                let round_trip = peer.cost.map_or(0, |cost| 2 * cost.latency_ns());
                let round_trip = Duration::from_nanos(round_trip);
                let reply = Answer::Reply { key, reply: reply.to_vec(), round_trip };
                if channel.answer.take()?.send(reply).is_err() {
                    // Who wanted it has given up.
                    peer.channels.remove(&key.channel);
                    self.owe(key, Word::Break);
                }
            }
            Word::Data(bytes) => {
                let is_granted = channel.credit.note_come(bytes.len()) && !channel.is_over;
                if !is_granted {
                    return None;
                }
                let Some(place) = channel.place else {
                    channel.early.extend(bytes);
                    return Some(());
                };
                loads.take(place, bytes);
                self.errands.note_given(place);
            }
            Word::Grant(bytes) => {
                if !channel.credit.note_grant(bytes) {
                    return None;
                }
                self.errands.stirred.extend(channel.place);
            }
            Word::End => {
                channel.is_over = true;
                if let Some(place) = channel.place {
                    loads.take_end(place);
                    self.errands.note_given(place);
                }
            }
            Word::Break => {
                let channel = peer.channels.remove(&key.channel)?;
                self.errands.broken.extend(channel.break_off());
            }
        }
        Some(())
    }

    fn run_errands(&mut self, wires: &mut Wires) {
        for id in std::mem::take(&mut self.errands.new) {
            let Some(address) = wires.rail.as_ref().and_then(|rail| rail.address_of(id)) else {
                continue;
            };
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.address = Some(address);
            // A gateway calls once from an address: another that has called from there has ended.
            let is_older = |other: &PeerId, peer: &Peer| {
                *other != id && is_caller(*other) && is_caller(id) && peer.address == Some(address)
            };
            let older = self.peers.iter().filter(|(other, peer)| is_older(other, peer));
            self.errands.dead.extend(older.map(|(other, _)| *other));
            self.note_way(address, id);
        }
        for id in std::mem::take(&mut self.errands.dead) {
            wires.disconnect(id);
            self.drop_peer(id, Instant::now());
        }
        for (key, request) in std::mem::take(&mut self.errands.requests) {
            let from = self.peers.get(&key.peer).and_then(|peer| peer.address);
            let arrival = from.map(|from| Arrival { key, from, request });
            let is_heard = arrival.is_some_and(|arrival| self.arrivals.try_send(arrival).is_ok());
            if !is_heard && self.channel(key).is_some() {
                self.owe(key, Word::Break);
            }
        }
    }

    fn call(&mut self, call: Call, wires: &mut Wires) {
        let now = Instant::now();
        self.shunned.retain(|_, until| *until > now);
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
        let Some(rail) = wires.rail.as_mut().filter(|_| call.opens) else { return call.refuse() };
        if self.shunned.contains_key(&call.gateway) {
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
        self.owe(Key { peer: id, channel }, Word::Open(&call.request));
    }

    fn owe(&mut self, key: Key, word: Word<'_>) {
        if let Some(peer) = self.peers.get_mut(&key.peer) {
            peer.owed.push_back(word.head(key.channel));
            self.errands.owing.push(key.peer);
        }
    }

    /// Says what is owed to a link; whether there was room for all.
    fn settle(&mut self, id: PeerId, wires: &mut Wires) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else { return true };
        let mut is_said = true;
        while let Some(head) = peer.owed.pop_front_if(|_| is_said) {
            is_said = wires.post(id, [&head, &[]]) != Post::Full;
            if !is_said {
                // There is word when there is room.
                peer.owed.push_front(head);
            }
        }
        wires.flush(id);
        is_said
    }

    fn note_taken(&mut self, key: Key, len: usize) {
        let Some(channel) = self.channel(key) else { return };
        if let Some(grant) = channel.credit.note_taken(len) {
            self.owe(key, Word::Grant(grant));
        }
    }

    fn channel(&mut self, key: Key) -> Option<&mut Channel> {
        self.peers.get_mut(&key.peer)?.channels.get_mut(&key.channel)
    }

    /// The link is no more, and with it goes what it carries.
    fn drop_peer(&mut self, id: PeerId, now: Instant) {
        let Some(peer) = self.peers.remove(&id) else { return };
        let called = self.gateways.extract_if(|_, other| *other == id).map(|(address, _)| address);
        if peer.is_open && self.lost.len() < SHUNNED_MAX {
            self.lost.extend(called);
        } else {
            called.for_each(drop);
        }
        for channel in peer.channels.into_values() {
            self.errands.broken.extend(channel.break_off());
        }
        if let Some(address) = peer.address.filter(|_| !peer.is_open)
            && self.shunned.len() < SHUNNED_MAX
        {
            self.shunned.insert(address, now + REST);
        }
        peer.callers.into_iter().for_each(Call::refuse);
    }
}

impl Errands {
    /// A load has been given something by its channel: it is passed on at once with what follows.
    fn note_given(&mut self, place: usize) {
        if self.given.last() != Some(&place) {
            self.given.push(place);
        }
    }
}

impl Wires {
    /// Takes a word in two parts, which leaves when the link is [flushed](Self::flush).
    fn post(&mut self, id: PeerId, parts: [&[u8]; 2]) -> Post {
        match &mut self.rail {
            _ if Streams::has(id) => self.streams.post(id, parts),
            Some(rail) => rail.post(id, &frame(parts)),
            None => Post::Full,
        }
    }

    /// Has leave what was taken; the rail does so by itself.
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
        // Who has given up does not want to know.
        let _ = self.answer.send(Answer::NoWay);
    }
}

impl Peer {
    fn new() -> Self {
        Self {
            address: None,
            is_open: false,
            channels: HashMap::new(),
            opened: 0,
            owed: VecDeque::new(),
            waiting: VecDeque::new(),
            callers: Vec::new(),
            cost: None,
        }
    }
}

impl Channel {
    fn new(answer: Option<oneshot::Sender<Answer>>) -> Self {
        Self {
            credit: Credit::new(),
            early: VecDeque::new(),
            is_over: false,
            is_waiting: false,
            place: None,
            answer,
        }
    }

    /// The load that breaks off with it.
    fn break_off(self) -> Option<(usize, io::Error)> {
        if let Some(answer) = self.answer {
            // Who has given up does not want to know.
            let _ = answer.send(Answer::Lost);
        }
        Some((self.place?, io::ErrorKind::ConnectionReset.into()))
    }
}

/// Whether a word goes before those that are longer.
fn is_short(parts: [&[u8]; 2]) -> bool {
    parts.iter().map(|part| part.len()).sum::<usize>() <= SHORT_MAX
}

/// A word for the rail, which lets short frames before those with a body.
fn frame(parts: [&[u8]; 2]) -> Frame {
    let [mut head, rest] = parts.map(<[u8]>::to_vec);
    if is_short(parts) {
        head.extend(rest);
        return Frame { head, body: None, token: None };
    }
    let region = memory::Region::from_box(rest.into());
    Frame { head, body: Some(Body { region }), token: None }
}

/// Whether a link was opened by the other side, which has given itself its number.
fn is_caller(id: PeerId) -> bool {
    id.0 & CALLER != 0
}

/// In the numbers that gateways give themselves over UDP, and not in those that they give to whom they call.
pub(super) const CALLER: u32 = 1 << 31;
/// The numbers of those that are called have none of these.
const NUMBERS: u32 = 0b11 << 30;

/// Others have their turn between two pieces, and the other gateway passes a piece on when it is whole: 0.13 ms at 1 Gb/s.
const PIECE_MAX: usize = 16 << 10;
/// Shorter pieces are let before longer ones.
const SHORT_MAX: usize = 8 << 10;
/// Connections carried for another gateway at once.
const CHANNELS_MAX: usize = 1024;
/// How long a gateway is left alone over UDP where that did not lead to it.
const REST: Duration = Duration::from_secs(30);
/// Gateways of which that is known.
const SHUNNED_MAX: usize = 256;
/// Addresses by which a gateway may be called.
const ADDRESSES_MAX: usize = 16;
