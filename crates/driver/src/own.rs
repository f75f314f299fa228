//! The rail to oneself: messages of a rank to its own rank.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use memory::Region;
use wire::{Capabilities, Frame, GateId, RemoteRegion};

use crate::rail::{Event, Post, Rail, RailError};

/// A bounded queue of frames from this process to itself.
#[derive(Debug)]
pub struct OwnRail {
    rank: GateId,
    queue: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    opened: bool,
    up: bool,
    refused: bool,
}

impl OwnRail {
    /// The rail of process `rank`.
    pub fn new(rank: GateId) -> Self {
        let queue = VecDeque::with_capacity(DEPTH);
        Self { rank, queue, spare: Vec::new(), opened: false, up: false, refused: false }
    }
}

impl Rail for OwnRail {
    fn name(&self) -> &'static str {
        "self"
    }

    fn address(&self) -> Vec<u8> {
        self.rank.0.to_le_bytes().to_vec()
    }

    fn connect(&mut self, peer: GateId, address: &[u8]) -> Result<(), RailError> {
        if peer != self.rank || address != self.rank.0.to_le_bytes() {
            return Err(RailError::Unreachable("another process".into()));
        }
        self.opened = true;
        Ok(())
    }

    fn disconnect(&mut self, _peer: GateId) {
        self.queue.clear();
    }

    fn post(&mut self, _peer: GateId, frame: &Frame) -> Post {
        if self.queue.len() == DEPTH {
            self.refused = true;
            return Post::Full;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&frame.head);
        if let Some(body) = &frame.body {
            let at = bytes.len();
            bytes.resize(at + body.region.len(), 0);
            body.region.read(0, &mut bytes[at..]);
        }
        self.queue.push_back(bytes);
        Post::Done
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let peer = self.rank;
        if self.opened && !self.up {
            self.up = true;
            sink(Event::Up { peer, capabilities: CAPABILITIES });
            return true;
        }
        let Some(bytes) = self.queue.pop_front() else { return false };
        sink(Event::Frame { peer, bytes: &bytes });
        self.spare.push(bytes);
        if std::mem::take(&mut self.refused) {
            sink(Event::Room { peer });
        }
        true
    }

    fn pull(
        &mut self,
        _peer: GateId,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        crate::memory::copy_own(remote, offset, local)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.queue.is_empty() && self.opened == self.up
    }

    fn finish_sleep(&mut self) {}

    fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Frames on their way at once.
const DEPTH: usize = 64;

const CAPABILITIES: Capabilities = Capabilities {
    frame_max: 64 << 10,
    inline_max: 4 << 10,
    eager_max: 16 << 10,
    ahead_max: 0,
    piece_min: 64 << 10,
    credit_bytes: 1 << 20,
    credit_wanted: 1 << 20,
    pull: true,
    adapts: false,
    replay: false,
};
