//! MPI's matching (MPI-5.0 §3.2.4, §3.5), written as simply as it can be.

use std::collections::{HashMap, VecDeque};

use engine::Selector;
use wire::PeerId;
use wire::packet::Header;

/// The receives and messages of one process, each in one list, oldest first.
#[derive(Debug, Default)]
pub struct Reference {
    posted: VecDeque<Posted>,
    waiting: VecDeque<Waiting>,
    arrived: HashMap<PeerId, u32>,
    /// How many have come of each peer and context.
    counts: HashMap<(PeerId, u64), u32>,
    early: HashMap<(PeerId, u32), (Header, Option<u64>)>,
    /// Bytes that came ahead, by their message's sequence.
    rts_data: HashMap<(PeerId, u32), u64>,
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
    /// The message's bytes, if it asks.
    asks: Option<u64>,
}

impl Reference {
    /// A receive is posted; the message it takes, if one waits.
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

    /// The oldest message a receive would take is taken.
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

    /// A message came; the pairs of receives and messages it makes, in order.
    pub fn arrive(
        &mut self,
        peer: PeerId,
        header: Header,
        asks: Option<u64>,
    ) -> Vec<(usize, Waiting)> {
        self.early.insert((peer, header.sequence), (header, asks));
        let mut pairs = Vec::new();
        let due = self.arrived.entry(peer).or_default();
        while let Some((header, asks)) = self.early.remove(&(peer, *due)) {
            let count = self.counts.entry((peer, header.context)).or_default();
            let message = Waiting { peer, header, number: *count, asks };
            *due += 1;
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

    /// Bytes of a message came ahead of its clear.
    pub fn arrive_rts_data(&mut self, peer: PeerId, sequence: u32, bytes: u64) {
        *self.rts_data.entry((peer, sequence)).or_default() += bytes;
    }

    /// Whether a receive was still without a message; it is no more.
    pub fn cancel(&mut self, receive: usize) -> bool {
        let before = self.posted.len();
        self.posted.retain(|posted| posted.receive != receive);
        self.posted.len() < before
    }

    /// A peer is gone: with it the receives that name it, and what it has not yet sent whole.
    pub fn fail(&mut self, peer: PeerId) {
        self.posted.retain(|posted| posted.peer != Some(peer));
        let Self { waiting, rts_data, .. } = self;
        waiting.retain(|one| {
            let here = || rts_data.get(&(peer, one.header.sequence)).copied().unwrap_or(0);
            one.peer != peer || one.asks.is_none_or(|bytes| here() == bytes)
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
