//! Matching of messages with receives (MPI-5.0 §3.2.4, §3.5).
//!
//! Receives that name source and tag, and messages that wait for one, lie in buckets by what they
//! match on, so that the queues' length does not matter; receives with wildcards lie in one list.
//! Stamps tell which of two candidates is older.
//!
//! A receive that names its source names the source's gate too: a message that merely says it is
//! from that source, but came from another peer, does not match.

use std::collections::VecDeque;

use memory::Region;
use wire::GateId;
use wire::packet::{Header, Way};

use crate::op::OpId;

/// What a receive or probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The communicator's context.
    pub context: u64,
    /// The sender's rank in the communicator; `None` for any.
    pub source: Option<u32>,
    /// The tag; `None` for any.
    pub tag: Option<i32>,
}

/// A message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: u64,
}

/// Names a message that a matched probe took out of matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatchedId(pub(crate) u64);

/// A message without a receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub gate: GateId,
    pub header: Header,
    pub content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// The whole message, and the sender's operation if it wants to hear of the match.
    Eager { data: Box<[u8]>, acknowledge: Option<u32> },
    /// A request to send.
    Request { op: u32, bytes: u64, way: Way },
}

impl Unexpected {
    pub fn bytes(&self) -> u64 {
        match &self.content {
            Content::Eager { data, .. } => data.len() as u64,
            Content::Request { bytes, .. } => *bytes,
        }
    }

    pub fn message(&self) -> Message {
        Message { source: self.header.source, tag: self.header.tag, bytes: self.bytes() }
    }
}

#[derive(Debug)]
struct PostedEntry {
    stamp: u64,
    gate: Option<GateId>,
    selector: Selector,
    op: OpId,
}

#[derive(Debug)]
struct WaitingEntry {
    stamp: u64,
    slot: u32,
}

/// The receives without a message and the messages without a receive.
#[derive(Debug)]
pub(crate) struct Matching {
    stamp: u64,
    posted: Vec<VecDeque<PostedEntry>>,
    posted_wild: VecDeque<PostedEntry>,
    posted_exact: usize,
    waiting: Vec<VecDeque<WaitingEntry>>,
    /// Messages in order of arrival, some of them gone since; the stamp tells.
    arrivals: VecDeque<WaitingEntry>,
    messages: Vec<Option<(u64, Unexpected)>>,
    free: Vec<u32>,
    live: usize,
}

impl Matching {
    pub fn new() -> Self {
        Self {
            stamp: 0,
            posted: Vec::new(),
            posted_wild: VecDeque::new(),
            posted_exact: 0,
            waiting: Vec::new(),
            arrivals: VecDeque::new(),
            messages: Vec::new(),
            free: Vec::new(),
            live: 0,
        }
    }

    /// Adds a receive that no waiting message matches.
    #[inline]
    pub fn post(&mut self, gate: Option<GateId>, selector: Selector, op: OpId) {
        self.stamp += 1;
        let entry = PostedEntry { stamp: self.stamp, gate, selector, op };
        match (selector.source, selector.tag) {
            (Some(source), Some(tag)) => {
                if self.posted.is_empty() {
                    self.posted.resize_with(BUCKETS, VecDeque::new);
                }
                self.posted_exact += 1;
                self.posted[bucket(selector.context, source, tag)].push_back(entry);
            }
            (Some(_) | None, None) | (None, Some(_)) => self.posted_wild.push_back(entry),
        }
    }

    /// Takes the oldest receive that accepts a message of `gate`.
    #[inline]
    pub fn take_posted(&mut self, gate: GateId, header: &Header) -> Option<OpId> {
        let takes = |entry: &PostedEntry| {
            accepts(&entry.selector, header) && entry.gate.is_none_or(|named| named == gate)
        };
        let key = bucket(header.context, header.source, header.tag);
        let exact = match self.posted_exact {
            0 => None,
            _ => self.posted[key].iter().position(takes),
        };
        let wild = self.posted_wild.iter().position(takes);
        let exact_is_older = match (exact, wild) {
            (None, None) => return None,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(exact), Some(wild)) => {
                self.posted[key][exact].stamp < self.posted_wild[wild].stamp
            }
        };
        if exact_is_older {
            self.posted_exact -= 1;
            self.posted[key].remove(exact?).map(|entry| entry.op)
        } else {
            self.posted_wild.remove(wild?).map(|entry| entry.op)
        }
    }

    /// Removes a receive; false when it is not in the table.
    pub fn cancel(&mut self, op: OpId) -> bool {
        if let Some(at) = self.posted_wild.iter().position(|entry| entry.op == op) {
            self.posted_wild.remove(at);
            return true;
        }
        for queue in &mut self.posted {
            if let Some(at) = queue.iter().position(|entry| entry.op == op) {
                queue.remove(at);
                self.posted_exact -= 1;
                return true;
            }
        }
        false
    }

    /// Adds a message that no receive accepts.
    pub fn arrive(&mut self, message: Unexpected) {
        self.stamp += 1;
        let stamp = self.stamp;
        let Header { context, source, tag, .. } = message.header;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.messages.push(None);
            self.messages.len() as u32 - 1
        });
        self.messages[slot as usize] = Some((stamp, message));
        if self.waiting.is_empty() {
            self.waiting.resize_with(BUCKETS, VecDeque::new);
        }
        self.waiting[bucket(context, source, tag)].push_back(WaitingEntry { stamp, slot });
        self.arrivals.push_back(WaitingEntry { stamp, slot });
        self.live += 1;
    }

    /// The oldest message a selector accepts, of `gate` if there is one, left in place.
    pub fn peek(&self, gate: Option<GateId>, selector: &Selector) -> Option<&Unexpected> {
        let slot = self.search(gate, selector)?;
        self.messages[slot as usize].as_ref().map(|(_, message)| message)
    }

    /// Takes the oldest message a selector accepts, of `gate` if there is one.
    #[inline]
    pub fn take_waiting(
        &mut self,
        gate: Option<GateId>,
        selector: &Selector,
    ) -> Option<Unexpected> {
        if self.live == 0 {
            return None;
        }
        let slot = self.search(gate, selector)?;
        Some(self.remove(slot))
    }

    /// All waiting messages, in no order.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut Unexpected> {
        self.messages.iter_mut().flatten().map(|(_, message)| message)
    }

    /// Drops the requests of a gate that is gone; whole messages stay.
    pub fn drop_requests(&mut self, gate: GateId) {
        for slot in 0..self.messages.len() as u32 {
            if let Some((_, message)) = &self.messages[slot as usize]
                && message.gate == gate
                && matches!(message.content, Content::Request { .. })
            {
                self.remove(slot);
            }
        }
    }

    fn search(&self, gate: Option<GateId>, selector: &Selector) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        let matches = |entry: &&WaitingEntry| {
            self.messages[entry.slot as usize].as_ref().is_some_and(|(stamp, message)| {
                *stamp == entry.stamp
                    && accepts(selector, &message.header)
                    && gate.is_none_or(|named| named == message.gate)
            })
        };
        let entry = match (selector.source, selector.tag) {
            (Some(source), Some(tag)) => {
                self.waiting[bucket(selector.context, source, tag)].iter().find(matches)
            }
            (Some(_) | None, None) | (None, Some(_)) => self.arrivals.iter().find(matches),
        };
        entry.map(|entry| entry.slot)
    }

    fn remove(&mut self, slot: u32) -> Unexpected {
        let Some((stamp, message)) = self.messages[slot as usize].take() else {
            unreachable!("a slot found by search holds a message");
        };
        let Header { context, source, tag, .. } = message.header;
        let queue = &mut self.waiting[bucket(context, source, tag)];
        if let Some(at) = queue.iter().position(|entry| entry.stamp == stamp) {
            queue.remove(at);
        }
        self.free.push(slot);
        self.live -= 1;
        self.tidy_arrivals();
        message
    }

    /// Keeps the list of arrivals within twice the messages that are there.
    fn tidy_arrivals(&mut self) {
        let messages = &self.messages;
        let is_live = |entry: &WaitingEntry| {
            messages[entry.slot as usize].as_ref().is_some_and(|(stamp, _)| *stamp == entry.stamp)
        };
        while self.arrivals.front().is_some_and(|entry| !is_live(entry)) {
            self.arrivals.pop_front();
        }
        if self.arrivals.len() > 2 * self.live + 64 {
            self.arrivals.retain(is_live);
        }
    }
}

/// Messages taken by matched probes, until they are received.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    next: u64,
    messages: Vec<(u64, Unexpected)>,
}

impl Matched {
    pub fn insert(&mut self, message: Unexpected) -> MatchedId {
        self.next += 1;
        self.messages.push((self.next, message));
        MatchedId(self.next)
    }

    /// All of them, in no order.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut Unexpected> {
        self.messages.iter_mut().map(|(_, message)| message)
    }

    pub fn take(&mut self, id: MatchedId) -> Option<Unexpected> {
        let at = self.messages.iter().position(|(known, _)| *known == id.0)?;
        Some(self.messages.swap_remove(at).1)
    }
}

#[inline]
fn accepts(selector: &Selector, header: &Header) -> bool {
    selector.context == header.context
        && selector.source.is_none_or(|source| source == header.source)
        && selector.tag.is_none_or(|tag| tag == header.tag)
}

#[inline]
fn bucket(context: u64, source: u32, tag: i32) -> usize {
    let mixed = context
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(source) << 32 | u64::from(tag as u32))
        .wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> (64 - BUCKET_BITS)) as usize
}

/// The memory of a receive that a message of `bytes` goes to.
pub(crate) fn wanted(into: &Region, bytes: u64) -> u64 {
    bytes.min(into.len() as u64)
}

const BUCKET_BITS: u32 = 10;
const BUCKETS: usize = 1 << BUCKET_BITS;
