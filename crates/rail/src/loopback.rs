//! The loopback rail: messages of a rank to its own rank.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use wire::{Capabilities, Frame, PeerId};

use crate::own_memory::OwnMemory;
use crate::rail::{Event, Post, Rail, RailError, RemoteReader};

/// A bounded queue of frames from this process to itself.
#[derive(Debug)]
pub struct LoopbackRail {
    rank: PeerId,
    queue: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    opened: bool,
    up: bool,
    refused: bool,
    /// Eventfd that wakes a sleeping thread when another one posts.
    eventfd: OwnedFd,
    sleep: Sleep,
}

/// State of the thread that sleeps on the eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Awake,
    Asleep,
    Signalled,
}

impl LoopbackRail {
    /// Creates the loopback rail of process `rank`.
    ///
    /// # Errors
    /// The kernel gives no eventfd.
    pub fn new(rank: PeerId) -> Result<Self, RailError> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let failed = |error: rustix::io::Errno| RailError::System {
            call: "eventfd for messages to oneself",
            source: error.into(),
        };
        Ok(Self {
            rank,
            queue: VecDeque::with_capacity(DEPTH),
            spare: Vec::new(),
            opened: false,
            up: false,
            refused: false,
            eventfd: eventfd.map_err(failed)?,
            sleep: Sleep::Awake,
        })
    }

    /// Wakes the sleeping thread, if there is one.
    #[inline]
    fn signal(&mut self) {
        if self.sleep == Sleep::Asleep {
            self.sleep = Sleep::Signalled;
            // The counter was zero, so there is room.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }
}

impl Rail for LoopbackRail {
    fn name(&self) -> &'static str {
        "self"
    }

    fn address(&self) -> Vec<u8> {
        self.rank.0.to_le_bytes().to_vec()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        if peer != self.rank || address != self.rank.0.to_le_bytes() {
            return Err(RailError::Unreachable("another process".into()));
        }
        self.opened = true;
        self.signal();
        Ok(())
    }

    fn disconnect(&mut self, _peer: PeerId) {
        self.queue.clear();
    }

    fn post(&mut self, _peer: PeerId, frame: &Frame) -> Post {
        if self.queue.len() == DEPTH {
            self.refused = true;
            return Post::Full;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&frame.head);
        if let Some(body) = &frame.body {
            let offset = bytes.len();
            bytes.resize(offset + body.region.len(), 0);
            body.region.read(0, &mut bytes[offset..]);
        }
        self.queue.push_back(bytes);
        self.signal();
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

    fn remote_reader(&self, _peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        Some(Arc::new(OwnMemory))
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.eventfd.as_fd()]
    }

    fn prepare_sleep(&mut self) -> bool {
        self.sleep = Sleep::Asleep;
        self.queue.is_empty() && self.opened == self.up
    }

    fn finish_sleep(&mut self) {
        if std::mem::replace(&mut self.sleep, Sleep::Awake) == Sleep::Signalled {
            // The counter is 1, so the read cannot fail.
            let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        }
    }

    fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Maximum number of queued frames.
const DEPTH: usize = 64;

const CAPABILITIES: Capabilities = Capabilities {
    frame_max: 64 << 10,
    inline_max: 4 << 10,
    eager_max: 16 << 10,
    rts_data_max: 0,
    aggregate_max: 64 << 10,
    piece_min: 64 << 10,
    piece_max: 64 << 10,
    credit_bytes: 1 << 20,
    credit_wanted: 1 << 20,
    remote_read: true,
    adapts: false,
    replay: false,
    reopens: false,
    copies: true,
    passes: false,
};
