//! MPI's matching (MPI-5.0 §3.2.4, §3.5) in its simplest form.

use std::collections::{HashMap, VecDeque};

use engine::Selector;
use wire::PeerId;
use wire::packet::Header;

/// Receives and messages of one process, each in one list, oldest first.
#[derive(Debug, Default)]
pub struct Reference {
    posted: VecDeque<Posted>,
    waiting: VecDeque<Waiting>,
    arrived: HashMap<PeerId, u32>,
    /// Number of messages received for each peer and context.
    counts: HashMap<(PeerId, u64), u32>,
    early: HashMap<(PeerId, u32), EarlyPacket>,
    /// Messages without a receive whose senders have cancelled them, until the engine's decision is known.
    retracted: Vec<Waiting>,
    /// Bytes received before the CTS, by their message's sequence.
    rts_data: HashMap<(PeerId, u32), u64>,
}

/// A packet that is not in order yet.
#[derive(Debug)]
enum EarlyPacket {
    /// A message; of an RTS its length, and whether the message may be granted.
    Message(Header, Option<(u64, bool)>),
    /// A call; the arguments of one that retracts a message.
    Call(Option<[u64; 3]>),
}

#[derive(Debug)]
struct Posted {
    peer: Option<PeerId>,
    selector: Selector,
    receive: usize,
}

/// A message without a receive: `number` counts those of its peer and context.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub peer: PeerId,
    pub header: Header,
    pub number: u32,
    /// Of an RTS, the length of the message, and whether the message may be granted.
    asks: Option<(u64, bool)>,
}

impl Waiting {
    /// True if the receiver may have granted the message.
    pub fn may_be_granted(&self) -> bool {
        self.asks.is_some_and(|(_, may_be_granted)| may_be_granted)
    }
}

impl Reference {
    /// Posts a receive; returns the message it takes, if one waits.
    pub fn post(
        &mut self,
        peer: Option<PeerId>,
        selector: Selector,
        receive: usize,
    ) -> Option<Waiting> {
        let found = self.take(peer, &selector);
        if found.is_none() {
            self.posted.push_back(Posted { peer, selector, receive });
        }
        found
    }

    /// Takes the oldest message that a receive would match.
    pub fn take(&mut self, peer: Option<PeerId>, selector: &Selector) -> Option<Waiting> {
        let is_match = |waiting: &Waiting| {
            peer.is_none_or(|peer| peer == waiting.peer) && accepts(selector, &waiting.header)
        };
        let at = self.waiting.iter().position(is_match)?;
        self.waiting.remove(at)
    }

    pub fn peek(&self, selector: &Selector) -> Option<&Waiting> {
        self.waiting.iter().find(|waiting| accepts(selector, &waiting.header))
    }

    /// Handles a message; returns the resulting pairs of receives and messages in order.
    pub fn arrive(
        &mut self,
        peer: PeerId,
        header: Header,
        asks: Option<(u64, bool)>,
    ) -> Vec<(usize, Waiting)> {
        self.early.insert((peer, header.sequence), EarlyPacket::Message(header, asks));
        self.advance(peer)
    }

    /// Handles a call; `retracted` are the arguments of one that retracts a message.
    pub fn pass(
        &mut self,
        peer: PeerId,
        sequence: u32,
        retracted: Option<[u64; 3]>,
    ) -> Vec<(usize, Waiting)> {
        self.early.insert((peer, sequence), EarlyPacket::Call(retracted));
        self.advance(peer)
    }

    /// Takes the list of messages without a receive whose senders have cancelled them.
    pub fn retracted(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.retracted)
    }

    /// Drops a message.
    pub fn drop_waiting(&mut self, dropped: &Waiting) {
        let is_it = |one: &Waiting| one.peer == dropped.peer && one.header == dropped.header;
        self.waiting.retain(|one| !is_it(one));
    }

    fn advance(&mut self, peer: PeerId) -> Vec<(usize, Waiting)> {
        let mut pairs = Vec::new();
        let due = self.arrived.entry(peer).or_default();
        while let Some(next) = self.early.remove(&(peer, *due)) {
            *due += 1;
            let (header, asks) = match next {
                EarlyPacket::Message(header, asks) => (header, asks),
                EarlyPacket::Call(retracted) => {
                    let is_it = |one: &&Waiting| {
                        let sequence = retracted.map(|[_, _, place]| (place >> 32) as u32);
                        one.peer == peer && Some(one.header.sequence) == sequence
                    };
                    self.retracted.extend(self.waiting.iter().find(is_it));
                    continue;
                }
            };
            let count = self.counts.entry((peer, header.context)).or_default();
            let message = Waiting { peer, header, number: *count, asks };
            *count += 1;
            let is_match = |posted: &Posted| {
                posted.peer.is_none_or(|named| named == peer) && accepts(&posted.selector, &header)
            };
            let at = self.posted.iter().position(is_match);
            match at.and_then(|at| self.posted.remove(at)) {
                Some(posted) => pairs.push((posted.receive, message)),
                None => self.waiting.push_back(message),
            }
        }
        pairs
    }

    /// Handles data before the CTS.
    pub fn arrive_rts_data(&mut self, peer: PeerId, sequence: u32, bytes: u64) {
        *self.rts_data.entry((peer, sequence)).or_default() += bytes;
    }

    /// Removes a receive; true if it had no message.
    pub fn cancel(&mut self, receive: usize) -> bool {
        let before = self.posted.len();
        self.posted.retain(|posted| posted.receive != receive);
        self.posted.len() < before
    }

    /// Removes a failed peer: the receives that name it, and its incomplete messages.
    pub fn fail(&mut self, peer: PeerId) {
        self.posted.retain(|posted| posted.peer != Some(peer));
        let Self { waiting, rts_data, .. } = self;
        waiting.retain(|one| {
            let here = || rts_data.get(&(peer, one.header.sequence)).copied().unwrap_or(0);
            one.peer != peer || one.asks.is_none_or(|(bytes, _)| here() == bytes)
        });
        rts_data.retain(|(from, _), _| *from != peer);
        self.early.retain(|(from, _), _| *from != peer);
    }
}

fn accepts(selector: &Selector, header: &Header) -> bool {
    selector.context == header.context
        && selector.source.is_none_or(|source| source == header.source)
        && selector.tag.is_none_or(|tag| tag == header.tag)
}
