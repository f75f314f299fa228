//! Addressed traffic of the processes of a network, and its reference model.
//!
//! Each process exposes two pieces of memory: one that only gets read, and one of which each put has bytes of its own. A
//! completed flush is checked against all earlier puts and calls of its process to that peer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use engine::{
    CallError, Engine, ExposedMemory, Handler, HandlerId, IncomingCall, Outcome, PutTo, Replies,
    ReplyTo, Short, Wanted,
};
use memory::Region;
use testing::Random;
use wire::{Frame, RemoteKey};

use super::content::filled;
use super::{Content, Handle, SimulatedNetwork, TrackedKind, UNTOUCHED, peer_id};

/// Handler that replies with its payload, each byte inverted.
pub const INVERT: HandlerId = HandlerId(3);
/// Handler that answers when the next call of any peer arrives, and at once if its first argument is 0.
pub const LATER: HandlerId = HandlerId(5);

/// Memory and calls of one process.
#[derive(Debug)]
pub struct Exposed {
    pub read_only: (RemoteKey, Region),
    pub written: (RemoteKey, Region),
    /// Numbers of the calls that were handled, by caller.
    calls: Arc<Mutex<BTreeMap<u32, Vec<u64>>>>,
    /// Puts to it by sender, each with its message number, and numbers of calls submitted, by sender.
    puts: BTreeMap<usize, Vec<(usize, usize, usize)>>,
    submitted: BTreeMap<usize, u64>,
    room: usize,
}

/// An operation of addressed traffic.
#[derive(Clone, Copy, Debug)]
pub enum AddressedKind {
    Put,
    /// A get of bytes at this offset.
    Get {
        from: usize,
        offset: usize,
    },
    /// A call; with a reply, the number of the payload's content.
    Call {
        to: usize,
        reply: Option<usize>,
    },
    /// A flush after so many puts and calls to a peer.
    Flush {
        to: usize,
        puts: usize,
        calls: u64,
    },
}

#[derive(Debug)]
struct Invert(Arc<Mutex<BTreeMap<u32, Vec<u64>>>>);

impl Handler for Invert {
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        _memory: &ExposedMemory,
        replies: &mut Replies,
    ) -> Result<(), CallError> {
        self.0.lock().unwrap().entry(call.peer.0).or_default().push(call.arguments[1]);
        let inverted: Vec<u8> = call.payload.iter().map(|byte| !byte).collect();
        replies.send(call.reply_to, &inverted);
        Ok(())
    }
}

#[derive(Debug)]
struct Later {
    calls: Arc<Mutex<BTreeMap<u32, Vec<u64>>>>,
    waiting: Vec<(ReplyTo, Vec<u8>)>,
}

impl Handler for Later {
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        _memory: &ExposedMemory,
        replies: &mut Replies,
    ) -> Result<(), CallError> {
        self.calls.lock().unwrap().entry(call.peer.0).or_default().push(call.arguments[1]);
        let inverted: Vec<u8> = call.payload.iter().map(|byte| !byte).collect();
        for (to, bytes) in self.waiting.drain(..) {
            replies.send(to, &bytes);
        }
        match call.arguments[0] {
            0 => replies.send(call.reply_to, &inverted),
            _ => self.waiting.push((call.reply_to, inverted)),
        }
        Ok(())
    }
}

impl SimulatedNetwork {
    /// Exposes memory of all processes, and sets their handlers.
    pub fn expose(&mut self) {
        for rank in 0..self.processes.len() {
            let engine = &mut self.processes[rank].engine;
            // Keys of different processes differ.
            for _ in 0..rank {
                engine.expose(Region::empty());
            }
            // Windows are in memory of the host.
            let read_only = Content::Dense.bytes_of(rank, READ_ONLY_LEN);
            let read_only = Region::from_box(read_only.into());
            let written = Region::from_box(vec![UNTOUCHED; WRITTEN_LEN].into());
            let read_only = (engine.expose(read_only.clone()), read_only);
            let written = (engine.expose(written.clone()), written);
            let calls = Arc::default();
            engine.set_handler(INVERT, Box::new(Invert(Arc::clone(&calls))));
            let later = Later { calls: Arc::clone(&calls), waiting: Vec::new() };
            engine.set_handler(LATER, Box::new(later));
            let (puts, submitted) = (BTreeMap::new(), BTreeMap::new());
            let exposed = Exposed { read_only, written, calls, puts, submitted, room: 0 };
            self.processes[rank].exposed = Some(exposed);
        }
    }

    /// Exposes memory of a process whose pieces come and go.
    pub fn expose_pieces(&mut self, rank: usize) -> RemoteKey {
        self.engine(rank).expose_pieces()
    }

    /// Engine of a process, for what the model does not follow. It is looked at soon.
    pub fn engine(&mut self, rank: usize) -> &mut Engine {
        self.processes[rank].events_seen = u64::MAX;
        &mut self.processes[rank].engine
    }

    fn exposed(&mut self, rank: usize) -> &mut Exposed {
        self.processes[rank].exposed.as_mut().expect("memory is exposed")
    }

    /// Does a random operation of addressed traffic.
    pub fn act_addressed(&mut self, random: &mut Random) {
        let (rank, to) = (random.below(self.processes.len()), random.below(self.processes.len()));
        let len = random.pick(&[0, 1, 8, 8, 100, 1000, 2000, 2049, 9000]);
        match random.below(8) {
            0..=2 => drop(self.put(rank, to, len)),
            3 => {
                let offset = random.below(READ_ONLY_LEN - len);
                self.get(rank, to, offset, len);
            }
            4 if random.one_in(2) => self.call_without_answer(rank, to, len.min(2000)),
            4 => drop(self.call(rank, to, INVERT, 0, len.min(2000), false)),
            5 => drop(self.call(rank, to, INVERT, 0, len.min(2000), true)),
            6 => drop(self.call(rank, to, LATER, random.next() % 2, len.min(2000), true)),
            _ => drop(self.flush_addressed(rank, to)),
        }
    }

    /// Puts new content into bytes that no other put writes.
    pub fn put(&mut self, rank: usize, to: usize, len: usize) -> Option<Handle> {
        let exposed = self.exposed(to);
        let (key, offset, content) = (exposed.written.0, exposed.room, exposed.room);
        exposed.room += len;
        assert!(exposed.room <= WRITTEN_LEN, "there is room for all puts of a test");
        exposed.puts.entry(rank).or_default().push((offset, content, len));
        let data = Content::Dense.of(content, len);
        let put = PutTo { key, offset: offset as u64 };
        if self.random.one_in(2) && self.access_short(rank, to, Short::Put(put), &data) {
            return None;
        }
        let op = self.processes[rank].engine.submit_put(peer_id(to), put, &data);
        let kind = TrackedKind::Addressed(AddressedKind::Put);
        Some(self.track_addressed(rank, op, data, kind))
    }

    /// Sends a short packet at once, or coalesces it, if either is possible.
    fn access_short(&mut self, rank: usize, to: usize, short: Short, data: &Region) -> bool {
        let mut frame = Frame::default();
        let engine = &mut self.processes[rank].engine;
        if let Some(rail) = engine.submit_short_access(peer_id(to), short, data, &mut frame) {
            let posted = self.post(rank, to, rail, &frame);
            self.processes[rank].engine.handle_posted(peer_id(to), rail, &mut frame, posted);
            return true;
        }
        let engine = &mut self.processes[rank].engine;
        let is_coalesced = engine.submit_coalesced(peer_id(to), short, data);
        if is_coalesced {
            self.schedule(1000, super::Event::Release(rank, to));
        }
        is_coalesced
    }

    /// Gets bytes of a peer's memory.
    pub fn get(&mut self, rank: usize, from: usize, offset: usize, len: usize) -> Handle {
        let key = self.exposed(from).read_only.0;
        let into = filled(len, UNTOUCHED);
        let place = PutTo { key, offset: offset as u64 };
        let op = self.processes[rank].engine.submit_get(peer_id(from), place, &into);
        let kind = TrackedKind::Addressed(AddressedKind::Get { from, offset });
        self.track_addressed(rank, op, into, kind)
    }

    /// Calls a handler of a peer, which replies or not.
    pub fn call(
        &mut self,
        rank: usize,
        to: usize,
        handler: HandlerId,
        argument: u64,
        len: usize,
        replies: bool,
    ) -> Handle {
        let number = self.exposed(to).submitted.entry(rank).or_default();
        *number += 1;
        let arguments = [argument, *number, u64::MAX];
        let content = self.random.below(1000);
        let payload = Content::Dense.of(content, len);
        let into = filled(len, UNTOUCHED);
        let wanted = if replies { Wanted::Reply(&into) } else { Wanted::Done };
        let engine = &mut self.processes[rank].engine;
        let op = engine.submit_call(peer_id(to), handler, arguments, &payload, wanted);
        let reply = (replies && len > 0).then_some(content);
        let kind = TrackedKind::Addressed(AddressedKind::Call { to, reply });
        let region = if reply.is_some() { into } else { payload };
        self.track_addressed(rank, op, region, kind)
    }

    /// Calls a handler of a peer, which does not answer.
    fn call_without_answer(&mut self, rank: usize, to: usize, len: usize) {
        let number = self.exposed(to).submitted.entry(rank).or_default();
        *number += 1;
        let arguments = [0, *number, u64::MAX];
        let content = self.random.below(1000);
        let payload = Content::Dense.of(content, len);
        if !self.access_short(rank, to, Short::Call(INVERT, arguments), &payload) {
            let engine = &mut self.processes[rank].engine;
            let op = engine.submit_call(peer_id(to), INVERT, arguments, &payload, Wanted::Nothing);
            engine.release(op);
        }
        self.processes[rank].events_seen = u64::MAX;
        self.settle(rank);
    }

    pub fn flush_addressed(&mut self, rank: usize, to: usize) -> Handle {
        let exposed = self.exposed(to);
        let puts = exposed.puts.get(&rank).map_or(0, Vec::len);
        let calls = exposed.submitted.get(&rank).copied().unwrap_or(0);
        let op = self.processes[rank].engine.submit_flush(peer_id(to));
        let kind = TrackedKind::Addressed(AddressedKind::Flush { to, puts, calls });
        self.track_addressed(rank, op, Region::empty(), kind)
    }

    fn track_addressed(
        &mut self,
        rank: usize,
        op: engine::OpId,
        region: Region,
        kind: TrackedKind,
    ) -> Handle {
        let handle = self.processes[rank].track(rank, op, region, kind);
        self.processes[rank].events_seen = u64::MAX;
        self.settle(rank);
        handle
    }

    /// Calls that no later call has answered are answered now.
    pub fn answer_all(&mut self) {
        for to in 0..self.processes.len() {
            self.call((to + 1) % self.processes.len(), to, LATER, 0, 0, false);
        }
    }

    pub(super) fn check_addressed(
        &mut self,
        rank: usize,
        region: &Region,
        outcome: Outcome,
        kind: AddressedKind,
    ) {
        match kind {
            _ if outcome == Outcome::PeerFailed => {}
            AddressedKind::Put => super::content::fill(region, 0xdd),
            AddressedKind::Get { from, offset } => {
                let expected = self.exposed(from).read_only.1.slice(offset, region.len());
                assert_eq!(region.to_vec(), expected.to_vec(), "a get of rank {rank}");
            }
            AddressedKind::Call { reply: None, .. } => {}
            AddressedKind::Call { reply: Some(content), .. } => {
                let sent = Content::Dense.of(content, region.len()).to_vec();
                let expected: Vec<u8> = sent.iter().map(|byte| !byte).collect();
                assert_eq!(region.to_vec(), expected, "a reply to rank {rank}");
            }
            AddressedKind::Flush { to, puts, calls } => self.check_flushed(rank, to, puts, calls),
        }
    }

    fn check_flushed(&mut self, rank: usize, to: usize, puts: usize, calls: u64) {
        let exposed = self.exposed(to);
        let all = exposed.puts.get(&rank).map_or(&[][..], Vec::as_slice);
        for &(offset, content, len) in &all[..puts] {
            let memory = exposed.written.1.slice(offset, len);
            assert!(Content::Dense.is_in(content, &memory, len), "a put of {rank} to {to}");
        }
        let calls_seen = exposed.calls.lock().unwrap();
        let seen = calls_seen.get(&(rank as u32)).map_or(&[][..], Vec::as_slice);
        assert!(seen.iter().copied().eq(1..=seen.len() as u64), "calls in order: {seen:?}");
        assert!(seen.len() as u64 >= calls, "{} calls of {rank} to {to} of {calls}", seen.len());
    }

    /// Checks at the end that each put was applied, and nothing else was written.
    pub fn check_memory(&mut self) {
        for rank in 0..self.processes.len() {
            let exposed = self.exposed(rank);
            let puts = exposed.puts.values().flatten();
            for &(offset, content, len) in puts {
                let memory = exposed.written.1.slice(offset, len);
                assert!(Content::Dense.is_in(content, &memory, len), "a put to {rank}");
            }
            let (rest, room) = (&exposed.written.1, exposed.room);
            assert!(super::content::is_filled(rest, room, UNTOUCHED), "written past the puts");
        }
    }
}

/// Bytes that gets read from, and room for all puts to a process.
const READ_ONLY_LEN: usize = 20_000;
const WRITTEN_LEN: usize = 1 << 20;
